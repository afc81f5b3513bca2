//! Transpositions of 4-D arrays: 0231 makes [n, h, w, c] of [n, c, h, w]; 0312 the reverse of it;
//! 1023 exchanges the first two axes.

use bestof::{BestOf, Options, Unfit};
use ndarray::{ArrayView, ArrayViewMut, Ix4};

type Shape = [usize; 4];
type Axes = [usize; 4];
type Transposition = fn(Axes, Shape, &[f32], &mut [f32]);

/// Distances in memory of a row-major array's axes.
fn strides(shape: Shape) -> Shape {
    let [_, b, c, d] = shape;
    [b * c * d, c * d, d, 1]
}

/// Loops over `shape` and gives each pair of offsets, with strides of two arrays.
fn walk(shape: Shape, first: Shape, second: Shape, mut pair: impl FnMut(usize, usize)) {
    for a in 0..shape[0] {
        for b in 0..shape[1] {
            for c in 0..shape[2] {
                let at = |s: Shape| a * s[0] + b * s[1] + c * s[2];
                let (i, j) = (at(first), at(second));
                for d in 0..shape[3] {
                    pair(i + d * first[3], j + d * second[3]);
                }
            }
        }
    }
}

/// The loops are those of the input: reads are contiguous.
fn by_input(axes: Axes, shape: Shape, x: &[f32], y: &mut [f32]) {
    let out = strides(axes.map(|a| shape[a]));
    let mut to = [0; 4];
    for (position, axis) in axes.into_iter().enumerate() {
        to[axis] = out[position];
    }
    walk(shape, strides(shape), to, |i, j| y[j] = x[i]);
}

/// The loops are those of the output: writes are contiguous.
fn by_output(axes: Axes, shape: Shape, x: &[f32], y: &mut [f32]) {
    let from = strides(shape);
    let made = axes.map(|a| shape[a]);
    walk(made, axes.map(|a| from[a]), strides(made), |i, j| {
        y[j] = x[i]
    });
}

fn by_ndarray(axes: Axes, shape: Shape, x: &[f32], y: &mut [f32]) {
    let made = axes.map(|a| shape[a]);
    let x = ArrayView::<f32, Ix4>::from_shape(shape, x).expect("x has this shape");
    let mut y = ArrayViewMut::<f32, Ix4>::from_shape(made, y).expect("y has the permuted shape");
    y.assign(&x.permuted_axes(axes));
}

pub fn run() -> Result<(), Unfit> {
    let alternatives: [(&str, Transposition); 3] = [
        ("input order", by_input),
        ("output order", by_output),
        ("ndarray", by_ndarray),
    ];
    for (name, axes) in [
        ("0231", [0, 2, 3, 1]),
        ("0312", [0, 3, 1, 2]),
        ("1023", [1, 0, 2, 3]),
    ] {
        let selector = BestOf::new("transposition", alternatives, Options::default())?;
        let shapes = [
            [64, 3, 32, 32],
            [8, 64, 32, 32],
            [8, 512, 7, 7],
            [2, 64, 112, 112],
        ];
        let title = format!("Transposition {name} of [a, b, c, d]");
        super::compare(&title, &shapes, &alternatives, &selector, |shape| {
            let shape = *shape;
            let size = shape.iter().product();
            let x: Vec<f32> = (0..size).map(|i| i as f32).collect();
            let mut y = vec![0.0; size];
            Box::new(move |transpose| {
                transpose(axes, shape, &x, &mut y);
                assert_eq!(y[size - 1], x[size - 1]);
            })
        });
    }
    Ok(())
}
