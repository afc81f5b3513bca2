//! Looking things up: exact keys only, the better first, ties fixed.

use store::{
    Cache, CandidateKey, Outcome, RECORDED, Record, RecordPlace, RecordQuery, Stage, Store, TIMED,
    TaskCpu,
};

use crate::samples::{machine, prepare, prepared, record, scored, target, task, timed, wrong};

/// A tolerance that everything is within.
const ANY: f64 = f64::INFINITY;

fn here(target: &str) -> RecordPlace<'_> {
    RecordPlace {
        task: "t1",
        target,
        machine: "m1",
    }
}

fn best(store: &Store) -> Option<(u64, bool)> {
    let target = target().text();
    let place = here(&target);
    store
        .best_that(&place, 0.0, |_| Ok(true))
        .unwrap()
        .map(|record| (record.trial, record.final_))
}

fn code(trial: u64, hash: &str, outcome: Outcome) -> Record {
    Record {
        code_hash: Some(hash.into()),
        ..record("r1", trial, outcome)
    }
}

fn finalist(record: Record) -> Record {
    Record {
        final_: true,
        ..record
    }
}

#[test]
fn cpu_times_of_a_run_are_summed_by_task_and_finalists_apart() {
    let store = prepared();
    prepare(&store, "r2");
    for trial in 0..3 {
        store
            .insert_record(&record("r1", trial, timed(&[5])))
            .unwrap();
    }
    let last = finalist(record("r1", 0, timed(&[5])));
    store.insert_record(&last).unwrap();
    store.insert_record(&record("r2", 0, timed(&[5]))).unwrap();
    // A sample builds in 4 ms, and its measuring has no CPU time.
    let of = |final_, build_ns| TaskCpu {
        task: "t1".into(),
        final_,
        search_ns: 0,
        build_ns,
        load_ns: 0,
        measure_ns: 0,
        check_ns: 0,
    };
    let found = store.cpu_times("r1").unwrap();
    assert_eq!(found, [of(false, 12_000_000), of(true, 4_000_000)]);
    assert_eq!(store.cpu_times("r3").unwrap(), []);
}

#[test]
fn the_best_has_the_lowest_median_then_the_lowest_hash_then_the_lowest_age() {
    let store = prepared();
    assert_eq!(best(&store), None);
    store
        .insert_record(&code(0, "cc", timed(&[1, 30, 31])))
        .unwrap();
    assert_eq!(best(&store), Some((0, false)));
    store
        .insert_record(&code(1, "dd", timed(&[20, 20, 900])))
        .unwrap();
    assert_eq!(best(&store), Some((1, false)));
    store.insert_record(&code(2, "bb", timed(&[20]))).unwrap();
    assert_eq!(best(&store), Some((2, false)));
    store.insert_record(&code(3, "bb", timed(&[20]))).unwrap();
    let unnamed = Record {
        code_hash: None,
        ..record("r1", 4, timed(&[20]))
    };
    store.insert_record(&unnamed).unwrap();
    assert_eq!(best(&store), Some((2, false)));
    let scored = scored("static", 1.0);
    store.insert_record(&code(5, "aa", scored)).unwrap();
    assert_eq!(best(&store), Some((2, false)));
}

#[test]
fn finals_come_before_faster_trials() {
    let store = prepared();
    store.insert_record(&code(0, "aa", timed(&[10]))).unwrap();
    store.insert_record(&code(1, "bb", timed(&[12]))).unwrap();
    store
        .insert_record(&finalist(code(1, "bb", timed(&[15]))))
        .unwrap();
    assert_eq!(best(&store), Some((1, true)));
    store
        .insert_record(&finalist(code(0, "aa", timed(&[14]))))
        .unwrap();
    assert_eq!(best(&store), Some((0, true)));
}

#[test]
fn of_finals_of_one_code_the_newest_counts() {
    let store = prepared();
    let rank = |trial, hash: &str, ns| {
        let r = finalist(code(trial, hash, timed(&[ns])));
        store.insert_record(&r).unwrap();
    };
    // Lucky once, ranked again beside a rival that is faster.
    rank(0, "aa", 9);
    assert_eq!(best(&store), Some((0, true)));
    rank(1, "bb", 10);
    rank(2, "aa", 11);
    assert_eq!(best(&store), Some((1, true)));
}

