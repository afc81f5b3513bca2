//! Files that contradict themselves, or the format that they name.

mod build_onnx;

use build_onnx::{
    F32, I64, Size, float, floats, import, int, int64s, ints, known, node, one_node, text,
    undeclared, value,
};
use onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
};
use onnx::{BoundModel, ImportOptions, ModelFile, read_tensor_proto};
use prost::Message;

fn relu() -> ModelProto {
    one_node(13, &[2, 3], node("Relu", &["x"], &["y"], vec![]), vec![])
}

fn error(m: &ModelProto) -> String {
    import(m).expect_err("refused").to_string()
}

#[test]
fn versions_beyond_the_known_ones_are_refused() {
    let with = |sets: &[(&str, i64)], format: Option<i64>| {
        let set = |(domain, version): &(&str, i64)| OperatorSetIdProto {
            domain: Some(domain.to_string()),
            version: Some(*version),
        };
        ModelProto {
            opset_import: sets.iter().map(set).collect(),
            ir_version: format,
            ..relu()
        }
    };
    for (sets, format, part) in [
        (
            &[("", 99)][..],
            Some(8),
            "operator set 99, and 28 is the newest",
        ),
        (
            &[("ai.onnx", 29)],
            Some(8),
            "operator set 29, and 28 is the newest",
        ),
        (&[("", 6)], Some(8), "operator set 6, and 7 is the oldest"),
        (&[("", 0)], Some(8), "operator set 0"),
        (&[("", -1)], Some(8), "operator set -1"),
        (
            &[("", 13), ("com.microsoft", 2)],
            Some(8),
            "2 of the domain com.microsoft",
        ),
        (&[("", 13), ("ai.onnx", 14)], Some(8), "two versions"),
        (&[("acme", 1)], Some(8), "no operator set of its domain"),
        (&[], Some(8), "no operator set"),
        (&[("", 13)], Some(15), "IR version 15, and 14 is the newest"),
        (&[("", 13)], Some(-1), "no IR version"),
        (&[("", 13)], None, "no IR version"),
    ] {
        let error = error(&with(sets, format));
        assert!(error.contains(part), "{error}");
    }
    for sets in [
        &[("", 28)][..],
        &[("ai.onnx", 7)],
        &[("", 13), ("ai.onnx", 13)],
        &[("", 13), ("acme", 99), ("com.microsoft", 1)],
    ] {
        import(&with(sets, Some(14))).unwrap();
    }
}

/// A value of every type.
fn values(name: &str) -> Vec<(&'static str, AttributeProto)> {
    let other = |kind: i32| AttributeProto {
        name: Some(name.into()),
        r#type: Some(kind),
        ..Default::default()
    };
    let tensor = AttributeProto {
        t: Some(TensorProto {
            data_type: Some(F32),
            float_data: vec![1.0],
            ..Default::default()
        }),
        ..other(4)
    };
    let graph = AttributeProto {
        g: Some(GraphProto::default()),
        ..other(5)
    };
    let floats = AttributeProto {
        floats: vec![1.0],
        ..other(6)
    };
    let strings = AttributeProto {
        strings: vec![b"a".to_vec()],
        ..other(8)
    };
    vec![
        ("INT", int(name, 1)),
        ("INTS", ints(name, &[1, 1])),
        ("FLOAT", float(name, 1.0)),
        ("FLOATS", floats),
        ("STRING", text(name, "a")),
        ("STRINGS", strings),
        ("TENSOR", tensor),
        ("GRAPH", graph),
        ("SPARSE_TENSOR", other(11)),
        ("number 99", other(99)),
    ]
}

