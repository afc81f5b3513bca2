//! Importing ONNX files: forms of operators by operator set, binding, errors.
//!
//! Long: `attribute_and_input_forms_agree` is one table of pairs of nodes.

mod build_onnx;

use build_onnx::{
    F32, I64, Size, file, float, import, import_with, int, int64s, ints, known, node, one_node,
    output, outputs, text, undeclared, value,
};
use graph::Op;
use onnx::proto::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto};
use onnx::{ImportError, ImportOptions, import_bytes, read_tensor_proto};
use prost::Message;
use std::slice::from_ref;
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, fill_tensor};

#[test]
fn attribute_and_input_forms_agree() {
    let constants = || {
        vec![
            int64s("a", &[1]),
            int64s("b", &[3]),
            int64s("axes", &[-1]),
            int64s("s", &[2]),
        ]
    };
    let pairs = [
        (
            (
                9,
                node(
                    "Slice",
                    &["x"],
                    &["y"],
                    vec![ints("starts", &[1]), ints("ends", &[3]), ints("axes", &[1])],
                ),
            ),
            (13, node("Slice", &["x", "a", "b", "axes"], &["y"], vec![])),
        ),
        (
            (
                12,
                node("ReduceSum", &["x"], &["y"], vec![ints("axes", &[-1])]),
            ),
            (13, node("ReduceSum", &["x", "axes"], &["y"], vec![])),
        ),
        (
            (
                17,
                node(
                    "ReduceMean",
                    &["x"],
                    &["y"],
                    vec![ints("axes", &[1]), int("keepdims", 0)],
                ),
            ),
            (
                18,
                node(
                    "ReduceMean",
                    &["x", "axes"],
                    &["y"],
                    vec![int("keepdims", 0)],
                ),
            ),
        ),
        (
            (
                12,
                node("Unsqueeze", &["x"], &["y"], vec![ints("axes", &[2])]),
            ),
            (13, node("Unsqueeze", &["x", "axes"], &["y"], vec![])),
        ),
        (
            (
                10,
                node(
                    "Clip",
                    &["x"],
                    &["y"],
                    vec![float("min", 1.0), float("max", 3.0)],
                ),
            ),
            (13, node("Clip", &["x", "low", "high"], &["y"], vec![])),
        ),
        (
            (
                10,
                node(
                    "Pad",
                    &["x"],
                    &["y"],
                    vec![ints("pads", &[0, 1, 0, 0]), float("value", 9.0)],
                ),
            ),
            (
                13,
                node(
                    "Pad",
                    &["x", "pads", "nine"],
                    &["y"],
                    vec![text("mode", "constant")],
                ),
            ),
        ),
        (
            (
                12,
                node(
                    "Split",
                    &["x"],
                    &["y", "z"],
                    vec![int("axis", 1), ints("split", &[1, 2])],
                ),
            ),
            (
                13,
                node("Split", &["x", "parts"], &["y", "z"], vec![int("axis", 1)]),
            ),
        ),
    ];
    let scalar = |name: &str, v: f32| TensorProto {
        name: Some(name.into()),
        data_type: Some(F32),
        float_data: vec![v],
        ..Default::default()
    };
    for ((old, by_attribute), (new, by_input)) in pairs {
        let mut constants = constants();
        constants.extend([scalar("low", 1.0), scalar("high", 3.0), scalar("nine", 9.0)]);
        constants.extend([int64s("pads", &[0, 1, 0, 0]), int64s("parts", &[1, 2])]);
        let a = outputs(&one_node(old, &[2, 3], by_attribute.clone(), vec![]));
        let b = outputs(&one_node(new, &[2, 3], by_input, constants));
        assert_eq!(a, b, "{:?}", by_attribute.op_type);
    }
}

