//! Strategies compared by real searches of operators and models, under equal trials and under equal seconds.
//!
//! Owns what is kept of a search, and what follows from the searches of a study. A kernel costs the least of its medians in
//! all searches of its model, so that equal code has equal cost. The best kernel of all searches is what each is compared with.
//! Who runs the searches is left to the command.

use crate::curves::{Curve, Curves, MOMENTS};
use crate::row::mean;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use store::Record;

/// Of 63 operators that were tuned for a minute (2-CPU virtual machine, AMD EPYC of family 26, AVX-512, one thread, commit
/// 40d3286), the twelve whose tuned kernels gained the most over the defaults, 1.22 times and more. Two others gained as much, but
/// have fewer candidates than a search has trials: `max_pool2d` and `max_pool3d`.
pub const OPERATORS: [&str; 12] = [
    "op:dense(m=16,n=32000,k=1024)",
    "op:depthwise_conv2d(c=512,h=14,w=14)",
    "op:conv2d_transpose(c=128,h=128,w=128,k=64,r=3,s=3,stride=2,output_pad=1)",
    "op:depthwise_conv2d(c=240,h=14,w=14,r=5,s=5)",
    "op:conv3d(c=256,d=4,h=14,w=14,k=256)",
    "op:conv2d(c=16,h=32,w=32,k=32,r=5,s=5)",
    "op:depthwise_conv2d(c=96,h=112,w=112,stride=2)",
    "op:batch_matmul(b=8,m=1,k=64,n=1024)",
    "op:depthwise_conv2d(c=192,h=28,w=28,r=7,s=7)",
    "op:conv2d(c=3,h=224,w=224,k=32,stride=2)",
    "op:grouped_conv2d(c=256,h=28,w=28,k=256,groups=32)",
    "op:conv2d(c=3,h=384,w=384,k=64,r=7,s=7,stride=2)",
];

/// How near the best of all a search has to come.
pub const WITHIN: [f64; 2] = [0.05, 0.02];

/// One answered candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub task: String,
    /// Calls of the task in the model.
    pub uses: u64,
    pub code: Option<String>,
    /// None of failures.
    pub ns: Option<u64>,
    /// Seconds since the search began.
    pub s: f64,
}

/// CPU seconds of the parts of a search, as the records of its candidates have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Strategies and filters, with models and features.
    pub search: f64,
    pub build: f64,
    /// Loading, checking and measuring.
    pub measure: f64,
}

/// One finished search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Searched {
    pub model: String,
    /// What tells the content of the model's file from others, if it is one.
    #[serde(default)]
    pub content: Option<String>,
    /// A strategy, or one with additions.
    pub strategy: String,
    /// From where: `defaults` or `random`.
    pub start: String,
    pub seed: u64,
    pub trials: Vec<Trial>,
    pub cpu_s: Parts,
}

/// What is kept of a search's records: its candidates in their order, and the CPU time of its parts. `began` is in ms
/// since 1970, and `uses` has the calls of each task.
pub fn kept(records: &[Record], began: u64, uses: &BTreeMap<String, u64>) -> (Vec<Trial>, Parts) {
    let mut own: Vec<&Record> = records.iter().filter(|r| !r.final_).collect();
    own.sort_by_key(|r| (r.created_unix_ms, r.trial));
    let trial = |r: &&Record| Trial {
        task: r.task.clone(),
        uses: uses.get(&r.task).copied().unwrap_or(0),
        code: r.code_hash.clone(),
        ns: r.outcome.median_ns(),
        s: r.created_unix_ms.saturating_sub(began) as f64 / 1e3,
    };
    let mut cpu = Parts::default();
    for r in &own {
        let of = |t: &store::TimeSpent| t.cpu_ns.unwrap_or(0) as f64 / 1e9;
        cpu.search += of(&r.spent.search);
        cpu.build += of(&r.spent.build);
        cpu.measure += of(&r.spent.load) + of(&r.spent.check) + of(&r.spent.measure);
    }
    (own.iter().map(trial).collect(), cpu)
}

