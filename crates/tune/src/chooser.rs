//! Choosing by reading: the scores of candidates that nobody runs.
//!
//! Builders read candidates of every task of a plan for as long as they are given, and scores say
//! which of them cost least. So any target will do, on any machine. Nothing is stored: what was
//! read can be read again.

use crate::compile::{Builders, Defaults, Warning, defaults};
use crate::error::Result;
use crate::evaluator::Reading;
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
use crate::{Options, StopRule};
use analysis::Score;
use ir::Target;
use plan::Plan;
use search::{Candidate, CostModel, Point};
use std::slice::from_ref;
use std::sync::Arc;
use std::time::{Duration, Instant};
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
    /// Ends the reading early.
    pub interrupt: Stop,
}

/// A candidate and its score, lower is better.
#[derive(Clone, Debug)]
pub struct Scored {
    pub point: Point,
    pub candidate: Candidate,
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
    /// The one that is clearly better than the default, if any is.
    pub better: Option<Scored>,
    /// Why the first candidate without a score has none.
    pub unscored: Option<String>,
    /// Candidates that were read, or could not be built.
    pub trials: u64,
    /// That the default is not the one that its template meant.
    pub warnings: Vec<Warning>,
}

impl TaskScores {
    /// The candidate that is clearly better than the default, else the default.
    pub fn chosen(&self) -> &Candidate {
        self.better.as_ref().map_or(&self.default, |b| &b.candidate)
    }

    /// The score of [`TaskScores::chosen`].
    pub fn chosen_score(&self) -> Option<f64> {
        let better = self.better.as_ref().map(|b| b.score);
        better.or(self.default_score)
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
        }
        for (task, of_task) in of_tasks.iter().enumerate() {
            if !wanted(task) {
                searches[of_task.search].suspend();
            }
        }
        run.add_searches(searches);
        let mut builders = Builders::new(&self.host.workers, options.builders)?;
        builders.limit = options.build_limit;
        run.search(Some(&mut builders), observer)?;
        let one = |(of_task, default): (&TaskSearch, Defaults)| {
            self.scores(&run.searches[of_task.search], default)
        };
        Ok(of_tasks.iter().zip(defaults).map(one).collect())
    }

    /// What a search found. A candidate that reads exactly like the default stands for it.
    fn scores(&self, s: &Search, mut default: Defaults) -> TaskScores {
        let is_default = |r: &&Ranked| r.trial.candidate.as_ref() == Some(&default.candidates[0]);
        let of_default = s.best.iter().find(is_default);
        let best = self.ranked(s, of_default);
        TaskScores {
            default_score: of_default.map(|d| d.cost),
            better: best.first().filter(|b| self.is_better(b)).cloned(),
            best,
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

    /// Whether a candidate is predicted to take clearly less time than the default.
    fn is_better(&self, candidate: &Scored) -> bool {
        let least_gain = match is_learned(&self.scorer, self.target) {
            true => LEAST_GAIN,
            false => LEAST_GAIN_OF_SCORES,
        };
        candidate.time_ratio.is_some_and(|r| r < 1.0 - least_gain)
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
