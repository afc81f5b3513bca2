//! Resizing: random sizes, filters and positions of any axes, plain and in channel blocks.

use crate::judge::{input, judge, judge_both, kinds, random, single, typed};
use graph::Model;
use graph::ops::{Conv, Filter, Line, Op, Resize, Rounding, Sampling, Scale};
use plan::LayoutPolicy;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tensor::DType;

fn sampling(rng: &mut impl Rng, extent: usize) -> Sampling {
    let size = rng.random_range(1..9);
    let scale = Scale::between(extent, size);
    let position = match rng.random_range(0..4) {
        0 => scale.half_pixel(),
        1 => scale.asymmetric(),
        2 => scale.align_corners(extent),
        // Also beyond both ends.
        _ => Line::new(rng.random_range(1..9), rng.random_range(-9..9), 4),
    };
    Sampling {
        size,
        position,
        scale: scale.value(),
    }
}

/// A resizing of some axes of a shape.
fn resize(rng: &mut impl Rng, shape: &[usize], kept: usize) -> Resize {
    let filters = [
        Filter::Nearest(Rounding::Floor),
        Filter::Nearest(Rounding::Ceil),
        Filter::Nearest(Rounding::HalfDown),
        Filter::Nearest(Rounding::HalfUp),
        Filter::Linear,
        Filter::Cubic { a: -0.75 },
    ];
    let axes = shape.iter().enumerate().map(|(d, n)| {
        let moves = d >= kept && rng.random_bool(0.7);
        moves.then(|| sampling(rng, *n))
    });
    let axes = axes.collect();
    Resize {
        filter: filters[rng.random_range(0..filters.len())],
        axes,
        antialias: rng.random_bool(0.3),
        // Neighbours that are all outside have no weights to divide by.
        exclude_outside: false,
        beyond: rng.random_bool(0.2).then_some(7.5),
    }
}

#[test]
fn random_resizings_of_any_axes() {
    let mut rng = Pcg64Mcg::seed_from_u64(11);
    for _ in 0..60 {
        let rank = rng.random_range(1..5);
        let shape: Vec<usize> = (0..rank).map(|_| rng.random_range(1..8)).collect();
        let op = resize(&mut rng, &shape, 0);
        judge_both(&single(Op::Resize(op), &[input(&shape)]));
    }
}

#[test]
fn images_stay_in_blocks() {
    let mut rng = Pcg64Mcg::seed_from_u64(12);
    for channels in [8, 6] {
        for _ in 0..15 {
            let mut m = Model::new("chain", 0);
            let x = m.add_input("x", DType::F32, &[2, 3, 5, 4]);
            let w = m.add_constant("w", random(&[channels, 3, 1, 1], 1));
            let x = m.add("conv", Op::Conv(Conv::unit(2)), &[x, w]).unwrap();
            let op = resize(&mut rng, &[2, channels, 5, 4], 2);
            let y = m.add("resize", Op::Resize(op), &[x]).unwrap();
            m.add_output(y);
            let plan = judge(&m, LayoutPolicy::Blocked);
            assert_eq!(plan.conversions, 1, "{plan}");
        }
    }
}

#[test]
fn weights_of_neighbours_outside_go_to_the_others() {
    for filter in [Filter::Linear, Filter::Cubic { a: -0.5 }] {
        for size in [3, 11] {
            let scale = Scale::between(6, size);
            let sampling = Sampling {
                size,
                position: scale.half_pixel(),
                scale: scale.value(),
            };
            let op = Resize {
                filter,
                axes: vec![Some(sampling), None],
                antialias: size == 3,
                exclude_outside: true,
                beyond: None,
            };
            judge_both(&single(Op::Resize(op), &[input(&[6, 5])]));
        }
    }
}

#[test]
fn every_element_type_that_a_filter_has() {
    let scale = Scale::between(4, 7);
    let sampling = Sampling {
        size: 7,
        position: scale.half_pixel(),
        scale: scale.value(),
    };
    let of = |filter| Resize {
        filter,
        axes: vec![None, Some(sampling)],
        antialias: false,
        exclude_outside: false,
        beyond: None,
    };
    let nearest = Filter::Nearest(Rounding::HalfDown);
    for dtype in [DType::I8, DType::U8, DType::I64, DType::Bool, DType::F16] {
        judge_both(&single(Op::Resize(of(nearest)), &[typed(dtype, &[3, 4])]));
    }
    for dtype in [DType::F16, DType::F64] {
        let linear = Op::Resize(of(Filter::Linear));
        judge_both(&single(linear, &[typed(dtype, &[3, 4])]));
    }
}

/// Bytes are widened where they are read, so that no wide image is written.
#[test]
fn bytes_are_interpolated_without_a_copy() {
    let mut rng = Pcg64Mcg::seed_from_u64(17);
    for (from, to) in [(DType::U8, DType::F64), (DType::I8, DType::F32)] {
        let shape = [1, 3, 7, 9];
        let mut m = Model::new("bytes", 0);
        let x = m.add_input("x", from, &shape);
        let wide = m.add("wide", Op::Cast(to), &[x]).unwrap();
        let axes = [
            None,
            None,
            Some(sampling(&mut rng, 7)),
            Some(sampling(&mut rng, 9)),
        ];
        let op = Resize {
            filter: Filter::Linear,
            axes: axes.into(),
            antialias: false,
            exclude_outside: false,
            beyond: None,
        };
        let y = m.add("resized", Op::Resize(op), &[wide]).unwrap();
        m.add_output(y);
        assert_eq!(kinds(&judge_both(&m)), ["resize_linear"]);
    }
}
