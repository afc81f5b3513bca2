//! Trigonometric and hyperbolic functions and their inverses, for scalars and vectors alike.
//! They are branch-free but for angles of 2^20 and more, which [`crate::large_angles`] reduces.
//!
//! `f32` goes through `f64`, so its results are nearly always the nearest: all but the arc
//! functions, whose polynomials lose less than two units in the last place in `f32` itself.
//! Error bounds are in [`crate::math::BOUNDS`]. Outside their domain functions give NaN.

use crate::emit::Emitter;
use crate::large_angles;
use crate::math::{Math, exp, log};
use crate::raw::{Cmp, Conv, Op, Value};
use ir::DType;
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, LN_2};

/// Applies a function of `f64` to a value of either type.
fn widely(e: &Emitter<'_>, x: Value, d: DType, f: impl Fn(&Math, Value) -> Value) -> Value {
    if d == DType::F64 {
        return f(&Math::new(e, x, d), x);
    }
    let wide = e.b.vector_type(e.b.f64_type(), e.b.lanes_of(x));
    let x64 = e.b.convert(Conv::FpExt, x, wide);
    let y = f(&Math::new(e, x64, DType::F64), x64);
    e.b.convert(Conv::FpTrunc, y, e.b.type_of(x))
}

/// pi/2 in parts of 33 bits, of which products with 20 bits are exact, and the rest.
const HALF_PI: [f64; 4] = [
    1.570_796_326_734_125_6,
    6.077_100_506_303_966e-11,
    2.022_266_248_711_166_5e-21,
    8.478_427_660_368_9e-32,
];

/// The sine and cosine of |r| <= pi/4 by their Taylor series, whose next terms are below
/// half a unit in the last place.
fn both(m: &Math, r: Value) -> (Value, Value) {
    let series = |first: u32| {
        let mut terms = vec![1.0];
        for k in 1..=8 {
            let n = f64::from(2 * k + first);
            terms.push(-terms[k as usize - 1] / (n * (n - 1.0)));
        }
        terms
    };
    let z = m.mul(r, r);
    let (odd, even) = (series(1), series(0));
    // r + r^3 (..), so that only the correction rounds.
    let sine = m.add(r, m.mul(m.mul(r, z), m.poly(z, &odd[1..])));
    let cosine = m.add(m.c(1.0), m.mul(z, m.poly(z, &even[1..])));
    (sine, cosine)
}

/// Angles from which on a multiple of pi/2 has more than the 20 bits of [`HALF_PI`].
const LARGE: f64 = (1 << 20) as f64;

/// The angle less the nearest multiple of pi/2, and a number that says which multiple it is,
/// of which the lowest two bits matter.
fn reduced(m: &Math, x: Value) -> (Value, Value) {
    let b = &m.e.b;
    let shift = m.c(1.5 * (1i64 << 52) as f64);
    let shifted = m.add(m.mul(x, m.c(FRAC_2_PI)), shift);
    let n = m.sub(shifted, shift);
    let near = HALF_PI
        .iter()
        .fold(x, |r, part| m.sub(r, m.mul(n, m.c(*part))));
    let near = (near, m.bits(shifted));

    let is_large = b.cmp(Cmp::FOle, m.c(LARGE), m.abs(x));
    let any = match b.lanes_of(is_large) {
        0 => is_large,
        _ => b.intrinsic(
            "llvm.vector.reduce.or",
            &mut [b.type_of(is_large)],
            &mut [is_large],
        ),
    };
    let before = b.current_block();
    let (some, join) = (m.e.new_block("large"), m.e.new_block("angle"));
    b.branch_if(any, some, join);
    b.position_at_end(some);
    let far = large_angles::reduced(m, x);
    let chosen = [(far.0, near.0), (far.1, near.1)].map(|(f, n)| m.select(is_large, f, n));
    let after = b.current_block();
    b.branch(join);
    b.position_at_end(join);
    let [r, n] = [(near.0, chosen[0]), (near.1, chosen[1])].map(|(near, chosen)| {
        let phi = b.phi(b.type_of(near));
        b.add_incoming(phi, near, before);
        b.add_incoming(phi, chosen, after);
        phi
    });
    (r, n)
}

