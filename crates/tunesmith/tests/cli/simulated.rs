//! Simulated candidates: samples, scores, and what the simulator does not know.

use super::errors::says;
use super::program::{OP, place, send, wait_for};
use serde_json::Value;
use store::{Outcome, RecordQuery, Store};
use tempfile::tempdir;

#[test]
fn samples_of_a_foreign_target_have_counts_and_no_times() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let (foreign, cpu) = match cfg!(target_arch = "aarch64") {
        true => ("riscv64-rvv", "spacemit-x60"),
        false => ("aarch64-neon", "cortex-a72"),
    };
    let ask = [
        "simulate", "collect", OP, "--points", "6", "--target", foreign,
    ];
    let report = p.json(&[&ask[..], &["--cpu", cpu, "--out", "s.jsonl"]].concat());
    let written = std::fs::read_to_string(folder.path().join("s.jsonl")).unwrap();
    let samples: Vec<Value> = written
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let counted: u64 = report["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["simulated"].as_u64().unwrap())
        .sum();
    assert_eq!(samples.len() as u64, counted);
    assert!(samples.len() >= 4, "{written}");
    for s in &samples {
        let counts = &s["statistics"];
        let count = |path: &str| counts.pointer(path).and_then(Value::as_f64).unwrap();
        assert_eq!((s["cpu"].as_str(), s.get("time_ns")), (Some(cpu), None));
        assert!(count("/instructions") > count("/loads") && count("/loads") > 0.0);
        let reads = count("/l1d/read/hits") + count("/l1d/read/misses");
        assert!(reads >= count("/loads"), "{counts}");
    }
    // A second run adds to the file.
    p.json(&[&ask[..], &["--cpu", cpu, "--out", "s.jsonl"]].concat());
    let twice = std::fs::read_to_string(folder.path().join("s.jsonl")).unwrap();
    assert_eq!(twice.lines().count(), 2 * samples.len());
}

#[test]
fn a_foreign_target_is_tuned_by_simulating() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let foreign = match cfg!(target_arch = "aarch64") {
        true => "riscv64-rvv",
        false => "aarch64-neon",
    };
    let ask = [
        "tune",
        OP,
        "--evaluate",
        "simulate",
        "--trials",
        "10",
        "--threads",
        "1",
        "--target",
        foreign,
    ];
    let usual = p.json(&[&ask[..], &["--cpu", "neoverse-v2", "--out", "m.tsm"]].concat());
    assert_eq!(usual["score"], "simulated neoverse-v2 weighted");
    assert!(usual["tasks"][0]["cycles"].as_f64().unwrap() > 0.0);
    let misses = ["--minimise", "l1d.read.misses", "--out", "m.tsm"];
    let misses = p.json(&[&ask[..], &misses].concat());
    assert_eq!(
        misses["score"],
        format!("simulated {foreign} l1d.read.misses")
    );
    // The least count is no greater than that of the default.
    let task = &misses["tasks"][0];
    let [default, chosen] = ["default_cycles", "cycles"].map(|c| task[c].as_f64().unwrap());
    assert!(chosen <= default && default.fract() == 0.0, "{task}");
}

#[test]
fn a_predictor_of_this_machine_scores_candidates() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    for (m, out) in [("32", "a.jsonl"), ("48", "a.jsonl"), ("32", "empty.jsonl")] {
        let op = format!("op:matmul(m={m},n=32,k=32)");
        let ask = ["simulate", "collect", &op, "--points", "16", "--out", out];
        match out {
            "empty.jsonl" => p.json(&[&ask[..], &["--no-time"]].concat()),
            _ => p.json(&ask),
        };
    }
    let about = p.json(&["simulate", "train", "a.jsonl", "--out", "p.json"]);
    assert_eq!(about["kind"], "matmul", "{about}");
    let all = std::fs::read_to_string(p.folder.join("a.jsonl")).unwrap();
    let few: String = all.split_inclusive('\n').take(4).collect();
    std::fs::write(p.folder.join("few.jsonl"), few).unwrap();
    let few = p.error(&["simulate", "train", "few.jsonl", "--out", "q.json"]);
    says(&few, &["too few to learn from", "at least 10", "--points"]);
    let untimed = p.error(&["simulate", "train", "empty.jsonl", "--out", "q.json"]);
    assert!(untimed.contains("no timed samples"), "{untimed}");
    let other = p.error(&[
        "simulate", "train", "a.jsonl", "--kind", "conv", "--out", "q.json",
    ]);
    assert!(
        other.contains("matmul") && other.contains("--kind"),
        "{other}"
    );
    let op = "op:matmul(m=40,n=32,k=32)";
    let ask = [
        "tune",
        op,
        "--evaluate",
        "simulate",
        "--predictor",
        "p.json",
        "--trials",
        "8",
    ];
    let tuned = p.json(&[&ask[..], &["--threads", "1", "--out", "m.tsm"]].concat());
    let task = &tuned["tasks"][0];
    assert!(
        task["failures"]
            .as_object()
            .is_none_or(serde_json::Map::is_empty),
        "{task}"
    );
    let dynamic = ["--window", "dynamic", "--threads", "1", "--out", "d.tsm"];
    let dynamic = p.json(&[&ask[..], &dynamic].concat());
    // Every candidate has a score.
    let failures = dynamic["tasks"][0]["failures"].as_object();
    assert!(failures.is_none_or(serde_json::Map::is_empty), "{dynamic}");
    let wanted = p.error(&[&ask[..], &["--wanted", "1ms"]].concat());
    assert!(wanted.contains("--wanted"), "{wanted}");
}

