//! What a study says of one policy on one task, or summed over a model.
//!
//! Owns the figures of a row. How they relate to those of other rows is
//! `relate`'s.

use super::sweep::{Swept, name};
use measure::{Policy, RoundReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One policy, once, on the candidates of a task; or the sum over a model's tasks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The operator, family or model that was asked for.
    pub program: String,
    pub task: String,
    pub key: String,
    /// Tasks that this row sums up, and calls of them in the program.
    pub tasks: usize,
    pub uses: usize,
    /// Whether builders worked while candidates were measured.
    pub overlap: bool,
    pub policy: Policy,
    pub swept: Option<Swept>,
    pub repetition: usize,
    pub candidates: usize,
    /// Outcomes other than a time, by kind.
    pub failures: BTreeMap<String, usize>,
    /// Candidates at once that the devices allow, CPUs of all, and builders that
    /// work meanwhile.
    pub at_once: u32,
    pub cpus: u32,
    pub builders: u32,
    #[serde(flatten)]
    pub times: Times,
    /// Results that were measured again alone for their figures or because they
    /// failed, and those of the latter that had a time then.
    pub sampled: usize,
    pub failed_again: usize,
    pub recovered: usize,
    pub mean_dp: Option<f64>,
    /// Of its rounds that know it, the mean error.
    pub delta: Option<f64>,
    /// Of its rounds that can tell, what is left of the errors of candidates that
    /// took no part in correcting them: by one factor a round, the paper's or one with
    /// a sign, and by one each.
    pub left_uniform: Option<f64>,
    pub left_signed: Option<f64>,
    pub left_per_candidate: Option<f64>,
    /// Candidates that were ranked alone at the end.
    pub ranked: usize,
    /// Whether the best of the ranking is another than the best by its figures.
    pub changed: bool,
    /// The best of the ranking, by its position among the candidates and its code.
    pub best: Option<usize>,
    pub best_code: Option<String>,
    /// Its latency, measured twice in turns with the bests of the other rows;
    /// and how far apart the two are. Of a model, summed over all calls.
    pub best_ns: Option<f64>,
    pub best_apart_ns: Option<f64>,
    #[serde(flatten)]
    pub related: Related,
    /// What DOPpler did, round by round.
    pub rounds: Vec<RoundReport>,
    /// A figure for each candidate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Option<u64>>,
}

/// Where the time went, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Wall time of building before anything is measured; none with overlap.
    pub built_before_s: f64,
    /// Wall time from the first candidate to the last; what was built meanwhile
    /// is in it.
    pub wall_s: f64,
    /// Wall time that the policy had candidates to measure, part of `wall_s`.
    pub measure_s: f64,
    /// Wall time of the last ranking.
    pub rank_s: f64,
    /// All of it: the tuning time.
    pub total_s: f64,
    /// Wall time of what was measured again alone, part of `measure_s`.
    pub alone_s: f64,
    /// Sums over candidates; what runs side by side counts each for itself.
    pub build_s: f64,
    pub load_s: f64,
    pub check_s: f64,
    pub run_s: f64,
    /// The same, of CPU time.
    pub build_cpu_s: f64,
    pub measure_cpu_s: f64,
}

impl Times {
    /// Adds those of another task.
    pub fn add(&mut self, t: &Times) {
        self.built_before_s += t.built_before_s;
        self.wall_s += t.wall_s;
        self.measure_s += t.measure_s;
        self.rank_s += t.rank_s;
        self.total_s += t.total_s;
        self.alone_s += t.alone_s;
        self.build_s += t.build_s;
        self.load_s += t.load_s;
        self.check_s += t.check_s;
        self.run_s += t.run_s;
        self.build_cpu_s += t.build_cpu_s;
        self.measure_cpu_s += t.measure_cpu_s;
    }
}

/// How a row is to others of the same program, overlap and repetition. Changes
/// are in per cent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Related {
    /// Mean relative difference of its figures to those of `serial`; for `serial`
    /// to those of the repetition before.
    pub error: Option<f64>,
    /// Of the tuning time.
    pub against_serial: Option<f64>,
    pub against_serial_spawn: Option<f64>,
    /// Of the time that the policy had candidates.
    pub measuring_against_serial: Option<f64>,
    pub measuring_against_serial_spawn: Option<f64>,
    /// The least time that `serial`'s components and what this row measured again
    /// allow, and the share of what that would save which it did save.
    pub bound_s: Option<f64>,
    pub of_bound: Option<f64>,
    /// The same of measuring alone, where nothing is built meanwhile.
    pub measuring_bound_s: Option<f64>,
    pub of_measuring_bound: Option<f64>,
    /// Relative difference of its best to the median of `serial`'s bests.
    pub best_difference: Option<f64>,
    /// How far apart `serial`'s bests of all repetitions are, relative.
    pub spread: Option<f64>,
    /// Whether its best is slower by no more than that, or than what the final
    /// measurements themselves disagree by.
    pub within_spread: Option<bool>,
}

impl Row {
    /// The policy, and what was changed of it.
    pub fn variant(&self) -> String {
        name(self.policy, self.swept.as_ref())
    }

    /// Whether it is the policy itself, with nothing changed.
    pub fn is(&self, policy: Policy) -> bool {
        self.policy == policy && self.swept.is_none()
    }
}

/// The mean, if there is anything.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0u32, 0.0), |(n, sum), v| (n + 1, sum + v));
    (n > 0).then(|| sum / f64::from(n))
}
