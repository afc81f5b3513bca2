//! `If` with a condition that the data decide: both branches are computed, and one is taken.
//! `Loop` likewise: all iterations are computed, and those behind the end change nothing.
//!
//! What a branch computes has no effect but its values, so this is right wherever both can be
//! computed. Where branches differ in size along an axis, a count says how much is live.

use super::Importer;
use super::control::{Stop, Values};
use super::inputs::{deciding, is_data};
use crate::live::Extent;
use crate::node::{NodeImport, Problem};
use crate::proto::{GraphProto, NodeProto};
use graph::ValueId;
use graph::ops::{Binary, Op, Pad, PadMode, Unary};
use tensor::DType;

impl Importer<'_> {
    /// The values of the branch that the condition names.
    pub(super) fn both_branches(
        &mut self,
        node: &NodeProto,
        condition: ValueId,
        [yes, no]: [&GraphProto; 2],
    ) -> Values {
        let mut n = self.writer(node, node.name());
        let holds = n.reshape(condition, vec![])?;
        let fails = n.unary(Unary::Not, holds)?;
        let yes = self.inline_where(node, Some(holds), yes, &[])?;
        let no = self.inline_where(node, Some(fails), no, &[])?;
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

    /// The values that a graph makes, which count only where a condition holds.
    pub(super) fn inline_where(
        &mut self,
        node: &NodeProto,
        holds: Option<ValueId>,
        graph: &GraphProto,
        inputs: &[ValueId],
    ) -> Values {
        let around = self.guard;
        self.guard = match (around, holds) {
            (Some(around), Some(holds)) => {
                let mut n = self.writer(node, node.name());
                Some(n.binary(Binary::And, around, holds)?)
            }
            (around, holds) => around.or(holds),
        };
        let values = self.inline(graph, inputs);
        self.guard = around;
        values
    }

    /// The state behind an iteration of a loop: as the iteration made it, or as it was if the iteration does not run.
    pub(super) fn state_behind(
        &mut self,
        node: &NodeProto,
        name: &str,
        runs: ValueId,
        [made, before]: [&[ValueId]; 2],
    ) -> Values {
        let mut n = self.writer(node, name);
        let both = made.iter().zip(before);
        let values = both.map(|(new, old)| taken(&mut n, runs, *new, *old));
        Ok(values.collect::<Result<Vec<_>, _>>()?)
    }

    /// Whether the next iteration runs: this one does, and the condition holds.
    pub(super) fn runs_next(
        &mut self,
        node: &NodeProto,
        name: &str,
        runs: Option<ValueId>,
        condition: ValueId,
    ) -> Result<ValueId, Stop> {
        let mut n = self.writer(node, name);
        let condition = n.reshape(condition, vec![])?;
        match runs {
            Some(runs) => Ok(n.binary(Binary::And, runs, condition)?),
            None => Ok(condition),
        }
    }

    /// Marks how many rows a loop has collected: those of the first iterations, and one for each later one that runs.
    pub(super) fn count_collected(
        &mut self,
        node: &NodeProto,
        name: &str,
        (first, later): (usize, &[ValueId]),
        collected: &[ValueId],
    ) -> Result<(), Stop> {
        let mut n = self.writer(node, name);
        let mut count = n.number(first as i64);
        for runs in later {
            let one = n.cast(*runs, DType::I64)?;
            count = n.binary(Binary::Add, count, one)?;
        }
        for rows in collected {
            let mut extents = n.live.extents(*rows).to_vec();
            extents.push(Extent { axis: 0, count });
            n.live.set(*rows, extents);
        }
        Ok(())
    }
}

fn taken(
    n: &mut NodeImport,
    condition: ValueId,
    yes: ValueId,
    no: ValueId,
) -> Result<ValueId, Problem> {
    if yes == no {
        return Ok(yes);
    }
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
        // Of sizes, which a user can give, the branch is chosen when the model is read.
        let inputs = deciding(n.model, condition);
        if !inputs.is_empty() && !inputs.iter().any(|i| is_data(n.model, i)) {
            let role = "condition".to_string();
            return Err(Problem::NotConstant {
                value: condition,
                role,
            });
        }
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
