//! A compiled model as data: tensors, kernels, steps and constants.
//!
//! Owns what an artifact stores and a runner executes. Promises that a value
//! of [`CompiledModel`] is consistent: every id, offset and size in it is
//! within bounds, so running it touches no memory outside its own. Making one
//! is in `builder`, the file in `artifact`, execution in `run`.

use crate::abi::{WORKSPACE_ALIGN, align_up};
use crate::constants::Constant;
use crate::derived::{self, Derivation};
use crate::dtype_name;
use crate::kernel::{BuiltKernel, KernelTarget, ParamRole};
use crate::lifetimes::may_be_in_place;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tensor::{Crop, DType, row_major_strides};
use thiserror::Error;

/// A tensor of one compiled model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TensorId(pub(crate) u32);

/// A kernel of one compiled model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KernelId(pub(crate) u32);

/// A step of one compiled model; steps run in the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StepId(pub(crate) u32);

impl TensorId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl KernelId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl StepId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where the bytes of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TensorPlace {
    /// In the arena of activations.
    Arena { offset: u64 },
    /// In a stored constant.
    Constant { blob: u32 },
    /// In another tensor, which is no view itself.
    View { root: TensorId, byte_offset: u64 },
    /// Nowhere: no step uses it, or it is a constant that only prepare entries read.
    Discarded,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorInfo {
    pub name: String,
    #[serde(with = "dtype_name")]
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// In elements.
    pub strides: Vec<usize>,
    pub place: TensorPlace,
}

impl TensorInfo {
    pub(crate) fn dense(
        name: &str,
        dtype: DType,
        shape: &[usize],
        place: TensorPlace,
    ) -> TensorInfo {
        let (shape, strides) = (shape.to_vec(), row_major_strides(shape));
        TensorInfo {
            name: name.to_string(),
            dtype,
            shape,
            strides,
            place,
        }
    }

    pub fn is_dense(&self) -> bool {
        self.strides == row_major_strides(&self.shape)
    }

    /// Number of elements; `None` on overflow, also of the other axes if one is 0.
    pub fn elements(&self) -> Option<u64> {
        let sizes = || self.shape.iter().map(|d| *d as u64);
        let all = sizes().try_fold(1u64, |n, d| n.checked_mul(d.max(1)))?;
        Some(if sizes().any(|d| d == 0) { 0 } else { all })
    }

    /// Whether no two elements share memory, as every axis steps over all that
    /// shorter steps reach.
    fn elements_lie_apart(&self) -> bool {
        let mut axes: Vec<(usize, usize)> = self
            .strides
            .iter()
            .copied()
            .zip(self.shape.iter().copied())
            .collect();
        axes.retain(|(_, size)| *size > 1);
        axes.sort_unstable();
        let mut reach = 1usize;
        self.elements() == Some(0)
            || axes.into_iter().all(|(stride, size)| {
                let apart = stride >= reach;
                reach = reach.saturating_add(stride.saturating_mul(size - 1));
                apart
            })
    }

    /// Bytes from the first element to the end of the last; `None` on overflow
    /// or if shape and strides differ in rank.
    pub fn span_bytes(&self) -> Option<u64> {
        if self.strides.len() != self.shape.len() {
            return None;
        }
        if self.elements()? == 0 {
            return Some(0);
        }
        let last = self
            .shape
            .iter()
            .zip(&self.strides)
            .try_fold(0u64, |at, (d, s)| {
                at.checked_add((*d as u64 - 1).checked_mul(*s as u64)?)
            });
        last?.checked_add(1)?.checked_mul(self.dtype.size() as u64)
    }
}

/// A kernel and what it is called with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub kernel: KernelId,
    /// In the order of the kernel's parameters, prepared constants included.
    pub args: Vec<TensorId>,
}

/// One way to run a step: one kernel, or several with tensors of their own between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// At least one, in the order they run.
    pub calls: Vec<Call>,
}

