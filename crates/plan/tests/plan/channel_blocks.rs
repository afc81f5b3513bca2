//! Channel blocks in images of one to three spatial axes, in groups that are narrower
//! than a block, and in transposed convolutions: what they compute, which axes they
//! have, and where they are not worth it. A block has four channels.

use crate::judge::{input, judge, judge_both, kinds, planned, random, single, weight};
use graph::ops::{
    BatchNorm, Concat, Conv, ConvTranspose, Lrn, Op, Pool, PoolKind, Reduce, ReduceKind, Split,
    Unary,
};
use graph::{Model, ValueId};
use plan::{LayoutPolicy, Plan};
use tensor::DType;

/// The axes of a block of the task of this kind, with their extents.
fn axes(plan: &Plan, op: &str, block: &str) -> String {
    let task = plan.tasks.iter().find(|t| t.op == op).unwrap();
    let p = &task.program;
    let iters = &p.block(p.block_named(block).unwrap()).iters;
    let text = iters
        .iter()
        .map(|i| format!("{}={}", p.var(i.var).name, i.extent));
    text.collect::<Vec<_>>().join(" ")
}

/// The sizes of the last `rank` spatial axes of three.
fn sizes(rank: usize, three: [usize; 3]) -> Vec<usize> {
    three[3 - rank..].to_vec()
}

fn convolution(rank: usize, stride: usize, dilation: usize, groups: usize) -> Conv {
    Conv {
        strides: vec![stride; rank],
        dilations: vec![dilation; rank],
        pads: [(0, 1), (1, 1), (2, 0)][3 - rank..].to_vec(),
        groups,
    }
}

/// A convolution of an input with a bias, in both layouts.
fn judged(c: Conv, channels: usize, maps: usize) -> Plan {
    let rank = c.strides.len();
    let x = [&[2, channels], &sizes(rank, [3, 5, 7])[..]].concat();
    let w = [&[maps, channels / c.groups], &sizes(rank, [2, 2, 3])[..]].concat();
    let operands = [input(&x), weight(&w, 1), weight(&[maps], 2)];
    judge_both(&single(Op::Conv(c), &operands))
}

/// A depthwise convolution after a convolution, whose result is in blocks, in both layouts.
fn depthwise_in_blocks(c: Conv, channels: usize) -> Plan {
    let rank = c.strides.len();
    let mut m = Model::new("depthwise", 0);
    let x = [&[2, channels], &sizes(rank, [3, 5, 7])[..]].concat();
    let x = m.add_input("x", DType::F32, &x);
    let w = m.add_constant(
        "w",
        random(&[&[channels; 2], &vec![1; rank][..]].concat(), 1),
    );
    let x = m.add("conv", Op::Conv(Conv::unit(rank)), &[x, w]).unwrap();
    let w = [&[channels, 1], &sizes(rank, [2, 2, 3])[..]].concat();
    let w = m.add_constant("taps", random(&w, 2));
    let y = m.add("depthwise", Op::Conv(c), &[x, w]).unwrap();
    m.add_output(y);
    judge_both(&m)
}

#[test]
fn convolutions_of_every_rank() {
    for rank in 1..=3 {
        for (stride, dilation) in [(1, 1), (2, 1), (1, 2), (2, 2)] {
            for (channels, maps, groups) in [(8, 8, 1), (6, 10, 1), (5, 7, 1), (16, 8, 2)] {
                let c = convolution(rank, stride, dilation, groups);
                let plan = judged(c, channels, maps);
                let name = match groups {
                    1 => format!("conv{rank}d"),
                    _ => format!("grouped_conv{rank}d"),
                };
                let expected = ["layout_transform", &name, "layout_transform"];
                assert_eq!(kinds(&plan), expected, "{plan}");
            }
            let [conv, depthwise] = ["conv", "depthwise_conv"].map(|op| format!("{op}{rank}d"));
            let plan = depthwise_in_blocks(convolution(rank, stride, dilation, 6), 6);
            let expected = ["layout_transform", &conv, &depthwise, "layout_transform"];
            assert_eq!(kinds(&plan), expected, "{plan}");
            let plan = judged(convolution(rank, stride, dilation, 1), 3, 6);
            let expected = [&conv, "layout_transform"];
            assert_eq!(
                kinds(&plan),
                expected,
                "few channels are read plain\n{plan}"
            );
        }
    }
}

