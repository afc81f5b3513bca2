//! Reading the store: records by key, the best record, earlier outcomes.
//!
//! Promises that a look-up for one target never answers with a record of
//! another, that a time which was not measured ([`MEASURING`]) is never the best, and that equal stores give equal answers: every order ends in a
//! fixed tie-break.

use rusqlite::ToSql;

use crate::error::StoreError;
use crate::event::Event;
use crate::outcome::OUTSIDE_SIGNALS;
use crate::record::{MEASURING, MachineKey, Record, Run, TargetKey, Task, TaskCpu};
use crate::rows::{self, CPU_TIMES, EVENTS, MACHINES, RECORDS, RUNS, TARGETS, TASKS};
use crate::sqlite::{RecordId, Store};

/// Where a record belongs: what was tuned, for what, on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordPlace<'a> {
    /// [`Task::key`].
    pub task: &'a str,
    /// [`TargetKey::text`].
    pub target: &'a str,
    /// [`MachineKey::fingerprint`].
    pub machine: &'a str,
}

/// A candidate before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CandidateKey<'a> {
    pub place: RecordPlace<'a>,
    pub toolchain: &'a str,
    pub algorithm: &'a str,
    pub trace: &'a str,
}

/// Which records to read; what is not given does not restrict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordQuery<'a> {
    pub task: Option<&'a str>,
    pub target: Option<&'a str>,
    pub machine: Option<&'a str>,
    pub run: Option<&'a str>,
    /// [`Record::evaluator`].
    pub evaluator: Option<&'a str>,
    /// [`crate::Outcome::label`].
    pub label: Option<&'a str>,
    /// Finals only, or trials only.
    pub final_: Option<bool>,
}

/// Whether a row of `records` holds what was measured on the machine that it names.
fn measured(table: &str) -> String {
    let names: Vec<String> = MEASURING.iter().map(|name| format!("'{name}'")).collect();
    format!("{table}.evaluator IN ({})", names.join(", "))
}

/// Measured and timed, and neither this candidate nor its code was wrong here, by tolerance ?4 or a
/// looser one, or failed as a finalist on this machine.
fn usable() -> String {
    // `ran` of records of earlier programs counts them.
    let outside = OUTSIDE_SIGNALS.map(|s| s.to_string()).join(", ");
    let failed = |same: &str| {
        format!(
            "EXISTS (SELECT 1 FROM records bad \
             WHERE bad.task_id = r.task_id AND bad.target_id = r.target_id AND {same} \
             AND {} AND (bad.label = 'wrong' \
                 AND coalesce(json_extract(bad.outcome, '$.difference.tolerance') >= ?4, 1) \
                 OR bad.final = 1 AND bad.ran = 1 \
                 AND coalesce(json_extract(bad.outcome, '$.signal') NOT IN ({outside}), 1) \
                 AND bad.median_ns IS NULL AND bad.machine_id = r.machine_id))",
            measured("bad")
        )
    };
    let code = failed("bad.code_hash = r.code_hash");
    let candidate = failed(
        "bad.trace_hash = r.trace_hash AND bad.trace = r.trace \
         AND bad.algorithm = r.algorithm AND bad.toolchain = r.toolchain",
    );
    let measured = measured("r");
    format!("r.median_ns IS NOT NULL AND {measured} AND NOT {code} AND NOT {candidate}")
}

/// Events of a run from a number on.
const SINCE: &str = "WHERE runs.key = ?1 AND e.seq >= ?2 ORDER BY e.seq";

/// A row of the candidate whose trace, algorithm and toolchain are given.
const OF_CANDIDATE: &str =
    "r.trace_hash = ?4 AND r.trace = ?5 AND r.algorithm = ?6 AND r.toolchain = ?7";

impl Store {
    /// All tasks, by key.
    pub fn tasks(&self) -> Result<Vec<Task>, StoreError> {
        Ok(items(self.query(
            "listing tasks",
            &TASKS,
            "ORDER BY key",
            &[],
        )?))
    }

