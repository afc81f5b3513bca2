//! Which steps read and write plain tensors although blocks are the rule.
//!
//! Blocks of channels suit most image operators, not all: few channels fill
//! them badly, and every border to an operator without blocks costs a
//! conversion. So a model is run once in blocks and once plain, both with
//! default schedules; from the times of their steps the plan with the least sum
//! is looked for, step by step and region by region, and whole-model latency
//! says whether it is kept. What was decided is an event in the store, which
//! every command that plans the same model follows.

use crate::Clock;
use crate::compile::Builders;
use crate::default_model::{DefaultModel, Making, Size};
use crate::error::Result;
use crate::latency::{MIN_PAIRS, compare_models};
use crate::machine::{Machine, target_key};
use crate::source::Source;
use ir::Target;
use plan::{Layout, Plan, PlanTensorId};
use runtime::Model;
use search::Accuracy;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};
use store::{EventKind, Extra, NewEvent, Paired, Store};

/// An estimated gain below this is not worth a comparison.
const LEAST_GAIN: f64 = 0.01;
/// Largest probability that a plan only seems faster.
const SIGNIFICANT: f64 = 0.01;
/// Profiles of a model that are taken even if one was disturbed for as long as all should take,
/// unless each takes longer.
const LEAST_ROUNDS: u32 = 5;
/// Most profiles of a model. One that takes all the time is profiled once.
const MOST_ROUNDS: usize = 15;

/// What was found about a model's layouts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Layouts {
    /// Steps in blocks, in the plan that is used.
    pub blocked: usize,
    /// Steps that stay plain where blocks are the rule.
    pub plain: Vec<String>,
    /// Whether an earlier run had decided.
    pub known: bool,
    /// Estimated change of latency by the best plan found, in percent.
    pub estimated_percent: Option<f64>,
    /// That plan against the rule; none if it promised too little.
    pub total: Option<Paired>,
    /// Why nothing was decided, if time did not suffice.
    pub skipped: Option<String>,
    pub time_s: f64,
}

impl Layouts {
    /// Whether other layouts were tried, so that there is something to remember.
    pub fn tried(&self) -> bool {
        self.estimated_percent.is_some() && self.skipped.is_none()
    }
}

impl Source {
    /// The plan for a target; with what a store knows of its layouts, if given.
    pub fn plan_for(
        &self,
        machine: &Machine,
        target: &Target,
        accuracy: Accuracy,
        store: Option<&Store>,
    ) -> Result<Plan> {
        let grouped = self.grouped(target, accuracy)?;
        let rule = self.planned(&grouped, target, &[]);
        let Some(store) = store else { return Ok(rule) };
        Ok(match known(store, &rule, machine, target)? {
            Some(plain) if !plain.is_empty() => self.planned(&grouped, target, &plain),
            _ => rule,
        })
    }
}

/// What the newest run that decided about this plan chose.
fn known(
    store: &Store,
    rule: &Plan,
    machine: &Machine,
    target: &Target,
) -> Result<Option<Vec<String>>> {
    let (key, target, machine) = (rule.key(), target_key(target).text(), machine.fingerprint());
    let events = store.newest_events(&rule.name, store::Layouts::NAME)?;
    let mut decisions = events.into_iter().filter_map(|e| match e.kind {
        EventKind::Layouts(decision) => Some(decision),
        _ => None,
    });
    let same = decisions.find(|d| d.plan == key && d.target == target && d.machine == machine);
    Ok(same.map(|d| d.plain))
}

/// The event of a decision about `rule`, the plan without exceptions.
pub fn event(
    run_id: &str,
    rule: &Plan,
    machine: &Machine,
    target: &Target,
    found: &Layouts,
) -> NewEvent {
    let decision = store::Layouts {
        plan: rule.key().to_string(),
        target: target_key(target).text(),
        machine: machine.fingerprint(),
        plain: found.plain.clone(),
        estimated_percent: found.estimated_percent,
        total: found.total,
        extra: Extra::new(),
    };
    NewEvent {
        run_id: run_id.into(),
        task: None,
        kind: decision.into(),
    }
}

/// What a decision needs, beside what models are made for.
pub struct LayoutTrial<'a> {
    pub machine: &'a Machine,
    pub making: Making<'a>,
    /// Time for running models; none if zero.
    pub time: Duration,
    pub clock: Clock,
}

