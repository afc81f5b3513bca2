//! The form between a program and flat code: loops, ifs and assignments.
//!
//! Owns the statement tree that the passes rewrite, with what they keep about
//! every buffer. Buffer and variable ids are those of the program; temporaries
//! and new variables are added to the arenas of the nest's own copy. Until
//! `flatten` an access has one index per dimension, after it one offset.

use crate::flat::{BufferPlace, Lane, SpillReason};
use ir::affine::Ranges;
use ir::{
    Annotation, BinaryOp, Buffer, BufferId, DType, Expr, ExprKind, LoopKind, Program, Role, Scope,
    VarId,
};
use std::collections::BTreeSet;
use std::fmt::Write as _;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stmt {
    For(For),
    If {
        cond: Expr,
        then: Vec<Stmt>,
    },
    Assign(Assign),
    /// Leaves with `code` unless `cond` holds.
    Check {
        cond: Expr,
        code: i32,
    },
    Prefetch {
        buffer: BufferId,
        offset: Expr,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct For {
    pub name: String,
    pub var: VarId,
    pub extent: i64,
    pub kind: LoopKind,
    pub annotations: Vec<Annotation>,
    pub body: Vec<Stmt>,
}

/// `buffer[indices] = value`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assign {
    pub buffer: BufferId,
    pub indices: Vec<Expr>,
    pub value: Expr,
    pub lane: Option<Lane>,
    pub mask: Option<Expr>,
}

/// What the passes know of a buffer, beside its entry in the program.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    /// The loop whose one iteration the contents live for; `None` for the root.
    pub site: Option<VarId>,
    /// Whether that loop is, or lies in, a parallel loop.
    pub worker_private: bool,
    /// Added by a pass; holds a value within one statement's evaluation.
    pub temporary: bool,
    /// Extents and element strides of the memory, once it is compacted.
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
    pub offset: i64,
    pub elements: i64,
    pub place: Option<BufferPlace>,
    /// Why a buffer of scope `register` has another place.
    pub spill: Option<SpillReason>,
}

/// Which entry a list of statements belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Prepare,
    Kernel,
}

#[derive(Clone, Debug)]
pub(crate) struct Nest {
    /// Arenas of variables and buffers; its body is not looked at.
    pub program: Program,
    /// Indexed by `BufferId`.
    pub storage: Vec<Storage>,
    pub prepare: Vec<Stmt>,
    pub kernel: Vec<Stmt>,
    pub workspace_bytes: u64,
    pub worker_workspace_bytes: u64,
}

impl Nest {
    /// Rewrites the statements of both entries.
    pub fn map_entries(&mut self, mut f: impl FnMut(&mut Nest, Vec<Stmt>) -> Vec<Stmt>) {
        for entry in [Entry::Prepare, Entry::Kernel] {
            let old = std::mem::take(self.stmts_mut(entry));
            let new = f(self, old);
            *self.stmts_mut(entry) = new;
        }
    }

    pub fn stmts(&self, entry: Entry) -> &[Stmt] {
        match entry {
            Entry::Prepare => &self.prepare,
            Entry::Kernel => &self.kernel,
        }
    }

    pub fn stmts_mut(&mut self, entry: Entry) -> &mut Vec<Stmt> {
        match entry {
            Entry::Prepare => &mut self.prepare,
            Entry::Kernel => &mut self.kernel,
        }
    }

    /// Statements that are not loops or ifs.
    pub fn statement_count(&self) -> usize {
        count(&self.prepare) + count(&self.kernel)
    }

    pub fn storage(&self, b: BufferId) -> &Storage {
        &self.storage[b.index()]
    }

    pub fn storage_mut(&mut self, b: BufferId) -> &mut Storage {
        &mut self.storage[b.index()]
    }

