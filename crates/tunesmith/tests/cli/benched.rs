//! What `bench` says of a model: latencies, throughput, several at once, and another program beside it.

use super::errors::says;
use super::program::{OP, Sandbox, place, tuned};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use tempfile::tempdir;
use tensor::{Tensor, write_npy_file};

const QUICK: [&str; 4] = ["--threads", "1", "--runs", "7"];

fn number(v: &Value) -> f64 {
    v.as_f64().unwrap_or_else(|| panic!("{v} is no number"))
}

#[test]
fn a_model_is_measured_without_a_file_of_it() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let defaults = p.json(&[&["bench", OP, "--defaults"][..], &QUICK].concat());
    assert_eq!(defaults["runs"], 7);
    let times = ["min_ms", "median_ms", "p90_ms", "p99_ms"].map(|n| number(&defaults[n]));
    assert!(times.is_sorted() && times[0] > 0.0, "{times:?}");
    let mean = number(&defaults["mean_ms"]);
    // A sum of equal times is rounded.
    let (low, high) = (times[0] * (1.0 - 1e-9), times[3] * (1.0 + 1e-9));
    assert!((low..=high).contains(&mean), "{defaults}");
    // One after the other: the throughput is that of the mean.
    let rate = number(&defaults["inferences_per_s"]);
    assert!((rate * mean / 1e3 - 1.0).abs() < 1e-6, "{defaults}");
    let text = p.ok(&[&["bench", OP, "--defaults"][..], &QUICK].concat());
    says(
        &text,
        &["median", "99th", "inferences/s (7 runs, 1 thread,"],
    );
    // The best known schedules of a store are used.
    let store = ["--store", &tuned().store];
    let known = [&["bench", OP][..], &QUICK, &store].concat();
    assert!(!p.warnings(&known).contains("no schedule was measured"));
    assert!(!folder.path().join("dense.tsm").exists());
}

#[test]
fn rows_are_counted_where_the_batch_is_known() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    super::variants::softmax(&p);
    let args = ["bench", "m.onnx", "--batch", "2,4", "--defaults"];
    let args = [&args[..], &QUICK].concat();
    let all = p.json(&args);
    for (variant, rows) in all["variants"].as_array().unwrap().iter().zip([2.0, 4.0]) {
        let ratio = number(&variant["rows_per_s"]) / number(&variant["inferences_per_s"]);
        assert!((ratio - rows).abs() < 1e-9, "{variant}");
    }
    let text = p.ok(&args);
    says(&text, &["rows/s", "batch=2", "batch=4", "accuracy relaxed"]);
}

#[test]
fn streams_run_at_once() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let args = [&["bench", &t.artifact, "--streams", "2"][..], &QUICK].concat();
    let both = p.json(&args);
    assert_eq!(both["runs"], 14);
    let streams = both["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 2);
    for stream in streams {
        assert_eq!(stream["runs"], 7);
        let both = ["median_ms", "p99_ms"].map(|n| number(&stream[n]));
        assert!(both.is_sorted() && both[0] > 0.0, "{stream}");
    }
    let text = p.ok(&args);
    says(&text, &["2 streams", "stream 1", "stream 2", "p99"]);
    let pinned = [&args[..], &["--pin", "0"]].concat();
    says(&p.error(&pinned), &["--pin names 1 CPUs for 2 threads"]);
}

#[test]
fn inputs_come_from_files() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let good = Tensor::from_slice(&[4, 16], &[0.5f32; 64]);
    write_npy_file(&p.folder.join("x.npy"), &good).unwrap();
    let bad = Tensor::from_slice(&[4, 8], &[0.5f32; 32]);
    write_npy_file(&p.folder.join("bad.npy"), &bad).unwrap();
    let with =
        |input: &'static str| [&["bench", &t.artifact, "--input", input][..], &QUICK].concat();
    assert_eq!(p.json(&with("x=x.npy"))["runs"], 7);
    says(&p.error(&with("x=bad.npy")), &["[4, 16]", "[4, 8]"]);
    says(&p.error(&with("z=x.npy")), &["no input `z`", "x"]);
    let twice = [&with("x=x.npy")[..], &["--input", "x=x.npy"]].concat();
    says(&p.error(&twice), &["given twice"]);
}

#[test]
fn flags_that_have_no_effect_are_refused() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let bench = |more: &[&'static str]| [&["bench", &t.artifact][..], more].concat();
    for flags in [["--runs", "3"], ["--warm-up", "0"], ["--streams", "2"]] {
        let all = [&["--select", "online"][..], &flags].concat();
        says(&p.error(&bench(&all)), &[flags[0], "no effect"]);
    }
    let compare = bench(&["--compare", "onnxruntime"]);
    says(&p.error(&compare), &["ONNX file", "models export"]);
    assert!(
        p.error(&bench(&["--runs", "3", "--time", "1s"]))
            .contains("--time")
    );
    assert_eq!(
        p.json(&bench(&["--runs", "3", "--warm-up", "0"]))["runs"],
        3
    );
}

