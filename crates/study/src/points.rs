//! Random points of a task and its default, measured: how far their times are spread, and how
//! well models of cost predict their order.
//!
//! Points are measured one at a time, with nothing beside them. Nothing is stored. A point that failed
//! or took longer than it may ranks with the slowest one, as a search would have paid for it.

use crate::field::{Draw, Drawn, Field};
use crate::measured::Workload;
use analysis::{Features, Score};
use build::{Read, ReadOptions};
use ir::Target;
use learn::{kendall, spearman, top_ratio, top_recall};
use measure::{KernelBatch, Protocol, TaskState};
use plan::Task;
use runtime::BuiltKernel;
use search::{Allowed, Analytic, Asked, Candidate, CostModel, Subject};
use serde::Serialize;
use simulate::Statistics;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::Outcome;
use tune::compile::Builders;
use tune::{Host, MeasureSettings, Observer, Result};

/// Models that predict costs: from the decisions of a point, and from its code.
const ANALYTIC: &str = "analytic";
const STATIC: &str = "static";
pub const MODELS: [&str; 2] = [ANALYTIC, STATIC];

/// Which points are measured, and how.
#[derive(Clone, Debug)]
pub struct PointOptions {
    /// Points of each task that are different kernels, the default with them.
    pub points: usize,
    pub seed: u64,
    pub allowed: Allowed,
    /// Who proposes them, by the name of a strategy.
    pub strategy: &'static str,
    /// Candidates that are measured beside them, the best first, by the keys of tasks.
    pub known: BTreeMap<String, Vec<Candidate>>,
    /// Whether they are timed, for which the target has to run here.
    pub timed: bool,
    /// How often each is timed. A round times all of them, and the next one begins with the first again.
    pub rounds: usize,
    /// Whether they are timed as executables on a board time themselves: constants stay in the caches, and the least
    /// sample counts. Candidates whose two least times differ are in up to [`MOST_ROUNDS`] times as many rounds. A search
    /// has constants come from memory, and takes the median.
    pub as_executables: bool,
    /// Largest relative error (L2) of a kernel's outputs.
    pub tolerance: f64,
    /// Time that a kernel may take to be measured.
    pub limit: Duration,
    pub measure: MeasureSettings,
    /// What is read of each; none to read no code.
    pub read: Option<ReadOptions>,
}

/// Rounds of candidates whose times differ, over the wanted ones.
pub const MOST_ROUNDS: usize = 4;
/// Two least times agree within this factor.
const AGREE: f64 = 1.02;

/// A point, what models predict of it, and its time.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredPoint {
    pub sketch: String,
    /// Of its decisions; none of a known candidate.
    pub values: Vec<u64>,
    /// Whether it was known, and not drawn.
    pub known: bool,
    /// Predicted costs by the names of models. Costs of one model compare.
    pub predicted: BTreeMap<&'static str, f64>,
    /// What the code tells, where it was read.
    pub features: Option<Features>,
    /// What the simulator counted, or why it counted nothing, where it was asked to.
    #[serde(skip)]
    pub statistics: Option<std::result::Result<Statistics, String>>,
    #[serde(skip)]
    pub trace: String,
    #[serde(skip)]
    pub kernel: BuiltKernel,
    /// What reading and simulating it took.
    #[serde(skip)]
    pub read_ns: u64,
    /// The least of the rounds: other programs only add time.
    pub ns: Option<u64>,
    /// The time of each round.
    #[serde(skip)]
    pub rounds_ns: Vec<u64>,
    /// How it failed ([`Outcome::label`]), if it did.
    pub failed: Option<&'static str>,
}

/// The points of a task.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredTask {
    pub program: String,
    pub task: String,
    /// The type of the kernel: the name of its program.
    pub kind: String,
    pub key: String,
    /// In the order in which they were built.
    pub points: Vec<MeasuredPoint>,
    /// The position of the default among them; none if it could not be built.
    pub default: Option<usize>,
    /// Points that are not among these, as they could not be built.
    pub unbuilt: usize,
}

