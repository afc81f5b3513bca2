//! Choosing among the alternatives of a model's steps while inferences run, beside every fixed choice.
//!
//! Owns how both are measured and what is computed of it. Compiling the alternatives is the caller's.

use crate::winners::{Chosen, Winner, winners};
use runtime::{Alternative, FixedChoice, KernelId, Model, Pool, Selectors, Variants};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tune::latency::{Latencies, fill_inputs, fixed_model, interleaved, undisturbed};
use tune::{Error, Result};

/// Fewest rounds in which the decided model and every fixed choice run.
const LEAST_ROUNDS: usize = 5;
/// Fewest pairs that the overhead after deciding is told of, and the share of the time that they get.
const LEAST_PAIRS: usize = 10;
const SHARE_OF_PAIRS: u32 = 4;
/// Parts of the time of exploring for which a throughput is told.
const PARTS_OF_EXPLORING: usize = 4;
/// Lengths of whole runs that are told of: the paper trained for one epoch of 120 steps, and names 40 epochs of
/// 240 steps as realistic (section 5.1).
const RUNS: [usize; 2] = [120, 9_600];
/// More inferences than deciding among a dozen alternatives takes.
const MOST_EXPLORED: usize = 1_000;

/// What choosing online brought for a model on a number of threads.
#[derive(Clone, Debug, Serialize)]
pub struct Selection {
    pub model: String,
    /// The family of instructions that the kernels are for.
    pub target: String,
    /// Whether the model is a training step: an inference is then a step of training.
    pub training: bool,
    pub threads: u32,
    /// Images of an inference: the first size of the first input, if that has four.
    pub batch: usize,
    /// Steps that have alternatives.
    pub steps: usize,
    /// The choice made online, after it was made.
    pub online: ChoiceTimes,
    /// The first alternatives of all steps; then all steps with one algorithm, as far as they have it.
    pub fixed: Vec<ChoiceTimes>,
    /// The position of the fixed choice with the least median.
    pub best: usize,
    /// Steps that run another kernel than with the best fixed choice.
    pub differing: usize,
    pub exploring: Exploring,
    pub layers: Vec<Layer>,
    /// What steps that may run together decided.
    pub groups: Vec<GroupTimes>,
    /// What each layer chose in the passes of a training step; empty for other models.
    pub winners: Vec<Winner>,
    pub overhead: Overhead,
    /// Runs of other lengths, exploring included.
    pub runs: Vec<WholeRun>,
}

/// A run that explores first, as its parts were measured.
#[derive(Clone, Debug, Serialize)]
pub struct WholeRun {
    pub inferences: usize,
    /// Its time over that of the best fixed choice.
    pub ratio: f64,
}

/// What inferences take with one choice. All choices ran in turns.
#[derive(Clone, Debug, Serialize)]
pub struct ChoiceTimes {
    /// `online`, `first` or an algorithm.
    pub choice: String,
    /// Steps with alternatives that it decides; the others run their first one.
    pub steps: usize,
    pub median_ms: f64,
    pub min_ms: f64,
    /// At the median.
    pub images_per_s: f64,
    pub samples_ns: Vec<u64>,
}

/// The inferences until all steps were decided. After each of them one of a fixed choice ran, in turns.
#[derive(Clone, Debug, Serialize)]
pub struct Exploring {
    pub inferences: usize,
    pub ms: f64,
    /// What as many inferences of the best fixed choice take: its first one, and its mean in the same minutes.
    pub best_ms: f64,
    /// The whole run: the inferences that explored, and then those of the turns.
    pub run_inferences: usize,
    pub run_ms: f64,
    /// What as many inferences of the best fixed choice take.
    pub run_best_ms: f64,
    /// Inferences after which the run has taken no longer than the best fixed choice; none if it
    /// never comes to that, or if the choice is the same.
    pub pays_after: Option<f64>,
    pub samples_ns: Vec<u64>,
}

/// Equal layers: they share their alternatives and what was decided.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// The name of the first one.
    pub step: String,
    pub equal: usize,
    /// The names of all, and their positions in the model.
    pub steps: Vec<String>,
    pub positions: Vec<usize>,
    /// Position among the alternatives.
    pub chosen: usize,
    /// The families on the way to what was chosen, such as `winograd` for `winograd4`.
    pub families: Vec<String>,
    pub alternatives: Vec<LayerTime>,
}

