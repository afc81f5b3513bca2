//! One artifact for several sizes: compiling, tuning, running, measuring and checking it.

use super::errors::{onnx, says};
use super::program::{Sandbox, place};
use onnx::proto::tensor_shape_proto::dimension::Value;
use std::path::Path;
use tempfile::tempdir;
use tensor::{Tensor, read_npy_file, write_npy_file};

/// A model whose first dimension is open.
pub fn softmax(p: &Sandbox) {
    onnx(p, "m.onnx", "Softmax", Value::DimParam("rows".into()));
}

const COMPILE: [&str; 5] = ["compile", "m.onnx", "--defaults", "--threads", "1"];

fn compile(p: &Sandbox, flags: &[&str]) -> serde_json::Value {
    p.json(&[&COMPILE, flags, &["--out", "m.tsm"]].concat())
}

fn input(p: &Sandbox, rows: usize) {
    let values: Vec<f32> = (0..rows * 8).map(|i| i as f32 / 7.0).collect();
    let x = Tensor::from_slice(&[rows, 8], &values);
    write_npy_file(Path::new(&p.file("x.npy")), &x).unwrap();
}

const RUN: [&str; 8] = [
    "run",
    "m.tsm",
    "--threads",
    "1",
    "--input",
    "x=x.npy",
    "--out",
    "y.npy",
];

/// Runs so many rows; the variant that ran.
fn run(p: &Sandbox, rows: usize) -> String {
    input(p, rows);
    let said = p.json(&RUN);
    let y = read_npy_file(Path::new(&p.file("y.npy"))).unwrap();
    assert_eq!(y.shape(), [rows, 8]);
    for row in y.as_slice::<f32>().chunks(8) {
        let sum: f32 = row.iter().sum();
        assert!((sum - 1.0).abs() < 1e-5, "{row:?}");
        assert!(row.is_sorted(), "{row:?}");
    }
    said["variant"].as_str().unwrap().to_string()
}

#[test]
fn the_shape_of_the_input_selects_the_variant() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    softmax(&p);
    let compiled = compile(&p, &["--dim", "rows=16,1,4"]);
    let sizes: Vec<_> = compiled["variants"].as_array().unwrap().iter().collect();
    let sizes: Vec<_> = sizes.iter().map(|v| v["sizes"].as_str().unwrap()).collect();
    assert_eq!(sizes, ["rows=1", "rows=4", "rows=16"]);
    for rows in [4, 1, 16] {
        assert_eq!(run(&p, rows), format!("rows={rows}"));
    }
    input(&p, 3);
    says(&p.error(&RUN), &["rows is 3", "rows=1, 4, 16"]);
    let random = ["run", "m.tsm", "--random", "1"];
    says(
        &p.error(&random),
        &["the size of rows is open", "--dim rows=SIZE"],
    );
    let other = |flags: &[&'static str]| [&random[..], flags].concat();
    assert_eq!(p.json(&other(&["--dim", "rows=4"]))["variant"], "rows=4");
    says(&p.error(&other(&["--dim", "rows=5"])), &["rows is 5"]);
    says(
        &p.error(&other(&["--dim", "row=4"])),
        &["no dimension `row`", "rows"],
    );
    says(
        &p.error(&other(&["--batch", "4"])),
        &["no dimension `batch`"],
    );
}

