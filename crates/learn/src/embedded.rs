//! A network whose inputs are mostly names and positions: each has a vector that is learned with it.
//!
//! The network of Trimmer's filter: every category has an embedding of ten numbers, then come layers of
//! 32 and 32 rectified units, and one output. What the second layer gives out places a row among
//! others: rows that are alike for the target lie in one direction.

use crate::network::Plateau;
use crate::perceptron::{Activation, Adam, Layer, Layers};
use crate::saved::{LoadError, Reader, Writer};
use crate::scale::Scale;
use crate::{Unfit, targets};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

/// Numbers of a category's vector, and units of both hidden layers.
const VECTOR: usize = 10;
const HIDDEN: usize = 32;

/// Rows of a training step, Adam's rate, epochs, and those without progress before the rate is divided by ten.
/// Trimmer (section 4) has steps of 1024 rows, a rate of 1e-3, and 10 epochs. These are too few steps for ten
/// thousand rows (ADR 0041).
const BATCH: usize = 64;
const RATE: f64 = 2e-3;
const EPOCHS: usize = 12;
const PATIENCE: usize = 1;

/// With fewer rows than these, steps are of fewer rows and larger, and there are more epochs.
const FEW: usize = 8192;
const FEW_BATCH: usize = 16;
const FEW_RATE: f64 = 5e-3;
const FEW_EPOCHS: usize = 60;

/// What is known of one thing: categories by their numbers, and numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mixed {
    pub categories: Vec<usize>,
    pub numbers: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedNetwork {
    /// A vector for each value of each category.
    tables: Layers,
    layers: Layers,
    numbers: Vec<Scale>,
    target: Scale,
}

impl EmbeddedNetwork {
    /// Trains on rows of equally many categories and numbers. Category `j` of a row is below
    /// `cardinalities[j]`; one that is not counts as the last.
    ///
    /// # Errors
    /// If rows differ in their lengths, there are none, or a number is not finite.
    pub fn trained(
        rows: &[Mixed],
        cardinalities: &[usize],
        y: &[f64],
        seed: u64,
    ) -> Result<EmbeddedNetwork, Unfit> {
        let numbers = check(rows, cardinalities)?;
        targets(rows.len(), y)?;
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let table = |n: &usize, rng: &mut Pcg64Mcg| {
            let mut table = Layer::random(Activation::None, VECTOR, (*n).max(1), rng);
            table
                .weights
                .iter_mut()
                .for_each(|row| row.truncate(VECTOR));
            table
        };
        let tables = Layers {
            activation: Activation::None,
            all: cardinalities.iter().map(|n| table(n, &mut rng)).collect(),
        };
        let inputs = VECTOR * cardinalities.len() + numbers;
        let layers = Layers::random(Activation::Relu, &[inputs, HIDDEN, HIDDEN, 1], &mut rng);
        let values: Vec<Vec<f64>> = rows.iter().map(|r| r.numbers.clone()).collect();
        let mut network = EmbeddedNetwork {
            tables,
            layers,
            numbers: if numbers == 0 {
                vec![]
            } else {
                Scale::of_columns(&values)
            },
            target: Scale::of(y),
        };
        network.train(rows, y, &mut rng);
        Ok(network)
    }

