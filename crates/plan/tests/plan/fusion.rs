//! Which kernels, layouts and aliases models become.

use crate::judge::{judge, judge_both, kinds, random};
use graph::ops::{
    BatchNorm, Binary, Concat, Conv, Gelu, LayerNorm, Op, Pool, PoolKind, Reduce, ReduceKind,
    Reshape, Slice, Softmax, Split, Transpose, Unary,
};
use graph::{Model, ValueId};
use plan::{LayoutPolicy, TensorKind};
use tensor::{DType, Tensor};

fn conv(m: &mut Model, name: &str, x: ValueId, maps: usize, kernel: usize) -> ValueId {
    let channels = m[x].shape()[1];
    let w = m.add_constant("w", random(&[maps, channels, kernel, kernel], maps as u64));
    let pad = (kernel - 1) / 2;
    let c = Conv {
        pads: vec![(pad, pad); 2],
        ..Conv::unit(2)
    };
    m.add(name, Op::Conv(c), &[x, w]).unwrap()
}

fn relu(m: &mut Model, x: ValueId) -> ValueId {
    m.add("relu", Op::Unary(Unary::Relu), &[x]).unwrap()
}

fn add(m: &mut Model, x: ValueId, y: ValueId) -> ValueId {
    m.add("add", Op::Binary(Binary::Add), &[x, y]).unwrap()
}

/// Two residual blocks, one with a projection, global pooling, a classifier.
#[test]
fn a_residual_network_stays_in_blocks() {
    for channels in [8, 6] {
        let mut m = Model::new("residual", 0);
        let x = m.add_input("x", DType::F32, &[1, 3, 6, 6]);
        let x = conv(&mut m, "stem", x, 4, 3);
        let x = relu(&mut m, x);
        let a = conv(&mut m, "a1", x, channels, 3);
        let a = relu(&mut m, a);
        let a = conv(&mut m, "a2", a, channels, 3);
        let side = conv(&mut m, "side", x, channels, 1);
        let x = add(&mut m, a, side);
        let x = relu(&mut m, x);
        let b = conv(&mut m, "b1", x, channels, 3);
        let b = relu(&mut m, b);
        let b = conv(&mut m, "b2", b, channels, 3);
        let x = add(&mut m, b, x);
        let x = relu(&mut m, x);
        let mean = Reduce {
            kind: ReduceKind::Mean,
            axes: vec![2, 3],
            keepdims: true,
        };
        let x = m.add("mean", Op::Reduce(mean), &[x]).unwrap();
        let flat = Op::Reshape(Reshape {
            shape: vec![1, channels],
        });
        let x = m.add("flat", flat, &[x]).unwrap();
        let w = m.add_constant("w", random(&[channels, 5], 9));
        let x = m.add("fc", Op::MatMul, &[x, w]).unwrap();
        m.add_output(x);
        let plan = judge_both(&m);
        let convs = ["conv2d"; 6];
        assert_eq!(
            kinds(&plan),
            [&convs[..], &["reduce_mean", "dense"]].concat(),
            "{plan}"
        );
        assert_eq!(plan.conversions, 0, "{plan}");
        let residual = plan.steps.iter().filter(|s| s.inputs.len() == 3).count();
        assert_eq!(residual, 2, "{plan}");
        let alias = |t: &plan::PlanTensor| matches!(t.kind, TensorKind::Alias { .. });
        assert_eq!(
            plan.tensors.iter().filter(|t| alias(t)).count(),
            if channels == 8 { 2 } else { 1 }
        );
    }
}

