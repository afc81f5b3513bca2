//! `bench --select`: a model whose steps have alternatives, each fixed choice beside the choice that is made
//! online.

use super::model_args::say_gone;
use super::screen;
use super::table::{Table, counted};
use crate::online::{DecisionFile, selectors};
use runtime::{CompiledModel, FixedChoice, Model, Pool, Selectors, Variants};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use study::select::{GroupTimes, LayerTime};
use tune::latency::{Latencies, fill_inputs, fixed_model, interleaved};
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
    /// What the model keeps in memory once all steps are decided, and what it let go.
    pub kept_mbytes: f64,
    pub released_mbytes: f64,
    pub median_ms: f64,
    pub min_ms: f64,
    /// The first alternatives of all steps; then, if each choice was asked for, all steps with one
    /// algorithm, as far as they have it.
    pub fixed: Vec<Fixed>,
    /// Inferences after which exploring has paid, against the first alternatives; none if it does not, or if nothing
    /// else was chosen.
    pub pays_after: Option<f64>,
    pub chosen: Vec<Chosen>,
    /// What steps that may run together decided: to run apart, or one of their sets.
    pub groups: Vec<Chosen>,
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

/// What was decided for one step, or for a group of steps.
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

/// What was measured, and the selectors that decided.
pub struct Measured {
    pub summary: OnlineSummary,
    pub latencies: Latencies,
    pub selectors: Selectors,
}

/// Decides online, and then measures the decided model beside every fixed choice, in turns.
pub fn measured(
    variants: &Arc<Variants>,
    at: usize,
    pool: &Arc<Pool>,
    time: Duration,
    each: bool,
    kept: Option<&DecisionFile>,
) -> Result<Measured> {
    let compiled = variants.models()[at].clone();
    let steps = steps_with_choice(&compiled)?;
    let of = |s: &runtime::ModelStep| s.alternatives.len();
    let most = compiled.steps().iter().map(of).max().unwrap_or(0);
    let selectors = match kept {
        Some(kept) => kept.selectors(variants)?,
        None => selectors(variants, None)?,
    };
    say_gone(&selectors);
    let mut online = Model::of(variants.clone(), pool.clone())?;
    online.select(at);
    online.set_selector(Some(selectors.online()));
    fill_inputs(&mut online, 1);
    let begin = Instant::now();
    let explored = explore(&mut online, &selectors, PATIENCE * time)?;
    let (exploring, decided) = (begin.elapsed(), selectors.are_decided());
    if let Some(kept) = kept {
        kept.save(&selectors)?;
    }
    let released = online.retire(&selectors)?;
    let mut choices = compiled.fixed_choices();
    if !each {
        choices.truncate(1);
    }
    let mut fixed = choices
        .iter()
        .map(|c| fixed_model(variants, at, pool, c))
        .collect::<Result<Vec<Model>>>()?;
    let mut models: Vec<&mut Model> = vec![&mut online];
    models.extend(&mut fixed);
    let mut taken = interleaved(&mut models, time, MIN_ROUNDS)?;
    let own = taken.remove(0);
    let gain_ms = taken[0].median_ms() - own.median_ms();
    let lost_ms = exploring.as_secs_f64() * 1e3 - explored as f64 * taken[0].median_ms();
    let chosen = chosen(&compiled, &selectors, at, pool.ctx().threads, variants);
    let differs = chosen.iter().any(|c| c.alternative != 0);
    let summary = OnlineSummary {
        steps,
        alternatives: most,
        decided,
        explored,
        exploring_ms: exploring.as_secs_f64() * 1e3,
        kept_mbytes: online.memory().total() as f64 / 1e6,
        released_mbytes: released as f64 / 1e6,
        median_ms: own.median_ms(),
        min_ms: own.min_ms(),
        pays_after: (explored > 0 && differs && gain_ms > 0.0)
            .then(|| explored as f64 + (lost_ms / gain_ms).max(0.0)),
        fixed: choices.iter().zip(&taken).map(of_choice).collect(),
        chosen,
        groups: groups(&selectors, at, pool.ctx().threads, variants),
    };
    Ok(Measured {
        summary,
        latencies: own,
        selectors,
    })
}

/// How many steps have alternatives.
fn steps_with_choice(compiled: &CompiledModel) -> Result<usize> {
    match compiled.steps_with_choice().count() {
        0 => Err(
            Error::new(format!("{} has no step with alternatives", compiled.name()))
                .help("compile the model with --keep-alternatives 3"),
        ),
        steps => Ok(steps),
    }
}

