//! Commands that build, run and show.

use super::errors::says;
use super::program::{OP, TRIALS, place, tuned};
use graph::{Keep, evaluate};
use onnx::ImportOptions;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use tempfile::tempdir;
use tensor::{Fill, Tensor, compare, fill_tensor, read_npy_file, write_npy_file};

fn value(seed: u64) -> Tensor {
    let fill = Fill::Uniform { lo: -1.0, hi: 1.0 };
    fill_tensor(tensor::DType::F32, &[4, 16], fill, seed)
}

#[test]
fn tune_reports_what_it_did() {
    let t = tuned();
    assert_eq!(t.report["model"], OP);
    assert_eq!(t.report["trials"], TRIALS);
    assert_eq!(t.report["threads"], 1);
    assert_eq!(t.report["artifact"], t.artifact.as_str());
    assert_eq!(t.report["accuracy"], "relaxed");
    assert_eq!(t.report["warnings"], serde_json::json!([]));
    let task = &t.report["tasks"][0];
    assert_eq!(task["trials"], TRIALS);
    assert!(task["after_ms"].as_f64().unwrap() > 0.0);
    assert!(t.report["latency_after_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_accuracy_that_was_asked_for_is_in_the_artifact_and_said_by_all() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    for accuracy in ["strict", "relaxed"] {
        let ask = [OP, "--threads", "1", "--accuracy", accuracy];
        let store = ["--store", &tuned().store];
        let made = p.json(&[&["compile"][..], &ask, &store, &["--out", "m.tsm"]].concat());
        assert_eq!(made["accuracy"], accuracy);
        let quick = ["--time", "0.1s", "--threads", "1"];
        let bench = [&["bench", "m.tsm"][..], &quick].concat();
        assert_eq!(p.json(&bench)["accuracy"], accuracy);
        assert!(p.ok(&bench).contains(&format!("accuracy {accuracy}")));
        let run = ["run", "m.tsm", "--random", "1"];
        assert_eq!(p.json(&run)["accuracy"], accuracy);
        assert!(p.ok(&run).contains(&format!("accuracy {accuracy}")));
        // The artifact's, not the flag's.
        let check = ["check", OP, "--artifact", "m.tsm", "--threads", "1"];
        let check = p.json(&[&check[..], &["--tolerance", "3e-5"]].concat());
        assert_eq!(
            (&check["accuracy"], &check["ok"]),
            (&accuracy.into(), &true.into())
        );
        assert_eq!(check["tolerance"], 3e-5);
    }
    let error = p.error(&["compile", OP, "--accuracy", "loose"]);
    assert!(error.contains("strict or relaxed"), "{error}");
}

#[test]
fn only_the_relaxed_space_has_algorithms_that_lose_digits() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let op = "op:conv2d(n=1,c=32,h=8,w=8,k=32,r=3,s=3,stride=1,pad=1)";
    let sketches = |accuracy: &str| -> Vec<String> {
        let listed = p.json(&["tasks", op, "--threads", "1", "--accuracy", accuracy]);
        assert_eq!(listed["accuracy"], accuracy);
        let tasks = listed["tasks"].as_array().unwrap().iter();
        let all = tasks.flat_map(|t| t["sketches"].as_array().unwrap());
        all.map(|s| s["name"].as_str().unwrap().into()).collect()
    };
    let (strict, mut relaxed) = (sketches("strict"), sketches("relaxed"));
    let filtered = |n: &String| n.starts_with("winograd");
    assert!(relaxed.iter().any(filtered), "{relaxed:?}");
    relaxed.retain(|n| !filtered(n));
    assert_eq!(strict, relaxed);
}

/// A product that a template and rules have sketches for.
const BOTH: &str = "op:dense(m=64,n=64,k=64)";

