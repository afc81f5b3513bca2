//! cache_read, cache_write and rfactor.

use super::programs::{argmax, matmul, padded_conv, reorder, softmax, split};
use super::{extents, judged, order, refused};
use crate::steps::{cache_read, cache_write, compute_at, reverse_compute_at, rfactor};
use ir::{Program, Scope};

#[test]
fn a_parameter_is_copied_whole_and_then_by_tile() {
    let mut p = padded_conv();
    judged(&mut p, |p| cache_read::apply(p, "conv", "w", Scope::Local));
    let axes = ["w.read.ax0", "w.read.ax1", "w.read.ax2", "w.read.ax3"];
    assert_eq!(extents(&p, &axes), [4, 3, 3, 3]);
    let read = p.buffer_named("w.read").expect("added");
    assert_eq!(p.buffer(read).scope, Scope::Local);
    judged(&mut p, |p| compute_at::apply(p, "w.read", "conv.o"));
    assert_eq!(extents(&p, &axes), [1, 3, 3, 3]);
}

#[test]
fn an_intermediate_is_copied_after_it_is_complete() {
    let mut p = padded_conv();
    let mut at_root = p.clone();
    judged(&mut at_root, |p| {
        cache_read::apply(p, "conv", "pad", Scope::Global)
    });
    judged(&mut p, |p| compute_at::apply(p, "pad", "conv.h"));
    judged(&mut p, |p| {
        cache_read::apply(p, "conv", "pad", Scope::Local)
    });
    assert_eq!(order(&p, "conv.h"), ["pad.c", "pad.read.ax0", "conv.w"]);
    let axes = ["pad.read.ax0", "pad.read.ax1", "pad.read.ax2"];
    assert_eq!(extents(&p, &axes), [3, 3, 9]);
    refused(&p, "does not read it", |p| {
        cache_read::apply(p, "relu", "w", Scope::Local)
    });
    refused(&p, "absent", |p| {
        cache_read::apply(p, "relu", "absent", Scope::Local)
    });
}

#[test]
fn an_output_is_accumulated_apart_and_copied_by_tile() {
    let mut p = matmul();
    split(&mut p, "mm.m", 4);
    split(&mut p, "mm.n", 5);
    reorder(&mut p, &["mm.m.0", "mm.n.0", "mm.k", "mm.m.1", "mm.n.1"]);
    judged(&mut p, |p| cache_write::apply(p, "mm", 0, Scope::Local));
    assert_eq!(extents(&p, &["mm.out.m", "mm.out.n"]), [10, 12]);
    let mm = p.block_named("mm").expect("still there");
    assert_eq!(p.buffer(p.block(mm).writes[0].buffer).name, "mm.write");
    judged(&mut p, |p| reverse_compute_at::apply(p, "mm.out", "mm.n.0"));
    assert_eq!(extents(&p, &["mm.out.m", "mm.out.n"]), [4, 5]);
    judged(&mut p, |p| reverse_compute_at::apply(p, "out", "mm.n.0"));
    assert_eq!(order(&p, "mm.n.0"), ["mm.k", "mm.out.m", "out.m"]);
    refused(&p, "no output 1", |p| {
        cache_write::apply(p, "mm", 1, Scope::Local)
    });

    let mut p = argmax();
    judged(&mut p, |p| cache_write::apply(p, "best", 1, Scope::Local));
    judged(&mut p, |p| {
        reverse_compute_at::apply(p, "best.out", "best.i")
    });
}

#[test]
fn a_nested_block_caches_what_one_iteration_writes() {
    let mut p = matmul();
    split(&mut p, "out.n", 5);
    judged(&mut p, |p| compute_at::apply(p, "mm", "out.n.0"));
    judged(&mut p, |p| cache_write::apply(p, "mm", 0, Scope::Register));
    assert_eq!(order(&p, "out.n.0"), ["mm.m", "mm.out.m", "out.n.1"]);
    assert_eq!(extents(&p, &["mm.out.m", "mm.out.n"]), [1, 5]);
}

fn factored(p: &mut Program, l: &str) {
    judged(p, |p| rfactor::apply(p, l));
}

#[test]
fn partial_sums_are_kept_for_either_part_of_a_split_with_a_tail() {
    for (l, parts) in [("mm.k.0", 2), ("mm.k.1", 4)] {
        let mut p = matmul();
        split(&mut p, "mm.k", 4);
        split(&mut p, "mm.m", 4);
        factored(&mut p, l);
        let rf = p.buffer_named("mm.rf").expect("added");
        assert_eq!(p.buffer(rf).shape, [10, 12, parts]);
        assert_eq!(extents(&p, &["mm.part"]), [parts]);
        let block = p.block_named("mm.rf").expect("added");
        assert_eq!(p.block(block).spatial_iters().count(), 3);
        let mut early = p.clone();
        judged(&mut early, |p| compute_at::apply(p, "mm.rf", "mm.m"));
        refused(&early, "which its consumer would leave", |p| {
            compute_at::apply(p, "mm", "out.m")
        });
        judged(&mut p, |p| compute_at::apply(p, "mm", "out.m"));
        judged(&mut p, |p| compute_at::apply(p, "mm.rf", "mm.n_1"));
    }
}

#[test]
fn maxima_and_tuples_are_factored_too() {
    let mut p = softmax();
    split(&mut p, "top.j", 4);
    factored(&mut p, "top.j.0");
    split(&mut p, "sum.j", 4);
    factored(&mut p, "sum.j.1");
    let mut p = argmax();
    split(&mut p, "best.j", 4);
    factored(&mut p, "best.j.1");
    assert!(p.buffer_named("best.1.rf").is_some());
    let mut p = padded_conv();
    factored(&mut p, "conv.r");
}

#[test]
fn rfactor_refuses_what_does_not_reduce() {
    let p = matmul();
    refused(&p, "does not reduce", |p| rfactor::apply(p, "mm.n"));
    refused(&p, "not a reduction", |p| rfactor::apply(p, "out.n"));
    let mut p = padded_conv();
    judged(&mut p, |p| reverse_compute_at::apply(p, "added", "conv.h"));
    refused(&p, "not exactly one block", |p| rfactor::apply(p, "conv.h"));
    factored(&mut p, "conv.c");
    assert_eq!(order(&p, "conv.h"), ["conv.w", "conv.o_1", "added.o"]);
}
