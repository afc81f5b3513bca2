//! reindex: im2row, ConvGEMM and back.

use super::programs::{matmul, padded_conv};
use super::winograd::blocked_conv;
use super::{Expected, check, extents, judged, refused};
use crate::steps::{compute_at, compute_inline, pack, reindex, split};
use ir::{DType, Expr, ExprKind, ProgramBuilder, Reducer};

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

/// A guard that is tighter than the buffer keeps its own alternative.
#[test]
fn what_is_taken_outside_stays() {
    let mut b = ProgramBuilder::new("pool");
    let x = b.input("x", DType::F32, &[6]);
    let least = b.reduce("min", &[("i", 4)], &[("r", 3)], Reducer::Min, |o, t| {
        let at = &o[0] * 2 + &t[0] - 1;
        let within = Expr::int(1).le(&at).and(at.clone().lt(5));
        Expr::select(within, Expr::load(x, [at]), Expr::f32(9.0))
    });
    let mut p = b.finish(&[least]);
    judged(&mut p, |p| reindex::apply(p, "min", "x"));
}

/// The copy has elements that the condition keeps the block from; no index of
/// theirs may be read either.
#[test]
fn indices_are_read_inside_only() {
    let mut b = ProgramBuilder::new("join");
    let x = b.input("x", DType::F32, &[9]);
    let at = b.input("at", DType::U8, &[8]);
    let y = b.input("y", DType::F32, &[9]);
    let both = b.compute("both", &[("i", 17)], |o| {
        let taken = Expr::load(x, [Expr::load(at, o.to_vec()).cast(DType::I64)]);
        Expr::select(o[0].clone().lt(8), taken, Expr::load(y, [&o[0] - 8]))
    });
    let mut p = b.finish(&[both]);
    judged(&mut p, |p| reindex::apply(p, "both", "x"));
}

/// Under a condition outside the operand, a copy of all elements reads more
/// than the block does.
#[test]
fn padding_is_not_gathered() {
    let mut b = ProgramBuilder::new("join");
    let x = b.input("x", DType::F32, &[8]);
    let y = b.input("y", DType::F32, &[9]);
    let twice = b.compute("twice", &[("i", 8)], |o| {
        Expr::load(x, o.to_vec()) * Expr::f32(2.0)
    });
    let both = b.compute("both", &[("i", 17)], |o| {
        let first = Expr::load(twice, o.to_vec());
        Expr::select(o[0].clone().lt(8), first, Expr::load(y, [&o[0] - 8]))
    });
    let mut p = b.finish(&[both]);
    judged(&mut p.clone(), |p| reindex::apply(p, "both", "twice"));
    pack::apply(&mut p, "twice", &[(0, 5)], &[0, 1]).expect("an intermediate");
    refused(&p, "padding", |p| reindex::apply(p, "both", "twice"));
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
