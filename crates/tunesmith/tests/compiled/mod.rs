//! Compiling and running a plan in this process, for tests and examples:
//! no builder processes, no store, every promise of programs and flat code
//! checked on the way.

use build::BuildOptions;
use llvm::Compiler;
use plan::{Plan, Task};
use runtime::{BuiltKernel, CompiledModel, Model, Pool};
use search::Accuracy;
use search::Candidate;
use std::sync::Arc;
use tensor::Tensor;
use tune::compile::assemble;

/// The kernel of a task.
///
/// # Errors
/// Names the task, the candidate and the stage.
pub fn kernel(
    task: &Task,
    candidate: &Candidate,
    compiler: &Compiler,
) -> Result<BuiltKernel, String> {
    let options = BuildOptions {
        verify: true,
        ..BuildOptions::default()
    };
    let built = build::build(&task.program, &candidate.trace, compiler, &options);
    built.map(|b| b.kernel).map_err(|e| {
        let (title, name) = (task.title(), &candidate.algorithm);
        format!("{title} as {name}: {:?}: {}", e.stage, e.reason)
    })
}

/// One kernel a task.
///
/// # Errors
/// As [`kernel`], for the first task that cannot be built.
pub fn kernels(
    plan: &Plan,
    candidates: &[Candidate],
    compiler: &Compiler,
) -> Result<Vec<BuiltKernel>, String> {
    let pairs = plan.tasks.iter().zip(candidates);
    pairs.map(|(t, c)| kernel(t, c, compiler)).collect()
}

/// The model of one kernel a task.
///
/// # Errors
/// If the model cannot be assembled or loaded.
pub fn load(
    plan: &Plan,
    kernels: &[BuiltKernel],
    compiler: &Compiler,
    pool: &Arc<Pool>,
) -> Result<Model, String> {
    let model: CompiledModel = assemble(plan, kernels, compiler.target(), Accuracy::Relaxed, pool)
        .map_err(|e| e.to_string())?;
    Model::new(Arc::new(model), pool.clone()).map_err(|e| e.to_string())
}

/// The results on these inputs, in the model's order. Runs twice: the second
/// run finds the memory as the first left it, and must give the same bytes.
///
/// # Errors
/// If a kernel fails, or the runs differ.
pub fn run(model: &mut Model, inputs: &[Arc<Tensor>]) -> Result<Vec<Tensor>, String> {
    let count = model.compiled().outputs().len();
    let mut once = || -> Result<Vec<Tensor>, String> {
        for (i, t) in inputs.iter().enumerate() {
            model.input_mut(i).copy_from_slice(t.bytes());
        }
        model.invoke().map_err(|e| e.to_string())?;
        Ok((0..count).map(|i| model.output_tensor(i)).collect())
    };
    let first = once()?;
    let second = once()?;
    for (o, (a, b)) in first.iter().zip(&second).enumerate() {
        if a.bytes() != b.bytes() {
            return Err(format!("output {o} differs in a second run"));
        }
    }
    Ok(model.results())
}
