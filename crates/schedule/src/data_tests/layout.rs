//! pack and tensorize.

use super::programs::{matmul, padded_conv, reorder, split};
use super::{extents, judged, refused};
use crate::intrinsics::{INTRINSICS, intrinsic};
use crate::steps::{
    cache_read, compute_at, decompose_reduction, pack, parallel, reverse_compute_at,
    reverse_compute_inline, set_scope, tensorize, vectorize,
};
use ir::{BinaryOp, DType, Expr, ExprKind, IterKind, Program, ProgramBuilder, Reducer, Scope};

fn packed(p: &mut Program, buffer: &str, tiles: &[(usize, i64)], order: &[usize]) {
    judged(p, |p| pack::apply(p, buffer, tiles, order));
}

fn shape(p: &Program, buffer: &str) -> Vec<i64> {
    let b = p.buffer_named(buffer).expect("the buffer exists");
    p.buffer(b).shape.clone()
}

#[test]
fn weights_are_packed_and_padded_with_zeros() {
    let mut p = padded_conv();
    // o c r s -> o/3 c/2 r s 2c 3o
    packed(&mut p, "w", &[(0, 3), (1, 2)], &[0, 2, 4, 5, 3, 1]);
    assert_eq!(shape(&p, "w.pack"), [2, 2, 3, 3, 2, 3]);
    assert_eq!(shape(&p, "w"), [4, 3, 3, 3]);
    assert_eq!(p.body.len(), 5);
    // The copy is an intermediate: it can be packed again and cached.
    packed(&mut p, "w.pack", &[], &[1, 0, 2, 3, 4, 5]);
    assert_eq!(shape(&p, "w.pack"), [2, 2, 3, 3, 2, 3]);
    judged(&mut p, |p| {
        cache_read::apply(p, "conv", "w.pack", Scope::Global)
    });
}

/// 3 maps of 5 channels in blocks of 2: maps outside the weights are read as 0.
#[test]
fn padding_stands_for_the_guards_of_its_consumers() {
    let mut b = ProgramBuilder::new("tails");
    let x = b.input("x", DType::F32, &[6]);
    let w = b.constant("w", DType::F32, &[3, 5]);
    let main = b.reduce(
        "main",
        &[("ko", 2), ("ki", 2)],
        &[("co", 3), ("ci", 2)],
        Reducer::Sum,
        |o, t| {
            let (k, c) = (&o[0] * 2 + &o[1], &t[0] * 2 + &t[1]);
            let known = k.clone().lt(3).and(c.clone().lt(5));
            let weight = Expr::load(w, [k, c.clone()]);
            Expr::load(x, [c]) * Expr::select(known, weight, Expr::f32(0.0))
        },
    );
    let p = b.finish(&[main]);
    let guards = |p: &Program| {
        let main = p.block(p.block_named("main").expect("it stays"));
        let mut tests = 0;
        main.writes[0].value.visit(&mut |e| {
            tests += i32::from(matches!(e.kind(), ExprKind::Binary(BinaryOp::Lt, ..)));
        });
        tests
    };
    assert_eq!(guards(&p), 2);
    let mut both = p.clone();
    packed(&mut both, "w", &[(0, 2), (1, 2)], &[0, 2, 3, 1]);
    // The sum need not run over padded channels: their guard stays.
    assert_eq!(guards(&both), 1);
    let mut one = p;
    packed(&mut one, "w", &[(0, 2)], &[0, 2, 1]);
    assert_eq!(guards(&one), 1);
}

#[test]
fn a_factor_beyond_the_dimension_pads_it() {
    let mut p = matmul();
    packed(&mut p, "b", &[(0, 8), (1, 16)], &[2, 0, 3, 1]);
    assert_eq!(shape(&p, "b.pack"), [1, 1, 16, 8]);
}

#[test]
fn an_input_is_packed_at_run_time() {
    let mut p = matmul();
    packed(&mut p, "a", &[(0, 5)], &[0, 2, 1]);
    assert_eq!(shape(&p, "a.pack"), [2, 7, 5]);
}

