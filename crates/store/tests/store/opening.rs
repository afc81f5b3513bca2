//! Opening: what cannot be opened is one clear error, and old schemas read.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use store::{
    JsonLines, Outcome, Record, RecordQuery, SCHEMA_VERSION, Store, StoreError, TIMED,
    export_jsonl, import_jsonl,
};

use crate::samples::{prepare, record, timed};

fn message(path: &Path) -> (StoreError, String) {
    let error = Store::open(path).expect_err("the path should be refused");
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    (error, text)
}

#[test]
fn a_new_path_becomes_a_store_and_reopens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new store.tune");
    {
        let store = Store::open(&path).unwrap();
        prepare(&store, "r1");
        store.insert_record(&record("r1", 0, timed(&[5]))).unwrap();
    }
    let store = Store::open(&path).unwrap();
    assert_eq!(store.records_for(&RecordQuery::default()).unwrap().len(), 1);
    store.check().unwrap();
    // A reader of the file's settings finds the write-ahead log in use.
    let mode: String = Connection::open(&path)
        .unwrap()
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn paths_that_cannot_hold_a_store_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (error, text) = message(directory.path());
    assert!(matches!(error, StoreError::Unopenable { .. }), "{text}");
    let (error, text) = message(&directory.path().join("missing").join("a.tune"));
    assert!(matches!(error, StoreError::Unopenable { .. }), "{text}");
    assert!(text.contains("there is no directory"), "{text}");
    assert!(matches!(
        Store::open(""),
        Err(StoreError::Unopenable { .. })
    ));
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    let (error, text) = message(&file.join("a.tune"));
    assert!(matches!(error, StoreError::Unopenable { .. }), "{text}");
}

#[test]
fn files_of_other_programs_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let text_file = directory.path().join("model.onnx");
    let content = "not a database, and longer than the header of one ".repeat(40);
    fs::write(&text_file, &content).unwrap();
    let (error, text) = message(&text_file);
    assert!(matches!(error, StoreError::NotAStore { .. }), "{text}");
    assert_eq!(fs::read_to_string(&text_file).unwrap(), content);

    let other = directory.path().join("browser.sqlite");
    Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE visits (url TEXT)")
        .unwrap();
    let before = fs::read(&other).unwrap();
    let (error, text) = message(&other);
    assert!(matches!(error, StoreError::NotAStore { .. }), "{text}");
    assert_eq!(fs::read(&other).unwrap(), before);
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("newer.tune");
    drop(Store::open(&path).unwrap());
    Connection::open(&path)
        .unwrap()
        .pragma_update(None, "user_version", SCHEMA_VERSION + 1)
        .unwrap();
    let before = fs::read(&path).unwrap();
    let (error, text) = message(&path);
    assert!(
        matches!(error, StoreError::Newer { found, supported, .. }
            if found == SCHEMA_VERSION + 1 && supported == SCHEMA_VERSION),
        "{text}"
    );
    assert!(text.contains("newer program"), "{text}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn damage_is_reported_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.tune");
    let store = Store::open(&path).unwrap();
    prepare(&store, "r1");
    let id = store.insert_record(&record("r1", 0, timed(&[5]))).unwrap();
    let other = Connection::open(&path).unwrap();
    other
        .execute("UPDATE records SET outcome = '{\"result\": 3}'", [])
        .unwrap();
    let error = store.records_for(&RecordQuery::default()).unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt { what: "record", row, .. } if *row == id.0),
        "{error}"
    );
    assert!(error.to_string().contains("column outcome"), "{error}");
    other.pragma_update(None, "foreign_keys", false).unwrap();
    other.execute("DELETE FROM machines", []).unwrap();
    let error = store.check().unwrap_err();
    assert!(error.to_string().contains("records"), "{error}");
}

