//! Numbers that the variables of loops decide: sums that are kept while variables step, tables, and conditions.
//!
//! A sum of multiples of variables changes by a constant where a variable steps, so nothing is multiplied for an access.
//! What is no such sum (quotients, minima) is looked up in a table where its variables have few values.

use super::NotFollowed;
use super::contents::{Contents, Held};
use ir::affine::Affine;
use ir::{BinaryOp, DType, Expr, ExprKind, UnaryOp, VarId};
use std::collections::HashMap;
use std::sync::Arc;

/// Entries of a table, at most: making one costs as much as computing each once.
const TABLE: i64 = 4096;

/// The sums that a kernel needs. Equal ones are one.
#[derive(Debug)]
pub(super) struct Sums {
    known: HashMap<Vec<(usize, i64)>, usize>,
    /// The sums that a step of each variable changes, and by how much.
    steps: Vec<Vec<(usize, i64)>>,
    /// By the expression and the extents of its variables.
    tables: HashMap<(Expr, Vec<i64>), Part>,
}

impl Sums {
    pub(super) fn new(variables: usize) -> Sums {
        Sums {
            known: HashMap::new(),
            steps: vec![vec![]; variables],
            tables: HashMap::new(),
        }
    }

    pub(super) fn variables(&self) -> usize {
        self.steps.len()
    }

    /// By how much a sum changes where a variable steps by 1.
    pub(super) fn step(&self, sum: usize, var: usize) -> i64 {
        let steps = self.steps[var].iter();
        steps.filter(|(s, _)| *s == sum).map(|s| s.1).sum()
    }

    fn of(&mut self, terms: Vec<(usize, i64)>) -> usize {
        let next = self.known.len();
        let steps = &mut self.steps;
        *self.known.entry(terms).or_insert_with_key(|terms| {
            terms.iter().for_each(|(v, c)| steps[*v].push((next, *c)));
            next
        })
    }

    /// An expression of integers times `scale`, and a constant. `extents` are those of its variables.
    pub(super) fn number(
        &mut self,
        e: &Expr,
        (scale, constant): (i64, i64),
        contents: &Contents<'_>,
        extents: &HashMap<VarId, i64>,
    ) -> Result<Number, NotFollowed> {
        let mut all = Affine::constant(constant);
        let mut others = Vec::new();
        split(e, scale, &mut all, &mut others);
        let mut parts = Vec::with_capacity(others.len());
        for (other, factor) in others {
            parts.push((self.part(&other, contents, extents)?, factor));
        }
        let terms = all.terms.iter().filter(|t| *t.1 != 0);
        Ok(Number {
            sum: self.of(terms.map(|(v, c)| (v.index(), *c)).collect()),
            constant: all.constant,
            parts,
        })
    }

    fn part(
        &mut self,
        e: &Expr,
        contents: &Contents<'_>,
        extents: &HashMap<VarId, i64>,
    ) -> Result<Part, NotFollowed> {
        if let Some((values, index)) = contents.of_element(e) {
            let at = self.number(index, (1, 0), contents, extents)?;
            return Ok(Part::Element(Arc::new((at, values))));
        }
        let value = Value::of(e, contents)?;
        let vars = e.vars();
        let known: Option<Vec<i64>> = vars.iter().map(|v| extents.get(v).copied()).collect();
        let known = known.filter(|all| {
            let entries = all.iter().try_fold(1_i64, |n, e| n.checked_mul(*e));
            entries.is_some_and(|n| (1..=TABLE).contains(&n))
        });
        let Some(of_vars) = known else {
            let vars = vars.iter().map(|v| v.index()).collect();
            return Ok(Part::Computed(Arc::new((value, vars))));
        };
        let key = (e.clone(), of_vars);
        if let Some(known) = self.tables.get(&key) {
            return Ok(known.clone());
        }
        let mut terms = Vec::with_capacity(vars.len());
        let mut entries = 1;
        for (v, extent) in vars.iter().zip(&key.1) {
            terms.push((v.index(), entries));
            entries *= extent;
        }
        let mut all = vec![0; self.variables()];
        let entry = |n: i64| {
            for ((at, before), extent) in terms.iter().zip(&key.1) {
                all[*at] = n / before % extent;
            }
            value.at(&all)
        };
        let values = (0..entries).map(entry).collect();
        let part = Part::Table(self.of(terms), values);
        self.tables.insert(key, part.clone());
        Ok(part)
    }

