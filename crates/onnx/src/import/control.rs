//! Control flow whose course is known when a model is read: `If` with a constant condition,
//! and `Loop` and `Scan` of constant length, written out. A `Loop` may end earlier than that
//! by a condition that the data decide.
//!
//! The nodes of a branch or body are imported like others. The names that they define hold
//! until it ends, and hide equal names outside. Its constants are made once, however often it
//! is written out.

use super::Importer;
use super::appended::{Appending, Pieces};
use crate::attributes::Attributes;
use crate::error::ImportError;
use crate::live::Extent;
use crate::node::{NodeImport, Problem};
use crate::proto::{GraphProto, NodeProto};
use crate::sequence;
use crate::tensors::any_tensor_from;
use graph::ops::{Binary, Concat, Op, Split};
use graph::{Exceeded, Model, ValueId};
use std::cell::RefCell;
use tensor::{DType, Tensor};

/// Iterations that are written out where the data say when they end. A larger number stands for none, so the condition has to
/// be known.
const MOST_OPEN_TRIPS: i64 = 4096;

/// Operators with graphs as attributes.
pub(super) const OPERATORS: [(&str, &str); 5] = [
    ("", "If"),
    ("", "Loop"),
    ("", "Scan"),
    ("", "SequenceMap"),
    ("ai.onnx.preview", "FlexAttention"),
];

/// What defines a constant of a graph: the address of the initializer or node, which stays.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Definition(*const ());

impl Definition {
    pub(super) fn of<T>(part: &T) -> Definition {
        Definition(std::ptr::from_ref(part).cast())
    }
}

/// Why a node with graphs has no values.
pub(super) enum Stop {
    Node(Problem),
    File(ImportError),
    /// A node before it, or in it, has been reported.
    Reported,
}

impl From<Problem> for Stop {
    fn from(p: Problem) -> Stop {
        Stop::Node(p)
    }
}

impl From<Exceeded> for Stop {
    fn from(e: Exceeded) -> Stop {
        Stop::Node(e.into())
    }
}

impl From<ImportError> for Stop {
    fn from(e: ImportError) -> Stop {
        Stop::File(e)
    }
}

pub(super) fn refuse<T>(reason: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Node(Problem::Unsupported(reason.into())))
}

pub(super) type Values = Result<Vec<ValueId>, Stop>;

/// What the iterations of a loop have made so far.
struct Course {
    state: Vec<ValueId>,
    /// By the outputs that collect.
    lists: Vec<Vec<ValueId>>,
    appending: Option<Appending>,
    /// By the states to which the body appends. They stay as they are until the loop ends.
    pieces: Vec<(usize, Pieces)>,
    /// Whether each iteration runs, from the first one on of which the data decide it.
    in_question: Vec<ValueId>,
}

impl Course {
    fn new(state: Vec<ValueId>, collected: usize, appending: Option<Appending>) -> Course {
        let states = appending.iter().flat_map(|a| a.states.iter());
        Course {
            pieces: states.map(|s| (*s, Pieces::new())).collect(),
            state,
            lists: vec![Vec::new(); collected],
            appending,
            in_question: Vec::new(),
        }
    }
}