    /// All targets, by text.
    pub fn targets(&self) -> Result<Vec<TargetKey>, StoreError> {
        Ok(items(self.query(
            "listing targets",
            &TARGETS,
            "ORDER BY key",
            &[],
        )?))
    }

    /// All machines, by fingerprint.
    pub fn machines(&self) -> Result<Vec<MachineKey>, StoreError> {
        Ok(items(self.query(
            "listing machines",
            &MACHINES,
            "ORDER BY key",
            &[],
        )?))
    }

    /// All runs, in the order they started.
    pub fn runs(&self) -> Result<Vec<Run>, StoreError> {
        let order = "ORDER BY started_unix_ms, key";
        Ok(items(self.query("listing runs", &RUNS, order, &[])?))
    }

    /// The log of a run, in order; empty when the run is unknown.
    pub fn events(&self, run_id: &str) -> Result<Vec<Event>, StoreError> {
        self.events_since(run_id, 0)
    }

    /// The events of a run from number `seq` on, in order. Who follows a run asks for the
    /// number after the last event that was read; what other processes appended meanwhile
    /// is among them. Takes as long as there are events to read, however long the log is.
    pub fn events_since(&self, run_id: &str, seq: u64) -> Result<Vec<Event>, StoreError> {
        // A number beyond what a row can hold is after all events.
        let Ok(seq) = i64::try_from(seq) else {
            return Ok(Vec::new());
        };
        Ok(items(self.query(
            "reading events",
            &EVENTS,
            SINCE,
            &[&run_id, &seq],
        )?))
    }

    /// The events of a kind in all runs of a model, the newest run's last ones first.
    pub fn newest_events(&self, model: &str, kind: &str) -> Result<Vec<Event>, StoreError> {
        let rest = "WHERE runs.model = ?1 AND e.kind = ?2 \
                    ORDER BY runs.started_unix_ms DESC, runs.key DESC, e.seq DESC";
        Ok(items(self.query(
            "reading events of a model",
            &EVENTS,
            rest,
            &[&model, &kind],
        )?))
    }