#[test]
fn slices_clamp_and_step_backwards() {
    let slice = |starts: i64, ends: i64, steps: i64| {
        let constants = vec![
            int64s("a", &[starts]),
            int64s("b", &[ends]),
            int64s("c", &[0]),
            int64s("d", &[steps]),
        ];
        output(&one_node(
            13,
            &[5],
            node("Slice", &["x", "a", "b", "c", "d"], &["y"], vec![]),
            constants,
        ))
        .1
    };
    assert_eq!(slice(-100, 100, 2), [0.0, 2.0, 4.0]);
    assert_eq!(slice(-1, i64::MIN, -2), [4.0, 2.0, 0.0]);
    assert_eq!(slice(100, -100, -1), [4.0, 3.0, 2.0, 1.0, 0.0]);
    assert_eq!(slice(3, 1, 1), [0.0; 0]);
    assert_eq!(slice(0, i64::MAX, i64::MAX), [0.0]);
    assert_eq!(slice(4, 1, -2), [4.0, 2.0]);
}

#[test]
fn softmax_flattens_before_operator_set_13() {
    let old = output(&one_node(
        11,
        &[2, 2, 2],
        node("Softmax", &["x"], &["y"], vec![]),
        vec![],
    ));
    let new = output(&one_node(
        13,
        &[2, 2, 2],
        node("Softmax", &["x"], &["y"], vec![]),
        vec![],
    ));
    assert_eq!(old.0, [2, 2, 2]);
    let sum = |v: &[f32]| v.iter().map(|v| f64::from(*v)).sum::<f64>();
    assert!((sum(&old.1[..4]) - 1.0).abs() < 1e-6);
    assert!((sum(&new.1[..2]) - 1.0).abs() < 1e-6);
    assert!((sum(&new.1[..4]) - 2.0).abs() < 1e-6);
}

#[test]
fn auto_padding() {
    let conv = |auto: &str, stride: i64| {
        let w = TensorProto {
            name: Some("w".into()),
            dims: vec![1, 1, 2],
            data_type: Some(F32),
            float_data: vec![1.0, 10.0],
            ..Default::default()
        };
        let attributes = vec![text("auto_pad", auto), ints("strides", &[stride])];
        output(&one_node(
            11,
            &[1, 1, 3],
            node("Conv", &["x", "w"], &["y"], attributes),
            vec![w],
        ))
        .1
    };
    assert_eq!(conv("VALID", 1), [10.0, 21.0]);
    assert_eq!(conv("SAME_UPPER", 1), [10.0, 21.0, 2.0]);
    assert_eq!(conv("SAME_LOWER", 1), [0.0, 10.0, 21.0]);
    assert_eq!(conv("SAME_UPPER", 2), [10.0, 2.0]);
}

#[test]
fn reshape_copies_and_infers() {
    let reshape = |shape: &[i64], attributes| {
        output(&one_node(
            14,
            &[2, 3, 4],
            node("Reshape", &["x", "s"], &["y"], attributes),
            vec![int64s("s", shape)],
        ))
        .0
    };
    assert_eq!(reshape(&[0, -1], vec![]), [2, 12]);
    assert_eq!(reshape(&[4, 6], vec![]), [4, 6]);
    let refused = |shape: &[i64]| {
        let m = one_node(
            14,
            &[2, 3, 4],
            node("Reshape", &["x", "s"], &["y"], vec![]),
            vec![int64s("s", shape)],
        );
        import(&m).unwrap_err().to_string()
    };
    assert!(refused(&[5, -1]).contains("does not reshape to [5, -1]"));
    assert!(refused(&[-1, -1]).contains("the Reshape"));
    assert!(refused(&[1, 1, 1, 0]).contains("copies axis 3"));
}

/// x [N, 3, H]; its own shape decides how it is reshaped.
fn shape_computing() -> ModelProto {
    file(
        13,
        GraphProto {
            node: vec![
                node("Shape", &["x"], &["shape"], vec![]),
                node("Gather", &["shape", "zero"], &["n"], vec![int("axis", 0)]),
                node("Concat", &["n", "rest"], &["target"], vec![int("axis", 0)]),
                node("Reshape", &["x", "target"], &["y"], vec![]),
            ],
            input: vec![value(
                "x",
                F32,
                &[Size::Named("N"), Size::Known(3), Size::Named("H")],
            )],
            output: vec![undeclared("y")],
            initializer: vec![int64s("zero", &[0]), int64s("rest", &[-1])],
            ..Default::default()
        },
    )
}

