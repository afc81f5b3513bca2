//! widen{buffer}: keep an intermediate in the type that its readers compute in.
//!
//! Readers cast each element to a type that holds all its values; the producers cast it
//! instead, once. Which numbers the readers see does not change.

use crate::illegal::Illegal;
use crate::nest::change;
use crate::steps::buffer_named;
use ir::{BufferId, DType, Expr, ExprKind, Program, Role};

pub(crate) const STEP: &str = "widen";

pub(crate) fn apply(program: &mut Program, buffer: &str) -> Result<(), Illegal> {
    let b = buffer_named(program, STEP, buffer)?;
    let refuse = |why: String| Illegal::new(STEP, buffer, why);
    let to = read_as(program, b).map_err(refuse)?;
    change(program, |next| {
        next.buffer_mut(b).dtype = to;
        let usage = next.usage()[b.index()].clone();
        for consumer in usage.consumers {
            next.block_mut(consumer).map_statement(|e| {
                e.rewrite(&mut |e| match e.kind() {
                    ExprKind::Cast(d, a) if *d == to && loads(a, b) => Some(a.clone()),
                    _ => None,
                })
            });
        }
        for producer in usage.producers {
            for w in &mut next.block_mut(producer).writes {
                if w.buffer == b {
                    w.value = w.value.clone().cast(to);
                }
            }
        }
        Ok(())
    })
    .map_err(refuse)
}

/// Whether an expression is an element of a buffer.
fn loads(e: &Expr, b: BufferId) -> bool {
    matches!(e.kind(), ExprKind::Load(of, _) if *of == b)
}

/// The type that all readers cast elements to.
fn read_as(p: &Program, b: BufferId) -> Result<DType, String> {
    let (info, usage) = (p.buffer(b), &p.usage()[b.index()]);
    if info.role != Role::Intermediate {
        return Err("a parameter keeps its type".into());
    }
    let all = usage.producers.iter().chain(&usage.consumers);
    for block in all.map(|id| p.block(*id)) {
        if block.tensor.is_some() {
            return Err(format!("`{}` is tensorized", block.name));
        }
        if block.reduction.is_some() && block.written().contains(&b) {
            return Err(format!("`{}` adds to it in its own type", block.name));
        }
    }
    let mut found = None;
    for block in usage.consumers.iter().map(|id| p.block(*id)) {
        let (mut all, mut cast) = (0, 0);
        block.clone().map_statement(|e| {
            e.visit(&mut |e| match e.kind() {
                ExprKind::Load(of, _) if *of == b => all += 1,
                ExprKind::Cast(d, a) if loads(a, b) && *found.get_or_insert(*d) == *d => cast += 1,
                _ => {}
            });
            e.clone()
        });
        if all != cast {
            return Err(format!("`{}` reads it in another type", block.name));
        }
    }
    match found {
        Some(to) if holds(to, info.dtype) => Ok(to),
        Some(to) => Err(format!("{to} does not hold every {}", info.dtype)),
        None => Err("nothing reads it".into()),
    }
}

/// Whether every number of a type is one of the wider type `to`.
fn holds(to: DType, from: DType) -> bool {
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    match from {
        F16 | BF16 => matches!(to, F32 | F64),
        F32 => to == F64,
        I8 | U8 => matches!(to, F16 | F32 | F64 | I32 | I64),
        I16 | U16 => matches!(to, I32 | I64),
        U32 => to == I64,
        I32 => matches!(to, F64 | I64),
        Bool => to != Bool,
        F64 | I64 | U64 => false,
    }
}
