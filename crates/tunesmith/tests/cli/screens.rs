//! What commands print fits the screen, and says what matters.

use super::errors::says;
use super::program::{OP, place, tuned};
use serde_json::json;
use tempfile::tempdir;

#[test]
fn every_table_fits_screens_of_80_and_120_columns() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let (store, artifact) = (t.store.as_str(), t.artifact.as_str());
    let two = "op:conv2d(c=8,h=9,w=9,k=16,r=3,s=3,pad=1,stride=2,dilation=2,bias=yes)";
    let commands: [&[&str]; 22] = [
        &["tasks", OP, "--threads", "1", "--store", store],
        &["tasks", two, "--threads", "1", "--store", store],
        &[
            "tune",
            OP,
            "--threads",
            "1",
            "--trials",
            "2",
            "--store",
            "s.sqlite",
        ],
        &["compile", two, "--defaults", "--out", "two.tsm"],
        &["records", "--store", store],
        &["records", "runs", "--store", store],
        &["records", "best", "--store", store],
        &["records", "counts", "--store", store],
        &["explain", artifact, "--threads", "1", "--time", "0s"],
        &[
            "explain",
            two,
            "--threads",
            "1",
            "--time",
            "0s",
            "--defaults",
            "--details",
            "--top",
            "1",
        ],
        &["run", artifact, "--random", "1"],
        &["bench", artifact, "--time", "0s"],
        &[
            "bench",
            OP,
            "--defaults",
            "--threads",
            "1",
            "--runs",
            "2",
            "--streams",
            "2",
        ],
        &["doctor", "--threads", "1"],
        &["knobs"],
        &["info", artifact],
        &["info", store],
        &["info", "resnet18"],
        &["simulate", "predictors"],
        &["space", OP, "--samples", "2"],
        &["study", "--help"],
        &["simulate", "--help"],
    ];
    for columns in [80, 120] {
        for args in commands {
            let text = p.on_screen(columns, args);
            for line in text.lines() {
                // A line of details is one schedule, which is not broken.
                let fits = line.chars().count() <= columns || line.starts_with("    ");
                assert!(fits, "{args:?} at {columns}: {line}\n{text}");
            }
        }
    }
    let wide = p.on_screen(
        80,
        &["tasks", OP, "--threads", "1", "--store", store, "--wide"],
    );
    says(&wide, &["sketches", "points", "key"]);
}

#[test]
fn help_is_one_page_and_the_rest_is_advanced() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let short = p.ok(&["tune", "--help"]);
    says(
        &short,
        &[
            "--time",
            "--out",
            "--threads",
            "--report",
            "--help-all",
            "Ctrl-C",
        ],
    );
    assert!(
        !short.contains("--oversubscribe") && !short.contains("Advanced"),
        "{short}"
    );
    assert!(short.lines().count() <= 60, "{short}");
    let long = p.ok(&["tune", "--help-all"]);
    says(
        &long,
        &["--time", "Advanced:", "--oversubscribe", "--strategy"],
    );
}

#[test]
fn a_run_says_what_it_gained_and_writes_a_page() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let args = [
        "tune",
        "op:matmul(m=64,n=64,k=64)",
        "--threads",
        "1",
        "--trials",
        "30",
        "--store",
        "s.sqlite",
        "--out",
        "m.tsm",
        "--report",
        "r.html",
    ];
    let text = p.ok(&args);
    assert!(
        text.contains("x faster (") || text.contains("the defaults are kept"),
        "{text}"
    );
    says(&text, &["30 candidates tried", "help", "written to m.tsm"]);
    assert!(!text.contains(" 0.0 "), "what is kept has a rate: {text}");
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    says(
        &page,
        &[
            "<!doctype html>",
            "matmul 64x64x64",
            "<svg",
            "Settings",
            "</html>",
        ],
    );
    // The same page may be written again, and nothing else is replaced by it.
    let report = p.json(&args);
    assert_eq!(
        report["changed"].as_bool().unwrap(),
        report["kept_default"].is_null() && !report["gain"].is_null()
    );
    std::fs::write(folder.path().join("r.html"), "mine").unwrap();
    says(&p.error(&args), &["r.html is not replaced"]);
}

