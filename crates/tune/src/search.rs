//! The search of one task: its space, its strategy, its filters and its best.

use crate::algorithms::searched;
use crate::arguments::fills;
use crate::bound::bound_ns;
use crate::error::{Error, Result, no_such};
use crate::filter::trained::Facts;
use crate::filter::{Filter, Verdicts, filter};
use crate::finalists::ranked;
use crate::machine::{Limits, target_key};
use crate::proposer::Proposer;
use crate::similar::{Similar, Wanted, similar};
use crate::trial::{AnswerPlace, EarlierTrial, Form, Trial};
use crate::{Options, TaskSearch, record};
use ir::{Program, Target};
use measure::{Spent, TaskData};
use plan::{Plan, Task};
use runtime::BuiltKernel;
use search::{Allowed, Candidate, Context, Learner, Point, SimilarTask, Space, Standing, Told};
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{Cost, InModelDecision, Outcome, Record, RecordPlace, Store, StoreError};

/// A modest machine, for guesses before the first measurement.
const GUESS_FLOPS_PER_NS: f64 = 50.0;
const GUESS_BYTES_PER_NS: f64 = 10.0;
/// Candidates of a task that are kept, whatever their algorithm; at least.
const KEPT: usize = 3;
/// A cost below this share of the best is an improvement, not noise.
const BETTER: f64 = 0.98;
/// Candidates of a task that are unanswered one after another before the task is given up, or
/// batches from which answers are missing.
const MOST_UNANSWERED: u64 = 3;
/// How failures name a cost that cannot be set against the search's others.
const OTHER_KIND: &str = "other-kind-of-cost";

/// A candidate that has a cost.
pub struct Ranked {
    /// Lower is better: nanoseconds, or a score of the search's evaluator.
    pub cost: f64,
    /// Whether the cost was measured as a finalist's.
    pub alone: bool,
    /// Relative error (L2) of its outputs, where the record has it.
    pub rel_l2: Option<f64>,
    pub trial: Trial,
}

impl Ranked {
    /// The name of the candidate's sketch; nothing of a table's row.
    pub fn algorithm(&self) -> &str {
        let candidate = self.trial.candidate.as_ref();
        candidate.map_or("", |c| c.algorithm.as_str())
    }

    /// The code of a candidate that was built.
    pub fn kernel(&self) -> &Arc<BuiltKernel> {
        let kernel = self.trial.kernel.as_ref();
        kernel.expect("candidates of this search come as code")
    }

    fn is_same(&self, other: &Ranked) -> bool {
        let (a, b) = (&self.trial, &other.trial);
        match (&a.kernel, &b.kernel, &a.read, &b.read) {
            (Some(a), Some(b), ..) => a.code == b.code,
            (_, _, Some(a), Some(b)) => a == b,
            _ => a.point == b.point,
        }
    }
}

/// Whether a search may be asked for candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Open,
    /// Nobody asks it until it is resumed. Answers that are on their way still count.
    Suspended,
    /// Nothing is left to ask for, or nothing that can be answered.
    Exhausted,
}

/// What a search has where its space is that of a program, and not of a table.
pub struct Subject {
    pub program: Arc<Program>,
    /// The program as text, for builders.
    pub text: String,
    pub target: Arc<Target>,
    /// What expected outputs are computed by: code for this host.
    pub host: Target,
    pub flops: f64,
    /// How many times the f32 peak the target has for them.
    pub peak_factor: f64,
    /// What candidates are measured with, the code of its plain schedule in it; known once
    /// that was built. The plain schedule is asked for before the first candidate.
    pub data: Option<Arc<TaskData>>,
    pub oracle_asked: bool,
    /// Whether that cannot be built, so that candidates cannot be checked.
    pub unchecked: bool,
    /// Its search's position in the run, which its data are told apart by.
    pub id: u64,
}

