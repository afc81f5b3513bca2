//! The constants of DOPpler, declared once: name, value, source.
//!
//! Owns their names and bounds, for flags and studies that change them. What
//! they mean in detail stands where they are used.

use super::{CalibratorConstants, ReactConstants, TimeoutConstants};
use serde::{Deserialize, Serialize};

/// Constants of the whole loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    pub react: ReactConstants,
    pub calibrator: CalibratorConstants,
    pub timeout: TimeoutConstants,
    /// Largest degree of parallelism.
    pub max_dp: u32,
}

impl Constants {
    /// DOPpler, section 4; `max_dp` is its batch size.
    pub const PAPER: Constants = Constants {
        react: ReactConstants::PAPER,
        calibrator: CalibratorConstants::PAPER,
        timeout: TimeoutConstants::PAPER,
        max_dp: 64,
    };

    /// These constants with the named ones changed: `tau=0.1,zeta=0.3`. The
    /// error says which part is wrong, and what it may be.
    pub fn with(mut self, changes: &str) -> Result<Constants, String> {
        for change in changes.split(',').filter(|c| !c.is_empty()) {
            let (name, value) = change
                .split_once('=')
                .ok_or_else(|| format!("`{change}` is not NAME=VALUE"))?;
            let constant = CONSTANTS.iter().find(|c| c.name == name).ok_or_else(|| {
                let names: Vec<&str> = CONSTANTS.iter().map(|c| c.name).collect();
                format!("there is no `{name}`, only {}", names.join(", "))
            })?;
            let (least, most) = constant.range;
            let value: f64 = value
                .parse()
                .ok()
                .filter(|v| (least..=most).contains(v))
                .ok_or_else(|| format!("{name} is a number from {least} to {most}"))?;
            (constant.set)(&mut self, value);
        }
        Ok(self)
    }
}

/// One constant, as flags and lists have it.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    pub name: &'static str,
    pub doc: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
    /// Least and largest value.
    pub range: (f64, f64),
    pub get: fn(&Constants) -> f64,
    set: fn(&mut Constants, f64),
}

