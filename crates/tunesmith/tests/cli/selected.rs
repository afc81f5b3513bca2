//! What is made of the choice among the alternatives of a model's steps.

use super::errors::says;
use super::program::{Sandbox, place};
use std::collections::HashSet;
use std::fs;
use tempfile::tempdir;

/// Small, and computed by every algorithm of convolutions.
const CONVOLUTION: &str = "op:conv2d(c=16,h=12,w=12,k=16,r=3,s=3,pad=1)";

#[test]
fn a_decided_model_is_written_without_the_alternatives_that_lost() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    p.ok(&[
        "compile",
        CONVOLUTION,
        "--threads",
        "1",
        "--alternatives",
        "im2row,convgemm,winograd2,winograd4",
        "--out",
        "m.tsm",
    ]);
    let one = |command: &[&str]| p.json(&[command, &["--threads", "1"]].concat());
    // Twenty times as long for the decisions.
    let bench = ["bench", "m.tsm", "--time", "0.5s", "--decisions", "d"];
    let error = p.error(&[&bench[..4], &["--out", "decided.tsm"]].concat());
    assert!(error.contains("--select online"), "{error}");
    let more = ["--select", "online", "--out", "decided.tsm"];
    let written = one(&[&bench[..], &more].concat());
    let bytes = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
    assert_eq!(written["bytes"].as_u64(), Some(bytes("decided.tsm")));
    assert!(bytes("decided.tsm") < bytes("m.tsm"), "{written}");
    // It computes what the decided model computes, by the same kernels.
    let run = ["run", "--random", "1"];
    one(&[
        &run[..],
        &[
            "m.tsm",
            "--select",
            "online",
            "--decisions",
            "d",
            "--out",
            "all.npy",
        ],
    ]
    .concat());
    one(&[&run[..], &["decided.tsm", "--out", "left.npy"]].concat());
    let values = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(values("all.npy") == values("left.npy"));
    alternatives_are_explained(&p);
    assert_eq!(
        one(&["check", CONVOLUTION, "--artifact", "decided.tsm"])["ok"],
        true
    );
    // Nothing is left to be chosen.
    let error = p.error(&[
        "bench",
        "decided.tsm",
        "--threads",
        "1",
        "--select",
        "online",
    ]);
    assert!(error.contains("no step with alternatives"), "{error}");
}

