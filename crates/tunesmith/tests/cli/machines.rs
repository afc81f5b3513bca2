//! `--machine NAME`: times that a board measured, in all commands that take the best known schedules; and folders of
//! candidates whose times do not fit.

use super::program::{OP, Sandbox, place};
use serde_json::Value;
use std::fs;
use std::process::Command;
use tempfile::tempdir;

/// A target whose code does not run here.
const FOREIGN: &str = match cfg!(target_arch = "aarch64") {
    true => "x86-avx2",
    false => "riscv64-rvv",
};
const OTHER: &str = "op:matmul(m=24,n=40,k=56)";
const OF: [&str; 5] = [OP, "--target", FOREIGN, "--threads", "1"];

/// The candidates of a folder of `tune --export-to`, in the order of their names.
pub fn exported(p: &Sandbox, folder: &str) -> Vec<Value> {
    let lines = fs::read_to_string(p.folder.join(folder).join("candidates.jsonl")).unwrap();
    let all = lines.lines().map(|l| serde_json::from_str(l).unwrap());
    all.collect()
}

/// Reads candidates for the foreign target and exports some.
fn export(p: &Sandbox, folder: &str, more: &[&str]) -> Value {
    let read = ["--evaluate", "static", "--trials", "12"];
    let to = ["--export-top", "4", "--export-to", folder, "--out", "m.tsm"];
    p.json(&[&["tune"][..], &OF, &read, &to, more].concat())
}

fn write_times(p: &Sandbox, folder: &str, times: &str) {
    fs::write(p.folder.join(folder).join("times.txt"), times).unwrap();
}

/// Has a board named `pi` that found the second candidate of `first` to take 500 ns, and the others more; its trace.
fn with_times(p: &Sandbox) -> String {
    export(p, "first", &[]);
    let all = exported(p, "first");
    assert!(all.len() >= 3, "{all:?}");
    assert_eq!(all.iter().filter(|c| c["default"] == true).count(), 1);
    assert_eq!(all[1]["default"], false, "the test proves nothing");
    let mut times = String::new();
    for (i, c) in all.iter().enumerate() {
        let ns = if i == 1 { 500 } else { 1000 + i };
        times += &format!("{} {ns}\n", c["executable"].as_str().unwrap());
    }
    write_times(p, "first", &times);
    let found = p.json(&["simulate", "import", "first", "--machine", "pi"]);
    let fastest = &found["tasks"]["task0"][0];
    assert_eq!(fastest["executable"], "task0-2");
    let default = all.iter().position(|c| c["default"] == true).unwrap();
    let expected = (1000 + default) as f64 / 500.0;
    assert_eq!(fastest["gain"], expected, "{found}");
    all[1]["trace"].as_str().unwrap().to_string()
}

#[test]
fn commands_take_the_times_of_a_named_machine() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let winner = with_times(&p);
    let on = ["--machine", "pi"];
    let with = |command: &'static str, more: &[&'static str]| [&[command][..], &OF, more].concat();
    let listed =
        |more: &[&'static str]| p.json(&with("tasks", more))["tasks"][0]["best_ms"].clone();
    assert_eq!(listed(&on), 0.0005);
    assert_eq!(listed(&[]), Value::Null);
    for command in ["tasks", "compile"] {
        let hint = p.warnings(&with(command, &[]));
        assert!(
            hint.contains("the machine pi has measured 1 schedule"),
            "{hint}"
        );
        assert!(hint.contains("--machine pi uses them"), "{hint}");
        assert!(!p.warnings(&with(command, &on)).contains("hint"));
    }
    let dump = ["--stage", "trace", "--candidate", "best"];
    assert_eq!(p.ok(&with("dump", &[&dump[..], &on].concat())), winner);
    let none = p.error(&with("dump", &dump));
    assert!(none.contains("`--machine pi` has times"), "{none}");
    let idle = p.error(&with("dump", &[&["--stage", "trace"][..], &on].concat()));
    assert!(idle.contains("give --candidate best"), "{idle}");
    let explained = p.error(&with("explain", &on));
    assert!(explained.contains("`tunesmith tasks`"), "{explained}");
    let defaults = p.error(&with("compile", &["--machine", "pi", "--defaults"]));
    assert!(defaults.contains("no records are used"), "{defaults}");
    let unknown = ["--machine", "p"];
    for command in [
        with("tasks", &unknown),
        with("tune", &["--evaluate", "static", "--machine", "p"]),
        vec!["bench", OP, "--machine", "p"],
        vec!["check", OP, "--machine", "p"],
        vec!["explain", OP, "--machine", "p"],
        vec!["replay", OP, "--trace", "best", "--machine", "p"],
    ] {
        let said = p.error(&command);
        assert!(
            said.contains("--machine p: the store has no such machine"),
            "{said}"
        );
        assert!(said.contains("it has pi (pi, whose times"), "{said}");
    }
}

