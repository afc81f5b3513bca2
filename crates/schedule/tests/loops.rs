//! split, fuse and reorder.

mod judge;

use judge::{
    judged, loops, loops_of, matmul, named, padded_conv, pointwise, predicate, read_before_updates,
    refused, updates,
};

#[test]
fn a_split_by_divisors_needs_no_predicate() {
    let mut p = pointwise();
    judged(
        &mut p,
        "split y.k [_, 5]\nsplit y.j [3, 1, 2]\nsplit y.i [4]",
    );
    let wanted = [
        ("y.i.0", 4),
        ("y.j.0", 3),
        ("y.j.1", 1),
        ("y.j.2", 2),
        ("y.k.0", 2),
        ("y.k.1", 5),
    ];
    assert_eq!(loops(&p), named(&wanted));
    assert_eq!(predicate(&p, "y"), None);
}

#[test]
fn a_split_with_a_tail_guards_every_block_under_it() {
    let mut p = matmul(7, 10, 5);
    judged(
        &mut p,
        "split mm.m [_, 3]
         split mm.k [2, _]
         split mm.n [2, 3, 2]
         reverse_compute_at out mm.m.0
         split mm.n.1 [2, 2]
         split mm.m.0 [2, 2]",
    );
    assert_eq!(
        loops_of(&p, "mm.m"),
        named(&[("mm.m.0.0", 2), ("mm.m.0.1", 2), ("mm.m.1", 3)])
    );
    for block in ["mm", "out"] {
        let guard = predicate(&p, block).expect("there is a tail");
        assert!(
            guard.contains("mm.m.0.0") && guard.contains("mm.m.0.1"),
            "{guard}"
        );
    }
}

#[test]
fn annotations_stay_with_the_innermost_part() {
    let mut p = pointwise();
    judged(
        &mut p,
        "annotate y.k unroll_by 4\nprefetch x y.k 2\nsplit y.k [2, 5]",
    );
    let inner = p.loop_named("y.k.1").expect("split");
    let outer = p.loop_named("y.k.0").expect("split");
    assert_eq!(p.loop_(inner).annotations.len(), 2);
    assert!(p.loop_(outer).annotations.is_empty());
    judged(&mut p, "fuse y.k.0 y.k.1");
    let fused = p.loop_named("y.k.0&y.k.1").expect("fused");
    assert_eq!(p.loop_(fused).annotations.len(), 2);
}

#[test]
fn fused_rows_are_split_across_their_borders() {
    let mut p = pointwise();
    judged(
        &mut p,
        "fuse y.j y.k
         split y.j&y.k [_, 7]
         fuse y.i y.j&y.k.0
         split y.i&y.j&y.k.0 [5, _]",
    );
    assert_eq!(p.loop_named("y.i"), None);
    let p = matmul(3, 4, 5);
    refused(&p, "fuse mm.m mm.k", "not its only child");
    let mut p = matmul(3, 4, 5);
    judged(&mut p, "reverse_compute_at out mm.m\nfuse mm.n mm.k");
    refused(&p, "fuse mm.m mm.n&mm.k", "not its only child");
}

#[test]
fn reorder_permutes_the_places_of_the_listed_loops() {
    let mut p = padded_conv();
    judged(
        &mut p,
        "reorder conv.s conv.o\nreorder conv.c conv.s conv.h",
    );
    let order: Vec<String> = loops_of(&p, "conv").into_iter().map(|l| l.0).collect();
    let wanted = ["conv.c", "conv.s", "conv.w", "conv.h", "conv.r", "conv.o"];
    assert_eq!(order, wanted);
    judged(&mut p, "unroll conv.r\nreorder conv.r conv.c");
    assert_eq!(loops_of(&p, "conv")[0].0, "conv.r");
}

#[test]
fn an_order_that_may_start_a_reduction_elsewhere_is_refused() {
    let mut p = matmul(3, 4, 5);
    judged(
        &mut p,
        "fuse mm.n mm.k\nsplit mm.n&mm.k [5, 4]\nreorder mm.n&mm.k.0 mm.m",
    );
    refused(&p, "reorder mm.n&mm.k.1 mm.n&mm.k.0", "outputs and terms");
    // The outer part enumerates outputs only, but which term an output starts
    // with depends on it.
    let mut p = matmul(1, 9, 2);
    judged(
        &mut p,
        "fuse mm.n mm.k
         split mm.n&mm.k [_, 5]
         split mm.n&mm.k.1 [_, 2, 2]
         fuse mm.n&mm.k.1.1 mm.n&mm.k.1.2",
    );
    let fused = "mm.n&mm.k.1.1&mm.n&mm.k.1.2";
    let step = format!("reorder {fused} mm.n&mm.k.1.0");
    refused(&p, &step, "outputs and terms");
}

#[test]
fn the_order_of_an_ordered_block_is_kept() {
    let p = updates();
    refused(&p, "reorder u.l u.k", "`u` goes on in several of them");
    refused(&p, "fuse u.l u.k", "");
    for loop_ in ["u.k", "u.l"] {
        refused(&p, &format!("parallel {loop_}"), "`u` goes on in it");
    }
    refused(&p, "vectorize u.l", "`u` goes on in it");
    let mut p = p;
    judged(
        &mut p,
        "reorder u.k u.l u.j
         split u.k [2, 3]
         fuse u.k.0 u.k.1
         split u.j [2, 4]
         reorder u.j.0 u.k.0&u.k.1 u.l u.j.1
         parallel u.j.0
         vectorize u.j.1
         unroll u.l",
    );
}

#[test]
fn nothing_moves_past_updates_of_what_it_reads() {
    let p = read_before_updates();
    refused(&p, "compute_inline s", "`copy` is updated in order");
    refused(&p, "compute_at s y.i", "`copy` is updated in order");
    refused(&p, "reverse_compute_at y s.i", "`copy` is updated in order");
    refused(&p, "cache_write u 0 local", "");
}
