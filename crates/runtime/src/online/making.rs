//! Making the selectors of a step from the names of its alternatives, and from decisions of earlier runs.

use super::{Member, Node};
use crate::choices::word;
use crate::run::SelectionKey;
use bestof::{BestOf, Decisions, Options, Unfit};
use std::sync::Arc;

/// What makes selectors: their options, and decisions of earlier runs.
pub(super) struct Making<'a> {
    pub(super) options: &'a Options,
    pub(super) known: Option<&'a Arc<Decisions>>,
}

impl Making<'_> {
    pub(super) fn selector(
        &self,
        name: &str,
        names: Vec<String>,
        known: Option<Arc<Decisions>>,
    ) -> Result<BestOf<SelectionKey, ()>, Unfit> {
        let alternatives = names.into_iter().map(|name| (name, ()));
        let selector = BestOf::new(name, alternatives, self.options.clone())?;
        Ok(match known {
            Some(known) => selector.starting_from(known),
            None => selector,
        })
    }

    /// The alternative of a decision of earlier runs that is not among these; none if all are there.
    pub(super) fn gone(&self, name: &str, names: &[String]) -> Option<String> {
        let mut all = self.known?.of(name).map(|(_, d)| &d.alternative);
        all.find(|a| !names.contains(a)).cloned()
    }

    /// Decisions among the alternatives of a step as its selector and those of its families start from them.
    fn known(&self, name: &str, names: &[String]) -> Option<Arc<Decisions>> {
        let mut known = Decisions::new();
        for (key, d) in self.known?.of(name) {
            let Some(leaf) = names.iter().find(|n| **n == d.alternative) else {
                continue;
            };
            let family = family(leaf);
            let mut put = |name: &str, alternative: &str| {
                known.put(name, key, alternative, d.samples, d.median);
            };
            match numbered(names, &family).is_empty() {
                true => put(name, leaf),
                false => {
                    put(name, &family);
                    put(&inner(name, &family), leaf);
                }
            }
        }
        Some(Arc::new(known))
    }

    /// The selector of alternatives with these names. Of a family with several numbers they are
    /// one member, at the place of the first of them.
    pub(super) fn of_alternatives(&self, name: &str, names: &[String]) -> Result<Node, Unfit> {
        let known = self.known(name, names);
        let node = |name: &str, named: Vec<(String, Member)>| {
            let (names, members): (Vec<String>, Vec<Member>) = named.into_iter().unzip();
            let selector = self.selector(name, names, known.clone())?;
            Ok(Node { selector, members })
        };
        let mut members = Vec::new();
        for (at, own) in names.iter().enumerate() {
            let inside = numbered(names, &family(own));
            if inside.is_empty() {
                members.push((own.clone(), Member::Alternative(at)));
            } else if inside[0] == at {
                let leaf = |i: &usize| (names[*i].clone(), Member::Alternative(*i));
                let family = family(own);
                let nested = node(&inner(name, &family), inside.iter().map(leaf).collect())?;
                let node = Box::new(nested);
                members.push((family.clone(), Member::Nested { family, node }));
            }
        }
        node(name, members)
    }
}

/// The name of the selector of a family inside of a step's.
fn inner(name: &str, family: &str) -> String {
    format!("{name} {family}")
}

/// The name of a step's selector: its task, which other alternatives do not change. A step that does not say what it
/// depends on has the hash of its alternatives.
pub(super) fn task(key_shape: &[i64], names: &[String]) -> String {
    match key_shape {
        [] => {
            let of_names = xxhash_rust::xxh3::xxh3_64(names.concat().as_bytes());
            format!("{of_names:016x}")
        }
        shape => {
            let all = shape.iter().map(|n| format!("{n:016x}"));
            all.collect::<Vec<String>>().join(" ")
        }
    }
}

/// The words of an alternative's algorithms without their numbers: `winograd`, or `nest+winograd+nest` of several calls.
fn family(name: &str) -> String {
    let words = word(name).split('+');
    let words = words.map(|w| w.trim_end_matches(|c: char| c.is_ascii_digit()));
    words.collect::<Vec<&str>>().join("+")
}

/// The positions of a family's names, if they have several numbers and there are other families.
fn numbered(names: &[String], of: &str) -> Vec<usize> {
    let mut all: Vec<usize> = (0..names.len()).collect();
    all.retain(|i| !of.is_empty() && family(&names[*i]) == of);
    // Points of one algorithm, such as two of `gemm.packed`, are no family.
    let differ = all.iter().any(|i| word(&names[*i]) != word(&names[all[0]]));
    if !differ || all.len() == names.len() {
        all.clear();
    }
    all
}
