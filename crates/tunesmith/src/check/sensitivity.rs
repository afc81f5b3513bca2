//! How far a result moves if what it is computed of moves a little.
//!
//! A gradient may be the small difference of large terms, or 0 but for rounding, as behind a batch
//! normalisation. Its own size says nothing of the error that it may have. So the reference is computed again of
//! operands that are moved by a small share of themselves: an error that is no larger than what this
//! makes of the result is no error of the kernel.

use super::LayerAgreement;
use graph::EvalError;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::sync::Arc;
use tensor::{Tensor, compare};

/// Results of operands that are moved at random. One of them may stay near by chance.
const DRAWS: u64 = 2;
/// How many times as far as the farthest of these a result may be.
const SLACK: f64 = 4.0;

/// The largest errors that a result may have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    rel_err: f64,
    max_over_rms: f64,
}

impl Spread {
    /// Of a reference that `moved` computes anew in each draw, given what moves tensors.
    ///
    /// # Errors
    /// As `moved`.
    pub fn of(
        expected: &[Arc<Tensor>],
        share: f64,
        mut moved: impl FnMut(&mut dyn FnMut(&Tensor) -> Tensor) -> Result<Vec<Arc<Tensor>>, EvalError>,
    ) -> Result<Vec<Spread>, EvalError> {
        let mut found = vec![Spread::default(); expected.len()];
        for seed in 1..=DRAWS {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let results = moved(&mut |t| nearby(t, share, &mut rng))?;
            for ((result, expected), spread) in results.iter().zip(expected).zip(&mut found) {
                let d = compare(result, expected);
                spread.rel_err = spread.rel_err.max(SLACK * d.rel_l2);
                spread.max_over_rms = spread.max_over_rms.max(SLACK * d.max_over_rms);
            }
        }
        Ok(found)
    }

    /// Whether the differences of a layer are within it.
    pub fn covers(self, l: &LayerAgreement) -> bool {
        l.non_finite == 0 && l.rel_err <= self.rel_err && l.max_over_rms <= self.max_over_rms
    }
}

/// The tensor with each element moved by up to a share of itself; other types than floats as they are.
fn nearby(t: &Tensor, share: f64, rng: &mut Pcg64Mcg) -> Tensor {
    let mut out = t.clone();
    if t.dtype().is_float() {
        for i in 0..t.len() {
            out.set_f64(
                i,
                t.get_f64(i) * (1.0 + share * rng.random_range(-1.0..=1.0)),
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of terms that cancel, and of terms that do not, as far apart as `error` says.
    fn is_covered(terms: &[f32], error: f32) -> bool {
        let sum = |t: &Tensor| {
            let all: f64 = (0..t.len()).map(|i| t.get_f64(i)).sum();
            Arc::new(Tensor::from_slice(&[1], &[all as f32]))
        };
        let operand = Tensor::from_slice(&[terms.len()], terms);
        let expected = sum(&operand);
        let spread = Spread::of(std::slice::from_ref(&expected), 1e-4, |move_one| {
            Ok(vec![sum(&move_one(&operand))])
        });
        let actual = Tensor::from_slice(&[1], &[expected.get_f64(0) as f32 + error]);
        let d = compare(&actual, &expected);
        let found = LayerAgreement {
            step: String::new(),
            tensor: String::new(),
            rel_err: d.rel_l2,
            max_over_rms: d.max_over_rms,
            non_finite: d.non_finite,
            subnormal: false,
            cancels: false,
            judged: true,
            ok: false,
            cause: None,
        };
        spread.unwrap()[0].covers(&found)
    }

    #[test]
    fn an_error_is_judged_by_the_terms_where_they_cancel() {
        // 1000 terms of 1 that leave a millionth: operands that are off by 1e-4 move the sum by some thousandths.
        let mut cancel: Vec<f32> = (0..1000)
            .map(|i| if i % 2 == 0 { 1.0 } else { -1.0 })
            .collect();
        cancel[0] += 1e-6;
        assert!(is_covered(&cancel, 1e-4));
        assert!(!is_covered(&cancel, 1.0));
        assert!(!is_covered(&[1.0; 1000], 1.0));
    }
}
