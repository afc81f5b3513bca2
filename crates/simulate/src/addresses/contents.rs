//! What is in the buffers of integers that a kernel only reads.
//!
//! An executable of the kernel fills them with [`crate::contents`], which repeat. So what such elements decide is
//! known before the kernel runs, and is the same in every simulator.

use super::NotFollowed;
use super::terms::Value;
use crate::executable::{PERIOD, contents};
use ir::{BinaryOp, BufferId, DType, Expr, ExprKind, UnaryOp};
use lower::flat::{BufferPlace, Code};
use std::collections::HashMap;
use std::sync::Arc;

/// The buffers of integers that a kernel only reads.
pub(super) struct Contents<'c> {
    code: &'c Code,
    held: HashMap<BufferId, Arc<Held>>,
}

/// The elements of a buffer.
#[derive(Debug)]
pub(super) struct Held {
    /// Those at the begin, which repeat.
    values: Vec<i64>,
    elements: i64,
}

impl Held {
    /// The element of this number. There is none outside, so nothing needs what is said of it.
    pub(super) fn at(&self, element: i64) -> i64 {
        match (0..self.elements).contains(&element) {
            // A division by a constant is none.
            true if self.values.len() == PERIOD => self.values[element as usize % PERIOD],
            true => self.values[element as usize % self.values.len()],
            false => 0,
        }
    }

    /// As many elements, each of them mapped.
    fn map(&self, f: impl FnMut(&i64) -> i64) -> Held {
        Held {
            values: self.values.iter().map(f).collect(),
            elements: self.elements,
        }
    }
}

impl<'c> Contents<'c> {
    pub(super) fn of(code: &'c Code) -> Contents<'c> {
        let mut held = HashMap::new();
        for (number, id) in code.params.iter().enumerate() {
            let b = &code.buffers[id.index()];
            let is_read = matches!(
                b.place,
                BufferPlace::Input | BufferPlace::Constant | BufferPlace::Prepared
            );
            if is_read && !b.dtype.is_float() && b.elements > 0 {
                let period = PERIOD.min(b.elements as usize);
                let filled = contents(b.dtype, number, period);
                let elements = Held {
                    values: (0..period).map(|i| filled.get_i64(i)).collect(),
                    elements: b.elements,
                };
                held.insert(*id, Arc::new(elements));
            }
        }
        Contents { code, held }
    }

    pub(super) fn buffer(&self, b: BufferId) -> Option<&Arc<Held>> {
        self.held.get(&b)
    }

    /// That the elements of this buffer are not known.
    pub(super) fn unknown(&self, b: BufferId) -> NotFollowed {
        NotFollowed::DependsOnData {
            buffer: self.code.buffers[b.index()].name.clone(),
        }
    }

    /// That what an expression loads decides something that the machine code does not tell.
    pub(super) fn decided_by(&self, e: &Expr) -> NotFollowed {
        NotFollowed::DependsOnData {
            buffer: self.loaded(e),
        }
    }

    /// The name of the first buffer that an expression loads from.
    pub(super) fn loaded(&self, e: &Expr) -> String {
        let mut first = None;
        e.visit_loads(&mut |b, _| first = first.or(Some(b)));
        first.map_or_else(String::new, |b| self.code.buffers[b.index()].name.clone())
    }

    /// The element type of an expression.
    pub(super) fn dtype(&self, e: &Expr) -> DType {
        match e.kind() {
            ExprKind::Int(_, d)
            | ExprKind::Float(_, d)
            | ExprKind::Arg(_, d)
            | ExprKind::Cast(d, _) => *d,
            ExprKind::Var(_) => DType::I64,
            ExprKind::Load(b, _) => self.code.buffers[b.index()].dtype,
            ExprKind::Unary(op, a) => op.result(self.dtype(a)),
            ExprKind::Binary(op, ..) if op.is_comparison() || op.is_logical() => DType::Bool,
            ExprKind::Binary(_, a, _) | ExprKind::Select(_, a, _) => self.dtype(a),
        }
    }

    /// An expression of one element and nothing else, as what it is for each element: that, and which element.
    pub(super) fn of_element<'e>(&self, e: &'e Expr) -> Option<(Held, &'e Expr)> {
        let mut load = None;
        if !e.loads() || !only_load(e, &mut load) {
            return None;
        }
        let load = load?;
        let ExprKind::Load(b, index) = load.kind() else {
            return None;
        };
        let value = Value::of_element(e, load, self).ok()?;
        let held = self.buffer(*b)?.map(|v| value.at(&[*v]));
        Some((held, &index[0]))
    }

    /// Whether a condition has this outcome whatever variables are.
    pub(super) fn always(&self, e: &Expr, outcome: bool) -> bool {
        match (e.kind(), outcome) {
            (ExprKind::Unary(UnaryOp::Not, a), _) => self.always(a, !outcome),
            (ExprKind::Binary(BinaryOp::And, a, b), true)
            | (ExprKind::Binary(BinaryOp::Or, a, b), false) => {
                self.always(a, outcome) && self.always(b, outcome)
            }
            (ExprKind::Binary(BinaryOp::And | BinaryOp::Or, a, b), _) => {
                self.always(a, outcome) || self.always(b, outcome)
            }
            _ => self
                .of_element(e)
                .is_some_and(|(held, _)| held.values.iter().all(|v| (*v != 0) == outcome)),
        }
    }
}

/// Whether nothing but one load decides an expression, which is found.
fn only_load<'e>(e: &'e Expr, load: &mut Option<&'e Expr>) -> bool {
    match e.kind() {
        ExprKind::Load(..) => *load.get_or_insert(e) == e,
        ExprKind::Var(_) | ExprKind::Arg(..) => false,
        _ => e.children().all(|c| only_load(c, load)),
    }
}