#[test]
fn a_gain_has_an_interval_and_an_outlook() {
    let t = tuned();
    let outlook = &t.report["outlook"];
    assert!(
        ["none", "unlikely", "possible", "likely"].contains(&outlook["hope"].as_str().unwrap())
    );
    if let Some(gain) = t.report["gain"].as_object() {
        let number = |name: &str| gain[name].as_f64().unwrap();
        assert!(number("low") <= number("times") && number("times") <= number("high"));
        assert!(number("rounds") >= 6.0);
    }
    let task = &t.report["tasks"][0];
    for name in ["before_ms", "after_ms", "gflops_per_s", "share"] {
        assert!(task[name].as_f64().unwrap() > 0.0, "{name}: {task}");
    }
    assert!(t.report["latency_plain_ms"].is_null(), "plain on request");
}

#[test]
fn a_file_says_what_it_is() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let compiled = p.json(&["info", &t.artifact]);
    assert_eq!(compiled["kind"], "compiled-model");
    // Whoever runs it takes its threads, unless told otherwise.
    assert_eq!(compiled["threads"], 1);
    for args in [&["bench"][..], &["explain"]] {
        let own = [args, &[t.artifact.as_str(), "--time", "0s"]].concat();
        assert_eq!(p.json(&own)["threads"], 1);
        let two = [&own[..], &["--threads", "2"]].concat();
        assert_eq!(p.json(&two)["threads"], 2);
    }
    let bytes = &compiled["bytes"];
    let causes = ["weights", "prepared", "code", "other"].map(|c| bytes[c].as_u64().unwrap());
    assert_eq!(
        causes.iter().sum::<u64>(),
        compiled["file_bytes"].as_u64().unwrap()
    );
    assert!(bytes["code"].as_u64().unwrap() > 0);
    let store = p.json(&["info", &t.store]);
    assert_eq!(store["kind"], "store");
    assert!(store["records"].as_u64().unwrap() > 0);
    p.ok(&["models", "export", "squeezenet1.1", "model.onnx"]);
    let model = p.json(&["info", "model.onnx"]);
    assert_eq!(model["kind"], "model");
    assert_eq!(model["inputs"][0]["shape"], json!([1, 3, 224, 224]));
    assert_eq!(
        model["weight_bytes"]["f32"].as_u64().unwrap(),
        4 * 1_235_496
    );
    // What is no model is named, and so is what to do.
    std::fs::write(folder.path().join("m.pt"), b"PK\x03\x04").unwrap();
    for args in [["info", "m.pt"], ["bench", "m.pt"], ["compile", "m.pt"]] {
        says(&p.error(&args), &["PyTorch", "torch.onnx.export"]);
    }
    says(
        &p.error(&["run", "model.onnx"]),
        &["not compiled yet", "tunesmith compile"],
    );
    says(
        &p.error(&["compile", &t.artifact]),
        &["compiled model", "`run`"],
    );
}

#[test]
fn artifacts_are_explained_without_their_model() {
    let t = tuned();
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let args = [
        "explain",
        &t.artifact,
        "--threads",
        "1",
        "--time",
        "0s",
        "--html",
        "e.html",
    ];
    let text = p.ok(&args);
    says(
        &text,
        &["operations and limits are not known", "written to e.html"],
    );
    let page = std::fs::read_to_string(folder.path().join("e.html")).unwrap();
    says(&page, &["Layers, the slowest first", "</html>"]);
    let report = p.json(&args);
    assert!(report["layers"][0]["time"]["median_ms"].as_f64().unwrap() > 0.0);
}
