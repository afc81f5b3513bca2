//! How far a run is, for whoever watches it: the model's time so far, its costliest tasks, and
//! what other programs do meanwhile.

use crate::StopRule;
use crate::observer::{Observer, Status};
use crate::run::Run;
use crate::threads::cpus;
use measure::energy::family_cpu_s;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A moment of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Since the command began.
    pub s: f64,
    pub trials: u64,
    /// Of the command until then, by the meter that says most, as it was read within the last second; none if nothing counts them.
    pub joules: Option<f64>,
    /// By the meter that says least.
    pub least_joules: Option<f64>,
    /// Sum of the model's kernels: the best known so far, or the default where none is better.
    pub ms: f64,
}

/// A task in the course of a search.
#[derive(Clone, Copy, Debug)]
pub struct TaskProgress<'a> {
    pub title: &'a str,
    pub uses: usize,
    /// One call by default.
    pub before_ms: f64,
    /// One call of the best so far.
    pub now_ms: f64,
    pub trials: u64,
}

/// The costliest tasks that an observer is shown.
const COSTLIEST: usize = 5;
/// Moments of a curve that a report has, at most.
const MOMENTS: usize = 200;

impl Run<'_> {
    /// Notes how far the run is, and tells.
    pub fn show(&mut self, observer: &mut dyn Observer) {
        let elapsed = self.clock.elapsed();
        for job in 0..self.jobs.len() {
            let moment = self.moment(job);
            let curve = &mut self.jobs[job].curve;
            if curve.last().is_none_or(|last| last.ms != moment.ms) {
                curve.push(moment);
            }
        }
        self.others.look();
        let (spent, left) = match self.options.stop {
            StopRule::Time(t) => {
                let left = t.saturating_sub(elapsed);
                (elapsed.as_secs_f64() / t.as_secs_f64(), Some(left))
            }
            StopRule::Energy(_) => {
                let left = self.clock.left(Duration::ZERO);
                let all = (elapsed + left).as_secs_f64();
                (elapsed.as_secs_f64() / all.max(1e-9), Some(left))
            }
            StopRule::Trials(n) => (self.trials as f64 / n.max(1) as f64, None),
        };
        let tasks = self.task_progress();
        let sum = |ms: fn(&TaskProgress<'_>) -> f64| -> f64 {
            tasks.iter().map(|t| ms(t) * t.uses as f64).sum()
        };
        let s = &self.searches[self.turn.search];
        observer.status(&Status {
            elapsed,
            spent,
            left,
            reading: self.evaluators[s.evaluator].reads_for().is_some(),
            trials: self.trials,
            trials_per_s: self.trials as f64 / elapsed.as_secs_f64(),
            failures: self.searches.iter().flat_map(|s| s.failures.values()).sum(),
            start_ms: sum(|t| t.before_ms),
            model_ms: match tasks.is_empty() {
                true => self.models().iter().map(|t| self.tasks_ns(t)).sum::<f64>() / 1e6,
                false => sum(|t| t.now_ms),
            },
            tasks: self.searches.len(),
            tasks_measured: self
                .searches
                .iter()
                .filter(|s| s.trials + s.cached > 0)
                .count(),
            task: &s.title,
            task_best_ms: self.best_ns(s).map(|ns| ns / 1e6),
            others: self.others.now,
            joules: self.options.energy.as_ref().map(|a| a.so_far()),
            costliest: &tasks[..tasks.len().min(COSTLIEST)],
        });
    }

    fn moment(&self, job: usize) -> Moment {
        let of = &self.jobs[job];
        let tasks = of.searches.iter().zip(&of.default_ns);
        let ns = tasks.map(|(t, default)| {
            let best = self.best_ns(&self.searches[t.search]);
            best.map_or(*default, |ns| ns.min(*default)) * t.uses as f64
        });
        let joules = self.options.energy.as_ref().map(|a| a.so_far());
        Moment {
            s: self.clock.elapsed().as_secs_f64(),
            trials: self.trials,
            joules: joules.map(|j| j.most),
            least_joules: joules.map(|j| j.least),
            ms: ns.sum::<f64>() / 1e6,
        }
    }

    /// The tasks of all models, the costliest first.
    fn task_progress(&self) -> Vec<TaskProgress<'_>> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for job in &self.jobs {
            for (t, default) in job.searches.iter().zip(&job.default_ns) {
                let s = &self.searches[t.search];
                if !seen.insert(t.search) {
                    continue;
                }
                let now = self.best_ns(s).map_or(*default, |ns| ns.min(*default));
                all.push(TaskProgress {
                    title: &s.title,
                    uses: s.uses,
                    before_ms: default / 1e6,
                    now_ms: now / 1e6,
                    trials: s.trials,
                });
            }
        }
        let cost = |t: &TaskProgress<'_>| t.now_ms * t.uses as f64;
        all.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
        all
    }

    /// Notes where the search of each model ended: ranking measures its kernels again, which is no gain of the search.
    pub fn end_curves(&mut self) {
        for job in 0..self.jobs.len() {
            let moment = self.moment(job);
            self.jobs[job].curve.push(moment);
        }
    }

    /// The curve of a model's search, of no more moments than a report needs. Candidates that had scores have their
    /// times at its end.
    pub fn curve(&self, job: usize) -> Vec<Moment> {
        let mut curve = self.jobs[job].curve.clone();
        if !self.is_timed(job) && !curve.is_empty() {
            curve.push(self.moment(job));
        }
        let last = curve.len().saturating_sub(1);
        let every = curve.len().div_ceil(MOMENTS).max(1);
        let kept = curve.into_iter().enumerate();
        let kept = kept.filter(|(i, _)| i % every == 0 || *i == last);
        kept.map(|(_, m)| m).collect()
    }
}