#[test]
fn shape_subgraphs_fold_once_sizes_are_bound() {
    let error = import(&shape_computing()).unwrap_err();
    let ImportError::UnboundDims(dims) = &error else {
        panic!("{error}")
    };
    assert_eq!(dims.len(), 2);
    let message = error.to_string();
    assert!(
        message.contains("input `x`, dimension 0 (N): give it with --dim N=SIZE or --batch SIZE")
    );
    assert!(message.contains("input `x`, dimension 2 (H): give it with --dim H=SIZE"));

    let mut options = ImportOptions {
        batch: Some(4),
        ..Default::default()
    };
    options.dims.insert("H".into(), 5);
    let m = import_with(&shape_computing(), &options).unwrap();
    assert_eq!(m.nodes().len(), 1);
    assert_eq!(m[m.outputs()[0]].shape(), [4, 15]);
    assert_eq!(m[m.outputs()[0]].name(), "y");
    options.dims.insert("N".into(), 2);
    let refused = import_with(&shape_computing(), &options).unwrap_err();
    assert!(refused.to_string().contains("--batch 4"), "{refused}");
    options.batch = None;
    let m = import_with(&shape_computing(), &options).unwrap();
    assert_eq!(m[m.outputs()[0]].shape(), [2, 15]);
}

#[test]
fn unnamed_dimensions_are_bound_by_position() {
    let mut m = one_node(13, &[], node("Relu", &["x"], &["y"], vec![]), vec![]);
    m.graph.as_mut().unwrap().input[0] =
        value("x", F32, &[Size::Known(2), Size::Open, Size::Known(-1)]);
    let error = import(&m).unwrap_err().to_string();
    assert!(
        error.contains("--dim x.1=SIZE") && error.contains("--dim x.2=SIZE"),
        "{error}"
    );
    let dims = [("x.1".to_string(), 3), ("x.2".to_string(), 4)].into();
    let m = import_with(
        &m,
        &ImportOptions {
            dims,
            ..Default::default()
        },
    )
    .unwrap();
    assert_eq!(m[m.outputs()[0]].shape(), [2, 3, 4]);
}

#[test]
fn inputs_that_decide_shapes_are_asked_for() {
    let mut m = shape_computing();
    let graph = m.graph.as_mut().unwrap();
    graph.node.remove(0);
    graph.input = vec![known("x", F32, &[2, 3]), known("shape", I64, &[1])];
    let error = import(&m).unwrap_err().to_string();
    assert!(
        error.contains("node `the Reshape` (Reshape): its shape comes from input `shape`: give its value with --const shape=FILE"),
        "{error}"
    );
    let bind = |t: Tensor| ImportOptions {
        consts: [("shape".to_string(), Arc::new(t))].into(),
        ..Default::default()
    };
    let bound = import_with(&m, &bind(Tensor::from_slice(&[1], &[6i64]))).unwrap();
    assert_eq!(bound[bound.outputs()[0]].shape(), [6, 1]);
    assert_eq!(bound.inputs().len(), 1);
    let wrong = import_with(&m, &bind(Tensor::from_slice(&[2], &[6i64, 1])))
        .unwrap_err()
        .to_string();
    assert!(wrong.contains("`shape` (--const)"), "{wrong}");
    let mut options = bind(Tensor::from_slice(&[1], &[6i64]));
    options
        .consts
        .insert("nope".into(), Arc::new(Tensor::from_slice(&[1], &[1i64])));
    let wrong = import_with(&m, &options).unwrap_err().to_string();
    assert!(
        wrong.contains("`nope`") && wrong.contains("no such input"),
        "{wrong}"
    );
}

