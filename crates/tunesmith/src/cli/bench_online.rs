//! `bench --select`: a model whose steps have alternatives, each fixed choice beside the choice that is made
//! online.

use super::screen;
use super::table::Table;
use crate::online::{DecisionFile, selectors};
use runtime::{
    CompiledModel, FixedSelector, Model, ModelStep, Pool, SelectionKey, Selectors, Variants,
};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tune::latency::{Latencies, fill_inputs, interleaved};
use tune::{Error, Result};

/// Exploring takes no longer than this many times what measuring takes.
const PATIENCE: u32 = 20;
const MIN_ROUNDS: usize = 5;

/// What choosing online brought.
#[derive(Serialize)]
pub struct OnlineSummary {
    /// Steps that have alternatives, and the most alternatives of one.
    pub steps: usize,
    pub alternatives: usize,
    /// Whether every step is decided.
    pub decided: bool,
    /// Inferences and time until then; 0 where a file had the decisions.
    pub explored: usize,
    pub exploring_ms: f64,
    pub median_ms: f64,
    pub min_ms: f64,
    /// The first alternatives of all steps; then, if each choice was asked for, all steps with one
    /// algorithm, as far as they have it.
    pub fixed: Vec<Fixed>,
    /// Inferences after which exploring has paid, against the first alternatives; none if it does not.
    pub pays_after: Option<f64>,
    pub chosen: Vec<Chosen>,
}

#[derive(Serialize)]
pub struct Fixed {
    /// `first`, or an algorithm.
    pub choice: String,
    /// Steps with alternatives that have this algorithm; others run their first alternative.
    pub steps: usize,
    pub median_ms: f64,
    pub min_ms: f64,
}

/// What was decided for one step.
#[derive(Serialize)]
pub struct Chosen {
    pub step: String,
    /// From 0.
    pub alternative: usize,
    pub algorithm: String,
    /// Of every alternative, in their order.
    pub alternatives: Vec<Tried>,
}

#[derive(Serialize)]
pub struct Tried {
    pub algorithm: String,
    /// What this process measured; none if the decision was known.
    pub median_ms: Option<f64>,
}

/// Decides online, and then measures the decided model beside every fixed choice, in turns.
pub fn measured(
    variants: &Arc<Variants>,
    at: usize,
    pool: &Arc<Pool>,
    time: Duration,
    each: bool,
    kept: Option<&DecisionFile>,
) -> Result<(OnlineSummary, Latencies)> {
    let compiled = variants.models()[at].clone();
    let of = |s: &runtime::ModelStep| s.alternatives.len();
    let most = compiled.steps().iter().map(of).max().unwrap_or(0);
    let steps = compiled
        .steps()
        .iter()
        .filter(|s| s.alternatives.len() > 1)
        .count();
    if steps == 0 {
        return Err(
            Error::new(format!("{} has no step with alternatives", compiled.name()))
                .help("compile the model with --keep-alternatives 3"),
        );
    }
    let selectors = match kept {
        Some(kept) => kept.selectors(variants)?,
        None => selectors(variants, None)?,
    };
    let mut online = Model::of(variants.clone(), pool.clone())?;
    online.select(at);
    online.set_selector(Some(selectors.online()));
    fill_inputs(&mut online, 1);
    let (mut explored, begin) = (0, Instant::now());
    online.invoke()?;
    let mut decided = selectors.are_decided();
    while !decided && begin.elapsed() < PATIENCE * time {
        explored += 1;
        online.invoke()?;
        decided = selectors.are_decided();
    }
    let exploring = begin.elapsed();
    // The first inference tells which steps there are.
    let explored = if explored > 0 { explored + 1 } else { 0 };
    if let Some(kept) = kept {
        kept.save(&selectors)?;
    }
    let mut choices = vec![("first".to_string(), vec![0; compiled.steps().len()])];
    if each {
        choices.extend(algorithms(&compiled));
    }
    let mut fixed = choices
        .iter()
        .map(|(_, alternatives)| fixed_choice(variants, at, pool, alternatives))
        .collect::<Result<Vec<Model>>>()?;
    let mut models: Vec<&mut Model> = vec![&mut online];
    models.extend(&mut fixed);
    let mut taken = interleaved(&mut models, time, MIN_ROUNDS)?;
    let own = taken.remove(0);
    let gain_ms = taken[0].median_ms() - own.median_ms();
    let lost_ms = exploring.as_secs_f64() * 1e3 - explored as f64 * taken[0].median_ms();
    let of_choice = |((choice, _), l): (&(String, _), &Latencies)| Fixed {
        choice: choice.clone(),
        steps: with_algorithm(&compiled, choice),
        median_ms: l.median_ms(),
        min_ms: l.min_ms(),
    };
    let summary = OnlineSummary {
        steps,
        alternatives: most,
        decided,
        explored,
        exploring_ms: exploring.as_secs_f64() * 1e3,
        median_ms: own.median_ms(),
        min_ms: own.min_ms(),
        pays_after: (explored > 0 && gain_ms > 0.0)
            .then(|| explored as f64 + (lost_ms / gain_ms).max(0.0)),
        fixed: choices.iter().zip(&taken).map(of_choice).collect(),
        chosen: chosen(&compiled, &selectors, at, pool.ctx().threads, variants),
    };
    Ok((summary, own))
}

