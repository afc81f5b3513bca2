//! Scalar expressions: immutable trees with shared children.
//!
//! Indices are `i64`. Integer arithmetic wraps at the width of its type;
//! `FloorDiv` and `FloorMod` round towards minus infinity; `Div` on integers
//! truncates towards zero. Integer division by zero and, in `interpret`, an
//! out-of-range load are errors, not values. `Select` is lazy: only the chosen
//! side is evaluated, so a load that its condition guards is never performed.
//! `And` and `Or` evaluate the right side only when the left does not decide.

use crate::program::{BufferId, Program, VarId};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use tensor::DType;

/// A table by expressions, which keep their hash: to look one up that is shared takes no walk.
pub type ExprMap<T> = HashMap<Expr, T, BuildHasherDefault<Mixer>>;

/// A scalar expression. Cloning shares the tree.
#[derive(Clone, PartialEq, Eq)]
pub struct Expr(Arc<Tree>);

#[derive(PartialEq, Eq)]
struct Tree {
    /// First: most unequal trees differ here.
    facts: Facts,
    kind: ExprKind,
}

/// What can be told of a tree without walking it, so that most walks end early:
/// steps ask again and again which variables and buffers an expression uses.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Facts {
    /// Bit `v % 64` for every variable `v`.
    vars: u64,
    loads: bool,
    hash: u32,
}

impl Facts {
    fn of(kind: &ExprKind) -> Facts {
        let mut hasher = Mixer::default();
        kind.hash(&mut hasher);
        Facts {
            hash: (hasher.finish() >> u32::BITS) as u32,
            ..Facts::of_parts(kind)
        }
    }

    /// All but the hash.
    fn of_parts(kind: &ExprKind) -> Facts {
        let none = Facts {
            vars: 0,
            loads: false,
            hash: 0,
        };
        match kind {
            ExprKind::Int(..) | ExprKind::Float(..) | ExprKind::Arg(..) => none,
            ExprKind::Var(v) => Facts {
                vars: Facts::bit(*v),
                ..none
            },
            ExprKind::Load(_, indices) => {
                let vars = indices.iter().fold(0, |all, i| all | i.0.facts.vars);
                Facts {
                    vars,
                    loads: true,
                    ..none
                }
            }
            ExprKind::Unary(_, a) | ExprKind::Cast(_, a) => a.0.facts,
            ExprKind::Binary(_, a, b) => a.0.facts.with(b),
            ExprKind::Select(c, a, b) => c.0.facts.with(a).with(b),
        }
    }

    fn with(self, e: &Expr) -> Facts {
        Facts {
            vars: self.vars | e.0.facts.vars,
            loads: self.loads || e.0.facts.loads,
            ..self
        }
    }

    fn bit(v: VarId) -> u64 {
        1 << (v.0 % u64::BITS)
    }
}

impl Hash for Expr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0.facts.hash);
    }
}

/// A hasher of a few words. It is run for every node that is made.
#[derive(Default)]
pub struct Mixer(u64);

impl Mixer {
    fn word(&mut self, word: u64) {
        // 2^64 over the golden ratio: it is odd, so no word is lost.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.word(u64::from(*b)));
    }

