//! What depends on constants only moves to the prepare entry.
//!
//! A statement of the root is moved if everything it loads is a constant or
//! comes from moved statements, and everything it stores to is an intermediate
//! that only moved statements store to. Intermediates that cross the border
//! become prepared buffers.

use crate::LowerError;
use crate::flat::BufferPlace;
use crate::nest::{Nest, Stmt};
use ir::{BufferId, Role};
use std::collections::BTreeSet;

pub(crate) fn split_prepare(nest: &mut Nest) -> Result<(), LowerError> {
    let stmts = std::mem::take(&mut nest.kernel);
    let touched: Vec<(BTreeSet<BufferId>, BTreeSet<BufferId>)> =
        stmts.iter().map(|s| (s.loaded(), s.written())).collect();
    let role = |b: &BufferId| nest.program.buffer(*b).role;
    let mut moved: Vec<bool> = touched
        .iter()
        .map(|(_, written)| written.iter().all(|b| role(b) == Role::Intermediate))
        .collect();
    // Shrinks to the greatest set that supports itself.
    loop {
        let tainted: BTreeSet<BufferId> = touched
            .iter()
            .zip(&moved)
            .filter(|(_, m)| !**m)
            .flat_map(|((_, written), _)| written.iter().copied())
            .collect();
        let allowed = |b: &BufferId| match role(b) {
            Role::Constant => true,
            Role::Intermediate => !tainted.contains(b),
            Role::Input | Role::Output => false,
        };
        let kept: Vec<bool> = touched
            .iter()
            .zip(&moved)
            .map(|((loaded, written), m)| {
                *m && loaded.iter().all(allowed) && written.iter().all(|b| !tainted.contains(b))
            })
            .collect();
        if kept == moved {
            break;
        }
        moved = kept;
    }
    let crossing: BTreeSet<BufferId> = touched
        .iter()
        .zip(&moved)
        .filter(|(_, m)| !**m)
        .flat_map(|((loaded, _), _)| loaded.iter().copied())
        .collect();
    for ((_, written), _) in touched.iter().zip(&moved).filter(|(_, m)| **m) {
        for b in written.intersection(&crossing) {
            nest.storage[b.index()].place = Some(BufferPlace::Prepared);
        }
    }
    let (prepare, kernel): (Vec<_>, Vec<_>) =
        stmts.into_iter().zip(moved).partition(|(_, moved)| *moved);
    let strip = |list: Vec<(Stmt, bool)>| list.into_iter().map(|(s, _)| s).collect();
    nest.prepare = strip(prepare);
    nest.kernel = strip(kernel);
    Ok(())
}
