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
