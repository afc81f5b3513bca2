//! Reading the store: records by key, the best record, earlier outcomes,
//! counts, and explicit look-ups on compatible targets.
//!
//! Promises that a look-up for one target never answers with a record of
//! another (that is [`Store::compatible`], by name), and that equal stores give
//! equal answers: every order ends in a fixed tie-break.

use std::collections::BTreeMap;

use rusqlite::ToSql;

use crate::error::StoreError;
use crate::event::Event;
use crate::record::{Machine, Record, Run, TargetKey, Task};
use crate::rows::{self, EVENTS, MACHINES, RECORDS, RUNS, TARGETS, TASKS};
use crate::sqlite::{RecordId, Store};

/// Where a record belongs: what was tuned, for what, on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place<'a> {
    /// [`Task::key`].
    pub task: &'a str,
    /// [`TargetKey::text`].
    pub target: &'a str,
    /// [`Machine::fingerprint`].
    pub machine: &'a str,
}

/// A candidate before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CandidateKey<'a> {
    pub place: Place<'a>,
    pub toolchain: &'a str,
    pub algorithm: &'a str,
    pub trace: &'a str,
}

/// Which records to read; what is not given does not restrict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter<'a> {
    pub task: Option<&'a str>,
    pub target: Option<&'a str>,
    pub machine: Option<&'a str>,
    pub run: Option<&'a str>,
    /// [`crate::Outcome::label`].
    pub label: Option<&'a str>,
    /// Finals only, or trials only.
    pub final_: Option<bool>,
}

/// Records of a task by outcome label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskOutcomes {
    pub task: String,
    pub counts: BTreeMap<String, u64>,
}

impl TaskOutcomes {
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// A fact in which another target differs from the one asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetDifference {
    /// `cpu`, `features`, `caches`, `threads`, `machine`, or an unknown field.
    pub field: String,
    pub asked: String,
    pub found: String,
}

