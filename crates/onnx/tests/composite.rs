//! ONNX operators that are written out in smaller ones, against their formulas.

mod build_onnx;

use build_onnx::{F32, float, import, int, ints, node, one_node};
use graph::{Keep, evaluate};
use onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

fn run(model: &ModelProto, x: &Tensor) -> Vec<f32> {
    let m = import(model).unwrap();
    m.verify().unwrap();
    let outputs = evaluate(&m, &[Arc::new(x.clone())], Keep::Outputs)
        .unwrap()
        .outputs();
    outputs[0].as_slice::<f32>().to_vec()
}

fn constant(name: &str, values: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![values.len() as i64],
        data_type: Some(F32),
        float_data: values.to_vec(),
        ..Default::default()
    }
}

#[test]
fn activations_follow_their_formulas() {
    type Formula = fn(f64) -> f64;
    let softplus: Formula = |x| x.exp().ln_1p();
    let cases: Vec<(&str, i64, Vec<AttributeProto>, Formula)> = vec![
        ("Elu", 13, vec![float("alpha", 2.0)], |x| {
            if x > 0.0 { x } else { 2.0 * x.exp_m1() }
        }),
        ("Selu", 13, vec![], |x| {
            1.050_701 * if x > 0.0 { x } else { 1.673_263_2 * x.exp_m1() }
        }),
        ("Celu", 13, vec![float("alpha", 0.5)], |x| {
            x.max(0.0) + (0.5 * (x / 0.5).exp_m1()).min(0.0)
        }),
        (
            "ThresholdedRelu",
            13,
            vec![],
            |x| if x > 1.0 { x } else { 0.0 },
        ),
        ("Softplus", 13, vec![], softplus),
        ("Mish", 18, vec![], |x| x * x.exp().ln_1p().tanh()),
        ("Swish", 24, vec![float("alpha", 2.0)], |x| {
            x / (1.0 + (-2.0 * x).exp())
        }),
        ("Softsign", 13, vec![], |x| x / (1.0 + x.abs())),
    ];
    let x = [-3.0f32, -1.0, -0.25, 0.0, 0.5, 1.0, 1.5, 6.0];
    for (op, opset, attributes, formula) in cases {
        let model = one_node(opset, &[8], node(op, &["x"], &["y"], attributes), vec![]);
        let y = run(&model, &Tensor::from_slice(&[8], &x));
        for (x, y) in x.iter().zip(y) {
            let want = formula(f64::from(*x));
            assert!(
                (f64::from(y) - want).abs() <= 1e-6 * want.abs().max(1.0),
                "{op}({x}) = {y}"
            );
        }
    }
    let softplus = one_node(13, &[2], node("Softplus", &["x"], &["y"], vec![]), vec![]);
    assert_eq!(
        run(&softplus, &Tensor::from_slice(&[2], &[-1e4f32, 1e4])),
        [0.0, 1e4]
    );
}

#[test]
fn prelu_has_a_slope_a_channel() {
    let slope = TensorProto {
        dims: vec![2, 1],
        ..constant("s", &[0.5, 2.0])
    };
    let model = one_node(
        13,
        &[2, 2],
        node("PRelu", &["x", "s"], &["y"], vec![]),
        vec![slope],
    );
    let x = Tensor::from_slice(&[2, 2], &[-1.0f32, 4.0, -1.0, -3.0]);
    assert_eq!(run(&model, &x), [-0.5, 4.0, -2.0, -6.0]);
}

#[test]
fn normalisation_of_instances_and_groups() {
    let x = fill_tensor(DType::F32, &[2, 4, 3, 2], Fill::Normal { std: 2.0 }, 1);
    let (scale, bias) = ([1.0f32, 2.0, 0.5, 3.0], [0.0f32, 1.0, -1.0, 0.5]);
    let parameters = || vec![constant("s", &scale), constant("b", &bias)];
    let shape = [2, 4, 3, 2];
    let instance = node("InstanceNormalization", &["x", "s", "b"], &["y"], vec![]);
    let group = |groups| {
        let attributes = vec![int("num_groups", groups)];
        node("GroupNormalization", &["x", "s", "b"], &["y"], attributes)
    };
    for (groups, node) in [(4, instance), (4, group(4)), (2, group(2)), (1, group(1))] {
        let y = run(&one_node(21, &shape, node, parameters()), &x);
        let size = 24 / groups;
        for (i, y) in y.iter().enumerate() {
            let part = || (0..size).map(|k| x.get_f64(i / size * size + k));
            let mean = part().sum::<f64>() / size as f64;
            let variance = part().map(|v| (v - mean) * (v - mean)).sum::<f64>() / size as f64;
            let c = i / 6 % 4;
            let normal = (x.get_f64(i) - mean) / (variance + 1e-5).sqrt();
            let want = normal * f64::from(scale[c]) + f64::from(bias[c]);
            assert!(
                (f64::from(*y) - want).abs() < 1e-5,
                "{groups} groups, {i}: {y} for {want}"
            );
        }
    }
    let uneven = one_node(21, &shape, group(3), parameters());
    assert!(
        import(&uneven)
            .unwrap_err()
            .to_string()
            .contains("num_groups=3")
    );
}

