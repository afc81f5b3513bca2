//! An [`EmbeddedNetwork`] whose inputs have names, so that it works on rows of other things than it was trained on.
//!
//! A row says words and numbers by name. What a name means is the caller's business. Names and words that the network was
//! not trained on count as unknown, and so does what a row leaves out.

use crate::Unfit;
use crate::embedded::{EmbeddedNetwork, Mixed};
use crate::saved::{LoadError, Model, Reader, Writer};
use std::collections::BTreeMap;

/// Names of words and of numbers that a network knows, the most frequent ones, and words of each name.
const MOST_WORDS: usize = 64;
const MOST_NUMBERS: usize = 48;
const MOST_VALUES: usize = 256;

/// What is known of one thing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedRow {
    /// Without white space.
    pub words: BTreeMap<String, String>,
    pub numbers: BTreeMap<String, f64>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedNetwork {
    /// Each name with its words; another word is a category of its own behind these.
    words: Vec<(String, Vec<String>)>,
    numbers: Vec<String>,
    network: EmbeddedNetwork,
}

/// The most frequent ones of some texts that are `worth` it, in the order of the alphabet.
fn frequent<'a>(
    all: impl Iterator<Item = &'a String>,
    most: usize,
    worth: impl Fn(&String) -> bool,
) -> Vec<String> {
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    all.for_each(|text| *counts.entry(text).or_default() += 1);
    let mut counts: Vec<(&String, usize)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let worth = counts.into_iter().filter(|(text, _)| worth(text));
    let mut kept: Vec<String> = worth.take(most).map(|(t, _)| t.clone()).collect();
    kept.sort();
    kept
}

/// Whether some of the things that rows say of a name differ. What all rows have in common teaches nothing, and would make rows of other
/// things unknown.
fn differ<T: PartialEq>(mut said: impl Iterator<Item = T>) -> bool {
    let first = said.next();
    said.any(|other| Some(&other) != first.as_ref())
}

fn mixed(words: &[(String, Vec<String>)], numbers: &[String], row: &NamedRow) -> Mixed {
    let category = |(name, values): &(String, Vec<String>)| {
        let word = row.words.get(name);
        let at = word.and_then(|w| values.binary_search(w).ok());
        at.unwrap_or(values.len())
    };
    let number = |name: &String| row.numbers.get(name).copied().unwrap_or(0.0);
    Mixed {
        categories: words.iter().map(category).collect(),
        numbers: numbers.iter().map(number).collect(),
    }
}

impl NamedNetwork {
    /// Trains on rows and their targets.
    ///
    /// # Errors
    /// If there are no rows, not as many targets, or a number is not finite.
    pub fn trained(rows: &[NamedRow], y: &[f64], seed: u64) -> Result<NamedNetwork, Unfit> {
        let differs = |name: &String| differ(rows.iter().map(|r| r.words.get(name)));
        let names = rows.iter().flat_map(|r| r.words.keys());
        let names = frequent(names, MOST_WORDS, differs);
        let values = |name: String| {
            let said = rows.iter().filter_map(|r| r.words.get(&name));
            let values = frequent(said, MOST_VALUES, |_| true);
            (name, values)
        };
        let words: Vec<(String, Vec<String>)> = names.into_iter().map(values).collect();
        let differs = |name: &String| differ(rows.iter().map(|r| r.numbers.get(name)));
        let numbers = rows.iter().flat_map(|r| r.numbers.keys());
        let numbers = frequent(numbers, MOST_NUMBERS, differs);
        let all: Vec<Mixed> = rows.iter().map(|r| mixed(&words, &numbers, r)).collect();
        let cardinalities: Vec<usize> = words.iter().map(|(_, values)| values.len() + 1).collect();
        let network = EmbeddedNetwork::trained(&all, &cardinalities, y, seed)?.rounded();
        Ok(NamedNetwork {
            words,
            numbers,
            network,
        })
    }

    pub fn predict(&self, row: &NamedRow) -> f64 {
        self.network
            .predict(&mixed(&self.words, &self.numbers, row))
    }

    /// As [`EmbeddedNetwork::place`].
    pub fn place(&self, row: &NamedRow) -> Vec<f64> {
        self.look(row).0
    }

    /// As [`EmbeddedNetwork::look`].
    pub fn look(&self, row: &NamedRow) -> (Vec<f64>, f64) {
        self.network.look(&mixed(&self.words, &self.numbers, row))
    }
}

impl Model for NamedNetwork {
    const KIND: &'static str = "named-network";

    fn write(&self, to: &mut Writer) {
        to.words("words", self.words.iter().map(|(name, _)| name));
        for (_, values) in &self.words {
            to.words("values", values.iter());
        }
        to.words("numbers", self.numbers.iter());
        self.network.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<NamedNetwork, LoadError> {
        let names = from.words("words")?;
        let words = names
            .into_iter()
            .map(|name| Ok((name, from.words("values")?)));
        let words: Vec<(String, Vec<String>)> = words.collect::<Result<_, LoadError>>()?;
        let numbers = from.words("numbers")?;
        let cardinalities: Vec<usize> = words.iter().map(|(_, values)| values.len() + 1).collect();
        let network = EmbeddedNetwork::read(from, &cardinalities, numbers.len())?;
        Ok(NamedNetwork {
            words,
            numbers,
            network,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load, save};

    fn row(word: &str, number: f64) -> NamedRow {
        NamedRow {
            words: [("kind".to_string(), word.to_string())].into(),
            numbers: [("size".to_string(), number)].into(),
        }
    }

    fn rows() -> Vec<NamedRow> {
        let one = |i: usize| row(["a", "b"][i % 2], i as f64);
        (0..60).map(one).collect()
    }

    fn trained(rows: &[NamedRow]) -> NamedNetwork {
        let y: Vec<f64> = (0..60).map(|i| [5.0, 0.0][i % 2]).collect();
        NamedNetwork::trained(rows, &y, 1).unwrap()
    }

    fn network() -> NamedNetwork {
        trained(&rows())
    }

    #[test]
    fn words_are_learned_and_what_is_not_known_has_a_prediction_too() {
        let network = network();
        let [a, b] = ["a", "b"].map(|w| network.predict(&row(w, 30.0)));
        assert!(a > 4.0 && b < 1.0, "{a} {b}");
        assert!(network.predict(&row("c", 30.0)).is_finite());
        assert_eq!(network.place(&NamedRow::default()).len(), 32);
    }

    #[test]
    fn what_all_rows_have_in_common_is_not_asked_for() {
        let mut rows = rows();
        for r in &mut rows {
            r.words.insert("machine".into(), "here".into());
            r.numbers.insert("threads".into(), 1.0);
        }
        assert_eq!(trained(&rows), network());
    }

    #[test]
    fn a_saved_network_is_read_back_bit_by_bit() {
        let network = network();
        let text = save(&network, 1);
        assert_eq!(load::<NamedNetwork>(&text, 1), Ok(network));
        assert!(load::<NamedNetwork>(&text, 2).is_err());
    }
}
