//! Integer division, power and conversion, made of instructions that never trap.
//!
//! Lanes that a mask switches off hold zeros, and the operands come from the
//! user: a divisor of zero must not end the process. The quotient by zero is
//! the dividend, the remainder zero, the power with a negative exponent that
//! of the reciprocal, rounded towards zero (zero for a base of zero).

use crate::emit::Emitter;
use crate::raw::{Cmp, Conv, Op, Value};
use crate::value::Scope;
use ir::{DType, Expr, ExprKind};

/// `x / y` rounded towards zero, wrapping.
pub fn divide(e: &Emitter, x: Value, y: Value, d: DType) -> Value {
    Quotient::of(e, x, y, d).wrapped
}

/// A quotient rounded towards zero. Folds away for constant divisors.
struct Quotient {
    /// By `y`; the smallest number over minus one wraps.
    wrapped: Value,
    /// What was divided by: never zero or minus one, so that there is no trap.
    divisor: Value,
    /// By the divisor, if that was a division of floats.
    in_floats: Option<Value>,
}

impl Quotient {
    fn of(e: &Emitter, x: Value, y: Value, d: DType) -> Quotient {
        let t = e.b.type_of(x);
        let constant = |v| e.constant_like(e.b.const_int(e.b.int_type(d.bits() as u32), v), t);
        let (zero, one) = (e.b.zero(t), constant(1));
        let is_zero = e.b.cmp(Cmp::Eq, y, zero);
        let is_minus_one = e.b.cmp(Cmp::Eq, y, constant(-1));
        let (unsafe_divisor, op) = match d.is_signed() {
            true => (e.b.op(Op::Or, is_zero, is_minus_one), Op::SDiv),
            false => (is_zero, Op::UDiv),
        };
        let divisor = e.b.select(unsafe_divisor, one, y);
        let in_floats = in_floats(e, x, divisor, d);
        let q = in_floats.unwrap_or_else(|| e.b.op(op, x, divisor));
        let wrapped = match d.is_signed() {
            true => e.b.select(is_minus_one, e.b.op(Op::Sub, zero, x), q),
            false => q,
        };
        Quotient {
            wrapped,
            divisor,
            in_floats,
        }
    }
}

/// `x / y` of vectors of integers of up to 32 bits: processors divide vectors of floats alone.
/// Constant divisors are left to LLVM, which multiplies by reciprocals.
///
/// Floats of more bits than the integers' b hold both. The quotient is below 2^b / y, so that it is rounded by less
/// than 1 / y; it is a whole number, or at least 1 / y from one: its whole part is the integers' own.
fn in_floats(e: &Emitter, x: Value, y: Value, d: DType) -> Option<Value> {
    let lanes = e.b.lanes_of(x);
    let float = match d.bits() {
        8 | 16 => DType::F32,
        32 => DType::F64,
        _ => return None,
    };
    if lanes == 0 || e.b.is_constant(y) {
        return None;
    }
    let t = e.b.vector_type(e.value_type(float), lanes);
    let (to, back) = match d.is_signed() {
        true => (Conv::SiToFp, Conv::FpToSi),
        false => (Conv::UiToFp, Conv::FpToUi),
    };
    let [above, below] = [x, y].map(|v| e.b.convert(to, v, t));
    let q = e.b.op(Op::FDiv, above, below);
    Some(e.b.convert(back, q, e.b.type_of(x)))
}

/// Quotient and remainder rounded towards minus infinity. LLVM folds the
/// corrections away for constant powers of two.
pub fn divide_floor(e: &Emitter, x: Value, y: Value, d: DType) -> (Value, Value) {
    let Quotient {
        wrapped: q,
        divisor,
        in_floats,
    } = Quotient::of(e, x, y, d);
    let r = match in_floats {
        Some(q) => e.b.op(Op::Sub, x, e.b.op(Op::Mul, q, divisor)),
        None if d.is_signed() => e.b.op(Op::SRem, x, divisor),
        None => e.b.op(Op::URem, x, divisor),
    };
    if !d.is_signed() {
        return (q, r);
    }
    let zero = e.b.zero(e.b.type_of(x));
    let inexact = e.b.cmp(Cmp::Ne, r, zero);
    let opposite = e.b.op(Op::Xor, r, divisor);
    let opposite = e.b.cmp(Cmp::Slt, opposite, zero);
    let fix = e.b.op(Op::And, inexact, opposite);
    let one = e.b.convert(Conv::ZExt, fix, e.b.type_of(x));
    let add = e.b.select(fix, divisor, zero);
    (e.b.op(Op::Sub, q, one), e.b.op(Op::Add, r, add))
}