#[test]
fn attributes_of_another_type_are_refused() {
    let pool = |more: AttributeProto| {
        let attributes = vec![ints("kernel_shape", &[1, 1]), more];
        node("MaxPool", &["x"], &["y"], attributes)
    };
    let plain = |op: &str, more: AttributeProto| node(op, &["x"], &["y"], vec![more]);
    let constant = |more| node("Constant", &[], &["y"], vec![more]);
    type Case<'a> = (&'a str, &'a str, &'a dyn Fn(AttributeProto) -> NodeProto);
    let cases: [Case; 9] = [
        ("axis", "INT", &|a| plain("Softmax", a)),
        ("ceil_mode", "INT", &pool),
        ("strides", "INTS", &pool),
        ("alpha", "FLOAT", &|a| plain("LeakyRelu", a)),
        ("auto_pad", "STRING", &pool),
        ("value", "TENSOR", &constant),
        ("value_floats", "FLOATS", &constant),
        ("value_ints", "INTS", &constant),
        ("value_int", "INT", &constant),
    ];
    for (name, want, case) in cases {
        for (kind, a) in values(name) {
            if kind == want {
                continue;
            }
            let untyped = AttributeProto {
                r#type: None,
                ..a.clone()
            };
            for (a, how) in [(a, "of type"), (untyped, "given as")] {
                if how == "given as" && matches!(kind, "SPARSE_TENSOR" | "number 99") {
                    continue;
                }
                let error = error(&one_node(13, &[1, 1, 2, 2], case(a), vec![]));
                let said = format!("attribute `{name}` is {how} {kind}, where {want} is needed");
                assert!(error.contains(&said), "{said}\n{error}");
            }
        }
    }
}

#[test]
fn attributes_that_say_two_things_are_refused() {
    let softmax =
        |a: Vec<AttributeProto>| one_node(13, &[2, 3], node("Softmax", &["x"], &["y"], a), vec![]);
    let both = AttributeProto {
        f: Some(1.0),
        ..int("axis", 1)
    };
    assert!(error(&softmax(vec![both])).contains("given as FLOAT, where INT"));
    let twice = vec![int("axis", 1), int("axis", 0)];
    assert!(error(&softmax(twice)).contains("`axis` is given twice"));
    let nothing = AttributeProto {
        name: Some("axis".into()),
        ..Default::default()
    };
    assert!(error(&softmax(vec![nothing.clone()])).contains("without a value"));
    // Serialisers of proto3 leave out what is 0.
    let zero = AttributeProto {
        r#type: Some(2),
        ..nothing
    };
    import(&softmax(vec![zero])).unwrap();
}

#[test]
fn inputs_that_an_operator_does_not_have_are_refused() {
    let y = &["y"][..];
    let none = Vec::new;
    let cases = [
        (10, node("Clip", &["x", "s", "s"], y, none()), 1),
        (17, node("ReduceMean", &["x", "i"], y, none()), 1),
        (12, node("ReduceSum", &["x", "i"], y, none()), 1),
        (12, node("Split", &["x", "i"], y, none()), 1),
        (12, node("Squeeze", &["x", "i"], y, none()), 1),
        (
            10,
            node("Pad", &["x", "i"], y, vec![ints("pads", &[0; 4])]),
            1,
        ),
        (17, node("Pad", &["x", "p", "s", "i"], y, none()), 3),
        (
            9,
            node(
                "Slice",
                &["x", "i", "i", "", "i"],
                y,
                vec![ints("starts", &[0]), ints("ends", &[1])],
            ),
            1,
        ),
        (11, node("Dropout", &["x", "s"], y, none()), 1),
        (13, node("Relu", &["x", "x"], y, none()), 1),
        (13, node("Add", &["x", "x", "x"], y, none()), 2),
        (13, node("Transpose", &["x", "i"], y, none()), 1),
        (13, node("Softmax", &["x", "", "s"], y, none()), 2),
        (13, node("MatMul", &["x", "t", "s"], y, none()), 2),
        (
            13,
            node("Constant", &["x"], y, vec![int("value_int", 1)]),
            0,
        ),
        (20, node("Gelu", &["x", "x"], y, none()), 1),
    ];
    let scalar = TensorProto {
        name: Some("s".into()),
        data_type: Some(F32),
        float_data: vec![0.0],
        ..Default::default()
    };
    let square = TensorProto {
        name: Some("t".into()),
        dims: vec![3, 3],
        float_data: vec![0.0; 9],
        ..scalar.clone()
    };
    let constants = || {
        let lists = [int64s("i", &[0]), int64s("p", &[0; 4])];
        lists
            .into_iter()
            .chain([scalar.clone(), square.clone()])
            .collect()
    };
    for (opset, node, input) in cases {
        let operator = node.op_type().to_string();
        let name = node.input[input].clone();
        let error = error(&one_node(opset, &[1, 3], node, constants()));
        let said =
            format!("input {input}, `{name}`, is not one of this operator in operator set {opset}");
        assert!(error.contains(&said), "{operator}: {error}");
    }
    let dropout = node("Dropout", &["x", "s"], y, none());
    import(&one_node(12, &[1, 3], dropout, constants())).unwrap();
    let absent = node("Relu", &["x", ""], y, none());
    import(&one_node(13, &[1, 3], absent, constants())).unwrap();
}

