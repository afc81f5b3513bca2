//! What a matrix product looks like: its loops, and how it reads its operands.

use crate::draft::Nest;
use crate::templates::blocked::factor_load;
use ir::{BinaryOp, Expr, ExprKind, Program, Role, VarId};

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
    /// How many there are: batch dimensions, then k and n.
    pub dims: usize,
    /// The last two are (n, k).
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
        let plain = ours && !guarded && plain(indices, [n_var, k_var]);
        let packing = plain.then_some(Packing {
            dims: indices.len(),
            transposed,
            each_call: info.role == Role::Input,
        });
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

/// Whether indices are variables, the last two of them `inner` in some order.
fn plain(indices: &[Expr], inner: [VarId; 2]) -> bool {
    let vars: Option<Vec<VarId>> = indices.iter().map(Expr::as_var).collect();
    vars.is_some_and(|v| {
        let last = v.len().checked_sub(2).map(|at| &v[at..]);
        last.is_some_and(|l| inner.iter().all(|v| l.contains(v)))
    })
}

impl Packing {
    /// Arguments of `pack` for panels of `width` columns: [batch.., panel, k, column].
    pub fn arguments(self, width: &str) -> String {
        let (last, before) = (self.dims - 1, self.dims - 2);
        let mut order: Vec<usize> = (0..before).collect();
        let tiled = if self.transposed {
            order.extend([before, self.dims, last]);
            before
        } else {
            order.extend([last, before, self.dims]);
            last
        };
        format!("[{tiled}:{width}] {order:?}")
    }
}
