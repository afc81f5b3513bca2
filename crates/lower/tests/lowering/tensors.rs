//! Other operators: softmax, argmax, gather, views, tuples, tensorized blocks.

use crate::hand::Hand;
use crate::judge::{all, code, judge, judge_on, run, values};
use ir::{
    BinaryOp, DType, Expr, ExprKind, IterKind, LoopKind, Program, ProgramBuilder, Reducer,
    TensorOp, UnaryOp, View,
};
use lower::flat::interpret::{Arguments, FlatError, interpret_flat};
use lower::flat::{BufferPlace, Stmt};
use tensor::Tensor;

const SERIAL: LoopKind = LoopKind::Serial;

pub fn softmax(rows: i64, n: i64) -> Program {
    let mut b = ProgramBuilder::new("softmax");
    let x = b.input("x", DType::F32, &[rows, n]);
    let max = b.reduce("max", &[("i", rows)], &[("j", n)], Reducer::Max, |s, r| {
        Expr::load(x, [s[0].clone(), r[0].clone()])
    });
    let e = b.compute("e", &[("i", rows), ("j", n)], |s| {
        Expr::unary(
            UnaryOp::Exp,
            Expr::load(x, s) - Expr::load(max, [s[0].clone()]),
        )
    });
    let sum = b.reduce("sum", &[("i", rows)], &[("j", n)], Reducer::Sum, |s, r| {
        Expr::load(e, [s[0].clone(), r[0].clone()])
    });
    let out = b.compute("out", &[("i", rows), ("j", n)], |s| {
        Expr::load(e, s) / Expr::load(sum, [s[0].clone()])
    });
    b.finish(&[out])
}

