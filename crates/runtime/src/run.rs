//! Runs a compiled model.
//!
//! Owns the memory, the loaded code and the order of execution. Promises that
//! an invocation allocates nothing (with at most one alternative a step, or a
//! selector that does not), and that names, shapes and types of inputs are
//! checked. Inputs keep their values from one invocation to the next.

use crate::abi::{KernelFailure, KernelFn};
use crate::artifact::LoadError;
use crate::elf::LoadedCode;
use crate::mapping::Mapping;
use crate::model::{CompiledModel, StepId, TensorId, TensorInfo, TensorPlace};
use crate::pool::Pool;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tensor::{DType, Tensor, check_memory};
use thiserror::Error;

/// What the choice among the alternatives of a step may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SelectionKey {
    pub shape: Vec<i64>,
    pub threads: u32,
}

/// Picks an alternative for each call of a step that has several.
pub trait Selector: Send {
    /// A number below `alternatives`.
    fn select(&mut self, step: StepId, key: &SelectionKey, alternatives: usize) -> usize;
    /// Tells how long the call of the selected alternative took.
    fn finished(&mut self, step: StepId, key: &SelectionKey, alternative: usize, time_ns: u64);
}

/// Runs the same alternative of a step every time, for measuring each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedSelector {
    /// By [`StepId::index`]; 0 for steps beyond the end.
    pub alternatives: Vec<usize>,
}

impl Selector for FixedSelector {
    fn select(&mut self, step: StepId, _: &SelectionKey, _: usize) -> usize {
        self.alternatives.get(step.index()).copied().unwrap_or(0)
    }

    fn finished(&mut self, _: StepId, _: &SelectionKey, _: usize, _: u64) {}
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunError {
    #[error("the model has no input `{name}`; its inputs are {known}")]
    UnknownInput { name: String, known: String },
    #[error("input `{name}` is given twice; give each input once")]
    DuplicateInput { name: String },
    #[error("input `{name}` is missing; give a {dtype} tensor of shape {shape:?}")]
    MissingInput {
        name: String,
        dtype: DType,
        shape: Vec<usize>,
    },
    #[error("input `{name}` has type {given}; the model takes {expected}")]
    InputType {
        name: String,
        given: DType,
        expected: DType,
    },
    #[error("input `{name}` has shape {given:?}; the model takes {expected:?}")]
    InputShape {
        name: String,
        given: Vec<usize>,
        expected: Vec<usize>,
    },
    #[error("step `{step}` failed: {failure}")]
    Kernel {
        step: String,
        failure: KernelFailure,
    },
}

struct LoadedStep {
    key: SelectionKey,
    alternatives: Vec<LoadedAlternative>,
}

struct LoadedAlternative {
    entry: KernelFn,
    args: Vec<*mut c_void>,
}

/// A compiled model with its memory, code and threads. It runs machine code
/// from the compiled model: trust the one as you trust the other.
pub struct Model {
    steps: Vec<LoadedStep>,
    selector: Option<Box<dyn Selector>>,
    arena: Mapping,
    workspace: Mapping,
    pool: Arc<Pool>,
    compiled: Arc<CompiledModel>,
    /// Keeps the entries in `steps` alive.
    _code: Vec<LoadedCode>,
}

// SAFETY: the pointers in `steps` lead into memory that this value owns or
// shares read-only; nothing in it is bound to a thread.
unsafe impl Send for Model {}

impl Model {
    /// Loads an artifact for this machine, with a thread pool of its own.
    pub fn load(path: &Path, threads: usize) -> Result<Model, LoadError> {
        let compiled = CompiledModel::load(path)?;
        Model::new(Arc::new(compiled), Arc::new(Pool::new(threads)?))
    }

    /// Several models may share constants and threads; each has its own activations.
    pub fn new(compiled: Arc<CompiledModel>, pool: Arc<Pool>) -> Result<Model, LoadError> {
        let mut code = Vec::with_capacity(compiled.kernels().len());
        for kernel in compiled.kernels() {
            kernel.check_host()?;
            let loaded = LoadedCode::load(&kernel.code);
            code.push(loaded.map_err(|source| LoadError::Code {
                kernel: kernel.entry.clone(),
                source,
            })?);
        }
        let threads = pool.ctx().threads;
        let arena = memory(compiled.arena_bytes())?;
        let workspace = memory(compiled.workspace_bytes(threads))?;
        let mut steps = Vec::with_capacity(compiled.steps().len());
        for step in compiled.steps() {
            let mut alternatives = Vec::with_capacity(step.alternatives.len());
            for alternative in &step.alternatives {
                let name = &compiled.kernels()[alternative.kernel.index()].entry;
                let entry = code[alternative.kernel.index()]
                    .kernel(name)
                    .map_err(|source| LoadError::Code {
                        kernel: name.clone(),
                        source,
                    })?;
                let args = alternative.args.iter().map(|id| {
                    address(&compiled, &arena, *id)
                        .expect("a consistent model passes stored tensors only")
                        .cast()
                });
                alternatives.push(LoadedAlternative {
                    entry,
                    args: args.collect(),
                });
            }
            let key = SelectionKey {
                shape: step.key_shape.clone(),
                threads,
            };
            steps.push(LoadedStep { key, alternatives });
        }
        Ok(Model {
            steps,
            selector: None,
            arena,
            workspace,
            pool,
            compiled,
            _code: code,
        })
    }

