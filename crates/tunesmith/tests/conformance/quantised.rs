//! A network in the QDQ form: convolutions of any zero point, few and odd channels, a shortcut,
//! pools and a dense layer; products of bytes that both change.

use crate::judge::conforms;
use graph::ops::{
    Binary, Conv, Gemm, Op, Pool, PoolKind, Reduce, ReduceKind, Reshape, Transpose, Unary,
};
use graph::{Model, ValueId};
use tensor::{DType, Fill, Tensor, fill_tensor};

/// Scales are powers of two: f32 holds all sums, and a sum halfway between two numbers is
/// halfway however it is computed.
#[derive(Clone, Copy)]
struct Steps(DType, f64, i32);

struct Net(Model);

impl Net {
    fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.0.add("node", op, operands).unwrap()
    }

    fn filled(&mut self, dtype: DType, shape: &[usize], value: impl Fn(usize) -> f64) -> ValueId {
        let mut t = Tensor::zeros(dtype, shape);
        (0..t.len()).for_each(|i| t.set_f64(i, value(i)));
        self.0.add_constant("constant", t)
    }

    fn dequantise(&mut self, q: ValueId, zero: f64, scale: ValueId) -> ValueId {
        let zero = self.filled(DType::I32, &[], |_| zero);
        let y = self.add(Op::Cast(DType::I32), &[q]);
        let y = self.add(Op::Binary(Binary::Sub), &[y, zero]);
        let y = self.add(Op::Cast(DType::F32), &[y]);
        self.add(Op::Binary(Binary::Mul), &[y, scale])
    }

    fn through(&mut self, x: ValueId, Steps(dtype, zero, power): Steps) -> ValueId {
        let scale = self.filled(DType::F32, &[], |_| 2f64.powi(power));
        let offset = self.filled(DType::F32, &[], |_| zero);
        let low = if dtype == DType::U8 { 0.0 } else { -128.0 };
        let (min, max) = (Some(low), Some(low + 255.0));
        let y = self.add(Op::Binary(Binary::Div), &[x, scale]);
        let y = self.add(Op::Unary(Unary::Round), &[y]);
        let y = self.add(Op::Binary(Binary::Add), &[y, offset]);
        let y = self.add(Op::Unary(Unary::Clip { min, max }), &[y]);
        let q = self.add(Op::Cast(dtype), &[y]);
        self.dequantise(q, zero, scale)
    }

    /// With scales along an axis.
    fn weights(&mut self, shape: &[usize], axis: usize) -> ValueId {
        let q = fill_tensor(DType::I8, shape, Fill::Integers { lo: -128, hi: 127 }, 5);
        let q = self.0.add_constant("weights", q);
        let mut along = vec![1; shape.len()];
        along[axis] = shape[axis];
        let scale = self.filled(DType::F32, &along, |m| 2f64.powi(-10 - (m % 2) as i32));
        self.dequantise(q, 0.0, scale)
    }

    fn conv(&mut self, x: ValueId, weight: [usize; 3], stride: usize, groups: usize) -> ValueId {
        let [maps, depth, taps] = weight;
        let w = self.weights(&[maps, depth, taps, taps], 0);
        let bias = self.filled(DType::F32, &[maps], |m| 0.125 * m as f64 - 1.0);
        let conv = Conv {
            strides: vec![stride; 2],
            pads: vec![(taps / 2, taps / 2); 2],
            groups,
            ..Conv::unit(2)
        };
        self.add(Op::Conv(conv), &[x, w, bias])
    }
}

fn network() -> Model {
    let mut net = Net(Model::new("quantised", 17));
    let x = net.0.add_input("x", DType::F32, &[2, 3, 13, 11]);
    let x = net.through(x, Steps(DType::U8, 117.0, -7));
    let x = net.conv(x, [20, 3, 5], 2, 1);
    let x = net.add(Op::Unary(Unary::Relu), &[x]);
    let x = net.through(x, Steps(DType::U8, 0.0, -4));
    let pool = Pool {
        kind: PoolKind::Max { indices: None },
        kernel: vec![3, 3],
        strides: vec![1, 1],
        dilations: vec![1, 1],
        pads: vec![(1, 1); 2],
        ceil_mode: false,
    };
    let shortcut = net.add(Op::Pool(pool), &[x]);
    let y = net.conv(shortcut, [20, 1, 3], 1, 20);
    let y = net.through(y, Steps(DType::I8, -3.0, -4));
    let y = net.conv(y, [20, 20, 3], 1, 1);
    let y = net.through(y, Steps(DType::I8, 0.0, -3));
    let y = net.add(Op::Binary(Binary::Add), &[y, shortcut]);
    let y = net.through(y, Steps(DType::U8, 100.0, -3));
    let sum = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![2, 3],
        keepdims: true,
    };
    let y = net.add(Op::Reduce(sum), &[y]);
    let y = net.add(Op::Reshape(Reshape { shape: vec![2, 20] }), &[y]);
    let y = net.through(y, Steps(DType::U8, 100.0, 1));
    let w = net.weights(&[7, 20], 0);
    let gemm = Gemm {
        alpha: 1.0,
        beta: 1.0,
        trans_a: false,
        trans_b: true,
    };
    let y = net.add(Op::Gemm(gemm), &[y, w]);
    let y = net.through(y, Steps(DType::I8, 5.0, -1));
    net.0.add_output(y);
    net.0
}

