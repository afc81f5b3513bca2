//! The losses that trees minimise, with their derivatives by the predictions.

use super::{Examples, Objective};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// Rows of its group that a row is compared with each round. Small groups compare all pairs.
const PARTNERS: usize = 16;

/// The prediction before the first tree.
pub(super) fn base(examples: &Examples<'_>, objective: Objective) -> f64 {
    let weights: f64 = (0..examples.y.len()).map(|r| examples.weight(r)).sum();
    if objective == Objective::PairwiseRanking || weights <= 0.0 {
        return 0.0;
    }
    let weighed = examples.y.iter().enumerate();
    weighed.map(|(r, y)| y * examples.weight(r)).sum::<f64>() / weights
}

/// The losses of the rows that trees learn from and of those that judge them.
pub(super) struct Losses<'a> {
    examples: &'a Examples<'a>,
    objective: Objective,
    learning: Vec<Vec<u32>>,
    judging: Vec<Vec<u32>>,
}

/// Two rows of one group, and what their comparison weighs.
struct Pair {
    better: usize,
    worse: usize,
    weight: f64,
}

impl<'a> Losses<'a> {
    pub fn of(
        examples: &'a Examples<'a>,
        objective: Objective,
        learning: &[u32],
        judging: &[u32],
    ) -> Losses<'a> {
        let grouped = |rows: &[u32]| -> Vec<Vec<u32>> {
            let mut groups: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
            for row in rows {
                let group = examples.groups.map_or(0, |g| g[*row as usize]);
                groups.entry(group).or_default().push(*row);
            }
            groups.into_values().collect()
        };
        Losses {
            examples,
            objective,
            learning: grouped(learning),
            judging: grouped(judging),
        }
    }

    /// The first and the second derivative of the loss of every row that trees learn from.
    pub fn derive(&self, margins: &[f64], rng: &mut Pcg64Mcg, derivatives: &mut [[f64; 2]]) {
        derivatives.fill([0.0; 2]);
        match self.objective {
            Objective::SquaredError => {
                for row in self.learning.iter().flatten().map(|r| *r as usize) {
                    let weight = self.examples.weight(row);
                    derivatives[row] = [weight * (margins[row] - self.examples.y[row]), weight];
                }
            }
            Objective::PairwiseRanking => self.each_pair(&self.learning, rng, |pair| {
                // The probability that the worse row is taken for the better one.
                let wrong = 1.0 / (1.0 + (margins[pair.better] - margins[pair.worse]).exp());
                let (first, second) = (pair.weight * wrong, pair.weight * wrong * (1.0 - wrong));
                derivatives[pair.better][0] -= first;
                derivatives[pair.worse][0] += first;
                derivatives[pair.better][1] += second;
                derivatives[pair.worse][1] += second;
            }),
        }
    }

    /// The mean loss of the rows that judge, on the same pairs for the same seed.
    pub fn judge(&self, margins: &[f64], seed: u64) -> f64 {
        let (mut sum, mut weights) = (0.0, 0.0);
        let mut add = |loss: f64, weight: f64| {
            sum += weight * loss;
            weights += weight;
        };
        match self.objective {
            Objective::SquaredError => {
                for row in self.judging.iter().flatten().map(|r| *r as usize) {
                    let error = margins[row] - self.examples.y[row];
                    add(error * error, self.examples.weight(row));
                }
            }
            Objective::PairwiseRanking => {
                let mut rng = Pcg64Mcg::seed_from_u64(seed);
                self.each_pair(&self.judging, &mut rng, |pair| {
                    let lead = margins[pair.better] - margins[pair.worse];
                    add((-lead.abs()).exp().ln_1p() + (-lead).max(0.0), pair.weight);
                });
            }
        }
        if weights > 0.0 { sum / weights } else { 0.0 }
    }

    /// Calls `visit` for pairs with unequal targets. The pairs of a row weigh 1 together, on average.
    fn each_pair(&self, groups: &[Vec<u32>], rng: &mut Pcg64Mcg, mut visit: impl FnMut(Pair)) {
        let mut compare = |a: u32, b: u32, share: f64| {
            let (a, b) = (a as usize, b as usize);
            let y = self.examples.y;
            if y[a] != y[b] {
                let (better, worse) = if y[a] > y[b] { (a, b) } else { (b, a) };
                let weight = match self.examples.weights {
                    Some(w) => share * (w[a] * w[b]).sqrt(),
                    None => share,
                };
                visit(Pair {
                    better,
                    worse,
                    weight,
                });
            }
        };
        for group in groups.iter().filter(|g| g.len() > 1) {
            let others = group.len() - 1;
            for (i, row) in group.iter().enumerate() {
                if others <= PARTNERS {
                    for other in &group[..i] {
                        compare(*row, *other, 1.0 / others as f64);
                    }
                    continue;
                }
                for _ in 0..PARTNERS {
                    let k = rng.random_range(0..others);
                    let other = group[if k < i { k } else { k + 1 }];
                    compare(*row, other, 0.5 / PARTNERS as f64);
                }
            }
        }
    }
}