#[test]
fn equal_kernels_are_one_task() {
    let mut m = Model::new("same", 0);
    let mut x = m.add_input("x", DType::F32, &[1, 8, 4, 4]);
    for _ in 0..3 {
        x = conv(&mut m, "conv", x, 8, 3);
        x = relu(&mut m, x);
    }
    m.add_output(x);
    let plan = judge(&m, LayoutPolicy::Blocked);
    assert_eq!(kinds(&plan).iter().filter(|k| **k == "conv2d").count(), 3);
    assert_eq!(plan.tasks.iter().filter(|t| t.op == "conv2d").count(), 1);
    assert_eq!(plan.uses().iter().sum::<usize>(), plan.steps.len());
    assert!(plan.to_string().contains("x3 conv2d("), "{plan}");
}

#[test]
fn steps_move_every_operand_whole_and_once() {
    let mut m = Model::new("moved", 0);
    let x = m.add_input("x", DType::F32, &[4, 8]);
    let w = m.add_constant("w", random(&[8, 8], 1));
    let last = m.add_constant("last", random(&[16, 5], 2));
    let x = m.add("first", Op::MatMul, &[x, w]).unwrap();
    let x = m.add("second", Op::MatMul, &[x, w]).unwrap();
    let shape = vec![2, 16];
    let x = m
        .add("pairs", Op::Reshape(Reshape { shape }), &[x])
        .unwrap();
    let x = m.add("third", Op::MatMul, &[x, last]).unwrap();
    m.add_output(x);
    let plan = judge_both(&m);
    assert_eq!(kinds(&plan), ["dense"; 3], "{plan}");
    assert_eq!(plan.views(), 1, "{plan}");
    // What two steps read counts twice; the reshape moves nothing.
    let activations = (32 + 32) + (32 + 32) + (32 + 10);
    let constants = 64 + 64 + 80;
    assert_eq!(
        plan.moved_bytes(),
        (4 * activations, 4 * constants),
        "{plan}"
    );
}

/// x is read three times, but everything meets again in one value.
#[test]
fn diamonds_fuse_into_the_kernel_before_them() {
    let mut m = Model::new("gelu", 0);
    let x = m.add_input("x", DType::F32, &[3, 4]);
    let w = m.add_constant("w", random(&[4, 6], 1));
    let x = m.add("matmul", Op::MatMul, &[x, w]).unwrap();
    let gate = m.add("gate", Op::Unary(Unary::Sigmoid), &[x]).unwrap();
    let swish = m.add("swish", Op::Binary(Binary::Mul), &[x, gate]).unwrap();
    let gelu = m
        .add("gelu", Op::Unary(Unary::Gelu(Gelu::Exact)), &[swish])
        .unwrap();
    let two = m.add_constant("two", Tensor::from_slice(&[1], &[2.0f32]));
    let y = m
        .add("scale", Op::Binary(Binary::Mul), &[gelu, two])
        .unwrap();
    m.add_output(y);
    let plan = judge_both(&m);
    assert_eq!(kinds(&plan), ["dense"]);
    // The scalar is a literal, not a parameter.
    assert_eq!(plan.steps[0].inputs.len(), 2);
}

#[test]
fn a_value_that_others_need_ends_its_kernel() {
    let mut m = Model::new("shared", 0);
    let x = m.add_input("x", DType::F32, &[3, 4]);
    let w = m.add_constant("w", random(&[4, 4], 1));
    let product = m.add("matmul", Op::MatMul, &[x, w]).unwrap();
    let y = relu(&mut m, product);
    m.add_output(product);
    m.add_output(y);
    assert_eq!(kinds(&judge_both(&m)), ["dense", "elementwise"]);
}

#[test]
fn deep_sharing_does_not_blow_up() {
    let mut m = Model::new("deep", 0);
    let input = m.add_input("x", DType::F32, &[2]);
    let mut x = m.add("start", Op::Unary(Unary::Tanh), &[input]).unwrap();
    for _ in 0..40 {
        let gate = m.add("gate", Op::Unary(Unary::Sigmoid), &[x]).unwrap();
        x = m.add("mul", Op::Binary(Binary::Mul), &[x, gate]).unwrap();
    }
    m.add_output(x);
    let plan = judge_both(&m);
    assert!((2..40).contains(&plan.steps.len()), "{plan}");
}

