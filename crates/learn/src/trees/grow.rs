//! Growth of one tree from histograms: sums of derivatives in each bin of each feature.

use super::{Node, Tree, TreeSettings};

/// Shares of a sum that are taken for rounding errors.
const ROUNDING: f64 = 1e-10;

/// The bin of each value of a table.
pub(super) struct Bins {
    /// For each feature, ascending thresholds. Bin `b` has the values from `cuts[b - 1]` to below `cuts[b]`.
    cuts: Vec<Vec<f64>>,
    /// For each feature, the bin of each row. Missing values have the bin behind the last.
    columns: Vec<Vec<u8>>,
    missing: Vec<bool>,
    /// For each feature, the begin of its bins in a histogram; then the length of a histogram.
    begins: Vec<usize>,
}

impl Bins {
    pub fn of(rows: &[Vec<f64>], most: usize) -> Bins {
        let most = most.clamp(2, 255);
        let mut bins = Bins {
            cuts: Vec::new(),
            columns: Vec::new(),
            missing: Vec::new(),
            begins: vec![0],
        };
        let mut end = 0;
        for feature in 0..rows[0].len() {
            let values = || rows.iter().map(|r| r[feature]);
            let cuts = cuts(values().filter(|v| !v.is_nan()).collect(), most);
            let bin = |v: f64| match v.is_nan() {
                true => cuts.len() as u8 + 1,
                false => cuts.partition_point(|c| *c <= v) as u8,
            };
            bins.columns.push(values().map(bin).collect());
            bins.missing.push(values().any(f64::is_nan));
            end += cuts.len() + 2;
            bins.begins.push(end);
            bins.cuts.push(cuts);
        }
        bins
    }

    /// Features that can divide rows.
    pub fn usable(&self) -> Vec<usize> {
        let divides = |f: &usize| self.missing[*f] || !self.cuts[*f].is_empty();
        (0..self.cuts.len()).filter(divides).collect()
    }
}

/// Thresholds between at most `most` bins of about equally many values. Equal values share a bin.
fn cuts(mut values: Vec<f64>, most: usize) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let steps: Vec<usize> = (1..values.len())
        .filter(|i| values[i - 1] < values[*i])
        .collect();
    let chosen: Vec<usize> = if steps.len() < most {
        steps
    } else {
        // The next step at or behind each quantile.
        let quantiles = (1..most).map(|q| q * values.len() / most);
        let nearest = quantiles.filter_map(|q| steps.get(steps.partition_point(|s| *s < q)));
        let mut chosen: Vec<usize> = nearest.copied().collect();
        chosen.dedup();
        chosen
    };
    let between = |i: usize| {
        let (below, above) = (values[i - 1], values[i]);
        let middle = below + (above - below) / 2.0;
        // Neighbouring numbers have no number between them, and far ones a difference that is not finite.
        if middle > below && middle < above {
            middle
        } else {
            above
        }
    };
    chosen.into_iter().map(between).collect()
}

/// First and second derivatives, summed.
type Sums = [f64; 2];

struct Split {
    gain: f64,
    feature: usize,
    /// The last bin that goes left.
    bin: usize,
    missing_left: bool,
    left: Sums,
}

/// Grows trees on one table.
pub(super) struct Grower<'a> {
    bins: &'a Bins,
    settings: &'a TreeSettings,
    /// First and second derivative of each row's loss.
    pub derivatives: Vec<Sums>,
    columns: Vec<usize>,
    tree: Tree,
    /// Histograms to use again: allocating one takes longer than filling a small one.
    spare: Vec<Vec<Sums>>,
    gathered: Vec<Sums>,
}

fn less(a: Sums, b: Sums) -> Sums {
    [a[0] - b[0], a[1] - b[1]]
}