#[test]
fn every_variant_is_measured_and_checked() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    softmax(&p);
    compile(&p, &["--batch", "1,4"]);
    let info = p.json(&["info", "m.tsm"]);
    assert_eq!(info["variant_steps"].as_array().unwrap().len(), 2);
    assert_eq!(info["variant_steps"][0], info["steps"]);
    says(&p.ok(&["info", "m.tsm"]), &["of batch=1", "batch=4 has"]);
    let run = ["run", "m.tsm", "--batch", "3", "--random", "1"];
    says(&p.error(&run), &["batch=1, 4", "compile the model with"]);
    let bench = ["bench", "m.tsm", "--threads", "1", "--time", "1ms"];
    let all = p.json(&bench);
    let sizes = |v: &serde_json::Value| v["sizes"].as_str().unwrap().to_string();
    let all: Vec<_> = all["variants"]
        .as_array()
        .unwrap()
        .iter()
        .map(sizes)
        .collect();
    assert_eq!(all, ["batch=1", "batch=4"]);
    let one = p.json(&[&bench[..], &["--batch", "4"]].concat());
    assert_eq!(one["sizes"], "batch=4");
    says(
        &p.error(&[&bench[..], &["--dim", "batch=2"]].concat()),
        &["batch=1, 4"],
    );
    let check = ["check", "m.onnx", "--artifact", "m.tsm", "--threads", "1"];
    let checked = p.json(&check);
    assert_eq!(checked["variants"].as_array().unwrap().len(), 2);
    assert_eq!(checked["ok"], true);
    assert_eq!(
        p.json(&[&check[..], &["--batch", "4"]].concat())["ok"],
        true
    );
    let explain = [
        "explain",
        "m.onnx",
        "--artifact",
        "m.tsm",
        "--time",
        "1ms",
        "--threads",
        "1",
    ];
    let explained = p.json(&[&explain[..], &["--batch", "4"]].concat());
    assert_eq!(explained["threads"], 1);
    let several = p.error(&[&explain[..], &["--batch", "1,4"]].concat());
    says(&several, &["2 variants", "batch=1; batch=4", "--dim"]);
    says(
        &p.error(&[&explain[..], &["--batch", "2"]].concat()),
        &["batch=1, 4"],
    );
}

#[test]
fn smaller_sizes_are_padded_where_rows_stay_apart() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    softmax(&p);
    compile(&p, &["--batch", "2,5", "--pad", "batch"]);
    for (rows, variant) in [(1, 2), (2, 2), (3, 5), (5, 5)] {
        assert_eq!(run(&p, rows), format!("batch={variant}"));
    }
    input(&p, 6);
    says(&p.error(&RUN), &["batch is 6", "smaller ones are padded"]);
    // One variant serves all that is smaller.
    compile(&p, &["--batch", "4", "--pad", "batch"]);
    input(&p, 3);
    p.ok(&RUN);
    let refused = |flags: &[&'static str]| p.error(&[&COMPILE, flags].concat());
    let unknown = refused(&["--batch", "4", "--pad", "seq"]);
    says(&unknown, &["--pad seq", "no such dimension", "batch"]);
    // The outputs have the rows on another axis.
    onnx(&p, "m.onnx", "Transpose", Value::DimParam("rows".into()));
    compile(&p, &["--batch", "4", "--pad", "batch"]);
    input(&p, 3);
    p.ok(&RUN);
    let y = read_npy_file(Path::new(&p.file("y.npy"))).unwrap();
    assert_eq!(y.shape(), [8, 3]);
}

#[test]
fn sizes_that_make_no_sense_together() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    softmax(&p);
    let refused = |flags: &[&'static str]| p.error(&[&COMPILE, flags].concat());
    says(
        &refused(&["--dim", "rows=1,x"]),
        &["--dim rows=1,x", "whole number"],
    );
    says(&refused(&["--batch", "1,0"]), &["whole number"]);
    says(
        &refused(&["--batch", "1", "--dim", "batch=2"]),
        &["both give the size of the batch"],
    );
    let many: Vec<String> = (1..=300).map(|n| n.to_string()).collect();
    let many = many.join(",");
    let many = p.error(&[&COMPILE[..], &["--batch", &many]].concat());
    says(&many, &["more than 256 combinations"]);
    let several = ["tasks", "m.onnx", "--batch", "1,2"];
    says(&p.error(&several), &["2 combinations of sizes"]);
}

#[test]
fn variants_are_tuned_in_one_run() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    softmax(&p);
    let tune = [
        "tune",
        "m.onnx",
        "--batch",
        "1,4",
        "--threads",
        "1",
        "--trials",
        "4",
        "--store",
        "s.sqlite",
        "--out",
        "m.tsm",
        "--in-model-time",
        "0s",
    ];
    let tuned = p.json(&tune);
    let models: Vec<_> = tuned["models"].as_array().unwrap().iter().collect();
    let names: Vec<_> = models
        .iter()
        .map(|m| m["model"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["m batch=1", "m batch=4"]);
    for rows in [1, 4] {
        assert_eq!(run(&p, rows), format!("batch={rows}"));
    }
}
