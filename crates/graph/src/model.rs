//! The model graph: values and nodes in arenas with typed ids.
//!
//! Promises: nodes stand in topological order (an id is only handed out once
//! what it names exists, and nodes are only appended), every value has a static
//! type and a unique name, and node outputs have the types their operator
//! infers. Changes are made by appending or by [`Model::rewrite`], which builds
//! a new model; [`Model::verify`] checks every promise from scratch.

mod fold;
mod limits;
mod states;
mod verify;

use limits::{Allowance, description};
pub use limits::{Exceeded, Limit, Limits};
pub use states::State;

use crate::ops::{Op, OpError};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Index;
use std::sync::Arc;
use tensor::{Crop, DType, Tensor};
use thiserror::Error;

/// A value of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(u32);

/// A node of one model; ids ascend in topological order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl ValueId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Of one value.
const MAX_BYTES: u64 = 1 << 40;

/// Element type and static shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    pub dtype: DType,
    pub shape: Vec<usize>,
}

impl TensorType {
    pub fn new(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType {
            dtype,
            shape: shape.to_vec(),
        }
    }

    pub fn of(t: &Tensor) -> TensorType {
        TensorType::new(t.dtype(), t.shape())
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a model may have values of this type: larger ones are refused, those without
    /// elements by their other dimensions, so that sizes and offsets never overflow.
    pub fn is_possible(&self) -> bool {
        let size = |n: u64, d: &usize| n.checked_mul((*d).max(1) as u64);
        let bytes = self.shape.iter().try_fold(self.dtype.size() as u64, size);
        bytes.is_some_and(|n| n <= MAX_BYTES)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        write!(f, "{}[{}]", self.dtype, dims.join(","))
    }
}

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Position in [`Model::inputs`].
    Input(usize),
    Constant(Arc<Tensor>),
    /// Output `.1` of a node.
    Node(NodeId, usize),
}

#[derive(Clone, Debug)]
pub struct Value {
    name: String,
    ty: TensorType,
    origin: Origin,
}

impl Value {
    /// Unique within the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.ty.shape
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    pub op: Op,
    /// An absent optional operand is `None`.
    pub inputs: Vec<Option<ValueId>>,
    pub outputs: Vec<ValueId>,
}

impl Node {
    /// Input `i`, if it is present.
    pub fn input(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i).copied().flatten()
    }

    /// The only output of a node that has one.
    ///
    /// # Panics
    /// If the node has several outputs.
    pub fn output(&self) -> ValueId {
        assert_eq!(
            self.outputs.len(),
            1,
            "node `{}` has several outputs",
            self.name
        );
        self.outputs[0]
    }
}

/// Why a node cannot be added.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("node `{node}` ({op}): {source}")]
pub struct ModelError {
    pub node: String,
    pub op: &'static str,
    pub source: OpError,
}

/// A bound model. See the module documentation for its promises.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub name: String,
    /// The ONNX operator set it was written in; 0 for a model built in code.
    pub opset: i64,
    values: Vec<Value>,
    nodes: Vec<Node>,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    crops: Vec<Crop>,
    states: Vec<State>,
    names: HashMap<String, ValueId>,
    node_names: HashMap<String, NodeId>,
    allowance: Allowance,
}

/// How much of a model there was ([`Model::mark`]).
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    values: usize,
    nodes: usize,
    allowance: Allowance,
}

impl Model {
    pub fn new(name: &str, opset: i64) -> Model {
        Model {
            name: name.to_string(),
            opset,
            ..Model::default()
        }
    }

    /// What the model may take. Those of a model that is not read from a file are the defaults.
    pub fn set_limits(&mut self, limits: Limits) {
        self.allowance.limits = limits;
    }

    /// Whether the model may have so many values more.
    ///
    /// # Errors
    /// If its limits do not allow that.
    pub fn room_for(&self, values: usize) -> Result<(), Exceeded> {
        self.allowance.room_for(values)
    }

    /// Counts `values` as values of the model.
    ///
    /// # Errors
    /// If its limits do not allow them.
    pub fn take_values(&mut self, values: usize) -> Result<(), Exceeded> {
        self.allowance.room_for(values)?;
        self.allowance.count(values as u64, 0);
        Ok(())
    }

