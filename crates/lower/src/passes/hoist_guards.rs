//! Conditions move outwards as far as their variables allow.
//!
//! For a loop whose body is one if: the conjuncts that do not use the loop
//! variable go round the loop. Neighbouring ifs are merged over their common
//! conjuncts. A check at the start of a loop that is the same on every
//! iteration leaves the loop, and so does a first statement that runs on
//! iteration 0 only: that is how the start value of an accumulator leaves the
//! reduction loops. Conditions with loads stay where they are. Those of a loop that
//! changes what they load are asked before the loop as well.

use crate::LowerError;
use crate::nest::{For, Nest, Stmt, conjuncts, guarded, has_load, loads, walk};
use ir::{BinaryOp, BufferId, Expr, ExprKind, LoopKind, VarId};
use std::collections::BTreeSet;

pub(crate) fn hoist_guards(nest: &mut Nest) -> Result<(), LowerError> {
    nest.map_entries(|_, stmts| {
        let (mut guards, mut checks) = (false, false);
        walk(&stmts, &mut Vec::new(), &mut |s, _| match s {
            Stmt::Check { .. } => checks = true,
            Stmt::If { .. } => guards = true,
            Stmt::For(l) => guards |= l.body.is_empty(),
            Stmt::Assign(_) | Stmt::Prefetch { .. } => {}
        });
        match guards || checks {
            true => hoisted(stmts, checks),
            false => stmts,
        }
    });
    Ok(())
}

/// `checks`: whether there may be some.
fn hoisted(stmts: Vec<Stmt>, checks: bool) -> Vec<Stmt> {
    let mut out: Vec<Stmt> = Vec::with_capacity(stmts.len());
    for s in stmts {
        match s {
            Stmt::For(mut l) => {
                l.body = hoisted(l.body, checks);
                for s in leave_loop(l, checks) {
                    push(&mut out, s);
                }
            }
            Stmt::If { cond, then } => {
                let then = hoisted(then, checks);
                for s in nested(conjuncts(&cond), then) {
                    push(&mut out, s);
                }
            }
            other => out.push(other),
        }
    }
    out
}

/// An if, with the conditions of an only inner if taken into its own.
fn nested(mut conds: Vec<Expr>, mut then: Vec<Stmt>) -> Vec<Stmt> {
    while let [Stmt::If { .. }] = then.as_slice()
        && let Some(Stmt::If { cond, then: inner }) = then.pop()
    {
        for c in conjuncts(&cond) {
            if !conds.contains(&c) {
                conds.push(c);
            }
        }
        then = inner;
    }
    guarded(conds, then)
}

/// Appends a statement, merging it into the last one if both are ifs with
/// common conditions.
fn push(out: &mut Vec<Stmt>, s: Stmt) {
    let (Some(Stmt::If { cond: last, .. }), Stmt::If { cond, .. }) = (out.last(), &s) else {
        out.push(s);
        return;
    };
    let (first, second) = (conjuncts(last), conjuncts(cond));
    let common: Vec<Expr> = first
        .iter()
        .filter(|c| second.contains(c) && !has_load(c))
        .cloned()
        .collect();
    if common.is_empty() {
        out.push(s);
        return;
    }
    let (Some(Stmt::If { then: a, .. }), Stmt::If { then: b, .. }) = (out.pop(), s) else {
        unreachable!("both statements are ifs");
    };
    let rest = |all: Vec<Expr>| all.into_iter().filter(|c| !common.contains(c)).collect();
    let mut body = guarded(rest(first), a);
    for s in guarded(rest(second), b) {
        push(&mut body, s);
    }
    out.extend(guarded(common.clone(), body));
}

/// The loop, with what does not depend on it outside.
fn leave_loop(mut l: For, checks: bool) -> Vec<Stmt> {
    let mut before = Vec::new();
    // Only checks ask for what is written.
    let written: BTreeSet<BufferId> = match checks {
        true => l.body.iter().flat_map(|s| s.written()).collect(),
        false => BTreeSet::new(),
    };
    let mut body = std::mem::take(&mut l.body);
    while let Some(s) = first_leaves(&mut body, &l, &written) {
        before.extend(hoisted(s, checks));
    }
    l.body = body;
    if l.body.is_empty() {
        return before;
    }
    if let [Stmt::If { cond, .. }] = l.body.as_slice() {
        let (stay, go): (Vec<Expr>, Vec<Expr>) = conjuncts(cond)
            .into_iter()
            .partition(|c| c.uses_var(l.var) || has_load(c));
        if !go.is_empty()
            && let Some(Stmt::If { then, .. }) = l.body.pop()
        {
            l.body = guarded(stay, then);
            before.extend(guarded(go, vec![Stmt::For(l)]));
            return before;
        }
    }
    let asked = asked_first(&l);
    before.extend(guarded(asked, vec![Stmt::For(l)]));
    before
}

/// Conditions of a loop that itself changes what its condition loads, as far as they do not use its variable. They
/// stay in the loop. Where one fails before it, the loop does nothing: a loop around may end there.
fn asked_first(l: &For) -> Vec<Expr> {
    let [Stmt::If { cond, .. }] = l.body.as_slice() else {
        return vec![];
    };
    if l.kind != LoopKind::Serial || !has_load(cond) {
        return vec![];
    }
    let written = l.body[0].written();
    if !loads(cond).iter().any(|(b, _)| written.contains(b)) {
        return vec![];
    }
    let mut all = conjuncts(cond);
    all.retain(|c| !c.uses_var(l.var));
    all
}

/// Takes the first thing that the body does out of it, if it can run before
/// the loop, and returns what then runs there.
fn first_leaves(body: &mut Vec<Stmt>, l: &For, written: &BTreeSet<BufferId>) -> Option<Vec<Stmt>> {
    let ordered = matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled);
    let zero = Expr::int(0);
    let at_zero = |e: &Expr| e.with_var(l.var, &zero);
    let first = body.first_mut()?;
    match first {
        Stmt::Check { cond, .. } => {
            if cond.uses_var(l.var) || !first.loaded().is_disjoint(written) {
                return None;
            }
            Some(vec![body.remove(0)])
        }
        Stmt::If { cond, then } if ordered => {
            let conds = conjuncts(cond);
            let (only_first, rest): (Vec<&Expr>, Vec<&Expr>) =
                conds.iter().partition(|c| is_first(c, l.var));
            if !only_first.is_empty() {
                let conds = rest.into_iter().map(at_zero).collect();
                let then = then.iter().map(|s| s.with_var(l.var, &zero)).collect();
                body.remove(0);
                return Some(guarded(conds, then));
            }
            // The first thing of an if is the first thing of the body.
            if has_load(cond) || !matches!(then.first(), Some(Stmt::If { .. })) {
                return None;
            }
            let taken = first_leaves(then, l, written)?;
            if then.is_empty() {
                body.remove(0);
            }
            Some(guarded(conds.iter().map(at_zero).collect(), taken))
        }
        _ => None,
    }
}

/// Whether a condition says that a loop variable is 0, in one of the forms that
/// the simplifier leaves it.
fn is_first(c: &Expr, v: VarId) -> bool {
    let ExprKind::Binary(op, a, b) = c.kind() else {
        return false;
    };
    match op {
        BinaryOp::Eq => {
            (a.as_var() == Some(v) && b.as_int() == Some(0))
                || (b.as_var() == Some(v) && a.as_int() == Some(0))
        }
        BinaryOp::Lt => a.as_var() == Some(v) && b.as_int() == Some(1),
        BinaryOp::Le => a.as_var() == Some(v) && b.as_int() == Some(0),
        _ => false,
    }
}
