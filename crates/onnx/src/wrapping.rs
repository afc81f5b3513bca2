//! Operators that compute with integers of 16 bits and unsigned ones of 32 and 64, which no tensor here computes in.
//!
//! The carrier that `narrow.rs` names holds every number of 16 and 32 bits, so that orders, quotients and signs are those
//! of the carrier; what the type does not hold wraps afterwards. The carrier of uint64 holds its bits: sums and products
//! are the same bits, orders are those of numbers whose highest bit is turned over, and quotients are written out.

use crate::narrow::{self, Narrow, OPEN_UINT64};
use crate::narrowing::widened;
use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Op};
use tensor::DType;

/// What an operator of such numbers does with them.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Sums and products: the low bits of the results follow from the low bits of the operands.
    Ring,
    /// The results are operands, chosen by their order, and perhaps positions after them.
    Choice,
    /// As `Choice`, of which only the positions are left, or what is true of the order.
    Order,
    Divide,
    Remainder,
    ShiftRight,
    /// Without change if the numbers have no sign.
    Size,
    Sign,
    /// A power of another type.
    Exponent,
}

const KINDS: [(&str, Kind); 35] = [
    ("Abs", Kind::Size),
    ("Add", Kind::Ring),
    ("ArgMax", Kind::Order),
    ("ArgMin", Kind::Order),
    ("BitShift", Kind::Ring),
    ("BitwiseAnd", Kind::Ring),
    ("BitwiseNot", Kind::Ring),
    ("BitwiseOr", Kind::Ring),
    ("BitwiseXor", Kind::Ring),
    ("Clip", Kind::Choice),
    ("CumProd", Kind::Ring),
    ("CumSum", Kind::Ring),
    ("Div", Kind::Divide),
    ("Einsum", Kind::Ring),
    ("Greater", Kind::Order),
    ("GreaterOrEqual", Kind::Order),
    ("Less", Kind::Order),
    ("LessOrEqual", Kind::Order),
    ("MatMul", Kind::Ring),
    ("Max", Kind::Choice),
    ("Min", Kind::Choice),
    ("Mod", Kind::Remainder),
    ("Mul", Kind::Ring),
    ("Neg", Kind::Ring),
    ("Pow", Kind::Exponent),
    ("Range", Kind::Ring),
    ("ReduceMax", Kind::Choice),
    ("ReduceMin", Kind::Choice),
    ("ReduceProd", Kind::Ring),
    ("ReduceSum", Kind::Ring),
    ("ReduceSumSquare", Kind::Ring),
    ("Relu", Kind::Ring),
    ("Sign", Kind::Sign),
    ("Sub", Kind::Ring),
    ("TopK", Kind::Choice),
];

/// What the node computes with, if that is such numbers, and what it does with them.
fn concerns(n: &NodeImport, operator: &str) -> Option<(&'static Narrow, Kind)> {
    let reduction = match operator {
        "ScatterElements" | "ScatterND" => n.attributes.text("reduction", "none").ok()?,
        _ => String::new(),
    };
    let kind = match reduction.as_str() {
        "add" | "mul" => Kind::Ring,
        "max" | "min" => Kind::Choice,
        _ => KINDS.iter().find(|(name, _)| *name == operator)?.1,
    };
    let mut types = n.inputs.iter().flatten().filter_map(|v| n.narrow.get(v));
    let narrow = *types.next().filter(|narrow| narrow.stored().is_some())?;
    // The result of a sum of small numbers may be a large one.
    let narrow = match narrow.number == OPEN_UINT64.number {
        true => &OPEN_UINT64,
        false => narrow,
    };
    types
        .all(|t| t.number == narrow.number)
        .then_some((narrow, kind))
}

/// Imports a node by `import`, and whatever is to be done before and after that where its operands are of types that no
/// tensor here has.
pub(crate) fn import(
    n: &mut NodeImport,
    operator: &str,
    import: impl Fn(&mut NodeImport) -> Imported,
) -> Imported {
    let results = match concerns(n, operator) {
        Some((narrow, kind)) => computed(n, narrow, kind, &import)?,
        None => {
            narrow::check(n, operator)?;
            let results = import(n)?;
            narrow::mark(n, operator, &results);
            results
        }
    };
    carried(n, results)
}