#[test]
fn predictors_of_the_program_are_taken_by_name() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let listed = p.json(&["simulate", "predictors"]);
    let listed: Vec<(&str, &str)> = listed["predictors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            let method = &s["about"]["method"];
            (s["name"].as_str().unwrap(), method.as_str().unwrap())
        })
        .collect();
    let said = p.ok(&["simulate", "predictors"]);
    assert!(said.contains("R_top1") && said.contains("depthwise_conv2d"));
    let cases = [
        ("conv2d", "op:conv2d(c=8,h=7,w=7,k=16)"),
        ("depthwise_conv2d", "op:depthwise_conv2d(c=16,h=7,w=7)"),
        ("matmul", "op:matmul(m=24,n=32,k=16)"),
    ];
    for ((name, op), (listed, method)) in cases.into_iter().zip(listed) {
        assert_eq!(name, listed);
        let ask = ["tune", op, "--evaluate", "simulate", "--trials", "6"];
        let by = ["--target", "x86-avx2", "--predictor", name];
        let out = ["--threads", "1", "--out", "m.tsm", "--store", name];
        let tuned = p.json(&[&ask[..], &by, &out].concat());
        // Scores are stored where candidates run as well, and reported where they do not.
        let stored = Store::open_to_read(p.file(name))
            .and_then(|s| s.records_for(&RecordQuery::default()))
            .unwrap();
        let stored = stored.iter().filter_map(|r| match &r.outcome {
            Outcome::Scored { kind, value } if *value > 0.0 => Some(kind.as_str()),
            _ => None,
        });
        let mut kinds = stored.chain(tuned["score"].as_str());
        let scored = kinds.any(|k| k == format!("simulated ryzen-5800x by {method}"));
        assert!(scored, "{name}: {tuned}");
    }
    let ask = ["tune", OP, "--evaluate", "simulate", "--predictor"];
    let unknown = p.error(&[&ask[..], &["no-such"]].concat());
    assert!(
        unknown.contains("no-such") && unknown.contains("depthwise_conv2d"),
        "{unknown}"
    );
    let depthwise = "op:depthwise_conv2d(c=16,h=7,w=7)";
    let ask = [
        "tune",
        depthwise,
        "--evaluate",
        "simulate",
        "--threads",
        "1",
    ];
    let by = [
        "--target",
        "x86-avx2",
        "--predictor",
        "conv2d",
        "--out",
        "m.tsm",
    ];
    let other = p.error(&[&ask[..], &by].concat());
    assert!(
        other.contains("of type conv2d") && other.contains("--predictor depthwise_conv2d"),
        "{other}"
    );
    let ask = ["tune", OP, "--evaluate", "simulate", "--threads", "1"];
    let by = ["--target", "x86-sse2", "--predictor", "matmul"];
    let other = p.error(&[&ask[..], &by, &["--out", "m.tsm"]].concat());
    assert!(
        other.contains("kernels for x86-avx2, not for x86-sse2"),
        "{other}"
    );
    let by = ["--target", "x86-avx2", "--predictor", "matmul"];
    let window = p.error(&[&ask[..], &by, &["--window", "many"]].concat());
    assert!(window.contains("static, dynamic or a number"), "{window}");
    let idle = p.error(&["tune", OP, "--window", "dynamic", "--predictor", "matmul"]);
    assert!(idle.contains("has no effect"), "{idle}");
}

