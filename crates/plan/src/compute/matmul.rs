//! Matrix products.

use super::{Axes, Env, Kind, LastStep, Point};
use graph::ops::{Gemm, MatMulBlocks};
use ir::names::{BLOCK_SUMS, BlockName, MAIN, TERM_SUMS, product};
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder, Reducer};

/// The block `main`, and `out` behind it.
pub(super) fn matmul(env: &Env, b: &mut ProgramBuilder) -> (BufferId, Kind) {
    let (acc, axes) = product(env, b, MAIN);
    let result = env.conclude(b, acc, &axes, None);
    let (x, y) = (env.operand(0), env.operand(1));
    let (rows, columns) = (x.shape().len() > 1, y.shape().len() > 1);
    let last = env.shape.len();
    let batch = last - usize::from(rows) - usize::from(columns);
    let k = x.shape()[x.shape().len() - 1];
    let m = if rows { env.shape[batch] } else { 1 };
    let n = if columns { env.shape[last - 1] } else { 1 };
    let products = env.shape[..batch].iter().product::<i64>();
    let name = match (batch, env.is_constant(1)) {
        (0, true) => "dense",
        (0, false) => "matmul",
        _ => "batch_matmul",
    };
    let kind = Kind::new(name).arg("m", m).arg("n", n).arg("k", k);
    let kind = if batch > 0 {
        kind.arg("b", products)
    } else {
        kind
    };
    (
        result,
        kind.flops(2.0 * products as f64 * (m * n) as f64 * k as f64),
    )
}

/// `name` [b0.., m, n] = sum over k; a vector operand has no `m` or no `n`.
pub(super) fn product(env: &Env, b: &mut ProgramBuilder, name: BlockName) -> (BufferId, Axes) {
    let (x, y) = (env.operand(0), env.operand(1));
    let (rows, columns) = (x.shape().len() > 1, y.shape().len() > 1);
    let batch = env.shape.len() - usize::from(rows) - usize::from(columns);
    let mut names: Vec<String> = (0..batch).map(|d| format!("b{d}")).collect();
    names.extend(rows.then(|| product::ROW.into()));
    names.extend(columns.then(|| product::COLUMN.into()));
    let axes = env.named_axes(names);
    let k = x.shape()[x.shape().len() - 1];
    let sums = b.reduce(
        name.as_str(),
        &axes.list(),
        &[(product::TERM.as_str(), k)],
        Reducer::Sum,
        |o, t| {
            let matrix = |shape: &[i64], tail: Vec<Expr>| {
                let own = shape.len().saturating_sub(2);
                let skip = batch - own.min(batch);
                let lead = shape.iter().zip(&o[skip..batch]).take(own);
                let lead = lead.map(|(n, i)| if *n == 1 { Expr::int(0) } else { i.clone() });
                lead.chain(tail).collect::<Vec<_>>()
            };
            let m = rows.then(|| o[batch].clone());
            let n = columns.then(|| o[o.len() - 1].clone());
            let left = matrix(x.shape(), m.into_iter().chain([t[0].clone()]).collect());
            let right = matrix(y.shape(), [t[0].clone()].into_iter().chain(n).collect());
            env.factor(0, x.at(left)) * env.factor(1, y.at(right))
        },
    );
    (sums, axes)
}

