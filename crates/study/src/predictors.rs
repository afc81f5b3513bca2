//! How well predictors order simulated candidates (Instruction-accurate simulators, section IV).
//!
//! Owns the protocol: random splits of each group, means that are known or of a window, a group left out.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use simulate::{
    FeatureSet, Means, Method, Metrics, Predictor, PredictorError, Sample, TrainOptions, Window,
    by_group, timed_once,
};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;

/// Of each group, one sample of so many is for the test: 100 of 500 in the paper.
const TEST: usize = 5;
/// Samples of a group, at least.
pub const LEAST: usize = 10;

/// The order by the static score alone.
pub const STATIC_SCORE: &str = "static score";
/// The order by the least times of every second round, judged by those of the other rounds. What it misses is noise of the
/// times: predictors that miss less cannot be told apart.
pub const TIMED_AGAIN: &str = "timed again";

/// How predictors are compared.
#[derive(Clone)]
pub struct Options {
    pub methods: Vec<&'static Method>,
    /// What predictors learn from.
    pub features: FeatureSet,
    /// Random splits.
    pub splits: u64,
    /// Also judge under means of a window: a static one of so many samples, and a dynamic one.
    pub window: Option<usize>,
    /// A group that is also judged by predictors that never saw it. Other groups are not judged then.
    pub leave_out: Option<String>,
    pub seed: u64,
}

/// Where the means come from by which features are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MeansOf {
    /// All samples of the group.
    Group,
    /// The first samples of the test.
    StaticWindow,
    /// All samples of the test.
    DynamicWindow,
}

impl fmt::Display for MeansOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MeansOf::Group => "group",
            MeansOf::StaticWindow => "static window",
            MeansOf::DynamicWindow => "dynamic window",
        })
    }
}

/// What was judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    pub cpu: String,
    pub kind: String,
    pub group: String,
    /// A method's name, [`STATIC_SCORE`] or [`TIMED_AGAIN`].
    pub method: String,
    /// Whether the predictor learned from other samples of the group.
    pub included: bool,
    pub means: MeansOf,
}

/// The figures of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    #[serde(flatten)]
    pub case: Case,
    /// Samples of each test.
    pub tested: usize,
    /// The median over the splits of each metric.
    pub median: Metrics,
    pub splits: Vec<Metrics>,
    /// Of the first split: measured times in the order of the scores.
    pub first_order_ns: Vec<f64>,
}

/// Simulators and boards of a group, compared by their time for a candidate (section IV-D).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parallel {
    pub cpu: String,
    pub group: String,
    /// Samples that were both simulated and timed, with the times of both.
    pub samples: usize,
    /// Means.
    pub simulation_s: f64,
    pub measured_s: f64,
    /// K: simulators side by side that are as fast as one board.
    pub simulators: u64,
}

/// How a board times a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoardTiming {
    /// Before each run.
    pub cooldown_s: f64,
    /// Of each candidate.
    pub runs: u32,
}

/// How many simulators replace one board, for each group with times of both:
/// K = ceil(t_sim / ((t_cooldown + t_ref) * n_exe)).
pub fn parallel(samples: &[Sample], board: BoardTiming) -> Vec<Parallel> {
    let mut groups: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for s in timed_once(samples) {
        if let (Some(simulation), Some(time)) = (s.simulation_ns, s.time_ns) {
            let of = groups.entry((&s.cpu, &s.group)).or_default();
            of.push((simulation / 1e9, time / 1e9));
        }
    }
    let one = |((cpu, group), all): ((&str, &str), Vec<(f64, f64)>)| {
        let n = all.len() as f64;
        let simulation_s = all.iter().map(|t| t.0).sum::<f64>() / n;
        let measured_s = all.iter().map(|t| t.1).sum::<f64>() / n;
        let on_board = (board.cooldown_s + measured_s) * f64::from(board.runs);
        Parallel {
            cpu: cpu.into(),
            group: group.into(),
            samples: all.len(),
            simulation_s,
            measured_s,
            simulators: (simulation_s / on_board).ceil() as u64,
        }
    };
    groups.into_iter().map(one).collect()
}

/// Why samples cannot be studied.
#[derive(Debug)]
pub enum StudyError {
    /// A group has too few timed samples.
    Few {
        group: String,
        samples: usize,
    },
    /// No group of samples, or no other group of its kind to learn from, has this name.
    NoGroup {
        group: String,
        known: Vec<String>,
    },
    Predictor(PredictorError),
}

