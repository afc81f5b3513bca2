//! The compiled model against the references, step by step: each on what it read.

mod sensitivity;

use crate::explain::is_winograd;
use graph::ops::Op;
use graph::{
    EvalError, Evaluated, Keep, Model as GraphModel, NodeId, TensorType, ValueId, evaluate,
    evaluate_from,
};
use ir::Target;
use measure::ELEMENT_TOLERANCE;
use plan::{Layout, Plan, PlanTensor};
use runtime::{CompiledModel, Model, StepId, TensorId};
use sensitivity::Spread;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tensor::{DType, Tensor, compare};
use tune::compile::accuracy_of;
use tune::latency::{INTEGERS, input};
use tune::source::{Source, requantised};
use tune::{Error, Result};

/// The step of what is compared with the model as it was imported.
const OUTPUT: &str = "output";
/// How many times the tolerance an output of a training step may be off. Chosen by hand: outputs of the built-in
/// networks are off by up to 3 times the tolerance.
const TRAINING: f64 = 10.0;

/// How far what one layer gives is from its reference.
#[derive(Clone, Debug, Serialize)]
pub struct LayerAgreement {
    pub step: String,
    pub tensor: String,
    /// L2 norm of the difference over that of the reference.
    pub rel_err: f64,
    /// Largest element error over the root mean square of the reference.
    pub max_over_rms: f64,
    /// Elements of which one side alone is not finite; those are in no error.
    pub non_finite: usize,
    /// Whether the differences are of f16's least numbers, which have no digits: they are in
    /// no largest error.
    pub subnormal: bool,
    /// Whether terms cancel, so that operands which are off by as much as the tolerance explain the
    /// differences: they are in no largest error. Of training steps only.
    pub cancels: bool,
    /// Whether the error counts; else it is information.
    pub judged: bool,
    pub ok: bool,
    /// Why the layer is not `ok`, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'static str>,
}

/// A Winograd convolution adds and subtracts the elements of a tile before it multiplies. So one
/// element that is infinite, or far larger than the others, is in all results of its tile.
const SPREAD: &str =
    "Winograd spreads one infinite or huge value over its tile; --accuracy strict does not";

/// An element is huge if it is so many times the median magnitude: f32 has 24 bits, and half of them
/// are then lost to the others.
const HUGE: f64 = 4096.0;

/// How far a compiled model is from the references.
#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    /// Whether every layer is within its bounds.
    pub ok: bool,
    /// How exact the compiled model says to be; empty if it does not say.
    pub accuracy: String,
    /// Largest relative error (L2) of a layer that is `ok` and rounds nothing.
    pub tolerance: f64,
    pub max_rel_err: f64,
    pub max_over_rms: f64,
    pub layers: Vec<LayerAgreement>,
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

/// Whether a compiled model takes and gives what the model does.
///
/// # Errors
/// If not.
pub fn of_model(model: &GraphModel, compiled: &CompiledModel) -> Result<()> {
    let wanted = |all: &[ValueId]| -> Vec<TensorType> {
        let ty = |v: &ValueId| TensorType::new(model.value(*v).dtype(), model.value(*v).shape());
        all.iter().map(ty).collect()
    };
    let given = |all: &[TensorId]| -> Vec<TensorType> {
        let ty = |t: &TensorId| {
            let t = compiled.tensor(*t);
            TensorType::new(t.dtype, &t.shape)
        };
        all.iter().map(ty).collect()
    };
    let sides = [
        ("inputs", wanted(model.inputs()), given(compiled.inputs())),
        (
            "outputs",
            wanted(model.outputs()),
            given(compiled.outputs()),
        ),
    ];
    for (what, wanted, given) in sides {
        let size = |t: &TensorType| (t.dtype, t.len());
        if !wanted.iter().map(size).eq(given.iter().map(size)) {
            let text = |all: &[TensorType]| {
                let all: Vec<String> = all.iter().map(TensorType::to_string).collect();
                all.join(", ")
            };
            return Err(Error::new(format!(
                "the artifact was compiled from another model: its {what} are {}, and this model's are {}",
                text(&given),
                text(&wanted)
            ))
            .help("give the model that it was compiled from, with the same --batch and --dim"));
        }
    }
    Ok(())
}

