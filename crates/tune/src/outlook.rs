//! Whether more time is likely to help a model: what the end of its search gained.

use crate::progress::Moment;
use serde::Serialize;
use std::fmt;

/// How likely more time is to make the model faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hope {
    /// Nothing is left to try.
    None,
    Unlikely,
    Possible,
    Likely,
}

/// What the end of a search says of more time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Outlook {
    pub hope: Hope,
    /// How much faster the last third of the search made the model, by the sum of its kernels:
    /// 0.02 for 2%.
    pub last_third: f64,
    /// Tasks that no candidate was tried for.
    pub unmeasured: usize,
    pub tasks: usize,
}

/// A last third that gains less than the first promises nothing, one that gains more than the
/// second much.
const LITTLE: f64 = 0.005;
const MUCH: f64 = 0.02;

impl Outlook {
    /// Of a model's curve, from the beginning of its search to the end, with so many of its
    /// tasks not measured; `open` if there is something left to try.
    pub fn of(curve: &[Moment], tasks: usize, unmeasured: usize, open: bool) -> Outlook {
        let last_third = last_third(curve);
        let hope = if !open {
            Hope::None
        } else if unmeasured > 0 || last_third >= MUCH {
            Hope::Likely
        } else if last_third >= LITTLE {
            Hope::Possible
        } else {
            Hope::Unlikely
        };
        Outlook {
            hope,
            last_third,
            unmeasured,
            tasks,
        }
    }
}

fn last_third(curve: &[Moment]) -> f64 {
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else {
        return 0.0;
    };
    let at = first.s + (last.s - first.s) * 2.0 / 3.0;
    let before = curve.iter().rev().find(|m| m.s <= at);
    before.map_or(0.0, |m| (m.ms / last.ms - 1.0).max(0.0))
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gained = format!(
            "the last third of the search gained {:.1}%",
            100.0 * self.last_third
        );
        let (unmeasured, tasks) = (self.unmeasured, self.tasks);
        match self.hope {
            Hope::None => write!(f, "further tuning cannot help: every candidate was tried"),
            Hope::Unlikely => write!(f, "further tuning is unlikely to help: {gained}"),
            Hope::Possible => write!(f, "further tuning may help a little: {gained}"),
            Hope::Likely if unmeasured > 0 => write!(
                f,
                "more time is likely to help: {unmeasured} of {tasks} tasks were not measured"
            ),
            Hope::Likely => write!(f, "more time is likely to help: {gained}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)]) -> Vec<Moment> {
        let moment = |(s, ms): &(f64, f64)| Moment {
            s: *s,
            trials: 0,
            joules: None,
            ms: *ms,
        };
        points.iter().map(moment).collect()
    }

    #[test]
    fn the_last_third_says_whether_more_helps() {
        let hope = |points: &[(f64, f64)]| Outlook::of(&curve(points), 3, 0, true).hope;
        assert_eq!(
            hope(&[(5.0, 10.0), (10.0, 8.0), (35.0, 8.0)]),
            Hope::Unlikely
        );
        // At 25 s of 5 to 35 s the model took 8 ms.
        assert_eq!(
            hope(&[(5.0, 10.0), (10.0, 8.0), (30.0, 7.0), (35.0, 7.0)]),
            Hope::Likely
        );
        assert_eq!(
            hope(&[(5.0, 10.0), (30.0, 9.9), (35.0, 9.9)]),
            Hope::Possible
        );
        assert_eq!(hope(&[]), Hope::Unlikely);
    }

    #[test]
    fn tasks_without_a_measurement_are_hope_and_nothing_left_is_none() {
        let of =
            |unmeasured, open| Outlook::of(&curve(&[(0.0, 1.0), (9.0, 1.0)]), 3, unmeasured, open);
        assert_eq!(of(1, true).hope, Hope::Likely);
        assert!(of(1, true).to_string().contains("1 of 3 tasks"));
        assert_eq!(of(0, false).hope, Hope::None);
        assert!(of(0, false).to_string().contains("every candidate"));
    }
}
