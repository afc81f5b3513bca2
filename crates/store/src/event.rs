//! The event log of a run: every ask, tell and budget decision, in order.
//!
//! Owns the shape of an event. Promises order (a run's events are numbered from
//! 0 without gaps when appended) and that payloads are kept as given. Leaves
//! the meaning of kinds and payloads to the loop that writes and replays them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::Extra;

/// An event to be appended; the store numbers it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    pub run_id: String,
    /// `ask`, `tell`, `budget`, ...
    pub kind: String,
    /// Key of the task it is about, which must be in the store.
    pub task: Option<String>,
    pub payload: Value,
}

/// An event of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub run_id: String,
    /// Position in the run's log, from 0.
    pub seq: u64,
    pub kind: String,
    pub task: Option<String>,
    pub payload: Value,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}
