//! Loops that append rows to a state: what each iteration appends is collected, and joined once behind the loop.
//!
//! Exporters write a list of tensors so. Without this an iteration would copy what all iterations before it made.

use super::Importer;
use super::control::{Definition, Values};
use crate::attributes::Attributes;
use crate::live::Extent;
use crate::node::{Imported, NodeImport, Problem};
use crate::proto::{GraphProto, NodeProto};
use crate::tensors::data_type;
use graph::ValueId;
use graph::ops::{Binary, Concat, Gather, Op};
use std::sync::Arc;
use tensor::DType;

/// The body of a loop, of which some states are what an iteration appends to them.
#[derive(Clone)]
pub(super) struct Appending {
    pub(super) body: Arc<GraphProto>,
    /// Which states these are.
    pub(super) states: Vec<usize>,
}

/// What the iterations of a loop have appended to a state, each with whether it runs if the data decide that.
pub(super) type Pieces = Vec<(ValueId, Option<ValueId>)>;

/// How often a graph names a value, also in the graphs of its nodes.
fn uses(graph: &GraphProto, name: &str) -> usize {
    let own = graph.output.iter().filter(|o| o.name() == name).count();
    let by = |node: &NodeProto| {
        let inputs = node.input.iter().filter(|i| *i == name).count();
        let inner = node.attribute.iter();
        let inner = inner.filter_map(|a| a.g.as_ref());
        inputs + inner.map(|g| uses(g, name)).sum::<usize>()
    };
    own + graph.node.iter().map(by).sum::<usize>()
}

/// The node that appends rows to a state, if nothing else reads the state: the state comes first in what it joins.
fn appending(body: &GraphProto, state: usize, dtype: DType) -> Option<usize> {
    let (input, output) = (body.input.get(2 + state)?, body.output.get(1 + state)?);
    let maker = |name: &str| {
        let makes = |n: &NodeProto| n.domain().is_empty() && n.output == [name];
        body.node.iter().position(makes)
    };
    let at = maker(output.name())?;
    let node = &body.node[at];
    let rows = matches!(Attributes::new(node).int("axis", -1), Ok(0));
    if node.op_type() != "Concat" || !rows || node.input.len() < 2 || uses(body, output.name()) > 1
    {
        return None;
    }
    let mut name = node.input[0].as_str();
    loop {
        if uses(body, name) != 1 {
            return None;
        }
        if name == input.name() {
            return Some(at);
        }
        let node = &body.node[maker(name)?];
        let same = match node.op_type() {
            "Identity" => true,
            "Cast" => {
                matches!(Attributes::new(node).int("to", 0), Ok(to) if to == i64::from(data_type(dtype)))
            }
            _ => false,
        };
        name = node.input.first().filter(|_| same)?;
    }
}

impl Importer<'_> {
    /// A loop's body without the joining of states with what is appended to them.
    pub(super) fn appending(&mut self, body: &GraphProto, state: &[ValueId]) -> Option<Appending> {
        let is_plain =
            |v: &ValueId| !self.narrow.contains_key(v) && !self.sequences.contains_key(v);
        let all = state.iter().enumerate().filter(|(_, v)| is_plain(v));
        let all = all.filter_map(|(i, v)| {
            let ty = self.model[*v].ty();
            Some((i, appending(body, i, ty.dtype)?))
        });
        let (states, nodes): (Vec<usize>, Vec<usize>) = all.unzip();
        if states.is_empty() {
            return None;
        }
        // Constants of a body are known by where they lie: a body stays, and is made once.
        let key = (Definition::of(body), states.clone());
        let made = self.appending.entry(key).or_insert_with(|| {
            let mut body = body.clone();
            for node in nodes {
                body.node[node].input.remove(0);
            }
            let body = Arc::new(body);
            Appending { body, states }
        });
        Some(made.clone())
    }

    /// A state, and behind it the rows that iterations which run have appended.
    pub(super) fn with_appended(
        &mut self,
        node: &NodeProto,
        name: &str,
        state: ValueId,
        pieces: Pieces,
    ) -> Values {
        let mut n = self.writer(node, name);
        Ok(joined(&mut n, state, pieces)?)
    }
}

fn joined(n: &mut NodeImport, state: ValueId, pieces: Pieces) -> Imported {
    let first = n.ty(state).clone();
    let mut parts = vec![(state, None)];
    parts.extend(pieces);
    for (v, _) in &parts {
        let ty = n.ty(*v);
        if ty.dtype != first.dtype || first.rank() == 0 || ty.shape[1..] != first.shape[1..] {
            return Problem::unsupported(format!("it appends {ty} to {first}"));
        }
    }
    let is_fixed = |n: &NodeImport, d| parts.iter().any(|(v, _)| n.live.count(*v, d).is_none());
    let last = parts[parts.len() - 1].0;
    let others = n.live.extents(last).iter().copied();
    let mut extents: Vec<Extent> = others
        .filter(|e| e.axis > 0 && !is_fixed(n, e.axis))
        .collect();
    let rows: Vec<ValueId> = parts.iter().map(|p| p.0).collect();
    let open = |n: &NodeImport| parts.iter().any(|p| n.live.count(p.0, 0).is_some());
    let mut y = n.emit(Op::Concat(Concat { axis: 0 }), &rows)?;
    let count = match (open(n), parts.iter().any(|p| p.1.is_some())) {
        (false, false) => None,
        (false, true) => Some(rows_of_those_that_run(n, &parts)?),
        (true, _) => {
            let mut sizes = Vec::new();
            for (v, runs) in &parts {
                let bound = n.ty(*v).shape[0];
                let own = n.live.count(*v, 0);
                let count = match runs {
                    Some(runs) => {
                        let own = own.unwrap_or_else(|| n.number(bound as i64));
                        let none = n.number(0);
                        Some(n.emit(Op::Where, &[*runs, own, none])?)
                    }
                    None => own,
                };
                sizes.push((bound, count));
            }
            let chosen = n.joined(sizes)?;
            y = n.emit(Op::Gather(Gather { axis: 0 }), &[y, chosen.positions])?;
            Some(chosen.count)
        }
    };
    extents.extend(count.map(|count| Extent { axis: 0, count }));
    n.live.set(y, extents);
    Ok(vec![y])
}

/// The number of rows of parts of known sizes. An iteration that does not run has none behind it that runs.
fn rows_of_those_that_run(
    n: &mut NodeImport,
    parts: &[(ValueId, Option<ValueId>)],
) -> Result<ValueId, Problem> {
    let rows = |n: &NodeImport, v: ValueId| n.ty(v).shape[0] as i64;
    let sure = parts.iter().filter(|p| p.1.is_none());
    let sure = sure.map(|p| rows(n, p.0)).sum();
    let mut count = n.number(sure);
    for (v, runs) in parts {
        if let Some(runs) = runs {
            let own = n.number(rows(n, *v));
            let runs = n.cast(*runs, DType::I64)?;
            let own = n.binary(Binary::Mul, runs, own)?;
            count = n.binary(Binary::Add, count, own)?;
        }
    }
    Ok(count)
}