/// An input that begins with a constant and from then on has what an output gave in the inference before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Positions among the model's inputs and outputs.
    pub input: usize,
    pub output: usize,
    pub initial: TensorId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStep {
    pub name: String,
    /// What the best alternative depends on besides the thread count.
    pub key_shape: Vec<i64>,
    /// At least one; the first runs unless a selector says otherwise. A file has the calls behind
    /// the first of each alternative apart from this.
    #[serde(with = "first_calls")]
    pub alternatives: Vec<Alternative>,
}

/// Steps that may run together. The last alternatives of each step are one for each set; those before them are free.
///
/// In an inference all steps of a group run the same set, or each a free alternative. So what an alternative of a
/// set writes may be read by those of later steps that are of the same set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepGroup {
    /// At least two, in the order they run. They have one selection key.
    pub steps: Vec<StepId>,
    /// At least one.
    pub sets: usize,
}

impl StepGroup {
    /// Whether a step is the first one.
    pub fn begins_with(&self, step: usize) -> bool {
        self.steps.first().is_some_and(|s| s.index() == step)
    }
}

impl ModelStep {
    /// The calls of all alternatives.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Call> {
        self.alternatives.iter().flat_map(|a| &a.calls)
    }
}

/// Alternatives as files of every version have them: their first calls.
mod first_calls {
    use super::{Alternative, Call};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(all: &[Alternative], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|a| &a.calls[0]))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Alternative>, D::Error> {
        let alternative = |call| Alternative { calls: vec![call] };
        let calls = Vec::<Call>::deserialize(from)?.into_iter();
        Ok(calls.map(alternative).collect())
    }
}

/// Everything but the bytes of code and constants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) target: KernelTarget,
    pub(crate) compiler: String,
    pub(crate) accuracy: String,
    pub(crate) plain_steps: Vec<String>,
    pub(crate) tensors: Vec<TensorInfo>,
    pub(crate) inputs: Vec<TensorId>,
    pub(crate) outputs: Vec<TensorId>,
    /// Of each [`Crop`] the output, the axis, and the output that counts.
    pub(crate) crops: Vec<[usize; 3]>,
    /// A file has them behind the manifests.
    #[serde(skip)]
    pub(crate) states: Vec<State>,
    /// Models of one artifact share them, so a file has them apart from this.
    #[serde(skip)]
    pub(crate) kernels: Vec<Arc<BuiltKernel>>,
    pub(crate) steps: Vec<ModelStep>,
    /// A file has them behind the manifests.
    #[serde(skip)]
    pub(crate) groups: Vec<StepGroup>,
    /// A file has them behind the manifests.
    #[serde(skip)]
    pub(crate) derivations: Vec<Derivation>,
    /// Threads that the kernels were chosen for; 0 if the compiler did not say. A file has them behind the manifests.
    #[serde(skip)]
    pub(crate) threads: u32,
    /// What the compiler was asked for, by names of its own. A file has them behind the manifests.
    #[serde(skip)]
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) arena_bytes: u64,
}

/// A model that is ready to run or to be saved. Made by `ModelBuilder` or
/// [`CompiledModel::load`].
pub struct CompiledModel {
    pub(crate) manifest: Manifest,
    pub(crate) constants: Vec<Constant>,
}

impl std::fmt::Debug for CompiledModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledModel")
            .field("manifest", &self.manifest)
            .field("constants", &self.constants.len())
            .finish()
    }
}

impl CompiledModel {
    pub(crate) fn new(
        manifest: Manifest,
        constants: Vec<Constant>,
    ) -> Result<CompiledModel, Inconsistent> {
        let mut lens: Vec<u64> = constants.iter().map(|c| c.bytes.len() as u64).collect();
        derived::declare(&manifest, &mut lens)?;
        check(&manifest, &lens)?;
        Ok(CompiledModel {
            manifest,
            constants,
        })
    }

    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    pub fn target(&self) -> &KernelTarget {
        &self.manifest.target
    }

    /// Name and version of the compiler that made the model.
    pub fn compiler(&self) -> &str {
        &self.manifest.compiler
    }