    fn train(&mut self, rows: &[Mixed], y: &[f64], rng: &mut Pcg64Mcg) {
        let wanted: Vec<f64> = y.iter().map(|y| self.target.scaled(*y)).collect();
        let (mut adam, mut adam_of_tables) = (Adam::of(&self.layers), Adam::of(&self.tables));
        let (size, epochs, rate, patience) = match rows.len() < FEW {
            true => (FEW_BATCH, FEW_EPOCHS, FEW_RATE, None),
            false => (BATCH, EPOCHS, RATE, Some(PATIENCE)),
        };
        let mut plateau = Plateau::new(rate, patience);
        let mut order: Vec<usize> = (0..rows.len()).collect();
        for _ in 0..epochs {
            order.shuffle(rng);
            let mut sum = 0.0;
            for batch in order.chunks(size) {
                let (mut gradient, mut of_tables) = (self.layers.zeros(), self.tables.zeros());
                for row in batch {
                    let outputs = self.outputs(&rows[*row]);
                    let error = outputs[outputs.len() - 1][0] - wanted[*row];
                    sum += 0.5 * error * error;
                    let slopes = vec![error / batch.len() as f64];
                    let by_input = self.layers.add_gradient(&outputs, slopes, &mut gradient);
                    let vectors = of_tables.iter_mut().zip(by_input.chunks(VECTOR));
                    for (j, (table, slopes)) in vectors.enumerate() {
                        let at = self.vector(j, rows[*row].categories[j]);
                        for (g, s) in table.weights[at].iter_mut().zip(slopes) {
                            *g += s;
                        }
                    }
                }
                adam.step(&mut self.layers, &gradient, plateau.rate);
                adam_of_tables.step(&mut self.tables, &of_tables, plateau.rate);
            }
            plateau.epoch(sum / rows.len() as f64);
        }
    }

    fn vector(&self, table: usize, category: usize) -> usize {
        category.min(self.tables.all[table].weights.len() - 1)
    }

    fn outputs(&self, row: &Mixed) -> Vec<Vec<f64>> {
        let mut input = Vec::new();
        for (j, (table, category)) in self.tables.all.iter().zip(&row.categories).enumerate() {
            input.extend(&table.weights[self.vector(j, *category)]);
        }
        input.extend(Scale::scaled_row(&self.numbers, &row.numbers));
        self.layers.outputs(&input)
    }

    /// With weights of six digits, which make its text half as long.
    pub(crate) fn rounded(mut self) -> EmbeddedNetwork {
        let layers = self.tables.all.iter_mut().chain(&mut self.layers.all);
        for weight in layers.flat_map(|l| l.weights.iter_mut().flatten()) {
            *weight = format!("{weight:.5e}").parse().unwrap_or(*weight);
        }
        self
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        Scale::write(&self.numbers, to);
        Scale::write(&[self.target], to);
        let tables = self.tables.all.iter().flat_map(|t| &t.weights);
        tables.for_each(|row| to.numbers("vector", row.iter().copied()));
        let layers = self.layers.all.iter().flat_map(|l| &l.weights);
        layers.for_each(|row| to.numbers("weights", row.iter().copied()));
    }

    /// A network of so many values of each category and so many numbers.
    pub(crate) fn read(
        from: &mut Reader<'_>,
        cardinalities: &[usize],
        numbers: usize,
    ) -> Result<EmbeddedNetwork, LoadError> {
        let scales = Scale::read(from)?;
        if scales.len() != numbers {
            return Err(from.damaged("a number has no scale"));
        }
        let [target] = Scale::read(from)?[..] else {
            return Err(from.damaged("a network has one target"));
        };
        let mut layer = |rows: usize, name: &str, columns: usize| {
            let rows = (0..rows).map(|_| from.numbers_of(name, columns));
            let weights = rows.collect::<Result<_, LoadError>>()?;
            Ok(Layer { weights })
        };
        let tables = cardinalities
            .iter()
            .map(|n| layer((*n).max(1), "vector", VECTOR));
        let tables = tables.collect::<Result<_, LoadError>>()?;
        let inputs = VECTOR * cardinalities.len() + numbers;
        let widths = [(HIDDEN, inputs), (HIDDEN, HIDDEN), (1, HIDDEN)];
        let layers = widths.map(|(rows, inputs)| layer(rows, "weights", inputs + 1));
        let layers = layers.into_iter().collect::<Result<_, LoadError>>()?;
        Ok(EmbeddedNetwork {
            tables: Layers {
                activation: Activation::None,
                all: tables,
            },
            layers: Layers {
                activation: Activation::Relu,
                all: layers,
            },
            numbers: scales,
            target,
        })
    }

    pub fn predict(&self, row: &Mixed) -> f64 {
        self.look(row).1
    }

    /// What the second hidden layer gives out: 32 numbers, none of them negative.
    pub fn place(&self, row: &Mixed) -> Vec<f64> {
        self.look(row).0
    }