    /// Adds a register buffer for values that live within one iteration of the
    /// innermost loop around its statement.
    pub fn add_temporary(&mut self, base: &str, dtype: DType, shape: Vec<i64>) -> BufferId {
        let buffer = Buffer {
            name: self.program.fresh_name(base),
            dtype,
            shape: shape.clone(),
            scope: Scope::Register,
            role: Role::Intermediate,
            view: None,
        };
        let id = self.program.add_buffer(buffer);
        self.storage.push(Storage {
            site: None,
            worker_private: true,
            temporary: true,
            shape,
            strides: vec![],
            offset: 0,
            elements: 0,
            place: None,
            spill: None,
        });
        id
    }

    /// Ranges of the variables of all loops; lanes included.
    pub fn ranges(&self) -> Ranges {
        let mut r = Ranges::new();
        for entry in [Entry::Prepare, Entry::Kernel] {
            walk(self.stmts(entry), &mut Vec::new(), &mut |s, _| match s {
                Stmt::For(l) => r.set(l.var, 0, l.extent - 1),
                Stmt::Assign(Assign { lane: Some(l), .. }) => {
                    r.set(l.var, 0, i64::from(l.lanes) - 1)
                }
                _ => {}
            });
        }
        r
    }

    /// The intermediates that statements touch, then the statements, as text.
    pub fn text(&self) -> String {
        let mut out = self.buffers_text();
        for (name, entry) in [("prepare", Entry::Prepare), ("kernel", Entry::Kernel)] {
            if entry == Entry::Prepare && self.prepare.is_empty() {
                continue;
            }
            let _ = writeln!(out, "{name} {}:", self.program.name);
            print(&self.program, self.stmts(entry), 1, &mut out);
        }
        out
    }

    fn buffers_text(&self) -> String {
        let stmts = self.prepare.iter().chain(&self.kernel);
        let touched: BTreeSet<BufferId> = stmts
            .flat_map(|s| s.written().into_iter().chain(s.loaded()))
            .collect();
        let mut out = String::new();
        for b in touched {
            let (buffer, storage) = (self.program.buffer(b), self.storage(b));
            if buffer.role != Role::Intermediate {
                continue;
            }
            let shape: Vec<String> = storage.shape.iter().map(i64::to_string).collect();
            let shape = shape.join(", ");
            let _ = write!(out, "buffer {}: {}[{shape}]", buffer.name, buffer.dtype);
            if buffer.scope != Scope::Global {
                let _ = write!(out, " {}", format!("{:?}", buffer.scope).to_lowercase());
            }
            if let Some(site) = storage.site {
                let _ = write!(out, " inside {}", self.program.var(site).name);
            }
            if let Some(place) = storage.place {
                let _ = write!(out, " -> {}", crate::flat::text::place(place));
            }
            if let Some(why) = &storage.spill {
                out += &crate::flat::text::spill(why);
            }
            out.push('\n');
        }
        out
    }
}

/// Calls `f(statement, loop variables around it)` for every statement, parents first.
pub(crate) fn walk<'a>(
    stmts: &'a [Stmt],
    path: &mut Vec<VarId>,
    f: &mut impl FnMut(&'a Stmt, &[VarId]),
) {
    for s in stmts {
        f(s, path);
        match s {
            Stmt::For(l) => {
                path.push(l.var);
                walk(&l.body, path, f);
                path.pop();
            }
            Stmt::If { then, .. } => walk(then, path, f),
            _ => {}
        }
    }
}

/// Statements that are not loops or ifs.
pub(crate) fn count(stmts: &[Stmt]) -> usize {
    let one = |s: &Stmt| match s {
        Stmt::For(For { body: inner, .. }) | Stmt::If { then: inner, .. } => count(inner),
        _ => 1,
    };
    stmts.iter().map(one).sum()
}

impl Stmt {
    /// The expressions of this statement itself, not of nested ones: values and
    /// indices first.
    pub fn exprs(&self) -> Vec<&Expr> {
        match self {
            Stmt::For(_) => vec![],
            Stmt::If { cond, .. } | Stmt::Check { cond, .. } => vec![cond],
            Stmt::Assign(a) => {
                let mut out = vec![&a.value];
                out.extend(&a.indices);
                out.extend(&a.mask);
                out
            }
            Stmt::Prefetch { offset, .. } => vec![offset],
        }
    }