    /// The records that match, in the order they were stored.
    pub fn records_for(&self, filter: &RecordQuery<'_>) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        self.visit_records(filter, |_, record| {
            records.push(record);
            Ok(())
        })?;
        Ok(records)
    }

    /// Hands the records that match to `visitor` one by one, in the order they
    /// were stored, without holding them all in memory.
    pub fn visit_records(
        &self,
        filter: &RecordQuery<'_>,
        mut visitor: impl FnMut(RecordId, Record) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut clauses = Vec::new();
        let mut values: Vec<&dyn ToSql> = Vec::new();
        let keys = [
            ("task_id", "tasks", &filter.task),
            ("target_id", "targets", &filter.target),
            ("machine_id", "machines", &filter.machine),
            ("run_id", "runs", &filter.run),
        ];
        for (column, table, key) in keys {
            if let Some(key) = key {
                values.push(key);
                let number = values.len();
                clauses.push(format!(
                    "r.{column} = (SELECT id FROM {table} WHERE key = ?{number})"
                ));
            }
        }
        for (column, text) in [("evaluator", &filter.evaluator), ("label", &filter.label)] {
            if let Some(text) = text {
                values.push(text);
                clauses.push(format!("r.{column} = ?{}", values.len()));
            }
        }
        if let Some(final_) = &filter.final_ {
            values.push(final_);
            clauses.push(format!("r.final = ?{}", values.len()));
        }
        let condition = match clauses.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", clauses.join(" AND ")),
        };
        let rest = format!("{condition} ORDER BY r.id");
        self.visit("reading records", &RECORDS, &rest, &values, |id, record| {
            visitor(RecordId(id), record)
        })
    }

    /// CPU time of a run's records, summed by task; a stage whose CPU time is not known counts as
    /// 0.
    pub fn cpu_times(&self, run_id: &str) -> Result<Vec<TaskCpu>, StoreError> {
        Ok(items(self.query(
            "reading CPU times",
            &CPU_TIMES,
            "WHERE runs.key = ?1 GROUP BY tasks.key, r.final ORDER BY tasks.key, r.final",
            &[&run_id],
        )?))
    }

    /// The best record of exactly this place with a measured time ([`MEASURING`]): an isolated final before
    /// any other, then the lowest median, then the lowest code hash, then the
    /// oldest; of several finals of one code in one state of the caches only the
    /// newest. A candidate or machine
    /// code that was ever wrong on this target, or that failed as a finalist on this
    /// machine, is not considered.
    ///
    /// Only those that `accept` takes, which sees them in that order until it takes one.
    /// What was wrong counts if it was judged by this tolerance or a looser one.
    pub fn best_that(
        &self,
        place: &RecordPlace<'_>,
        tolerance: f64,
        accept: impl FnMut(&Record) -> Result<bool, StoreError>,
    ) -> Result<Option<Record>, StoreError> {
        let measured = measured("newer");
        let superseded = format!(
            "r.final = 1 AND EXISTS (\
             SELECT 1 FROM records newer \
             WHERE newer.task_id = r.task_id AND newer.target_id = r.target_id \
             AND newer.machine_id = r.machine_id AND newer.code_hash = r.code_hash \
             AND newer.final = 1 AND newer.median_ns IS NOT NULL AND newer.id > r.id \
             AND json_extract(newer.outcome, '$.conditions.cache') \
                 = json_extract(r.outcome, '$.conditions.cache') \
             AND {measured})"
        );
        self.first_in_place(
            "looking for the best record",
            place,
            &format!("{} AND NOT ({superseded})", usable()),
            "r.final DESC, r.median_ns, r.code_hash IS NULL, r.code_hash, r.id",
            &[&tolerance],
            accept,
        )
    }

    /// As [`Store::best_that`], but by the lowest median alone: a trial of a run that
    /// was ended before it ranked its finalists may be better than any final.
    pub fn fastest_that(
        &self,
        place: &RecordPlace<'_>,
        tolerance: f64,
        accept: impl FnMut(&Record) -> Result<bool, StoreError>,
    ) -> Result<Option<Record>, StoreError> {
        self.first_in_place(
            "looking for the fastest record",
            place,
            &usable(),
            "r.median_ns, r.id",
            &[&tolerance],
            accept,
        )
    }

    /// The record with the lowest score of this kind by this evaluator, of exactly this
    /// place; of equal scores the oldest. Only those that `accept` takes, as in
    /// [`Store::best_that`].
    pub fn best_scored(
        &self,
        place: &RecordPlace<'_>,
        evaluator: &str,
        kind: &str,
        accept: impl FnMut(&Record) -> Result<bool, StoreError>,
    ) -> Result<Option<Record>, StoreError> {
        self.first_in_place(
            "looking for the best score",
            place,
            "r.score IS NOT NULL AND r.evaluator = ?4 \
             AND json_extract(r.outcome, '$.kind') = ?5",
            "r.score, r.id",
            &[&evaluator, &kind],
            accept,
        )
    }

    /// The earlier outcome of this machine code in this place, so that equal
    /// code is not run twice: a final before a trial, then the oldest. Only
    /// outcomes of code that reached a runner of a measuring evaluator count, and those
    /// that `accept` takes.
    pub fn outcome_of_code(
        &self,
        place: &RecordPlace<'_>,
        code_hash: &str,
        mut accept: impl FnMut(&Record) -> bool,
    ) -> Result<Option<Record>, StoreError> {
        self.first_in_place(
            "looking for machine code",
            place,
            &format!("r.code_hash = ?4 AND r.ran = 1 AND {}", measured("r")),
            // The plus keeps SQLite from scanning the place in this order
            // instead of searching the hash.
            "+r.final DESC, r.id",
            &[&code_hash],
            |r| Ok(r.outcome.ran() && accept(r)),
        )
    }

    /// The earlier outcome of this candidate by a measuring evaluator, so that a resumed
    /// run does not try it again: a final before a trial, then the oldest. Scores and skips
    /// do not count, see [`crate::Outcome::settled`], nor does one whose error
    /// exceeds `tolerance`.
    pub fn outcome_of_candidate(
        &self,
        candidate: &CandidateKey<'_>,
        tolerance: f64,
    ) -> Result<Option<Record>, StoreError> {
        self.first_in_place(
            "looking for a candidate",
            &candidate.place,
            &format!("{OF_CANDIDATE} AND r.settled = 1 AND {}", measured("r")),
            "r.final DESC, r.id",
            &[
                &rows::trace_hash(candidate.trace),
                &candidate.trace,
                &candidate.algorithm,
                &candidate.toolchain,
            ],
            |r| Ok(r.outcome.settled() && r.outcome.within(tolerance)),
        )
    }

    /// The oldest score of this kind that this evaluator gave the candidate.
    pub fn score_of_candidate(
        &self,
        candidate: &CandidateKey<'_>,
        evaluator: &str,
        kind: &str,
    ) -> Result<Option<Record>, StoreError> {
        self.first_in_place(
            "looking for a score",
            &candidate.place,
            &format!(
                "{OF_CANDIDATE} AND r.score IS NOT NULL AND r.evaluator = ?8 \
                 AND json_extract(r.outcome, '$.kind') = ?9"
            ),
            "r.id",
            &[
                &rows::trace_hash(candidate.trace),
                &candidate.trace,
                &candidate.algorithm,
                &candidate.toolchain,
                &evaluator,
                &kind,
            ],
            |_| Ok(true),
        )
    }

    /// The first record of a place that `accept` takes.
    fn first_in_place(
        &self,
        doing: &'static str,
        place: &RecordPlace<'_>,
        condition: &str,
        order: &str,
        more: &[&dyn ToSql],
        mut accept: impl FnMut(&Record) -> Result<bool, StoreError>,
    ) -> Result<Option<Record>, StoreError> {
        let (task, target, machine) = (
            self.find_row("tasks", place.task)?,
            self.find_row("targets", place.target)?,
            self.find_row("machines", place.machine)?,
        );
        let (Some(task), Some(target), Some(machine)) = (task, target, machine) else {
            return Ok(None);
        };
        let mut values: Vec<&dyn ToSql> = vec![&task, &target, &machine];
        values.extend_from_slice(more);
        // Nearly always the first is taken.
        let (mut seen, mut page) = (0, 1);
        loop {
            let rest = format!(
                "WHERE r.task_id = ?1 AND r.target_id = ?2 AND r.machine_id = ?3 \
                 AND {condition} ORDER BY {order} LIMIT {page} OFFSET {seen}"
            );
            let found = self.query(doing, &RECORDS, &rest, &values)?;
            let last = found.len() < page;
            for (_, record) in found {
                if accept(&record)? {
                    return Ok(Some(record));
                }
            }
            if last {
                return Ok(None);
            }
            seen += page;
            page *= 4;
        }
    }
}

fn items<T>(rows: Vec<(i64, T)>) -> Vec<T> {
    rows.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_since_a_number_are_found_by_the_index() {
        let store = Store::open_in_memory().unwrap();
        let sql = format!("EXPLAIN QUERY PLAN {} {SINCE}", EVENTS.sql);
        let mut statement = store.connection.prepare(&sql).unwrap();
        let rows = statement.query_map(("r1", 7), |row| row.get(3)).unwrap();
        let plan: Vec<String> = rows.map(Result::unwrap).collect();
        let plan = plan.join("; ");
        assert!(
            plan.contains("SEARCH e USING PRIMARY KEY (run_id=? AND seq>?)"),
            "{plan}"
        );
        assert!(!plan.contains("SCAN") && !plan.contains("TEMP"), "{plan}");
    }
}
