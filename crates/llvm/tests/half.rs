//! Half precision in code: the interpreter's values, bit by bit.

mod support;

use ir::interpret::run;
use ir::{BinaryOp, CpuTarget, DType, Expr, HalfDot, Isa, ProgramBuilder, Target, UnaryOp};
use llvm::{Compiler, Emit};
use lower::flat::{BufferPlace, Lane, Stmt};
use support::Flat;
use tensor::{Fill, Tensor, fill_tensor};
use testkit::host::{host_targets, runs};

const HALVES: [DType; 2] = [DType::F16, DType::BF16];

/// z[i] = f(x[i], y[i]), by `lanes` at once, or one by one if that is 0.
fn code(types: [DType; 3], n: i64, lanes: u32, value: impl Fn(Expr, Expr) -> Expr) -> Flat {
    let mut f = Flat::new();
    let x = f.buffer(types[0], n, BufferPlace::Input);
    let y = f.buffer(types[1], n, BufferPlace::Input);
    let z = f.buffer(types[2], n, BufferPlace::Output);
    let (i, l) = (f.var(), f.var());
    let (at, lane) = match lanes {
        0 => (Expr::var(i), None),
        n => (
            Expr::var(i) * i64::from(n) + Expr::var(l),
            Some(Lane { var: l, lanes }),
        ),
    };
    let value = value(Expr::load(x, [at.clone()]), Expr::load(y, [at.clone()]));
    let s = f.store(z, at, value, lane);
    let body = f.loop_(i, n / i64::from(lanes.max(1)), false, vec![s]);
    f.code.kernel = vec![body];
    f
}

/// The same by the interpreter.
fn interpreted(x: &Tensor, y: &Tensor, value: impl Fn(Expr, Expr) -> Expr) -> Tensor {
    let mut b = ProgramBuilder::new("half");
    let n = x.len() as i64;
    let (a, c) = (b.input("x", x.dtype(), &[n]), b.input("y", y.dtype(), &[n]));
    let axes = [("i", n)];
    let z = b.compute("z", &axes, |i| {
        value(Expr::load(a, [i[0].clone()]), Expr::load(c, [i[0].clone()]))
    });
    let program = b.finish(&[z]);
    let mut args = [
        x.clone(),
        y.clone(),
        Tensor::zeros(program.buffer(z).dtype, &[x.len()]),
    ];
    run(&program, &mut args).expect("it runs");
    let [_, _, z] = args;
    z
}

