//! Runs the ONNX node tests through plans, in both layout policies, by the
//! interpreter.
//!
//! usage: plan_node_tests DIR
//!
//! DIR is what `scripts/onnx-node-tests DIR` wrote. Cases that cannot be
//! imported or compiled are listed with the reason. Fails if any case fails.

use ir::{Isa, Target};
use onnx::node_tests::{CaseError, NodeCase, load_case, node_cases};
use plan::{LayoutPolicy, PlanError, plan};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tensor::Tensor;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: plan_node_tests DIR");
        return ExitCode::FAILURE;
    };
    let cases = match node_cases(&folder) {
        Ok(cases) => cases,
        Err(e) => {
            eprintln!("cannot read `{}`: {e}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    let (mut passed, mut failed, mut skipped) = (0, usize::from(cases.is_empty()), 0);
    for path in &cases {
        let case = match load_case(path) {
            Ok(case) => case,
            // The run through the references reports these.
            Err(CaseError::Skipped(_) | CaseError::Failed(_)) => {
                skipped += 1;
                continue;
            }
        };
        match [LayoutPolicy::Plain, LayoutPolicy::Blocked]
            .into_iter()
            .try_for_each(|layouts| run(&case, layouts))
        {
            Ok(()) => passed += 1,
            Err(Outcome::NotCompiled(reason)) => {
                println!("not compiled {}: {reason}", case.name);
                skipped += 1;
            }
            Err(Outcome::Wrong(reason)) => {
                println!("FAILED {}: {reason}", case.name);
                failed += 1;
            }
        }
    }
    println!("passed  {passed}\nfailed  {failed}\nskipped {skipped}");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

enum Outcome {
    NotCompiled(String),
    Wrong(String),
}

fn run(case: &NodeCase, layouts: LayoutPolicy) -> Result<(), Outcome> {
    let target = Target::generic(Isa::X86Sse2);
    let plan = plan(&case.model, &target, &layouts.into()).map_err(|e| match e {
        PlanError::Unsupported(nodes) => Outcome::NotCompiled(nodes[0].to_string()),
    })?;
    for task in &plan.tasks {
        if let Some(broken) = ir::verify::verify(&task.program).first() {
            return Err(Outcome::Wrong(format!("{}: {broken}", task.title())));
        }
    }
    let inputs: Vec<Tensor> = case.inputs.iter().map(|t| Tensor::clone(t)).collect();
    let actual = plan
        .interpret(&inputs)
        .map_err(|e| Outcome::Wrong(e.to_string()))?;
    let actual: Vec<_> = actual.into_iter().map(Arc::new).collect();
    case.check(&actual)
        .map_err(|e| Outcome::Wrong(format!("{e}\n{plan}")))
}