/// The best record of another place whose code can run on the target asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Compatible {
    pub record: Record,
    pub target: TargetKey,
    /// Never empty.
    pub differences: Vec<TargetDifference>,
}

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
    pub fn machines(&self) -> Result<Vec<Machine>, StoreError> {
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
        let rest = "WHERE runs.key = ?1 ORDER BY e.seq";
        Ok(items(self.query(
            "reading events",
            &EVENTS,
            rest,
            &[&run_id],
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
    pub fn records_for(&self, filter: &Filter<'_>) -> Result<Vec<Record>, StoreError> {
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
        filter: &Filter<'_>,
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
        if let Some(label) = &filter.label {
            values.push(label);
            clauses.push(format!("r.label = ?{}", values.len()));
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

    /// The best timed record of exactly this place: an isolated final before
    /// any other, then the lowest median, then the lowest code hash, then the
    /// oldest. A candidate or machine code that was ever wrong on this target,
    /// or that failed as a finalist on this machine, is not considered.
    pub fn best_for(&self, place: &Place<'_>) -> Result<Option<Record>, StoreError> {
        self.best_that(place, |_| Ok(true))
    }

    /// The best of the records that [`Store::best_for`] considers and `accept`
    /// takes; it sees them in that order until it takes one.
    pub fn best_that(
        &self,
        place: &Place<'_>,
        accept: impl FnMut(&Record) -> Result<bool, StoreError>,
    ) -> Result<Option<Record>, StoreError> {
        self.first_in_place(
            "looking for the best record",
            place,
            "r.median_ns IS NOT NULL AND NOT EXISTS (\
                 SELECT 1 FROM records bad \
                 WHERE bad.task_id = r.task_id AND bad.target_id = r.target_id \
                 AND bad.code_hash = r.code_hash \
                 AND (bad.label = 'wrong' OR (bad.final = 1 AND bad.ran = 1 \
                     AND bad.median_ns IS NULL AND bad.machine_id = r.machine_id))) \
             AND NOT EXISTS (\
                 SELECT 1 FROM records bad \
                 WHERE bad.task_id = r.task_id AND bad.target_id = r.target_id \
                 AND bad.trace_hash = r.trace_hash AND bad.trace = r.trace \
                 AND bad.algorithm = r.algorithm AND bad.toolchain = r.toolchain \
                 AND (bad.label = 'wrong' OR (bad.final = 1 AND bad.ran = 1 \
                     AND bad.median_ns IS NULL AND bad.machine_id = r.machine_id)))",
            "r.final DESC, r.median_ns, r.code_hash IS NULL, r.code_hash, r.id",
            &[],
            accept,
        )
    }

    /// The earlier outcome of this machine code in this place, so that equal
    /// code is not run twice: a final before a trial, then the oldest. Only
    /// outcomes of code that reached a runner count, and none whose error exceeds
    /// `tolerance`.
    pub fn outcome_of_code(
        &self,
        place: &Place<'_>,
        code_hash: &str,
        tolerance: f64,
    ) -> Result<Option<Record>, StoreError> {
        self.first_in_place(
            "looking for machine code",
            place,
            "r.code_hash = ?4 AND r.ran = 1",
            // The plus keeps SQLite from scanning the place in this order
            // instead of searching the hash.
            "+r.final DESC, r.id",
            &[&code_hash],
            |r| Ok(r.outcome.within(tolerance)),
        )
    }

    /// The earlier outcome of this candidate, so that a resumed run does not
    /// try it again: a final before a trial, then the oldest. Scores and skips
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
            "r.trace_hash = ?4 AND r.trace = ?5 AND r.algorithm = ?6 AND r.toolchain = ?7 \
             AND r.settled = 1",
            "r.final DESC, r.id",
            &[
                &rows::trace_hash(candidate.trace),
                &candidate.trace,
                &candidate.algorithm,
                &candidate.toolchain,
            ],
            |r| Ok(r.outcome.within(tolerance)),
        )
    }

    /// The first record of a place that `accept` takes.
    fn first_in_place(
        &self,
        doing: &'static str,
        place: &Place<'_>,
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

    /// For each other place of this task whose code can run on `target` (same
    /// triple, no feature that `target` lacks), its best record with what
    /// differs: fewest differences first, then the lowest median. The caller
    /// chooses and must report the differences; timings of another place are
    /// not timings of this one.
    pub fn compatible(
        &self,
        task: &str,
        target: &TargetKey,
        machine: &str,
    ) -> Result<Vec<Compatible>, StoreError> {
        let places = self.counts(
            "looking for compatible targets",
            "SELECT targets.key, machines.key, count(*) FROM records r \
             JOIN targets ON targets.id = r.target_id \
             JOIN machines ON machines.id = r.machine_id \
             WHERE r.task_id = (SELECT id FROM tasks WHERE key = ?1) \
             GROUP BY targets.key, machines.key",
            &[&task],
        )?;
        let mut found = Vec::new();
        for (other_key, other_machine, _) in places {
            let Some(other) = self.target(&other_key)? else {
                continue;
            };
            if !runs_on(&other, target) {
                continue;
            }
            let differences = differences(target, machine, &other, &other_machine);
            if differences.is_empty() {
                continue;
            }
            let place = Place {
                task,
                target: &other_key,
                machine: &other_machine,
            };
            if let Some(record) = self.best_for(&place)? {
                found.push(Compatible {
                    record,
                    target: other,
                    differences,
                });
            }
        }
        found.sort_by_key(|c| (c.differences.len(), c.record.outcome.median_ns()));
        Ok(found)
    }

    /// Counts of records by outcome label, for one task or all, by task key.
    pub fn outcome_counts(&self, task: Option<&str>) -> Result<Vec<TaskOutcomes>, StoreError> {
        let rows = self.counts(
            "counting outcomes",
            "SELECT tasks.key, r.label, count(*) FROM records r \
             JOIN tasks ON tasks.id = r.task_id \
             WHERE ?1 IS NULL OR tasks.key = ?1 \
             GROUP BY tasks.key, r.label ORDER BY tasks.key, r.label",
            &[&task],
        )?;
        let mut by_task: Vec<TaskOutcomes> = Vec::new();
        for (task, label, count) in rows {
            match by_task.last_mut() {
                Some(last) if last.task == task => {
                    last.counts.insert(label, count);
                }
                _ => by_task.push(TaskOutcomes {
                    task,
                    counts: BTreeMap::from([(label, count)]),
                }),
            }
        }
        Ok(by_task)
    }
}

fn items<T>(rows: Vec<(i64, T)>) -> Vec<T> {
    rows.into_iter().map(|(_, item)| item).collect()
}

/// Whether code for `built` can run on `target`.
fn runs_on(built: &TargetKey, target: &TargetKey) -> bool {
    built.triple == target.triple && built.features.iter().all(|f| target.features.contains(f))
}

fn differences(
    asked: &TargetKey,
    asked_machine: &str,
    found: &TargetKey,
    found_machine: &str,
) -> Vec<TargetDifference> {
    let caches = |target: &TargetKey| {
        let facts: Vec<String> = target
            .caches
            .iter()
            .map(|(name, size)| format!("{name}:{size}"))
            .collect();
        facts.join(",")
    };
    let mut facts = vec![
        ("cpu".to_owned(), asked.cpu.clone(), found.cpu.clone()),
        (
            "features".to_owned(),
            asked.sorted_features().join(","),
            found.sorted_features().join(","),
        ),
        ("caches".to_owned(), caches(asked), caches(found)),
        (
            "threads".to_owned(),
            asked.threads.to_string(),
            found.threads.to_string(),
        ),
        (
            "machine".to_owned(),
            asked_machine.to_owned(),
            found_machine.to_owned(),
        ),
    ];
    let unknown: BTreeMap<&String, ()> = asked
        .extra
        .keys()
        .chain(found.extra.keys())
        .map(|name| (name, ()))
        .collect();
    for name in unknown.into_keys() {
        let text = |target: &TargetKey| {
            target
                .extra
                .get(name)
                .map(ToString::to_string)
                .unwrap_or_default()
        };
        facts.push((name.clone(), text(asked), text(found)));
    }
    facts
        .into_iter()
        .filter(|(_, asked, found)| asked != found)
        .map(|(field, asked, found)| TargetDifference {
            field,
            asked,
            found,
        })
        .collect()
}
