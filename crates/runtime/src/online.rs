//! Choosing among the alternatives of steps while inferences run.
//!
//! Steps with the same alternatives, such as equal layers, share their decisions. Algorithms that differ
//! in a number only, such as `winograd2` and `winograd4`, choose among themselves first: a selector inside
//! the step's selector. The selectors of a group's steps are inside that of the group (`groups`). A decided
//! step costs a look at a list more than one without alternatives, and no reading of a clock.

use crate::groups::{GroupSelector, Grouped, Open};
use crate::interruptions::Interruptions;
use crate::model::{Alternative, CompiledModel, StepGroup, StepId};
use crate::run::{Choice, SelectionKey, Selector};
use crate::variants::Variants;
use bestof::{Begun, BestOf, Circumstances, Decisions, Options, Unfit};
use making::{Making, task};
use std::collections::BTreeSet;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

/// What a selector chooses among: positions of a step's alternatives, or selectors of some of them.
enum Member {
    Alternative(usize),
    Nested { family: String, node: Box<Node> },
}

impl Member {
    fn has(&self, alternative: usize) -> bool {
        match self {
            Member::Alternative(a) => *a == alternative,
            Member::Nested { node, .. } => node.members.iter().any(|m| m.has(alternative)),
        }
    }
}

/// A selector, and what its positions are.
struct Node {
    selector: BestOf<SelectionKey, ()>,
    members: Vec<Member>,
}

/// The selector of steps that have the same free alternatives.
#[derive(Clone)]
struct Own {
    node: Arc<Node>,
    /// The names of the alternatives.
    names: Arc<[String]>,
    /// The first of the steps.
    step: Arc<str>,
    /// The selector of the group that the steps are in.
    within: Option<Arc<GroupSelector>>,
}

/// What the steps of a variant have.
#[derive(Clone, Default)]
struct OfVariant {
    /// Of each step; none where there is one free alternative.
    own: Vec<Option<usize>>,
    /// Of each step its group.
    group: Vec<Option<usize>>,
    groups: Vec<Grouped>,
}

/// Why a decision of earlier runs does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model has no such alternative.
    NoKernel,
    /// The step is in a group, and was decided alone: a group's steps have other selectors.
    InGroup,
    /// The step is in no group, and was decided in one.
    NoGroup,
}

/// A decision of earlier runs that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The first step that the decision is about.
    pub step: String,
    /// The algorithms that were decided on, without the hashes of their code.
    pub algorithm: String,
    pub reason: Reason,
}

/// The selectors of a model's steps, for models that run and for whoever asks what was decided.
#[derive(Clone, Default)]
pub struct Selectors {
    all: Vec<Own>,
    gone: Vec<Gone>,
    /// One for the groups that have the same alternatives.
    together: Vec<Arc<GroupSelector>>,
    variants: Vec<OfVariant>,
}

impl Node {
    /// The alternative that was decided on, of all selectors on the way to it.
    fn decided(&self, key: &SelectionKey) -> Option<usize> {
        match &self.members[self.selector.decided_position(key)?] {
            Member::Alternative(at) => Some(*at),
            Member::Nested { node, .. } => node.decided(key),
        }
    }

