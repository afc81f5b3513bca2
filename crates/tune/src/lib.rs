//! The tuning loop: ask, build, evaluate, store, tell.
//!
//! Owns the ways from a model to a compiled one: default models, layouts, the
//! search of every task, the last choices inside the model. Builders prepare the
//! next candidates while one is measured. Every outcome is in the store before
//! the strategy hears of it, and nothing that the store knows is measured again,
//! so a run that was killed goes on where it stopped. Knows no terminal and no
//! command line: an [`Observer`] is told what happens, and the caller says which
//! machine this is and where its worker programs are ([`Host`]).

mod batches;
mod budget;
pub mod ceiling;
mod choice;
mod clock;
pub mod compile;
pub mod default_model;
mod disturbance;
mod ending;
mod error;
mod factorial;
mod finalists;
mod in_model;
pub mod kernels;
pub mod known;
pub mod latency;
pub mod layouts;
pub mod machine;
mod observer;
mod record;
mod report;
mod session;
pub mod source;
mod task_search;
pub mod threads;
mod watch;
mod workers;

pub use batches::Settings;
pub use clock::Clock;
pub use error::{Error, Result};
pub(crate) use finalists::FINAL_FACTOR;
pub use finalists::ranked;
pub use observer::{Observer, Silent, Status};
pub use record::code_hash;
#[cfg(test)]
pub(crate) use record::{begun as begun_run, task as task_record};
pub use report::{Report, TaskSummary};
pub use task_search::fills;
pub use workers::{Host, Workers};

use crate::compile::Builders;
use crate::default_model::Making;
use crate::layouts::{Decided, Trial, decide};
use crate::source::Source;
use choice::Choice;
use ir::Target;
use report::{cpu_s, fill_before, fill_defaults, fill_untuned};
use runtime::{CompiledModel, Pool};
use search::Accuracy;
use session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use task_search::check_algorithms;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    Time(Duration),
    /// Candidates executed, over all tasks.
    Trials(u64),
}

#[derive(Clone, Debug)]
pub struct Options {
    /// When the command began; a budget of time counts from here.
    pub begun: Instant,
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
/// A budget of time ends all of it: what does not fit is left out, and where building the default
/// model alone takes longer, that is the result.
///
/// # Errors
/// If the store cannot be written, workers cannot be started, or a default or
/// plain schedule cannot be built or gives a wrong result.
pub fn tune(
    source: &Source,
    host: &Host,
    target: &Target,
    store: &Store,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Tuned> {
    let start_cpu_s = cpu_s();
    let clock = Clock::new(options.begun, options.budget);
    check_algorithms(source, target, options)?;
    let pool = Arc::new(Pool::new(target.threads as usize)?);
    let making = Making {
        target,
        accuracy: options.accuracy,
        seed: options.seed,
        pool: &pool,
    };
    observer.stage("building the default model");
    let decided = first_model(source, store, host, &making, options, clock)?;
    let (mut default, layouts) = (decided.default, decided.layouts);
    let plan = &default.plan;
    let mut builders = Builders::new(&host.workers, target, options.builders)?;
    builders.limit = options.build_limit;
    let mut session = Session::new(plan, default.size, host, target, store, options)?;
    if !layouts.known && layouts.tried() {
        let event = layouts::event(
            &session.run_id,
            &decided.rule,
            &host.machine,
            target,
            &layouts,
        );
        store.append(&[], &[event])?;
    }
    session.run(&mut builders, observer)?;
    observer.stage("ranking the finalists alone");
    session.rank_finalists(observer)?;

    let otherwise = session.known_or(&default.built, &mut builders)?;
    let in_model = session.decide_in_model(&otherwise, &making, observer)?;
    observer.stage("comparing whole models");
    let best = session.best_kernels(&otherwise);
    let other = session.differ(&best, &default.built);
    let mut tuned = other.then(|| making.model(plan, &best)).transpose()?;
    let choice = Choice::between(
        &mut default.model,
        &default.step_ns,
        tuned.as_mut(),
        session.comparing(),
    )?;
    session.keep_choice(&choice, &best)?;
    let mut report = session.report(start_cpu_s, layouts, in_model);
    report.default_s = default.took.as_secs_f64();
    report.warnings = default.defaults.warnings;
    choice.fill(&mut report);
    if choice.default {
        fill_defaults(&mut report, plan, &default.defaults.candidates);
    }
    let mut chosen = tuned.filter(|_| !choice.default);
    let step_ns = match &mut chosen {
        Some(tuned) if report.tasks.iter().any(|t| t.after_ms.is_none()) => {
            tuned.invoke_profiled()?
        }
        _ => default.step_ns,
    };
    fill_untuned(&mut report, plan, &step_ns);
    observer.stage("running the plain model");
    if let Some(step_ns) = session.run_plain(&mut builders, &making)? {
        fill_before(&mut report, plan, &step_ns);
    }
    session.end(&mut report)?;
    Ok(Tuned {
        report,
        model: chosen.unwrap_or(default.model).compiled().clone(),
    })
}

/// The default model in the layouts that are best, as far as the time for that tells;
/// built by all CPUs, as nothing is measured meanwhile.
fn first_model(
    source: &Source,
    store: &Store,
    host: &Host,
    making: &Making<'_>,
    options: &Options,
    clock: Clock,
) -> Result<Decided> {
    let mut builders = Builders::new(&host.workers, making.target, host.machine.cpus)?;
    builders.limit = options.build_limit;
    let trial = Trial {
        machine: &host.machine,
        making: *making,
        time: options.in_model,
        clock,
    };
    decide(source, store, &mut builders, &trial)
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
