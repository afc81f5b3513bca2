//! Recover: which loop variables an element tells.
//!
//! Two instances touch one element if all their indices are equal. From equal
//! sums of loop variables, and of quotients and remainders of such sums, this
//! derives which variables must be equal too: a variable whose steps are wider
//! than what the smaller terms reach, and finer than the steps of the larger
//! ones, has one value per sum. Sound, not complete: predicates are not used.

use ir::affine::{Ranges, bounds};
use ir::simplify::simplify;
use ir::{BinaryOp, Expr, ExprKind, UnaryOp, VarId};
use std::rc::Rc;

/// The indices of one access, over loop variables.
pub(crate) struct Access {
    /// `None`: an index that tells nothing.
    dims: Vec<Option<Rc<Sum>>>,
}

impl Access {
    pub(crate) fn new(indices: &[Expr], r: &Ranges) -> Access {
        Access {
            dims: indices
                .iter()
                .map(|e| sum_of(&simplify(e, r), r).map(Rc::new))
                .collect(),
        }
    }
}

#[derive(Clone, Default)]
struct Sum {
    terms: Vec<Term>,
    constant: i64,
}

#[derive(Clone)]
struct Term {
    scale: i64,
    atom: Atom,
    lo: i64,
    hi: i64,
}

/// `source // lower % modulo`; without `modulo` just the quotient.
#[derive(Clone, PartialEq)]
struct Atom {
    source: Expr,
    lower: i64,
    modulo: Option<i64>,
}

/// Whether an instance with access `a` and one with access `b` can touch the
/// same element only if they agree on `var`, given that they agree on `fixed`.
pub(crate) fn same_iteration(
    a: &Access,
    b: &Access,
    var: VarId,
    fixed: &[VarId],
    r: &Ranges,
) -> bool {
    if r.get(var).is_some_and(|i| i.lo == i.hi) {
        return true;
    }
    let mut facts = Facts {
        vars: fixed.to_vec(),
        atoms: Vec::new(),
        covered: Vec::new(),
        pairs: Vec::new(),
    };
    for (x, y) in a.dims.iter().zip(&b.dims) {
        if let (Some(x), Some(y)) = (x, y) {
            facts.pairs.push((x.clone(), y.clone()));
        }
    }
    while !facts.vars.contains(&var) {
        if !facts.derive(r) {
            return false;
        }
    }
    true
}

/// What is known to be equal in both instances.
struct Facts {
    vars: Vec<VarId>,
    atoms: Vec<Atom>,
    /// Sources whose values follow from their digits.
    covered: Vec<Expr>,
    pairs: Vec<(Rc<Sum>, Rc<Sum>)>,
}

impl Facts {
    /// Adds one fact; false if there is none left.
    fn derive(&mut self, r: &Ranges) -> bool {
        for (a, b) in &self.pairs {
            let told = |t: &&Term| !self.knows(&t.atom) && self.told(t, a, b);
            if let Some(t) = a.terms.iter().find(told) {
                let atom = t.atom.clone();
                self.learn(atom, r);
                return true;
            }
        }
        false
    }

    fn knows(&self, atom: &Atom) -> bool {
        self.atoms.contains(atom)
            || (!atom.source.any(&|e| matches!(e.kind(), ExprKind::Load(..)))
                && atom.source.vars().iter().all(|v| self.vars.contains(v)))
    }

