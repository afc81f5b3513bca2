//! Quantised products, and the bytes that `--accuracy strict` promises of them. For tests here
//! and of crate `tunesmith`.

#[path = "../../../onnx/tests/build_onnx/steps.rs"]
pub mod steps;

use graph::ops::{Binary, Conv, Gemm, Op, Unary};
use graph::{Model, ValueId};
use std::sync::Arc;
use steps::{Steps, dequantised, quantised, range};
use tensor::DType::{F32, I8, I32, U8};
use tensor::{DType, Fill, Tensor, fill_tensor};

/// Maps of all weights, and terms of matrix products.
const MAPS: usize = 16;
const TERMS: usize = 24;
/// Maps, and rows and columns, of the images and kernels of convolutions.
const IMAGE: [usize; 2] = [6, 9];
const KERNEL: [usize; 2] = [6, 3];

pub struct Case {
    pub what: String,
    pub model: Model,
    pub input: Arc<Tensor>,
    pub expected: Vec<i32>,
}

/// Scales of the image, of its weights, from one map to the next, and of the result.
#[derive(Clone, Copy, Debug)]
struct Scales {
    x: Steps,
    w: [f32; 3],
    y: Steps,
}

/// Powers of two first: with them no product and no sum is rounded, in whichever order.
const SCALES: [Scales; 8] = [
    scales(
        Steps(U8, 0.0625, 128),
        [0.125, 0.25, 0.0625],
        Steps(U8, 2.0, 128),
    ),
    scales(
        Steps(U8, 0.0625, 100),
        [0.125, 0.25, 0.5],
        Steps(U8, 1.5, 100),
    ),
    scales(
        Steps(I8, 0.03125, -3),
        [0.25, 0.25, 0.25],
        Steps(I8, 0.7, 7),
    ),
    scales(Steps(I8, 0.5, 0), [0.03125, 0.5, 0.25], Steps(U8, 6.0, 0)),
    scales(
        Steps(U8, 0.05, 100),
        [0.02, 0.03, 0.05],
        Steps(U8, 0.25, 100),
    ),
    scales(
        Steps(U8, 0.05, 0),
        [0.002, 0.002, 0.002],
        Steps(I8, 0.02, -28),
    ),
    scales(Steps(I8, 0.02, 5), [0.05, 0.01, 0.1], Steps(U8, 0.2, 77)),
    scales(
        Steps(U8, 0.021, 117),
        [0.5, 0.034, 0.07],
        Steps(I8, 1.1, 12),
    ),
];
const EXACT: usize = 4;

const fn scales(x: Steps, w: [f32; 3], y: Steps) -> Scales {
    Scales { x, w, y }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bias {
    None,
    /// So many steps of a sum as the map's number says.
    Whole,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Product {
    Conv,
    MatMul,
    Gemm,
}

/// Every product with every bias that it has and all scales, some before a `Relu`.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for product in [Product::Conv, Product::MatMul, Product::Gemm] {
        for bias in [Bias::None, Bias::Whole, Bias::Other] {
            if product == Product::MatMul && bias != Bias::None {
                continue;
            }
            for i in 0..SCALES.len() {
                all.push(case(product, bias, i));
            }
        }
    }
    all
}

fn case(product: Product, bias: Bias, i: usize) -> Case {
    let (s, relu) = (SCALES[i], i % 2 == 1);
    let drawn = |d: DType, shape: &[usize], seed| {
        let (lo, hi) = range(d);
        let (lo, hi) = (i64::from(lo), i64::from(hi));
        fill_tensor(d, shape, Fill::Integers { lo, hi }, seed)
    };
    let ([c, n], [_, k]) = (IMAGE, KERNEL);
    let (x, w) = match product {
        Product::Conv => (vec![1, c, n, n], vec![MAPS, c, k, k]),
        _ => (vec![40, TERMS], vec![TERMS, MAPS]),
    };
    let (x, w) = (
        drawn(s.x.0, &x, 2 * i as u64),
        drawn(I8, &w, 2 * i as u64 + 1),
    );
    let steps: Vec<f32> = (0..MAPS).map(|m| s.w[m % 3]).collect();
    let biases: Vec<f32> = (0..MAPS)
        .map(|m| match bias {
            Bias::None => 0.0,
            Bias::Whole => (m as f32 * 37.0 - 300.0) * (s.x.1 * steps[m]),
            Bias::Other => m as f32 * 0.123 - 1.0,
        })
        .collect();
    let mut expected = Vec::new();
    for (m, terms) in terms(product, &x, &w) {
        let sum = match i < EXACT {
            true => by_definition(&terms, s.x, Steps(I8, steps[m], 0)) + biases[m],
            false => by_exact_sum(&terms, s.x, steps[m], biases[m], bias),
        };
        let sum = if relu { sum.max(0.0) } else { sum };
        expected.push(quantised(sum, s.y));
    }
    Case {
        what: format!("{product:?}, bias {bias:?}, {s:?}"),
        model: model(
            product,
            (bias != Bias::None).then_some(&biases),
            (s, relu),
            (&x, &w, &steps),
        ),
        input: Arc::new(x),
        expected,
    }
}

