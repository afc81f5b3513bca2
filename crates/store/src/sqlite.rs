//! The store as one SQLite file: writing.
//!
//! Owns the connection and every write. Promises: a write that returned is on disk
//! (write-ahead log, synced at each commit); several processes may write to one file,
//! each waiting for the other; on error nothing has been written. Opening is in
//! [`crate::opening`], reading by key in [`crate::lookup`]. The file must be on a
//! local disk: SQLite's locks are not safe on network file systems.

use rusqlite::{
    Connection, ErrorCode, OptionalExtension, ToSql, Transaction, TransactionBehavior, params,
};
use serde_json::Value;

use crate::cost::Cost;
use crate::error::StoreError;
use crate::event::{Event, NewEvent};
use crate::outcome::Outcome;
use crate::record::{Extra, MachineKey, Record, RecordIdentity, Run, TargetKey, Task};
use crate::rows::{self, EVENTS, MACHINES, RECORDS, RUNS, RowProblem, Select, TARGETS, TASKS};

/// Row of a record in this file; not stable across export and import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(pub i64);

/// An open store. It may move between threads; to write from several threads
/// or processes, open one each.
#[derive(Debug)]
pub struct Store {
    pub(crate) connection: Connection,
    pub(crate) path: String,
}

impl Store {
    /// Where the store is, as given to [`Store::open`].
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads the whole file and checks its structure and references.
    pub fn check(&self) -> Result<(), StoreError> {
        let doing = "checking the file";
        let found: String = self
            .connection
            .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
            .map_err(|e| self.failed(doing, e))?;
        let dangling: Option<String> = self
            .connection
            .query_row("PRAGMA foreign_key_check", [], |row| row.get(0))
            .optional()
            .map_err(|e| self.failed(doing, e))?;
        let reason = match dangling {
            Some(table) => format!("a row of {table} refers to a missing row"),
            None if found != "ok" => found,
            None => return Ok(()),
        };
        Err(StoreError::Corrupt {
            path: self.path.clone(),
            what: "table",
            row: 0,
            reason,
        })
    }

