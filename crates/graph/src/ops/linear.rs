//! Matrix products.

use super::{OpError, Operands, broadcast_shape, refuse};
use crate::model::TensorType;
use tensor::DType;

/// alpha A' B' + beta C, with A' and B' optionally transposed matrices and C
/// broadcast to the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Gemm {
    pub alpha: f32,
    pub beta: f32,
    pub trans_a: bool,
    pub trans_b: bool,
}

impl Gemm {
    pub(super) fn infer(&self, inputs: Operands) -> Result<TensorType, OpError> {
        let (a, b) = (inputs.at_most(3)?.number(0)?, inputs.number(1)?);
        if a.rank() != 2 || b.rank() != 2 || a.dtype != b.dtype {
            return refuse(format!("takes two matrices of one type, not {a} and {b}"));
        }
        let (m, k) = swap_if(self.trans_a, &a.shape);
        let (kb, n) = swap_if(self.trans_b, &b.shape);
        if k != kb {
            return refuse(format!("{a} and {b} do not share an inner dimension"));
        }
        if let Some(c) = inputs.optional(2)
            && (c.dtype != a.dtype || broadcast_shape(&c.shape, &[m, n])? != [m, n])
        {
            return refuse(format!("the addend {c} does not broadcast to [{m},{n}]"));
        }
        Ok(TensorType {
            dtype: a.dtype,
            shape: vec![m, n],
        })
    }
}

/// Sum over k of x[m,k] (p[k,n] - zero) scale, where p are constants of few bits. Their scales,
/// f32 or f16, and zeros are those of a block of terms.
///
/// A byte holds terms of one column that lie `block * bits / 8` apart, the first one in its low
/// bits: so a vector of bytes gives vectors of neighbouring columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMulBlocks {
    /// Of one constant: 2, 4 or 8.
    pub bits: usize,
    /// Terms with one scale, a multiple of those in a byte.
    pub block: usize,
}

impl MatMulBlocks {
    /// Terms in a byte.
    pub fn in_byte(self) -> usize {
        8 / self.bits
    }

    /// Bytes of a block in each column.
    pub fn bytes(self) -> usize {
        self.block / self.in_byte()
    }

    /// Where the term `k` lies: its block, its byte there, and its first bit.
    pub fn place(self, k: usize) -> (usize, usize, usize) {
        let within = k % self.block;
        let (part, byte) = (within / self.bytes(), within % self.bytes());
        (k / self.block, byte, part * self.bits)
    }

    /// The type of bytes and of zero points: numbers of a whole byte have a sign, so that
    /// sums of products stay small; smaller ones have none.
    pub fn dtype(self) -> DType {
        match self.bits {
            8 => DType::I8,
            _ => DType::U8,
        }
    }

    pub(super) fn infer(self, inputs: Operands) -> Result<TensorType, OpError> {
        let (x, packed) = (inputs.exactly(4)?.get(0)?, inputs.get(1)?);
        let (&[rows, terms], &[.., columns]) = (&x.shape[..], &packed.shape[..]) else {
            return refuse(format!("takes matrices, not {x} and {packed}"));
        };
        let whole = matches!(self.bits, 2 | 4 | 8) && self.block > 0;
        if !whole || !self.block.is_multiple_of(self.in_byte()) || !terms.is_multiple_of(self.block)
        {
            let MatMulBlocks { bits, block } = self;
            return refuse(format!("{terms} terms of {bits} bits in blocks of {block}"));
        }
        let blocks = terms / self.block;
        inputs.expect(0, DType::F32, &x.shape)?;
        let scales = match inputs.get(2)?.dtype {
            DType::F16 => DType::F16,
            _ => DType::F32,
        };
        inputs.expect(1, self.dtype(), &[blocks, self.bytes(), columns])?;
        inputs.expect(2, scales, &[blocks, columns])?;
        match inputs.get(3)?.len() {
            1 => inputs.expect(3, self.dtype(), &[1, 1])?,
            _ => inputs.expect(3, self.dtype(), &[blocks, columns])?,
        }
        Ok(TensorType::new(DType::F32, &[rows, columns]))
    }
}

fn swap_if(swap: bool, s: &[usize]) -> (usize, usize) {
    if swap { (s[1], s[0]) } else { (s[0], s[1]) }
}

pub(super) fn infer_matmul(inputs: Operands) -> Result<TensorType, OpError> {
    let (a, b) = (inputs.exactly(2)?.number(0)?, inputs.number(1)?);
    if a.dtype != b.dtype {
        return refuse(format!(
            "takes vectors or matrices of one type, not {a} and {b}"
        ));
    }
    Ok(TensorType {
        dtype: a.dtype,
        shape: product_shape(a, b)?,
    })
}

pub(super) fn infer_matmul_integer(inputs: Operands) -> Result<TensorType, OpError> {
    let (a, b) = (inputs.exactly(2)?.byte(0)?, inputs.byte(1)?);
    Ok(TensorType {
        dtype: DType::I32,
        shape: product_shape(a, b)?,
    })
}

/// The shape of NumPy's `matmul`.
fn product_shape(a: &TensorType, b: &TensorType) -> Result<Vec<usize>, OpError> {
    if a.rank() == 0 || b.rank() == 0 {
        return refuse(format!("takes vectors or matrices, not {a} and {b}"));
    }
    let (rows, k) = match a.shape[..] {
        [k] => (&[][..], k),
        [.., _, k] => (&a.shape[a.rank() - 2..a.rank() - 1], k),
        [] => unreachable!("rank 0 was refused"),
    };
    let (kb, columns) = match b.shape[..] {
        [k] => (k, &[][..]),
        [.., k, _] => (k, &b.shape[b.rank() - 1..]),
        [] => unreachable!("rank 0 was refused"),
    };
    if k != kb {
        return refuse(format!("{a} and {b} do not share an inner dimension"));
    }
    let batch = |t: &TensorType| t.shape[..t.rank().saturating_sub(2)].to_vec();
    let mut shape = broadcast_shape(&batch(a), &batch(b))?;
    shape.extend(rows.iter().chain(columns));
    Ok(shape)
}
