//! Products with weights of few bits in compiled code, against sums in f64 over the numbers that
//! the weights stand for.

use crate::compiled;
use crate::judge::settings;
use graph::ops::{Binary, Gemm, Op, Transpose};
use graph::{Model, ValueId};
use plan::{LayoutPolicy, Plan, TensorKind, plan};
use search::Accuracy;
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};
use tune::compile::defaults;

/// How weights are written.
#[derive(Clone, Copy, Debug)]
struct Weights {
    terms: usize,
    columns: usize,
    /// Terms with one scale and one zero point.
    block: usize,
    /// The least and the greatest number.
    range: [i64; 2],
    /// Whether each block has a zero point.
    asymmetric: bool,
    /// Whether scales are numbers of f16.
    halves: bool,
    /// How the product reads them.
    read: Read,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Read {
    /// Terms by columns.
    Matrix,
    /// Columns by terms, through a transpose.
    Transposed,
    /// Columns by terms, with an addend.
    Gemm,
}

impl Weights {
    /// A number of a term and a column.
    fn number(&self, k: usize, n: usize) -> i64 {
        let [least, most] = self.range;
        least + (k * 31 + n * 17 + k * n % 7) as i64 % (most - least + 1)
    }

    fn zero(&self, k: usize, n: usize) -> i64 {
        match self.asymmetric {
            true => self.number(k / self.block, n + 3),
            false => 0,
        }
    }

    fn scale(&self, k: usize, n: usize) -> f32 {
        let step = if self.halves { 1.0 / 256.0 } else { 0.003 };
        (3 + (k / self.block) * 5 + n % 11) as f32 * step
    }

    /// A constant with an element for each weight.
    fn constant(&self, m: &mut Model, dtype: DType, of: impl Fn(usize, usize) -> f64) -> ValueId {
        let turned = self.read != Read::Matrix;
        let shape = match turned {
            true => [self.columns, self.terms],
            false => [self.terms, self.columns],
        };
        let mut t = Tensor::zeros(dtype, &shape);
        for i in 0..t.len() {
            let (row, column) = (i / shape[1], i % shape[1]);
            let (k, n) = if turned { (column, row) } else { (row, column) };
            t.set_f64(i, of(k, n));
        }
        m.add_constant("constant", t)
    }

    fn model(&self, rows: usize) -> Model {
        let mut m = Model::new("few bits", 21);
        let x = m.add_input("x", DType::F32, &[rows, self.terms]);
        let bytes = if self.range[0] < 0 {
            DType::I8
        } else {
            DType::U8
        };
        let q = self.constant(&mut m, bytes, |k, n| self.number(k, n) as f64);
        let add = |m: &mut Model, op, operands: &[ValueId]| m.add("node", op, operands).unwrap();
        let mut w = add(&mut m, Op::Cast(DType::I32), &[q]);
        if self.asymmetric {
            let zero = self.constant(&mut m, DType::I32, |k, n| self.zero(k, n) as f64);
            w = add(&mut m, Op::Binary(Binary::Sub), &[w, zero]);
        }
        w = add(&mut m, Op::Cast(DType::F32), &[w]);
        let scale = self.constant(&mut m, DType::F32, |k, n| f64::from(self.scale(k, n)));
        w = add(&mut m, Op::Binary(Binary::Mul), &[w, scale]);
        let y = match self.read {
            Read::Matrix => add(&mut m, Op::MatMul, &[x, w]),
            Read::Transposed => {
                let w = add(&mut m, Op::Transpose(Transpose { perm: vec![1, 0] }), &[w]);
                add(&mut m, Op::MatMul, &[x, w])
            }
            Read::Gemm => {
                let bias: Vec<f32> = (0..self.columns).map(bias).collect();
                let bias = m.add_constant("bias", Tensor::from_slice(&[self.columns], &bias));
                let gemm = Gemm {
                    alpha: 1.0,
                    beta: 1.0,
                    trans_a: false,
                    trans_b: true,
                };
                add(&mut m, Op::Gemm(gemm), &[x, w, bias])
            }
        };
        m.add_output(y);
        m
    }

