//! compute_inline{block}: put a map block's value where it is loaded.
//!
//! The value moves under whatever guards the load, so what a lazy select kept
//! from being evaluated stays so.

use crate::illegal::Illegal;
use crate::legality::settled;
use crate::nest::{change, detach, plain_vars, rewrite_loads};
use crate::steps::block_named;
use ir::region::program_ranges;
use ir::simplify::simplify;
use ir::{BlockId, Node, Program, Role, VarId};

pub(crate) const STEP: &str = "compute_inline";

pub(crate) fn apply(program: &mut Program, block: &str) -> Result<(), Illegal> {
    let b = block_named(program, STEP, block)?;
    let refuse = |why| Illegal::new(STEP, block, why);
    let vars = check(program, b).map_err(refuse)?;
    let write = program.block(b).writes[0].clone();
    let r = program_ranges(program);
    change(program, |next| {
        for consumer in next.consumers(write.buffer) {
            rewrite_loads(next, consumer, write.buffer, &mut |indices| {
                let dim = |v: VarId| vars.iter().position(|x| *x == v);
                write
                    .value
                    .substitute(&|v| dim(v).map(|d| indices[d].clone()))
            });
            next.block_mut(consumer).map_statement(|e| simplify(e, &r));
        }
        detach(next, Node::Block(b));
        Ok(())
    })
    .map_err(refuse)
}

/// The variable of each dimension of the only write.
fn check(p: &Program, b: BlockId) -> Result<Vec<VarId>, String> {
    settled(p, b)?;
    let block = p.block(b);
    let [write] = &block.writes[..] else {
        return Err("it writes several buffers".into());
    };
    let buffer = p.buffer(write.buffer);
    if buffer.role != Role::Intermediate {
        return Err(format!("`{}` is not an intermediate", buffer.name));
    }
    if block.is_reduction() {
        return Err("it is a reduction".into());
    }
    if block.tensor.is_some() {
        return Err("it is tensorized".into());
    }
    if block.predicate.is_some() {
        return Err("it has a predicate: inline it before splitting its loops".into());
    }
    if p.producers(write.buffer) != [b] {
        return Err(format!("`{}` has other producers", buffer.name));
    }
    let vars = plain_vars(block, &write.indices)
        .ok_or("its write is not indexed by one variable per dimension")?;
    let free = |v: &VarId| !vars.contains(v);
    if write.value.vars().iter().any(free) {
        return Err("its value uses a variable that its write does not".into());
    }
    for c in p.consumers(write.buffer) {
        if p.block(c).tensor.is_some() {
            return Err(format!("its consumer `{}` is tensorized", p.block(c).name));
        }
    }
    Ok(vars)
}