#[test]
fn a_space_has_the_sketches_of_its_kind() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let names = |kind: &str, op: &str| -> Vec<String> {
        let ask = ["--threads", "1", "--space", kind, "--samples", "4"];
        let facts = p.json(&[&["space", op][..], &ask].concat());
        assert_eq!(facts["space"], kind);
        let sketches = facts["tasks"][0]["sketches"].as_array().unwrap().iter();
        sketches
            .map(|s| s["name"].as_str().unwrap().into())
            .collect()
    };
    let by_rules = |n: &String| n.starts_with("rules.");
    assert!(names("rules", BOTH).iter().all(by_rules));
    assert!(!names("templates", BOTH).iter().any(by_rules));
    let all = names("all", BOTH);
    assert!(
        all.iter().any(by_rules) && !all.iter().all(by_rules),
        "{all:?}"
    );
    // Rules have nothing to say where nothing is reduced: the general nest stands in.
    let sum = names("rules", "op:add(rows=8,cols=8)");
    assert!(sum.iter().all(|n| n.starts_with("nest")), "{sum:?}");
    let error = p.error(&["tasks", BOTH, "--space", "some"]);
    assert!(error.contains("rules, templates or all"), "{error}");
}

#[test]
fn facts_about_a_space_are_those_of_its_points() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let ask = ["space", BOTH, "--threads", "1", "--samples", "8"];
    let facts = p.json(&ask);
    let task = &facts["tasks"][0];
    let sketches = task["sketches"].as_array().unwrap();
    let points = |s: &serde_json::Value| s["points"].as_u64().unwrap();
    assert_eq!(points(task), sketches.iter().map(points).sum::<u64>());
    for s in sketches {
        assert_eq!((&s["drawn"], &s["legal"]), (&8.into(), &1.0.into()), "{s}");
        let [points, kernels] = ["distinct_points", "kernels"].map(|f| s[f].as_u64().unwrap());
        assert!((1..=points).contains(&kernels) && points <= 8, "{s}");
        let within = s["within_limits"].as_f64().unwrap();
        assert!(0.0 < within && within <= 1.0, "{s}");
    }
    let table = p.ok(&[&ask[..], &["--task", "0"]].concat());
    assert!(table.contains("kernels") && table.contains("rules.panels"));
}

#[test]
fn records_are_used_where_their_space_is_allowed() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let common = ["--threads", "1", "--store", "s.sqlite"];
    let tune = ["tune", BOTH, "--trials", "4", "--space", "templates"];
    let tuned = p.json(&[&tune[..], &common].concat());
    assert_eq!(tuned["space"], "templates");
    let known = |kind: &str| {
        let listed = p.json(&[&["tasks", BOTH, "--space", kind][..], &common].concat());
        listed["tasks"][0]["algorithm"].as_str().map(String::from)
    };
    assert_eq!(known("rules"), None);
    assert!(known("all").is_some());
    assert_eq!(known("templates"), known("all"));
    let compile = ["compile", BOTH, "--space", "rules", "--out", "m.tsm"];
    let compiled = p.json(&[&compile[..], &common].concat());
    assert_eq!(compiled["space"], "rules");
    assert_eq!(compiled["tuned_tasks"], 0);
    assert!(schedules(&p.file("m.tsm"))[0].contains("vectors"));
}

/// The schedules in an artifact, in the order of the tasks.
fn schedules(artifact: &str) -> Vec<String> {
    let model = runtime::CompiledModel::load(artifact.as_ref()).unwrap();
    let kernels = model.kernels().iter();
    kernels.map(|k| k.schedule.clone()).collect()
}

#[test]
fn compile_makes_what_tune_chose_also_inside_the_model() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let op = "op:conv2d(n=1,c=32,h=8,w=8,k=32,r=3,s=3,stride=1,pad=1)";
    let (store, tuned) = (p.file("s.sqlite"), p.file("t.tsm"));
    let shared = [op, "--threads", "1", "--store", &store];
    let tune = ["--trials", "40", "--in-model-time", "1s", "--out", &tuned];
    let report = p.json(&[&["tune"][..], &shared, &tune].concat());
    let compiled = p.file("c.tsm");
    p.json(&[&["compile"][..], &shared, &["--out", &compiled]].concat());
    assert_eq!(schedules(&tuned), schedules(&compiled));

    // Whether any candidate came near the best is the machine's business; what
    // was decided is in the log.
    let log = p.json(&["replay", "--run", "1", "--store", &store]);
    let all = log["events"].as_array().unwrap().iter();
    let events: Vec<_> = all.filter(|e| e["kind"] == "in_model").collect();
    let tasks = report["tasks"].as_array().unwrap().iter();
    let decided: Vec<_> = tasks.filter(|t| !t["in_model"].is_null()).collect();
    assert_eq!(events.len(), decided.len());
    assert_eq!(report["in_model"]["tasks"], decided.len() as u64);
    for t in decided {
        let of_task = |e: &&&serde_json::Value| e["payload"]["decision"] == t["in_model"];
        assert!(events.iter().find(of_task).is_some(), "{t}");
        assert!(t["in_model"]["candidates"].as_u64().unwrap() >= 2);
    }
}