#[test]
fn finals_of_one_code_count_in_every_state_of_the_caches() {
    let store = prepared();
    let states = [Cache::CachedConstants, Cache::RotatedConstants];
    for ((trial, ns), cache) in [(0, 9), (1, 11)].into_iter().zip(states) {
        let mut outcome = timed(&[ns]);
        if let Outcome::Timed { conditions, .. } = &mut outcome {
            conditions.cache = cache;
        }
        store
            .insert_record(&finalist(code(trial, "aa", outcome)))
            .unwrap();
    }
    let target = target().text();
    let place = here(&target);
    let mut finals = Vec::new();
    let mut note = |r: &Record| {
        finals.push(r.trial);
        Ok(false)
    };
    store.best_that(&place, ANY, &mut note).unwrap();
    assert_eq!(finals, [0, 1]);
}

#[test]
fn a_fast_trial_is_found_beside_slower_finals() {
    let store = prepared();
    store
        .insert_record(&finalist(code(0, "aa", timed(&[10]))))
        .unwrap();
    store.insert_record(&code(1, "bb", timed(&[5]))).unwrap();
    assert_eq!(best(&store), Some((0, true)));
    let target = target().text();
    let place = here(&target);
    let found = store.fastest_that(&place, ANY, |_| Ok(true)).unwrap();
    assert_eq!(found.map(|r| r.trial), Some(1));
}

#[test]
fn what_was_wrong_by_a_tight_tolerance_is_open_by_a_looser_one() {
    let store = prepared();
    store.insert_record(&code(0, "aa", timed(&[10]))).unwrap();
    let Outcome::Wrong {
        mut difference,
        text,
    } = wrong()
    else {
        panic!("a wrong outcome")
    };
    difference.tolerance = Some(1e-7);
    let judged = Outcome::Wrong { difference, text };
    assert!(judged.within(1e-7) && judged.within(1e-8) && !judged.within(1e-4));
    store.insert_record(&code(1, "aa", judged)).unwrap();
    let target = target().text();
    let place = here(&target);
    let best = |tolerance| {
        let found = store.best_that(&place, tolerance, |_| Ok(true)).unwrap();
        found.map(|r| r.trial)
    };
    assert_eq!((best(1e-4), best(1e-7), best(1e-8)), (Some(0), None, None));
}

#[test]
fn the_best_that_is_accepted_comes_in_the_same_order() {
    let store = prepared();
    let n = 30;
    for trial in 0..n {
        let ns = 1000 - 10 * trial;
        store
            .insert_record(&code(trial, &format!("{trial:02}"), timed(&[ns])))
            .unwrap();
    }
    let target = target().text();
    let place = here(&target);
    for wanted in [n - 1, n - 2, 7, 0] {
        let mut seen = Vec::new();
        let found = store.best_that(&place, ANY, |r| {
            seen.push(r.trial);
            Ok(r.trial == wanted)
        });
        assert_eq!(found.unwrap().map(|r| r.trial), Some(wanted));
        let expected: Vec<u64> = (wanted..n).rev().collect();
        assert_eq!(seen, expected);
    }
    assert_eq!(store.best_that(&place, ANY, |_| Ok(false)).unwrap(), None);
}

#[test]
fn what_was_wrong_or_failed_as_a_finalist_is_never_the_best() {
    let store = prepared();
    store.insert_record(&code(0, "aa", timed(&[10]))).unwrap();
    store.insert_record(&code(1, "bb", timed(&[20]))).unwrap();
    store.insert_record(&code(2, "cc", timed(&[30]))).unwrap();
    // Equal code of another trace was found wrong, on another machine.
    store.put_machine(&machine("m2")).unwrap();
    let elsewhere = Record {
        machine: "m2".into(),
        ..code(3, "aa", wrong())
    };
    store.insert_record(&elsewhere).unwrap();
    assert_eq!(best(&store), Some((1, false)));
    // The same candidate crashed when re-measured; its hash was not kept.
    let crash = Outcome::Crashed {
        stage: Stage::Run,
        signal: Some(11),
        stderr: "".into(),
    };
    let crashed = Record {
        code_hash: None,
        ..finalist(code(1, "bb", crash.clone()))
    };
    store.insert_record(&crashed).unwrap();
    assert_eq!(best(&store), Some((2, false)));
    // A finalist's crash on another machine says nothing about this one.
    let elsewhere = Record {
        machine: "m2".into(),
        ..finalist(code(4, "cc", crash))
    };
    store.insert_record(&elsewhere).unwrap();
    assert_eq!(best(&store), Some((2, false)));
}

