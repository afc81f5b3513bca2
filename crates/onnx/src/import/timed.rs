//! Nodes that go along a sequence of which the data decide how long it is.

use super::complete;
use super::sized::{refuse, set, set_all};
use crate::live::Extent;
use crate::node::{Imported, NodeImport, Problem};
use crate::operators::Operator;
use graph::ValueId;
use graph::ops::{Binary, Expand, Op};
use tensor::DType;

/// A sequence is no longer than what is live: so what is live changes places only with what is.
pub(super) fn reversed(n: &mut NodeImport, operator: &Operator) -> Imported {
    let (x, lengths) = (n.input(0)?, n.input(1)?);
    let rank = n.ty(x).rank();
    let batch = n.axis(n.attributes.int("batch_axis", 1)?, rank)?;
    // Where only one of both is live `apart` finds what that means.
    if n.live.count(x, batch).is_some() != n.live.count(lengths, 0).is_some() {
        return refuse(n);
    }
    let extents = n.live.extents(x).to_vec();
    n.inputs[1] = Some(n.masked(lengths, &[0], 0.0)?);
    let values = complete(n, operator.import)?;
    set_all(n, values, &extents)
}

/// The count along the batch, if the data decide that of all operands that have one.
fn batch(n: &NodeImport, places: &[(usize, usize)]) -> Result<Option<ValueId>, Problem> {
    let given = places.iter().filter_map(|(i, axis)| {
        let v = n.inputs.get(*i).copied().flatten()?;
        Some(n.live.count(v, *axis))
    });
    let counts: Vec<_> = given.collect();
    match counts.iter().all(Option::is_some) {
        true => Ok(counts[0]),
        false if counts.iter().all(Option::is_none) => Ok(None),
        false => refuse(n),
    }
}

/// Steps of a recurrent network end where what is live does: this is the length of all sequences of the batch, unless
/// they have lengths of their own.
pub(super) fn recurrent(n: &mut NodeImport, operator: &Operator) -> Imported {
    let x = n.input(0)?;
    let batch_first = n.attributes.flag("layout", false)?;
    let (time, across) = if batch_first { (1, 0) } else { (0, 1) };
    let Some(count) = n.live.count(x, time) else {
        return refuse(n);
    };
    let places = [(0, across), (4, 0), (5, across), (6, across)];
    let own = batch(n, &places)?;
    let known = |i: usize, axis: usize| places.contains(&(i, axis)) || (i, axis) == (0, time);
    for (i, v) in n.inputs.iter().enumerate() {
        let extents = v.map_or(&[][..], |v| n.live.extents(v));
        if extents.iter().any(|e| !known(i, e.axis)) {
            return refuse(n);
        }
    }
    // Bytes stand for a range of numbers, which what is not live is not to widen.
    if !operator.domain.is_empty() {
        n.inputs[0] = Some(n.masked(x, &[time, across], 0.0)?);
    }
    let sequences = n.shape(x)[across];
    let lengths = match n.inputs.get(4).copied().flatten() {
        Some(lengths) => {
            let lengths = n.cast(lengths, DType::I64)?;
            n.binary(Binary::Min, lengths, count)?
        }
        None => {
            let shape = vec![sequences];
            n.emit(Op::Expand(Expand { shape }), &[count])?
        }
    };
    n.inputs.resize(n.inputs.len().max(5), None);
    n.inputs[4] = Some(lengths);
    let values = complete(n, operator.import)?;
    let mut results = Vec::new();
    for (i, v) in values.into_iter().enumerate() {
        let mut extents = Vec::new();
        let axis = match (i, batch_first) {
            (0, false) => 2,
            (_, true) => 0,
            (_, false) => 1,
        };
        extents.extend(own.map(|count| Extent { axis, count }));
        if i == 0 {
            extents.push(Extent { axis: time, count });
        }
        results.push(set(n, v, extents)?);
    }
    Ok(results)
}
