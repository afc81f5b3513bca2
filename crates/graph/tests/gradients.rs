//! Gradients of each operator: against finite differences, and against values of PyTorch.

use graph::ops::*;
use graph::{Keep, LABELS, LOSS, Model, Sgd, evaluate, training_step};
use std::collections::BTreeSet;
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

const PLAIN: Sgd = Sgd {
    learning_rate: 1.0,
    momentum: 0.0,
    weight_decay: 0.0,
};

/// An operator whose operands of f32 are weights.
struct Case {
    op: Op,
    operands: Vec<Tensor>,
}

fn uniform(shape: &[usize], lo: f64, hi: f64, seed: u64) -> Tensor {
    fill_tensor(DType::F32, shape, Fill::Uniform { lo, hi }, seed)
}

fn case(op: Op, shapes: &[&[usize]]) -> Case {
    let operand = |(i, s): (usize, &&[usize])| uniform(s, -1.0, 1.0, 11 + i as u64);
    Case {
        op,
        operands: shapes.iter().enumerate().map(operand).collect(),
    }
}

fn with_values(op: Op, operands: Vec<Tensor>) -> Case {
    Case { op, operands }
}

/// Logits of the operator's result: times a matrix with one row for each of its elements.
fn classifier(c: &Case, output: usize, head: impl Fn(&[usize]) -> Tensor) -> Model {
    let mut model = Model::new("net", 0);
    let name = |i: usize| format!("operand{i}");
    let constants: Vec<_> = (c.operands.iter().enumerate())
        .map(|(i, t)| Some(model.add_constant(&name(i), t.clone())))
        .collect();
    let y = model.add_node("op", c.op.clone(), &constants).unwrap()[output];
    let count = model[y].shape().iter().product();
    let row = Op::Reshape(Reshape {
        shape: vec![1, count],
    });
    let row = model.add("row", row, &[y]).unwrap();
    let head = model.add_constant("head", head(&[count, 3]));
    let logits = model.add("logits", Op::MatMul, &[row, head]).unwrap();
    model.add_output(logits);
    model
}

/// The inputs of the first step; labels are 1.
fn first_inputs(step: &Model) -> Vec<Arc<Tensor>> {
    let value = |(i, v): (usize, &graph::ValueId)| {
        let state = step.states().iter().find(|s| s.input == i);
        match (state, step[*v].name()) {
            (Some(s), _) => s.initial.clone(),
            (None, LABELS) => Arc::new(Tensor::from_slice(&[step[*v].shape()[0]], &[1i64])),
            (None, other) => panic!("{other} has no value"),
        }
    };
    step.inputs().iter().enumerate().map(value).collect()
}

fn output(step: &Model, inputs: &[Arc<Tensor>], name: &str) -> Arc<Tensor> {
    let found = evaluate(step, inputs, Keep::Outputs).unwrap();
    let mut named = step.outputs().iter().zip(found.results());
    named.find(|(v, _)| step[**v].name() == name).unwrap().1
}

fn check(c: &Case, of_output: usize) {
    let step = training_step(
        &classifier(c, of_output, |s| uniform(s, -1.0, 1.0, 5)),
        PLAIN,
        7,
        &BTreeSet::new(),
    )
    .unwrap();
    step.verify().unwrap();
    let at = first_inputs(&step);
    let mut moves = 0;
    for (slot, t) in c.operands.iter().enumerate() {
        let name = format!("operand{slot}");
        let input = step.inputs().iter().position(|v| step[*v].name() == name);
        let (Some(input), DType::F32) = (input, t.dtype()) else {
            continue;
        };
        let next = output(&step, &at, &format!("{name}.next"));
        for i in 0..t.len().min(40) {
            let value = t.get_f64(i);
            let loss = |by: f64| {
                let (mut changed, mut t) = (at.clone(), t.clone());
                t.set_f64(i, value + by);
                changed[input] = Arc::new(t);
                output(&step, &changed, LOSS).get_f64(0)
            };
            let expected = (loss(3e-3) - loss(-3e-3)) / 6e-3;
            let gradient = value - next.get_f64(i);
            moves += usize::from(expected.abs() > 0.02);
            assert!(
                (gradient - expected).abs() <= 2e-3 + 0.01 * expected.abs(),
                "{} {slot} at {i}: {gradient} and {expected}\n{step}",
                c.op.name()
            );
        }
    }
    assert!(moves > 1, "{} has gradients of nothing", c.op.name());
}

fn conv(groups: usize, stride: usize, pads: (usize, usize), dilation: usize) -> Op {
    Op::Conv(Conv {
        strides: vec![stride; 2],
        dilations: vec![dilation; 2],
        pads: vec![pads; 2],
        groups,
    })
}

fn average(kernel: usize, stride: usize, pads: (usize, usize), all: bool, ceil: bool) -> Op {
    Op::Pool(Pool {
        kind: PoolKind::Average {
            count_include_pad: all,
        },
        kernel: vec![kernel; 2],
        strides: vec![stride; 2],
        dilations: vec![1; 2],
        pads: vec![pads; 2],
        ceil_mode: ceil,
    })
}

