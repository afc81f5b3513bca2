//! compute_at and reverse_compute_at.

use super::programs::{
    matmul, padded_conv, reorder, residual, softmax, split, stencils, transposes,
};
use super::{extents, judged, order, refused};
use crate::steps::{compute_at, fuse, reverse_compute_at};
use ir::{DType, Expr, LoopKind, Node, Program, ProgramBuilder};

fn at(p: &mut Program, block: &str, l: &str) {
    judged(p, |p| compute_at::apply(p, block, l));
}

fn reverse_at(p: &mut Program, block: &str, l: &str) {
    judged(p, |p| reverse_compute_at::apply(p, block, l));
}

fn at_refused(p: &Program, block: &str, l: &str, why: &str) {
    refused(p, why, |p| compute_at::apply(p, block, l));
}

fn reverse_refused(p: &Program, block: &str, l: &str, why: &str) {
    refused(p, why, |p| reverse_compute_at::apply(p, block, l));
}

#[test]
fn a_window_is_computed_where_it_is_read() {
    let mut p = padded_conv();
    at(&mut p, "pad", "conv.h");
    let pad = ["pad.c", "pad.h", "pad.w"];
    assert_eq!(extents(&p, &pad), [3, 3, 9]);
    assert_eq!(order(&p, "conv.h"), ["pad.c", "conv.w"]);
    let b = p.block_named("pad").expect("still there");
    assert_eq!(
        p.block(b).predicate,
        None,
        "the window never leaves the image"
    );

    let mut p = padded_conv();
    at(&mut p, "pad", "conv.s");
    assert_eq!(extents(&p, &pad), [1, 1, 1]);
}

#[test]
fn a_tail_of_the_consumer_becomes_a_predicate_of_the_producer() {
    let mut p = padded_conv();
    split(&mut p, "conv.h", 4);
    at(&mut p, "pad", "conv.h.0");
    assert_eq!(extents(&p, &["pad.c", "pad.h", "pad.w"]), [3, 6, 9]);
    let b = p.block_named("pad").expect("still there");
    assert!(p.block(b).predicate.is_some(), "rows 8 and 9 do not exist");
}

#[test]
fn a_chain_of_producers_is_moved_from_its_end() {
    let mut p = stencils();
    at_refused(&p, "a", "c.i", "`b` is not under");
    at(&mut p, "b", "c.i");
    at(&mut p, "a", "c.i");
    assert_eq!(extents(&p, &["b.i", "a.i"]), [3, 5]);
    assert_eq!(order(&p, "c.i"), ["a.i", "b.i", "c"]);

    let mut p = stencils();
    split(&mut p, "c.i", 4);
    at(&mut p, "b", "c.i.0");
    at(&mut p, "a", "b.i");
    assert_eq!(extents(&p, &["b.i", "a.i"]), [6, 3]);
}

#[test]
fn a_reduction_keeps_its_reduction_loops_whole() {
    let mut p = matmul();
    split(&mut p, "out.n", 5);
    at(&mut p, "mm", "out.n.0");
    assert_eq!(extents(&p, &["mm.m", "mm.n", "mm.k"]), [1, 5, 7]);
}

#[test]
fn several_consumers_get_the_hull_of_what_they_read() {
    let mut b = ProgramBuilder::new("two");
    let x = b.input("x", DType::F32, &[4, 9]);
    let s = b.compute("s", &[("i", 4), ("j", 9)], |o| {
        Expr::load(x, o.to_vec()) + Expr::f32(1.0)
    });
    let y = b.compute("y", &[("i", 4), ("j", 6)], |o| {
        let back = Expr::load(s, [o[0].clone(), Expr::int(8) - &o[1]]);
        back + Expr::load(s, [o[0].clone(), o[1].clone()])
    });
    let mut p = b.finish(&[y]);
    at(&mut p, "s", "y.i");
    assert_eq!(extents(&p, &["s.i", "s.j"]), [1, 9]);
    at_refused(&p, "s", "y.i", "already");
}

#[test]
fn compute_at_refuses_outputs_absent_consumers_and_vectorized_places() {
    let mut p = matmul();
    at_refused(&p, "out", "mm.m", "not an intermediate");
    at_refused(&p, "nothing", "mm.m", "nothing");
    at_refused(&p, "mm", "nowhere", "nowhere");
    let l = p.loop_named("out.n").expect("exists");
    p.loop_mut(l).kind = LoopKind::Vectorized;
    at_refused(&p, "mm", "out.n", "vectorized");
    let p = softmax();
    at_refused(&p, "e", "out.i", "`sum` is not under");
}

#[test]
fn an_epilogue_follows_each_tile() {
    let mut p = matmul();
    split(&mut p, "mm.m", 4);
    split(&mut p, "mm.n", 8);
    let tiled = ["mm.m.0", "mm.n.0", "mm.k", "mm.m.1", "mm.n.1"];
    reorder(&mut p, &tiled);
    reverse_refused(&p, "out", "mm.k", "not finished");
    reverse_refused(&p, "out", "mm.m.1", "not finished");
    let mut by_tile = p.clone();
    reverse_at(&mut by_tile, "out", "mm.n.0");
    assert_eq!(extents(&by_tile, &["out.m", "out.n"]), [4, 8]);
    assert_eq!(order(&by_tile, "mm.n.0"), ["mm.k", "out.m"]);
    reverse_at(&mut p, "out", "mm.m.0");
    assert_eq!(extents(&p, &["out.m", "out.n"]), [4, 12]);
}

