//! Dimensions with names, and whether their rows stay apart.
//!
//! Rows stay apart where row `i` of every result depends on row `i` of the inputs
//! alone: then rows may be added to the inputs and taken off the outputs. That is
//! proven of a model at two sizes: both must be the same nodes on the same
//! operands, every constant must be the same or have the smaller size's rows
//! first, and every operator that reads rows must keep them apart by its
//! definition. What a rule here does not know is refused, never believed.

mod padded;
mod rest;
mod with_rows;

pub use padded::{Padded, padded};
pub use with_rows::with_rows;

use crate::model::{Model, Node, Origin, TensorType, ValueId};
use crate::ops::{Op, PoolKind};
use std::collections::HashMap;
use std::ops::Range;
use tensor::Tensor;

/// A dimension of a model's inputs that was given its size by name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedDim {
    pub name: String,
    pub size: usize,
    /// The axes that have the size: positions of an input and of an axis.
    pub inputs: Vec<(usize, usize)>,
    /// How inputs of smaller sizes may be padded, if all of them may.
    pub padding: Option<Padded>,
}

/// Where a tensor has the rows of a dimension: `each` elements along `axis` for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    pub axis: usize,
    pub each: usize,
}

/// Where a value inside a model has the rows: the axis is [groups, rows, each], merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stack {
    axis: usize,
    groups: usize,
    each: usize,
}

impl Stack {
    fn new(axis: usize, each: usize) -> Stack {
        Stack {
            axis,
            groups: 1,
            each,
        }
    }

    /// The size of the axis for so many rows.
    fn size(self, rows: usize) -> usize {
        self.groups * rows * self.each
    }
}

/// Proves that the rows of a dimension stay apart in a model at two sizes of it, which
/// `inputs` have (position of an input, axis); where each output has the rows.
///
/// # Errors
/// Says which node or constant stops the proof, and why.
pub fn rows_apart(
    small: &Model,
    large: &Model,
    inputs: &[(usize, usize)],
) -> Result<Vec<Option<Rows>>, String> {
    let (small, large) = (small.without_dead_code(), large.without_dead_code());
    let sizes = compared_sizes(&small, &large, inputs)?;
    let mut proof = Proof {
        small: &small,
        large: &large,
        sizes,
        known: HashMap::new(),
    };
    for (at, (s, l)) in small.inputs().iter().zip(large.inputs()).enumerate() {
        let mut axes = inputs
            .iter()
            .filter(|(i, _)| *i == at)
            .map(|(_, axis)| *axis);
        let rows = axes.next().map(|axis| Stack::new(axis, 1));
        if axes.next().is_some() {
            let name = large[*l].name();
            return Err(format!("two axes of the input `{name}` have the dimension"));
        }
        proof.know(*s, *l, rows)?;
    }
    if small.nodes().len() != large.nodes().len() {
        return Err("the model has other nodes at another size".into());
    }
    for ((_, s), (_, l)) in small.nodes().zip(large.nodes()) {
        proof.node(s, l)?;
    }
    let outputs = small.outputs().iter().zip(large.outputs());
    outputs.map(|(s, l)| proof.output(*s, *l)).collect()
}

/// How many rows two models have.
fn compared_sizes(
    small: &Model,
    large: &Model,
    inputs: &[(usize, usize)],
) -> Result<(usize, usize), String> {
    let size = |m: &Model| {
        inputs
            .first()
            .map(|(i, axis)| m[m.inputs()[*i]].shape()[*axis])
    };
    let (Some(from), Some(to)) = (size(small), size(large)) else {
        return Err("no input has the dimension".into());
    };
    if from == 0 || from >= to || small.inputs().len() != large.inputs().len() {
        return Err(format!("{from} rows cannot be compared with {to}"));
    }
    Ok((from, to))
}

