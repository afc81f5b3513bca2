//! Puts a compiled model together from built kernels.
//!
//! Owns binding tensors to parameters and preparing constants. Promises that a model which comes out reads nothing before it
//! is written, that equal constants are stored once, and that equal prepare
//! work runs once. Which kernels run, and in which order, is the compiler's
//! decision.

use crate::abi::KernelFailure;
use crate::choices::without_unused_constants;
use crate::constants::{Blob, Buffer, Bytes, Constant, gathered};
use crate::derived::{Derivation, run_prepare};
use crate::elf::ElfError;
use crate::guard::CanaryError;
use crate::kernel::{BuiltKernel, KernelParam, KernelTarget, ParamRole};
use crate::lifetimes::{overlap, place_activations, root};
use crate::model::{
    Alternative, Call, CompiledModel, Inconsistent, KernelId, Manifest, ModelStep, State,
    StepGroup, StepId, TensorId, TensorInfo, TensorPlace,
};
use crate::pool::Pool;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use tensor::{AlignedBytes, Crop, DType, Tensor};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

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
    #[error("step `{step}` gives a group of {wanted} sets alternatives for {given}")]
    Sets {
        step: String,
        wanted: usize,
        given: usize,
    },
    #[error("step `{step}` writes `{tensor}`, which a group keeps for a later step")]
    Kept { step: String, tensor: String },
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

impl Bytes for Value {}

/// A kernel for a step, with a tensor for each of its parameters by name:
/// those of the kernel that are not prepared, and the constants of its prepare entry.
#[derive(Clone, Debug)]
pub struct BoundKernel<'a> {
    pub kernel: KernelId,
    pub bind: Vec<(&'a str, TensorId)>,
}

/// What the calls of one choice write.
#[derive(Default)]
struct Written {
    all: BTreeSet<TensorId>,
    /// What none of its later calls uses.
    results: BTreeSet<TensorId>,
    /// The tensors, no views, that no step wrote before.
    new: Vec<TensorId>,
}

/// A group of a model that is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(usize);

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
    derives: bool,
    /// Tensors, no views, that steps use.
    used: BTreeSet<TensorId>,
    /// Constants that no later step uses.
    released: BTreeSet<TensorId>,
    /// Tensors, no views, that hold values before the next step.
    written: BTreeSet<TensorId>,
    /// Of each group and each of its sets: tensors, no views, that hold values if the set runs.
    saved: Vec<Vec<BTreeSet<TensorId>>>,
}

