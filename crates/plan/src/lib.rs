//! From a model to tasks: fusion, layouts, and one tensor program a kernel.
//!
//! [`plan`] is the whole pipeline. Promises that steps stand in execution
//! order, that every tensor is written before it is read and at most once,
//! that equal programs are one task, and that whatever cannot be compiled is
//! listed in one error. Leaves schedules, kernels and memory to others.
//!
//! What schedules may rely on in a task's program: everything is global and
//! every loop serial. The block `main` is the anchor, with the iteration
//! variables
//!
//! | operator | spatial | reduce |
//! |---|---|---|
//! | convolution in blocks | n ko (z) (y) x ki | co (q) (r) s ci, or c (q) (r) s from a plain operand |
//! | in groups narrower than a block | n ko (z) (y) x ki | c (q) (r) s |
//! | depth-wise in blocks, transposed ones too | n co (z) (y) x ci | (q) (r) s |
//! | in groups of several maps, plain | n g k (z) (y) x | c (q) (r) s |
//! | other convolutions, plain | n k (z) (y) x | c (q) (r) s |
//! | transposed convolutions | as convolutions; an axis of stride above 1 is two, y0 py, of taps r0 | |
//! | matrix products | b0.. m n | k |
//! | products with packed weights | m n | q |
//! | attention | b0.. m n, also of `scores` | k |
//! | pooling | n c (z) (y) x, in blocks n co (z) (y) x ci | (q) (r) s |
//! | reductions | i0.., in blocks n co (z) (y) x ci | r0.., in blocks (q) (r) s |
//! | element-wise, movement, gathering | i0.., in blocks n co (z) (y) x ci | |
//! | scattering with a combination | i0.. | u0.. |
//! | the largest elements | i0.. | |
//! | positions of true elements, suppressed boxes | i0.. | |
//! | sampling by a grid | i0.. | t0.. |
//!
//! and the block `out`, with the spatial variables of `main`, holds everything
//! fused after it; where nothing is, `main` writes the result. After a transposed
//! convolution with strides there always is an `out`, with the variables (z) (y) x: it
//! reads `main` at [y / stride, y mod stride]. The last spatial axis of a plain `main`
//! is px x0. The sum of columns (`col2im`) has the same variables, and reduces over taps alone. Softmax has the blocks `max`, `e`, `sum`, `inverse`, `out`, layer
//! normalisation `mean`, `variance`, `inverse`, `out`. Products with packed weights have the blocks `term_sums` and `block_sums`
//! before `main`, and the parameters `A`, `B`, `scales` and `zeros`. Attention has the blocks `scores`,
//! `logits` where something follows the scores, `max`, `e`, `sum`, `inverse`, `main` and
//! `out`; its parameters are `Q`, `K`, operands of `logits`, and `V`. Scattering that
//! replaces has the blocks `last` and `out`; few largest elements have `round1`, .., and `candidates0`, `rank0`, `chosen0`, .. before `main`,
//! sampling `place0`, `pixel0`, `weight0`, .. for each axis, and positions `before0`, .., `at0`, ..
//! Other parameters are `X` (data), `W` (weights in the model's layout), `B` (bias), `A` and `B` of matrix products; `E2` is
//! parameter 2, read by what is fused. `A` and `B` may be read through a
//! transpose, in `A` one that keeps the innermost axis: then they have the axes
//! of its source, as in `A[0, m, b0, k]`.

mod assemble;
mod attention;
mod collapse;
mod columns;
mod compute;
mod fold;
mod fuse;
mod interpret;
mod layout;
mod moves;
mod parts;
mod support;
mod task;
mod text;
mod trailing;
mod views;

pub use interpret::InterpretPlanError;
pub use layout::Layout;
pub use support::Unsupported;
pub use task::Task;

use fuse::Group;
use graph::builtin::{BuiltinError, wants_plain_layouts};
use graph::{Model, Requantised, State, ValueId, simplify_as};
use ir::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tensor::{Crop, DType, Tensor};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

/// Which layouts [`plan`] may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutPolicy {
    /// Chains of image operators in blocks of the target's f32 lanes.
    Blocked,
    /// Everything as the model has it.
    Plain,
}

impl LayoutPolicy {
    /// What a built-in model asks to be planned with.
    ///
    /// # Errors
    /// If `name` is the specification of an operator and not valid.
    pub fn of_builtin(name: &str) -> Result<LayoutPolicy, BuiltinError> {
        Ok(match wants_plain_layouts(name)? {
            true => LayoutPolicy::Plain,
            false => LayoutPolicy::Blocked,
        })
    }
}

/// What a plan may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    pub layouts: LayoutPolicy,
    /// Names of steps that read and write plain tensors all the same; others are
    /// passed over.
    pub plain: Vec<String>,
}