/// main [m, n] = sum over blocks q of (block_sums [m, n, q] - zero term_sums [m, q]) scale, so
/// that the sum over the terms of a block is of packed numbers as they are.
pub(super) fn matmul_blocks(
    env: &Env,
    b: &mut ProgramBuilder,
    weights: MatMulBlocks,
) -> (BufferId, Kind) {
    let [x, packed, scales, zeros] = [0, 1, 2, 3].map(|i| env.operand(i));
    let (m, n, k) = (env.shape[0], env.shape[1], x.shape()[1]);
    let [block, bytes, parts] =
        [weights.block, weights.bytes(), weights.in_byte()].map(|n| n as i64);
    let (bits, blocks) = (weights.bits as i64, k / block);
    let [row, column, q] = [
        (product::ROW.as_str(), m),
        (product::COLUMN.as_str(), n),
        (product::BLOCK.as_str(), blocks),
    ];
    let term_sums = b.reduce(
        TERM_SUMS.as_str(),
        &[row, q],
        &[(product::TERM.as_str(), block)],
        Reducer::Sum,
        |o, t| x.at(vec![o[0].clone(), &o[1] * block + &t[0]]),
    );
    let block_sums = b.reduce(
        BLOCK_SUMS.as_str(),
        &[row, column, q],
        &[
            (product::BYTE.as_str(), bytes),
            (product::PART.as_str(), parts),
        ],
        Reducer::Sum,
        |o, t| {
            let term = &o[2] * block + &t[1] * bytes + &t[0];
            let byte = packed.at(vec![o[2].clone(), t[0].clone(), o[1].clone()]);
            let byte = byte.cast(DType::I32);
            let number = match bits {
                8 => byte,
                _ => {
                    let first = (&t[1] * bits).cast(DType::I32);
                    let low = Expr::binary(BinaryOp::Shr, byte, first);
                    let mask = Expr::constant(f64::from((1i32 << bits) - 1), DType::I32);
                    Expr::binary(BinaryOp::BitAnd, low, mask)
                }
            };
            x.at(vec![o[0].clone(), term]) * number.cast(DType::F32)
        },
    );
    let axes = env.named_axes([product::ROW, product::COLUMN]);
    let acc = b.reduce(MAIN.as_str(), &axes.list(), &[q], Reducer::Sum, |o, t| {
        let (m, n, q) = (&o[0], &o[1], &t[0]);
        let place = vec![q.clone(), n.clone()];
        let zero = zeros.load(&Point::plain(place.clone())).cast(DType::F32);
        let sums = Expr::load(block_sums, vec![m.clone(), n.clone(), q.clone()]);
        let terms = Expr::load(term_sums, vec![m.clone(), q.clone()]);
        (sums - zero * terms) * scales.at(place)
    });
    let result = env.conclude(b, acc, &axes, None);
    let kind = Kind::new("dense_packed")
        .arg("m", m)
        .arg("n", n)
        .arg("k", k)
        .arg("bits", bits)
        .arg("block", block)
        .flops(2.0 * (m * n) as f64 * k as f64);
    (result, kind)
}

/// main [m, n] = sum over k; scaling and the addend are in `out`.
pub(super) fn gemm(env: &Env, b: &mut ProgramBuilder, g: &Gemm) -> (BufferId, Kind) {
    let (x, y) = (env.operand(0), env.operand(1));
    let axes = env.named_axes([product::ROW, product::COLUMN]);
    let k = x.shape()[usize::from(!g.trans_a)];
    let ordered = |swap: bool, i: &Expr, j: &Expr| {
        if swap {
            vec![j.clone(), i.clone()]
        } else {
            vec![i.clone(), j.clone()]
        }
    };
    let acc = b.reduce(
        MAIN.as_str(),
        &axes.list(),
        &[(product::TERM.as_str(), k)],
        Reducer::Sum,
        |o, t| {
            let left = x.at(ordered(g.trans_a, &o[0], &t[0]));
            left * y.at(ordered(g.trans_b, &t[0], &o[1]))
        },
    );
    let scaled = |e: Expr, by: f32| {
        if by == 1.0 {
            return e;
        }
        if env.work().is_float() {
            return e * Expr::constant(f64::from(by), env.work());
        }
        // Integer products are scaled in f64 and truncated.
        let wide = e.cast(ir::DType::F64) * Expr::constant(f64::from(by), ir::DType::F64);
        wide.cast(env.work())
    };
    let post = |sum: Expr, p: &Point| {
        let product = scaled(sum, g.alpha);
        match env.optional(2) {
            Some(c) => product + scaled(c.load(p), g.beta),
            None => product,
        }
    };
    let last_step = g.alpha != 1.0 || env.optional(2).is_some();
    let post = last_step.then_some(&post as LastStep);
    let result = env.conclude(b, acc, &axes, post);
    let name = if env.is_constant(1) {
        "dense"
    } else {
        "matmul"
    };
    let (m, n) = (env.shape[0], env.shape[1]);
    let kind = Kind::new(name)
        .arg("m", m)
        .arg("n", n)
        .arg("k", k)
        .arg("trans_a", g.trans_a)
        .arg("trans_b", g.trans_b)
        .flops(2.0 * (m * n) as f64 * k as f64);
    (result, kind)
}