#[test]
fn tune_says_what_filters_dropped() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let says = "dropped by ";
    let unfiltered = [
        "tune",
        OP,
        "--threads",
        "1",
        "--trials",
        "2",
        "--store",
        "o.sqlite",
    ];
    let unfiltered = p.ok(&unfiltered);
    assert!(!unfiltered.contains(says), "{unfiltered}");
    // Of some of these two schedules are equal: which ones, the width of vectors decides.
    let some = ["rows=8,cols=16", "rows=9,cols=30", "rows=8,cols=8"].into_iter();
    let mut runs = some.map(|sizes| {
        let (op, store) = (format!("op:softmax({sizes})"), format!("{sizes}.sqlite"));
        let shared = [&*op, "--threads", "1", "--trials", "40", "--store", &store];
        let filters = ["--filter", "distinct,neighbours"];
        let text = p.ok(&[&["tune"][..], &shared, &filters].concat());
        let log = p.json(&["replay", "--run", "1", "--store", &store]);
        let mut dropped: BTreeMap<String, u64> = BTreeMap::new();
        for e in log["events"].as_array().unwrap() {
            if e["kind"] == "skipped" {
                let filter = e["payload"]["filter"].as_str().unwrap().to_string();
                *dropped.entry(filter).or_default() += e["payload"]["count"].as_u64().unwrap();
            }
        }
        (text, dropped)
    });
    let run = runs.find(|(_, dropped)| !dropped.is_empty());
    let (text, dropped) = run.expect("a filter drops something");
    for (filter, n) in dropped {
        let line = format!("{says}{filter}: {n} candidates, which saved ");
        let is_there = text.lines().any(|l| l.trim().starts_with(&line));
        assert!(is_there, "{line}: {text}");
    }
}

#[test]
fn run_computes_what_the_reference_computes() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let x = value(3);
    write_npy_file(&folder.path().join("x.npy"), &x).unwrap();
    let given = format!("x={}", p.file("x.npy"));
    let report = p.json(&["run", &t.artifact, "--input", &given, "--out", "y.npy"]);
    let y = read_npy_file(&folder.path().join("y.npy")).unwrap();

    let source = tunesmith::load(OP, &ImportOptions::default()).unwrap();
    let expected = evaluate(&source.model, &[Arc::new(x)], Keep::Outputs).unwrap();
    let expected = &expected.outputs()[0];
    assert!(compare(&y, expected).within(1e-5));

    let summary = &report["outputs"][0];
    let all: Vec<f64> = (0..y.len()).map(|i| y.get_f64(i)).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    assert_eq!(summary["shape"], serde_json::json!([4, 32]));
    assert_eq!(summary["dtype"], "f32");
    assert_eq!(summary["non_finite"], 0);
    let max = all.iter().copied().fold(f64::MIN, f64::max);
    assert_eq!(summary["max"].as_f64().unwrap(), max);
    assert!((summary["mean"].as_f64().unwrap() - mean).abs() < 1e-9);
}

#[test]
fn run_fills_missing_inputs_from_a_seed_and_names_files_by_output() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let run = |seed: &str, out: &str| {
        let text = p.ok(&["run", &t.artifact, "--random", seed, "--out", out]);
        assert!(text.contains("f32"), "{text}");
        let files: Vec<_> = std::fs::read_dir(folder.path().join(out))
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].extension().unwrap(), "npy");
        std::fs::read(&files[0]).unwrap()
    };
    let first = run("7", "a");
    assert_eq!(first, run("7", "b"));
    assert_ne!(first, run("8", "c"));
}

