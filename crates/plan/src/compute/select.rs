//! Choosing elements by their values.

use super::{Env, Kind, Point};
use graph::ops::Suppress;
use ir::names::MAIN;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder};

/// `before` counts the true elements before each. Every element is then stored at its count: what stays is the last
/// one, which is true, or 0 where no further one is true.
pub(super) fn positions(env: &Env, b: &mut ProgramBuilder) -> (BufferId, Kind) {
    let x = env.operand(0);
    let n = x.shape()[0];
    let number = |v: i64| Expr::constant(v as f64, DType::I32);
    let before = b.compute_into("before", &[], &[n], |_| (vec![Expr::int(0)], number(0)));
    if n > 1 {
        b.update("count", before, (&[], &[("i0", n - 1)]), |_, t| {
            let own = Expr::select(x.at(t.to_vec()), number(1), number(0));
            (vec![&t[0] + 1], Expr::load(before, t.to_vec()) + own)
        });
    }
    let axes = env.axes();
    let main = b.compute(MAIN.as_str(), &axes.list(), |_| Expr::int(0));
    b.update("placed", main, (&[], &axes.list()), |_, t| {
        // Within the result by what is written here: the data need no check.
        let place = Expr::load(before, t.to_vec()).cast(DType::I64);
        let place = place.max(0).min(n - 1);
        (
            vec![place],
            Expr::select(x.at(t.to_vec()), t[0].clone(), Expr::int(0)),
        )
    });
    let result = env.conclude(b, main, &axes, None);
    (result, Kind::new("positions").arg("d0", n))
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

pub(super) fn suppress(env: &Env, b: &mut ProgramBuilder, s: Suppress) -> (BufferId, Kind) {
    let (scores, boxes, best) = (env.operand(0), env.operand(1), env.operand(2));
    let number = |v: f64| Expr::constant(v, env.work());
    // What the data choose is read once, and not again for each box.
    let [batch, classes] = [env.shape[0], env.shape[1]];
    let chosen = |o: &[Expr]| best.at(vec![o[0].clone(), o[1].clone(), Expr::int(0)]);
    let rows = [("i0", batch), ("i1", classes)];
    let held = b.compute("held", &rows, |o| {
        scores.at(vec![o[0].clone(), o[1].clone(), chosen(o)])
    });
    let sides_of = [("i0", batch), ("i1", classes), ("k", 4)];
    let taken = b.compute("taken", &sides_of, |o| {
        boxes.at(vec![o[0].clone(), o[2].clone(), chosen(o)])
    });
    let result = env.map(b, |p: &Point| {
        let [n, c, i] = [0, 1, 2].map(|d| p.index[d].clone());
        let half = number(0.5);
        let at = |k: i64| boxes.at(vec![n.clone(), Expr::int(k), i.clone()]);
        let own = sides(s.centred, at, &half);
        let at = |k: i64| Expr::load(taken, vec![n.clone(), c.clone(), Expr::int(k)]);
        let other = sides(s.centred, at, &half);
        let area = |s: &[(Expr, Expr); 2]| (&s[0].1 - &s[0].0) * (&s[1].1 - &s[1].0);
        let common = |d: usize| {
            let high = own[d].1.clone().min(&other[d].1);
            (high - own[d].0.clone().max(&other[d].0)).max(number(0.0))
        };
        let both = common(0) * common(1);
        let overlap = &both / (area(&own) + area(&other) - &both);
        let over = number(f64::from(s.threshold)).lt(overlap);
        let score = scores.at(p.index.clone());
        let low = number(f64::NEG_INFINITY);
        let held = Expr::load(held, vec![n.clone(), c.clone()]);
        let goes = over.or(chosen(&p.index).equals(&i));
        let goes = goes.and(Expr::binary(BinaryOp::Ne, held, low.clone()));
        Expr::select(goes, low, score)
    });
    let mut kind = Kind::new("suppress");
    for (d, n) in env.shape.iter().enumerate() {
        kind = kind.arg(&format!("d{d}"), *n);
    }
    (result, kind)
}
