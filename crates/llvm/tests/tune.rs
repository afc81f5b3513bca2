//! The processor that code is tuned for: it orders instructions, and lets code
//! use none that the architecture level lacks.

mod support;

use inkwell::OptimizationLevel;
use inkwell::context::Context;
use inkwell::targets::{
    CodeModel, FileType, RelocMode, Target as LlvmTarget, TargetMachine, TargetTriple,
};
use ir::{BinaryOp, CpuTarget, DType, Expr, Isa, Target, UnaryOp};
use llvm::{Compiler, Emit, host_cpu};
use lower::flat::{BufferPlace, Lane};
use std::collections::BTreeSet;
use support::Flat;
use tensor::Tensor;
use testkit::host::{runs, skipped};

const LANES: u32 = 16;
/// More than registers hold, so that LLVM's pipeline moves some of them.
const ROWS: i64 = 4;
const K: i64 = 64;
/// Lanes that gather.
const MASKED: i64 = 13;

/// y[r, i] = exp(max(sum over k of a[r, k] b[k, i], 0) + (i < 13 ? c[d[i]] : -64)): multiply-adds in
/// registers, a polynomial with comparisons, and a masked gather.
fn kernel() -> Flat {
    let mut f = Flat::new();
    let a = f.buffer(DType::F32, ROWS * K, BufferPlace::Input);
    let b = f.buffer(DType::F32, K * i64::from(LANES), BufferPlace::Input);
    let c = f.buffer(DType::F32, 100, BufferPlace::Input);
    let d = f.buffer(DType::I32, i64::from(LANES), BufferPlace::Input);
    let y = f.buffer(DType::F32, ROWS * i64::from(LANES), BufferPlace::Output);
    let acc = f.buffer(DType::F32, ROWS * i64::from(LANES), BufferPlace::Register);
    let (k, l) = (f.var(), f.var());
    let lane = Some(Lane {
        var: l,
        lanes: LANES,
    });
    let v = Expr::var;
    let row = |r: i64| v(l) + r * i64::from(LANES);
    let mut all = Vec::new();
    for r in 0..ROWS {
        all.push(f.store(acc, row(r), Expr::f32(0.0), lane));
    }
    let mut body = Vec::new();
    for r in 0..ROWS {
        let left = Expr::load(a, [v(k) + r * K]);
        let product = left * Expr::load(b, [v(k) * i64::from(LANES) + v(l)]);
        body.push(f.store(acc, row(r), Expr::load(acc, [row(r)]) + product, lane));
    }
    all.push(f.loop_(k, K, false, body));
    for r in 0..ROWS {
        let sum = Expr::load(acc, [row(r)]);
        let positive = Expr::binary(BinaryOp::Max, sum, Expr::f32(0.0));
        let at = Expr::load(d, [v(l)]).cast(DType::I64);
        let some = Expr::select(v(l).lt(MASKED), Expr::load(c, [at]), Expr::f32(-(K as f32)));
        let picked = positive + some;
        all.push(f.store(y, row(r), Expr::unary(UnaryOp::Exp, picked), lane));
    }
    f.code.kernel = all;
    f
}

fn tuned(isa: Isa, name: Option<&str>) -> Target {
    Target::Cpu(CpuTarget {
        tune_cpu: name.map(String::from),
        ..CpuTarget::generic(isa)
    })
}

fn assembly(target: &Target) -> String {
    let emit = Emit {
        assembly: true,
        ..Emit::default()
    };
    let compiler = Compiler::new(target).expect("a target of LLVM");
    let compiled = compiler.compile(&kernel().code, emit).expect("it compiles");
    compiled.assembly.expect("it was asked for")
}

/// Assembles a text by LLVM's assembler for a target's level and features. Where
/// it knows the features of instructions, which it does not on x86, it refuses
/// all others by ending this process.
fn assemble(text: &str, target: &Target) -> Vec<u8> {
    let triple = TargetTriple::create(target.triple());
    let machine: TargetMachine = LlvmTarget::from_triple(&triple)
        .expect("LLVM was initialised by compiling")
        .create_target_machine(
            &triple,
            target.level(),
            &target.features(),
            OptimizationLevel::Default,
            RelocMode::PIC,
            CodeModel::Default,
        )
        .expect("a target machine");
    let context = Context::create();
    let module = context.create_module("assembled");
    module.set_triple(&triple);
    module.set_inline_assembly(text);
    let object = machine.write_to_memory_buffer(&module, FileType::Object);
    object.expect("an object").as_slice().to_vec()
}

