//! Executables for targets that are not here, without a compiler or a linker of theirs.
//!
//! An executable is one static ELF file: a runner, which is LLVM IR (`runner.ll`, `system.ll` and a file of the target)
//! that the LLVM of this program compiles, the kernel's object, and memory for its buffers. Whole models are in
//! [`model`], and the layout of the file in [`file`]. Without an argument an executable of a kernel calls it
//! once, between two markers, and prints the bytes of the outputs. With any argument it calls
//! the kernel once, then some more times, and prints how many nanoseconds each of these took, a line each. Its exit
//! status is 0, or the code of a kernel that failed.
//!
//! Outputs hold zeros before the call. All else, prepared tensors as well, holds [`contents`].

mod file;
mod model;

use file::{Memory, Objects, STACK_BYTES};
use ir::{Isa, Target};
use llvm::{CodegenError, Compiler};
pub use model::model_executable;
use runtime::{BuiltKernel, CodeFormat, ElfError, Machine, ParamRole};
use tensor::{DType, Tensor};
use thiserror::Error;

const RUNNER: &str = include_str!("executable/runner.ll");

/// What is filled into buffers repeats after so many elements. No size of a cache is a multiple.
pub const PERIOD: usize = 127;

const SYSTEM: &str = include_str!("executable/system.ll");

#[derive(Debug, Error)]
pub enum ExecutableError {
    #[error(
        "the kernel is for {kernel}, and the runner for {runner}; take the runner of the kernel's target"
    )]
    Target { kernel: String, runner: String },
    #[error(
        "parameter `{name}` has a shape of no size, or the buffers take over 64 GiB; take smaller shapes"
    )]
    Size { name: String },
    #[error("the model has more kernels than an executable may have (about 580)")]
    Kernels,
    #[error("the model has {what}, which executables cannot have; compile an artifact instead")]
    Unsupported { what: &'static str },
    #[error(transparent)]
    Codegen(#[from] CodegenError),
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// What executables for one target have beside their kernels.
#[derive(Clone, Debug)]
pub struct Runner {
    triple: &'static str,
    machine: Machine,
    object: Vec<u8>,
}

impl Runner {
    /// # Errors
    /// If LLVM does not know the target.
    pub fn new(target: &Target) -> Result<Runner, CodegenError> {
        Runner::of(target, RUNNER)
    }

    /// A runner of this text.
    fn of(target: &Target, text: &str) -> Result<Runner, CodegenError> {
        let Target::Cpu(cpu) = target;
        let (machine, of_target) = match cpu.isa {
            Isa::X86Sse2 | Isa::X86Avx2 | Isa::X86Avx512 => {
                (Machine::X86_64, include_str!("executable/x86_64.ll"))
            }
            Isa::AArch64Neon => (Machine::AArch64, include_str!("executable/aarch64.ll")),
            Isa::RiscV64Gc | Isa::RiscV64Rvv => {
                (Machine::RiscV64, include_str!("executable/riscv64.ll"))
            }
        };
        let text = [of_target, SYSTEM, text].concat();
        Ok(Runner {
            triple: target.triple(),
            machine,
            object: Compiler::new(target)?.compile_text("runner", &text)?,
        })
    }

    fn check(&self, kernel: &BuiltKernel) -> Result<(), ExecutableError> {
        if kernel.target.triple == self.triple && kernel.format == CodeFormat::Elf {
            return Ok(());
        }
        Err(ExecutableError::Target {
            kernel: kernel.target.triple.clone(),
            runner: self.triple.into(),
        })
    }

    /// The bytes of an executable that calls a kernel. With an argument it prints `repeats` times.
    ///
    /// # Errors
    /// If the kernel is for another target, or is larger than an executable may be.
    pub fn executable(
        &self,
        kernel: &BuiltKernel,
        repeats: u32,
    ) -> Result<Vec<u8>, ExecutableError> {
        self.check(kernel)?;
        let objects = Objects::new(self.machine, &[&self.object, &kernel.code])?;
        let mut memory = objects.memory(0);
        let data = Data::new(kernel, repeats, &mut memory)?;
        let mut symbols = objects.functions();
        symbols.insert("kernel".into(), objects.function(1, &kernel.entry)?);
        symbols.insert("description".into(), memory.data);
        symbols.insert("stack".into(), data.stack);
        objects.file(&symbols, &[], &data.bytes, &memory)
    }
}

/// What a buffer of so many elements holds before the call, if it is the parameter of that number: fractions with
/// a denominator of [`PERIOD`] around 0, small whole numbers, or both truth values.
pub fn contents(dtype: DType, number: usize, elements: usize) -> Tensor {
    let mut tensor = Tensor::zeros(dtype, &[elements]);
    let middle = (PERIOD / 2) as i64;
    for i in 0..elements {
        let step = ((i + 17 * number) % PERIOD) as i64;
        match dtype {
            DType::Bool => tensor.set_i64(i, step % 2),
            DType::I8 | DType::I16 => tensor.set_i64(i, step - middle),
            dtype if !dtype.is_float() => tensor.set_i64(i, step),
            _ => tensor.set_f64(i, (step - middle) as f64 / PERIOD as f64),
        }
    }
    tensor
}

/// What an executable can write to: the description that its runner reads, then memory that is zero at the begin.
struct Data {
    bytes: Vec<u8>,
    /// The end of the stack, from where it grows down.
    stack: u64,
}

impl Data {
    /// Each buffer has pages of its own, as in a runner process.
    fn new(
        kernel: &BuiltKernel,
        repeats: u32,
        memory: &mut Memory,
    ) -> Result<Data, ExecutableError> {
        let count = kernel.params.len() as u64;
        let arguments = memory.data + 8 * (4 + 4 * count);
        let mut patterns_at = arguments + 8 * count;
        let mut patterns = Vec::new();
        let pattern_bytes = |d: DType| ((PERIOD * d.size()) as u64).next_multiple_of(8);
        let all: u64 = kernel.params.iter().map(|p| pattern_bytes(p.dtype)).sum();
        memory.hold(patterns_at + all - memory.data);
        let stack = memory.take("the stack", Some(STACK_BYTES))? + STACK_BYTES;
        let workspace = memory.take("the workspace", Some(kernel.workspace_size(1)))?;
        let mut words = vec![u64::from(repeats), count, arguments, workspace];
        let mut pointers = Vec::new();
        for (number, p) in kernel.params.iter().enumerate() {
            let buffer = memory.take(&p.name, p.bytes())?;
            let filled = p.role != ParamRole::Output;
            let period = if filled { PERIOD * p.dtype.size() } else { 0 };
            words.extend([buffer, p.bytes().unwrap_or(0), patterns_at, period as u64]);
            pointers.push(buffer);
            let mut pattern = contents(p.dtype, number, PERIOD).bytes().to_vec();
            pattern.resize(pattern_bytes(p.dtype) as usize, 0);
            patterns_at += pattern.len() as u64;
            patterns.extend(pattern);
        }
        words.extend(pointers);
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.extend(patterns);
        Ok(Data { bytes, stack })
    }
}
