//! The search of one task: its space, its strategy, its data and its best.

use crate::budget::bound_ns;
use crate::compile::provided;
use crate::error::{Error, Result};
use crate::finalists::ranked;
use crate::machine::Limits;
use crate::source::Source;
use crate::{Options, record};
use build::Built;
use ir::{Expr, ExprKind, Program, Target};
use measure::{ArgFill, TaskData, TaskState};
use plan::Plan;
use search::{Candidate, Point, Space, Strategy};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;
use store::{Place, Record, Store};
use tensor::DType;

/// A modest machine, for guesses before the first measurement.
const GUESS_FLOPS_PER_NS: f64 = 50.0;
const GUESS_BYTES_PER_NS: f64 = 10.0;

/// A candidate that ran.
pub struct Ranked {
    pub ns: u64,
    /// Whether `ns` was measured as a finalist.
    pub alone: bool,
    /// Relative error (L2) of its outputs, where the record has it.
    pub rel_l2: Option<f64>,
    pub trial: u64,
    pub candidate: Candidate,
    pub point: Point,
    pub built: Built,
}

/// The search of one task.
pub struct Search {
    pub title: String,
    pub key: String,
    pub uses: usize,
    pub flops: f64,
    /// How many times the f32 peak the target has for them.
    pub peak_factor: f64,
    pub program: Program,
    pub text: String,
    pub space: Space,
    pub strategy: Box<dyn Strategy + Send>,
    /// Its plain schedule, which says what comes out; asked for before the first candidate.
    pub oracle: Option<Built>,
    pub oracle_asked: bool,
    /// Whether that cannot be built, so that candidates cannot be checked.
    pub unchecked: bool,
    pub args: Vec<ArgFill>,
    /// Its number, and the seed of its data.
    pub id: u64,
    pub seed: u64,
    /// What making its data took, the oracle's run in it; known once it was measured.
    pub setting_up: Option<Duration>,
    /// What DOPpler knows of the task.
    pub state: TaskState,
    /// A rough time before anything was measured, for shares of the budget.
    pub guess_ns: f64,
    /// The best, and the best of every other algorithm; fastest first, until
    /// the whole model decides.
    pub best: Vec<Ranked>,
    /// Share of the trials that is ranked alone in the end, however far from the best.
    pub rank: f64,
    pub in_model: Option<store::InModelDecision>,
    /// Points of the best that the store knows, to start from.
    pub known: VecDeque<Point>,
    /// No schedule of the task takes less.
    pub bound_ns: f64,
    pub asked: u64,
    /// Outcomes told, and the time they took.
    pub told: u64,
    pub spent_ns: u64,
    pub trials: u64,
    /// Candidates that stayed unanswered since one was measured.
    pub unanswered: u64,
    pub since_best: u64,
    pub exhausted: bool,
    pub failures: BTreeMap<String, u64>,
}

/// Candidates of a task that are kept, whatever their algorithm; at least.
const KEPT: usize = 3;

impl Search {
    /// What its candidates are measured with, once there is its oracle; `other` gives other data.
    pub fn data(&self, other: u64) -> Option<TaskData> {
        Some(TaskData {
            id: self.id,
            seed: self.seed ^ other,
            args: self.args.clone(),
            oracle: self.oracle.as_ref()?.kernel.clone(),
        })
    }

    /// How many of the best are ranked alone in any case.
    pub fn finalists(&self) -> usize {
        ranked(self.rank, self.trials as usize)
    }

    /// Puts a candidate among the best, unless its code is there; what is
    /// neither among the fastest nor the fastest of its algorithm is dropped.
    pub fn keep(&mut self, new: Ranked) {
        let kept = KEPT.max(self.finalists());
        let same = |b: &Ranked| b.built.kernel.code == new.built.kernel.code;
        if self.best.iter().any(same) {
            return;
        }
        let at = self.best.partition_point(|b| b.ns <= new.ns);
        self.best.insert(at, new);
        let mut seen: Vec<String> = Vec::new();
        let mut position = 0;
        self.best.retain(|b| {
            position += 1;
            let first = !seen.contains(&b.candidate.algorithm);
            if first {
                seen.push(b.candidate.algorithm.clone());
            }
            first || position <= kept
        });
    }
}

/// Values for the inputs of a task: indices stay within what they index, and
/// arguments of roots and logarithms positive.
pub fn fills(program: &Program) -> Vec<ArgFill> {
    let mut limits: HashMap<ir::BufferId, i64> = HashMap::new();
    let mut positive = false;
    for b in program.block_ids() {
        for w in &program.block(b).writes {
            w.value.visit(&mut |e| match e.kind() {
                ExprKind::Load(buffer, indices) => {
                    for (d, i) in indices.iter().enumerate() {
                        let size = program.buffer(*buffer).shape[d];
                        visit_loads(i, &mut |index| {
                            let limit = limits.entry(index).or_insert(size);
                            *limit = size.min(*limit);
                        });
                    }
                }
                ExprKind::Unary(ir::UnaryOp::Log | ir::UnaryOp::Sqrt | ir::UnaryOp::Rsqrt, _)
                | ExprKind::Binary(ir::BinaryOp::Pow | ir::BinaryOp::Div, ..) => positive = true,
                _ => {}
            });
        }
    }
    provided(program)
        .map(|b| {
            let id = program.buffer_named(&b.name);
            let limit = id.and_then(|id| limits.get(&id)).copied();
            let (lo, hi) = match (b.dtype, limit) {
                (_, Some(n)) => (0.0, n as f64),
                (DType::Bool, _) => (0.0, 2.0),
                (d, _) if d.is_float() && positive => (0.1, 1.0),
                (d, _) if d.is_float() => (-1.0, 1.0),
                _ => (0.0, 4.0),
            };
            ArgFill {
                name: b.name.clone(),
                dtype: b.dtype,
                shape: b.shape.clone(),
                lo,
                hi,
            }
        })
        .collect()
}

