//! Tables: what was recorded is what is answered, and damage is named with its place.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use store::{
    Clock, Cost, KnobValue, Outcome, RECORDED, Record, RecordPlace, RecordQuery, Stage, Store,
    StoreError, Table, export_jsonl, export_t4,
};

use crate::samples::{machine, prepare, prepared, record, run, scored, target, task, timed, wrong};

/// A result as the published data sets of the auto-tuning association have it.
fn correct(block: u32, tile: u32, runtimes_ms: &[f64]) -> Value {
    let mean = runtimes_ms.iter().sum::<f64>() / runtimes_ms.len() as f64;
    json!({
        "timestamp": "2023-12-22 09:54:05.502007+00:00",
        "configuration": {"block_size_x": block, "filter_height": 15, "tile_size_x": tile},
        "times": {
            "compilation": 918.5990339610726,
            "framework": 105.24242906831205,
            "search_algorithm": 0,
            "validation": 2.5,
            "runtimes": runtimes_ms,
        },
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [{"name": "time", "value": mean, "unit": ""}],
        "objectives": ["time"],
    })
}

fn failed(block: u32, tile: u32, invalidity: &str, marker: &str) -> Value {
    let mut result = correct(block, tile, &[1.0]);
    result["times"].as_object_mut().unwrap().remove("runtimes");
    result["invalidity"] = json!(invalidity);
    result["correctness"] = json!(0);
    result["measurements"][0]["value"] = json!(marker);
    result
}

/// Two knobs that vary and one that does not.
fn published() -> Value {
    json!({
        "metadata": {"timeunit": "miliseconds"},
        "results": [
            correct(128, 1, &[3.5, 9.0, 4.0]),
            correct(16, 2, &[2.25]),
            failed(32, 2, "runtime", "RuntimeFailedConfig"),
            failed(64, 2, "compile", "CompilationFailedConfig"),
            failed(64, 4, "constraints", "InvalidConfig"),
            failed(64, 1, "correctness", "RuntimeFailedConfig"),
            failed(32, 4, "timeout", "CompilationFailedConfig"),
            correct(16, 1, &[2.0, 2.5]),
        ],
        "schema_version": "1.0.0",
    })
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

fn open(path: &Path) -> Result<Table, StoreError> {
    Table::open(path, &RecordQuery::default())
}

/// What is wrong with a file, which the message names.
fn refused(path: &Path) -> String {
    let error = open(path).expect_err("the table should be refused");
    assert!(matches!(error, StoreError::BadTable { .. }), "{error}");
    let text = error.to_string();
    let begin = format!("the table {}", path.display());
    assert!(text.starts_with(&begin), "{text}");
    assert!(text.contains("; "), "there is no advice: {text}");
    text[begin.len()..].to_owned()
}

fn median_ns(table: &Table, values: &[u64]) -> Option<u64> {
    table.outcome(values)?.median_ns()
}

#[test]
fn a_t4_file_answers_what_it_recorded_and_nothing_else() {
    let folder = Folder::new();
    let text = published().to_string();
    let plain = folder.file("a.json", &text);
    let table = open(&plain).unwrap();
    assert_eq!(table.source(), plain.display().to_string());
    let knobs: Vec<(&str, Vec<String>)> = table
        .knobs()
        .iter()
        .map(|k| {
            let values = k.values.iter().map(ToString::to_string);
            (k.name.as_str(), values.collect())
        })
        .collect();
    let texts = |values: &[&str]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        knobs,
        [
            ("block_size_x", texts(&["16", "32", "64", "128"])),
            ("filter_height", texts(&["15"])),
            ("tile_size_x", texts(&["1", "2", "4"])),
        ]
    );
    assert_eq!((table.len(), table.is_empty()), (8, false));
    assert_eq!(median_ns(&table, &[3, 0, 0]), Some(4_000_000));
    assert_eq!(median_ns(&table, &[0, 0, 1]), Some(2_250_000));
    for missing in [
        &[1, 0, 0][..],
        &[3, 0, 2],
        &[4, 0, 0],
        &[3, 0],
        &[3, 0, 0, 0],
        &[],
    ] {
        assert_eq!(table.outcome(missing), None, "{missing:?}");
    }
    let (best, answer) = table.best().unwrap();
    assert_eq!(
        (best, answer.outcome.median_ns()),
        (&[0, 0, 1][..], Some(2_250_000))
    );

    let zip = folder.file("a.json.gz", zipped(text.as_bytes()));
    let unzipped = open(&zip).unwrap();
    assert_eq!(unzipped.knobs(), table.knobs());
    assert!(unzipped.iter().zip(table.iter()).all(|(a, b)| {
        let form = |outcome| serde_json::to_value(outcome).unwrap();
        a.0 == b.0 && form(&a.1.outcome) == form(&b.1.outcome)
    }));
}