/// Products and sums of dequantised bytes in f32.
fn by_definition(terms: &[(i32, i32)], x: Steps, w: Steps) -> f32 {
    let products = terms
        .iter()
        .map(|(a, b)| dequantised(*a, x) * dequantised(*b, w));
    products.fold(0.0, |sum, p| sum + p)
}

/// What strict models promise where the definition leaves the rounding of sums open: the exact
/// sum in steps, with a bias of whole steps, is rounded, and its product with a step.
fn by_exact_sum(terms: &[(i32, i32)], x: Steps, w: f32, bias: f32, how: Bias) -> f32 {
    let sum: i32 = terms.iter().map(|(a, b)| (a - x.2) * b).sum();
    let step = x.1 * w;
    match how {
        Bias::Whole => (sum + (bias / step).round() as i32) as f32 * step,
        _ => sum as f32 * step + bias,
    }
}

/// The map and the factors of each element of a product, in its order.
fn terms(product: Product, x: &Tensor, w: &Tensor) -> Vec<(usize, Vec<(i32, i32)>)> {
    let byte = |t: &Tensor, i: usize| t.get_i64(i) as i32;
    let mut all = Vec::new();
    if product != Product::Conv {
        for row in 0..x.shape()[0] {
            for m in 0..MAPS {
                let term = |t| (byte(x, row * TERMS + t), byte(w, t * MAPS + m));
                all.push((m, (0..TERMS).map(term).collect()));
            }
        }
        return all;
    }
    let ([c, n], [_, k]) = (IMAGE, KERNEL);
    let places = n + 1 - k;
    for m in 0..MAPS {
        for at in 0..places * places {
            let (y0, x0) = (at / places, at % places);
            let term = |t: usize| {
                let (channel, dy, dx) = (t / (k * k), t / k % k, t % k);
                let pixel = (channel * n + y0 + dy) * n + x0 + dx;
                (byte(x, pixel), byte(w, m * c * k * k + t))
            };
            all.push((m, (0..c * k * k).map(term).collect()));
        }
    }
    all
}

struct Net(Model);

impl Net {
    fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.0.add("node", op, operands).unwrap()
    }

    fn constant(&mut self, t: Tensor) -> ValueId {
        self.0.add_constant("constant", t)
    }

    fn dequantise(&mut self, q: ValueId, zero: i32, scale: Tensor) -> ValueId {
        let mut y = self.add(Op::Cast(I32), &[q]);
        if zero != 0 {
            let zero = self.constant(Tensor::from_slice(&[], &[zero]));
            y = self.add(Op::Binary(Binary::Sub), &[y, zero]);
        }
        let scale = self.constant(scale);
        let y = self.add(Op::Cast(F32), &[y]);
        self.add(Op::Binary(Binary::Mul), &[y, scale])
    }
}

fn model(
    product: Product,
    bias: Option<&Vec<f32>>,
    (s, relu): (Scales, bool),
    (x, w, steps): (&Tensor, &Tensor, &[f32]),
) -> Model {
    let mut net = Net(Model::new("product", 17));
    let input = net.0.add_input("x", x.dtype(), x.shape());
    let weights = net.constant(w.clone());
    let a = net.dequantise(input, s.x.2, Tensor::from_slice(&[], &[s.x.1]));
    let (op, shape) = match product {
        Product::Conv => (Op::Conv(Conv::unit(2)), vec![MAPS, 1, 1, 1]),
        Product::MatMul => (Op::MatMul, vec![1, MAPS]),
        Product::Gemm => {
            let gemm = Gemm {
                alpha: 1.0,
                beta: 1.0,
                trans_a: false,
                trans_b: false,
            };
            (Op::Gemm(gemm), vec![1, MAPS])
        }
    };
    let b = net.dequantise(weights, 0, Tensor::from_slice(&shape, steps));
    let bias = bias.map(|bias| net.constant(Tensor::from_slice(&[MAPS], bias)));
    let operands: Vec<ValueId> = [a, b].into_iter().chain(bias).collect();
    let mut y = net.add(op, &operands);
    if relu {
        y = net.add(Op::Unary(Unary::Relu), &[y]);
    }
    let (least, most) = range(s.y.0);
    let (min, max) = (Some(f64::from(least)), Some(f64::from(most)));
    let scale = net.constant(Tensor::from_slice(&[], &[s.y.1]));
    let zero = net.constant(Tensor::from_slice(&[], &[s.y.2 as f32]));
    y = net.add(Op::Binary(Binary::Div), &[y, scale]);
    y = net.add(Op::Unary(Unary::Round), &[y]);
    y = net.add(Op::Binary(Binary::Add), &[y, zero]);
    y = net.add(Op::Unary(Unary::Clip { min, max }), &[y]);
    y = net.add(Op::Cast(s.y.0), &[y]);
    net.0.add_output(y);
    net.0
}
