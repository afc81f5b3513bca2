//! What is the user's to correct gives one error that says so.

use super::program::{OP, Sandbox, place, tuned};
use onnx::proto::{
    GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TypeProto,
    ValueInfoProto,
    tensor_shape_proto::{Dimension, dimension},
    type_proto,
};
use prost::Message;
use tempfile::tempdir;
use tensor::{Tensor, write_npy_file};

pub fn says(error: &str, words: &[&str]) {
    for w in words {
        assert!(error.contains(w), "`{w}` is missing in: {error}");
    }
}

/// A tensor of f32 of two axes.
pub fn value(name: &str, sizes: [dimension::Value; 2]) -> ValueInfoProto {
    let dim = sizes.map(|value| Dimension { value: Some(value) }).to_vec();
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            tensor_type: Some(type_proto::Tensor {
                elem_type: Some(1),
                shape: Some(TensorShapeProto { dim }),
            }),
        }),
        ..Default::default()
    }
}

/// A model of one node from `x` to `y`, as a file.
pub fn onnx(p: &Sandbox, file: &str, op: &str, rows: dimension::Value) {
    let node = NodeProto {
        op_type: Some(op.into()),
        name: Some("the node".into()),
        input: vec!["x".into()],
        output: vec!["y".into()],
        ..Default::default()
    };
    let sizes = || [rows.clone(), dimension::Value::DimValue(8)];
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto {
            domain: None,
            version: Some(17),
        }],
        graph: Some(GraphProto {
            name: Some("g".into()),
            node: vec![node],
            input: vec![value("x", sizes())],
            output: vec![value("y", sizes())],
            ..Default::default()
        }),
        ..Default::default()
    };
    std::fs::write(p.file(file), model.encode_to_vec()).unwrap();
}

#[test]
fn damaged_and_unknown_models() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&["models", "export", OP, "whole.onnx"]);
    let bytes = std::fs::read(p.file("whole.onnx")).unwrap();
    std::fs::write(p.file("cut.onnx"), &bytes[..bytes.len() * 3 / 5]).unwrap();
    for command in ["tune", "compile", "check", "tasks"] {
        says(&p.error(&[command, "cut.onnx"]), &["cut.onnx", "cut short"]);
    }
    says(&p.error(&["info", "cut.onnx"]), &["cut.onnx", "cut short"]);
    says(&p.error(&["tasks", "nowhere.onnx"]), &["nowhere.onnx"]);
    says(
        &p.error(&["tasks", "resnet19"]),
        &["resnet19", "resnet18", "help:"],
    );
    says(
        &p.error(&["tasks", "op:densely(m=4)"]),
        &["densely", "dense"],
    );
    says(&p.error(&["tasks", "op:dense(q=4)"]), &["`q`"]);
    says(&p.error(&["tasks", "op:dense(m=0)"]), &["m=0"]);
    says(&p.error(&["tasks", "op:dense(m=4"]), &["parenthesis"]);

    onnx(&p, "odd.onnx", "Frobnicate", dimension::Value::DimValue(4));
    says(
        &p.error(&["tasks", "odd.onnx"]),
        &["Frobnicate", "not supported"],
    );
}

#[test]
fn a_model_without_tasks_is_tuned_and_compiled() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    onnx(&p, "same.onnx", "Identity", dimension::Value::DimValue(4));
    let text = p.ok(&["tune", "same.onnx", "--trials", "4", "--store", "a.sqlite"]);
    says(&text, &["the defaults are kept", "written to"]);
    p.ok(&["compile", "same.onnx", "--store", "a.sqlite"]);
    let text = p.ok(&["tasks", "same.onnx", "--store", "a.sqlite"]);
    says(&text, &["0 tasks, 0.000 GFLOP", ", 0.000 ms in all"]);
}

#[test]
fn a_dimension_without_a_size() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let named = dimension::Value::DimParam("rows".into());
    onnx(&p, "open.onnx", "Relu", named);
    let error = p.error(&["tasks", "open.onnx"]);
    says(&error, &["rows", "--dim rows=SIZE", "--batch SIZE"]);
    says(
        &p.error(&["tasks", "open.onnx", "--dim", "rows"]),
        &["NAME=VALUE"],
    );
    says(
        &p.error(&["tasks", "open.onnx", "--dim", "rows=x"]),
        &["--dim rows=x", "a whole number from 1"],
    );
    for none in [["--dim", "rows=0"], ["--batch", "0"]] {
        let error = p.error(&[&["tasks", "open.onnx"][..], &none].concat());
        says(&error, &[none[0], "a whole number from 1"]);
    }
    let given = [
        "tasks",
        "open.onnx",
        "--dim",
        "rows=3",
        "--store",
        "s.sqlite",
    ];
    assert_eq!(p.json(&given)["steps"], 1);
}