    /// How exact the kernels are, in the compiler's word; empty if it did not say.
    pub fn accuracy(&self) -> &str {
        &self.manifest.accuracy
    }

    /// Threads that the kernels were chosen for, if the compiler said so. Any number of threads may run the model.
    pub fn threads(&self) -> Option<usize> {
        Some(self.manifest.threads as usize).filter(|n| *n > 0)
    }

    /// What the compiler was asked for, by names of its own: with it the compiler plans the same model again. Empty if it
    /// did not say.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.manifest.settings
    }

    /// The steps that were to read and write plain tensors where others of their
    /// kind have blocks: with them the compiler plans the same model again.
    pub fn plain_steps(&self) -> &[String] {
        &self.manifest.plain_steps
    }

    pub fn inputs(&self) -> &[TensorId] {
        &self.manifest.inputs
    }

    /// The results, then the counts that [`CompiledModel::crops`] names.
    pub fn outputs(&self) -> &[TensorId] {
        &self.manifest.outputs
    }

    /// The outputs that are results.
    pub fn results(&self) -> &[TensorId] {
        let outputs = &self.manifest.outputs;
        &outputs[..tensor::results(outputs.len(), &self.crops())]
    }

    /// Outputs of which only the first elements along an axis are results.
    pub fn crops(&self) -> Vec<Crop> {
        let crop = |&[output, axis, count]: &[usize; 3]| Crop {
            output,
            axis,
            count,
        };
        self.manifest.crops.iter().map(crop).collect()
    }

    /// Inputs that keep what outputs gave for the inference after it.
    pub fn states(&self) -> &[State] {
        &self.manifest.states
    }

    /// By [`TensorId::index`].
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.manifest.tensors
    }

    /// # Panics
    /// If `id` is of another model and out of range here.
    pub fn tensor(&self, id: TensorId) -> &TensorInfo {
        &self.manifest.tensors[id.index()]
    }

    /// The first tensor of this name.
    pub fn tensor_named(&self, name: &str) -> Option<TensorId> {
        let at = self.manifest.tensors.iter().position(|t| t.name == name)?;
        Some(TensorId(at as u32))
    }

    /// By [`KernelId::index`].
    pub fn kernels(&self) -> &[Arc<BuiltKernel>] {
        &self.manifest.kernels
    }

    /// By [`StepId::index`].
    pub fn steps(&self) -> &[ModelStep] {
        &self.manifest.steps
    }

    /// No step is in two of them.
    pub fn groups(&self) -> &[StepGroup] {
        &self.manifest.groups
    }

    /// The group that a step is in, by its position.
    pub fn group_of(&self, step: usize) -> Option<usize> {
        let of = |g: &StepGroup| g.steps.iter().any(|s| s.index() == step);
        self.manifest.groups.iter().position(of)
    }

    /// How many alternatives of a step are of no set of its group. They are the first ones.
    ///
    /// # Panics
    /// If there is no such step.
    pub fn free_alternatives(&self, step: usize) -> usize {
        let group = self.group_of(step);
        let sets = group.map_or(0, |at| self.manifest.groups[at].sets);
        self.manifest.steps[step].alternatives.len() - sets
    }

    /// The tensors that the first alternative of a step writes and that hold their values when the step
    /// is over: not those whose memory a later call has taken.
    pub fn step_outputs(&self, step: StepId) -> impl Iterator<Item = TensorId> {
        let calls = &self.manifest.steps[step.index()].alternatives[0].calls;
        let left = move |(at, id): &(usize, TensorId)| {
            let later = calls[at + 1..].iter().flat_map(|c| self.written(c));
            !later.into_iter().any(|other| self.share_bytes(*id, other))
        };
        let written = calls.iter().enumerate();
        let written = written.flat_map(move |(at, c)| self.written(c).map(move |id| (at, id)));
        written.filter(left).map(|(_, id)| id)
    }

    /// The tensors that a call writes.
    fn written<'a>(&'a self, call: &'a Call) -> impl Iterator<Item = TensorId> + 'a {
        let args = self.kernel(call).params.iter().zip(&call.args);
        args.filter(|(p, _)| p.role == ParamRole::Output)
            .map(|(_, id)| *id)
    }

    /// Where the bytes of a tensor are, which is no view, and from which byte on they are its own.
    pub fn root_place(&self, id: TensorId) -> (TensorPlace, u64) {
        match self.tensor(id).place {
            TensorPlace::View { root, byte_offset } => (self.tensor(root).place, byte_offset),
            place => (place, 0),
        }
    }

    /// Whether the bytes from the first to the last of two activations overlap in the arena.
    fn share_bytes(&self, a: TensorId, b: TensorId) -> bool {
        let range = |id: TensorId| {
            let bytes = self.tensor(id).span_bytes()?;
            match self.root_place(id) {
                (TensorPlace::Arena { offset }, at) => Some(offset + at..offset + at + bytes),
                _ => None,
            }
        };
        let both = range(a).zip(range(b));
        both.is_some_and(|(a, b)| a.start < b.end && b.start < a.end)
    }

    /// The kernel that is called.
    ///
    /// # Panics
    /// If the call is of another model and out of range here.
    pub fn kernel(&self, call: &Call) -> &BuiltKernel {
        &self.manifest.kernels[call.kernel.index()]
    }

    /// Bytes of memory for activations.
    pub fn arena_bytes(&self) -> u64 {
        self.manifest.arena_bytes
    }

    /// Steps that write an output where they read an input.
    pub fn steps_in_place(&self) -> usize {
        let offset = |id: &TensorId| match self.manifest.tensors[id.index()].place {
            TensorPlace::Arena { offset } => Some(offset),
            _ => None,
        };
        let in_place = |step: &&ModelStep| {
            let args = step.calls().map(|c| {
                let params = self.kernel(c).params.iter();
                params.zip(c.args.iter().map(offset))
            });
            args.into_iter().any(|args| {
                let of = |role| args.clone().filter(move |(p, _)| p.role == role);
                let mut outputs = of(ParamRole::Output).filter_map(|(_, at)| at);
                outputs.any(|at| of(ParamRole::Input).any(|(_, i)| i == Some(at)))
            })
        };
        self.manifest.steps.iter().filter(in_place).count()
    }

    /// The bytes of a stored constant ([`TensorPlace::Constant`]).
    ///
    /// # Panics
    /// If there is no such constant.
    pub fn stored(&self, blob: u32) -> &[u8] {
        &self.constants[blob as usize].bytes
    }

    /// Stored constants, and whether each is prepared: derived from others for a kernel.
    pub fn constants(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.constants.iter().map(|c| (&*c.bytes, c.prepared))
    }

    /// Bytes of stored constants, prepared ones included.
    pub fn constant_bytes(&self) -> u64 {
        self.constants.iter().map(|c| c.bytes.len() as u64).sum()
    }

    /// Bytes of workspace that the largest alternative needs with `threads` workers.
    pub fn workspace_bytes(&self, threads: u32) -> u64 {
        let sizes = self
            .manifest
            .kernels
            .iter()
            .map(|k| k.workspace_size(threads));
        sizes.max().unwrap_or(0)
    }
}

