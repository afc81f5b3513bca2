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
    /// How much faster the second half of the search made the model, by the sum of its kernels:
    /// 0.02 for 2%.
    pub last_half: f64,
    /// The same of the last three quarters, which are two doublings of the time.
    pub last_three_quarters: f64,
    /// How much faster a search of twice the time is expected to make it.
    pub expected: f64,
    /// Tasks that no candidate was tried for.
    pub unmeasured: usize,
    pub tasks: usize,
    /// Whether finalists were compared inside the model, as far as that was open.
    pub compared: bool,
}

/// An expected gain below the first is none, and one above the second is much.
const LITTLE: f64 = 0.005;
const MUCH: f64 = 0.02;

/// What a search of twice the time gains, for what the last doubling of its time gained.
///
/// Source: `bench/outlook.py`, see ADR 0032.
const NEXT: f64 = 0.5;

impl Outlook {
    /// Of a model's curve, from the beginning of its search to the end, with so many of its
    /// tasks not measured; `open` if there is something left to try, and `compared` unless there was
    /// no time to compare finalists.
    pub fn of(
        curve: &[Moment],
        tasks: usize,
        unmeasured: usize,
        open: bool,
        compared: bool,
    ) -> Outlook {
        let last_half = gain_since(curve, 0.5);
        let last_three_quarters = gain_since(curve, 0.25);
        // A search stands still for a while and goes on, so the mean of two doublings counts as well.
        let expected = NEXT * last_half.max(last_three_quarters / 2.0);
        let hope = if !open {
            Hope::None
        } else if unmeasured > 0 || expected >= MUCH {
            Hope::Likely
        } else if expected >= LITTLE || !compared {
            Hope::Possible
        } else {
            Hope::Unlikely
        };
        Outlook {
            hope,
            last_half,
            last_three_quarters,
            expected,
            unmeasured,
            tasks,
            compared,
        }
    }
}

/// How much faster the model became after this share of the search.
fn gain_since(curve: &[Moment], share: f64) -> f64 {
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else {
        return 0.0;
    };
    let at = first.s + share * (last.s - first.s);
    let before = curve.iter().rev().find(|m| m.s <= at);
    before.map_or(0.0, |m| (m.ms / last.ms - 1.0).max(0.0))
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |gain: f64| format!("{:.1}%", 100.0 * gain);
        // The part of the search that the expected gain follows from.
        let (part, gain) = match self.last_half >= self.last_three_quarters / 2.0 {
            true => ("second half", self.last_half),
            false => ("last three quarters", self.last_three_quarters),
        };
        let gained = format!("the {part} of the search gained {}", percent(gain));
        let expected = percent(self.expected);
        let (unmeasured, tasks) = (self.unmeasured, self.tasks);
        match self.hope {
            Hope::None => write!(f, "further tuning cannot help: every candidate was tried"),
            Hope::Unlikely => write!(f, "further tuning is unlikely to help: {gained}"),
            Hope::Possible if self.expected < LITTLE => write!(
                f,
                "more time may help a little: finalists were not compared inside the model"
            ),
            Hope::Possible => write!(
                f,
                "twice the time may help a little, by about {expected}: {gained}"
            ),
            Hope::Likely if unmeasured > 0 => write!(
                f,
                "more time is likely to help: {unmeasured} of {tasks} tasks were not measured"
            ),
            Hope::Likely => write!(
                f,
                "twice the time is likely to help, by about {expected}: {gained}"
            ),
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
            least_joules: None,
            ms: *ms,
        };
        points.iter().map(moment).collect()
    }

    #[test]
    fn the_second_half_says_whether_more_helps() {
        let hope = |points: &[(f64, f64)]| Outlook::of(&curve(points), 3, 0, true, true).hope;
        assert_eq!(
            hope(&[(5.0, 10.0), (10.0, 8.0), (35.0, 8.0)]),
            Hope::Unlikely
        );
        // At 20 s of 5 to 35 s the model took 8 ms.
        assert_eq!(
            hope(&[(5.0, 10.0), (10.0, 8.0), (30.0, 7.0), (35.0, 7.0)]),
            Hope::Likely
        );
        assert_eq!(
            hope(&[(5.0, 10.0), (30.0, 9.8), (35.0, 9.8)]),
            Hope::Possible
        );
        assert_eq!(hope(&[]), Hope::Unlikely);
    }

    #[test]
    fn the_reason_is_that_of_the_number() {
        let said =
            |points: &[(f64, f64)]| Outlook::of(&curve(points), 3, 0, true, true).to_string();
        // 10% since a quarter of the time, all of it in the second quarter.
        let early = said(&[(0.0, 12.0), (10.0, 11.0), (15.0, 10.0), (40.0, 10.0)]);
        let why = "about 2.5%: the last three quarters of the search gained 10.0%";
        assert!(early.contains(why), "{early}");
        let late = said(&[(0.0, 12.0), (30.0, 11.0), (35.0, 10.0), (40.0, 10.0)]);
        let why = "about 10.0%: the second half of the search gained 20.0%";
        assert!(late.contains(why), "{late}");
        // Half of what the mean doubling gained is little, and so is what is said of it.
        let little = said(&[(0.0, 10.1), (15.0, 10.0), (40.0, 10.0)]);
        let why = "unlikely to help: the last three quarters of the search gained 1.0%";
        assert!(little.contains(why), "{little}");
    }

    #[test]
    fn what_was_left_out_is_hope_and_nothing_left_is_none() {
        let flat = curve(&[(0.0, 1.0), (9.0, 1.0)]);
        let of = |unmeasured, open, compared| Outlook::of(&flat, 3, unmeasured, open, compared);
        assert_eq!(of(1, true, true).hope, Hope::Likely);
        assert!(of(1, true, true).to_string().contains("1 of 3 tasks"));
        assert_eq!(of(0, false, true).hope, Hope::None);
        assert!(of(0, false, true).to_string().contains("every candidate"));
        assert_eq!(of(0, true, false).hope, Hope::Possible);
        assert!(of(0, true, false).to_string().contains("not compared"));
    }
}