fn of_choice((choice, l): (&FixedChoice, &Latencies)) -> Fixed {
    Fixed {
        choice: match choice.algorithm.as_str() {
            "" => "first".to_string(),
            name => name.to_string(),
        },
        steps: choice.steps,
        median_ms: l.median_ms(),
        min_ms: l.min_ms(),
    }
}

/// Runs inferences until all steps are decided or the time is over; how many, 0 if all were decided before.
fn explore(online: &mut Model, selectors: &Selectors, time: Duration) -> Result<usize> {
    let begin = Instant::now();
    // The first inference tells which steps there are.
    online.invoke()?;
    let mut more = 0;
    while !selectors.are_decided() && begin.elapsed() < time {
        more += 1;
        online.invoke()?;
    }
    Ok(if more > 0 { more + 1 } else { 0 })
}

fn chosen(
    compiled: &CompiledModel,
    selectors: &Selectors,
    at: usize,
    threads: u32,
    variants: &Variants,
) -> Vec<Chosen> {
    let key = |step: usize| variants.selection_key(at, step, threads);
    let decided = selectors.decided(at, key);
    let mut found = Vec::new();
    for (i, (step, alternative)) in compiled.steps().iter().zip(decided).enumerate() {
        let Some(alternative) = alternative else {
            continue;
        };
        let times = selectors.medians(at, i, &key(i));
        let tried = |(a, time): (&runtime::Alternative, &Option<Duration>)| Tried {
            algorithm: compiled.algorithm(a),
            median_ms: time.map(|t| t.as_secs_f64() * 1e3),
        };
        found.push(Chosen {
            step: step.name.clone(),
            alternative,
            algorithm: compiled.algorithm(&step.alternatives[alternative]),
            alternatives: step.alternatives.iter().zip(&times).map(tried).collect(),
        });
    }
    found
}

/// What groups decided: the first alternative is to run apart.
fn groups(selectors: &Selectors, at: usize, threads: u32, variants: &Variants) -> Vec<Chosen> {
    let tried = |t: LayerTime| Tried {
        algorithm: t.algorithm,
        median_ms: t.median_ms,
    };
    let one = |g: GroupTimes| Chosen {
        step: g.steps,
        alternative: g.chosen,
        algorithm: g.alternatives[g.chosen].algorithm.clone(),
        alternatives: g.alternatives.into_iter().map(tried).collect(),
    };
    let all = study::select::groups(variants, at, selectors, threads);
    all.into_iter().map(one).collect()
}

/// Rows of the table of steps without `--wide`.
const ROWS: usize = 15;

/// What was decided for each step, and what its alternatives took: a column for each algorithm, blank
/// where a step does not have it. Neighbours with equal times are equal layers, which share them.
fn steps_text(chosen: &[Chosen]) -> String {
    let all = || chosen.iter().flat_map(|c| &c.alternatives);
    // Known decisions have no times.
    if all().all(|t| t.median_ms.is_none()) {
        return known_text(chosen);
    }
    let mut names: Vec<&str> = Vec::new();
    for t in all() {
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

/// What was decided for each step before, and what it could choose among.
fn known_text(chosen: &[Chosen]) -> String {
    let mut t = Table::new(&["step", "chosen", "among"]);
    let shown = if screen::is_wide() {
        chosen.len()
    } else {
        ROWS
    };
    for c in chosen.iter().take(shown) {
        let mut names: Vec<&str> = Vec::new();
        for a in &c.alternatives {
            if !names.contains(&&*a.algorithm) {
                names.push(&a.algorithm);
            }
        }
        t.row(vec![c.step.clone(), c.algorithm.clone(), names.join(", ")]);
    }
    match chosen.len().saturating_sub(shown) {
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
        _ if s.decided && s.chosen.iter().all(|c| c.alternative == 0) => {
            "; every step keeps its first alternative".to_string()
        }
        _ => String::new(),
    };
    let groups = match s.groups.is_empty() {
        true => String::new(),
        false => steps_text(&s.groups),
    };
    let memory = match s.released_mbytes > 0.0 {
        true => format!(
            "{:.2} MB of what lost are released; the model keeps {:.2} MB\n",
            s.released_mbytes, s.kept_mbytes
        ),
        false => String::new(),
    };
    format!(
        "{}{groups}{}{}: up to {} alternatives to choose among\n{explored}{pays}\n{memory}",
        steps_text(&s.chosen),
        t.text(),
        counted(s.steps as u32, "step"),
        s.alternatives,
    )
}
