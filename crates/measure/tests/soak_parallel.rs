//! Many faults among many good candidates, side by side: no outcome belongs to
//! another candidate, and nothing is left behind. Alone in its process, because
//! it counts the process's children, files and memory.
//!
//! `TUNESMITH_FAULTS` sets the faults of each class, `TUNESMITH_RUNNERS` the most
//! runners at once, as far as there is memory for them; `--nocapture` shows a table.

#![cfg(target_arch = "x86_64")]

#[allow(dead_code)]
mod c_kernel;
mod faults;
mod owned_batch;

use c_kernel::{good, protocol, task};
use faults::{ROTATE_BYTES, candidates, children, class, open_files, right, status};
use measure::{
    Constants, Device, Dispatch, LocalDevices, Measured, Measurer, Policy, Protocol, TaskState,
};
use owned_batch::batch;
use runtime::BuiltKernel;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use store::Outcome;
use testkit::setting;
use worker::CommandLine;

/// Faults of each class, unless the environment says otherwise.
const FAULTS: u64 = 5;
/// Runners at most, unless the environment says otherwise.
const RUNNERS: u64 = 8;
/// Memory that a runner may come to use.
const RUNNER_BYTES: u64 = 64 << 20;

/// What a measurement is of, by position among its kind.
#[derive(Clone, Copy)]
enum Of {
    Fault(usize),
    Right(usize),
}

/// What each measurement is of: as many right ones as faults. Single classes come
/// so many times, the five of a class a fifth of that each.
fn schedule(faults: usize, right: usize, times: usize) -> Vec<Of> {
    let of = |c: usize| if c < 8 { times } else { times.div_ceil(5) };
    let faults = (0..faults).flat_map(|c| vec![Of::Fault(c); of(c)]);
    let mut order: Vec<Of> = faults.collect();
    order.extend((0..order.len()).map(|i| Of::Right(i % right)));
    let mut state = 1u64;
    for i in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order
}

/// Runners that there is memory for.
fn affordable() -> u32 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    let bytes = kib.expect("the system says what is available") << 10;
    (bytes / 2 / RUNNER_BYTES).clamp(1, 1 << 16) as u32
}

fn local(runners: u32) -> LocalDevices {
    let device = Device {
        name: None,
        cpus: vec![0],
        threads: 1,
        pinned: false,
        oversubscribe: runners,
        beside: false,
    };
    let command = CommandLine {
        program: env!("CARGO_BIN_EXE_measure-test-runner").into(),
        args: vec![],
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    LocalDevices::new(vec![device], &command).unwrap()
}

/// Longer than anything takes that ends.
const LONG_S: f64 = 20.0;

/// Measures all in batches with at most `dp` at once, and time-outs from so many seconds.
fn measure(
    local: &mut LocalDevices,
    dp: u32,
    limit_s: f64,
    kernels: &[&BuiltKernel],
) -> Vec<Measured> {
    let mut constants = Constants::PAPER;
    constants.max_dp = dp;
    (constants.timeout.eta, constants.timeout.iota) = (limit_s, 2.0 * limit_s);
    let measurer = Measurer {
        policy: Policy::Doppler,
        constants,
        naive_dp: dp,
        limit: Duration::from_secs_f64(5.0 * limit_s),
    };
    let task = task(1, good());
    let protocol = Protocol {
        rotate_bytes: ROTATE_BYTES,
        ..protocol()
    };
    let mut state = TaskState::new(&constants, 1);
    let mut all = Vec::new();
    for kernels in kernels.chunks(64) {
        let batch = batch(&task, kernels, &protocol);
        let done = measurer.measure(local, &batch, kernels.len(), &mut state, &mut |_| {});
        all.extend(done.outcomes);
    }
    all
}

/// Whether an outcome is that of a right kernel with so many copies of constants.
fn is_right(outcome: &Outcome, copies: u32) -> bool {
    let Outcome::Timed { conditions, .. } = outcome else {
        return false;
    };
    conditions.const_copies == copies
}

#[test]
fn faults_side_by_side_leave_nothing_behind_and_no_outcome_is_anothers() {
    let times = setting("TUNESMITH_FAULTS", FAULTS) as usize;
    let runners = setting("TUNESMITH_RUNNERS", RUNNERS) as u32;
    let runners = runners.min(affordable());
    let (all, right) = (candidates(), right());
    let order = schedule(all.len(), right.len(), times);
    let kernel = |of: &Of| match of {
        Of::Fault(c) => &all[*c].0,
        Of::Right(c) => &right[*c].0,
    };
    let kernels: Vec<&BuiltKernel> = order.iter().map(kernel).collect();
    // Whose outcome it should be, and whether it is that.
    let judged = |of: &Of, m: &Measured| match of {
        Of::Fault(c) => {
            let (_, label, text) = &all[*c];
            let hangs = label.starts_with("timed-out");
            // What never ends may not have got beyond being loaded.
            let own = match hangs {
                true => m.outcome.label().starts_with("timed-out"),
                false => {
                    let said = format!("{:?}", m.outcome);
                    m.outcome.label() == *label && said.contains(text.as_str())
                }
            };
            (class(*c), own)
        }
        Of::Right(c) => ("is right", is_right(&m.outcome, right[*c].1)),
    };
    let files = open_files();
    for dp in [1, 8, 64] {
        let begin = Instant::now();
        let mut local = local(dp.min(runners));
        // Short, for candidates that never end.
        let outcomes = measure(&mut local, dp, 0.2, &kernels);
        assert_eq!(outcomes.len(), order.len());
        let mut late: Vec<Of> = Vec::new();
        // Of each class, how many there were, and how many were late.
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (of, m) in order.iter().zip(&outcomes) {
            let (name, own) = judged(of, m);
            let count = counts.entry(name).or_default();
            count.0 += 1;
            if !own && m.outcome.label().starts_with("timed-out") {
                // The system was busy elsewhere; that it says so is right.
                late.push(*of);
                count.1 += 1;
            } else {
                assert!(own, "DP {dp}: {name}: {m:?}");
            }
        }
        // With time enough none is late.
        let kernels: Vec<&BuiltKernel> = late.iter().map(kernel).collect();
        let outcomes = measure(&mut local, dp, LONG_S, &kernels);
        for (of, m) in late.iter().zip(&outcomes) {
            assert!(judged(of, m).1, "DP {dp}: {m:?}");
        }
        assert!(children().len() <= dp.min(runners) as usize);
        let runners = local.capacity();
        let memory = status(std::process::id(), "VmRSS");
        assert!(memory < 512 << 10, "{memory} KiB");
        drop(local);
        assert!(children().is_empty());
        assert_eq!(open_files(), files);
        let s = begin.elapsed().as_secs();
        println!("DP {dp}, {runners} runners, {s} s, {memory} KiB in this process; outcomes:");
        for (class, (all, late)) in counts {
            println!(
                "  {class:34} {all:6} its own {:6} late {late:3}",
                all - late
            );
        }
    }
}
