//! Terms of a reduction that are computed where it reads them.

use super::{Access, Env, Point, elementwise};
use crate::layout::{Choice, Layout};
use graph::ops::Op;
use graph::{NodeId, ValueId};
use ir::{Expr, ProgramBuilder};
use tensor::DType;

/// An element-wise node whose values are computed where they are read.
#[derive(Clone)]
pub(super) struct Computed {
    op: Op,
    /// Of the first operand.
    dtype: DType,
    operands: Vec<Access>,
    pub shape: Vec<i64>,
}

impl Computed {
    pub fn at(&self, p: &Point) -> Expr {
        let operands: Vec<Expr> = self.operands.iter().map(|o| o.load(p)).collect();
        elementwise::apply(&self.op, self.dtype, &operands)
    }
}

impl Env<'_> {
    /// As [`Env::declare`], of what an element-wise node before the anchor reads.
    pub(super) fn declare_term(
        &mut self,
        n: NodeId,
        choice: &Choice,
        b: &mut ProgramBuilder,
        operands: &mut Vec<(ValueId, Layout)>,
    ) {
        let node = &self.model[n];
        let sources: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        for v in &sources {
            if let Some(literal) = elementwise::literal(self.model, *v) {
                self.accesses.insert(*v, Access::Literal(literal));
                continue;
            }
            let name = match operands.len() {
                0 => "X".into(),
                i => format!("X{i}"),
            };
            self.declare(*v, &name, choice, b, operands);
        }
        let shape = self.model[node.output()].shape().iter();
        let computed = Computed {
            op: node.op.clone(),
            dtype: self.model[sources[0]].dtype(),
            operands: sources.iter().map(|v| self.accesses[v].clone()).collect(),
            shape: shape.map(|d| *d as i64).collect(),
        };
        let access = Access::Computed(computed);
        self.accesses.insert(node.output(), access);
    }
}
