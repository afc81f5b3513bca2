//! Values that depend on one byte alone, as tables with a value for each byte.
//!
//! Quantised models take a byte to floats, compute with it (an activation, often written out
//! with further bytes between) and quantise the result: whatever that costs, it has 256 results.

use crate::model::{Model, ValueId};
use crate::ops::{BYTES, Binary, Op, Unary};
use crate::reference;
use std::collections::HashMap;
use tensor::{DType, Tensor};

/// The values of a value for each byte that the value is computed from.
pub(crate) struct Table {
    /// Of u8 or i8.
    pub byte: ValueId,
    /// In the order of the bytes as u8.
    pub values: Tensor,
}

/// More nodes are not looked through.
const MOST_NODES: usize = 64;

/// The table of a value that is computed element by element from one tensor of bytes, if
/// that takes more than a few instructions.
pub(crate) fn table(model: &Model, v: ValueId) -> Option<Table> {
    let mut search = Search {
        model,
        shape: model[v].shape(),
        byte: None,
        is_costly: false,
        seen: HashMap::new(),
    };
    let values = search.computed(v)?;
    let byte = search.byte.filter(|_| search.is_costly)?;
    Some(Table { byte, values })
}

struct Search<'a> {
    model: &'a Model,
    shape: &'a [usize],
    byte: Option<ValueId>,
    is_costly: bool,
    /// For each byte, those of what was looked through.
    seen: HashMap<ValueId, Tensor>,
}

impl Search<'_> {
    fn values(&mut self, v: ValueId) -> Option<Tensor> {
        if let Some(t) = self.seen.get(&v) {
            return Some(t.clone());
        }
        if let Some(t) = self.model.constant(v) {
            let one = t.len() == 1;
            return one.then(|| Tensor::clone(t).reshaped(&[]));
        }
        // What is made of constants has one element.
        let ty = self.model[v].ty();
        let whole = ty.shape == self.shape;
        if !whole && ty.len() != 1 || self.seen.len() >= MOST_NODES {
            return None;
        }
        let values = match self.is_end(v) {
            true if whole && *self.byte.get_or_insert(v) == v => all_bytes(ty.dtype),
            true => return None,
            false => self.computed(v)?,
        };
        self.seen.insert(v, values.clone());
        Some(values)
    }

    /// Whether bytes are none of a table, nor the same bits as other bytes.
    fn is_end(&self, v: ValueId) -> bool {
        let node = self.model.producer(v).map(|(n, _)| &self.model[n]);
        let is_byte = |v: ValueId| matches!(self.model[v].dtype(), DType::U8 | DType::I8);
        is_byte(v)
            && !node.is_some_and(|n| match n.op {
                Op::Lookup => true,
                Op::Cast(_) => n.input(0).is_some_and(is_byte),
                _ => false,
            })
    }

    /// By the operator that gives the value.
    fn computed(&mut self, v: ValueId) -> Option<Tensor> {
        let (producer, _) = self.model.producer(v)?;
        let node = &self.model[producer];
        self.is_costly |= is_costly(&node.op);
        let operands: Vec<Tensor> = match node.op {
            Op::Lookup => {
                let table = self.model.constant(node.input(1)?)?;
                vec![self.values(node.input(0)?)?, Tensor::clone(table)]
            }
            Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast(_) => {
                let all = node.inputs.iter();
                all.map(|v| self.values((*v)?)).collect::<Option<_>>()?
            }
            _ => return None,
        };
        let operands: Vec<Option<&Tensor>> = operands.iter().map(Some).collect();
        reference::apply(&node.op, &operands).ok()?.pop()
    }
}

/// Every byte, in the order of the bytes as u8.
fn all_bytes(dtype: DType) -> Tensor {
    let mut t = Tensor::zeros(dtype, &[BYTES]);
    (0..=u8::MAX).zip(t.bytes_mut()).for_each(|(i, b)| *b = i);
    t
}

/// Whether an operator alone takes longer than to look its result up.
fn is_costly(op: &Op) -> bool {
    use Unary::{
        Abs, Ceil, Clip, Floor, HardSigmoid, HardSwish, LeakyRelu, Neg, Not, Relu, Round, Sign,
    };
    match op {
        Op::Unary(
            Neg
            | Abs
            | Sign
            | Relu
            | Clip { .. }
            | LeakyRelu { .. }
            | HardSigmoid { .. }
            | HardSwish
            | Floor
            | Ceil
            | Round
            | Not,
        ) => false,
        Op::Unary(_) | Op::Lookup => true,
        Op::Binary(b) => matches!(b, Binary::Pow | Binary::Div),
        _ => false,
    }
}
