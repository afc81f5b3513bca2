//! Compiles the light models of the `onnx` package with default schedules and
//! compares what they give with the recorded outputs.
//!
//! usage: compiled_light_models DIR
//!
//! DIR is `onnx/backend/test/data/light` of the installed package. Inputs are
//! i / n for every element i of n, as the package's own runner makes them.

#[path = "../tests/compiled/mod.rs"]
mod compiled;

use llvm::Compiler;
use onnx::{ImportOptions, import_file, read_tensor_proto_file};
use plan::{LayoutPolicy, PlanOptions, plan};
use runtime::Pool;
use search::Accuracy;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tensor::{Tensor, compare};
use tune::compile::defaults;
use tune::machine::Machine;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: compiled_light_models DIR");
        return ExitCode::FAILURE;
    };
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) => {
            eprintln!("cannot read `{}`: {e}", folder.display());
            return ExitCode::FAILURE;
        }
    };
    let mut models: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    models.retain(|p| p.extension().is_some_and(|e| e == "onnx"));
    models.sort();
    let mut failed = models.is_empty();
    for path in &models {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        match check(path, &stem) {
            Ok(line) => println!("{stem}: {line}"),
            Err(e) => {
                println!("{stem}: FAILED: {e}");
                failed = true;
            }
        }
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn check(path: &Path, stem: &str) -> Result<String, String> {
    let machine = Machine::host();
    let target = machine.target(machine.cpus as u32);
    let options = ImportOptions {
        batch: Some(1),
        ..ImportOptions::default()
    };
    let model = import_file(path, &options).map_err(|e| e.to_string())?;
    let options = PlanOptions::from(LayoutPolicy::Blocked);
    let plan = plan(&model, &target, &options).map_err(|e| e.to_string())?;
    let compiler = Compiler::new(&target).map_err(|e| e.to_string())?;
    let pool = Arc::new(Pool::new(machine.cpus).map_err(|e| e.to_string())?);
    let candidates = defaults(&plan.tasks, &target, Accuracy::Relaxed)
        .map_err(|e| e.to_string())?
        .candidates;
    let kernels = compiled::kernels(&plan, &candidates, &compiler)?;
    let mut running = compiled::load(&plan, &kernels, &compiler, &pool)?;
    let inputs = model.inputs().iter().map(|v| ramp(model[*v].shape()));
    let outputs = compiled::run(&mut running, &inputs.collect::<Vec<_>>())?;
    let mut worst: f64 = 0.0;
    for (i, output) in outputs.into_iter().enumerate() {
        let file = path.with_file_name(format!("{stem}_output_{i}.pb"));
        let (_, expected) = read_tensor_proto_file(&file).map_err(|e| e.to_string())?;
        let shape = model[model.outputs()[i]].shape();
        if shape != expected.shape() {
            return Err(format!("shape {shape:?} for {:?}", expected.shape()));
        }
        let difference = compare(&output.reshaped(shape), &expected);
        if !difference.within(1e-3) {
            return Err(format!("output {i}: {difference:?}"));
        }
        worst = worst.max(difference.rel_l2);
    }
    let (tasks, steps) = (plan.tasks.len(), plan.steps.len());
    Ok(format!(
        "ok, {tasks} tasks, {steps} steps, relative error {worst:.1e}"
    ))
}

/// i / n, rounded as the package's runner does.
fn ramp(shape: &[usize]) -> Arc<Tensor> {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (i as f64 / n as f64) as f32).collect();
    Arc::new(Tensor::from_slice(shape, &values))
}