#[derive(Clone, Debug, Serialize)]
pub struct LayerTime {
    pub algorithm: String,
    /// The families on the way to it, such as `winograd` for `winograd4`.
    pub families: Vec<String>,
    /// The median while exploring.
    pub median_ms: Option<f64>,
}

/// Steps that may run together, and what they decided.
#[derive(Clone, Debug, Serialize)]
pub struct GroupTimes {
    /// The names of the steps.
    pub steps: String,
    /// Groups of the same alternatives, this one included: they share what was decided.
    pub equal: usize,
    /// Position among the alternatives.
    pub chosen: usize,
    /// To run apart, and then the sets. Times are those of all steps.
    pub alternatives: Vec<LayerTime>,
}

/// The decided model against the same model whose choices are fixed, in pairs.
#[derive(Clone, Debug, Serialize)]
pub struct Overhead {
    pub pairs: usize,
    /// Median over median.
    pub ratio: f64,
}

impl Layer {
    pub fn winner(&self) -> Chosen {
        let t = &self.alternatives[self.chosen];
        Chosen {
            algorithm: t.algorithm.clone(),
            median_ms: t.median_ms,
        }
    }

    /// Of several kernels of one algorithm the chosen one, or else the fastest, and its position. A set that was not
    /// chosen has no time of a single step, so it is none.
    pub fn of_algorithm(&self, name: &str) -> Option<(usize, &LayerTime)> {
        let all = self.alternatives.iter().enumerate();
        let own = all
            .filter(|(at, t)| t.algorithm == name && (*at == self.chosen || t.median_ms.is_some()));
        own.min_by(|(a, first), (b, second)| {
            let chosen = |at: &usize| *at == self.chosen;
            let ms = |t: &LayerTime| t.median_ms.unwrap_or(0.0);
            let by_time = ms(first).total_cmp(&ms(second));
            chosen(b).cmp(&chosen(a)).then(by_time)
        })
    }
}

/// The first one and how many are equal to it, for people.
pub fn equal_to(first: &str, equal: usize) -> String {
    match equal {
        1 => first.to_string(),
        n => format!("{first} and {} equal", n - 1),
    }
}

impl Selection {
    pub fn best(&self) -> &ChoiceTimes {
        &self.fixed[self.best]
    }

    /// How many times as fast as a choice the decided model is.
    pub fn gain(&self, over: &ChoiceTimes) -> f64 {
        over.median_ms / self.online.median_ms
    }

    /// What people call an inference of the model.
    pub fn unit(&self) -> &'static str {
        match self.training {
            true => "training step",
            false => "inference",
        }
    }

    /// Images per second in each part of the inferences that explored.
    pub fn exploring_throughput(&self) -> Vec<f64> {
        let samples = &self.exploring.samples_ns;
        let parts = samples.chunks(samples.len().div_ceil(PARTS_OF_EXPLORING).max(1));
        let rate = |part: &[u64]| (self.batch * part.len()) as f64 * 1e3 / total_ms(part);
        parts.map(rate).collect()
    }

    /// Images per second of each inference in the order of the run, those that explored first.
    pub fn throughput(&self) -> impl Iterator<Item = f64> {
        let all = self.exploring.samples_ns.iter();
        let all = all.chain(&self.online.samples_ns);
        all.map(|ns| self.batch as f64 * 1e9 / *ns as f64)
    }
}

