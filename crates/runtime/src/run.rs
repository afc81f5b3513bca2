//! Runs a compiled model.
//!
//! Owns the memory, the loaded code and the order of execution. Promises that
//! an invocation allocates nothing (with at most one alternative a step, or a
//! selector that does not), and that names, shapes and types of inputs are
//! checked. Inputs keep their values from one invocation to the next, unless
//! another variant runs in between: one runs at a time, and all have the same memory.

use crate::abi::{KernelFailure, KernelFn};
use crate::artifact::LoadError;
use crate::elf::LoadedCode;
use crate::kernel::BuiltKernel;
use crate::mapping::Mapping;
use crate::model::{Call, CompiledModel, StepId, TensorId, TensorInfo, TensorPlace};
use crate::pool::Pool;
use crate::variants::{Missing, Selected, Variants, fit};
use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tensor::{DType, Tensor, check_memory};
use thiserror::Error;

/// What the choice among the alternatives of a step may depend on. Steps of different
/// variants are told apart by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SelectionKey {
    /// The sizes of the variant's dimensions, then what the step adds.
    pub shape: Vec<i64>,
    pub threads: u32,
}

/// What a selector says of one call of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// A number below that of the alternatives.
    pub alternative: usize,
    /// Whether [`Selector::finished`] wants to know what the call takes. A call that nobody times reads
    /// no clock.
    pub timed: bool,
}

/// Picks an alternative for each call of a step that has several.
pub trait Selector: Send {
    /// An inference of a variant begins.
    fn begins(&mut self, _variant: usize) {}

    /// Of a group its first step is asked first, about all of its alternatives. If that takes one of a set, the other
    /// steps follow without being asked; otherwise they are asked about their free alternatives.
    fn select(&mut self, step: StepId, key: &SelectionKey, alternatives: usize) -> Choice;

    /// Tells how long the call of the selected alternative took, if that was asked for.
    fn finished(&mut self, step: StepId, key: &SelectionKey, alternative: usize, time_ns: u64);

    /// The call of the selected alternative failed. Another one to run instead, which is of no set; none to give up.
    fn failed(&mut self, _: StepId, _: &SelectionKey, _alternative: usize) -> Option<usize> {
        None
    }

    /// The inference is over, whether all of its steps ran or not.
    fn ends(&mut self) {}
}

/// Runs the same alternative of a step every time, for measuring each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FixedSelector {
    /// By [`StepId::index`]; 0 for steps beyond the end.
    pub alternatives: Vec<usize>,
}

impl Selector for FixedSelector {
    fn select(&mut self, step: StepId, _: &SelectionKey, _: usize) -> Choice {
        Choice {
            alternative: self.alternatives.get(step.index()).copied().unwrap_or(0),
            timed: false,
        }
    }

    fn finished(&mut self, _: StepId, _: &SelectionKey, _: usize, _: u64) {}
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunError {
    #[error("the model has no input `{name}`; its inputs are {known}")]
    UnknownInput { name: String, known: String },
    #[error("input `{name}` is given twice; give each input once")]
    DuplicateInput { name: String },
    #[error("input `{name}` is missing; give a {dtype} tensor of shape {shape}")]
    MissingInput {
        name: String,
        dtype: DType,
        /// With the names of dimensions, as that of `expected` below.
        shape: String,
    },
    #[error("input `{name}` has type {given}; the model takes {expected}")]
    InputType {
        name: String,
        given: DType,
        expected: DType,
    },
    #[error("input `{name}` has shape {given:?}; the model takes {expected}")]
    InputShape {
        name: String,
        given: Vec<usize>,
        /// Such as `[batch, 3]`.
        expected: String,
    },
    #[error(
        "input `{input}` has {dim}={size}, and input `{other}` has {dim}={other_size}; give all \
         inputs the same"
    )]
    SizesDiffer {
        dim: String,
        size: usize,
        input: String,
        other_size: usize,
        other: String,
    },
    #[error("{dim} is {given}; the model was compiled for {dim}={known}")]
    NoVariant {
        dim: String,
        given: usize,
        /// The sizes that there are.
        known: String,
    },
    #[error("the model was not compiled for {given}, but for: {known}")]
    NoCombination { given: String, known: String },
    #[error("the model has no dimension `{name}`; {known}")]
    UnknownDim { name: String, known: String },
    #[error("step `{step}` failed: {failure}")]
    Kernel {
        step: String,
        failure: KernelFailure,
    },
}

