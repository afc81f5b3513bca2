//! Rates of scores: in files, from a machine's own records, and where they have an effect.

use super::program::{OP, Sandbox, place};
use serde_json::{Value, json};
use tempfile::tempdir;

/// A file of rates that were fitted on this machine's cycles, changed in one place.
fn rates(p: &Sandbox, name: &str, change: impl Fn(&mut Value)) -> String {
    let score = json!({
        "repeated": 1.0, "alone": 0.0, "load": 0.0, "spill": 0.0, "line": [50.0, 50.0, 50.0],
        "page": 5.0, "fork": 5000.0,
    });
    let mut file = json!({
        "format": "tunesmith-rates", "version": 1, "machine": "elsewhere", "machine_name": "a CPU",
        "score_cpu": "znver3", "threads": 1, "tasks": 2, "points": 90,
        "fitted_unix_ms": 1_700_000_000_000_u64, "reached": null, "rates": score,
    });
    change(&mut file);
    std::fs::write(p.folder.join(name), file.to_string()).unwrap();
    p.file(name)
}

/// A target whose code does not run here.
fn foreign() -> &'static str {
    match cfg!(target_arch = "aarch64") {
        true => "riscv64-rvv",
        false => "aarch64-neon",
    }
}

fn read_only() -> Vec<&'static str> {
    let ask = ["tune", OP, "--evaluate", "static", "--trials", "6"];
    let out = ["--threads", "1", "--out", "m.tsm", "--target", foreign()];
    [ask, out].concat()
}

#[test]
fn rates_of_a_file_change_what_is_predicted() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let usual = p.json(&read_only());
    assert_eq!(usual["rates"], "usual");
    let file = rates(&p, "r.json", |_| {});
    let other = p.json(&[&read_only()[..], &["--rates", &file]].concat());
    assert_eq!(other["rates"], file);
    assert_ne!(other["default_cycles"], usual["default_cycles"]);
    // Of one target, processor and trace.
    let dump = ["dump", OP, "--stage", "machine", "--threads", "1"];
    let score = |args: &[&str]| {
        let text = p.ok(&[&dump[..], args].concat());
        let score = text.lines().find_map(|l| l.strip_prefix("score "));
        score.unwrap().to_string()
    };
    assert_ne!(score(&[]), score(&["--rates", &file]));
    let explain = [
        "explain",
        OP,
        "--threads",
        "1",
        "--time",
        "0.1s",
        "--predict",
    ];
    let report = p.json(&[&explain[..], &["--rates", &file]].concat());
    assert_eq!(report["rates"], file);
    let terms = &report["predicted"][0]["terms"];
    assert_eq!(terms["loads"], 0.0);
}

#[test]
fn files_that_are_no_rates_are_refused_by_name() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let error = |file: &str| p.error(&[&read_only()[..], &["--rates", file]].concat());
    std::fs::write(p.folder.join("foreign"), "no JSON").unwrap();
    let damaged = rates(&p, "damaged", |f| f["rates"]["load"] = json!(-1.0));
    let newer = rates(&p, "newer", |f| f["version"] = json!(9));
    for (file, why) in [
        (p.file("foreign"), "no file of rates"),
        (damaged, "the rates are damaged: a rate is less than 0"),
        (newer, "version 9"),
        (p.file("none"), "there is no file"),
    ] {
        let error = error(&file);
        assert!(error.contains(why) && error.contains(&file), "{error}");
    }
}

#[test]
fn options_without_an_effect_are_refused() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let compile = ["compile", OP, "--threads", "1"];
    let choose = "--choose static";
    let explain = ["explain", OP, "--threads", "1"];
    let dump = ["dump", OP, "--threads", "1", "--stage", "flat"];
    let trials = ["tune", OP, "--threads", "1", "--trials", "2"];
    for (command, option, advice) in [
        (&compile[..], ["--score-cpu", "znver3"], choose),
        (&compile[..], ["--rates", "r.json"], choose),
        (&compile[..], ["--choose-time", "1s"], choose),
        (&explain[..], ["--rates", "r.json"], "--predict"),
        (&dump[..], ["--score-cpu", "znver3"], "--stage machine"),
        (&trials[..], ["--rates", "r.json"], "--read-time"),
        (&trials[..], ["--export-top", "3"], "--evaluate static"),
        (
            &read_only()[..],
            ["--budget", "gradient"],
            "leave --budget out",
        ),
        (
            &read_only()[..],
            ["--builders", "1"],
            "leave --builders out",
        ),
        (
            &read_only()[..],
            ["--compare-time", "1s"],
            "leave --compare-time out",
        ),
    ] {
        let error = p.error(&[command, &option].concat());
        let says = error.contains(option[0]) && error.contains("has no effect here");
        assert!(says && error.contains(advice), "{error}");
    }
    let error = p.error(&[&read_only()[..], &["--filter", "score"]].concat());
    assert!(error.contains("--filter loops"), "{error}");
    p.ok(&[&read_only()[..], &["--filter", "loops"]].concat());
}

