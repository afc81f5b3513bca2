//! Element-wise operators as scalar expressions.

use super::{Env, Kind, work};
use graph::ops::{BatchNorm, Binary, Gelu, Op, Unary};
use graph::{Model, Node, ValueId};
use ir::names::MAIN;
use ir::{BinaryOp, BufferId, Expr, ExprKind, ProgramBuilder, UnaryOp};
use tensor::DType;

/// A group of element-wise nodes only: one block.
pub(super) fn pointwise(env: &Env, b: &mut ProgramBuilder) -> (BufferId, Kind) {
    let axes = env.axes();
    let result = b.compute(MAIN.as_str(), &axes.list(), |s| {
        let p = env.point(s);
        // The anchor is in the chain, so this value is replaced.
        env.follow(Expr::constant(0.0, work(env.dtype)), &p)
    });
    let mut kind = Kind::new("elementwise").arg("nodes", env.group.chain.len() + 1);
    for (d, n) in env.shape.iter().enumerate() {
        kind = kind.arg(&format!("d{d}"), *n);
    }
    if let Some(block) = env.layout.block() {
        kind = kind.arg("block", block);
    }
    (result, kind)
}

/// Why an element-wise operator has no expression on this element type.
pub(crate) fn unsupported(op: &Op, dtype: DType) -> Option<String> {
    let Op::Binary(b) = op else { return None };
    match b {
        Binary::Mod | Binary::Fmod if dtype.is_float() => {
            Some("an exact floating-point remainder".into())
        }
        _ => None,
    }
}

/// How large the expression of a value is, a shared part counted wherever it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub nodes: usize,
    /// Operators on the longest way down.
    pub depth: usize,
}

impl Extent {
    /// One element of a tensor, or a constant.
    pub const LEAF: Extent = Extent { nodes: 1, depth: 0 };

    pub fn fits(self, limit: Extent) -> bool {
        self.nodes <= limit.nodes && self.depth <= limit.depth
    }
}

/// The extent of an element-wise node's result from those of its operands.
pub(crate) fn extent(model: &Model, node: &Node, operands: impl Fn(ValueId) -> Extent) -> Extent {
    let values = || node.inputs.iter().flatten().copied();
    let dtype = values().next().map_or(DType::F32, |v| model[v].dtype());
    let argument = |(i, v): (u32, ValueId)| {
        literal(model, v).unwrap_or_else(|| Expr::arg(i, work(model[v].dtype())))
    };
    let arguments: Vec<Expr> = (0..).zip(values()).map(argument).collect();
    let operands: Vec<Extent> = values().map(operands).collect();
    if node.op == Op::Lookup {
        return Extent {
            nodes: operands[0].nodes.saturating_add(2),
            depth: operands[0].depth.saturating_add(2),
        };
    }
    extent_of(&apply(&node.op, dtype, &arguments), &operands)
}

fn extent_of(e: &Expr, operands: &[Extent]) -> Extent {
    if let ExprKind::Arg(i, _) = e.kind() {
        return operands[*i as usize];
    }
    let below = e.children().map(|c| extent_of(c, operands));
    below.fold(Extent::LEAF, |all, child| Extent {
        nodes: all.nodes.saturating_add(child.nodes),
        depth: all.depth.max(child.depth.saturating_add(1)),
    })
}

/// The value of a constant of one element.
pub(super) fn literal(model: &Model, v: ValueId) -> Option<Expr> {
    let t = model.constant(v).filter(|t| t.len() == 1)?;
    let dtype = work(t.dtype());
    Some(if dtype.is_float() {
        Expr::constant(t.get_f64(0), dtype)
    } else {
        ExprKind::Int(t.get_i64(0), dtype).into()
    })
}

/// The operator on operands in the working type of `dtype`, that of operand 0.
pub(super) fn apply(op: &Op, dtype: DType, operands: &[Expr]) -> Expr {
    let dtype = work(dtype);
    match op {
        Op::Unary(u) => unary(*u, dtype, &operands[0]),
        Op::Binary(b) => binary(*b, dtype, &operands[0], &operands[1]),
        Op::Where => Expr::select(&operands[0], &operands[1], &operands[2]),
        Op::Cast(to) => cast(&operands[0], dtype, *to),
        // The element of the table, which is read there.
        Op::Lookup => operands[1].clone(),
        Op::BatchNorm(n) => batch_norm(*n, dtype, operands),
        _ => unreachable!("{} is not element-wise", op.name()),
    }
}

