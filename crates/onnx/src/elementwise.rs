//! Importers of element-wise operators.

use crate::narrow::Narrow;
use crate::narrowing;
use crate::node::{Imported, NodeImport, Problem};
use crate::tensors::dtype_of;
use graph::ValueId;
use graph::ops::{Binary, Dropout, Expand, Gelu, Op, Unary, broadcast_shape};
use tensor::DType;

macro_rules! plain {
    ($kind:ident, $take:ident: $($name:ident => $op:ident),* $(,)?) => {
        $(pub(crate) fn $name(n: &mut NodeImport) -> Imported { $take(n, $kind::$op) })*
    };
}

plain!(Unary, one: abs => Abs, ceil => Ceil, erf => Erf, exp => Exp, floor => Floor, log => Log,
    neg => Neg, not => Not, reciprocal => Reciprocal, relu => Relu, round => Round,
    sigmoid => Sigmoid, sign => Sign, sqrt => Sqrt, tanh => Tanh, hard_swish => HardSwish,
    sin => Sin, cos => Cos, tan => Tan, asin => Asin, acos => Acos, atan => Atan, sinh => Sinh,
    cosh => Cosh, asinh => Asinh, acosh => Acosh, atanh => Atanh);

plain!(Binary, two: add => Add, sub => Sub, mul => Mul, div => Div, and => And, or => Or,
    xor => Xor, equal => Equal, less => Less, less_or_equal => LessOrEqual, greater => Greater,
    greater_or_equal => GreaterOrEqual, bit_and => BitAnd, bit_or => BitOr, bit_xor => BitXor);

fn one(n: &mut NodeImport, op: Unary) -> Imported {
    let x = n.input(0)?;
    Ok(vec![n.unary(op, x)?])
}

fn two(n: &mut NodeImport, op: Binary) -> Imported {
    let (x, y) = (n.input(0)?, n.input(1)?);
    Ok(vec![n.binary(op, x, y)?])
}

/// A variadic operator as a chain of binary ones.
fn chain(n: &mut NodeImport, op: Binary) -> Result<ValueId, Problem> {
    let inputs = n.all_inputs()?;
    let Some((first, rest)) = inputs.split_first() else {
        return Problem::unsupported("it has no inputs");
    };
    rest.iter().try_fold(*first, |x, y| n.binary(op, x, *y))
}

pub(crate) fn sum(n: &mut NodeImport) -> Imported {
    Ok(vec![chain(n, Binary::Add)?])
}

pub(crate) fn max(n: &mut NodeImport) -> Imported {
    Ok(vec![chain(n, Binary::Max)?])
}

pub(crate) fn min(n: &mut NodeImport) -> Imported {
    Ok(vec![chain(n, Binary::Min)?])
}

pub(crate) fn mean(n: &mut NodeImport) -> Imported {
    let total = chain(n, Binary::Add)?;
    let count = n.filled(n.dtype(total), &[], n.inputs.len() as f64)?;
    Ok(vec![n.binary(Binary::Div, total, count)?])
}

pub(crate) fn identity(n: &mut NodeImport) -> Imported {
    Ok(vec![n.input(0)?])
}

pub(crate) fn select(n: &mut NodeImport) -> Imported {
    let inputs = [n.input(0)?, n.input(1)?, n.input(2)?];
    let [condition, yes, no] = inputs;
    let always = n.model.constant(condition).filter(|c| c.len() == 1);
    let always = always.map(|c| c.get_i64(0) != 0);
    let Some(always) = always.filter(|_| n.dtype(yes) == n.dtype(no)) else {
        return Ok(vec![n.emit(Op::Where, &inputs)?]);
    };
    // A kernel of the choice would have no use for the operand that is never chosen, and bind it all the same.
    let shape = broadcast_shape(&n.shape(yes), &n.shape(no))?;
    let shape = broadcast_shape(&n.shape(condition), &shape)?;
    let chosen = if always { yes } else { no };
    Ok(vec![n.emit(Op::Expand(Expand { shape }), &[chosen])?])
}

pub(crate) fn modulo(n: &mut NodeImport) -> Imported {
    let fmod = n.attributes.flag("fmod", false)?;
    let (x, y) = (n.input(0)?, n.input(1)?);
    match n.dtype(x) {
        DType::F32 | DType::F16 | DType::BF16 if fmod => Ok(vec![remainder(n, x, y)?]),
        _ => two(n, if fmod { Binary::Fmod } else { Binary::Mod }),
    }
}