/// Times of random points, in ns, and where among them the default is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub points: usize,
    pub best_ns: u64,
    pub median_ns: u64,
    pub worst_ns: u64,
    pub default_ns: Option<u64>,
    /// From 1 for the best.
    pub default_place: Option<usize>,
}

/// Where points come from, and how many failed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Counts {
    /// The default and random points.
    pub drawn: usize,
    /// Known candidates.
    pub known: usize,
    /// Of both, those that failed or exceeded the limit.
    pub failed: usize,
    /// More points that could not be built.
    pub unbuilt: usize,
}

/// How the costs that a model predicts rank the points that have one. Those that failed take as
/// long as the slowest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    pub model: &'static str,
    pub points: usize,
    pub spearman: Option<f64>,
    pub kendall: Option<f64>,
    /// The share of the `top` fastest that is among as many of least predicted cost.
    pub top: usize,
    pub recall: Option<f64>,
    /// The times of the `top` fastest points over those of the `top` points of least predicted
    /// cost, each summed (Tuna, section 5): 1 where both are the same.
    pub ratio: f64,
    /// The time of the point of least predicted cost over the least time.
    pub chosen_over_best: f64,
}

impl MeasuredTask {
    /// `None` if no point has a time.
    pub fn spread(&self) -> Option<Spread> {
        let mut times: Vec<u64> = self.points.iter().filter_map(|p| p.ns).collect();
        times.sort_unstable();
        let default_ns = self.default.and_then(|at| self.points[at].ns);
        Some(Spread {
            points: times.len(),
            best_ns: *times.first()?,
            median_ns: times[times.len() / 2],
            worst_ns: *times.last()?,
            default_ns,
            default_place: default_ns.map(|d| 1 + times.iter().filter(|t| **t < d).count()),
        })
    }

    pub fn counts(&self) -> Counts {
        let known = self.points.iter().filter(|p| p.known).count();
        Counts {
            drawn: self.points.len() - known,
            known,
            failed: self.points.iter().filter(|p| p.failed.is_some()).count(),
            unbuilt: self.unbuilt,
        }
    }

    /// How a model ranks the points; `None` if no point has a predicted cost of it and a time.
    pub fn prediction(&self, model: &'static str, top: usize) -> Option<Prediction> {
        let worst = self.points.iter().filter_map(|p| p.ns).max()?;
        let time = |p: &MeasuredPoint| p.ns.or(p.failed.map(|_| worst));
        let both = |p: &MeasuredPoint| Some((*p.predicted.get(model)?, time(p)? as f64));
        let (predicted, measured): (Vec<f64>, Vec<f64>) =
            self.points.iter().filter_map(both).unzip();
        let all = predicted.iter().zip(&measured);
        let (_, chosen) = all.min_by(|a, b| a.0.total_cmp(b.0))?;
        let best = measured.iter().copied().fold(f64::INFINITY, f64::min);
        Some(Prediction {
            model,
            points: measured.len(),
            spearman: spearman(&predicted, &measured),
            kendall: kendall(&predicted, &measured),
            top,
            recall: top_recall(&predicted, &measured, top),
            ratio: top_ratio(&predicted, &measured, top),
            chosen_over_best: chosen / best,
        })
    }
}

/// What points are measured with.
pub struct Points<'a> {
    pub host: &'a Host,
    pub target: &'a Target,
    pub options: &'a PointOptions,
    pub observer: &'a mut dyn Observer,
}

