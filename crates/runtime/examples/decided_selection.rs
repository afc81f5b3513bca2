//! What selecting costs once all steps are decided, as a share of an inference:
//! `cargo run --release -p runtime --example decided_selection -- MODEL.tsm [THREADS]`.
//!
//! The model needs steps with alternatives, as `compile --alternatives` and `--keep-alternatives` make them. All calls of
//! the selector in one inference are timed without the kernels between them, so its data lie in near caches.

use bestof::Options;
use runtime::{Choice, Model, Pool, RunError, SelectionKey, Selector, Selectors, StepId, Variants};
use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

/// Runs of which the least is taken, and inferences in each.
const RUNS: usize = 9;
const INFERENCES: u32 = 20_000;
/// Inferences whose median is the model's time.
const TIMED: usize = 51;
/// More inferences than deciding takes.
const MOST: usize = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give a compiled model (.tsm)")?;
    let threads: usize = arguments.next().map_or(Ok(1), |n| n.parse())?;
    let pool = Arc::new(Pool::new(threads)?);
    let variants = Arc::new(Variants::load(Path::new(&path))?);
    let selectors = Selectors::new(&variants, &Options::early(), None)?;
    let mut model = Model::of(variants.clone(), pool)?;
    model.set_selector(Some(selectors.online()));
    for _ in 0..MOST {
        model.invoke()?;
        if selectors.are_decided() {
            break;
        }
    }
    if !selectors.are_decided() {
        return Err(format!("{path} has not decided after {MOST} inferences").into());
    }
    let inference_ns = median_ns(&mut model)?;
    let steps = questions(&mut model, selectors.online())?;
    if steps.is_empty() {
        return Err(format!(
            "{path} has no step with alternatives; compile it with --alternatives"
        )
        .into());
    }
    let selecting_ns = selecting_ns(&mut *selectors.online(), &steps);
    println!("steps that select      {:10}", steps.len());
    println!(
        "selecting, ns a step   {:10.2}",
        selecting_ns / steps.len() as f64
    );
    println!("selecting, ns in all   {selecting_ns:10.1}");
    println!("inference, ms          {:10.3}", inference_ns / 1e6);
    println!(
        "share of the inference {:10.5}%",
        100.0 * selecting_ns / inference_ns
    );
    Ok(())
}

/// What a selector is asked about: a step, its problem size, and the number of its alternatives.
type Question = (StepId, SelectionKey, usize);

/// A selector that notes what it is asked.
struct Noting {
    selector: Box<dyn Selector>,
    asked: Sender<Question>,
}

impl Selector for Noting {
    fn begins(&mut self, variant: usize) {
        self.selector.begins(variant);
    }

    fn select(&mut self, step: StepId, key: &SelectionKey, alternatives: usize) -> Choice {
        // Whoever listens does so until the inference is over.
        let _ = self.asked.send((step, key.clone(), alternatives));
        self.selector.select(step, key, alternatives)
    }

    fn finished(&mut self, step: StepId, key: &SelectionKey, alternative: usize, time_ns: u64) {
        self.selector.finished(step, key, alternative, time_ns);
    }

    fn ends(&mut self) {
        self.selector.ends();
    }
}

/// What a decided selector is asked in one inference.
fn questions(model: &mut Model, selector: Box<dyn Selector>) -> Result<Vec<Question>, RunError> {
    let (asked, all) = channel();
    model.set_selector(Some(Box::new(Noting { selector, asked })));
    model.invoke()?;
    model.set_selector(None);
    Ok(all.iter().collect())
}

fn median_ns(model: &mut Model) -> Result<f64, Box<dyn Error>> {
    let mut taken = Vec::new();
    for _ in 0..TIMED {
        let begin = Instant::now();
        model.invoke()?;
        taken.push(begin.elapsed().as_nanos());
    }
    taken.sort_unstable();
    Ok(taken[TIMED / 2] as f64)
}

/// What a selector takes in one inference.
fn selecting_ns(selector: &mut dyn Selector, steps: &[Question]) -> f64 {
    let selector = black_box(selector);
    let mut inference = || {
        selector.begins(0);
        for (step, key, alternatives) in steps {
            let choice = black_box(selector.select(*step, key, *alternatives));
            assert!(!choice.timed, "a step was not decided");
        }
        selector.ends();
    };
    // The selector looks decisions up once and keeps them.
    inference();
    let mut run = || {
        let begin = Instant::now();
        (0..INFERENCES).for_each(|_| inference());
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(INFERENCES)
    };
    (0..RUNS).map(|_| run()).fold(f64::INFINITY, f64::min)
}
