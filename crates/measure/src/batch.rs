//! A batch: kernels of one task, with all that measuring them needs.
//!
//! Owns its parts, so that a batch can be handed over to another thread, or written
//! for another machine. Kernels are shared, not copied, when a batch is cloned.

use crate::protocol::{Protocol, TaskData};
use runtime::BuiltKernel;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Kernels of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelBatch {
    #[serde(with = "shared")]
    pub task: Arc<TaskData>,
    /// A candidate is named by its position here.
    #[serde(with = "shared_list")]
    pub kernels: Vec<Arc<BuiltKernel>>,
    /// Its limits, CPUs and clock are those of a round or a ranking.
    pub protocol: Protocol,
    /// Median of the incumbent, as it is alone or corrected, for giving up early.
    pub best_ns: Option<u64>,
    /// Builders run meanwhile, unless a round is quiet.
    pub overlap: bool,
}

/// A shared value, written as the value.
mod shared {
    use super::{Arc, Deserialize, Serialize};
    use serde::{Deserializer, Serializer};

    pub fn serialize<T, S>(value: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Serialize,
        S: Serializer,
    {
        T::serialize(value, serializer)
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Arc<T>, D::Error>
    where
        T: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        T::deserialize(deserializer).map(Arc::new)
    }
}

/// Shared values, written as a list of the values.
mod shared_list {
    use super::{Arc, Deserialize, Serialize};
    use serde::{Deserializer, Serializer};

    pub fn serialize<T, S>(values: &[Arc<T>], serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Serialize,
        S: Serializer,
    {
        serializer.collect_seq(values.iter().map(|value| &**value))
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Vec<Arc<T>>, D::Error>
    where
        T: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let values = Vec::<T>::deserialize(deserializer)?;
        Ok(values.into_iter().map(Arc::new).collect())
    }
}
