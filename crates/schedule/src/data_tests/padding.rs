//! pad: whole tiles of an intermediate that is read in part.

use super::programs::{argmax, matmul, padded_conv, softmax};
use super::{Expected, check, extents, judged, refused};
use crate::steps::{
    cache_write, compute_at, fuse, pack, pad, reverse_compute_at, reverse_compute_inline, split,
    vectorize,
};
use ir::{Expr, ExprKind, Program, Scope};

fn shape(p: &Program, buffer: &str) -> Vec<i64> {
    p.buffer(p.buffer_named(buffer).expect("the buffer exists"))
        .shape
        .clone()
}

fn guards(p: &Program, block: &str) -> bool {
    let b = p.block(p.block_named(block).expect("the block exists"));
    let guard = |e: &Expr| matches!(e.kind(), ExprKind::Select(..));
    b.writes[0].value.any(&guard)
}

#[test]
fn loop_axis_and_buffer_grow() {
    let mut p = matmul();
    judged(&mut p, |p| pad::apply(p, "mm.n", 8));
    assert_eq!(extents(&p, &["mm.n", "out.n"]), [16, 12]);
    assert_eq!(shape(&p, "mm"), [10, 16]);
    assert!(guards(&p, "mm"));
    // A multiple already: nothing to do.
    let padded = p.clone();
    judged(&mut p, |p| pad::apply(p, "mm.n", 4));
    assert_eq!(p, padded);
    judged(&mut p, |p| pad::apply(p, "mm.m", 4));
    assert_eq!(shape(&p, "mm"), [12, 16]);
}

#[test]
fn a_packed_operand_needs_no_guards_and_the_consumer_is_cut() {
    let mut p = matmul();
    let expected = Expected::of(&p);
    let tiled = |p: &mut Program| {
        pad::apply(p, "mm.n", 8)?;
        pack::apply(p, "b", &[(1, 8)], &[1, 0, 2])?;
        split::apply(p, "mm.n", &[None, Some(8)])?;
        super::programs::reorder(p, &["mm.n.0", "mm.m", "mm.k", "mm.n.1"]);
        reverse_compute_at::apply(p, "out", "mm.m")?;
        vectorize::apply(p, "out.n")
    };
    tiled(&mut p).unwrap_or_else(|e| panic!("{e}"));
    assert!(!guards(&p, "mm"));
    let block = |n: &str| p.block(p.block_named(n).expect("the block exists"));
    assert!(block("mm").predicate.is_none() && block("out").predicate.is_some());
    check(&p, &expected, "pad, pack, split, reverse_compute_at");
}

#[test]
fn every_kind_of_producer_can_be_padded() {
    let mut p = padded_conv();
    for l in ["pad.c", "pad.w", "conv.o", "conv.w", "added.h"] {
        judged(&mut p, |p| pad::apply(p, l, 4));
    }
    judged(&mut p, |p| compute_at::apply(p, "pad", "conv.h"));
    let mut p = softmax();
    judged(&mut p, |p| pad::apply(p, "sum.i", 8));
    judged(&mut p, |p| pad::apply(p, "e.j", 16));
    judged(&mut p, |p| cache_write::apply(p, "e", 0, Scope::Global));
}

#[test]
fn what_is_no_whole_axis_of_an_intermediate_is_refused() {
    let p = matmul();
    refused(&p, "no intermediate", |p| pad::apply(p, "out.n", 8));
    refused(&p, "not a whole axis", |p| pad::apply(p, "mm.k", 8));
    refused(&p, "less than 1", |p| pad::apply(p, "mm.n", 0));
    let mut cut = p.clone();
    split::apply(&mut cut, "mm.n", &[None, Some(5)]).expect("a loop");
    refused(&cut, "not a whole axis", |p| pad::apply(p, "mm.n.1", 8));
    let mut one = p.clone();
    fuse::apply(&mut one, "mm.m", "mm.n").expect("a nest");
    refused(&one, "not a whole axis", |p| pad::apply(p, "mm.m&mm.n", 8));
    refused(&argmax(), "no intermediate", |p| pad::apply(p, "best.i", 4));
    // A padded producer has elements that its consumer does not take.
    let mut conv = padded_conv();
    pad::apply(&mut conv, "added.w", 4).expect("an intermediate");
    refused(&conv, "each element", |p| {
        reverse_compute_inline::apply(p, "relu")
    });
}
