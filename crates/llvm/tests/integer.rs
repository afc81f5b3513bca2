//! Integer division, power and conversion in code: the interpreter's results, no trap.

mod support;

use ir::{BinaryOp, DType, Expr};
use lower::flat::{BufferPlace, Lane};
use support::Flat;
use tensor::Tensor;
use testkit::host::host_targets;

const DTYPES: [DType; 4] = [DType::I8, DType::I32, DType::I64, DType::U8];

/// z[i] = x[i] op y[i], by `lanes` at once, or one by one if that is 0.
fn code(op: BinaryOp, dtype: DType, n: i64, lanes: u32) -> Flat {
    let mut f = Flat::new();
    let (x, y) = (
        f.buffer(dtype, n, BufferPlace::Input),
        f.buffer(dtype, n, BufferPlace::Input),
    );
    let z = f.buffer(dtype, n, BufferPlace::Output);
    let (i, l) = (f.var(), f.var());
    let (at, lane) = match lanes {
        0 => (Expr::var(i), None),
        n => (
            Expr::var(i) * i64::from(n) + Expr::var(l),
            Some(Lane { var: l, lanes }),
        ),
    };
    let value = Expr::binary(op, Expr::load(x, [at.clone()]), Expr::load(y, [at.clone()]));
    let s = f.store(z, at, value, lane);
    let body = f.loop_(i, n / i64::from(lanes.max(1)), false, vec![s]);
    f.code.kernel = vec![body];
    f
}

fn run(op: BinaryOp, dtype: DType, x: &[i64], y: &[i64], check: impl Fn(i64, i64, i64)) {
    let tensor = |values: &[i64]| {
        let mut t = Tensor::zeros(dtype, &[values.len()]);
        for (i, v) in values.iter().enumerate() {
            t.set_i64(i, *v);
        }
        t
    };
    for target in host_targets() {
        for lanes in [0, 16] {
            let f = code(op, dtype, x.len() as i64, lanes);
            let mut args = [tensor(x), tensor(y), tensor(&vec![7; x.len()])];
            assert_eq!(f.run(&target, &mut args), 0);
            for i in 0..x.len() {
                let [x, y, z] = [0, 1, 2].map(|a: usize| args[a].get_i64(i));
                check(x, y, z);
            }
        }
    }
}

fn wrapped(dtype: DType, v: i64) -> i64 {
    let mut t = Tensor::zeros(dtype, &[1]);
    t.set_i64(0, v);
    t.get_i64(0)
}

fn smallest(dtype: DType) -> i64 {
    match dtype.is_signed() {
        true => i64::MIN >> (64 - dtype.bits()),
        false => 0,
    }
}

/// Pairs with every sign, remainders, zero divisors and the one that overflows.
fn operands(dtype: DType) -> (Vec<i64>, Vec<i64>) {
    let least = smallest(dtype);
    let values = [7, -7, 6, 100, 1, 0, least, -1];
    let divisors: [i64; 8] = [2, -2, 3, 5, 1, -1, 0, 7];
    let values = values.map(|v| if dtype.is_signed() { v } else { v.abs() });
    let divisors = divisors.map(|v| if dtype.is_signed() { v } else { v.abs() });
    let pairs = values.iter().flat_map(|x| divisors.map(|y| (*x, y)));
    pairs.unzip()
}

/// Quotients and remainders are those of the interpreter.
fn divides(dtype: DType, x: &[i64], y: &[i64]) {
    run(BinaryOp::Div, dtype, x, y, |x, y, z| {
        let expected = if y == 0 { x } else { x.wrapping_div(y) };
        assert_eq!(z, wrapped(dtype, expected), "{x} / {y} of {dtype}");
    });
    run(BinaryOp::FloorMod, dtype, x, y, |x, y, z| {
        let r = if y == 0 { 0 } else { x.wrapping_rem(y) };
        let up = r != 0 && (r < 0) != (y < 0);
        let expected = if up { r + y } else { r };
        assert_eq!(z, wrapped(dtype, expected), "{x} mod {y} of {dtype}");
    });
}

#[test]
fn quotients_and_remainders_round_as_the_interpreter_and_never_trap() {
    for dtype in DTYPES {
        let (x, y) = operands(dtype);
        divides(dtype, &x, &y);
        run(BinaryOp::FloorDiv, dtype, &x, &y, |x, y, z| {
            let (q, r) = match y {
                0 => (x, 0),
                y => (x.wrapping_div(y), x.wrapping_rem(y)),
            };
            let down = r != 0 && (r < 0) != (y < 0);
            let expected = q.wrapping_sub(i64::from(down));
            assert_eq!(z, wrapped(dtype, expected), "floor({x} / {y}) of {dtype}");
        });
    }
}

/// Multiples of divisors of every size, and what is next to them: where a quotient that is
/// rounded up or down is another one.
#[test]
fn quotients_next_to_whole_numbers_are_exact() {
    for dtype in DTYPES {
        let mut bits = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            // Marsaglia, Xorshift RNGs, 2003.
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            bits
        };
        let pairs = (0..16384).map(|i| {
            let y = wrapped(dtype, (random() as i64) >> (random() % 60));
            let times = (random() as i64) >> (random() % 60);
            let x = wrapped(dtype, times.wrapping_mul(y).wrapping_add(i % 3 - 1));
            (x, y)
        });
        let (x, y): (Vec<_>, Vec<_>) = pairs.unzip();
        divides(dtype, &x, &y);
    }
}

