//! partition and decompose_reduction.

mod judge;

use judge::{
    judged, loops, loops_of, matmul, named, padded_conv, pointwise, predicate, refused, window,
};

/// The loops that a block's predicate depends on, by name.
fn tests_on(p: &ir::Program, block: &str) -> Vec<String> {
    let b = p.block_named(block).expect("the block exists");
    let vars = p.block(b).predicate.as_ref().map_or(vec![], |e| e.vars());
    let mut names: Vec<String> = vars.iter().map(|v| p.var(*v).name.clone()).collect();
    names.sort();
    names
}

#[test]
fn padding_is_cut_off_on_both_sides() {
    let mut p = padded_conv();
    judged(&mut p, "partition pad.h");
    let wanted = [("pad.h~lo", 1), ("pad.h", 8), ("pad.h~hi", 1)];
    assert_eq!(loops_of(&p, "pad.h"), named(&wanted));
    judged(&mut p, "partition pad.w");
    let wanted = [
        ("pad.w~lo", 11),
        ("pad.w~lo_1", 1),
        ("pad.w", 9),
        ("pad.w~hi_1", 1),
        ("pad.w~hi", 11),
    ];
    assert_eq!(loops_of(&p, "pad.w"), named(&wanted));
    // The first row is all padding: its select is decided.
    refused(&p, "partition pad.w~lo", "no condition");
    refused(&p, "partition pad.h", "no condition");
    refused(&p, "partition pad.c", "no condition");
}

#[test]
fn inlined_padding_is_cut_off_where_a_window_reaches_it() {
    let mut p = padded_conv();
    judged(
        &mut p,
        "compute_inline pad
         split conv.h [_, 3]
         partition conv.h.0
         partition conv.h.1~hi",
    );
    // Rows 3..6 and all their windows are inside, 0..3 and 6..8 are not.
    let wanted = [("conv.h.0~lo", 1), ("conv.h.0", 1), ("conv.h.0~hi", 1)];
    assert_eq!(loops_of(&p, "conv.h.0"), named(&wanted));
    assert_eq!(predicate(&p, "conv"), None);
}

#[test]
fn a_tail_is_cut_off() {
    let mut p = matmul(10, 4, 7);
    judged(
        &mut p,
        "split mm.m [_, 4]\nsplit mm.k [_, 3]\nreorder mm.k.0 mm.m.1",
    );
    judged(&mut p, "partition mm.m.0");
    assert_eq!(tests_on(&p, "mm"), ["mm.k.0", "mm.k.1"]);
    judged(&mut p, "partition mm.k.0");
    assert_eq!(predicate(&p, "mm"), None);
    let wanted = [("mm.m.0", 2), ("mm.m.0~hi", 1)];
    assert_eq!(loops_of(&p, "mm.m.0"), named(&wanted));
    judged(&mut p, "partition mm.m.1~hi\nparallel mm.m.0\nunroll mm.n");
    refused(&p, "decompose_reduction mm mm.k.0", "other producers");
    judged(&mut p, "vectorize out.n");
    refused(&p, "partition out.n", "vectorized");
}

#[test]
fn a_loop_that_workers_share_stays_one_loop() {
    // The last tile of rows, and of columns, is cut: both are digits of one loop.
    let mut p = matmul(10, 4, 7);
    judged(
        &mut p,
        "split mm.m [_, 4]
         split mm.n [_, 3]
         reorder mm.m.0 mm.n.0 mm.k mm.m.1 mm.n.1
         fuse mm.m.0 mm.n.0
         unroll mm.m.1
         vectorize mm.n.1
         parallel mm.m.0&mm.n.0",
    );
    judged(&mut p, "partition mm.m.0&mm.n.0");
    assert_eq!(loops_of(&p, "mm.m.0"), named(&[("mm.m.0&mm.n.0", 6)]));
    // First the columns, which are lanes; the tests of rows stay.
    let shared = "mm.m.0&mm.n.0";
    assert_eq!(tests_on(&p, "mm"), [shared, "mm.m.1"]);
    assert_eq!(tests_on(&p, "mm~hi"), [shared, "mm.m.1~hi", "mm.n.1~hi"]);
    judged(&mut p, "partition mm.m.0&mm.n.0");
    assert_eq!(tests_on(&p, "mm"), [shared]);
    assert_eq!(tests_on(&p, "mm~hi"), [shared, "mm.n.1~hi"]);
    refused(&p, "partition mm.m.0&mm.n.0", "no condition");
}