#[test]
fn operators_that_use_their_operand_often_do_not_blow_up() {
    for op in [
        Unary::LeakyRelu { alpha: 0.75 },
        Unary::Gelu(Gelu::Tanh),
        Unary::Gelu(Gelu::Exact),
        Unary::HardSwish,
        Unary::Sign,
    ] {
        let mut m = Model::new("deep", 0);
        let mut x = m.add_input("x", DType::F32, &[2]);
        for _ in 0..30 {
            x = m.add("node", Op::Unary(op), &[x]).unwrap();
        }
        m.add_output(x);
        let plan = judge_both(&m);
        assert!((4..30).contains(&plan.steps.len()), "{plan}");
    }
}

#[test]
fn attention_and_normalisation() {
    let mut m = Model::new("attention", 0);
    let q = m.add_input("q", DType::F32, &[2, 5, 8]);
    let k = m.add_input("k", DType::F32, &[2, 5, 8]);
    let mask = m.add_input("mask", DType::F32, &[2, 1, 5]);
    let perm = Op::Transpose(Transpose {
        perm: vec![0, 2, 1],
    });
    let kt = m.add("kt", perm, &[k]).unwrap();
    let scores = m.add("scores", Op::MatMul, &[q, kt]).unwrap();
    let eight = m.add_constant("scale", Tensor::from_slice(&[], &[0.35f32]));
    let scaled = m
        .add("scaled", Op::Binary(Binary::Mul), &[scores, eight])
        .unwrap();
    let masked = add(&mut m, scaled, mask);
    let p = m
        .add("softmax", Op::Softmax(Softmax { axis: 2 }), &[masked])
        .unwrap();
    let y = m.add("mix", Op::MatMul, &[p, k]).unwrap();
    let sum = add(&mut m, y, q);
    let scale = m.add_constant("scale", random(&[8], 1));
    let shift = m.add_constant("shift", random(&[8], 2));
    let norm = Op::LayerNorm(LayerNorm {
        axis: 2,
        epsilon: 1e-5,
        statistics: false,
    });
    let y = m.add("norm", norm, &[sum, scale, shift]).unwrap();
    let y = relu(&mut m, y);
    m.add_output(y);
    let plan = judge_both(&m);
    assert_eq!(
        kinds(&plan),
        ["batch_matmul", "softmax", "batch_matmul", "layer_norm"]
    );
}

fn along_rows(m: &mut Model, kind: ReduceKind, x: ValueId) -> ValueId {
    let reduce = Reduce {
        kind,
        axes: vec![2],
        keepdims: true,
    };
    m.add("reduce", Op::Reduce(reduce), &[x]).unwrap()
}

fn binary(m: &mut Model, op: Binary, x: ValueId, y: ValueId) -> ValueId {
    m.add("binary", Op::Binary(op), &[x, y]).unwrap()
}

fn unary(m: &mut Model, op: Unary, x: ValueId) -> ValueId {
    m.add("unary", Op::Unary(op), &[x]).unwrap()
}

