//! Labels of candidates: hot, cold or failed (Trimmer).
//!
//! A candidate is cold if its latency is above what was usual when it was tried: above a LOESS curve of
//! latency over the order of trials. So a latency that was good early may be cold later. Labels
//! are of one task, strategy and machine.

use learn::{Smoothing, Unfit, loess};

/// What a candidate turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Label {
    Hot,
    Cold,
    /// It has no latency.
    Failed,
}

impl Label {
    pub const ALL: [Label; 3] = [Label::Hot, Label::Cold, Label::Failed];

    pub fn name(self) -> &'static str {
        match self {
            Label::Hot => "hot",
            Label::Cold => "cold",
            Label::Failed => "failed",
        }
    }
}

/// Labels of trials.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// In the order of the trials.
    pub labels: Vec<Label>,
    /// The curve at every trial; empty if none has a latency.
    pub usual: Vec<f64>,
}

/// Labels trials by their latencies, in the order in which they were tried; none for those that
/// failed, which count as trials but not for the curve. `fraction` of the latencies make the
/// curve at one place, and it is fitted again in so many robust `passes`.
///
/// # Errors
/// If a latency is not finite.
pub fn label(latencies: &[Option<f64>], fraction: f64, passes: u32) -> Result<Labelled, Unfit> {
    let timed = latencies.iter().enumerate();
    let timed = timed.filter_map(|(i, ns)| Some((i as f64, (*ns)?)));
    let (x, y): (Vec<f64>, Vec<f64>) = timed.unzip();
    let at: Vec<f64> = (0..latencies.len()).map(|i| i as f64).collect();
    let usual = match loess(&x, &y, Smoothing { fraction, passes }, &at) {
        Err(Unfit::Empty) => vec![],
        usual => usual?,
    };
    let one = |(i, ns): (usize, &Option<f64>)| match ns {
        None => Label::Failed,
        // What lies on the curve but for rounding is not above it.
        Some(ns) if *ns > usual[i] * (1.0 + 1e-9) => Label::Cold,
        Some(_) => Label::Hot,
    };
    Ok(Labelled {
        labels: latencies.iter().enumerate().map(one).collect(),
        usual,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_the_usual_of_its_time_is_cold() {
        // Latencies halve in the course of the search, and every second one is 10% above.
        let latency = |i: u32| {
            let usual = 100.0 - 0.5 * f64::from(i);
            if i.is_multiple_of(2) {
                usual * 1.1
            } else {
                usual * 0.9
            }
        };
        let mut latencies: Vec<Option<f64>> = (0..100).map(|i| Some(latency(i))).collect();
        latencies[3] = None;
        let found = label(&latencies, 2.0 / 3.0, 3).unwrap();
        assert_eq!(found.usual.len(), 100);
        for (i, label) in found.labels.iter().enumerate() {
            let expected = match i {
                3 => Label::Failed,
                i if i.is_multiple_of(2) => Label::Cold,
                _ => Label::Hot,
            };
            assert_eq!(*label, expected, "{i}");
        }
        // Later than the others, the best of the beginning are cold.
        latencies.push(Some(latency(1)));
        assert_eq!(
            label(&latencies, 2.0 / 3.0, 3).unwrap().labels[100],
            Label::Cold
        );
    }

    #[test]
    fn a_few_extreme_latencies_do_not_make_others_hot() {
        let mut latencies = vec![Some(10.0); 60];
        for i in (0..60).step_by(10) {
            latencies[i] = Some(1e4);
            latencies[i + 1] = Some(10.5);
        }
        let cold = |passes| {
            let labels = label(&latencies, 2.0 / 3.0, passes).unwrap().labels;
            labels.iter().filter(|l| **l == Label::Cold).count()
        };
        assert_eq!((cold(0), cold(3)), (6, 12));
    }

    #[test]
    fn without_latencies_all_failed() {
        let none = label(&[None, None], 0.5, 3).unwrap();
        assert_eq!((none.labels, none.usual), (vec![Label::Failed; 2], vec![]));
        assert_eq!(label(&[], 0.5, 3).unwrap().labels, []);
        assert_eq!(label(&[Some(3.0)], 0.5, 3).unwrap().labels, [Label::Hot]);
        assert!(label(&[Some(f64::NAN)], 0.5, 3).is_err());
    }
}