#[test]
fn what_lives_inside_is_copied() {
    let mut p = window();
    judged(
        &mut p,
        "split z.i [_, 5]\ncompute_at t z.i.0\npartition z.i.0",
    );
    assert!(p.buffer_named("t~hi").is_some());
    judged(
        &mut p,
        "parallel z.i.0\nset_scope t local\nset_scope t~hi register",
    );
}

#[test]
fn what_has_no_interior_is_refused() {
    let mut p = pointwise();
    refused(&p, "partition y.k", "no condition");
    judged(&mut p, "split y.k [2, 6]\npartition y.k.0");
    refused(&p, "partition y.k.0", "no condition");
    judged(&mut p, "partition y.k.1~hi");
    // A window that is never inside: two columns, three wide.
    let mut b = ir::ProgramBuilder::new("narrow");
    let x = b.input("x", ir::DType::F32, &[2]);
    let y = b.reduce("y", &[("i", 2)], &[("r", 3)], ir::Reducer::Sum, |o, k| {
        let at = &o[0] + &k[0];
        let inside = ir::Expr::int(1).le(&at).and(at.clone().lt(3));
        ir::Expr::select(inside, ir::Expr::load(x, [at - 1]), ir::Expr::f32(0.0))
    });
    let p = b.finish(&[y]);
    refused(&p, "partition y.i", "no iteration in which all");
}

#[test]
fn accumulators_are_initialised_before_a_loop() {
    let mut p = matmul(6, 8, 5);
    judged(
        &mut p,
        "split mm.m [_, 2]
         split mm.n [_, 4]
         reorder mm.m.0 mm.n.0 mm.k mm.m.1 mm.n.1
         vectorize mm.n.1
         decompose_reduction mm mm.k",
    );
    let wanted = [
        ("mm.m.0", 3),
        ("mm.n.0", 2),
        ("mm.init.m.1", 2),
        ("mm.init.n.1", 4),
        ("mm.k", 5),
        ("mm.m.1", 2),
        ("mm.n.1", 4),
    ];
    assert_eq!(loops(&p)[..7], named(&wanted));
    let vector = p.loop_named("mm.init.n.1").expect("copied");
    assert_eq!(p.loop_(vector).kind, ir::LoopKind::Vectorized);
    refused(
        &p,
        "decompose_reduction mm mm.k",
        "not a reduction that initialises",
    );
    refused(
        &p,
        "decompose_reduction out out.m",
        "not a reduction that initialises",
    );
    judged(
        &mut p,
        "parallel mm.m.0\nreorder mm.n.0 mm.m.0"
            .lines()
            .next()
            .expect("a line"),
    );
}

#[test]
fn tails_are_initialised_where_there_are_outputs() {
    let mut p = matmul(7, 5, 5);
    judged(
        &mut p,
        "split mm.m [_, 4]
         split mm.k [_, 2]
         reorder mm.k.0 mm.m.0 mm.k.1 mm.m.1
         decompose_reduction mm mm.k.0",
    );
    assert_eq!(tests_on(&p, "mm.init"), ["mm.init.m.0", "mm.init.m.1"]);
    let mut p = matmul(7, 5, 5);
    judged(&mut p, "decompose_reduction mm mm.m");
    refused(
        &matmul(7, 5, 5),
        "decompose_reduction mm out.m",
        "not under",
    );
    let mut p = matmul(7, 5, 5);
    judged(&mut p, "reorder mm.k mm.n");
    refused(&p, "decompose_reduction mm mm.n", "reduces over `mm.k`");
}

#[test]
fn outputs_computed_again_are_not_decomposed_outside() {
    // Rows of `mm` that `near` needs are computed anew for each of its rows.
    let mut b = ir::ProgramBuilder::new("near");
    let x = b.input("x", ir::DType::F32, &[6, 3]);
    let sum = b.reduce("sum", &[("i", 6)], &[("j", 3)], ir::Reducer::Sum, |o, k| {
        ir::Expr::load(x, [o[0].clone(), k[0].clone()])
    });
    let near = b.compute("near", &[("i", 5)], |o| {
        ir::Expr::load(sum, o.to_vec()) + ir::Expr::load(sum, [&o[0] + 1])
    });
    let mut p = b.finish(&[near]);
    judged(&mut p, "compute_at sum near.i");
    refused(&p, "decompose_reduction sum near.i", "may share outputs");
    judged(&mut p, "decompose_reduction sum sum.i");
    let mut p = matmul(3, 4, 5);
    judged(&mut p, "fuse mm.n mm.k");
    refused(&p, "decompose_reduction mm mm.m", "both outputs and terms");
}
