//! Runs that are asked to stop before their time.

use super::program::{Sandbox, place, send, wait_for};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use store::{RecordQuery, Store};
use tempfile::tempdir;

const MATMUL: &str = "op:matmul(m=96,n=96,k=96)";

fn tune(p: &Sandbox) -> Child {
    p.started(&[
        "tune",
        MATMUL,
        "--threads",
        "1",
        "--time",
        "10m",
        "--store",
        "s.sqlite",
        "--out",
        "m.tsm",
    ])
}

/// Records in the store, if there is one.
fn records(p: &Sandbox) -> usize {
    Store::open_to_read(p.file("s.sqlite"))
        .and_then(|s| s.records_for(&RecordQuery::default()))
        .map_or(0, |all| all.len())
}

/// Waits until a run has more than so many records.
fn wait_for_records(p: &Sandbox, more_than: usize) {
    wait_for("record", || (records(p) > more_than).then_some(()));
}

#[test]
fn a_run_that_is_stopped_writes_its_model_and_the_next_goes_on() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let _ = std::fs::remove_file(folder.path().join("m.tsm"));
        let known = records(&p);
        let child = tune(&p);
        wait_for_records(&p, known);
        send(&child, signal);
        let out = child.wait_with_output().unwrap();
        let (text, said) = (
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr),
        );
        assert_eq!(out.status.code(), Some(128 + signal), "{text}{said}");
        assert!(
            said.contains("stopping") && said.contains("second Ctrl-C"),
            "{said}"
        );
        for part in ["stopped after", "goes on from here", "written to m.tsm"] {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(p.ok(&["run", "m.tsm", "--random", "1"]).contains('y'));
    }
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let mut child = tune(&p);
    wait_for_records(&p, 0);
    // Both wait while it is stopped, so that none comes when the run is over.
    send(&child, libc::SIGSTOP);
    let stat = format!("/proc/{}/stat", child.id());
    wait_for("stop", || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        stat.contains(") T ").then_some(())
    });
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGCONT] {
        send(&child, signal);
    }
    let status = child.wait().unwrap();
    // Of two that wait, the system hands over either first.
    let own = [Some(libc::SIGINT), Some(libc::SIGTERM)];
    assert!(own.contains(&status.signal()), "{status}");
    assert!(!folder.path().join("m.tsm").exists());
}

#[test]
fn a_run_that_lives_is_not_gone_on_from_and_one_that_was_killed_is() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let mut first = tune(&p);
    wait_for_records(&p, 0);
    let short = |out: &str| {
        p.warnings(&[
            "tune",
            MATMUL,
            "--threads",
            "1",
            "--trials",
            "4",
            "--store",
            "s.sqlite",
            "--out",
            out,
        ])
    };
    let second = short("second.tsm");
    assert!(
        second.contains("is still going on, so this run begins anew"),
        "{second}"
    );
    first.kill().unwrap();
    first.wait().unwrap();
    let third = short("third.tsm");
    assert!(!third.contains("still going on"), "{third}");
    assert!(third.contains("this run goes on from run"), "{third}");

    let runs = Store::open_to_read(p.file("s.sqlite")).unwrap().runs();
    let mut runs = runs.unwrap();
    runs.sort_by_key(|r| r.started_unix_ms);
    let before = |n: usize| {
        let id = runs[n].extra.get("goes_on_from");
        id.and_then(|id| id.as_str())
    };
    assert_eq!(runs.len(), 3);
    assert_eq!((before(0), before(1)), (None, None));
    assert_eq!(before(2), Some(&*runs[0].run_id));
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names = names.map(|f| f.unwrap().file_name().into_string().unwrap());
    let locks: Vec<String> = names.filter(|n| n.contains("-run-")).collect();
    assert_eq!(locks, Vec::<String>::new());
}