#[test]
fn tasks_show_spaces_and_the_best_known_times() {
    let t = tuned();
    let args = ["tasks", OP, "--threads", "1", "--store", &t.store];
    let report = t.place.json(&args);
    assert_eq!(report["conversions"], 0);
    assert_eq!(report["steps"], 1);
    let task = &report["tasks"][0];
    assert_eq!(task["key"], t.report["tasks"][0]["key"]);
    if t.measured_tasks() == 1 {
        assert_eq!(task["algorithm"], t.report["tasks"][0]["algorithm"]);
        assert_eq!(task["best_ms"], t.report["tasks"][0]["alone_ms"]);
    }
    let points: u64 = task["sketches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["cardinality"].as_u64().unwrap())
        .sum();
    assert_eq!(task["cardinality"], points);
    assert!(t.place.ok(&args).contains("0 layout conversions"));

    // Times for one thread are none for two.
    let other = ["tasks", OP, "--threads", "2", "--store", &t.store];
    assert!(t.place.json(&other)["tasks"][0]["best_ms"].is_null());
    // Every step counts as a use of its task.
    let conv = "op:conv2d(c=16,h=6,w=6,k=16,r=3,s=3,pad=1)";
    let conv = t.place.json(&["tasks", conv, "--store", &t.store]);
    let uses = |v: &serde_json::Value| v["uses"].as_u64().unwrap();
    let steps: u64 = conv["tasks"].as_array().unwrap().iter().map(uses).sum();
    assert_eq!(conv["steps"], steps);
}

#[test]
fn every_stage_is_dumped() {
    let t = tuned();
    let dump = |stage: &str, more: &[&str]| {
        let mut args = vec![
            "dump",
            OP,
            "--threads",
            "1",
            "--stage",
            stage,
            "--store",
            &t.store,
        ];
        args.extend(more);
        let text = t.place.ok(&args);
        let report = t.place.json(&args);
        assert_eq!(report["stage"], stage);
        assert_eq!(report["tasks"][0]["text"], text.as_str());
        text
    };
    let expression = dump("tensor-expression", &[]);
    let program = ir::text::parse(&expression).unwrap();
    assert!(dump("space", &[]).contains("; sketch 0: "));
    let trace = dump("trace", &[]);
    let scheduled = schedule::replay(&program, &schedule::parse(&trace).unwrap()).unwrap();
    assert_eq!(dump("scheduled", &[]), ir::text::print(&scheduled));
    let passes = dump("passes", &[]);
    let starts: Vec<_> = lower::PASSES
        .iter()
        .map(|p| passes.find(&format!("; after {p}\n")))
        .collect();
    assert!(
        starts.iter().all(Option::is_some) && starts.is_sorted(),
        "{starts:?}"
    );
    let flat = dump("flat", &[]);
    assert!(passes.contains(flat.trim()));
    assert!(dump("llvm", &[]).contains("define i32 @kernel("));
    assert!(dump("assembly", &[]).contains("kernel:"));
    let machine = dump("machine", &[]);
    for part in ["model ", "function kernel.code: ", "L1 of ", " lines moved"] {
        assert!(machine.contains(part), "no `{part}` in {machine}");
    }
    let (_, matched) = machine.split_once("loops matched: ").unwrap();
    let (found, all) = matched.lines().next().unwrap().split_once(" of ").unwrap();
    assert_eq!(found, all, "{machine}");
    let one = dump("passes", &["--pass", "vectorize"]);
    assert!(passes.contains(&one) && one.starts_with("; after vectorize\n"));
}

#[test]
fn dump_takes_any_candidate() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let dump = |stage: &str, candidate: &str| {
        let args = ["dump", OP, "--threads", "1", "--store", &t.store];
        let more = ["--stage", stage, "--candidate", candidate];
        p.ok(&[&args[..], &more[..]].concat())
    };
    let fallback = dump("trace", "fallback");
    assert_ne!(fallback, dump("trace", "default"));
    let best = t.place.json(&["records", "best", "--store", &t.store]);
    assert_eq!(
        best["best"][0]["best"]["trace"],
        dump("trace", "best").as_str()
    );
    std::fs::write(folder.path().join("f.trace"), &fallback).unwrap();
    assert_eq!(dump("flat", "f.trace"), dump("flat", "fallback"));
}

