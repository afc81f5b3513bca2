//! tensorize{loop, intrinsic}: let one instruction run the loops from this one
//! inwards.
//!
//! The loops must be one nest round one block, enumerate exactly the axes of
//! the intrinsic's meaning in its order, and access memory with strides that
//! the instruction takes; the block's statement must be the meaning's, up to
//! guards of factors that stay the same for the whole instruction. The block
//! records the part of its domain that the instruction covers (`TensorOp`); the
//! variables that the loops fed count the steps left outside.

use crate::illegal::Illegal;
use crate::intrinsics::{INTRINSICS, Intrinsic, intrinsic};
use crate::nest::free_name;
use crate::steps::loop_named;
use ir::affine::{Affine, Ranges, bounds};
use ir::region::{bound, program_ranges};
use ir::simplify::simplify;
use ir::{
    BinaryOp, Block, BlockId, BufferId, DType, Expr, ExprKind, IterKind, LoopId, Node, Program,
    TensorOp, VarId,
};

pub(crate) const STEP: &str = "tensorize";

/// One loop that the instruction replaces.
struct Covered {
    loop_: LoopId,
    /// The block's iteration variable it feeds, and by what factor.
    iter: usize,
    factor: i64,
}

pub(crate) fn apply(program: &mut Program, target: &str, name: &str) -> Result<(), Illegal> {
    let l = loop_named(program, STEP, target)?;
    let refuse = |why: String| Illegal::new(STEP, target, why);
    let Some(op) = intrinsic(name) else {
        let known: Vec<&str> = INTRINSICS.iter().map(|i| i.name).collect();
        return Err(refuse(format!(
            "there is no intrinsic `{name}`; there are {}",
            known.join(", ")
        )));
    };
    let (block, covered) = nest(program, l).map_err(refuse)?;
    check(program, block, &covered, op).map_err(refuse)?;
    change(program, l, block, &covered, name);
    Ok(())
}

/// A sum of multiples of variables, and of what is not affine: quotients and remainders of a
/// loop that was fused.
#[derive(Default)]
struct Sum {
    affine: Affine,
    digits: Vec<(Expr, i64)>,
}

impl Sum {
    fn of(e: &Expr) -> Sum {
        let mut sum = Sum::default();
        sum.add(e, 1);
        sum
    }

    fn add(&mut self, e: &Expr, by: i64) {
        if let Some(affine) = Affine::of(e) {
            self.affine = std::mem::take(&mut self.affine).add_scaled(&affine, by);
            return;
        }
        match e.kind() {
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                self.add(a, by);
                self.add(b, by);
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
                (Some(times), _) => self.add(b, by * times),
                (_, Some(times)) => self.add(a, by * times),
                _ => self.digits.push((e.clone(), by)),
            },
            _ => self.digits.push((e.clone(), by)),
        }
    }

    /// By how much the sum grows with a variable, if evenly.
    fn coefficient(&self, v: VarId) -> Option<i64> {
        let even = self.digits.iter().all(|(e, _)| !e.uses_var(v));
        even.then(|| self.affine.coefficient(v))
    }

    /// What the sum is a multiple of is a divisor of all of these.
    fn steps(&self) -> impl Iterator<Item = i64> {
        let affine = self.affine.terms.values().copied();
        let digits = self.digits.iter().map(|(_, by)| *by);
        affine.chain([self.affine.constant]).chain(digits)
    }
}

/// The block under the loop and the loops from it inwards.
fn nest(p: &Program, l: LoopId) -> Result<(BlockId, Vec<Covered>), String> {
    let mut loops = vec![l];
    let b = loop {
        let innermost = loops[loops.len() - 1];
        match p.children(Some(innermost)) {
            [Node::Loop(next)] => loops.push(*next),
            [Node::Block(b)] => break *b,
            _ => return Err("it is not one nest round one block".into()),
        }
    };
    let block = p.block(b);
    if block.tensor.is_some() {
        return Err(format!("`{}` is tensorized already", block.name));
    }
    let mut covered = Vec::new();
    for l in loops {
        let var = p.loop_(l).var;
        let name = &p.loop_(l).name;
        if p.loop_(l).kind != ir::LoopKind::Serial {
            return Err(format!("`{name}` is not serial"));
        }
        if block.predicate.as_ref().is_some_and(|e| e.uses_var(var)) {
            return Err(format!("the predicate depends on `{name}`: it has a tail"));
        }
        let fed: Vec<usize> = (0..block.iters.len())
            .filter(|i| block.iters[*i].binding.uses_var(var))
            .collect();
        let [iter] = fed[..] else {
            return Err(format!(
                "`{name}` does not feed exactly one axis of the block"
            ));
        };
        let factor = Sum::of(&block.iters[iter].binding)
            .coefficient(var)
            .filter(|c| *c > 0)
            .ok_or_else(|| format!("the block does not step evenly with `{name}`"))?;
        covered.push(Covered {
            loop_: l,
            iter,
            factor,
        });
    }
    Ok((b, covered))
}

