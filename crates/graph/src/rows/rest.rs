//! What is known of the elements of a value's padding, and what element-wise operators make of it.

use crate::ops::{Binary, Op};
use crate::reference;
use tensor::{DType, Tensor};

/// A score with at most this added has no weight in a softmax: scores are taken to differ by less
/// than nine tenths of it. `exp` of the rest, -1000, is 0 in every type of floats.
const NEGLIGIBLE: f64 = -1e4;
/// Up to this every integer is an f64.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rest {
    /// All elements are this.
    Known(f64),
    /// All elements are at most this, up to a score.
    Bounded(f64),
    Unknown,
}

impl Rest {
    /// What is known of both one element and others.
    pub(super) fn or(self, other: Rest) -> Rest {
        match (self, other) {
            (a, b) if a == b => a,
            (a, b) => bounded(a.bound().zip(b.bound()).map(|(a, b)| a.max(b))),
        }
    }

    /// Of element `i`.
    pub(super) fn of(t: &Tensor, i: usize) -> Rest {
        let value = t.get_f64(i);
        match t.dtype().is_int() && value.abs() >= EXACT || value.is_nan() {
            true => Rest::Unknown,
            false => Rest::Known(value),
        }
    }

    pub(super) fn is_zero(self) -> bool {
        self == Rest::Known(0.0)
    }

    /// Whether a softmax gives these elements no weight.
    pub(super) fn is_negligible(self) -> bool {
        self.bound().is_some_and(|most| most <= NEGLIGIBLE)
    }

    /// What the elements are at most.
    pub(super) fn bound(self) -> Option<f64> {
        match self {
            Rest::Known(most) | Rest::Bounded(most) => Some(most),
            Rest::Unknown => None,
        }
    }

    fn known(self) -> Option<f64> {
        match self {
            Rest::Known(value) => Some(value),
            Rest::Bounded(_) | Rest::Unknown => None,
        }
    }
}

fn bounded(most: Option<f64>) -> Rest {
    match most.filter(|most| !most.is_nan()) {
        Some(most) => Rest::Bounded(most),
        None => Rest::Unknown,
    }
}

/// What an element-wise operator gives where this is known of its operands. What is unknown is
/// taken to be finite, as it is where the model computes with the same padding from its user.
pub(super) fn applied(op: &Op, operands: &[(Rest, DType)]) -> Rest {
    if let Some(result) = computed(op, operands) {
        return Rest::of(&result, 0);
    }
    let rest = |i: usize| operands[i].0;
    match op {
        Op::Identity | Op::Dropout(_) => rest(0),
        Op::Cast(to) if to.is_float() => bounded(rest(0).bound()),
        Op::Where => match rest(0).known() {
            Some(0.0) => rest(2),
            Some(_) => rest(1),
            None => rest(1).or(rest(2)),
        },
        Op::Binary(b) => binary(*b, rest(0), rest(1)),
        _ => Rest::Unknown,
    }
}

/// The one value that the operator gives for the one value of each operand.
fn computed(op: &Op, operands: &[(Rest, DType)]) -> Option<Tensor> {
    let scalar = |(rest, dtype): &(Rest, DType)| {
        let mut t = Tensor::zeros(*dtype, &[]);
        t.set_f64(0, rest.known()?);
        Some(t)
    };
    let operands: Vec<Tensor> = operands.iter().map(scalar).collect::<Option<_>>()?;
    let operands: Vec<Option<&Tensor>> = operands.iter().map(Some).collect();
    reference::apply(op, &operands).ok()?.pop()
}

fn binary(op: Binary, a: Rest, b: Rest) -> Rest {
    let (most_a, most_b) = (a.bound(), b.bound());
    let either = |wanted: f64| a == Rest::Known(wanted) || b == Rest::Known(wanted);
    let positive = |r: Rest| r.known().filter(|k| *k > 0.0);
    match op {
        Binary::And if either(0.0) => Rest::Known(0.0),
        Binary::Or if either(1.0) => Rest::Known(1.0),
        Binary::Mul if either(0.0) => match (most_a, most_b) {
            (Some(f64::NEG_INFINITY), _) | (_, Some(f64::NEG_INFINITY)) => Rest::Unknown,
            _ => Rest::Known(0.0),
        },
        Binary::Add => match (most_a, most_b) {
            (None, None) => Rest::Unknown,
            _ => bounded(Some(most_a.unwrap_or(0.0) + most_b.unwrap_or(0.0))),
        },
        Binary::Sub => bounded(b.known().map(|b| most_a.unwrap_or(0.0) - b)),
        Binary::Mul => {
            let scaled = positive(b).zip(most_a).or(positive(a).zip(most_b));
            bounded(scaled.map(|(by, most)| by * most))
        }
        Binary::Div => bounded(positive(b).zip(most_a).map(|(by, most)| most / by)),
        Binary::Min => match (most_a, most_b) {
            (Some(a), Some(b)) => Rest::Bounded(a.min(b)),
            (a, b) => bounded(a.or(b)),
        },
        Binary::Max => bounded(most_a.zip(most_b).map(|(a, b)| a.max(b))),
        _ => Rest::Unknown,
    }
}
