//! A convolution and its gradients by im2row and a product, by ConvGEMM, and by Winograd, and by the definition in f64.
//!
//! Images are `[n, c, h, w]` and weights `[k, c, r, r]` with odd `r`. The stride is 1, and results are as large as images.

/// The shapes that a convolution is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shapes {
    pub image: [usize; 4],
    pub weights: [usize; 4],
}

impl Shapes {
    fn pixels(&self) -> usize {
        self.image[2] * self.image[3]
    }

    /// Terms of each result.
    fn terms(&self) -> usize {
        self.weights[1..].iter().product()
    }

    /// Where in the image a term of a result lies; none in the border.
    fn source(&self, n: usize, pixel: usize, term: usize) -> Option<usize> {
        let ([_, c, h, w], r) = (self.image, self.weights[2]);
        let (channel, tap) = (term / (r * r), term % (r * r));
        let y = (pixel / w + tap / r).checked_sub(r / 2)?;
        let x = (pixel % w + tap % r).checked_sub(r / 2)?;
        (y < h && x < w).then_some(((n * c + channel) * h + y) * w + x)
    }

    fn result(&self, n: usize, k: usize, pixel: usize) -> usize {
        (n * self.weights[0] + k) * self.pixels() + pixel
    }

    pub fn inputs(&self) -> usize {
        self.image.iter().product()
    }

    pub fn parameters(&self) -> usize {
        self.weights.iter().product()
    }

    pub fn results(&self) -> usize {
        self.image[0] * self.weights[0] * self.pixels()
    }
}

/// What a forward pass leaves for the backward pass of the same algorithm.
pub enum Saved {
    /// Rows of the windows of the images.
    Rows(Vec<f32>),
    Nothing,
    /// Transformed tiles of the images.
    Tiles(Vec<[f32; 16]>),
}

/// Gradients of the image and of the weights.
pub type Gradients = (Vec<f32>, Vec<f32>);
pub type Forward = fn(&Shapes, &[f32], &[f32]) -> (Vec<f32>, Saved);
pub type Backward = fn(&Shapes, &[f32], &[f32], &[f32], Saved) -> Gradients;

/// One algorithm.
pub struct Convolution {
    pub forward: Forward,
    pub backward: Backward,
}

pub const IM2ROW: Convolution = Convolution {
    forward: im2row,
    backward: im2row_back,
};
pub const CONVGEMM: Convolution = Convolution {
    forward: convgemm,
    backward: convgemm_back,
};
pub const WINOGRAD: Convolution = Convolution {
    forward: winograd,
    backward: winograd_back,
};

fn im2row(s: &Shapes, x: &[f32], w: &[f32]) -> (Vec<f32>, Saved) {
    let (pixels, terms) = (s.pixels(), s.terms());
    let mut rows = vec![0.0; s.image[0] * pixels * terms];
    for (at, v) in rows.iter_mut().enumerate() {
        let (row, term) = (at / terms, at % terms);
        let source = s.source(row / pixels, row % pixels, term);
        *v = source.map_or(0.0, |i| x[i]);
    }
    let mut y = vec![0.0; s.results()];
    for (row, values) in rows.chunks(terms).enumerate() {
        for (k, weights) in w.chunks(terms).enumerate() {
            let products = values.iter().zip(weights).map(|(a, b)| a * b);
            y[s.result(row / pixels, k, row % pixels)] = products.sum();
        }
    }
    (y, Saved::Rows(rows))
}

fn im2row_back(s: &Shapes, _: &[f32], w: &[f32], dy: &[f32], saved: Saved) -> Gradients {
    let Saved::Rows(rows) = saved else {
        panic!("im2row got what another algorithm saved");
    };
    let (pixels, terms) = (s.pixels(), s.terms());
    let (mut dx, mut dw) = (vec![0.0; s.inputs()], vec![0.0; s.parameters()]);
    for (row, values) in rows.chunks(terms).enumerate() {
        let (n, pixel) = (row / pixels, row % pixels);
        let mut gradient = vec![0.0; terms];
        for (k, weights) in w.chunks(terms).enumerate() {
            let g = dy[s.result(n, k, pixel)];
            for term in 0..terms {
                dw[k * terms + term] += g * values[term];
                gradient[term] += g * weights[term];
            }
        }
        for (term, g) in gradient.into_iter().enumerate() {
            if let Some(i) = s.source(n, pixel, term) {
                dx[i] += g;
            }
        }
    }
    (dx, dw)
}

