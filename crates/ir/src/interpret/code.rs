//! Expressions compiled for evaluation: typed, with variables as slots and
//! linear indices as sums.

use super::InterpretError;
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::{BufferId, Program};
use crate::text;
use std::collections::HashMap;
use tensor::DType;

/// `constant` plus coefficients times variables, in wrapping `i64`.
pub(super) struct Linear {
    pub constant: i64,
    pub terms: Vec<(usize, i64)>,
}

/// An expression whose value is an integer or bool.
pub(super) enum Int {
    Linear(Linear),
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
    /// Of an `f32`.
    Bits(Box<Float>),
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
    pub offset: Offset,
}

/// The row-major offset of an element.
pub(super) enum Offset {
    /// Never outside the buffer.
    Inside(Linear),
    /// Index and extent of each dimension.
    Checked(Vec<(Int, i64)>),
}

type Compiled = Result<(Code, DType), InterpretError>;

/// Compiles the expressions of one place of a program.
pub(super) struct Compiler<'a> {
    program: &'a Program,
    place: String,
    /// Types of a reducer's arguments, in its expressions.
    args: Vec<DType>,
    /// Variables that are known to lie in `0..extent`.
    extents: HashMap<usize, i64>,
}

impl<'a> Compiler<'a> {
    pub fn new(program: &'a Program, place: String) -> Compiler<'a> {
        Compiler {
            program,
            place,
            args: vec![],
            extents: HashMap::new(),
        }
    }

    pub fn with_args(self, args: Vec<DType>) -> Compiler<'a> {
        Compiler { args, ..self }
    }

    pub fn with_extents(self, extents: HashMap<usize, i64>) -> Compiler<'a> {
        Compiler { extents, ..self }
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
        let indices = indices.collect::<Result<Vec<_>, InterpretError>>()?;
        let offset = match self.inside(&indices) {
            Some(offset) => Offset::Inside(offset),
            None => Offset::Checked(indices),
        };
        Ok(Access { buffer: id, offset })
    }

    /// The offset, if it is linear and no index can leave its extent.
    fn inside(&self, indices: &[(Int, i64)]) -> Option<Linear> {
        let mut offset = Linear::constant(0);
        for (index, extent) in indices {
            let Int::Linear(index) = index else {
                return None;
            };
            let (mut lo, mut hi) = (i128::from(index.constant), i128::from(index.constant));
            for (var, coefficient) in &index.terms {
                let last = i128::from(*self.extents.get(var)?) - 1;
                let reach = last * i128::from(*coefficient);
                lo += reach.min(0);
                hi += reach.max(0);
            }
            if lo < 0 || hi >= i128::from(*extent) {
                return None;
            }
            offset = Linear::constant(0).plus(&offset, *extent).plus(index, 1);
        }
        Some(offset)
    }

    pub fn expr(&self, e: &Expr) -> Compiled {
        match e.kind() {
            ExprKind::Int(v, d) => Ok((Code::Int(Int::Linear(Linear::constant(*v))), *d)),
            ExprKind::Float(bits, d) => {
                let v = f64::from_bits(*bits);
                Ok((Code::Float(Float::Constant(v)), *d))
            }
            ExprKind::Var(v) => {
                let linear = Linear {
                    constant: 0,
                    terms: vec![(v.index(), 1)],
                };
                Ok((Code::Int(Int::Linear(linear)), DType::I64))
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
            UnaryOp::Bits => dtype == DType::F32,
            _ => dtype.is_float(),
        };
        if !takes {
            let reason = format!("applies {} to {dtype}", op.name());
            return Err(self.ill_typed(e, reason));
        }
        let code = match code {
            Code::Int(Int::Linear(a)) if op == UnaryOp::Neg && dtype == DType::I64 => {
                Code::Int(Int::Linear(Linear::constant(0).plus(&a, -1)))
            }
            Code::Int(a) => Code::Int(Int::Unary(op, dtype, Box::new(a))),
            Code::Float(a) if op == UnaryOp::Bits => Code::Int(Int::Bits(Box::new(a))),
            Code::Float(a) => Code::Float(Float::Unary(op, dtype, Box::new(a))),
        };
        Ok((code, op.result(dtype)))
    }

    fn binary(&self, e: &Expr, op: BinaryOp, a: &Expr, b: &Expr) -> Compiled {
        let (x, left) = self.expr(a)?;
        let (y, right) = self.expr(b)?;
        let takes = match op {
            BinaryOp::And | BinaryOp::Or => left == DType::Bool,
            BinaryOp::Min | BinaryOp::Max => true,
            op if op.is_comparison() => true,
            op if op.is_bitwise() => left.is_int(),
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
    let sum = match (&x, &y) {
        (Int::Linear(a), Int::Linear(b)) if dtype == DType::I64 => match op {
            BinaryOp::Add => Some(Linear::constant(0).plus(a, 1).plus(b, 1)),
            BinaryOp::Sub => Some(Linear::constant(0).plus(a, 1).plus(b, -1)),
            BinaryOp::Mul if a.terms.is_empty() => Some(Linear::constant(0).plus(b, a.constant)),
            BinaryOp::Mul if b.terms.is_empty() => Some(Linear::constant(0).plus(a, b.constant)),
            _ => None,
        },
        _ => None,
    };
    match sum {
        Some(sum) => Int::Linear(sum),
        None => Int::Binary(op, dtype, Box::new((x, y))),
    }
}

impl Linear {
    fn constant(constant: i64) -> Linear {
        let terms = vec![];
        Linear { constant, terms }
    }

    /// `self + factor * other`.
    fn plus(mut self, other: &Linear, factor: i64) -> Linear {
        let constant = other.constant.wrapping_mul(factor);
        self.constant = self.constant.wrapping_add(constant);
        for (var, coefficient) in &other.terms {
            let scaled = coefficient.wrapping_mul(factor);
            match self.terms.iter_mut().find(|t| t.0 == *var) {
                Some(t) => t.1 = t.1.wrapping_add(scaled),
                None => self.terms.push((*var, scaled)),
            }
        }
        self.terms.retain(|t| t.1 != 0);
        self
    }
}
