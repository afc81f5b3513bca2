//! An artifact beside the model that it was compiled from: commands take its settings, and refuse others.

use super::errors::says;
use super::program::{Sandbox, place};
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;
use tensor::{Tensor, write_npy_file};

const DENSE: &str = "op:dense(m=64,n=64,k=64)";

fn compile(p: &Sandbox, model: &str, flags: &[&str]) {
    let common = ["compile", model, "--defaults", "--out", "m.tsm"];
    p.ok(&[&common, flags].concat());
}

fn explain(p: &Sandbox, args: &[&str]) -> Value {
    p.json(&[&["explain"], args, &["--time", "0s"]].concat())
}

/// The tasks of the layers; all have one.
fn tasks(explained: &Value) -> Vec<&str> {
    let layers = explained["layers"].as_array().unwrap();
    layers.iter().map(|l| l["task"].as_str().unwrap()).collect()
}

/// How many times the f32 peak the peak is that each layer with operations is judged by.
fn peak_factors(explained: &Value) -> Vec<f64> {
    let peak = explained["ceiling"]["peak_gflops"].as_f64().unwrap();
    let factor = |l: &Value| {
        let number = |name: &str| l[name].as_f64().unwrap();
        let factor = number("peak_factor");
        let of_peak = number("gflops_per_s") / (factor * peak);
        assert!((number("of_peak") - of_peak).abs() < 1e-9, "{l}");
        factor
    };
    let layers = explained["layers"].as_array().unwrap().iter();
    let layers = layers.filter(|l| l["gflop"].as_f64().unwrap() > 0.0);
    layers.map(factor).collect()
}

#[test]
fn an_artifact_of_bf16_is_explained_as_one() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    for precision in ["bf16", "model"] {
        let flags = ["--precision", precision, "--threads", "1"];
        compile(&p, DENSE, &flags);
        let own = explain(&p, &[&[DENSE, "--defaults"], &flags[..]].concat());
        let beside = explain(&p, &[DENSE, "--artifact", "m.tsm"]);
        assert_eq!(tasks(&beside), tasks(&own), "{precision}");
        let factors = peak_factors(&beside);
        assert_eq!(factors, peak_factors(&own), "{precision}");
        // A dot product of bf16 adds two products to each lane of f32, and tiles more.
        let has_products = p.ok(&["doctor"]).contains("BF16 used");
        match precision == "bf16" && has_products {
            true => assert!(factors.iter().all(|f| *f >= 2.0), "{factors:?}"),
            false => assert!(factors.iter().all(|f| *f == 1.0), "{factors:?}"),
        }
        assert!(!factors.is_empty());
        assert_eq!(beside["threads"], 1);
        // 64 * 64 * 64 multiplications and as many additions.
        let layers = beside["layers"].as_array().unwrap();
        let gflop: f64 = layers.iter().map(|l| l["gflop"].as_f64().unwrap()).sum();
        assert!(gflop >= 2.0 * 64f64.powi(3) / 1e9, "{gflop}");
        let checked = p.json(&["check", DENSE, "--artifact", "m.tsm"]);
        assert_eq!(checked["ok"], true, "{checked}");
        let info = p.json(&["info", "m.tsm"]);
        assert_eq!(info["precision"], precision);
        let shown = format!("precision {precision}");
        says(&p.ok(&["info", "m.tsm"]), &["accuracy relaxed", &shown]);
    }
}

#[test]
fn settings_that_contradict_an_artifact_are_refused() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    compile(&p, DENSE, &["--precision", "bf16", "--accuracy", "strict"]);
    let contradictions: [(&[&str], &str); 5] = [
        (&["--precision", "model"], "compiled with --precision bf16"),
        (
            &["--accuracy", "relaxed"],
            "compiled with --accuracy strict",
        ),
        (&["--target", "riscv64-gc"], "compiled with --target"),
        (&["--train"], "compiled without --train"),
        (&["--open-input", "w"], "compiled without --open-input"),
    ];
    for (flags, made) in contradictions {
        let given = flags.join(" ");
        let says_both = |args: &[&str]| {
            let error = p.error(&[args, flags].concat());
            says(&error, &[&given, "m.tsm", made, "help:"]);
        };
        says_both(&["check", DENSE, "--artifact", "m.tsm"]);
        says_both(&["explain", DENSE, "--artifact", "m.tsm"]);
        says_both(&["explain", "m.tsm"]);
        says_both(&["bench", "m.tsm"]);
    }
    // The same settings are no contradiction.
    let same = [
        "--precision",
        "bf16",
        "--accuracy",
        "strict",
        "--target",
        "host",
    ];
    let explained = [&[DENSE, "--artifact", "m.tsm"], &same[..]].concat();
    says(
        explain(&p, &explained)["accuracy"].as_str().unwrap(),
        &["strict", "bf16"],
    );
}

