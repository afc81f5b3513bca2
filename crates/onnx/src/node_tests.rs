//! The node tests of the `onnx` package, as `scripts/onnx-node-tests` writes
//! them: one small model a case, with inputs, expected outputs and tolerances.
//!
//! Loads a case and judges results; whoever computes the results calls
//! [`NodeCase::check`]. What cannot be imported is skipped with its reason.

use crate::proto::{ModelProto, NodeProto};
use crate::{ImportError, ImportOptions, TensorError, import_bytes, read_tensor_proto_file};
use graph::{Model, TensorType};
use prost::Message;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensor::{DType, Tensor};
use thiserror::Error;

/// A case with its model imported. Inputs that decide shapes are bound into it.
#[derive(Clone, Debug)]
pub struct NodeCase {
    pub name: String,
    pub model: Model,
    /// In the order of the model's inputs.
    pub inputs: Vec<Arc<Tensor>>,
    /// What the file calls the inputs.
    pub input_names: Vec<String>,
    /// In the order of the model's outputs.
    pub expected: Vec<Tensor>,
    /// What the file calls the outputs.
    pub output_names: Vec<String>,
    pub rtol: f64,
    pub atol: f64,
}

#[derive(Debug, Error)]
pub enum CaseError {
    /// The case uses an operator, a type or a mode that is not supported.
    #[error("{0}")]
    Skipped(String),
    /// The case should have loaded.
    #[error("{0}")]
    Failed(String),
}

/// The folders of all cases, by name.
///
/// # Errors
/// If `folder` cannot be read.
pub fn node_cases(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.join("model.onnx").is_file() {
            cases.push(path);
        }
    }
    cases.sort();
    Ok(cases)
}