/// Equal bits, or two NaNs.
fn equal(a: &Tensor, b: &Tensor, i: usize) -> bool {
    if !a.dtype().is_float() {
        return a.get_i64(i) == b.get_i64(i);
    }
    let (a, b) = (a.get_f64(i), b.get_f64(i));
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn agrees(x: &Tensor, y: &Tensor, what: &str, value: impl Fn(Expr, Expr) -> Expr) {
    let expected = interpreted(x, y, &value);
    let types = [x.dtype(), y.dtype(), expected.dtype()];
    for target in host_targets() {
        for lanes in [0, 16] {
            let f = code(types, x.len() as i64, lanes, &value);
            let mut args = [
                x.clone(),
                y.clone(),
                Tensor::zeros(expected.dtype(), &[x.len()]),
            ];
            assert_eq!(f.run(&target, &mut args), 0);
            for i in 0..x.len() {
                assert!(
                    equal(&args[2], &expected, i),
                    "{what} {lanes} lanes, {}: of {} and {} {}, not {}",
                    target.name(),
                    x.get_f64(i),
                    y.get_f64(i),
                    args[2].get_f64(i),
                    expected.get_f64(i)
                );
            }
        }
    }
}

fn of_bits(dtype: DType, bits: impl Iterator<Item = u16>) -> Tensor {
    let bytes: Vec<u8> = bits.flat_map(u16::to_le_bytes).collect();
    Tensor::from_bytes(dtype, &[bytes.len() / 2], &bytes).expect("two bytes each")
}

fn floats(dtype: DType, values: &[f64]) -> Tensor {
    let mut t = Tensor::zeros(dtype, &[values.len()]);
    for (i, v) in values.iter().enumerate() {
        t.set_f64(i, *v);
    }
    t
}

/// Numbers at, beside and between those of a half type.
fn beside(dtype: DType) -> Vec<f64> {
    let every = of_bits(dtype, (0..0x7f80).step_by(7));
    let mut all = Vec::new();
    for i in 0..every.len() - 1 {
        let (a, b) = (every.get_f64(i), every.get_f64(i + 1));
        if !b.is_finite() {
            break;
        }
        let one = of_bits(dtype, std::iter::once((i * 7 + 1) as u16)).get_f64(0);
        let middle = (a + one) / 2.0;
        let step = (one - a) * 1e-5;
        all.extend([a, middle, -middle, middle + step, step - middle]);
    }
    all.extend([
        f64::NAN,
        f64::INFINITY,
        -f64::INFINITY,
        0.0,
        -0.0,
        1e30,
        -1e39,
        1e-46,
    ]);
    all.extend([
        65519.996,
        65520.0,
        -65536.0,
        3.39e38,
        3.4e38,
        f64::from(f32::MAX),
    ]);
    all.resize(all.len().next_multiple_of(16), 1.5);
    all
}

#[test]
fn every_half_is_its_f32_and_its_integer() {
    for half in HALVES {
        let x = of_bits(half, 0..=u16::MAX);
        let others = [
            DType::F32,
            DType::F64,
            DType::I32,
            DType::I64,
            DType::U8,
            DType::Bool,
        ];
        for to in others.into_iter().chain(HALVES) {
            agrees(&x, &x, &format!("cast of {half} to {to}"), |x, _| {
                x.cast(to)
            });
        }
    }
}

#[test]
fn floats_round_once_to_halves() {
    for half in HALVES {
        let values = beside(half);
        for from in [DType::F32, DType::F64] {
            // Doubles beside the middle of two halves, by less than f32 tells.
            let closer = values.iter().map(|v| v * (1.0 + 1e-12));
            let values: Vec<f64> = values.iter().copied().chain(closer).collect();
            let x = floats(from, &values);
            agrees(&x, &x, &format!("cast of {from} to {half}"), |x, _| {
                x.cast(half)
            });
        }
    }
}

#[test]
fn integers_round_once_to_halves() {
    let near = |v: i64| [v - 1, v, v + 1, -v - 1, -v, 1 - v];
    let tie = (1i64 << 60) + (1 << 52);
    let all = [
        3,
        257,
        2049,
        65519,
        1 << 24,
        (1 << 24) + (1 << 16),
        tie,
        i64::MAX - 1,
    ];
    let mut all: Vec<i64> = all
        .into_iter()
        .flat_map(near)
        .chain([i64::MIN, 0])
        .collect();
    all.resize(all.len().next_multiple_of(16), 9);
    for from in [DType::I64, DType::I32, DType::U8, DType::I8] {
        let mut x = Tensor::zeros(from, &[all.len()]);
        for (i, v) in all.iter().enumerate() {
            x.set_i64(i, *v);
        }
        for half in HALVES {
            agrees(&x, &x, &format!("cast of {from} to {half}"), |x, _| {
                x.cast(half)
            });
        }
    }
}

#[test]
fn arithmetic_rounds_once() {
    use BinaryOp::{Add, Div, Eq, FloorDiv, FloorMod, Le, Lt, Max, Min, Mul, Ne, Sub};
    let specials = [
        f64::NAN,
        f64::INFINITY,
        -0.0,
        65504.0,
        6e-8,
        -3e-5,
        1.0,
        3e38,
    ];
    for half in HALVES {
        // Of two zeros either is the smaller: no value here meets a zero of the other sign.
        let some = of_bits(half, (0..4096u32).map(|i| (i * 15 + 1) as u16));
        let others = of_bits(half, (0..4096u32).map(|i| (i * 5077 + 3) as u16));
        let special: Vec<f64> = specials.iter().flat_map(|v| [*v; 8]).collect();
        let mixed: Vec<f64> = (0..64).map(|i| specials[i % 8]).collect();
        for op in [
            Add, Sub, Mul, Div, Min, Max, FloorDiv, FloorMod, Lt, Le, Eq, Ne,
        ] {
            let name = format!("{op:?} of {half}");
            let value = |a, b| Expr::binary(op, a, b);
            agrees(&some, &others, &name, value);
            agrees(&floats(half, &special), &floats(half, &mixed), &name, value);
        }
        for op in [
            UnaryOp::Neg,
            UnaryOp::Abs,
            UnaryOp::Sqrt,
            UnaryOp::Floor,
            UnaryOp::Round,
        ] {
            agrees(&some, &some, &format!("{op:?} of {half}"), |a, _| {
                Expr::unary(op, a)
            });
        }
        // A chain in f32 with halves at its ends, as models have.
        let chain = |a: Expr, b: Expr| {
            let sum = a.cast(DType::F32) + b.cast(DType::F32);
            sum.max(Expr::f32(0.0)).cast(half)
        };
        agrees(&some, &others, &format!("sum of {half}"), chain);
        let fixed = |a: Expr, _| a * Expr::constant(0.1, half);
        agrees(&some, &some, &format!("constant of {half}"), fixed);
    }
}

#[test]
fn no_target_calls_a_library() {
    for isa in Isa::ALL {
        for (half, lanes) in HALVES.iter().flat_map(|h| [0, 4, 16, 32].map(|l| (*h, l))) {
            let types = [half, half, half];
            let f = code(types, 32, lanes, |a, b| {
                let wide = a.clone().cast(DType::F64).cast(half) / (&a + &b);
                Expr::select(a.lt(&b), Expr::unary(UnaryOp::Exp, &b), wide * b)
            });
            let compiler = Compiler::new(&Target::generic(isa)).expect("a target");
            let emit = Emit {
                assembly: true,
                ..Emit::default()
            };
            let compiled = compiler.compile(&f.code, emit).expect("it compiles");
            let text = compiled.assembly.expect("it was asked for");
            let calls = [
                "call\t__",
                "callq\t__",
                "bl\t__",
                "extendhf",
                "trunc",
                "bf2",
            ];
            let found: Vec<&str> = text
                .lines()
                .filter(|l| !l.contains(".ident") && calls.iter().any(|c| l.contains(c)))
                .collect();
            assert!(found.is_empty(), "{}: {found:?}", isa.name());
        }
    }
}

/// z[i] += sum over s and j of x[s, i, j] * y[s, j], in `lanes` lanes.
fn dots(lanes: u32, steps: i64) -> Flat {
    let mut f = Flat::new();
    let n = i64::from(lanes);
    let x = f.buffer(DType::BF16, steps * n * 2, BufferPlace::Input);
    let y = f.buffer(DType::BF16, steps * 2, BufferPlace::Input);
    let z = f.buffer(DType::F32, n, BufferPlace::Output);
    let acc = f.buffer(DType::F32, n, BufferPlace::Register);
    let (k, l) = (f.var(), f.var());
    let v = Expr::var;
    let lane = Some(Lane { var: l, lanes });
    let init = f.store(acc, v(l), Expr::load(z, [v(l)]), lane);
    let term = |j: i64| {
        let a = Expr::load(x, [v(k) * (2 * n) + v(l) * 2 + j]);
        let b = Expr::load(y, [v(k) * 2 + j]);
        a.cast(DType::F32) * b.cast(DType::F32)
    };
    let sum = Expr::load(acc, [v(l)]) + (term(0) + term(1));
    let update = f.store(acc, v(l), sum, lane);
    let update = f.loop_(k, steps, false, vec![update]);
    let out = f.store(z, v(l), Expr::load(acc, [v(l)]), lane);
    f.code.kernel = vec![init, update, out];
    f
}

fn with_dot() -> Target {
    let dot = HalfDot::Avx512Bf16;
    Target::Cpu(CpuTarget {
        half_dot: Some(dot),
        ..CpuTarget::generic(dot.isa())
    })
}

#[test]
fn sums_of_pairs_are_exact_where_f32_holds_them() {
    let steps = 5;
    let with = [with_dot()].into_iter().filter(runs);
    for target in host_targets().into_iter().chain(with) {
        for lanes in [2, 4, 8, 16, 32] {
            let (n, whole) = (lanes as usize, Fill::Integers { lo: -60, hi: 60 });
            let x = fill_tensor(DType::BF16, &[steps * n * 2], whole, 1);
            let y = fill_tensor(DType::BF16, &[steps * 2], whole, 2);
            let z = fill_tensor(DType::F32, &[n], whole, 3);
            let mut args = [x.clone(), y.clone(), z.clone()];
            assert_eq!(dots(lanes, steps as i64).run(&target, &mut args), 0);
            for i in 0..n {
                let term = |t: usize| x.get_f64((t / 2 * n + i) * 2 + t % 2) * y.get_f64(t);
                let sum = z.get_f64(i) + (0..steps * 2).map(term).sum::<f64>();
                assert_eq!(args[2].get_f64(i), sum, "{lanes} lanes, {target}");
            }
        }
    }
}

#[test]
fn pairs_are_one_instruction_where_there_is_one() {
    let count = |target: &Target, lanes| {
        let compiler = Compiler::new(target).expect("a target");
        let emit = Emit {
            assembly: true,
            ..Emit::default()
        };
        let compiled = compiler.compile(&dots(lanes, 3).code, emit);
        let text = compiled
            .expect("it compiles")
            .assembly
            .expect("it was asked for");
        let is = |l: &&str| l.split_whitespace().next() == Some("vdpbf16ps");
        text.lines().filter(is).count()
    };
    assert_eq!(count(&with_dot(), 16), 1);
    assert_eq!(count(&with_dot(), 32), 2);
    assert_eq!(count(&Target::generic(Isa::X86Avx512), 16), 0);
}

#[test]
fn a_store_of_some_lanes_leaves_their_neighbours() {
    let types = [
        (DType::F32, DType::BF16),
        (DType::F32, DType::F16),
        (DType::BF16, DType::F16),
        (DType::I32, DType::I8),
        (DType::I32, DType::U8),
        (DType::I64, DType::I32),
    ];
    for target in host_targets() {
        for (from, to) in types {
            for (first, last) in [(0, 1), (0, 2), (0, 15), (7, 8), (15, 16), (3, 9), (4, 4)] {
                let mut f = Flat::new();
                let x = f.buffer(from, 16, BufferPlace::Input);
                let y = f.buffer(to, 16, BufferPlace::Output);
                let l = f.var();
                let v = Expr::var(l);
                let lane = Some(Lane { var: l, lanes: 16 });
                let value = Expr::load(x, [v.clone()]).cast(to);
                let mut s = f.store(y, v.clone(), value, lane);
                if let Stmt::Store(s) = &mut s {
                    s.mask = Some(Expr::int(first).le(&v).and(v.lt(last)));
                }
                f.code.kernel = vec![s];
                let whole = Fill::Integers { lo: 1, hi: 9 };
                let (x, before) = (
                    fill_tensor(from, &[16], whole, 1),
                    Fill::Integers { lo: 11, hi: 11 },
                );
                let mut args = [x.clone(), fill_tensor(to, &[16], before, 0)];
                assert_eq!(f.run(&target, &mut args), 0);
                for i in 0..16 {
                    let inside = (first..last).contains(&(i as i64));
                    let wanted = if inside { x.get_f64(i) } else { 11.0 };
                    let what = format!("{to} {first}..{last} lane {i}, {target}");
                    assert_eq!(args[1].get_f64(i), wanted, "{what}");
                }
            }
        }
    }
}
