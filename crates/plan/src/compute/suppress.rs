//! Boxes that no better one overlaps.
//!
//! Boxes are taken from a tree of [`winners`](super::winners), the best ones first, and each is compared with the chosen
//! ones. Both are ordered blocks that change nothing once a condition fails, so their loops end there. Boxes are taken in
//! parts that grow: mostly enough of them are chosen within the first one.

use super::winners::{self, Elements, Winners, at, only_where};
use super::{Axes, Env, Kind};
use graph::ops::Suppress;
use ir::names::MAIN;
use ir::{BufferId, DType, Expr, ProgramBuilder};

/// Boxes of the first part for each one that may be chosen.
const FIRST_PART: i64 = 2;
/// How much larger each further part is.
const GROWTH: i64 = 8;

pub(super) fn suppress(env: &Env, b: &mut ProgramBuilder, s: Suppress) -> (BufferId, Kind) {
    let scores = env.operand(0);
    let n = scores.shape()[2];
    let all = env.axes();
    let lines = Axes::new(all.0[..2].iter().cloned());
    let dtype = super::work(env.operand_dtype(0));
    let elements = Elements {
        lines: lines.clone(),
        count: n,
        key: &|line, i| {
            let score = scores.at(at(line, i.clone().min(n - 1))).cast(dtype);
            let lowest = Expr::constant(f64::NEG_INFINITY, dtype);
            let held = i.clone().lt(n).and(lowest.lt(&score));
            let key = winners::key(winners::order_of(&score), i);
            Expr::select(held, key, winners::none())
        },
    };
    let winners = Winners::of(b, &elements, n);
    let chosen = Chosen::none(env, b, &all, s);
    let (mut from, mut size) = (0, FIRST_PART * chosen.most);
    while from < n {
        let part = (from, size.min(n - from));
        winners.take(b, part, Some(&|line| chosen.wants_more(line)));
        chosen.compare(env, b, (&lines, part), &winners, s);
        from += part.1;
        size = size.saturating_mul(GROWTH);
    }
    let result = env.conclude(b, chosen.picks, &all, None);
    let kind = Kind::new("suppress").arg("of", n);
    let shape = env.shape.iter().enumerate();
    let kind = shape.fold(kind, |kind, (d, n)| kind.arg(&format!("d{d}"), *n));
    (result, kind)
}

/// The boxes that were chosen.
struct Chosen {
    picks: BufferId,
    /// Of each chosen box what [`Chosen::compare`] asks of it: low and high end along x, along y, and its area.
    sides: [BufferId; 5],
    count: BufferId,
    /// The last place in the order of which it is known whether its box is chosen.
    decided: BufferId,
    most: i64,
}

impl Chosen {
    fn none(env: &Env, b: &mut ProgramBuilder, all: &Axes, s: Suppress) -> Chosen {
        let lines = Axes::new(all.0[..2].iter().cloned());
        let zero = Expr::constant(0.0, super::work(env.operand_dtype(1)));
        Chosen {
            picks: b.compute(MAIN.as_str(), &all.list(), |_| Expr::int(-1)),
            sides: ["left", "right", "low", "high", "area"]
                .map(|name| b.compute(name, &all.list(), |_| zero.clone())),
            count: b.compute("count", &lines.list(), |_| Expr::int(0)),
            decided: b.compute("decided", &lines.list(), |_| Expr::int(-1)),
            most: s.most as i64,
        }
    }

    fn wants_more(&self, line: &[Expr]) -> Expr {
        Expr::load(self.count, line).lt(self.most)
    }

    /// Compares the boxes of a part with those that are chosen, and chooses one when it was compared with all. What
    /// is not decided by a comparison goes on to the next one, and nothing is written.
    fn compare(
        &self,
        env: &Env,
        b: &mut ProgramBuilder,
        (lines, (from, size)): (&Axes, (i64, i64)),
        winners: &Winners,
        s: Suppress,
    ) {
        let boxes = env.operand(1);
        let (n, dtype) = (boxes.shape()[1], super::work(env.operand_dtype(1)));
        let steps = [("box", size), ("with", self.most)];
        b.updates(
            &format!("compare{from}"),
            (&lines.list(), &steps),
            |o, t| {
                let (place, with) = (t[0].clone() + from, t[1].clone());
                let load = |b: BufferId| Expr::load(b, o.to_vec());
                let there = place.clone().lt(load(winners.taken));
                let open = load(self.decided).lt(&place);
                let goes_on = there.and(self.wants_more(o)).and(open);
                let number = Expr::load(winners.order, at(o, place.clone()));
                // Within the boxes by what is written here: the data need no check.
                let inside = number.clone().max(0).min(n - 1);
                let end = |k: i64| {
                    let at = vec![o[0].clone(), inside.clone(), Expr::int(k)];
                    boxes.at(at).cast(dtype)
                };
                let own = sides(s.centred, end, &Expr::constant(0.5, dtype));
                let pick = self.sides.map(|side| Expr::load(side, at(o, with.clone())));
                let over = overlap(&own, &pick, dtype);
                let over = Expr::constant(f64::from(s.threshold), dtype).lt(over);
                let chosen = with.clone().equals(load(self.count));
                let decides = goes_on.and(chosen.clone().or(over));
                let written = |buffer: BufferId, at: Vec<Expr>, value: Expr| {
                    let kept = Expr::load(buffer, at.clone());
                    (buffer, at, Expr::select(chosen.clone(), value, kept))
                };
                let mut writes = vec![
                    written(self.picks, at(o, with.clone()), number),
                    written(self.count, o.to_vec(), with.clone() + 1),
                    (self.decided, o.to_vec(), place),
                ];
                for (buffer, side) in self.sides.into_iter().zip(own) {
                    writes.push(written(buffer, at(o, with.clone()), side));
                }
                only_where(&decides, writes)
            },
        );
    }
}

/// Low and high end of a box along x and along y, and its area.
fn sides(centred: bool, at: impl Fn(i64) -> Expr, half: &Expr) -> [Expr; 5] {
    let centre = |i: i64| {
        let reach = at(i + 2) * half;
        [at(i) - &reach, at(i) + reach]
    };
    let corners = |i: i64| [lesser(&at(i), &at(i + 2)), greater(&at(i), &at(i + 2))];
    let [[left, right], [low, high]] = match centred {
        true => [centre(0), centre(1)],
        false => [corners(1), corners(0)],
    };
    let area = (&right - &left) * (&high - &low);
    [left, right, low, high, area]
}

/// The lesser of two numbers. Minimum and maximum would ask for what is no number.
fn lesser(a: &Expr, b: &Expr) -> Expr {
    Expr::select(a.clone().lt(b), a.clone(), b.clone())
}

fn greater(a: &Expr, b: &Expr) -> Expr {
    Expr::select(b.clone().lt(a), a.clone(), b.clone())
}

/// Intersection over union.
fn overlap(one: &[Expr; 5], other: &[Expr; 5], dtype: DType) -> Expr {
    let common = |d: usize| {
        let high = lesser(&one[d + 1], &other[d + 1]);
        let reach = high - greater(&one[d], &other[d]);
        greater(&reach, &Expr::constant(0.0, dtype))
    };
    let both = common(0) * common(2);
    &both / (&one[4] + &other[4] - &both)
}
