//! Choosing by reading: the scores of candidates that nobody runs.
//!
//! Builders read candidates of every task of a plan for as long as they are given, and scores say
//! which of them cost least. So any target will do, on any machine. Nothing is stored: what was
//! read can be read again.

use crate::compile::{Builders, Defaults, Warning, defaults};
use crate::error::Result;
use crate::evaluator::Reading;
use crate::incumbent::{Incumbent, MeasuredOn};
use crate::knobs::{knob, number};
use crate::known::{Requirements, from_memory};
use crate::machine::{Limits, target_key};
use crate::observer::Observer;
use crate::prediction::{DefaultRead, is_learned, point_of_default};
use crate::run::{Log, Run, TaskSearch};
use crate::scorer::Scorer;
use crate::search::{OfPlan, Ranked, Search};
use crate::trial::AnswerPlace;
use crate::workers::Host;
use crate::{Options, StopRule, record};
use analysis::Score;
use ir::Target;
use plan::Plan;
use search::{Candidate, CostModel, Point};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Decision;
use worker::Stop;

/// The default of a task stays unless another candidate is predicted to take less time by this share. A search finds
/// candidates whose predictions err most to their advantage, so the share is above their errors (ADR 0034).
pub const LEAST_GAIN: f64 = 0.08;

/// The share where nothing but scores says what is less.
pub const LEAST_GAIN_OF_SCORES: f64 = 0.15;

/// Candidates of a task that a search measures first, as they are predicted to be the fastest.
const SEEDS: usize = 5;

/// Not the strategy of runs that measure: reading a candidate takes as long as drafting one on a learned model.
const STRATEGY: &str = "evolutionary";

/// Reads candidates of the tasks of plans for one target.
#[derive(Clone, Debug)]
pub struct Chooser<'a> {
    pub host: &'a Host,
    pub target: &'a Target,
    pub requirements: Requirements,
    pub scorer: Scorer,
    /// Who proposes candidates.
    pub strategy: String,
    /// How long candidates of one plan are read, or how many.
    pub stop: StopRule,
    pub seed: u64,
    /// Prefixes of the names of sketches to read; all if there are none.
    pub algorithms: Vec<String>,
    /// Names of filters that judge candidates before their code is made.
    pub filters: Vec<String>,
    /// The machine whose times decide where there are some.
    pub measured: Option<MeasuredOn<'a>>,
    /// Ends the reading early.
    pub interrupt: Stop,
}

/// A candidate and its score, lower is better.
#[derive(Clone, Debug)]
pub struct Scored {
    pub point: Point,
    pub candidate: Candidate,
    /// The point as records have it.
    pub decisions: Vec<Decision>,
    pub score: f64,
    /// The predicted time over the default's: of the trees where they know it, else of the scores. None if the default was
    /// not read.
    pub time_ratio: Option<f64>,
}

/// What was read of a task.
#[derive(Clone, Debug)]
pub struct TaskScores {
    pub default: Candidate,
    /// None if the default was not read, for lack of time.
    pub default_score: Option<f64>,
    /// Candidates that differ, those first that are predicted to take least time.
    pub best: Vec<Scored>,
    /// What the machine has measured whose times decide.
    pub measured: Option<Incumbent>,
    /// The one that is clearly better than the fastest that was measured, or else than the default, if any is.
    pub better: Option<Scored>,
    /// Why the first candidate without a score has none.
    pub unscored: Option<String>,
    /// Candidates that were read, or could not be built.
    pub trials: u64,
    /// That the default is not the one that its template meant.
    pub warnings: Vec<Warning>,
}

impl TaskScores {
    /// The candidate that is clearly better, else the fastest that was measured, else the default.
    pub fn chosen(&self) -> &Candidate {
        match (&self.better, &self.measured) {
            (Some(better), _) => &better.candidate,
            (None, Some(measured)) => &measured.known.candidate,
            (None, None) => &self.default,
        }
    }

    /// The score of [`TaskScores::chosen`].
    pub fn chosen_score(&self) -> Option<f64> {
        match (&self.better, &self.measured) {
            (Some(better), _) => Some(better.score),
            (None, Some(measured)) => {
                let of = measured.among(&self.best);
                of.map(|s| s.score)
            }
            (None, None) => self.default_score,
        }
    }

