//! What each iteration of a loop does: accesses made and inner loops begun, and how many
//! iterations are alike.
//!
//! A region is the body of a loop without its inner loops, or what is in no loop. Its iterations
//! differ by the conditions that hold in them. Conditions on loop variables are tried for all
//! values, or for a sample where there are too many; conditions on data are undecided. Only what checks
//! that an index of the data is inside its table is taken to hold.

use crate::executions::{Executions, is_of_data, push_conjuncts, value};
use ir::{BinaryOp, Expr, ExprKind, UnaryOp, VarId};
use lower::flat::{AccessId, Code, FlatLoopId, Lane, Stmt, Store};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Points that are tried at most, and how many are where there are more.
const MOST_POINTS: i64 = 1 << 16;
const SAMPLED: i64 = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Access(AccessId),
    Loop(FlatLoopId),
}

/// What an iteration may do.
#[derive(Clone, Debug)]
pub struct Item {
    pub what: What,
    /// Conditions that must hold, as indices into those of the region.
    needs: Vec<usize>,
    /// Of an access that some lanes may not make: for each lane, what must hold beside.
    lanes: Vec<Vec<usize>>,
}

/// Iterations that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Alike {
    pub times: f64,
    /// Those after which the loop is left.
    pub last: bool,
    /// Of each condition; `None` if it depends on data.
    holds: Vec<Option<bool>>,
    /// Nothing is done whatever holds.
    idle: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Region {
    id: Option<FlatLoopId>,
    /// Loop variables that the region sees, outermost first, and its own.
    vars: Vec<(VarId, i64)>,
    own: Option<VarId>,
    /// Conditions around the loop.
    around: Vec<Expr>,
    conditions: Vec<Expr>,
    /// Of these, the checks of indices.
    checks: BTreeSet<usize>,
    pub items: Vec<Item>,
}

impl Alike {
    /// Runs in which nothing is decided by conditions, or nothing is done at all.
    pub fn unconditional(times: f64, idle: bool) -> Alike {
        Alike {
            times,
            last: true,
            holds: vec![],
            idle,
        }
    }

    /// Iterations in which these conditions hold or not.
    #[cfg(test)]
    pub fn deciding(times: f64, holds: &[Option<bool>]) -> Alike {
        Alike {
            times,
            last: false,
            holds: holds.to_vec(),
            idle: false,
        }
    }

    /// Whether a condition of the region holds; `None` if nothing decides it.
    pub fn holds(&self, condition: usize) -> Option<bool> {
        self.holds.get(condition).copied().flatten()
    }
}

impl Item {
    /// A loop that every iteration begins.
    pub fn certain_loop(id: FlatLoopId) -> Item {
        Item {
            what: What::Loop(id),
            needs: vec![],
            lanes: vec![],
        }
    }

    /// The conditions of the region that must hold.
    pub fn needs(&self) -> &[usize] {
        &self.needs
    }

    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Whether the item is part of an iteration; `None` if nothing decides it.
    pub fn done(&self, alike: &Alike) -> Option<bool> {
        match alike.idle {
            true => Some(false),
            false => all(&self.needs, alike),
        }
    }

    /// Whether some lane surely makes the access.
    pub fn any_lane_done(&self, alike: &Alike) -> bool {
        (0..self.lanes()).any(|lane| self.lane_done(lane, alike) == Some(true))
    }

    /// Whether a lane makes the access; those beyond the last never do.
    pub fn lane_done(&self, lane: usize, alike: &Alike) -> Option<bool> {
        let done = self.done(alike);
        let (Some(needs), true) = (self.lanes.get(lane), done != Some(false)) else {
            return Some(false);
        };
        let lane = all(needs, alike);
        lane.filter(|made| !made || done == Some(true))
    }
}

fn all(needs: &[usize], alike: &Alike) -> Option<bool> {
    let mut known = true;
    for n in needs {
        match alike.holds[*n] {
            Some(false) => return Some(false),
            Some(true) => {}
            None => known = false,
        }
    }
    known.then_some(true)
}

