//! A test for each promise of the selector, on a clock that the test moves.

use bestof::{BestOf, Context, Decisions, Options, Status, Unfit, Validators, depth};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock that tests move.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn pass(&self, us: u64) {
        self.0.fetch_add(us, Ordering::SeqCst);
    }

    fn read(&self) -> impl Fn() -> Duration + Send + Sync + 'static {
        let at = self.0.clone();
        move || Duration::from_micros(at.load(Ordering::SeqCst))
    }
}

/// Alternatives that take so many microseconds; the value is what passes.
fn selector(clock: &Clock, costs: &[u64], options: Options) -> BestOf<u32, u64> {
    let named = costs
        .iter()
        .enumerate()
        .map(|(i, us)| (format!("a{i}"), *us));
    let selector = BestOf::new("test", named, options).unwrap();
    selector.timed_by(clock.read())
}

fn samples(s: &BestOf<u32, u64>, key: usize) -> Vec<usize> {
    let report = s.report();
    report.keys[key]
        .alternatives
        .iter()
        .map(|a| a.samples)
        .collect()
}

#[test]
fn alternatives_run_in_rounds_and_the_slow_one_is_pruned() {
    let clock = Clock::default();
    let s = selector(&clock, &[10, 300, 12], Options::default());
    let mut calls = [0; 3];
    while s.decision(&1).is_none() {
        s.call(&1, |us| {
            calls[[10, 300, 12].iter().position(|c| c == us).unwrap()] += 1;
            clock.pass(*us);
        });
    }
    // Samples, and a warm-up each.
    assert_eq!(samples(&s, 0), [10, 4, 10]);
    assert_eq!(calls, [11, 5, 11]);
    assert_eq!(s.decision(&1), Some("a0"));
    assert_eq!(s.report().keys[0].alternatives[1].status, Status::Pruned);
    s.call(&1, |us| assert_eq!(*us, 10));
}

#[test]
fn the_median_of_an_even_number_is_the_mean_of_both_in_the_middle() {
    let clock = Clock::default();
    let options = Options {
        rounds: 2,
        ..Options::default()
    };
    let s = selector(&clock, &[1, 1000], options);
    // The warm-up counts for nothing.
    let mut first = [7, 10, 20].into_iter();
    while s.decision(&1).is_none() {
        s.call(&1, |us| {
            clock.pass(if *us == 1 { first.next().unwrap() } else { *us })
        });
    }
    assert_eq!(s.medians(&1)[0], Some(Duration::from_micros(15)));
    assert_eq!(s.medians(&2), [None, None]);
}

#[test]
fn the_median_decides_and_ties_go_to_the_first() {
    let clock = Clock::default();
    let s = selector(&clock, &[10, 9], Options::default());
    let n = Cell::new(0);
    while s.decision(&1).is_none() {
        // One call in seven of the second takes a hundred times as long: its mean is worse.
        s.call(&1, |us| {
            n.set(n.get() + 1);
            clock.pass(if *us == 9 && n.get() % 7 == 0 {
                900
            } else {
                *us
            });
        });
    }
    assert_eq!(s.decision(&1), Some("a1"));
    let s = selector(&clock, &[20, 20, 20], Options::default());
    while s.decision(&1).is_none() {
        s.call(&1, |us| clock.pass(*us));
    }
    assert_eq!(s.decision(&1), Some("a0"));
}

#[test]
fn each_problem_size_has_a_decision_of_its_own() {
    let clock = Clock::default();
    let s = selector(&clock, &[1, 2], Options::default());
    for _ in 0..40 {
        for key in [1, 2] {
            s.call(&key, |of| {
                clock.pass(if key == 1 { 10 * of } else { 100 / of })
            });
        }
    }
    assert_eq!((s.decision(&1), s.decision(&2)), (Some("a0"), Some("a1")));
    assert_eq!(s.decision(&3), None);
}

