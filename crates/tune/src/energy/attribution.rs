//! From the joules of stages to those of phases and tasks.

use crate::error::Result;
use crate::report::Report;
use crate::run::Run;
use crate::search::Filtering;
use measure::energy::{Price, Work};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::iter::once;
use store::TaskCpu;

/// What a command used so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Energy {
    /// Whether the joules are estimated from busy CPUs, as the machine has no counter that may be
    /// read.
    pub estimated: bool,
    /// Whether idle and estimated power are those of a usual machine, as no file declares them.
    pub usual: bool,
    pub wall_s: f64,
    /// CPU time of this process and its workers.
    #[serde(default)]
    pub cpu_s: f64,
    /// Of the machine without its devices, by the counter, or by each of two curves.
    pub by: Vec<Metered>,
    /// Of devices that count their joules, which come on top.
    #[serde(default)]
    pub devices: Vec<Metered>,
    pub money: Option<Money>,
    /// Why a meter could not be read in the end.
    pub failed: Option<String>,
}

impl Energy {
    /// What the summary of a stored run says; none if its joules were not counted.
    pub fn of_run(run: &store::Run) -> Option<Energy> {
        Energy::deserialize(run.summary.get("energy")?).ok()
    }
}

/// What one meter says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Metered {
    pub source: String,
    pub joules: f64,
    /// The part that an idle machine draws in the same time.
    pub idle_j: f64,
    /// Joules above idle, by phase.
    pub phases: BTreeMap<String, f64>,
    /// Joules above idle of the candidates of a task and their finalists, by its key.
    pub tasks: BTreeMap<String, f64>,
    /// Above idle, in the search: what a candidate used is its CPU time times this.
    pub joules_per_cpu_s: f64,
    /// Megajoules, with those of all devices, for every millisecond by which the model is faster; none if it is not.
    pub mj_per_ms: Option<f64>,
}

/// What a command cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Money {
    pub amount: f64,
    pub price: Price,
}

/// CPU time that is known of a search, in seconds.
#[derive(Debug, Default)]
pub struct KnownCpu {
    /// Of its phases.
    phases: BTreeMap<&'static str, f64>,
    /// Of its candidates, by task.
    tasks: BTreeMap<String, f64>,
    /// Of finalists, by task.
    finalists: BTreeMap<String, f64>,
}

impl KnownCpu {
    /// Of the records of all runs, and of filters. These are part of what searching took for each
    /// record.
    pub fn of(rows: &[TaskCpu], filter_ns: u64) -> KnownCpu {
        let mut known = KnownCpu::default();
        for row in rows {
            let phases = [
                ("search", row.search_ns),
                ("build", row.build_ns),
                ("load", row.load_ns),
                ("measure", row.measure_ns),
                ("check", row.check_ns),
            ];
            let of_task = match row.final_ {
                true => &mut known.finalists,
                false => &mut known.tasks,
            };
            let all_ns: u64 = phases.iter().map(|(_, ns)| ns).sum();
            *of_task.entry(row.task.clone()).or_default() += all_ns as f64 / 1e9;
            if !row.final_ {
                for (phase, ns) in phases {
                    *known.phases.entry(phase).or_default() += ns as f64 / 1e9;
                }
            }
        }
        let filter_s = filter_ns as f64 / 1e9;
        let search_s = known.phases.entry("search").or_default();
        *search_s = (*search_s - filter_s).max(0.0);
        known.phases.insert("filter", filter_s);
        known
    }
}

/// What a meter says of one stage.
pub struct StageUse {
    pub name: &'static str,
    pub work: Work,
    pub joules: f64,
}

/// The parts of joules in the proportion of CPU time. What is not known of all of it, is in no
/// part.
fn parts<K: Ord + Clone>(joules: f64, all_s: f64, known: &BTreeMap<K, f64>) -> BTreeMap<K, f64> {
    let part = |s: &f64| match all_s > 0.0 {
        true => joules * s / all_s,
        false => 0.0,
    };
    known
        .iter()
        .map(|(key, s)| (key.clone(), part(s)))
        .collect()
}