/// The search of one task.
pub struct Search {
    pub title: String,
    /// Key of its run in the store.
    pub run_id: Arc<str>,
    pub key: Arc<str>,
    /// Calls in one inference, of all models that have the task.
    pub uses: usize,
    /// Position of its evaluator in the run.
    pub evaluator: usize,
    /// What its candidates were scored by before its finalists were timed; none while no finalist was timed.
    pub scores: Option<String>,
    pub place: Arc<AnswerPlace>,
    pub subject: Option<Subject>,
    pub space: Arc<Space>,
    pub strategy: Proposer,
    pub strategy_name: String,
    pub filters: Vec<Box<dyn Filter + Send>>,
    /// Of its strategy.
    pub seed: u64,
    /// Bytes of copies that constants rotate through while candidates are measured.
    pub rotate_bytes: u64,
    /// A rough cost before anything was measured, for shares of the budget.
    pub guess: f64,
    /// No schedule of the task costs less.
    pub bound: f64,
    /// Records that other runs made of it.
    pub records: Arc<[Record]>,
    /// Similar tasks, or why there are none, once they were asked for.
    pub similar: OnceCell<std::result::Result<Similar, StoreError>>,
    /// The number of the last record of these that counts, if the search goes on from an earlier run.
    pub similar_until: Option<i64>,
    /// What candidates may be.
    pub allowed: Allowed,
    /// Whether models read lowered programs.
    pub reads: bool,
    /// What models of the strategy are made of.
    pub learner: Learner,
    pub tolerance: f64,
    /// Points of the best known records, to start from.
    pub known: VecDeque<Point>,
    /// Points that an earlier run asked for and that were not answered, by call: a filter judges those of one call
    /// together.
    pub open: VecDeque<Vec<Point>>,
    pub state: State,
    /// The best, and the best of every other algorithm; lowest cost first, until
    /// the whole model decides.
    pub best: Vec<Ranked>,
    /// Share of the trials that is ranked alone in the end, however far from the best.
    pub rank: f64,
    pub in_model: Option<InModelDecision>,
    /// What making its data took, the oracle's run in it; known once it was measured.
    pub setup: Option<Duration>,
    pub asked: u64,
    /// Outcomes told, and the time they took.
    pub told: u64,
    pub spent_ns: u64,
    pub trials: u64,
    /// Candidates whose outcome the store knew.
    pub cached: u64,
    /// Candidates that were unanswered since one was measured.
    pub unanswered: u64,
    /// Why the first of all unanswered candidates has no answer.
    pub why_unanswered: Option<String>,
    /// Batches from which answers were missing since a candidate was answered.
    pub lost_batches: u64,
    /// Candidates since one came through the filters.
    pub fruitless: u64,
    pub since_best: u64,
    pub failures: BTreeMap<String, u64>,
    /// In the order of telling, the cost, none of a failure, and the filter that would have dropped the candidate.
    pub history: Vec<(Option<f64>, Option<&'static str>)>,
    /// What building and evaluating its candidates took.
    pub building: Spent,
    pub evaluating: Spent,
    /// Candidates that filters dropped, by filter.
    pub skipped: BTreeMap<String, u64>,
    /// What filters took, in the order of [`Search::filters`].
    pub filtering: Vec<Filtering>,
    /// The first cost, whose kind all costs of the search have.
    pub first_cost: Option<Cost>,
    /// Points whose answers an earlier run told the strategy, with their costs.
    pub replayed: HashMap<Point, Option<f64>>,
    /// Those of their candidates that the evaluator compares others with.
    pub earlier: Vec<EarlierTrial>,
    /// What filters said in earlier runs.
    pub verdicts: Verdicts,
    /// What earlier runs did for it.
    pub before: Before,
}

/// CPU time that a filter took for one search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filtering {
    /// Making its models.
    pub learning_ns: u64,
    /// Judging candidates, and telling the strategy and the log what was dropped.
    pub judging_ns: u64,
    /// What the strategy took to propose candidates that the filter dropped.
    pub asking_ns: u64,
}

impl Filtering {
    pub fn all_ns(&self) -> u64 {
        self.learning_ns + self.judging_ns + self.asking_ns
    }
}

impl std::ops::AddAssign for Filtering {
    fn add_assign(&mut self, more: Filtering) {
        self.learning_ns += more.learning_ns;
        self.judging_ns += more.judging_ns;
        self.asking_ns += more.asking_ns;
    }
}

/// What runs did for a search that goes on from them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    pub asked: u64,
    pub trials: u64,
    /// What its strategy foretold.
    pub forecasts: usize,
    pub best: Option<f64>,
}

/// What a search is made of.
pub struct SearchParts {
    pub title: String,
    /// Key of its run in the store. A record's identity is its run, task and number: searches
    /// of one task need runs of their own.
    pub run_id: Arc<str>,
    /// Key of its task; the store has the task, the target and the machine of `place`.
    pub key: String,
    pub uses: usize,
    pub evaluator: usize,
    pub place: Arc<AnswerPlace>,
    pub subject: Option<Subject>,
    /// What candidates of its task have in common, for networks of many tasks; none of a table.
    pub facts: Option<Arc<Facts>>,
    pub space: Space,
    pub strategy: String,
    pub seed: u64,
    pub rotate_bytes: u64,
    pub guess: f64,
    pub bound: f64,
}