/// `yes` where bit `bit` of `n` is set, else `no`.
fn by_bit(m: &Math, n: Value, bit: i64, yes: Value, no: Value) -> Value {
    let set = m.iop(Op::And, n, m.int(bit));
    let is_set = m.e.b.cmp(Cmp::Ne, set, m.int(0));
    m.select(is_set, yes, no)
}

fn negated_by(m: &Math, n: Value, bit: i64, x: Value) -> Value {
    by_bit(m, n, bit, m.e.b.fneg(x), x)
}

pub fn sin(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    widely(e, x, d, |m, x| {
        let (r, n) = reduced(m, x);
        let (sine, cosine) = both(m, r);
        negated_by(m, n, 2, by_bit(m, n, 1, cosine, sine))
    })
}

/// The sine of a quarter turn more.
pub fn cos(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    widely(e, x, d, |m, x| {
        let (r, n) = reduced(m, x);
        let (sine, cosine) = both(m, r);
        let more = m.iop(Op::Add, n, m.int(1));
        negated_by(m, more, 2, by_bit(m, n, 1, sine, cosine))
    })
}

pub fn tan(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    widely(e, x, d, |m, x| {
        let (r, n) = reduced(m, x);
        let (sine, cosine) = both(m, r);
        let above = by_bit(m, n, 1, e.b.fneg(cosine), sine);
        let below = by_bit(m, n, 1, sine, cosine);
        m.div(above, below)
    })
}

/// S. L. Moshier, Cephes, `atan`: (atan(x) - x) / x^3 = P(x^2) / Q(x^2) up to 0.66.
const ATAN_P: [f64; 5] = [
    -64.850_219_049_420_25,
    -122.886_668_449_013_61,
    -75.008_557_923_147_05,
    -16.157_537_187_333_652,
    -0.875_060_860_003_190_4,
];
const ATAN_Q: [f64; 6] = [
    194.550_657_148_261_4,
    485.390_399_635_913_7,
    432.881_060_491_290_27,
    165.027_009_831_698_85,
    24.858_464_901_423_062,
    1.0,
];
/// tan(3 pi/8).
const ATAN_FAR: f64 = 2.414_213_562_373_095;
/// What pi/2 is more than its `f64`.
const HALF_PI_REST: f64 = 6.123_233_995_736_766e-17;

/// atan(x) = pi/4 + atan((x - 1) / (x + 1)) = pi/2 - atan(1 / x) brings x below 0.66.
fn arc_tangent(m: &Math, x: Value) -> Value {
    let b = &m.e.b;
    let a = m.abs(x);
    let one = m.c(1.0);
    let far = b.cmp(Cmp::FOlt, m.c(ATAN_FAR), a);
    let middle = b.cmp(Cmp::FOlt, m.c(0.66), a);
    let pick = |far_value, middle_value, near_value| {
        m.select(far, far_value, m.select(middle, middle_value, near_value))
    };
    let above = pick(m.c(-1.0), m.sub(a, one), a);
    let below = pick(a, m.add(a, one), one);
    let t = m.div(above, below);
    let z = m.mul(t, t);
    let correction = m.div(m.poly(z, &ATAN_P), m.poly(z, &ATAN_Q));
    let series = m.add(t, m.mul(m.mul(t, z), correction));
    let rest = pick(m.c(HALF_PI_REST), m.c(HALF_PI_REST / 2.0), m.c(0.0));
    let base = pick(m.c(FRAC_PI_2), m.c(FRAC_PI_4), m.c(0.0));
    m.copysign(m.add(base, m.add(series, rest)), x)
}

// Printed by angle_coefficients.py: (f(x) - x) / x^3 in powers of x^2.
const ASIN_F32: [f64; 5] = [
    0.16666752481134572,
    0.07495297704997014,
    0.04547036618423666,
    0.024179569255843046,
    0.04216620886835864,
];
const ATAN_F32: [f64; 8] = [
    -0.3333315271969688,
    0.19993772394064382,
    -0.14211051264475794,
    0.10665987026868337,
    -0.0755217325369225,
    0.04321133633065913,
    -0.01636758126159028,
    0.0029205995866274947,
];