/// Softmax, its logarithm's divisor, layer normalisation and the norm of a vector, each
/// written out.
#[test]
fn chains_along_rows_are_one_kernel() {
    type Chain = fn(&mut Model, ValueId) -> ValueId;
    let softmax: Chain = |m, x| {
        let max = along_rows(m, ReduceKind::Max, x);
        let shifted = binary(m, Binary::Sub, x, max);
        let e = unary(m, Unary::Exp, shifted);
        let sum = along_rows(m, ReduceKind::Sum, e);
        binary(m, Binary::Div, e, sum)
    };
    let log_sum_exp: Chain = |m, x| {
        let max = along_rows(m, ReduceKind::Max, x);
        let shifted = binary(m, Binary::Sub, x, max);
        let e = unary(m, Unary::Exp, shifted);
        let sum = along_rows(m, ReduceKind::Sum, e);
        let log = unary(m, Unary::Log, sum);
        binary(m, Binary::Add, log, max)
    };
    let layer_norm: Chain = |m, x| {
        let mean = along_rows(m, ReduceKind::Mean, x);
        let centred = binary(m, Binary::Sub, x, mean);
        let squares = binary(m, Binary::Mul, centred, centred);
        let variance = along_rows(m, ReduceKind::Mean, squares);
        let epsilon = m.add_constant("epsilon", Tensor::from_slice(&[], &[1e-5f32]));
        let spread = add(m, variance, epsilon);
        let deviation = unary(m, Unary::Sqrt, spread);
        let normal = binary(m, Binary::Div, centred, deviation);
        let scale = m.add_constant("scale", random(&[9], 1));
        binary(m, Binary::Mul, normal, scale)
    };
    let norm: Chain = |m, x| {
        let squares = binary(m, Binary::Mul, x, x);
        let sum = along_rows(m, ReduceKind::Sum, squares);
        let root = unary(m, Unary::Sqrt, sum);
        binary(m, Binary::Div, x, root)
    };
    for chain in [softmax, log_sum_exp, layer_norm, norm] {
        let mut m = Model::new("rows", 0);
        let x = m.add_input("x", DType::F32, &[2, 5, 9]);
        let y = chain(&mut m, x);
        m.add_output(y);
        assert_eq!(kinds(&judge_both(&m)), ["rows"]);
    }
}

/// Without anything that reads the row again a reduction is a kernel as others are.
#[test]
fn a_reduction_without_a_second_pass_is_no_chain() {
    let mut m = Model::new("mean", 0);
    let x = m.add_input("x", DType::F32, &[2, 5, 9]);
    let mean = along_rows(&mut m, ReduceKind::Mean, x);
    let y = relu(&mut m, mean);
    m.add_output(y);
    assert_eq!(kinds(&judge_both(&m)), ["reduce_mean"]);
}

/// Depth-wise, squeeze and excitation, concatenation and splitting in blocks.
#[test]
fn mobile_blocks() {
    for channels in [8, 6] {
        let mut m = Model::new("mobile", 0);
        let x = m.add_input("x", DType::F32, &[2, 3, 6, 6]);
        let x = conv(&mut m, "stem", x, channels, 3);
        let w = m.add_constant("w", random(&[channels, 1, 3, 3], 4));
        let depthwise = Conv {
            groups: channels,
            pads: vec![(1, 1); 2],
            ..Conv::unit(2)
        };
        let x = m.add("depthwise", Op::Conv(depthwise), &[x, w]).unwrap();
        let x = m.add("swish", Op::Unary(Unary::HardSwish), &[x]).unwrap();
        let mean = Reduce {
            kind: ReduceKind::Mean,
            axes: vec![2, 3],
            keepdims: true,
        };
        let s = m.add("squeeze", Op::Reduce(mean), &[x]).unwrap();
        let s = conv(&mut m, "reduce", s, 4, 1);
        let s = relu(&mut m, s);
        let s = conv(&mut m, "expand", s, channels, 1);
        let s = m.add("gate", Op::Unary(Unary::Sigmoid), &[s]).unwrap();
        let x = m.add("excite", Op::Binary(Binary::Mul), &[x, s]).unwrap();
        let y = conv(&mut m, "project", x, channels, 1);
        let both = m
            .add("concat", Op::Concat(Concat { axis: 1 }), &[x, y])
            .unwrap();
        let both = relu(&mut m, both);
        let halves = Split {
            axis: 1,
            sizes: vec![channels, channels],
        };
        let halves = m
            .add_node("split", Op::Split(halves), &[Some(both)])
            .unwrap();
        let x = add(&mut m, halves[0], halves[1]);
        let pool = Pool {
            kind: PoolKind::Max { indices: None },
            kernel: vec![3, 3],
            strides: vec![2, 2],
            dilations: vec![1, 1],
            pads: vec![(1, 1); 2],
            ceil_mode: false,
        };
        let x = m.add("pool", Op::Pool(pool), &[x]).unwrap();
        m.add_output(x);
        let plan = judge_both(&m);
        let conversions = if channels == 8 { 1 } else { 2 };
        assert_eq!(plan.conversions, conversions, "{plan}");
    }
}

