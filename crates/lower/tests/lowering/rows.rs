//! Reductions of neighbouring elements: partial results in lanes, combined at the end.

use crate::judge::{all, code, judge};
use ir::{DType, Expr, Program, ProgramBuilder, Reducer};
use lower::flat::verify::verify_flat;
use lower::flat::{BufferPlace, Stmt, Store};
use schedule::Trace;

const ROWS: i64 = 3;

fn row_sums(cols: i64) -> Program {
    let mut b = ProgramBuilder::new("rows");
    let x = b.input("x", DType::F32, &[ROWS, cols]);
    let sum = b.reduce(
        "sum",
        &[("i", ROWS)],
        &[("r", cols)],
        Reducer::Sum,
        |o, t| Expr::load(x, [o, t].concat()),
    );
    b.finish(&[sum])
}

fn scheduled(raw: &Program, steps: &str) -> Program {
    let trace: Trace = steps.parse().unwrap();
    schedule::replay(raw, &trace).unwrap()
}

fn combining(stmts: &[Stmt]) -> Vec<Store> {
    let stores = all(stmts).into_iter().filter_map(|s| match s {
        Stmt::Store(s) if s.combined().is_some() => Some(s.clone()),
        _ => None,
    });
    stores.collect()
}

fn in_lanes(lanes: i64) -> String {
    format!(
        "split sum.r [_, {lanes}]\nrfactor sum.r.1\nreverse_compute_at sum sum.i\n\
         set_scope sum.rf register\nvectorize sum.r.1\ndecompose_reduction sum.rf sum.r.0\n\
         decompose_reduction sum sum.part\nunroll sum.part\n"
    )
}

#[test]
fn unrolled_neighbours_are_one_statement_and_their_partial_results_registers() {
    for (cols, lanes) in [(24, 8), (64, 16), (40, 16), (48, 24)] {
        let raw = row_sums(cols);
        let code = judge(&raw, &scheduled(&raw, &in_lanes(lanes)));
        let stores = combining(&code.kernel);
        // 24 lanes are three groups of 8.
        let group = (1 << lanes.trailing_zeros()).min(64);
        assert_eq!(stores.len() as i64, lanes / group);
        assert!(
            stores
                .iter()
                .all(|s| s.lane.map(|l| l.lanes) == Some(group as u32))
        );
        let partial = code.buffers.iter().find(|b| b.name == "sum.rf").unwrap();
        assert_eq!(partial.place, BufferPlace::Register);
    }
}

#[test]
fn elements_apart_are_combined_in_order() {
    let mut b = ProgramBuilder::new("columns");
    let x = b.input("x", DType::F32, &[8, ROWS]);
    let sum = b.reduce("sum", &[("i", ROWS)], &[("r", 8)], Reducer::Sum, |o, t| {
        Expr::load(x, [t, o].concat())
    });
    let raw = b.finish(&[sum]);
    let steps = "decompose_reduction sum sum.r\nunroll sum.r";
    let code = judge(&raw, &scheduled(&raw, steps));
    assert!(combining(&code.kernel).is_empty());
}

#[test]
fn lanes_that_meet_uncombined_are_found() {
    let raw = row_sums(16);
    let good = code(&scheduled(&raw, &in_lanes(16)));
    assert!(verify_flat(&good).is_empty());
    let mut bad = good;
    fn spoil(stmts: &mut [Stmt]) {
        for s in stmts {
            match s {
                Stmt::Loop(l) => spoil(&mut l.body),
                Stmt::Store(s) => {
                    if let Some((_, term)) = s.combined() {
                        s.value = term.clone();
                        s.loads.remove(0);
                    }
                }
                _ => {}
            }
        }
    }
    spoil(&mut bad.kernel);
    let broken = verify_flat(&bad);
    assert!(
        broken.iter().any(|b| b.contains("meet in one element")),
        "{broken:?}"
    );
}
