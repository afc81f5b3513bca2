//! What an operator's importer works with: one ONNX node and the model so far.

use crate::attributes::Attributes;
use crate::file::DataFolder;
use crate::live::Live;
use crate::narrow::Narrows;
use crate::proto::NodeProto;
use crate::sequence::Sequences;
use graph::ops::{Binary, Combine, Expand, Op, OpError, PoolKind, ReduceKind, Unary};
use graph::{Exceeded, Limit, Model, TensorType, ValueId};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use tensor::{DType, Tensor};

/// Why one node cannot be imported.
#[derive(Debug)]
pub(crate) enum Problem {
    Unsupported(String),
    /// The value must be constant; `role` says what for.
    NotConstant {
        value: ValueId,
        role: String,
    },
    /// The model has become too large to go on.
    TooLarge(Exceeded),
}

impl Problem {
    pub(crate) fn unsupported<T>(reason: impl Into<String>) -> Result<T, Problem> {
        Err(Problem::Unsupported(reason.into()))
    }
}

impl From<OpError> for Problem {
    fn from(e: OpError) -> Problem {
        Problem::Unsupported(e.0)
    }
}

impl From<Exceeded> for Problem {
    fn from(e: Exceeded) -> Problem {
        match e.limit {
            Limit::Values => Problem::TooLarge(e),
            Limit::FoldBytes | Limit::FoldOperations => Problem::Unsupported(e.to_string()),
        }
    }
}

/// What an importer gives: the values of the node's outputs, in order. Fewer
/// than the node names is an error unless the rest are unnamed.
pub(crate) type Imported = Result<Vec<ValueId>, Problem>;

/// The largest results that are computed at once, in elements: all that decide
/// shapes. Larger ones wait until the model is whole, where most need not stay.
const AT_ONCE: usize = 1 << 17;

pub(crate) struct NodeImport<'a> {
    pub(crate) model: &'a mut Model,
    pub(crate) proto: &'a NodeProto,
    pub(crate) attributes: Attributes<'a>,
    /// Version of the operator set of the node's domain.
    pub(crate) opset: i64,
    pub(crate) inputs: Vec<Option<ValueId>>,
    /// Those that the importer asked for.
    pub(crate) read: RefCell<BTreeSet<usize>>,
    pub(crate) name: String,
    /// Where external data of tensor attributes lies.
    pub(crate) folder: Option<&'a DataFolder>,
    /// What is known of values whose size the data decide.
    pub(crate) live: &'a mut Live,
    pub(crate) sequences: &'a mut Sequences,
    /// The values of types that no tensor has.
    pub(crate) narrow: &'a mut Narrows,
    /// Whether the largest values stand for operands that are computed from sizes.
    pub(crate) at_bounds: bool,
    /// What is said about the file.
    pub(crate) notes: &'a mut Vec<String>,
    /// How many rows of the first result are read, if not all.
    pub(crate) wanted: Option<usize>,
    /// How often a value was rounded to 16 bits. Above 1, an intermediate was.
    pub(crate) roundings: usize,
    /// Whether a training step is to be made of the model.
    pub(crate) training: bool,
    /// What it trains: nothing is computed of these before it.
    pub(crate) parameters: &'a HashSet<ValueId>,
}

/// Floats of 16 bits.
pub(crate) fn is_half(d: DType) -> bool {
    matches!(d, DType::F16 | DType::BF16)
}