/// Lets a model decide, and measures it beside the fixed choices for about `time` afterwards. `target` names what its
/// kernels are for.
///
/// # Errors
/// If the model has no step with alternatives, cannot run here, or does not come to decisions.
pub fn measure(
    variants: &Arc<Variants>,
    target: &str,
    pool: &Arc<Pool>,
    selectors: &Selectors,
    time: Duration,
) -> Result<Selection> {
    let compiled = variants.models()[0].clone();
    let choices = compiled.fixed_choices();
    if choices[0].steps == 0 {
        return Err(Error::new(format!(
            "{} has no step with several of these algorithms",
            compiled.name()
        ))
        .help("name others with --alternatives; `tasks --json` lists the algorithms of a model"));
    }
    let mut online = Model::of(variants.clone(), pool.clone())?;
    online.set_selector(Some(selectors.online()));
    fill_inputs(&mut online, 1);
    let fixed = choices.iter().map(|c| fixed_model(variants, 0, pool, c));
    let mut fixed = fixed.collect::<Result<Vec<Model>>>()?;
    let explored = explore(&mut online, &mut fixed, selectors)?;
    let mut models: Vec<&mut Model> = vec![&mut online];
    models.extend(&mut fixed);
    let mut taken = interleaved(&mut models, time, LEAST_ROUNDS)?;
    // Their memory would push that of the others out of the caches.
    drop(fixed);
    let batch = images(&online);
    let own = times("online", choices[0].steps, taken.remove(0), batch);
    let named = |(c, l): (&FixedChoice, Latencies)| {
        let name = match c.algorithm.as_str() {
            "" => "first",
            name => name,
        };
        times(name, c.steps, l, batch)
    };
    let fixed: Vec<ChoiceTimes> = choices.iter().zip(taken).map(named).collect();
    let by_median = |a: &usize, b: &usize| fixed[*a].median_ms.total_cmp(&fixed[*b].median_ms);
    let best = (0..fixed.len()).min_by(by_median).unwrap_or(0);
    let threads = pool.ctx().threads;
    let decided = decided(variants, selectors, threads);
    let layers = layers(variants, selectors, threads);
    let training = !compiled.states().is_empty();
    let mut exploring = exploring(
        explored.own,
        explored.firsts[best],
        &explored.others[best],
        &own,
        &fixed[best],
    );
    let pairs = decided.iter().zip(&choices[best].alternatives);
    let differing = pairs.filter(|(a, b)| a != b).count();
    if differing == 0 {
        // What the medians differ by is noise.
        exploring.pays_after = None;
    }
    let run = |n: &usize| whole_run(*n, &exploring, &own, &fixed[best]);
    Ok(Selection {
        model: compiled.name().to_string(),
        target: target.to_string(),
        threads,
        batch,
        training,
        steps: choices[0].steps,
        runs: RUNS.iter().map(run).collect(),
        winners: match training {
            true => winners(&layers),
            false => vec![],
        },
        exploring,
        online: own,
        fixed,
        best,
        differing,
        groups: equal_once(keyed_groups(variants, 0, selectors, threads)),
        layers,
        overhead: overhead(variants, pool, decided, &mut online, time / SHARE_OF_PAIRS)?,
    })
}

fn timed(model: &mut Model) -> Result<u64> {
    let start = Instant::now();
    model.invoke()?;
    Ok(start.elapsed().as_nanos() as u64)
}

/// What inferences took until all steps were decided, in nanoseconds.
struct Explored {
    own: Vec<u64>,
    /// The first inference of each fixed choice, before all others.
    firsts: Vec<u64>,
    /// Those of each fixed choice, in turns with one's own.
    others: Vec<Vec<u64>>,
}

/// Runs inferences until all steps are decided; after each, one of a fixed choice in turns.
fn explore(online: &mut Model, fixed: &mut [Model], selectors: &Selectors) -> Result<Explored> {
    let firsts = fixed.iter_mut().map(timed).collect::<Result<Vec<u64>>>()?;
    let (mut own, mut others) = (Vec::new(), vec![Vec::new(); fixed.len()]);
    // Every fixed choice runs once, however soon all is decided.
    while own.len() < fixed.len() || !selectors.are_decided() {
        if own.len() >= MOST_EXPLORED {
            return Err(Error::new(format!(
                "{} has not decided after {MOST_EXPLORED} inferences",
                online.compiled().name()
            ))
            .help("name fewer algorithms with --alternatives"));
        }
        let turn = own.len() % fixed.len();
        own.push(timed(online)?);
        others[turn].push(timed(&mut fixed[turn])?);
    }
    Ok(Explored {
        own,
        firsts,
        others,
    })
}

fn images(model: &Model) -> usize {
    let compiled = model.compiled();
    let first = compiled.inputs().first().map(|id| compiled.tensor(*id));
    match first.map(|t| &t.shape[..]) {
        Some([n, _, _, _]) => *n,
        _ => 1,
    }
}

fn times(choice: &str, steps: usize, l: Latencies, batch: usize) -> ChoiceTimes {
    ChoiceTimes {
        choice: choice.to_string(),
        steps,
        median_ms: l.median_ms(),
        min_ms: l.min_ms(),
        images_per_s: batch as f64 * 1e3 / l.median_ms(),
        samples_ns: l.samples_ns,
    }
}

fn total_ms(samples_ns: &[u64]) -> f64 {
    samples_ns.iter().sum::<u64>() as f64 / 1e6
}

