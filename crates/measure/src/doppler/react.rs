//! REACT: how many candidates to measure at once.
//!
//! Owns the degree of parallelism of a task (DOPpler, Eq. 6 and 7): steps that
//! halve the distance to a ceiling, within bounds, and after errors a
//! multiplicative decrease of both. Pure: a round's evidence in, the next width
//! out. How wrong a round was is told by `calibrate`.

use serde::{Deserialize, Serialize};

/// Constants of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReactConstants {
    /// Largest error that counts as clean, and share of failures likewise.
    pub tau: f64,
    /// Share of the width that an erroneous round gives up.
    pub beta: f64,
    /// Least and largest increase.
    pub gamma: (u32, u32),
    /// Ceiling before the first error.
    pub alpha: u32,
    /// Most rounds that a task stays at a width of 1 after errors lowered it that
    /// far; 2 the first time, twice as many with each further time before a wider
    /// round is clean. 0: it tries again at once.
    #[serde(default)]
    pub rest: u32,
}

impl ReactConstants {
    /// DOPpler, sections 4.3 and 5.3; it knows no rest.
    pub const PAPER: ReactConstants = ReactConstants {
        tau: 0.05,
        beta: 0.2,
        gamma: (2, 12),
        alpha: 128,
        rest: 0,
    };
}

/// What one round showed on one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// Candidates that the device took; fewer than the degree of parallelism at
    /// the end of a batch.
    pub width: u32,
    /// Mean relative difference to isolated measurements; unknown with fewer than two.
    pub delta: Option<f64>,
    /// Candidates that failed at this width and not alone.
    pub parallel_failures: u32,
}

impl Evidence {
    /// Whether the width was too large. Alone there is nothing to compare with,
    /// and what fails alone is the candidate's fault.
    fn is_wrong(&self, c: &ReactConstants) -> bool {
        let wrong = self.delta.is_some_and(|d| d > c.tau);
        let failing = f64::from(self.parallel_failures) > f64::from(self.width) * c.tau;
        self.width > 1 && (wrong || failing)
    }
}

/// State of one task; kept across batches and runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct React {
    /// Degree of parallelism of the next round.
    pub dp: u32,
    /// Where increases become small: the width of the last error, lowered.
    pub ceiling: u32,
    /// How often errors lowered it to 1 since a wider round was clean.
    #[serde(default)]
    pub falls: u32,
    /// Rounds that it still stays there.
    #[serde(default)]
    pub resting: u32,
}

impl React {
    pub fn new(constants: &ReactConstants) -> React {
        React {
            dp: 1,
            ceiling: constants.alpha,
            falls: 0,
            resting: 0,
        }
    }

    /// The state after a round, with at most `max_dp` at once. The worst of the
    /// devices decides; without any the state stays.
    pub fn update(self, round: &[Evidence], constants: &ReactConstants, max_dp: u32) -> React {
        let wrong = round.iter().filter(|e| e.is_wrong(constants));
        // Among devices that erred the narrowest says most about small widths.
        let narrowest = wrong.min_by_key(|e| e.width);
        let widest = round.iter().max_by_key(|e| e.width);
        let unknown = round.iter().any(|e| e.width > 1 && e.delta.is_none());
        match (narrowest, widest) {
            (Some(e), _) => self.lowered(e.width, constants, max_dp),
            (None, Some(e)) if e.width >= self.dp && !unknown => self.raised(constants, max_dp),
            _ => self.limited(max_dp),
        }
    }

    /// After errors at this width.
    fn lowered(self, width: u32, c: &ReactConstants, max_dp: u32) -> React {
        // A narrow round speaks of its own width.
        let dp = self.dp.min(width);
        let part = |share: f64| (f64::from(dp) * share).floor() as u32;
        let ceiling = if dp < self.ceiling {
            part((2.0 - c.beta) / 2.0)
        } else {
            dp
        };
        let dp = part(1.0 - c.beta);
        let new = React {
            dp,
            ceiling,
            ..self
        };
        new.limited(max_dp).rested(c)
    }

    /// After errors.
    fn rested(self, c: &ReactConstants) -> React {
        if self.dp > 1 {
            return self;
        }
        let falls = self.falls.saturating_add(1);
        let resting = 1u32.checked_shl(falls).unwrap_or(u32::MAX).min(c.rest);
        React {
            falls,
            resting,
            ..self
        }
    }

    /// After a clean round.
    fn raised(mut self, c: &ReactConstants, max_dp: u32) -> React {
        if self.resting > 0 {
            self.resting -= 1;
            return self.limited(max_dp);
        }
        self.falls = if self.dp > 1 { 0 } else { self.falls };
        let (dp, ceiling) = (f64::from(self.dp), f64::from(self.ceiling));
        let gamma = if dp < ceiling {
            (ceiling - dp) / 2.0
        } else {
            dp - ceiling
        };
        let gamma = gamma.clamp(f64::from(c.gamma.0), f64::from(c.gamma.1));
        let dp = (dp + gamma).floor() as u32;
        React { dp, ..self }.limited(max_dp)
    }