/// Of `m.tsm`, which decided as `d` says.
fn alternatives_are_explained(p: &Sandbox) {
    let explain = ["explain", "m.tsm", "--threads", "1", "--time", "0s"];
    let open = &p.json(&explain)["choices"];
    assert_eq!(open["known"], false);
    let steps = open["steps"].as_array().unwrap();
    let alternatives = steps[0]["alternatives"].as_array().unwrap();
    let names: Vec<&str> = alternatives.iter().map(|a| a.as_str().unwrap()).collect();
    for name in ["convgemm", "im2row", "winograd2", "winograd4"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let apart: HashSet<&&str> = names.iter().collect();
    assert_eq!(apart.len(), names.len(), "{names:?}");
    assert!(steps[0]["decided"].is_null(), "{open}");
    let with = [&explain[..], &["--decisions", "d"]].concat();
    let report = p.json(&with);
    let decided = report["choices"]["steps"][0]["decided"].as_str().unwrap();
    assert!(names.contains(&decided), "{report}");
    // The layer is explained as it runs.
    let at = steps[0]["index"].as_u64().unwrap() as usize;
    let layer = &report["layers"][at]["algorithm"];
    let (algorithm, _) = decided.split_once(' ').unwrap_or((decided, ""));
    assert!(layer.as_str().unwrap().starts_with(algorithm), "{report}");
    let text = p.on_screen(80, &with);
    says(&text, &["1 step with alternatives", "decided", decided]);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    p.ok(&[&with[..], &["--html", "page.html"]].concat());
    let page = fs::read_to_string(p.folder.join("page.html")).unwrap();
    says(&page, &["Steps with alternatives", decided]);
    let error = p.error(&[&explain[..], &["--decisions", "none"]].concat());
    assert!(error.contains("there is no such file"), "{error}");
    let error = p.error(&["explain", CONVOLUTION, "--decisions", "d"]);
    assert!(error.contains("--artifact"), "{error}");
}

#[test]
fn steps_that_may_keep_columns_are_explained_as_groups() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let compile = [
        "compile",
        "vgg16-cifar",
        "--train",
        "--batch",
        "2",
        "--defaults",
    ];
    let kept = [
        "--alternatives",
        "im2row,direct",
        "--threads",
        "1",
        "--out",
        "t.tsm",
    ];
    p.ok(&[&compile[..], &kept].concat());
    let explain = ["explain", "t.tsm", "--threads", "1", "--time", "0s"];
    let choices = &p.json(&explain)["choices"];
    let groups = choices["groups"].as_array().unwrap();
    assert!(!groups.is_empty(), "{choices}");
    for (at, g) in groups.iter().enumerate() {
        let saved = g["saved"].as_array().unwrap();
        assert_eq!(saved.len(), 1, "{g}");
        assert!(saved[0]["mbytes"].as_f64() > Some(0.0), "{g}");
        let set = g["sets"][0].as_str().unwrap();
        assert!(set.starts_with("columns+"), "{g}");
        let steps = choices["steps"].as_array().unwrap().iter();
        let own = steps.filter(|s| s["group"].as_u64() == Some(at as u64));
        assert_eq!(own.count(), g["steps"].as_array().unwrap().len());
    }
    let text = p.on_screen(80, &explain);
    says(&text, &["of steps that run apart or one set", "columns"]);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
}

#[test]
fn a_study_of_training_shows_forward_and_backward_beside_each_other() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let step = [
        "study",
        "select",
        "op:conv2d(c=16,h=12,w=12,k=16,r=3,s=3,pad=1)",
        "--train",
    ];
    let error = p.error(&step);
    assert!(error.contains("cannot be trained"), "{error}");
    let all = p.json(&[
        "study",
        "select",
        "vgg16-cifar",
        "--train",
        "--alternatives",
        "im2row,direct",
        "--time",
        "0.1s",
        "--defaults",
    ]);
    let run = &all["runs"][0];
    assert_eq!(run["training"], true);
    let lengths = run["runs"].as_array().unwrap().iter();
    let lengths: Vec<_> = lengths.map(|r| r["inferences"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [120, 9600]);
    let winners = run["winners"].as_array().unwrap();
    let layers = winners.iter().map(|w| w["equal"].as_u64().unwrap());
    assert_eq!(layers.sum::<u64>(), 13);
    // The first layer has no gradient of its data; every other one has a choice in each pass.
    let passes = |w: &serde_json::Value| {
        let all = w["passes"].as_array().unwrap().iter();
        all.filter(|c| !c.is_null()).count()
    };
    assert_eq!(passes(&winners[0]), 2);
    assert!(winners[1..].iter().all(|w| passes(w) == 3), "{run}");
    // Groups of equal layers stand there once.
    let groups = run["groups"].as_array().unwrap();
    let equal = groups.iter().map(|g| g["equal"].as_u64().unwrap());
    assert!(groups.len() < equal.sum::<u64>() as usize, "{run}");
}

fn study<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let usual = [
        "study",
        "select",
        CONVOLUTION,
        "--time",
        "0.1s",
        "--defaults",
    ];
    [&usual[..], more].concat()
}

