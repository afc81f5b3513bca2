//! `explain --predict`: what a static score says of each layer, beside its time.

use super::score_args::{Scoring, scoring_cpu};
use super::table::Table;
use crate::explain::{CallFacts, Layer, StepFacts};
use analysis::Terms;
use build::{Read, ReadOptions};
use ir::Target;
use search::Candidate;
use serde::Serialize;
use std::collections::HashMap;
use tune::compile::Builders;
use tune::scored_caches::Caches;
use tune::{Host, Result};

/// A layer's predicted cycles and its measured time.
#[derive(Serialize)]
pub struct Predicted {
    name: String,
    operator: String,
    algorithm: String,
    ms: f64,
    /// Predicted cycles of one call.
    cycles: f64,
    terms: Terms,
    /// Shares of the model, of the time and of the predicted cycles.
    share: f64,
    predicted_share: f64,
}

/// Reads the kernels of layers whose task and schedule are known.
///
/// # Errors
/// If builders cannot be started, or LLVM has no model of the processor.
pub fn predictions(
    host: &Host,
    target: &Target,
    scoring: &Scoring,
    facts: &[StepFacts<'_>],
    layers: &[Layer],
) -> Result<Vec<Predicted>> {
    scoring_cpu(target, Some(scoring.cpu.clone()))?;
    let mut builders = Builders::new(&host.workers, host.machine.cpus)?;
    // Equal layers are read once.
    let mut positions: HashMap<(&str, &str), usize> = HashMap::new();
    let mut candidates = Vec::new();
    for c in facts.iter().flat_map(|f| &f.calls) {
        let (Some(task), Some(trace)) = (c.task, &c.trace) else {
            continue;
        };
        let candidate = Candidate {
            algorithm: String::new(),
            trace: trace.clone(),
        };
        positions
            .entry((&task.key, &c.kernel.schedule))
            .or_insert_with(|| {
                candidates.push((task, candidate));
                candidates.len() - 1
            });
    }
    let asked = ReadOptions {
        cpu: scoring.cpu.clone(),
        levels: Some(Caches::of(&scoring.cpu, target).levels()),
        ..ReadOptions::default()
    };
    let read = builders.read_all(&candidates, target, &asked, &mut |_| {});
    let mut found = Vec::new();
    for (f, l) in facts.iter().zip(layers) {
        let of_call = |c: &CallFacts<'_>| {
            let key = (&*c.task?.key, &*c.kernel.schedule);
            read[*positions.get(&key)?].as_ref()
        };
        let of_calls: Option<Vec<&Read>> = f.calls.iter().map(of_call).collect();
        let Some(of_calls) = of_calls else {
            continue;
        };
        let features = || of_calls.iter().map(|r| &r.features);
        found.push(Predicted {
            name: l.name.clone(),
            operator: l.operator.clone(),
            algorithm: l.algorithm.clone(),
            ms: l.time.median_ms,
            cycles: features().map(|f| scoring.rates.cycles(f)).sum(),
            terms: features().map(|f| scoring.rates.terms(f)).sum(),
            share: 0.0,
            predicted_share: 0.0,
        });
    }
    let sum = |of: fn(&Predicted) -> f64| found.iter().map(of).sum::<f64>();
    let (ms, cycles) = (sum(|p| p.ms), sum(|p| p.cycles));
    for p in &mut found {
        (p.share, p.predicted_share) = (p.ms / ms.max(1e-9), p.cycles / cycles.max(1.0));
    }
    Ok(found)
}

/// The table of predictions, and what relates both sums.
pub fn text(scoring: &Scoring, all: &[Predicted]) -> String {
    let mut t = Table::new(&[
        "operator",
        "algorithm",
        "ms",
        "time",
        "predicted",
        "kcycles",
        "pipeline",
        "loads",
        "spills",
        "data",
        "forks",
        "GHz",
    ])
    .dispensable(&["algorithm", "forks", "spills", "GHz"]);
    let kilo = |cycles: f64| format!("{:.1}", cycles / 1e3);
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    for p in all {
        t.row(vec![
            p.operator.clone(),
            p.algorithm.clone(),
            format!("{:.3}", p.ms),
            percent(p.share),
            percent(p.predicted_share),
            kilo(p.cycles),
            kilo(p.terms.pipeline),
            kilo(p.terms.loads),
            kilo(p.terms.spills),
            kilo(p.terms.data),
            kilo(p.terms.forks),
            format!("{:.2}", p.cycles / p.ms / 1e6),
        ]);
    }
    let (ms, cycles): (f64, f64) = (
        all.iter().map(|p| p.ms).sum(),
        all.iter().map(|p| p.cycles).sum(),
    );
    format!(
        "{}predicted by the model of {} (rates: {}): {:.2} Mcycles in {ms:.2} ms, as if at {:.2} GHz; a layer whose own GHz is \
         less is slower than predicted\n",
        t.text(),
        scoring.cpu,
        scoring.source,
        cycles / 1e6,
        cycles / ms / 1e6
    )
}
