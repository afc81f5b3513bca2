//! A genetic algorithm with generations (AutoTVM, `ga_tuner.py`): 100 genomes, of which 3 elites stay, parents in
//! proportion to their throughput, one crossing point, and each gene is drawn anew one time in ten.
//!
//! A genome is a point. Genomes of different sketches have different genes, so their child is the first
//! parent, mutated.

use super::Strategy;
use super::asked::Asked;
use crate::context::{Context, Told};
use crate::space::{Point, Space};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{HashMap, VecDeque};

const POPULATION: usize = 100;
const ELITES: usize = 3;
/// One gene in so many is drawn anew.
const MUTATION_ONE_IN: u32 = 10;
/// Mutations of a child that was asked for before.
const RETRIES: usize = 50;

pub struct Genetic {
    rng: Pcg64Mcg,
    asked: Asked,
    /// Genomes of this generation that were not asked for yet.
    waiting: VecDeque<Point>,
    /// Those that were, with their throughputs: 0 of a failed one.
    throughputs: HashMap<Point, Option<f64>>,
    /// The best of all generations, the best first.
    elites: Vec<(f64, Point)>,
}

impl Genetic {
    pub fn new(seed: u64) -> Genetic {
        Genetic {
            rng: Pcg64Mcg::seed_from_u64(seed),
            asked: Asked::default(),
            waiting: VecDeque::new(),
            throughputs: HashMap::new(),
            elites: vec![],
        }
    }

    /// Puts a genome among the elites, if it is one.
    fn keep(&mut self, point: &Point, throughput: f64) {
        let at = self.elites.partition_point(|(t, _)| *t >= throughput);
        self.elites.insert(at, (throughput, point.clone()));
        self.elites.truncate(ELITES);
    }

    /// The next generation: random at first, then children of this one and of the elites.
    fn breed(&mut self, space: &Space) {
        let parents: Vec<(f64, Point)> = self
            .throughputs
            .drain()
            .filter_map(|(p, t)| t.map(|t| (t, p)))
            .chain(self.elites.iter().cloned())
            .collect();
        // Not the order of the map.
        let mut parents: Vec<(f64, Point)> = parents.into_iter().filter(|p| p.0 > 0.0).collect();
        parents.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        parents.dedup();
        for _ in 0..POPULATION {
            let child = match parents.len() {
                0 | 1 => None,
                _ => self.child(space, &parents),
            };
            match child.or_else(|| self.asked.fresh(space, &mut self.rng)) {
                Some(p) => self.waiting.push_back(p),
                None => break,
            }
        }
    }

    /// A parent by chance, in proportion to throughput.
    fn parent<'a>(&mut self, of: &'a [(f64, Point)]) -> &'a Point {
        let total: f64 = of.iter().map(|(t, _)| t).sum();
        let mut at = self.rng.random_range(0.0..total);
        for (throughput, p) in of {
            at -= throughput;
            if at < 0.0 {
                return p;
            }
        }
        &of[of.len() - 1].1
    }

    /// A child that was not asked for.
    fn child(&mut self, space: &Space, parents: &[(f64, Point)]) -> Option<Point> {
        let (a, b) = (self.parent(parents).clone(), self.parent(parents).clone());
        let mut child = a;
        if child.sketch == b.sketch && child.values.len() > 1 {
            let point = self.rng.random_range(1..child.values.len());
            child.values[point..].copy_from_slice(&b.values[point..]);
        }
        let decisions = &space.sketches[child.sketch].decisions;
        (0..RETRIES).find_map(|_| {
            for (value, d) in child.values.iter_mut().zip(decisions) {
                if self.rng.random_ratio(1, MUTATION_ONE_IN) {
                    *value = self.rng.random_range(0..d.cardinality());
                }
            }
            self.asked.take(space, child.clone())
        })
    }
}

impl Strategy for Genetic {
    fn ask(&mut self, context: &Context<'_>, n: usize) -> Vec<Point> {
        let mut out = Vec::new();
        while out.len() < n {
            if self.waiting.is_empty() {
                self.breed(context.space);
            }
            let Some(p) = self.waiting.pop_front() else {
                break;
            };
            self.throughputs.insert(p.clone(), None);
            out.push(p);
        }
        out
    }

    fn tell(&mut self, told: &Told<'_>) {
        let cost = told.cost.filter(|c| c.is_finite() && *c > 0.0);
        let throughput = cost.map_or(0.0, |c| 1.0 / c);
        self.throughputs
            .insert(told.point.clone(), Some(throughput));
        if throughput > 0.0 {
            self.keep(told.point, throughput);
        }
    }

    /// Of the generations before this one, only elites count.
    fn revise(&mut self, point: &Point, cost: f64) {
        let throughput = 1.0 / cost.max(f64::MIN_POSITIVE);
        if let Some(of) = self.throughputs.get_mut(point) {
            *of = Some(throughput);
        }
        self.elites.retain(|(_, p)| p != point);
        self.keep(point, throughput);
    }
}
