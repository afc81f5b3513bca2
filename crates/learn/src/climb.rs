//! The top of a smooth hill, by the method of Broyden, Fletcher, Goldfarb and Shanno.

use crate::dot;

/// Steps of one climb at most.
const STEPS: usize = 60;

/// A value with its gradient at a place, if there is one.
pub(crate) type Hill<'a> = &'a dyn Fn(&[f64]) -> Option<(f64, Vec<f64>)>;

/// The highest value that BFGS finds from a start, and its place. Every coordinate stays within the bounds.
pub(crate) fn climbed(hill: Hill<'_>, start: Vec<f64>, bounds: (f64, f64)) -> (f64, Vec<f64>) {
    let mut place = start;
    let Some((mut value, mut gradient)) = hill(&place) else {
        return (f64::NEG_INFINITY, place);
    };
    let n = place.len();
    let unit = |size: f64| -> Vec<Vec<f64>> {
        (0..n)
            .map(|i| (0..n).map(|j| if i == j { size } else { 0.0 }).collect())
            .collect()
    };
    // The inverse of the curvature; its first guess makes a step of length 1 at most.
    let mut inverse = unit(1.0 / dot(&gradient, &gradient).sqrt().max(1.0));
    for _ in 0..STEPS {
        let mut step: Vec<f64> = inverse.iter().map(|row| dot(row, &gradient)).collect();
        let longest = step.iter().fold(1.0, |a: f64, s| a.max(s.abs()));
        step.iter_mut().for_each(|s| *s /= longest);
        // Half the step until the value rises.
        let tried = (0..20).find_map(|halvings| {
            let shares = place
                .iter()
                .zip(&step)
                .map(|(p, s)| p + s * 0.5f64.powi(halvings));
            let next: Vec<f64> = shares.map(|p| p.clamp(bounds.0, bounds.1)).collect();
            hill(&next)
                .filter(|found| found.0 > value)
                .map(|found| (next, found))
        });
        let Some((next, (higher, slope))) = tried else {
            break;
        };
        let moved: Vec<f64> = next.iter().zip(&place).map(|(a, b)| a - b).collect();
        let turned: Vec<f64> = gradient.iter().zip(&slope).map(|(a, b)| a - b).collect();
        let gained = higher - value;
        (place, value, gradient) = (next, higher, slope);
        if gained < 1e-9 * (1.0 + value.abs()) {
            break;
        }
        let along = dot(&moved, &turned);
        if along <= 1e-12 {
            continue;
        }
        let bent: Vec<f64> = inverse.iter().map(|row| dot(row, &turned)).collect();
        let factor = (1.0 + dot(&turned, &bent) / along) / along;
        for i in 0..n {
            for j in 0..n {
                inverse[i][j] += factor * moved[i] * moved[j]
                    - (bent[i] * moved[j] + moved[i] * bent[j]) / along;
            }
        }
    }
    (value, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bent_ridge_is_climbed_and_bounds_hold() {
        // Rosenbrock's function, upside down: its top is at (1, 1).
        let ridge = |p: &[f64]| {
            let bend = p[1] - p[0] * p[0];
            let value = -(1.0 - p[0]).powi(2) - 100.0 * bend * bend;
            Some((
                value,
                vec![2.0 * (1.0 - p[0]) + 400.0 * bend * p[0], -200.0 * bend],
            ))
        };
        let (value, top) = climbed(&ridge, vec![-1.2, 1.0], (-5.0, 5.0));
        assert!(
            value > -1e-8 && (top[0] - 1.0).abs() < 1e-3,
            "{value} {top:?}"
        );
        let (_, edge) = climbed(&ridge, vec![0.0, 0.0], (-0.5, 0.5));
        assert!(edge.iter().all(|p| p.abs() <= 0.5), "{edge:?}");
    }
}
