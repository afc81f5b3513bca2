//! Importers of operators whose result is known when the model is read.

use crate::node::{Imported, NodeImport, Problem};
use crate::tensors::{any_tensor_from, tensor_from};
use std::sync::Arc;
use tensor::{DType, Tensor};

pub(crate) fn constant(n: &mut NodeImport) -> Imported {
    let value = if let Some(t) = n.attributes.tensor("value")? {
        let read = any_tensor_from(t.clone(), n.folder);
        let (value, kind) = read.map_err(|e| Problem::Unsupported(e.to_string()))?;
        let id = n.model.add_constant(&n.name, value);
        n.narrow.extend(kind.map(|k| (id, k)));
        return Ok(vec![id]);
    } else if let Some(v) = n.attributes.optional_float("value_float")? {
        Tensor::from_slice(&[], &[v])
    } else if let Some(v) = n.attributes.floats("value_floats")? {
        Tensor::from_slice(&[v.len()], v)
    } else if let Some(v) = n.attributes.optional_int("value_int")? {
        Tensor::from_slice(&[], &[v])
    } else if let Some(v) = n.attributes.ints("value_ints")? {
        Tensor::from_slice(&[v.len()], v)
    } else {
        return Problem::unsupported("it has no dense numeric value");
    };
    Ok(vec![n.model.add_constant(&n.name, value)])
}

pub(crate) fn constant_of_shape(n: &mut NodeImport) -> Imported {
    let Some(dims) = n.constant_ints(0, "shape")? else {
        return Problem::unsupported("it has no shape");
    };
    let shape: Option<Vec<usize>> = dims.iter().map(|d| usize::try_from(*d).ok()).collect();
    let Some(shape) = shape else {
        return Problem::unsupported(format!("its shape is {dims:?}"));
    };
    let value = match n.attributes.tensor("value")? {
        Some(t) => {
            tensor_from(t.clone(), n.folder).map_err(|e| Problem::Unsupported(e.to_string()))?
        }
        None => Tensor::zeros(DType::F32, &[1]),
    };
    if value.len() != 1 {
        return Problem::unsupported("its value has several elements");
    }
    Ok(vec![n.repeated(value, &shape)?])
}

pub(crate) fn shape(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let dims: Vec<i64> = n.ty(x).shape.iter().map(|d| *d as i64).collect();
    let (start, end) = span(n, dims.len())?;
    let dims = &dims[start..end];
    Ok(vec![n.model.add_constant(
        &n.name,
        Tensor::from_slice(&[dims.len()], dims),
    )])
}

/// The axes whose sizes `Shape` gives, of so many.
pub(crate) fn span(n: &NodeImport, rank: usize) -> Result<(usize, usize), Problem> {
    let rank = rank as i64;
    let bound = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
    let start = bound(n.attributes.int("start", 0)?);
    Ok((start, bound(n.attributes.int("end", rank)?).max(start)))
}

pub(crate) fn size(n: &mut NodeImport) -> Imported {
    let x = n.input(0)?;
    let count = n.ty(x).len() as i64;
    Ok(vec![
        n.model
            .add_constant(&n.name, Tensor::from_slice(&[], &[count])),
    ])
}

const NO_DELTA: &str = "its delta is 0";

/// start, start + delta, .. up to but without limit.
pub(crate) fn range(n: &mut NodeImport) -> Imported {
    let dtype = n.dtype(n.input(0)?);
    let mut bounds = Vec::with_capacity(3);
    for (i, role) in ["start", "limit", "delta"].into_iter().enumerate() {
        match n.constant(i, role)? {
            Some(t) if t.len() == 1 && t.dtype() == dtype => bounds.push(t),
            // That of com.microsoft may leave its step out.
            None if i == 2 => {
                let mut one = Tensor::zeros(dtype, &[]);
                one.set_f64(0, 1.0);
                bounds.push(Arc::new(one));
            }
            _ => {
                return Problem::unsupported(format!(
                    "its {role} is not one number of type {dtype}"
                ));
            }
        }
    }
    if dtype.is_float() {
        let bounds = [0, 1, 2].map(|i| bounds[i].get_f64(0));
        let [start, limit, delta] = bounds;
        if bounds.iter().any(|v| !v.is_finite()) {
            return Problem::unsupported(format!(
                "its start {start}, limit {limit} and delta {delta} are not all finite"
            ));
        }
        if delta == 0.0 {
            return Problem::unsupported(NO_DELTA);
        }
        let count = ((limit - start) / delta).ceil().max(0.0);
        return progression(n, dtype, count, |t, i| {
            t.set_f64(i, start + i as f64 * delta);
        });
    }
    let [start, limit, delta] = [0, 1, 2].map(|i| i128::from(bounds[i].get_i64(0)));
    if delta == 0 {
        return Problem::unsupported(NO_DELTA);
    }
    let span = limit - start;
    let count = if (span > 0) == (delta > 0) {
        span.unsigned_abs().div_ceil(delta.unsigned_abs())
    } else {
        0
    };
    progression(n, dtype, count as f64, |t, i| {
        t.set_i64(i, (start + i as i128 * delta) as i64);
    })
}

/// A constant vector, set element by element.
fn progression(
    n: &mut NodeImport,
    dtype: DType,
    count: f64,
    set: impl Fn(&mut Tensor, usize),
) -> Imported {
    n.take_elements(&[count as usize])?;
    let mut out = Tensor::zeros(dtype, &[count as usize]);
    (0..out.len()).for_each(|i| set(&mut out, i));
    Ok(vec![n.model.add_result(&n.name, out)])
}