/// What exploring cost. The best fixed choice took `first_ns` in its first inference, whose memory is cold as in the first
/// one that explores, and `meanwhile` in inferences at the same time.
fn exploring(
    samples_ns: Vec<u64>,
    first_ns: u64,
    meanwhile: &[u64],
    online: &ChoiceTimes,
    best: &ChoiceTimes,
) -> Exploring {
    let inferences = samples_ns.len();
    let ms = total_ms(&samples_ns);
    let mean_ms = total_ms(meanwhile) / meanwhile.len().max(1) as f64;
    let best_ms = first_ns as f64 / 1e6 + inferences.saturating_sub(1) as f64 * mean_ms;
    let gain_ms = best.median_ms - online.median_ms;
    let pays_after = inferences as f64 + ((ms - best_ms) / gain_ms).max(0.0);
    Exploring {
        inferences,
        ms,
        best_ms,
        run_inferences: inferences + online.samples_ns.len(),
        run_ms: ms + total_ms(&online.samples_ns),
        run_best_ms: best_ms + total_ms(&best.samples_ns),
        pays_after: (gain_ms > 0.0).then_some(pays_after),
        samples_ns,
    }
}

/// A run of so many inferences, those after deciding at the medians.
fn whole_run(
    inferences: usize,
    explored: &Exploring,
    online: &ChoiceTimes,
    best: &ChoiceTimes,
) -> WholeRun {
    let exploring = inferences.min(explored.inferences);
    let decided = (inferences - exploring) as f64;
    let share = exploring as f64 / explored.inferences.max(1) as f64;
    let own_ms = total_ms(&explored.samples_ns[..exploring]) + decided * online.median_ms;
    let best_ms = share * explored.best_ms + decided * best.median_ms;
    WholeRun {
        inferences,
        ratio: own_ms / best_ms,
    }
}

/// The layers with a choice, equal ones once.
fn layers(variants: &Variants, selectors: &Selectors, threads: u32) -> Vec<Layer> {
    let compiled = &variants.models()[0];
    let key = |step: usize| variants.selection_key(0, step, threads);
    let mut found: Vec<(Vec<_>, Layer)> = Vec::new();
    let decided = selectors.decided(0, key);
    for (i, (step, chosen)) in compiled.steps().iter().zip(decided).enumerate() {
        let Some(chosen) = chosen else {
            continue;
        };
        // A set has no time of a single step.
        let free = compiled.free_alternatives(i);
        let shown = |at: &usize| *at < free || *at == chosen;
        let shown: Vec<usize> = (0..step.alternatives.len()).filter(shown).collect();
        let of = |a: &Alternative| a.calls.iter().map(|c| c.kernel).collect::<Vec<_>>();
        let kernels: Vec<_> = step.alternatives.iter().map(of).collect();
        if let Some((_, layer)) = found.iter_mut().find(|(other, _)| *other == kernels) {
            layer.equal += 1;
            layer.steps.push(step.name.clone());
            layer.positions.push(i);
            continue;
        }
        let medians = selectors.medians(0, i, &key(i));
        let ways = selectors.ways(0, i);
        let time = |at: &usize| {
            let median = medians.get(*at).copied().flatten();
            LayerTime {
                families: ways.get(*at).cloned().unwrap_or_default(),
                ..time_of(compiled.algorithm(&step.alternatives[*at]), median)
            }
        };
        let layer = Layer {
            step: step.name.clone(),
            equal: 1,
            steps: vec![step.name.clone()],
            positions: vec![i],
            chosen: chosen.min(free),
            families: selectors.families(0, i, &key(i)),
            alternatives: shown.iter().map(time).collect(),
        };
        found.push((kernels, layer));
    }
    found.into_iter().map(|(_, layer)| layer).collect()
}

fn time_of(algorithm: String, median: Option<Duration>) -> LayerTime {
    LayerTime {
        algorithm,
        families: vec![],
        median_ms: median.map(|t| t.as_secs_f64() * 1e3),
    }
}

/// What the decided groups of a variant chose.
pub fn groups(
    variants: &Variants,
    variant: usize,
    selectors: &Selectors,
    threads: u32,
) -> Vec<GroupTimes> {
    let all = keyed_groups(variants, variant, selectors, threads);
    all.into_iter().map(|(_, group)| group).collect()
}

/// The kernels of all alternatives of a group, by step, alternative and call.
type GroupKernels = Vec<Vec<Vec<KernelId>>>;

/// Groups of the same kernels once, under the name of the first.
fn equal_once(all: Vec<(GroupKernels, GroupTimes)>) -> Vec<GroupTimes> {
    let mut found: Vec<(GroupKernels, GroupTimes)> = Vec::new();
    for (kernels, group) in all {
        match found.iter_mut().find(|(other, _)| *other == kernels) {
            Some((_, same)) => same.equal += 1,
            None => found.push((kernels, group)),
        }
    }
    found.into_iter().map(|(_, group)| group).collect()
}

