//! The model that does to each of another number of rows what a model does to its own.
//!
//! The rules of the proof say where each value has the rows. Then sizes that count rows
//! are known wherever they stand: in the shapes of reshapes, broadcasts and slices, and in
//! constants with one copy for each row.

use super::{Facts, Stack};
use crate::model::{Model, Node, NodeId, TensorType, ValueId};
use crate::ops::{Expand, Op, Reshape, Slice};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tensor::{Tensor, byte_size};

/// The model with `count` rows of a dimension, which `inputs` have (position of an input,
/// axis). Each row of its outputs is computed as the model computes its own.
///
/// # Errors
/// Says which node does not keep rows apart.
pub fn with_rows(model: &Model, inputs: &[(usize, usize)], count: usize) -> Result<Model, String> {
    let model = model.without_dead_code();
    if !model.crops().is_empty() || !model.states().is_empty() {
        return Err("the model counts its results or keeps a state".into());
    }
    let size = |(i, axis): &(usize, usize)| model[model.inputs()[*i]].shape()[*axis];
    let from = inputs.first().map_or(0, size);
    if from == 0 || count == 0 || inputs.iter().any(|place| size(place) != from) {
        return Err(format!("{from} rows cannot become {count}"));
    }
    let mut search = Search {
        model: &model,
        inputs,
        from,
        choices: HashMap::new(),
    };
    let found = search.run()?;
    found.build(&model, from, count)
}

/// Where the values of a model have the rows.
#[derive(Default)]
struct Found {
    rows: HashMap<ValueId, Stack>,
    /// Operands of a node that are constants, and get rows there.
    repeated: HashMap<NodeId, Vec<(usize, Repeated)>>,
    /// Reshapes that may put the rows on several axes, which have one element for each.
    open: HashMap<NodeId, usize>,
}

#[derive(Clone, Copy)]
struct Repeated {
    rows: Stack,
    indices: Option<Indices>,
}

/// Constant indices along the rows of an operand.
#[derive(Clone, Copy)]
struct Indices {
    /// What an index of the next row has more.
    step: usize,
    /// Which of as many indices as make a position.
    part: usize,
    of: usize,
}

impl Repeated {
    /// Of a constant, how many elements lie together for each row.
    fn elements(&self, t: &Tensor) -> usize {
        let Stack { axis, each, .. } = self.rows;
        each * t.shape()[axis + 1..].iter().product::<usize>()
    }

    /// What an element has more than that of the first row, in its place.
    fn more(&self, element: usize, row: usize) -> usize {
        let own = self.indices.filter(|i| element % i.of == i.part);
        own.map_or(0, |i| row * i.step)
    }
}

/// Which node does not keep rows apart.
struct Stop {
    node: NodeId,
    why: String,
}

/// One row may lie on any of several axes of size 1. Choices are made where a reshape makes such
/// an axis, and made anew where a node does not keep rows apart.
struct Search<'a> {
    model: &'a Model,
    inputs: &'a [(usize, usize)],
    from: usize,
    /// Which of its axes a reshape gives to the rows, if not the first.
    choices: HashMap<NodeId, usize>,
}