/// How often the CPUs are looked at.
const LOOK: Duration = Duration::from_secs(4);
/// CPUs that others take all the time without being noticed.
const NOTICED: f64 = 0.3;

/// CPU time of everything and of this run, in seconds.
#[derive(Clone, Copy, Debug)]
struct Used {
    at: Instant,
    all_s: f64,
    own_s: f64,
}

/// What other programs take of the CPUs that this one may use.
#[derive(Debug, Default)]
pub struct Others {
    first: Option<Used>,
    last: Option<Used>,
    /// CPUs that they took when these were looked at last, if that is worth a notice.
    pub now: Option<f64>,
}

impl Others {
    fn look(&mut self) {
        if self.last.is_some_and(|last| last.at.elapsed() < LOOK) {
            return;
        }
        let Some(used) = used() else { return };
        self.now = self.last.and_then(|last| others(last, used));
        self.first = self.first.or(Some(used));
        self.last = Some(used);
    }

    /// What people should know of the time since the run began.
    pub fn warning(&self) -> Option<String> {
        let taken = others(self.first?, self.last?)?;
        Some(format!(
            "other programs took {taken:.1} of {} CPUs while candidates were measured, so times are \
             less certain",
            cpus().len().max(1)
        ))
    }
}

/// CPUs that others took between two looks, if that is worth a notice.
fn others(from: Used, to: Used) -> Option<f64> {
    let wall_s = (to.at - from.at).as_secs_f64();
    let taken = (to.all_s - from.all_s) - (to.own_s - from.own_s);
    let taken = taken / wall_s.max(1e-3);
    (wall_s > 1.0 && taken > NOTICED).then_some(taken)
}

/// CPU time so far; none where the system does not tell.
fn used() -> Option<Used> {
    // SAFETY: a question about the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    Some(Used {
        at: Instant::now(),
        all_s: busy_ticks(&stat, &cpus())? as f64 / ticks,
        own_s: family_cpu_s(),
    })
}

/// Ticks that these CPUs were busy, of the text of `/proc/stat`.
fn busy_ticks(stat: &str, cpus: &[usize]) -> Option<u64> {
    let busy = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu: usize = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        // user nice system idle iowait irq softirq steal; guests are in user.
        let ticks: Vec<u64> = words.take(8).map_while(|w| w.parse().ok()).collect();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        let all: u64 = ticks.iter().sum();
        cpus.contains(&cpu).then(|| all - idle)
    };
    let of_cpus: Vec<u64> = stat.lines().filter_map(busy).collect();
    (!of_cpus.is_empty()).then(|| of_cpus.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  300 0 30 900 10 0 0 0 0 0\ncpu0 100 5 10 400 5 1 2 3 0 0\ncpu1 200 0 20 500 5 0 0 0 0 0\nintr 5\n";

    #[test]
    fn busy_time_is_that_of_the_cpus_asked_for() {
        assert_eq!(busy_ticks(STAT, &[0]), Some(121));
        assert_eq!(busy_ticks(STAT, &[0, 1]), Some(341));
        assert_eq!(busy_ticks(STAT, &[7]), None);
        assert_eq!(busy_ticks("", &[0]), None);
        assert!(used().is_some_and(|u| u.all_s > 0.0 && u.own_s > 0.0));
    }

    #[test]
    fn little_that_others_take_is_no_notice() {
        let at = Instant::now();
        let used = |s: u64, all_s, own_s| Used {
            at: at + Duration::from_secs(s),
            all_s,
            own_s,
        };
        assert_eq!(others(used(0, 0.0, 0.0), used(10, 12.0, 10.0)), None);
        assert_eq!(others(used(0, 5.0, 1.0), used(10, 25.0, 11.0)), Some(1.0));
        assert_eq!(others(used(0, 0.0, 0.0), used(0, 1.0, 0.0)), None);
    }
}
