//! Accesses of flat code to a buffer, in a form in which lines are counted quickly.
//!
//! An offset is a sum of terms with constant factors, and a constant. Unrolled code has many accesses
//! that differ by their constants alone, so what remains is numbered once, and constants are
//! kept in sets.

use ir::affine::{Affine, Interval, bounds};
use ir::{BinaryOp, DType, Expr, ExprKind, ExprMap, UnaryOp, VarId};
use std::cell::RefCell;
use std::collections::HashMap;

/// A term: a variable by its number, or after all variables another expression.
pub(crate) type Term = u32;
/// `sum of factor * term`, by number.
pub(crate) type Form = u32;

/// Numbers of values of variables, by id: 1 where a variable does not vary.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    of: Vec<i64>,
    /// Whether a variable was ever set.
    known: Vec<bool>,
    /// Counts changes of variables that were set before.
    changes: u32,
}

impl Extents {
    pub fn new(variables: usize) -> Extents {
        Extents {
            of: vec![1; variables],
            known: vec![false; variables],
            changes: 0,
        }
    }

    pub fn of(&self, v: VarId) -> i64 {
        self.of[v.index()]
    }

    /// The variable varies; `before` is the number that counted for what was read earlier.
    pub fn set_from(&mut self, v: VarId, extent: i64, before: i64) {
        let extent = extent.max(1);
        if self.known[v.index()] && before != extent {
            self.changes += 1;
        }
        (self.of[v.index()], self.known[v.index()]) = (extent, true);
    }

    pub fn set(&mut self, v: VarId, extent: i64) {
        self.set_from(v, extent, self.of(v));
    }

    /// The variable does not vary until it is set; gives the number that it had.
    pub fn hold(&mut self, v: VarId) -> i64 {
        std::mem::replace(&mut self.of[v.index()], 1)
    }

    pub fn changes(&self) -> u32 {
        self.changes
    }
}

/// A term that is no variable (a quotient, a remainder, a loaded index).
#[derive(Debug)]
struct Other {
    expr: Expr,
    vars: Vec<VarId>,
    /// Numbers of values that its variables had, and the number that the term had then.
    last: RefCell<(Vec<i64>, i64)>,
}

impl Other {
    /// At most as many as its variables have combinations.
    fn values(&self, extents: &Extents) -> i64 {
        let mut last = self.last.borrow_mut();
        let now = self.vars.iter().map(|v| extents.of(*v));
        if last.1 > 0 && last.0.iter().copied().eq(now.clone()) {
            return last.1;
        }
        let points = now.clone().fold(1_i64, i64::saturating_mul);
        let mut ranges = ir::affine::Ranges::new();
        for (v, n) in self.vars.iter().zip(now.clone()) {
            // What does not vary has some value, and which decides little.
            ranges.set_extent(*v, n);
        }
        let interval: Option<Interval> = bounds(&self.expr, &ranges);
        let width = interval.map_or(i64::MAX, |i| i.hi.saturating_sub(i.lo).saturating_add(1));
        *last = (now.collect(), points.min(width.max(1)));
        last.1
    }
}

/// The terms and sums of a piece of code.
#[derive(Debug)]
pub(crate) struct Forms {
    variables: u32,
    others: Vec<Other>,
    numbers: HashMap<Vec<(Term, i64)>, Form>,
    /// Of each sum, by rising factors.
    terms: Vec<Vec<(Term, i64)>>,
    affine: Vec<(VarId, i64)>,
    /// What offsets are: unrolled code repeats them.
    known: ExprMap<(Form, i64)>,
}

impl Forms {
    pub fn new(variables: usize) -> Forms {
        Forms {
            variables: variables as u32,
            others: vec![],
            numbers: HashMap::new(),
            terms: vec![],
            affine: vec![],
            known: ExprMap::default(),
        }
    }

    /// The sum and the constant of an offset.
    pub fn of(&mut self, offset: &Expr) -> (Form, i64) {
        if let Some(known) = self.known.get(offset) {
            return *known;
        }
        let found = self.read(offset);
        self.known.insert(offset.clone(), found);
        found
    }

    fn read(&mut self, offset: &Expr) -> (Form, i64) {
        let mut sum = (Vec::new(), 0);
        self.add(offset, 1, &mut sum);
        let (mut terms, constant) = sum;
        terms.sort_by_key(|(_, factor)| *factor);
        if let Some(known) = self.numbers.get(&terms) {
            return (*known, constant);
        }
        let form = self.terms.len() as Form;
        self.terms.push(terms.clone());
        self.numbers.insert(terms, form);
        (form, constant)
    }

    pub fn terms(&self, form: Form) -> &[(Term, i64)] {
        &self.terms[form as usize]
    }

    /// How many values a term has, at most.
    pub fn values(&self, term: Term, extents: &Extents) -> i64 {
        match term.checked_sub(self.variables) {
            None => extents.of(VarId(term)),
            Some(other) => self.others[other as usize].values(extents),
        }
    }

