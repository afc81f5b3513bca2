//! One run: a list of searches, and the loop that asks, builds, evaluates and tells.
//!
//! Owns what is on its way. Promises that every answer is in the store before the
//! strategy hears of it, that what the store knows is not evaluated again, and that
//! answers are told in the order of their batch. Which search comes next is the
//! budget's decision, which candidates come is the strategies', and what they cost
//! is the evaluators'. Searches may differ in model, task, strategy, target and
//! evaluator; each can be suspended and resumed.

mod answering;
mod asking;
mod outstanding;
mod sets;
mod survey;

pub use sets::CoreSetUse;

use crate::clock::Clock;
use crate::compile::Builders;
use crate::default_model::{Making, Size};
use crate::disturbance::Disturbances;
use crate::error::{Error, Result, no_such};
use crate::evaluator::Evaluator;
use crate::observer::Observer;
use crate::progress::{Moment, Others};
use crate::report::GoesOnFrom;
use crate::search::Search;
use crate::trial::{AnswerPlace, Trial};
use crate::{Options, StopRule};
use asking::Asking;
use outstanding::Outstanding;
use plan::Plan;
use runtime::BuiltKernel;
use search::{Budget, Standing, Turn, budget};
use sets::Set;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{HeldRun, NewEvent, Outcome, Record, RecordIdentity, Store, SurveyEpoch};

/// How long the loop waits for a builder before it looks at the time again, and while a strategy proposes.
const PATIENCE: Duration = Duration::from_millis(200);
const PATIENCE_ASKING: Duration = Duration::from_millis(1);

/// Where a run is logged; nowhere if there is no store.
#[derive(Clone, Copy)]
pub struct Log<'a> {
    pub store: Option<&'a Store>,
}

impl Log<'_> {
    /// Replaces the scores of records and appends events, all or none.
    pub fn revise(&self, revised: &[(RecordIdentity, Outcome)], events: &[NewEvent]) -> Result<()> {
        if let Some(store) = self.store.filter(|_| !revised.is_empty()) {
            store.revise(revised, events)?;
        }
        Ok(())
    }

    /// Stores records and events, all or none.
    pub fn append(&self, records: &[Record], events: &[NewEvent]) -> Result<()> {
        if let Some(store) = self.store {
            store.append(records, events)?;
        }
        Ok(())
    }
}

/// A model of a run: its plan for one target, and the searches of its tasks.
pub struct Job<'a> {
    pub plan: &'a Plan,
    /// Key of its run in the store.
    pub run_id: Arc<str>,
    pub place: Arc<AnswerPlace>,
    pub making: Making<'a>,
    /// Position of the evaluator that times candidates on its devices.
    pub timed: usize,
    pub strategy: String,
    /// What its searches go on from.
    pub goes_on_from: Option<GoesOnFrom>,
    /// f32 multiply-add peak of all threads.
    pub peak_gflops: f64,
    /// Bandwidth of memory to all threads.
    pub read_gb_per_s: f64,
    /// What the model takes, as its defaults told.
    pub size: Size,
    /// One call of each task of the plan in the default model.
    pub default_ns: Vec<f64>,
    /// The kernels of the default model, one a task of the plan.
    pub default_kernels: Vec<Arc<BuiltKernel>>,
    /// The kernels that were last measured as a whole model, and its time.
    pub whole: Option<(Vec<Arc<BuiltKernel>>, f64)>,
    /// What a survey took to assemble and measure the whole model.
    pub measuring_whole: Duration,
    /// How its time fell in the course of the search.
    pub curve: Vec<Moment>,
    /// The search of each task of its plan. Models that have a task in common for one target,
    /// such as variants of a model, have one search for it.
    pub searches: Vec<TaskSearch>,
}

/// A task of a model: the position of its search, and its calls in one inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSearch {
    pub search: usize,
    /// 0 of a task that no step has ([`plan::Plan::add_task`]).
    pub uses: usize,
}

