//! reorder{loops}: put loops of one chain of only children into a new order.
//!
//! Loops of the chain that are not listed stay where they are. What a block
//! computes in an iteration does not depend on other iterations, with two exceptions. A
//! reduction starts with the point whose reduction variables are all 0: an
//! order that may visit another point of an output first is refused. An ordered block
//! reads what it wrote: its ordered loops keep their order.

use crate::illegal::Illegal;
use crate::legality::feeds;
use crate::nest::{conjuncts, path, path_through};
use crate::steps::loop_named;
use ir::{Block, Expr, IterKind, LoopId, LoopKind, Node, Program};

pub(crate) const STEP: &str = "reorder";

pub(crate) fn apply(program: &mut Program, names: &[String]) -> Result<(), Illegal> {
    let mut wanted = Vec::new();
    for name in names {
        let l = loop_named(program, STEP, name)?;
        if wanted.contains(&l) {
            return Err(Illegal::new(STEP, name, "it is listed twice"));
        }
        wanted.push(l);
    }
    let Some(first) = names.first() else {
        return Err(Illegal::new(STEP, "", "there are no loops"));
    };
    let refuse = |why: String| Illegal::new(STEP, first, why);
    let old = chain(program, &wanted).map_err(refuse)?;
    let mut next = wanted.iter();
    let new: Vec<LoopId> = old
        .iter()
        .map(|l| match wanted.contains(l) {
            true => *next.next().expect("as many places as loops"),
            false => *l,
        })
        .collect();
    check_reductions(program, &old, &new).map_err(refuse)?;
    check_order(program, &old, &new).map_err(refuse)?;

    let mut body = program.loop_(old[old.len() - 1]).body.clone();
    program.replace_node(Node::Loop(old[0]), &[Node::Loop(new[0])]);
    for l in new.into_iter().rev() {
        program.loop_mut(l).body = std::mem::replace(&mut body, vec![Node::Loop(l)]);
    }
    Ok(())
}

/// The loops from the outermost of the listed ones to the innermost.
fn chain(p: &Program, wanted: &[LoopId]) -> Result<Vec<LoopId>, String> {
    let deepest = wanted.iter().map(|l| path_through(p, *l));
    let deepest = deepest.max_by_key(Vec::len).expect("at least one loop");
    if let Some(l) = wanted.iter().find(|l| !deepest.contains(l)) {
        let name = &p.loop_(*l).name;
        return Err(format!("`{name}` is not in one chain with the others"));
    }
    let outermost = deepest.iter().position(|l| wanted.contains(l));
    let chain = deepest[outermost.expect("a listed loop")..].to_vec();
    for pair in chain.windows(2) {
        if p.children(Some(pair[0])) != [Node::Loop(pair[1])] {
            let (outer, inner) = (&p.loop_(pair[0]).name, &p.loop_(pair[1]).name);
            return Err(format!("`{inner}` is not the only child of `{outer}`"));
        }
    }
    for l in &chain {
        let l = p.loop_(*l);
        if !matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) {
            return Err(format!("`{}` is neither serial nor unrolled", l.name));
        }
    }
    Ok(chain)
}

/// Refuses to swap loops that together enumerate outputs and terms of a
/// reduction: the first point of an output would be another one.
fn check_reductions(p: &Program, old: &[LoopId], new: &[LoopId]) -> Result<(), String> {
    let at = |l: &LoopId| new.iter().position(|x| x == l);
    for b in p.blocks_under(&[Node::Loop(old[0])]) {
        let block = p.block(b);
        if !block.reduction.as_ref().is_some_and(|r| r.init) {
            continue;
        }
        let inside = path(p, Node::Block(b)).into_iter();
        let inside: Vec<LoopId> = inside.skip_while(|l| *l != old[0]).collect();
        for tangle in tangles(p, block, &inside) {
            let kept: Vec<&LoopId> = old.iter().filter(|l| tangle.contains(l)).collect();
            if let Some(pair) = kept.windows(2).find(|pair| at(pair[0]) > at(pair[1])) {
                let (a, b) = (&p.loop_(*pair[0]).name, &p.loop_(*pair[1]).name);
                let name = &block.name;
                return Err(format!(
                    "`{a}` and `{b}` together enumerate outputs and terms of `{name}`"
                ));
            }
        }
    }
    Ok(())
}

/// Refuses to swap loops in which a block goes on.
fn check_order(p: &Program, old: &[LoopId], new: &[LoopId]) -> Result<(), String> {
    for b in p.blocks_under(&[Node::Loop(old[0])]) {
        let block = p.block(b);
        let goes_on = |l: &&LoopId| feeds(block, p.loop_(**l).var, IterKind::Ordered);
        if !old.iter().filter(goes_on).eq(new.iter().filter(goes_on)) {
            return Err(format!("`{}` goes on in several of them", block.name));
        }
    }
    Ok(())
}

/// The groups of loops that are tied by common iteration variables or tests,
/// among them those of outputs as well as of terms.
fn tangles(p: &Program, block: &Block, loops: &[LoopId]) -> Vec<Vec<LoopId>> {
    let bindings = block.iters.iter().map(|i| &i.binding);
    let ties: Vec<&Expr> = bindings
        .chain(conjuncts(block.predicate.as_ref()))
        .collect();
    let mut rest: Vec<LoopId> = loops.to_vec();
    rest.retain(|l| p.loop_(*l).extent > 1);
    let mut groups = Vec::new();
    while let Some(first) = rest.pop() {
        let mut group = vec![first];
        let mut next = 0;
        while let Some(l) = group.get(next) {
            let var = p.loop_(*l).var;
            let (tied, others): (Vec<LoopId>, Vec<LoopId>) = rest.iter().partition(|x| {
                let other = p.loop_(**x).var;
                ties.iter().any(|e| e.uses_var(var) && e.uses_var(other))
            });
            rest = others;
            group.extend(tied);
            next += 1;
        }
        let any = |kind| group.iter().any(|l| feeds(block, p.loop_(*l).var, kind));
        if any(IterKind::Spatial) && any(IterKind::Reduce) {
            groups.push(group);
        }
    }
    groups
}
