//! What a run needs before its search: default models, evaluators, searches.

use crate::ceiling;
use crate::clock::Clock;
use crate::compile::Builders;
use crate::core_sets::shared_cores;
use crate::default_model::{DefaultModel, Making, Size};
use crate::error::{Error, Result};
use crate::evaluator::{CoreSet, Evaluator, Inbox, MeasureSettings, Timed, known_states};
use crate::known::rotate_bytes;
use crate::layouts::{self, Costs, LayoutDecision, LayoutTrial, Layouts, decide};
use crate::machine::{Limits, target_key};
use crate::report::GoesOnFrom;
use crate::resume::{Answers, Earlier, earlier, noted};
use crate::run::{Job, Log, Run};
use crate::saved::Saved;
use crate::scorer::Scorer;
use crate::search::OfPlan;
use crate::source::Source;
use crate::stretches::Stretch;
use crate::trial::AnswerPlace;
use crate::workers::Host;
use crate::{Options, record};
use ir::Target;
use measure::Protocol;
use plan::Plan;
use runtime::{BuiltKernel, Pool};
use search::Point;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::{Extra, NewEvent, Store};

/// A model to be tuned for a target.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub source: &'a Source,
    pub target: &'a Target,
    /// The strategy of its searches, if it is another than that of the options.
    pub strategy: Option<&'a str>,
}

/// A requested model: its plan, and what is known of it before the search.
#[derive(Clone)]
pub struct Prepared {
    /// The plan by the rule, without exceptions.
    rule: Plan,
    pub layouts: Layouts,
    pub pool: Arc<Pool>,
    pub plan: Arc<Plan>,
    /// Its stretches with other layouts, if alternatives are kept.
    pub stretches: Vec<Stretch>,
    /// Its steps beside them that can keep columns, likewise.
    pub saved: Vec<Saved>,
    /// What it takes.
    size: Size,
    /// Its kernels under the defaults, one a task.
    kernels: Vec<Arc<BuiltKernel>>,
    /// The least times of its steps under the defaults.
    step_ns: Vec<u64>,
    /// Points of each task to begin with.
    pub seeds: Vec<Vec<Point>>,
}

/// The default models of all requests, in the layouts that are best as far as the time for
/// that tells; built by all CPUs, as nothing is measured meanwhile.
///
/// # Errors
/// If a default schedule cannot be built or run.
pub fn prepare(
    requests: &[Request<'_>],
    host: &Host,
    store: &Store,
    options: &Options,
) -> Result<Vec<(Prepared, DefaultModel)>> {
    let mut builders = Builders::new(&host.workers, host.machine.cpus)?;
    builders.limit = options.build_limit;
    let clock = Clock::of(options);
    let clock = clock.shared_by(requests.len());
    let mut one = |r: &Request<'_>| {
        clock.goes_on()?;
        let pool = Arc::new(Pool::new(r.target.threads() as usize)?);
        let trial = LayoutTrial {
            machine: &host.machine,
            making: making(r.target, options, &pool),
            time: options.in_model,
            clock: clock.clone(),
        };
        let LayoutDecision {
            rule,
            mut default,
            costs,
            layouts,
        } = match decide(r.source, store, &mut builders, &trial) {
            // What builders say then is that they were ended.
            Err(_) if clock.is_stopped() => return Err(Error::stopped()),
            decided => decided?,
        };
        Scorer::of(options, r.target).check_tasks(&default.plan.tasks)?;
        let accuracy = trial.making.allowed.accuracy;
        let others = options.alternatives.saturating_sub(1);
        let costs = costs.unwrap_or_else(Costs::of_bytes);
        let stretches = (r.source).stretches(&default.plan, r.target, accuracy, &costs, others)?;
        let room = if others > 0 { options.columns_bytes } else { 0 };
        let saved = default.keep_columns(&stretches, room, &mut builders, &trial.making)?;
        let prepared = Prepared {
            stretches,
            saved,
            rule,
            layouts,
            plan: default.plan.clone(),
            step_ns: default.step_ns.clone(),
            kernels: default.kernels.clone(),
            seeds: vec![vec![]; default.plan.tasks.len()],
            size: default.size,
            pool,
        };
        Ok((prepared, default))
    };
    requests.iter().map(&mut one).collect()
}

fn making<'a>(target: &'a Target, options: &Options, pool: &'a Arc<Pool>) -> Making<'a> {
    Making {
        target,
        allowed: options.allowed(),
        seed: options.seed,
        pool,
    }
}

