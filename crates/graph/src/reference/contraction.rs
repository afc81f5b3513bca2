//! The one heavy loop of the references: a matrix product in f64, with rows and
//! columns supplied by the caller.

use super::parallel;
use std::sync::Mutex;

const ROWS: usize = 4;
const COLUMNS: usize = 4;
/// Columns that one thread works on at a time.
const BLOCK: usize = 64;
/// Depth that stays in the first-level cache.
const DEPTH: usize = 512;

/// Sizes of a product of a `rows` x `depth` by a `depth` x `columns` matrix.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub rows: usize,
    pub depth: usize,
    pub columns: usize,
}

/// Some columns of a product.
pub(super) struct Columns<'a> {
    pub first: usize,
    pub width: usize,
    values: &'a [f64],
}

impl Columns<'_> {
    /// The values of one row, `width` of them.
    pub(super) fn row(&self, r: usize) -> &[f64] {
        &self.values[r * BLOCK..][..self.width]
    }
}

impl Product {
    /// `row(i, out)` fills row `i` of the left matrix, `column(j, out)` column
    /// `j` of the right one; `store` receives every column of the result once.
    pub(super) fn compute(
        self,
        row: impl Fn(usize, &mut [f64]),
        column: impl Fn(usize, &mut [f64]) + Sync,
        store: impl FnMut(Columns) + Send,
    ) {
        let left = self.pack_left(row);
        let store = Mutex::new(store);
        let heavy = self.rows * self.columns * self.depth.max(1) >= 1 << 18;
        let scratch = || {
            let quads = self.rows.div_ceil(ROWS);
            (
                vec![0.0; self.depth],
                vec![0.0; self.depth * BLOCK],
                vec![0.0; quads * ROWS * BLOCK],
            )
        };
        parallel::each(self.columns.div_ceil(BLOCK), heavy, scratch, |block, s| {
            let (line, right, out) = s;
            let first = block * BLOCK;
            let width = BLOCK.min(self.columns - first);
            for j in 0..width {
                column(first + j, line);
                let panel = &mut right[j / COLUMNS * COLUMNS * self.depth..];
                for (k, v) in line.iter().enumerate() {
                    panel[k * COLUMNS + j % COLUMNS] = *v;
                }
            }
            out.fill(0.0);
            self.multiply(&left, right, width, out);
            let mut store = store.lock().expect("no thread panics storing its columns");
            (*store)(Columns {
                first,
                width,
                values: out,
            });
        });
    }

    /// Quads of rows, each depth-major: `[rows / 4][depth][4]`, zero filled.
    fn pack_left(self, row: impl Fn(usize, &mut [f64])) -> Vec<f64> {
        let mut packed = vec![0.0; self.rows.div_ceil(ROWS) * ROWS * self.depth];
        let mut line = vec![0.0; self.depth];
        for i in 0..self.rows {
            row(i, &mut line);
            let quad = &mut packed[i / ROWS * ROWS * self.depth..];
            for (k, v) in line.iter().enumerate() {
                quad[k * ROWS + i % ROWS] = *v;
            }
        }
        packed
    }

    fn multiply(self, left: &[f64], right: &[f64], width: usize, out: &mut [f64]) {
        for k0 in (0..self.depth).step_by(DEPTH) {
            let depth = DEPTH.min(self.depth - k0);
            for i in (0..self.rows).step_by(ROWS) {
                let a = &left[i * self.depth + k0 * ROWS..][..depth * ROWS];
                for j in (0..width).step_by(COLUMNS) {
                    let b = &right[j * self.depth + k0 * COLUMNS..][..depth * COLUMNS];
                    let tile = tile_product(a, b);
                    for (r, sums) in tile.iter().enumerate() {
                        let out = &mut out[(i + r) * BLOCK + j..][..COLUMNS];
                        for (o, s) in out.iter_mut().zip(sums) {
                            *o += s;
                        }
                    }
                }
            }
        }
    }
}

fn tile_product(a: &[f64], b: &[f64]) -> [[f64; COLUMNS]; ROWS] {
    let mut sums = [[0.0; COLUMNS]; ROWS];
    let (a, _) = a.as_chunks::<ROWS>();
    let (b, _) = b.as_chunks::<COLUMNS>();
    for (a, b) in a.iter().zip(b) {
        for r in 0..ROWS {
            for c in 0..COLUMNS {
                sums[r][c] += a[r] * b[c];
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_remainder_of_rows_columns_and_depth() {
        for (rows, depth, columns) in [
            (1, 1, 1),
            (3, 5, 67),
            (9, 513, 64),
            (4, 1030, 130),
            (2, 0, 3),
        ] {
            let a = |i: usize, k: usize| ((i * 7 + k * 3) % 11) as f64 - 5.0;
            let b = |k: usize, j: usize| ((k * 5 + j * 2) % 13) as f64 - 6.0;
            let mut out = vec![f64::NAN; rows * columns];
            Product {
                rows,
                depth,
                columns,
            }
            .compute(
                |i, line| line.iter_mut().enumerate().for_each(|(k, v)| *v = a(i, k)),
                |j, line| line.iter_mut().enumerate().for_each(|(k, v)| *v = b(k, j)),
                |c| {
                    for r in 0..rows {
                        out[r * columns + c.first..][..c.width].copy_from_slice(c.row(r));
                    }
                },
            );
            for i in 0..rows {
                for j in 0..columns {
                    let want: f64 = (0..depth).map(|k| a(i, k) * b(k, j)).sum();
                    assert_eq!(
                        out[i * columns + j],
                        want,
                        "{i},{j} of {rows}x{depth}x{columns}"
                    );
                }
            }
        }
    }
}
