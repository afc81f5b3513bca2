//! Matrix products.

use super::contraction::Product;
use super::movement::broadcast;
use super::widen::{floats, from_floats, from_integers, integers, read_strided};
use crate::ops::{Gemm, MatMulBlocks};
use tensor::{DType, Tensor};

/// A matrix inside a tensor: element (r, c) is at `start + r * row + c * column`.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    tensor: &'a Tensor,
    start: usize,
    row: usize,
    column: usize,
}

fn product_of(size: Product, a: Matrix, b: Matrix, out: &mut [f64]) {
    size.compute(
        |i, line| read_strided(a.tensor, a.start + i * a.row, a.column, line),
        |j, line| read_strided(b.tensor, b.start + j * b.column, b.row, line),
        |columns| {
            for r in 0..size.rows {
                out[r * size.columns + columns.first..][..columns.width]
                    .copy_from_slice(columns.row(r));
            }
        },
    );
}

fn integer_product(size: Product, a: Matrix, b: Matrix, out: &mut [i64]) {
    for i in 0..size.rows {
        for j in 0..size.columns {
            out[i * size.columns + j] = (0..size.depth).fold(0i64, |sum, k| {
                let a = a.tensor.get_i64(a.start + i * a.row + k * a.column);
                let b = b.tensor.get_i64(b.start + k * b.row + j * b.column);
                sum.wrapping_add(a.wrapping_mul(b))
            });
        }
    }
}

pub(super) fn matmul(a: &Tensor, b: &Tensor, shape: &[usize]) -> Tensor {
    if a.dtype().is_float() {
        let out = products(a, b, shape, 0.0, product_of);
        return from_floats(a.dtype(), shape, &out);
    }
    let out = products(a, b, shape, 0, integer_product);
    from_integers(a.dtype(), shape, &out)
}

/// Products of bytes. Their sums are far below 2^53, so f64 is exact.
pub(super) fn matmul_integer(a: &Tensor, b: &Tensor, shape: &[usize]) -> Tensor {
    wrapped_sums(shape, &products(a, b, shape, 0.0, product_of))
}

/// The weights as floats, and the product with them.
pub(super) fn matmul_blocks(m: MatMulBlocks, operands: &[&Tensor], shape: &[usize]) -> Tensor {
    let [x, packed, scales, zeros] = operands else {
        unreachable!("the shape rule counted the operands");
    };
    let (terms, columns) = (x.shape()[1], shape[1]);
    let mask = (1i64 << m.bits) - 1;
    let mut weights = Tensor::zeros(DType::F32, &[terms, columns]);
    for k in 0..terms {
        let (block, byte, bit) = m.place(k);
        for n in 0..columns {
            let of_block = block * columns + n;
            let byte = packed.get_i64((block * m.bytes() + byte) * columns + n);
            let zero = zeros.get_i64(if zeros.len() == 1 { 0 } else { of_block });
            let number = if m.bits == 8 {
                byte
            } else {
                byte >> bit & mask
            };
            let whole = number - zero;
            let value = whole as f64 * scales.get_f64(of_block);
            weights.set_f64(k * columns + n, value);
        }
    }
    matmul(x, &weights, shape)
}

/// Whole numbers, wrapping to i32.
pub(super) fn wrapped_sums(shape: &[usize], sums: &[f64]) -> Tensor {
    let sums: Vec<i64> = sums.iter().map(|s| *s as i64).collect();
    from_integers(DType::I32, shape, &sums)
}

/// What `multiply` gives for every pair of matrices.
fn products<T: Copy>(
    a: &Tensor,
    b: &Tensor,
    shape: &[usize],
    zero: T,
    multiply: impl Fn(Product, Matrix, Matrix, &mut [T]),
) -> Vec<T> {
    let (sa, sb) = (a.shape(), b.shape());
    let depth = sa[sa.len() - 1];
    let rows = if sa.len() == 1 { 1 } else { sa[sa.len() - 2] };
    let columns = if sb.len() == 1 { 1 } else { sb[sb.len() - 1] };
    let batch = &shape[..sa.len().max(sb.len()).saturating_sub(2)];
    let starts = |t: &Tensor, matrix: usize| {
        let outer = &t.shape()[..t.rank().saturating_sub(2)];
        let count: usize = outer.iter().product();
        let order: Vec<i64> = (0..count as i64).collect();
        let order = broadcast(&Tensor::from_slice(outer, &order), batch);
        integers(&order)
            .into_iter()
            .map(move |i| i as usize * matrix)
            .collect::<Vec<_>>()
    };
    let size = Product {
        rows,
        depth,
        columns,
    };
    let pairs = starts(a, rows * depth)
        .into_iter()
        .zip(starts(b, depth * columns));
    let matrices = pairs.map(|(start_a, start_b)| {
        let left = Matrix {
            tensor: a,
            start: start_a,
            row: depth,
            column: 1,
        };
        (
            left,
            Matrix {
                tensor: b,
                start: start_b,
                row: columns,
                column: 1,
            },
        )
    });
    let step = (rows * columns).max(1);
    let count = shape.iter().product();
    let mut out = vec![zero; count];
    for ((left, right), out) in matrices.zip(out.chunks_mut(step)) {
        multiply(size, left, right, out);
    }
    out
}

pub(super) fn gemm(
    g: &Gemm,
    a: &Tensor,
    b: &Tensor,
    c: Option<&Tensor>,
    shape: &[usize],
) -> Tensor {
    let matrix = |tensor: &'_ Tensor, swap: bool| {
        let width = tensor.shape()[1];
        if swap { (1, width) } else { (width, 1) }
    };
    let ((a_row, a_column), (b_row, b_column)) = (matrix(a, g.trans_a), matrix(b, g.trans_b));
    let left = Matrix {
        tensor: a,
        start: 0,
        row: a_row,
        column: a_column,
    };
    let right = Matrix {
        tensor: b,
        start: 0,
        row: b_row,
        column: b_column,
    };
    let depth = a.shape()[usize::from(!g.trans_a)];
    let size = Product {
        rows: shape[0],
        depth,
        columns: shape[1],
    };
    let mut out = vec![0.0; shape.iter().product()];
    if a.dtype().is_float() {
        product_of(size, left, right, &mut out);
    } else {
        let mut sums = vec![0; out.len()];
        integer_product(size, left, right, &mut sums);
        out.iter_mut().zip(sums).for_each(|(o, s)| *o = s as f64);
    }
    let (alpha, beta) = (f64::from(g.alpha), f64::from(g.beta));
    let addend = c.map(|c| floats(&broadcast(c, shape)));
    for (i, o) in out.iter_mut().enumerate() {
        *o = alpha * *o + addend.as_ref().map_or(0.0, |c| beta * c[i]);
    }
    from_floats(a.dtype(), shape, &out)
}