#[test]
fn of_windows() {
    for c in [
        case(conv(2, 1, (1, 1), 1), &[&[2, 4, 5, 5], &[6, 2, 3, 3], &[6]]),
        case(conv(4, 2, (0, 1), 1), &[&[2, 4, 6, 6], &[4, 1, 3, 3]]),
        case(conv(2, 2, (1, 0), 2), &[&[3, 4, 8, 8], &[4, 2, 3, 3]]),
        case(conv(3, 3, (0, 0), 1), &[&[2, 3, 7, 7], &[6, 1, 2, 2]]),
        case(average(2, 2, (0, 0), true, false), &[&[2, 2, 4, 4]]),
        case(average(3, 2, (1, 1), false, false), &[&[2, 2, 5, 5]]),
        case(average(3, 2, (1, 1), true, true), &[&[1, 2, 6, 6]]),
        case(average(3, 3, (0, 0), true, false), &[&[1, 2, 5, 5]]),
        case(average(2, 2, (0, 0), false, true), &[&[1, 1, 5, 5]]),
    ] {
        check(&c, 0);
    }
}

#[test]
fn of_moves() {
    let slice = |starts: Vec<usize>, steps: Vec<i64>, sizes: Vec<usize>| {
        Op::Slice(Slice {
            starts,
            steps,
            sizes,
        })
    };
    let pad = |pads: Vec<(i64, i64)>| {
        Op::Pad(Pad {
            mode: PadMode::Constant(0.5),
            pads,
        })
    };
    let concat = Op::Concat(Concat { axis: 1 });
    for c in [
        case(concat, &[&[2, 2, 2], &[2, 3, 2], &[2, 1, 2]]),
        case(slice(vec![1, 0], vec![1, 2], vec![2, 3]), &[&[4, 5]]),
        case(slice(vec![0, 1], vec![3, 1], vec![2, 4]), &[&[5, 5]]),
        case(pad(vec![(1, 2), (0, 0)]), &[&[3, 4]]),
        case(pad(vec![(-1, 2), (0, -1)]), &[&[3, 4]]),
    ] {
        check(&c, 0);
    }
    let split = Op::Split(Split {
        axis: 1,
        sizes: vec![2, 1, 3],
    });
    for output in 0..3 {
        check(&case(split.clone(), &[&[3, 6]]), output);
    }
}

/// Rows that are taken once, in another order, several times, and by negative positions.
#[test]
fn of_indices() {
    let of = |op: Op, shape: &[usize], indices: Tensor| {
        with_values(op, vec![uniform(shape, -1.0, 1.0, 3), indices])
    };
    let gather = |axis| Op::Gather(Gather { axis });
    let ints = |shape: &[usize], values: &[i64]| Tensor::from_slice(shape, values);
    for c in [
        of(gather(1), &[2, 4, 3], ints(&[], &[-1])),
        of(gather(0), &[5, 3], ints(&[2], &[2, 3])),
        of(gather(1), &[2, 3, 2], ints(&[3], &[2, 0, -2])),
        of(gather(0), &[4, 3], ints(&[2, 2], &[1, 3, 1, -4])),
        of(gather(2), &[2, 2, 4], ints(&[2, 2], &[1, 1, 1, 0])),
        of(
            Op::GatherElements(GatherElements { axis: 1 }),
            &[3, 4],
            ints(&[2, 3], &[1, 1, -1, 0, 2, 0]),
        ),
        of(
            Op::GatherNd(GatherNd { batch: 0 }),
            &[3, 3, 2],
            ints(&[3, 2], &[1, 1, -1, 0, 1, 1]),
        ),
    ] {
        check(&c, 0);
    }
}

#[test]
fn of_activations() {
    let clip = Unary::Clip {
        min: Some(-0.3),
        max: Some(0.4),
    };
    let open = Unary::Clip {
        min: None,
        max: Some(0.2),
    };
    let gate = Unary::HardSigmoid {
        alpha: 0.7,
        beta: 0.5,
    };
    let leaky = Unary::LeakyRelu { alpha: 0.1 };
    let exact = Unary::Gelu(Gelu::Exact);
    for u in [
        clip,
        open,
        gate,
        leaky,
        exact,
        Unary::Gelu(Gelu::Tanh),
        Unary::Sin,
        Unary::Cos,
        Unary::HardSwish,
        Unary::Erf,
        Unary::Abs,
    ] {
        // Values by which no step of a difference crosses a bend of these operators.
        let values: Vec<f32> = (0..24).map(|i| (i as f32 - 11.7) * 0.355).collect();
        let c = with_values(Op::Unary(u), vec![Tensor::from_slice(&[4, 6], &values)]);
        check(&c, 0);
    }
    check(&case(Op::Softmax(Softmax { axis: 1 }), &[&[2, 4, 3]]), 0);
    check(&case(Op::Dropout(Dropout { ratio: 0.4 }), &[&[5, 6]]), 0);
}