#[test]
fn equal_code_is_known_once_it_ran() {
    let store = prepared();
    let target = target().text();
    let place = here(&target);
    let known = |hash| {
        store
            .outcome_of_code(&place, hash, |_| true)
            .unwrap()
            .map(|record| record.trial)
    };
    let out_of_memory = |stage| Outcome::OutOfMemory { stage };
    store
        .insert_record(&code(
            0,
            "aa",
            Outcome::Skipped {
                filter: "cold".into(),
            },
        ))
        .unwrap();
    store
        .insert_record(&code(1, "aa", out_of_memory(Stage::Build)))
        .unwrap();
    assert_eq!(known("aa"), None);
    store
        .insert_record(&code(2, "aa", out_of_memory(Stage::Load)))
        .unwrap();
    store.insert_record(&code(3, "aa", timed(&[5]))).unwrap();
    assert_eq!(known("aa"), Some(2));
    store
        .insert_record(&finalist(code(3, "aa", timed(&[6]))))
        .unwrap();
    let found = store
        .outcome_of_code(&place, "aa", |_| true)
        .unwrap()
        .unwrap();
    assert_eq!(found, finalist(code(3, "aa", timed(&[6]))));
    assert_eq!(known("bb"), None);
    store.put_machine(&machine("m2")).unwrap();
    store.put_task(&task("t2")).unwrap();
    for elsewhere in [
        RecordPlace {
            machine: "m2",
            ..place
        },
        RecordPlace {
            task: "t2",
            ..place
        },
        RecordPlace {
            target: "x",
            ..place
        },
    ] {
        assert_eq!(
            store.outcome_of_code(&elsewhere, "aa", |_| true).unwrap(),
            None
        );
    }
}

#[test]
fn what_was_allowed_under_a_looser_tolerance_is_unknown_under_a_tighter_one() {
    let mut outcome = timed(&[5]);
    if let Outcome::Timed { conditions, .. } = &mut outcome {
        conditions.rel_l2 = Some(1e-5);
    }
    let store = prepared();
    let tried = code(1, "aa", outcome);
    store.insert_record(&tried).unwrap();
    let key = CandidateKey {
        place: tried.place(),
        toolchain: &tried.toolchain,
        algorithm: "direct",
        trace: &tried.trace,
    };
    for (tolerance, known) in [(1e-4, true), (1e-5, true), (1e-6, false)] {
        let within = |r: &Record| r.outcome.within(tolerance);
        let code = store.outcome_of_code(&key.place, "aa", within).unwrap();
        let candidate = store.outcome_of_candidate(&key, tolerance).unwrap();
        assert_eq!((code.is_some(), candidate.is_some()), (known, known));
    }
}

#[test]
fn a_candidate_is_known_once_it_is_settled() {
    let store = prepared();
    let scored = scored("static", 1.0);
    let tried = record(
        "r1",
        0,
        Outcome::Rejected {
            reason: "too wide".into(),
        },
    );
    store.insert_record(&tried).unwrap();
    store.insert_record(&record("r1", 1, scored)).unwrap();
    let key = CandidateKey {
        place: tried.place(),
        toolchain: &tried.toolchain,
        algorithm: "direct",
        trace: "split i 0",
    };
    assert_eq!(
        store.outcome_of_candidate(&key, ANY).unwrap().as_ref(),
        Some(&tried)
    );
    for other in [
        CandidateKey {
            trace: "split i 1",
            ..key
        },
        CandidateKey {
            trace: "split i",
            ..key
        },
        CandidateKey {
            algorithm: "winograd",
            ..key
        },
        CandidateKey {
            toolchain: "llvm 23 passes 1",
            ..key
        },
        CandidateKey {
            place: RecordPlace {
                machine: "m2",
                ..key.place
            },
            ..key
        },
    ] {
        assert_eq!(
            store.outcome_of_candidate(&other, ANY).unwrap(),
            None,
            "{other:?}"
        );
    }
}