/// `v1.sql` is a dump of a store that schema version 1 wrote; `v1.jsonl` is its
/// export by the same program. Neither file ever changes.
#[test]
fn a_store_of_schema_version_1_reads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("v1.tune");
    Connection::open(&path)
        .unwrap()
        .execute_batch(include_str!("../fixtures/v1.sql"))
        .unwrap();
    let export = |store: &Store| {
        let mut bytes = Vec::new();
        export_jsonl(store, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let old = Store::open(&path).unwrap();
    old.check().unwrap();
    let imported = Store::open_in_memory().unwrap();
    let lines = include_bytes!("../fixtures/v1.jsonl").as_slice();
    import_jsonl(&imported, &JsonLines::read(lines).unwrap(), |_| Ok(())).unwrap();
    assert_eq!(export(&old), export(&imported));

    let records = old
        .records_for(&RecordQuery {
            run: Some("r1"),
            ..RecordQuery::default()
        })
        .unwrap();
    assert_eq!(records.len(), 34);
    assert_eq!(records[0].outcome.label(), "wrong");
    assert!(records.iter().all(|r| r.evaluator == TIMED));
    let (place, stored) = (records[0].place(), &records[1]);
    let best = old.best_scored(&place, TIMED, "static", |_| Ok(true));
    assert_eq!(best.unwrap().as_ref(), Some(stored), "minus infinity");
    let best = old
        .best_that(&records[0].place(), 0.0, |_| Ok(true))
        .unwrap()
        .unwrap();
    assert_eq!(
        (best.trial, best.final_, best.outcome.median_ns()),
        (40, true, Some(150))
    );
    assert_eq!(old.events("r1").unwrap().len(), 2);
    assert_eq!(
        old.run("r1").unwrap().unwrap().ended_unix_ms,
        Some(1_700_000_009_000)
    );
}

/// What version 1 wrote where a candidate could not be measured.
#[test]
fn what_version_1_skipped_without_a_filter_is_unanswered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("v1.tune");
    let v1 = Connection::open(&path).unwrap();
    v1.execute_batch(include_str!("../fixtures/v1.sql"))
        .unwrap();
    let reasons = [
        "no expected output: it died of signal 11; ",
        "no runner: no such file",
        "the time for it was over",
        "cold",
    ];
    for (trial, filter) in reasons.iter().enumerate() {
        let outcome = format!(r#"{{"result":"skipped","filter":"{filter}"}}"#);
        v1.execute(
            "UPDATE records SET label = 'skipped', outcome = ?1, median_ns = NULL \
             WHERE trial = ?2 AND final = 0",
            rusqlite::params![outcome, trial],
        )
        .unwrap();
    }
    drop(v1);
    let store = Store::open(&path).unwrap();
    let labelled = |label| {
        let filter = RecordQuery {
            label: Some(label),
            ..RecordQuery::default()
        };
        store.records_for(&filter).unwrap()
    };
    let unanswered = labelled("unanswered");
    assert_eq!(unanswered.len(), 3);
    for (record, reason) in unanswered.iter().zip(reasons) {
        let reason = reason.to_owned();
        assert_eq!(record.outcome, Outcome::Unanswered { reason });
        assert!(record.outcome_extra.is_empty(), "{record:?}");
        store.insert_record(record).unwrap();
    }
    let dropped = labelled("skipped");
    assert!(!dropped.is_empty());
    let by_filter = |r: &Record| matches!(r.outcome, Outcome::Skipped { .. });
    assert!(dropped.iter().all(by_filter));
}

/// What `f` gives where another user's rights hold: root may write everything.
fn as_another_user<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let run = || {
        // SAFETY: it changes this thread alone, which ends with `f`.
        unsafe { libc::setfsuid(65_534) };
        f()
    };
    std::thread::scope(|s| s.spawn(run).join().unwrap())
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A store of one record in a folder of its own, and its file.
fn one_record(directory: &Path) -> (Store, std::path::PathBuf) {
    let path = directory.join("a?b 100%.tune");
    let store = Store::open(&path).unwrap();
    prepare(&store, "r1");
    store.insert_record(&record("r1", 0, timed(&[5]))).unwrap();
    (store, path)
}

fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn what_cannot_be_written_is_read() {
    for (directory_mode, file_mode) in [(0o555, 0o444), (0o555, 0o666), (0o777, 0o444)] {
        let directory = tempfile::tempdir().unwrap();
        let (store, path) = one_record(directory.path());
        drop(store);
        allow(&path, file_mode);
        allow(directory.path(), directory_mode);
        let before = names(directory.path());
        as_another_user(|| {
            let (error, _) = message(&path);
            assert!(
                matches!(
                    error,
                    StoreError::ReadOnly { .. } | StoreError::Unopenable { .. }
                ),
                "{error}"
            );
            let store = Store::open_to_read(&path).unwrap();
            assert_eq!(store.records_for(&RecordQuery::default()).unwrap().len(), 1);
            store.check().unwrap();
            let mut lines = Vec::new();
            export_jsonl(&store, &mut lines).unwrap();
            assert!(!lines.is_empty());
            let error = store.insert_record(&record("r1", 1, timed(&[5])));
            assert!(
                matches!(error, Err(StoreError::ReadOnly { .. })),
                "{error:?}"
            );
        });
        assert_eq!(names(directory.path()), before);
        allow(directory.path(), 0o755);
        allow(&path, 0o644);
        let store = Store::open(&path).unwrap();
        store.insert_record(&record("r1", 1, timed(&[5]))).unwrap();
    }
}

/// A copy of a store that a writer has open, as a backup or a crash leaves it.
fn copied(parts: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, path) = one_record(from.path());
    let named = |directory: &Path, part: &str| {
        let name = path.file_name().unwrap().to_str().unwrap();
        directory.join(format!("{name}{part}"))
    };
    for part in [&[""], parts].concat() {
        fs::copy(named(from.path(), part), named(to.path(), part)).unwrap();
        allow(&named(to.path(), part), 0o444);
    }
    drop(store);
    allow(to.path(), 0o555);
    let copy = named(to.path(), "");
    (to, copy)
}

