//! The interpreter: what programs mean.
//!
//! Steps, passes and machine code are right when they agree with it. It
//! promises the same answer on every machine: elementary functions come from
//! `libm`, never from the system, and nothing runs concurrently.
//!
//! # Values
//! An operation on `f32`, `f16` or `bf16` is that of exact or `f64` arithmetic
//! rounded to the type, once; `exp`, `log`, `tanh`, `erf`, `pow` and `rsqrt`
//! are computed in `f64` and rounded. Integers wrap at their width.
//! - `min(a, b)` is `a` if `a < b`, else `b`; `max(a, b)` is `a` if `a > b`,
//!   else `b`: of a NaN operand, or of zeros of two signs, the result is `b`.
//! - `round` takes ties to even.
//! - `a / b` of integers truncates; `//` and `%` floor; a zero divisor is an
//!   error. Of floats `a // b` is `floor(a / b)` and `a % b` is
//!   `a - (a // b) * b`, each operation rounded.
//! - `pow` of integers is the wrapping product; a negative exponent gives the
//!   truncated quotient, hence an error for base 0.
//! - Conversions are those of [`crate::ExprKind::Cast`]; integers are rounded
//!   to floats once, a NaN becomes integer 0 and bool true.
//! - `select`, `and`, `or` evaluate only the operands they need.
//!
//! # Execution
//! Every kind of loop runs its iterations in order. A block instance whose
//! predicate holds binds its iteration variables, then runs its statement, for
//! a tensorized block once for every point of the intrinsic's domain, outermost
//! variable slowest. All values of a statement are evaluated before any is
//! stored. A reduction combines the written element with the value; the
//! instance whose reduce variables, the intrinsic's included, are all 0
//! combines the identity with it instead if `init` is set.
//!
//! # Memory
//! Parameters are dense tensors, whatever their [`crate::View`]. Elements of
//! outputs are undefined until written, and so are those of an intermediate in
//! each iteration of the loop where it is allocated ([`Usage::site`](crate::Usage::site));
//! to read one is an error.
//! An element of an output that nothing writes keeps what the argument held.
//!
//! # Races
//! The iterations of parallel, vectorized and bound loops may run in any order
//! or at once; loops inside them begin and end within their iteration. Two
//! iterations of such a loop that access one element of a buffer allocated
//! outside it, at least one of them writing, are an error. Each element keeps
//! its last write and one read, which is enough to miss none (the SP-bags
//! algorithm of Feng and Leiserson, 1997).
//!
//! Ids must exist and the body must be a tree ([`crate::verify`]'s first check).

mod code;
mod machine;
mod memory;
mod plan;
mod scalar;

use crate::expr::{Expr, ExprKind};
use crate::program::{LoopKind, Program, VarId};
use tensor::{DType, Tensor};

pub use scalar::erf;

