//! Models of thousands of nodes, and expressions that would grow without end: a
//! plan has a number of kernels that follows from the nodes, of a size that does not.

use crate::judge::{inputs, judge_both, planned, random};
use graph::ops::{Binary, Concat, Conv, Gelu, Op, Reduce, ReduceKind, Unary};
use graph::{Keep, Model, ValueId, evaluate};
use plan::{LayoutPolicy, Plan};
use std::sync::Arc;
use tensor::{DType, Tensor};

fn model(shape: &[usize], body: impl FnOnce(&mut Model, ValueId) -> ValueId) -> Model {
    let mut m = Model::new("long", 0);
    let x = m.add_input("x", DType::F32, shape);
    let y = body(&mut m, x);
    m.add_output(y);
    m
}

fn unary(m: &mut Model, u: Unary, x: ValueId) -> ValueId {
    m.add("unary", Op::Unary(u), &[x]).unwrap()
}

fn binary(m: &mut Model, b: Binary, x: ValueId, y: ValueId) -> ValueId {
    m.add("binary", Op::Binary(b), &[x, y]).unwrap()
}

/// Bytes of the programs of all tasks.
fn text(plan: &Plan) -> usize {
    let texts = plan.tasks.iter().map(|t| ir::text::print(&t.program).len());
    texts.sum()
}

/// Plans a chain of `n` and of `5 n` nodes: steps and the text of programs grow
/// with the nodes at most. The number of steps of the longer one.
fn grows_linearly(n: usize, step: impl Fn(&mut Model, ValueId, ValueId) -> ValueId) -> usize {
    let plan = |n: usize| {
        let chain = model(&[2, 3], |m, x| (0..n).fold(x, |y, _| step(m, x, y)));
        planned(&chain, LayoutPolicy::Plain)
    };
    let (short, long) = (plan(n), plan(5 * n));
    let (few, many) = (short.steps.len(), long.steps.len());
    assert!(many <= 5 * few + 5, "{few} steps became {many}");
    let (few, many) = (text(&short), text(&long));
    assert!(many <= 5 * few + 5000, "{few} bytes became {many}");
    long.steps.len()
}

#[test]
fn thousands_of_nodes_are_some_hundred_kernels() {
    let relu = |m: &mut Model, _: ValueId, y: ValueId| unary(m, Unary::Relu, y);
    let negated = |m: &mut Model, _: ValueId, y: ValueId| unary(m, Unary::Neg, y);
    let gelu = |m: &mut Model, _: ValueId, y: ValueId| unary(m, Unary::Gelu(Gelu::Tanh), y);
    let add = |m: &mut Model, x: ValueId, y: ValueId| binary(m, Binary::Add, x, y);
    let rest = |m: &mut Model, x: ValueId, y: ValueId| binary(m, Binary::Sub, x, y);
    let double = |m: &mut Model, _: ValueId, y: ValueId| binary(m, Binary::Add, y, y);
    let scale = |m: &mut Model, _: ValueId, y: ValueId| {
        let number = m.nodes().len() as f32;
        let c = m.add_constant("c", Tensor::from_slice(&[], &[1.0 + number / 1e6]));
        binary(m, Binary::Mul, y, c)
    };
    let swish = |m: &mut Model, _: ValueId, y: ValueId| {
        let s = unary(m, Unary::Sigmoid, y);
        binary(m, Binary::Mul, y, s)
    };
    assert!(grows_linearly(1000, relu) <= 5000 / 32);
    assert!(grows_linearly(1000, negated) <= 5000 / 32);
    assert!(grows_linearly(1000, add) <= 5000 / 32);
    assert!(grows_linearly(1000, rest) <= 5000 / 32);
    assert!(grows_linearly(1000, scale) <= 5000 / 32);
    assert!(grows_linearly(1000, gelu) <= 5000);
    assert!(grows_linearly(1000, double) <= 5000 / 4);
    assert!(grows_linearly(500, swish) <= 2500 / 2);
}

