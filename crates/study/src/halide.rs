//! Halide's form of a score (Adams et al. 2019, section 5): terms that are known to cost time, each times a coefficient that
//! a network predicts from numbers without a scale.

use super::scores::Judged;
use analysis::{Class, Features, MachineFeatures, decoded_bytes};
use learn::{TermNetwork, TermRows, Training};
use tune::{Error, Result};

/// The network is small, as there are few programs to learn from; the paper's has more layers and millions of rows.
const HIDDEN: usize = 16;
const EPOCHS: usize = 60;
/// How much of the squared outputs of the network counts beside the squared error.
const PULL: f64 = 0.1;

/// What costs time: cycles, instructions of which the pipeline has its own view, what is brought, and threads that
/// are woken.
fn terms(f: &Features) -> Vec<f64> {
    let m = f.machine.clone().unwrap_or_default();
    let machine = [m.repeated, m.alone, m.loads, m.stores, m.spills];
    machine
        .into_iter()
        .chain([decoded_bytes(&m)])
        .chain(f.lines)
        .chain([f.pages, f.page_visits, f.crowded, f.forks])
        .collect()
}

/// Numbers that are the same for twice as much work of the same kind: counts a cycle, shares of instructions, and how the
/// code's size and the caches' traffic relate.
fn scale_free(f: &Features) -> Vec<f64> {
    let m: MachineFeatures = f.machine.clone().unwrap_or_default();
    let cycles = m.repeated.max(1.0);
    let a_cycle = |n: f64| (1.0 + 100.0 * n / cycles).ln();
    let instructions = m.classes.iter().sum::<f64>().max(1.0);
    let shares = Class::ALL.map(|c| m.of_class(c) / instructions);
    let counts = [m.alone, m.loads, m.stores, m.spills, instructions];
    counts
        .into_iter()
        .chain(f.lines)
        .chain([f.pages, f.page_visits])
        .map(a_cycle)
        .chain([f.crowded / f.lines[0].max(1.0), m.hot_bytes.max(1.0).ln()])
        .chain(shares)
        .collect()
}

/// A score of this form that is trained on some tasks.
///
/// # Errors
/// If the points are no rows to learn from.
pub(crate) fn trained(train: &[&Judged]) -> Result<impl Fn(&Features) -> f64 + use<>> {
    let (mut of_terms, mut features, mut y, mut best) = (vec![], vec![], vec![], vec![]);
    for t in train {
        let least = t.ns.iter().copied().fold(f64::INFINITY, f64::min);
        for (f, ns) in t.features.iter().zip(&t.ns) {
            of_terms.push(terms(f));
            features.push(scale_free(f));
            y.push(*ns);
            best.push(least);
        }
    }
    let rows = TermRows {
        terms: &of_terms,
        features: &features,
        y: &y,
        best: &best,
    };
    let training = Training {
        hidden: vec![HIDDEN],
        epochs: EPOCHS,
        batch: 32,
        rate: 1e-3,
        seed: 1,
    };
    let model = TermNetwork::trained(&rows, &training, PULL);
    let model = model.map_err(|e| Error::new(format!("Halide's form: {e}")))?;
    Ok(move |f: &Features| model.predict(&terms(f), &scale_free(f)))
}
