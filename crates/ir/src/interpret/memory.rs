//! Buffers during execution: elements as 64-bit words, and stamps that tell
//! when each was written and read.

use super::InterpretError;
use super::plan::Plan;
use super::scalar;
use crate::program::{Program, Role};
use tensor::{DType, Tensor};

/// A word holds the bits of an `i64` or of an `f64`, by the buffer's type.
pub(super) struct Memory {
    pub words: Vec<u64>,
    /// `None` for inputs: all defined, never written.
    pub stamps: Option<Stamps>,
    /// Loops that run together around the allocation.
    pub depth: usize,
}

/// Times of accesses; 0 is never.
pub(super) struct Stamps {
    pub written: Vec<u64>,
    /// A read that races with a later write if any earlier read does; empty if
    /// no loop's iterations are checked.
    pub read: Vec<u64>,
    /// Elements written earlier are undefined.
    pub born: u64,
}

pub(super) fn check_arguments(program: &Program, args: &[Tensor]) -> Result<(), InterpretError> {
    if args.len() != program.params.len() {
        return Err(InterpretError::ArgumentCount {
            program: program.name.clone(),
            expected: program.params.len(),
            given: args.len(),
        });
    }
    for (id, arg) in program.params.iter().zip(args) {
        let buffer = program.buffer(*id);
        let shape = arg.shape().iter().map(|n| *n as i64);
        if arg.dtype() != buffer.dtype || !shape.eq(buffer.shape.iter().copied()) {
            return Err(InterpretError::Argument {
                buffer: buffer.name.clone(),
                found: arg.dtype(),
                found_shape: arg.shape().to_vec(),
                expected: buffer.dtype,
                expected_shape: buffer.shape.clone(),
            });
        }
    }
    Ok(())
}

/// Memory for every buffer in use, by id; parameters hold their arguments.
pub(super) fn allocate(
    program: &Program,
    plan: &Plan,
    args: &[Tensor],
) -> Result<Vec<Memory>, InterpretError> {
    let mut memory: Vec<Memory> = plan.depths.iter().map(|d| Memory::empty(*d)).collect();
    for id in program.live_buffers() {
        let buffer = program.buffer(id);
        let m = &mut memory[id.index()];
        let written = !matches!(buffer.role, Role::Input | Role::Constant);
        let too_large = || InterpretError::TooLarge {
            buffer: buffer.name.clone(),
            shape: buffer.shape.clone(),
        };
        let mut extents = buffer.shape.iter();
        let len = extents.try_fold(1usize, |n, e| n.checked_mul(usize::try_from(*e).ok()?));
        let len = len.ok_or_else(too_large)?;
        match program.params.iter().position(|p| *p == id) {
            Some(i) => m.words = words(&args[i]),
            None => m.words = zeros(len, 0).ok_or_else(too_large)?,
        }
        if written {
            let reads = if plan.together { len } else { 0 };
            m.stamps = Some(Stamps {
                written: zeros(len, 0).ok_or_else(too_large)?,
                read: zeros(reads, 0).ok_or_else(too_large)?,
                born: 1,
            });
        }
    }
    Ok(memory)
}

impl Memory {
    fn empty(depth: usize) -> Memory {
        let (words, stamps) = (vec![], None);
        Memory {
            words,
            stamps,
            depth,
        }
    }
}

/// `None` if there is no room.
fn zeros<T: Clone>(len: usize, zero: T) -> Option<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).ok()?;
    out.resize(len, zero);
    Some(out)
}

fn words(t: &Tensor) -> Vec<u64> {
    match t.dtype() {
        DType::F32 => {
            let values = t.as_slice::<f32>().iter();
            values.map(|v| f64::from(*v).to_bits()).collect()
        }
        d if d.is_float() => (0..t.len()).map(|i| t.get_f64(i).to_bits()).collect(),
        d => (0..t.len())
            .map(|i| scalar::int_to_int(t.get_i64(i), d) as u64)
            .collect(),
    }
}

pub(super) fn store_outputs(program: &Program, memory: &[Memory], args: &mut [Tensor]) {
    for (id, arg) in program.params.iter().zip(args) {
        let m = &memory[id.index()];
        // An untouched element keeps its bits, a NaN's payload included.
        let Some(stamps) = &m.stamps else { continue };
        for (i, (word, written)) in m.words.iter().zip(&stamps.written).enumerate() {
            if *written == 0 {
                continue;
            }
            match arg.dtype().is_float() {
                true => arg.set_f64(i, f64::from_bits(*word)),
                false => arg.set_i64(i, *word as i64),
            }
        }
    }
}