#[test]
fn a_chain_of_epilogues_follows_in_order() {
    let mut p = padded_conv();
    reverse_refused(&p, "relu", "conv.h", "`added` is not complete");
    reverse_at(&mut p, "added", "conv.h");
    reverse_at(&mut p, "relu", "conv.h");
    assert_eq!(order(&p, "conv.h"), ["conv.w", "added.o", "relu.o"]);
    assert_eq!(extents(&p, &["relu.o", "relu.h", "relu.w"]), [1, 1, 7]);
    at(&mut p, "pad", "conv.h");
}

#[test]
fn a_reduction_may_follow_if_it_is_fed_whole() {
    let mut p = softmax();
    reverse_at(&mut p, "e", "top.i");
    reverse_at(&mut p, "sum", "top.i");
    reverse_at(&mut p, "out", "top.i");
    assert_eq!(order(&p, "top.i"), ["top.j", "e.i", "sum.i", "out.i"]);
    let p = softmax();
    reverse_refused(&p, "sum", "e.j", "reduces over a part");
    reverse_refused(&p, "out", "e.i", "`sum`");
}

#[test]
fn rows_of_a_fused_loop_are_boxes_and_parts_of_rows_are_not() {
    let mut p = padded_conv();
    judged(&mut p, |p| fuse::apply(p, "conv.h", "conv.w"));
    let f = "conv.h&conv.w";
    let mut each = p.clone();
    reverse_at(&mut each, "added", f);
    assert_eq!(
        extents(&each, &["added.o", "added.h", "added.w"]),
        [1, 1, 1]
    );
    let mut rows = p.clone();
    split(&mut rows, f, 7);
    reverse_at(&mut rows, "added", &format!("{f}.0"));
    assert_eq!(
        extents(&rows, &["added.o", "added.h", "added.w"]),
        [1, 1, 7]
    );
    split(&mut p, f, 4);
    reverse_refused(&p, "added", &format!("{f}.0"), "not a box");
    // With a tail, f = 44 and 45 fall on rows 6, outside the domain.
    reverse_at(&mut p, "added", &format!("{f}.1"));
}

#[test]
fn a_transposed_consumer_follows_and_a_stencil_does_not() {
    let mut p = transposes();
    split(&mut p, "t.i", 4);
    reverse_at(&mut p, "u", "t.i.0");
    assert_eq!(extents(&p, &["u.i", "u.j"]), [4, 1]);
    let p = stencils();
    reverse_refused(&p, "b", "a.i", "element by element");
    at_refused(&p, "c", "b.i", "not an intermediate");
}

#[test]
fn a_consumer_of_two_nests_waits_for_both() {
    let mut p = residual();
    reverse_refused(&p, "sum", "f.i", "`g`");
    reverse_at(&mut p, "sum", "g.i");
    at(&mut p, "f", "g.i");
    assert_eq!(order(&p, "g.i"), ["g", "f.i", "sum.i"]);
}

#[test]
fn parts_of_a_producer_are_joined_if_they_fill_a_box() {
    // t is written by two blocks: columns 0 to 3 and 4 to 5.
    let build = |start: i64| {
        let mut p = transposes();
        let t = p.block_named("t").expect("exists");
        let mut rest = p.block(t).clone();
        rest.name = "t~hi".into();
        let j = p.loop_named("t.j").expect("exists");
        let i = p.loop_named("t.i").expect("exists");
        p.loop_mut(i).extent = 4;
        let hi = p.new_loop("t.i~hi", 2, vec![]);
        rest.iters[1].binding = Expr::var(p.loop_(hi).var) + start;
        let rest = p.add_block(rest);
        p.loop_mut(hi).body.push(Node::Block(rest));
        p.loop_mut(j).body.push(Node::Loop(hi));
        p
    };
    let mut p = build(4);
    reverse_at(&mut p, "u", "t.j");
    assert_eq!(extents(&p, &["u.i", "u.j"]), [6, 1]);
    reverse_refused(&build(3), "u", "t.j", "do not fill one box");
    reverse_refused(&build(4), "u", "t.i", "not complete");
}

#[test]
fn iterations_wholly_outside_the_domain_get_no_consumer() {
    let mut b = ProgramBuilder::new("copies");
    let x = b.input("x", DType::F32, &[19]);
    let t = b.compute("t", &[("i", 19)], |o| Expr::load(x, o.to_vec()));
    let u = b.compute("u", &[("i", 14)], |o| Expr::load(t, [o[0].clone() + 2]));
    let mut p = b.finish(&[u]);
    split(&mut p, "t.i", 6);
    split(&mut p, "t.i.0", 8);
    // Two iterations of 24 elements each: the second has none of the 19.
    split(&mut p, "t.i.0.1", 4);
    reverse_refused(&p, "u", "t.i.0.1.0", "outside the domain");
    reverse_at(&mut p, "u", "t.i.0.0");
    assert_eq!(extents(&p, &["u.i"]), [14]);
}

#[test]
fn iterations_partly_outside_the_domain_get_no_consumer() {
    let mut b = ProgramBuilder::new("copies");
    let x = b.input("x", DType::F32, &[9]);
    let t = b.compute("t", &[("i", 9)], |o| Expr::load(x, o.to_vec()));
    let u = b.compute("u", &[("i", 6)], |o| Expr::load(t, [o[0].clone() + 3]));
    let mut p = b.finish(&[u]);
    // Of u's six elements the first iteration feeds four, the second the others.
    split(&mut p, "t.i", 7);
    reverse_refused(&p, "u", "t.i.0", "outside the domain");
}