/// A float rounded towards zero; what the type does not hold is its nearest number, and NaN
/// is 0. LLVM's own conversion goes element by element through vectors.
pub fn saturated(e: &Emitter, x: Value, from: DType, to: DType) -> Value {
    if from == DType::F32 && to.bits() < 32 {
        return clipped(e, x, from, to);
    }
    let t = e.b.type_of(x);
    let bits = to.bits() as u32;
    let element = e.b.int_type(bits);
    let whole = e.b.vector_type(element, e.b.lanes_of(x));
    let constant = |v: i64| e.constant_like(e.b.const_int(element, v), whole);
    let magnitude = if to.is_signed() { bits - 1 } else { bits };
    // The first number above the type's, and its least one: both are floats.
    let above = e.real(2f64.powi(magnitude as i32), t, from);
    let (least, most) = match to.is_signed() {
        true => (
            -2f64.powi(magnitude as i32),
            constant(i64::MAX >> (64 - bits)),
        ),
        false => (0.0, constant(-1)),
    };
    let least_number = match to.is_signed() {
        true => constant(i64::MIN >> (64 - bits)),
        false => constant(0),
    };
    let conversion = if to.is_signed() {
        Conv::FpToSi
    } else {
        Conv::FpToUi
    };
    // Where a number does not fit, the conversion's result is not used.
    let inside = e.b.convert(conversion, x, whole);
    let fits_above = e.b.cmp(Cmp::FOlt, x, above);
    let found = e.b.select(fits_above, inside, most);
    let below = e.b.cmp(Cmp::FOlt, x, e.real(least, t, from));
    let found = e.b.select(below, least_number, found);
    let is_nan = e.b.cmp(Cmp::FUno, x, x);
    e.b.select(is_nan, constant(0), found)
}

/// The same where f32 has the bounds of the type: it is clipped before it is converted, so that no mask goes through narrow
/// vectors.
fn clipped(e: &Emitter, x: Value, from: DType, to: DType) -> Value {
    let (t, lanes) = (e.b.type_of(x), e.b.lanes_of(x));
    let magnitude = to.bits() as i32 - i32::from(to.is_signed());
    let most = 2f64.powi(magnitude) - 1.0;
    let least = if to.is_signed() { -most - 1.0 } else { 0.0 };
    let (least, most) = (e.real(least, t, from), e.real(most, t, from));
    // A NaN is the bound, which is 0 for unsigned types.
    let above = e.b.select(e.b.cmp(Cmp::FOgt, x, least), x, least);
    let inside = e.b.select(e.b.cmp(Cmp::FOlt, above, most), above, most);
    let integer = |bits: u32| e.b.vector_type(e.b.int_type(bits), lanes);
    let mut whole = e.b.convert(Conv::FpToSi, inside, integer(32));
    if to.is_signed() {
        let is_number = e.b.not(e.b.cmp(Cmp::FUno, x, x));
        whole = e.b.select(is_number, whole, e.b.zero(integer(32)));
    }
    e.b.convert(Conv::Trunc, whole, integer(to.bits() as u32))
}

/// The low bits of the i64 that f32 vectors become, as vectors of a narrower integer and without an i64: these take twice
/// the registers, and few targets convert to them. `None` for other casts.
pub fn low_bits(e: &mut Emitter, to: DType, whole: &Expr, s: &mut Scope) -> Option<Value> {
    let ExprKind::Cast(DType::I64, x) = whole.kind() else {
        return None;
    };
    if to.bits() > 32 || !(to.is_int() || to.is_stored_only()) {
        return None;
    }
    let x = e.expr(x, s);
    let vector = x.dtype == DType::F32 && e.b.lanes_of(x.value) > 0;
    vector.then(|| wrapped(e, x.value, to))
}

