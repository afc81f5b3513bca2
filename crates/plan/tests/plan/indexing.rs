//! Operators that select, place, order and sample elements: random shapes, plain and in blocks.

use crate::judge::{Operand, input, inputs, judge_both, judge_on, kinds, single, typed};
use graph::Model;
use graph::ops::*;
use plan::LayoutPolicy;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tensor::{DType, Tensor};

const COMBINE: [Combine; 5] = [
    Combine::Replace,
    Combine::Add,
    Combine::Mul,
    Combine::Max,
    Combine::Min,
];

/// Indices of a shape, each within the extent of its place, from either end.
fn indices(rng: &mut impl Rng, shape: &[usize], extent: impl Fn(usize) -> usize) -> Tensor {
    let dtype = [DType::I64, DType::I32][rng.random_range(0..2)];
    let mut t = Tensor::zeros(dtype, shape);
    for i in 0..t.len() {
        let n = extent(i) as i64;
        t.set_i64(i, rng.random_range(-n..n));
    }
    t
}

fn shape(rng: &mut impl Rng, ranks: std::ops::Range<usize>) -> Vec<usize> {
    let rank = rng.random_range(ranks);
    (0..rank).map(|_| rng.random_range(1..8)).collect()
}

fn element_type(rng: &mut impl Rng) -> DType {
    [DType::F32, DType::F64, DType::I32, DType::U8][rng.random_range(0..4)]
}

#[test]
fn random_elements_are_gathered_and_scattered() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    for round in 0..60 {
        let x = shape(&mut rng, 1..5);
        let axis = rng.random_range(0..x.len());
        let mut own: Vec<usize> = x.iter().map(|n| rng.random_range(1..=*n)).collect();
        own[axis] = rng.random_range(1..9);
        let given = indices(&mut rng, &own, |_| x[axis]);
        let dtype = element_type(&mut rng);
        let gather = Op::GatherElements(GatherElements { axis });
        let operands = [typed(dtype, &x), Operand::Constant(given.clone())];
        judge_both(&single(gather, &operands));
        let combine = COMBINE[round % COMBINE.len()];
        let scatter = Op::ScatterElements(ScatterElements { axis, combine });
        let [x, given] = operands;
        judge_both(&single(scatter, &[x, given, typed(dtype, &own)]));
    }
}

#[test]
fn random_parts_are_gathered_and_scattered() {
    let mut rng = Pcg64Mcg::seed_from_u64(4);
    for round in 0..60 {
        let x = shape(&mut rng, 1..5);
        let batch = rng.random_range(0..x.len());
        let depth = rng.random_range(1..=x.len() - batch);
        let outer = shape(&mut rng, 0..3);
        let dtype = element_type(&mut rng);
        let own = [&x[..batch], &outer, &[depth]].concat();
        let given = indices(&mut rng, &own, |i| x[batch + i % depth]);
        let gather = Op::GatherNd(GatherNd { batch });
        let operands = [typed(dtype, &x), Operand::Constant(given)];
        judge_both(&single(gather, &operands));

        let own = [&outer[..], &[depth]].concat();
        let given = indices(&mut rng, &own, |i| x[i % depth]);
        let combine = COMBINE[round % COMBINE.len()];
        let scatter = Op::ScatterNd(ScatterNd { combine });
        let updates = [&outer, &x[depth..]].concat();
        let operands = [
            typed(dtype, &x),
            Operand::Constant(given),
            typed(dtype, &updates),
        ];
        judge_both(&single(scatter, &operands));
    }
}

/// With equal elements, infinities and NaN.
#[test]
fn random_elements_are_ordered() {
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    for round in 0..80 {
        let mut x = shape(&mut rng, 1..4);
        let axis = rng.random_range(0..x.len());
        // Long axes go through rounds of a tournament, or a network.
        if round >= 60 {
            x = x.iter().map(|n| *n.min(&2)).collect();
            x[axis] = rng.random_range(129..900);
        }
        let k = match round % 4 {
            3 => rng.random_range(1..=x[axis].min(9)),
            _ => rng.random_range(1..=x[axis]),
        };
        let largest = round % 2 == 0;
        let dtype = element_type(&mut rng);
        let model = single(Op::TopK(TopK { axis, k, largest }), &[typed(dtype, &x)]);
        let mut given = inputs(&model);
        let mut pool = vec![1.0, 2.0, 3.0];
        if dtype.is_float() {
            pool.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        }
        pool.shuffle(&mut rng);
        for i in 0..given[0].len() {
            given[0].set_f64(i, pool[rng.random_range(0..pool.len())]);
        }
        judge_on(&model, LayoutPolicy::Plain, given);
    }
}