impl Points<'_> {
    /// Draws and measures points of every task of the programs.
    ///
    /// # Errors
    /// If nothing of a task can be built, or no runner be set up.
    pub fn measure(&mut self, programs: &[Workload]) -> Result<Vec<MeasuredTask>> {
        let mut builders = Builders::new(&self.host.workers, self.host.machine.cpus)?;
        let all: Vec<(&str, &Task)> = programs
            .iter()
            .flat_map(|p| p.tasks.iter().map(|(task, _)| (&p.name[..], task)))
            .collect();
        let mut done = Vec::new();
        for (i, (program, task)) in all.iter().enumerate() {
            let share = i as f64 / all.len() as f64;
            self.observer.part(share, &task.title());
            done.push(self.task(program, task, &mut builders)?);
        }
        Ok(done)
    }

    fn task(&self, program: &str, task: &Task, builders: &mut Builders) -> Result<MeasuredTask> {
        let o = self.options;
        let draw = Draw {
            candidates: o.points,
            seed: o.seed,
            allowed: o.allowed,
            default: true,
            known: o.known.get(&task.key).cloned().unwrap_or_default(),
            strategy: o.strategy,
            read: o.read.clone(),
        };
        let host = self.host.machine.target(self.target.threads());
        let field = Field::draw(task, self.target, &host, draw, builders)?;
        let times = match self.options.timed {
            true => self.times(&field)?,
            false => vec![Times::default(); field.built.len()],
        };
        let analytic = Analytic(Subject {
            program: &task.program,
            target: self.target,
            space: &field.space,
        });
        let analytic = |d: &Drawn| {
            let point = d.point.as_ref()?;
            let cost = analytic.predict(&[Asked { point, read: None }]).pop()?;
            cost.ok()
        };
        let point = |(i, times): (usize, Times)| {
            let drawn = &field.drawn[i];
            let (read, kernel) = (field.built[i].read.clone(), &field.built[i].kernel);
            let (features, statistics) = match read {
                Some(Read {
                    features,
                    statistics,
                }) => (Some(features), statistics),
                None => (None, None),
            };
            let mut predicted = BTreeMap::new();
            predicted.extend(analytic(drawn).map(|c| (ANALYTIC, c)));
            predicted.extend(features.as_ref().map(|f| (STATIC, Score::USUAL.cycles(f))));
            MeasuredPoint {
                sketch: drawn.candidate.algorithm.clone(),
                values: drawn.point.clone().map_or(vec![], |p| p.values),
                known: drawn.point.is_none(),
                predicted,
                features,
                statistics,
                trace: kernel.schedule.clone(),
                kernel: kernel.clone(),
                read_ns: field.built[i].read_ns,
                ns: times.ns.iter().copied().min(),
                rounds_ns: times.ns,
                failed: times.failed,
            }
        };
        let default = Some(field.space.default_point());
        Ok(MeasuredTask {
            program: program.into(),
            task: task.title(),
            kind: task.program.name.clone(),
            key: task.key.clone(),
            default: field.drawn.iter().position(|d| d.point == default),
            unbuilt: field.unbuilt,
            points: times.into_iter().enumerate().map(point).collect(),
        })
    }

    /// The times of every candidate, or how it failed; one at a time.
    fn times(&self, field: &Field) -> Result<Vec<Times>> {
        let o = self.options;
        let mut protocol = Protocol::new(self.target.threads(), self.target.llc_bytes());
        protocol.tolerance = o.tolerance;
        protocol.limit_ns = o.limit.as_nanos() as u64;
        if o.as_executables {
            // Neighbours disturb a whole round, so more samples of it tell little.
            (protocol.rotate_bytes, protocol.max_samples) = (0, protocol.min_samples);
        }
        let mut devices = o.measure.open(self.host, self.target)?;
        let kernels = field.built.iter().map(|b| Arc::new(b.kernel.clone()));
        let kernels: Vec<_> = kernels.collect();
        let task = Arc::new(field.data.clone());
        let measurer = o.measure.measurer(o.limit);
        let mut all = vec![Times::default(); kernels.len()];
        let mut open: Vec<usize> = (0..kernels.len()).collect();
        let most = if o.as_executables { MOST_ROUNDS } else { 1 };
        for round in 1..=o.rounds * most {
            let batch = KernelBatch {
                task: task.clone(),
                kernels: open.iter().map(|i| kernels[*i].clone()).collect(),
                protocol: protocol.clone(),
                best_ns: None,
                overlap: false,
            };
            let mut state = TaskState::new(&measurer.constants, o.seed);
            let done = measurer.measure(&mut *devices, &batch, open.len(), &mut state, &mut |_| {});
            for (i, m) in open.iter().zip(&done.outcomes) {
                let ns = match &m.outcome {
                    Outcome::Timed { samples_ns, .. } if o.as_executables => {
                        samples_ns.iter().min().copied()
                    }
                    other => other.median_ns(),
                };
                let times = &mut all[*i];
                times.ns.extend(ns);
                times.failed = times.failed.or(failure(&m.outcome));
            }
            if round >= o.rounds {
                open.retain(|i| !all[*i].is_sure());
            }
            if open.is_empty() {
                break;
            }
        }
        Ok(all)
    }
}

