//! Compiles the light models of the `onnx` package with default schedules and
//! compares what they give with the recorded outputs.
//!
//! usage: compiled_light_models DIR
//!
//! DIR is `onnx/backend/test/data/light` of the installed package. Inputs are
//! i / n for every element i of n, as the package's own runner makes them.

#[path = "../tests/compiled/mod.rs"]
mod compiled;

#[path = "../../onnx/examples/light_models/mod.rs"]
mod light_models;

use light_models::{check_all, import_options, ramp, worst_error};
use llvm::Compiler;
use onnx::import_file;
use plan::{LayoutPolicy, PlanOptions, plan};
use runtime::Pool;
use search::Accuracy;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tensor::Tensor;
use tune::compile::defaults;
use tune::machine::Machine;

fn main() -> ExitCode {
    check_all("compiled_light_models", check)
}

fn check(path: &Path) -> Result<String, String> {
    let machine = Machine::host();
    let target = machine.target(machine.cpus as u32);
    let model = import_file(path, &import_options()).map_err(|e| e.to_string())?;
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
    let shapes = model.outputs().iter().map(|v| model[*v].shape());
    let outputs = outputs.into_iter().zip(shapes);
    let outputs: Vec<Tensor> = outputs.map(|(t, shape)| t.reshaped(shape)).collect();
    let worst = worst_error(path, &outputs)?;
    let (tasks, steps) = (plan.tasks.len(), plan.steps.len());
    Ok(format!(
        "ok, {tasks} tasks, {steps} steps, relative error {worst:.1e}"
    ))
}
