//! Runs the ONNX node tests through the compiler: every task with its default
//! schedule, in both layout policies, for this machine and for its baseline.
//!
//! usage: compiled_node_tests DIR [REPORT.md [NAME]]
//!
//! DIR is what `scripts/onnx-node-tests DIR` wrote; NAME selects the cases
//! whose names contain it. The report lists what is imported and not compiled,
//! with the reason. Fails if any case fails.

#[path = "../tests/compiled/mod.rs"]
#[allow(dead_code)] // Here kernels are built one by one.
mod compiled;

use graph::TensorType;
use ir::{Isa, Target};
use llvm::Compiler;
use onnx::node_tests::{CaseError, NodeCase, load_case, node_cases, run_side_by_side};
use plan::{LayoutPolicy, Plan, PlanError, Task, plan};
use runtime::{BuiltKernel, CompiledModel, Pool, TensorId};
use search::Accuracy;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use tune::compile::defaults;
use tune::machine::Machine;

/// Kernels of programs that came before: many cases are of the same programs and other data.
#[derive(Default)]
struct Known(Mutex<HashMap<(Target, String), BuiltKernel>>);

/// One way to compile a case.
struct Variant<'k> {
    layouts: LayoutPolicy,
    compiler: Compiler,
    pool: Arc<Pool>,
    known: &'k Known,
}

impl Variant<'_> {
    /// The default kernel of a task.
    fn kernel(&self, task: &Task) -> Result<BuiltKernel, String> {
        let target = self.compiler.target();
        let program = (target.clone(), ir::text::print(&task.program));
        let known = || self.known.0.lock().map_err(|e| e.to_string());
        if let Some(kernel) = known()?.get(&program) {
            return Ok(kernel.clone());
        }
        let all = defaults(std::slice::from_ref(task), target, Accuracy::Relaxed);
        let all = all.map_err(|e| e.to_string())?.candidates;
        let kernel = compiled::kernel(task, &all[0], &self.compiler)?;
        known()?.insert(program, kernel.clone());
        Ok(kernel)
    }
}

fn variants(known: &Known) -> Result<Vec<Variant<'_>>, String> {
    let machine = Machine::host();
    let mut targets = vec![
        (LayoutPolicy::Blocked, machine.target(2)),
        (LayoutPolicy::Plain, machine.target(1)),
    ];
    if cfg!(target_arch = "x86_64") {
        targets.push((LayoutPolicy::Blocked, Target::generic(Isa::X86Sse2)));
    }
    let variant = |(layouts, target): (_, Target)| {
        Ok(Variant {
            layouts,
            compiler: Compiler::new(&target).map_err(|e| e.to_string())?,
            pool: Arc::new(Pool::new(target.threads() as usize).map_err(|e| e.to_string())?),
            known,
        })
    };
    targets.into_iter().map(variant).collect()
}

enum Outcome {
    /// The references skip it as well.
    NotImported,
    NotCompiled(String),
    Wrong(String),
}