/// Whether a compiled model has the layouts of a plan.
fn of_plan(plan: &Plan, compiled: &CompiledModel) -> Result<()> {
    for t in compiled.tensors() {
        let shape: Vec<i64> = t.shape.iter().map(|n| *n as i64).collect();
        let planned = plan.tensors.iter().find(|p| p.name == t.name);
        if let Some(p) = planned.filter(|p| p.layout != Layout::Plain && p.shape != shape) {
            return Err(Error::new(format!(
                "the artifact stores `{}` with shape {shape:?}, and this target needs shape {:?}",
                t.name, p.shape
            ))
            .help("give the model that it was compiled from, or the --target that it was compiled for"));
        }
    }
    Ok(())
}

/// Runs a compiled model, which was compiled from `source` for `target`, on seeded inputs, and
/// compares what every step gives with the references on what the step read, but for what is
/// never stored. So no step is judged by the errors of others.
///
/// The relative error (L2) of a step may be `tolerance`, or that of rounding to halves where
/// the plan has some, if it is larger. An element of a float tensor may be
/// off by [`ELEMENT_TOLERANCE`] times the tolerance in root mean squares. Where a step rounds,
/// few elements ([`MOST_APART`]) may fall on the other side.
///
/// In a training step a result may be the small difference of large terms. Then its error may be as large as
/// what operands make of it that are off by the tolerance: those of the step, and for an output the inputs of
/// the model. The outputs of a training step may be off by [`TRAINING`] times the tolerance, as some hundred steps
/// come before them, each of which is judged for itself.
///
/// Outputs are compared with those of the model as it was imported as well. A model that
/// rounds may make much of a small difference: then they are compared for information.
///
/// # Errors
/// If either fails to run, or the compiled model is of another model or target.
pub fn check(
    source: &Source,
    target: &Target,
    running: &mut Model,
    seed: u64,
    tolerance: f64,
) -> Result<Agreement> {
    let model = &source.model;
    let compiled = running.compiled().clone();
    of_model(model, &compiled)?;
    let accuracy = accuracy_of(&compiled);
    let plan = source.plan(target, accuracy, compiled.plain_steps())?;
    of_plan(&plan, &compiled)?;
    let merged = &plan.model;
    let refused = |e: EvalError| Error::new(format!("reference: {e}"));
    // One step of a sum that lies between two numbers changes all that follows: of quantised
    // models the exact sums count.
    let in_bytes = graph::products_of_bytes(model, requantised(accuracy));
    let (inputs, original) = evaluated(&in_bytes, seed)?;
    let tolerance = tolerance.max(rounding(merged));
    let moved = inputs.clone();
    for (i, t) in inputs.iter().enumerate() {
        running.input_mut(i).copy_from_slice(t.bytes());
    }
    let mut steps = Steps {
        plan: &plan,
        tolerance,
        known: merged.inputs().iter().copied().zip(inputs).collect(),
        layers: Vec::new(),
        trains: !compiled.states().is_empty(),
        refused: None,
    };
    running.invoke_observed(|m, step| steps.judge(m, step))?;
    if let Some(e) = steps.refused {
        return Err(refused(e));
    }
    let imported = Imported {
        model: &in_bytes,
        inputs: moved,
        outputs: original.outputs(),
        bounds: Bounds {
            // Errors of all the steps on the way add up, and those of a training step are many.
            tolerance: if steps.trains {
                TRAINING * tolerance
            } else {
                tolerance
            },
            roundings: 0,
        },
        tolerance,
        rounds: merged.nodes().any(|(_, n)| jumps(&n.op)),
        trains: steps.trains,
    };
    let mut layers = steps.layers;
    let outputs = 0..compiled.outputs().len();
    let outputs: Vec<Tensor> = outputs.map(|i| running.output_tensor(i)).collect();
    layers.extend(imported.judge(&outputs).map_err(refused)?);
    Ok(Agreement::of(layers, &compiled, tolerance))
}

/// Inputs of a model from a seed, and what the references make of them. Of several ranges of integers those are taken
/// that the model accepts.
///
/// # Errors
/// If it accepts none.
fn evaluated(model: &GraphModel, seed: u64) -> Result<(Vec<Arc<Tensor>>, Evaluated)> {
    let floats = |v: &ValueId| model.value(*v).dtype().is_float();
    let ranges = match model.inputs().iter().all(floats) {
        true => &INTEGERS[..1],
        false => &INTEGERS[..],
    };
    let mut first = None;
    for range in ranges {
        let of = |(i, v): (usize, &ValueId)| {
            let (ty, seed) = (model.value(*v), seed + i as u64);
            Arc::new(input(ty.dtype(), ty.shape(), *range, seed))
        };
        let inputs: Vec<_> = model.inputs().iter().enumerate().map(of).collect();
        match evaluate(model, &inputs, Keep::Outputs) {
            Ok(evaluated) => return Ok((inputs, evaluated)),
            Err(e) => _ = first.get_or_insert(e),
        }
    }
    let why = first.map_or(String::new(), |e| e.to_string());
    Err(Error::new(format!("reference: {why}")).help(
        "the inputs are random, and the model takes none of those that were tried; `run --input` takes your own",
    ))
}

