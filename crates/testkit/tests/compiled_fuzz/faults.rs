//! Faults that a code generator might have, put into flat code just before it
//! is compiled. Each keeps the code runnable: what it reads or writes wrongly
//! lies within `SLACK` bytes of the buffer.

use ir::{BinaryOp, Expr, ExprKind};
use lower::flat::{BufferPlace, Code, Stmt, Store};

/// Room round buffers for what a lost mask lets through.
pub const SLACK: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `acc + x * y` becomes `x + acc * y`, as with the wrong form of an FMA.
    SwappedAddend,
    /// All lanes of a vector's tail are stored.
    LostMask,
    /// A register starts with another value than the one it was given.
    LostStart,
    /// A loop runs one iteration less.
    ShortLoop,
}

/// Puts the fault into the first place of the kernel where it can be.
pub fn inject(code: &mut Code, fault: Fault) -> bool {
    let places: Vec<BufferPlace> = code.buffers.iter().map(|b| b.place).collect();
    let mut kernel = std::mem::take(&mut code.kernel);
    let mut change: Box<dyn FnMut(&mut Stmt) -> bool> = match fault {
        Fault::SwappedAddend => Box::new(|s| store(s).is_some_and(swap)),
        Fault::LostMask => Box::new(|s| store(s).is_some_and(|s| unmask(s, &places))),
        Fault::LostStart => Box::new(|s| store(s).is_some_and(|s| restart(s, &places))),
        Fault::ShortLoop => Box::new(shorten),
    };
    let done = first(&mut kernel, &mut *change);
    drop(change);
    code.kernel = kernel;
    done
}

/// Applies `change` to statements in order, outer ones last, until one takes it.
fn first(stmts: &mut [Stmt], change: &mut dyn FnMut(&mut Stmt) -> bool) -> bool {
    stmts.iter_mut().any(|s| {
        let inside = match s {
            Stmt::Loop(l) => first(&mut l.body, change),
            Stmt::If {
                then, otherwise, ..
            } => first(then, change) || first(otherwise, change),
            _ => false,
        };
        inside || change(s)
    })
}

fn store(s: &mut Stmt) -> Option<&mut Store> {
    match s {
        Stmt::Store(s) => Some(s),
        _ => None,
    }
}

fn swap(s: &mut Store) -> bool {
    let ExprKind::Binary(BinaryOp::Add, a, b) = s.value.kind() else {
        return false;
    };
    let accumulates = |e: &Expr| matches!(e.kind(), ExprKind::Load(b, _) if *b == s.buffer);
    let (acc, term) = if accumulates(a) { (a, b) } else { (b, a) };
    let ExprKind::Binary(BinaryOp::Mul, x, y) = term.kind() else {
        return false;
    };
    if !accumulates(acc) {
        return false;
    }
    s.value = x + &(acc * y);
    true
}

/// Only where the lanes that the mask cut off stay near the buffer and compute
/// without a trap: no positions from data, no division of data.
fn unmask(s: &mut Store, places: &[BufferPlace]) -> bool {
    let near = matches!(
        places[s.buffer.index()],
        BufferPlace::Output | BufferPlace::Workspace(_) | BufferPlace::WorkerWorkspace(_)
    );
    let has_load = |e: &Expr| e.any(&|e| matches!(e.kind(), ExprKind::Load(..)));
    let wild = |e: &Expr| match e.kind() {
        ExprKind::Load(_, indices) => indices.iter().any(has_load),
        ExprKind::Binary(BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::FloorMod, a, b) => {
            has_load(a) || has_load(b)
        }
        _ => false,
    };
    let tame = near && !has_load(&s.offset) && !s.value.any(&wild);
    tame && s.lane.is_some() && s.mask.take().is_some()
}

fn restart(s: &mut Store, places: &[BufferPlace]) -> bool {
    let start = match s.value.kind() {
        ExprKind::Float(_, d) => Expr::constant(5.0, *d),
        ExprKind::Int(_, d) if d.is_int() => Expr::constant(5.0, *d),
        _ => return false,
    };
    let register = places[s.buffer.index()] == BufferPlace::Register;
    if register {
        s.value = start;
    }
    register
}

fn shorten(s: &mut Stmt) -> bool {
    match s {
        Stmt::Loop(l) if l.extent > 1 => {
            l.extent -= 1;
            true
        }
        _ => false,
    }
}