/// What was decided.
pub struct LayoutDecision {
    /// The plan by the rule.
    pub rule: Plan,
    /// The plan to use, under default schedules.
    pub default: DefaultModel,
    /// What steps cost, if the model was run in blocks and plain.
    pub costs: Option<Costs>,
    pub layouts: Layouts,
}

/// Builds the default model, and decides on its layouts as far as time suffices.
///
/// # Errors
/// If the store cannot be read, or a default schedule cannot be built or run.
pub fn decide(
    source: &Source,
    store: &Store,
    builders: &mut Builders,
    trial: &LayoutTrial<'_>,
) -> Result<LayoutDecision> {
    let target = trial.making.target;
    let grouped = source.grouped(target, trial.making.allowed.accuracy)?;
    let plan = |plain: &[String]| source.planned(&grouped, target, plain);
    let rule = plan(&[]);
    let mut layouts = Layouts::default();
    if let Some(plain) = known(store, &rule, trial.machine, target)? {
        layouts.known = true;
        layouts.plain = plain;
    }
    let mut default = DefaultModel::new(plan(&layouts.plain), builders, &trial.making)?;
    let (start, mut costs) = (Instant::now(), None);
    if !layouts.known && !blocked(&rule).is_empty() && !trial.time.is_zero() {
        let end = trial.clock.layouts_end();
        builders.pool.end_by(end);
        match improve(&plan, &mut default, builders, trial, end, &mut layouts) {
            Ok(tried) => {
                default = tried.better.unwrap_or(default);
                costs = tried.costs;
            }
            Err(_) if trial.clock.is_stopped() => {
                layouts.skipped = Some("the run was stopped".into());
            }
            Err(_) if over(end) => layouts.skipped = Some("building takes too long".into()),
            Err(e) => return Err(e),
        }
        builders.pool.clear();
        builders.drain();
        builders.pool.end_by(None);
    }
    layouts.blocked = blocked(&default.plan).len();
    layouts.time_s = start.elapsed().as_secs_f64();
    Ok(LayoutDecision {
        rule,
        default,
        costs,
        layouts,
    })
}

/// What trying other layouts brought, as far as time sufficed.
#[derive(Default)]
struct Tried {
    costs: Option<Costs>,
    /// The default model of the best plan found, if it is faster than the one in blocks.
    better: Option<DefaultModel>,
}

fn over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

/// Why a comparison is left out that takes at least so long.
fn too_long(needed: Duration, end: Option<Instant>) -> Option<String> {
    let left = end?.saturating_duration_since(Instant::now());
    (needed > left).then(|| {
        let (needed, left) = (needed.as_secs_f64(), left.as_secs_f64());
        format!("running the model in other layouts takes {needed:.1} s, and {left:.1} s are left for it")
    })
}

/// Looks for a better plan than the one in blocks.
fn improve(
    plan: &impl Fn(&[String]) -> Plan,
    in_blocks: &mut DefaultModel,
    builders: &mut Builders,
    trial: &LayoutTrial<'_>,
    end: Option<Instant>,
    found: &mut Layouts,
) -> Result<Tried> {
    let Size {
        building,
        assembling,
        inference,
    } = in_blocks.size;
    found.skipped = too_long(building + assembling + 3 * inference, end);
    if found.skipped.is_some() {
        return Ok(Tried::default());
    }
    let all: Vec<String> = blocked(&in_blocks.plan).into_iter().collect();
    let mut in_rows = DefaultModel::new(plan(&all), builders, &trial.making)?;
    let profile_time = trial.time.mul_f64(0.3);
    let profiled = |model: &mut Model| {
        let start = Instant::now();
        let more = || start.elapsed() < profile_time && !trial.clock.is_stopped();
        let least = profile_while(model, more)?;
        trial.clock.goes_on().map(|()| least)
    };
    let of_blocks = profiled(&mut in_blocks.model)?;
    let of_rows = profiled(&mut in_rows.model)?;
    let costs = Costs::of((&in_blocks.plan, &of_blocks), (&in_rows.plan, &of_rows));
    drop(in_rows);
    let deadline = Instant::now() + trial.time.mul_f64(0.3);
    let over = || Instant::now() >= deadline || trial.clock.is_stopped();
    let best = search(&units(&in_blocks.plan), over, |plain| {
        let plain: Vec<String> = plain.iter().cloned().collect();
        costs.sum(&plan(&plain))
    });
    let gain = 1.0 - best.ns / costs.sum(&in_blocks.plan);
    found.estimated_percent = Some(-100.0 * gain);
    let mut tried = Tried {
        costs: Some(costs),
        better: None,
    };
    if gain < LEAST_GAIN {
        return Ok(tried);
    }
    found.skipped = too_long(assembling + (2 * MIN_PAIRS as u32 + 4) * inference, end);
    if found.skipped.is_some() {
        return Ok(tried);
    }
    let plain: Vec<String> = best.plain.into_iter().collect();
    let mut other = DefaultModel::new(plan(&plain), builders, &trial.making)?;
    let time = trial.time.mul_f64(0.4);
    let total = compare_models(&mut in_blocks.model, &mut other.model, time, &trial.clock)?;
    found.total = Some(total);
    let better = total.latency_percent < 0.0 && total.p < SIGNIFICANT;
    if better {
        found.plain = plain;
        tried.better = Some(other);
    }
    Ok(tried)
}