    /// The sum of a row and a column, and the sum of its terms' absolute values.
    fn expected(&self, x: &Tensor, row: usize, n: usize) -> [f64; 2] {
        let mut sums = [0.0; 2];
        for k in 0..self.terms {
            let whole = (self.number(k, n) - self.zero(k, n)) as f64;
            let term = x.get_f64(row * self.terms + k) * whole * f64::from(self.scale(k, n));
            sums[0] += term;
            sums[1] += term.abs();
        }
        if self.read == Read::Gemm {
            sums[0] += f64::from(bias(n));
        }
        sums
    }
}

fn bias(n: usize) -> f32 {
    n as f32 * 0.25 - 3.0
}

/// Bytes of all constants.
fn constants(plan: &Plan) -> u64 {
    let constant = plan.tensors.iter();
    let constant = constant.filter(|t| matches!(t.kind, TensorKind::Constant(_)));
    constant.map(plan::PlanTensor::bytes).sum()
}

fn cases() -> Vec<Weights> {
    let mut cases = Vec::new();
    let (int4, int8) = ([-8, 7], [-128, 127]);
    for (terms, columns, block, range, asymmetric) in [
        (256, 48, 16, int4, false),
        // Columns that no vector divides.
        (256, 41, 16, [0, 15], true),
        (256, 48, 32, int4, true),
        (256, 16, 128, [0, 15], true),
        (256, 200, 128, int4, false),
        // One scale a column.
        (96, 48, 96, int4, false),
        // The last block has half of the terms of the others, so that scales are of 16.
        (112, 48, 32, [0, 15], true),
        (64, 48, 32, [0, 3], true),
        (96, 48, 96, int8, false),
        (256, 41, 32, [0, 255], true),
        (64, 96, 16, int8, true),
    ] {
        for read in [Read::Matrix, Read::Transposed, Read::Gemm] {
            cases.push(Weights {
                terms,
                columns,
                block,
                range,
                asymmetric,
                halves: read == Read::Transposed,
                read,
            });
        }
    }
    cases
}

/// Each setting in its turn takes some of the cases.
#[test]
fn products_with_weights_of_few_bits_are_those_of_the_definition() {
    let settings = settings();
    for (i, case) in cases().into_iter().enumerate() {
        for (j, rows) in [1, 7, 31, 64].into_iter().enumerate() {
            let setting = &settings[(i + j) % settings.len()];
            let target = setting.compiler.target();
            let what = format!("{case:?}, {rows} rows for {}", target.name());
            let plan = plan(&case.model(rows), target, &LayoutPolicy::Blocked.into()).unwrap();
            let product = plan.tasks.iter().find(|t| t.op == "dense_packed");
            // Bytes are worth it for few rows only.
            let widened = case.range[1] - case.range[0] > 16 && rows > 32;
            assert_eq!(product.is_none(), widened, "{what}");
            let floats = (case.terms * case.columns * DType::F32.size()) as u64;
            let whole = case.block >= 32 && case.terms % case.block == 0;
            let most = match (case.range[1] - case.range[0], whole) {
                (0..16, true) => 6,
                (0..16, false) => 4,
                (_, true) => 3,
                (_, false) => 2,
            };
            let bias = (case.columns * DType::F32.size()) as u64;
            assert!(
                widened || (constants(&plan) - bias) * most < floats,
                "{what}"
            );
            let all = defaults(&plan.tasks, target, Accuracy::Strict).unwrap();
            let kernels = compiled::kernels(&plan, &all.candidates, &setting.compiler).unwrap();
            let code = compiled::load(&plan, &kernels, &setting.compiler, &setting.pool);
            let uniform = Fill::Uniform { lo: -1.0, hi: 1.0 };
            let x = Arc::new(fill_tensor(
                DType::F32,
                &[rows, case.terms],
                uniform,
                i as u64,
            ));
            let y = compiled::run(&mut code.unwrap(), std::slice::from_ref(&x)).unwrap();
            for i in 0..y[0].len() {
                let [want, size] = case.expected(&x, i / case.columns, i % case.columns);
                let error = (y[0].get_f64(i) - want).abs();
                assert!(error <= 2e-6 * size + 1e-6, "{error:e} of {want}: {what}");
            }
        }
    }
}

/// Scales of few terms, and few columns, leave the weights in f32.
#[test]
fn what_packing_does_not_suit_stays_in_floats() {
    let target = settings()[0].compiler.target().clone();
    let case = Weights {
        terms: 60,
        columns: 48,
        block: 20,
        range: [-8, 7],
        asymmetric: true,
        halves: false,
        read: Read::Matrix,
    };
    let kinds = |case: Weights| -> Vec<String> {
        let plan = plan(&case.model(2), &target, &LayoutPolicy::Blocked.into()).unwrap();
        plan.tasks.into_iter().map(|t| t.op).collect()
    };
    assert_eq!(kinds(case), ["dense_packed"]);
    assert_eq!(kinds(Weights { block: 12, ..case }), ["dense"]);
    assert_eq!(
        kinds(Weights {
            columns: 12,
            ..case
        }),
        ["dense"]
    );
}
