//! Flat code to machine code, through LLVM: the only crate that links it.
//!
//! `compile` is a pure function of the code, the target and the options:
//! equal arguments give bit-identical objects. Objects import nothing but
//! memcpy, memmove and memset; math is expanded inline (`math`), and so are conversions
//! that a target has no instruction for (`half`). `machine` reads objects back, as
//! instructions with what LLVM's scheduling models say. Knows nothing
//! of schedules or of how code is run.

mod angles;
mod combine;
mod debug;
mod dot;
mod emit;
mod half;
mod host;
mod integer;
mod large_angles;
mod machine;
mod masked;
pub mod math;
mod object;
mod pattern;
mod raw;
mod shim;
mod table;
mod tiles;
mod transpose;
mod value;

pub use host::host_cpu;
pub use machine::{
    Address, Busy, Control, DecodeError, Decoder, Definition, Instruction, MachineFunction,
    RegisterUnit, Resource, SchedulingModel, Use, check_scoring_cpu, scoring_cpu,
};
pub use object::{CodegenError, Compiled, Compiler, Emit, version};
pub use pattern::pattern_loads;