/// The path of a Python that is a script of a shell.
fn fake(p: &Sandbox, script: &str) -> String {
    let path = p.folder.join("python");
    std::fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn another_program_runs_beside_it() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&["models", "export", OP, "model.onnx"]);
    // An input of 4 x 16 numbers; every inference takes two seconds.
    let python = fake(
        &p,
        "read ask\nhead -c 256 > input\necho '{\"version\": \"9.9\"}'\n\
         while read unit amount; do echo \"$unit $amount\" >> asked; echo 2000000000 2000000000; done\n",
    );
    let args = [
        "bench",
        "model.onnx",
        "--defaults",
        "--compare",
        "onnxruntime",
    ];
    let args = [&args[..], &["--python", &python], &QUICK].concat();
    let report = p.json(&args);
    assert_eq!(report["runs"], 7);
    let compared = &report["compared"];
    assert_eq!(compared["version"], "9.9");
    assert_eq!(compared["median_ms"], 2000.0);
    let ratio = 2000.0 / number(&report["median_ms"]);
    assert!((number(&compared["ratio"]) / ratio - 1.0).abs() < 1e-9);
    let asked = std::fs::read_to_string(folder.path().join("asked")).unwrap();
    assert_eq!(asked, "runs 1\n".repeat(7));
    let input = std::fs::read(folder.path().join("input")).unwrap();
    assert_eq!(input.len(), 256);
    assert!(input.iter().any(|b| *b != 0), "equal inputs are sent");
    let text = p.ok(&args);
    says(
        &text,
        &[
            "tunesmith",
            "onnxruntime 9.9 takes",
            "the time of Tunesmith",
        ],
    );
}

#[test]
fn a_program_that_is_not_there_is_said_to_be() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&["models", "export", OP, "model.onnx"]);
    let bench = |python: &str| {
        let args = [
            "bench",
            "model.onnx",
            "--defaults",
            "--compare",
            "onnxruntime",
        ];
        let own = ["--python".to_string(), python.to_string()];
        let all = args.into_iter().map(String::from).chain(own);
        all.chain(QUICK.map(String::from)).collect::<Vec<_>>()
    };
    let error = |python: &str| {
        let args = bench(python);
        p.error(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let without = fake(
        &p,
        "echo '{\"error\": \"ModuleNotFoundError: No module named onnxruntime\"}'\n",
    );
    let hint = "pip install onnxruntime";
    says(
        &error(&without),
        &["No module named", "--python PATH", hint],
    );
    says(
        &error("/no/such/python"),
        &["/no/such/python", "does not start", hint],
    );
    let dies = fake(&p, "exit 3\n");
    says(&error(&dies), &["ended without an answer"]);
    let dies = fake(
        &p,
        "read ask\nhead -c 256 > input\necho '{\"version\": \"9.9\"}'\n",
    );
    says(&error(&dies), &["ended while it ran"]);
}

#[test]
fn the_script_answers_as_it_promises() {
    let has = |python: &str| {
        let mut c = std::process::Command::new(python);
        c.args(["-c", "import onnxruntime, numpy"]);
        c.stderr(std::process::Stdio::null());
        c.status().is_ok_and(|s| s.success())
    };
    let named = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    if !has(&named) {
        return;
    }
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&["models", "export", OP, "model.onnx"]);
    let args = [
        "bench",
        "model.onnx",
        "--defaults",
        "--compare",
        "onnxruntime",
    ];
    let report = p.json(&[&args[..], &["--python", &named], &QUICK].concat());
    assert_eq!(report["compared"]["runs"], 7);
    assert!(number(&report["compared"]["median_ms"]) > 0.0);
}

#[test]
fn traces_have_an_event_for_each_step() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let bench = [&["bench", &t.artifact, "--trace", "b.json"][..], &QUICK].concat();
    let run = ["run", &t.artifact, "--random", "1", "--trace", "r.json"];
    for (args, file) in [(&bench[..], "b.json"), (&run[..], "r.json")] {
        // The same file may be written again, and nothing else is replaced.
        p.ok(args);
        p.ok(args);
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        let trace: Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let steps: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
        assert!(!steps.is_empty());
        let mut end = 0.0;
        for e in steps {
            assert!(e["name"].is_string() && e["pid"].is_u64() && e["tid"].is_u64());
            assert!((number(&e["ts"]) - end).abs() < 1e-6, "{e}");
            assert!(number(&e["dur"]) > 0.0);
            end = number(&e["ts"]) + number(&e["dur"]);
            says(e["args"]["shape"].as_str().unwrap(), &["4x16 > 4x32"]);
            assert!(!e["args"]["algorithm"].as_str().unwrap().is_empty());
        }
        std::fs::write(folder.path().join(file), "mine").unwrap();
        says(&p.error(args), &["is not replaced"]);
    }
    std::fs::remove_file(folder.path().join("r.json")).unwrap();
    says(
        &p.error(&[&run[..], &["--select", "online"]].concat()),
        &["--trace shows the first alternative"],
    );
}
