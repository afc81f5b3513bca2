//! Boxes that no better one overlaps.
//!
//! Boxes are taken from a tree of [`winners`](super::winners), the best ones first, and each is compared with the chosen
//! ones. Both are ordered blocks that change nothing once a condition fails, so their loops end there. Boxes are taken in
//! parts that grow: mostly enough of them are chosen within the first one.

use super::winners::{self, Elements, Winners, at, only_where};
use super::{Axes, Env, Kind};
use graph::ops::Suppress;
use ir::names::MAIN;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder};

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
    let per_line = |b: &mut ProgramBuilder, name: &str, v: i64| {
        b.compute(name, &lines.list(), |_| Expr::int(v))
    };
    let chosen = Chosen {
        picks: b.compute(MAIN.as_str(), &all.list(), |_| Expr::int(-1)),
        count: per_line(b, "count", 0),
        decided: per_line(b, "decided", -1),
        most: s.most as i64,
    };
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
    count: BufferId,
    /// The last place in the order of which it is known whether its box is chosen.
    decided: BufferId,
    most: i64,
}

impl Chosen {
    fn wants_more(&self, line: &[Expr]) -> Expr {
        Expr::load(self.count, line).lt(self.most)
    }

    /// Compares the boxes of a part with those that are chosen, and chooses one when it was compared with all.
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
                let (number, with) = (t[0].clone() + from, t[1].clone());
                let load = |b: BufferId| Expr::load(b, o.to_vec());
                let there = number.clone().lt(load(winners.taken));
                let open = load(self.decided).lt(&number);
                let goes_on = there.and(self.wants_more(o)).and(open);
                let own = Expr::load(winners.order, at(o, number.clone()));
                let pick = Expr::load(self.picks, at(o, with.clone()));
                let ends = |i: &Expr| {
                    // Within the boxes by what is written here: the data need no check.
                    let i = i.clone().max(0).min(n - 1);
                    let side = |k: i64| {
                        boxes
                            .at(vec![o[0].clone(), i.clone(), Expr::int(k)])
                            .cast(dtype)
                    };
                    sides(s.centred, side, &Expr::constant(0.5, dtype))
                };
                let over = overlap(&ends(&own), &ends(&pick), dtype);
                let over = Expr::constant(f64::from(s.threshold), dtype).lt(over);
                let chosen = with.clone().equals(load(self.count));
                let decides = Expr::binary(
                    BinaryOp::BitOr,
                    chosen.clone().cast(DType::I32),
                    over.cast(DType::I32),
                );
                let decides = Expr::binary(BinaryOp::Ne, decides, Expr::constant(0.0, DType::I32));
                let writes = vec![
                    (
                        self.picks,
                        at(o, with),
                        Expr::select(chosen.clone(), own, pick),
                    ),
                    (
                        self.count,
                        o.to_vec(),
                        load(self.count) + chosen.cast(DType::I64),
                    ),
                    (
                        self.decided,
                        o.to_vec(),
                        Expr::select(decides, number, load(self.decided)),
                    ),
                ];
                only_where(&goes_on, writes)
            },
        );
    }
}

/// Low and high end of a box along x and along y.
fn sides(centred: bool, at: impl Fn(i64) -> Expr, half: &Expr) -> [(Expr, Expr); 2] {
    let centre = |i: i64| {
        let reach = at(i + 2) * half;
        (at(i) - &reach, at(i) + reach)
    };
    let corners = |i: i64| (at(i).min(at(i + 2)), at(i).max(at(i + 2)));
    match centred {
        true => [centre(0), centre(1)],
        false => [corners(1), corners(0)],
    }
}

/// Intersection over union.
fn overlap(one: &[(Expr, Expr); 2], other: &[(Expr, Expr); 2], dtype: DType) -> Expr {
    let area = |s: &[(Expr, Expr); 2]| (&s[0].1 - &s[0].0) * (&s[1].1 - &s[1].0);
    let common = |d: usize| {
        let high = one[d].1.clone().min(&other[d].1);
        (high - one[d].0.clone().max(&other[d].0)).max(Expr::constant(0.0, dtype))
    };
    let both = common(0) * common(1);
    &both / (area(one) + area(other) - &both)
}