/// What is left of |x| when multiples of |y| are taken off, with the sign of x, exactly.
///
/// Multiples of y 2^k are taken off, k from 252 down to 0. Each time there are at most about 2^28 of them, so their
/// product with y, which has 24 bits, is exact in f64, and so is the difference. A quotient that f64 rounds up or down to the next integer
/// leaves less than 0, or y or more; the next k, and in the end a comparison, make up for it.
fn remainder(n: &mut NodeImport, x: ValueId, y: ValueId) -> Result<ValueId, Problem> {
    let size = |n: &mut NodeImport, v| {
        let wide = n.cast(v, DType::F64)?;
        n.unary(Unary::Abs, wide)
    };
    let (whole, y_size) = (size(n, x)?, size(n, y)?);
    let mut rest = whole;
    for k in (0..=9).rev() {
        let power = n.filled(DType::F64, &[], 2f64.powi(28 * k))?;
        let part = n.binary(Binary::Mul, y_size, power)?;
        let quotient = n.binary(Binary::Div, rest, part)?;
        let count = n.unary(Unary::Floor, quotient)?;
        let parts = n.binary(Binary::Mul, count, part)?;
        rest = n.binary(Binary::Sub, rest, parts)?;
    }
    let zero = n.filled(DType::F64, &[], 0.0)?;
    let low = n.binary(Binary::Less, rest, zero)?;
    let more = n.binary(Binary::Add, rest, y_size)?;
    rest = n.emit(Op::Where, &[low, more, rest])?;
    let high = n.binary(Binary::GreaterOrEqual, rest, y_size)?;
    let less = n.binary(Binary::Sub, rest, y_size)?;
    rest = n.emit(Op::Where, &[high, less, rest])?;
    // No multiple of an infinite y is taken off.
    let most = n.filled(DType::F64, &[], f64::MAX)?;
    let infinite = n.binary(Binary::Greater, y_size, most)?;
    // 0, or NaN of an infinite x, whose remainder is NaN.
    let nothing = n.binary(Binary::Sub, whole, whole)?;
    let whole = n.binary(Binary::Add, whole, nothing)?;
    rest = n.emit(Op::Where, &[infinite, whole, rest])?;
    let dtype = n.dtype(x);
    let rest = n.cast(rest, dtype)?;
    let negated = n.unary(Unary::Neg, rest)?;
    let zero = n.filled(dtype, &[], 0.0)?;
    let negative = n.binary(Binary::Less, x, zero)?;
    let signed = n.emit(Op::Where, &[negative, negated, rest])?;
    // Either zero keeps its sign.
    let is_zero = n.binary(Binary::Equal, x, zero)?;
    let own = n.binary(Binary::Sub, x, rest)?;
    n.emit(Op::Where, &[is_zero, own, signed])
}

/// All bits of x against ones.
pub(crate) fn bit_not(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let ones = match n.dtype(x) {
        DType::U8 => 255.0,
        _ => -1.0,
    };
    let ones = n.filled(n.dtype(x), &[], ones)?;
    Ok(vec![n.binary(Binary::BitXor, x, ones)?])
}

pub(crate) fn bit_shift(n: &mut NodeImport) -> Imported {
    match n.attributes.text("direction", "")?.as_str() {
        "LEFT" => two(n, Binary::ShiftLeft),
        "RIGHT" => two(n, Binary::ShiftRight),
        other => Problem::unsupported(format!("direction=`{other}`")),
    }
}

/// Base and exponent may differ in type; the result has the base's.
pub(crate) fn pow(n: &mut NodeImport) -> Imported {
    let (base, exponent) = (n.input(0)?, n.input(1)?);
    let (to, of) = (n.dtype(base), n.dtype(exponent));
    if of.is_float() && !to.is_float() {
        let base = n.cast(base, of)?;
        let power = n.binary(Binary::Pow, base, exponent)?;
        return Ok(vec![n.cast(power, to)?]);
    }
    let exponent = n.cast(exponent, to)?;
    Ok(vec![n.binary(Binary::Pow, base, exponent)?])
}

pub(crate) fn leaky_relu(n: &mut NodeImport) -> Imported {
    let alpha = n.attributes.float("alpha", 0.01)?;
    one(n, Unary::LeakyRelu { alpha })
}

/// x if x >= 0, else slope x.
pub(crate) fn prelu(n: &mut NodeImport) -> Imported {
    let (x, slope) = (n.input(0)?, n.input(1)?);
    let zero = n.filled(n.dtype(x), &[], 0.0)?;
    let negative = n.binary(Binary::Less, x, zero)?;
    let scaled = n.binary(Binary::Mul, x, slope)?;
    Ok(vec![n.emit(Op::Where, &[negative, scaled, x])?])
}

pub(crate) fn hard_sigmoid(n: &mut NodeImport) -> Imported {
    let (alpha, beta) = (
        n.attributes.float("alpha", 0.2)?,
        n.attributes.float("beta", 0.5)?,
    );
    one(n, Unary::HardSigmoid { alpha, beta })
}