    /// Whether the term must be equal where the sums `a` and `b` are.
    fn told(&self, term: &Term, a: &Sum, b: &Sum) -> bool {
        let step = term.scale.abs();
        let in_sum = |t: &Term, s: &Sum| {
            let same = |x: &Term| x.atom == t.atom && x.scale == t.scale;
            s.terms.iter().any(same)
        };
        if !in_sum(term, b) {
            return false;
        }
        // What all but the term add to the difference of the sums: anything in
        // `lo..=hi` from finer steps, multiples of `coarse` from coarser ones.
        let (mut lo, mut hi) = (a.constant - b.constant, a.constant - b.constant);
        let mut coarse: i64 = 0;
        let mut add = |scale: i64, from: i64, to: i64| {
            if scale.abs() >= step {
                coarse = gcd(coarse, scale.abs());
                return;
            }
            let (x, y) = (scale.saturating_mul(from), scale.saturating_mul(to));
            lo = lo.saturating_add(x.min(y));
            hi = hi.saturating_add(x.max(y));
        };
        for t in &a.terms {
            if !in_sum(t, b) {
                add(t.scale, t.lo, t.hi);
            } else if t.atom != term.atom && !self.knows(&t.atom) {
                add(t.scale, t.lo - t.hi, t.hi - t.lo);
            }
        }
        for t in b.terms.iter().filter(|t| !in_sum(t, a)) {
            add(-t.scale, t.lo, t.hi);
        }
        let reach = lo.saturating_abs().max(hi.saturating_abs());
        let width = step.saturating_mul(term.hi - term.lo);
        reach < step && (coarse == 0 || coarse > width.saturating_add(reach))
    }

    fn learn(&mut self, atom: Atom, r: &Ranges) {
        self.atoms.push(atom);
        // A digit of one source may be the missing one of another.
        let open = |a: &&Atom| !self.covered.contains(&a.source) && self.covers(&a.source, r);
        let sources = self.atoms.iter().filter(open).map(|a| a.source.clone());
        for source in sources.collect::<Vec<_>>() {
            if !self.covered.contains(&source) {
                self.cover(source, r);
            }
        }
    }

    /// The value of a source is known: so are its variable, or its terms.
    fn cover(&mut self, source: Expr, r: &Ranges) {
        self.covered.push(source.clone());
        match source.as_var() {
            Some(v) => self.vars.push(v),
            None => {
                let whole = sum_of(&source, r);
                let itself = |s: &Sum| s.terms.len() == 1 && s.terms[0].atom.source == source;
                if let Some(s) = whole.filter(|s| !itself(s)) {
                    let s = Rc::new(s);
                    self.pairs.push((s.clone(), s));
                }
            }
        }
    }

    /// Whether the known digits of a source give its value.
    fn covers(&self, source: &Expr, r: &Ranges) -> bool {
        let range = bounds(source, r);
        let mut lower: i64 = 1;
        loop {
            if range.is_some_and(|i| 0 <= i.lo && i.hi < lower) {
                return true;
            }
            let digit = |a: &&Atom| is_digit(a, source, lower, r);
            let mut digits = self.atoms.iter().filter(digit).map(|a| a.modulo);
            match digits.next() {
                Some(None) => return true,
                Some(Some(m)) if m > 1 => lower = lower.saturating_mul(m),
                _ => return false,
            }
        }
    }
}

/// Whether an atom is taken from the quotient of `source` by `lower`, by its own source or
/// another one. Example: `(x * 16 + y) // 48` is `x // 3` where `y` is below 16.
fn is_digit(a: &Atom, source: &Expr, lower: i64, r: &Ranges) -> bool {
    let parts = |whole: &Expr, by: i64| simplify(&whole.clone().floor_div(by), r);
    match (a.lower % lower, lower % a.lower) {
        (0, 0) => a.source == *source,
        (0, _) => parts(&a.source, a.lower / lower) == *source,
        (_, 0) => parts(source, lower / a.lower) == a.source,
        _ => false,
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The sum that a simplified expression is; `None` if it has no bounds.
fn sum_of(e: &Expr, r: &Ranges) -> Option<Sum> {
    let mut sum = Sum::default();
    add_to(&mut sum, e, 1, r)?;
    Some(sum)
}

fn add_to(sum: &mut Sum, e: &Expr, scale: i64, r: &Ranges) -> Option<()> {
    match e.kind() {
        ExprKind::Int(v, _) => {
            sum.constant = sum.constant.checked_add(v.checked_mul(scale)?)?;
            Some(())
        }
        ExprKind::Unary(UnaryOp::Neg, a) => add_to(sum, a, scale.checked_neg()?, r),
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            add_to(sum, a, scale, r)?;
            add_to(sum, b, scale, r)
        }
        ExprKind::Binary(BinaryOp::Sub, a, b) => {
            add_to(sum, a, scale, r)?;
            add_to(sum, b, scale.checked_neg()?, r)
        }
        ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
            (_, Some(c)) => add_to(sum, a, scale.checked_mul(c)?, r),
            (Some(c), _) => add_to(sum, b, scale.checked_mul(c)?, r),
            _ => add_term(sum, e, scale, r),
        },
        _ => add_term(sum, e, scale, r),
    }
}

