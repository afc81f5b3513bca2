//! Nodes of operators without a rule in `sized`, on operands whose size the data decide.
//!
//! Such a node is imported alone at two sizes of what is live, and `graph` proves from both that rows stay apart, or
//! that rows of zeros behind the live ones change nothing. So an operator needs no rule of its own where its
//! definition, written out in operators of `graph`, says enough.

use super::complete;
use super::sized::{ELEMENTWISE, refuse, set};
use crate::attributes::Attributes;
use crate::indexing::counting;
use crate::live::{Extent, Live};
use crate::narrow::Narrows;
use crate::node::{Imported, NodeImport, Problem};
use crate::operators::Operator;
use crate::sequence::Sequences;
use graph::ops::{Binary, Gather, Op};
use graph::{Model, Rows, ValueId, padded, rows_apart};
use std::cell::RefCell;
use std::collections::HashMap;

/// Operators, beside those of elements, that repeat what an operand has once along an axis.
const BROADCASTING: [&str; 7] = [
    "Einsum",
    "Gemm",
    "LayerNormalization",
    "MatMul",
    "MatMulInteger",
    "QLinearMatMul",
    "RMSNormalization",
];

/// Axes of operands that have one size, which a count gives.
struct Dim {
    count: ValueId,
    bound: usize,
    axes: Vec<(ValueId, usize)>,
}

/// What was proven of a node: where each of its results has the rows, and the operands that are to be zero where they
/// are not live.
struct Proven {
    results: Vec<Option<Rows>>,
    zeros: Vec<ValueId>,
}

/// A node's importer is tried alone, and its results are live where the rows of its operands stay apart.
pub(super) fn import(n: &mut NodeImport, operator: &Operator) -> Imported {
    let by_count = dims(n, |_, own, other| own == other);
    let all = match proven(n, operator, &by_count) {
        Some(all) => Some((by_count, all)),
        // Operands of one size may have it from several counts, which are equal then.
        None => {
            let by_size = dims(n, |bounds, _, _| bounds[0] == bounds[1]);
            proven(n, operator, &by_size).map(|all| (by_size, all))
        }
    };
    let Some((dims, all)) = all else {
        return refuse(n);
    };
    for (dim, proof) in dims.iter().zip(&all) {
        for v in &proof.zeros {
            let own = dim.axes.iter().filter(|(of, _)| of == v);
            let axes: Vec<usize> = own.map(|(_, axis)| *axis).collect();
            let places: Vec<usize> = (0..n.inputs.len())
                .filter(|i| n.inputs[*i] == Some(*v))
                .collect();
            let masked = n.masked(*v, &axes, 0.0)?;
            places.into_iter().for_each(|i| n.inputs[i] = Some(masked));
        }
    }
    let values = complete(n, operator.import)?;
    let mut live = Vec::new();
    for (i, v) in values.into_iter().enumerate() {
        let mut extents: Vec<Extent> = Vec::new();
        for (dim, proof) in dims.iter().zip(&all) {
            let Some(Rows { axis, each }) = proof.results.get(i).copied().flatten() else {
                continue;
            };
            if extents.iter().any(|e| e.axis == axis) {
                return refuse(n);
            }
            let count = match each {
                1 => dim.count,
                _ => {
                    let each = n.number(each as i64);
                    n.binary(Binary::Mul, dim.count, each)?
                }
            };
            extents.push(Extent { axis, count });
        }
        // A result that depends on no operand may be one that another node has as well.
        let v = match n.model.constant(v).is_some() && !extents.is_empty() {
            true => n.emit(Op::Identity, &[v])?,
            false => v,
        };
        live.push(set(n, v, extents)?);
    }
    Ok(live)
}

