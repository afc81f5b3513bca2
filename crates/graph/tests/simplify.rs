//! Simplification keeps the outputs and reaches the form it promises.

use graph::ops::*;
use graph::{Keep, Model, ValueId, evaluate, simplify};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, compare, fill_tensor};

fn constant(m: &mut Model, name: &str, shape: &[usize], seed: u64) -> ValueId {
    m.add_constant(
        name,
        fill_tensor(DType::F32, shape, Fill::Uniform { lo: 0.5, hi: 2.0 }, seed),
    )
}

fn batch_norm(m: &mut Model, name: &str, x: ValueId) -> ValueId {
    let channels = m[x].shape()[1];
    let parameters = [1, 2, 3, 4].map(|i| constant(m, "parameter", &[channels], i));
    let inputs = [&[x][..], &parameters].concat();
    m.add(name, Op::BatchNorm(BatchNorm { epsilon: 1e-3 }), &inputs)
        .unwrap()
}

fn names(m: &Model) -> Vec<&'static str> {
    m.nodes().map(|(_, n)| n.op.name()).collect()
}

/// Simplifies, checks that outputs stay the same, and returns the result.
fn simplified(m: &Model) -> Model {
    m.verify().unwrap();
    let s = simplify(m);
    s.verify().unwrap();
    let inputs: Vec<_> = m
        .inputs()
        .iter()
        .map(|v| {
            Arc::new(fill_tensor(
                m[*v].dtype(),
                m[*v].shape(),
                Fill::Normal { std: 1.0 },
                7,
            ))
        })
        .collect();
    let run = |m: &Model| evaluate(m, &inputs, Keep::Outputs).unwrap().outputs();
    for (a, e) in run(&s).iter().zip(run(m)) {
        assert!(compare(a, &e).within(1e-6), "{:?}", compare(a, &e));
    }
    let names = |m: &Model| {
        m.outputs()
            .iter()
            .map(|v| m[*v].name().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&s), names(m));
    s
}

#[test]
fn batch_norm_folds_into_convolutions() {
    for groups in [1, 2] {
        let mut m = Model::new("m", 0);
        let x = m.add_input("x", DType::F32, &[1, 4, 6, 6]);
        let w = constant(&mut m, "w", &[6, 4 / groups, 3, 3], 1);
        let conv = m
            .add(
                "conv",
                Op::Conv(Conv {
                    groups,
                    ..Conv::unit(2)
                }),
                &[x, w],
            )
            .unwrap();
        let bn = batch_norm(&mut m, "bn", conv);
        let y = m.add("y", Op::Unary(Unary::Relu), &[bn]).unwrap();
        m.add_output(y);
        assert_eq!(names(&simplified(&m)), ["conv", "relu"]);
    }
}

#[test]
fn batch_norm_folds_into_transposed_convolutions() {
    for groups in [1, 2] {
        let mut m = Model::new("m", 0);
        let x = m.add_input("x", DType::F32, &[1, 4, 5]);
        let w = constant(&mut m, "w", &[4, 3, 3], 1);
        let b = constant(&mut m, "b", &[3 * groups], 2);
        let op = ConvTranspose {
            strides: vec![2],
            dilations: vec![1],
            pads: vec![(1, 0)],
            output_padding: vec![0],
            groups,
        };
        let conv = m.add("conv", Op::ConvTranspose(op), &[x, w, b]).unwrap();
        let bn = batch_norm(&mut m, "bn", conv);
        m.add_output(bn);
        assert_eq!(names(&simplified(&m)), ["conv_transpose"]);
    }
}

#[test]
fn batch_norm_elsewhere_is_a_product_and_a_sum() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[2, 3, 4]);
    let bn = batch_norm(&mut m, "bn", x);
    m.add_output(bn);
    assert_eq!(names(&simplified(&m)), ["mul", "add"]);
}

#[test]
fn a_convolution_with_another_reader_is_left_alone() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[1, 2, 4, 4]);
    let w = constant(&mut m, "w", &[3, 2, 1, 1], 1);
    let conv = m.add("conv", Op::Conv(Conv::unit(2)), &[x, w]).unwrap();
    let bn = batch_norm(&mut m, "bn", conv);
    m.add_output(bn);
    m.add_output(conv);
    assert_eq!(names(&simplified(&m)), ["conv", "mul", "add"]);
}