#[test]
fn the_default_stays_within_the_margin() {
    let clock = Clock::default();
    for (other, chosen) in [(96, "a0"), (90, "a1")] {
        let options = Options {
            margin: 0.05,
            ..Options::default()
        };
        let s = selector(&clock, &[100, other], options);
        (0..30).for_each(|_| s.call(&1, |us| clock.pass(*us)));
        assert_eq!(s.decision(&1), Some(chosen));
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let make = |options: Options| BestOf::<u32, u8>::new("s", [("a", 0), ("b", 1)], options).err();
    let with = |change: fn(&mut Options)| {
        let mut o = Options::default();
        change(&mut o);
        o
    };
    assert_eq!(make(Options::default()), None);
    assert_eq!(make(with(|o| o.rounds = 0)), Some(Unfit::Rounds));
    assert_eq!(
        make(with(|o| o.prune_speedup = 1.0)),
        Some(Unfit::PruneSpeedup(1.0))
    );
    assert_eq!(make(with(|o| o.margin = 1.0)), Some(Unfit::Share(1.0)));
    assert_eq!(make(with(|o| o.drift = Some(0.0))), Some(Unfit::Share(0.0)));
    let twice = BestOf::<u32, u8>::new("s", [("a", 0), ("a", 1)], Options::default());
    assert_eq!(twice.err(), Some(Unfit::NameTwice("a".into())));
    let none = BestOf::<u32, u8>::new("s", [("", 0); 0], Options::default());
    assert_eq!(none.err(), Some(Unfit::NoAlternatives));
    let stages = BestOf::<u32, u8>::new("s", [("a", 0)], Options::default())
        .unwrap()
        .stages(0);
    assert_eq!(stages.err(), Some(Unfit::Stages));
}

#[test]
fn what_does_not_apply_is_not_tried_and_one_that_is_left_is_decided() {
    let clock = Clock::default();
    let s = selector(&clock, &[10, 5], Options::default()).only_if("a1", |key| key % 2 == 0);
    s.call(&1, |us| assert_eq!(*us, 10));
    assert_eq!(s.decision(&1), Some("a0"));
    (0..40).for_each(|_| s.call(&2, |us| clock.pass(*us)));
    assert_eq!(s.decision(&2), Some("a1"));
    // Where none applies the first runs.
    let none = selector(&clock, &[10], Options::default()).only_if("a0", |_| false);
    none.call(&1, |us| assert_eq!(*us, 10));
}

#[test]
fn an_alternative_that_fails_is_dropped_and_the_next_one_runs() {
    let clock = Clock::default();
    let s = selector(&clock, &[10, 5, 20], Options::default());
    for _ in 0..40 {
        let result = s.try_call(&1, |us| {
            clock.pass(*us);
            if *us == 5 { Err("broken") } else { Ok(*us) }
        });
        assert!(result.is_ok());
    }
    assert_eq!(s.decision(&1), Some("a0"));
    assert_eq!(s.report().keys[0].alternatives[1].status, Status::Failed);
    let all = s.try_call(&2, |_| Err::<(), _>("all broken"));
    assert_eq!(all, Err("all broken"));
}

/// Values without a size all have one address.
#[test]
fn the_alternative_that_failed_is_dropped_whatever_its_value_is() {
    let named = ["a0", "a1", "a2"].map(|n| (n, ()));
    let s: BestOf<u64, ()> = BestOf::new("none", named, Options::default()).unwrap();
    let mut calls = 0;
    let mut fails = |n| {
        s.try_call(&1, |()| {
            calls += 1;
            if calls == n { Err(()) } else { Ok(calls) }
        })
    };
    // The default has its warm-up and a sample, and then the next one begins.
    assert_eq!([fails(3), fails(3)], [Ok(1), Ok(2)]);
    assert_eq!(fails(3), Ok(4));
    let report = s.report();
    let status: Vec<Status> = report.keys[0]
        .alternatives
        .iter()
        .map(|a| a.status)
        .collect();
    assert_eq!(status, [Status::Active, Status::Failed, Status::Active]);
}

#[test]
fn an_alternative_that_disagrees_is_dropped_and_its_output_is_not_given() {
    let clock = Clock::default();
    let s = selector(&clock, &[10, 5], Options::default());
    for _ in 0..40 {
        let out = s.call_checked(
            &1,
            |us| {
                clock.pass(*us);
                if *us == 5 { 41 } else { 42 }
            },
            |a, b| a == b,
        );
        assert_eq!(out, 42);
    }
    assert_eq!(s.report().keys[0].alternatives[1].status, Status::Disagrees);
    assert_eq!(s.decision(&1), Some("a0"));
}

/// Paper, listing 2: forward and backward are chosen together.
#[test]
fn stages_of_a_group_are_bound_to_one_alternative_and_their_sum_counts() {
    let clock = Clock::default();
    // Forward and backward times: the first is best forward, the second in sum.
    let named = [
        ("im2row", (10, 40)),
        ("convgemm", (20, 20)),
        ("winograd", (15, 45)),
    ];
    let conv = BestOf::new("conv", named, Options::default())
        .unwrap()
        .stages(2)
        .unwrap();
    let conv = conv.timed_by(clock.read());
    let mut sets = 0;
    while conv.decision(&(64, 64)).is_none() {
        // Two equal layers: both forward, then both backward in the other order.
        let forward = |_| {
            conv.first(&(64, 64), |f: &(u64, u64)| {
                clock.pass(f.0);
                f.0
            })
        };
        let (first, second) = (forward(0), forward(1));
        for (of, mut ticket) in [second, first] {
            let back = conv.stage(1, &mut ticket, |f| {
                clock.pass(f.1);
                f.0
            });
            assert_eq!(back, of, "the state belongs to the alternative");
            sets += 1;
        }
    }
    assert_eq!(conv.decision(&(64, 64)), Some("convgemm"));
    let report = conv.report();
    let found: Vec<usize> = report.keys[0]
        .alternatives
        .iter()
        .map(|a| a.samples)
        .collect();
    assert_eq!(found, [10, 10, 10]);
    assert!(sets >= 33, "three warm-ups are whole sets, {sets}");
    assert_eq!(
        report.keys[0].alternatives[0].median,
        Some(Duration::from_micros(50))
    );
}

#[test]
fn a_set_that_is_left_or_unbalanced_is_no_sample() {
    let clock = Clock::default();
    let group = BestOf::new("g", [("a", 1u64), ("b", 2)], Options::default()).unwrap();
    let group: BestOf<u32, u64> = group.stages(2).unwrap().timed_by(clock.read());
    for _ in 0..20 {
        let (_, ticket) = group.first(&1, |us| clock.pass(*us));
        drop(ticket);
        let (_, mut ticket) = group.first(&1, |us| clock.pass(*us));
        group.stage(0, &mut ticket, |us| clock.pass(*us));
        group.stage(1, &mut ticket, |us| clock.pass(*us));
        let (_, mut ticket) = group.first(&1, |us| clock.pass(*us));
        group.stage(7, &mut ticket, |us| clock.pass(*us));
    }
    assert!(
        group.report().keys[0]
            .alternatives
            .iter()
            .all(|a| a.samples == 0)
    );
    assert_eq!(group.decision(&1), None);
}

/// The outer alternatives: one calls the inner selector, the other does not.
fn nested(clock: &Clock) -> (BestOf<u32, u64>, BestOf<u32, u64>) {
    (
        selector(clock, &[0, 50], Options::default()),
        selector(clock, &[40, 10, 30], Options::default()),
    )
}

fn call_nested(outer: &BestOf<u32, u64>, inner: &BestOf<u32, u64>, clock: &Clock) -> u64 {
    outer.call(&1, |us| {
        match us {
            0 => inner.call(&1, |us| clock.pass(*us)),
            us => clock.pass(*us),
        }
        *us
    })
}

#[test]
fn a_parent_waits_on_the_same_alternative_until_its_child_is_decided() {
    let clock = Clock::default();
    let (outer, inner) = nested(&clock);
    while inner.decision(&1).is_none() {
        assert_eq!(call_nested(&outer, &inner, &clock), 0, "the parent stays");
        assert_eq!(samples(&outer, 0), [0, 0]);
    }
    while outer.decision(&1).is_none() {
        call_nested(&outer, &inner, &clock);
    }
    // The decided child takes 10, not the 40 of its first tries.
    let report = outer.report();
    assert_eq!(
        report.keys[0].alternatives[0].median,
        Some(Duration::from_micros(10))
    );
    assert_eq!(
        (outer.decision(&1), inner.decision(&1)),
        (Some("a0"), Some("a1"))
    );
    assert_eq!(report.keys[0].children, ["test 1"]);
}

/// As in a closure: the parent waits for its child, and calls that are dropped are no samples.
#[test]
fn calls_between_two_moments_nest_and_may_fail() {
    let clock = Clock::default();
    let (outer, inner) = nested(&clock);
    let call_inner = || {
        let call = inner.enter(&1);
        clock.pass([40, 10, 30][call.alternative()]);
        inner.leave(call);
    };
    while outer.decision(&1).is_none() {
        drop(outer.enter(&1));
        let call = outer.enter(&1);
        match call.alternative() {
            0 => call_inner(),
            _ => clock.pass(50),
        }
        outer.leave(call);
    }
    let report = outer.report();
    let medians = report.keys[0].alternatives.iter().map(|a| a.median);
    let expected = [10, 50].map(|us| Some(Duration::from_micros(us)));
    assert_eq!(medians.collect::<Vec<_>>(), expected);
    assert_eq!(report.keys[0].children, ["test 1"]);
    assert_eq!((samples(&outer, 0), depth()), (vec![10, 10], 0));
    // What was decided fails: the other one takes its place.
    let call = outer.enter(&1);
    let failed = call.alternative();
    drop(call);
    assert!(outer.fail(&1, failed));
    assert_eq!(outer.enter(&1).alternative(), 1);
}

#[test]
fn a_child_that_is_never_decided_blocks_no_parent_for_ever() {
    let clock = Clock::default();
    let (outer, inner) = nested(&clock);
    let fresh = Cell::new(0);
    for _ in 0..3000 {
        outer.call(&1, |us| match us {
            // A new problem size each time.
            0 => {
                fresh.set(fresh.get() + 1);
                inner.call(&fresh.get(), |us| clock.pass(*us));
            }
            us => clock.pass(*us),
        });
    }
    assert!(outer.decision(&1).is_some());
}

#[test]
fn a_thread_that_works_for_another_finds_its_parents() {
    let clock = Clock::default();
    let (outer, inner) = nested(&clock);
    let carried = |carry: bool| {
        outer.call(&7, |_| {
            let context = Context::current();
            std::thread::scope(|s| {
                s.spawn(|| {
                    let _inside = carry.then(|| context.enter());
                    inner.call(&3, |us| clock.pass(*us));
                });
            });
        });
        outer.report().keys[0].children.len()
    };
    assert_eq!(carried(false), 0);
    assert_eq!(carried(true), 1);
}

#[test]
fn panics_and_early_returns_leave_nothing_behind() {
    let clock = Clock::default();
    let s = selector(&clock, &[10, 5], Options::default());
    for _ in 0..20 {
        let panicked = catch_unwind(AssertUnwindSafe(|| s.call(&1, |_| panic!("on purpose"))));
        assert!(panicked.is_err());
        assert_eq!(depth(), 0);
    }
    assert_eq!(samples(&s, 0), [0, 0]);
    (0..40).for_each(|_| s.call(&1, |us| clock.pass(*us)));
    assert_eq!(s.decision(&1), Some("a1"));
}

#[test]
fn callers_at_the_same_time_are_not_timed() {
    let s = BestOf::new("s", [("a", 3u32), ("b", 1)], Options::default()).unwrap();
    let calls = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    s.call(&0u32, |f| {
                        calls.fetch_add(u64::from(*f > 0), Ordering::Relaxed);
                        std::thread::yield_now();
                    });
                }
            });
        }
    });
    assert_eq!(calls.load(Ordering::Relaxed), 1600);
    let report = s.report();
    assert!(
        report.keys[0].alternatives.iter().all(|a| a.samples <= 10),
        "{report}"
    );
    while s.decision(&0).is_none() {
        s.call(&0, |_| ());
    }
}