/// The regions of the bodies of loops, and (`None`) of what is in no loop of the entry. Loops that
/// run once are part of what is around them, unless they are parallel.
pub fn regions(entry: &[Stmt]) -> HashMap<Option<FlatLoopId>, Region> {
    let mut walk = Walk {
        region: Region::default(),
        needs: vec![],
        done: HashMap::new(),
    };
    walk.stmts(entry);
    let Walk {
        region, mut done, ..
    } = walk;
    done.insert(None, region);
    done
}

struct Walk {
    region: Region,
    needs: Vec<usize>,
    done: HashMap<Option<FlatLoopId>, Region>,
}

impl Walk {
    fn stmts(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Loop(l) if l.extent <= 0 => {}
                Stmt::Loop(l) if l.extent == 1 && !l.parallel => {
                    self.region.vars.push((l.var, 1));
                    self.stmts(&l.body);
                }
                Stmt::Loop(l) => {
                    self.item(What::Loop(l.id), vec![]);
                    let mut inner = Region {
                        id: Some(l.id),
                        vars: self.region.vars.clone(),
                        own: Some(l.var),
                        around: self.region.around.clone(),
                        ..Region::default()
                    };
                    inner.vars.push((l.var, l.extent));
                    let needs = self.needs.iter();
                    inner
                        .around
                        .extend(needs.map(|n| self.region.conditions[*n].clone()));
                    let outer = std::mem::replace(&mut self.region, inner);
                    let needs = std::mem::take(&mut self.needs);
                    self.stmts(&l.body);
                    let inner = std::mem::replace(&mut self.region, outer);
                    self.needs = needs;
                    self.done.insert(Some(l.id), inner);
                }
                Stmt::If {
                    cond,
                    then,
                    otherwise,
                } => {
                    self.under(cond, |walk| {
                        walk.note_checks(cond);
                        walk.stmts(then);
                    });
                    let not = Expr::unary(UnaryOp::Not, cond.clone());
                    self.under(&not, |walk| walk.stmts(otherwise));
                }
                Stmt::Store(s) => self.store(s),
                Stmt::Check { .. } | Stmt::Prefetch { .. } => {}
            }
        }
    }

    fn item(&mut self, what: What, lanes: Vec<Vec<usize>>) {
        let needs = self.needs.clone();
        self.region.items.push(Item { what, needs, lanes });
    }

    fn under(&mut self, condition: &Expr, body: impl FnOnce(&mut Walk)) {
        let before = self.needs.len();
        let needs = self.conjuncts(condition);
        self.needs.extend(needs);
        body(self);
        self.needs.truncate(before);
    }

    /// The conditions of the region that a condition is made of.
    fn conjuncts(&mut self, condition: &Expr) -> Vec<usize> {
        let mut parts = Vec::new();
        push_conjuncts(condition, &mut parts);
        let parts = parts.into_iter();
        parts.map(|p| self.condition(p)).collect()
    }

    /// Notes which parts of a condition of the region check indices.
    fn note_checks(&mut self, condition: &Expr) {
        let mut parts = Vec::new();
        push_conjuncts(condition, &mut parts);
        for part in parts.into_iter().filter(checks_index) {
            let part = self.condition(part);
            self.region.checks.insert(part);
        }
    }

    fn condition(&mut self, e: Expr) -> usize {
        let all = &mut self.region.conditions;
        all.iter().position(|c| *c == e).unwrap_or_else(|| {
            all.push(e);
            all.len() - 1
        })
    }

    fn lanes(&mut self, lane: Option<Lane>, conditions: &[Expr]) -> Vec<Vec<usize>> {
        let Some(lane) = lane.filter(|_| !conditions.is_empty()) else {
            return vec![];
        };
        let of_lane = |e: &Expr, at: u32| e.with_var(lane.var, &Expr::int(i64::from(at)));
        (0..lane.lanes)
            .map(|at| {
                let all = conditions.iter();
                all.flat_map(|e| self.conjuncts(&of_lane(e, at))).collect()
            })
            .collect()
    }

    fn store(&mut self, s: &Store) {
        let before = self.needs.len();
        let mut lanes = Vec::new();
        match (&s.mask, s.lane) {
            // Lanes have a mask even where it is the same for all.
            (Some(mask), Some(_)) => lanes.push(mask.clone()),
            (Some(mask), _) => {
                let needs = self.conjuncts(mask);
                self.needs.extend(needs);
            }
            (None, _) => {}
        }
        let of_lanes = self.lanes(s.lane, &lanes);
        self.item(What::Access(s.id), of_lanes);
        let mut found = Vec::new();
        for e in [&s.value, &s.offset] {
            self.loads_in(e, s, &lanes, &mut found);
        }
        for ((id, ..), (needs, lanes)) in s.loads_with_ids().iter().zip(found) {
            let what = What::Access(*id);
            self.region.items.push(Item { what, needs, lanes });
        }
        self.needs.truncate(before);
    }

    /// Conditions and lanes of the loads in an expression, in the order of `Expr::visit`.
    fn loads_in(
        &mut self,
        e: &Expr,
        s: &Store,
        lanes: &[Expr],
        out: &mut Vec<(Vec<usize>, Vec<Vec<usize>>)>,
    ) {
        if !e.loads() {
            return;
        }
        match e.kind() {
            ExprKind::Select(c, a, b) if a.loads() || b.loads() => {
                self.loads_in(c, s, lanes, out);
                let not = Expr::unary(UnaryOp::Not, c.clone());
                for (side, condition) in [(a, c), (b, &not)] {
                    match s.lane {
                        Some(l) if condition.uses_var(l.var) => {
                            let lanes = [lanes, std::slice::from_ref(condition)].concat();
                            self.loads_in(side, s, &lanes, out);
                        }
                        _ => self.under(condition, |walk| walk.loads_in(side, s, lanes, out)),
                    }
                }
            }
            kind => {
                if let ExprKind::Load(..) = kind {
                    let lanes = self.lanes(s.lane, lanes);
                    out.push((self.needs.clone(), lanes));
                }
                for child in e.children() {
                    self.loads_in(child, s, lanes, out);
                }
            }
        }
    }
}

