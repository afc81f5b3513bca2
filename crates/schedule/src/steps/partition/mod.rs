//! partition{loop}: separate the iterations in which border conditions hold
//! for sure from those at the ends of the loop.
//!
//! The conditions are the predicates of the blocks under the loop and the
//! conditions of selects in their values, as far as they depend on the loop's
//! variable. The interior is the longest run of iterations in which all of
//! them hold whatever the inner and outer loops do; a condition that holds for
//! sure in no iteration is left out. If that leaves an interior, no index of a
//! load is cut off by a minimum or maximum there. The interior keeps its names;
//! the copies before and after it are `loop~lo` and `loop~hi`, and everything
//! under them has the same suffix, buffers that live inside the loop included.
//! Lowering drops the conditions that hold.
//!
//! A loop that workers share stays one loop where it can: see `digits`.

mod digits;

use crate::illegal::Illegal;
use crate::legality::lives_inside;
use crate::nest::{conjuncts, live_name};
use crate::rebind::replace_in_copies;
use crate::steps::loop_named;
use ir::affine::{Affine, Interval, Ranges, bounds};
use ir::region::{bound, program_ranges};
use ir::simplify::{prove, simplify};
use ir::{
    Annotation, BinaryOp, BlockId, BufferId, Expr, ExprKind, LoopId, LoopKind, Node, Program, VarId,
};
use std::ops::Range;

pub(crate) const STEP: &str = "partition";

/// Suffixes of the names of what runs before the interior, and after it.
pub const SUFFIX_BEFORE: &str = "~lo";
pub const SUFFIX_AFTER: &str = "~hi";

/// Iterations that are tried one by one where a condition is not affine.
const MOST_TRIED: i64 = 4096;

pub(crate) fn apply(program: &mut Program, target: &str) -> Result<(), Illegal> {
    let l = loop_named(program, STEP, target)?;
    if digits::separate(program, l) {
        return Ok(());
    }
    let inside = interior(program, l).map_err(|why| Illegal::new(STEP, target, why))?;
    let extent = program.loop_(l).extent;
    let mut parts = vec![(Node::Loop(l), inside.start)];
    if inside.start > 0 {
        let lo = copy(program, l, SUFFIX_BEFORE, inside.start);
        parts.insert(0, (lo, 0));
    }
    if inside.end < extent {
        let hi = copy(program, l, SUFFIX_AFTER, extent - inside.end);
        parts.push((hi, inside.end));
    }
    program.loop_mut(l).extent = inside.end - inside.start;
    let nodes: Vec<Node> = parts.iter().map(|(n, _)| *n).collect();
    program.replace_node(Node::Loop(l), &nodes);
    for (node, start) in parts {
        let Node::Loop(part) = node else { continue };
        let var = Expr::var(program.loop_(part).var);
        let shifted = &var + start;
        replace_in_copies(program, &[node], &var, &shifted);
    }
    Ok(())
}

/// The iterations in which all conditions hold.
fn interior(p: &Program, l: LoopId) -> Result<Range<i64>, String> {
    let kind = p.loop_(l).kind;
    if matches!(kind, LoopKind::Vectorized | LoopKind::Bound(_)) {
        return Err("it is vectorized or bound to a hardware axis".into());
    }
    let r = program_ranges(p);
    if kind == LoopKind::Parallel {
        // One run after another is shared, which is worth it for few tests.
        return all_hold(p, l, &digits::tests_of_whole_loop(p, l, &r), &r);
    }
    let tests = conditions(p, &p.blocks_under(&[Node::Loop(l)]), p.loop_(l).var, &r);
    let clamps = clamps(p, l, &r);
    if !clamps.is_empty() {
        // Where an index is cut off in every iteration, only tests are separated.
        let all = [&tests[..], &clamps].concat();
        if let Ok(inside) = all_hold(p, l, &all, &r) {
            return Ok(inside);
        }
    }
    all_hold(p, l, &tests, &r)
}

