//! Writing sketches: nests of a program, and lines of steps over them.

use crate::space::{Limit, Sketch};
use ir::{BlockId, IterKind, Node, Program};
use schedule::{Decision, DecisionKind, Step};

/// One block of an unscheduled program with its own loops.
#[derive(Clone, Debug)]
pub struct Nest {
    pub id: BlockId,
    pub block: String,
    /// (loop, extent), outermost first.
    pub spatial: Vec<(String, i64)>,
    pub reduce: Vec<(String, i64)>,
    pub writes: usize,
    pub is_reduction: bool,
}

/// The nests of an unscheduled program, in execution order.
pub fn nests(p: &Program) -> Vec<Nest> {
    p.block_ids()
        .into_iter()
        .map(|b| {
            let block = p.block(b);
            let path = p.path_to(Node::Block(b)).unwrap_or_default();
            let reduces = |v| {
                block
                    .iters
                    .iter()
                    .any(|i| i.kind == IterKind::Reduce && i.binding.uses_var(v))
            };
            let named = |l: &ir::LoopId| (p.loop_(*l).name.clone(), p.loop_(*l).extent);
            let (reduce, spatial): (Vec<_>, Vec<_>) =
                path.iter().partition(|l| reduces(p.loop_(**l).var));
            Nest {
                id: b,
                block: block.name.clone(),
                spatial: spatial.into_iter().map(named).collect(),
                reduce: reduce.into_iter().map(named).collect(),
                writes: block.writes.len(),
                is_reduction: block.is_reduction(),
            }
        })
        .collect()
}

impl Nest {
    /// The extent of `block.axis`.
    pub fn extent(&self, axis: &str) -> Option<i64> {
        let name = format!("{}.{axis}", self.block);
        self.spatial
            .iter()
            .chain(&self.reduce)
            .find(|(n, _)| *n == name)
            .map(|(_, e)| *e)
    }
}

/// A sketch being written.
#[derive(Default)]
pub struct Draft {
    decisions: Vec<Decision>,
    default: Vec<u64>,
    lines: Vec<String>,
    limits: Vec<Limit>,
    /// Loops to run in parallel once everything has its place.
    parallel: Vec<String>,
}

impl Draft {
    pub fn line(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }

    fn decide(&mut self, name: &str, kind: DecisionKind, default: u64) -> usize {
        let value = kind.value_at(default).expect("the default is a value");
        self.decisions.push(Decision {
            name: name.into(),
            kind,
            value,
        });
        self.default.push(default);
        self.decisions.len() - 1
    }

    /// A two-part tile whose inner factor is the largest divisor up to `wanted`.
    pub fn tile(&mut self, name: &str, extent: i64, max_inner: i64, wanted: i64) -> usize {
        let kind = DecisionKind::PerfectTile {
            extent,
            parts: 2,
            max_innermost: max_inner,
        };
        let default = (0..kind.cardinality())
            .filter(|i| tile_inner(&kind, *i) <= wanted)
            .max_by_key(|i| tile_inner(&kind, *i));
        self.decide(name, kind, default.unwrap_or(0))
    }

    /// A tile of as many parts as `wanted` has, which is the default if it is a value.
    pub fn tiles(&mut self, name: &str, extent: i64, wanted: &[i64], max_inner: i64) -> usize {
        let kind = DecisionKind::PerfectTile {
            extent,
            parts: wanted.len(),
            max_innermost: max_inner,
        };
        let default = kind.index_of(wanted).unwrap_or(0);
        self.decide(name, kind, default)
    }

    /// One of `options`, by default the largest up to `wanted`.
    pub fn choose(&mut self, name: &str, options: &[i64], wanted: i64) -> usize {
        let best = options
            .iter()
            .filter(|o| **o <= wanted)
            .max()
            .unwrap_or(&options[0]);
        let default = options.iter().position(|o| o == best).unwrap_or(0);
        let kind = DecisionKind::Categorical {
            options: options.to_vec(),
        };
        self.decide(name, kind, default as u64)
    }

    pub fn limit(&mut self, what: &'static str, terms: &[(i64, &[(usize, usize)])], max: i64) {
        let terms = terms
            .iter()
            .map(|(k, parts)| (*k, parts.to_vec()))
            .collect();
        self.limits.push(Limit { what, terms, max });
    }

    /// Fuses the loops, a perfect chain. The result becomes parallel with
    /// [`Draft::run_parallel`], at the latest at the end: a buffer is the
    /// iteration's own only once its readers are inside.
    pub fn parallel(&mut self, loops: &[String], threads: u32) -> Option<String> {
        let first = loops.first()?.clone();
        if threads <= 1 {
            return None;
        }
        let mut fused = first;
        for l in &loops[1..] {
            self.line(format!("fuse {fused} {l}"));
            fused = format!("{fused}&{l}");
        }
        self.parallel.push(fused.clone());
        Some(fused)
    }

    /// Loops that [`Draft::parallel`] fused run in parallel from here on: before
    /// partitions, whose parts are harder to tell apart.
    pub fn run_parallel(&mut self) {
        for l in std::mem::take(&mut self.parallel) {
            self.line(format!("parallel {l}"));
        }
    }

    pub fn finish(mut self, name: &str) -> Sketch {
        self.run_parallel();
        let Draft {
            decisions,
            default,
            lines,
            limits,
            parallel: _,
        } = self;
        let exact = lines.iter().all(|l| is_exact(l));
        Sketch {
            name: name.into(),
            decisions,
            lines,
            limits,
            default,
            exact,
        }
    }
}

/// Whether a line is a step that loses no digits. A line that is none says so
/// when a candidate is made of it.
fn is_exact(line: &str) -> bool {
    let step = line.strip_prefix("try ").unwrap_or(line);
    step.parse().map_or(true, |s: Step| s.is_exact())
}

/// The innermost factor of a tile's value.
fn tile_inner(kind: &DecisionKind, index: u64) -> i64 {
    kind.value_at(index)
        .and_then(|v| v.last().copied())
        .expect("the index is below the cardinality")
}
