//! Expressions compiled for evaluation: typed, with variables as slots and
//! linear indices as sums.

use super::{InterpretError, scalar};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::{BufferId, Program};
use crate::text;
use tensor::DType;

/// An expression whose value is an integer or bool.
pub(super) enum Int {
    /// `constant` plus coefficients times variables, in wrapping `i64`.
    Linear {
        constant: i64,
        terms: Vec<(usize, i64)>,
    },
    Arg(usize),
    Load(Access),
    Unary(UnaryOp, DType, Box<Int>),
    Binary(BinaryOp, DType, Box<(Int, Int)>),
    Compare(BinaryOp, Box<(Int, Int)>),
    CompareFloat(BinaryOp, Box<(Float, Float)>),
    And(Box<(Int, Int)>),
    Or(Box<(Int, Int)>),
    Select(Box<(Int, Int, Int)>),
    Convert(DType, Box<Int>),
    FromFloat(DType, Box<Float>),
}

/// An expression whose value is a float.
pub(super) enum Float {
    Constant(f64),
    Arg(usize),
    Load(Access),
    Unary(UnaryOp, DType, Box<Float>),
    Binary(BinaryOp, DType, Box<(Float, Float)>),
    Select(Box<(Int, Float, Float)>),
    Round(DType, Box<Float>),
    FromInt(DType, Box<Int>),
}

pub(super) enum Code {
    Int(Int),
    Float(Float),
}

/// One element of a buffer.
pub(super) struct Access {
    pub buffer: BufferId,
    /// Index and extent of each dimension.
    pub indices: Vec<(Int, i64)>,
}

type Compiled = Result<(Code, DType), InterpretError>;

/// Compiles the expressions of one place of a program.
pub(super) struct Compiler<'a> {
    program: &'a Program,
    place: String,
    /// Types of a reducer's arguments, in its expressions.
    args: Vec<DType>,
}