#[test]
fn dump_names_tasks_by_number_key_and_title() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let model = "op:conv2d(c=16,h=6,w=6,k=16,r=3,s=3,pad=1)";
    let dump = |task: &str| {
        p.ok(&[
            "dump",
            model,
            "--stage",
            "tensor-expression",
            "--task",
            task,
        ])
    };
    let report = p.json(&["tasks", model, "--store", "s.sqlite"]);
    let tasks = report["tasks"].as_array().unwrap();
    let conv = tasks.iter().find(|t| t["op"] == "conv2d").unwrap();
    let by_number = dump(&conv["index"].to_string());
    assert_eq!(by_number, dump(&conv["key"].as_str().unwrap()[..12]));
    assert_eq!(by_number, dump("conv2d("));
    assert_eq!(by_number, dump("conv2d 16>16 6x6 3x3"));
    let all = p.ok(&["dump", model, "--stage", "tensor-expression"]);
    assert!(all.contains(&by_number));
    assert_eq!(
        all.matches("; task ").count(),
        if tasks.len() > 1 { tasks.len() } else { 0 }
    );
}

#[test]
fn replay_measures_a_trace_alone() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let trace = p.ok(&["dump", OP, "--threads", "1", "--stage", "trace"]);
    std::fs::write(folder.path().join("d.trace"), trace).unwrap();
    let args = ["replay", OP, "--threads", "1", "--samples", "4", "--trace"];
    let report = p.json(&[&args[..], &["d.trace"]].concat());
    assert_eq!(report["correct"], true);
    assert_eq!(report["outcome"]["result"], "timed");
    assert_eq!(report["outcome"]["samples_ns"].as_array().unwrap().len(), 4);
    assert_eq!(report["outcome"]["conditions"]["isolated"], true);
    assert_eq!(report["key"], t.report["tasks"][0]["key"]);
    let text = p.ok(&[&args[..], &["best", "--store", &t.store]].concat());
    assert!(
        text.contains("correct against the plain schedule"),
        "{text}"
    );
    // Measuring again is not tuning: nothing was recorded.
    let after = t.place.json(&["records", "--store", &t.store]);
    let runs = t.place.json(&["records", "runs", "--store", &t.store]);
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    assert_eq!(after["total"], runs["runs"][0]["records"]);
}

#[test]
fn compile_takes_the_defaults_if_the_newest_comparison_of_these_kernels_kept_them() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    std::fs::copy(&t.store, p.file("s.sqlite")).unwrap();
    let store = store::Store::open(p.file("s.sqlite")).unwrap();
    let compile = ["compile", OP, "--threads", "1", "--store", "s.sqlite"];
    let newest = store.newest_events(OP, store::Compared::NAME).unwrap();
    let run_id = &newest[0].run_id;
    let store::EventKind::Compared(choice) = &newest[0].kind else {
        panic!("{newest:?}");
    };
    let these = choice.code.clone();
    let others = vec!["another kernel".to_string()];
    let cases = [
        (true, &these, 0),
        (false, &these, 1),
        (true, &others, 1),
        (true, &these, 0),
    ];
    for (default, code, tasks) in cases {
        let choice = store::Compared {
            default,
            code: code.clone(),
            ..choice.clone()
        };
        let event = store::NewEvent {
            run_id: run_id.clone(),
            task: None,
            kind: choice.into(),
        };
        store.append(&[], &[event]).unwrap();
        assert_eq!(p.json(&compile)["tuned_tasks"], tasks);
    }
}