#[test]
fn batch_normalisation_before_a_convolution_fuses_with_its_activation() {
    let mut m = Model::new("preactivation", 0);
    let x = m.add_input("x", DType::F32, &[1, 3, 4, 4]);
    let x = conv(&mut m, "first", x, 6, 3);
    let other = conv(&mut m, "other", x, 6, 1);
    let x = add(&mut m, x, other);
    let p = |m: &mut Model, seed| m.add_constant("p", random(&[6], seed));
    let (scale, shift, mean) = (p(&mut m, 1), p(&mut m, 2), p(&mut m, 3));
    let variance = m.add_constant(
        "v",
        Tensor::from_slice(&[6], &[1.0f32, 2.0, 0.5, 3.0, 1.5, 0.7]),
    );
    let norm = Op::BatchNorm(BatchNorm { epsilon: 1e-5 });
    let y = m
        .add("norm", norm, &[x, scale, shift, mean, variance])
        .unwrap();
    let y = relu(&mut m, y);
    let z = conv(&mut m, "last", y, 8, 1);
    let out = conv(&mut m, "skip", x, 8, 1);
    let out = add(&mut m, z, out);
    m.add_output(out);
    let plan = judge_both(&m);
    let expected = [
        "conv2d",
        "conv2d",
        "elementwise",
        "conv2d",
        "conv2d",
        "layout_transform",
    ];
    assert_eq!(kinds(&plan), expected, "{plan}");
}

#[test]
fn outputs_that_are_inputs_or_constants_are_not_copied() {
    let mut m = Model::new("pass", 0);
    let x = m.add_input("x", DType::F32, &[2, 3]);
    let y = m
        .add("flat", Op::Reshape(Reshape { shape: vec![6] }), &[x])
        .unwrap();
    let c = m.add_constant("c", random(&[2], 1));
    let c = m.add("same", Op::Identity, &[c]).unwrap();
    let used = relu(&mut m, x);
    m.add_output(y);
    m.add_output(c);
    m.add_output(used);
    let plan = judge_both(&m);
    let mut kinds = kinds(&plan);
    kinds.sort_unstable();
    assert_eq!(kinds, ["elementwise"]);
}

/// A transformer layer on [2,3,8]: everything but attention is on rows.
/// An instance normalisation, of one image and of several: the axes of images and channels stay apart where they must.
#[test]
fn scales_of_channels_join_the_normalisation_before_them() {
    for images in [1, 3] {
        let mut m = Model::new("instances", 0);
        let x = m.add_input("x", DType::F32, &[images, 4, 5, 6]);
        let one = m.add_constant("one", Tensor::from_slice(&[], &[1f32]));
        let norm = Op::LayerNorm(LayerNorm {
            axis: 2,
            epsilon: 1e-5,
            statistics: false,
        });
        let y = m.add("norm", norm, &[x, one]).unwrap();
        let [scale, bias] = ["scale", "bias"].map(|n| m.add_input(n, DType::F32, &[4, 1, 1]));
        let y = m
            .add("scaled", Op::Binary(Binary::Mul), &[y, scale])
            .unwrap();
        let y = add(&mut m, y, bias);
        let y = relu(&mut m, y);
        m.add_output(y);
        assert_eq!(kinds(&judge_both(&m)), ["layer_norm"], "{images} images");
    }
}

