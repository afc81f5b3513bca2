//! What a run found, for people and for `--json`.

use crate::StopRule;
use crate::compile::Warning;
use crate::energy::Energy;
use crate::funnel::{FunnelStage, funnel};
use crate::latency;
use crate::layouts::Layouts;
use crate::observer::Observer;
use crate::outlook::Outlook;
use crate::progress::Moment;
use crate::quality::ModelQuality;
use crate::run::{CoreSetUse, Run, TaskSearch};
use crate::search::Search;
use measure::energy::own_cpu_s;
use plan::{Plan, Task};
use search::Candidate;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use store::{InModelDecision, InModelTotal, Paired, SurveyEpoch};

/// What the final table shows of one task.
#[derive(Clone, Debug, Serialize)]
pub struct TaskSummary {
    pub task: String,
    pub key: String,
    pub uses: usize,
    /// Share of the time of all steps of the model that the run made.
    pub share: f64,
    /// One call in the default model, and in the model that the run made; none if the task
    /// belongs to no step.
    pub before_ms: Option<f64>,
    pub after_ms: Option<f64>,
    /// One call under the plain schedule, if that was asked for.
    pub plain_ms: Option<f64>,
    /// One call of the best candidate alone, with no model around it.
    pub alone_ms: Option<f64>,
    pub gflops_per_s: Option<f64>,
    /// The part of the peak for its element type that this is.
    pub of_peak: Option<f64>,
    /// Operations of one call, and the bytes of its operands and results.
    pub gflop: f64,
    pub mbytes: f64,
    /// The peak for its element type.
    pub peak_gflops: f64,
    pub trials: u64,
    /// Of finding, building and measuring its candidates, summed over them.
    pub spent_s: f64,
    /// Whether its code is another than by default.
    pub changed: bool,
    pub algorithm: Option<String>,
    /// Relative error (L2) of its outputs.
    pub rel_l2: Option<f64>,
    /// What the whole model said of its near-best candidates.
    pub in_model: Option<InModelDecision>,
    /// How well the strategy's model foretold what was measured; none of a strategy without one.
    pub forecasts: Option<ModelQuality>,
    pub failures: BTreeMap<String, u64>,
    /// Candidates that filters dropped, by filter.
    pub skipped: BTreeMap<String, u64>,
}

/// How a survey, or one of several tuners of a model, went.
#[derive(Clone, Debug, Serialize)]
pub struct Surveyed {
    pub strategy: String,
    pub trials: u64,
    /// Sum of the model's kernels, the best so far.
    pub kernels_ms: f64,
    /// Seconds that assembling and measuring the whole model took.
    pub whole_s: f64,
    /// The whole model before any batch and after each epoch; nothing under other budgets.
    pub epochs: Vec<SurveyEpoch>,
}

/// A run that was cut off or stopped, as the run that goes on from it sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoesOnFrom {
    pub run: String,
    /// Candidates that it, and those before it, have answers of.
    pub trials: u64,
}

impl GoesOnFrom {
    /// The last of these runs, unless no search has an answer of it.
    pub(crate) fn of(runs: &[String], searches: &[Search]) -> Option<GoesOnFrom> {
        let trials: u64 = searches.iter().map(|s| s.before.trials).sum();
        let run = runs.last().filter(|_| trials > 0)?.clone();
        Some(GoesOnFrom { run, trials })
    }
}

impl fmt::Display for GoesOnFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (run, trials) = (&self.run, self.trials);
        let candidates = match trials {
            1 => "the candidate that it has an answer of is",
            _ => "the candidates that it has answers of are",
        };
        write!(
            f,
            "this run goes on from run {run}, which did not end: {candidates} not measured again ({trials})"
        )
    }
}

/// How many times as fast a tuned model is as the defaults, by rounds in which both ran.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Gain {
    /// The median of the rounds' ratios.
    pub times: f64,
    /// Bounds of that median, with a confidence of 95%: of models that were made anew, by the
    /// medians of each ([`store::bounds_of_medians`]), of one alone by its rounds
    /// ([`store::median_bounds`]); of fewer than six rounds, the least and the largest ratio that
    /// was met.
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
}

impl Gain {
    const CONFIDENCE: f64 = 0.95;

    /// Of the logarithms of the rounds' ratios, for each time that the models were made.
    pub fn of(faster: &[Vec<f64>]) -> Gain {
        let medians: Vec<f64> = faster.iter().map(|f| store::median_of(f)).collect();
        let of_models = store::bounds_of_medians(medians, Gain::CONFIDENCE);
        let faster = &faster.concat()[..];
        let least = faster.iter().copied().fold(f64::INFINITY, f64::min);
        let most = faster.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let bounds = of_models.or_else(|| store::median_bounds(faster, Gain::CONFIDENCE));
        let (low, high) = bounds.unwrap_or((least, most));
        // The bounds are of medians of groups, and few rounds may have their median outside.
        let middle = store::median_of(faster);
        Gain {
            times: middle.exp(),
            low: low.min(middle).exp(),
            high: high.max(middle).exp(),
            rounds: faster.len(),
        }
    }

