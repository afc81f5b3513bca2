//! Plain data to database rows and back.
//!
//! Owns the column order of every select. Promises that what a row cannot hold
//! exactly is refused when written, and that a row that does not decode is an
//! error that says why, never a guess.

use rusqlite::Row;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::{Event, EventKind};
use crate::record::{MachineKey, OutcomeForm, Record, Run, TargetKey, Task, TaskCpu};

/// Why a row does not decode.
#[derive(Debug)]
pub(crate) enum RowProblem {
    Sqlite(rusqlite::Error),
    Content(String),
}

impl From<rusqlite::Error> for RowProblem {
    fn from(error: rusqlite::Error) -> Self {
        RowProblem::Sqlite(error)
    }
}

/// A select whose first column is a row number to name in errors.
pub(crate) struct Select<T> {
    /// What a row is, for errors.
    pub(crate) what: &'static str,
    /// The statement up to and without `WHERE`.
    pub(crate) sql: &'static str,
    pub(crate) read: fn(&Row<'_>) -> Result<T, RowProblem>,
}

pub(crate) const TASKS: Select<Task> = Select {
    what: "task",
    sql: "SELECT id, key, text, op, args, flops, bytes, extra FROM tasks",
    read: read_task,
};

pub(crate) const TARGETS: Select<TargetKey> = Select {
    what: "target",
    sql: "SELECT id, body FROM targets",
    read: |row| json_column(row, 1, "body"),
};

pub(crate) const MACHINES: Select<MachineKey> = Select {
    what: "machine",
    sql: "SELECT id, key, description, extra FROM machines",
    read: |row| {
        Ok(MachineKey {
            fingerprint: row.get(1)?,
            description: row.get(2)?,
            extra: json_column(row, 3, "extra")?,
        })
    },
};

pub(crate) const RUNS: Select<Run> = Select {
    what: "run",
    sql: "SELECT id, key, model, options, strategy, seed, started_unix_ms, ended_unix_ms, \
          summary, extra FROM runs",
    read: read_run,
};

pub(crate) const RECORDS: Select<Record> = Select {
    what: "record",
    sql: "SELECT r.id, runs.key, r.trial, r.final, tasks.key, targets.key, machines.key, \
          r.strategy, r.seed, r.toolchain, r.algorithm, r.decisions, r.trace, r.code_hash, \
          r.code_size, r.outcome, r.costs, r.created_unix_ms, r.extra, r.evaluator \
          FROM records r \
          JOIN runs ON runs.id = r.run_id \
          JOIN tasks ON tasks.id = r.task_id \
          JOIN targets ON targets.id = r.target_id \
          JOIN machines ON machines.id = r.machine_id",
    read: read_record,
};

pub(crate) const CPU_TIMES: Select<TaskCpu> = Select {
    what: "record",
    sql: "SELECT min(r.id), tasks.key, r.final, \
          coalesce(sum(json_extract(r.costs, '$.search.cpu_ns')), 0), \
          coalesce(sum(json_extract(r.costs, '$.build.cpu_ns')), 0), \
          coalesce(sum(json_extract(r.costs, '$.load.cpu_ns')), 0), \
          coalesce(sum(json_extract(r.costs, '$.measure.cpu_ns')), 0), \
          coalesce(sum(json_extract(r.costs, '$.check.cpu_ns')), 0) \
          FROM records r \
          JOIN runs ON runs.id = r.run_id \
          JOIN tasks ON tasks.id = r.task_id",
    read: |row| {
        Ok(TaskCpu {
            task: row.get(1)?,
            final_: row.get(2)?,
            search_ns: row.get(3)?,
            build_ns: row.get(4)?,
            load_ns: row.get(5)?,
            measure_ns: row.get(6)?,
            check_ns: row.get(7)?,
        })
    },
};

pub(crate) const EVENTS: Select<Event> = Select {
    what: "event",
    sql: "SELECT e.seq, runs.key, e.kind, tasks.key, e.payload, e.extra \
          FROM events e \
          JOIN runs ON runs.id = e.run_id \
          LEFT JOIN tasks ON tasks.id = e.task_id",
    read: |row| {
        Ok(Event {
            seq: unsigned(row, 0, "seq")?,
            run_id: row.get(1)?,
            task: row.get(3)?,
            kind: EventKind::read(row.get(2)?, json_column(row, 4, "payload")?),
            extra: json_column(row, 5, "extra")?,
        })
    },
};

fn read_task(row: &Row<'_>) -> Result<Task, RowProblem> {
    Ok(Task {
        key: row.get(1)?,
        text: row.get(2)?,
        op: row.get(3)?,
        args: json_column(row, 4, "args")?,
        flops: row.get(5)?,
        bytes: unsigned(row, 6, "bytes")?,
        extra: json_column(row, 7, "extra")?,
    })
}

fn read_run(row: &Row<'_>) -> Result<Run, RowProblem> {
    Ok(Run {
        run_id: row.get(1)?,
        model: row.get(2)?,
        options: json_column(row, 3, "options")?,
        strategy: row.get(4)?,
        seed: row.get::<_, i64>(5)?.cast_unsigned(),
        started_unix_ms: unsigned(row, 6, "started_unix_ms")?,
        ended_unix_ms: optional_unsigned(row, 7, "ended_unix_ms")?,
        summary: json_column(row, 8, "summary")?,
        extra: json_column(row, 9, "extra")?,
    })
}

fn read_record(row: &Row<'_>) -> Result<Record, RowProblem> {
    let outcome: OutcomeForm = json_column(row, 15, "outcome")?;
    Ok(Record {
        run_id: row.get(1)?,
        trial: unsigned(row, 2, "trial")?,
        final_: row.get(3)?,
        task: row.get(4)?,
        target: row.get(5)?,
        machine: row.get(6)?,
        evaluator: row.get(19)?,
        strategy: row.get(7)?,
        seed: row.get::<_, i64>(8)?.cast_unsigned(),
        toolchain: row.get(9)?,
        algorithm: row.get(10)?,
        decisions: json_column(row, 11, "decisions")?,
        trace: row.get(12)?,
        code_hash: row.get(13)?,
        code_size: optional_unsigned(row, 14, "code_size")?,
        outcome: outcome.outcome,
        outcome_extra: outcome.extra,
        spent: json_column(row, 16, "costs")?,
        created_unix_ms: unsigned(row, 17, "created_unix_ms")?,
        extra: json_column(row, 18, "extra")?,
    })
}

fn json_column<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
    name: &str,
) -> Result<T, RowProblem> {
    let text = row
        .get_ref(column)?
        .as_str()
        .map_err(|e| content(name, e))?;
    serde_json::from_str(text).map_err(|e| content(name, e))
}

