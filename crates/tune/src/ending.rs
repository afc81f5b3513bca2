//! What comes after the search, and the time that is set aside for it.

use crate::choice::Choice;
use crate::compile::{Builders, fallbacks};
use crate::error::Result;
use crate::in_model::{LEAST_RUNS, MOST_RUNS};
use crate::layouts::profile;
use crate::observer::Observer;
use crate::run::Run;
use crate::run::TaskSearch;
use runtime::BuiltKernel;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

/// Time for profiles of the plain model; one that takes all of it is profiled once.
const PLAIN_TIME: Duration = Duration::from_millis(500);
/// How many times as long models are compared beside other programs.
const NOISY: u32 = 3;

impl Run<'_> {
    /// Of so many models those that are finished in the end: of the tuners' models of a requested one the best. The
    /// requested models come first, as the first tuner has them, and then those of each further tuner.
    pub(crate) fn finished(&self, models: usize) -> usize {
        models.div_ceil(self.options.tuners.len().max(1))
    }

    /// What all tuners made of the same requested model as this one.
    pub(crate) fn of_all_tuners(&self, job: usize) -> impl Iterator<Item = usize> + use<> {
        let requested = self.finished(self.jobs.len()).max(1);
        (job % requested..self.jobs.len()).step_by(requested)
    }

    /// What comes after the search, and cannot be given up.
    pub fn afterwards(&self) -> Duration {
        let of = |job| self.clock.ranking(self.ranking(job)) + self.after_own_ranking(job);
        (0..self.finished(self.jobs.len())).map(of).sum()
    }

    /// What comes after the rankings of all models.
    pub fn after_ranking(&self) -> Duration {
        let jobs = 0..self.finished(self.jobs.len());
        jobs.map(|job| self.after_own_ranking(job)).sum()
    }

    /// What comes after the ranking of one model: its own, and all that later models need.
    pub fn after_ranking_of(&self, job: usize) -> Duration {
        self.after_own_ranking(job) + self.later(job)
    }

    /// All that models after this one need.
    fn later(&self, job: usize) -> Duration {
        let of = |job| self.clock.ranking(self.ranking(job)) + self.after_own_ranking(job);
        let requested = self.finished(self.jobs.len());
        (job % requested.max(1) + 1..requested).map(of).sum()
    }

    /// What comes after ranking for a model alone.
    fn after_own_ranking(&self, job: usize) -> Duration {
        let size = &self.jobs[job].size;
        let choosing = match self.jobs[job].plan.steps.len() {
            0 | 1 => Duration::ZERO,
            _ => self.options.in_model.min(MOST_RUNS * size.inference) + size.assembling,
        };
        let least = LEAST_RUNS * size.inference + size.assembling;
        self.clock.choosing(choosing, least) + self.own_finishing(job)
    }

    /// Assembling the tuned model, comparing and profiling it, and writing it; and all that
    /// later models need.
    pub fn finishing(&self, job: usize) -> Duration {
        self.own_finishing(job) + self.later(job)
    }

    fn own_finishing(&self, job: usize) -> Duration {
        let size = &self.jobs[job].size;
        // Beside other programs it takes more rounds until the gain is known.
        let asked = match self.others.warning() {
            Some(_) => NOISY * self.options.comparing,
            None => self.options.comparing,
        };
        let comparing = self.clock.comparing(Choice::takes(size, asked), size);
        comparing + size.assembling + self.closing(job)
    }

    /// Profiling and writing the model that was made, and running the plain one.
    fn closing(&self, job: usize) -> Duration {
        let size = &self.jobs[job].size;
        let plain = self.plain_inference(job).filter(|_| self.options.plain);
        let plain = plain.filter(|t| self.clock.bears_plain(*t));
        let plain = plain.map_or(Duration::ZERO, |t| t + size.assembling);
        // Writing what was assembled is quicker than assembling it.
        size.inference + size.assembling / 2 + plain
    }

    /// What is to be set aside once both models are compared.
    pub fn after_comparing(&self, job: usize) -> Duration {
        self.closing(job) + self.later(job)
    }

    /// An inference of the plain model takes no longer, if every task has run its oracle.
    fn plain_inference(&self, job: usize) -> Option<Duration> {
        let one = |t: &TaskSearch| Some(self.searches[t.search].setup? * t.uses as u32);
        self.jobs[job].searches.iter().map(one).sum()
    }

    /// The least times of the steps under plain schedules, if there is time to run them.
    pub fn run_plain(
        &mut self,
        job: usize,
        builders: &mut Builders,
        observer: &mut dyn Observer,
    ) -> Result<Option<Vec<u64>>> {
        let of = &self.jobs[job];
        if !self.options.plain {
            return Ok(None);
        }
        if self.clock.time().is_some() {
            let takes = self.plain_inference(job);
            let takes = takes.filter(|t| self.clock.bears_plain(*t));
            let aside = of.size.assembling * 3 / 2 + self.later(job);
            if takes.is_none_or(|t| t > self.clock.left(aside)) {
                return Ok(None);
            }
        }
        observer.stage("running the plain model");
        let target = of.making.target;
        let mut plain: Vec<Arc<BuiltKernel>> = Vec::new();
        for (task, t) in of.plan.tasks.iter().zip(&of.searches) {
            let s = &self.searches[t.search];
            let one = from_ref(task);
            let data = s.subject.as_ref().and_then(|s| s.data.as_ref());
            match data {
                Some(data) => plain.push(Arc::new(data.oracle.clone())),
                None => plain.extend(builders.build_all(one, &fallbacks(one, target)?, target)?),
            }
        }
        let mut model = of.making.model(of.plan, &plain)?;
        Ok(Some(profile(&mut model, PLAIN_TIME)?))
    }
}