#[test]
fn declared_types_are_those_of_the_values() {
    let declared = |ty: i32, result: bool| {
        let mut m = relu();
        let graph = m.graph.as_mut().unwrap();
        let info = vec![known("y", ty, &[2, 3])];
        match result {
            true => graph.output = info,
            false => graph.value_info = info,
        }
        m
    };
    for result in [true, false] {
        for (ty, name) in [(I64, "i64"), (8, "string"), (99, "number 99")] {
            let error = error(&declared(ty, result));
            let said = format!(
                "`y` is declared as {name}[2,3] but is f32[2,3], the result of node `the Relu` \
                 (Relu); correct"
            );
            assert!(error.contains(&said), "{error}");
        }
        for ty in [F32, 0] {
            import(&declared(ty, result)).unwrap();
        }
    }
    let mut m = relu();
    m.graph.as_mut().unwrap().output = vec![undeclared("y")];
    import(&m).unwrap();
}

fn bound(m: &ModelProto) -> BoundModel {
    bound_with(m, &ImportOptions::default())
}

fn bound_with(m: &ModelProto, options: &ImportOptions) -> BoundModel {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    std::fs::write(&path, m.encode_to_vec()).unwrap();
    let file = ModelFile::open(&path).unwrap();
    file.import(options).unwrap()
}

#[test]
fn declared_shapes_of_outputs_that_are_wrong_are_noted() {
    let declared = |shape: &[Size]| {
        let mut m = one_node(13, &[3, 4], node("Neg", &["x"], &["y"], vec![]), vec![]);
        m.graph.as_mut().unwrap().output = vec![value("y", F32, shape)];
        m
    };
    use Size::{Known, Named, Open};
    for (shape, text) in [
        (&[Known(9), Known(4)][..], "f32[9,4]"),
        (&[Known(3), Known(4), Known(1)], "f32[3,4,1]"),
        (&[Known(12)], "f32[12]"),
        (&[], "f32[]"),
        (&[Named("rows"), Known(0)], "f32[rows,0]"),
        (&[Open, Known(3)], "f32[?,3]"),
    ] {
        let m = bound(&declared(shape));
        let said = format!(
            "output `y` is declared as {text} but is f32[3,4], the result of node `the Neg` (Neg): \
             the shape that the specification gives is used"
        );
        assert_eq!(m.notes, [said]);
        assert_eq!(m.model[m.model.outputs()[0]].shape(), [3, 4]);
    }
    for shape in [
        [Known(3), Known(4)],
        [Named("rows"), Known(4)],
        [Open, Known(-1)],
    ] {
        let m = bound(&declared(&shape));
        assert!(m.notes.is_empty(), "{:?}", m.notes);
    }
}

/// ONNX Runtime's 10 * 0.7f is 7, as PyTorch declares it; ONNX's shape inference computes 6.99999988, and declares 6. Whatever
/// the file declares, both are said.
#[test]
fn a_declared_size_is_no_reason_to_scale_otherwise() {
    let resized = |width: i64| {
        let resize = node(
            "Resize",
            &["x", "", "s"],
            &["y"],
            vec![text("mode", "nearest")],
        );
        let scales = floats("s", &[4], &[1.0, 1.0, 1.0, 0.7]);
        let mut m = one_node(13, &[1, 1, 1, 10], resize, vec![scales]);
        m.graph.as_mut().unwrap().output = vec![known("y", F32, &[1, 1, 1, width])];
        m
    };
    let of_seven = bound(&resized(7)).notes;
    assert!(
        of_seven.len() == 1 && of_seven[0].contains("7 are made") && of_seven[0].contains("to 6"),
        "{of_seven:?}"
    );
    let m = bound(&resized(6));
    assert_eq!(m.model[m.model.outputs()[0]].shape(), [1, 1, 1, 7]);
    assert!(m.notes[0].contains(
        "`y` is declared as f32[1,1,1,6] but is f32[1,1,1,7], the result of node `the Resize`"
    ));
}