impl ModelBuilder {
    /// Prepare entries run on `pool`, which has the threads that the kernels were chosen for.
    pub fn new(name: &str, target: KernelTarget, compiler: &str, pool: Arc<Pool>) -> ModelBuilder {
        let threads = pool.threads() as u32;
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
                groups: Vec::new(),
                derivations: Vec::new(),
                threads,
                settings: BTreeMap::new(),
                arena_bytes: 0,
            },
            constants: Vec::new(),
            constant_ids: HashMap::new(),
            kernel_ids: HashMap::new(),
            prepared: HashMap::new(),
            derives: false,
            used: BTreeSet::new(),
            released: BTreeSet::new(),
            written: BTreeSet::new(),
            saved: Vec::new(),
        }
    }

    /// Leaves what prepare entries make of fewer bytes of the model's constants out of its file. It is made again when a model that was
    /// loaded is made ready to run. Steps that were added before are as they were.
    pub fn derive_at_load(&mut self) {
        self.derives = true;
    }

    /// Says how exact the kernels are, in the compiler's word; it is only stored.
    pub fn set_accuracy(&mut self, accuracy: &str) {
        self.manifest.accuracy = accuracy.to_string();
    }

    /// See [`CompiledModel::settings`].
    pub fn set_settings(&mut self, settings: BTreeMap<String, String>) {
        self.manifest.settings = settings;
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
        let kept = |id: TensorId| !self.released.contains(&id) || self.used.contains(&id);
        let mut derived = self.manifest.derivations.iter().flat_map(|d| &d.inputs);
        if !owners.any(kept) && !derived.any(|(b, _)| *b == blob) {
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
        let choices: Vec<&[BoundKernel<'_>]> = choices.iter().map(std::slice::from_ref).collect();
        self.add_stretch(name, key_shape, &choices)
    }

    /// As [`ModelBuilder::add_step`], of choices that are one kernel or more, which run one after the other.
    ///
    /// What all choices write is the step's. What one of them writes and others do not is a tensor between
    /// its own kernels: no other step can read it, and it shares memory with those of other choices.
    pub fn add_stretch(
        &mut self,
        name: &str,
        key_shape: &[i64],
        choices: &[&[BoundKernel<'_>]],
    ) -> Result<StepId, BuildModelError> {
        self.add(name, key_shape, choices, None)
    }

    /// A group of steps, see [`StepGroup`]; its steps are added by [`ModelBuilder::add_member`].
    pub fn add_group(&mut self, sets: usize) -> GroupId {
        let steps = Vec::new();
        self.manifest.groups.push(StepGroup { steps, sets });
        self.saved.push(vec![BTreeSet::new(); sets]);
        GroupId(self.saved.len() - 1)
    }

    /// As [`ModelBuilder::add_stretch`], of a step of a group. The last choices are those of the group's sets. What
    /// one of them writes alone is kept for the choices of later steps that are of the same set.
    pub fn add_member(
        &mut self,
        group: GroupId,
        name: &str,
        key_shape: &[i64],
        choices: &[&[BoundKernel<'_>]],
    ) -> Result<StepId, BuildModelError> {
        let id = self.add(name, key_shape, choices, Some(group))?;
        self.manifest.groups[group.0].steps.push(id);
        Ok(id)
    }

    fn add(
        &mut self,
        name: &str,
        key_shape: &[i64],
        choices: &[&[BoundKernel<'_>]],
        group: Option<GroupId>,
    ) -> Result<StepId, BuildModelError> {
        let step = || name.to_string();
        let sets = group.map_or(0, |g| self.saved[g.0].len());
        let free = choices.len().saturating_sub(sets);
        if free == 0 && sets > 0 {
            return Err(BuildModelError::Sets {
                step: step(),
                wanted: sets,
                given: choices.len(),
            });
        }
        let mut alternatives = Vec::with_capacity(choices.len());
        let mut written: Vec<Written> = Vec::with_capacity(choices.len());
        for (at, choice) in choices.iter().enumerate() {
            let set = group.zip(at.checked_sub(free));
            let (calls, own) = self.bind_choice(name, choice, set)?;
            alternatives.push(Alternative { calls });
            written.push(own);
        }
        let all = written.iter().map(|w| w.all.clone());
        let common = all.reduce(|common, w| &common & &w);
        let common = common.ok_or_else(|| BuildModelError::NoAlternative { step: step() })?;
        if written[..free]
            .iter()
            .any(|w| !w.results.is_subset(&common))
        {
            return Err(BuildModelError::Outputs { step: step() });
        }
        let calls = alternatives.iter().flat_map(|a| &a.calls);
        for id in calls.flat_map(|c| &c.args) {
            self.used.insert(root(&self.manifest.tensors, *id).0);
        }
        let common: BTreeSet<TensorId> = common.into_iter().map(|id| self.root(id).0).collect();
        if let Some(g) = group {
            for (saved, w) in self.saved[g.0].iter_mut().zip(&written[free..]) {
                saved.extend(w.new.iter().filter(|id| !common.contains(id)));
            }
        }
        self.written.extend(common);
        let index = self.manifest.steps.len();
        let key_shape = key_shape.to_vec();
        self.manifest.steps.push(ModelStep {
            name: step(),
            key_shape,
            alternatives,
        });
        Ok(StepId(index as u32))
    }

    /// Binds one choice, which may be of a set of a group. It writes nothing that other sets keep, and reads only what
    /// its own set has kept.
    fn bind_choice(
        &mut self,
        step: &str,
        choice: &[BoundKernel<'_>],
        set: Option<(GroupId, usize)>,
    ) -> Result<(Vec<Call>, Written), BuildModelError> {
        let own_set = set.map(|(g, at)| &self.saved[g.0][at]);
        let kept: Vec<TensorId> = own_set.into_iter().flatten().copied().collect();
        self.written.extend(&kept);
        let mut own = Written::default();
        let calls = self.bind_all(step, choice, &mut own);
        for id in own.new.iter().chain(&kept) {
            self.written.remove(id);
        }
        let roots = own.all.iter().map(|id| self.root(*id).0);
        let all_kept = |id: &TensorId| self.saved.iter().flatten().any(|s| s.contains(id));
        if let Some(id) = roots.into_iter().find(all_kept) {
            return Err(BuildModelError::Kept {
                step: step.to_string(),
                tensor: self.manifest.tensors[id.index()].name.clone(),
            });
        }
        Ok((calls?, own))
    }

    /// Binds the kernels of one choice, each of which may read what those before it write.
    fn bind_all(
        &mut self,
        step: &str,
        choice: &[BoundKernel<'_>],
        written: &mut Written,
    ) -> Result<Vec<Call>, BuildModelError> {
        if choice.is_empty() {
            let step = step.to_string();
            return Err(BuildModelError::NoAlternative { step });
        }
        let mut calls = Vec::with_capacity(choice.len());
        for bound in choice {
            let call = self.bind(step, bound)?;
            let outputs = self.check_access(step, &call)?;
            let tensors = &self.manifest.tensors;
            let reads = |id: &TensorId| call.args.iter().any(|arg| overlap(tensors, *arg, *id));
            written.results.retain(|id| !reads(id));
            for id in outputs {
                written.all.insert(id);
                written.results.insert(id);
                let root = self.root(id).0;
                if self.written.insert(root) {
                    written.new.push(root);
                }
            }
            calls.push(call);
        }
        Ok(calls)
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
        place_activations(&mut self.manifest);
        let constants = without_unused_constants(&mut self.manifest, &self.constants);
        let constants = gathered(constants);
        Ok(CompiledModel::new(self.manifest, constants)?)
    }

    fn push(&mut self, info: TensorInfo) -> TensorId {
        let id = TensorId(self.manifest.tensors.len() as u32);
        self.manifest.tensors.push(info);
        id
    }

    fn root(&self, id: TensorId) -> (TensorId, u64) {
        root(&self.manifest.tensors, id)
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
    fn bind(&mut self, step: &str, choice: &BoundKernel<'_>) -> Result<Call, BuildModelError> {
        let at = choice.kernel.index();
        let kernel = &self.manifest.kernels[at];
        let all = || kernel.params.iter().chain(&kernel.prepare_params);
        for (param, tensor) in &choice.bind {
            // Code that reads no element of a constant has no parameter for it.
            let place = &self.manifest.tensors[self.root(*tensor).0.index()].place;
            let constant = matches!(place, TensorPlace::Constant { .. });
            if !constant && !all().any(|p| p.name == *param && p.role != ParamRole::Prepared) {
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
        Ok(Call {
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
    /// for arguments that do not. The tensors that the call writes.
    fn check_access(&self, step: &str, call: &Call) -> Result<BTreeSet<TensorId>, BuildModelError> {
        let params = &self.manifest.kernels[call.kernel.index()].params;
        let mut outputs = BTreeSet::new();
        for (i, (param, id)) in params.iter().zip(&call.args).enumerate() {
            if param.role != ParamRole::Output {
                continue;
            }
            outputs.insert(*id);
            let others = call.args.iter().enumerate().filter(|(j, _)| *j != i);
            for (_, other) in others {
                if overlap(&self.manifest.tensors, *id, *other) {
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
        let mut key = (kernel.prepare_work(), entry, Vec::new());
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
        let buffers = run_prepare(step, kernel, inputs, &self.pool)?;
        // What another machine's code prepares cannot be prepared where that runs, and what is no larger than its origin saves nothing.
        let read: u64 = key.2.iter().map(|(_, _, bytes)| bytes).sum();
        let made: u64 = buffers.iter().map(|b| b.len() as u64).sum();
        let derived = self.derives && kernel.prepare_code.is_none() && made > read;
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
        if derived {
            let blob = |(_, id): &(String, TensorId)| match self.manifest.tensors[id.index()].place
            {
                TensorPlace::Constant { blob } => blob,
                _ => unreachable!("a prepared tensor is a constant"),
            };
            self.manifest.derivations.push(Derivation {
                kernel: choice.kernel,
                inputs: key.2.iter().map(|(blob, from, _)| (*blob, *from)).collect(),
                outputs: made.iter().map(blob).collect(),
            });
        }
        self.prepared.insert(key, made.clone());
        Ok(made)
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
