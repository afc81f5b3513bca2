//! Gradient-boosted regression trees (Friedman, 2001; gains and leaves as in XGBoost, Chen and Guestrin, 2016).
//!
//! Features are divided into at most 255 bins, and a tree grows by levels from sums of derivatives
//! in each bin (`grow.rs`). `objective.rs` has the losses. Everything runs on one thread, so that
//! equal arguments give equal trees bit by bit.

mod grow;
mod objective;

use crate::saved::{LoadError, Model, Reader, Writer};
use crate::{Unfit, targets};
use grow::{Bins, Grower};
use objective::Losses;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

/// Rows that pass through one tree before the next tree is read.
const BLOCK: usize = 128;

/// Rows that go down a tree side by side: processors overlap the steps of different rows.
const ABREAST: usize = 8;

/// What trees minimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The weighted square of prediction less target.
    SquaredError,
    /// The logistic loss of pairs of rows of one group (RankNet, Burges et al., 2005): of two rows, the
    /// one with the greater target should get the greater prediction. Only the order within a
    /// group counts, so groups may have different scales. A pair weighs the geometric mean
    /// of its rows' weights.
    PairwiseRanking,
}

/// When trees stop growing before all rounds are done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStop {
    /// Share of the rows, in 0..1 and of all groups alike, that no tree learns from and that judges each
    /// round. With 0 the training rows judge.
    pub validation: f64,
    /// Rounds without a new least loss after which training stops. Trees after the least loss are dropped.
    pub patience: usize,
}

/// How trees are fitted. Names in brackets are XGBoost's.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeSettings {
    pub objective: Objective,
    /// Trees that are added (`n_estimators`).
    pub rounds: usize,
    /// Splits on the longest path of a tree (`max_depth`).
    pub depth: usize,
    /// Factor of each leaf (`eta`).
    pub rate: f64,
    /// Share of the rows that a tree learns from (`subsample`), in 0..=1.
    pub row_share: f64,
    /// Share of the features that a tree may split by (`colsample_bytree`), in 0..=1.
    pub column_share: f64,
    /// Penalty of squared leaves (`lambda`).
    pub lambda: f64,
    /// Penalty of absolute leaves (`alpha`).
    pub alpha: f64,
    /// Least gain of a split (`gamma`). A split with less is not made, even if later ones would gain more.
    pub gamma: f64,
    /// Least sum of second derivatives in a child (`min_child_weight`).
    pub min_child_weight: f64,
    /// Bins of a feature, 2 to 255. A feature with no more distinct values has a bin for each.
    pub bins: usize,
    pub early_stop: Option<EarlyStop>,
    pub seed: u64,
}

impl TreeSettings {
    /// The predictor of the paper on instruction-accurate simulators, found by its grid search. The bins are ours.
    pub fn simulators(objective: Objective, seed: u64) -> TreeSettings {
        TreeSettings {
            objective,
            rounds: 300,
            depth: 3,
            rate: 0.05,
            row_share: 0.8,
            column_share: 0.6,
            lambda: 0.1,
            alpha: 0.0,
            gamma: 0.0,
            min_child_weight: 1.0,
            bins: 64,
            early_stop: None,
            seed,
        }
    }

    /// The cost model of TVM's MetaSchedule (`python/…/cost_model/xgb_model.py`), XGBoost's defaults where it sets nothing.
    pub fn meta_schedule(objective: Objective, seed: u64) -> TreeSettings {
        TreeSettings {
            objective,
            rounds: 10_000,
            depth: 10,
            rate: 0.2,
            row_share: 1.0,
            column_share: 1.0,
            lambda: 1.0,
            alpha: 0.0,
            gamma: 0.001,
            min_child_weight: 0.0,
            bins: 255,
            early_stop: Some(EarlyStop {
                validation: 0.0,
                patience: 50,
            }),
            seed,
        }
    }
}

/// What trees are fitted to: one target a row, and weights and groups where given.
#[derive(Clone, Copy, Debug)]
pub struct Examples<'a> {
    /// Features. NaN means that a value is missing.
    pub rows: &'a [Vec<f64>],
    pub y: &'a [f64],
    /// At least 0 each; 1 where `None`.
    pub weights: Option<&'a [f64]>,
    /// The group of each row, for [`Objective::PairwiseRanking`]; one group where `None`.
    pub groups: Option<&'a [usize]>,
}

impl<'a> Examples<'a> {
    /// Rows of one group that weigh the same.
    pub fn of(rows: &'a [Vec<f64>], y: &'a [f64]) -> Examples<'a> {
        Examples {
            rows,
            y,
            weights: None,
            groups: None,
        }
    }

    pub(crate) fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |w| w[row])
    }

    /// The number of features, if nothing is wrong with the examples.
    pub(crate) fn checked(&self) -> Result<usize, Unfit> {
        let features = self.rows.first().map_or(0, Vec::len);
        if features == 0 {
            return Err(Unfit::Empty);
        }
        for (row, values) in self.rows.iter().enumerate() {
            width(row, values.len(), features)?;
            if values.iter().any(|v| v.is_infinite()) {
                return Err(Unfit::NotFinite { row });
            }
        }
        targets(self.rows.len(), self.y)?;
        if let Some(weights) = self.weights {
            targets(self.rows.len(), weights)?;
            if let Some(row) = weights.iter().position(|w| *w < 0.0) {
                return Err(Unfit::Weight { row });
            }
        }
        if let Some(groups) = self.groups {
            width(
                groups.len().min(self.rows.len()),
                groups.len(),
                self.rows.len(),
            )?;
        }
        Ok(features)
    }
}

