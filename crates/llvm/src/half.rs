//! Half precision: f16 and bf16.
//!
//! A value of these types is its 16 bits, in registers as in memory. Arithmetic widens to
//! f32, which holds every value of both, and rounds the result once. So loads, stores and
//! moves cost what they cost for any 16-bit element, and a chain that is computed in f32
//! is converted at its ends only.
//!
//! Promises the interpreter's values: rounding to nearest, ties to even, overflow to
//! infinity, subnormals kept, NaN stays NaN. Where the target converts f16 itself, LLVM's
//! conversions become these instructions; elsewhere they would become calls of a library,
//! so bits are computed instead. bf16 is the upper half of f32, which takes few
//! instructions; those that processors have flush subnormals.

use crate::emit::Emitter;
use crate::raw::{Cmp, Conv, Op, Type, Value};
use crate::value::Typed;
use ir::{BinaryOp, DType, UnaryOp};

/// Bits of a f32 whose exponent is this power of two.
const fn power_bits(exponent: i64) -> i64 {
    (exponent + 127) << 23
}

/// Bits of a f32 below the last place of f16 and of bf16.
const F16_DROPPED: i64 = 13;
const BF16_DROPPED: i64 = 16;
const F32_INFINITY: i64 = 0x7f80_0000;
const F32_SIGN: i64 = 0x8000_0000;

pub fn is_half(d: DType) -> bool {
    matches!(d, DType::F16 | DType::BF16)
}

/// 32-bit integers in the lanes of a value, with arithmetic on them.
struct Words<'e, 'a> {
    e: &'e Emitter<'a>,
    lanes: u32,
}

impl Words<'_, '_> {
    fn of_bits(&self, bits: u32) -> Type {
        self.e.b.vector_type(self.e.b.int_type(bits), self.lanes)
    }

    fn floats(&self) -> Type {
        self.e.b.vector_type(self.e.b.f32_type(), self.lanes)
    }

    fn c(&self, v: i64) -> Value {
        let scalar = self.e.b.const_int(self.e.b.int_type(32), v);
        self.e.constant_like(scalar, self.of_bits(32))
    }

    fn op(&self, op: Op, a: Value, by: i64) -> Value {
        self.e.b.op(op, a, self.c(by))
    }

    fn select(&self, c: Value, a: Value, b: Value) -> Value {
        self.e.b.select(c, a, b)
    }

    fn below(&self, a: Value, bound: i64) -> Value {
        self.e.b.cmp(Cmp::Ult, a, self.c(bound))
    }

    fn as_float(&self, v: Value) -> Value {
        self.e.b.convert(Conv::Bit, v, self.floats())
    }

    fn as_words(&self, v: Value) -> Value {
        self.e.b.convert(Conv::Bit, v, self.of_bits(32))
    }

    /// `a` without its lowest bits, rounded to nearest, ties to even.
    fn dropped(&self, a: Value, bits: i64) -> Value {
        let last = self.op(Op::LShr, a, bits);
        let odd = self.op(Op::And, last, 1);
        let up = self.op(Op::Add, odd, (1 << (bits - 1)) - 1);
        let rounded = self.e.b.op(Op::Add, a, up);
        self.op(Op::LShr, rounded, bits)
    }
}

