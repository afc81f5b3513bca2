//! Math functions as polynomials, branch-free here, for scalars and vectors alike,
//! so that objects import no math library.
//!
//! Error bounds, tested against the host's `f64` functions (`f32` results
//! relative to the true value; ulp = unit in the last place): see `BOUNDS`, also for those
//! of `angles`.
//! Overflow gives infinity, underflow gives zero or the nearest subnormal, NaN
//! stays NaN.

use crate::emit::Emitter;
use crate::raw::{Cmp, Conv, Op, Type, Value};
use ir::DType;

/// (function, element type, largest relative error): the contract of this file.
pub const BOUNDS: [(&str, DType, f64); 32] = [
    ("exp", DType::F32, 2.5e-7),
    ("exp", DType::F64, 1e-15),
    ("log", DType::F32, 2.5e-7),
    ("log", DType::F64, 1e-15),
    ("tanh", DType::F32, 4e-7),
    ("tanh", DType::F64, 2e-15),
    ("erf", DType::F32, 4e-7),
    ("erf", DType::F64, 2e-14),
    ("pow", DType::F32, 1.5e-7),
    ("pow", DType::F64, 2e-13),
    ("sin", DType::F32, 6.1e-8),
    ("sin", DType::F64, 6e-16),
    ("cos", DType::F32, 6.1e-8),
    ("cos", DType::F64, 6e-16),
    ("tan", DType::F32, 6.1e-8),
    ("tan", DType::F64, 1e-15),
    ("asin", DType::F32, 1.4e-7),
    ("asin", DType::F64, 1e-15),
    ("acos", DType::F32, 1.4e-7),
    ("acos", DType::F64, 1e-15),
    ("atan", DType::F32, 1.4e-7),
    ("atan", DType::F64, 4e-16),
    ("sinh", DType::F32, 6.1e-8),
    ("sinh", DType::F64, 4e-15),
    ("cosh", DType::F32, 6.1e-8),
    ("cosh", DType::F64, 4e-15),
    ("asinh", DType::F32, 6.1e-8),
    ("asinh", DType::F64, 3e-15),
    ("acosh", DType::F32, 6.1e-8),
    ("acosh", DType::F64, 3e-15),
    ("atanh", DType::F32, 6.1e-8),
    ("atanh", DType::F64, 6e-15),
];

/// One value and its type, with arithmetic that keeps both.
pub(crate) struct Math<'e, 'a> {
    pub(crate) e: &'e Emitter<'a>,
    t: Type,
    d: DType,
}

impl<'e, 'a> Math<'e, 'a> {
    pub(crate) fn new(e: &'e Emitter<'a>, x: Value, d: DType) -> Math<'e, 'a> {
        Math {
            e,
            t: e.b.type_of(x),
            d,
        }
    }

    pub(crate) fn c(&self, v: f64) -> Value {
        self.e.real(v, self.t, self.d)
    }

    pub(crate) fn add(&self, a: Value, b: Value) -> Value {
        self.e.b.op(Op::FAdd, a, b)
    }

    pub(crate) fn sub(&self, a: Value, b: Value) -> Value {
        self.e.b.op(Op::FSub, a, b)
    }

    pub(crate) fn mul(&self, a: Value, b: Value) -> Value {
        self.e.b.op(Op::FMul, a, b)
    }

    pub(crate) fn div(&self, a: Value, b: Value) -> Value {
        self.e.b.op(Op::FDiv, a, b)
    }

    pub(crate) fn select(&self, c: Value, a: Value, b: Value) -> Value {
        self.e.b.select(c, a, b)
    }

    pub(crate) fn abs(&self, x: Value) -> Value {
        self.e.b.intrinsic("llvm.fabs", &mut [self.t], &mut [x])
    }

    pub(crate) fn sqrt(&self, x: Value) -> Value {
        self.e.b.intrinsic("llvm.sqrt", &mut [self.t], &mut [x])
    }