/// Compares the outputs that a compiled model gives where no step can be observed, such as in another process, with those of
/// the model as it was imported: `run` is handed inputs and gives the outputs.
///
/// # Errors
/// If the references or `run` fail, or the compiled model is of another model.
pub fn check_outputs(
    source: &Source,
    target: &Target,
    compiled: &CompiledModel,
    (seed, tolerance): (u64, f64),
    run: impl FnOnce(&[Arc<Tensor>]) -> Result<Vec<Tensor>>,
) -> Result<Agreement> {
    of_model(&source.model, compiled)?;
    let accuracy = accuracy_of(compiled);
    let plan = source.plan(target, accuracy, compiled.plain_steps())?;
    let refused = |e: EvalError| Error::new(format!("reference: {e}"));
    let in_bytes = graph::products_of_bytes(&source.model, requantised(accuracy));
    let (inputs, original) = evaluated(&in_bytes, seed)?;
    let given = run(&inputs)?;
    let tolerance = tolerance.max(rounding(&plan.model));
    let imported = Imported {
        model: &in_bytes,
        inputs,
        outputs: original.outputs(),
        bounds: Bounds {
            tolerance,
            roundings: 0,
        },
        tolerance,
        rounds: plan.model.nodes().any(|(_, n)| jumps(&n.op)),
        trains: !compiled.states().is_empty(),
    };
    let layers = imported.judge(&given).map_err(refused)?;
    Ok(Agreement::of(layers, compiled, tolerance))
}

impl Agreement {
    fn of(layers: Vec<LayerAgreement>, compiled: &CompiledModel, tolerance: f64) -> Agreement {
        // The outputs of a training step have other bounds.
        let trains = !compiled.states().is_empty();
        let has_own = |l: &LayerAgreement| l.cancels || trains && l.step == OUTPUT;
        let counts = |l: &&LayerAgreement| l.judged && !l.subnormal && !has_own(l);
        let max =
            |f: fn(&LayerAgreement) -> f64| layers.iter().filter(counts).map(f).fold(0.0, f64::max);
        Agreement {
            ok: layers.iter().all(|l| l.ok),
            accuracy: compiled.accuracy().to_string(),
            tolerance,
            max_rel_err: max(|l| l.rel_err),
            max_over_rms: max(|l| l.max_over_rms),
            layers,
        }
    }
}

/// The model as it was imported, before any change, that of its precision included.
struct Imported<'a> {
    model: &'a GraphModel,
    inputs: Vec<Arc<Tensor>>,
    /// Of these inputs.
    outputs: Vec<Arc<Tensor>>,
    bounds: Bounds,
    tolerance: f64,
    rounds: bool,
    trains: bool,
}

impl Imported<'_> {
    /// The outputs of a compiled model against its own.
    fn judge(&self, given: &[Tensor]) -> std::result::Result<Vec<LayerAgreement>, EvalError> {
        let mut found = Vec::new();
        for (i, e) in self.outputs.iter().enumerate() {
            let name = self.model.value(self.model.outputs()[i]).name();
            let actual = given[i].clone().reshaped(e.shape());
            let own = layer(OUTPUT.into(), name, &actual, e, self.bounds);
            found.push(LayerAgreement {
                judged: !self.rounds,
                ok: own.ok || self.rounds,
                ..own
            });
        }
        if !self.trains || found.iter().all(|l| l.ok) {
            return Ok(found);
        }
        let spread = Spread::of(&self.outputs, self.tolerance, |move_one| {
            let inputs = self.inputs.iter().map(|t| Arc::new(move_one(t)));
            let inputs: Vec<Arc<Tensor>> = inputs.collect();
            Ok(evaluate(self.model, &inputs, Keep::Outputs)?.outputs())
        })?;
        for (l, spread) in found.iter_mut().zip(spread) {
            l.excuse(spread);
        }
        Ok(found)
    }
}

