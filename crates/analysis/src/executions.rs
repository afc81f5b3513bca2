//! How often each statement of flat code runs, from extents and conditions alone.
//!
//! Extents are constants. A condition on loop variables is decided by trying all
//! values of the variables it names; a condition on data is taken to hold, and named.

use ir::{BinaryOp, BufferId, Expr, ExprKind, UnaryOp, VarId};
use lower::flat::{AccessId, Code, FlatLoopId, Stmt, Store};
use std::collections::{BTreeSet, HashMap};

/// Values that are tried for conditions that share variables. Beyond it a condition is taken to hold.
const MOST_VALUES: i64 = 1 << 20;

/// Runs of one call of each entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Executions {
    /// How often each loop begins, by id.
    begins: Vec<f64>,
    accesses: HashMap<AccessId, f64>,
    /// Loops that may begin less often, or end earlier: nothing but data decides.
    uncertain: BTreeSet<FlatLoopId>,
    /// Conditions that were taken to hold, as text.
    pub taken: BTreeSet<String>,
}

impl Executions {
    pub fn of(code: &Code) -> Executions {
        let mut walk = Walk {
            code,
            loops: vec![],
            conditions: vec![],
            certain: true,
            known: HashMap::new(),
            found: Executions {
                begins: vec![0.0; code.loops.len()],
                ..Executions::default()
            },
        };
        walk.stmts(&code.prepare);
        walk.stmts(&code.kernel);
        walk.found
    }

    /// How often a loop begins.
    pub fn begins(&self, id: FlatLoopId) -> f64 {
        self.begins.get(id as usize).copied().unwrap_or(0.0)
    }

    /// Whether a loop begins as often as counted, and has all its iterations.
    pub fn is_certain(&self, id: FlatLoopId) -> bool {
        !self.uncertain.contains(&id)
    }

    /// How often an access is made, all lanes at once; `None` if that depends on lanes. The
    /// id of a store stands for all that its statement does in every run.
    pub fn of_access(&self, id: AccessId) -> Option<f64> {
        self.accesses.get(&id).copied()
    }
}

/// Variables and extents.
type Loops = Vec<(VarId, i64)>;

struct Walk<'a> {
    code: &'a Code,
    /// Around the current statement, outermost first.
    loops: Loops,
    conditions: Vec<Expr>,
    /// Whether data decide nothing of how often the current statement runs.
    certain: bool,
    /// What [`holding`] said of conditions and variables: statements next to each other ask the same.
    known: HashMap<(Vec<Expr>, Loops), Option<i64>>,
    found: Executions,
}