    pub(crate) fn copysign(&self, magnitude: Value, sign: Value) -> Value {
        self.e
            .b
            .intrinsic("llvm.copysign", &mut [self.t], &mut [magnitude, sign])
    }

    /// The lesser of a number and a bound; NaN of NaN.
    pub(crate) fn at_most(&self, x: Value, hi: f64) -> Value {
        let hi = self.c(hi);
        self.select(self.e.b.cmp(Cmp::FOlt, hi, x), hi, x)
    }

    /// From -1 to 1 between these bounds.
    fn scaled(&self, x: Value, lo: f64, hi: f64) -> Value {
        let by = self.mul(self.c(2.0 / (hi - lo)), x);
        self.sub(by, self.c(2.0 * lo / (hi - lo) + 1.0))
    }

    /// e^x where that is a normal number: 2^n e^r with |r| <= ln(2)/2, and e^r by a polynomial.
    fn power(&self, x: Value) -> Value {
        let m = self;
        // Beside 1.5 * 2^significand a number is rounded to a whole one, which the low bits are.
        let shift = m.c(1.5 * (1i64 << m.significand_bits()) as f64);
        let shifted = m.add(m.mul(x, m.c(std::f64::consts::LOG2_E)), shift);
        let n = m.sub(shifted, shift);
        let (head, tail) = ln2(m.d);
        let r = m.sub(x, m.mul(n, m.c(head)));
        let r = m.sub(r, m.mul(n, m.c(tail)));
        let p = match m.d {
            DType::F32 => m.poly(r, &EXP_F32),
            _ => {
                let mut taylor = vec![1.0];
                for k in 1..=13 {
                    taylor.push(taylor[k - 1] / k as f64);
                }
                m.poly(r, &taylor)
            }
        };
        let exponent = m.iop(Op::Shl, m.bits(shifted), m.int(m.significand_bits()));
        m.with_bits(m.iop(Op::Add, m.bits(p), exponent))
    }

    /// Horner's scheme; coefficients lowest degree first.
    pub(crate) fn poly(&self, x: Value, coefficients: &[f64]) -> Value {
        let (last, rest) = coefficients
            .split_last()
            .expect("a polynomial has coefficients");
        rest.iter().rev().fold(self.c(*last), |acc, c| {
            self.add(self.mul(acc, x), self.c(*c))
        })
    }

    pub(crate) fn int_type(&self) -> Type {
        let lanes = self.e.b.lanes_of_type(self.t);
        self.e
            .b
            .vector_type(self.e.b.int_type(self.d.bits() as u32), lanes)
    }

    pub(crate) fn int(&self, v: i64) -> Value {
        let scalar = self
            .e
            .b
            .const_int(self.e.b.int_type(self.d.bits() as u32), v);
        self.e.constant_like(scalar, self.t)
    }

    pub(crate) fn iop(&self, op: Op, a: Value, b: Value) -> Value {
        self.e.b.op(op, a, b)
    }

    pub(crate) fn bits(&self, x: Value) -> Value {
        self.e.b.convert(Conv::Bit, x, self.int_type())
    }

    pub(crate) fn with_bits(&self, x: Value) -> Value {
        self.e.b.convert(Conv::Bit, x, self.t)
    }

    /// Bits of the significand, without the implicit one.
    pub(crate) fn significand_bits(&self) -> i64 {
        if self.d == DType::F32 { 23 } else { 52 }
    }
}

/// To the nearest integer, ties to even.
pub fn round(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    let m = Math::new(e, x, d);
    if e.target.isa.has_rounding() {
        return e.b.intrinsic("llvm.roundeven", &mut [m.t], &mut [x]);
    }
    // Without a rounding instruction: adding 2^significand drops the fraction.
    let big = m.c((1i64 << m.significand_bits()) as f64);
    let a = m.abs(x);
    let rounded = m.copysign(m.sub(m.add(a, big), big), x);
    let has_fraction = e.b.cmp(Cmp::FOlt, a, big);
    m.select(has_fraction, rounded, x)
}