    /// A condition as ranges of sums where it is such.
    pub(super) fn condition(
        &mut self,
        e: &Expr,
        contents: &Contents<'_>,
        extents: &HashMap<VarId, i64>,
    ) -> Result<Condition, NotFollowed> {
        let mut all = Condition::default();
        self.gather(e, true, &mut all, (contents, extents))?;
        Ok(all)
    }

    fn gather(
        &mut self,
        e: &Expr,
        holds: bool,
        all: &mut Condition,
        about: (&Contents<'_>, &HashMap<VarId, i64>),
    ) -> Result<(), NotFollowed> {
        match (e.kind(), holds) {
            (ExprKind::Unary(UnaryOp::Not, a), _) => self.gather(a, !holds, all, about),
            (ExprKind::Binary(BinaryOp::And, a, b), true)
            | (ExprKind::Binary(BinaryOp::Or, a, b), false) => {
                self.gather(a, holds, all, about)?;
                self.gather(b, holds, all, about)
            }
            (ExprKind::Binary(op, a, b), _) => {
                let (lo, hi) = match (op, holds) {
                    (BinaryOp::Lt, true) => (i64::MIN, -1),
                    (BinaryOp::Lt, false) => (0, i64::MAX),
                    (BinaryOp::Le, true) => (i64::MIN, 0),
                    (BinaryOp::Le, false) => (1, i64::MAX),
                    (BinaryOp::Eq, true) | (BinaryOp::Ne, false) => (0, 0),
                    _ => return self.other(e, holds, all, about),
                };
                let (mut difference, mut others) = (Affine::default(), Vec::new());
                split(a, 1, &mut difference, &mut others);
                split(b, -1, &mut difference, &mut others);
                if !others.is_empty() {
                    return self.other(e, holds, all, about);
                }
                let terms = difference.terms.iter().filter(|t| *t.1 != 0);
                let mut terms: Vec<_> = terms.map(|(v, c)| (v.index(), *c)).collect();
                let end = |end: i64| match end {
                    i64::MIN | i64::MAX => end,
                    end => end.wrapping_sub(difference.constant),
                };
                let (mut lo, mut hi) = (end(lo), end(hi));
                // Opposite sums are one.
                if terms.first().is_some_and(|t| t.1 < 0) {
                    terms.iter_mut().for_each(|t| t.1 = -t.1);
                    (lo, hi) = (hi.saturating_neg(), lo.saturating_neg());
                }
                all.range(Range {
                    sum: self.of(terms),
                    lo,
                    hi,
                });
                Ok(())
            }
            _ => self.other(e, holds, all, about),
        }
    }

    fn other(
        &mut self,
        e: &Expr,
        holds: bool,
        all: &mut Condition,
        (contents, extents): (&Contents<'_>, &HashMap<VarId, i64>),
    ) -> Result<(), NotFollowed> {
        let part = self.part(e, contents, extents)?;
        all.others.push((part, holds));
        Ok(())
    }
}

/// Adds `k` times an expression: multiples of variables and constants to the sum, the others to the list.
fn split(e: &Expr, k: i64, sum: &mut Affine, others: &mut Vec<(Expr, i64)>) {
    match e.kind() {
        ExprKind::Int(v, DType::I64) => {
            sum.constant = sum.constant.wrapping_add(v.wrapping_mul(k));
        }
        ExprKind::Var(v) => {
            let c = sum.terms.entry(*v).or_insert(0);
            *c = c.wrapping_add(k);
        }
        ExprKind::Unary(UnaryOp::Neg, a) => split(a, k.wrapping_neg(), sum, others),
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            split(a, k, sum, others);
            split(b, k, sum, others);
        }
        ExprKind::Binary(BinaryOp::Sub, a, b) => {
            split(a, k, sum, others);
            split(b, k.wrapping_neg(), sum, others);
        }
        ExprKind::Binary(BinaryOp::Mul, a, b) => {
            let constant = |e: &Expr| Affine::of(e).filter(|e| e.terms.is_empty());
            match (constant(a), constant(b)) {
                (Some(c), _) => split(b, k.wrapping_mul(c.constant), sum, others),
                (_, Some(c)) => split(a, k.wrapping_mul(c.constant), sum, others),
                _ => others.push((e.clone(), k)),
            }
        }
        _ => others.push((e.clone(), k)),
    }
}

/// A sum, a constant, and multiples of what is no sum.
#[derive(Debug)]
pub(super) struct Number {
    pub(super) sum: usize,
    pub(super) constant: i64,
    pub(super) parts: Vec<(Part, i64)>,
}

impl Number {
    pub(super) fn at(&self, state: &State<'_>) -> i64 {
        let parts = self.parts.iter().map(|(p, k)| p.at(state).wrapping_mul(*k));
        parts.fold(state.sums[self.sum] + self.constant, i64::wrapping_add)
    }