impl Walk<'_> {
    fn stmts(&mut self, stmts: &[Stmt]) {
        let here = self.count();
        for s in stmts {
            match s {
                Stmt::Loop(l) => {
                    self.found.begins[l.id as usize] = here;
                    let before = self.certain;
                    self.certain &= l.ending().is_none();
                    if !self.certain {
                        self.found.uncertain.insert(l.id);
                    }
                    self.loops.push((l.var, l.extent));
                    self.stmts(&l.body);
                    self.loops.pop();
                    self.certain = before;
                }
                Stmt::If {
                    cond,
                    then,
                    otherwise,
                } => {
                    self.under(cond.clone(), then);
                    self.under(Expr::unary(UnaryOp::Not, cond.clone()), otherwise);
                }
                Stmt::Store(s) => {
                    if s.mask.is_none() {
                        self.found.accesses.insert(s.id, here);
                        self.loads(s, here);
                    }
                }
                Stmt::Check { .. } | Stmt::Prefetch { .. } => {}
            }
        }
    }

    fn under(&mut self, condition: Expr, stmts: &[Stmt]) {
        if stmts.is_empty() {
            return;
        }
        let (before, certain) = (self.conditions.len(), self.certain);
        push_conjuncts(&condition, &mut self.conditions);
        self.certain &= !condition.loads();
        self.stmts(stmts);
        self.conditions.truncate(before);
        self.certain = certain;
    }

    /// Counts the loads of a statement. Of equal ones only the first has instructions.
    fn loads(&mut self, s: &Store, runs: f64) {
        let ids = s.loads_with_ids();
        let mut counts: Vec<Option<f64>> = Vec::new();
        for e in [&s.value, &s.offset] {
            self.loads_in(e, s, Some(runs), &mut counts);
        }
        for (at, (id, buffer, offset)) in ids.iter().enumerate() {
            let equal = |o: &(AccessId, BufferId, &Expr)| o.1 == *buffer && o.2 == *offset;
            let same = ids.iter().zip(&counts).filter(|(o, _)| equal(o));
            if let (Some(runs), true) = (counts[at], same.clone().all(|(_, c)| *c == counts[at])) {
                self.found.accesses.insert(*id, runs);
            }
        }
    }

    /// Counts of the loads in an expression that is evaluated so often, in the order of
    /// `Expr::visit`.
    fn loads_in(&mut self, e: &Expr, s: &Store, runs: Option<f64>, out: &mut Vec<Option<f64>>) {
        if !e.loads() {
            return;
        }
        match e.kind() {
            // Sides without loads are evaluated both, and so are all for lanes that differ.
            ExprKind::Select(c, a, b) if a.loads() || b.loads() => {
                self.loads_in(c, s, runs, out);
                let unknown = c.loads() || s.lane.is_some_and(|l| c.uses_var(l.var));
                for (side, holds) in [(a, true), (b, false)] {
                    let condition = match holds {
                        true => c.clone(),
                        false => Expr::unary(UnaryOp::Not, c.clone()),
                    };
                    let before = self.conditions.len();
                    push_conjuncts(&condition, &mut self.conditions);
                    let count = match unknown || runs.is_none() || !side.loads() {
                        true => None,
                        false => Some(self.count()),
                    };
                    self.loads_in(side, s, count, out);
                    self.conditions.truncate(before);
                }
            }
            kind => {
                if let ExprKind::Load(..) = kind {
                    out.push(runs);
                }
                for child in e.children() {
                    self.loads_in(child, s, runs, out);
                }
            }
        }
    }

    /// How often the statements at this place run.
    fn count(&mut self) -> f64 {
        let mut count = 1.0;
        let mut free: Vec<(VarId, i64)> = self.loops.clone();
        for group in groups(&self.conditions) {
            let used = |v: &(VarId, i64)| group.iter().any(|c| c.uses_var(v.0));
            let (vars, rest): (Vec<_>, Vec<_>) = free.iter().partition(|v| used(v));
            let key = (group.iter().map(|c| (*c).clone()).collect(), vars);
            let known = self.known.get(&key).copied();
            let held = known.unwrap_or_else(|| holding(&group, &key.1));
            self.known.entry(key).or_insert(held);
            match held {
                Some(n) => {
                    free = rest;
                    count *= n as f64;
                }
                None => {
                    let text = |e: &&Expr| condition(self.code, e);
                    self.found.taken.extend(group.iter().map(text));
                }
            }
        }
        free.iter().fold(count, |n, (_, extent)| n * *extent as f64)
    }
}

pub(crate) fn push_conjuncts(e: &Expr, out: &mut Vec<Expr>) {
    match e.kind() {
        ExprKind::Binary(BinaryOp::And, a, b) => {
            push_conjuncts(a, out);
            push_conjuncts(b, out);
        }
        _ => out.push(e.clone()),
    }
}

