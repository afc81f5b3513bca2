//! The state of one run: a search for every task, and the budget over them.

use crate::batches::{Ready, Turn, known_states};
use crate::budget::{Standing, next};
use crate::clock::Clock;
use crate::compile::{Builders, fallbacks};
use crate::default_model::Size;
use crate::disturbance::Disturbances;
use crate::error::Result;
use crate::known::{Exactness, Lookup, rotate_bytes};
use crate::machine::{Limits, target_key};
use crate::observer::{Observer, Status};
use crate::report::Report;
use crate::task_search::{KnownPlace, Ranked, Search, searches};
use crate::watch::Watch;
use crate::workers::Host;
use crate::{Budget, Options, record};
use build::Built;
use ir::Target;
use measure::{Batch, Dispatch, Measured, Measurer, Protocol, Spent, death_outcome};
use plan::Plan;
use search::{Candidate, Point};
use std::collections::HashMap;
use std::slice::from_ref;
use std::time::{Duration, Instant};
use store::{CandidateKey, NewEvent, Outcome, Place, Record, Stage, Store, TIMED, Tell, TimeSpent};
use worker::Death;

/// A candidate on its way through a builder.
pub struct Pending {
    pub task: usize,
    pub trial: u64,
    pub point: Point,
    pub candidate: Candidate,
    pub trace: String,
    /// What asking for it took.
    pub search: Spent,
}

pub struct Session<'a> {
    pub plan: &'a Plan,
    pub store: &'a Store,
    pub options: &'a Options,
    pub clock: Clock,
    /// The model's, as its defaults told.
    pub size: Size,
    pub run_id: String,
    pub target: Target,
    pub target_text: String,
    pub machine: String,
    pub toolchain: String,
    pub protocol: Protocol,
    /// Of one thread of the machine.
    pub limits: Limits,
    pub devices: Box<dyn Dispatch<Batch> + Send>,
    pub measurer: Measurer,
    pub searches: Vec<Search>,
    pub disturbances: Disturbances,
    /// Candidates that were built and wait for their batch.
    pub ready: Vec<Ready>,
    pub turn: Turn,
    pub trials: u64,
    pub cached: u64,
    pub worker_cpu_ns: u64,
    pub tuning: Duration,
}

/// What a run was started with, for the store.
fn stored_options(target: &Target, options: &Options) -> serde_json::Value {
    serde_json::json!({
        "threads": target.threads,
        "overlap": options.overlap,
        "builders": options.builders,
        "rotate": options.rotate,
        "measure": options.measure.policy,
        "measure_batch": options.measure.batch(),
        "devices": options.measure.devices,
        "oversubscribe": options.measure.oversubscribe,
        "doppler": options.measure.constants,
        "lose": options.measure.lose,
        "rank": options.rank,
        "drift": options.drift,
        "accuracy": options.accuracy.name(),
        "tolerance": options.tolerance,
    })
}

