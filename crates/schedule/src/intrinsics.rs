//! The table of declared intrinsics: what one hardware instruction computes.
//!
//! An intrinsic's *meaning* is a small program: one reduction block that adds
//! to its output. `tensorize` matches a block against it; `lower` writes it in
//! vector lanes, dot products as one statement of all their terms, in which
//! `llvm` finds the instruction where the target has it.

use ir::{DType, Expr, Program, ProgramBuilder, Reducer};

/// One declared intrinsic.
#[derive(Clone, Copy, Debug)]
pub struct Intrinsic {
    /// Stable: traces and programs name it.
    pub name: &'static str,
    pub doc: &'static str,
    meaning: fn() -> Program,
    /// For each load of the meaning's value, in evaluation order, the strides
    /// (in elements, one per axis of the meaning, spatial first) that the
    /// instruction takes: all lanes apart, or one element for all (0).
    pub operand_strides: &'static [&'static [&'static [i64]]],
    /// The same for the output.
    pub output_strides: &'static [i64],
}

impl Intrinsic {
    /// The statement as a program of one reduction block, whose terms are
    /// *added to* the output.
    pub fn meaning(&self) -> Program {
        (self.meaning)()
    }
}

/// Four products of bytes a lane.
const fn dot(name: &'static str, doc: &'static str, meaning: fn() -> Program) -> Intrinsic {
    Intrinsic {
        name,
        doc,
        meaning,
        operand_strides: DOT,
        output_strides: &[1, 0],
    }
}

/// Two products of bf16 a lane.
const fn pairs(name: &'static str, doc: &'static str, meaning: fn() -> Program) -> Intrinsic {
    Intrinsic {
        operand_strides: PAIRS,
        ..dot(name, doc, meaning)
    }
}

/// One product a lane.
const fn multiply_add(
    name: &'static str,
    doc: &'static str,
    meaning: fn() -> Program,
) -> Intrinsic {
    Intrinsic {
        name,
        doc,
        meaning,
        operand_strides: FMA,
        output_strides: &[1],
    }
}

const FMA: &[&[&[i64]]] = &[&[&[1], &[0]], &[&[1], &[0]]];
const DOT: &[&[&[i64]]] = &[&[&[4, 1], &[0, 1]], &[&[4, 1], &[0, 1]]];
const PAIRS: &[&[&[i64]]] = &[&[&[2, 1], &[0, 1]], &[&[2, 1], &[0, 1]]];

/// Every intrinsic, by name.
pub const INTRINSICS: &[Intrinsic] = &[
    pairs(
        "dot2.bf16bf16f32",
        "16 lanes: acc[i] += sum over j in 0..2 of bf16 * bf16, in f32 (x86 VDPBF16PS)",
        || dot2("dot2.bf16bf16f32", 16),
    ),
    pairs(
        "dot2.bf16bf16f32x4",
        "4 lanes: acc[i] += sum over j in 0..2 of bf16 * bf16, in f32 (x86 VDPBF16PS)",
        || dot2("dot2.bf16bf16f32x4", 4),
    ),
    pairs(
        "dot2.bf16bf16f32x8",
        "8 lanes: acc[i] += sum over j in 0..2 of bf16 * bf16, in f32 (x86 VDPBF16PS)",
        || dot2("dot2.bf16bf16f32x8", 8),
    ),
    dot(
        "dot4.i8i8i32",
        "16 lanes: acc[i] += sum over j in 0..4 of i8 * i8, in i32 (Arm SDOT)",
        || dot4("dot4.i8i8i32", [DType::I8, DType::I8], 16),
    ),
    dot(
        "dot4.i8i8i32x4",
        "4 lanes: acc[i] += sum over j in 0..4 of i8 * i8, in i32 (Arm SDOT)",
        || dot4("dot4.i8i8i32x4", [DType::I8, DType::I8], 4),
    ),
    dot(
        "dot4.i8i8i32x8",
        "8 lanes: acc[i] += sum over j in 0..4 of i8 * i8, in i32 (Arm SDOT)",
        || dot4("dot4.i8i8i32x8", [DType::I8, DType::I8], 8),
    ),
    dot(
        "dot4.u8i8i32",
        "16 lanes: acc[i] += sum over j in 0..4 of u8 * i8, in i32 (x86 VPDPBUSD)",
        || dot4("dot4.u8i8i32", [DType::U8, DType::I8], 16),
    ),
    dot(
        "dot4.u8i8i32x4",
        "4 lanes: acc[i] += sum over j in 0..4 of u8 * i8, in i32 (x86 VPDPBUSD)",
        || dot4("dot4.u8i8i32x4", [DType::U8, DType::I8], 4),
    ),
    dot(
        "dot4.u8i8i32x8",
        "8 lanes: acc[i] += sum over j in 0..4 of u8 * i8, in i32 (x86 VPDPBUSD)",
        || dot4("dot4.u8i8i32x8", [DType::U8, DType::I8], 8),
    ),
    dot(
        "dot4.u8u8i32",
        "16 lanes: acc[i] += sum over j in 0..4 of u8 * u8, in i32 (Arm UDOT)",
        || dot4("dot4.u8u8i32", [DType::U8, DType::U8], 16),
    ),
    dot(
        "dot4.u8u8i32x4",
        "4 lanes: acc[i] += sum over j in 0..4 of u8 * u8, in i32 (Arm UDOT)",
        || dot4("dot4.u8u8i32x4", [DType::U8, DType::U8], 4),
    ),
    dot(
        "dot4.u8u8i32x8",
        "8 lanes: acc[i] += sum over j in 0..4 of u8 * u8, in i32 (Arm UDOT)",
        || dot4("dot4.u8u8i32x8", [DType::U8, DType::U8], 8),
    ),
    multiply_add("fma.f32x16", "16 lanes: c[i] += a[i] * b[i] in f32", || {
        fma("fma.f32x16", 16)
    }),
    multiply_add("fma.f32x4", "4 lanes: c[i] += a[i] * b[i] in f32", || {
        fma("fma.f32x4", 4)
    }),
    multiply_add("fma.f32x8", "8 lanes: c[i] += a[i] * b[i] in f32", || {
        fma("fma.f32x8", 8)
    }),
];

/// The intrinsic of that name.
pub fn intrinsic(name: &str) -> Option<&'static Intrinsic> {
    INTRINSICS.iter().find(|i| i.name == name)
}