/// Values that an importer gave the types of inputs and outputs, as those that operators compute with.
fn carried(n: &mut NodeImport, mut results: Vec<ValueId>) -> Imported {
    for v in &mut results {
        *v = taken(n, *v)?;
    }
    Ok(results)
}

/// What stands for a value of a type that is only stored; other values as they are.
pub(crate) fn taken(n: &mut NodeImport, v: ValueId) -> Result<ValueId, Problem> {
    let Some(narrow) = Narrow::of_stored(n.dtype(v)) else {
        return Ok(v);
    };
    let carrier = n.widened(v, narrow.carrier)?;
    n.narrow.insert(carrier, narrow);
    Ok(carrier)
}

fn computed(
    n: &mut NodeImport,
    narrow: &'static Narrow,
    kind: Kind,
    import: &impl Fn(&mut NodeImport) -> Imported,
) -> Imported {
    let open = std::ptr::eq(narrow, &OPEN_UINT64);
    let unsigned = narrow.range().is_some_and(|(least, _)| least == 0.0);
    let right = || {
        n.attributes
            .text("direction", "")
            .is_ok_and(|d| d == "RIGHT")
    };
    let kind = match kind {
        Kind::Ring if n.proto.op_type() == "BitShift" && right() => Kind::ShiftRight,
        kind => kind,
    };
    match kind {
        Kind::Exponent => return exponent(n, import),
        Kind::Size | Kind::Ring if unsigned && ["Abs", "Relu"].contains(&n.proto.op_type()) => {
            let x = n.input(0)?;
            return marked(n, (x, x), narrow);
        }
        _ => {}
    }
    let sized = n.inputs.iter().flatten().any(|v| n.live.concerns(*v));
    if sized && open && kind != Kind::Ring {
        return Problem::unsupported(format!(
            "its operand is of type {}, and the data decide its size",
            narrow.name
        ));
    }
    let mut results = match (kind, open) {
        (Kind::Choice | Kind::Order, true) => turned_over(n, kind, import)?,
        (Kind::Divide, true) => vec![divided(n)?.0],
        (Kind::Remainder, true) => vec![divided(n)?.1],
        (Kind::ShiftRight, true) => vec![shifted_right(n)?],
        (Kind::Sign, true) => {
            let x = n.input(0)?;
            let zero = n.number(0);
            let same = n.binary(Binary::Equal, x, zero)?;
            let other = n.unary(graph::ops::Unary::Not, same)?;
            vec![n.cast(other, DType::I64)?]
        }
        _ => import(n)?,
    };
    // Whatever the operator gives besides is positions.
    if kind != Kind::Order
        && let Some(first) = results.first_mut()
    {
        let wraps = !matches!(
            kind,
            Kind::Choice | Kind::Sign | Kind::ShiftRight | Kind::Remainder
        );
        let y = match narrow.stored().filter(|_| wraps && !open) {
            Some(stored) => wrapped(n, *first, stored)?,
            None => *first,
        };
        *first = marked(n, (y, *first), narrow)?[0];
    }
    Ok(results)
}

/// `x` as a value of its own that is known to be of this type, and of the sizes of another.
fn marked(n: &mut NodeImport, (x, like): (ValueId, ValueId), narrow: &'static Narrow) -> Imported {
    let y = n.emit(Op::Identity, &[x])?;
    n.narrow.insert(y, narrow);
    let extents = n.live.extents(like).to_vec();
    n.live.set(y, extents);
    Ok(vec![y])
}

/// The low bits of integers, read as the type reads them.
pub(crate) fn wrapped(n: &mut NodeImport, x: ValueId, to: DType) -> Result<ValueId, Problem> {
    let carrier = n.dtype(x);
    let bits = n.emit(Op::Cast(to), &[x])?;
    n.cast(bits, carrier)
}

