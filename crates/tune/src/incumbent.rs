//! What a machine has measured of a task, for those who choose by reading: the candidate to beat, and those that need no
//! prediction any more.
//!
//! Promises that times win over predictions: a candidate that the machine has timed is never predicted to be faster than the
//! fastest of those.

use crate::chooser::Scored;
use crate::error::Result;
use crate::known::{Known, Lookup, Requirements};
use crate::search::known;
use ir::Target;
use plan::{Plan, Task};
use search::{Point, Space};
use std::collections::BTreeSet;
use store::Store;

/// A machine whose times are in a store.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredOn<'a> {
    pub store: &'a Store,
    /// A [`store::MachineKey::fingerprint`].
    pub machine: &'a str,
}

/// The fastest candidate of a task that a machine has measured.
#[derive(Clone, Debug)]
pub struct Incumbent {
    pub known: Known,
    /// The traces of all candidates that the machine has timed, as text.
    pub timed: BTreeSet<String>,
}

impl<'a> MeasuredOn<'a> {
    /// What the machine knows of each task of a plan.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn incumbents(
        &self,
        plan: &Plan,
        target: &Target,
        requirements: Requirements,
    ) -> Result<Vec<Option<Incumbent>>> {
        let lookup = Lookup::new(self.store, plan, target, self.machine, requirements);
        let one = |task: &Task| {
            let Some(known) = lookup.best(task)? else {
                return Ok(None);
            };
            let timed = lookup.timed(task)?;
            Ok(Some(Incumbent { known, timed }))
        };
        plan.tasks.iter().map(one).collect()
    }

    /// The points of the fastest records of a task, the fastest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn points(
        &self,
        task: &str,
        target: &str,
        space: &Space,
        tolerance: f64,
    ) -> Result<Vec<Point>> {
        let place = store::RecordPlace {
            task,
            target,
            machine: self.machine,
        };
        let (_, points) = known(self.store, &place, space, tolerance)?;
        Ok(points.into())
    }
}

impl Incumbent {
    /// Whether the machine has timed a candidate.
    pub fn has_timed(&self, scored: &Scored) -> bool {
        self.timed
            .contains(&schedule::print(&scored.candidate.trace))
    }

    /// Its score among those of its task, if it has one.
    pub fn among<'s>(&self, scores: &'s [Scored]) -> Option<&'s Scored> {
        scores
            .iter()
            .find(|s| s.candidate.trace == self.known.candidate.trace)
    }
}