    /// The place of a row and what is predicted for it.
    pub fn look(&self, row: &Mixed) -> (Vec<f64>, f64) {
        let mut outputs = self.outputs(row);
        let predicted = self.target.back(outputs[outputs.len() - 1][0]);
        (outputs.swap_remove(2), predicted)
    }
}

/// Numbers of a row.
fn check(rows: &[Mixed], cardinalities: &[usize]) -> Result<usize, Unfit> {
    let first = rows.first().ok_or(Unfit::Empty)?;
    for (row, r) in rows.iter().enumerate() {
        let counts = [
            (r.categories.len(), cardinalities.len()),
            (r.numbers.len(), first.numbers.len()),
        ];
        if let Some((values, expected)) = counts.into_iter().find(|(a, b)| a != b) {
            return Err(Unfit::Length {
                row,
                values,
                expected,
            });
        }
        if !r.numbers.iter().all(|n| n.is_finite()) {
            return Err(Unfit::NotFinite { row });
        }
    }
    Ok(first.numbers.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of two categories and a number; the target has no order in the first category.
    fn table() -> (Vec<Mixed>, Vec<f64>) {
        let all = (0..8).flat_map(|a| (0..5).flat_map(move |b| (0..4).map(move |n| (a, b, n))));
        let odd = |a: usize| if a % 2 == 1 { 3.0 } else { 0.0 };
        all.map(|(a, b, n)| {
            let row = Mixed {
                categories: vec![a, b],
                numbers: vec![f64::from(n)],
            };
            (row, odd(a) + b as f64 * 0.2 + f64::from(n) * 0.1)
        })
        .unzip()
    }

    #[test]
    fn what_depends_on_names_is_learned() {
        let (rows, y) = table();
        let network = EmbeddedNetwork::trained(&rows, &[8, 5], &y, 1).unwrap();
        let errors = rows
            .iter()
            .zip(&y)
            .map(|(r, y)| (network.predict(r) - y).abs());
        let worst = errors.fold(0.0, f64::max);
        assert!(worst < 0.6, "{worst}");
        // Rows that cost alike lie nearer to each other than to others.
        let places: Vec<Vec<f64>> = rows.iter().map(|r| network.place(r)).collect();
        let length = |v: &[f64]| crate::dot(v, v).sqrt();
        let cosine = |a: &[f64], b: &[f64]| crate::dot(a, b) / (length(a) * length(b));
        let (mut alike, mut others) = (vec![], vec![]);
        for i in 0..rows.len() {
            for j in 0..i {
                let same = rows[i].categories[0] % 2 == rows[j].categories[0] % 2;
                let found = if same { &mut alike } else { &mut others };
                found.push(cosine(&places[i], &places[j]));
            }
        }
        let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
        assert!(mean(&alike) > mean(&others) + 0.05);
    }

    #[test]
    fn equal_seeds_give_equal_networks_and_unknown_categories_are_the_last() {
        let (rows, y) = table();
        let two = [1, 1].map(|seed| EmbeddedNetwork::trained(&rows, &[8, 5], &y, seed).unwrap());
        assert_eq!(two[0], two[1]);
        let unknown = Mixed {
            categories: vec![99, 2],
            numbers: vec![1.0],
        };
        let last = Mixed {
            categories: vec![7, 2],
            numbers: vec![1.0],
        };
        assert_eq!(two[0].predict(&unknown), two[0].predict(&last));
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let row = |numbers: Vec<f64>| Mixed {
            categories: vec![0],
            numbers,
        };
        let trained =
            |rows: &[Mixed]| EmbeddedNetwork::trained(rows, &[1], &vec![0.0; rows.len()], 1);
        assert_eq!(trained(&[]), Err(Unfit::Empty));
        let uneven = trained(&[row(vec![1.0]), row(vec![])]);
        assert_eq!(
            uneven,
            Err(Unfit::Length {
                row: 1,
                values: 0,
                expected: 1
            })
        );
        assert_eq!(
            trained(&[row(vec![f64::NAN])]),
            Err(Unfit::NotFinite { row: 0 })
        );
    }
}