    fn write_u32(&mut self, word: u32) {
        self.word(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.word(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum ExprKind {
    /// An integer or boolean (0 or 1) constant, within the range of its type.
    Int(i64, DType),
    /// A floating-point constant: the bits of an `f64`, already rounded to its type.
    Float(u64, DType),
    /// A loop or block-iteration variable; always `i64`.
    Var(VarId),
    /// Argument of a tuple reducer: `0..n` are the accumulators, `n..2n` the incoming terms.
    Arg(u32, DType),
    /// One element of a buffer. An index may itself contain a load.
    Load(BufferId, Vec<Expr>),
    Unary(UnaryOp, Expr),
    Binary(BinaryOp, Expr, Expr),
    /// condition (bool), value if true, value if false.
    Select(Expr, Expr, Expr),
    /// Conversion: float to integer truncates and saturates, to a narrower
    /// integer wraps, to bool tests for non-zero.
    Cast(DType, Expr),
}

/// Operators of one operand. All but `Neg`, `Abs` and `Not` take floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    Neg,
    Abs,
    Not,
    Exp,
    Log,
    Sqrt,
    /// 1 / sqrt(x).
    Rsqrt,
    Tanh,
    Erf,
    /// Of an angle in radians, as `Cos` and `Tan`.
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
    /// To the nearest integer, ties to even.
    Round,
    Floor,
    Ceil,
    /// The bits of an `f32` as an `i32`.
    Bits,
}

/// Operators of two operands of one type; comparisons and `And`/`Or` give bool.
/// `Min` and `Max` of floats give a NaN if an operand is one. Which of two zeros of
/// different signs they give is left open; the interpreter gives the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    FloorMod,
    Min,
    Max,
    Pow,
    And,
    Or,
    Eq,
    Ne,
    Lt,
    Le,
    /// Of the bits of integers, as the four below.
    BitAnd,
    BitOr,
    BitXor,
    /// A shift by less than 0, or by the width or more, moves all bits out.
    Shl,
    /// Fills with the sign.
    Shr,
}

impl UnaryOp {
    pub const ALL: [UnaryOp; 24] = [
        UnaryOp::Neg,
        UnaryOp::Abs,
        UnaryOp::Not,
        UnaryOp::Exp,
        UnaryOp::Log,
        UnaryOp::Sqrt,
        UnaryOp::Rsqrt,
        UnaryOp::Tanh,
        UnaryOp::Erf,
        UnaryOp::Sin,
        UnaryOp::Cos,
        UnaryOp::Tan,
        UnaryOp::Asin,
        UnaryOp::Acos,
        UnaryOp::Atan,
        UnaryOp::Sinh,
        UnaryOp::Cosh,
        UnaryOp::Asinh,
        UnaryOp::Acosh,
        UnaryOp::Atanh,
        UnaryOp::Round,
        UnaryOp::Floor,
        UnaryOp::Ceil,
        UnaryOp::Bits,
    ];

    /// Whether it is computed by a polynomial or worse, not by an instruction.
    pub const fn is_transcendental(self) -> bool {
        use UnaryOp::{Abs, Bits, Ceil, Floor, Neg, Not, Round, Rsqrt, Sqrt};
        !matches!(
            self,
            Neg | Abs | Not | Sqrt | Rsqrt | Round | Floor | Ceil | Bits
        )
    }

    /// The name in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            UnaryOp::Neg => "neg",
            UnaryOp::Abs => "abs",
            UnaryOp::Not => "not",
            UnaryOp::Exp => "exp",
            UnaryOp::Log => "log",
            UnaryOp::Sqrt => "sqrt",
            UnaryOp::Rsqrt => "rsqrt",
            UnaryOp::Tanh => "tanh",
            UnaryOp::Erf => "erf",
            UnaryOp::Sin => "sin",
            UnaryOp::Cos => "cos",
            UnaryOp::Tan => "tan",
            UnaryOp::Asin => "asin",
            UnaryOp::Acos => "acos",
            UnaryOp::Atan => "atan",
            UnaryOp::Sinh => "sinh",
            UnaryOp::Cosh => "cosh",
            UnaryOp::Asinh => "asinh",
            UnaryOp::Acosh => "acosh",
            UnaryOp::Atanh => "atanh",
            UnaryOp::Round => "round",
            UnaryOp::Floor => "floor",
            UnaryOp::Ceil => "ceil",
            UnaryOp::Bits => "bits_of",
        }
    }

    /// The type of the result of an operand of a type.
    pub fn result(self, operand: DType) -> DType {
        match self {
            UnaryOp::Bits => DType::I32,
            _ => operand,
        }
    }
}

impl BinaryOp {
    pub const ALL: [BinaryOp; 20] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::FloorDiv,
        BinaryOp::FloorMod,
        BinaryOp::Min,
        BinaryOp::Max,
        BinaryOp::Pow,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Eq,
        BinaryOp::Ne,
        BinaryOp::Lt,
        BinaryOp::Le,
        BinaryOp::BitAnd,
        BinaryOp::BitOr,
        BinaryOp::BitXor,
        BinaryOp::Shl,
        BinaryOp::Shr,
    ];

    /// Whether the result is bool whatever the operands are.
    pub const fn is_comparison(self) -> bool {
        matches!(
            self,
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le
        )
    }

    pub const fn is_logical(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or)
    }

    /// Whether it takes integers only and works on their bits.
    pub const fn is_bitwise(self) -> bool {
        use BinaryOp::{BitAnd, BitOr, BitXor, Shl, Shr};
        matches!(self, BitAnd | BitOr | BitXor | Shl | Shr)
    }

    /// `a op b` of a bitwise operator on integers of type `d`, within its range.
    pub fn bits(self, a: i64, b: i64, d: DType) -> i64 {
        let within = (0..d.bits() as i64).contains(&b);
        match self {
            BinaryOp::BitAnd => a & b,
            BinaryOp::BitOr => a | b,
            BinaryOp::BitXor => a ^ b,
            BinaryOp::Shl if within => a.wrapping_shl(b as u32),
            BinaryOp::Shl => 0,
            BinaryOp::Shr => a >> if within { b } else { 63 },
            _ => unreachable!("{} is not bitwise", self.name()),
        }
    }

    /// The symbol (`a + b`) or function name (`min(a, b)`) in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            BinaryOp::FloorDiv => "//",
            BinaryOp::FloorMod => "%",
            BinaryOp::Min => "min",
            BinaryOp::Max => "max",
            BinaryOp::Pow => "pow",
            BinaryOp::And => "and",
            BinaryOp::Or => "or",
            BinaryOp::Eq => "==",
            BinaryOp::Ne => "!=",
            BinaryOp::Lt => "<",
            BinaryOp::Le => "<=",
            BinaryOp::BitAnd => "bit_and",
            BinaryOp::BitOr => "bit_or",
            BinaryOp::BitXor => "bit_xor",
            BinaryOp::Shl => "shl",
            BinaryOp::Shr => "shr",
        }
    }
}

