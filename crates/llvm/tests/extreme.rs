//! Minimum and maximum of floats in code: the interpreter's results, for NaN and
//! infinities, one by one, by vectors and across lanes.

mod support;

use ir::{BinaryOp, DType, Expr};
use lower::flat::{BufferPlace, Lane};
use support::Flat;
use tensor::Tensor;
use testkit::host::host_targets;

const VALUES: [f64; 8] = [
    f64::NAN,
    f64::NEG_INFINITY,
    -1.5,
    -0.0,
    0.0,
    2.0,
    f64::INFINITY,
    f64::NAN,
];

fn tensor(dtype: DType, values: &[f64]) -> Tensor {
    let mut t = Tensor::zeros(dtype, &[values.len()]);
    for (i, v) in values.iter().enumerate() {
        t.set_f64(i, *v);
    }
    t
}

/// What `ir` defines, but for the sign of zeros.
fn extreme(op: BinaryOp, a: f64, b: f64) -> f64 {
    let first = a.is_nan() || if op == BinaryOp::Min { a < b } else { a > b };
    if first { a } else { b }
}

fn same(a: f64, b: f64) -> bool {
    a.is_nan() && b.is_nan() || a == b
}

#[test]
fn every_pair() {
    let pairs = || VALUES.iter().flat_map(|a| VALUES.map(|b| (*a, b)));
    let (left, right): (Vec<f64>, Vec<f64>) = pairs().unzip();
    let n = left.len() as i64;
    for (dtype, lanes) in [DType::F32, DType::F64]
        .into_iter()
        .flat_map(|d| [(d, 0), (d, 4), (d, 16)])
    {
        for op in [BinaryOp::Min, BinaryOp::Max] {
            let mut f = Flat::new();
            let [x, y] = [0, 1].map(|_| f.buffer(dtype, n, BufferPlace::Input));
            let z = f.buffer(dtype, n, BufferPlace::Output);
            let (i, l) = (f.var(), f.var());
            let lane = (lanes > 0).then_some(Lane { var: l, lanes });
            let at = match lane {
                None => Expr::var(i),
                Some(_) => Expr::var(i) * i64::from(lanes) + Expr::var(l),
            };
            let load = |b| Expr::load(b, [at.clone()]);
            let s = f.store(z, at.clone(), Expr::binary(op, load(x), load(y)), lane);
            let body = f.loop_(i, n / i64::from(lanes.max(1)), false, vec![s]);
            f.code.kernel = vec![body];
            for target in host_targets() {
                let zeros = tensor(dtype, &vec![7.0; left.len()]);
                let mut args = [tensor(dtype, &left), tensor(dtype, &right), zeros];
                assert_eq!(f.run(&target, &mut args), 0);
                for (i, (a, b)) in pairs().enumerate() {
                    let (got, wanted) = (args[2].get_f64(i), extreme(op, a, b));
                    assert!(same(got, wanted), "{op:?}({a}, {b}) = {got}, not {wanted}");
                }
            }
        }
    }
}

/// A running extreme over vectors of terms, wherever the NaN is.
#[test]
fn reductions() {
    const N: usize = 32;
    for (dtype, op) in [DType::F32, DType::F64]
        .into_iter()
        .flat_map(|d| [(d, BinaryOp::Min), (d, BinaryOp::Max)])
    {
        let mut f = Flat::new();
        let x = f.buffer(dtype, N as i64, BufferPlace::Input);
        let z = f.buffer(dtype, 1, BufferPlace::Output);
        let (i, l) = (f.var(), f.var());
        let lane = Some(Lane { var: l, lanes: 8 });
        let zero = || Expr::int(0);
        let term = Expr::load(x, [Expr::var(i) * 8 + Expr::var(l)]);
        let value = Expr::binary(op, Expr::load(z, [zero()]), term);
        let s = f.store(z, zero(), value, lane);
        f.code.kernel = vec![f.loop_(i, N as i64 / 8, false, vec![s])];
        for target in host_targets() {
            for nan in (0..=N).step_by(3) {
                let mut terms: Vec<f64> = (0..N).map(|i| (i * 7 % 5) as f64).collect();
                if let Some(v) = terms.get_mut(nan) {
                    *v = f64::NAN;
                }
                let mut args = [tensor(dtype, &terms), tensor(dtype, &[2.0])];
                assert_eq!(f.run(&target, &mut args), 0);
                let wanted = terms.iter().fold(2.0, |a, b| extreme(op, a, *b));
                let got = args[1].get_f64(0);
                assert!(same(got, wanted), "{op:?}, NaN at {nan}: {got}");
            }
        }
    }
}
