//! Bytes that are dequantised and quantised again in compiled code: each result is that of the
//! definition in f32, with strict and with relaxed accuracy.

use crate::compiled;
use crate::judge::settings;
use crate::products;
use crate::products::steps::{Steps, dequantised, quantised, range};
use graph::ops::{Binary, Concat, Op, Pool, PoolKind, Unary};
use graph::{Model, Requantised, ValueId};
use plan::{Grouped, LayoutPolicy, plan};
use search::Accuracy;
use std::sync::Arc;
use tensor::{DType, Tensor};
use tune::compile::defaults;

use DType::{I8, U8};

const PAIRS: [[Steps; 2]; 7] = [
    [Steps(U8, 0.05, 100), Steps(U8, 0.02, 100)],
    [Steps(U8, 0.05, 100), Steps(I8, 0.02, -28)],
    [Steps(I8, 0.05, -3), Steps(I8, 0.02, 7)],
    [Steps(I8, 0.1, -128), Steps(U8, 0.2, 255)],
    [Steps(U8, 0.25, 128), Steps(U8, 0.5, 128)],
    [Steps(U8, 0.021, 117), Steps(U8, 0.034, 12)],
    [Steps(U8, 3e36, 0), Steps(U8, 2e36, 1)],
];

struct Net(Model);

impl Net {
    fn add(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.0.add("node", op, operands).unwrap()
    }

    fn number(&mut self, dtype: DType, value: f64) -> ValueId {
        let mut t = Tensor::zeros(dtype, &[]);
        t.set_f64(0, value);
        self.0.add_constant("number", t)
    }

    fn dequantise(&mut self, q: ValueId, s: Steps) -> ValueId {
        let zero = self.number(DType::I32, f64::from(s.2));
        let scale = self.number(DType::F32, f64::from(s.1));
        let y = self.add(Op::Cast(DType::I32), &[q]);
        let y = self.add(Op::Binary(Binary::Sub), &[y, zero]);
        let y = self.add(Op::Cast(DType::F32), &[y]);
        self.add(Op::Binary(Binary::Mul), &[y, scale])
    }

    fn quantise(&mut self, x: ValueId, s: Steps) -> ValueId {
        let scale = self.number(DType::F32, f64::from(s.1));
        let zero = self.number(DType::F32, f64::from(s.2));
        let (min, max) = range(s.0);
        let (min, max) = (Some(f64::from(min)), Some(f64::from(max)));
        let y = self.add(Op::Binary(Binary::Div), &[x, scale]);
        let y = self.add(Op::Unary(Unary::Round), &[y]);
        let y = self.add(Op::Binary(Binary::Add), &[y, zero]);
        let y = self.add(Op::Unary(Unary::Clip { min, max }), &[y]);
        let y = self.add(Op::Cast(s.0), &[y]);
        self.0.add_output(y);
        y
    }
}

/// All pairs of bytes of two types.
fn pairs([a, b]: [Steps; 2]) -> [Vec<i32>; 2] {
    let ((p0, p1), (q0, q1)) = (range(a.0), range(b.0));
    let all = (p0..=p1).flat_map(|p| (q0..=q1).map(move |q| (p, q)));
    let (left, right) = all.unzip();
    [left, right]
}

fn of_bytes(d: DType, values: &[i32]) -> Tensor {
    let mut t = Tensor::zeros(d, &[1, 1, 256, 256]);
    let all = values.iter().enumerate();
    all.for_each(|(i, v)| t.set_i64(i, i64::from(*v)));
    t
}

