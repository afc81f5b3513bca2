//! Operators that select, place, order and sample elements, by hand.

mod applied;

use applied::{f32s, i64s, refused, run};
use graph::ops::*;
use tensor::Tensor;

fn values(t: &Tensor) -> Vec<f64> {
    (0..t.len()).map(|i| t.get_f64(i)).collect()
}

fn ramp(shape: &[usize]) -> Tensor {
    let all: Vec<f32> = (0..shape.iter().product())
        .map(|i: usize| i as f32)
        .collect();
    f32s(shape, &all)
}

#[test]
fn elements_are_accumulated_in_both_directions() {
    let x = Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let given = |kind, axis, exclusive, reverse| {
        let cumulative = Cumulative {
            kind,
            axis,
            exclusive,
            reverse,
        };
        values(&run(Op::Cumulative(cumulative), &[&x]))
    };
    use CumulativeKind::{Prod, Sum};
    assert_eq!(given(Sum, 1, false, false), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    assert_eq!(given(Sum, 1, true, true), [5.0, 3.0, 0.0, 11.0, 6.0, 0.0]);
    assert_eq!(
        given(Prod, 0, false, false),
        [1.0, 2.0, 3.0, 4.0, 10.0, 18.0]
    );
    assert_eq!(given(Prod, 1, true, false), [1.0, 1.0, 2.0, 1.0, 4.0, 20.0]);
}

#[test]
fn elements_and_parts_are_gathered() {
    let x = ramp(&[2, 3]);
    let picks = i64s(&[2, 2], &[2, -3, 0, 1]);
    let gather = Op::GatherElements(GatherElements { axis: 1 });
    assert_eq!(
        values(&run(gather.clone(), &[&x, &picks])),
        [2.0, 0.0, 3.0, 4.0]
    );
    assert!(refused(gather, &[&x, &i64s(&[2, 1], &[0, 3])]).contains("index 3"));

    let parts = Op::GatherNd(GatherNd { batch: 0 });
    let y = run(parts, &[&x, &i64s(&[2, 1], &[-1, 0])]);
    assert_eq!(
        (y.shape(), values(&y)),
        (&[2, 3][..], vec![3.0, 4.0, 5.0, 0.0, 1.0, 2.0])
    );
    let batched = Op::GatherNd(GatherNd { batch: 1 });
    let y = run(batched, &[&x, &i64s(&[2, 1], &[2, 0])]);
    assert_eq!((y.shape(), values(&y)), (&[2][..], vec![2.0, 3.0]));
}

#[test]
fn updates_take_effect_in_their_order() {
    let x = ramp(&[4]);
    let (picks, updates) = (i64s(&[3], &[1, -3, 3]), f32s(&[3], &[10.0, 20.0, 30.0]));
    let expected = [
        (Combine::Replace, [0.0, 20.0, 2.0, 30.0]),
        (Combine::Add, [0.0, 31.0, 2.0, 33.0]),
        (Combine::Mul, [0.0, 200.0, 2.0, 90.0]),
        (Combine::Max, [0.0, 20.0, 2.0, 30.0]),
        (Combine::Min, [0.0, 1.0, 2.0, 3.0]),
    ];
    for (combine, expected) in expected {
        let elements = Op::ScatterElements(ScatterElements { axis: 0, combine });
        assert_eq!(values(&run(elements, &[&x, &picks, &updates])), expected);
        let rows = picks.clone().reshaped(&[3, 1]);
        let parts = Op::ScatterNd(ScatterNd { combine });
        assert_eq!(values(&run(parts, &[&x, &rows, &updates])), expected);
    }
    let parts = Op::ScatterNd(ScatterNd {
        combine: Combine::Add,
    });
    let message = refused(parts, &[&x, &i64s(&[3, 2], &[0; 6]), &updates]);
    assert!(message.contains("no positions"), "{message}");
}

#[test]
fn the_best_elements_come_first_and_equal_ones_in_their_order() {
    let x = f32s(&[5], &[1.0, 3.0, f32::NAN, 3.0, -1.0]);
    let top = |k: usize, largest: bool| {
        let axis = 0;
        values(&run(Op::TopK(TopK { axis, k, largest }), &[&x]))
    };
    assert_eq!(top(4, true), [2.0, 1.0, 3.0, 0.0]);
    assert_eq!(top(3, false), [4.0, 0.0, 1.0]);
    let more = TopK {
        axis: 0,
        k: 6,
        largest: true,
    };
    assert!(refused(Op::TopK(more), &[&x]).contains("takes 6 elements"));
}

#[test]
fn samples_lie_between_pixels_and_outside() {
    let x = f32s(&[1, 1, 1, 4], &[0.0, 1.0, 2.0, 3.0]);
    let at = |places: &[f32], outside: Outside, align_corners: bool| {
        let grid: Vec<f32> = places.iter().flat_map(|p| [*p, 0.0]).collect();
        let grid = f32s(&[1, 1, places.len(), 2], &grid);
        let sample = GridSample {
            interpolation: Interpolation::Linear,
            outside,
            align_corners,
        };
        values(&run(Op::GridSample(sample), &[&x, &grid]))
    };
    // -1 is the first centre, or half a pixel before it.
    assert_eq!(
        at(&[-1.0, 0.0, 1.0], Outside::Border, true),
        [0.0, 1.5, 3.0]
    );
    assert_eq!(
        at(&[-1.0, 0.0, 0.25], Outside::Zeros, false),
        [0.0, 1.5, 2.0]
    );
    assert_eq!(at(&[1.0, 2.0], Outside::Zeros, false), [1.5, 0.0]);
    assert_eq!(at(&[1.5], Outside::Reflection, false), [2.5]);
}

#[test]
fn the_largest_of_the_products_of_a_sample() {
    let x = f32s(&[1, 1, 2, 2], &[8.0, -4.0, f32::NAN, -2.0]);
    let at = |x: &Tensor, place: [f32; 2]| {
        let sample = GridSample {
            interpolation: Interpolation::Largest,
            outside: Outside::Zeros,
            align_corners: true,
        };
        values(&run(
            Op::GridSample(sample),
            &[x, &f32s(&[1, 1, 1, 2], &place)],
        ))[0]
    };
    assert!(at(&x, [-0.5, 0.0]).is_nan());
    let x = f32s(&[1, 1, 2, 2], &[8.0, -4.0, 6.0, -2.0]);
    // A quarter of the way along x, and half of it along y.
    assert_eq!(at(&x, [-0.5, 0.0]), 3.0);
    assert_eq!(at(&x, [-0.5, 0.75]), 6.0 * 0.75 * 0.875);
    // Half a pixel outside: two products are of zeros.
    assert_eq!(at(&x, [2.0, 0.0]), 0.0);
    assert_eq!(at(&x, [-2.0, -1.0]), 4.0);
}

/// Results of PyTorch's `grid_sample`: a place outside the image keeps its distance to the pixels beside it.
#[test]
fn cubic_samples_outside_are_made_of_pixels_moved_inside() {
    let x = f32s(&[1, 1, 1, 4], &[0.0, 1.0, 4.0, 9.0]);
    let grid = f32s(&[1, 1, 4, 2], &[-1.5, 0.0, -1.0, 0.0, 0.3, 0.0, 1.25, 0.0]);
    use Outside::{Border, Reflection, Zeros};
    for (outside, align_corners, wanted) in [
        (Zeros, true, [-0.03515625, 0.0, 3.7146246, 6.306152]),
        (Zeros, false, [0.0, -0.09375, 4.652_999_4, 0.0]),
        (Border, true, [-0.03515625, 0.0, 3.7146246, 9.549316]),
        (Border, false, [0.0, -0.09375, 4.592_248_4, 9.0]),
        (Reflection, true, [0.421875, 0.0, 3.7146246, 7.9453125]),
        (Reflection, false, [0.21875, -0.1875, 4.592_248_4, 9.0]),
    ] {
        let sample = GridSample {
            interpolation: Interpolation::Cubic,
            outside,
            align_corners,
        };
        let found = values(&run(Op::GridSample(sample), &[&x, &grid]));
        let near = found.iter().zip(wanted).all(|(f, w)| (f - w).abs() < 2e-6);
        assert!(near, "{sample:?}: {found:?}, not {wanted:?}");
    }
}

#[test]
fn bits_are_combined_and_shifted() {
    let (x, y) = (i64s(&[3], &[12, -1, 5]), i64s(&[3], &[10, 64, -1]));
    let bits = |b: Binary| values(&run(Op::Binary(b), &[&x, &y]));
    assert_eq!(bits(Binary::BitAnd), [8.0, 64.0, 5.0]);
    assert_eq!(bits(Binary::BitOr), [14.0, -1.0, -1.0]);
    assert_eq!(bits(Binary::BitXor), [6.0, -65.0, -6.0]);
    assert_eq!(bits(Binary::ShiftLeft), [12288.0, 0.0, 0.0]);
    assert_eq!(bits(Binary::ShiftRight), [0.0, -1.0, 0.0]);
    assert!(refused(Op::Binary(Binary::BitAnd), &[&ramp(&[2]), &ramp(&[2])]).contains("f32"));
}
