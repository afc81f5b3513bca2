//! Whether a program is worth more than one thread.
//!
//! Waking workers takes microseconds: what takes no longer alone is better done
//! alone. Every sketch of a small program has a twin without parallel loops,
//! `NAME.serial`, which comes first if the program is smaller still.
//!
//! Also which part of its output a thread computes.

use super::Templates;
use ir::{BinaryOp, CpuTarget, Expr, ExprKind, Program, Role};

/// Below this many cycles of one thread the serial sketches come first: about ten
/// microseconds, a few times what waking workers takes. Chosen by hand; not measured apart.
const ALONE_FIRST: f64 = 30e3;
/// Below this many cycles of one thread serial sketches are in the space. Chosen by hand;
/// not measured apart.
const ALONE_TOO: f64 = 1e6;
/// Bytes that one thread moves in a cycle, between memory and second-level cache:
/// an order of magnitude, between those of `gemm::tile`, chosen by hand.
const BYTES_A_CYCLE: f64 = 8.0;
/// Vector operations that `exp`, `tanh` and their like take: about the length of
/// the polynomials that code generation expands them to (`llvm::math`).
const TRANSCENDENTAL: f64 = 20.0;

/// The sketches of a program for a target with threads, and their serial twins,
/// which `of` gives, in the order in which they are to be tried.
pub fn with_serial(
    program: &Program,
    target: &CpuTarget,
    of: impl Fn(&CpuTarget) -> Templates,
) -> Templates {
    let mut found = of(target);
    let cycles = cycles(program, target);
    if target.threads <= 1 || cycles >= ALONE_TOO {
        return found;
    }
    let one = CpuTarget {
        threads: 1,
        ..target.clone()
    };
    let mut serial = of(&one);
    let names = serial.sketches.iter_mut().map(|s| &mut s.name);
    for name in names.chain(serial.refused.iter_mut().map(|r| &mut r.sketch)) {
        name.push_str(".serial");
    }
    if cycles < ALONE_FIRST {
        serial.extend(found);
        serial
    } else {
        found.extend(serial);
        found
    }
}

/// The part of the time that threads may wait for the one with the most work, where
/// the work counts as evenly shared (ADR 0016). The number is chosen by hand.
const MOST_IDLE: f64 = 0.1;

/// Most rows of an output of [n, channel block, y, x, channel] that a thread computes, of
/// all channels, where threads get about as many. One step's rows are in the caches of
/// the core that computes the next step's; blocks of channels, which the next step reads
/// all of, would have to cross between cores.
pub fn own_rows(shape: &[i64], threads: u32) -> Option<i64> {
    let threads = i64::from(threads);
    let [1, _, rows, _, _] = *shape else {
        return None;
    };
    let own = (rows + threads - 1) / threads;
    (threads > 1 && is_even(rows, threads as u32)).then_some(own)
}

/// Whether threads get about as many of so many parts.
pub fn is_even(parts: i64, threads: u32) -> bool {
    let threads = i64::from(threads);
    let own = (parts + threads - 1) / threads;
    parts as f64 >= (1.0 - MOST_IDLE) * (own * threads) as f64
}

/// Cycles that one thread needs, roughly: a vector operation a cycle, or the
/// parameters once through memory.
fn cycles(program: &Program, target: &CpuTarget) -> f64 {
    let mut computed = 0.0;
    for b in program.block_ids() {
        let block = program.block(b);
        let points: f64 = block.iters.iter().map(|i| i.extent as f64).product();
        for w in &block.writes {
            let lanes = target.lanes(program.buffer(w.buffer).dtype) as f64;
            computed += points * operations(&w.value).max(1.0) / lanes;
        }
    }
    let bytes = param_bytes(program, true) + param_bytes(program, false);
    f64::max(computed, bytes / BYTES_A_CYCLE)
}

/// Bytes of a program's parameters: of its constants, or of all others.
pub fn param_bytes(program: &Program, constant: bool) -> f64 {
    let params = program.params.iter().map(|p| program.buffer(*p));
    params
        .filter(|b| (b.role == Role::Constant) == constant)
        .map(|b| b.shape.iter().product::<i64>() as f64 * b.dtype.size() as f64)
        .sum()
}

/// Vector operations of an expression; a product that is summed is one with its sum.
fn operations(e: &Expr) -> f64 {
    let own = match e.kind() {
        ExprKind::Unary(op, _) if op.is_transcendental() => TRANSCENDENTAL,
        ExprKind::Binary(BinaryOp::Pow, ..) => TRANSCENDENTAL,
        ExprKind::Unary(..) | ExprKind::Binary(..) | ExprKind::Select(..) => 1.0,
        // What computes an address is not counted.
        ExprKind::Load(..) => return 1.0,
        _ => 0.0,
    };
    own + e.children().map(operations).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_own_rows_of_one_image_if_they_get_about_as_many() {
        let own = |shape: &[i64], threads| own_rows(shape, threads);
        assert_eq!(own(&[1, 4, 56, 56, 16], 2), Some(28));
        assert_eq!(own(&[1, 4, 55, 55, 16], 2), Some(28));
        assert_eq!(own(&[1, 4, 7, 7, 16], 2), None, "an eighth would wait");
        assert_eq!(own(&[1, 4, 56, 56, 16], 16), None);
        assert_eq!(own(&[1, 4, 56, 56, 16], 1), None);
        assert_eq!(own(&[2, 4, 56, 56, 16], 2), None, "an image each");
        assert_eq!(own(&[1, 64, 56, 56], 2), None, "not in blocks");
    }
}