fn visit_loads(e: &Expr, f: &mut impl FnMut(ir::BufferId)) {
    e.visit(&mut |e| {
        if let ExprKind::Load(b, _) = e.kind() {
            f(*b);
        }
    });
}

/// The sketches whose names begin with one of the prefixes; all of them if none do.
fn restricted(mut space: Space, prefixes: &[String]) -> Space {
    let wanted = |name: &str| prefixes.iter().any(|p| name.starts_with(p.as_str()));
    if space.sketches.iter().any(|s| wanted(&s.name)) {
        space.sketches.retain(|s| wanted(&s.name));
    }
    space
}

/// Refuses prefixes with which no algorithm of any task begins.
pub fn check_algorithms(source: &Source, target: &Target, options: &Options) -> Result<()> {
    if options.algorithms.is_empty() {
        return Ok(());
    }
    let mut unknown: Vec<&String> = options.algorithms.iter().collect();
    for t in &source.plan(target, &[])?.tasks {
        let space = search::space(&t.program, target, options.accuracy);
        unknown.retain(|p| {
            space
                .sketches
                .iter()
                .all(|s| !s.name.starts_with(p.as_str()))
        });
    }
    let Some(prefix) = unknown.first() else {
        return Ok(());
    };
    let why = format!("no task has an algorithm whose name begins with `{prefix}`");
    Err(Error::new(why)
        .help("`tasks MODEL --json` lists every task's; some need --accuracy relaxed"))
}

/// Points of a task that a run starts from, at most.
const KNOWN: usize = 3;

/// Where the store is asked for what is known.
pub struct KnownPlace<'a> {
    pub store: &'a Store,
    pub target: &'a str,
    pub machine: &'a str,
}

impl KnownPlace<'_> {
    /// The points of the best known candidates that are in this space.
    fn points(&self, task: &str, space: &Space, tolerance: f64) -> Result<VecDeque<Point>> {
        let place = Place {
            task,
            target: self.target,
            machine: self.machine,
        };
        let mut points = VecDeque::new();
        self.store.fastest_that(&place, tolerance, |r| {
            if let Some(p) = point_of(r, space)
                && r.outcome.within(tolerance)
                && !points.contains(&p)
            {
                points.push_back(p);
            }
            Ok(points.len() == KNOWN)
        })?;
        Ok(points)
    }
}

/// The point that a record's decisions are in a space, if every decision is
/// still the same choice.
fn point_of(r: &Record, space: &Space) -> Option<Point> {
    let sketch = space.sketches.iter().position(|s| s.name == r.algorithm)?;
    let index = |d: &schedule::Decision| {
        let same = |k: &&store::Decision| k.name == d.name && k.cardinality == d.cardinality();
        r.decisions.iter().find(same).map(|k| k.index)
    };
    let decisions = &space.sketches[sketch].decisions;
    let values = decisions.iter().map(index).collect::<Option<Vec<_>>>()?;
    let p = Point { sketch, values };
    space.is_legal(&p).then_some(p)
}

/// A search for every task of the plan; the tasks are put into the store.
pub fn searches(
    plan: &Plan,
    target: &Target,
    limits: &Limits,
    known: &KnownPlace<'_>,
    options: &Options,
) -> Result<Vec<Search>> {
    let uses = plan.uses();
    let mut searches = Vec::new();
    for (i, t) in plan.tasks.iter().enumerate() {
        known.store.put_task(&record::task(t))?;
        let seed = options.seed ^ (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let strategy = search::strategy(&options.strategy, seed)
            .ok_or_else(|| Error::new(format!("no strategy `{}`", options.strategy)))?;
        let space = search::space(&t.program, target, options.accuracy);
        let space = restricted(space, &options.algorithms);
        let peak_factor = search::peak_factor(&t.program, target);
        let inexact = space.sketches.iter().any(|s| !s.exact);
        searches.push(Search {
            known: known.points(&t.key, &space, options.tolerance)?,
            peak_factor,
            bound_ns: bound_ns(
                t.flops / peak_factor,
                t.bytes,
                inexact,
                limits,
                target.threads,
            ),
            title: t.title(),
            key: t.key.clone(),
            uses: uses[i],
            flops: t.flops,
            text: ir::text::print(&t.program),
            space,
            strategy,
            oracle: None,
            oracle_asked: false,
            unchecked: false,
            args: fills(&t.program),
            id: i as u64,
            seed: options.seed,
            setting_up: None,
            state: TaskState::new(&options.measure.constants, seed),
            program: t.program.clone(),
            guess_ns: t.flops / GUESS_FLOPS_PER_NS + t.bytes / GUESS_BYTES_PER_NS,
            best: vec![],
            rank: options.rank,
            in_model: None,
            asked: 0,
            told: 0,
            spent_ns: 0,
            trials: 0,
            unanswered: 0,
            since_best: 0,
            exhausted: false,
            failures: BTreeMap::new(),
        });
    }
    Ok(searches)
}
