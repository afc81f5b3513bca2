//! Several writers at once, and writers killed in the middle.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use store::{RecordQuery, Store};

use crate::samples::{event, prepare, record, tell, timed};

/// A writer of so many records to a run; see `child`.
fn spawn(path: &Path, run: &str, count: u64) -> Child {
    Command::new(env!("CARGO_BIN_EXE_store-test-writer"))
        .arg(path)
        .args([run, &count.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The number of a whole `stored N` line.
fn stored(line: &str) -> Option<u64> {
    let line = line.strip_suffix('\n')?;
    line.strip_prefix("stored ")?.parse().ok()
}

fn assert_logs_match_records(store: &Store, run: &str) -> u64 {
    let records = store
        .records_for(&RecordQuery {
            run: Some(run),
            ..RecordQuery::default()
        })
        .unwrap();
    let events = store.events(run).unwrap();
    assert_eq!(records.len(), events.len());
    for (number, (record, event)) in records.iter().zip(&events).enumerate() {
        assert_eq!((record.trial, event.seq), (number as u64, number as u64));
        assert_eq!(event.kind, tell(record).into());
    }
    records.len() as u64
}

#[test]
fn a_store_that_another_process_is_just_making_is_no_foreign_file() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..60 {
        let path = directory.path().join(format!("{round}.tune"));
        std::thread::scope(|scope| {
            let openers: Vec<_> = (0..6).map(|_| scope.spawn(|| Store::open(&path))).collect();
            for opener in openers {
                opener.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn processes_that_create_and_write_one_store_together_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared.tune");
    let runs = ["a", "b", "c"];
    let children: Vec<Child> = runs.iter().map(|run| spawn(&path, run, 40)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let store = Store::open(&path).unwrap();
    store.check().unwrap();
    for run in runs {
        assert_eq!(assert_logs_match_records(&store, run), 40);
    }
    assert_eq!(store.tasks().unwrap().len(), 1);
}

#[test]
fn threads_with_a_store_each_append_to_one_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("threads.tune");
    prepare(&Store::open(&path).unwrap(), "r1");
    thread::scope(|scope| {
        for part in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let store = Store::open(path).unwrap();
                for trial in (part * 25)..(part + 1) * 25 {
                    let record = record("r1", trial, timed(&[trial]));
                    store.insert_record(&record).unwrap();
                    store.insert_event(&event("r1", tell(&record))).unwrap();
                }
            });
        }
    });
    let store = Store::open(&path).unwrap();
    let trials: BTreeSet<u64> = store
        .records_for(&RecordQuery::default())
        .unwrap()
        .iter()
        .map(|r| r.trial)
        .collect();
    assert_eq!(trials, (0..100).collect());
    let events = store.events("r1").unwrap();
    assert!(events.iter().map(|e| e.seq).eq(0..100));
}

#[test]
fn a_reader_follows_what_another_process_appends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("followed.tune");
    let reader = Store::open(&path).unwrap();
    let (mut next, mut followed) = (0, Vec::new());
    for part in [3, 1, 4] {
        assert!(spawn(&path, "r1", part).wait().unwrap().success());
        let new = reader.events_since("r1", next).unwrap();
        assert_eq!(new.len() as u64, part);
        next = new.last().expect("some are new").seq + 1;
        followed.extend(new);
    }
    assert_eq!(followed, reader.events("r1").unwrap());
    assert!(followed.iter().map(|e| e.seq).eq(0..8));
    for seq in [8, u64::MAX] {
        assert!(reader.events_since("r1", seq).unwrap().is_empty());
    }
    assert_eq!(reader.events_since("r1", 6).unwrap(), followed[6..]);
    assert!(reader.events_since("r2", 0).unwrap().is_empty());
}

#[test]
fn what_was_reported_stored_survives_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("killed.tune");
    let mut reported = 0;
    for round in 0..12_u64 {
        let mut child = spawn(&path, "r1", u64::MAX);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut last = None;
        let mut read = |out: &mut BufReader<_>| {
            let mut line = String::new();
            let length = out.read_line(&mut line).unwrap();
            if let Some(trial) = stored(&line) {
                last = Some(trial);
            }
            length > 0
        };
        for _ in 0..(5 + round * 3) {
            assert!(read(&mut out), "the child ended by itself");
        }
        // The moment of the kill within a commit is up to the scheduler.
        thread::sleep(Duration::from_micros(round * 397));
        child.kill().unwrap();
        child.wait().unwrap();
        while read(&mut out) {}
        let last = last.expect("several lines were read");
        assert!(
            last >= reported,
            "the child did not continue where the last one stopped"
        );
        reported = last + 1;

        let store = Store::open(&path).unwrap();
        store.check().unwrap();
        let records = assert_logs_match_records(&store, "r1");
        assert!(
            (reported..=reported + 1).contains(&records),
            "{records} of {reported}"
        );
        reported = records;
    }
}
