//! How candidates are measured is the user's choice, and all say which it was.

use super::errors::says;
use super::program::{OP, place};
use serde_json::{Value, json};
use tempfile::tempdir;

/// More candidates than any test here measures.
const MATMUL: &str = "op:matmul(m=48,n=48,k=48)";

/// The payloads of a kind of event in a run.
fn events(log: &Value, kind: &str) -> Vec<Value> {
    let all = log["events"].as_array().unwrap().iter();
    let of_kind = all.filter(|e| e["kind"] == kind);
    of_kind.map(|e| e["payload"].clone()).collect()
}

#[test]
fn every_policy_tunes() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    for policy in ["serial", "serial-spawn", "naive", "doppler"] {
        let store = p.file(&format!("{policy}.sqlite"));
        let report = p.json(&[
            "tune",
            MATMUL,
            "--threads",
            "1",
            "--trials",
            "12",
            "--measure",
            policy,
            "--store",
            &store,
            "--out",
            "m.tsm",
        ]);
        assert_eq!(report["measure"], policy);
        assert_eq!(report["trials"], 12, "{policy}");
        assert!(report["latency_after_ms"].as_f64().unwrap() > 0.0);
        let all = store::Store::open(&store).unwrap();
        let all = all.records_for(&store::RecordQuery::default()).unwrap();
        let (finals, trials): (Vec<_>, Vec<_>) = all.iter().partition(|r| r.final_);
        assert_eq!(trials.len(), 12, "{policy}");
        let measurers = trials.iter().filter_map(|r| match &r.outcome {
            store::Outcome::Timed { conditions, .. } => Some(conditions.measurer.as_deref()),
            _ => None,
        });
        let measurers: Vec<_> = measurers.collect();
        assert!(measurers.len() > 6, "most candidates are timed: {trials:?}");
        assert_eq!(measurers, vec![Some(policy); measurers.len()]);
        assert!(!finals.is_empty());
        for r in finals {
            let store::Outcome::Timed {
                samples_ns,
                clock,
                conditions,
            } = &r.outcome
            else {
                panic!("{r:?}")
            };
            assert_eq!(conditions.measurer.as_deref(), Some("rank"));
            assert_eq!(*clock, store::Clock::HostMonotonic);
            assert!(conditions.isolated && samples_ns.len() == 15, "{r:?}");
            assert!(r.spent.measure.wall_ns > 0);
        }
    }
}

#[test]
fn a_time_that_is_over_before_the_search_gives_the_default_model() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let args = [
        "tune",
        OP,
        "--threads",
        "1",
        "--time",
        "0.001s",
        "--store",
        "s.sqlite",
    ];
    let report = p.json(&[&args[..], &["--out", "m.tsm"]].concat());
    assert_eq!(
        (&report["trials"], &report["cached"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(report["latency_plain_ms"], Value::Null);
    assert_eq!(report["latency_after_ms"], report["latency_default_ms"]);
    assert!(report["latency_after_ms"].as_f64().unwrap() > 0.0);
    assert!(p.ok(&["run", "m.tsm", "--random", "1"]).contains('y'));
    let text = p.ok(&[&args[..], &["--out", "m.tsm"]].concat());
    assert!(text.contains("no candidate was measured"), "{text}");
}

#[test]
fn a_run_without_time_decides_nothing_for_later_ones() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let common = ["--threads", "1", "--store", "s.sqlite", "--out", "m.tsm"];
    let measured = || p.json(&[&["compile", OP], &common[..]].concat())["tuned_tasks"].clone();
    p.json(&[&["tune", OP, "--trials", "20"], &common[..]].concat());
    let before = measured();
    for _ in 0..3 {
        let short = p.json(&[&["tune", OP, "--time", "1ms"], &common[..]].concat());
        assert_eq!(short["trials"], 0);
        assert_eq!(measured(), before);
    }
}

#[test]
fn rounds_are_logged_and_the_next_run_goes_on_from_them() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let store = p.file("s.sqlite");
    let mut logs = Vec::new();
    for trials in ["14", "4"] {
        let report = p.json(&[
            "tune",
            MATMUL,
            "--threads",
            "1",
            "--trials",
            trials,
            "--measure",
            "doppler",
            "--store",
            &store,
            "--out",
            "m.tsm",
        ]);
        let runs = store::Store::open(&store).unwrap().runs().unwrap();
        let newest = runs.iter().max_by_key(|r| r.started_unix_ms).unwrap();
        let log = p.json(&["replay", "--run", &newest.run_id, "--store", &store]);
        let batches = events(&log, "doppler");
        let rounds: Vec<Value> = batches
            .iter()
            .flat_map(|b| b["rounds"].as_array().unwrap().clone())
            .collect();
        let measured: u64 = rounds
            .iter()
            .map(|r| r["candidates"].as_u64().unwrap())
            .sum();
        assert_eq!(report["trials"], measured);
        let reference = events(&log, "reference");
        assert!(reference[0]["reference_ns"].as_u64().unwrap() > 0);
        logs.push(rounds);
    }
    assert_eq!(logs[0][0]["dp"], 1);
    let last = logs[0].last().unwrap();
    assert_eq!(logs[1][0]["dp"], last["next"]["dp"]);
}

