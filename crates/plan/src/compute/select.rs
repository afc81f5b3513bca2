//! Choosing elements by their values.

use super::{Env, Kind};
use ir::names::MAIN;
use ir::{BufferId, DType, Expr, ProgramBuilder, Write};

/// `before` counts the true elements before the one that is visited. Every element is stored at that count: what stays is
/// the last one, which is true, or 0 where no further one is true. The count is one number, so that it stays in a
/// register: a count for each element would be stored and read back from each element to the next.
pub(super) fn positions(env: &Env, b: &mut ProgramBuilder) -> (BufferId, Kind) {
    let x = env.operand(0);
    let n = x.shape()[0];
    let number = |v: i64| Expr::constant(v as f64, DType::I32);
    let axes = env.axes();
    let main = b.compute(MAIN.as_str(), &axes.list(), |_| Expr::int(0));
    let before = b.compute_into("before", &[], &[1], |_| (vec![Expr::int(0)], number(0)));
    b.updates("placed", (&[], &axes.list()), |_, t| {
        let count = Expr::load(before, vec![Expr::int(0)]);
        let flag = || x.at(t.to_vec());
        // Within the result by what is written here: the data need no check.
        let place = count.clone().cast(DType::I64).max(0).min(n - 1);
        let placed = Write {
            buffer: main,
            indices: vec![place],
            value: Expr::select(flag(), t[0].clone(), Expr::int(0)),
        };
        let counted = Write {
            buffer: before,
            indices: vec![Expr::int(0)],
            // A choice may become a branch, which flags in no order mispredict.
            value: count + flag().cast(DType::I32),
        };
        vec![placed, counted]
    });
    let result = env.conclude(b, main, &axes, None);
    (result, Kind::new("positions").arg("d0", n))
}
