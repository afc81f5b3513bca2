//! Every request is answered, whatever the child does.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use worker::{Answer, ChildLimits, CommandLine, Death, Pool, TimeLimit};

#[path = "child/main.rs"]
#[allow(dead_code)]
mod child;
use child::Request;

fn pool(size: usize) -> Pool<Request, u64> {
    pool_of(size, env!("CARGO_BIN_EXE_worker-test-child"), &[])
}

fn pool_of(size: usize, program: &str, args: &[&str]) -> Pool<Request, u64> {
    let command = CommandLine {
        program: program.into(),
        args: args.iter().map(ToString::to_string).collect(),
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    Pool::new(
        &command,
        size,
        ChildLimits {
            address_space: Some(1 << 30),
            writes_files: false,
        },
    )
    .unwrap()
}

fn of(wall: Duration) -> TimeLimit {
    TimeLimit::of_threads(wall, 1)
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
        p.submit(id, request, of(limit));
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
fn nothing_runs_beyond_the_end_of_the_pools_time() {
    let mut p = pool(1);
    let long = of(Duration::from_secs(600));
    p.submit(1, Request::Echo(7), long);
    assert_eq!(drain(&mut p)[&1], Ok(7));
    let begin = Instant::now();
    p.end_by(Some(begin + Duration::from_millis(300)));
    p.submit(2, Request::Hang, long);
    p.submit(3, Request::Hang, long);
    let answers = drain(&mut p);
    assert_eq!(answers[&2], Err(Death::Withdrawn), "it was running");
    assert_eq!(answers[&3], Err(Death::Withdrawn), "it never began");
    assert!(begin.elapsed() >= Duration::from_millis(300));
    // A limit of its own that comes first is the request's fault.
    let own = Duration::from_millis(50);
    p.end_by(Some(Instant::now() + Duration::from_secs(600)));
    p.submit(4, Request::Hang, of(own));
    assert_eq!(drain(&mut p)[&4], Err(Death::TimedOut { limit: own }));
    p.end_by(None);
    p.submit(5, Request::Echo(9), long);
    assert_eq!(drain(&mut p)[&5], Ok(9));
}

#[test]
fn what_something_else_ended_is_tried_once_more_by_another_child() {
    let folder = std::env::temp_dir().join(format!("worker-ends-{}", std::process::id()));
    // An earlier process of this number may have left one.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let mut p = pool(1);
    let mut end = |signal, stateless, marker: Option<&str>| {
        let marker = marker.map(|m| folder.join(m).display().to_string());
        let request = Request::End(signal, marker);
        match stateless {
            true => p.submit_stateless(1, request, of(LONG)),
            false => p.submit(1, request, of(LONG)),
        }
        p.next(LONG).expect("an answer").result
    };
    let by = |signal| {
        Err(Death::Crashed {
            signal: Some(signal),
            code: None,
            stderr: String::new(),
        })
    };
    for signal in worker::OUTSIDE_SIGNALS {
        let name = |kind| format!("{kind} {signal}");
        assert_eq!(end(signal, true, Some(&name("again"))), Ok(5));
        assert_eq!(end(signal, false, Some(&name("state"))), by(signal));
        assert_eq!(end(signal, true, None), by(signal), "twice");
    }
    // Its own doing.
    let own = end(libc::SIGABRT, true, Some("own"));
    assert_eq!(own, by(libc::SIGABRT));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_child_that_may_not_write_files_dies_of_it() {
    let file = std::env::temp_dir().join(format!("worker-test-{}", std::process::id()));
    let path = file.display().to_string();
    let mut p = pool(1);
    p.submit(1, Request::Write(path), of(Duration::from_secs(20)));
    let died = drain(&mut p).remove(&1);
    let bytes = std::fs::read(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    assert!(
        matches!(
            died,
            Some(Err(Death::Crashed {
                signal: Some(25),
                ..
            }))
        ),
        "{died:?}"
    );
    assert!(bytes.is_empty());
}

#[test]
fn a_lower_limit_of_the_user_stays_in_force() {
    let child = env!("CARGO_BIN_EXE_worker-test-child");
    for limit in ["-v", "-Sv"] {
        let limited = format!("ulimit {limit} 700000 && exec \"$0\"");
        let mut p = pool_of(1, "sh", &["-c", &limited, child]);
        p.submit(1, Request::Echo(3), of(LONG));
        p.submit(2, Request::Allocate(800 << 20), of(LONG));
        let answers = drain(&mut p);
        assert_eq!(answers[&1], Ok(3));
        assert!(answers[&2].is_err(), "{answers:?}");
    }
}

#[test]
fn a_missing_program_is_an_answer_too() {
    let command = CommandLine {
        program: "/nonexistent/worker".into(),
        args: vec![],
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    let mut p: Pool<Request, u64> = Pool::new(
        &command,
        1,
        ChildLimits {
            address_space: None,
            writes_files: true,
        },
    )
    .unwrap();
    p.submit(1, Request::Echo(1), of(Duration::from_secs(1)));
    assert!(matches!(drain(&mut p)[&1], Err(Death::NotStarted { .. })));
}

#[test]
fn a_paused_pool_runs_nothing() {
    let mut p = pool(1);
    p.pause();
    p.submit(1, Request::Echo(5), of(Duration::from_secs(10)));
    assert!(p.next(Duration::from_millis(50)).is_none());
    p.resume();
    assert_eq!(drain(&mut p)[&1], Ok(5));
    p.pause();
    p.submit(2, Request::Echo(1), of(Duration::from_secs(10)));
    p.submit(3, Request::Echo(1), of(Duration::from_secs(10)));
    assert_eq!(p.clear(), [2, 3]);
}

#[test]
fn dropping_a_pool_ends_its_children_idle_or_at_work() {
    let (mut idle, mut busy) = (pool(1), pool(1));
    let pids = [process_id(&mut idle), process_id(&mut busy)];
    for pid in pids {
        assert!(state(pid).is_some_and(|s| s != 'Z'), "it runs");
    }
    busy.submit(1, Request::Hang, of(SHORT));
    // At work, unless the system held up this process for longer than the limit.
    until("work", || {
        let note = std::fs::read_to_string(format!("/proc/{}/comm", pids[1]));
        note.map_or(true, |n| n.contains("hang")).then_some(())
    });
    drop((idle, busy));
    for pid in pids {
        // It was waited for, too: there is no zombie.
        assert_eq!(state(pid), None);
    }
}

/// The answer to one request.
fn ask(p: &mut Pool<Request, u64>, request: Request, limit: Duration) -> Answer<u64> {
    p.submit(9, request, of(limit));
    p.next(Duration::from_secs(30)).expect("an answer")
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);
/// A limit of what hangs, within which a child gets to where it hangs though the system holds it up.
const HELD_UP: Duration = Duration::from_secs(8);

#[test]
fn the_living_and_the_dead_are_charged_the_cpu_time_of_their_request() {
    let ns = 3_000_000;
    let mut p = pool(1);
    for _ in 0..3 {
        let a = ask(&mut p, Request::Spin(ns), LONG);
        let own = Duration::from_nanos(a.result.unwrap());
        assert!(own >= Duration::from_nanos(ns) && a.cpu >= own);
        assert!(a.cpu <= a.wall, "one thread: {:?} in {:?}", a.cpu, a.wall);
    }
    for (request, limit) in [
        (Request::SpinAndFault(ns), LONG),
        (Request::SpinAndHang(ns), HELD_UP),
    ] {
        let a = ask(&mut p, request, limit);
        assert!(a.result.is_err());
        assert!(a.cpu >= Duration::from_nanos(ns), "{:?}", a.cpu);
    }
}

#[test]
fn the_dead_tell_what_they_did() {
    let mut p = pool(1);
    let a = ask(&mut p, Request::Segfault, LONG);
    assert_eq!((a.note.as_str(), a.earlier), ("faulting at on", 0));
    // A new child, so that the limit is all for what hangs.
    assert_eq!(ask(&mut p, Request::Echo(1), LONG).result, Ok(1));
    let a = ask(&mut p, Request::Hang, HELD_UP);
    assert_eq!(a.note, "hang 7");
    assert_eq!(a.result, Err(Death::TimedOut { limit: HELD_UP }));
    let a = ask(&mut p, Request::Exit(1), LONG);
    assert_eq!(a.note, "", "a program's name is no note");
}

#[test]
fn a_child_that_stops_in_the_middle_of_a_message_is_timed_out() {
    let mut p = pool(1);
    // More than a pipe holds: it must be read while it is written.
    let large = || Request::Large((0..1 << 17).collect());
    let sum = Ok((0..1u64 << 17).sum());
    assert_eq!(ask(&mut p, large(), LONG).result, sum);
    let pid = process_id(&mut p);
    send(pid, libc::SIGSTOP);
    until_in_state(pid, 'T');
    let a = ask(&mut p, large(), SHORT);
    assert!(matches!(a.result, Err(Death::TimedOut { .. })), "{a:?}");
    let a = ask(
        &mut p,
        Request::Torn {
            announced: 100,
            hang: true,
        },
        SHORT,
    );
    assert!(matches!(a.result, Err(Death::TimedOut { .. })), "{a:?}");
    assert_eq!(ask(&mut p, large(), LONG).result, sum);
}

#[test]
fn broken_answers_end_the_child_only() {
    let mut p = pool(1);
    for announced in [100, u64::MAX, 1 << 31] {
        let a = ask(
            &mut p,
            Request::Torn {
                announced,
                hang: false,
            },
            LONG,
        );
        assert!(
            matches!(a.result, Err(Death::Crashed { code: Some(4), .. })),
            "{a:?}"
        );
    }
    // It sends what is no answer, and stays.
    let a = ask(
        &mut p,
        Request::Torn {
            announced: u64::MAX,
            hang: true,
        },
        LONG,
    );
    match a.result {
        Err(Death::Crashed {
            signal: None,
            code: None,
            stderr,
        }) => {
            assert!(stderr.contains("broke its protocol"), "{stderr}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(ask(&mut p, Request::Echo(6), LONG).result, Ok(6));
}

#[test]
fn a_reply_to_another_request_is_no_answer() {
    let mut p = pool(1);
    // A reply to an earlier request; and one too many, which the next would get.
    for (id, named) in [(7, 6), (8, 8), (9, 9)] {
        p.submit(id, Request::Misnamed(named), of(LONG));
    }
    p.submit(10, Request::Echo(5), of(LONG));
    let answers = drain(&mut p);
    assert_eq!(answers[&8], Ok(1));
    for (id, of) in [(7, 6), (9, 8)] {
        let Err(Death::Crashed { stderr, .. }) = &answers[&id] else {
            panic!("{answers:?}")
        };
        let said = format!("request {id} was answered with the reply to {of}");
        assert!(stderr.contains(&said), "{stderr}");
    }
    assert_eq!(answers[&10], Ok(5));
}

#[test]
fn a_death_while_idle_costs_no_request() {
    let mut p = pool(1);
    let pid = process_id(&mut p);
    let a = ask(&mut p, Request::Echo(2), LONG);
    assert_eq!((a.result, a.earlier), (Ok(2), 1));
    send(pid, libc::SIGKILL);
    until("its end", || {
        matches!(state(pid), None | Some('Z')).then_some(())
    });
    let a = ask(&mut p, Request::Echo(3), LONG);
    assert_eq!((a.result, a.earlier), (Ok(3), 0), "a new child");
}

#[test]
fn a_fresh_child_on_request() {
    let mut p = pool(1);
    let id = |p: &mut Pool<Request, u64>, fresh| {
        if fresh {
            p.submit_fresh(1, Request::ProcessId, of(LONG));
        } else {
            p.submit(1, Request::ProcessId, of(LONG));
        }
        p.next(LONG).unwrap().result.unwrap()
    };
    let first = id(&mut p, true);
    assert_eq!(id(&mut p, false), first);
    let second = id(&mut p, true);
    assert_ne!(second, first);
    assert_eq!(id(&mut p, false), second);
}

#[test]
fn a_request_may_use_so_much_cpu_time_whatever_others_used_before() {
    let mut p = pool(1);
    let limit = TimeLimit {
        wall: Duration::from_secs(60),
        cpu: Duration::from_millis(700),
    };
    let mut spin = |ns| {
        p.submit(1, Request::Spin(ns), limit);
        p.next(LONG * 3).expect("an answer")
    };
    // Together more than one of them may use.
    for earlier in 0..3 {
        let a = spin(700_000_000);
        assert!(a.result.is_ok() && a.earlier == earlier, "{a:?}");
    }
    let a = spin(u64::MAX);
    let out = Death::TimedOut { limit: limit.cpu };
    assert_eq!(a.result, Err(out));
    assert!(a.cpu < Duration::from_secs(4), "{:?}", a.cpu);
}

/// The state of a process, as the system lists it.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Sends a signal to a process that a test started and that was not waited for.
fn send(pid: u32, signal: i32) {
    let pid = libc::pid_t::try_from(pid).unwrap();
    // SAFETY: a call that takes numbers only.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Waits for something that has to come.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a process is in a state.
fn until_in_state(pid: u32, letter: char) {
    until("a state", || (state(pid)? == letter).then_some(()));
}

fn process_id(p: &mut Pool<Request, u64>) -> u32 {
    let id = ask(p, Request::ProcessId, LONG).result.unwrap();
    u32::try_from(id).unwrap()
}

#[test]
fn a_child_that_spins_ends_though_its_parent_is_stopped() {
    let parent = Command::new(env!("CARGO_BIN_EXE_worker-test-child"))
        .arg("parent")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let tasks = format!("/proc/{}/task", parent.id());
    let child = until("a child that is at work", || {
        let tasks = std::fs::read_dir(&tasks).ok()?.flatten();
        let lists = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
        let pid: u32 = lists
            .flat_map(|l| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .find_map(|pid| pid.parse().ok())?;
        let note = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        note.contains("spin").then_some(pid)
    });
    send(parent.id(), libc::SIGSTOP);
    until_in_state(child, 'Z');
    assert_eq!(state(parent.id()), Some('T'), "nobody else ended it");
    send(parent.id(), libc::SIGCONT);
    let said = parent.wait_with_output().unwrap();
    assert!(
        String::from_utf8_lossy(&said.stdout).contains("TimedOut"),
        "{said:?}"
    );
}

#[test]
fn a_stop_ends_what_runs_and_what_waits_until_a_new_end_is_set() {
    let stop = worker::Stop::default();
    let command = CommandLine {
        program: env!("CARGO_BIN_EXE_worker-test-child").into(),
        args: vec![],
        cpus: vec![],
        stop: stop.clone(),
    };
    let limits = ChildLimits {
        address_space: Some(1 << 30),
        writes_files: false,
    };
    let mut p: Pool<Request, u64> = Pool::new(&command, 1, limits).unwrap();
    p.submit(0, Request::Echo(0), of(Duration::from_secs(20)));
    assert_eq!(drain(&mut p)[&0], Ok(0));
    p.submit(1, Request::Hang, of(Duration::from_secs(60)));
    p.submit(2, Request::Echo(2), of(Duration::from_secs(60)));
    let asker = stop.clone();
    let asker = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        asker.ask();
    });
    let done = drain(&mut p);
    asker.join().unwrap();
    assert_eq!(done[&1], Err(Death::Withdrawn));
    assert_eq!(done[&2], Err(Death::Withdrawn));
    assert!(stop.asked().unwrap().elapsed() < Duration::from_secs(20));
    // Whoever sets an end knows of the stop.
    p.end_by(None);
    p.submit(3, Request::Echo(3), of(Duration::from_secs(20)));
    assert_eq!(drain(&mut p)[&3], Ok(3));
}