impl Search {
    /// A search that nothing was asked of.
    ///
    /// # Errors
    /// If there is no such strategy or filter, or a filter does not work for the target.
    pub fn new(parts: SearchParts, options: &Options) -> Result<Search> {
        let strategy = search::strategy(&parts.strategy, parts.seed)
            .ok_or_else(|| no_such("strategy", &parts.strategy, &search::strategy_names()))?;
        let named = |name: &String| filter(name, options, &parts);
        let filters = options.filters.iter().map(named).collect::<Result<_>>()?;
        Ok(Search {
            filtering: vec![],
            title: parts.title,
            run_id: parts.run_id,
            key: parts.key.into(),
            uses: parts.uses,
            evaluator: parts.evaluator,
            scores: None,
            place: parts.place,
            subject: parts.subject,
            space: Arc::new(parts.space),
            strategy: Proposer::new(strategy),
            strategy_name: parts.strategy,
            filters,
            seed: parts.seed,
            rotate_bytes: parts.rotate_bytes,
            guess: parts.guess,
            bound: parts.bound,
            records: Arc::new([]),
            similar: OnceCell::new(),
            similar_until: None,
            allowed: options.allowed(),
            reads: options.learn_loops,
            learner: options.learner,
            tolerance: options.tolerance,
            known: VecDeque::new(),
            open: VecDeque::new(),
            state: State::Open,
            best: vec![],
            rank: options.rank,
            in_model: None,
            setup: None,
            asked: 0,
            told: 0,
            spent_ns: 0,
            trials: 0,
            cached: 0,
            unanswered: 0,
            why_unanswered: None,
            lost_batches: 0,
            fruitless: 0,
            since_best: 0,
            failures: BTreeMap::new(),
            history: vec![],
            building: Spent::default(),
            evaluating: Spent::default(),
            skipped: BTreeMap::new(),
            first_cost: None,
            replayed: HashMap::new(),
            earlier: vec![],
            verdicts: Verdicts::new(),
            before: Before::default(),
        })
    }

    /// Whether candidates may be asked for.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Has nobody ask for candidates until [`Search::resume`]. An exhausted search stays so.
    pub fn suspend(&mut self) {
        if self.state == State::Open {
            self.state = State::Suspended;
        }
    }

    /// Ends a suspension.
    pub fn resume(&mut self) {
        if self.state == State::Suspended {
            self.state = State::Open;
        }
    }

    /// How many of the best are ranked alone in any case.
    pub fn finalists(&self) -> usize {
        ranked(self.rank, self.trials as usize)
    }

    /// Points of which filters of points keep one.
    pub fn pool(&self) -> usize {
        let filters = self.filters.iter().filter(|f| f.form() == Form::Point);
        filters.map(|f| f.pool()).max().unwrap_or(1)
    }

