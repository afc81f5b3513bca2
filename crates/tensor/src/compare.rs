//! How far a result is from what was expected.

use crate::Tensor;

/// The difference between a result and the expected tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// L2 norm of the difference over the L2 norm of the expected values
    /// (over 1 when those are all zero).
    pub rel_l2: f64,
    /// Largest absolute element error over the root mean square of the expected values.
    pub max_over_rms: f64,
    /// Largest absolute element error.
    pub max_abs: f64,
    /// Row-major index of that element.
    pub worst: usize,
    /// Elements where exactly one side is NaN, or infinities differ.
    pub non_finite: usize,
}

impl Difference {
    pub fn within(&self, rel_l2: f64) -> bool {
        self.non_finite == 0 && self.rel_l2 <= rel_l2
    }
}

/// Compares element-wise; NaN equals NaN and an infinity equals itself.
///
/// # Panics
/// If shapes differ.
pub fn compare(actual: &Tensor, expected: &Tensor) -> Difference {
    assert_eq!(actual.shape(), expected.shape());
    let (mut err2, mut ref2, mut max_abs, mut worst, mut non_finite) = (0.0, 0.0, 0.0, 0, 0);
    for i in 0..expected.len() {
        let (a, e) = (actual.get_f64(i), expected.get_f64(i));
        if !a.is_finite() || !e.is_finite() {
            if !(a == e || (a.is_nan() && e.is_nan())) {
                non_finite += 1;
                worst = i;
            }
            continue;
        }
        let d = (a - e).abs();
        err2 += d * d;
        ref2 += e * e;
        if d > max_abs {
            (max_abs, worst) = (d, i);
        }
    }
    let rms = (ref2 / expected.len().max(1) as f64).sqrt();
    Difference {
        rel_l2: err2.sqrt() / if ref2 > 0.0 { ref2.sqrt() } else { 1.0 },
        max_over_rms: max_abs / if rms > 0.0 { rms } else { 1.0 },
        max_abs,
        worst,
        non_finite,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_and_non_finite_values() {
        let e = Tensor::from_slice(&[4], &[3.0f32, 4.0, 0.0, f32::INFINITY]);
        let a = Tensor::from_slice(&[4], &[3.0f32, 4.5, 0.0, f32::INFINITY]);
        let d = compare(&a, &e);
        assert_eq!((d.rel_l2, d.worst, d.non_finite), (0.1, 1, 0));
        assert_eq!(d.max_over_rms, 0.5 / (25.0f64 / 4.0).sqrt());
        let n = Tensor::from_slice(&[4], &[3.0f32, 4.0, f32::NAN, f32::INFINITY]);
        assert!(!compare(&n, &e).within(1.0));
        assert!(compare(&n, &n).within(0.0));
    }
}
