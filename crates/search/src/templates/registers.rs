//! Register tiles: rows of results by vectors of results that stay in registers
//! while a sum is formed.
//!
//! Each term of the sum loads a row of vectors, and one number for every row,
//! which is broadcast. What fits, what a tile gains and which tile divides the
//! work are said here once; each template adds what only its operator knows.

use crate::draft::{DecidedPart, Draft};
use crate::rates::{LATENCY, STARTS_A_CYCLE};
use ir::CpuTarget;

/// Multiply-adds in one unrolled body, at most: compile time grows with it, and
/// run time does not fall (Zen 3, LLVM 22.1.8: 98 to 145 ms for a convolution with 864
/// in its body, 14 to 16 ms for one with few, both equally fast). The number is
/// chosen by hand.
pub const MOST_UNROLLED: i64 = 256;

/// Sums in flight beyond which a tile gains nothing.
pub const IN_FLIGHT: i64 = STARTS_A_CYCLE * LATENCY;

/// Registers for the sums of a tile and one row of vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers(i64);

impl Registers {
    /// All but the one that holds what is broadcast.
    pub fn of(target: &CpuTarget) -> Registers {
        Registers::without(target, 1)
    }

    /// All but those that other values need.
    pub fn without(target: &CpuTarget, others: i64) -> Registers {
        Registers(i64::from(target.vector_registers) - others)
    }

    pub fn fit(self, rows: i64, vectors: i64) -> bool {
        rows * vectors + vectors <= self.0
    }

    /// Rows of one vector.
    pub fn most_rows(self) -> i64 {
        self.0 - 1
    }

    /// Vectors beside so many rows.
    pub fn most_vectors(self, rows: i64) -> i64 {
        self.0 / (rows + 1)
    }

    /// Lets a sketch propose only tiles that fit. `rows` are the factors of the
    /// number of rows, `wide` is the width of a row, a vector being `vector` wide.
    pub fn limit(self, d: &mut Draft, rows: &[DecidedPart], wide: DecidedPart, vector: i64) {
        let sums = [rows, &[wide]].concat();
        d.limit("registers", &[(1, &sums), (1, &[wide])], self.0 * vector);
    }

    /// Sums of a tile that hide the latency of a multiply-add and leave registers
    /// for loads ahead. Of 16 registers: 6 pixels by 2 vectors, with which a convolution
    /// of 56x56x64 reaches 92% of the peak (Zen 3, LLVM 22.1.8). Of 32: chosen by hand.
    pub fn sums(self) -> i64 {
        if self.0 >= 31 { 16 } else { 12 }
    }
}

/// Sums of a tile that takes its broadcasts from memory: as many as fit beside the weights.
pub const LARGE_TILE: i64 = 28;

/// Whether a tile leaves 32 registers although it fits them: LLVM loads the vectors of the next
/// term ahead, and writes sums of nine rows of three vectors to memory in every term. Of 14 rows
/// of two, or six of four, it does not. `op:dense(m=2040,k=714,n=328)` takes 12.8 ms with nine
/// rows of three and 8.5 with eight (Zen 4, LLVM 22.1.8).
pub fn spills(rows: i64, vectors: i64) -> bool {
    rows > 8 && vectors > 2
}

/// Lets a sketch propose only tiles whose unrolled body has at most `most`
/// multiply-adds, of `factor` times the product of the values.
pub fn limit_unrolled(d: &mut Draft, factor: i64, values: &[DecidedPart], most: i64) {
    d.limit("unrolled code", &[(factor, values)], most);
}

/// Products of a tile for each load: its load factor.
pub fn products_a_load(rows: i64, vectors: i64) -> f64 {
    let (rows, vectors) = (rows as f64, vectors as f64);
    rows * vectors / (rows + vectors)
}

/// The part of what tiles of `tile` compute that is wanted, where there are `n`:
/// the last one may reach over the end.
pub fn wanted_part(n: i64, tile: i64) -> f64 {
    n as f64 / ((n + tile - 1) / tile * tile) as f64
}

/// The largest divisor of `n` up to `most`.
pub fn largest_divisor(n: i64, most: i64) -> i64 {
    let divides = |d: &i64| n % d == 0;
    (1..=n.min(most)).filter(divides).max().unwrap_or(1)
}

/// A tile of lines and columns of an image by vectors of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageTile {
    pub lines: i64,
    pub columns: i64,
    /// Vectors of maps, at most: they need not divide.
    pub maps: i64,
}

impl ImageTile {
    /// The tile to begin with for products of an image of `lines` by `columns`
    /// that tiles have to divide.
    pub fn dividing(lines: i64, columns: i64, registers: Registers) -> ImageTile {
        let most = registers.sums();
        let columns = largest_divisor(columns, most);
        // Two rows of the product to every vector of weights at least.
        let lines = largest_divisor(lines, (most / 2 / columns).max(1));
        let rows = lines * columns;
        let maps = (most / rows).min(registers.most_vectors(rows));
        ImageTile {
            lines,
            columns,
            maps: maps.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::Isa;

    #[test]
    fn dividing_tiles_fit_the_registers() {
        for target in Isa::ALL.map(CpuTarget::generic) {
            let registers = Registers::of(&target);
            for lines in 1..30 {
                for columns in 1..30 {
                    let t = ImageTile::dividing(lines, columns, registers);
                    assert!(lines % t.lines == 0 && columns % t.columns == 0, "{t:?}");
                    assert!(registers.fit(t.lines * t.columns, t.maps), "{t:?}");
                }
            }
        }
    }

    #[test]
    fn a_square_tile_has_the_most_products_a_load() {
        assert!(products_a_load(4, 4) > products_a_load(8, 2));
        assert!(products_a_load(8, 2) > products_a_load(16, 1));
        assert_eq!(wanted_part(7, 7), 1.0);
        assert_eq!(wanted_part(7, 4), 7.0 / 8.0);
        assert_eq!(largest_divisor(28, 12), 7);
        assert_eq!(largest_divisor(13, 12), 1);
    }
}