    /// Its place in the store.
    pub fn stored_place(&self) -> RecordPlace<'_> {
        RecordPlace {
            task: &self.key,
            target: &self.place.target,
            machine: &self.place.machine,
        }
    }

    /// The least cost so far; none before the first.
    pub fn best_cost(&self) -> Option<f64> {
        self.best.first().map(|b| b.cost)
    }

    /// Cost of one call: the least so far, or else the guess.
    pub fn call_cost(&self) -> f64 {
        self.best_cost().unwrap_or(self.guess)
    }

    /// What the budget knows of it; a trial takes `usual_ns` if none was told. Searches of equal `family` have similar
    /// tasks.
    pub fn standing(&self, usual_ns: f64, weight: f64, family: usize) -> Standing {
        let mean_ns = || self.spent_ns as f64 / self.told as f64;
        let before = self.before;
        let costs = self.best_cost().into_iter().chain(before.best);
        Standing {
            best: costs.reduce(f64::min),
            guess: self.guess,
            bound: self.bound,
            uses: self.uses,
            weight,
            operations: self.subject.as_ref().map_or(0.0, |s| s.flops),
            family,
            asked: before.asked + self.asked,
            trials: before.trials + self.trials,
            sketches: self.space.sketches.len(),
            since_best: self.since_best,
            trial_ns: if self.told > 0 { mean_ns() } else { usual_ns },
            open: self.is_open(),
        }
    }

    /// Puts what filters compare candidates with before all other points.
    fn ask_what_filters_need(&mut self) {
        let needed = self.filters.iter().filter_map(|f| f.first());
        for point in needed.cloned().collect::<Vec<_>>() {
            self.known.retain(|p| *p != point);
            self.known.push_front(point);
        }
    }

    /// # Errors
    /// If records of similar tasks were asked for and could not be read.
    pub fn check_similar(&mut self) -> Result<()> {
        match self.similar.take() {
            Some(Err(e)) => Err(e.into()),
            Some(found) => {
                self.similar = OnceCell::from(found);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The outcome's cost; none if it has none, or one of another kind than the search's first.
    fn cost(&mut self, outcome: &Outcome) -> Option<f64> {
        let cost = outcome.cost()?;
        let first = self.first_cost.get_or_insert_with(|| cost.clone());
        first.compare(&cost).map(|_| cost.value())
    }

    /// Lets the strategy and the filters learn. What an earlier run told them they know.
    pub fn learn(&mut self, point: &Point, outcome: &Outcome) {
        if !self.replayed.contains_key(point) {
            self.tell_strategy(point, outcome);
            self.tell_filters(point, outcome);
        }
    }

    /// Lets the strategy learn; the cost that it is told.
    pub fn tell_strategy(&mut self, point: &Point, outcome: &Outcome) -> Option<f64> {
        let cost = self.cost(outcome);
        self.strategy.tell(&Told {
            point,
            outcome,
            cost,
        });
        cost
    }

    /// Lets the filters learn; what one of them dropped tells them nothing.
    pub fn tell_filters(&mut self, point: &Point, outcome: &Outcome) {
        let cost = self.cost(outcome);
        if !matches!(outcome, Outcome::Skipped { .. }) {
            let told = Told {
                point,
                outcome,
                cost,
            };
            self.filters.iter_mut().for_each(|f| f.tell(&told));
        }
    }

    /// Counts a trial. An unanswered one is none, and a search that gets no answers, as there
    /// is no expected output or no runner, is given up.
    pub fn count(&mut self, outcome: &Outcome) -> bool {
        let answered = !matches!(outcome, Outcome::Unanswered { .. });
        if answered {
            (self.unanswered, self.lost_batches) = (0, 0);
            self.trials += 1;
        } else {
            self.unanswered += 1;
            if self.subject.is_some() && self.unanswered >= MOST_UNANSWERED {
                self.state = State::Exhausted;
            }
        }
        answered
    }

    /// Counts a batch from which answers are missing; whether the search is given up for it.
    pub fn lose_batch(&mut self) -> bool {
        self.lost_batches += 1;
        let given_up = self.lost_batches >= MOST_UNANSWERED;
        if given_up {
            self.state = State::Exhausted;
        }
        given_up
    }

    /// Learns what became of a trial, and keeps it if it is among the best; `fresh` if the
    /// answer is new.
    pub fn tell(&mut self, trial: Trial, outcome: &Outcome, fresh: bool) {
        self.learn(&trial.point, outcome);
        self.told += u64::from(fresh);
        self.since_best += 1;
        let cost = self.cost(outcome);
        if !matches!(outcome, Outcome::Unanswered { .. }) {
            self.history.push((cost, trial.audited));
        }
        let Some(cost) = cost else {
            let label = match outcome.cost() {
                Some(_) => OTHER_KIND,
                None => outcome.label(),
            };
            *self.failures.entry(label.into()).or_default() += u64::from(fresh);
            return;
        };
        // Scores may be negative.
        let improved = |best: f64| match best < 0.0 {
            true => cost < best / BETTER,
            false => cost < BETTER * best,
        };
        if self.best_cost().is_none_or(improved) {
            self.since_best = 0;
        }
        self.keep(Ranked {
            cost,
            alone: false,
            rel_l2: outcome.rel_l2(),
            trial,
        });
    }

    /// Takes the new cost of a trial that was told before: the strategy learns it, and the trial gets the place among
    /// the best that it has now. Filters and the history keep what they were told first.
    pub fn revise(&mut self, trial: Trial, outcome: &Outcome) {
        let Some(cost) = self.cost(outcome) else {
            return;
        };
        self.strategy.revise(&trial.point, cost);
        let own = |b: &Ranked| b.trial.number == trial.number;
        let known = self.best.iter().position(own);
        let new = match known.map(|at| self.best.remove(at)) {
            Some(known) => Ranked { cost, ..known },
            None => Ranked {
                cost,
                alone: false,
                rel_l2: outcome.rel_l2(),
                trial,
            },
        };
        self.keep(new);
    }

    /// Takes the new cost of a candidate that an earlier run asked for. It is not built here, so it is not among the best.
    pub fn revise_earlier(&mut self, point: &Point, cost: f64) {
        self.strategy.revise(point, cost);
        self.replayed.insert(point.clone(), Some(cost));
        self.before.best = self.replayed.values().copied().flatten().reduce(f64::min);
    }

    /// Puts a candidate among the best, unless its code is there; what is
    /// neither among the fastest nor the fastest of its algorithm is dropped.
    fn keep(&mut self, new: Ranked) {
        let kept = KEPT.max(self.finalists());
        if self.best.iter().any(|b| b.is_same(&new)) {
            return;
        }
        let at = self.best.partition_point(|b| b.cost <= new.cost);
        self.best.insert(at, new);
        let mut seen: Vec<String> = Vec::new();
        let mut position = 0;
        self.best.retain(|b| {
            position += 1;
            let first = seen.iter().all(|s| s != b.algorithm());
            if first {
                seen.push(b.algorithm().to_string());
            }
            first || position <= kept
        });
    }
}

/// What a filter may know, of a search's parts. A strategy may know columns, too.
pub fn context<'a>(
    space: &'a Space,
    subject: &'a Option<Subject>,
    known: &'a [Record],
    look_up_similar: &'a dyn Fn() -> &'a [SimilarTask],
) -> Context<'a> {
    let subject = subject.as_ref();
    Context {
        space,
        program: subject.map(|s| &*s.program),
        target: subject.map(|s| &*s.target),
        known,
        columns: None,
        learner: Learner::default(),
        look_up_similar,
    }
}