/// The algorithm of an alternative without what tells its variants apart: `direct` of `direct.rows`.
fn algorithm(model: &CompiledModel, a: &runtime::Alternative) -> String {
    let name = &model.kernels()[a.kernel.index()].algorithm;
    name.split('.').next().unwrap_or_default().to_string()
}

/// Of each algorithm that a step with alternatives has, the alternatives with it, and the first ones of steps
/// without it.
fn algorithms(model: &CompiledModel) -> Vec<(String, Vec<usize>)> {
    let several = model.steps().iter().filter(|s| s.alternatives.len() > 1);
    let names = several.flat_map(|s| &s.alternatives);
    let mut names: Vec<String> = names.map(|a| algorithm(model, a)).collect();
    names.sort();
    names.dedup();
    names.retain(|n| !n.is_empty());
    let of = |name: String| {
        let position = |s: &ModelStep| {
            let found = s
                .alternatives
                .iter()
                .position(|a| algorithm(model, a) == name);
            found.unwrap_or(0)
        };
        let alternatives = model.steps().iter().map(position).collect();
        (name, alternatives)
    };
    names.into_iter().map(of).collect()
}

/// Steps with alternatives of which one has this algorithm; all of them for `first`.
fn with_algorithm(model: &CompiledModel, name: &str) -> usize {
    let several = model.steps().iter().filter(|s| s.alternatives.len() > 1);
    let has = |s: &&ModelStep| {
        name == "first" || s.alternatives.iter().any(|a| algorithm(model, a) == name)
    };
    several.filter(has).count()
}

/// A model whose steps run these alternatives.
fn fixed_choice(
    variants: &Arc<Variants>,
    at: usize,
    pool: &Arc<Pool>,
    alternatives: &[usize],
) -> Result<Model> {
    let mut model = Model::of(variants.clone(), pool.clone())?;
    model.select(at);
    let alternatives = alternatives.to_vec();
    model.set_selector(Some(Box::new(FixedSelector { alternatives })));
    fill_inputs(&mut model, 1);
    Ok(model)
}

