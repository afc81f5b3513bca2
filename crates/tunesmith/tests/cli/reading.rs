//! Choosing without running: static scores, other targets, and the studies of them.

use super::program::{OP, Sandbox, place};
use std::path::Path;
use tempfile::tempdir;

#[test]
fn a_target_that_does_not_run_here_is_tuned_by_reading() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let foreign = match cfg!(target_arch = "aarch64") {
        true => ["--target", "riscv64-rvv"],
        false => ["--target", "aarch64-neon"],
    };
    let ask = [
        &[
            "tune",
            OP,
            "--evaluate",
            "static",
            "--trials",
            "12",
            "--threads",
            "1",
        ][..],
        &foreign,
    ];
    let ask = ask.concat();
    let report = p.json(&[&ask[..], &["--export-top", "3", "--out", "m.tsm"]].concat());
    assert_eq!(report["target"], foreign[1]);
    let task = &report["tasks"][0];
    let best = task["best"].as_array().unwrap();
    assert!((1..=3).contains(&best.len()), "{report}");
    let cycles = |v: &serde_json::Value| v["cycles"].as_f64().unwrap();
    let ratio = |v: &serde_json::Value| v["time_ratio"].as_f64().unwrap();
    assert!(
        best.windows(2).all(|w| ratio(&w[0]) <= ratio(&w[1])),
        "{report}"
    );
    assert!(task["default_cycles"].as_f64().unwrap() >= cycles(task));
    // The traces are those of the task: each can be read once more.
    let trace = best[0]["trace"].as_str().unwrap();
    std::fs::write(folder.path().join("best.trace"), trace).unwrap();
    let dump = [
        &[
            "dump",
            OP,
            "--stage",
            "machine",
            "--candidate",
            "best.trace",
            "--threads",
            "1",
        ][..],
        &foreign,
    ];
    let text = p.ok(&dump.concat());
    let score = text.lines().find_map(|l| l.strip_prefix("score ")).unwrap();
    assert_eq!(score, format!("{:.0}", cycles(&best[0])));
    assert!(folder.path().join("m.tsm").exists());
    // Two processors are two scores.
    let other = [
        "--score-cpu",
        if cfg!(target_arch = "aarch64") {
            "sifive-p470"
        } else {
            "cortex-a55"
        },
    ];
    let on_other = p.json(&[&ask[..], &other, &["--out", "n.tsm"]].concat());
    assert_ne!(cycles(&on_other["tasks"][0]), cycles(task));
}

#[test]
fn lines_are_of_the_caches_of_the_processor_that_is_named() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let target = ["--target", "aarch64-neon", "--threads", "1"];
    let caches = |cpu: &str| {
        let dump = ["dump", OP, "--stage", "machine", "--score-cpu", cpu];
        let text = p.ok(&[&dump[..], &target].concat());
        let starts = ["L1", "L2", "last level"];
        let lines = text
            .lines()
            .filter(|l| starts.iter().any(|s| l.starts_with(s)));
        lines
            .map(|l| l.split(':').next().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    let a72 = [
        "L1 of 32768 bytes in 2 ways",
        "L2 of 1048576 bytes in 16 ways",
        "last level of 1048576 bytes in 16 ways",
    ];
    assert_eq!(caches("cortex-a72"), a72);
    let v2 = [
        "L1 of 65536 bytes in 4 ways",
        "L2 of 2097152 bytes in 8 ways",
        "last level of 33554432 bytes in 16 ways",
    ];
    assert_eq!(caches("neoverse-v2"), v2);
    // Builders count the same lines as the dump, and no key tells them apart.
    let read = |cpu: &str| {
        let tune = ["tune", OP, "--evaluate", "static", "--trials", "1"];
        let args = [&tune[..], &target, &["--score-cpu", cpu]].concat();
        (p.json(&args), p.warnings(&args))
    };
    let (known, said) = read("cortex-a72");
    assert!(!said.contains("the caches of"), "{said}");
    let dump = [
        "dump",
        OP,
        "--stage",
        "machine",
        "--score-cpu",
        "cortex-a72",
    ];
    let text = p.ok(&[&dump[..], &target].concat());
    let score = text.lines().find_map(|l| l.strip_prefix("score ")).unwrap();
    let default = known["tasks"][0]["default_cycles"].as_f64().unwrap();
    assert_eq!(score, format!("{default:.0}"));
    let (_, said) = read("exynos-m3");
    assert_eq!(said.matches("the caches of exynos-m3").count(), 1, "{said}");
}

#[test]
fn a_processor_without_a_model_is_refused_by_name() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let ask = [
        "tune",
        OP,
        "--evaluate",
        "static",
        "--target",
        "riscv64-rvv",
        "--score-cpu",
    ];
    let unknown = p.error(&[&ask[..], &["no-such-cpu"]].concat());
    assert!(
        unknown.contains("no-such-cpu") && unknown.contains("--score-cpu"),
        "{unknown}"
    );
    let no_model = p.error(&[&ask[..], &["generic-rv64"]].concat());
    assert!(
        no_model.contains("no scheduling model") && no_model.contains("generic-rv64"),
        "{no_model}"
    );
    let tuned = p.error(&["compile", OP, "--tune-cpu", "no-such-cpu"]);
    assert!(tuned.contains("--tune-cpu no-such-cpu"), "{tuned}");
}