/// The least time of every step, of several runs if they fit into that time.
pub(crate) fn profile(model: &mut Model, time: Duration) -> Result<Vec<u64>> {
    let start = Instant::now();
    let mut runs = 0;
    profile_while(model, || {
        runs += 1;
        let few = runs < LEAST_ROUNDS && start.elapsed() < LEAST_ROUNDS * time;
        few || start.elapsed() < time
    })
}

/// The least time of every step, of one run and as many as `more` wants.
fn profile_while(model: &mut Model, mut more: impl FnMut() -> bool) -> Result<Vec<u64>> {
    let mut least = model.invoke_profiled()?;
    for _ in 1..MOST_ROUNDS {
        if !more() {
            break;
        }
        for (least, ns) in least.iter_mut().zip(model.invoke_profiled()?) {
            *least = ns.min(*least);
        }
    }
    Ok(least)
}

fn converts(plan: &Plan, step: usize) -> bool {
    plan.tasks[plan.steps[step].task].op == "layout_transform"
}

fn written_in_blocks(plan: &Plan, step: usize) -> bool {
    let outputs = plan.steps[step].outputs.iter();
    outputs
        .into_iter()
        .any(|t| plan.tensor(*t).layout != Layout::Plain)
}

/// Names of the steps that write blocks, conversions apart.
fn blocked(plan: &Plan) -> BTreeSet<String> {
    let steps =
        (0..plan.steps.len()).filter(|s| !converts(plan, *s) && written_in_blocks(plan, *s));
    steps.map(|s| plan.steps[s].name.clone()).collect()
}

/// What steps cost, in nanoseconds.
pub struct Costs {
    /// By name, in blocks and plain.
    steps: [HashMap<String, f64>; 2],
    conversions: HashMap<String, f64>,
    conversion_ns_per_byte: f64,
}

impl Costs {
    /// Where no step was timed: each takes as long as moving its operands does, a nanosecond a byte. What two plans differ in
    /// is then their conversions.
    pub fn of_bytes() -> Costs {
        Costs {
            steps: [HashMap::new(), HashMap::new()],
            conversions: HashMap::new(),
            conversion_ns_per_byte: 1.0,
        }
    }

    /// From a plan in blocks and a plain one, with the times of their steps.
    fn of(blocked: (&Plan, &[u64]), plain: (&Plan, &[u64])) -> Costs {
        let mut costs = Costs {
            steps: [HashMap::new(), HashMap::new()],
            conversions: HashMap::new(),
            conversion_ns_per_byte: 0.0,
        };
        let (mut ns_converted, mut bytes_converted) = (0.0, 0.0);
        let mut fastest = f64::INFINITY;
        for (at, (plan, times)) in [blocked, plain].into_iter().enumerate() {
            for (s, ns) in times.iter().enumerate() {
                let (step, ns) = (&plan.steps[s], *ns as f64);
                let bytes = plan.tasks[step.task].bytes;
                if converts(plan, s) {
                    costs.conversions.insert(step.name.clone(), ns);
                    ns_converted += ns;
                    bytes_converted += bytes;
                } else {
                    costs.steps[at].insert(step.name.clone(), ns);
                    fastest = fastest.min(ns / bytes.max(1.0));
                }
            }
        }
        // Without a conversion to go by, as if it were half as fast as the fastest step.
        costs.conversion_ns_per_byte = match bytes_converted > 0.0 {
            true => ns_converted / bytes_converted,
            false => 2.0 * fastest,
        };
        costs
    }