#[test]
fn rms_normalisation_over_the_last_axes() {
    let x = Tensor::from_slice(&[1, 2, 2], &[3.0f32, 4.0, 0.0, 5.0]);
    let norm = node(
        "RMSNormalization",
        &["x", "s"],
        &["y"],
        vec![float("epsilon", 0.0), int("axis", 1)],
    );
    let y = run(
        &one_node(23, &[1, 2, 2], norm, vec![constant("s", &[1.0, 2.0])]),
        &x,
    );
    let root = (50.0f32 / 4.0).sqrt();
    let want = [3.0 / root, 8.0 / root, 0.0, 10.0 / root];
    assert!(
        y.iter().zip(want).all(|(y, w)| (y - w).abs() < 1e-6),
        "{y:?} for {want:?}"
    );
}

#[test]
fn depth_to_space_and_back() {
    let x = fill_tensor(DType::F32, &[1, 8, 2, 3], Fill::Normal { std: 1.0 }, 2);
    for mode in ["DCR", "CRD"] {
        let attributes = || vec![int("blocksize", 2), build_onnx::text("mode", mode)];
        let out = run(
            &one_node(
                13,
                &[1, 8, 2, 3],
                node("DepthToSpace", &["x"], &["y"], attributes()),
                vec![],
            ),
            &x,
        );
        // Channel block (1, 0) of output channel 1 lands at row 1, column 0.
        let channel = if mode == "DCR" { 2 * 2 + 1 } else { 4 + 2 };
        assert_eq!(f64::from(out[24 + 6]), x.get_f64(channel * 6), "{mode}");
        let back = node("SpaceToDepth", &["x"], &["y"], attributes());
        let wide = Tensor::from_slice(&[1, 2, 4, 6], &out);
        assert_eq!(
            run(&one_node(13, &[1, 2, 4, 6], back, vec![]), &wide),
            x.as_slice::<f32>()
        );
    }
}

