//! Machine code as data: the instructions of an object, with what LLVM's
//! scheduling model says about each.
//!
//! Works for every target of the crate, whatever the host is. LLVM chooses a
//! model by the processor's name and silently takes another processor's where it
//! has none; [`SchedulingModel::name`] is the name of the model it took.

use crate::debug;
use crate::host::host_cpu;
use crate::object::initialize;
use crate::shim;
use ir::{Isa, Target};
use lower::flat::{AccessId, FlatLoopId};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum DecodeError {
    #[error("no machine code of {triple} can be read with CPU `{cpu}`: {message}")]
    Target {
        triple: String,
        cpu: String,
        message: String,
    },
    #[error("{message}; give an object that was compiled for this target")]
    Object { message: String },
}

/// Reads objects of one target. Not shared between threads; make one each.
pub struct Decoder {
    shim: shim::Decoder,
    model: SchedulingModel,
}

/// What LLVM knows about how a processor executes instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulingModel {
    /// The processor whose model was asked for.
    pub cpu: String,
    /// LLVM's name of the model it has for that processor, as the names of its
    /// resources begin; `None` where it has no model, and all latencies are 1.
    pub name: Option<String>,
    /// Micro-operations that begin in one cycle.
    pub issue_width: u32,
    /// Micro-operations that wait for their operands at once; at most 1 if instructions
    /// begin in order.
    pub micro_op_buffer: u32,
    pub resources: Vec<Resource>,
}

/// A kind of execution unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub name: String,
    /// Equal units.
    pub units: u32,
    /// Instructions that wait for it at once, if it has a queue of its own.
    pub queue: Option<u32>,
    /// For a group, the resources of which any one serves.
    pub members: Vec<u32>,
}

/// The processor whose scheduling model predicts cycles of a target, unless somebody names
/// another: this machine's own where its code runs here and LLVM has a model of it, else the target's tuning CPU, else an
/// out-of-order core that LLVM has a model of (for RISC-V in-order ones are usual).
pub fn scoring_cpu(target: &Target) -> String {
    let Target::Cpu(cpu) = target;
    let here = target.triple().starts_with(std::env::consts::ARCH);
    let host = || host_cpu().filter(|cpu| here && check_scoring_cpu(target, cpu).is_ok());
    let usual = match cpu.isa {
        Isa::X86Sse2 | Isa::X86Avx2 => "znver3",
        Isa::X86Avx512 => "znver4",
        Isa::AArch64Neon => "neoverse-v2",
        Isa::RiscV64Gc => "sifive-u74",
        Isa::RiscV64Rvv => "spacemit-x60",
    };
    cpu.tune_cpu.clone().or_else(host).unwrap_or(usual.into())
}

/// Whether cycles of a target's code can be predicted by the scheduling model of a processor.
///
/// # Errors
/// If LLVM knows no such processor there, or has no model of it.
pub fn check_scoring_cpu(target: &Target, cpu: &str) -> Result<(), String> {
    let decoder = Decoder::with_model(target, cpu).map_err(|e| e.to_string())?;
    match decoder.model().name {
        Some(_) => Ok(()),
        None => Err(format!(
            "LLVM has no scheduling model of the processor `{cpu}`, so no cycles are predicted of code for {}",
            target.name()
        )),
    }
}

/// A function of an object, and its instructions in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFunction {
    pub name: String,
    pub instructions: Vec<Instruction>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// LLVM's name of the opcode, such as `VFMADD231PSYm`.
    pub opcode: &'static str,
    /// In bytes from the start of the function.
    pub offset: u32,
    pub size: u32,
    pub control: Control,
    pub loads: bool,
    pub stores: bool,
    /// Whether an operand is the stack pointer.
    pub uses_stack: bool,
    /// Bits of the widest operand that is a vector or a floating-point number, 0 if
    /// there is none. Scalable registers (RISC-V) count as their shortest.
    pub vector_bits: u32,
    /// The first operand that is a constant.
    pub immediate: Option<i64>,
    /// Where memory is accessed, if registers and constants of the instruction say it.
    pub address: Option<Address>,
    /// The loop that the instruction belongs to, if the object was compiled with
    /// [`Emit::identity`](crate::Emit::identity).
    pub in_loop: Option<FlatLoopId>,
    /// The access of flat code that the instruction is part of: a load, or a store and the
    /// rest of its statement. Bookkeeping of loops has none.
    pub of_access: Option<AccessId>,
    /// Cycles until all results are there.
    pub latency: u32,
    pub micro_ops: u32,
    /// On machines that begin in order: whether results may be written before those of
    /// instructions that began earlier, and whether it is the first, or the last, of its cycle.
    pub retires_in_any_order: bool,
    pub begins_cycle: bool,
    pub ends_cycle: bool,
    pub definitions: Vec<Definition>,
    pub uses: Vec<Use>,
    pub busy: Vec<Busy>,
}

/// Where the next instruction is. Offsets are from the start of the function, and may lie
/// outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Next,
    /// `None`: an address that is computed.
    Jump(Option<i64>),
    /// The target, or the next instruction.
    Branch(Option<i64>),
    Call,
    Return,
}

/// A memory operand. Two are of the same place if they are equal but for `bytes`, and
/// neither register was written in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The first unit of each register that is added up.
    pub base: Option<RegisterUnit>,
    pub index: Option<RegisterUnit>,
    /// How the index is scaled, as the instruction encodes it.
    pub scale: u32,
    /// In bytes.
    pub displacement: i64,
    /// Bytes from there on that are surely accessed, at least 1.
    pub bytes: u32,
}

