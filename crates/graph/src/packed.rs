//! Weights of few bits stay packed: a product with constant weights that are dequantised from
//! 2, 4 or 8 bits reads them packed.
//!
//! Files and importers write `(q - zero) scale` with bytes q and a scale for each weight, or
//! one a column, or one for all. How many bits there are, and how many terms share a scale and a
//! zero, is read off the values: so a format or an operator that writes them needs no rule here.

use crate::model::{Model, Node, Rewrite, ValueId};
use crate::ops::{Binary, MatMulBlocks, Op, Reshape, Transpose};
use crate::quantised::{Dequantised, dequantises, written};
use crate::simplify::vector;
use std::convert::Infallible;
use tensor::{DType, Tensor};

/// The least columns: kernels read whole vectors of bytes, and compute what is left of the last
/// vector for nothing.
const LEAST_COLUMNS: usize = 16;
/// The least terms with one scale: of fewer, scales take more bytes than weights.
const LEAST_BLOCK: usize = 16;
/// The most rows with weights of 8 bits: of more, arithmetic takes the time and not the weights' bytes, and widening them
/// adds a tenth to it. Fewer bits are worth that, as they take an eighth of the memory.
const MOST_ROWS_OF_BYTES: usize = 32;

/// Replaces products with dequantised weights of few bits. What is not recognised stays as it is.
pub(crate) fn products_of_packed(model: &Model) -> Model {
    if !model.nodes().any(|(_, n)| dequantises(n, model)) {
        return model.clone();
    }
    let Ok(model) = model.rewrite(|r, _, node| {
        Ok::<_, Infallible>(match replaced(r, node) {
            Some(value) => vec![value],
            None => r.copy(node),
        })
    });
    model
}

/// Constants as they are packed.
struct Packed {
    op: MatMulBlocks,
    /// Operands of [`Op::MatMulBlocks`].
    weights: Tensor,
    scales: Tensor,
    zeros: Tensor,
}

fn replaced(r: &mut Rewrite, node: &Node) -> Option<ValueId> {
    let inputs = r.operands(node);
    let operand = |i: usize| inputs.get(i).copied().flatten();
    let (x, w, addend) = (operand(0)?, operand(1)?, operand(2));
    let turned = match &node.op {
        Op::MatMul => false,
        Op::Gemm(g) if !g.trans_a && g.alpha == 1.0 && (g.beta == 1.0 || addend.is_none()) => {
            g.trans_b
        }
        _ => return None,
    };
    let shape = r.target[x].shape().to_vec();
    let (&terms, leading) = shape.split_last()?;
    if leading.is_empty() || r.target[x].ty().is_empty() {
        return None;
    }
    let packed = packed(&r.target, w, turned)?;
    let rows: usize = leading.iter().product();
    if packed.op.bits == 8 && rows > MOST_ROWS_OF_BYTES {
        return None;
    }
    let columns = packed.weights.shape()[2];
    let constants = [packed.weights, packed.scales, packed.zeros];
    let [weights, scales, zeros] = constants.map(|t| r.target.add_result(&node.name, t));
    let mut add = |op: Op, operands: &[ValueId]| {
        let value = r.target.add(&node.name, op, operands);
        value.expect("a product takes packed weights where it took floats")
    };
    let reshape = |shape: Vec<usize>| Op::Reshape(Reshape { shape });
    let x = match leading.len() {
        1 => x,
        _ => add(reshape(vec![rows, terms]), &[x]),
    };
    let mut y = add(Op::MatMulBlocks(packed.op), &[x, weights, scales, zeros]);
    if leading.len() > 1 {
        y = add(reshape([leading, &[columns]].concat()), &[y]);
    }
    Some(match addend {
        Some(c) => add(Op::Binary(Binary::Add), &[y, c]),
        None => y,
    })
}

/// Dequantised constants as a matrix of terms and columns.
struct Matrix<'m> {
    /// Whether constants have a row a column of the product.
    turned: bool,
    terms: usize,
    columns: usize,
    q: &'m Tensor,
    zero: Option<&'m Tensor>,
    scale: &'m Tensor,
}

