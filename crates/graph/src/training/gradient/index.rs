//! Gradients of operators that take elements by index.
//!
//! An element that was taken several times gets the sum of its gradients: a scatter that adds to zeros. Positions that
//! the model fixes need none if they are a run or a permutation.

use super::{Gradients, inverse, refused};
use crate::model::{ModelError, Node, Origin, ValueId};
use crate::ops::{
    Combine, Gather, GatherElements, GatherNd, Op, Reshape, ScatterElements, ScatterNd, Transpose,
};
use crate::training::NotTrainable;
use tensor::{DType, Tensor};

/// Positions along an axis that a model fixes.
enum Fixed {
    /// These in a row, from the first one on.
    Run(usize),
    /// Each position once.
    Permutation(Vec<usize>),
}

impl Gradients<'_> {
    pub(super) fn gather(
        &mut self,
        node: &Node,
        g: Gather,
        [x, indices, dy]: [ValueId; 3],
    ) -> Result<(), NotTrainable> {
        let image = self.model[x].shape().to_vec();
        let count: usize = self.model[indices].shape().iter().product();
        let mut taken = image.clone();
        taken[g.axis] = count;
        // The axes of the indices become one.
        let rows = self.node(node, "rows", Op::Reshape(Reshape { shape: taken }), &[dy])?;
        let dx = match self.fixed(indices, image[g.axis]) {
            Some(Fixed::Run(first)) => {
                let mut pads = vec![(0, 0); image.len()];
                let after = image[g.axis] - first - count;
                pads[g.axis] = (first as i64, after as i64);
                self.node(node, "dx", super::movement::zeros(pads), &[rows])?
            }
            Some(Fixed::Permutation(order)) => {
                let back: Vec<i64> = inverse(&order).into_iter().map(|at| at as i64).collect();
                let name = format!("{}.back", node.name);
                let back = Tensor::from_slice(&[back.len()], &back);
                let back = self.model.add_constant(&name, back);
                self.node(node, "dx", Op::Gather(g), &[rows, back])?
            }
            None => {
                let positions = Op::Reshape(Reshape {
                    shape: vec![count, 1],
                });
                let positions = self.node(node, "positions", positions, &[indices])?;
                self.scattered_rows(node, g.axis, &image, [positions, rows])?
            }
        };
        Ok(self.add(x, dx)?)
    }

    /// Rows along an axis, added to zeros of this shape at their positions.
    fn scattered_rows(
        &mut self,
        node: &Node,
        axis: usize,
        shape: &[usize],
        [positions, rows]: [ValueId; 2],
    ) -> Result<ValueId, ModelError> {
        let add = Op::ScatterNd(ScatterNd {
            combine: Combine::Add,
        });
        if axis == 0 {
            let zeros = self.zeros(node, shape);
            return self.node(node, "dx", add, &[zeros, positions, rows]);
        }
        let mut perm: Vec<usize> = (0..shape.len()).collect();
        perm.remove(axis);
        perm.insert(0, axis);
        let first: Vec<usize> = perm.iter().map(|d| shape[*d]).collect();
        let back = Op::Transpose(Transpose {
            perm: inverse(&perm),
        });
        let moved = self.node(node, "moved", Op::Transpose(Transpose { perm }), &[rows])?;
        let zeros = self.zeros(node, &first);
        let sums = self.node(node, "sums", add, &[zeros, positions, moved])?;
        self.node(node, "dx", back, &[sums])
    }

    pub(super) fn gather_elements(
        &mut self,
        node: &Node,
        g: GatherElements,
        [x, indices, dy]: [ValueId; 3],
    ) -> Result<(), NotTrainable> {
        let shape = self.model[x].shape().to_vec();
        let zeros = self.zeros(node, &shape);
        let add = Op::ScatterElements(ScatterElements {
            axis: g.axis,
            combine: Combine::Add,
        });
        let dx = self.node(node, "dx", add, &[zeros, indices, dy])?;
        Ok(self.add(x, dx)?)
    }

    pub(super) fn gather_nd(
        &mut self,
        node: &Node,
        g: GatherNd,
        [x, indices, dy]: [ValueId; 3],
    ) -> Result<(), NotTrainable> {
        if g.batch > 0 {
            return Err(refused(node, " with shared axes"));
        }
        let shape = self.model[x].shape().to_vec();
        let zeros = self.zeros(node, &shape);
        let add = Op::ScatterNd(ScatterNd {
            combine: Combine::Add,
        });
        let dx = self.node(node, "dx", add, &[zeros, indices, dy])?;
        Ok(self.add(x, dx)?)
    }

    /// What constant indices take of an axis of this size, if that is a run or a permutation.
    fn fixed(&self, indices: ValueId, size: usize) -> Option<Fixed> {
        let Origin::Constant(t) = self.model[indices].origin() else {
            return None;
        };
        let position = |i: usize| match t.get_f64(i) as i64 {
            at if at < 0 => at + size as i64,
            at => at,
        };
        let order: Vec<usize> = (0..t.len())
            .map(|i| usize::try_from(position(i)).ok().filter(|at| *at < size))
            .collect::<Option<_>>()?;
        let first = *order.first()?;
        if order.windows(2).all(|w| w[1] == w[0] + 1) {
            return Some(Fixed::Run(first));
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.dedup();
        (sorted.len() == size && order.len() == size).then_some(Fixed::Permutation(order))
    }

    fn zeros(&mut self, node: &Node, shape: &[usize]) -> ValueId {
        let zeros = Tensor::zeros(DType::F32, shape);
        self.model
            .add_constant(&format!("{}.zeros", node.name), zeros)
    }
}