    /// The candidates for a machine to time, those first that are predicted to be the fastest: at most `most` that it has
    /// not timed, before them the fastest that it has.
    pub fn to_time(&self, most: usize) -> Vec<&Scored> {
        let measured = self.measured.as_ref();
        let first = measured.and_then(|m| m.among(&self.best));
        let is_new = |s: &&Scored| measured.is_none_or(|m| !m.has_timed(s));
        let new = self.best.iter().filter(is_new).take(most);
        first.into_iter().chain(new).collect()
    }
}

impl<'a> Chooser<'a> {
    /// What a run reads before it measures, as its options say, for so long.
    pub fn before(
        host: &'a Host,
        target: &'a Target,
        options: &Options,
        time: Duration,
    ) -> Chooser<'a> {
        let usual = Chooser::new(host, target, options.requirements());
        Chooser {
            scorer: Scorer::of(options, target),
            stop: StopRule::Time(time),
            seed: options.seed,
            algorithms: options.algorithms.clone(),
            interrupt: options.interrupt.clone(),
            ..usual
        }
    }

    /// Of each task of a plan the points that are to be measured first.
    ///
    /// # Errors
    /// As [`Chooser::read`].
    pub fn seeds(&self, plan: &Plan, observer: &mut dyn Observer) -> Result<Vec<Vec<Point>>> {
        let scores = self.read(plan, |_| true, observer)?;
        let first = |s: TaskScores| {
            let best = s.best.into_iter().take(SEEDS);
            best.map(|b| b.point).collect()
        };
        Ok(scores.into_iter().map(first).collect())
    }

    /// With the defaults of [`crate::knobs`], by the usual rates of cycles of the target's usual
    /// processor.
    pub fn new(host: &'a Host, target: &'a Target, requirements: Requirements) -> Chooser<'a> {
        Chooser {
            host,
            target,
            requirements,
            scorer: Scorer::of_cycles(llvm::scoring_cpu(target), Score::USUAL, target),
            strategy: STRATEGY.into(),
            stop: StopRule::Time(Duration::from_secs(10)),
            seed: number(knob("seed")),
            algorithms: vec![],
            filters: vec![],
            measured: None,
            interrupt: Stop::default(),
        }
    }

    /// Reads candidates of the tasks of a plan that are `wanted`, the default first; one result
    /// a task, in their order.
    ///
    /// # Errors
    /// If LLVM has no scheduling model of the processor, a task has no schedule, or builders
    /// cannot be started.
    pub fn read(
        &self,
        plan: &Plan,
        wanted: impl Fn(usize) -> bool,
        observer: &mut dyn Observer,
    ) -> Result<Vec<TaskScores>> {
        self.scorer.check(self.target)?;
        self.scorer.check_tasks(&plan.tasks)?;
        let options = self.options();
        let mut run = Run::new(Log { store: None }, &options)?;
        let place = AnswerPlace {
            target: target_key(self.target).text(),
            machine: self.host.machine.fingerprint(),
        };
        let reading = Reading::new(self.scorer.clone(), place.clone());
        let evaluator = run.add_evaluator(Box::new(reading));
        let of_plan = OfPlan {
            plan,
            run_id: "".into(),
            target: self.target,
            host: &self.host.machine.target(self.target.threads()),
            place: Arc::new(place),
            evaluator,
            // No schedule is known to be the best: bounds are in nanoseconds.
            limits: &Limits {
                peak_gflops: f64::INFINITY,
                read_gb_per_s: f64::INFINITY,
            },
            strategy: &self.strategy,
            rotate_bytes: plan.bytes_between_uses(),
            earlier: &[],
        };
        let (mut searches, of_tasks) = of_plan.searches(&[], None, &options)?;
        let requirements = self.requirements;
        let default = |task| defaults(from_ref(task), self.target, requirements.allowed());
        let defaults = plan
            .tasks
            .iter()
            .map(default)
            .collect::<Result<Vec<Defaults>>>()?;
        for s in &mut searches {
            // All that was read is kept: nothing of it is large.
            s.rank = 1.0;
        }
        for ((task, of_task), default) in plan.tasks.iter().zip(&of_tasks).zip(&defaults) {
            let s = &mut searches[of_task.search];
            let point = point_of_default(&s.space, &task.program, &default.candidates[0]);
            s.known.extend(point);
            if let Some(measured) = &self.measured {
                let tolerance = requirements.tolerance;
                let points = measured.points(&task.key, &s.place.target, &s.space, tolerance)?;
                let new = points.into_iter().filter(|p| !s.known.contains(p));
                let new: Vec<Point> = new.collect();
                s.known.extend(new);
            }
        }
        let measured = match &self.measured {
            Some(on) => on.incumbents(plan, self.target, requirements)?,
            None => vec![None; plan.tasks.len()],
        };
        for (task, of_task) in of_tasks.iter().enumerate() {
            if !wanted(task) {
                searches[of_task.search].suspend();
            }
        }
        run.add_searches(searches);
        let mut builders = Builders::new(&self.host.workers, options.builders)?;
        builders.limit = options.build_limit;
        run.search(Some(&mut builders), observer)?;
        let one = |((of_task, default), measured): ((&TaskSearch, Defaults), _)| {
            self.scores(&run.searches[of_task.search], default, measured)
        };
        let tasks = of_tasks.iter().zip(defaults).zip(measured);
        Ok(tasks.map(one).collect())
    }

    /// What a search found. A candidate that reads exactly like the default stands for it.
    fn scores(&self, s: &Search, mut default: Defaults, measured: Option<Incumbent>) -> TaskScores {
        let is_default = |r: &&Ranked| r.trial.candidate.as_ref() == Some(&default.candidates[0]);
        let of_default = s.best.iter().find(is_default);
        let best = self.ranked(s, of_default);
        TaskScores {
            default_score: of_default.map(|d| d.cost),
            better: self.better(&best, measured.as_ref()).cloned(),
            best,
            measured,
            unscored: s.why_unanswered.clone(),
            trials: s.trials,
            default: default.candidates.remove(0),
            warnings: default.warnings,
        }
    }

    /// The candidates of a search, those first that are predicted to take least time. In the order of their scores if the default was not read.
    fn ranked(&self, s: &Search, default: Option<&Ranked>) -> Vec<Scored> {
        let learned = is_learned(&self.scorer, self.target);
        let read = default.and_then(|d| {
            Some(DefaultRead {
                sketch: d.trial.point.sketch,
                read: d.trial.read.clone()?,
                from_memory: from_memory(s.rotate_bytes, self.target),
            })
        });
        let asked: Vec<_> = s.best.iter().map(|r| r.trial.asked()).collect();
        let ratios: Vec<Option<f64>> = match (learned, &read) {
            (true, Some(read)) => {
                let predicted = read.predict(&asked).into_iter();
                predicted.map(|p| p.ok()).collect()
            }
            (true, None) => vec![None; s.best.len()],
            (false, _) => {
                let ratio = |r: &Ranked| Some(r.cost / default?.cost);
                s.best.iter().map(ratio).collect()
            }
        };
        // What was not replayed is no candidate.
        let scored = |(r, time_ratio): (&Ranked, Option<f64>)| {
            Some(Scored {
                point: r.trial.point.clone(),
                candidate: r.trial.candidate.clone()?,
                decisions: record::decisions(&s.space, &r.trial.point),
                score: r.cost,
                time_ratio,
            })
        };
        let ranked = s.best.iter().zip(ratios);
        let mut all: Vec<Scored> = ranked.filter_map(scored).collect();
        let key = |s: &Scored| s.time_ratio.unwrap_or(f64::INFINITY);
        all.sort_by(|a, b| key(a).total_cmp(&key(b)));
        all
    }

    /// The candidate that is predicted to take clearly less time than the fastest that was measured, or else than the
    /// default. Nothing is compared with a measured one that has no prediction.
    fn better<'s>(&self, best: &'s [Scored], measured: Option<&Incumbent>) -> Option<&'s Scored> {
        let least_gain = match is_learned(&self.scorer, self.target) {
            true => LEAST_GAIN,
            false => LEAST_GAIN_OF_SCORES,
        };
        let (candidate, bar) = match measured {
            None => (best.first()?, 1.0),
            Some(m) => {
                let new = best.iter().find(|s| !m.has_timed(s))?;
                (new, m.among(best)?.time_ratio?)
            }
        };
        let ratio = candidate.time_ratio?;
        (ratio < bar * (1.0 - least_gain)).then_some(candidate)
    }

    fn options(&self) -> Options {
        let (cpus, threads) = (self.host.machine.cpus, self.target.threads());
        let mut options = Options::new(cpus, threads, self.stop);
        options.begun = Instant::now();
        options.interrupt = self.interrupt.clone();
        options.strategy.clone_from(&self.strategy);
        options.accuracy = self.requirements.accuracy;
        options.space = self.requirements.space;
        options.tolerance = self.requirements.tolerance;
        options.seed = self.seed;
        options.algorithms.clone_from(&self.algorithms);
        options.filters.clone_from(&self.filters);
        // Nothing is measured that builders could disturb.
        (options.overlap, options.builders) = (true, cpus);
        options
    }
}
