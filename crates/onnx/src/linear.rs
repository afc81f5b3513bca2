//! Importers of matrix products.

use crate::node::{Imported, NodeImport};
use graph::ops::{Gemm, Op};

pub(crate) fn matmul(n: &mut NodeImport) -> Imported {
    let inputs = [n.input(0)?, n.input(1)?];
    Ok(vec![n.emit(Op::MatMul, &inputs)?])
}

pub(crate) fn gemm(n: &mut NodeImport) -> Imported {
    let gemm = Gemm {
        alpha: n.attributes.float("alpha", 1.0)?,
        beta: n.attributes.float("beta", 1.0)?,
        trans_a: n.attributes.flag("transA", false)?,
        trans_b: n.attributes.flag("transB", false)?,
    };
    let inputs = [Some(n.input(0)?), Some(n.input(1)?), n.optional(2)];
    let present = if inputs[2].is_some() { 3 } else { 2 };
    n.emit_all(Op::Gemm(gemm), &inputs[..present])
}
