//! Scalar arithmetic of the flat interpreter: each operation rounds or wraps
//! to its type, as `ir::expr` says.

use ir::interpret::{Scalar, evaluate};
use ir::{BinaryOp, DType, Expr, ExprKind, UnaryOp};
use tensor::Tensor;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// Integers and bool, within the range of the type.
    Int(i64, DType),
    /// Already rounded to the type.
    Float(f64, DType),
}

impl Value {
    pub fn dtype(self) -> DType {
        match self {
            Value::Int(_, d) | Value::Float(_, d) => d,
        }
    }

    pub fn is_true(self) -> bool {
        matches!(self, Value::Int(v, _) if v != 0)
    }

    pub fn as_i64(self) -> Option<i64> {
        match self {
            Value::Int(v, DType::I64) => Some(v),
            _ => None,
        }
    }
}

pub(crate) fn read(t: &Tensor, i: usize) -> Value {
    match t.dtype().is_float() {
        true => Value::Float(t.get_f64(i), t.dtype()),
        false => Value::Int(t.get_i64(i), t.dtype()),
    }
}

pub(crate) fn write(t: &mut Tensor, i: usize, v: Value) {
    match v {
        Value::Int(v, _) => t.set_i64(i, v),
        Value::Float(v, _) => t.set_f64(i, v),
    }
}

fn float(v: f64, d: DType) -> Value {
    let rounded = match d {
        DType::F64 => v,
        _ => Expr::constant(v, d).as_float().unwrap_or(v),
    };
    Value::Float(rounded, d)
}

fn int(v: i64, d: DType) -> Value {
    let wrapped = match d {
        DType::I8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::I32 => i64::from(v as i32),
        DType::I16 => i64::from(v as i16),
        DType::U16 => i64::from(v as u16),
        DType::U32 => i64::from(v as u32),
        DType::Bool => i64::from(v != 0),
        _ => v,
    };
    Value::Int(wrapped, d)
}

/// What `ir` computes for an operator of constants: elementary functions are
/// its own, the same on every machine.
fn defined(e: &Expr) -> Option<f64> {
    match evaluate(e, &|_| 0).ok()? {
        Scalar::F(v) => Some(v),
        Scalar::I(v) => Some(v as f64),
    }
}

fn constant(v: f64, d: DType) -> Expr {
    ExprKind::Float(v.to_bits(), d).into()
}

fn float_unary(op: UnaryOp, v: f64, d: DType) -> Value {
    let rounded = match op {
        UnaryOp::Sqrt => v.sqrt(),
        UnaryOp::Round => v.round_ties_even(),
        UnaryOp::Floor => v.floor(),
        UnaryOp::Ceil => v.ceil(),
        UnaryOp::Neg => -v,
        UnaryOp::Abs => v.abs(),
        _ => defined(&Expr::unary(op, constant(v, d))).unwrap_or(f64::NAN),
    };
    float(rounded, d)
}

pub(crate) fn unary(op: UnaryOp, a: Value) -> Option<Value> {
    match a {
        Value::Float(v, _) if op == UnaryOp::Bits => {
            Some(int(i64::from((v as f32).to_bits() as i32), DType::I32))
        }
        Value::Float(v, d) => Some(float_unary(op, v, d)),
        Value::Int(v, d) => match op {
            UnaryOp::Neg => Some(int(v.wrapping_neg(), d)),
            UnaryOp::Abs => Some(int(v.wrapping_abs(), d)),
            UnaryOp::Not => Some(int(i64::from(v == 0), d)),
            _ => None,
        },
    }
}

