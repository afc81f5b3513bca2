//! From scheduled programs to flat code: the ordered passes between a schedule
//! and machine code.
//!
//! `lower` is the one pipeline function. Owns memory placement, buffer
//! compaction, guard hoisting, unrolling, vector lanes and register promotion.
//! Knows nothing of LLVM: it hands over `flat::Code`.
//!
//! A guarded term is skipped, not multiplied by zero: where a select gives the
//! neutral element of the accumulation (0 for a sum, an infinity for a minimum
//! or maximum), its condition becomes an `if` round the update. What differs
//! from evaluating the term is only the sign of a zero sum, and `0 * w` where
//! `w` is infinite or NaN: padding never turns such a weight into a NaN result.

pub mod flat;
mod nest;
mod passes;

pub use passes::{OPTIONAL_PASSES, PASSES};

use flat::Code;
use ir::{Program, Target};
use nest::Nest;
use std::time::Instant;

/// How a program is lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerOptions {
    /// Check the promises of the program, of the statements after every pass,
    /// and of the flat code. Without it a program that breaks its promises may
    /// give wrong code or a panic.
    pub verify: bool,
    /// After this many passes run only those without which there is no code:
    /// the result is correct for every limit, which is what bisecting needs.
    pub stop_after: Option<usize>,
    /// Unrolling beyond this number of statements is refused.
    pub max_statements: usize,
}

impl LowerOptions {
    /// Compile time grows with unrolled code and run time gains nothing: a
    /// convolution with 864 multiply-adds takes several times as long to compile
    /// as the same one in loops (98 to 145 ms against 14 to 16; Zen 3, LLVM 22.1.8).
    pub const MAX_STATEMENTS: usize = 4096;

    /// No verification, all passes, the statement limit above.
    pub const fn standard() -> LowerOptions {
        LowerOptions {
            verify: false,
            stop_after: None,
            max_statements: LowerOptions::MAX_STATEMENTS,
        }
    }
}

/// What one pass took and left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassTiming {
    pub pass: &'static str,
    pub time_ns: u64,
    /// Statements (loops and ifs aside) after the pass.
    pub statements: usize,
}

/// Receives the name of a pass and the text after it.
pub type Dump<'a> = dyn FnMut(&str, &str) + 'a;

/// Sees the passes go by.
#[derive(Default)]
pub struct PassObserver<'a> {
    /// Called with the name and the text after every pass.
    pub dump: Option<&'a mut Dump<'a>>,
    /// One entry for every pass that ran.
    pub timings: Vec<PassTiming>,
}

/// Why a program has no flat code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    #[error(
        "loop `{loop_name}` is bound to {axis}: there is no GPU code generator; use a CPU schedule"
    )]
    BoundLoop {
        loop_name: String,
        axis: &'static str,
    },
    #[error(
        "buffer `{buffer}` has scope {scope}: there is no GPU code generator; use global, local or register"
    )]
    GpuScope { buffer: String, scope: &'static str },
    #[error(
        "unrolling loop `{loop_name}` gives {statements} statements, over the limit of {limit}; \
         unroll less"
    )]
    TooLarge {
        loop_name: String,
        statements: usize,
        limit: usize,
    },
    #[error(
        "the view of parameter `{buffer}` reaches element {first}; views must stay at or after 0"
    )]
    View { buffer: String, first: i64 },
    #[error("the program `{name}` is too large: buffer `{buffer}` has more than 2^47 bytes")]
    Bytes { name: String, buffer: String },
    #[error("the program `{name}` is not well-formed: {broken}")]
    Program { name: String, broken: String },
    #[error("bug in lowering: pass `{pass}` broke a promise: {broken}")]
    Broken { pass: &'static str, broken: String },
}

/// Lowers a scheduled program. The ids of its buffers and variables keep their
/// meaning in the result; more may be added.
pub fn lower(
    program: &Program,
    target: &Target,
    options: &LowerOptions,
) -> Result<Code, LowerError> {
    lower_observed(program, target, options, &mut PassObserver::default())
}

