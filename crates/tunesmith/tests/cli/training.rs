//! Training steps: made, run over data, resumed, and refused.

use super::program::{Sandbox, place};
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;
use tensor::{DType, Fill, Tensor, fill_tensor, write_npy_file};

const ROWS: usize = 12;
const CLASSIFIER: &str = "op:dense(m=4,n=16,k=32)";

/// Rows that a linear layer can tell apart: the label is the position of the largest of the first values.
fn data(folder: &Path) {
    let x = fill_tensor(
        DType::F32,
        &[ROWS, 32],
        Fill::Uniform { lo: -1.0, hi: 1.0 },
        3,
    );
    let largest = |row: usize| {
        let value = |i: &i64| x.get_f64(32 * row + *i as usize);
        (0..16i64).max_by(|a, b| value(a).total_cmp(&value(b)))
    };
    let labels: Vec<i64> = (0..ROWS).filter_map(largest).collect();
    write_npy_file(&folder.join("x.npy"), &x).unwrap();
    let labels = Tensor::from_slice(&[ROWS], &labels);
    write_npy_file(&folder.join("labels.npy"), &labels).unwrap();
}

fn step(p: &Sandbox) {
    p.ok(&[
        "compile",
        CLASSIFIER,
        "--threads",
        "1",
        "--train",
        "--learning-rate",
        "0.1",
        "--out",
        "step.tsm",
    ]);
}

fn train(p: &Sandbox, more: &[&str]) -> Value {
    let common = [
        "train",
        "step.tsm",
        "--threads",
        "1",
        "--input",
        "x=x.npy",
        "--input",
        "labels=labels.npy",
    ];
    p.json(&[&common[..], more].concat())
}

fn losses(report: &Value) -> Vec<f64> {
    let all = report["losses"].as_array().unwrap().iter();
    all.map(|l| l.as_f64().unwrap()).collect()
}

#[test]
fn a_step_learns_and_goes_on_where_it_ended() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    data(folder.path());
    step(&p);
    let report = train(&p, &["--epochs", "20"]);
    let whole = losses(&report);
    assert_eq!(whole.len(), 60);
    // Less than half of what the first epoch had.
    let sum = |part: &[f64]| part.iter().sum::<f64>();
    assert!(sum(&whole[57..]) < 0.5 * sum(&whole[..3]), "{whole:?}");
    let epochs = &report["epochs"];
    let accuracy = |epoch: usize| epochs[epoch]["accuracy"].as_f64().unwrap();
    assert!(accuracy(19) > 0.9 && accuracy(0) < accuracy(19), "{epochs}");
    // Two runs, of which the second resumes, are one.
    let first = train(&p, &["--epochs", "8", "--out", "w"]);
    assert_eq!(first["out"], "w");
    let second = train(&p, &["--epochs", "12", "--resume", "w"]);
    assert_eq!([losses(&first), losses(&second)].concat(), whole);
    // Another order of rows gives other losses, the same seed the same ones.
    let shuffled = losses(&train(&p, &["--shuffle", "7"]));
    assert_ne!(shuffled, whole[..3]);
    assert_eq!(losses(&train(&p, &["--shuffle", "7"])), shuffled);
}

#[test]
fn a_step_is_a_model_like_any_other() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    step(&p);
    let check = [
        "check",
        CLASSIFIER,
        "--train",
        "--learning-rate",
        "0.1",
        "--artifact",
        "step.tsm",
        "--threads",
        "1",
    ];
    assert_eq!(p.json(&check)["ok"], true);
    let tuned = p.json(&[
        "tune",
        CLASSIFIER,
        "--train",
        "--threads",
        "1",
        "--trials",
        "6",
        "--out",
        "t.tsm",
    ]);
    assert!(tuned["trials"].as_u64().unwrap() > 0, "{tuned}");
    let bench = p.json(&["bench", "t.tsm", "--threads", "1", "--time", "0.1s"]);
    assert!(bench["median_ms"].as_f64().unwrap() > 0.0);
    // `run` needs no states, and they go on from one inference to the next.
    let run = |more: &[&str]| {
        let words = ["run", "step.tsm", "--threads", "1", "--random", "1"];
        let report = p.json(&[&words[..], more].concat());
        let outputs = report["outputs"].as_array().unwrap().iter();
        let loss = outputs
            .filter(|o| o["name"] == "loss")
            .map(|o| o["mean"].as_f64());
        loss.flatten().next().unwrap()
    };
    assert!(run(&["--repeat", "5"]) < run(&[]));
    let sizes = p.error(&["compile", "resnet18", "--train", "--batch", "1,2"]);
    assert!(
        sizes.contains("fixed") || sizes.contains("one size"),
        "{sizes}"
    );
    // A built-in model of images takes a batch.
    let tasks = p.json(&["tasks", "squeezenet1.1", "--batch", "3", "--threads", "1"]);
    assert!(tasks.to_string().contains("n=3"), "{tasks}");
    let fixed = p.error(&["tasks", "bert-base", "--batch", "3"]);
    assert!(fixed.contains("the batch of bert-base is fixed"), "{fixed}");
}