pub fn floor(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    let m = Math::new(e, x, d);
    if e.target.isa.has_rounding() {
        return e.b.intrinsic("llvm.floor", &mut [m.t], &mut [x]);
    }
    let r = round(e, x, d);
    let above = e.b.cmp(Cmp::FOgt, r, x);
    m.copysign(m.select(above, m.sub(r, m.c(1.0)), r), x)
}

pub fn ceil(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    let m = Math::new(e, x, d);
    if e.target.isa.has_rounding() {
        return e.b.intrinsic("llvm.ceil", &mut [m.t], &mut [x]);
    }
    let r = round(e, x, d);
    let below = e.b.cmp(Cmp::FOlt, r, x);
    m.copysign(m.select(below, m.add(r, m.c(1.0)), r), x)
}

/// ln 2 as a short head, exact times any exponent, and a tail.
fn ln2(d: DType) -> (f64, f64) {
    match d {
        DType::F32 => (0.693_359_375, -2.121_944_400_546_905_8e-4),
        _ => (6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10),
    }
}

/// Relative error 2e-9 on |r| <= ln(2)/2 for an exact 1 at 0: least squares with weights
/// that level the error.
const EXP_F32: [f64; 7] = [
    1.0,
    1.0000000323527258,
    0.49999994174138646,
    0.16666430336430926,
    0.04166800743048281,
    0.008374236011590284,
    0.0013843559497883065,
];

/// e^x ([`Math::power`]); zero below the normal range.
pub fn exp(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    let m = Math::new(e, x, d);
    // The numbers between which the result is normal: the last one's is below infinity by
    // more than the error.
    let (lo, hi) = match d {
        DType::F32 => (-87.336_54, 88.722_83),
        _ => (-708.396_418_532_264_1, 709.782_712_893_383_9),
    };
    let scaled = m.power(x);
    let below = e.b.cmp(Cmp::FOlt, x, m.c(lo));
    let scaled = m.select(below, m.c(0.0), scaled);
    let in_range = e.b.cmp(Cmp::FOle, x, m.c(hi));
    // Infinity, and NaN of NaN.
    m.select(in_range, scaled, m.add(x, m.c(f64::INFINITY)))
}

/// log x = n ln 2 + 2 atanh(s), s = (f - 1) / (f + 1), f in [sqrt(1/2), sqrt(2)).
pub fn log(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    let m = Math::new(e, x, d);
    let (min_normal, scale_bits, terms) = if d == DType::F32 {
        (f64::from(f32::MIN_POSITIVE), 25, 6)
    } else {
        (f64::MIN_POSITIVE, 54, 12)
    };
    let subnormal = e.b.cmp(Cmp::FOlt, x, m.c(min_normal));
    let scaled = m.select(subnormal, m.mul(x, m.c((1i64 << scale_bits) as f64)), x);
    let adjust = m.select(subnormal, m.int(scale_bits), m.int(0));
    let sb = m.significand_bits();
    let bits = m.bits(scaled);
    // The exponent relative to sqrt(1/2), so that f is centred on 1.
    let root_half = if d == DType::F32 {
        i64::from(std::f32::consts::FRAC_1_SQRT_2.to_bits())
    } else {
        std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64
    };
    let n = m.iop(Op::AShr, m.iop(Op::Sub, bits, m.int(root_half)), m.int(sb));
    let f = m.with_bits(m.iop(Op::Sub, bits, m.iop(Op::Shl, n, m.int(sb))));
    let n = e.b.convert(Conv::SiToFp, m.iop(Op::Sub, n, adjust), m.t);
    let f1 = m.sub(f, m.c(1.0));
    let s = m.div(f1, m.add(f, m.c(1.0)));
    let series: Vec<f64> = (1..terms).map(|k| 2.0 / (2 * k + 1) as f64).collect();
    let z = m.mul(s, s);
    // 2s = f1 - s*f1 exactly, which keeps the leading term as accurate as f1.
    let tail = m.mul(s, m.sub(m.mul(z, m.poly(z, &series)), f1));
    let (head, low) = ln2(d);
    let y = m.add(m.mul(n, m.c(low)), tail);
    let y = m.add(m.mul(n, m.c(head)), m.add(y, f1));
    let zero = e.b.cmp(Cmp::FOeq, x, m.c(0.0));
    let y = m.select(zero, m.c(f64::NEG_INFINITY), y);
    let inf = m.c(f64::INFINITY);
    let infinite = e.b.cmp(Cmp::FOeq, x, inf);
    let y = m.select(infinite, inf, y);
    let defined = e.b.cmp(Cmp::FOle, m.c(0.0), x);
    m.select(defined, y, m.c(f64::NAN))
}

