//! Accesses get one element offset instead of one index per dimension.
//!
//! Parameters lie as their view says, everything else is dense and row-major;
//! dimensions of extent 1 contribute nothing.

use crate::LowerError;
use crate::nest::{Nest, Storage};
use ir::{BufferId, Expr};

/// Larger buffers would overflow byte offsets on real machines.
const MAX_BYTES: i64 = 1 << 47;

pub(crate) fn flatten(nest: &mut Nest) -> Result<(), LowerError> {
    for b in nest.program.buffer_ids() {
        let buffer = nest.program.buffer(b);
        let storage = &mut nest.storage[b.index()];
        let dense = row_major(&storage.shape);
        (storage.strides, storage.offset) = match &buffer.view {
            Some(v) => (v.strides.clone(), v.offset),
            None => (dense, 0),
        };
        let last = storage
            .shape
            .iter()
            .zip(&storage.strides)
            .try_fold(storage.offset, |o, (n, s)| {
                o.checked_add((n - 1).max(0).checked_mul((*s).max(0))?)
            });
        let bytes = last.and_then(|l| l.checked_add(1)?.checked_mul(buffer.dtype.size() as i64));
        if bytes.is_none_or(|n| n > MAX_BYTES) {
            return Err(LowerError::Bytes {
                name: nest.program.name.clone(),
                buffer: buffer.name.clone(),
            });
        }
        storage.elements = match storage.shape.contains(&0) {
            true => 0,
            false => last.expect("checked above") + 1,
        };
    }
    let Nest {
        storage,
        prepare,
        kernel,
        ..
    } = nest;
    for s in prepare.iter_mut().chain(kernel) {
        s.map_accesses(&mut |b, indices| Some(vec![offset(storage, b, indices)]));
    }
    Ok(())
}

fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(shape[d].max(1));
    }
    strides
}

fn offset(storage: &[Storage], b: BufferId, indices: &[Expr]) -> Expr {
    let s = &storage[b.index()];
    let mut sum: Option<Expr> = None;
    for ((i, stride), extent) in indices.iter().zip(&s.strides).zip(&s.shape) {
        // A dimension of one element is only ever accessed at its start.
        if *extent == 1 {
            continue;
        }
        let term = if *stride == 1 { i.clone() } else { i * *stride };
        sum = Some(match sum {
            Some(sum) => sum + term,
            None => term,
        });
    }
    match (sum, s.offset) {
        (None, c) => Expr::int(c),
        (Some(sum), 0) => sum,
        (Some(sum), c) => sum + c,
    }
}
