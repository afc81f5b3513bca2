//! Plain data for the tests: one task, target, machine and run, and records.

use std::collections::BTreeMap;

use serde_json::json;
use store::{
    Arg, Cache, Clock, Conditions, Decision, Difference, EventKind, Extra, MachineKey, NewEvent,
    Outcome, Record, Run, SpentByStage, Stage, Store, TIMED, TargetKey, Task, Tell, TimeSpent,
};

pub fn task(key: &str) -> Task {
    Task {
        key: key.into(),
        text: format!("text of {key}"),
        op: "dense".into(),
        args: BTreeMap::from([
            ("m".into(), Arg::Int(-64)),
            ("dtype".into(), Arg::Text("f32".into())),
        ]),
        flops: 2.0 * 64.0 / 3.0,
        bytes: 49_152,
        extra: Extra::new(),
    }
}

pub fn target() -> TargetKey {
    TargetKey {
        triple: "x86_64-unknown-linux-gnu".into(),
        cpu: "generic".into(),
        features: vec!["avx2".into(), "fma".into()],
        caches: BTreeMap::from([("l1d_bytes".into(), 32_768), ("line_bytes".into(), 64)]),
        threads: 2,
        extra: Extra::new(),
    }
}

pub fn machine(fingerprint: &str) -> MachineKey {
    MachineKey {
        fingerprint: fingerprint.into(),
        description: "a test machine".into(),
        extra: Extra::new(),
    }
}

pub fn run(run_id: &str) -> Run {
    Run {
        run_id: run_id.into(),
        model: "resnet".into(),
        options: json!({"argv": ["tune", "resnet"], "trials": 10}),
        strategy: "random".into(),
        seed: u64::MAX - 1,
        started_unix_ms: 1_700_000_000_000,
        ended_unix_ms: None,
        summary: serde_json::Value::Null,
        extra: Extra::new(),
    }
}

pub fn conditions() -> Conditions {
    Conditions {
        isolated: true,
        overlap: false,
        ..Conditions::unproven(2, 1)
    }
}

pub fn timed(samples_ns: &[u64]) -> Outcome {
    Outcome::Timed {
        samples_ns: samples_ns.to_vec(),
        clock: Clock::HostMonotonic,
        conditions: conditions(),
    }
}

pub fn scored(kind: &str, value: f64) -> Outcome {
    Outcome::Scored {
        kind: kind.into(),
        value,
    }
}

pub fn wrong() -> Outcome {
    Outcome::Wrong {
        difference: Difference {
            rel_l2: 0.1 + 0.2,
            max_over_rms: f64::INFINITY,
            max_abs: f64::NAN,
            worst: 17,
            non_finite: 3,
            tolerance: None,
            extra: Extra::new(),
        },
        text: "element 17: NaN, expected 0.5".into(),
    }
}

/// An outcome of every variant, stage, clock and cache state, and one of a newer version.
pub fn every_outcome() -> Vec<Outcome> {
    let mut outcomes = vec![
        wrong(),
        Outcome::Scored {
            kind: "static".into(),
            value: f64::NEG_INFINITY,
        },
        Outcome::Scored {
            kind: "static".into(),
            value: 0.1 + 0.2,
        },
        Outcome::Rejected {
            reason: "shared memory \"96 KiB\"\nover 48 KiB".into(),
        },
        Outcome::Skipped {
            filter: "cold".into(),
        },
        Outcome::Unanswered {
            reason: "no runner: no such file".into(),
        },
        serde_json::from_value(json!({"result": "quarantined", "strikes": 3})).unwrap(),
    ];
    for stage in [Stage::Build, Stage::Load, Stage::Run, Stage::Check] {
        outcomes.push(Outcome::Crashed {
            stage,
            signal: Some(11),
            stderr: "ütf \u{0}".into(),
        });
        outcomes.push(Outcome::Crashed {
            stage,
            signal: None,
            stderr: String::new(),
        });
        outcomes.push(Outcome::TimedOut {
            stage,
            limit_ms: u64::MAX,
        });
        outcomes.push(Outcome::OutOfMemory { stage });
    }
    outcomes.extend(every_condition());
    outcomes
}

