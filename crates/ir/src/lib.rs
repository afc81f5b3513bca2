//! The intermediate representation: tensor expressions and the programs of
//! loops, blocks and buffers that schedules transform.
//!
//! Owns what a program *means* (the interpreter defines it), its text form,
//! the promises a well-formed program keeps (the verifier lists them), integer
//! simplification and the facts about targets that schedules may ask for.
//! Knows nothing of steps, machine code or models.

pub mod affine;
pub mod expr;
pub mod interpret;
pub mod names;
pub mod program;
pub mod region;
pub mod simplify;
pub mod target;
pub mod tensor_expression;
pub mod text;
pub mod usage;
pub mod verify;

pub use expr::{BinaryOp, Expr, ExprKind, ExprMap, UnaryOp};
pub use program::{
    Annotation, Axis, Block, BlockId, Buffer, BufferId, Iter, IterKind, Loop, LoopId, LoopKind,
    Node, Program, Reducer, Reduction, Role, Scope, TensorOp, Var, VarId, View, Write,
};
pub use target::{ByteDot, CpuTarget, HalfDot, Isa, Target, TileDot, Vendor};
pub use tensor::DType;
pub use tensor_expression::ProgramBuilder;
pub use usage::Usage;
