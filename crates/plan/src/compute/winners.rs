//! The best elements of lines, one after the other.
//!
//! A tree of winners has the best element of a line at its root. Taking that one out computes one node of each level, so
//! only elements that are asked for are put in order. Each element is one i64, its key: what it is ordered by, and
//! behind that its number, so that equal ones come in order. A node is then the greatest of some keys.

use super::Axes;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder, UnaryOp, Write};

/// Bits of a key behind what it is ordered by.
const NUMBER: i64 = 1 << 32;

/// How many nodes have one above them. Fewer steps lead to the root than with 2, and each waits for two comparisons.
const FAN: i64 = 4;

/// The key of what is no element: behind all others.
pub(super) fn none() -> Expr {
    Expr::int(i64::MIN)
}

/// The key of an element by its order, an i64 that an i32 holds: greater ones come first.
pub(super) fn key(order: Expr, number: &Expr) -> Expr {
    order * NUMBER + (Expr::int(NUMBER - 1) - number)
}

/// The number of the element of a key.
fn number(key: &Expr) -> Expr {
    Expr::binary(BinaryOp::BitAnd, Expr::int(-1) - key, Expr::int(NUMBER - 1))
}

/// An i64 of floats' order that an i32 holds. No number is above all numbers, and zeros are equal.
pub(super) fn order_of(x: &Expr) -> Expr {
    let constant = |v: i64| Expr::constant(v as f64, DType::I32);
    let bits = Expr::unary(UnaryOp::Bits, x.clone());
    let negative = bits.clone().lt(constant(0));
    let order = Expr::select(negative, constant(i64::from(i32::MIN)) - &bits, bits);
    let infinity = i64::from(f32::INFINITY.to_bits());
    let is_number = x.clone().equals(x.clone());
    Expr::select(is_number, order, constant(infinity + 1)).cast(DType::I64)
}

/// How the elements of a line are given.
pub(super) struct Elements<'a> {
    pub lines: Axes,
    /// How many a line has.
    pub count: i64,
    /// The key of an element of a line, and [`none`] beyond the last one.
    pub key: &'a dyn Fn(&[Expr], &Expr) -> Expr,
}

/// The level with m nodes begins at m, and the root is 1. Node x of a level is the best of the nodes x, x + m, ... below
/// it. The leaves are the elements.
pub(super) struct Winners {
    lines: Axes,
    leaves: i64,
    keys: BufferId,
    /// The numbers of elements in order, as far as they were taken.
    pub order: BufferId,
    /// How many were taken.
    pub taken: BufferId,
}

/// Of a line, whether its best element is taken.
pub(super) type GoesOn<'a> = &'a dyn Fn(&[Expr]) -> Expr;

/// What a block writes: a buffer, where, and what.
pub(super) type Written = (BufferId, Vec<Expr>, Expr);

/// Writes that change nothing where the condition fails.
pub(super) fn only_where(condition: &Expr, writes: Vec<Written>) -> Vec<Write> {
    let kept = |(buffer, indices, value): Written| Write {
        buffer,
        value: Expr::select(
            condition.clone(),
            value,
            Expr::load(buffer, indices.clone()),
        ),
        indices,
    };
    writes.into_iter().map(kept).collect()
}

/// An element of a line.
pub(super) fn at(line: &[Expr], index: impl Into<Expr>) -> Vec<Expr> {
    [line, &[index.into()]].concat()
}

impl Winners {
    /// The tree of all elements, of which `most` are taken at most.
    pub fn of(b: &mut ProgramBuilder, elements: &Elements, most: i64) -> Winners {
        let lines = &elements.lines;
        let levels = ((elements.count as u64).next_power_of_two().ilog2()).div_ceil(FAN.ilog2());
        let leaves = FAN.pow(levels.max(1));
        let with = |n: i64| Axes([&lines.0[..], &[("x".to_string(), n)]].concat());
        let own = |o: &[Expr]| {
            let (x, line) = o.split_last().expect("a node has a number");
            (x.clone(), line.to_vec())
        };
        let placed = |o: &[Expr], m: i64| {
            let (x, line) = own(o);
            at(&line, x + m)
        };
        let mut shape: Vec<i64> = lines.0.iter().map(|(_, n)| *n).collect();
        shape.push(2 * leaves);
        let keys = b.compute_into("keys", &with(leaves).list(), &shape, |o| {
            let (x, line) = own(o);
            (placed(o, leaves), (elements.key)(&line, &x))
        });
        let (mut m, mut below) = (leaves, None);
        while m > 1 {
            m /= FAN;
            let axes = with(m);
            let level = b.compute(&format!("level{m}"), &axes.list(), |o| {
                let (x, line) = own(o);
                best_of(|i| match below {
                    Some(below) => Expr::load(below, at(&line, x.clone() + i * m)),
                    None => (elements.key)(&line, &(x.clone() + i * m)),
                })
            });
            b.update(&format!("placed{m}"), keys, (&axes.list(), &[]), |o, _| {
                (placed(o, m), Expr::load(level, o.to_vec()))
            });
            below = Some(level);
        }
        let zeros = |b: &mut ProgramBuilder, name: &str, axes: &Axes| {
            b.compute(name, &axes.list(), |_| Expr::int(0))
        };
        Winners {
            order: zeros(b, "order", &with(most)),
            taken: zeros(b, "taken", lines),
            lines: lines.clone(),
            leaves,
            keys,
        }
    }

    /// Takes so many further elements: the best one is at the root until the last step, which computes the root. Level
    /// by level from the leaves on, each step computes the node above it from elements that come behind it: those before
    /// it were taken.
    pub fn take(
        &self,
        b: &mut ProgramBuilder,
        (from, count): (i64, i64),
        goes_on: Option<GoesOn<'_>>,
    ) {
        let steps = [("box", count), ("level", i64::from(self.leaves.ilog(FAN)))];
        let lines = self.lines.list();
        b.updates(&format!("take{from}"), (&lines, &steps), |o, t| {
            let (place, level) = (t[0].clone() + from, t[1].clone());
            let best = Expr::load(self.keys, at(o, 1));
            let taken = number(&best);
            let bits = level * i64::from(FAN.ilog2());
            let m = Expr::binary(BinaryOp::Shr, Expr::int(self.leaves / FAN), bits);
            let x = Expr::binary(BinaryOp::BitAnd, &taken, m.clone() - 1);
            let node = best_of(|i| {
                let node = Expr::load(self.keys, at(o, m.clone() * (FAN + i) + &x));
                Expr::select(node.clone().lt(&best), node, none())
            });
            let writes = vec![
                (self.keys, at(o, m + &x), node),
                (self.order, at(o, place.clone()), taken),
                (self.taken, o.to_vec(), place + 1),
            ];
            match goes_on.map(|f| none().lt(&best).and(f(o))) {
                Some(condition) => only_where(&condition, writes),
                None => writes.into_iter().map(write).collect(),
            }
        });
    }
}

/// The best of the nodes that have one above them: two by two, so that no comparison waits for more than one.
fn best_of(node: impl Fn(i64) -> Expr) -> Expr {
    let all = (0..FAN).map(node).collect::<Vec<_>>();
    let pairs = all.chunks(2).map(|pair| pair[0].clone().max(&pair[1]));
    pairs.reduce(|a, b| a.max(b)).expect("there are nodes")
}

fn write((buffer, indices, value): Written) -> Write {
    Write {
        buffer,
        indices,
        value,
    }
}