#[test]
fn patterns_choose_what_a_step_trains() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let states = |more: &[&str]| {
        let words = ["tasks", "vgg16-cifar", "--train", "--threads", "1"];
        p.json(&[&words[..], more].concat()).to_string()
    };
    let error = p.error(&["compile", CLASSIFIER, "--train", "--freeze", "none.*"]);
    assert!(
        error.contains("no weight") && error.contains("`none.*`"),
        "{error}"
    );
    let nothing = p.error(&["compile", CLASSIFIER, "--train", "--freeze", "*"]);
    assert!(nothing.contains("no weight that is trained"), "{nothing}");
    // Gradients of frozen layers are not computed.
    assert!(states(&["--freeze", "conv*"]).len() < states(&[]).len());
}

#[test]
fn what_does_not_fit_a_step_is_refused_by_name() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    data(folder.path());
    let refused = p.error(&["compile", "op:softmax(rows=4,cols=8)", "--train"]);
    assert!(refused.contains("cannot be trained"), "{refused}");
    let alone = p.error(&["compile", CLASSIFIER, "--learning-rate", "0.1"]);
    assert!(alone.contains("--train"), "{alone}");
    p.ok(&[
        "compile",
        CLASSIFIER,
        "--threads",
        "1",
        "--out",
        "plain.tsm",
    ]);
    let plain = p.error(&["train", "plain.tsm", "--input", "x=x.npy"]);
    assert!(
        plain.contains("is no training step") && plain.contains("--train"),
        "{plain}"
    );
    step(&p);
    for (inputs, said) in [
        (&["x=x.npy"][..], "`labels` has no data"),
        (
            &["x=labels.npy", "labels=labels.npy"],
            "takes f32 of shape [4, 32]",
        ),
        (&["x=x.npy", "y=labels.npy"], "takes no data `y`"),
    ] {
        let mut words = vec!["train", "step.tsm", "--threads", "1"];
        inputs.iter().for_each(|i| words.extend(["--input", *i]));
        let error = p.error(&words);
        assert!(error.contains(said), "{inputs:?}: {error}");
    }
    for (label, said) in [
        (-1, "no.npy: the label of row 5 is -1"),
        (
            16,
            "no.npy: the label of row 5 is 16, and the model has 16 classes: from 0 to 15",
        ),
    ] {
        let mut labels = [0i64; ROWS];
        labels[5] = label;
        let labels = Tensor::from_slice(&[ROWS], &labels);
        write_npy_file(&folder.path().join("no.npy"), &labels).unwrap();
        let error = p.error(&[
            "train",
            "step.tsm",
            "--threads",
            "1",
            "--input",
            "x=x.npy",
            "--input",
            "labels=no.npy",
        ]);
        assert!(error.contains(said), "{error}");
    }
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let error = p.error(&[
        "train",
        "step.tsm",
        "--threads",
        "1",
        "--input",
        "x=x.npy",
        "--input",
        "labels=labels.npy",
        "--resume",
        "empty",
    ]);
    assert!(error.contains("empty/"), "{error}");
}

#[test]
fn dropouts_are_drawn_by_their_seed_and_by_the_step() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let rows = 4;
    let images = Fill::Uniform { lo: -1.0, hi: 1.0 };
    let images = fill_tensor(DType::F32, &[rows, 3, 32, 32], images, 3);
    write_npy_file(&folder.path().join("images.npy"), &images).unwrap();
    let labels = Tensor::from_slice(&[rows], &[1i64, 7, 3, 1]);
    write_npy_file(&folder.path().join("labels.npy"), &labels).unwrap();
    // Weights do not move, so that losses differ by masks alone.
    let losses_of = |more: &[&str]| {
        let words = [
            "compile",
            "vgg16-cifar",
            "--batch",
            "4",
            "--threads",
            "1",
            "--train",
            "--learning-rate",
            "0",
            "--out",
            "vgg.tsm",
        ];
        p.ok(&[&words[..], more].concat());
        losses(&p.json(&[
            "train",
            "vgg.tsm",
            "--threads",
            "1",
            "--input",
            "image=images.npy",
            "--input",
            "labels=labels.npy",
            "--epochs",
            "2",
        ]))
    };
    let first = losses_of(&[]);
    assert_ne!(first[0], first[1]);
    assert_eq!(losses_of(&["--dropout-seed", "0"]), first);
    assert_ne!(losses_of(&["--dropout-seed", "1"]), first);
}
