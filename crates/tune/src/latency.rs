//! Latencies of compiled models: interleaved rounds, so that what disturbs one
//! disturbs all alike.

use crate::clock::Clock;
use crate::error::Result;
use crate::watch::Watch;
use plan::Plan;
use runtime::{FixedChoice, FixedSelector, Model, Pool, Variants};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Paired;
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
        self.percentile_ms(90.0)
    }

    pub fn p99_ms(&self) -> f64 {
        self.percentile_ms(99.0)
    }

    fn percentile_ms(&self, percent: f64) -> f64 {
        store::percentile(&self.samples_ns, percent).map_or(f64::NAN, |ns| ns as f64 / 1e6)
    }
}

/// Ranges of the integers that inputs are made of. Whoever makes inputs takes the first ones that a model accepts: a
/// 1 may be outside of what it is the index of, and a divisor must not be 0.
pub const INTEGERS: [(i64, i64); 4] = [(0, 1), (0, 0), (1, 1), (2, 5)];

/// A seeded input of a type: floats in [-1, 1), integers in a range.
pub fn input(dtype: DType, shape: &[usize], (lo, hi): (i64, i64), seed: u64) -> tensor::Tensor {
    let fill = match dtype {
        dtype if dtype.is_float() => Fill::Uniform { lo: -1.0, hi: 1.0 },
        DType::Bool => Fill::Integers { lo: 0, hi: 1 },
        _ => Fill::Integers { lo, hi },
    };
    fill_tensor(dtype, shape, fill, seed)
}

/// Fills every input of a model from a seed, with values that it accepts if there are some.
pub fn fill_inputs(model: &mut Model, seed: u64) {
    let compiled = model.compiled().clone();
    let integers = compiled
        .inputs()
        .iter()
        .any(|t| !compiled.tensor(*t).dtype.is_float());
    for range in INTEGERS {
        fill_with(model, range, seed);
        // An inference changes states, and the labels of a training step are 0 or 1.
        if !integers || !compiled.states().is_empty() || model.invoke().is_ok() {
            return;
        }
    }
    fill_with(model, INTEGERS[0], seed);
}

fn fill_with(model: &mut Model, integers: (i64, i64), seed: u64) {
    let inputs: Vec<_> = model
        .compiled()
        .inputs()
        .iter()
        .map(|t| {
            let info = model.compiled().tensor(*t);
            (info.dtype, info.shape.clone())
        })
        .collect();
    let compiled = model.compiled().clone();
    let is_state = |i: usize| compiled.states().iter().any(|s| s.input == i);
    for (i, (dtype, shape)) in inputs.into_iter().enumerate() {
        // States have values of their own.
        if is_state(i) {
            continue;
        }
        let t = input(dtype, &shape, integers, seed + i as u64);
        model.input_mut(i).copy_from_slice(t.bytes());
    }
}

/// A model of a variant, with inputs from seed 1, whose steps run the same alternatives in every inference.
///
/// # Errors
/// If there is no memory for it, or this machine cannot run it.
///
/// # Panics
/// If there is no such variant.
pub fn fixed_model(
    variants: &Arc<Variants>,
    variant: usize,
    pool: &Arc<Pool>,
    choice: &FixedChoice,
) -> Result<Model> {
    let mut model = Model::of(variants.clone(), pool.clone())?;
    model.select(variant);
    let alternatives = choice.alternatives.clone();
    model.set_selector(Some(Box::new(FixedSelector { alternatives })));
    fill_inputs(&mut model, 1);
    Ok(model)
}

/// Invokes the models in turn for about `time`, at least `min_rounds` rounds
/// after one warm-up each.
pub fn interleaved(
    models: &mut [&mut Model],
    time: Duration,
    min_rounds: usize,
) -> Result<Vec<Latencies>> {
    warm_up(models)?;
    let start = Instant::now();
    in_turns(models, min_rounds, &mut || start.elapsed() < time, |m| {
        let start = Instant::now();
        m.invoke()?;
        Ok(start.elapsed().as_nanos() as u64)
    })
}