/// Old and new processors, with narrower and wider vectors than the families'.
const TUNED_FOR: [(Isa, &[&str]); 6] = [
    (Isa::X86Sse2, X86),
    (Isa::X86Avx2, X86),
    (Isa::X86Avx512, X86),
    (
        Isa::AArch64Neon,
        &["cortex-a53", "cortex-a76", "neoverse-v2", "apple-m1"],
    ),
    (Isa::RiscV64Gc, &["sifive-u74", "sifive-x280"]),
    (Isa::RiscV64Rvv, &["sifive-x280", "sifive-p670"]),
];
const X86: &[&str] = &[
    "core2",
    "haswell",
    "skylake-avx512",
    "sapphirerapids",
    "alderlake",
    "znver3",
    "znver5",
];

/// Instructions that the tuned code of a family on x86 may have beside those of
/// the code that is not tuned; all are of the family's level.
fn added(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::X86Sse2 => &["punpcklqdq"],
        // Processors with fast gathers get them.
        Isa::X86Avx2 => &["addq", "vblendps", "vgatherqps", "vpcmpeqd", "vpxor"],
        _ => &[],
    }
}

fn instructions(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|l| l.starts_with('\t'));
    let first = lines.filter_map(|l| l.split_whitespace().next());
    first.filter(|w| !w.starts_with(['.', '#'])).collect()
}

#[test]
fn tuning_orders_instructions_and_adds_none() {
    for (isa, names) in TUNED_FOR {
        let untuned = tuned(isa, None);
        let plain = assembly(&untuned);
        assert!(instructions(&plain).len() > 20, "{plain}");
        let mut other = 0;
        for name in names {
            let text = assembly(&tuned(isa, Some(name)));
            if isa.triple().starts_with("x86_64") {
                let new = &instructions(&text) - &instructions(&plain);
                let foreign: Vec<_> = new.iter().filter(|i| !added(isa).contains(i)).collect();
                assert!(foreign.is_empty(), "{isa:?} {name}: {foreign:?}");
            } else {
                assert!(assemble(&text, &untuned).starts_with(b"\x7fELF"));
            }
            // Vectors stay as wide as the family's.
            for register in ["%ymm", "%zmm", "%k1"] {
                let uses = |text: &str| text.contains(register);
                assert_eq!(uses(&text), uses(&plain), "{isa:?} {name} {register}");
            }
            other += usize::from(text != plain);
        }
        assert!(other > 0, "{isa:?}: no name changed anything");
    }
}

#[test]
fn code_tuned_for_any_processor_runs_where_its_level_does() {
    let mut ran = 0;
    let host = host_cpu();
    for (isa, names) in TUNED_FOR {
        for name in names.iter().copied().chain(host.as_deref()) {
            let target = tuned(isa, Some(name));
            if !runs(&target) {
                continue;
            }
            let ones = |n: i64| Tensor::from_slice(&[n as usize], &vec![1f32; n as usize]);
            let lanes = i64::from(LANES);
            let c: Vec<f32> = (0..100).map(|i| -K as f32 + (i as f32) / 100.0).collect();
            let d: Vec<i32> = (0..LANES as i32).map(|i| 99 - i).collect();
            let mut args = [
                ones(ROWS * K),
                ones(K * lanes),
                Tensor::from_slice(&[100], &c),
                Tensor::from_slice(&[LANES as usize], &d),
                Tensor::zeros(DType::F32, &[(ROWS * lanes) as usize]),
            ];
            assert_eq!(kernel().run(&target, &mut args), 0);
            for i in 0..(ROWS * lanes) as usize {
                let lane = i as u32 % LANES;
                let picked = f64::from(99 - lane) / 100.0;
                let expected = if i64::from(lane) < MASKED {
                    picked
                } else {
                    0.0
                };
                let error = args[4].get_f64(i) / expected.exp() - 1.0;
                assert!(error.abs() < 1e-4, "{target}: element {i}");
            }
            ran += 1;
        }
    }
    if ran == 0 {
        skipped("this machine runs none of the families");
    }
}