impl fmt::Display for StudyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StudyError::Few { group, samples } => write!(
                f,
                "group {group} has timed samples of {samples} schedules; at least {LEAST} are needed"
            ),
            StudyError::NoGroup { group, known } => write!(
                f,
                "no group {group} has other groups of its kind beside it; known groups: {}",
                known.join(", ")
            ),
            StudyError::Predictor(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for StudyError {}

impl From<PredictorError> for StudyError {
    fn from(error: PredictorError) -> StudyError {
        StudyError::Predictor(error)
    }
}

/// The samples of one group, in a random order. The first ones are for the test.
struct Split<'a> {
    all: Vec<&'a Sample>,
    test: usize,
}

/// What one split gives for one case: metrics, and times in predicted order.
type Judged = (Case, Metrics, Vec<f64>);

/// Judges predictors on all timed samples, for each processor and type of kernel alone. Of samples with one
/// schedule the first counts, so that no test has what a predictor learned from.
///
/// # Errors
/// If a group has too few samples, or the group to leave out is unknown, or samples do not fit together.
pub fn compare(samples: &[Sample], options: &Options) -> Result<Vec<Figures>, StudyError> {
    let mut predictors: BTreeMap<(&str, &str), Vec<&Sample>> = BTreeMap::new();
    for s in timed_once(samples) {
        predictors.entry((&s.cpu, &s.kind)).or_default().push(s);
    }
    if let Some(left_out) = &options.leave_out {
        predictors.retain(|_, samples| {
            let groups = by_group(samples);
            groups.len() > 1 && groups.contains_key(left_out.as_str())
        });
    }
    if predictors.is_empty() {
        let mut known: Vec<String> = samples.iter().map(|s| s.group.clone()).collect();
        known.sort();
        known.dedup();
        return Err(match &options.leave_out {
            Some(group) => StudyError::NoGroup {
                group: group.clone(),
                known,
            },
            None => PredictorError::Empty.into(),
        });
    }
    let mut figures = Vec::new();
    for samples in predictors.values() {
        let groups = by_group(samples);
        if let Some((group, few)) = groups.iter().find(|(_, s)| s.len() < LEAST) {
            return Err(StudyError::Few {
                group: group.to_string(),
                samples: few.len(),
            });
        }
        figures.extend(of_predictor(&groups, options)?);
    }
    Ok(figures)
}

type Groups<'a> = BTreeMap<&'a str, Vec<&'a Sample>>;

/// Runs the splits of one processor and type of kernel side by side, and takes medians.
fn of_predictor(groups: &Groups<'_>, options: &Options) -> Result<Vec<Figures>, StudyError> {
    // Splits of one method follow each other, so that each thread gets slow methods and fast ones.
    let splits = |m: &&'static Method| {
        let method = *m;
        (0..options.splits).map(move |split| (split, method))
    };
    let jobs: Vec<(u64, &'static Method)> = options.methods.iter().flat_map(splits).collect();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let work = |thread: usize| -> Vec<(usize, Result<Vec<Judged>, StudyError>)> {
        let own = jobs.iter().enumerate().skip(thread).step_by(threads);
        own.map(|(i, (split, method))| (i, of_split(groups, options, *split, method)))
            .collect()
    };
    let mut done: Vec<_> = std::thread::scope(|scope| {
        let work = &work;
        let spawn = |thread| scope.spawn(move || work(thread));
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        let join = |w: ScopedJoinHandle<'_, _>| w.join().unwrap_or_else(|e| resume_unwind(e));
        workers.into_iter().flat_map(join).collect()
    });
    done.sort_by_key(|(i, _)| *i);
    let mut all: Vec<Judged> = Vec::new();
    for split in 0..options.splits {
        all.extend(of_orders(groups, options, split));
    }
    for (_, judged) in done {
        all.extend(judged?);
    }
    Ok(medians(all))
}

/// The cases in the order in which they come first, those of one group together.
fn medians(all: Vec<Judged>) -> Vec<Figures> {
    let mut figures: Vec<Figures> = Vec::new();
    for (case, metrics, order) in all {
        match figures.iter_mut().find(|f| f.case == case) {
            Some(f) => f.splits.push(metrics),
            None => figures.push(Figures {
                case,
                tested: order.len(),
                median: metrics,
                splits: vec![metrics],
                first_order_ns: order,
            }),
        }
    }
    for f in &mut figures {
        f.median = Metrics::median(&f.splits).unwrap_or(f.median);
    }
    figures.sort_by(|a, b| a.case.group.cmp(&b.case.group));
    figures
}

/// All groups, divided. Equal for all methods.
fn divided<'a>(groups: &Groups<'a>, options: &Options, split: u64) -> BTreeMap<&'a str, Split<'a>> {
    let mut rng = Pcg64Mcg::seed_from_u64(options.seed.wrapping_mul(1_000_003) ^ split);
    let mut of = |samples: &Vec<&'a Sample>| {
        let mut all = samples.clone();
        all.shuffle(&mut rng);
        let test = all.len() / TEST;
        Split { all, test }
    };
    groups.iter().map(|(name, s)| (*name, of(s))).collect()
}