impl<'m> Matrix<'m> {
    fn of(model: &'m Model, v: ValueId, mut turned: bool) -> Option<Matrix<'m>> {
        let mut source = v;
        if let Some((n, _)) = model.producer(v)
            && model[n].op == Op::Transpose(Transpose { perm: vec![1, 0] })
        {
            turned = !turned;
            source = model[n].input(0)?;
        }
        let Dequantised { q, zero, scale } = written(model, source)?;
        let constant = |v: ValueId| model.constant(v).map(|t| &**t);
        let q = constant(q)?;
        let &[rows, row] = q.shape() else {
            return None;
        };
        let (terms, columns) = if turned { (row, rows) } else { (rows, row) };
        let zero = match zero {
            Some(v) => Some(constant(v)?),
            None => None,
        };
        Some(Matrix {
            turned,
            terms,
            columns,
            q,
            zero,
            scale: constant(scale)?,
        })
    }

    /// Where a constant that broadcasts to the bytes has the element of a term and a column.
    fn at(&self, t: &Tensor, k: usize, n: usize) -> usize {
        let index = if self.turned { [n, k] } else { [k, n] };
        let lead = index.len() - t.rank();
        let along = t.shape().iter().zip(&index[lead..]);
        along.fold(0, |at, (size, i)| {
            at * size + if *size == 1 { 0 } else { *i }
        })
    }

    fn zero(&self, k: usize, n: usize) -> i64 {
        self.zero.map_or(0, |z| z.get_i64(self.at(z, k, n)))
    }

    fn scale(&self, k: usize, n: usize) -> f64 {
        self.scale.get_f64(self.at(self.scale, k, n))
    }

    /// The most terms with one scale and one zero in each column: blocks of as many divide the
    /// terms.
    fn block(&self) -> usize {
        let alike = |k: usize| {
            (0..self.columns).all(|n| {
                let before = k - 1;
                self.scale(k, n) == self.scale(before, n) && self.zero(k, n) == self.zero(before, n)
            })
        };
        let borders = (1..self.terms).filter(|k| !alike(*k));
        borders.fold(self.terms, greatest_common_divisor)
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
}

/// The weights `v`, if they have few bits and packing them saves bytes.
fn packed(model: &Model, v: ValueId, turned: bool) -> Option<Packed> {
    let m = Matrix::of(model, v, turned)?;
    if m.terms == 0 || m.columns < LEAST_COLUMNS {
        return None;
    }
    let values = || (0..m.q.len()).map(|i| m.q.get_i64(i));
    let (least, most) = (values().min()?, values().max()?);
    let (bits, offset) = match most - least {
        0..=3 => (2, least),
        4..=15 => (4, least),
        _ if m.q.dtype() == DType::U8 => (8, 128),
        _ => (8, 0),
    };
    let op = MatMulBlocks {
        bits,
        block: m.block(),
    };
    if op.block < LEAST_BLOCK || !op.block.is_multiple_of(op.in_byte()) {
        return None;
    }
    let (blocks, columns) = (m.terms / op.block, m.columns);
    let mut bytes = vec![0u8; blocks * op.bytes() * columns];
    for k in 0..m.terms {
        let (block, byte, bit) = op.place(k);
        let row = &mut bytes[(block * op.bytes() + byte) * columns..][..columns];
        for (n, byte) in row.iter_mut().enumerate() {
            *byte |= ((m.q.get_i64(m.at(m.q, k, n)) - offset) << bit) as u8;
        }
    }
    let places = || (0..blocks * columns).map(|i| (i / columns * op.block, i % columns));
    let zeros: Vec<f64> = places()
        .map(|(k, n)| (m.zero(k, n) - offset) as f64)
        .collect();
    let zeros = match zeros.iter().all(|z| *z == zeros[0]) {
        true => exactly(op.dtype(), &zeros[..1], &[1, 1])?,
        false => exactly(op.dtype(), &zeros, &[blocks, columns])?,
    };
    let weights: Vec<f64> = match op.dtype() {
        DType::I8 => bytes.iter().map(|b| f64::from(*b as i8)).collect(),
        _ => bytes.iter().map(|b| f64::from(*b)).collect(),
    };
    let scales: Vec<f64> = places().map(|(k, n)| m.scale(k, n)).collect();
    let of = |dtype| exactly(dtype, &scales, &[blocks, columns]);
    Some(Packed {
        op,
        weights: vector(op.dtype(), &weights, &[blocks, op.bytes(), columns]),
        scales: of(DType::F16).or_else(|| of(DType::F32))?,
        zeros,
    })
}

/// The values in a type that has them all.
fn exactly(dtype: DType, values: &[f64], shape: &[usize]) -> Option<Tensor> {
    let t = vector(dtype, values, shape);
    let same = |(i, v): (usize, &f64)| t.get_f64(i) == *v;
    values.iter().enumerate().all(same).then_some(t)
}
