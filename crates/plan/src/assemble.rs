//! Putting a plan together: tensors, conversions, tasks and steps.

use crate::compute::{self, Built};
use crate::fold;
use crate::fuse::Group;
use crate::layout::{Choice, Layout, keeps_blocks};
use crate::task::Task;
use crate::views;
use crate::{Plan, PlanStep, PlanTensor, PlanTensorId, TensorKind};
use graph::ops::Op;
use graph::{Model, Origin, Users, ValueId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The plan of fused groups in their layouts. `groups` are in execution order.
pub(crate) fn assemble(model: Model, groups: &[Group], choices: &[Choice]) -> Plan {
    let mut assembler = Assembler {
        model: &model,
        users: model.users(),
        tensors: Vec::new(),
        stored: HashMap::new(),
        homes: HashMap::new(),
        tasks: Vec::new(),
        by_key: HashMap::new(),
        steps: Vec::new(),
        step_names: HashSet::new(),
        conversions: 0,
    };
    let inputs: Vec<PlanTensorId> = model
        .inputs()
        .iter()
        .enumerate()
        .map(|(i, v)| assembler.add(*v, Layout::Plain, TensorKind::Input(i)))
        .collect();
    for (group, choice) in groups.iter().zip(choices) {
        assembler.group(group, choice);
    }
    let outputs: Vec<PlanTensorId> = model
        .outputs()
        .iter()
        .map(|v| assembler.output(*v))
        .collect();
    let Assembler {
        tasks,
        steps,
        mut tensors,
        conversions,
        ..
    } = assembler;
    name_tensors(&model, &mut tensors, inputs.iter().chain(&outputs));
    Plan {
        name: model.name.clone(),
        crops: model.crops().to_vec(),
        states: model.states().to_vec(),
        model,
        tasks,
        steps,
        tensors,
        inputs,
        outputs,
        conversions,
        plain: Vec::new(),
        settings: BTreeMap::new(),
    }
}

struct Assembler<'a> {
    model: &'a Model,
    users: Users,
    /// Without names until all are known.
    tensors: Vec<PlanTensor>,
    /// Every value in every layout it has been asked for.
    stored: HashMap<(ValueId, Layout), PlanTensorId>,
    /// The layout a value was written in.
    homes: HashMap<ValueId, Layout>,
    tasks: Vec<Task>,
    by_key: HashMap<String, usize>,
    steps: Vec<PlanStep>,
    step_names: HashSet<String>,
    conversions: usize,
}