#[test]
fn an_intermediate_changes_layout_in_place_and_may_still_be_moved() {
    let mut p = padded_conv();
    packed(&mut p, "pad", &[(0, 2), (2, 4)], &[0, 3, 2, 4, 1]);
    assert_eq!(shape(&p, "pad"), [2, 3, 8, 4, 2]);
    packed(&mut p, "conv", &[(0, 4)], &[0, 2, 3, 1]);
    refused(&p, "padding", |p| {
        cache_read::apply(p, "conv", "pad", Scope::Global)
    });
    judged(&mut p, |p| compute_at::apply(p, "pad", "conv.h"));
    assert_eq!(extents(&p, &["pad.c", "pad.h", "pad.w"]), [3, 3, 9]);

    let mut p = padded_conv();
    packed(&mut p, "pad", &[(2, 4)], &[0, 1, 2, 3]);
    reorder(
        &mut p,
        &["conv.h", "conv.w", "conv.o", "conv.c", "conv.r", "conv.s"],
    );
    judged(&mut p, |p| compute_at::apply(p, "pad", "conv.w"));
}

#[test]
fn pack_refuses_outputs_and_wrong_layouts() {
    let p = matmul();
    let no = |buffer: &str, tiles: &[(usize, i64)], order: &[usize], why: &str| {
        refused(&p, why, |p| pack::apply(p, buffer, tiles, order));
    };
    no("out", &[(0, 2)], &[0, 1, 2], "output");
    no("b", &[(0, 2)], &[0, 1], "permutation");
    no("b", &[(0, 2)], &[0, 1, 1], "permutation");
    no("b", &[(2, 2)], &[0, 1, 2], "no dimension 2");
    no("b", &[(0, 0)], &[0, 1, 2], "does not tile");
    no("b", &[(0, 257)], &[0, 1, 2], "does not tile");
    no("b", &[(0, 2), (0, 2)], &[0, 1, 2, 3], "twice");
    no("z", &[], &[], "z");
}

/// y[6,32] = x[6,8] w[8,32] of bytes, in i32.
fn byte_matmul(left: DType) -> Program {
    let mut b = ProgramBuilder::new("bytes");
    let x = b.input("x", left, &[6, 8]);
    let w = b.constant("w", DType::I8, &[8, 32]);
    let y = b.reduce(
        "y",
        &[("m", 6), ("n", 32)],
        &[("k", 8)],
        Reducer::Sum,
        |o, k| {
            let left = Expr::load(x, [o[0].clone(), k[0].clone()]);
            let right = Expr::load(w, [k[0].clone(), o[1].clone()]);
            right.cast(DType::I32) * left.cast(DType::I32)
        },
    );
    b.finish(&[y])
}

fn tile_for_dot(p: &mut Program) {
    split(p, "y.n", 16);
    split(p, "y.k", 4);
    reorder(p, &["y.m", "y.n.0", "y.k.0", "y.n.1", "y.k.1"]);
}

#[test]
fn packed_bytes_take_the_dot_instruction() {
    for (left, name) in [(DType::U8, "dot4.u8i8i32"), (DType::I8, "dot4.i8i8i32")] {
        let mut p = byte_matmul(left);
        tile_for_dot(&mut p);
        refused(&p, "strides", |p| tensorize::apply(p, "y.n.1", name));
        packed(&mut p, "w", &[(0, 4), (1, 16)], &[2, 0, 3, 1]);
        refused(&p, "wants", |p| tensorize::apply(p, "y.k.1", name));
        judged(&mut p, |p| tensorize::apply(p, "y.n.1", name));
        let y = p.block_named("y").expect("still there");
        let tensor = p.block(y).tensor.clone().expect("tensorized");
        assert_eq!(tensor.intrinsic, name);
        let kinds: Vec<_> = tensor.iters.iter().map(|i| (i.1, i.2)).collect();
        assert_eq!(kinds, [(16, IterKind::Spatial), (4, IterKind::Reduce)]);
        refused(&p, "tensorized", |p| {
            pack::apply(p, "w.pack", &[], &[0, 1, 2, 3])
        });
    }
    let mut p = byte_matmul(DType::U8);
    tile_for_dot(&mut p);
    packed(&mut p, "w", &[(0, 4), (1, 16)], &[2, 0, 3, 1]);
    refused(&p, "types", |p| {
        tensorize::apply(p, "y.n.1", "dot4.i8i8i32")
    });
    refused(&p, "there is no intrinsic", |p| {
        tensorize::apply(p, "y.n.1", "dot")
    });
}