#[test]
fn powers_wrap_and_negative_exponents_round_to_zero() {
    for dtype in DTYPES {
        let bases: [i64; 8] = [0, 1, -1, 2, -3, 5, 10, 11];
        let exponents: [i64; 16] = [0, 1, 2, 3, 7, 31, 100, -3, -2, 62, 63, 64, 4, 5, 6, 8];
        let keep = |v: i64| if dtype.is_signed() { v } else { v.abs() };
        let pairs = bases
            .iter()
            .flat_map(|x| exponents.map(|y| (keep(*x), keep(y))));
        let (x, y): (Vec<_>, Vec<_>) = pairs.unzip();
        run(BinaryOp::Pow, dtype, &x, &y, |x, y, z| {
            let product = |n: i64| (0..n).fold(1i64, |p, _| p.wrapping_mul(x));
            let expected = match (y < 0, x) {
                (false, _) => product(y),
                (true, 1 | -1) => product(-y),
                (true, _) => 0,
            };
            assert_eq!(z, wrapped(dtype, expected), "{x} to {y} of {dtype}");
        });
    }
}

#[test]
fn bits_are_combined_and_shifted_as_the_interpreter_does() {
    use BinaryOp::{BitAnd, BitOr, BitXor, Shl, Shr};
    for dtype in DTYPES {
        let (x, y) = operands(dtype);
        let counts: Vec<i64> = (0..y.len() as i64).map(|i| i * 5 % 71 - 3).collect();
        let counts: Vec<i64> = match dtype.is_signed() {
            true => counts,
            false => counts.iter().map(|c| c.abs()).collect(),
        };
        for op in [BitAnd, BitOr, BitXor, Shl, Shr] {
            let right = if matches!(op, Shl | Shr) { &counts } else { &y };
            run(op, dtype, &x, right, |x, y, z| {
                let expected = match op {
                    BitAnd => x & y,
                    BitOr => x | y,
                    BitXor => x ^ y,
                    Shl if (0..dtype.bits() as i64).contains(&y) => x << y,
                    Shl => 0,
                    _ if (0..dtype.bits() as i64).contains(&y) => x >> y,
                    _ if x < 0 => -1,
                    _ => 0,
                };
                assert_eq!(
                    z,
                    wrapped(dtype, expected),
                    "{op:?} of {x} and {y}, {dtype}"
                );
            });
        }
    }
}

/// z[i] = x[i] as an integer, by `lanes` at once, or one by one if that is 0.
fn conversion(from: DType, to: DType, n: i64, lanes: u32) -> Flat {
    let mut f = Flat::new();
    let x = f.buffer(from, n, BufferPlace::Input);
    let z = f.buffer(to, n, BufferPlace::Output);
    let (i, l) = (f.var(), f.var());
    let (at, lane) = match lanes {
        0 => (Expr::var(i), None),
        n => (
            Expr::var(i) * i64::from(n) + Expr::var(l),
            Some(Lane { var: l, lanes }),
        ),
    };
    let value = Expr::load(x, [at.clone()]).cast(to);
    let s = f.store(z, at, value, lane);
    let body = f.loop_(i, n / i64::from(lanes.max(1)), false, vec![s]);
    f.code.kernel = vec![body];
    f
}

#[test]
fn floats_become_the_nearest_integers_that_a_type_holds() {
    let ends = [7, 8, 15, 16, 31, 32, 63, 64].map(|bits| 2f64.powi(bits));
    let mut values = vec![0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 126.9, -127.9, 254.9, 255.9];
    values.extend([
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e30,
        -1e30,
        3e9,
        -3e9,
    ]);
    values.extend(
        ends.iter()
            .flat_map(|e| [*e, -e, e - 0.75, 0.75 - e, e + 1.0, -e - 1.0]),
    );
    values.resize(values.len().next_multiple_of(16), 2.75);
    for from in [DType::F32, DType::F64] {
        let mut x = Tensor::zeros(from, &[values.len()]);
        for (i, v) in values.iter().enumerate() {
            x.set_f64(i, *v);
        }
        for to in DTYPES {
            for (target, lanes) in host_targets().iter().flat_map(|t| [(t, 0), (t, 16)]) {
                let f = conversion(from, to, values.len() as i64, lanes);
                let mut args = [x.clone(), Tensor::zeros(to, &[values.len()])];
                assert_eq!(f.run(target, &mut args), 0);
                for i in 0..values.len() {
                    let v = x.get_f64(i);
                    let expected = match to {
                        DType::I8 => i64::from(v as i8),
                        DType::I32 => i64::from(v as i32),
                        DType::U8 => i64::from(v as u8),
                        _ => v as i64,
                    };
                    assert_eq!(args[1].get_i64(i), expected, "{v} from {from} to {to}");
                }
            }
        }
    }
}