#[test]
fn tiles_repeat_every_axis() {
    let repeats = build_onnx::int64s("r", &[2, 2]);
    let model = one_node(
        13,
        &[1, 2],
        node("Tile", &["x", "r"], &["y"], vec![]),
        vec![repeats],
    );
    let x = Tensor::from_slice(&[1, 2], &[1.0f32, 2.0]);
    assert_eq!(run(&model, &x), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn other_norms_of_reductions() {
    let x = Tensor::from_slice(&[2, 2], &[3.0f32, -4.0, 0.0, 1.0]);
    let reduce = |op: &str| {
        let attributes = vec![ints("axes", &[1]), int("keepdims", 0)];
        run(
            &one_node(13, &[2, 2], node(op, &["x"], &["y"], attributes), vec![]),
            &x,
        )
    };
    assert_eq!(reduce("ReduceL1"), [7.0, 1.0]);
    assert_eq!(reduce("ReduceL2"), [5.0, 1.0]);
    assert_eq!(reduce("ReduceSumSquare"), [25.0, 1.0]);
    let want = [
        (3.0f64.exp() + (-4.0f64).exp()).ln(),
        (1.0 + 1.0f64.exp()).ln(),
    ];
    let y = reduce("ReduceLogSumExp");
    assert!(
        y.iter()
            .zip(want)
            .all(|(y, w)| (f64::from(*y) - w).abs() < 1e-6),
        "{y:?}"
    );
}

fn one_output(op: NodeProto, constants: Vec<TensorProto>) -> Arc<Tensor> {
    build_onnx::outputs(&build_onnx::file(
        18,
        GraphProto {
            name: Some("g".into()),
            node: vec![op],
            initializer: constants,
            output: vec![build_onnx::undeclared("y")],
            ..Default::default()
        },
    ))
    .remove(0)
}

#[test]
fn remainders_of_floats_are_exact() {
    let x = [
        5.3,
        -5.3,
        1e30,
        f32::MAX,
        3e-45,
        7.0,
        -0.5,
        1.0,
        f32::INFINITY,
        16_777_215.0,
        0.3,
        1e20,
    ];
    let y = [
        2.0,
        2.0,
        3.7,
        1e-45,
        1e-45,
        0.0,
        f32::INFINITY,
        f32::NAN,
        2.0,
        0.1,
        -0.1,
        1e-20,
    ];
    let mut count = x.len();
    let (mut x, mut y) = (x.to_vec(), y.to_vec());
    // And any bits.
    let mut bits = 1u32;
    while count < 4000 {
        let mut next = || {
            bits = bits.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            f32::from_bits(bits ^ bits >> 15)
        };
        x.push(next());
        y.push(next());
        count += 1;
    }
    let constants = vec![constant("a", &x), constant("b", &y)];
    let z = one_output(
        node("Mod", &["a", "b"], &["y"], vec![int("fmod", 1)]),
        constants,
    );
    for (i, z) in z.as_slice::<f32>().iter().enumerate() {
        let expected = x[i] % y[i];
        let same = *z == expected || z.is_nan() && expected.is_nan();
        assert!(same, "{} of {} is {expected}, not {z}", x[i], y[i]);
    }
}

#[test]
fn means_of_integers_are_cut() {
    let x = build_onnx::int64s("a", &[7, -3, -5, 4, 0, -8]);
    let y = one_output(
        node("ReduceMean", &["a"], &["y"], vec![int("keepdims", 0)]),
        vec![x],
    );
    // -5 / 6
    assert_eq!((y.dtype(), y.get_i64(0)), (DType::I64, 0));
    let x = build_onnx::int64s("a", &[-7, -4]);
    let y = one_output(node("ReduceMean", &["a"], &["y"], vec![]), vec![x]);
    assert_eq!(y.get_i64(0), -5);
}

/// The specification's formula leaves 0 times NaN open; its reference and ONNX Runtime do not
/// read an addend of factor 0, as BLAS does.
#[test]
fn an_addend_that_counts_nothing_is_not_read() {
    let beta = || vec![float("beta", 0.0)];
    let addend = || constant("c", &[f32::NAN, f32::INFINITY, 2.0]);
    let product = |a: TensorProto, b: TensorProto| {
        one_output(
            node("Gemm", &["a", "b", "c"], &["y"], beta()),
            vec![a, b, addend()],
        )
    };
    let y = product(
        build_onnx::floats("a", &[1, 2], &[1.0, 2.0]),
        build_onnx::floats("b", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    );
    assert_eq!(y.as_slice::<f32>(), [9.0, 12.0, 15.0]);
    let none = |name: &str, dims: &[i64]| build_onnx::floats(name, dims, &[]);
    let y = product(none("a", &[1, 0]), none("b", &[0, 3]));
    assert_eq!(y.as_slice::<f32>(), [0.0; 3]);
}

#[test]
fn a_product_of_no_terms_is_its_addend() {
    let empty = |name: &str, dims: &[i64]| build_onnx::floats(name, dims, &[]);
    let constants = vec![
        empty("a", &[2, 0]),
        empty("b", &[3, 0]),
        constant("c", &[1.0, 2.0, 3.0]),
    ];
    let attributes = vec![int("transB", 1), float("beta", 2.0)];
    let y = one_output(
        node("Gemm", &["a", "b", "c"], &["y"], attributes),
        constants,
    );
    assert_eq!(y.shape(), [2, 3]);
    assert_eq!(y.as_slice::<f32>(), [2.0, 4.0, 6.0, 2.0, 4.0, 6.0]);
    let constants = vec![empty("a", &[0, 2]), empty("b", &[0, 1])];
    let y = one_output(
        node("Gemm", &["a", "b"], &["y"], vec![int("transA", 1)]),
        constants,
    );
    assert_eq!(
        (y.shape(), y.as_slice::<f32>()),
        (&[2, 1][..], &[0.0, 0.0][..])
    );
}
