//! What a matrix product looks like: its loops, and how it reads its operands.

use crate::nests::{AxisLoop, Nest};
use crate::templates::blocked::factor_load;
use ir::names::{AxisName, product};
use ir::{BinaryOp, BufferId, CpuTarget, DType, ExprKind, Program, Role, VarId};
use schedule::Arg;

/// Rows of a product, at most, for which it counts that constants come from memory: more of them hide that. Chosen by
/// hand: fetching ahead gains for 128 rows, and not for 197 or 1500 (Zen 5, LLVM 22.1.8).
const MOST_STREAMED: i64 = 160;

/// `main[batch.., m, n] = sum over k of left[.., k] * right[.., k, n]`.
pub struct Shape {
    pub batch: Vec<AxisLoop>,
    /// The loop over rows, unless the product has none.
    pub rows: Option<AxisLoop>,
    pub columns: AxisLoop,
    pub terms: AxisLoop,
    pub right: BufferId,
    /// Of the sums.
    pub element: DType,
    /// How the right operand can be packed, if it can.
    pub packing: Option<Packing>,
}

/// The dimensions of a right operand.
#[derive(Clone, Copy)]
pub struct Packing {
    /// How many there are.
    pub dims: usize,
    /// Which of them are n and k; the others are of batches.
    n: usize,
    k: usize,
    /// The last one is k.
    pub transposed: bool,
    /// The operand is no constant: packing it is part of every call.
    pub each_call: bool,
}

impl Shape {
    pub fn of(program: &Program, main: &Nest) -> Option<Shape> {
        let [terms] = &main.reduce[..] else {
            return None;
        };
        let (columns, others) = main.spatial.split_last()?;
        if !columns.is(product::COLUMN) {
            return None;
        }
        let (rows, batch) = match others.split_last() {
            Some((rows, batch)) if rows.is(product::ROW) => (Some(rows.clone()), batch),
            _ => (None, others),
        };
        // Rows outside of batches are no tile of this template.
        if batch.iter().any(|l| l.is(product::ROW)) {
            return None;
        }
        let batch = batch.to_vec();
        let block = program.block(main.block);
        let ExprKind::Binary(BinaryOp::Mul, _, b) = block.writes[0].value.kind() else {
            return None;
        };
        let (buffer, indices) = factor_load(b)?;
        let var = |axis: AxisName| {
            let mut iters = block.iters.iter().map(|i| i.var);
            iters.find(|v| program.var(*v).name == axis.as_str())
        };
        let (n_var, k_var) = (var(product::COLUMN)?, var(product::TERM)?);
        let last = indices.last()?.as_var()?;
        let transposed = last == k_var;
        if !transposed && last != n_var {
            return None;
        }
        let info = program.buffer(buffer);
        let guarded = matches!(b.kind(), ExprKind::Select(..));
        let ours = matches!(info.role, Role::Constant | Role::Input);
        let packing = (ours && !guarded).then(|| {
            let dim = |var: VarId| {
                let at = indices.iter().position(|e| e.as_var() == Some(var))?;
                let mut others = (0..indices.len()).filter(|d| *d != at);
                others.all(|d| !indices[d].uses_var(var)).then_some(at)
            };
            Some(Packing {
                dims: indices.len(),
                n: dim(n_var)?,
                k: dim(k_var)?,
                transposed,
                each_call: info.role == Role::Input,
            })
        });
        let packing = packing.flatten();
        Some(Shape {
            batch,
            rows,
            columns: columns.clone(),
            terms: terms.clone(),
            right: buffer,
            element: program.buffer(block.writes[0].buffer).dtype,
            packing,
        })
    }

    /// Sums that a vector holds.
    pub fn lanes(&self, target: &CpuTarget) -> i64 {
        target.lanes(self.element)
    }

    /// Bytes of an element.
    pub fn bytes(&self) -> i64 {
        self.element.size() as i64
    }

    /// How many rows there are, 1 without a loop over them.
    pub fn m(&self) -> i64 {
        self.rows.as_ref().map_or(1, |r| r.extent)
    }

    /// How many columns there are.
    pub fn n(&self) -> i64 {
        self.columns.extent
    }

    /// How many terms a sum has.
    pub fn k(&self) -> i64 {
        self.terms.extent
    }

    /// How many products there are, each with operands of its own.
    pub fn matrices(&self) -> i64 {
        self.batch.iter().map(|b| b.extent).product()
    }

    /// Whether a thread's part of the results of so many of them stays in its second-level cache.
    pub fn is_written_near(&self, matrices: i64, target: &CpuTarget) -> bool {
        let bytes = matrices * self.m() * self.n() * self.bytes();
        bytes <= target.l2_bytes as i64 * i64::from(target.threads.max(1))
    }

    /// Whether it counts that the right operand comes from memory: a constant that can be packed and exceeds the
    /// second-level cache. In a model other constants pass between two calls.
    pub fn is_streamed(&self, target: &CpuTarget) -> bool {
        let bytes = self.k() * self.n() * self.bytes();
        let constant = self.packing.is_some_and(|p| !p.each_call);
        constant && bytes > target.l2_bytes as i64 && self.m() <= MOST_STREAMED
    }
}

impl Packing {
    /// Of matrices whose rows are terms, in an intermediate of so many dimensions.
    pub fn of_rows(dims: usize) -> Packing {
        Packing {
            dims,
            n: dims - 1,
            k: dims - 2,
            transposed: false,
            each_call: false,
        }
    }

    /// The order of dimensions for panels of columns: [batch.., panel, k, column].
    pub fn order(self) -> Vec<usize> {
        let (n, k) = (self.n, self.k);
        // What follows the dimension that is split in two moves on by one.
        let at = |d: usize| d + usize::from(d > n);
        let batch = (0..self.dims).filter(|d| *d != n && *d != k);
        batch.map(at).chain([n, at(k), n + 1]).collect()
    }

    /// Tiles and order for panels in which some terms of a column follow each other:
    /// [batch.., panel, terms, column, term].
    pub fn fours(self, width: impl Into<Arg>, terms: i64) -> ([(usize, Arg); 2], Vec<usize>) {
        let (n, k) = (self.n, self.k);
        // What follows a dimension that is split in two moves on by one.
        let at = |d: usize| d + usize::from(d > n) + usize::from(d > k);
        let batch = (0..self.dims).filter(|d| *d != n && *d != k);
        let parts = [at(n), at(k), at(n) + 1, at(k) + 1];
        let mut tiles = [(n, width.into()), (k, Arg::Lit(terms))];
        tiles.sort_by_key(|(d, _)| *d);
        (tiles, batch.map(at).chain(parts).collect())
    }

    /// The split of the columns into panels of a width.
    pub fn tiles(self, width: impl Into<Arg>) -> [(usize, Arg); 1] {
        [(self.n, width.into())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_are_the_same_whatever_the_order_of_the_operand() {
        let packed = |dims, n, k| {
            let packing = Packing {
                dims,
                n,
                k,
                transposed: k + 1 == dims,
                each_call: true,
            };
            (packing.tiles(Arg::Lit(16))[0].0, packing.order())
        };
        assert_eq!(packed(2, 1, 0), (1, vec![1, 0, 2]));
        assert_eq!(packed(2, 0, 1), (0, vec![0, 2, 1]));
        assert_eq!(packed(3, 2, 1), (2, vec![0, 2, 1, 3]));
        // Columns, heads, terms.
        assert_eq!(packed(3, 0, 2), (0, vec![2, 0, 3, 1]));
    }
}