    /// What a plan of the same model would cost.
    pub fn sum(&self, plan: &Plan) -> f64 {
        let [blocked, plain] = &self.steps;
        let cost = |s: usize| {
            let step = &plan.steps[s];
            if converts(plan, s) {
                let usual = plan.tasks[step.task].bytes * self.conversion_ns_per_byte;
                return self.conversions.get(&step.name).copied().unwrap_or(usual);
            }
            let (own, other) = match written_in_blocks(plan, s) {
                true => (blocked, plain),
                false => (plain, blocked),
            };
            let known = own.get(&step.name).or(other.get(&step.name));
            // What moves elements may be one step in one plan and several in another.
            let moves = plan.tasks[step.task].bytes * self.conversion_ns_per_byte;
            known.copied().unwrap_or(moves)
        };
        (0..plan.steps.len()).map(cost).sum()
    }
}

/// What is decided at once: regions of steps that hand blocks to each other,
/// and each step alone.
pub(crate) fn units(plan: &Plan) -> Vec<BTreeSet<String>> {
    let names = blocked(plan);
    let mut region_of: BTreeMap<PlanTensorId, usize> = BTreeMap::new();
    let mut regions: Vec<BTreeSet<String>> = Vec::new();
    for (s, step) in plan.steps.iter().enumerate() {
        if converts(plan, s) {
            continue;
        }
        let tensors = step.inputs.iter().chain(&step.outputs);
        let tensors = tensors.filter(|t| plan.tensor(**t).layout != Layout::Plain);
        let roots: Vec<PlanTensorId> = tensors.map(|t| plan.place(*t).0).collect();
        let met: BTreeSet<usize> = roots
            .iter()
            .filter_map(|r| region_of.get(r).copied())
            .collect();
        let into = met.first().copied().unwrap_or_else(|| {
            regions.push(BTreeSet::new());
            regions.len() - 1
        });
        for other in met.into_iter().skip(1) {
            let moved = std::mem::take(&mut regions[other]);
            regions[into].extend(moved);
            region_of
                .values_mut()
                .filter(|r| **r == other)
                .for_each(|r| *r = into);
        }
        region_of.extend(roots.into_iter().map(|r| (r, into)));
        if names.contains(&step.name) {
            regions[into].insert(step.name.clone());
        }
    }
    let alone = names.into_iter().map(|n| BTreeSet::from([n]));
    let regions = regions.into_iter().filter(|r| r.len() > 1);
    regions.chain(alone).collect()
}

/// Pairs of steps in blocks, one of which reads what the other writes.
pub(crate) fn neighbours(plan: &Plan) -> Vec<BTreeSet<String>> {
    let names = blocked(plan);
    let mut writer: BTreeMap<PlanTensorId, &String> = BTreeMap::new();
    let mut pairs = Vec::new();
    for step in plan.steps.iter().filter(|s| names.contains(&s.name)) {
        for read in step.inputs.iter().filter_map(|t| writer.get(t)) {
            pairs.push(BTreeSet::from([(*read).clone(), step.name.clone()]));
        }
        writer.extend(step.outputs.iter().map(|t| (*t, &step.name)));
    }
    pairs
}

/// A set of steps that stay plain, and what the plan with it costs.
struct Best {
    plain: BTreeSet<String>,
    ns: f64,
}

