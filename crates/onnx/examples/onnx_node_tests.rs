//! Runs the ONNX node tests through the importer, the simplifier and the references.
//!
//! usage: onnx_node_tests DIR [REPORT.md]
//!
//! DIR is what `scripts/onnx-node-tests DIR` wrote. The report lists the cases
//! that are skipped, with the reason. Fails if any case fails.

use graph::{Keep, Model, evaluate, simplify};
use onnx::node_tests::{CaseError, NodeCase, load_case, node_cases, run_side_by_side};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Default)]
struct Tally {
    passed: Vec<String>,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: onnx_node_tests DIR [REPORT.md]");
        return ExitCode::FAILURE;
    };
    let cases = match node_cases(&folder) {
        Ok(cases) if !cases.is_empty() => cases,
        Ok(_) => {
            eprintln!(
                "no case in `{}`: run scripts/onnx-node-tests first",
                folder.display()
            );
            return ExitCode::FAILURE;
        }
        Err(e) => {
            eprintln!("cannot read `{}`: {e}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    let mut tally = Tally::default();
    for (name, outcome) in run_side_by_side(&cases, || (), |(), case| run(case)) {
        match outcome {
            Ok(()) => tally.passed.push(name),
            Err(CaseError::Skipped(reason)) => tally.skipped.push((name, reason)),
            Err(CaseError::Failed(reason)) => tally.failed.push((name, reason)),
        }
    }
    for (name, reason) in &tally.failed {
        println!("FAILED {name}: {reason}");
    }
    let (passed, failed, skipped) = (tally.passed.len(), tally.failed.len(), tally.skipped.len());
    println!("passed  {passed}\nfailed  {failed}\nskipped {skipped}");
    if let Some(path) = arguments.next()
        && let Err(e) = std::fs::write(&path, report(&tally))
    {
        eprintln!("cannot write `{}`: {e}", path.display());
        return ExitCode::FAILURE;
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The name of a case, and how it ended.
fn run(folder: &Path) -> (String, Result<(), CaseError>) {
    let name = folder.file_name().unwrap_or_default();
    let outcome = load_case(folder).and_then(|case| {
        // As imported, and once more simplified.
        let simplified = || check(&case, &simplify(&case.model));
        check(&case, &case.model)
            .and_then(|()| simplified().map_err(|e| format!("simplified: {e}")))
            .map_err(CaseError::Failed)
    });
    (name.to_string_lossy().into_owned(), outcome)
}

fn check(case: &NodeCase, model: &Model) -> Result<(), String> {
    model.verify().map_err(|broken| broken.join("; "))?;
    let values = evaluate(model, &case.inputs, Keep::Outputs).map_err(|e| e.to_string())?;
    case.check(&values.results())
}

fn report(tally: &Tally) -> String {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in &tally.skipped {
        by_reason.entry(reason).or_default().push(name);
    }
    let mut text = String::from(
        "# ONNX node tests\n\nWritten by `cargo run -p onnx --example onnx_node_tests -- DIR \
         docs/onnx-node-tests.md`, with DIR from `scripts/onnx-node-tests DIR`.\n\n",
    );
    let counts = (tally.passed.len(), tally.failed.len(), tally.skipped.len());
    let _ = writeln!(text, "| passed | failed | skipped |\n|---|---|---|");
    let _ = writeln!(text, "| {} | {} | {} |\n", counts.0, counts.1, counts.2);
    let _ = writeln!(text, "## Skipped\n\n| reason | cases |\n|---|---|");
    for (reason, names) in by_reason {
        let _ = writeln!(
            text,
            "| {} | {} |",
            reason.replace('|', "\\|"),
            names.join(", ")
        );
    }
    text
}
