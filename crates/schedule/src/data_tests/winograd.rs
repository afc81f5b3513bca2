//! winograd on convolutions of several layouts.

use super::programs::{matmul, padded_conv};
use super::{Expected, check, outputs, refused};
use crate::steps::{compute_inline, reorder, winograd};
use ir::{DType, Expr, Program, ProgramBuilder, Reducer};
use tensor::compare;

/// A convolution in blocks of 2 channels: 4 channels to 6 of `h x w`, `taps`
/// each way, `pad` zeros round the data, and a relu.
pub(super) fn blocked_conv(dtype: DType, h: i64, w: i64, taps: i64, pad: i64) -> Program {
    let mut b = ProgramBuilder::new("conv");
    let (rows, columns) = (h + taps - 1 - 2 * pad, w + taps - 1 - 2 * pad);
    let x = b.input("X", dtype, &[1, 2, rows, columns, 2]);
    let k = b.constant("W", dtype, &[6, 4, taps, taps]);
    let axes = [("n", 1), ("ko", 3), ("y", h), ("x", w), ("ki", 2)];
    let sums = [("co", 2), ("r", taps), ("s", taps), ("ci", 2)];
    let main = b.reduce("main", &axes, &sums, Reducer::Sum, |o, t| {
        let (y, x_) = (&o[2] + &t[1] - pad, &o[3] + &t[2] - pad);
        let within = |e: &Expr, n: i64| Expr::int(0).le(e).and(e.clone().lt(n));
        let load = Expr::load(
            x,
            [
                o[0].clone(),
                t[0].clone(),
                y.clone(),
                x_.clone(),
                t[3].clone(),
            ],
        );
        let data = match pad {
            0 => load,
            _ => Expr::select(
                within(&y, rows).and(within(&x_, columns)),
                load,
                Expr::constant(0.0, dtype),
            ),
        };
        let (map, channel) = (&o[1] * 2 + &o[4], &t[0] * 2 + &t[3]);
        data * Expr::load(k, [map, channel, t[1].clone(), t[2].clone()])
    });
    let out = b.compute("out", &axes, |o| {
        Expr::load(main, o.to_vec()).max(Expr::constant(0.0, dtype))
    });
    b.finish(&[out])
}

/// The largest difference that tiling leaves.
fn difference(program: &Program, tile: i64) -> f64 {
    let mut p = program.clone();
    let expected = Expected::of(&p);
    winograd::apply(&mut p, "main", tile).unwrap_or_else(|e| panic!("{e}"));
    let broken = ir::verify::verify(&p);
    assert!(broken.is_empty(), "{broken:?}\n{}", ir::text::print(&p));
    let text = ir::text::print(&p);
    assert_eq!(
        ir::text::parse(&text).map(|p| ir::text::print(&p)),
        Ok(text)
    );
    let found = outputs(&p).unwrap_or_else(|e| panic!("{e}\n{}", ir::text::print(&p)));
    let found = compare(&found[0], &expected.outputs[0]);
    assert!(found.within(1e-4), "{found:?}\n{}", ir::text::print(&p));
    found.max_abs
}

/// Small whole numbers and quarters: no rounding in tiles of 2.
#[test]
fn tiles_of_two_are_exact_on_whole_numbers() {
    for (h, w) in [(4, 6), (5, 7), (1, 3)] {
        for pad in [0, 1] {
            assert_eq!(difference(&blocked_conv(DType::F32, h, w, 3, pad), 2), 0.0);
        }
    }
}

#[test]
fn larger_tiles_and_filters() {
    for (h, w, taps, pad, tile) in [
        (8, 8, 3, 1, 4),
        (7, 9, 3, 1, 4),
        (6, 7, 5, 2, 2),
        (5, 4, 2, 0, 3),
    ] {
        let error = difference(&blocked_conv(DType::F64, h, w, taps, pad), tile);
        assert!(error < 1e-11, "{error} at {h} x {w}, {taps} taps");
    }
}

/// The gradient of a convolution's weights: 3 images are its terms, and `size` x `size` results of the convolution its taps.
fn weight_gradient(size: i64) -> Program {
    let mut b = ProgramBuilder::new("gradient");
    let x = b.input("X", DType::F64, &[3, size, size, 2]);
    let dy = b.input("DY", DType::F64, &[3, size, size, 4]);
    let axes = [("n", 2), ("y", 3), ("x", 3), ("k", 4)];
    let terms = [("c", 3), ("r", size), ("s", size)];
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let at = [1, 2].map(|i| &o[i] + &t[i] - 1);
        let within = |e: &Expr| Expr::int(0).le(e).and(e.clone().lt(size));
        let inside = within(&at[0]).and(within(&at[1]));
        let [row, column] = at;
        let data = Expr::load(x, [t[0].clone(), row, column, o[0].clone()]);
        let zero = Expr::constant(0.0, DType::F64);
        let maps = [t, &o[3..]].concat();
        Expr::select(inside, data, zero) * Expr::load(dy, maps)
    });
    b.finish(&[main])
}

