//! The light models of the `onnx` package: going through their folder, their inputs, and
//! the recorded outputs that results are compared with.

use onnx::{ImportOptions, read_tensor_proto_file};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tensor::{Tensor, compare};

/// The largest relative error (L2) of an output.
const TOLERANCE: f64 = 1e-3;

/// Prints what `check` says of every model in the folder that the command line of `program`
/// names; a failure if it refuses one, or there is none.
pub fn check_all(program: &str, check: impl Fn(&Path) -> Result<String, String>) -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: {program} DIR");
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
        let name = stem(path);
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

/// How the models are imported: for a batch of one.
pub fn import_options() -> ImportOptions {
    ImportOptions {
        batch: Some(1),
        ..ImportOptions::default()
    }
}

/// i / n, rounded as the package's runner does.
pub fn ramp(shape: &[usize]) -> Arc<Tensor> {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (i as f64 / n as f64) as f32).collect();
    Arc::new(Tensor::from_slice(shape, &values))
}

/// The largest relative error of a model's outputs against the recorded ones.
///
/// # Errors
/// If an output has another shape, or an error beyond the tolerance.
pub fn worst_error<'a>(
    path: &Path,
    outputs: impl IntoIterator<Item = &'a Tensor>,
) -> Result<f64, String> {
    let mut worst: f64 = 0.0;
    for (i, output) in outputs.into_iter().enumerate() {
        let file = path.with_file_name(format!("{}_output_{i}.pb", stem(path)));
        let (_, expected) = read_tensor_proto_file(&file).map_err(|e| e.to_string())?;
        if output.shape() != expected.shape() {
            let shapes = (output.shape(), expected.shape());
            return Err(format!("shape {:?} for {:?}", shapes.0, shapes.1));
        }
        let difference = compare(output, &expected);
        if !difference.within(TOLERANCE) {
            return Err(format!("output {i}: {difference:?}"));
        }
        worst = worst.max(difference.rel_l2);
    }
    Ok(worst)
}

fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}