struct Proof<'a> {
    small: &'a Model,
    large: &'a Model,
    /// Of the dimension, in either.
    sizes: (usize, usize),
    /// By the value in the large model: that in the small one, and its rows.
    known: HashMap<ValueId, (ValueId, Option<Stack>)>,
}

impl Proof<'_> {
    fn output(&mut self, s: ValueId, l: ValueId) -> Result<Option<Rows>, String> {
        match self.rows(s, l)? {
            Some(rows) if rows.groups > 1 => {
                let name = self.large[l].name();
                Err(format!(
                    "the output `{name}` has the rows in {} places",
                    rows.groups
                ))
            }
            Some(Stack { axis, each, .. }) => Ok(Some(Rows { axis, each })),
            None => Ok(None),
        }
    }

    /// Notes where a value has its rows, if its types say so.
    fn know(&mut self, s: ValueId, l: ValueId, rows: Option<Stack>) -> Result<(), String> {
        let (a, b) = (self.small[s].ty(), self.large[l].ty());
        if !self.fits(a, b, rows) {
            let name = self.large[l].name();
            return Err(format!("`{name}` is {a} at one size and {b} at the other"));
        }
        self.known.insert(l, (s, rows));
        Ok(())
    }

    /// Whether the types of a value differ in the number of its rows alone.
    fn fits(&self, small: &TensorType, large: &TensorType, rows: Option<Stack>) -> bool {
        let mut expected = large.clone();
        if let Some(rows) = rows {
            let (from, to) = self.sizes;
            let size = rows.size(to);
            if large.shape.get(rows.axis) != Some(&size) || size == 0 {
                return false;
            }
            expected.shape[rows.axis] = rows.size(from);
        }
        *small == expected
    }

    /// The rows of a value that both models have in the same place.
    fn rows(&mut self, s: ValueId, l: ValueId) -> Result<Option<Stack>, String> {
        if let Some((own, rows)) = self.known.get(&l) {
            return match *own == s {
                true => Ok(*rows),
                false => Err(format!(
                    "`{}` is another value at another size",
                    self.large[l].name()
                )),
            };
        }
        let (Origin::Constant(a), Origin::Constant(b)) =
            (self.small[s].origin(), self.large[l].origin())
        else {
            let name = self.large[l].name();
            return Err(format!("`{name}` is computed at one size only"));
        };
        let rows = self.constant(a, b).ok_or_else(|| {
            let name = self.large[l].name();
            format!("the constant `{name}` depends on the size")
        })?;
        self.know(s, l, rows)?;
        Ok(rows)
    }

    /// None if the constants are neither the same, nor the one the first rows of the other.
    fn constant(&self, a: &Tensor, b: &Tensor) -> Option<Option<Stack>> {
        if a.dtype() != b.dtype() || a.shape().len() != b.shape().len() {
            return None;
        }
        let differs = |axis: &usize| a.shape()[*axis] != b.shape()[*axis];
        let mut axes = (0..a.shape().len()).filter(differs);
        let Some(axis) = axes.next() else {
            return (a.bytes() == b.bytes()).then_some(None);
        };
        let (from, to) = self.sizes;
        let each = b.shape()[axis] / to;
        let is_rows = axes.next().is_none() && each > 0 && b.shape()[axis] == to * each;
        if !is_rows || a.shape()[axis] != from * each {
            return None;
        }
        let inner = a.shape()[axis + 1..].iter().product::<usize>() * a.dtype().size();
        let (own, all) = (from * each * inner, to * each * inner);
        if own == 0 {
            return None;
        }
        let mut parts = a.bytes().chunks_exact(own).zip(b.bytes().chunks_exact(all));
        parts
            .all(|(a, b)| a == &b[..own])
            .then_some(Some(Stack::new(axis, each)))
    }

    fn node(&mut self, s: &Node, l: &Node) -> Result<(), String> {
        let named = |why: &str| format!("node `{}` ({}) {why}", l.name, l.op.name());
        let other = || named("is another one at another size");
        if s.inputs.len() != l.inputs.len() || s.outputs.len() != l.outputs.len() {
            return Err(other());
        }
        let (mut operands, mut rows, mut constants) = (Vec::new(), Vec::new(), Vec::new());
        for pair in s.inputs.iter().zip(&l.inputs) {
            match pair {
                (Some(s), Some(l)) => {
                    rows.push(self.rows(*s, *l)?);
                    operands.push(Some(self.large[*l].ty()));
                    constants.push(self.large.constant(*l).map(|t| &**t));
                }
                (None, None) => {
                    rows.push(None);
                    operands.push(None);
                    constants.push(None);
                }
                _ => return Err(other()),
            }
        }
        let result = self.large[l.outputs[0]].ty();
        let facts = Facts {
            operands,
            constants,
            rows,
            result,
            size: self.sizes.1,
        };
        let of_result = if facts.rows.iter().any(Option::is_some) {
            let kept = facts.kept(&l.op).map_err(|why| named(&why))?;
            if !same_but_sizes(&s.op, &l.op, kept) {
                return Err(other());
            }
            Some(kept)
        } else if s.op == l.op {
            None
        } else {
            let small = self.small[s.outputs[0]].ty();
            Some(
                facts
                    .repeated(&s.op, &l.op, small, self.sizes)
                    .ok_or_else(other)?,
            )
        };
        for (s, l) in s.outputs.iter().zip(&l.outputs) {
            self.know(*s, *l, of_result)
                .map_err(|why| named(&format!("mixes rows: {why}")))?;
        }
        Ok(())
    }
}

