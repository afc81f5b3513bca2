//! The error bounds that `llvm::math` states, on every family this host runs.

mod support;

use ir::{BinaryOp, DType, Expr, UnaryOp};
use lower::flat::{BufferPlace, Lane};
use support::Flat;
use tensor::Tensor;
use testkit::host::host_targets;

const N: i64 = 4096;

fn unary(op: UnaryOp, dtype: DType) -> Flat {
    let mut f = Flat::new();
    let x = f.buffer(dtype, N, BufferPlace::Input);
    let y = f.buffer(op.result(dtype), N, BufferPlace::Output);
    let (i, l) = (f.var(), f.var());
    let at = Expr::var(i) * 16 + Expr::var(l);
    let value = Expr::unary(op, Expr::load(x, [at.clone()]));
    let s = f.store(y, at, value, Some(Lane { var: l, lanes: 16 }));
    let body = f.loop_(i, N / 16, false, vec![s]);
    f.code.kernel = vec![body];
    f
}

fn inputs(dtype: DType, lo: f64, hi: f64, specials: &[f64]) -> Tensor {
    let mut t = Tensor::zeros(dtype, &[N as usize]);
    for i in 0..N as usize {
        t.set_f64(i, lo + (hi - lo) * i as f64 / (N - 1) as f64);
    }
    for (i, s) in specials.iter().enumerate() {
        t.set_f64(i, *s);
    }
    t
}

/// Largest relative error; specials must agree exactly.
fn worst(actual: &Tensor, x: &Tensor, f: impl Fn(f64) -> f64, smallest: f64) -> f64 {
    let mut worst = 0.0f64;
    for i in 0..x.len() {
        let mut expected = Tensor::zeros(x.dtype(), &[1]);
        let exact = f(x.get_f64(i));
        expected.set_f64(0, exact);
        let (a, e) = (actual.get_f64(i), expected.get_f64(0));
        if !e.is_finite() || !a.is_finite() {
            assert!(
                a == e || a.is_nan() && e.is_nan(),
                "f({}) = {a}, not {e}",
                x.get_f64(i)
            );
        } else if exact.abs() < smallest {
            assert!(
                (a - e).abs() <= smallest,
                "f({}) = {a}, not {e}",
                x.get_f64(i)
            );
        } else {
            worst = worst.max((a - exact).abs() / exact.abs());
        }
    }
    worst
}

/// A function, the true one, ranges of arguments, and special ones.
type Case = (UnaryOp, fn(f64) -> f64, Vec<(f64, f64)>, Vec<f64>);

/// Near 1 `f64::acosh` loses digits.
fn acosh(x: f64) -> f64 {
    let t = x - 1.0;
    if t < 1.0 {
        (t + (t * (t + 2.0)).sqrt()).ln_1p()
    } else {
        x.acosh()
    }
}

fn powers() -> Vec<Case> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    vec![
        (
            UnaryOp::Exp,
            f64::exp,
            vec![(-1.0, 1.0), (-87.0, 88.7), (-800.0, 720.0)],
            vec![inf, -inf, nan, 0.0, 1e30, -1e30],
        ),
        (
            UnaryOp::Log,
            f64::ln,
            vec![(0.5, 2.0), (1e-30, 1e-3), (1e-40, 1e-38), (1.0, 1e30)],
            vec![0.0, -1.0, inf, -inf, nan, 1.0],
        ),
        (
            UnaryOp::Tanh,
            f64::tanh,
            vec![(-1.0, 1.0), (-20.0, 20.0), (1e-20, 1e-10)],
            vec![inf, -inf, nan, 0.0, 1e30],
        ),
        (
            UnaryOp::Erf,
            ir::interpret::erf,
            vec![(-1.0, 1.0), (-7.0, 7.0), (1e-20, 1e-10)],
            vec![inf, -inf, nan, 0.0, 1e30],
        ),
    ]
}

