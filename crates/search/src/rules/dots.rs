//! Rule: vectors lie along the terms.
//!
//! The rows of an operand are read once or a few times, each along the terms: a matrix times
//! one vector, where the matrix is stored by results. Vectors along the results would be in
//! strides, and a copy would cost more than the products. So each lane sums some of the
//! terms, and the lanes of a result are added up as it leaves the registers.

use super::copies::{STRIDED_USES, uses_of};
use super::lanes;
use super::surround::is_window;
use crate::analysis::{Access, Axis, Class, Reduction, Stride};
use crate::draft::{Draft, REST, Written, given};
use crate::nests::{Nest, nests};
use ir::{BlockId, CpuTarget, DType, LoopId, Role};

/// Vectors of terms, at least: adding the lanes up takes a few of them.
const FEWEST_VECTORS: i64 = 2;
/// Vectors of terms of a window from which adding the lanes up takes less than a copy of the image
/// does. Chosen by hand.
const MANY_VECTORS: i64 = 8;

/// Terms that lanes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dots {
    terms: LoopId,
    width: i64,
}

/// The terms that lie along rows which are too seldom used to be copied.
pub fn wanted(facts: &Reduction, target: &CpuTarget) -> Option<Dots> {
    let (lanes, _) = lanes::choose(facts, &[]).ok()?;
    // Halves are summed in f32.
    let width = target.lanes(match facts.output.element_bytes {
        8 => DType::F64,
        _ => DType::F32,
    });
    let terms = facts.axes.iter().filter(|a| a.class == Class::Reduction);
    let terms: i64 = terms.map(|a| a.extent).product();
    let in_strides = |o: &&Access| {
        let contiguous = matches!(o.strides[lanes], Stride::Elements(0 | 1));
        let window = terms >= MANY_VECTORS * width && is_window(facts, o);
        let seldom = uses_of(facts, o) < STRIDED_USES || window;
        o.role != Role::Constant && !contiguous && seldom
    };
    // Other operands are copied or packed for the lanes, if they lie in strides.
    let readable = |at: usize| {
        let ready = |o: &Access| match o.strides[at] {
            Stride::Elements(0 | 1) => true,
            _ => o.role == Role::Constant || uses_of(facts, o) >= STRIDED_USES,
        };
        facts.operands.iter().all(ready)
    };
    let long = |a: &Axis| {
        let row = a.class == Class::Reduction && a.whole && a.extent >= width;
        row && terms >= FEWEST_VECTORS * width
    };
    let along = |o: &Access| {
        let mut axes = facts.axes.iter().enumerate().filter(|(_, a)| long(a));
        let found = axes.find(|(at, _)| o.strides[*at] == Stride::Elements(1));
        found.filter(|(at, _)| readable(*at) && !facts.is_guarded(*at))
    };
    let (_, axis) = facts.operands.iter().filter(in_strides).find_map(along)?;
    (width > 1).then_some(Dots {
        terms: axis.id,
        width,
    })
}

/// Gives every lane its terms; the block of what the lanes sum, and all nests as they are then.
pub fn cut(d: &mut Draft, dots: Dots) -> Written<(BlockId, Vec<Nest>)> {
    let lane = match d.program().loop_(dots.terms).extent == dots.width {
        true => dots.terms,
        false => d.split(dots.terms, [REST, given(dots.width)])?[1],
    };
    let partial = d.rfactor(lane)?;
    Ok((partial, nests(d.program())))
}