fn unsigned(row: &Row<'_>, column: usize, name: &str) -> Result<u64, RowProblem> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| content(name, format!("{value} is negative")))
}

fn optional_unsigned(row: &Row<'_>, column: usize, name: &str) -> Result<Option<u64>, RowProblem> {
    match row.get::<_, Option<i64>>(column)? {
        None => Ok(None),
        Some(_) => unsigned(row, column, name).map(Some),
    }
}

fn content(name: &str, reason: impl std::fmt::Display) -> RowProblem {
    RowProblem::Content(format!("column {name}: {reason}"))
}

/// The JSON text of a column.
pub(crate) fn json<T: Serialize + ?Sized>(name: &str, value: &T) -> Result<String, String> {
    serde_json::to_string(value).map_err(|e| format!("{name}: {e}"))
}

/// A number as SQLite's signed integer, which must hold it exactly.
pub(crate) fn integer(name: &str, value: u64) -> Result<i64, String> {
    i64::try_from(value).map_err(|_| format!("{name} {value} is above {}", i64::MAX))
}

/// FNV-1a, 64 bits: stable for ever, since it is stored.
pub(crate) fn trace_hash(trace: &str) -> i64 {
    let hash = trace.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published FNV-1a test vectors.
    #[test]
    fn trace_hashes_never_change() {
        assert_eq!(trace_hash("").cast_unsigned(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(trace_hash("a").cast_unsigned(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(trace_hash("foobar").cast_unsigned(), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert_eq!(integer("trial", 7), Ok(7));
        assert!(integer("trial", u64::MAX).unwrap_err().contains("trial"));
    }
}