    /// Whether a step of the variable changes what is no sum.
    pub(super) fn parts_change(&self, var: usize, sums: &Sums) -> bool {
        self.parts.iter().any(|(p, _)| p.changes(var, sums))
    }
}

/// What is no sum of multiples of variables.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// By a sum.
    Table(usize, Arc<[i64]>),
    /// By an element of a buffer: which one, and what it gives.
    Element(Arc<(Number, Held)>),
    /// With the variables that it has.
    Computed(Arc<(Value, Vec<usize>)>),
}

impl Part {
    pub(super) fn at(&self, state: &State<'_>) -> i64 {
        self.at_entry(0, state)
    }

    /// With so much added to its index ([`Self::index_step`]).
    #[inline]
    pub(super) fn at_entry(&self, more: i64, state: &State<'_>) -> i64 {
        match self {
            Part::Table(index, values) => values[(state.sums[*index] + more) as usize],
            Part::Element(of) => of.1.at(of.0.at(state) + more),
            Part::Computed(of) => of.0.at(&state.vars),
        }
    }

    /// What a step of the variable adds to the index of the entry or element. None if that is not always the same.
    pub(super) fn index_step(&self, var: usize, sums: &Sums) -> Option<i64> {
        match self {
            Part::Table(index, _) => Some(sums.step(*index, var)),
            Part::Element(of) if !of.0.parts_change(var, sums) => Some(sums.step(of.0.sum, var)),
            _ => (!self.changes(var, sums)).then_some(0),
        }
    }