#[test]
fn a_decision_whose_times_drift_is_opened_again() {
    let clock = Clock::default();
    let options = Options {
        drift: Some(0.5),
        ..Options::default()
    };
    let s = selector(&clock, &[10, 12], options);
    (0..60).for_each(|_| s.call(&1, |us| clock.pass(*us)));
    assert_eq!(s.decision(&1), Some("a0"));
    // The first alternative becomes slow.
    (0..2000).for_each(|_| s.call(&1, |us| clock.pass(if *us == 10 { 30 } else { *us })));
    assert_eq!(s.decision(&1), Some("a1"));
    assert!(s.report().keys[0].reopened >= 1);
}

#[test]
fn the_device_is_waited_for_before_each_reading_of_the_clock() {
    let clock = Clock::default();
    let waits = Arc::new(AtomicU64::new(0));
    let counted = waits.clone();
    let s = selector(&clock, &[10, 5], Options::default()).synchronised_by(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    (0..22).for_each(|_| s.call(&1, |us| clock.pass(*us)));
    assert_eq!(waits.load(Ordering::Relaxed), 44);
    s.call(&1, |_| ());
    assert_eq!(
        waits.load(Ordering::Relaxed),
        44,
        "a decided call reads no clock"
    );
}

#[test]
fn decisions_survive_and_start_a_program_decided() {
    let clock = Clock::default();
    let s = selector(&clock, &[10, 5], Options::default());
    (0..40).for_each(|_| s.call(&1, |us| clock.pass(*us)));
    let mut found = Decisions::new();
    s.save(&mut found);
    let here: Validators = [
        ("machine".into(), "m\t1".into()),
        ("threads".into(), "2".into()),
    ]
    .into();
    let folder = std::env::temp_dir().join(format!("bestof-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("decisions");
    found.save(&path, &here).unwrap();
    let loaded = Decisions::load(&path, &here).unwrap();
    assert_eq!(loaded, found);
    let again = selector(&clock, &[10, 5], Options::default()).starting_from(Arc::new(loaded));
    again.call(&1, |us| assert_eq!(*us, 5));
    assert!(again.report().keys[0].known);
    // What it saves rests on as much as before.
    let mut resaved = Decisions::new();
    again.save(&mut resaved);
    assert_eq!(resaved, found);
    // So does one that learns of them later, once.
    let later = selector(&clock, &[10, 5], Options::default());
    assert!(
        later.start_from(Arc::new(found.clone())) && !later.start_from(Arc::new(found.clone()))
    );
    later.call(&1, |us| assert_eq!(*us, 5));
    // Whoever knows other alternatives decides anew.
    let renamed = BestOf::new("test", [("x", 1u64), ("y", 2)], Options::default()).unwrap();
    let renamed: BestOf<u32, u64> = renamed.starting_from(Arc::new(found));
    assert_eq!(renamed.decision(&1), None);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn damaged_and_foreign_files_are_refused_by_name() {
    let here: Validators = [("machine".into(), "here".into())].into();
    let mut d = Decisions::new();
    d.put("conv", "(64, 64)", "winograd", 10, Duration::from_micros(5));
    let good = d.text(&here);
    assert_eq!(Decisions::parse(&good, &here).unwrap(), d);
    let cut = &good[..good.len() - 8];
    let bad: [(&str, String); 11] = [
        ("no file of decisions", String::new()),
        ("no file of decisions", "hello\n".into()),
        ("`bestof 2`", good.replace("bestof 1", "bestof 2")),
        ("cut", cut.into()),
        ("cut", good.replace("end\t1", "end\t2")),
        ("cut", good.trim_end().into()),
        ("number", good.replace("\t10\t", "\tten\t")),
        (
            "twice",
            good.replace("end\t1", "validator\tmachine\there\nend\t1"),
        ),
        ("follows the end", good.clone() + "decision\n"),
        ("no line", good.replace("decision\t", "choice\t")),
        (
            "`machine` is there, and here it is here",
            good.replace("machine\there", "machine\tthere"),
        ),
    ];
    for (why, text) in bad {
        let refused = Decisions::parse(&text, &here).unwrap_err().to_string();
        assert!(refused.contains(why), "{why}: {refused}");
    }
    let more: Validators = [
        ("machine".into(), "here".into()),
        ("threads".into(), "2".into()),
    ]
    .into();
    let refused = Decisions::parse(&good, &more).unwrap_err().to_string();
    assert!(
        refused.contains("`threads` is nothing, and here it is 2"),
        "{refused}"
    );
    assert!(Decisions::load(std::path::Path::new("/no/such/file"), &here).is_err());
}

#[test]
fn of_two_files_the_users_own_wins_and_of_two_runs_that_of_more_samples() {
    let one = |alternative: &str, samples| {
        let mut d = Decisions::new();
        d.put("s", "k", alternative, samples, Duration::ZERO);
        d
    };
    let (few, many) = (one("few", 3), one("many", 10));
    assert_eq!(few.clone().over(&many).get("s", "k"), Some("few"));
    let mut merged = few.clone();
    merged.merge(&many);
    assert_eq!(merged.get("s", "k"), Some("many"));
    let mut kept = many;
    kept.merge(&few);
    assert_eq!(kept.get("s", "k"), Some("many"));
}

#[test]
fn the_report_is_json_and_text() {
    let clock = Clock::default();
    let s: BestOf<&str, u64> =
        BestOf::new("a \"name\"", [("x", 1), ("y", 2)], Options::default()).unwrap();
    let s = s.timed_by(clock.read());
    (0..40).for_each(|_| s.call(&"k\n", |us| clock.pass(*us)));
    let json = s.report().json();
    for part in [
        "\"a \\\"name\\\"\"",
        "\"decided\": \"x\"",
        "\"samples\": 10",
        "\"median_ns\": 1000",
        "\"over_best\": 2.0000",
    ] {
        assert!(json.contains(part), "{part} in {json}");
    }
    let text = s.report().to_string();
    assert!(
        text.contains("x") && text.contains("(2.00x), 10 samples"),
        "{text}"
    );
}

#[test]
fn calls_that_the_caller_times_are_counted_alike() {
    let clock = Clock::default();
    let s = selector(&clock, &[10, 5, 7], Options::default());
    let costs = [10, 5, 7];
    while s.decision(&1).is_none() {
        let begun = s.begin(&1);
        assert!(begun.is_timed());
        match begun.alternative() {
            // Dropped: no sample, and nothing stays reserved.
            0 if samples(&s, 0)[0] == 5 && clock.0.fetch_add(1, Ordering::SeqCst) % 2 == 0 => {}
            2 => {
                drop(begun);
                assert!(s.fail(&1, 2));
            }
            at => s.finish(begun, Duration::from_micros(costs[at]), false),
        }
    }
    assert_eq!(samples(&s, 0), [10, 10, 0]);
    assert_eq!(s.decision(&1), Some("a1"));
    assert!(!s.begin(&1).is_timed());
}

#[test]
fn a_decided_group_reads_no_clock_and_one_that_fails_leaves_the_slow_one() {
    let clock = Clock::default();
    let reads = Arc::new(AtomicU64::new(0));
    let (counted, read) = (reads.clone(), clock.read());
    let group = BestOf::new("g", [("a", 1u64), ("b", 2)], Options::default()).unwrap();
    let group: BestOf<u32, u64> = group.stages(2).unwrap().timed_by(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        read()
    });
    let set = || {
        let (_, mut ticket) = group.first(&1, |us| clock.pass(*us));
        group.stage(1, &mut ticket, |us| clock.pass(*us));
    };
    while group.decision(&1).is_none() {
        set();
    }
    let before = reads.load(Ordering::Relaxed);
    set();
    assert_eq!(reads.load(Ordering::Relaxed), before);

    let s = selector(&clock, &[10, 500], Options::default());
    (0..40).for_each(|_| s.call(&1, |us| clock.pass(*us)));
    assert_eq!(s.decision(&1), Some("a0"));
    let slow = s.try_call(&1, |us| if *us == 10 { Err(()) } else { Ok(*us) });
    assert_eq!(slow, Ok(500));
    assert_eq!(s.decision(&1), Some("a1"));
}

#[test]
fn asking_for_a_decision_changes_nothing() {
    let clock = Clock::default();
    let s = selector(&clock, &[10, 5], Options::default());
    assert_eq!(s.decision(&1), None);
    assert!(s.report().keys.is_empty());
}
