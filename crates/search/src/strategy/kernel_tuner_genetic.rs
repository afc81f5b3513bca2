//! Kernel Tuner's genetic algorithm (`genetic_algorithm.py` of release 1.0): generations of 20, parents by their rank, uniform
//! crossover, and one child in ten moves to a neighbour. A child that was measured before costs nothing.
//!
//! After 100 generations Kernel Tuner ends; here a new random population begins. Points of different sketches are
//! not crossed.

use super::Strategy;
use super::asked::Asked;
use super::kernel_tuner::hamming;
use crate::context::{Context, Told};
use crate::space::{Point, Space};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{HashMap, VecDeque};

const POPULATION: usize = 20;
const GENERATIONS: usize = 100;
const MUTATED_ONE_IN: u32 = 10;
/// Ranks of parents follow a beta distribution of 1 and this.
const BETA: f64 = 2.5;
/// Pairs of parents for each child, after which random points fill a generation.
const PAIRS: usize = 20;

pub struct KernelTunerGenetic {
    rng: Pcg64Mcg,
    asked: Asked,
    /// Infinite for a failure.
    costs: HashMap<Point, f64>,
    population: Vec<Point>,
    generation: usize,
    /// Points of this generation that are new.
    waiting: VecDeque<Point>,
}

impl KernelTunerGenetic {
    pub fn new(seed: u64) -> KernelTunerGenetic {
        KernelTunerGenetic {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            costs: HashMap::new(),
            population: vec![],
            generation: 0,
            waiting: VecDeque::new(),
        }
    }

    /// The next generation. Points whose answers did not come yet are no parents.
    fn breed(&mut self, space: &Space) {
        let known = self.population.drain(..);
        let mut parents: Vec<(f64, Point)> = known
            .filter_map(|p| Some((*self.costs.get(&p)?, p)))
            .collect();
        parents.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        if self.generation == GENERATIONS {
            parents.clear();
            self.generation = 0;
        }
        self.generation += 1;
        let mut population: Vec<Point> = Vec::new();
        for _ in 0..PAIRS * POPULATION {
            if parents.len() < 2 || population.len() >= POPULATION {
                break;
            }
            for child in self.children(space, &parents) {
                if population.len() < POPULATION && !population.contains(&child) {
                    population.push(child);
                }
            }
        }
        for _ in population.len()..POPULATION {
            population.push(space.sample(&mut self.rng));
        }
        let new = population.iter().filter(|p| self.asked.is_new(p));
        self.waiting = new.cloned().collect();
        self.population = population;
    }

    /// The better its rank, the likelier.
    fn rank(&mut self, of: usize) -> usize {
        let u: f64 = self.rng.random();
        let at = (1.0 - (1.0 - u).powf(1.0 / BETA)) * of as f64;
        (at as usize).min(of - 1)
    }

    /// Two children of two different parents.
    fn children(&mut self, space: &Space, parents: &[(f64, Point)]) -> [Point; 2] {
        let first = self.rank(parents.len());
        let mut second = self.rank(parents.len());
        while second == first {
            second = self.rank(parents.len());
        }
        let (mut a, mut b) = (parents[first].1.clone(), parents[second].1.clone());
        if a.sketch == b.sketch {
            for (x, y) in a.values.iter_mut().zip(&mut b.values) {
                if self.rng.random() {
                    std::mem::swap(x, y);
                }
            }
        }
        let parents = [&parents[first].1, &parents[second].1];
        let mut at = 0;
        [a, b].map(|child| {
            at += 1;
            let child = match space.within_limits(&child) {
                true => child,
                false => parents[at - 1].clone(),
            };
            match self.rng.random_ratio(1, MUTATED_ONE_IN) {
                true => hamming(space, &child, &mut self.rng),
                false => child,
            }
        })
    }
}

impl Strategy for KernelTunerGenetic {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let space = context.space;
        let mut out = Vec::new();
        let mut bred = 0;
        while out.len() < n {
            if let Some(p) = self.waiting.pop_front() {
                out.extend(self.asked.take(space, p));
            } else if bred < GENERATIONS {
                bred += 1;
                self.breed(space);
            } else if let Some(p) = self.asked.fresh(space, &mut self.rng) {
                out.push(p);
            } else {
                break;
            }
        }
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        let cost = told.cost.filter(|c| c.is_finite());
        self.costs
            .insert(told.point.clone(), cost.unwrap_or(f64::INFINITY));
    }

    fn revise(&mut self, point: &Point, cost: f64) {
        self.costs.insert(point.clone(), cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_beta_distribution() {
        let mut genetic = KernelTunerGenetic::new(1);
        let mut first = 0;
        for _ in 0..20_000 {
            first += usize::from(genetic.rank(10) == 0);
        }
        // 1 - 0.9^2.5.
        let share = f64::from(first as u32) / 20_000.0;
        assert!((share - 0.2316).abs() < 0.01, "{share}");
    }
}