/// The iterations in which all of some conditions hold.
fn all_hold(p: &Program, l: LoopId, conditions: &[Expr], r: &Ranges) -> Result<Range<i64>, String> {
    let extent = p.loop_(l).extent;
    let mut inside = 0..extent;
    let mut found = false;
    for condition in conditions {
        let Some(holds) = holds_in(condition, p.loop_(l).var, &inside, extent, r) else {
            continue;
        };
        found = true;
        inside = inside.start.max(holds.start)..inside.end.min(holds.end);
        if inside.is_empty() {
            return Err("there is no iteration in which all conditions hold".into());
        }
    }
    if !found {
        return Err("no condition under it holds for some of its iterations".into());
    }
    if inside == (0..extent) {
        return Err("all conditions under it hold always".into());
    }
    Ok(inside)
}

/// The tests of some blocks that mention a loop's variable, over loop variables.
fn conditions(p: &Program, blocks: &[BlockId], var: VarId, r: &Ranges) -> Vec<Expr> {
    let mut all: Vec<Expr> = Vec::new();
    // Before they are simplified: blocks often make the same tests.
    let mut seen: Vec<Expr> = Vec::new();
    let mut add = |condition: &Expr| {
        let parts = conjuncts(Some(condition));
        let never = |part: &&Expr| bounds(part, r) == Some(Interval::point(0));
        if !condition.uses_var(var) || parts.iter().any(never) {
            return;
        }
        for part in parts {
            if !part.uses_var(var) || seen.contains(part) {
                continue;
            }
            seen.push(part.clone());
            let part = simplify(part, r);
            for test in conjuncts(Some(&part)) {
                let known = test.uses_var(var) && !test.loads();
                if known && !all.contains(test) {
                    all.push(test.clone());
                }
            }
        }
    };
    for b in blocks {
        let block = p.block(*b);
        if let Some(e) = &block.predicate {
            add(e);
        }
        for w in &block.writes {
            w.value.visit(&mut |e| {
                if let ExprKind::Select(condition, ..) = e.kind() {
                    add(&bound(block, condition));
                }
            });
        }
    }
    all
}

/// The conditions under which indices of loads are not cut off by a minimum or maximum.
fn clamps(p: &Program, l: LoopId, r: &Ranges) -> Vec<Expr> {
    let mut all: Vec<Expr> = Vec::new();
    let var = p.loop_(l).var;
    let mut add = |index: &Expr| {
        index.visit(&mut |e| {
            let ExprKind::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) = e.kind() else {
                return;
            };
            let (index, end) = match a.as_int() {
                Some(_) => (b, a),
                None => (a, b),
            };
            let inside = match op {
                BinaryOp::Min => index.clone().le(end),
                _ => end.clone().le(index),
            };
            let inside = simplify(&inside, r);
            if inside.uses_var(var) && !inside.loads() && !all.contains(&inside) {
                all.push(inside);
            }
        });
    };
    for b in p.blocks_under(&[Node::Loop(l)]) {
        let block = p.block(b);
        for (_, indices) in block.loads() {
            indices.iter().for_each(|e| add(&bound(block, e)));
        }
    }
    all
}

/// The longest run of iterations in which a test holds for sure; `None` if
/// there is none. `within` are the iterations that matter so far.
fn holds_in(
    test: &Expr,
    var: VarId,
    within: &Range<i64>,
    extent: i64,
    r: &Ranges,
) -> Option<Range<i64>> {
    if let Some(run) = half_line(test, var, r) {
        let run = run.start.max(0)..run.end.min(extent);
        return (!run.is_empty()).then_some(run);
    }
    if within.end - within.start > MOST_TRIED {
        return None;
    }
    let mut at = r.clone();
    let mut best: Range<i64> = 0..0;
    let mut start = within.start;
    for i in within.clone() {
        at.set(var, i, i);
        if !prove(test, &at) {
            start = i + 1;
        } else if i + 1 - start > best.end - best.start {
            best = start..i + 1;
        }
    }
    if best.is_empty() {
        return None;
    }
    at.set(var, best.start, best.end - 1);
    prove(test, &at).then_some(best)
}

/// Where an affine comparison holds for all values of the other variables.
fn half_line(test: &Expr, var: VarId, r: &Ranges) -> Option<Range<i64>> {
    let at_most_zero = match test.kind() {
        ExprKind::Binary(BinaryOp::Lt, a, b) => a - b + 1,
        ExprKind::Binary(BinaryOp::Le, a, b) => a - b,
        _ => return None,
    };
    let mut form = Affine::of(&simplify(&at_most_zero, r))?;
    let step = form.terms.remove(&var)?;
    let most = bounds(&form.to_expr(), r)?.hi;
    Some(if step > 0 {
        i64::MIN..(-most).div_euclid(step).saturating_add(1)
    } else {
        // step * x <= -most, so x >= most / -step, rounded up.
        -((-most).div_euclid(-step))..i64::MAX
    })
}

