//! What each filter of a run dropped, what that saved, and by an audit what it cost.
//!
//! A dropped candidate saves what a usual one of its search takes from there on. Whether it was worth measuring is known of
//! audited ones alone: see [`crate::Options::audit`].

use crate::filter::{FRACTION, Filter, PASSES};
use crate::search::Search;
use crate::trial::Form;
use search::{Label, label};
use serde::Serialize;

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
            audited: 0,
            hot: 0,
            failed: 0,
            best_audited: None,
        }
    }

    /// Counts joules, given those of a CPU second by each meter.
    pub(crate) fn count_joules(&mut self, rates: &[f64]) {
        self.saved_j = rates.iter().map(|j| j * self.saved_cpu_s).collect();
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

/// The filters of searches, which all have the same ones.
pub fn funnel(searches: &[&Search]) -> Vec<FunnelStage> {
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
    stages
}
