//! The vectors of a table that are most like given ones, exactly.
//!
//! Products in single precision find those that may be among the most alike; only these are computed in double precision.
//! Blocks of vectors lie value by value, so that products of 16 vectors are computed at once, and stay in the cache for all
//! that is looked up together.

/// Vectors that are multiplied at once.
const LANES: usize = 16;
/// Values of the blocks that stay in a cache of 256 KiB, in all.
const TILE: usize = 32 * 1024;

/// A table of vectors of length 1.
#[derive(Clone, Debug, Default)]
pub struct Directions {
    width: usize,
    /// The vectors, and their numbers among those that were given.
    all: Vec<(usize, Vec<f64>)>,
    /// Of each block the first values of its vectors, then the second ones, and so on; zeros fill the last block.
    blocks: Vec<f32>,
}

/// What may be among the most alike.
struct Best {
    most: usize,
    /// The greatest likenesses, the greatest first.
    greatest: Vec<f32>,
    /// What is less alike than this is not among them.
    limit: f32,
    slack: f32,
    found: Vec<(f32, usize)>,
}

impl Best {
    fn note(&mut self, likeness: f32, at: usize) {
        self.found.push((likeness, at));
        let place = self.greatest.partition_point(|g| *g >= likeness);
        if place < self.most {
            self.greatest.insert(place, likeness);
            self.greatest.truncate(self.most);
            if let (Some(least), true) = (self.greatest.last(), self.greatest.len() == self.most) {
                self.limit = least - self.slack;
            }
        }
    }
}

impl Directions {
    /// Of vectors of one length, some of which may be empty; these are like nothing.
    pub fn of<'a>(vectors: impl Iterator<Item = &'a [f64]>) -> Directions {
        let there = vectors.enumerate().filter(|(_, v)| !v.is_empty());
        let all: Vec<(usize, Vec<f64>)> = there.map(|(at, v)| (at, v.to_vec())).collect();
        let width = all.first().map_or(0, |(_, v)| v.len());
        let mut blocks = vec![0.0; all.len().div_ceil(LANES) * LANES * width];
        for (row, (_, vector)) in all.iter().enumerate() {
            let block = row / LANES * LANES * width;
            for (column, value) in vector.iter().enumerate() {
                blocks[block + column * LANES + row % LANES] = *value as f32;
            }
        }
        Directions { width, all, blocks }
    }

    /// Of each of these vectors the `most` vectors of the table that are most like it, with the likeness (the product): the most alike
    /// one first, and of equally alike ones the one that was given first. An empty vector is like nothing.
    pub fn nearest(&self, vectors: &[&[f64]], most: usize) -> Vec<Vec<(f64, usize)>> {
        let fits = |v: &&[f64]| v.len() == self.width && self.width > 0 && most > 0;
        let there: Vec<usize> = (0..vectors.len()).filter(|i| fits(&vectors[*i])).collect();
        let narrow = |i: &usize| vectors[*i].iter().map(|v| *v as f32).collect();
        let narrow: Vec<Vec<f32>> = there.iter().map(narrow).collect();
        let best = || Best {
            most,
            greatest: vec![],
            limit: f32::NEG_INFINITY,
            // Each of two sums is wrong by half of this at most: its terms and partial sums are at most 1 together and rounded.
            slack: (self.width + 8) as f32 * f32::EPSILON,
            found: vec![],
        };
        let mut bests: Vec<Best> = there.iter().map(|_| best()).collect();
        let block = LANES * self.width.max(1);
        let per_tile = (TILE / block).max(1);
        for (tile, blocks) in self.blocks.chunks(per_tile * block).enumerate() {
            for (vector, best) in narrow.iter().zip(&mut bests) {
                for (n, values) in blocks.chunks(block).enumerate() {
                    self.multiply((tile * per_tile + n) * LANES, values, vector, best);
                }
            }
        }
        let mut all = vec![vec![]; vectors.len()];
        for (i, best) in there.into_iter().zip(bests) {
            all[i] = self.exact(vectors[i], best);
        }
        all
    }

    /// Multiplies a block, whose first vector has this number, with another vector.
    fn multiply(&self, first: usize, values: &[f32], vector: &[f32], best: &mut Best) {
        let sums = products(values, vector);
        let there = (self.all.len() - first).min(LANES);
        if sums.iter().all(|sum| *sum < best.limit) {
            return;
        }
        for (lane, sum) in sums[..there].iter().enumerate() {
            if *sum >= best.limit {
                best.note(*sum, first + lane);
            }
        }
    }

    fn exact(&self, vector: &[f64], best: Best) -> Vec<(f64, usize)> {
        let may = best.found.iter().filter(|(sum, _)| *sum >= best.limit);
        let exact = may.map(|(_, row)| {
            let (number, other) = &self.all[*row];
            let likeness = vector.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
            (likeness, *number)
        });
        let mut exact: Vec<(f64, usize)> = exact.collect();
        exact.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        exact.truncate(best.most);
        exact
    }
}