impl TaskSearch {
    /// What its cost counts for where tasks are compared: what no step has counts like one call.
    pub fn weight(&self) -> f64 {
        self.uses.max(1) as f64
    }
}

/// The state of a run.
pub struct Run<'a> {
    pub log: Log<'a>,
    pub options: &'a Options,
    pub clock: Clock,
    /// Models whose searches these are; none for searches of tables.
    pub jobs: Vec<Job<'a>>,
    pub searches: Vec<Search>,
    /// Searches whose finalists have been ranked or timed.
    pub ranked: BTreeSet<usize>,
    pub evaluators: Vec<Box<dyn Evaluator + 'a>>,
    /// Those that work at the same time.
    sets: Vec<Set>,
    pub toolchain: &'static str,
    pub disturbances: Disturbances,
    /// Its runs in the store and those that they go on from: no other process goes on from these.
    pub held: Vec<HeldRun>,
    budget: Box<dyn Budget + Send>,
    /// The budget of each tuner for its own searches, where several tuners take turns.
    of_tuners: Vec<Box<dyn Budget + Send>>,
    /// Of each model, what a survey knew of it after each epoch.
    pub epochs: Vec<Vec<SurveyEpoch>>,
    /// The search that is asked, and how many asks of its turn are left.
    pub turn: Turn,
    left: usize,
    /// The ask that is on its way; one at a time.
    asking: Option<Asking>,
    /// Trials in builders, by the number of their request.
    building: HashMap<u64, Trial>,
    /// Searches whose plain schedule is in a builder.
    oracles: HashMap<u64, usize>,
    /// Trials that wait for their batch.
    ready: Vec<Trial>,
    /// What each evaluator has.
    outstanding: Vec<Outstanding>,
    /// Batches that evaluators were handed.
    batches: u64,
    /// Candidates tried: executed, or not to be built.
    pub trials: u64,
    pub worker_cpu_ns: u64,
    pub tuning: Duration,
    /// What other programs do meanwhile.
    pub others: Others,
}