/// Whether the results of an operator may be other numbers than its operands' elements, or
/// than these without their sign, to the type of the result.
fn rounds(op: &Op) -> bool {
    match op {
        Op::Identity
        | Op::Dropout(_)
        | Op::Where
        | Op::Lookup
        | Op::Concat(_)
        | Op::Split(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Expand(_)
        | Op::Gather(_)
        | Op::GatherElements(_)
        | Op::GatherNd(_)
        | Op::TopK(_) => false,
        Op::ScatterElements(s) => matches!(s.combine, Combine::Add | Combine::Mul),
        Op::ScatterNd(s) => matches!(s.combine, Combine::Add | Combine::Mul),
        Op::Pool(p) => !matches!(p.kind, PoolKind::Max { .. }),
        Op::Reduce(r) => !matches!(r.kind, ReduceKind::Max | ReduceKind::Min),
        Op::Unary(u) => !matches!(
            u,
            Unary::Neg
                | Unary::Abs
                | Unary::Sign
                | Unary::Relu
                | Unary::Clip { .. }
                | Unary::Floor
                | Unary::Ceil
                | Unary::Round
        ),
        Op::Binary(b) => !matches!(b, Binary::Max | Binary::Min),
        _ => true,
    }
}

impl NodeImport<'_> {
    pub(crate) fn optional(&self, i: usize) -> Option<ValueId> {
        self.read.borrow_mut().insert(i);
        self.inputs.get(i).copied().flatten()
    }

    pub(crate) fn input(&self, i: usize) -> Result<ValueId, Problem> {
        match self.optional(i) {
            Some(v) => Ok(v),
            None => Problem::unsupported(format!("input {i} is missing")),
        }
    }

    /// All inputs, none of which may be missing.
    pub(crate) fn all_inputs(&self) -> Result<Vec<ValueId>, Problem> {
        (0..self.inputs.len()).map(|i| self.input(i)).collect()
    }

    /// A given input that the importer never asked for.
    pub(crate) fn unread(&self) -> Option<usize> {
        let read = self.read.borrow();
        (0..self.inputs.len()).find(|i| self.inputs[*i].is_some() && !read.contains(i))
    }

    pub(crate) fn ty(&self, v: ValueId) -> &TensorType {
        self.model[v].ty()
    }

    pub(crate) fn shape(&self, v: ValueId) -> Vec<usize> {
        self.ty(v).shape.clone()
    }

    pub(crate) fn dtype(&self, v: ValueId) -> DType {
        self.ty(v).dtype
    }

    /// Whether the node names output `i`.
    pub(crate) fn wants(&self, i: usize) -> bool {
        self.proto.output.get(i).is_some_and(|n| !n.is_empty())
    }

    /// The constant value of input `i`, if the input is present.
    pub(crate) fn constant(&self, i: usize, role: &str) -> Result<Option<Arc<Tensor>>, Problem> {
        let Some(value) = self.optional(i) else {
            return Ok(None);
        };
        match self.model.constant(value) {
            Some(t) => Ok(Some(t.clone())),
            None if self.at_bounds && self.live.range(value).is_some() => {
                Ok(self.live.range(value).map(|r| r.high.clone()))
            }
            None => Err(Problem::NotConstant {
                value,
                role: role.to_string(),
            }),
        }
    }

    /// The constant integers of input `i`, if the input is present.
    pub(crate) fn constant_ints(&self, i: usize, role: &str) -> Result<Option<Vec<i64>>, Problem> {
        let Some(t) = self.constant(i, role)? else {
            return Ok(None);
        };
        if !t.dtype().is_int() {
            return Problem::unsupported(format!("its {role} are {}, not integers", t.dtype()));
        }
        Ok(Some((0..t.len()).map(|i| t.get_i64(i)).collect()))
    }

    /// The constant single value of input `i`, if the input is present.
    pub(crate) fn constant_scalar(&self, i: usize, role: &str) -> Result<Option<f64>, Problem> {
        match self.constant(i, role)? {
            None => Ok(None),
            Some(t) if t.len() == 1 => Ok(Some(t.get_f64(0))),
            Some(t) => Problem::unsupported(format!("its {role} has shape {:?}", t.shape())),
        }
    }

    /// Integers that are attribute `name` up to operator set `last`, and input
    /// `i` after it.
    pub(crate) fn ints_by_opset(
        &self,
        name: &str,
        i: usize,
        last: i64,
    ) -> Result<Option<Vec<i64>>, Problem> {
        if self.opset <= last {
            return Ok(self.attributes.ints(name)?.map(<[i64]>::to_vec));
        }
        self.constant_ints(i, name)
    }

    /// A non-negative axis below `rank`.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<usize, Problem> {
        let resolved = if axis < 0 {
            axis.saturating_add(rank as i64)
        } else {
            axis
        };
        match usize::try_from(resolved) {
            Ok(a) if a < rank => Ok(a),
            _ => Problem::unsupported(format!("axis {axis} is outside rank {rank}")),
        }
    }

    /// Elements of this shape are computed here.
    pub(crate) fn take_elements(&mut self, shape: &[usize]) -> Result<(), Problem> {
        let elements = shape.iter().fold(1u64, |n, d| n.saturating_mul(*d as u64));
        Ok(self.model.take_elements(elements)?)
    }

    /// Appends a node, or its values if they are small and all operands constant. What is computed of a parameter
    /// changes while it is trained, and a parameter that is read in several places stays one.
    pub(crate) fn emit_all(&mut self, op: Op, inputs: &[Option<ValueId>]) -> Imported {
        self.model.room_for(1)?;
        let rounds = rounds(&op);
        let trained = inputs.iter().flatten().any(|v| {
            let ty = self.ty(*v);
            ty.dtype == DType::F32 && ty.rank() > 0 && self.parameters.contains(v)
        });
        let values = match trained {
            true => None,
            false => self.model.compute(&op, inputs, AT_ONCE)?,
        };
        let results: Vec<ValueId> = match values {
            Some(values) => values
                .into_iter()
                .map(|t| self.model.add_result(&self.name, t))
                .collect(),
            None => self
                .model
                .add_node(&self.name, op, inputs)
                .map_err(|e| e.source)?,
        };
        let half = results.iter().any(|v| is_half(self.dtype(*v)));
        self.roundings += usize::from(rounds && half);
        Ok(results)
    }

    /// [`NodeImport::emit_all`] for an operator of one output.
    pub(crate) fn emit(&mut self, op: Op, inputs: &[ValueId]) -> Result<ValueId, Problem> {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        Ok(self.emit_all(op, &inputs)?[0])
    }

    pub(crate) fn unary(&mut self, op: Unary, x: ValueId) -> Result<ValueId, Problem> {
        self.emit(Op::Unary(op), &[x])
    }

    pub(crate) fn binary(
        &mut self,
        op: Binary,
        x: ValueId,
        y: ValueId,
    ) -> Result<ValueId, Problem> {
        self.emit(Op::Binary(op), &[x, y])
    }

    /// Appends a cast unless the type is already right.
    pub(crate) fn cast(&mut self, x: ValueId, to: DType) -> Result<ValueId, Problem> {
        if self.dtype(x) == to {
            Ok(x)
        } else {
            self.emit(Op::Cast(to), &[x])
        }
    }

    /// As [`NodeImport::cast`]; a constant stays one, whatever its size, if the model may compute
    /// it.
    pub(crate) fn widened(&mut self, x: ValueId, to: DType) -> Result<ValueId, Problem> {
        if self.dtype(x) == to {
            return Ok(x);
        }
        let cast = Op::Cast(to);
        match self.model.compute(&cast, &[Some(x)], usize::MAX)? {
            Some(values) => {
                let wide = values.into_iter().next().expect("a cast has a result");
                Ok(self.model.add_result(&self.name, wide))
            }
            None => self.emit(cast, &[x]),
        }
    }

    pub(crate) fn reshape(&mut self, x: ValueId, shape: Vec<usize>) -> Result<ValueId, Problem> {
        if self.ty(x).shape == shape {
            return Ok(x);
        }
        self.emit(Op::Reshape(graph::ops::Reshape { shape }), &[x])
    }

    /// A constant filled with one value.
    pub(crate) fn filled(
        &mut self,
        dtype: DType,
        shape: &[usize],
        value: f64,
    ) -> Result<ValueId, Problem> {
        let mut one = Tensor::zeros(dtype, &[]);
        one.set_f64(0, value);
        if is_half(dtype) && one.get_f64(0) != value {
            // A constant is no result: this alone rounds an intermediate.
            self.roundings += 2;
        }
        self.repeated(one, shape)
    }

    /// One element, given as a tensor, everywhere in a shape.
    pub(crate) fn repeated(&mut self, one: Tensor, shape: &[usize]) -> Result<ValueId, Problem> {
        let one = self.model.add_result(&self.name, one.reshaped(&[]));
        if shape.is_empty() {
            return Ok(one);
        }
        let shape = shape.to_vec();
        self.emit(Op::Expand(Expand { shape }), &[one])
    }
}