/// All bits as they are but the highest: unsigned numbers in the order of signed ones, and back.
fn turn_over(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let high = n.number(i64::MIN);
    n.binary(Binary::BitXor, x, high)
}

/// An operator that only orders numbers, of uint64.
fn turned_over(
    n: &mut NodeImport,
    kind: Kind,
    import: &impl Fn(&mut NodeImport) -> Imported,
) -> Imported {
    let given = n.inputs.clone();
    for (i, v) in given.iter().enumerate() {
        if let Some(v) = v.filter(|v| n.narrow.contains_key(v)) {
            n.inputs[i] = Some(turn_over(n, v)?);
        }
    }
    let results = import(n);
    n.inputs = given;
    let mut results = results?;
    if kind == Kind::Choice
        && let Some(first) = results.first_mut()
    {
        *first = turn_over(n, *first)?;
    }
    Ok(results)
}

/// The quotient and the remainder of two uint64.
///
/// A divisor of at least 2^63 goes into any number once or not at all. With another one, half of the dividend is divided
/// as a signed number, and twice the result is too small by 1 at most (Hacker's Delight, 2nd edition, 9-3).
fn divided(n: &mut NodeImport) -> Result<(ValueId, ValueId), Problem> {
    let (x, y) = (n.input(0)?, n.input(1)?);
    // The remainder of unsigned numbers has no sign.
    n.attributes.ignore(&["fmod"]);
    let (zero, one, most) = (n.number(0), n.number(1), n.number(i64::MAX));
    let large = n.binary(Binary::Less, y, zero)?;
    let divisor = n.emit(Op::Where, &[large, one, y])?;
    let half = n.binary(Binary::ShiftRight, x, one)?;
    let half = n.binary(Binary::BitAnd, half, most)?;
    let half = n.binary(Binary::Div, half, divisor)?;
    let estimate = n.binary(Binary::ShiftLeft, half, one)?;
    let estimate = n.emit(Op::Where, &[large, zero, estimate])?;
    let product = n.binary(Binary::Mul, estimate, y)?;
    let rest = n.binary(Binary::Sub, x, product)?;
    let (a, b) = (turn_over(n, rest)?, turn_over(n, y)?);
    let more = n.binary(Binary::GreaterOrEqual, a, b)?;
    let more = n.cast(more, DType::I64)?;
    let quotient = n.binary(Binary::Add, estimate, more)?;
    let product = n.binary(Binary::Mul, quotient, y)?;
    Ok((quotient, n.binary(Binary::Sub, x, product)?))
}

/// The bits of a uint64 shifted to the right, with zeros from the left.
fn shifted_right(n: &mut NodeImport) -> Result<ValueId, Problem> {
    let (x, by) = (n.input(0)?, n.input(1)?);
    n.attributes.ignore(&["direction"]);
    // Without its lowest bit, the number has no sign; a count beyond the width leaves 0 of it.
    let (zero, one, most) = (n.number(0), n.number(1), n.number(i64::MAX));
    let half = n.binary(Binary::ShiftRight, x, one)?;
    let half = n.binary(Binary::BitAnd, half, most)?;
    let further = n.binary(Binary::Sub, by, one)?;
    let shifted = n.binary(Binary::ShiftRight, half, further)?;
    let stays = n.binary(Binary::Equal, by, zero)?;
    n.emit(Op::Where, &[stays, x, shifted])
}

/// A power whose exponent is of such a type, and the base is not.
fn exponent(n: &mut NodeImport, import: &impl Fn(&mut NodeImport) -> Imported) -> Imported {
    let (base, exponent) = (n.input(0)?, n.input(1)?);
    if let Some(kind) = n.narrow.get(&base) {
        return Problem::unsupported(format!("its base is of type {}", kind.name));
    }
    let given = n.inputs.clone();
    if n.dtype(base).is_float() {
        n.inputs[1] = Some(widened(n, exponent, n.dtype(base))?);
    }
    let results = import(n);
    n.inputs = given;
    results
}