/// y[4,16] = sums of windows of 3 over x[4,8] with zeros round it, times w.
fn padded_bytes(guard_by_channel: bool) -> Program {
    let mut b = ProgramBuilder::new("padded");
    let x = b.input("x", DType::U8, &[4, 8]);
    let w = b.constant("w", DType::I8, &[3, 2, 16, 4]);
    let y = b.reduce(
        "y",
        &[("m", 4), ("n", 16)],
        &[("r", 3), ("c", 2), ("k", 4)],
        Reducer::Sum,
        |o, t| {
            let row = &o[0] + &t[0] - 1;
            let channel = &t[1] * 4 + &t[2];
            let mut inside = Expr::int(0).le(&row).and(row.clone().lt(4));
            if guard_by_channel {
                inside = inside.and(channel.clone().lt(7));
            }
            let load = Expr::load(x, [row, channel]).cast(DType::I32);
            let zero: Expr = ExprKind::Int(0, DType::I32).into();
            let weight = Expr::load(w, [t[0].clone(), t[1].clone(), o[1].clone(), t[2].clone()]);
            Expr::select(inside, load, zero) * weight.cast(DType::I32)
        },
    );
    b.finish(&[y])
}

#[test]
fn a_guard_outside_the_covered_loops_stays_round_the_instruction() {
    let mut p = padded_bytes(false);
    reorder(&mut p, &["y.m", "y.r", "y.c", "y.n", "y.k"]);
    judged(&mut p, |p| tensorize::apply(p, "y.n", "dot4.u8i8i32"));
    let mut p = padded_bytes(true);
    reorder(&mut p, &["y.m", "y.r", "y.c", "y.n", "y.k"]);
    refused(&p, "statement", |p| {
        tensorize::apply(p, "y.n", "dot4.u8i8i32")
    });
}

#[test]
fn a_row_of_floats_takes_the_multiply_add() {
    let mut p = matmul();
    split(&mut p, "mm.n", 4);
    reorder(&mut p, &["mm.m", "mm.n.0", "mm.k", "mm.n.1"]);
    refused(&p, "wants", |p| tensorize::apply(p, "mm.n.1", "fma.f32x8"));
    judged(&mut p, |p| tensorize::apply(p, "mm.n.1", "fma.f32x4"));

    let mut p = matmul();
    split(&mut p, "mm.n", 8);
    reorder(&mut p, &["mm.m", "mm.n.0", "mm.k", "mm.n.1"]);
    refused(&p, "tail", |p| tensorize::apply(p, "mm.n.1", "fma.f32x8"));
}

#[test]
fn the_table_is_sorted_and_its_meanings_are_single_reductions() {
    assert!(INTRINSICS.is_sorted_by_key(|i| i.name));
    for i in INTRINSICS {
        assert!(intrinsic(i.name).is_some());
        let meaning = i.meaning();
        let [b] = meaning.block_ids()[..] else {
            panic!("{} is not one block", i.name);
        };
        let block = meaning.block(b);
        assert!(block.is_reduction());
        assert_eq!(i.operand_strides.len(), block.loads().len());
        let axes = block.iters.len();
        assert!(
            i.operand_strides
                .iter()
                .flat_map(|o| *o)
                .all(|s| s.len() == axes)
        );
        assert_eq!(i.output_strides.len(), axes);
    }
}

/// What a template for a CPU does: packed weights, a register tile with its
/// accumulators, the epilogue on the tile, the padded rows computed beside it.
#[test]
fn a_convolution_becomes_a_register_tile() {
    let mut p = padded_conv();
    packed(&mut p, "w", &[(0, 4)], &[0, 2, 3, 4, 1]);
    judged(&mut p, |p| reverse_compute_inline::apply(p, "relu"));
    split(&mut p, "conv.o", 4);
    split(&mut p, "conv.w", 4);
    let order = [
        "conv.o.0", "conv.h", "conv.w.0", "conv.c", "conv.r", "conv.s", "conv.w.1", "conv.o.1",
    ];
    reorder(&mut p, &order);
    judged(&mut p, |p| compute_at::apply(p, "pad", "conv.h"));
    judged(&mut p, |p| {
        reverse_compute_at::apply(p, "added", "conv.w.0")
    });
    assert_eq!(extents(&p, &["added.o", "added.h", "added.w"]), [4, 1, 4]);
    judged(&mut p, |p| decompose_reduction::apply(p, "conv", "conv.c"));
    judged(&mut p, |p| set_scope::apply(p, "conv", Scope::Local));
    judged(&mut p, |p| vectorize::apply(p, "conv.o.1"));
    judged(&mut p, |p| parallel::apply(p, "conv.h"));
    let site = p
        .buffer_named("conv")
        .and_then(|b| p.usage()[b.index()].site);
    assert_eq!(site, p.loop_named("conv.w.0"));
}