#[test]
fn sizes_that_nothing_takes() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let named = dimension::Value::DimParam("rows".into());
    onnx(&p, "open.onnx", "Relu", named);
    onnx(&p, "fixed.onnx", "Relu", dimension::Value::DimValue(4));
    fn with<'a>(model: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        [&["tasks", model, "--store", "s.sqlite"], args].concat()
    }
    let misspelt = with("open.onnx", &["--dim", "rows=3", "--dim", "rwos=4"]);
    says(&p.error(&misspelt), &["--dim rwos changes nothing"]);
    let both = with("open.onnx", &["--dim", "rows=3", "--batch", "2"]);
    says(
        &p.error(&both),
        &["--batch 2 changes nothing", "--dim gives another size"],
    );
    p.ok(&with("open.onnx", &["--dim", "rows=3", "--batch", "3"]));
    let twice = with("open.onnx", &["--dim", "rows=3", "--dim", "rows=4"]);
    says(&p.error(&twice), &["--dim rows is given twice"]);
    let x = Tensor::from_slice(&[1, 8], &[0f32; 8]);
    write_npy_file(&folder.path().join("x.npy"), &x).unwrap();
    let twice = with("open.onnx", &["--const", "x=x.npy", "--const", "x=x.npy"]);
    says(&p.error(&twice), &["--const x is given twice"]);
    for model in ["bert-base", OP] {
        says(
            &p.error(&with(model, &["--batch", "8"])),
            &[
                "--batch, --dim, --const, --open-input and --limit",
                model,
                "fixed",
            ],
        );
    }
    let misspelt = p.error(&with("resnet1800", &["--batch", "8"]));
    says(&misspelt, &["resnet1800", "tunesmith models", "--batch"]);
    let plain = p.error(&with("resnet1800", &[]));
    assert!(!plain.contains("--batch"), "{plain}");
    let fixed = p.error(&with("fixed.onnx", &["--dim", "x.2=9"]));
    says(&fixed, &["--dim x.2 changes nothing", "fixes all sizes"]);
    // What keeps rows apart takes other sizes than the file's.
    p.ok(&with("fixed.onnx", &["--batch", "8"]));
    p.ok(&with("fixed.onnx", &["--dim", "x.1=9"]));
    p.ok(&with("fixed.onnx", &["--dim", "x.1=8"]));
    p.ok(&with("fixed.onnx", &["--batch", "4"]));
    p.ok(&with("open.onnx", &["--batch", "4"]));
}

#[test]
fn compiled_models_of_other_models() {
    let t = tuned();
    for command in ["check", "explain"] {
        let other = "op:dense(m=4,n=32,k=8)";
        let args = [command, other, "--artifact", &t.artifact, "--threads", "1"];
        let error = t.place.error(&args);
        says(
            &error,
            &["compiled from another model", "f32[4,16]", "f32[4,8]"],
        );
    }
    // Inputs and outputs of the same sizes make no same model.
    let other = "op:conv1d(c=16,w=4,k=32,s=1)";
    let args = ["explain", other, "--artifact", &t.artifact, "--time", "0s"];
    let error = t.place.error(&args);
    let alone = format!("tunesmith explain {}", t.artifact);
    says(&error, &["another model", "1 of its 1 steps", OP, &alone]);
}

#[test]
fn a_compiled_model_is_checked_alone_if_its_model_is_known() {
    let t = tuned();
    let report = t.place.json(&["check", &t.artifact]);
    assert_eq!(report["ok"], true, "{report}");
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&["models", "export", OP, "whole.onnx"]);
    p.ok(&["compile", "whole.onnx", "--defaults", "--out", "m.tsm"]);
    let error = p.error(&["check", "m.tsm"]);
    says(&error, &["tunesmith check whole.onnx --artifact m.tsm"]);
    p.ok(&["check", "whole.onnx", "--artifact", "m.tsm"]);
}

#[test]
fn a_flag_that_a_command_does_not_have() {
    let t = tuned();
    let error = t
        .place
        .error(&["bench", &t.artifact, "--artifact", "m.tsm"]);
    says(&error, &["unexpected argument '--artifact'", "Usage:"]);
    assert!(!error.contains("as a value"), "{error}");
    // What is near is still named.
    let error = t.place.error(&["bench", &t.artifact, "--thread", "1"]);
    says(&error, &["'--threads'"]);
}