/// Runs all cases, one on each CPU at a time, and gives what they gave, in the order of the cases.
/// Each thread has a state of its own.
///
/// # Panics
/// If `state` or `run` does.
pub fn run_side_by_side<S, R: Send>(
    cases: &[PathBuf],
    state: impl Fn() -> S + Sync,
    run: impl Fn(&S, &Path) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let (state, mut done) = (state(), Vec::new());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(at) else {
                return done;
            };
            done.push((at, run(&state, case)));
        }
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        let done = threads.into_iter().map(|t| t.join());
        let done = done.map(|all| all.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        done.flatten().collect::<Vec<_>>()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Loads one case.
///
/// # Errors
/// Says whether the case is outside what is supported or did not load.
pub fn load_case(folder: &Path) -> Result<NodeCase, CaseError> {
    let failed = |what: &str, e: &dyn std::fmt::Display| CaseError::Failed(format!("{what}: {e}"));
    let bytes = std::fs::read(folder.join("model.onnx")).map_err(|e| failed("model.onnx", &e))?;
    let proto = ModelProto::decode(&bytes[..]).map_err(|e| failed("model.onnx", &e))?;
    let graph = proto.graph.unwrap_or_default();
    let given = |v: &crate::proto::TensorProto| v.name().to_string();
    let initializers: Vec<_> = graph.initializer.iter().map(given).collect();
    let names = graph.input.iter().map(|i| i.name().to_string());
    let names: Vec<String> = names.filter(|n| !initializers.contains(n)).collect();
    let inputs: Vec<_> = read_values(folder, "input", names.len())?
        .into_iter()
        .map(Arc::new)
        .collect();
    let expected = read_values(folder, "output", graph.output.len())?;

    let mut options = ImportOptions::default();
    for (name, t) in names.iter().zip(&inputs) {
        options.dims.extend(
            t.shape()
                .iter()
                .enumerate()
                .map(|(d, n)| (format!("{name}.{d}"), *n)),
        );
    }
    let model = bind(&bytes, folder, &mut options, &names, &inputs)?;
    let given = names.into_iter().zip(inputs);
    let (input_names, inputs) = given
        .filter(|(n, _)| !options.consts.contains_key(n))
        .unzip();
    let output_names = graph.output.iter().map(|o| o.name().to_string()).collect();
    let (rtol, mut atol) = read_tolerance(folder)?;
    // Their elements are sums that cancel, and the expected ones are rounded, too: two units in
    // the last place of the largest.
    let cancels = |n: &NodeProto| matches!(n.op_type(), "DFT" | "DeformConv");
    if graph.node.iter().any(cancels) {
        for t in expected.iter().filter(|t| t.dtype() == DType::F32) {
            let largest = (0..t.len()).fold(0.0, |m: f64, i| m.max(t.get_f64(i).abs()));
            atol = atol.max(largest * 2.0f64.powi(-22));
        }
    }
    Ok(NodeCase {
        name: folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        model,
        inputs,
        input_names,
        expected,
        output_names,
        rtol,
        atol,
    })
}

/// Imports, binding the inputs that turn out to decide shapes.
fn bind(
    bytes: &[u8],
    folder: &Path,
    options: &mut ImportOptions,
    names: &[String],
    inputs: &[Arc<Tensor>],
) -> Result<Model, CaseError> {
    loop {
        match import_bytes(bytes, Some(folder), options) {
            Ok(model) => return Ok(model),
            Err(ImportError::NeededValues(needed)) => {
                let before = options.consts.len();
                let wanted: Vec<_> = needed.iter().flat_map(|n| &n.inputs).collect();
                let chosen = names.iter().zip(inputs).filter(|(n, _)| wanted.contains(n));
                options
                    .consts
                    .extend(chosen.map(|(n, t)| (n.clone(), t.clone())));
                if options.consts.len() == before {
                    return Err(CaseError::Failed(
                        ImportError::NeededValues(needed).to_string(),
                    ));
                }
            }
            Err(ImportError::Unsupported(nodes)) => {
                let mut reasons: Vec<_> = nodes
                    .iter()
                    .map(|n| format!("{}: {}", n.op, n.reason))
                    .collect();
                reasons.sort();
                reasons.dedup();
                return Err(CaseError::Skipped(reasons.join("; ")));
            }
            Err(e @ ImportError::OldOpset(_)) => return Err(CaseError::Skipped(e.to_string())),
            Err(e) => return Err(CaseError::Failed(e.to_string())),
        }
    }
}

fn read_values(folder: &Path, kind: &str, count: usize) -> Result<Vec<Tensor>, CaseError> {
    let read = |i: usize| {
        let file = format!("{kind}_{i}.pb");
        match read_tensor_proto_file(&folder.join("test_data_set_0").join(&file)) {
            Ok((_, t)) => Ok(t),
            Err(TensorError::Type(t)) => Err(CaseError::Skipped(format!("{kind} of type {t}"))),
            Err(TensorError::Io(e)) if e.kind() == io::ErrorKind::NotFound => Err(
                CaseError::Skipped(format!("an {kind} that is not a tensor")),
            ),
            Err(e) => Err(CaseError::Failed(format!("{file}: {e}"))),
        }
    };
    (0..count).map(read).collect()
}

fn read_tolerance(folder: &Path) -> Result<(f64, f64), CaseError> {
    let failed = || CaseError::Failed("tolerance.txt does not hold two numbers".into());
    let text = std::fs::read_to_string(folder.join("tolerance.txt")).map_err(|_| failed())?;
    let numbers: Vec<f64> = text
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    match numbers[..] {
        [rtol, atol] => Ok((rtol, atol)),
        _ => Err(failed()),
    }
}

impl NodeCase {
    /// Compares results with the expected outputs: types and shapes exactly,
    /// elements within atol + rtol |expected|. The tolerance of 16-bit floats
    /// is at least two units in the last place: the cases' own, made for f32,
    /// is below one of bf16.
    ///
    /// # Errors
    /// Describes the first difference.
    pub fn check(&self, results: &[Arc<Tensor>]) -> Result<(), String> {
        if results.len() != self.expected.len() {
            return Err(format!(
                "{} outputs of {}",
                results.len(),
                self.expected.len()
            ));
        }
        for (o, (result, expected)) in results.iter().zip(&self.expected).enumerate() {
            let (got, want) = (TensorType::of(result), TensorType::of(expected));
            if got != want {
                return Err(format!("output {o} is {got} and should be {want}"));
            }
            let rtol = self.rtol.max(match expected.dtype() {
                DType::F16 => 2.0f64.powi(-9),
                DType::BF16 => 2.0f64.powi(-6),
                _ => 0.0,
            });
            for i in 0..expected.len() {
                let (a, e) = (result.get_f64(i), expected.get_f64(i));
                let near = (a - e).abs() <= self.atol + rtol * e.abs();
                if !(near || a == e || a.is_nan() && e.is_nan()) {
                    return Err(format!("output {o}, element {i} is {a} and should be {e}"));
                }
            }
        }
        Ok(())
    }
}
