//! Records as tables and files, and logs told again.

use super::errors::says;
use super::program::{OP, Sandbox, TRIALS, obey_permissions, one_object, place, tuned};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::tempdir;

fn records(args: &[&str]) -> Value {
    let t = tuned();
    t.place
        .json(&[&["records"], args, &["--store", &t.store]].concat())
}

#[test]
fn records_are_listed_and_filtered() {
    let all = records(&[]);
    let total = all["total"].as_u64().unwrap();
    let listed = all["records"].as_array().unwrap();
    assert_eq!(listed.len() as u64, total);
    let finals = listed.iter().filter(|r| r["final"] == true).count() as u64;
    assert_eq!(total - finals, TRIALS);
    assert_eq!(records(&["--finals"])["total"], finals);
    assert_eq!(
        records(&["--limit", "2"])["records"],
        Value::from(listed[listed.len() - 2..].to_vec())
    );

    let key = listed[0]["task"].as_str().unwrap();
    let run = listed[0]["run_id"].as_str().unwrap();
    for same in [
        ["--task", &key[..10]],
        ["--task", "dense("],
        ["--op", "dense"],
        ["--model", "op:dense"],
        ["--run", &run[..6]],
        ["--target", "threads=1"],
    ] {
        assert_eq!(records(&same)["total"], total, "{same:?}");
    }
    let timed = listed
        .iter()
        .filter(|r| r["outcome"]["result"] == "timed")
        .count();
    assert_eq!(records(&["--outcome", "timed"])["total"], timed as u64);
    // A part of a name that is no whole word of it is another outcome.
    assert_eq!(records(&["--outcome", "tim"])["total"], 0);
    assert_eq!(records(&["--target", "threads=77"])["total"], 0);

    let t = tuned();
    let text = t
        .place
        .ok(&["records", "--limit", "1", "--store", &t.store]);
    assert!(text.contains(&format!("{total} records")), "{text}");
    assert!(text.contains("not shown"), "{text}");
}

#[test]
fn records_say_who_answered() {
    let all = records(&[]);
    let of = |evaluator: &str| records(&["--evaluator", evaluator])["total"].clone();
    assert_eq!(
        (of("timed"), of("recorded")),
        (all["total"].clone(), 0.into())
    );
    let listed = all["records"].as_array().unwrap();
    assert!(listed.iter().all(|r| r["evaluator"] == "timed"));
    let t = tuned();
    let table = t.place.ok(&["records", "--store", &t.store]);
    assert!(
        table.contains("evaluator") && table.contains(" timed"),
        "{table}"
    );
}

#[test]
fn every_record_has_wall_and_cpu_time_of_every_stage() {
    let all = records(&[]);
    let stages = ["search", "build", "load", "measure", "check"];
    for r in all["records"].as_array().unwrap() {
        let timed = r["outcome"]["result"] == "timed";
        let mut sum = 0;
        for stage in stages {
            let cost = &r["costs"][stage];
            let ns = |key: &str| cost[key].as_u64().unwrap_or_else(|| panic!("{stage}: {r}"));
            let (wall, cpu) = (ns("wall_ns"), ns("cpu_ns"));
            // A finalist has been asked for and built before.
            let before = r["final"] == true && matches!(stage, "search" | "build");
            assert!(before || !timed || wall > 0, "{stage}: {r}");
            // One thread, and what the system counts a little later.
            assert!(cpu <= wall + 20_000_000, "{stage}: {r}");
            sum += cpu;
        }
        assert!(sum > 0, "{r}");
    }
}

/// The records of [`tuned`] with a changed text, as `b.sqlite`.
fn altered_store(p: &Sandbox, change: impl Fn(&str) -> String) {
    let t = tuned();
    p.json(&["records", "export", "a.jsonl", "--store", &t.store]);
    let text = std::fs::read_to_string(p.folder.join("a.jsonl")).unwrap();
    let other = change(&text);
    assert_ne!(text, other);
    std::fs::write(p.folder.join("b.jsonl"), other).unwrap();
    p.json(&["records", "import", "b.jsonl", "--store", "b.sqlite"]);
}

/// As if another version of the compiler had filled it.
fn store_of_another_toolchain(p: &Sandbox) {
    let own = records(&[])["records"][0]["toolchain"].clone();
    altered_store(p, |text| {
        text.replace(own.as_str().unwrap(), "an older compiler")
    });
}

#[test]
fn what_was_measured_under_a_looser_tolerance_is_not_used() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let error = r#""rel_l2":"#;
    altered_store(&p, |text| {
        let mut parts = text.split(error);
        let mut other = parts.next().unwrap().to_string();
        for rest in parts {
            let end = rest.find([',', '}']).unwrap();
            other += &format!("{error}1e-3{}", &rest[end..]);
        }
        other
    });
    let compile = ["compile", OP, "--threads", "1", "--store", "b.sqlite"];
    assert_eq!(p.json(&compile)["tuned_tasks"], 0);
    let loose = [&compile[..], &["--tolerance", "1e-2"]].concat();
    assert_eq!(p.json(&loose)["tuned_tasks"], tuned().measured_tasks());
}

