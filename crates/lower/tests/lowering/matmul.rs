//! Matrix products: register tiles, lanes, tails, unrolling, prefetch, prepare.

use crate::hand::Hand;
use crate::judge::{all, code, judge, target};
use ir::{Annotation, DType, Expr, LoopKind, Node, Program, ProgramBuilder, Reducer, Scope};
use lower::flat::{BufferPlace, Code, Stmt};
use lower::{LowerOptions, lower};

const SERIAL: LoopKind = LoopKind::Serial;

/// C[m, n] = max(sum A[m, k] * B[k, n] + bias[n], 0), through `acc`.
pub fn matmul(m: i64, n: i64, k: i64) -> Program {
    let mut b = ProgramBuilder::new("matmul");
    let a = b.input("A", DType::F32, &[m, k]);
    let w = b.constant("B", DType::F32, &[k, n]);
    let bias = b.constant("bias", DType::F32, &[n]);
    let acc = b.reduce(
        "acc",
        &[("i", m), ("j", n)],
        &[("k", k)],
        Reducer::Sum,
        |s, r| {
            let (i, j, k) = (&s[0], &s[1], &r[0]);
            Expr::load(a, [i.clone(), k.clone()]) * Expr::load(w, [k.clone(), j.clone()])
        },
    );
    let c = b.compute("C", &[("i", m), ("j", n)], |s| {
        (Expr::load(acc, s) + Expr::load(bias, [s[1].clone()])).max(Expr::f32(0.0))
    });
    b.finish(&[c])
}

fn place(code: &Code, name: &str) -> BufferPlace {
    code.buffers
        .iter()
        .find(|b| b.name == name)
        .expect("a buffer")
        .place
}

/// 6 x 16 tiles of accumulators in registers, as a GEMM kernel has them.
fn tiled(raw: &Program, m: i64, n: i64, k: i64, loop_k: Vec<Annotation>) -> Program {
    let mut h = Hand::of(raw);
    h.scope("acc", Scope::Register);
    let (mt, nt) = ((m + 5) / 6, n / 16);
    let row = |i: &Expr, i1: &Expr| i.clone() * 6 + i1;
    let inside = |i: &Expr, i1: &Expr| (m % 6 != 0).then(|| row(i, i1).lt(m));
    let tile = |h: &mut Hand, i: &Expr, j: &Expr, what: &str, kx: Option<&Expr>| -> Node {
        h.nest("i1", 6, LoopKind::Unrolled, |h, i1| {
            vec![h.nest("j1", 2, LoopKind::Unrolled, |h, j1| {
                vec![h.nest("j2", 8, LoopKind::Vectorized, |h, j2| {
                    let col = j.clone() * 16 + j1 * 8 + j2;
                    let at = [row(i, &i1), col];
                    vec![match kx {
                        Some(k) => {
                            let at = [at[0].clone(), at[1].clone(), k.clone()];
                            h.guarded(what, &at, inside(i, &i1), false)
                        }
                        None if what == "acc" => h.init(what, &at, inside(i, &i1)),
                        None => h.guarded(what, &at, inside(i, &i1), true),
                    }]
                })]
            })]
        })
    };
    let body = h.nest("i0", mt, LoopKind::Parallel, |h, i| {
        vec![h.nest("j0", nt, SERIAL, |h, j| {
            let init = tile(h, &i, &j, "acc", None);
            let sum = h.annotated("k0", k, SERIAL, loop_k, |h, kx| {
                vec![tile(h, &i, &j, "acc", Some(&kx))]
            });
            vec![init, sum, tile(h, &i, &j, "C", None)]
        })]
    });
    h.finish(vec![body])
}

#[test]
fn naive() {
    let raw = matmul(5, 7, 9);
    let code = judge(&raw, &raw);
    assert_eq!(code.loops.len(), 5, "loops stay as they are");
    // The start value leaves the reduction loop.
    assert!(
        all(&code.kernel)
            .iter()
            .all(|s| !matches!(s, Stmt::If { .. }))
    );
}

#[test]
fn register_tile() {
    let raw = matmul(12, 32, 5);
    let code = judge(&raw, &tiled(&raw, 12, 32, 5, vec![]));
    assert_eq!(place(&code, "acc"), BufferPlace::Register);
    assert_eq!(code.loops.len(), 3, "only i0, j0 and k0 are left");
    let stores: Vec<_> = all(&code.kernel)
        .into_iter()
        .filter_map(|s| match s {
            Stmt::Store(s) => Some(s),
            _ => None,
        })
        .collect();
    assert_eq!(stores.len(), 36, "12 vectors, three times");
    assert!(
        stores
            .iter()
            .all(|s| s.lane.is_some_and(|l| l.lanes == 8) && s.mask.is_none())
    );
    assert_eq!(code.workspace_bytes + code.worker_workspace_bytes, 0);
    assert!(code.loops[0].parallel && !code.loops[1].parallel);
}