#[test]
fn a_later_tune_starts_from_the_times_of_a_machine() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let winner = with_times(&p);
    let timed: Vec<Value> = exported(&p, "first");
    let timed: Vec<&Value> = timed.iter().map(|c| &c["trace"]).collect();
    let report = export(&p, "second", &["--machine", "pi"]);
    assert_eq!(report["machine"], "pi");
    let task = &report["tasks"][0];
    assert_eq!(task["measured_ms"], 0.0005);
    // The fastest is exported again, and of the others only those that have no time.
    let again = exported(&p, "second");
    assert_eq!(again[0]["trace"], *winner);
    assert_eq!(task["best"][0]["trace"], *winner);
    let new = again.iter().skip(1).filter(|c| c["default"] == false);
    let new: Vec<&Value> = new.map(|c| &c["trace"]).collect();
    assert!(!new.is_empty(), "the test proves nothing");
    assert!(new.iter().all(|t| !timed.contains(t)), "{new:?}");
    // What is compiled is the fastest, or one without a time that is predicted to be faster.
    let variants = runtime::Variants::load(&p.folder.join("m.tsm")).unwrap();
    let schedule = &variants.models()[0].kernels()[0].schedule;
    match task["origin"].as_str() {
        Some("measured") => assert_eq!(*schedule, winner),
        Some("read") => assert!(!timed.iter().any(|t| **t == **schedule)),
        other => panic!("{other:?}"),
    }
    let read = ["--evaluate", "static", "--trials", "12", "--out", "n.tsm"];
    let said = p.ok(&[&["tune"][..], &OF, &read, &["--machine", "pi"]].concat());
    assert!(said.contains("pi has measured 1 of 1 task"), "{said}");
    assert!(said.contains("measured ms"), "{said}");
    let hint = p.warnings(&[&["tune"][..], &OF, &read].concat());
    assert!(hint.contains("--machine pi uses them"), "{hint}");
    let here = p.error(&["tune", OP, "--threads", "1", "--machine", "pi"]);
    assert!(
        here.contains("--machine has no effect here: this run measures"),
        "{here}"
    );
}

/// The executables of this machine's own target run here, so it stands for the board.
#[test]
fn this_machine_is_a_board_like_others() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let of = [OP, "--target", "host", "--threads", "1"];
    let read = ["--evaluate", "simulate", "--trials", "8"];
    let to = ["--export-top", "2", "--export-to", "here", "--out", "m.tsm"];
    p.json(&[&["tune"][..], &of, &read, &to].concat());
    let again = p.error(&[&["tune"][..], &of, &read, &to].concat());
    assert!(again.contains("has exported candidates already"), "{again}");
    let all = exported(&p, "here");
    let script = Command::new(p.folder.join("here/time.sh"))
        .arg("1")
        .output();
    let script = script.unwrap();
    assert!(script.status.success(), "{script:?}");
    let found = p.json(&["simulate", "import", "here", "--machine", "my board"]);
    assert_eq!(found["stored"]["records"], all.len());
    let compile = found["stored"]["compile"].as_str().unwrap();
    assert!(compile.ends_with("--machine 'my board'"), "{compile}");
    let on = ["--machine", "my board"];
    let listed = p.json(&[
        "simulate",
        "import",
        "here",
        "--machine",
        "my board",
        "--top",
        "1",
    ]);
    let listed = listed["tasks"]["task0"].as_array().unwrap();
    assert!(listed.iter().any(|c| c["default"] == true), "{listed:?}");
    let best = p.json(&[&["tasks"][..], &of, &on].concat());
    assert!(
        best["tasks"][0]["best_ms"].as_f64().unwrap() > 0.0,
        "{best}"
    );
    let time = ["--time", "0.1s"];
    // It has no times for other targets.
    let other = p.warnings(&[&["tasks"][..], &OF, &on].concat());
    assert!(
        other.contains("my board has measured no schedule for"),
        "{other}"
    );
    let explained = p.json(&[&["explain"][..], &of, &on, &time].concat());
    let alone = &explained["layers"][0]["alone_ms"];
    assert_eq!(*alone, best["tasks"][0]["best_ms"], "{explained}");
    for command in [
        [&["bench"][..], &of, &on, &time].concat(),
        [&["check"][..], &of, &on].concat(),
        [
            &["replay"][..],
            &of,
            &on,
            &["--trace", "best", "--samples", "2"],
        ]
        .concat(),
    ] {
        p.json(&command);
    }
    let artifact = p.error(&["bench", "m.tsm", "--machine", "my board"]);
    assert!(
        artifact.contains("--machine has no effect here"),
        "{artifact}"
    );
}

#[test]
fn times_that_do_not_fit_a_folder_are_told_apart() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    export(&p, "one", &[]);
    let two = [
        "--export-to",
        "two",
        "--evaluate",
        "static",
        "--trials",
        "4",
    ];
    p.json(&[&["tune", OTHER], &OF[1..], &two, &["--out", "m.tsm"]].concat());
    let import = ["simulate", "import", "one"];
    // The script says whose times they are, even where nothing runs.
    let script = Command::new(p.folder.join("two/time.sh")).arg("1").output();
    assert!(script.unwrap().status.success());
    let header = fs::read_to_string(p.folder.join("two/times.txt")).unwrap();
    let header = header.lines().next().unwrap();
    assert!(header.starts_with("# candidates "), "{header}");
    write_times(&p, "one", &format!("{header}\ntask0-1 500\n"));
    let other = p.error(&import);
    assert!(other.contains("candidates of another folder"), "{other}");
    for line in [
        "task0-1 0",
        "task0-1 -3",
        "task0-1",
        "",
        "task0-1 99999999999999999999",
    ] {
        write_times(&p, "one", &format!("task0-1 500\n{line}\n"));
        let damaged = p.error(&import);
        assert!(damaged.contains(&format!("`{line}`")), "{damaged}");
    }
    write_times(&p, "one", "task7-1 500\n");
    let none = p.error(&import);
    assert!(none.contains("no times of the candidates"), "{none}");
    write_times(&p, "one", "task0-1 500\ntask7-1 500\n");
    let said = p.warnings(&import);
    assert!(said.contains("have no time, such as task0-2"), "{said}");
    assert!(
        said.contains("1 executable that the folder does not list, such as task7-1"),
        "{said}"
    );
    let unnamed = p.output(&[&import[..], &["--machine", ""]].concat());
    assert!(!unnamed.status.success());
}
