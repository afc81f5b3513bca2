//! What each filter of a run dropped, what that saved, what the filter itself took, and by an audit what it cost.
//!
//! A dropped candidate saves what a usual one of its search takes from there on. Whether it was worth measuring is known of
//! audited ones alone: see [`crate::Options::audit`].

use crate::energy::{Energy, Metered};
use crate::filter::{Cold, FRACTION, Filter, PASSES};
use crate::search::{Filtering, Search};
use crate::trial::Form;
use search::{Label, label};
use serde::Serialize;

/// What a filter itself took.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FilterCost {
    /// Its parts in CPU time: reading a network that was trained before, training one, judging candidates, and having the
    /// strategy propose those that it dropped.
    pub loading_cpu_s: f64,
    pub training_cpu_s: f64,
    pub judging_cpu_s: f64,
    pub asking_cpu_s: f64,
    /// Their sum, and its share of the CPU time of the command.
    pub cpu_s: f64,
    pub share_of_cpu: f64,
    /// Joules above idle, by each meter of the run, and their share of what that meter says of the command.
    pub joules: Vec<f64>,
    pub share_of_joules: Vec<f64>,
}

impl FilterCost {
    fn of(spent: Filtering, loading_ns: u64) -> FilterCost {
        let s = |ns: u64| ns as f64 / 1e9;
        FilterCost {
            loading_cpu_s: s(loading_ns),
            training_cpu_s: s(spent.learning_ns),
            judging_cpu_s: s(spent.judging_ns),
            asking_cpu_s: s(spent.asking_ns),
            cpu_s: s(loading_ns + spent.all_ns()),
            ..FilterCost::default()
        }
    }
}

/// A filter of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunnelStage {
    pub filter: String,
    /// Candidates that were not evaluated.
    pub dropped: u64,
    /// What evaluating them would have taken, at the mean of their search's candidates.
    pub saved_s: f64,
    pub saved_cpu_s: f64,
    /// Joules above idle, by each meter of the run.
    pub saved_j: Vec<f64>,
    pub took: FilterCost,
    /// Candidates that it would have dropped and that were evaluated all the same; of these, the ones that are not slower than
    /// the trend of their search, and those without a cost.
    pub audited: u64,
    pub hot: u64,
    pub failed: u64,
    /// The least cost of an audited candidate over the least of its search: below 1 the filter would have lost the best.
    pub best_audited: Option<f64>,
}

impl FunnelStage {
    fn new(filter: &str) -> FunnelStage {
        FunnelStage {
            filter: filter.into(),
            dropped: 0,
            saved_s: 0.0,
            saved_cpu_s: 0.0,
            saved_j: vec![],
            took: FilterCost::default(),
            audited: 0,
            hot: 0,
            failed: 0,
            best_audited: None,
        }
    }

    /// Counts what was saved and taken in joules, and what part of the command the filter took. Without an account its
    /// CPU time is known alone.
    pub(crate) fn count(&mut self, energy: Option<&Energy>, cpu_s: f64) {
        let cpu_s = energy.map_or(cpu_s, |e| e.cpu_s);
        let meters = energy.map_or(&[][..], |e| &e.by);
        let rate = |s: f64| meters.iter().map(|m| m.joules_per_cpu_s * s).collect();
        self.saved_j = rate(self.saved_cpu_s);
        let took = &mut self.took;
        took.joules = rate(took.cpu_s);
        took.share_of_cpu = took.cpu_s / cpu_s.max(1e-9);
        let share = |(j, m): (&f64, &Metered)| j / m.joules.max(1e-9);
        took.share_of_joules = took.joules.iter().zip(meters).map(share).collect();
    }