/// Whether two operators differ in nothing but the number of rows.
fn same_but_sizes(small: &Op, large: &Op, rows: Stack) -> bool {
    match (small, large) {
        // The types of their results, which are compared, say all of these.
        (Op::Reshape(_), Op::Reshape(_)) | (Op::Expand(_), Op::Expand(_)) => true,
        (Op::Slice(a), Op::Slice(b)) => {
            let sizes = || a.sizes.iter().zip(&b.sizes).enumerate();
            a.starts == b.starts
                && a.steps == b.steps
                && a.sizes.len() == b.sizes.len()
                && sizes().all(|(axis, (a, b))| a == b || axis == rows.axis)
        }
        _ => small == large,
    }
}

/// What is known of a node in the larger model.
struct Facts<'a> {
    operands: Vec<Option<&'a TensorType>>,
    /// Of the operands.
    constants: Vec<Option<&'a Tensor>>,
    rows: Vec<Option<Stack>>,
    result: &'a TensorType,
    /// Rows there.
    size: usize,
}

type Kept = Result<Stack, String>;

fn mixes<T>() -> Result<T, String> {
    Err("mixes rows".into())
}

impl Facts<'_> {
    /// A broadcast of what has no rows to something that has.
    fn repeated(&self, s: &Op, l: &Op, small: &TensorType, sizes: (usize, usize)) -> Option<Stack> {
        let (Op::Expand(_), Op::Expand(_), Some(x)) = (s, l, self.operands[0]) else {
            return None;
        };
        if small.rank() != self.result.rank() {
            return None;
        }
        let shape = &self.result.shape;
        let axis = (0..shape.len()).find(|d| small.shape[*d] != shape[*d])?;
        let each = shape[axis] / sizes.1;
        let fits = shape[axis] == sizes.1 * each && small.shape[axis] == sizes.0 * each;
        (fits && self.is_one(x, axis)).then_some(Stack::new(axis, each))
    }

    /// Whether an operand that broadcasts has one element along an axis of the result.
    fn is_one(&self, x: &TensorType, axis: usize) -> bool {
        let missing = self.result.rank() - x.rank().min(self.result.rank());
        axis < missing || x.shape[axis - missing] == 1
    }

    fn first(&self) -> Kept {
        let others = self.rows.iter().skip(1).all(Option::is_none);
        match self.rows[0].filter(|_| others) {
            Some(rows) => Ok(rows),
            None => mixes(),
        }
    }

    /// The rows of the first operand, which lie on an axis that is not among these.
    fn beside(&self, axes: impl Fn(usize) -> bool) -> Kept {
        let rows = self.first()?;
        match axes(rows.axis) {
            true => mixes(),
            false => Ok(rows),
        }
    }

    /// The rows that all operands have in the same place.
    fn all_alike(&self) -> Kept {
        let first = self.rows[0].filter(|r| self.rows.iter().all(|o| *o == Some(*r)));
        first.map_or_else(mixes, Ok)
    }

    /// Places in the result that operands give, which must agree. Others must not reach
    /// along that axis.
    fn agreed(
        &self,
        place: impl Fn(usize, Stack) -> Option<usize>,
        reaches: impl Fn(usize, usize) -> bool,
    ) -> Kept {
        let mut agreed: Option<Stack> = None;
        for (at, rows) in self.rows.iter().enumerate() {
            let Some(rows) = rows else { continue };
            let Some(axis) = place(at, *rows) else {
                return mixes();
            };
            let here = Stack { axis, ..*rows };
            if *agreed.get_or_insert(here) != here {
                return mixes();
            }
        }
        let Some(agreed) = agreed else { return mixes() };
        let mut others = (0..self.rows.len()).filter(|at| self.rows[*at].is_none());
        match others.any(|at| self.operands[at].is_some() && reaches(at, agreed.axis)) {
            true => mixes(),
            false => Ok(agreed),
        }
    }

    fn broadcast(&self) -> Kept {
        let rank = self.result.rank();
        self.agreed(
            |at, rows| Some(rows.axis + rank - self.operands[at]?.rank()),
            |at, axis| self.operands[at].is_some_and(|x| !self.is_one(x, axis)),
        )
    }

    fn matmul(&self) -> Kept {
        let rank = self.result.rank();
        let place = |at: usize, rows: Stack| {
            let own = self.operands[at]?.rank();
            // Vectors have no rows that a product keeps.
            if self.operands.iter().flatten().any(|x| x.rank() < 2) {
                return None;
            }
            let summed = if at == 0 { own - 1 } else { own - 2 };
            (rows.axis != summed).then(|| rows.axis + rank - own)
        };
        let reaches = |at: usize, axis: usize| {
            // Its own rows and columns are others than the result's.
            axis + 2 < rank && self.operands[at].is_some_and(|x| !self.is_one(x, axis))
        };
        self.agreed(place, reaches)
    }

    fn gemm(&self, trans_a: bool, trans_b: bool) -> Kept {
        let place = |at: usize, rows: Stack| match at {
            0 => (rows.axis == usize::from(trans_a)).then_some(0),
            1 => (rows.axis != usize::from(trans_b)).then_some(1),
            _ => Some(rows.axis + 2 - self.operands[at]?.rank()),
        };
        self.agreed(place, |at, axis| {
            at == 2 && self.operands[2].is_some_and(|c| !self.is_one(c, axis))
        })
    }

    fn contract(&self, c: &crate::ops::Contract) -> Kept {
        let letters = [&c.left, &c.right];
        let place = |at: usize, rows: Stack| {
            let letter = letters[at].get(rows.axis)?;
            c.result.iter().position(|l| l == letter)
        };
        self.agreed(place, |at, axis| letters[at].contains(&c.result[axis]))
    }

    fn gather(&self, axis: usize) -> Kept {
        let (x, indices) = (self.rows[0], self.rows[1]);
        let rank = self.operands[1].map_or(0, TensorType::rank);
        match (x, indices) {
            (None, Some(rows)) => Ok(Stack {
                axis: axis + rows.axis,
                ..rows
            }),
            (Some(rows), None) if rows.axis < axis => Ok(rows),
            (Some(rows), None) if rows.axis > axis => Ok(Stack {
                axis: rows.axis - 1 + rank,
                ..rows
            }),
            (Some(rows), Some(picks)) if rows.axis == axis && self.picks_own(rows, picks, 0..1) => {
                Ok(Stack {
                    axis: axis + picks.axis,
                    ..picks
                })
            }
            _ => mixes(),
        }
    }

    /// As [`Facts::gather`], where each `depth` indices are one position.
    fn gather_nd(&self, batch: usize) -> Kept {
        let (x, indices) = (self.rows[0], self.rows[1]);
        let positions = self.operands[1].map_or(&[][..], |i| &i.shape);
        let Some((&depth, outer)) = positions.split_last() else {
            return mixes();
        };
        let along = batch..batch + depth;
        match (x, indices) {
            (None, Some(picks)) if (batch..outer.len()).contains(&picks.axis) => Ok(picks),
            (Some(rows), None) if rows.axis >= along.end => Ok(Stack {
                axis: rows.axis - along.end + outer.len(),
                ..rows
            }),
            (Some(rows), Some(picks)) if rows == picks && rows.axis < batch => Ok(rows),
            (Some(rows), Some(picks))
                if along.contains(&rows.axis)
                    && (batch..outer.len()).contains(&picks.axis)
                    && self.picks_own(rows, picks, rows.axis - batch..depth) =>
            {
                Ok(picks)
            }
            _ => mixes(),
        }
    }

    /// Rows of the operand and of the updates that lie behind the axes of the positions.
    fn scatter_nd(&self) -> Kept {
        let positions = self.operands[1].map_or(&[][..], |i| &i.shape);
        let (Some((&depth, outer)), None) = (positions.split_last(), self.rows[1]) else {
            return mixes();
        };
        match (self.rows[0], self.rows[2]) {
            (Some(rows), Some(updates)) if rows.axis >= depth => {
                let axis = rows.axis - depth + outer.len();
                match updates == (Stack { axis, ..rows }) {
                    true => Ok(rows),
                    false => mixes(),
                }
            }
            _ => mixes(),
        }
    }

    /// Whether constant indices of each row are of elements of the same row. Of as many
    /// indices as `part` ends with, the one that it starts with is along the rows.
    fn picks_own(&self, rows: Stack, picks: Stack, part: Range<usize>) -> bool {
        let Some(indices) = self.constants[1].filter(|_| rows.groups == 1) else {
            return false;
        };
        let inner: usize = indices.shape()[picks.axis + 1..].iter().product();
        let own = inner * picks.each;
        // Indices are whole numbers that f64 holds exactly up to 2^53; no tensor is larger.
        (part.start..indices.len()).step_by(part.end).all(|i| {
            let first = (i / own % self.size * rows.each) as f64;
            let index = indices.get_f64(i);
            first <= index && index < first + rows.each as f64
        })
    }

    /// The axes on which a reshape may put the rows: the elements of a row lie together behind
    /// as many others as before. Several are such only if there is one row. Then the likeliest
    /// is first, and axes of nothing but rows exclude others.
    fn places(&self) -> Result<Vec<Stack>, String> {
        let rows = self.first()?;
        let Some(x) = self.operands[0] else {
            return mixes();
        };
        let before = x.shape[..rows.axis].iter().product::<usize>() * rows.groups;
        let shape = &self.result.shape;
        let place = |axis: usize| {
            let own: usize = shape[..axis].iter().product();
            let groups = before.checked_div(own)?;
            let rows = groups * self.size;
            let fits = own * groups == before && shape[axis] > 0;
            (fits && rows > 0 && shape[axis].is_multiple_of(rows)).then(|| Stack {
                axis,
                groups,
                each: shape[axis] / rows,
            })
        };
        let mut places: Vec<Stack> = (0..shape.len()).filter_map(place).collect();
        if places.iter().any(|p| p.size(1) == 1) {
            places.retain(|p| p.size(1) == 1);
        }
        places.sort_by_key(|p| (*p != rows, p.groups, p.axis));
        Ok(places)
    }

    /// Where an operator that reads rows keeps them, by its definition.
    fn kept(&self, op: &Op) -> Kept {
        match op {
            Op::Identity
            | Op::Dropout(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Where
            | Op::Cast(_)
            | Op::Expand(_) => self.broadcast(),
            Op::Conv(_) | Op::ConvInteger(_) | Op::ConvTranspose(_) | Op::Col2Im(_) => {
                self.beside(|a| a != 0)
            }
            Op::MatMul | Op::MatMulInteger => self.matmul(),
            Op::MatMulBlocks(_) => self.beside(|a| a == 1),
            Op::Gemm(g) => self.gemm(g.trans_a, g.trans_b),
            Op::Contract(c) => self.contract(c),
            Op::Lookup => self.beside(|_| false),
            Op::BatchNorm(_) | Op::Lrn(_) => self.beside(|a| a == 1),
            Op::LayerNorm(n) => self.beside(|a| a >= n.axis),
            Op::Softmax(s) => self.beside(|a| a == s.axis),
            Op::Pool(p) => match p.kind {
                PoolKind::Max { indices: Some(_) } => mixes(),
                _ => self.beside(|a| a > 1),
            },
            Op::Resize(r) => self.beside(|a| r.axes[a].is_some()),
            Op::Reduce(r) => self.reduced(&r.axes, r.keepdims),
            Op::ArgReduce(r) => self.reduced(&[r.axis], r.keepdims),
            Op::Cumulative(c) => self.beside(|a| a == c.axis),
            Op::Concat(c) => match self.all_alike() {
                Ok(rows) if rows.axis != c.axis => Ok(rows),
                _ => mixes(),
            },
            Op::Split(s) => self.beside(|a| a == s.axis),
            Op::Slice(s) => self.beside(|a| {
                let all = self.operands[0].map_or(0, |x| x.shape[a]);
                (s.starts[a], s.steps[a], s.sizes[a]) != (0, 1, all)
            }),
            Op::Pad(p) => self.beside(|a| p.pads[a] != (0, 0)),
            Op::Reshape(_) => self.places()?.first().copied().map_or_else(mixes, Ok),
            Op::Transpose(t) => {
                let rows = self.first()?;
                let axis = t.perm.iter().position(|a| *a == rows.axis);
                axis.map_or_else(mixes, |axis| Ok(Stack { axis, ..rows }))
            }
            Op::Gather(g) => self.gather(g.axis),
            Op::GatherElements(g) => match (self.rows[0], self.rows[1]) {
                (None, Some(picks)) if picks.axis == g.axis => Ok(picks),
                _ => self.elements(g.axis),
            },
            Op::ScatterElements(s) => self.elements(s.axis),
            Op::TopK(t) => self.beside(|a| a == t.axis),
            Op::GridSample(_) => match self.all_alike() {
                Ok(rows) if rows.axis == 0 => Ok(rows),
                _ => mixes(),
            },
            Op::GatherNd(g) => self.gather_nd(g.batch),
            Op::ScatterNd(_) => self.scatter_nd(),
            Op::Positions | Op::Suppress(_) | Op::MaxPoolGradient(_) => mixes(),
        }
    }

    fn elements(&self, axis: usize) -> Kept {
        match self.all_alike() {
            Ok(rows) if rows.axis != axis => Ok(rows),
            _ => mixes(),
        }
    }

    fn reduced(&self, axes: &[usize], keepdims: bool) -> Kept {
        let rows = self.beside(|a| axes.contains(&a))?;
        let gone = axes.iter().filter(|a| **a < rows.axis && !keepdims).count();
        Ok(Stack {
            axis: rows.axis - gone,
            ..rows
        })
    }
}
