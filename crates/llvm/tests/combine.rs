//! Lanes that are combined into one element: every operator, exact on small
//! whole numbers, for vectors narrower and wider than the target's.

mod support;

use ir::{BinaryOp, DType, Expr};
use lower::flat::{BufferPlace, Lane};
use support::Flat;
use tensor::{Fill, Tensor, fill_tensor};
use testkit::host::host_targets;

const OPERATORS: [BinaryOp; 4] = [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Min, BinaryOp::Max];

/// The element starts as 2; `rows` rows of lanes are combined into it.
fn combine(op: BinaryOp, d: DType, lanes: u32, rows: i64, place: BufferPlace) -> Flat {
    let mut f = Flat::new();
    let x = f.buffer(d, rows * i64::from(lanes), BufferPlace::Input);
    let z = f.buffer(d, 1, BufferPlace::Output);
    let acc = match place {
        BufferPlace::Output => z,
        other => f.buffer(d, 1, other),
    };
    let (k, l) = (f.var(), f.var());
    let v = Expr::var;
    let zero = || Expr::int(0);
    let init = f.store(acc, zero(), Expr::constant(2.0, d), None);
    let term = Expr::load(x, [v(k) * i64::from(lanes) + v(l)]);
    let value = Expr::binary(op, Expr::load(acc, [zero()]), term);
    let update = f.store(acc, zero(), value, Some(Lane { var: l, lanes }));
    let update = f.loop_(k, rows, false, vec![update]);
    let out = f.store(z, zero(), Expr::load(acc, [zero()]), None);
    f.code.kernel = vec![init, update, out];
    f
}

#[test]
fn all_lanes_count_once() {
    for target in host_targets() {
        for (d, op) in [DType::F32, DType::F64, DType::I32]
            .into_iter()
            .flat_map(|d| OPERATORS.map(|op| (d, op)))
        {
            for (lanes, place) in [
                (2, BufferPlace::Register),
                (4, BufferPlace::Register),
                (16, BufferPlace::Register),
                (64, BufferPlace::Register),
                (16, BufferPlace::Output),
            ] {
                let rows = 3;
                let n = rows as usize * lanes as usize;
                // Products of a few twos and many ones stay exact.
                let ints = match op {
                    BinaryOp::Mul => Fill::Integers { lo: 1, hi: 1 },
                    _ => Fill::Integers { lo: -9, hi: 9 },
                };
                let mut x = fill_tensor(d, &[n], ints, u64::from(lanes));
                if op == BinaryOp::Mul {
                    for i in [0, n / 2, n - 1] {
                        x.set_f64(i, 3.0);
                    }
                }
                let expected = (0..n)
                    .map(|i| x.get_f64(i))
                    .fold(2.0, |a: f64, t| match op {
                        BinaryOp::Add => a + t,
                        BinaryOp::Mul => a * t,
                        BinaryOp::Min => a.min(t),
                        _ => a.max(t),
                    });
                let mut args = [x, Tensor::zeros(d, &[1])];
                let f = combine(op, d, lanes, rows, place);
                assert_eq!(f.run(&target, &mut args), 0);
                let found = args[1].get_f64(0);
                assert_eq!(found, expected, "{op:?} {d} {lanes} {place:?}");
            }
        }
    }
}