    /// Appends a graph input. A taken name gets a numeric suffix.
    pub fn add_input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> ValueId {
        let origin = Origin::Input(self.inputs.len());
        let id = self.add_value(name, TensorType::new(dtype, shape), origin);
        self.inputs.push(id);
        id
    }

    /// Appends a constant. A taken name gets a numeric suffix.
    pub fn add_constant(&mut self, name: &str, value: impl Into<Arc<Tensor>>) -> ValueId {
        let value = value.into();
        self.allowance.extend(value.bytes().len());
        self.add_result(name, value)
    }

    /// As [`Model::add_constant`], for a constant that was computed from others or
    /// shares its bytes with one: it does not add to what the model may compute
    /// ([`Model::take_elements`]).
    pub fn add_result(&mut self, name: &str, value: impl Into<Arc<Tensor>>) -> ValueId {
        let value = value.into();
        let ty = TensorType::of(&value);
        self.add_value(name, ty, Origin::Constant(value))
    }

    /// Appends a node; its outputs are typed by the operator's shape rule and
    /// named after the node (see [`Model::rename`]). A taken name gets a
    /// numeric suffix.
    ///
    /// # Errors
    /// If the operator refuses the operands; nothing has changed then.
    pub fn add_node(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[Option<ValueId>],
    ) -> Result<Vec<ValueId>, ModelError> {
        let types: Vec<_> = inputs
            .iter()
            .map(|i| i.map(|v| &self.values[v.index()].ty))
            .collect();
        let outputs = op.infer(&types).map_err(|source| ModelError {
            node: name.to_string(),
            op: op.name(),
            source,
        })?;
        let id = NodeId(arena_index(self.nodes.len()));
        let name = free_name(name, |n| self.node_names.contains_key(n));
        let outputs = outputs
            .into_iter()
            .enumerate()
            .map(|(i, ty)| {
                let suffix = if i == 0 {
                    String::new()
                } else {
                    format!(".{i}")
                };
                self.add_value(&format!("{name}{suffix}"), ty, Origin::Node(id, i))
            })
            .collect::<Vec<_>>();
        let operands = description(&name, inputs.len());
        self.allowance.count(0, operands);
        self.node_names.insert(name.clone(), id);
        self.nodes.push(Node {
            name,
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
        });
        Ok(outputs)
    }

    /// Appends a node with all operands present and one output, which it returns.
    ///
    /// # Errors
    /// As [`Model::add_node`].
    ///
    /// # Panics
    /// If the operator has several outputs.
    pub fn add(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId, ModelError> {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        let outputs = self.add_node(name, op, &inputs)?;
        assert_eq!(outputs.len(), 1, "node `{name}` has several outputs");
        Ok(outputs[0])
    }

    /// Appends a graph output.
    pub fn add_output(&mut self, value: ValueId) {
        assert!(value.index() < self.values.len());
        self.outputs.push(value);
    }

    /// Appends a graph output that bears `name`. A value that is already
    /// another output or an input gets an `Identity`.
    pub fn add_named_output(&mut self, value: ValueId, name: &str) {
        let bound = self.outputs.contains(&value) || self.inputs.contains(&value);
        let value = if bound && self.value(value).name != name {
            self.add(name, Op::Identity, &[value])
                .expect("Identity takes any operand")
        } else {
            value
        };
        self.take_name(value, name);
        self.outputs.push(value);
    }

    /// Declares that of an output only the first elements along an axis are results, as many
    /// as `count`, one i64, says. `count` becomes another output; the model gets no output
    /// of results after it.
    ///
    /// # Panics
    /// If the output has no such axis, or `count` is of another type.
    pub fn crop_output(&mut self, output: usize, axis: usize, count: ValueId) {
        assert!(axis < self[self.outputs[output]].shape().len());
        assert_eq!(self[count].ty(), &TensorType::new(DType::I64, &[]));
        let known = self.crops.iter().find(|c| self.outputs[c.count] == count);
        let count = match known {
            Some(crop) => crop.count,
            None => {
                let name = format!("{}.count", self[self.outputs[output]].name);
                let own = matches!(self[count].origin, Origin::Node(..));
                let count = match own && !self.outputs.contains(&count) {
                    true => count,
                    false => self
                        .add(&name, Op::Identity, &[count])
                        .expect("Identity takes any operand"),
                };
                self.outputs.push(count);
                self.outputs.len() - 1
            }
        };
        self.crops.push(Crop {
            output,
            axis,
            count,
        });
    }

    /// Outputs of which only a part is result, in no order.
    pub fn crops(&self) -> &[Crop] {
        &self.crops
    }

    /// The outputs that are results: all but counts.
    pub fn results(&self) -> &[ValueId] {
        &self.outputs[..tensor::results(self.outputs.len(), &self.crops)]
    }

    /// Gives `value` a new name; a taken one gets a numeric suffix.
    pub fn rename(&mut self, value: ValueId, name: &str) {
        if self.value(value).name == name {
            return;
        }
        let name = free_name(name, |n| self.names.contains_key(n));
        let old = std::mem::replace(&mut self.values[value.index()].name, name.clone());
        self.names.remove(&old);
        self.names.insert(name, value);
    }

    /// As [`Model::rename`], but whoever holds the name gives it up.
    pub fn take_name(&mut self, value: ValueId, name: &str) {
        if let Some(holder) = self.names.get(name).copied().filter(|h| *h != value) {
            let other = free_name(name, |n| self.names.contains_key(n));
            self.rename(holder, &other);
        }
        self.rename(value, name);
    }

    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All values, by id.
    pub fn values(&self) -> impl ExactSizeIterator<Item = (ValueId, &Value)> + Clone {
        self.values
            .iter()
            .enumerate()
            .map(|(i, v)| (ValueId(i as u32), v))
    }

    /// All nodes in topological order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> + ExactSizeIterator {
        self.nodes
            .iter()
            .enumerate()
            .map(|(i, n)| (NodeId(i as u32), n))
    }

    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    pub fn outputs(&self) -> &[ValueId] {
        &self.outputs
    }

