//! Convolutions and pooling, against their definition, a law or hand-computed
//! values.

mod applied;

use applied::{all, f32s, i64s, refused, run, whole};
use graph::ops::*;
use tensor::Tensor;

/// Convolution by its definition.
fn direct_conv(c: &Conv, x: &Tensor, w: &Tensor, bias: &Tensor, shape: &[usize]) -> Tensor {
    let rank = shape.len() - 2;
    let count = |s: &[usize]| s.iter().product::<usize>();
    let digits = |mut i: usize, s: &[usize]| {
        let mut at = vec![0; s.len()];
        for d in (0..s.len()).rev() {
            at[d] = i % s[d];
            i /= s[d];
        }
        at
    };
    let mut out = Tensor::zeros(x.dtype(), shape);
    for o in 0..out.len() {
        let at = digits(o, shape);
        let group = at[1] / (shape[1] / c.groups);
        let mut sum = bias.get_f64(at[1]);
        for k in 0..count(&w.shape()[1..]) {
            let tap = digits(k, &w.shape()[1..]);
            let mut source = at[0] * x.shape()[1] + group * w.shape()[1] + tap[0];
            let inside = (0..rank).all(|d| {
                let i = (at[2 + d] * c.strides[d] + tap[1 + d] * c.dilations[d]) as i64
                    - c.pads[d].0 as i64;
                source = source * x.shape()[2 + d] + i.max(0) as usize;
                (0..x.shape()[2 + d] as i64).contains(&i)
            });
            if inside {
                sum += x.get_f64(source) * w.get_f64(at[1] * count(&w.shape()[1..]) + k);
            }
        }
        out.set_f64(o, sum);
    }
    out
}

fn conv_cases() -> Vec<(Conv, Vec<usize>, Vec<usize>)> {
    let conv = |strides: &[usize], dilations: &[usize], pads: &[(usize, usize)], groups| Conv {
        strides: strides.to_vec(),
        dilations: dilations.to_vec(),
        pads: pads.to_vec(),
        groups,
    };
    vec![
        (conv(&[1], &[1], &[(0, 0)], 1), vec![2, 3, 7], vec![4, 3, 3]),
        (conv(&[2], &[2], &[(1, 3)], 1), vec![1, 2, 9], vec![3, 2, 3]),
        (
            conv(&[1, 1], &[1, 1], &[(1, 1), (1, 1)], 1),
            vec![2, 5, 9, 8],
            vec![6, 5, 3, 3],
        ),
        (
            conv(&[2, 3], &[1, 2], &[(0, 1), (2, 0)], 2),
            vec![1, 4, 8, 11],
            vec![6, 2, 3, 2],
        ),
        (
            conv(&[2, 2], &[1, 1], &[(1, 1), (1, 1)], 4),
            vec![2, 4, 6, 6],
            vec![4, 1, 3, 3],
        ),
        (
            conv(&[1, 1], &[1, 1], &[(0, 0), (0, 0)], 1),
            vec![1, 70, 12, 12],
            vec![66, 70, 1, 1],
        ),
        (
            conv(&[1, 2, 1], &[1, 1, 2], &[(1, 0), (0, 0), (1, 1)], 1),
            vec![1, 2, 4, 5, 6],
            vec![3, 2, 2, 3, 2],
        ),
    ]
}

#[test]
fn conv_is_its_definition() {
    for (seed, (c, x, w)) in conv_cases().into_iter().enumerate() {
        let (x, w) = (whole(&x, seed as u64), whole(&w, 100 + seed as u64));
        let bias = whole(&w.shape()[..1], 200);
        let out = run(Op::Conv(c.clone()), &[&x, &w, &bias]);
        assert_eq!(out, direct_conv(&c, &x, &w, &bias, out.shape()), "{c:?}");
    }
}

#[test]
fn conv_shapes_are_checked() {
    let (x, w) = (whole(&[1, 4, 5, 5], 0), whole(&[2, 3, 3, 3], 0));
    assert!(refused(Op::Conv(Conv::unit(2)), &[&x, &w]).contains("1 groups"));
    let w = whole(&[2, 4, 7, 7], 0);
    assert!(refused(Op::Conv(Conv::unit(2)), &[&x, &w]).contains("does not fit 5"));
    let w = whole(&[2, 4, 3, 3], 0);
    assert!(
        refused(Op::Conv(Conv::unit(2)), &[&x, &w, &whole(&[3], 0)]).contains("f32[2] is needed")
    );
    assert!(refused(Op::Conv(Conv::unit(1)), &[&x, &w]).contains("2 spatial axes"));
}