#[test]
fn constant_scales_and_shifts_fold_too() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[1, 2, 4, 4]);
    let w = constant(&mut m, "w", &[3, 2, 1, 1], 1);
    let mut v = m.add("conv", Op::Conv(Conv::unit(2)), &[x, w]).unwrap();
    for (op, shape) in [
        (Binary::Mul, &[3, 1, 1][..]),
        (Binary::Add, &[1, 3, 1, 1]),
        (Binary::Div, &[]),
        (Binary::Sub, &[3, 1, 1]),
    ] {
        let c = constant(&mut m, "c", shape, 5);
        v = m.add(op.name(), Op::Binary(op), &[v, c]).unwrap();
    }
    // One value a column is not one a channel.
    let c = constant(&mut m, "row", &[4], 6);
    let y = m.add("y", Op::Binary(Binary::Add), &[v, c]).unwrap();
    m.add_output(y);
    assert_eq!(names(&simplified(&m)), ["conv", "add"]);
}

#[test]
fn padding_moves_into_the_convolution() {
    let pad = |mode| {
        let mut m = Model::new("m", 0);
        let x = m.add_input("x", DType::F32, &[1, 2, 4, 4]);
        let pads = vec![(0, 0), (0, 0), (1, 2), (0, 1)];
        let p = m.add("pad", Op::Pad(Pad { mode, pads }), &[x]).unwrap();
        let w = constant(&mut m, "w", &[3, 2, 3, 3], 1);
        let y = m.add("y", Op::Conv(Conv::unit(2)), &[p, w]).unwrap();
        m.add_output(y);
        names(&simplified(&m))
    };
    assert_eq!(pad(PadMode::Constant(0.0)), ["conv"]);
    assert_eq!(pad(PadMode::Constant(1.0)), ["pad", "conv"]);
    assert_eq!(pad(PadMode::Edge), ["pad", "conv"]);
}

#[test]
fn no_ops_and_constants_go() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[2, 3]);
    let (a, b) = (
        constant(&mut m, "a", &[3], 1),
        constant(&mut m, "b", &[3], 2),
    );
    let ab = m.add("ab", Op::Binary(Binary::Mul), &[a, b]).unwrap();
    let mut v = x;
    for shape in [vec![6], vec![3, 2], vec![2, 3]] {
        v = m
            .add("reshape", Op::Reshape(Reshape { shape }), &[v])
            .unwrap();
    }
    for _ in 0..2 {
        v = m
            .add("flip", Op::Transpose(Transpose { perm: vec![1, 0] }), &[v])
            .unwrap();
    }
    v = m.add("id", Op::Identity, &[v]).unwrap();
    v = m.add("cast", Op::Cast(DType::F32), &[v]).unwrap();
    let y = m.add("y", Op::Binary(Binary::Add), &[v, ab]).unwrap();
    m.add_output(y);
    let s = simplified(&m);
    assert_eq!(names(&s), ["add"]);
    assert_eq!(s.constants().count(), 1);
}

#[test]
fn slices_read_the_part_of_a_concatenation_that_has_their_elements() {
    let slice = |starts: [usize; 2], steps: [i64; 2], sizes: [usize; 2]| {
        Op::Slice(Slice {
            starts: starts.to_vec(),
            steps: steps.to_vec(),
            sizes: sizes.to_vec(),
        })
    };
    let of = |slices: &[Op]| {
        let mut m = Model::new("m", 0);
        let c = constant(&mut m, "c", &[2, 3], 1);
        let x = m.add_input("x", DType::F32, &[4, 3]);
        let all = Op::Concat(Concat { axis: 0 });
        let mut v = m.add("all", all, &[c, x]).unwrap();
        for s in slices {
            v = m.add("slice", s.clone(), &[v]).unwrap();
        }
        let y = m.add("y", Op::Unary(Unary::Neg), &[v]).unwrap();
        m.add_output(y);
        names(&simplified(&m))
    };
    let inside = slice([2, 0], [1, 1], [4, 3]);
    assert_eq!(of(std::slice::from_ref(&inside)), ["neg"]);
    assert_eq!(of(&[slice([1, 0], [-1, 1], [2, 3])]), [""; 0]);
    assert_eq!(of(&[slice([5, 2], [-1, -1], [4, 2])]), ["slice", "neg"]);
    assert_eq!(
        of(&[inside, slice([3, 1], [-2, 1], [2, 2])]),
        ["slice", "neg"]
    );
    assert_eq!(
        of(&[slice([1, 0], [1, 1], [4, 3])]),
        ["concat", "slice", "neg"]
    );
    assert_eq!(
        of(&[slice([5, 0], [-2, 1], [3, 3])]),
        ["concat", "slice", "neg"]
    );
}

