//! Element-wise operators of one, two and three operands.

use super::{OpError, Operands, refuse};
use crate::model::TensorType;
use tensor::DType;

/// Operators of one operand. The first group takes any number, the second
/// floats only, `Not` bool only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// -x, wrapping.
    Neg,
    /// |x|, wrapping.
    Abs,
    /// -1, 0 or 1 (NaN stays).
    Sign,
    /// max(x, 0).
    Relu,
    /// min(max(x, min), max); a bound that is `None` is open. NaN stays.
    Clip {
        min: Option<f64>,
        max: Option<f64>,
    },

    /// x if x >= 0, else alpha x.
    LeakyRelu {
        alpha: f32,
    },
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// max(0, min(1, alpha x + beta)).
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    /// x max(0, min(1, x/6 + 1/2)).
    HardSwish,
    Tanh,
    /// Of an angle in radians, as `Cos` and `Tan`.
    Sin,
    Cos,
    Tan,
    /// NaN outside [-1, 1], as `Acos`.
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    /// NaN below 1.
    Acosh,
    /// NaN outside [-1, 1].
    Atanh,
    Gelu(Gelu),
    /// The error function.
    Erf,
    Sqrt,
    Exp,
    Log,
    /// 1/x.
    Reciprocal,
    Floor,
    Ceil,
    /// To nearest, ties to even.
    Round,

    Not,
}

/// In training, an element is 0 with a chance of `ratio`, and else 1 / (1 - ratio) times itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// From 0 on, below 1.
    pub ratio: f32,
}

impl Dropout {
    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        if !(0.0..1.0).contains(&self.ratio) {
            return refuse(format!("a ratio of {} is not in [0, 1)", self.ratio));
        }
        Ok(inputs.exactly(1)?.float(0)?.clone())
    }
}

/// How the Gaussian error linear unit is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gelu {
    /// x/2 (1 + erf(x / sqrt 2)).
    Exact,
    /// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
    Tanh,
}

impl Unary {
    pub fn name(self) -> &'static str {
        match self {
            Unary::Neg => "neg",
            Unary::Abs => "abs",
            Unary::Sign => "sign",
            Unary::Relu => "relu",
            Unary::Clip { .. } => "clip",
            Unary::LeakyRelu { .. } => "leaky_relu",
            Unary::Sigmoid => "sigmoid",
            Unary::HardSigmoid { .. } => "hard_sigmoid",
            Unary::HardSwish => "hard_swish",
            Unary::Tanh => "tanh",
            Unary::Sin => "sin",
            Unary::Cos => "cos",
            Unary::Tan => "tan",
            Unary::Asin => "asin",
            Unary::Acos => "acos",
            Unary::Atan => "atan",
            Unary::Sinh => "sinh",
            Unary::Cosh => "cosh",
            Unary::Asinh => "asinh",
            Unary::Acosh => "acosh",
            Unary::Atanh => "atanh",
            Unary::Gelu(Gelu::Exact) => "gelu",
            Unary::Gelu(Gelu::Tanh) => "gelu_tanh",
            Unary::Erf => "erf",
            Unary::Sqrt => "sqrt",
            Unary::Exp => "exp",
            Unary::Log => "log",
            Unary::Reciprocal => "reciprocal",
            Unary::Floor => "floor",
            Unary::Ceil => "ceil",
            Unary::Round => "round",
            Unary::Not => "not",
        }
    }

    /// Whether the operator is defined on integers too.
    pub fn takes_integers(self) -> bool {
        use Unary::{Abs, Clip, Neg, Relu, Sign};
        matches!(self, Neg | Abs | Sign | Relu | Clip { .. })
    }

    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        let fits = match self {
            Unary::Not => x.dtype == DType::Bool,
            _ => x.dtype.is_float() || x.dtype.is_int() && self.takes_integers(),
        };
        if fits {
            Ok(x.clone())
        } else {
            refuse(format!("is not defined on {}", x.dtype))
        }
    }
}

