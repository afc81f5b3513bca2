//! Many faults among many good candidates: every outcome belongs to its
//! candidate, and nothing is left behind. Alone in its process, because it
//! counts the process's children, files and memory.

#![cfg(target_arch = "x86_64")]

mod c_kernel;

use c_kernel::{from_source, good, kernel, preparing, protocol, serial, task};
use measure::{Protocol, Serial};
use runtime::BuiltKernel;
use std::fs;
use store::Outcome;

/// Candidates whose outcomes tell them apart, each with the end of the outcome's text.
fn candidates() -> Vec<(BuiltKernel, &'static str, String)> {
    let mut all = Vec::new();
    let mut huge = good();
    huge.workspace_bytes = 1 << 42;
    let mut foreign = good();
    foreign.target.features = "+warp-drive".into();
    for (kernel, label, text) in [
        (kernel("*(volatile int *)8 = 1;"), "crashed-run", "Some(11)"),
        (
            kernel("for (;;) spin(1000);"),
            "timed-out-run",
            "limit_ms: 40",
        ),
        (
            kernel("compute(args); ((char *)n)[60] = 1;"),
            "crashed-run",
            "past the end",
        ),
        (
            kernel("compute(args); ((volatile char *)y)[5000] = 1;"),
            "crashed-run",
            "Some(11)",
        ),
        (huge, "out-of-memory-load", ""),
        (foreign, "crashed-load", "warp-drive"),
        (
            from_source("void f(void); int kernel(void) { f(); return 0; }"),
            "crashed-load",
            "`f`",
        ),
        (preparing("__builtin_trap();"), "crashed-load", "Some(4)"),
    ] {
        all.push((kernel, label, text.to_string()));
    }
    for i in 1..=5 {
        let wrong = kernel(&format!("compute(args); n[{i}] += {i};"));
        all.push((wrong, "wrong", format!("max_abs: {i}.0")));
        let fails = kernel(&format!("return {};", 10 + i));
        all.push((fails, "crashed-run", format!("code {}", 10 + i)));
    }
    all
}

/// Which candidate each of the measurements is of: `None` for a good one.
/// Single classes are repeated 50 times, the five of a class 10 times each.
fn schedule(candidates: usize) -> Vec<Option<usize>> {
    let mut order: Vec<Option<usize>> = vec![None; 200];
    for i in 0..candidates {
        order.extend(vec![Some(i); if i < 8 { 50 } else { 10 }]);
    }
    let mut state = 1u64;
    for i in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    // A living runner at the end.
    order.push(None);
    order
}

/// Living children of this process, zombies included.
fn children() -> Vec<u32> {
    let me = std::process::id();
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, after) = stat.rsplit_once(')')?;
        after.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent(*pid) == Some(me)).collect()
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The figure of a line of a process's status, e.g. `VmRSS` in KiB.
fn status(pid: u32, line: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(line)?.strip_prefix(':'))
        .unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn measure_all(s: &mut Serial, candidates: &[(BuiltKernel, &str, String)]) {
    let (t, right) = (task(1, good()), good());
    let p = protocol();
    let hasty = Protocol {
        limit_ns: 40_000_000,
        ..p.clone()
    };
    for which in schedule(candidates.len()) {
        let Some(which) = which else {
            let outcome = s.measure(&t, &right, &p, None, false).outcome;
            assert!(matches!(outcome, Outcome::Timed { .. }), "{outcome:?}");
            continue;
        };
        let (kernel, label, text) = &candidates[which];
        let p = if label.starts_with("timed-out") {
            &hasty
        } else {
            &p
        };
        let outcome = s.measure(&t, kernel, p, None, false).outcome;
        assert_eq!(outcome.label(), *label, "{outcome:?}");
        let shown = format!("{outcome:?}");
        assert!(shown.contains(text.as_str()), "`{text}` in {shown}");
    }
}

#[test]
fn faults_among_good_candidates_leave_nothing_behind() {
    let candidates = candidates();
    let me = std::process::id();
    let files_at_first = open_files();
    let mut s = serial();
    measure_all(&mut s, &candidates);
    let (files, threads, memory) = (open_files(), status(me, "Threads"), status(me, "VmRSS"));
    assert_eq!(children().len(), 1, "one runner");
    measure_all(&mut s, &candidates);
    assert_eq!(children().len(), 1, "one runner");
    assert_eq!((open_files(), status(me, "Threads")), (files, threads));
    let grown = status(me, "VmRSS").saturating_sub(memory);
    assert!(grown < 4096, "{grown} KiB more after the same again");

    // A runner that lives long does not grow either.
    let (t, p) = (task(1, good()), protocol());
    let (right, prepared) = (good(), preparing(""));
    let mut pairs = |n| {
        for _ in 0..n {
            for k in [&right, &prepared] {
                let outcome = s.measure(&t, k, &p, None, false).outcome;
                assert!(matches!(outcome, Outcome::Timed { .. }), "{outcome:?}");
            }
        }
        let runner = children()[0];
        (runner, status(runner, "VmRSS"), status(runner, "VmSize"))
    };
    let before = pairs(50);
    let after = pairs(500);
    assert_eq!(after.0, before.0, "the same runner");
    assert!(
        after.1 < before.1 + 1024 && after.2 < before.2 + 1024,
        "{before:?} {after:?} KiB"
    );

    drop(s);
    assert!(children().is_empty());
    assert_eq!(open_files(), files_at_first);
}
