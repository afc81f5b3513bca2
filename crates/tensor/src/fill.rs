//! Seeded fills: the same seed gives the same values on every machine.

use crate::{DType, Tensor};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What a tensor is filled with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Uniform in [lo, hi); integers and bool draw from the whole numbers in it.
    Uniform { lo: f64, hi: f64 },
    /// Whole numbers in [lo, hi], exact in every element type that holds them.
    Integers { lo: i64, hi: i64 },
    /// Normal with mean 0 (Box-Muller); floats only.
    Normal { std: f64 },
}

/// Fills `t` in row-major order from `seed`.
pub fn fill(t: &mut Tensor, kind: Fill, seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    for i in 0..t.len() {
        let v = match kind {
            Fill::Uniform { lo, hi } if t.dtype().is_float() => rng.random_range(lo..hi),
            Fill::Uniform { lo, hi } => rng.random_range(lo..hi).floor(),
            Fill::Integers { lo, hi } => rng.random_range(lo..=hi) as f64,
            Fill::Normal { std } => {
                let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
                std * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
            }
        };
        t.set_f64(i, v);
    }
}

/// A new tensor, filled.
pub fn fill_tensor(dtype: DType, shape: &[usize], kind: Fill, seed: u64) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape);
    fill(&mut t, kind, seed);
    t
}
