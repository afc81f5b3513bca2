//! Where results are elements of other tensors as they lie in memory:
//! contiguous parts, aligned to cache lines.

use crate::layout::Layout;
use graph::ops::Op;
use tensor::DType;

/// Kernels may assume that parameters start at such multiples.
const ALIGNMENT: i64 = 64;

fn aligned(start: i64, dtype: DType) -> bool {
    start * dtype.size() as i64 % ALIGNMENT == 0
}

/// The elements of the operand, as it lies in a layout, at which the results of
/// a split or slice start, if each is one aligned run.
pub(crate) fn parts(op: &Op, layout: Layout, shape: &[usize], dtype: DType) -> Option<Vec<i64>> {
    let starts = match op {
        Op::Split(s) => {
            let mut at = 0;
            let starts = s.sizes.iter().map(|n| {
                at += *n as i64;
                at - *n as i64
            });
            joined_starts(s.axis, layout, shape, &starts.collect::<Vec<_>>())?
        }
        Op::Slice(s) if layout == Layout::Plain => vec![slice_start(s, shape)?],
        _ => return None,
    };
    starts.iter().all(|s| aligned(*s, dtype)).then_some(starts)
}

/// The elements of a concatenation at which its parts start, if each is one
/// aligned run.
pub(crate) fn joined(
    axis: usize,
    layout: Layout,
    parts: &[&[usize]],
    dtype: DType,
) -> Option<Vec<i64>> {
    let mut at = 0;
    let positions: Vec<i64> = parts
        .iter()
        .map(|p| {
            at += p[axis] as i64;
            at - p[axis] as i64
        })
        .collect();
    let starts = joined_starts(axis, layout, parts[0], &positions)?;
    starts.iter().all(|s| aligned(*s, dtype)).then_some(starts)
}

/// Elements before positions along an axis, if nothing but 1 lies outside it.
fn joined_starts(
    axis: usize,
    layout: Layout,
    shape: &[usize],
    positions: &[i64],
) -> Option<Vec<i64>> {
    let physical = layout.physical(shape);
    if physical[..axis].iter().any(|n| *n != 1) {
        return None;
    }
    let unit = match layout.block() {
        Some(block) if axis == 1 => block,
        Some(_) => return None,
        None => 1,
    };
    if positions.iter().any(|p| p % unit != 0) {
        return None;
    }
    let inner: i64 = physical[axis + 1..].iter().product();
    Some(positions.iter().map(|p| p / unit * inner).collect())
}

/// The first element of a slice that is one run: single elements of the outer
/// axes, a range of one axis, all of the inner ones.
fn slice_start(s: &graph::ops::Slice, shape: &[usize]) -> Option<i64> {
    let whole = |d: &usize| s.sizes[*d] == shape[*d];
    let inner = (0..shape.len()).rev().take_while(whole).count();
    let cut = (shape.len() - inner).saturating_sub(1);
    let single_outside = s.sizes[..cut].iter().all(|n| *n == 1);
    let in_order = (0..shape.len()).all(|d| s.steps[d] == 1 || s.sizes[d] == 1);
    if !single_outside || !in_order {
        return None;
    }
    let strides = tensor::row_major_strides(shape);
    let start: usize = s.starts.iter().zip(&strides).map(|(i, n)| i * n).sum();
    Some(start as i64)
}
