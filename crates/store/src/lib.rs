//! The tuning store: keys, records and outcomes as plain data and text.
//!
//! Owns what is remembered of a tuning run (tasks, targets, machines, runs,
//! records, the event log), its SQLite form, its JSON-lines form, the T4
//! export, and tables: recorded answers that can be replayed. Promises that a record whose insert returned survives the death of
//! the process and of the machine, that several processes may append to one
//! file, and that fields written by a newer version survive reading, storing
//! and exporting. Leaves the meaning of traces, keys and algorithms to the
//! crates that produce them: here they are text.
//!
//! ```
//! use store::{RecordQuery, MachineKey, Store, StoreError};
//!
//! # fn main() -> Result<(), StoreError> {
//! let store = Store::open_in_memory()?;
//! let machine = MachineKey {
//!     fingerprint: "a1".into(),
//!     description: "two cores".into(),
//!     extra: Default::default(),
//! };
//! assert!(store.put_machine(&machine)?);
//! assert!(!store.put_machine(&machine)?, "putting a key again changes nothing");
//! let here = RecordQuery { machine: Some("a1"), ..RecordQuery::default() };
//! assert!(store.records_for(&here)?.is_empty());
//! # Ok(())
//! # }
//! ```

mod cost;
mod error;
mod event;
mod jsonl;
mod lock;
mod lookup;
mod number;
mod opening;
mod outcome;
mod record;
mod rows;
mod schema;
mod sqlite;
mod stats;
mod t4;
mod table;

pub use cost::Cost;
pub use error::StoreError;
pub use event::{
    Ask, Budget, Compared, Doppler, Draw, Event, EventKind, InModel, InModelDecision, InModelTotal,
    Kept, Layouts, NewEvent, Reference, Revised, Score, Seen, Skipped, SurveyEpoch, Tell, Tried,
};
pub use jsonl::{BadLine, Claim, Exported, Imported, JsonLines, export_jsonl, import_jsonl};
pub use lock::HeldRun;
pub use lookup::{CandidateKey, RecordPlace, RecordQuery};
pub use outcome::{Cache, Clock, Conditions, Difference, Outcome, Stage};
pub use record::{
    Arg, Decision, Extra, MEASURING, MachineKey, RECORDED, Record, RecordIdentity, Run, SIMULATE,
    STATIC, SpentByStage, TIMED, TargetKey, Task, TaskCpu, TimeSpent,
};
pub use schema::{APPLICATION_ID, SCHEMA_VERSION};
pub use sqlite::{RecordId, Store};
pub use stats::{
    Interval, Paired, bounds_of_medians, median, median_bounds, median_interval, median_of, min,
    percentile, signed_rank_below_zero,
};
pub use t4::{T4Exported, export_t4};
pub use table::{Answer, KnobValue, Table, TableKnob};
