//! The kernels of a plan's steps, with the tensors that each is called with.
//!
//! Owns the alternatives of steps and of stretches. Promises that a stretch has no two alternatives of the
//! same code. Tensors that only another layout has are declared here.

use crate::error::Result;
use crate::saved::Part;
use crate::stretches::{Assignment, Identity, Stretch, Stretched, identity, joined};
use plan::{Plan, PlanStep, PlanTensorId, TensorKind};
use runtime::{BoundKernel, BuiltKernel, GroupId, KernelId, ModelBuilder, TensorId};
use std::collections::{HashMap, HashSet};

/// A kernel of a builder, and the hash of its code.
pub(crate) type Added = (KernelId, u64);

/// Gives a kernel to a builder.
pub(crate) fn added(b: &mut ModelBuilder, kernel: BuiltKernel) -> Added {
    let code = kernel.code_hash();
    (b.add_kernel(kernel), code)
}

/// The steps of a plan whose tensors and kernels a builder has.
pub(crate) struct Bindings<'a> {
    pub plan: &'a Plan,
    /// By task, one at least.
    pub kernels: Vec<Vec<Added>>,
    /// By tensor of the plan.
    pub ids: Vec<TensorId>,
    pub stretched: &'a Stretched,
    names: HashSet<String>,
    known: HashMap<Identity, TensorId>,
    /// The groups of steps that keep columns and the columns, by the position of [`Stretched::saved`].
    groups: HashMap<usize, (GroupId, TensorId)>,
}

/// One alternative: what it is called with, and the code of its kernels.
struct Choice<'a> {
    calls: Vec<BoundKernel<'a>>,
    code: Vec<u64>,
}

impl<'a> Choice<'a> {
    fn push(&mut self, (kernel, code): Added, bind: Vec<(&'a str, TensorId)>) {
        self.calls.push(BoundKernel { kernel, bind });
        self.code.push(code);
    }

    fn new() -> Choice<'a> {
        Choice {
            calls: Vec::new(),
            code: Vec::new(),
        }
    }
}

/// The tensors of a step by the names of its program's parameters.
fn bind<'a>(
    plan: &'a Plan,
    step: &'a PlanStep,
    id: impl Fn(PlanTensorId) -> TensorId,
) -> Vec<(&'a str, TensorId)> {
    let program = &plan.tasks[step.task].program;
    let arguments = step.inputs.iter().chain(&step.outputs);
    let names = program.params.iter().map(|p| &*program.buffer(*p).name);
    let bound: Vec<_> = names.zip(arguments.map(|t| id(*t))).collect();
    debug_assert_eq!(bound.len(), program.params.len());
    bound
}