#[test]
fn what_killed_a_runner_is_not_run_again_by_this_run_or_a_later_one() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let path = p.file("s.sqlite");
    let tune = |limit| {
        p.json(&[
            "tune",
            "op:matmul(m=768,n=768,k=768)",
            "--threads",
            "1",
            "--trials",
            "6",
            "--strategy",
            "random",
            "--run-limit",
            limit,
            "--in-model-time",
            "0s",
            "--store",
            &path,
            "--out",
            "m.tsm",
        ])
    };
    // No candidate is loaded, run and checked in so little time: one run takes longer.
    let killed = tune("0.0002s");
    assert_eq!(killed["trials"], 6);
    // The same are asked for first, now with time enough.
    let report = tune("20s");
    assert!(report["cached"].as_u64().unwrap() >= 6, "{report}");
    assert_eq!(report["trials"], 6);
    let store = store::Store::open(&path).unwrap();
    let all = store.records_for(&store::RecordQuery::default()).unwrap();
    let trials: Vec<_> = all.iter().filter(|r| !r.final_).collect();
    let died = |r: &&&store::Record| r.outcome.label().starts_with("timed-out");
    // One that was done before its lateness was seen counts as it ended.
    assert!(trials.iter().any(|r| died(&r)), "{trials:?}");
    let codes: std::collections::HashSet<_> = trials.iter().map(|r| &r.code_hash).collect();
    assert_eq!((codes.len(), trials.len()), (12, 12), "none is run twice");
}

#[test]
fn constants_are_changed_by_name() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    says(
        &p.error(&["tune", OP, "--doppler", "tao=1"]),
        &["there is no `tao`", "tau"],
    );
    says(
        &p.error(&["tune", OP, "--measure", "parallel"]),
        &["serial-spawn"],
    );
    let knobs = p.json(&["knobs"]);
    let constants = knobs["doppler"].as_array().unwrap();
    let tau = constants.iter().find(|c| c["name"] == "tau").unwrap();
    assert_eq!(tau["default"], 0.05);
    let shown = p.ok(&["knobs"]);
    for c in constants {
        let (doc, source) = (c["doc"].as_str().unwrap(), c["source"].as_str().unwrap());
        assert!(shown.contains(doc) && shown.contains(source), "{c}");
    }
    says(
        &p.error(&[
            "study",
            "measure",
            OP,
            "--policies",
            "serial",
            "--sweep",
            "tau=.1",
        ]),
        &["--sweep", "doppler", "--policies"],
    );
}

