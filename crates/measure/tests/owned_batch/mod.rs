//! Batches of kernels that a test keeps for itself.

use measure::{Batch, Protocol, TaskData};
use runtime::BuiltKernel;
use std::sync::Arc;

/// A batch of copies, with nothing beside it and no incumbent.
pub fn batch(task: &TaskData, kernels: &[&BuiltKernel], protocol: &Protocol) -> Batch {
    let shared = |k: &&BuiltKernel| Arc::new((*k).clone());
    Batch {
        task: Arc::new(task.clone()),
        kernels: kernels.iter().map(shared).collect(),
        protocol: protocol.clone(),
        best_ns: None,
        overlap: false,
    }
}
