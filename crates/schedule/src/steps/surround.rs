//! surround{block, buffer}: let a block read a copy of a buffer that has as elements what
//! the block takes where it reads outside the buffer.
//!
//! The copy `{buffer}.surround`, made by a block of that name at the root, holds along each
//! dimension what the block's index runs over, no more and no less: windows that reach over
//! a border find its value there, and need no test. Tests that compare one index with a
//! number move to the copier. Tests that keep apart only padding that nobody reads (see
//! `pad`) are dropped; others stay.

use crate::illegal::Illegal;
use crate::nest::{
    at_most_zero, child_with, conjuncts, guarded_inside, insert_before, is_padded, live_name,
    map_block, numbered_axes, path, renest, whole_domain,
};
use crate::steps::{block_named, buffer_named};
use ir::affine::{Affine, Interval, Ranges, bounds};
use ir::region::{Access, block_accesses, program_ranges};
use ir::simplify::{prove, simplify};
use ir::{Block, BlockId, Buffer, BufferId, DType, Expr, ExprKind, Node, Program, Role, Scope};

pub(crate) const STEP: &str = "surround";

/// Gives the block that copies.
pub(crate) fn apply(program: &mut Program, block: &str, buffer: &str) -> Result<BlockId, Illegal> {
    let b = block_named(program, STEP, block)?;
    let source = buffer_named(program, STEP, buffer)?;
    let found = check(program, b, source).map_err(|why| Illegal::new(STEP, buffer, why))?;
    Ok(copy(program, b, source, &found))
}

/// How a block reads a buffer, and what becomes of it.
struct Found {
    read: Read,
    /// What the indices run over.
    spans: Vec<Interval>,
    /// Tests that the copier makes.
    moved: Vec<Bound>,
    /// Tests that stay.
    left: Vec<Expr>,
}

impl Found {
    /// What takes the place of the read, of the load that takes that of its load.
    fn rewritten(&self, load: Expr) -> Expr {
        let value = match self.read.cast {
            Some(to) => load.cast(to),
            None => load,
        };
        let left = self.left.iter().cloned().reduce(Expr::and);
        match (left, &self.read.other) {
            (Some(test), Some(other)) => Expr::select(test, value, other),
            _ => value,
        }
    }
}

/// A test of one index: `sign * index + constant <= 0`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Bound {
    dim: usize,
    sign: i64,
    constant: i64,
}

fn check(p: &Program, b: BlockId, source: BufferId) -> Result<Found, String> {
    let block = p.block(b);
    if block.tensor.is_some() {
        return Err(format!("`{}` is tensorized", block.name));
    }
    let read = one_read(block, source)?;
    if is_padded(p, source) {
        return Err("it is packed with padding, which a copy would read".into());
    }
    let here = root_position(p, b);
    for q in p.producers(source) {
        if root_position(p, q) >= here {
            let producer = &p.block(q).name;
            return Err(format!("`{producer}` computes it in the same nest"));
        }
    }
    let r = domains(p, b);
    let spans = read.indices.iter().map(|i| bounds(i, &r));
    let spans: Option<Vec<Interval>> = spans.collect();
    let spans = spans.ok_or("an index has no bounds")?;
    let (mut moved, mut left) = (Vec::new(), Vec::new());
    for test in read.tests.iter().filter(|t| !prove(t, &r)) {
        match bound(test, &read.indices, &r) {
            Some(bound) => moved.push(bound),
            None if is_unread(p, b, test, &r) => {}
            None => left.push(test.clone()),
        }
    }
    Ok(Found {
        read,
        spans,
        moved,
        left,
    })
}

/// The child of the root that a block stands under.
fn root_position(p: &Program, b: BlockId) -> usize {
    child_with(p, None, Node::Block(b)).expect("in the body").0
}

/// Ranges of the iteration variables of a block, and of the loops of the program.
fn domains(p: &Program, b: BlockId) -> Ranges {
    let mut r = program_ranges(p);
    for i in &p.block(b).iters {
        r.set(i.var, 0, i.extent - 1);
    }
    r
}

/// A load with the guards round it.
#[derive(Clone, PartialEq, Eq)]
struct Read {
    whole: Expr,
    tests: Vec<Expr>,
    /// What the guards take where a test fails.
    other: Option<Expr>,
    /// Where the guarded value is a conversion of the load.
    cast: Option<DType>,
    indices: Vec<Expr>,
}

/// The one way in which a block reads a buffer.
fn one_read(block: &Block, source: BufferId) -> Result<Read, String> {
    let mut found: Vec<Read> = Vec::new();
    for w in &block.writes {
        if w.indices.iter().any(|i| loads(i, source)) {
            return Err(format!("`{}` writes where it says", block.name));
        }
        find(&w.value, source, &mut found);
    }
    match (found.pop(), found.is_empty()) {
        (None, _) => Err(format!("`{}` does not read it", block.name)),
        (Some(one), true) => Ok(one),
        (Some(_), false) => Err(format!("`{}` reads it in several ways", block.name)),
    }
}

fn loads(e: &Expr, source: BufferId) -> bool {
    e.any(&|e| matches!(e.kind(), ExprKind::Load(b, _) if *b == source))
}

/// Distinct reads: each with the guards round it, if they guard nothing else.
fn find(e: &Expr, source: BufferId, found: &mut Vec<Read>) {
    match read(e, source) {
        Some(read) if found.contains(&read) => {}
        Some(read) => found.push(read),
        None => e.children().for_each(|c| find(c, source, found)),
    }
}