    /// Whether a bound is more than so many times off.
    pub fn is_wide(&self, times: f64) -> bool {
        self.high / self.times > times || self.times / self.low > times
    }
}

/// What a run found; `--json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub model: String,
    pub target: String,
    pub threads: u32,
    pub strategy: String,
    pub measure: String,
    /// What candidates were scored by, where they were not timed: cycles of a processor, or a simulator's count.
    pub scores: Option<String>,
    /// strict or relaxed, and the largest relative error (L2) it allowed a candidate.
    pub accuracy: String,
    /// Whose sketches were searched: rules, templates or all.
    pub space: String,
    pub tolerance: f64,
    pub seed: u64,
    /// f32 multiply-add peak of all threads, measured when the run began.
    pub peak_gflops: f64,
    /// Bandwidth of memory to all threads.
    pub read_gb_per_s: f64,
    /// What an earlier run did that this one goes on from.
    pub goes_on_from: Option<GoesOnFrom>,
    /// Candidates tried, by all tuners: executed or scored, or not to be built.
    pub trials: u64,
    /// Candidates whose outcome the store knew.
    pub cached: u64,
    /// Outcomes other than a time, by kind.
    pub failures: BTreeMap<String, u64>,
    /// Candidates that filters dropped, by filter.
    pub skipped: BTreeMap<String, u64>,
    /// What each filter dropped, saved, took and cost, in their order.
    pub funnel: Vec<FunnelStage>,
    pub wall_s: f64,
    /// The budget, if it is one of time.
    pub time_s: Option<f64>,
    /// Building, assembling and running the default model.
    pub default_s: f64,
    /// CPU time of this process and of the workers that were waited for or reported it.
    pub cpu_s: f64,
    /// Joules of the command so far, if they are counted.
    pub energy: Option<Energy>,
    pub trials_per_s: f64,
    /// Of the latencies: `thread_cpu`, which leaves out what preempted a single
    /// thread, or `wall`.
    pub latency_clock: String,
    /// Of the plain model, whose runs may take a hundred times as long: the sum of its
    /// steps' least wall times; none if it was not asked for or there was no time.
    pub latency_plain_ms: Option<f64>,
    pub latency_default_ms: f64,
    /// Of the model that the run made.
    pub latency_after_ms: f64,
    /// How the tuned kernels did against the defaults; none if they are the same code.
    pub gain: Option<Gain>,
    /// Whether the model that the run made differs from the default one.
    pub changed: bool,
    /// How much faster the defaults are than the tuned kernels, if they are kept: the model is
    /// made of them.
    pub kept_default: Option<Paired>,
    /// Sum of the steps of the model that the run made.
    pub kernels_ms: f64,
    /// How a survey went; where several tuners tuned the model, each of them.
    pub survey: Vec<Surveyed>,
    /// What each core set did, where there are several; for all models of the run.
    pub core_sets: Vec<CoreSetUse>,
    /// How the sum of the model's kernels fell in the search.
    pub curve: Vec<Moment>,
    /// Whether more time is likely to help.
    pub outlook: Outlook,
    /// Whether the run was asked to stop before its time.
    pub stopped: bool,
    pub layouts: Layouts,
    /// The last choices, by whole-model latency.
    pub in_model: InModelTotal,
    /// How well the strategy's models foretold what was measured: means over the tasks that have them.
    pub forecasts: Option<ModelQuality>,
    pub artifact: Option<String>,
    /// Default schedules that are not the intended ones.
    pub warnings: Vec<Warning>,
    /// What made figures of the run doubtful, or took runners from it.
    pub disturbances: Vec<String>,
    pub tasks: Vec<TaskSummary>,
}

/// Milliseconds of one call of a task, from a profile of the model's steps.
fn call_ms(plan: &Plan, key: &str, step_ns: &[u64]) -> Option<f64> {
    let own = plan
        .steps
        .iter()
        .zip(step_ns)
        .filter(|(s, _)| plan.tasks[s.task].key == key);
    let (calls, ns) = own.fold((0u64, 0u64), |(n, sum), (_, ns)| (n + 1, sum + ns));
    (calls > 0).then(|| ns as f64 / calls as f64 / 1e6)
}

/// Times under the plain schedule, from a profile of the plain model.
pub fn fill_plain(report: &mut Report, plan: &Plan, step_ns: &[u64]) {
    report.latency_plain_ms = Some(step_ns.iter().sum::<u64>() as f64 / 1e6);
    for t in &mut report.tasks {
        t.plain_ms = call_ms(plan, &t.key, step_ns);
    }
}