/// Operators of two operands of the same element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// Wrapping on integers, as `Sub` and `Mul`.
    Add,
    Sub,
    Mul,
    /// Integers truncate towards zero; dividing an integer by zero is an error.
    Div,
    /// The remainder with the sign of the divisor (Python's `%`).
    Mod,
    /// The remainder with the sign of the dividend (C's `fmod`).
    Fmod,
    Pow,
    /// NaN if either is NaN, as `Max`.
    Min,
    Max,
    /// Comparisons give bool.
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Bool only, as `Or` and `Xor`.
    And,
    Or,
    Xor,
    /// Integers only, as the four below.
    BitAnd,
    BitOr,
    BitXor,
    /// A shift by less than 0, or by the width or more, moves all bits out.
    ShiftLeft,
    /// Fills with the sign.
    ShiftRight,
}

impl Binary {
    pub fn name(self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Mod => "mod",
            Binary::Fmod => "fmod",
            Binary::Pow => "pow",
            Binary::Min => "min",
            Binary::Max => "max",
            Binary::Equal => "equal",
            Binary::Less => "less",
            Binary::LessOrEqual => "less_or_equal",
            Binary::Greater => "greater",
            Binary::GreaterOrEqual => "greater_or_equal",
            Binary::And => "and",
            Binary::Or => "or",
            Binary::Xor => "xor",
            Binary::BitAnd => "bit_and",
            Binary::BitOr => "bit_or",
            Binary::BitXor => "bit_xor",
            Binary::ShiftLeft => "shift_left",
            Binary::ShiftRight => "shift_right",
        }
    }

    pub fn is_comparison(self) -> bool {
        use Binary::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        matches!(self, Equal | Less | LessOrEqual | Greater | GreaterOrEqual)
    }

    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let inputs = inputs.exactly(2)?;
        let (a, b) = (inputs.get(0)?, inputs.get(1)?);
        if a.dtype != b.dtype {
            return refuse(format!("its operands have different types, {a} and {b}"));
        }
        let fits = match self {
            Binary::And | Binary::Or | Binary::Xor => a.dtype == DType::Bool,
            Binary::BitAnd
            | Binary::BitOr
            | Binary::BitXor
            | Binary::ShiftLeft
            | Binary::ShiftRight => a.dtype.is_int(),
            Binary::Equal => true,
            _ => a.dtype != DType::Bool,
        };
        if !fits {
            return refuse(format!("is not defined on {}", a.dtype));
        }
        let dtype = if self.is_comparison() {
            DType::Bool
        } else {
            a.dtype
        };
        Ok(TensorType {
            dtype,
            shape: broadcast_shape(&a.shape, &b.shape)?,
        })
    }
}

pub(super) fn infer_where(inputs: Operands) -> Result<TensorType, OpError> {
    let inputs = inputs.exactly(3)?;
    let (c, a, b) = (inputs.get(0)?, inputs.get(1)?, inputs.get(2)?);
    if c.dtype != DType::Bool || a.dtype != b.dtype {
        return refuse(format!(
            "takes a bool and two operands of one type, not {c}, {a}, {b}"
        ));
    }
    let shape = broadcast_shape(&broadcast_shape(&c.shape, &a.shape)?, &b.shape)?;
    Ok(TensorType {
        dtype: a.dtype,
        shape,
    })
}

/// How many values a byte has.
pub const BYTES: usize = 256;

pub(super) fn infer_lookup(inputs: Operands) -> Result<TensorType, OpError> {
    let inputs = inputs.exactly(2)?;
    let (x, table) = (inputs.get(0)?, inputs.get(1)?);
    if x.dtype != DType::U8 || table.shape != [BYTES] {
        return refuse(format!(
            "takes u8 and a table of {BYTES} elements, not {x} and {table}"
        ));
    }
    Ok(TensorType {
        dtype: table.dtype,
        shape: x.shape.clone(),
    })
}

/// The NumPy broadcast of two shapes.
///
/// # Errors
/// If a dimension differs and neither is 1.
pub fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
    let rank = a.len().max(b.len());
    let dim = |s: &[usize], d: usize| (d + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank)
        .map(|d| match (dim(a, d), dim(b, d)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => refuse(format!("the shapes {a:?} and {b:?} do not broadcast")),
        })
        .collect()
}