#[test]
fn the_other_commands_succeed_and_print_one_object() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let s = ["--threads", "1", "--store", &t.store];
    let bench = p.json(&["bench", &t.artifact, "--time", "0.2s", "--threads", "1"]);
    assert!(bench["median_ms"].as_f64().unwrap() > 0.0);
    assert!(
        p.ok(&["bench", &t.artifact, "--time", "0.2s", "--profile"])
            .contains("median")
    );

    let compiled = p.json(&[&["compile", OP, "--out", "c.tsm"][..], &s[..]].concat());
    assert_eq!(compiled["tuned_tasks"], t.measured_tasks());
    // x and the result, the weights; and what `tasks` says of the same plan.
    let (activations, constants) = (4 * 4 * (16 + 32), 4 * 16 * 32);
    assert_eq!(compiled["activation_bytes"], activations);
    assert_eq!(compiled["constant_bytes"], constants);
    assert!(compiled["arena_bytes"].is_u64(), "{compiled}");
    let tasks = p.json(&[&["tasks", OP][..], &s[..]].concat());
    for fact in [
        "steps",
        "conversions",
        "views",
        "activation_bytes",
        "constant_bytes",
    ] {
        assert_eq!(compiled[fact], tasks[fact], "{fact}");
    }
    let text = p.ok(&[&["compile", OP, "--out", "c.tsm"][..], &s[..]].concat());
    let plan = "plan: 1 steps, 0 layout conversions, 0 views; steps move 0.00 MB of activations";
    assert!(
        text.contains(plan) && text.contains("an arena of"),
        "{text}"
    );
    let text = p.ok(&[&["tasks", OP][..], &s[..]].concat());
    assert!(
        text.contains(plan) && text.contains("accuracy relaxed"),
        "{text}"
    );
    let defaults = [
        "compile",
        OP,
        "--out",
        "d.tsm",
        "--defaults",
        "--threads",
        "1",
    ];
    assert_eq!(p.json(&defaults)["tuned_tasks"], 0);
    for artifact in ["c.tsm", "d.tsm"] {
        let checked = p.json(&["check", OP, "--artifact", artifact, "--threads", "1"]);
        assert_eq!(checked["ok"], true, "{checked}");
    }
    assert!(p.ok(&[&["check", OP][..], &s[..]].concat()).contains("ok"));

    let models = p.json(&["models"]);
    assert!(models["models"].as_array().unwrap().len() > 5);
    p.ok(&["models", "export", OP, "dense.onnx"]);
    let imported = p.json(&["tasks", "dense.onnx", "--threads", "1", "--store", &t.store]);
    assert_eq!(imported["tasks"][0]["key"], t.report["tasks"][0]["key"]);

    assert!(p.json(&["doctor"])["fma_peak_gflops"].as_f64().unwrap() > 0.0);
    assert!(p.json(&["knobs"])["knobs"].as_array().unwrap().len() > 3);
    assert!(p.ok(&["knobs"]).contains("--builders"));
    for command in [
        "tune", "compile", "bench", "check", "explain", "run", "tasks", "records", "dump",
        "replay", "models", "study",
    ] {
        assert!(p.ok(&[command, "--help"]).contains("Example"), "{command}");
    }
}

#[test]
fn explain_shows_every_step_against_its_limits() {
    let t = tuned();
    let args = |threads: &'static str, more: &[&'static str]| {
        let mut all = vec!["explain", OP, "--threads", threads, "--time", "0s"];
        all.extend(["--store", &t.store]);
        all.extend(more);
        all.into_iter().map(String::from).collect::<Vec<_>>()
    };
    let json = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        t.place.json(&args)
    };
    let number = |v: &serde_json::Value| v.as_f64().unwrap();
    let report = json(&args("1", &[]));
    let layers = report["layers"].as_array().unwrap();
    let steps = t
        .place
        .json(&["tasks", OP, "--threads", "1", "--store", &t.store]);
    assert_eq!(layers.len() as u64, steps["steps"].as_u64().unwrap());
    let layer = &layers[0];
    // The tuned kernel, recognised from its code, and its time in the store.
    assert_eq!(layer["algorithm"], t.report["tasks"][0]["algorithm"]);
    if t.measured_tasks() == 1 {
        assert_eq!(layer["alone_ms"], t.report["tasks"][0]["alone_ms"]);
    }
    assert!((number(&layer["gflop"]) - 2.0 * 4.0 * 32.0 * 16.0 / 1e9).abs() < 1e-9);
    // x, weights and result, once each; weights may be padded where they are packed.
    assert!(number(&layer["mbytes"]) >= 4.0 * (64.0 + 512.0 + 128.0) / 1e6);
    let roofline = &layer["roofline"];
    let bounds = ["compute_ms", "memory_ms", "overhead_ms"].map(|b| number(&roofline[b]));
    assert_eq!(
        bounds.into_iter().fold(0.0, f64::max),
        number(&layer["roofline_ms"])
    );
    assert!(report["scaling"].is_null());

    let artifact = json(&args("2", &["--artifact", &t.artifact, "--scaling"]));
    // For two threads, what runs on one is a sketch of its own.
    let of_two = artifact["layers"][0]["algorithm"].as_str().unwrap();
    assert_eq!(of_two.trim_end_matches(".serial"), layer["algorithm"]);
    assert!(number(&artifact["scaling"]["speedup"]) > 0.0);
    assert!(number(&artifact["layers"][0]["efficiency"]) > 0.0);
    let plain = json(&args("1", &["--defaults", "--sort", "time"]));
    assert!(plain["layers"][0]["alone_ms"].is_null());

    // Without being asked for, the decisions of the schedule.
    let decisions = layer["schedule"].as_str().unwrap();
    let text = args("1", &[]);
    let text = t
        .place
        .ok(&text.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!decisions.is_empty() && text.contains(decisions), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 120), "{text}");

    let text = args("1", &["--details", "--merge"]);
    let text = t
        .place
        .ok(&text.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(
        text.contains("dense") && text.contains("roofline"),
        "{text}"
    );
    let lines = text.lines().take_while(|l| !l.is_empty());
    let widest = lines
        .filter(|l| !l.starts_with("    "))
        .map(|l| l.chars().count())
        .max();
    assert!(widest.unwrap() <= 120, "{text}");
}

