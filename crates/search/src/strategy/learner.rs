//! What is fitted to answers: the choice, and what became of it.

use learn::{
    Design, EarlyStop, Examples, Network, Objective, Training, TreeSettings, Trees, Unfit,
};

/// What models of strategies are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Learner {
    /// Boosted trees.
    #[default]
    Trees,
    /// A small network of rectified layers.
    Network,
    /// Noise, which learns nothing: what a strategy finds without a model.
    Random,
}

/// Rows that a network is shown while it is trained, about, and the fewest and most passes over its answers.
const SHOWN: usize = 20_000;
const EPOCHS: (usize, usize) = (20, 200);
/// Its hidden layers.
const HIDDEN: [usize; 2] = [32, 32];

impl Learner {
    pub const ALL: [Learner; 3] = [Learner::Trees, Learner::Network, Learner::Random];

    pub fn name(self) -> &'static str {
        match self {
            Learner::Trees => "trees",
            Learner::Network => "network",
            Learner::Random => "random",
        }
    }

    /// The learner of that name, if there is one.
    pub fn of_name(name: &str) -> Option<Learner> {
        Learner::ALL.into_iter().find(|l| l.name() == name)
    }

    /// # Errors
    /// If the table has values that cannot be learned from.
    pub(super) fn fitted(self, examples: &Examples<'_>, seed: u64) -> Result<Fitted, Unfit> {
        match self {
            Learner::Trees => Trees::fitted(examples, &trees(seed)).map(Fitted::Trees),
            Learner::Network => {
                let epochs = SHOWN / examples.rows.len().max(1);
                let training = Training {
                    hidden: HIDDEN.to_vec(),
                    epochs: epochs.clamp(EPOCHS.0, EPOCHS.1),
                    batch: 16,
                    rate: 3e-3,
                    seed,
                };
                let fitted = Network::fitted(examples, &training, Design::RECTIFIED);
                fitted.map(Fitted::Network)
            }
            Learner::Random => Ok(Fitted::Random(seed)),
        }
    }
}

fn trees(seed: u64) -> TreeSettings {
    TreeSettings {
        rounds: 200,
        depth: 5,
        rate: 0.1,
        early_stop: Some(EarlyStop {
            validation: 0.0,
            patience: 20,
        }),
        ..TreeSettings::simulators(Objective::SquaredError, seed)
    }
}

/// What a [`Learner`] made of answers.
#[derive(Clone, Debug)]
pub(super) enum Fitted {
    Trees(Trees),
    Network(Network),
    /// With its seed.
    Random(u64),
}

impl Fitted {
    /// One prediction for each row, higher is better.
    pub fn predict(&self, rows: &[Vec<f64>]) -> Vec<f64> {
        match self {
            Fitted::Trees(trees) => trees.predict_batch(rows),
            Fitted::Network(network) => rows.iter().map(|r| network.predict(r)).collect(),
            Fitted::Random(seed) => rows.iter().map(|r| noise(*seed, r)).collect(),
        }
    }
}

/// A number in 0..1 that follows from a seed and a row: whoever asks again for a row hears the same.
fn noise(seed: u64, row: &[f64]) -> f64 {
    // SplitMix64's mixing of each value into the ones before.
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let of_row = row.iter().fold(mix(seed), |at, v| mix(at ^ v.to_bits()));
    (of_row >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use learn::spearman;

    /// Rows whose throughput falls with the distance from (3, 5), one column of which half the rows miss.
    fn table(n: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
        let row = |i: usize| {
            let (a, b) = ((i * 7 % 11) as f64, (i * 5 % 13) as f64);
            vec![a, b, if i.is_multiple_of(2) { f64::NAN } else { a * b }]
        };
        let rows: Vec<Vec<f64>> = (0..n).map(row).collect();
        let y = |r: &Vec<f64>| 1.0 / (1.0 + (r[0] - 3.0).abs() + (r[1] - 5.0).abs());
        let y = rows.iter().map(y).collect();
        (rows, y)
    }

    #[test]
    fn trees_and_networks_rank_rows_that_they_have_not_seen_and_noise_does_not() {
        let (rows, y) = table(143);
        let (learning, rest) = rows.split_at(80);
        let weights = vec![0.3; 80];
        let examples = Examples {
            weights: Some(&weights),
            ..Examples::of(learning, &y[..80])
        };
        let ranked = |learner: Learner| {
            let fitted = learner.fitted(&examples, 1).unwrap();
            spearman(&fitted.predict(rest), &y[80..]).unwrap()
        };
        assert!(ranked(Learner::Trees) > 0.6, "{}", ranked(Learner::Trees));
        let network = ranked(Learner::Network);
        assert!(network > 0.6, "{network}");
        let noise = ranked(Learner::Random);
        assert!(noise.abs() < 0.35, "{noise}");
    }

    #[test]
    fn equal_seeds_predict_the_same_and_other_seeds_other_noise() {
        let (rows, y) = table(40);
        for learner in Learner::ALL {
            assert_eq!(Learner::of_name(learner.name()), Some(learner));
            let of = |seed| {
                let fitted = learner.fitted(&Examples::of(&rows, &y), seed).unwrap();
                fitted.predict(&rows)
            };
            assert_eq!(of(1), of(1), "{}", learner.name());
            assert_ne!(of(1), of(2), "{}", learner.name());
        }
        assert_eq!(Learner::of_name("forest"), None);
    }
}
