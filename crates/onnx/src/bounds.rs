//! Between what the numbers of a value lie, whatever the inputs are.
//!
//! Sizes that the data decide are often computed from places that a model clips to an image. What its
//! nodes make of such bounds is a bound of the size, and so it can be computed at one.

use crate::live::{Live, Range};
use crate::node::{NodeImport, is_half};
use graph::ops::{Binary, Op, PadMode, ReduceKind, Unary};
use graph::{Model, Node, Origin, ValueId};
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{DType, Tensor};

/// Values that are looked at for one answer. Behind them everything is possible.
const MOST_VALUES: usize = 4096;

/// Elements of a constant, or of a sum of maxima, that are looked at one by one.
const MOST_ELEMENTS: usize = 1 << 12;

/// No size above this is taken for a bound: kernels are made for it, and memory is planned.
const LARGEST_SIZE: f64 = 65536.0;

/// A closed interval; an end may be infinite. NaN may be beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Interval {
    low: f64,
    high: f64,
}

const ALL: Interval = Interval {
    low: f64::NEG_INFINITY,
    high: f64::INFINITY,
};

impl Interval {
    fn new(low: f64, high: f64) -> Interval {
        match low <= high {
            true => Interval { low, high },
            // An end is no number, as of infinity times 0.
            false => ALL,
        }
    }

    fn of(ends: &[f64]) -> Interval {
        if ends.iter().any(|e| e.is_nan()) {
            return ALL;
        }
        let low = ends.iter().copied().fold(f64::INFINITY, f64::min);
        let high = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Interval::new(low, high)
    }

    fn with(self, other: Interval) -> Interval {
        Interval::new(self.low.min(other.low), self.high.max(other.high))
    }

    fn each(self, f: impl Fn(f64) -> f64) -> Interval {
        Interval::of(&[f(self.low), f(self.high)])
    }

    fn pairs(self, other: Interval, f: impl Fn(f64, f64) -> f64) -> Interval {
        let Interval { low, high } = other;
        Interval::of(&[
            f(self.low, low),
            f(self.low, high),
            f(self.high, low),
            f(self.high, high),
        ])
    }
}

/// What a type holds; of floating point everything.
fn of_type(d: DType) -> Interval {
    match d {
        DType::Bool => Interval::new(0.0, 1.0),
        DType::U8 => Interval::new(0.0, 255.0),
        DType::I8 => Interval::new(-128.0, 127.0),
        DType::U16 => Interval::new(0.0, 65535.0),
        DType::I16 => Interval::new(-32768.0, 32767.0),
        DType::U32 => Interval::new(0.0, f64::from(u32::MAX)),
        DType::I32 => Interval::new(f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::U64 => Interval::new(0.0, f64::INFINITY),
        _ => ALL,
    }
}

/// A result of this type, which may have been rounded, and has wrapped if it does not fit.
fn held(d: DType, exact: Interval) -> Interval {
    if d.is_float() {
        let part = match (is_half(d), d) {
            (true, _) => 1e-2,
            (_, DType::F64) => 1e-12,
            _ => 1e-6,
        };
        let slack = part * exact.low.abs().max(exact.high.abs());
        return match slack.is_finite() {
            true => Interval::new(exact.low - slack, exact.high + slack),
            false => exact,
        };
    }
    let widest = of_type(d);
    // Beyond this an f64 does not hold every integer.
    let most = 2f64.powi(53);
    match exact.low >= widest.low.max(-most) && exact.high <= widest.high.min(most) {
        true => exact,
        false => of_type(d),
    }
}

struct Bounds<'a> {
    model: &'a Model,
    live: &'a Live,
    /// By the value and the place of an element; without a place of all its elements.
    known: HashMap<(ValueId, Option<usize>), Interval>,
    left: usize,
}