impl<'a> Grower<'a> {
    pub fn of(bins: &'a Bins, settings: &'a TreeSettings) -> Grower<'a> {
        Grower {
            bins,
            settings,
            derivatives: vec![[0.0; 2]; bins.columns[0].len()],
            columns: Vec::new(),
            tree: Tree::default(),
            spare: Vec::new(),
            gathered: Vec::new(),
        }
    }

    /// A tree for these rows that splits by these features only. Reorders the rows.
    pub fn tree(&mut self, rows: &mut [u32], columns: Vec<usize>) -> Tree {
        self.columns = columns;
        self.tree.push_leaf(0.0);
        let sums = rows.iter().fold([0.0; 2], |sum: Sums, row| {
            let d = self.derivatives[*row as usize];
            [sum[0] + d[0], sum[1] + d[1]]
        });
        let histogram = self.histogram(rows);
        self.grow(0, rows, histogram, sums, self.settings.depth);
        std::mem::take(&mut self.tree)
    }

    /// Makes a node a leaf, or a split with all that is below it.
    fn grow(
        &mut self,
        node: usize,
        rows: &mut [u32],
        histogram: Vec<Sums>,
        sums: Sums,
        depth: usize,
    ) {
        let split = if depth > 0 {
            self.best(&histogram, sums)
        } else {
            None
        };
        let divided = split.map(|s| (self.divide(rows, &s), s));
        // Rounding errors may make an empty side look as if it had rows.
        let divided = divided.filter(|(middle, _)| *middle > 0 && *middle < rows.len());
        let Some((middle, split)) = divided else {
            let step = -self.shrunk(sums[0]) / (sums[1] + self.settings.lambda);
            self.tree.nodes[node].value = if step.is_finite() {
                self.settings.rate * step
            } else {
                0.0
            };
            if !histogram.is_empty() {
                self.spare.push(histogram);
            }
            return;
        };
        let left = self.tree.push_leaf(0.0);
        self.tree.push_leaf(0.0);
        self.tree.depth = self.tree.depth.max(self.settings.depth + 1 - depth);
        let cuts = &self.bins.cuts[split.feature];
        self.tree.gains[node] = split.gain;
        self.tree.nodes[node] = Node {
            value: cuts.get(split.bin).copied().unwrap_or(f64::INFINITY),
            feature: split.feature as u32,
            left: left as u32,
            split: true,
            missing_left: split.missing_left,
        };
        let (left_rows, right_rows) = rows.split_at_mut(middle);
        let right_sums = less(sums, split.left);
        // Only the smaller child is summed; the other one has what remains.
        let mut rest = histogram;
        let (left_histogram, right_histogram) = if depth == 1 {
            (rest, Vec::new())
        } else if left_rows.len() <= right_rows.len() {
            let small = self.histogram(left_rows);
            self.subtract(&mut rest, &small);
            (small, rest)
        } else {
            let small = self.histogram(right_rows);
            self.subtract(&mut rest, &small);
            (rest, small)
        };
        self.grow(left, left_rows, left_histogram, split.left, depth - 1);
        self.grow(left + 1, right_rows, right_histogram, right_sums, depth - 1);
    }

    fn histogram(&mut self, rows: &[u32]) -> Vec<Sums> {
        let length = self.bins.begins[self.bins.cuts.len()];
        let reused = self.spare.pop().filter(|h| h.len() == length);
        let mut histogram = reused.unwrap_or_else(|| vec![[0.0; 2]; length]);
        self.gathered.clear();
        let derivatives = rows.iter().map(|r| self.derivatives[*r as usize]);
        self.gathered.extend(derivatives);
        for feature in &self.columns {
            let sums = &mut histogram[self.bins.begins[*feature]..self.bins.begins[feature + 1]];
            sums.fill([0.0; 2]);
            let column = &self.bins.columns[*feature];
            for (row, d) in rows.iter().zip(&self.gathered) {
                let sum = &mut sums[usize::from(column[*row as usize])];
                *sum = [sum[0] + d[0], sum[1] + d[1]];
            }
        }
        histogram
    }

    fn subtract(&self, from: &mut [Sums], part: &[Sums]) {
        for feature in &self.columns {
            let range = self.bins.begins[*feature]..self.bins.begins[feature + 1];
            for (a, b) in from[range.clone()].iter_mut().zip(&part[range]) {
                *a = less(*a, *b);
            }
        }
    }

    /// A first derivative less the part that `alpha` takes.
    fn shrunk(&self, first: f64) -> f64 {
        first.signum() * (first.abs() - self.settings.alpha).max(0.0)
    }

    /// What the best leaf would take off the loss, twice.
    fn score(&self, sums: Sums) -> f64 {
        let first = self.shrunk(sums[0]);
        first * first / (sums[1] + self.settings.lambda)
    }

    /// The split of greatest gain, if any gains enough.
    fn best(&self, histogram: &[Sums], sums: Sums) -> Option<Split> {
        let parent = self.score(sums);
        let least_weight = self.settings.min_child_weight.max(ROUNDING * sums[1]);
        let mut best: Option<Split> = None;
        let mut threshold = self.settings.gamma.max(ROUNDING * parent);
        for feature in &self.columns {
            let range = self.bins.begins[*feature]..self.bins.begins[feature + 1];
            let Some((missing, slots)) = histogram[range].split_last() else {
                continue;
            };
            let any_missing = self.bins.missing[*feature] && missing[1] > ROUNDING * sums[1];
            // With missing values, the last bin may go left as well: all values against none.
            let last = if any_missing {
                slots.len()
            } else {
                slots.len() - 1
            };
            for missing_left in [false, true].into_iter().take(1 + usize::from(any_missing)) {
                let mut left = if missing_left { *missing } else { [0.0; 2] };
                for (bin, slot) in slots[..last].iter().enumerate() {
                    left = [left[0] + slot[0], left[1] + slot[1]];
                    let right = less(sums, left);
                    if left[1] < least_weight || right[1] < least_weight {
                        continue;
                    }
                    let gain = self.score(left) + self.score(right) - parent;
                    if gain > threshold {
                        threshold = gain;
                        best = Some(Split {
                            gain,
                            feature: *feature,
                            bin,
                            // A node that saw no missing value sends it where more rows went.
                            missing_left: missing_left || (!any_missing && left[1] > right[1]),
                            left,
                        });
                    }
                }
            }
        }
        best
    }

    /// Brings the rows that go left to the front, in the order in which they were, and counts them.
    fn divide(&self, rows: &mut [u32], split: &Split) -> usize {
        let column = &self.bins.columns[split.feature];
        let missing = self.bins.cuts[split.feature].len() + 1;
        let goes_left = |row: &u32| {
            let bin = usize::from(column[*row as usize]);
            if bin == missing {
                split.missing_left
            } else {
                bin <= split.bin
            }
        };
        let (left, right): (Vec<u32>, Vec<u32>) = rows.iter().partition(|r| goes_left(r));
        rows[..left.len()].copy_from_slice(&left);
        rows[left.len()..].copy_from_slice(&right);
        left.len()
    }
}