/// Records of a task that a search starts from, at most.
const KNOWN: usize = 3;

/// The fastest records of a task, which are points of this space.
pub(crate) fn known(
    store: &Store,
    place: &RecordPlace<'_>,
    space: &Space,
    tolerance: f64,
) -> std::result::Result<(Vec<Record>, VecDeque<Point>), StoreError> {
    let (mut records, mut points) = (Vec::new(), VecDeque::new());
    store.fastest_that(place, tolerance, |r| {
        if let Some(p) = point_of(r, space)
            && r.outcome.within(tolerance)
            && !points.contains(&p)
        {
            points.push_back(p);
            records.push(r.clone());
        }
        Ok(points.len() == KNOWN)
    })?;
    Ok((records, points))
}

/// [`similar`], looked up once; nothing where there is no store or it cannot be read.
pub fn similar_once<'a>(
    once: &'a OnceCell<std::result::Result<Similar, StoreError>>,
    store: Option<&Store>,
    wanted: &Wanted<'_>,
) -> &'a [SimilarTask] {
    let look_up = || store.map_or(Ok(Similar::default()), |s| similar(s, wanted));
    let found = once.get_or_init(look_up).as_ref();
    found.map_or(&[], |s| &s.tasks)
}

/// The point that a record's decisions are in a space, if every decision is
/// still the same choice.
fn point_of(r: &Record, space: &Space) -> Option<Point> {
    let sketch = space.sketches.iter().position(|s| s.name == r.algorithm)?;
    let index = |d: &schedule::Decision| {
        let same = |k: &&store::Decision| k.name == d.name && k.cardinality == d.cardinality();
        r.decisions.iter().find(same).map(|k| k.index)
    };
    let decisions = &space.sketches[sketch].decisions;
    let values = decisions.iter().map(index).collect::<Option<Vec<_>>>()?;
    let p = Point { sketch, values };
    space.within_limits(&p).then_some(p)
}

/// What the searches of a plan's tasks have in common.
pub struct OfPlan<'a> {
    pub plan: &'a Plan,
    pub run_id: Arc<str>,
    pub target: &'a Target,
    /// The target of this host, for expected outputs.
    pub host: &'a Target,
    pub place: Arc<AnswerPlace>,
    /// Position of their evaluator in the run.
    pub evaluator: usize,
    pub limits: &'a Limits,
    pub strategy: &'a str,
    pub rotate_bytes: u64,
    /// Earlier runs that the run goes on from, the first one first.
    pub earlier: &'a [String],
}

