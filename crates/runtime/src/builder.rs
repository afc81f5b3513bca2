//! Puts a compiled model together from built kernels.
//!
//! Owns binding tensors to parameters, preparing constants, lifetimes and the
//! memory plan. Promises that a model which comes out reads nothing before it
//! is written, that equal constants are stored once, and that equal prepare
//! work runs once. Which kernels run, and in which order, is the compiler's
//! decision.

use crate::abi::KernelFailure;
use crate::choices::without_unused_constants;
use crate::elf::{ElfError, LoadedCode};
use crate::guard::{CanaryError, GuardedBuffer};
use crate::kernel::{BuiltKernel, KernelParam, KernelTarget, ParamRole};
use crate::model::{
    Alternative, Blob, Buffer, CompiledModel, Constant, Inconsistent, KernelId, Manifest,
    ModelStep, State, StepId, TensorId, TensorInfo, TensorPlace, gathered,
};
use crate::plan::{BufferUse, plan_memory};
use crate::pool::Pool;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use tensor::{AlignedBytes, Crop, DType, Tensor};
use thiserror::Error;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Why a model cannot be put together: the compiler's kernels, bindings or
/// order of steps are wrong, or a prepare entry failed.
#[derive(Debug, Error)]
pub enum BuildModelError {
    #[error("kernel `{kernel}` of step `{step}` has no parameter `{param}` to bind `{tensor}` to")]
    UnknownParam {
        step: String,
        kernel: String,
        param: String,
        tensor: String,
    },
    #[error("step `{step}` binds nothing to the parameter `{param}` of kernel `{kernel}`")]
    Unbound {
        step: String,
        kernel: String,
        param: String,
    },
    #[error(
        "step `{step}` binds `{tensor}` ({given}) to the parameter `{param}`, which is {expected}"
    )]
    Mismatch {
        step: String,
        tensor: String,
        param: String,
        given: String,
        expected: String,
    },
    #[error("step `{step}` binds `{tensor}` to the parameter `{param}`: {reason}")]
    Role {
        step: String,
        tensor: String,
        param: String,
        reason: &'static str,
    },
    #[error("step `{step}` has no alternative; give it at least one kernel")]
    NoAlternative { step: String },
    #[error("the alternatives of step `{step}` write different tensors")]
    Outputs { step: String },
    #[error("step `{step}` reads and writes overlapping parts of `{tensor}`")]
    InPlace { step: String, tensor: String },
    #[error("a view `{view}` of `{tensor}` {reason}")]
    View {
        view: String,
        tensor: String,
        reason: String,
    },
    #[error("`{tensor}` is an output and no step writes it")]
    NeverWritten { tensor: String },
    #[error("kernel `{kernel}` cannot be loaded to prepare constants: {source}")]
    Code { kernel: String, source: ElfError },
    #[error("preparing the constants of step `{step}` failed: {failure}")]
    Prepare {
        step: String,
        failure: KernelFailure,
    },
    #[error("preparing the constants of step `{step}` damaged memory: {source}")]
    PrepareCanary { step: String, source: CanaryError },
    #[error("cannot get memory to prepare the constants of step `{step}`: {source}")]
    Memory { step: String, source: io::Error },
    #[error(transparent)]
    Inconsistent(#[from] Inconsistent),
}

/// The bytes of a constant that the model's maker keeps as well.
struct Value(Arc<Tensor>);

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// A kernel for a step, with a tensor for each of its parameters by name:
/// those of the kernel that are not prepared, and the constants of its prepare entry.
#[derive(Clone, Debug)]
pub struct BoundKernel<'a> {
    pub kernel: KernelId,
    pub bind: Vec<(&'a str, TensorId)>,
}

/// Identifies prepare work: what it computes, its entry, and the constants it reads.
type PrepareKey = (u64, String, Vec<(u32, u64, u64)>);

