//! Expressions take their simplest form, given the ranges of the loops around.
//!
//! Loops of one iteration vanish, conditions that the ranges decide too, and a
//! condition narrows the ranges of what it guards: the interior of a
//! partitioned loop loses its guards here. A loop that does nothing from an
//! iteration on ends there.

use crate::LowerError;
use crate::nest::{Assign, For, Nest, Stmt, conjuncts, guarded};
use ir::affine::{Affine, Interval, Ranges};
use ir::simplify::{is_index, simplify as canonical, simplify_sum};
use ir::{BinaryOp, Expr, ExprKind, ExprMap, LoopKind, VarId};
use std::borrow::Cow;
use std::collections::hash_map::Entry;

pub(crate) fn simplify(nest: &mut Nest) -> Result<(), LowerError> {
    let mut pass = Simplifier::default();
    // Ranges of loops and lanes are there already, so that few statements need a table of their own.
    let ranges = nest.ranges();
    nest.map_entries(|_, stmts| pass.stmts(stmts, &ranges));
    Ok(())
}

/// What was simplified before: unrolled code repeats conditions and offsets.
#[derive(Default)]
struct Simplifier {
    known: ExprMap<Known>,
}

struct Known {
    vars: Vec<VarId>,
    /// The simplest forms by the ranges of the variables, on which alone they depend: the first
    /// one, and others.
    first: (Vec<Option<Interval>>, Expr),
    others: Vec<(Vec<Option<Interval>>, Expr)>,
}

impl Known {
    fn form(&self, r: &Ranges) -> Option<&Expr> {
        let here = self.vars.iter().map(|v| r.get(*v));
        let same = |(ranges, _): &&(Vec<_>, Expr)| ranges.iter().copied().eq(here.clone());
        let mut all = std::iter::once(&self.first).chain(&self.others);
        all.find(same).map(|(_, form)| form)
    }
}

impl Simplifier {
    /// Unrolled code is hundreds of copies of arithmetic on loads. No rule applies to it but those of
    /// its operands, unless one is a constant.
    fn expr(&mut self, e: &Expr, r: &Ranges) -> Expr {
        match e.kind() {
            ExprKind::Load(..) => {
                self.once(e, r, |pass| e.map_children(|offset| pass.offset(offset, r)))
            }
            ExprKind::Binary(op, a, b)
                if !op.is_comparison()
                    && !op.is_logical()
                    && !is_constant(a)
                    && !is_constant(b) =>
            {
                let simple = e.map_children(|c| self.expr(c, r));
                match is_index(&simple) || simple.children().any(is_constant) {
                    true => self.canonical(e, r),
                    false => simple,
                }
            }
            _ => self.canonical(e, r),
        }
    }

    fn canonical(&mut self, e: &Expr, r: &Ranges) -> Expr {
        match is_constant(e) {
            true => e.clone(),
            false => self.once(e, r, |_| canonical(e, r)),
        }
    }

    /// Most offsets are sums of few different quotients.
    fn offset(&mut self, e: &Expr, r: &Ranges) -> Expr {
        match e.kind() {
            ExprKind::Int(..) | ExprKind::Var(_) => e.clone(),
            _ => simplify_sum(e, r, &mut |quotient| self.canonical(quotient, r))
                .unwrap_or_else(|| self.canonical(e, r)),
        }
    }

    /// The simplest form of an expression, which `simple` gives if it was not asked for before.
    fn once(&mut self, e: &Expr, r: &Ranges, simple: impl FnOnce(&mut Simplifier) -> Expr) -> Expr {
        if let Some(form) = self.known.get(e).and_then(|known| known.form(r)) {
            return form.clone();
        }
        let form = simple(self);
        let vars = e.vars();
        let found = (vars.iter().map(|v| r.get(*v)).collect(), form.clone());
        match self.known.entry(e.clone()) {
            Entry::Occupied(known) => known.into_mut().others.push(found),
            Entry::Vacant(place) => {
                place.insert(Known {
                    vars,
                    first: found,
                    others: vec![],
                });
            }
        }
        form
    }

