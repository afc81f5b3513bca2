//! The compiled model against the references, layer by layer.

use crate::error::{Error, Result};
use graph::plan::{Layout, Plan, PlanTensor};
use graph::{Keep, Model as GraphModel, evaluate};
use runtime::{CompiledModel, Model, Pool};
use serde::Serialize;
use std::sync::Arc;
use tensor::{Tensor, compare};

/// Largest relative error (L2) of any layer that counts as agreement.
pub const TOLERANCE: f64 = 1e-4;

/// One layer's agreement.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    pub step: String,
    pub tensor: String,
    /// L2 norm of the difference over that of the reference.
    pub rel_err: f64,
    /// Largest element error over the root mean square of the reference.
    pub max_over_rms: f64,
    pub ok: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub ok: bool,
    /// How exact the compiled model says to be; empty if it does not say.
    pub accuracy: String,
    /// Largest relative error (L2) of a layer that is `ok`.
    pub tolerance: f64,
    pub max_rel_err: f64,
    pub max_over_rms: f64,
    pub layers: Vec<Layer>,
}

/// The logical tensor that a physical one holds.
fn logical(t: &Tensor, plan: &PlanTensor, shape: &[usize]) -> Tensor {
    match plan.layout {
        Layout::Plain => t.clone().reshaped(shape),
        Layout::Blocked { block } => {
            let block = block as usize;
            let mut out = Tensor::zeros(t.dtype(), shape);
            let (n, c) = (shape[0], shape[1]);
            let inner: usize = shape[2..].iter().product();
            let groups = c.div_ceil(block);
            for i in 0..n {
                for k in 0..c {
                    for p in 0..inner {
                        let from = ((i * groups + k / block) * inner + p) * block + k % block;
                        out.set_f64((i * c + k) * inner + p, t.get_f64(from));
                    }
                }
            }
            out
        }
    }
}

/// Runs `compiled` and the reference on seeded inputs and compares what every
/// step gives, but for changes of layout and what is never stored.
///
/// # Errors
/// If either fails to run.
pub fn check(
    model: &GraphModel,
    plan: &Plan,
    compiled: Arc<CompiledModel>,
    pool: Arc<Pool>,
    seed: u64,
    tolerance: f64,
) -> Result<Report> {
    let mut inputs = Vec::new();
    for (i, v) in model.inputs().iter().enumerate() {
        let ty = model.value(*v);
        inputs.push(Arc::new(crate::bench::input(
            ty.dtype(),
            ty.shape(),
            seed + i as u64,
        )));
    }
    let accuracy = compiled.accuracy().to_string();
    let merged = &plan.model;
    let expected =
        evaluate(merged, &inputs, Keep::All).map_err(|e| Error::new(format!("reference: {e}")))?;
    let original = evaluate(model, &inputs, Keep::Outputs)
        .map_err(|e| Error::new(format!("reference: {e}")))?;
    let mut running = Model::new(compiled, pool)?;
    for (i, t) in inputs.iter().enumerate() {
        running.input_mut(i).copy_from_slice(t.bytes());
    }
    let mut layers = Vec::new();
    running.invoke_observed(|m, step| {
        for id in m.compiled().step_outputs(step) {
            let info = m.compiled().tensor(id);
            let planned = plan.tensors.iter().find(|t| t.name == info.name);
            let value = merged.find_value(&info.name);
            let (Some(planned), Some(value)) = (planned, value) else {
                continue;
            };
            let (Some(actual), Some(e)) = (m.tensor(id), expected.get(value)) else {
                continue;
            };
            let step = m.compiled().steps()[step.index()].name.clone();
            layers.push(layer(
                step,
                &info.name,
                &logical(&actual, planned, e.shape()),
                e,
                tolerance,
            ));
        }
    })?;
    // Outputs also against the model as it was imported, before any change.
    for (i, e) in original.outputs().iter().enumerate() {
        let name = model.value(model.outputs()[i]).name().to_string();
        let actual = running.output_tensor(i).reshaped(e.shape());
        layers.push(layer("output".into(), &name, &actual, e, tolerance));
    }
    let max = |f: fn(&Layer) -> f64| layers.iter().map(f).fold(0.0, f64::max);
    Ok(Report {
        ok: layers.iter().all(|l| l.ok),
        accuracy,
        tolerance,
        max_rel_err: max(|l| l.rel_err),
        max_over_rms: max(|l| l.max_over_rms),
        layers,
    })
}

fn layer(step: String, tensor: &str, actual: &Tensor, expected: &Tensor, tolerance: f64) -> Layer {
    let d = compare(actual, expected);
    Layer {
        step,
        tensor: tensor.to_string(),
        rel_err: d.rel_l2,
        max_over_rms: d.max_over_rms,
        ok: d.within(tolerance),
    }
}