/// A part of a model that contradicts another.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Inconsistent(pub(crate) String);

fn check(manifest: &Manifest, constant_bytes: &[u64]) -> Result<(), Inconsistent> {
    for tensor in &manifest.tensors {
        check_tensor(manifest, tensor, constant_bytes)
            .map_err(|what| Inconsistent(format!("tensor `{}` {what}", tensor.name)))?;
    }
    let ends = manifest.tensors.iter().filter_map(|t| match t.place {
        TensorPlace::Arena { offset } => Some(offset.saturating_add(t.span_bytes()?)),
        _ => None,
    });
    let needed = align_up(ends.max().unwrap_or(0));
    if manifest.arena_bytes > needed {
        let declared = manifest.arena_bytes;
        return Err(Inconsistent(format!(
            "activations have {declared} bytes and need {needed}"
        )));
    }
    for (ids, what) in [(&manifest.inputs, "input"), (&manifest.outputs, "output")] {
        for id in ids {
            let info = get(manifest, *id).map_err(|e| Inconsistent(format!("an {what} {e}")))?;
            let arena = matches!(info.place, TensorPlace::Arena { .. });
            let stored = !matches!(
                root_place(manifest, info),
                Some(TensorPlace::Discarded) | None
            );
            if !info.is_dense() || !stored || (what == "input" && !arena) {
                let name = &info.name;
                return Err(Inconsistent(format!(
                    "{what} `{name}` is not a dense stored tensor"
                )));
            }
        }
    }
    for crop in &manifest.crops {
        check_crop(manifest, *crop)?;
    }
    for state in &manifest.states {
        check_state(manifest, *state)?;
    }
    for step in &manifest.steps {
        check_step(manifest, step)
            .map_err(|what| Inconsistent(format!("step `{}` {what}", step.name)))?;
    }
    for state in &manifest.states {
        if !may_be_in_place(manifest, *state) {
            let (input, output) = (state.input, state.output);
            return Err(Inconsistent(format!(
                "output {output} is written over the state of input {input}, which is read at other times"
            )));
        }
    }
    check_groups(manifest)
}