    pub fn compiled(&self) -> &Arc<CompiledModel> {
        &self.compiled
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Without a selector the first alternative of each step runs.
    pub fn set_selector(&mut self, selector: Option<Box<dyn Selector>>) {
        self.selector = selector;
    }

    /// Copies the inputs in, given by name in any order, runs the model and
    /// copies the outputs out.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>, RunError> {
        let order = self.check_inputs(inputs)?;
        for (i, given) in order.into_iter().enumerate() {
            self.input_mut(i).copy_from_slice(inputs[given].1.bytes());
        }
        self.invoke()?;
        Ok(self.results())
    }

    /// Copies of the outputs that are results, as the last invocation left them, without
    /// what is beyond the counts ([`CompiledModel::crops`]).
    pub fn results(&self) -> Vec<Tensor> {
        let outputs = 0..self.compiled.outputs().len();
        let outputs: Vec<_> = outputs.map(|i| Arc::new(self.output_tensor(i))).collect();
        tensor::cropped(&outputs, &self.compiled.crops())
    }

    /// For each input of the model, its position in `inputs`.
    fn check_inputs(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<usize>, RunError> {
        let expected: Vec<&TensorInfo> = self
            .compiled
            .inputs()
            .iter()
            .map(|id| self.compiled.tensor(*id))
            .collect();
        for (i, (name, _)) in inputs.iter().enumerate() {
            let name = (*name).to_string();
            if !expected.iter().any(|e| e.name == name) {
                let known: Vec<&str> = expected.iter().map(|e| e.name.as_str()).collect();
                return Err(RunError::UnknownInput {
                    name,
                    known: known.join(", "),
                });
            }
            if inputs[..i].iter().any(|(other, _)| *other == name) {
                return Err(RunError::DuplicateInput { name });
            }
        }
        let mut order = Vec::with_capacity(expected.len());
        for info in expected {
            let (name, expected) = (info.name.clone(), info.shape.clone());
            let Some(i) = inputs.iter().position(|(given, _)| *given == name) else {
                return Err(RunError::MissingInput {
                    name,
                    dtype: info.dtype,
                    shape: expected,
                });
            };
            let given = inputs[i].1;
            if given.dtype() != info.dtype {
                let (given, expected) = (given.dtype(), info.dtype);
                return Err(RunError::InputType {
                    name,
                    given,
                    expected,
                });
            }
            if given.shape() != expected {
                return Err(RunError::InputShape {
                    name,
                    given: given.shape().to_vec(),
                    expected,
                });
            }
            order.push(i);
        }
        Ok(order)
    }

    /// The bytes of input `i`, dense and row-major, to fill before [`Model::invoke`].
    ///
    /// # Panics
    /// If there is no input `i`.
    pub fn input_mut(&mut self, i: usize) -> &mut [u8] {
        let id = self.compiled.inputs()[i];
        let len = self.span(id);
        let address = address(&self.compiled, &self.arena, id).expect("inputs are stored");
        // SAFETY: the tensor lies in the arena, which is initialised memory of
        // this value; the borrow of it is unique.
        unsafe { std::slice::from_raw_parts_mut(address, len) }
    }

    /// The bytes of output `i`, dense and row-major, as the last invocation left them.
    ///
    /// # Panics
    /// If there is no output `i`.
    pub fn output(&self, i: usize) -> &[u8] {
        self.bytes(self.compiled.outputs()[i])
            .expect("outputs are stored")
    }

    /// A copy of output `i`.
    ///
    /// # Panics
    /// If there is no output `i`.
    pub fn output_tensor(&self, i: usize) -> Tensor {
        self.tensor(self.compiled.outputs()[i])
            .expect("outputs are stored")
    }

    /// A copy of any tensor as it is now; `None` for one that is not
    /// stored (`TensorPlace::Discarded`). An activation is meaningful from the step
    /// that writes it until its memory is used again: read it in
    /// [`Model::invoke_observed`].
    pub fn tensor(&self, id: TensorId) -> Option<Tensor> {
        let info = self.compiled.tensor(id);
        let bytes = self.bytes(id)?;
        if info.is_dense() {
            return Tensor::from_bytes(info.dtype, &info.shape, bytes);
        }
        let size = info.dtype.size();
        let mut tensor = Tensor::zeros(info.dtype, &info.shape);
        let mut index = vec![0; info.shape.len()];
        for element in tensor.bytes_mut().chunks_exact_mut(size) {
            let at: usize = index.iter().zip(&info.strides).map(|(i, s)| i * s).sum();
            element.copy_from_slice(&bytes[at * size..(at + 1) * size]);
            for d in (0..index.len()).rev() {
                index[d] += 1;
                if index[d] < info.shape[d] {
                    break;
                }
                index[d] = 0;
            }
        }
        Some(tensor)
    }

    /// Runs all steps on what the inputs hold.
    pub fn invoke(&mut self) -> Result<(), RunError> {
        let _running = self.pool.enter();
        for index in 0..self.steps.len() {
            self.run_step(index)?;
        }
        Ok(())
    }

    /// As [`Model::invoke`]; the time of each step, by [`StepId::index`].
    pub fn invoke_profiled(&mut self) -> Result<Vec<u64>, RunError> {
        let _running = self.pool.enter();
        let mut times_ns = Vec::with_capacity(self.steps.len());
        for index in 0..self.steps.len() {
            let start = Instant::now();
            self.run_step(index)?;
            times_ns.push(start.elapsed().as_nanos() as u64);
        }
        Ok(times_ns)
    }

    /// As [`Model::invoke`]; calls `observe` after each step, when what the
    /// step wrote can be read with [`Model::tensor`].
    pub fn invoke_observed(
        &mut self,
        mut observe: impl FnMut(&Model, StepId),
    ) -> Result<(), RunError> {
        let _running = self.pool.enter();
        for index in 0..self.steps.len() {
            self.run_step(index)?;
            observe(self, StepId(index as u32));
        }
        Ok(())
    }

    fn run_step(&mut self, index: usize) -> Result<(), RunError> {
        let step = &self.steps[index];
        let count = step.alternatives.len();
        let code = match &mut self.selector {
            Some(selector) if count > 1 => {
                let id = StepId(index as u32);
                let choice = selector.select(id, &step.key, count);
                assert!(
                    choice < count,
                    "the selector chose {choice} of {count} for step {index}"
                );
                let start = Instant::now();
                let code = call(&step.alternatives[choice], &self.pool, &self.workspace);
                let time_ns = start.elapsed().as_nanos() as u64;
                selector.finished(id, &step.key, choice, time_ns);
                code
            }
            _ => call(&step.alternatives[0], &self.pool, &self.workspace),
        };
        KernelFailure::check(code).map_err(|failure| {
            let step = self.compiled.steps()[index].name.clone();
            RunError::Kernel { step, failure }
        })
    }

    fn span(&self, id: TensorId) -> usize {
        let bytes = self.compiled.tensor(id).span_bytes();
        bytes.expect("a consistent model's tensors fit in memory") as usize
    }

    fn bytes(&self, id: TensorId) -> Option<&[u8]> {
        let address = address(&self.compiled, &self.arena, id)?;
        // SAFETY: a consistent model's tensors lie within the arena or a
        // constant, both initialised and owned for as long as `self`; kernels
        // write only while `self` is borrowed mutably.
        Some(unsafe { std::slice::from_raw_parts(address, self.span(id)) })
    }
}

fn call(alternative: &LoadedAlternative, pool: &Pool, workspace: &Mapping) -> i32 {
    let (args, workspace) = (alternative.args.as_ptr(), workspace.as_ptr().cast());
    // SAFETY: arguments and workspace are those that the built kernel's
    // description asks for; its code keeping to that description is the
    // promise of whoever made the compiled model.
    unsafe { (alternative.entry)(pool.ctx(), args, workspace) }
}

fn memory(bytes: u64) -> Result<Mapping, LoadError> {
    let zeroed = |()| Mapping::zeroed(usize::try_from(bytes).unwrap_or(usize::MAX));
    let mapping = check_memory(bytes).and_then(zeroed);
    mapping.map_err(|source| LoadError::Memory { bytes, source })
}

/// Where a tensor's first byte is; `None` if it is not stored. Constants are
/// read-only behind this pointer.
fn address(compiled: &CompiledModel, arena: &Mapping, id: TensorId) -> Option<*mut u8> {
    let (place, offset) = match compiled.tensor(id).place {
        TensorPlace::View { root, byte_offset } => {
            (compiled.tensor(root).place, byte_offset as usize)
        }
        place => (place, 0),
    };
    match place {
        TensorPlace::Arena { offset: start } => {
            Some(arena.as_ptr().wrapping_add(start as usize + offset))
        }
        TensorPlace::Constant { blob } => {
            let bytes = &compiled.constants[blob as usize].bytes;
            Some(bytes.as_ptr().wrapping_add(offset).cast_mut())
        }
        TensorPlace::View { .. } | TensorPlace::Discarded => None,
    }
}