/// Nanoseconds of one call of each task of a plan, of the times of its steps.
fn default_ns(plan: &Plan, step_ns: &[u64]) -> Vec<f64> {
    let mut sums = vec![(0u64, 0u64); plan.tasks.len()];
    for (step, ns) in plan.steps.iter().zip(step_ns) {
        let (calls, sum) = &mut sums[step.task];
        (*calls, *sum) = (*calls + 1, *sum + ns);
    }
    let mean = |(calls, ns): (u64, u64)| ns as f64 / calls.max(1) as f64;
    sums.into_iter().map(mean).collect()
}

/// Makes an evaluator for the candidates of a target, whose answers hold in a place.
pub type MakeEvaluator<'a> = dyn Fn(&Target, &AnswerPlace) -> Result<Box<dyn Evaluator>> + 'a;

/// The evaluators of a target.
#[derive(Clone, Copy)]
struct OfTarget {
    /// Answers searches.
    evaluator: usize,
    timed: usize,
}

/// What a run starts from; without an evaluator, searches are answered with times.
pub struct Start<'a> {
    pub requests: &'a [Request<'a>],
    pub models: &'a [Prepared],
    pub host: &'a Host,
    pub store: &'a Store,
    pub options: &'a Options,
    pub evaluator: Option<&'a MakeEvaluator<'a>>,
}

