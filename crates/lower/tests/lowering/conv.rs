//! Convolutions and pooling: virtual padding becomes guards that leave the
//! loops, interiors without them, masks where lanes differ.

use crate::hand::Hand;
use crate::judge::{all, judge};
use ir::{DType, Expr, LoopKind, Node, Program, ProgramBuilder, Reducer, Scope};
use lower::flat::{BufferPlace, Code, Stmt};

const SERIAL: LoopKind = LoopKind::Serial;

fn within(e: &Expr, n: i64) -> Expr {
    e.clone().ge(0).and(e.clone().lt(n))
}

/// A 3x3 convolution with padding 1 on blocked channels:
/// out[ko, y, x, ki] = sum over co, r, s, ci; then a ReLU.
pub fn conv(h: i64, w: i64) -> Program {
    let mut b = ProgramBuilder::new("conv");
    let x = b.input("x", DType::F32, &[2, h, w, 4]);
    let f = b.input("f", DType::F32, &[1, 2, 3, 3, 4, 8]);
    let spatial = [("ko", 1), ("y", h), ("x", w), ("ki", 8)];
    let reduce = [("co", 2), ("r", 3), ("s", 3), ("ci", 4)];
    let acc = b.reduce("acc", &spatial, &reduce, Reducer::Sum, |o, r| {
        let (iy, ix) = (&o[1] + &r[1] - 1, &o[2] + &r[2] - 1);
        let at = [r[0].clone(), iy.clone(), ix.clone(), r[3].clone()];
        let inside = within(&iy, h).and(within(&ix, w));
        let value = Expr::select(inside, Expr::load(x, at), Expr::f32(0.0));
        let at = [&o[0], &r[0], &r[1], &r[2], &r[3], &o[3]].map(Expr::clone);
        value * Expr::load(f, at)
    });
    let out = b.compute("out", &spatial, |o| Expr::load(acc, o).max(Expr::f32(0.0)));
    b.finish(&[out])
}

/// The register tile of a direct convolution: `tile` pixels by 8 channels.
fn direct(raw: &Program, h: i64, w: i64, tile: i64) -> Program {
    let mut p = Hand::of(raw);
    p.scope("acc", Scope::Register);
    let wt = (w + tile - 1) / tile;
    let pixel = |h: &mut Hand, y: &Expr, xo: &Expr, r: Option<[Expr; 4]>, last: bool| -> Node {
        h.nest("xi", tile, LoopKind::Unrolled, |h, xi| {
            vec![h.nest("ki", 8, LoopKind::Vectorized, |h, ki| {
                let x = xo.clone() * tile + xi;
                let inside = (w % tile != 0).then(|| x.clone().lt(w));
                let mut at = vec![Expr::int(0), y.clone(), x, ki];
                vec![match r {
                    Some(r) => {
                        at.extend(r);
                        h.guarded("acc", &at, inside, false)
                    }
                    None if last => h.guarded("out", &at, inside, true),
                    None => h.init("acc", &at, inside),
                }]
            })]
        })
    };
    let body = p.nest("y", h, SERIAL, |p, y| {
        vec![p.nest("xo", wt, SERIAL, |p, xo| {
            let init = pixel(p, &y, &xo, None, false);
            let sum = p.nest("co", 2, SERIAL, |p, co| {
                vec![p.nest("r", 3, SERIAL, |p, r| {
                    vec![p.nest("s", 3, SERIAL, |p, s| {
                        vec![p.nest("ci", 4, SERIAL, |p, ci| {
                            vec![pixel(p, &y, &xo, Some([co, r, s, ci]), false)]
                        })]
                    })]
                })]
            });
            vec![init, sum, pixel(p, &y, &xo, None, true)]
        })]
    });
    p.finish(vec![body])
}

/// The names of the loops around each if, and of those below it.
fn ifs(code: &Code) -> Vec<(Vec<String>, Vec<String>)> {
    fn go(
        code: &Code,
        stmts: &[Stmt],
        path: &mut Vec<String>,
        out: &mut Vec<(Vec<String>, Vec<String>)>,
    ) {
        for s in stmts {
            match s {
                Stmt::Loop(l) => {
                    path.push(code.loops[l.id as usize].name.clone());
                    go(code, &l.body, path, out);
                    path.pop();
                }
                Stmt::If { then, .. } => {
                    let below = all(then).into_iter().filter_map(|s| match s {
                        Stmt::Loop(l) => Some(code.loops[l.id as usize].name.clone()),
                        _ => None,
                    });
                    out.push((path.clone(), below.collect()));
                    go(code, then, path, out);
                }
                _ => {}
            }
        }
    }
    let mut out = Vec::new();
    go(code, &code.kernel, &mut vec![], &mut out);
    out
}

#[test]
fn padding_becomes_guards_outside_the_inner_loops() {
    let raw = conv(5, 6);
    let code = judge(&raw, &direct(&raw, 5, 6, 3));
    let acc = code.buffers.iter().find(|b| b.name == "acc").unwrap();
    assert_eq!((acc.place, acc.elements), (BufferPlace::Register, 3 * 8));
    let ifs = ifs(&code);
    // The condition on the row is tested once a row, round the loops over s and ci.
    assert!(
        ifs.iter()
            .any(|(_, below)| below.contains(&"s".to_string())),
        "{ifs:?}"
    );
    let selects = |e: &Expr| e.any(&|e| matches!(e.kind(), ir::ExprKind::Select(..)));
    for s in all(&code.kernel) {
        if let Stmt::Store(s) = s {
            assert!(
                !selects(&s.value) && s.mask.is_none(),
                "no select and no mask is left"
            );
        }
    }
}