/// After one trial of a search: seconds, and what all tasks take with the best so far, over the least of all searches. Infinite
/// until each task has a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reached {
    s: f64,
    ratio: f64,
}

/// What each kernel of a model costs at least, by task and code, and what all calls of the model cost at least.
struct Costs<'a> {
    kernels: BTreeMap<(&'a str, Option<&'a str>), f64>,
    least: f64,
}

impl<'a> Costs<'a> {
    fn of(searches: impl Iterator<Item = &'a Searched>) -> Costs<'a> {
        let mut kernels = BTreeMap::new();
        let mut tasks: BTreeMap<&str, f64> = BTreeMap::new();
        for t in searches.flat_map(|s| &s.trials) {
            let Some(ns) = t.ns.map(|ns| ns as f64) else {
                continue;
            };
            let cost = kernels.entry((t.task.as_str(), t.code.as_deref()));
            let cost = cost.or_insert(f64::INFINITY);
            *cost = cost.min(ns);
            let calls = ns * t.uses as f64;
            let least = tasks.entry(&t.task).or_insert(f64::INFINITY);
            *least = least.min(calls);
        }
        Costs {
            kernels,
            least: tasks.values().sum(),
        }
    }

    fn curve(&self, s: &Searched) -> Vec<Reached> {
        let tasks: BTreeSet<&str> = s.trials.iter().map(|t| t.task.as_str()).collect();
        let mut best: BTreeMap<&str, f64> = BTreeMap::new();
        let after = s.trials.iter().map(|t| {
            let own = self.kernels.get(&(t.task.as_str(), t.code.as_deref()));
            if let (Some(cost), Some(_)) = (own, t.ns) {
                let least = best.entry(&t.task).or_insert(f64::INFINITY);
                *least = least.min(cost * t.uses as f64);
            }
            let known = best.len() == tasks.len();
            let sum: f64 = best.values().sum();
            Reached {
                s: t.s,
                ratio: if known {
                    sum / self.least
                } else {
                    f64::INFINITY
                },
            }
        });
        after.collect()
    }
}

fn at_trial(points: &[Reached], n: usize) -> f64 {
    let last = points.len().checked_sub(1);
    last.map_or(f64::INFINITY, |last| {
        points[n.saturating_sub(1).min(last)].ratio
    })
}

/// Infinite before the first answer.
fn at_second(points: &[Reached], s: f64) -> f64 {
    let until = points.iter().filter(|p| p.s <= s);
    until.map(|p| p.ratio).fold(f64::INFINITY, f64::min)
}

/// The seconds after which the first of these searches had its trials. Where all ran out of candidates before, those of
/// the last one.
fn equal_seconds(curves: &[&Vec<Reached>], trials: usize) -> f64 {
    let end = |c: &&&Vec<Reached>| c.last().map(|p| p.s);
    let whole = curves.iter().filter(|c| c.len() >= trials);
    let first = whole.filter_map(|c| end(&c)).reduce(f64::min);
    first.unwrap_or_else(|| curves.iter().filter_map(|c| end(&c)).fold(0.0, f64::max))
}

/// Latency over the best of all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Over {
    /// Geometric mean; none if a search has no answer yet.
    pub mean: Option<f64>,
    /// The standard deviation of the logarithms about the mean of their model; none of single seeds.
    pub spread: Option<f64>,
}

impl Over {
    /// Of the ratios of each model.
    fn of(ratios: &BTreeMap<&str, Vec<f64>>) -> Over {
        let logs = |of: &Vec<f64>| of.iter().map(|r| r.ln()).collect::<Vec<f64>>();
        let logs: Vec<Vec<f64>> = ratios.values().map(logs).collect();
        if !logs.iter().flatten().all(|l| l.is_finite()) {
            return Over {
                mean: None,
                spread: None,
            };
        }
        let several = || logs.iter().filter(|of| of.len() > 1);
        let freedom: usize = several().map(|of| of.len() - 1).sum();
        let squares = several().flat_map(|of| {
            let middle = mean(of.iter().copied()).unwrap_or(0.0);
            of.iter().map(move |l| (l - middle).powi(2))
        });
        let squares: f64 = squares.sum();
        Over {
            mean: mean(logs.iter().flatten().copied()).map(f64::exp),
            spread: (freedom > 0).then(|| (squares / freedom as f64).sqrt()),
        }
    }
}