#[test]
fn searches_for_nothing() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let tune = |args: &[&str]| {
        let common = ["tune", OP, "--trials", "1", "--store", "s.sqlite"];
        p.error(&[&common, args].concat())
    };
    says(
        &tune(&["--algorithms", "winogard"]),
        &["`winogard`", "tasks MODEL --json"],
    );
    says(&tune(&["--out", "."]), &["is a folder", "--out FILE"]);
}

#[test]
fn inputs_that_do_not_fit() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let write = |name: &str, t: &Tensor| write_npy_file(&folder.path().join(name), t).unwrap();
    write("wide.npy", &Tensor::from_slice(&[4, 17], &[0f32; 68]));
    write("double.npy", &Tensor::from_slice(&[4, 16], &[0f64; 64]));
    write("x.npy", &Tensor::from_slice(&[4, 16], &[0f32; 64]));
    std::fs::write(folder.path().join("text.npy"), "no array").unwrap();
    let run = |inputs: &[&str]| {
        let mut args = vec!["run", &t.artifact];
        inputs.iter().for_each(|i| args.extend(["--input", *i]));
        p.error(&args)
    };
    says(
        &run(&[]),
        &["`x`", "f32", "[4, 16]", "--input NAME=FILE", "--random"],
    );
    says(&run(&["x=wide.npy"]), &["`x`", "[4, 17]", "[4, 16]"]);
    says(&run(&["x=double.npy"]), &["`x`", "f64", "f32"]);
    says(&run(&["z=x.npy"]), &["`z`", "`x`, f32"]);
    says(&run(&["x=x.npy", "x=x.npy"]), &["twice"]);
    says(&run(&["x=text.npy"]), &["text.npy", "not a .npy file"]);
    says(&run(&["x=gone.npy"]), &["gone.npy"]);
    says(&run(&["x.npy"]), &["NAME=VALUE"]);
    let threads = ["run", &t.artifact, "--random", "1", "--threads", "0"];
    says(&p.error(&threads), &["--threads", "from 1 to 4096"]);
}

#[test]
fn artifacts_that_cannot_run_here() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let foreign = match std::env::consts::ARCH {
        "aarch64" => "x86-avx2",
        _ => "aarch64-neon",
    };
    p.ok(&[
        "compile",
        OP,
        "--target",
        foreign,
        "--defaults",
        "--out",
        "foreign.tsm",
    ]);
    for command in ["run", "bench"] {
        let error = p.error(&[command, "foreign.tsm"]);
        says(&error, &["this machine is", "compile the model"]);
    }
    says(
        &p.error(&["tune", OP, "--target", foreign]),
        &[foreign, "cannot run here"],
    );
    says(
        &p.error(&["tune", OP, "--target", "vax"]),
        &["vax", "x86-avx2"],
    );

    let bytes = std::fs::read(&t.artifact).unwrap();
    std::fs::write(p.file("cut.tsm"), &bytes[..bytes.len() / 2]).unwrap();
    std::fs::write(p.file("head.tsm"), &bytes[..10]).unwrap();
    let mut damaged = bytes.clone();
    let last = damaged.iter().rposition(|b| *b != 0).unwrap();
    damaged[last] ^= 0x55;
    std::fs::write(p.file("damaged.tsm"), damaged).unwrap();
    for command in ["run", "bench"] {
        says(&p.error(&[command, "cut.tsm"]), &["cut.tsm", "cut short"]);
        says(&p.error(&[command, "head.tsm"]), &["head.tsm"]);
        says(
            &p.error(&[command, "damaged.tsm"]),
            &["damaged.tsm", "checksum"],
        );
        says(&p.error(&[command, "none.tsm"]), &["none.tsm"]);
    }
}

#[test]
fn stores_that_cannot_be_used() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::write(folder.path().join("text"), "this is no database").unwrap();
    for store in ["folder", "text", "no/such/folder/s.sqlite"] {
        let error = p.error(&["tune", OP, "--trials", "1", "--store", store]);
        says(&error, &[store]);
        says(&p.error(&["records", "--store", store]), &[store]);
        says(&p.error(&["tasks", OP, "--store", store]), &[store]);
    }
    assert!(!folder.path().join("no").exists());
    // Reading creates no store.
    says(
        &p.error(&["records", "--store", "new.sqlite"]),
        &["there is no store", "tune"],
    );
    assert!(!folder.path().join("new.sqlite").exists());
}