/// All of them; their defaults are those of [`Constants::PAPER`].
pub const CONSTANTS: &[Constant] = &[
    Constant {
        name: "tau",
        doc: "a round is clean if its error and its share of failures are at most this",
        source: "DOPpler, section 5.3",
        range: (0.0, 1.0),
        get: |c| c.react.tau,
        set: |c, v| c.react.tau = v,
    },
    Constant {
        name: "beta",
        doc: "share by which the degree of parallelism (DP) falls after a round that is not clean",
        source: "DOPpler, section 4.3",
        range: (0.0, 1.0),
        get: |c| c.react.beta,
        set: |c, v| c.react.beta = v,
    },
    Constant {
        name: "gamma-min",
        doc: "least increase of the DP after a clean round",
        source: "DOPpler, section 4.3",
        range: (0.0, 1e6),
        get: |c| f64::from(c.react.gamma.0),
        set: |c, v| {
            c.react.gamma.0 = v as u32;
            c.react.gamma.1 = c.react.gamma.1.max(v as u32);
        },
    },
    Constant {
        name: "gamma-max",
        doc: "largest increase of the DP after a clean round",
        source: "DOPpler, section 4.3",
        range: (0.0, 1e6),
        get: |c| f64::from(c.react.gamma.1),
        set: |c, v| {
            c.react.gamma.1 = v as u32;
            c.react.gamma.0 = c.react.gamma.0.min(v as u32);
        },
    },
    Constant {
        name: "alpha",
        doc: "ceiling of the DP before the first error: increases become small near it",
        source: "the authors' published runs",
        range: (1.0, 1e6),
        get: |c| f64::from(c.react.alpha),
        set: |c, v| c.react.alpha = v as u32,
    },
    Constant {
        name: "rest",
        doc: "most rounds for which a task stays at a DP of 1 before a wider round is tried; 2 at the first fall, doubled at each further one",
        source: "0, the paper's rule: it has no such rounds",
        range: (0.0, 1e6),
        get: |c| f64::from(c.react.rest),
        set: |c, v| c.react.rest = v as u32,
    },
    Constant {
        name: "max-dp",
        doc: "largest DP",
        source: "DOPpler, section 4.2: the batch size",
        range: (1.0, 1e6),
        get: |c| f64::from(c.max_dp),
        set: |c, v| c.max_dp = v as u32,
    },
    Constant {
        name: "eta",
        doc: "shortest deadline of a round, in seconds",
        source: "DOPpler, section 4.2",
        range: (0.001, 1e6),
        get: |c| c.timeout.eta,
        set: |c, v| c.timeout.eta = v,
    },
    Constant {
        name: "iota",
        doc: "longest deadline of a round, in seconds",
        source: "DOPpler, section 4.2",
        range: (0.001, 1e6),
        get: |c| c.timeout.iota,
        set: |c, v| c.timeout.iota = v,
    },
    Constant {
        name: "phi",
        doc: "how fast the deadline of a round grows with its number of candidates",
        source: "chosen to follow the curve of the authors' published runs; the paper has none",
        range: (0.0, 1e3),
        get: |c| c.timeout.phi,
        set: |c, v| c.timeout.phi = v,
    },
    Constant {
        name: "zeta",
        doc: "share of a round's timed candidates that is measured again alone",
        source: "DOPpler, section 4.3",
        range: (0.0, 1.0),
        get: |c| c.calibrator.zeta,
        set: |c, v| c.calibrator.zeta = v,
    },
    Constant {
        name: "outlier",
        doc: "modified z-score above which a candidate is an outlier; outliers are always measured again",
        source: "the authors' published code",
        range: (0.0, 1e6),
        get: |c| c.calibrator.outlier,
        set: |c, v| c.calibrator.outlier = v,
    },
    Constant {
        name: "hopeless",
        doc: "a round whose error is at least this is not corrected",
        source: "the authors' published code",
        range: (0.0, 1.0),
        get: |c| c.calibrator.hopeless,
        set: |c, v| c.calibrator.hopeless = v,
    },
    Constant {
        name: "precision",
        doc: "once a task's error is known to within this (95% confidence), rounds measure fewer than zeta again; 0 turns this off",
        source: "0, the paper's rule",
        range: (0.0, 1.0),
        get: |c| c.calibrator.precision,
        set: |c, v| c.calibrator.precision = v,
    },
    Constant {
        name: "per-candidate",
        doc: "1: each candidate is corrected by a factor of its own, from remeasured candidates that are like it; 0: all candidates of a round by the factor 1 - delta",
        source: "0, the paper's rule",
        range: (0.0, 1.0),
        get: |c| f64::from(u8::from(c.calibrator.per_candidate)),
        set: |c, v| c.calibrator.per_candidate = v >= 0.5,
    },
    Constant {
        name: "corrected",
        doc: "1: the DP follows the error that remains after corrections; 0: the error before corrections",
        source: "0, the paper's rule",
        range: (0.0, 1.0),
        get: |c| f64::from(u8::from(c.calibrator.corrected)),
        set: |c, v| c.calibrator.corrected = v >= 0.5,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_is_set_by_its_name_alone() {
        for c in CONSTANTS {
            let (least, most) = c.range;
            let value = (c.get)(&Constants::PAPER);
            assert!((least..=most).contains(&value), "{}", c.name);
            // Whole, and beyond no other's bound.
            let other = if value >= 2.0 { value - 1.0 } else { 0.0 };
            let other = other.max(least);
            let changed = Constants::PAPER
                .with(&format!("{}={other}", c.name))
                .expect("within its range");
            for d in CONSTANTS {
                let expected = if d.name == c.name {
                    other
                } else {
                    (d.get)(&Constants::PAPER)
                };
                assert_eq!((d.get)(&changed), expected, "{} by {}", d.name, c.name);
            }
        }
    }

    #[test]
    fn wrong_changes_say_what_is_possible() {
        let error = |text: &str| Constants::PAPER.with(text).unwrap_err();
        assert!(error("tau").contains("NAME=VALUE"));
        assert!(error("tao=1").contains("gamma-min"));
        assert!(error("zeta=1.5").contains("from 0 to 1"));
        assert!(error("zeta=x").contains("zeta"));
        let c = Constants::PAPER.with("tau=0.1,zeta=0.3").unwrap();
        assert_eq!((c.react.tau, c.calibrator.zeta), (0.1, 0.3));
        assert_eq!(Constants::PAPER.with(""), Ok(Constants::PAPER));
    }
}
