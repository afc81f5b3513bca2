//! Choosing among the alternatives of steps while inferences run.
//!
//! Steps with the same alternatives, such as equal layers, share their decisions. Algorithms that differ
//! in a number only, such as `winograd2` and `winograd4`, choose among themselves first: a selector inside
//! the step's selector. A decided step costs a look at a list more than one without alternatives, and no
//! reading of a clock.

use crate::choices::word;
use crate::model::{Alternative, CompiledModel, ModelStep, StepId};
use crate::run::{Choice, SelectionKey, Selector};
use crate::variants::Variants;
use bestof::{Begun, BestOf, Decisions, Options, Unfit};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// What a selector chooses among: positions of a step's alternatives, or selectors of some of them.
enum Member {
    Alternative(usize),
    Nested { family: String, node: Box<Node> },
}

/// A selector, and what its positions are.
struct Node {
    selector: BestOf<SelectionKey, ()>,
    members: Vec<Member>,
}

/// The selectors of a model's steps, for models that run and for whoever asks what was decided.
#[derive(Clone)]
pub struct Selectors {
    /// One for the steps that have the same alternatives.
    all: Vec<Arc<Node>>,
    /// Of each step of each variant; none for steps without a choice.
    steps: Vec<Vec<Option<usize>>>,
}

/// What makes selectors: their options, and decisions of earlier runs.
struct Making<'a> {
    options: &'a Options,
    known: Option<&'a Arc<Decisions>>,
}

impl Making<'_> {
    fn node(&self, named: Vec<(String, Member)>) -> Result<Node, Unfit> {
        let (names, members): (Vec<String>, Vec<Member>) = named.into_iter().unzip();
        let of_names = xxhash_rust::xxh3::xxh3_64(names.concat().as_bytes());
        let alternatives = names.into_iter().map(|name| (name, ()));
        let selector = BestOf::new(
            &format!("{of_names:016x}"),
            alternatives,
            self.options.clone(),
        )?;
        let selector = match self.known {
            Some(known) => selector.starting_from(known.clone()),
            None => selector,
        };
        Ok(Node { selector, members })
    }

    /// The selector of alternatives with these names. Of a family with several numbers they are
    /// one member, at the place of the first of them.
    fn of_alternatives(&self, names: &[String]) -> Result<Node, Unfit> {
        let mut members = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let inside = numbered(names, family(name));
            if inside.is_empty() {
                members.push((name.clone(), Member::Alternative(at)));
            } else if inside[0] == at {
                let leaf = |i: &usize| (names[*i].clone(), Member::Alternative(*i));
                let nested = self.node(inside.iter().map(leaf).collect())?;
                let family = family(name).to_string();
                let name = format!("{family} {}", nested.selector.name());
                let node = Box::new(nested);
                members.push((name, Member::Nested { family, node }));
            }
        }
        self.node(members)
    }
}