fn keyed_groups(
    variants: &Variants,
    variant: usize,
    selectors: &Selectors,
    threads: u32,
) -> Vec<(GroupKernels, GroupTimes)> {
    let compiled = &variants.models()[variant];
    let key = |step: usize| variants.selection_key(variant, step, threads);
    let decided = selectors.decided(variant, key);
    let mut found = Vec::new();
    for (at, group) in compiled.groups().iter().enumerate() {
        let steps: Vec<usize> = group.steps.iter().map(|s| s.index()).collect();
        let Some(chosen) = decided[steps[0]] else {
            continue;
        };
        let set = |set: usize| {
            let of = |at: &usize| {
                let own = &compiled.steps()[*at].alternatives;
                compiled.algorithm(&own[compiled.free_alternatives(*at) + set])
            };
            steps.iter().map(of).collect::<Vec<String>>().join(" & ")
        };
        let names = std::iter::once("apart".to_string()).chain((0..group.sets).map(set));
        let medians = selectors.group_medians(variant, at, &key(steps[0]));
        let free = compiled.free_alternatives(steps[0]);
        let of_steps = steps.iter().map(|at| &*compiled.steps()[*at].name);
        let kernels = |at: &usize| {
            let all = compiled.steps()[*at].alternatives.iter();
            all.map(|a| a.calls.iter().map(|c| c.kernel).collect())
                .collect()
        };
        let times = GroupTimes {
            steps: of_steps.collect::<Vec<&str>>().join(" & "),
            equal: 1,
            chosen: chosen.checked_sub(free).map_or(0, |set| set + 1),
            alternatives: names.zip(medians).map(|(n, t)| time_of(n, t)).collect(),
        };
        found.push((steps.iter().map(kernels).collect(), times));
    }
    found
}

/// The alternative of each step that was decided on; the only one of steps without a choice.
fn decided(variants: &Variants, selectors: &Selectors, threads: u32) -> Vec<usize> {
    let key = |step: usize| variants.selection_key(0, step, threads);
    let decided = selectors.decided(0, key).into_iter();
    decided.map(|d| d.unwrap_or(0)).collect()
}

/// What a decided model takes over the same model whose choices are fixed.
fn overhead(
    variants: &Arc<Variants>,
    pool: &Arc<Pool>,
    decided: Vec<usize>,
    online: &mut Model,
    time: Duration,
) -> Result<Overhead> {
    let same = FixedChoice {
        algorithm: String::new(),
        steps: 0,
        alternatives: decided,
    };
    let mut same = fixed_model(variants, 0, pool, &same)?;
    let begin = Instant::now();
    let mut more = || begin.elapsed() < time;
    let taken = undisturbed(&mut [online, &mut same], LEAST_PAIRS, &mut more)?;
    Ok(Overhead {
        pairs: taken[0].samples_ns.len(),
        ratio: taken[0].median_ms() / taken[1].median_ms(),
    })
}

#[cfg(test)]
pub(crate) mod sample;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(choice: &str, ms: u64) -> ChoiceTimes {
        let samples_ns = vec![ms * 1_000_000; 5];
        times(choice, 1, Latencies { samples_ns }, 2)
    }

    #[test]
    fn exploring_pays_once_its_loss_is_won_back() {
        let (online, best) = (of("online", 8), of("direct", 10));
        assert!((online.images_per_s - 250.0).abs() < 1e-9);
        // 4 inferences of 15 ms lose 20 ms, which 10 inferences win back.
        let explored = vec![15_000_000; 4];
        let e = exploring(
            explored.clone(),
            10_000_000,
            &[10_000_000, 10_000_000],
            &online,
            &best,
        );
        assert_eq!((e.inferences, e.run_inferences), (4, 9));
        assert_eq!((e.ms, e.best_ms), (60.0, 40.0));
        assert_eq!((e.run_ms, e.run_best_ms), (100.0, 90.0));
        assert_eq!(e.pays_after, Some(14.0));
        // Half of the exploring; all of it and the inferences that win its loss back.
        let ratio = |n| whole_run(n, &e, &online, &best).ratio;
        assert!((ratio(2) - 1.5).abs() < 1e-9 && (ratio(14) - 1.0).abs() < 1e-9);
        let e = exploring(explored, 10_000_000, &[10_000_000], &best, &online);
        assert_eq!(e.pays_after, None);
    }
}