/// A value that is read twice would double the expression of a row again and again.
#[test]
fn chains_along_rows_do_not_double() {
    let reduced = |m: &mut Model, kind: ReduceKind, x: ValueId| {
        let reduce = Reduce {
            kind,
            axes: vec![1],
            keepdims: true,
        };
        m.add("reduce", Op::Reduce(reduce), &[x]).unwrap()
    };
    let chain = model(&[2, 33], |m, x| {
        let max = reduced(m, ReduceKind::Max, x);
        let shifted = binary(m, Binary::Sub, x, max);
        let doubled = (0..27).fold(shifted, |y, _| binary(m, Binary::Add, y, y));
        let sum = reduced(m, ReduceKind::Sum, doubled);
        let doubled = (0..27).fold(sum, |y, _| binary(m, Binary::Add, y, y));
        binary(m, Binary::Sub, x, doubled)
    });
    let plan = judge_both(&chain);
    assert!(text(&plan) < 100_000, "{} bytes", text(&plan));
}

/// The same values, whether or not a chain is cut.
#[test]
fn chains_that_are_cut_keep_their_values() {
    let halved = |m: &mut Model, x: ValueId, n: usize| {
        let half = m.add_constant("half", Tensor::from_slice(&[], &[0.5f32]));
        (0..n).fold(x, |x, _| {
            let y = binary(m, Binary::Add, x, x);
            binary(m, Binary::Mul, y, half)
        })
    };
    judge_both(&model(&[2, 3], |m, x| halved(m, x, 60)));
    judge_both(&model(&[2, 3], |m, x| {
        (0..30).fold(x, |x, _| {
            let s = unary(m, Unary::Sigmoid, x);
            binary(m, Binary::Mul, x, s)
        })
    }));
    judge_both(&model(&[2, 3], |m, x| {
        (0..150).fold(x, |x, i| unary(m, [Unary::Neg, Unary::Abs][i % 2], x))
    }));
    let plan = judge_both(&model(&[1, 8, 3, 3], |m, x| {
        let w = m.add_constant("w", random(&[8, 8, 1, 1], 1));
        let y = m.add("conv", Op::Conv(Conv::unit(2)), &[x, w]).unwrap();
        (0..150).fold(y, |y, _| unary(m, Unary::Tanh, y))
    }));
    assert!(plan.steps.len() > 2, "{plan}");
}

#[test]
fn hundreds_of_operands() {
    let mut m = Model::new("wide", 0);
    let all: Vec<ValueId> = (0..500)
        .map(|i| m.add_input(&format!("x{i}"), DType::F32, &[2, 1 + i % 3]))
        .collect();
    let joined = m.add("joined", Op::Concat(Concat { axis: 1 }), &all);
    m.add_output(joined.unwrap());
    let equal: Vec<ValueId> = all.iter().copied().step_by(3).collect();
    let sum = equal
        .into_iter()
        .reduce(|x, y| binary(&mut m, Binary::Add, x, y));
    m.add_output(sum.unwrap());
    let plan = judge_both(&m);
    let joins = plan
        .steps
        .iter()
        .filter(|s| plan.tasks[s.task].op == "concat");
    assert_eq!(joins.count(), 16 + 1, "{plan}");
}

/// Nothing descends once a node: neither the plan nor what it is made of.
#[test]
fn deep_models_fit_a_small_stack() {
    let run = || {
        let deep = model(&[4], |m, x| {
            (0..20_000).fold(x, |x, i| unary(m, [Unary::Neg, Unary::Abs][i % 2], x))
        });
        let plan = planned(&deep, LayoutPolicy::Plain);
        let given = inputs(&deep);
        let y = plan.interpret(&given).unwrap();
        let given: Vec<_> = given.into_iter().map(Arc::new).collect();
        let expected = evaluate(&deep, &given, Keep::Outputs).unwrap().outputs();
        assert_eq!(&y[0], &*expected[0]);
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run);
    thread.unwrap().join().unwrap();
}