impl From<LayoutPolicy> for PlanOptions {
    fn from(layouts: LayoutPolicy) -> PlanOptions {
        PlanOptions {
            layouts,
            plain: vec![],
        }
    }
}

/// A tensor of one plan: position in [`Plan::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlanTensorId(u32);

impl PlanTensorId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a tensor is to the plan.
#[derive(Clone, Debug)]
pub enum TensorKind {
    /// Position in [`Plan::inputs`].
    Input(usize),
    Constant(Arc<Tensor>),
    Activation,
    /// Written by a step; a graph output, and perhaps read by later steps. Not
    /// every output is one: others are inputs, constants or aliases.
    Output,
    /// Dense bytes of `of` (which is no alias, and may come later in the list),
    /// from element `offset` on, under this shape. A step that writes an alias
    /// writes that part of `of`. Offsets are multiples of 64 bytes.
    Alias {
        of: PlanTensorId,
        offset: i64,
    },
}

#[derive(Clone, Debug)]
pub struct PlanTensor {
    /// Unique in the plan. Inputs and outputs of the model bear the names of
    /// their values.
    pub name: String,
    /// What it holds, of [`Plan::model`].
    pub value: ValueId,
    pub dtype: DType,
    /// Extents in memory, row-major.
    pub shape: Vec<i64>,
    pub layout: Layout,
    pub kind: TensorKind,
}

impl PlanTensor {
    pub fn elements(&self) -> i64 {
        self.shape.iter().product()
    }

    pub fn bytes(&self) -> u64 {
        self.elements() as u64 * self.dtype.size() as u64
    }
}

/// One kernel call.
#[derive(Clone, Debug)]
pub struct PlanStep {
    /// That of the node the kernel is built round; unique in the plan.
    pub name: String,
    /// Position in [`Plan::tasks`].
    pub task: usize,
    /// In the order of the program's parameters, the inputs first.
    pub inputs: Vec<PlanTensorId>,
    pub outputs: Vec<PlanTensorId>,
}

/// A model as kernel calls on tensors.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    /// What was split into tasks: the given model simplified, leading axes
    /// merged. Inputs and outputs have the names, types and shapes of the given model's.
    pub model: Model,
    /// Without duplicates, in order of first use; then those that no step has ([`Plan::add_task`]).
    pub tasks: Vec<Task>,
    /// In execution order.
    pub steps: Vec<PlanStep>,
    pub tensors: Vec<PlanTensor>,
    /// The model's inputs in its order, plain.
    pub inputs: Vec<PlanTensorId>,
    /// The model's outputs in its order, plain: what a step writes, a constant,
    /// an input, or an alias of one of these.
    pub outputs: Vec<PlanTensorId>,
    /// Of the model.
    pub crops: Vec<Crop>,
    /// Of the model.
    pub states: Vec<State>,
    /// Steps that only change a layout.
    pub conversions: usize,
    /// [`PlanOptions::plain`].
    pub plain: Vec<String>,
    /// What the model was asked for with, in the words of whoever asks: a plan only carries it to what is compiled.
    pub settings: BTreeMap<String, String>,
}

impl Plan {
    pub fn tensor(&self, id: PlanTensorId) -> &PlanTensor {
        &self.tensors[id.index()]
    }

    /// The tensor whose bytes `id` names, and the element they start at.
    pub fn place(&self, id: PlanTensorId) -> (PlanTensorId, i64) {
        match self.tensor(id).kind {
            TensorKind::Alias { of, offset } => (of, offset),
            _ => (id, 0),
        }
    }

    /// The values of its constants, by tensor.
    pub fn constants(&self) -> Vec<Option<Arc<Tensor>>> {
        let value = |t: &PlanTensor| match &t.kind {
            TensorKind::Constant(value) => Some(value.clone()),
            _ => None,
        };
        self.tensors.iter().map(value).collect()
    }

    /// As [`Plan::constants`]; the plan holds none of them any more, and no model.
    pub fn take_constants(&mut self) -> Vec<Option<Arc<Tensor>>> {
        let constants = self.constants();
        let none = Arc::new(Tensor::zeros(DType::F32, &[0]));
        for tensor in &mut self.tensors {
            if let TensorKind::Constant(value) = &mut tensor.kind {
                *value = none.clone();
            }
        }
        self.model = Model::default();
        constants
    }

    /// Every tensor, in the order of [`Plan::tensors`].
    pub fn tensor_ids(&self) -> impl Iterator<Item = PlanTensorId> {
        (0..self.tensors.len() as u32).map(PlanTensorId)
    }