impl Region {
    /// The loop variables of a condition, in a fixed order.
    pub fn vars_of(&self, condition: usize) -> Vec<VarId> {
        let mut vars = self.conditions[condition].vars();
        vars.sort_by_key(|v| v.index());
        vars
    }

    /// Whether the variable of the region's own loop is among them.
    pub fn own_decides(&self, condition: usize) -> bool {
        let condition = &self.conditions[condition];
        self.own.is_some_and(|own| condition.uses_var(own))
    }

    /// All iterations of all runs, `calls` of them the last ones of a part if the loop is parallel.
    pub fn iterations(&self, code: &Code, executions: &Executions, calls: f64) -> Vec<Alike> {
        let (total, begins) = match self.id {
            None => (calls, calls),
            Some(id) => {
                let info = &code.loops[id as usize];
                let begins = executions.begins(id);
                let iterations = begins * info.extent as f64;
                (iterations, if info.parallel { calls } else { begins })
            }
        };
        if total <= 0.0 {
            return vec![];
        }
        let parallel = self.id.is_some_and(|id| code.loops[id as usize].parallel);
        let own = self.own.filter(|_| !parallel);
        let vars = self.deciding();
        let found = self.tried(&vars, own);
        let all: f64 = found.values().sum();
        let own_decides = own.is_some_and(|v| vars.iter().any(|x| x.0 == v));
        let mut alike = Vec::new();
        for ((holds, last), n) in found {
            let times = n / all.max(1.0) * total;
            let ends = match (own_decides, last) {
                (true, true) => times,
                (true, false) => 0.0,
                (false, _) => times * begins / total,
            };
            for (times, last) in [(ends, true), (times - ends, false)] {
                if times > 1e-9 {
                    let holds = holds.clone();
                    alike.push(Alike {
                        times,
                        last,
                        holds,
                        idle: false,
                    });
                }
            }
        }
        alike
    }

