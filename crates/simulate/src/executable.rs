//! Executables of candidates for targets that are not here, without a compiler or a linker of theirs.
//!
//! An executable is one static ELF file: a runner, which is LLVM IR (`runner.ll` and a file of the target) that the
//! LLVM of this program compiles, the kernel's object, and memory for its buffers. Without an argument it calls the kernel
//! once, between two markers, and prints the bytes of the outputs. With any argument it calls
//! the kernel once, then some more times, and prints how many nanoseconds each of these took, a line each. Its exit
//! status is 0, or the code of a kernel that failed.
//!
//! Outputs hold zeros before the call. All else, prepared tensors as well, holds [`contents`].

use ir::{Isa, Target};
use llvm::{CodegenError, Compiler};
use runtime::{BuiltKernel, CodeFormat, ElfError, Image, Machine, ParamRole, WORKSPACE_ALIGN};
use std::collections::BTreeMap;
use tensor::{DType, Tensor};
use thiserror::Error;

const RUNNER: &str = include_str!("executable/runner.ll");

/// What is filled into buffers repeats after so many elements. No size of a cache is a multiple.
pub const PERIOD: usize = 127;

/// Where executables lie.
const BASE: u64 = 0x1000_0000;
const STACK_BYTES: u64 = 8 << 20;
/// Most bytes of an executable in memory: well below where any system begins to put its own things.
const MOST_BYTES: u64 = 1 << 36;

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
        let Target::Cpu(cpu) = target;
        let (machine, of_target) = match cpu.isa {
            Isa::X86Sse2 | Isa::X86Avx2 | Isa::X86Avx512 => {
                (Machine::X86_64, include_str!("executable/x86_64.ll"))
            }
            Isa::AArch64Neon => (Machine::AArch64, include_str!("executable/aarch64.ll")),
            Isa::RiscV64Rvv => (Machine::RiscV64, include_str!("executable/riscv64.ll")),
        };
        let text = [of_target, RUNNER].concat();
        Ok(Runner {
            triple: target.triple(),
            machine,
            object: Compiler::new(target)?.compile_text("runner", &text)?,
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
        if kernel.target.triple != self.triple || kernel.format != CodeFormat::Elf {
            return Err(ExecutableError::Target {
                kernel: kernel.target.triple.clone(),
                runner: self.triple.into(),
            });
        }
        // Processors with larger pages exist of this architecture.
        let page = if self.machine == Machine::AArch64 {
            1 << 16
        } else {
            1 << 12
        };
        let (runner, code) = (
            Image::new(&self.object, page)?,
            Image::new(&kernel.code, page)?,
        );
        let code_at = BASE + runner.bytes() as u64;
        let data_at = code_at + code.bytes() as u64;
        let data = Data::new(kernel, repeats, data_at, page as u64)?;
        let symbols = symbols(&runner, &code, &kernel.entry, code_at, &data)?;
        let external = |name: &str| symbols.get(name).copied();
        let mut file = vec![0; page + runner.bytes() + code.bytes()];
        let (_, images) = file.split_at_mut(page);
        let (first, second) = images.split_at_mut(runner.bytes());
        runner.write(first, BASE, &external)?;
        code.write(second, code_at, &external)?;
        let mut segments = Vec::new();
        for (image, at) in [(&runner, BASE), (&code, code_at)] {
            let (code, all) = (image.code_bytes() as u64, image.bytes() as u64);
            segments.push(Segment::of_file(READ | EXECUTE, at, code));
            segments.push(Segment::of_file(READ, at + code, all - code));
        }
        segments.push(Segment {
            memory_bytes: data.end - data_at,
            ..Segment::of_file(READ | WRITE, data_at, data.bytes.len() as u64)
        });
        let header = header(self.machine, symbols["start"], page as u64, &segments);
        file[..header.len()].copy_from_slice(&header);
        file.extend(data.bytes);
        Ok(file)
    }
}

