//! Resizing by interpolation: each element of the result is a weighted sum of neighbours.

use super::{OpError, Operands, refuse};
use crate::model::TensorType;

/// Numbers of a [`Line`] stay below this, so that products with positions fit 64 bits.
const MOST: i128 = 1 << 31;
/// Neighbours along an axis, at most.
const MOST_TAPS: usize = 1 << 16;

/// Interpolation along some axes of an operand. Neighbours beyond an end of an axis are
/// the element at that end.
#[derive(Clone, Debug, PartialEq)]
pub struct Resize {
    pub filter: Filter,
    /// One entry for each axis of the operand; `None` keeps the axis.
    pub axes: Vec<Option<Sampling>>,
    /// Widens the filter where the result is smaller, so that all neighbours count.
    pub antialias: bool,
    /// Neighbours beyond an end have no weight; the others have more.
    pub exclude_outside: bool,
    /// The result where its position is beyond the first or last element.
    pub beyond: Option<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Filter {
    /// The one element that the position is rounded to.
    Nearest(Rounding),
    /// Two neighbours.
    Linear,
    /// Four neighbours, by a piecewise cubic (Keys 1981) with the coefficient `a`.
    Cubic { a: f32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Floor,
    Ceil,
    /// A half goes down.
    HalfDown,
    /// A half goes up.
    HalfUp,
}

/// How one axis is sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Elements of the result.
    pub size: usize,
    /// Where an element of the result lies in the operand.
    pub position: Line,
    /// Elements of the result for each of the operand; decides how wide an
    /// anti-aliasing filter is.
    pub scale: f64,
}

/// The number `(i * by + plus) / over` of element `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    by: i64,
    plus: i64,
    over: i64,
}

/// Elements of a result for each of the operand, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub over: i128,
    pub under: i128,
}

impl Scale {
    pub fn between(extent: usize, size: usize) -> Scale {
        Scale {
            over: size as i128,
            under: extent.max(1) as i128,
        }
    }

    pub fn value(self) -> f64 {
        self.over as f64 / self.under as f64
    }

    /// The middle of each element of the result, less half an element of the operand.
    pub fn half_pixel(self) -> Line {
        Line::new(2 * self.under, self.under - self.over, 2 * self.over)
    }

    /// The first elements lie on each other.
    pub fn asymmetric(self) -> Line {
        Line::new(self.under, 0, self.over)
    }

    /// The first elements lie on each other, and so do the last ones.
    pub fn align_corners(self, extent: usize) -> Line {
        let extent = extent as i128;
        let steps = extent * self.over - self.under;
        match steps {
            // The result has one element, which is the first.
            0 => Line::new(1, 0, 1),
            steps => Line::new((extent - 1) * self.under, 0, steps),
        }
    }
}

impl Line {
    /// In lowest terms; numbers that are too large lose their last bits. `over` is positive.
    pub fn new(by: i128, plus: i128, over: i128) -> Line {
        let over = over.max(1);
        let common = gcd(gcd(by, plus), over).max(1);
        let mut terms = [by / common, plus / common, over / common];
        while terms.iter().any(|t| t.abs() >= MOST) {
            terms = terms.map(|t| t / 2);
        }
        Line {
            by: terms[0] as i64,
            plus: terms[1] as i64,
            over: terms[2].max(1) as i64,
        }
    }

    pub fn by(self) -> i64 {
        self.by
    }

    pub fn plus(self) -> i64 {
        self.plus
    }

    /// Positive.
    pub fn over(self) -> i64 {
        self.over
    }

    /// The line whose floor is this one rounded.
    pub fn rounded(self, rounding: Rounding) -> Line {
        let [by, plus, over] = [self.by, self.plus, self.over].map(i128::from);
        match rounding {
            Rounding::Floor => self,
            Rounding::Ceil => Line {
                plus: self.plus + self.over - 1,
                ..self
            },
            Rounding::HalfUp => Line::new(2 * by, 2 * plus + over, 2 * over),
            // One less in the numerator: a half is no longer the next number.
            Rounding::HalfDown => Line {
                by: 2 * self.by,
                plus: 2 * self.plus + self.over - 1,
                over: 2 * self.over,
            },
        }
    }