#[test]
fn a_log_beside_the_store_is_read_or_missed() {
    let (directory, path) = copied(&["-wal", "-shm"]);
    let before = names(directory.path());
    as_another_user(|| {
        let store = Store::open_to_read(&path).unwrap();
        assert_eq!(store.records_for(&RecordQuery::default()).unwrap().len(), 1);
    });
    assert_eq!(names(directory.path()), before);
    allow(directory.path(), 0o755);
    let (directory, path) = copied(&["-wal"]);
    as_another_user(|| {
        let error = Store::open_to_read(&path).unwrap_err();
        assert!(matches!(error, StoreError::Unmerged { .. }), "{error}");
        assert!(error.to_string().contains("-wal"), "{error}");
    });
    allow(directory.path(), 0o755);
}

#[test]
fn a_store_out_of_reach_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (store, path) = one_record(directory.path());
    drop(store);
    allow(directory.path(), 0o000);
    as_another_user(|| {
        let error = Store::open_to_read(&path).unwrap_err();
        assert!(matches!(error, StoreError::Unopenable { .. }), "{error}");
        assert!(error.to_string().contains("Permission denied"), "{error}");
    });
    allow(directory.path(), 0o755);
}

#[test]
fn reading_creates_nothing_and_writes_where_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.tune");
    let error = Store::open_to_read(&path).unwrap_err();
    assert!(matches!(error, StoreError::Unopenable { .. }), "{error}");
    assert!(!path.exists());
    let (store, path) = one_record(directory.path());
    drop(store);
    let store = Store::open_to_read(&path).unwrap();
    store.insert_record(&record("r1", 1, timed(&[5]))).unwrap();
    // Of no version yet.
    let empty = directory.path().join("empty.tune");
    fs::write(&empty, "").unwrap();
    allow(&empty, 0o444);
    allow(directory.path(), 0o555);
    as_another_user(|| {
        let error = Store::open_to_read(&empty).unwrap_err();
        assert!(
            matches!(error, StoreError::Older { found: 0, .. }),
            "{error}"
        );
    });
    allow(directory.path(), 0o755);
    let pipe = directory.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    for open in [Store::open, Store::open_to_read] {
        let error = open(pipe.clone()).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
}
