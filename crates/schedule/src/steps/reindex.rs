//! reindex{block, buffer}: gather what a block reads of a buffer, in the order
//! of its own iteration.
//!
//! A new block `{buffer}.reindex` at the root stores the operand, borders
//! included, under the block's iteration variables: one element for every
//! combination of those that the operand uses, in the block's order. Of a
//! convolution's data that is the matrix of im2row; computed where a tile is
//! multiplied (`compute_at`) it is ConvGEMM, inlined again the direct form.

use crate::illegal::Illegal;
use crate::nest::{
    child_with, guarded_inside, insert_before, is_padded, live_name, map_block, path, renest,
    whole_domain,
};
use crate::steps::{block_named, buffer_named};
use ir::region::program_ranges;
use ir::{BlockId, Buffer, BufferId, DType, Expr, ExprKind, Iter, Node, Program, Role, Scope};

pub(crate) const STEP: &str = "reindex";

/// Gives the block that gathers.
pub(crate) fn apply(program: &mut Program, block: &str, buffer: &str) -> Result<BlockId, Illegal> {
    let b = block_named(program, STEP, block)?;
    let source = buffer_named(program, STEP, buffer)?;
    let operand = check(program, b, source).map_err(|why| Illegal::new(STEP, buffer, why))?;
    Ok(gather(program, b, source, &operand))
}

/// The operand to gather.
fn check(p: &Program, b: BlockId, source: BufferId) -> Result<Expr, String> {
    let block = p.block(b);
    if block.tensor.is_some() {
        return Err(format!("`{}` is tensorized", block.name));
    }
    let mut operands: Vec<Expr> = Vec::new();
    for w in &block.writes {
        if w.indices.iter().any(|i| loads(i, source)) {
            return Err(format!("`{}` writes where it says", block.name));
        }
        find(&w.value, source, &mut operands);
    }
    let operand = match &operands[..] {
        [] => return Err(format!("`{}` does not read it", block.name)),
        [one] => one.clone(),
        _ => return Err(format!("`{}` reads it in several ways", block.name)),
    };
    let outside = operand.any(&|e| matches!(e.kind(), ExprKind::Arg(..)));
    if outside {
        return Err("what is read depends on accumulators".into());
    }
    let here = root_position(p, b);
    let mut inputs = Vec::new();
    operand.visit(&mut |e| {
        if let ExprKind::Load(buffer, _) = e.kind() {
            inputs.push(*buffer);
        }
    });
    if inputs.iter().any(|i| is_padded(p, *i)) {
        return Err("it is packed with padding, which a copy would read".into());
    }
    for q in inputs.into_iter().flat_map(|i| p.producers(i)) {
        if root_position(p, q) >= here {
            let producer = &p.block(q).name;
            return Err(format!("`{producer}` computes it in the same nest"));
        }
    }
    Ok(operand)
}

/// The child of the root that a block stands under.
fn root_position(p: &Program, b: BlockId) -> usize {
    child_with(p, None, Node::Block(b)).expect("in the body").0
}

fn loads(e: &Expr, source: BufferId) -> bool {
    e.any(&|e| matches!(e.kind(), ExprKind::Load(b, _) if *b == source))
}

/// Distinct loads of `source`, each with the guard round it. What is 0 where the guard fails may be
/// converted inside of it.
fn find(e: &Expr, source: BufferId, found: &mut Vec<Expr>) {
    let is_load = |e: &Expr| matches!(e.kind(), ExprKind::Load(b, _) if *b == source);
    let whole = match e.kind() {
        ExprKind::Select(test, a, b) => {
            let is_converted = match a.kind() {
                ExprKind::Cast(_, a) => is_load(a) && b.as_float() == Some(0.0),
                _ => false,
            };
            let is_read = is_load(a) && b.as_float().is_some();
            (is_read || is_converted) && !loads(test, source)
        }
        _ => is_load(e),
    };
    if whole {
        if !found.contains(e) {
            found.push(e.clone());
        }
        return;
    }
    for child in e.children() {
        find(child, source, found);
    }
}

/// An operand as it is stored, and what the loads of it are converted to: 0 of either type is 0.
fn stored(p: &Program, operand: &Expr) -> (Expr, Option<DType>) {
    if let ExprKind::Select(test, value, _) = operand.kind()
        && let ExprKind::Cast(to, load) = value.kind()
    {
        let zero = Expr::constant(0.0, load.dtype(p));
        return (Expr::select(test, load, zero), Some(*to));
    }
    (operand.clone(), None)
}

fn gather(p: &mut Program, b: BlockId, source: BufferId, operand: &Expr) -> BlockId {
    let (kept, converted) = stored(p, operand);
    let used = |i: &&Iter| operand.uses_var(i.var);
    let iters: Vec<Iter> = p.block(b).iters.iter().filter(used).cloned().collect();
    let name = live_name(p, &format!("{}.reindex", p.buffer(source).name));
    let axes: Vec<(String, i64)> = iters
        .iter()
        .map(|i| (p.var(i.var).name.clone(), i.extent))
        .collect();
    let dtype = kept.dtype(p);
    let gathered = p.add_buffer(Buffer {
        name: name.clone(),
        dtype,
        shape: axes.iter().map(|a| a.1).collect(),
        scope: Scope::Global,
        role: Role::Intermediate,
        view: None,
    });
    let copier = map_block(p, &name, &axes, gathered, |at| {
        let own = |v| {
            let i = iters.iter().position(|i| i.var == v)?;
            Some(at[i].clone())
        };
        (at.to_vec(), kept.substitute(&own))
    });
    let mut r = program_ranges(p);
    for i in &p.block(copier).iters {
        r.set(i.var, 0, i.extent - 1);
    }
    // A condition outside the operand may have kept the block from reading there.
    let value = guarded_inside(p, &p.block(copier).writes[0].value, &r);
    p.block_mut(copier).writes[0].value = value;
    let at: Vec<Expr> = iters.iter().map(|i| Expr::var(i.var)).collect();
    let load = Expr::load(gathered, at);
    let load = match converted {
        Some(to) => load.cast(to),
        None => load,
    };
    p.block_mut(b)
        .map_statement(|e| e.rewrite(&mut |e| (e == operand).then(|| load.clone())));
    let outermost = path(p, Node::Block(b)).first().copied();
    let before = outermost.map_or(Node::Block(b), Node::Loop);
    let spans = whole_domain(p.block(copier));
    let nest = renest(p, copier, &spans, &[]);
    insert_before(p, None, before, nest);
    copier
}