/// pi/2 as the nearest `f32` and what is left.
fn half_pi_f32() -> (f64, f64) {
    let head = f64::from(std::f32::consts::FRAC_PI_2);
    (head, FRAC_PI_2 - head)
}

/// pi/2 - atan(1 / x) above 1.
fn arc_tangent_f32(m: &Math, x: Value) -> Value {
    let b = &m.e.b;
    // From 2^25 on the result is pi/2: the bound keeps the divisor finite.
    let a = m.at_most(m.abs(x), 2f64.powi(60));
    let far = b.cmp(Cmp::FOlt, m.c(1.0), a);
    // Where a divisor is not normal, the quotient is not used.
    let reciprocal = b.quotient_of_normals(m.c(-1.0), a);
    let t = m.select(far, reciprocal, a);
    let z = m.mul(t, t);
    let series = m.add(t, m.mul(m.mul(t, z), m.poly(z, &ATAN_F32)));
    let (head, rest) = half_pi_f32();
    let complement = m.add(m.c(head), m.add(series, m.c(rest)));
    m.copysign(m.select(far, complement, series), x)
}

pub fn atan(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    match d {
        DType::F32 => arc_tangent_f32(&Math::new(e, x, d), x),
        _ => widely(e, x, d, arc_tangent),
    }
}

/// Of a = |x|: whether it is above 1/2, and the arc sine of y as y and a correction, where y
/// is a, or sqrt((1 - a) / 2) above 1/2, for asin(a) = pi/2 - 2 asin(y). Both are NaN above 1.
fn arc_sine_f32(m: &Math, a: Value) -> (Value, Value, Value) {
    let is_large = m.e.b.cmp(Cmp::FOlt, m.c(0.5), a);
    // Exact.
    let beside = m.mul(m.sub(m.c(1.0), a), m.c(0.5));
    let z = m.select(is_large, beside, m.mul(a, a));
    let y = m.select(is_large, m.sqrt(beside), a);
    (is_large, y, m.mul(m.mul(y, z), m.poly(z, &ASIN_F32)))
}

/// Of `f64` the angle whose tangent is x / sqrt(1 - x^2).
pub fn asin(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    if d == DType::F32 {
        let m = &Math::new(e, x, d);
        let (is_large, y, correction) = arc_sine_f32(m, m.abs(x));
        let (head, rest) = half_pi_f32();
        let twice = m.add(y, y);
        let difference = m.sub(m.c(head), twice);
        // What the difference is rounded by.
        let rounded = m.sub(m.sub(m.c(head), difference), twice);
        let rest = m.sub(m.add(rounded, m.c(rest)), m.add(correction, correction));
        let large = m.add(difference, rest);
        let small = m.add(y, correction);
        return m.copysign(m.select(is_large, large, small), x);
    }
    widely(e, x, d, |m, x| {
        let one = m.c(1.0);
        let square = m.mul(m.sub(one, x), m.add(one, x));
        arc_tangent(m, m.div(x, m.sqrt(square)))
    })
}

/// Of `f64` twice the angle whose tangent is sqrt((1 - x) / (1 + x)).
pub fn acos(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    if d == DType::F32 {
        let m = &Math::new(e, x, d);
        let (is_large, y, correction) = arc_sine_f32(m, m.abs(x));
        let (head, rest) = half_pi_f32();
        let is_negative = e.b.cmp(Cmp::FOlt, x, m.c(0.0));
        let double = |v| m.add(v, v);
        let above = double(m.add(y, correction));
        let below = m.add(y, m.sub(correction, m.c(rest)));
        let below = m.sub(m.c(2.0 * head), double(below));
        let large = m.select(is_negative, below, above);
        let [y, correction] = [y, correction].map(|v| m.copysign(v, x));
        let small = m.sub(m.c(head), m.sub(y, m.sub(m.c(rest), correction)));
        return m.select(is_large, large, small);
    }
    widely(e, x, d, |m, x| {
        let one = m.c(1.0);
        let ratio = m.div(m.sub(one, x), m.add(one, x));
        let half = arc_tangent(m, m.sqrt(ratio));
        m.add(half, half)
    })
}

