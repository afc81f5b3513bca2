//! Convolutions and pooling in both layouts.

use crate::judge::{
    Operand, input, judge, judge_both, kinds, planned, random, single, typed, weight,
};
use graph::ops::{
    Binary, Conv, ConvInteger, IndexOrder, Lrn, MaxPoolGradient, Op, Pool, PoolKind, Unary,
};
use graph::{Model, ValueId};
use plan::LayoutPolicy;
use tensor::{DType, Fill, Tensor, fill_tensor};

fn conv(stride: usize, dilation: usize, pads: [(usize, usize); 2], groups: usize) -> Conv {
    Conv {
        strides: vec![stride; 2],
        dilations: vec![dilation; 2],
        pads: pads.to_vec(),
        groups,
    }
}

#[test]
fn convolutions_of_one_group() {
    let whole = conv(1, 1, [(1, 1); 2], 1);
    let odd = conv(2, 2, [(0, 1), (2, 3)], 1);
    for (c, maps, attributes) in [
        (8, 8, whole.clone()),
        (8, 8, odd.clone()),
        (6, 10, whole.clone()),
        (5, 7, odd),
        (3, 8, whole.clone()),
        (1, 2, whole.clone()),
        (6, 2, whole),
        (16, 4, conv(1, 1, [(0, 0); 2], 1)),
    ] {
        for bias in [false, true] {
            let mut operands = vec![input(&[2, c, 7, 6]), weight(&[maps, c, 3, 2], 1)];
            operands.extend(bias.then(|| weight(&[maps], 2)));
            let plan = judge_both(&single(Op::Conv(attributes.clone()), &operands));
            let direct = c <= 4;
            // Of half a block of maps vectors lie along pixels.
            let expected: &[&str] = match direct {
                _ if maps <= 2 => &["conv2d"],
                true => &["conv2d", "layout_transform"],
                false => &["layout_transform", "conv2d", "layout_transform"],
            };
            assert_eq!(kinds(&plan), expected, "{c} to {maps} channels");
            assert_eq!(plan.conversions, expected.len() - 1);
        }
    }
}

#[test]
fn blocked_convolutions_have_the_promised_loops() {
    let operands = [
        input(&[1, 8, 6, 6]),
        weight(&[12, 8, 3, 3], 1),
        weight(&[12], 2),
    ];
    let model = single(Op::Conv(conv(1, 1, [(1, 1); 2], 1)), &operands);
    let plan = planned(&model, LayoutPolicy::Blocked);
    let task = plan.tasks.iter().find(|t| t.op == "conv2d").unwrap();
    let p = &task.program;
    let main = p.block(p.block_named("main").unwrap());
    let iters: Vec<_> = main
        .iters
        .iter()
        .map(|i| (p.var(i.var).name.as_str(), i.extent))
        .collect();
    let expected = [
        ("n", 1),
        ("ko", 3),
        ("y", 6),
        ("x", 6),
        ("ki", 4),
        ("co", 2),
        ("r", 3),
        ("s", 3),
        ("ci", 4),
    ];
    assert_eq!(iters, expected);
    assert!(p.block_named("out").is_some());
    let buffers: Vec<_> = p
        .params
        .iter()
        .map(|b| p.buffer(*b).name.as_str())
        .collect();
    assert_eq!(buffers, ["X", "W", "B", "out"]);
    assert_eq!(task.flops, 2.0 * (12 * 6 * 6 * 8 * 3 * 3) as f64);
    for (name, value) in [
        ("c", 8),
        ("k", 12),
        ("r", 3),
        ("pad_h", 1),
        ("block", 4),
        ("in_block", 4),
    ] {
        assert_eq!(task.args[name], value, "{name}");
    }
}