#[test]
fn compile_chooses_by_reading_for_as_long_as_it_is_told() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let ask = [
        "compile",
        OP,
        "--threads",
        "1",
        "--choose",
        "static",
        "--choose-time",
        "2s",
    ];
    let made = p.json(&[&ask[..], &["--out", "m.tsm"]].concat());
    assert!(made["read_tasks"].as_u64().unwrap() <= made["tasks"].as_u64().unwrap());
    let check = p.json(&["check", OP, "--artifact", "m.tsm", "--threads", "1"]);
    assert_eq!(check["ok"], true);
}

#[test]
fn explain_says_what_is_predicted_of_each_layer() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let ask = [
        "explain",
        OP,
        "--threads",
        "1",
        "--time",
        "0.1s",
        "--predict",
    ];
    let report = p.json(&ask);
    let predicted = report["predicted"].as_array().unwrap();
    assert_eq!(predicted.len(), report["layers"].as_array().unwrap().len());
    let terms = &predicted[0]["terms"];
    assert!(terms["pipeline"].as_f64().unwrap() > 0.0, "{report}");
    assert!(p.ok(&ask).contains("predicted by the model of"));
}

#[test]
fn recorded_points_are_judged_again() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let points = p.ok(&["study", "rank", OP, "--points", "16", "--json"]);
    std::fs::write(folder.path().join("points.json"), points).unwrap();
    let judged = p.json(&["study", "static", "points.json"]);
    let scores = judged["scores"].as_array().unwrap();
    assert_eq!(scores[0]["score"], "default");
    for name in ["Halide's form", "doctor's rates, roofline"] {
        let judged = scores.iter().any(|s| s["score"] == name);
        // One program leaves none to learn from.
        assert_eq!(judged, name != "Halide's form", "{name}: {judged}");
    }
    let limits = judged["study"]["limits"].as_str().unwrap();
    assert!(
        limits.contains("this machine, as the points are"),
        "{limits}"
    );
    let points = std::fs::read_to_string(folder.path().join("points.json")).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&points).unwrap();
    other["study"]["machine"] = "another CPU".into();
    std::fs::write(folder.path().join("other.json"), other.to_string()).unwrap();
    let said = p.ok(&["study", "static", "other.json"]);
    assert!(!said.contains("doctor's rates, roofline"), "{said}");
    assert!(
        said.contains("another CPU") && said.contains("--machine"),
        "{said}"
    );
    let (overall, kinds) = (&judged["means"][0], judged["kinds"].as_array().unwrap());
    assert_eq!(
        (&overall["ratio_10"], kinds.len()),
        (&kinds[0]["ratio_10"], 1)
    );
    assert!(
        p.ok(&["study", "static", "points.json", "--tasks"])
            .contains("without lines")
    );
    p.ok(&["study", "static", "points.json", "--learn", "trees"]);
    let trees = std::fs::read_to_string(folder.path().join("trees")).unwrap();
    assert!(trees.starts_with("tunesmith-model"), "{trees}");
    let error = p.error(&["study", "static", "/dev/null"]);
    assert!(error.contains("study rank"), "{error}");
}

#[test]
fn the_best_known_candidates_are_ranked_beside_the_random_ones() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&[
        "tune",
        OP,
        "--threads",
        "1",
        "--trials",
        "6",
        "--out",
        "m.tsm",
    ]);
    let ask = ["study", "rank", OP, "--points", "4"];
    // As many as were measured: more than the random ones, among which some of them may be.
    let with_known = [&ask[..], &["--best", "6"]].concat();
    let ranked = p.json(&with_known);
    let task = &ranked["tasks"][0];
    let counts = &task["counts"];
    let (drawn, known) = (&counts["drawn"], counts["known"].as_u64().unwrap());
    // The default is one of them, and counts as drawn.
    assert!((1..=6).contains(&known) && *drawn == 4, "{counts}");
    let points = task["task"]["points"].as_array().unwrap();
    let marked = points.iter().filter(|p| p["known"] == true).count();
    assert_eq!((points.len() as u64, marked as u64), (4 + known, known));
    assert!(p.ok(&with_known).contains("known"));
    let error = p.error(&[&ask[..], &["--store", "none.sqlite"]].concat());
    assert!(error.contains("--best"), "{error}");
}