    /// As [`Node::decided`]; none if a selector on the way does not save its decision.
    fn saved(&self, key: &SelectionKey, text: &str, saved: &Decisions) -> Option<usize> {
        saved.get(self.selector.name(), text)?;
        match &self.members[self.selector.decided_position(key)?] {
            Member::Alternative(at) => Some(*at),
            Member::Nested { node, .. } => node.saved(key, text, saved),
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
    fn finish(
        &self,
        key: &SelectionKey,
        begun: Vec<Begun>,
        time: Duration,
        of_call: Circumstances,
    ) {
        let mut nodes = vec![self];
        for b in &begun {
            if let Member::Nested { node: inner, .. } =
                &nodes[nodes.len() - 1].members[b.alternative()]
            {
                nodes.push(inner);
            }
        }
        // The best of the selectors around each one.
        let mut rivals: Vec<Option<Duration>> = vec![None];
        for (outer, node) in nodes.iter().enumerate().take(begun.len().saturating_sub(1)) {
            let own = node.rival(key, begun[outer].alternative());
            rivals.push(own.into_iter().chain(rivals[outer]).min());
        }
        // An inner selector is done before the outer one is. What it tries is no sample of the outer one.
        let mut disturbed = false;
        for ((node, b), rival) in nodes.into_iter().zip(begun).zip(rivals).rev() {
            let timed = b.is_timed();
            let how = Circumstances {
                disturbed,
                rival,
                ..of_call
            };
            node.selector.finish_under(b, time, how);
            disturbed |= timed;
        }
    }

    /// The least median of the members other than this one.
    fn rival(&self, key: &SelectionKey, of: usize) -> Option<Duration> {
        let medians = self.selector.medians(key).into_iter().enumerate();
        let others = medians.filter(|(at, _)| *at != of);
        others.filter_map(|(_, median)| median).min()
    }

    /// Drops an alternative; whether another one is left. Selectors inside that conceded to it are open again, and the
    /// times of a member in which something has changed are forgotten.
    fn fail(&self, key: &SelectionKey, alternative: usize) -> bool {
        let Some(at) = self.members.iter().position(|m| m.has(alternative)) else {
            return false;
        };
        let nested: Vec<(usize, &Node)> = self.nested().filter(|(other, _)| *other != at).collect();
        let rivals = || nested.iter().map(|(other, _)| self.rival(key, *other));
        let before: Vec<Option<Duration>> = rivals().collect();
        let left = match &self.members[at] {
            Member::Nested { node, .. } if node.fail(key, alternative) => {
                self.selector.retry(key, at);
                true
            }
            _ => self.selector.fail(key, at),
        };
        let changed: Vec<bool> = before
            .into_iter()
            .zip(rivals())
            .map(|(b, a)| b != a)
            .collect();
        for ((other, node), changed) in nested.into_iter().zip(changed) {
            if changed && node.reopen_conceded(key) {
                self.selector.retry(key, other);
            }
        }
        left
    }

    /// Opens the selectors inside that conceded; whether there were any.
    fn reopen_conceded(&self, key: &SelectionKey) -> bool {
        let mut opened = self.selector.reopen_conceded(key);
        for (at, node) in self.nested() {
            if node.reopen_conceded(key) {
                self.selector.retry(key, at);
                opened = true;
            }
        }
        opened
    }

    /// The selectors inside, with their positions.
    fn nested(&self) -> impl Iterator<Item = (usize, &Node)> {
        let members = self.members.iter().enumerate();
        members.filter_map(|(at, m)| match m {
            Member::Alternative(_) => None,
            Member::Nested { node, .. } => Some((at, &**node)),
        })
    }

    /// The median of every alternative. A family's last one may have been timed by the selector around it alone.
    fn medians(&self, key: &SelectionKey) -> Vec<Option<Duration>> {
        let mut found = Vec::new();
        for (member, median) in self.members.iter().zip(self.selector.medians(key)) {
            let (at, medians) = match member {
                Member::Alternative(at) => (*at, vec![median]),
                Member::Nested { node, .. } => {
                    let mut inside = node.medians(key);
                    if let Some(last) = node.decided(key) {
                        inside[last] = inside[last].or(median);
                    }
                    (0, inside)
                }
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
    /// Alternatives are named by their algorithms and the hashes of their code (hex), and selectors by
    /// the task of their step ([`crate::ModelStep::key_shape`]). So a decision holds for any model with this task that has the
    /// kernel, whatever else it has; [`Selectors::gone`] has those that do not hold. Decisions are not watched,
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
        let mut found = Selectors::default();
        for model in variants.models() {
            found.add(model, &making)?;
        }
        if let Some(known) = known {
            found.find_regrouped(known);
        }
        Ok(found)
    }

    /// Finds steps that were decided alone and are in a group now, or the other way round: a decision under a name that no
    /// selector has, on a kernel of a step that no decision is about.
    fn find_regrouped(&mut self, known: &Decisions) {
        let own = self.all.iter().map(|o| o.node.selector.name());
        let together = self.together.iter().map(|s| s.name());
        let names: BTreeSet<&str> = own.chain(together).collect();
        let unused = known.iter().filter(|(name, ..)| !names.contains(name));
        let unused: Vec<(bool, &str)> = unused
            .map(|(name, _, d)| (name.contains(OF_GROUP), &*d.alternative))
            .collect();
        let mut found = Vec::new();
        for own in &self.all {
            if known.of(own.node.selector.name()).next().is_some() {
                continue;
            }
            let grouped = own.within.is_some();
            let has = |name: &str| own.names.iter().any(|own| own == name);
            let mut other = unused.iter().filter(|(other, _)| *other != grouped);
            if let Some((_, alternative)) = other.find(|(_, name)| has(name)) {
                let reason = match grouped {
                    true => Reason::InGroup,
                    false => Reason::NoGroup,
                };
                found.push((own.step.clone(), *alternative, reason));
            }
        }
        for (step, alternative, reason) in found {
            self.is_gone(&step, alternative, reason);
        }
    }

    /// Adds a variant.
    fn add(&mut self, model: &CompiledModel, making: &Making<'_>) -> Result<(), Unfit> {
        let mut of = OfVariant::default();
        for (group, of_group) in model.groups().iter().enumerate() {
            let names = group_names(model, group);
            let first = &model.steps()[of_group.steps[0].index()];
            // All alternatives of all steps, as they tell apart what the names of a group leave out.
            let name = task(&first.key_shape, &all_names(model, of_group));
            let name = format!("{name} together");
            if let Some(alternative) = making.gone(&name, &names) {
                self.is_gone(&first.name, &alternative, Reason::NoKernel);
            }
            let named = making.selector(&name, names, making.known.cloned())?;
            let mut known = self.together.iter();
            let same = known.find(|s| s.name() == named.name()).cloned();
            let selector = same.unwrap_or_else(|| {
                self.together.push(Arc::new(named));
                self.together[self.together.len() - 1].clone()
            });
            of.groups.push(Grouped::new(model, group, selector));
        }
        for (at, step) in model.steps().iter().enumerate() {
            let group = model.group_of(at);
            of.group.push(group);
            let free = &step.alternatives[..model.free_alternatives(at)];
            if free.len() < 2 {
                of.own.push(None);
                continue;
            }
            let within = group.map(|g| of.groups[g].selector.clone());
            let names = names(model, free);
            let mut name = task(&step.key_shape, &names);
            if let Some(g) = group {
                // The steps of a group have one key.
                let mut steps = model.groups()[g].steps.iter();
                let place = steps.position(|s| s.index() == at);
                name += &format!("{OF_GROUP}{}", place.unwrap_or(0));
            }
            let known = self.all.len();
            let own = self.own(&name, (&step.name, names), within, making)?;
            if own == known
                && let Some(alternative) = making.gone(&name, &self.all[own].names)
            {
                self.is_gone(&step.name, &alternative, Reason::NoKernel);
            }
            of.own.push(Some(own));
        }
        self.variants.push(of);
        Ok(())
    }

    fn is_gone(&mut self, step: &str, alternative: &str, reason: Reason) {
        let calls = alternative.split(" & ");
        let words = calls.map(|a| a.split(' ').next().unwrap_or_default());
        self.gone.push(Gone {
            step: step.to_string(),
            algorithm: words.collect::<Vec<&str>>().join(" & "),
            reason,
        });
    }

    /// Decisions of earlier runs that do not hold.
    pub fn gone(&self) -> &[Gone] {
        &self.gone
    }

    /// The position of a selector like this, which is added if there is none.
    fn own(
        &mut self,
        name: &str,
        (step, names): (&str, Vec<String>),
        within: Option<Arc<GroupSelector>>,
        making: &Making<'_>,
    ) -> Result<usize, Unfit> {
        let of = |s: &Option<Arc<GroupSelector>>| s.as_ref().map(|s| s.name().to_string());
        let same = |o: &Own| {
            let named = o.node.selector.name() == name && o.names[..] == names[..];
            named && of(&o.within) == of(&within)
        };
        if let Some(at) = self.all.iter().position(same) {
            return Ok(at);
        }
        let node = Arc::new(making.of_alternatives(name, &names)?);
        let names = names.into();
        self.all.push(Own {
            node,
            names,
            step: step.into(),
            within,
        });
        Ok(self.all.len() - 1)
    }

    /// Decisions for the first free alternative of every step of a variant, where something else than inferences of this
    /// kind has decided so. Groups are not decided by that.
    pub fn firsts(&self, variant: usize, key: impl Fn(usize) -> SelectionKey) -> Decisions {
        let mut found = Decisions::new();
        let steps = self.variants.get(variant).map(|of| &of.own[..]);
        for (step, own) in steps.unwrap_or_default().iter().enumerate() {
            if let Some(own) = own.map(|at| &self.all[at]) {
                let (name, key) = (own.node.selector.name(), format!("{:?}", key(step)));
                found.put(name, &key, &own.names[0], 0, Duration::ZERO);
            }
        }
        found
    }

    /// A selector for a model of these variants, for [`crate::Model::set_selector`].
    pub fn online(&self) -> Box<dyn Selector> {
        let variants = self.variants.iter();
        let decided = variants.map(|of| vec![None; of.own.len()]).collect();
        let groups = self.variants.iter().map(|of| of.groups.len()).max();
        Box::new(Online {
            open: (0..groups.unwrap_or(0)).map(|_| None).collect(),
            of: self.clone(),
            variant: 0,
            decided,
            begun: vec![],
            interruptions: None,
        })
    }

    fn node(&self, variant: usize, step: usize) -> Option<&Arc<Node>> {
        let at = *self.variants.get(variant)?.own.get(step)?;
        Some(&self.all[at?].node)
    }

    /// The group of a step, with its position.
    fn group(&self, variant: usize, step: usize) -> Option<(usize, &Grouped)> {
        let of = self.variants.get(variant)?;
        let at = (*of.group.get(step)?)?;
        Some((at, &of.groups[at]))
    }

    /// The alternative that was decided on for each step of a variant; none while alternatives are
    /// tried, and for steps without any.
    pub fn decided(
        &self,
        variant: usize,
        key: impl Fn(usize) -> SelectionKey,
    ) -> Vec<Option<usize>> {
        let one = |step: usize| {
            let (node, key) = (self.node(variant, step), key(step));
            match (self.group(variant, step), node) {
                (Some((_, g)), Some(node)) => g.decided(step, &key, node.decided(&key)),
                (Some((_, g)), None) => g.decided(step, &key, Some(0)),
                (None, node) => node?.decided(&key),
            }
        };
        (0..self.variants[variant].own.len()).map(one).collect()
    }

    /// The families of algorithms on the way to what was decided for a step of a variant, such as `winograd`
    /// on the way to `winograd4`. Empty where none was chosen first.
    pub fn families(&self, variant: usize, step: usize, key: &SelectionKey) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(node) = self.node(variant, step) {
            node.families(key, &mut found);
        }
        found
    }

    /// The median of every alternative of a step of a variant, as far as it was tried; none for those of sets, which
    /// [`Selectors::group_medians`] has. Empty for steps without a choice.
    pub fn medians(
        &self,
        variant: usize,
        step: usize,
        key: &SelectionKey,
    ) -> Vec<Option<Duration>> {
        let node = self.node(variant, step);
        let mut found = node.map(|n| n.medians(key)).unwrap_or_default();
        if let Some((_, g)) = self.group(variant, step) {
            found.resize(g.free(step) + g.sets(), None);
        }
        found
    }

    /// The medians of what the steps of a group take in all: apart, and with each set.
    pub fn group_medians(
        &self,
        variant: usize,
        group: usize,
        key: &SelectionKey,
    ) -> Vec<Option<Duration>> {
        let of = self.variants.get(variant).and_then(|v| v.groups.get(group));
        of.map(|g| g.selector.medians(key)).unwrap_or_default()
    }

    /// Whether every problem size that was met is decided. What a family or steps that run apart left open counts for
    /// nothing if they lost.
    pub fn are_decided(&self) -> bool {
        let decided = |own: &Own| {
            let lost = |k| {
                let within = own.within.as_ref();
                within.is_some_and(|s| s.decided_position(k).is_some_and(|at| at > 0))
            };
            let keys = own.node.selector.keys();
            keys.iter()
                .all(|k| own.node.decided(k).is_some() || lost(k))
        };
        let whole = |s: &Arc<GroupSelector>| {
            let keys = s.keys();
            keys.iter().all(|k| s.decided_position(k).is_some())
        };
        self.all.iter().all(decided) && self.together.iter().all(whole)
    }

    /// Adds the decisions. Of a step it is the alternative, whatever selectors are on the way to it: with others beside it
    /// there may be no family to choose first.
    pub fn save(&self, into: &mut Decisions) {
        for own in &self.all {
            let (mut found, selector) = (Decisions::new(), &own.node.selector);
            own.node.all().iter().for_each(|s| s.save(&mut found));
            for key in selector.keys() {
                let text = format!("{key:?}");
                let mut decisions = found.of(selector.name());
                let decision = decisions.find(|(known, _)| *known == text);
                if let Some((_, d)) = decision
                    && let Some(at) = own.node.saved(&key, &text, &found)
                {
                    into.put(selector.name(), &text, &own.names[at], d.samples, d.median);
                }
            }
        }
        self.together.iter().for_each(|s| s.save(into));
    }
}

/// Where a group's selector has its steps apart; the sets follow.
const APART: usize = 0;

/// Stands in the name of a selector of a step of a group, before its place there.
const OF_GROUP: &str = " step ";

/// What a group chooses among: to run apart, and the sets.
fn group_names(model: &CompiledModel, group: usize) -> Vec<String> {
    let group = &model.groups()[group];
    let steps = || group.steps.iter().map(|s| s.index());
    let all = |at: usize| &model.steps()[at].alternatives;
    let set = |set: usize| {
        let of = |at| &all(at)[model.free_alternatives(at) + set];
        let names = steps().flat_map(|at| names(model, from_ref(of(at))));
        names.collect::<Vec<String>>().join(" & ")
    };
    ["apart".to_string()]
        .into_iter()
        .chain((0..group.sets).map(set))
        .collect()
}

/// The names of all alternatives of the steps of a group.
fn all_names(model: &CompiledModel, group: &StepGroup) -> Vec<String> {
    let steps = group.steps.iter().map(|s| &model.steps()[s.index()]);
    steps.flat_map(|s| names(model, &s.alternatives)).collect()
}

/// The names of alternatives, which differ: the algorithms of their calls, and the hashes of their code.
fn names(model: &CompiledModel, alternatives: &[Alternative]) -> Vec<String> {
    let name = |a: &Alternative| {
        let kernels = a.calls.iter().map(|c| model.kernel(c));
        let algorithm = match &*a.calls {
            [call] => model.kernel(call).algorithm.clone(),
            _ => model.algorithm(a),
        };
        let hashes = kernels.map(|k| format!("{:016x}", k.code_hash()));
        format!("{algorithm} {}", hashes.collect::<Vec<_>>().join("+"))
    };
    alternatives.iter().map(name).collect()
}

struct Online {
    of: Selectors,
    variant: usize,
    /// Alternatives of steps that are decided, of each variant.
    decided: Vec<Vec<Option<usize>>>,
    /// The call that runs, if its time is wanted.
    begun: Vec<Begun>,
    /// The groups that run, if their times are wanted.
    open: Vec<Option<Open>>,
    /// Interruptions before the call that is timed.
    interruptions: Option<Interruptions>,
}

impl Online {
    /// The alternative of a step that is decided, without asking its selectors.
    fn known(&self, step: StepId) -> Option<usize> {
        let known = *self.decided.get(self.variant)?.get(step.index())?;
        known.filter(|_| bestof::is_enabled())
    }

    /// Begins a call of a free alternative; the alternative, and whether its own selector wants the time.
    fn begin(&mut self, step: StepId, key: &SelectionKey) -> (usize, bool) {
        let (at, mut begun) = (step.index(), Vec::new());
        let node = self.of.node(self.variant, at);
        let alternative = node.map_or(0, |n| n.begin(key, &mut begun));
        let timed = begun.iter().any(Begun::is_timed);
        let group = self.of.group(self.variant, at);
        let settled = group.is_none_or(|(_, g)| g.is_decided(key));
        if !timed && settled && bestof::is_enabled() {
            self.decided[self.variant][at] = node.map_or(Some(0), |n| n.decided(key));
        }
        self.begun = if timed { begun } else { vec![] };
        (alternative, timed)
    }

    /// The alternative of a step that is not decided yet.
    fn undecided(&mut self, step: StepId, key: &SelectionKey) -> Choice {
        let group = self.of.group(self.variant, step.index());
        let at = group.map(|(at, _)| at);
        if let Some((at, g)) = group.filter(|(_, g)| g.begins_with(step)) {
            let (set, open) = g.begin(key);
            let timed = open.is_some();
            self.open[at] = open;
            if let Some(set) = set {
                let alternative = g.free(step.index()) + set;
                if !timed && g.is_decided(key) && bestof::is_enabled() {
                    self.decided[self.variant][step.index()] = Some(alternative);
                }
                return Choice { alternative, timed };
            }
        }
        let (alternative, timed) = self.begin(step, key);
        let timed = timed || at.is_some_and(|at| self.open[at].is_some());
        Choice { alternative, timed }
    }
}

impl Selector for Online {
    fn begins(&mut self, variant: usize) {
        self.variant = variant;
    }

    fn select(&mut self, step: StepId, key: &SelectionKey, _: usize) -> Choice {
        if let Some(alternative) = self.known(step) {
            return Choice {
                alternative,
                timed: false,
            };
        }
        let choice = self.undecided(step, key);
        if choice.timed {
            self.interruptions = Interruptions::now();
        }
        choice
    }

    fn finished(&mut self, step: StepId, key: &SelectionKey, _: usize, time_ns: u64) {
        let between = self.interruptions.take().zip(Interruptions::now());
        let how = Circumstances {
            uninterrupted: between.is_some_and(|(before, now)| before.none_until(now)),
            warm: between.is_some_and(|(before, now)| before.is_warm_until(now)),
            ..Circumstances::default()
        };
        let (begun, time) = (
            std::mem::take(&mut self.begun),
            Duration::from_nanos(time_ns),
        );
        let tries = !begun.is_empty();
        if let Some(node) = self.of.node(self.variant, step.index()) {
            node.finish(key, begun, time, how);
        }
        if let Some((at, g)) = self.of.group(self.variant, step.index())
            && let Some(mut open) = self.open[at].take()
        {
            open.add(time, tries, how);
            match g.ends_with(step) {
                true => g.finish(open),
                false => self.open[at] = Some(open),
            }
        }
    }

    fn failed(&mut self, step: StepId, key: &SelectionKey, alternative: usize) -> Option<usize> {
        self.begun.clear();
        let known = self.decided.get_mut(self.variant)?;
        *known.get_mut(step.index())? = None;
        if let Some((at, g)) = self.of.group(self.variant, step.index()) {
            self.open[at] = None;
            if let Some(set) = alternative.checked_sub(g.free(step.index())) {
                g.steps.iter().for_each(|(at, _)| known[*at] = None);
                g.selector.fail(key, set + 1);
                // Its steps run apart now, and nobody times them.
                let node = self.of.node(self.variant, step.index());
                return Some(node.map_or(0, |n| n.begin(key, &mut Vec::new())));
            }
        }
        let node = self.of.node(self.variant, step.index())?;
        // The next one runs instead, and nobody times it.
        let left = node.fail(key, alternative);
        if let Some((_, g)) = self.of.group(self.variant, step.index()) {
            // What its steps take apart is no longer what it was.
            g.steps.iter().for_each(|(at, _)| known[*at] = None);
            g.selector.retry(key, APART);
        }
        left.then(|| node.begin(key, &mut Vec::new()))
    }

    fn ends(&mut self) {
        // A call that did not end is no sample, and neither is a group.
        self.begun.clear();
        self.open.fill_with(|| None);
    }
}

mod making;
mod tree;

#[cfg(test)]
mod tests;