/// The products of a block's vectors with another vector. A function of its own, whose result is in memory: else the compiler
/// keeps each sum apart and uses no vector instructions.
#[inline(never)]
fn products(values: &[f32], vector: &[f32]) -> [f32; LANES] {
    let mut sums = [0.0; LANES];
    let columns = values.as_chunks::<LANES>().0;
    for n in 0..columns.len().min(vector.len()) {
        let (column, value) = (&columns[n], vector[n]);
        for lane in 0..LANES {
            sums[lane] += value * column[lane];
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn vector(rng: &mut Pcg64Mcg, width: usize) -> Vec<f64> {
        let v: Vec<f64> = (0..width).map(|_| rng.random_range(-1.0..1.0)).collect();
        let length = v.iter().map(|v| v * v).sum::<f64>().sqrt();
        v.iter().map(|v| v / length).collect()
    }

    /// Every product in double precision, sorted.
    fn by_hand(table: &[Vec<f64>], of: &[f64], most: usize) -> Vec<(f64, usize)> {
        let product = |(at, v): (usize, &Vec<f64>)| {
            let likeness = v.iter().zip(of).map(|(a, b)| b * a).sum::<f64>();
            (!v.is_empty()).then_some((likeness, at))
        };
        let mut all: Vec<_> = table.iter().enumerate().filter_map(product).collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.truncate(most);
        all
    }

    #[test]
    fn the_nearest_are_those_of_every_product_in_double_precision() {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        for (rows, width) in [(0, 3), (3, 4), (16, 1), (17, 32), (5000, 32), (3000, 7)] {
            let mut table: Vec<Vec<f64>> = (0..rows).map(|_| vector(&mut rng, width)).collect();
            // Some are empty, some equal, and some differ by less than single precision tells apart.
            for n in (8..rows).step_by(5) {
                table[n] = match n % 3 {
                    0 => vec![],
                    1 => table[n - 8].clone(),
                    _ => table[n - 8].iter().map(|v| v * (1.0 - 1e-10)).collect(),
                };
            }
            let directions = Directions::of(table.iter().map(Vec::as_slice));
            for looked_up in [1, 2, 5] {
                let mut of: Vec<Vec<f64>> =
                    (0..looked_up).map(|_| vector(&mut rng, width)).collect();
                if let Some(known) = table.get(rows / 2).filter(|v| !v.is_empty()) {
                    of[0].clone_from(known);
                }
                let slices: Vec<&[f64]> = of.iter().map(Vec::as_slice).collect();
                let found = directions.nearest(&slices, 10);
                for (of, found) in of.iter().zip(found) {
                    assert_eq!(found, by_hand(&table, of, 10), "{rows} {width}");
                }
            }
        }
    }

    #[test]
    fn an_empty_vector_is_like_nothing() {
        let table = [vec![1.0, 0.0], vec![0.6, 0.8]];
        let directions = Directions::of(table.iter().map(Vec::as_slice));
        let found = directions.nearest(&[&[], &[0.0, 1.0]], 1);
        assert_eq!(found, [vec![], vec![(0.8, 1)]]);
    }
}