impl Search<'_> {
    /// # Errors
    /// What stopped the first attempt, if no other succeeds.
    fn run(&mut self) -> Result<Found, String> {
        let mut found = Found::default();
        for (at, axis) in self.inputs {
            let input = self.model.inputs()[*at];
            found.rows.insert(input, Stack::new(*axis, 1));
        }
        let (mut first, mut start) = (None, 0);
        while let Err(stop) = self.attempt(&mut found, start) {
            let why = first.get_or_insert(stop.why);
            let Some(reshape) = self.nearest_open(&found, stop.node) else {
                return Err(why.clone());
            };
            *self.choices.entry(reshape).or_default() += 1;
            start = reshape.index();
        }
        Ok(found)
    }

    /// The nearest reshape before a node that has another axis for the rows; of those as near,
    /// the one with the fewest choices so far.
    fn nearest_open(&self, found: &Found, node: NodeId) -> Option<NodeId> {
        let (mut seen, mut level) = (HashSet::from([node]), vec![node]);
        let chosen = |node: &NodeId| self.choices.get(node).copied().unwrap_or(0);
        let is_open = |node: &NodeId| found.open.get(node).is_some_and(|n| chosen(node) + 1 < *n);
        while !level.is_empty() {
            let open = level.iter().filter(|node| is_open(node));
            if let Some(nearest) = open.min_by_key(|node| chosen(node)) {
                return Some(*nearest);
            }
            let operands = level.iter().flat_map(|node| &self.model[*node].inputs);
            let before = operands.flatten().filter_map(|v| self.model.producer(*v));
            level = before
                .map(|(node, _)| node)
                .filter(|node| seen.insert(*node))
                .collect();
        }
        None
    }

    /// Follows the rows through all nodes from one on; before it they are known.
    fn attempt(&self, found: &mut Found, start: usize) -> Result<(), Stop> {
        for (id, node) in self.model.nodes().skip(start) {
            self.node(found, id, node).map_err(|why| Stop {
                node: id,
                why: format!("node `{}` ({}) {why}", node.name, node.op.name()),
            })?;
        }
        Ok(())
    }

    fn node(&self, found: &mut Found, id: NodeId, node: &Node) -> Result<(), String> {
        let rows = |v: &Option<ValueId>| v.and_then(|v| found.rows.get(&v).copied());
        let mut facts = Facts {
            operands: node
                .inputs
                .iter()
                .map(|v| v.map(|v| self.model[v].ty()))
                .collect(),
            constants: node
                .inputs
                .iter()
                .map(|v| self.model.constant((*v)?).map(|t| &**t))
                .collect(),
            rows: node.inputs.iter().map(rows).collect(),
            result: self.model[node.outputs[0]].ty(),
            size: self.from,
        };
        let Some(own) = facts.rows.iter().flatten().next().copied() else {
            return Ok(());
        };
        let kept = match &node.op {
            Op::Reshape(_) => {
                let places = facts.places()?;
                let chosen = self.choices.get(&id).copied().unwrap_or(0);
                found.open.insert(id, places.len());
                // An earlier reshape that chose anew may leave fewer axes.
                let place = places.get(chosen).or(places.last());
                place.copied().ok_or("mixes rows")?
            }
            op => match facts.kept(op) {
                Ok(kept) => {
                    found.repeated.remove(&id);
                    kept
                }
                Err(why) => {
                    let repeated = facts.repeat_constants(op, own).ok_or(why)?;
                    found.repeated.insert(id, repeated);
                    facts.kept(op)?
                }
            },
        };
        for v in &node.outputs {
            if self.model[*v].shape().get(kept.axis) != Some(&kept.size(self.from)) {
                return Err("mixes rows".into());
            }
            found.rows.insert(*v, kept);
        }
        Ok(())
    }
}

impl Facts<'_> {
    /// Gives constants rows, as many as `own` says, so that the operator keeps rows apart;
    /// the operands that got them.
    fn repeat_constants(&mut self, op: &Op, own: Stack) -> Option<Vec<(usize, Repeated)>> {
        let given = self.rows.clone();
        let rank = self.operands.iter().flatten().map(|x| x.rank()).max()?;
        for axis in 0..rank {
            let mut repeated = Vec::new();
            for at in 0..given.len() {
                let indices = self.indices(op, at);
                let Some(rows) = self.stacked(at, axis, own, indices.is_some()) else {
                    continue;
                };
                let repeat = Repeated { rows, indices };
                if self.rows_follow(at, repeat) {
                    self.rows[at] = Some(rows);
                    repeated.push((at, repeat));
                }
            }
            if !repeated.is_empty() && self.kept(op).is_ok() {
                return Some(repeated);
            }
            self.rows.clone_from(&given);
        }
        None
    }

    /// How an operand picks along the rows of the first one, if it does.
    fn indices(&self, op: &Op, at: usize) -> Option<Indices> {
        let rows = self.rows[0].filter(|_| at == 1)?;
        let (part, of) = match op {
            Op::Gather(g) => (rows.axis.checked_sub(g.axis)?, 1),
            Op::GatherNd(g) => {
                let depth = *self.operands[1]?.shape.last()?;
                (rows.axis.checked_sub(g.batch)?, depth)
            }
            _ => return None,
        };
        let step = rows.each;
        (part < of).then_some(Indices { step, part, of })
    }

    /// The rows that a constant without any may have on an axis.
    fn stacked(&self, at: usize, axis: usize, own: Stack, picks: bool) -> Option<Stack> {
        let free = self.constants[at].filter(|_| self.rows[at].is_none())?;
        let size = *free.shape().get(axis)?;
        let place = match picks {
            true => Stack::new(axis, size / self.size),
            false => Stack { axis, ..own },
        };
        (size > 0 && size == place.size(self.size)).then_some(place)
    }

    /// Whether a constant has the same in each row, but for what indices have more.
    fn rows_follow(&self, at: usize, repeated: Repeated) -> bool {
        let Some(t) = self.constants[at] else {
            return false;
        };
        let own = repeated.elements(t);
        if repeated.indices.is_none() {
            let bytes = own * t.dtype().size();
            let mut blocks = t.bytes().chunks_exact(bytes * self.size);
            return blocks.all(|all| all.chunks_exact(bytes).all(|row| row == &all[..bytes]));
        }
        (0..t.len()).all(|i| {
            let row = i / own % self.size;
            t.get_i64(i) == t.get_i64(i - row * own) + repeated.more(i, row) as i64
        })
    }
}

