//! Between stored elements and the f64 and i64 the references compute with.

use tensor::{DType, Tensor};

/// Elements `start + i * stride` of `t` as f64, for every `i` of `out`.
pub(super) fn read_strided(t: &Tensor, start: usize, stride: usize, out: &mut [f64]) {
    fn copy<T: tensor::Element>(
        t: &Tensor,
        start: usize,
        stride: usize,
        out: &mut [f64],
        f: impl Fn(T) -> f64,
    ) {
        if out.is_empty() {
            return;
        }
        let from = t.as_slice::<T>()[start..].iter().step_by(stride.max(1));
        for (o, x) in out.iter_mut().zip(from) {
            *o = f(*x);
        }
    }
    match t.dtype() {
        DType::F32 => copy::<f32>(t, start, stride, out, f64::from),
        DType::F64 => copy::<f64>(t, start, stride, out, |x| x),
        _ => {
            for (i, o) in out.iter_mut().enumerate() {
                *o = t.get_f64(start + i * stride);
            }
        }
    }
}

/// All elements as f64.
pub(super) fn floats(t: &Tensor) -> Vec<f64> {
    let mut out = vec![0.0; t.len()];
    read_strided(t, 0, 1, &mut out);
    out
}

/// All elements as i64.
pub(super) fn integers(t: &Tensor) -> Vec<i64> {
    (0..t.len()).map(|i| t.get_i64(i)).collect()
}

/// A tensor of the values, each rounded once to `dtype`.
pub(super) fn from_floats(dtype: DType, shape: &[usize], values: &[f64]) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape);
    match dtype {
        DType::F32 => {
            for (o, v) in t.as_mut_slice::<f32>().iter_mut().zip(values) {
                *o = *v as f32;
            }
        }
        DType::F64 => t.as_mut_slice::<f64>().copy_from_slice(values),
        _ => {
            for (i, v) in values.iter().enumerate() {
                t.set_f64(i, *v);
            }
        }
    }
    t
}

/// A tensor of the values, wrapping to `dtype`.
pub(super) fn from_integers(dtype: DType, shape: &[usize], values: &[i64]) -> Tensor {
    let mut t = Tensor::zeros(dtype, shape);
    for (i, v) in values.iter().enumerate() {
        t.set_i64(i, *v);
    }
    t
}