    /// Whether both are the same one.
    pub(super) fn is(&self, other: &Part) -> bool {
        match (self, other) {
            (Part::Table(a, x), Part::Table(b, y)) => a == b && Arc::ptr_eq(x, y),
            (Part::Element(a), Part::Element(b)) => Arc::ptr_eq(a, b),
            (Part::Computed(a), Part::Computed(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    fn changes(&self, var: usize, sums: &Sums) -> bool {
        match self {
            Part::Table(index, _) => sums.step(*index, var) != 0,
            Part::Element(of) => sums.step(of.0.sum, var) != 0 || of.0.parts_change(var, sums),
            Part::Computed(of) => of.1.contains(&var),
        }
    }
}

/// Values of a sum, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) sum: usize,
    pub(super) lo: i64,
    pub(super) hi: i64,
}

/// Holds where all sums are in their ranges, and all others are as they should.
#[derive(Debug, Default)]
pub(super) struct Condition {
    pub(super) ranges: Vec<Range>,
    pub(super) others: Vec<(Part, bool)>,
}

impl Condition {
    /// Holds where both do.
    pub(super) fn and(mut self, other: Condition) -> Condition {
        other.ranges.into_iter().for_each(|r| self.range(r));
        self.others.extend(other.others);
        self
    }

    fn range(&mut self, new: Range) {
        match self.ranges.iter_mut().find(|r| r.sum == new.sum) {
            Some(r) => (r.lo, r.hi) = (r.lo.max(new.lo), r.hi.min(new.hi)),
            None => self.ranges.push(new),
        }
    }

    pub(super) fn always_holds(&self) -> bool {
        self.ranges.is_empty() && self.others.is_empty()
    }

    pub(super) fn holds(&self, state: &State<'_>) -> bool {
        let within = |r: &Range| (r.lo..=r.hi).contains(&state.sums[r.sum]);
        self.ranges.iter().all(within) && self.others.iter().all(|(p, b)| (p.at(state) != 0) == *b)
    }
}

/// The values of variables, and of the sums.
pub(super) struct State<'s> {
    pub(super) vars: Vec<i64>,
    pub(super) sums: Vec<i64>,
    steps: &'s [Vec<(usize, i64)>],
    pub(super) scratch: super::straight::Scratch,
    /// The buffer with the first index that is out of bounds.
    pub(super) outside: Option<Arc<str>>,
}

impl<'s> State<'s> {
    /// All variables are 0.
    pub(super) fn new(sums: &'s Sums) -> State<'s> {
        State {
            vars: vec![0; sums.variables()],
            sums: vec![0; sums.known.len()],
            steps: &sums.steps,
            scratch: super::straight::Scratch::default(),
            outside: None,
        }
    }

    /// # Errors
    /// If an index was out of bounds.
    pub(super) fn ended(&self) -> Result<(), NotFollowed> {
        match &self.outside {
            None => Ok(()),
            Some(buffer) => Err(NotFollowed::OutOfBounds {
                buffer: buffer.to_string(),
            }),
        }
    }

    pub(super) fn set(&mut self, var: usize, value: i64) {
        let by = value - self.vars[var];
        self.vars[var] = value;
        for (sum, step) in &self.steps[var] {
            self.sums[*sum] = self.sums[*sum].wrapping_add(step.wrapping_mul(by));
        }
    }
}

/// An integer or a truth value (0 or 1) that variables decide.
#[derive(Debug)]
pub(super) enum Value {
    Constant(i64),
    Variable(usize),
    Unary(UnaryOp, Box<Value>),
    Binary(BinaryOp, Box<[Value; 2]>),
    Select(Box<[Value; 3]>),
    Element(Arc<Held>, Box<Value>),
    /// What is left in the bits of a type.
    Of(DType, Box<Value>),
}

impl Value {
    fn of(e: &Expr, contents: &Contents<'_>) -> Result<Value, NotFollowed> {
        Value::compile(e, None, contents)
    }

    /// Of an expression in which nothing varies but this load, whose value is variable 0.
    pub(super) fn of_element(
        e: &Expr,
        load: &Expr,
        contents: &Contents<'_>,
    ) -> Result<Value, NotFollowed> {
        Value::compile(e, Some(load), contents)
    }

    fn compile(
        e: &Expr,
        element: Option<&Expr>,
        contents: &Contents<'_>,
    ) -> Result<Value, NotFollowed> {
        let sub = |e: &Expr| Value::compile(e, element, contents);
        // Only integers are computed as kernels do it.
        let exact = !e.loads() || !contents.dtype(e).is_float();
        let value = match e.kind() {
            ExprKind::Load(b, index) => match contents.buffer(*b) {
                None => return Err(contents.unknown(*b)),
                Some(_) if element == Some(e) => Value::Variable(0),
                Some(held) => Value::Element(held.clone(), Box::new(sub(&index[0])?)),
            },
            _ if !exact => return Err(contents.decided_by(e)),
            ExprKind::Int(v, _) => Value::Constant(*v),
            ExprKind::Float(bits, _) => Value::Constant(f64::from_bits(*bits) as i64),
            ExprKind::Var(v) => Value::Variable(v.index()),
            ExprKind::Unary(op, a) => Value::Unary(*op, Box::new(sub(a)?)),
            ExprKind::Binary(op, a, b) => Value::Binary(*op, Box::new([sub(a)?, sub(b)?])),
            ExprKind::Select(c, a, b) => Value::Select(Box::new([sub(c)?, sub(a)?, sub(b)?])),
            ExprKind::Cast(_, a) => sub(a)?,
            ExprKind::Arg(..) => Value::Constant(0),
        };
        let computed = matches!(
            e.kind(),
            ExprKind::Unary(..) | ExprKind::Binary(..) | ExprKind::Cast(..)
        );
        Ok(match contents.dtype(e) {
            d if d != DType::I64 && computed && e.loads() => Value::Of(d, Box::new(value)),
            _ => value,
        })
    }

    pub(super) fn at(&self, vars: &[i64]) -> i64 {
        match self {
            Value::Constant(v) => *v,
            Value::Variable(v) => vars[*v],
            Value::Element(held, element) => held.at(element.at(vars)),
            Value::Of(dtype, a) => wrapped(a.at(vars), *dtype),
            Value::Unary(UnaryOp::Not, a) => i64::from(a.at(vars) == 0),
            Value::Unary(UnaryOp::Abs, a) => a.at(vars).wrapping_abs(),
            Value::Unary(_, a) => a.at(vars).wrapping_neg(),
            Value::Select(parts) => match parts[0].at(vars) {
                0 => parts[2].at(vars),
                _ => parts[1].at(vars),
            },
            Value::Binary(op, sides) => binary(*op, sides[0].at(vars), sides[1].at(vars)),
        }
    }
}

fn wrapped(v: i64, dtype: DType) -> i64 {
    match dtype {
        DType::Bool => i64::from(v != 0),
        DType::I8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::I16 => i64::from(v as i16),
        DType::U16 => i64::from(v as u16),
        DType::I32 => i64::from(v as i32),
        DType::U32 => i64::from(v as u32),
        _ => v,
    }
}

/// Of integers; divisions by 0 give 0, as no access is made there.
fn binary(op: BinaryOp, a: i64, b: i64) -> i64 {
    let bit = i64::from;
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a.checked_div(b).unwrap_or(0),
        BinaryOp::FloorDiv => {
            let quotient = a.checked_div(b).unwrap_or(0);
            let rounds_up = b != 0 && a % b != 0 && (a < 0) != (b < 0);
            quotient - bit(rounds_up)
        }
        BinaryOp::FloorMod => match b {
            0 => 0,
            _ => a - b * binary(BinaryOp::FloorDiv, a, b),
        },
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::Pow => u32::try_from(b).map_or(0, |b| a.wrapping_pow(b)),
        BinaryOp::And => bit(a != 0 && b != 0),
        BinaryOp::Or => bit(a != 0 || b != 0),
        BinaryOp::Eq => bit(a == b),
        BinaryOp::Ne => bit(a != b),
        BinaryOp::Lt => bit(a < b),
        BinaryOp::Le => bit(a <= b),
        BinaryOp::BitAnd => a & b,
        BinaryOp::BitOr => a | b,
        BinaryOp::BitXor => a ^ b,
        BinaryOp::Shl => u32::try_from(b)
            .ok()
            .and_then(|b| a.checked_shl(b))
            .unwrap_or(0),
        BinaryOp::Shr => a >> b.clamp(0, 63),
    }
}