/// How soon searches are near the best of all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Near {
    pub within: f64,
    /// Medians; none if it is a search that does not get there.
    pub trials: Option<f64>,
    pub seconds: Option<f64>,
    /// Searches that get there.
    pub reached: usize,
}

impl Near {
    fn of(curves: &[&Vec<Reached>], within: f64) -> Near {
        let there = |c: &&&Vec<Reached>| {
            let at = c.iter().position(|p| p.ratio <= 1.0 + within);
            at.map_or((f64::INFINITY, f64::INFINITY), |at| {
                (at as f64 + 1.0, c[at].s)
            })
        };
        let found: Vec<(f64, f64)> = curves.iter().map(|c| there(&c)).collect();
        Near {
            within,
            trials: median(found.iter().map(|f| f.0)),
            seconds: median(found.iter().map(|f| f.1)),
            reached: found.iter().filter(|f| f.0.is_finite()).count(),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let middle = (values[last / 2] + values[values.len() / 2]) / 2.0;
    middle.is_finite().then_some(middle)
}

/// Parts of the time of all CPUs; what no candidate's record has counts as idle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shares {
    pub search: f64,
    pub build: f64,
    pub measure: f64,
    pub idle: f64,
}

/// What the searches of one strategy from one start came to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub strategy: String,
    pub start: String,
    pub searches: usize,
    pub equal_trials: Over,
    /// After as many seconds as the first strategy took for its trials of the same model and seed.
    pub equal_seconds: Over,
    pub near: Vec<Near>,
    pub trials_per_s: f64,
    pub shares: Shares,
}

/// Searches that compare with each other, their curves, and the seconds after which they are compared.
struct Compared<'a> {
    searches: Vec<&'a Searched>,
    curves: Vec<Vec<Reached>>,
    ends: Vec<f64>,
    trials: usize,
}

impl<'a> Compared<'a> {
    fn of(searches: &'a [Searched], trials: usize) -> Compared<'a> {
        let searches: Vec<&Searched> = searches.iter().filter(|s| !s.trials.is_empty()).collect();
        let models: BTreeSet<&str> = searches.iter().map(|s| s.model.as_str()).collect();
        let of_model = |m: &'a str| {
            let own = searches.iter().copied().filter(move |s| s.model == m);
            (m, Costs::of(own))
        };
        let costs: BTreeMap<&str, Costs<'_>> = models.into_iter().map(of_model).collect();
        let curve = |s: &&Searched| costs[s.model.as_str()].curve(s);
        let curves: Vec<Vec<Reached>> = searches.iter().map(curve).collect();
        let group = |s: &'a Searched| (&s.model, &s.start, s.seed);
        let mut groups: BTreeMap<_, Vec<&Vec<Reached>>> = BTreeMap::new();
        for (s, c) in searches.iter().zip(&curves) {
            groups.entry(group(s)).or_default().push(c);
        }
        let end = |s: &&'a Searched| equal_seconds(&groups[&group(s)], trials);
        let ends = searches.iter().map(end).collect();
        Compared {
            searches,
            curves,
            ends,
            trials,
        }
    }

    /// Strategies and starts, with the places of their searches, in the order in which they came.
    fn kinds(&self) -> Vec<(&'a Searched, Vec<usize>)> {
        let mut kinds: Vec<(&Searched, Vec<usize>)> = Vec::new();
        for (i, s) in self.searches.iter().enumerate() {
            let same = |k: &&mut (&Searched, Vec<usize>)| {
                (&k.0.strategy, &k.0.start) == (&s.strategy, &s.start)
            };
            match kinds.iter_mut().find(same) {
                Some(kind) => kind.1.push(i),
                None => kinds.push((s, vec![i])),
            }
        }
        kinds
    }