#[test]
fn depthwise_and_grouped_convolutions() {
    for (c, maps, groups, taps, name, conversions) in [
        // By itself, few taps do not pay for conversions.
        (8, 8, 8, 3, "depthwise_conv2d", 0),
        (6, 6, 6, 3, "depthwise_conv2d", 0),
        (8, 8, 8, 5, "depthwise_conv2d", 2),
        (6, 6, 6, 5, "depthwise_conv2d", 2),
        // A channel has two maps.
        (6, 12, 6, 3, "depthwise_conv2d", 2),
        // Groups of three maps straddle blocks of four.
        (8, 12, 4, 3, "grouped_conv2d", 0),
        (16, 24, 2, 3, "grouped_conv2d", 2),
    ] {
        let operands = [
            input(&[1, c, 7, 6]),
            weight(&[maps, c / groups, taps, taps], 1),
            weight(&[maps], 2),
        ];
        let op = Op::Conv(conv(1, 1, [(1, 1), (1, 0)], groups));
        let plan = judge_both(&single(op, &operands));
        assert!(kinds(&plan).contains(&name), "{plan}");
        assert_eq!(plan.conversions, conversions, "{plan}");
    }
}

/// Every pixel is 127, and its zero point -128: the middle sum, of 625 taps, is 625 * 255 * -127, which is odd and
/// beyond 2^24.
#[test]
fn large_windows_of_bytes_are_summed_exactly() {
    let mut m = Model::new("bytes", 0);
    let x = m.add_input("x", DType::I8, &[1, 8, 25, 25]);
    let most = m.add_constant("most", filled(DType::I8, &[1], 127.0));
    let x = m.add("top", Op::Binary(Binary::Max), &[x, most]).unwrap();
    let w = m.add_constant("w", filled(DType::I8, &[8, 1, 25, 25], -127.0));
    let op = Op::ConvInteger(ConvInteger {
        conv: conv(1, 1, [(12, 12); 2], 8),
        outside: -128,
        centred: true,
    });
    let y = m.add("sums", op, &[x, w]).unwrap();
    m.add_output(y);
    judge_both(&m);
}

fn filled(dtype: DType, shape: &[usize], value: f64) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape);
    (0..t.len()).for_each(|i| t.set_f64(i, value));
    t
}

fn pool(kind: PoolKind, pads: [(usize, usize); 2], dilation: usize, ceil_mode: bool) -> Pool {
    Pool {
        kind,
        kernel: vec![3, 2],
        strides: vec![2, 3],
        dilations: vec![dilation; 2],
        pads: pads.to_vec(),
        ceil_mode,
    }
}

/// `f` after a convolution that leaves its result in blocks.
fn after_conv(channels: usize, f: impl FnOnce(&mut Model, ValueId) -> ValueId) -> Model {
    let mut m = Model::new("chain", 0);
    let x = m.add_input("x", DType::F32, &[2, 3, 8, 7]);
    let w = m.add_constant("w", random(&[channels, 3, 1, 1], 1));
    let x = m.add("conv", Op::Conv(Conv::unit(2)), &[x, w]).unwrap();
    let y = f(&mut m, x);
    m.add_output(y);
    m
}

#[test]
fn pooling() {
    let max = PoolKind::Max { indices: None };
    let average = |count_include_pad| PoolKind::Average { count_include_pad };
    for kind in [max, average(true), average(false)] {
        for pads in [[(0, 0); 2], [(1, 1), (1, 0)]] {
            for (dilation, ceil) in [(1, false), (2, false), (1, true)] {
                let op = Op::Pool(pool(kind, pads, dilation, ceil));
                judge(
                    &single(op.clone(), &[input(&[2, 3, 8, 7])]),
                    LayoutPolicy::Plain,
                );
                for channels in [8, 6] {
                    let model =
                        after_conv(channels, |m, x| m.add("pool", op.clone(), &[x]).unwrap());
                    let plan = judge(&model, LayoutPolicy::Blocked);
                    assert_eq!(plan.conversions, 1, "{plan}");
                }
            }
        }
    }
}

#[test]
fn positions_of_maxima() {
    for order in [
        IndexOrder::RowMajor,
        IndexOrder::ColumnMajor,
        IndexOrder::Window,
    ] {
        for dtype in [DType::F32, DType::I8] {
            let kind = PoolKind::Max {
                indices: Some(order),
            };
            let op = Op::Pool(pool(kind, [(1, 1), (1, 0)], 1, false));
            judge_both(&single(op, &[typed(dtype, &[2, 3, 8, 7])]));
        }
    }
}