impl Options {
    fn judges(&self, group: &str) -> bool {
        self.leave_out.as_deref().is_none_or(|g| g == group)
    }
}

/// Trains with one method on one split, and judges each group's test.
fn of_split(
    groups: &Groups<'_>,
    options: &Options,
    split: u64,
    method: &'static Method,
) -> Result<Vec<Judged>, StudyError> {
    let splits = divided(groups, options, split);
    let train = TrainOptions {
        method,
        features: options.features,
        validation: 0.2,
        seed: options.seed ^ split,
    };
    let mut judged = Vec::new();
    let included: &[bool] = match options.leave_out {
        Some(_) => &[true, false],
        None => &[true],
    };
    for included in included {
        let learning: Vec<&Sample> = splits
            .iter()
            .filter(|(name, _)| *included || !options.judges(name))
            .flat_map(|(_, s)| &s.all[s.test..])
            .copied()
            .collect();
        let predictor = Predictor::train(&learning, train)?;
        for (_, split) in splits.iter().filter(|(name, _)| options.judges(name)) {
            let test = &split.all[..split.test];
            let mut windows = vec![(MeansOf::Group, Means::of(&split.all))];
            if let Some(first) = options.window {
                let first = Window::Static(first).means(test);
                windows.push((MeansOf::StaticWindow, first));
                windows.push((MeansOf::DynamicWindow, Window::Dynamic.means(test)));
            }
            for (means_of, means) in windows {
                let scores = predictor.score_against(test, &means)?;
                let case = Case::of(test, method.name, *included, means_of);
                judged.extend(judge(case, &times(test), &scores));
            }
        }
    }
    Ok(judged)
}

/// Orders for which nothing is learned, where all samples of a group have what they are made of.
fn of_orders(groups: &Groups<'_>, options: &Options, split: u64) -> Vec<Judged> {
    let splits = divided(groups, options, split);
    let judged = splits.iter().filter(|(name, _)| options.judges(name));
    let of = judged.flat_map(|(_, split)| {
        let test = &split.all[..split.test];
        let case = |method| Case::of(test, method, true, MeansOf::Group);
        let scores: Option<Vec<f64>> = test.iter().map(|s| s.static_score()).collect();
        let by_score = scores.and_then(|s| judge(case(STATIC_SCORE), &times(test), &s));
        let rounds: Option<Vec<(f64, f64)>> = test.iter().map(|s| by_halves(s)).collect();
        let (before, last): (Vec<f64>, Vec<f64>) = rounds.unwrap_or_default().into_iter().unzip();
        [by_score, judge(case(TIMED_AGAIN), &before, &last)]
    });
    of.flatten().collect()
}

/// The least times of the first, third, fifth ... round, and of the others. `None` where there was one round only.
fn by_halves(sample: &Sample) -> Option<(f64, f64)> {
    let least = |from: usize| {
        sample
            .rounds_ns
            .iter()
            .skip(from)
            .step_by(2)
            .copied()
            .reduce(f64::min)
    };
    least(0).zip(least(1))
}

fn times(test: &[&Sample]) -> Vec<f64> {
    test.iter().filter_map(|s| s.time_ns).collect()
}

impl Case {
    fn of(test: &[&Sample], method: &str, included: bool, means: MeansOf) -> Case {
        let text = |get: fn(&Sample) -> &str| test.first().map_or(String::new(), |s| get(s).into());
        Case {
            cpu: text(|s| &s.cpu),
            kind: text(|s| &s.kind),
            group: text(|s| &s.group),
            method: method.into(),
            included,
            means,
        }
    }
}

