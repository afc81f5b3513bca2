//! What was stored is what is read, and what cannot be stored is refused.

use serde_json::json;
use store::{Decision, EventKind, Extra, NewEvent, Outcome, Record, RecordQuery, Run, StoreError};

use crate::samples::{
    event, every_outcome, machine, payload, prepare, prepared, record, run, scored, target, task,
    timed, written,
};

#[test]
fn every_outcome_reads_back_as_stored() {
    let store = prepared();
    let outcomes = every_outcome();
    for (trial, outcome) in outcomes.iter().enumerate() {
        store
            .insert_record(&record("r1", trial as u64, outcome.clone()))
            .unwrap();
    }
    let read = store.records_for(&RecordQuery::default()).unwrap();
    assert_eq!(read.len(), outcomes.len());
    for (trial, (read, outcome)) in read.iter().zip(outcomes).enumerate() {
        assert_eq!(written(read), written(&record("r1", trial as u64, outcome)));
    }
}

#[test]
fn keys_read_back_as_stored() {
    let store = prepared();
    assert_eq!(store.task("t1").unwrap().unwrap(), task("t1"));
    assert_eq!(store.target(&target().text()).unwrap().unwrap(), target());
    assert_eq!(store.machine("m1").unwrap().unwrap(), machine("m1"));
    assert_eq!(store.run("r1").unwrap().unwrap(), run("r1"));
    assert_eq!(store.task("t2").unwrap(), None);
}

#[test]
fn unknown_fields_survive_at_every_level() {
    let store = prepared();
    let mut form = written(&record("r1", 0, timed(&[5])));
    form["energy_uj"] = json!(12);
    form["outcome"]["throttled"] = json!([1, 2.5, null]);
    form["outcome"]["conditions"]["governor"] = json!({"name": "performance"});
    form["costs"]["upload"] = json!({"wall_ns": 3});
    form["costs"]["build"]["energy_uj"] = json!(u64::MAX);
    form["decisions"][0]["prior"] = json!(0.1);
    let newer: Record = serde_json::from_value(form.clone()).unwrap();
    assert_eq!(newer.outcome_extra["throttled"], json!([1, 2.5, null]));
    store.insert_record(&newer).unwrap();
    let read = store.records_for(&RecordQuery::default()).unwrap();
    assert_eq!(written(&read[0]), form);
    assert_eq!(read[0], newer);
}

#[test]
fn keys_are_put_once_and_take_over_unknown_fields() {
    let store = prepared();
    let mut newer = task("t1");
    newer.extra.insert("family".into(), json!("matmul"));
    assert!(!store.put_task(&newer).unwrap());
    assert_eq!(store.task("t1").unwrap().unwrap(), newer);
    assert!(!store.put_task(&task("t1")).unwrap());
    assert_eq!(store.task("t1").unwrap().unwrap(), newer);

    let mut collided = task("t1");
    collided.text = "another".into();
    let error = store.put_task(&collided).unwrap_err();
    assert!(
        matches!(&error, StoreError::Conflict { field, .. } if field == "text"),
        "{error}"
    );

    let mut newer = machine("m1");
    newer.extra.insert("cores".into(), json!(2));
    assert!(!store.put_machine(&newer).unwrap());
    assert_eq!(store.machine("m1").unwrap().unwrap(), newer);
    assert!(!store.put_target(&target()).unwrap());
    assert!(store.put_task(&task("t2")).unwrap());
}

#[test]
fn the_same_record_twice_is_one_and_another_with_its_identity_is_refused() {
    let store = prepared();
    let first = record("r1", 3, crate::samples::wrong());
    let id = store.insert_record(&first).unwrap();
    assert_eq!(store.insert_record(&first).unwrap(), id);
    let other = Record {
        trace: "split j 9".into(),
        ..first.clone()
    };
    let error = store.insert_record(&other).unwrap_err();
    assert!(
        matches!(&error, StoreError::Conflict { field, .. } if field == "trace"),
        "{error}"
    );
    let finalist = Record {
        final_: true,
        ..first.clone()
    };
    assert_ne!(store.insert_record(&finalist).unwrap(), id);
    let scored = Record {
        evaluator: "static".into(),
        outcome: scored("static", 1.0),
        ..first
    };
    let answer = store.insert_record(&scored).unwrap();
    assert_ne!(answer, id, "one trial has several answers");
    assert_eq!(store.insert_record(&scored).unwrap(), answer);
    assert_eq!(store.records_for(&RecordQuery::default()).unwrap().len(), 3);
}

