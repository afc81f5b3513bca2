//! The adaptive time-out of a round (DOPpler, Eq. 2): a deadline that grows
//! with what runs at once, between two bounds.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bounds and slope of the time-out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeoutConstants {
    /// Seconds at least.
    pub eta: f64,
    /// Seconds at most.
    pub iota: f64,
    /// How fast it grows.
    pub phi: f64,
}

impl TimeoutConstants {
    /// DOPpler, section 4.2, gives eta and iota; phi, which it does not, follows
    /// the curve of its authors' published runs.
    pub const PAPER: TimeoutConstants = TimeoutConstants {
        eta: 4.0,
        iota: 20.0,
        phi: 0.03,
    };

    /// One deadline for a round of `dp` candidates on each of `devices`, from
    /// its submission; whole seconds, if it has any.
    pub fn round(&self, dp: u32, devices: u32) -> Duration {
        let at_once = f64::from(dp) * f64::from(devices);
        let curve = 2.0 * self.iota * (self.phi * at_once / 2.0).tanh();
        let seconds = curve.min(self.iota).max(self.eta);
        let whole = if seconds < 1.0 {
            seconds
        } else {
            seconds.floor()
        };
        Duration::from_secs_f64(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_of_the_specification() {
        let expected = [
            (1, 4),
            (8, 4),
            (9, 5),
            (10, 5),
            (11, 6),
            (12, 7),
            (16, 9),
            (24, 13),
            (32, 17),
            (37, 20),
            (64, 20),
        ];
        for (dp, seconds) in expected {
            let limit = TimeoutConstants::PAPER.round(dp, 1);
            assert_eq!(limit, Duration::from_secs(seconds), "DP {dp}");
        }
        assert_eq!(TimeoutConstants::PAPER.round(6, 2), Duration::from_secs(7));
    }

    #[test]
    fn bounds_below_a_second_are_kept() {
        let quick = TimeoutConstants {
            eta: 0.04,
            iota: 0.2,
            ..TimeoutConstants::PAPER
        };
        assert_eq!(quick.round(1, 1), Duration::from_millis(40));
        assert_eq!(quick.round(64, 1), Duration::from_millis(200));
    }
}
