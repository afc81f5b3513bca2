//! Times of a compiled model's steps inside the model: whole inferences and
//! profiled ones in turns, so that what disturbs one disturbs all alike. Each
//! model's turn begins with an inference that is not timed: the model before it
//! took the caches, and its threads slept meanwhile.

use runtime::{CompiledModel, Model, Pool};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tune::Result;
use tune::latency::fill_inputs;

/// Median and minimum of samples.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    pub median_ms: f64,
    pub min_ms: f64,
}

impl Times {
    fn of(samples_ns: &[u64]) -> Times {
        let ms = |ns: Option<u64>| ns.map_or(f64::NAN, |ns| ns as f64 / 1e6);
        Times {
            median_ms: ms(store::median(samples_ns)),
            min_ms: ms(store::min(samples_ns)),
        }
    }
}

/// What one model took.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Inferences without a clock between steps.
    pub whole: Times,
    /// By step.
    pub steps: Vec<Times>,
    pub rounds: usize,
}

const MIN_ROUNDS: usize = 11;
const SEED: u64 = 1;

/// Runs the models in turns for about `time`, at least eleven rounds.
///
/// # Errors
/// If a model cannot be loaded or a kernel fails.
pub fn profiles(
    models: &[(Arc<CompiledModel>, Arc<Pool>)],
    time: Duration,
) -> Result<Vec<Profile>> {
    let mut running = Vec::new();
    for (compiled, pool) in models {
        let mut m = Model::new(compiled.clone(), pool.clone())?;
        fill_inputs(&mut m, SEED);
        m.invoke()?;
        running.push(m);
    }
    let mut whole = vec![Vec::new(); models.len()];
    let mut steps: Vec<Vec<Vec<u64>>> = models
        .iter()
        .map(|(c, _)| vec![Vec::new(); c.steps().len()])
        .collect();
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < MIN_ROUNDS || start.elapsed() < time {
        for (i, m) in running.iter_mut().enumerate() {
            m.invoke()?;
            let t = Instant::now();
            m.invoke()?;
            whole[i].push(t.elapsed().as_nanos() as u64);
            for (samples, ns) in steps[i].iter_mut().zip(m.invoke_profiled()?) {
                samples.push(ns);
            }
        }
        rounds += 1;
    }
    let all = whole.iter().zip(&steps);
    Ok(all
        .map(|(whole, steps)| Profile {
            whole: Times::of(whole),
            steps: steps.iter().map(|s| Times::of(s)).collect(),
            rounds,
        })
        .collect())
}
