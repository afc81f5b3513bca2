//! `If` with a condition that the data decide: both branches are computed, and one is taken.
//!
//! What a branch computes has no effect but its values, so this is right wherever both can be
//! computed. Where branches differ in size along an axis, a count says how much is live.

use super::Importer;
use super::control::{Stop, Values};
use crate::live::Extent;
use crate::node::{NodeImport, Problem};
use crate::proto::{GraphProto, NodeProto};
use graph::ValueId;
use graph::ops::{Op, Pad, PadMode};

impl Importer<'_> {
    /// The values of the branch that the condition names.
    pub(super) fn both_branches(
        &mut self,
        node: &NodeProto,
        condition: ValueId,
        [yes, no]: [&GraphProto; 2],
    ) -> Values {
        let (yes, no) = (self.inline(yes, &[])?, self.inline(no, &[])?);
        if yes.len() != no.len() {
            let reason = format!("its branches make {} and {} values", yes.len(), no.len());
            return Err(Stop::Node(Problem::Unsupported(reason)));
        }
        let name = match node.name() {
            "" => node.op_type().to_string(),
            name => name.to_string(),
        };
        let mut n = self.writer(node, &name);
        let condition = n.reshape(condition, vec![])?;
        let mut values = Vec::new();
        for (a, b) in yes.into_iter().zip(no) {
            values.push(taken(&mut n, condition, a, b)?);
        }
        Ok(values)
    }
}

fn taken(
    n: &mut NodeImport,
    condition: ValueId,
    yes: ValueId,
    no: ValueId,
) -> Result<ValueId, Problem> {
    if [yes, no].iter().any(|v| n.sequences.contains_key(v)) {
        return Problem::unsupported("its condition is open, and its branches make sequences");
    }
    if let Some(kind) = [yes, no].iter().find_map(|v| n.narrow.get(v)) {
        let name = kind.name;
        return Problem::unsupported(format!(
            "its condition is open, and its branches make {name}"
        ));
    }
    let (a, b) = (n.ty(yes).clone(), n.ty(no).clone());
    if a.dtype != b.dtype || a.rank() != b.rank() {
        return Problem::unsupported(format!("its branches make {a} and {b}"));
    }
    let shape: Vec<usize> = a
        .shape
        .iter()
        .zip(&b.shape)
        .map(|(a, b)| *a.max(b))
        .collect();
    let mut extents = Vec::new();
    for (axis, (from, to)) in a.shape.iter().zip(&b.shape).enumerate() {
        let counts = [n.live.count(yes, axis), n.live.count(no, axis)];
        if counts[0] == counts[1] && from == to {
            extents.extend(counts[0].map(|count| Extent { axis, count }));
            continue;
        }
        let [yes, no] = [(counts[0], *from), (counts[1], *to)]
            .map(|(count, size)| count.unwrap_or_else(|| n.number(size as i64)));
        let count = n.emit(Op::Where, &[condition, yes, no])?;
        extents.push(Extent { axis, count });
    }
    // An empty branch has nothing to take.
    let value = match (a.is_empty(), b.is_empty()) {
        (true, _) => n.emit(Op::Identity, &[no])?,
        (_, true) => n.emit(Op::Identity, &[yes])?,
        _ => {
            let (yes, no) = (padded(n, yes, &shape)?, padded(n, no, &shape)?);
            n.emit(Op::Where, &[condition, yes, no])?
        }
    };
    n.live.set(value, extents);
    Ok(value)
}

/// `x` with zeros behind it along every axis, up to a shape.
fn padded(n: &mut NodeImport, x: ValueId, shape: &[usize]) -> Result<ValueId, Problem> {
    let own = n.shape(x);
    if own == shape {
        return Ok(x);
    }
    let pads = own.iter().zip(shape).map(|(a, b)| (0, (b - a) as i64));
    let pad = Pad {
        mode: PadMode::Constant(0.0),
        pads: pads.collect(),
    };
    n.emit(Op::Pad(pad), &[x])
}
