//! reverse_compute_inline{block}: fold an elementwise consumer into the map
//! block that produces its input.
//!
//! The producer then writes what the consumer wrote; the buffer between them
//! is no longer used.

use crate::illegal::Illegal;
use crate::legality::settled;
use crate::nest::{change, child_with, common, detach, path, plain_vars};
use crate::steps::block_named;
use ir::region::{Access, block_accesses, program_ranges};
use ir::simplify::simplify;
use ir::{BlockId, BufferId, Expr, ExprKind, Node, Program, Role, VarId, Write};

pub(crate) const STEP: &str = "reverse_compute_inline";

struct Plan {
    producer: BlockId,
    between: BufferId,
    /// The consumer's variable of each dimension of `between`.
    vars: Vec<VarId>,
}

pub(crate) fn apply(program: &mut Program, block: &str) -> Result<(), Illegal> {
    let c = block_named(program, STEP, block)?;
    let refuse = |why| Illegal::new(STEP, block, why);
    let plan = check(program, c).map_err(refuse)?;
    let produced = program.block(plan.producer).writes[0].clone();
    let at = |v: VarId| match plan.vars.iter().position(|x| *x == v) {
        Some(dim) => Some(produced.indices[dim].clone()),
        // Only variables of extent 1 are left.
        None => Some(Expr::int(0)),
    };
    let r = program_ranges(program);
    let fold = |e: &Expr| {
        // Loads first: the producer's value is over its own variables.
        let own = e.substitute(&at);
        let put = own.rewrite(&mut |e| match e.kind() {
            ExprKind::Load(b, _) if *b == plan.between => Some(produced.value.clone()),
            _ => None,
        });
        simplify(&put, &r)
    };
    let folded = |w: &Write| Write {
        buffer: w.buffer,
        indices: w.indices.iter().map(fold).collect(),
        value: fold(&w.value),
    };
    let writes = program.block(c).writes.iter().map(folded).collect();
    change(program, |next| {
        next.block_mut(plan.producer).writes = writes;
        detach(next, Node::Block(c));
        Ok(())
    })
    .map_err(refuse)
}

fn check(p: &Program, c: BlockId) -> Result<Plan, String> {
    settled(p, c)?;
    let consumer = p.block(c);
    if consumer.is_reduction() {
        return Err("it is a reduction".into());
    }
    if consumer.tensor.is_some() {
        return Err("it is tensorized".into());
    }
    let produced = |b: &BufferId| p.producers(*b).len() == 1 && p.consumers(*b) == [c];
    let mut candidates: Vec<Plan> = Vec::new();
    let mut why = "it has no input that one map block writes for it alone".to_string();
    for between in consumer.reads().into_iter().filter(produced) {
        match check_between(p, c, between) {
            Ok(plan) => candidates.push(plan),
            Err(reason) => why = reason,
        }
    }
    match candidates.len() {
        0 => Err(why),
        1 => Ok(candidates.remove(0)),
        _ => Err("several of its inputs could take it: inline those first".into()),
    }
}

fn check_between(p: &Program, c: BlockId, between: BufferId) -> Result<Plan, String> {
    let name = &p.buffer(between).name;
    let consumer = p.block(c);
    let producer = p.producers(between)[0];
    let block = p.block(producer);
    if p.buffer(between).role != Role::Intermediate {
        return Err(format!("`{name}` is not an intermediate"));
    }
    if block.is_reduction() || block.tensor.is_some() || block.writes.len() != 1 {
        return Err(format!(
            "`{name}` is not written by a map block of one output"
        ));
    }
    let extent = |v: &VarId| block.iters.iter().find(|i| i.var == *v).map(|i| i.extent);
    let written = plain_vars(block, &block.writes[0].indices)
        .ok_or_else(|| format!("`{name}` is not written by one variable per dimension"))?;
    let loads = block_accesses(consumer, between, Access::Reads);
    let vars = plain_vars(consumer, &loads[0])
        .filter(|_| loads.iter().all(|l| *l == loads[0]))
        .ok_or_else(|| format!("it does not read `{name}` element by element"))?;
    for i in &consumer.iters {
        let covered = match vars.iter().position(|v| *v == i.var) {
            Some(dim) => extent(&written[dim]) == Some(i.extent),
            None => i.extent == 1,
        };
        if !covered {
            return Err(format!("it does not read each element of `{name}` once"));
        }
    }
    if block
        .iters
        .iter()
        .any(|i| !written.contains(&i.var) && i.extent != 1)
    {
        return Err(format!("`{name}` is written more than once"));
    }
    inputs_ready(p, c, producer, between)?;
    Ok(Plan {
        producer,
        between,
        vars,
    })
}

/// Whether everything else that the consumer reads is complete where the producer runs.
fn inputs_ready(
    p: &Program,
    c: BlockId,
    producer: BlockId,
    between: BufferId,
) -> Result<(), String> {
    let at = path(p, Node::Block(producer));
    if !common(&at, &path(p, Node::Block(c))).is_empty() {
        return Err("it shares loops with its producer: fold it before nesting them".into());
    }
    let order = |b| child_with(p, None, Node::Block(b)).map(|(at, _)| at);
    for input in p.block(c).reads().into_iter().filter(|b| *b != between) {
        if p.producers(input)
            .into_iter()
            .any(|q| order(q) >= order(producer))
        {
            let name = &p.buffer(input).name;
            return Err(format!("its input `{name}` is complete only later"));
        }
    }
    Ok(())
}