impl From<ExprKind> for Expr {
    fn from(kind: ExprKind) -> Expr {
        let facts = Facts::of(&kind);
        Expr(Arc::new(Tree { facts, kind }))
    }
}

impl Expr {
    pub fn kind(&self) -> &ExprKind {
        &self.0.kind
    }

    /// An index constant (`i64`).
    pub fn int(v: i64) -> Expr {
        ExprKind::Int(v, DType::I64).into()
    }

    pub fn bool(v: bool) -> Expr {
        ExprKind::Int(i64::from(v), DType::Bool).into()
    }

    /// A constant of any type, rounded or wrapped to it.
    pub fn constant(v: f64, dtype: DType) -> Expr {
        match dtype {
            DType::F64 => ExprKind::Float(v.to_bits(), dtype),
            DType::F32 => ExprKind::Float(f64::from(v as f32).to_bits(), dtype),
            DType::F16 | DType::BF16 => {
                let mut t = tensor::Tensor::zeros(dtype, &[1]);
                t.set_f64(0, v);
                ExprKind::Float(t.get_f64(0).to_bits(), dtype)
            }
            _ => {
                let mut t = tensor::Tensor::zeros(dtype, &[1]);
                t.set_f64(0, v);
                ExprKind::Int(t.get_i64(0), dtype)
            }
        }
        .into()
    }

    pub fn f32(v: f32) -> Expr {
        Expr::constant(f64::from(v), DType::F32)
    }

    pub fn var(v: VarId) -> Expr {
        ExprKind::Var(v).into()
    }

    pub fn arg(i: u32, dtype: DType) -> Expr {
        ExprKind::Arg(i, dtype).into()
    }

    pub fn load(buffer: BufferId, indices: impl Into<Vec<Expr>>) -> Expr {
        ExprKind::Load(buffer, indices.into()).into()
    }

    pub fn unary(op: UnaryOp, a: impl Into<Expr>) -> Expr {
        ExprKind::Unary(op, a.into()).into()
    }

    pub fn binary(op: BinaryOp, a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
        ExprKind::Binary(op, a.into(), b.into()).into()
    }

    pub fn select(c: impl Into<Expr>, a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
        ExprKind::Select(c.into(), a.into(), b.into()).into()
    }

    pub fn cast(self, dtype: DType) -> Expr {
        ExprKind::Cast(dtype, self).into()
    }