fn check_groups(manifest: &Manifest) -> Result<(), Inconsistent> {
    let mut grouped = BTreeSet::new();
    for (at, group) in manifest.groups.iter().enumerate() {
        let fail = |what: &str| Err(Inconsistent(format!("group {at} {what}")));
        if group.steps.len() < 2 || !group.steps.is_sorted() || group.sets == 0 {
            return fail("has no two steps in their order, or no set");
        }
        let mut keys = BTreeSet::new();
        for id in &group.steps {
            let Some(step) = manifest.steps.get(id.index()) else {
                return fail("names a step of none");
            };
            if !grouped.insert(*id) {
                return fail("has a step that is in a group already");
            }
            if step.alternatives.len() <= group.sets {
                return fail("has a step without a free alternative");
            }
            keys.insert(&step.key_shape);
        }
        if keys.len() > 1 {
            return fail("has steps with different keys");
        }
    }
    Ok(())
}

fn check_state(manifest: &Manifest, s: State) -> Result<(), Inconsistent> {
    let named = |ids: &[TensorId], at: usize| manifest.tensors.get(ids.get(at)?.index());
    let ends = [
        named(&manifest.inputs, s.input),
        named(&manifest.outputs, s.output),
        manifest.tensors.get(s.initial.index()),
    ];
    let kind = |t: Option<&TensorInfo>| t.map(|t| (t.dtype, t.shape.clone(), t.is_dense()));
    let fits = ends
        .iter()
        .all(|t| t.is_some() && kind(*t) == kind(ends[0]));
    let stored = ends[2].is_some_and(|t| matches!(t.place, TensorPlace::Constant { .. }));
    match fits && stored {
        true => Ok(()),
        false => Err(Inconsistent(format!(
            "the state of input {} does not fit output {} and its first value",
            s.input, s.output
        ))),
    }
}

fn check_crop(manifest: &Manifest, [output, axis, count]: [usize; 3]) -> Result<(), Inconsistent> {
    let info = |i: usize| {
        let id = manifest.outputs.get(i)?;
        manifest.tensors.get(id.index())
    };
    let first = manifest.crops.iter().map(|c| c[2]).min().unwrap_or(0);
    let has_axis = output < first && info(output).is_some_and(|t| axis < t.shape.len());
    let counts = info(count).is_some_and(|t| t.dtype == DType::I64 && t.elements() == Some(1));
    match has_axis && counts {
        true => Ok(()),
        false => Err(Inconsistent(format!(
            "output {output} has its size along axis {axis} from output {count}, which does not fit"
        ))),
    }
}

fn get(manifest: &Manifest, id: TensorId) -> Result<&TensorInfo, String> {
    manifest
        .tensors
        .get(id.index())
        .ok_or_else(|| format!("names tensor {} of none", id.0))
}