    /// This statement with every expression, nested ones included, mapped by `f`.
    pub fn map(&self, f: &mut impl FnMut(&Expr) -> Expr) -> Stmt {
        match self {
            Stmt::For(l) => Stmt::For(For {
                body: l.body.iter().map(|s| s.map(f)).collect(),
                ..l.clone_header()
            }),
            Stmt::If { cond, then } => Stmt::If {
                cond: f(cond),
                then: then.iter().map(|s| s.map(f)).collect(),
            },
            Stmt::Assign(a) => Stmt::Assign(Assign {
                buffer: a.buffer,
                indices: a.indices.iter().map(&mut *f).collect(),
                value: f(&a.value),
                lane: a.lane,
                mask: a.mask.as_ref().map(f),
            }),
            Stmt::Check { cond, code } => Stmt::Check {
                cond: f(cond),
                code: *code,
            },
            Stmt::Prefetch { buffer, offset } => Stmt::Prefetch {
                buffer: *buffer,
                offset: f(offset),
            },
        }
    }

    /// Puts other indices, where there are some, into every access, those of nested statements
    /// included. The indices of a load are seen after the loads in them.
    pub fn map_accesses(&mut self, f: &mut impl FnMut(BufferId, &[Expr]) -> Option<Vec<Expr>>) {
        let mut in_loads = |e: &mut Expr| {
            if e.loads() {
                *e = e.map_loads(&mut |b, indices| Some(Expr::load(b, f(b, indices)?)));
            }
        };
        match self {
            Stmt::For(l) => l.body.iter_mut().for_each(|s| s.map_accesses(f)),
            Stmt::If { cond, then } => {
                in_loads(cond);
                then.iter_mut().for_each(|s| s.map_accesses(f));
            }
            Stmt::Assign(a) => {
                a.indices.iter_mut().for_each(&mut in_loads);
                in_loads(&mut a.value);
                a.mask.iter_mut().for_each(&mut in_loads);
                if let Some(indices) = f(a.buffer, &a.indices) {
                    a.indices = indices;
                }
            }
            Stmt::Check { cond: e, .. } | Stmt::Prefetch { offset: e, .. } => in_loads(e),
        }
    }

    /// This statement with a variable replaced.
    pub fn with_var(&self, var: VarId, by: &Expr) -> Stmt {
        self.map(&mut |e| e.with_var(var, by))
    }

    /// Whether an expression here or below uses the variable.
    pub fn uses_var(&self, var: VarId) -> bool {
        self.exprs().iter().any(|e| e.uses_var(var))
            || match self {
                Stmt::For(l) => l.body.iter().any(|s| s.uses_var(var)),
                Stmt::If { then, .. } => then.iter().any(|s| s.uses_var(var)),
                _ => false,
            }
    }

    /// Buffers stored to, here or below.
    pub fn written(&self) -> BTreeSet<BufferId> {
        let mut out = BTreeSet::new();
        walk(std::slice::from_ref(self), &mut Vec::new(), &mut |s, _| {
            if let Stmt::Assign(a) = s {
                out.insert(a.buffer);
            }
        });
        out
    }

    /// Buffers loaded from, here or below.
    pub fn loaded(&self) -> BTreeSet<BufferId> {
        let mut out = BTreeSet::new();
        walk(std::slice::from_ref(self), &mut Vec::new(), &mut |s, _| {
            for e in s.exprs() {
                e.visit_loads(&mut |b, _| {
                    out.insert(b);
                });
            }
        });
        out
    }
}

impl For {
    /// The loop without its body.
    pub fn clone_header(&self) -> For {
        For {
            name: self.name.clone(),
            var: self.var,
            extent: self.extent,
            kind: self.kind,
            annotations: self.annotations.clone(),
            body: vec![],
        }
    }
}

