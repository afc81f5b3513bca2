//! Latencies of compiled models: interleaved rounds, so that what disturbs one
//! disturbs all alike.

use crate::error::Result;
use graph::plan::Plan;
use runtime::Model;
use std::time::{Duration, Instant};
use tensor::{DType, Fill, fill_tensor};

/// Latencies of one model, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    pub samples_ns: Vec<u64>,
}

impl Latencies {
    pub fn median_ms(&self) -> f64 {
        store::median(&self.samples_ns).map_or(f64::NAN, |ns| ns as f64 / 1e6)
    }

    pub fn min_ms(&self) -> f64 {
        store::min(&self.samples_ns).map_or(f64::NAN, |ns| ns as f64 / 1e6)
    }

    pub fn p90_ms(&self) -> f64 {
        store::percentile(&self.samples_ns, 90.0).map_or(f64::NAN, |ns| ns as f64 / 1e6)
    }
}

/// A seeded input of a type: floats in [-1, 1), integers 0 or 1.
pub fn input(dtype: DType, shape: &[usize], seed: u64) -> tensor::Tensor {
    let fill = if dtype.is_float() {
        Fill::Uniform { lo: -1.0, hi: 1.0 }
    } else {
        Fill::Integers { lo: 0, hi: 1 }
    };
    fill_tensor(dtype, shape, fill, seed)
}

/// Fills every input of a model from a seed.
pub fn fill_inputs(model: &mut Model, seed: u64) {
    let inputs: Vec<_> = model
        .compiled()
        .inputs()
        .iter()
        .map(|t| {
            let info = model.compiled().tensor(*t);
            (info.dtype, info.shape.clone())
        })
        .collect();
    for (i, (dtype, shape)) in inputs.into_iter().enumerate() {
        let t = input(dtype, &shape, seed + i as u64);
        model.input_mut(i).copy_from_slice(t.bytes());
    }
}

/// Invokes the models in turn for about `time`, at least `min_rounds` rounds
/// after one warm-up each.
pub fn interleaved(
    models: &mut [&mut Model],
    time: Duration,
    min_rounds: usize,
) -> Result<Vec<Latencies>> {
    let mut out = vec![Latencies::default(); models.len()];
    for m in models.iter_mut() {
        m.invoke()?;
    }
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < min_rounds || start.elapsed() < time {
        for (m, l) in models.iter_mut().zip(&mut out) {
            let t = Instant::now();
            m.invoke()?;
            l.samples_ns.push(t.elapsed().as_nanos() as u64);
        }
        rounds += 1;
    }
    Ok(out)
}

/// Floating-point operations of one inference.
pub fn flops(plan: &Plan) -> f64 {
    plan.steps.iter().map(|s| plan.tasks[s.task].flops).sum()
}