#[test]
fn what_the_simulator_does_not_know_is_refused_by_name() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let ask = ["tune", OP, "--evaluate", "simulate"];
    let cpu = p.error(&[&ask[..], &["--cpu", "no-such-cpu"]].concat());
    assert!(
        cpu.contains("no-such-cpu") && cpu.contains("there are"),
        "{cpu}"
    );
    let count = p.error(&[&ask[..], &["--minimise", "l9.misses"]].concat());
    assert!(
        count.contains("l9.misses") && count.contains("l2.read.misses"),
        "{count}"
    );
    let last = [
        "--minimise",
        "llc_misses",
        "--trials",
        "4",
        "--threads",
        "1",
    ];
    let for_other = ["--target", foreign(), "--out", "m.tsm"];
    let tuned = p.json(&[&ask[..], &last, &for_other].concat());
    assert_eq!(
        tuned["score"],
        format!("simulated {} llc_misses", foreign())
    );
    let misses = tuned["tasks"][0]["cycles"].as_f64();
    assert!(misses.unwrap() >= 1.0, "{tuned}");
    let nothing = p.error(&["tune", OP, "--cpu", "cortex-a72"]);
    assert!(
        nothing.contains("--cpu") && nothing.contains("--evaluate simulate"),
        "{nothing}"
    );
}

/// Which rows are gathered is in the data, so the simulator of addresses cannot count, and QEMU does.
#[test]
fn kernels_whose_addresses_depend_on_data_are_counted_by_qemu() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let report = p.json(&[
        "tune",
        "op:gather(table=64,rows=16,cols=32)",
        "--evaluate",
        "simulate",
        "--target",
        "aarch64-neon",
        "--threads",
        "1",
        "--trials",
        "2",
    ]);
    let counted = report["tasks"][0]["default_cycles"].as_f64();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_tunesmith"));
    let plugin = program.with_file_name("examples/libqemu_counts.so");
    let target = ir::Target::generic(ir::Isa::AArch64Neon);
    if plugin.exists() && simulate::Emulator::find(&target).is_ok() {
        assert!(counted.is_some_and(|n| n > 100.0), "{report}");
    } else {
        assert_eq!(counted, None);
        testkit::host::skipped_in_part("QEMU or its plugin is missing");
    }
}

#[test]
fn candidates_are_timed_on_a_board_and_the_fastest_is_named() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let ask = [
        "tune",
        OP,
        "--evaluate",
        "static",
        "--trials",
        "10",
        "--threads",
    ];
    let to = [
        "--target",
        "riscv64-rvv",
        "--export-top",
        "3",
        "--export-to",
        "board",
        "--out",
        "m.tsm",
    ];
    let refused = p.error(&[&ask[..], &["2"], &to].concat());
    assert!(refused.contains("--threads 1"), "{refused}");
    let report = p.json(&[&ask[..], &["1"], &to].concat());
    let best = report["tasks"][0]["best"].as_array().unwrap();
    assert!(best.len() >= 2, "{report}");
    let board = folder.path().join("board");
    // They run.
    let target = ir::Target::generic(ir::Isa::RiscV64Rvv);
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_tunesmith"));
    let plugin = program.with_file_name("examples/libqemu_counts.so");
    match simulate::Emulator::find(&target) {
        Ok(emulator) => {
            let command = emulator.command(&[], &board.join("task0-1"));
            let limit = std::time::Duration::from_secs(60);
            assert_eq!(simulate::output(command, limit).unwrap().len(), 4 * 32 * 4);
            if plugin.exists() {
                let plugin = plugin.display().to_string();
                let ask = ["simulate", "count", "board/task0-1", "--plugin", &plugin];
                let counts = p.json(&[&ask[..], &["--target", "riscv64-rvv"]].concat());
                assert!(counts["stores"].as_f64().unwrap() > 0.0, "{counts}");
            } else {
                testkit::host::skipped_in_part("the plugin of QEMU is not built");
            }
        }
        Err(error) => testkit::host::skipped_in_part(&error.to_string()),
    }
    let missing = p.error(&["simulate", "import", "board"]);
    assert!(missing.contains("times.txt"), "{missing}");
    // Stand-ins that run here: the last one is the fastest.
    for rank in 1..=best.len() {
        let times = format!("#!/bin/sh\necho {}\necho {}\n", 900 - rank, 1000 - rank);
        std::fs::write(board.join(format!("task0-{rank}")), times).unwrap();
    }
    let script = std::process::Command::new(board.join("time.sh"))
        .arg("2")
        .status();
    assert!(script.unwrap().success());
    let found = p.json(&["simulate", "import", "board"]);
    let fastest = &found["tasks"]["task0"][0];
    assert_eq!(fastest["executable"], format!("task0-{}", best.len()));
    assert_eq!(fastest["trace"], best[best.len() - 1]["trace"]);
    assert_eq!(fastest["calls"], 4);
    std::fs::write(board.join("times.txt"), "task0-1 soon\n").unwrap();
    let damaged = p.error(&["simulate", "import", "board"]);
    assert!(damaged.contains("task0-1 soon"), "{damaged}");
}

