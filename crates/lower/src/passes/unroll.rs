//! Unrolled loops become copies; an `UnrollBy` loop becomes a loop of fewer,
//! longer iterations and a rest.
//!
//! Copies are counted before they are made: the limit of the options is the
//! number of statements that code may have.

use crate::LowerError;
use crate::nest::{For, Nest, Stmt, count};
use ir::{Annotation, Expr, ExprKind, ExprMap, LoopKind, VarId};

pub(crate) fn unroll(nest: &mut Nest, limit: usize) -> Result<(), LowerError> {
    let mut failed = None;
    nest.map_entries(|nest, stmts| {
        let mut unroller = Unroller { nest, limit };
        unroller.stmts(stmts).unwrap_or_else(|e| {
            failed = Some(e);
            vec![]
        })
    });
    failed.map_or(Ok(()), Err)
}

struct Unroller<'a> {
    nest: &'a mut Nest,
    limit: usize,
}

impl Unroller<'_> {
    fn stmts(&mut self, stmts: Vec<Stmt>) -> Result<Vec<Stmt>, LowerError> {
        let mut out = Vec::with_capacity(stmts.len());
        for s in stmts {
            match s {
                Stmt::For(l) => out.extend(self.loop_(l)?),
                Stmt::If { cond, then } => {
                    let then = self.stmts(then)?;
                    out.push(Stmt::If { cond, then });
                }
                other => out.push(other),
            }
        }
        Ok(out)
    }

    fn loop_(&mut self, mut l: For) -> Result<Vec<Stmt>, LowerError> {
        l.body = self.stmts(l.body)?;
        if l.kind == LoopKind::Unrolled {
            self.check(&l, l.extent)?;
            return Ok(copies(&l, l.extent, Expr::int));
        }
        let factor = l.annotations.iter().find_map(|a| match a {
            Annotation::UnrollBy(f) if *f > 1 => Some((*f).min(l.extent)),
            _ => None,
        });
        match factor {
            Some(f) if l.kind == LoopKind::Serial => {
                self.check(&l, f)?;
                Ok(self.unroll_by(l, f))
            }
            _ => Ok(vec![Stmt::For(l)]),
        }
    }

    /// `extent / f` iterations of `f` copies, then what is left as a loop.
    fn unroll_by(&mut self, l: For, f: i64) -> Vec<Stmt> {
        let (main, rest) = (l.extent / f, l.extent % f);
        let mut annotations: Vec<Annotation> = Vec::new();
        for a in &l.annotations {
            if let Annotation::Prefetch { buffer, distance } = a {
                let distance = (distance + f - 1) / f;
                annotations.push(Annotation::Prefetch {
                    buffer: *buffer,
                    distance,
                });
            }
        }
        let mut out = Vec::new();
        if main == 1 {
            out.extend(copies(&l, f, Expr::int));
        } else {
            let var = self.nest.program.add_var(l.name.clone());
            let at = |i: i64| Expr::var(var) * f + i;
            out.push(Stmt::For(For {
                var,
                extent: main,
                annotations,
                body: copies(&l, f, at),
                ..l.clone_header()
            }));
        }
        match rest {
            0 => {}
            1 => out.extend(copy(&l, &Expr::int(main * f))),
            _ => {
                let at = Expr::var(l.var) + main * f;
                out.push(Stmt::For(For {
                    extent: rest,
                    annotations: vec![],
                    body: copy(&l, &at),
                    ..l.clone_header()
                }));
            }
        }
        out
    }

    fn check(&self, l: &For, copies: i64) -> Result<(), LowerError> {
        let statements = count(&l.body).saturating_mul(copies as usize);
        if statements > self.limit {
            return Err(LowerError::TooLarge {
                loop_name: l.name.clone(),
                statements,
                limit: self.limit,
            });
        }
        Ok(())
    }
}

/// The bodies of the first iterations, with a value each for the variable.
fn copies(l: &For, iterations: i64, at: impl Fn(i64) -> Expr) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(l.body.len() * iterations.max(0) as usize);
    for i in 0..iterations {
        out.extend(copy(l, &at(i)));
    }
    out
}

fn copy(l: &For, at: &Expr) -> Vec<Stmt> {
    if let [one] = &l.body[..] {
        return vec![one.with_var(l.var, at)];
    }
    let mut known = ExprMap::default();
    let copies = l.body.iter();
    copies
        .map(|s| s.map(&mut |e| with_var(e, l.var, at, &mut known)))
        .collect()
}

/// As [`Expr::with_var`]. Loads that several statements share stay shared, so that later passes
/// know them again.
fn with_var(e: &Expr, var: VarId, by: &Expr, known: &mut ExprMap<Expr>) -> Expr {
    if !e.may_use_var(var) {
        return e.clone();
    }
    if !matches!(e.kind(), ExprKind::Load(..)) {
        return match e.loads() {
            true => e.map_children(|c| with_var(c, var, by, known)),
            false => e.with_var(var, by),
        };
    }
    if let Some(copy) = known.get(e) {
        return copy.clone();
    }
    let copy = e.with_var(var, by);
    known.insert(e.clone(), copy.clone());
    copy
}
