//! Variables: who owns them, where they may occur, and extents of domains.

use super::{Body, Broken, repeated};
use crate::expr::{Expr, ExprKind};
use crate::program::{Block, Reducer, VarId};
use std::collections::HashSet;

/// The block's own variables, those of its tensor operation included.
pub(super) fn own(b: &Block) -> Vec<VarId> {
    let points = b.tensor.iter().flat_map(|t| t.iters.iter().map(|i| i.0));
    b.iters.iter().map(|i| i.var).chain(points).collect()
}

/// A loop variable has one owner; two blocks may share a variable, since it
/// means nothing outside either.
pub(super) fn owners(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let p = body.p;
    let mut loops = HashSet::new();
    let mut shared = |v: VarId| {
        broken.push(Broken::SharedVariable {
            var: p.var(v).name.clone(),
        });
    };
    for (l, _) in &body.loops {
        let var = p.loop_(*l).var;
        if !loops.insert(var) {
            shared(var);
        }
    }
    let mut duplicates = Vec::new();
    for (b, _) in &body.blocks {
        let own = own(p.block(*b));
        for (i, v) in own.iter().enumerate() {
            if loops.contains(v) || own[..i].contains(v) {
                shared(*v);
            }
        }
        for name in repeated(own.iter().map(|v| p.var(*v).name.as_str())) {
            duplicates.push(Broken::DuplicateName {
                kind: "iteration variable",
                name: name.into(),
            });
        }
    }
    broken.extend(duplicates);
}

/// Bindings and predicates are over the loops around, statements over the
/// block's own variables, reducers over nothing.
pub(super) fn scopes(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let p = body.p;
    for (id, path) in &body.blocks {
        let b = p.block(*id);
        let around: Vec<VarId> = path.iter().map(|l| p.loop_(*l).var).collect();
        let bindings = b.iters.iter().map(|i| {
            let var = &p.var(i.var).name;
            (
                format!("binding of `{var}` in block `{}`", b.name),
                &i.binding,
            )
        });
        let predicate = b.predicate.iter();
        let predicate = predicate.map(|e| (format!("predicate of block `{}`", b.name), e));
        for (place, e) in bindings.chain(predicate) {
            uses(body, e, &around, &place, broken);
            if e.any(&|e| matches!(e.kind(), ExprKind::Load(..) | ExprKind::Arg(..))) {
                broken.push(Broken::NotAnIndex { place });
            }
        }
        let own = own(b);
        let place = format!("block `{}`", b.name);
        for e in b
            .writes
            .iter()
            .flat_map(|w| w.indices.iter().chain([&w.value]))
        {
            uses(body, e, &own, &place, broken);
        }
        let Some(Reducer::Tuple { combine, identity }) = b.reduction.as_ref().map(|r| &r.reducer)
        else {
            continue;
        };
        let open = |e: &Expr| matches!(e.kind(), ExprKind::Load(..) | ExprKind::Var(_));
        if combine.iter().chain(identity).any(|e| e.any(&open)) {
            broken.push(Broken::OpenReducer {
                place: format!("the reducer of block `{}`", b.name),
            });
        }
    }
}

fn uses(body: &Body<'_>, e: &Expr, scope: &[VarId], place: &str, broken: &mut Vec<Broken>) {
    for v in e.vars().into_iter().filter(|v| !scope.contains(v)) {
        broken.push(Broken::OutOfScope {
            place: place.into(),
            var: body.p.var(v).name.clone(),
        });
    }
}

/// Domains of loops, of blocks and of tensor operations are not empty.
pub(super) fn domains(body: &Body<'_>, broken: &mut Vec<Broken>) {
    let p = body.p;
    let mut check = |extent: i64, place: &dyn Fn() -> String| {
        if extent < 1 {
            let place = place();
            broken.push(Broken::Extent { place, extent });
        }
    };
    for (l, _) in &body.loops {
        let l = p.loop_(*l);
        check(l.extent, &|| format!("loop `{}`", l.name));
    }
    for (id, _) in &body.blocks {
        let b = p.block(*id);
        let iters = b.iters.iter().map(|i| (i.var, i.extent));
        let points = b.tensor.iter().flat_map(|t| &t.iters);
        for (var, extent) in iters.chain(points.map(|i| (i.0, i.1))) {
            check(extent, &|| {
                format!("variable `{}` of block `{}`", p.var(var).name, b.name)
            });
        }
    }
}
