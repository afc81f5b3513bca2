//! Static scores against recorded times: what `study rank --json` wrote, ranked again.
//!
//! The fitted scores learn from the points of all programs but one, and are judged on that one. The
//! default score has fixed rates.

use crate::halide;
use analysis::{Busy, Class, Features, Limits, RATIOS, Score, ratios};
use learn::{
    Examples, Network, Objective, Training, TreeSettings, Trees, non_negative_least_squares,
    spearman, top_ratio,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tune::chooser::{LEAST_GAIN, LEAST_GAIN_OF_SCORES};
use tune::{Error, Result};

/// The tasks of one file of `study rank --json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Ranked {
    #[serde(default)]
    study: Header,
    tasks: Vec<RankedTask>,
}

/// What a file says of itself.
#[derive(Clone, Debug, Default, Deserialize)]
struct Header {
    /// The machine that the points were measured on ([`tune::machine::Machine::description`]).
    machine: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct RankedTask {
    task: Task,
}

#[derive(Clone, Debug, Deserialize)]
struct Task {
    program: String,
    kind: String,
    default: Option<usize>,
    /// Whether constants came from memory.
    #[serde(default)]
    from_memory: bool,
    points: Vec<Point>,
}

#[derive(Clone, Debug, Deserialize)]
struct Point {
    #[serde(default)]
    sketch: String,
    features: Option<Features>,
    ns: Option<u64>,
    /// How it failed.
    #[serde(default)]
    failed: Option<String>,
}

/// A task whose points have features and times.
pub struct Judged {
    pub program: String,
    /// Of operator: the name of the task's program.
    pub kind: String,
    pub(crate) features: Vec<Features>,
    /// The names of their sketches.
    sketches: Vec<String>,
    pub(crate) ns: Vec<f64>,
    /// The position of the default among them.
    default: Option<usize>,
    /// Whether constants came from memory.
    from_memory: bool,
    /// The machine that the points were measured on, where the file names it.
    pub machine: Option<String>,
}

/// Fewest points of a task that ranks are computed of.
pub const FEWEST: usize = 12;
/// Times the least time, what is near it.
pub const NEAR: f64 = 1.02;
/// The clock that fitted rates are scaled by, so that scores read as cycles.
pub const GHZ: f64 = 3.4;

impl Judged {
    /// Whether ranks can be computed of its points.
    pub fn has_enough(&self) -> bool {
        self.ns.len() >= FEWEST
    }

    /// Points that were read and timed (in ns), of which none is known to be the default.
    pub fn new(program: String, kind: String, points: Vec<(Features, u64)>) -> Judged {
        let (features, ns): (Vec<_>, Vec<_>) =
            points.into_iter().map(|(f, ns)| (f, ns as f64)).unzip();
        Judged {
            program,
            kind,
            sketches: vec![String::new(); ns.len()],
            features,
            ns,
            default: None,
            from_memory: false,
            machine: None,
        }
    }
}

/// Reads a file of `study rank --json`. Tasks with one point are left out. A point that failed takes
/// as long as the slowest of its task.
///
/// # Errors
/// If it is no such file.
pub fn read(json: &str) -> Result<Vec<Judged>> {
    let ranked: Ranked = serde_json::from_str(json).map_err(|e| {
        Error::new(format!("no points can be read of it: {e}"))
            .help("give what `study rank ... --json` prints")
    })?;
    let machine = ranked.study.machine;
    let judged = |t: RankedTask| {
        let worst = t.task.points.iter().filter_map(|p| p.ns).max();
        let mut j = Judged {
            program: t.task.program,
            kind: t.task.kind,
            features: vec![],
            sketches: vec![],
            ns: vec![],
            default: None,
            from_memory: t.task.from_memory,
            machine: machine.clone(),
        };
        for (i, p) in t.task.points.into_iter().enumerate() {
            let ns = p.ns.or(worst.filter(|_| p.failed.is_some()));
            if let (Some(f), Some(ns)) = (p.features, ns)
                && f.machine.is_some()
            {
                if t.task.default == Some(i) {
                    j.default = Some(j.ns.len());
                }
                j.features.push(f);
                j.sketches.push(p.sketch);
                j.ns.push(ns as f64);
            }
        }
        j
    };
    let all = ranked.tasks.into_iter().map(judged);
    Ok(all.filter(|j| j.ns.len() > 1).collect())
}

/// How a score ranks the points of one task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    pub program: String,
    pub kind: String,
    pub points: usize,
    pub spearman: f64,
    /// Times of the fastest 10 and 50 points over those of the 10 and 50 of least score.
    pub ratio_10: f64,
    pub ratio_50: f64,
    /// The best of the first 10 over the best of all.
    pub best_of_10: f64,
    /// The first choice over the best of all.
    pub first: f64,
    /// Points that are measured in the order of their scores until one takes at most [`NEAR`] times the least time.
    pub until_near: usize,
    /// The default over what is chosen: the first choice if its score is less than the default's by
    /// [`tune::chooser::LEAST_GAIN`] or [`LEAST_GAIN_OF_SCORES`], else the default.
    pub gain: Option<f64>,
}

