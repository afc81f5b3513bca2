//! What the filter `cold` saves: searches of recorded candidates are replayed with and without it.
//!
//! Owns the division of tasks, the comparison of rules over tasks and seeds, and the joules. Candidates are *replayed*, with the CPU time that
//! getting them took. Joules are *modelled*: the search keeps one CPU busy, and a curve of power says what the machine draws meanwhile, idle
//! power included. What a run does before and after its search is left out.

mod replay;
mod table;

use crate::row::mean;
pub use crate::saving::Saving;
use crate::saving::saving;
use measure::energy::PowerCurve;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
pub use replay::RECORDED;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use table::{Table, tables};
use tune::filter::ColdRule;
use tune::filter::trained::{Example, Trained};
use tune::{Error, Observer, Result};

/// Latencies over the least one of a table, whose joules are counted.
pub const GOALS: [f64; 5] = [1.5, 1.2, 1.1, 1.05, 1.02];

/// Groups of tasks. The last one is for figures alone; the others are for choosing rules.
pub const GROUPS: usize = 5;

/// What drops candidates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    None,
    /// This share of all, by chance.
    Chance(f64),
    /// Likewise, and batches are measured in the order of predictions, as the filter does.
    Ordered(f64),
    /// All that are cold or failed, which only one who knows the answers can do.
    Oracle,
    /// What the filter drops.
    Cold(ColdRule),
}

impl Rule {
    /// Seconds that judging a candidate of a table takes.
    fn look_s(&self, table: &Table) -> f64 {
        match self {
            Rule::None | Rule::Chance(_) | Rule::Oracle => 0.0,
            Rule::Ordered(_) | Rule::Cold(ColdRule::Above(_) | ColdRule::Best(_)) => table.look_s,
            Rule::Cold(ColdRule::Neighbours(_)) => table.look_s + table.nearest_s,
        }
    }

    fn pool(&self) -> usize {
        match self {
            Rule::Cold(rule) => rule.pool(),
            _ => 1,
        }
    }
}

/// What is replayed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Rules other than none and chance, which each is compared with. A rule that orders batches by corrected predictions is followed by
    /// [`Rule::Ordered`] at the same share.
    pub rules: Vec<Rule>,
    /// Names of strategies, or [`RECORDED`].
    pub strategies: Vec<String>,
    pub seeds: u64,
    /// Seed of the groups and of the networks.
    pub seed: u64,
    /// Candidates that a task has at least.
    pub least_rows: usize,
    /// Whether the groups for choosing are searched, rather than the one for figures.
    pub choosing: bool,
    /// CPUs of the machine whose power is modelled.
    pub cpus: usize,
}

/// What a rule saved the searches of a strategy.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    pub strategy: String,
    pub rule: Rule,
    pub tasks: usize,
    pub searches: usize,
    /// Joules until each goal, in the geometric mean, under each curve.
    pub joules: Vec<(String, [f64; GOALS.len()])>,
    /// Against no rule and against chance at the same share: for each goal, and over all goals.
    pub against_none: [Saving; GOALS.len()],
    pub against_none_all: Saving,
    pub against_chance: [Saving; GOALS.len()],
    pub against_chance_all: Saving,
    /// Share of candidates that was dropped, and of these the share that is cold or failed.
    pub dropped: f64,
    pub precision: f64,
    /// Least latency of what was kept over the least of all, in the geometric mean, when a search had no new candidate left.
    pub final_latency: f64,
    /// Mean over the tasks of what judging one candidate takes.
    pub look_ms: f64,
}

/// Each task's group.
fn groups(all: &[Example], seed: u64) -> BTreeMap<String, usize> {
    let tasks: BTreeSet<&String> = all.iter().map(|e| &e.task).collect();
    let mut tasks: Vec<&String> = tasks.into_iter().collect();
    tasks.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    let numbered = tasks.into_iter().enumerate();
    numbered
        .map(|(i, task)| (task.clone(), i % GROUPS))
        .collect()
}