fn chosen(
    compiled: &CompiledModel,
    selectors: &Selectors,
    at: usize,
    threads: u32,
    variants: &Variants,
) -> Vec<Chosen> {
    let sizes: Vec<i64> = variants.sizes(at).into_iter().map(|n| n as i64).collect();
    let steps = compiled.steps();
    let key = |step: usize| SelectionKey {
        shape: [&sizes[..], &steps[step].key_shape].concat(),
        threads,
    };
    let decided = selectors.decided(at, key);
    let mut found = Vec::new();
    for (i, (step, alternative)) in steps.iter().zip(decided).enumerate() {
        let Some(alternative) = alternative else {
            continue;
        };
        let times = selectors.medians(at, i, &key(i));
        let tried = |(a, time): (&runtime::Alternative, &Option<Duration>)| Tried {
            algorithm: algorithm(compiled, a),
            median_ms: time.map(|t| t.as_secs_f64() * 1e3),
        };
        found.push(Chosen {
            step: step.name.clone(),
            alternative,
            algorithm: algorithm(compiled, &step.alternatives[alternative]),
            alternatives: step.alternatives.iter().zip(&times).map(tried).collect(),
        });
    }
    found
}

/// Rows of the table of steps without `--wide`.
const ROWS: usize = 15;

/// What was decided for each step, and what its alternatives took: a column for each algorithm, blank
/// where a step does not have it. Neighbours with equal times are equal layers, which share them.
fn steps_text(chosen: &[Chosen]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for t in chosen.iter().flat_map(|c| &c.alternatives) {
        if !names.contains(&&*t.algorithm) {
            names.push(&t.algorithm);
        }
    }
    let mut header = vec!["step".to_string(), "chosen".to_string()];
    header.extend(names.iter().map(|n| format!("{n} ms")));
    let header: Vec<&str> = header.iter().map(|h| &**h).collect();
    let mut t = Table::new(&header);
    let cells = |c: &Chosen| -> Vec<String> {
        let of = |name: &&str| {
            let all = c.alternatives.iter().filter(|t| t.algorithm == *name);
            let least = all.filter_map(|t| t.median_ms).min_by(f64::total_cmp);
            least.map_or(String::new(), |ms| format!("{ms:.3}"))
        };
        names.iter().map(of).collect()
    };
    let mut rows: Vec<(String, usize, Vec<String>)> = Vec::new();
    for c in chosen {
        let row = [vec![c.algorithm.clone()], cells(c)].concat();
        let measured = row[1..].iter().any(|cell| !cell.is_empty());
        match rows
            .iter_mut()
            .find(|(_, _, other)| measured && *other == row)
        {
            Some((_, uses, _)) => *uses += 1,
            None => rows.push((c.step.clone(), 1, row)),
        }
    }
    let shown = if screen::is_wide() { rows.len() } else { ROWS };
    let left = rows.len().saturating_sub(shown);
    for (step, uses, row) in rows.into_iter().take(shown) {
        let step = match uses {
            1 => step,
            n => format!("{step} and {} equal", n - 1),
        };
        t.row([vec![step], row].concat());
    }
    match left {
        0 => t.text(),
        n => format!("{}{n} more (--wide shows all)\n", t.text()),
    }
}

/// The summary as people read it.
pub fn text(s: &OnlineSummary) -> String {
    let mut t = Table::new(&["choice", "median ms", "min ms", "online gains"]);
    let row = |name: String, median: f64, min: f64| {
        vec![
            name,
            format!("{median:.3}"),
            format!("{min:.3}"),
            format!("{:.3}x", median / s.median_ms),
        ]
    };
    t.row(row("online".into(), s.median_ms, s.min_ms));
    for f in &s.fixed {
        let name = match f.choice.as_str() {
            "first" => "first alternatives".to_string(),
            name => format!("{name} ({} of {} steps)", f.steps, s.steps),
        };
        t.row(row(name, f.median_ms, f.min_ms));
    }
    let explored = match s.explored {
        _ if !s.decided => "not all steps are decided: give more --time".to_string(),
        0 => "all decisions were known".to_string(),
        n => format!("{n} inferences decided, in {:.1} ms", s.exploring_ms),
    };
    let pays = match s.pays_after {
        Some(n) if s.explored > 0 => format!("; it pays after {n:.0} inferences"),
        _ => String::new(),
    };
    format!(
        "{}{}{} steps choose among up to {} kernels\n{explored}{pays}\n",
        steps_text(&s.chosen),
        t.text(),
        s.steps,
        s.alternatives,
    )
}
