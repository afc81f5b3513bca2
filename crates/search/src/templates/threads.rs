//! Whether a program is worth more than one thread.
//!
//! Waking workers takes microseconds: what takes no longer alone is better done
//! alone. Every sketch of a small program has a twin without parallel loops,
//! `NAME.serial`, which comes first if the program is smaller still.

use crate::space::Sketch;
use ir::{BinaryOp, Expr, ExprKind, Program, Target, UnaryOp};

/// Below this many cycles of one thread the serial sketches come first.
const ALONE_FIRST: f64 = 30e3;
/// Below this many cycles of one thread serial sketches are in the space.
const ALONE_TOO: f64 = 1e6;
/// Bytes that one thread moves in a cycle, between memory and second-level cache.
const BYTES_A_CYCLE: f64 = 8.0;
/// Vector operations that `exp`, `tanh` and their like take.
const TRANSCENDENTAL: f64 = 20.0;

/// The sketches of a program for a target with threads, and their serial twins,
/// which `of` gives, in the order in which they are to be tried.
pub fn with_serial(
    program: &Program,
    target: &Target,
    of: impl Fn(&Target) -> Vec<Sketch>,
) -> Vec<Sketch> {
    let sketches = of(target);
    let cycles = cycles(program, target);
    if target.threads <= 1 || cycles >= ALONE_TOO {
        return sketches;
    }
    let one = Target {
        threads: 1,
        ..target.clone()
    };
    let mut serial = of(&one);
    for s in &mut serial {
        s.name += ".serial";
    }
    if cycles < ALONE_FIRST {
        serial.extend(sketches);
        serial
    } else {
        let mut all = sketches;
        all.extend(serial);
        all
    }
}

/// Cycles that one thread needs, roughly: a vector operation a cycle, or the
/// parameters once through memory.
fn cycles(program: &Program, target: &Target) -> f64 {
    let mut computed = 0.0;
    for b in program.block_ids() {
        let block = program.block(b);
        let points: f64 = block.iters.iter().map(|i| i.extent as f64).product();
        for w in &block.writes {
            let lanes = target.lanes(program.buffer(w.buffer).dtype) as f64;
            computed += points * operations(&w.value).max(1.0) / lanes;
        }
    }
    let bytes: f64 = program
        .params
        .iter()
        .map(|p| program.buffer(*p))
        .map(|b| b.shape.iter().product::<i64>() as f64 * b.dtype.size() as f64)
        .sum();
    f64::max(computed, bytes / BYTES_A_CYCLE)
}

/// Vector operations of an expression; a product that is summed is one with its sum.
fn operations(e: &Expr) -> f64 {
    let own = match e.kind() {
        ExprKind::Unary(UnaryOp::Exp | UnaryOp::Log | UnaryOp::Tanh | UnaryOp::Erf, _)
        | ExprKind::Binary(BinaryOp::Pow, ..) => TRANSCENDENTAL,
        ExprKind::Unary(..) | ExprKind::Binary(..) | ExprKind::Select(..) => 1.0,
        // What computes an address is not counted.
        ExprKind::Load(..) => return 1.0,
        _ => 0.0,
    };
    own + e.children().map(operations).sum::<f64>()
}
