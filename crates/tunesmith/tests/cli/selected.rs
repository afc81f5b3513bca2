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
    let online = &written["online"];
    assert!(online["released_mbytes"].as_f64() > Some(0.0), "{online}");
    assert!(online["kept_mbytes"].as_f64() > Some(0.0), "{online}");
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
    // What lost is let go between two inferences.
    let again = ["--select", "online", "--decisions", "d", "--repeat", "3"];
    let ran = one(&[&run[..], &["m.tsm", "--out", "again.npy"], &again].concat());
    assert!(ran["released_bytes"].as_u64() > Some(0), "{ran}");
    assert!(values("again.npy") == values("left.npy"));
    let text = p.ok(&[&run[..], &["m.tsm", "--threads", "1"], &again].concat());
    says(&text, &["MB of what lost are released"]);
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
    // As for `bench`, the first need not be there, and the others say what it does not.
    let shipped = ["--decisions", "none", "--decisions", "d"];
    let shipped = &p.json(&[&explain[..], &shipped].concat())["choices"];
    assert_eq!(shipped["steps"][0]["decided"], decided);
    let error = p.error(&[&explain[..], &["--decisions", "d", "--decisions", "m.tsm"]].concat());
    assert!(error.contains("m.tsm is a compiled model"), "{error}");
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
    // What the same steps decide without groups is lost here, and that is said once.
    let apart = ["--keep-columns", "0", "--out", "apart.tsm"];
    p.ok(&[&compile[..], &kept[..4], &apart].concat());
    p.ok(&[&["bench", "apart.tsm"][..], &ONLINE, &["d"]].concat());
    let said = p.warnings(&[&explain[..], &["--decisions", "d"]].concat());
    says(
        &said,
        &["in groups of steps in this compiled model", " more"],
    );
    assert_eq!(said.matches("decide anew").count(), 1, "{said}");
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

const ONLINE: [&str; 7] = [
    "--select",
    "online",
    "--time",
    "0.2s",
    "--threads",
    "1",
    "--decisions",
];

/// Compiles the convolution with its default and these algorithms.
fn keep(p: &Sandbox, algorithms: &str, out: &str) {
    let compile = ["compile", CONVOLUTION, "--defaults", "--threads", "1"];
    p.ok(&[&compile[..], &["--alternatives", algorithms, "--out", out]].concat());
}

#[test]
fn decisions_hold_for_other_alternatives_beside_the_chosen_one() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    keep(&p, "im2row,convgemm,winograd2,winograd4", "all.tsm");
    let bench = |model: &str, files: &[&str]| {
        let mut command = ["bench", model].to_vec();
        command.extend(ONLINE);
        let files = files.join(" --decisions ");
        command.extend(files.split(' '));
        p.json(&command)["online"].take()
    };
    let first = bench("all.tsm", &["d"]);
    let chosen = first["chosen"][0]["algorithm"].as_str().unwrap();
    assert!(first["explored"].as_u64() > Some(0), "{first}");
    keep(&p, &format!("{chosen},im2row"), "less.tsm");
    let second = bench("less.tsm", &["d"]);
    assert_eq!(second["explored"], 0, "{second}");
    assert_eq!(second["chosen"][0]["algorithm"], chosen);
    // What a shipped file knows need not be tried, and is kept in the user's own.
    let third = bench("all.tsm", &["own", "d"]);
    assert_eq!(third["explored"], 0, "{third}");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("own"), read("d"));

    // Another code of the chosen algorithm.
    let text = read("d");
    let line = text.lines().find(|l| l.starts_with("decision")).unwrap();
    let hash = line.split('\t').nth(3).unwrap().split(' ').nth(1).unwrap();
    fs::write(
        folder.path().join("gone"),
        text.replace(hash, "0123456789abcdef"),
    )
    .unwrap();
    let online = [&["bench", "all.tsm"][..], &ONLINE].concat();
    let said = p.warnings(&[&online[..], &["gone"]].concat());
    assert!(said.contains("has no such kernel"), "{said}");
    assert_eq!(bench("all.tsm", &["gone"])["explored"], 0);
    // The table of what is known has no columns of times.
    let known = p.ok(&[&online[..], &["d"]].concat());
    assert!(
        known.contains("among") && !known.contains("im2row ms"),
        "{known}"
    );
}