/// Of all bits, so that each digit decides somewhere.
#[test]
fn most_elements_of_long_lines_are_ordered_by_digits() {
    let mut rng = Pcg64Mcg::seed_from_u64(11);
    for (round, dtype) in [DType::F32, DType::I64, DType::I32, DType::F32, DType::I64]
        .into_iter()
        .enumerate()
    {
        let fewest = if dtype == DType::I64 { 2048 } else { 512 };
        let n = fewest + rng.random_range(0..100);
        let (axis, x) = [(0, vec![n]), (1, vec![2, n])][round % 2].clone();
        for largest in [false, true] {
            let top = TopK {
                axis,
                k: n,
                largest,
            };
            let model = single(Op::TopK(top), &[typed(dtype, &x)]);
            let mut given = inputs(&model);
            for i in 0..given[0].len() {
                let bits = rng.random::<u64>() as i64;
                match dtype {
                    DType::F32 => {
                        let x = f64::from(f32::from_bits(bits as u32));
                        given[0].set_f64(i, [x, x, -0.0, 0.0][i % 4]);
                    }
                    DType::I32 => given[0].set_i64(i, i64::from(bits as i32)),
                    _ => given[0].set_i64(i, bits),
                }
            }
            judge_on(&model, LayoutPolicy::Plain, given);
        }
    }
}

/// What is spread for an operator on indices has no kernel of its own.
#[test]
fn spread_indices_are_read_from_before() {
    for from in [[3, 1, 1], [3, 4, 1], [1, 4, 5]] {
        let mut m = Model::new("spread", 0);
        let x = m.add_input("x", DType::F32, &[3, 4, 5]);
        let i = m.add_input("i", DType::F32, &from);
        let less = Op::Binary(Binary::Less);
        let zero = m.add_constant("zero", Tensor::from_slice(&[], &[0f32]));
        let index = m.add("less", less, &[i, zero]).unwrap();
        let index = m.add("index", Op::Cast(DType::I64), &[index]).unwrap();
        let shape = vec![3, 4, 5];
        let index = m
            .add("expand", Op::Expand(Expand { shape }), &[index])
            .unwrap();
        let gather = Op::GatherElements(GatherElements { axis: 1 });
        let y = m.add("y", gather, &[x, index]).unwrap();
        m.add_output(y);
        assert!(!kinds(&judge_both(&m)).contains(&"expand"));
        let scatter = Op::ScatterElements(ScatterElements {
            axis: 1,
            combine: Combine::Add,
        });
        let y = m.add("scattered", scatter, &[x, index, y]).unwrap();
        m.add_output(y);
        assert!(!kinds(&judge_both(&m)).contains(&"expand"));
        m.add_output(index);
        assert!(kinds(&judge_both(&m)).contains(&"expand"), "it is a result");
    }
}

#[test]
fn random_elements_are_accumulated() {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    for round in 0..48 {
        let x = shape(&mut rng, 1..5);
        let cumulative = Cumulative {
            kind: [CumulativeKind::Sum, CumulativeKind::Prod][round % 2],
            axis: rng.random_range(0..x.len()),
            exclusive: round / 2 % 2 == 0,
            reverse: round / 4 % 2 == 0,
        };
        let dtype = element_type(&mut rng);
        judge_both(&single(Op::Cumulative(cumulative), &[typed(dtype, &x)]));
    }
}

#[test]
fn true_elements_have_positions() {
    for n in [1, 2, 7, 100] {
        let model = single(Op::Positions, &[typed(DType::Bool, &[n])]);
        judge_both(&model);
        // None, all, and each third one.
        for is_true in [|_| false, |_| true, |i: usize| i.is_multiple_of(3)] {
            let mut given = inputs(&model);
            (0..n).for_each(|i| given[0].set_i64(i, i64::from(is_true(i))));
            judge_on(&model, LayoutPolicy::Plain, given);
        }
    }
}