#[test]
fn rows_of_several_axes_are_one_axis() {
    let mut m = Model::new("rows", 0);
    let x = m.add_input("x", DType::F32, &[2, 3, 8]);
    let dense = |m: &mut Model, x: ValueId, maps: usize| {
        let w = m.add_constant("w", random(&[m[x].shape()[2], maps], maps as u64));
        let b = m.add_constant("b", random(&[maps], 2));
        let y = m.add("dense", Op::MatMul, &[x, w]).unwrap();
        add(m, y, b)
    };
    let scale = m.add_constant("scale", random(&[8], 1));
    let norm = |m: &mut Model, x: ValueId| {
        let norm = LayerNorm {
            axis: 2,
            epsilon: 1e-5,
            statistics: false,
        };
        m.add("norm", Op::LayerNorm(norm), &[x, scale]).unwrap()
    };
    let y = dense(&mut m, x, 8);
    let y = add(&mut m, y, x);
    let y = norm(&mut m, y);
    let position = m.add_constant("position", random(&[1, 3, 8], 5));
    let placed = add(&mut m, y, position);
    let z = dense(&mut m, placed, 16);
    let z = m
        .add("gelu", Op::Unary(Unary::Gelu(Gelu::Exact)), &[z])
        .unwrap();
    let z = dense(&mut m, z, 8);
    let z = add(&mut m, z, y);
    let z = norm(&mut m, z);
    m.add_output(z);
    let plan = judge_both(&m);
    // The position varies with an axis inside the rows, so it ends a kernel.
    let expected = [
        "dense",
        "layer_norm",
        "elementwise",
        "dense",
        "dense",
        "layer_norm",
    ];
    assert_eq!(kinds(&plan), expected, "{plan}");
    assert_eq!(plan.uses(), [1, 2, 1, 1, 1], "{plan}");
    assert_eq!(plan.tensor(plan.outputs[0]).shape, [2, 3, 8]);
}

/// Parts of a concatenation are written in place, also when it is itself a
/// part, and splits and slices read in place.
#[test]
fn contiguous_parts_are_views() {
    let mut m = Model::new("dense block", 0);
    let x = m.add_input("x", DType::F32, &[1, 3, 4, 4]);
    let mut x = conv(&mut m, "stem", x, 8, 3);
    for _ in 0..3 {
        let y = conv(&mut m, "grow", x, 4, 3);
        let y = relu(&mut m, y);
        x = m
            .add("concat", Op::Concat(Concat { axis: 1 }), &[x, y])
            .unwrap();
    }
    let halves = Split {
        axis: 1,
        sizes: vec![12, 8],
    };
    let halves = m.add_node("split", Op::Split(halves), &[Some(x)]).unwrap();
    let a = conv(&mut m, "a", halves[0], 4, 1);
    let b = conv(&mut m, "b", halves[1], 4, 1);
    let y = add(&mut m, a, b);
    let w = m.add_constant("w", random(&[4, 16], 9));
    let y = m.add("mix", Op::MatMul, &[y, w]).unwrap();
    let slice = Slice {
        starts: vec![0, 2, 1, 0],
        steps: vec![1; 4],
        sizes: vec![1, 1, 2, 16],
    };
    let y = m.add("slice", Op::Slice(slice), &[y]).unwrap();
    m.add_output(y);
    let plan = judge_both(&m);
    let mut kinds = kinds(&plan);
    kinds.sort_unstable();
    let expected = [&["conv2d"; 6][..], &["dense", "layout_transform"]].concat();
    assert_eq!(kinds, expected, "{plan}");
}

/// Two images, shared parts and inputs have to be copied.
#[test]
fn other_concatenations_copy() {
    for (batch, twice, of_input) in [(2, false, false), (1, true, false), (1, false, true)] {
        let mut m = Model::new("copy", 0);
        let image = m.add_input("x", DType::F32, &[batch, 4, 4, 4]);
        let x = conv(&mut m, "x", image, 4, 1);
        let y = conv(&mut m, "y", image, 4, 1);
        let parts = match (twice, of_input) {
            (true, _) => [x, x],
            (_, true) => [image, y],
            _ => [x, y],
        };
        let z = m
            .add("concat", Op::Concat(Concat { axis: 1 }), &parts)
            .unwrap();
        m.add_output(z);
        m.add_output(y);
        let plan = judge_both(&m);
        assert_eq!(
            kinds(&plan).iter().filter(|k| **k == "concat").count(),
            1,
            "{plan}"
        );
    }
}

