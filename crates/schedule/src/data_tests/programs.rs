//! The programs that the steps are tried on, and the loops they are tried with.

use crate::steps::{reorder, split};
use ir::{DType, Expr, Program, ProgramBuilder, Reducer, UnaryOp};

/// x[1,3,6,7] padded by 1, w[4,3,3,3], a bias and a relu; the output is `relu`.
pub(crate) fn padded_conv() -> Program {
    let mut b = ProgramBuilder::new("conv");
    let x = b.input("x", DType::F32, &[3, 6, 7]);
    let w = b.constant("w", DType::F32, &[4, 3, 3, 3]);
    let bias = b.constant("bias", DType::F32, &[4]);
    let pad = b.compute("pad", &[("c", 3), ("h", 8), ("w", 9)], |o| {
        let (h, w) = (&o[1], &o[2]);
        let inside = Expr::int(1)
            .le(h)
            .and(h.clone().lt(7))
            .and(Expr::int(1).le(w))
            .and(w.clone().lt(8));
        let at = [o[0].clone(), h - 1, w - 1];
        Expr::select(inside, Expr::load(x, at), Expr::f32(0.0))
    });
    let conv = b.reduce(
        "conv",
        &[("o", 4), ("h", 6), ("w", 7)],
        &[("c", 3), ("r", 3), ("s", 3)],
        Reducer::Sum,
        |o, k| {
            let at = [k[0].clone(), &o[1] + &k[1], &o[2] + &k[2]];
            let weight = [o[0].clone(), k[0].clone(), k[1].clone(), k[2].clone()];
            Expr::load(pad, at) * Expr::load(w, weight)
        },
    );
    let axes = [("o", 4), ("h", 6), ("w", 7)];
    let added = b.compute("added", &axes, |o| {
        Expr::load(conv, o.to_vec()) + Expr::load(bias, [o[0].clone()])
    });
    let relu = b.compute("relu", &axes, |o| {
        Expr::load(added, o.to_vec()).max(Expr::f32(0.0))
    });
    b.finish(&[relu])
}

/// relu(a[10,7] b[7,12] + bias); the matrix product is `mm`.
pub(crate) fn matmul() -> Program {
    let mut b = ProgramBuilder::new("matmul");
    let x = b.input("a", DType::F32, &[10, 7]);
    let y = b.constant("b", DType::F32, &[7, 12]);
    let bias = b.constant("bias", DType::F32, &[12]);
    let mm = b.reduce(
        "mm",
        &[("m", 10), ("n", 12)],
        &[("k", 7)],
        Reducer::Sum,
        |o, k| {
            let (m, n, k) = (o[0].clone(), o[1].clone(), k[0].clone());
            Expr::load(x, [m, k.clone()]) * Expr::load(y, [k, n])
        },
    );
    let out = b.compute("out", &[("m", 10), ("n", 12)], |o| {
        let sum = Expr::load(mm, o.to_vec()) + Expr::load(bias, [o[1].clone()]);
        sum.max(Expr::f32(0.0))
    });
    b.finish(&[out])
}

/// Softmax over the rows of x[5,9]: `top`, `e`, `sum`, `out`.
pub(crate) fn softmax() -> Program {
    let mut b = ProgramBuilder::new("softmax");
    let x = b.input("x", DType::F32, &[5, 9]);
    let axes = [("i", 5), ("j", 9)];
    let at = |o: &[Expr], k: &[Expr]| [o[0].clone(), k[0].clone()];
    let top = b.reduce("top", &[("i", 5)], &[("j", 9)], Reducer::Max, |o, k| {
        Expr::load(x, at(o, k))
    });
    let e = b.compute("e", &axes, |o| {
        let centred = Expr::load(x, o.to_vec()) - Expr::load(top, [o[0].clone()]);
        Expr::unary(UnaryOp::Exp, centred)
    });
    let sum = b.reduce("sum", &[("i", 5)], &[("j", 9)], Reducer::Sum, |o, k| {
        Expr::load(e, at(o, k))
    });
    let out = b.compute("out", &axes, |o| {
        Expr::load(e, o.to_vec()) / Expr::load(sum, [o[0].clone()])
    });
    b.finish(&[out])
}

