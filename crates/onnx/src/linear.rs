//! Importers of matrix products.

use crate::node::{Imported, NodeImport};
use graph::ValueId;
use graph::ops::{Binary, Expand, Gemm, Op};

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
    let (a, b) = (n.input(0)?, n.input(1)?);
    // As in BLAS, what is multiplied by 0 is not read: it may hold NaN.
    let c = n.optional(2).filter(|_| gemm.beta != 0.0);
    let terms = |v, at: bool| n.shape(v).get(usize::from(at)).copied();
    let are_matrices = [a, b].iter().all(|v| n.shape(*v).len() == 2);
    if are_matrices && [terms(a, !gemm.trans_a), terms(b, gemm.trans_b)] == [Some(0); 2] {
        return without_terms(n, &gemm, [a, b], c);
    }
    let inputs = [Some(a), Some(b), c];
    let present = if c.is_some() { 3 } else { 2 };
    n.emit_all(Op::Gemm(gemm), &inputs[..present])
}

/// Sums of no products are 0, so that only the third operand is left.
fn without_terms(
    n: &mut NodeImport,
    gemm: &Gemm,
    [a, b]: [ValueId; 2],
    c: Option<ValueId>,
) -> Imported {
    let rows = n.shape(a)[usize::from(gemm.trans_a)];
    let columns = n.shape(b)[usize::from(!gemm.trans_b)];
    let (dtype, shape) = (n.dtype(a), vec![rows, columns]);
    let Some(c) = c else {
        return Ok(vec![n.filled(dtype, &shape, 0.0)?]);
    };
    let beta = n.filled(dtype, &[], f64::from(gemm.beta))?;
    let scaled = n.binary(Binary::Mul, c, beta)?;
    Ok(vec![n.emit(Op::Expand(Expand { shape }), &[scaled])?])
}
