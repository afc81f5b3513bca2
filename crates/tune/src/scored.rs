//! The finalists of searches whose candidates were not timed.
//!
//! Scores rank the candidates of one task. They do not say what a model takes, nor whether outputs
//! are right. So what such a search found best is built, checked and timed before models are
//! compared. Which candidates these are is the search's decision.

use crate::compile::{Builders, named};
use crate::error::Result;
use crate::observer::Observer;
use crate::run::{Run, TaskSearch};
use crate::search::{Ranked, Search};
use std::collections::HashMap;

impl Run<'_> {
    /// Whether a model's searches are answered by measurements on its devices.
    pub fn is_timed(&self, job: usize) -> bool {
        let of = &self.jobs[job];
        let timed =
            |t: &TaskSearch| self.first_alike(self.searches[t.search].evaluator) == of.timed;
        of.searches.iter().all(timed)
    }

    /// Times what the searches of a model found best, as far as time suffices; what was not
    /// timed is dropped. Other evaluators are not asked any more.
    ///
    /// # Errors
    /// If the store cannot be written, or a task has no plain schedule.
    pub fn time_finalists(
        &mut self,
        job: usize,
        builders: &mut Builders,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let end = self.clock.end(self.after_ranking_of(job));
        builders.pool.end_by(end);
        self.evaluate_until(end);
        for TaskSearch { search: i, .. } in self.jobs[job].searches.clone() {
            // It may be a task of a model that was finished before.
            if !self.ranked.insert(i) {
                continue;
            }
            let title = self.searches[i].title.clone();
            observer.stage(&format!("timing the finalists: {title}"));
            let s = &mut self.searches[i];
            s.scores = self.evaluators[s.evaluator].score_kind(&s.key);
            s.evaluator = self.jobs[job].timed;
            if !build_finalists(&mut self.searches[i], builders, self.options.seed)? {
                let warning = format!(
                    "the plain schedule of {title}, which candidates are compared with, was not built; the task keeps its default"
                );
                self.disturbances.warnings.push(warning);
            }
            self.rank_all(i)?;
        }
        builders.pool.end_by(None);
        self.evaluate_until(None);
        Ok(())
    }
}

/// Builds the best of a search and the data that these are timed with, and drops what was not
/// built; whether there are data.
fn build_finalists(s: &mut Search, builders: &mut Builders, seed: u64) -> Result<bool> {
    let Some(subject) = &mut s.subject else {
        s.best.clear();
        return Ok(true);
    };
    let mut building: HashMap<u64, usize> = HashMap::new();
    for (at, b) in s.best.iter_mut().enumerate() {
        let t = &mut b.trial;
        if t.candidate.is_none()
            && let Ok(candidate) = s.space.candidate(&subject.program, &t.point)
        {
            t.trace = schedule::print(&candidate.trace);
            t.candidate = Some(candidate);
        }
        if t.kernel.is_none()
            && let Some(candidate) = &t.candidate
        {
            let request = builders.request(&subject.text, candidate, &subject.target, false);
            building.insert(builders.submit(request), at);
        }
    }
    let mut oracle = None;
    if subject.data.is_none() && !s.best.is_empty() {
        let (plain, host) = subject.plain()?;
        let request = builders.request(&subject.text, &plain, host, false);
        oracle = Some(builders.submit(request));
    }
    while let Some(o) = builders.pool.next(builders.patience()) {
        let Ok(Ok(built)) = o.result else {
            continue;
        };
        match building.get(&o.id) {
            Some(at) => {
                let trial = &mut s.best[*at].trial;
                trial.kernel = Some(named(
                    built.kernel,
                    trial.candidate.as_ref(),
                    &subject.program,
                ));
            }
            None if oracle == Some(o.id) => subject.make_data(built.kernel, seed),
            None => {}
        }
    }
    let has_data = subject.data.is_some() || oracle.is_none();
    s.best
        .retain(|b: &Ranked| has_data && b.trial.kernel.is_some());
    Ok(has_data)
}
