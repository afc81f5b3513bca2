//! Imports the light models of the `onnx` package, simplifies them and compares
//! what the references give with the recorded outputs.
//!
//! usage: onnx_light_models DIR
//!
//! DIR is `onnx/backend/test/data/light` of the installed package. Inputs are
//! i / n for every element i of n, as the package's own runner makes them.

mod light_models;

use graph::{Keep, evaluate, simplify};
use light_models::{check_all, import_options, ramp, worst_error};
use onnx::import_file;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    check_all("onnx_light_models", check)
}

fn check(path: &Path) -> Result<String, String> {
    let imported = import_file(path, &import_options()).map_err(|e| e.to_string())?;
    let model = simplify(&imported);
    model.verify().map_err(|broken| broken.join("; "))?;
    let inputs = model.inputs().iter().map(|v| ramp(model[*v].shape()));
    let inputs: Vec<_> = inputs.collect();
    let begin = Instant::now();
    let values = evaluate(&model, &inputs, Keep::Outputs).map_err(|e| e.to_string())?;
    let seconds = begin.elapsed().as_secs_f64();
    let worst = worst_error(path, values.outputs().iter().map(|t| &**t))?;
    let nodes = (imported.nodes().len(), model.nodes().len());
    Ok(format!(
        "ok, {} of {} nodes left, relative error {worst:.1e}, {seconds:.1} s",
        nodes.1, nodes.0
    ))
}
