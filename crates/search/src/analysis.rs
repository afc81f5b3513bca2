//! What a reduction reads and writes, loop by loop: classes of axes, strides,
//! windows, footprints and reuse.
//!
//! The facts are about the loops that stand round a block now, so that a rule can
//! split a loop and ask again. A stride is how many elements of a buffer one more
//! iteration of a loop moves, in the buffer's row-major order; it is unknown where an
//! index is not affine in the loop.

use ir::affine::{Affine, Ranges, bounds};
use ir::region::{bound, program_ranges};
use ir::simplify::simplify;
use ir::{BinaryOp, BlockId, BufferId, Expr, ExprKind, LoopId, Node, Program, Role, VarId};
use std::fmt::Write;

/// A reduction with the facts about its loops and accesses.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// Of the block.
    pub name: String,
    /// Outermost first.
    pub axes: Vec<Axis>,
    pub output: Access,
    /// What the block loads, in order of appearance; each place of a load counts.
    pub operands: Vec<Access>,
}

/// One loop round the block.
#[derive(Clone, Debug)]
pub struct Axis {
    pub id: LoopId,
    pub name: String,
    pub extent: i64,
    pub class: Class,
    /// A quotient or a remainder of the loop by this number is in an index.
    pub quotient: Option<i64>,
    /// The loop is an iteration variable of the block, and no part of one.
    pub whole: bool,
}

/// Which of output and operands an axis moves through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The output and some operands: the others are used again.
    Reused,
    /// The output and all operands: groups, channels of depthwise convolutions, heads.
    Batch,
    /// Not the output: terms are summed along it.
    Reduction,
}

/// One place that a block loads from or writes to.
#[derive(Clone, Debug)]
pub struct Access {
    pub buffer: BufferId,
    pub name: String,
    pub role: Role,
    pub element_bytes: i64,
    /// For each dimension of the buffer.
    pub dims: Vec<Dim>,
    /// For each axis.
    pub strides: Vec<Stride>,
    /// The axes whose iterations decide whether a select takes another value instead:
    /// where an element would lie outside the buffer.
    pub guards: Vec<bool>,
    /// Whether the axis decides an index through another load: its elements lie anywhere.
    pub gathers: Vec<bool>,
}

/// The index of one dimension of a buffer.
#[derive(Clone, Debug)]
pub struct Dim {
    pub size: i64,
    /// What one more iteration of each axis adds.
    pub steps: Vec<Stride>,
    /// The part of the index that is not affine takes values below this number and from 0
    /// on. Example: 2 of `r * 2 + (p + 1) % 2`.
    pub remainder: Option<i64>,
}

/// How an access moves with a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// Elements for each iteration; 0 if the access does not use the loop.
    Elements(i64),
    /// The access uses the loop in another way.
    Unknown,
}

impl Stride {
    pub fn is_used(self) -> bool {
        self != Stride::Elements(0)
    }
}

impl Reduction {
    /// The facts about a block that reduces into one buffer; `None` for other blocks.
    pub fn of(program: &Program, block: BlockId) -> Option<Reduction> {
        let b = program.block(block);
        let [write] = &b.writes[..] else {
            return None;
        };
        if !b.is_reduction() {
            return None;
        }
        let loops = program.path_to(Node::Block(block))?;
        let ranges = program_ranges(program);
        let index = |e: &Expr| simplify(&bound(b, e), &ranges);
        let access = |buffer: BufferId, indices: &[Expr], tests: &[&Expr]| {
            let indices: Vec<Expr> = indices.iter().map(index).collect();
            let tests: Vec<Expr> = tests.iter().map(|t| index(t)).collect();
            Access::of(program, &loops, &ranges, (buffer, &indices, &tests))
        };
        let output = access(write.buffer, &write.indices, &[]);
        let mut operands = Vec::new();
        visit_loads(
            &write.value,
            &mut Vec::new(),
            &mut |buffer, indices, tests| {
                operands.push(access(buffer, indices, tests));
            },
        );
        let found: Vec<Vec<Expr>> = b
            .loads()
            .iter()
            .map(|(_, indices)| indices.iter().map(index).collect())
            .collect();
        let axes = loops.iter().enumerate().map(|(at, id)| {
            let l = program.loop_(*id);
            let uses = |a: &Access| a.strides[at].is_used();
            let class = match (uses(&output), operands.iter().all(uses)) {
                (false, _) => Class::Reduction,
                (true, true) => Class::Batch,
                (true, false) => Class::Reused,
            };
            Axis {
                id: *id,
                name: l.name.clone(),
                extent: l.extent,
                class,
                whole: b.iters.iter().any(|i| i.binding.as_var() == Some(l.var)),
                quotient: found
                    .iter()
                    .flatten()
                    .find_map(|e| quotient(e, program, *id)),
            }
        });
        Some(Reduction {
            name: b.name.clone(),
            axes: axes.collect(),
            output,
            operands,
        })
    }