/// Convolutions of images of one line, and of short lines: of one tap and of several.
fn lines() -> Vec<Model> {
    let of = |image: &[usize], weight: &[usize], stride: usize| {
        let mut net = Net(Model::new("quantised", 17));
        let x = net.0.add_input("x", DType::F32, image);
        let x = net.through(x, Steps(DType::U8, 117.0, -7));
        let w = net.weights(weight, 0);
        let (rank, pad) = (image.len() - 2, weight[image.len() - 1] / 2);
        let conv = Conv {
            strides: vec![stride; rank],
            pads: vec![(pad, pad); rank],
            ..Conv::unit(rank)
        };
        let y = net.add(Op::Conv(conv), &[x, w]);
        let y = net.through(y, Steps(DType::I8, 5.0, -3));
        net.0.add_output(y);
        net.0
    };
    vec![
        of(&[2, 20, 37], &[40, 20, 3], 1),
        of(&[1, 64, 41], &[32, 64, 5], 2),
        of(&[1, 64, 7, 7], &[48, 64, 3, 3], 1),
        of(&[1, 128, 7, 6], &[32, 128, 1, 1], 1),
        of(&[1, 32, 14, 14], &[32, 32, 1, 1], 2),
    ]
}

/// Products of several matrices with one matrix of weights.
fn products() -> Model {
    let mut net = Net(Model::new("quantised", 17));
    let x = net.0.add_input("x", DType::F32, &[2, 9, 24]);
    let x = net.through(x, Steps(DType::U8, 117.0, -7));
    let w = net.weights(&[24, 37], 1);
    let y = net.add(Op::MatMul, &[x, w]);
    let bias = net.filled(DType::F32, &[37], |n| 0.25 * n as f64);
    let y = net.add(Op::Binary(Binary::Add), &[y, bias]);
    let y = net.through(y, Steps(DType::I8, 5.0, -3));
    net.0.add_output(y);
    net.0
}

/// Heads of attention over so many rows of 8 terms: products of bytes that both change,
/// and a function of a byte behind them.
fn attention(rows: usize, [q, k, v]: [Steps; 3], trans: bool) -> Model {
    let mut net = Net(Model::new("quantised", 17));
    let x = net.0.add_input("x", DType::F32, &[1, rows, 24]);
    let heads = |net: &mut Net, steps, perm: [usize; 4]| {
        let w = net.weights(&[24, 24], 1);
        let y = net.add(Op::MatMul, &[x, w]);
        let y = net.through(y, steps);
        let shape = vec![1, rows, 3, 8];
        let y = net.add(Op::Reshape(Reshape { shape }), &[y]);
        let perm = perm.to_vec();
        net.add(Op::Transpose(Transpose { perm }), &[y])
    };
    let queries = heads(&mut net, q, [0, 2, 1, 3]);
    let values = heads(&mut net, v, [0, 2, 1, 3]);
    let keys = match trans {
        true => heads(&mut net, k, [0, 2, 3, 1]),
        false => {
            let keys = heads(&mut net, k, [0, 2, 1, 3]);
            let w = net.filled(DType::F32, &[], |_| 0.5);
            let keys = net.add(Op::Binary(Binary::Mul), &[keys, w]);
            let perm = vec![0, 1, 3, 2];
            let keys = net.add(Op::Transpose(Transpose { perm }), &[keys]);
            net.through(keys, k)
        }
    };
    let scores = net.add(Op::MatMul, &[queries, keys]);
    let scores = net.through(scores, Steps(DType::U8, 90.0, -1));
    let weights = net.add(Op::Unary(Unary::Sigmoid), &[scores]);
    let weights = net.through(weights, Steps(q.0, 0.0, -6));
    let y = net.add(Op::MatMul, &[weights, values]);
    let y = net.through(y, Steps(DType::I8, 5.0, -2));
    net.0.add_output(y);
    net.0
}

fn attentions() -> Vec<Model> {
    let (even, odd) = (Steps(DType::U8, 128.0, -3), Steps(DType::U8, 101.0, -3));
    let signed = Steps(DType::I8, -7.0, -3);
    vec![
        attention(12, [odd, odd, odd], true),
        // No whole dot products; a corrected side less.
        attention(13, [odd, even, even], true),
        attention(70, [signed, signed, signed], false),
    ]
}

#[test]
fn quantised_networks_give_what_their_graphs_of_floats_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quantised.onnx");
    for model in [vec![network(), products()], lines(), attentions()].concat() {
        std::fs::write(&path, onnx::export(&model).unwrap()).unwrap();
        conforms(path.to_str().unwrap());
    }
}