#[test]
fn only_the_algorithms_asked_for_are_searched() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let store = p.file("store.sqlite");
    let tasks = p.json(&["tasks", OP, "--threads", "1", "--store", &store]);
    let last = tasks["tasks"][0]["sketches"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()["name"]
        .as_str()
        .unwrap()
        .to_string();
    let report = p.json(&[
        "tune",
        OP,
        "--threads",
        "1",
        "--trials",
        "3",
        "--store",
        &store,
        "--algorithms",
        &last,
    ]);
    // The defaults are of the whole space, and may be kept.
    let kept = !report["kept_default"].is_null();
    let algorithm = report["tasks"][0]["algorithm"].as_str().unwrap();
    assert!(kept || algorithm.starts_with(&last), "{report}");
    let log = p.json(&["replay", "--run", "1", "--store", &store]);
    let events = log["events"].as_array().unwrap().iter();
    let asked: Vec<_> = events.filter(|e| e["kind"] == "ask").collect();
    // Algorithms are asked for by the beginnings of their names.
    let name = |e: &serde_json::Value| e["payload"]["algorithm"].as_str().unwrap().to_string();
    let own = |e: &&serde_json::Value| name(e).starts_with(&last);
    assert!(!asked.is_empty() && asked.iter().all(own), "{log}");
}

#[test]
fn a_packed_model_has_all_that_the_other_machine_needs() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    // Any program will do.
    let runner = env!("CARGO_BIN_EXE_tunesmith");
    let pack = |out: &'static str| ["pack", &t.artifact, "--runner", runner, "--out", out];
    p.ok(&pack("packed"));
    let read = |name: &str| std::fs::read(folder.path().join("packed").join(name)).unwrap();
    assert_eq!(read("model.tsm"), std::fs::read(&t.artifact).unwrap());
    let readme = String::from_utf8(read("README.txt")).unwrap();
    assert!(
        readme.contains("run model.tsm --input 'x=inputs/x.npy'"),
        "{readme}"
    );
    assert!(readme.contains("It needs the C library glibc"), "{readme}");
    // The header of a program without segments names no loader of shared libraries.
    let mut header = [0; 64];
    header[..4].copy_from_slice(b"\x7fELF");
    std::fs::write(folder.path().join("alone"), header).unwrap();
    p.ok(&[
        "pack",
        &t.artifact,
        "--runner",
        "./alone",
        "--out",
        "static",
    ]);
    let readme = std::fs::read_to_string(folder.path().join("static/README.txt")).unwrap();
    assert!(readme.contains("Nothing has to be installed."), "{readme}");
    let input = tensor::read_npy_file(&folder.path().join("packed/inputs/x.npy")).unwrap();
    assert_eq!(input.shape(), [4, 16]);
    says(&p.error(&pack("packed")), &["is there already"]);
    p.ok(&pack("board.tar.gz"));
    assert!(folder.path().join("board.tar.gz").is_file());
    assert!(!folder.path().join("board").exists());
    says(
        &p.error(&["pack", &t.artifact, "--runner", "none", "--out", "x"]),
        &["there is no file none", "--runner"],
    );
    says(&p.error(&["pack", "none.tsm"]), &["none.tsm"]);
    // A program of another version.
    let old = folder.path().join("old");
    let script = "#!/bin/sh\necho 'error: it reads versions 5 to 6' >&2\nexit 1\n";
    std::fs::write(&old, script).unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).unwrap();
    let old = ["pack", &t.artifact, "--runner", "./old", "--out", "x"];
    says(
        &p.error(&old),
        &["./old does not read", "versions 5 to 6", "deploy"],
    );
    assert!(!folder.path().join("x").exists());
}