/// The defaults in place of the candidates that were best alone, where they are kept: in the steps of the model.
pub fn fill_defaults(report: &mut Report, plan: &Plan, defaults: &[Candidate]) {
    for t in report.tasks.iter_mut().filter(|t| t.uses > 0) {
        let task = plan.tasks.iter().position(|p| p.key == t.key);
        t.algorithm = task.map(|i| defaults[i].algorithm.clone());
        (t.alone_ms, t.rel_l2, t.in_model) = (None, None, None);
    }
}

/// Times of tasks in the default model and in the one that the run made, from the least times
/// of their steps; shares and rates follow.
///
/// `changed` says of each task of the plan whether its code differs. Two times of the same code are two
/// measurements of one thing, so the lower one counts for both.
pub fn fill_times(
    report: &mut Report,
    plan: &Plan,
    [before, after]: &[Vec<u64>; 2],
    changed: &[bool],
) {
    report.kernels_ms = after.iter().sum::<u64>() as f64 / 1e6;
    for t in &mut report.tasks {
        let task = plan.tasks.iter().position(|p| p.key == t.key);
        t.changed = report.changed && task.is_some_and(|i| changed[i]);
        t.before_ms = call_ms(plan, &t.key, before);
        t.after_ms = call_ms(plan, &t.key, after);
        if let (false, Some(before), Some(after)) = (t.changed, t.before_ms, t.after_ms) {
            let one = before.min(after);
            (t.before_ms, t.after_ms) = (Some(one), Some(one));
        }
        let ms = t.after_ms.unwrap_or(0.0);
        t.share = ms * t.uses as f64 / report.kernels_ms;
        t.gflops_per_s = Some(t.gflop / ms * 1e3).filter(|rate| rate.is_finite());
        t.of_peak = t.gflops_per_s.map(|rate| rate / t.peak_gflops);
    }
    report.tasks.sort_by(|a, b| b.share.total_cmp(&a.share));
}

impl Run<'_> {
    /// The report of a model without whole-model latencies.
    pub fn report(
        &self,
        job: usize,
        start_cpu_s: f64,
        layouts: Layouts,
        in_model: InModelTotal,
    ) -> Report {
        let of = &self.jobs[job];
        let several = self.options.tuners.len() > 1;
        let searches = self.counted(job);
        let target = of.making.target;
        let peak = of.peak_gflops;
        let summary = |(t, task): (&TaskSearch, &Task)| {
            let s = &self.searches[t.search];
            let of_tuners = self.searches.iter().filter(|o| several && o.key == s.key);
            let all: Vec<&Search> = of_tuners.collect();
            let tried = if several { &all[..] } else { &[s] };
            summary(s, tried, t.uses, task, peak)
        };
        let own = of.searches.iter().zip(&of.plan.tasks);
        let tasks: Vec<TaskSummary> = own.map(summary).collect();
        let of_job = || of.searches.iter().map(|t| &self.searches[t.search]);
        let unmeasured = of_job().filter(|s| s.trials + s.cached == 0).count();
        let open = of_job().any(Search::is_open);
        let curve = self.curve(job);
        let compared = in_model.skipped.is_none();
        let outlook = Outlook::of(&curve, tasks.len(), unmeasured, open, compared);
        let sum =
            |of: fn(&Search) -> &BTreeMap<String, u64>| summed(searches.iter().map(|s| of(s)));
        let loading = self.options.cold.as_ref().map(|t| t.loading_cpu_ns);
        Report {
            model: of.plan.name.clone(),
            target: target.name().into(),
            threads: target.threads(),
            strategy: of.strategy.clone(),
            measure: self.options.measure.policy.name().into(),
            scores: searches.iter().find_map(|s| self.scores_of(s)),
            accuracy: self.options.accuracy.to_string(),
            space: self.options.space.to_string(),
            tolerance: self.options.tolerance,
            seed: self.options.seed,
            peak_gflops: peak,
            read_gb_per_s: of.read_gb_per_s,
            goes_on_from: of.goes_on_from.clone(),
            trials: searches.iter().map(|s| s.trials).sum(),
            cached: searches.iter().map(|s| s.cached).sum(),
            failures: sum(|s| &s.failures),
            skipped: sum(|s| &s.skipped),
            funnel: funnel(&searches, loading.unwrap_or(0)),
            wall_s: self.clock.elapsed().as_secs_f64(),
            time_s: match self.options.stop {
                StopRule::Time(t) => Some(t.as_secs_f64()),
                StopRule::Trials(_) | StopRule::Energy(_) => None,
            },
            default_s: f64::NAN,
            cpu_s: own_cpu_s() - start_cpu_s + self.worker_cpu_ns as f64 / 1e9,
            energy: None,
            trials_per_s: self.trials as f64 / self.tuning.as_secs_f64().max(1e-9),
            latency_clock: latency::clock_name(target.threads()).into(),
            latency_plain_ms: None,
            latency_default_ms: f64::NAN,
            latency_after_ms: f64::NAN,
            gain: None,
            changed: false,
            kept_default: None,
            kernels_ms: f64::NAN,
            survey: self.survey_of(job),
            core_sets: self.set_use(),
            outlook,
            curve,
            stopped: self.clock.is_stopped(),
            layouts,
            in_model,
            forecasts: ModelQuality::mean(tasks.iter().filter_map(|t| t.forecasts.as_ref())),
            artifact: None,
            warnings: vec![],
            disturbances: self.disturbances(),
            tasks,
        }
    }
}