/// Why a program has no result. Nothing was stored to the arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterpretError {
    #[error("program `{program}` has {expected} parameters, but {given} arguments were given")]
    ArgumentCount {
        program: String,
        expected: usize,
        given: usize,
    },
    #[error(
        "argument for `{buffer}` is {found} {found_shape:?}; the parameter is {expected} {expected_shape:?}"
    )]
    Argument {
        buffer: String,
        found: DType,
        found_shape: Vec<usize>,
        expected: DType,
        expected_shape: Vec<i64>,
    },
    #[error("{place} loads `{buffer}` at {indices:?}; its shape is {shape:?}")]
    LoadOutOfRange {
        place: String,
        buffer: String,
        indices: Vec<i64>,
        shape: Vec<i64>,
    },
    #[error("{place} writes `{buffer}` at {indices:?}; its shape is {shape:?}")]
    StoreOutOfRange {
        place: String,
        buffer: String,
        indices: Vec<i64>,
        shape: Vec<i64>,
    },
    #[error("{place} reads `{buffer}` at {indices:?}, which is undefined: nothing wrote it before")]
    Undefined {
        place: String,
        buffer: String,
        indices: Vec<i64>,
    },
    #[error(
        "{place} {} `{buffer}` at {indices:?}, which another iteration of {} loop `{name}` {}",
        access.now(), kind_name(*kind), earlier.before()
    )]
    Race {
        place: String,
        /// What this iteration does.
        access: Action,
        buffer: String,
        indices: Vec<i64>,
        /// The loop.
        name: String,
        kind: LoopKind,
        /// What the other iteration did.
        earlier: Action,
    },
    #[error("{place} divides an integer by zero")]
    DivisionByZero { place: String },
    #[error("{place} binds `{var}` to {value}, outside its extent {extent}")]
    OutOfDomain {
        place: String,
        var: String,
        value: i64,
        extent: i64,
    },
    #[error("{place}: `{expr}` {reason}; `ir::verify` lists what a program must keep")]
    IllTyped {
        place: String,
        expr: String,
        reason: String,
    },
    #[error("{place}: {reason}; `ir::verify` lists what a program must keep")]
    IllFormed { place: String, reason: String },
    #[error("buffer `{buffer}` of shape {shape:?} does not fit in memory")]
    TooLarge { buffer: String, shape: Vec<i64> },
}

/// What an iteration does to an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Read,
    Write,
}

impl Action {
    fn now(self) -> &'static str {
        match self {
            Action::Read => "reads",
            Action::Write => "writes",
        }
    }

    fn before(self) -> &'static str {
        match self {
            Action::Read => "read",
            Action::Write => "wrote",
        }
    }
}

fn kind_name(kind: LoopKind) -> &'static str {
    match kind {
        LoopKind::Serial => "serial",
        LoopKind::Parallel => "parallel",
        LoopKind::Vectorized => "vectorized",
        LoopKind::Unrolled => "unrolled",
        LoopKind::Bound(_) => "bound",
    }
}

/// What a run looks for beside the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Whether iterations that must not meet are an error when they do.
    pub check_races: bool,
}

/// A scalar value: integers and bool (0 or 1), or a float, within its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    I(i64),
    F(f64),
}

/// Runs `program` on `args`, in the order of its parameters, and looks for races.
pub fn run(program: &Program, args: &mut [Tensor]) -> Result<(), InterpretError> {
    run_with(program, args, Checks { check_races: true })
}

/// Runs `program` on `args`, in the order of its parameters. On an error the
/// arguments are as they were.
pub fn run_with(
    program: &Program,
    args: &mut [Tensor],
    options: Checks,
) -> Result<(), InterpretError> {
    memory::check_arguments(program, args)?;
    let plan = plan::compile(program, options.check_races)?;
    let memory = memory::allocate(program, &plan, args)?;
    let memory = machine::execute(program, &plan, memory)?;
    memory::store_outputs(program, &memory, args);
    Ok(())
}

/// The value of an expression of variables and constants.
pub fn evaluate(expr: &Expr, vars: &dyn Fn(VarId) -> i64) -> Result<Scalar, InterpretError> {
    let place = "the expression";
    if expr.any(&|e| matches!(e.kind(), ExprKind::Load(..))) {
        return Err(InterpretError::IllTyped {
            place: place.into(),
            expr: format!("{expr:?}"),
            reason: "loads from a buffer, and there is none".into(),
        });
    }
    let used = expr.vars();
    let mut program = Program::new("expression");
    let mut values = Vec::with_capacity(used.len());
    for v in &used {
        values.push((program.add_var(format!("v{}", v.0)), vars(*v)));
    }
    let expr = expr.substitute(&|v| {
        let at = used.iter().position(|u| *u == v)?;
        Some(Expr::var(values[at].0))
    });
    let compiler = code::Compiler::new(&program, place.into());
    let code = compiler.expr(&expr)?.0;
    machine::evaluate(&program, &code, &values, place)
}