#[test]
fn what_holds_no_decisions_is_called_by_its_name_and_stays() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    keep(&p, "im2row", "m.tsm");
    let online = [&["bench", "m.tsm"][..], &ONLINE].concat();
    p.ok(&[&online[..], &["d"]].concat());
    let text = fs::read_to_string(folder.path().join("d")).unwrap();
    let old = text.replace("validator\tsteps\ttasks\n", "");
    assert_ne!(old, text);
    fs::write(folder.path().join("old"), old).unwrap();
    fs::write(folder.path().join("bytes"), [0xff, 0xfe, 0, 1]).unwrap();
    for (file, why) in [
        ("m.tsm", "m.tsm is a compiled model"),
        ("bytes", "bytes is no file of decisions"),
        ("old", "written by an earlier version"),
    ] {
        let before = fs::read(folder.path().join(file)).unwrap();
        let error = p.error(&[&online[..], &[file]].concat());
        says(&error, &[why]);
        assert!(!error.contains("delete"), "{error}");
        assert!(fs::read(folder.path().join(file)).unwrap() == before);
    }
    let run = [
        "run",
        "m.tsm",
        "--random",
        "1",
        "--threads",
        "1",
        "--select",
        "online",
    ];
    let said = p.ok(&run);
    says(&said, &["bench m.tsm --select online --decisions FILE"]);
    for command in ["compile", "study select"] {
        let words = command.split(' ').collect::<Vec<&str>>();
        let more = [
            CONVOLUTION,
            "--threads",
            "1",
            "--alternatives",
            "bogus,direct",
        ];
        let error = p.error(&[&words[..], &more].concat());
        says(&error, &["begins with `bogus`", "convgemm,"]);
    }
}

#[test]
fn what_tuning_compared_inside_the_model_starts_decided() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let tune = [
        "tune",
        CONVOLUTION,
        "--threads",
        "1",
        "--trials",
        "40",
        "--store",
        "s.sqlite",
    ];
    let error = p.error(&[&tune[..], &["--decisions", "d"]].concat());
    assert!(error.contains("--keep-alternatives"), "{error}");
    let keep = [
        "--keep-alternatives",
        "3",
        "--decisions",
        "d",
        "--out",
        "t.tsm",
    ];
    // Nothing is measured for a file that could not be written.
    let foreign = "bestof 1\nvalidator\tmachine\tanother\nend\t0\n";
    for (text, why) in [
        (foreign, "`machine` is another"),
        ("bestof 1\ndecision\n", "line 2"),
        ("something else\n", "d is no file of decisions"),
    ] {
        fs::write(folder.path().join("d"), text).unwrap();
        let error = p.error(&[&tune[..], &keep].concat());
        says(&error, &[why]);
        assert_eq!(fs::read_to_string(folder.path().join("d")).unwrap(), text);
        assert!(!folder.path().join("t.tsm").exists());
    }
    fs::remove_file(folder.path().join("d")).unwrap();
    let two = [&tune[..], &keep[..], &[super::program::OP]].concat();
    says(&p.error(&two), &["--decisions names one file"]);
    let report = p.json(&[&tune[..], &keep].concat());
    assert!(report["in_model"]["skipped"].is_null(), "{report}");
    let online = [&["bench", "t.tsm"][..], &ONLINE, &["d"]].concat();
    let online = p.json(&online)["online"].take();
    assert_eq!(
        (&online["explored"], &online["decided"]),
        (&0.into(), &true.into()),
        "{online}"
    );
    let chosen = online["chosen"].as_array().unwrap();
    assert!(
        !chosen.is_empty() && chosen.iter().all(|c| c["alternative"] == 0),
        "{online}"
    );
}

#[test]
fn a_study_says_why_a_layer_of_three_channels_has_no_winograd() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let study = ["study", "select", "vgg16-cifar", "--defaults"];
    let short = ["--threads", "1", "--time", "0.1s"];
    let two = ["--alternatives", "im2row,winograd2"];
    let text = p.ok(&[&study[..], &short, &two].concat());
    let note = text.lines().skip_while(|l| !l.contains("do not apply"));
    let note: Vec<&str> = note.take_while(|l| !l.is_empty()).collect();
    let note = note.join(" ");
    says(&note, &["few channels", "conv1_1"]);
    assert!(!note.contains("conv1_2"), "{note}");
}
