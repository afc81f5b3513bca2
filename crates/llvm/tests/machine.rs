//! Objects read back: instructions, their loops, and what scheduling models say.

#[allow(dead_code, reason = "this file runs no code")]
mod support;

use ir::{CpuTarget, DType, Expr, Isa, Target};
use llvm::{Compiler, Control, Decoder, Emit, Instruction, MachineFunction};
use lower::flat::{BufferPlace, Lane};
use support::Flat;

const M: i64 = 12;
const K: i64 = 20;

/// y[i, 0..8] = sum over k of x[i, k] * w[k, 0..8]; the sum is in registers. Stores 0, 1 and 2 have
/// ids 0, 4 and 6.
fn product() -> Flat {
    let mut f = Flat::new();
    let x = f.buffer(DType::F32, M * K, BufferPlace::Input);
    let w = f.buffer(DType::F32, K * 8, BufferPlace::Input);
    let y = f.buffer(DType::F32, M * 8, BufferPlace::Output);
    let sum = f.buffer(DType::F32, 8, BufferPlace::Register);
    let (i, k, l) = (f.var(), f.var(), f.var());
    let lane = Some(Lane { var: l, lanes: 8 });
    let v = Expr::var;
    let zero = f.store(sum, v(l), Expr::f32(0.0), lane);
    let term = Expr::load(x, [v(i) * K + v(k)]) * Expr::load(w, [v(k) * 8 + v(l)]);
    let add = f.store(sum, v(l), Expr::load(sum, [v(l)]) + term, lane);
    let terms = f.loop_(k, K, false, vec![add]);
    let out = f.store(y, v(i) * 8 + v(l), Expr::load(sum, [v(l)]), lane);
    f.code.kernel = vec![f.loop_(i, M, false, vec![zero, terms, out])];
    f
}

const IDENTITY: Emit = Emit {
    assembly: false,
    llvm_ir: false,
    identity: true,
};

fn read(target: &Target, emit: Emit) -> Vec<MachineFunction> {
    let compiled = Compiler::new(target)
        .unwrap()
        .compile(&product().code, emit);
    let decoder = Decoder::new(target).unwrap();
    decoder.functions(&compiled.unwrap().object).unwrap()
}

fn code(functions: &[MachineFunction]) -> &MachineFunction {
    let found = functions.iter().find(|f| f.name == "kernel.code");
    found.unwrap_or_else(|| panic!("no kernel.code"))
}

/// The instructions that go back to an earlier one.
fn latches(f: &MachineFunction) -> Vec<&Instruction> {
    let back = |i: &&Instruction| matches!(i.control, Control::Branch(Some(to)) if to <= i64::from(i.offset));
    f.instructions.iter().filter(back).collect()
}

#[test]
fn every_instruction_of_every_family_is_read() {
    for isa in Isa::ALL {
        let functions = read(&Target::generic(isa), IDENTITY);
        let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names.len(), 2, "{isa:?} {names:?}");
        for f in &functions {
            let mut at = 0;
            for i in &f.instructions {
                assert_eq!(i.offset, at, "{isa:?} {}", i.opcode);
                at += i.size;
            }
        }
        let f = code(&functions);
        let loops: Vec<_> = latches(f)
            .iter()
            .map(|i| (i.in_loop, i.of_access))
            .collect();
        // Ids in the order of `loop_`: the inner loop was made first.
        assert_eq!(loops, [(Some(0), None), (Some(1), None)], "{isa:?}");
        let stores = f.instructions.iter().filter(|i| i.stores && !i.uses_stack);
        let stores: Vec<_> = stores.map(|i| i.of_access).collect();
        assert!(
            !stores.is_empty() && stores.iter().all(|id| *id == Some(6)),
            "{isa:?} {stores:?}"
        );
        let vectors = f
            .instructions
            .iter()
            .any(|i| i.stores && i.vector_bits >= 64);
        let has_vectors = CpuTarget::generic(isa).vector_bits > 0;
        assert_eq!(vectors, has_vectors, "{isa:?}");
        assert!(f.instructions.iter().any(|i| i.control == Control::Return));
    }
}

#[test]
fn identity_changes_no_instruction() {
    for isa in Isa::ALL {
        let target = Target::generic(isa);
        let plain = read(&target, Emit::default());
        let mut named = read(&target, IDENTITY);
        for i in named.iter_mut().flat_map(|f| &mut f.instructions) {
            (i.in_loop, i.of_access) = (None, None);
        }
        assert_eq!(plain, named, "{isa:?}");
    }
}

