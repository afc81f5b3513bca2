//! Contractions of two tensors.

use super::contraction::Product;
use super::widen::{from_floats, from_integers};
use crate::ops::Contract;
use std::collections::HashMap;
use tensor::Tensor;

/// Where an element is in the left operand, the right one and the result; 0 in a
/// tensor that lacks the axes.
#[derive(Clone, Copy)]
struct Place {
    left: usize,
    right: usize,
    result: usize,
}

/// The axes of a contraction by what they are in a matrix product.
struct Axes {
    /// Of both operands and the result.
    batch: Vec<Place>,
    /// Of the left operand and the result.
    rows: Vec<Place>,
    /// Of the right operand and the result.
    columns: Vec<Place>,
    /// Not of the result.
    terms: Vec<Place>,
}

pub(super) fn contract(c: &Contract, a: &Tensor, b: &Tensor, shape: &[usize]) -> Tensor {
    let axes = Axes::of(c, a, b, shape);
    let count = shape.iter().product();
    if a.dtype().is_float() {
        let mut sums = vec![0.0; count];
        axes.float_sums(a, b, &mut sums);
        return from_floats(a.dtype(), shape, &sums);
    }
    let mut sums = vec![0; count];
    axes.integer_sums(a, b, &mut sums);
    from_integers(a.dtype(), shape, &sums)
}

impl Axes {
    fn of(c: &Contract, a: &Tensor, b: &Tensor, shape: &[usize]) -> Axes {
        let places = Strides::of(c, a, b, shape);
        let (mut batch, mut rows, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for l in &c.result {
            let group = match (c.left.contains(l), c.right.contains(l)) {
                (true, true) => &mut batch,
                (true, false) => &mut rows,
                _ => &mut columns,
            };
            group.push(*l);
        }
        Axes {
            batch: places.all(&batch),
            rows: places.all(&rows),
            columns: places.all(&columns),
            terms: places.all(&c.summed()),
        }
    }

    fn float_sums(&self, a: &Tensor, b: &Tensor, out: &mut [f64]) {
        let size = Product {
            rows: self.rows.len(),
            depth: self.terms.len(),
            columns: self.columns.len(),
        };
        for base in &self.batch {
            size.compute(
                |i, line| {
                    let start = base.left + self.rows[i].left;
                    for (v, t) in line.iter_mut().zip(&self.terms) {
                        *v = a.get_f64(start + t.left);
                    }
                },
                |j, line| {
                    let start = base.right + self.columns[j].right;
                    for (v, t) in line.iter_mut().zip(&self.terms) {
                        *v = b.get_f64(start + t.right);
                    }
                },
                |block| {
                    let columns = &self.columns[block.first..][..block.width];
                    for (r, row) in self.rows.iter().enumerate() {
                        for (v, column) in block.row(r).iter().zip(columns) {
                            out[base.result + row.result + column.result] = *v;
                        }
                    }
                },
            );
        }
    }

    fn integer_sums(&self, a: &Tensor, b: &Tensor, out: &mut [i64]) {
        for base in &self.batch {
            for row in &self.rows {
                for column in &self.columns {
                    let sum = self.terms.iter().fold(0i64, |sum, t| {
                        let a = a.get_i64(base.left + row.left + t.left);
                        let b = b.get_i64(base.right + column.right + t.right);
                        sum.wrapping_add(a.wrapping_mul(b))
                    });
                    out[base.result + row.result + column.result] = sum;
                }
            }
        }
    }
}

/// Extent and strides of each letter.
struct Strides(HashMap<char, (usize, Place)>);

impl Strides {
    fn of(c: &Contract, a: &Tensor, b: &Tensor, shape: &[usize]) -> Strides {
        let mut all = HashMap::new();
        let mut add = |letters: &[char], shape: &[usize], set: fn(&mut Place, usize)| {
            let mut stride = 1;
            for (l, n) in letters.iter().zip(shape).rev() {
                let nowhere = Place {
                    left: 0,
                    right: 0,
                    result: 0,
                };
                set(&mut all.entry(*l).or_insert((*n, nowhere)).1, stride);
                stride *= n;
            }
        };
        add(&c.left, a.shape(), |p, s| p.left = s);
        add(&c.right, b.shape(), |p, s| p.right = s);
        add(&c.result, shape, |p, s| p.result = s);
        Strides(all)
    }

    /// The places of all index tuples of some letters, the last one fastest.
    fn all(&self, letters: &[char]) -> Vec<Place> {
        let mut places = vec![Place {
            left: 0,
            right: 0,
            result: 0,
        }];
        for l in letters {
            let (extent, stride) = self.0[l];
            let along = |p: &Place| {
                let p = *p;
                (0..extent).map(move |i| Place {
                    left: p.left + i * stride.left,
                    right: p.right + i * stride.right,
                    result: p.result + i * stride.result,
                })
            };
            places = places.iter().flat_map(along).collect();
        }
        places
    }
}
