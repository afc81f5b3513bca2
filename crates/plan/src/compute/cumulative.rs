//! Sums and products along an axis up to each element.
//!
//! The first element is a block of its own. The others go on from the one before them. A single line goes on from a number
//! of its own, which stays in a register: to store each result and to read it back would take longer than to add.

use super::movement::kind;
use super::{Axes, Env, Kind};
use graph::ops::{Cumulative, CumulativeKind};
use ir::names::MAIN;
use ir::{BufferId, Expr, ProgramBuilder, Write};

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
    let result = |so_far: Expr, added: Expr| match c.kind {
        CumulativeKind::Sum => so_far + added,
        CumulativeKind::Prod => so_far * added,
    };
    // Elements `t` and `t + 1`, and what the latter adds.
    let step = |o: &[Expr], t: &[Expr]| {
        let (last, own) = (at(o, t[0].clone()), at(o, &t[0] + 1));
        let added = x.at(if c.exclusive { &last } else { &own }.clone());
        (last, own, added)
    };
    let (lines, ordered) = (others.list(), [(name.as_str(), n - 1)]);
    let is_one_line = lines.iter().all(|(_, n)| *n == 1);
    if n > 1 && is_one_line {
        let zero = || vec![Expr::int(0)];
        let so_far = b.compute_into("so_far", &[], &[1], |_| {
            let first = at(&vec![Expr::int(0); lines.len()], Expr::int(0));
            (zero(), Expr::load(main, first))
        });
        b.updates("further", (&lines, &ordered), |o, t| {
            let (_, own, added) = step(o, t);
            let value = result(Expr::load(so_far, zero()), added);
            let to = |buffer, indices| Write {
                buffer,
                indices,
                value: value.clone(),
            };
            vec![to(main, own), to(so_far, zero())]
        });
    } else if n > 1 {
        b.update("further", main, (&lines, &ordered), |o, t| {
            let (last, own, added) = step(o, t);
            (own, result(Expr::load(main, last), added))
        });
    }
    let result = env.conclude(b, main, &axes, None);
    (result, kind(env).arg("axis", c.axis))
}
