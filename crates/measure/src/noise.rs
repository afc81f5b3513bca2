//! How far samples of this runner lie above what their candidate takes.
//!
//! Owns a sequential test from that: whether a candidate may be given up because
//! it is slower than the incumbent. Promises nothing about samples that disturb
//! each other; it takes them for independent. When to sample is `sampling`'s.

use std::collections::VecDeque;
use store::median;

/// Samples that are remembered; what disturbs them changes.
const REMEMBERED: usize = 512;
/// Fewer tell nothing of what is rare.
const TELLING: usize = 64;
/// Samples of a candidate without which its own median says nothing.
const LEAST: usize = 5;

/// Samples of earlier candidates, each divided by the median of the others of
/// its candidate.
#[derive(Debug, Default)]
pub struct Noise {
    above: VecDeque<f64>,
}

impl Noise {
    /// Learns from a candidate that was sampled to the end.
    pub fn learn(&mut self, samples: &[u64]) {
        if samples.len() < LEAST {
            return;
        }
        for (i, s) in samples.iter().enumerate() {
            let others: Vec<u64> = [&samples[..i], &samples[i + 1..]].concat();
            let own = median(&others).unwrap_or(*s).max(1);
            if self.above.len() == REMEMBERED {
                self.above.pop_front();
            }
            self.above.push_back(*s as f64 / own as f64);
        }
    }

    /// An upper estimate of how likely a sample is so many times what its
    /// candidate takes.
    fn share(&self, times: f64) -> f64 {
        let as_far = self.above.iter().filter(|a| **a >= times).count();
        (as_far + 1) as f64 / (self.above.len() + 1) as f64
    }

    /// Whether the samples say that a candidate is slower than the incumbent,
    /// asked after each of them: no more than the share `lose` of those that are
    /// as fast is ever given up. Of two samples on; never if `lose` is 0.
    pub fn is_slower(&self, samples: &[u64], best_ns: u64, lose: f64) -> bool {
        let Some(fastest) = samples.iter().min() else {
            return false;
        };
        if lose <= 0.0 || samples.len() < 2 || self.above.len() < TELLING {
            return false;
        }
        // Were it as fast as the incumbent, so many samples would all be this far
        // above with the power of the share; half of what may be lost is for the
        // first question, half of the rest for the next, and so on.
        let share = self.share(*fastest as f64 / best_ns.max(1) as f64);
        (2.0 * share).powi(samples.len() as i32) <= lose
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// Some per cent of noise, and now and then a disturbance.
    fn draw(rng: &mut Pcg64Mcg, ns: f64) -> u64 {
        let disturbed = rng.random::<f64>() < 0.1;
        let more = if disturbed { 0.5 } else { 0.02 } * rng.random::<f64>();
        (ns * (1.0 + more)) as u64
    }

    fn learnt(rng: &mut Pcg64Mcg) -> Noise {
        let mut noise = Noise::default();
        for _ in 0..100 {
            let samples: Vec<u64> = (0..8).map(|_| draw(rng, 100_000.0)).collect();
            noise.learn(&samples);
        }
        noise
    }

    /// The share of candidates of `ns` that is given up, and their mean samples.
    fn given_up(rng: &mut Pcg64Mcg, noise: &Noise, ns: f64, lose: f64) -> (f64, f64) {
        let (mut lost, mut taken) = (0, 0);
        for _ in 0..2000 {
            let mut samples = Vec::new();
            while samples.len() < 15 {
                samples.push(draw(rng, ns));
                if noise.is_slower(&samples, 101_000, lose) {
                    lost += 1;
                    break;
                }
            }
            taken += samples.len();
        }
        (f64::from(lost) / 2000.0, taken as f64 / 2000.0)
    }

    #[test]
    fn equals_of_the_incumbent_are_given_up_as_rarely_as_asked() {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let noise = learnt(&mut rng);
        for lose in [0.3, 0.05, 0.01] {
            let (lost, _) = given_up(&mut rng, &noise, 100_000.0, lose);
            assert!(lost <= lose, "{lost} of {lose}");
        }
        let (lost, taken) = given_up(&mut rng, &noise, 112_000.0, 0.01);
        assert!(lost > 0.9 && taken < 9.0, "{lost} {taken}");
        let (lost, taken) = given_up(&mut rng, &noise, 180_000.0, 0.01);
        assert!(lost > 0.99 && taken < 3.0, "{lost} {taken}");
        assert_eq!(given_up(&mut rng, &noise, 112_000.0, 0.0).0, 0.0);
    }

    #[test]
    fn nothing_is_given_up_before_anything_was_learnt() {
        let mut noise = Noise::default();
        assert!(!noise.is_slower(&[999; 9], 1, 0.5));
        noise.learn(&[100; 4]);
        (0..12).for_each(|_| noise.learn(&[100; 5]));
        assert!(!noise.is_slower(&[999; 9], 1, 0.5), "60 are too few");
        noise.learn(&[100; 5]);
        assert!(noise.is_slower(&[999; 9], 1, 0.5));
        assert!(!noise.is_slower(&[999], 1, 0.5), "one may be disturbed");
        assert!(!noise.is_slower(&[], 1, 0.5));
    }

    #[test]
    fn old_samples_are_forgotten() {
        let mut noise = Noise::default();
        (0..200).for_each(|_| noise.learn(&[100, 100, 100, 100, 200]));
        assert!(!noise.is_slower(&[150, 150], 100, 0.1));
        (0..200).for_each(|_| noise.learn(&[100; 5]));
        assert!(noise.is_slower(&[150, 150], 100, 0.1));
    }
}