impl Bounds<'_> {
    fn shape(&self, v: ValueId) -> &[usize] {
        &self.model[v].ty().shape
    }

    /// Elements of a tensor that holds bounds.
    fn held_by(low: &Tensor, high: &Tensor, at: Option<usize>) -> Interval {
        let one = |i: usize| Interval::of(&[low.get_f64(i), high.get_f64(i)]);
        match at {
            Some(i) if i < low.len() => one(i),
            _ if low.is_empty() || low.len() > MOST_ELEMENTS => ALL,
            _ => (1..low.len()).map(one).fold(one(0), Interval::with),
        }
    }

    fn element(&mut self, v: ValueId, at: Option<usize>) -> Interval {
        if let Some(known) = self.known.get(&(v, at)) {
            return *known;
        }
        let (model, live) = (self.model, self.live);
        let dtype = model[v].ty().dtype;
        let found = if let Some(t) = model.constant(v) {
            Bounds::held_by(t, t, at)
        } else if let Some(r) = live.range(v) {
            Bounds::held_by(&r.low, &r.high, at)
        } else if let (Origin::Node(node, output), true) = (model[v].origin(), self.left > 0) {
            self.left -= 1;
            self.result(&model[*node], *output, v, at)
        } else {
            ALL
        };
        let own = of_type(dtype);
        let found = Interval::new(found.low.max(own.low), found.high.min(own.high));
        self.known.insert((v, at), found);
        found
    }

    /// The operand's element that a result's element is made of, by broadcasting.
    fn spread(&mut self, from: ValueId, to: ValueId, at: Option<usize>) -> Interval {
        let at = match self.model[from].ty().len() {
            1 => Some(0),
            _ if self.shape(from) == self.shape(to) => at,
            _ => None,
        };
        self.element(from, at)
    }

    fn result(&mut self, node: &Node, output: usize, v: ValueId, at: Option<usize>) -> Interval {
        let ty = self.model[v].ty().clone();
        let Some(x) = node.input(0) else { return ALL };
        let second = node.inputs.get(1).copied().flatten();
        match (&node.op, second) {
            (Op::Identity | Op::Dropout(_) | Op::Reshape(_), _) => self.element(x, at),
            (Op::Cast(to), _) => {
                let own = self.element(x, at);
                match (to.is_int(), self.model[x].ty().dtype.is_float()) {
                    // A number that is none becomes 0.
                    (true, true) => held(*to, own.each(f64::trunc).with(Interval::new(0.0, 0.0))),
                    _ => held(*to, own),
                }
            }
            (Op::Unary(u), _) => {
                let own = self.element(x, at);
                unary(*u, own, ty.dtype)
            }
            (Op::Binary(op), Some(y)) => {
                let (a, b) = (self.spread(x, v, at), self.spread(y, v, at));
                binary(*op, [a, b], ty.dtype)
            }
            (Op::Where, Some(yes)) => match node.inputs.get(2).copied().flatten() {
                Some(no) => self.spread(yes, v, at).with(self.spread(no, v, at)),
                None => ALL,
            },
            (Op::Positions, _) => Interval::new(0.0, ty.len() as f64),
            (Op::ArgReduce(r), _) => {
                let last = self.shape(x)[r.axis].saturating_sub(1);
                Interval::new(0.0, last as f64)
            }
            (Op::TopK(t), _) if output == 1 => {
                let last = self.shape(x)[t.axis].saturating_sub(1);
                Interval::new(0.0, last as f64)
            }
            (Op::Reduce(r), _) => self.reduced(r.kind, x, v),
            (Op::ScatterElements(_) | Op::ScatterNd(_), _) => ALL,
            _ => self.moved(node, output, v, at),
        }
    }

    fn reduced(&mut self, kind: ReduceKind, x: ValueId, v: ValueId) -> Interval {
        let (from, to) = (self.model[x].ty().len(), self.model[v].ty().len());
        let dtype = self.model[v].ty().dtype;
        match kind {
            ReduceKind::Max | ReduceKind::Min if to == 1 && (1..=64).contains(&from) => {
                let pick = match kind {
                    ReduceKind::Max => f64::max,
                    _ => f64::min,
                };
                (1..from).fold(self.element(x, Some(0)), |most, i| {
                    let own = self.element(x, Some(i));
                    Interval::new(pick(most.low, own.low), pick(most.high, own.high))
                })
            }
            ReduceKind::Max | ReduceKind::Min => self.element(x, None),
            ReduceKind::Sum if to > 0 => {
                let number = (from / to) as f64;
                held(dtype, self.element(x, None).each(|e| e * number))
            }
            _ => ALL,
        }
    }

    /// Of operators whose results hold their operands' elements.
    fn moved(&mut self, node: &Node, output: usize, v: ValueId, at: Option<usize>) -> Interval {
        let Some(x) = node.input(0) else { return ALL };
        let (from, to) = (self.shape(x).to_vec(), self.shape(v).to_vec());
        match &node.op {
            Op::Concat(c) => {
                let parts: Vec<ValueId> = node.inputs.iter().copied().flatten().collect();
                let Some(at) = at else {
                    let rest = parts[1..].iter();
                    return rest.fold(self.element(x, None), |all, p| {
                        all.with(self.element(*p, None))
                    });
                };
                let mut place = coordinates(at, &to);
                for part in parts {
                    let own = self.shape(part).to_vec();
                    if place[c.axis] < own[c.axis] {
                        return self.element(part, Some(flat(&place, &own)));
                    }
                    place[c.axis] -= own[c.axis];
                }
                ALL
            }
            Op::Slice(s) => {
                let at = at.map(|at| {
                    let place = coordinates(at, &to).into_iter().enumerate();
                    let moved = place
                        .map(|(d, i)| (s.starts[d] as i64 + i as i64 * s.steps[d]).max(0) as usize);
                    flat(&moved.collect::<Vec<_>>(), &from)
                });
                self.element(x, at)
            }
            Op::Split(s) => {
                let at = at.map(|at| {
                    let mut place = coordinates(at, &to);
                    place[s.axis] += s.sizes[..output].iter().sum::<usize>();
                    flat(&place, &from)
                });
                self.element(x, at)
            }
            Op::Gather(g) => {
                let indices = node.input(1).and_then(|i| self.model.constant(i));
                let at = at.zip(indices).and_then(|(at, indices)| {
                    let inner: usize = from[g.axis + 1..].iter().product();
                    let (rest, within) = (at / inner.max(1), at % inner.max(1));
                    let picked = indices.len().max(1);
                    let index = indices.get_i64(rest % picked);
                    let size = from[g.axis] as i64;
                    let index = if index < 0 { index + size } else { index };
                    let row = (rest / picked) * from[g.axis] + usize::try_from(index).ok()?;
                    (index < size).then_some(row * inner + within)
                });
                self.element(x, at)
            }
            Op::Pad(p) => {
                let own = self.element(x, None);
                match p.mode {
                    PadMode::Constant(value) => own.with(Interval::new(value, value)),
                    _ => own,
                }
            }
            Op::Expand(_) if self.model[x].ty().len() == 1 => self.element(x, Some(0)),
            Op::Expand(_)
            | Op::Transpose(_)
            | Op::GatherElements(_)
            | Op::GatherNd(_)
            | Op::TopK(_) => self.element(x, None),
            _ => ALL,
        }
    }
}