/// `from` is a working type; the result is of the working type of `to`, rounded to `to`.
fn cast(x: &Expr, from: DType, to: DType) -> Expr {
    if from == to {
        return x.clone();
    }
    let narrow = matches!(to, DType::I8 | DType::U8 | DType::I32);
    if let Some(open) = without_clip(x, to) {
        return open.cast(to);
    }
    // Through i64, so that what does not fit wraps.
    let x = if from.is_float() && narrow {
        x.clone().cast(DType::I64)
    } else {
        x.clone()
    };
    let x = x.cast(to);
    if work(to) == to { x } else { x.cast(work(to)) }
}

/// y, if `x` is y clipped to all values of a type of bytes: floats are cast to the nearest
/// value that there is.
fn without_clip(x: &Expr, to: DType) -> Option<Expr> {
    let (low, high) = match to {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        _ => return None,
    };
    let bounded = |e: &Expr, op: BinaryOp, bound: f64| match e.kind() {
        ExprKind::Binary(own, a, b) if *own == op && a.as_float() == Some(bound) => Some(b.clone()),
        ExprKind::Binary(own, a, b) if *own == op && b.as_float() == Some(bound) => Some(a.clone()),
        _ => None,
    };
    bounded(&bounded(x, BinaryOp::Min, high)?, BinaryOp::Max, low)
}

fn batch_norm(n: BatchNorm, dtype: DType, operands: &[Expr]) -> Expr {
    let [x, scale, shift, mean, variance] = operands else {
        unreachable!("batch normalisation has five operands")
    };
    let spread = variance + Expr::constant(f64::from(n.epsilon), dtype);
    let factor = scale * Expr::unary(UnaryOp::Rsqrt, spread);
    (x - mean) * factor + shift
}

fn unary(u: Unary, d: DType, x: &Expr) -> Expr {
    let c = |v: f64| Expr::constant(v, d);
    let op = |o: UnaryOp| Expr::unary(o, x);
    match u {
        Unary::Neg => op(UnaryOp::Neg),
        Unary::Abs => op(UnaryOp::Abs),
        Unary::Sign => {
            let negative = Expr::select(x.clone().lt(c(0.0)), c(-1.0), x);
            Expr::select(c(0.0).lt(x), c(1.0), negative)
        }
        Unary::Relu => c(0.0).max(x),
        Unary::Clip { min, max } => {
            let x = min.map_or(x.clone(), |m| c(m).max(x));
            max.map_or(x.clone(), |m| c(m).min(&x))
        }
        Unary::LeakyRelu { alpha } => {
            let scaled = x * c(f64::from(alpha));
            Expr::select(x.clone().lt(c(0.0)), scaled, x)
        }
        Unary::Sigmoid => c(1.0) / (c(1.0) + Expr::unary(UnaryOp::Exp, -x.clone())),
        Unary::HardSigmoid { alpha, beta } => hard_sigmoid(d, x, f64::from(alpha), f64::from(beta)),
        Unary::HardSwish => x * hard_sigmoid(d, x, 1.0 / 6.0, 0.5),
        Unary::Tanh => op(UnaryOp::Tanh),
        Unary::Sin => op(UnaryOp::Sin),
        Unary::Cos => op(UnaryOp::Cos),
        Unary::Tan => op(UnaryOp::Tan),
        Unary::Asin => op(UnaryOp::Asin),
        Unary::Acos => op(UnaryOp::Acos),
        Unary::Atan => op(UnaryOp::Atan),
        Unary::Sinh => op(UnaryOp::Sinh),
        Unary::Cosh => op(UnaryOp::Cosh),
        Unary::Asinh => op(UnaryOp::Asinh),
        Unary::Acosh => op(UnaryOp::Acosh),
        Unary::Atanh => op(UnaryOp::Atanh),
        Unary::Gelu(Gelu::Exact) => {
            let scaled = x * c(std::f64::consts::FRAC_1_SQRT_2);
            x * c(0.5) * (c(1.0) + Expr::unary(UnaryOp::Erf, scaled))
        }
        Unary::Gelu(Gelu::Tanh) => {
            let scale = (2.0 / std::f64::consts::PI).sqrt();
            // sqrt(2/pi) (x + 0.044715 x^3), factored.
            let inner = x * (c(scale) + x * x * c(scale * 0.044715));
            x * c(0.5) * (c(1.0) + Expr::unary(UnaryOp::Tanh, inner))
        }
        Unary::Erf => op(UnaryOp::Erf),
        Unary::Sqrt => op(UnaryOp::Sqrt),
        Unary::Exp => op(UnaryOp::Exp),
        Unary::Log => op(UnaryOp::Log),
        Unary::Reciprocal => c(1.0) / x,
        Unary::Floor => op(UnaryOp::Floor),
        Unary::Ceil => op(UnaryOp::Ceil),
        Unary::Round => op(UnaryOp::Round),
        Unary::Not => op(UnaryOp::Not),
    }
}