    /// Multiply-adds, or other combinations, of the whole block.
    pub fn points(&self) -> i64 {
        let extents = self.axes.iter().map(|a| a.extent);
        extents.fold(1, i64::saturating_mul)
    }

    /// Whether an operand is guarded along an axis.
    pub fn is_guarded(&self, at: usize) -> bool {
        self.operands.iter().any(|o| o.guards[at])
    }

    /// Whether iterations of an axis may have unequally many terms: a constant lacks some of
    /// them, as the taps of a transposed convolution's phases.
    pub fn is_uneven(&self, at: usize) -> bool {
        let mut constants = self.operands.iter().filter(|o| o.role == Role::Constant);
        self.axes[at].class == Class::Batch && constants.any(|o| o.guards[at])
    }

    /// Axes of the output, by position.
    pub fn spatial(&self) -> impl Iterator<Item = usize> {
        let all = self.axes.iter().enumerate();
        all.filter(|(_, a)| a.class != Class::Reduction)
            .map(|(at, _)| at)
    }

    /// Elements of an access that a box of so many iterations of each axis touches: of
    /// overlapping windows each element once.
    pub fn footprint(&self, access: &Access, tile: &[i64]) -> i64 {
        let spans = self.spans(access, tile).into_iter();
        spans.fold(1, i64::saturating_mul)
    }

    /// The same along each dimension.
    pub fn spans(&self, access: &Access, tile: &[i64]) -> Vec<i64> {
        let along = |d: &Dim| {
            let used = || d.steps.iter().zip(tile).filter(|(s, _)| s.is_used());
            let points = used().map(|(_, n)| *n).fold(1, i64::saturating_mul);
            let reach = |(step, n): (&Stride, &i64)| match step {
                Stride::Elements(s) => s.abs().saturating_mul(n - 1),
                Stride::Unknown if *n == 1 => 0,
                Stride::Unknown => d.remainder.unwrap_or(d.size),
            };
            let span = used().map(reach).fold(1, i64::saturating_add);
            span.min(points).min(d.size)
        };
        access.dims.iter().map(along).collect()
    }

    /// How often a box of iterations uses each element of an access that it touches.
    pub fn reuse(&self, access: &Access, tile: &[i64]) -> f64 {
        let points = tile.iter().fold(1i64, |n, t| n.saturating_mul(*t));
        points as f64 / self.footprint(access, tile) as f64
    }
}

impl Access {
    fn of(
        program: &Program,
        loops: &[LoopId],
        ranges: &Ranges,
        (buffer, indices, tests): (BufferId, &[Expr], &[Expr]),
    ) -> Access {
        let info = program.buffer(buffer);
        let vars: Vec<VarId> = loops.iter().map(|l| program.loop_(*l).var).collect();
        let sizes = indices.iter().zip(&info.shape);
        let dims: Vec<Dim> = sizes
            .map(|(e, size)| Dim::of(e, *size, &vars, ranges))
            .collect();
        let strides = (0..vars.len()).map(|at| {
            let (mut sum, mut weight) = (0i64, 1i64);
            for dim in dims.iter().rev() {
                match dim.steps[at] {
                    Stride::Elements(n) => sum += n * weight,
                    Stride::Unknown => return Stride::Unknown,
                }
                weight = weight.saturating_mul(dim.size);
            }
            Stride::Elements(sum)
        });
        Access {
            buffer,
            name: info.name.clone(),
            role: info.role,
            element_bytes: info.dtype.size() as i64,
            strides: strides.collect(),
            dims,
            guards: vars
                .iter()
                .map(|v| tests.iter().any(|t| t.uses_var(*v)))
                .collect(),
            gathers: vars.iter().map(|v| is_gathered(indices, *v)).collect(),
        }
    }

    /// Dimensions in which an output axis and a reduction axis meet: a window.
    fn windows<'a>(&'a self, axes: &'a [Axis]) -> impl Iterator<Item = String> + 'a {
        self.dims.iter().filter_map(|d| {
            let used: Vec<usize> = (0..axes.len()).filter(|a| d.steps[*a].is_used()).collect();
            let reduced = used.iter().any(|a| axes[*a].class == Class::Reduction);
            let kept = used.iter().any(|a| axes[*a].class != Class::Reduction);
            let term = |a: &usize| match d.steps[*a] {
                Stride::Elements(1) => axes[*a].name.clone(),
                Stride::Elements(n) => format!("{n}*{}", axes[*a].name),
                Stride::Unknown => format!("f({})", axes[*a].name),
            };
            let terms: Vec<String> = used.iter().map(term).collect();
            (reduced && kept).then(|| terms.join(" + "))
        })
    }
}

