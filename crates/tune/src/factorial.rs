//! Choosing one of several levels of many factors at once by paired runs.
//!
//! In every pair of runs a random half of the factors takes its challenger in
//! the first run and the other half in the second, so that each pair says
//! something of every factor, and what drifts or comes second hits a challenger
//! as often as its incumbent. Knows nothing of what the factors are, nor of
//! clocks.
//!
//! Source: two-level factorial experiments with foldover; D. C. Montgomery,
//! Design and Analysis of Experiments, chapters 6 and 8.

use crate::error::Result;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use store::Paired;

/// A challenger replaces its incumbent below this probability of chance.
pub const SIGNIFICANT: f64 = 0.01;

/// What was found of one factor.
#[derive(Clone, Debug, PartialEq)]
pub struct FactorChoice {
    /// The level chosen; 0 unless another was significantly faster.
    pub level: usize,
    /// For each challenger, by its level: how it did against the incumbent.
    pub effects: Vec<(usize, Paired)>,
}

/// Chooses a level for every factor, of which there are `levels[i]`. `run`
/// takes a level a factor and returns how long that took. Every challenger
/// meets its incumbent in `pairs` pairs of runs.
///
/// # Errors
/// The first error of `run`.
pub fn decide(
    levels: &[usize],
    pairs: usize,
    seed: u64,
    run: &mut impl FnMut(&[usize]) -> Result<u64>,
) -> Result<Vec<FactorChoice>> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let start = FactorChoice {
        level: 0,
        effects: vec![],
    };
    let mut decisions = vec![start; levels.len()];
    for challenger in 1..levels.iter().copied().max().unwrap_or(0) {
        let incumbents: Vec<usize> = decisions.iter().map(|d| d.level).collect();
        let mut differences = vec![Vec::with_capacity(pairs); levels.len()];
        for _ in 0..pairs {
            let first: Vec<bool> = levels.iter().map(|_| rng.random()).collect();
            let of = |turn: bool| -> Vec<usize> {
                let takes = |i: usize| challenger < levels[i] && first[i] == turn;
                let level = |i| if takes(i) { challenger } else { incumbents[i] };
                (0..levels.len()).map(level).collect()
            };
            let a = run(&of(true))?.max(1) as f64;
            let b = run(&of(false))?.max(1) as f64;
            for (f, d) in first.iter().zip(&mut differences) {
                d.push(if *f { a / b } else { b / a }.ln());
            }
        }
        for (i, d) in decisions.iter_mut().enumerate() {
            if challenger >= levels[i] {
                continue;
            }
            let effect = Paired::of(&differences[i]);
            if effect.p < SIGNIFICANT && effect.latency_percent < 0.0 {
                d.level = challenger;
            }
            d.effects.push((challenger, effect));
        }
    }
    Ok(decisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose runs take 1 ms times the factors' effects, with noise of
    /// 1%, a slow drift, and now and then a run that takes twice as long.
    fn machine(effects: Vec<Vec<f64>>, seed: u64) -> impl FnMut(&[usize]) -> Result<u64> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut drift = 1.0;
        move |levels| {
            let own: f64 = levels.iter().zip(&effects).map(|(l, e)| e[*l]).product();
            drift *= 1.0005;
            let noise = 1.0 + 0.02 * (rng.random::<f64>() - 0.5);
            let disturbed = if rng.random_ratio(1, 15) { 2.0 } else { 1.0 };
            Ok((1e6 * own * drift * noise * disturbed) as u64)
        }
    }

    #[test]
    fn what_is_faster_by_little_is_found_and_what_is_not_is_kept() {
        let effects = vec![
            vec![1.0, 0.99],
            vec![1.0, 1.01],
            vec![1.0, 0.985, 0.97],
            vec![1.0, 1.02, 0.985],
            vec![1.0],
        ];
        let levels: Vec<usize> = effects.iter().map(Vec::len).collect();
        for seed in 0..5 {
            let mut run = machine(effects.clone(), seed);
            let found = decide(&levels, 120, seed, &mut run).unwrap();
            let chosen: Vec<usize> = found.iter().map(|d| d.level).collect();
            assert_eq!(chosen, [1, 0, 2, 2, 0], "{found:?}");
            let tried: Vec<usize> = found.iter().map(|d| d.effects.len()).collect();
            assert_eq!(tried, [1, 1, 2, 2, 0]);
            let slow = &found[1].effects[0].1;
            assert!(
                slow.latency_percent > 0.0 && slow.latency_percent < 3.0,
                "{slow:?}"
            );
            assert_eq!(slow.pairs, 120);
        }
    }

    #[test]
    fn equal_levels_are_rarely_taken_for_different() {
        let factors = 20;
        let mut changed = 0;
        for seed in 0..10 {
            let mut run = machine(vec![vec![1.0, 1.0]; factors], seed);
            let found = decide(&vec![2; factors], 30, seed, &mut run).unwrap();
            changed += found.iter().filter(|d| d.level != 0).count();
        }
        // 200 chances of one in a hundred.
        assert!(changed <= 8, "{changed}");
    }

    #[test]
    fn nothing_runs_where_nothing_is_to_be_chosen() {
        let mut run = |_: &[usize]| -> Result<u64> { panic!("no factor has a choice") };
        assert_eq!(decide(&[1, 1], 10, 0, &mut run).unwrap().len(), 2);
        assert!(decide(&[], 10, 0, &mut run).unwrap().is_empty());
    }
}