impl Metered {
    /// Of the stages of a run on a machine that draws so much when idle.
    pub fn of(source: &str, idle_w: f64, stages: &[StageUse], known: &KnownCpu) -> Metered {
        let mut metered = Metered {
            source: source.into(),
            joules: stages.iter().map(|s| s.joules).sum(),
            idle_j: 0.0,
            phases: BTreeMap::new(),
            tasks: BTreeMap::new(),
            joules_per_cpu_s: 0.0,
            mj_per_ms: None,
        };
        for stage in stages {
            let idle_j = stage.joules.min(idle_w * stage.work.wall_s);
            let above_j = stage.joules - idle_j;
            metered.idle_j += idle_j;
            let mut phase = |name: &str, joules| {
                *metered.phases.entry(name.to_string()).or_default() += joules;
            };
            let of_tasks = match stage.name {
                "search" => &known.tasks,
                "rank" => &known.finalists,
                name => {
                    phase(name, above_j);
                    continue;
                }
            };
            let in_search = stage.name == "search";
            let known_s: f64 = match in_search {
                true => known.phases.values().sum(),
                false => of_tasks.values().sum(),
            };
            // Clocks of threads and of processes differ a little.
            let all_s = stage.work.cpu_s.max(known_s);
            if in_search {
                let phases = parts(above_j, all_s, &known.phases);
                phase("other", above_j - phases.values().sum::<f64>());
                phases
                    .iter()
                    .for_each(|(name, joules)| phase(name, *joules));
                metered.joules_per_cpu_s = above_j / all_s.max(1e-9);
            } else {
                phase(stage.name, above_j);
            }
            for (task, joules) in parts(above_j, all_s, of_tasks) {
                *metered.tasks.entry(task).or_default() += joules;
            }
        }
        metered
    }

    /// The phases that took most, the largest first, and the idle part.
    pub fn shares(&self) -> Vec<(&str, f64)> {
        let phases = self.phases.iter().map(|(name, j)| (name.as_str(), *j));
        let mut all: Vec<(&str, f64)> = phases.chain(once(("idle", self.idle_j))).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let share = |(name, joules)| (name, joules / self.joules.max(1e-9));
        all.into_iter().map(share).collect()
    }
}

impl Run<'_> {
    /// What the command used until now, of which a model became so much faster; none if nothing
    /// counts it.
    pub fn energy(&self, report: &Report) -> Result<Option<Energy>> {
        let (Some(account), Some(store)) = (&self.options.energy, self.log.store) else {
            return Ok(None);
        };
        let mut rows = Vec::new();
        for job in &self.jobs {
            rows.extend(store.cpu_times(&job.run_id)?);
        }
        let filtering = self.searches.iter().flat_map(|s| &s.filtering);
        let filter_ns = filtering.map(Filtering::all_ns).sum();
        let mut energy = account.energy(&KnownCpu::of(&rows, filter_ns));
        let gained_ms = report.latency_default_ms - report.latency_after_ms;
        if report.changed && gained_ms > 0.0 {
            let devices_j: f64 = energy.devices.iter().map(|d| d.joules).sum();
            for by in &mut energy.by {
                by.mj_per_ms = Some((by.joules + devices_j) / 1e6 / gained_ms);
            }
        }
        Ok(Some(energy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(task: &str, final_: bool, build_s: u64, measure_s: u64) -> TaskCpu {
        TaskCpu {
            task: task.into(),
            final_,
            search_ns: 1_000_000_000,
            build_ns: build_s * 1_000_000_000,
            load_ns: 0,
            measure_ns: measure_s * 1_000_000_000,
            check_ns: 0,
        }
    }

    fn stage(name: &'static str, wall_s: f64, cpu_s: f64, joules: f64) -> StageUse {
        StageUse {
            name,
            work: Work { wall_s, cpu_s },
            joules,
        }
    }

    #[test]
    fn idle_and_phases_sum_to_the_meter() {
        let rows = [
            row("a", false, 4, 3),
            row("b", false, 1, 0),
            row("a", true, 0, 2),
        ];
        let known = KnownCpu::of(&rows, 500_000_000);
        let stages = [
            stage("defaults", 2.0, 1.0, 50.0),
            stage("search", 10.0, 20.0, 300.0),
            stage("rank", 3.0, 3.0, 60.0),
            // Less than an idle machine draws.
            stage("model", 4.0, 0.0, 30.0),
        ];
        let m = Metered::of("meter", 10.0, &stages, &known);
        assert_eq!((m.joules, m.idle_j), (440.0, 20.0 + 100.0 + 30.0 + 30.0));
        let sum = m.idle_j + m.phases.values().sum::<f64>();
        assert!((sum - m.joules).abs() < 1e-9, "{sum}");
        // 200 J above idle for 20 s of CPU time.
        assert_eq!(m.joules_per_cpu_s, 10.0);
        assert_eq!((m.phases["build"], m.phases["measure"]), (50.0, 30.0));
        assert_eq!((m.phases["search"], m.phases["filter"]), (15.0, 5.0));
        assert_eq!((m.phases["other"], m.phases["model"]), (100.0, 0.0));
        assert_eq!((m.tasks["a"], m.tasks["b"]), (80.0 + 30.0, 20.0));
        let shares: f64 = m.shares().iter().map(|(_, share)| share).sum();
        assert!((shares - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_used_no_cpu_time_is_nobodys() {
        let stages = [stage("search", 1.0, 0.0, 30.0)];
        let m = Metered::of("meter", 10.0, &stages, &KnownCpu::default());
        assert_eq!((m.phases["other"], m.idle_j), (20.0, 10.0));
    }
}
