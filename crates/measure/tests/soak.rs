//! Many faults among many good candidates: every outcome belongs to its
//! candidate, and nothing is left behind. Alone in its process, because it
//! counts the process's children, files and memory.
//!
//! `TUNESMITH_FAULTS` sets the faults of each class.

#![cfg(target_arch = "x86_64")]

mod c_kernel;
mod faults;

use c_kernel::{good, preparing, protocol, runner, task};
use faults::{candidates, children, open_files, status};
use measure::{Protocol, RunnerProcess};
use runtime::BuiltKernel;
use store::Outcome;
use testkit::setting;

/// Faults of each class, unless the environment says otherwise.
const FAULTS: u64 = 20;

/// Which candidate each of the measurements is of: `None` for a good one.
/// Single classes come so many times, the five of a class a fifth of that each.
fn schedule(candidates: usize) -> Vec<Option<usize>> {
    let times = setting("TUNESMITH_FAULTS", FAULTS) as usize;
    let mut order: Vec<Option<usize>> = vec![None; 4 * times];
    for i in 0..candidates {
        let times = if i < 8 { times } else { times.div_ceil(5) };
        order.extend(vec![Some(i); times]);
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

fn measure_all(s: &mut RunnerProcess, candidates: &[(BuiltKernel, &str, String)]) {
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
        // What never ends may not have got beyond being loaded.
        let label = label
            .strip_suffix("-run")
            .filter(|l| *l == "timed-out")
            .unwrap_or(label);
        assert!(outcome.label().starts_with(label), "{outcome:?}");
        let shown = format!("{outcome:?}");
        assert!(shown.contains(text.as_str()), "`{text}` in {shown}");
    }
}

#[test]
fn faults_among_good_candidates_leave_nothing_behind() {
    let candidates = candidates();
    let me = std::process::id();
    let files_at_first = open_files();
    let mut s = runner();
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
