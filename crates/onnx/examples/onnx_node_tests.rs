//! Runs the ONNX node tests through the importer, the simplifier and the references.
//!
//! usage: onnx_node_tests DIR [REPORT.md]
//!
//! DIR is what `scripts/onnx-node-tests DIR` wrote. The report lists the cases
//! that are skipped, with the reason. Fails if any case fails.

use graph::{Keep, Model, evaluate, simplify};
use onnx::node_tests::{CaseError, NodeCase, load_case, node_cases};
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
    for case in &cases {
        run(case, &mut tally);
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

fn run(folder: &Path, tally: &mut Tally) {
    let name = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let case = match load_case(folder) {
        Ok(case) => case,
        Err(CaseError::Skipped(reason)) => return tally.skipped.push((name, reason)),
        Err(CaseError::Failed(reason)) => return tally.failed.push((name, reason)),
    };
    // As imported, and once more simplified.
    let result = check(&case, &case.model).and_then(|()| {
        let simplified = simplify(&case.model);
        check(&case, &simplified).map_err(|e| format!("simplified: {e}"))
    });
    match result {
        Ok(()) => tally.passed.push(name),
        Err(reason) => tally.failed.push((name, reason)),
    }
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
