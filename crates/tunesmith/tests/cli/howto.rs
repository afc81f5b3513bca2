//! Every command of the pages for users is run, in the order of its page.

use super::errors::onnx;
use super::program::{OP, Sandbox, place};
use onnx::proto::tensor_shape_proto::dimension;
use std::path::Path;
use tempfile::tempdir;
use tensor::{Tensor, write_npy_file};

/// A test for each page whose commands a user types; the other pages are for those who change
/// the program.
macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        $(#[test]
        fn $name() {
            every_command_works($page);
        })*
    };
}

pages! {
    every_command_of_tune_your_model_works: "tune-your-model",
    every_command_of_choose_a_budget_works: "choose-a-budget",
    every_command_of_energy_and_money_works: "energy-and-money",
    every_command_of_choose_without_running_works: "choose-without-running",
    every_command_of_batch_sizes_works: "batch-sizes",
    every_command_of_quantise_works: "quantise",
    every_command_of_when_something_is_missing_works: "when-something-is-missing",
    every_command_of_read_explain_works: "read-explain",
    every_command_of_measure_works: "measure",
    every_command_of_share_records_works: "share-records",
    every_command_of_compile_for_another_machine_works: "compile-for-another-machine",
    every_command_of_train_works: "train",
}

#[test]
fn every_command_of_deploy_works() {
    let runner = Path::new(env!("CARGO_BIN_EXE_tunesmith")).with_file_name("tunesmith-run");
    match runner.is_file() {
        true => every_command_works("deploy"),
        false => println!(
            "skipped: every_command_of_deploy_works: there is no {}: `cargo build -p deploy` builds it",
            runner.display()
        ),
    }
}

/// Words of a command line, with single quotes and without a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_string());
            continue;
        }
        let (part, comment) = part
            .split_once('#')
            .map_or((part, false), |(p, _)| (p, true));
        words.extend(part.split_whitespace().map(String::from));
        if comment {
            break;
        }
    }
    words
}

/// The commands of a page: lines of `sh` blocks that begin with the program's name.
fn commands(page: &str) -> Vec<Vec<String>> {
    let mut in_block = false;
    let mut all = Vec::new();
    for line in page.lines() {
        match line {
            "```sh" => in_block = true,
            "```" => in_block = false,
            _ if in_block => {
                let mut words = words(line);
                assert!(words.first().is_some_and(|w| w == "tunesmith"), "{line}");
                words.remove(0);
                all.push(words);
            }
            _ => {}
        }
    }
    all
}

/// Gives the pages the files that they speak of.
fn prepare(p: &Sandbox) {
    p.ok(&["models", "export", OP, "model.onnx"]);
    p.ok(&["models", "export", "op:dense(m=4,n=16,k=32)", "second.onnx"]);
    onnx(
        p,
        "text.onnx",
        "Relu",
        dimension::Value::DimParam("seq".into()),
    );
    p.ok(&[
        "models",
        "export",
        "op:dense(m=4,n=16,k=32)",
        "classifier.onnx",
    ]);
    let images = Tensor::from_slice(&[8, 32], &[0.5f32; 256]);
    write_npy_file(&p.folder.join("images.npy"), &images).unwrap();
    let labels = Tensor::from_slice(&[8], &[3i64; 8]);
    write_npy_file(&p.folder.join("labels.npy"), &labels).unwrap();
    let x = Tensor::from_slice(&[4, 16], &[0.5f32; 64]);
    write_npy_file(&p.folder.join("input.npy"), &x).unwrap();
    let machine = r#"{
        "curves": [{"name": "wall plug", "watts": [[0, 95], [16, 260], [64, 410]]}],
        "price": {"per_hour": 0.34, "currency": "USD"}
    }"#;
    std::fs::write(p.folder.join("power.json"), machine).unwrap();
}

fn every_command_works(page: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/howto");
    let path = folder.join(page).with_extension("md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let commands = commands(&text);
    assert!(!commands.is_empty(), "{page}");
    let temporary = tempdir().unwrap();
    let p = place(&temporary);
    prepare(&p);
    let reads = |c: &Vec<String>| ["calibrate", "records"].contains(&c[0].as_str());
    let reads_records = commands.iter().any(reads);
    for mut words in commands {
        // A user has minutes for a search, and seconds to measure.
        let time = match words[0].as_str() {
            "tune" => "1s",
            _ => "0.1s",
        };
        // So short a search measures few candidates.
        if words[0] == "calibrate" {
            words.retain(|w| w != "--least-points" && w != "4");
            words.extend(["--least-points".into(), "2".into()]);
        }
        for (budget, short) in [("--energy", "150J"), ("--cost", "0.0001")] {
            if let Some(at) = words.iter().position(|w| w == budget) {
                words[at + 1] = short.into();
            }
        }
        match words.iter().position(|w| w == "--time") {
            // Records for what reads them, however slow the machine is.
            Some(at) if reads_records && words[0] == "tune" => {
                words.splice(at..at + 2, ["--trials".into(), "16".into()]);
            }
            Some(at) => words[at + 1] = time.into(),
            None if words[0] == "explain" => words.extend(["--time".into(), time.into()]),
            None => {}
        }
        p.ok(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn commands_are_read_as_a_shell_reads_them() {
    let page = "text\n```sh\ntunesmith tune 'op:x(a=1, b=2)' --time 5m   # five minutes\n```\ntunesmith no\n";
    assert_eq!(
        commands(page),
        [["tune", "op:x(a=1, b=2)", "--time", "5m"].map(String::from)]
    );
}
