//! Opening a store: to write it, or only to read it.
//!
//! Owns the durability settings of a connection. Promises that a file of another
//! program is left as it is, and that a store which cannot be written can be read.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::StoreError;
use crate::schema::{self, SchemaProblem};
use crate::sqlite::Store;

/// How long a write waits for another process: far longer than any single
/// commit takes, so that only a stuck writer is reported.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

impl Store {
    /// Opens the store at `path`, creating the file (not its directory) when it
    /// is missing and bringing an older schema up to date.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        if let Some(reason) = unopenable(path) {
            return Err(StoreError::Unopenable {
                path: shown,
                reason,
            });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(local(path), flags).map_err(|e| opening(&shown, e))?;
        if connection
            .is_readonly(rusqlite::MAIN_DB)
            .map_err(|e| opening(&shown, e))?
        {
            return Err(StoreError::ReadOnly { path: shown });
        }
        Store::prepare(connection, shown)
    }

    /// Opens the store at `path`, which must exist, to read it: also where it or its
    /// directory cannot be written. Then every write is refused, no file is made beside
    /// it, and what another process begins to write meanwhile may be an error here.
    pub fn open_to_read(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let missing = match path.try_exists() {
            Ok(true) => None,
            Ok(false) => Some("there is no such file".to_owned()),
            Err(e) => Some(e.to_string()),
        };
        if let Some(reason) = missing {
            return Err(StoreError::Unopenable {
                path: path.display().to_string(),
                reason,
            });
        }
        match Store::open(path) {
            Err(e) if cannot_write(&e) => Store::read_only(path),
            done => done,
        }
    }

    fn read_only(path: &Path) -> Result<Self, StoreError> {
        let shown = path.display().to_string();
        if let Some(reason) = unopenable(path) {
            return Err(StoreError::Unopenable {
                path: shown,
                reason,
            });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // Readers of a write-ahead log share it and its index. SQLite makes either one
        // that is missing, and a reader who cannot write the store never removes it
        // again: the files, which are the reader's, would keep its owner from writing.
        let bytes_of = |part: &str| {
            let mut beside = path.as_os_str().to_owned();
            beside.push(part);
            Path::new(&beside).metadata().map(|m| m.len()).ok()
        };
        let connection = match (bytes_of("-wal"), bytes_of("-shm")) {
            (Some(1..), Some(_)) => Connection::open_with_flags(local(path), flags),
            (Some(1..), None) => return Err(StoreError::Unmerged { path: shown }),
            (Some(0) | None, _) => Connection::open_with_flags(
                unchanging(&local(path)),
                flags | OpenFlags::SQLITE_OPEN_URI,
            ),
        };
        Store::current(connection.map_err(|e| opening(&shown, e))?, shown)
    }

    /// A store as it is.
    fn current(connection: Connection, path: String) -> Result<Self, StoreError> {
        let fail = |e| opening(&path, e);
        connection.busy_timeout(BUSY_TIMEOUT).map_err(fail)?;
        connection.set_prepared_statement_cache_capacity(64);
        schema::current(&connection).map_err(|problem| refused(&path, problem))?;
        Ok(Store { connection, path })
    }

    /// A store that is gone when it is dropped.
    pub fn open_in_memory() -> Result<Self, StoreError> {
        let path = "(in memory)".to_owned();
        let connection = Connection::open_in_memory().map_err(|e| opening(&path, e))?;
        Store::prepare(connection, path)
    }

    fn prepare(mut connection: Connection, path: String) -> Result<Self, StoreError> {
        let fail = |e| opening(&path, e);
        connection.busy_timeout(BUSY_TIMEOUT).map_err(fail)?;
        connection.set_prepared_statement_cache_capacity(64);
        connection
            .pragma_update(None, "foreign_keys", true)
            .map_err(fail)?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(fail)?;
        // Before the journal mode, which would alter another program's file.
        schema::migrate(&mut connection).map_err(|problem| refused(&path, problem))?;
        use_write_ahead_log(&connection).map_err(fail)?;
        Ok(Store { connection, path })
    }
}

/// Whether a store that could not be opened may still be read.
fn cannot_write(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::ReadOnly { .. } | StoreError::Unopenable { .. } | StoreError::Full { .. }
    )
}

/// A path as SQLite takes it. Two names mean something else to it: the empty one,
/// which [`unopenable`] refuses, and `:memory:`.
fn local(path: &Path) -> PathBuf {
    match path.is_relative() {
        true => Path::new(".").join(path),
        false => path.to_owned(),
    }
}

/// The name by which SQLite reads a file without locks and without files beside it.
fn unchanging(path: &Path) -> String {
    let mut name = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                name.push(char::from(*byte));
            }
            other => name += &format!("%{other:02x}"),
        }
    }
    name + "?immutable=1"
}

/// Why a database is no store for this program.
fn refused(path: &str, problem: SchemaProblem) -> StoreError {
    let path = path.to_owned();
    match problem {
        SchemaProblem::Newer { found, supported } => StoreError::Newer {
            path,
            found,
            supported,
        },
        SchemaProblem::Older { found } => StoreError::Older {
            path,
            found,
            supported: schema::SCHEMA_VERSION,
        },
        SchemaProblem::Foreign { reason } => StoreError::NotAStore { path, reason },
        SchemaProblem::Sqlite(source) => opening(&path, source),
    }
}

/// Why SQLite would refuse the path with no word on the reason.
fn unopenable(path: &Path) -> Option<String> {
    if path.as_os_str().is_empty() {
        return Some("the path is empty".to_owned());
    }
    if path.is_dir() {
        return Some("it is a directory".to_owned());
    }
    if path.exists() && !path.is_file() {
        return Some("it is no regular file".to_owned());
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    (!directory.is_dir()).then(|| format!("there is no directory {}", directory.display()))
}

fn opening(path: &str, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore {
            path,
            reason: "it is not a SQLite database".to_owned(),
        },
        Some(ErrorCode::DatabaseBusy) => StoreError::Busy {
            path,
            doing: "opening it",
        },
        Some(ErrorCode::ReadOnly) => StoreError::ReadOnly { path },
        Some(ErrorCode::DiskFull) => StoreError::Full {
            path,
            doing: "opening it",
            source,
        },
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::SystemIoFailure) => {
            StoreError::Unopenable {
                path,
                reason: source.to_string(),
            }
        }
        _ => StoreError::Sqlite {
            path,
            doing: "opening it",
            source,
        },
    }
}

/// Switches to the write-ahead log. The switch needs the file for itself and
/// reports busy without waiting when another process is opening it too.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let switched = connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()));
        match switched {
            Err(e)
                if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Level 2 is FULL: in WAL mode every commit syncs the log.
    #[test]
    fn commits_are_synced_and_references_checked() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(directory.path().join("a.tune")).unwrap();
        let level = |name: &str| -> i64 {
            store
                .connection
                .pragma_query_value(None, name, |row| row.get(0))
                .unwrap()
        };
        assert_eq!((level("synchronous"), level("foreign_keys")), (2, 1));
        assert_eq!(level("busy_timeout"), BUSY_TIMEOUT.as_millis() as i64);
    }
}