#[test]
fn a_t4_result_keeps_all_runs_what_it_took_and_how_it_failed() {
    let folder = Folder::new();
    let table = open(&folder.file("a.json", published().to_string())).unwrap();
    let answer = table.answer(&[3, 0, 0]).unwrap();
    let Outcome::Timed {
        samples_ns, clock, ..
    } = &answer.outcome
    else {
        panic!("{answer:?}");
    };
    assert_eq!(samples_ns, &[3_500_000, 9_000_000, 4_000_000]);
    assert_eq!(clock, &Clock::Other("t4".into()));
    let spent = &answer.spent;
    let walls = [
        &spent.build,
        &spent.load,
        &spent.search,
        &spent.measure,
        &spent.check,
    ];
    assert_eq!(
        walls.map(|s| s.wall_ns),
        [918_599_034, 105_242_429, 0, 16_500_000, 2_500_000]
    );
    let labels: Vec<&str> = table.iter().map(|(_, a)| a.outcome.label()).collect();
    assert_eq!(
        labels,
        [
            "timed",
            "timed",
            "crashed-run",
            "crashed-build",
            "rejected",
            "wrong",
            "timed-out-build",
            "timed"
        ]
    );
    let crashed = table.outcome(&[1, 0, 1]).unwrap();
    assert_eq!(crashed.stage(), Some(Stage::Run));
    assert_eq!(crashed.cost(), None);
}

#[test]
fn times_have_the_unit_that_the_file_says() {
    let folder = Folder::new();
    let first = |document: &Value| {
        let table = open(&folder.file("a.json", document.to_string())).unwrap();
        table.iter().next().unwrap().1.outcome.median_ns()
    };
    let mut document = published();
    for (unit, ns) in [
        ("s", 4_000_000_000),
        ("milliseconds", 4_000_000),
        ("us", 4_000),
        ("nanoseconds", 4),
    ] {
        document["metadata"]["timeunit"] = json!(unit);
        assert_eq!(first(&document), Some(ns), "{unit}");
    }
    // Without runs the objective is the sample, in a unit of its own.
    document["results"][0]["times"] = Value::Null;
    document["results"][0]["measurements"][0] = json!({"name": "time", "value": 7, "unit": "us"});
    assert_eq!(first(&document), Some(7_000));
    document["results"][0]["measurements"][0]["unit"] = json!("");
    assert_eq!(first(&document), Some(7), "the unit of the file");
}

#[test]
fn values_may_be_names_and_truth_values() {
    let folder = Folder::new();
    let mut document = published();
    let results = document["results"].as_array_mut().unwrap();
    for (number, result) in results.iter_mut().enumerate() {
        result["configuration"]["order"] = json!(["xy", "yx"][number % 2]);
        result["configuration"]["padded"] = json!(number % 2 == 0);
        result["configuration"]["scale"] = json!([0.5, -0.0, 0.0][number % 3]);
    }
    let table = open(&folder.file("a.json", document.to_string())).unwrap();
    let values = |name: &str| {
        let knob = table.knobs().iter().find(|k| k.name == name).unwrap();
        knob.values.clone()
    };
    let text = |t: &str| KnobValue::Text(t.into());
    assert_eq!(values("order"), [text("xy"), text("yx")]);
    assert_eq!(values("padded"), [text("false"), text("true")]);
    let numbers = [KnobValue::Number(0.0), KnobValue::Number(0.5)];
    assert_eq!(values("scale"), numbers, "there is one zero");
}