#[test]
fn a_model_of_constants_becomes_its_value() {
    let mut m = Model::new("m", 0);
    let c = m.add_constant("c", Tensor::from_slice(&[1], &[4.0f32]));
    let y = m.add("y", Op::Unary(Unary::Sqrt), &[c]).unwrap();
    m.add_output(y);
    let s = simplified(&m);
    assert_eq!(s.nodes().len(), 0);
    assert_eq!(s.constant(s.outputs()[0]).unwrap().as_slice::<f32>(), [2.0]);
}

fn scalar(m: &mut Model, v: f32) -> ValueId {
    m.add_constant("scalar", Tensor::from_slice(&[], &[v]))
}

fn mul(m: &mut Model, a: ValueId, b: ValueId) -> ValueId {
    m.add("mul", Op::Binary(Binary::Mul), &[a, b]).unwrap()
}

fn add(m: &mut Model, a: ValueId, b: ValueId) -> ValueId {
    m.add("add", Op::Binary(Binary::Add), &[a, b]).unwrap()
}

/// 1 + erf(x / sqrt 2), or its approximation by tanh.
fn gate(m: &mut Model, x: ValueId, kind: Gelu) -> ValueId {
    let one = scalar(m, 1.0);
    let inner = if kind == Gelu::Exact {
        let root = scalar(m, std::f32::consts::SQRT_2);
        let scaled = m.add("div", Op::Binary(Binary::Div), &[x, root]).unwrap();
        m.add("erf", Op::Unary(Unary::Erf), &[scaled]).unwrap()
    } else {
        let (three, small, scale) = (scalar(m, 3.0), scalar(m, 0.044715), scalar(m, 0.797_884_6));
        let cube = m.add("pow", Op::Binary(Binary::Pow), &[x, three]).unwrap();
        let cubic = mul(m, small, cube);
        let sum = add(m, x, cubic);
        let scaled = mul(m, sum, scale);
        m.add("tanh", Op::Unary(Unary::Tanh), &[scaled]).unwrap()
    };
    add(m, inner, one)
}

#[test]
fn written_out_gelu_is_recognised_in_every_nesting() {
    for (kind, name) in [(Gelu::Exact, "gelu"), (Gelu::Tanh, "gelu_tanh")] {
        for nesting in 0..4 {
            let mut m = Model::new("m", 0);
            let x = m.add_input("x", DType::F32, &[3, 4]);
            let other = m.add("other", Op::Unary(Unary::Neg), &[x]).unwrap();
            let (g, half) = (gate(&mut m, x, kind), scalar(&mut m, 0.5));
            let (first, second, third) =
                [(x, g, half), (g, half, x), (x, half, g), (other, g, half)][nesting];
            let inner = mul(&mut m, first, second);
            let y = mul(&mut m, inner, third);
            m.add_output(y);
            let found = names(&simplified(&m));
            // With another factor than the gate's own operand it is no GELU.
            assert_eq!(
                found == [name],
                nesting < 3,
                "{kind:?} {nesting}: {found:?}"
            );
        }
    }
}

#[test]
fn constants_of_a_higher_rank_do_not_make_another_gelu() {
    let mut m = Model::new("m", 0);
    let x = m.add_input("x", DType::F32, &[3, 4]);
    let g = gate(&mut m, x, Gelu::Exact);
    let half = m.add_constant("half", Tensor::from_slice(&[1, 1, 1], &[0.5f32]));
    let gated = mul(&mut m, x, g);
    let y = mul(&mut m, gated, half);
    m.add_output(y);
    let s = simplified(&m);
    assert_eq!(s[s.outputs()[0]].shape(), [1, 3, 4]);
    assert!(!names(&s).contains(&"gelu"), "{s}");
}

