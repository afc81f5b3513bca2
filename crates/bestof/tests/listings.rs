//! The paper's two listings.

mod convolution;

use bestof::{BestOf, Options, Ticket};
use convolution::{
    CONVGEMM, Convolution, Gradients, IM2ROW, Saved, Shapes, WINOGRAD, by_definition,
};
use std::collections::BTreeSet;

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

/// One forward and backward pass of a layer.
struct Pass<'a> {
    shapes: Shapes,
    x: &'a [f32],
    w: &'a [f32],
    dy: &'a [f32],
    ticket: Option<Ticket>,
    y: Vec<f32>,
    saved: Option<Saved>,
    gradients: Gradients,
}

/// Listing 2: the function that replaces the convolution, with the stage's number first.
fn convolution(stage: usize, selector: &BestOf<Shapes, Convolution>, pass: &mut Pass<'_>) {
    let s = pass.shapes;
    match stage {
        0 => {
            let forward = |f: &Convolution| (f.forward)(&s, pass.x, pass.w);
            let ((y, saved), ticket) = selector.first(&s, forward);
            (pass.y, pass.saved, pass.ticket) = (y, Some(saved), Some(ticket));
        }
        stage => {
            let saved = pass.saved.take().expect("stage 0 ran");
            let backward = |f: &Convolution| (f.backward)(&s, pass.x, pass.w, pass.dy, saved);
            let ticket = pass.ticket.as_mut().expect("stage 0 ran");
            pass.gradients = selector.stage(stage, ticket, backward);
        }
    }
}

/// Values from -1 to 1 that differ by their seed.
fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn assert_near(what: &str, found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!(
            (f64::from(*f) - e).abs() < 1e-4 * (1.0 + e.abs()),
            "{what}: {f} for {e}"
        );
    }
}

fn shapes(image: [usize; 4], [k, r]: [usize; 2]) -> Shapes {
    Shapes {
        image,
        weights: [k, image[1], r, r],
    }
}

fn named() -> [(&'static str, Convolution); 3] {
    [
        ("im2row", IM2ROW),
        ("convgemm", CONVGEMM),
        ("winograd", WINOGRAD),
    ]
}

#[test]
fn all_alternatives_of_the_group_agree_with_the_definition() {
    for s in [shapes([2, 3, 6, 8], [4, 3]), shapes([1, 2, 5, 7], [3, 3])] {
        let (x, w) = (values(s.inputs(), 1), values(s.parameters(), 2));
        let dy = values(s.results(), 3);
        let [y, dx, dw] = by_definition(&s, &x, &w, &dy);
        for (name, f) in named() {
            let (found, saved) = (f.forward)(&s, &x, &w);
            assert_near(name, &found, &y);
            let (of_image, of_weights) = (f.backward)(&s, &x, &w, &dy, saved);
            assert_near(name, &of_image, &dx);
            assert_near(name, &of_weights, &dw);
        }
    }
}

/// Backward refuses what another algorithm's forward saved, so each alternative gets its own.
#[test]
fn a_group_is_called_with_the_stages_number() {
    let selector = BestOf::new("convolution", named(), Options::default());
    let selector = selector.unwrap().stages(2).unwrap();
    let selector = selector.only_if("winograd", |s: &Shapes| s.weights[2] == 3);
    let convolution = |stage, pass: &mut Pass<'_>| convolution(stage, &selector, pass);
    for s in [
        shapes([2, 3, 6, 8], [4, 3]),
        shapes([1, 2, 5, 7], [3, 3]),
        shapes([1, 4, 6, 6], [4, 1]),
    ] {
        let w = values(s.parameters(), 2);
        let dy = values(s.results(), 3);
        // Two equal layers share the selector, and the second one runs within the first.
        let images = [4, 5].map(|seed| values(s.inputs(), seed));
        let expected = [0, 1].map(|i| by_definition(&s, &images[i], &w, &dy));
        let mut used = BTreeSet::new();
        for _ in 0..40 {
            let mut passes = [0, 1].map(|i| Pass {
                shapes: s,
                x: &images[i],
                w: &w,
                dy: &dy,
                ticket: None,
                y: vec![],
                saved: None,
                gradients: Gradients::default(),
            });
            passes.iter_mut().for_each(|p| convolution(0, p));
            passes.iter_mut().rev().for_each(|p| convolution(1, p));
            for (pass, [y, dx, dw]) in passes.iter().zip(&expected) {
                let ticket = pass.ticket.as_ref().unwrap();
                let name = selector.alternative_of(ticket);
                used.insert(name.to_string());
                assert_near(name, &pass.y, y);
                assert_near(name, &pass.gradients.0, dx);
                assert_near(name, &pass.gradients.1, dw);
            }
        }
        let all = ["convgemm", "im2row", "winograd"];
        let applicable = if s.weights[2] == 3 {
            &all[..]
        } else {
            &all[..2]
        };
        assert!(used.iter().eq(applicable), "{used:?}");
        let decided = selector.decision(&s).unwrap();
        assert!(applicable.contains(&decided), "{decided}");
    }
    assert_eq!(selector.report().keys.len(), 3);
}