/// The steps of a run, judged one after the other.
struct Steps<'a> {
    plan: &'a Plan,
    tolerance: f64,
    /// The values that the compiled model had so far.
    known: HashMap<ValueId, Arc<Tensor>>,
    layers: Vec<LayerAgreement>,
    /// Whether the model is a training step.
    trains: bool,
    /// Why the references stopped.
    refused: Option<EvalError>,
}

impl Steps<'_> {
    fn judge(&mut self, m: &Model, step: StepId) {
        for id in m.compiled().step_outputs(step) {
            let info = m.compiled().tensor(id);
            let planned = self.plan.tensors.iter().find(|t| t.name == info.name);
            let (Some(planned), Some(actual), None) = (planned, m.tensor(id), &self.refused) else {
                continue;
            };
            let model = &self.plan.model;
            let found = evaluate_from(model, &self.known, planned.value);
            let (expected, nodes) = match found {
                Ok(found) => found,
                Err(e) => {
                    self.refused = Some(e);
                    return;
                }
            };
            let actual = logical(&actual, planned, expected.shape());
            let bounds = Bounds {
                tolerance: self.tolerance,
                roundings: nodes.iter().filter(|n| jumps(&model[**n].op)).count(),
            };
            let step = &m.compiled().steps()[step.index()];
            let mut found = layer(step.name.clone(), &info.name, &actual, &expected, bounds);
            if self.trains && !found.ok {
                match self.spread(&expected, &nodes, planned.value) {
                    Ok(spread) => found.excuse(spread),
                    Err(e) => {
                        self.refused = Some(e);
                        return;
                    }
                }
            }
            let calls = step.alternatives[0].calls.iter();
            let mut kernels = calls.map(|c| m.compiled().kernel(c));
            let mut has_winograd =
                || kernels.any(|k| schedule::parse(&k.schedule).is_ok_and(|t| is_winograd(&t)));
            if !found.ok && has_winograd() {
                let read = nodes.iter().flat_map(|n| &model[*n].inputs);
                let mut read = read.flatten().filter_map(|v| self.known.get(v));
                found.cause = read.any(|t| has_outlier(t)).then_some(SPREAD);
            }
            self.layers.push(found);
            self.known.insert(planned.value, Arc::new(actual));
        }
    }
}

impl Steps<'_> {
    /// What a step makes of operands that are off by the tolerance.
    fn spread(
        &self,
        expected: &Arc<Tensor>,
        nodes: &[NodeId],
        value: ValueId,
    ) -> std::result::Result<Spread, EvalError> {
        let model = &self.plan.model;
        let read: BTreeSet<ValueId> = nodes
            .iter()
            .flat_map(|n| &model[*n].inputs)
            .flatten()
            .copied()
            .collect();
        let found = Spread::of(std::slice::from_ref(expected), self.tolerance, |move_one| {
            let mut known = self.known.clone();
            for v in &read {
                if let Some(t) = known.get_mut(v) {
                    *t = Arc::new(move_one(t));
                }
            }
            Ok(vec![evaluate_from(model, &known, value)?.0])
        })?;
        Ok(found[0])
    }
}

impl LayerAgreement {
    /// Lets an error pass that the operands explain.
    fn excuse(&mut self, spread: Spread) {
        if !self.ok && spread.covers(self) {
            (self.ok, self.cancels) = (true, true);
        }
    }
}

/// The relative error (L2) that may be where a model has halves, 0 if it has none: values
/// that the reference rounds stay in f32 inside a kernel, and sums over layers add up
/// what is rounded. Eight units in the last place of f16, and of bf16.
fn rounding(model: &GraphModel) -> f64 {
    let has = |d: DType| model.values().any(|(_, v)| v.dtype() == d);
    match (has(DType::BF16), has(DType::F16)) {
        (true, _) => 2.0f64.powi(-5),
        (_, true) => 2.0f64.powi(-8),
        _ => 0.0,
    }
}

/// Whether a small error of an operand may be a large one of the result.
fn jumps(op: &Op) -> bool {
    use graph::ops::Unary::{Ceil, Floor, Round, Sign};
    matches!(op, Op::Unary(Round | Floor | Ceil | Sign)) || matches!(op, Op::Cast(t) if t.is_int())
}

/// By so many of its least numbers an element of f16 may be off, however small all are.
const SUBNORMAL_UNITS: f64 = 16.0;

/// The part of the elements of a step that rounds which may be apart, at most: those that lie
/// between two numbers. Chosen by hand: of a quantised softmax some in a thousand are.
const MOST_APART: f64 = 1e-2;