fn check(p: &Program, b: BlockId, covered: &[Covered], op: &Intrinsic) -> Result<(), String> {
    let block = p.block(b);
    let meaning = op.meaning();
    let wanted = meaning.block(meaning.block_ids()[0]);
    let axes: Vec<(i64, IterKind)> = wanted.iters.iter().map(|i| (i.extent, i.kind)).collect();
    let found = |c: &Covered| (p.loop_(c.loop_).extent, block.iters[c.iter].kind);
    if covered.iter().map(found).collect::<Vec<_>>() != axes {
        return Err(format!(
            "its loops are not {axes:?}, as `{}` wants",
            op.name
        ));
    }
    let reducer = |b: &Block| b.reduction.as_ref().map(|r| r.reducer.clone());
    if block.writes.len() != 1 || reducer(block) != reducer(wanted) {
        return Err(format!("the reduction is not that of `{}`", op.name));
    }
    let matcher = Matcher {
        program: p,
        block,
        meaning: &meaning,
        vars: covered.iter().map(|c| p.loop_(c.loop_).var).collect(),
        ranges: program_ranges(p),
        op,
    };
    let (write, target) = (&block.writes[0], &wanted.writes[0]);
    if p.buffer(write.buffer).dtype != meaning.buffer(target.buffer).dtype {
        return Err(format!("the output type is not that of `{}`", op.name));
    }
    if matcher.strides(write.buffer, &write.indices).as_deref() != Some(op.output_strides) {
        return Err(format!(
            "the output's strides are not those of `{}`",
            op.name
        ));
    }
    if !matcher.same(&write.value, &target.value) {
        return Err(format!(
            "the statement, its types or its strides are not those of `{}`",
            op.name
        ));
    }
    Ok(())
}

struct Matcher<'a> {
    program: &'a Program,
    block: &'a Block,
    meaning: &'a Program,
    /// The variables of the covered loops, in order.
    vars: Vec<VarId>,
    ranges: Ranges,
    op: &'a Intrinsic,
}