/// Conditions in groups that share no variable, so that their counts multiply.
fn groups(conditions: &[Expr]) -> Vec<Vec<&Expr>> {
    let mut groups: Vec<Vec<&Expr>> = vec![];
    for c in conditions {
        let vars = c.vars();
        let meets = |g: &Vec<&Expr>| g.iter().any(|o| vars.iter().any(|v| o.uses_var(*v)));
        let (shared, mut apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(meets);
        let mut joined: Vec<&Expr> = shared.into_iter().flatten().collect();
        joined.push(c);
        apart.push(joined);
        groups = apart;
    }
    groups
}

/// How many values of the variables all conditions hold for; `None` if that depends on
/// data or there are too many values.
fn holding(conditions: &[&Expr], vars: &[(VarId, i64)]) -> Option<i64> {
    let mut size: i64 = 1;
    for (_, extent) in vars {
        size = size.checked_mul(*extent)?;
    }
    if size > MOST_VALUES {
        return None;
    }
    let last = vars.iter().map(|(v, _)| v.index()).max();
    let mut values: Vec<Option<i64>> = vec![None; last.map_or(0, |v| v + 1)];
    vars.iter().for_each(|(v, _)| values[v.index()] = Some(0));
    let mut count = 0;
    for _ in 0..size {
        let mut all = true;
        for c in conditions {
            all &= value(c, &|v| values.get(v.index()).copied().flatten())? != 0;
        }
        count += i64::from(all);
        // The next point: the first variable steps, and where it ends the one after it does.
        for (v, extent) in vars {
            let next = values[v.index()].map_or(0, |n| n + 1);
            values[v.index()] = Some(next % extent);
            if next < *extent {
                break;
            }
        }
    }
    Some(count)
}

/// Whether [`value`] is `None` whatever the variables are, as data decide.
pub(crate) fn is_of_data(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Load(..) => true,
        ExprKind::Select(c, a, b) => is_of_data(c) || is_of_data(a) && is_of_data(b),
        ExprKind::Binary(_, a, b) => is_of_data(a) || is_of_data(b),
        ExprKind::Unary(_, a) => is_of_data(a),
        _ => false,
    }
}

/// Of an integer expression of variables; `None` for any other.
pub(crate) fn value(e: &Expr, vars: &impl Fn(VarId) -> Option<i64>) -> Option<i64> {
    match e.kind() {
        ExprKind::Int(v, _) => Some(*v),
        ExprKind::Var(v) => vars(*v),
        ExprKind::Unary(op, a) => {
            let a = value(a, vars)?;
            match op {
                UnaryOp::Neg => a.checked_neg(),
                UnaryOp::Abs => a.checked_abs(),
                UnaryOp::Not => Some(i64::from(a == 0)),
                _ => None,
            }
        }
        ExprKind::Select(c, a, b) => match value(c, vars)? {
            0 => value(b, vars),
            _ => value(a, vars),
        },
        ExprKind::Binary(op, a, b) => binary(*op, value(a, vars)?, value(b, vars)?),
        ExprKind::Float(..) | ExprKind::Arg(..) | ExprKind::Load(..) | ExprKind::Cast(..) => None,
    }
}

fn binary(op: BinaryOp, a: i64, b: i64) -> Option<i64> {
    match op {
        BinaryOp::Add => a.checked_add(b),
        BinaryOp::Sub => a.checked_sub(b),
        BinaryOp::Mul => a.checked_mul(b),
        BinaryOp::Div => a.checked_div(b),
        // Divisors of index expressions are positive constants.
        BinaryOp::FloorDiv if b > 0 => Some(a.div_euclid(b)),
        BinaryOp::FloorMod if b > 0 => Some(a.rem_euclid(b)),
        BinaryOp::Min => Some(a.min(b)),
        BinaryOp::Max => Some(a.max(b)),
        BinaryOp::And => Some(i64::from(a != 0 && b != 0)),
        BinaryOp::Or => Some(i64::from(a != 0 || b != 0)),
        BinaryOp::Eq => Some(i64::from(a == b)),
        BinaryOp::Ne => Some(i64::from(a != b)),
        BinaryOp::Lt => Some(i64::from(a < b)),
        BinaryOp::Le => Some(i64::from(a <= b)),
        _ => None,
    }
}

fn condition(code: &Code, e: &Expr) -> String {
    let var = |v: VarId| code.vars[v.index()].clone();
    let buffer = |b: BufferId| code.buffers[b.index()].name.clone();
    lower::flat::text::expr(e, &var, &buffer)
}