#[test]
fn batched_scores_keep_their_mask_and_softmax() {
    let mut m = Model::new("scores", 0);
    let q = m.add_input("q", DType::F32, &[2, 3, 4, 5]);
    let k = m.add_input("k", DType::F32, &[2, 3, 5, 6]);
    let mask = m.add_input("mask", DType::F32, &[1, 1, 1, 6]);
    let per_batch = m.add_input("per batch", DType::F32, &[2, 1, 1, 6]);
    let s = m.add("scores", Op::MatMul, &[q, k]).unwrap();
    let s = add(&mut m, s, mask);
    let p = m
        .add("softmax", Op::Softmax(Softmax { axis: 3 }), &[s])
        .unwrap();
    let y = add(&mut m, p, per_batch);
    m.add_output(y);
    let plan = judge_both(&m);
    assert_eq!(kinds(&plan), ["batch_matmul", "softmax", "elementwise"]);
    assert_eq!(plan.tasks[0].args["b"], 6);
    assert_eq!(plan.tasks[1].args["rows"], 24);
}

fn reshape(m: &mut Model, x: ValueId, shape: &[usize]) -> ValueId {
    let shape = shape.to_vec();
    m.add("reshape", Op::Reshape(Reshape { shape }), &[x])
        .unwrap()
}

fn transpose(m: &mut Model, x: ValueId, perm: &[usize]) -> ValueId {
    let perm = perm.to_vec();
    m.add("transpose", Op::Transpose(Transpose { perm }), &[x])
        .unwrap()
}

/// Heads of 4 columns out of [1, 5, 12]: as [1, 3, 5, 4].
fn heads(m: &mut Model, x: ValueId) -> ValueId {
    let x = reshape(m, x, &[1, 5, 3, 4]);
    transpose(m, x, &[0, 2, 1, 3])
}

#[test]
fn products_read_heads_through_their_transposes() {
    let mut m = Model::new("attention", 0);
    let [q, k, v] = ["q", "k", "v"].map(|n| m.add_input(n, DType::F32, &[1, 5, 12]));
    let q = heads(&mut m, q);
    let k = reshape(&mut m, k, &[1, 5, 3, 4]);
    let k = transpose(&mut m, k, &[0, 2, 3, 1]);
    let scores = m.add("scores", Op::MatMul, &[q, k]).unwrap();
    let soft = Op::Softmax(Softmax { axis: 3 });
    let weights = m.add("weights", soft, &[scores]).unwrap();
    let v = heads(&mut m, v);
    let y = m.add("context", Op::MatMul, &[weights, v]).unwrap();
    m.add_output(y);
    let plan = judge_both(&m);
    assert_eq!(
        kinds(&plan),
        ["batch_matmul", "softmax", "batch_matmul"],
        "{plan}"
    );
}

#[test]
fn a_transpose_that_others_read_is_a_kernel() {
    for output in [true, false] {
        let mut m = Model::new("shared", 0);
        let x = m.add_input("x", DType::F32, &[1, 5, 12]);
        let w = m.add_constant("w", random(&[3, 4, 2], 3));
        let h = heads(&mut m, x);
        let y = m.add("y", Op::MatMul, &[h, w]).unwrap();
        m.add_output(y);
        if output {
            m.add_output(h);
        } else {
            let other = relu(&mut m, h);
            let other = transpose(&mut m, other, &[3, 2, 1, 0]);
            m.add_output(other);
        }
        let plan = judge_both(&m);
        assert!(kinds(&plan).contains(&"transpose"), "{plan}");
        let product = plan
            .steps
            .iter()
            .find(|s| plan.tasks[s.task].op == "batch_matmul");
        let read = plan.tensor(product.unwrap().inputs[0]);
        assert_eq!(read.shape, [1, 3, 5, 4], "{plan}");
    }
}