impl Assembler<'_> {
    /// A new tensor that holds `v`.
    fn add(&mut self, v: ValueId, layout: Layout, kind: TensorKind) -> PlanTensorId {
        let value = &self.model[v];
        let id = PlanTensorId(u32::try_from(self.tensors.len()).expect("fewer than 2^32 tensors"));
        self.tensors.push(PlanTensor {
            name: String::new(),
            value: v,
            dtype: value.dtype(),
            shape: layout.physical(value.shape()),
            layout,
            kind,
        });
        self.stored.insert((v, layout), id);
        id
    }

    fn place(&self, id: PlanTensorId) -> (PlanTensorId, i64) {
        match self.tensors[id.index()].kind {
            TensorKind::Alias { of, offset } => (of, offset),
            _ => (id, 0),
        }
    }

    /// `v` as the elements of another tensor from `start` on.
    fn alias(&mut self, v: ValueId, layout: Layout, of: PlanTensorId, start: i64) -> PlanTensorId {
        let (of, offset) = self.place(of);
        let offset = offset + start;
        self.add(v, layout, TensorKind::Alias { of, offset })
    }

    /// Makes `part` elements of `whole`, with everything that was a part of it.
    fn move_into(&mut self, part: PlanTensorId, whole: PlanTensorId, start: i64) {
        for t in &mut self.tensors {
            if let TensorKind::Alias { of, offset } = &mut t.kind
                && *of == part
            {
                (*of, *offset) = (whole, *offset + start);
            }
        }
        self.tensors[part.index()].kind = TensorKind::Alias {
            of: whole,
            offset: start,
        };
    }

    /// Does without a kernel where a group's result is elements of its operands
    /// as they lie, or the reverse. Whether it could.
    fn view(&mut self, group: &Group, choice: &Choice) -> bool {
        if !group.chain.is_empty() || !group.moves.nodes.is_empty() {
            return false;
        }
        let node = &self.model[group.anchor];
        let layout = choice.output;
        match &node.op {
            Op::Split(_) | Op::Slice(_) => {
                let x = node.input(0).expect("the operator has an operand");
                let dtype = self.model[x].dtype();
                let starts = views::parts(&node.op, layout, self.model[x].shape(), dtype);
                let Some(starts) = starts else { return false };
                let source = self.tensor(x, choice.read(x));
                for (v, start) in node.outputs.iter().zip(starts) {
                    self.homes.insert(*v, layout);
                    self.alias(*v, layout, source, start);
                }
                true
            }
            Op::Concat(c) => {
                let empty = |v: &ValueId| self.model[*v].ty().is_empty();
                let parts = node.inputs.iter().flatten().copied();
                let parts: Vec<ValueId> = parts.filter(|v| !empty(v)).collect();
                let shapes: Vec<_> = parts.iter().map(|v| self.model[*v].shape()).collect();
                let dtype = self.model[parts[0]].dtype();
                let Some(starts) = views::joined(c.axis, layout, &shapes, dtype) else {
                    return false;
                };
                // A reshape is elements of what it reads once somebody asks for it.
                let reshaped = |v: &&ValueId| match self.model.producer(**v) {
                    Some((n, _)) => matches!(self.model[n].op, Op::Reshape(_)),
                    None => false,
                };
                for v in parts.iter().filter(reshaped) {
                    self.tensor(*v, layout);
                }
                let Some(stored) = self.own_tensors(&parts, layout) else {
                    return false;
                };
                let result = node.output();
                self.homes.insert(result, layout);
                let whole = self.add(result, layout, TensorKind::Activation);
                for (first, part) in stored {
                    self.move_into(part, whole, starts[first]);
                }
                true
            }
            _ => false,
        }
    }

    /// The tensors of values that steps wrote in this layout into memory of their own, each
    /// with the first value that it holds, all different; otherwise nothing. Values that
    /// follow each other may be the parts of one tensor.
    fn own_tensors(
        &self,
        values: &[ValueId],
        layout: Layout,
    ) -> Option<Vec<(usize, PlanTensorId)>> {
        let mut tensors: Vec<(usize, PlanTensorId)> = Vec::new();
        let mut at = 0;
        while at < values.len() {
            let stored = |v: &ValueId| self.stored.get(&(*v, layout)).copied();
            let whole = self.place(stored(&values[at])?).0;
            let size = self.tensors[whole.index()].elements();
            let (first, mut held) = (at, 0);
            while held < size {
                let part = stored(values.get(at)?)?;
                if self.place(part) != (whole, held) {
                    return None;
                }
                held += self.tensors[part.index()].elements();
                at += 1;
            }
            let own = matches!(self.tensors[whole.index()].kind, TensorKind::Activation);
            if !own || held != size || tensors.iter().any(|(_, known)| *known == whole) {
                return None;
            }
            tensors.push((first, whole));
        }
        Some(tensors)
    }

    /// The tensor that holds `v` in a layout, converted if need be.
    fn tensor(&mut self, v: ValueId, layout: Layout) -> PlanTensorId {
        if let Some(id) = self.stored.get(&(v, layout)) {
            return *id;
        }
        let value = &self.model[v];
        match value.origin() {
            Origin::Constant(t) if layout == Layout::Plain => {
                return self.add(v, layout, TensorKind::Constant(t.clone()));
            }
            Origin::Node(n, _) => match (&self.model[*n].op, self.model[*n].input(0)) {
                (Op::Identity | Op::Dropout(_), Some(source)) => {
                    return self.tensor(source, layout);
                }
                // A step may have written it in blocks.
                (Op::Reshape(_), Some(source))
                    if layout == Layout::Plain && !self.homes.contains_key(&v) =>
                {
                    let source = self.tensor(source, Layout::Plain);
                    return self.alias(v, layout, source, 0);
                }
                (Op::Reshape(_), Some(source))
                    if (layout.block()).is_some_and(|b| keeps_blocks(self.model, *n, b)) =>
                {
                    let source = self.tensor(source, layout);
                    return self.alias(v, layout, source, 0);
                }
                _ => {}
            },
            _ => {}
        }
        let home = self.homes.get(&v).copied().unwrap_or(Layout::Plain);
        assert!(
            home != layout,
            "`{}` is read and never written",
            value.name()
        );
        let source = self.tensor(v, home);
        let shape = value.shape();
        if home.is_plain_for(shape) && layout.is_plain_for(shape) {
            return self.alias(v, layout, source, 0);
        }
        self.conversions += 1;
        let built = compute::layout_transform(self.model, v, home, layout);
        let name = format!("{}.{layout}", value.name());
        self.step(&name, built, v, layout)
    }

    fn group(&mut self, group: &Group, choice: &Choice) {
        if self.view(group, choice) {
            return;
        }
        for (i, v) in group.outputs(self.model).into_iter().enumerate() {
            let unused = self.users.of(v).is_empty() && !self.users.is_output(v);
            let folded = group.chain.is_empty() && fold::is_folded(self.model, &self.users, v);
            if unused || folded || self.model[v].ty().is_empty() {
                continue;
            }
            self.homes.insert(v, choice.output);
            let built = compute::build(self.model, &self.users, group, choice, i);
            let name = &self.model[group.anchor].name;
            self.step(name, built, v, choice.output);
        }
    }

    /// A call that makes `v` in this layout.
    fn step(&mut self, name: &str, built: Built, v: ValueId, layout: Layout) -> PlanTensorId {
        let operands = built.operands.clone();
        let inputs = operands
            .into_iter()
            .map(|(v, l)| self.tensor(v, l))
            .collect();
        let output = self.add(v, layout, TensorKind::Activation);
        self.call(name, built, inputs, output);
        output
    }

    fn call(&mut self, name: &str, built: Built, inputs: Vec<PlanTensorId>, output: PlanTensorId) {
        let task = Task::new(built.program, built.kind);
        let next = self.tasks.len();
        let index = *self.by_key.entry(task.key.clone()).or_insert(next);
        if index == next {
            self.tasks.push(task);
        }
        let mut number = 0;
        let name = free(&mut self.step_names, name, || {
            number += 1;
            format!("{name}.{number}")
        });
        self.steps.push(PlanStep {
            name,
            task: index,
            inputs,
            outputs: vec![output],
        });
    }

    /// The tensor of a graph output: its own, or an alias where its elements are
    /// those of another value.
    fn output(&mut self, v: ValueId) -> PlanTensorId {
        let id = self.tensor(v, Layout::Plain);
        let tensor = &mut self.tensors[id.index()];
        if tensor.value != v {
            return self.alias(v, Layout::Plain, id, 0);
        }
        if matches!(tensor.kind, TensorKind::Activation) {
            tensor.kind = TensorKind::Output;
        }
        id
    }
}

/// Names the inputs and outputs of the model, which are `interface`, like their
/// values, then the others: the first of a value like it, the next with their layout.
fn name_tensors<'a>(
    model: &Model,
    tensors: &mut [PlanTensor],
    interface: impl Iterator<Item = &'a PlanTensorId>,
) {
    let mut names = HashSet::new();
    for i in interface.map(|id| id.index()).chain(0..tensors.len()) {
        let PlanTensor { value, layout, .. } = tensors[i];
        if tensors[i].name.is_empty() {
            let value = model[value].name();
            tensors[i].name = free(&mut names, value, || format!("{value}@{layout}"));
        }
    }
}

/// `name`, or the first of `others` that is free.
fn free(taken: &mut HashSet<String>, name: &str, mut others: impl FnMut() -> String) -> String {
    let mut candidate = name.to_string();
    while !taken.insert(candidate.clone()) {
        let other = others();
        candidate = if other == candidate {
            format!("{other}'")
        } else {
            other
        };
    }
    candidate
}