#[test]
fn what_another_toolchain_measured_is_used_by_compile_which_says_so() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    store_of_another_toolchain(&p);
    let compile = ["compile", OP, "--threads", "1", "--store"];
    let made = p.json(&[&compile[..], &["b.sqlite"]].concat());
    let measured = tuned().measured_tasks();
    assert_eq!(made["tuned_tasks"], measured);
    assert_eq!(made["other_toolchain_tasks"], measured);
    let text = p.ok(&[&compile[..], &["b.sqlite"]].concat());
    let said = text.contains("another version of the compiler");
    assert_eq!(said, measured == 1, "{text}");
    let made = p.json(&[&compile[..], &[&tuned().store]].concat());
    assert_eq!(made["other_toolchain_tasks"], 0);
}

#[test]
fn what_another_toolchain_measured_is_built_again_and_equal_code_not_run_again() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    store_of_another_toolchain(&p);
    let trials = TRIALS.to_string();
    let tune = ["tune", OP, "--threads", "1", "--trials", &trials];
    let report = p.json(&[&tune[..], &["--store", "b.sqlite"]].concat());
    // The seed is the same, and so are the first candidates and their code.
    assert!(report["cached"].as_u64().unwrap() >= TRIALS, "{report}");
    let all = p.json(&["records", "--store", "b.sqlite"]);
    let mut codes = std::collections::BTreeSet::new();
    for r in all["records"].as_array().unwrap() {
        if r["final"] == false && r["code_hash"].is_string() {
            assert!(codes.insert(r["code_hash"].as_str().unwrap().to_string()));
        }
    }
    let own = records(&[])["records"][0]["toolchain"].clone();
    let new = all["records"].as_array().unwrap().iter();
    let trials = new.filter(|r| r["final"] == false && r["toolchain"] == own);
    assert_eq!(trials.count() as u64, report["trials"].as_u64().unwrap());
}

#[test]
fn counts_add_up_and_runs_say_how_they_ended() {
    let all = records(&[]);
    let counts = records(&["counts"]);
    let sum = |v: &Value| -> u64 {
        v.as_object()
            .unwrap()
            .values()
            .filter_map(Value::as_u64)
            .sum()
    };
    assert_eq!(all["total"], sum(&counts["counts"]));
    let by_task = counts["tasks"].as_array().unwrap();
    assert_eq!(
        all["total"],
        by_task.iter().map(|t| sum(&t["counts"])).sum::<u64>()
    );

    let runs = records(&["runs"]);
    let run = &runs["runs"][0];
    assert_eq!(run["records"], all["total"]);
    assert!(run["ended_unix_ms"].is_u64());
    let t = tuned();
    assert_eq!(run["summary"]["trials"], t.report["trials"]);
    // From the start of the command, which the time given counts from.
    let at = |key: &str| run[key].as_f64().unwrap();
    let took_s = (at("ended_unix_ms") - at("started_unix_ms")) / 1e3;
    assert!(
        took_s > t.report["wall_s"].as_f64().unwrap() - 0.01,
        "{took_s}"
    );
    let text = t.place.ok(&["records", "runs", "--store", &t.store]);
    assert!(text.contains(run["run_id"].as_str().unwrap()), "{text}");
    assert!(
        t.place
            .ok(&["records", "counts", "--store", &t.store])
            .contains("all tasks")
    );
}

#[test]
fn the_best_record_is_a_final_and_no_other_final_is_faster() {
    let best = records(&["best"]);
    let best = best["best"].as_array().unwrap();
    assert_eq!(best.len(), 1);
    let ns = best[0]["best"]["median_ns"].as_u64().unwrap();
    let finals = records(&["--finals", "--outcome", "timed"]);
    let fastest = finals["records"].as_array().unwrap().iter();
    assert_eq!(
        fastest.map(|r| r["median_ns"].as_u64().unwrap()).min(),
        Some(ns)
    );
    let t = tuned();
    assert!(
        t.place
            .ok(&["records", "best", "--store", &t.store])
            .contains("dense ")
    );
}

