//! The promises of the statements between two passes.
//!
//! Variables are bound by a loop or lane around, types agree, and an access
//! has one index per dimension or one offset.

use crate::nest::{Assign, Nest, Stmt, loads};
use ir::{BufferId, DType, Expr, VarId};

/// What is broken, each with the statement's text; empty if nothing is.
pub(crate) fn verify(nest: &Nest) -> Vec<String> {
    let mut out = Vec::new();
    for stmts in [&nest.prepare, &nest.kernel] {
        check(nest, stmts, &mut Vec::new(), &mut out);
    }
    out
}

fn check(nest: &Nest, stmts: &[Stmt], scope: &mut Vec<VarId>, out: &mut Vec<String>) {
    let p = &nest.program;
    for s in stmts {
        let depth = scope.len();
        if let Stmt::Assign(Assign { lane: Some(l), .. }) = s {
            scope.push(l.var);
        }
        for e in s.exprs() {
            for v in e.vars().into_iter().filter(|v| !scope.contains(v)) {
                out.push(format!(
                    "variable {} is used outside its loop",
                    p.var(v).name
                ));
            }
            for (b, indices) in loads(e) {
                rank(nest, b, indices, out);
            }
        }
        match s {
            Stmt::Assign(a) => {
                rank(nest, a.buffer, &a.indices, out);
                let (is, want) = (a.value.dtype(p), p.buffer(a.buffer).dtype);
                if is != want {
                    let name = &p.buffer(a.buffer).name;
                    out.push(format!("{is} is stored to `{name}`, which holds {want}"));
                }
                if let Some(m) = &a.mask {
                    boolean(nest, m, out);
                }
            }
            Stmt::If { cond, then } => {
                boolean(nest, cond, out);
                check(nest, then, scope, out);
            }
            Stmt::Check { cond, .. } => boolean(nest, cond, out),
            Stmt::For(l) => {
                if scope.contains(&l.var) {
                    out.push(format!("loop `{}` is nested in itself", l.name));
                }
                scope.push(l.var);
                check(nest, &l.body, scope, out);
            }
            Stmt::Prefetch { .. } => {}
        }
        scope.truncate(depth);
    }
}

fn rank(nest: &Nest, b: BufferId, indices: &[Expr], out: &mut Vec<String>) {
    let want = nest.storage(b).shape.len();
    if indices.len() != want && indices.len() != 1 {
        let name = &nest.program.buffer(b).name;
        out.push(format!(
            "`{name}` of rank {want} has {} indices",
            indices.len()
        ));
    }
}

fn boolean(nest: &Nest, e: &Expr, out: &mut Vec<String>) {
    let is = e.dtype(&nest.program);
    if is != DType::Bool {
        out.push(format!("a condition has type {is}"));
    }
}