/// A score's judgements, one a task.
#[derive(Clone, Debug, Serialize)]
pub struct Scored {
    pub score: String,
    pub tasks: Vec<Judgement>,
}

impl Scored {
    /// The mean of a figure over the tasks.
    pub fn mean(&self, of: impl Fn(&Judgement) -> f64) -> f64 {
        self.tasks.iter().map(of).sum::<f64>() / self.tasks.len().max(1) as f64
    }

    /// The geometric mean of a ratio.
    pub fn geometric(&self, of: impl Fn(&Judgement) -> f64) -> f64 {
        self.mean(|j| of(j).ln()).exp()
    }

    /// Whether this score ranks no worse than another, by the rank correlation and by the ratio of 10.
    pub fn ranks_no_worse(&self, other: &Scored) -> bool {
        let figures: [fn(&Judgement) -> f64; 2] = [|j| j.spearman, |j| j.ratio_10];
        figures.iter().all(|of| self.mean(of) >= other.mean(of))
    }

    /// Tasks of which the best of the first 10 is within 5% of the best.
    pub fn within_5(&self) -> usize {
        self.tasks.iter().filter(|j| j.best_of_10 <= 1.05).count()
    }

    /// The same score's judgements of each kind of operator, by the names of kinds.
    pub fn by_kind(&self) -> Vec<Scored> {
        let mut kinds: BTreeMap<&str, Vec<Judgement>> = BTreeMap::new();
        for j in &self.tasks {
            kinds.entry(&j.kind).or_default().push(j.clone());
        }
        let one = |(kind, tasks): (&str, Vec<Judgement>)| Scored {
            score: kind.into(),
            tasks,
        };
        kinds.into_iter().map(one).collect()
    }
}

fn judgement(task: &Judged, scores: &[f64]) -> Judgement {
    judgement_with(task, scores, LEAST_GAIN_OF_SCORES)
}

/// As [`judgement`], where a choice has to be better than the default by a share.
fn judgement_with(task: &Judged, scores: &[f64], least_gain: f64) -> Judgement {
    let best = task.ns.iter().copied().fold(f64::INFINITY, f64::min);
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    let first = order[0];
    let of_10 = order.iter().take(10).map(|i| task.ns[*i]);
    let gain = task.default.map(|d| {
        let better = scores[first] < (1.0 - least_gain) * scores[d];
        if better {
            task.ns[d] / task.ns[first]
        } else {
            1.0
        }
    });
    Judgement {
        program: task.program.clone(),
        kind: task.kind.clone(),
        points: task.ns.len(),
        spearman: spearman(scores, &task.ns).unwrap_or(0.0),
        ratio_10: top_ratio(scores, &task.ns, 10),
        ratio_50: top_ratio(scores, &task.ns, 50),
        best_of_10: of_10.fold(f64::INFINITY, f64::min) / best,
        first: task.ns[first] / best,
        until_near: order
            .iter()
            .take_while(|i| task.ns[**i] > NEAR * best)
            .count()
            + 1,
        gain,
    }
}

/// The features of the paper's linear score: instructions of each class, lines that move, and the cycles
/// of blocks alone.
fn papers(f: &Features) -> Vec<f64> {
    let m = f.machine.clone().unwrap_or_default();
    let classes = Class::ALL.map(|c| m.of_class(c));
    classes
        .into_iter()
        .chain(f.lines)
        .chain([m.alone])
        .collect()
}

/// The features of the default score.
fn own(f: &Features) -> Vec<f64> {
    let m = f.machine.clone().unwrap_or_default();
    let machine = [m.repeated, m.alone, m.loads, m.spills];
    machine
        .into_iter()
        .chain(f.lines)
        .chain([f.pages, f.page_visits, f.crowded, f.forks])
        .collect()
}

