//! Registers, loops, parallel tasks, guards and the identity of loops.

mod support;

use ir::{DType, Expr, Isa, Target};
use llvm::{Compiler, Emit};
use lower::flat::{BufferPlace, Lane, Stmt};
use support::Flat;
use tensor::{Fill, Tensor, fill_tensor};
use testkit::host::host_targets;

const M: i64 = 12;
const N: i64 = 32;
const K: i64 = 20;

/// C[M, N] = A[M, K] B[K, N]: rows in parallel, 16 lanes, the accumulator in a register.
fn gemm() -> Flat {
    let mut f = Flat::new();
    let a = f.buffer(DType::F32, M * K, BufferPlace::Input);
    let b = f.buffer(DType::F32, K * N, BufferPlace::Input);
    let c = f.buffer(DType::F32, M * N, BufferPlace::Output);
    let acc = f.buffer(DType::F32, 16, BufferPlace::Register);
    let (i, j, k, l) = (f.var(), f.var(), f.var(), f.var());
    let lane = Some(Lane { var: l, lanes: 16 });
    let v = Expr::var;
    let init = f.store(acc, v(l), Expr::f32(0.0), lane);
    let product = Expr::load(a, [v(i) * K + v(k)]) * Expr::load(b, [v(k) * N + v(j) * 16 + v(l)]);
    let update = f.store(acc, v(l), Expr::load(acc, [v(l)]) + product, lane);
    let update = f.loop_(k, K, false, vec![update]);
    let out = f.store(
        c,
        v(i) * N + v(j) * 16 + v(l),
        Expr::load(acc, [v(l)]),
        lane,
    );
    let columns = f.loop_(j, N / 16, false, vec![init, update, out]);
    let rows = f.loop_(i, M, true, vec![columns]);
    f.code.kernel = vec![rows];
    f
}

#[test]
fn a_register_tiled_gemm_is_exact_on_small_integers() {
    let ints = Fill::Integers { lo: -4, hi: 4 };
    for target in host_targets() {
        let a = fill_tensor(DType::F32, &[(M * K) as usize], ints, 1);
        let b = fill_tensor(DType::F32, &[(K * N) as usize], ints, 2);
        let mut args = [
            a.clone(),
            b.clone(),
            Tensor::zeros(DType::F32, &[(M * N) as usize]),
        ];
        assert_eq!(gemm().run(&target, &mut args), 0);
        for i in 0..M as usize {
            for j in 0..N as usize {
                let sum: f64 = (0..K as usize)
                    .map(|k| a.get_f64(i * K as usize + k) * b.get_f64(k * N as usize + j))
                    .sum();
                assert_eq!(args[2].get_f64(i * N as usize + j), sum);
            }
        }
    }
}

#[test]
fn guarded_loads_outside_a_buffer_are_never_made() {
    // y[i] = x[i - 3] where 3 <= i < 8, else -1, by lanes; and the same by a scalar guard.
    for target in host_targets() {
        for lanes in [0u32, 16] {
            let mut f = Flat::new();
            let x = f.buffer(DType::F32, 5, BufferPlace::Input);
            let y = f.buffer(DType::F32, 16, BufferPlace::Output);
            let i = f.var();
            let inside = Expr::int(3).le(Expr::var(i)).and(Expr::var(i).lt(8));
            let load = Expr::load(x, [Expr::var(i) - 3]);
            let value = Expr::select(inside, load, Expr::f32(-1.0));
            let lane = (lanes > 0).then_some(Lane { var: i, lanes });
            let s = f.store(y, Expr::var(i), value, lane);
            f.code.kernel = if lanes > 0 {
                vec![s]
            } else {
                vec![f.loop_(i, 16, false, vec![s])]
            };
            let x = Tensor::from_slice(&[5], &[1.0f32, 2.0, 3.0, 4.0, 5.0]);
            let mut args = [x, Tensor::zeros(DType::F32, &[16])];
            assert_eq!(f.run(&target, &mut args), 0);
            let expected: Vec<f32> = (0..16)
                .map(|i| {
                    if (3..8).contains(&i) {
                        (i - 2) as f32
                    } else {
                        -1.0
                    }
                })
                .collect();
            assert_eq!(args[1].as_slice::<f32>(), &expected[..], "{lanes} lanes");
        }
    }
}