    /// All constants, by id.
    pub fn constants(&self) -> impl Iterator<Item = (ValueId, &Arc<Tensor>)> {
        self.values().filter_map(|(id, v)| match &v.origin {
            Origin::Constant(t) => Some((id, t)),
            _ => None,
        })
    }

    /// The value, if it is a constant.
    pub fn constant(&self, id: ValueId) -> Option<&Arc<Tensor>> {
        match &self.value(id).origin {
            Origin::Constant(t) => Some(t),
            _ => None,
        }
    }

    /// The node and output position that define a value.
    pub fn producer(&self, id: ValueId) -> Option<(NodeId, usize)> {
        match self.value(id).origin {
            Origin::Node(node, output) => Some((node, output)),
            _ => None,
        }
    }

    pub fn find_value(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    pub fn find_node(&self, name: &str) -> Option<NodeId> {
        self.node_names.get(name).copied()
    }

    /// Who reads each value, computed in one pass.
    pub fn users(&self) -> Users {
        let mut users = Users {
            reads: vec![Vec::new(); self.values.len()],
            is_output: vec![false; self.values.len()],
        };
        for (id, node) in self.nodes() {
            for (slot, input) in node.inputs.iter().enumerate() {
                if let Some(v) = input {
                    users.reads[v.index()].push((id, slot));
                }
            }
        }
        for v in &self.outputs {
            users.is_output[v.index()] = true;
        }
        users
    }

    /// Builds a new model by visiting the nodes in order. For every node, `f`
    /// appends whatever replaces it to [`Rewrite::target`] and returns one new
    /// value for each of its outputs ([`Rewrite::copy`] keeps the node).
    /// Inputs, and the names and order of outputs, are preserved; only
    /// constants that are asked for come along.
    ///
    /// # Errors
    /// The first error of `f`.
    ///
    /// # Panics
    /// If `f` returns the wrong number of values or a value of another type.
    pub fn rewrite<E>(
        &self,
        mut f: impl FnMut(&mut Rewrite<'_>, NodeId, &Node) -> Result<Vec<ValueId>, E>,
    ) -> Result<Model, E> {
        let mut rewrite = self.start_rewrite(self.known());
        for (id, node) in self.nodes() {
            let new = f(&mut rewrite, id, node)?;
            rewrite.bind_outputs(node, &new);
        }
        Ok(rewrite.finish())
    }

    /// The values of all constants, by id.
    fn known(&self) -> Vec<Option<Arc<Tensor>>> {
        let of = |v: &Value| match &v.origin {
            Origin::Constant(t) => Some(t.clone()),
            _ => None,
        };
        self.values.iter().map(of).collect()
    }

    fn start_rewrite(&self, known: Vec<Option<Arc<Tensor>>>) -> Rewrite<'_> {
        let mut target = Model::new(&self.name, self.opset);
        target.allowance = self.allowance.of_copy();
        target.crops.clone_from(&self.crops);
        target.states.clone_from(&self.states);
        let mut rewrite = Rewrite {
            source: self,
            target,
            known,
            map: vec![None; self.values.len()],
            mapped: HashSet::new(),
        };
        for &v in &self.inputs {
            let Value { name, ty, .. } = self.value(v);
            let new = rewrite.target.add_input(name, ty.dtype, &ty.shape);
            rewrite.bind(v, new);
        }
        rewrite
    }

    /// The model without nodes and constants that no output depends on. Inputs
    /// stay: they are the model's signature.
    pub fn without_dead_code(&self) -> Model {
        let mut live = vec![false; self.values.len()];
        for v in &self.outputs {
            live[v.index()] = true;
        }
        for (_, node) in self.nodes().rev() {
            if node.outputs.iter().any(|v| live[v.index()]) {
                for v in node.inputs.iter().flatten() {
                    live[v.index()] = true;
                }
            }
        }
        let mut rewrite = self.start_rewrite(self.known());
        for (_, node) in self
            .nodes()
            .filter(|(_, n)| n.outputs.iter().any(|v| live[v.index()]))
        {
            let new = rewrite.copy(node);
            rewrite.bind_outputs(node, &new);
        }
        rewrite.finish()
    }

    /// Where to return to by [`Model::return_to`].
    pub fn mark(&self) -> Mark {
        Mark {
            values: self.values.len(),
            nodes: self.nodes.len(),
            allowance: self.allowance,
        }
    }

    /// Removes the constants and nodes that were added since the mark, which no input or
    /// output may be.
    pub fn return_to(&mut self, mark: Mark) {
        for v in self.values.drain(mark.values..) {
            self.names.remove(&v.name);
        }
        for n in self.nodes.drain(mark.nodes..) {
            self.node_names.remove(&n.name);
        }
        self.allowance = mark.allowance;
    }

    fn add_value(&mut self, name: &str, ty: TensorType, origin: Origin) -> ValueId {
        let id = ValueId(arena_index(self.values.len()));
        self.allowance.count(1, description(name, ty.rank()));
        let name = free_name(name, |n| self.names.contains_key(n));
        self.names.insert(name.clone(), id);
        self.values.push(Value { name, ty, origin });
        id
    }
}

impl Index<ValueId> for Model {
    type Output = Value;
    fn index(&self, id: ValueId) -> &Value {
        self.value(id)
    }
}

impl Index<NodeId> for Model {
    type Output = Node;
    fn index(&self, id: NodeId) -> &Node {
        self.node(id)
    }
}

impl fmt::Display for Model {
    /// One line a value or node, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model {} (opset {})", self.name, self.opset)?;
        for &v in &self.inputs {
            writeln!(f, "input {}: {}", self[v].name, self[v].ty)?;
        }
        for (v, _) in self.constants() {
            writeln!(f, "constant {}: {}", self[v].name, self[v].ty)?;
        }
        for (_, node) in self.nodes() {
            let names = |v: &Option<ValueId>| v.map_or("-", |v| self[v].name()).to_string();
            let inputs: Vec<_> = node.inputs.iter().map(names).collect();
            let outputs: Vec<_> = node
                .outputs
                .iter()
                .map(|v| format!("{}: {}", self[*v].name, self[*v].ty))
                .collect();
            writeln!(
                f,
                "{} = {:?}({})",
                outputs.join(", "),
                node.op,
                inputs.join(", ")
            )?;
        }
        let outputs: Vec<_> = self.outputs.iter().map(|v| self[*v].name()).collect();
        writeln!(f, "output {}", outputs.join(", "))
    }
}

