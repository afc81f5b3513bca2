//! Kernel Tuner's simulated annealing (`simulated_annealing.py` of release 1.0): one chain from a random point. One neighbour in
//! five differs in one decision, the others in each by at most one value. A worse one is moved to with probability
//! exp(relative loss / T), and T falls from 1 to 0.001 by 0.5% an answer.
//!
//! Kernel Tuner fits the schedule to a budget that is smaller; a strategy knows no budget. After its end Kernel Tuner stops;
//! here it begins anew at a random point. Several points that are asked for at once are neighbours of one point.

use super::Strategy;
use super::asked::Asked;
use super::kernel_tuner::{adjacent, hamming};
use crate::context::{Context, Told};
use crate::space::Point;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;

const ALPHA: f64 = 0.995;
const COLDEST: f64 = 0.001;
const HAMMING_ONE_IN: u32 = 5;
/// Steps without a new point after which the chain begins anew.
const STUCK: usize = 100;
/// Steps for each point of an ask after which points are drawn at random.
const STEPS: usize = 2_000;

pub struct KernelTunerAnnealing {
    rng: Pcg64Mcg,
    asked: Asked,
    /// Infinite for a failure.
    costs: HashMap<Point, f64>,
    /// Where the chain is; nowhere before its first answer.
    position: Option<Point>,
    temperature: f64,
}

impl KernelTunerAnnealing {
    pub fn new(seed: u64) -> KernelTunerAnnealing {
        KernelTunerAnnealing {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            costs: HashMap::new(),
            position: None,
            temperature: 1.0,
        }
    }

    /// Moves to a point with a cost, or stays.
    fn step(&mut self, to: &Point) {
        let cost = |p: &Point| self.costs.get(p).copied().unwrap_or(f64::INFINITY);
        let (old, new) = (self.position.as_ref().map_or(f64::INFINITY, cost), cost(to));
        let accepted = if old.is_infinite() || new < old {
            1.0
        } else if new.is_infinite() {
            0.0
        } else {
            ((old - new) / old / self.temperature).exp()
        };
        if accepted > self.rng.random() {
            self.position = Some(to.clone());
        }
    }
}

impl Strategy for KernelTunerAnnealing {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let space = context.space;
        let mut out = Vec::new();
        let (mut steps, mut stuck) = (0, 0);
        while out.len() < n && steps < STEPS * n {
            steps += 1;
            let near = match &self.position {
                Some(p) if stuck < STUCK => match self.rng.random_ratio(1, HAMMING_ONE_IN) {
                    true => hamming(space, p, &mut self.rng),
                    false => adjacent(space, p, &mut self.rng),
                },
                _ => {
                    (self.position, stuck) = (None, 0);
                    space.sample(&mut self.rng)
                }
            };
            if self.costs.contains_key(&near) {
                stuck += 1;
                self.step(&near);
            } else if let Some(p) = self.asked.take(space, near) {
                stuck = 0;
                out.push(p);
            } else {
                stuck += 1;
            }
        }
        while out.len() < n
            && let Some(p) = self.asked.fresh(space, &mut self.rng)
        {
            out.push(p);
        }
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        let cost = told.cost.filter(|c| c.is_finite());
        let cost = cost.unwrap_or(f64::INFINITY);
        self.costs.insert(told.point.clone(), cost);
        self.step(told.point);
        self.temperature *= ALPHA;
        if self.temperature < COLDEST {
            (self.temperature, self.position) = (1.0, None);
        }
    }

    fn revise(&mut self, point: &Point, cost: f64) {
        self.costs.insert(point.clone(), cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worse_points_are_moved_to_as_the_temperature_allows() {
        let points: Vec<Point> = (0..2)
            .map(|value| Point {
                sketch: 0,
                values: vec![value],
            })
            .collect();
        let mut annealing = KernelTunerAnnealing::new(1);
        for (p, cost) in points.iter().zip([10.0, 12.0]) {
            annealing.costs.insert(p.clone(), cost);
        }
        for (temperature, expected) in [(1.0, (-0.2f64).exp()), (0.1, (-2.0f64).exp())] {
            annealing.temperature = temperature;
            let mut moved = 0;
            for _ in 0..20_000 {
                annealing.position = Some(points[0].clone());
                annealing.step(&points[1]);
                moved += u32::from(annealing.position.as_ref() == Some(&points[1]));
            }
            let share = f64::from(moved) / 20_000.0;
            assert!((share - expected).abs() < 0.01, "{share}, {expected}");
            annealing.position = Some(points[1].clone());
            annealing.step(&points[0]);
            assert_eq!(annealing.position.as_ref(), Some(&points[0]));
        }
    }
}