#[test]
fn records_that_refer_to_nothing_or_contradict_themselves_are_refused() {
    let store = prepared();
    let good = record("r1", 0, timed(&[5]));
    type Change = fn(&mut Record);
    let dangling: [(&str, Change); 4] = [
        ("run", |r| r.run_id = "r9".into()),
        ("task", |r| r.task = "t9".into()),
        ("target", |r| r.target = "elsewhere".into()),
        ("machine", |r| r.machine = "m9".into()),
    ];
    for (what, change) in dangling {
        let mut broken = good.clone();
        change(&mut broken);
        let error = store.insert_record(&broken).unwrap_err();
        assert!(
            matches!(&error, StoreError::UnknownKey { what: found, .. } if *found == what),
            "{what}: {error}"
        );
    }
    let mut overlapped = Record {
        final_: true,
        ..good.clone()
    };
    if let Outcome::Timed { conditions, .. } = &mut overlapped.outcome {
        conditions.isolated = false;
    }
    let decision = Decision {
        index: 8,
        ..good.decisions[0].clone()
    };
    for broken in [
        overlapped,
        Record {
            outcome: timed(&[]),
            ..good.clone()
        },
        Record {
            decisions: vec![decision],
            ..good.clone()
        },
        Record {
            evaluator: String::new(),
            ..good.clone()
        },
        Record {
            trial: u64::MAX,
            ..good.clone()
        },
        Record {
            code_size: Some(u64::MAX),
            ..good.clone()
        },
    ] {
        let error = store.insert_record(&broken).unwrap_err();
        assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
    }
    let mut endless = task("t3");
    endless.flops = f64::NAN;
    assert!(matches!(
        store.put_task(&endless),
        Err(StoreError::Invalid { .. })
    ));
    assert!(
        store
            .records_for(&RecordQuery::default())
            .unwrap()
            .is_empty()
    );
}

#[test]
fn runs_resume_only_as_they_began() {
    let store = prepared();
    store
        .end_run("r1", 1_700_000_009_000, &json!({"best_ns": 5}))
        .unwrap();
    let ended = store.run("r1").unwrap().unwrap();
    assert_eq!(ended.ended_unix_ms, Some(1_700_000_009_000));
    assert_eq!(ended.summary, json!({"best_ns": 5}));

    assert!(!store.begin_run(&run("r1")).unwrap());
    assert_eq!(store.run("r1").unwrap().unwrap().ended_unix_ms, None);
    let mut other = run("r1");
    other.seed = 1;
    let error = store.begin_run(&other).unwrap_err();
    assert!(
        matches!(&error, StoreError::Conflict { field, .. } if field == "seed"),
        "{error}"
    );
    assert!(matches!(
        store.end_run("r9", 1, &json!({})),
        Err(StoreError::UnknownKey { .. })
    ));
}

#[test]
fn the_newest_events_of_a_model_come_first() {
    let store = prepared();
    for (id, model, started) in [("r0", "resnet", 5), ("r2", "resnet", 9), ("r3", "vgg", 10)] {
        let run = Run {
            model: model.into(),
            started_unix_ms: started,
            ..run(id)
        };
        store.begin_run(&run).unwrap();
        let event = |name: &str, n: u64| {
            let (name, payload) = (name.into(), json!({ "n": n }));
            event(id, EventKind::Unknown { name, payload })
        };
        let events = [event("a", 1), event("b", 2), event("a", 3)];
        store.append(&[], &events).unwrap();
    }
    let found = store.newest_events("resnet", "a").unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|e| (e.run_id.as_str(), payload(&e.kind)["n"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [("r2", 3), ("r2", 1), ("r0", 3), ("r0", 1)]);
    assert!(store.newest_events("resnet", "c").unwrap().is_empty());
}

#[test]
fn a_batch_is_stored_whole_or_not_at_all_and_events_keep_their_order() {
    let store = prepared();
    prepare(&store, "r2");
    let event = |run: &str, name: &str, task: Option<&str>| {
        let (name, payload) = (name.into(), json!({"trial": 1, "why": null}));
        NewEvent {
            task: task.map(Into::into),
            ..event(run, EventKind::Unknown { name, payload })
        }
    };
    assert_eq!(
        store.insert_event(&event("r1", "ask", Some("t1"))).unwrap(),
        0
    );
    assert_eq!(store.insert_event(&event("r2", "ask", None)).unwrap(), 0);

    let good = record("r1", 0, timed(&[5]));
    let broken = [
        event("r1", "tell", Some("t1")),
        event("r1", "budget", Some("t9")),
    ];
    assert!(store.append(std::slice::from_ref(&good), &broken).is_err());
    assert!(
        store
            .records_for(&RecordQuery::default())
            .unwrap()
            .is_empty()
    );
    assert_eq!(store.events("r1").unwrap().len(), 1);

    let whole = [event("r1", "tell", Some("t1")), event("r1", "budget", None)];
    store.append(&[good], &whole).unwrap();
    let log = store.events("r1").unwrap();
    let order: Vec<(u64, &str)> = log.iter().map(|e| (e.seq, e.kind.name())).collect();
    assert_eq!(order, [(0, "ask"), (1, "tell"), (2, "budget")]);
    assert_eq!(log[1].task.as_deref(), Some("t1"));
    assert_eq!(
        (&log[1].kind, &log[1].extra),
        (&whole[0].kind, &Extra::new())
    );
    assert_eq!(store.events("r2").unwrap().len(), 1);
}
