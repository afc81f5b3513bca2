//! Bayesian optimisation (Willemsen and others 2021, Kernel Tuner): a Gaussian process of the logarithms of costs, and
//! the points of the most expected improvement among random ones and neighbours of the best.

use super::Strategy;
use super::asked::Asked;
use super::learned::Learned;
use crate::context::{Context, Told};
use crate::space::Point;
use learn::{GaussianProcess, GaussianSettings};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::f64::consts::{PI, SQRT_2};

/// Points before the first model.
const FIRST: usize = 20;
/// Observations that the process has at most: its time grows with their cube.
const MOST: usize = 300;
/// Points among which the next ones are chosen: half of them random.
const POOL: usize = 512;
/// The best points whose neighbours are in the pool.
const PARENTS: usize = 8;

pub struct Bayesian {
    rng: Pcg64Mcg,
    asked: Asked,
    learned: Learned,
    seed: u64,
    told: usize,
    begun: bool,
}

impl Bayesian {
    pub fn new(seed: u64) -> Bayesian {
        Bayesian {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            learned: Learned::new(seed),
            seed,
            told: 0,
            begun: false,
        }
    }

    /// New points, the most promising first; none where there is no model.
    fn promising(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let space = context.space;
        let (encoder, mut rows, mut costs) = self.learned.observations(context);
        if rows.len() < FIRST {
            return vec![];
        }
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        // The last ones, and the best.
        if rows.len() > MOST {
            let best = costs.iter().position(|c| *c == least).unwrap_or(0);
            let last = rows.len() - MOST;
            rows.swap(best.min(last), last);
            costs.swap(best.min(last), last);
            rows.drain(..last);
            costs.drain(..last);
        }
        fill(&mut rows);
        let settings = GaussianSettings {
            length_each: false,
            restarts: 1,
            kernel_rows: 100,
            seed: self.seed,
        };
        let Ok(process) = GaussianProcess::fitted(&rows, &costs, &settings) else {
            return vec![];
        };
        let parents = self.learned.best(PARENTS);
        let mut pool: Vec<Point> = Vec::new();
        for i in 0..POOL {
            let p = match parents.get(i % (2 * PARENTS)) {
                Some(parent) => space.mutate(parent, &mut self.rng),
                None => space.sample(&mut self.rng),
            };
            if self.asked.is_new(&p) && !pool.contains(&p) {
                pool.push(p);
            }
        }
        let mut of_pool = encoder.rows(context, &pool);
        fill(&mut of_pool);
        let gain = |row: &Vec<f64>| {
            let e = process.predict(row);
            expected_improvement(least, e.mean, e.deviation)
        };
        let mut ranked: Vec<(f64, Point)> = of_pool.iter().map(gain).zip(pool).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        ranked.truncate(n);
        ranked.into_iter().map(|(_, p)| p).collect()
    }
}

/// A process knows no missing values: those of another sketch are as far as -1.
fn fill(rows: &mut [Vec<f64>]) {
    let all = rows.iter_mut().flatten();
    all.filter(|v| v.is_nan()).for_each(|v| *v = -1.0);
}

/// By how much a normal variable is expected to lie below `least`, where it does.
fn expected_improvement(least: f64, mean: f64, deviation: f64) -> f64 {
    if deviation <= 0.0 {
        return (least - mean).max(0.0);
    }
    let z = (least - mean) / deviation;
    let density = (-0.5 * z * z).exp() / (2.0 * PI).sqrt();
    (least - mean) * normal(z) + deviation * density
}

/// The normal distribution function (Abramowitz and Stegun, 7.1.26; 1.5e-7).
fn normal(z: f64) -> f64 {
    let x = z.abs() / SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let poly = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let sum = poly.iter().fold(0.0, |sum, c| (sum + c) * t);
    let erf = 1.0 - sum * (-x * x).exp();
    0.5 * (1.0 + erf.copysign(z))
}

impl Strategy for Bayesian {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let mut out = Vec::new();
        if !self.begun {
            self.begun = true;
            let defaults = super::defaults(context.space).into_iter();
            out.extend(defaults.filter_map(|p| self.asked.take(context.space, p)));
            out.truncate(n);
        }
        if self.told >= FIRST && out.len() < n {
            for p in self.promising(context, n - out.len()) {
                out.extend(self.asked.take(context.space, p));
            }
        }
        while out.len() < n
            && let Some(p) = self.asked.fresh(context.space, &mut self.rng)
        {
            out.push(p);
        }
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        self.told += 1;
        self.learned.add(told.point, told.cost);
    }

    fn revise(&mut self, point: &Point, cost: f64) {
        self.learned.revise(point, cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn improvement_is_expected_below_the_least() {
        assert!((normal(0.0) - 0.5).abs() < 1e-6);
        assert!((normal(1.0) - 0.841_345).abs() < 1e-5);
        assert!((normal(-1.0) - 0.158_655).abs() < 1e-5);
        // Of a standard normal variable, the mean of what lies below 0.
        assert!((expected_improvement(0.0, 0.0, 1.0) - 0.398_942).abs() < 1e-5);
        assert_eq!(expected_improvement(3.0, 1.0, 0.0), 2.0);
        assert_eq!(expected_improvement(1.0, 3.0, 0.0), 0.0);
    }
}