impl<'a> Session<'a> {
    pub fn new(
        plan: &'a Plan,
        size: Size,
        host: &Host,
        target: &Target,
        store: &'a Store,
        options: &'a Options,
    ) -> Result<Session<'a>> {
        let (machine, clock) = (&host.machine, Clock::new(options.begun, options.budget));
        let started_unix_ms = record::unix_ms().saturating_sub(clock.elapsed().as_millis() as u64);
        let key = target_key(target);
        store.put_target(&key)?;
        store.put_machine(&store::Machine {
            fingerprint: machine.fingerprint(),
            description: machine.description(),
            extra: store::Extra::new(),
        })?;
        let limits = crate::ceiling::limits(machine);
        let known = KnownPlace {
            store,
            target: &key.text(),
            machine: &machine.fingerprint(),
        };
        let mut searches = searches(plan, target, &limits, &known, options)?;
        let settings = options.measure.of_state(options.overlap);
        let mut states = known_states(&known, &plan.name, &settings)?;
        for s in &mut searches {
            if let Some(state) = states.remove(&s.key) {
                s.state = state;
            }
        }
        let mut protocol = Protocol::new(target.threads, target.llc_bytes);
        protocol.tolerance = options.tolerance;
        protocol.limit_ns = options.run_limit.as_nanos() as u64;
        protocol.lose = options.measure.lose;
        let devices = options.measure.open(host, target)?;
        protocol.rotate_bytes = match options.rotate {
            true => rotate_bytes(plan, target, protocol.rotate_bytes),
            false => 0,
        };
        let run_id = format!("{started_unix_ms}-{}-{}", std::process::id(), options.seed);
        store.begin_run(&store::Run {
            run_id: run_id.clone(),
            model: plan.name.clone(),
            options: stored_options(target, options),
            strategy: options.strategy.clone(),
            seed: options.seed,
            started_unix_ms,
            ended_unix_ms: None,
            summary: serde_json::Value::Null,
            extra: store::Extra::new(),
        })?;
        Ok(Session {
            plan,
            store,
            options,
            clock,
            size,
            run_id,
            target: target.clone(),
            target_text: key.text(),
            machine: machine.fingerprint(),
            toolchain: build::toolchain().to_string(),
            protocol,
            limits,
            devices,
            measurer: options.measure.measurer(options.run_limit),
            searches,
            disturbances: Disturbances::default(),
            ready: vec![],
            turn: Turn::default(),
            trials: 0,
            cached: 0,
            worker_cpu_ns: 0,
            tuning: Duration::ZERO,
        })
    }

    /// Runs until the budget is spent or every space is exhausted.
    pub fn run(&mut self, builders: &mut Builders, observer: &mut dyn Observer) -> Result<()> {
        let begin = Instant::now();
        // Without overlap a whole batch is built before any of it is measured;
        // with it the next one is built meanwhile.
        let (ahead, batches) = if self.options.overlap { (1, 2) } else { (4, 1) };
        let mut pending: HashMap<u64, Pending> = HashMap::new();
        let mut oracles: HashMap<u64, usize> = HashMap::new();
        let mut current = 0;
        while !self.spent() {
            // What was begun may take from the ranking, whose time changes with what is found.
            self.end_by(self.clock.end(self.after_ranking()), builders);
            let depth = (self.options.builders * ahead + 2).max(batches * self.turn.size);
            while pending.len() + self.ready.len() < depth
                && !self.enough_asked(pending.len() + self.ready.len())
                && !self.spent()
                && let Some(task) = self.next_asked()
            {
                current = task;
                if let Some(p) = self.ask(task)? {
                    if let Some(id) = self.ask_oracle(task, builders)? {
                        oracles.insert(id, task);
                    }
                    let s = &self.searches[task];
                    let request = builders.request(&s.text, &p.candidate, false);
                    pending.insert(builders.submit(request), p);
                }
            }
            if pending.is_empty() && self.ready.is_empty() {
                break;
            }
            self.show(current, observer);
            let all = pending.len() + oracles.len();
            let least = if self.options.overlap {
                all.min(1)
            } else {
                all
            };
            let mut outcomes = Vec::new();
            while outcomes.len() < least && !self.spent() {
                outcomes.extend(builders.pool.next(Duration::from_millis(200)));
            }
            for o in outcomes {
                if let Some(p) = pending.remove(&o.id) {
                    self.take(p, o)?;
                } else if let Some(task) = oracles.remove(&o.id) {
                    self.take_oracle(task, o);
                }
            }
            while let Some(task) = self.due(&pending)
                && !self.spent()
            {
                self.measure_ready(task, builders)?;
            }
        }
        builders.pool.clear();
        builders.drain();
        self.end_by(None, builders);
        self.tuning = begin.elapsed();
        Ok(())
    }

    /// From here on nothing is built or measured beyond `end`.
    fn end_by(&mut self, end: Option<Instant>, builders: &mut Builders) {
        builders.pool.end_by(end);
        self.measure_until(end);
    }

    /// From here on nothing is measured beyond `end`.
    pub fn measure_until(&mut self, end: Option<Instant>) {
        let now = self.devices.now();
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        self.devices.end_by(end.map(|end| now + left(end)));
    }

    /// Has the plain schedule of a task built, before its first candidate; the request's id.
    fn ask_oracle(&mut self, task: usize, builders: &mut Builders) -> Result<Option<u64>> {
        let s = &mut self.searches[task];
        if std::mem::replace(&mut s.oracle_asked, true) {
            return Ok(None);
        }
        let plain = fallbacks(from_ref(&self.plan.tasks[task]), &self.target)?.remove(0);
        let request = builders.request(&s.text, &plain, false);
        Ok(Some(builders.submit(request)))
    }

    /// What a builder made of a plain schedule.
    fn take_oracle(&mut self, task: usize, o: build::Outcome) {
        let why = match o.result {
            Ok(Ok(built)) => {
                self.searches[task].oracle = Some(built);
                return;
            }
            // The search is over.
            Err(Death::Withdrawn) => return,
            Ok(Err(e)) => format!("{:?}: {}", e.stage, e.reason),
            Err(death) => format!("the builder died: {death:?}"),
        };
        let s = &mut self.searches[task];
        (s.exhausted, s.unchecked) = (true, true);
        let title = &s.title;
        let warning = format!(
            "the plain schedule of {title}, which candidates are compared with, cannot be built: {why}; the task keeps its default"
        );
        self.disturbances.warnings.push(warning);
        self.ready.retain(|r| r.pending.task != task);
    }

    /// What a builder made of a candidate.
    fn take(&mut self, p: Pending, o: build::Outcome) -> Result<()> {
        let spent = Spent {
            wall_ns: o.wall.as_nanos() as u64,
            cpu_ns: o.cpu.as_nanos() as u64,
        };
        let cost = record::time_spent(spent);
        self.worker_cpu_ns += spent.cpu_ns;
        match o.result {
            Ok(_) if self.searches[p.task].unchecked => Ok(()),
            Ok(Ok(built)) => {
                self.ready.push(Ready {
                    pending: p,
                    built,
                    build: cost,
                });
                Ok(())
            }
            Ok(Err(e)) => {
                let reason = format!("{:?}: {}", e.stage, e.reason);
                self.conclude(p, None, Outcome::Rejected { reason }, cost, None)
            }
            // The search is over, and nothing is known of the candidate.
            Err(Death::Withdrawn) => Ok(()),
            Err(death) => self.conclude(p, None, death_outcome(death, Stage::Build), cost, None),
        }
    }

    fn spent(&self) -> bool {
        match self.options.budget {
            Budget::Time(_) => self.clock.left(self.afterwards()).is_zero(),
            Budget::Trials(n) => self.trials >= n,
        }
    }

    /// Whether what is on its way already fills a budget of trials.
    fn enough_asked(&self, pending: usize) -> bool {
        matches!(self.options.budget, Budget::Trials(n) if self.trials + pending as u64 >= n)
    }

    /// The task that is asked next: the one whose turn it is, for as many
    /// candidates as are measured together.
    fn next_asked(&mut self) -> Option<usize> {
        if self.turn.left == 0 || self.searches[self.turn.task].exhausted {
            let task = next(&self.standings())?;
            let size = self.turn_size(task);
            let left = size;
            self.turn = Turn { task, size, left };
        }
        self.turn.left -= 1;
        Some(self.turn.task)
    }

    /// What is known of every task.
    pub fn standings(&self) -> Vec<Standing> {
        let (told, spent_ns) = self
            .searches
            .iter()
            .fold((0, 0), |(n, ns), s| (n + s.told, ns + s.spent_ns));
        let mean_ns = |told: u64, ns: u64| (told > 0).then(|| ns as f64 / told as f64);
        let usual_ns = mean_ns(told, spent_ns).unwrap_or(1.0);
        let standing = |s: &Search| Standing {
            best_ns: s.best.first().map(|b| b.ns as f64),
            guess_ns: s.guess_ns,
            bound_ns: s.bound_ns,
            uses: s.uses,
            asked: s.asked,
            sketches: s.space.sketches.len(),
            since_best: s.since_best,
            trial_ns: mean_ns(s.told, s.spent_ns).unwrap_or(usual_ns),
            exhausted: s.exhausted,
        };
        self.searches.iter().map(standing).collect()
    }

    /// Asks for one candidate; what the store knows is told at once.
    fn ask(&mut self, task: usize) -> Result<Option<Pending>> {
        let watch = Watch::start();
        let s = &mut self.searches[task];
        let point = s.known.pop_front();
        let Some(point) = point.or_else(|| s.strategy.ask(&s.space, 1).pop()) else {
            s.exhausted = true;
            return Ok(None);
        };
        let trial = s.asked;
        s.asked += 1;
        let candidate = match s.space.candidate(&s.program, &point) {
            Ok(c) => c,
            Err(_) => {
                // A sketch that does not fit this program: counted, not built.
                *s.failures.entry("illegal".into()).or_default() += 1;
                s.strategy.tell(&point, None);
                let sketch = s.space.sketches[point.sketch].name.clone();
                self.log(task, &sketch, &point, record::illegal(trial))?;
                return Ok(None);
            }
        };
        let trace = schedule::print(&candidate.trace);
        let key = CandidateKey {
            place: Place {
                task: &s.key,
                target: &self.target_text,
                machine: &self.machine,
            },
            toolchain: &self.toolchain,
            algorithm: &candidate.algorithm,
            trace: &trace,
        };
        // A known time still needs its code, if it is among the best.
        if let Some(known) = self
            .store
            .outcome_of_candidate(&key, self.options.tolerance)?
            && known.outcome.median_ns().is_none()
        {
            self.cached += 1;
            s.strategy.tell(&point, None);
            let told = Tell::of(trial, TIMED, &known.outcome);
            self.log(task, &candidate.algorithm, &point, told)?;
            return Ok(None);
        }
        Ok(Some(Pending {
            task,
            trial,
            point,
            candidate,
            trace,
            search: watch.spent(),
        }))
    }

    /// Logs an ask and its tell where nothing new is recorded.
    pub fn log(&self, task: usize, algorithm: &str, point: &Point, told: Tell) -> Result<()> {
        let events = self.events(task, algorithm, point, told);
        self.store.append(&[], &events)?;
        Ok(())
    }

    fn events(&self, task: usize, algorithm: &str, point: &Point, told: Tell) -> [NewEvent; 2] {
        let key = &self.searches[task].key;
        let asked = record::asked(algorithm, point, told.trial);
        [
            record::event(&self.run_id, key, asked),
            record::event(&self.run_id, key, told),
        ]
    }

    /// Stores an outcome and tells it.
    pub fn conclude(
        &mut self,
        p: Pending,
        built: Option<Built>,
        outcome: Outcome,
        build: TimeSpent,
        measured: Option<Measured>,
    ) -> Result<()> {
        self.worker_cpu_ns += measured.as_ref().map_or(0, |m| m.whole.cpu_ns);
        // What measuring took is its batch's to share.
        self.searches[p.task].spent_ns += p.search.wall_ns + build.wall_ns;
        let r = self.record(&p, built.as_ref(), outcome, build, measured.as_ref(), false);
        let told = Tell::of(p.trial, &r.evaluator, &r.outcome);
        let events = self.events(p.task, &p.candidate.algorithm, &p.point, told);
        self.store.append(std::slice::from_ref(&r), &events)?;
        self.tell(&p, built, &r.outcome, true);
        Ok(())
    }

    /// The record of a candidate; `final_` if it was a finalist, which is asked for
    /// and built once.
    pub fn record(
        &self,
        p: &Pending,
        built: Option<&Built>,
        outcome: Outcome,
        build: TimeSpent,
        measured: Option<&Measured>,
        final_: bool,
    ) -> Record {
        let s = &self.searches[p.task];
        Record {
            run_id: self.run_id.clone(),
            trial: p.trial,
            final_,
            task: s.key.clone(),
            target: self.target_text.clone(),
            machine: self.machine.clone(),
            evaluator: TIMED.into(),
            strategy: self.options.strategy.clone(),
            seed: self.options.seed,
            toolchain: self.toolchain.clone(),
            algorithm: p.candidate.algorithm.clone(),
            decisions: record::decisions(&s.space, &p.point),
            trace: p.trace.clone(),
            code_hash: built.map(|b| record::code_hash(&b.kernel)),
            code_size: built.map(|b| b.kernel.code.len() as u64),
            outcome,
            outcome_extra: store::Extra::new(),
            spent: record::spent_by_stage(p.search, build, measured),
            created_unix_ms: record::unix_ms(),
            extra: store::Extra::new(),
        }
    }

    /// Lets the strategy learn and keeps the best.
    pub fn tell(&mut self, p: &Pending, built: Option<Built>, outcome: &Outcome, fresh: bool) {
        let s = &mut self.searches[p.task];
        let ns = outcome.median_ns();
        s.strategy.tell(&p.point, ns.map(|n| n as f64));
        s.told += u64::from(fresh);
        s.since_best += 1;
        let Some(ns) = ns else {
            *s.failures.entry(outcome.label().into()).or_default() += u64::from(fresh);
            return;
        };
        if s.best
            .first()
            .is_none_or(|b| (ns as f64) < 0.98 * b.ns as f64)
        {
            s.since_best = 0;
        }
        let Some(built) = built else { return };
        s.keep(Ranked {
            ns,
            alone: false,
            rel_l2: outcome.rel_l2(),
            trial: p.trial,
            candidate: p.candidate.clone(),
            point: p.point.clone(),
            built,
        });
    }

    /// Time of the model's kernels, with the best so far.
    pub fn kernels_ns(&self) -> f64 {
        let one = |s: &Search| s.best.first().map_or(0.0, |b| b.ns as f64);
        self.searches.iter().map(|s| one(s) * s.uses as f64).sum()
    }

    /// The best code of every task; `otherwise` where nothing was measured.
    pub fn best_kernels(&self, otherwise: &[Built]) -> Vec<Built> {
        let pick = |(s, o): (&Search, &Built)| s.best.first().map_or(o, |b| &b.built).clone();
        self.searches.iter().zip(otherwise).map(pick).collect()
    }

    /// What tasks run where this run measured nothing of them: the best that the store
    /// knows, as far as there is time to build that, else their defaults. What another compiler
    /// built may no longer build; that is no reason to end here.
    pub fn known_or(&self, defaults: &[Built], builders: &mut Builders) -> Result<Vec<Built>> {
        let exactness = Exactness {
            accuracy: self.options.accuracy,
            tolerance: self.options.tolerance,
        };
        let (target, machine) = (&self.target, &self.machine);
        let lookup = Lookup::new(self.store, self.plan, target, machine, exactness);
        let mut tasks: HashMap<u64, usize> = HashMap::new();
        builders.pool.end_by(self.clock.end(self.finishing()));
        for (i, task) in self.plan.tasks.iter().enumerate() {
            let s = &self.searches[i];
            if s.best.is_empty()
                && let Some(k) = lookup.best(task)?
            {
                let request = builders.request(&s.text, &k.candidate, false);
                tasks.insert(builders.submit(request), i);
            }
        }
        let mut kernels = defaults.to_vec();
        while let Some(o) = builders.pool.next(builders.limit * 2) {
            if let (Some(i), Ok(Ok(built))) = (tasks.get(&o.id), o.result) {
                kernels[*i] = built;
            }
        }
        builders.pool.end_by(None);
        Ok(kernels)
    }

    /// Whether the kernels are not all the same code.
    pub fn differ(&self, some: &[Built], others: &[Built]) -> bool {
        let code = |b: &Built| b.kernel.code_hash();
        some.iter().zip(others).any(|(a, b)| code(a) != code(b))
    }

    fn show(&self, task: usize, observer: &mut dyn Observer) {
        let elapsed = self.clock.elapsed();
        let (spent, left) = match self.options.budget {
            Budget::Time(t) => {
                let left = t.saturating_sub(elapsed);
                (elapsed.as_secs_f64() / t.as_secs_f64(), Some(left))
            }
            Budget::Trials(n) => (self.trials as f64 / n.max(1) as f64, None),
        };
        let s = &self.searches[task];
        observer.status(&Status {
            spent,
            left,
            trials: self.trials,
            trials_per_s: self.trials as f64 / elapsed.as_secs_f64(),
            failures: self.searches.iter().flat_map(|s| s.failures.values()).sum(),
            model_ms: self.kernels_ns() / 1e6,
            task: &s.title,
            task_best_ms: s.best.first().map(|b| b.ns as f64 / 1e6),
        });
    }

    /// Marks the run as ended.
    pub fn end(&self, report: &mut Report) -> Result<()> {
        report.wall_s = self.clock.elapsed().as_secs_f64();
        let summary = serde_json::to_value(report).unwrap_or_default();
        self.store
            .end_run(&self.run_id, record::unix_ms(), &summary)?;
        Ok(())
    }
}