/// `lower`, with dumps and timings.
pub fn lower_observed(
    program: &Program,
    target: &Target,
    options: &LowerOptions,
    observer: &mut PassObserver<'_>,
) -> Result<Code, LowerError> {
    if options.verify
        && let Some(broken) = ir::verify::verify(program).first()
    {
        return Err(LowerError::Program {
            name: program.name.clone(),
            broken: broken.to_string(),
        });
    }
    let Target::Cpu(cpu) = target;
    let mut run = Run {
        options,
        observer,
        done: 0,
    };
    let mut nest = run.first("bind_iters", || passes::bind_iters::bind_iters(program))?;

    // Before anything is merged across root statements, and while a root
    // statement is still one subtree of the schedule.
    run.pass(
        "split_prepare",
        &mut nest,
        passes::split_prepare::split_prepare,
    )?;
    // A check compares each index with its dimension, so before flattening.
    run.pass(
        "check_indices",
        &mut nest,
        passes::check_indices::check_indices,
    )?;
    // Needs the loops as scheduled: the region of one iteration of the
    // allocation site, before hoisting and unrolling move statements out of it.
    run.pass(
        "compact_buffers",
        &mut nest,
        passes::compact_buffers::compact_buffers,
    )?;
    run.pass("flatten", &mut nest, passes::flatten::flatten)?;
    // Guards are recognised by constants and equal offsets, so after simplifying.
    run.pass("simplify", &mut nest, passes::simplify::simplify)?;
    run.pass("guards", &mut nest, passes::guards::guards)?;
    // Before vectorize and unroll: a condition that leaves the lane loop or the
    // unrolled loop is tested once instead of becoming a mask or copies.
    run.pass(
        "hoist_guards",
        &mut nest,
        passes::hoist_guards::hoist_guards,
    )?;
    // Before unroll, so that a copy is one vector statement and not a loop.
    run.pass("vectorize", &mut nest, passes::vectorize::vectorize)?;
    let limit = options.max_statements;
    run.pass("unroll", &mut nest, |n| passes::unroll::unroll(n, limit))?;
    // Copies have constants where variables were; offsets become constant,
    // which promotion to registers asks for.
    run.pass("simplify_copies", &mut nest, passes::simplify::simplify)?;
    // Copies with the same condition are neighbours now.
    run.pass(
        "merge_guards",
        &mut nest,
        passes::hoist_guards::hoist_guards,
    )?;
    // After unrolling, where loads of one cache line can be seen together.
    run.pass("prefetch", &mut nest, |n| {
        passes::prefetch::prefetch(n, cpu)
    })?;
    // Last of all: every access has its final lanes and offset.
    run.pass(
        "place_buffers",
        &mut nest,
        passes::place_buffers::place_buffers,
    )?;
    run.last("number", nest, passes::number::number)
}

/// The wrapper round every pass: time, dump, verification, step limit.
struct Run<'r, 'o> {
    options: &'r LowerOptions,
    observer: &'r mut PassObserver<'o>,
    done: usize,
}

impl Run<'_, '_> {
    fn first(
        &mut self,
        pass: &'static str,
        f: impl FnOnce() -> Result<Nest, LowerError>,
    ) -> Result<Nest, LowerError> {
        let start = Instant::now();
        let nest = f()?;
        self.report(pass, start, nest.statement_count(), || nest.text());
        self.check(pass, || passes::verify::verify(&nest))?;
        Ok(nest)
    }

    fn pass(
        &mut self,
        pass: &'static str,
        nest: &mut Nest,
        f: impl FnOnce(&mut Nest) -> Result<(), LowerError>,
    ) -> Result<(), LowerError> {
        let stopped = self.options.stop_after.is_some_and(|n| self.done >= n);
        if stopped && OPTIONAL_PASSES.contains(&pass) {
            return Ok(());
        }
        let start = Instant::now();
        f(nest)?;
        self.report(pass, start, nest.statement_count(), || nest.text());
        self.check(pass, || passes::verify::verify(nest))
    }

    fn last(
        &mut self,
        pass: &'static str,
        nest: Nest,
        f: impl FnOnce(Nest) -> Code,
    ) -> Result<Code, LowerError> {
        let start = Instant::now();
        let statements = nest.statement_count();
        let code = f(nest);
        self.report(pass, start, statements, || flat::text::print(&code));
        self.check(pass, || flat::verify::verify_flat(&code))?;
        Ok(code)
    }

    fn report(
        &mut self,
        pass: &'static str,
        start: Instant,
        statements: usize,
        text: impl FnOnce() -> String,
    ) {
        self.done += 1;
        let time_ns = start.elapsed().as_nanos() as u64;
        self.observer.timings.push(PassTiming {
            pass,
            time_ns,
            statements,
        });
        if let Some(dump) = &mut self.observer.dump {
            dump(pass, &text());
        }
    }

    fn check(
        &self,
        pass: &'static str,
        verify: impl FnOnce() -> Vec<String>,
    ) -> Result<(), LowerError> {
        if !self.options.verify {
            return Ok(());
        }
        match verify().into_iter().next() {
            Some(broken) => Err(LowerError::Broken { pass, broken }),
            None => Ok(()),
        }
    }
}
