//! Angles of any size less the nearest multiple of pi/2, one lane at a time.
//!
//! An angle is an integer of 53 bits times a power of two. Of the product of the integer and
//! 2/pi only the part modulo 4 matters, so those bits of 2/pi suffice that weigh 4 at most and
//! reach far enough behind the point (M. Payne and R. Hanek, Radian reduction for trigonometric
//! functions, 1983): 192 of them leave 64 bits of the angle that comes nearest to a multiple.

use crate::emit::Emitter;
use crate::math::Math;
use crate::raw::{Cmp, Conv, Op, Type, Value};
use ir::DType;
use std::f64::consts::FRAC_PI_2;

/// 64 zeros and then the binary digits of 2/pi behind the point.
const TWO_OVER_PI: [u64; 20] = [
    0,
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_6bab,
];
/// What pi/2 is more than its `f64`.
const HALF_PI_REST: f64 = 6.123_233_995_736_766e-17;

/// The angle less the nearest multiple of pi/2, and which multiple it is, modulo 4, of each lane
/// that is 2^20 at least. Infinities give NaN.
pub fn reduced(m: &Math, x: Value) -> (Value, Value) {
    let b = &m.e.b;
    let bits = m.bits(m.abs(x));
    let of_lanes = |part: Part, like: Value| {
        let (f, t) = function(m.e, part);
        match b.lanes_of(bits) {
            0 => b.call(t, f, &mut [bits]),
            lanes => (0..lanes).fold(b.undef(b.type_of(like)), |all, lane| {
                let one = b.call(t, f, &mut [b.extract(bits, lane)]);
                b.insert(all, one, lane)
            }),
        }
    };
    let (r, n) = (of_lanes(Part::Rest, x), of_lanes(Part::Quarter, bits));
    let is_negative = b.cmp(Cmp::FOlt, x, m.c(0.0));
    let r = m.select(is_negative, b.fneg(r), r);
    let n = m.select(is_negative, m.iop(Op::Sub, m.int(0), n), n);
    // 0, or NaN.
    let nothing = m.sub(x, x);
    (m.add(r, nothing), n)
}

/// What a function returns of an angle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Rest,
    Quarter,
}

/// A function of the bits of a positive angle, and its type; written once a module.
fn function(e: &Emitter<'_>, part: Part) -> (Value, Type) {
    let b = &e.b;
    let word = b.int_type(64);
    let (name, result) = match part {
        Part::Rest => ("angle.rest", b.f64_type()),
        Part::Quarter => ("angle.quarter", word),
    };
    let t = b.function_type(result, &mut [word]);
    if let Some(f) = b.function(name) {
        return (f, t);
    }
    let f = b.add_function(name, t, true);
    // Cold: registers are kept for the common case, where this is not called.
    for attribute in ["cold", "noinline", "nounwind"] {
        b.add_attribute(f, u32::MAX, attribute);
    }
    let here = b.current_block();
    b.position_at_end(b.append_block(f, "entry"));
    let turns = turns(e, b.param(f, 0));
    b.ret(match part {
        Part::Quarter => quarter(e, turns),
        Part::Rest => rest(e, turns),
    });
    b.position_at_end(here);
    (f, t)
}

/// The angle in quarter turns modulo 4, times 2^126, as two words, the higher one first.
fn turns(e: &Emitter<'_>, bits: Value) -> [Value; 2] {
    let b = &e.b;
    let (word, wide) = (b.int_type(64), b.int_type(128));
    let int = |v: i64| b.const_int(word, v);
    let fraction = b.op(Op::And, bits, int((1 << 52) - 1));
    let integer = b.op(Op::Or, fraction, int(1 << 52));
    let exponent = b.op(Op::LShr, bits, int(52));
    // The angle is integer 2^(exponent - 1075): the first digit that matters weighs
    // 2^(1076 - exponent), and digit 64 weighs 1/2.
    let first = b.op(Op::Sub, exponent, int(1013));
    let (at, shift) = (b.op(Op::LShr, first, int(6)), b.op(Op::And, first, int(63)));
    let mut table = TWO_OVER_PI.map(|w| int(w.cast_signed()));
    let table = b.const_vector(&mut table);
    let digits = [0, 1, 2, 3].map(|i| b.extract_at(table, b.op(Op::Add, at, int(i))));
    let [high, middle, low] = [0, 1, 2].map(|i| funnel(e, digits[i], digits[i + 1], shift));
    let product = |digits: Value| {
        let [x, y] = [integer, digits].map(|v| b.convert(Conv::ZExt, v, wide));
        b.op(Op::Mul, x, y)
    };
    let upper = |v: Value| b.op(Op::LShr, v, b.const_int(wide, 64));
    let below = b.op(Op::Add, product(middle), upper(product(low)));
    let carried = b.convert(Conv::Trunc, upper(below), word);
    let above = b.op(Op::Add, b.op(Op::Mul, integer, high), carried);
    [above, b.convert(Conv::Trunc, below, word)]
}

/// The upper word of two that are shifted left.
fn funnel(e: &Emitter<'_>, high: Value, low: Value, by: Value) -> Value {
    let word = e.b.int_type(64);
    e.b.intrinsic("llvm.fshl", &mut [word], &mut [high, low, by])
}

/// The nearest number of quarter turns.
fn quarter(e: &Emitter<'_>, [above, _]: [Value; 2]) -> Value {
    let int = |v: i64| e.b.const_int(e.b.int_type(64), v);
    let rounded = e.b.op(Op::Add, above, int(1 << 61));
    e.b.op(Op::LShr, rounded, int(62))
}

/// The angle less the nearest quarter turns.
fn rest(e: &Emitter<'_>, [above, below]: [Value; 2]) -> Value {
    let b = &e.b;
    let m = Math::new(e, b.const_real(b.f64_type(), 0.0), DType::F64);
    let int = |v: i64| m.int(v);
    // Without the whole turns this is signed, from -1/2 to 1/2.
    let high = funnel(e, above, below, int(2));
    let low = b.op(Op::Shl, below, int(2));
    let sign = b.op(Op::AShr, high, int(63));
    let [high, low] = [high, low].map(|v| b.op(Op::Xor, v, sign));
    let no = b.const_int(b.int_type(1), 0);
    let word = b.int_type(64);
    let zeros = b.intrinsic("llvm.ctlz", &mut [word], &mut [high, no]);
    let digits = funnel(e, high, low, zeros);
    // Two numbers that f64 holds.
    let part = |digits: Value, weight: i64| {
        let exponent = b.op(Op::Sub, int(1023 + weight), zeros);
        let scale = m.with_bits(b.op(Op::Shl, exponent, int(52)));
        m.mul(b.convert(Conv::SiToFp, digits, b.f64_type()), scale)
    };
    let head = part(b.op(Op::LShr, digits, int(11)), -53);
    let tail = part(b.op(Op::And, digits, int((1 << 11) - 1)), -64);
    let correction = m.add(m.mul(head, m.c(HALF_PI_REST)), m.mul(tail, m.c(FRAC_PI_2)));
    let r = m.add(m.mul(head, m.c(FRAC_PI_2)), correction);
    let is_negative = b.cmp(Cmp::Ne, sign, int(0));
    m.select(is_negative, b.fneg(r), r)
}
