//! What goes in two stages: transposed convolutions by columns, reductions on both sides of a
//! kept axis.

use crate::judge::{input, judge_both, kinds, single, typed, weight};
use graph::Model;
use graph::ops::*;
use plan::Plan;
use tensor::DType;

struct Transposed {
    image: Vec<usize>,
    taps: usize,
    stride: usize,
    pad: i64,
    extra: usize,
    dilation: usize,
}

impl Transposed {
    fn model(&self, channels: usize, maps: usize, groups: usize) -> Model {
        let rank = self.image.len();
        let op = Op::ConvTranspose(ConvTranspose {
            strides: vec![self.stride; rank],
            dilations: vec![self.dilation; rank],
            pads: vec![(self.pad, self.pad); rank],
            output_padding: vec![self.extra; rank],
            groups,
        });
        let x = [&[2, channels], &self.image[..]].concat();
        let w = [&[channels, maps / groups], &vec![self.taps; rank][..]].concat();
        single(op, &[input(&x), weight(&w, 1), weight(&[maps], 2)])
    }
}

fn has_columns(plan: &Plan) -> bool {
    kinds(plan).contains(&"col2im")
}

#[test]
fn transposed_convolutions_by_columns() {
    let of = |image: &[usize], taps, stride, pad, extra, dilation| Transposed {
        image: image.to_vec(),
        taps,
        stride,
        pad,
        extra,
        dilation,
    };
    for t in [
        of(&[40], 7, 1, 0, 0, 1),
        of(&[9, 5], 5, 2, 1, 1, 1),
        of(&[9, 7], 3, 3, 1, 1, 1),
        of(&[7, 6], 3, 2, 0, 1, 2),
        of(&[3, 4, 5], 3, 2, 0, 0, 1),
    ] {
        for (channels, maps, groups) in [(33, 19, 1), (66, 38, 2)] {
            let plan = judge_both(&t.model(channels, maps, groups));
            assert!(has_columns(&plan), "{plan}");
        }
    }
    // Whole blocks of channels, and windows that fill the image: phases suit it.
    let plan = judge_both(&of(&[8, 8], 4, 2, 1, 0, 1).model(32, 16, 1));
    assert!(!has_columns(&plan), "{plan}");
}

#[test]
fn reductions_on_both_sides_of_a_kept_axis() {
    use ReduceKind::*;
    for kind in [Sum, Mean, Prod, Max, Min] {
        for (axes, keepdims, steps) in [
            (vec![0, 2, 3], true, 2),
            (vec![0, 2, 3], false, 2),
            (vec![0, 1, 3], false, 1),
            (vec![2, 3], false, 1),
            (vec![0, 2], false, 1),
        ] {
            let op = Op::Reduce(Reduce {
                kind,
                axes,
                keepdims,
            });
            let plan = judge_both(&single(op.clone(), &[input(&[3, 4, 5, 6])]));
            assert_eq!(plan.steps.len(), steps, "{plan}");
            let halves = judge_both(&single(op, &[typed(DType::F16, &[3, 4, 5, 6])]));
            assert_eq!(halves.steps.len(), 1, "they are rounded once\n{halves}");
        }
    }
}
