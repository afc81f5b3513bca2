//! Strategies compared: on recorded tables, and by real searches.

use crate::program::{OP, place};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A T4 file of a table of 8 by 8 values without its diagonal; the cost is least at (7, 0).
fn table() -> String {
    let row = |a: u32, b: u32| {
        json!({
            "configuration": {"a": a, "b": b},
            "times": {"runtimes": [f64::from(8 - a + 2 * b)]},
            "invalidity": "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": 1.0, "unit": "ms"}],
            "objectives": ["time"],
        })
    };
    let all = (0..8).flat_map(|a| (0..8).map(move |b| (a, b)));
    let results: Vec<Value> = all
        .filter(|(a, b)| a != b)
        .map(|(a, b)| row(a, b))
        .collect();
    json!({"schema_version": "1.0.0", "metadata": {"timeunit": "miliseconds"}, "results": results})
        .to_string()
}

#[test]
fn a_replayed_study_finds_the_optimum_and_continues_where_it_was_cut_off() {
    let folder = TempDir::new().unwrap();
    let p = place(&folder);
    std::fs::write(p.file("t4.json"), table()).unwrap();
    let (table, log, out) = (p.file("t4.json"), p.file("log.sqlite"), p.file("out"));
    let flags = [
        "--trials",
        "40",
        "--seeds",
        "2",
        "--filters",
        "none,neighbours",
        "--strategies",
        "evolutionary,funnel,random",
    ];
    let study = |more: &[&str]| {
        let all = [&["study", "strategies", table.as_str()], &flags[..], more].concat();
        p.json(&all)
    };
    let first = study(&["--log", &log]);
    assert_eq!(first["kind"], "replayed");
    let searches = first["searches"].as_array().unwrap();
    // Strategies, seeds and filters.
    assert_eq!(searches.len(), 3 * 2 * 2);
    for s in searches {
        assert_eq!(s["answered"], 40);
        let regret = s["regret"].as_array().unwrap().last().unwrap();
        assert!(regret[0] == 40 && regret[1].as_f64().unwrap() >= 1.0);
    }
    let best = |s: &&Value| s["regret"].as_array().unwrap().last().unwrap()[1] == json!(1.0);
    assert!(
        searches.iter().any(|s| best(&s)),
        "most of the table was seen"
    );
    let records = p.json(&["records", "--store", &log, "--limit", "0"]);
    let records = records["records"].as_array().unwrap();
    assert!(records.iter().all(|r| r["evaluator"] == "recorded"));
    let answered = searches
        .iter()
        .map(|s| s["answered"].as_u64().unwrap())
        .sum::<u64>();
    assert_eq!(records.len() as u64, answered);

    // The same without a log, kept in a folder whose last line a kill cut off.
    let without_time = |all: &Value| {
        let mut all = all["searches"].clone();
        all.as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(|s| (s["wall_s"], s["seconds"]) = (json!(0), json!([])));
        all
    };
    assert_eq!(without_time(&study(&["--out", &out])), without_time(&first));
    let cells = format!("{out}/cells.jsonl");
    let text = std::fs::read_to_string(&cells).unwrap();
    std::fs::write(&cells, &text[..text.len() - 40]).unwrap();
    let kept = text.lines().nth(1).unwrap();
    assert_eq!(without_time(&study(&["--out", &out])), without_time(&first));
    assert!(
        std::fs::read_to_string(&cells).unwrap().contains(kept),
        "not searched again"
    );
}