/// A timed outcome for every clock and cache state.
fn every_condition() -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for clock in [
        Clock::HostMonotonic,
        Clock::ThreadCpu,
        Clock::CycleCounter,
        Clock::CuptiActivity,
        Clock::CudaEvents,
        Clock::OpenclEvents,
        Clock::Other("sundial".into()),
    ] {
        outcomes.push(Outcome::Timed {
            samples_ns: vec![u64::MAX, 0, 5],
            clock,
            conditions: conditions(),
        });
    }
    for cache in [
        Cache::CachedConstants,
        Cache::RotatedConstants,
        Cache::RotatedAll,
        Cache::Flushed,
        Cache::Other("cold".into()),
    ] {
        let conditions = Conditions {
            cache,
            const_copies: 7,
            repeats: 20,
            measurer: Some("doppler".into()),
            device: Some("gpu1".into()),
            latency_ns: Some(900),
            span_ns: Some(1000),
            scale: Some(1.0 - 0.07),
            queue_ns: Some(1),
            load_ns: Some(2),
            upload_ns: Some(3),
            extra: Extra::from([("moon".into(), json!("full"))]),
            ..Conditions::unproven(4, 16)
        };
        outcomes.push(Outcome::Timed {
            samples_ns: vec![3],
            clock: Clock::ThreadCpu,
            conditions,
        });
    }
    outcomes
}

/// A record with every field set, of `run` on task `t1`, target [`target`], machine `m1`.
pub fn record(run: &str, trial: u64, outcome: Outcome) -> Record {
    Record {
        run_id: run.into(),
        trial,
        final_: false,
        task: "t1".into(),
        target: target().text(),
        machine: "m1".into(),
        evaluator: TIMED.into(),
        strategy: "random".into(),
        seed: u64::MAX,
        toolchain: "llvm 22 passes 1".into(),
        algorithm: "direct".into(),
        decisions: vec![Decision {
            name: "tile".into(),
            kind: "split".into(),
            index: trial % 8,
            cardinality: 8,
            extra: Extra::new(),
        }],
        trace: format!("split i {trial}"),
        code_hash: Some(format!("{trial:04x}")),
        code_size: Some(812),
        outcome,
        outcome_extra: Extra::new(),
        spent: SpentByStage {
            build: TimeSpent {
                wall_ns: 5_000_000,
                cpu_ns: Some(4_000_000),
                extra: Extra::new(),
            },
            measure: TimeSpent {
                wall_ns: 7,
                cpu_ns: None,
                extra: Extra::new(),
            },
            ..SpentByStage::default()
        },
        created_unix_ms: 1_700_000_000_123,
        extra: Extra::new(),
    }
}

/// Puts task `t1`, the target, machine `m1` and the run.
pub fn prepare(store: &Store, run_id: &str) {
    store.put_task(&task("t1")).unwrap();
    store.put_target(&target()).unwrap();
    store.put_machine(&machine("m1")).unwrap();
    store.begin_run(&run(run_id)).unwrap();
}

/// A store in memory, prepared with run `r1`.
pub fn prepared() -> Store {
    let store = Store::open_in_memory().unwrap();
    prepare(&store, "r1");
    store
}

/// The written form, in which a NaN equals itself.
pub fn written(record: &Record) -> serde_json::Value {
    serde_json::to_value(record).unwrap()
}

/// An event of a run and task `t1`.
pub fn event(run: &str, kind: impl Into<EventKind>) -> NewEvent {
    NewEvent {
        run_id: run.into(),
        task: Some("t1".into()),
        kind: kind.into(),
    }
}

/// The tell of a record.
pub fn tell(record: &Record) -> Tell {
    Tell::of(record.trial, &record.evaluator, &record.outcome)
}

/// What an event says, as it is written.
pub fn payload(kind: &EventKind) -> serde_json::Value {
    kind.payload().unwrap()
}
