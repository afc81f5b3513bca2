//! Chains of reductions and element-wise operators along the same rows, such as a
//! log-sum-exp or a normalisation written out: one program of several blocks.
//!
//! Reductions are blocks with one result for each row. An element-wise value is computed
//! where it is read; it is a block of its own if it is costly and read at several places,
//! or read by every element of a row.

use super::{Access, Env, Kind, Point, elementwise, work};
use graph::ops::{Binary, Op, Reduce, ReduceKind};
use graph::{Node, NodeId, ValueId};
use ir::names::OUT;
use ir::tensor_expression::AxisExtent;
use ir::{BinaryOp, BufferId, Expr, ExprKind, ProgramBuilder, Reducer, UnaryOp};
use std::collections::HashMap;
use std::rc::Rc;

/// A value at a row and, if it has one for each element, an element of the row.
type Value = Rc<dyn Fn(&[Expr], &[Expr]) -> Expr>;

/// Operators in an expression that is written out where it is read, at most: a value that
/// is read twice doubles it.
const MOST_WRITTEN_OUT: usize = 64;

struct Rows<'a> {
    env: &'a Env<'a>,
    /// Extents of the axes of rows, and of those along a row.
    rows: Vec<i64>,
    row: Vec<i64>,
    values: HashMap<ValueId, Value>,
    /// Operators of the expressions of these values.
    sizes: HashMap<ValueId, usize>,
}

pub(super) fn rows(env: &Env, b: &mut ProgramBuilder) -> (BufferId, Kind) {
    let nodes: Vec<NodeId> = env.group.nodes().collect();
    let reductions = nodes.iter().filter_map(|n| match &env.model[*n].op {
        Op::Reduce(r) => Some((*n, r)),
        _ => None,
    });
    let first = reductions.clone().next();
    let (first, reduce) = first.expect("a chain along rows has a reduction");
    let source = env.model[first]
        .input(0)
        .expect("a reduction has an operand");
    let shape: Vec<i64> = env.model[source]
        .shape()
        .iter()
        .map(|d| *d as i64)
        .collect();
    let (rows, row) = shape.split_at(shape.len() - reduce.axes.len());
    let mut chain = Rows {
        env,
        rows: rows.to_vec(),
        row: row.to_vec(),
        values: HashMap::new(),
        sizes: HashMap::new(),
    };
    let (last, before) = nodes.split_last().expect("a group has nodes");
    for n in before {
        let value = chain.value(b, *n);
        let (value, size) = chain.stored(b, *n, value);
        chain.values.insert(env.model[*n].output(), value);
        chain.sizes.insert(env.model[*n].output(), size);
    }
    let value = chain.value(b, *last);
    let axes = env.axes();
    let kept = chain.rows.len();
    let result = b.compute(OUT.as_str(), &axes.list(), |at| {
        let along = at.get(kept..).unwrap_or(&[]);
        env.store(value(&at[..kept], along), &env.point(at))
    });
    let kind = Kind::new("rows")
        .arg("rows", rows.iter().product::<i64>())
        .arg("cols", row.iter().product::<i64>())
        .arg("reductions", reductions.count());
    (result, kind)
}