    pub fn floor_div(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::FloorDiv, self, b)
    }

    pub fn floor_mod(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::FloorMod, self, b)
    }

    pub fn min(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Min, self, b)
    }

    pub fn max(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Max, self, b)
    }

    pub fn and(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::And, self, b)
    }

    pub fn or(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Or, self, b)
    }

    pub fn lt(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Lt, self, b)
    }

    pub fn le(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Le, self, b)
    }

    pub fn ge(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Le, b, self)
    }

    pub fn equals(self, b: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Eq, self, b)
    }

    /// The value, if this is an integer or boolean constant.
    pub fn as_int(&self) -> Option<i64> {
        match self.kind() {
            ExprKind::Int(v, _) => Some(*v),
            _ => None,
        }
    }

    /// The value, if this is a floating-point constant.
    pub fn as_float(&self) -> Option<f64> {
        match self.kind() {
            ExprKind::Float(bits, _) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }

    pub fn as_var(&self) -> Option<VarId> {
        match self.kind() {
            ExprKind::Var(v) => Some(*v),
            _ => None,
        }
    }

    /// The element type of the value. Operands are taken to agree (the verifier checks it).
    pub fn dtype(&self, program: &Program) -> DType {
        match self.kind() {
            ExprKind::Int(_, d) | ExprKind::Float(_, d) | ExprKind::Arg(_, d) => *d,
            ExprKind::Var(_) => DType::I64,
            ExprKind::Load(b, _) => program.buffer(*b).dtype,
            ExprKind::Unary(op, a) => op.result(a.dtype(program)),
            ExprKind::Binary(op, ..) if op.is_comparison() || op.is_logical() => DType::Bool,
            ExprKind::Binary(_, a, _) => a.dtype(program),
            ExprKind::Select(_, a, _) => a.dtype(program),
            ExprKind::Cast(d, _) => *d,
        }
    }

    /// The direct operands, in evaluation order.
    pub fn children(&self) -> impl Iterator<Item = &Expr> {
        let (list, fixed): (&[Expr], [Option<&Expr>; 3]) = match self.kind() {
            ExprKind::Int(..) | ExprKind::Float(..) | ExprKind::Var(_) | ExprKind::Arg(..) => {
                (&[], [None; 3])
            }
            ExprKind::Load(_, indices) => (indices, [None; 3]),
            ExprKind::Unary(_, a) | ExprKind::Cast(_, a) => (&[], [Some(a), None, None]),
            ExprKind::Binary(_, a, b) => (&[], [Some(a), Some(b), None]),
            ExprKind::Select(c, a, b) => (&[], [Some(c), Some(a), Some(b)]),
        };
        list.iter().chain(fixed.into_iter().flatten())
    }

    /// The same operator over operands mapped by `f`; shares the tree when none changes.
    pub fn map_children(&self, mut f: impl FnMut(&Expr) -> Expr) -> Expr {
        let kind = match self.kind() {
            ExprKind::Int(..) | ExprKind::Float(..) | ExprKind::Var(_) | ExprKind::Arg(..) => {
                return self.clone();
            }
            // Most loads of lowered code. What stays needs no list.
            ExprKind::Load(b, indices) if indices.len() == 1 => {
                let offset = f(&indices[0]);
                if offset == indices[0] {
                    return self.clone();
                }
                return Expr::load(*b, [offset]);
            }
            ExprKind::Load(b, indices) => ExprKind::Load(*b, indices.iter().map(f).collect()),
            ExprKind::Unary(op, a) => ExprKind::Unary(*op, f(a)),
            ExprKind::Cast(d, a) => ExprKind::Cast(*d, f(a)),
            ExprKind::Binary(op, a, b) => {
                let a = f(a);
                ExprKind::Binary(*op, a, f(b))
            }
            ExprKind::Select(c, a, b) => {
                let c = f(c);
                let a = f(a);
                ExprKind::Select(c, a, f(b))
            }
        };
        if kind == *self.kind() {
            self.clone()
        } else {
            kind.into()
        }
    }

    /// Rewrites bottom-up: `f` sees each node after its operands were rewritten
    /// and may replace it.
    pub fn rewrite(&self, f: &mut impl FnMut(&Expr) -> Option<Expr>) -> Expr {
        let mapped = self.map_children(|c| c.rewrite(f));
        f(&mapped).unwrap_or(mapped)
    }

    /// Puts `f(buffer, indices)` for every load, if that is something, after the loads in its
    /// indices were replaced. What does not load is shared and not walked.
    pub fn map_loads(&self, f: &mut impl FnMut(BufferId, &[Expr]) -> Option<Expr>) -> Expr {
        if !self.0.facts.loads {
            return self.clone();
        }
        let mapped = self.map_children(|c| c.map_loads(f));
        let other = match mapped.kind() {
            ExprKind::Load(b, indices) => f(*b, indices),
            _ => None,
        };
        other.unwrap_or(mapped)
    }

    /// Calls `f` on this node and every node below it, parents first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        // By hand rather than over `children`: steps spend much of their time here.
        match self.kind() {
            ExprKind::Int(..) | ExprKind::Float(..) | ExprKind::Var(_) | ExprKind::Arg(..) => {}
            ExprKind::Load(_, indices) => indices.iter().for_each(|i| i.visit(f)),
            ExprKind::Unary(_, a) | ExprKind::Cast(_, a) => a.visit(f),
            ExprKind::Binary(_, a, b) => {
                a.visit(f);
                b.visit(f);
            }
            ExprKind::Select(c, a, b) => {
                c.visit(f);
                a.visit(f);
                b.visit(f);
            }
        }
    }

    /// Replaces variables for which `f` gives an expression.
    pub fn substitute(&self, f: &impl Fn(VarId) -> Option<Expr>) -> Expr {
        if self.0.facts.vars == 0 {
            return self.clone();
        }
        match self.as_var() {
            Some(v) => f(v).unwrap_or_else(|| self.clone()),
            None => self.map_children(|c| c.substitute(f)),
        }
    }

    /// Whether the variable may occur: false if it does not for sure. Takes no walk.
    pub fn may_use_var(&self, v: VarId) -> bool {
        self.0.facts.vars & Facts::bit(v) != 0
    }

    /// Replaces one variable. What does not use it is shared and not walked.
    pub fn with_var(&self, var: VarId, by: &Expr) -> Expr {
        if !self.may_use_var(var) {
            return self.clone();
        }
        match self.as_var() {
            Some(v) if v == var => by.clone(),
            Some(_) => self.clone(),
            None => self.map_children(|c| c.with_var(var, by)),
        }
    }

    /// Whether any node satisfies `f`.
    pub fn any(&self, f: &impl Fn(&Expr) -> bool) -> bool {
        f(self)
            || match self.kind() {
                ExprKind::Int(..) | ExprKind::Float(..) | ExprKind::Var(_) | ExprKind::Arg(..) => {
                    false
                }
                ExprKind::Load(_, indices) => indices.iter().any(|i| i.any(f)),
                ExprKind::Unary(_, a) | ExprKind::Cast(_, a) => a.any(f),
                ExprKind::Binary(_, a, b) => a.any(f) || b.any(f),
                ExprKind::Select(c, a, b) => c.any(f) || a.any(f) || b.any(f),
            }
    }

    pub fn uses_var(&self, v: VarId) -> bool {
        self.may_use_var(v) && (self.as_var() == Some(v) || self.children().any(|c| c.uses_var(v)))
    }

    /// Calls `f` on every load, outer ones first.
    pub fn visit_loads<'a>(&'a self, f: &mut impl FnMut(BufferId, &'a [Expr])) {
        if !self.0.facts.loads {
            return;
        }
        if let ExprKind::Load(b, indices) = self.kind() {
            f(*b, indices);
        }
        self.children().for_each(|c| c.visit_loads(f));
    }

    /// Whether any node loads.
    pub fn loads(&self) -> bool {
        self.0.facts.loads
    }

    /// The distinct variables, in order of first appearance.
    pub fn vars(&self) -> Vec<VarId> {
        fn go(e: &Expr, out: &mut Vec<VarId>) {
            match e.as_var() {
                Some(v) if out.contains(&v) => {}
                Some(v) => out.push(v),
                None if e.0.facts.vars == 0 => {}
                None => e.children().for_each(|c| go(c, out)),
            }
        }
        let mut out = Vec::new();
        go(self, &mut out);
        out
    }
}

