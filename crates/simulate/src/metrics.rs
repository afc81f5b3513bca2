//! How well an order by score serves tuning (Instruction-accurate simulators, section IV-B).

use serde::{Deserialize, Serialize};

/// Metrics of one order, each in percent; 0 is perfect, except for the rank, whose best is `100 / n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// How much faster the fastest sample is than the one of least score (equation 5).
    pub e_top1: f64,
    /// The part of the order, from its start, that has the fastest sample (equation 6).
    pub r_top1: f64,
    /// The mean drop from a sample to its successor, over the first half of the order (equation 7, of measured times in
    /// predicted order, since the printed form is always 0).
    pub q_low: f64,
    /// The same over the second half.
    pub q_high: f64,
}

impl Metrics {
    /// Of measured times and the scores of the same samples. `None` without samples, or if their numbers differ.
    pub fn of(times: &[f64], scores: &[f64]) -> Option<Metrics> {
        let predicted = predicted_order(times, scores)?;
        let fastest = times.iter().copied().reduce(f64::min)?;
        let rank = predicted.iter().position(|t| *t == fastest)? + 1;
        let (low, high) = predicted.split_at(predicted.len().div_ceil(2));
        Some(Metrics {
            e_top1: 100.0 * (1.0 - fastest / predicted[0]),
            r_top1: 100.0 * rank as f64 / predicted.len() as f64,
            q_low: drops(low),
            q_high: drops(high),
        })
    }

    /// The median of each metric. `None` without metrics.
    pub fn median(all: &[Metrics]) -> Option<Metrics> {
        let of = |get: fn(&Metrics) -> f64| median(all.iter().map(get).collect());
        Some(Metrics {
            e_top1: of(|m| m.e_top1)?,
            r_top1: of(|m| m.r_top1)?,
            q_low: of(|m| m.q_low)?,
            q_high: of(|m| m.q_high)?,
        })
    }

    /// The mean of each metric. `None` without metrics.
    pub fn mean(all: &[Metrics]) -> Option<Metrics> {
        let of = |get: fn(&Metrics) -> f64| all.iter().map(get).sum::<f64>() / all.len() as f64;
        (!all.is_empty()).then(|| Metrics {
            e_top1: of(|m| m.e_top1),
            r_top1: of(|m| m.r_top1),
            q_low: of(|m| m.q_low),
            q_high: of(|m| m.q_high),
        })
    }
}

/// Times in the order of their scores, the least first. `None` if there are not as many scores as times.
pub fn predicted_order(times: &[f64], scores: &[f64]) -> Option<Vec<f64>> {
    if times.len() != scores.len() {
        return None;
    }
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
    Some(order.into_iter().map(|i| times[i]).collect())
}

fn drops(times: &[f64]) -> f64 {
    let pairs = times.windows(2);
    let sum: f64 = pairs.map(|p| (p[0] - p[0].min(p[1])) / p[0]).sum();
    100.0 * sum / times.len().max(1) as f64
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    Some((values.get(n / 2)? + values.get(n.checked_sub(1)? / 2)?) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_by_hand() {
        // Predicted order: 4, 2, 8, 5, 10.
        let of = Metrics::of(&[2.0, 4.0, 5.0, 8.0, 10.0], &[0.2, 0.1, 0.4, 0.3, 0.5]).unwrap();
        assert_eq!(of.e_top1, 50.0);
        assert_eq!(of.r_top1, 40.0);
        // (4 - 2) / 4 over the three samples 4, 2, 8; nothing over 5, 10.
        assert!((of.q_low - 50.0 / 3.0).abs() < 1e-9);
        assert_eq!(of.q_high, 0.0);
        // Predicted order: 1, 4, 3, 2. Halves 1, 4 and 3, 2.
        let of = Metrics::of(&[1.0, 2.0, 3.0, 4.0], &[0.0, 9.0, 8.0, 7.0]).unwrap();
        assert_eq!((of.e_top1, of.r_top1, of.q_low), (0.0, 25.0, 0.0));
        assert!((of.q_high - 100.0 / 6.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_has_no_metrics() {
        assert_eq!(Metrics::of(&[], &[]), None);
        assert_eq!(Metrics::of(&[1.0], &[]), None);
        assert_eq!(Metrics::median(&[]), None);
        assert_eq!(Metrics::mean(&[]), None);
    }

    #[test]
    fn medians_and_means_are_of_each_metric() {
        let with = |e_top1, r_top1| Metrics {
            e_top1,
            r_top1,
            ..Metrics::default()
        };
        let all = [with(1.0, 9.0), with(3.0, 1.0), with(8.0, 2.0)];
        assert_eq!(Metrics::median(&all), Some(with(3.0, 2.0)));
        assert_eq!(Metrics::median(&all[..2]), Some(with(2.0, 5.0)));
        assert_eq!(Metrics::mean(&all), Some(with(4.0, 4.0)));
    }
}