/// Of windows that overlap, that leave elements out, and that have holes; plain, and with all images in blocks.
#[test]
fn gradients_of_maxima_are_gathered() {
    let max = PoolKind::Max {
        indices: Some(IndexOrder::Window),
    };
    for (pads, dilation, ceil) in [
        ([(0, 0); 2], 1, false),
        ([(1, 1), (1, 0)], 1, true),
        ([(1, 1), (1, 1)], 2, false),
    ] {
        let pool = pool(max, pads, dilation, ceil);
        let gradient = |m: &mut Model, x| {
            let made = m.add_node("pool", Op::Pool(pool.clone()), &[Some(x)]);
            let [y, positions] = made.unwrap()[..] else {
                panic!("a pool with positions has two outputs");
            };
            let image = m[x].shape()[2..].to_vec();
            let pool = pool.clone();
            let op = Op::MaxPoolGradient(MaxPoolGradient { image, pool });
            m.add("dx", op, &[y, positions]).unwrap()
        };
        for channels in [8, 6] {
            judge_both(&after_conv(channels, gradient));
            let plan = judge(&after_conv(channels, gradient), LayoutPolicy::Blocked);
            assert_eq!(plan.conversions, 1, "{plan}");
        }
    }
}

#[test]
fn neighbouring_channels_are_found_across_blocks() {
    for channels in [8, 6] {
        let lrn = Op::Lrn(Lrn {
            size: 5,
            alpha: 0.5,
            beta: 0.75,
            bias: 1.0,
        });
        let model = after_conv(channels, |m, x| m.add("lrn", lrn, &[x]).unwrap());
        let plan = judge(&model, LayoutPolicy::Blocked);
        assert_eq!(kinds(&plan), ["conv2d", "lrn", "layout_transform"]);
    }
}

#[test]
fn half_precision_accumulates_in_single() {
    let half = |shape: &[usize], seed| {
        Operand::Constant(fill_tensor(
            DType::F16,
            shape,
            Fill::Normal { std: 1.0 },
            seed,
        ))
    };
    let operands = [
        typed(DType::F16, &[1, 8, 5, 5]),
        half(&[4, 8, 3, 3], 1),
        half(&[4], 2),
    ];
    let plan = judge_both(&single(Op::Conv(Conv::unit(2)), &operands));
    let at = kinds(&plan).iter().position(|k| *k == "conv2d").unwrap();
    let p = &plan.tasks[plan.steps[at].task].program;
    assert_eq!(p.buffer(p.buffer_named("main").unwrap()).dtype, DType::F32);
}

#[test]
fn a_product_between_plain_images_has_one_axis_of_pixels() {
    let weights = fill_tensor(DType::F32, &[20, 24, 1, 1], Fill::Normal { std: 1.0 }, 1);
    let operands = [
        typed(DType::F32, &[2, 24, 7, 9]),
        Operand::Constant(weights),
    ];
    let model = single(Op::Conv(Conv::unit(2)), &operands);
    let plan = judge(&model, LayoutPolicy::Blocked);
    assert_eq!(kinds(&plan), ["conv2d"]);
    let p = &plan.tasks[0].program;
    assert_eq!(p.buffer(p.buffer_named("X").unwrap()).shape, [2, 24, 63]);
}

#[test]
fn an_epilogue_keeps_tail_channels_at_zero() {
    let model = after_conv(6, |m, x| {
        let y = m.add("sigmoid", Op::Unary(Unary::Sigmoid), &[x]).unwrap();
        let w = m.add_constant("w", random(&[5, 6, 3, 3], 3));
        m.add("second", Op::Conv(Conv::unit(2)), &[y, w]).unwrap()
    });
    let plan = judge(&model, LayoutPolicy::Blocked);
    assert_eq!(kinds(&plan), ["conv2d", "conv2d", "layout_transform"]);
    let step = &plan.steps[0];
    let inputs: Vec<_> = crate::judge::inputs(&model);
    let written = plan.interpret_to(&inputs, step.outputs[0]).unwrap();
    let shape = written.shape().to_vec();
    assert_eq!(shape, [2, 2, 8, 7, 4]);
    let tail = (0..written.len()).filter(|i| i / (8 * 7 * 4) % 2 == 1 && i % 4 >= 2);
    assert!(tail.clone().count() > 0);
    assert!(tail.into_iter().all(|i| written.get_f64(i) == 0.0));
}