fn wrapped(e: &Emitter, x: Value, to: DType) -> Value {
    let (t, lanes) = (e.b.type_of(x), e.b.lanes_of(x));
    let real = |v: f64| e.real(v, t, DType::F32);
    let [integers, narrow] =
        [32, to.bits()].map(|b| e.b.vector_type(e.b.int_type(b as u32), lanes));
    let constant = |v: i64| e.constant_like(e.b.const_int(e.b.int_type(32), v), integers);
    // A float of 24 bits that is larger ends in zeros.
    let (most, inside) = match to.bits() {
        8 => (31, e.b.convert(Conv::FpToSi, x, integers)),
        bits => {
            let high = e.b.op(Op::FMul, x, real(2f64.powi(-24)));
            let high = e.b.convert(Conv::FpToSi, high, integers);
            let multiple = e.b.convert(Conv::SiToFp, high, t);
            let multiple = e.b.op(Op::FMul, multiple, real(2f64.powi(24)));
            // Exact: it has the sign of `x`, and no higher bits.
            let rest = e.b.op(Op::FSub, x, multiple);
            let low = e.b.convert(Conv::FpToSi, rest, integers);
            let high = || e.b.op(Op::Shl, high, constant(24));
            let whole = if bits > 24 {
                e.b.op(Op::Add, high(), low)
            } else {
                low
            };
            (55, whole)
        }
    };
    // Where a number does not fit, the conversions' results are not used.
    let magnitude = e.b.intrinsic("llvm.fabs", &mut [t], &mut [x]);
    let fits = e.b.cmp(Cmp::FOlt, magnitude, real(2f64.powi(most)));
    let above = e.b.cmp(Cmp::FOle, real(2f64.powi(63)), x);
    let beyond = e.b.select(above, constant(-1), constant(0));
    let found = e.b.select(fits, inside, beyond);
    match to.bits() {
        32 => found,
        _ => e.b.convert(Conv::Trunc, found, narrow),
    }
}

/// `x` to the power of `y`, wrapping: squares and products in a loop that ends
/// with the highest bit of any lane's exponent.
pub fn power(e: &mut Emitter, x: Value, y: Value, d: DType) -> Value {
    let t = e.b.type_of(x);
    let constant =
        |e: &Emitter, v| e.constant_like(e.b.const_int(e.b.int_type(d.bits() as u32), v), t);
    let (zero, one) = (e.b.zero(t), constant(e, 1));
    let is_negative = d.is_signed().then(|| e.b.cmp(Cmp::Slt, y, zero));
    let exponent = is_negative.map_or(y, |n| e.b.select(n, zero, y));

    let before = e.b.current_block();
    let (head, body, end) = (
        e.new_block("power"),
        e.new_block("square"),
        e.new_block("powered"),
    );
    e.b.branch(head);
    e.b.position_at_end(head);
    let [rest, square, product] = [exponent, x, one].map(|start| {
        let phi = e.b.phi(t);
        e.b.add_incoming(phi, start, before);
        phi
    });
    let any = match e.b.lanes_of(rest) {
        0 => rest,
        _ => {
            e.b.intrinsic("llvm.vector.reduce.or", &mut [t], &mut [rest])
        }
    };
    let more = e.b.cmp(Cmp::Ne, any, e.b.zero(e.b.type_of(any)));
    e.b.branch_if(more, body, end);

    e.b.position_at_end(body);
    let low = e.b.op(Op::And, rest, one);
    let is_odd = e.b.cmp(Cmp::Ne, low, zero);
    let multiplied = e.b.op(Op::Mul, product, square);
    let next = [
        (rest, e.b.op(Op::LShr, rest, one)),
        (square, e.b.op(Op::Mul, square, square)),
        (product, e.b.select(is_odd, multiplied, product)),
    ];
    for (phi, value) in next {
        e.b.add_incoming(phi, value, body);
    }
    e.b.branch(head);

    e.b.position_at_end(end);
    let Some(is_negative) = is_negative else {
        return product;
    };
    // The reciprocal of 1 is 1, of -1 is -1, and of others rounds to zero.
    let minus_one = constant(e, -1);
    let low = e.b.op(Op::And, y, one);
    let is_even = e.b.cmp(Cmp::Eq, low, zero);
    let alternating = e.b.select(is_even, one, minus_one);
    let is_minus_one = e.b.cmp(Cmp::Eq, x, minus_one);
    let reciprocal = e.b.select(is_minus_one, alternating, zero);
    let is_one = e.b.cmp(Cmp::Eq, x, one);
    let reciprocal = e.b.select(is_one, one, reciprocal);
    e.b.select(is_negative, reciprocal, product)
}

/// `x` shifted by `y` bits. A shift by less than 0, or by the width or more, moves all bits
/// out, where LLVM's has no value.
pub fn shift(e: &Emitter, x: Value, y: Value, d: DType, left: bool) -> Value {
    let t = e.b.type_of(x);
    let constant = |v: i64| e.constant_like(e.b.const_int(e.b.int_type(d.bits() as u32), v), t);
    let last = constant(d.bits() as i64 - 1);
    // Negative counts are large unsigned ones.
    let within = e.b.cmp(Cmp::Ule, y, last);
    let count = e.b.select(within, y, last);
    if !left && d.is_signed() {
        return e.b.op(Op::AShr, x, count);
    }
    let op = if left { Op::Shl } else { Op::LShr };
    e.b.select(within, e.b.op(op, x, count), e.b.zero(t))
}