/// Changes one unit at a time, from everything in blocks, as long as that helps.
fn search(
    units: &[BTreeSet<String>],
    over: impl Fn() -> bool,
    cost: impl Fn(&BTreeSet<String>) -> f64,
) -> Best {
    let mut best = Best {
        ns: cost(&BTreeSet::new()),
        plain: BTreeSet::new(),
    };
    loop {
        let before = best.ns;
        for unit in units {
            if over() {
                return best;
            }
            let plain: BTreeSet<String> = match unit.is_subset(&best.plain) {
                true => &best.plain - unit,
                false => &best.plain | unit,
            };
            let ns = cost(&plain);
            if ns < best.ns {
                best = Best { plain, ns };
            }
        }
        if best.ns >= before {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Grouped, LayoutPolicy};

    const ACCURACY: Accuracy = Accuracy::Relaxed;

    struct Planned {
        grouped: Grouped,
        target: Target,
        rule: Plan,
    }

    impl Planned {
        fn new() -> Planned {
            let model = graph::builtin::builtin("squeezenet1.1", 1).unwrap();
            let target = Target::generic(ir::Isa::X86Avx512);
            let grouped = Grouped::new(&model, graph::Requantised::Folded).unwrap();
            let rule = grouped.plan(&target, &LayoutPolicy::Blocked.into());
            Planned {
                grouped,
                target,
                rule,
            }
        }

        fn with(&self, plain: &BTreeSet<String>) -> Plan {
            let options = plan::PlanOptions {
                layouts: LayoutPolicy::Blocked,
                plain: plain.iter().cloned().collect(),
            };
            self.grouped.plan(&self.target, &options)
        }

        /// The best exceptions if steps take so long in blocks and plain.
        fn best(&self, ns: impl Fn(&str) -> (u64, u64)) -> BTreeSet<String> {
            let all = self.with(&blocked(&self.rule));
            let times = |plan: &Plan, plain: bool| -> Vec<u64> {
                let names = plan.steps.iter().enumerate().map(|(s, step)| {
                    let (in_blocks, in_rows) = ns(&step.name);
                    match (converts(plan, s), plain) {
                        (true, _) => 1_000,
                        (_, true) => in_rows,
                        (_, false) => in_blocks,
                    }
                });
                names.collect()
            };
            let (a, b) = (times(&self.rule, false), times(&all, true));
            let costs = Costs::of((&self.rule, &a), (&all, &b));
            search(&units(&self.rule), || false, |p| costs.sum(&self.with(p))).plain
        }
    }

    #[test]
    fn a_network_of_convolutions_is_one_region_of_steps() {
        let p = Planned::new();
        let names = blocked(&p.rule);
        let units = units(&p.rule);
        assert!(names.len() > 20, "{names:?}");
        assert_eq!(units[0], names);
        assert_eq!(units.len(), 1 + names.len());
        assert!(blocked(&p.with(&names)).is_empty());
    }

    #[test]
    fn every_command_follows_what_was_decided_for_the_same_plan() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("store.sqlite")).unwrap();
        let (machine, target) = (Machine::host(), Target::generic(ir::Isa::X86Avx512));
        let source = Source::builtin("squeezenet1.1").unwrap();
        let rule = source.plan(&target, ACCURACY, &[]).unwrap();
        store.begin_run(&crate::begun_run(&rule.name)).unwrap();
        let planned = |target: &Target| {
            let plan = source.plan_for(&machine, target, ACCURACY, Some(&store));
            plan.unwrap()
        };
        assert_eq!(planned(&target).key(), rule.key());
        let found = Layouts {
            plain: blocked(&rule).into_iter().take(1).collect(),
            ..Layouts::default()
        };
        let event = event("run", &rule, &machine, &target, &found);
        store.append(&[], &[event]).unwrap();
        assert_eq!(planned(&target).plain, found.plain);
        assert_ne!(planned(&target).key(), rule.key());
        // Neither without the store nor on another target.
        let without = source.plan_for(&machine, &target, ACCURACY, None).unwrap();
        assert_eq!(without.key(), rule.key());
        let two = target.clone().with_threads(2);
        assert!(planned(&two).plain.is_empty());
    }

    #[test]
    fn layouts_follow_the_times() {
        let p = Planned::new();
        assert_eq!(p.best(|_| (1_000, 2_000)), BTreeSet::new());
        assert_eq!(p.best(|_| (2_000, 1_000)), blocked(&p.rule));
        // One step gains more than two conversions cost, another less.
        let squeezes = blocked(&p.rule).into_iter();
        let squeezes: Vec<String> = squeezes.filter(|n| n.ends_with("squeeze")).collect();
        let (much, little) = (&squeezes[3], &squeezes[5]);
        let best = p.best(|name| match name {
            n if n == much => (10_000_000, 1_000),
            n if n == little => (1_100, 1_000),
            _ => (1_000, 50_000_000),
        });
        assert_eq!(best, BTreeSet::from([much.clone()]));
    }
}