/// x / (1 + |x|).
pub(crate) fn softsign(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let ones = n.filled(n.dtype(x), &[], 1.0)?;
    let size = n.unary(Unary::Abs, x)?;
    let divisor = n.binary(Binary::Add, ones, size)?;
    Ok(vec![n.binary(Binary::Div, x, divisor)?])
}

pub(crate) fn gelu(n: &mut NodeImport) -> Imported {
    let kind = match n.attributes.text("approximate", "none")?.as_str() {
        "none" => Gelu::Exact,
        "tanh" => Gelu::Tanh,
        other => return Problem::unsupported(format!("approximate=`{other}`")),
    };
    one(n, Unary::Gelu(kind))
}

/// Bounds are attributes before operator set 11 and optional inputs since.
pub(crate) fn clip(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    if n.opset < 11 {
        let bound = |v: Option<f32>| v.map(f64::from);
        let min = bound(n.attributes.optional_float("min")?);
        let max = bound(n.attributes.optional_float("max")?);
        return one(n, Unary::Clip { min, max });
    }
    let constant = |i: usize| n.constant_scalar(i, "bound");
    // Bounds are held as f64, which not every i64 is.
    let held =
        |b: Option<f64>| n.dtype(x) != DType::I64 || b.is_none_or(|b| b.abs() < 2f64.powi(53));
    if let (Ok(min), Ok(max)) = (constant(1), constant(2))
        && held(min)
        && held(max)
    {
        return one(n, Unary::Clip { min, max });
    }
    let raised = match n.optional(1) {
        Some(min) => n.binary(Binary::Max, x, min)?,
        None => x,
    };
    Ok(vec![match n.optional(2) {
        Some(max) => n.binary(Binary::Min, raised, max)?,
        None => raised,
    }])
}

pub(crate) fn cast(n: &mut NodeImport) -> Imported {
    let number = i32::try_from(n.attributes.int("to", 0)?).unwrap_or(0);
    let x = n.input(0)?;
    if let Some(kind) = Narrow::of(number) {
        return cast_to_narrow(n, x, kind);
    }
    n.attributes.ignore(&["saturate", "round_mode"]);
    let to = dtype_of(number).map_err(|e| Problem::Unsupported(e.to_string()))?;
    Ok(vec![cast_to(n, x, to)?])
}

pub(crate) fn cast_like(n: &mut NodeImport) -> Imported {
    let (x, like) = (n.input(0)?, n.input(1)?);
    if let Some(kind) = n.narrow.get(&like).copied() {
        return cast_to_narrow(n, x, kind);
    }
    n.attributes.ignore(&["saturate", "round_mode"]);
    Ok(vec![cast_to(n, x, n.dtype(like))?])
}

fn cast_to_narrow(n: &mut NodeImport, x: ValueId, kind: &'static Narrow) -> Imported {
    n.attributes.ignore(&["round_mode"]);
    let saturate = n.attributes.flag("saturate", true)?;
    Ok(vec![narrowing::narrowed(n, x, kind, saturate)?])
}

/// A value of its own also where a wider type holds `x` and is the one that is asked for.
fn cast_to(n: &mut NodeImport, x: ValueId, to: DType) -> Result<ValueId, Problem> {
    match n.narrow.contains_key(&x) {
        true => narrowing::widened(n, x, to),
        false => n.cast(x, to),
    }
}

/// In inference the input as it is, and a mask that keeps everything. In training mode an operator that training
/// steps take.
pub(crate) fn dropout(n: &mut NodeImport) -> Imported {
    n.attributes.ignore(&["ratio", "seed", "is_test"]);
    let x = n.input(0)?;
    if n.opset >= 12 {
        let ratio = n.constant_scalar(1, "ratio");
        let training = n
            .constant(2, "training mode")?
            .is_some_and(|t| t.len() == 1 && t.get_f64(0) != 0.0);
        if training && ratio? != Some(0.0) {
            return active_dropout(n, x);
        }
    }
    let mut outputs = vec![x];
    if n.wants(1) {
        let dtype = if n.opset < 10 {
            n.dtype(x)
        } else {
            DType::Bool
        };
        outputs.push(n.filled(dtype, &n.shape(x), 1.0)?);
    }
    Ok(outputs)
}

fn active_dropout(n: &mut NodeImport, x: ValueId) -> Imported {
    if !n.training {
        return Problem::unsupported("it is in training mode");
    }
    if n.wants(1) {
        return Problem::unsupported("it is in training mode, and its mask is read");
    }
    let ratio = n.constant_scalar(1, "ratio")?.unwrap_or(0.5) as f32;
    Ok(vec![n.emit(Op::Dropout(Dropout { ratio }), &[x])?])
}
