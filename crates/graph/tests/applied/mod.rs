//! Operators applied by their references, and small tensors to apply them to.

use graph::ops::Op;
use graph::reference::apply;
use tensor::{DType, Fill, Tensor, fill_tensor};

pub fn all(op: Op, operands: &[&Tensor]) -> Vec<Tensor> {
    let operands: Vec<_> = operands.iter().copied().map(Some).collect();
    apply(&op, &operands).unwrap()
}

pub fn run(op: Op, operands: &[&Tensor]) -> Tensor {
    all(op, operands).remove(0)
}

pub fn refused(op: Op, operands: &[&Tensor]) -> String {
    let operands: Vec<_> = operands.iter().copied().map(Some).collect();
    apply(&op, &operands).unwrap_err().to_string()
}

pub fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(shape, values)
}

pub fn i64s(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_slice(shape, values)
}

/// Small whole numbers, so that every order of summation gives the same f32.
#[allow(dead_code)] // Not every test file has use for it.
pub fn whole(shape: &[usize], seed: u64) -> Tensor {
    fill_tensor(DType::F32, shape, Fill::Integers { lo: -4, hi: 4 }, seed)
}
