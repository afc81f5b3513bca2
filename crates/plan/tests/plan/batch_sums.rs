//! Convolutions over the batch, which gradients of weights are: the first two axes of both
//! images change places, and so do those of the result.

use crate::judge::{judge_both, kinds};
use graph::Model;
use graph::ops::{Conv, Op, Reshape, Transpose, Unary};
use tensor::DType;

/// The sum over images of so many maps times so many channels, of images that a kernel made.
fn gradient(channels: usize, maps: usize, (stride, dilation): (usize, usize)) -> Model {
    let mut m = Model::new("gradient", 0);
    let swapped = || {
        Op::Transpose(Transpose {
            perm: vec![1, 0, 2, 3],
        })
    };
    // As many windows of 2 x 3 taps as there are.
    let windows = |size: usize, taps: usize| (size - (taps - 1) * dilation - 1) / stride + 1;
    let sizes = [windows(5 + 2, 2), windows(7 + 1, 3)];
    let x = m.add_input("x", DType::F32, &[3, channels, 5, 7]);
    let dy = m.add_input("dy", DType::F32, &[3, maps, sizes[0], sizes[1]]);
    let dy = m.add("made", Op::Unary(Unary::Relu), &[dy]).unwrap();
    let data = m.add("data", swapped(), &[x]).unwrap();
    let weights = m.add("weights", swapped(), &[dy]).unwrap();
    let conv = Conv {
        strides: vec![dilation; 2],
        dilations: vec![stride; 2],
        pads: vec![(1, 1), (0, 1)],
        groups: 1,
    };
    let taps = m.add("taps", Op::Conv(conv), &[data, weights]).unwrap();
    let dw = m.add("dw", swapped(), &[taps]).unwrap();
    m.add_output(dw);
    m
}

#[test]
fn images_are_read_as_they_lie() {
    for steps in [(1, 1), (2, 1), (1, 2), (2, 2)] {
        for (channels, maps) in [(8, 8), (6, 5), (3, 7), (8, 2)] {
            let plan = judge_both(&gradient(channels, maps, steps));
            let moves = |k: &&&str| **k == "transpose";
            let kinds = kinds(&plan);
            assert_eq!(kinds.iter().filter(moves).count(), 1, "{plan}");
            // Few channels of the data are read plain, and few maps stay plain.
            let expected = match (channels, maps) {
                (_, 2) => 0,
                (3, _) => 1,
                _ => 2,
            };
            assert_eq!(plan.conversions, expected, "{plan}");
        }
    }
}

/// The windows of each channel of two images that kernels made, by a depthwise convolution in
/// blocks before it.
fn depthwise_gradient(channels: usize, stride: usize) -> Model {
    let mut m = Model::new("depthwise gradient", 0);
    let size = (8 + 2 - 3) / stride + 1;
    let shape = [2, channels, 8, 8];
    let own = |strides: usize| {
        Op::Conv(Conv {
            strides: vec![strides; 2],
            dilations: vec![1; 2],
            pads: vec![(1, 1); 2],
            groups: channels,
        })
    };
    let x = m.add_input("x", DType::F32, &shape);
    let w = m.add_input("w", DType::F32, &[channels, 1, 3, 3]);
    let x = m.add("image", own(1), &[x, w]).unwrap();
    let dy = m.add("gradient", own(stride), &[x, w]).unwrap();
    let mut side = |v, size: usize| {
        let shape = vec![1, 2 * channels, size, size];
        m.add("side", Op::Reshape(Reshape { shape }), &[v]).unwrap()
    };
    let (image, maps) = (side(x, 8), side(dy, size));
    let perm = vec![1, 0, 2, 3];
    let maps = m
        .add("maps", Op::Transpose(Transpose { perm }), &[maps])
        .unwrap();
    let conv = Conv {
        strides: vec![1; 2],
        dilations: vec![stride; 2],
        pads: vec![(1, 1); 2],
        groups: 2 * channels,
    };
    let taps = m.add("taps", Op::Conv(conv), &[image, maps]).unwrap();
    m.add_output(taps);
    m
}

#[test]
fn windows_of_depthwise_gradients_are_read_as_they_lie() {
    for stride in [1, 2] {
        // Blocks that hold channels of one image: the operand and the result are converted.
        let plan = judge_both(&depthwise_gradient(8, stride));
        assert_eq!(plan.conversions, 2, "{plan}");
        assert_eq!(kinds(&plan).len(), 5, "{plan}");
        // Blocks that end with an image: both images are read plain.
        let plan = judge_both(&depthwise_gradient(6, stride));
        assert!(!kinds(&plan).contains(&"transpose"), "{plan}");
    }
}
