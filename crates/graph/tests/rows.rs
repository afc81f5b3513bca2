//! Which operators keep rows apart: every proof is held against the references, which run
//! the model at both sizes.

use graph::ops::{
    BatchNorm, Binary, Combine, Concat, Contract, Conv, Expand, Gather, GatherElements, Gemm,
    LayerNorm, Pad, PadMode, Pool, PoolKind, Reduce, ReduceKind, Reshape, ScatterNd, Slice,
    Softmax, Split, TopK, Transpose, Unary,
};
use graph::{Keep, Model, Op, Rows, ValueId, evaluate, rows_apart};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

const SMALL: usize = 2;
const LARGE: usize = 5;

/// Builds a model for so many rows from its inputs of these shapes, where 0 stands for the
/// rows.
struct Case {
    shapes: &'static [&'static [usize]],
    build: fn(&mut Model, &[ValueId], usize) -> ValueId,
}

impl Case {
    fn model(&self, rows: usize) -> Model {
        let mut m = Model::new("m", 17);
        let inputs: Vec<ValueId> = self
            .shapes
            .iter()
            .enumerate()
            .map(|(i, shape)| m.add_input(&format!("x{i}"), DType::F32, &sized(shape, rows)))
            .collect();
        let y = (self.build)(&mut m, &inputs, rows);
        m.add_output(y);
        m
    }

    fn places(&self) -> Vec<(usize, usize)> {
        let of = |(i, shape): (usize, &&[usize])| {
            let axis = shape.iter().position(|d| *d == 0)?;
            Some((i, axis))
        };
        self.shapes.iter().enumerate().filter_map(of).collect()
    }

    fn proof(&self) -> Result<Option<Rows>, String> {
        let (small, large) = (self.model(SMALL), self.model(LARGE));
        let mut rows = rows_apart(&small, &large, &self.places())?;
        Ok(rows.remove(0))
    }

    /// The first rows of what the large model gives are what the small one gives.
    fn check(&self, rows: Rows) {
        let large_inputs: Vec<Arc<Tensor>> = (0..self.shapes.len())
            .map(|i| {
                let fill = Fill::Uniform { lo: -1.0, hi: 1.0 };
                let shape = sized(self.shapes[i], LARGE);
                Arc::new(fill_tensor(DType::F32, &shape, fill, i as u64))
            })
            .collect();
        let small_inputs: Vec<Arc<Tensor>> = (0..self.shapes.len())
            .map(|i| {
                let axis = self.shapes[i].iter().position(|d| *d == 0);
                let each = axis.map(|axis| Rows { axis, each: 1 });
                Arc::new(first(&large_inputs[i], each))
            })
            .collect();
        let run = |rows, inputs: &[Arc<Tensor>]| {
            let all = evaluate(&self.model(rows), inputs, Keep::Outputs).unwrap();
            all.outputs().remove(0)
        };
        let (small, large) = (run(SMALL, &small_inputs), run(LARGE, &large_inputs));
        assert_eq!(*small, first(&large, Some(rows)));
    }
}

fn sized(shape: &[usize], rows: usize) -> Vec<usize> {
    shape
        .iter()
        .map(|d| if *d == 0 { rows } else { *d })
        .collect()
}

/// The part of a tensor of the large model that the small one's rows are.
fn first(t: &Tensor, rows: Option<Rows>) -> Tensor {
    let Some(Rows { axis, each }) = rows else {
        return t.clone();
    };
    let mut shape = t.shape().to_vec();
    shape[axis] = SMALL * each;
    let mut out = Tensor::zeros(t.dtype(), &shape);
    let inner: usize = shape[axis + 1..].iter().product();
    let (own, all) = (SMALL * each * inner, LARGE * each * inner);
    for i in 0..out.len() {
        out.set_f64(i, t.get_f64(i / own * all + i % own));
    }
    out
}

fn constant(m: &mut Model, shape: &[usize]) -> ValueId {
    let fill = Fill::Uniform { lo: -1.0, hi: 1.0 };
    m.add_constant("c", fill_tensor(DType::F32, shape, fill, 9))
}

fn one(m: &mut Model, op: Op, inputs: &[ValueId]) -> ValueId {
    let node = m.add_node(
        "n",
        op,
        &inputs.iter().map(|v| Some(*v)).collect::<Vec<_>>(),
    );
    node.unwrap()[0]
}

fn kept(
    shapes: &'static [&'static [usize]],
    axis: usize,
    each: usize,
    build: fn(&mut Model, &[ValueId], usize) -> ValueId,
) {
    let case = Case { shapes, build };
    let rows = Rows { axis, each };
    assert_eq!(case.proof(), Ok(Some(rows)));
    case.check(rows);
}