/// Edits of a file leave the shapes of before between its nodes.
#[test]
fn declared_shapes_between_nodes_are_noted() {
    let names = ["x", "a", "b", "c", "y"];
    let pairs = names.windows(2);
    let nodes = pairs.map(|w| node("Relu", &[w[0]], &[w[1]], vec![]));
    let mut m = relu();
    let graph = m.graph.as_mut().unwrap();
    graph.node = nodes.collect();
    let first = "`a` is declared as f32[9,3] but is f32[2,3], the result of node `the Relu` (Relu): \
                 the shape that the specification gives is used";
    for (values, note) in [
        (&[("b", 2)][..], None),
        (&[("a", 9), ("b", 2)], Some(first.to_string())),
        (
            &[("a", 9), ("b", 1)],
            Some(format!("{first}; so is the declared shape of 1 more value")),
        ),
        (
            &[("a", 9), ("b", 1), ("c", 1)],
            Some(format!(
                "{first}; so are the declared shapes of 2 more values"
            )),
        ),
    ] {
        let info = values.iter().map(|(name, n)| known(name, F32, &[*n, 3]));
        m.graph.as_mut().unwrap().value_info = info.collect();
        assert_eq!(bound(&m).notes, Vec::from_iter(note));
    }
}

/// At most so many elements, as the model has them, are no contradiction of how many there are.
#[test]
fn sizes_that_the_data_decide_may_be_declared() {
    let mut m = one_node(13, &[5], node("NonZero", &["x"], &["y"], vec![]), vec![]);
    let graph = m.graph.as_mut().unwrap();
    graph.output = vec![known("y", I64, &[1, 3])];
    import(&m).unwrap();
    m.graph.as_mut().unwrap().output = vec![known("y", I64, &[2, 3])];
    let notes = bound(&m).notes;
    assert!(notes[0].contains("`y` is declared as i64[2,3] but is i64[1,5]"));
}

/// Exporters leave the sizes of an example beside open ones.
#[test]
fn at_other_sizes_declared_shapes_do_not_count() {
    let nodes = [("x", "h"), ("h", "y")].map(|(x, y)| node("Relu", &[x], &[y], vec![]));
    let options = ImportOptions {
        batch: Some(4),
        ..Default::default()
    };
    for input in [
        known("x", F32, &[4, 3]),
        value("x", F32, &[Size::Named("N"), Size::Known(3)]),
    ] {
        for shape in [
            &[4, 3][..],
            &[1, 3],
            &[-1, 3],
            &[0, 0],
            &[12],
            &[4, 3, 1],
            &[],
        ] {
            let mut m = relu();
            let graph = m.graph.as_mut().unwrap();
            graph.node = nodes.to_vec();
            graph.input = vec![input.clone()];
            graph.value_info = vec![known("h", F32, shape)];
            graph.output = vec![known("y", F32, shape)];
            let BoundModel {
                model: m, notes, ..
            } = bound_with(&m, &options);
            assert_eq!(m[m.outputs()[0]].shape(), [4, 3], "{shape:?}");
            assert!(notes.is_empty(), "{shape:?}: {notes:?}");
        }
    }
}

/// A declaration beside open sizes is meant for all of them, and so is one of what no option
/// sizes; a file's own sizes are those of its declarations.
#[test]
fn at_other_sizes_shapes_that_are_meant_for_all_count() {
    use Size::{Known, Named};
    let options = ImportOptions {
        batch: Some(4),
        ..Default::default()
    };
    let of = |input: &[Size], h: &[Size], constant: i64| {
        let nodes = [("x", "h"), ("h", "y"), ("c", "d")];
        let mut m = relu();
        let graph = m.graph.as_mut().unwrap();
        graph.node = Vec::from(nodes.map(|(x, y)| node("Relu", &[x], &[y], vec![])));
        graph.initializer = vec![floats("c", &[2], &[1.0, 2.0])];
        graph.input = vec![value("x", F32, input)];
        graph.value_info = vec![value("h", F32, h)];
        graph.output = vec![undeclared("y"), known("d", F32, &[constant])];
        bound_with(&m, &options).notes
    };
    let open = [Named("N"), Known(3)];
    assert!(of(&open, &[Named("N"), Known(3)], 2).is_empty());
    let notes = of(&open, &[Named("N"), Known(5)], 2);
    assert!(notes[0].starts_with("`h` is declared as f32[N,5] but is f32[4,3]"));
    assert_eq!(notes.len(), 1);
    let notes = of(&open, &[Known(1), Known(3)], 7);
    assert!(notes[0].starts_with("output `d` is declared as f32[7] but is f32[2]"));
    assert_eq!(notes.len(), 1);
    let notes = of(&[Known(1), Known(3)], &[Known(1), Known(5)], 2);
    assert!(notes[0].starts_with("`h` is declared as f32[1,5] but is f32[1,3]"));
}