/// Below 0.625 Lambert's continued fraction, 1 - 2 / (e^2x + 1) above; of `f32` one fraction.
pub fn tanh(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    if d == DType::F32 {
        return fraction(e, x, &TANH_F32);
    }
    let m = Math::new(e, x, d);
    let z = m.mul(x, x);
    let numerator = m.poly(z, &[34_459_425.0, 4_729_725.0, 135_135.0, 990.0, 1.0]);
    let all = [34_459_425.0, 16_216_200.0, 945_945.0, 13_860.0, 45.0];
    let small = m.mul(x, m.div(numerator, m.poly(z, &all)));
    let a = m.abs(x);
    let doubled = exp(e, m.add(a, a), d);
    let large = m.sub(m.c(1.0), m.div(m.c(2.0), m.add(doubled, m.c(1.0))));
    let is_small = e.b.cmp(Cmp::FOlt, a, m.c(0.625));
    m.select(is_small, small, m.copysign(large, x))
}

/// An odd function of `f32` between -1 and 1: x P(x^2) / Q(x^2) up to `last`, 1 from there.
struct Fraction {
    last: f64,
    numerator: &'static [f64],
    denominator: &'static [f64],
}

/// Coefficients are positive, so that no digits cancel; the result rounds beyond 1 nowhere.
fn fraction(e: &Emitter<'_>, x: Value, f: &Fraction) -> Value {
    let m = Math::new(e, x, DType::F32);
    let a = m.at_most(m.abs(x), f.last);
    let z = m.mul(a, a);
    let numerator = m.mul(a, m.poly(z, f.numerator));
    let denominator = m.poly(z, f.denominator);
    let quotient = e.b.quotient_of_normals(numerator, denominator);
    m.copysign(m.at_most(quotient, 1.0), x)
}

// Printed by erf_coefficients.py.
const TANH_F32: Fraction = Fraction {
    last: 9.02,
    numerator: &[
        0.9999999790419326,
        0.13379736287386745,
        0.003494055841014568,
        2.0583810697039152e-5,
        1.3319488965178413e-8,
    ],
    denominator: &[
        1.0,
        0.46713051549191476,
        0.02587115548485487,
        0.0003283126750147818,
        7.762198483172152e-7,
    ],
};
const ERF_F32: Fraction = Fraction {
    last: 3.92,
    numerator: &[
        1.128379146164818,
        0.19040686109971278,
        0.05274868305326396,
        0.0037656078045510597,
        0.0002848780325565572,
        2.0500258328213267e-6,
    ],
    denominator: &[
        1.0,
        0.5020764286204517,
        0.1141091905783948,
        0.014969203047719539,
        0.0011625248590375733,
        3.80908319299957e-5,
    ],
};
/// Of variables scaled to [-1, 1], as those below.
const ERF_SMALL: [f64; 15] = [
    0.9654687386698676,
    -0.14053608902271675,
    0.019852496688965618,
    -0.0022854855611633513,
    0.00021751715639282596,
    -1.7537169244752346e-5,
    1.223379967065415e-6,
    -7.511649945020812e-8,
    4.125898334095268e-9,
    -2.0196277243182224e-10,
    -8.894958843560132e-12,
    -1.796252036001533e-12,
    1.544625168511023e-11,
    4.850638409455617e-13,
    -5.032537349810203e-12,
];
const ERF_TAIL_F64: [f64; 21] = [
    0.22142954022993155,
    0.16189356804102703,
    0.03856057042523798,
    0.005588816281711603,
    0.00019713917568900207,
    -8.079220176139226e-5,
    -7.340490059320234e-6,
    1.9795400491642987e-6,
    1.6330929814252139e-7,
    -6.995273026106534e-8,
    1.4802758339680667e-10,
    2.3555819088527355e-9,
    -1.9948552839182995e-9,
    3.558514143992408e-10,
    2.5134884104608516e-9,
    -4.059830888674337e-10,
    -2.165980011666822e-9,
    2.090162457199434e-10,
    1.0387139560142295e-9,
    -4.512890547112714e-11,
    -2.1132022491022756e-10,
];

