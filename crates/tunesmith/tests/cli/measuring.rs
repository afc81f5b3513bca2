//! How candidates are measured is the user's choice, and all say which it was.

use super::errors::says;
use super::program::{OP, place};
use serde_json::Value;
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
        logs.push(rounds);
    }
    assert_eq!(logs[0][0]["dp"], 1);
    let last = logs[0].last().unwrap();
    assert_eq!(logs[1][0]["dp"], last["next"]["dp"]);
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
    assert!(p.ok(&["knobs"]).contains("gamma-max"));
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
        assert!(r["best_ns"].as_u64().unwrap() > 0, "{r}");
        assert!(r["wall_s"].as_f64().unwrap() > 0.0);
        assert_eq!(r["against_serial"] == 0.0, r["policy"] == "serial");
    }
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
