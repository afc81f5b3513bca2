//! compute_inline and reverse_compute_inline.

use super::programs::{matmul, padded_conv, softmax, split, transposes};
use super::{judged, refused};
use crate::steps::{compute_inline, reverse_compute_inline};
use ir::{DType, Expr, Program, ProgramBuilder};

fn inline(p: &mut Program, block: &str) {
    judged(p, |p| compute_inline::apply(p, block));
    assert_eq!(p.block_named(block), None);
}

fn fold(p: &mut Program, block: &str) {
    judged(p, |p| reverse_compute_inline::apply(p, block));
    assert_eq!(p.block_named(block), None);
}

#[test]
fn padding_is_inlined_with_its_guard() {
    let mut p = padded_conv();
    inline(&mut p, "pad");
    inline(&mut p, "added");
    assert_eq!(p.body.len(), 2);
}

#[test]
fn a_value_is_inlined_into_each_of_its_consumers() {
    let mut p = softmax();
    inline(&mut p, "e");
    assert_eq!(p.block_ids().len(), 3);
    let mut p = transposes();
    inline(&mut p, "t");
}

#[test]
fn a_gather_is_inlined_into_a_gather() {
    let mut b = ProgramBuilder::new("gather");
    let x = b.input("x", DType::F32, &[4]);
    let perm = b.constant("perm", DType::F32, &[4]);
    let clamp = |e: Expr| e.cast(DType::I64).max(Expr::int(0)).min(Expr::int(3));
    let g = b.compute("g", &[("i", 4)], |o| {
        Expr::load(x, [clamp(Expr::load(perm, o.to_vec()))])
    });
    let h = b.compute("h", &[("i", 4)], |o| {
        Expr::load(g, [clamp(Expr::load(g, o.to_vec()))])
    });
    let mut p = b.finish(&[h]);
    inline(&mut p, "g");
}

#[test]
fn inlining_refuses_outputs_reductions_and_predicates() {
    let p = matmul();
    refused(&p, "not an intermediate", |p| {
        compute_inline::apply(p, "out")
    });
    refused(&p, "a reduction", |p| compute_inline::apply(p, "mm"));
    refused(&p, "none", |p| compute_inline::apply(p, "none"));
    let mut p = transposes();
    split(&mut p, "t.i", 4);
    refused(&p, "predicate", |p| compute_inline::apply(p, "t"));
}

#[test]
fn an_elementwise_consumer_is_folded_into_its_producer() {
    let mut p = padded_conv();
    fold(&mut p, "relu");
    let added = p.block_named("added").expect("writes the output now");
    assert_eq!(p.buffer(p.block(added).writes[0].buffer).name, "relu");
    let mut p = transposes();
    fold(&mut p, "u");
}

#[test]
fn folding_refuses_reductions_shared_inputs_and_other_patterns() {
    let p = padded_conv();
    refused(&p, "not written by a map block", |p| {
        reverse_compute_inline::apply(p, "added")
    });
    refused(&p, "a reduction", |p| {
        reverse_compute_inline::apply(p, "conv")
    });
    let p = softmax();
    refused(&p, "not written by a map block", |p| {
        reverse_compute_inline::apply(p, "out")
    });
    let p = transposes();
    refused(&p, "no input", |p| reverse_compute_inline::apply(p, "t"));
    let p = super::programs::stencils();
    refused(&p, "element by element", |p| {
        reverse_compute_inline::apply(p, "b")
    });
}
