//! Flat code as text, for dumps and file tests.

use super::{AccessId, BufferPlace, Code, LaneOffsets, SpillReason, Stmt, Store};
use ir::{BinaryOp, BufferId, Expr, ExprKind, UnaryOp, VarId};
use std::fmt::Write as _;

/// The whole code: buffers in use, then the entries.
pub fn print(code: &Code) -> String {
    let mut out = format!(
        "code {} workspace {} worker {}\n",
        code.name, code.workspace_bytes, code.worker_workspace_bytes
    );
    for b in code
        .buffers
        .iter()
        .filter(|b| b.place != BufferPlace::Unused)
    {
        let place = place(b.place);
        let spill = b.spill.as_ref().map(spill).unwrap_or_default();
        let _ = writeln!(
            out,
            "  {}: {}[{}] {place}{spill}",
            b.name, b.dtype, b.elements
        );
    }
    out += &print_prepare(code);
    let _ = writeln!(out, "kernel({}):", names(code, &code.params));
    stmts(code, &code.kernel, 1, &mut out);
    out
}

/// The prepare entry alone; empty if there is none.
pub fn print_prepare(code: &Code) -> String {
    let mut out = String::new();
    if !code.prepare.is_empty() {
        let _ = writeln!(out, "prepare({}):", names(code, &code.prepare_params));
        stmts(code, &code.prepare, 1, &mut out);
    }
    out
}

fn names(code: &Code, ids: &[BufferId]) -> String {
    let names: Vec<&str> = ids
        .iter()
        .map(|b| code.buffers[b.index()].name.as_str())
        .collect();
    names.join(", ")
}

pub(crate) fn place(place: BufferPlace) -> String {
    match place {
        BufferPlace::Workspace(at) => format!("workspace {at}"),
        BufferPlace::WorkerWorkspace(at) => format!("worker workspace {at}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// A comment that says why a buffer is not in registers.
pub(crate) fn spill(why: &SpillReason) -> String {
    format!(" ; not in registers: {why}")
}

fn stmts(code: &Code, list: &[Stmt], depth: usize, out: &mut String) {
    let var = |v: VarId| code.vars[v.index()].clone();
    let buffer = |b: BufferId| code.buffers[b.index()].name.clone();
    let e = |e: &Expr| expr(e, &var, &buffer);
    let pad = "  ".repeat(depth);
    for s in list {
        match s {
            Stmt::Loop(l) => {
                let kind = if l.parallel { "parallel" } else { "for" };
                let name = &code.loops[l.id as usize].name;
                let named = match *name == var(l.var) {
                    true => String::new(),
                    false => format!(" of {name}"),
                };
                let _ = writeln!(
                    out,
                    "{pad}{kind} {} in {}{named}: #{}",
                    var(l.var),
                    l.extent,
                    l.id
                );
                stmts(code, &l.body, depth + 1, out);
            }
            Stmt::If {
                cond,
                then,
                otherwise,
            } => {
                let _ = writeln!(out, "{pad}if {}:", e(cond));
                stmts(code, then, depth + 1, out);
                if !otherwise.is_empty() {
                    let _ = writeln!(out, "{pad}else:");
                    stmts(code, otherwise, depth + 1, out);
                }
            }
            Stmt::Store(s) => {
                let _ = writeln!(out, "{pad}{}", store(code, s, &e));
            }
            Stmt::Prefetch { buffer: b, offset } => {
                let _ = writeln!(out, "{pad}prefetch {}[{}]", buffer(*b), e(offset));
            }
            Stmt::Check { cond, code } => {
                let _ = writeln!(out, "{pad}check {} else {code}", e(cond));
            }
        }
    }
}

fn store(code: &Code, s: &Store, e: &impl Fn(&Expr) -> String) -> String {
    let name = &code.buffers[s.buffer.index()].name;
    let mut line = format!("{name}[{}] = {}", e(&s.offset), e(&s.value));
    if let Some(l) = s.lane {
        let _ = write!(line, " lanes {} in {}", code.vars[l.var.index()], l.lanes);
    }
    if let Some(m) = &s.mask {
        let _ = write!(line, " where {}", e(m));
    }
    let ids: Vec<String> = s.loads.iter().map(AccessId::to_string).collect();
    let _ = write!(line, " #{}({})", s.id, ids.join(" "));
    for id in s.loads.iter().chain([&s.id]) {
        let row = code.accesses.get(*id as usize);
        if let Some(LaneOffsets::Pattern(p)) = row.map(|a| &a.offsets) {
            let distances: Vec<String> = p.distances.iter().map(i64::to_string).collect();
            let _ = write!(line, " {id}: [{}]", distances.join(" "));
            if let Some(r) = &p.readable {
                let _ = write!(line, " in {}..{}", r.start, r.end);
            }
        }
    }
    line
}

/// An expression, with the names that `var` and `buffer` give.
pub fn expr(
    e: &Expr,
    var: &dyn Fn(VarId) -> String,
    buffer: &dyn Fn(BufferId) -> String,
) -> String {
    let mut out = String::new();
    write_expr(e, 0, var, buffer, &mut out);
    out
}

/// How tightly an infix operator binds; `None` for functions.
fn precedence(op: BinaryOp) -> Option<u8> {
    Some(match op {
        BinaryOp::Or => 1,
        BinaryOp::And => 2,
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le => 3,
        BinaryOp::Add | BinaryOp::Sub => 4,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod => 5,
        BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::Pow
        | BinaryOp::BitAnd
        | BinaryOp::BitOr
        | BinaryOp::BitXor
        | BinaryOp::Shl
        | BinaryOp::Shr => return None,
    })
}

fn write_expr(
    e: &Expr,
    outer: u8,
    var: &dyn Fn(VarId) -> String,
    buffer: &dyn Fn(BufferId) -> String,
    out: &mut String,
) {
    let list = |name: &str, open: char, close: char, args: &[&Expr], out: &mut String| {
        out.push_str(name);
        out.push(open);
        for (n, a) in args.iter().enumerate() {
            if n > 0 {
                out.push_str(", ");
            }
            write_expr(a, 0, var, buffer, out);
        }
        out.push(close);
    };
    match e.kind() {
        ExprKind::Int(..) | ExprKind::Float(..) => {
            out.push_str(&ir::text::literal(e).unwrap_or_default());
        }
        ExprKind::Var(v) => out.push_str(&var(*v)),
        ExprKind::Arg(i, _) => {
            let _ = write!(out, "arg{i}");
        }
        ExprKind::Load(b, i) => list(&buffer(*b), '[', ']', &i.iter().collect::<Vec<_>>(), out),
        ExprKind::Unary(op, a) => list(UnaryOp::name(*op), '(', ')', &[a], out),
        ExprKind::Cast(d, a) => list(d.name(), '(', ')', &[a], out),
        ExprKind::Select(c, a, b) => list("select", '(', ')', &[c, a, b], out),
        ExprKind::Binary(op, a, b) => match precedence(*op) {
            None => list(op.name(), '(', ')', &[a, b], out),
            Some(p) => {
                if p < outer {
                    out.push('(');
                }
                write_expr(a, p, var, buffer, out);
                let _ = write!(out, " {} ", op.name());
                // Operators group to the left: a right operand of equal strength needs brackets.
                write_expr(b, p + 1, var, buffer, out);
                if p < outer {
                    out.push(')');
                }
            }
        },
    }
}