/// Every load of an expression, outer ones first.
pub(crate) fn loads(e: &Expr) -> Vec<(BufferId, &[Expr])> {
    let mut out = Vec::new();
    e.visit_loads(&mut |b, i| out.push((b, i)));
    out
}

pub(crate) fn has_load(e: &Expr) -> bool {
    e.loads()
}

/// Whether a table has an element for each byte, and the index is a byte: it needs no check.
pub(crate) fn is_byte_of(p: &Program, table: BufferId, index: &Expr) -> bool {
    let ExprKind::Cast(_, byte) = index.kind() else {
        return false;
    };
    let is_byte = match byte.kind() {
        ExprKind::Cast(to, _) => *to == DType::U8,
        ExprKind::Load(b, _) => p.buffer(*b).dtype == DType::U8,
        _ => false,
    };
    is_byte && matches!(p.buffer(table).shape[..], [n] if n > i64::from(u8::MAX))
}

/// The operands of a tree of `and`, left to right; nothing for `true`.
pub(crate) fn conjuncts(e: &Expr) -> Vec<Expr> {
    match e.kind() {
        ExprKind::Binary(BinaryOp::And, a, b) => {
            let mut out = conjuncts(a);
            out.extend(conjuncts(b));
            out
        }
        ExprKind::Int(1, DType::Bool) => vec![],
        _ => vec![e.clone()],
    }
}

/// The `and` of all operands; `None` if there are none.
pub(crate) fn conjunction(terms: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    terms.into_iter().reduce(|a, b| a.and(b))
}

/// `then` under the conditions, or bare if there are none.
pub(crate) fn guarded(conds: Vec<Expr>, then: Vec<Stmt>) -> Vec<Stmt> {
    match conjunction(conds) {
        Some(cond) if !then.is_empty() => vec![Stmt::If { cond, then }],
        _ => then,
    }
}

fn print(p: &Program, stmts: &[Stmt], depth: usize, out: &mut String) {
    let var = |v: VarId| p.var(v).name.clone();
    let buffer = |b: BufferId| p.buffer(b).name.clone();
    let e = |e: &Expr| crate::flat::text::expr(e, &var, &buffer);
    let pad = "  ".repeat(depth);
    for s in stmts {
        let _ = match s {
            Stmt::For(l) => {
                let note = |a: &Annotation| match a {
                    Annotation::UnrollBy(n) => format!(" unroll_by {n}"),
                    Annotation::Prefetch {
                        buffer: b,
                        distance,
                    } => {
                        format!(" prefetch {} {distance}", buffer(*b))
                    }
                };
                let notes: String = l.annotations.iter().map(note).collect();
                let kind = format!("{:?}", l.kind).to_lowercase();
                let _ = writeln!(out, "{pad}{kind} {} in {}{notes}:", var(l.var), l.extent);
                print(p, &l.body, depth + 1, out);
                Ok(())
            }
            Stmt::If { cond, then } => {
                let _ = writeln!(out, "{pad}if {}:", e(cond));
                print(p, then, depth + 1, out);
                Ok(())
            }
            Stmt::Assign(a) => {
                let lane = a
                    .lane
                    .map(|l| format!(" lanes {} in {}", var(l.var), l.lanes));
                let mask = a.mask.as_ref().map(|m| format!(" where {}", e(m)));
                let indices: Vec<String> = a.indices.iter().map(e).collect();
                writeln!(
                    out,
                    "{pad}{}[{}] = {}{}{}",
                    buffer(a.buffer),
                    indices.join(", "),
                    e(&a.value),
                    lane.unwrap_or_default(),
                    mask.unwrap_or_default()
                )
            }
            Stmt::Check { cond, code } => writeln!(out, "{pad}check {} else {code}", e(cond)),
            Stmt::Prefetch { buffer: b, offset } => {
                writeln!(out, "{pad}prefetch {}[{}]", buffer(*b), e(offset))
            }
        };
    }
}