#[test]
fn an_artifact_for_one_thread_has_the_settings_of_the_other() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    compile(&p, DENSE, &["--threads", "1", "--precision", "bf16"]);
    std::fs::rename(p.file("m.tsm"), p.file("one.tsm")).unwrap();
    compile(&p, DENSE, &["--threads", "2"]);
    let scaling = [
        "explain",
        DENSE,
        "--artifact",
        "m.tsm",
        "--scaling",
        "--one-thread",
        "one.tsm",
    ];
    says(
        &p.error(&scaling),
        &["one.tsm", "m.tsm", "--precision bf16", "--precision model"],
    );
    compile(&p, DENSE, &["--threads", "2", "--precision", "bf16"]);
    let explained = explain(&p, &scaling[1..]);
    assert_eq!(explained["threads"], 2);
    assert!(explained["scaling"]["speedup"].as_f64().is_some());
}

/// A training step, whose flags make its graph; and a batch, which is no dimension with a name.
#[test]
fn steps_and_batches_are_known_of_the_artifact() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let train = ["--train", "--learning-rate", "0.1", "--threads", "1"];
    compile(&p, DENSE, &train);
    assert_eq!(p.json(&["check", DENSE, "--artifact", "m.tsm"])["ok"], true);
    let other = ["check", DENSE, "--artifact", "m.tsm", "--train"];
    says(
        &p.error(&[&other[..], &["--learning-rate", "0.2"]].concat()),
        &["--learning-rate 0.2", "with --learning-rate 0.1"],
    );
    compile(&p, "squeezenet1.1", &["--batch", "2"]);
    let beside = ["squeezenet1.1", "--artifact", "m.tsm"];
    let explained = explain(&p, &beside);
    assert!(
        tasks(&explained).iter().any(|t| t.contains("n=2")),
        "{explained}"
    );
    says(
        &p.error(&[&["explain"], &beside[..], &["--batch", "3"]].concat()),
        &["--batch 3", "with --batch 2"],
    );
}

#[test]
fn inputs_that_were_fixed_or_opened_are_known_of_the_artifact() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&["models", "export", "op:matmul(m=4,n=4,k=4)", "product.onnx"]);
    let write = |file: &str, value: f32| {
        let factor = Tensor::from_slice(&[4, 4], &[value; 16]);
        write_npy_file(Path::new(&p.file(file)), &factor).unwrap();
    };
    write("one.npy", 1.0);
    write("two.npy", 2.0);
    compile(&p, "product.onnx", &["--const", "x_1=one.npy"]);
    let check = ["check", "product.onnx", "--artifact", "m.tsm"];
    says(&p.error(&check), &["--const x_1=FILE", "not given"]);
    let with = |file: &'static str| [&check[..], &["--const", file]].concat();
    says(
        &p.error(&with("x_1=two.npy")),
        &["another value of --const x_1"],
    );
    assert_eq!(p.json(&with("x_1=one.npy"))["ok"], true);
    p.ok(&["models", "export", DENSE, "dense.onnx"]);
    let bytes = std::fs::read(p.file("dense.onnx")).unwrap();
    let file = onnx::ModelFile::read(&bytes).unwrap();
    let model = file.import(&onnx::ImportOptions::default()).unwrap().model;
    let weight = model
        .constants()
        .map(|(v, _)| model.value(v).name().to_string());
    let weight = weight.last().unwrap();
    compile(&p, "dense.onnx", &["--open-input", &weight]);
    let check = ["check", "dense.onnx", "--artifact", "m.tsm"];
    assert_eq!(p.json(&check)["ok"], true);
}
