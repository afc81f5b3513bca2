//! Times of candidates that ran on another machine without this program, as records of a store.
//!
//! Promises that [`Lookup`](crate::known::Lookup) finds them under the name of that machine. A board runs executables that
//! compare no outputs, so these records say nothing of errors.

use crate::error::Result;
use crate::machine::target_key;
use crate::record;
use ir::Target;
use serde::{Deserialize, Serialize};
use store::{
    Clock, Conditions, Decision, Extra, MachineKey, Outcome, Record, Run, SpentByStage, Store,
    TIMED, TargetKey,
};

/// Who measured, in the conditions of the records.
const BOARD: &str = "board";

/// What executables are of: what their records need to refer to.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExportedTasks {
    pub target: TargetKey,
    pub tasks: Vec<store::Task>,
}

impl ExportedTasks {
    /// No tasks of a target yet.
    pub fn of(target: &Target) -> ExportedTasks {
        ExportedTasks {
            target: target_key(target),
            tasks: vec![],
        }
    }

    pub fn add(&mut self, task: &plan::Task) {
        self.tasks.push(record::task(task));
    }

    /// A fact of the target that has a name in the key, such as `isa`.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.target.extra.get(name)?.as_str()
    }
}

/// What one candidate took, call by call.
pub struct BoardTimes<'a> {
    /// Index into [`ExportedTasks::tasks`].
    pub task: usize,
    pub algorithm: &'a str,
    /// The point that the trace is of; empty if that is not known.
    pub decisions: &'a [Decision],
    pub trace: &'a str,
    pub code_hash: Option<&'a str>,
    pub ns: &'a [u64],
}

/// What tells a list of candidates from others.
pub fn id(candidates: &str) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(candidates.as_bytes()))
}

/// Stores times that a machine of this name measured, in a run of their own; the same times again change nothing.
/// Times of tasks that were not exported are left out. Returns how many candidates there are records of.
///
/// # Errors
/// If the store cannot be written.
pub fn store_times(
    store: &Store,
    machine: &str,
    exported: &ExportedTasks,
    times: &[BoardTimes<'_>],
) -> Result<usize> {
    let known = |t: &&BoardTimes<'_>| exported.tasks.get(t.task).is_some() && !t.ns.is_empty();
    let times: Vec<&BoardTimes<'_>> = times.iter().filter(known).collect();
    let run_id = run_id(machine, exported, &times);
    if store
        .run(&run_id)?
        .is_some_and(|r| r.ended_unix_ms.is_some())
    {
        return Ok(times.len());
    }
    store.put_machine(&MachineKey {
        fingerprint: machine.into(),
        description: format!("{machine}, whose times were imported"),
        extra: Extra::new(),
    })?;
    store.put_target(&exported.target)?;
    for task in &exported.tasks {
        store.put_task(task)?;
    }
    let began = record::unix_ms();
    store.begin_run(&Run {
        run_id: run_id.clone(),
        model: BOARD.into(),
        options: serde_json::json!({ "machine": machine }),
        strategy: BOARD.into(),
        seed: 0,
        started_unix_ms: began,
        ended_unix_ms: None,
        summary: serde_json::Value::Null,
        extra: Extra::new(),
    })?;
    let target = exported.target.text();
    let of = |(trial, t): (usize, &&BoardTimes<'_>)| Record {
        run_id: run_id.clone(),
        trial: trial as u64,
        final_: true,
        task: exported.tasks[t.task].key.clone(),
        target: target.clone(),
        machine: machine.into(),
        evaluator: TIMED.into(),
        strategy: BOARD.into(),
        seed: 0,
        toolchain: build::toolchain().into(),
        algorithm: t.algorithm.into(),
        decisions: t.decisions.to_vec(),
        trace: t.trace.into(),
        code_hash: t.code_hash.map(str::to_string),
        code_size: None,
        outcome: Outcome::Timed {
            samples_ns: t.ns.to_vec(),
            clock: Clock::HostMonotonic,
            conditions: Conditions {
                overlap: false,
                // One executable starts after the other.
                isolated: true,
                measurer: Some(BOARD.into()),
                ..Conditions::unproven(exported.target.threads, 1)
            },
        },
        outcome_extra: Extra::new(),
        spent: SpentByStage::default(),
        created_unix_ms: began,
        extra: Extra::new(),
    };
    let records: Vec<Record> = times.iter().enumerate().map(of).collect();
    store.append(&records, &[])?;
    store.end_run(&run_id, record::unix_ms(), &serde_json::Value::Null)?;
    Ok(records.len())
}

/// Equal for equal times of equal candidates on one machine.
fn run_id(machine: &str, exported: &ExportedTasks, times: &[&BoardTimes<'_>]) -> String {
    let mut text = format!("{machine}\n{}\n", exported.target.text());
    for t in times {
        let key = &exported.tasks[t.task].key;
        text += &format!("{key}\n{}\n{:?}\n", t.trace, t.ns);
    }
    format!("board-{}", id(&text))
}