#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    not_imported: usize,
    /// Names by reason.
    not_compiled: BTreeMap<String, Vec<String>>,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: compiled_node_tests DIR [REPORT.md [NAME]]");
        return ExitCode::FAILURE;
    };
    let table = arguments.next();
    let part = arguments.next().unwrap_or_default();
    match run_all(&folder, &part.to_string_lossy()) {
        Ok(tally) => finish(&tally, table.as_deref()),
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn run_all(folder: &Path, part: &str) -> Result<Tally, String> {
    let mut cases =
        node_cases(folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    cases.retain(|path| name(path).contains(part));
    let known = Known::default();
    // A compiler is of one thread.
    let results = run_side_by_side(
        &cases,
        || variants(&known),
        |variants, path| {
            let variants = variants.as_ref().map_err(|e| Outcome::Wrong(e.clone()))?;
            match load_case(path) {
                Ok(case) => variants.iter().try_for_each(|v| run(&case, v)),
                Err(CaseError::Skipped(_)) => Err(Outcome::NotImported),
                Err(CaseError::Failed(e)) => Err(Outcome::Wrong(e)),
            }
        },
    );
    let mut tally = Tally::default();
    for (path, result) in cases.iter().zip(results) {
        match result {
            Ok(()) => tally.passed += 1,
            Err(Outcome::NotImported) => tally.not_imported += 1,
            Err(Outcome::NotCompiled(reason)) => {
                let names = tally.not_compiled.entry(reason).or_default();
                names.push(name(path).into_owned());
            }
            Err(Outcome::Wrong(reason)) => {
                let reason = reason.lines().next().unwrap_or_default();
                println!("FAILED {}: {reason}", name(path));
                tally.failed += 1;
            }
        }
    }
    if tally.passed + tally.failed == 0 {
        return Err(format!(
            "no case ran: write them with scripts/onnx-node-tests {}",
            folder.display()
        ));
    }
    Ok(tally)
}

fn name(case: &Path) -> Cow<'_, str> {
    case.file_name().unwrap_or_default().to_string_lossy()
}

fn finish(tally: &Tally, table: Option<&Path>) -> ExitCode {
    let not_compiled: usize = tally.not_compiled.values().map(Vec::len).sum();
    let skipped = tally.not_imported + not_compiled;
    let (passed, failed) = (tally.passed, tally.failed);
    println!("passed  {passed}\nfailed  {failed}\nskipped {skipped}");
    if let Some(path) = table
        && let Err(e) = std::fs::write(path, report(tally, not_compiled))
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

fn run(case: &NodeCase, v: &Variant<'_>) -> Result<(), Outcome> {
    let layouts = v.layouts;
    let plan = plan(&case.model, v.compiler.target(), &layouts.into()).map_err(
        |PlanError::Unsupported(nodes)| {
            let mut reasons: Vec<_> = nodes
                .iter()
                .map(|n| match n.reason.ends_with("has no kernel") {
                    true => format!("{}: {}", n.op, n.reason),
                    false => "a tensor is empty".to_string(),
                })
                .collect();
            reasons.dedup();
            Outcome::NotCompiled(reasons.join("; "))
        },
    )?;
    let results = outputs(case, &plan, v).map_err(|e| {
        let target = v.compiler.target();
        let (isa, threads) = (target.name(), target.threads());
        Outcome::Wrong(format!("{layouts:?}, {isa}, {threads} threads: {e}"))
    })?;
    case.check(&results).map_err(Outcome::Wrong)
}

fn outputs(
    case: &NodeCase,
    plan: &Plan,
    v: &Variant<'_>,
) -> Result<Vec<Arc<tensor::Tensor>>, String> {
    let kernels = plan.tasks.iter().map(|t| v.kernel(t));
    let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
    let mut model = compiled::load(plan, &kernels, &v.compiler, &v.pool)?;
    interface(case, model.compiled())?;
    let outputs = compiled::run(&mut model, &case.inputs)?;
    Ok(outputs.into_iter().map(Arc::new).collect())
}

/// Whether a compiled model takes and gives what the case's file says: names, in
/// order, types and shapes.
fn interface(case: &NodeCase, compiled: &CompiledModel) -> Result<(), String> {
    let said = |name: &str, ty: TensorType| format!("{name}: {ty}");
    let crops = compiled.crops();
    // The data decide the size of an axis that is cropped.
    let sized = |output: Option<usize>, axis: usize| {
        let crop = |c: &tensor::Crop| Some(c.output) == output && c.axis == axis;
        crops.iter().any(crop)
    };
    let typed = |output: Option<usize>, name: &str, dtype, shape: &[usize]| {
        let axis = |(d, n): (usize, &usize)| if sized(output, d) { 0 } else { *n };
        let shape: Vec<usize> = shape.iter().enumerate().map(axis).collect();
        said(name, TensorType::new(dtype, &shape))
    };
    let given = |all: &[TensorId], outputs: bool| -> Vec<String> {
        let tensors = all.iter().map(|id| compiled.tensor(*id)).enumerate();
        let typed = tensors.map(|(i, t)| typed(outputs.then_some(i), &t.name, t.dtype, &t.shape));
        typed.collect()
    };
    let inputs = case.input_names.iter().zip(&case.inputs);
    let outputs = case.output_names.iter().zip(&case.expected);
    let sides: [(&str, Vec<String>, _); 2] = [
        (
            "inputs",
            inputs.map(|(n, t)| said(n, TensorType::of(t))).collect(),
            given(compiled.inputs(), false),
        ),
        (
            "outputs",
            outputs
                .enumerate()
                .map(|(i, (n, t))| typed(Some(i), n, t.dtype(), t.shape()))
                .collect(),
            given(compiled.results(), true),
        ),
    ];
    for (what, wanted, given) in sides {
        if wanted != given {
            let (wanted, given) = (wanted.join(", "), given.join(", "));
            return Err(format!("the {what} are {given}, and should be {wanted}"));
        }
    }
    Ok(())
}

fn report(tally: &Tally, not_compiled: usize) -> String {
    let mut text = String::from(
        "# ONNX node tests, compiled\n\n\
         Written by `cargo run -p tunesmith --example compiled_node_tests -- DIR \
         docs/onnx-node-tests-compiled.md`, with DIR from `scripts/onnx-node-tests DIR`. A case \
         passes if the code for this machine (blocked layouts with two threads, plain layouts \
         with one) and for its baseline instruction set gives its outputs within its \
         tolerances. What is not imported is listed in \
         [onnx-node-tests.md](onnx-node-tests.md).\n\n",
    );
    let _ = writeln!(
        text,
        "| passed | failed | not compiled | not imported |\n|---|---|---|---|\n| {} | {} | {} | {} |",
        tally.passed, tally.failed, not_compiled, tally.not_imported
    );
    let _ = writeln!(text, "\n## Not compiled\n\n| reason | cases |\n|---|---|");
    for (reason, names) in &tally.not_compiled {
        let reason = reason.replace('|', "\\|");
        let _ = writeln!(text, "| {reason} | {} |", names.join(", "));
    }
    text
}