#[test]
fn groups_narrower_than_a_block() {
    let cases = [
        // Channels and maps a group, and groups.
        (2, 2, 4),
        (2, 2, 5),
        (1, 2, 6),
        (1, 4, 5),
        (2, 4, 3),
        (2, 1, 8),
        (2, 1, 7),
        (4, 1, 6),
        (4, 2, 3),
    ];
    for rank in 1..=3 {
        for (depth, maps, groups) in cases {
            for stride in [1, 2] {
                let c = convolution(rank, stride, 1, groups);
                let plan = judged(c, depth * groups, maps * groups);
                assert_eq!(plan.conversions, 2, "{plan}");
            }
        }
    }
    for (depth, maps, groups) in [(3, 3, 4), (2, 3, 4), (8, 2, 2)] {
        let plan = judged(convolution(2, 1, 1, groups), depth * groups, maps * groups);
        assert_eq!(plan.conversions, 0, "groups straddle blocks\n{plan}");
    }
}

#[test]
fn tiny_operators_stay_plain() {
    for rank in [1, 2, 3] {
        let plan = judged(convolution(rank, 1, 1, 1), 8, 1);
        assert_eq!(kinds(&plan), [format!("conv{rank}d")]);
        let plan = judged(convolution(rank, 1, 1, 1), 1, 2);
        assert_eq!(plan.conversions, 0, "half a block of maps\n{plan}");
        // Read as it lies.
        let plan = judged(convolution(rank, 1, 1, 1), 1, 3);
        assert_eq!(plan.conversions, 1, "{plan}");
    }
    // Images of two axes that are in blocks stay there.
    let plan = after_conv(2, 8, |m, x| pointwise(m, x, 2, 2));
    assert_eq!(kinds(&plan).last(), Some(&"layout_transform"), "{plan}");
}

/// A transposed convolution along every axis; `pads` are those of the first.
struct Transposed {
    strides: Vec<usize>,
    taps: Vec<usize>,
    pads: (i64, i64),
    output_padding: usize,
    dilation: usize,
}

impl Transposed {
    fn new(strides: &[usize], taps: &[usize], pads: (i64, i64)) -> Transposed {
        Transposed {
            strides: strides.to_vec(),
            taps: taps.to_vec(),
            pads,
            output_padding: 0,
            dilation: 1,
        }
    }

    fn model(&self, channels: usize, maps: usize, groups: usize) -> Model {
        let rank = self.strides.len();
        let mut pads = vec![(0, 1); rank];
        pads[0] = self.pads;
        let mut output_padding = vec![0; rank];
        output_padding[0] = self.output_padding;
        let op = Op::ConvTranspose(ConvTranspose {
            strides: self.strides.clone(),
            dilations: vec![self.dilation; rank],
            pads,
            output_padding,
            groups,
        });
        let x = [&[2, channels], &sizes(rank, [2, 3, 4])[..]].concat();
        let w = [&[channels, maps / groups], &self.taps[..]].concat();
        single(op, &[input(&x), weight(&w, 1), weight(&[maps], 2)])
    }
}

fn transposed() -> Vec<Transposed> {
    let of = Transposed::new;
    vec![
        of(&[1], &[3], (1, 1)),
        of(&[2], &[4], (1, 1)),
        of(&[2], &[3], (0, 0)),
        of(&[3], &[2], (0, 0)),
        of(&[3], &[5], (-1, 2)),
        of(&[2, 2], &[4, 4], (1, 1)),
        of(&[2, 2], &[3, 3], (1, 1)),
        of(&[2, 2], &[2, 2], (0, 0)),
        of(&[1, 1], &[3, 2], (1, 1)),
        of(&[2, 1], &[3, 2], (1, 1)),
        of(&[1, 3], &[3, 4], (2, 0)),
        of(&[3, 2], &[1, 5], (-2, 1)),
        Transposed {
            output_padding: 1,
            ..of(&[2, 2], &[3, 3], (1, 1))
        },
        of(&[2, 2, 2], &[2, 3, 4], (1, 0)),
        of(&[1, 2, 3], &[2, 2, 2], (0, 1)),
    ]
}

#[test]
fn transposed_convolutions_of_every_rank() {
    for t in transposed() {
        let whole = [(8, 8, 1), (6, 5, 1), (16, 8, 2), (8, 16, 2)];
        let depthwise = [(8, 8, 8), (6, 6, 6)];
        for (channels, maps, groups) in whole.into_iter().chain(depthwise) {
            let plan = judge_both(&t.model(channels, maps, groups));
            let name = format!("conv{}d_transpose", t.strides.len());
            let expected = ["layout_transform", &name, "layout_transform"];
            assert_eq!(kinds(&plan), expected, "{plan}");
        }
        let plan = judge_both(&t.model(3, 4, 1));
        assert_eq!(plan.conversions, 1, "few channels are read plain\n{plan}");
        for (channels, maps, groups) in [(4, 6, 2), (4, 1, 1)] {
            let plan = judge_both(&t.model(channels, maps, groups));
            assert_eq!(plan.conversions, 0, "{plan}");
        }
    }
}