impl<'a> Start<'a> {
    /// A run with a search for every task of every model; models with the same target share
    /// its devices.
    ///
    /// # Errors
    /// If the store cannot be written, or no runner can be set up.
    pub fn run(&self) -> Result<Run<'a>> {
        let log = Log {
            store: Some(self.store),
        };
        let mut run = Run::new(log, self.options)?;
        run.clock = run
            .clock
            .clone()
            .shared_by(run.finished(self.requests.len()));
        self.store.put_machine(&store::MachineKey {
            fingerprint: self.host.machine.fingerprint(),
            description: self.host.machine.description(),
            extra: Extra::new(),
        })?;
        let limits = ceiling::limits(&self.host.machine);
        let mut evaluators: HashMap<String, OfTarget> = HashMap::new();
        let inbox = Arc::default();
        (run.disturbances.warnings).extend(shared_cores(&self.options.core_sets));
        for (i, r) in self.requests.iter().enumerate() {
            let key = target_key(r.target);
            self.store.put_target(&key)?;
            let place = AnswerPlace {
                target: key.text(),
                machine: self.host.machine.fingerprint(),
            };
            let of_target = match evaluators.get(&place.target) {
                Some(of_target) => *of_target,
                None => {
                    let sets = match self.evaluator {
                        Some(_) => &[],
                        None => &self.options.core_sets[..],
                    };
                    let timed = match sets {
                        [] => {
                            let timed = self.timed(r.target, &place, &[])?;
                            run.add_evaluator(Box::new(timed))
                        }
                        sets => self.add_sets(&mut run, r.target, &place, sets, &inbox)?,
                    };
                    let evaluator = match self.evaluator {
                        Some(make) => run.add_evaluator(make(r.target, &place)?),
                        None => timed,
                    };
                    let of_target = OfTarget { evaluator, timed };
                    evaluators.insert(place.target.clone(), of_target);
                    of_target
                }
            };
            self.add(&mut run, i, of_target, &limits, place)?;
        }
        Ok(run)
    }

    /// Adds an evaluator for each core set; the position of the first one.
    fn add_sets(
        &self,
        run: &mut Run<'a>,
        target: &Target,
        place: &AnswerPlace,
        sets: &[Vec<usize>],
        inbox: &Arc<Inbox>,
    ) -> Result<usize> {
        let mut first = None;
        for set in sets {
            let timed = self.timed(target, place, set)?;
            let names: Vec<String> = set.iter().map(usize::to_string).collect();
            let on_thread = Box::new(CoreSet::new(timed, inbox));
            let evaluator = run.add_set(names.join(","), on_thread, first);
            first.get_or_insert(evaluator);
        }
        first.ok_or_else(|| Error::new("there is no core set to measure on"))
    }

    /// The devices of a target on a core set, or on all CPUs without one, with what DOPpler knows of the models' tasks
    /// there.
    fn timed(&self, target: &Target, place: &AnswerPlace, core_set: &[usize]) -> Result<Timed> {
        let options = self.options;
        let settings = &MeasureSettings {
            core_set: core_set.to_vec(),
            ..options.measure.clone()
        };
        let mut protocol = Protocol::new(target.threads(), target.llc_bytes());
        protocol.tolerance = options.tolerance;
        protocol.limit_ns = options.run_limit.as_nanos() as u64;
        protocol.lose = options.measure.lose;
        let mut states = HashMap::new();
        for m in self.models {
            let name = &m.plan.name;
            let known = known_states(self.store, place, name, settings, options.overlap)?;
            states.extend(known);
        }
        let devices = settings.open(self.host, target)?;
        let (overlap, place) = (options.overlap, place.clone());
        Ok(Timed::new(
            settings, overlap, protocol, devices, place, states,
        ))
    }

    /// Adds a model and the searches of its tasks; its run begins in the store.
    fn add(
        &self,
        run: &mut Run<'a>,
        i: usize,
        of_target: OfTarget,
        limits: &Limits,
        place: AnswerPlace,
    ) -> Result<()> {
        let (request, model, options) = (&self.requests[i], &self.models[i], self.options);
        let target = request.target;
        let strategy = request.strategy.unwrap_or(&options.strategy);
        let from_memory = Protocol::new(target.threads(), target.llc_bytes()).rotate_bytes;
        let (run_id, earlier) = self.begin(run, i, of_target.evaluator, strategy, &place)?;
        if let Some(live) = &earlier.live {
            let how = match earlier.runs.last() {
                Some(last) => format!("this run goes on from run {last}"),
                None => "this run begins anew".into(),
            };
            let warning = format!(
                "run {live} of the same model and settings is still going on, so {how}; both use the same records"
            );
            run.disturbances.warnings.push(warning);
        }
        run.held.extend(earlier.held);
        let run_id: Arc<str> = run_id.into();
        let place = Arc::new(place);
        let of_plan = OfPlan {
            plan: &model.plan,
            run_id: run_id.clone(),
            target,
            host: &self.host.machine.target(target.threads()),
            place: place.clone(),
            evaluator: of_target.evaluator,
            limits,
            strategy,
            rotate_bytes: match options.rotate {
                true => rotate_bytes(&model.plan, target, from_memory),
                false => 0,
            },
            earlier: &earlier.runs,
        };
        let (mut new, searches) = of_plan.searches(&run.searches, Some(self.store), options)?;
        let goes_on_from = GoesOnFrom::of(&earlier.runs, &new);
        let first = run.searches.len();
        for (of_task, seeds) in searches.iter().zip(&model.seeds) {
            let at = of_task.search.checked_sub(first);
            if let Some(s) = at.and_then(|at| new.get_mut(at)) {
                s.known.extend(seeds.iter().cloned());
            }
        }
        run.add_searches(new);
        for t in searches.iter().filter(|t| t.search < first) {
            run.searches[t.search].uses += t.uses;
        }
        run.jobs.push(Job {
            plan: &model.plan,
            run_id: run_id.clone(),
            place,
            making: making(target, options, &model.pool),
            timed: of_target.timed,
            strategy: strategy.to_string(),
            goes_on_from,
            peak_gflops: limits.peak_gflops * f64::from(target.threads()),
            read_gb_per_s: limits.read_gb_per_s * f64::from(target.threads()),
            size: model.size,
            default_ns: default_ns(&model.plan, &model.step_ns),
            default_kernels: model.kernels.clone(),
            whole: None,
            measuring_whole: Duration::ZERO,
            curve: vec![],
            searches,
        });
        if !model.layouts.known && model.layouts.tried() {
            let machine = &self.host.machine;
            let event: NewEvent =
                layouts::event(&run_id, &model.rule, machine, target, &model.layouts);
            self.store.append(&[], &[event])?;
        }
        Ok(())
    }

    /// Begins a model's run in the store, and holds it: its key, and the runs that it goes on from.
    fn begin(
        &self,
        run: &mut Run<'_>,
        i: usize,
        evaluator: usize,
        strategy: &str,
        place: &AnswerPlace,
    ) -> Result<(String, Earlier)> {
        let options = self.options;
        let elapsed_ms = run.clock.elapsed().as_millis() as u64;
        let started_unix_ms = record::unix_ms().saturating_sub(elapsed_ms);
        let mut run_id = format!("{started_unix_ms}-{}-{}", std::process::id(), options.seed);
        if self.requests.len() > 1 {
            run_id += &format!("-{i}");
        }
        let mut new = store::Run {
            run_id: run_id.clone(),
            model: self.models[i].plan.name.clone(),
            options: options.stored(self.requests[i].target.threads()),
            strategy: strategy.to_string(),
            seed: options.seed,
            started_unix_ms,
            ended_unix_ms: None,
            summary: serde_json::Value::Null,
            extra: Extra::new(),
        };
        let evaluator = &run.evaluators[evaluator];
        let tasks = self.models[i].plan.tasks.iter();
        let answers = Answers {
            place,
            evaluator: evaluator.name(),
            kinds: tasks.filter_map(|t| evaluator.score_kind(&t.key)).collect(),
            algorithms: &options.algorithms,
        };
        let earlier = earlier(self.store, &new, &answers)?;
        new.extra = noted(&answers, &earlier.runs);
        // Before anybody can see it.
        run.held.extend(self.store.hold_run(&run_id)?);
        self.store.begin_run(&new)?;
        Ok((run_id, earlier))
    }
}
