//! Importers of operators on sequences of tensors.
//!
//! A sequence is a list of values while a model is read, and nothing is left of it then. Where a
//! name stands for one, its value is an empty constant of its own, which no other operator
//! reads.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Concat, Op, Split};
use std::collections::HashMap;
use tensor::{DType, Tensor};

/// The sequences of a model that is being imported, by the values that stand for them.
pub(crate) type Sequences = HashMap<ValueId, Vec<ValueId>>;

/// Operators that take sequences.
const TAKE_SEQUENCES: [&str; 9] = [
    "ConcatFromSequence",
    "Identity",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "SequenceAt",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
];

/// Refuses an operator that gets a sequence, unless it is one of theirs.
pub(crate) fn check(n: &NodeImport, operator: &str) -> Result<(), Problem> {
    let mut given = n.inputs.iter().flatten();
    match given.find(|v| n.sequences.contains_key(v)) {
        Some(v) if !TAKE_SEQUENCES.contains(&operator) => Problem::unsupported(format!(
            "its operand `{}` is a sequence of tensors, which this operator does not take here",
            n.model[*v].name()
        )),
        _ => Ok(()),
    }
}

/// A new sequence of these tensors.
pub(crate) fn made(n: &mut NodeImport, values: Vec<ValueId>) -> Imported {
    n.model.take_values(1 + values.len())?;
    let stands = Tensor::zeros(DType::U8, &[0]);
    let v = n.model.add_result(&n.name, stands);
    n.sequences.insert(v, values);
    Ok(vec![v])
}

/// Operand 0.
fn given(n: &NodeImport) -> Result<Vec<ValueId>, Problem> {
    let v = n.input(0)?;
    match n.sequences.get(&v) {
        Some(values) => Ok(values.clone()),
        None => Problem::unsupported(format!(
            "its operand `{}` is no sequence of tensors that the model makes",
            n.model[v].name()
        )),
    }
}

/// A position in a sequence of this length; `past` counts the one behind the last as well.
fn position(n: &NodeImport, i: usize, length: usize, past: bool) -> Result<usize, Problem> {
    let at = match n.constant_ints(i, "position")?.as_deref() {
        Some([at]) => *at,
        None if past => return Ok(length),
        None => length as i64 - 1,
        Some(other) => return Problem::unsupported(format!("its position is {other:?}")),
    };
    let from_start = match at < 0 {
        true => at.saturating_add(length as i64),
        false => at,
    };
    match usize::try_from(from_start) {
        Ok(p) if p < length || past && p == length => Ok(p),
        _ => Problem::unsupported(format!("position {at} in a sequence of {length} tensors")),
    }
}

pub(crate) fn empty(n: &mut NodeImport) -> Imported {
    n.attributes.ignore(&["dtype"]);
    made(n, Vec::new())
}

pub(crate) fn construct(n: &mut NodeImport) -> Imported {
    let values = n.all_inputs()?;
    made(n, values)
}

pub(crate) fn insert(n: &mut NodeImport) -> Imported {
    let (mut values, new) = (given(n)?, n.input(1)?);
    let at = position(n, 2, values.len(), true)?;
    values.insert(at, new);
    made(n, values)
}

pub(crate) fn erase(n: &mut NodeImport) -> Imported {
    let mut values = given(n)?;
    let at = position(n, 1, values.len(), false)?;
    values.remove(at);
    made(n, values)
}

pub(crate) fn at(n: &mut NodeImport) -> Imported {
    let values = given(n)?;
    let at = position(n, 1, values.len(), false)?;
    Ok(vec![values[at]])
}

pub(crate) fn length(n: &mut NodeImport) -> Imported {
    let count = given(n)?.len();
    Ok(vec![n.number(count as i64)])
}

/// An optional is the value that it holds.
pub(crate) fn optional(n: &mut NodeImport) -> Imported {
    n.attributes.ignore(&["type"]);
    match n.optional(0) {
        Some(held) => Ok(vec![held]),
        None => Problem::unsupported("it holds nothing"),
    }
}

pub(crate) fn has_element(n: &mut NodeImport) -> Imported {
    let held = f64::from(u8::from(n.optional(0).is_some()));
    Ok(vec![n.filled(DType::Bool, &[], held)?])
}

/// All tensors behind each other along an axis, or along a new one.
pub(crate) fn concat(n: &mut NodeImport) -> Imported {
    let mut values = given(n)?;
    let new = n.attributes.flag("new_axis", false)?;
    let Some(first) = values.first() else {
        return Problem::unsupported("the sequence is empty");
    };
    let Some(axis) = n.attributes.optional_int("axis")? else {
        return Problem::unsupported("its axis is missing");
    };
    let axis = n.axis(axis, n.ty(*first).rank() + usize::from(new))?;
    if values.iter().any(|v| !n.live.extents(*v).is_empty()) {
        return Problem::unsupported("the data decide the size of a tensor in the sequence");
    }
    if new {
        for v in &mut values {
            let mut shape = n.shape(*v);
            shape.insert(axis, 1);
            *v = n.reshape(*v, shape)?;
        }
    }
    match values[..] {
        [one] => Ok(vec![one]),
        _ => Ok(vec![n.emit(Op::Concat(Concat { axis }), &values)?]),
    }
}

/// The parts of a tensor along an axis, of one element each without sizes.
pub(crate) fn split(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let shape = n.shape(x);
    let axis = n.axis(n.attributes.int("axis", 0)?, shape.len())?;
    let keeps = n.attributes.flag("keepdims", true)?;
    let extent = shape[axis];
    let scalar = n.optional(1).is_some_and(|v| n.ty(v).rank() == 0);
    let given = n.constant_ints(1, "sizes")?;
    let drops = given.is_none() && !keeps;
    let sizes: Vec<usize> = match given {
        None => vec![1; extent],
        Some(sizes) => {
            let Ok(sizes) = sizes
                .iter()
                .map(|s| usize::try_from(*s))
                .collect::<Result<Vec<_>, _>>()
            else {
                return Problem::unsupported(format!("sizes {sizes:?}"));
            };
            match sizes[..] {
                [0] if scalar => return Problem::unsupported("parts of no element"),
                [each] if scalar => {
                    let parts = 0..extent.div_ceil(each);
                    parts.map(|i| each.min(extent - i * each)).collect()
                }
                _ => sizes,
            }
        }
    };
    n.model.room_for(sizes.len())?;
    let mut parts = match sizes.len() {
        0 => Vec::new(),
        1 if sizes[0] == extent => vec![x],
        _ => n.emit_all(Op::Split(Split { axis, sizes }), &[Some(x)])?,
    };
    if drops {
        let mut inner = shape;
        inner.remove(axis);
        for part in &mut parts {
            *part = n.reshape(*part, inner.clone())?;
        }
    }
    made(n, parts)
}