#[test]
fn tail_rows_are_guarded() {
    let raw = matmul(8, 16, 3);
    let code = judge(&raw, &tiled(&raw, 8, 16, 3, vec![]));
    assert_eq!(place(&code, "acc"), BufferPlace::Register);
    assert!(
        all(&code.kernel)
            .iter()
            .any(|s| matches!(s, Stmt::If { .. }))
    );
}

#[test]
fn unroll_by_and_prefetch() {
    let raw = matmul(6, 16, 11);
    let b = raw.buffer_named("B").unwrap();
    let notes = vec![
        Annotation::UnrollBy(4),
        Annotation::Prefetch {
            buffer: b,
            distance: 8,
        },
    ];
    let code = judge(&raw, &tiled(&raw, 6, 16, 11, notes));
    let k: Vec<i64> = code
        .loops
        .iter()
        .filter(|l| l.name == "k0")
        .map(|l| l.extent)
        .collect();
    assert_eq!(k, [2, 3], "two iterations of four, and three left");
    let fetched = all(&code.kernel)
        .into_iter()
        .filter(|s| matches!(s, Stmt::Prefetch { .. }));
    assert_eq!(fetched.count(), 4, "four rows of one line each");
}

/// The index of a fused loop is divided in the offsets of what it runs; the
/// annotated loop inside moves them all the same.
#[test]
fn what_a_fused_loop_reads_is_prefetched() {
    let raw = matmul(6, 16, 11);
    let mut h = Hand::of(&raw);
    let ahead = vec![Annotation::Prefetch {
        buffer: raw.buffer_named("B").unwrap(),
        distance: 8,
    }];
    let body = h.nest("f", 12, SERIAL, |h, f| {
        let (j0, i) = (f.clone().floor_div(6), f.floor_mod(6));
        let lanes = |h: &mut Hand, block: &str, k: Option<Expr>| {
            h.nest("j1", 8, LoopKind::Vectorized, |h, j1| {
                let mut at = vec![i.clone(), j0.clone() * 8 + j1];
                at.extend(k);
                vec![h.block(block, &at)]
            })
        };
        let sum = h.annotated("k", 11, SERIAL, ahead, |h, k| {
            vec![lanes(h, "acc", Some(k))]
        });
        vec![sum, lanes(h, "C", None)]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    let fetched = all(&code.kernel)
        .into_iter()
        .filter(|s| matches!(s, Stmt::Prefetch { .. }));
    assert_eq!(fetched.count(), 1, "one row of one line");
}

#[test]
fn registers_are_not_prefetched() {
    let raw = matmul(6, 16, 11);
    let notes = vec![Annotation::Prefetch {
        buffer: raw.buffer_named("acc").unwrap(),
        distance: 1,
    }];
    let code = judge(&raw, &tiled(&raw, 6, 16, 11, notes));
    let acc = code.buffers.iter().find(|b| b.name == "acc").unwrap();
    assert_eq!(acc.place, lower::flat::BufferPlace::Register);
    let prefetch = |s: &&Stmt| matches!(s, Stmt::Prefetch { .. });
    assert_eq!(all(&code.kernel).into_iter().filter(prefetch).count(), 0);
}

#[test]
fn masked_columns() {
    // 13 columns in lanes of 8: the second vector is masked.
    let raw = matmul(3, 13, 4);
    let mut h = Hand::of(&raw);
    let nest = |h: &mut Hand, what: &str, reduce: bool| {
        h.nest("i", 3, SERIAL, |h, i| {
            vec![h.nest("j0", 2, SERIAL, |h, j0| {
                let inner = |h: &mut Hand, k: Option<Expr>| {
                    h.nest("j1", 8, LoopKind::Vectorized, |h, j1| {
                        let col = j0.clone() * 8 + j1;
                        let mut at = vec![i.clone(), col.clone()];
                        at.extend(k);
                        vec![h.guarded(what, &at, Some(col.lt(13)), true)]
                    })
                };
                vec![match reduce {
                    true => h.nest("k", 4, SERIAL, |h, k| vec![inner(h, Some(k))]),
                    false => inner(h, None),
                }]
            })]
        })
    };
    let body = vec![nest(&mut h, "acc", true), nest(&mut h, "C", false)];
    let code = judge(&raw, &h.finish(body));
    let masked = |s: &&Stmt| matches!(s, Stmt::Store(s) if s.mask.is_some());
    assert_eq!(all(&code.kernel).iter().filter(|s| masked(s)).count(), 3);
}

#[test]
fn start_values_leave_guarded_reductions() {
    // k is split with a rest, so the update has a predicate over k.
    let raw = matmul(2, 3, 5);
    let mut h = Hand::of(&raw);
    let acc = h.nest("i", 2, SERIAL, |h, i| {
        vec![h.nest("j", 3, SERIAL, |h, j| {
            vec![h.nest("k0", 3, SERIAL, |h, k0| {
                vec![h.nest("k1", 2, SERIAL, |h, k1| {
                    let k = k0 * 2 + k1;
                    vec![h.guarded(
                        "acc",
                        &[i.clone(), j.clone(), k.clone()],
                        Some(k.lt(5)),
                        true,
                    )]
                })]
            })]
        })]
    });
    let out = h.nest("i", 2, SERIAL, |h, i| {
        vec![h.nest("j", 3, SERIAL, |h, j| vec![h.block("C", &[i, j])])]
    });
    let code = judge(&raw, &h.finish(vec![acc, out]));
    let ifs = all(&code.kernel)
        .into_iter()
        .filter(|s| matches!(s, Stmt::If { .. }));
    assert_eq!(ifs.count(), 1, "only the rest of k is guarded");
}

#[test]
fn lanes_of_odd_extents() {
    let raw = matmul(3, 12, 4);
    let mut h = Hand::of(&raw);
    let acc = h.nest("i", 3, SERIAL, |h, i| {
        vec![h.nest("k", 4, SERIAL, |h, k| {
            vec![h.nest("j", 12, LoopKind::Vectorized, |h, j| {
                vec![h.block("acc", &[i.clone(), j, k])]
            })]
        })]
    });
    let c = h.nest("j", 12, SERIAL, |h, j| {
        vec![h.nest("i", 3, LoopKind::Vectorized, |h, i| {
            vec![h.block("C", &[i, j])]
        })]
    });
    let code = judge(&raw, &h.finish(vec![acc, c]));
    let lanes: Vec<u32> = all(&code.kernel)
        .into_iter()
        .filter_map(|s| match s {
            Stmt::Store(s) => Some(s.lane.map_or(1, |l| l.lanes)),
            _ => None,
        })
        .collect();
    // Three groups of four lanes for each of init and update; then three scalars.
    assert_eq!(lanes, [4, 4, 4, 4, 4, 4, 1, 1, 1]);
}

#[test]
fn packed_constants_move_to_prepare() {
    let mut b = ProgramBuilder::new("packed");
    let a = b.input("A", DType::F32, &[4, 8]);
    let w = b.constant("B", DType::F32, &[8, 16]);
    let unused = b.constant("unused", DType::F32, &[3]);
    let half = b.compute("half", &[("k", 8), ("j", 16)], |s| {
        Expr::load(w, s) * Expr::f32(0.5)
    });
    let pack = b.compute("pack", &[("jo", 2), ("k", 8), ("ji", 8)], |s| {
        Expr::load(half, [s[1].clone(), s[0].clone() * 8 + &s[2]])
    });
    let c = b.reduce(
        "C",
        &[("i", 4), ("j", 16)],
        &[("k", 8)],
        Reducer::Sum,
        |s, r| {
            let at = [
                s[1].clone().floor_div(8),
                r[0].clone(),
                s[1].clone().floor_mod(8),
            ];
            Expr::load(a, [s[0].clone(), r[0].clone()]) * Expr::load(pack, at)
        },
    );
    let p = b.finish(&[c]);
    let code = judge(&p, &p);
    assert_eq!(code.params, [a, c, pack]);
    assert_eq!(code.prepare_params, [w, unused, pack]);
    assert_eq!(place(&code, "pack"), BufferPlace::Prepared);
    assert!(matches!(place(&code, "half"), BufferPlace::Workspace(0)));
    assert_eq!(code.workspace_bytes, 8 * 16 * 4);
    assert!(!code.prepare.is_empty());
}

#[test]
fn a_start_value_apart_from_its_sum_stays_in_the_kernel() {
    let raw = matmul(2, 3, 4);
    let mut h = Hand::of(&raw);
    let init = h.nest("i", 2, SERIAL, |h, i| {
        vec![h.nest("j", 3, SERIAL, |h, j| vec![h.init("acc", &[i, j], None)])]
    });
    let sum = h.nest("i", 2, SERIAL, |h, i| {
        vec![h.nest("j", 3, SERIAL, |h, j| {
            vec![h.nest("k", 4, SERIAL, |h, k| {
                vec![h.guarded("acc", &[i, j, k], None, false)]
            })]
        })]
    });
    let out = h.nest("i", 2, SERIAL, |h, i| {
        vec![h.nest("j", 3, SERIAL, |h, j| vec![h.block("C", &[i, j])])]
    });
    let code = judge(&raw, &h.finish(vec![init, sum, out]));
    assert!(code.prepare.is_empty());
}

#[test]
fn a_loop_over_rows_and_terms_starts_every_row() {
    let raw = matmul(2, 3, 4);
    let mut h = Hand::of(&raw);
    let sum = h.nest("f", 8, SERIAL, |h, f| {
        vec![h.nest("j", 3, SERIAL, |h, j| {
            let (i, k) = (f.clone().floor_div(4), f.floor_mod(4));
            vec![h.block("acc", &[i, j, k])]
        })]
    });
    let out = h.nest("i", 2, SERIAL, |h, i| {
        vec![h.nest("j", 3, SERIAL, |h, j| vec![h.block("C", &[i, j])])]
    });
    judge(&raw, &h.finish(vec![sum, out]));
}

#[test]
fn text_of_a_small_tile() {
    let raw = matmul(2, 16, 8);
    let b = raw.buffer_named("B").unwrap();
    let mut h = Hand::of(&raw);
    h.scope("acc", Scope::Register);
    let lanes = |h: &mut Hand, f: &mut dyn FnMut(&mut Hand, Expr) -> Node| {
        h.nest("jo", 2, LoopKind::Unrolled, |h, jo| {
            vec![h.nest("ji", 8, LoopKind::Vectorized, |h, ji| {
                vec![f(h, jo * 8 + ji)]
            })]
        })
    };
    let notes = vec![Annotation::Prefetch {
        buffer: b,
        distance: 3,
    }];
    let body = h.nest("i", 2, LoopKind::Parallel, |h, i| {
        let init = lanes(h, &mut |h, j| h.init("acc", &[i.clone(), j], None));
        let sum = h.annotated("k", 8, SERIAL, notes, |h, k| {
            let at = |j| [i.clone(), j, k.clone()];
            vec![lanes(h, &mut |h, j| h.guarded("acc", &at(j), None, false))]
        });
        vec![
            init,
            sum,
            lanes(h, &mut |h, j| h.block("C", &[i.clone(), j])),
        ]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    let expected = "\
code matmul workspace 0 worker 0
  A: f32[16] input
  B: f32[128] constant
  bias: f32[16] constant
  acc: f32[16] register
  C: f32[32] output
kernel(A, B, bias, C):
  parallel i in 2: #0
    acc[ji] = 0.0 lanes ji in 8 #0()
    acc[ji + 8] = 0.0 lanes ji in 8 #1()
    for k in 8: #1
      prefetch B[k * 16 + 48]
      acc[ji_1] = acc[ji_1] + A[i * 8 + k] * B[k * 16 + ji_1] lanes ji_1 in 8 #5(2 3 4)
      acc[ji_1 + 8] = acc[ji_1 + 8] + A[i * 8 + k] * B[k * 16 + ji_1 + 8] lanes ji_1 in 8 #9(6 7 8)
    C[i * 16 + ji_2] = max(acc[ji_2] + bias[ji_2], 0.0) lanes ji_2 in 8 #12(10 11)
    C[i * 16 + ji_2 + 8] = max(acc[ji_2 + 8] + bias[ji_2 + 8], 0.0) lanes ji_2 in 8 #15(13 14)
";
    assert_eq!(lower::flat::text::print(&code), expected);
}

#[test]
fn nested_parallel_loops_run_the_inner_one_serially() {
    let mut p = matmul(4, 5, 3);
    for name in ["acc.i", "acc.j", "C.j"] {
        let l = p.loop_named(name).unwrap();
        p.loop_mut(l).kind = LoopKind::Parallel;
    }
    // The verifier of programs refuses these; `lower` alone does not need it to.
    let code = lower(&p, &target(), &LowerOptions::standard()).unwrap();
    assert!(lower::flat::verify::verify_flat(&code).is_empty());
    let parallel: Vec<&str> = code
        .loops
        .iter()
        .filter(|l| l.parallel)
        .map(|l| l.name.as_str())
        .collect();
    assert_eq!(parallel, ["acc.i", "C.j"]);
}

#[test]
fn the_verifier_finds_broken_code() {
    let good = code(&matmul(3, 4, 5));
    assert!(lower::flat::verify::verify_flat(&good).is_empty());
    let broken = |f: &dyn Fn(&mut Code)| {
        let mut c = good.clone();
        f(&mut c);
        lower::flat::verify::verify_flat(&c).len()
    };
    assert!(broken(&|c| c.loops[0].extent += 1) > 0);
    assert!(broken(&|c| c.params.clear()) > 0);
    assert!(broken(&|c| c.accesses.swap(0, 1)) > 0);
    assert!(broken(&|c| c.accesses.truncate(1)) > 0);
    assert!(broken(&|c| c.buffers[0].place = BufferPlace::Unused) > 0);
    assert!(broken(&|c| c.buffers[0].dtype = DType::F64) > 0);
}