/// The addresses of what the runner and the kernel refer to.
fn symbols(
    runner: &Image<'_>,
    code: &Image<'_>,
    entry: &str,
    code_at: u64,
    data: &Data,
) -> Result<BTreeMap<String, u64>, ExecutableError> {
    let functions = runner.functions().into_iter();
    let mut symbols: BTreeMap<String, u64> = functions
        .map(|(name, at)| (name, BASE + at as u64))
        .collect();
    let kernel = code.functions().get(entry).copied();
    let kernel = kernel.ok_or_else(|| ElfError::NoEntry {
        entry: entry.into(),
    })?;
    symbols.insert("kernel".into(), code_at + kernel as u64);
    symbols.insert("description".into(), data.description);
    symbols.insert("stack".into(), data.stack);
    Ok(symbols)
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
            DType::U8 | DType::I32 | DType::I64 => tensor.set_i64(i, step),
            DType::I8 => tensor.set_i64(i, step - middle),
            _ => tensor.set_f64(i, (step - middle) as f64 / PERIOD as f64),
        }
    }
    tensor
}

/// What an executable can write to: the description that its runner reads, then memory that is zero at the begin.
struct Data {
    bytes: Vec<u8>,
    description: u64,
    /// The end of the stack, from where it grows down.
    stack: u64,
    end: u64,
}

impl Data {
    /// Each buffer has pages of its own, as in a runner process.
    fn new(
        kernel: &BuiltKernel,
        repeats: u32,
        at: u64,
        page: u64,
    ) -> Result<Data, ExecutableError> {
        let count = kernel.params.len() as u64;
        let arguments = at + 8 * (4 + 4 * count);
        let mut patterns_at = arguments + 8 * count;
        let mut patterns = Vec::new();
        let pattern_bytes = |d: DType| ((PERIOD * d.size()) as u64).next_multiple_of(8);
        let all: u64 = kernel.params.iter().map(|p| pattern_bytes(p.dtype)).sum();
        let mut end = (patterns_at + all).next_multiple_of(page);
        let mut take = |name: &str, bytes: Option<u64>| {
            let begin = end;
            let bytes = bytes.filter(|b| b.saturating_add(begin) < MOST_BYTES);
            let bytes = bytes.ok_or_else(|| ExecutableError::Size { name: name.into() })?;
            end = (begin + bytes).next_multiple_of(page) + page;
            Ok::<u64, ExecutableError>(begin)
        };
        let stack = take("the stack", Some(STACK_BYTES))? + STACK_BYTES;
        let workspace = take("the workspace", Some(kernel.workspace_size(1)))?;
        assert!(page.is_multiple_of(WORKSPACE_ALIGN));
        let mut words = vec![u64::from(repeats), count, arguments, workspace];
        let mut pointers = Vec::new();
        for (number, p) in kernel.params.iter().enumerate() {
            let buffer = take(&p.name, p.bytes())?;
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
        Ok(Data {
            bytes,
            description: at,
            stack,
            end,
        })
    }
}

const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const READ: u32 = 4;

/// A part of the file that is loaded.
struct Segment {
    flags: u32,
    at: u64,
    bytes: u64,
    memory_bytes: u64,
}

impl Segment {
    fn of_file(flags: u32, at: u64, bytes: u64) -> Segment {
        Segment {
            flags,
            at,
            bytes,
            memory_bytes: bytes,
        }
    }
}

/// The ELF header and the program headers. The first page of the file is theirs, and what lies at [`BASE`] follows.
fn header(machine: Machine, start: u64, page: u64, segments: &[Segment]) -> Vec<u8> {
    // Compressed instructions, and floating-point arguments in registers.
    let flags: u32 = if machine == Machine::RiscV64 { 5 } else { 0 };
    let mut h = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    h.extend(2u16.to_le_bytes());
    h.extend(machine.number().to_le_bytes());
    h.extend(1u32.to_le_bytes());
    h.extend([start, 64, 0].iter().flat_map(|w| w.to_le_bytes()));
    h.extend(flags.to_le_bytes());
    let loaded: Vec<&Segment> = segments.iter().filter(|s| s.memory_bytes > 0).collect();
    let counts = [64, 56, loaded.len() as u16 + 1, 0, 0, 0];
    h.extend(counts.iter().flat_map(|n| n.to_le_bytes()));
    for s in loaded {
        h.extend(1u32.to_le_bytes());
        h.extend(s.flags.to_le_bytes());
        let words = [
            s.at - BASE + page,
            s.at,
            s.at,
            s.bytes,
            s.memory_bytes,
            page,
        ];
        h.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    }
    // The system's own stack is no code.
    h.extend(0x6474_e551u32.to_le_bytes());
    h.extend((READ | WRITE).to_le_bytes());
    h.extend([0u64, 0, 0, 0, 0, 16].iter().flat_map(|w| w.to_le_bytes()));
    h
}