impl Rows<'_> {
    /// What a node computes.
    fn value(&self, b: &mut ProgramBuilder, n: NodeId) -> Value {
        let node = &self.env.model[n];
        match &node.op {
            Op::Reduce(r) => self.reduced(b, node, r),
            _ => self.pointwise(b, node),
        }
    }

    fn operand(&self, v: ValueId) -> Value {
        if let Some(value) = self.values.get(&v) {
            return Rc::clone(value);
        }
        let access: Access = self.env.accesses[&v].clone();
        let row = self.row.len();
        Rc::new(move |at, along| {
            // Of a value for each row no element of it is read.
            let none = vec![Expr::int(0); row];
            let along = if along.is_empty() { &none[..] } else { along };
            access.load(&Point::plain([at, along].concat()))
        })
    }

    fn pointwise(&self, b: &mut ProgramBuilder, node: &Node) -> Value {
        let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        let dtype = self.env.model[operands[0]].dtype();
        let mut values: Vec<Value> = operands.iter().map(|v| self.operand(*v)).collect();
        let mut op = node.op.clone();
        // One division a row.
        if op == Op::Binary(Binary::Div)
            && work(dtype).is_float()
            && self.is_of_rows(operands[1])
            && self.env.model.constant(operands[1]).is_none()
            && !self.is_of_rows(node.output())
        {
            let divisor = Rc::clone(&values[1]);
            let one = Expr::constant(1.0, work(dtype));
            let inverse: Value = Rc::new(move |at, along| one.clone() / divisor(at, along));
            values[1] = self.block(b, "inverse", inverse, true);
            op = Op::Binary(Binary::Mul);
        }
        Rc::new(move |at, along| {
            let operands: Vec<Expr> = values.iter().map(|v| v(at, along)).collect();
            elementwise::apply(&op, dtype, &operands)
        })
    }

    fn reduced(&self, b: &mut ProgramBuilder, node: &Node, r: &Reduce) -> Value {
        let v = node.input(0).expect("a reduction has an operand");
        let dtype = work(self.env.model[v].dtype());
        let (name, reducer) = match r.kind {
            ReduceKind::Sum => ("sum", Reducer::Sum),
            ReduceKind::Mean => ("mean", Reducer::Sum),
            ReduceKind::Prod => ("product", Reducer::Prod),
            ReduceKind::Max => ("max", Reducer::Max),
            ReduceKind::Min => ("min", Reducer::Min),
        };
        let value = self.operand(v);
        let share = Expr::constant(1.0 / self.row.iter().product::<i64>() as f64, dtype);
        let name = b.program().fresh_name(name);
        let (rows, terms) = (numbered("i", &self.rows), numbered("r", &self.row));
        let buffer = b.reduce(
            &name,
            &list(&rows),
            &list(&terms),
            reducer,
            |at, along| match r.kind {
                ReduceKind::Mean => value(at, along) * &share,
                _ => value(at, along),
            },
        );
        Rc::new(move |at, _| Expr::load(buffer, at))
    }

    /// The value from a block of its own, if that is less work, and how many operators its
    /// expression has.
    fn stored(&self, b: &mut ProgramBuilder, n: NodeId, value: Value) -> (Value, usize) {
        let node = &self.env.model[n];
        if !super::is_elementwise(&node.op) {
            return (value, 1);
        }
        let sizes = node.inputs.iter().flatten();
        let sizes = sizes.map(|v| self.sizes.get(v).copied().unwrap_or(1));
        let size = 1 + sizes.sum::<usize>();
        let of_rows = self.is_of_rows(node.output());
        let readers = self.env.group.nodes().filter(|r| {
            let reads = &self.env.model[*r].inputs;
            reads.iter().flatten().any(|v| *v == node.output())
        });
        let readers: Vec<NodeId> = readers.collect();
        let by_elements = readers
            .iter()
            .any(|r| !self.is_of_rows(self.env.model[*r].output()));
        let at = vec![Expr::int(0); self.rows.len()];
        let along = vec![Expr::int(0); self.row.len()];
        let again = readers.len() > 1 && !of_rows || of_rows && by_elements;
        if size > MOST_WRITTEN_OUT || again && is_costly(&value(&at, &along)) {
            return (self.block(b, "value", value, of_rows), 1);
        }
        (value, size)
    }

    fn block(&self, b: &mut ProgramBuilder, name: &str, value: Value, of_rows: bool) -> Value {
        let name = b.program().fresh_name(name);
        let kept = self.rows.len();
        let shape = match of_rows {
            true => self.rows.clone(),
            false => [&self.rows[..], &self.row].concat(),
        };
        let axes = numbered("i", &shape);
        let buffer = b.compute(&name, &list(&axes), |at| value(&at[..kept], &at[kept..]));
        match of_rows {
            true => Rc::new(move |at, _| Expr::load(buffer, at)),
            false => Rc::new(move |at, along| Expr::load(buffer, [at, along].concat())),
        }
    }

    /// Whether a value has one element for each row.
    fn is_of_rows(&self, v: ValueId) -> bool {
        let shape = self.env.model[v].shape();
        let kept = shape.len().saturating_sub(self.row.len());
        shape[kept..].iter().all(|n| *n == 1) && self.row.iter().any(|n| *n != 1)
    }
}

/// Whether an expression takes many instructions.
fn is_costly(e: &Expr) -> bool {
    let mut costly = false;
    e.visit(&mut |e| {
        costly |= match e.kind() {
            ExprKind::Unary(op, _) => !matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not),
            ExprKind::Binary(op, ..) => matches!(op, BinaryOp::Div | BinaryOp::Pow),
            _ => false,
        };
    });
    costly
}

fn numbered(prefix: &str, extents: &[i64]) -> Vec<(String, i64)> {
    let all = extents.iter().enumerate();
    all.map(|(d, n)| (format!("{prefix}{d}"), *n)).collect()
}

fn list(axes: &[(String, i64)]) -> Vec<AxisExtent<'_>> {
    axes.iter().map(|(n, e)| (n.as_str(), *e)).collect()
}