/// All that is read.
fn all(f: &Features) -> Vec<f64> {
    let m = f.machine.clone().unwrap_or_default();
    papers(f)
        .into_iter()
        .chain(own(f))
        .chain([m.stores])
        .collect()
}

/// Least squares of latencies, each divided by itself (Tuna, section 3): a factor a feature.
fn factors(features: fn(&Features) -> Vec<f64>, train: &[&Judged]) -> Result<Vec<f64>> {
    let mut rows = Vec::new();
    for t in train {
        for (f, ns) in t.features.iter().zip(&t.ns) {
            rows.push(features(f).into_iter().map(|v| v / ns).collect());
        }
    }
    let ones = vec![1.0; rows.len()];
    non_negative_least_squares(&rows, &ones).map_err(|e| Error::new(e.to_string()))
}

fn linear(
    features: fn(&Features) -> Vec<f64>,
    train: &[&Judged],
) -> Result<impl Fn(&Features) -> f64 + use<>> {
    let factors = factors(features, train)?;
    Ok(move |f: &Features| features(f).iter().zip(&factors).map(|(v, a)| v * a).sum())
}

/// The rates of the default score that fit these tasks best, in cycles of so many GHz. A count that no point
/// has keeps its usual rate. So do two rates that a fit may say nothing of: that of forks, of which tasks
/// of one thread have none, and that of the last-level cache, which holds most tasks whole.
///
/// # Errors
/// If there are no points.
pub fn fitted(tasks: &[Judged], ghz: f64) -> Result<Score> {
    fit(&tasks.iter().collect::<Vec<_>>(), ghz)
}

fn fit(tasks: &[&Judged], ghz: f64) -> Result<Score> {
    let of = factors(own, tasks)?;
    let mut counted = vec![false; of.len()];
    for f in tasks.iter().flat_map(|t| &t.features) {
        let counts = own(f).into_iter();
        counted
            .iter_mut()
            .zip(counts)
            .for_each(|(c, n)| *c |= n > 0.0);
    }
    let rate = |at: usize, usual: f64| match counted[at] {
        true => of[at] * ghz,
        false => usual,
    };
    let or_usual = |at: usize, usual: f64| match rate(at, usual) {
        0.0 => usual,
        fitted => fitted,
    };
    let usual = Score::USUAL;
    Ok(Score {
        repeated: rate(0, usual.repeated),
        alone: rate(1, usual.alone),
        load: rate(2, usual.load),
        spill: rate(3, usual.spill),
        line: [
            rate(4, usual.line[0]),
            rate(5, usual.line[1]),
            or_usual(6, usual.line[2]),
        ],
        page: rate(7, usual.page),
        page_visit: rate(8, usual.page_visit),
        crowded: rate(9, usual.crowded),
        fork: or_usual(10, usual.fork),
    })
}

/// How given rates rank the points of tasks.
pub fn by_rates(name: &str, rates: &Score, tasks: &[Judged]) -> Scored {
    let of = |t: &Judged| judgement(t, &of_points(t, |f| rates.cycles(f)));
    Scored {
        score: name.into(),
        tasks: tasks.iter().map(of).collect(),
    }
}

/// How a machine's measured limits rank the points of tasks, if everything overlaps and if nothing does.
pub fn by_limits(limits: &Limits, tasks: &[Judged]) -> [Scored; 2] {
    let scored = |name: &str, time: fn(&Busy) -> f64| {
        let of = |t: &Judged| judgement(t, &of_points(t, |f| time(&limits.busy(f))));
        Scored {
            score: format!("doctor's rates, {name}"),
            tasks: tasks.iter().map(of).collect(),
        }
    };
    [scored("roofline", Busy::longest), scored("sum", Busy::sum)]
}

/// How rates that are fitted on all other tasks rank the points of each; none if all points are of
/// one program.
///
/// # Errors
/// If rates cannot be fitted.
pub fn left_out(name: &str, tasks: &[Judged]) -> Result<Option<Scored>> {
    if tasks.iter().all(|t| t.program == tasks[0].program) {
        return Ok(None);
    }
    let one = |t: &Judged| {
        let others = tasks.iter().filter(|o| o.program != t.program);
        let rates = fit(&others.collect::<Vec<_>>(), GHZ)?;
        Ok(judgement(t, &of_points(t, |f| rates.cycles(f))))
    };
    Ok(Some(Scored {
        score: name.into(),
        tasks: tasks.iter().map(one).collect::<Result<_>>()?,
    }))
}