impl Address {
    /// Whether both have a byte in common as long as no register is written.
    pub fn overlaps(&self, other: &Address) -> bool {
        let registers = |a: &Address| (a.base, a.index, a.scale);
        let end = |a: &Address| a.displacement + i64::from(a.bytes);
        registers(self) == registers(other)
            && self.displacement < end(other)
            && other.displacement < end(self)
    }
}

/// A register is one or more units; registers that overlap share units.
pub type RegisterUnit = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    pub unit: RegisterUnit,
    /// Cycles until the result is there.
    pub latency: u32,
    /// The model's kind of result, which [`Use::wait`] looks at.
    pub write: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub unit: RegisterUnit,
    /// Kind of result, or 0 for any, and the cycles after issue that it may come later.
    pub advances: Vec<(u32, i32)>,
}

impl Use {
    /// Cycles between the issue of the instruction that defines the register and this one's.
    pub fn wait(&self, definition: &Definition) -> u32 {
        let mut advances = self.advances.iter();
        let advance = advances.find(|(write, _)| *write == 0 || *write == definition.write);
        let cycles = i64::from(definition.latency) - advance.map_or(0, |a| i64::from(a.1));
        cycles.max(0) as u32
    }
}

/// An instruction keeps one unit of a resource busy, in cycles from its issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Index into [`SchedulingModel::resources`].
    pub resource: u32,
    pub from: u32,
    pub to: u32,
}

impl Decoder {
    /// Takes the scheduling model of the target's tuning CPU, or of its level.
    pub fn new(target: &Target) -> Result<Decoder, DecodeError> {
        let Target::Cpu(cpu) = target;
        let tuned = cpu.tune_cpu.as_deref().unwrap_or(target.level());
        Decoder::with_model(target, tuned)
    }

    /// Takes the scheduling model of a processor by LLVM's name, whatever the code was made for.
    pub fn with_model(target: &Target, tuned: &str) -> Result<Decoder, DecodeError> {
        initialize();
        let (triple, level) = (target.triple(), target.level());
        let shim = shim::Decoder::new(triple, level, &target.features(), tuned);
        let shim = shim.map_err(|message| DecodeError::Target {
            triple: triple.into(),
            cpu: tuned.into(),
            message,
        })?;
        let model = shim.model(tuned);
        Ok(Decoder { shim, model })
    }

    pub fn model(&self) -> &SchedulingModel {
        &self.model
    }

    /// The functions of an object, in order of its symbols.
    pub fn functions(&self, object: &[u8]) -> Result<Vec<MachineFunction>, DecodeError> {
        let rows = self.shim.read(object);
        let code = rows.map_err(|message| DecodeError::Object { message })?;
        let functions = code.functions().iter().map(|f| MachineFunction {
            name: f.name().to_string(),
            instructions: code.instructions()[f.range()]
                .iter()
                .map(|row| instruction(&code, row))
                .collect(),
        });
        Ok(functions.collect())
    }
}

fn instruction(code: &shim::Code, row: &shim::InstructionRow) -> Instruction {
    use shim::flag;
    let target = row.has(flag::HAS_TARGET).then_some(row.target);
    let control = match () {
        () if row.has(flag::RETURN) => Control::Return,
        () if row.has(flag::CALL) => Control::Call,
        () if row.has(flag::CONDITIONAL) => Control::Branch(target),
        () if row.has(flag::BRANCH | flag::INDIRECT) => Control::Jump(target),
        () => Control::Next,
    };
    let (in_loop, of_access) = debug::identity(row.line, row.column);
    let definition = |d: &shim::DefinitionRow| Definition {
        unit: d.unit,
        latency: d.latency,
        write: d.write,
    };
    let advances = |u: &shim::UseRow| {
        let rows = code.advances()[u.range()].iter();
        rows.map(|a| (a.write, a.cycles)).collect()
    };
    let uses = |u: &shim::UseRow| Use {
        unit: u.unit,
        advances: advances(u),
    };
    let busy = |b: &shim::BusyRow| Busy {
        resource: b.resource,
        from: b.from,
        to: b.to,
    };
    let address = Address {
        base: row.base(),
        index: row.index(),
        scale: row.scale,
        displacement: row.displacement,
        bytes: row.accessed,
    };
    Instruction {
        opcode: row.opcode(),
        offset: row.offset,
        size: row.size,
        control,
        loads: row.has(flag::LOAD),
        stores: row.has(flag::STORE),
        uses_stack: row.has(flag::USES_STACK),
        vector_bits: row.vector_bits,
        immediate: row.has(flag::HAS_IMMEDIATE).then_some(row.immediate),
        address: row.has(flag::HAS_ADDRESS).then_some(address),
        in_loop,
        of_access,
        latency: row.latency,
        micro_ops: row.micro_ops,
        retires_in_any_order: row.has(flag::RETIRES_IN_ANY_ORDER),
        begins_cycle: row.has(flag::BEGINS_CYCLE),
        ends_cycle: row.has(flag::ENDS_CYCLE),
        definitions: code.definitions()[row.definitions()]
            .iter()
            .map(definition)
            .collect(),
        uses: code.uses()[row.uses()].iter().map(uses).collect(),
        busy: code.busy()[row.busy()].iter().map(busy).collect(),
    }
}