/// A worker that died of a signal.
fn died(stage: Stage, signal: i32) -> Outcome {
    Outcome::Crashed {
        stage,
        signal: Some(signal),
        stderr: String::new(),
    }
}

#[test]
fn what_ended_a_worker_from_outside_says_nothing_of_the_candidate() {
    let target = target().text();
    let place = here(&target);
    for (stage, signal, counts) in [
        (Stage::Build, 9, false),
        (Stage::Run, 9, false),
        (Stage::Run, 15, false),
        (Stage::Build, 11, true),
        (Stage::Run, 11, true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tune");
        let store = Store::open(&path).unwrap();
        prepare(&store, "r1");
        let tried = code(1, "aa", died(stage, signal));
        store.insert_record(&tried).unwrap();
        // As an earlier program counted it.
        rusqlite::Connection::open(&path)
            .unwrap()
            .execute(
                "UPDATE records SET settled = 1, ran = ?1",
                [stage != Stage::Build],
            )
            .unwrap();
        let key = CandidateKey {
            place,
            toolchain: &tried.toolchain,
            algorithm: "direct",
            trace: &tried.trace,
        };
        let known = store.outcome_of_candidate(&key, ANY).unwrap();
        assert_eq!(known.is_some(), counts, "{stage} {signal}");
        let known = store.outcome_of_code(&place, "aa", |_| true).unwrap();
        assert_eq!(known.is_some(), counts && stage != Stage::Build);
    }
    for (signal, usable) in [(9, true), (11, false)] {
        let store = prepared();
        store.insert_record(&code(1, "aa", timed(&[5]))).unwrap();
        let finalist = finalist(code(1, "aa", died(Stage::Run, signal)));
        store.insert_record(&finalist).unwrap();
        assert_eq!(best(&store).is_some(), usable, "{signal}");
    }
}

/// A record by this evaluator.
fn by(evaluator: &str, record: Record) -> Record {
    Record {
        evaluator: evaluator.into(),
        ..record
    }
}

#[test]
fn only_what_was_measured_counts_as_a_time_or_as_known() {
    let store = prepared();
    let insert = |record| store.insert_record(&record).unwrap();
    let target = target().text();
    let place = here(&target);
    insert(by(RECORDED, code(0, "aa", timed(&[1]))));
    insert(by(RECORDED, finalist(code(0, "aa", timed(&[1])))));
    insert(by("newer", code(1, "bb", timed(&[2]))));
    assert_eq!(best(&store), None);
    let fastest = || store.fastest_that(&place, ANY, |_| Ok(true)).unwrap();
    assert_eq!(fastest(), None);
    let known = |hash| store.outcome_of_code(&place, hash, |_| true).unwrap();
    assert_eq!(known("aa"), None);
    let tried = code(0, "aa", timed(&[1]));
    let key = CandidateKey {
        place,
        toolchain: &tried.toolchain,
        algorithm: &tried.algorithm,
        trace: &tried.trace,
    };
    assert_eq!(store.outcome_of_candidate(&key, ANY).unwrap(), None);
    // A replayed failure says nothing about what was measured, and a replayed final
    // replaces none.
    let measured = code(0, "aa", timed(&[9]));
    insert(measured.clone());
    insert(by(RECORDED, code(2, "aa", wrong())));
    assert_eq!(best(&store), Some((0, false)));
    assert_eq!(fastest().as_ref(), Some(&measured));
    assert_eq!(known("aa").as_ref(), Some(&measured));
    assert_eq!(
        store.outcome_of_candidate(&key, ANY).unwrap(),
        Some(measured)
    );
    let ranked = finalist(code(0, "aa", timed(&[8])));
    insert(ranked);
    insert(by(RECORDED, finalist(code(3, "aa", timed(&[7])))));
    assert_eq!(best(&store), Some((0, true)));
}

#[test]
fn scores_are_looked_up_by_their_evaluator_and_kind() {
    let store = prepared();
    let insert = |record| store.insert_record(&record).unwrap();
    let target = target().text();
    let place = here(&target);
    insert(by("static", code(0, "aa", scored("static", 3.0))));
    insert(by("static", code(1, "bb", scored("static", -2.5))));
    insert(by("static", code(2, "cc", scored("static", -2.5))));
    insert(by("static", code(3, "dd", scored("static", f64::NAN))));
    insert(by("static", code(4, "ee", scored("cycles", -9.0))));
    insert(by("simulated", code(5, "ff", scored("static", -8.0))));
    insert(code(6, "gg", timed(&[1])));
    let best = |evaluator, kind| {
        let found = store.best_scored(&place, evaluator, kind, |_| Ok(true));
        found.unwrap().map(|r| r.trial)
    };
    assert_eq!(
        best("static", "static"),
        Some(1),
        "of equal ones the oldest"
    );
    assert_eq!(best("static", "cycles"), Some(4));
    assert_eq!(best("simulated", "static"), Some(5));
    assert_eq!(best("simulated", "cycles"), None);
    let second = store.best_scored(&place, "static", "static", |r| Ok(r.trial != 1));
    assert_eq!(second.unwrap().map(|r| r.trial), Some(2));

    let tried = code(0, "aa", timed(&[1]));
    let key = CandidateKey {
        place,
        toolchain: &tried.toolchain,
        algorithm: &tried.algorithm,
        trace: &tried.trace,
    };
    let known = |key: &CandidateKey<'_>, evaluator, kind| {
        let found = store.score_of_candidate(key, evaluator, kind).unwrap();
        found.map(|r| r.trial)
    };
    assert_eq!(known(&key, "static", "static"), Some(0));
    assert_eq!(known(&key, "static", "cycles"), None);
    assert_eq!(known(&key, "simulated", "static"), None);
    let trace = "split i 3";
    assert_eq!(
        known(&CandidateKey { trace, ..key }, "static", "static"),
        None,
        "a score that is not a number"
    );
}

