//! A survey of the run's models: when they are measured whole, and what that says.
//!
//! Owns the measurement and its log. When a survey goes on is its budget's decision ([`search::Survey`]).

use super::{Run, TaskSearch};
use crate::StopRule;
use crate::energy::Stage;
use crate::error::Result;
use crate::latency::undisturbed;
use crate::record;
use runtime::BuiltKernel;
use search::{Epoch, Spending, WholeModel};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Extra, NewEvent, SurveyEpoch};

/// Inferences of a whole model, at least, and the time for more.
const LEAST_RUNS: usize = 5;
const TIME: Duration = Duration::from_millis(300);

impl Run<'_> {
    /// Measures the models where a survey is at the end of an epoch; whether a turn may follow. It may not while
    /// something is on its way, nor where no time is left.
    pub(super) fn survey(&mut self) -> Result<bool> {
        let standings = self.standings();
        let survey = self.budget.survey();
        if !survey.is_some_and(|s| s.is_epoch_over(&standings)) {
            return Ok(true);
        }
        if self.in_flight() > 0
            || self.spent()
            || self.measuring_whole() > self.clock.left(self.afterwards())
        {
            return Ok(false);
        }
        self.options.enter(Stage::Model);
        let models = self.whole_models()?;
        self.options.enter(Stage::Search);
        let (spending, unit) = self.spending();
        let Some(survey) = self.budget.survey() else {
            return Ok(true);
        };
        let epoch = survey.measured(&models, spending, &standings);
        let runs: Vec<bool> = epoch.models.iter().map(|m| m.runs).collect();
        self.deal_sets(&runs);
        self.note_epoch(&epoch, spending.spent, unit)?;
        Ok(true)
    }

    /// What measuring all models takes at least.
    fn measuring_whole(&self) -> Duration {
        let of = self
            .jobs
            .iter()
            .map(|j| j.size.assembling + (LEAST_RUNS as u32 + 1) * j.size.inference);
        of.sum()
    }

    /// What the run spent: joules of a budget of joules, and seconds otherwise. Tables have no time of their own.
    fn spending(&self) -> (Spending, &'static str) {
        let sum = |of: fn(&crate::Search) -> u64| self.searches.iter().map(of).sum();
        let (fresh, known) = (sum(|s| s.told), sum(|s| s.cached));
        let (spent, unit) = match (self.options.stop, &self.options.energy) {
            (StopRule::Energy(_), Some(account)) => (account.used_j(), "J"),
            _ if self.jobs.is_empty() => (self.trials as f64, "trials"),
            _ => (self.clock.elapsed().as_secs_f64(), "s"),
        };
        (
            Spending {
                spent,
                fresh,
                known,
            },
            unit,
        )
    }

    fn whole_models(&mut self) -> Result<Vec<WholeModel>> {
        let all = self.models();
        let mut costs = Vec::new();
        for (model, tasks) in all.iter().enumerate() {
            costs.push(match self.jobs.is_empty() || !self.is_timed(model) {
                true => self.sum_of_costs(tasks),
                false => self.whole_ns(model)?,
            });
        }
        // One of several tuners of a model suffices.
        let requested = self.finished(all.len()).max(1);
        let suffices = |model: usize| {
            let wanted = self.options.wanted_ns.get(model % requested);
            let of_tuners = costs.iter().skip(model % requested).step_by(requested);
            wanted.is_some_and(|w| of_tuners.into_iter().any(|cost| cost <= w))
        };
        let suffices: Vec<bool> = (0..all.len()).map(suffices).collect();
        let model = |((tasks, cost), suffices): ((Vec<TaskSearch>, f64), bool)| WholeModel {
            cost,
            suffices,
            work: tasks
                .iter()
                .map(|t| self.searches[t.search].spent_ns as f64)
                .sum(),
            searches: tasks.iter().map(|t| t.search).collect(),
        };
        Ok(all
            .into_iter()
            .zip(costs)
            .zip(suffices)
            .map(model)
            .collect())
    }

    fn sum_of_costs(&self, tasks: &[TaskSearch]) -> f64 {
        let cost = |t: &TaskSearch| self.searches[t.search].call_cost() * t.uses as f64;
        tasks.iter().map(cost).sum()
    }

    /// The latency of a model with the best so far. The same kernels have the same latency.
    fn whole_ns(&mut self, job: usize) -> Result<f64> {
        let kernels = self.kernels_so_far(job);
        let same = |a: &[Arc<BuiltKernel>]| a.iter().zip(&kernels).all(|(a, b)| Arc::ptr_eq(a, b));
        if let Some((_, ns)) = self.jobs[job].whole.as_ref().filter(|(of, _)| same(of)) {
            return Ok(*ns);
        }
        let assembling = Instant::now();
        let of = &self.jobs[job];
        let mut model = of.making.model(of.plan, &kernels)?;
        let begin = Instant::now();
        let latencies = undisturbed(&mut [&mut model], LEAST_RUNS, &mut || {
            begin.elapsed() < TIME
        })?;
        let ns = latencies[0].median_ms() * 1e6;
        self.jobs[job].measuring_whole += assembling.elapsed();
        self.jobs[job].whole = Some((kernels, ns));
        Ok(ns)
    }

    /// Of each task the best kernel, or the default where none is faster.
    fn kernels_so_far(&self, job: usize) -> Vec<Arc<BuiltKernel>> {
        let of = &self.jobs[job];
        let defaults = of.default_kernels.iter().zip(&of.default_ns);
        let kernel = |(t, (kernel, ns)): (&TaskSearch, (&Arc<BuiltKernel>, &f64))| {
            let best = self.searches[t.search].best.first();
            let faster = best.filter(|b| b.cost < *ns);
            faster.map_or(kernel, |b| b.kernel()).clone()
        };
        of.searches.iter().zip(defaults).map(kernel).collect()
    }

    /// Logs what a survey says of every model.
    fn note_epoch(&mut self, epoch: &Epoch, spent: f64, unit: &str) -> Result<()> {
        let runs = self.run_ids();
        let joules = self.options.energy.as_ref().map(|a| a.so_far());
        let sets = self.sets_of_models();
        self.epochs.resize(epoch.models.len(), vec![]);
        let mut events: Vec<NewEvent> = Vec::new();
        let models = epoch.models.iter().zip(runs).zip(sets);
        for (((m, run), sets), epochs) in models.zip(&mut self.epochs) {
            let event = SurveyEpoch {
                epoch: epochs.len(),
                cost: m.cost,
                spent,
                unit: unit.into(),
                joules: joules.map(|j| [j.least, j.most]),
                rate: m.rate,
                runs: m.runs,
                queue: m.queue,
                core_sets: if m.runs { sets } else { vec![] },
                ended: epoch.ended.map(|e| e.name().into()),
                extra: Extra::new(),
            };
            events.push(record::run_event(&run, event.clone()));
            epochs.push(event);
        }
        self.log.append(&[], &events)
    }

    /// Keys of the runs of [`Run::models`].
    fn run_ids(&self) -> Vec<Arc<str>> {
        if !self.jobs.is_empty() {
            return self.jobs.iter().map(|j| j.run_id.clone()).collect();
        }
        let runs: BTreeSet<&Arc<str>> = self.searches.iter().map(|s| &s.run_id).collect();
        runs.into_iter().cloned().collect()
    }

    /// The tuner's model of a requested one that is fastest: by what a survey measured last, else by the sum of its kernels.
    pub(crate) fn fastest(&self, requested: usize) -> usize {
        let cost = |model: &usize| match self.epochs.get(*model).and_then(|e| e.last()) {
            Some(last) => last.cost,
            None => self.sum_of_costs(&self.jobs[*model].searches),
        };
        let all = self.of_all_tuners(requested);
        let fastest = all.min_by(|a, b| cost(a).total_cmp(&cost(b)));
        fastest.unwrap_or(requested)
    }
}
