//! Models in the QDQ form keep their outputs, up to one step where a sum lies between two
//! numbers, when products of dequantised bytes become products of bytes.

use graph::ops::*;
use graph::{Keep, Model, ValueId, evaluate, simplify};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

/// Bytes with a zero point and a scale.
#[derive(Clone, Copy)]
struct Steps {
    dtype: DType,
    zero: i64,
    scale: f64,
}

const U8: Steps = Steps {
    dtype: DType::U8,
    zero: 117,
    scale: 0.021,
};
const I8: Steps = Steps {
    dtype: DType::I8,
    zero: -9,
    scale: 0.034,
};
const SYMMETRIC: Steps = Steps {
    dtype: DType::I8,
    zero: 0,
    scale: 0.05,
};

struct Net(Model);

impl Net {
    fn new() -> Net {
        Net(Model::new("quantised", 17))
    }

    fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.0.add("node", op, operands).unwrap()
    }

    fn filled(&mut self, dtype: DType, shape: &[usize], values: &[f64]) -> ValueId {
        let mut t = Tensor::zeros(dtype, shape);
        values
            .iter()
            .enumerate()
            .for_each(|(i, v)| t.set_f64(i, *v));
        self.0.add_constant("constant", t)
    }

    fn quantise(&mut self, x: ValueId, s: Steps) -> ValueId {
        let scale = self.filled(DType::F32, &[], &[s.scale]);
        let zero = self.filled(DType::F32, &[], &[s.zero as f64]);
        let (min, max) = match s.dtype {
            DType::U8 => (0.0, 255.0),
            _ => (-128.0, 127.0),
        };
        let y = self.add(Op::Binary(Binary::Div), &[x, scale]);
        let y = self.add(Op::Unary(Unary::Round), &[y]);
        let y = self.add(Op::Binary(Binary::Add), &[y, zero]);
        let (min, max) = (Some(min), Some(max));
        let y = self.add(Op::Unary(Unary::Clip { min, max }), &[y]);
        self.add(Op::Cast(s.dtype), &[y])
    }

    fn dequantise(&mut self, q: ValueId, zero: ValueId, scale: ValueId) -> ValueId {
        let y = self.add(Op::Cast(DType::I32), &[q]);
        let y = self.add(Op::Binary(Binary::Sub), &[y, zero]);
        let y = self.add(Op::Cast(DType::F32), &[y]);
        self.add(Op::Binary(Binary::Mul), &[y, scale])
    }

    /// Quantised, and what that stands for.
    fn through(&mut self, x: ValueId, s: Steps) -> ValueId {
        let q = self.quantise(x, s);
        let scale = self.filled(DType::F32, &[], &[s.scale]);
        let zero = self.filled(DType::I32, &[], &[s.zero as f64]);
        self.dequantise(q, zero, scale)
    }

    /// Constant bytes with scales, and zero points where they are unsigned, along an axis.
    fn weights(&mut self, dtype: DType, shape: &[usize], axis: usize) -> ValueId {
        let (lo, hi) = match dtype {
            DType::U8 => (60, 190),
            _ => (-128, 127),
        };
        let q = fill_tensor(dtype, shape, Fill::Integers { lo, hi }, 3);
        let q = self.0.add_constant("weights", q);
        let maps = shape[axis];
        let mut along = vec![1; shape.len()];
        along[axis] = maps;
        let scales: Vec<f64> = (0..maps).map(|m| 0.002 + 1e-4 * m as f64).collect();
        let scale = self.filled(DType::F32, &along, &scales);
        let zero = if dtype == DType::U8 { 125.0 } else { 0.0 };
        let zero = self.filled(DType::I32, &along, &vec![zero; maps]);
        self.dequantise(q, zero, scale)
    }

    /// The operators of the simplified model, whose outputs are at most one step apart from
    /// those of this one.
    fn simplified(mut self, y: ValueId) -> Vec<&'static str> {
        self.0.add_output(y);
        self.0.verify().unwrap();
        let simple = simplify(&self.0);
        simple.verify().unwrap();
        let input = |v: &ValueId| {
            let normal = Fill::Normal { std: 1.0 };
            Arc::new(fill_tensor(DType::F32, self.0[*v].shape(), normal, 7))
        };
        let inputs: Vec<_> = self.0.inputs().iter().map(input).collect();
        let run = |m: &Model| evaluate(m, &inputs, Keep::Outputs).unwrap().outputs();
        let (found, expected) = (run(&simple), run(&self.0));
        let (found, expected) = (&found[0], &expected[0]);
        let step = if found.dtype() == DType::F32 {
            1e-4
        } else {
            1.0
        };
        let apart = (0..found.len()).map(|i| (found.get_f64(i) - expected.get_f64(i)).abs());
        assert!(apart.clone().all(|d| d <= step));
        assert!(apart.filter(|d| *d > 1e-4).count() * 100 <= found.len());
        let used: Vec<i64> = (0..expected.len()).map(|i| expected.get_i64(i)).collect();
        assert!(used.iter().any(|v| *v != used[0]), "nothing is compared");
        simple.nodes().map(|(_, n)| n.op.name()).collect()
    }
}

