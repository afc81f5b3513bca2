//! Dot products of bytes: exact at the extremes, and the instructions that
//! targets have for them.

mod support;

use ir::{ByteDot, CpuTarget, DType, Expr, Isa, Target};
use llvm::{Compiler, Emit};
use lower::flat::{BufferPlace, Lane};
use support::Flat;
use tensor::{Fill, Tensor, fill_tensor};
use testkit::host::{host_targets, runs};

const STEPS: usize = 6;

/// acc[i] += sum over s and j of a[s, i, j] * b[s, j], in `lanes` lanes.
fn dots(a: DType, b: DType, lanes: u32) -> Flat {
    let mut f = Flat::new();
    let n = i64::from(lanes);
    let x = f.buffer(a, STEPS as i64 * n * 4, BufferPlace::Input);
    let y = f.buffer(b, STEPS as i64 * 4, BufferPlace::Input);
    let z = f.buffer(DType::I32, n, BufferPlace::Output);
    let acc = f.buffer(DType::I32, n, BufferPlace::Register);
    let (k, l) = (f.var(), f.var());
    let v = Expr::var;
    let lane = Some(Lane { var: l, lanes });
    let init = f.store(acc, v(l), Expr::load(z, [v(l)]), lane);
    let term = |j: i64| {
        let a = Expr::load(x, [v(k) * (4 * n) + v(l) * 4 + j]);
        // The digits of a loop, as of one that threads share.
        let (tens, ones) = (v(k).floor_div(3) * 12, v(k).floor_mod(3) * 4);
        let b = Expr::load(y, [tens + ones + j]);
        // Products commute.
        if j == 2 {
            b.cast(DType::I32) * a.cast(DType::I32)
        } else {
            a.cast(DType::I32) * b.cast(DType::I32)
        }
    };
    let sum = (1..4).fold(term(0), |sum, j| sum + term(j));
    let update = f.store(acc, v(l), Expr::load(acc, [v(l)]) + sum, lane);
    let update = f.loop_(k, STEPS as i64, false, vec![update]);
    let out = f.store(z, v(l), Expr::load(acc, [v(l)]), lane);
    f.code.kernel = vec![init, update, out];
    f
}

fn with_dot(isa: Isa, dot: ByteDot) -> Target {
    Target::Cpu(CpuTarget {
        byte_dot: Some(dot),
        ..CpuTarget::generic(isa)
    })
}

/// The host's families, with the dot products that this host has and without.
fn targets() -> Vec<Target> {
    let mut targets = host_targets();
    for t in host_targets() {
        let Target::Cpu(cpu) = t;
        let of_family = ByteDot::ALL.into_iter().filter(|d| d.isa() == cpu.isa);
        let with = of_family.map(|dot| with_dot(cpu.isa, dot));
        targets.extend(with.filter(runs));
    }
    targets
}

const KINDS: [(DType, DType); 4] = [
    (DType::I8, DType::I8),
    (DType::I8, DType::U8),
    (DType::U8, DType::I8),
    (DType::U8, DType::U8),
];

fn range(d: DType) -> (i64, i64) {
    if d == DType::I8 {
        (-128, 127)
    } else {
        (0, 255)
    }
}

#[test]
fn sums_are_exact_for_random_and_extreme_bytes() {
    for target in targets() {
        for ((da, db), lanes) in KINDS
            .into_iter()
            .flat_map(|k| [4, 8, 16, 32].map(|n| (k, n)))
        {
            let f = dots(da, db, lanes);
            let n = lanes as usize;
            let (ra, rb) = (range(da), range(db));
            let fill = |d: DType, len: usize, seed: u64| match seed {
                0 => fill_tensor(
                    d,
                    &[len],
                    Fill::Integers {
                        lo: range(d).0,
                        hi: range(d).0,
                    },
                    0,
                ),
                1 => fill_tensor(
                    d,
                    &[len],
                    Fill::Integers {
                        lo: range(d).1,
                        hi: range(d).1,
                    },
                    0,
                ),
                s => fill_tensor(
                    d,
                    &[len],
                    Fill::Integers {
                        lo: range(d).0,
                        hi: range(d).1,
                    },
                    s,
                ),
            };
            for (sa, sb) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 3), (4, 0), (1, 5)] {
                let a = fill(da, STEPS * n * 4, sa);
                let b = fill(db, STEPS * 4, sb);
                // Sums wrap.
                let start = i64::from(i32::MAX - 1000);
                let mut z = Tensor::zeros(DType::I32, &[n]);
                (0..n).for_each(|i| z.set_i64(i, start));
                let mut args = [a.clone(), b.clone(), z];
                assert_eq!(f.run(&target, &mut args), 0);
                for i in 0..n {
                    let products = (0..STEPS * 4).map(|t| {
                        let (s, j) = (t / 4, t % 4);
                        a.get_i64((s * n + i) * 4 + j) * b.get_i64(t)
                    });
                    let sum = (start + products.sum::<i64>()) as i32;
                    let what = format!("{da} {db} {lanes} lanes {ra:?} {rb:?} {target}");
                    assert_eq!(args[2].get_i64(i), i64::from(sum), "{what}");
                }
            }
        }
    }
}

fn assembly(target: &Target, kind: (DType, DType), lanes: u32) -> String {
    let compiler = Compiler::new(target).expect("a target of LLVM");
    let emit = Emit {
        assembly: true,
        ..Emit::default()
    };
    let f = dots(kind.0, kind.1, lanes);
    let compiled = compiler.compile(&f.code, emit).expect("the code compiles");
    compiled.assembly.expect("it was asked for")
}

fn count(text: &str, instruction: &str) -> usize {
    let is = |l: &&str| l.split_whitespace().next() == Some(instruction);
    text.lines().filter(is).count()
}

#[test]
fn targets_use_the_instructions_that_they_have() {
    let [ii, _, ui, uu] = KINDS;
    let arm = with_dot(Isa::AArch64Neon, ByteDot::Neon);
    let mixed = with_dot(Isa::AArch64Neon, ByteDot::NeonMixed);
    let avx512 = with_dot(Isa::X86Avx512, ByteDot::Avx512Vnni);
    let avx2 = with_dot(Isa::X86Avx2, ByteDot::AvxVnni);
    let expected = [
        (&arm, ii, "sdot", 4),
        (&arm, uu, "udot", 4),
        (&arm, ui, "sdot", 5),
        (&mixed, ui, "usdot", 4),
        (&avx512, ui, "vpdpbusd", 1),
        (&avx512, ii, "vpdpbusd", 2),
        (&avx2, ui, "{vex}", 2),
    ];
    for (target, kind, instruction, times) in expected {
        let text = assembly(target, kind, 16);
        assert_eq!(count(&text, instruction), times, "{kind:?}\n{text}");
    }
    let without = [
        (Target::generic(Isa::AArch64Neon), "sdot"),
        (Target::generic(Isa::X86Avx512), "vpdpbusd"),
        (Target::generic(Isa::RiscV64Rvv), "vpdpbusd"),
    ];
    for (target, instruction) in &without {
        let text = assembly(target, ui, 16);
        assert_eq!(count(&text, instruction), 0, "{text}");
    }
    let words = assembly(&Target::generic(Isa::X86Avx2), ui, 8);
    assert_eq!(count(&words, "vpmaddwd"), 2, "{words}");
}
