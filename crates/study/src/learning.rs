//! Models of strategies against recorded times: how well they rank candidates that they have not seen.
//!
//! Each task of a store is learned from in parts, by each learner. A model is given some of its answers, or none and those of
//! similar tasks, and ranks all others.

use crate::row::mean;
use learn::{spearman, top_recall};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use search::{
    Analytic, Asked, Context, CostModel, Learned, LearnedCosts, Learner, Point, SimilarTask,
    Subject,
};
use serde::{Serialize, Serializer};
use std::cell::RefCell;
use std::collections::HashMap;
use tune::similar::read_columns;

/// A task with its answers, and the answers of similar tasks.
pub struct Answered {
    pub title: String,
    pub own: SimilarTask,
    pub similar: Vec<SimilarTask>,
}

/// What a model is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Given {
    /// Own answers.
    pub own: usize,
    /// Whether it has those of similar tasks.
    pub similar: bool,
    /// Whether it knows what lowered programs tell.
    pub loops: bool,
    /// What the model is made of.
    #[serde(serialize_with = "name_of")]
    pub learner: Learner,
}

fn name_of<S: Serializer>(learner: &Learner, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(learner.name())
}

/// How a model ranks the answers of one task that it was not given.
#[derive(Clone, Debug, Serialize)]
pub struct Ranking {
    pub task: String,
    pub points: usize,
    pub spearman: f64,
    /// The share of the ten fastest that is among the first ten.
    pub recall: f64,
    /// The first choice, and the best of the first ten, over the least time.
    pub first: f64,
    pub best_of_10: f64,
}

/// The rankings of one kind of model, of each task and seed.
#[derive(Clone, Debug, Serialize)]
pub struct Model {
    /// None of the cost that rules predict, which learns nothing.
    pub given: Option<Given>,
    pub rankings: Vec<Ranking>,
}

impl Model {
    /// The mean of a figure.
    pub fn mean(&self, of: impl Fn(&Ranking) -> f64) -> f64 {
        mean(self.rankings.iter().map(of)).unwrap_or(f64::NAN)
    }

    /// The geometric mean of a ratio.
    pub fn geometric(&self, of: impl Fn(&Ranking) -> f64) -> f64 {
        self.mean(|r| of(r).ln()).exp()
    }
}

/// Own answers that models are given.
const OWN: [usize; 3] = [0, 16, 48];
/// Fewest answers of a task that remain to be ranked.
pub const RANKED: usize = 24;

type Columns = RefCell<HashMap<(String, Point), Option<Vec<f64>>>>;

/// What lowered programs tell, each read once.
fn columns(
    known: &Columns,
    task: &str,
    subject: &Subject<'_>,
    points: &[Point],
) -> Vec<Option<Vec<f64>>> {
    let mut known = known.borrow_mut();
    let mut one = |p: &Point| {
        let key = (task.to_string(), p.clone());
        let read = || {
            read_columns(subject, std::slice::from_ref(p))
                .pop()
                .flatten()
        };
        known.entry(key).or_insert_with(read).clone()
    };
    points.iter().map(&mut one).collect()
}

/// The predicted cost, then each learner with each part of what there is.
fn all_given() -> impl Iterator<Item = Option<Given>> {
    let parts = [(false, false), (false, true), (true, false), (true, true)];
    let of_learner = move |learner| {
        OWN.into_iter().flat_map(move |own| {
            let some = parts
                .into_iter()
                .filter(move |(similar, _)| own > 0 || *similar);
            some.map(move |(similar, loops)| Given {
                own,
                similar,
                loops,
                learner,
            })
        })
    };
    let all = Learner::ALL.into_iter().flat_map(of_learner);
    // Noise is the same whatever it is given.
    let told =
        all.filter(|g| g.learner != Learner::Random || (g.own == OWN[1] && !g.similar && !g.loops));
    [None].into_iter().chain(told.map(Some))
}

/// All kinds of models on all tasks, with so many seeds; tasks with too few answers are left out. `observe` is
/// told how far it is.
pub fn rank(tasks: &[Answered], seeds: u64, observe: &mut dyn FnMut(f64, &str)) -> Vec<Model> {
    let mut models: Vec<Model> = all_given()
        .map(|given| Model {
            given,
            rankings: vec![],
        })
        .collect();
    let most = OWN[OWN.len() - 1];
    let enough = tasks.iter().filter(|t| t.own.points.len() >= most + RANKED);
    let enough: Vec<&Answered> = enough.collect();
    for (i, t) in enough.iter().enumerate() {
        observe(i as f64 / enough.len() as f64, &t.title);
        let known = Columns::default();
        for seed in 1..=seeds {
            let mut order: Vec<usize> = (0..t.own.points.len()).collect();
            order.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
            for m in &mut models {
                // A model of similar tasks is not to be judged where there are none.
                if m.given.is_none_or(|g| !g.similar || !t.similar.is_empty()) {
                    m.rankings
                        .push(ranking(t, m.given, &order, most, seed, &known));
                }
            }
        }
    }
    models
}

fn ranking(
    t: &Answered,
    given: Option<Given>,
    order: &[usize],
    most: usize,
    seed: u64,
    known: &Columns,
) -> Ranking {
    let own = &t.own;
    // All kinds rank the same answers.
    let (first, rest) = order.split_at(most);
    let points: Vec<Point> = rest.iter().map(|i| own.points[*i].clone()).collect();
    let slowest = own
        .costs
        .iter()
        .copied()
        .filter(|c| c.is_finite())
        .fold(0.0, f64::max);
    let costs: Vec<f64> = rest.iter().map(|i| own.costs[*i].min(slowest)).collect();
    let predicted: Vec<f64> = match given {
        None => costs_of(&Analytic(own.subject()), &points),
        Some(g) => {
            let read = |s: &Subject<'_>, p: &[Point]| {
                let of = t.similar.iter().find(|o| std::ptr::eq(&o.space, s.space));
                columns(known, of.map_or("", |o| &o.key), s, p)
            };
            let similar = if g.similar { &t.similar[..] } else { &[] };
            let context = Context {
                space: &own.space,
                program: Some(&own.program),
                target: Some(&own.target),
                known: &[],
                columns: if g.loops { Some(&read) } else { None },
                learner: g.learner,
                look_up_similar: &|| similar,
            };
            let mut learned = Learned::new(seed);
            let mut model = LearnedCosts {
                learned: &mut learned,
                context: &context,
            };
            for i in &first[..g.own] {
                model.tell(&own.points[*i], Some(own.costs[*i]));
            }
            model.update();
            costs_of(&model, &points)
        }
    };
    judged(t, &predicted, &costs)
}

/// Points without a prediction come last.
fn costs_of(model: &dyn CostModel, points: &[Point]) -> Vec<f64> {
    let costs = model.predict(&Asked::all(points)).into_iter();
    costs.map(|c| c.unwrap_or(f64::MAX)).collect()
}

fn judged(t: &Answered, predicted: &[f64], costs: &[f64]) -> Ranking {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by(|a, b| predicted[*a].total_cmp(&predicted[*b]));
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let of_10 = order.iter().take(10).map(|i| costs[*i]);
    Ranking {
        task: t.title.clone(),
        points: costs.len(),
        spearman: spearman(predicted, costs).unwrap_or(0.0),
        recall: top_recall(predicted, costs, 10).unwrap_or(0.0),
        first: costs[order[0]] / least,
        best_of_10: of_10.fold(f64::INFINITY, f64::min) / least,
    }
}
