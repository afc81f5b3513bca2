//! Choosing elements by their values.

use super::{Env, Kind, Point};
use graph::ops::Suppress;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder};

/// `before0`, `before1`, ... count the true elements up to each, among the last 1, 2, 4, ...;
/// then `at0`, `at1`, ... find the place of the first, second, ... by halving.
pub(super) fn positions(env: &Env, b: &mut ProgramBuilder) -> (BufferId, Kind) {
    let x = env.operand(0);
    let n = x.shape()[0];
    let axes = [("i0", n)];
    let number = |v: i64| Expr::constant(v as f64, DType::I32);
    let mut count = b.compute("before0", &axes, |o| {
        Expr::select(x.at(o.to_vec()), number(1), number(0))
    });
    let mut span = 1;
    for level in 1.. {
        if span >= n {
            break;
        }
        let last = count;
        count = b.compute(&format!("before{level}"), &axes, |o| {
            let earlier = (o[0].clone() - span).max(0);
            let earlier = Expr::load(last, vec![earlier]);
            let inside = o[0].clone().ge(span);
            Expr::load(last, o.to_vec()) + Expr::select(inside, earlier, number(0))
        });
        span *= 2;
    }
    // How many elements have at most as many true ones up to them as there are wanted before.
    let further = |passed: Expr, o: &Expr, step: i64| {
        let to = &passed + step;
        let inside = to.clone().le(n);
        let seen = Expr::load(count, vec![(to.clone() - 1).min(n - 1)]);
        let short = seen.le(o.clone().cast(DType::I32));
        Expr::select(inside.and(short), to, passed)
    };
    let mut step = span;
    let mut passed: Option<BufferId> = None;
    let mut level = 0;
    while step > 1 {
        let before = passed;
        passed = Some(b.compute(&format!("at{level}"), &axes, |o| {
            let from = before.map_or(Expr::int(0), |p| Expr::load(p, o.to_vec()));
            further(from, &o[0], step)
        }));
        step /= 2;
        level += 1;
    }
    let result = env.map(b, |p| {
        let o = &p.index[0];
        let from = passed.map_or(Expr::int(0), |q| Expr::load(q, vec![o.clone()]));
        let at = further(from, o, 1);
        Expr::select(at.clone().lt(n), at, Expr::int(0))
    });
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
