//! Tunesmith finds fast implementations for the tensor programs of a model on the machine that
//! it runs on, and runs the result. This crate is the only stable API of the workspace; the
//! command line of the same name uses the same functions.
//!
//! # The four verbs
//!
//! A model is [`load`]ed from an ONNX file, by the name of a built-in model, or as one operator;
//! the result is a [`Source`]. Then there is
//!
//! - [`tune()`]: searches and measures kernels for a time or a number of trials, keeps every
//!   outcome in a [`Store`], and gives the best compiled model and a [`Report`].
//!   [`tune_all`] tunes several models in one search. [`Options::new`] has the defaults of all
//!   settings; `tunesmith knobs` lists them with their sources. An [`Observer`] is told what
//!   the run does.
//! - [`compile()`]: builds a model with the best kernels that a store knows, or with default
//!   ones. Measures nothing.
//! - [`load_variants`] and [`compile_variants`] make one artifact for several sizes of inputs.
//! - *run*: a [`Model`] is a [`CompiledModel`] with memory and a [`Pool`] of threads.
//!   [`Model::run`] takes tensors by name; [`Model::input_mut`], [`Model::invoke`] and
//!   [`Model::output`] copy nothing. [`CompiledModel::save`] and [`Model::load`] write and read
//!   the artifact, which needs no compiler to run.
//! - A model that was compiled with alternatives chooses among them while it runs:
//!   [`Model::set_selector`] takes [`Selectors::online`] of [`selectors`], and a [`DecisionFile`] keeps what
//!   was decided. Between two inferences [`Model::retire`] lets go of the memory of what lost. [`decided`] gives the model
//!   without it, to be saved.
//! - [`check()`]: compares every layer of a compiled model with plain references.
//!
//! # Worker processes
//!
//! Candidates are built and run in child processes, so that a crash ends none but itself. The
//! library is told which program serves as a worker ([`Workers`]):
//!
//! - [`Workers::of_this_program`] starts the program that runs now once more. Its `main` begins
//!   with [`serve_worker_if_asked`]. This is for applications.
//! - [`Workers::of_program`] starts the program at a path, such as `tunesmith`. This is for
//!   libraries that are loaded into a program of somebody else, such as `python`.
//!
//! # Errors
//!
//! An [`Error`] is something that the user can change: a model, a file, a setting, the machine.
//! Its text says what is wrong and where, [`Error::advice`] what to do about it. A candidate
//! that fails is no error but an outcome in the store and the report.
//!
//! # Example
//!
//! ```standalone_crate
//! use std::sync::Arc;
//! use tunesmith::{
//!     Requirements, Host, ImportOptions, Machine, Model, Options, Pool, Request, Silent, StopRule,
//!     Store, Tensor, Workers, check, compile, load, serve_worker_if_asked, tune,
//! };
//!
//! fn main() -> tunesmith::Result<()> {
//!     // The workers below are this program, started once more.
//!     if serve_worker_if_asked()? {
//!         return Ok(());
//!     }
//!     let host = Host {
//!         machine: Machine::host(),
//!         workers: Workers::of_this_program()?,
//!     };
//!     let source = load("op:matmul(m=64,n=64,k=64)", &ImportOptions::default())?;
//!     let target = host.machine.target(1);
//!     let requirements = Requirements::of_knobs();
//!
//!     // Compile with default kernels: no store is asked.
//!     let compiled = compile(source.clone(), &target, &host, None, requirements)?;
//!     assert_eq!((compiled.tasks, compiled.tuned), (1, 0));
//!
//!     // Run.
//!     let mut model = Model::new(Arc::new(compiled.model), Arc::new(Pool::new(1)?))?;
//!     let ones = Tensor::from_slice(&[64, 64], &[1.0f32; 64 * 64]);
//!     let outputs = model.run(&[("x", &ones), ("x_1", &ones)])?;
//!     assert!(outputs[0].as_slice::<f32>().iter().all(|y| *y == 64.0));
//!
//!     // Check on random inputs of seed 1.
//!     let agreement = check(&source, &target, &mut model, 1, requirements.tolerance)?;
//!     assert!(agreement.ok, "{agreement:?}");
//!
//!     // Tune: four candidates. A store in a file would remember them.
//!     let store = Store::open_in_memory()?;
//!     let options = Options::new(host.machine.cpus, target.threads(), StopRule::Trials(4));
//!     let request = Request {
//!         source: &source,
//!         target: &target,
//!         strategy: None,
//!     };
//!     let tuned = tune(request, &host, &store, &options, &mut Silent)?;
//!     assert_eq!(tuned.report.trials, 4);
//!     println!("{:.3} ms", tuned.report.latency_after_ms);
//!
//!     // Now the store knows the best of them, or that the default is faster.
//!     let compiled = compile(source, &target, &host, Some(&store), requirements)?;
//!     assert!(compiled.tuned == 1 || tuned.report.kept_default.is_some());
//!     Ok(())
//! }
//! ```

mod check;
// Public for the program `tunesmith` alone, which is a crate of its own.
mod c_object;
#[doc(hidden)]
pub mod cli;
mod compile;
mod explain;
mod file_kind;
mod imported;
mod online;
mod source;
mod space_facts;
mod titles;

pub use analysis::{Rates, Score};
pub use check::{Agreement, LayerAgreement, check};
pub use compile::{Compiled, compile, compile_plan, compile_variants};
pub use ir::Target;
pub use measure::Policy;
pub use online::{DecisionFile, decided, selectors};
pub use onnx::ImportOptions;
pub use runtime::{CompiledModel, Gone, MemoryUse, Model, Pool, Reason, Selectors, Variants};
pub use search::{Accuracy, SpaceKind};
pub use source::{Sizes, load, load_variants};
pub use store::Store;
pub use tensor::{DType, Tensor};
pub use tune::compile::Warning;
pub use tune::known::Requirements;
pub use tune::machine::Machine;
pub use tune::source::{Precision, Source};
pub use tune::{
    CpuDivision, Error, Gain, Hope, Host, Moment, Observer, Options, Outlook, Report, Request,
    Result, Silent, Status, Stop, StopRule, TaskProgress, TaskSummary, Tuned, Workers,
    serve_worker_if_asked, tune, tune_all,
};
