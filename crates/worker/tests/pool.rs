//! Every request is answered, whatever the child does.

use std::collections::BTreeMap;
use std::time::Duration;
use worker::{CommandLine, Death, Limits, Pool};

#[path = "child/main.rs"]
#[allow(dead_code)]
mod child;
use child::Request;

fn pool(size: usize) -> Pool<Request, u64> {
    let program = env!("CARGO_BIN_EXE_worker-test-child").into();
    let command = CommandLine {
        program,
        args: vec![],
        cpus: vec![],
    };
    Pool::new(
        &command,
        size,
        Limits {
            address_space: Some(1 << 30),
        },
    )
    .unwrap()
}

fn drain(p: &mut Pool<Request, u64>) -> BTreeMap<u64, Result<u64, Death>> {
    let mut out = BTreeMap::new();
    while let Some(a) = p.next(Duration::from_secs(30)) {
        assert!(out.insert(a.id, a.result).is_none(), "one answer a request");
    }
    assert_eq!(p.pending(), 0);
    out
}

#[test]
fn every_kind_of_death_is_typed_and_the_pool_goes_on() {
    let mut p = pool(2);
    let long = Duration::from_secs(20);
    for id in 0..200 {
        let (request, limit) = match id {
            20 => (Request::Segfault, long),
            40 => (Request::Hang, Duration::from_millis(100)),
            60 => (Request::Exit(3), long),
            80 => (Request::Allocate(4 << 30), long),
            100 => (Request::Garbage, long),
            _ => (Request::Echo(id), long),
        };
        p.submit(id, request, limit);
    }
    let answers = drain(&mut p);
    assert_eq!(answers.len(), 200);
    for (id, a) in &answers {
        match (id, a) {
            (
                20,
                Err(Death::Crashed {
                    signal: Some(11),
                    stderr,
                    ..
                }),
            ) => {
                assert!(stderr.contains("about to fault"));
            }
            (40, Err(Death::TimedOut { .. })) => {}
            (60, Err(Death::Crashed { code: Some(3), .. })) => {}
            (80, Err(Death::OutOfMemory { .. })) => {}
            (100, Ok(7)) => {}
            (id, Ok(v)) => assert_eq!(v, id),
            (id, a) => panic!("{id}: {a:?}"),
        }
    }
}

#[test]
fn a_missing_program_is_an_answer_too() {
    let command = CommandLine {
        program: "/nonexistent/worker".into(),
        args: vec![],
        cpus: vec![],
    };
    let mut p: Pool<Request, u64> = Pool::new(
        &command,
        1,
        Limits {
            address_space: None,
        },
    )
    .unwrap();
    p.submit(1, Request::Echo(1), Duration::from_secs(1));
    assert!(matches!(drain(&mut p)[&1], Err(Death::NotStarted { .. })));
}

#[test]
fn a_paused_pool_runs_nothing_and_dropping_one_kills_its_children() {
    let mut p = pool(1);
    p.pause();
    p.submit(1, Request::Echo(5), Duration::from_secs(10));
    assert!(p.next(Duration::from_millis(50)).is_none());
    p.resume();
    assert_eq!(drain(&mut p)[&1], Ok(5));
    p.submit(2, Request::Echo(1), Duration::from_secs(10));
    p.pause();
    p.submit(3, Request::Echo(1), Duration::from_secs(10));
    assert_eq!(p.clear(), [3]);
}