    /// Stores a task; one with the same key must have the same text. Returns
    /// whether it is new. Of a known task only unknown fields are added.
    pub fn put_task(&self, task: &Task) -> Result<bool, StoreError> {
        let invalid = |reason| invalid("task", &task.key, reason);
        if !task.flops.is_finite() {
            return Err(invalid(format!("flops is {}", task.flops)));
        }
        let bytes = rows::integer("bytes", task.bytes).map_err(invalid)?;
        let args = rows::json("args", &task.args).map_err(invalid)?;
        let extra = rows::json("extra", &task.extra).map_err(invalid)?;
        self.transact("storing a task", || {
            if let Some(known) = self.task(&task.key)? {
                if known.text != task.text {
                    return Err(conflict("task", &task.key, "text"));
                }
                self.add_unknown_fields("tasks", &task.key, known.extra, &task.extra)?;
                return Ok(false);
            }
            self.execute(
                "storing a task",
                "INSERT INTO tasks (key, text, op, args, flops, bytes, extra) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                &[
                    &task.key,
                    &task.text,
                    &task.op,
                    &args,
                    &task.flops,
                    &bytes,
                    &extra,
                ],
            )?;
            Ok(true)
        })
    }

    /// Stores a target, under its [`TargetKey::text`]; returns whether it is new.
    pub fn put_target(&self, target: &TargetKey) -> Result<bool, StoreError> {
        let key = target.text();
        let body = rows::json("target", target).map_err(|r| invalid("target", &key, r))?;
        let inserted = self.execute(
            "storing a target",
            "INSERT INTO targets (key, body) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING",
            &[&key, &body],
        )?;
        Ok(inserted > 0)
    }

    /// Stores a machine; returns whether it is new. A known one keeps its
    /// description; unknown fields are added.
    pub fn put_machine(&self, machine: &MachineKey) -> Result<bool, StoreError> {
        let key = &machine.fingerprint;
        let extra = rows::json("extra", &machine.extra).map_err(|r| invalid("machine", key, r))?;
        self.transact("storing a machine", || {
            if let Some(known) = self.machine(key)? {
                self.add_unknown_fields("machines", key, known.extra, &machine.extra)?;
                return Ok(false);
            }
            self.execute(
                "storing a machine",
                "INSERT INTO machines (key, description, extra) VALUES (?1, ?2, ?3)",
                &[key, &machine.description, &extra],
            )?;
            Ok(true)
        })
    }

    /// Begins a run, or resumes the one with this id, which must have been
    /// begun with the same model, options, strategy and seed and then counts
    /// as running again. Returns whether it is new.
    pub fn begin_run(&self, run: &Run) -> Result<bool, StoreError> {
        self.transact("beginning a run", || {
            let new = self.put_run(run)?;
            if !new {
                self.execute(
                    "resuming a run",
                    "UPDATE runs SET ended_unix_ms = NULL WHERE key = ?1",
                    &[&run.run_id],
                )?;
            }
            Ok(new)
        })
    }

    /// Stores a run as it is; a known one takes over the end and the summary
    /// when it had none.
    pub(crate) fn put_run(&self, run: &Run) -> Result<bool, StoreError> {
        let key = &run.run_id;
        let invalid = |reason| invalid("run", key, reason);
        let options = rows::json("options", &run.options).map_err(invalid)?;
        let summary = rows::json("summary", &run.summary).map_err(invalid)?;
        let extra = rows::json("extra", &run.extra).map_err(invalid)?;
        let seed = run.seed.cast_signed();
        let started = rows::integer("started_unix_ms", run.started_unix_ms).map_err(invalid)?;
        let ended = run
            .ended_unix_ms
            .map(|ms| rows::integer("ended_unix_ms", ms))
            .transpose();
        let ended = ended.map_err(invalid)?;
        self.transact("storing a run", || {
            let Some(known) = self.run(key)? else {
                self.execute(
                    "storing a run",
                    "INSERT INTO runs (key, model, options, strategy, seed, started_unix_ms, \
                     ended_unix_ms, summary, extra) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                    &[
                        key,
                        &run.model,
                        &options,
                        &run.strategy,
                        &seed,
                        &started,
                        &ended,
                        &summary,
                        &extra,
                    ],
                )?;
                return Ok(true);
            };
            let differs = [
                ("model", known.model != run.model),
                ("options", known.options != run.options),
                ("strategy", known.strategy != run.strategy),
                ("seed", known.seed != run.seed),
            ];
            if let Some((field, _)) = differs.into_iter().find(|(_, differs)| *differs) {
                return Err(conflict("run", key, field));
            }
            if known.ended_unix_ms.is_none() && ended.is_some() {
                self.execute(
                    "storing a run",
                    "UPDATE runs SET ended_unix_ms = ?2, summary = ?3 WHERE key = ?1",
                    &[key, &ended, &summary],
                )?;
            }
            self.add_unknown_fields("runs", key, known.extra, &run.extra)?;
            Ok(false)
        })
    }

    /// Ends a run with what it has to report.
    pub fn end_run(
        &self,
        run_id: &str,
        ended_unix_ms: u64,
        summary: &Value,
    ) -> Result<(), StoreError> {
        let ended = rows::integer("ended_unix_ms", ended_unix_ms)
            .map_err(|reason| invalid("run", run_id, reason))?;
        let summary =
            rows::json("summary", summary).map_err(|reason| invalid("run", run_id, reason))?;
        let changed = self.execute(
            "ending a run",
            "UPDATE runs SET ended_unix_ms = ?2, summary = ?3 WHERE key = ?1",
            &[&run_id, &ended, &summary],
        )?;
        if changed == 0 {
            return Err(StoreError::UnknownKey {
                what: "run",
                key: run_id.to_owned(),
            });
        }
        Ok(())
    }

    /// Stores a record. Its run, task, target and machine must be in the store.
    /// Storing the same record again changes nothing and gives the same id; a
    /// different one with the same identity is a conflict.
    pub fn insert_record(&self, record: &Record) -> Result<RecordId, StoreError> {
        Ok(self.put_record(record)?.0)
    }

    /// Appends an event to its run's log; returns its number.
    pub fn insert_event(&self, event: &NewEvent) -> Result<u64, StoreError> {
        self.transact("storing an event", || {
            let run = self.row_of("runs", "run", &event.run_id)?;
            let seq: i64 = self
                .connection
                .prepare_cached("SELECT coalesce(max(seq) + 1, 0) FROM events WHERE run_id = ?1")
                .and_then(|mut statement| statement.query_row([run], |row| row.get(0)))
                .map_err(|e| self.failed("storing an event", e))?;
            let event = Event {
                run_id: event.run_id.clone(),
                seq: seq.cast_unsigned(),
                task: event.task.clone(),
                kind: event.kind.clone(),
                extra: Extra::new(),
            };
            self.put_event(&event)?;
            Ok(event.seq)
        })
    }

    /// Stores records and appends events, all or none: what happened together
    /// is replayed together, and one disk sync serves a batch.
    pub fn append(
        &self,
        records: &[Record],
        events: &[NewEvent],
    ) -> Result<Vec<RecordId>, StoreError> {
        self.transact("storing a batch", || {
            let ids = records
                .iter()
                .map(|r| self.insert_record(r))
                .collect::<Result<_, _>>()?;
            for event in events {
                self.insert_event(event)?;
            }
            Ok(ids)
        })
    }

    /// Replaces the scores of records, and appends events, all or none: an evaluator that compares candidates with
    /// each other scores earlier ones anew. A record that has no score is left as it is.
    pub fn revise(
        &self,
        revised: &[(RecordIdentity, Outcome)],
        events: &[NewEvent],
    ) -> Result<(), StoreError> {
        self.transact("revising scores", || {
            for (identity, outcome) in revised {
                let Some(Cost::Score { value, .. }) = outcome.cost() else {
                    continue;
                };
                let invalid = |reason| invalid("record", &identity.to_string(), reason);
                let run = self.row_of("runs", "run", &identity.run_id)?;
                let task = self.row_of("tasks", "task", &identity.task)?;
                let outcome = rows::json("outcome", outcome).map_err(invalid)?;
                self.execute(
                    "revising a score",
                    "UPDATE records SET score = ?1, outcome = ?2 WHERE run_id = ?3 AND task_id = ?4 \
                     AND trial = ?5 AND final = ?6 AND evaluator = ?7 AND score IS NOT NULL",
                    params![
                        value,
                        outcome,
                        run,
                        task,
                        identity.trial.cast_signed(),
                        identity.final_,
                        identity.evaluator,
                    ],
                )?;
            }
            for event in events {
                self.insert_event(event)?;
            }
            Ok(())
        })
    }

    /// Stores a record and says whether it is new.
    pub(crate) fn put_record(&self, record: &Record) -> Result<(RecordId, bool), StoreError> {
        if let Some(reason) = record.contradiction() {
            return Err(invalid("record", &record.identity().to_string(), reason));
        }
        self.transact("storing a record", || {
            let run = self.row_of("runs", "run", &record.run_id)?;
            let task = self.row_of("tasks", "task", &record.task)?;
            let known = self.query(
                "looking for a record",
                &RECORDS,
                "WHERE r.run_id = ?1 AND r.task_id = ?2 AND r.trial = ?3 AND r.final = ?4 \
                 AND r.evaluator = ?5",
                &[
                    &run,
                    &task,
                    &record.trial.cast_signed(),
                    &record.final_,
                    &record.evaluator,
                ],
            )?;
            match known.into_iter().next() {
                None => Ok((self.add_record(record, run, task)?, true)),
                Some((id, known)) => match first_difference(&known, record) {
                    None => Ok((RecordId(id), false)),
                    Some(field) => Err(conflict("record", &record.identity().to_string(), &field)),
                },
            }
        })
    }

    fn add_record(&self, record: &Record, run: i64, task: i64) -> Result<RecordId, StoreError> {
        let key = || record.identity().to_string();
        let invalid = |reason| invalid("record", &key(), reason);
        let target = self.row_of("targets", "target", &record.target)?;
        let machine = self.row_of("machines", "machine", &record.machine)?;
        let trial = rows::integer("trial", record.trial).map_err(invalid)?;
        let created = rows::integer("created_unix_ms", record.created_unix_ms).map_err(invalid)?;
        let code_size = record
            .code_size
            .map(|n| rows::integer("code_size", n))
            .transpose();
        let code_size = code_size.map_err(invalid)?;
        let mut outcome =
            serde_json::to_value(&record.outcome).map_err(|e| invalid(format!("outcome: {e}")))?;
        if let Value::Object(fields) = &mut outcome {
            fields.extend(record.outcome_extra.clone());
        }
        // Only an index: beyond its range samples keep their value in `outcome`.
        let median = record
            .outcome
            .median_ns()
            .map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
        let score = match record.outcome.cost() {
            Some(Cost::Score { value, .. }) => Some(value),
            _ => None,
        };
        self.execute(
            "storing a record",
            "INSERT INTO records (run_id, task_id, trial, final, evaluator, target_id, machine_id, \
             strategy, seed, toolchain, algorithm, decisions, trace, trace_hash, code_hash, \
             code_size, label, ran, settled, median_ns, score, outcome, costs, created_unix_ms, \
             extra) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
             ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)",
            params![
                run,
                task,
                trial,
                record.final_,
                record.evaluator,
                target,
                machine,
                record.strategy,
                record.seed.cast_signed(),
                record.toolchain,
                record.algorithm,
                rows::json("decisions", &record.decisions).map_err(invalid)?,
                record.trace,
                rows::trace_hash(&record.trace),
                record.code_hash,
                code_size,
                record.outcome.label(),
                record.outcome.ran(),
                record.outcome.settled(),
                median,
                score,
                rows::json("outcome", &outcome).map_err(invalid)?,
                rows::json("costs", &record.spent).map_err(invalid)?,
                created,
                rows::json("extra", &record.extra).map_err(invalid)?,
            ],
        )?;
        Ok(RecordId(self.connection.last_insert_rowid()))
    }

    /// Stores a numbered event; returns whether it is new.
    pub(crate) fn put_event(&self, event: &Event) -> Result<bool, StoreError> {
        let key = format!("{} #{}", event.run_id, event.seq);
        let invalid = |reason| invalid("event", &key, reason);
        let seq = rows::integer("seq", event.seq).map_err(invalid)?;
        let payload = event
            .kind
            .payload()
            .map_err(|e| invalid(format!("payload: {e}")))?;
        let payload = rows::json("payload", &payload).map_err(invalid)?;
        let extra = rows::json("extra", &event.extra).map_err(invalid)?;
        self.transact("storing an event", || {
            let run = self.row_of("runs", "run", &event.run_id)?;
            let task = match &event.task {
                Some(task) => Some(self.row_of("tasks", "task", task)?),
                None => None,
            };
            let known = self.query(
                "looking for an event",
                &EVENTS,
                "WHERE e.run_id = ?1 AND e.seq = ?2",
                &[&run, &seq],
            )?;
            if let Some((_, known)) = known.into_iter().next() {
                return match first_difference(&known, event) {
                    None => Ok(false),
                    Some(field) => Err(conflict("event", &key, &field)),
                };
            }
            self.execute(
                "storing an event",
                "INSERT INTO events (run_id, seq, kind, task_id, payload, extra) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                &[&run, &seq, &event.kind.name(), &task, &payload, &extra],
            )?;
            Ok(true)
        })
    }

    /// Adds to a row's `extra` the fields that it lacks.
    fn add_unknown_fields(
        &self,
        table: &str,
        key: &str,
        mut known: Extra,
        offered: &Extra,
    ) -> Result<(), StoreError> {
        let before = known.len();
        for (name, value) in offered {
            known.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if known.len() == before {
            return Ok(());
        }
        let extra = rows::json("extra", &known).map_err(|r| invalid("row", key, r))?;
        let sql = format!("UPDATE {table} SET extra = ?2 WHERE key = ?1");
        self.execute("adding unknown fields", &sql, &[&key, &extra])
            .map(|_| ())
    }

    /// The row number of a key.
    pub(crate) fn row_of(
        &self,
        table: &str,
        what: &'static str,
        key: &str,
    ) -> Result<i64, StoreError> {
        self.find_row(table, key)?
            .ok_or_else(|| StoreError::UnknownKey {
                what,
                key: key.to_owned(),
            })
    }

    pub(crate) fn find_row(&self, table: &str, key: &str) -> Result<Option<i64>, StoreError> {
        self.connection
            .prepare_cached(&format!("SELECT id FROM {table} WHERE key = ?1"))
            .and_then(|mut statement| statement.query_row([key], |row| row.get(0)).optional())
            .map_err(|e| self.failed("looking up a key", e))
    }

    /// Runs `body` in one transaction, or in the one already open; commits when
    /// it succeeds.
    pub(crate) fn transact<T>(
        &self,
        doing: &'static str,
        body: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !self.connection.is_autocommit() {
            return body();
        }
        let transaction =
            Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)
                .map_err(|e| self.failed(doing, e))?;
        let value = body()?;
        transaction.commit().map_err(|e| self.failed(doing, e))?;
        Ok(value)
    }

    /// Runs `body` on one unchanging view of the store.
    pub(crate) fn snapshot<T>(
        &self,
        doing: &'static str,
        body: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _view = Transaction::new_unchecked(&self.connection, TransactionBehavior::Deferred)
            .map_err(|e| self.failed(doing, e))?;
        body()
    }

    fn execute(
        &self,
        doing: &'static str,
        sql: &str,
        values: &[&dyn ToSql],
    ) -> Result<usize, StoreError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .map_err(|e| self.failed(doing, e))
    }

    /// Rows of a select with their row numbers.
    pub(crate) fn query<T>(
        &self,
        doing: &'static str,
        select: &Select<T>,
        rest: &str,
        values: &[&dyn ToSql],
    ) -> Result<Vec<(i64, T)>, StoreError> {
        let mut found = Vec::new();
        self.visit(doing, select, rest, values, |id, item| {
            found.push((id, item));
            Ok(())
        })?;
        Ok(found)
    }

    /// Hands the rows of a select to `visitor` one by one.
    pub(crate) fn visit<T>(
        &self,
        doing: &'static str,
        select: &Select<T>,
        rest: &str,
        values: &[&dyn ToSql],
        mut visitor: impl FnMut(i64, T) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let fail = |e| self.failed(doing, e);
        let sql = format!("{} {rest}", select.sql);
        let mut statement = self.connection.prepare_cached(&sql).map_err(fail)?;
        let mut rows = statement.query(values).map_err(fail)?;
        while let Some(row) = rows.next().map_err(fail)? {
            let id: i64 = row.get(0).map_err(fail)?;
            let item = (select.read)(row).map_err(|problem| match problem {
                RowProblem::Sqlite(source) => self.failed(doing, source),
                RowProblem::Content(reason) => StoreError::Corrupt {
                    path: self.path.clone(),
                    what: select.what,
                    row: id,
                    reason,
                },
            })?;
            visitor(id, item)?;
        }
        Ok(())
    }

    /// The task with this key.
    pub fn task(&self, key: &str) -> Result<Option<Task>, StoreError> {
        self.one(&TASKS, "WHERE key = ?1", key)
    }

    /// The target with this text.
    pub fn target(&self, key: &str) -> Result<Option<TargetKey>, StoreError> {
        self.one(&TARGETS, "WHERE key = ?1", key)
    }

    /// The machine with this fingerprint.
    pub fn machine(&self, fingerprint: &str) -> Result<Option<MachineKey>, StoreError> {
        self.one(&MACHINES, "WHERE key = ?1", fingerprint)
    }

    /// The run with this id.
    pub fn run(&self, run_id: &str) -> Result<Option<Run>, StoreError> {
        self.one(&RUNS, "WHERE key = ?1", run_id)
    }

    fn one<T>(&self, select: &Select<T>, rest: &str, key: &str) -> Result<Option<T>, StoreError> {
        let found = self.query("looking up a key", select, rest, &[&key])?;
        Ok(found.into_iter().next().map(|(_, item)| item))
    }

    pub(crate) fn failed(&self, doing: &'static str, source: rusqlite::Error) -> StoreError {
        let path = self.path.clone();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy) => StoreError::Busy { path, doing },
            Some(ErrorCode::ReadOnly) => StoreError::ReadOnly { path },
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => StoreError::Full {
                path,
                doing,
                source,
            },
            _ => StoreError::Sqlite {
                path,
                doing,
                source,
            },
        }
    }
}

fn invalid(what: &'static str, key: &str, reason: String) -> StoreError {
    StoreError::Invalid {
        what,
        key: key.to_owned(),
        reason,
    }
}

fn conflict(what: &'static str, key: &str, field: &str) -> StoreError {
    StoreError::Conflict {
        what,
        key: key.to_owned(),
        field: field.to_owned(),
    }
}

/// The first field in which the written forms differ. The written form decides
/// because there a NaN equals itself.
fn first_difference<T: serde::Serialize>(known: &T, offered: &T) -> Option<String> {
    let (known, offered) = (serde_json::to_value(known), serde_json::to_value(offered));
    match (known, offered) {
        (Ok(Value::Object(known)), Ok(Value::Object(offered))) => known
            .keys()
            .chain(offered.keys())
            .find(|name| known.get(*name) != offered.get(*name))
            .cloned(),
        _ => Some("form".to_owned()),
    }
}