/// The live axes of a node's operands, of which those are together that are `alike`, by their bounds and counts.
fn dims(n: &NodeImport, alike: impl Fn([usize; 2], ValueId, ValueId) -> bool) -> Vec<Dim> {
    let mut found: Vec<Dim> = Vec::new();
    for v in n.inputs.iter().flatten() {
        for Extent { axis, count } in n.live.extents(*v) {
            let (place, bound) = ((*v, *axis), n.ty(*v).shape[*axis]);
            let own = found
                .iter_mut()
                .find(|d| alike([d.bound, bound], d.count, *count));
            match own {
                Some(dim) if dim.axes.contains(&place) => {}
                Some(dim) => dim.axes.push(place),
                None => found.push(Dim {
                    count: *count,
                    bound,
                    axes: vec![place],
                }),
            }
        }
    }
    found
}

/// What can be proven of each size, if it can of all.
fn proven(n: &NodeImport, operator: &Operator, dims: &[Dim]) -> Option<Vec<Proven>> {
    dims.iter().map(|dim| proof(n, operator, dim)).collect()
}

fn proof(n: &NodeImport, operator: &Operator, dim: &Dim) -> Option<Proven> {
    let models = |from: usize, to: usize| {
        let small = alone(n, operator, dim, from)?;
        let (large, places, inputs) = alone(n, operator, dim, to)?;
        Some((small.0, large, places, inputs))
    };
    if let Some((small, large, places, _)) = models(dim.bound, dim.bound + 1)
        && let Ok(results) = rows_apart(&small, &large, &places)
    {
        let zeros = Vec::new();
        return Some(Proven { results, zeros });
    }
    // From one row on, as each number of rows may be the live one; and with one row more, as one row is the corner of
    // constants that depend on the size.
    let both = [(dim.bound, dim.bound + 1), (1, dim.bound.max(2))].map(|(from, to)| {
        let (small, large, places, inputs) = models(from, to)?;
        let proof = padded(&small, &large, &places).ok()?;
        let zeros = proof.zeros.iter().map(|i| inputs[*i]).collect();
        let results = proof.outputs;
        proof
            .hidden_by
            .is_none()
            .then_some(Proven { results, zeros })
    });
    match both {
        [Some(a), Some(b)] if a.results == b.results && a.zeros == b.zeros => Some(a),
        _ => None,
    }
}

/// Operands get the sizes that others force them to have: a fixed size of another operand is that of an axis with a count,
/// or the count is 1 and the operand is repeated.
pub(super) fn fit(n: &mut NodeImport, operator: &Operator) -> Result<(), Problem> {
    // Each step takes a count from an operand at least.
    loop {
        let dims = dims(n, |bounds, _, _| bounds[0] == bounds[1]);
        let found = dims
            .iter()
            .find_map(|dim| Some((dim, forced(n, operator, dim)?)));
        let Some((dim, (size, repeats))) = found else {
            return Ok(());
        };
        for (v, axis) in &dim.axes {
            let fitted = fitted(n, *v, *axis, (size, repeats))?;
            let own = n.inputs.iter_mut().filter(|given| **given == Some(*v));
            own.for_each(|given| *given = Some(fitted));
        }
    }
}

/// The one size of a live axis that the node takes, if there is one, and whether it takes 1 as well and repeats that.
fn forced(n: &NodeImport, operator: &Operator, dim: &Dim) -> Option<(usize, bool)> {
    let takes = |size: usize| alone(n, operator, dim, size).is_some();
    let mut sizes: Vec<usize> = Vec::new();
    for v in n.inputs.iter().flatten() {
        let shape = n.shape(*v).into_iter().enumerate();
        let fixed = shape.filter(|(axis, _)| n.live.count(*v, *axis).is_none());
        sizes.extend(fixed.map(|(_, size)| size).filter(|size| *size > 1));
    }
    if takes(dim.bound) {
        let broadcasts = ELEMENTWISE.contains(&operator.name);
        sizes.retain(|size| broadcasts && *size == dim.bound);
    }
    if ["Concat", "Squeeze"].contains(&operator.name) {
        sizes.push(1);
    }
    sizes.sort_unstable();
    sizes.dedup();
    let is_only = |size: usize| {
        let larger = [size + 1, size + 2, 2 * size, 4 * size, 12 * size];
        let mut others = larger.into_iter().chain((size > 2).then_some(size - 1));
        takes(size) && others.all(|other| other == size || !takes(other))
    };
    let size = sizes.into_iter().find(|size| is_only(*size))?;
    let repeats = size > 1 && takes(1);
    let broadcasts = BROADCASTING.contains(&operator.name) || !operator.domain.is_empty();
    // Of other operators 1 has a meaning of its own, such as numbers without an imaginary part.
    (!repeats || broadcasts || ELEMENTWISE.contains(&operator.name)).then_some((size, repeats))
}

