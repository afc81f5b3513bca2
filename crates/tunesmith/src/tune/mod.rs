//! The tuning loop: ask, build, evaluate, store, tell.
//!
//! Builders prepare the next candidates while one is measured. Every outcome
//! is in the store before the strategy hears of it, and nothing that the store
//! knows is measured again, so a run that was killed goes on where it stopped.

mod batches;
mod budget;
mod choice;
mod disturbance;
mod factorial;
mod finalists;
mod in_model;
mod progress;
mod record;
mod report;
mod session;
mod task_search;

pub use batches::Settings;
pub(crate) use choice::EVENT as COMPARED;
pub(crate) use finalists::{FINAL_FACTOR, ranked};
pub(crate) use in_model::EVENT as IN_MODEL;
pub use in_model::{InModel, Tried, WholeModel};
pub use progress::Progress;
pub(crate) use record::code_hash;
#[cfg(test)]
pub(crate) use record::{begun as begun_run, task as task_record};
pub use report::{Report, TaskSummary};
pub(crate) use task_search::fills;

use crate::bench::fill_inputs;
use crate::compile::{Builders, assemble, defaults, fallbacks};
use crate::error::{Error, Result};
use crate::layouts::{self, Trial, decide};
use crate::machine::Machine;
use crate::source::Source;
use build::Built;
use choice::Choice;
use ir::Target;
use report::{cpu_s, fill_before, fill_defaults, fill_untuned};
use runtime::{CompiledModel, Model, Pool};
use search::Accuracy;
use session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use task_search::check_algorithms;

/// Time for profiles of the plain model; one that takes all of it is profiled once.
const PLAIN_TIME: Duration = Duration::from_millis(500);

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
    /// What candidates may be, and how far their outputs may be off (relative, L2).
    pub accuracy: Accuracy,
    /// Prefixes of the names of sketches to search; all if there are none.
    /// A task without such a sketch is searched whole.
    pub algorithms: Vec<String>,
    pub tolerance: f64,
    pub build_limit: Duration,
    pub run_limit: Duration,
    pub measure: Settings,
    /// Share by which the CPU's speed may change before the run warns of it.
    pub drift: f64,
    /// Share of a task's trials that is ranked alone in the end.
    pub rank: f64,
    /// Time for choosing among finalists by whole-model latency.
    pub in_model: Duration,
}

/// A finished run.
pub struct Tuned {
    pub report: Report,
    pub model: Arc<CompiledModel>,
}

/// Decides a model's layouts, tunes every task of its plan within the budget and
/// compares the whole model before, with defaults, and after.
///
/// # Errors
/// If the store cannot be written, workers cannot be started, or a plain
/// schedule cannot be built or gives a wrong result.
pub fn tune(
    source: &Source,
    machine: &Machine,
    target: &Target,
    store: &Store,
    options: &Options,
    progress: &mut Progress,
) -> Result<Tuned> {
    let (start, start_cpu_s) = (Instant::now(), cpu_s());
    let begun = record::unix_ms();
    check_algorithms(source, target, options)?;
    let mut builders = Builders::new(target, options.builders)?;
    builders.limit = options.build_limit;
    let pool = Arc::new(Pool::new(target.threads as usize)?);
    progress.stage("choosing layouts");
    let trial = Trial {
        machine,
        target,
        accuracy: options.accuracy,
        seed: options.seed,
        pool: &pool,
        time: options.in_model,
    };
    let (rule, plan, layouts) = decide(source, store, &mut builders, &trial)?;
    let plan = &plan;
    progress.stage("building the plain schedules");
    let plain = builders.build_all(&plan.tasks, &fallbacks(&plan.tasks, target)?)?;
    let mut session = Session::new(plan, machine, target, store, options, &plain, begun)?;
    if !layouts.known && layouts.tried() {
        let event = layouts::event(&session.run_id, &rule, machine, target, &layouts);
        store.append(&[], &[event])?;
    }
    session.run(&mut builders, start, progress)?;
    progress.stage("ranking the finalists alone");
    session.rank_finalists(progress)?;

    let defaults = defaults(&plan.tasks, target, options.accuracy)?;
    let untuned = builders.build_all(&plan.tasks, &defaults.candidates)?;
    let otherwise = session.known_or(&untuned, &mut builders)?;
    let in_model = session.decide_in_model(&otherwise, &pool, progress)?;
    progress.stage("comparing whole models");
    let model = |built: &[Built]| -> Result<Model> {
        let kernels: Vec<_> = built.iter().map(|b| b.kernel.clone()).collect();
        let compiled = assemble(plan, &kernels, target, options.accuracy, &pool)?;
        let mut model = Model::new(Arc::new(compiled), pool.clone())?;
        fill_inputs(&mut model, options.seed);
        Ok(model)
    };
    let plain_steps = layouts::profile(&mut model(&plain)?, PLAIN_TIME)?;
    let mut default = model(&untuned)?;
    let best = session.best_kernels(&otherwise);
    let mut tuned = model(&best)?;
    let choice = Choice::between(&mut default, &mut tuned)?;
    session.keep_choice(&choice, &best)?;
    let mut chosen = if choice.default { default } else { tuned };
    let mut report = session.report((start, start_cpu_s), layouts, in_model);
    report.warnings = defaults.warnings;
    fill_before(&mut report, plan, &plain_steps);
    choice.fill(&mut report);
    if choice.default {
        fill_defaults(&mut report, plan, &defaults.candidates);
    }
    fill_untuned(&mut report, plan, &chosen.invoke_profiled()?);
    session.end(&report)?;
    progress.finish();
    Ok(Tuned {
        report,
        model: chosen.compiled().clone(),
    })
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
