//! `study simulate` on samples that a formula made.

use crate::program::place;
use std::fmt::Write;
use tempfile::tempdir;

/// Lines of samples: the time grows with instructions and with misses of the first cache.
fn samples() -> String {
    let mut lines = String::new();
    for (g, group) in [(1, "small"), (20, "large")] {
        for i in 0..60 {
            let instructions = g * (1000 + i * 37 % 61 * 50);
            let misses = g * (i * 53 % 59 * 5);
            let hits = g * 400;
            let time = instructions + 4 * misses;
            let nothing = r#"{"hits":0,"misses":0,"replacements":0}"#;
            writeln!(
                lines,
                r#"{{"group":"{group}","kind":"conv2d","cpu":"cortex-a72","sketch":"s","trace":"{i}","statistics":{{"simulator":"formula","instructions":{instructions},"loads":{hits},"stores":0,"branches":9,"l1d":{{"read":{{"hits":{hits},"misses":{misses},"replacements":0}},"write":{nothing}}},"l1i":{{"read":{nothing},"write":{nothing}}},"shared":[]}},"code":{{"lines":[0,0,0],"pages":0,"forks":{instructions},"machine":null}},"time_ns":{time},"proposed":"random"}}"#
            )
            .unwrap();
        }
    }
    lines
}

#[test]
fn predictors_are_compared_on_samples() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    std::fs::write(folder.path().join("samples.jsonl"), samples()).unwrap();
    let ask = [
        "study",
        "simulate",
        "samples.jsonl",
        "--predictors",
        "linear,trees",
        "--splits",
        "2",
    ];
    let said = p.ok(&[&ask[..], &["--features", "reading", "--plot", "orders.svg"]].concat());
    for part in [
        "conv2d on cortex-a72",
        "linear",
        "static score",
        "mean",
        "R_top1",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let svg = std::fs::read_to_string(folder.path().join("orders.svg")).unwrap();
    assert!(svg.contains("trees: large"), "{svg}");
    let left_out = ["--leave-out", "small", "--window", "6"];
    let judged = p.json(&[&ask[..], &left_out].concat());
    let figures = judged["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 1 + 2 * 2 * 3);
    let new = figures.iter().find(|f| f["included"] == false).unwrap();
    assert_eq!(new["tested"], 12);
    assert!(new["median"]["r_top1"].as_f64().unwrap() < 30.0, "{new}");
}

#[test]
fn lines_and_groups_that_are_wrong_are_named() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    std::fs::write(folder.path().join("good.jsonl"), samples()).unwrap();
    let bad = samples().replacen("\"kind\"", "\"kin\"", 1);
    std::fs::write(folder.path().join("bad.jsonl"), bad).unwrap();
    let error = p.error(&["study", "simulate", "good.jsonl", "bad.jsonl"]);
    assert!(error.contains("bad.jsonl, line 1"), "{error}");
    let error = p.error(&["study", "simulate", "good.jsonl", "--leave-out", "tiny"]);
    assert!(error.contains("known groups: large, small"), "{error}");
}
