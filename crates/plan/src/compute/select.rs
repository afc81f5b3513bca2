//! Choosing elements by their values.

use super::{Env, Kind};
use ir::names::MAIN;
use ir::{BufferId, DType, Expr, ProgramBuilder};

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