fn conv(pad: usize, groups: usize) -> Op {
    Op::Conv(Conv {
        pads: vec![(pad, pad); 2],
        groups,
        ..Conv::unit(2)
    })
}

#[test]
fn convolutions_of_bytes_pad_with_their_zero_point() {
    for (steps, weights) in [U8, I8, SYMMETRIC]
        .into_iter()
        .flat_map(|s| [(s, DType::I8), (s, DType::U8)])
    {
        for (groups, biased) in [(1, true), (1, false), (2, true), (6, false)] {
            let mut net = Net::new();
            let x = net.0.add_input("x", DType::F32, &[2, 6, 7, 5]);
            let x = net.through(x, steps);
            let w = net.weights(weights, &[12, 6 / groups, 3, 3], 0);
            let mut operands = vec![x, w];
            if biased {
                let values: Vec<f64> = (0..12).map(|m| 0.1 * f64::from(m) - 0.4).collect();
                operands.push(net.filled(DType::F32, &[12], &values));
            }
            let y = net.add(conv(1, groups), &operands);
            let y = net.add(Op::Unary(Unary::Relu), &[y]);
            let y = net.quantise(y, U8);
            let names = net.simplified(y);
            assert!(names.contains(&"conv_integer"), "{names:?}");
            assert!(
                !names.contains(&"conv") && !names.contains(&"pad"),
                "{names:?}"
            );
        }
    }
}

#[test]
fn weights_far_from_their_zero_point_take_sums_of_windows_off() {
    for (steps, zeros) in [U8, I8].into_iter().flat_map(|s| [1, 12].map(|z| (s, z))) {
        let mut net = Net::new();
        let x = net.0.add_input("x", DType::F32, &[2, 6, 7, 5]);
        let x = net.through(x, steps);
        let (lo, hi) = (0, 255);
        let q = fill_tensor(DType::U8, &[12, 6, 3, 3], Fill::Integers { lo, hi }, 3);
        let q = net.0.add_constant("weights", q);
        let scale = net.filled(DType::F32, &[], &[0.002]);
        let zero: Vec<f64> = (0..zeros).map(|m| f64::from(40 + 17 * m)).collect();
        let along = [zeros as usize, 1, 1, 1];
        let along = if zeros == 1 { &[][..] } else { &along[..] };
        let zero = net.filled(DType::I32, along, &zero);
        let w = net.dequantise(q, zero, scale);
        let bias: Vec<f64> = (0..12).map(|m| 0.1 * f64::from(m) - 0.4).collect();
        let bias = net.filled(DType::F32, &[12], &bias);
        let y = net.add(conv(1, 1), &[x, w, bias]);
        let y = net.quantise(y, U8);
        let names = net.simplified(y);
        let products = names.iter().filter(|n| **n == "conv_integer").count();
        assert!(products == 2 && !names.contains(&"conv"), "{names:?}");
    }
}

