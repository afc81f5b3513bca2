//! Floats that are quantised become the bytes that Rust makes of them, on every target of this machine.

mod support;

use ir::{DType, Expr, UnaryOp};
use lower::flat::{BufferPlace, Lane};
use support::Flat;
use tensor::Tensor;
use testkit::host::host_targets;

const LANES: i64 = 16;

/// y[i] = to(of(x[i]))
fn code(n: i64, to: DType, of: impl Fn(Expr) -> Expr) -> Flat {
    let mut f = Flat::new();
    let x = f.buffer(DType::F32, n, BufferPlace::Input);
    let y = f.buffer(to, n, BufferPlace::Output);
    let (i, l) = (f.var(), f.var());
    let at = Expr::var(i) * LANES + Expr::var(l);
    let lane = Lane {
        var: l,
        lanes: LANES as u32,
    };
    let value = of(Expr::load(x, [at.clone()])).cast(to);
    let s = f.store(y, at, value, Some(lane));
    let body = f.loop_(i, n / LANES, false, vec![s]);
    f.code.kernel = vec![body];
    f
}

/// round(x / by) + zero
fn quantised(x: Expr, by: f32, zero: Option<f32>) -> Expr {
    let steps = Expr::unary(UnaryOp::Round, x / Expr::f32(by));
    zero.into_iter().fold(steps, |v, z| v + Expr::f32(z))
}

/// Numbers near to those that lie between two bytes, and such as have no quotient.
fn numbers(by: f32) -> Vec<f32> {
    let mut all = vec![
        0.0,
        -0.0,
        1e-45,
        -1e-40,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
        8_388_607.5 * by,
        8_388_609.0 * by,
    ];
    for half in -700..700 {
        let tie = (f64::from(half) / 2.0 * f64::from(by)) as f32;
        let bits = tie.to_bits();
        all.extend((0..7).map(|i| f32::from_bits((bits + i).saturating_sub(3))));
    }
    all.resize(all.len().next_multiple_of(LANES as usize), 1.0);
    all
}

#[test]
fn quantised_floats_are_the_nearest_bytes() {
    let divisors = [
        0.04f32,
        0.05,
        0.1,
        0.3,
        0.7,
        1.0,
        3.0,
        7.0,
        255.0,
        0.012_345,
        1.999_999_9,
        0.999_999_94,
        1.000_000_1,
        6.1e-5,
        3e-12,
        4e11,
        1e-39,
        3e36,
        2e30,
        1e-30,
    ];
    for target in host_targets() {
        for by in divisors {
            let x = numbers(by);
            for (zero, to) in [
                (None, DType::U8),
                (Some(128.0), DType::U8),
                (Some(-3.0), DType::I8),
            ] {
                let f = code(x.len() as i64, to, |v| quantised(v, by, zero));
                let y = Tensor::zeros(to, &[x.len()]);
                let mut args = [Tensor::from_slice(&[x.len()], &x), y];
                assert_eq!(f.run(&target, &mut args), 0);
                for (i, x) in x.iter().enumerate() {
                    let want = (x / by).round_ties_even() + zero.unwrap_or(0.0);
                    let want = match to {
                        DType::U8 => i64::from(want as u8),
                        _ => i64::from(want as i8),
                    };
                    assert_eq!(args[1].get_i64(i), want, "{x} / {by} + {zero:?}, {target}");
                }
            }
        }
    }
}

#[test]
fn floats_beyond_a_narrow_type_become_the_low_bits_of_64() {
    // Neighbours of all powers of two, of their halves more, and of zero.
    let mut all = vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    for exponent in -3..80 {
        for part in [1.0, 1.25, 1.5, 1.75, 1.996_093_8] {
            let bits = (2f32.powi(exponent) * part).to_bits();
            let near = (0..9).map(|i| f32::from_bits(bits + i - 4));
            all.extend(near.flat_map(|v| [v, -v]));
        }
    }
    let numbers = (0..4000).map(|i| i as f32 * 37.3 - 74_000.0);
    all.extend(numbers);
    all.resize(all.len().next_multiple_of(LANES as usize), 1.0);
    let narrow = [
        DType::U8,
        DType::I8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
    ];
    for target in host_targets() {
        for to in narrow {
            let y = Tensor::zeros(to, &[all.len()]);
            let mut args = [Tensor::from_slice(&[all.len()], &all), y];
            assert_eq!(
                code(all.len() as i64, to, |v| v.cast(DType::I64)).run(&target, &mut args),
                0
            );
            for (i, x) in all.iter().enumerate() {
                let whole = *x as i64;
                let want = match to {
                    DType::U8 => i64::from(whole as u8),
                    DType::I8 => i64::from(whole as i8),
                    DType::I16 => i64::from(whole as i16),
                    DType::U16 => i64::from(whole as u16),
                    DType::I32 => i64::from(whole as i32),
                    _ => i64::from(whole as u32),
                };
                assert_eq!(args[1].get_i64(i), want, "{x} to {to:?}, {target}");
            }
        }
    }
}