fn tuned(isa: Isa, cpu: &str) -> Target {
    Target::Cpu(CpuTarget {
        tune_cpu: Some(cpu.into()),
        ..CpuTarget::generic(isa)
    })
}

#[test]
fn a_model_has_the_name_of_the_processor_that_llvm_took_it_from() {
    let models = [
        (Isa::X86Avx512, "znver5", Some("Zn4")),
        (Isa::X86Avx2, "znver3", Some("Zn3")),
        (Isa::X86Avx512, "skylake-avx512", Some("SKX")),
        (Isa::AArch64Neon, "cortex-a72", Some("A57")),
        (Isa::AArch64Neon, "neoverse-n1", Some("N1")),
        (Isa::RiscV64Rvv, "sifive-u74", Some("VLEN512SiFive7")),
        (Isa::RiscV64Gc, "sifive-u74", Some("VLEN512SiFive7")),
        (Isa::RiscV64Rvv, "generic-rv64", None),
    ];
    for (isa, cpu, name) in models {
        let decoder = Decoder::new(&tuned(isa, cpu)).unwrap();
        let model = decoder.model();
        assert_eq!(model.name.as_deref(), name, "{cpu}");
        assert_eq!(model.cpu, cpu);
        assert!(model.issue_width > 0, "{cpu}");
        for r in &model.resources {
            let members = r
                .members
                .iter()
                .all(|m| (*m as usize) < model.resources.len());
            assert!(members, "{cpu} {}", r.name);
        }
    }
    let error = Decoder::new(&tuned(Isa::X86Avx2, "cortex-a72"))
        .err()
        .unwrap();
    assert!(error.to_string().contains("`cortex-a72`"), "{error}");
}

#[test]
fn a_sum_waits_for_the_last_sum_and_not_for_the_load() {
    let target = tuned(Isa::X86Avx2, "znver3");
    let functions = read(&target, IDENTITY);
    let fma = code(&functions)
        .instructions
        .iter()
        .find(|i| i.opcode.starts_with("VFMADD"));
    let fma = fma.expect("a fused multiply-add");
    assert_eq!(fma.opcode, "VFMADD231PSYm");
    assert!(fma.loads && !fma.stores);
    assert_eq!((fma.vector_bits, fma.micro_ops), (256, 1));
    assert!(!fma.busy.is_empty());
    let sum = fma.definitions[0];
    // 4 cycles of arithmetic; the operand in memory comes before them.
    let carried = fma.uses.iter().find(|u| u.unit == sum.unit).unwrap();
    assert_eq!(carried.wait(&sum), 4);
    assert!(sum.latency > 8, "{}", sum.latency);
}

#[test]
fn what_is_no_object_of_the_target_is_refused_with_a_reason() {
    let decoder = Decoder::new(&Target::generic(Isa::X86Avx2)).unwrap();
    let refused = |bytes: &[u8]| decoder.functions(bytes).err().unwrap().to_string();
    assert!(refused(b"").contains("cannot be read"), "{}", refused(b""));
    assert!(refused(&[0x7f; 100]).contains("cannot be read"));
    let target = Target::generic(Isa::AArch64Neon);
    let compiled = Compiler::new(&target)
        .unwrap()
        .compile(&product().code, IDENTITY);
    let mut object = compiled.unwrap().object;
    assert!(
        refused(&object).contains("another architecture"),
        "{}",
        refused(&object)
    );
    // Cut anywhere, an object gives an error or fewer tables, and no crash.
    let own = Decoder::new(&target).unwrap();
    while object.len() > 200 {
        object.truncate(object.len() - 97);
        let _ = own.functions(&object);
    }
}

#[test]
fn an_instruction_that_writes_a_part_of_a_register_and_zeros_writes_all_of_it() {
    let functions = read(&Target::generic(Isa::AArch64Neon), IDENTITY);
    let units = |opcode: &str| {
        let all = &code(&functions).instructions;
        let found = all.iter().find(|i| i.opcode == opcode);
        found
            .unwrap_or_else(|| panic!("no {opcode}"))
            .definitions
            .len()
    };
    // 32 bits and 64 bits.
    assert_eq!(units("MOVZWi"), units("ADDXri"));
}