/// A load of a buffer, or a guard of one.
fn read(e: &Expr, source: BufferId) -> Option<Read> {
    let zero = |e: &Expr| e.as_float() == Some(0.0) || e.as_int() == Some(0);
    match e.kind() {
        ExprKind::Load(b, indices) if *b == source => Some(Read {
            whole: e.clone(),
            tests: vec![],
            other: None,
            cast: None,
            indices: indices.clone(),
        }),
        ExprKind::Select(test, value, other) if !test.loads() && is_constant(other) => {
            let mut inner = match value.kind() {
                ExprKind::Cast(to, of) if zero(other) => {
                    let inner = read(of, source)?;
                    let plain = inner.cast.is_none() && inner.other.iter().all(zero);
                    let cast = Some(*to);
                    plain.then_some(Read { cast, ..inner })?
                }
                _ => read(value, source).filter(|r| r.other.iter().all(|o| o == other))?,
            };
            let tests = conjuncts(Some(test)).into_iter().cloned();
            inner.tests.splice(0..0, tests);
            inner.whole = e.clone();
            inner.other = Some(other.clone());
            Some(inner)
        }
        _ => None,
    }
}

fn is_constant(e: &Expr) -> bool {
    matches!(e.kind(), ExprKind::Int(..) | ExprKind::Float(..))
}

/// A test as one of an index alone. The index need not be affine: an axis of a transposed
/// convolution has quotients of its phase in it, and these cancel out.
fn bound(test: &Expr, indices: &[Expr], r: &Ranges) -> Option<Bound> {
    let form = at_most_zero(test, r)?;
    let along = indices.iter().enumerate();
    let mut bounds = along.flat_map(|(dim, index)| [1, -1].map(|sign| (dim, sign, index)));
    bounds.find_map(|(dim, sign, index)| {
        let rest = simplify(&(form.clone() - index.clone() * sign), r);
        let constant = rest.as_int()?;
        Some(Bound {
            dim,
            sign,
            constant,
        })
    })
}

/// Whether a test keeps apart only results that no block reads: those from some number on
/// along a dimension of the one buffer that a block writes.
fn is_unread(p: &Program, b: BlockId, test: &Expr, r: &Ranges) -> bool {
    let block = p.block(b);
    let [write] = &block.writes[..] else {
        return false;
    };
    let form = at_most_zero(test, r).and_then(|e| Affine::of(&e));
    let (Some(form), Role::Intermediate) = (form, p.buffer(write.buffer).role) else {
        return false;
    };
    write.indices.iter().enumerate().any(|(dim, index)| {
        let Some(axis) = index.as_var() else {
            return false;
        };
        let rest = form.clone().add_scaled(&Affine::var(axis), -1);
        let Some(constant) = rest.to_expr().as_int() else {
            return false;
        };
        // axis + constant <= 0
        let last = -constant;
        p.consumers(write.buffer).into_iter().all(|c| {
            let r = domains(p, c);
            let reads = block_accesses(p.block(c), write.buffer, Access::Reads);
            let below = |i: &Vec<Expr>| bounds(&i[dim], &r).is_some_and(|i| i.hi <= last);
            reads.iter().all(below)
        })
    })
}

fn copy(p: &mut Program, b: BlockId, source: BufferId, found: &Found) -> BlockId {
    let name = live_name(p, &format!("{}.surround", p.buffer(source).name));
    let shape: Vec<i64> = found.spans.iter().map(|s| s.hi - s.lo + 1).collect();
    let axes = numbered_axes(&shape);
    let dtype = p.buffer(source).dtype;
    let surrounded = p.add_buffer(Buffer {
        name: name.clone(),
        dtype,
        shape,
        scope: Scope::Global,
        role: Role::Intermediate,
        view: None,
    });
    // Outside a guarded conversion lies 0 of either type.
    let zero = Expr::constant(0.0, dtype);
    let own = found
        .read
        .other
        .clone()
        .filter(|_| found.read.cast.is_none());
    let outside = own.unwrap_or(zero);
    let copier = map_block(p, &name, &axes, surrounded, |at| {
        let moved = at.iter().zip(&found.spans);
        let indices: Vec<Expr> = moved.map(|(i, s)| i + s.lo).collect();
        let test = |t: &Bound| {
            let index = indices[t.dim].clone();
            match t.sign {
                1 => index.le(-t.constant),
                _ => Expr::int(t.constant).le(index),
            }
        };
        let load = Expr::load(source, indices.clone());
        let value = match found.moved.iter().map(test).reduce(Expr::and) {
            None => load,
            Some(inside) => Expr::select(inside, load, &outside),
        };
        (at.to_vec(), value)
    });
    let r = domains(p, copier);
    // Where a test that stays kept the block from reading outside.
    let value = guarded_inside(p, &p.block(copier).writes[0].value, &r);
    p.block_mut(copier).writes[0].value = value;
    let r = domains(p, b);
    let moved = found.read.indices.iter().zip(&found.spans);
    let at: Vec<Expr> = moved.map(|(i, s)| simplify(&(i - s.lo), &r)).collect();
    let read = found.rewritten(Expr::load(surrounded, at));
    p.block_mut(b)
        .map_statement(|e| e.rewrite(&mut |e| (*e == found.read.whole).then(|| read.clone())));
    let outermost = path(p, Node::Block(b)).first().copied();
    let before = outermost.map_or(Node::Block(b), Node::Loop);
    let spans = whole_domain(p.block(copier));
    let nest = renest(p, copier, &spans, &[]);
    insert_before(p, None, before, nest);
    copier
}
