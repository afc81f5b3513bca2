//! Many faults among many good candidates, side by side: no outcome belongs to
//! another candidate, and nothing is left behind. Alone in its process, because
//! it counts the process's children, files and memory.
//!
//! `TUNESMITH_FAULTS` sets the faults of each class; `--nocapture` shows a table.

#![cfg(target_arch = "x86_64")]

#[allow(dead_code)]
mod c_kernel;
mod faults;

use c_kernel::{good, protocol, task};
use faults::{candidates, children, class, open_files, status};
use measure::{Batch, Constants, Device, Local, Measured, Measurer, Policy, TaskState};
use runtime::BuiltKernel;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use worker::CommandLine;

/// Faults of each class, unless the environment says otherwise.
const FAULTS: usize = 50;
/// Runners at most.
const RUNNERS: u32 = 8;

/// Which candidate each measurement is of, `None` for a good one: as many good
/// ones as faults. Single classes come so many times, the five of a class a
/// fifth of that each.
fn schedule(candidates: usize, times: usize) -> Vec<Option<usize>> {
    let of = |c: usize| if c < 8 { times } else { times.div_ceil(5) };
    let faults = (0..candidates).flat_map(|c| vec![Some(c); of(c)]);
    let mut order: Vec<Option<usize>> = faults.collect();
    order.extend(vec![None; order.len()]);
    let mut state = 1u64;
    for i in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order
}

fn local(runners: u32) -> Local {
    let device = Device {
        name: None,
        cpus: vec![0],
        threads: 1,
        pinned: false,
        oversubscribe: runners,
    };
    let command = CommandLine {
        program: env!("CARGO_BIN_EXE_measure-test-runner").into(),
        args: vec![],
        cpus: vec![],
    };
    Local::new(vec![device], &command).unwrap()
}

/// Measures all in batches with at most `dp` at once.
fn measure(local: &mut Local, dp: u32, kernels: &[&BuiltKernel]) -> Vec<Measured> {
    let mut constants = Constants::PAPER;
    constants.max_dp = dp;
    (constants.timeout.eta, constants.timeout.iota) = (0.2, 0.4);
    let measurer = Measurer {
        policy: Policy::Doppler,
        constants,
        naive_dp: dp,
        limit: Duration::from_secs(1),
    };
    let (task, protocol) = (task(1, good()), protocol());
    let mut state = TaskState::new(&constants, 1);
    let mut all = Vec::new();
    for kernels in kernels.chunks(64) {
        let batch = Batch {
            task: &task,
            kernels,
            protocol: &protocol,
            best_ns: None,
            overlap: false,
        };
        let done = measurer.measure(local, &batch, kernels.len(), &mut state, &mut |_| {});
        all.extend(done.outcomes);
    }
    all
}

#[test]
fn faults_side_by_side_leave_nothing_behind_and_no_outcome_is_anothers() {
    let text = std::env::var("TUNESMITH_FAULTS").ok();
    let times = text.map_or(FAULTS, |t| t.parse().expect("a count"));
    let (all, right) = (candidates(), good());
    let order = schedule(all.len(), times);
    let kernels: Vec<&BuiltKernel> = order
        .iter()
        .map(|c| c.map_or(&right, |c| &all[c].0))
        .collect();
    let files = open_files();
    for dp in [1, 8, 64] {
        let begin = Instant::now();
        let mut local = local(dp.min(RUNNERS));
        let outcomes = measure(&mut local, dp, &kernels);
        assert_eq!(outcomes.len(), order.len());
        let mut late = 0;
        // Of each class, how many there were, and how many were late.
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (c, m) in order.iter().zip(&outcomes) {
            let (label, text) = c.map_or(("timed", ""), |c| (all[c].1, all[c].2.as_str()));
            let count = counts.entry(c.map_or("is right", class)).or_default();
            count.0 += 1;
            let (is, shown) = (m.outcome.label(), format!("{:?}", m.outcome));
            if label.starts_with("timed-out") {
                assert_eq!(is, label);
            } else if is.starts_with("timed-out") {
                // The system was busy elsewhere; that it says so is right.
                late += 1;
                count.1 += 1;
            } else {
                assert!(
                    is == label && shown.contains(text),
                    "DP {dp}: {label} {text}: {shown}"
                );
            }
        }
        assert!(late <= order.len() / 50, "DP {dp}: {late} late");
        assert!(children().len() <= dp.min(RUNNERS) as usize);
        let memory = status(std::process::id(), "VmRSS");
        assert!(memory < 512 << 10, "{memory} KiB");
        drop(local);
        assert!(children().is_empty());
        assert_eq!(open_files(), files);
        let s = begin.elapsed().as_secs();
        println!("DP {dp}, {s} s, {memory} KiB at most in this process; outcomes:");
        for (class, (all, late)) in counts {
            println!(
                "  {class:34} {all:6} its own {:6} late {late:3}",
                all - late
            );
        }
    }
}
