//! Sizes that a file leaves open, and others than those that it fixes.

mod build_onnx;

use build_onnx::{
    F32, Size, file, import_with, int, int64s, known, node, one_node, undeclared, value,
};
use onnx::proto::{GraphProto, ModelProto, TensorProto};
use onnx::{ImportOptions, ModelFile};
use prost::Message;

fn batch(n: usize) -> ImportOptions {
    ImportOptions {
        batch: Some(n),
        ..ImportOptions::default()
    }
}

fn dim(name: &str, n: usize) -> ImportOptions {
    ImportOptions {
        dims: [(name.to_string(), n)].into(),
        ..ImportOptions::default()
    }
}

fn output_shape(m: &ModelProto, options: &ImportOptions) -> Result<Vec<usize>, String> {
    let m = import_with(m, options).map_err(|e| e.to_string())?;
    m.verify().unwrap();
    Ok(m[m.outputs()[0]].shape().to_vec())
}

/// x [2,3,4] to another shape.
fn reshape(shape: &[i64]) -> ModelProto {
    let n = node("Reshape", &["x", "s"], &["y"], vec![]);
    one_node(17, &[2, 3, 4], n, vec![int64s("s", shape)])
}

#[test]
fn a_fixed_batch_may_be_another_where_rows_stay_apart() {
    let relu = one_node(17, &[2, 3], node("Relu", &["x"], &["y"], vec![]), vec![]);
    assert_eq!(output_shape(&relu, &batch(5)), Ok(vec![5, 3]));
    assert_eq!(output_shape(&relu, &batch(1)), Ok(vec![1, 3]));
    assert_eq!(output_shape(&relu, &batch(2)), Ok(vec![2, 3]));
    assert_eq!(output_shape(&relu, &dim("x.1", 7)), Ok(vec![2, 7]));
    // The target shape counts the rows, or leaves that to the reader.
    assert_eq!(
        output_shape(&reshape(&[-1, 12]), &batch(5)),
        Ok(vec![5, 12])
    );
    for shape in [[0, -1], [2, -1], [2, 12]] {
        assert_eq!(output_shape(&reshape(&shape), &batch(5)), Ok(vec![5, 12]));
    }
}

#[test]
fn a_fixed_batch_that_another_does_not_follow_from_says_how_to_export() {
    // Rows are in pieces, or are mixed.
    let softmax = node("Softmax", &["x"], &["y"], vec![int("axis", 0)]);
    let softmax = one_node(17, &[2, 3], softmax, vec![]);
    for m in [reshape(&[3, -1]), reshape(&[3, 8]), softmax] {
        let said = output_shape(&m, &batch(4)).unwrap_err();
        for words in [
            "--batch 4",
            "fixes the size as 2",
            "torch.onnx.export",
            "'x': {0:",
        ] {
            assert!(said.contains(words), "{said}");
        }
    }
    let said = output_shape(&reshape(&[2, 12]), &dim("x.2", 8)).unwrap_err();
    assert!(said.contains("--dim x.2=8"), "{said}");
}

#[test]
fn a_model_is_read_once_for_several_sizes() {
    let weights = TensorProto {
        name: Some("w".into()),
        dims: vec![64, 64],
        data_type: Some(F32),
        raw_data: Some(vec![1u8; 4 * 64 * 64].into()),
        ..Default::default()
    };
    let x = value("x", F32, &[Size::Named("rows"), Size::Known(64)]);
    let graph = GraphProto {
        name: Some("g".into()),
        node: vec![node("MatMul", &["x", "w"], &["y"], vec![])],
        input: vec![x],
        output: vec![undeclared("y")],
        initializer: vec![weights],
        ..Default::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.onnx");
    std::fs::write(&path, file(17, graph).encode_to_vec()).unwrap();
    let opened = ModelFile::open(&path).unwrap();
    let read = |options| opened.import(&options).unwrap();
    let (small, large) = (read(dim("rows", 2)), read(batch(3)));
    let weights = |m: &graph::Model| {
        let w = m.find_value("w").and_then(|v| m.constant(v)).unwrap();
        w.bytes().as_ptr()
    };
    assert_eq!(
        weights(&small.model),
        weights(&large.model),
        "they are shared"
    );
    let names = |m: &onnx::BoundModel| -> Vec<_> {
        let one = |d: &graph::NamedDim| (d.name.clone(), d.size, d.inputs.clone());
        m.dims.iter().map(one).collect()
    };
    assert_eq!(names(&small), [("rows".to_string(), 2, vec![(0, 0)])]);
    assert_eq!(names(&large), [("batch".to_string(), 3, vec![(0, 0)])]);
}

#[test]
fn a_wrong_name_is_told_before_a_missing_size() {
    let x = value("x", F32, &[Size::Named("rows"), Size::Named("columns")]);
    let graph = GraphProto {
        name: Some("g".into()),
        node: vec![node("Relu", &["x"], &["y"], vec![])],
        input: vec![x, known("z", F32, &[2])],
        output: vec![undeclared("y")],
        ..Default::default()
    };
    let said = output_shape(&file(17, graph), &dim("row", 2)).unwrap_err();
    assert!(said.contains("--dim row changes nothing"), "{said}");
    assert!(said.contains("columns, rows"), "{said}");
}
