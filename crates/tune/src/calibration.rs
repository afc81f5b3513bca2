//! Points that rates of scores are fitted on: timed candidates of a store, read once more.
//!
//! A record has a trace and a time, and no features. Promises that only times of one machine, target
//! and toolchain count: another toolchain makes other code of a trace, whose time is not known.

use crate::error::Result;
use plan::Task;
use search::Candidate;
use std::collections::BTreeMap;
use store::{RecordPlace, RecordQuery, Store, TIMED};

/// A candidate with its measured time.
#[derive(Clone, Debug)]
pub struct TimedCandidate {
    pub candidate: Candidate,
    pub ns: u64,
}

/// What a store knows of a task.
#[derive(Clone, Debug)]
pub struct TaskTimes {
    /// Candidates of different machine code, the fastest first.
    pub timed: Vec<TimedCandidate>,
    /// Times that do not count, as another version of the compiler made their code.
    pub other_toolchain: usize,
}

/// Reads the timed candidates of a task in a place whose errors are within `tolerance`. Of equal code
/// the final counts, else the first record.
///
/// # Errors
/// If the store cannot be read.
pub fn times(store: &Store, place: &RecordPlace<'_>, tolerance: f64) -> Result<TaskTimes> {
    let query = RecordQuery {
        task: Some(place.task),
        target: Some(place.target),
        machine: Some(place.machine),
        evaluator: Some(TIMED),
        label: Some("timed"),
        ..RecordQuery::default()
    };
    let mut by_code: BTreeMap<String, (bool, TimedCandidate)> = BTreeMap::new();
    let mut other_toolchain = 0;
    store.visit_records(&query, |_, r| {
        if r.toolchain != build::toolchain() {
            other_toolchain += 1;
            return Ok(());
        }
        // An older trace syntax gives no trace.
        let (Ok(trace), Some(ns)) = (schedule::parse(&r.trace), r.outcome.median_ns()) else {
            return Ok(());
        };
        let code = r.code_hash.clone().unwrap_or_else(|| r.trace.clone());
        let known = by_code.get(&code);
        if r.outcome.within(tolerance) && known.is_none_or(|(final_, _)| r.final_ && !final_) {
            let candidate = Candidate {
                algorithm: r.algorithm,
                trace,
            };
            by_code.insert(code, (r.final_, TimedCandidate { candidate, ns }));
        }
        Ok(())
    })?;
    let mut timed: Vec<TimedCandidate> = by_code.into_values().map(|(_, t)| t).collect();
    timed.sort_by_key(|t| t.ns);
    Ok(TaskTimes {
        timed,
        other_toolchain,
    })
}

/// At most `most` items, spread evenly over their order, the first and the last among them.
pub fn spread<T>(all: Vec<T>, most: usize) -> Vec<T> {
    let n = all.len();
    if n <= most {
        return all;
    }
    let steps = most.saturating_sub(1).max(1);
    let mut wanted = (0..most).map(|i| i * (n - 1) / steps).peekable();
    let taken = all.into_iter().enumerate();
    let taken = taken.filter(|(i, _)| wanted.next_if_eq(i).is_some());
    taken.map(|(_, item)| item).collect()
}

/// The tasks that differ, in their order.
pub fn distinct<'a>(tasks: impl Iterator<Item = &'a Task>) -> Vec<&'a Task> {
    let mut found: Vec<&Task> = Vec::new();
    for task in tasks {
        if found.iter().all(|f| f.key != task.key) {
            found.push(task);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, target_key};
    use crate::{begun_run, task_record};
    use store::{Clock, Conditions, Extra, MachineKey, Outcome, Record, SpentByStage};

    /// A record of the task of a trial, this final or not, with this code and time.
    fn record(place: &RecordPlace<'_>, trial: u64, final_: bool, code: &str, ns: u64) -> Record {
        Record {
            run_id: "run".into(),
            trial,
            final_,
            task: place.task.into(),
            target: place.target.into(),
            machine: place.machine.into(),
            evaluator: TIMED.into(),
            strategy: "random".into(),
            seed: 1,
            toolchain: build::toolchain().into(),
            algorithm: "test".into(),
            decisions: vec![],
            trace: String::new(),
            code_hash: Some(code.into()),
            code_size: Some(1),
            outcome: Outcome::Timed {
                samples_ns: vec![ns],
                clock: Clock::ThreadCpu,
                conditions: Conditions {
                    rel_l2: Some(1e-6),
                    isolated: final_,
                    ..Conditions::unproven(1, 1)
                },
            },
            outcome_extra: Extra::new(),
            spent: SpentByStage::default(),
            created_unix_ms: 1,
            extra: Extra::new(),
        }
    }

    #[test]
    fn a_final_counts_for_its_code_and_other_toolchains_do_not() {
        let source = crate::source::Source::builtin("op:dense(m=4,n=32,k=16)").unwrap();
        let target = Machine::host().target(1);
        let plan = source.plan(&target, search::Accuracy::Strict, &[]).unwrap();
        let (task, key) = (&plan.tasks[0], target_key(&target));
        let store = Store::open_in_memory().unwrap();
        store.put_target(&key).unwrap();
        store.put_task(&task_record(task)).unwrap();
        store.begin_run(&begun_run(&plan.name)).unwrap();
        for fingerprint in ["here", "elsewhere"] {
            let machine = MachineKey {
                fingerprint: fingerprint.into(),
                description: String::new(),
                extra: Extra::new(),
            };
            store.put_machine(&machine).unwrap();
        }
        let target = key.text();
        let place = |machine| RecordPlace {
            task: &task.key,
            target: &target,
            machine,
        };
        let here = place("here");
        let older = Record {
            toolchain: "older".into(),
            ..record(&here, 3, false, "c", 1)
        };
        let records = [
            record(&here, 0, false, "a", 100),
            record(&here, 1, false, "b", 90),
            record(&here, 2, false, "a", 70),
            record(&here, 0, true, "a", 80),
            older,
            record(&place("elsewhere"), 4, false, "d", 1),
        ];
        for r in records {
            store.append(&[r], &[]).unwrap();
        }
        let found = times(&store, &here, 1e-4).unwrap();
        let ns: Vec<u64> = found.timed.iter().map(|t| t.ns).collect();
        assert_eq!((ns, found.other_toolchain), (vec![80, 90], 1));
        assert_eq!(times(&store, &here, 1e-9).unwrap().timed.len(), 0);
    }

    #[test]
    fn a_spread_has_both_ends() {
        let all: Vec<u32> = (0..10).collect();
        assert_eq!(spread(all.clone(), 4), [0, 3, 6, 9]);
        assert_eq!(spread(all.clone(), 1), [0]);
        assert_eq!(spread(all.clone(), 10), all);
        assert_eq!(spread(all.clone(), 99), all);
        assert_eq!(spread(all, 9).len(), 9);
    }
}