/// `x` with a fixed size along a live axis: its first elements, or its only one everywhere if it `repeats`.
pub(super) fn fitted(
    n: &mut NodeImport,
    x: ValueId,
    axis: usize,
    (size, repeats): (usize, bool),
) -> Result<ValueId, Problem> {
    let mut extents = n.live.extents(x).to_vec();
    let (bound, count) = (n.ty(x).shape[axis], n.live.count(x, axis));
    extents.retain(|e| e.axis != axis);
    if bound == 0 {
        return refuse(n);
    }
    let y = match count {
        Some(count) if repeats || bound != size => {
            let mut places = counting(n, size, 0, 1, 0)?;
            if bound < size {
                let last = n.number(bound as i64 - 1);
                places = n.binary(Binary::Min, places, last)?;
            }
            if repeats {
                let (zero, one) = (n.number(0), n.number(1));
                let single = n.binary(Binary::Equal, count, one)?;
                places = n.emit(Op::Where, &[single, zero, places])?;
            }
            n.emit(Op::Gather(Gather { axis }), &[x, places])?
        }
        _ => n.emit(Op::Identity, &[x])?,
    };
    n.live.set(y, extents);
    Ok(y)
}

/// A model of a node alone, with a size of what is live; the places of that size in its inputs; and the operands that
/// these are.
type Alone = (Model, Vec<(usize, usize)>, Vec<ValueId>);

fn alone(n: &NodeImport, operator: &Operator, dim: &Dim, size: usize) -> Option<Alone> {
    let mut model = Model::new(&n.name, n.opset);
    let (mut places, mut operands) = (Vec::new(), Vec::new());
    let (mut known, mut narrow) = (HashMap::new(), Narrows::new());
    for v in n.inputs.iter().flatten() {
        if known.contains_key(v) {
            continue;
        }
        let name = n.model[*v].name();
        let id = match n.model.constant(*v) {
            Some(t) => model.add_constant(name, t.clone()),
            None => {
                let mut ty = n.ty(*v).clone();
                for (_, axis) in dim.axes.iter().filter(|(of, _)| of == v) {
                    ty.shape[*axis] = size;
                    places.push((operands.len(), *axis));
                }
                operands.push(*v);
                model.add_input(name, ty.dtype, &ty.shape)
            }
        };
        narrow.extend(n.narrow.get(v).map(|kind| (id, *kind)));
        known.insert(*v, id);
    }
    let (mut live, mut sequences, mut notes) = (Live::default(), Sequences::new(), Vec::new());
    let mut node = NodeImport {
        model: &mut model,
        proto: n.proto,
        attributes: Attributes::new(n.proto),
        opset: n.opset,
        inputs: n.inputs.iter().map(|v| v.map(|v| known[&v])).collect(),
        read: RefCell::default(),
        name: n.name.clone(),
        folder: n.folder,
        live: &mut live,
        sequences: &mut sequences,
        narrow: &mut narrow,
        at_bounds: false,
        notes: &mut notes,
        wanted: None,
        roundings: 0,
        training: n.training,
        parameters: n.parameters,
    };
    let values: Result<_, Problem> = complete(&mut node, operator.import);
    let values = values.ok()?;
    // What an importer says is live itself is not for this proof.
    if !sequences.is_empty() || values.iter().any(|v| live.concerns(*v)) {
        return None;
    }
    values.into_iter().for_each(|v| model.add_output(v));
    Some((model, places, operands))
}