#[test]
fn a_window_over_channels_crosses_blocks_without_gathers() {
    // Two blocks of 16 channels of 3 pixels, [block, pixel, channel]: y is x some channels away,
    // or 0 where there are none.
    const PIXELS: i64 = 3;
    for (target, distance) in host_targets()
        .into_iter()
        .flat_map(|t| [-2, -1, 0, 1, 2].map(|d| (t.clone(), d)))
    {
        let mut f = Flat::new();
        let x = f.buffer(DType::F32, 32 * PIXELS, BufferPlace::Input);
        let y = f.buffer(DType::F32, 32 * PIXELS, BufferPlace::Output);
        let (block, pixel, l) = (f.var(), f.var(), f.var());
        let v = Expr::var;
        let shifted = v(l) + (16 + distance);
        let at = v(block) * (16 * PIXELS)
            + v(pixel) * 16
            + shifted.clone().floor_mod(16)
            + shifted.clone().floor_div(16) * (16 * PIXELS)
            + (-16 * PIXELS);
        let channel = v(block) * 16 + shifted;
        let inside = Expr::int(15).lt(&channel).and(channel.lt(48));
        let value = Expr::select(inside, Expr::load(x, [at]), Expr::f32(0.0));
        let to = v(block) * (16 * PIXELS) + v(pixel) * 16 + v(l);
        let lane = Some(Lane { var: l, lanes: 16 });
        let s = f.store(y, to, value, lane);
        let pixels = f.loop_(pixel, PIXELS, false, vec![s]);
        f.code.kernel = vec![f.loop_(block, 2, false, vec![pixels])];
        let element = |channel: i64, pixel: i64| {
            (channel / 16 * PIXELS * 16 + pixel * 16 + channel % 16) as usize
        };
        let ints = Fill::Integers { lo: 1, hi: 99 };
        let given = fill_tensor(DType::F32, &[32 * PIXELS as usize], ints, 1);
        let mut args = [given.clone(), Tensor::zeros(DType::F32, &[96])];
        assert_eq!(f.run(&target, &mut args), 0);
        for (c, p) in (0..32).flat_map(|c| (0..PIXELS).map(move |p| (c, p))) {
            let from = c + distance;
            let expected = match from {
                0..32 => given.get_f64(element(from, p)),
                _ => 0.0,
            };
            assert_eq!(
                args[1].get_f64(element(c, p)),
                expected,
                "{distance} {c} {p}"
            );
        }
        let emit = Emit {
            llvm_ir: true,
            ..Emit::default()
        };
        let compiled = Compiler::new(&target).unwrap().compile(&f.code, emit);
        let text = compiled.unwrap().llvm_ir.unwrap();
        assert!(!text.contains("gather"), "{text}");
    }
}

