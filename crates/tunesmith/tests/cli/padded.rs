//! Sequences that run on a larger variant, padded where a mask hides the padding.

use super::errors::{says, value};
use super::program::{Sandbox, place};
use onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    tensor_shape_proto::dimension::Value,
};
use prost::Message;
use serde_json::json;
use tempfile::tempdir;
use tensor::{Tensor, compare, read_npy_file, write_npy_file};

const WIDTH: usize = 8;

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        name: Some(output.into()),
        input: inputs.iter().map(|i| (*i).into()).collect(),
        output: vec![output.into()],
        ..Default::default()
    }
}

fn scalar(name: &str, value: f32) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        data_type: Some(1),
        raw_data: Some(value.to_le_bytes().to_vec().into()),
        ..Default::default()
    }
}

/// Attention among the rows of x [seq,8], where the mask [1,seq] is not 0.
fn attention(p: &Sandbox, lowest: f32) {
    let seq = || Value::DimParam("seq".into());
    let axis = AttributeProto {
        name: Some("axis".into()),
        r#type: Some(2),
        i: Some(-1),
        ..Default::default()
    };
    let softmax = NodeProto {
        attribute: vec![axis],
        ..node("Softmax", &["added"], "weights")
    };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: None,
            version: Some(17),
        }],
        graph: Some(GraphProto {
            name: Some("g".into()),
            node: vec![
                node("Transpose", &["x"], "keys"),
                node("MatMul", &["x", "keys"], "scores"),
                node("Sub", &["one", "mask"], "hidden"),
                node("Mul", &["hidden", "lowest"], "penalty"),
                node("Add", &["scores", "penalty"], "added"),
                softmax,
                node("MatMul", &["weights", "x"], "y"),
            ],
            initializer: vec![scalar("one", 1.0), scalar("lowest", lowest)],
            input: vec![
                value("x", [seq(), Value::DimValue(WIDTH as i64)]),
                value("mask", [Value::DimValue(1), seq()]),
            ],
            output: vec![value("y", [seq(), Value::DimValue(WIDTH as i64)])],
            ..Default::default()
        }),
        ..Default::default()
    };
    std::fs::write(p.file("text.onnx"), model.encode_to_vec()).unwrap();
}

const COMPILE: [&str; 5] = ["compile", "text.onnx", "--defaults", "--threads", "1"];

/// What the artifact gives for so many rows, and the variant that ran.
fn run(p: &Sandbox, artifact: &str, rows: usize) -> (Tensor, String) {
    let values: Vec<f32> = (0..rows * WIDTH).map(|i| (i % 13) as f32 / 9.0).collect();
    let x = Tensor::from_slice(&[rows, WIDTH], &values);
    write_npy_file(&p.folder.join("x.npy"), &x).unwrap();
    let mask: Vec<f32> = (0..rows).map(|i| f32::from(i % 4 != 1)).collect();
    let mask = Tensor::from_slice(&[1, rows], &mask);
    write_npy_file(&p.folder.join("mask.npy"), &mask).unwrap();
    let inputs = ["--input", "x=x.npy", "--input", "mask=mask.npy"];
    let run = ["run", artifact, "--threads", "1", "--out", "y.npy"];
    let said = p.json(&[&run[..], &inputs].concat());
    let variant = said["variant"].as_str().unwrap_or_default().to_string();
    (read_npy_file(&p.folder.join("y.npy")).unwrap(), variant)
}

#[test]
fn a_masked_sequence_is_padded() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    attention(&p, f32::MIN);
    let padded = ["--dim", "seq=4,8", "--pad", "seq", "--out", "padded.tsm"];
    p.json(&[&COMPILE[..], &padded].concat());
    let info = p.json(&["info", "padded.tsm"]);
    assert_eq!(info["outputs"][0]["shape"], json!(["seq", WIDTH]));
    let exact = ["--dim", "seq=1,3,4,5,8", "--out", "exact.tsm"];
    p.json(&[&COMPILE[..], &exact].concat());
    for (rows, variant) in [(1, 4), (3, 4), (4, 4), (5, 8), (8, 8)] {
        let (own, ran) = run(&p, "padded.tsm", rows);
        assert_eq!(ran, format!("seq={variant}"));
        let (expected, _) = run(&p, "exact.tsm", rows);
        assert_eq!(own.shape(), [rows, WIDTH]);
        assert!(compare(&own, &expected).within(1e-6), "{rows} rows");
    }
}

#[test]
fn a_mask_that_hides_only_from_common_scores_is_told_of() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let args = ["--dim", "seq=4", "--pad", "seq", "--out", "text.tsm"];
    let args = [&COMPILE[..], &args].concat();
    attention(&p, f32::MIN);
    assert_eq!(p.warnings(&args), "");
    attention(&p, -1e4);
    says(&p.warnings(&args), &["--pad seq", "adds -10000", "9000"]);
}

#[test]
fn a_mask_that_hides_too_little_is_refused() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    attention(&p, -10.0);
    let refused = p.error(&[&COMPILE[..], &["--dim", "seq=4", "--pad", "seq"]].concat());
    says(
        &refused,
        &["seq cannot be padded", "`weights` (softmax) mixes rows"],
    );
}