/// Searches held-out tasks under every rule.
///
/// # Errors
/// If there is no such strategy, or a network cannot be trained.
pub fn compare(
    all: Vec<Example>,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> Result<Vec<Compared>> {
    let group = groups(&all, plan.seed);
    let (figures, choosing): (Vec<Example>, Vec<Example>) =
        all.into_iter().partition(|e| group[&e.task] == GROUPS - 1);
    let mut found = Vec::new();
    if plan.choosing {
        let mut left = choosing;
        for g in 0..GROUPS - 1 {
            observer.part(g as f64 / GROUPS as f64, "a network of the other groups");
            let (held_out, own): (Vec<Example>, Vec<Example>) =
                left.into_iter().partition(|e| group[&e.task] == g);
            let trained = Trained::train(&own, plan.seed)?;
            let examples: Vec<&Example> = held_out.iter().collect();
            found.extend(tables(&examples, &trained, plan.least_rows));
            left = own.into_iter().chain(held_out).collect();
        }
    } else {
        let trained = Trained::train(&choosing, plan.seed)?;
        let examples: Vec<&Example> = figures.iter().collect();
        found = tables(&examples, &trained, plan.least_rows);
    }
    if found.is_empty() {
        let why = format!(
            "no task that is held out has {} candidates",
            plan.least_rows
        );
        return Err(Error::new(why).help("tune more tasks, or say --least with a smaller number"));
    }
    let all = plan.strategies.len() * plan.rules.len();
    let (mut done, mut compared) = (0, Vec::new());
    for strategy in &plan.strategies {
        let none = searches(&found, strategy, |_, _| Rule::None, plan.seeds)?;
        for rule in &plan.rules {
            observer.part(done as f64 / all as f64, strategy);
            done += 1;
            let own = searches(&found, strategy, |_, _| *rule, plan.seeds)?;
            let of_own = against(&found, strategy, *rule, [&own, &none], plan)?;
            let dropped = of_own.dropped;
            compared.push(of_own);
            if matches!(rule, Rule::Cold(ColdRule::Above(_))) {
                let same_share =
                    |table: usize, seed: usize| Rule::Ordered(own[table][seed].dropped);
                let own = searches(&found, strategy, same_share, plan.seeds)?;
                let rule = Rule::Ordered(dropped);
                compared.push(against(&found, strategy, rule, [&own, &none], plan)?);
            }
        }
    }
    Ok(compared)
}

/// Of each table its searches.
type Searches = Vec<Vec<replay::Searched>>;

fn searches(
    tables: &[Table],
    strategy: &str,
    rule: impl Fn(usize, usize) -> Rule,
    seeds: u64,
) -> Result<Searches> {
    let one = |(i, t)| -> Result<Vec<_>> {
        let seeded =
            (0..seeds as usize).map(|n| replay::search(t, strategy, &rule(i, n), 1 + n as u64));
        seeded.collect()
    };
    tables.iter().enumerate().map(one).collect()
}

/// The mean logarithm of seconds until a goal, of each table.
fn logs(searches: &Searches, goal: usize) -> Vec<f64> {
    let of_table =
        |s: &Vec<replay::Searched>| mean(s.iter().map(|s| s.until[goal].ln())).unwrap_or(f64::NAN);
    searches.iter().map(of_table).collect()
}

fn savings(own: &Searches, other: &Searches) -> ([Saving; GOALS.len()], Saving) {
    let differences = |goal: usize| -> Vec<f64> {
        let pairs = logs(own, goal).into_iter().zip(logs(other, goal));
        pairs.map(|(a, b)| a - b).collect()
    };
    let each: [Vec<f64>; GOALS.len()] = std::array::from_fn(differences);
    let of_task = |i: usize| each.iter().map(|d| d[i]).sum::<f64>() / GOALS.len() as f64;
    let all: Vec<f64> = (0..own.len()).map(of_task).collect();
    (each.map(|d| saving(&d)), saving(&all))
}

/// What a rule's own searches save over those without a rule and those with chance.
fn against(
    tables: &[Table],
    strategy: &str,
    rule: Rule,
    [own, none]: [&Searches; 2],
    plan: &Plan,
) -> Result<Compared> {
    let same_share = |table: usize, seed: usize| Rule::Chance(own[table][seed].dropped);
    let chance = searches(tables, strategy, same_share, plan.seeds)?;
    let (against_none, against_none_all) = savings(own, none);
    let (against_chance, against_chance_all) = savings(own, &chance);
    let every = || own.iter().flatten();
    let seconds: [f64; GOALS.len()] =
        std::array::from_fn(|goal| mean(logs(own, goal).into_iter()).unwrap_or(f64::NAN).exp());
    let curves = PowerCurve::usual(plan.cpus).into_iter();
    let joules = curves.map(|c| (c.name.clone(), seconds.map(|s| s * c.watts(1.0))));
    let dropped = mean(every().map(|s| s.dropped)).unwrap_or(0.0);
    let right = mean(every().map(|s| s.dropped * s.right)).unwrap_or(0.0);
    let kept = mean(every().filter_map(|s| s.kept).map(f64::ln)).unwrap_or(f64::NAN);
    Ok(Compared {
        strategy: strategy.to_string(),
        rule,
        tasks: tables.len(),
        searches: every().count(),
        joules: joules.collect(),
        against_none,
        against_none_all,
        against_chance,
        against_chance_all,
        dropped,
        precision: right / dropped.max(f64::MIN_POSITIVE),
        final_latency: kept.exp(),
        look_ms: 1e3 * mean(tables.iter().map(|t| rule.look_s(t))).unwrap_or(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use learn::NamedRow;
    use tune::Silent;

    /// Candidates of some tasks: the larger the first decision is, the slower they are.
    fn examples(tasks: u64) -> Vec<Example> {
        let decision = |name: &str, index| store::Decision {
            name: name.into(),
            kind: "categorical".into(),
            index,
            cardinality: 8,
            extra: Default::default(),
        };
        let one = |n: u64| {
            let (task, a, b) = (n / 64, n % 64 / 8, n % 8);
            let row = NamedRow {
                words: [("op".to_string(), "op".to_string())].into(),
                numbers: [("a".to_string(), a as f64)].into(),
            };
            let cost = 0.3 * a as f64 + 0.01 * b as f64;
            Example {
                row,
                task: format!("task {task}"),
                search: task as usize,
                name: n.to_string(),
                cost: Some(cost - 1.0),
                bad: a >= 4,
                algorithm: "direct".into(),
                decisions: vec![decision("a", a), decision("b", b)],
                place: "here".into(),
                latency_ns: Some(1e6 * cost.exp()),
                cpu_s: 1.1,
                search_s: 0.1,
            }
        };
        (0..64 * tasks).map(one).collect()
    }

    fn plan(choosing: bool) -> Plan {
        Plan {
            rules: vec![
                Rule::Oracle,
                Rule::Ordered(0.0),
                Rule::Cold(ColdRule::Above(1.0)),
            ],
            strategies: vec!["random".into(), "genetic".into()],
            seeds: 5,
            seed: 1,
            least_rows: 64,
            choosing,
            cpus: 2,
        }
    }

    #[test]
    fn what_is_predictable_is_saved() {
        let found = compare(examples(10), &plan(false), &mut Silent).unwrap();
        assert_eq!(found.len(), 8);
        for c in &found {
            assert_eq!((c.tasks, c.searches), (2, 10));
            let [at_1_5, .., at_1_02] = &c.joules[0].1;
            assert!(at_1_5 <= at_1_02, "{c:?}");
        }
        let [oracle, order, above, ordered] = &found[..4] else {
            panic!()
        };
        assert_eq!(
            (oracle.dropped, oracle.precision, oracle.final_latency),
            (0.5, 1.0, 1.0)
        );
        assert!(oracle.against_none_all.share > 0.2, "{oracle:?}");
        for saving in [above.against_none_all, above.against_chance_all] {
            assert!(saving.share > 0.1, "{above:?}");
        }
        assert!(above.final_latency < 1.05, "{above:?}");
        // What is dropped saves more than the order.
        assert_eq!((order.dropped, oracle.look_ms), (0.0, 0.0));
        assert_eq!(ordered.rule, Rule::Ordered(above.dropped));
        for less in [order, ordered] {
            assert!(less.against_none_all.share < above.against_none_all.share);
        }
    }

    #[test]
    fn rules_are_chosen_on_other_tasks_than_those_for_figures() {
        let found = compare(examples(10), &plan(true), &mut Silent).unwrap();
        assert_eq!(found[0].tasks, 8);
        let all = groups(&examples(10), 1);
        assert_eq!(all.values().filter(|g| **g == GROUPS - 1).count(), 2);
    }

    #[test]
    fn too_few_candidates_are_an_error() {
        let mut plan = plan(false);
        plan.least_rows = 65;
        assert!(compare(examples(10), &plan, &mut Silent).is_err());
    }
}