#[test]
fn alternatives_are_chosen_among_while_the_model_runs() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&[
        "compile",
        OP,
        "--threads",
        "1",
        "--keep-alternatives",
        "3",
        "--out",
        "m.tsm",
    ]);
    let check = p.json(&["check", OP, "--artifact", "m.tsm", "--threads", "1"]);
    assert_eq!(check["ok"], true);
    // Twenty times as long for the decisions.
    let bench = [
        "bench",
        "m.tsm",
        "--threads",
        "1",
        "--time",
        "0.5s",
        "--select",
        "each",
        "--decisions",
        "d",
    ];
    let first = p.json(&bench)["online"].clone();
    let n = first["alternatives"].as_u64().unwrap();
    assert!(n > 1, "{first}");
    // The first alternatives, and each algorithm for itself.
    let fixed = first["fixed"].as_array().unwrap();
    assert_eq!(fixed[0]["choice"], "first");
    assert!(fixed.len() > 1, "{first}");
    let chosen = &first["chosen"][0];
    let tried = chosen["alternatives"].as_array().unwrap();
    let at = chosen["alternative"].as_u64().unwrap() as usize;
    assert_eq!(tried[at]["algorithm"], chosen["algorithm"]);
    assert!(tried.iter().all(|t| t["median_ms"].as_f64().unwrap() > 0.0));
    // Two alternatives at least ran, however soon one of them was dropped.
    assert!(first["explored"].as_u64().unwrap() >= 2);
    // The second run starts decided, and as the first one decided.
    let second = p.json(&bench)["online"].clone();
    assert_eq!(second["explored"], 0);
    assert_eq!(second["chosen"][0]["alternative"], chosen["alternative"]);
    // So does `run`, which decides by inferences of its own as well.
    let run = [
        "run",
        "m.tsm",
        "--threads",
        "1",
        "--random",
        "1",
        "--select",
        "online",
    ];
    let decided = |more: &[&str]| p.json(&[&run[..], more].concat())["decided"].clone();
    assert_eq!(decided(&["--decisions", "d"]), true);
    assert_eq!(decided(&[]), false);
    assert_eq!(decided(&["--repeat", "100"]), true);
    refuses_decisions(&p, &bench, folder.path());
}

/// A file that was made elsewhere is refused by name, and a model without alternatives.
fn refuses_decisions(p: &Sandbox, bench: &[&str], folder: &Path) {
    let path = folder.join("d");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("validator\tthreads\t1", "validator\tthreads\t9"),
    )
    .unwrap();
    let error = p.error(bench);
    assert!(
        error.contains("`threads` is 9, and here it is 1"),
        "{error}"
    );
    let none = p.error(&[
        "bench",
        &super::program::tuned().artifact,
        "--threads",
        "1",
        "--select",
        "online",
    ]);
    assert!(none.contains("--keep-alternatives"), "{none}");
}

#[test]
fn alternatives_are_of_the_algorithms_that_were_asked_for() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let op = "op:conv2d(c=16,h=12,w=12,k=16,r=3,s=3,pad=1)";
    let names = "im2row,convgemm,winograd2,winograd4";
    p.ok(&[
        "compile",
        op,
        "--threads",
        "1",
        "--alternatives",
        names,
        "--out",
        "m.tsm",
    ]);
    let check = p.json(&["check", op, "--artifact", "m.tsm", "--threads", "1"]);
    assert_eq!(check["ok"], true);
    let bench = [
        "bench",
        "m.tsm",
        "--threads",
        "1",
        "--time",
        "0.1s",
        "--select",
        "each",
    ];
    let online = p.json(&bench)["online"].clone();
    let fixed = online["fixed"].as_array().unwrap();
    let choices: Vec<&str> = fixed
        .iter()
        .map(|f| f["choice"].as_str().unwrap())
        .collect();
    for name in names.split(',') {
        assert!(choices.contains(&name), "{name}: {choices:?}");
    }
    // The layers' table has a column for each.
    let text = p.ok(&bench);
    for name in names.split(',') {
        assert!(text.contains(&format!("{name} ms")), "{text}");
    }
}

#[test]
fn a_tuned_model_keeps_its_finalists() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&[
        "tune",
        OP,
        "--threads",
        "1",
        "--trials",
        "8",
        "--keep-alternatives",
        "3",
        "--out",
        "m.tsm",
    ]);
    let bench = [
        "bench",
        "m.tsm",
        "--threads",
        "1",
        "--time",
        "0.1s",
        "--select",
        "online",
    ];
    let online = p.json(&bench)["online"].clone();
    assert!(
        (2..=3).contains(&online["alternatives"].as_u64().unwrap()),
        "{online}"
    );
    let check = p.json(&["check", OP, "--artifact", "m.tsm", "--threads", "1"]);
    assert_eq!(check["ok"], true);
}