fn unary(u: Unary, own: Interval, dtype: DType) -> Interval {
    match u {
        Unary::Neg => held(dtype, own.each(|e| -e)),
        Unary::Abs => {
            let most = own.low.abs().max(own.high.abs());
            held(dtype, Interval::new(0.0, most))
        }
        Unary::Sign => Interval::new(-1.0, 1.0),
        Unary::Relu => own.each(|e| e.max(0.0)),
        Unary::Clip { min, max } => own.each(|e| {
            let e = min.map_or(e, |min| e.max(min));
            max.map_or(e, |max| e.min(max))
        }),
        Unary::Sigmoid | Unary::HardSigmoid { .. } => Interval::new(0.0, 1.0),
        Unary::Tanh | Unary::Sin | Unary::Cos | Unary::Erf => held(dtype, Interval::new(-1.0, 1.0)),
        Unary::Sqrt => held(dtype, own.each(|e| e.max(0.0).sqrt())),
        Unary::Exp => held(dtype, own.each(f64::exp)),
        Unary::Floor => own.each(f64::floor),
        Unary::Ceil => own.each(f64::ceil),
        Unary::Round => own.each(f64::round_ties_even),
        _ => of_type(dtype),
    }
}

fn binary(op: Binary, [a, b]: [Interval; 2], dtype: DType) -> Interval {
    let divides = b.low > 0.0 || b.high < 0.0;
    match op {
        Binary::Add => held(dtype, a.pairs(b, |a, b| a + b)),
        Binary::Sub => held(dtype, a.pairs(b, |a, b| a - b)),
        Binary::Mul => held(dtype, a.pairs(b, |a, b| a * b)),
        Binary::Div if divides => {
            let exact = a.pairs(b, |a, b| a / b);
            match dtype.is_float() {
                true => held(dtype, exact),
                false => held(dtype, exact.each(f64::trunc)),
            }
        }
        Binary::Mod if b.low > 0.0 => Interval::new(0.0, b.high),
        Binary::Max => Interval::new(a.low.max(b.low), a.high.max(b.high)),
        Binary::Min => Interval::new(a.low.min(b.low), a.high.min(b.high)),
        _ => of_type(dtype),
    }
}

