//! How well one list of numbers ranks another.

/// The rank of each number, from 0 for the least; equal numbers have the mean of their ranks.
fn ranks(of: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..of.len()).collect();
    order.sort_by(|a, b| of[*a].total_cmp(&of[*b]));
    let mut ranks = vec![0.0; of.len()];
    for group in order.chunk_by(|a, b| of[*a] == of[*b]) {
        let begin = order.iter().position(|i| *i == group[0]).unwrap_or(0);
        let mean = begin as f64 + (group.len() - 1) as f64 / 2.0;
        for i in group {
            ranks[*i] = mean;
        }
    }
    ranks
}

/// Spearman's rank correlation: 1 where both lists have one order, -1 where their orders are
/// opposite. `None` where one list has a single value.
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    pearson(&ranks(a), &ranks(b))
}

/// Pearson's correlation: 1 where one list rises in proportion to the other, -1 where it falls so. `None` where one list has
/// a single value.
pub fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    let apart = |x: &[f64]| -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        x.iter().map(|x| x - mean).collect()
    };
    let (a, b) = (apart(a), apart(b));
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    (spread > 0.0).then(|| product(&a, &b) / spread)
}

/// Kendall's tau-b: pairs that both lists order alike less those that they order oppositely,
/// over all pairs that neither list has as equal. `None` where one list has a single value.
pub fn kendall(a: &[f64], b: &[f64]) -> Option<f64> {
    let (mut sum, mut in_a, mut in_b) = (0.0, 0.0, 0.0);
    let sign = |x: f64, y: f64| match x.total_cmp(&y) {
        _ if x == y => 0.0,
        std::cmp::Ordering::Less => -1.0,
        _ => 1.0,
    };
    for i in 0..a.len() {
        for j in 0..i {
            let (x, y) = (sign(a[i], a[j]), sign(b[i], b[j]));
            sum += x * y;
            in_a += x * x;
            in_b += y * y;
        }
    }
    let pairs = f64::sqrt(in_a * in_b);
    (pairs > 0.0).then(|| sum / pairs)
}

/// The sum of the `k` least measured numbers over that of those whose predictions are least.
pub fn top_ratio(predicted: &[f64], measured: &[f64], k: usize) -> f64 {
    let sum = |by: &[f64]| -> f64 {
        let mut order: Vec<usize> = (0..by.len()).collect();
        order.sort_by(|a, b| by[*a].total_cmp(&by[*b]));
        order.iter().take(k).map(|i| measured[*i]).sum()
    };
    sum(measured) / sum(predicted)
}

/// The share of the `k` least measured numbers that is among the `k` least predicted ones.
pub fn top_recall(predicted: &[f64], measured: &[f64], k: usize) -> Option<f64> {
    let k = k.min(measured.len());
    let least = |of: &[f64]| -> Vec<usize> {
        let mut order: Vec<usize> = (0..of.len()).collect();
        order.sort_by(|a, b| of[*a].total_cmp(&of[*b]));
        order.truncate(k);
        order
    };
    let (found, wanted) = (least(predicted), least(measured));
    let hits = wanted.iter().filter(|i| found.contains(i)).count();
    (k > 0).then(|| hits as f64 / k as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_orders_correlate_and_opposite_ones_do_not() {
        let (up, down) = ([1.0, 2.0, 5.0, 9.0], [4.0, 3.0, 2.0, 1.0]);
        for of in [spearman, kendall] {
            assert_eq!(of(&up, &up), Some(1.0));
            assert_eq!(of(&up, &down), Some(-1.0));
            assert_eq!(of(&up, &[3.0; 4]), None);
            assert_eq!(of(&[], &[]), None);
        }
    }

    #[test]
    fn values_in_between_are_those_of_the_definitions() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0, 4.0, 3.0, 5.0]);
        // 1 - 6 * 4 / (5 * 24), and (8 - 2) / 10.
        assert!((spearman(&a, &b).unwrap() - 0.8).abs() < 1e-12);
        // Sums of products 8, 8 and 4 about the means.
        let found = pearson(&[1.0, 3.0, 5.0, 3.0], &[2.0, 2.0, 4.0, 0.0]);
        assert!((found.unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(pearson(&[1.0, 2.0], &[3.0, 3.0]), None);
        assert!((kendall(&a, &b).unwrap() - 0.6).abs() < 1e-12);
        // Two are equal: 5 pairs alike of 5 and 6.
        let (a, b) = ([1.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]);
        assert!((kendall(&a, &b).unwrap() - 5.0 / 30f64.sqrt()).abs() < 1e-12);
        assert_eq!(ranks(&a), [0.5, 0.5, 2.0, 3.0]);
    }

    #[test]
    fn recall_counts_the_best_that_are_found() {
        let (predicted, measured) = ([1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 2.0, 3.0]);
        assert_eq!(top_recall(&predicted, &measured, 1), Some(1.0));
        assert_eq!(top_recall(&predicted, &measured, 2), Some(0.5));
        assert_eq!(top_recall(&predicted, &measured, 9), Some(1.0));
        assert_eq!(top_recall(&[], &[], 3), None);
    }
}