/// The word without its number.
fn family(name: &str) -> &str {
    word(name).trim_end_matches(|c: char| c.is_ascii_digit())
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

impl Node {
    /// The alternative that was decided on, of all selectors on the way to it.
    fn decided(&self, key: &SelectionKey) -> Option<usize> {
        match &self.members[self.selector.decided_position(key)?] {
            Member::Alternative(at) => Some(*at),
            Member::Nested { node, .. } => node.decided(key),
        }
    }

    /// The families on the way to the alternative that was decided on.
    fn families(&self, key: &SelectionKey, found: &mut Vec<String>) {
        let at = self.selector.decided_position(key);
        if let Some(Member::Nested { family, node }) = at.map(|at| &self.members[at]) {
            found.push(family.clone());
            node.families(key, found);
        }
    }

    /// Begins a call: the alternative that runs, and what is to be told of the call, from the outermost
    /// selector to the innermost.
    fn begin(&self, key: &SelectionKey, begun: &mut Vec<Begun>) -> usize {
        let own = self.selector.begin(key);
        let at = own.alternative();
        begun.push(own);
        match &self.members[at] {
            Member::Alternative(at) => *at,
            Member::Nested { node, .. } => node.begin(key, begun),
        }
    }

    /// Ends a call that [`Node::begin`] began.
    fn finish(&self, begun: Vec<Begun>, time: Duration) {
        let mut nodes = vec![self];
        for b in &begun {
            if let Member::Nested { node: inner, .. } =
                &nodes[nodes.len() - 1].members[b.alternative()]
            {
                nodes.push(inner);
            }
        }
        // An inner selector is done before the outer one is. What it tries is no sample of the outer one.
        let mut tries = false;
        for (node, b) in nodes.into_iter().zip(begun).rev() {
            let timed = b.is_timed();
            node.selector.finish(b, time, tries);
            tries |= timed;
        }
    }

    /// Drops an alternative; whether another one is left.
    fn fail(&self, key: &SelectionKey, alternative: usize) -> bool {
        for (at, member) in self.members.iter().enumerate() {
            let left_inside = match member {
                Member::Alternative(a) if *a == alternative => false,
                Member::Nested { node, .. } if node.has(alternative) => node.fail(key, alternative),
                _ => continue,
            };
            return left_inside || self.selector.fail(key, at);
        }
        false
    }

    fn has(&self, alternative: usize) -> bool {
        self.members.iter().any(|m| match m {
            Member::Alternative(a) => *a == alternative,
            Member::Nested { node, .. } => node.has(alternative),
        })
    }

    /// The median of every alternative.
    fn medians(&self, key: &SelectionKey) -> Vec<Option<Duration>> {
        let mut found = Vec::new();
        for (member, median) in self.members.iter().zip(self.selector.medians(key)) {
            let (at, medians) = match member {
                Member::Alternative(at) => (*at, vec![median]),
                Member::Nested { node, .. } => (0, node.medians(key)),
            };
            if found.len() < at + medians.len() {
                found.resize(at + medians.len(), None);
            }
            for (i, median) in medians.into_iter().enumerate() {
                found[at + i] = found[at + i].or(median);
            }
        }
        found
    }

    /// This selector and those inside.
    fn all(&self) -> Vec<&BestOf<SelectionKey, ()>> {
        let mut all = vec![&self.selector];
        for m in &self.members {
            if let Member::Nested { node, .. } = m {
                all.extend(node.all());
            }
        }
        all
    }
}

impl Selectors {
    /// For the variants of a model. Problem sizes that decisions know start decided.
    ///
    /// Alternatives are named by their algorithms and the hashes of their code (hex), and selectors by the hash
    /// of these names. So a decision holds for any model that has the same kernels. Decisions are not watched,
    /// whatever [`Options::drift`] says: a decided step reads no clock.
    ///
    /// # Errors
    /// If an option is out of its range.
    pub fn new(
        variants: &Variants,
        options: &Options,
        known: Option<&Arc<Decisions>>,
    ) -> Result<Selectors, Unfit> {
        let making = Making { options, known };
        let mut found = Selectors {
            all: vec![],
            steps: vec![],
        };
        let mut positions: HashMap<Vec<String>, usize> = HashMap::new();
        for model in variants.models() {
            let mut of_model = Vec::new();
            for step in model.steps() {
                if step.alternatives.len() < 2 {
                    of_model.push(None);
                    continue;
                }
                let names = names(model, step);
                let at = match positions.get(&names) {
                    Some(at) => *at,
                    None => {
                        let node = making.of_alternatives(&names)?;
                        found.all.push(Arc::new(node));
                        positions.insert(names, found.all.len() - 1);
                        found.all.len() - 1
                    }
                };
                of_model.push(Some(at));
            }
            found.steps.push(of_model);
        }
        Ok(found)
    }

    /// A selector for a model of these variants, for [`crate::Model::set_selector`].
    pub fn online(&self) -> Box<dyn Selector> {
        let decided = self.steps.iter().map(|of| vec![None; of.len()]).collect();
        Box::new(Online {
            of: self.clone(),
            variant: 0,
            decided,
            begun: vec![],
        })
    }

    /// The alternative that was decided on for each step of a variant; none while alternatives are
    /// tried, and for steps without any.
    pub fn decided(
        &self,
        variant: usize,
        key: impl Fn(usize) -> SelectionKey,
    ) -> Vec<Option<usize>> {
        let one = |(step, at): (usize, &Option<usize>)| self.all[(*at)?].decided(&key(step));
        self.steps[variant].iter().enumerate().map(one).collect()
    }

    /// The families of algorithms on the way to what was decided for a step of a variant, such as `winograd`
    /// on the way to `winograd4`. Empty where none was chosen first.
    pub fn families(&self, variant: usize, step: usize, key: &SelectionKey) -> Vec<String> {
        let mut found = Vec::new();
        let at = self.steps.get(variant).and_then(|of| *of.get(step)?);
        if let Some(at) = at {
            self.all[at].families(key, &mut found);
        }
        found
    }

    /// The median of every alternative of a step of a variant, as far as it was tried. Empty for steps
    /// without a choice.
    pub fn medians(
        &self,
        variant: usize,
        step: usize,
        key: &SelectionKey,
    ) -> Vec<Option<Duration>> {
        let at = self.steps.get(variant).and_then(|of| *of.get(step)?);
        at.map(|at| self.all[at].medians(key)).unwrap_or_default()
    }

    fn selectors(&self) -> impl Iterator<Item = &BestOf<SelectionKey, ()>> {
        self.all.iter().flat_map(|node| node.all())
    }

    /// Whether every problem size that was met is decided. What a family that lost left open counts for nothing.
    pub fn are_decided(&self) -> bool {
        let decided = |node: &Arc<Node>| {
            let keys = node.selector.keys();
            keys.iter().all(|k| node.decided(k).is_some())
        };
        self.all.iter().all(decided)
    }

    /// Adds the decisions.
    pub fn save(&self, into: &mut Decisions) {
        self.selectors().for_each(|s| s.save(into));
    }
}

/// The names of a step's alternatives, which differ: the algorithms of their calls, and the hashes of their code.
fn names(model: &CompiledModel, step: &ModelStep) -> Vec<String> {
    let name = |a: &Alternative| {
        let kernels = a.calls.iter().map(|c| model.kernel(c));
        let algorithm = match &*a.calls {
            [call] => model.kernel(call).algorithm.clone(),
            _ => model.algorithm(a),
        };
        let hashes = kernels.map(|k| format!("{:016x}", k.code_hash()));
        format!("{algorithm} {}", hashes.collect::<Vec<_>>().join("+"))
    };
    step.alternatives.iter().map(name).collect()
}

struct Online {
    of: Selectors,
    variant: usize,
    /// Alternatives of steps that are decided, of each variant.
    decided: Vec<Vec<Option<usize>>>,
    /// The call that runs, if its time is wanted.
    begun: Vec<Begun>,
}

impl Online {
    fn node(&self, step: StepId) -> Option<&Arc<Node>> {
        let at = self.of.steps.get(self.variant)?.get(step.index())?;
        self.of.all.get((*at)?)
    }
}

impl Selector for Online {
    fn begins(&mut self, variant: usize) {
        self.variant = variant;
    }

    fn select(&mut self, step: StepId, key: &SelectionKey, _: usize) -> Choice {
        let decided = self
            .decided
            .get(self.variant)
            .and_then(|d| d.get(step.index()));
        if let Some(Some(alternative)) = decided
            && bestof::is_enabled()
        {
            return Choice {
                alternative: *alternative,
                timed: false,
            };
        }
        let Some(node) = self.node(step).cloned() else {
            return Choice {
                alternative: 0,
                timed: false,
            };
        };
        let mut begun = Vec::new();
        let alternative = node.begin(key, &mut begun);
        let timed = begun.iter().any(Begun::is_timed);
        if !timed && bestof::is_enabled() {
            self.decided[self.variant][step.index()] = node.decided(key);
        }
        self.begun = if timed { begun } else { vec![] };
        Choice { alternative, timed }
    }

    fn finished(&mut self, step: StepId, _: &SelectionKey, _: usize, time_ns: u64) {
        let begun = std::mem::take(&mut self.begun);
        if let Some(node) = self.node(step) {
            node.finish(begun, Duration::from_nanos(time_ns));
        }
    }

    fn failed(&mut self, step: StepId, key: &SelectionKey, alternative: usize) -> Option<usize> {
        self.begun.clear();
        *self.decided.get_mut(self.variant)?.get_mut(step.index())? = None;
        let node = self.node(step)?;
        // The next one runs instead, and nobody times it.
        let left = node.fail(key, alternative);
        left.then(|| node.begin(key, &mut Vec::new()))
    }

    fn ends(&mut self) {
        // A call that did not end is no sample.
        self.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(names: &[&str]) -> Node {
        let names: Vec<String> = names.iter().map(|n| (*n).to_string()).collect();
        let making = Making {
            options: &Options::default(),
            known: None,
        };
        making.of_alternatives(&names).unwrap()
    }

    fn key() -> SelectionKey {
        SelectionKey {
            shape: vec![],
            threads: 1,
        }
    }

    #[test]
    fn algorithms_that_differ_in_a_number_choose_among_themselves_first() {
        let n = node(&["im2row 1", "winograd2.a 2", "direct 3", "winograd4.b 4"]);
        assert_eq!(n.members.len(), 3);
        let Member::Nested {
            node: inner,
            family,
        } = &n.members[1]
        else {
            panic!("winograd is a selector of its own");
        };
        assert!(inner.has(1) && inner.has(3) && !inner.has(0));
        assert_eq!(family, "winograd");
        let nanoseconds = [50, 40, 60, 20];
        let mut calls = vec![0; 4];
        for _ in 0..200 {
            let mut begun = Vec::new();
            let at = n.begin(&key(), &mut begun);
            calls[at] += 1;
            n.finish(begun, Duration::from_nanos(nanoseconds[at]));
        }
        assert_eq!(n.decided(&key()), Some(3), "{calls:?}");
        let mut families = Vec::new();
        n.families(&key(), &mut families);
        assert_eq!(families, ["winograd"]);
        assert!(calls[3] > 150 && calls[0] >= 10, "{calls:?}");
    }

    #[test]
    fn a_family_that_loses_is_decided_and_judged_by_its_best() {
        let n = node(&["im2row 1", "winograd2.a 2", "winograd4.b 3"]);
        let nanoseconds = [10, 40, 20];
        for _ in 0..100 {
            let mut begun = Vec::new();
            let at = n.begin(&key(), &mut begun);
            n.finish(begun, Duration::from_nanos(nanoseconds[at]));
        }
        assert_eq!(n.decided(&key()), Some(0));
        assert!(n.all().iter().all(|s| s.decision(&key()).is_some()));
        let medians = n.selector.medians(&key());
        assert_eq!(medians[1], Some(Duration::from_nanos(20)));
        let tried = n.medians(&key()).into_iter().flatten();
        let tried: Vec<u128> = tried.map(|t| t.as_nanos()).collect();
        assert_eq!(tried, [10, 40, 20]);
    }

    #[test]
    fn one_family_alone_and_points_of_one_algorithm_are_not_nested() {
        for names in [
            &["winograd2.a 1", "winograd4.a 2"][..],
            &["gemm.packed 1", "gemm.rows 2", "im2row 3"],
            &[" 1", " 2", " 3"],
        ] {
            let n = node(names);
            assert_eq!(n.members.len(), names.len());
        }
    }

    #[test]
    fn what_fails_is_dropped_from_the_selector_that_has_it() {
        let n = node(&["im2row 1", "winograd2 2", "winograd4 3"]);
        for (alternative, left) in [(1, true), (2, true), (0, false)] {
            assert_eq!(n.fail(&key(), alternative), left);
        }
        let n = node(&["im2row 1", "winograd2 2", "winograd4 3"]);
        assert!(n.fail(&key(), 0) && n.fail(&key(), 1));
        assert_eq!(n.begin(&key(), &mut Vec::new()), 2);
    }
}