    fn outcome(&self, first: &Searched, own: &[usize], cpus: usize) -> Outcome {
        let by_model = |ratio: &dyn Fn(usize) -> f64| {
            let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
            for i in own {
                let of_model = ratios.entry(&self.searches[*i].model).or_default();
                of_model.push(ratio(*i));
            }
            Over::of(&ratios)
        };
        let curves: Vec<&Vec<Reached>> = own.iter().map(|i| &self.curves[*i]).collect();
        let last = |c: &&Vec<Reached>| c.last().map_or(0.0, |p| p.s);
        let seconds: f64 = curves.iter().map(last).sum::<f64>().max(1e-9);
        let sum = |of: fn(&Parts) -> f64| {
            let cpu: f64 = own.iter().map(|i| of(&self.searches[*i].cpu_s)).sum();
            cpu / (seconds * cpus as f64)
        };
        let (search, build, measure) = (sum(|p| p.search), sum(|p| p.build), sum(|p| p.measure));
        let trials: usize = curves.iter().map(|c| c.len()).sum();
        Outcome {
            strategy: first.strategy.clone(),
            start: first.start.clone(),
            searches: own.len(),
            equal_trials: by_model(&|i| at_trial(&self.curves[i], self.trials)),
            equal_seconds: by_model(&|i| at_second(&self.curves[i], self.ends[i])),
            near: WITHIN.map(|within| Near::of(&curves, within)).to_vec(),
            trials_per_s: trials as f64 / seconds,
            shares: Shares {
                search,
                build,
                measure,
                idle: 1.0 - search - build - measure,
            },
        }
    }

    /// The curves of each kind at these moments; `ratio` is that of a search at a moment.
    fn drawn(&self, moments: &[f64], ratio: impl Fn(usize, f64) -> f64) -> Vec<Curve> {
        let kinds = self.kinds();
        let starts: BTreeSet<&String> = kinds.iter().map(|k| &k.0.start).collect();
        let curve = |(first, own): &(&Searched, Vec<usize>)| {
            let name = match starts.len() {
                1 => first.strategy.clone(),
                _ => format!("{} from {}", first.strategy, first.start),
            };
            let value = |i: &usize, at: usize| {
                let ratio = ratio(*i, moments[at]);
                ratio.is_finite().then(|| ratio.ln())
            };
            let seed = |i: &usize| self.searches[*i].seed;
            Curve::of((&name, &[]), own, seed, moments, value, f64::exp)
        };
        kinds.iter().map(curve).collect()
    }
}

/// What each strategy from each start came to, in the order in which they came, and how its searches converge. Searches
/// had `trials` unless they ran out of candidates, on a machine with so many CPUs. All strategies have the same models and seeds.
pub fn compared(searches: &[Searched], trials: usize, cpus: usize) -> (Vec<Outcome>, Curves) {
    let all = Compared::of(searches, trials);
    let kinds = all.kinds();
    let outcomes = kinds
        .iter()
        .map(|(first, own)| all.outcome(first, own, cpus));
    let steps = trials.min(MOMENTS);
    let moment = |i: usize| ((i + 1) * trials).div_ceil(steps.max(1)) as f64;
    let numbers: Vec<f64> = (0..steps).map(moment).collect();
    let parts: Vec<f64> = (1..=MOMENTS).map(|i| i as f64 / MOMENTS as f64).collect();
    let curves = Curves {
        answers: all.drawn(&numbers, |i, n| at_trial(&all.curves[i], n as usize)),
        seconds: all.drawn(&parts, |i, part| {
            at_second(&all.curves[i], part * all.ends[i])
        }),
        scores: vec![],
    };
    (outcomes.collect(), curves)
}

#[cfg(test)]
mod tests;
