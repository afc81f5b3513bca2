//! From a finished search to a compiled model and its report.

use crate::Tuned;
use crate::choice::{Choice, Time};
use crate::compile::{Builders, assemble_alternatives, named};
use crate::default_model::{DefaultModel, LEAST_PROFILING, PROFILING};
use crate::energy::Stage;
use crate::error::Result;
use crate::known::Lookup;
use crate::layouts::profile;
use crate::observer::Observer;
use crate::record;
use crate::report::{Report, fill_defaults, fill_plain, fill_times};
use crate::run::{Run, TaskSearch};
use crate::start::Prepared;
use crate::stretches::{Stretched, Wanted, stretched};
use runtime::{BuiltKernel, Model};
use search::Candidate;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A model whose search is over.
pub struct Finish<'a> {
    /// Position of the model in the run.
    pub job: usize,
    pub model: &'a Prepared,
    pub default: DefaultModel,
    /// CPU time that this process had taken when the run began.
    pub start_cpu_s: f64,
}

impl Finish<'_> {
    /// Ranks the finalists, chooses among them inside the model, and compares what that
    /// gives with the default model.
    ///
    /// # Errors
    /// If the store cannot be written, or a model cannot be assembled or run.
    pub fn tuned(
        self,
        run: &mut Run<'_>,
        builders: &mut Builders,
        observer: &mut dyn Observer,
    ) -> Result<Tuned> {
        let (job, plan, mut default) = (self.job, &self.model.plan, self.default);
        run.options.enter(Stage::Rank);
        if run.is_timed(job) {
            observer.stage("ranking the finalists alone");
            run.rank_finalists(job, observer)?;
        } else {
            run.time_finalists(job, builders, observer)?;
        }
        let otherwise = run.known_or(job, &default.kernels, builders)?;
        run.options.enter(Stage::Model);
        let in_model = run.decide_in_model(job, &otherwise, observer)?;
        observer.stage("comparing whole models");
        let best = run.best_kernels(job, &otherwise);
        let changed = changed(&best, &default.kernels);
        let of_steps: Vec<bool> = plan.uses().into_iter().map(|uses| uses > 0).collect();
        let mut tuned = match changed.iter().zip(&of_steps).any(|(c, own)| *c && *own) {
            true => Some(run.jobs[job].making.model(plan, &best)?),
            false => None,
        };
        let (clock, aside) = (run.clock.clone(), run.after_comparing(job));
        let left = || clock.left(aside);
        let round = 2 * run.jobs[job].size.inference;
        let time = Time {
            asked: run.options.comparing,
            round,
            making: 2 * run.jobs[job].size.assembling,
            left: &left,
        };
        let again = |which: usize| {
            let kernels = [&default.kernels, &best][which];
            run.jobs[job].making.model(plan, kernels)
        };
        let (step_ns, of_default) = (&default.step_ns, &mut default.model);
        let choice = Choice::between(of_default, step_ns, tuned.as_mut(), &again, &time)?;
        run.keep_choice(job, &choice, &best)?;
        let layouts = self.model.layouts.clone();
        let mut report = run.report(job, self.start_cpu_s, layouts, in_model);
        report.default_s = default.took.as_secs_f64();
        report.warnings = default.defaults.warnings;
        choice.fill(&mut report);
        if choice.default {
            fill_defaults(&mut report, plan, &default.defaults.candidates);
        }
        let mut chosen = tuned.filter(|_| !choice.default);
        let profiled = profiles(&mut default.model, chosen.as_mut(), &left)?;
        fill_times(&mut report, plan, &profiled, &changed);
        if let Some(step_ns) = run.run_plain(job, builders, observer)? {
            fill_plain(&mut report, plan, &step_ns);
        }
        run.end(job, &mut report)?;
        let model = match run.options.alternatives {
            0 | 1 => chosen.unwrap_or(default.model).compiled().clone(),
            most => {
                // What no step runs was not compared.
                let first = |((best, default), own): ((&Arc<_>, &Arc<_>), &bool)| match own {
                    true if choice.default => Arc::clone(default),
                    _ => Arc::clone(best),
                };
                let pairs = best.iter().zip(&default.kernels);
                let first: Vec<_> = pairs.zip(&of_steps).map(first).collect();
                let kernels = run.alternatives(job, &first, &default.kernels, most);
                let stretched = run.stretched(job, self.model, most, builders)?;
                let making = &run.jobs[job].making;
                let (target, accuracy) = (making.target, making.allowed.accuracy);
                let pool = making.pool;
                let model =
                    assemble_alternatives(plan, &kernels, &stretched, target, accuracy, pool)?;
                Arc::new(model)
            }
        };
        Ok(Tuned { report, model })
    }
}