/// The published file with another value at a JSON pointer is refused, at this place and
/// for this reason.
fn assert_refused(damages: &[(&str, Value, &str, &str)]) {
    let folder = Folder::new();
    for (pointer, value, place, reason) in damages {
        let mut document = published();
        *document
            .pointer_mut(pointer)
            .expect("there is such a place") = value.clone();
        let said = refused(&folder.file("a.json", document.to_string()));
        assert!(said.starts_with(&format!("{place}: ")), "{said}");
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn damage_of_a_t4_file_and_its_configurations_is_named_with_its_place() {
    let unit = ", metadata.timeunit";
    let configuration = |block, tile| json!({"block_size_x": block, "tile_size_x": tile});
    let more = json!({"block_size_x": 16, "filter_height": 15, "tile_size_x": 2, "more": 1});
    let again = correct(16, 2, &[1.0])["configuration"].clone();
    assert_refused(&[
        ("/metadata", json!({}), unit, "missing"),
        (
            "/metadata/timeunit",
            json!("fortnights"),
            unit,
            "`fortnights`",
        ),
        ("/metadata/timeunit", json!(3), unit, "is 3"),
        ("/results", json!({}), "", "no list"),
        ("/results", Value::Null, "", "is missing, no list"),
        ("/results", json!([]), "", "empty"),
        (
            "/results/2",
            json!("x"),
            ", results[2]",
            "the text `x`, no object",
        ),
        (
            "/results/2/configuration",
            json!([1]),
            ", results[2]",
            "[1], no object",
        ),
        (
            "/results/2/configuration",
            json!({}),
            ", results[2].configuration",
            "empty",
        ),
        (
            "/results/1/configuration/tile_size_x",
            json!([2]),
            ", results[1].configuration.tile_size_x",
            "[2], no number",
        ),
        (
            "/results/1/configuration",
            configuration(1, 2),
            ", results[1]",
            "no `filter_height`, that of results[0] has",
        ),
        (
            "/results/1/configuration",
            more,
            ", results[0]",
            "no `more`, that of results[1] has",
        ),
        (
            "/results/7/configuration",
            again,
            ", results[7]",
            "that of results[1] again",
        ),
    ]);
}

#[test]
fn damage_of_the_times_in_a_t4_file_is_named_with_its_place() {
    let runs = "/results/0/times/runtimes";
    let third = "/results/0/times/runtimes/2";
    let said_third = ", results[0].times.runtimes[2]";
    let untimed = json!({
        "configuration": correct(16, 2, &[1.0])["configuration"],
        "invalidity": "correct",
    });
    let mut rate = untimed.clone();
    rate["measurements"] = json!([{"name": "time", "value": 900.0, "unit": "GFLOP/s"}]);
    assert_refused(&[
        ("/results/0/times", json!(5), ", results[0]", "`times` is 5"),
        (runs, json!(5), ", results[0].times.runtimes", "no list"),
        (
            third,
            json!("fast"),
            said_third,
            "the text `fast` is no time of a run",
        ),
        (third, json!(-1.0), said_third, "-1.0 is no time"),
        (third, json!(0), said_third, "0 is no time"),
        (third, json!(1e300), said_third, "no time"),
        (
            "/results/3/times/compilation",
            json!("long"),
            ", results[3].times.compilation",
            "`long`",
        ),
        (
            "/results/4/invalidity",
            json!("haunted"),
            ", results[4].invalidity",
            "`haunted`",
        ),
        (
            "/results/2/invalidity",
            json!("correct"),
            ", results[2].measurements",
            "`RuntimeFailedConfig` is no time",
        ),
        (
            "/results/1",
            untimed,
            ", results[1]",
            "is correct and has no time",
        ),
        (
            "/results/1",
            rate,
            ", results[1].measurements",
            "the text `GFLOP/s`",
        ),
    ]);
}

#[test]
fn files_that_are_damaged_or_no_table_are_refused() {
    let folder = Folder::new();
    let text = published().to_string();
    let zip = zipped(text.as_bytes());
    for end in [3, 12, zip.len() / 2, zip.len() - 1] {
        let said = refused(&folder.file("cut.json.gz", &zip[..end]));
        assert!(said.contains("damaged or cut off"), "{end}: {said}");
    }
    let mut flipped = zip.clone();
    let checksum = flipped.len() - 6;
    flipped[checksum] ^= 1;
    let said = refused(&folder.file("flipped.json.gz", flipped));
    assert!(said.contains("damaged or cut off"), "{said}");
    let said = refused(&folder.file("cut.json", &text[..text.len() / 2]));
    assert!(said.starts_with(", line 1: it is no JSON"), "{said}");
    let said = refused(&folder.file("words.json", "once\nupon"));
    assert!(said.starts_with(", line 1: it is no JSON"), "{said}");
    refused(&folder.file("empty.json", ""));
    let said = refused(&folder.file("list.json", "[1, 2]"));
    assert!(said.contains("no `results`"), "{said}");
    let nan = text.replace("2.25", "NaN");
    let said = refused(&folder.file("nan.json", nan));
    assert!(said.contains("no JSON"), "{said}");
    let said = refused(folder.0.path());
    assert!(said.contains("no regular file"), "{said}");
    let said = refused(&folder.0.path().join("none.json"));
    assert!(said.contains("No such file"), "{said}");
}

/// A run whose candidates come from two algorithms with decisions of their own.
fn two_algorithms(store: &Store) {
    let outcomes = [timed(&[5]), wrong(), timed(&[3, 9, 4]), timed(&[8])];
    for (trial, outcome) in (0..).zip(outcomes) {
        let mut record = record("r1", trial, outcome);
        if trial == 3 {
            record.algorithm = "winograd".into();
            record.decisions[0].name = "lanes".into();
        }
        store.insert_record(&record).unwrap();
    }
}

#[test]
fn a_store_its_export_and_its_t4_file_are_one_table() {
    let folder = Folder::new();
    let path = folder.0.path().join("a.tune");
    let store = Store::open(&path).unwrap();
    prepare(&store, "r1");
    two_algorithms(&store);
    let (mut lines, mut t4) = (Vec::new(), Vec::new());
    export_jsonl(&store, &mut lines).unwrap();
    let target = target().text();
    let place = RecordPlace {
        task: "t1",
        target: &target,
        machine: "m1",
    };
    export_t4(&store, &place, |_| true, &mut t4).unwrap();
    let of_store = open(&path).unwrap();
    let names: Vec<&str> = of_store.knobs().iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["algorithm", "lanes", "tile"]);
    assert_eq!(
        of_store.knobs()[1].values,
        [KnobValue::Absent, KnobValue::Number(3.0)]
    );
    let best = of_store.best().unwrap();
    assert_eq!(best.0, [0, 0, 3]);
    assert_eq!(best.1.outcome.cost(), Some(Cost::Time { ns: 4 }));
    for other in [
        folder.file("a.jsonl", &lines),
        folder.file("a.jsonl.gz", zipped(&lines)),
        folder.file("a.t4.json", &t4),
    ] {
        let table = open(&other).unwrap();
        assert_eq!(table.knobs(), of_store.knobs());
        let rows = |table: &Table| -> Vec<_> {
            let row = |(values, answer): (&[u64], &store::Answer)| {
                let build_ns = answer.spent.build.wall_ns;
                (
                    values.to_vec(),
                    answer.outcome.cost(),
                    answer.outcome.label(),
                    build_ns,
                )
            };
            table.iter().map(row).collect()
        };
        assert_eq!(rows(&table), rows(&of_store), "{}", other.display());
    }
    let cut = &lines[..lines.len() - 9];
    let said = refused(&folder.file("cut.jsonl", cut));
    let number = lines.iter().filter(|b| **b == b'\n').count();
    assert!(
        said.starts_with(&format!(", line {number}: the line is cut off")),
        "{said}"
    );
}

/// A record of the candidate that chose `index`.
fn chose(index: u64, trial: u64, outcome: Outcome) -> Record {
    let mut record = record("r1", trial, outcome);
    record.decisions[0].index = index;
    record
}

#[test]
fn of_the_records_of_a_candidate_the_oldest_measured_trial_counts() {
    let store = prepared();
    let insert = |record: Record| store.insert_record(&record).unwrap();
    let finalist = |record: Record| Record {
        final_: true,
        ..record
    };
    let replayed = |record: Record| Record {
        evaluator: RECORDED.into(),
        ..record
    };
    insert(Record {
        toolchain: "an older one".into(),
        created_unix_ms: 1,
        ..chose(7, 0, timed(&[1]))
    });
    insert(replayed(chose(0, 1, timed(&[2]))));
    insert(finalist(chose(0, 2, timed(&[3]))));
    insert(chose(0, 3, timed(&[4])));
    insert(chose(0, 4, timed(&[5])));
    insert(finalist(chose(1, 5, timed(&[6]))));
    insert(Record {
        evaluator: "static".into(),
        ..chose(2, 6, scored("static", 1.0))
    });
    let nothing = Outcome::Unanswered {
        reason: "no runner: no such file".into(),
    };
    insert(chose(3, 7, nothing));
    let table = Table::of_records(&store, &RecordQuery::default()).unwrap();
    let rows: Vec<_> = table
        .iter()
        .map(|(v, a)| (v.to_vec(), a.outcome.median_ns()))
        .collect();
    assert_eq!(rows, [(vec![0, 0], Some(4)), (vec![0, 1], Some(6))]);
}

#[test]
fn a_table_is_of_one_place() {
    let store = prepared();
    store.begin_run(&run("r2")).unwrap();
    store.put_task(&task("t2")).unwrap();
    store.put_machine(&machine("m2")).unwrap();
    let none = Table::of_records(&store, &RecordQuery::default()).unwrap_err();
    assert!(
        none.to_string().contains("no record that is selected"),
        "{none}"
    );
    store.insert_record(&record("r1", 0, timed(&[5]))).unwrap();
    let elsewhere = Record {
        task: "t2".into(),
        machine: "m2".into(),
        ..record("r2", 0, timed(&[6]))
    };
    store.insert_record(&elsewhere).unwrap();
    let error = Table::of_records(&store, &RecordQuery::default()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StoreError::BadTable { .. }), "{text}");
    for part in ["2 places", "task t1 on", "task t2 on", "machine m2"] {
        assert!(text.contains(part), "{text}");
    }
    let filter = RecordQuery {
        task: Some("t2"),
        ..RecordQuery::default()
    };
    let table = Table::of_records(&store, &filter).unwrap();
    assert_eq!(table.best().unwrap().1.outcome.median_ns(), Some(6));
}
