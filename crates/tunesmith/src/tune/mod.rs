//! The tuning loop: ask, build, evaluate, store, tell.
//!
//! Builders prepare the next candidates while one is measured. Every outcome
//! is in the store before the strategy hears of it, and nothing that the store
//! knows is measured again, so a run that was killed goes on where it stopped.

mod progress;
mod record;
mod session;

pub use progress::Progress;
pub use session::TaskSummary;
pub(crate) use session::fills;

use crate::bench::{fill_inputs, interleaved};
use crate::compile::{Builders, assemble, defaults, fallbacks};
use crate::error::{Error, Result};
use crate::machine::Machine;
use build::Built;
use graph::plan::Plan;
use ir::Target;
use runtime::{CompiledModel, Model, Pool};
use serde::Serialize;
use session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    Time(Duration),
    /// Candidates executed, over all tasks.
    Trials(u64),
}

#[derive(Clone, Debug)]
pub struct Options {
    pub budget: Budget,
    pub strategy: String,
    pub seed: u64,
    /// Builders run while a candidate is measured.
    pub overlap: bool,
    pub builders: usize,
    /// Constants rotate through copies larger than the last-level cache.
    pub rotate: bool,
    pub tolerance: f64,
    pub build_limit: Duration,
    pub run_limit: Duration,
}

/// What a run found; `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub model: String,
    pub target: String,
    pub threads: u32,
    pub strategy: String,
    pub measure: String,
    pub seed: u64,
    /// Candidates executed.
    pub trials: u64,
    /// Candidates whose outcome the store knew.
    pub cached: u64,
    /// Outcomes other than a time, by kind.
    pub failures: std::collections::BTreeMap<String, u64>,
    pub wall_s: f64,
    /// CPU time of this process and of the workers that were waited for or reported it.
    pub cpu_s: f64,
    pub trials_per_s: f64,
    pub latency_before_ms: f64,
    pub latency_default_ms: f64,
    pub latency_after_ms: f64,
    /// Sum of the kernels' own best times.
    pub kernels_ms: f64,
    pub artifact: Option<String>,
    pub tasks: Vec<TaskSummary>,
}

/// A finished run.
pub struct Tuned {
    pub report: Report,
    pub model: Arc<CompiledModel>,
}

/// Time for the final comparison of whole models.
const COMPARE: Duration = Duration::from_secs(3);
const MIN_ROUNDS: usize = 7;
const PLAIN_ROUNDS: usize = 2;

/// Milliseconds of one call of a task, from a profile of the model's steps.
fn call_ms(plan: &Plan, key: &str, step_ns: &[u64]) -> Option<f64> {
    let own = plan
        .steps
        .iter()
        .zip(step_ns)
        .filter(|(s, _)| plan.tasks[s.task].key == key);
    let (calls, ns) = own.fold((0u64, 0u64), |(n, sum), (_, ns)| (n + 1, sum + ns));
    (calls > 0).then(|| ns as f64 / calls as f64 / 1e6)
}

/// Times under the plain schedule, from the plain model.
fn fill_before(report: &mut Report, plan: &Plan, step_ns: &[u64]) {
    for t in &mut report.tasks {
        t.before_ms = call_ms(plan, &t.key, step_ns);
    }
}

/// Times of tasks for which no candidate was measured, as the tuned model runs
/// them, and the shares that follow.
fn fill_untuned(report: &mut Report, plan: &Plan, step_ns: &[u64]) {
    for t in report.tasks.iter_mut().filter(|t| t.algorithm.is_none()) {
        t.after_ms = call_ms(plan, &t.key, step_ns);
    }
    let total = |t: &TaskSummary| t.after_ms.unwrap_or(0.0) * t.uses as f64;
    report.kernels_ms = report.tasks.iter().map(total).sum();
    let sum = report.kernels_ms;
    for t in &mut report.tasks {
        t.share = total(t) / sum;
    }
    report.tasks.sort_by(|a, b| b.share.total_cmp(&a.share));
}

/// Tunes every task of a plan within the budget and compares the whole model
/// before, with defaults, and after.
///
/// # Errors
/// If the store cannot be written, workers cannot be started, or a plain
/// schedule cannot be built or gives a wrong result.
pub fn tune(
    plan: &Plan,
    machine: &Machine,
    target: &Target,
    store: &Store,
    options: &Options,
    progress: &mut Progress,
) -> Result<Tuned> {
    let start = Instant::now();
    let mut builders = Builders::new(target, options.builders)?;
    builders.limit = options.build_limit;
    progress.stage("building the plain schedules");
    let plain = builders.build_all(&plan.tasks, &fallbacks(&plan.tasks, target)?)?;
    let mut session = Session::new(plan, machine, target, store, options, &plain)?;
    session.run(&mut builders, start, progress)?;
    progress.stage("ranking the finalists alone");
    session.rank_finalists(progress)?;

    progress.stage("comparing whole models");
    let untuned = builders.build_all(&plan.tasks, &defaults(&plan.tasks, target)?)?;
    let best = session.best_kernels(&untuned);
    let pool = Arc::new(Pool::new(target.threads as usize)?);
    let assembled = |built: &[Built]| -> Result<Arc<CompiledModel>> {
        let kernels: Vec<_> = built.iter().map(|b| b.kernel.clone()).collect();
        Ok(Arc::new(assemble(plan, &kernels, target, &pool)?))
    };
    let after = assembled(&best)?;
    let mut models = Vec::new();
    for compiled in [assembled(&plain)?, assembled(&untuned)?, after.clone()] {
        let mut m = Model::new(compiled, pool.clone())?;
        fill_inputs(&mut m, options.seed);
        models.push(m);
    }
    let mut report = session.report(start);
    fill_before(&mut report, plan, &models[0].invoke_profiled()?);
    let mut refs: Vec<&mut Model> = models.iter_mut().collect();
    // The plain model may take a hundred times as long: few rounds with it.
    let few = interleaved(&mut refs, Duration::ZERO, PLAIN_ROUNDS)?;
    let latencies = interleaved(&mut refs[1..], COMPARE, MIN_ROUNDS)?;
    report.latency_before_ms = few[0].median_ms();
    report.latency_default_ms = latencies[0].median_ms();
    report.latency_after_ms = latencies[1].median_ms();
    fill_untuned(&mut report, plan, &models[2].invoke_profiled()?);
    session.end(&report)?;
    progress.finish();
    Ok(Tuned {
        report,
        model: after,
    })
}

/// CPU time of this process and of its ended children, in seconds.
fn cpu_s() -> f64 {
    let of = |who| {
        // SAFETY: an all-zero rusage is valid, and the call fills it.
        let usage = unsafe {
            let mut u: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut u);
            u
        };
        let s = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        s(usage.ru_utime) + s(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

/// Checks options that only make sense together.
///
/// # Errors
/// If the strategy is unknown or there is no builder.
pub fn check_options(options: &Options) -> Result<()> {
    if search::strategy(&options.strategy, 0).is_none() {
        return Err(
            Error::new(format!("there is no strategy `{}`", options.strategy))
                .help(format!("use one of: {}", search::STRATEGIES.join(", "))),
        );
    }
    Ok(())
}