/// The transpose of a linear map A satisfies <A x, y> = <x, A' y>.
#[test]
fn conv_transpose_is_the_adjoint_of_conv() {
    let dot = |a: &Tensor, b: &Tensor| {
        (0..a.len())
            .map(|i| a.get_f64(i) * b.get_f64(i))
            .sum::<f64>()
    };
    for (seed, (c, x, w)) in conv_cases().into_iter().enumerate() {
        let (x, w) = (whole(&x, seed as u64), whole(&w, 100 + seed as u64));
        let ax = run(Op::Conv(c.clone()), &[&x, &w]);
        let y = whole(ax.shape(), 300);
        let output_padding = (0..c.strides.len())
            .map(|d| {
                let reach = (w.shape()[2 + d] - 1) * c.dilations[d] + 1;
                let padded = x.shape()[2 + d] + c.pads[d].0 + c.pads[d].1;
                (padded - reach) % c.strides[d]
            })
            .collect();
        let transpose = ConvTranspose {
            strides: c.strides.clone(),
            dilations: c.dilations.clone(),
            pads: c.pads.iter().map(|p| (p.0 as i64, p.1 as i64)).collect(),
            output_padding,
            groups: c.groups,
        };
        let aty = run(Op::ConvTranspose(transpose), &[&y, &w]);
        assert_eq!(aty.shape(), x.shape());
        assert_eq!(dot(&ax, &y), dot(&x, &aty), "{c:?}");
    }
}

#[test]
fn conv_transpose_by_hand() {
    let c = ConvTranspose {
        strides: vec![2],
        dilations: vec![1],
        pads: vec![(0, 0)],
        output_padding: vec![0],
        groups: 1,
    };
    let (x, w) = (
        f32s(&[1, 1, 2], &[1.0, 10.0]),
        f32s(&[1, 1, 3], &[1.0, 2.0, 3.0]),
    );
    let bias = f32s(&[1], &[100.0]);
    let want = f32s(&[1, 1, 5], &[101.0, 102.0, 113.0, 120.0, 130.0]);
    assert_eq!(run(Op::ConvTranspose(c.clone()), &[&x, &w, &bias]), want);
    let cut = ConvTranspose {
        pads: vec![(1, -1)],
        ..c
    };
    let want = f32s(&[1, 1, 5], &[2.0, 13.0, 20.0, 30.0, 0.0]);
    assert_eq!(run(Op::ConvTranspose(cut), &[&x, &w]), want);
}

fn pool2(
    kind: PoolKind,
    kernel: [usize; 2],
    strides: [usize; 2],
    pads: [(usize, usize); 2],
    ceil_mode: bool,
) -> Pool {
    Pool {
        kind,
        kernel: kernel.to_vec(),
        strides: strides.to_vec(),
        dilations: vec![1, 1],
        pads: pads.to_vec(),
        ceil_mode,
    }
}