struct LoadedStep {
    key: SelectionKey,
    alternatives: Vec<LoadedAlternative>,
    /// The first ones are of no set of the step's group.
    free: usize,
    member: Option<Member>,
}

/// A step in its group.
#[derive(Clone, Copy)]
struct Member {
    group: usize,
    is_first: bool,
}

/// The set that a group runs in this inference, and whether it is timed.
#[derive(Clone, Copy)]
struct RunningSet {
    set: usize,
    timed: bool,
}

struct LoadedAlternative {
    calls: Box<[LoadedCall]>,
}

struct LoadedCall {
    entry: KernelFn,
    args: Vec<*mut c_void>,
}

/// Compiled models with their memory, code and threads, of which one runs at a time. They
/// run machine code from the compiled models: trust the ones as you trust the others.
pub struct Model {
    /// The steps of each variant.
    steps: Vec<Vec<LoadedStep>>,
    /// The variant that runs.
    current: usize,
    selector: Option<Box<dyn Selector>>,
    /// Of each group of the variant that runs; none if its steps run free alternatives.
    sets: Vec<Option<RunningSet>>,
    arena: Mapping,
    workspace: Mapping,
    pool: Arc<Pool>,
    variants: Arc<Variants>,
    /// Keeps the entries in `steps` alive.
    code: Vec<(Arc<BuiltKernel>, LoadedCode)>,
}

// SAFETY: the pointers in `steps` lead into memory that this value owns or
// shares read-only; nothing in it is bound to a thread.
unsafe impl Send for Model {}

impl Model {
    /// Loads an artifact for this machine, with a thread pool of its own.
    pub fn load(path: &Path, threads: usize) -> Result<Model, LoadError> {
        let variants = Variants::load(path)?;
        Model::of(Arc::new(variants), Arc::new(Pool::new(threads)?))
    }

    /// Several models may share constants and threads; each has its own activations.
    pub fn new(compiled: Arc<CompiledModel>, pool: Arc<Pool>) -> Result<Model, LoadError> {
        Model::of(Arc::new(Variants::from(compiled)), pool)
    }

    /// As [`Model::new`], with a variant for each combination of sizes. The first one is
    /// selected.
    pub fn of(variants: Arc<Variants>, pool: Arc<Pool>) -> Result<Model, LoadError> {
        let mut code = Vec::new();
        let mut known: HashSet<*const BuiltKernel> = HashSet::new();
        for kernel in variants.models().iter().flat_map(|m| m.kernels()) {
            if !known.insert(Arc::as_ptr(kernel)) {
                continue;
            }
            kernel.check_host()?;
            let object = LoadedCode::load(&kernel.code);
            let object = object.map_err(|source| LoadError::Code {
                kernel: kernel.entry.clone(),
                source,
            })?;
            code.push((kernel.clone(), object));
        }
        let variants = variants.ready(&pool)?;
        let Loaded {
            steps,
            arena,
            workspace,
        } = Loaded::new(&variants, &pool, &code)?;
        let groups = variants.models().iter().map(|m| m.groups().len());
        let mut model = Model {
            steps,
            current: 0,
            selector: None,
            sets: vec![None; groups.max().unwrap_or(0)],
            arena,
            workspace,
            pool,
            variants,
            code,
        };
        model.reset_states();
        Ok(model)
    }

    /// The variant that is selected.
    pub fn compiled(&self) -> &Arc<CompiledModel> {
        &self.variants.models()[self.current]
    }

    pub fn variants(&self) -> &Arc<Variants> {
        &self.variants
    }

    /// The position of the variant that is selected.
    pub fn variant(&self) -> usize {
        self.current
    }