impl Run<'_> {
    /// Says what the run goes on from.
    pub(crate) fn note_earlier(&self, observer: &mut dyn Observer) {
        let earlier = self.jobs.iter().filter_map(|j| j.goes_on_from.as_ref());
        earlier.for_each(|e| observer.note(&e.to_string()));
    }

    /// What a search's candidates were scored by; none if they were timed.
    fn scores_of(&self, s: &Search) -> Option<String> {
        let now = || self.evaluators[s.evaluator].score_kind(&s.key);
        s.scores.clone().or_else(now)
    }

    /// The searches whose candidates a model's report counts. What was tried for a model before is not counted again, and
    /// what all tuners of a model tried counts.
    fn counted(&self, job: usize) -> Vec<&Search> {
        let own = |job: usize| {
            let of = &self.jobs[job];
            let all = of.searches.iter().map(|t| &self.searches[t.search]);
            all.filter(|s| s.run_id == of.run_id)
        };
        self.of_all_tuners(job).flat_map(own).collect()
    }

    /// How the survey of a model went, or that of each of its tuners; nothing under other budgets.
    fn survey_of(&self, job: usize) -> Vec<Surveyed> {
        match (self.options.tuners.is_empty(), self.epochs.is_empty()) {
            (true, true) => vec![],
            (true, false) => self.surveyed(&[job]),
            (false, _) => self.surveyed(&self.of_all_tuners(job).collect::<Vec<_>>()),
        }
    }

    /// How the surveys of models went.
    pub(crate) fn surveyed(&self, jobs: &[usize]) -> Vec<Surveyed> {
        let one = |job: &usize| {
            let of = &self.jobs[*job];
            let trials = of.searches.iter().map(|t| self.searches[t.search].trials);
            Surveyed {
                strategy: of.strategy.clone(),
                trials: trials.sum(),
                kernels_ms: self.kernels_ns(*job) / 1e6,
                whole_s: of.measuring_whole.as_secs_f64(),
                epochs: self.epochs.get(*job).cloned().unwrap_or_default(),
            }
        };
        jobs.iter().map(one).collect()
    }

    /// What made figures of the run doubtful.
    fn disturbances(&self) -> Vec<String> {
        let warnings = self.disturbances.warnings.iter().cloned();
        warnings.chain(self.others.warning()).collect()
    }
}

/// Counts by name, of several searches.
fn summed<'a>(all: impl Iterator<Item = &'a BTreeMap<String, u64>>) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for (name, n) in all.flatten() {
        *sum.entry(name.clone()).or_insert(0) += n;
    }
    sum
}

/// What the report says of a search, and of all searches that tried candidates of its task, before the times of its
/// model are known.
fn summary(
    s: &Search,
    tried: &[&Search],
    uses: usize,
    task: &Task,
    peak_gflops: f64,
) -> TaskSummary {
    let factor = s.subject.as_ref().map_or(1.0, |of| of.peak_factor);
    TaskSummary {
        task: s.title.clone(),
        key: s.key.to_string(),
        uses,
        share: f64::NAN,
        before_ms: None,
        after_ms: None,
        plain_ms: None,
        alone_ms: s.best_cost().map(|ns| ns / 1e6),
        gflops_per_s: None,
        of_peak: None,
        gflop: task.flops / 1e9,
        mbytes: task.bytes / 1e6,
        peak_gflops: factor * peak_gflops,
        trials: tried.iter().map(|s| s.trials).sum(),
        spent_s: tried.iter().map(|s| s.spent_ns as f64 / 1e9).sum(),
        changed: false,
        algorithm: s.best.first().map(|b| b.algorithm().to_string()),
        rel_l2: s.best.first().and_then(|b| b.rel_l2),
        in_model: s.in_model.clone(),
        forecasts: ModelQuality::of(&s.strategy.forecasts()[s.before.forecasts..]),
        failures: summed(tried.iter().map(|s| &s.failures)),
        skipped: summed(tried.iter().map(|s| &s.skipped)),
    }
}
