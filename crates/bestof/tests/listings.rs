//! The paper's two listings.

use bestof::{BestOf, Options, Ticket};

type Shape = [usize; 4];
type Transpose = fn(&[f32], Shape, &mut [f32]);

/// Listing 1: a transposition 0231 of a 4-D array. The loops are those of the input.
fn by_input(x: &[f32], [n, c, h, w]: Shape, y: &mut [f32]) {
    let mut i = 0;
    for a in 0..n {
        for b in 0..c {
            for p in 0..h * w {
                y[(a * h * w + p) * c + b] = x[i];
                i += 1;
            }
        }
    }
}

/// The loops are those of the output.
fn by_output(x: &[f32], [n, c, h, w]: Shape, y: &mut [f32]) {
    let mut i = 0;
    for a in 0..n {
        for p in 0..h * w {
            for b in 0..c {
                y[i] = x[(a * c + b) * h * w + p];
                i += 1;
            }
        }
    }
}

/// What stands for a library's routine: iterators.
fn library(x: &[f32], [n, c, h, w]: Shape, y: &mut [f32]) {
    for (image, out) in x.chunks(c * h * w).zip(y.chunks_mut(c * h * w)).take(n) {
        for (p, pixel) in out.chunks_mut(c).enumerate() {
            for (b, v) in pixel.iter_mut().enumerate() {
                *v = image[b * h * w + p];
            }
        }
    }
}

#[test]
fn a_transposition_is_called_like_the_function_it_replaces() {
    let alternatives: [(&str, Transpose); 3] = [
        ("input order", by_input),
        ("output order", by_output),
        ("library", library),
    ];
    let selector = BestOf::new("transpose_0231", alternatives, Options::default()).unwrap();
    let transpose =
        |x: &[f32], shape: Shape, y: &mut [f32]| selector.call(&shape, |f| f(x, shape, y));
    for shape in [[2, 3, 4, 5], [1, 16, 8, 8]] {
        let size = shape.iter().product();
        let x: Vec<f32> = (0..size).map(|i| i as f32).collect();
        let mut expected = vec![0.0; size];
        by_input(&x, shape, &mut expected);
        for _ in 0..33 {
            let mut y = vec![0.0; size];
            transpose(&x, shape, &mut y);
            assert_eq!(y, expected);
        }
        assert!(selector.decision(&shape).is_some());
    }
    assert_eq!(selector.report().keys.len(), 2);
}

/// Listing 2: forward and backward of a dense layer, with what forward leaves for backward.
struct Layer {
    forward: Forward,
    backward: Backward,
}

/// What forward leaves for backward.
type Saved = Option<Vec<f32>>;
type Forward = fn(&[f32], &[f32]) -> (f32, Saved);
type Backward = fn(&[f32], &[f32], Saved) -> Vec<f32>;

fn products(x: &[f32], w: &[f32]) -> Vec<f32> {
    x.iter().zip(w).map(|(a, b)| a * b).collect()
}

fn forward_saves(x: &[f32], w: &[f32]) -> (f32, Option<Vec<f32>>) {
    let saved = products(x, w);
    (saved.iter().sum(), Some(saved))
}

fn forward_forgets(x: &[f32], w: &[f32]) -> (f32, Option<Vec<f32>>) {
    (products(x, w).iter().sum(), None)
}

fn backward_uses(_: &[f32], _: &[f32], saved: Option<Vec<f32>>) -> Vec<f32> {
    saved.expect("its own forward saved it")
}

fn backward_computes(x: &[f32], w: &[f32], saved: Option<Vec<f32>>) -> Vec<f32> {
    assert!(saved.is_none(), "its own forward saves nothing");
    products(x, w)
}

#[test]
fn a_group_is_called_with_the_stages_number() {
    let saves = Layer {
        forward: forward_saves,
        backward: backward_uses,
    };
    let forgets = Layer {
        forward: forward_forgets,
        backward: backward_computes,
    };
    let named = [("im2row", saves), ("convgemm", forgets)];
    let layer = BestOf::new("layer", named, Options::default())
        .unwrap()
        .stages(2)
        .unwrap();
    let (x, w) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]);
    let key = (x.len(), w.len());
    for _ in 0..40 {
        let ((sum, saved), mut ticket): (_, Ticket) = layer.first(&key, |f| (f.forward)(&x, &w));
        assert_eq!(sum, 32.0);
        let gradient = layer.stage(1, &mut ticket, |f| (f.backward)(&x, &w, saved));
        assert_eq!(gradient, [4.0, 10.0, 18.0]);
    }
    assert!(layer.decision(&key).is_some());
}