fn judge(case: Case, times: &[f64], scores: &[f64]) -> Option<Judged> {
    let order = simulate::predicted_order(times, scores)?;
    Some((case, Metrics::of(times, scores)?, order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::Features;
    use simulate::Statistics;

    /// Candidates whose time grows with their instructions and with their share of loads.
    fn samples(groups: &[&str], each: u32) -> Vec<Sample> {
        let mut all = Vec::new();
        for (g, group) in (1u32..).zip(groups) {
            for i in 0..each {
                let instructions = f64::from(g) * f64::from(1000 + i * 37 % 101 * 10);
                let loads = instructions * f64::from(i * 53 % 97) / 200.0;
                all.push(Sample {
                    group: group.to_string(),
                    kind: "matmul".into(),
                    cpu: "cortex-a72".into(),
                    trace: i.to_string(),
                    statistics: Statistics {
                        instructions,
                        loads,
                        ..Statistics::default()
                    },
                    code: Some(Features {
                        forks: instructions,
                        ..Features::default()
                    }),
                    time_ns: Some(instructions + 2.0 * loads),
                    ..Sample::default()
                });
            }
        }
        all
    }

    fn options() -> Options {
        Options {
            methods: ["linear", "trees"]
                .into_iter()
                .filter_map(Method::named)
                .collect(),
            features: FeatureSet::Counts,
            splits: 3,
            window: None,
            leave_out: None,
            seed: 1,
        }
    }

    #[test]
    fn each_group_is_judged_by_each_method() {
        let figures = compare(&samples(&["a", "b"], 100), &options()).unwrap();
        let cases: Vec<(&str, &str)> = figures
            .iter()
            .map(|f| (f.case.group.as_str(), f.case.method.as_str()))
            .collect();
        let methods = ["static score", "linear", "trees"];
        let expected: Vec<_> = ["a", "b"]
            .iter()
            .flat_map(|g| methods.map(|m| (*g, m)))
            .collect();
        assert_eq!(cases, expected);
        for f in &figures {
            assert_eq!((f.tested, f.splits.len()), (20, 3));
            assert_eq!(f.first_order_ns.len(), 20);
            let worst = if f.case.method == "static score" {
                100.0
            } else {
                15.0
            };
            assert!(f.median.r_top1 <= worst, "{f:?}");
        }
        assert_eq!(
            figures,
            compare(&samples(&["a", "b"], 100), &options()).unwrap()
        );
    }

    #[test]
    fn a_group_left_out_is_judged_on_the_same_test() {
        let mut o = options();
        o.leave_out = Some("b".into());
        o.window = Some(8);
        let figures = compare(&samples(&["a", "b", "c"], 60), &o).unwrap();
        // The static score, and two methods with and without the group under three means.
        assert_eq!(figures.len(), 1 + 2 * 2 * 3);
        assert!(figures.iter().all(|f| f.case.group == "b"));
        let sorted = |f: &Figures| {
            let mut times = f.first_order_ns.clone();
            times.sort_by(f64::total_cmp);
            times
        };
        assert!(figures.iter().all(|f| sorted(f) == sorted(&figures[0])));
        o.leave_out = Some("d".into());
        let said = compare(&samples(&["a", "b"], 60), &o)
            .unwrap_err()
            .to_string();
        assert!(said.contains("known groups: a, b"), "{said}");
    }

    #[test]
    fn a_second_round_says_how_far_noise_moves_the_order() {
        let mut all = samples(&["a"], 50);
        let mut o = options();
        o.methods.clear();
        let again = |all: &[Sample], o: &Options| {
            let figures = compare(all, o).unwrap();
            let found = figures.into_iter().find(|f| f.case.method == TIMED_AGAIN);
            found.map(|f| f.median)
        };
        assert_eq!(again(&all, &o), None);
        for s in &mut all {
            let time = s.time_ns.unwrap();
            s.rounds_ns = vec![time, time * 2.0];
        }
        let quiet = again(&all, &o).unwrap();
        assert_eq!((quiet.e_top1, quiet.r_top1), (0.0, 10.0));
        // The second round has the opposite order, so the fastest of ten comes last.
        for s in &mut all {
            s.rounds_ns[1] = 1e9 - s.rounds_ns[1];
        }
        assert_eq!(again(&all, &o).unwrap().r_top1, 100.0);
        // One sample of one round, which is in no order.
        all.iter_mut().for_each(|s| s.rounds_ns.truncate(1));
        assert_eq!(again(&all, &o), None);
    }

    #[test]
    fn simulators_replace_a_board() {
        let mut all = samples(&["a", "b"], 2);
        // 90 s and 30 s of simulation against 15 times one second and 1 ms to 3 ms.
        for (s, simulation_ns) in all.iter_mut().zip([90e9, 30e9]) {
            s.simulation_ns = Some(simulation_ns);
            s.time_ns = Some(simulation_ns / 30e3);
        }
        let board = BoardTiming {
            cooldown_s: 1.0,
            runs: 15,
        };
        let found = parallel(&all, board);
        // The other group has no times of simulation.
        assert_eq!(
            (found.len(), &*found[0].group, found[0].samples),
            (1, "a", 2)
        );
        // 60 s over 15.03 s.
        assert_eq!(found[0].simulators, 4);
        assert!((found[0].measured_s - 2e-3).abs() < 1e-12);
    }

    #[test]
    fn few_or_no_samples_are_refused() {
        let said = |samples: &[Sample]| compare(samples, &options()).unwrap_err().to_string();
        assert!(said(&samples(&["a"], 9)).contains("group a has timed samples of 9 schedules"));
        let mut untimed = samples(&["a"], 20);
        untimed.iter_mut().for_each(|s| s.time_ns = None);
        assert_eq!(said(&untimed), "there are no samples");
        let mut equal = samples(&["a"], 20);
        equal.iter_mut().for_each(|s| s.trace.clear());
        assert!(said(&equal).contains("group a has timed samples of 1 schedules"));
    }
}