#[test]
fn every_unsupported_node_is_listed_once() {
    let mut m = file(
        13,
        GraphProto {
            node: vec![
                node("Foo", &["x"], &["a"], vec![]),
                node("Relu", &["a"], &["b"], vec![]),
                node("Bar", &["b"], &["c"], vec![]),
                node("Elsewhere", &["x"], &["d"], vec![]),
                node("Relu", &["x"], &["f"], vec![int("mystery", 1)]),
                node("AveragePool", &["x"], &["g"], vec![]),
            ],
            input: vec![known("x", F32, &[1, 1, 4]), known("strings", 8, &[1])],
            output: vec![undeclared("c")],
            ..Default::default()
        },
    );
    m.graph.as_mut().unwrap().node[3].domain = Some("acme".into());
    let domain = |d: &str| OperatorSetIdProto {
        domain: Some(d.into()),
        version: Some(1),
    };
    m.opset_import.push(domain("acme"));
    let error = import(&m).unwrap_err();
    let ImportError::Unsupported(nodes) = &error else {
        panic!("{error}")
    };
    let ops: Vec<_> = nodes.iter().map(|n| n.op.as_str()).collect();
    assert_eq!(
        ops,
        [
            "graph input",
            "Foo",
            "Bar",
            "Elsewhere",
            "Relu",
            "AveragePool"
        ]
    );
    let message = error.to_string();
    for part in [
        "`strings` (graph input): its element type, string, is not supported",
        "node `the Foo` (Foo): there is no such operator here",
        "(Elsewhere, domain acme)",
        "attribute mystery is not supported",
        "it has no kernel_shape",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[test]
fn a_file_cut_short_anywhere_is_an_error() {
    let mut m = shape_computing();
    m.graph.as_mut().unwrap().name = Some("a graph".into());
    let bytes = m.encode_to_vec();
    let mut options = ImportOptions {
        batch: Some(1),
        ..Default::default()
    };
    options.dims.insert("H".into(), 2);
    assert!(import_bytes(&bytes, None, &options).is_ok());
    for n in 0..bytes.len() {
        assert!(
            import_bytes(&bytes[..n], None, &options).is_err(),
            "{n} of {} bytes",
            bytes.len()
        );
    }
    let error = import_bytes(&bytes[..bytes.len() / 2], None, &options)
        .unwrap_err()
        .to_string();
    assert!(error.contains("cut short"), "{error}");
}

#[test]
fn damaged_bytes_never_panic() {
    let bytes = shape_computing().encode_to_vec();
    let mut options = ImportOptions {
        batch: Some(1),
        ..Default::default()
    };
    options.dims.insert("H".into(), 2);
    let noise = fill_tensor(
        DType::U8,
        &[bytes.len()],
        Fill::Integers { lo: 0, hi: 255 },
        3,
    );
    for (i, v) in noise.as_slice::<u8>().iter().enumerate() {
        for new in [*v, 0, 255, bytes[i] ^ 1] {
            let mut damaged = bytes.clone();
            damaged[i] = new;
            let _ = import_bytes(&damaged, None, &options);
        }
    }
}

#[test]
fn broken_graphs_are_named() {
    let mut m = one_node(13, &[2], node("Relu", &["ghost"], &["y"], vec![]), vec![]);
    assert!(
        import(&m)
            .unwrap_err()
            .to_string()
            .contains("reads `ghost`, which nothing before it makes")
    );
    m.graph.as_mut().unwrap().node[0].input[0] = "x".into();
    m.graph.as_mut().unwrap().output[0].name = Some("ghost".into());
    assert!(
        import(&m)
            .unwrap_err()
            .to_string()
            .contains("nothing makes the output `ghost`")
    );
    let twice = one_node(13, &[2], node("Relu", &["x"], &["x"], vec![]), vec![]);
    assert!(
        import(&twice)
            .unwrap_err()
            .to_string()
            .contains("`x` is defined twice")
    );
    let old = one_node(6, &[2], node("Relu", &["x"], &["y"], vec![]), vec![]);
    assert!(
        import(&old)
            .unwrap_err()
            .to_string()
            .contains("operator set 6")
    );
    assert!(import_bytes(b"not a model", None, &ImportOptions::default()).is_err());
}

#[test]
fn passed_through_inputs_stay_apart_from_outputs() {
    let mut m = one_node(13, &[2], node("Identity", &["x"], &["y"], vec![]), vec![]);
    let graph = m.graph.as_mut().unwrap();
    graph
        .node
        .push(node("Dropout", &["x"], &["z", "mask"], vec![]));
    graph.output.extend([undeclared("z"), undeclared("mask")]);
    let m = import(&m).unwrap();
    m.verify().unwrap();
    let names: Vec<_> = m.outputs().iter().map(|v| m[*v].name()).collect();
    assert_eq!(names, ["y", "z", "mask"]);
    assert_eq!(m[m.inputs()[0]].name(), "x");
    assert!(m.nodes().all(|(_, n)| n.op == Op::Identity));
    assert_eq!(
        **m.constant(m.outputs()[2]).unwrap(),
        Tensor::from_bools(&[2], &[true, true])
    );
}

#[test]
fn initializers_override_inputs_of_their_name() {
    let mut m = one_node(13, &[2], node("Add", &["x", "c"], &["y"], vec![]), vec![]);
    let graph = m.graph.as_mut().unwrap();
    graph.input.push(known("c", F32, &[2]));
    graph.initializer.push(TensorProto {
        name: Some("c".into()),
        dims: vec![2],
        data_type: Some(F32),
        raw_data: Some([1.0f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect()),
        ..Default::default()
    });
    assert_eq!(import(&m).unwrap().inputs().len(), 1);
    assert_eq!(output(&m).1, [1.0, 3.0]);
}

#[test]
fn initializers_of_other_types_matter_to_what_reads_them() {
    let words = TensorProto {
        name: Some("words".into()),
        dims: vec![1],
        data_type: Some(8),
        ..Default::default()
    };
    let of = |node, more: &[TensorProto]| {
        let words = [more, from_ref(&words)].concat();
        one_node(13, &[2], node, words)
    };
    let relu = || node("Relu", &["x"], &["y"], vec![]);
    import(&of(relu(), &[])).unwrap();
    let error_of = |m: &ModelProto| import(m).unwrap_err().to_string();
    let error = error_of(&of(node("Relu", &["words"], &["y"], vec![]), &[]));
    let said = "node `the Relu` (Relu): its input `words`: its element type, string, is not";
    assert!(error.contains(said), "{error}");
    let mut m = of(relu(), &[]);
    m.graph.as_mut().unwrap().output = vec![undeclared("words")];
    let error = error_of(&m);
    let said = "tensor `words`: its element type, string, is not supported";
    assert!(error.contains(said), "{error}");
    let error = error_of(&of(relu(), from_ref(&words)));
    assert!(error.contains("`words` is defined twice"), "{error}");
}

#[test]
fn window_attributes_say_what_is_wrong_with_them() {
    let weight = TensorProto {
        name: Some("w".into()),
        dims: vec![1, 1, 2, 2],
        data_type: Some(F32),
        float_data: vec![1.0; 4],
        ..Default::default()
    };
    for (attribute, said) in [
        (
            ints("pads", &[0, 0, 0, 1 << 20]),
            "pads=[0, 0, 0, 1048576] has 1048576, which is not from 0 to 1048575",
        ),
        (
            ints("dilations", &[1, 0]),
            "dilations=[1, 0] has 0, which is not from 1 to 1048575",
        ),
        (
            ints("strides", &[1, -1]),
            "strides=[1, -1] has -1, which is not from 1 to 1048575",
        ),
        (
            ints("pads", &[0, 0]),
            "pads=[0, 0] is of length 2 and not 4",
        ),
        (
            ints("strides", &[1]),
            "strides=[1] is of length 1 and not 2",
        ),
    ] {
        let conv = node("Conv", &["x", "w"], &["y"], vec![attribute]);
        let model = one_node(13, &[1, 1, 4, 4], conv, vec![weight.clone()]);
        let error = import(&model).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn ranges_have_finite_bounds() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for (bounds, said) in [
        ([0.0, inf, 1.0], "limit inf and delta 1 are not all finite"),
        ([-inf, 0.0, 1.0], "its start -inf, limit 0"),
        ([0.0, nan, 1.0], "limit NaN"),
        ([0.0, -1.0, inf], "delta inf"),
        ([0.0, 0.0, nan], "delta NaN"),
        ([0.0, 0.0, 0.0], "its delta is 0"),
        ([0.0, 1.0, -0.0], "its delta is 0"),
    ] {
        let names = ["start", "limit", "delta"];
        let constant = |(name, v): (&str, f32)| TensorProto {
            name: Some(name.into()),
            data_type: Some(F32),
            float_data: vec![v],
            ..Default::default()
        };
        let constants = names.into_iter().zip(bounds).map(constant).collect();
        let range = node("Range", &names, &["y"], vec![]);
        let error = import(&one_node(13, &[1], range, constants)).unwrap_err();
        assert!(error.to_string().contains(said), "{bounds:?}: {error}");
    }
}

#[test]
fn tensor_files_of_every_type() {
    let raw = |data_type: i32, bytes: &[u8]| TensorProto {
        dims: vec![2],
        data_type: Some(data_type),
        raw_data: Some(bytes.to_vec().into()),
        ..Default::default()
    };
    let ints = |data_type: i32, v: &[i32]| TensorProto {
        dims: vec![2],
        data_type: Some(data_type),
        int32_data: v.to_vec(),
        ..Default::default()
    };
    let read = |t: &TensorProto| read_tensor_proto(&t.encode_to_vec()).map(|(_, t)| t);
    assert_eq!(
        read(&raw(2, &[1, 255])).unwrap(),
        Tensor::from_slice(&[2], &[1u8, 255])
    );
    assert_eq!(
        read(&ints(2, &[1, 255])).unwrap(),
        Tensor::from_slice(&[2], &[1u8, 255])
    );
    assert_eq!(
        read(&ints(3, &[-1, 127])).unwrap(),
        Tensor::from_slice(&[2], &[-1i8, 127])
    );
    assert_eq!(
        read(&ints(6, &[-1, 1 << 30])).unwrap(),
        Tensor::from_slice(&[2], &[-1i32, 1 << 30])
    );
    assert_eq!(
        read(&raw(9, &[0, 7])).unwrap(),
        Tensor::from_bools(&[2], &[false, true])
    );
    // 1.0 is 0x3c00 in f16 and 0x3f80 in bf16.
    assert_eq!(read(&ints(10, &[0x3c00, 0xbc00])).unwrap().get_f64(1), -1.0);
    assert_eq!(
        read(&raw(16, &[0x80, 0x3f, 0x80, 0xbf]))
            .unwrap()
            .get_f64(1),
        -1.0
    );
    let doubles = TensorProto {
        dims: vec![1],
        data_type: Some(11),
        double_data: vec![0.1],
        ..Default::default()
    };
    assert_eq!(read(&doubles).unwrap(), Tensor::from_slice(&[1], &[0.1f64]));
    let large = read(&raw(13, &[0xff; 16])).unwrap();
    assert_eq!(large, Tensor::from_slice(&[2], &[u64::MAX; 2]));
    let short = read(&ints(5, &[-32_768, 7])).unwrap();
    assert_eq!(short, Tensor::from_slice(&[2], &[-32_768i16, 7]));
    assert!(
        read(&ints(4, &[65_536, 7]))
            .unwrap_err()
            .to_string()
            .contains("it holds 65536, which is not a value of type u16")
    );
    let e = read(&raw(17, &[0; 2])).unwrap_err().to_string();
    assert!(e.contains("float8e4m3fn"), "{e}");
    assert!(
        read(&raw(1, &[0; 7]))
            .unwrap_err()
            .to_string()
            .contains("needs 8 bytes, but there are 7")
    );
    let huge = TensorProto {
        dims: vec![i64::MAX, i64::MAX],
        data_type: Some(F32),
        ..Default::default()
    };
    assert!(read(&huge).unwrap_err().to_string().contains("are invalid"));
    assert!(read_tensor_proto(&raw(1, &[0; 8]).encode_to_vec()[..5]).is_err());
}

/// A value that is declared as an input is its default, and any value of the file can be left to a run.
#[test]
fn an_initialiser_becomes_an_input() {
    let add = node("Add", &["x", "b"], &["y"], vec![]);
    let bias = build_onnx::floats("b", &[2], &[1.0, 2.0]);
    let mut file = one_node(17, &[2], add, vec![bias]);
    for declared in [false, true] {
        if declared {
            let graph = file.graph.as_mut().unwrap();
            graph.input.push(known("b", F32, &[2]));
        }
        let inputs = |names: &[&str]| {
            let options = ImportOptions {
                open_inputs: names.iter().map(|n| (*n).to_string()).collect(),
                ..ImportOptions::default()
            };
            let model = import_with(&file, &options)?;
            let names = model.inputs().iter().map(|v| model[*v].name().to_string());
            Ok::<_, ImportError>(names.collect::<Vec<_>>())
        };
        assert_eq!(inputs(&[]).unwrap(), ["x"]);
        assert_eq!(inputs(&["b"]).unwrap(), ["x", "b"]);
        let e = inputs(&["c"]).unwrap_err().to_string();
        assert!(e.contains("--open-input c changes nothing"), "{e}");
    }
}

/// Roots and logarithms of sums of integers are cut to integers.
#[test]
fn norms_of_integers_are_integers() {
    for (op, expected) in [("ReduceL2", [11, 22]), ("ReduceLogSum", [2, 3])] {
        let of_rows = node(
            op,
            &["k"],
            &["y"],
            vec![ints("axes", &[1]), int("keepdims", 0)],
        );
        let k = TensorProto {
            dims: vec![2, 3],
            ..int64s("k", &[5, -4, 9, 20, 6, 8])
        };
        let y = outputs(&one_node(17, &[1], of_rows, vec![k]));
        assert_eq!([y[0].get_i64(0), y[0].get_i64(1)], expected, "{op}");
    }
}

/// The expected bytes are those of ONNX Runtime: means are cut, not rounded.
#[test]
fn bytes_are_resized_to_means_that_are_cut() {
    let mode = vec![text("mode", "linear")];
    let resize = node("Resize", &["k", "", "", "sizes"], &["y"], mode);
    let bytes: Vec<u8> = (0..12).map(|i| (i * 37 % 256) as u8).collect();
    let k = TensorProto {
        name: Some("k".into()),
        data_type: Some(2),
        dims: vec![1, 1, 3, 4],
        raw_data: Some(bytes.into()),
        ..Default::default()
    };
    let sizes = int64s("sizes", &[1, 1, 5, 3]);
    let y = &outputs(&one_node(18, &[1], resize, vec![k, sizes]))[0];
    assert_eq!(y.dtype(), DType::U8);
    let expected = [
        6.0, 55.0, 104.0, 65.0, 114.0, 78.0, 154.0, 203.0, 39.0, 89.0, 138.0, 102.0, 46.0, 95.0,
        144.0,
    ];
    assert_eq!(build_onnx::floats_of(y), expected);
}

/// The operand that is never chosen decides the shape, and nothing else.
#[test]
fn a_choice_that_is_known_takes_one_operand() {
    for (always, expected) in [(1, [0.0, 0.0, 1.0, 1.0]), (0, [7.0, 8.0, 7.0, 8.0])] {
        let choice = node("Where", &["c", "x", "k"], &["y"], vec![]);
        let condition = TensorProto {
            name: Some("c".into()),
            data_type: Some(9),
            dims: vec![1],
            raw_data: Some(vec![always].into()),
            ..Default::default()
        };
        let k = build_onnx::floats("k", &[2], &[7.0, 8.0]);
        let model = one_node(17, &[2, 1], choice, vec![condition, k]);
        assert_eq!(build_onnx::floats_of(&outputs(&model)[0]), expected);
        let imported = import(&model).unwrap();
        let choices = imported.nodes().filter(|(_, n)| n.op == Op::Where);
        assert_eq!(choices.count(), 0);
    }
}
