//! Chains of nodes that move elements: which kernels they become, and what those compute.
//! A block has four channels.

use crate::judge::{judge_both, kinds, random};
use graph::ops::{Binary, Concat, Conv, Op, Reshape, Slice, Softmax, Split, Transpose, Unary};
use graph::{Model, ValueId};
use tensor::DType;

fn conv(m: &mut Model, x: ValueId, maps: usize) -> ValueId {
    let channels = m[x].shape()[1];
    let w = m.add_constant("w", random(&[maps, channels, 1, 1], maps as u64));
    m.add("conv", Op::Conv(Conv::unit(2)), &[x, w]).unwrap()
}

fn split(m: &mut Model, x: ValueId, sizes: &[usize]) -> Vec<ValueId> {
    let sizes = sizes.to_vec();
    let op = Op::Split(Split { axis: 1, sizes });
    m.add_node("split", op, &[Some(x)]).unwrap()
}

fn concat(m: &mut Model, axis: usize, parts: &[ValueId]) -> ValueId {
    m.add("concat", Op::Concat(Concat { axis }), parts).unwrap()
}

fn reshape(m: &mut Model, x: ValueId, shape: &[usize]) -> ValueId {
    let shape = shape.to_vec();
    m.add("reshape", Op::Reshape(Reshape { shape }), &[x])
        .unwrap()
}

fn transpose(m: &mut Model, x: ValueId, perm: &[usize]) -> ValueId {
    let perm = perm.to_vec();
    m.add("transpose", Op::Transpose(Transpose { perm }), &[x])
        .unwrap()
}

fn part(m: &mut Model, x: ValueId, axis: usize, start: usize, size: usize) -> ValueId {
    let mut sizes = m[x].shape().to_vec();
    let (mut starts, steps) = (vec![0; sizes.len()], vec![1; sizes.len()]);
    (starts[axis], sizes[axis]) = (start, size);
    let op = Op::Slice(Slice {
        starts,
        steps,
        sizes,
    });
    m.add("slice", op, &[x]).unwrap()
}

/// A rotation of pairs: each element times a cosine, and the other one of its pair times a sine. All heads share the
/// angles, so the first product has one operand of the result's size.
#[test]
fn a_rotation_of_pairs_is_one_kernel() {
    let mut m = Model::new("rotation", 0);
    let x = m.add_input("x", DType::F32, &[1, 3, 5, 2, 8]);
    let [cosines, sines] = ["c", "s"].map(|name| m.add_input(name, DType::F32, &[1, 1, 5, 2, 8]));
    let swap = Slice {
        starts: vec![0, 0, 0, 1, 0],
        steps: vec![1, 1, 1, -1, 1],
        sizes: vec![1, 3, 5, 2, 8],
    };
    let other = m.add("other", Op::Slice(swap), &[x]).unwrap();
    let times = Op::Binary(Binary::Mul);
    let across = m.add("across", times.clone(), &[other, sines]).unwrap();
    let along = m.add("along", times, &[x, cosines]).unwrap();
    let y = m
        .add("y", Op::Binary(Binary::Add), &[along, across])
        .unwrap();
    m.add_output(y);
    assert_eq!(kinds(&judge_both(&m)), ["slice"]);
}

/// The channels in the order in which ShuffleNet leaves them.
fn shuffle(m: &mut Model, x: ValueId, groups: usize) -> ValueId {
    let [n, c, h, w] = m[x].shape().to_vec()[..] else {
        unreachable!()
    };
    let x = reshape(m, x, &[n, groups, c / groups, h, w]);
    let x = transpose(m, x, &[0, 2, 1, 3, 4]);
    reshape(m, x, &[n, c, h, w])
}

/// Places in channels become places in the image.
fn to_space(m: &mut Model, x: ValueId, by: usize, channels_first: bool) -> ValueId {
    let [n, c, h, w] = m[x].shape().to_vec()[..] else {
        unreachable!()
    };
    let own = c / by / by;
    let (shape, perm) = match channels_first {
        true => ([n, own, by, by, h, w], [0, 1, 4, 2, 5, 3]),
        false => ([n, by, by, own, h, w], [0, 3, 4, 1, 5, 2]),
    };
    let x = reshape(m, x, &shape);
    let x = transpose(m, x, &perm);
    reshape(m, x, &[n, own, h * by, w * by])
}

