//! Element types, ranks, constants and arguments of expressions.

use super::{Body, Broken};
use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::program::{Block, BufferId, Reducer};
use crate::text;
use tensor::DType;

pub(super) fn expressions(body: &Body<'_>, broken: &mut Vec<Broken>) {
    for (id, _) in &body.blocks {
        let b = body.p.block(*id);
        let mut check = Check {
            body,
            block: b,
            place: Position::Binding,
            args: vec![],
            broken,
        };
        for i in &b.iters {
            check.expect(&i.binding, DType::I64);
        }
        if let Some(predicate) = &b.predicate {
            check.place = Position::Predicate;
            check.expect(predicate, DType::Bool);
        }
        check.place = Position::Statement;
        for w in &b.writes {
            check.element(w.buffer, &w.indices);
            check.expect(&w.value, body.p.buffer(w.buffer).dtype);
        }
        check.reducer();
    }
}

#[derive(Clone, Copy)]
enum Position {
    Binding,
    Predicate,
    Statement,
    Reducer,
}

struct Check<'a> {
    body: &'a Body<'a>,
    block: &'a Block,
    place: Position,
    /// Types of the reducer's accumulators, in its expressions.
    args: Vec<DType>,
    broken: &'a mut Vec<Broken>,
}

impl Check<'_> {
    fn place(&self) -> String {
        let part = match self.place {
            Position::Binding => "a binding",
            Position::Predicate => "the predicate",
            Position::Statement => "the statement",
            Position::Reducer => "the reducer",
        };
        format!("{part} of block `{}`", self.block.name)
    }

    fn text(&self, e: &Expr) -> String {
        text::expr(self.body.p, e)
    }

    fn reducer(&mut self) {
        let dtypes = self.block.writes.iter();
        let dtypes: Vec<DType> = dtypes.map(|w| self.body.p.buffer(w.buffer).dtype).collect();
        let block = self.block;
        let Some(r) = &block.reduction else { return };
        self.place = Position::Reducer;
        match &r.reducer {
            Reducer::Tuple { combine, identity } => {
                if combine.len() != dtypes.len() || identity.len() != dtypes.len() {
                    self.broken.push(Broken::Arity {
                        block: block.name.clone(),
                        writes: dtypes.len(),
                        combine: combine.len(),
                        identity: identity.len(),
                    });
                    return;
                }
                for (e, d) in identity.iter().zip(&dtypes) {
                    self.expect(e, *d);
                }
                self.args = dtypes.clone();
                for (e, d) in combine.iter().zip(&dtypes) {
                    self.expect(e, *d);
                }
                self.args.clear();
            }
            Reducer::Sum | Reducer::Prod => {
                for w in block
                    .writes
                    .iter()
                    .filter(|w| self.body.p.buffer(w.buffer).dtype == DType::Bool)
                {
                    self.mismatch(&w.value, "a number", DType::Bool);
                }
            }
            Reducer::Min | Reducer::Max => {}
        }
    }

    fn mismatch(&mut self, e: &Expr, expected: impl Into<String>, found: DType) {
        let (place, expr) = (self.place(), self.text(e));
        self.broken.push(Broken::Type {
            place,
            expr,
            expected: expected.into(),
            found,
        });
    }

    fn expect(&mut self, e: &Expr, dtype: DType) {
        let found = self.dtype(e);
        if found != dtype {
            self.mismatch(e, dtype.name(), found);
        }
    }

    /// The type of an operand, which `holds` of.
    fn operand(&mut self, e: &Expr, holds: fn(DType) -> bool, expected: &str) -> DType {
        let found = self.dtype(e);
        if !holds(found) {
            self.mismatch(e, expected, found);
        }
        found
    }

    fn element(&mut self, id: BufferId, indices: &[Expr]) {
        let buffer = self.body.p.buffer(id);
        if buffer.shape.len() != indices.len() {
            let place = self.place();
            self.broken.push(Broken::Rank {
                place,
                buffer: buffer.name.clone(),
                rank: buffer.shape.len(),
                indices: indices.len(),
            });
        }
        for i in indices {
            self.expect(i, DType::I64);
        }
    }

    /// The type of `e`, reporting what disagrees inside it.
    fn dtype(&mut self, e: &Expr) -> DType {
        match e.kind() {
            ExprKind::Int(v, d) => {
                self.constant(e, holds(*v, *d));
                *d
            }
            ExprKind::Float(bits, d) => {
                let v = f64::from_bits(*bits);
                let rounded = Expr::constant(v, *d);
                let exact = rounded.as_float().is_some_and(|r| r.is_nan() == v.is_nan());
                self.constant(e, exact && (v.is_nan() || rounded.kind() == e.kind()));
                *d
            }
            ExprKind::Var(_) => DType::I64,
            ExprKind::Arg(i, d) => {
                let n = self.args.len();
                let i = *i as usize;
                if i >= 2 * n || self.args[i % n] != *d {
                    let (place, expr) = (self.place(), self.text(e));
                    self.broken.push(Broken::Argument { place, expr });
                }
                *d
            }
            ExprKind::Load(b, indices) => {
                self.element(*b, indices);
                self.body.p.buffer(*b).dtype
            }
            ExprKind::Unary(op, a) => match op {
                UnaryOp::Not => {
                    self.expect(a, DType::Bool);
                    DType::Bool
                }
                UnaryOp::Neg | UnaryOp::Abs => self.operand(a, computes, "a number"),
                UnaryOp::Bits => {
                    self.expect(a, DType::F32);
                    DType::I32
                }
                _ => self.operand(a, DType::is_float, "a float"),
            },
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b),
            ExprKind::Select(c, a, b) => {
                self.expect(c, DType::Bool);
                let d = self.dtype(a);
                self.expect(b, d);
                d
            }
            ExprKind::Cast(d, a) => {
                let found = self.dtype(a);
                if found.is_float() && d.is_stored_only() {
                    self.mismatch(a, "an integer", found);
                }
                if found.is_stored_only() && d.is_float() {
                    self.mismatch(a, "a type to compute with", found);
                }
                *d
            }
        }
    }

    fn constant(&mut self, e: &Expr, valid: bool) {
        if !valid {
            let (place, expr) = (self.place(), self.text(e));
            self.broken.push(Broken::Constant { place, expr });
        }
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr) -> DType {
        let left = match op {
            BinaryOp::And | BinaryOp::Or => {
                self.expect(a, DType::Bool);
                DType::Bool
            }
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::FloorDiv
            | BinaryOp::FloorMod
            | BinaryOp::Pow => self.operand(a, computes, "a number"),
            BinaryOp::BitAnd
            | BinaryOp::BitOr
            | BinaryOp::BitXor
            | BinaryOp::Shl
            | BinaryOp::Shr => self.operand(a, DType::is_int, "an integer"),
            BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::Eq
            | BinaryOp::Ne
            | BinaryOp::Lt
            | BinaryOp::Le => {
                let orders = |d: DType| !d.is_stored_only();
                self.operand(a, orders, "a type to compute with")
            }
        };
        self.expect(b, left);
        if op.is_comparison() || op.is_logical() {
            DType::Bool
        } else {
            left
        }
    }
}

fn computes(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_int()
}

fn holds(v: i64, dtype: DType) -> bool {
    match dtype {
        DType::I8 => i8::try_from(v).is_ok(),
        DType::U8 => u8::try_from(v).is_ok(),
        DType::I32 => i32::try_from(v).is_ok(),
        DType::I16 => i16::try_from(v).is_ok(),
        DType::U16 => u16::try_from(v).is_ok(),
        DType::U32 => u32::try_from(v).is_ok(),
        // Values of u64 are held as their bits.
        DType::I64 | DType::U64 => true,
        DType::Bool => v == 0 || v == 1,
        _ => false,
    }
}