impl Emitter<'_> {
    /// The bits of a constant, which the type holds.
    pub fn half_constant(&self, v: f64, d: DType) -> Value {
        let float = self.b.const_real(self.half_type(d), v);
        self.b.convert(Conv::Bit, float, self.b.int_type(16))
    }

    fn half_type(&self, d: DType) -> Type {
        match d {
            DType::BF16 => self.b.bf16_type(),
            _ => self.b.f16_type(),
        }
    }

    /// The f32 that 16 bits stand for.
    pub fn widened(&self, v: Value, d: DType) -> Value {
        let lanes = self.b.lanes_of(v);
        let w = Words { e: self, lanes };
        if d == DType::F16 && self.target.isa.has_half() {
            let half = self.b.vector_type(self.half_type(d), lanes);
            let half = self.b.convert(Conv::Bit, v, half);
            return self.b.convert(Conv::FpExt, half, w.floats());
        }
        let bits = self.b.convert(Conv::ZExt, v, w.of_bits(32));
        if d == DType::BF16 {
            return w.as_float(w.op(Op::Shl, bits, BF16_DROPPED));
        }
        // As if the exponent were that of f32; the product is exact, also of subnormals.
        let magnitude = w.op(Op::And, bits, 0x7fff);
        let moved = w.as_float(w.op(Op::Shl, magnitude, F16_DROPPED));
        let scale = w.as_float(w.c(power_bits(127 - 15)));
        let number = w.as_words(self.b.op(Op::FMul, moved, scale));
        let endless = w.op(Op::Or, number, F32_INFINITY);
        let found = w.select(w.below(magnitude, 0x7c00), number, endless);
        let sign = w.op(Op::Shl, w.op(Op::And, bits, 0x8000), 16);
        w.as_float(self.b.op(Op::Or, found, sign))
    }

    /// The bits of the f16 or bf16 next to a f32.
    pub fn narrowed(&self, v: Value, d: DType) -> Value {
        let lanes = self.b.lanes_of(v);
        let w = Words { e: self, lanes };
        let short = w.of_bits(16);
        if d == DType::F16 && self.target.isa.has_half() {
            let half = self.b.vector_type(self.half_type(d), lanes);
            let half = self.b.convert(Conv::FpTrunc, v, half);
            return self.b.convert(Conv::Bit, half, short);
        }
        let bits = w.as_words(v);
        if d == DType::BF16 {
            let number = w.dropped(bits, BF16_DROPPED);
            // The highest bit that a NaN has keeps it one.
            let quiet = w.op(Op::Or, w.op(Op::LShr, bits, BF16_DROPPED), 0x40);
            let is_nan = self.b.cmp(Cmp::FUno, v, v);
            return self
                .b
                .convert(Conv::Trunc, w.select(is_nan, quiet, number), short);
        }
        let magnitude = w.op(Op::And, bits, F32_SIGN - 1);
        // Both exponents start at a bias; what rounds beyond the last number is infinity.
        let moved = w.op(Op::Sub, magnitude, (127 - 15) << 23);
        let normal = w.dropped(moved, F16_DROPPED);
        // A unit in the last place of the sum is that of subnormals.
        let unit = w.c(power_bits(-1));
        let sum = self.b.op(Op::FAdd, w.as_float(magnitude), w.as_float(unit));
        let subnormal = self.b.op(Op::Sub, w.as_words(sum), unit);
        let small = w.below(magnitude, power_bits(-14));
        let number = w.select(small, subnormal, normal);
        let is_nan = self.b.cmp(Cmp::FUno, v, v);
        let endless = w.select(is_nan, w.c(0x7e00), w.c(0x7c00));
        let fits = w.below(magnitude, power_bits(16));
        let found = w.select(fits, number, endless);
        let sign = w.op(Op::And, w.op(Op::LShr, bits, 16), 0x8000);
        let found = self.b.op(Op::Or, found, sign);
        self.b.convert(Conv::Trunc, found, short)
    }

    /// The bf16 next to a f32 that is not subnormal, such as a power of e, by the target's own
    /// instruction if it has one.
    pub fn narrowed_normal(&self, v: Value) -> Option<Value> {
        self.target.half_dot?;
        let lanes = self.b.lanes_of(v);
        let half = self.b.vector_type(self.b.bf16_type(), lanes);
        let half = self.b.convert(Conv::FpTrunc, v, half);
        let short = self.b.vector_type(self.b.int_type(16), lanes);
        Some(self.b.convert(Conv::Bit, half, short))
    }

    /// A cast from or to a half type; every cast rounds once.
    pub fn cast_half(&mut self, a: Typed, to: DType) -> Typed {
        if is_half(a.dtype) {
            let wide = Typed {
                value: self.widened(a.value, a.dtype),
                dtype: DType::F32,
            };
            return self.cast(wide, to);
        }
        let float = match a.dtype {
            DType::F32 => a.value,
            DType::I32 | DType::I64 | DType::F64 => self.rounded_to_odd(a),
            _ => self.cast(a, DType::F32).value,
        };
        Typed {
            value: self.narrowed(float, to),
            dtype: to,
        }
    }

    /// A f32 beside a number of more bits, from which rounding to fewer bits gives what
    /// rounding the number itself does: the last bit says whether digits are left out.
    fn rounded_to_odd(&mut self, a: Typed) -> Value {
        let a = match a.dtype {
            DType::I64 => self.sticky(a),
            _ => a,
        };
        let wide = self.cast(a, DType::F64).value;
        let lanes = self.b.lanes_of(wide);
        let w = Words { e: self, lanes };
        let near = self.b.convert(Conv::FpTrunc, wide, w.floats());
        let doubles = self.b.type_of(wide);
        let [exact, found] = [wide, self.b.convert(Conv::FpExt, near, doubles)]
            .map(|v| self.b.intrinsic("llvm.fabs", &mut [doubles], &mut [v]));
        let beyond = self.b.cmp(Cmp::FOlt, exact, found);
        let inexact = self.b.cmp(Cmp::FOlt, found, exact);
        let inexact = self.b.op(Op::Or, beyond, inexact);
        let [beyond, inexact] =
            [beyond, inexact].map(|b| self.b.convert(Conv::ZExt, b, w.of_bits(32)));
        let towards_zero = self.b.op(Op::Sub, w.as_words(near), beyond);
        w.as_float(self.b.op(Op::Or, towards_zero, inexact))
    }

    /// An i64 whose magnitude f64 holds: the lowest bit kept stands for those below it.
    fn sticky(&mut self, a: Typed) -> Typed {
        let t = self.b.type_of(a.value);
        let c = |me: &Self, v| me.constant_like(me.index(v), t);
        const DROPPED: i64 = (1 << 11) - 1;
        let below = self.b.op(Op::And, a.value, c(self, DROPPED));
        let some = self.b.cmp(Cmp::Ne, below, self.b.zero(t));
        let some = self.b.convert(Conv::ZExt, some, t);
        let some = self.b.op(Op::Shl, some, c(self, 11));
        let high = self.b.op(Op::And, a.value, c(self, !DROPPED));
        let kept = self.b.op(Op::Or, high, some);
        let magnitude = self.unary(UnaryOp::Abs, a).value;
        let is_exact = self.b.cmp(Cmp::Ult, magnitude, c(self, 1 << 53));
        Typed {
            value: self.b.select(is_exact, a.value, kept),
            ..a
        }
    }

    pub fn unary_half(&mut self, op: UnaryOp, a: Typed) -> Typed {
        let wide = self.cast(a, DType::F32);
        let wide = self.unary(op, wide);
        self.cast(wide, a.dtype)
    }

    pub fn binary_half(&mut self, op: BinaryOp, a: Typed, b: Typed) -> Typed {
        let d = a.dtype;
        if let BinaryOp::FloorDiv | BinaryOp::FloorMod = op {
            let quotient = self.binary_half(BinaryOp::Div, a, b);
            let quotient = self.unary_half(UnaryOp::Floor, quotient);
            if op == BinaryOp::FloorDiv {
                return quotient;
            }
            let whole = self.binary_half(BinaryOp::Mul, quotient, b);
            return self.binary_half(BinaryOp::Sub, a, whole);
        }
        let (a, b) = (self.cast(a, DType::F32), self.cast(b, DType::F32));
        let wide = self.binary(op, a, b);
        match wide.dtype {
            DType::Bool => wide,
            _ => self.cast(wide, d),
        }
    }
}