#[test]
fn dilated_transposed_convolutions() {
    for strides in [[1, 1], [2, 1], [3, 2], [2, 4], [4, 3], [5, 6]] {
        for dilation in [2, 3, 4] {
            for pads in [(2, 0), (-1, 1), (1, 3)] {
                let t = Transposed {
                    dilation,
                    ..Transposed::new(&strides, &[3, 4], pads)
                };
                let plan = judge_both(&t.model(8, 5, 1));
                assert_eq!(plan.conversions, 2, "{plan}");
            }
        }
    }
}

#[test]
fn programs_have_the_promised_loops() {
    let plan = judged(convolution(1, 1, 1, 1), 8, 6);
    assert_eq!(
        axes(&plan, "conv1d", "main"),
        "n=2 ko=2 x=7 ki=4 co=2 s=3 ci=4"
    );
    assert_eq!(axes(&plan, "layout_transform", "main"), "n=2 co=2 x=7 ci=4");
    let plan = judged(convolution(3, 1, 1, 1), 8, 6);
    assert_eq!(
        axes(&plan, "conv3d", "main"),
        "n=2 ko=2 z=3 y=6 x=7 ki=4 co=2 q=2 r=2 s=3 ci=4"
    );
    let plan = judged(convolution(2, 1, 1, 4), 8, 8);
    assert_eq!(
        axes(&plan, "grouped_conv2d", "main"),
        "n=2 ko=2 y=6 x=7 ki=4 c=2 r=2 s=3"
    );
    let model = Transposed::new(&[2, 2], &[4, 3], (1, 1)).model(8, 6, 1);
    let plan = planned(&model, LayoutPolicy::Blocked);
    assert_eq!(
        axes(&plan, "conv2d_transpose", "main"),
        "n=2 ko=2 y0=3 py=2 x0=4 px=2 ki=4 co=2 r0=2 s0=2 ci=4"
    );
    assert_eq!(
        axes(&plan, "conv2d_transpose", "out"),
        "n=2 ko=2 y0=3 py=2 x0=4 px=2 ki=4"
    );
    let plan = planned(&model, LayoutPolicy::Plain);
    assert_eq!(
        axes(&plan, "conv2d_transpose", "main"),
        "n=2 k=6 y0=3 py=2 px=2 x0=4 c=8 r0=2 s0=2"
    );
}

/// `f` after a convolution that leaves its result in blocks.
fn after_conv(
    rank: usize,
    channels: usize,
    f: impl FnOnce(&mut Model, ValueId) -> ValueId,
) -> Plan {
    let mut m = Model::new("chain", 0);
    let x = [&[2, 3], &sizes(rank, [4, 5, 6])[..]].concat();
    let x = m.add_input("x", DType::F32, &x);
    let x = pointwise(&mut m, x, channels, 1);
    let y = f(&mut m, x);
    m.add_output(y);
    judge(&m, LayoutPolicy::Blocked)
}

/// A convolution with one tap.
fn pointwise(m: &mut Model, x: ValueId, maps: usize, seed: u64) -> ValueId {
    let rank = m[x].ty().rank() - 2;
    let w = [&[maps, m[x].shape()[1]], &vec![1; rank][..]].concat();
    let w = m.add_constant("w", random(&w, seed));
    m.add("conv", Op::Conv(Conv::unit(rank)), &[x, w]).unwrap()
}

