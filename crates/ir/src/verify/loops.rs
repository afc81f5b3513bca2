//! Loops: names, kinds, annotations, and what may run together.

use super::{Body, Broken, repeated};
use crate::program::{Annotation, BufferId, IterKind, LoopId, LoopKind, Role, Scope};
use std::collections::HashMap;

/// Loops and blocks have names of their own; a loop shares its variable's.
pub(super) fn names(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let p = body.p;
    let loops = body.loops.iter().map(|(l, _)| p.loop_(*l).name.as_str());
    let blocks = body.blocks.iter().map(|(b, _)| p.block(*b).name.as_str());
    for (kind, names) in [("loop", repeated(loops)), ("block", repeated(blocks))] {
        broken.extend(names.into_iter().map(|n| Broken::DuplicateName {
            kind,
            name: n.into(),
        }));
    }
    for (l, _) in &body.loops {
        let l = p.loop_(*l);
        let var = &p.var(l.var).name;
        if *var != l.name {
            broken.push(Broken::LoopVariableName {
                name: l.name.clone(),
                var: var.clone(),
            });
        }
    }
}

pub(super) fn shape(body: &Body<'_>, broken: &mut Vec<Broken>) {
    for (l, _) in &body.loops {
        if body.p.loop_(*l).body.is_empty() {
            broken.push(Broken::EmptyLoop {
                name: body.loop_(*l),
            });
        }
    }
}

/// What a loop's kind forbids inside it.
pub(super) fn kinds(body: &Body<'_>, broken: &mut Vec<Broken>) {
    for (l, path) in &body.loops {
        let kind = body.p.loop_(*l).kind;
        for o in path {
            let names = || (body.loop_(*o), body.loop_(*l));
            match (body.p.loop_(*o).kind, kind) {
                (LoopKind::Vectorized, _) => {
                    let (outer, inner) = names();
                    broken.push(Broken::LoopInVectorized { outer, inner });
                }
                (LoopKind::Parallel, LoopKind::Parallel) => {
                    let (outer, inner) = names();
                    broken.push(Broken::ParallelInParallel { outer, inner });
                }
                (LoopKind::Bound(a), LoopKind::Bound(b)) if a == b => {
                    let (outer, inner) = names();
                    broken.push(Broken::BoundTwice { outer, inner });
                }
                _ => {}
            }
        }
    }
}

pub(super) fn annotations(body: &Body<'_>, broken: &mut Vec<Broken>) {
    for (l, _) in &body.loops {
        for a in &body.p.loop_(*l).annotations {
            let reason = match a {
                Annotation::UnrollBy(n) if *n < 1 => "the unroll factor is not positive",
                Annotation::Prefetch { distance, .. } if *distance < 1 => {
                    "the prefetch distance is not positive"
                }
                _ => continue,
            };
            broken.push(Broken::Annotation {
                name: body.loop_(*l),
                reason,
            });
        }
    }
}

/// The loops around all accesses to each intermediate, outermost first.
fn sites(body: &Body<'_>) -> HashMap<BufferId, Vec<LoopId>> {
    let mut sites: HashMap<BufferId, Vec<LoopId>> = HashMap::new();
    for (id, path) in &body.blocks {
        for b in accessed(body, *id) {
            if body.p.buffer(b).role != Role::Intermediate {
                continue;
            }
            let site = sites.entry(b).or_insert_with(|| path.clone());
            let common = site.iter().zip(path).take_while(|(x, y)| x == y).count();
            site.truncate(common);
        }
    }
    sites
}

fn accessed(body: &Body<'_>, block: crate::BlockId) -> Vec<BufferId> {
    let block = body.p.block(block);
    let mut out = block.reads();
    out.extend(block.writes.iter().map(|w| w.buffer));
    out
}

/// Iterations that run together reduce nothing across and write apart.
///
/// Syntactic: a write is held to be apart if a spatial variable of its indices,
/// or the block's predicate, depends on the loop. A block that never runs writes nothing.
pub(super) fn together(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let p = body.p;
    let sites = sites(body);
    for (id, path) in &body.blocks {
        let b = p.block(*id);
        for l in path {
            let name = || body.loop_(*l);
            let var = p.loop_(*l).var;
            let serial = matches!(p.loop_(*l).kind, LoopKind::Serial | LoopKind::Unrolled);
            if serial || p.loop_(*l).extent == 1 {
                continue;
            }
            let moved: Vec<_> = b.iters.iter().filter(|i| i.binding.uses_var(var)).collect();
            for i in moved.iter().filter(|i| i.kind != IterKind::Spatial) {
                broken.push(Broken::ReduceAcross {
                    name: name(),
                    block: b.name.clone(),
                    var: p.var(i.var).name.clone(),
                });
            }
            let test = b.predicate.as_ref();
            if test.is_some_and(|e| e.uses_var(var) || e.as_int() == Some(0)) {
                continue;
            }
            for w in &b.writes {
                let private = sites.get(&w.buffer).is_some_and(|s| s.contains(l));
                let apart = moved.iter().any(|i| {
                    i.kind == IterKind::Spatial && w.indices.iter().any(|e| e.uses_var(i.var))
                });
                if !private && !apart {
                    broken.push(Broken::SharedWrite {
                        name: name(),
                        block: b.name.clone(),
                        buffer: body.buffer(w.buffer),
                    });
                }
            }
        }
    }
}

/// A worker's private memory is allocated inside the loop that the workers share.
pub(super) fn private(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let sites = sites(body);
    let mut found = Vec::new();
    for (id, path) in &body.blocks {
        for b in accessed(body, *id) {
            let Some(site) = sites.get(&b) else { continue };
            if !matches!(body.p.buffer(b).scope, Scope::Local | Scope::Register) {
                continue;
            }
            let parallel = |l: &&LoopId| body.p.loop_(**l).kind == LoopKind::Parallel;
            for l in path[site.len()..].iter().filter(parallel) {
                if !found.contains(&(b, *l)) {
                    found.push((b, *l));
                }
            }
        }
    }
    broken.extend(found.into_iter().map(|(b, l)| Broken::PrivateShared {
        buffer: body.buffer(b),
        name: body.loop_(l),
    }));
}
