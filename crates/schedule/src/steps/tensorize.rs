//! tensorize{loop, intrinsic}: let one instruction run the loops from this one
//! inwards.
//!
//! The loops must be one nest round one block, enumerate exactly the axes of
//! the intrinsic's meaning in its order, and access memory with strides that
//! the instruction takes; the block's statement must be the meaning's. The
//! statement is unchanged: the block records which part of its domain the
//! instruction covers (`TensorOp`).

use crate::illegal::Illegal;
use crate::intrinsics::{INTRINSICS, Intrinsic, intrinsic};
use crate::steps::loop_named;
use ir::affine::{Affine, Ranges};
use ir::region::{bound, program_ranges};
use ir::simplify::simplify;
use ir::{
    BinaryOp, Block, BlockId, BufferId, Expr, ExprKind, IterKind, LoopId, Node, Program, TensorOp,
    VarId,
};

const STEP: &str = "tensorize";

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
        let factor = Affine::of(&block.iters[iter].binding)
            .and_then(|a| a.terms.get(&var).copied())
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
            let affine = Affine::of(&index)?;
            for (v, out) in self.vars.iter().zip(&mut out) {
                *out += affine.terms.get(v).copied().unwrap_or(0) * stride;
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
                let straight = self.same(a, c) && self.same(b, d);
                straight || (self.same(a, d) && self.same(b, c))
            }
            _ => false,
        }
    }

    /// The position of an input among the meaning's operands.
    fn operand(&self, buffer: BufferId) -> usize {
        let params = self.meaning.params.iter();
        params.take_while(|p| **p != buffer).count()
    }
}

fn change(p: &mut Program, l: LoopId, b: BlockId, covered: &[Covered], name: &str) {
    let mut iters = Vec::new();
    for c in covered {
        let (loop_name, extent) = (p.loop_(c.loop_).name.clone(), p.loop_(c.loop_).extent);
        let var = p.loop_(c.loop_).var;
        let inner = p.add_var(loop_name);
        let block = p.block_mut(b);
        let iter = &mut block.iters[c.iter];
        let at = |v: VarId| (v == var).then(|| Expr::int(0));
        iter.binding = simplify(&iter.binding.substitute(&at), &Ranges::new());
        let (outer, kind) = (iter.var, iter.kind);
        let point = Expr::var(outer) + Expr::var(inner) * c.factor;
        let at = |v: VarId| (v == outer).then(|| point.clone());
        block.map_statement(|e| e.substitute(&at));
        iters.push((inner, extent, kind));
    }
    p.block_mut(b).tensor = Some(TensorOp {
        intrinsic: name.to_string(),
        iters,
    });
    p.replace_node(Node::Loop(l), &[Node::Block(b)]);
}