#[test]
fn softmax_row_by_row() {
    let raw = softmax(4, 16);
    judge(&raw, &raw);
    let mut h = Hand::of(&raw);
    let body = h.nest("i", 4, LoopKind::Parallel, |h, i| {
        let reduce = |h: &mut Hand, what: &str| {
            h.nest("j", 16, SERIAL, |h, j| vec![h.block(what, &[i.clone(), j])])
        };
        let map = |h: &mut Hand, what: &str| {
            h.nest("jo", 2, SERIAL, |h, jo| {
                vec![h.nest("ji", 8, LoopKind::Vectorized, |h, ji| {
                    vec![h.block(what, &[i.clone(), jo * 8 + ji])]
                })]
            })
        };
        vec![
            reduce(h, "max"),
            map(h, "e"),
            reduce(h, "sum"),
            map(h, "out"),
        ]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    let buffer = |n: &str| code.buffers.iter().find(|b| b.name == n).unwrap();
    assert_eq!(
        (buffer("max").elements, buffer("max").place),
        (1, BufferPlace::Register)
    );
    assert_eq!(
        (buffer("e").elements, buffer("e").place),
        (16, BufferPlace::Stack)
    );
    assert_eq!(code.workspace_bytes, 0);
}

/// (value, index) of the first largest element of each row.
pub fn argmax(rows: i64, n: i64) -> Program {
    let mut b = ProgramBuilder::new("argmax");
    let x = b.input("x", DType::F32, &[rows, n]);
    let (f, i) = (DType::F32, DType::I64);
    let newer = || {
        let larger = Expr::binary(BinaryOp::Lt, Expr::arg(0, f), Expr::arg(2, f));
        let equal = Expr::arg(0, f).equals(Expr::arg(2, f));
        larger.or(equal.and(Expr::arg(3, i).lt(Expr::arg(1, i))))
    };
    let reducer = Reducer::Tuple {
        combine: vec![
            Expr::select(newer(), Expr::arg(2, f), Expr::arg(0, f)),
            Expr::select(newer(), Expr::arg(3, i), Expr::arg(1, i)),
        ],
        identity: vec![Expr::f32(f32::NEG_INFINITY), Expr::int(i64::MAX)],
    };
    let outs = b.block(
        "best",
        &[("i", rows)],
        &[("j", n)],
        Some(reducer),
        |s, r| vec![Expr::load(x, [s[0].clone(), r[0].clone()]), r[0].clone()],
    );
    b.finish(&outs)
}

#[test]
fn tuples_are_evaluated_before_they_are_stored() {
    let raw = argmax(8, 9);
    let code = judge(&raw, &raw);
    let given = values(&raw);
    let result = run(&code, &given);
    let (x, index) = (&given[&raw.params[0]], &result[&raw.params[2]]);
    for row in 0..8 {
        let row_values: Vec<f64> = (0..9).map(|j| x.get_f64(row * 9 + j)).collect();
        let best = row_values.iter().cloned().fold(f64::MIN, f64::max);
        let first = row_values.iter().position(|v| *v == best).unwrap();
        assert_eq!(index.get_i64(row), first as i64);
    }
}

#[test]
fn tuples_in_lanes() {
    let raw = argmax(8, 9);
    let mut h = Hand::of(&raw);
    let body = h.nest("j", 9, SERIAL, |h, j| {
        vec![h.nest("i", 8, LoopKind::Vectorized, |h, i| {
            vec![h.block("best", &[i, j])]
        })]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    let value = code
        .buffers
        .iter()
        .find(|b| b.name.starts_with("best.") && b.place == BufferPlace::Register);
    assert_eq!(value.expect("a temporary").elements, 8, "one for each lane");
}

#[test]
fn swap_of_two_outputs() {
    // A map with two writes, the second reading what the first overwrites.
    let mut b = ProgramBuilder::new("pair");
    let x = b.input("x", DType::F32, &[6]);
    let outs = b.block("pair", &[("i", 6)], &[], None, |s, _| {
        vec![
            Expr::load(x, s) * Expr::f32(2.0),
            Expr::load(x, s) - Expr::f32(1.0),
        ]
    });
    let raw = b.finish(&outs);
    judge(&raw, &raw);
}

fn gather(rows: i64, n: i64) -> Program {
    let mut b = ProgramBuilder::new("gather");
    let table = b.input("table", DType::F32, &[rows, 8]);
    let index = b.input("index", DType::I64, &[n]);
    let out = b.compute("out", &[("i", n), ("j", 8)], |s| {
        Expr::load(table, [Expr::load(index, [s[0].clone()]), s[1].clone()])
    });
    b.finish(&[out])
}

fn gather_values(raw: &Program, index: &[i64]) -> Arguments {
    let mut given = values(raw);
    given.insert(raw.params[1], Tensor::from_slice(&[index.len()], index));
    given
}

#[test]
fn loaded_indices_are_checked() {
    let raw = gather(4, 3);
    let mut vector = raw.clone();
    let j = vector.loop_named("out.j").unwrap();
    vector.loop_mut(j).kind = LoopKind::Vectorized;
    let mut lanes = raw.clone();
    let i = lanes.loop_named("out.i").unwrap();
    lanes.loop_mut(i).kind = LoopKind::Unrolled;
    for p in [&raw, &vector, &lanes] {
        let code = judge_on(&raw, p, &gather_values(&raw, &[3, 0, 2]), 0.0);
        for wrong in [4, -1, i64::MAX] {
            let mut given = gather_values(&raw, &[3, wrong, 2]);
            assert_eq!(interpret_flat(&code, &mut given), Err(FlatError::Check(1)));
        }
    }
    // A row is checked once, outside its columns, and copied in lanes.
    let code = code(&vector);
    let kinds: Vec<bool> = all(&code.kernel)
        .iter()
        .filter(|s| !matches!(s, Stmt::Loop(_)))
        .map(|s| matches!(s, Stmt::Check { .. }))
        .collect();
    assert_eq!(kinds, [true, false]);
}

#[test]
fn no_index_is_loaded_ahead_of_its_guard() {
    // Row n takes the row that the index before names; the first has none.
    let mut b = ProgramBuilder::new("shifted");
    let x = b.input("x", DType::F32, &[8, 64]);
    let index = b.input("index", DType::I64, &[8]);
    let y = b.compute("y", &[("n", 9), ("c", 64)], |s| {
        let at = Expr::load(index, [s[0].clone() - 1]);
        let value = Expr::load(x, [at, s[1].clone()]);
        Expr::select(Expr::int(1).le(&s[0]), value, Expr::f32(0.0))
    });
    let raw = b.finish(&[y]);
    let mut p = raw.clone();
    let c = p.loop_named("y.c").unwrap();
    let (buffer, distance) = (x, 4);
    p.loop_mut(c).annotations = vec![ir::Annotation::Prefetch { buffer, distance }];
    let code = judge(&raw, &p);
    let ahead = |s: &&Stmt| matches!(s, Stmt::Prefetch { .. });
    assert_eq!(all(&code.kernel).into_iter().filter(ahead).count(), 0);
}

#[test]
fn a_condition_is_loaded_for_lanes_that_there_are() {
    let mut b = ProgramBuilder::new("chosen");
    let x = b.input("x", DType::F32, &[3]);
    let w = b.input("w", DType::F32, &[9, 2]);
    let y = b.reduce("y", &[("i", 9)], &[("k", 2)], Reducer::Sum, |s, r| {
        let of_four = Expr::load(x, [s[0].clone().floor_div(4)]);
        let value = Expr::load(w, [s[0].clone(), r[0].clone()]);
        Expr::select(Expr::f32(0.0).lt(of_four), value, Expr::f32(0.0))
    });
    let raw = b.finish(&[y]);
    let mut h = Hand::of(&raw);
    let body = h.nest("i0", 2, SERIAL, |h, i0| {
        vec![h.nest("i1", 2, SERIAL, |h, i1| {
            let first = i0 * 8 + i1 * 4;
            vec![h.nest("k", 2, SERIAL, |h, k| {
                vec![h.nest("i2", 4, LoopKind::Vectorized, |h, i2| {
                    let i = first.clone() + i2;
                    vec![h.guarded("y", &[i.clone(), k.clone()], Some(i.lt(9)), true)]
                })]
            })]
        })]
    });
    judge(&raw, &h.finish(vec![body]));
}

#[test]
fn what_is_no_number_is_not_below_another_and_not_above() {
    let mut b = ProgramBuilder::new("kept");
    let x = b.input("x", DType::F32, &[2, 3]);
    let w = b.input("w", DType::F32, &[2, 3]);
    let y = b.reduce("y", &[("i", 2)], &[("k", 3)], Reducer::Sum, |s, r| {
        let at = [s[0].clone(), r[0].clone()];
        let below = Expr::load(x, at.clone()).lt(Expr::f32(0.0));
        Expr::select(below, Expr::f32(0.0), Expr::load(w, at))
    });
    let raw = b.finish(&[y]);
    let mut given = values(&raw);
    let nan = f32::NAN;
    let holes = Tensor::from_slice(&[2, 3], &[-1.0, nan, 1.0, nan, nan, -2.0]);
    given.insert(raw.params[0], holes);
    judge_on(&raw, &raw, &given, 0.0);
}

#[test]
fn lanes_with_their_own_index_are_written_out() {
    let mut b = ProgramBuilder::new("pick");
    let table = b.input("table", DType::F32, &[5]);
    let index = b.input("index", DType::I64, &[4]);
    let out = b.compute("out", &[("i", 4)], |s| {
        let at = Expr::load(index, s);
        Expr::select(at.clone().ge(0), Expr::load(table, [at]), Expr::f32(-1.0))
    });
    let raw = b.finish(&[out]);
    let mut p = raw.clone();
    let i = p.loop_named("out.i").unwrap();
    p.loop_mut(i).kind = LoopKind::Vectorized;
    // A negative index is guarded: the check must not fire.
    let code = judge_on(&raw, &p, &gather_values(&raw, &[4, -7, 0, 1]), 0.0);
    let lanes = |s: &&Stmt| matches!(s, Stmt::Store(s) if s.lane.is_some());
    assert_eq!(all(&code.kernel).iter().filter(|s| lanes(s)).count(), 0);
    let mut given = gather_values(&raw, &[4, -7, 5, 1]);
    assert_eq!(interpret_flat(&code, &mut given), Err(FlatError::Check(1)));
}

#[test]
fn parameters_are_views() {
    let mut b = ProgramBuilder::new("view");
    let x = b.input("x", DType::F32, &[3, 4]);
    let y = b.compute("y", &[("i", 3), ("j", 4)], |s| {
        Expr::load(x, s) + Expr::f32(1.0)
    });
    let mut p = b.finish(&[y]);
    p.buffer_mut(x).view = Some(View {
        strides: vec![10, 2],
        offset: 5,
    });
    p.buffer_mut(y).view = Some(View {
        strides: vec![1, 3],
        offset: 2,
    });
    let code = code(&p);
    let memory: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let mut arguments = Arguments::new();
    arguments.insert(x, Tensor::from_slice(&[32], &memory));
    interpret_flat(&code, &mut arguments).unwrap();
    let out = &arguments[&y];
    assert_eq!((code.buffers[0].elements, out.len()), (32, 14));
    for (i, j) in (0..3).flat_map(|i| (0..4).map(move |j| (i, j))) {
        assert_eq!(out.get_f64(2 + i + 3 * j), (5 + 10 * i + 2 * j + 1) as f64);
    }
    p.buffer_mut(x).view = Some(View {
        strides: vec![-10, 2],
        offset: 5,
    });
    let e = lower::lower(
        &p,
        &crate::judge::target(),
        &lower::LowerOptions::standard(),
    );
    assert!(
        matches!(e, Err(lower::LowerError::View { first: -15, .. })),
        "{e:?}"
    );
}

#[test]
fn tensorized_blocks_become_loops() {
    let raw = crate::matmul::matmul(8, 16, 12);
    let mut h = Hand::of(&raw);
    let body = h.nest("i", 2, SERIAL, |h, i| {
        let sum = h.nest("j", 2, SERIAL, |h, j| {
            vec![h.nest("k", 3, SERIAL, |h, k| {
                let block = h.block("acc", &[i.clone(), j.clone(), k.clone()]);
                let ir::Node::Block(id) = block else {
                    unreachable!()
                };
                let mut inner = Vec::new();
                let kinds = [IterKind::Spatial, IterKind::Spatial, IterKind::Reduce];
                for ((n, kind), name) in [4, 8, 4].into_iter().zip(kinds).zip(["ti", "tj", "tk"]) {
                    inner.push((h.p.add_var(name), n, kind));
                }
                // The statement runs over outer iteration variables times the
                // tile's extents plus the inner variables.
                let outer: Vec<_> = h.p.block(id).iters.iter().map(|i| i.var).collect();
                let b = h.p.block_mut(id);
                for (i, (_, n, _)) in b.iters.iter_mut().zip(&inner) {
                    i.extent /= n;
                }
                let at: Vec<Expr> = outer
                    .iter()
                    .zip(&inner)
                    .map(|(o, (v, n, _))| Expr::var(*o) * *n + *v)
                    .collect();
                b.map_statement(|e| {
                    e.substitute(&|v| outer.iter().position(|o| *o == v).map(|i| at[i].clone()))
                });
                b.tensor = Some(TensorOp {
                    intrinsic: "gemm_4x8x4".into(),
                    iters: inner,
                });
                vec![block]
            })]
        });
        let out = h.nest("i1", 4, SERIAL, |h, i1| {
            vec![h.nest("j", 16, SERIAL, |h, j| vec![h.block("C", &[i * 4 + i1, j])])]
        });
        vec![sum, out]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    let lanes = all(&code.kernel)
        .into_iter()
        .filter(|s| matches!(s, Stmt::Store(s) if s.lane.is_some_and(|l| l.lanes == 8)));
    assert_eq!(
        lanes.count(),
        8,
        "four rows of start values, four of updates"
    );
}

/// y[3,16] = x[5,4] w[3,16,4] over windows of rows, zeros outside; the lanes
/// and the four bytes of a product are a tensorized block.
#[test]
fn a_dot_product_is_one_guarded_statement() {
    let mut b = ProgramBuilder::new("dots");
    let x = b.input("x", DType::U8, &[3, 4]);
    let w = b.input("w", DType::I8, &[3, 16, 4]);
    let axes = [("m", 3), ("n", 16)];
    let y = b.reduce("y", &axes, &[("r", 3), ("k", 4)], Reducer::Sum, |o, t| {
        let row = &o[0] + &t[0] - 1;
        let inside = Expr::int(0).le(&row).and(row.clone().lt(3));
        let load = Expr::load(x, [row, t[1].clone()]).cast(DType::I32);
        let weight = Expr::load(w, [t[0].clone(), o[1].clone(), t[1].clone()]);
        let zero: Expr = ExprKind::Int(0, DType::I32).into();
        Expr::select(inside, load, zero) * weight.cast(DType::I32)
    });
    let raw = b.finish(&[y]);
    let mut p = raw.clone();
    let block = p.block_named("y").unwrap();
    let inner = [p.loop_named("y.n"), p.loop_named("y.k")].map(Option::unwrap);
    let vars = inner.map(|l| p.loop_(l).var);
    let names = ["n", "k"].map(|n| p.add_var(n));
    let b = p.block_mut(block);
    let kept: Vec<_> = b.iters.clone();
    let own = |v| {
        kept.iter()
            .position(|i| i.var == v && vars.iter().any(|l| i.binding.uses_var(*l)))
    };
    b.map_statement(|e| e.substitute(&|v| own(v).map(|i| Expr::var(names[usize::from(i == 3)]))));
    b.iters
        .retain(|i| !vars.iter().any(|l| i.binding.uses_var(*l)));
    b.tensor = Some(TensorOp {
        intrinsic: "dot4.u8i8i32".into(),
        iters: vec![
            (names[0], 16, IterKind::Spatial),
            (names[1], 4, IterKind::Reduce),
        ],
    });
    for l in inner {
        let inside = p.children(Some(l)).to_vec();
        p.replace_node(ir::Node::Loop(l), &inside);
    }
    let code = judge(&raw, &p);
    let stores: Vec<_> = all(&code.kernel)
        .into_iter()
        .filter_map(|s| match s {
            Stmt::Store(s) => Some(s),
            _ => None,
        })
        .filter(|s| s.value.any(&|e| matches!(e.kind(), ExprKind::Cast(..))))
        .collect();
    let [dot] = stores[..] else {
        panic!("one statement has all products, not {}", stores.len());
    };
    assert_eq!((dot.lane.map(|l| l.lanes), dot.loads.len()), (Some(16), 9));
    assert!(!dot.value.any(&|e| matches!(e.kind(), ExprKind::Select(..))));
}

#[test]
fn a_bool_and_half_precision_pass_through() {
    let mut b = ProgramBuilder::new("mixed");
    let x = b.input("x", DType::F16, &[2, 8]);
    let m = b.input("m", DType::Bool, &[8]);
    let y = b.compute("y", &[("i", 2), ("j", 8)], |s| {
        let v = Expr::load(x, s).cast(DType::F32) * Expr::f32(0.25);
        Expr::select(Expr::load(m, [s[1].clone()]), v, Expr::f32(9.0)).cast(DType::BF16)
    });
    let raw = b.finish(&[y]);
    let mut p = raw.clone();
    let j = p.loop_named("y.j").unwrap();
    p.loop_mut(j).kind = LoopKind::Vectorized;
    let code = judge(&raw, &p);
    let select = all(&code.kernel).iter().any(|s| {
        matches!(s, Stmt::Store(s) if s.value.any(&|e| matches!(e.kind(), ExprKind::Select(..))))
    });
    assert!(select, "a select on data stays a select");
}