#[test]
fn a_study_compares_the_choice_made_online_with_fixed_ones() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let all = p.json(&study(&["--threads", "1,2", "--plot", "p.svg"]));
    let runs = all["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for (run, threads) in runs.iter().zip([1, 2]) {
        assert_eq!(run["threads"], threads);
        assert_eq!(run["batch"], 1);
        let fixed = run["fixed"].as_array().unwrap();
        assert_eq!(fixed[0]["choice"], "first");
        let names: Vec<&str> = fixed
            .iter()
            .map(|f| f["choice"].as_str().unwrap())
            .collect();
        for name in ["convgemm", "im2row", "winograd2", "winograd4"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let median = |f: &serde_json::Value| f["median_ms"].as_f64().unwrap();
        let best = &fixed[run["best"].as_u64().unwrap() as usize];
        assert!(fixed.iter().all(|f| median(f) >= median(best)), "{run}");
        assert!(run["differing"].as_u64() <= Some(1), "{run}");
        let exploring = &run["exploring"];
        let explored = exploring["samples_ns"].as_array().unwrap().len() as u64;
        assert_eq!(exploring["inferences"].as_u64(), Some(explored));
        assert!(run["overhead"]["ratio"].as_f64().unwrap() > 0.0);
        let layer = &run["layers"][0];
        let tried = layer["alternatives"].as_array().unwrap();
        // Each fixed choice ran in turns with it, however soon all was decided.
        assert!(explored >= fixed.len() as u64, "{run}");
        assert!(
            tried.iter().all(|t| t["median_ms"].as_f64() > Some(0.0)),
            "{layer}"
        );
        // A numbered algorithm is found by way of its family.
        let chosen = &tried[layer["chosen"].as_u64().unwrap() as usize]["algorithm"];
        let by_family = chosen.as_str().unwrap().starts_with("winograd");
        assert_eq!(
            layer["families"] == serde_json::json!(["winograd"]),
            by_family
        );
    }
    let picture = fs::read_to_string(folder.path().join("p.svg")).unwrap();
    assert!(
        picture.starts_with("<svg") && picture.contains("convgemm"),
        "{picture}"
    );
    // One layer on each number of threads: its tree has one winner, and the node of the nested choice.
    let lines = |end: &str| picture.lines().filter(|l| l.ends_with(end)).count();
    assert_eq!(lines(", chosen"), 2, "{picture}");
    assert_eq!(lines("winograd"), 2, "{picture}");
    let text = p.ok(&study(&[]));
    for part in [
        "online gains",
        "inferences decided",
        "*",
        "Decisions:",
        " -> ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let error = p.error(&[
        "study",
        "select",
        super::program::OP,
        "--alternatives",
        "winograd",
        "--defaults",
    ]);
    assert!(error.contains("--alternatives"), "{error}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_study_of_several_targets_sets_their_winners_side_by_side() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let all = p.json(&study(&["--target", "x86-sse2,host,host"]));
    let runs = all["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["target"], "x86-sse2");
    let beside = all["by_target"].as_array().unwrap();
    assert_eq!(beside.len(), 1);
    let targets: Vec<&serde_json::Value> = runs.iter().map(|r| &r["target"]).collect();
    let named: Vec<&serde_json::Value> = beside[0]["targets"].as_array().unwrap().iter().collect();
    assert_eq!(named, targets);
    let layer = &beside[0]["layers"][0];
    let winners = layer["winners"].as_array().unwrap();
    let mut names = Vec::new();
    for (run, winner) in runs.iter().zip(winners) {
        let own = &run["layers"][0];
        let chosen = &own["alternatives"][own["chosen"].as_u64().unwrap() as usize];
        assert_eq!(winner["algorithm"], chosen["algorithm"]);
        names.push(&winner["algorithm"]);
    }
    assert_eq!(layer["differ"], names[0] != names[1]);
    let text = p.ok(&study(&["--target", "x86-sse2,host"]));
    says(
        &text,
        &[
            "winners differ between the targets in",
            "x86-sse2",
            "differ",
        ],
    );
    let one = p.json(&study(&[]));
    assert_eq!(one["by_target"], serde_json::json!([]));
    let error = p.error(&study(&["--target", "aarch64-neon"]));
    assert!(error.contains("cannot run here"), "{error}");
    let error = p.error(&study(&["--target", "x86-avx3"]));
    assert!(error.contains("there is no target `x86-avx3`"), "{error}");
}