impl<'a> Run<'a> {
    /// A run without searches.
    ///
    /// # Errors
    /// If there is no such budget.
    pub fn new(log: Log<'a>, options: &'a Options) -> Result<Run<'a>> {
        let make = || {
            let no_budget = || no_such("budget", &options.budget, &search::budget_names());
            budget(&options.budget, options.survey).ok_or_else(no_budget)
        };
        let mut budget = make()?;
        // A survey hears of all tuners, and suspends them itself.
        let of_tuners = match budget.survey() {
            Some(_) => vec![],
            None => options
                .tuners
                .iter()
                .map(|_| make())
                .collect::<Result<_>>()?,
        };
        Ok(Run {
            log,
            options,
            clock: Clock::of(options),
            jobs: vec![],
            searches: vec![],
            ranked: BTreeSet::new(),
            evaluators: vec![],
            sets: vec![],
            toolchain: build::toolchain(),
            disturbances: Disturbances::default(),
            held: vec![],
            budget,
            of_tuners,
            epochs: vec![],
            turn: Turn { search: 0, asks: 0 },
            left: 0,
            asking: None,
            building: HashMap::new(),
            oracles: HashMap::new(),
            ready: vec![],
            outstanding: vec![],
            batches: 0,
            trials: 0,
            worker_cpu_ns: 0,
            tuning: Duration::ZERO,
            others: Others::default(),
        })
    }

    /// Adds an evaluator; its position.
    pub fn add_evaluator(&mut self, evaluator: Box<dyn Evaluator + 'a>) -> usize {
        self.evaluators.push(evaluator);
        self.outstanding.push(Outstanding::default());
        self.evaluators.len() - 1
    }

    /// Adds searches; their positions.
    pub fn add_searches(&mut self, searches: Vec<Search>) -> Range<usize> {
        let first = self.searches.len();
        self.searches.extend(searches);
        for (i, s) in self.searches.iter_mut().enumerate().skip(first) {
            let mut kind = "";
            if let Some(subject) = &mut s.subject {
                subject.id = i as u64;
                kind = &subject.program.name;
            }
            s.earlier.iter_mut().for_each(|e| e.trial.search = i);
            self.evaluators[s.evaluator].go_on(&s.key, kind, &s.earlier);
        }
        first..self.searches.len()
    }

    /// Searches until the run is to stop, or no search is open. `builders` are needed where an
    /// evaluator takes code.
    ///
    /// # Errors
    /// If the budget compares costs and those of the searches are of several kinds, candidates
    /// cannot be built, or the store cannot be written.
    pub fn search(
        &mut self,
        mut builders: Option<&mut Builders>,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let begin = Instant::now();
        self.check_costs()?;
        self.deal_sets(&vec![true; self.models().len()]);
        while !self.spent() {
            // What was begun may take from the ranking, whose time changes with what is found.
            self.end_by(
                self.clock.end(self.after_ranking()),
                builders.as_deref_mut(),
            );
            self.ask_ahead(&mut builders)?;
            if self.in_flight() == 0 {
                break;
            }
            self.show(observer);
            if let Some(builders) = builders.as_deref_mut() {
                self.collect_built(builders)?;
            }
            while let Some(search) = self.due()
                && !self.spent()
            {
                self.submit(search)?;
                self.collect_answers(builders.as_deref_mut())?;
            }
            self.collect_answers(builders.as_deref_mut())?;
        }
        if let Some(builders) = builders.as_deref_mut() {
            builders.pool.clear();
            builders.drain();
        }
        self.give_up_asking();
        self.building.clear();
        self.oracles.clear();
        self.ready.clear();
        self.settle(builders.as_deref_mut())?;
        self.end_by(None, builders);
        self.end_curves();
        self.tuning += begin.elapsed();
        Ok(())
    }

    /// Refuses open searches whose costs the budget cannot set against each other.
    fn check_costs(&self) -> Result<()> {
        if !self.budget.compares_costs() {
            return Ok(());
        }
        let kind = |s: &Search| self.evaluators[s.evaluator].score_kind(&s.key);
        let open = self.searches.iter().filter(|s| s.is_open());
        let mut kinds = open.map(|s| (s, kind(s)));
        let Some((first, kind)) = kinds.next() else {
            return Ok(());
        };
        let Some((other, other_kind)) = kinds.find(|(_, k)| *k != kind) else {
            return Ok(());
        };
        let answers = |s: &Search, kind: Option<String>| {
            let costs = kind.map_or("times".into(), |k| format!("scores of the kind `{k}`"));
            let name = self.evaluators[s.evaluator].name();
            format!("`{name}` answers {} with {costs}", s.title)
        };
        Err(Error::new(format!(
            "the budget `{}` compares costs of tasks, but {} and {}",
            self.options.budget,
            answers(first, kind),
            answers(other, other_kind)
        ))
        .help("use the budget `round-robin`, or a run of its own for each kind"))
    }

    /// From here on nothing is built or evaluated beyond `end`.
    fn end_by(&mut self, end: Option<Instant>, builders: Option<&mut Builders>) {
        if let Some(builders) = builders {
            builders.pool.end_by(end);
        }
        self.evaluate_until(end);
    }

    /// From here on nothing is evaluated beyond `end`.
    pub fn evaluate_until(&mut self, end: Option<Instant>) {
        self.evaluators.iter_mut().for_each(|e| e.end_by(end));
    }

    /// How long the loop waits for one of those that work for it.
    fn patience(&self) -> Duration {
        match self.asking {
            Some(_) => PATIENCE_ASKING,
            None => PATIENCE,
        }
    }

    /// Trials that are asked for and have no answer.
    fn in_flight(&self) -> usize {
        let asking = self.asking.as_ref().map_or(0, |a| a.n);
        asking
            + self.building.len()
            + self.ready.len()
            + self
                .outstanding
                .iter()
                .map(Outstanding::trials)
                .sum::<usize>()
    }

    /// Whether the search is over.
    fn spent(&self) -> bool {
        let over = match self.options.stop {
            StopRule::Time(_) | StopRule::Energy(_) => self.clock.left(self.afterwards()).is_zero(),
            StopRule::Trials(n) => self.trials >= n,
        };
        over || self.clock.is_stopped()
    }

    /// What is known of every search.
    pub fn standings(&self) -> Vec<Standing> {
        let sums = |(n, ns), s: &Search| (n + s.told, ns + s.spent_ns);
        let (told, spent_ns) = self.searches.iter().fold((0, 0), sums);
        let usual_ns = if told > 0 {
            spent_ns as f64 / told as f64
        } else {
            1.0
        };
        let weights = self.weights();
        let searches = self.searches.iter().zip(weights);
        let families = self.families();
        let all = searches.zip(families);
        all.map(|((s, w), f)| s.standing(usual_ns, w, f)).collect()
    }

    /// Of each search the first one whose space has the same sketches.
    fn families(&self) -> Vec<usize> {
        let names = self.searches.iter().map(|s| {
            let names = s.space.sketches.iter().map(|k| k.name.as_str());
            names.collect::<Vec<&str>>()
        });
        let mut first: HashMap<Vec<&str>, usize> = HashMap::new();
        let family = |(i, names)| *first.entry(names).or_insert(i);
        names.enumerate().map(family).collect()
    }

    /// The tasks of each model; of searches without jobs, each run is one.
    pub fn models(&self) -> Vec<Vec<TaskSearch>> {
        if !self.jobs.is_empty() {
            return self.jobs.iter().map(|j| j.searches.clone()).collect();
        }
        let mut runs: BTreeMap<&str, Vec<TaskSearch>> = BTreeMap::new();
        for (search, s) in self.searches.iter().enumerate() {
            let uses = s.uses;
            let run = runs.entry(&s.run_id).or_default();
            run.push(TaskSearch { search, uses });
        }
        runs.into_values().collect()
    }

    /// What the cost of each search is multiplied by, so that models count as the objective says. A
    /// search of several models has the mean of theirs, by their calls of the task.
    fn weights(&self) -> Vec<f64> {
        let models = self.models();
        let cost = |tasks: &Vec<TaskSearch>| -> f64 {
            let one = |t: &TaskSearch| self.searches[t.search].call_cost() * t.uses as f64;
            tasks.iter().map(one).sum()
        };
        let costs: Vec<f64> = models.iter().map(cost).collect();
        // Each tuner has all models.
        let wanted_ns = (self.options.wanted_ns).repeat(self.options.tuners.len().max(1));
        let weights = self.options.objective.weights(&costs, &wanted_ns);
        let (mut sums, mut uses) = (
            vec![0.0; self.searches.len()],
            vec![0.0; self.searches.len()],
        );
        for (tasks, weight) in models.iter().zip(weights) {
            for t in tasks {
                sums[t.search] += weight * t.weight();
                uses[t.search] += t.weight();
            }
        }
        let weight = |(sum, uses): (f64, f64)| if uses > 0.0 { sum / uses } else { 1.0 };
        sums.into_iter().zip(uses).map(weight).collect()
    }

    /// The least time of a search so far; none where its costs are scores.
    pub fn best_ns(&self, s: &Search) -> Option<f64> {
        let scored = self.evaluators[s.evaluator].score_kind(&s.key).is_some();
        s.best_cost().filter(|_| !scored)
    }

    /// Time of the kernels of a model, with the best so far; those with scores count 0.
    pub fn kernels_ns(&self, job: usize) -> f64 {
        self.tasks_ns(&self.jobs[job].searches)
    }

    pub fn tasks_ns(&self, tasks: &[TaskSearch]) -> f64 {
        let one = |t: &TaskSearch| {
            let best = self.best_ns(&self.searches[t.search]);
            best.unwrap_or(0.0) * t.uses as f64
        };
        tasks.iter().map(one).sum()
    }
}