/// Whether a load in an index uses the variable.
fn is_gathered(indices: &[Expr], v: VarId) -> bool {
    let load = |e: &Expr| matches!(e.kind(), ExprKind::Load(..)) && e.uses_var(v);
    indices.iter().any(|e| e.any(&load))
}

impl Dim {
    fn of(index: &Expr, size: i64, vars: &[VarId], ranges: &Ranges) -> Dim {
        let (mut affine, mut other) = (Affine::constant(0), Vec::new());
        terms(index, &mut |e| match Affine::of(e) {
            Some(form) => affine = affine.clone().add_scaled(&form, 1),
            None => other.push(e.clone()),
        });
        let step = |v: &VarId| match other.iter().any(|e| e.uses_var(*v)) {
            true => Stride::Unknown,
            false => Stride::Elements(affine.coefficient(*v)),
        };
        let remainder = match &other[..] {
            [one] => bounds(one, ranges).filter(|b| b.lo == 0).map(|b| b.hi + 1),
            _ => None,
        };
        Dim {
            size,
            steps: vars.iter().map(step).collect(),
            remainder,
        }
    }
}

/// The terms of a sum.
fn terms(e: &Expr, f: &mut impl FnMut(&Expr)) {
    match e.kind() {
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            terms(a, f);
            terms(b, f);
        }
        _ => f(e),
    }
}

/// The number by which an index divides a loop, or takes its remainder, without the loop
/// being a multiple of it.
fn quotient(e: &Expr, program: &Program, l: LoopId) -> Option<i64> {
    let var = program.loop_(l).var;
    let mut found = None;
    e.visit(&mut |part| {
        if let ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, a, by) = part.kind()
            && let Some(by) = by.as_int()
            && let Some(form) = Affine::of(a)
            && form.coefficient(var) == 1
        {
            found.get_or_insert(by);
        }
    });
    found
}

/// Every load of a value, with the conditions of the selects round it.
fn visit_loads<'a>(
    e: &'a Expr,
    tests: &mut Vec<&'a Expr>,
    f: &mut impl FnMut(BufferId, &[Expr], &[&Expr]),
) {
    match e.kind() {
        ExprKind::Load(b, indices) => f(*b, indices, tests),
        ExprKind::Select(test, a, b) => {
            visit_loads(test, tests, f);
            tests.push(test);
            visit_loads(a, tests, f);
            visit_loads(b, tests, f);
            tests.pop();
        }
        _ => e.children().for_each(|c| visit_loads(c, tests, f)),
    }
}

/// The facts about every reduction of a program, for people.
pub fn text(program: &Program) -> String {
    let mut out = String::new();
    for block in program.block_ids() {
        match Reduction::of(program, block) {
            Some(r) => r.write(&mut out),
            None => writeln!(
                out,
                "{}: no reduction into one buffer",
                program.block(block).name
            )
            .unwrap_or_default(),
        }
    }
    out
}

impl Reduction {
    fn write(&self, out: &mut String) {
        let whole: Vec<i64> = self.axes.iter().map(|a| a.extent).collect();
        let accesses = || self.operands.iter().chain([&self.output]);
        let mut line = |s: String| {
            out.push_str(s.trim_end());
            out.push('\n');
        };
        line(format!("{}: {} points", self.name, self.points()));
        let names = accesses().map(|a| format!("{:>12}", a.name));
        line(format!(
            "  {:<16}{:>8}  {:<10}{}",
            "axis",
            "extent",
            "class",
            names.collect::<String>()
        ));
        for (at, axis) in self.axes.iter().enumerate() {
            let class = match axis.class {
                Class::Reused => "reused",
                Class::Batch => "batch",
                Class::Reduction => "reduction",
            };
            let strides = accesses().map(|a| match a.strides[at] {
                Stride::Elements(0) => format!("{:>12}", "-"),
                Stride::Elements(n) => format!("{n:>12}"),
                Stride::Unknown => format!("{:>12}", "?"),
            });
            let strides: String = strides.collect();
            line(format!(
                "  {:<16}{:>8}  {class:<10}{strides}",
                axis.name, axis.extent
            ));
        }
        for a in accesses() {
            let windows: Vec<String> = a.windows(&self.axes).collect();
            let mut facts = vec![
                format!("{} elements", self.footprint(a, &whole)),
                format!("each used {:.0} times", self.reuse(a, &whole)),
            ];
            if !windows.is_empty() {
                facts.push(format!("windows {}", windows.join(", ")));
            }
            let guards = self.axes.iter().zip(&a.guards).filter(|(_, g)| **g);
            let guards: Vec<&str> = guards.map(|(a, _)| a.name.as_str()).collect();
            if !guards.is_empty() {
                facts.push(format!("guarded along {}", guards.join(", ")));
            }
            line(format!("  {}: {}", a.name, facts.join("; ")));
        }
    }
}
