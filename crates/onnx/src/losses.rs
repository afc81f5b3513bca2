//! Importers of losses and of constant windows.

use crate::node::{Imported, NodeImport, Problem};
use crate::norm::log_softmax_along;
use graph::ValueId;
use graph::ops::{Binary, Gather, GatherElements, Op, Reduce, ReduceKind, Unary};
use std::f64::consts::PI;
use tensor::Tensor;

pub(crate) fn negative_log_likelihood(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    Ok(vec![likelihood(n, x)?])
}

pub(crate) fn softmax_cross_entropy(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    if n.ty(x).rank() < 2 {
        return Problem::unsupported(format!("its scores are {}", n.ty(x)));
    }
    let logarithms = log_softmax_along(n, x, 1)?;
    Ok(vec![likelihood(n, logarithms)?, logarithms])
}

/// Minus the element of the target's class, weighed, in each place; their sum or mean.
fn likelihood(n: &mut NodeImport, x: ValueId) -> Result<ValueId, Problem> {
    let (target, weights) = (n.input(1)?, n.optional(2));
    let ignored = n.attributes.optional_int("ignore_index")?;
    let reduction = n.attributes.text("reduction", "mean")?;
    let (shape, dtype) = (n.shape(x), n.dtype(x));
    let mut wanted = shape.clone();
    if shape.len() < 2 || n.ty(x).is_empty() {
        return Problem::unsupported(format!("its input is {}", n.ty(x)));
    }
    wanted.remove(1);
    if n.shape(target) != wanted {
        return Problem::unsupported(format!("its target is {} for {}", n.ty(target), n.ty(x)));
    }
    let kept = match ignored {
        None => None,
        Some(i) => {
            let index = n.filled(n.dtype(target), &[], i as f64)?;
            let same = n.binary(Binary::Equal, target, index)?;
            Some(n.unary(Unary::Not, same)?)
        }
    };
    // An ignored class may be none.
    let class = match kept {
        None => target,
        Some(kept) => {
            let zero = n.filled(n.dtype(target), &[], 0.0)?;
            n.emit(Op::Where, &[kept, target, zero])?
        }
    };
    let mut column = wanted.clone();
    column.insert(1, 1);
    let indices = n.reshape(class, column)?;
    let op = Op::GatherElements(GatherElements { axis: 1 });
    let chosen = n.emit(op, &[x, indices])?;
    let chosen = n.reshape(chosen, wanted.clone())?;
    let mut loss = n.unary(Unary::Neg, chosen)?;
    let mut weight = match weights {
        Some(w) => Some(n.emit(Op::Gather(Gather { axis: 0 }), &[w, class])?),
        None => None,
    };
    if let Some(kept) = kept {
        let own = match weight {
            Some(w) => w,
            None => n.filled(dtype, &[], 1.0)?,
        };
        let zero = n.filled(dtype, &[], 0.0)?;
        weight = Some(n.emit(Op::Where, &[kept, own, zero])?);
    }
    if let Some(weight) = weight {
        loss = n.binary(Binary::Mul, loss, weight)?;
    }
    let mut total = |kind: ReduceKind, x: ValueId| {
        let axes = (0..n.ty(x).rank()).collect();
        let keepdims = false;
        let reduce = Reduce {
            kind,
            axes,
            keepdims,
        };
        n.emit(Op::Reduce(reduce), &[x])
    };
    match (reduction.as_str(), weight) {
        ("none", _) => Ok(loss),
        ("sum", _) => total(ReduceKind::Sum, loss),
        ("mean", None) => total(ReduceKind::Mean, loss),
        ("mean", Some(weight)) => {
            let (sum, all) = (
                total(ReduceKind::Sum, loss)?,
                total(ReduceKind::Sum, weight)?,
            );
            n.binary(Binary::Div, sum, all)
        }
        (other, _) => Problem::unsupported(format!("reduction=`{other}`")),
    }
}

/// A window with these weights of the cosines of 0, 1 and 2 turns.
fn window(n: &mut NodeImport, cosines: [f64; 3]) -> Imported {
    let size = n.constant_scalar(0, "size")?.unwrap_or(-1.0);
    let dtype = n.attributes.int("output_datatype", 1)?;
    let dtype = crate::tensors::dtype_of(i32::try_from(dtype).unwrap_or(0))
        .map_err(|e| Problem::Unsupported(e.to_string()))?;
    let periodic = n.attributes.flag("periodic", true)?;
    if size < 0.0 {
        return Problem::unsupported(format!("its size is {size}"));
    }
    // What is no number is 0, and what is too large is the largest.
    n.take_elements(&[size as usize])?;
    let mut out = Tensor::zeros(dtype, &[size as usize]);
    let turn = 2.0 * PI / if periodic { size } else { size - 1.0 };
    for i in 0..out.len() {
        let terms = cosines.iter().enumerate();
        let angle = |k: usize| (k as f64 * turn * i as f64).cos();
        out.set_f64(i, terms.map(|(k, c)| c * angle(k)).sum());
    }
    Ok(vec![n.model.add_result(&n.name, out)])
}

pub(crate) fn hann_window(n: &mut NodeImport) -> Imported {
    window(n, [0.5, -0.5, 0.0])
}

pub(crate) fn hamming_window(n: &mut NodeImport) -> Imported {
    window(n, [25.0 / 46.0, -21.0 / 46.0, 0.0])
}

pub(crate) fn blackman_window(n: &mut NodeImport) -> Imported {
    window(n, [0.42, -0.5, 0.08])
}