impl<'a> Bindings<'a> {
    pub fn new(
        plan: &'a Plan,
        kernels: Vec<Vec<Added>>,
        ids: Vec<TensorId>,
        stretched: &'a Stretched,
    ) -> Bindings<'a> {
        let of = |id: PlanTensorId| (identity(plan, id), ids[id.index()]);
        Bindings {
            names: plan.tensors.iter().map(|t| t.name.clone()).collect(),
            known: plan.tensor_ids().map(of).collect(),
            plan,
            kernels,
            ids,
            stretched,
            groups: HashMap::new(),
        }
    }

    /// The steps of the group that a step is in.
    pub fn group_steps(&self, step: usize) -> Option<&'a [usize]> {
        let mut all = self.stretched.saved.iter();
        all.find(|s| s.steps.contains(&step)).map(|s| &s.steps[..])
    }

    /// The group of a step that keeps columns or reads them, and what it calls then.
    pub fn of_group(
        &mut self,
        step: usize,
        b: &mut ModelBuilder,
    ) -> Option<(GroupId, Vec<BoundKernel<'a>>)> {
        let mut all = self.stretched.saved.iter().enumerate();
        let (at, saved) = all.find(|(_, s)| s.steps.contains(&step))?;
        let own = match self.groups.get(&at) {
            Some(own) => *own,
            None => {
                let mut name = format!("{}.columns", self.plan.steps[step].name);
                while !self.names.insert(name.clone()) {
                    name.push('\'');
                }
                let columns = b.add_tensor(&name, saved.columns.dtype, &saved.columns.shape);
                (b.add_group(1), columns)
            }
        };
        self.groups.insert(at, own);
        let (group, columns) = own;
        let id = |t: &Option<PlanTensorId>| t.map_or(columns, |t| self.ids[t.index()]);
        let call = |part: &'a Part| {
            let program = &self.plan.tasks[part.task].program;
            let names = program.params.iter().map(|p| &*program.buffer(*p).name);
            BoundKernel {
                kernel: self.kernels[part.task][0].0,
                bind: names.zip(part.operands.iter().map(id)).collect(),
            }
        };
        Some((group, saved.calls_of(step)?.iter().map(call).collect()))
    }

    /// The stretch that begins with a step.
    pub fn stretch(&self, step: usize) -> Option<&'a Stretch> {
        let mut all = self.stretched.stretches.iter();
        all.find(|s| s.steps.start == step)
    }

    /// The alternatives of a step, of one kernel each.
    pub fn of_step(&self, step: usize) -> Vec<Vec<BoundKernel<'a>>> {
        let step = &self.plan.steps[step];
        let bind = bind(self.plan, step, |t| self.ids[t.index()]);
        let one = |(kernel, _): &Added| {
            let (kernel, bind) = (*kernel, bind.clone());
            vec![BoundKernel { kernel, bind }]
        };
        self.kernels[step.task].iter().map(one).collect()
    }

    /// The name and the alternatives of a stretch: the steps as they are, then other layouts, then the
    /// further kernels of the steps.
    pub fn of_stretch(
        &mut self,
        of: &'a Stretch,
        b: &mut ModelBuilder,
    ) -> Result<(String, Vec<Vec<BoundKernel<'a>>>)> {
        let steps = &self.plan.steps[of.steps.clone()];
        let mut choices = vec![self.at(steps, 0)];
        for other in &of.others {
            choices.push(self.other(other, b)?);
        }
        let counts = steps.iter().map(|s| self.kernels[s.task].len());
        choices.extend((1..counts.max().unwrap_or(0)).map(|at| self.at(steps, at)));
        let mut seen = HashSet::new();
        choices.retain(|c| seen.insert(c.code.clone()));
        choices.truncate(self.stretched.most);
        let name = match steps {
            [one] => one.name.clone(),
            _ => joined(&steps[0].name, &steps[steps.len() - 1].name),
        };
        Ok((name, choices.into_iter().map(|c| c.calls).collect()))
    }

    /// Steps with the kernels at one position, or their last ones.
    fn at(&self, steps: &'a [PlanStep], at: usize) -> Choice<'a> {
        let mut choice = Choice::new();
        for step in steps {
            let all = &self.kernels[step.task];
            let bind = bind(self.plan, step, |t| self.ids[t.index()]);
            choice.push(all[at.min(all.len() - 1)], bind);
        }
        choice
    }

    /// The steps of another plan.
    fn other(&mut self, of: &'a Assignment, b: &mut ModelBuilder) -> Result<Choice<'a>> {
        let own: HashMap<&str, usize> = (0..)
            .zip(&self.plan.tasks)
            .map(|(at, t)| (&*t.key, at))
            .collect();
        let mut new = HashMap::new();
        let mut choice = Choice::new();
        for step in &of.plan.steps[of.steps.clone()] {
            for id in step.inputs.iter().chain(&step.outputs) {
                self.declare(&of.plan, *id, &mut new, b)?;
            }
            let key = &*of.plan.tasks[step.task].key;
            let kernel = match own.get(key) {
                Some(task) => self.kernels[*task][0],
                None => added(b, (*self.stretched.kernels[key]).clone()),
            };
            let id = |t: PlanTensorId| new[&identity(&of.plan, t)];
            choice.push(kernel, bind(&of.plan, step, id));
        }
        Ok(choice)
    }

    /// Finds a tensor of another plan, or declares it, under a name of its own.
    fn declare(
        &mut self,
        plan: &Plan,
        id: PlanTensorId,
        new: &mut HashMap<Identity, TensorId>,
        b: &mut ModelBuilder,
    ) -> Result<TensorId> {
        let key = identity(plan, id);
        if let Some(known) = new.get(&key).or_else(|| self.known.get(&key)).copied() {
            new.insert(key, known);
            return Ok(known);
        }
        let tensor = plan.tensor(id);
        let shape: Vec<usize> = tensor.shape.iter().map(|d| *d as usize).collect();
        let mut name = format!("{}@{}", tensor.name, tensor.layout);
        while !self.names.insert(name.clone()) {
            name.push('\'');
        }
        let declared = match tensor.kind {
            TensorKind::Alias { of, offset } => {
                let of = self.declare(plan, of, new, b)?;
                let bytes = offset as u64 * tensor.dtype.size() as u64;
                b.add_view(&name, of, bytes, tensor.dtype, &shape, None)?
            }
            _ => b.add_tensor(&name, tensor.dtype, &shape),
        };
        new.insert(key, declared);
        Ok(declared)
    }
}
