//! Where intermediates live, and how small they get.

use crate::hand::Hand;
use crate::judge::{code, judge};
use ir::{BufferId, DType, Expr, LoopKind, Program, ProgramBuilder, Reducer, Scope};
use lower::flat::text::print;
use lower::flat::{BufferPlace, Code, FlatBuffer, SpillReason, spilled_registers};

const SERIAL: LoopKind = LoopKind::Serial;

fn buffer<'a>(code: &'a Code, name: &str) -> &'a FlatBuffer {
    code.buffers
        .iter()
        .find(|b| b.name == name)
        .expect("a buffer")
}

/// Two 1-D stencils in a row: y = blur(x), z = blur(y).
fn blur(n: i64, m: i64) -> Program {
    let mut b = ProgramBuilder::new("blur");
    let x = b.input("x", DType::F32, &[n + 4, m]);
    let stencil = |from: BufferId, s: &[Expr]| {
        let at = |d: i64| Expr::load(from, [&s[0] + d, s[1].clone()]);
        at(0) + at(1) + at(2)
    };
    let y = b.compute("y", &[("i", n + 2), ("j", m)], |s| stencil(x, s));
    let z = b.compute("z", &[("i", n), ("j", m)], |s| stencil(y, s));
    b.finish(&[z])
}

/// z in strips of `strip` rows, with the rows of y that each needs.
fn strips(raw: &Program, n: i64, m: i64, strip: i64, kind: LoopKind) -> Program {
    let mut h = Hand::of(raw);
    let body = h.nest("io", n / strip, kind, |h, io| {
        let y = h.nest("y.i", strip + 2, SERIAL, |h, i| {
            let row = io.clone() * strip + i;
            vec![h.nest("y.j", m, SERIAL, |h, j| vec![h.block("y", &[row, j])])]
        });
        let z = h.nest("z.i", strip, SERIAL, |h, i| {
            let row = io.clone() * strip + i;
            vec![h.nest("z.j", m, SERIAL, |h, j| vec![h.block("z", &[row, j])])]
        });
        vec![y, z]
    });
    h.finish(vec![body])
}

#[test]
fn an_intermediate_shrinks_to_one_iteration() {
    let raw = blur(12, 8);
    let code = judge(&raw, &strips(&raw, 12, 8, 4, SERIAL));
    assert_eq!(buffer(&code, "y").elements, 6 * 8);
    assert_eq!(buffer(&code, "y").place, BufferPlace::Stack);
    let code = judge(&raw, &raw);
    assert_eq!(buffer(&code, "y").elements, 14 * 8);
    assert_eq!(buffer(&code, "y").place, BufferPlace::Workspace(0));
}

#[test]
fn large_strips_lie_with_their_worker() {
    let raw = blur(8, 600);
    let code = judge(&raw, &strips(&raw, 8, 600, 4, LoopKind::Parallel));
    assert_eq!(buffer(&code, "y").place, BufferPlace::WorkerWorkspace(0));
    assert_eq!(
        code.worker_workspace_bytes,
        (6 * 600 * 4u64).next_multiple_of(64)
    );
    assert_eq!(code.workspace_bytes, 0);
    let code = judge(&raw, &strips(&raw, 8, 600, 4, SERIAL));
    assert_eq!(buffer(&code, "y").place, BufferPlace::Workspace(0));
}