fn width(row: usize, values: usize, expected: usize) -> Result<(), Unfit> {
    match values == expected {
        true => Ok(()),
        false => Err(Unfit::Length {
            row,
            values,
            expected,
        }),
    }
}

/// The sum of a constant and of many trees.
#[derive(Clone, Debug, PartialEq)]
pub struct Trees {
    features: usize,
    base: f64,
    trees: Vec<Tree>,
}

/// Node 0 is the root. A node's children lie side by side behind it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tree {
    nodes: Vec<Node>,
    /// What the split of each node gained, 0 for leaves.
    gains: Vec<f64>,
    /// Splits on the longest path.
    depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Node {
    /// The threshold of a split: smaller values go left. The value of a leaf.
    value: f64,
    /// The feature of a split, 0 for a leaf.
    feature: u32,
    /// The left child, with the right one next to it. A leaf names itself, so that rows stay there.
    left: u32,
    split: bool,
    missing_left: bool,
}

impl Tree {
    fn push_leaf(&mut self, value: f64) -> usize {
        let at = self.nodes.len();
        self.gains.push(0.0);
        self.nodes.push(Node {
            value,
            feature: 0,
            left: at as u32,
            split: false,
            missing_left: false,
        });
        at
    }

    /// The node where a row goes from a node.
    fn next(&self, at: u32, row: &[f64]) -> u32 {
        let node = &self.nodes[at as usize];
        let v = row[node.feature as usize];
        // Without branches, which random rows would mislead.
        let left = (v < node.value) | (node.missing_left & v.is_nan());
        node.left + u32::from(node.split & !left)
    }

    fn value(&self, row: &[f64]) -> f64 {
        let mut at = 0;
        while self.nodes[at as usize].split {
            at = self.next(at, row);
        }
        self.nodes[at as usize].value
    }

    /// Adds the value for each row to its sum.
    fn add_values(&self, rows: &[Vec<f64>], sums: &mut [f64]) {
        for (rows, sums) in rows.chunks(ABREAST).zip(sums.chunks_mut(ABREAST)) {
            let mut places = [0; ABREAST];
            for _ in 0..self.depth {
                for (at, row) in places.iter_mut().zip(rows) {
                    *at = self.next(*at, row);
                }
            }
            for (sum, at) in sums.iter_mut().zip(places) {
                *sum += self.nodes[at as usize].value;
            }
        }
    }
}

impl Trees {
    /// Fits new trees to the examples.
    pub fn fitted(examples: &Examples<'_>, settings: &TreeSettings) -> Result<Trees, Unfit> {
        let features = examples.checked()?;
        let mut trees = Trees {
            features,
            base: objective::base(examples, settings.objective),
            trees: Vec::new(),
        };
        trees.add(examples, settings);
        Ok(trees)
    }

    /// Adds trees that correct the present ones on the examples, which may be new. The present trees stay
    /// as they are.
    pub fn fit_more(
        &mut self,
        examples: &Examples<'_>,
        settings: &TreeSettings,
    ) -> Result<(), Unfit> {
        width(0, examples.checked()?, self.features)?;
        self.add(examples, settings);
        Ok(())
    }

    fn add(&mut self, examples: &Examples<'_>, settings: &TreeSettings) {
        // Trees that are added under the same seed draw other rows.
        let seed = settings.seed.wrapping_add(self.trees.len() as u64);
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let (mut learning, judging) = divided(examples.rows.len(), settings.early_stop, &mut rng);
        let losses = Losses::of(examples, settings.objective, &learning, &judging);
        let bins = Bins::of(examples.rows, settings.bins);
        let mut usable = bins.usable();
        let mut margins = self.predict_batch(examples.rows);
        let mut grower = Grower::of(&bins, settings);
        let mut best = (losses.judge(&margins, seed), self.trees.len());
        for _ in 0..settings.rounds {
            losses.derive(&margins, &mut rng, &mut grower.derivatives);
            let mut rows = drawn(&mut learning, settings.row_share, &mut rng);
            let columns = drawn(&mut usable, settings.column_share, &mut rng);
            let tree = grower.tree(&mut rows, columns);
            tree.add_values(examples.rows, &mut margins);
            self.trees.push(tree);
            let Some(stop) = settings.early_stop else {
                continue;
            };
            let loss = losses.judge(&margins, seed);
            if loss < best.0 {
                best = (loss, self.trees.len());
            } else if self.trees.len() - best.1 >= stop.patience {
                break;
            }
        }
        if settings.early_stop.is_some() {
            self.trees.truncate(best.1);
        }
    }