/// Tiles of 3 x 3 outputs, and parts of `tile` x `tile` taps; the last part may reach past them.
#[test]
fn many_taps_are_cut_into_parts() {
    for (size, tile) in [(8, 4), (10, 4), (13, 2), (9, 3)] {
        let program = weight_gradient(size);
        let error = difference(&program, tile);
        assert!(error < 1e-11, "{error} at {size}, parts of {tile}");
        let mut p = program;
        let blocks = winograd::apply(&mut p, "main", tile).unwrap();
        // Data are summed over as many elements as a tile has.
        let transform = p.block(blocks[3]).reduce_iters().next().unwrap();
        assert_eq!(transform.extent, 3 + tile - 1);
    }
}

/// The borders may be read where they are needed, or be a padded copy.
#[test]
fn borders_can_be_inlined() {
    let mut p = blocked_conv(DType::F32, 5, 6, 3, 1);
    let expected = Expected::of(&p);
    winograd::apply(&mut p, "main", 2).expect("a convolution");
    compute_inline::apply(&mut p, "main.d").expect("read element by element");
    check(&p, &expected, "winograd, compute_inline");
}

/// What follows the padding stays what it is outside the data.
#[test]
fn borders_need_not_be_zeros() {
    let mut b = ProgramBuilder::new("shifted");
    let x = b.input("x", DType::F32, &[5, 5]);
    let w = b.constant("w", DType::F32, &[3, 3]);
    let axes = [("y", 5), ("x", 5)];
    let main = b.reduce(
        "main",
        &axes,
        &[("r", 3), ("s", 3)],
        Reducer::Sum,
        |o, t| {
            let at = [&o[0] + &t[0] - 1, &o[1] + &t[1] - 1];
            let within = |e: &Expr| Expr::int(0).le(e).and(e.clone().lt(5));
            let data = Expr::select(
                within(&at[0]).and(within(&at[1])),
                Expr::load(x, at),
                Expr::f32(0.0),
            );
            (data + Expr::f32(1.0)) * Expr::load(w, t.to_vec())
        },
    );
    let mut p = b.finish(&[main]);
    let expected = Expected::of(&p);
    winograd::apply(&mut p, "main", 2).expect("a convolution");
    check(&p, &expected, "winograd");
}

/// Other layouts: no batch, no blocks.
#[test]
fn plain_layouts() {
    let mut p = padded_conv();
    let expected = Expected::of(&p);
    winograd::apply(&mut p, "conv", 2).expect("a convolution");
    check(&p, &expected, "winograd");
}

#[test]
fn what_is_no_such_convolution_is_refused() {
    refused(&matmul(), "window axes", |p| winograd::apply(p, "mm", 2));
    refused(&matmul(), "not a sum", |p| winograd::apply(p, "out", 2));
    refused(&matmul(), "no such block", |p| {
        winograd::apply(p, "none", 2)
    });
    let conv = blocked_conv(DType::F32, 4, 4, 3, 1);
    refused(&conv, "at least 2", |p| winograd::apply(p, "main", 1));
    refused(&conv, "no points", |p| winograd::apply(p, "main", 7));
    let whole = blocked_conv(DType::I32, 4, 4, 3, 1);
    refused(&whole, "fractions", |p| winograd::apply(p, "main", 2));
    let mut moved = conv.clone();
    crate::steps::split::apply(&mut moved, "main.y", &[None, Some(2)]).expect("a loop");
    refused(&moved, "comes first", |p| winograd::apply(p, "main", 2));
    // 9 columns in blocks of 4: the last tiles read a tenth.
    let mut padded = padded_conv();
    crate::steps::pack::apply(&mut padded, "pad", &[(2, 4)], &[0, 1, 2, 3]).expect("a layout");
    refused(&padded, "padding", |p| winograd::apply(p, "conv", 2));
    let mut turned = conv;
    reorder::apply(&mut turned, &["main.x".into(), "main.y".into()]).expect("a chain");
    winograd::apply(&mut turned, "main", 2).expect("the order of loops does not matter");
}
