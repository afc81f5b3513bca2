//! reindex: im2row, ConvGEMM and back.

use super::programs::{matmul, padded_conv};
use super::winograd::blocked_conv;
use super::{Expected, check, extents, judged, refused};
use crate::steps::{compute_at, compute_inline, reindex, split};
use ir::{DType, Expr, ExprKind};

#[test]
fn the_gathered_operand_has_the_blocks_variables() {
    let mut p = blocked_conv(DType::F32, 5, 6, 3, 1);
    judged(&mut p, |p| reindex::apply(p, "main", "X"));
    let axes = ["n", "y", "x", "co", "r", "s", "ci"].map(|a| format!("X.reindex.{a}"));
    let axes = axes.each_ref().map(|a| &a[..]);
    assert_eq!(extents(&p, &axes), [1, 5, 6, 2, 3, 3, 2]);
    // Borders are in the copy: the sum reads without a guard.
    let main = p.block(p.block_named("main").expect("still there"));
    let guarded = |e: &Expr| matches!(e.kind(), ExprKind::Select(..));
    assert!(!main.writes[0].value.any(&guarded));
}

#[test]
fn weights_can_be_gathered_too() {
    let mut p = blocked_conv(DType::F32, 3, 4, 3, 0);
    judged(&mut p, |p| reindex::apply(p, "main", "W"));
    assert_eq!(extents(&p, &["W.reindex.ko", "W.reindex.ki"]), [3, 2]);
}

#[test]
fn a_tile_gathers_its_own_part() {
    let mut p = blocked_conv(DType::F32, 5, 6, 3, 1);
    let expected = Expected::of(&p);
    reindex::apply(&mut p, "main", "X").expect("one operand");
    split::apply(&mut p, "main.x", &[None, Some(2)]).expect("a loop");
    let moved = compute_at::apply(&mut p, "X.reindex", "main.x.0");
    moved.unwrap_or_else(|e| panic!("{e}"));
    check(&p, &expected, "reindex, split, compute_at");
    assert_eq!(
        extents(&p, &["X.reindex.y", "X.reindex.x", "X.reindex.r"]),
        [1, 2, 3]
    );
}

#[test]
fn inlining_takes_it_back() {
    let before = blocked_conv(DType::F32, 4, 4, 3, 1);
    let mut p = before.clone();
    reindex::apply(&mut p, "main", "X").expect("one operand");
    compute_inline::apply(&mut p, "X.reindex").expect("read element by element");
    check(&p, &Expected::of(&before), "reindex, compute_inline");
}

#[test]
fn what_has_no_single_operand_is_refused() {
    refused(&matmul(), "does not read it", |p| {
        reindex::apply(p, "out", "a")
    });
    refused(&padded_conv(), "no such buffer", |p| {
        reindex::apply(p, "conv", "none")
    });
    let mut nested = padded_conv();
    compute_at::apply(&mut nested, "pad", "conv.h").expect("a consumer's loop");
    refused(&nested, "the same nest", |p| {
        reindex::apply(p, "conv", "pad")
    });
}
