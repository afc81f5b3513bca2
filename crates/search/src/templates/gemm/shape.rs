//! What a matrix product looks like: its loops, and how it reads its operands.

use crate::draft::Nest;
use crate::templates::blocked::factor_load;
use ir::{BinaryOp, ExprKind, Program, Role, VarId};

/// `main[batch.., m, n] = sum over k of left[.., k] * right[.., k, n]`.
pub struct Shape {
    /// Batch loops and their extents.
    pub batch: Vec<(String, i64)>,
    /// The loop over rows and its extent, unless the product has none.
    pub rows: Option<(String, i64)>,
    pub n_loop: String,
    pub n: i64,
    pub k_loop: String,
    pub k: i64,
    pub right: String,
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
        let [(k_loop, k)] = &main.reduce[..] else {
            return None;
        };
        let (n_loop, n) = main.spatial.last()?.clone();
        if n_loop != "main.n" {
            return None;
        }
        let at = main.spatial.iter().position(|(l, _)| l == "main.m");
        let rows = at.map(|i| main.spatial[i].clone());
        let batch = main.spatial.iter();
        let batch = batch
            .filter(|(l, _)| l != "main.m" && l != "main.n")
            .cloned()
            .collect();
        let block = program.block(main.id);
        let ExprKind::Binary(BinaryOp::Mul, _, b) = block.writes[0].value.kind() else {
            return None;
        };
        let (buffer, indices) = factor_load(b)?;
        let var = |axis: &str| {
            let mut iters = block.iters.iter().map(|i| i.var);
            iters.find(|v| program.var(*v).name == axis)
        };
        let (n_var, k_var) = (var("n")?, var("k")?);
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
            n_loop,
            n,
            k_loop: k_loop.clone(),
            k: *k,
            right: info.name.clone(),
            packing,
        })
    }

    /// How many rows there are, 1 without a loop over them.
    pub fn m(&self) -> i64 {
        self.rows.as_ref().map_or(1, |r| r.1)
    }
}

impl Packing {
    /// Arguments of `pack` for panels of `width` columns: [batch.., panel, k, column].
    pub fn arguments(self, width: &str) -> String {
        let (n, k) = (self.n, self.k);
        // What follows the dimension that is split in two moves on by one.
        let at = |d: usize| d + usize::from(d > n);
        let batch = (0..self.dims).filter(|d| *d != n && *d != k);
        let order: Vec<usize> = batch.map(at).chain([n, at(k), n + 1]).collect();
        format!("[{n}:{width}] {order:?}")
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
            packing.arguments("16")
        };
        assert_eq!(packed(2, 1, 0), "[1:16] [1, 0, 2]");
        assert_eq!(packed(2, 0, 1), "[0:16] [0, 2, 1]");
        assert_eq!(packed(3, 2, 1), "[2:16] [0, 2, 1, 3]");
        // Columns, heads, terms.
        assert_eq!(packed(3, 0, 2), "[0:16] [2, 0, 3, 1]");
    }
}