#[test]
fn a_study_compares_policies_on_the_same_candidates() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let study = p.json(&[
        "study",
        "measure",
        OP,
        "--candidates",
        "8",
        "--repetitions",
        "2",
    ]);
    assert_eq!(study["kind"], "measured");
    let rows = study["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for r in rows {
        assert_eq!(r["candidates"], rows[0]["candidates"]);
        assert!(r["best_ns"].as_f64().unwrap() > 0.0, "{r}");
        assert!(r["wall_s"].as_f64().unwrap() > 0.0);
        assert!(r["built_before_s"].as_f64().unwrap() > 0.0);
        let ranked = r["ranked"].as_u64().unwrap();
        assert_eq!(ranked, 1, "1% of 8, but at least one");
        assert_eq!(r["against_serial"] == 0.0, r["policy"] == "serial");
    }
}

#[test]
fn random_points_are_ranked_and_their_spread_has_a_place_for_the_default() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let ask = [OP, "--points", "6", "--space", "rules"];
    let spread = p.json(&[&["study", "spread"][..], &ask].concat());
    assert_eq!(spread["study"]["space"], "rules");
    let (task, spread) = (&spread["tasks"][0]["task"], &spread["tasks"][0]["spread"]);
    let ns = |what: &str| spread[what].as_u64().unwrap();
    assert!(ns("best_ns") <= ns("median_ns") && ns("median_ns") <= ns("worst_ns"));
    assert!((ns("best_ns")..=ns("worst_ns")).contains(&ns("default_ns")));
    assert!((1..=ns("points")).contains(&ns("default_place")));
    assert_eq!(task["default"], 0);
    let rank = p.json(&[&["study", "rank"][..], &ask, &["--top", "2"]].concat());
    let predictions = rank["tasks"][0]["predictions"].as_array().unwrap();
    let models: Vec<&str> = predictions
        .iter()
        .map(|p| p["model"].as_str().unwrap())
        .collect();
    assert_eq!(models, ["analytic", "static"]);
    for prediction in predictions {
        assert_eq!(prediction["points"], ns("points"));
        assert!(prediction["chosen_over_best"].as_f64().unwrap() >= 1.0);
        let ratio = prediction["ratio"].as_f64().unwrap();
        assert!(0.0 < ratio && ratio <= 1.0, "{prediction}");
        for figure in ["spearman", "kendall"] {
            let r = prediction[figure].as_f64();
            assert!(r.is_none_or(|r| (-1.0..=1.0).contains(&r)), "{prediction}");
        }
    }
}

#[test]
fn an_interrupted_study_goes_on_where_it_was() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let arguments = [
        "study",
        "measure",
        OP,
        "--candidates",
        "6",
        "--repetitions",
        "1",
        "--overlap",
        "both",
        "--policies",
        "serial,doppler",
        "--sweep",
        "tau=0.5",
        "--rank",
        "0.5",
        "--out",
        "s",
    ];
    let first = p.json(&arguments);
    let rows = first["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for r in rows {
        let share = r["candidates"].as_u64().unwrap().div_ceil(2);
        assert_eq!(r["ranked"], share);
        assert_eq!(r["built_before_s"] == 0.0, r["overlap"] == true);
        assert!(r["build_s"].as_f64().unwrap() > 0.0);
    }
    let cells = p.folder.join("s").join("cells.jsonl");
    let whole = std::fs::read_to_string(&cells).unwrap();
    // What the study is, and three cells and a half.
    let lines: Vec<&str> = whole.lines().collect();
    assert_eq!(lines.len(), 1 + 6 + 1);
    let kept = format!("{}\n", lines[..4].join("\n"));
    std::fs::write(&cells, format!("{kept}{}", &lines[4][..lines[4].len() / 2])).unwrap();
    let second = p.json(&arguments);
    let now = std::fs::read_to_string(&cells).unwrap();
    assert!(now.starts_with(&kept), "what was finished stays");
    assert_eq!(now.lines().count(), lines.len());
    assert_eq!(second["rows"].as_array().unwrap().len(), 6);
    assert_eq!(second["rows"][0]["wall_s"], rows[0]["wall_s"]);
    // Nothing is left to do.
    p.json(&arguments);
    assert_eq!(std::fs::read_to_string(&cells).unwrap(), now);
    let report = std::fs::read_to_string(p.folder.join("s").join("study.md")).unwrap();
    assert!(report.contains("tau varied"), "{report}");
    for picture in ["time-overlap-off", "time-overlap-on", "dp", "sweep-tau"] {
        assert!(report.contains(&format!("]({picture}.svg)")), "{report}");
        let path = p.folder.join("s").join(format!("{picture}.svg"));
        let svg = std::fs::read_to_string(path).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("<text"), "{picture} says nothing");
    }
    let seed = [&arguments[..], &["--seed", "2"]].concat();
    says(&p.error(&seed), &["other settings: seed", "--out"]);
}

