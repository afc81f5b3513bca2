//! `bench --select`: a model whose steps have alternatives, each fixed choice beside the choice that is made
//! online.

use super::table::Table;
use bestof::{Decisions, Options, Validators};
use runtime::{CompiledModel, FixedSelector, Model, Pool, SelectionKey, Selectors, Variants};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tune::latency::{Latencies, fill_inputs, interleaved};
use tune::machine::Machine;
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
    /// The choices of one position for all steps, the first position first; a step with fewer
    /// alternatives runs its first one.
    pub fixed: Vec<Fixed>,
    /// Inferences after which exploring has paid, against the first alternatives; none if it does not.
    pub pays_after: Option<f64>,
    pub chosen: Vec<Chosen>,
}

#[derive(Serialize)]
pub struct Fixed {
    pub position: usize,
    pub median_ms: f64,
    pub min_ms: f64,
}

/// What was decided for one step.
#[derive(Serialize)]
pub struct Chosen {
    pub step: String,
    /// From 0.
    pub alternative: usize,
    pub of: usize,
}

/// The file of decisions, and the facts under which they hold.
pub struct Kept {
    pub path: PathBuf,
    validators: Validators,
}

impl Kept {
    pub fn new(path: PathBuf, model: &CompiledModel, threads: usize) -> Kept {
        let facts = [
            ("machine", Machine::host().fingerprint()),
            ("threads", threads.to_string()),
            ("library", env!("CARGO_PKG_VERSION").to_string()),
            ("model", model.name().to_string()),
        ];
        Kept {
            path,
            validators: facts.into_iter().map(|(k, v)| (k.to_string(), v)).collect(),
        }
    }

    /// The decisions of an earlier run; none if there is no file.
    ///
    /// # Errors
    /// If there is one that was made elsewhere, or is damaged.
    pub fn load(&self) -> Result<Option<Arc<Decisions>>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let loaded = Decisions::load(&self.path, &self.validators);
        let loaded = loaded.map_err(|e| {
            Error::new(format!("{}: {e}", self.path.display()))
                .help("name another file with --decisions, or delete this one to decide anew")
        });
        loaded.map(|d| Some(Arc::new(d)))
    }

    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, selectors: &Selectors, known: Option<&Arc<Decisions>>) -> Result<()> {
        // Sizes that this run did not meet stay as they are.
        let mut found = known.map_or_else(Decisions::new, |k| (**k).clone());
        selectors.save(&mut found);
        let saved = found.save(&self.path, &self.validators);
        saved.map_err(|e| Error::new(format!("{}: {e}", self.path.display())))
    }
}

/// Decides online, and then measures the decided model beside every fixed choice, in turns.
pub fn measured(
    variants: &Arc<Variants>,
    at: usize,
    pool: &Arc<Pool>,
    time: Duration,
    each: bool,
    kept: Option<&Kept>,
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
    let known = match kept {
        Some(kept) => kept.load()?,
        None => None,
    };
    let selectors = Selectors::new(variants, &Options::default(), known.as_ref());
    let selectors = selectors.map_err(|e| Error::new(e.to_string()))?;
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
        kept.save(&selectors, known.as_ref())?;
    }
    let positions = if each { most } else { 1 };
    let mut fixed = (0..positions)
        .map(|position| fixed_choice(variants, at, pool, position))
        .collect::<Result<Vec<Model>>>()?;
    let mut models: Vec<&mut Model> = vec![&mut online];
    models.extend(&mut fixed);
    let mut taken = interleaved(&mut models, time, MIN_ROUNDS)?;
    let own = taken.remove(0);
    let gain_ms = taken[0].median_ms() - own.median_ms();
    let lost_ms = exploring.as_secs_f64() * 1e3 - explored as f64 * taken[0].median_ms();
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
        fixed: taken
            .iter()
            .enumerate()
            .map(|(position, l)| Fixed {
                position,
                median_ms: l.median_ms(),
                min_ms: l.min_ms(),
            })
            .collect(),
        chosen: chosen(&compiled, &selectors, at, pool.ctx().threads, variants),
    };
    Ok((summary, own))
}

/// A model whose steps run the alternative of one position; those that have fewer, their first one.
fn fixed_choice(
    variants: &Arc<Variants>,
    at: usize,
    pool: &Arc<Pool>,
    position: usize,
) -> Result<Model> {
    let mut model = Model::of(variants.clone(), pool.clone())?;
    model.select(at);
    let choice = |s: &runtime::ModelStep| match s.alternatives.len() > position {
        true => position,
        false => 0,
    };
    let alternatives = variants.models()[at].steps().iter().map(choice).collect();
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
    let decided = selectors.decided(at, key).into_iter();
    let one = |(step, alternative): (&runtime::ModelStep, Option<usize>)| {
        Some(Chosen {
            step: step.name.clone(),
            alternative: alternative?,
            of: step.alternatives.len(),
        })
    };
    steps.iter().zip(decided).filter_map(one).collect()
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
        t.row(row(format!("all at {}", f.position), f.median_ms, f.min_ms));
    }
    let positions: Vec<String> = (0..s.alternatives)
        .map(|p| {
            let n = s.chosen.iter().filter(|c| c.alternative == p).count();
            format!("{n} at {p}")
        })
        .collect();
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
        "{}{} steps choose among up to {} kernels: {}\n{explored}{pays}\n",
        t.text(),
        s.steps,
        s.alternatives,
        positions.join(", ")
    )
}