    /// Selects a variant for what follows; [`Model::run`] selects by the shapes of its
    /// inputs. The inputs of a variant that was not selected before hold nothing of use.
    ///
    /// # Panics
    /// If there is no variant of this position.
    pub fn select(&mut self, variant: usize) {
        assert!(variant < self.steps.len(), "there is no variant {variant}");
        self.current = variant;
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Without a selector the first alternative of each step runs.
    pub fn set_selector(&mut self, selector: Option<Box<dyn Selector>>) {
        self.selector = selector;
    }

    /// Selects the variant for the shapes of the inputs, given by name in any order, copies
    /// them in, runs it and copies the outputs out. Where a dimension may be padded, sizes
    /// without a variant run on the one of the next larger size: the last row of an input, or
    /// zeros for a mask, stand for those it does not have, and outputs are cropped.
    ///
    /// # Errors
    /// If the inputs are not those of the model, or of a size that it was not compiled for.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Tensor>, RunError> {
        let order = self.check_inputs(inputs)?;
        let given: Vec<Option<&Tensor>> = order.iter().map(|i| Some(inputs[(*i)?].1)).collect();
        let own = self.compiled().clone();
        let mut shapes: Vec<&[usize]> = Vec::with_capacity(given.len());
        for (tensor, id) in given.iter().zip(own.inputs()) {
            let kept = &own.tensor(*id).shape[..];
            shapes.push(tensor.map_or(kept, |t| t.shape()));
        }
        let selected = self.variants.select(&shapes)?;
        self.current = selected.variant;
        for (i, tensor) in given.into_iter().enumerate() {
            let Some(tensor) = tensor else {
                continue;
            };
            let own = self.compiled().tensor(self.compiled().inputs()[i]);
            let shape = own.shape.clone();
            let missing = self.variants.missing_rows(i);
            let to = self.input_mut(i);
            fit(tensor.bytes(), tensor.shape(), to, &shape, missing);
        }
        self.invoke()?;
        let outputs = 0..self.compiled().outputs().len();
        let outputs: Vec<_> = outputs
            .map(|i| Arc::new(self.without_padding(i, &selected)))
            .collect();
        Ok(tensor::cropped(&outputs, &self.compiled().crops()))
    }

    /// A copy of the rows of output `i` that belong to the inputs given.
    fn without_padding(&self, i: usize, selected: &Selected) -> Tensor {
        let info = self.compiled().tensor(self.compiled().outputs()[i]);
        let mut shape = info.shape.clone();
        for (dim, given) in self.variants.dims().iter().zip(&selected.given) {
            let rows = dim.padding.as_ref().and_then(|p| p.outputs[i]);
            if let Some(rows) = rows {
                shape[rows.axis] = given * rows.each;
            }
        }
        let mut tensor = Tensor::zeros(info.dtype, &shape);
        let to = tensor.bytes_mut();
        fit(self.output(i), &info.shape, to, &shape, Missing::LastRow);
        tensor
    }

    /// Copies of the outputs that are results, as the last invocation left them, without
    /// what is beyond the counts ([`CompiledModel::crops`]).
    pub fn results(&self) -> Vec<Tensor> {
        let outputs = 0..self.compiled().outputs().len();
        let outputs: Vec<_> = outputs.map(|i| Arc::new(self.output_tensor(i))).collect();
        tensor::cropped(&outputs, &self.compiled().crops())
    }

