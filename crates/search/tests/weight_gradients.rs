//! Gradients of weights, whose windows are as large as the image: their tiles are boxes of
//! results that stay in registers, and what tests for borders there are is at the ends of
//! windows. Every default computes what the program computes.

use ir::{DType, Expr, Isa, Program, ProgramBuilder, Reducer, Target, interpret};
use search::{Accuracy, Sketch, Space, space};
use tensor::{Tensor, compare};
use testkit::contraction_args;

const BLOCK: i64 = 16;

/// Of a convolution with 1 x 1 taps, of images with maps in blocks: the last block of the
/// gradient has `maps` in part.
fn dense(channels: i64, maps: i64) -> Program {
    let (images, size) = (3, 5);
    let blocks = |n: i64| (n + BLOCK - 1) / BLOCK;
    let image = |n| [images, blocks(n), size, size, BLOCK];
    let mut b = ProgramBuilder::new("dense");
    let x = b.input("X", DType::F32, &image(channels));
    let dy = b.input("DY", DType::F32, &image(maps));
    let axes = [("n", channels), ("ko", blocks(maps)), ("ki", BLOCK)];
    let terms = [("c", images), ("r", size), ("s", size)];
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let at = |channel: &Expr| {
            let block = channel.clone().floor_div(BLOCK);
            let lane = channel.clone().floor_mod(BLOCK);
            [t[0].clone(), block, t[1].clone(), t[2].clone(), lane]
        };
        let map = &o[1] * BLOCK + &o[2];
        let gradient = Expr::load(dy, at(&map));
        let gradient = Expr::select(map.lt(maps), gradient, Expr::f32(0.0));
        Expr::load(x, at(&o[0])) * gradient
    });
    b.finish(&[main])
}

/// Of a depthwise convolution with 3 x 3 taps.
fn depthwise(size: i64, stride: i64) -> Program {
    let (blocks, taps, pad) = (3, 3, 1);
    let count = (size + 2 * pad - taps) / stride + 1;
    let mut b = ProgramBuilder::new("depthwise");
    let x = b.input("X", DType::F32, &[blocks, size, size, BLOCK]);
    let dy = b.input("DY", DType::F32, &[blocks, count, count, BLOCK]);
    let axes = [("co", blocks), ("y", taps), ("x", taps), ("ci", BLOCK)];
    let terms = [("r", count), ("s", count)];
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let [row, column] = [0, 1].map(|i| &o[i + 1] + &t[i] * stride - pad);
        let within = |e: &Expr| Expr::int(0).le(e).and(e.clone().lt(size));
        let inside = within(&row).and(within(&column));
        let data = Expr::load(x, [o[0].clone(), row, column, o[3].clone()]);
        let own = [o[0].clone(), t[0].clone(), t[1].clone(), o[3].clone()];
        Expr::select(inside, data, Expr::f32(0.0)) * Expr::load(dy, own)
    });
    b.finish(&[main])
}

fn output(program: &Program, args: &[Tensor]) -> Tensor {
    let mut args = args.to_vec();
    interpret::run(program, &mut args).unwrap();
    args.pop().unwrap()
}

/// The sketches of rules, whose defaults are right.
fn checked(program: &Program, target: &Target) -> Vec<Sketch> {
    let all = space(program, target, Accuracy::Strict);
    assert_eq!(all.refused, []);
    let of_rules = |s: &Sketch| s.name.starts_with("rules.");
    let of_rules: Vec<Sketch> = all.sketches.into_iter().filter(of_rules).collect();
    let args = contraction_args(program, 1);
    let expected = output(program, &args);
    for sketch in &of_rules {
        let own = Space::of(vec![sketch.clone()]);
        let candidate = own.candidate(program, &own.default_point()).unwrap();
        let scheduled = schedule::replay(program, &candidate.trace).unwrap();
        let found = output(&scheduled, &args);
        assert!(compare(&found, &expected).rel_l2 <= 1e-5, "{}", sketch.name);
    }
    of_rules
}

fn default_of(sketch: &Sketch, decision: &str) -> i64 {
    let mut all = sketch.decisions.iter();
    all.find(|d| d.name == decision).unwrap().value[0]
}

/// Rows that are parts of two blocks of channels would be no box of results.
#[test]
fn a_tile_of_channels_is_inside_a_block() {
    for (channels, maps) in [(32, 24), (96, 16), (48, 40)] {
        for threads in 1..3 {
            let program = dense(channels, maps);
            let target = Target::generic(Isa::X86Avx512).with_threads(threads);
            for sketch in checked(&program, &target) {
                assert!(default_of(&sketch, "tile_1") >= 4, "{}", sketch.name);
            }
        }
    }
}

/// Each term adds to all nine results, which are independent sums.
#[test]
fn all_taps_of_a_depthwise_convolution_are_one_tile() {
    for (size, stride) in [(9, 1), (14, 2), (13, 2)] {
        let program = depthwise(size, stride);
        let target = Target::generic(Isa::X86Avx512);
        let rules = search::rules_text(&program, &target);
        assert!(
            rules.contains("main.r, main.s.0: interior and ends"),
            "{rules}"
        );
        let first = checked(&program, &target).remove(0);
        let tile = ["tile_y", "tile_x"].map(|name| default_of(&first, name));
        assert_eq!(tile, [3, 3], "{rules}");
    }
}

/// Images larger than the last-level cache, whose channels lie in blocks far apart: some terms of
/// all blocks come before the others.
#[test]
fn lines_from_memory_are_read_together() {
    let rules = |size: i64| {
        let mut b = ProgramBuilder::new("product");
        let x = b.input("X", DType::F32, &[8, 6, size, size, BLOCK]);
        let w = b.input("W", DType::F32, &[6, BLOCK, BLOCK]);
        let axes = [("n", 8), ("y", size), ("x", size), ("ki", BLOCK)];
        let terms = [("co", 6), ("ci", BLOCK)];
        let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
            let pixel = [&o[0], &t[0], &o[1], &o[2], &t[1]].map(Expr::clone);
            Expr::load(x, pixel) * Expr::load(w, [&t[0], &t[1], &o[3]].map(Expr::clone))
        });
        let program = b.finish(&[main]);
        search::rules_text(&program, &Target::generic(Isa::X86Avx512))
    };
    assert!(
        rules(224).contains("| main.ci.0 main.co |"),
        "{}",
        rules(224)
    );
    assert!(rules(28).contains("| main.co main.ci.0 |"), "{}", rules(28));
}