fn coordinates(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (p, size) in place.iter_mut().zip(shape).rev() {
        (*p, at) = (at % size.max(&1), at / size.max(&1));
    }
    place
}

fn flat(place: &[usize], shape: &[usize]) -> usize {
    let both = place.iter().zip(shape);
    both.fold(0, |at, (p, size)| at * size + p)
}

impl NodeImport<'_> {
    /// Whether all numbers of a value are known to lie between two.
    pub(crate) fn lies_within(&self, v: ValueId, low: f64, high: f64) -> bool {
        if let Some(t) = self.model.constant(v) {
            return (0..t.len()).all(|i| (low..=high).contains(&t.get_f64(i)));
        }
        let mut bounds = Bounds {
            model: self.model,
            live: self.live,
            known: HashMap::new(),
            left: MOST_VALUES,
        };
        let own = bounds.element(v, None);
        low <= own.low && own.high <= high
    }

    /// Finds between what each of some integers lies, for a value that is to be sizes. Nothing is found where an input
    /// decides without a bound, and then the value has no range afterwards.
    pub(crate) fn find_range(&mut self, v: ValueId) {
        let ty = self.ty(v).clone();
        let open = self.model.constant(v).is_none() && self.live.range(v).is_none();
        if !open || !ty.dtype.is_int() || ty.rank() > 1 || ty.len() > 64 {
            return;
        }
        let (mut low, mut high) = (
            Tensor::zeros(ty.dtype, &ty.shape),
            Tensor::zeros(ty.dtype, &ty.shape),
        );
        let mut bounds = Bounds {
            model: self.model,
            live: self.live,
            known: HashMap::new(),
            left: MOST_VALUES,
        };
        for i in 0..ty.len() {
            let own = bounds.element(v, Some(i));
            if own.low.abs().max(own.high.abs()) > LARGEST_SIZE {
                return;
            }
            low.set_i64(i, own.low as i64);
            high.set_i64(i, own.high as i64);
        }
        let (low, high) = (Arc::new(low), Arc::new(high));
        self.live.set_range(v, Range { low, high });
    }
}