#[test]
fn written_out_layer_norm_is_recognised() {
    for (axes, recognised) in [(vec![2], true), (vec![1, 2], true), (vec![1], false)] {
        let mut m = Model::new("m", 0);
        let x = m.add_input("x", DType::F32, &[2, 3, 4]);
        let mean = |m: &mut Model, v| {
            let reduce = Reduce {
                kind: ReduceKind::Mean,
                axes: axes.clone(),
                keepdims: true,
            };
            m.add("mean", Op::Reduce(reduce), &[v]).unwrap()
        };
        let average = mean(&mut m, x);
        let centred = m
            .add("centre", Op::Binary(Binary::Sub), &[x, average])
            .unwrap();
        let two = scalar(&mut m, 2.0);
        let square = m
            .add("square", Op::Binary(Binary::Pow), &[centred, two])
            .unwrap();
        let variance = mean(&mut m, square);
        let epsilon = scalar(&mut m, 1e-5);
        let shifted = add(&mut m, epsilon, variance);
        let deviation = m.add("root", Op::Unary(Unary::Sqrt), &[shifted]).unwrap();
        let normal = m
            .add("normal", Op::Binary(Binary::Div), &[centred, deviation])
            .unwrap();
        let (scale, bias) = (
            constant(&mut m, "scale", &[4], 1),
            constant(&mut m, "bias", &[4], 2),
        );
        let scaled = mul(&mut m, scale, normal);
        let y = add(&mut m, bias, scaled);
        m.add_output(y);
        let found = names(&simplified(&m));
        assert_eq!(found == ["layer_norm"], recognised, "{found:?}");
        assert!(!found.contains(&"pow"));
    }
}

/// Queries, keys and values of one product, as exporters write them.
#[test]
fn columns_that_are_read_in_parts_are_products_of_their_own() {
    let mut m = Model::new("parts", 0);
    let x = m.add_input("x", DType::F32, &[2, 5, 8]);
    let w = constant(&mut m, "w", &[8, 3 * 2 * 32], 1);
    let b = constant(&mut m, "b", &[3 * 2 * 32], 2);
    let all = m.add("product", Op::MatMul, &[x, w]).unwrap();
    let all = m.add("bias", Op::Binary(Binary::Add), &[b, all]).unwrap();
    let shape = vec![2, 5, 3, 2, 32];
    let all = m
        .add("heads", Op::Reshape(Reshape { shape }), &[all])
        .unwrap();
    let perm = vec![2, 0, 3, 1, 4];
    let all = m
        .add("first", Op::Transpose(Transpose { perm }), &[all])
        .unwrap();
    for index in [0i64, -2, 2] {
        let i = m.add_constant("i", Tensor::from_slice(&[], &[index]));
        let part = m
            .add("part", Op::Gather(Gather { axis: 0 }), &[all, i])
            .unwrap();
        m.add_output(part);
    }
    let s = simplified(&m);
    let count = |name: &str| names(&s).iter().filter(|n| **n == name).count();
    assert_eq!((count("matmul"), count("gather")), (3, 0), "{s}");
}

#[test]
fn halves_of_a_product_are_two_products_and_parts_that_overlap_are_not() {
    for starts in [[0, 40], [0, 39]] {
        let mut m = Model::new("halves", 0);
        let x = m.add_input("x", DType::F32, &[3, 8]);
        let w = constant(&mut m, "w", &[8, 80], 1);
        let all = m.add("product", Op::MatMul, &[x, w]).unwrap();
        for start in starts {
            let slice = Slice {
                starts: vec![0, start],
                steps: vec![1, 1],
                sizes: vec![3, 41.min(80 - start)],
            };
            let half = m.add("half", Op::Slice(slice), &[all]).unwrap();
            m.add_output(half);
        }
        let s = simplified(&m);
        let products = names(&s).iter().filter(|n| **n == "matmul").count();
        assert_eq!(products, 1, "{s}");
    }
    let mut m = Model::new("halves", 0);
    let x = m.add_input("x", DType::F32, &[3, 8]);
    let w = constant(&mut m, "w", &[8, 80], 1);
    let all = m.add("product", Op::MatMul, &[x, w]).unwrap();
    let split = Split {
        axis: 1,
        sizes: vec![45, 35],
    };
    for half in m.add_node("split", Op::Split(split), &[Some(all)]).unwrap() {
        m.add_output(half);
    }
    assert_eq!(names(&simplified(&m)), ["matmul", "matmul"]);
}

/// A model of one node of `x` with constant indices, and updates where it takes them.
fn indexed(op: Op, x: &[usize], indices: &Tensor, updates: Option<&[usize]>) -> Model {
    let mut m = Model::new("indexed", 0);
    let data = m.add_input("x", DType::F32, x);
    let mut inputs = vec![data, m.add_constant("indices", indices.clone())];
    inputs.extend(updates.map(|shape| m.add_input("updates", DType::F32, shape)));
    let y = m.add("node", op, &inputs).unwrap();
    m.add_output(y);
    m
}