#[test]
fn an_export_imports_to_the_same_export() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let export = |file: &str, store: &str| p.json(&["records", "export", file, "--store", store]);
    let first = export("a.jsonl", &t.store);
    assert_eq!(first["records"], records(&[])["total"]);
    let import = |file: &str| p.json(&["records", "import", file, "--store", "b.sqlite"]);
    let added = import("a.jsonl");
    assert_eq!(added["added_records"], first["records"]);
    assert_eq!(import("a.jsonl")["added"], 0);
    export("b.jsonl", "b.sqlite");
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("a.jsonl"), read("b.jsonl"));

    // No temporary file is left.
    let left: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(".tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn records_that_cannot_be_are_not_imported() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&["records", "export", "all.jsonl", "--store", &t.store]);
    let text = std::fs::read_to_string(p.file("all.jsonl")).unwrap();
    let line_of = |what: &str| 1 + text.lines().position(|l| l.contains(what)).unwrap();
    let record = line_of("\"result\":\"timed\"");
    let (task, event) = (line_of("\"type\":\"task\""), line_of("\"type\":\"event\""));
    let timed = text.lines().nth(record - 1).unwrap();
    let samples = timed.find("\"samples_ns\":[").unwrap() + 14;
    let first = &timed[..samples];
    let sample = |ns: &str| text.replacen(first, &format!("{first}{ns},"), 1);
    let key = t.report["tasks"][0]["key"].as_str().unwrap();
    let other_key = format!("{}0", &key[..31]);
    let whole = text.lines().count();
    for (bad, line, why) in [
        (text.split_once('\n').unwrap().1.to_string(), 1, "no header"),
        (
            text.replacen("\"version\":1", "\"version\":99", 1),
            1,
            "version 99",
        ),
        (text.replace(key, &other_key), task, "by its text it is"),
        (
            text.replace("\"task\":\"", "\"task\":\"0"),
            record,
            "is not in the store",
        ),
        (
            text.replace("\"target\":\"", "\"target\":\"m"),
            record,
            "is not in the store",
        ),
        (sample("0"), record, "no call takes 0 ns"),
        (sample("-5"), record, "-5"),
        (sample("null"), record, "null"),
        (sample("18446744073709551615"), record, "no call takes"),
        (
            text.replacen("\"type\":\"event\"", "\"type\":\"evnt\"", 1),
            event,
            "evnt",
        ),
        (text[..text.len() - 20].to_string(), whole, "cut off"),
    ] {
        assert_ne!(bad, text);
        std::fs::write(p.file("bad.jsonl"), bad).unwrap();
        let error = p.error(&["records", "import", "bad.jsonl", "--store", "b.sqlite"]);
        assert!(
            error.contains("bad.jsonl was not imported: these lines are bad"),
            "{error}"
        );
        let place = format!("bad.jsonl:{line}: ");
        assert!(
            error.contains(&place) && error.contains(why),
            "{why}: {error}"
        );
        assert!(!folder.path().join("b.sqlite").exists());
        // Of a torn file all lines but the last will do.
        assert_eq!(error.contains("remove that line"), line == whole, "{error}");
    }
    for (file, why) in [(".", "directory"), ("/dev/zero", "a device")] {
        let error = p.error(&["records", "import", file, "--store", "b.sqlite"]);
        assert!(error.contains(&format!("cannot read {file}: ")), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

/// Both ends of a pipe as a shell gives it.
#[test]
fn an_export_goes_through_a_pipe() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let store = ["--store", &t.store];
    p.ok(&[&["records", "export", "all.jsonl"][..], &store].concat());
    let exported = std::fs::read_to_string(p.file("all.jsonl")).unwrap();
    for json in [&[][..], &["--json"]] {
        let piped = [&["records", "export", "/dev/stdout"][..], &store, json].concat();
        assert_eq!(p.ok(&piped), exported);
    }
    let t4 = p.ok(&[&["records", "t4", "/dev/stdout"][..], &store].concat());
    assert_eq!(one_object(&t4)["schema_version"], "1.0.0");
    let added = p.json_from(&exported, &["records", "import", "/dev/stdin"]);
    assert_eq!(added["added_records"], records(&[])["total"]);
}

#[test]
fn t4_holds_one_place() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let report = p.json(&["records", "t4", "out.json", "--store", &t.store]);
    let text = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    let file = one_object(&text);
    assert_eq!(file["schema_version"], "1.0.0");
    assert_eq!(file["metadata"]["task"], report["task"]);
    let results = file["results"].as_array().unwrap();
    assert_eq!(report["results"], results.len() as u64);
    assert_eq!(records(&[])["total"], results.len() as u64);
    let none = p.error(&[
        "records",
        "t4",
        "o.json",
        "--store",
        &t.store,
        "--target",
        "threads=9",
    ]);
    assert!(none.contains("no record matches"), "{none}");
}

#[test]
fn a_log_is_told_again_and_says_so() {
    let t = tuned();
    let runs = records(&["runs"]);
    let id = runs["runs"][0]["run_id"].as_str().unwrap();
    let args = ["replay", "--run", &id[..8], "--store", &t.store];
    let replay = t.place.json(&args);
    assert_eq!(replay["replayed"], true);
    assert_eq!(replay["contradictions"], serde_json::json!([]));
    let key = t.report["tasks"][0]["key"].as_str().unwrap();
    let log = &replay["tasks"][key];
    let records = records(&["--outcome", "timed"]);
    let trials = records["records"].as_array().unwrap().iter();
    let fastest = trials
        .filter(|r| r["final"] == false)
        .map(|r| r["median_ns"].as_u64().unwrap())
        .min();
    assert_eq!(log["best_ns"].as_u64(), fastest);
    // The best so far never gets worse.
    let best: Vec<u64> = replay["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|e| e["best_ns"].as_u64())
        .collect();
    assert!(
        !best.is_empty() && best.windows(2).all(|w| w[0] >= w[1]),
        "{best:?}"
    );
    let text = t.place.ok(&args);
    assert!(
        text.contains("replayed: run") && text.contains("tell"),
        "{text}"
    );
}

#[test]
fn a_store_that_cannot_be_written_is_read() {
    let folder = tempdir().unwrap();
    let mut p = place(&folder);
    let (sub, store) = (folder.path().join("sub"), "sub/s.sqlite");
    std::fs::create_dir(&sub).unwrap();
    std::fs::copy(&tuned().store, p.file(store)).unwrap();
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    allow(Path::new(&p.file(store)), 0o444);
    allow(&sub, 0o555);
    p.before = Some(obey_permissions);
    let compile = ["compile", OP, "--threads", "1", "--store", store];
    assert_eq!(p.json(&compile)["tuned_tasks"], tuned().measured_tasks());
    let all = p.json(&["records", "--store", store]);
    assert_eq!(all["total"], records(&[])["total"]);
    p.ok(&["records", "export", "all.jsonl", "--store", store]);
    p.ok(&["tasks", OP, "--store", store]);
    p.ok(&["check", OP, "--threads", "1", "--store", store]);
    let dump = ["dump", OP, "--threads", "1", "--stage", "trace"];
    p.ok(&[&dump[..], &["--candidate", "best", "--store", store]].concat());
    for writer in [&["tune", OP][..], &["records", "import", "all.jsonl"]] {
        let error = p.error(&[writer, &["--store", store]].concat());
        assert!(error.contains("read-only"), "{error}");
        assert!(error.contains("writable, or name another"), "{error}");
    }
    let new = p.error(&["tune", OP, "--store", "sub/new.sqlite"]);
    assert!(new.contains("directory exists, is writable"), "{new}");
    allow(&sub, 0o755);
}

#[test]
fn a_store_out_of_reach_is_not_taken_for_none() {
    let folder = tempdir().unwrap();
    let mut p = place(&folder);
    let sub = folder.path().join("sub");
    std::fs::create_dir(&sub).unwrap();
    std::fs::copy(&tuned().store, sub.join("s.sqlite")).unwrap();
    p.ok(&["records", "export", "all.jsonl", "--store", &tuned().store]);
    std::fs::set_permissions(&sub, Permissions::from_mode(0o000)).unwrap();
    p.before = Some(obey_permissions);
    for command in [
        &["compile", OP][..],
        &["tasks", OP],
        &["check", OP],
        &["records"],
        &["replay", "--run", "a"],
        &["tune", OP, "--trials", "1"],
        &["records", "import", "all.jsonl"],
    ] {
        let error = p.error(&[command, &["--store", "sub/s.sqlite"]].concat());
        assert!(error.contains("the store sub/s.sqlite: "), "{error}");
    }
    std::fs::set_permissions(&sub, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn reading_makes_no_store() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let threads = ["--threads", "1"];
    for command in ["compile", "tasks", "check"] {
        p.ok(&[&[command, OP][..], &threads].concat());
        p.ok(&[&[command, OP, "--store", "new.sqlite"][..], &threads].concat());
    }
    assert!(!folder.path().join("new.sqlite").exists());
    assert!(!folder.path().join("data").exists());
}

#[test]
fn records_for_other_threads_are_pointed_at() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let compiled = |threads| {
        p.warnings(&[
            "compile",
            OP,
            "--threads",
            threads,
            "--store",
            &t.store,
            "--out",
            "o.tsm",
        ])
    };
    let said = compiled("2");
    says(
        &said,
        &[
            "no schedule was measured for 2 threads",
            "1 schedule for 1 thread; give --threads 1",
        ],
    );
    assert!(!compiled("1").contains("give --threads"));
    let listed = ["tasks", OP, "--threads", "2", "--store", &t.store];
    says(
        &p.warnings(&listed),
        &["1 schedule for 1 thread; give --threads 1"],
    );
    says(&compiled("2048"), &["2048 threads share"]);
}
