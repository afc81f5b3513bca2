//! Batches of kernels that a test keeps for itself.

use measure::{KernelBatch, Protocol, TaskData};
use runtime::BuiltKernel;
use std::sync::Arc;

/// A batch of copies, with nothing beside it and no incumbent.
pub fn batch(task: &TaskData, kernels: &[&BuiltKernel], protocol: &Protocol) -> KernelBatch {
    let shared = |k: &&BuiltKernel| Arc::new((*k).clone());
    KernelBatch {
        task: Arc::new(task.clone()),
        kernels: kernels.iter().map(shared).collect(),
        protocol: protocol.clone(),
        best_ns: None,
        overlap: false,
    }
}
