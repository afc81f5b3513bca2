//! Minimal filtering: the matrices of Cook-Toom algorithms, in exact rationals.
//!
//! `F(m, r)` computes `m` outputs of a correlation with an `r`-tap filter in
//! `m + r - 1` products: `y = A [(G g) * (B d)]` (Lavin and Gray 2015, eq. 6
//! and 9; points after Toom). Products of the two-dimensional form nest two of
//! one dimension.

/// A fraction in lowest terms, the denominator positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rational {
    num: i64,
    den: i64,
}

impl Rational {
    fn new(num: i64, den: i64) -> Rational {
        let g = gcd(num.abs(), den.abs()).max(1) * den.signum();
        Rational {
            num: num / g,
            den: den / g,
        }
    }

    fn int(v: i64) -> Rational {
        Rational::new(v, 1)
    }

    fn plus(self, o: Rational) -> Rational {
        Rational::new(self.num * o.den + o.num * self.den, self.den * o.den)
    }

    fn times(self, o: Rational) -> Rational {
        Rational::new(self.num * o.num, self.den * o.den)
    }

    fn over(self, o: Rational) -> Rational {
        Rational::new(self.num * o.den, self.den * o.num)
    }

    fn to_power(self, n: usize) -> Rational {
        (0..n).fold(Rational::int(1), |p, _| p.times(self))
    }

    pub fn value(self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

pub(crate) type Matrix = Vec<Vec<Rational>>;

/// The transforms of `F(m, r)` with `n = m + r - 1`.
#[derive(Debug)]
pub(crate) struct Filtering {
    /// Outputs from products, `m x n`.
    pub output: Matrix,
    /// Filter to its transformed taps, `n x r`.
    pub filter: Matrix,
    /// Data to its transformed elements, `n x n`.
    pub data: Matrix,
}

/// Interpolation points in order of use, the point at infinity left out: small
/// ones first, in pairs of opposite sign, for they round least.
const POINTS: [(i64, i64); 7] = [(0, 1), (1, 1), (-1, 1), (2, 1), (-2, 1), (1, 2), (-1, 2)];

/// The matrices of `F(m, r)`; `None` if there are not points enough.
pub(crate) fn filtering(m: usize, r: usize) -> Option<Filtering> {
    let n = (m + r).checked_sub(1)?;
    let points: Vec<Rational> = POINTS
        .get(..n.checked_sub(1)?)?
        .iter()
        .map(|(a, b)| Rational::new(*a, *b))
        .collect();
    let others = |j: usize| {
        let others = points.iter().enumerate().filter(move |(k, _)| *k != j);
        others.map(|(_, p)| *p)
    };
    let scale = |j: usize| {
        let minus = |p: Rational| p.times(Rational::int(-1));
        others(j).fold(Rational::int(1), |f, p| f.times(points[j].plus(minus(p))))
    };
    let last = |at: usize, n: usize| Rational::int(i64::from(at + 1 == n));
    let row = |i: usize| {
        let powers = points.iter().map(|p| p.to_power(i));
        powers.chain([last(i, m)]).collect()
    };
    let filter_row = |j: usize| match points.get(j) {
        Some(p) => (0..r).map(|i| p.to_power(i).over(scale(j))).collect(),
        None => (0..r).map(|i| last(i, r)).collect(),
    };
    Some(Filtering {
        output: (0..m).map(row).collect(),
        filter: (0..n).map(filter_row).collect(),
        // Of the last index no point is left out.
        data: (0..n).map(|j| coefficients(others(j), n)).collect(),
    })
}

/// The `n` coefficients of the product of `x - p`, lowest power first.
fn coefficients(roots: impl Iterator<Item = Rational>, n: usize) -> Vec<Rational> {
    let mut poly = vec![Rational::int(0); n];
    poly[0] = Rational::int(1);
    for p in roots {
        for i in (0..n).rev() {
            let below = if i == 0 {
                Rational::int(0)
            } else {
                poly[i - 1]
            };
            let minus = poly[i].times(p).times(Rational::int(-1));
            poly[i] = below.plus(minus);
        }
    }
    poly
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(m: &Matrix, v: &[Rational]) -> Vec<Rational> {
        let dot = |row: &Vec<Rational>| {
            let terms = row.iter().zip(v).map(|(a, b)| a.times(*b));
            terms.fold(Rational::int(0), Rational::plus)
        };
        m.iter().map(dot).collect()
    }

    /// Every size that has points computes the correlation exactly.
    #[test]
    fn filtering_is_correlation() {
        let mut sizes = 0;
        for (m, r) in (1..8).flat_map(|m| (1..8).map(move |r| (m, r))) {
            let Some(f) = filtering(m, r) else {
                assert!(m + r - 1 > POINTS.len() + 1);
                continue;
            };
            sizes += 1;
            let n = m + r - 1;
            let data: Vec<Rational> = (0..n).map(|i| Rational::int(3 * i as i64 - 4)).collect();
            let taps: Vec<Rational> = (0..r).map(|i| Rational::new(2 * i as i64 + 1, 3)).collect();
            let (d, g) = (apply(&f.data, &data), apply(&f.filter, &taps));
            let products: Vec<Rational> = d.iter().zip(&g).map(|(a, b)| a.times(*b)).collect();
            let expected: Vec<Rational> = (0..m)
                .map(|y| {
                    let terms = taps.iter().zip(&data[y..]).map(|(a, b)| a.times(*b));
                    terms.fold(Rational::int(0), Rational::plus)
                })
                .collect();
            assert_eq!(apply(&f.output, &products), expected, "F({m}, {r})");
        }
        assert_eq!(sizes, 34);
    }

    #[test]
    fn the_smallest_is_the_known_one() {
        let f = filtering(2, 3).expect("four points");
        let half = Rational::new(1, 2);
        assert_eq!(f.filter[1], vec![half, half, half]);
        let ints = |m: &Matrix| -> Vec<Vec<f64>> {
            m.iter()
                .map(|r| r.iter().map(|v| v.value()).collect())
                .collect()
        };
        assert_eq!(
            ints(&f.output),
            [[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, 1.0]]
        );
    }
}