#[test]
fn products_with_matrices_of_bytes_take_sums_of_columns_off() {
    for steps in [U8, I8] {
        for trans_b in [None, Some(false), Some(true)] {
            let mut net = Net::new();
            let x = net.0.add_input("x", DType::F32, &[5, 24]);
            let x = net.through(x, steps);
            let turned = trans_b == Some(true);
            let shape = if turned { [10, 24] } else { [24, 10] };
            let w = net.weights(DType::I8, &shape, usize::from(!turned));
            let y = match trans_b {
                None => net.add(Op::MatMul, &[x, w]),
                Some(trans_b) => {
                    let (alpha, beta, trans_a) = (1.0, 1.0, false);
                    let op = Op::Gemm(Gemm {
                        alpha,
                        beta,
                        trans_a,
                        trans_b,
                    });
                    let values: Vec<f64> = (0..10).map(|m| 0.3 * f64::from(m)).collect();
                    let bias = net.filled(DType::F32, &[10], &values);
                    net.add(op, &[x, w, bias])
                }
            };
            let y = net.quantise(y, I8);
            let names = net.simplified(y);
            assert!(names.contains(&"matmul_integer"), "{names:?}");
            assert!(
                !names.contains(&"gemm") && !names.contains(&"matmul"),
                "{names:?}"
            );
        }
    }
}

#[test]
fn what_moves_values_moves_bytes() {
    let mut net = Net::new();
    let x = net.0.add_input("x", DType::F32, &[1, 4, 6, 6]);
    let x = net.through(x, U8);
    let pool = Op::Pool(Pool {
        kind: PoolKind::Max { indices: None },
        kernel: vec![2, 2],
        strides: vec![2, 2],
        dilations: vec![1, 1],
        pads: vec![(0, 0); 2],
        ceil_mode: false,
    });
    let y = net.add(pool, &[x]);
    let y = net.add(
        Op::Transpose(Transpose {
            perm: vec![0, 2, 3, 1],
        }),
        &[y],
    );
    let y = net.add(Op::Reshape(Reshape { shape: vec![1, 36] }), &[y]);
    let y = net.quantise(y, U8);
    let names = net.simplified(y);
    let end = ["max_pool", "transpose", "reshape"];
    assert!(names.ends_with(&end), "{names:?}");
}

#[test]
fn a_shortcut_of_bytes_is_dequantised_where_it_is_added() {
    let mut net = Net::new();
    let x = net.0.add_input("x", DType::F32, &[1, 8, 5, 5]);
    let x = net.through(x, U8);
    let w = net.weights(DType::I8, &[8, 8, 1, 1], 0);
    let y = net.add(conv(0, 1), &[x, w]);
    let y = net.through(y, I8);
    let y = net.add(Op::Binary(Binary::Add), &[y, x]);
    let y = net.quantise(y, U8);
    let names = net.simplified(y);
    let casts = names.iter().filter(|n| **n == "cast").count();
    // Three ends of bytes and the sum; both operands of the addition in two steps each.
    assert_eq!((casts, names.contains(&"conv")), (8, false), "{names:?}");
}

#[test]
fn other_products_stay() {
    // Weights that less their zero points are no bytes, an image of floats, and more terms
    // than i32 has room for.
    let mut net = Net::new();
    let x = net.0.add_input("x", DType::F32, &[4, 16]);
    let q = net.through(x, U8);
    let w = fill_tensor(DType::U8, &[16, 8], Fill::Integers { lo: 0, hi: 255 }, 3);
    let w = net.0.add_constant("weights", w);
    let scale = net.filled(DType::F32, &[], &[0.01]);
    let zeros: Vec<f64> = (0..8).map(f64::from).collect();
    let zeros = net.filled(DType::I32, &[1, 8], &zeros);
    let w = net.dequantise(w, zeros, scale);
    let y = net.add(Op::MatMul, &[q, w]);
    let turned = net.add(Op::Transpose(Transpose { perm: vec![1, 0] }), &[x]);
    let square = net.add(Op::MatMul, &[q, turned]);
    let y = net.add(Op::MatMul, &[square, y]);
    let names = net.simplified(y);
    assert_eq!(names.iter().filter(|n| **n == "matmul").count(), 3);

    for (terms, name) in [(33_025, "matmul_integer"), (33_026, "matmul")] {
        let mut net = Net::new();
        let x = net.0.add_input("x", DType::F32, &[2, terms]);
        let x = net.through(x, SYMMETRIC);
        let turned = net.add(Op::Transpose(Transpose { perm: vec![1, 0] }), &[x]);
        let y = net.add(Op::MatMul, &[x, turned]);
        let y = net.quantise(
            y,
            Steps {
                scale: 300.0,
                ..SYMMETRIC
            },
        );
        let names = net.simplified(y);
        assert!(names.contains(&name), "{names:?}");
    }
}

