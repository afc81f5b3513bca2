//! What comes after the search, and the time that is set aside for it.

use crate::Budget;
use crate::choice::Choice;
use crate::compile::{Builders, fallbacks};
use crate::default_model::Making;
use crate::error::Result;
use crate::in_model::{LEAST_RUNS, MOST_RUNS};
use crate::layouts::profile;
use crate::session::Session;
use crate::task_search::Search;
use std::slice::from_ref;
use std::time::Duration;

/// Time for profiles of the plain model; one that takes all of it is profiled once.
const PLAIN_TIME: Duration = Duration::from_millis(500);

impl Session<'_> {
    /// What comes after the search, and cannot be given up.
    pub fn afterwards(&self) -> Duration {
        self.clock.ranking(self.ranking()) + self.after_ranking()
    }

    /// What comes after ranking.
    pub fn after_ranking(&self) -> Duration {
        let inference = self.size.inference;
        let assembling = self.size.assembling;
        let choosing = match self.plan.steps.len() {
            0 | 1 => Duration::ZERO,
            _ => self.options.in_model.min(MOST_RUNS * inference) + assembling,
        };
        let least = LEAST_RUNS * inference + assembling;
        self.clock.choosing(choosing, least) + self.finishing()
    }

    /// Assembling the tuned model, comparing and profiling it, and writing it.
    pub fn finishing(&self) -> Duration {
        let comparing = self.clock.comparing(Choice::takes(&self.size), &self.size);
        comparing + self.size.assembling + self.closing()
    }

    /// Profiling and writing the model that was made, and running the plain one.
    fn closing(&self) -> Duration {
        let plain = self
            .plain_inference()
            .filter(|t| self.clock.bears_plain(*t));
        let plain = plain.map_or(Duration::ZERO, |t| t + self.size.assembling);
        // Writing what was assembled is quicker than assembling it.
        self.size.inference + self.size.assembling / 2 + plain
    }

    /// Time for comparing the models, once both are assembled, and what one round takes.
    pub fn comparing(&self) -> (Duration, Duration) {
        (self.clock.left(self.closing()), 2 * self.size.inference)
    }

    /// An inference of the plain model takes no longer, if every task has run its oracle.
    fn plain_inference(&self) -> Option<Duration> {
        let one = |s: &Search| Some(s.setting_up? * s.uses as u32);
        self.searches.iter().map(one).sum()
    }

    /// The least times of the steps under plain schedules, if there is time to run them.
    pub fn run_plain(
        &mut self,
        builders: &mut Builders,
        making: &Making<'_>,
    ) -> Result<Option<Vec<u64>>> {
        if let Budget::Time(_) = self.options.budget {
            let takes = self
                .plain_inference()
                .filter(|t| self.clock.bears_plain(*t));
            let left = self.clock.left(self.size.assembling * 3 / 2);
            if takes.is_none_or(|t| t > left) {
                return Ok(None);
            }
        }
        let mut plain = Vec::new();
        for (task, s) in self.plan.tasks.iter().zip(&self.searches) {
            let one = from_ref(task);
            match &s.oracle {
                Some(built) => plain.push(built.clone()),
                None => plain.extend(builders.build_all(one, &fallbacks(one, &self.target)?)?),
            }
        }
        let mut model = making.model(self.plan, &plain)?;
        Ok(Some(profile(&mut model, PLAIN_TIME)?))
    }
}