/// What a layer's error may be.
#[derive(Clone, Copy)]
struct Bounds {
    tolerance: f64,
    /// Nodes of the step whose result jumps.
    roundings: usize,
}

fn layer(
    step: String,
    tensor: &str,
    actual: &Tensor,
    expected: &Tensor,
    bounds: Bounds,
) -> LayerAgreement {
    let d = compare(actual, expected);
    let element = ELEMENT_TOLERANCE * bounds.tolerance;
    // What is as small as the subnormals of f16 has no digits to lose.
    let least = match actual.dtype() {
        DType::F16 => SUBNORMAL_UNITS * 2.0f64.powi(-24),
        _ => 0.0,
    };
    let is_least = d.non_finite == 0 && d.max_abs <= least;
    let exact =
        d.within(bounds.tolerance) && (!actual.dtype().is_float() || d.max_over_rms <= element);
    let within = exact || bounds.roundings > 0 && rounded(actual, expected, element);
    LayerAgreement {
        step,
        tensor: tensor.to_string(),
        rel_err: d.rel_l2,
        max_over_rms: d.max_over_rms,
        non_finite: d.non_finite,
        subnormal: is_least && !within,
        cancels: false,
        judged: true,
        ok: within || is_least,
        cause: None,
    }
}

/// Whether an element is not finite, or [`HUGE`] beside the others.
fn has_outlier(t: &Tensor) -> bool {
    let sizes = (0..t.len()).map(|i| t.get_f64(i).abs());
    let mut sizes: Vec<f64> = sizes.filter(|s| *s != 0.0).collect();
    sizes.sort_by(f64::total_cmp);
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0.0);
    let largest = sizes.last().copied().unwrap_or(0.0);
    !largest.is_finite() || largest > HUGE * median
}

/// Whether all elements but few are within `bound` root mean squares.
fn rounded(actual: &Tensor, expected: &Tensor, bound: f64) -> bool {
    let all = || (0..expected.len()).map(|i| (actual.get_f64(i), expected.get_f64(i)));
    let squares: f64 = all().map(|(_, e)| e * e).filter(|e| e.is_finite()).sum();
    let rms = (squares / expected.len().max(1) as f64).sqrt();
    let near = |a: f64, e: f64| a == e || a.is_nan() && e.is_nan() || (a - e).abs() <= bound * rms;
    let apart = all().filter(|(a, e)| !near(*a, *e)).count();
    let non_finite = all().any(|(a, e)| a.is_finite() != e.is_finite());
    !non_finite && apart as f64 <= MOST_APART * expected.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: f64 = 1e-4;

    #[test]
    fn one_wrong_element_of_many_is_an_error() {
        let expected = Tensor::from_slice(&[1 << 16], &vec![1.0f32; 1 << 16]);
        let with = |error: f32, roundings| {
            let mut actual = expected.clone();
            actual.as_mut_slice::<f32>()[7] += error;
            let bounds = Bounds {
                tolerance: TOLERANCE,
                roundings,
            };
            layer("step".into(), "y", &actual, &expected, bounds)
        };
        assert!(with(5e-3, 0).ok);
        let wrong = with(2e-2, 0);
        assert!(wrong.rel_err < TOLERANCE && !wrong.ok);
        assert!(with(2e-2, 1).ok);
        let nan = with(f32::NAN, 1);
        assert_eq!((nan.ok, nan.non_finite, nan.rel_err), (false, 1, 0.0));
    }

    #[test]
    fn outliers_are_not_finite_or_huge_beside_the_others() {
        let with = |value: f32| {
            let mut t = Tensor::from_slice(&[100], &[0.5f32; 100]);
            t.as_mut_slice::<f32>()[..60].fill(0.0);
            t.as_mut_slice::<f32>()[70] = value;
            has_outlier(&t)
        };
        assert!(with(f32::INFINITY) && with(f32::NAN) && with(-1e30));
        assert!(!with(0.0) && !with(1e3));
    }

    #[test]
    fn few_bytes_of_a_step_that_rounds_are_one_apart() {
        let expected = Tensor::from_slice(&[1000], &[3u8; 1000]);
        let with = |apart: usize, roundings| {
            let mut actual = expected.clone();
            actual.as_mut_slice::<u8>()[..apart].fill(4);
            let bounds = Bounds {
                tolerance: TOLERANCE,
                roundings,
            };
            layer("step".into(), "y", &actual, &expected, bounds).ok
        };
        assert!(with(10, 1) && with(0, 0));
        assert!(!with(11, 1) && !with(1, 0));
    }
}