/// A network of the logarithms of all features.
fn network(train: &[&Judged]) -> Result<impl Fn(&Features) -> f64 + use<>> {
    let logarithms = |f: &Features| {
        all(f)
            .into_iter()
            .map(|v| (1.0 + v).ln())
            .collect::<Vec<_>>()
    };
    let (mut rows, mut y) = (Vec::new(), Vec::new());
    for t in train {
        for (f, ns) in t.features.iter().zip(&t.ns) {
            rows.push(logarithms(f));
            y.push(ns.ln());
        }
    }
    let training = Training {
        hidden: vec![32, 32],
        epochs: 60,
        batch: 32,
        rate: 1e-3,
        seed: 1,
    };
    let network = Network::trained(&rows, &y, &training).map_err(|e| Error::new(e.to_string()))?;
    Ok(move |f: &Features| network.predict(&logarithms(f)))
}

/// Trees of the times of points over that of their task's default ([`tune::time_ratio`]). What takes long weighs less: no
/// choice depends on how slow it is.
///
/// # Errors
/// If no task has a default among its points.
fn time_ratios(tasks: &[&Judged]) -> Result<Trees> {
    let (mut rows, mut y, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for t in tasks {
        for (i, row) in t.ratios().into_iter().enumerate() {
            let Some((row, default)) = row.zip(t.default) else {
                continue;
            };
            let log = (t.ns[i] / t.ns[default]).ln();
            rows.push(row);
            y.push(log.clamp(-1.0, 1.0));
            weights.push((-2.0 * log.clamp(0.0, 2.0)).exp() / (t.ns.len() as f64).sqrt());
        }
    }
    let settings = TreeSettings {
        rounds: 150,
        row_share: 0.5,
        column_share: 0.4,
        lambda: 1.0,
        min_child_weight: 1.0,
        ..TreeSettings::simulators(Objective::SquaredError, 1)
    };
    let examples = Examples {
        weights: Some(&weights),
        ..Examples::of(&rows, &y)
    };
    Trees::fitted(&examples, &settings).map_err(|e| Error::new(e.to_string()))
}

/// The text of [`time_ratios`] of all tasks, as [`tune::time_ratio`] has it.
///
/// # Errors
/// As [`time_ratios`].
pub fn saved_time_ratios(tasks: &[Judged]) -> Result<String> {
    let trees = time_ratios(&tasks.iter().collect::<Vec<_>>())?;
    Ok(learn::save(&trees, RATIOS))
}

impl Judged {
    /// Every point against the default: [`analysis::ratios`].
    fn ratios(&self) -> Vec<Option<Vec<f64>>> {
        let against = |(f, sketch): (&Features, &String)| {
            let d = self.default?;
            ratios(
                f,
                &self.features[d],
                self.from_memory,
                *sketch == self.sketches[d],
            )
        };
        self.features
            .iter()
            .zip(&self.sketches)
            .map(against)
            .collect()
    }
}

/// How such trees, made without a task's program, rank its points; of tasks whose default is among the points.
fn by_time_ratios(tasks: &[Judged]) -> Result<Scored> {
    let one = |t: &Judged| {
        let others = tasks.iter().filter(|o| o.program != t.program);
        let trees = time_ratios(&others.collect::<Vec<_>>())?;
        let predicted = t.ratios().into_iter();
        let predicted = predicted.map(|r| r.map_or(1.0, |r| trees.predict(&r).exp()));
        Ok(judgement_with(
            t,
            &predicted.collect::<Vec<_>>(),
            LEAST_GAIN,
        ))
    };
    let with_default = tasks.iter().filter(|t| t.default.is_some());
    Ok(Scored {
        score: "trees, times over the default's".into(),
        tasks: with_default.map(one).collect::<Result<_>>()?,
    })
}

/// Scores of every point of a task.
fn of_points(task: &Judged, score: impl Fn(&Features) -> f64) -> Vec<f64> {
    task.features.iter().map(score).collect()
}

/// Scores of the points of a task, by what is fitted on other tasks.
type Fit = fn(&[&Judged], &Judged) -> Result<Vec<f64>>;

/// The default score, and the same without one of its parts.
fn fixed() -> [(&'static str, Score); 8] {
    let usual = Score::USUAL;
    [
        ("default", usual),
        (
            "without lines",
            Score {
                line: [0.0; 3],
                ..usual
            },
        ),
        ("without pages", Score { page: 0.0, ..usual }),
        (
            "without visits of pages",
            Score {
                page_visit: 0.0,
                ..usual
            },
        ),
        (
            "without crowded sets",
            Score {
                crowded: 0.0,
                ..usual
            },
        ),
        ("without loads", Score { load: 0.0, ..usual }),
        (
            "without spills",
            Score {
                spill: 0.0,
                ..usual
            },
        ),
        (
            "blocks alone",
            Score {
                repeated: 0.0,
                alone: usual.repeated,
                ..usual
            },
        ),
    ]
}

/// The default score, the same without one of its parts, and scores that are fitted on all tasks
/// but the one that they are judged on.
///
/// # Errors
/// If there is no task, or a score cannot be fitted.
pub fn judge(tasks: &[Judged]) -> Result<Vec<Scored>> {
    if tasks.is_empty() {
        return Err(Error::new(format!(
            "no task has {FEWEST} points with features and times"
        )));
    }
    let mut found = Vec::new();
    for (name, score) in fixed() {
        found.push(by_rates(name, &score, tasks));
    }
    let fitted: [(&str, Fit); 5] = [
        ("linear, the default's features", |train, t| {
            Ok(of_points(t, linear(own, train)?))
        }),
        ("linear, the paper's features", |train, t| {
            Ok(of_points(t, linear(papers, train)?))
        }),
        ("linear, all features", |train, t| {
            Ok(of_points(t, linear(all, train)?))
        }),
        ("Halide's form", |train, t| {
            Ok(of_points(t, halide::trained(train)?))
        }),
        ("network, all features", |train, t| {
            Ok(of_points(t, network(train)?))
        }),
    ];
    // Nothing is left to learn from where all points are of one program.
    if tasks.iter().all(|t| t.program == tasks[0].program) {
        return Ok(found);
    }
    for (name, fit) in fitted {
        let one = |t: &Judged| {
            let others = tasks.iter().filter(|o| o.program != t.program);
            let train: Vec<&Judged> = others.collect();
            Ok(judgement(t, &fit(&train, t)?))
        };
        found.push(Scored {
            score: name.into(),
            tasks: tasks.iter().map(one).collect::<Result<_>>()?,
        });
    }
    if tasks.iter().any(|t| t.default.is_some()) {
        found.push(by_time_ratios(tasks)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::MachineFeatures;

    /// Points whose times are so many cycles times `scale`, in another order than the lines.
    fn task(scale: f64) -> Judged {
        let cycles: Vec<f64> = (1..=20).map(|i| 100.0 * f64::from(i)).collect();
        let features = cycles.iter().map(|c| Features {
            lines: [2000.0 - c, 0.0, 0.0],
            machine: Some(MachineFeatures {
                alone: 3000.0 - c,
                repeated: *c,
                classes: vec![1.0; Class::ALL.len()],
                ..MachineFeatures::default()
            }),
            ..Features::default()
        });
        Judged {
            program: "p".into(),
            kind: "k".into(),
            features: features.collect(),
            sketches: vec!["s".into(); 20],
            from_memory: false,
            machine: None,
            ns: cycles.iter().map(|c| scale * c).collect(),
            default: Some(10),
        }
    }

    #[test]
    fn a_judgement_compares_choices_with_the_best_and_the_default() {
        let t = task(1.0);
        let j = judgement(&t, &of_points(&t, |f| f.machine.as_ref().unwrap().repeated));
        assert_eq!(
            (j.spearman, j.ratio_10, j.first, j.best_of_10),
            (1.0, 1.0, 1.0, 1.0)
        );
        assert_eq!((j.gain, j.until_near), (Some(11.0), 1));
        let worst = judgement(
            &t,
            &of_points(&t, |f| -f.machine.as_ref().unwrap().repeated),
        );
        assert_eq!((worst.spearman, worst.first), (-1.0, 20.0));
        assert_eq!(worst.until_near, 20);
        assert_eq!(worst.gain, Some(11.0 / 20.0));
    }

    #[test]
    fn fitted_scores_find_what_times_follow_on_a_task_that_they_have_not_seen() {
        let named = |name: &str| Judged {
            program: name.into(),
            ..task(1.0)
        };
        let tasks = ["a", "b", "c"].map(named);
        let all = judge(&tasks).unwrap();
        let of = |name: &str| all.iter().find(|s| s.score == name).unwrap();
        assert!(of("linear, all features").mean(|j| j.spearman) > 0.99);
        assert!(of("Halide's form").mean(|j| j.spearman) > 0.99);
        assert!(of("blocks alone").mean(|j| j.spearman) < 0.0);
        let limits = Limits::of(1.0, [64.0; 4], 64.0, 0.0);
        // Lines take less time than cycles in most points, and both together are the same in all.
        let [longest, sum] = by_limits(&limits, &tasks);
        assert!(longest.mean(|j| j.spearman) > 0.0, "{longest:?}");
        assert!(sum.mean(|j| j.spearman.abs()) < 0.01, "{sum:?}");
        assert!(judge(&[]).is_err());
    }

    #[test]
    fn fitted_rates_are_judged_on_tasks_that_were_left_out() {
        let named = |name: &str| Judged {
            program: name.into(),
            ..task(2.0)
        };
        let tasks = ["a", "b"].map(named);
        let rates = fitted(&tasks, GHZ).unwrap();
        assert!((rates.repeated - 2.0 * GHZ).abs() < 1e-6, "{rates:?}");
        assert!(rates.line[0] + rates.alone < 1e-6, "{rates:?}");
        // No point says anything of spills, pages and forks.
        let usual = Score::USUAL;
        let kept = (rates.spill, rates.page, rates.fork);
        assert_eq!(kept, (usual.spill, usual.page, usual.fork));
        let others = left_out("fitted", &tasks).unwrap().unwrap();
        assert!(others.mean(|j| j.spearman) > 0.99);
        let worse = Score {
            repeated: 0.0,
            ..Score::USUAL
        };
        let worse = by_rates("lines alone", &worse, &tasks);
        assert!(others.ranks_no_worse(&worse) && !worse.ranks_no_worse(&others));
        assert!(left_out("fitted", &tasks[..1]).unwrap().is_none());
    }

    #[test]
    fn trees_rank_the_points_of_a_program_that_they_do_not_know() {
        let of = |i: u32| Judged {
            program: i.to_string(),
            ..task(f64::from(1 + i))
        };
        let tasks: Vec<Judged> = (0..8).map(of).collect();
        let scored = by_time_ratios(&tasks).unwrap();
        assert!(scored.mean(|j| j.spearman) > 0.8, "{scored:?}");
        assert!(scored.geometric(|j| j.gain.unwrap()) > 1.0, "{scored:?}");
        assert_eq!(
            saved_time_ratios(&tasks).unwrap(),
            saved_time_ratios(&tasks).unwrap()
        );
        let unknown = |t: Judged| Judged { default: None, ..t };
        let unknown: Vec<Judged> = tasks.into_iter().map(unknown).collect();
        assert!(saved_time_ratios(&unknown).is_err());
    }

    #[test]
    fn kinds_have_the_judgements_of_their_tasks() {
        let of = |kind: &str| Judged {
            kind: kind.into(),
            ..task(1.0)
        };
        let tasks = ["pool", "conv", "pool"].map(of);
        let all = by_rates("usual", &Score::USUAL, &tasks);
        let kinds = all.by_kind();
        let found: Vec<_> = kinds
            .iter()
            .map(|k| (&k.score[..], k.tasks.len()))
            .collect();
        assert_eq!(found, [("conv", 1), ("pool", 2)]);
    }

    #[test]
    fn a_point_that_failed_is_read_as_the_slowest() {
        let of_task = task(1.0);
        let mut points = Vec::new();
        for (i, f) in of_task.features.iter().enumerate() {
            points.push(match i {
                0 => serde_json::json!({ "features": f, "ns": null, "failed": "timed_out" }),
                1 => serde_json::json!({ "features": f, "ns": null }),
                _ => serde_json::json!({ "features": f, "ns": 10 * i }),
            });
        }
        let task = serde_json::json!({
            "program": "p", "kind": "k", "default": 2, "points": points
        });
        let file = serde_json::json!({ "tasks": [{ "task": task }] });
        let read = &read(&file.to_string()).unwrap()[0];
        assert_eq!(
            (read.ns.len(), read.ns[0], read.default),
            (19, 190.0, Some(1))
        );
    }

    #[test]
    fn what_is_no_table_is_refused() {
        assert!(read("{}").is_err());
        assert_eq!(read("{\"tasks\": []}").unwrap().len(), 0);
    }
}
