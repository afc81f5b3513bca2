//! What runs log: the typed form, the written form, and what is carried along unread.

use serde_json::{Value, json};
use store::{Budget, Cost, Event, EventKind, Extra, Kept, Revised, Score, Seen, Skipped, Tell};

use crate::samples::{event, payload, prepared, record, scored, tell, timed};

/// `events-v1.jsonl` is a log as schema version 1 wrote it. It never changes.
fn old() -> Vec<Value> {
    let lines = include_str!("../fixtures/events-v1.jsonl").lines();
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// The written form that an event of version 1 has now.
fn of_today(mut old: Value) -> Value {
    if old["kind"] == "tell" {
        old["payload"]["evaluator"] = json!("timed");
    }
    old
}

#[test]
fn events_of_version_1_read_as_what_they_are() {
    let mut kinds = Vec::new();
    for line in old() {
        let event: Event = serde_json::from_value(line.clone()).unwrap();
        assert!(
            !matches!(event.kind, EventKind::Unknown { .. }),
            "{line:#} is not known"
        );
        assert_eq!(event.kind.name(), line["kind"]);
        kinds.push(event.kind.name().to_owned());
        assert_eq!(serde_json::to_value(&event).unwrap(), of_today(line));
    }
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "ask",
            "tell",
            "doppler",
            "reference",
            "in_model",
            "in_model_total",
            "compared",
            "layouts"
        ]
    );
}

#[test]
fn fields_of_a_newer_version_survive_wherever_they_are() {
    for line in old() {
        let mut top = line.clone();
        top["payload"]["newer"] = json!([1.5, null]);
        let event: Event = serde_json::from_value(top.clone()).unwrap();
        assert!(!matches!(event.kind, EventKind::Unknown { .. }), "{top:#}");
        assert_eq!(serde_json::to_value(&event).unwrap(), of_today(top));
        // Where a field cannot be kept, the whole event is.
        for deep in ["decision", "gain", "total"] {
            if line["payload"][deep].is_object() {
                let mut newer = line.clone();
                newer["payload"][deep]["newer"] = json!(1);
                let event: Event = serde_json::from_value(newer.clone()).unwrap();
                assert!(matches!(event.kind, EventKind::Unknown { .. }), "{newer:#}");
                assert_eq!(serde_json::to_value(&event).unwrap(), newer);
            }
        }
    }
}

#[test]
fn kinds_and_forms_of_a_newer_version_are_carried_along() {
    for (name, payload) in [
        ("sonnet", json!({"lines": 14})),
        ("ask", json!({"trials": [0, 1]})),
        ("tell", json!(null)),
        ("budget", json!({"search": -1, "asks": 3, "reason": ""})),
    ] {
        let line = json!({
            "run_id": "r1", "seq": 3, "kind": name, "task": null, "payload": payload,
        });
        let event: Event = serde_json::from_value(line.clone()).unwrap();
        let name = name.to_owned();
        assert_eq!(event.kind, EventKind::Unknown { name, payload });
        assert_eq!(serde_json::to_value(&event).unwrap(), line);
    }
}

#[test]
fn a_store_gives_back_the_events_that_it_was_given() {
    let store = prepared();
    let budget = Budget {
        search: 2,
        asks: 64,
        reason: "it improved last".into(),
        extra: Extra::new(),
    };
    let skipped = Skipped {
        filter: "cold".into(),
        count: 900,
        trials: vec![3, 5],
        reasons: vec![],
        audited: vec![],
        extra: Extra::new(),
    };
    let seen = Seen {
        trial: 4,
        read: json!({"loads": 0.1 + 0.2, "others": [null, 1e-320]}),
        filter: None,
        extra: Extra::new(),
    };
    let kept = Kept {
        filter: "score".into(),
        trials: vec![6, 7],
        scores: vec![Some(f64::MAX), None],
        extra: Extra::new(),
    };
    let revised = Revised {
        run: "r0".into(),
        trial: 4,
        score: Score {
            kind: "cycles".into(),
            value: 1.0 / 3.0,
        },
        extra: Extra::new(),
    };
    let kinds: [EventKind; 6] = [
        budget.into(),
        skipped.into(),
        seen.into(),
        revised.into(),
        kept.into(),
        tell(&record("r1", 7, timed(&[5, 6, 9]))).into(),
    ];
    for kind in kinds.clone() {
        store.insert_event(&event("r1", kind)).unwrap();
    }
    let log = store.events("r1").unwrap();
    assert!(log.iter().map(|e| &e.kind).eq(&kinds));
    assert_eq!(
        payload(&kinds[1]),
        json!({"filter": "cold", "count": 900, "trials": [3, 5]})
    );
    let found = store.newest_events("resnet", Skipped::NAME).unwrap();
    assert_eq!(found, log[1..2]);
}

#[test]
fn a_tell_says_what_the_candidate_costs() {
    let time = Tell::of(1, "timed", &timed(&[5, 6, 9]));
    assert_eq!(time.cost(), Some(Cost::Time { ns: 6 }));
    let score = Tell::of(1, "static", &scored("cycles", -1.5));
    let cost = Cost::Score {
        kind: "cycles".into(),
        value: -1.5,
    };
    assert_eq!(score.cost(), Some(cost));
    let none = Tell::of(1, "static", &scored("cycles", f64::INFINITY));
    assert_eq!((none.cost(), none.outcome.as_str()), (None, "scored"));
}