#[test]
fn cold_and_chance_are_compared_at_the_same_share() {
    let folder = TempDir::new().unwrap();
    let p = place(&folder);
    std::fs::write(p.file("t4.json"), table()).unwrap();
    let (table, page) = (p.file("t4.json"), p.file("trim.html"));
    let study = [
        "study",
        "strategies",
        &table,
        "--trials",
        "50",
        "--seeds",
        "1",
        "--strategies",
        "random",
    ];
    let by = |more: &[&str]| p.json(&[&study[..], more].concat());
    let all = by(&["--filters", "none,chance,cold", "--plot", &page]);
    let kinds = all["trimmed"].as_array().unwrap();
    let filters: Vec<&Value> = kinds.iter().map(|k| &k["filters"]).collect();
    assert_eq!(filters, [&json!([]), &json!(["cold"]), &json!(["chance"])]);
    for kind in kinds {
        let shares = kind["candidates"].as_array().unwrap().iter();
        let sum: f64 = shares.map(|s| s.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{kind}");
    }
    assert_eq!(all["searches"][0]["costs"].as_array().unwrap().len(), 50);
    assert!(
        std::fs::read_to_string(page)
            .unwrap()
            .matches("<circle")
            .count()
            >= 150
    );
    let half = by(&["--filters", "chance", "--chance", "50%"]);
    let skipped = half["searches"][0]["skipped"].as_u64().unwrap();
    assert!(skipped > 15, "{skipped}");
}

/// The same table, whose rows took a second each to compile.
fn timed_table() -> String {
    let mut table: Value = serde_json::from_str(&table()).unwrap();
    for row in table["results"].as_array_mut().unwrap() {
        row["times"]["compilation"] = json!(1000.0);
    }
    table.to_string()
}

#[test]
fn tuners_of_tables_are_surveyed_with_joules_under_both_curves() {
    let folder = TempDir::new().unwrap();
    let p = place(&folder);
    std::fs::write(p.file("a.json"), timed_table()).unwrap();
    std::fs::write(p.file("b.json"), timed_table()).unwrap();
    let (a, b, svg) = (p.file("a.json"), p.file("b.json"), p.file("s.svg"));
    let power = json!({"curves": [
        {"name": "one", "watts": [[0, 1], [1, 10]]},
        {"name": "two", "watts": [[0, 1], [1, 20]]},
    ]});
    std::fs::write(p.file("power.json"), power.to_string()).unwrap();
    let (file, out) = (p.file("power.json"), p.file("out"));
    let study = ["study", "trim", "survey", &a, &b, "--tuners", "grid,random"];
    let length = [
        "--seeds",
        "2",
        "--trials",
        "40",
        "--survey",
        "trials=8,patience=1",
    ];
    let more = ["--machine-file", &file, "--out", &out];
    let study = [&study[..], &length, &more].concat();
    let found = p.json(&[&study[..], &["--plot", &svg]].concat());
    assert_eq!(found["kind"], json!(["replayed", "modelled"]));
    let compared = found["compared"].as_array().unwrap();
    let of = |tables: &str, budget: &str| {
        let same = |c: &&Value| c["tables"] == tables && c["budget"] == budget;
        compared.iter().find(same).unwrap()
    };
    assert_eq!(compared.len(), 3 * 3);
    for (tables, jobs) in [("a.json", 2.0), ("b.json", 2.0), ("all tables", 4.0)] {
        let (parallel, survey) = (of(tables, "parallel"), of(tables, "survey"));
        assert_eq!(parallel["answers"], 40.0 * jobs);
        assert_eq!(parallel["saved"][0]["share"], 0.0);
        // A second and some milliseconds for each answer, and what the search itself takes.
        let joules = |c: &Value, curve: usize| c["joules"][curve].as_f64().unwrap();
        assert!(joules(parallel, 0) >= 10.0 * 40.0 * jobs, "{parallel}");
        assert!((joules(parallel, 1) / joules(parallel, 0) - 2.0).abs() < 1e-9);
        assert!(survey["answers"].as_f64().unwrap() <= 40.0 * jobs);
        assert!(of(tables, "gradient")["to"][0][0].as_u64().unwrap() > 0);
    }
    let runs = found["runs"].as_array().unwrap();
    for run in runs.iter().filter(|r| r["budget"] == "survey") {
        let first = run["epochs"][0].as_array().unwrap();
        assert!(first.iter().all(|tuner| tuner["ran"] == true), "{run}");
    }
    let svg = std::fs::read_to_string(svg).unwrap();
    for drawn in ["grid", "a.json", "polyline"] {
        assert!(svg.contains(drawn), "{drawn}: {svg}");
    }
    let text = p.ok(&study);
    assert!(
        text.contains("Modelled") && text.contains("saved at equal latency"),
        "{text}"
    );
}

#[test]
fn replayed_answers_stay_in_a_store_of_their_own() {
    let folder = TempDir::new().unwrap();
    let p = place(&folder);
    std::fs::write(p.file("t4.json"), table()).unwrap();
    let (table, store) = (p.file("t4.json"), p.file("store.sqlite"));
    let op = "op:matmul(m=32,n=32,k=32)";
    p.ok(&[
        "tune",
        op,
        "--trials",
        "2",
        "--threads",
        "1",
        "--store",
        &store,
        "--out",
        &p.file("m.tsm"),
    ]);
    let error = p.error(&["study", "strategies", &table, "--log", &store]);
    assert!(
        error.contains("measured records") && error.contains("--log"),
        "{error}"
    );
    let error = p.error(&["study", "strategies", &table, "--filters", "lukewarm"]);
    assert!(
        error.contains("no filter `lukewarm`") && error.contains("neighbours"),
        "{error}"
    );
}

#[test]
fn strategies_are_scored_over_a_share_of_the_rows_and_drawn() {
    let folder = TempDir::new().unwrap();
    let p = place(&folder);
    std::fs::write(p.file("t4.json"), table()).unwrap();
    let (table, plot) = (p.file("t4.json"), p.file("scores.svg"));
    let study = [
        "study",
        "strategies",
        &table,
        "--share",
        "20%",
        "--seeds",
        "2",
        "--strategies",
        "evolutionary,random",
        "--curves",
        &plot,
    ];
    let figures = p.json(&study);
    for s in figures["summaries"].as_array().unwrap() {
        assert_eq!(s["scores"].as_array().unwrap().len(), 50);
        assert!(s["score"].as_f64().unwrap() <= 1.0);
    }
    // A fifth of 56 rows.
    let searches = figures["searches"].as_array().unwrap();
    assert!(searches.iter().all(|s| s["answered"] == 12), "{searches:?}");
    let drawn = std::fs::read_to_string(&plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("evolutionary"));
    let bands = |svg: &str| svg.matches("<polygon").count();
    assert_eq!(bands(&drawn) % 2, 0, "two strategies in each chart");
    // Few answers have no scores, and still a curve.
    let few = [
        "study",
        "strategies",
        &table,
        "--strategies",
        "random",
        "--seeds",
        "2",
        "--curves",
        &plot,
    ];
    p.ok(&[&few[..], &["--trials", "6"]].concat());
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(bands(&svg) >= 1 && svg.contains(">\nrandom"), "{svg}");
    let one = p.error(&[&few[..], &["--trials", "1"]].concat());
    assert!(
        one.contains("no curve to draw") && one.contains("--trials"),
        "{one}"
    );
    let text = p.ok(&study[..study.len() - 2]);
    assert!(text.contains("at 20%") && text.contains("Score:"), "{text}");
    let error = p.error(&[&study[..], &["--trials", "9"]].concat());
    assert!(error.contains("--share"), "{error}");
}

#[test]
fn real_searches_are_kept_and_compared_and_a_killed_study_goes_on() {
    let folder = TempDir::new().unwrap();
    let p = place(&folder);
    let (out, svg) = (p.file("out"), p.file("curves.svg"));
    let study = [
        "study",
        "strategies",
        OP,
        "--strategies",
        "funnel,random+score",
        "--seeds",
        "2",
        "--trials",
        "5",
        "--start",
        "random",
        "--out",
        &out,
    ];
    let first = p.json(&[&study[..], &["--curves", &svg]].concat());
    assert_eq!(first["kind"], "measured");
    let searches = first["searches"].as_array().unwrap();
    assert_eq!(searches.len(), 2 * 2);
    for s in searches {
        let trials = s["trials"].as_array().unwrap();
        assert!(!trials.is_empty() && trials.len() <= 5, "{s}");
        let seconds: Vec<f64> = trials.iter().map(|t| t["s"].as_f64().unwrap()).collect();
        assert!(seconds[0] > 0.0 && seconds.is_sorted(), "{seconds:?}");
        assert_eq!(trials[0]["uses"], 1);
    }
    let outcomes = first["strategies"].as_array().unwrap();
    let means = outcomes
        .iter()
        .map(|o| o["equal_trials"]["mean"].as_f64().unwrap());
    let means: Vec<f64> = means.collect();
    assert!(means.is_sorted() && means[0] >= 1.0, "{means:?}");
    for o in outcomes {
        let shares = o["shares"].as_object().unwrap().values();
        let sum: f64 = shares.map(|s| s.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{o}");
        assert_eq!(o["searches"], 2);
    }
    let drawn = std::fs::read_to_string(svg).unwrap();
    for name in ["funnel", "random+score"] {
        assert!(
            drawn.matches(&format!(">\n{name}\n")).count() >= 1,
            "{name}"
        );
    }

    // A kill cut the last search off; the others are not searched again.
    let cells = format!("{out}/cells.jsonl");
    let text = std::fs::read_to_string(&cells).unwrap();
    let kept: Vec<&str> = text.lines().take(4).collect();
    std::fs::write(&cells, &text[..text.len() - 40]).unwrap();
    let second = p.json(&study);
    assert_eq!(second["searches"].as_array().unwrap().len(), 4);
    let text = std::fs::read_to_string(&cells).unwrap();
    assert_eq!(text.lines().take(4).collect::<Vec<_>>(), kept);
    assert_eq!(text.lines().count(), 5);
    // One that is whole searches nothing.
    assert_eq!(p.json(&study), second);
    let other = [&study[..], &["--threads", "2"]].concat();
    assert!(p.error(&other).contains("other settings: threads"));
}

#[test]
fn options_of_tables_and_of_searches_are_not_mixed() {
    let folder = TempDir::new().unwrap();
    let p = place(&folder);
    std::fs::write(p.file("t4.json"), table()).unwrap();
    let table = p.file("t4.json");
    let error = |more: &[&str]| p.error(&[&["study", "strategies"], more].concat());
    assert!(error(&[OP, "--share", "20%"]).contains("--share is for recorded tables"));
    assert!(error(&[&table, "--start", "random"]).contains("--start is for real searches"));
    assert!(error(&[&table, "--strategies", "es+read"]).contains("`es+read`: additions"));
    assert!(error(&[OP, &table]).contains("is no operator and no model"));
    let missing = error(&["op:nothing(m=1)", "--seeds", "1", "--strategies", "random"]);
    assert!(
        missing
            .contains("1 of the searches failed: op:nothing(m=1), seed 1, from defaults: random"),
        "{missing}"
    );
}