/// The product whose rows are gathered while it runs.
fn convgemm(s: &Shapes, x: &[f32], w: &[f32]) -> (Vec<f32>, Saved) {
    let terms = s.terms();
    let mut y = vec![0.0; s.results()];
    for n in 0..s.image[0] {
        for term in 0..terms {
            for pixel in 0..s.pixels() {
                let value = s.source(n, pixel, term).map_or(0.0, |i| x[i]);
                for k in 0..s.weights[0] {
                    y[s.result(n, k, pixel)] += value * w[k * terms + term];
                }
            }
        }
    }
    (y, Saved::Nothing)
}

fn convgemm_back(s: &Shapes, x: &[f32], w: &[f32], dy: &[f32], saved: Saved) -> Gradients {
    assert!(
        matches!(saved, Saved::Nothing),
        "ConvGEMM got what another algorithm saved"
    );
    let terms = s.terms();
    let (mut dx, mut dw) = (vec![0.0; s.inputs()], vec![0.0; s.parameters()]);
    for n in 0..s.image[0] {
        for term in 0..terms {
            for pixel in 0..s.pixels() {
                let Some(i) = s.source(n, pixel, term) else {
                    continue;
                };
                for k in 0..s.weights[0] {
                    let g = dy[s.result(n, k, pixel)];
                    dw[k * terms + term] += g * x[i];
                    dx[i] += g * w[k * terms + term];
                }
            }
        }
    }
    (dx, dw)
}

/// F(2 x 2, 3 x 3) of Lavin and Gray (*Fast algorithms for convolutional neural networks*, section 4.1).
const B: [[f32; 4]; 4] = [
    [1.0, 0.0, 0.0, 0.0],
    [0.0, 1.0, -1.0, 1.0],
    [-1.0, 1.0, 1.0, 0.0],
    [0.0, 0.0, 0.0, -1.0],
];
const G: [[f32; 3]; 4] = [
    [1.0, 0.0, 0.0],
    [0.5, 0.5, 0.5],
    [0.5, -0.5, 0.5],
    [0.0, 0.0, 1.0],
];
const A: [[f32; 2]; 4] = [[1.0, 0.0], [1.0, 1.0], [1.0, -1.0], [0.0, -1.0]];

/// `m x m^T` for a square `x` in rows.
fn around<const R: usize, const C: usize>(m: &[[f32; C]; R], x: &[f32]) -> Vec<f32> {
    let of = |at: usize| {
        let (i, j) = (at / R, at % R);
        let terms = (0..C * C).map(|t| m[i][t / C] * x[t] * m[j][t % C]);
        terms.sum()
    };
    (0..R * R).map(of).collect()
}

fn transposed<const R: usize, const C: usize>(m: &[[f32; C]; R]) -> [[f32; R]; C] {
    std::array::from_fn(|j| std::array::from_fn(|i| m[i][j]))
}

fn tile(values: Vec<f32>) -> [f32; 16] {
    values.try_into().expect("a tile has 16 values")
}

/// Tiles of 2 x 2 results in an image.
fn tiles(s: &Shapes) -> (usize, usize) {
    (s.image[2].div_ceil(2), s.image[3].div_ceil(2))
}

/// Where the values of a tile lie that begins at a row and a column, in a plane of an image or of results.
fn of_plane(
    s: &Shapes,
    (row, column): (usize, usize),
    size: usize,
    border: usize,
) -> Vec<Option<usize>> {
    let [_, _, h, w] = s.image;
    let of = |at: usize| {
        let y = (row + at / size).checked_sub(border)?;
        let x = (column + at % size).checked_sub(border)?;
        (y < h && x < w).then_some(y * w + x)
    };
    (0..size * size).map(of).collect()
}

/// Each tile: its image and where it begins.
fn places(s: &Shapes) -> impl Iterator<Item = (usize, (usize, usize))> {
    let ((high, wide), images) = (tiles(s), s.image[0]);
    let of = move |n| (0..high * wide).map(move |t| (n, (t / wide * 2, t % wide * 2)));
    (0..images).flat_map(of)
}

