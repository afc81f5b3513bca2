//! Sums and products along an axis up to each element.
//!
//! The first element is a block of its own. The others go on from the one before them.

use super::movement::kind;
use super::{Axes, Env, Kind};
use graph::ops::{Cumulative, CumulativeKind};
use ir::names::MAIN;
use ir::{BufferId, Expr, ProgramBuilder};

pub(super) fn cumulative(env: &Env, b: &mut ProgramBuilder, c: Cumulative) -> (BufferId, Kind) {
    let (x, axes) = (env.operand(0), env.axes());
    let (name, n) = axes.0[c.axis].clone();
    let others = axes.0.iter().enumerate();
    let others = others.filter_map(|(d, a)| (d != c.axis).then_some(a.clone()));
    let others = Axes::new(others);
    // Element `i` in the order in which they come.
    let at = |o: &[Expr], i: Expr| {
        let place = if c.reverse { Expr::int(n - 1) - i } else { i };
        [&o[..c.axis], &[place], &o[c.axis..]].concat()
    };
    let shape: Vec<i64> = axes.0.iter().map(|(_, n)| *n).collect();
    let main = b.compute_into(MAIN.as_str(), &others.list(), &shape, |o| {
        let first = at(o, Expr::int(0));
        let value = match c.exclusive {
            true => Expr::constant(c.kind.identity(), env.work()),
            false => x.at(first.clone()),
        };
        (first, value)
    });
    if n > 1 {
        let ordered = [(name.as_str(), n - 1)];
        b.update("further", main, (&others.list(), &ordered), |o, t| {
            let (last, own) = (at(o, t[0].clone()), at(o, &t[0] + 1));
            let added = x.at(if c.exclusive { &last } else { &own }.clone());
            let so_far = Expr::load(main, last);
            let value = match c.kind {
                CumulativeKind::Sum => so_far + added,
                CumulativeKind::Prod => so_far * added,
            };
            (own, value)
        });
    }
    let result = env.conclude(b, main, &axes, None);
    (result, kind(env).arg("axis", c.axis))
}