/// The place of the tensor that holds the bytes.
fn root_place(manifest: &Manifest, info: &TensorInfo) -> Option<TensorPlace> {
    match info.place {
        TensorPlace::View { root, .. } => manifest.tensors.get(root.index()).map(|t| t.place),
        place => Some(place),
    }
}

fn check_tensor(
    manifest: &Manifest,
    tensor: &TensorInfo,
    constant_bytes: &[u64],
) -> Result<(), String> {
    let too_large = || "is larger than memory".to_string();
    let span = tensor.span_bytes().ok_or_else(too_large)?;
    if !tensor.elements_lie_apart() {
        let (shape, strides) = (&tensor.shape, &tensor.strides);
        return Err(format!(
            "of shape {shape:?} has strides {strides:?}, by which elements overlap"
        ));
    }
    let (offset, available, aligned) = match tensor.place {
        TensorPlace::Discarded => return Ok(()),
        TensorPlace::Arena { offset } => (
            offset,
            manifest.arena_bytes,
            offset.is_multiple_of(WORKSPACE_ALIGN),
        ),
        TensorPlace::Constant { blob } => {
            let bytes = constant_bytes.get(blob as usize);
            (
                0,
                *bytes.ok_or("names a constant that is not stored")?,
                true,
            )
        }
        TensorPlace::View { root, byte_offset } => {
            let root = get(manifest, root)?;
            if matches!(root.place, TensorPlace::View { .. }) {
                return Err("is a view of a view".to_string());
            }
            let aligned = byte_offset.is_multiple_of(tensor.dtype.size() as u64);
            (
                byte_offset,
                root.span_bytes().ok_or_else(too_large)?,
                aligned,
            )
        }
    };
    if !aligned {
        return Err(format!("lies at offset {offset}, which is not aligned"));
    }
    match offset.checked_add(span) {
        Some(end) if end <= available => Ok(()),
        _ => Err(format!(
            "takes {span} bytes at offset {offset} of only {available}"
        )),
    }
}

fn check_step(manifest: &Manifest, step: &ModelStep) -> Result<(), String> {
    if step.alternatives.is_empty() || step.alternatives.iter().any(|a| a.calls.is_empty()) {
        return Err("has no kernel".to_string());
    }
    step.calls().try_for_each(|call| check_call(manifest, call))
}

fn check_call(manifest: &Manifest, call: &Call) -> Result<(), String> {
    let kernel = manifest.kernels.get(call.kernel.index());
    let kernel = kernel.ok_or("names a kernel that is not stored")?;
    if call.args.len() != kernel.params.len() {
        let (given, wanted) = (call.args.len(), kernel.params.len());
        return Err(format!("passes {given} arguments to a kernel of {wanted}"));
    }
    for (param, id) in kernel.params.iter().zip(&call.args) {
        let tensor = get(manifest, *id)?;
        let name = &param.name;
        // A kernel touches all of a dense parameter; a view's strides may cover less.
        let same = param.dtype == tensor.dtype && param.elements() == tensor.elements();
        if !same || tensor.span_bytes() < param.bytes() {
            return Err(format!(
                "passes {} {:?} (`{}`) for the parameter `{name}`, which is {} {:?}",
                tensor.dtype, tensor.shape, tensor.name, param.dtype, param.shape
            ));
        }
        let place = root_place(manifest, tensor).unwrap_or(TensorPlace::Discarded);
        let fits = match param.role {
            ParamRole::Output => matches!(place, TensorPlace::Arena { .. }),
            ParamRole::Constant | ParamRole::Prepared => {
                matches!(place, TensorPlace::Constant { .. })
            }
            ParamRole::Input => matches!(
                place,
                TensorPlace::Arena { .. } | TensorPlace::Constant { .. }
            ),
        };
        if !fits {
            return Err(format!(
                "passes `{}` for the parameter `{name}`, which does not fit its role {:?}",
                tensor.name, param.role
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