/// Collects a model; tensors are declared before the steps that use them, and
/// steps are added in the order they run.
pub struct ModelBuilder {
    pool: Arc<Pool>,
    manifest: Manifest,
    constants: Vec<Constant>,
    constant_ids: HashMap<(u128, bool), u32>,
    kernel_ids: HashMap<(u64, String), Vec<KernelId>>,
    prepared: HashMap<PrepareKey, Vec<(String, TensorId)>>,
    /// The steps that use a tensor which is no view: first and last.
    uses: BTreeMap<TensorId, (usize, usize)>,
    /// Constants that no later step uses.
    released: BTreeSet<TensorId>,
    /// Tensors, no views, that hold values before the next step.
    written: BTreeSet<TensorId>,
    /// For each step the outputs that may have the memory of an input, with that
    /// input, whichever alternative runs.
    in_place: Vec<Vec<(TensorId, TensorId)>>,
}

impl ModelBuilder {
    /// Prepare entries run on `pool`.
    pub fn new(name: &str, target: KernelTarget, compiler: &str, pool: Arc<Pool>) -> ModelBuilder {
        ModelBuilder {
            pool,
            manifest: Manifest {
                name: name.to_string(),
                target,
                compiler: compiler.to_string(),
                accuracy: String::new(),
                plain_steps: Vec::new(),
                tensors: Vec::new(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                crops: Vec::new(),
                states: Vec::new(),
                kernels: Vec::new(),
                steps: Vec::new(),
                arena_bytes: 0,
            },
            constants: Vec::new(),
            constant_ids: HashMap::new(),
            kernel_ids: HashMap::new(),
            prepared: HashMap::new(),
            uses: BTreeMap::new(),
            released: BTreeSet::new(),
            written: BTreeSet::new(),
            in_place: Vec::new(),
        }
    }

    /// Says how exact the kernels are, in the compiler's word; it is only stored.
    pub fn set_accuracy(&mut self, accuracy: &str) {
        self.manifest.accuracy = accuracy.to_string();
    }

    /// See [`CompiledModel::plain_steps`].
    pub fn set_plain_steps(&mut self, names: &[String]) {
        self.manifest.plain_steps = names.to_vec();
    }

    /// Equal kernels get the same id.
    pub fn add_kernel(&mut self, kernel: BuiltKernel) -> KernelId {
        let next = KernelId(self.manifest.kernels.len() as u32);
        let ids = self
            .kernel_ids
            .entry((kernel.code_hash(), kernel.entry.clone()))
            .or_default();
        let same = ids
            .iter()
            .find(|id| *self.manifest.kernels[id.index()] == kernel);
        if let Some(id) = same {
            return *id;
        }
        ids.push(next);
        self.manifest.kernels.push(Arc::new(kernel));
        next
    }

    /// An input of the model, in the order of calls.
    pub fn add_input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> TensorId {
        let id = self.add_tensor(name, dtype, shape);
        self.manifest.inputs.push(id);
        self.written.insert(id);
        id
    }

    /// A constant; its bytes are stored once, and only if a step reads them as they are.
    pub fn add_constant(&mut self, name: &str, value: impl Into<Arc<Tensor>>) -> TensorId {
        let value = value.into();
        let blob = self.add_blob(Arc::new(Value(value.clone())), false);
        let place = TensorPlace::Constant { blob };
        self.push(TensorInfo::dense(name, value.dtype(), value.shape(), place))
    }

    /// Drops the bytes of a constant that no later step uses, unless a step reads them
    /// as they are, or another constant has the same.
    pub fn release(&mut self, constant: TensorId) {
        let root = self.root(constant).0;
        let TensorPlace::Constant { blob } = self.manifest.tensors[root.index()].place else {
            return;
        };
        self.released.insert(root);
        let same =
            |t: &TensorInfo| matches!(t.place, TensorPlace::Constant { blob: b } if b == blob);
        let tensors = self.manifest.tensors.iter().enumerate();
        let mut owners = tensors
            .filter(|(_, t)| same(t))
            .map(|(i, _)| TensorId(i as u32));
        let kept = |id: TensorId| !self.released.contains(&id) || self.uses.contains_key(&id);
        if !owners.any(kept) {
            let none: Arc<Buffer> = Arc::new(AlignedBytes::zeroed(0));
            self.constants[blob as usize].bytes = Blob::new(&none, 0..0);
            // Equal bytes that come later are stored again.
            self.constant_ids.retain(|_, id| *id != blob);
        }
    }

    /// A tensor that a step writes and later ones read.
    pub fn add_tensor(&mut self, name: &str, dtype: DType, shape: &[usize]) -> TensorId {
        self.push(TensorInfo::dense(
            name,
            dtype,
            shape,
            TensorPlace::Arena { offset: 0 },
        ))
    }

    /// Another shape for (a part of) the bytes of a tensor: a reshape, a slice,
    /// a part of a concatenation. `strides` are in elements; `None` is dense.
    /// The offset counts from the first element of `of`. Tensors start 64-byte
    /// aligned; a view is aligned as its offset is.
    pub fn add_view(
        &mut self,
        name: &str,
        of: TensorId,
        byte_offset: u64,
        dtype: DType,
        shape: &[usize],
        strides: Option<&[usize]>,
    ) -> Result<TensorId, BuildModelError> {
        let (root, base) = self.root(of);
        let offset = base.saturating_add(byte_offset);
        let place = TensorPlace::View {
            root,
            byte_offset: offset,
        };
        let mut view = TensorInfo::dense(name, dtype, shape, place);
        if let Some(strides) = strides {
            view.strides = strides.to_vec();
        }
        let available = self.manifest.tensors[root.index()]
            .span_bytes()
            .unwrap_or(0);
        let reason = match view.span_bytes() {
            None => "has strides that do not match its shape".to_string(),
            Some(span) if offset.saturating_add(span) > available => {
                format!("needs {span} bytes from byte {offset} on of {available}")
            }
            Some(_) if !offset.is_multiple_of(dtype.size() as u64) => {
                format!("starts at byte {offset}, which is not aligned for {dtype}")
            }
            Some(_) => return Ok(self.push(view)),
        };
        let tensor = self.manifest.tensors[of.index()].name.clone();
        Err(BuildModelError::View {
            view: name.to_string(),
            tensor,
            reason,
        })
    }

    /// An output of the model, in the order of calls, under the tensor's name.
    pub fn mark_output(&mut self, tensor: TensorId) {
        self.manifest.outputs.push(tensor);
    }

    /// Declares that of an output only the first elements are results. Counts are the last
    /// outputs.
    pub fn crop(&mut self, crop: Crop) {
        let Crop {
            output,
            axis,
            count,
        } = crop;
        self.manifest.crops.push([output, axis, count]);
    }

    /// Declares that an input begins with a value and keeps what an output gives for the inference after it.
    /// Positions are those of inputs and outputs in the order of calls.
    pub fn add_state(&mut self, input: usize, output: usize, initial: impl Into<Arc<Tensor>>) {
        let name = match self.manifest.inputs.get(input) {
            Some(id) => self.manifest.tensors[id.index()].name.clone(),
            None => String::new(),
        };
        let initial = self.add_constant(&format!("{name}.initial"), initial);
        self.manifest.states.push(State {
            input,
            output,
            initial,
        });
    }

    /// Adds the next step. `key_shape` is what the best alternative depends on
    /// besides the thread count. Constants are prepared here.
    pub fn add_step(
        &mut self,
        name: &str,
        key_shape: &[i64],
        choices: &[BoundKernel<'_>],
    ) -> Result<StepId, BuildModelError> {
        let step = || name.to_string();
        let mut alternatives = Vec::with_capacity(choices.len());
        for choice in choices {
            alternatives.push(self.bind(name, choice)?);
        }
        let mut written: Option<BTreeSet<TensorId>> = None;
        for alternative in &alternatives {
            let outputs = self.check_access(name, alternative)?;
            if *written.get_or_insert_with(|| outputs.clone()) != outputs {
                return Err(BuildModelError::Outputs { step: step() });
            }
        }
        let written = written.ok_or_else(|| BuildModelError::NoAlternative { step: step() })?;
        let index = self.manifest.steps.len();
        for id in alternatives.iter().flat_map(|a| &a.args) {
            let uses = self.uses.entry(self.root(*id).0).or_insert((index, index));
            uses.1 = index;
        }
        for id in written {
            self.written.insert(self.root(id).0);
        }
        self.in_place.push(self.shared_pairs(&alternatives));
        let key_shape = key_shape.to_vec();
        self.manifest.steps.push(ModelStep {
            name: step(),
            key_shape,
            alternatives,
        });
        Ok(StepId(index as u32))
    }

    /// Plans the memory and drops what no step uses.
    pub fn finish(mut self) -> Result<CompiledModel, BuildModelError> {
        for id in &self.manifest.outputs {
            let root = self.root(*id).0;
            let constant = matches!(
                self.manifest.tensors[root.index()].place,
                TensorPlace::Constant { .. }
            );
            if !constant && !self.written.contains(&root) {
                let tensor = self.manifest.tensors[id.index()].name.clone();
                return Err(BuildModelError::NeverWritten { tensor });
            }
        }
        self.place_activations();
        let constants = without_unused_constants(&mut self.manifest, &self.constants);
        let constants = gathered(constants);
        Ok(CompiledModel::new(self.manifest, constants)?)
    }

    fn push(&mut self, info: TensorInfo) -> TensorId {
        let id = TensorId(self.manifest.tensors.len() as u32);
        self.manifest.tensors.push(info);
        id
    }

    /// The tensor that holds the bytes, and the offset of `id` in it.
    fn root(&self, id: TensorId) -> (TensorId, u64) {
        match self.manifest.tensors[id.index()].place {
            TensorPlace::View { root, byte_offset } => (root, byte_offset),
            _ => (id, 0),
        }
    }

    fn add_blob(&mut self, buffer: Arc<Buffer>, prepared: bool) -> u32 {
        // 128 bits: taking two different constants for one would be a silent error.
        let key = (xxh3_128(&buffer), prepared);
        let next = self.constants.len() as u32;
        let id = *self.constant_ids.entry(key).or_insert(next);
        if id == next {
            let bytes = Blob::new(&buffer, 0..buffer.len());
            self.constants.push(Constant { bytes, prepared });
        }
        id
    }

    /// Checks the bindings, prepares, and puts the arguments in order.
    fn bind(
        &mut self,
        step: &str,
        choice: &BoundKernel<'_>,
    ) -> Result<Alternative, BuildModelError> {
        let at = choice.kernel.index();
        let kernel = &self.manifest.kernels[at];
        let all = || kernel.params.iter().chain(&kernel.prepare_params);
        for (param, tensor) in &choice.bind {
            if !all().any(|p| p.name == *param && p.role != ParamRole::Prepared) {
                return Err(BuildModelError::UnknownParam {
                    step: step.to_string(),
                    kernel: kernel.entry.clone(),
                    param: (*param).to_string(),
                    tensor: self.manifest.tensors[tensor.index()].name.clone(),
                });
            }
        }
        let prepared = self.prepare(step, choice)?;
        let kernel = &self.manifest.kernels[at];
        let mut args = Vec::with_capacity(kernel.params.len());
        for param in &kernel.params {
            let prepared = prepared.iter().find(|(name, _)| *name == param.name);
            let id = match (param.role, prepared) {
                (ParamRole::Prepared, Some((_, id))) => *id,
                (ParamRole::Prepared, None) => return Err(unbound(step, kernel, param)),
                _ => bound(step, kernel, param, choice)?,
            };
            self.check_binding(step, param, id)?;
            args.push(id);
        }
        Ok(Alternative {
            kernel: choice.kernel,
            args,
        })
    }

    fn check_binding(
        &self,
        step: &str,
        param: &KernelParam,
        id: TensorId,
    ) -> Result<(), BuildModelError> {
        let info = &self.manifest.tensors[id.index()];
        let same = info.dtype == param.dtype && info.elements() == param.elements();
        if !same || info.span_bytes() < param.bytes() {
            return Err(BuildModelError::Mismatch {
                step: step.to_string(),
                tensor: info.name.clone(),
                param: param.name.clone(),
                given: format!("{} {:?} by {:?}", info.dtype, info.shape, info.strides),
                expected: format!("{} {:?}", param.dtype, param.shape),
            });
        }
        let root = self.root(id).0;
        let constant = matches!(
            self.manifest.tensors[root.index()].place,
            TensorPlace::Constant { .. }
        );
        let reason = match param.role {
            ParamRole::Output if constant => "a constant cannot be written",
            ParamRole::Output if self.manifest.inputs.contains(&root) => {
                "an input of the model cannot be written"
            }
            ParamRole::Constant | ParamRole::Prepared if !constant => "it is not a constant",
            ParamRole::Input if !constant && !self.written.contains(&root) => {
                "no earlier step writes it"
            }
            _ => return Ok(()),
        };
        let (tensor, param) = (info.name.clone(), param.name.clone());
        Err(BuildModelError::Role {
            step: step.to_string(),
            tensor,
            param,
            reason,
        })
    }

    /// Refuses an output that overlaps another argument: kernels are compiled
    /// for arguments that do not. The tensors that the alternative writes.
    fn check_access(
        &self,
        step: &str,
        alternative: &Alternative,
    ) -> Result<BTreeSet<TensorId>, BuildModelError> {
        let params = &self.manifest.kernels[alternative.kernel.index()].params;
        let mut outputs = BTreeSet::new();
        for (i, (param, id)) in params.iter().zip(&alternative.args).enumerate() {
            if param.role != ParamRole::Output {
                continue;
            }
            outputs.insert(*id);
            let others = alternative.args.iter().enumerate().filter(|(j, _)| *j != i);
            for (_, other) in others {
                if self.overlap(*id, *other) {
                    let tensor = self.manifest.tensors[id.index()].name.clone();
                    return Err(BuildModelError::InPlace {
                        step: step.to_string(),
                        tensor,
                    });
                }
            }
        }
        Ok(outputs)
    }

    /// Outputs that every alternative may write over an input, with that input.
    fn shared_pairs(&self, alternatives: &[Alternative]) -> Vec<(TensorId, TensorId)> {
        let pairs = |a: &Alternative| -> Vec<(TensorId, TensorId)> {
            let kernel = &self.manifest.kernels[a.kernel.index()];
            let arg = |at: u32| a.args[at as usize];
            // What another argument reads too is read at other times.
            let once = |at: u32| {
                let others = (0..a.args.len() as u32).filter(|i| *i != at);
                !others.into_iter().any(|i| self.overlap(arg(i), arg(at)))
            };
            let pairs = kernel.in_place.iter().filter(|(_, input)| once(*input));
            pairs
                .map(|(output, input)| (arg(*output), arg(*input)))
                .collect()
        };
        let mut all = alternatives.iter().map(pairs);
        let first = all.next().unwrap_or_default();
        all.fold(first, |mut kept, of| {
            kept.retain(|pair| of.contains(pair));
            kept
        })
    }

    /// The tensors that share the memory of another, each with a number for
    /// their group: outputs of a step that is the last to use an input as large.
    fn alias_groups(&self, uses: &BTreeMap<TensorId, (usize, usize)>) -> BTreeMap<TensorId, usize> {
        let mut groups = BTreeMap::new();
        let bytes = |id: TensorId| self.manifest.tensors[id.index()].span_bytes();
        for (step, pairs) in self.in_place.iter().enumerate() {
            for (output, input) in pairs {
                let begins = uses.get(output).is_some_and(|u| u.0 == step);
                let ends = uses.get(input).is_some_and(|u| u.1 == step);
                let in_arena = |id: &TensorId| {
                    matches!(
                        self.manifest.tensors[id.index()].place,
                        TensorPlace::Arena { .. }
                    )
                };
                let free = !groups.contains_key(output) && in_arena(output) && in_arena(input);
                let taken = pairs
                    .iter()
                    .any(|(o, i)| i == input && groups.contains_key(o));
                if begins && ends && free && !taken && bytes(*output) == bytes(*input) {
                    let next = groups.len();
                    let group = *groups.entry(*input).or_insert(next);
                    groups.insert(*output, group);
                }
            }
        }
        groups
    }

    /// Whether two tensors may share bytes; strided views that interleave do
    /// not count as overlapping unless one of them is dense.
    fn overlap(&self, a: TensorId, b: TensorId) -> bool {
        let ((root_a, at_a), (root_b, at_b)) = (self.root(a), self.root(b));
        let (a, b) = (
            &self.manifest.tensors[a.index()],
            &self.manifest.tensors[b.index()],
        );
        let span = |info: &TensorInfo| info.span_bytes().unwrap_or(u64::MAX);
        let ranges_overlap =
            at_a < at_b.saturating_add(span(b)) && at_b < at_a.saturating_add(span(a));
        let interleaved = !a.is_dense() && !b.is_dense() && at_a != at_b;
        root_a == root_b && ranges_overlap && !interleaved
    }

    /// Runs the prepare entry of a choice unless equal work was done; the
    /// prepared tensors by parameter name.
    fn prepare(
        &mut self,
        step: &str,
        choice: &BoundKernel<'_>,
    ) -> Result<Vec<(String, TensorId)>, BuildModelError> {
        let kernel = &self.manifest.kernels[choice.kernel.index()];
        let Some(entry) = kernel.prepare_entry.clone() else {
            return Ok(Vec::new());
        };
        let work = match kernel.prepare_hash {
            0 => xxh3_64(kernel.prepare_object()),
            hash => hash,
        };
        let mut key = (work, entry, Vec::new());
        let mut inputs: Vec<*mut c_void> = Vec::new();
        for param in kernel
            .prepare_params
            .iter()
            .filter(|p| p.role != ParamRole::Prepared)
        {
            let id = bound(step, kernel, param, choice)?;
            self.check_binding(step, param, id)?;
            let (root, offset) = self.root(id);
            let TensorPlace::Constant { blob } = self.manifest.tensors[root.index()].place else {
                let tensor = self.manifest.tensors[id.index()].name.clone();
                let (param, reason) = (param.name.clone(), "it is not a constant");
                return Err(BuildModelError::Role {
                    step: step.to_string(),
                    tensor,
                    param,
                    reason,
                });
            };
            let info = &self.manifest.tensors[id.index()];
            key.2
                .push((blob, offset, info.span_bytes().unwrap_or(u64::MAX)));
            let bytes = &self.constants[blob as usize].bytes[offset as usize..];
            inputs.push(bytes.as_ptr().cast_mut().cast());
        }
        if let Some(done) = self.prepared.get(&key) {
            return Ok(done.clone());
        }
        let buffers = run_prepare(step, kernel, &key.1, inputs, &self.pool)?;
        let params: Vec<KernelParam> = kernel.prepare_params.clone();
        let params = params.iter().filter(|p| p.role == ParamRole::Prepared);
        let mut made = Vec::with_capacity(buffers.len());
        for (param, buffer) in params.zip(buffers) {
            let place = TensorPlace::Constant {
                blob: self.add_blob(Arc::new(buffer), true),
            };
            let shape: Vec<usize> = param
                .shape
                .iter()
                .map(|d| usize::try_from(*d).unwrap_or(0))
                .collect();
            let name = format!("{step}.{}", param.name);
            let id = self.push(TensorInfo::dense(&name, param.dtype, &shape, place));
            made.push((param.name.clone(), id));
        }
        self.prepared.insert(key, made.clone());
        Ok(made)
    }

    fn place_activations(&mut self) {
        let last = self.manifest.steps.len();
        let mut uses = std::mem::take(&mut self.uses);
        for id in &self.manifest.inputs {
            uses.insert(*id, (0, last));
        }
        for id in &self.manifest.outputs {
            uses.entry(self.root(*id).0).or_insert((0, last)).1 = last;
        }
        let groups = self.alias_groups(&uses);
        let tensors = &mut self.manifest.tensors;
        let (mut roots, mut buffers) = (Vec::new(), Vec::new());
        for (i, tensor) in tensors.iter_mut().enumerate() {
            if !matches!(tensor.place, TensorPlace::Arena { .. }) {
                continue;
            }
            let Some((first_use, last_use)) = uses.get(&TensorId(i as u32)).copied() else {
                tensor.place = TensorPlace::Discarded;
                continue;
            };
            let bytes = tensor.span_bytes().unwrap_or(u64::MAX);
            roots.push(i);
            buffers.push(BufferUse {
                bytes,
                first_use,
                last_use,
                alias_group: groups.get(&TensorId(i as u32)).copied(),
            });
        }
        let plan = plan_memory(&buffers);
        for (i, offset) in roots.into_iter().zip(plan.offsets) {
            tensors[i].place = TensorPlace::Arena { offset };
        }
        self.manifest.arena_bytes = plan.arena_bytes;
    }
}

fn unbound(step: &str, kernel: &BuiltKernel, param: &KernelParam) -> BuildModelError {
    BuildModelError::Unbound {
        step: step.to_string(),
        kernel: kernel.entry.clone(),
        param: param.name.clone(),
    }
}

fn bound(
    step: &str,
    kernel: &BuiltKernel,
    param: &KernelParam,
    choice: &BoundKernel<'_>,
) -> Result<TensorId, BuildModelError> {
    let binding = choice.bind.iter().find(|(name, _)| *name == param.name);
    binding
        .map(|(_, id)| *id)
        .ok_or_else(|| unbound(step, kernel, param))
}

/// Calls a prepare entry; what it wrote, in the order of its parameters.
fn run_prepare(
    step: &str,
    kernel: &BuiltKernel,
    entry: &str,
    mut args: Vec<*mut c_void>,
    pool: &Pool,
) -> Result<Vec<GuardedBuffer>, BuildModelError> {
    let code = |source| BuildModelError::Code {
        kernel: kernel.entry.clone(),
        source,
    };
    let memory = |source| BuildModelError::Memory {
        step: step.to_string(),
        source,
    };
    let loaded = LoadedCode::load(kernel.prepare_object()).map_err(code)?;
    let function = loaded.kernel(entry).map_err(code)?;
    let guarded = |bytes: Option<u64>| {
        let len = bytes
            .and_then(|b| usize::try_from(b).ok())
            .unwrap_or(usize::MAX);
        GuardedBuffer::new(len).map_err(memory)
    };
    let mut buffers = Vec::new();
    for param in kernel
        .prepare_params
        .iter()
        .filter(|p| p.role == ParamRole::Prepared)
    {
        let mut buffer = guarded(param.bytes())?;
        args.push(buffer.as_mut_ptr().cast());
        buffers.push(buffer);
    }
    let ctx = pool.ctx();
    let mut workspace = guarded(Some(kernel.prepare_workspace_size(ctx.threads)))?;
    // SAFETY: the arguments are those of `prepare_params`, large enough by
    // their shapes; the code keeping to them is the builder's promise.
    let result = unsafe { function(ctx, args.as_ptr(), workspace.as_mut_ptr().cast()) };
    KernelFailure::check(result).map_err(|failure| BuildModelError::Prepare {
        step: step.to_string(),
        failure,
    })?;
    for buffer in buffers.iter().chain([&workspace]) {
        buffer
            .check_canaries()
            .map_err(|source| BuildModelError::PrepareCanary {
                step: step.to_string(),
                source,
            })?;
    }
    Ok(buffers)
}