    fn limited(self, max_dp: u32) -> React {
        React {
            dp: self.dp.clamp(1, max_dp.max(1)),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: ReactConstants = ReactConstants::PAPER;

    fn round(width: u32, delta: f64) -> Evidence {
        Evidence {
            width,
            delta: Some(delta),
            parallel_failures: 0,
        }
    }

    /// The widths after the first, with this error at every width above 1.
    fn ramp(mut r: React, delta: f64, max: u32, rounds: usize) -> Vec<(u32, u32)> {
        let step = |_| {
            r = r.update(&[round(r.dp, delta)], &PAPER, max);
            (r.dp, r.ceiling)
        };
        (0..rounds).map(step).collect()
    }

    #[test]
    fn clean_rounds_ramp_up() {
        let widths: Vec<u32> = ramp(React::new(&PAPER), 0.0, 64, 7)
            .iter()
            .map(|s| s.0)
            .collect();
        assert_eq!(widths, [13, 25, 37, 49, 61, 64, 64]);
    }

    #[test]
    fn errors_shrink_to_one_and_try_again() {
        let start = React {
            dp: 13,
            ceiling: 128,
            ..React::new(&PAPER)
        };
        let expected = [
            (10, 11),
            (8, 9),
            (6, 7),
            (4, 5),
            (3, 3),
            (2, 3),
            (1, 1),
            (3, 1),
            (2, 3),
            (1, 1),
        ];
        assert_eq!(ramp(start, 1.0, 64, 10), expected);
    }

    #[test]
    fn rests_grow_while_nothing_wider_is_clean() {
        let c = ReactConstants { rest: 4, ..PAPER };
        let mut r = React::new(&c);
        let mut widths = Vec::new();
        for i in 0..22 {
            // From the 18th round on everything is clean.
            let delta = if i < 17 { 1.0 } else { 0.0 };
            r = r.update(&[round(r.dp, delta)], &c, 3);
            widths.push(r.dp);
        }
        let falling = [3, 2, 1, 1, 1, 3, 2, 1, 1, 1, 1, 1, 3, 2, 1, 1, 1];
        assert_eq!(widths[..17], falling);
        assert_eq!(widths[17..], [1, 1, 3, 3, 3]);
        assert_eq!((r.falls, r.resting), (0, 0));
    }

    #[test]
    fn failures_count_as_errors() {
        let r = React {
            dp: 20,
            ceiling: 64,
            ..React::new(&PAPER)
        };
        let failed = |n| Evidence {
            parallel_failures: n,
            ..round(20, 0.0)
        };
        assert_eq!(r.update(&[failed(1)], &PAPER, 64).dp, 32);
        assert_eq!(r.update(&[failed(2)], &PAPER, 64).dp, 16);
    }

    #[test]
    fn a_narrow_round_lowers_from_its_own_width_and_never_raises() {
        let r = React {
            dp: 40,
            ceiling: 64,
            ..React::new(&PAPER)
        };
        assert_eq!(r.update(&[round(10, 0.0)], &PAPER, 64), r);
        assert_eq!(r.update(&[round(10, 0.5)], &PAPER, 64).dp, 8);
    }

    #[test]
    fn an_unknown_error_never_raises() {
        let at = |dp| React {
            dp,
            ceiling: 64,
            ..React::new(&PAPER)
        };
        let r = at(4);
        let unknown = Evidence {
            delta: None,
            ..round(4, 0.0)
        };
        assert_eq!(r.update(&[unknown], &PAPER, 64), r);
        let alone = at(1);
        let unknown = Evidence {
            width: 1,
            ..unknown
        };
        assert!(alone.update(&[unknown], &PAPER, 64).dp > 1);
    }

    #[test]
    fn the_width_keeps_its_limits() {
        let r = React {
            dp: 2,
            ceiling: 128,
            ..React::new(&PAPER)
        };
        assert_eq!(r.update(&[round(2, 0.0)], &PAPER, 2).dp, 2);
        assert_eq!(r.update(&[round(2, 9.0)], &PAPER, 2).dp, 1);
    }

    #[test]
    fn the_worst_device_decides() {
        let r = React {
            dp: 10,
            ceiling: 64,
            ..React::new(&PAPER)
        };
        let (good, bad) = (round(10, 0.0), round(10, 0.5));
        assert_eq!(r.update(&[good, bad], &PAPER, 64).dp, 8);
        assert_eq!(r.update(&[good, good], &PAPER, 64).dp, 22);
        // The last device of a tail took one fewer.
        let narrow = Evidence { width: 9, ..good };
        assert_eq!(r.update(&[good, narrow], &PAPER, 64).dp, 22);
        let unknown = Evidence {
            delta: None,
            ..good
        };
        assert_eq!(r.update(&[good, unknown], &PAPER, 64), r);
        assert_eq!(r.update(&[], &PAPER, 64), r);
    }
}
