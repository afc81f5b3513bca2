//! How many lanes the vectors of an element-wise nest have.
//!
//! As many as fit of the widest value that it computes: bytes that only move or are compared have four times the lanes of
//! f32. Values wider than f32 take several registers in each vector, as vectors of f32 are the usual ones.

use crate::nests::{AxisLoop, Nest};
use ir::affine::Affine;
use ir::{BinaryOp, CpuTarget, DType, Expr, ExprKind, Program, VarId};

/// Lanes along an axis that is innermost: a power of two.
pub fn lanes(p: &Program, n: &Nest, along: &AxisLoop, target: &CpuTarget) -> i64 {
    let base = target.lanes(DType::F32);
    let block = p.block(n.block);
    let var = block.iters.iter().map(|i| i.var);
    let Some(var) = var.into_iter().find(|v| p.var(*v).name == along.axis) else {
        return base;
    };
    let side_by_side = |at: &[Expr]| is_side_by_side(at, var);
    let written = |w: &ir::Write| {
        let stored = p.buffer(w.buffer).dtype.bits();
        side_by_side(&w.indices).then(|| stored.max(bits(p, &w.value)))
    };
    let widths: Option<Vec<usize>> = block.writes.iter().map(written).collect();
    let loads = block.loads();
    let widest = widths.and_then(|w| w.into_iter().max());
    let Some(widest) = widest.filter(|_| loads.iter().all(|(_, at)| side_by_side(at))) else {
        return base;
    };
    let most = i64::from(target.vector_bits) / widest.clamp(8, DType::F32.bits()) as i64;
    fitting(along.extent, base, most.max(base), target)
}

/// Whether the elements at an index lie side by side along an axis, or one is the same for all of it.
fn is_side_by_side(at: &[Expr], var: VarId) -> bool {
    let Some((last, others)) = at.split_last() else {
        return true;
    };
    let steps = Affine::of(last).map(|a| a.coefficient(var));
    !others.iter().any(|e| e.uses_var(var)) && (steps == Some(1) || !last.uses_var(var))
}

/// The width that takes a row in the fewest accesses, of several the narrowest. Where masks cost nothing, what is less than
/// a vector is one access; elsewhere it is one for each element, and is counted twice because each has a branch.
fn fitting(extent: i64, base: i64, most: i64, target: &CpuTarget) -> i64 {
    let accesses = |width: &i64| match target.isa.masks_bytes() {
        true => (extent + width - 1) / width,
        false => extent / width + 2 * (extent % width),
    };
    let doubled = std::iter::successors(Some(base), |w| Some(w * 2));
    let widths = doubled.take_while(|w| *w <= most);
    widths.min_by_key(accesses).unwrap_or(base)
}

/// Bits of the widest value that an expression computes in vectors, without the indices of what it loads.
fn bits(p: &Program, e: &Expr) -> usize {
    let wide = DType::F32.bits();
    let own = e.dtype(p).bits();
    let operands = || e.children().map(|c| bits(p, c)).max().unwrap_or(0);
    match e.kind() {
        // Tests of places become masks.
        ExprKind::Binary(op, ..) if !e.loads() && (op.is_comparison() || op.is_logical()) => 0,
        ExprKind::Int(..) | ExprKind::Float(..) | ExprKind::Load(..) => own,
        ExprKind::Var(_) | ExprKind::Arg(..) => wide,
        ExprKind::Select(..) => operands(),
        // No vectors of narrow integers are divided, and few are multiplied or shifted.
        ExprKind::Binary(op, ..) if is_widened(*op) => wide,
        ExprKind::Unary(..) | ExprKind::Binary(..) | ExprKind::Cast(..) => {
            let halves = |e: &Expr| matches!(e.dtype(p), DType::F16 | DType::BF16);
            // Halves are computed in f32.
            match halves(e) || e.children().any(halves) {
                true => wide,
                false => own.max(operands()),
            }
        }
    }
}

fn is_widened(op: BinaryOp) -> bool {
    use BinaryOp::{Div, FloorDiv, FloorMod, Mul, Pow, Shl, Shr};
    matches!(op, Mul | Div | FloorDiv | FloorMod | Pow | Shl | Shr)
}