impl Importer<'_> {
    /// The values of a node of [`OPERATORS`].
    pub(super) fn control(&mut self, node: &NodeProto, opset: i64, name: &str) -> Values {
        let attributes = Attributes::new(node);
        let inputs = self.operands(node, name)?;
        let values = match node.op_type() {
            "If" => self.branch(node, &attributes, &inputs),
            "Loop" => self.iterate(node, &attributes, &inputs, name),
            "SequenceMap" => self.map(node, &attributes, &inputs, name),
            "FlexAttention" => self.flex_attention(node, &attributes, &inputs, name),
            _ if opset < 9 => self.scan_of_batches(node, &attributes, &inputs, name),
            _ => self.scan(node, &attributes, &inputs, name),
        }?;
        let unread = attributes.unread();
        if !unread.is_empty() {
            return refuse(format!("attribute {} is not supported", unread.join(", ")));
        }
        if values.len() < node.output.len() {
            return refuse(format!(
                "its graph makes {} values for {} outputs",
                values.len(),
                node.output.len()
            ));
        }
        Ok(values)
    }

    fn operands(&self, node: &NodeProto, name: &str) -> Result<Vec<Option<ValueId>>, Stop> {
        let value = |input: &String| match self.values.get(input) {
            _ if input.is_empty() => Ok(None),
            Some(Some(id)) => Ok(Some(*id)),
            Some(None) => Err(Stop::Reported),
            None => Err(Stop::File(ImportError::Invalid(format!(
                "node `{name}` ({}) reads `{input}`, which nothing before it makes",
                node.op_type()
            )))),
        };
        node.input.iter().map(value).collect()
    }

    /// The one element of a constant.
    fn known(&self, value: ValueId, role: &str) -> Result<i64, Stop> {
        match self.model.constant(value) {
            Some(t) if t.len() == 1 => Ok(t.get_i64(0)),
            Some(t) => refuse(format!("its {role} has shape {:?}", t.shape())),
            None => Err(Stop::Node(Problem::NotConstant {
                value,
                role: role.to_string(),
            })),
        }
    }

    /// The values that a graph makes of others.
    pub(super) fn inline(&mut self, graph: &GraphProto, inputs: &[ValueId]) -> Values {
        let mut hidden = Vec::new();
        let values = self.inlined(graph, inputs, &mut hidden);
        for (name, old) in hidden.into_iter().rev() {
            match old {
                Some(value) => self.values.insert(name, value),
                None => self.values.remove(&name),
            };
        }
        values
    }

    fn inlined(
        &mut self,
        graph: &GraphProto,
        inputs: &[ValueId],
        hidden: &mut Vec<(String, Option<Option<ValueId>>)>,
    ) -> Values {
        if graph.input.len() != inputs.len() {
            return refuse(format!(
                "its graph `{}` has {} inputs and gets {}",
                graph.name(),
                graph.input.len(),
                inputs.len()
            ));
        }
        for (input, value) in graph.input.iter().zip(inputs) {
            let name = input.name().to_string();
            hidden.push((name.clone(), self.values.insert(name, Some(*value))));
        }
        // Work counts, also where it makes no values.
        let parts = [
            graph.input.len(),
            graph.initializer.len(),
            graph.node.len(),
            graph.output.len(),
        ];
        self.model.take_values(1 + parts.iter().sum::<usize>())?;
        for t in &graph.initializer {
            let name = t.name().to_string();
            let value = match self.written.get(&Definition::of(t)) {
                Some(value) => *value,
                None => match any_tensor_from(t.clone(), self.folder) {
                    Ok((value, kind)) => {
                        let id = self.model.add_constant(&name, value);
                        self.narrow.extend(kind.map(|k| (id, k)));
                        id
                    }
                    Err(e) => return refuse(format!("constant `{name}` of its graph: {e}")),
                },
            };
            self.written.insert(Definition::of(t), value);
            hidden.push((name.clone(), self.values.insert(name, Some(value))));
        }
        let problems = (self.unsupported.len(), self.needed.len());
        for (i, node) in graph.node.iter().enumerate() {
            for output in node.output.iter().filter(|o| !o.is_empty()) {
                hidden.push((output.clone(), self.values.remove(output)));
            }
            self.inlined_node(i, node)?;
        }
        if problems != (self.unsupported.len(), self.needed.len()) {
            return Err(Stop::Reported);
        }
        let result = |output: &crate::proto::ValueInfoProto| match self.values.get(output.name()) {
            Some(Some(value)) => Ok(*value),
            Some(None) => Err(Stop::Reported),
            None => Err(Stop::File(ImportError::Invalid(format!(
                "nothing makes the output `{}` of the graph `{}`",
                output.name(),
                graph.name()
            )))),
        };
        graph.output.iter().map(result).collect()
    }

    fn inlined_node(&mut self, index: usize, node: &NodeProto) -> Result<(), ImportError> {
        let constant = node.op_type() == "Constant" && node.domain().is_empty();
        let [output] = &node.output[..] else {
            return self.import_node(index, node);
        };
        if let Some(value) = self.written.get(&Definition::of(node)) {
            self.values.insert(output.clone(), Some(*value));
            return Ok(());
        }
        self.import_node(index, node)?;
        if let Some(Some(value)) = self.values.get(output)
            && constant
        {
            self.written.insert(Definition::of(node), *value);
        }
        Ok(())
    }

    fn branch(
        &mut self,
        node: &NodeProto,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
    ) -> Values {
        let (yes, no) = (
            attributes.graph("then_branch")?,
            attributes.graph("else_branch")?,
        );
        let [Some(condition)] = inputs else {
            return refuse(format!("it has {} inputs", node.input.len()));
        };
        if self.model.constant(*condition).is_none() && self.model[*condition].ty().len() == 1 {
            return self.both_branches(node, *condition, [yes, no]);
        }
        match self.known(*condition, "condition")? {
            0 => self.inline(no, &[]),
            _ => self.inline(yes, &[]),
        }
    }

    /// As importers append nodes.
    pub(super) fn writer<'b>(&'b mut self, node: &'b NodeProto, name: &str) -> NodeImport<'b> {
        NodeImport {
            model: &mut self.model,
            proto: node,
            attributes: Attributes::new(node),
            opset: 0,
            inputs: Vec::new(),
            read: RefCell::default(),
            name: name.to_string(),
            folder: self.folder,
            live: &mut self.live,
            sequences: &mut self.sequences,
            narrow: &mut self.narrow,
            at_bounds: false,
            notes: &mut self.notes,
            wanted: None,
            roundings: 0,
            training: self.training,
            parameters: &self.parameters,
        }
    }

    /// Values of one shape behind each other along a new axis.
    fn stacked(&mut self, node: &NodeProto, name: &str, parts: &[ValueId], axis: i64) -> Values {
        let mut n = self.writer(node, name);
        let Some(first) = parts.first().map(|p| n.ty(*p).clone()) else {
            return refuse("it runs no iteration, so the shape of what it collects is not known");
        };
        if parts.iter().any(|p| n.sequences.contains_key(p)) {
            return refuse("it collects sequences");
        }
        if let Some(kind) = parts.iter().find_map(|p| n.narrow.get(p)) {
            return refuse(format!("it collects values of type {}", kind.name));
        }
        let axis = n.axis(axis, first.rank() + 1)?;
        let mut shape = first.shape.clone();
        shape.insert(axis, 1);
        let mut rows = Vec::new();
        for part in parts {
            if n.ty(*part) != &first {
                return refuse(format!("it collects {first} and {}", n.ty(*part)));
            }
            rows.push(n.reshape(*part, shape.clone())?);
        }
        let all = match rows[..] {
            [row] => row,
            _ => n.emit(Op::Concat(Concat { axis }), &rows)?,
        };
        // What is collected has one size in all iterations.
        let moved = |e: &Extent| Extent {
            axis: e.axis + usize::from(e.axis >= axis),
            ..*e
        };
        let extents = n.live.extents(parts[0]).iter().map(moved).collect();
        n.live.set(all, extents);
        Ok(vec![all])
    }

    /// How many iterations a loop has at most; and if the data decide the number, where it is and how many there are at least.
    fn trips(
        &mut self,
        node: &NodeProto,
        name: &str,
        given: Option<ValueId>,
    ) -> Result<(i64, Option<(ValueId, i64)>), Stop> {
        let Some(given) = given else {
            return Ok((i64::MAX, None));
        };
        let mut n = self.writer(node, name);
        n.find_range(given);
        let range = n.live.range(given).cloned();
        let Some(range) = range.filter(|r| r.high.len() == 1) else {
            return Ok((self.known(given, "number of iterations")?, None));
        };
        let (least, most) = (range.low.get_i64(0), range.high.get_i64(0));
        if most > MOST_OPEN_TRIPS {
            return refuse(format!(
                "the data decide its number of iterations, which may be {most}; at most {MOST_OPEN_TRIPS} are written out"
            ));
        }
        let limit = n.reshape(given, vec![])?;
        let limit = n.cast(limit, DType::I64)?;
        Ok((most, Some((limit, least))))
    }

    fn iterate(
        &mut self,
        node: &NodeProto,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
        name: &str,
    ) -> Values {
        let body = attributes.graph("body")?;
        let given = |i: usize| inputs.get(i).copied().flatten();
        let (trips, limit) = self.trips(node, name, given(0))?;
        let may_be_open = trips <= MOST_OPEN_TRIPS;
        let is_open = |model: &Model, v| may_be_open && model.constant(v).is_none();
        // Where the data decide whether an iteration runs, the value that says so.
        let mut runs = None;
        let mut on = match given(1) {
            Some(v) if is_open(&self.model, v) => {
                runs = Some(self.runs_next(node, name, None, v)?);
                true
            }
            Some(condition) => self.known(condition, "condition")? != 0,
            None => true,
        };
        let state: Option<Vec<ValueId>> = inputs.iter().skip(2).copied().collect();
        let Some(state) = state else {
            return refuse("a value of its first iteration is missing");
        };
        let Some(collected) = body.output.len().checked_sub(1 + state.len()) else {
            return refuse(format!("its body makes {} values", body.output.len()));
        };
        let appending = self.appending(body, &state);
        let mut course = Course::new(state, collected, appending);
        let mut i = 0;
        while on && i < trips {
            let number = self.model.add_result(name, Tensor::from_slice(&[], &[i]));
            if let Some((limit, least)) = limit
                && i >= least
            {
                let mut n = self.writer(node, name);
                let within = n.binary(Binary::Less, number, limit)?;
                runs = Some(self.runs_next(node, name, runs, within)?);
            }
            let goes_on = self.iteration((node, body, name), number, runs, &mut course)?;
            match is_open(&self.model, goes_on) {
                true => runs = Some(self.runs_next(node, name, runs, goes_on)?),
                false => on = self.known(goes_on, "condition of going on")? != 0,
            }
            i += 1;
        }
        if i == 0 && collected > 0 {
            let mut state = course.state;
            state.extend(self.collected_nothing(node, body, &state, name)?);
            return Ok(state);
        }
        self.behind_loop(node, name, i as usize, course)
    }

    /// One iteration; gives whether the loop goes on.
    fn iteration(
        &mut self,
        (node, body, name): (&NodeProto, &GraphProto, &str),
        number: ValueId,
        runs: Option<ValueId>,
        course: &mut Course,
    ) -> Result<ValueId, Stop> {
        let holds = Tensor::from_bools(&[], &[true]);
        let holds = self.model.add_result(name, holds);
        let body = course.appending.as_ref().map_or(body, |a| &*a.body);
        let operands = [&[number, holds], &course.state[..]].concat();
        let values = self.inline_where(node, runs, body, &operands)?;
        let count = course.state.len();
        for (list, value) in course.lists.iter_mut().zip(&values[1 + count..]) {
            list.push(*value);
        }
        let mut made = values[1..=count].to_vec();
        for (state, pieces) in &mut course.pieces {
            pieces.push((made[*state], runs));
            made[*state] = course.state[*state];
        }
        course.state = match runs {
            Some(runs) => self.state_behind(node, name, runs, [&made, &course.state])?,
            None => made,
        };
        course.in_question.extend(runs);
        Ok(values[0])
    }

    /// The values of a loop of so many iterations.
    fn behind_loop(
        &mut self,
        node: &NodeProto,
        name: &str,
        trips: usize,
        course: Course,
    ) -> Values {
        let mut values = course.state;
        for (state, pieces) in course.pieces {
            values[state] = self.with_appended(node, name, values[state], pieces)?[0];
        }
        let kept = values.len();
        for list in course.lists {
            values.extend(self.stacked(node, name, &list, 0)?);
        }
        let in_question = &course.in_question[..];
        if !in_question.is_empty() {
            let first = trips - in_question.len();
            self.count_collected(node, name, (first, in_question), &values[kept..])?;
        }
        Ok(values)
    }

    /// What a loop of no iteration has collected. What its body would make tells of which shape. Nothing reads that, so
    /// the model loses it when it is simplified.
    fn collected_nothing(
        &mut self,
        node: &NodeProto,
        body: &GraphProto,
        state: &[ValueId],
        name: &str,
    ) -> Values {
        let number = self
            .model
            .add_result(name, Tensor::from_slice(&[], &[0i64]));
        let holds = Tensor::from_bools(&[], &[true]);
        let holds = self.model.add_result(name, holds);
        let made = self.inline(body, &[&[number, holds], state].concat())?;
        let n = self.writer(node, name);
        let empty = |v: &ValueId| {
            if n.sequences.contains_key(v) || n.narrow.contains_key(v) {
                return refuse(
                    "it collects sequences, or values of a type that no tensor here has",
                );
            }
            let shape = [&[0], &n.shape(*v)[..]].concat();
            Ok(Tensor::zeros(n.dtype(*v), &shape))
        };
        let made = &made[1 + state.len()..];
        let empty = made.iter().map(empty).collect::<Result<Vec<_>, _>>()?;
        let add = |t| self.model.add_result(name, t);
        Ok(empty.into_iter().map(add).collect())
    }

    fn scan(
        &mut self,
        node: &NodeProto,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
        name: &str,
    ) -> Values {
        let body = attributes.graph("body")?;
        let all: Option<Vec<ValueId>> = inputs.iter().copied().collect();
        let scanned = attributes.int("num_scan_inputs", 0)?;
        let (Some(mut state), Ok(scanned)) = (all, usize::try_from(scanned)) else {
            return refuse(format!("num_scan_inputs={scanned}, or an input is missing"));
        };
        if scanned == 0 || scanned > state.len() {
            return refuse(format!("it scans {scanned} of {} inputs", state.len()));
        }
        let scanned = state.split_off(state.len() - scanned);
        let Some(collected) = body.output.len().checked_sub(state.len()) else {
            return refuse(format!("its body makes {} values", body.output.len()));
        };
        let list = |name: &str, count: usize| match attributes.ints(name)? {
            None => Ok(vec![0; count]),
            Some(values) if values.len() == count => Ok(values.to_vec()),
            Some(values) => Problem::unsupported(format!("{name}={values:?} for {count} values")),
        };
        let axes = list("scan_input_axes", scanned.len())?;
        let backwards = list("scan_input_directions", scanned.len())?;
        let output_axes = list("scan_output_axes", collected)?;
        let output_backwards = list("scan_output_directions", collected)?;
        let mut parts = Vec::new();
        for (i, x) in scanned.iter().enumerate() {
            let mut own = self.parts(node, name, *x, axes[i])?;
            if backwards[i] != 0 {
                own.reverse();
            }
            parts.push(own);
        }
        let (mut state, lists) = self.scanned(body, (state, collected), &parts)?;
        for (i, mut list) in lists.into_iter().enumerate() {
            if output_backwards[i] != 0 {
                list.reverse();
            }
            state.extend(self.stacked(node, name, &list, output_axes[i])?);
        }
        Ok(state)
    }

    /// The state behind the last element of what is scanned, and what the body made for each.
    fn scanned(
        &mut self,
        body: &GraphProto,
        (mut state, collected): (Vec<ValueId>, usize),
        parts: &[Vec<ValueId>],
    ) -> Result<(Vec<ValueId>, Vec<Vec<ValueId>>), Stop> {
        let steps = parts.first().map_or(0, Vec::len);
        if steps == 0 || parts.iter().any(|p| p.len() != steps) {
            return refuse("what it scans differs in length, or is empty");
        }
        let mut lists = vec![Vec::new(); collected];
        for t in 0..steps {
            let elements = parts.iter().map(|p| p[t]);
            let values = state.iter().copied().chain(elements).collect::<Vec<_>>();
            let values = self.inline(body, &values)?;
            let (next, elements) = values.split_at(state.len());
            for (list, value) in lists.iter_mut().zip(elements) {
                list.push(*value);
            }
            state = next.to_vec();
        }
        Ok((state, lists))
    }

    /// The form of operator set 8: each sequence of a batch is scanned by itself. Its elements lie along the second axis.
    fn scan_of_batches(
        &mut self,
        node: &NodeProto,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
        name: &str,
    ) -> Values {
        let body = attributes.graph("body")?;
        let scanned = attributes.int("num_scan_inputs", 0)?;
        let Some((lengths, operands)) = inputs.split_first() else {
            return refuse("it has no inputs");
        };
        let all: Option<Vec<ValueId>> = operands.iter().copied().collect();
        let (Some(all), Ok(scanned)) = (all, usize::try_from(scanned)) else {
            return refuse(format!("num_scan_inputs={scanned}, or an input is missing"));
        };
        if scanned == 0 || scanned > all.len() {
            return refuse(format!("it scans {scanned} of {} inputs", all.len()));
        }
        let kept = all.len() - scanned;
        let Some(collected) = body.output.len().checked_sub(kept) else {
            return refuse(format!("its body makes {} values", body.output.len()));
        };
        let backwards = match attributes.ints("directions")? {
            None => vec![0; scanned],
            Some(given) if given.len() == scanned => given.to_vec(),
            Some(given) => return refuse(format!("directions={given:?} for {scanned} values")),
        };
        if let Some(lengths) = lengths {
            self.are_whole(node, name, *lengths, all[kept])?;
        }
        let mut batches = Vec::new();
        for x in &all {
            batches.push(self.parts(node, name, *x, 0)?);
        }
        let count = batches[0].len();
        if count == 0 || batches.iter().any(|b| b.len() != count) {
            return refuse("its operands differ in their batch, or are empty");
        }
        let mut results = vec![Vec::new(); body.output.len()];
        for b in 0..count {
            let state = batches[..kept].iter().map(|x| x[b]).collect();
            let mut parts = Vec::new();
            for (x, backwards) in batches[kept..].iter().zip(&backwards) {
                let mut own = self.parts(node, name, x[b], 0)?;
                if *backwards != 0 {
                    own.reverse();
                }
                parts.push(own);
            }
            let (state, lists) = self.scanned(body, (state, collected), &parts)?;
            let mut values = state;
            for list in &lists {
                values.extend(self.stacked(node, name, list, 0)?);
            }
            results.iter_mut().zip(values).for_each(|(r, v)| r.push(v));
        }
        let mut values = Vec::new();
        for parts in results {
            values.extend(self.stacked(node, name, &parts, 0)?);
        }
        Ok(values)
    }

    /// Refuses sequences that end before what is scanned.
    fn are_whole(
        &mut self,
        node: &NodeProto,
        name: &str,
        lengths: ValueId,
        scanned: ValueId,
    ) -> Result<(), Stop> {
        let n = self.writer(node, name);
        let whole = n.shape(scanned).get(1).copied().unwrap_or(0);
        let Some(given) = n.model.constant(lengths) else {
            return Err(Stop::Node(Problem::NotConstant {
                value: lengths,
                role: "lengths of sequences".to_string(),
            }));
        };
        let given: Vec<i64> = (0..given.len()).map(|i| given.get_i64(i)).collect();
        match given.iter().all(|l| *l == whole as i64) {
            true => Ok(()),
            false => refuse(format!(
                "its sequences have lengths {given:?}, where all {whole} elements are scanned"
            )),
        }
    }

    /// The body's values for each tensor of a sequence, with those at the same places of other sequences, and with
    /// other tensors as they are.
    fn map(
        &mut self,
        node: &NodeProto,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
        name: &str,
    ) -> Values {
        let body = attributes.graph("body")?;
        let all: Option<Vec<ValueId>> = inputs.iter().copied().collect();
        let all = all.unwrap_or_default();
        let lists: Vec<_> = all.iter().map(|v| self.sequences.get(v).cloned()).collect();
        let Some(Some(first)) = lists.first() else {
            return refuse("its first input is no sequence of tensors that the model makes");
        };
        let count = first.len();
        if let Some(other) = lists.iter().flatten().find(|l| l.len() != count) {
            return refuse(format!(
                "its sequences have {count} and {} tensors",
                other.len()
            ));
        }
        let mut results = vec![Vec::with_capacity(count); body.output.len()];
        for i in 0..count {
            let own = |(v, list): (&ValueId, &Option<Vec<ValueId>>)| match list {
                Some(list) => list[i],
                None => *v,
            };
            let values: Vec<ValueId> = all.iter().zip(&lists).map(own).collect();
            let values = self.inline(body, &values)?;
            results.iter_mut().zip(values).for_each(|(r, v)| r.push(v));
        }
        let mut n = self.writer(node, name);
        let mut made = Vec::with_capacity(results.len());
        for values in results {
            made.extend(sequence::made(&mut n, values)?);
        }
        Ok(made)
    }

    /// The elements along an axis, without it.
    fn parts(&mut self, node: &NodeProto, name: &str, x: ValueId, axis: i64) -> Values {
        let mut n = self.writer(node, name);
        let mut shape = n.shape(x);
        let axis = n.axis(axis, shape.len())?;
        let count = shape.remove(axis);
        n.model.room_for(count)?;
        let rows = match count {
            0 | 1 => vec![x; count],
            _ => {
                let sizes = vec![1; count];
                n.emit_all(Op::Split(Split { axis, sizes }), &[Some(x)])?
            }
        };
        let row = |r| n.reshape(r, shape.clone()).map_err(Stop::Node);
        let rows: Vec<ValueId> = rows.into_iter().map(row).collect::<Result<_, _>>()?;
        let kind = self.narrow.get(&x).copied();
        self.narrow.extend(
            kind.into_iter()
                .flat_map(|k| rows.iter().map(move |r| (*r, k))),
        );
        Ok(rows)
    }
}