impl Run<'_> {
    /// The best code of every task of a model; `otherwise` where nothing was measured.
    pub fn best_kernels(
        &self,
        job: usize,
        otherwise: &[Arc<BuiltKernel>],
    ) -> Vec<Arc<BuiltKernel>> {
        let pick = |(t, o): (&TaskSearch, &Arc<BuiltKernel>)| {
            let best = self.searches[t.search].best.first().map(|b| b.kernel());
            best.unwrap_or(o).clone()
        };
        let searches = self.jobs[job].searches.iter();
        searches.zip(otherwise).map(pick).collect()
    }

    /// Of each task its first kernel, and behind it others of different code, at most so many in all: the finalists,
    /// the best first, then the default. A task that no step has keeps its first.
    fn alternatives(
        &self,
        job: usize,
        first: &[Arc<BuiltKernel>],
        defaults: &[Arc<BuiltKernel>],
        most: usize,
    ) -> Vec<Vec<Arc<BuiltKernel>>> {
        let of_task = |((t, first), default): ((&TaskSearch, _), &Arc<BuiltKernel>)| {
            let first: &Arc<BuiltKernel> = first;
            let mut all = vec![first.clone()];
            let ranked = self.searches[t.search].best.iter();
            let finalists = ranked.filter_map(|b| b.trial.kernel.as_ref());
            let most = if t.uses == 0 { 1 } else { most };
            for kernel in finalists.chain([default]) {
                let same = all.iter().any(|k| k.code_hash() == kernel.code_hash());
                if all.len() < most && !same {
                    all.push(kernel.clone());
                }
            }
            all
        };
        let searches = self.jobs[job].searches.iter();
        searches.zip(first).zip(defaults).map(of_task).collect()
    }

    /// The stretches of a model with kernels for their other layouts, which nobody tunes.
    fn stretched(
        &self,
        job: usize,
        model: &Prepared,
        most: usize,
        builders: &mut Builders,
    ) -> Result<Stretched> {
        let (of, requirements) = (&self.jobs[job], self.options.requirements());
        let target = of.making.target;
        let lookup = |s| Lookup::new(s, of.plan, target, &of.place.machine, requirements);
        let lookup = self.log.store.map(lookup);
        let wanted = Wanted {
            base: of.plan,
            target,
            requirements,
            lookup: lookup.as_ref(),
        };
        let (stretches, saved) = (model.stretches.clone(), model.saved.clone());
        stretched(stretches, saved, most, &wanted, builders)
    }

    /// What tasks run where this run measured nothing of them: the best that the store
    /// knows, as far as there is time to build that, else their defaults. What another compiler
    /// built may no longer build; that is no reason to end here.
    fn known_or(
        &self,
        job: usize,
        defaults: &[Arc<BuiltKernel>],
        builders: &mut Builders,
    ) -> Result<Vec<Arc<BuiltKernel>>> {
        let mut kernels = defaults.to_vec();
        let Some(store) = self.log.store else {
            return Ok(kernels);
        };
        let requirements = self.options.requirements();
        let of = &self.jobs[job];
        let target = of.making.target;
        let lookup = Lookup::new(store, of.plan, target, &of.place.machine, requirements);
        let mut tasks: HashMap<u64, (usize, Candidate)> = HashMap::new();
        builders.pool.end_by(self.clock.end(self.finishing(job)));
        for (i, task) in of.plan.tasks.iter().enumerate() {
            let s = &self.searches[of.searches[i].search];
            if s.best.is_empty()
                && let Some(subject) = &s.subject
                && let Some(k) = lookup.best(task)?
            {
                let request = builders.request(&subject.text, &k.candidate, target, false);
                tasks.insert(builders.submit(request), (i, k.candidate));
            }
        }
        while let Some(o) = builders.pool.next(builders.patience()) {
            if let (Some((i, candidate)), Ok(Ok(built))) = (tasks.get(&o.id), o.result) {
                kernels[*i] = named(built.kernel, Some(candidate), &of.plan.tasks[*i].program);
            }
        }
        builders.pool.end_by(None);
        Ok(kernels)
    }

    /// Marks the runs of other models than these as ended: other tuners did better. Stopped ones may be gone on from.
    pub(crate) fn end_others(&self, finished: &[usize]) -> Result<()> {
        let Some(store) = self.log.store else {
            return Ok(());
        };
        for (job, of) in self.jobs.iter().enumerate() {
            if !finished.contains(&job) {
                let summary = serde_json::json!({
                    "survey": self.surveyed(&[job]),
                    "stopped": self.clock.is_stopped(),
                });
                store.end_run(&of.run_id, record::unix_ms(), &summary)?;
            }
        }
        Ok(())
    }

    /// Marks a model's run as ended.
    fn end(&self, job: usize, report: &mut Report) -> Result<()> {
        report.wall_s = self.clock.elapsed().as_secs_f64();
        report.energy = self.energy(report)?;
        let (energy, cpu_s) = (report.energy.as_ref(), report.cpu_s);
        let funnel = report.funnel.iter_mut();
        funnel.for_each(|s| s.count(energy, cpu_s));
        let summary = serde_json::to_value(report).unwrap_or_default();
        if let Some(store) = self.log.store {
            store.end_run(&self.jobs[job].run_id, record::unix_ms(), &summary)?;
        }
        Ok(())
    }
}

/// Profiles of both models in turns, for as long as models are profiled; the least times of the
/// steps of the default model, and of the other one or else again of that.
fn profiles(
    default: &mut Model,
    chosen: Option<&mut Model>,
    left: &dyn Fn() -> Duration,
) -> Result<[Vec<u64>; 2]> {
    let Some(chosen) = chosen else {
        let least = profile(
            default,
            (6 * PROFILING).min(left() / 3).max(LEAST_PROFILING),
        )?;
        return Ok([least.clone(), least]);
    };
    let begin = Instant::now();
    let mut least = [default.invoke_profiled()?, chosen.invoke_profiled()?];
    let mut rounds = 1;
    let mut more = || {
        rounds += 1;
        let took = begin.elapsed();
        let few = rounds <= 5 || took < LEAST_PROFILING;
        took < 6 * PROFILING && (few || left() > 3 * took)
    };
    while more() {
        for (model, least) in [&mut *default, &mut *chosen].into_iter().zip(&mut least) {
            for (least, ns) in least.iter_mut().zip(model.invoke_profiled()?) {
                *least = ns.min(*least);
            }
        }
    }
    Ok(least)
}

/// Of each task whether its two kernels are different code.
fn changed(some: &[Arc<BuiltKernel>], others: &[Arc<BuiltKernel>]) -> Vec<bool> {
    let pairs = some.iter().zip(others);
    pairs.map(|(a, b)| a.code_hash() != b.code_hash()).collect()
}