    /// Bytes of activations and of constants that all steps read and write,
    /// every operand of a step counted whole and once.
    pub fn moved_bytes(&self) -> (u64, u64) {
        let (mut activations, mut constants) = (0, 0);
        for id in self
            .steps
            .iter()
            .flat_map(|s| s.inputs.iter().chain(&s.outputs))
        {
            let tensor = self.tensor(*id);
            match tensor.kind {
                TensorKind::Constant(_) => constants += tensor.bytes(),
                _ => activations += tensor.bytes(),
            }
        }
        (activations, constants)
    }

    /// Bytes that pass through the caches between two uses of a constant by inferences
    /// in a row, at least: all constants, and the activations of one step.
    pub fn bytes_between_uses(&self) -> u64 {
        let mut constants = BTreeSet::new();
        let mut activations = 0;
        for step in &self.steps {
            let mut own = 0;
            for id in step.inputs.iter().chain(&step.outputs) {
                let root = self.place(*id).0;
                match self.tensor(root).kind {
                    TensorKind::Constant(_) => _ = constants.insert(root),
                    _ => own += self.tensor(*id).bytes(),
                }
            }
            activations = activations.max(own);
        }
        let bytes = |id: &PlanTensorId| self.tensor(*id).bytes();
        constants.iter().map(bytes).sum::<u64>() + activations
    }

    /// Tensors that are parts of others, or the same under another shape.
    pub fn views(&self) -> usize {
        let alias = |t: &&PlanTensor| matches!(t.kind, TensorKind::Alias { .. });
        self.tensors.iter().filter(alias).count()
    }

    /// Identifies the plan by the names and tasks of its steps.
    pub fn key(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            text += &format!("{} {}\n", step.name, self.tasks[step.task].key);
        }
        format!("{:032x}", xxh3_128(text.as_bytes()))
    }

    /// The position of a task, which is added if there is no equal one. No step runs it: it stands for a step, or for a
    /// part of one, where that may be done otherwise.
    pub fn add_task(&mut self, task: Task) -> usize {
        let known = self.tasks.iter().position(|t| t.key == task.key);
        known.unwrap_or_else(|| {
            self.tasks.push(task);
            self.tasks.len() - 1
        })
    }

    /// How many steps run each task.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.tasks.len()];
        for step in &self.steps {
            uses[step.task] += 1;
        }
        uses
    }
}

/// Why a model cannot be planned.
#[derive(Debug, Error)]
pub enum PlanError {
    #[error(
        "{} of the model's nodes cannot be compiled:{}",
        .0.len(),
        .0.iter().map(|u| format!("\n  {u}")).collect::<String>()
    )]
    Unsupported(Vec<Unsupported>),
}

/// A model whose nodes are in groups, one for each kernel: what layouts are chosen for.
pub struct Grouped {
    model: Model,
    groups: Vec<Group>,
}

impl Grouped {
    /// Simplifies the model, merges leading axes and fuses its nodes.
    ///
    /// # Errors
    /// If nodes cannot be compiled; all of them are listed.
    pub fn new(model: &Model, requantised: Requantised) -> Result<Grouped, PlanError> {
        let model = simplify_as(model, requantised);
        let unsupported = support::unsupported(&model);
        if !unsupported.is_empty() {
            return Err(PlanError::Unsupported(unsupported));
        }
        let model = parts::bound_parts(&collapse::collapse(&trailing::first(&columns::rewrite(
            &model,
        ))));
        let groups = fuse::fuse(&model);
        Ok(Grouped { model, groups })
    }

    /// Chooses layouts and splits the model into tasks.
    pub fn plan(&self, target: &Target, options: &PlanOptions) -> Plan {
        let Target::Cpu(target) = target;
        let block = match options.layouts {
            LayoutPolicy::Plain => None,
            LayoutPolicy::Blocked => Some(target.lanes(DType::F32)).filter(|b| *b > 1),
        };
        let groups = attention::fuse(&self.model, &self.groups, target);
        let has_tiles = target.tile_dot.is_some();
        let choose = |groups: &[Group]| {
            layout::choose(&self.model, groups, block, &options.plain, has_tiles)
        };
        let groups = moves::fuse(
            &self.model,
            &groups,
            &choose(&groups),
            block,
            &options.plain,
        );
        let choices = choose(&groups);
        let mut plan = assemble::assemble(self.model.clone(), &groups, &choices);
        plan.plain.clone_from(&options.plain);
        plan
    }
}

/// The whole pipeline: groups, with folded scales of products of bytes, then layouts and tasks.
///
/// # Errors
/// As [`Grouped::new`].
pub fn plan(model: &Model, target: &Target, options: &PlanOptions) -> Result<Plan, PlanError> {
    Ok(Grouped::new(model, Requantised::Folded)?.plan(target, options))
}