/// A copy of the loop, with another extent and everything under it renamed.
fn copy(p: &mut Program, l: LoopId, suffix: &str, extent: i64) -> Node {
    let node = Copier::new(p, l, suffix).node(p, Node::Loop(l));
    if let Node::Loop(copy) = node {
        p.loop_mut(copy).extent = extent;
    }
    node
}

struct Copier<'a> {
    suffix: &'a str,
    /// (old, new).
    buffers: Vec<(BufferId, BufferId)>,
    vars: Vec<(VarId, VarId)>,
}

impl<'a> Copier<'a> {
    /// Of what is under a loop, with copies of the buffers that live inside it.
    fn new(p: &mut Program, l: LoopId, suffix: &'a str) -> Copier<'a> {
        let mut buffers = Vec::new();
        let usage = p.usage();
        for b in p.live_buffers() {
            if lives_inside(p, &usage, b, l) {
                let mut buffer = p.buffer(b).clone();
                buffer.name = live_name(p, &format!("{}{suffix}", buffer.name));
                buffers.push((b, p.add_buffer(buffer)));
            }
        }
        Copier {
            suffix,
            buffers,
            vars: Vec::new(),
        }
    }

    fn node(&mut self, p: &mut Program, node: Node) -> Node {
        match node {
            Node::Block(b) => Node::Block(self.block(p, b)),
            Node::Loop(l) => {
                let old = p.loop_(l).clone();
                let name = live_name(p, &format!("{}{}", old.name, self.suffix));
                let new = p.new_loop(name, old.extent, vec![]);
                self.vars.push((old.var, p.loop_(new).var));
                let body: Vec<Node> = old.body.iter().map(|n| self.node(p, *n)).collect();
                let annotations = old.annotations.iter().map(|a| self.annotation(a));
                let copy = p.loop_mut(new);
                copy.annotations = annotations.collect();
                copy.kind = old.kind;
                copy.body = body;
                Node::Loop(new)
            }
        }
    }

    fn annotation(&self, a: &Annotation) -> Annotation {
        match a {
            Annotation::Prefetch { buffer, distance } => Annotation::Prefetch {
                buffer: self.buffer(*buffer),
                distance: *distance,
            },
            Annotation::UnrollBy(_) => a.clone(),
        }
    }

    fn buffer(&self, b: BufferId) -> BufferId {
        let copy = self.buffers.iter().find(|(old, _)| *old == b);
        copy.map_or(b, |(_, new)| *new)
    }

    fn fresh(&mut self, p: &mut Program, v: VarId) -> VarId {
        let name = p.var(v).name.clone();
        let new = p.add_var(name);
        self.vars.push((v, new));
        new
    }

    fn expr(&self, e: &Expr) -> Expr {
        e.rewrite(&mut |e| match e.kind() {
            ExprKind::Var(v) => {
                let copy = self.vars.iter().find(|(old, _)| old == v);
                copy.map(|(_, new)| Expr::var(*new))
            }
            ExprKind::Load(b, indices) => Some(Expr::load(self.buffer(*b), indices.clone())),
            _ => None,
        })
    }

    fn block(&mut self, p: &mut Program, b: BlockId) -> BlockId {
        let mut block = p.block(b).clone();
        block.name = live_name(p, &format!("{}{}", block.name, self.suffix));
        for i in &mut block.iters {
            i.var = self.fresh(p, i.var);
            i.binding = self.expr(&i.binding);
        }
        for (v, _, _) in block.tensor.iter_mut().flat_map(|t| &mut t.iters) {
            *v = self.fresh(p, *v);
        }
        block.predicate = block.predicate.as_ref().map(|e| self.expr(e));
        for w in &mut block.writes {
            w.buffer = self.buffer(w.buffer);
        }
        block.map_statement(|e| self.expr(e));
        p.add_block(block)
    }
}