/// `None` on integer division by zero.
pub(crate) fn binary(op: BinaryOp, a: Value, b: Value) -> Option<Value> {
    let truth = |v: bool| Some(Value::Int(i64::from(v), DType::Bool));
    match (a, b) {
        (Value::Float(a, d), Value::Float(b, _)) => {
            let round = |v: f64| match float(v, d) {
                Value::Float(v, _) => v,
                Value::Int(..) => v,
            };
            let v = match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Mul => a * b,
                BinaryOp::Div => a / b,
                BinaryOp::FloorDiv => round(a / b).floor(),
                BinaryOp::FloorMod => {
                    let quotient = round((round(a / b)).floor());
                    a - round(quotient * b)
                }
                BinaryOp::Min if a < b || a.is_nan() => a,
                BinaryOp::Max if a > b || a.is_nan() => a,
                BinaryOp::Min | BinaryOp::Max => b,
                BinaryOp::Pow => defined(&Expr::binary(op, constant(a, d), constant(b, d)))?,
                BinaryOp::Eq => return truth(a == b),
                BinaryOp::Ne => return truth(a != b),
                BinaryOp::Lt => return truth(a < b),
                BinaryOp::Le => return truth(a <= b),
                BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::BitAnd
                | BinaryOp::BitOr
                | BinaryOp::BitXor
                | BinaryOp::Shl
                | BinaryOp::Shr => return None,
            };
            Some(float(v, d))
        }
        (Value::Int(a, d), Value::Int(b, _)) => {
            let divides = matches!(op, BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod);
            if divides && b == 0 {
                return None;
            }
            let floor_div = |a: i64, b: i64| {
                let q = a.wrapping_div(b);
                if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) {
                    q - 1
                } else {
                    q
                }
            };
            let v = match op {
                BinaryOp::Add => a.wrapping_add(b),
                BinaryOp::Sub => a.wrapping_sub(b),
                BinaryOp::Mul => a.wrapping_mul(b),
                BinaryOp::Div => a.wrapping_div(b),
                BinaryOp::FloorDiv => floor_div(a, b),
                BinaryOp::FloorMod => a.wrapping_sub(floor_div(a, b).wrapping_mul(b)),
                BinaryOp::Min => a.min(b),
                BinaryOp::Max => a.max(b),
                BinaryOp::Pow => power(a, b)?,
                BinaryOp::Eq => return truth(a == b),
                BinaryOp::Ne => return truth(a != b),
                BinaryOp::Lt => return truth(a < b),
                BinaryOp::Le => return truth(a <= b),
                BinaryOp::And => i64::from(a != 0 && b != 0),
                BinaryOp::Or => i64::from(a != 0 || b != 0),
                BinaryOp::BitAnd
                | BinaryOp::BitOr
                | BinaryOp::BitXor
                | BinaryOp::Shl
                | BinaryOp::Shr => op.bits(a, b, d),
            };
            Some(int(v, d))
        }
        _ => None,
    }
}

/// The wrapping product; a negative exponent gives the truncated quotient.
fn power(a: i64, b: i64) -> Option<i64> {
    match u32::try_from(b) {
        Ok(b) => Some(a.wrapping_pow(b)),
        Err(_) if b < 0 => match a {
            0 => None,
            1 => Some(1),
            -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
            _ => Some(0),
        },
        Err(_) => {
            let high = a.wrapping_pow(1 << 31).wrapping_pow((b >> 31) as u32);
            Some(high.wrapping_mul(a.wrapping_pow((b & 0x7fff_ffff) as u32)))
        }
    }
}

pub(crate) fn cast(to: DType, a: Value) -> Value {
    match a {
        // In one rounding: through `f64` only where that is exact.
        Value::Int(v, _) if to == DType::F32 => float(f64::from(v as f32), to),
        Value::Int(v, _) if to.is_float() => float(v as f64, to),
        Value::Int(v, _) => int(v, to),
        Value::Float(v, _) if to.is_float() => float(v, to),
        Value::Float(v, _) => match to {
            DType::Bool => int(i64::from(v != 0.0), to),
            DType::I8 => int(i64::from(v as i8), to),
            DType::U8 => int(i64::from(v as u8), to),
            DType::I32 => int(i64::from(v as i32), to),
            DType::I16 => int(i64::from(v as i16), to),
            DType::U16 => int(i64::from(v as u16), to),
            DType::U32 => int(i64::from(v as u32), to),
            DType::U64 => int(v as u64 as i64, to),
            _ => int(v as i64, to),
        },
    }
}