#[test]
fn masked_accesses_are_no_wider_than_the_vectors() {
    // 16 lanes of which 5 store, near the end of the buffers.
    for target in host_targets() {
        let mut f = Flat::new();
        let x = f.buffer(DType::F32, 13, BufferPlace::Input);
        let y = f.buffer(DType::F32, 13, BufferPlace::Output);
        let (i, l) = (f.var(), f.var());
        let at = Expr::var(i) * 5 + Expr::var(l);
        let lane = Some(Lane { var: l, lanes: 16 });
        let value = Expr::load(x, [at.clone()]) + Expr::load(x, [at.clone()]);
        let mut s = f.store(y, at.clone(), value, lane);
        if let Stmt::Store(s) = &mut s {
            s.mask = Some(at.lt(13).and(Expr::var(l).lt(5)));
        }
        f.code.kernel = vec![f.loop_(i, 3, false, vec![s])];
        let ints = Fill::Integers { lo: -4, hi: 4 };
        let given = fill_tensor(DType::F32, &[13], ints, 1);
        let mut args = [given.clone(), Tensor::zeros(DType::F32, &[13])];
        assert_eq!(f.run(&target, &mut args), 0);
        for k in 0..13 {
            assert_eq!(args[1].get_f64(k), 2.0 * given.get_f64(k));
        }
        let emit = Emit {
            llvm_ir: true,
            ..Emit::default()
        };
        let compiled = Compiler::new(&target).unwrap().compile(&f.code, emit);
        let text = compiled.unwrap().llvm_ir.unwrap();
        let calls = text
            .lines()
            .filter(|l| l.contains("call") && l.contains("@llvm.masked."));
        let Target::Cpu(cpu) = &target;
        let lanes = cpu.vector_bits / 32;
        let mut count = 0;
        for call in calls {
            assert!(call.contains(&format!("<{lanes} x i1>")), "{call}");
            count += 1;
        }
        // Parts without any of the five lanes are gone.
        assert_eq!(count, 2 * 5u32.div_ceil(lanes), "{text}");
    }
}

#[test]
fn registers_survive_ifs_and_a_failed_check_returns_its_code() {
    let mut f = Flat::new();
    let x = f.buffer(DType::I64, 10, BufferPlace::Input);
    let y = f.buffer(DType::I64, 1, BufferPlace::Output);
    let sum = f.buffer(DType::I64, 1, BufferPlace::Register);
    let i = f.var();
    let zero = f.store(sum, Expr::int(0), Expr::int(0), None);
    let xi = Expr::load(x, [Expr::var(i)]);
    let check = Stmt::Check {
        cond: xi.clone().lt(100),
        code: 7,
    };
    let add = f.store(
        sum,
        Expr::int(0),
        Expr::load(sum, [Expr::int(0)]) + xi.clone(),
        None,
    );
    let even = xi.floor_mod(2).equals(0);
    let guarded = Stmt::If {
        cond: even,
        then: vec![add],
        otherwise: vec![],
    };
    let body = f.loop_(i, 10, false, vec![check, guarded]);
    let out = f.store(y, Expr::int(0), Expr::load(sum, [Expr::int(0)]), None);
    f.code.kernel = vec![zero, body, out];
    for target in host_targets() {
        let x = Tensor::from_slice(&[10], &[1i64, -2, 3, 4, -5, 6, 7, 8, 9, -10]);
        let mut args = [x, Tensor::zeros(DType::I64, &[1])];
        assert_eq!(f.run(&target, &mut args), 0);
        assert_eq!(args[1].as_slice::<i64>(), [6]);
        args[0].as_mut_slice::<i64>()[4] = 100;
        assert_eq!(f.run(&target, &mut args), 7);
    }
}

#[test]
fn every_target_emits_objects_and_assembly_that_keep_loop_names() {
    for isa in Isa::ALL {
        let compiler = Compiler::new(&Target::generic(isa)).expect("a known target");
        let emit = Emit {
            assembly: true,
            llvm_ir: true,
            identity: true,
        };
        let code = gemm().code;
        let first = compiler.compile(&code, emit).expect("compiles");
        let again = Compiler::new(&Target::generic(isa))
            .unwrap()
            .compile(&code, emit)
            .unwrap();
        assert_eq!(
            first.object, again.object,
            "{isa:?} objects are reproducible"
        );
        let text = first.assembly.expect("asked for");
        for (id, info) in code.loops.iter().enumerate() {
            let label = format!("L{id}.{}", info.name);
            assert!(text.contains(&label), "{isa:?} lost {label}:\n{text}");
            let line = format!("{} ", id + 2);
            assert!(
                text.lines().any(|l| l.trim_start().starts_with(".loc")
                    && l.split_whitespace().nth(2) == Some(line.trim())),
                "{isa:?} has no location of loop {id}"
            );
        }
    }
}