#[test]
fn initializers_are_what_they_are_declared_as() {
    let add = |declared| {
        let mut m = one_node(
            13,
            &[2],
            node("Concat", &["c"], &["y"], vec![int("axis", 0)]),
            vec![],
        );
        let graph = m.graph.as_mut().unwrap();
        graph.initializer = vec![int64s("c", &[1, 2])];
        graph.input.push(declared);
        m
    };
    import(&add(known("c", I64, &[2]))).unwrap();
    let error_of = |declared| error(&add(declared));
    assert!(error_of(known("c", I64, &[3])).contains("`c` is declared as i64[3] but is i64[2]"));
    assert!(error_of(known("c", F32, &[2])).contains("declared as f32[2] but"));
    assert!(error_of(known("c", I64, &[2, 1])).contains("declared as i64[2,1] but"));
    assert!(error_of(known("c", 8, &[2])).contains("declared as string[2] but"));
    let named = value("c", I64, &[Size::Named("rows"), Size::Known(3)]);
    assert!(error_of(named).contains("declared as i64[rows,3] but"));
    let mut m = add(known("c", I64, &[2]));
    m.graph.as_mut().unwrap().value_info = vec![known("c", I64, &[3])];
    assert!(error(&m).contains("`c` is declared as i64[3] but is i64[2]"));
}

#[test]
fn tensors_hold_their_elements_once_and_in_their_place() {
    let of = |data_type: i32| TensorProto {
        dims: vec![1],
        data_type: Some(data_type),
        ..Default::default()
    };
    let ints = |data_type: i32, v: i32| TensorProto {
        int32_data: vec![v],
        ..of(data_type)
    };
    let twice = TensorProto {
        float_data: vec![1.0],
        raw_data: Some(vec![0; 4].into()),
        ..of(F32)
    };
    let elsewhere = TensorProto {
        data_location: Some(1),
        ..twice.clone()
    };
    let none = TensorProto {
        dims: vec![0],
        ..of(F32)
    };
    assert!(read_tensor_proto(&none.encode_to_vec()).is_ok());
    for (t, part) in [
        (twice, "twice, in raw_data and float_data"),
        (elsewhere, "twice, in external_data and raw_data"),
        (ints(F32, 1), "are f32, but int32_data holds them"),
        (ints(I64, 1), "are i64, but int32_data holds them"),
        (of(F32), "needs 4 bytes, but there are 0"),
        (ints(2, 256), "256, which is not a value of type u8"),
        (ints(2, -1), "-1, which is not a value of type u8"),
        (ints(3, 128), "128, which is not a value of type i8"),
        (ints(9, 2), "2, which is not a value of type bool"),
        (ints(10, 1 << 16), "65536, which is not a value of type f16"),
    ] {
        let error = read_tensor_proto(&t.encode_to_vec())
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn an_output_that_is_listed_twice_is_given_once_and_noted() {
    let mut m = relu();
    let graph = m.graph.as_mut().expect("a graph");
    graph.output.push(graph.output[0].clone());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.onnx");
    std::fs::write(&path, m.encode_to_vec()).expect("a file");
    let file = ModelFile::open(&path).expect("a model");
    let bound = file.import(&ImportOptions::default()).expect("imported");
    assert_eq!(bound.model.outputs().len(), 1);
    assert!(
        bound.notes[0].contains("output `y` is listed twice"),
        "{:?}",
        bound.notes
    );
}