#[test]
fn of_products_and_sums() {
    let gemm = |trans_a, trans_b| {
        Op::Gemm(Gemm {
            alpha: 0.5,
            beta: -1.5,
            trans_a,
            trans_b,
        })
    };
    let extreme = |kind, keepdims| {
        Op::Reduce(Reduce {
            kind,
            axes: vec![1],
            keepdims,
        })
    };
    let contract = |equation| Op::Contract(Contract::parse(equation).unwrap());
    let layer_norm = Op::LayerNorm(LayerNorm {
        axis: 1,
        epsilon: 1e-3,
        statistics: false,
    });
    let mut chosen = Tensor::zeros(DType::Bool, &[2, 1]);
    chosen.set_f64(0, 1.0);
    for c in [
        case(gemm(false, false), &[&[3, 4], &[4, 2], &[2]]),
        case(gemm(true, false), &[&[4, 3], &[4, 2], &[3, 1]]),
        case(gemm(false, true), &[&[3, 4], &[2, 4], &[3, 2]]),
        case(gemm(true, true), &[&[4, 3], &[2, 4], &[2]]),
        case(contract("abc,cbd->adb"), &[&[2, 3, 4], &[4, 3, 2]]),
        case(contract("ab,cd->ca"), &[&[2, 3], &[2, 4]]),
        case(Op::MatMul, &[&[2, 3, 4], &[2, 4, 2]]),
        case(Op::MatMul, &[&[2, 2, 3, 4], &[4, 2]]),
        case(layer_norm.clone(), &[&[3, 5], &[5], &[5]]),
        case(layer_norm, &[&[3, 2, 3], &[2, 3]]),
        case(extreme(ReduceKind::Max, true), &[&[3, 4]]),
        case(extreme(ReduceKind::Min, false), &[&[4, 3]]),
        with_values(
            Op::Binary(Binary::Pow),
            vec![
                uniform(&[3, 4], 0.5, 2.0, 3),
                Tensor::from_slice(&[], &[2.5f32]),
            ],
        ),
        with_values(
            Op::Where,
            vec![
                chosen,
                uniform(&[2, 3], -1.0, 1.0, 3),
                uniform(&[3], -1.0, 1.0, 4),
            ],
        ),
    ] {
        check(&c, 0);
    }
}

/// Values that PyTorch can make again: ((7 i) mod 23) / 23 - 0.45.
fn pattern(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count)
        .map(|i| (7 * i % 23) as f32 / 23.0 - 0.45)
        .collect();
    Tensor::from_slice(shape, &values)
}

/// The sum of |gradient| of each operand, and its third element.
type Gradients<'a> = &'a [(f64, f64)];

/// Whose values PyTorch 2 gave in f64, by label 1 and logits that are the result times a pattern.
#[test]
fn are_those_of_pytorch() {
    let hardtanh = Unary::Clip {
        min: Some(-0.3),
        max: Some(0.4),
    };
    let layer_norm = Op::LayerNorm(LayerNorm {
        axis: 1,
        epsilon: 1e-5,
        statistics: false,
    });
    let cases: [(Op, &[&[usize]], Gradients); 8] = [
        (
            conv(3, 2, (1, 1), 1),
            &[&[2, 3, 5, 5], &[3, 1, 3, 3]],
            &[(18.103556, -0.09604), (6.16347, -0.128696)],
        ),
        (
            conv(2, 1, (1, 1), 1),
            &[&[2, 4, 4, 4], &[6, 2, 3, 3]],
            &[(26.12311, 0.231099), (29.768476, -0.405522)],
        ),
        (
            average(3, 2, (1, 1), false, false),
            &[&[2, 2, 5, 5]],
            &[(5.867282, 0.054774)],
        ),
        (Op::Unary(hardtanh), &[&[4, 6]], &[(4.308254, 0.434209)]),
        (
            Op::Unary(Unary::HardSwish),
            &[&[4, 6]],
            &[(2.963965, 0.221077)],
        ),
        (
            Op::Unary(Unary::Gelu(Gelu::Exact)),
            &[&[4, 6]],
            &[(3.115733, 0.248917)],
        ),
        (
            layer_norm,
            &[&[4, 6], &[6], &[6]],
            &[
                (6.027328, -0.02907),
                (3.708442, -0.328494),
                (4.568086, 1.01398),
            ],
        ),
        (
            Op::Softmax(Softmax { axis: 1 }),
            &[&[4, 6]],
            &[(0.836272, 0.046281)],
        ),
    ];
    for (op, shapes, expected) in cases {
        let c = Case {
            op,
            operands: shapes.iter().map(|s| pattern(s)).collect(),
        };
        let step = training_step(&classifier(&c, 0, pattern), PLAIN, 7, &BTreeSet::new()).unwrap();
        let at = first_inputs(&step);
        for (slot, (t, (sum, third))) in c.operands.iter().zip(expected).enumerate() {
            let next = output(&step, &at, &format!("operand{slot}.next"));
            let moved: Vec<f64> = (0..t.len())
                .map(|i| t.get_f64(i) - next.get_f64(i))
                .collect();
            let found = (moved.iter().map(|g| g.abs()).sum::<f64>(), moved[2]);
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
            assert!(
                near(found.0, *sum) && near(found.1, *third),
                "{} {slot}: {found:?}, {:?}",
                c.op.name(),
                (sum, third)
            );
        }
    }
}