fn angles() -> Vec<Case> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    vec![
        (
            UnaryOp::Sin,
            f64::sin,
            vec![(-1.0, 1.0), (-200.0, 200.0), (1e-30, 1e-10), (-1e6, 1e6)],
            vec![inf, -inf, nan, 0.0],
        ),
        (
            UnaryOp::Cos,
            f64::cos,
            vec![(-1.0, 1.0), (-200.0, 200.0), (1e-30, 1e-10), (-1e6, 1e6)],
            vec![inf, -inf, nan, 0.0],
        ),
        (
            UnaryOp::Tan,
            f64::tan,
            vec![(-1.0, 1.0), (-200.0, 200.0), (1e-30, 1e-10), (-1e6, 1e6)],
            vec![inf, -inf, nan, 0.0],
        ),
        (
            UnaryOp::Asin,
            f64::asin,
            vec![(-1.0, 1.0), (0.999, 1.001), (1e-30, 1e-10)],
            vec![1.0, -1.0, 2.0, inf, -inf, nan, 0.0],
        ),
        (
            UnaryOp::Acos,
            f64::acos,
            vec![(-1.0, 1.0), (0.999, 1.001), (1e-30, 1e-10)],
            vec![1.0, -1.0, 2.0, inf, -inf, nan, 0.0],
        ),
        (
            UnaryOp::Atan,
            f64::atan,
            vec![(-1.0, 1.0), (-30.0, 30.0), (1e-30, 1e-10), (1e10, 1e30)],
            vec![inf, -inf, nan, 0.0],
        ),
        (
            UnaryOp::Sinh,
            f64::sinh,
            vec![(-2.0, 2.0), (-89.0, 89.0), (1e-30, 1e-10), (-720.0, 720.0)],
            vec![inf, -inf, nan, 0.0],
        ),
        (
            UnaryOp::Cosh,
            f64::cosh,
            vec![(-2.0, 2.0), (-89.0, 89.0), (1e-30, 1e-10), (-720.0, 720.0)],
            vec![inf, -inf, nan, 0.0],
        ),
        (
            UnaryOp::Asinh,
            f64::asinh,
            vec![(-2.0, 2.0), (-1e4, 1e4), (1e-30, 1e-10), (1e8, 1e30)],
            vec![inf, -inf, nan, 0.0],
        ),
        (
            UnaryOp::Acosh,
            acosh,
            vec![(1.0, 1.001), (0.0, 4.0), (1.0, 1e4), (1e8, 1e30)],
            vec![inf, -inf, nan, 0.0, -2.0, 1.0],
        ),
        (
            UnaryOp::Atanh,
            f64::atanh,
            vec![(-1.0, 1.0), (0.999, 1.001), (1e-30, 1e-10)],
            vec![1.0, -1.0, inf, -inf, nan, 0.0],
        ),
    ]
}

#[test]
fn unary_functions_keep_their_bounds() {
    let cases = [powers(), angles()].concat();
    for target in host_targets() {
        for (op, f, ranges, specials) in &cases {
            for dtype in [DType::F32, DType::F64] {
                let (_, _, bound) = llvm::math::BOUNDS
                    .iter()
                    .find(|b| b.0 == op.name() && b.1 == dtype)
                    .unwrap();
                let smallest = if dtype == DType::F32 {
                    1.2e-38
                } else {
                    2.3e-308
                };
                let code = unary(*op, dtype).loaded(&target);
                for (lo, hi) in ranges {
                    let x = inputs(dtype, *lo, *hi, specials);
                    let mut args = [x.clone(), Tensor::zeros(dtype, &[N as usize])];
                    assert_eq!(code.run(&mut args), 0);
                    let e = worst(&args[1], &x, f, smallest);
                    assert!(
                        e <= *bound,
                        "{op:?} {dtype} on [{lo}, {hi}], {}: {e:e}",
                        target.name()
                    );
                }
            }
        }
    }
}

/// Bit patterns of finite numbers of 2^19 and more, either sign, and the largest ones.
fn large_numbers(dtype: DType) -> Tensor {
    let mut t = Tensor::zeros(dtype, &[100_352]);
    let mut bits = 0x9e37_79b9_7f4a_7c15u64;
    for i in 0..t.len() {
        // Marsaglia, Xorshift RNGs, 2003.
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        let (single, double) = (f32::from_bits(bits as u32), f64::from_bits(bits));
        let x = match dtype {
            DType::F32 => f64::from(single),
            _ => double,
        };
        let wanted = x.is_finite() && (i % 2 == 0 || x.abs() >= f64::from(1 << 19));
        t.set_f64(i, if wanted { x } else { (bits >> 40) as f64 });
    }
    let single = [f32::MAX, f32::MIN, 1e20, 1e10].map(f64::from);
    // 6381956970095103 2^797 is the one that is nearest to a multiple of pi/2.
    let nearest = 6_381_956_970_095_103.0 * 2f64.powi(797);
    let double = [
        f64::MAX,
        f64::MIN,
        1e20,
        1e22,
        2f64.powi(1023),
        nearest,
        1e300,
    ];
    let special: &[f64] = if dtype == DType::F32 {
        &single
    } else {
        &double
    };
    special
        .iter()
        .enumerate()
        .for_each(|(i, s)| t.set_f64(i, *s));
    let border = f64::from(1 << 20);
    for (i, x) in [border, -border, border - 1.0, f64::INFINITY, f64::NAN]
        .iter()
        .enumerate()
    {
        t.set_f64(20 + i, *x);
    }
    t
}

/// The sines of 1e20 by integers of 2000 bits.
const SINES: [(DType, f64); 2] = [
    (DType::F32, 0.656_576_677_854_590_3),
    (DType::F64, -0.645_251_265_285_780_9),
];

