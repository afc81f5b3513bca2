//! Accesses get one element offset instead of one index per dimension.
//!
//! Parameters lie as their view says, everything else is dense and row-major;
//! dimensions of extent 1 contribute nothing.

use crate::LowerError;
use crate::nest::{Assign, Nest, Stmt, Storage};
use ir::{BufferId, Expr, ExprKind};

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
    nest.map_entries(|nest, stmts| stmts.into_iter().map(|s| flat(&nest.storage, s)).collect());
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

fn flat(storage: &[Storage], s: Stmt) -> Stmt {
    let in_loads = s.map(&mut |e| {
        e.rewrite(&mut |e| match e.kind() {
            ExprKind::Load(b, i) => Some(Expr::load(*b, vec![offset(storage, *b, i)])),
            _ => None,
        })
    });
    stores(storage, in_loads)
}

fn stores(storage: &[Storage], s: Stmt) -> Stmt {
    let all = |list: Vec<Stmt>| list.into_iter().map(|s| stores(storage, s)).collect();
    match s {
        Stmt::For(mut l) => {
            l.body = all(l.body);
            Stmt::For(l)
        }
        Stmt::If { cond, then } => Stmt::If {
            cond,
            then: all(then),
        },
        Stmt::Assign(a) => {
            let indices = vec![offset(storage, a.buffer, &a.indices)];
            Stmt::Assign(Assign { indices, ..a })
        }
        other => other,
    }
}
