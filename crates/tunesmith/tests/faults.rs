//! A tuning run that is killed loses nothing that it has measured, leaves no
//! process behind, and goes on where it stopped.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use store::{EventKind, Record, RecordIdentity, RecordQuery, Store};
use testkit::setting;

/// More points than all runs together can measure.
const OP: &str = "op:matmul(m=240,n=960,k=240)";
/// Runs that are killed, unless `TUNESMITH_KILLS` says otherwise.
const KILLS: u64 = 4;
/// How candidates are measured: one beside a builder, or side by side.
const SERIAL: &[&str] = &["--measure", "serial"];
const DOPPLER: &[&str] = &[
    "--measure",
    "doppler",
    "--overlap",
    "off",
    "--measure-batch",
    "8",
];

fn tune(folder: &Path, measuring: &[&str], budget: [&str; 2]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_tunesmith"));
    c.args(["tune", OP, "--threads", "1", "--json"])
        .args(["--compare-time", "200ms"])
        .args(measuring)
        .args(budget)
        .arg("--store")
        .arg(folder.join("store.sqlite"))
        .arg("--out")
        .arg(folder.join("m.tsm"))
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("XDG_DATA_HOME", folder.join("data"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    c
}

fn records(store: &Store) -> Vec<Record> {
    store.records_for(&RecordQuery::default()).unwrap()
}

/// The processes that a process started and that are still there.
fn children(of: &Child) -> Vec<u32> {
    let tasks = Path::new("/proc").join(of.id().to_string()).join("task");
    std::fs::read_dir(tasks)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok())
        .flat_map(|line| {
            let pids = line.split_whitespace().filter_map(|p| p.parse().ok());
            pids.collect::<Vec<u32>>()
        })
        .collect()
}

/// Whether a process runs: one that has ended and waits for its parent does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|s| s.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// The name of the program that a process runs.
fn program(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}

fn wait_until_gone(pids: &[u32]) {
    let limit = Instant::now() + Duration::from_secs(300);
    while pids.iter().any(|p| runs(*p)) {
        assert!(Instant::now() < limit, "workers outlive a killed run");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// No candidate and no machine code has two results of trials.
fn assert_nothing_twice(all: &[Record]) {
    let trials = all.iter().filter(|r| !r.final_);
    let (mut candidates, mut codes) = (HashSet::new(), HashSet::new());
    for r in trials {
        if r.outcome.settled() {
            let candidate = (
                &r.task,
                &r.target,
                &r.machine,
                &r.toolchain,
                &r.algorithm,
                &r.trace,
            );
            assert!(candidates.insert(candidate), "tried twice:\n{}", r.trace);
        }
        if let (true, Some(code)) = (r.outcome.ran(), &r.code_hash) {
            let code = (&r.task, &r.target, &r.machine, code);
            assert!(codes.insert(code), "run twice:\n{}", r.trace);
        }
    }
}

/// What happened together is in the store together: each trial's record with
/// the log of its ask and its tell.
fn assert_logs_complete(store: &Store, all: &[Record]) {
    for run in store.runs().unwrap() {
        let mut told: BTreeMap<(Option<String>, u64), Option<u64>> = BTreeMap::new();
        let mut asked = HashSet::new();
        for e in store.events(&run.run_id).unwrap() {
            match e.kind {
                EventKind::Ask(ask) => drop(asked.insert((e.task, ask.trial))),
                EventKind::Tell(t) => drop(told.insert((e.task, t.trial), t.median_ns)),
                _ => {}
            }
        }
        for r in all.iter().filter(|r| r.run_id == run.run_id && !r.final_) {
            let trial = (Some(r.task.clone()), r.trial);
            assert!(asked.contains(&trial), "no ask of {}", r.identity());
            assert_eq!(
                told.get(&trial),
                Some(&r.outcome.median_ns()),
                "{}",
                r.identity()
            );
        }
    }
}

#[test]
fn a_killed_run_loses_nothing_and_is_resumed() {
    killed_and_resumed(SERIAL);
}

#[test]
fn neither_does_one_that_measures_side_by_side() {
    killed_and_resumed(DOPPLER);
}

fn killed_and_resumed(measuring: &[&str]) {
    let kills = setting("TUNESMITH_KILLS", KILLS);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite");
    let store = Store::open(&path).unwrap();
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let (mut fruitful, mut programs) = (0, HashSet::new());
    let mut seen: HashMap<RecordIdentity, Record> = HashMap::new();
    for kill in 0..kills {
        let mut child = tune(folder.path(), measuring, ["--time", "1h"])
            .spawn()
            .unwrap();
        // At any moment of the start, and at work.
        if kill % 2 == 1 {
            let limit = Instant::now() + Duration::from_secs(300);
            while records(&store).len() == seen.len() && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(0..1500)));
        let workers = children(&child);
        programs.extend(workers.iter().filter_map(|w| program(*w)));
        let before = records(&store);
        assert!(
            child.try_wait().unwrap().is_none(),
            "the run ended by itself"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until_gone(&workers);

        let fresh = before.len() - seen.len();
        fruitful += usize::from(fresh > 0);
        seen.extend(before.into_iter().map(|r| (r.identity(), r)));
        // As another process finds it.
        let found = Store::open(&path).unwrap();
        found.check().unwrap();
        let after: HashMap<_, _> = records(&found)
            .into_iter()
            .map(|r| (r.identity(), r))
            .collect();
        assert!(after.len() >= seen.len(), "kill {kill}");
        for (id, r) in &seen {
            assert_eq!(after.get(id), Some(r), "kill {kill}: {id}");
        }
        seen = after;
    }
    // Runners are the program that holds no compiler; builders are this one.
    let runner = std::fs::read(env!("CARGO_BIN_EXE_tunesmith-runner")).unwrap();
    let holds = |text: &[u8]| runner.windows(text.len()).any(|w| w == text);
    assert!(holds(b"libc.so") && !holds(b"libLLVM"));
    let expected = ["tunesmith", "tunesmith-runner"].map(String::from);
    assert_eq!(programs, HashSet::from(expected));
    assert!(fruitful > 1, "too slow a machine to kill anything at work");

    let out = tune(folder.path(), measuring, ["--trials", "5"])
        .output()
        .unwrap();
    assert!(out.status.success());
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    // What the killed runs measured is told again or known: see `assert_nothing_twice`. Fewer than asked for, if the killed runs left little of the space.
    let fresh = report["trials"].as_u64().unwrap() as usize;
    assert!(fresh <= 5, "{report}");
    store.check().unwrap();
    let all = records(&store);
    assert!(all.len() >= seen.len() + fresh);
    assert_nothing_twice(&all);
    assert_logs_complete(&store, &all);
    // Every run but the last was cut off, and says so.
    let ended = store
        .runs()
        .unwrap()
        .into_iter()
        .filter(|r| r.ended_unix_ms.is_some());
    assert_eq!(ended.count(), 1);
}