/// e^a / 2 and e^-a / 2, of which the first overflows no sooner than their sum.
fn half_powers(m: &Math, a: Value) -> (Value, Value) {
    let root = exp(m.e, m.mul(a, m.c(0.5)), DType::F64);
    let half = m.mul(root, m.c(0.5));
    (m.mul(half, root), m.div(m.c(0.25), m.mul(half, root)))
}

/// The Taylor series below 1, where the powers cancel.
pub fn sinh(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    widely(e, x, d, |m, x| {
        let a = m.abs(x);
        let (up, down) = half_powers(m, a);
        let large = m.copysign(m.sub(up, down), x);
        let mut terms = vec![1.0];
        for k in 1..=9 {
            let n = f64::from(2 * k + 1);
            terms.push(terms[k as usize - 1] / (n * (n - 1.0)));
        }
        let z = m.mul(x, x);
        let small = m.add(x, m.mul(m.mul(x, z), m.poly(z, &terms[1..])));
        let is_small = e.b.cmp(Cmp::FOlt, a, m.c(1.0));
        m.select(is_small, small, large)
    })
}

pub fn cosh(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    widely(e, x, d, |m, x| {
        let (up, down) = half_powers(m, m.abs(x));
        m.add(up, down)
    })
}

/// log(1 + x): what 1 + x is rounded by is made up for (W. Kahan, as in D. Goldberg, What
/// every computer scientist should know about floating-point arithmetic, theorem 4).
fn log_of_one_more(m: &Math, x: Value) -> Value {
    let b = &m.e.b;
    let one = m.c(1.0);
    let sum = m.add(one, x);
    let logarithm = log(m.e, sum, DType::F64);
    let rounded = m.sub(sum, one);
    let corrected = m.mul(logarithm, m.div(x, rounded));
    let is_zero = b.cmp(Cmp::FOeq, rounded, m.c(0.0));
    let near = m.select(is_zero, x, corrected);
    let is_large = b.cmp(Cmp::FOlt, m.c(1e18), x);
    m.select(is_large, logarithm, near)
}

/// log(x) + log(2) where the squares of an inverse function's argument no longer matter.
fn beyond(m: &Math, a: Value, near: Value) -> Value {
    let far = m.add(log(m.e, a, DType::F64), m.c(LN_2));
    let is_far = m.e.b.cmp(Cmp::FOlt, m.c(1e9), a);
    m.select(is_far, far, near)
}

/// log(1 + a + a^2 / (1 + sqrt(1 + a^2))) of a = |x|.
pub fn asinh(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    widely(e, x, d, |m, x| {
        let a = m.abs(x);
        let (one, square) = (m.c(1.0), m.mul(a, a));
        let divisor = m.add(one, m.sqrt(m.add(one, square)));
        let near = log_of_one_more(m, m.add(a, m.div(square, divisor)));
        m.copysign(beyond(m, a, near), x)
    })
}

/// log(1 + t + sqrt(t (t + 2))) of t = x - 1.
pub fn acosh(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    widely(e, x, d, |m, x| {
        let t = m.sub(x, m.c(1.0));
        let root = m.sqrt(m.mul(t, m.add(t, m.c(2.0))));
        let near = log_of_one_more(m, m.add(t, root));
        let defined = e.b.cmp(Cmp::FOle, m.c(1.0), x);
        m.select(defined, beyond(m, x, near), m.c(f64::NAN))
    })
}

/// log(1 + 2a / (1 - a)) / 2 of a = |x|.
pub fn atanh(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    widely(e, x, d, |m, x| {
        let a = m.abs(x);
        let ratio = m.div(m.add(a, a), m.sub(m.c(1.0), a));
        let double = log_of_one_more(m, ratio);
        m.copysign(m.mul(double, m.c(0.5)), x)
    })
}