/// The model, what it reads, and what its outputs are.
fn network([a, b]: [Steps; 2]) -> (Model, Vec<Arc<Tensor>>, Vec<Vec<i32>>) {
    let mut net = Net(Model::new("requantised", 17));
    let shape = [1, 1, 256, 256];
    let x = [a, b].map(|s| net.0.add_input("x", s.0, &shape));
    let [left, right] = pairs([a, b]);
    let floats = [net.dequantise(x[0], a), net.dequantise(x[1], b)];
    let apart: Vec<f32> = left.iter().map(|q| dequantised(*q, a)).collect();
    let other: Vec<f32> = right.iter().map(|q| dequantised(*q, b)).collect();
    let mut expected = Vec::new();
    let mut expect = |x: &[f32], s| expected.push(x.iter().map(|x| quantised(*x, s)).collect());

    net.quantise(floats[0], b);
    expect(&apart, b);
    let relu = net.add(Op::Unary(Unary::Relu), &[floats[0]]);
    net.quantise(relu, b);
    expect(&apart.iter().map(|x| x.max(0.0)).collect::<Vec<_>>(), b);
    let pool = Op::Pool(Pool {
        kind: PoolKind::Max { indices: None },
        kernel: vec![2, 1],
        strides: vec![1, 1],
        dilations: vec![1, 1],
        pads: vec![(0, 0); 2],
        ceil_mode: false,
    });
    let pool = net.add(pool, &[floats[0]]);
    net.quantise(pool, b);
    // Rows of one byte each; they rise.
    expect(&apart[256..], b);
    let both = net.add(Op::Concat(Concat { axis: 0 }), &floats);
    net.quantise(both, a);
    expect(&[&apart[..], &other].concat(), a);
    let wide = Steps(b.0, b.1 * 1.7, b.2);
    for (op, of) in [
        (Binary::Add, (|a, b| a + b) as fn(f32, f32) -> f32),
        (Binary::Sub, |a, b| a - b),
        (Binary::Mul, |a, b| a * b),
    ] {
        let y = net.add(Op::Binary(op), &floats);
        net.quantise(y, wide);
        let y = apart.iter().zip(&other).map(|(a, b)| of(*a, *b));
        expect(&y.collect::<Vec<_>>(), wide);
    }
    let inputs = [of_bytes(a.0, &left), of_bytes(b.0, &right)];
    (net.0, inputs.into_iter().map(Arc::new).collect(), expected)
}

#[test]
fn bytes_are_requantised_as_defined() {
    for pair in PAIRS {
        let (model, inputs, expected) = network(pair);
        for (setting, accuracy) in settings()
            .iter()
            .flat_map(|s| [(s, Accuracy::Strict), (s, Accuracy::Relaxed)])
        {
            let target = setting.compiler.target();
            let plan = plan(&model, target, &LayoutPolicy::Blocked.into()).unwrap();
            let all = defaults(&plan.tasks, target, accuracy).unwrap();
            let kernels = compiled::kernels(&plan, &all.candidates, &setting.compiler).unwrap();
            let code = compiled::load(&plan, &kernels, &setting.compiler, &setting.pool);
            let outputs = compiled::run(&mut code.unwrap(), &inputs).unwrap();
            for (i, (y, want)) in outputs.iter().zip(&expected).enumerate() {
                let found = (0..y.len()).map(|i| y.get_i64(i) as i32);
                let wrong = found.zip(want).filter(|(y, want)| y != *want).count();
                let isa = target.name();
                assert_eq!(wrong, 0, "output {i} of {pair:?} for {isa}, {accuracy}");
            }
        }
    }
}

/// Each target in its turn takes some of the cases, and all targets together all of them.
#[test]
fn strict_sums_of_products_are_requantised_as_promised() {
    let settings = settings();
    for (n, case) in products::cases().into_iter().enumerate() {
        let setting = &settings[n % settings.len()];
        let target = setting.compiler.target();
        let grouped = Grouped::new(&case.model, Requantised::Defined).unwrap();
        let plan = grouped.plan(target, &LayoutPolicy::Blocked.into());
        let all = defaults(&plan.tasks, target, Accuracy::Strict).unwrap();
        let kernels = compiled::kernels(&plan, &all.candidates, &setting.compiler).unwrap();
        let code = compiled::load(&plan, &kernels, &setting.compiler, &setting.pool);
        let y = compiled::run(&mut code.unwrap(), std::slice::from_ref(&case.input)).unwrap();
        let found = (0..y[0].len()).map(|i| y[0].get_i64(i) as i32);
        let wrong = found.zip(&case.expected).filter(|(y, want)| y != *want);
        assert_eq!(wrong.count(), 0, "{} for {}", case.what, target.name());
    }
}
