//! The best elements of lines, one after the other.
//!
//! A tree of winners has the best element of a line at its root. Taking that one out costs one node of each level, so
//! only elements that are asked for are put in order.

use super::Axes;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder, Write};

/// How the elements of a line are given: key and place, an i32. The lowest bits of the place are the element's number.
pub(super) struct Elements<'a> {
    pub lines: Axes,
    /// How many places a line has: a power of two, 2 at least.
    pub leaves: i64,
    /// Key and place of an element of a line. Beyond the last one are others that come last.
    pub element: &'a dyn Fn(&[Expr], &Expr) -> [Expr; 2],
    /// Whether the first one comes before the second one.
    pub comes_before: &'a dyn Fn(&[Expr; 2], &[Expr; 2]) -> Expr,
    /// The key of an element that was taken. Its place comes last.
    pub last: Expr,
}

/// A level has half the nodes of the one below, and lies before it: the level with m nodes begins at m - 1. Its node x
/// is the better one of the nodes x and x + m below it.
pub(super) struct Winners<'a> {
    elements: Elements<'a>,
    keys: BufferId,
    places: BufferId,
    /// The last element that was taken.
    best: BufferId,
    /// The numbers of elements in order, as far as they were taken.
    pub order: BufferId,
    /// How many were taken.
    pub taken: BufferId,
}

/// Of a line and the key of its best element, whether that one is taken.
pub(super) type GoesOn<'a> = &'a dyn Fn(&[Expr], Expr) -> Expr;

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

impl<'a> Winners<'a> {
    /// The tree of all elements, of which `most` are taken at most.
    pub fn of(b: &mut ProgramBuilder, elements: Elements<'a>, most: i64) -> Winners<'a> {
        let leaves = elements.leaves;
        let with = |n: i64| Axes([&elements.lines.0[..], &[("x".to_string(), n)]].concat());
        let own = |o: &[Expr]| {
            let (x, line) = o.split_last().expect("a node has a number");
            (x.clone(), line.to_vec())
        };
        let mut below = b.block("leaves", &with(leaves).list(), &[], None, |o, _| {
            let (x, line) = own(o);
            (elements.element)(&line, &x).to_vec()
        });
        let mut shape: Vec<i64> = elements.lines.0.iter().map(|(_, n)| *n).collect();
        shape.push(2 * leaves - 1);
        let mut m = leaves;
        let placed = |o: &[Expr], m: i64| {
            let (x, line) = own(o);
            at(&line, x + (m - 1))
        };
        let [keys, places] = [("keys", below[0]), ("places", below[1])].map(|(name, from)| {
            b.compute_into(name, &with(m).list(), &shape, |o| {
                (placed(o, m), Expr::load(from, o.to_vec()))
            })
        });
        while m > 1 {
            m /= 2;
            let axes = with(m);
            let level = b.block(&format!("level{m}"), &axes.list(), &[], None, |o, _| {
                let (x, line) = own(o);
                let node =
                    |x: Expr| [below[0], below[1]].map(|b| Expr::load(b, at(&line, x.clone())));
                better(&elements, node(x.clone()), node(x + m)).to_vec()
            });
            b.updates(&format!("placed{m}"), (&axes.list(), &[]), |o, _| {
                let write = |(buffer, from): (BufferId, &BufferId)| Write {
                    buffer,
                    indices: placed(o, m),
                    value: Expr::load(*from, o.to_vec()),
                };
                [keys, places].into_iter().zip(&level).map(write).collect()
            });
            below = level;
        }
        let zeros = |b: &mut ProgramBuilder, name: &str, axes: &Axes| {
            b.compute(name, &axes.list(), |_| Expr::int(0))
        };
        Winners {
            best: zeros(b, "best", &elements.lines),
            order: zeros(b, "order", &with(most)),
            taken: zeros(b, "taken", &elements.lines),
            elements,
            keys,
            places,
        }
    }

    /// Takes so many further elements. Level by level from the leaves on, each step computes the node above the element
    /// that is taken.
    pub fn take(
        &self,
        b: &mut ProgramBuilder,
        (from, count): (i64, i64),
        goes_on: Option<GoesOn<'_>>,
    ) {
        let leaves = self.elements.leaves;
        let levels = i64::from(leaves.ilog2()) + 1;
        let steps = [("box", count), ("level", levels)];
        let lines = self.elements.lines.list();
        b.updates(&format!("take{from}"), (&lines, &steps), |o, t| {
            let (number, level) = (t[0].clone() + from, t[1].clone());
            let goes_on = goes_on.map(|f| f(o, Expr::load(self.keys, at(o, 0))));
            let first = level.clone().equals(0);
            let root = self.number(Expr::load(self.places, at(o, 0)));
            let best = Expr::select(first.clone(), root, Expr::load(self.best, o.to_vec()));
            // Within the tree by what is written here: the data need no check.
            let inside = |place: Expr| at(o, place.max(0).min(2 * leaves - 2));
            let m = Expr::binary(BinaryOp::Shr, Expr::int(leaves), level);
            let x = Expr::binary(BinaryOp::BitAnd, &best, m.clone() - 1);
            let node = |times: i64| {
                let place = inside(m.clone() * times - 1 + &x);
                [self.keys, self.places].map(|b| Expr::load(b, place.clone()))
            };
            let [key, place] = better(&self.elements, node(2), node(3));
            let gone =
                best.clone().cast(DType::I32) + Expr::constant(2.0 * leaves as f64, DType::I32);
            let own = inside(m - 1 + &x);
            let writes = vec![
                (
                    self.keys,
                    own.clone(),
                    Expr::select(first.clone(), self.elements.last.clone(), key),
                ),
                (self.places, own, Expr::select(first, gone, place)),
                (self.best, o.to_vec(), best.clone()),
                (self.order, at(o, number.clone()), best),
                (self.taken, o.to_vec(), number + 1),
            ];
            match goes_on {
                Some(condition) => only_where(&condition, writes),
                None => writes.into_iter().map(write).collect(),
            }
        });
    }

    /// The number of the element that has a place.
    fn number(&self, place: Expr) -> Expr {
        let mask = Expr::constant((self.elements.leaves - 1) as f64, DType::I32);
        Expr::binary(BinaryOp::BitAnd, place, mask).cast(DType::I64)
    }
}

fn write((buffer, indices, value): Written) -> Write {
    Write {
        buffer,
        indices,
        value,
    }
}

/// The better one of two elements.
fn better(elements: &Elements, one: [Expr; 2], other: [Expr; 2]) -> [Expr; 2] {
    let takes = (elements.comes_before)(&other, &one);
    let [key, place] = one;
    let [other_key, other_place] = other;
    [
        Expr::select(takes.clone(), other_key, key),
        Expr::select(takes, other_place, place),
    ]
}