/// A reduction of this kind along one axis.
fn reduced(m: &mut Model, x: ValueId, kind: ReduceKind, axis: usize) -> ValueId {
    let reduce = Reduce {
        kind,
        axes: vec![axis],
        keepdims: false,
    };
    m.add("reduced", Op::Reduce(reduce), &[x]).unwrap()
}

#[test]
fn reductions_compute_the_terms_that_they_alone_read() {
    let mul = Op::Binary(Binary::Mul);
    let mut norm = Model::new("norm", 0);
    let x = norm.add_input("x", DType::F32, &[7, 40]);
    let square = norm.add("square", mul.clone(), &[x, x]).unwrap();
    let sum = reduced(&mut norm, square, ReduceKind::Sum, 1);
    let root = norm.add("root", Op::Unary(Unary::Sqrt), &[sum]).unwrap();
    norm.add_output(root);
    assert_eq!(kinds(&judge_both(&norm)), ["reduce_sum"]);

    // Of several operands, one of them a row, and a constant.
    let mut farthest = Model::new("farthest", 0);
    let x = farthest.add_input("x", DType::F32, &[7, 40]);
    let row = farthest.add_input("row", DType::F32, &[40]);
    let two = farthest.add_constant("two", Tensor::from_slice(&[1], &[2.0f32]));
    let y = farthest.add("y", Op::Binary(Binary::Sub), &[x, row]);
    let y = farthest.add("y", mul.clone(), &[y.unwrap(), two]).unwrap();
    let y = farthest.add("y", Op::Unary(Unary::Abs), &[y]).unwrap();
    let y = reduced(&mut farthest, y, ReduceKind::Max, 0);
    farthest.add_output(y);
    assert_eq!(kinds(&judge_both(&farthest)), ["reduce_max"]);

    // What others read is written.
    let mut shared = Model::new("shared", 0);
    let x = shared.add_input("x", DType::F32, &[7, 40]);
    let square = shared.add("square", mul, &[x, x]).unwrap();
    let sum = reduced(&mut shared, square, ReduceKind::Sum, 1);
    shared.add_output(sum);
    shared.add_output(square);
    assert_eq!(kinds(&judge_both(&shared)), ["elementwise", "reduce_sum"]);
}

/// The variances of images over their pixels, of so many channels that a convolution made.
fn variances(channels: usize) -> Model {
    let mut m = Model::new("variances", 0);
    let x = m.add_input("x", DType::F32, &[2, 8, 5, 6]);
    let x = conv(&mut m, "image", x, channels, 1);
    let mean = |m: &mut Model, x| {
        let reduce = Reduce {
            kind: ReduceKind::Mean,
            axes: vec![2, 3],
            keepdims: true,
        };
        m.add("mean", Op::Reduce(reduce), &[x]).unwrap()
    };
    let middle = mean(&mut m, x);
    let apart = m.add("apart", Op::Binary(Binary::Sub), &[x, middle]);
    let apart = apart.unwrap();
    let square = m.add("square", Op::Binary(Binary::Mul), &[apart, apart]);
    let variance = mean(&mut m, square.unwrap());
    m.add_output(variance);
    m
}

#[test]
fn reductions_over_pixels_compute_terms_of_images_in_blocks() {
    // Also where the last block is not full.
    for channels in [8, 6] {
        let plan = judge_both(&variances(channels));
        let reductions = kinds(&plan).iter().filter(|k| **k == "reduce_mean").count();
        assert_eq!(reductions, 2, "{plan}");
        assert!(!kinds(&plan).contains(&"elementwise"), "{plan}");
    }
}
