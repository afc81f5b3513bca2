//! Candidates are dropped by chance: what another filter gains is its gain over this one.

use super::{Filter, Verdict};
use crate::trial::{Form, Trial};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use search::Context;

/// Drops a share of all candidates, whatever they are.
#[derive(Debug)]
pub struct Chance {
    share: f64,
    rng: Pcg64Mcg,
}

impl Chance {
    pub const NAME: &str = "chance";

    pub fn new(seed: u64, share: f64) -> Chance {
        Chance {
            share: share.clamp(0.0, 1.0),
            rng: Pcg64Mcg::seed_from_u64(seed),
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
        let mut one = |_: &Trial| match self.rng.random_bool(self.share) {
            true => Verdict::Drop {
                why: "by chance".into(),
            },
            false => Verdict::Keep { score: 0.0 },
        };
        trials.iter().map(&mut one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{context, space, trial};
    use super::*;

    #[test]
    fn the_share_is_dropped() {
        let trials: Vec<Trial> = (0..2000).map(|n| trial(n, [0, 0])).collect();
        let verdicts = Chance::new(1, 0.4).judge(&context(&space()), &trials);
        let dropped = verdicts
            .iter()
            .filter(|v| matches!(v, Verdict::Drop { .. }));
        let dropped = dropped.count();
        assert!((700..900).contains(&dropped), "{dropped}");
    }
}