impl Found {
    fn build(&self, model: &Model, from: usize, count: usize) -> Result<Model, String> {
        let sized = |shape: &[usize], rows: Option<&Stack>| {
            let mut shape = shape.to_vec();
            if let Some(rows) = rows {
                shape[rows.axis] = rows.size(count);
            }
            shape
        };
        let mut target = Model::new(&model.name, model.opset);
        let mut map: HashMap<ValueId, ValueId> = HashMap::new();
        for v in model.inputs() {
            let (name, ty) = (model[*v].name(), model[*v].ty());
            let shape = sized(&ty.shape, self.rows.get(v));
            if !TensorType::new(ty.dtype, &shape).is_possible() {
                return Err(format!("input `{name}` would have shape {shape:?}"));
            }
            map.insert(*v, target.add_input(name, ty.dtype, &shape));
        }
        for (v, t) in model.constants() {
            map.insert(v, target.add_result(model[v].name(), t.clone()));
        }
        for (id, node) in model.nodes() {
            let mut operands: Vec<_> = node.inputs.iter().map(|v| v.map(|v| map[&v])).collect();
            for (at, repeated) in self.repeated.get(&id).into_iter().flatten() {
                let Some(v) = node.inputs[*at] else { continue };
                let Some(t) = model.constant(v) else { continue };
                let name = model[v].name();
                let t = repeat(t, *repeated, (from, count))
                    .ok_or_else(|| format!("the constant `{name}` would be too large"))?;
                operands[*at] = Some(target.add_constant(name, t));
            }
            let rows = self.rows.get(&node.outputs[0]);
            let op = match &node.op {
                Op::Reshape(r) => Op::Reshape(Reshape {
                    shape: sized(&r.shape, rows),
                }),
                Op::Expand(e) => Op::Expand(Expand {
                    shape: sized(&e.shape, rows),
                }),
                Op::Slice(s) => Op::Slice(Slice {
                    sizes: sized(&s.sizes, rows),
                    ..s.clone()
                }),
                op => op.clone(),
            };
            let outputs = target
                .add_node(&node.name, op, &operands)
                .map_err(|e| e.to_string())?;
            for (old, new) in node.outputs.iter().zip(outputs) {
                target.take_name(new, model[*old].name());
                map.insert(*old, new);
            }
        }
        for v in model.outputs() {
            target.take_name(map[v], model[*v].name());
            target.add_output(map[v]);
        }
        Ok(target.without_dead_code())
    }
}

/// A constant with its first row for each of `count`; `None` if that is too large.
fn repeat(t: &Tensor, repeated: Repeated, (from, count): (usize, usize)) -> Option<Arc<Tensor>> {
    let rows = repeated.rows;
    let own = repeated.elements(t);
    let bytes = own * t.dtype().size();
    let mut shape = t.shape().to_vec();
    shape[rows.axis] = rows.size(count);
    let mut all = Vec::new();
    all.try_reserve_exact(byte_size(t.dtype(), &shape)?).ok()?;
    for block in t.bytes().chunks_exact(bytes * from) {
        for _ in 0..count {
            all.extend_from_slice(&block[..bytes]);
        }
    }
    let mut t = Tensor::from_bytes(t.dtype(), &shape, &all)?;
    if repeated.indices.is_some() {
        for i in 0..t.len() {
            let more = repeated.more(i, i / own % count);
            t.set_i64(i, t.get_i64(i) + more as i64);
        }
    }
    Some(Arc::new(t))
}
