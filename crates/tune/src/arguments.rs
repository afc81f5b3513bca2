//! Values for the arguments that candidates of a task are measured with.

use crate::compile::provided;
use ir::{Expr, ExprKind, Program};
use measure::ArgFill;
use std::collections::HashMap;
use tensor::DType;

/// Values for the inputs of a task: indices stay within what they index, and
/// arguments of roots and logarithms positive.
pub fn fills(program: &Program) -> Vec<ArgFill> {
    let mut limits: HashMap<ir::BufferId, i64> = HashMap::new();
    let mut positive = false;
    for b in program.block_ids() {
        for w in &program.block(b).writes {
            w.value.visit(&mut |e| match e.kind() {
                ExprKind::Load(buffer, indices) => {
                    for (d, i) in indices.iter().enumerate() {
                        let size = program.buffer(*buffer).shape[d];
                        visit_loads(i, &mut |index| {
                            let limit = limits.entry(index).or_insert(size);
                            *limit = size.min(*limit);
                        });
                    }
                }
                ExprKind::Unary(ir::UnaryOp::Log | ir::UnaryOp::Sqrt | ir::UnaryOp::Rsqrt, _)
                | ExprKind::Binary(ir::BinaryOp::Pow | ir::BinaryOp::Div, ..) => positive = true,
                _ => {}
            });
        }
    }
    provided(program)
        .map(|b| {
            let id = program.buffer_named(&b.name);
            let limit = id.and_then(|id| limits.get(&id)).copied();
            let (lo, hi) = match (b.dtype, limit) {
                (_, Some(n)) => (0.0, n as f64),
                (DType::Bool, _) => (0.0, 2.0),
                (d, _) if d.is_float() && positive => (0.1, 1.0),
                (d, _) if d.is_float() => (-1.0, 1.0),
                _ => (0.0, 4.0),
            };
            ArgFill {
                name: b.name.clone(),
                dtype: b.dtype,
                shape: b.shape.clone(),
                lo,
                hi,
            }
        })
        .collect()
}

fn visit_loads(e: &Expr, f: &mut impl FnMut(ir::BufferId)) {
    e.visit(&mut |e| {
        if let ExprKind::Load(b, _) = e.kind() {
            f(*b);
        }
    });
}