#[test]
fn products_of_two_images_take_sums_of_rows_and_columns_off() {
    let even = Steps { zero: 128, ..U8 };
    // Sums: of rows where the right zero point is not 0 as i8, of columns where the left one is not.
    for (left, right, sums) in [
        (U8, U8, 2),
        (U8, even, 1),
        (I8, I8, 2),
        (SYMMETRIC, SYMMETRIC, 1),
        (Steps { zero: 0, ..U8 }, I8, 1),
        (Steps { zero: -128, ..I8 }, even, 0),
    ] {
        for terms in [8, 9] {
            let mut net = Net::new();
            let a = net.0.add_input("a", DType::F32, &[2, 3, 5, terms]);
            let b = net.0.add_input("b", DType::F32, &[2, 6, 3, terms]);
            let (a, b) = (net.through(a, left), net.through(b, right));
            let perm = vec![0, 2, 3, 1];
            let b = net.add(Op::Transpose(Transpose { perm }), &[b]);
            let y = net.add(Op::MatMul, &[a, b]);
            let y = net.quantise(
                y,
                Steps {
                    scale: 0.0937,
                    ..U8
                },
            );
            let names = net.simplified(y);
            let count = |name| names.iter().filter(|n| **n == name).count();
            assert_eq!(
                [
                    count("matmul_integer"),
                    count("matmul"),
                    count("reduce_sum")
                ],
                [1, 0, sums],
                "{names:?}"
            );
            assert_eq!(count("pad"), if terms == 9 { 2 } else { 0 });
        }
    }
}

#[test]
fn functions_of_a_byte_are_looked_up() {
    for (from, to) in [(U8, U8), (I8, I8), (U8, I8), (I8, U8)] {
        let mut net = Net::new();
        let x = net.0.add_input("x", DType::F32, &[3, 40]);
        let x = net.through(x, from);
        let scaled = net.filled(DType::F32, &[], &[std::f64::consts::FRAC_1_SQRT_2]);
        let scaled = net.add(Op::Binary(Binary::Mul), &[x, scaled]);
        let erf = net.add(Op::Unary(Unary::Erf), &[scaled]);
        let erf = net.through(erf, to);
        // As importers leave a quantised constant.
        let one = net.filled(DType::U8, &[], &[200.0]);
        let zero = net.filled(DType::I32, &[], &[0.0]);
        let scale = net.filled(DType::F32, &[], &[0.005]);
        let one = net.dequantise(one, zero, scale);
        let y = net.add(Op::Binary(Binary::Add), &[erf, one]);
        let y = net.through(y, to);
        let y = net.add(Op::Binary(Binary::Mul), &[x, y]);
        let y = net.quantise(y, to);
        let names = net.simplified(y);
        assert!(
            names.ends_with(&["lookup"]) && !names.contains(&"erf"),
            "{names:?}"
        );
        assert_eq!(names.iter().filter(|n| **n == "lookup").count(), 1);
    }
}

