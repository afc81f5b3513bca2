//! Runs compiled models and kernels on the host.
//!
//! Owns the kernel ABI, the thread pool, the loader of machine code, guarded
//! buffers, the memory plan, the artifact file and the execution of a compiled
//! model. Promises that nothing in its dependency closure generates code.
//! Compiling, tuning and worker processes belong to the crates above.

mod abi;
mod artifact;
mod builder;
mod choices;
mod constants;
mod derived;
pub mod dtype_name;
mod elf;
mod groups;
mod guard;
mod host;
mod interruptions;
mod kernel;
mod lifetimes;
mod link;
mod mapping;
mod model;
mod object;
mod online;
mod plan;
mod pool;
mod relocation;
mod run;
mod share;
mod signature;
mod variants;

pub use abi::{
    ABI_VERSION, Ctx, KernelFailure, KernelFn, ParallelBody, WORKSPACE_ALIGN, chunk, workspace_size,
};
pub use artifact::{ARTIFACT_VERSION, LoadError, MAGIC as ARTIFACT_MAGIC, SaveError};
pub use builder::{BoundKernel, BuildModelError, GroupId, ModelBuilder};
pub use choices::FixedChoice;
pub use constants::ConstantMemory;
pub use elf::{ElfError, LoadedCode};
pub use guard::{CanaryError, CanarySide, GuardedBuffer};
pub use host::{HostError, check_target};
pub use kernel::{BuiltKernel, CodeFormat, KernelParam, KernelTarget, ParamRole, code_hash};
pub use link::{External, Image};
pub use model::{
    Alternative, Call, CompiledModel, Inconsistent, KernelId, ModelStep, StepGroup, StepId,
    TensorId, TensorInfo, TensorPlace,
};
pub use online::{Gone, Reason, Selectors};
pub use plan::{BufferUse, MemoryPlan, plan_memory};
pub use pool::{MAX_THREADS, Pool, PoolError, PoolOptions, Running, SPIN_NS, pin_current_thread};
pub use relocation::Machine;
pub use run::{Choice, FixedSelector, MemoryUse, Model, RunError, SelectionKey, Selector};
pub use signature::{KeyError, SigningKey, VerifyKey};
pub use variants::{Dim, OutputRows, Padding, Variants};