impl<'a> Compiler<'a> {
    pub fn new(program: &'a Program, place: String) -> Compiler<'a> {
        let args = vec![];
        Compiler {
            program,
            place,
            args,
        }
    }

    pub fn with_args(program: &'a Program, place: String, args: Vec<DType>) -> Compiler<'a> {
        Compiler {
            program,
            place,
            args,
        }
    }

    fn ill_typed(&self, e: &Expr, reason: String) -> InterpretError {
        InterpretError::IllTyped {
            place: self.place.clone(),
            expr: text::expr(self.program, e),
            reason,
        }
    }

    /// An expression that must have the given type.
    pub fn typed(&self, e: &Expr, dtype: DType) -> Result<Code, InterpretError> {
        let (code, found) = self.expr(e)?;
        if found != dtype {
            return Err(self.ill_typed(e, format!("is {found}, expected {dtype}")));
        }
        Ok(code)
    }

    /// An index (`i64`) or a condition (`bool`).
    pub fn int(&self, e: &Expr, dtype: DType) -> Result<Int, InterpretError> {
        match self.typed(e, dtype)? {
            Code::Int(code) => Ok(code),
            Code::Float(_) => Err(self.ill_typed(e, "is a float".into())),
        }
    }

    pub fn access(&self, id: BufferId, indices: &[Expr]) -> Result<Access, InterpretError> {
        let buffer = self.program.buffer(id);
        if buffer.shape.len() != indices.len() {
            return Err(InterpretError::IllFormed {
                place: self.place.clone(),
                reason: format!(
                    "`{}` of rank {} has {} indices",
                    buffer.name,
                    buffer.shape.len(),
                    indices.len()
                ),
            });
        }
        let indices = indices.iter().zip(&buffer.shape);
        let indices = indices.map(|(e, extent)| Ok((self.int(e, DType::I64)?, *extent)));
        let indices = indices.collect::<Result<_, InterpretError>>()?;
        Ok(Access {
            buffer: id,
            indices,
        })
    }

    pub fn expr(&self, e: &Expr) -> Compiled {
        match e.kind() {
            ExprKind::Int(v, d) => {
                let (constant, terms) = (*v, vec![]);
                Ok((Code::Int(Int::Linear { constant, terms }), *d))
            }
            ExprKind::Float(bits, d) => {
                let v = f64::from_bits(*bits);
                Ok((Code::Float(Float::Constant(v)), *d))
            }
            ExprKind::Var(v) => {
                let (constant, terms) = (0, vec![(v.index(), 1)]);
                Ok((Code::Int(Int::Linear { constant, terms }), DType::I64))
            }
            ExprKind::Arg(i, d) => self.arg(e, *i as usize, *d),
            ExprKind::Load(b, indices) => {
                let access = self.access(*b, indices)?;
                let dtype = self.program.buffer(*b).dtype;
                let code = match dtype.is_float() {
                    true => Code::Float(Float::Load(access)),
                    false => Code::Int(Int::Load(access)),
                };
                Ok((code, dtype))
            }
            ExprKind::Unary(op, a) => self.unary(e, *op, a),
            ExprKind::Binary(op, a, b) => self.binary(e, *op, a, b),
            ExprKind::Select(c, a, b) => self.select(e, c, a, b),
            ExprKind::Cast(d, a) => Ok((self.cast(*d, a)?, *d)),
        }
    }

    fn arg(&self, e: &Expr, i: usize, dtype: DType) -> Compiled {
        if self.args.get(i) != Some(&dtype) {
            let reason = "is not an argument of the reducer".into();
            return Err(self.ill_typed(e, reason));
        }
        let code = match dtype.is_float() {
            true => Code::Float(Float::Arg(i)),
            false => Code::Int(Int::Arg(i)),
        };
        Ok((code, dtype))
    }

    fn unary(&self, e: &Expr, op: UnaryOp, a: &Expr) -> Compiled {
        let (code, dtype) = self.expr(a)?;
        let takes = match op {
            UnaryOp::Not => dtype == DType::Bool,
            UnaryOp::Neg | UnaryOp::Abs => dtype != DType::Bool,
            _ => dtype.is_float(),
        };
        if !takes {
            let reason = format!("applies {} to {dtype}", op.name());
            return Err(self.ill_typed(e, reason));
        }
        let code = match code {
            Code::Int(Int::Linear { constant, terms }) if terms.is_empty() => {
                let constant = scalar::int_unary(op, constant, dtype);
                Code::Int(Int::Linear { constant, terms })
            }
            Code::Int(a) => Code::Int(Int::Unary(op, dtype, Box::new(a))),
            Code::Float(a) => Code::Float(Float::Unary(op, dtype, Box::new(a))),
        };
        Ok((code, dtype))
    }

    fn binary(&self, e: &Expr, op: BinaryOp, a: &Expr, b: &Expr) -> Compiled {
        let (x, left) = self.expr(a)?;
        let (y, right) = self.expr(b)?;
        let takes = match op {
            BinaryOp::And | BinaryOp::Or => left == DType::Bool,
            BinaryOp::Min | BinaryOp::Max => true,
            op if op.is_comparison() => true,
            _ => left != DType::Bool,
        };
        if left != right || !takes {
            let reason = format!("applies {} to {left} and {right}", op.name());
            return Err(self.ill_typed(e, reason));
        }
        let code = match (op, x, y) {
            (BinaryOp::And, Code::Int(x), Code::Int(y)) => Code::Int(Int::And(Box::new((x, y)))),
            (BinaryOp::Or, Code::Int(x), Code::Int(y)) => Code::Int(Int::Or(Box::new((x, y)))),
            (op, Code::Int(x), Code::Int(y)) if op.is_comparison() => {
                Code::Int(Int::Compare(op, Box::new((x, y))))
            }
            (op, Code::Float(x), Code::Float(y)) if op.is_comparison() => {
                Code::Int(Int::CompareFloat(op, Box::new((x, y))))
            }
            (op, Code::Int(x), Code::Int(y)) => Code::Int(arithmetic(op, left, x, y)),
            (op, Code::Float(x), Code::Float(y)) => {
                Code::Float(Float::Binary(op, left, Box::new((x, y))))
            }
            _ => return Err(self.ill_typed(e, "mixes integers and floats".into())),
        };
        let boolean = op.is_comparison() || op.is_logical();
        Ok((code, if boolean { DType::Bool } else { left }))
    }

    fn select(&self, e: &Expr, c: &Expr, a: &Expr, b: &Expr) -> Compiled {
        let c = self.int(c, DType::Bool)?;
        let (x, left) = self.expr(a)?;
        let (y, right) = self.expr(b)?;
        match (x, y) {
            (Code::Int(x), Code::Int(y)) if left == right => {
                Ok((Code::Int(Int::Select(Box::new((c, x, y)))), left))
            }
            (Code::Float(x), Code::Float(y)) if left == right => {
                Ok((Code::Float(Float::Select(Box::new((c, x, y)))), left))
            }
            _ => Err(self.ill_typed(e, format!("selects from {left} and {right}"))),
        }
    }

    fn cast(&self, to: DType, a: &Expr) -> Result<Code, InterpretError> {
        let code = self.expr(a)?.0;
        Ok(match (code, to.is_float()) {
            (Code::Int(a), true) => Code::Float(Float::FromInt(to, Box::new(a))),
            (Code::Int(a), false) => Code::Int(Int::Convert(to, Box::new(a))),
            (Code::Float(a), true) => Code::Float(Float::Round(to, Box::new(a))),
            (Code::Float(a), false) => Code::Int(Int::FromFloat(to, Box::new(a))),
        })
    }
}

/// Arithmetic on integers; of `i64`, linear combinations become one sum.
fn arithmetic(op: BinaryOp, dtype: DType, x: Int, y: Int) -> Int {
    let linear = match (&x, &y) {
        (
            Int::Linear { constant, terms },
            Int::Linear {
                constant: other,
                terms: others,
            },
        ) if dtype == DType::I64 => match op {
            BinaryOp::Add => Some(sum(*constant, terms, *other, others, 1)),
            BinaryOp::Sub => Some(sum(*constant, terms, *other, others, -1)),
            BinaryOp::Mul if terms.is_empty() => Some(sum(0, &[], *other, others, *constant)),
            BinaryOp::Mul if others.is_empty() => Some(sum(0, &[], *constant, terms, *other)),
            _ => None,
        },
        _ => None,
    };
    linear.unwrap_or_else(|| Int::Binary(op, dtype, Box::new((x, y))))
}

/// `constant + terms + factor * (other + others)`.
fn sum(
    constant: i64,
    terms: &[(usize, i64)],
    other: i64,
    others: &[(usize, i64)],
    factor: i64,
) -> Int {
    let mut terms = terms.to_vec();
    for (var, coefficient) in others {
        let scaled = coefficient.wrapping_mul(factor);
        match terms.iter_mut().find(|t| t.0 == *var) {
            Some(t) => t.1 = t.1.wrapping_add(scaled),
            None => terms.push((*var, scaled)),
        }
    }
    terms.retain(|t| t.1 != 0);
    Int::Linear {
        constant: constant.wrapping_add(other.wrapping_mul(factor)),
        terms,
    }
}
