//! All elements of lines in order, by the digits of their keys.
//!
//! Each step moves the elements to where their digit belongs, from the last digit to the first, and keeps the order of
//! those that share it. A step counts how often each digit occurs, adds the counts up to where each digit's elements
//! begin, and then visits the elements once more. So the work grows with the number of elements alone, and equal
//! elements stay in the order in which they come.

use super::Axes;
use super::top_k::Source;
use super::winners::at;
use ir::{BinaryOp, BufferId, DType, Expr, ProgramBuilder, Write};

/// Bits of a digit: their counts stay in a first-level cache, and an i32 has three digits.
const BITS: i64 = 11;
const DIGITS: i64 = 1 << BITS;

/// Elements on their way: their keys, and where they come from.
#[derive(Clone, Copy)]
struct Elements {
    keys: BufferId,
    places: BufferId,
}

/// Lines, and how many elements each has.
struct Lines {
    axes: Axes,
    count: i64,
}

impl Lines {
    fn with(&self, name: &str, n: i64) -> Axes {
        Axes([&self.axes.0[..], &[(name.to_string(), n)]].concat())
    }
}

/// The numbers of a line's elements in order.
pub(super) fn ordered(b: &mut ProgramBuilder, source: &Source, is_wide: bool) -> BufferId {
    let lines = Lines {
        axes: source.lines(),
        count: source.count(),
    };
    let (dtype, bits) = match is_wide {
        true => (DType::I64, 64),
        false => (DType::I32, 32),
    };
    let axes = lines.with("i", lines.count);
    let made = b.block("keys", &axes.list(), &[], None, |o, _| {
        let (i, line) = o.split_last().expect("an element has a number");
        let key = source.order(line, i).cast(dtype);
        vec![from_least(key, dtype), i.clone().cast(DType::I32)]
    });
    let spare = b.block("moved", &axes.list(), &[], None, |_, _| {
        vec![number(0, dtype), number(0, DType::I32)]
    });
    let [mut from, mut to] = [made, spare].map(|b| Elements {
        keys: b[0],
        places: b[1],
    });
    for digit in 0..bits / BITS + 1 {
        step(b, &lines, digit, [from, to]);
        (from, to) = (to, from);
    }
    from.places
}

fn number(v: i64, dtype: DType) -> Expr {
    Expr::constant(v as f64, dtype)
}

/// A signed key as one whose bits are in order, those of the sign included: a shift repeats the first of them.
fn from_least(key: Expr, dtype: DType) -> Expr {
    let least = match dtype {
        DType::I64 => Expr::int(i64::MIN),
        _ => number(i64::from(i32::MIN), dtype),
    };
    Expr::binary(BinaryOp::BitXor, key, least)
}

/// Moves elements into the order of one digit.
fn step(b: &mut ProgramBuilder, lines: &Lines, digit: i64, [from, to]: [Elements; 2]) {
    let dtype = b.program().buffer(from.keys).dtype;
    let digit_of = |line: &[Expr], i: &Expr| {
        let key = Expr::load(from.keys, at(line, i.clone()));
        let moved = Expr::binary(BinaryOp::Shr, key, number(digit * BITS, dtype));
        Expr::binary(BinaryOp::BitAnd, moved, number(DIGITS - 1, dtype)).cast(DType::I64)
    };
    let one = || number(1, DType::I32);
    // Each count is one place further on, so that sums of them are where the digits begin.
    let all = lines.with("digit", DIGITS + 1);
    let begins = b.compute(&format!("begins{digit}"), &all.list(), |_| {
        number(0, DType::I32)
    });
    let apart = lines.axes.list();
    let elements = [("i", lines.count)];
    let named = |what: &str| format!("{what}{digit}");
    b.update(&named("count"), begins, (&apart, &elements), |o, t| {
        let own = at(o, digit_of(o, &t[0]) + 1);
        (own.clone(), Expr::load(begins, own) + one())
    });
    let digits = [("digit", DIGITS - 1)];
    b.update(&named("sum"), begins, (&apart, &digits), |o, t| {
        let [before, own] = [0, 1].map(|by| at(o, t[0].clone() + by));
        let sum = Expr::load(begins, before) + Expr::load(begins, own.clone());
        (own, sum)
    });
    b.updates(&named("place"), (&apart, &elements), |o, t| {
        let own = at(o, digit_of(o, &t[0]));
        let place = Expr::load(begins, own.clone());
        // Within the line by what is written here: the data need no check.
        let inside = place.clone().cast(DType::I64).max(0).min(lines.count - 1);
        let moved = |from: BufferId, to: BufferId| Write {
            buffer: to,
            indices: at(o, inside.clone()),
            value: Expr::load(from, at(o, t[0].clone())),
        };
        let next = Write {
            buffer: begins,
            indices: own,
            value: place + one(),
        };
        vec![
            moved(from.keys, to.keys),
            moved(from.places, to.places),
            next,
        ]
    });
}