/// The state of one [`Model::rewrite`].
pub struct Rewrite<'a> {
    pub source: &'a Model,
    pub target: Model,
    /// Values that become constants when they are first asked for.
    known: Vec<Option<Arc<Tensor>>>,
    map: Vec<Option<ValueId>>,
    /// What `map` holds.
    mapped: HashSet<ValueId>,
}

impl Rewrite<'_> {
    fn bind(&mut self, old: ValueId, new: ValueId) {
        self.map[old.index()] = Some(new);
        self.mapped.insert(new);
    }

    /// What `old` became. Known values are carried over when first asked for.
    ///
    /// # Panics
    /// If `old` is made by a node that has not been visited yet.
    pub fn value(&mut self, old: ValueId) -> ValueId {
        if let Some(new) = self.map[old.index()] {
            return new;
        }
        let name = &self.source.value(old).name;
        let Some(t) = self.known[old.index()].take() else {
            panic!("`{name}` is asked for before it is made");
        };
        let new = self.target.add_result(name, t);
        self.bind(old, new);
        new
    }

    /// What the operands of a node became.
    pub fn operands(&mut self, node: &Node) -> Vec<Option<ValueId>> {
        node.inputs
            .iter()
            .map(|v| v.map(|v| self.value(v)))
            .collect()
    }

    /// Keeps a node as it is.
    pub fn copy(&mut self, node: &Node) -> Vec<ValueId> {
        let inputs = self.operands(node);
        self.target
            .add_node(&node.name, node.op.clone(), &inputs)
            .expect("a node of a valid model is valid in its copy")
    }

    fn finish(mut self) -> Model {
        for &v in &self.source.outputs {
            let new = self.value(v);
            // A constant came along when it was first read, when another could have its name.
            self.target.take_name(new, &self.source.value(v).name);
            self.target.outputs.push(new);
        }
        self.target
    }

    fn bind_outputs(&mut self, node: &Node, new: &[ValueId]) {
        assert_eq!(
            new.len(),
            node.outputs.len(),
            "replacing node `{}`",
            node.name
        );
        for (&old, &new) in node.outputs.iter().zip(new) {
            let Value { name, ty, .. } = self.source.value(old);
            assert_eq!(
                &self.target[new].ty, ty,
                "replacing `{name}` of node `{}`",
                node.name
            );
            let is_output = self.source.outputs.contains(&old);
            let new = if is_output {
                self.own_output(name, new)
            } else {
                new
            };
            let made_here = matches!(self.target[new].origin, Origin::Node(..));
            if is_output || made_here && !self.mapped.contains(&new) {
                self.target.take_name(new, name);
            }
            self.bind(old, new);
        }
    }

    /// A graph output keeps its own name, so it may not share a value with an
    /// input or another output: an `Identity` separates them.
    fn own_output(&mut self, name: &str, new: ValueId) -> ValueId {
        let shared = self
            .source
            .outputs
            .iter()
            .any(|o| self.map[o.index()] == Some(new));
        if !shared && !matches!(self.target[new].origin, Origin::Input(_)) {
            return new;
        }
        self.target
            .add(name, Op::Identity, &[new])
            .expect("Identity takes any operand")
    }
}