/// As [`interleaved`], on the clock of [`latency_ns`].
///
/// `more` says between rounds whether there is time for another than the least.
pub fn undisturbed(
    models: &mut [&mut Model],
    min_rounds: usize,
    more: &mut dyn FnMut() -> bool,
) -> Result<Vec<Latencies>> {
    warm_up(models)?;
    in_turns(models, min_rounds, more, latency_ns)
}

/// As [`undisturbed`], so many rounds and no warm-up, for models that take long.
pub fn few(models: &mut [&mut Model], rounds: usize) -> Result<Vec<Latencies>> {
    in_turns(models, rounds, &mut || false, latency_ns)
}

fn warm_up(models: &mut [&mut Model]) -> Result<()> {
    models.iter_mut().try_for_each(|m| Ok(m.invoke()?))
}

fn in_turns(
    models: &mut [&mut Model],
    min_rounds: usize,
    more: &mut dyn FnMut() -> bool,
    mut latency: impl FnMut(&mut Model) -> Result<u64>,
) -> Result<Vec<Latencies>> {
    let mut out = vec![Latencies::default(); models.len()];
    let mut rounds = 0;
    while rounds < min_rounds || more() {
        // The order changes, so that none always follows the same other.
        for i in 0..models.len() {
            let i = if rounds % 2 == 0 {
                i
            } else {
                models.len() - 1 - i
            };
            out[i].samples_ns.push(latency(models[i])?);
        }
        rounds += 1;
    }
    Ok(out)
}

/// Runs both in `pairs` pairs, the order in each changing: `run` is told which.
///
/// # Errors
/// The first error of `run`.
pub fn paired(pairs: usize, mut run: impl FnMut(usize) -> Result<u64>) -> Result<Paired> {
    let mut differences = Vec::with_capacity(pairs);
    for pair in 0..pairs {
        let mut ns = [0.0; 2];
        for which in [pair % 2, 1 - pair % 2] {
            ns[which] = run(which)?.max(1) as f64;
        }
        differences.push((ns[1] / ns[0]).ln());
    }
    Ok(Paired::of(&differences))
}

/// Compares two whole models in about `time`, for choices that change more than
/// one kernel, such as the layouts of a plan.
///
/// # Errors
/// If one of them fails to run, or the run is stopped.
pub fn compare_models(
    first: &mut Model,
    second: &mut Model,
    time: Duration,
    clock: &Clock,
) -> Result<Paired> {
    let mut models = [first, second];
    let mut round_ns = 0;
    for m in &mut models {
        latency_ns(m)?;
        round_ns += latency_ns(m)?.max(1);
    }
    let pairs = (time.as_nanos() as u64 / round_ns) as usize;
    paired(pairs.clamp(MIN_PAIRS, MAX_PAIRS), |which| {
        clock.goes_on()?;
        latency_ns(models[which])
    })
}

/// Fewest pairs that can be significant, and most that are worth their time.
pub const MIN_PAIRS: usize = 10;
pub const MAX_PAIRS: usize = 200;

/// Nanoseconds of one inference: of this thread's CPU time if it runs on no
/// other, which leaves out what preempts it, else of wall time.
///
/// # Errors
/// If the model fails to run.
pub fn latency_ns(model: &mut Model) -> Result<u64> {
    let watch = Watch::start();
    model.invoke()?;
    let spent = watch.spent();
    Ok(match model.pool().threads() {
        1 => spent.cpu_ns,
        _ => spent.wall_ns,
    })
}

/// The clock of [`latency_ns`] on so many threads.
pub fn clock_name(threads: u32) -> &'static str {
    match threads {
        1 => "thread_cpu",
        _ => "wall",
    }
}

/// Floating-point operations of one inference.
pub fn flops(plan: &Plan) -> f64 {
    plan.steps.iter().map(|s| plan.tasks[s.task].flops).sum()
}