/// The reverse of [`to_space`].
fn to_channels(m: &mut Model, x: ValueId, by: usize) -> ValueId {
    let [n, c, h, w] = m[x].shape().to_vec()[..] else {
        unreachable!()
    };
    let x = reshape(m, x, &[n, c, h / by, by, w / by, by]);
    let x = transpose(m, x, &[0, 3, 5, 1, 2, 4]);
    reshape(m, x, &[n, c * by * by, h / by, w / by])
}

/// What lies before `start` comes last.
fn roll(m: &mut Model, x: ValueId, axis: usize, start: usize) -> ValueId {
    let size = m[x].shape()[axis];
    let parts = [
        part(m, x, axis, start, size - start),
        part(m, x, axis, 0, start),
    ];
    concat(m, axis, &parts)
}

#[test]
fn a_shuffle_between_convolutions_is_one_kernel_a_part() {
    for (n, sizes) in [(1, [6, 6]), (2, [5, 7]), (1, [3, 9])] {
        let channels = sizes[0] + sizes[1];
        let mut m = Model::new("shufflenet", 0);
        let x = m.add_input("x", DType::F32, &[n, 3, 3, 5]);
        let mut x = conv(&mut m, x, channels);
        for _ in 0..3 {
            let parts = split(&mut m, x, &sizes);
            let y = conv(&mut m, parts[1], sizes[1]);
            x = concat(&mut m, 1, &[parts[0], y]);
            x = shuffle(&mut m, x, 2);
        }
        let x = conv(&mut m, x, 4);
        m.add_output(x);
        let plan = judge_both(&m);
        let unit = ["move", "move", "conv2d"];
        let all = [&["conv2d"][..], &unit, &unit, &unit, &["move", "conv2d"]].concat();
        assert_eq!(kinds(&plan)[..all.len()], all, "{plan}");
        assert_eq!(plan.conversions, 1, "{plan}");
    }
}

#[test]
fn concatenations_of_parts_of_blocks_stay_in_blocks() {
    let mut m = Model::new("dense", 0);
    let x = m.add_input("x", DType::F32, &[2, 3, 3, 5]);
    let a = conv(&mut m, x, 6);
    let b = conv(&mut m, a, 3);
    let both = concat(&mut m, 1, &[a, b]);
    let both = m.add("relu", Op::Unary(Unary::Relu), &[both]).unwrap();
    let c = conv(&mut m, both, 3);
    let all = concat(&mut m, 1, &[a, b, c]);
    let x = conv(&mut m, all, 8);
    m.add_output(x);
    let plan = judge_both(&m);
    let wanted = [
        "conv2d",
        "conv2d",
        "move",
        "conv2d",
        "move",
        "conv2d",
        "layout_transform",
    ];
    assert_eq!(kinds(&plan), wanted, "{plan}");
}

#[test]
fn concatenations_of_concatenations_need_no_copy() {
    let mut m = Model::new("dense", 0);
    let x = m.add_input("x", DType::F32, &[1, 3, 4, 4]);
    let mut all = vec![conv(&mut m, x, 8)];
    for _ in 0..3 {
        let x = concat(&mut m, 1, &all);
        all.push(conv(&mut m, x, 4));
    }
    let halves = split(&mut m, all[0], &[4, 4]);
    let x = conv(&mut m, halves[1], 4);
    let x = concat(&mut m, 1, &[&halves[..], &all[1..], &[x]].concat());
    let x = conv(&mut m, x, 4);
    m.add_output(x);
    let plan = judge_both(&m);
    let wanted = [&["conv2d"; 6][..], &["layout_transform"]].concat();
    assert_eq!(kinds(&plan), wanted, "{plan}");
}