/// Who reads each value of a model; see [`Model::users`].
#[derive(Clone, Debug)]
pub struct Users {
    reads: Vec<Vec<(NodeId, usize)>>,
    is_output: Vec<bool>,
}

impl Users {
    /// Reading nodes with the operand position, in topological order.
    pub fn of(&self, value: ValueId) -> &[(NodeId, usize)] {
        &self.reads[value.index()]
    }

    pub fn is_output(&self, value: ValueId) -> bool {
        self.is_output[value.index()]
    }

    /// The one node that reads `value`, if nothing else does.
    pub fn sole(&self, value: ValueId) -> Option<NodeId> {
        match (self.of(value), self.is_output(value)) {
            ([(node, _)], false) => Some(*node),
            _ => None,
        }
    }
}

fn arena_index(len: usize) -> u32 {
    u32::try_from(len).expect("a model has fewer than 2^32 values")
}

fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let name = if name.is_empty() { "unnamed" } else { name };
    if !taken(name) {
        return name.to_string();
    }
    // Of many equal names the suffixes in use are the first ones: found by halving.
    let suffixed = |i: u64| format!("{name}_{i}");
    let (mut used, mut free) = (0, 1);
    while taken(&suffixed(free)) {
        (used, free) = (free, free * 2);
    }
    while free - used > 1 {
        let middle = used + (free - used) / 2;
        if taken(&suffixed(middle)) {
            used = middle;
        } else {
            free = middle;
        }
    }
    suffixed(free)
}