#[test]
fn angles_of_any_size_are_reduced() {
    for target in host_targets() {
        for (op, f) in [
            (UnaryOp::Sin, libm::sin as fn(f64) -> f64),
            (UnaryOp::Cos, libm::cos),
            (UnaryOp::Tan, libm::tan),
        ] {
            for dtype in [DType::F32, DType::F64] {
                let all = large_numbers(dtype);
                let (ulp, least) = match dtype {
                    DType::F32 => (f64::from(f32::EPSILON), 1e-7),
                    _ => (f64::EPSILON, 1e-15),
                };
                let code = unary(op, dtype).loaded(&target);
                for start in (0..all.len()).step_by(N as usize) {
                    let mut x = Tensor::zeros(dtype, &[N as usize]);
                    let count = (all.len() - start).min(N as usize);
                    (0..count).for_each(|i| x.set_f64(i, all.get_f64(start + i)));
                    let mut args = [x.clone(), Tensor::zeros(dtype, &[N as usize])];
                    assert_eq!(code.run(&mut args), 0);
                    for i in 0..N as usize {
                        let (x, y) = (x.get_f64(i), args[1].get_f64(i));
                        let want = f(x);
                        let near = (y - want).abs() <= (4.0 * ulp * want.abs()).max(least)
                            || y.is_nan() && want.is_nan();
                        assert!(near, "{op:?}({x:e}) of {dtype} = {y}, not {want}");
                    }
                }
            }
        }
    }
    for (dtype, want) in SINES {
        let mut x = Tensor::zeros(dtype, &[N as usize]);
        x.set_f64(5, 1e20);
        let mut args = [x, Tensor::zeros(dtype, &[N as usize])];
        let code = unary(UnaryOp::Sin, dtype);
        assert_eq!(code.run(&host_targets()[0], &mut args), 0);
        assert!((args[1].get_f64(5) - want).abs() < 1e-7);
    }
}

#[test]
fn pow_keeps_its_bounds() {
    let exponents = [2.0, 0.5, -1.0, 3.0, -2.5, 0.0, 7.0, 1.0, f64::INFINITY];
    let bases = [
        -3.0,
        -1.0,
        -0.5,
        -0.0,
        0.0,
        1e-3,
        0.7,
        1.0,
        42.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let n = 128;
    for target in host_targets() {
        for dtype in [DType::F32, DType::F64] {
            let (_, _, bound) = llvm::math::BOUNDS
                .iter()
                .find(|b| b.0 == "pow" && b.1 == dtype)
                .unwrap();
            let mut f = Flat::new();
            let [x, y] = [0; 2].map(|_| f.buffer(dtype, n as i64, BufferPlace::Input));
            let z = f.buffer(dtype, n as i64, BufferPlace::Output);
            let (k, l) = (f.var(), f.var());
            let at = Expr::var(k) * 64 + Expr::var(l);
            let load = |b| Expr::load(b, [at.clone()]);
            let value = Expr::binary(BinaryOp::Pow, load(x), load(y));
            let s = f.store(z, at.clone(), value, Some(Lane { var: l, lanes: 64 }));
            f.code.kernel = vec![f.loop_(k, n as i64 / 64, false, vec![s])];
            let mut args: Vec<Tensor> = (0..3).map(|_| Tensor::zeros(dtype, &[n])).collect();
            for i in 0..n {
                args[0].set_f64(i, bases[i / exponents.len() % bases.len()]);
                args[1].set_f64(i, exponents[i % exponents.len()]);
            }
            assert_eq!(f.run(&target, &mut args), 0);
            for i in 0..n {
                let (b, p) = (args[0].get_f64(i), args[1].get_f64(i));
                let (a, e) = (args[2].get_f64(i), b.powf(p));
                let sign = a.is_sign_negative() == e.is_sign_negative();
                let same = a == e && sign || a.is_nan() && e.is_nan();
                let near = e != 0.0 && ((a - e) / e).abs() <= *bound;
                assert!(same || near, "{b}^{p} = {a}, not {e}");
            }
        }
    }
}

#[test]
fn bits_are_those_of_the_float() {
    for target in host_targets() {
        let x = inputs(DType::F32, -10.0, 10.0, &[-0.0, f64::INFINITY]);
        let mut args = [x.clone(), Tensor::zeros(DType::I32, &[N as usize])];
        assert_eq!(unary(UnaryOp::Bits, DType::F32).run(&target, &mut args), 0);
        for i in 0..N as usize {
            let bits = (x.get_f64(i) as f32).to_bits() as i32;
            assert_eq!(args[1].get_i64(i), i64::from(bits));
        }
    }
}

#[test]
fn rounding_is_exact() {
    let values = [
        -2.5, -1.5, -0.5, -0.2, 0.0, 0.5, 1.5, 2.5, 3.7, -3.7, 1e10, -1e10, 8388609.0,
    ];
    for target in host_targets() {
        for (op, f) in [
            (UnaryOp::Round, f64::round_ties_even as fn(f64) -> f64),
            (UnaryOp::Floor, f64::floor),
            (UnaryOp::Ceil, f64::ceil),
        ] {
            for dtype in [DType::F32, DType::F64] {
                let x = inputs(dtype, -10.0, 10.0, &values);
                let mut args = [x.clone(), Tensor::zeros(dtype, &[N as usize])];
                assert_eq!(unary(op, dtype).run(&target, &mut args), 0);
                for i in 0..N as usize {
                    assert_eq!(
                        args[1].get_f64(i),
                        f(x.get_f64(i)),
                        "{op:?}({})",
                        x.get_f64(i)
                    );
                }
            }
        }
    }
}
