//! Lower triangles `L` with `L L' = A`, for equations of a symmetric positive matrix `A`.

/// A factored matrix: row `i` of the triangle has `i + 1` values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cholesky {
    lower: Vec<Vec<f64>>,
}

const LANES: usize = 8;

/// The sum of products, in an order that suits vector units.
fn product(a: &[f64], b: &[f64]) -> f64 {
    let whole = a.len().min(b.len()) / LANES * LANES;
    let (a, rest_a) = a.split_at(whole);
    let (b, rest_b) = b.split_at(whole);
    let mut sums = [0.0; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest = rest_a.iter().zip(rest_b).map(|(a, b)| a * b);
    rest.sum::<f64>() + sums.iter().sum::<f64>()
}

impl Cholesky {
    /// Adds a row of the matrix, up to its diagonal. `None`, and no change, if a square on the diagonal would not
    /// exceed `least`: then the rows depend on each other.
    pub fn push(&mut self, row: &[f64], least: f64) -> Option<()> {
        let mut next = self.half(&row[..row.len() - 1]);
        let square = row[row.len() - 1] - product(&next, &next);
        if square.is_nan() || square <= least {
            return None;
        }
        next.push(square.sqrt());
        self.lower.push(next);
        Some(())
    }

    /// `x` with `L x = b`, for the leading rows of `L` if `b` is shorter.
    pub fn half(&self, b: &[f64]) -> Vec<f64> {
        let mut x = Vec::with_capacity(b.len() + 1);
        for (row, b) in self.lower.iter().zip(b) {
            let i = x.len();
            x.push((b - product(&row[..i], &x)) / row[i]);
        }
        x
    }

    /// `x` with `A x = b`.
    pub fn solve(&self, b: &[f64]) -> Vec<f64> {
        let mut x = self.half(b);
        for i in (0..x.len()).rev() {
            x[i] /= self.lower[i][i];
            let value = x[i];
            for (x, l) in x[..i].iter_mut().zip(&self.lower[i]) {
                *x -= value * l;
            }
        }
        x
    }

    /// The inverse of `A`: row `i` up to its diagonal.
    pub fn inverse(&self) -> Vec<Vec<f64>> {
        let n = self.lower.len();
        // Column i of the inverse of L, from row i on.
        let mut columns: Vec<Vec<f64>> = Vec::with_capacity(n);
        for i in 0..n {
            let mut column = vec![1.0 / self.lower[i][i]];
            for row in &self.lower[i + 1..] {
                let below = i + column.len();
                column.push(-product(&row[i..below], &column) / row[below]);
            }
            columns.push(column);
        }
        let entry = |i: usize, j: usize| product(&columns[i], &columns[j][i - j..]);
        (0..n)
            .map(|i| (0..=i).map(|j| entry(i, j)).collect())
            .collect()
    }

    /// The logarithm of the determinant of `A`.
    pub fn log_determinant(&self) -> f64 {
        let diagonal = self.lower.iter().enumerate().map(|(i, row)| row[i]);
        2.0 * diagonal.map(f64::ln).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_and_inverses_agree_with_the_matrix() {
        let n = 21;
        let a = |i: usize, j: usize| {
            let distance = i.abs_diff(j) as f64;
            (-distance).exp() + if i == j { 0.5 } else { 0.0 }
        };
        let mut factor = Cholesky::default();
        for i in 0..n {
            let row: Vec<f64> = (0..=i).map(|j| a(i, j)).collect();
            factor.push(&row, 0.0).unwrap();
        }
        let wanted: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
        let times = |x: &[f64]| -> Vec<f64> {
            let row = |i: usize| (0..n).map(|j| a(i, j) * x[j]).sum();
            (0..n).map(row).collect()
        };
        let found = factor.solve(&times(&wanted));
        assert!(
            found
                .iter()
                .zip(&wanted)
                .all(|(a, b)| (a - b).abs() < 1e-12)
        );
        let inverse = factor.inverse();
        for k in 0..n {
            let column: Vec<f64> = (0..n).map(|i| inverse[i.max(k)][i.min(k)]).collect();
            let unit = times(&column);
            let is_unit = |(i, v): (usize, &f64)| (v - f64::from(u8::from(i == k))).abs() < 1e-12;
            assert!(unit.iter().enumerate().all(is_unit));
        }
        let before = factor.clone();
        // The last row once more.
        let mut row: Vec<f64> = (0..n).map(|j| a(n - 1, j)).collect();
        row.push(a(n - 1, n - 1));
        assert_eq!(factor.push(&row, 1e-9), None);
        assert_eq!(factor, before);
    }
}