/// A simulator that counts the bytes of an executable.
const SCRIPT: &str = "echo bytes $(wc -c <\"$1\")\necho instructions 100\n";

fn foreign() -> &'static str {
    match cfg!(target_arch = "aarch64") {
        true => "riscv64-rvv",
        false => "aarch64-neon",
    }
}

#[test]
fn a_command_of_the_user_simulates() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    std::fs::write(p.folder.join("simulator.sh"), SCRIPT).unwrap();
    let command = format!("sh {} {{exe}}", p.file("simulator.sh"));
    let ask = ["tune", OP, "--evaluate", "simulate", "--trials", "6"];
    let ask = [&ask[..], &["--threads", "1", "--target", foreign()]].concat();
    let out = ["--simulator", &command, "--out", "m.tsm", "--minimise"];
    let ask = [&ask[..], &out].concat();
    let tuned = p.json(&[&ask[..], &["bytes"]].concat());
    assert_eq!(tuned["score"], format!("simulated {command} bytes"));
    let task = &tuned["tasks"][0];
    let [default, chosen] = ["default_cycles", "cycles"].map(|c| task[c].as_f64().unwrap());
    assert!(chosen <= default && chosen >= 4096.0, "{task}");
    let collect = ["simulate", "collect", OP, "--points", "4", "--no-time"];
    let out = ["--simulator", &command, "--target", foreign()];
    p.json(&[&collect[..], &out, &["--cpu", "board", "--out", "s.jsonl"]].concat());
    let written = std::fs::read_to_string(p.folder.join("s.jsonl")).unwrap();
    let first: Value = serde_json::from_str(written.lines().next().unwrap()).unwrap();
    assert_eq!(first["cpu"], "board");
    assert_eq!(first["statistics"]["instructions"], 100.0);
    assert!(first["statistics"]["others"]["bytes"].as_f64().unwrap() >= 4096.0);
}

/// A predictor learns from what the user's simulator tells, and then scores what it tells of others.
#[test]
fn a_predictor_scores_the_counts_of_a_command() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    // It runs nothing, so any target does. Sizes of executables stand for counts.
    let script = "size=$(wc -c <\"$1\")\nfor count in instructions loads l2.read.misses; do echo $count $size; done\n";
    std::fs::write(p.folder.join("simulator.sh"), script).unwrap();
    let command = format!("sh {} {{exe}}", p.file("simulator.sh"));
    let with = ["--target", foreign(), "--simulator", &command];
    let board = ["--cpu", "board"];
    let collect = ["simulate", "collect", OP, "--points", "12", "--no-time"];
    p.json(&[&collect[..], &with, &board, &["--out", "counted.jsonl"]].concat());
    // As a board would have timed them.
    let counted = std::fs::read_to_string(p.folder.join("counted.jsonl")).unwrap();
    let timed = |line: &str| {
        let mut sample: Value = serde_json::from_str(line).unwrap();
        assert_eq!(sample["target"], foreign());
        sample["time_ns"] = sample["statistics"]["instructions"].clone();
        format!("{sample}\n")
    };
    let timed: String = counted.lines().map(timed).collect();
    std::fs::write(p.folder.join("timed.jsonl"), timed).unwrap();
    let train = ["simulate", "train", "timed.jsonl", "--method", "linear"];
    let about = p.json(&[&train[..], &["--out", "p.json"]].concat());
    assert_eq!(
        (&about["cpu"], &about["target"]),
        (&"board".into(), &foreign().into())
    );
    let ask = ["tune", OP, "--evaluate", "simulate", "--trials", "6"];
    let by = ["--threads", "1", "--predictor", "p.json", "--out", "m.tsm"];
    let by = ["--window", "4"].into_iter().chain(by).collect::<Vec<_>>();
    let tuned = p.json(&[&ask[..], &with, &by].concat());
    let score = tuned["score"].as_str().unwrap();
    assert!(
        score.starts_with("simulated board (") && score.ends_with("by linear, window of 4"),
        "{score}"
    );
    assert!(
        tuned["tasks"][0]["cycles"].as_f64().unwrap() > 0.0,
        "{tuned}"
    );
    let other = p.error(&[&ask[..], &with, &["--cpu", "other"], &by].concat());
    assert!(other.contains("times of board, not of other"), "{other}");
}

