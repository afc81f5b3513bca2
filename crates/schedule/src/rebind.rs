//! Rebind: what a change of loops does to the blocks under them.
//!
//! Bindings and predicates are kept simplified under the ranges of the loops;
//! a predicate that is always true is dropped.

use ir::affine::Ranges;
use ir::region::program_ranges;
use ir::simplify::simplify;
use ir::{Expr, Node, Program, VarId};

/// Puts expressions for loop variables into the bindings and predicates of the
/// blocks under `nodes`, which are in the body; those over other variables are
/// as they were.
pub(crate) fn substitute(p: &mut Program, nodes: &[Node], f: &impl Fn(VarId) -> Option<Expr>) {
    rebind(p, nodes, |e| e.substitute(f), |put, old| put != old);
}

/// Puts an expression in the place of another, for blocks whose bindings may not be in
/// canonical form: those of copies are over variables in another order.
pub(crate) fn replace_in_copies(p: &mut Program, nodes: &[Node], from: &Expr, to: &Expr) {
    let replaced = |e: &Expr| e.rewrite(&mut |part| (part == from).then(|| to.clone()));
    rebind(p, nodes, replaced, |_, _| true);
}

fn rebind(
    p: &mut Program,
    nodes: &[Node],
    put_in: impl Fn(&Expr) -> Expr,
    changes: impl Fn(&Expr, &Expr) -> bool,
) {
    let r = program_ranges(p);
    for b in p.blocks_under(nodes) {
        let block = p.block_mut(b);
        for iter in &mut block.iters {
            let put = put_in(&iter.binding);
            if changes(&put, &iter.binding) {
                iter.binding = simplify(&put, &r);
            }
        }
        if let Some(old) = block.predicate.take() {
            let put = put_in(&old);
            block.predicate = match changes(&put, &old) {
                true => open(&put, &r),
                false => Some(put),
            };
        }
    }
}

/// Lets the blocks under `nodes` run only where `test` holds as well.
pub(crate) fn restrict(p: &mut Program, nodes: &[Node], test: &Expr) {
    let r = program_ranges(p);
    for b in p.blocks_under(nodes) {
        let block = p.block_mut(b);
        let both = match block.predicate.take() {
            Some(e) => e.and(test),
            None => test.clone(),
        };
        block.predicate = open(&both, &r);
    }
}

/// The predicate, simplified; `None` if it always holds.
pub(crate) fn open(predicate: &Expr, r: &Ranges) -> Option<Expr> {
    let e = simplify(predicate, r);
    (e.as_int() != Some(1)).then_some(e)
}