    /// For each input of the model, its position in `inputs`; none for a state that keeps its value.
    fn check_inputs(&self, inputs: &[(&str, &Tensor)]) -> Result<Vec<Option<usize>>, RunError> {
        let compiled = self.compiled();
        let ids = compiled.inputs().iter();
        let expected: Vec<&TensorInfo> = ids.map(|id| compiled.tensor(*id)).collect();
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
        for (at, info) in expected.into_iter().enumerate() {
            let name = info.name.clone();
            let Some(i) = inputs.iter().position(|(given, _)| *given == name) else {
                if compiled.states().iter().any(|s| s.input == at) {
                    order.push(None);
                    continue;
                }
                return Err(RunError::MissingInput {
                    name,
                    dtype: info.dtype,
                    shape: self.variants.shape_text(at),
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
            order.push(Some(i));
        }
        Ok(order)
    }

    /// The bytes of input `i`, dense and row-major, to fill before [`Model::invoke`].
    ///
    /// # Panics
    /// If there is no input `i`.
    pub fn input_mut(&mut self, i: usize) -> &mut [u8] {
        let id = self.compiled().inputs()[i];
        let len = self.span(id);
        let address = address(self.compiled(), &self.arena, id).expect("inputs are stored");
        // SAFETY: the tensor lies in the arena, which is initialised memory of
        // this value; the borrow of it is unique.
        unsafe { std::slice::from_raw_parts_mut(address, len) }
    }

    /// The bytes of output `i`, dense and row-major, as the last invocation left them.
    ///
    /// # Panics
    /// If there is no output `i`.
    pub fn output(&self, i: usize) -> &[u8] {
        self.bytes(self.compiled().outputs()[i])
            .expect("outputs are stored")
    }

    /// A copy of output `i`.
    ///
    /// # Panics
    /// If there is no output `i`.
    pub fn output_tensor(&self, i: usize) -> Tensor {
        self.tensor(self.compiled().outputs()[i])
            .expect("outputs are stored")
    }

    /// A copy of any tensor as it is now; `None` for one that is not
    /// stored (`TensorPlace::Discarded`). An activation is meaningful from the step
    /// that writes it until its memory is used again: read it in
    /// [`Model::invoke_observed`].
    pub fn tensor(&self, id: TensorId) -> Option<Tensor> {
        let info = self.compiled().tensor(id);
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
        self.each_step(|model, index| model.run_step(index))
    }

    /// Runs all steps, each by `run`; the selector learns when that begins and ends.
    fn each_step(
        &mut self,
        mut run: impl FnMut(&mut Model, usize) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let pool = self.pool.clone();
        let _running = pool.enter();
        if let Some(selector) = &mut self.selector {
            selector.begins(self.current);
        }
        let result = (0..self.steps[self.current].len()).try_for_each(|index| run(self, index));
        if let Some(selector) = &mut self.selector {
            selector.ends();
        }
        if result.is_ok() {
            self.keep_states();
        }
        result
    }

    /// Gives the inputs that are states what the inference left for them elsewhere.
    fn keep_states(&mut self) {
        let compiled = self.compiled().clone();
        for s in compiled
            .states()
            .iter()
            .filter(|s| !compiled.is_in_place(**s))
        {
            self.copy(compiled.outputs()[s.output], compiled.inputs()[s.input]);
        }
    }

    /// Gives the inputs of the selected variant that are states the values that they begin with.
    pub fn reset_states(&mut self) {
        let compiled = self.compiled().clone();
        for s in compiled.states() {
            self.copy(s.initial, compiled.inputs()[s.input]);
        }
    }

    /// Copies a tensor over an input of its type.
    fn copy(&mut self, from: TensorId, input: TensorId) {
        let address = |id| address(self.compiled(), &self.arena, id).expect("it is stored");
        let (source, target) = (address(from), address(input));
        let (len, other) = (self.span(input), self.span(from));
        assert_eq!(len, other);
        // SAFETY: both are dense tensors of one type (`check_state`), in the arena or a constant, which are
        // initialised and owned by `self`; an input is in the arena. They may be one tensor.
        unsafe { std::ptr::copy(source.cast_const(), target, len) };
    }

    /// As [`Model::invoke`]; the time of each step, by [`StepId::index`].
    pub fn invoke_profiled(&mut self) -> Result<Vec<u64>, RunError> {
        let mut times_ns = Vec::with_capacity(self.steps[self.current].len());
        self.each_step(|model, index| {
            let start = Instant::now();
            model.run_step(index)?;
            times_ns.push(start.elapsed().as_nanos() as u64);
            Ok(())
        })?;
        Ok(times_ns)
    }

    /// As [`Model::invoke`]; calls `observe` after each step, when what the
    /// step wrote can be read with [`Model::tensor`].
    pub fn invoke_observed(
        &mut self,
        mut observe: impl FnMut(&Model, StepId),
    ) -> Result<(), RunError> {
        self.each_step(|model, index| {
            model.run_step(index)?;
            observe(model, StepId(index as u32));
            Ok(())
        })
    }

    fn run_step(&mut self, index: usize) -> Result<(), RunError> {
        let step = &self.steps[self.current][index];
        let run = |alternative: usize| {
            let mut calls = step.alternatives[alternative].calls.iter();
            calls.try_for_each(|c| KernelFailure::check(call(c, &self.pool, &self.workspace)))
        };
        let result = match &mut self.selector {
            Some(selector) if step.alternatives.len() > 1 => {
                let id = StepId(index as u32);
                selected(&mut **selector, id, step, &mut self.sets, run)
            }
            _ => run(0),
        };
        result.map_err(|failure| {
            let step = self.compiled().steps()[index].name.clone();
            RunError::Kernel { step, failure }
        })
    }

    fn span(&self, id: TensorId) -> usize {
        let bytes = self.compiled().tensor(id).span_bytes();
        bytes.expect("a consistent model's tensors fit in memory") as usize
    }

    fn bytes(&self, id: TensorId) -> Option<&[u8]> {
        let address = address(self.compiled(), &self.arena, id)?;
        // SAFETY: a consistent model's tensors lie within the arena or a
        // constant, both initialised and owned for as long as `self`; kernels
        // write only while `self` is borrowed mutably.
        Some(unsafe { std::slice::from_raw_parts(address, self.span(id)) })
    }
}

/// What a step of a group runs if its first step took a set, or what the selector chooses.
fn chosen(
    selector: &mut dyn Selector,
    id: StepId,
    step: &LoadedStep,
    sets: &mut [Option<RunningSet>],
) -> Choice {
    let (free, count) = (step.free, step.alternatives.len());
    let Some(Member { group, is_first }) = step.member else {
        return within(selector.select(id, &step.key, count), count, id);
    };
    if is_first {
        let choice = within(selector.select(id, &step.key, count), count, id);
        let set = choice.alternative.checked_sub(free);
        let timed = choice.timed;
        sets[group] = set.map(|set| RunningSet { set, timed });
        return choice;
    }
    match sets[group] {
        Some(RunningSet { set, timed }) => Choice {
            alternative: free + set,
            timed,
        },
        None => within(selector.select(id, &step.key, free), free, id),
    }
}

/// # Panics
/// If a selector chose what there is not.
fn within(choice: Choice, count: usize, id: StepId) -> Choice {
    let (chosen, step) = (choice.alternative, id.index());
    assert!(
        chosen < count,
        "the selector chose {chosen} of {count} for step {step}"
    );
    choice
}

/// Runs the alternative of a step that a selector chooses; another one if that fails and the selector
/// has one. That is a free one, which needs nothing of earlier steps of its group.
fn selected(
    selector: &mut dyn Selector,
    id: StepId,
    step: &LoadedStep,
    sets: &mut [Option<RunningSet>],
    run: impl Fn(usize) -> Result<(), KernelFailure>,
) -> Result<(), KernelFailure> {
    let Choice {
        mut alternative,
        timed,
    } = chosen(selector, id, step, sets);
    let start = timed.then(Instant::now);
    let mut result = run(alternative);
    if let (Some(start), true) = (start, result.is_ok()) {
        let time_ns = start.elapsed().as_nanos() as u64;
        selector.finished(id, &step.key, alternative, time_ns);
    }
    let mut tried = 1;
    // An index that is out of bounds is the caller's: every alternative refuses it.
    while let Err(failure) = &result
        && *failure != KernelFailure::IndexOutOfBounds
        && tried < step.alternatives.len()
        && let Some(other) = selector.failed(id, &step.key, alternative)
    {
        if let Some(member) = step.member {
            sets[member.group] = None;
        }
        let timed = false;
        let choice = Choice {
            alternative: other,
            timed,
        };
        alternative = within(choice, step.free, id).alternative;
        result = run(alternative);
        tried += 1;
    }
    result
}

/// Variants with memory, and with the addresses in code that is loaded.
struct Loaded {
    steps: Vec<Vec<LoadedStep>>,
    arena: Mapping,
    workspace: Mapping,
}

impl Loaded {
    /// All constants are there, and the code of all kernels.
    fn new(
        variants: &Variants,
        pool: &Pool,
        code: &[(Arc<BuiltKernel>, LoadedCode)],
    ) -> Result<Loaded, LoadError> {
        let threads = pool.ctx().threads;
        let most = |bytes: &dyn Fn(&CompiledModel) -> u64| {
            let all = variants.models().iter().map(|m| bytes(m));
            memory(all.max().unwrap_or(0))
        };
        let arena = most(&CompiledModel::arena_bytes)?;
        let workspace = most(&|m| m.workspace_bytes(threads))?;
        let code = code
            .iter()
            .map(|(kernel, code)| (Arc::as_ptr(kernel), code));
        let code: HashMap<*const BuiltKernel, &LoadedCode> = code.collect();
        let mut steps = Vec::with_capacity(variants.models().len());
        for (at, compiled) in variants.models().iter().enumerate() {
            let key = |step: usize| variants.selection_key(at, step, threads);
            let object = |kernel: &Arc<BuiltKernel>| code[&Arc::as_ptr(kernel)];
            steps.push(loaded_steps(compiled, &arena, &key, &object)?);
        }
        Ok(Loaded {
            steps,
            arena,
            workspace,
        })
    }
}

/// The steps of a variant, whose kernels are in loaded code.
fn loaded_steps<'c>(
    compiled: &CompiledModel,
    arena: &Mapping,
    key: &dyn Fn(usize) -> SelectionKey,
    code: &dyn Fn(&Arc<BuiltKernel>) -> &'c LoadedCode,
) -> Result<Vec<LoadedStep>, LoadError> {
    let mut steps = Vec::with_capacity(compiled.steps().len());
    for (index, step) in compiled.steps().iter().enumerate() {
        let load = |c: &Call| loaded_call(compiled, arena, c, code);
        let alternatives = step.alternatives.iter().map(|a| {
            let calls = a.calls.iter().map(load).collect::<Result<_, _>>()?;
            Ok(LoadedAlternative { calls })
        });
        let alternatives = alternatives.collect::<Result<_, LoadError>>()?;
        let member = compiled.group_of(index).map(|group| Member {
            group,
            is_first: compiled.groups()[group].begins_with(index),
        });
        steps.push(LoadedStep {
            key: key(index),
            alternatives,
            free: compiled.free_alternatives(index),
            member,
        });
    }
    Ok(steps)
}

fn loaded_call<'c>(
    compiled: &CompiledModel,
    arena: &Mapping,
    call: &Call,
    code: &dyn Fn(&Arc<BuiltKernel>) -> &'c LoadedCode,
) -> Result<LoadedCall, LoadError> {
    let kernel = &compiled.kernels()[call.kernel.index()];
    let entry = code(kernel).kernel(&kernel.entry);
    let entry = entry.map_err(|source| LoadError::Code {
        kernel: kernel.entry.clone(),
        source,
    })?;
    let args = call.args.iter().map(|id| {
        address(compiled, arena, *id)
            .expect("a consistent model passes stored tensors only")
            .cast()
    });
    let args = args.collect();
    Ok(LoadedCall { entry, args })
}

fn call(of: &LoadedCall, pool: &Pool, workspace: &Mapping) -> i32 {
    let (args, workspace) = (of.args.as_ptr(), workspace.as_ptr().cast());
    // SAFETY: arguments and workspace are those that the built kernel's
    // description asks for; its code keeping to that description is the
    // promise of whoever made the compiled model.
    unsafe { (of.entry)(pool.ctx(), args, workspace) }
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

mod retire;

pub use retire::MemoryUse;
