//! Boards over ssh, with programs in the place of `ssh` and `scp` that run everything here.

use super::machines::exported;
use super::program::{OP, Sandbox, place, send, wait_for};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use store::{RecordQuery, Store};
use tempfile::tempdir;
use testkit::host::undisturbed;

/// Drops options, and gives the rest to a shell. What it is asked for is kept.
const SSH: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift 2; done
host=$1
shift
echo "ssh $host $*" >>"$LOG"
[ "$host" = nowhere ] && { echo "no route to host" >&2; exit 255; }
exec sh -c "$*"
"#;

const SCP: &str = r#"#!/bin/sh
while :; do
    case $1 in
    -o) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
for last; do :; done
folder=${last#*:}
echo "scp $# $last" >>"$LOG"
while [ $# -gt 1 ]; do cp -p "$1" "$folder" || exit 1; shift; done
"#;

/// A place whose programs find these as `ssh` and `scp`.
fn with_boards(mut p: Sandbox) -> Sandbox {
    for (name, text) in [("ssh", SSH), ("scp", SCP)] {
        let path = p.folder.join("bin").join(name);
        fs::create_dir_all(p.folder.join("bin")).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", p.file("bin"), std::env::var("PATH").unwrap());
    p.variables = vec![("PATH", path), ("LOG", p.file("log"))];
    p
}

fn log(p: &Sandbox) -> String {
    fs::read_to_string(p.folder.join("log")).unwrap()
}

/// The folder that the last connection made is gone.
fn is_removed(log: &str) -> bool {
    let last = log.lines().last().unwrap();
    let folder = last.split("rm -rf ").nth(1).expect("it removes its folder");
    folder.contains("/tunesmith.") && !std::path::Path::new(folder).exists()
}

#[test]
fn samples_are_timed_on_a_board() {
    let folder = tempdir().unwrap();
    let p = with_boards(place(&folder));
    let ask = [
        "simulate",
        "collect",
        OP,
        "--points",
        "4",
        "--cooldown",
        "0s",
        "--out",
        "s.jsonl",
    ];
    let on = ["--board", "user@board", "--ssh-option", "Port=2222"];
    p.json(&[&ask[..], &on].concat());
    let samples = fs::read_to_string(folder.path().join("s.jsonl")).unwrap();
    assert!(samples.lines().count() >= 3, "{samples}");
    for line in samples.lines() {
        let sample: Value = serde_json::from_str(line).unwrap();
        assert!(sample["time_ns"].as_f64().unwrap() > 0.0, "{line}");
        assert!(sample["simulation_ns"].as_f64().unwrap() > 0.0, "{line}");
    }
    let log = log(&p);
    assert!(
        log.contains("ssh user@board ") && log.contains("scp "),
        "{log}"
    );
    assert!(is_removed(&log), "{log}");
    // The same candidates, sampled.
    let again = p.json(&[
        "simulate",
        "collect",
        OP,
        "--points",
        "2",
        "--no-time",
        "--sample-iterations",
        "4",
        "--out",
        "t.jsonl",
    ]);
    assert_eq!(again["tasks"][0]["walked"], 1.0, "{again}");
}

#[test]
fn a_stop_removes_the_folder_and_keeps_what_the_board_measured() {
    let folder = tempdir().unwrap();
    let p = with_boards(place(&folder));
    let ask = [
        "simulate", "collect", OP, "--points", "8", "--out", "s.jsonl",
    ];
    // The first executable is timed, and then the board cools down for longer than a test may take.
    let on = ["--board", "b", "--cooldown", "1000s"];
    let child = p.started(&[&ask[..], &on].concat());
    wait_for("time", || {
        let log = fs::read_to_string(p.folder.join("log")).ok()?;
        let copied = log.lines().find(|l| l.starts_with("scp "))?;
        let (_, made) = copied.split_once(':')?;
        let times = fs::read_to_string(std::path::Path::new(made).join("times.txt"));
        times.ok().filter(|t| t.ends_with('\n'))
    });
    send(&child, libc::SIGINT);
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(128 + libc::SIGINT), "{said}");
    assert!(said.contains("what was measured is kept"), "{said}");
    assert!(is_removed(&log(&p)), "{said}");
    let samples = fs::read_to_string(p.folder.join("s.jsonl")).unwrap();
    let sample: Value = serde_json::from_str(samples.trim()).unwrap();
    assert!(sample["time_ns"].as_f64().unwrap() > 0.0, "{samples}");
}

#[test]
fn what_a_board_cannot_do_is_said() {
    let folder = tempdir().unwrap();
    let p = with_boards(place(&folder));
    let ask = [
        "simulate",
        "collect",
        OP,
        "--points",
        "2",
        "--cooldown",
        "0s",
        "--out",
        "s.jsonl",
    ];
    let said = |p: &Sandbox, more: &[&str]| p.error(&[&ask[..], more].concat());
    let lost = said(&p, &["--board", "nowhere"]);
    assert!(lost.contains("cannot connect: no route to host"), "{lost}");
    let limit = said(&p, &["--board", "board", "--limit", "1s"]);
    assert!(limit.contains("--limit has no effect") && limit.contains("--board-limit"));
    let option = said(&p, &["--board=-oProxyCommand=x"]);
    assert!(option.contains("is no host"), "{option}");
    let foreign = match cfg!(target_arch = "aarch64") {
        true => "x86-sse2",
        false => "riscv64-gc",
    };
    let wrong = said(&p, &["--board", "board", "--target", foreign]);
    assert!(wrong.contains(std::env::consts::ARCH), "{wrong}");
    assert!(is_removed(&log(&p)));
    let mut none = place(&folder);
    none.variables = vec![("PATH", p.file("nothing"))];
    let missing = said(&none, &["--board", "board"]);
    assert!(missing.contains("install OpenSSH's client"), "{missing}");
}

#[test]
fn a_folder_of_executables_is_timed_on_a_board() {
    let folder = tempdir().unwrap();
    let p = with_boards(place(&folder));
    let to = p.folder.join("exported");
    fs::create_dir_all(&to).unwrap();
    let mut candidates = String::new();
    for (name, text) in [
        ("task0-1", "echo 30; echo 10; echo 20"),
        ("task0-2", "echo 7"),
        ("task0-3", "sleep 20"),
        ("task0-4", "exit 132"),
    ] {
        let path = to.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let line = serde_json::json!({
            "executable": name, "task": "t", "algorithm": "a", "score": 1.0, "trace": "",
        });
        candidates += &format!("{line}\n");
    }
    fs::write(to.join("candidates.jsonl"), candidates).unwrap();
    let ask = [
        "simulate",
        "import",
        "exported",
        "--board",
        "b",
        "--cooldown",
        "0s",
        "--board-limit",
        "1s",
    ];
    // Each of three starts may take a second.
    let expected = serde_json::json!([["task0-2", 3, 7], ["task0-1", 9, 20]]);
    let found = undisturbed(
        || p.json(&ask),
        |found| {
            let timed = found["tasks"]["task0"].as_array().unwrap().iter();
            let timed = timed.map(|t| ["executable", "calls", "median_ns"].map(|k| &t[k]));
            serde_json::json!(timed.collect::<Vec<_>>()) == expected
        },
    );
    assert!(is_removed(&log(&p)));
    // The times are there without the board.
    assert_eq!(p.json(&["simulate", "import", "exported"]), found);
}

#[test]
fn compile_takes_what_a_board_found() {
    let folder = tempdir().unwrap();
    let p = with_boards(place(&folder));
    let target = match cfg!(target_arch = "aarch64") {
        true => "x86-avx2",
        false => "riscv64-rvv",
    };
    let of = [OP, "--target", target, "--threads", "1"];
    let read = ["--evaluate", "static", "--trials", "10"];
    let to = ["--export-top", "4", "--export-to", "exported"];
    let out = ["--out", "m.tsm"];
    let report = p.json(&[&["tune"][..], &of, &read, &to, &out].concat());
    let listed = report["tasks"][0]["best"].as_array().unwrap();
    // The default is timed as well.
    let best = exported(&p, "exported");
    assert!(best.len() >= listed.len() && listed.len() >= 3, "{report}");
    // Stand-ins that run here: the second one is the fastest, and the last one fails.
    for rank in 1..=best.len() {
        let text = match rank {
            2 => "echo 500; echo 510".to_string(),
            r if r == best.len() => "exit 132".into(),
            r => format!("echo {}", 600 + r),
        };
        let path = p.folder.join("exported").join(format!("task0-{rank}"));
        fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    }
    let import = ["simulate", "import", "exported"];
    let board = ["--board", "user@b", "--cooldown", "0s"];
    let found = p.json(&[&import[..], &board].concat());
    let stored = &found["stored"];
    assert_eq!(stored["records"], best.len() - 1, "{found}");
    assert_eq!(stored["machine"], "user@b");
    let schedule = |with: &[&str]| {
        let made = p.json(&[&["compile"][..], &of, &out, with].concat());
        let variants = runtime::Variants::load(&p.folder.join("m.tsm")).unwrap();
        let schedule = variants.models()[0].kernels()[0].schedule.clone();
        (made["tuned_tasks"].as_u64().unwrap(), schedule)
    };
    let winner = best[1]["trace"].as_str().unwrap().to_string();
    assert_ne!(schedule(&[]).1, winner, "the test proves nothing");
    assert_eq!(schedule(&["--machine", "user@b"]), (1, winner));
    // What is printed is the command that does so.
    let printed = p.ok(&[&import[..], &["--machine", "user@b"]].concat());
    let said = format!("compile MODEL --target {target} --threads 1 --machine user@b");
    assert!(printed.contains(&said), "{printed}");
    let unknown = p.error(&[&["compile"][..], &of, &["--machine", "x"]].concat());
    assert!(
        unknown.contains("no such machine") && unknown.contains("user@b"),
        "{unknown}"
    );
    // The same times again are no further records.
    let stored = Store::open_to_read(p.file("data/tunesmith/tunesmith.sqlite"))
        .and_then(|s| s.records_for(&RecordQuery::default()))
        .unwrap();
    let times: Vec<Option<u64>> = stored.iter().map(|r| r.outcome.median_ns()).collect();
    assert_eq!(times.len(), best.len() - 1, "{times:?}");
    assert_eq!(stored[0].machine, "user@b");
}