/// Each is one line that says what makes sense, and no work.
fn numbers_that_make_no_sense(p: &Sandbox, artifact: &str) {
    for (command, flags) in [
        (
            &["tune", OP][..],
            &[
                "--threads",
                "--batch",
                "--trials",
                "--time",
                "--builders",
                "--measure-batch",
                "--devices",
                "--oversubscribe",
                "--build-limit",
                "--run-limit",
                "--compare-time",
            ][..],
        ),
        (&["bench", artifact], &["--threads", "--time"]),
        (&["run", artifact], &["--threads"]),
        (&["explain", OP], &["--threads", "--time"]),
        (&["doctor"], &["--threads"]),
        (
            &["replay", OP, "--trace", "best"],
            &["--samples", "--run-limit"],
        ),
        (
            &["study", "measure", OP],
            &[
                "--candidates",
                "--builders",
                "--samples",
                "--repetitions",
                "--threads",
                "--limit",
            ],
        ),
    ] {
        for flag in flags {
            for value in ["0", "-1", "NaN", "1e99"] {
                // The least number of rounds.
                if (*flag, value) == ("--time", "0") && command[0] != "tune" {
                    continue;
                }
                let value = format!("{flag}={value}");
                let error = p.error(&[command, &[&value]].concat());
                says(&error, &["invalid value", flag, "try '--help'"]);
                assert!(error.len() < 250, "{error}");
            }
        }
    }
    for tolerance in ["NaN", "inf", "-1e-4", ""] {
        let given = format!("--tolerance={tolerance}");
        says(&p.error(&["check", OP, &given]), &["--tolerance", "1e-4"]);
    }
}

#[test]
fn options_that_make_no_sense() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    says(
        &p.error(&["tune", OP, "--strategy", "guesswork"]),
        &["guesswork", "evolutionary", "es", "random"],
    );
    for time in ["soon", "3 parsecs", "-1s", "1e400s"] {
        let time = format!("--time={time}");
        says(&p.error(&["tune", OP, &time]), &["--time", "such as 90s"]);
    }
    numbers_that_make_no_sense(&p, &t.artifact);
    let both = ["tune", OP, "--time", "1s", "--trials", "3"];
    says(&p.error(&both), &["cannot be used with"]);
    says(&p.error(&["tune", OP, "--threads", "0"]), &["--threads"]);
    says(&p.error(&["frobnicate"]), &["frobnicate"]);

    let dump = |more: &[&str]| p.error(&[&["dump", OP, "--threads", "1"], more].concat());
    says(&dump(&["--stage", "soup"]), &["soup", "assembly"]);
    says(
        &dump(&["--stage", "flat", "--task", "conv2d"]),
        &["`conv2d`", "0 dense "],
    );
    says(
        &dump(&["--stage", "flat", "--candidate", "no.trace"]),
        &["no.trace"],
    );
    says(
        &dump(&["--stage", "passes", "--pass", "magic"]),
        &["magic", "vectorize"],
    );
    let best = [
        "--stage",
        "flat",
        "--candidate",
        "best",
        "--store",
        "s.sqlite",
    ];
    says(&dump(&best), &["knows no time", "tune it first"]);
    std::fs::write(folder.path().join("odd.trace"), "split main.q [_, 4]\n").unwrap();
    std::fs::write(folder.path().join("bad.trace"), "sprit main.m [_, 4]\n").unwrap();
    says(
        &dump(&["--stage", "flat", "--candidate", "odd.trace"]),
        &["main.q"],
    );
    let replay = |more: &[&str]| p.error(&[&["replay"], more].concat());
    says(&replay(&[OP, "--trace", "odd.trace"]), &["main.q"]);
    says(
        &replay(&[OP, "--trace", "bad.trace"]),
        &["bad.trace", "line 1"],
    );
    says(&replay(&[]), &["--trace"]);
    says(
        &replay(&["--run", "nope", "--store", &t.store]),
        &["nope", "records runs"],
    );
    let unknown = p.error(&["records", "--op", "conv9d", "--store", &t.store]);
    says(&unknown, &["dense"]);
    says(
        &p.error(&["records", "import", "none.jsonl"]),
        &["none.jsonl"],
    );
    let folder_out = ["records", "export", ".", "--store", &t.store];
    says(&p.error(&folder_out), &["cannot write"]);
    let nowhere = ["run", &t.artifact, "--random", "1", "--out", "no/y.npy"];
    says(&p.error(&nowhere), &["no/y.npy"]);
}