/// Three records of task `t1` in two runs, one of them final, and a wrong one of `t2`.
fn two_runs() -> Store {
    let store = prepared();
    prepare(&store, "r2");
    store.put_task(&task("t2")).unwrap();
    store.insert_record(&record("r1", 0, timed(&[5]))).unwrap();
    store.insert_record(&record("r2", 0, timed(&[6]))).unwrap();
    store
        .insert_record(&finalist(record("r2", 0, timed(&[7]))))
        .unwrap();
    store
        .insert_record(&Record {
            task: "t2".into(),
            ..record("r2", 1, wrong())
        })
        .unwrap();
    store
}

#[test]
fn filters_restrict() {
    let store = two_runs();
    let target = target().text();
    let all = RecordQuery::default();
    for (filter, expected) in [
        (all, 4),
        (
            RecordQuery {
                task: Some("t1"),
                ..all
            },
            3,
        ),
        (
            RecordQuery {
                run: Some("r2"),
                ..all
            },
            3,
        ),
        (
            RecordQuery {
                run: Some("r2"),
                task: Some("t1"),
                final_: Some(false),
                ..all
            },
            1,
        ),
        (
            RecordQuery {
                final_: Some(true),
                ..all
            },
            1,
        ),
        (
            RecordQuery {
                evaluator: Some(TIMED),
                ..all
            },
            4,
        ),
        (
            RecordQuery {
                evaluator: Some(RECORDED),
                ..all
            },
            0,
        ),
        (
            RecordQuery {
                label: Some("wrong"),
                ..all
            },
            1,
        ),
        (
            RecordQuery {
                target: Some(&target),
                machine: Some("m1"),
                ..all
            },
            4,
        ),
        (
            RecordQuery {
                machine: Some("m2"),
                ..all
            },
            0,
        ),
    ] {
        assert_eq!(
            store.records_for(&filter).unwrap().len(),
            expected,
            "{filter:?}"
        );
    }
}
