//! What can go wrong with a store, each said with what, where and what to do.

use crate::jsonl::BadLine;

/// An error of the user's file, disk or data. On error nothing has been stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "cannot open the store {path}: {reason}; \
         check that its directory exists, is writable and has space left (ulimit -f, too), \
         or name another file"
    )]
    Unopenable { path: String, reason: String },
    #[error(
        "the store {path} is read-only; make it (and its directory) writable, or name another file"
    )]
    ReadOnly { path: String },
    #[error(
        "{path} is not a tuning store: {reason}; name another file, the store is created there"
    )]
    NotAStore { path: String, reason: String },
    #[error(
        "the store {path} has schema version {found}, this program reads up to {supported}; \
         use a newer program, or let the newer one export JSON lines and import those here"
    )]
    Newer {
        path: String,
        found: i64,
        supported: i64,
    },
    #[error(
        "the store {path} has schema version {found} and cannot be brought up to {supported}, as it \
         cannot be written; make it writable once, or read a copy of it"
    )]
    Older {
        path: String,
        found: i64,
        supported: i64,
    },
    #[error(
        "the newest content of the store {path} is in {path}-wal, which cannot be read where nothing \
         can be written; make its directory writable once, or copy both files and read the copy"
    )]
    Unmerged { path: String },
    #[error(
        "the store {path} stayed locked by another process while {doing}; try again when that one is done"
    )]
    Busy { path: String, doing: &'static str },
    #[error("the {what} `{key}` is not in the store; put it before what refers to it")]
    UnknownKey { what: &'static str, key: String },
    #[error(
        "the {what} `{key}` is already in the store with different content ({field}); \
         give the new one its own key"
    )]
    Conflict {
        what: &'static str,
        key: String,
        field: String,
    },
    #[error("the {what} `{key}` cannot be stored: {reason}")]
    Invalid {
        what: &'static str,
        key: String,
        reason: String,
    },
    #[error(
        "the store {path} holds a {what} (row {row}) that does not decode: {reason}; \
         export what reads, and start a new store"
    )]
    Corrupt {
        path: String,
        what: &'static str,
        row: i64,
        reason: String,
    },
    #[error(
        "the store {path} cannot grow while {doing}: {source}; \
         check the free disk space, and the limit of file sizes (ulimit -f)"
    )]
    Full {
        path: String,
        doing: &'static str,
        source: rusqlite::Error,
    },
    #[error("the store {path} failed while {doing}: {source}")]
    Sqlite {
        path: String,
        doing: &'static str,
        source: rusqlite::Error,
    },
    #[error(
        "{} lines cannot be imported, the first is line {}: {}; nothing was imported",
        lines.len(), lines[0].line, lines[0].reason
    )]
    BadLines {
        /// At least one.
        lines: Vec<BadLine>,
        /// Whether it is the last line alone, as of a file that was cut off.
        torn: bool,
    },
    #[error("the table {path}{place}: {reason}; {advice}")]
    BadTable {
        path: String,
        /// `, results[3]`; empty if that is the file as a whole.
        place: String,
        reason: String,
        advice: &'static str,
    },
    #[error("{doing} failed: {source}; check the file and the free disk space")]
    Io {
        doing: &'static str,
        source: std::io::Error,
    },
}
