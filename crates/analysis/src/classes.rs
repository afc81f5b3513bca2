//! Classes of instructions, the same for all instruction sets.
//!
//! A class says what an instruction is for. Whether it reads or writes memory is
//! counted apart, since x86 instructions of any class may.

use llvm::{Control, Instruction};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Multiplies and adds, or multiplies and sums groups of lanes.
    Fma,
    /// Arithmetic of vectors or floating-point numbers, other than `Fma`.
    VectorArithmetic,
    VectorLoad,
    VectorStore,
    /// One element to all lanes.
    Broadcast,
    /// Moves, shuffles and selects lanes.
    VectorMove,
    /// Arithmetic and moves of integers: addresses and loop variables.
    Scalar,
    ScalarLoad,
    ScalarStore,
    /// Moves to and from the stack: spilled registers, saved ones, arguments, arrays on it.
    Stack,
    Prefetch,
    /// Branches, calls and returns.
    Control,
}

impl Class {
    pub const ALL: [Class; 12] = [
        Class::Fma,
        Class::VectorArithmetic,
        Class::VectorLoad,
        Class::VectorStore,
        Class::Broadcast,
        Class::VectorMove,
        Class::Scalar,
        Class::ScalarLoad,
        Class::ScalarStore,
        Class::Stack,
        Class::Prefetch,
        Class::Control,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Class::Fma => "fma",
            Class::VectorArithmetic => "vector",
            Class::VectorLoad => "vload",
            Class::VectorStore => "vstore",
            Class::Broadcast => "broadcast",
            Class::VectorMove => "vmove",
            Class::Scalar => "scalar",
            Class::ScalarLoad => "load",
            Class::ScalarStore => "store",
            Class::Stack => "stack",
            Class::Prefetch => "prefetch",
            Class::Control => "control",
        }
    }

    pub fn of(i: &Instruction) -> Class {
        if i.control != Control::Next {
            return Class::Control;
        }
        if has(i, PREFETCHES) {
            return Class::Prefetch;
        }
        match i.vector_bits {
            0 => Class::of_scalar(i),
            _ => Class::of_vector(i),
        }
    }

    fn of_scalar(i: &Instruction) -> Class {
        match (i.loads, i.stores) {
            (false, true) if i.uses_stack => Class::Stack,
            (_, true) => Class::ScalarStore,
            (true, false) if !begins(i, SCALAR_LOADS) => Class::Scalar,
            (true, false) if i.uses_stack => Class::Stack,
            (true, false) => Class::ScalarLoad,
            (false, false) => Class::Scalar,
        }
    }

    fn of_vector(i: &Instruction) -> Class {
        match () {
            () if has(i, MULTIPLY_ADDS) => Class::Fma,
            () if i.stores && i.uses_stack => Class::Stack,
            () if i.stores => Class::VectorStore,
            () if has(i, BROADCASTS) => Class::Broadcast,
            () if i.loads && begins(i, VECTOR_LOADS) && i.uses_stack => Class::Stack,
            () if i.loads && begins(i, VECTOR_LOADS) => Class::VectorLoad,
            () if begins(i, VECTOR_MOVES) => Class::VectorMove,
            () => Class::VectorArithmetic,
        }
    }
}

/// Whether an instruction of any class moves a value to or from the stack by its address there.
/// A loop that does so lacks registers, unless it has an array on the stack.
pub(crate) fn moves_by_stack(i: &Instruction) -> bool {
    i.control == Control::Next
        && i.uses_stack
        && (i.loads || i.stores)
        && !begins(i, PUSHES)
        && !has(i, PREFETCHES)
}

/// Whether an instruction reads memory, and whether it writes it. On x86 calls and returns do: LLVM does not say so.
pub(crate) fn moves_memory(i: &Instruction) -> [bool; 2] {
    [
        i.loads || begins(i, RETURNS_BY_STACK),
        i.stores || begins(i, CALLS_BY_STACK),
    ]
}

fn has(i: &Instruction, parts: &[&str]) -> bool {
    // Names are so short that a search by `str::contains` takes longer to begin than to end.
    let name = i.opcode.as_bytes();
    let begins = |at: usize, part: &[u8]| name[at] == part[0] && name[at..].starts_with(part);
    let within = |part: &[u8]| (0..name.len()).any(|at| begins(at, part));
    parts.iter().any(|p| within(p.as_bytes()))
}

fn begins(i: &Instruction, starts: &[&str]) -> bool {
    starts.iter().any(|s| i.opcode.starts_with(s))
}

// Parts and beginnings of LLVM's names, of x86, AArch64 and RISC-V in this order. Names of
// different instruction sets do not meet.

const PUSHES: &[&str] = &["PUSH", "POP"];

const PREFETCHES: &[&str] = &["PREFETCH", "PRFM", "PRFUM"];

const MULTIPLY_ADDS: &[&str] = &[
    "FMADD", "FMSUB", "FNMADD", "FNMSUB", "VPDP", "VDPBF16", "PMADD", //
    "FMLA", "FMLS", "MLAv", "MLSv", "DOTv", "DOTlane", "BFMMLA", //
    "VFMACC", "VFNMACC", "VFMSAC", "VFNMSAC", "VMACC", "VNMSAC", "VWMACC", "VFWMACC",
];

const BROADCASTS: &[&str] = &[
    "BROADCAST",
    "MOVDDUP", //
    "LD1R",
    "DUPv", //
    "VFMV_V_F",
    "VMV_V_X",
    "VMV_V_I",
];

const RETURNS_BY_STACK: &[&str] = &["RET64"];
const CALLS_BY_STACK: &[&str] = &["CALL64"];

const SCALAR_LOADS: &[&str] = &[
    "MOV", "POP", //
    "LD",  //
    "LB", "LH", "LW", "C_LD", "C_LW", "C_LBU", "C_LH",
];

const VECTOR_LOADS: &[&str] = &[
    "MOV",
    "VMOV",
    "VMASKMOV",
    "VGATHER",
    "VPGATHER",
    "VPMASKMOV",
    "VPMOVZX",
    "VPMOVSX",
    "PMOV", //
    "LD",   //
    "VL",
    "FLW",
    "FLD",
    "FLH",
    "C_FLD",
    "C_FLW",
];

const VECTOR_MOVES: &[&str] = &[
    "MOV",
    "VMOV",
    "SHUF",
    "VSHUF",
    "PSHUF",
    "VPSHUF",
    "UNPCK",
    "VUNPCK",
    "PUNPCK",
    "VPUNPCK", //
    "VPERM",
    "VINSERT",
    "VEXTRACT",
    "INSERT",
    "EXTRACT",
    "PINSR",
    "VPINSR",
    "PEXTR",
    "VPEXTR", //
    "BLEND",
    "VBLEND",
    "VPBLEND",
    "PALIGN",
    "VPALIGN",
    "VALIGN",
    "VPMOV",
    "PACK",
    "VPACK", //
    "ZIP",
    "UZP",
    "TRN",
    "EXTv",
    "INSv",
    "UMOV",
    "SMOV",
    "FMOV",
    "ORRv16i8",
    "TBL",
    "BSL",
    "BIT", //
    "VMV",
    "VFMV",
    "VSLIDE",
    "VRGATHER",
    "VCOMPRESS",
    "VMERGE",
    "VFMERGE",
    "FSGNJ",
    "VZEXT", //
    "VSEXT",
];