/// x * P(x^2) up to 1; 1 from where erfc vanishes; 1 - e^(-x^2) Q(1 / (1 + x/2)) between. Of `f32` one fraction.
pub fn erf(e: &Emitter<'_>, x: Value, d: DType) -> Value {
    if d == DType::F32 {
        return fraction(e, x, &ERF_F32);
    }
    let m = Math::new(e, x, d);
    let last = 6.0;
    let a = m.at_most(m.abs(x), last);
    let z = m.mul(x, x);
    let u = m.sub(m.add(z, z), m.c(1.0));
    let near = m.mul(x, m.poly(u, &ERF_SMALL));
    let t = m.div(m.c(1.0), m.add(m.c(1.0), m.mul(m.c(0.5), a)));
    let u = m.scaled(t, 1.0 / (1.0 + last / 2.0), 1.0 / 1.5);
    let complement = m.mul(m.power(e.b.fneg(m.mul(a, a))), m.poly(u, &ERF_TAIL_F64));
    let far = m.copysign(m.sub(m.c(1.0), complement), x);
    // NaN is near.
    let is_far = e.b.cmp(Cmp::FOle, m.c(1.0), a);
    m.select(is_far, far, near)
}

/// x^y; `f32` goes through `f64`. A negative finite base needs a whole exponent.
pub fn pow(e: &Emitter<'_>, x: Value, y: Value, d: DType) -> Value {
    if d == DType::F32 {
        let lanes = e.b.lanes_of(x);
        let wide = e.b.vector_type(e.b.f64_type(), lanes);
        let (x64, y64) = (
            e.b.convert(Conv::FpExt, x, wide),
            e.b.convert(Conv::FpExt, y, wide),
        );
        let r = pow(e, x64, y64, DType::F64);
        return e.b.convert(Conv::FpTrunc, r, e.b.type_of(x));
    }
    let m = Math::new(e, x, d);
    let (zero, one) = (m.c(0.0), m.c(1.0));
    let magnitude = exp(e, m.mul(y, log(e, m.abs(x), d)), d);
    let whole = e.b.cmp(Cmp::FOeq, floor(e, y, d), y);
    let half = m.mul(y, m.c(0.5));
    let odd = e.b.cmp(Cmp::FUne, floor(e, half, d), half);
    let odd = e.b.op(Op::And, whole, odd);
    // Also of a zero, whose sign no comparison tells.
    let power = m.select(odd, m.copysign(magnitude, x), magnitude);
    let finite = e.b.cmp(Cmp::FOlt, m.c(f64::NEG_INFINITY), x);
    let negative = e.b.op(Op::And, e.b.cmp(Cmp::FOlt, x, zero), finite);
    let no_power = e.b.op(Op::And, negative, e.b.not(whole));
    let r = m.select(no_power, m.c(f64::NAN), power);
    let y_zero = e.b.cmp(Cmp::FOeq, y, zero);
    let x_one = e.b.cmp(Cmp::FOeq, x, one);
    let unit = e.b.cmp(Cmp::FOeq, m.abs(x), one);
    let endless = e.b.cmp(Cmp::FOeq, m.abs(y), m.c(f64::INFINITY));
    let one_power = e.b.op(Op::Or, x_one, e.b.op(Op::And, unit, endless));
    m.select(e.b.op(Op::Or, y_zero, one_power), one, r)
}