/// The maximum of each row of x[6,10] and where it is, as a tuple reduction.
pub(crate) fn argmax() -> Program {
    let mut b = ProgramBuilder::new("argmax");
    let x = b.input("x", DType::F32, &[6, 10]);
    let (value, place) = (|i| Expr::arg(i, DType::F32), |i| Expr::arg(i, DType::I64));
    let better = value(0)
        .lt(value(2))
        .or(value(0).equals(value(2)).and(place(3).lt(place(1))));
    let reducer = Reducer::Tuple {
        combine: vec![
            Expr::select(better.clone(), value(2), value(0)),
            Expr::select(better, place(3), place(1)),
        ],
        identity: vec![Expr::f32(f32::NEG_INFINITY), Expr::int(i64::MAX)],
    };
    let best = b.block("best", &[("i", 6)], &[("j", 10)], Some(reducer), |o, k| {
        let at = [o[0].clone(), k[0].clone()];
        vec![Expr::load(x, at), k[0].clone()]
    });
    b.finish(&best)
}

/// Two stencils in a row: `a` of x[14], `b` of `a`, `c` of `b`.
pub(crate) fn stencils() -> Program {
    let mut b = ProgramBuilder::new("stencils");
    let x = b.input("x", DType::F32, &[14]);
    let near = |s: ir::BufferId, o: &[Expr]| {
        Expr::load(s, [o[0].clone()]) + Expr::load(s, [&o[0] + 1]) + Expr::load(s, [&o[0] + 2])
    };
    let first = b.compute("a", &[("i", 14)], |o| {
        Expr::load(x, o.to_vec()) * Expr::f32(2.0)
    });
    let second = b.compute("b", &[("i", 12)], |o| near(first, o));
    let third = b.compute("c", &[("i", 10)], |o| near(second, o));
    b.finish(&[third])
}

/// The transpose of x[6,8] plus 1, and that times 2 transposed back.
pub(crate) fn transposes() -> Program {
    let mut b = ProgramBuilder::new("transposes");
    let x = b.input("x", DType::F32, &[6, 8]);
    let back = |o: &[Expr]| [o[1].clone(), o[0].clone()];
    let t = b.compute("t", &[("j", 8), ("i", 6)], |o| {
        Expr::load(x, back(o)) + Expr::f32(1.0)
    });
    let u = b.compute("u", &[("i", 6), ("j", 8)], |o| {
        Expr::load(t, back(o)) * Expr::f32(2.0)
    });
    b.finish(&[u])
}

/// `f` and `g` of x[6], and their `sum`.
pub(crate) fn residual() -> Program {
    let mut b = ProgramBuilder::new("residual");
    let x = b.input("x", DType::F32, &[6]);
    let load = |s: ir::BufferId, o: &[Expr]| Expr::load(s, o.to_vec());
    let f = b.compute("f", &[("i", 6)], |o| load(x, o) * Expr::f32(3.0));
    let g = b.compute("g", &[("i", 6)], |o| load(x, o) + Expr::f32(3.0));
    let sum = b.compute("sum", &[("i", 6)], |o| load(f, o) + load(g, o));
    b.finish(&[sum])
}

/// x[2,9] plus the maximum of windows of 3 at stride 2, spread to its elements;
/// the output is `out`.
pub(crate) fn pooling() -> Program {
    let mut b = ProgramBuilder::new("pooling");
    let x = b.input("x", DType::F32, &[2, 9]);
    let pool = b.reduce(
        "pool",
        &[("c", 2), ("i", 4)],
        &[("k", 3)],
        Reducer::Max,
        |o, k| Expr::load(x, [o[0].clone(), o[1].clone() * 2 + &k[0]]),
    );
    let twice = b.compute("twice", &[("c", 2), ("i", 4)], |o| {
        Expr::load(pool, o.to_vec()) * Expr::f32(2.0)
    });
    let out = b.compute("out", &[("c", 2), ("i", 8)], |o| {
        let near = [o[0].clone(), o[1].clone().floor_div(2)];
        Expr::load(twice, near) + Expr::load(x, o.to_vec())
    });
    b.finish(&[out])
}

/// Splits a loop into two, the inner one of `inner` iterations.
pub(crate) fn split(p: &mut Program, name: &str, inner: i64) {
    split::apply(p, name, &[None, Some(inner)]).expect("legal");
}

/// Puts the loops round a block, a nest of its own, into the named order.
pub(crate) fn reorder(p: &mut Program, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
    reorder::apply(p, &names).expect("legal");
}
