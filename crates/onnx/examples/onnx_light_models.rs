//! Imports the light models of the `onnx` package, simplifies them and compares
//! what the references give with the recorded outputs.
//!
//! usage: onnx_light_models DIR
//!
//! DIR is `onnx/backend/test/data/light` of the installed package. Inputs are
//! i / n for every element i of n, as the package's own runner makes them.

use graph::{Keep, evaluate, simplify};
use onnx::{ImportOptions, import_file, read_tensor_proto_file};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use tensor::{Tensor, compare};

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: onnx_light_models DIR");
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
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match check(path) {
            Ok(line) => println!("{name}: {line}"),
            Err(e) => {
                println!("{name}: FAILED: {e}");
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

fn check(path: &Path) -> Result<String, String> {
    let options = ImportOptions {
        batch: Some(1),
        ..ImportOptions::default()
    };
    let imported = import_file(path, &options).map_err(|e| e.to_string())?;
    let model = simplify(&imported);
    model.verify().map_err(|broken| broken.join("; "))?;
    let inputs: Vec<_> = model
        .inputs()
        .iter()
        .map(|v| ramp(model[*v].shape()))
        .collect();
    let begin = Instant::now();
    let values = evaluate(&model, &inputs, Keep::Outputs).map_err(|e| e.to_string())?;
    let seconds = begin.elapsed().as_secs_f64();
    let mut worst: f64 = 0.0;
    for (i, output) in values.outputs().iter().enumerate() {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let file = path.with_file_name(format!("{stem}_output_{i}.pb"));
        let (_, expected) = read_tensor_proto_file(&file).map_err(|e| e.to_string())?;
        if output.shape() != expected.shape() {
            return Err(format!(
                "shape {:?} for {:?}",
                output.shape(),
                expected.shape()
            ));
        }
        let difference = compare(output, &expected);
        if !difference.within(1e-3) {
            return Err(format!("output {i}: {difference:?}"));
        }
        worst = worst.max(difference.rel_l2);
    }
    let nodes = (imported.nodes().len(), model.nodes().len());
    Ok(format!(
        "ok, {} of {} nodes left, relative error {worst:.1e}, {seconds:.1} s",
        nodes.1, nodes.0
    ))
}

/// i / n, rounded as the package's runner does.
fn ramp(shape: &[usize]) -> Arc<Tensor> {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (i as f64 / n as f64) as f32).collect();
    Arc::new(Tensor::from_slice(shape, &values))
}
