//! The SQLite schema and its migrations.
//!
//! Owns every statement that shapes the database. Promises that a store of any
//! older schema version is brought up to date in one transaction, and that one
//! of a newer version is left untouched. A released migration never changes:
//! a new shape is a new entry at the end of [`MIGRATIONS`].

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// Marks a SQLite file as a tuning store (`TUNE` in ASCII).
pub const APPLICATION_ID: i32 = 0x5455_4e45;

/// The schema version this program writes.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// Entry `i` takes a database from version `i` to `i + 1`.
const MIGRATIONS: &[&str] = &[VERSION_1, VERSION_2];

/// Text columns named `body`, `extra`, `options`, ... hold JSON. `seed` holds
/// the bits of an unsigned number. `trace_hash` is FNV-1a of the trace: the
/// index stays small while traces may be long. `median_ns`, `label`, `ran` and
/// `settled` repeat what `outcome` says, for the indices.
const VERSION_1: &str = "
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    op TEXT NOT NULL,
    args TEXT NOT NULL,
    flops REAL NOT NULL,
    bytes INTEGER NOT NULL,
    extra TEXT NOT NULL
) STRICT;
CREATE TABLE targets (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE machines (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    description TEXT NOT NULL,
    extra TEXT NOT NULL
) STRICT;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    model TEXT NOT NULL,
    options TEXT NOT NULL,
    strategy TEXT NOT NULL,
    seed INTEGER NOT NULL,
    started_unix_ms INTEGER NOT NULL,
    ended_unix_ms INTEGER,
    summary TEXT NOT NULL,
    extra TEXT NOT NULL
) STRICT;
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    task_id INTEGER NOT NULL REFERENCES tasks (id),
    trial INTEGER NOT NULL,
    final INTEGER NOT NULL,
    target_id INTEGER NOT NULL REFERENCES targets (id),
    machine_id INTEGER NOT NULL REFERENCES machines (id),
    strategy TEXT NOT NULL,
    seed INTEGER NOT NULL,
    toolchain TEXT NOT NULL,
    algorithm TEXT NOT NULL,
    decisions TEXT NOT NULL,
    trace TEXT NOT NULL,
    trace_hash INTEGER NOT NULL,
    code_hash TEXT,
    code_size INTEGER,
    label TEXT NOT NULL,
    ran INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    median_ns INTEGER,
    outcome TEXT NOT NULL,
    costs TEXT NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    extra TEXT NOT NULL,
    UNIQUE (run_id, task_id, trial, final)
) STRICT;
CREATE INDEX records_by_place ON records
    (task_id, target_id, machine_id, final DESC, median_ns);
CREATE INDEX records_by_code ON records (task_id, target_id, code_hash, machine_id)
    WHERE code_hash IS NOT NULL;