#[test]
fn boxes_that_better_ones_overlap_are_suppressed() {
    let mut rng = Pcg64Mcg::seed_from_u64(9);
    for round in 0..60 {
        let (batch, classes) = (rng.random_range(1..3), rng.random_range(1..4));
        let count = [1, 2, 5, 16, 33][round % 5];
        let suppress = Suppress {
            threshold: [0.0, 0.3, 0.7, 1.0][round % 4],
            centred: round % 2 == 0,
            // None of the parts, the first one, or all of them.
            most: [1, 2, count + 1][round % 3],
        };
        let dtype = [DType::F32, DType::BF16, DType::F16][round / 3 % 3];
        let operands = [[batch, classes, count], [batch, count, 4]].map(|s| typed(dtype, &s));
        let model = single(Op::Suppress(suppress), &operands);
        let mut given = inputs(&model);
        // Equal scores, boxes that are out, none that is left, and boxes without an area.
        let mut pool = vec![0.25, 0.5, 0.75, f64::NEG_INFINITY];
        pool.rotate_left(round % 4);
        pool.truncate(1 + round / 4 % 4);
        for i in (0..given[0].len()).filter(|_| round % 7 > 0) {
            given[0].set_f64(i, pool[rng.random_range(0..pool.len())]);
        }
        for i in 0..given[1].len() {
            given[1].set_f64(i, f64::from(rng.random_range(0..6)));
        }
        judge_on(&model, LayoutPolicy::Plain, given);
    }
}

#[test]
fn random_points_are_sampled() {
    let mut rng = Pcg64Mcg::seed_from_u64(6);
    let interpolations = [
        Interpolation::Nearest,
        Interpolation::Linear,
        Interpolation::Largest,
        Interpolation::Cubic,
    ];
    for round in 0..72 {
        let outside = [Outside::Zeros, Outside::Border, Outside::Reflection][round / 4 % 3];
        let sample = GridSample {
            interpolation: interpolations[round % 4],
            outside,
            align_corners: round / 12 % 2 == 0,
        };
        let spatial = rng.random_range(1..4);
        let batch = rng.random_range(1..3);
        let mut size = || rng.random_range(1..6);
        let channels = 3 * size() - 2;
        let image = [
            vec![batch, channels],
            (0..spatial).map(|_| size()).collect(),
        ]
        .concat();
        let mut grid = vec![batch];
        grid.extend((0..spatial).map(|_| size()));
        grid.push(spatial);
        judge_both(&single(
            Op::GridSample(sample),
            &[input(&image), input(&grid)],
        ));
    }
}

#[test]
fn angles_and_bits() {
    use Unary::*;
    for u in [
        Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh,
    ] {
        judge_both(&single(Op::Unary(u), &[input(&[3, 17])]));
    }
    use Binary::{BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight};
    for b in [BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight] {
        for dtype in [DType::I8, DType::U8, DType::I32, DType::I64] {
            let model = single(Op::Binary(b), &[typed(dtype, &[9, 8]), typed(dtype, &[8])]);
            let mut given = inputs(&model);
            for i in 0..given[0].len() {
                given[0].set_i64(i, i as i64 * 37 - 90);
            }
            for i in 0..8 {
                let counts = [0, 1, 3, 7, 8, 31, 64, 2];
                given[1].set_i64(i, counts[i]);
            }
            judge_on(&model, LayoutPolicy::Plain, given);
        }
    }
}

/// Windows of a sequence, written as a gather: their places are computed, and no index is read.
#[test]
fn a_gather_of_windows_reads_no_indices() {
    let windows = |step: i64| {
        let at: Vec<i64> = (0..3)
            .flat_map(|i| (0..4).map(move |j| i * step + j - 8))
            .collect();
        let gather = Op::Gather(Gather { axis: 1 });
        let operands = [
            input(&[2, 8, 3]),
            Operand::Constant(Tensor::from_slice(&[3, 4], &at)),
        ];
        judge_both(&single(gather, &operands))
    };
    for step in [0, 1, 2] {
        let plan = windows(step);
        let read = plan.tasks.iter().map(|t| t.program.params.len());
        assert_eq!(read.collect::<Vec<_>>(), [2], "{plan}");
    }
}
