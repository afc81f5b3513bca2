//! The T4 export against the shape of the community's published files.

use serde_json::{Value, json};
use store::{Decision, Extra, Outcome, RecordPlace, Stage, Store, StoreError, export_t4};

use crate::samples::{prepared, record, scored, target, timed, wrong};

/// A store with a record of each kind of outcome, two decisions of one name each.
fn one_of_each() -> Store {
    let store = prepared();
    let timed_out = |stage| Outcome::TimedOut { stage, limit_ms: 5 };
    let outcomes = [
        timed(&[3_000_000, 1_000_000, 2_500_000]),
        wrong(),
        Outcome::OutOfMemory {
            stage: Stage::Build,
        },
        Outcome::Crashed {
            stage: Stage::Load,
            signal: None,
            stderr: String::new(),
        },
        timed_out(Stage::Build),
        timed_out(Stage::Run),
        Outcome::Rejected {
            reason: "too wide".into(),
        },
        Outcome::Skipped {
            filter: "cold".into(),
        },
        Outcome::Unanswered {
            reason: "no runner: no such file".into(),
        },
        scored("static", 1.0),
    ];
    for (trial, outcome) in outcomes.into_iter().enumerate() {
        let mut record = record("r1", trial as u64, outcome);
        let twin = Decision {
            index: 0,
            extra: Extra::new(),
            ..record.decisions[0].clone()
        };
        record.decisions.push(twin);
        store.insert_record(&record).unwrap();
    }
    store
}

#[test]
fn outcomes_become_results_as_in_published_files() {
    let store = one_of_each();
    let target = target().text();
    let place = RecordPlace {
        task: "t1",
        target: &target,
        machine: "m1",
    };
    let mut bytes = Vec::new();
    let exported = export_t4(&store, &place, |_| true, &mut bytes).unwrap();
    assert_eq!((exported.results, exported.left_out), (7, 3));

    let document: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["schema_version"], "1.0.0");
    assert_eq!(document["metadata"]["timeunit"], "miliseconds");
    let results = document["results"].as_array().unwrap();
    let verdicts: Vec<(&str, u64)> = results
        .iter()
        .map(|r| {
            (
                r["invalidity"].as_str().unwrap(),
                r["correctness"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("correct", 1),
        ("correctness", 0),
        ("compile", 0),
        ("runtime", 0),
        ("timeout", 0),
        ("timeout", 0),
        ("constraints", 0),
    ];
    assert_eq!(verdicts, expected);
    assert_eq!(
        results[0],
        json!({
            "timestamp": "2023-11-14 22:13:20.123000+00:00",
            "evaluator": "timed",
            "configuration": {"algorithm": "direct", "tile": 0, "tile#2": 0},
            "times": {
                "compilation": 5.0,
                "framework": 0.0,
                "search_algorithm": 0.0,
                "validation": 0.0,
                "runtimes": [3.0, 1.0, 2.5],
            },
            "invalidity": "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": 2.5, "unit": "ms"}],
            "objectives": ["time"],
        })
    );
    for failed in &results[1..] {
        assert!(failed["times"].get("runtimes").is_none(), "{failed}");
        assert!(failed["measurements"][0]["value"].is_string(), "{failed}");
    }
    assert_eq!(
        results[2]["measurements"][0]["value"],
        "CompilationFailedConfig"
    );
    assert_eq!(results[6]["measurements"][0]["value"], "InvalidConfig");
}

#[test]
fn a_place_without_records_is_an_empty_document_and_without_task_an_error() {
    let store = prepared();
    store.insert_record(&record("r1", 0, timed(&[5]))).unwrap();
    let mut bytes = Vec::new();
    let place = RecordPlace {
        task: "t1",
        target: "other",
        machine: "m1",
    };
    assert_eq!(
        export_t4(&store, &place, |_| true, &mut bytes)
            .unwrap()
            .results,
        0
    );
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["results"], json!([]));
    let unknown = RecordPlace {
        task: "t9",
        ..place
    };
    let error = export_t4(&store, &unknown, |_| true, &mut Vec::new()).unwrap_err();
    assert!(
        matches!(error, StoreError::UnknownKey { what: "task", .. }),
        "{error}"
    );
}
