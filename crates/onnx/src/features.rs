//! Importers of operators of ai.onnx.ml that are arithmetic on rows of features: those of pipelines that scale and weigh
//! what they get.

use crate::node::{Imported, NodeImport, Problem};
use graph::ValueId;
use graph::ops::{Binary, Concat, Gather, Op, Reduce, ReduceKind, Unary};
use tensor::{DType, Tensor};

/// A list of numbers that an attribute holds, as a constant.
fn numbers(
    n: &mut NodeImport,
    name: &str,
    shape: impl FnOnce(usize) -> Vec<usize>,
) -> Result<Option<ValueId>, Problem> {
    let Some(given) = n.attributes.floats(name)? else {
        return Ok(None);
    };
    let shape = shape(given.len());
    if shape.iter().product::<usize>() != given.len() || given.is_empty() {
        return Problem::unsupported(format!("{name} has {} numbers", given.len()));
    }
    let values = Tensor::from_slice(&shape, given);
    Ok(Some(n.model.add_result(&n.name, values)))
}

/// Elements along the last axis by their numbers.
pub(crate) fn array_feature_extractor(n: &mut NodeImport) -> Imported {
    let (x, places) = (n.input(0)?, n.input(1)?);
    let count = n.ty(places).len();
    let rank = n.ty(x).rank();
    if rank == 0 {
        return Problem::unsupported(format!("its input is {}", n.ty(x)));
    }
    let places = n.reshape(places, vec![count])?;
    let y = n.emit(Op::Gather(Gather { axis: rank - 1 }), &[x, places])?;
    Ok(vec![match rank {
        1 => n.reshape(y, vec![1, count])?,
        _ => y,
    }])
}

/// 1 above a threshold, else 0.
pub(crate) fn binarizer(n: &mut NodeImport) -> Imported {
    let threshold = n.attributes.float("threshold", 0.0)?;
    let x = n.input(0)?;
    let dtype = n.dtype(x);
    let limit = n.filled(DType::F32, &[], f64::from(threshold))?;
    let limit = n.cast(limit, dtype)?;
    let above = n.binary(Binary::Greater, x, limit)?;
    Ok(vec![n.cast(above, dtype)?])
}

/// (x - offset) scale, of each feature or of all.
pub(crate) fn scaler(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let mut y = n.cast(x, DType::F32)?;
    if let Some(offset) = numbers(n, "offset", |len| vec![len])? {
        y = n.binary(Binary::Sub, y, offset)?;
    }
    if let Some(scale) = numbers(n, "scale", |len| vec![len])? {
        y = n.binary(Binary::Mul, y, scale)?;
    }
    if n.shape(y) != n.shape(x) {
        return Problem::unsupported(format!("its scales do not fit {}", n.ty(x)));
    }
    Ok(vec![y])
}

/// Rows by their norms; as they are where that is 0.
pub(crate) fn normalizer(n: &mut NodeImport) -> Imported {
    let norm = n.attributes.text("norm", "MAX")?;
    let x = n.input(0)?;
    let x = n.cast(x, DType::F32)?;
    let last = n.axis(-1, n.ty(x).rank())?;
    let terms = match norm.as_str() {
        "L1" => n.unary(Unary::Abs, x)?,
        "L2" => n.binary(Binary::Mul, x, x)?,
        other => return Problem::unsupported(format!("norm=`{other}`")),
    };
    let reduce = Reduce {
        kind: ReduceKind::Sum,
        axes: vec![last],
        keepdims: true,
    };
    let mut size = n.emit(Op::Reduce(reduce), &[terms])?;
    if norm == "L2" {
        size = n.unary(Unary::Sqrt, size)?;
    }
    let quotient = n.binary(Binary::Div, x, size)?;
    let zero = n.filled(DType::F32, &[], 0.0)?;
    let is_zero = n.binary(Binary::Equal, size, zero)?;
    Ok(vec![n.emit(Op::Where, &[is_zero, x, quotient])?])
}

/// The rows' products with coefficients, plus intercepts.
pub(crate) fn linear_regressor(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let x = n.cast(x, DType::F32)?;
    let targets = n.attributes.int("targets", 1)?;
    let transform = n.attributes.text("post_transform", "NONE")?;
    if transform != "NONE" {
        return Problem::unsupported(format!("post_transform=`{transform}`"));
    }
    let (&[_, width], Ok(targets)) = (&n.shape(x)[..], usize::try_from(targets)) else {
        return Problem::unsupported(format!("targets={targets} of {}", n.ty(x)));
    };
    let Some(weights) = numbers(n, "coefficients", |_| vec![targets, width])? else {
        return Problem::unsupported("it has no coefficients");
    };
    let weights = crate::attention::transposed(n, weights, &[1, 0])?;
    let mut y = n.emit(Op::MatMul, &[x, weights])?;
    if let Some(intercepts) = numbers(n, "intercepts", |_| vec![targets])? {
        y = n.binary(Binary::Add, y, intercepts)?;
    }
    Ok(vec![y])
}

/// Rows of several operands beside each other.
pub(crate) fn feature_vectorizer(n: &mut NodeImport) -> Imported {
    let widths = n.attributes.ints("inputdimensions")?.unwrap_or(&[]);
    let mut parts = Vec::new();
    for (i, x) in n.all_inputs()?.into_iter().enumerate() {
        match (&n.shape(x)[..], widths.get(i)) {
            (&[_, own], Some(width)) if own as i64 == *width => {}
            (_, width) => {
                return Problem::unsupported(format!("inputdimensions {width:?} of {}", n.ty(x)));
            }
        }
        parts.push(n.cast(x, DType::F32)?);
    }
    match parts[..] {
        [] => Problem::unsupported("it has no operands"),
        [one] => Ok(vec![one]),
        _ => Ok(vec![n.emit(Op::Concat(Concat { axis: 1 }), &parts)?]),
    }
}