#[test]
fn what_follows_stays_in_blocks() {
    for rank in [1, 3] {
        for channels in [8, 6] {
            for kind in [
                PoolKind::Max { indices: None },
                PoolKind::Average {
                    count_include_pad: false,
                },
            ] {
                let pool = Op::Pool(Pool {
                    kind,
                    kernel: vec![2; rank],
                    strides: vec![2; rank],
                    dilations: vec![1; rank],
                    pads: vec![(1, 0); rank],
                    ceil_mode: false,
                });
                let plan = after_conv(rank, channels, |m, x| m.add("pool", pool, &[x]).unwrap());
                assert_eq!(plan.conversions, 1, "{plan}");
            }
            let lrn = Op::Lrn(Lrn {
                size: 3,
                alpha: 0.5,
                beta: 0.75,
                bias: 1.0,
            });
            let plan = after_conv(rank, channels, |m, x| m.add("lrn", lrn, &[x]).unwrap());
            assert_eq!(kinds(&plan)[1..], ["lrn", "layout_transform"]);
            let plan = after_conv(rank, channels, |m, x| chain(m, x, channels));
            assert_eq!(plan.conversions, 1, "{plan}");
            let plan = after_conv(rank, channels, |m, x| {
                let mean = Reduce {
                    kind: ReduceKind::Mean,
                    axes: (2..2 + rank).collect(),
                    keepdims: true,
                };
                let y = m.add("mean", Op::Reduce(mean), &[x]).unwrap();
                pointwise(m, y, 8, 5)
            });
            assert_eq!(plan.conversions, 0, "{plan}");
        }
    }
}

/// Normalises, activates, and adds what it came from.
fn chain(m: &mut Model, x: ValueId, channels: usize) -> ValueId {
    let mut statistics = vec![x];
    for (i, name) in ["scale", "shift", "mean"].into_iter().enumerate() {
        statistics.push(m.add_constant(name, random(&[channels], 10 + i as u64)));
    }
    let spread = vec![0.5f32; channels];
    let spread = tensor::Tensor::from_slice(&[channels], &spread);
    statistics.push(m.add_constant("variance", spread));
    let norm = Op::BatchNorm(BatchNorm { epsilon: 1e-5 });
    let y = m.add("norm", norm, &statistics).unwrap();
    let y = m.add("relu", Op::Unary(Unary::Relu), &[y]).unwrap();
    let second = pointwise(m, y, channels, 6);
    let add = Op::Binary(graph::ops::Binary::Add);
    m.add("sum", add, &[second, x]).unwrap()
}

#[test]
fn concatenated_and_split_blocks_are_parts_of_others() {
    for rank in [1, 3] {
        let plan = after_conv(rank, 8, |m, x| {
            let second = pointwise(m, x, 4, 2);
            let both = m.add("both", Op::Concat(Concat { axis: 1 }), &[x, second]);
            let split = Op::Split(Split {
                axis: 1,
                sizes: vec![8, 4],
            });
            let parts = m.add_node("parts", split, &[Some(both.unwrap())]).unwrap();
            let y = pointwise(m, parts[0], 4, 3);
            let add = Op::Binary(graph::ops::Binary::Add);
            m.add("sum", add, &[y, parts[1]]).unwrap()
        });
        assert_eq!(plan.conversions, 1, "{plan}");
        assert!(!kinds(&plan).contains(&"reshape"), "{plan}");
    }
}

#[test]
fn operands_of_fewer_axes_keep_their_channels() {
    // [6, 5, 4] is in blocks of its own; beside [2, 8, 6, 5, 4] its axes are the last three.
    let mut m = Model::new("ranks", 0);
    let x = m.add_input("x", DType::F32, &[2, 3, 6, 5, 4]);
    let y = m.add_input("y", DType::F32, &[6, 3, 4]);
    let x = pointwise(&mut m, x, 8, 1);
    let y = pointwise(&mut m, y, 5, 2);
    let add = Op::Binary(graph::ops::Binary::Add);
    let z = m.add("sum", add, &[x, y]).unwrap();
    m.add_output(z);
    judge_both(&m);
}

/// A few maps of an image in blocks lie plain: each is a sum over vectors of channels.
#[test]
fn few_maps_are_not_in_blocks() {
    for (channels, maps) in [(8, 1), (10, 1), (8, 2)] {
        let mut m = Model::new("head", 0);
        let mut x = m.add_input("x", DType::F32, &[2, 8, 5, 7]);
        for (seed, shape) in [[channels, 8, 3, 3], [maps, channels, 3, 3]]
            .iter()
            .enumerate()
        {
            let w = m.add_constant("w", random(shape, seed as u64));
            let conv = Conv {
                pads: vec![(1, 1); 2],
                ..convolution(2, 1, 1, 1)
            };
            x = m.add("conv", Op::Conv(conv), &[x, w]).unwrap();
        }
        m.add_output(x);
        let plan = judge_both(&m);
        let mut expected = vec!["layout_transform", "conv2d", "conv2d"];
        if maps > 1 {
            expected.push("layout_transform");
        }
        assert_eq!(kinds(&plan), expected, "{plan}");
    }
}