#[test]
fn indices_in_a_row_are_slices() {
    let gathered_as = |shape: &[usize], indices: &[i64]| {
        let indices = Tensor::from_slice(shape, indices);
        let gather = Op::Gather(Gather { axis: 1 });
        names(&simplified(&indexed(gather, &[3, 9, 2], &indices, None)))
    };
    let gathered = |indices: &[i64]| gathered_as(&[indices.len()], indices);
    assert_eq!(gathered(&[2, 3, 4]), ["slice"]);
    assert_eq!(gathered(&[1, 3, -4, 7]), ["slice"]);
    assert_eq!(gathered(&[8, 6, 4]), ["slice"]);
    assert_eq!(gathered(&[-1]), ["slice"]);
    assert_eq!(gathered(&[2, 3, 5]), ["gather"]);
    assert_eq!(gathered(&[2, 2]), ["gather"]);
    assert_eq!(gathered_as(&[], &[-2]), ["slice", "reshape"]);
    assert_eq!(gathered_as(&[1, 2], &[4, 6]), ["slice", "reshape"]);
    assert_eq!(gathered_as(&[2, 2], &[1, 2, 3, 4]), ["gather"]);
}

/// Single elements at indices that are the same for whole rows; a spread index and a constant one are alike.
#[test]
fn elements_by_indices_of_rows_are_rows() {
    let along = |axis: usize, indices: &[i64]| {
        let axes = [4, 3, 5];
        let mut shape = axes.to_vec();
        shape[axis] = indices.len();
        let inner: usize = shape[axis + 1..].iter().product();
        let all: Vec<i64> = (0..shape.iter().product())
            .map(|i| indices[i / inner % indices.len()])
            .collect();
        let all = Tensor::from_slice(&shape, &all);
        let gather = Op::GatherElements(GatherElements { axis });
        names(&simplified(&indexed(gather, &axes, &all, None)))
    };
    assert_eq!(along(0, &[3, -1, 0]), ["gather"]);
    assert_eq!(along(1, &[2, 0, 0, 1]), ["gather"]);
    assert_eq!(along(2, &[1, 2, 3]), ["slice"]);
    let uneven = Tensor::from_slice(&[2, 2], &[0i64, 1, 1, 1]);
    let gather = Op::GatherElements(GatherElements { axis: 0 });
    let model = indexed(gather.clone(), &[3, 2], &uneven, None);
    assert_eq!(names(&simplified(&model)), ["gather_elements"]);
    let part = Tensor::from_slice(&[2, 1], &[2i64, 0]);
    let model = indexed(gather.clone(), &[3, 2], &part, None);
    assert_eq!(
        names(&simplified(&model)),
        ["gather_elements"],
        "of one column alone"
    );
    let spread = |from: &[usize]| {
        let mut m = Model::new("spread", 0);
        let x = m.add_input("x", DType::F32, &[3, 2]);
        let i = m.add_input("i", DType::F32, from);
        let zero = m.add("zero", Op::Binary(Binary::Mul), &[i, i]).unwrap();
        let zero = m.add("less", Op::Binary(Binary::Less), &[zero, i]).unwrap();
        let index = m.add("index", Op::Cast(DType::I64), &[zero]).unwrap();
        let expand = Op::Expand(Expand { shape: vec![4, 2] });
        let index = m.add("expand", expand, &[index]).unwrap();
        let y = m.add("y", gather.clone(), &[x, index]).unwrap();
        m.add_output(y);
        names(&simplified(&m)).last().copied()
    };
    assert_eq!(spread(&[4, 1]), Some("gather"));
    assert_eq!(spread(&[1, 2]), Some("gather_elements"));
}

#[test]
fn rows_that_are_assigned_are_parts() {
    let assigned = |combine: Combine, indices: &[i64]| {
        let n = indices.len();
        let indices = Tensor::from_slice(&[n, 1], indices);
        let scatter = Op::ScatterNd(ScatterNd { combine });
        let model = indexed(scatter, &[4, 5], &indices, Some(&[n, 5]));
        names(&simplified(&model))
    };
    let set = |indices: &[i64]| assigned(Combine::Replace, indices);
    assert_eq!(set(&[1, 2]), ["slice", "slice", "concat"]);
    assert_eq!(set(&[0]), ["slice", "concat"]);
    assert_eq!(set(&[-2, -1]), ["slice", "concat"]);
    assert_eq!(set(&[0, 1, 2, 3]), ["identity"], "the output has its name");
    assert_eq!(set(&[1, 3]), ["scatter_nd"]);
    assert_eq!(set(&[2, 1]), ["scatter_nd"]);
    assert_eq!(assigned(Combine::Add, &[1, 2]), ["scatter_nd"]);
}