    fn add(&mut self, e: &Expr, factor: i64, sum: &mut (Vec<(Term, i64)>, i64)) {
        let mut affine = std::mem::take(&mut self.affine);
        affine.clear();
        if let Some(constant) = linear(e, 1, &mut affine) {
            sum.1 = sum.1.saturating_add(constant.saturating_mul(factor));
            affine.sort_unstable_by_key(|(v, _)| *v);
            for (v, c) in affine.iter().filter(|(_, c)| *c != 0) {
                add_term(v.0, c.saturating_mul(factor), &mut sum.0);
            }
            self.affine = affine;
            return;
        }
        self.affine = affine;
        match e.kind() {
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                self.add(a, factor, sum);
                self.add(b, factor, sum);
            }
            ExprKind::Binary(BinaryOp::Sub, a, b) => {
                self.add(a, factor, sum);
                self.add(b, factor.saturating_neg(), sum);
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.as_int(), b.as_int()) {
                (Some(k), _) => self.add(b, factor.saturating_mul(k), sum),
                (_, Some(k)) => self.add(a, factor.saturating_mul(k), sum),
                _ => add_term(self.other(e), factor, &mut sum.0),
            },
            _ => add_term(self.other(e), factor, &mut sum.0),
        }
    }

    fn other(&mut self, e: &Expr) -> Term {
        let known = self.others.iter().position(|o| o.expr == *e);
        let at = known.unwrap_or_else(|| {
            self.others.push(Other {
                expr: e.clone(),
                vars: e.vars(),
                last: RefCell::default(),
            });
            self.others.len() - 1
        });
        self.variables + at as u32
    }
}

fn add_term(term: Term, factor: i64, terms: &mut Vec<(Term, i64)>) {
    match terms.iter_mut().find(|(t, _)| *t == term) {
        Some((_, f)) => *f = f.saturating_add(factor),
        None => terms.push((term, factor)),
    }
}

/// Adds the variables of `k` times a linear form to `terms`, some of which may get the factor 0,
/// and gives its constant. As [`Affine::of`], without its maps.
fn linear(e: &Expr, k: i64, terms: &mut Vec<(VarId, i64)>) -> Option<i64> {
    let mut add = |v: VarId, c: i64| match terms.iter_mut().find(|(t, _)| *t == v) {
        Some((_, f)) => *f = f.wrapping_add(c),
        None => terms.push((v, c)),
    };
    match e.kind() {
        ExprKind::Int(v, DType::I64) => Some(v.wrapping_mul(k)),
        ExprKind::Var(v) => {
            add(*v, k);
            Some(0)
        }
        ExprKind::Unary(UnaryOp::Neg, a) => linear(a, k.wrapping_neg(), terms),
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            Some(linear(a, k, terms)?.wrapping_add(linear(b, k, terms)?))
        }
        ExprKind::Binary(BinaryOp::Sub, a, b) => {
            let (a, b) = (linear(a, k, terms)?, linear(b, k.wrapping_neg(), terms)?);
            Some(a.wrapping_add(b))
        }
        ExprKind::Binary(BinaryOp::Mul, a, b) => match (a.kind(), b.kind()) {
            (ExprKind::Int(c, DType::I64), _) => linear(b, k.wrapping_mul(*c), terms),
            (_, ExprKind::Int(c, DType::I64)) => linear(a, k.wrapping_mul(*c), terms),
            _ => {
                let whole = Affine::of(e)?;
                for (v, c) in &whole.terms {
                    add(*v, c.wrapping_mul(k));
                }
                Some(whole.constant.wrapping_mul(k))
            }
        },
        _ => None,
    }
}

/// Constants that differ, and the steps that reach them from the first.
#[derive(Clone, Debug)]
pub(crate) struct Constants {
    sorted: Vec<i64>,
    steps: Vec<(i64, i64)>,
}

impl Constants {
    pub fn of(mut all: Vec<i64>) -> Constants {
        all.sort_unstable();
        all.dedup();
        Constants {
            steps: constant_steps(&all),
            sorted: all,
        }
    }

    pub fn sorted(&self) -> &[i64] {
        &self.sorted
    }

    /// Distances and how many numbers are so far apart.
    pub fn steps(&self) -> &[(i64, i64)] {
        &self.steps
    }
}

/// Sorted numbers as steps and how often they are taken: 0, 1, 8, 9 are two of 1 and two of 8.
/// Of numbers without such a form, one step that reaches all of them.
fn constant_steps(constants: &[i64]) -> Vec<(i64, i64)> {
    let mut steps = Vec::new();
    let mut rest = constants.to_vec();
    while let [first, .., last] = rest[..] {
        let distance = |w: &[i64]| w[1].saturating_sub(w[0]);
        let Some(step) = rest.windows(2).map(distance).min() else {
            break;
        };
        let mut runs = rest.chunk_by(|a, b| b.saturating_sub(*a) == step);
        let n = runs.next().map_or(0, <[i64]>::len);
        if n < 2 || runs.any(|r| r.len() != n) {
            let step = rest.windows(2).map(distance).fold(0, gcd).max(1);
            steps.push((step, last.saturating_sub(first) / step + 1));
            break;
        }
        steps.push((step, n as i64));
        rest = rest.iter().copied().step_by(n).collect();
    }
    steps
}

pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

/// Accesses to one buffer: sums in the order in which they first occur, with their constants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accesses(Vec<(Form, Constants)>);

impl Accesses {
    pub fn forms(&self) -> &[(Form, Constants)] {
        &self.0
    }
}

/// Accesses of several places.
#[derive(Debug, Default)]
pub(crate) struct Gathered(Vec<(Form, Vec<i64>)>);

impl Gathered {
    pub fn add(&mut self, form: Form, constant: i64) {
        match self.0.iter_mut().find(|(f, _)| *f == form) {
            Some((_, all)) => all.push(constant),
            None => self.0.push((form, vec![constant])),
        }
    }

    pub fn extend(&mut self, accesses: &Accesses) {
        for (form, constants) in &accesses.0 {
            match self.0.iter_mut().find(|(f, _)| f == form) {
                Some((_, all)) => all.extend_from_slice(constants.sorted()),
                None => self.0.push((*form, constants.sorted().to_vec())),
            }
        }
    }

    pub fn finish(self) -> Accesses {
        let one = |(form, all)| (form, Constants::of(all));
        Accesses(self.0.into_iter().map(one).collect())
    }
}
