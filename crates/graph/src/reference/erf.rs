//! The error function in f64.

/// erf(x), to a few units in the last place: the series with positive terms
/// (Abramowitz and Stegun 7.1.6) near zero, the continued fraction of erfc
/// (7.1.14) beyond.
pub(super) fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    let value = if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 1.0);
        while term > sum * 1e-17 {
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() * sum
    } else if a < 6.0 {
        let mut fraction = a;
        for n in (1..=60).rev() {
            fraction = a + f64::from(n) / 2.0 / fraction;
        }
        1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())
    } else {
        1.0
    };
    value.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn tabulated_values() {
        // Abramowitz and Stegun, tables 7.1 and 7.3.
        for (x, want) in [
            (0.0, 0.0),
            (0.1, 0.112_462_916_018_284_9),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 0.999_977_909_503_001_4),
            (7.0, 1.0),
        ] {
            assert!((erf(x) - want).abs() < 4e-16, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!((erf(2.5) - erf(2.5f64.next_down())).abs() < 1e-15);
        assert!(erf(f64::NAN).is_nan());
        assert_eq!(erf(f64::NEG_INFINITY), -1.0);
    }
}