CREATE INDEX records_by_trace ON records (task_id, target_id, trace_hash, machine_id);
CREATE INDEX records_by_label ON records (task_id, label);
CREATE TABLE events (
    run_id INTEGER NOT NULL REFERENCES runs (id),
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    task_id INTEGER REFERENCES tasks (id),
    payload TEXT NOT NULL,
    extra TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;
";

/// A record says its evaluator, which is part of its identity, and repeats its score.
/// What version 1 called `skipped` was never a filter's doing: see
/// [`crate::Outcome::Unanswered`]. SQLite changes no constraint of a table, so the table is
/// made anew.
const VERSION_2: &str = "
CREATE TABLE records_2 (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    task_id INTEGER NOT NULL REFERENCES tasks (id),
    trial INTEGER NOT NULL,
    final INTEGER NOT NULL,
    evaluator TEXT NOT NULL,
    target_id INTEGER NOT NULL REFERENCES targets (id),
    machine_id INTEGER NOT NULL REFERENCES machines (id),
    strategy TEXT NOT NULL,
    seed INTEGER NOT NULL,
    toolchain TEXT NOT NULL,
    algorithm TEXT NOT NULL,
    decisions TEXT NOT NULL,
    trace TEXT NOT NULL,
    trace_hash INTEGER NOT NULL,
    code_hash TEXT,
    code_size INTEGER,
    label TEXT NOT NULL,
    ran INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    median_ns INTEGER,
    score REAL,
    outcome TEXT NOT NULL,
    costs TEXT NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    extra TEXT NOT NULL,
    UNIQUE (run_id, task_id, trial, final, evaluator)
) STRICT;
INSERT INTO records_2
SELECT id, run_id, task_id, trial, final, 'timed', target_id, machine_id, strategy, seed,
    toolchain, algorithm, decisions, trace, trace_hash, code_hash, code_size,
    CASE WHEN label = 'skipped' AND (
        json_extract(outcome, '$.filter') GLOB 'no expected output: *'
        OR json_extract(outcome, '$.filter') GLOB 'no builder: *'
        OR json_extract(outcome, '$.filter') GLOB 'no runner: *'
        OR json_extract(outcome, '$.filter') = 'the time for it was over'
    ) THEN 'unanswered' ELSE label END,
    ran, settled, median_ns,
    CASE WHEN label = 'scored' THEN
        CASE json_extract(outcome, '$.value')
            WHEN 'inf' THEN 9e999 WHEN '-inf' THEN -9e999 WHEN 'NaN' THEN NULL
            ELSE CAST(json_extract(outcome, '$.value') AS REAL)
        END
    END,
    outcome, costs, created_unix_ms, extra
FROM records ORDER BY id;
DROP TABLE records;
ALTER TABLE records_2 RENAME TO records;
CREATE INDEX records_by_place ON records
    (task_id, target_id, machine_id, final DESC, median_ns);
CREATE INDEX records_by_code ON records (task_id, target_id, code_hash, machine_id)
    WHERE code_hash IS NOT NULL;
CREATE INDEX records_by_trace ON records (task_id, target_id, trace_hash, machine_id);
CREATE INDEX records_by_label ON records (task_id, label);
";

/// Why a database cannot be used.
#[derive(Debug)]
pub(crate) enum SchemaProblem {
    Newer { found: i64, supported: i64 },
    Older { found: i64 },
    Foreign { reason: String },
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for SchemaProblem {
    fn from(error: rusqlite::Error) -> Self {
        SchemaProblem::Sqlite(error)
    }
}

/// Refuses a database that is not of the version that this program writes.
pub(crate) fn current(connection: &Connection) -> Result<(), SchemaProblem> {
    let snapshot = connection.unchecked_transaction()?;
    let found = version_in(&snapshot, SCHEMA_VERSION)?;
    match found == SCHEMA_VERSION {
        true => Ok(()),
        false => Err(SchemaProblem::Older { found }),
    }
}

/// Brings the database up to date.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), SchemaProblem> {
    apply(connection, MIGRATIONS)
}

fn apply(connection: &mut Connection, migrations: &[&str]) -> Result<(), SchemaProblem> {
    let supported = migrations.len() as i64;
    let snapshot = connection.transaction()?;
    let found = version_in(&snapshot, supported)?;
    snapshot.commit()?;
    if found == supported {
        return Ok(());
    }
    // Another process may be migrating too: whoever gets the lock second
    // finds the work done, hence the second check inside the transaction.
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    let found = version_in(&transaction, supported)?;
    for migration in &migrations[found as usize..] {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", supported)?;
    transaction.commit()?;
    Ok(())
}

/// The schema version found, between 0 (an empty file) and `supported`. All that is
/// read must be of one moment, since another process may be migrating the file: the
/// connection must be inside a transaction.
fn version_in(connection: &Connection, supported: i64) -> Result<i64, SchemaProblem> {
    let number = |name: &str| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, name, |row| row.get(0))
    };
    let (application, found) = (number("application_id")?, number("user_version")?);
    if application != i64::from(APPLICATION_ID) {
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if application != 0 || found != 0 || tables != 0 {
            let reason = "it is a SQLite database of another program".to_owned();
            return Err(SchemaProblem::Foreign { reason });
        }
    }
    if found > supported {
        return Err(SchemaProblem::Newer { found, supported });
    }
    if found < 0 {
        return Err(SchemaProblem::Foreign {
            reason: format!("its schema version is {found}"),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(connection: &Connection) -> i64 {
        connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn later_migrations_keep_what_is_stored() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        connection
            .execute("INSERT INTO machines VALUES (1, 'm', 'old', '{}')", [])
            .unwrap();
        let mut longer = MIGRATIONS.to_vec();
        longer.push("ALTER TABLE machines ADD COLUMN cores INTEGER NOT NULL DEFAULT 3;");
        apply(&mut connection, &longer).unwrap();
        assert_eq!(version(&connection), SCHEMA_VERSION + 1);
        let row: (String, i64) = connection
            .query_row("SELECT description, cores FROM machines", [], |r| {
                Ok((r.get(0)?, r.get(1)?))
            })
            .unwrap();
        assert_eq!(row, ("old".to_owned(), 3));
        assert!(matches!(
            migrate(&mut connection),
            Err(SchemaProblem::Newer { .. })
        ));
    }

    #[test]
    fn a_failing_migration_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        let mut broken = MIGRATIONS.to_vec();
        broken.push("CREATE TABLE extra_facts (id INTEGER); INSERT INTO no_such_table VALUES (1);");
        assert!(matches!(
            apply(&mut connection, &broken),
            Err(SchemaProblem::Sqlite(_))
        ));
        assert_eq!(version(&connection), SCHEMA_VERSION);
        let left: i64 = connection
            .query_row(
                "SELECT count(*) FROM sqlite_schema WHERE name = 'extra_facts'",
                [],
                |r| r.get(0),
            )
            .unwrap();
        assert_eq!(left, 0);
    }
}