fn filters(w: &[f32]) -> Vec<[f32; 16]> {
    w.chunks(9).map(|g| tile(around(&G, g))).collect()
}

fn winograd(s: &Shapes, x: &[f32], w: &[f32]) -> (Vec<f32>, Saved) {
    let ([_, c, _, _], k) = (s.image, s.weights[0]);
    let u = filters(w);
    let (mut y, mut v) = (vec![0.0; s.results()], Vec::new());
    for (n, at) in places(s) {
        let first = v.len();
        for channel in 0..c {
            let plane = (n * c + channel) * s.pixels();
            let from = of_plane(s, at, 4, 1).into_iter();
            let values: Vec<f32> = from.map(|i| i.map_or(0.0, |i| x[plane + i])).collect();
            v.push(tile(around(&transposed(&B), &values)));
        }
        for map in 0..k {
            let mut m = [0.0; 16];
            for channel in 0..c {
                for (i, m) in m.iter_mut().enumerate() {
                    *m += u[map * c + channel][i] * v[first + channel][i];
                }
            }
            let results = around(&transposed(&A), &m);
            for (to, r) in of_plane(s, at, 2, 0).into_iter().zip(results) {
                if let Some(pixel) = to {
                    y[s.result(n, map, pixel)] = r;
                }
            }
        }
    }
    (y, Saved::Tiles(v))
}

/// The transposes of the forward transforms, in the opposite order.
fn winograd_back(s: &Shapes, _: &[f32], w: &[f32], dy: &[f32], saved: Saved) -> Gradients {
    let Saved::Tiles(v) = saved else {
        panic!("Winograd got what another algorithm saved");
    };
    let ([_, c, _, _], k) = (s.image, s.weights[0]);
    let u = filters(w);
    let mut du = vec![[0.0; 16]; u.len()];
    let mut dx = vec![0.0; s.inputs()];
    for ((n, at), v) in places(s).zip(v.chunks(c)) {
        let mut dv = vec![[0.0; 16]; c];
        for map in 0..k {
            let from = of_plane(s, at, 2, 0).into_iter();
            let values: Vec<f32> = from
                .map(|i| i.map_or(0.0, |i| dy[s.result(n, map, i)]))
                .collect();
            let dm = tile(around(&A, &values));
            for channel in 0..c {
                for i in 0..16 {
                    du[map * c + channel][i] += dm[i] * v[channel][i];
                    dv[channel][i] += dm[i] * u[map * c + channel][i];
                }
            }
        }
        for (channel, dv) in dv.iter().enumerate() {
            let plane = (n * c + channel) * s.pixels();
            let gradient = around(&B, dv);
            for (to, g) in of_plane(s, at, 4, 1).into_iter().zip(gradient) {
                if let Some(i) = to {
                    dx[plane + i] += g;
                }
            }
        }
    }
    let dw = du.iter().flat_map(|du| around(&transposed(&G), du));
    (dx, dw.collect())
}

/// Results, and gradients of the image and of the weights, by the definition.
pub fn by_definition(s: &Shapes, x: &[f32], w: &[f32], dy: &[f32]) -> [Vec<f64>; 3] {
    let [_, c, h, width] = s.image.map(|n| n as isize);
    let [maps, _, r, _] = s.weights.map(|n| n as isize);
    let mut found = [s.results(), s.inputs(), s.parameters()].map(|n| vec![0.0; n]);
    let [y, dx, dw] = &mut found;
    for (to, y) in y.iter_mut().enumerate() {
        let at = to as isize;
        let (column, row) = (at % width, at / width % h);
        let (map, n) = (at / (width * h) % maps, at / (width * h * maps));
        for (channel, i, j) in (0..c * r * r).map(|t| (t / (r * r), t / r % r, t % r)) {
            let (i0, j0) = (row + i - r / 2, column + j - r / 2);
            if !(0..h).contains(&i0) || !(0..width).contains(&j0) {
                continue;
            }
            let from = (((n * c + channel) * h + i0) * width + j0) as usize;
            let weight = (((map * c + channel) * r + i) * r + j) as usize;
            *y += f64::from(x[from]) * f64::from(w[weight]);
            dx[from] += f64::from(dy[to]) * f64::from(w[weight]);
            dw[weight] += f64::from(dy[to]) * f64::from(x[from]);
        }
    }
    found
}
