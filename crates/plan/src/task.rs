//! Tasks: one tensor program each, with its key and its size.

use crate::compute::Kind;
use ir::{Expr, ExprKind, Program};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_128;

/// Operator semantics to be tuned.
#[derive(Clone, Debug)]
pub struct Task {
    /// Hash (hex) of the program's canonical text, which holds roles, shapes
    /// and element types: equal for programs that differ in names only.
    pub key: String,
    /// Operator kind: `conv2d`, `dense`, `elementwise`, ...
    pub op: String,
    /// Named sizes and attributes, by operator kind.
    pub args: BTreeMap<String, i64>,
    pub program: Program,
    /// Floating-point operations of one call: twice the multiply-adds of
    /// convolutions and matrix products, every operation of the others.
    pub flops: f64,
    /// Bytes of the operands and the result, each counted once.
    pub bytes: f64,
}

impl Task {
    /// The key of a program by its canonical text.
    pub fn key_of(canonical: &str) -> String {
        format!("{:032x}", xxh3_128(canonical.as_bytes()))
    }

    pub(crate) fn new(program: Program, kind: Kind) -> Task {
        let Kind { op, args, flops } = kind;
        let text = ir::text::canonical(&program);
        let bytes = program.params.iter().map(|p| {
            let buffer = program.buffer(*p);
            buffer.shape.iter().product::<i64>() as f64 * buffer.dtype.size() as f64
        });
        Task {
            key: Task::key_of(&text),
            op,
            args,
            flops: flops.unwrap_or_else(|| counted_flops(&program)),
            bytes: bytes.sum(),
            program,
        }
    }

    /// The task of a program that is a part of this one's, named behind it.
    #[must_use]
    pub fn part(&self, name: &str, program: Program) -> Task {
        let kind = Kind {
            op: format!("{}_{name}", self.op),
            args: self.args.clone(),
            flops: None,
        };
        Task::new(program, kind)
    }

    /// `op(name=value, ...)` without arguments that have their usual value.
    pub fn title(&self) -> String {
        let usual = |name: &str, value: i64| {
            let one = ["stride", "dilation", "groups", "n", "block", "in_block"];
            let zero = ["pad", "trans", "output_pad"];
            let starts = |all: &[&str]| {
                all.iter()
                    .any(|p| name == *p || name.starts_with(&format!("{p}_")))
            };
            name == "block"
                || name == "in_block"
                || value == 1 && starts(&one)
                || value == 0 && starts(&zero)
        };
        let shown = self.args.iter().filter(|(n, v)| !usual(n, **v));
        let args: Vec<String> = shown.map(|(n, v)| format!("{n}={v}")).collect();
        format!("{}({})", self.op, args.join(","))
    }
}

/// One operation for every floating-point operator and every combination.
fn counted_flops(program: &Program) -> f64 {
    let block = |id| {
        let block = program.block(id);
        let points: f64 = block.iters.iter().map(|i| i.extent as f64).product();
        let operators: f64 = block
            .writes
            .iter()
            .map(|w| float_operators(program, &w.value) + f64::from(u8::from(block.is_reduction())))
            .sum();
        points * operators
    };
    program.block_ids().into_iter().map(block).sum()
}

fn float_operators(program: &Program, e: &Expr) -> f64 {
    let mut count = 0.0;
    e.visit(&mut |e| {
        let operand = match e.kind() {
            ExprKind::Unary(_, a) => a,
            ExprKind::Binary(op, a, _) if !op.is_logical() => a,
            _ => return,
        };
        if operand.dtype(program).is_float() {
            count += 1.0;
        }
    });
    count
}
