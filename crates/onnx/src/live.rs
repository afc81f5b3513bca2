//! Values whose size the data decide: they are computed at a bound of their size, and a count
//! says how many elements along an axis are *live*. What the others hold is not defined.
//!
//! Operators that make such values are in `select`; what the others do with them is in
//! `import/sized`.

use crate::indexing::counting;
use crate::node::{NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Op, Reduce, ReduceKind};
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{DType, Tensor};

/// Along an axis the first `count` (one i64, no axes) elements are live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Extent {
    pub(crate) axis: usize,
    pub(crate) count: ValueId,
}

/// Between what each element of a value lies, for values that are computed from counts.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) low: Arc<Tensor>,
    pub(crate) high: Arc<Tensor>,
}

/// The positions of chosen elements, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) positions: ValueId,
    pub(crate) count: ValueId,
}

/// What is known of the values of a model that is being imported.
#[derive(Debug, Default)]
pub(crate) struct Live {
    extents: HashMap<ValueId, Vec<Extent>>,
    ranges: HashMap<ValueId, Range>,
    /// By the operand: asking twice gives the same count, so that what was chosen by equal
    /// conditions fits together.
    chosen: HashMap<ValueId, Chosen>,
    /// By the parts of a concatenation, as bounds and counts.
    joined: HashMap<Vec<(usize, Option<ValueId>)>, Chosen>,
}

impl Live {
    pub(crate) fn extents(&self, v: ValueId) -> &[Extent] {
        self.extents.get(&v).map_or(&[], Vec::as_slice)
    }

    /// The count along an axis, if the data decide it.
    pub(crate) fn count(&self, v: ValueId, axis: usize) -> Option<ValueId> {
        let own = self.extents(v).iter().find(|e| e.axis == axis);
        own.map(|e| e.count)
    }

    pub(crate) fn set(&mut self, v: ValueId, extents: Vec<Extent>) {
        if !extents.is_empty() {
            self.extents.insert(v, extents);
        }
    }

    pub(crate) fn range(&self, v: ValueId) -> Option<&Range> {
        self.ranges.get(&v)
    }

    pub(crate) fn set_range(&mut self, v: ValueId, range: Range) {
        self.ranges.insert(v, range);
    }

    pub(crate) fn concerns(&self, v: ValueId) -> bool {
        self.extents.contains_key(&v) || self.ranges.contains_key(&v)
    }
}

impl NodeImport<'_> {
    /// Whether each position along an axis of a tensor of this shape is live.
    pub(crate) fn is_live(&mut self, e: Extent, shape: &[usize]) -> Result<ValueId, Problem> {
        let places = counting(self, shape[e.axis], e.axis, shape.len(), 0)?;
        self.binary(Binary::Less, places, e.count)
    }

    /// `x` with a value where it is not live along some axes.
    pub(crate) fn masked(
        &mut self,
        x: ValueId,
        axes: &[usize],
        fill: f64,
    ) -> Result<ValueId, Problem> {
        let extents = self.live.extents(x).to_vec();
        let (shape, dtype) = (self.shape(x), self.dtype(x));
        let mut y = x;
        for e in extents.iter().filter(|e| axes.contains(&e.axis)) {
            let live = self.is_live(*e, &shape)?;
            let fill = self.filled(dtype, &[], fill)?;
            y = self.emit(Op::Where, &[live, y, fill])?;
        }
        self.live.set(y, extents);
        Ok(y)
    }

    /// The sum of all elements.
    pub(crate) fn total(&mut self, x: ValueId) -> Result<ValueId, Problem> {
        let reduce = Reduce {
            kind: ReduceKind::Sum,
            axes: (0..self.ty(x).rank()).collect(),
            keepdims: false,
        };
        self.emit(Op::Reduce(reduce), &[x])
    }

    /// The positions of the true elements of a vector.
    pub(crate) fn positions(&mut self, mask: ValueId) -> Result<Chosen, Problem> {
        let positions = self.emit(Op::Positions, &[mask])?;
        let ones = self.cast(mask, DType::I64)?;
        let count = self.total(ones)?;
        let extent = Extent { axis: 0, count };
        self.live.set(positions, vec![extent]);
        Ok(Chosen { positions, count })
    }

    /// Where a tensor is not zero, as positions in its elements in order.
    pub(crate) fn nonzero(&mut self, x: ValueId) -> Result<Chosen, Problem> {
        if let Some(chosen) = self.live.chosen.get(&x) {
            return Ok(*chosen);
        }
        let all: Vec<usize> = (0..self.ty(x).rank()).collect();
        let mask = self.masked(x, &all, 0.0)?;
        let mask = self.cast(mask, DType::Bool)?;
        let mask = self.reshape(mask, vec![self.ty(x).len()])?;
        let chosen = self.positions(mask)?;
        self.live.chosen.insert(x, chosen);
        Ok(chosen)
    }

    /// Which elements of parts behind each other are live; of a part without a count all are.
    pub(crate) fn joined(
        &mut self,
        parts: Vec<(usize, Option<ValueId>)>,
    ) -> Result<Chosen, Problem> {
        if let Some(chosen) = self.live.joined.get(&parts) {
            return Ok(*chosen);
        }
        let mut masks = Vec::new();
        for (bound, count) in &parts {
            masks.push(match count {
                Some(count) => self.is_live(
                    Extent {
                        axis: 0,
                        count: *count,
                    },
                    &[*bound],
                )?,
                None => self.filled(DType::Bool, &[*bound], 1.0)?,
            });
        }
        let mask = self.emit(Op::Concat(graph::ops::Concat { axis: 0 }), &masks)?;
        let chosen = self.positions(mask)?;
        self.live.joined.insert(parts, chosen);
        Ok(chosen)
    }

    /// A count as a vector of one.
    pub(crate) fn as_vector(&mut self, count: ValueId) -> Result<ValueId, Problem> {
        self.reshape(count, vec![1])
    }

    /// A constant of one i64.
    pub(crate) fn number(&mut self, value: i64) -> ValueId {
        self.model
            .add_result(&self.name, Tensor::from_slice(&[], &[value]))
    }
}