fn hard_sigmoid(d: DType, x: &Expr, alpha: f64, beta: f64) -> Expr {
    let c = |v: f64| Expr::constant(v, d);
    c(0.0).max(c(1.0).min(x * c(alpha) + c(beta)))
}

fn binary(b: Binary, d: DType, x: &Expr, y: &Expr) -> Expr {
    let op = |o: BinaryOp| Expr::binary(o, x, y);
    let swapped = |o: BinaryOp| Expr::binary(o, y, x);
    match b {
        Binary::Add => op(BinaryOp::Add),
        Binary::Sub => op(BinaryOp::Sub),
        Binary::Mul => op(BinaryOp::Mul),
        Binary::Div => op(BinaryOp::Div),
        Binary::Mod => op(BinaryOp::FloorMod),
        Binary::Fmod => x - op(BinaryOp::Div) * y,
        Binary::Pow => match y.as_float() {
            Some(0.5 | 0.75) => {
                // A root of minus infinity has no value and that of -0 is -0, where powers are
                // infinity and 0.
                let infinity = |v: f64| Expr::constant(v, d);
                let lowest = x.clone().equals(infinity(f64::NEG_INFINITY));
                let root = power(d, &(x + Expr::constant(0.0, d)), y);
                Expr::select(lowest, infinity(f64::INFINITY), root)
            }
            Some(_) | None => power(d, x, y),
        },
        Binary::Min => op(BinaryOp::Min),
        Binary::Max => op(BinaryOp::Max),
        Binary::Equal => op(BinaryOp::Eq),
        Binary::Less => op(BinaryOp::Lt),
        Binary::LessOrEqual => op(BinaryOp::Le),
        Binary::Greater => swapped(BinaryOp::Lt),
        Binary::GreaterOrEqual => swapped(BinaryOp::Le),
        // A choice whether to read the second operand takes longer than reading it.
        Binary::And if x.loads() && y.loads() => op(BinaryOp::Min),
        Binary::Or if x.loads() && y.loads() => op(BinaryOp::Max),
        Binary::And => op(BinaryOp::And),
        Binary::Or => op(BinaryOp::Or),
        Binary::Xor => op(BinaryOp::Ne),
        Binary::BitAnd => op(BinaryOp::BitAnd),
        Binary::BitOr => op(BinaryOp::BitOr),
        Binary::BitXor => op(BinaryOp::BitXor),
        Binary::ShiftLeft => op(BinaryOp::Shl),
        Binary::ShiftRight => op(BinaryOp::Shr),
    }
}

/// Exponents that normalisations use need no `pow`. Those between 0 and 1 are for an `x` above 0.
pub(super) fn power(d: DType, x: &Expr, y: &Expr) -> Expr {
    let root = |e: &Expr| Expr::unary(UnaryOp::Sqrt, e);
    match y.as_float() {
        Some(1.0) => x.clone(),
        Some(2.0) => x * x,
        Some(3.0) => x * x * x,
        Some(0.5) => root(x),
        Some(0.75) => root(x) * root(&root(x)),
        Some(-1.0) => Expr::constant(1.0, d) / x,
        Some(_) | None => Expr::binary(BinaryOp::Pow, x, y),
    }
}