/// What became of a candidate in all rounds.
#[derive(Clone, Default)]
struct Times {
    /// Of each round in which it did not fail.
    ns: Vec<u64>,
    failed: Option<&'static str>,
}

impl Times {
    /// Whether another round would hardly find a shorter time.
    fn is_sure(&self) -> bool {
        let mut least = self.ns.clone();
        least.sort_unstable();
        match least[..] {
            [first, second, ..] => second as f64 <= first as f64 * AGREE,
            _ => self.failed.is_some(),
        }
    }
}

/// How a candidate failed by itself.
fn failure(o: &Outcome) -> Option<&'static str> {
    (o.settled() && o.median_ns().is_none()).then(|| o.label())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(points: &[(Option<f64>, Option<u64>)], default: Option<usize>) -> MeasuredTask {
        let point = |(cost, ns): &(Option<f64>, Option<u64>)| MeasuredPoint {
            sketch: "rules.rows".into(),
            values: vec![],
            predicted: cost.map(|c| (STATIC, c)).into_iter().collect(),
            features: None,
            statistics: None,
            trace: String::new(),
            kernel: BuiltKernel::by_hand(vec![], vec![]),
            read_ns: 0,
            known: false,
            ns: *ns,
            rounds_ns: ns.iter().copied().collect(),
            failed: None,
        };
        MeasuredTask {
            program: "p".into(),
            task: "t".into(),
            kind: "t".into(),
            key: "k".into(),
            points: points.iter().map(point).collect(),
            default,
            unbuilt: 0,
        }
    }

    #[test]
    fn the_spread_says_where_the_default_is() {
        let times = [Some(30), Some(10), None, Some(20), Some(90)];
        let points = times.map(|ns| (None, ns));
        let spread = task(&points, Some(3)).spread().unwrap();
        assert_eq!((spread.points, spread.best_ns), (4, 10));
        assert_eq!((spread.median_ns, spread.worst_ns), (30, 90));
        assert_eq!(
            (spread.default_ns, spread.default_place),
            (Some(20), Some(2))
        );
        assert_eq!(task(&points, Some(2)).spread().unwrap().default_place, None);
        assert_eq!(task(&[(None, None)], None).spread(), None);
    }

    #[test]
    fn points_without_a_prediction_or_a_time_do_not_count() {
        let points = [
            (Some(1.0), Some(20)),
            (Some(2.0), Some(10)),
            (Some(3.0), Some(40)),
            (None, Some(5)),
            (Some(0.5), None),
        ];
        let p = task(&points, None).prediction(STATIC, 1).unwrap();
        assert_eq!((p.points, p.recall), (3, Some(0.0)));
        assert_eq!((p.chosen_over_best, p.ratio), (2.0, 0.5));
        assert!((p.spearman.unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(task(&points[3..], None).prediction(STATIC, 1), None);
    }

    #[test]
    fn points_that_failed_rank_with_the_slowest() {
        let points = [
            (Some(2.0), Some(10)),
            (Some(3.0), Some(40)),
            (Some(1.0), None),
        ];
        let mut of = task(&points, None);
        of.points[2].failed = Some("timed_out");
        of.points[1].known = true;
        let p = of.prediction(STATIC, 1).unwrap();
        assert_eq!((p.points, p.chosen_over_best), (3, 4.0));
        let counts = Counts {
            drawn: 2,
            known: 1,
            failed: 1,
            unbuilt: 0,
        };
        assert_eq!(of.counts(), counts);
    }
}