#[test]
fn what_depends_on_more_than_a_byte_is_computed() {
    let mut net = Net::new();
    let x = net.0.add_input("x", DType::F32, &[3, 40]);
    let (a, b) = (net.through(x, U8), net.through(x, I8));
    let exp = net.add(Op::Unary(Unary::Exp), &[a]);
    let y = net.add(Op::Binary(Binary::Mul), &[exp, b]);
    let scales = net.filled(DType::F32, &[40], &[0.1; 40]);
    let z = net.add(Op::Binary(Binary::Mul), &[exp, scales]);
    let y = net.add(Op::Binary(Binary::Add), &[y, z]);
    let y = net.quantise(y, U8);
    let names = net.simplified(y);
    assert!(!names.contains(&"lookup"), "{names:?}");
}

#[test]
fn odd_shapes_and_zero_points_are_no_error() {
    let mut net = Net::new();
    let x = net.0.add_input("x", DType::F32, &[1, 4, 3, 3]);
    let q = net.quantise(x, U8);
    let scale = net.filled(DType::F32, &[1, 1, 1], &[0.03]);
    let far = net.filled(DType::I32, &[1], &[999.0]);
    let x = net.dequantise(q, far, scale);
    let w = net.weights(DType::I8, &[6, 4, 3, 3], 0);
    let y = net.add(conv(1, 1), &[x, w]);
    let y = net.add(Op::Reshape(Reshape { shape: vec![9, 6] }), &[y]);
    let moved = net.add(Op::Reshape(Reshape { shape: vec![36] }), &[x]);
    let w = net.weights(DType::I8, &[6], 0);
    let z = net.add(Op::MatMul, &[y, w]);
    let all = net.add(Op::Concat(Concat { axis: 0 }), &[z, moved]);
    let _ = net.simplified(all);
}

/// A product of the largest bytes with a bias of so many steps: its operators and the relative
/// error of its value.
fn largest_sum(terms: usize, bias: f64) -> (Vec<&'static str>, f64) {
    let mut net = Net::new();
    let steps = Steps {
        dtype: DType::U8,
        zero: 0,
        scale: 1.0,
    };
    let x = net.0.add_input("x", DType::F32, &[1, terms]);
    let x = net.through(x, steps);
    let q = Tensor::from_slice(&[terms, 1], &vec![127i8; terms]);
    let q = net.0.add_constant("weights", q);
    let scale = net.filled(DType::F32, &[], &[1.0]);
    let zero = net.filled(DType::I32, &[], &[0.0]);
    let w = net.dequantise(q, zero, scale);
    let bias = net.filled(DType::F32, &[1], &[bias]);
    let (alpha, beta, trans_a, trans_b) = (1.0, 1.0, false, false);
    let op = Op::Gemm(Gemm {
        alpha,
        beta,
        trans_a,
        trans_b,
    });
    let y = net.add(op, &[x, w, bias]);
    net.0.add_output(y);
    let simple = simplify(&net.0);
    let x = Arc::new(Tensor::from_slice(&[1, terms], &vec![255.0f32; terms]));
    let run = |m: &Model| {
        let run = evaluate(m, std::slice::from_ref(&x), Keep::Outputs).unwrap();
        run.outputs()[0].get_f64(0)
    };
    let (found, expected) = (run(&simple), run(&net.0));
    let names = simple.nodes().map(|(_, n)| n.op.name()).collect();
    (names, ((found - expected) / expected).abs())
}

#[test]
fn sums_and_their_biases_stay_within_i32() {
    let most = f64::from(i32::MAX);
    for (terms, bias, adds) in [
        // With the bias the sum just fits, and just does not.
        (65536, 25_000_000.0, "i32"),
        (65536, 26_000_000.0, "f32"),
        (65536, f64::from(1 << 29), "f32"),
        (40000, f64::from(1 << 29), "i32"),
    ] {
        let (names, error) = largest_sum(terms, bias);
        assert!(names.contains(&"matmul_integer"), "{terms}: {names:?}");
        assert!(error < 1e-5, "{terms}, {bias}: {error}");
        let fits = terms as f64 * 255.0 * 127.0 + bias <= most;
        assert_eq!(fits, adds == "i32", "{terms}, {bias}");
    }
    // These alone do not fit.
    let (names, error) = largest_sum(70000, 0.0);
    assert!(!names.contains(&"matmul_integer"), "{names:?}");
    assert!(error < 1e-5, "{error}");
}
