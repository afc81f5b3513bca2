//! The tuning loop: ask, build, evaluate, store, tell.
//!
//! Owns the ways from a model to a compiled one: default models, layouts, the
//! search of every task, the last choices inside the model. Builders prepare the
//! next candidates while one is measured. The record of an evaluated candidate is in
//! the store before the strategy hears of it, and a search measures nothing again that
//! the store knows, so a run that was killed goes on where it stopped; finalists are
//! measured again. Knows no terminal and no command line: an [`Observer`] is told what
//! happens, and the caller says which machine this is and where its worker programs are
//! ([`Host`]).

mod algorithms;
mod arguments;
mod bindings;
pub mod board;
mod bound;
pub mod calibration;
pub mod ceiling;
mod choice;
pub mod chooser;
mod clock;
pub mod compile;
mod core_sets;
pub mod default_model;
mod disturbance;
mod ending;
pub mod energy;
mod error;
pub mod evaluator;
mod factorial;
pub mod filter;
mod finalists;
mod finish;
mod funnel;
mod in_model;
pub mod incumbent;
pub mod kernels;
pub mod knobs;
pub mod known;
pub mod latency;
pub mod layouts;
pub mod machine;
mod objective;
mod observer;
mod options;
mod outlook;
mod prediction;
mod progress;
mod proposer;
mod quality;
mod record;
mod report;
mod resume;
mod run;
pub mod saved;
mod scored;
pub mod scored_caches;
pub mod scorer;
mod search;
pub mod similar;
pub mod source;
mod start;
pub mod stretches;
pub mod threads;
pub mod time_ratio;
mod trial;
mod watch;
mod workers;

pub use arguments::fills;
pub use clock::Clock;
pub use core_sets::CoreSets;
pub use error::{Error, Result};
pub use evaluator::MeasureSettings;
pub(crate) use finalists::FINAL_FACTOR;
pub use finalists::ranked;
pub use funnel::{FilterCost, FunnelStage};
pub use objective::Objective;
pub use observer::{Observer, Silent, Status};
pub use options::{CpuDivision, Options, StopRule};
pub use outlook::{Hope, Outlook};
pub use progress::{Moment, TaskProgress};
pub use proposer::Proposer;
pub use quality::ModelQuality;
#[cfg(test)]
pub(crate) use record::begun as begun_run;
pub use record::{code_hash, task as task_record, unix_ms};
pub use report::{Gain, GoesOnFrom, Report, Surveyed, TaskSummary};
pub use run::{CoreSetUse, Log, Run, TaskSearch};
pub use search::{Ranked, Search, SearchParts, State, Subject};
pub use start::{MakeEvaluator, Request};
pub use trial::{Answer, AnswerPlace, EarlierTrial, Form, Trial};
pub use worker::Stop;
pub use workers::{Host, Workers, serve_worker_if_asked};

use crate::algorithms::check_algorithms;
use crate::chooser::Chooser;
use crate::compile::Builders;
use crate::energy::Stage;
use crate::finish::Finish;
use measure::energy::own_cpu_s;
use runtime::CompiledModel;
use start::{Start, prepare};
use std::sync::Arc;
use std::time::Duration;
use store::Store;

/// A finished run.
pub struct Tuned {
    pub report: Report,
    pub model: Arc<CompiledModel>,
}

/// Tunes one model for one target: [`tune_all`] of one request.
///
/// # Errors
/// As [`tune_all`].
pub fn tune(
    request: Request<'_>,
    host: &Host,
    store: &Store,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Tuned> {
    let mut tuned = tune_all(&[request], host, store, options, observer)?;
    Ok(tuned.remove(0))
}

/// Decides the layouts of every model, tunes every task of their plans in one search, and
/// compares each whole model before, with defaults, and after; one result a request, in
/// their order.
///
/// Where [`Options::tuners`] names several strategies, each of them tunes the models in searches of its own. They take turns,
/// and are asked for as many candidates, unless a survey suspends some. The result of a model is that of the strategy with
/// which it was fastest in the end. With [`Options::core_sets`] they work at the same time, each on a set of its own, as far
/// as there are sets.
///
/// The budget divides the trials between the tasks of all models. A budget of time ends all of
/// it: what does not fit is left out, and where building the default models alone takes longer,
/// these are the result.
///
/// # Errors
/// If the store cannot be written, workers cannot be started, or a default or
/// plain schedule cannot be built or gives a wrong result.
pub fn tune_all(
    requests: &[Request<'_>],
    host: &Host,
    store: &Store,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Vec<Tuned>> {
    tune_all_by(requests, host, store, options, None, observer)
}

/// [`tune_all`] whose searches are answered by an evaluator that the caller makes, one for each
/// target of the requests; by times if there is none.
///
/// In the end the best candidates of every task are built, compared with the plain schedule and
/// timed, whatever the evaluator answered. So the chosen model is that of the least time among
/// those that the evaluator thought best, or the default model. These measurements do not count
/// as trials. Of a budget of time up to 15% are kept for them.
///
/// # Errors
/// As [`tune_all`], or if the evaluator cannot be made, or a budget that compares costs is given
/// costs of several kinds.
pub fn tune_all_by(
    requests: &[Request<'_>],
    host: &Host,
    store: &Store,
    options: &Options,
    evaluator: Option<&MakeEvaluator<'_>>,
    observer: &mut dyn Observer,
) -> Result<Vec<Tuned>> {
    let start_cpu_s = own_cpu_s();
    let host = &Host {
        workers: host.workers.stopped_by(&options.interrupt),
        ..host.clone()
    };
    for r in requests {
        check_algorithms(r.source, r.target, options)?;
    }
    observer.stage("building the default model");
    let prepared = prepare(requests, host, store, options)?;
    let (mut models, defaults): (Vec<_>, Vec<_>) = prepared.into_iter().unzip();
    if evaluator.is_none() && !options.reading.is_zero() {
        let clock = Clock::of(options);
        options.enter(Stage::Features);
        for (m, r) in models.iter_mut().zip(requests) {
            observer.stage("reading candidates");
            let left = clock.left(Duration::ZERO) / 4;
            let time = (options.reading / requests.len() as u32).min(left);
            let chooser = Chooser::before(host, r.target, options, time);
            m.seeds = chooser.seeds(&m.plan, observer)?;
        }
    }
    let requested = models.len();
    let mut of_tuners: Vec<Request<'_>> = Vec::new();
    for tuner in &options.tuners {
        let strategy = Some(tuner.as_str());
        of_tuners.extend(requests.iter().map(|r| Request { strategy, ..*r }));
    }
    let requests = match of_tuners.is_empty() {
        true => requests,
        false => &of_tuners,
    };
    let models = vec![models; requests.len() / requested.max(1)].concat();
    let mut builders = Builders::new(&host.workers, options.builders)?;
    builders.limit = options.build_limit;
    let start = Start {
        requests,
        models: &models,
        host,
        store,
        options,
        evaluator,
    };
    let mut run = start.run()?;
    run.note_earlier(observer);
    options.enter(Stage::Search);
    run.search(Some(&mut builders), observer)?;
    let mut tuned = Vec::new();
    let finished: Vec<usize> = (0..requested).map(|m| run.fastest(m)).collect();
    run.end_others(&finished)?;
    for (job, default) in finished.into_iter().zip(defaults) {
        let model = &models[job];
        let finish = Finish {
            job,
            model,
            default,
            start_cpu_s,
        };
        tuned.push(finish.tuned(&mut run, &mut builders, observer)?);
    }
    Ok(tuned)
}