fn refused(
    shapes: &'static [&'static [usize]],
    build: fn(&mut Model, &[ValueId], usize) -> ValueId,
) {
    let proof = Case { shapes, build }.proof();
    assert!(proof.is_err(), "{proof:?}");
}

#[test]
fn element_wise_operators() {
    kept(&[&[0, 3]], 0, 1, |m, x, _| {
        one(m, Op::Unary(Unary::Relu), x)
    });
    kept(&[&[0, 3], &[3]], 0, 1, |m, x, _| {
        one(m, Op::Binary(Binary::Add), x)
    });
    kept(&[&[0, 3], &[4, 1, 3]], 1, 1, |m, x, _| {
        one(m, Op::Binary(Binary::Mul), x)
    });
    kept(&[&[0, 1, 3], &[0, 2, 1]], 0, 1, |m, x, _| {
        one(m, Op::Binary(Binary::Sub), x)
    });
    // Rows meet other rows.
    refused(&[&[0, 1], &[0]], |m, x, _| {
        one(m, Op::Binary(Binary::Add), x)
    });
}

#[test]
fn constants_with_rows() {
    // A position that is the row's own.
    kept(&[&[0, 2]], 0, 1, |m, x, rows| {
        let all: Vec<f32> = (0..2 * rows).map(|i| i as f32).collect();
        let c = m.add_constant("c", Tensor::from_slice(&[rows, 2], &all));
        one(m, Op::Binary(Binary::Add), &[x[0], c])
    });
    // One that depends on how many there are.
    for build in [
        (|m: &mut Model, x: &[ValueId], rows: usize| {
            let c = m.add_constant("c", Tensor::from_slice(&[1], &[rows as f32]));
            one(m, Op::Binary(Binary::Div), &[x[0], c])
        }) as fn(&mut Model, &[ValueId], usize) -> ValueId,
        |m, x, rows| {
            let all: Vec<f32> = (0..rows).rev().map(|i| i as f32).collect();
            let c = m.add_constant("c", Tensor::from_slice(&[rows, 1], &all));
            one(m, Op::Binary(Binary::Add), &[x[0], c])
        },
    ] {
        refused(&[&[0, 2]], build);
    }
    // Other nodes, and another attribute.
    refused(&[&[0, 2]], |m, x, rows| match rows {
        SMALL => one(m, Op::Unary(Unary::Exp), x),
        _ => one(m, Op::Unary(Unary::Relu), x),
    });
}

#[test]
fn products() {
    kept(&[&[0, 3]], 0, 1, |m, x, _| {
        let w = constant(m, &[3, 4]);
        one(m, Op::MatMul, &[x[0], w])
    });
    kept(&[&[3, 0]], 1, 1, |m, x, _| {
        let w = constant(m, &[4, 3]);
        one(m, Op::MatMul, &[w, x[0]])
    });
    kept(&[&[0, 2, 3, 4], &[0, 2, 4, 3]], 0, 1, |m, x, _| {
        one(m, Op::MatMul, x)
    });
    kept(&[&[0, 3, 4], &[4, 2]], 0, 1, |m, x, _| {
        one(m, Op::MatMul, x)
    });
    refused(&[&[2, 0], &[0, 3]], |m, x, _| one(m, Op::MatMul, x));
    refused(&[&[0, 3], &[3, 0]], |m, x, _| one(m, Op::MatMul, x));
    kept(&[&[3, 0], &[4, 3], &[4]], 0, 1, |m, x, _| {
        let op = Gemm {
            alpha: 1.0,
            beta: 1.0,
            trans_a: true,
            trans_b: true,
        };
        one(m, Op::Gemm(op), x)
    });
    refused(&[&[0, 3], &[3, 4]], |m, x, _| {
        let op = Gemm {
            alpha: 1.0,
            beta: 1.0,
            trans_a: true,
            trans_b: true,
        };
        let w = one(m, Op::Transpose(Transpose { perm: vec![1, 0] }), &[x[0]]);
        let s = one(m, Op::MatMul, &[w, x[0]]);
        let k = constant(m, &[3, 3]);
        one(m, Op::Gemm(op), &[s, k])
    });
    kept(&[&[0, 2, 3], &[3, 4]], 1, 1, |m, x, _| {
        one(m, Op::Contract(Contract::parse("abc,cd->bad").unwrap()), x)
    });
    refused(&[&[0, 2], &[0, 4]], |m, x, _| {
        one(m, Op::Contract(Contract::parse("ab,ad->bd").unwrap()), x)
    });
}