#[test]
fn max_pool_with_indices() {
    let x = f32s(
        &[1, 1, 3, 3],
        &[1.0, 2.0, 3.0, 9.0, 5.0, 6.0, 7.0, 8.0, 4.0],
    );
    let kind = PoolKind::Max {
        indices: Some(IndexOrder::RowMajor),
    };
    let out = all(
        Op::Pool(pool2(kind, [2, 2], [1, 1], [(0, 0); 2], false)),
        &[&x],
    );
    assert_eq!(out[0], f32s(&[1, 1, 2, 2], &[9.0, 6.0, 9.0, 8.0]));
    assert_eq!(out[1], i64s(&[1, 1, 2, 2], &[3, 5, 3, 7]));
    let kind = PoolKind::Max {
        indices: Some(IndexOrder::ColumnMajor),
    };
    let out = all(
        Op::Pool(pool2(kind, [2, 2], [1, 1], [(0, 0); 2], false)),
        &[&x],
    );
    assert_eq!(out[1], i64s(&[1, 1, 2, 2], &[1, 7, 1, 5]));
    // Padding never wins, even against negative numbers.
    let negative = run(Op::Unary(Unary::Neg), &[&x]);
    let kind = PoolKind::Max { indices: None };
    let out = run(
        Op::Pool(pool2(kind, [3, 3], [2, 2], [(1, 1); 2], false)),
        &[&negative],
    );
    assert_eq!(out, f32s(&[1, 1, 2, 2], &[-1.0, -2.0, -5.0, -4.0]));
    // What is not a number wins wherever it stands.
    for values in [[f32::NAN, 1.0], [1.0, f32::NAN]] {
        let op = Op::Pool(pool2(kind, [1, 2], [1, 1], [(0, 0); 2], false));
        let out = run(op, &[&f32s(&[1, 1, 1, 2], &values)]);
        assert!(out.as_slice::<f32>()[0].is_nan(), "{values:?}");
    }
    let bytes = Tensor::from_slice(&[1, 1, 1, 3], &[-7i8, -9, -8]);
    let out = run(
        Op::Pool(pool2(kind, [1, 2], [1, 1], [(0, 0); 2], false)),
        &[&bytes],
    );
    assert_eq!(out.as_slice::<i8>(), [-7, -8]);
}

#[test]
fn average_pool_divisors() {
    let x = f32s(&[1, 1, 1, 4], &[2.0, 4.0, 6.0, 8.0]);
    let pool = |count_include_pad, pads, ceil| {
        let kind = PoolKind::Average { count_include_pad };
        let pool = pool2(kind, [1, 3], [1, 2], [(0, 0), pads], ceil);
        run(Op::Pool(pool), &[&x]).as_slice::<f32>().to_vec()
    };
    assert_eq!(pool(false, (1, 1), false), [3.0, 6.0]);
    assert_eq!(pool(true, (1, 1), false), [2.0, 6.0]);
    // The overhang of a rounded-up window never counts.
    assert_eq!(pool(false, (0, 0), true), [4.0, 7.0]);
    assert_eq!(pool(true, (0, 0), true), [4.0, 7.0]);
    assert_eq!(pool(true, (0, 0), false), [4.0]);
}

#[test]
fn ceil_mode_drops_windows_that_start_in_the_end_padding() {
    let x = whole(&[1, 1, 1, 2], 0);
    let kind = PoolKind::Max { indices: None };
    let out = run(
        Op::Pool(pool2(kind, [1, 1], [1, 2], [(0, 0), (0, 1)], true)),
        &[&x],
    );
    assert_eq!(out.shape(), [1, 1, 1, 1]);
}

#[test]
fn columns_are_added_where_their_windows_lie() {
    let columns = |image: usize, stride: usize, pads: (usize, usize)| {
        Op::Col2Im(Col2Im {
            image: vec![image],
            window: vec![2],
            strides: vec![stride],
            dilations: vec![1],
            pads: vec![pads],
        })
    };
    let x = f32s(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let image = |v: &[f32]| f32s(&[1, 1, v.len()], v);
    let overlapping = columns(3, 1, (0, 0));
    assert_eq!(run(overlapping, &[&x]), image(&[1.0, 5.0, 4.0]));
    let apart = columns(5, 2, (0, 0));
    assert_eq!(run(apart, &[&x]), image(&[1.0, 3.0, 2.0, 4.0, 0.0]));
    let cut = columns(1, 1, (1, 1));
    assert_eq!(run(cut, &[&x]), image(&[5.0]));
    let why = refused(columns(4, 1, (0, 0)), &[&x]);
    assert!(why.contains("does not fit [3] windows of 2"), "{why}");
    // Products beyond any number.
    let huge = Op::Col2Im(Col2Im {
        image: vec![1 << 19; 4],
        window: vec![1 << 19; 4],
        strides: vec![1; 4],
        dilations: vec![1; 4],
        pads: vec![(0, 0); 4],
    });
    let why = refused(huge, &[&f32s(&[1, 4, 1], &[0.0; 4])]);
    assert!(why.contains("does not fit"), "{why}");
}