fn add_term(sum: &mut Sum, e: &Expr, scale: i64, r: &Ranges) -> Option<()> {
    if scale == 0 {
        return Some(());
    }
    let range = bounds(e, r)?;
    let atom = atom_of(e);
    match sum.terms.iter_mut().find(|t| t.atom == atom) {
        Some(t) => t.scale = t.scale.checked_add(scale)?,
        None => sum.terms.push(Term {
            scale,
            atom,
            lo: range.lo,
            hi: range.hi,
        }),
    }
    sum.terms.retain(|t| t.scale != 0);
    Some(())
}

fn atom_of(e: &Expr) -> Atom {
    let part = |e: &Expr, wanted: BinaryOp| match e.kind() {
        ExprKind::Binary(op, a, c) if *op == wanted => {
            c.as_int().filter(|c| *c > 0).map(|c| (a.clone(), c))
        }
        _ => None,
    };
    if let Some((a, lower)) = part(e, BinaryOp::FloorDiv) {
        return match part(&a, BinaryOp::FloorMod) {
            Some((source, m)) if m % lower == 0 => Atom {
                source,
                lower,
                modulo: Some(m / lower),
            },
            _ => Atom {
                source: a,
                lower,
                modulo: None,
            },
        };
    }
    if let Some((a, m)) = part(e, BinaryOp::FloorMod) {
        let (source, lower) = part(&a, BinaryOp::FloorDiv).unwrap_or((a, 1));
        return Atom {
            source,
            lower,
            modulo: Some(m),
        };
    }
    Atom {
        source: e.clone(),
        lower: 1,
        modulo: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, same_iteration};
    use ir::affine::Ranges;
    use ir::{BinaryOp, Expr, ExprKind, VarId};

    fn eval(e: &Expr, at: &[i64]) -> i64 {
        match e.kind() {
            ExprKind::Int(v, _) => *v,
            ExprKind::Var(v) => at[v.index()],
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (eval(a, at), eval(b, at));
                match op {
                    BinaryOp::Add => a + b,
                    BinaryOp::Mul => a * b,
                    BinaryOp::FloorDiv => a.div_euclid(b),
                    BinaryOp::FloorMod => a.rem_euclid(b),
                    other => panic!("{other:?}"),
                }
            }
            _ => panic!("{e:?}"),
        }
    }

    fn points(extents: &[i64]) -> Vec<Vec<i64>> {
        let mut out = vec![vec![]];
        for n in extents {
            out = out
                .iter()
                .flat_map(|p: &Vec<i64>| (0..*n).map(move |v| [p.as_slice(), &[v]].concat()))
                .collect();
        }
        out
    }

    /// The truth, by trying all pairs of instances.
    fn truth(a: &[Expr], b: &[Expr], extents: &[i64], var: usize, fixed: &[usize]) -> bool {
        let touched = |e: &[Expr], p: &[i64]| e.iter().map(|e| eval(e, p)).collect::<Vec<_>>();
        let all = points(extents);
        all.iter().all(|p| {
            all.iter().all(|q| {
                p[var] == q[var]
                    || fixed.iter().any(|f| p[*f] != q[*f])
                    || touched(a, p) != touched(b, q)
            })
        })
    }

    fn told(a: &[Expr], b: &[Expr], extents: &[i64], var: usize, fixed: &[usize]) -> bool {
        let mut r = Ranges::new();
        for (i, n) in extents.iter().enumerate() {
            r.set(VarId(i as u32), 0, n - 1);
        }
        let fixed: Vec<VarId> = fixed.iter().map(|f| VarId(*f as u32)).collect();
        let (a, b) = (Access::new(a, &r), Access::new(b, &r));
        same_iteration(&a, &b, VarId(var as u32), &fixed, &r)
    }

    fn v(i: u32) -> Expr {
        Expr::var(VarId(i))
    }

    #[test]
    fn tiles_and_fused_rows_tell_their_loops() {
        let tiled = [v(0) * 8 + v(1) * 4 + v(2)];
        for var in 0..3 {
            assert!(told(&tiled, &tiled, &[3, 2, 4], var, &[]));
        }
        let f = v(0) * 6 + v(1);
        let fused = [f.clone().floor_div(4), f.floor_mod(4)];
        assert!(told(&fused, &fused, &[4, 6], 0, &[]));
        assert!(told(&fused, &fused, &[4, 6], 1, &[]));
    }

    #[test]
    fn tiles_of_fused_axes_tell_their_loops_where_a_quotient_is_of_the_tile_alone() {
        let f = v(0) * 2 + v(1);
        // The first index is `v0 // 6`.
        let image = |plane: i64| {
            [
                f.clone().floor_div(plane),
                f.clone().floor_div(3).floor_mod(plane / 3),
                f.clone().floor_mod(3),
            ]
        };
        for var in [0, 1] {
            assert!(told(&image(12), &image(12), &[18, 2], var, &[]));
        }
        // Rows of four, of which a tile holds four: the last index is `v1 % 4`.
        let f = v(0) * 16 + v(1);
        let rows = [
            f.clone().floor_div(24),
            f.clone().floor_div(4).floor_mod(6),
            f.floor_mod(4),
        ];
        for var in [0, 1] {
            assert!(told(&rows, &rows, &[6, 16], var, &[]));
        }
        // An image is missing between the quotient and the other digits.
        let f = v(0) * 2 + v(1);
        let gap = [f.clone().floor_div(24), f.floor_mod(12)];
        assert!(!told(&gap, &gap, &[24, 2], 0, &[]));
    }

    #[test]
    fn overlaps_and_reductions_do_not() {
        let window = [v(0) * 2 + v(1)];
        assert!(!told(&window, &window, &[4, 3], 0, &[]));
        assert!(told(&window, &window, &[4, 3], 0, &[1]));
        assert!(!told(&[v(0)], &[v(0)], &[3, 3], 1, &[]));
        assert!(!told(&[v(0)], &[v(0) + 1], &[3], 0, &[]));
    }

    fn index(draw: &mut impl FnMut(i64) -> i64) -> Expr {
        let mut e = Expr::int(draw(2));
        for i in 0..3 {
            e = e + v(i) * [0, 1, 1, 2, 3, 4, 8][draw(7) as usize];
        }
        match draw(4) {
            0 => e.floor_div(1 + draw(4)),
            1 => e.floor_mod(2 + draw(4)),
            _ => e,
        }
    }

    #[test]
    fn what_is_told_is_true() {
        let mut state = 7u64;
        let mut draw = |n: i64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i64 % n
        };
        let (mut yes, mut no_but_true) = (0, 0);
        for _ in 0..4000 {
            let extents: Vec<i64> = (0..3).map(|_| 1 + draw(4)).collect();
            let a = [index(&mut draw), index(&mut draw)];
            let b = match draw(2) {
                0 => a.clone(),
                _ => [a[0].clone(), index(&mut draw)],
            };
            let var = draw(3) as usize;
            let fixed: &[usize] = if draw(2) == 0 { &[] } else { &[(var + 1) % 3] };
            let truth = truth(&a, &b, &extents, var, fixed);
            if told(&a, &b, &extents, var, fixed) {
                assert!(truth, "{a:?} {b:?} {extents:?} v{var} given {fixed:?}");
                yes += 1;
            } else {
                no_but_true += usize::from(truth);
            }
        }
        assert!(yes > 500, "told only {yes} (missed {no_but_true})");
    }
}