    fn stmts(&mut self, stmts: Vec<Stmt>, r: &Ranges) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(stmts.len());
        for s in stmts {
            match s {
                Stmt::For(l) => out.extend(self.for_(l, r)),
                Stmt::If { cond, then } => {
                    let cond = self.expr(&cond, r);
                    if cond.as_int() == Some(0) {
                        continue;
                    }
                    let then = self.stmts(then, &narrowed(&cond, r));
                    out.extend(guarded(conjuncts(&cond), then));
                }
                Stmt::Assign(a) => out.extend(self.assign(a, r)),
                Stmt::Check { cond, code } => {
                    let cond = self.expr(&cond, r);
                    if cond.as_int() != Some(1) {
                        out.push(Stmt::Check { cond, code });
                    }
                }
                Stmt::Prefetch { buffer, offset } => {
                    let offset = self.offset(&offset, r);
                    out.push(Stmt::Prefetch { buffer, offset });
                }
            }
        }
        out
    }

    fn for_(&mut self, mut l: For, r: &Ranges) -> Vec<Stmt> {
        let body = std::mem::take(&mut l.body);
        if l.extent == 1 {
            let zero = Expr::int(0);
            let body = body.iter().map(|s| s.with_var(l.var, &zero));
            return self.stmts(body.collect(), r);
        }
        l.body = self.stmts(body, &with_range(r, l.var, l.extent));
        if l.body.is_empty() {
            return vec![];
        }
        match shortened(&mut l) {
            true => self.for_(l, r),
            false => vec![Stmt::For(l)],
        }
    }

    fn assign(&mut self, a: Assign, r: &Ranges) -> Option<Stmt> {
        let mut inside = match a.lane {
            Some(lane) => with_range(r, lane.var, i64::from(lane.lanes)),
            None => Cow::Borrowed(r),
        };
        let mask = a.mask.map(|m| self.expr(&m, &inside));
        if mask.as_ref().and_then(Expr::as_int) == Some(0) {
            return None;
        }
        let mask = mask.filter(|m| m.as_int() != Some(1));
        if let Some(m) = &mask {
            let mut narrow = narrowed(m, &inside);
            // One lane alone stays a lane: at a constant offset it would read by itself a
            // register that others read whole, and the register would be memory.
            if let Some(lane) = a.lane
                && narrow.get(lane.var).is_some_and(|i| i.lo == i.hi)
            {
                narrow.set(lane.var, 0, i64::from(lane.lanes) - 1);
            }
            inside = Cow::Owned(narrow);
        }
        let indices = a.indices.into_iter().map(|i| self.offset(&i, &inside));
        Some(Stmt::Assign(Assign {
            indices: indices.collect(),
            value: self.expr(&a.value, &inside),
            mask,
            ..a
        }))
    }
}

/// Ranges in which a variable is in `0..extent`: the same table if it says so.
fn with_range(r: &Ranges, v: VarId, extent: i64) -> Cow<'_, Ranges> {
    let (lo, hi) = (0, extent - 1);
    let mut with = Cow::Borrowed(r);
    if r.get(v) != Some(Interval { lo, hi }) {
        with.to_mut().set(v, lo, hi);
    }
    with
}

/// Lets a loop end where all of its body is guarded by an upper bound of its variable.
fn shortened(l: &mut For) -> bool {
    let [Stmt::If { cond, .. }] = &l.body[..] else {
        return false;
    };
    let in_order = matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled);
    if !in_order || !l.annotations.is_empty() {
        return false;
    }
    let bound = |c: &Expr| match c.kind() {
        ExprKind::Binary(BinaryOp::Lt, v, end) if v.as_var() == Some(l.var) => end.as_int(),
        _ => None,
    };
    let ends = conjuncts(cond);
    let Some(end) = ends
        .iter()
        .find_map(bound)
        .filter(|end| (1..l.extent).contains(end))
    else {
        return false;
    };
    l.extent = end;
    true
}

fn is_constant(e: &Expr) -> bool {
    matches!(e.kind(), ExprKind::Int(..) | ExprKind::Float(..))
}

/// The ranges where a condition holds: comparisons of one variable are used.
pub(crate) fn narrowed(cond: &Expr, r: &Ranges) -> Ranges {
    let mut out = r.clone();
    for c in conjuncts(cond) {
        let ExprKind::Binary(op, a, b) = c.kind() else {
            continue;
        };
        let Some(d) = Affine::of(&(b - a)) else {
            continue;
        };
        // d = b - a is at least `low`, and for an equality at most 0 too.
        let (low, both) = match op {
            BinaryOp::Lt => (1, false),
            BinaryOp::Le => (0, false),
            BinaryOp::Eq => (0, true),
            _ => continue,
        };
        at_least(&d, low, &mut out);
        if both {
            let negated = Affine {
                terms: d.terms.iter().map(|(v, c)| (*v, -c)).collect(),
                constant: -d.constant,
            };
            at_least(&negated, 0, &mut out);
        }
    }
    out
}

/// Narrows the range of the only variable of `d`, given `d >= low`.
fn at_least(d: &Affine, low: i64, r: &mut Ranges) {
    let mut terms = d.terms.iter();
    let (Some((v, c)), None) = (terms.next(), terms.next()) else {
        return;
    };
    let Some(range) = r.get(*v) else { return };
    let Some(rest) = low.checked_sub(d.constant) else {
        return;
    };
    // c * v >= rest
    let (lo, hi) = match *c {
        c if c > 0 => (range.lo.max(-(-rest).div_euclid(c)), range.hi),
        c if c < 0 => (range.lo, range.hi.min((-rest).div_euclid(-c))),
        _ => return,
    };
    if lo <= hi {
        r.set(*v, lo, hi);
    }
}