impl OfPlan<'_> {
    /// A search for every task of the plan that none of these searches is for already,
    /// starting from what the store knows, if there is one; the tasks are put into it. And for every
    /// task the position of its search, the new ones behind the known ones.
    ///
    /// # Errors
    /// If there is no such strategy or filter, or the store cannot be used.
    pub fn searches(
        &self,
        known_searches: &[Search],
        store: Option<&Store>,
        options: &Options,
    ) -> Result<(Vec<Search>, Vec<TaskSearch>)> {
        let uses = self.plan.uses();
        if let Some(store) = store {
            for t in &self.plan.tasks {
                store.put_task(&record::task(t))?;
            }
        }
        let (mut searches, mut of_tasks) = (Vec::new(), Vec::new());
        for (i, t) in self.plan.tasks.iter().enumerate() {
            let uses = uses[i];
            let search = match known_searches.iter().position(|s| self.shares(s, t)) {
                Some(search) => search,
                None => {
                    // What no step has counts like one call, so that it is searched, too.
                    let mut s = self.search(i, t, uses.max(1), options)?;
                    if let Some(store) = store {
                        let (place, tolerance) = (s.stored_place(), options.tolerance);
                        let (records, known) = known(store, &place, &s.space, tolerance)?;
                        (s.records, s.known) = (records.into(), known);
                        s.go_on(store, self.earlier)?;
                    }
                    s.ask_what_filters_need();
                    searches.push(s);
                    known_searches.len() + searches.len() - 1
                }
            };
            of_tasks.push(TaskSearch { search, uses });
        }
        Ok((searches, of_tasks))
    }

    /// Whether a search of another model's task answers for this one, too: it measures the
    /// same, with constants as near.
    fn shares(&self, s: &Search, task: &Task) -> bool {
        let llc = self.target.llc_bytes();
        *s.key == *task.key
            && s.place == self.place
            && s.evaluator == self.evaluator
            && s.strategy_name == self.strategy
            && (s.rotate_bytes > llc) == (self.rotate_bytes > llc)
    }

    fn search(&self, i: usize, t: &Task, uses: usize, options: &Options) -> Result<Search> {
        let target = self.target;
        let seed = options.seed ^ (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let space = searched(&t.program, target, options, seed);
        let peak_factor = search::peak_factor(&t.program, target);
        let inexact = space.sketches.iter().any(|s| !s.exact);
        let parts = SearchParts {
            title: t.title(),
            run_id: self.run_id.clone(),
            key: t.key.clone(),
            uses,
            evaluator: self.evaluator,
            place: self.place.clone(),
            subject: Some(Subject::new(&t.program, target, self.host, t.flops)),
            facts: Some(Arc::new(Facts {
                task: record::task(t),
                target: target_key(target),
                machine: self.place.machine.clone(),
            })),
            strategy: self.strategy.to_string(),
            seed,
            rotate_bytes: self.rotate_bytes,
            guess: t.flops / GUESS_FLOPS_PER_NS + t.bytes / GUESS_BYTES_PER_NS,
            bound: bound_ns(
                t.flops / peak_factor,
                t.bytes,
                inexact,
                self.limits,
                target.threads(),
            ),
            space,
        };
        Search::new(parts, options)
    }
}

impl Subject {
    /// A task's program for a target; expected outputs are computed by code for `host`.
    pub fn new(program: &Program, target: &Target, host: &Target, flops: f64) -> Subject {
        Subject {
            text: ir::text::print(program),
            peak_factor: search::peak_factor(program, target),
            program: Arc::new(program.clone()),
            target: Arc::new(target.clone()),
            host: host.clone(),
            flops,
            data: None,
            oracle_asked: false,
            unchecked: false,
            id: 0,
        }
    }

    /// The schedule that expected outputs are computed by, and what it is built for: this host,
    /// whatever the target, as they are computed here.
    ///
    /// # Errors
    /// If the program has no plain schedule.
    pub fn plain(&self) -> Result<(Candidate, &Target)> {
        let plain = search::fallback(&self.program, &self.host)
            .map_err(|refused| Error::new(refused.to_string()))?;
        Ok((plain, &self.host))
    }

    /// Data that candidates are measured with, now that their oracle is built.
    pub fn make_data(&mut self, oracle: BuiltKernel, seed: u64) {
        self.data = Some(Arc::new(TaskData {
            id: self.id,
            seed,
            args: fills(&self.program),
            oracle,
        }));
    }
}