/// Answers when it is tried out, and not again.
const FAILS: &str =
    "[ -e tried ] && echo out of paper >&2 && exit 3\ntouch tried\necho instructions 100\n";

#[test]
fn why_a_command_of_the_user_gives_no_score_is_said() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let script = FAILS.replace("tried", &p.file("tried"));
    std::fs::write(p.folder.join("simulator.sh"), script).unwrap();
    let command = format!("sh {} {{exe}}", p.file("simulator.sh"));
    let ask = ["tune", OP, "--evaluate", "simulate", "--trials", "4"];
    let with = ["--target", foreign(), "--simulator", &command];
    let out = ["--threads", "1", "--out", "m.tsm"];
    let report = p.json(&[&ask[..], &with, &out].concat());
    let why = report["tasks"][0]["unscored"].as_str().unwrap();
    assert!(
        why.contains("exit status: 3") && why.contains("out of paper"),
        "{why}"
    );
    // Samples that it does not count are missed by number, and the first reason.
    std::fs::remove_file(p.file("tried")).unwrap();
    let collect = ["simulate", "collect", OP, "--points", "2"];
    let to = ["--out", "s.jsonl"];
    let report = p.json(&[&collect[..], &with, &to].concat());
    let failed = &report["tasks"][0]["unsimulated"];
    assert_eq!(failed["candidates"], report["tasks"][0]["points"]);
    assert!(
        failed["first"].as_str().unwrap().contains("out of paper"),
        "{report}"
    );
    std::fs::remove_file(p.file("tried")).unwrap();
    let said = p.warnings(&[&collect[..], &with, &to].concat());
    assert!(
        said.contains("1 of 1 candidates") && said.contains("out of paper"),
        "{said}"
    );
}

/// Answers when it is tried out, and then never again.
const HANGS: &str =
    "echo $$ >>pids\n[ $(wc -l <pids) = 1 ] || exec sleep 1000\necho instructions 100\n";

#[test]
fn a_command_of_the_user_dies_with_a_program_that_is_killed() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let script = HANGS.replace("pids", &p.file("pids"));
    std::fs::write(p.folder.join("simulator.sh"), script).unwrap();
    let command = format!("sh {} {{exe}}", p.file("simulator.sh"));
    let ask = ["tune", OP, "--evaluate", "simulate", "--threads", "1"];
    let with = ["--target", foreign(), "--simulator", &command];
    let limit = ["--simulator-limit", "1000s", "--minimise", "instructions"];
    let mut child = p.started(&[&ask[..], &with, &limit, &["--out", "m.tsm"]].concat());
    let pid = wait_for("simulator", || {
        let pids = std::fs::read_to_string(p.folder.join("pids")).ok()?;
        pids.lines().nth(1).map(String::from)
    });
    send(&child, libc::SIGKILL);
    child.wait().unwrap();
    // Whoever inherits it may leave it unwaited for.
    wait_for("end of the simulator", || {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z ").then_some(()),
            Err(_) => Some(()),
        }
    });
}

#[test]
fn what_is_wrong_with_a_command_of_the_user_is_said() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let ask = ["tune", OP, "--evaluate", "simulate", "--trials", "4"];
    let ask = [&ask[..], &["--target", foreign(), "--out", "m.tsm"]].concat();
    let said = |more: &[&str]| p.error(&[&ask[..], more].concat());
    let one = ["--threads", "1", "--simulator"];
    for (command, why) in [
        ("true", "{exe}"),
        ("no-such-simulator {exe}", "does not start"),
        ("echo nothing {exe}", "no line of a name and a number"),
        ("echo cycles 3 #{exe}", "tells no `weighted`"),
        ("false {exe}", "exit status: 1"),
    ] {
        let error = said(&[&one[..], &[command]].concat());
        assert!(error.contains(why), "{command}: {error}");
    }
    let slow = ["tail -f /dev/null {exe}", "--simulator-limit", "50ms"];
    let slow = said(&[&one[..], &slow].concat());
    assert!(slow.contains("did not end within 0.05 s"), "{slow}");
    let threads = said(&["--threads", "2", "--simulator", "echo {exe}"]);
    assert!(threads.contains("--threads 1"), "{threads}");
}