    fn add(&mut self, s: &Search, filter: &dyn Filter, labels: &[Label]) {
        let dropped = s.skipped.get(filter.name()).copied().unwrap_or(0);
        // Code that is dropped was built; what was read is built again.
        let building = if filter.form() < Form::Code { 1.0 } else { 0.0 };
        let mean_s = |building_ns: u64, evaluating_ns: u64| {
            let ns = building * building_ns as f64 + evaluating_ns as f64;
            ns / 1e9 / s.told.max(1) as f64
        };
        let (build, evaluate) = (&s.building, &s.evaluating);
        self.dropped += dropped;
        self.saved_s += dropped as f64 * mean_s(build.wall_ns, evaluate.wall_ns);
        self.saved_cpu_s += dropped as f64 * mean_s(build.cpu_ns, evaluate.cpu_ns);
        let by_filter = |by: Option<&str>| by == Some(filter.name());
        let others = s.history.iter().filter(|(_, by)| !by_filter(*by));
        let best = others.filter_map(|(cost, _)| *cost).reduce(f64::min);
        for ((cost, by), label) in s.history.iter().zip(labels) {
            if !by_filter(*by) {
                continue;
            }
            self.audited += 1;
            self.hot += u64::from(*label == Label::Hot);
            self.failed += u64::from(*label == Label::Failed);
            if let (Some(cost), Some(best)) = (cost, best) {
                let ratio = cost / best;
                self.best_audited = Some(self.best_audited.map_or(ratio, |r| r.min(ratio)));
            }
        }
    }
}

/// The filters of searches, which all have the same ones, given what reading the network of [`Cold`] took.
pub fn funnel(searches: &[&Search], loading_ns: u64) -> Vec<FunnelStage> {
    let Some(first) = searches.first() else {
        return vec![];
    };
    let mut stages: Vec<FunnelStage> = first
        .filters
        .iter()
        .map(|f| FunnelStage::new(f.name()))
        .collect();
    for s in searches {
        let costs: Vec<Option<f64>> = s.history.iter().map(|(cost, _)| *cost).collect();
        let labels = label(&costs, FRACTION, PASSES).map_or(vec![], |l| l.labels);
        for (stage, filter) in stages.iter_mut().zip(&s.filters) {
            stage.add(s, &**filter, &labels);
        }
    }
    for (at, stage) in stages.iter_mut().enumerate() {
        let mut spent = Filtering::default();
        let of_searches = searches.iter().filter_map(|s| s.filtering.get(at));
        of_searches.for_each(|f| spent += *f);
        let loading_ns = if stage.filter == Cold::NAME {
            loading_ns
        } else {
            0
        };
        stage.took = FilterCost::of(spent, loading_ns);
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn metered(joules: f64, joules_per_cpu_s: f64) -> Metered {
        Metered {
            source: "meter".into(),
            joules,
            idle_j: 0.0,
            phases: BTreeMap::new(),
            tasks: BTreeMap::new(),
            joules_per_cpu_s,
            mj_per_ms: None,
        }
    }

    #[test]
    fn what_a_filter_took_is_set_against_the_whole_command() {
        let spent = Filtering {
            learning_ns: 200_000_000,
            judging_ns: 100_000_000,
            asking_ns: 50_000_000,
        };
        let mut stage = FunnelStage {
            saved_cpu_s: 10.0,
            took: FilterCost::of(spent, 150_000_000),
            ..FunnelStage::new("cold")
        };
        stage.count(None, 5.0);
        let took = &stage.took;
        assert_eq!((took.cpu_s, took.share_of_cpu), (0.5, 0.1));
        assert!(took.joules.is_empty() && stage.saved_j.is_empty());
        let energy = Energy {
            estimated: true,
            usual: true,
            wall_s: 30.0,
            cpu_s: 25.0,
            by: vec![metered(100.0, 2.0), metered(160.0, 4.0)],
            devices: vec![],
            money: None,
            failed: None,
        };
        stage.count(Some(&energy), 5.0);
        let took = &stage.took;
        assert_eq!(took.share_of_cpu, 0.02);
        assert_eq!(took.joules, [1.0, 2.0]);
        assert_eq!(took.share_of_joules, [0.01, 0.0125]);
        assert_eq!(stage.saved_j, [20.0, 40.0]);
    }
}
