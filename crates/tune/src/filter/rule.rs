//! When the filter `cold` drops a candidate, if a network was trained before.

use super::cold::{Cold, LEAST_BAD, NEAREST};
use serde::Serialize;
use std::fmt;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ColdRule {
    /// If so many of its ten nearest known ones are cold or failed, the rule of Trimmer.
    Neighbours(usize),
    /// If the logarithm of its latency is predicted to be so many deviations above that of the fastest answer.
    Above(f64),
    /// If it is not predicted to be the fastest of so many.
    Best(usize),
}

/// Candidates that one is chosen from, at most.
const MOST_OF_POOL: usize = 64;

impl ColdRule {
    /// Trimmer's rule, as it does best here.
    pub const NEIGHBOURS: ColdRule = ColdRule::Neighbours(LEAST_BAD);

    /// How often a candidate is looked at, with a network that was trained before. `Above` may drop nearly all candidates of a random search.
    /// Then most of what is measured would be what was not looked at, if it were one of ten.
    pub fn looks(self) -> f64 {
        match self {
            ColdRule::Neighbours(_) => Cold::LOOKS,
            ColdRule::Above(_) | ColdRule::Best(_) => 0.99,
        }
    }

    /// Candidates to ask for, for each that is to be measured.
    pub fn pool(self) -> usize {
        match self {
            ColdRule::Neighbours(_) | ColdRule::Above(_) => 1,
            ColdRule::Best(n) => n,
        }
    }

    /// A rule as it is displayed.
    ///
    /// # Errors
    /// If the text is no rule.
    pub fn parse(text: &str) -> Result<ColdRule, String> {
        let rule = match text.split_once('=') {
            Some(("neighbours", n)) => n.parse().ok().map(ColdRule::Neighbours),
            Some(("above", n)) => n.parse().ok().map(ColdRule::Above),
            Some(("best", n)) => n.parse().ok().map(ColdRule::Best),
            _ => None,
        };
        let allowed = rule.filter(|rule| match rule {
            ColdRule::Neighbours(n) => (1..=NEAREST).contains(n),
            ColdRule::Above(n) => n.is_finite(),
            ColdRule::Best(n) => (2..=MOST_OF_POOL).contains(n),
        });
        allowed.ok_or_else(|| {
            format!(
                "use neighbours=N with an N of 1 to {NEAREST}, above=N with a number, or best=N with an N of 2 to {MOST_OF_POOL}"
            )
        })
    }
}

impl fmt::Display for ColdRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColdRule::Neighbours(n) => write!(f, "neighbours={n}"),
            ColdRule::Above(n) => write!(f, "above={n}"),
            ColdRule::Best(n) => write!(f, "best={n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_back_and_others_are_refused() {
        for rule in [
            ColdRule::NEIGHBOURS,
            ColdRule::Above(-0.5),
            ColdRule::Best(8),
        ] {
            assert_eq!(ColdRule::parse(&rule.to_string()), Ok(rule));
        }
        for text in [
            "neighbours=0",
            "neighbours=11",
            "above=",
            "above=nan",
            "cold",
            "below=1",
            "best=1",
            "best=65",
        ] {
            assert!(ColdRule::parse(text).is_err(), "{text}");
        }
    }
}