/// Parts are computed where they lie, also those that get their shape afterwards.
#[test]
fn a_concatenation_of_reshaped_results_is_no_copy() {
    let mut m = Model::new("m", 0);
    let softmax = |m: &mut Model, v| {
        let by_rows = Op::Softmax(Softmax { axis: 1 });
        m.add("softmax", by_rows, &[v]).unwrap()
    };
    let x = m.add_input("x", DType::F32, &[64, 16]);
    let y = m.add_input("y", DType::F32, &[4, 128]);
    let x = softmax(&mut m, x);
    let y = softmax(&mut m, y);
    let y = reshape(&mut m, y, &[32, 16]);
    let all = concat(&mut m, 0, &[x, y]);
    let z = softmax(&mut m, all);
    m.add_output(z);
    let plan = judge_both(&m);
    assert_eq!(kinds(&plan), ["softmax"; 3], "{plan}");
}

#[test]
fn windows_of_a_rolled_image_are_one_copy() {
    let mut m = Model::new("swin", 0);
    let x = m.add_input("x", DType::F32, &[2, 6, 9, 8]);
    let x = m.add("relu", Op::Unary(Unary::Relu), &[x]).unwrap();
    let x = roll(&mut m, x, 1, 2);
    let x = roll(&mut m, x, 2, 1);
    let x = reshape(&mut m, x, &[2, 2, 3, 3, 3, 8]);
    let x = transpose(&mut m, x, &[0, 1, 3, 2, 4, 5]);
    let x = reshape(&mut m, x, &[12, 9, 8]);
    m.add_output(x);
    let plan = judge_both(&m);
    assert_eq!(kinds(&plan), ["elementwise", "move"], "{plan}");
}

/// Numbers with a fixed seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % n
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// One more value that is made of others by moves.
fn moved(m: &mut Model, draws: &mut Draws, values: &mut Vec<ValueId>) {
    let x = draws.of(values);
    let [n, c, h, w] = m[x].shape().to_vec()[..] else {
        unreachable!()
    };
    let groups: Vec<usize> = (1..=c).filter(|g| c % g == 0).collect();
    let made = match draws.below(7) {
        0 => shuffle(m, x, draws.of(&groups)),
        1 if c > 1 => {
            let first = 1 + draws.below(c - 1);
            values.extend(split(m, x, &[first, c - first]));
            return;
        }
        2 => {
            let same = |v: &&ValueId| m[**v].shape()[2..] == [h, w];
            let same: Vec<ValueId> = values.iter().filter(same).copied().collect();
            let parts: Vec<ValueId> = (0..2 + draws.below(2)).map(|_| draws.of(&same)).collect();
            concat(m, 1, &parts)
        }
        3 if c % 4 == 0 => to_space(m, x, 2, draws.below(2) == 0),
        4 if h % 2 == 0 && w % 2 == 0 => to_channels(m, x, 2),
        5 => roll(m, x, draws.of(&[2, 3]), 1),
        _ => {
            let start = draws.below(c);
            part(m, x, 1, start, 1 + draws.below(c - start))
        }
    };
    if m[made].ty().len() <= n * 48 * 24 {
        values.push(made);
    }
}

#[test]
fn random_chains_compute_what_their_nodes_say() {
    for seed in 0..60 {
        let mut draws = Draws(seed);
        let mut m = Model::new("chain", 0);
        let image = [
            1 + draws.below(2),
            3,
            draws.of(&[2, 3, 4]),
            draws.of(&[2, 4, 5]),
        ];
        let x = m.add_input("x", DType::F32, &image);
        let mut values: Vec<ValueId> = Vec::new();
        for _ in 0..2 {
            let maps = 1 + draws.below(14);
            values.push(conv(&mut m, x, maps));
        }
        for _ in 0..8 {
            if draws.below(4) == 0 {
                let (x, maps) = (draws.of(&values), 1 + draws.below(9));
                values.push(conv(&mut m, x, maps));
            } else {
                moved(&mut m, &mut draws, &mut values);
            }
        }
        for _ in 0..2 {
            let x = draws.of(&values);
            let y = conv(&mut m, x, 3);
            m.add_output(y);
        }
        if draws.below(3) == 0 {
            let x = draws.of(&values);
            let relu = m.add("relu", Op::Unary(Unary::Relu), &[x]).unwrap();
            m.add_output(relu);
        }
        judge_both(&m);
    }
}