impl From<i64> for Expr {
    fn from(v: i64) -> Expr {
        Expr::int(v)
    }
}

impl From<VarId> for Expr {
    fn from(v: VarId) -> Expr {
        Expr::var(v)
    }
}

impl From<&Expr> for Expr {
    fn from(e: &Expr) -> Expr {
        e.clone()
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident $op:ident),*) => { $(
        impl<T: Into<Expr>> std::ops::$trait<T> for Expr {
            type Output = Expr;
            fn $method(self, b: T) -> Expr {
                Expr::binary(BinaryOp::$op, self, b)
            }
        }
        impl<T: Into<Expr>> std::ops::$trait<T> for &Expr {
            type Output = Expr;
            fn $method(self, b: T) -> Expr {
                Expr::binary(BinaryOp::$op, self, b)
            }
        }
    )* };
}
operator!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl std::ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        Expr::unary(UnaryOp::Neg, self)
    }
}

impl std::fmt::Debug for Expr {
    /// Structural form with raw ids; `text::print` gives the readable one.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind() {
            ExprKind::Int(v, d) => write!(f, "{v}{d}"),
            ExprKind::Float(b, d) => write!(f, "{}{d}", f64::from_bits(*b)),
            ExprKind::Var(v) => write!(f, "v{}", v.0),
            ExprKind::Arg(i, _) => write!(f, "arg{i}"),
            ExprKind::Load(b, i) => write!(f, "b{}{i:?}", b.0),
            ExprKind::Unary(op, a) => write!(f, "{}({a:?})", op.name()),
            ExprKind::Binary(op, a, b) => write!(f, "({a:?} {} {b:?})", op.name()),
            ExprKind::Select(c, a, b) => write!(f, "select({c:?}, {a:?}, {b:?})"),
            ExprKind::Cast(d, a) => write!(f, "{d}({a:?})"),
        }
    }
}