#[test]
fn rates_are_fitted_on_records_and_used_beside_their_store() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let store = ["--threads", "1", "--store", "s.sqlite"];
    let with = |args: &[&'static str]| [args, &store[..]].concat();
    let calibrate = |more: &[&'static str]| [&with(&["calibrate", OP])[..], more].concat();
    let none = p.error(&calibrate(&[]));
    assert!(none.contains("there is no store"), "{none}");
    p.ok(&with(&["tune", OP, "--trials", "8", "--out", "m.tsm"]));
    let few = p.error(&calibrate(&["--least-points", "500"]));
    let says = [
        "too few records",
        "needs 500",
        "tunesmith tune",
        "--threads 1",
    ];
    assert!(says.iter().all(|s| few.contains(s)), "{few}");
    // Nothing judges a fit on one task.
    let usual = p.json(&calibrate(&["--least-points", "2"]));
    assert_eq!(
        (&usual["kept"], &usual["written"]),
        (&json!("usual"), &Value::Null)
    );
    assert_eq!(usual["fitted"], Value::Null);
    let n = usual["points"].as_u64().unwrap();
    assert!(n > 2, "{usual}");
    let text = p.ok(&calibrate(&[
        "--least-points",
        "2",
        "--points-out",
        "points.json",
    ]));
    let points = std::fs::read_to_string(folder.path().join("points.json")).unwrap();
    let points: Value = serde_json::from_str(&points).unwrap();
    let of_task = points["tasks"][0]["task"]["points"].as_array().unwrap();
    assert!(of_task.len() as u64 >= n, "{points}");
    assert!(
        text.contains("--force") && text.contains("nothing was written"),
        "{text}"
    );
    let fitted = p.json(&calibrate(&[
        "--least-points",
        "2",
        "--force",
        "--points",
        "3",
    ]));
    assert_eq!(
        (&fitted["kept"], &fitted["points"]),
        (&json!("fitted"), &json!(n.min(3)))
    );
    let path = fitted["written"].as_str().unwrap();
    let file: Value =
        serde_json::from_str(&std::fs::read_to_string(p.folder.join(path)).unwrap()).unwrap();
    assert_eq!(file["rates"], fitted["fitted_rates"]);
    // Every command finds them beside the store, and only there.
    let explain = ["explain", OP, "--time", "0.1s", "--predict"];
    assert_eq!(p.json(&with(&explain))["rates"], path);
    assert_eq!(
        p.json(&[&explain[..], &["--threads", "1"]].concat())["rates"],
        "usual"
    );
    // They were fitted on cycles of another processor than those of that target.
    let read = [&read_only()[..], &["--store", "s.sqlite"]].concat();
    assert_eq!(p.json(&read)["rates"], "usual");
    // A damaged file is named, and replaced by new rates.
    let whole = std::fs::read_to_string(p.folder.join(path)).unwrap();
    std::fs::write(p.folder.join(path), &whole[..whole.len() / 2]).unwrap();
    let error = p.error(&with(&explain));
    assert!(error.contains(path) && error.contains("damaged"), "{error}");
    p.ok(&calibrate(&["--least-points", "2", "--force"]));
    assert_eq!(p.json(&with(&explain))["rates"], path);
}

#[test]
fn fitted_rates_are_kept_if_they_rank_other_tasks_no_worse() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let other = "op:dense(m=4,n=64,k=16)";
    let store = ["--threads", "1", "--store", "s.sqlite"];
    let tune = ["tune", OP, other, "--trials", "12", "--out", "both"];
    p.ok(&[&tune[..], &store].concat());
    let calibrate = [
        "calibrate",
        OP,
        other,
        "--least-points",
        "2",
        "--out",
        "r.json",
    ];
    let report = p.json(&[&calibrate[..], &store].concat());
    assert_eq!(report["tasks"].as_array().unwrap().len(), 2);
    let figure = |rates: &str, name: &str| report[rates][name].as_f64().unwrap();
    let no_worse = ["spearman", "ratio_10"]
        .iter()
        .all(|name| figure("fitted", name) >= figure("usual", name));
    assert_eq!(report["no_worse"], no_worse);
    assert_eq!(report["kept"], if no_worse { "fitted" } else { "usual" });
    assert_eq!(p.folder.join("r.json").exists(), no_worse);
    let text = p.ok(&[&calibrate[..], &["--force"], &store].concat());
    assert!(
        text.contains("each task left out") && text.contains("--rates r.json"),
        "{text}"
    );
}