    /// The prediction for one row of as many features as the trees were fitted to.
    pub fn predict(&self, row: &[f64]) -> f64 {
        assert_eq!(row.len(), self.features, "features of a row");
        self.trees
            .iter()
            .fold(self.base, |sum, t| sum + t.value(row))
    }

    /// The predictions for many rows: those of [`Trees::predict`], bit by bit, in less time.
    pub fn predict_batch(&self, rows: &[Vec<f64>]) -> Vec<f64> {
        let mut sums = vec![self.base; rows.len()];
        for (rows, sums) in rows.chunks(BLOCK).zip(sums.chunks_mut(BLOCK)) {
            for row in rows {
                assert_eq!(row.len(), self.features, "features of a row");
            }
            for tree in &self.trees {
                tree.add_values(rows, sums);
            }
        }
        sums
    }

    /// For each feature, the sum of what its splits gained.
    pub fn importance(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.features];
        for tree in &self.trees {
            for (node, gain) in tree.nodes.iter().zip(&tree.gains) {
                if node.split {
                    sums[node.feature as usize] += gain;
                }
            }
        }
        sums
    }

    /// The number of trees.
    pub fn count(&self) -> usize {
        self.trees.len()
    }
}

/// The rows that trees learn from, and those that judge them.
fn divided(rows: usize, stop: Option<EarlyStop>, rng: &mut Pcg64Mcg) -> (Vec<u32>, Vec<u32>) {
    let mut learning: Vec<u32> = (0..rows as u32).collect();
    let share = stop.map_or(0.0, |s| s.validation.clamp(0.0, 1.0));
    let judges = ((share * rows as f64).round() as usize).min(rows - 1);
    if judges == 0 {
        return (learning.clone(), learning);
    }
    learning.shuffle(rng);
    let judging = learning.split_off(rows - judges);
    learning.sort_unstable();
    (learning, judging)
}

/// A random share of all items, at least one of them, in ascending order.
fn drawn<T: Copy + Ord>(all: &mut [T], share: f64, rng: &mut Pcg64Mcg) -> Vec<T> {
    let count = (share.clamp(0.0, 1.0) * all.len() as f64).round() as usize;
    let count = count.max(1).min(all.len());
    let mut some = if count < all.len() {
        all.partial_shuffle(rng, count).0.to_vec()
    } else {
        all.to_vec()
    };
    some.sort_unstable();
    some
}

impl Tree {
    fn read(features: usize, from: &mut Reader<'_>) -> Result<Tree, LoadError> {
        let splits = from.counts("split")?;
        let lefts = from.counts_of("left", splits.len())?;
        let missing = from.counts_of("missing", splits.len())?;
        let values = from.numbers_of("value", splits.len())?;
        let gains = from.numbers_of("gain", splits.len())?;
        let mut tree = Tree::default();
        // Splits above each node.
        let mut above = vec![0; splits.len()];
        for (at, split) in splits.iter().enumerate() {
            tree.push_leaf(values[at]);
            let Some(feature) = split.checked_sub(1) else {
                continue;
            };
            // Children behind their parent, so that every path ends.
            let left = lefts[at];
            if feature >= features || left <= at || left >= splits.len() - 1 {
                return Err(from.damaged("a tree has a node without its children or feature"));
            }
            for child in [left, left + 1] {
                above[child] = above[child].max(above[at] + 1);
                tree.depth = tree.depth.max(above[child]);
            }
            tree.nodes[at] = Node {
                value: values[at],
                feature: feature as u32,
                left: left as u32,
                split: true,
                missing_left: missing[at] > 0,
            };
        }
        if splits.is_empty() {
            return Err(from.damaged("a tree has no nodes"));
        }
        tree.gains = gains;
        Ok(tree)
    }
}

impl Model for Trees {
    const KIND: &'static str = "trees";

    fn write(&self, to: &mut Writer) {
        to.counts("features", [self.features]);
        to.numbers("base", [self.base]);
        to.counts("trees", [self.trees.len()]);
        for tree in &self.trees {
            let nodes = || tree.nodes.iter();
            // In the file a leaf has the feature 0, and those of splits are counted from 1.
            let feature = |n: &Node| if n.split { n.feature as usize + 1 } else { 0 };
            to.counts("split", nodes().map(feature));
            to.counts("left", nodes().map(|n| n.left as usize));
            to.counts("missing", nodes().map(|n| usize::from(n.missing_left)));
            to.numbers("value", nodes().map(|n| n.value));
            to.numbers("gain", tree.gains.iter().copied());
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Trees, LoadError> {
        let features = from.count("features")?;
        if features == 0 {
            return Err(from.damaged("trees have at least one feature"));
        }
        let base = from.number("base")?;
        let trees = from.count("trees")?;
        let mut model = Trees {
            features,
            base,
            trees: Vec::new(),
        };
        for _ in 0..trees {
            model.trees.push(Tree::read(features, from)?);
        }
        Ok(model)
    }
}