#[test]
fn images() {
    kept(&[&[0, 3, 5, 5]], 0, 1, |m, x, _| {
        let w = constant(m, &[4, 3, 3, 3]);
        one(m, Op::Conv(Conv::unit(2)), &[x[0], w])
    });
    refused(&[&[1, 3, 0, 5]], |m, x, _| {
        let w = constant(m, &[4, 3, 1, 1]);
        one(m, Op::Conv(Conv::unit(2)), &[x[0], w])
    });
    kept(&[&[0, 3, 4]], 0, 1, |m, x, _| {
        let kind = PoolKind::Max { indices: None };
        one(
            m,
            Op::Pool(Pool {
                kind,
                kernel: vec![2],
                strides: vec![1],
                dilations: vec![1],
                pads: vec![(0, 0)],
                ceil_mode: false,
            }),
            x,
        )
    });
    kept(&[&[0, 3, 4]], 0, 1, |m, x, _| {
        let p: Vec<ValueId> = (0..4)
            .map(|i| {
                m.add_constant(
                    &format!("p{i}"),
                    Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]),
                )
            })
            .collect();
        one(
            m,
            Op::BatchNorm(BatchNorm { epsilon: 1e-5 }),
            &[x[0], p[0], p[1], p[2], p[3]],
        )
    });
}

#[test]
fn reductions_and_norms() {
    kept(&[&[3, 0, 2]], 0, 1, |m, x, _| {
        one(
            m,
            Op::Reduce(Reduce {
                kind: ReduceKind::Mean,
                axes: vec![0, 2],
                keepdims: false,
            }),
            x,
        )
    });
    kept(&[&[3, 0, 2]], 1, 1, |m, x, _| {
        one(
            m,
            Op::Reduce(Reduce {
                kind: ReduceKind::Max,
                axes: vec![0],
                keepdims: true,
            }),
            x,
        )
    });
    refused(&[&[3, 0]], |m, x, _| {
        one(
            m,
            Op::Reduce(Reduce {
                kind: ReduceKind::Sum,
                axes: vec![1],
                keepdims: false,
            }),
            x,
        )
    });
    kept(&[&[0, 4]], 0, 1, |m, x, _| {
        one(m, Op::Softmax(Softmax { axis: 1 }), x)
    });
    refused(&[&[0, 4]], |m, x, _| {
        one(m, Op::Softmax(Softmax { axis: 0 }), x)
    });
    kept(&[&[0, 2, 4], &[4]], 0, 1, |m, x, _| {
        let op = LayerNorm {
            axis: 2,
            epsilon: 1e-5,
            statistics: false,
        };
        one(m, Op::LayerNorm(op), x)
    });
    refused(&[&[2, 0], &[1]], |m, x, _| {
        let op = LayerNorm {
            axis: 1,
            epsilon: 1e-5,
            statistics: false,
        };
        one(m, Op::LayerNorm(op), x)
    });
    kept(&[&[0, 4]], 0, 1, |m, x, _| {
        one(
            m,
            Op::TopK(TopK {
                axis: 1,
                k: 2,
                largest: true,
            }),
            x,
        )
    });
    refused(&[&[0, 4]], |m, x, _| {
        one(
            m,
            Op::TopK(TopK {
                axis: 0,
                k: 1,
                largest: true,
            }),
            x,
        )
    });
}

#[test]
fn moves() {
    kept(&[&[0, 3, 4]], 2, 1, |m, x, _| {
        one(
            m,
            Op::Transpose(Transpose {
                perm: vec![2, 1, 0],
            }),
            x,
        )
    });
    // Merged with what follows, and taken apart again.
    kept(&[&[0, 3, 4]], 0, 3, |m, x, rows| {
        one(
            m,
            Op::Reshape(Reshape {
                shape: vec![3 * rows, 4],
            }),
            x,
        )
    });
    kept(&[&[2, 0, 6]], 1, 2, |m, x, rows| {
        one(
            m,
            Op::Reshape(Reshape {
                shape: vec![2, 2 * rows, 3],
            }),
            x,
        )
    });
    kept(&[&[0, 6]], 1, 1, |m, x, rows| {
        one(
            m,
            Op::Reshape(Reshape {
                shape: vec![1, rows, 2, 3],
            }),
            x,
        )
    });
    // Merged with what comes before.
    refused(&[&[3, 0]], |m, x, rows| {
        one(
            m,
            Op::Reshape(Reshape {
                shape: vec![3 * rows],
            }),
            x,
        )
    });
    refused(&[&[0, 10]], |m, x, rows| {
        one(
            m,
            Op::Reshape(Reshape {
                shape: vec![10, rows],
            }),
            x,
        )
    });
}