#[test]
fn tails_and_padding_together() {
    let raw = conv(4, 7);
    judge(&raw, &direct(&raw, 4, 7, 3));
}

#[test]
fn a_partitioned_interior_has_no_guards() {
    let (h, w) = (6, 5);
    let raw = conv(h, w);
    let mut p = Hand::of(&raw);
    let part = |p: &mut Hand, name: &str, lo: i64, n: i64| {
        p.nest(&format!("y{name}"), n, SERIAL, |p, y| {
            let y = y + lo;
            let nest = |p: &mut Hand, x: i64, n: i64| {
                p.nest("x", n, SERIAL, |p, xv| {
                    let x = xv + x;
                    let reduce = p.nest("co", 2, SERIAL, |p, co| {
                        vec![p.nest("r", 3, SERIAL, |p, r| {
                            vec![p.nest("s", 3, SERIAL, |p, s| {
                                vec![p.nest("ci", 4, SERIAL, |p, ci| {
                                    vec![p.nest("ki", 8, LoopKind::Vectorized, |p, ki| {
                                        let y = y.clone();
                                        let at = [Expr::int(0), y, x.clone(), ki, co, r, s, ci];
                                        vec![p.block("acc", &at)]
                                    })]
                                })]
                            })]
                        })]
                    });
                    let out = p.nest("ki", 8, LoopKind::Vectorized, |p, ki| {
                        vec![p.block("out", &[Expr::int(0), y.clone(), x, ki])]
                    });
                    vec![reduce, out]
                })
            };
            vec![nest(p, 0, 1), nest(p, 1, w - 2), nest(p, w - 1, 1)]
        })
    };
    let body = vec![
        part(&mut p, "~lo", 0, 1),
        part(&mut p, "", 1, h - 2),
        part(&mut p, "~hi", h - 1, 1),
    ];
    let code = judge(&raw, &p.finish(body));
    let interior = |path: &[String]| {
        path.first().is_some_and(|n| n == "y") && path.iter().any(|n| n.starts_with("x"))
    };
    let guards: Vec<_> = ifs(&code)
        .into_iter()
        .filter(|(path, _)| interior(path))
        .collect();
    assert!(guards.is_empty(), "{guards:?}");
}

#[test]
fn max_pooling_skips_its_padding() {
    let mut b = ProgramBuilder::new("pool");
    let x = b.input("x", DType::F32, &[7, 8]);
    let spatial = [("y", 4), ("x", 8)];
    let window = [("r", 3), ("s", 3)];
    let out = b.reduce("out", &spatial, &window, Reducer::Max, |o, r| {
        let (iy, ix) = (o[0].clone() * 2 + &r[0] - 1, &o[1] + &r[1] - 1);
        let inside = within(&iy, 7).and(within(&ix, 8));
        Expr::select(
            inside,
            Expr::load(x, [iy, ix]),
            Expr::f32(f32::NEG_INFINITY),
        )
    });
    let raw = b.finish(&[out]);
    let mut p = Hand::of(&raw);
    let body = p.nest("y", 4, LoopKind::Parallel, |p, y| {
        vec![p.nest("r", 3, SERIAL, |p, r| {
            vec![p.nest("s", 3, SERIAL, |p, s| {
                vec![p.nest("x", 8, LoopKind::Vectorized, |p, x| {
                    vec![p.block("out", &[y, x, r, s])]
                })]
            })]
        })]
    });
    let code = judge(&raw, &p.finish(vec![body]));
    judge(&raw, &raw);
    let masks = all(&code.kernel)
        .into_iter()
        .filter(|s| matches!(s, Stmt::Store(s) if s.mask.is_some() && s.lane.is_some()));
    assert_eq!(
        masks.count(),
        0,
        "columns differ by lane in their loads alone"
    );
    assert!(
        ifs(&code)
            .iter()
            .any(|(path, below)| *path == ["y", "r"] && *below == ["s"])
    );
}

#[test]
fn quantised_padding_is_guarded_by_its_zero_point() {
    let mut b = ProgramBuilder::new("qconv");
    let x = b.input("x", DType::U8, &[9]);
    let f = b.input("f", DType::I8, &[3]);
    let zero = Expr::constant(7.0, DType::U8);
    let out = b.reduce("out", &[("x", 9)], &[("r", 3)], Reducer::Sum, |o, r| {
        let at = &o[0] + &r[0] - 1;
        let value = Expr::select(within(&at, 9), Expr::load(x, [at]), zero);
        let centred = value.cast(DType::I32) - Expr::constant(7.0, DType::I32);
        centred * Expr::load(f, [r[0].clone()]).cast(DType::I32)
    });
    let raw = b.finish(&[out]);
    let code = judge(&raw, &raw);
    assert_eq!(ifs(&code).len(), 1);
    for s in all(&code.kernel) {
        if let Stmt::Store(s) = s {
            assert!(
                !s.value
                    .any(&|e| matches!(e.kind(), ir::ExprKind::Select(..)))
            );
        }
    }
}

#[test]
fn a_term_that_is_not_neutral_keeps_its_select() {
    let mut b = ProgramBuilder::new("ones");
    let x = b.input("x", DType::F32, &[9]);
    let out = b.reduce("out", &[("x", 9)], &[("r", 3)], Reducer::Sum, |o, r| {
        let at = &o[0] + &r[0] - 1;
        Expr::select(within(&at, 9), Expr::load(x, [at]), Expr::f32(1.0))
    });
    let raw = b.finish(&[out]);
    let code = judge(&raw, &raw);
    assert!(ifs(&code).is_empty());
}