    /// The largest integer that is not above the number, and the rest as a fraction.
    pub fn at(self, i: usize) -> (i64, f64) {
        let n = i as i64 * self.by + self.plus;
        let rest = n.rem_euclid(self.over) as f64 / self.over as f64;
        (n.div_euclid(self.over), rest)
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Resize {
    /// The factor by which the filter's argument is scaled along an axis: 1 unless a
    /// smaller result is anti-aliased.
    pub fn narrowing(&self, s: &Sampling) -> f64 {
        if self.antialias {
            s.scale.min(1.0)
        } else {
            1.0
        }
    }

    /// The first neighbour beside the floor of the position, and how many there are.
    pub fn taps(&self, s: &Sampling) -> (i64, usize) {
        let support = match self.filter {
            Filter::Nearest(_) => return (0, 1),
            Filter::Linear => 1.0,
            Filter::Cubic { .. } => 2.0,
        };
        let first = (-support / self.narrowing(s)).floor() as i64 + 1;
        (first, (2 - 2 * first) as usize)
    }

    /// Whether the weights of an element have to be divided by their sum.
    pub fn normalises(&self) -> bool {
        self.antialias || self.exclude_outside
    }

    /// The position whose floor is the element that the neighbours are counted from.
    pub fn base(&self, s: &Sampling) -> Line {
        match self.filter {
            Filter::Nearest(rounding) => s.position.rounded(rounding),
            Filter::Linear | Filter::Cubic { .. } => s.position,
        }
    }

    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let x = inputs.exactly(1)?.get(0)?;
        if self.axes.len() != x.rank() {
            return refuse(format!("{x} does not have {} axes", self.axes.len()));
        }
        let moves = matches!(self.filter, Filter::Nearest(_)) && self.beyond.is_none();
        if !moves && !x.dtype.is_float() {
            return refuse(format!("interpolation is not defined on {}", x.dtype));
        }
        let mut shape = x.shape.clone();
        for (d, s) in self.axes.iter().enumerate() {
            let Some(s) = s else { continue };
            if x.shape[d] == 0 && s.size > 0 {
                return refuse(format!("axis {d} of {x} is empty"));
            }
            if !(s.scale > 0.0 && s.scale.is_finite()) {
                return refuse(format!("axis {d} is scaled by {}", s.scale));
            }
            // More taps than this would overflow; the size of an image allows fewer.
            if 4.0 / self.narrowing(s) >= MOST_TAPS as f64 {
                return refuse(format!("axis {d} has more than {MOST_TAPS} neighbours"));
            }
            shape[d] = s.size;
        }
        Ok(TensorType::new(x.dtype, &shape))
    }
}

impl Filter {
    /// The weight of a neighbour at a distance.
    pub fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            Filter::Nearest(_) => 1.0,
            Filter::Linear => (1.0 - x).max(0.0),
            Filter::Cubic { a } => {
                let a = f64::from(a);
                if x <= 1.0 {
                    ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    ((x - 5.0) * x + 8.0) * x * a - 4.0 * a
                } else {
                    0.0
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_rounded_as_its_name_says() {
        // 0, 1/2, 1, 3/2, ... from -1.
        let line = Line::new(1, -2, 2);
        let rounded =
            |r: Rounding| -> Vec<i64> { (0..5).map(|i| line.rounded(r).at(i).0).collect() };
        assert_eq!(rounded(Rounding::Floor), [-1, -1, 0, 0, 1]);
        assert_eq!(rounded(Rounding::Ceil), [-1, 0, 0, 1, 1]);
        assert_eq!(rounded(Rounding::HalfUp), [-1, 0, 0, 1, 1]);
        assert_eq!(rounded(Rounding::HalfDown), [-1, -1, 0, 0, 1]);
        let thirds = Line::new(1, 0, 3);
        assert_eq!(thirds.rounded(Rounding::HalfDown).at(2).0, 1);
        assert_eq!(thirds.rounded(Rounding::HalfUp).at(1).0, 0);
    }

    #[test]
    fn lines_are_in_lowest_terms_and_fit() {
        let Line { by, plus, over } = Line::new(6, -4, 10);
        assert_eq!((by, plus, over), (3, -2, 5));
        let large = Line::new(1 << 60, 1 << 59, (1 << 60) + 1);
        assert!((i128::from(large.over)) < MOST);
        let (floor, rest) = large.at(7);
        assert!((floor as f64 + rest - 7.5).abs() < 1e-6);
    }

    #[test]
    fn weights_of_a_position_add_up_to_one() {
        for filter in [Filter::Linear, Filter::Cubic { a: -0.75 }] {
            for rest in [0.0, 0.25, 0.5, 0.9] {
                let sum: f64 = (-1..3).map(|t| filter.weight(f64::from(t) - rest)).sum();
                assert!((sum - 1.0).abs() < 1e-12, "{filter:?} at {rest}: {sum}");
            }
        }
    }
}