fn dot4(name: &str, bytes: [DType; 2], lanes: i64) -> Program {
    products(name, bytes, DType::I32, [lanes, 4])
}

fn dot2(name: &str, lanes: i64) -> Program {
    products(name, [DType::BF16; 2], DType::F32, [lanes, 2])
}

/// Products of factors, summed in a wider type.
fn products(name: &str, factors: [DType; 2], sums: DType, [lanes, terms]: [i64; 2]) -> Program {
    let mut b = ProgramBuilder::new(name);
    let x = b.input("a", factors[0], &[lanes, terms]);
    let y = b.input("b", factors[1], &[lanes, terms]);
    let (axes, terms) = ([("i", lanes)], [("j", terms)]);
    let acc = b.reduce("acc", &axes, &terms, Reducer::Sum, |s, r| {
        let at = [s[0].clone(), r[0].clone()];
        let (x, y) = (Expr::load(x, at.clone()), Expr::load(y, at));
        x.cast(sums) * y.cast(sums)
    });
    b.finish(&[acc])
}

fn fma(name: &str, lanes: i64) -> Program {
    let mut b = ProgramBuilder::new(name);
    let x = b.input("a", DType::F32, &[lanes]);
    let y = b.input("b", DType::F32, &[lanes]);
    let c = b.reduce("c", &[("i", lanes)], &[], Reducer::Sum, |s, _| {
        Expr::load(x, s.to_vec()) * Expr::load(y, s.to_vec())
    });
    b.finish(&[c])
}