#[test]
fn fused_and_split_indices_shrink_too() {
    let raw = blur(6, 4);
    let mut h = Hand::of(&raw);
    // One loop over the 24 points of z; y is computed for each.
    let body = h.nest("f", 24, SERIAL, |h, f| {
        let (i, j) = (f.clone().floor_div(4), f.floor_mod(4));
        let y = h.nest("y.i", 3, SERIAL, |h, d| {
            vec![h.block("y", &[&i + d, j.clone()])]
        });
        vec![y, h.block("z", &[i, j])]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    assert_eq!(buffer(&code, "y").elements, 3);
}

#[test]
fn a_buffer_written_in_parts_holds_them_all() {
    let raw = blur(8, 4);
    let mut h = Hand::of(&raw);
    let body = h.nest("io", 2, SERIAL, |h, io| {
        let mut rows = |name: &str, block: &str, from: i64, n: i64| {
            h.nest(name, n, SERIAL, |h, i| {
                let row = io.clone() * 4 + i + from;
                vec![h.nest("j", 4, SERIAL, |h, j| vec![h.block(block, &[row, j])])]
            })
        };
        vec![
            rows("y~lo", "y", 0, 2),
            rows("y~hi", "y", 2, 4),
            rows("z", "z", 0, 4),
        ]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    assert_eq!(buffer(&code, "y").elements, 6 * 4);
}

#[test]
fn what_a_loop_reads_outlives_what_it_computes() {
    let n = 2048;
    let mut b = ProgramBuilder::new("nested");
    let x = b.input("x", DType::F32, &[2, n]);
    let axes = [("i", 2), ("j", n)];
    let outer = b.compute("outer", &axes, |s| Expr::load(x, s) + Expr::f32(1.0));
    let inner = b.compute("inner", &axes, |s| Expr::load(outer, s) * Expr::f32(2.0));
    let out = b.compute("out", &axes, |s| {
        Expr::load(inner, s) + Expr::load(outer, s)
    });
    let raw = b.finish(&[out]);
    let mut h = Hand::of(&raw);
    let whole = |h: &mut Hand, block: &str, i: &Expr| {
        h.nest("j", n, SERIAL, |h, j| vec![h.block(block, &[i.clone(), j])])
    };
    let first = h.nest("i", 2, SERIAL, |h, i| vec![whole(h, "outer", &i)]);
    let second = h.nest("i", 2, SERIAL, |h, i| {
        vec![whole(h, "inner", &i), whole(h, "out", &i)]
    });
    let code = judge(&raw, &h.finish(vec![first, second]));
    assert_eq!(code.workspace_bytes, 3 * n as u64 * 4);
}

#[test]
fn lanes_have_their_own_copy() {
    let mut b = ProgramBuilder::new("chain");
    let x = b.input("x", DType::F32, &[32]);
    let y = b.compute("y", &[("i", 32)], |s| Expr::load(x, s) + Expr::f32(1.0));
    let z = b.compute("z", &[("i", 32)], |s| Expr::load(y, s) * Expr::load(y, s));
    let raw = b.finish(&[z]);
    let mut h = Hand::of(&raw);
    let body = h.nest("o", 4, SERIAL, |h, o| {
        vec![h.nest("i", 8, LoopKind::Vectorized, |h, i| {
            let at = o * 8 + i;
            vec![h.block("y", std::slice::from_ref(&at)), h.block("z", &[at])]
        })]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    assert_eq!(
        (buffer(&code, "y").elements, buffer(&code, "y").place),
        (8, BufferPlace::Register)
    );
}

#[test]
fn a_register_that_is_indexed_is_demoted() {
    let raw = crate::matmul::matmul(4, 8, 3);
    let mut h = Hand::of(&raw);
    h.scope("acc", Scope::Register);
    let body = h.nest("i", 4, SERIAL, |h, i| {
        let sum = h.nest("j", 8, SERIAL, |h, j| {
            vec![h.nest("k", 3, SERIAL, |h, k| {
                vec![h.block("acc", &[i.clone(), j, k])]
            })]
        });
        let out = h.nest("j2", 8, SERIAL, |h, j| vec![h.block("C", &[i, j])]);
        vec![sum, out]
    });
    let code = judge(&raw, &h.finish(vec![body]));
    assert_eq!(
        (buffer(&code, "acc").elements, buffer(&code, "acc").place),
        (8, BufferPlace::Stack)
    );
    let spilled = spilled_registers(&code);
    let [("acc", why @ SpillReason::Loops { loops, .. })] = &spilled[..] else {
        panic!("{spilled:?}");
    };
    assert_eq!(loops, &["j"]);
    let text = why.to_string();
    assert_eq!(text, "acc[j] depends on loops that are not unrolled: j");
    assert!(print(&code).contains(&format!("acc: f32[8] stack ; not in registers: {text}")));
}

#[test]
fn sums_stay_in_registers_only_if_the_write_back_is_unrolled_too() {
    let lowered = |write_back: LoopKind| {
        let raw = crate::matmul::matmul(4, 8, 3);
        let mut h = Hand::of(&raw);
        h.scope("acc", Scope::Register);
        let body = h.nest("i", 4, SERIAL, |h, i| {
            let sum = h.nest("k", 3, SERIAL, |h, k| {
                vec![h.nest("j", 8, LoopKind::Unrolled, |h, j| {
                    vec![h.block("acc", &[i.clone(), j, k])]
                })]
            });
            let out = h.nest("j2", 8, write_back, |h, j| vec![h.block("C", &[i, j])]);
            vec![sum, out]
        });
        judge(&raw, &h.finish(vec![body]))
    };
    let unrolled = lowered(LoopKind::Unrolled);
    assert_eq!(spilled_registers(&unrolled), []);
    assert_eq!(buffer(&unrolled, "acc").place, BufferPlace::Register);
    let looped = lowered(SERIAL);
    let spilled = spilled_registers(&looped);
    assert_eq!(buffer(&looped, "acc").place, BufferPlace::Stack);
    assert!(
        matches!(&spilled[..], [("acc", SpillReason::Loops { loops, .. })] if loops == &["j2"]),
        "{spilled:?}"
    );
}

#[test]
fn lifetimes_apart_share_bytes() {
    let mut b = ProgramBuilder::new("chain");
    let x = b.input("x", DType::F32, &[64, 64]);
    let mut last = x;
    for n in 0..5 {
        let axes = [("i", 64), ("j", 64)];
        last = b.compute(&format!("t{n}"), &axes, |s| {
            Expr::load(last, s) + Expr::f32(1.0)
        });
    }
    let p = b.finish(&[last]);
    let one = 64 * 64 * 4;
    let code = judge(&p, &p);
    assert_eq!(
        code.workspace_bytes,
        2 * one,
        "each step needs its input and its output"
    );
    let places: Vec<BufferPlace> = (0..4)
        .map(|n| buffer(&code, &format!("t{n}")).place)
        .collect();
    assert_eq!(places, [0, one, 0, one].map(BufferPlace::Workspace));
}

#[test]
fn what_both_sides_of_a_parallel_loop_see_is_shared() {
    let mut b = ProgramBuilder::new("sums");
    let x = b.input("x", DType::F32, &[4, 8]);
    let s = b.reduce("s", &[("i", 4)], &[("j", 8)], Reducer::Sum, |s, r| {
        Expr::load(x, [s[0].clone(), r[0].clone()])
    });
    let y = b.compute("y", &[("i", 4)], |i| Expr::load(s, i) * Expr::f32(2.0));
    let mut p = b.finish(&[y]);
    let l = p.loop_named("s.i").unwrap();
    p.loop_mut(l).kind = LoopKind::Parallel;
    assert_eq!(buffer(&code(&p), "s").place, BufferPlace::Workspace(0));
}

#[test]
fn a_running_maximum_that_nobody_else_reads_keeps_its_memory() {
    // The largest of 2 x + 1 down each column, row by row; only its row is wanted.
    let (rows, n) = (8, 2048);
    let mut b = ProgramBuilder::new("argmax");
    let x = b.input("x", DType::F32, &[rows, n]);
    let axes = [("r", rows), ("i", n)];
    let twice = b.compute("twice", &axes, |s| Expr::load(x, s) * Expr::f32(2.0));
    let more = b.compute("more", &axes, |s| Expr::load(twice, s) + Expr::f32(1.0));
    let larger = || Expr::arg(0, DType::F32).lt(Expr::arg(2, DType::F32));
    let pick = |new, old, d| Expr::select(larger(), Expr::arg(new, d), Expr::arg(old, d));
    let reducer = Reducer::Tuple {
        combine: vec![pick(2, 0, DType::F32), pick(3, 1, DType::I64)],
        identity: vec![Expr::f32(f32::NEG_INFINITY), Expr::int(-1)],
    };
    let best = b.block(
        "best",
        &[("i", n)],
        &[("r", rows)],
        Some(reducer),
        |s, r| {
            let value = Expr::load(more, [r[0].clone(), s[0].clone()]);
            vec![value, r[0].clone()]
        },
    );
    let raw = b.finish(&best[1..]);
    let mut h = Hand::of(&raw);
    let body = h.nest("r", rows, SERIAL, |h, r| {
        let mut along = |block: &str, by_row: bool| {
            h.nest("i", n, SERIAL, |h, i| {
                let at = if by_row {
                    [r.clone(), i]
                } else {
                    [i, r.clone()]
                };
                vec![h.block(block, &at)]
            })
        };
        vec![
            along("twice", true),
            along("more", true),
            along("best", false),
        ]
    });
    judge(&raw, &h.finish(vec![body]));
}
