//! `bench`: inferences of one instance of a model, or of several at once.

use super::bench::Args;
use super::bench_energy::InferenceEnergy;
use super::bench_inputs::Inputs;
use measure::energy::MachineFile;
use runtime::{CompiledModel, Model, RunError};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, RwLock};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};
use tune::energy::Account;
use tune::{Error, Result};

/// How many inferences are measured.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    Runs(usize),
    /// As many as begin in this time, at least [`LEAST_RUNS`].
    Time(Duration),
}

/// The fewest inferences that are measured where only a time is given.
const LEAST_RUNS: usize = 5;

impl Amount {
    /// Whether another inference follows so many, the first of which began so long ago.
    fn goes_on(self, runs: usize, since: Duration) -> bool {
        match self {
            Amount::Runs(n) => runs < n,
            Amount::Time(time) => runs < LEAST_RUNS || since < time,
        }
    }
}

/// What instances took that ran at once.
pub struct Taken {
    /// Nanoseconds of each inference, by instance.
    pub samples_ns: Vec<Vec<u64>>,
    /// From the first inference to the end of the last.
    pub wall: Duration,
    pub energy: InferenceEnergy,
}

/// Runs inferences of one instance after the other, and gives the nanoseconds of each.
///
/// # Errors
/// If a kernel fails.
pub fn timed(model: &mut Model, amount: Amount) -> std::result::Result<Vec<u64>, RunError> {
    let begin = Instant::now();
    let mut samples = Vec::new();
    while amount.goes_on(samples.len(), begin.elapsed()) {
        let start = Instant::now();
        model.invoke()?;
        samples.push(start.elapsed().as_nanos() as u64);
    }
    Ok(samples)
}

/// An instance with its own threads and memory, its inputs filled, after its warm-up.
///
/// # Errors
/// If there is no memory or no CPU for it, or an input does not fit.
pub fn warm(
    a: &Args,
    compiled: &Arc<CompiledModel>,
    inputs: &Inputs,
    [at, of]: [usize; 2],
) -> Result<Model> {
    let pool = a.pool.pool_of_part(a.threads(), [at, of])?;
    let mut model = Model::new(compiled.clone(), pool)?;
    inputs.fill(&mut model)?;
    for _ in 0..a.warm_up {
        model.invoke()?;
    }
    Ok(model)
}

/// Measures instances that run at once on a machine, each driven by a thread of its own. Their inferences begin
/// when all of them are warm.
///
/// # Errors
/// The first error of an instance, or if a thread cannot be started.
pub fn at_once(
    a: &Args,
    compiled: &Arc<CompiledModel>,
    inputs: &Inputs,
    machine: &MachineFile,
) -> Result<Taken> {
    // Every stream has a sender while it warms up, and loses it however that ends.
    let (warming, all_warm) = channel::<()>();
    let gate = RwLock::new(());
    let one = |at: usize, warming: Sender<()>| -> Result<(Instant, Vec<u64>, Instant)> {
        let made = warm(a, compiled, inputs, [at, a.streams]);
        drop(warming);
        drop(gate.read());
        let mut model = made?;
        let begin = Instant::now();
        let samples = timed(&mut model, a.amount())?;
        Ok((begin, samples, Instant::now()))
    };
    let one = &one;
    let (ended, spent) = std::thread::scope(|s| -> Result<(Vec<Result<_>>, _)> {
        let closed = gate.write();
        let start = |at: usize| {
            let warming = warming.clone();
            Builder::new().spawn_scoped(s, move || one(at, warming))
        };
        let started: std::io::Result<Vec<ScopedJoinHandle<'_, _>>> =
            (0..a.streams).map(start).collect();
        drop(warming);
        // Nothing is sent: it ends when the last sender is gone.
        _ = all_warm.recv();
        let account = Account::new(machine.clone());
        drop(closed);
        let started = started.map_err(|e| {
            Error::new(format!("cannot start a thread for a stream: {e}"))
                .help("ask for fewer with --streams")
        })?;
        let join = |h: ScopedJoinHandle<'_, _>| match h.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let ended = started.into_iter().map(join).collect();
        Ok((ended, account.spent()))
    })?;
    let all = ended.into_iter().collect::<Result<Vec<_>>>()?;
    let begin = all.iter().map(|(begin, ..)| *begin).min();
    let end = all.iter().map(|(.., end)| *end).max();
    let (begin, end) = begin
        .zip(end)
        .ok_or_else(|| Error::new("there is no stream to measure"))?;
    let runs = all.iter().map(|(_, samples, _)| samples.len()).sum();
    Ok(Taken {
        energy: InferenceEnergy::of(&spent, runs),
        samples_ns: all.into_iter().map(|(_, samples, _)| samples).collect(),
        wall: end - begin,
    })
}