#[test]
fn parts_and_borders() {
    kept(&[&[0, 3], &[0, 2]], 0, 1, |m, x, _| {
        one(m, Op::Concat(Concat { axis: 1 }), x)
    });
    refused(&[&[0, 3], &[2, 3]], |m, x, _| {
        one(m, Op::Concat(Concat { axis: 0 }), x)
    });
    kept(&[&[0, 3]], 0, 1, |m, x, _| {
        one(
            m,
            Op::Split(Split {
                axis: 1,
                sizes: vec![1, 2],
            }),
            x,
        )
    });
    kept(&[&[0, 3]], 0, 1, |m, x, rows| {
        one(
            m,
            Op::Slice(Slice {
                starts: vec![0, 1],
                steps: vec![1, 1],
                sizes: vec![rows, 2],
            }),
            x,
        )
    });
    refused(&[&[0, 3]], |m, x, rows| {
        one(
            m,
            Op::Slice(Slice {
                starts: vec![1, 0],
                steps: vec![1, 1],
                sizes: vec![rows - 1, 3],
            }),
            x,
        )
    });
    refused(&[&[0, 3]], |m, x, rows| {
        one(
            m,
            Op::Slice(Slice {
                starts: vec![rows - 1, 0],
                steps: vec![-1, 1],
                sizes: vec![rows, 3],
            }),
            x,
        )
    });
    kept(&[&[0, 3]], 0, 1, |m, x, _| {
        one(
            m,
            Op::Pad(Pad {
                mode: PadMode::Constant(0.0),
                pads: vec![(0, 0), (1, 0)],
            }),
            x,
        )
    });
    refused(&[&[0, 3]], |m, x, _| {
        one(
            m,
            Op::Pad(Pad {
                mode: PadMode::Constant(0.0),
                pads: vec![(1, 0), (0, 0)],
            }),
            x,
        )
    });
}

#[test]
fn one_value_for_every_row() {
    // Such as a class token.
    kept(&[&[0, 2, 4]], 0, 1, |m, x, rows| {
        let c = constant(m, &[1, 1, 4]);
        let c = one(
            m,
            Op::Expand(Expand {
                shape: vec![rows, 1, 4],
            }),
            &[c],
        );
        one(m, Op::Concat(Concat { axis: 1 }), &[c, x[0]])
    });
}

#[test]
fn gathers() {
    kept(&[&[0, 3, 2]], 0, 1, |m, x, _| {
        let i = m.add_constant("i", Tensor::from_slice::<i64>(&[], &[1]));
        one(m, Op::Gather(Gather { axis: 1 }), &[x[0], i])
    });
    // Every row picks among its own elements; or, in the other case, among the first row's.
    kept(&[&[0, 3]], 0, 1, |m, x, rows| {
        let flat = one(
            m,
            Op::Reshape(Reshape {
                shape: vec![3 * rows],
            }),
            x,
        );
        let own: Vec<i64> = (0..2 * rows as i64)
            .map(|i| i / 2 * 3 + i % 2 * 2)
            .collect();
        let i = m.add_constant("i", Tensor::from_slice(&[rows, 2], &own));
        one(m, Op::Gather(Gather { axis: 0 }), &[flat, i])
    });
    refused(&[&[0, 3]], |m, x, rows| {
        let i = m.add_constant("i", Tensor::from_slice(&[rows], &vec![0i64; rows]));
        one(m, Op::Gather(Gather { axis: 0 }), &[x[0], i])
    });
    refused(&[&[0, 3]], |m, x, _| {
        let i = m.add_constant("i", Tensor::from_slice(&[1], &[0i64]));
        one(m, Op::Gather(Gather { axis: 0 }), &[x[0], i])
    });
    refused(&[&[0, 3]], |m, x, rows| {
        let i = m.add_constant("i", Tensor::from_slice(&[rows, 3], &vec![0i64; 3 * rows]));
        one(
            m,
            Op::GatherElements(GatherElements { axis: 0 }),
            &[x[0], i],
        )
    });
}

#[test]
fn scatters() {
    fn replaced(m: &mut Model, x: &[ValueId], picks: &[i64], depth: usize) -> ValueId {
        let i = Tensor::from_slice(&[picks.len() / depth, depth], picks);
        let i = m.add_constant("i", i);
        let combine = Combine::Replace;
        one(m, Op::ScatterNd(ScatterNd { combine }), &[x[0], i, x[1]])
    }
    kept(&[&[4, 3, 0], &[2, 3, 0]], 2, 1, |m, x, _| {
        replaced(m, x, &[3, 1], 1)
    });
    kept(&[&[4, 3, 0], &[2, 0]], 2, 1, |m, x, _| {
        replaced(m, x, &[3, 1, 0, 2], 2)
    });
    // Positions pick rows.
    refused(&[&[0, 3], &[2, 3]], |m, x, _| replaced(m, x, &[0, 1], 1));
}

#[test]
fn results_without_rows() {
    let case = Case {
        shapes: &[&[0, 3], &[4]],
        build: |m, x, _| one(m, Op::Unary(Unary::Relu), &x[1..]),
    };
    assert_eq!(case.proof(), Ok(None));
    let m = case.model(SMALL);
    assert!(
        rows_apart(&m, &m, &[(0, 0)]).is_err(),
        "one size is no proof"
    );
    assert!(rows_apart(&m, &case.model(LARGE), &[]).is_err());
}