#[test]
fn a_model_is_summed_up_over_its_tasks() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let study = p.json(&[
        "study",
        "measure",
        "squeezenet1.1",
        "--candidates",
        "22",
        "--repetitions",
        "1",
        "--policies",
        "serial",
    ]);
    let rows = study["rows"].as_array().unwrap();
    let sums = study["models"].as_array().unwrap();
    assert_eq!(sums.len(), 1);
    assert_eq!(sums[0]["tasks"], rows.len());
    let total = |name: &str| rows.iter().map(|r| r[name].as_f64().unwrap()).sum::<f64>();
    assert_eq!(sums[0]["candidates"], 22);
    assert!((sums[0]["total_s"].as_f64().unwrap() - total("total_s")).abs() < 1e-6);
    let calls = rows
        .iter()
        .map(|r| r["best_ns"].as_f64().unwrap() * r["uses"].as_f64().unwrap());
    let best = sums[0]["best_ns"].as_f64().unwrap();
    assert!((best / calls.sum::<f64>() - 1.0).abs() < 1e-6);
}

#[test]
fn only_what_there_is_can_be_swept() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let wrong = ["study", "measure", OP, "--sweep", "tao=1"];
    says(&p.error(&wrong), &["`tao` cannot be swept", "timeout"]);
}

#[test]
fn a_model_says_that_it_is_one() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let study = p.json(&["study", "measure", "--model", "--candidates", "256"]);
    assert_eq!(study["kind"], "modelled");
    let rows = study["rows"].as_array().unwrap();
    let first = &rows[0];
    assert_eq!(
        (&first["policy"], &first["max_dp"]),
        (&"naive".into(), &1.into())
    );
    assert!(first["against_serial"].as_f64().unwrap().abs() < 1e-6);
    assert!(
        p.ok(&["study", "measure", "--model", "--candidates", "64"])
            .starts_with("modelled")
    );
    says(&p.error(&["study", "measure"]), &["MODELS"]);
}

#[test]
fn candidates_are_read_instead_of_run() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let tune = [
        "tune",
        OP,
        "--threads",
        "1",
        "--trials",
        "12",
        "--store",
        "s.sqlite",
    ];
    let report = p.json(
        &[
            &tune[..],
            &["--evaluate", "static", "--score-cpu", "znver4"],
        ]
        .concat(),
    );
    assert!(
        report["latency_after_ms"].as_f64().unwrap() > 0.0,
        "{report}"
    );
    assert_eq!(report["scores"], "cycles znver4");
    let log = p.json(&["replay", "--run", "1", "--store", "s.sqlite"]);
    let events = log["events"].as_array().unwrap().iter();
    let tells: Vec<_> = events.filter(|e| e["kind"] == "tell").collect();
    let read = |e: &&&Value| e["payload"]["evaluator"] == "static";
    let scored = |e: &&&Value| e["payload"]["outcome"] == "scored";
    assert!(tells.iter().filter(read).count() >= 10, "{log}");
    assert!(tells.iter().filter(scored).count() >= 10, "{log}");
}