    /// The variables that decide conditions of the region, by conditions around it as well.
    fn deciding(&self) -> Vec<(VarId, i64)> {
        let mut used: Vec<VarId> = self.conditions.iter().flat_map(Expr::vars).collect();
        loop {
            let before = used.len();
            for c in &self.around {
                let vars = c.vars();
                if vars.iter().any(|v| used.contains(v)) {
                    let new: Vec<VarId> = vars.into_iter().filter(|v| !used.contains(v)).collect();
                    used.extend(new);
                }
            }
            if used.len() == before {
                break;
            }
        }
        let seen = self.vars.iter().copied();
        seen.filter(|(v, _)| used.contains(v)).collect()
    }

    /// How many points there are of each kind, and whether they are of a last iteration.
    fn tried(
        &self,
        vars: &[(VarId, i64)],
        own: Option<VarId>,
    ) -> BTreeMap<(Vec<Option<bool>>, bool), f64> {
        let size = vars
            .iter()
            .fold(1i64, |n, (_, extent)| n.saturating_mul((*extent).max(1)));
        let points = if size > MOST_POINTS { SAMPLED } else { size };
        let table = |c: &Expr| Table::of(c, vars);
        let conditions: Vec<Table> = self.conditions.iter().map(table).collect();
        let touches = |c: &&Expr| c.vars().iter().any(|v| vars.iter().any(|x| x.0 == *v));
        let around = self.around.iter().filter(touches);
        let around: Vec<Table> = around.map(table).collect();
        let mut found = BTreeMap::new();
        let mut at = vec![0i64; vars.len()];
        for n in 0..points {
            // A sample is spread by multiples of the golden ratio.
            let spread = (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut rest = match size == points {
                true => n,
                false => ((u128::from(spread) * size as u128) >> 64) as i64,
            };
            for (value, (_, extent)) in at.iter_mut().zip(vars) {
                *value = rest % extent.max(&1);
                rest /= extent.max(&1);
            }
            if around.iter().any(|t| t.get(&at) == Some(false)) {
                continue;
            }
            let hold = conditions.iter().enumerate();
            let hold = hold.map(|(i, t)| t.get(&at).or(self.checks.contains(&i).then_some(true)));
            let holds: Vec<Option<bool>> = hold.collect();
            let mut ends = vars.iter().zip(&at);
            let last = ends.any(|((v, extent), at)| Some(*v) == own && at + 1 == *extent);
            *found.entry((holds, last)).or_insert(0.0) += 1.0;
        }
        found
    }
}

/// Whether a condition compares an integer of the data with a constant bound.
fn checks_index(condition: &Expr) -> bool {
    let ExprKind::Binary(BinaryOp::Lt | BinaryOp::Le, a, b) = condition.kind() else {
        return false;
    };
    let constant = |e: &Expr| matches!(e.kind(), ExprKind::Int(..));
    condition.loads() && (constant(a) || constant(b))
}

/// A condition for all values of its variables.
struct Table {
    /// Positions of its variables, and the steps of the table along them.
    steps: Vec<(usize, i64)>,
    values: Vec<Option<bool>>,
}

impl Table {
    fn of(e: &Expr, vars: &[(VarId, i64)]) -> Table {
        let used = e.vars();
        let own: Vec<usize> = (0..vars.len())
            .filter(|i| used.contains(&vars[*i].0))
            .collect();
        let mut size = 1i64;
        let mut steps = Vec::new();
        for i in own {
            steps.push((i, size));
            size = size.saturating_mul(vars[i].1.max(1));
        }
        // Too many to try count as undecided.
        if size > MOST_POINTS || is_of_data(e) {
            let values = vec![None];
            return Table {
                steps: vec![],
                values,
            };
        }
        let values = (0..size).map(|n| {
            let at = steps
                .iter()
                .map(|(i, step)| (vars[*i].0, n / step % vars[*i].1.max(1)));
            let at: Vec<(VarId, i64)> = at.collect();
            let of = |v| at.iter().find(|a| a.0 == v).map(|a| a.1);
            value(e, &of).map(|v| v != 0)
        });
        Table {
            values: values.collect(),
            steps,
        }
    }

    fn get(&self, at: &[i64]) -> Option<bool> {
        let place: i64 = self.steps.iter().map(|(i, step)| at[*i] * step).sum();
        self.values[place as usize]
    }
}