impl Matcher<'_> {
    /// Elements from one iteration of each covered loop to the next.
    fn strides(&self, buffer: BufferId, indices: &[Expr]) -> Option<Vec<i64>> {
        let buffer = self.program.buffer(buffer);
        let dense = || {
            let mut strides = vec![1; buffer.shape.len()];
            for d in (1..strides.len()).rev() {
                strides[d - 1] = strides[d] * buffer.shape[d];
            }
            strides
        };
        let of_dim = match &buffer.view {
            Some(view) => view.strides.clone(),
            None => dense(),
        };
        let mut out = vec![0; self.vars.len()];
        for (index, stride) in indices.iter().zip(of_dim) {
            let index = simplify(&bound(self.block, index), &self.ranges);
            if !self.vars.iter().any(|v| index.uses_var(*v)) {
                continue;
            }
            let sum = Sum::of(&index);
            for (v, out) in self.vars.iter().zip(&mut out) {
                *out += sum.coefficient(*v)? * stride;
            }
        }
        Some(out)
    }

    /// Whether two values are the same operation over loads that the
    /// instruction takes; products commute.
    fn same(&self, found: &Expr, wanted: &Expr) -> bool {
        match (found.kind(), wanted.kind()) {
            (ExprKind::Load(b, indices), ExprKind::Load(w, _)) => {
                let taken = self.op.operand_strides[self.operand(*w)];
                let strides = self.strides(*b, indices);
                self.program.buffer(*b).dtype == self.meaning.buffer(*w).dtype
                    && strides.is_some_and(|s| taken.contains(&&s[..]))
            }
            (ExprKind::Cast(t, a), ExprKind::Cast(u, b)) => t == u && self.same(a, b),
            (ExprKind::Binary(BinaryOp::Mul, a, b), ExprKind::Binary(BinaryOp::Mul, c, d)) => {
                let (a, b) = (self.bare(a), self.bare(b));
                let straight = self.same(a, c) && self.same(b, d);
                straight || (self.same(a, d) && self.same(b, c))
            }
            _ => false,
        }
    }

    /// A factor of a term of a sum of integers without its guard: where a
    /// condition that no covered loop changes fails, the factor is 0, and all
    /// terms are.
    fn bare<'e>(&self, factor: &'e Expr) -> &'e Expr {
        match factor.kind() {
            ExprKind::Select(c, x, zero)
                if matches!(zero.kind(), ExprKind::Int(0, DType::I32)) && !self.varies(c) =>
            {
                x
            }
            _ => factor,
        }
    }

    /// Whether an expression of the block changes with a covered loop.
    fn varies(&self, e: &Expr) -> bool {
        let e = simplify(&bound(self.block, e), &self.ranges);
        self.vars.iter().any(|v| e.uses_var(*v))
    }

    /// The position of an input among the meaning's operands.
    fn operand(&self, buffer: BufferId) -> usize {
        let params = self.meaning.params.iter();
        params.take_while(|p| **p != buffer).count()
    }
}

fn change(p: &mut Program, l: LoopId, b: BlockId, covered: &[Covered], name: &str) {
    let mut iters = Vec::new();
    let inner: Vec<VarId> = covered
        .iter()
        .map(|c| {
            let name = point_name(p, b, &p.loop_(c.loop_).name);
            p.add_var(name)
        })
        .collect();
    for (c, var) in covered.iter().zip(&inner) {
        let kind = p.block(b).iters[c.iter].kind;
        iters.push((*var, p.loop_(c.loop_).extent, kind));
    }
    let mut r = program_ranges(p);
    for (var, extent, _) in &iters {
        r.set(*var, 0, extent - 1);
    }
    for at in 0..p.block(b).iters.len() {
        let mut outer = p.block(b).iters[at].clone();
        let mut offset = Affine::constant(0);
        let mut reach = 0;
        for (c, var) in covered.iter().zip(&inner).filter(|(c, _)| c.iter == at) {
            let replaced = p.loop_(c.loop_);
            let start = |v: VarId| (v == replaced.var).then(|| Expr::int(0));
            outer.binding = simplify(&outer.binding.substitute(&start), &r);
            offset = offset.add_scaled(&Affine::var(*var), c.factor);
            reach += c.factor * (replaced.extent - 1);
        }
        if offset.terms.is_empty() {
            continue;
        }
        // The variable now counts what the loops left enumerate: an outer
        // step of 16 becomes 1, so that its domain stays dense.
        let rest = Sum::of(&outer.binding);
        let step = rest.steps().fold(0, |a, b| gcd(a, b.abs())).max(1);
        outer.binding = simplify(&outer.binding.clone().floor_div(step), &r);
        let last = bounds(&outer.binding, &r).map_or(i64::MAX - 1, |i| i.hi);
        outer.extent = (last + 1).min((outer.extent - 1 - reach) / step + 1);
        let point = Affine::var(outer.var).scale(step);
        let point = point.add_scaled(&offset, 1).to_expr();
        let whole = outer.var;
        r.set(whole, 0, outer.extent - 1);
        let put = |v: VarId| (v == whole).then(|| point.clone());
        let block = p.block_mut(b);
        block.iters[at] = outer;
        block.map_statement(|e| simplify(&e.substitute(&put), &r));
    }
    p.block_mut(b).tensor = Some(TensorOp {
        intrinsic: name.to_string(),
        iters,
    });
    p.replace_node(Node::Loop(l), &[Node::Block(b)]);
}

/// The name of a loop for a variable of the block's domain, unless an axis has it.
fn point_name(p: &Program, b: BlockId, base: &str) -> String {
    let taken = |n: &str| p.block(b).iters.iter().any(|i| p.var(i.var).name == n);
    free_name(base, taken)
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
