//! Candidates are dropped by chance: what another filter gains is its gain over this one.

use super::draws::Draws;
use super::{Filter, Verdict};
use crate::trial::{Form, Trial};
use search::Context;

/// Drops a share of all candidates, whatever they are.
#[derive(Debug)]
pub struct Chance {
    draws: Draws,
    share: f64,
}

impl Chance {
    pub const NAME: &str = "chance";

    /// For the search of a task with a seed.
    pub fn new(task: &str, seed: u64, share: f64) -> Chance {
        Chance {
            draws: Draws::new(Chance::NAME, task, seed),
            share: share.clamp(0.0, 1.0),
        }
    }
}

impl Filter for Chance {
    fn name(&self) -> &'static str {
        Chance::NAME
    }

    fn form(&self) -> Form {
        Form::Point
    }

    fn judge(&mut self, _: &Context<'_>, trials: &[Trial]) -> Vec<Verdict> {
        let one = |t: &Trial| match self.draws.picks(&t.point, self.share) {
            true => Verdict::Drop {
                why: "by chance".into(),
            },
            false => Verdict::Keep { score: 0.0 },
        };
        trials.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{context, space, trial};
    use super::*;

    #[test]
    fn the_share_is_dropped() {
        let trials: Vec<Trial> = (0..2000).map(|n| trial(n, [n, 0])).collect();
        let verdicts = Chance::new("task", 1, 0.4).judge(&context(&space()), &trials);
        let dropped = verdicts
            .iter()
            .filter(|v| matches!(v, Verdict::Drop { .. }));
        let dropped = dropped.count();
        assert!((700..900).contains(&dropped), "{dropped}");
    }
}
