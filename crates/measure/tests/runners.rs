//! Rounds on real runner processes: every outcome belongs to its candidate,
//! whatever its neighbours did, and nothing is left behind.

#![cfg(target_arch = "x86_64")]

#[allow(dead_code)]
mod c_kernel;
mod device_contract;
mod owned_batch;

use c_kernel::{good, kernel, protocol, task};
use measure::{
    Assignment, Constants, Device, Dispatch, KernelBatch, LocalDevices, Measured, MeasuredBatch,
    Measurer, Policy, Round, TaskState,
};
use owned_batch::batch;
use runtime::BuiltKernel;
use std::time::Duration;
use store::{Clock, Outcome};
use testkit::host::{skipped, undisturbed};
use worker::CommandLine;

/// CPUs that this process may use.
fn cpus() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// Devices of one CPU each, with this many runners.
fn local(devices: usize, runners: u32) -> LocalDevices {
    starting(devices, runners, vec![])
}

/// The same with arguments for their processes.
fn starting(devices: usize, runners: u32, args: Vec<String>) -> LocalDevices {
    let cpus = cpus();
    let device = |i: usize| Device {
        name: Some(format!("device {i}")),
        cpus: vec![cpus[i % cpus.len()]],
        threads: 1,
        pinned: true,
        oversubscribe: runners,
        beside: false,
    };
    let command = CommandLine {
        program: env!("CARGO_BIN_EXE_measure-test-runner").into(),
        args,
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    LocalDevices::new((0..devices).map(device).collect(), &command).unwrap()
}

/// Time-outs from so many seconds.
fn constants(limit_s: f64) -> Constants {
    let mut c = Constants::PAPER;
    (c.timeout.eta, c.timeout.iota) = (limit_s, 3.0 * limit_s);
    c
}

/// Longer than anything takes that ends.
const LONG_S: f64 = 20.0;

fn measure(local: &mut LocalDevices, policy: Policy, kernels: &[&BuiltKernel]) -> MeasuredBatch {
    measure_within(LONG_S, local, policy, kernels)
}

fn measure_within(
    limit_s: f64,
    local: &mut LocalDevices,
    policy: Policy,
    kernels: &[&BuiltKernel],
) -> MeasuredBatch {
    let (task, protocol) = (task(1, good()), protocol());
    let measurer = Measurer {
        policy,
        constants: constants(limit_s),
        naive_dp: 4,
        limit: Duration::from_secs_f64(limit_s),
    };
    let batch = batch(&task, kernels, &protocol);
    let mut state = TaskState::new(&measurer.constants, 1);
    measurer.measure(local, &batch, kernels.len(), &mut state, &mut |_| {})
}

/// Candidates whose outcomes tell them apart, with how those begin and a text
/// that is in them.
fn candidates() -> Vec<(BuiltKernel, &'static str, String)> {
    let mut all = vec![
        (good(), "timed", String::new()),
        (
            kernel("*(volatile int *)8 = 1;"),
            "crashed-run",
            "Some(11)".into(),
        ),
        (kernel("__builtin_trap();"), "crashed-run", "Some(4)".into()),
        (kernel("for (;;) spin(1000);"), "timed-out", String::new()),
    ];
    for i in 1..=5 {
        let wrong = kernel(&format!("compute(args); n[{i}] += {i};"));
        all.push((wrong, "wrong", format!("max_abs: {i}.0")));
        let fails = kernel(&format!("return {};", 10 + i));
        all.push((fails, "crashed-run", format!("code {}", 10 + i)));
    }
    all
}

/// Which candidate each measurement is of: mostly good ones, and each of the
/// others `times` times.
fn order(candidates: usize, times: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..candidates).flat_map(|c| vec![c; times]).collect();
    order.extend(vec![0; 4 * order.len()]);
    let mut state = 1u64;
    for i in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order
}

#[test]
fn every_outcome_is_its_candidates_under_every_policy() {
    let all = candidates();
    let order = order(all.len(), 2);
    let kernels: Vec<&BuiltKernel> = order.iter().map(|c| &all[*c].0).collect();
    for (policy, devices, runners) in [
        (Policy::Serial, 1, 1),
        (Policy::SerialSpawn, 1, 1),
        (Policy::Naive, 1, 4),
        (Policy::Doppler, 1, 4),
        (Policy::Doppler, 2, 2),
    ] {
        // Short enough for candidates that never end.
        let mut local = local(devices, runners);
        let done = measure_within(0.5, &mut local, policy, &kernels);
        assert_eq!(done.outcomes.len(), order.len());
        let is_own = |c: usize, m: &Measured| {
            let (_, label, text) = &all[c];
            let said = format!("{:?}", m.outcome);
            m.outcome.label().starts_with(label) && said.contains(text.as_str())
        };
        let mut late = Vec::new();
        for (c, m) in order.iter().zip(&done.outcomes) {
            if m.outcome.label().starts_with("timed-out") && all[*c].1 != "timed-out" {
                // The system may have held it up.
                late.push(*c);
            } else {
                assert!(is_own(*c, m), "{policy:?}: {}: {m:?}", all[*c].1);
            }
        }
        // With time enough none is late.
        let kernels: Vec<&BuiltKernel> = late.iter().map(|c| &all[*c].0).collect();
        let done = measure(&mut local, policy, &kernels);
        for (c, m) in late.iter().zip(&done.outcomes) {
            assert!(is_own(*c, m), "{policy:?}: {}: {m:?}", all[*c].1);
        }
    }
}

#[test]
fn what_a_task_expects_is_computed_once_for_all_runners() {
    // Expects the number of the process that ran it.
    let oracle = kernel(
        "long pid;
        __asm__ volatile(\"syscall\" : \"=a\"(pid) : \"a\"(39L) : \"rcx\", \"r11\", \"memory\");
        compute(args); n[0] = pid;",
    );
    let zero = kernel("compute(args); n[0] = 0;");
    let task = task(1, oracle);
    let mut seen = std::collections::BTreeSet::new();
    let mut local = local(1, 4);
    for policy in [Policy::SerialSpawn, Policy::Naive] {
        let measurer = Measurer {
            policy,
            constants: constants(LONG_S),
            naive_dp: 4,
            limit: Duration::from_secs_f64(LONG_S),
        };
        let protocol = protocol();
        let batch = batch(&task, &[&zero; 12], &protocol);
        let mut state = TaskState::new(&measurer.constants, 1);
        let done = measurer.measure(&mut local, &batch, 12, &mut state, &mut |_| {});
        for m in done.outcomes {
            let Outcome::Wrong { difference, .. } = m.outcome else {
                panic!("{m:?}")
            };
            seen.insert(difference.max_abs as u64);
        }
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen.iter().all(|pid| *pid > 1), "{seen:?}");
}

#[test]
fn a_record_says_how_it_was_measured() {
    let (a, b) = (kernel("compute(args); spin(20000);"), good());
    let kernels: Vec<&BuiltKernel> = (0..30).map(|i| if i % 2 == 0 { &a } else { &b }).collect();
    let mut local = local(2, 2);
    let done = measure(&mut local, Policy::Doppler, &kernels);
    let (mut beside, mut alone) = (0, 0);
    let (mut busy_ns, mut host_ns) = (0, 0);
    for m in &done.outcomes {
        let Outcome::Timed {
            clock, conditions, ..
        } = &m.outcome
        else {
            panic!("{m:?}")
        };
        // By its cycles only where the system lets a thread count them.
        let cycles = measure::cycle_ns().is_ok() && *clock == Clock::CycleCounter;
        assert!(cycles || *clock == Clock::ThreadCpu, "{clock:?}");
        assert_eq!(conditions.measurer.as_deref(), Some("doppler"));
        assert!(conditions.round_dp.is_some_and(|dp| dp >= conditions.dp));
        let name = conditions.device.as_deref().expect("there are several");
        assert!(name.starts_with("device "));
        let latency_ns = conditions.latency_ns.expect("it was timed");
        busy_ns += conditions.launches.expect("it was launched") * latency_ns;
        host_ns += conditions.span_ns.expect("that took time");
        assert!(conditions.queue_ns.is_some() && conditions.load_ns.is_some());
        if conditions.isolated {
            alone += 1;
            assert_eq!(conditions.dp, 1);
        } else if conditions.dp == 1 {
            // Beside the other device only, as in the first round and the last.
            assert!(conditions.delta.is_none());
        } else {
            beside += 1;
            assert_eq!(conditions.dp, 2);
            assert!(conditions.delta.is_some());
        }
    }
    assert!(beside > 0 && alone > 2, "{beside} {alone}");
    // A thread has no more time than passes; a little for the clocks' steps.
    assert!(busy_ns > 0 && busy_ns < host_ns + host_ns / 10 + 1_000_000);
}

#[test]
fn beside_another_device_nothing_is_isolated() {
    let a = good();
    for (devices, expected) in [(1, true), (2, false)] {
        let done = measure(&mut local(devices, 1), Policy::Serial, &[&a; 4]);
        for m in &done.outcomes {
            let Outcome::Timed { conditions, .. } = &m.outcome else {
                panic!("{m:?}")
            };
            assert_eq!((conditions.dp, conditions.isolated), (1, expected));
        }
    }
}

#[test]
fn a_round_says_whether_what_dies_is_tried_again() {
    for (retry, tries) in [(true, 2), (false, 1)] {
        let folder = tempfile::tempdir().unwrap();
        // Leaves a folder each time that it runs: the first name that is free.
        let dies = kernel(&format!(
            "char name[] = \"{}/0\"; long status;
            do __asm__ volatile(\"syscall\" : \"=a\"(status)
                : \"a\"(83L), \"D\"(name), \"S\"(0777L) : \"rcx\", \"r11\", \"memory\");
            while (status != 0 && name[sizeof name - 2]++ < '9');
            __builtin_trap();",
            folder.path().display()
        ));
        let (task, protocol, a) = (task(1, good()), protocol(), good());
        let batch = batch(&task, &[&a, &dies], &protocol);
        let round = Round {
            dp: 1,
            limit: Duration::from_secs(60),
            each: Duration::from_secs(30),
            quiet: false,
            fresh: false,
            host_clock: false,
            retry,
            slower: None,
            measurer: Policy::Doppler,
        };
        let jobs = [0, 1].map(|candidate| Assignment {
            candidate,
            device: 0,
        });
        // The second finds a used runner.
        let outcomes = local(1, 1).round(&batch, &jobs, &round);
        assert_eq!(outcomes[1].outcome.label(), "crashed-run");
        let ran = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(ran, tries, "{:?}", outcomes[1].whole);
    }
}

#[test]
fn replacing_a_runner_takes_nothing_from_the_round() {
    // A runner that was replaced is ready later than the round is over.
    let mut local = starting(1, 1, vec!["after".into(), "3000".into()]);
    let (task, protocol) = (task(1, good()), protocol());
    let (a, dies) = (good(), kernel("__builtin_trap();"));
    let batch = batch(&task, &[&a, &dies, &a], &protocol);
    let limit = Duration::from_secs(2);
    let round = Round {
        dp: 1,
        limit,
        each: limit,
        quiet: false,
        fresh: false,
        host_clock: false,
        retry: true,
        slower: None,
        measurer: Policy::Doppler,
    };
    let jobs = [0, 1, 2].map(|candidate| Assignment {
        candidate,
        device: 0,
    });
    // The second dies twice: in the runner that the first had used, and in a new one.
    let measure = || local.round(&batch, &jobs, &round);
    undisturbed(measure, |outcomes| {
        let labels = outcomes.iter().map(|m| m.outcome.label());
        labels.eq(["timed", "crashed-run", "timed"])
    });
}

#[test]
fn a_round_says_what_is_given_up_early() {
    let (task, protocol, a) = (
        task(1, good()),
        protocol(),
        kernel("compute(args); spin(3000);"),
    );
    let batch = KernelBatch {
        // Nothing is as fast.
        best_ns: Some(1),
        ..batch(&task, &[&a], &protocol)
    };
    let jobs = [Assignment {
        candidate: 0,
        device: 0,
    }];
    let mut local = local(1, 1);
    let mut samples = |slower| {
        let round = Round {
            dp: 1,
            limit: Duration::from_secs(20),
            each: Duration::from_secs(10),
            quiet: false,
            fresh: false,
            host_clock: false,
            retry: true,
            slower,
            measurer: Policy::Doppler,
        };
        let outcome = local.round(&batch, &jobs, &round).remove(0).outcome;
        let Outcome::Timed { samples_ns, .. } = outcome else {
            panic!("{outcome:?}")
        };
        samples_ns.len()
    };
    assert_eq!(samples(Some(1.0)), 1);
    assert!(samples(None) >= 5, "nothing is");
    assert!(
        samples(Some(1e9)) >= 5,
        "it is within what neighbours may do"
    );
}

#[test]
fn naive_samples_are_read_from_the_hosts_clock() {
    let (a, mut local) = (good(), local(1, 2));
    let done = measure(&mut local, Policy::Naive, &[&a; 6]);
    for m in &done.outcomes {
        let Outcome::Timed {
            clock, conditions, ..
        } = &m.outcome
        else {
            panic!("{m:?}")
        };
        assert_eq!((clock, conditions.dp), (&Clock::HostMonotonic, 2));
        assert!(!conditions.isolated && conditions.scale.is_none());
    }
}

/// A kernel that fails unless it may run on that CPU and on no other one.
fn kernel_of(cpu: usize) -> BuiltKernel {
    kernel(&format!(
        "unsigned long set[128] = {{0}}; long bytes;
        __asm__ volatile(\"syscall\" : \"=a\"(bytes)
            : \"a\"(204L), \"D\"(0L), \"S\"(sizeof set), \"d\"(set) : \"rcx\", \"r11\", \"memory\");
        compute(args);
        if (bytes <= 0) return 1;
        for (int i = 0; i < 128; i++)
            if (set[i] != (i == {} ? 1ul << {} : 0)) return 2;",
        cpu / 64,
        cpu % 64
    ))
}

#[test]
fn kernels_stay_on_the_cpus_of_their_device_and_beside_others_they_are_not_isolated() {
    let command = CommandLine {
        program: env!("CARGO_BIN_EXE_measure-test-runner").into(),
        args: vec![],
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    let all = cpus();
    for (cpu, other) in all.iter().zip(all.iter().rev()) {
        for beside in [false, true] {
            let device = Device {
                name: None,
                cpus: vec![*cpu],
                threads: 1,
                pinned: true,
                oversubscribe: 1,
                beside,
            };
            let mut local = LocalDevices::new(vec![device], &command).unwrap();
            let [here, there] = [kernel_of(*cpu), kernel_of(*other)];
            let done = measure(&mut local, Policy::Serial, &[&here, &there]).outcomes;
            let Outcome::Timed { conditions: c, .. } = &done[0].outcome else {
                panic!("{:?}", done[0]);
            };
            assert_eq!((c.pinned, c.isolated), (true, !beside));
            let is_timed = matches!(done[1].outcome, Outcome::Timed { .. });
            assert_eq!(is_timed, cpu == other, "{:?}", done[1]);
        }
    }
}

#[test]
fn runners_are_none_that_cannot_be_started() {
    let device = Device {
        name: None,
        cpus: cpus(),
        threads: 1,
        pinned: true,
        oversubscribe: 2,
        beside: false,
    };
    let command = CommandLine {
        program: "/nonexistent/runner".into(),
        args: vec![],
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    let mut local = LocalDevices::new(vec![device], &command).unwrap();
    let a = good();
    for policy in Policy::ALL {
        let done = measure(&mut local, policy, &[&a; 5]);
        assert_eq!(done.outcomes.len(), 5);
        for m in &done.outcomes {
            assert_eq!(m.outcome.label(), "unanswered", "{m:?}");
        }
    }
}

#[test]
fn a_runner_has_limits_of_its_own_for_each_candidate() {
    let tells = kernel(
        "long pid;
        __asm__ volatile(\"syscall\" : \"=a\"(pid) : \"a\"(39L) : \"rcx\", \"r11\", \"memory\");
        compute(args); n[0] = pid - 1;",
    );
    let mut s = c_kernel::runner();
    let (t, mut p) = (task(1, good()), protocol());
    let limit = |line: &str, pid: u32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        line.split_whitespace().next().unwrap().parse().ok()
    };
    for (threads, seconds) in [(1, 5), (2, 5), (1, 9)] {
        (p.threads, p.limit_ns) = (threads, seconds * 1_000_000_000);
        // What is expected is -1.
        let told = s.measure(&t, &tells, &p, None, false).outcome;
        let Outcome::Wrong { difference, .. } = told else {
            panic!("{told:?}")
        };
        let pid = difference.max_abs as u32;
        let allowed = limit("Max cpu time", pid).expect("there is a limit");
        let least = u64::from(threads) * seconds;
        // What it used before, and what is less than a second, is little.
        assert!((least..least + 10).contains(&allowed), "{allowed} s");
        assert_eq!(limit("Max file size", pid), Some(0));
        assert_eq!(limit("Max core file size", pid), Some(0));
        assert_eq!(limit("Max address space", pid), Some(12 << 30));
    }
}

/// So many kernels of different code that all die on one CPU.
fn all_die_on(cpu: usize, count: u32) -> Vec<BuiltKernel> {
    let one = kernel(&format!(
        "unsigned here = 0; long status;
        __asm__ volatile(\"syscall\" : \"=a\"(status)
            : \"a\"(309L), \"D\"(&here), \"S\"(0L), \"d\"(0L) : \"rcx\", \"r11\", \"memory\");
        if (here == {cpu}) __builtin_trap();
        compute(args);
        spin(500000);
        kept[0] = 0x5eed0000;"
    ));
    let mark = 0x5eed_0000_u32.to_le_bytes();
    let at = one.code.windows(4).position(|w| w == mark);
    let at = at.expect("the constant is in the code");
    let other = |number: u32| {
        let mut other = one.clone();
        other.code[at..at + 4].copy_from_slice(&number.to_le_bytes());
        other
    };
    (1..=count).map(other).collect()
}

#[test]
fn what_dies_in_one_runner_alone_is_measured_by_others() {
    let cpus = cpus();
    let [bad, good_one, ..] = cpus[..] else {
        return skipped("this machine has one CPU, by which runners are told apart");
    };
    let device = Device {
        name: None,
        cpus: vec![bad, good_one],
        threads: 1,
        pinned: true,
        oversubscribe: 1,
        beside: false,
    };
    let command = CommandLine {
        program: env!("CARGO_BIN_EXE_measure-test-runner").into(),
        args: vec![],
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    let all = all_die_on(bad, 120);
    let kernels: Vec<&BuiltKernel> = all.iter().collect();
    for policy in [Policy::Naive, Policy::Doppler] {
        let mut local = LocalDevices::new(vec![device.clone()], &command).unwrap();
        for round in 0..2 {
            // Few the second time: what is left out comes back after 256.
            let kernels = &kernels[..[120, 30][round]];
            let done = measure(&mut local, policy, kernels);
            assert_eq!(done.outcomes.len(), kernels.len());
            // A first round of one candidate has nothing to be compared with.
            let first = usize::from(policy == Policy::Doppler && round == 0);
            for m in &done.outcomes[first..] {
                let Outcome::Timed { conditions, .. } = &m.outcome else {
                    panic!("{policy:?} {round}: {m:?}")
                };
                assert!(round == 0 || conditions.dp == 1, "it is left out");
            }
            let warnings = local.take_warnings();
            assert_eq!(warnings.len(), 1 - round, "{warnings:?}");
            assert!(warnings.iter().all(|w| w.contains("left out")));
        }
        let killer = kernel("__builtin_trap();");
        let done = measure(&mut local, policy, &[&killer; 3]);
        for m in &done.outcomes {
            assert_eq!(m.outcome.label(), "crashed-run", "its own fault");
        }
    }
}

#[test]
fn a_task_that_killed_one_runner_is_tried_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen");
    // Who comes first makes the folder, and dies.
    let oracle = kernel(&format!(
        "long status;
        __asm__ volatile(\"syscall\" : \"=a\"(status)
            : \"a\"(83L), \"D\"(\"{}\"), \"S\"(0777L) : \"rcx\", \"r11\", \"memory\");
        if (status == 0) __builtin_trap();
        compute(args);",
        path.display()
    ));
    let (task, protocol, a) = (task(1, oracle), protocol(), good());
    let measurer = Measurer {
        policy: Policy::Naive,
        constants: constants(LONG_S),
        naive_dp: 2,
        limit: Duration::from_secs_f64(LONG_S),
    };
    let batch = batch(&task, &[&a; 6], &protocol);
    let mut state = TaskState::new(&measurer.constants, 1);
    let done = measurer.measure(&mut local(1, 2), &batch, 6, &mut state, &mut |_| {});
    assert!(path.exists());
    for m in done.outcomes {
        assert_eq!(m.outcome.label(), "timed", "{m:?}");
    }
}

#[test]
fn a_task_whose_outputs_were_made_is_not_given_up_for_runners_that_die() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("die");
    let mut local = starting(1, 3, vec!["unless".into(), path.display().to_string()]);
    let done = measure(&mut local, Policy::Serial, &[&good()]);
    assert_eq!(done.outcomes[0].outcome.label(), "timed");
    // The two runners that were not asked yet die of whatever they are asked.
    std::fs::write(&path, "").unwrap();
    let a = kernel("compute(args); spin(2000000);");
    let done = measure(&mut local, Policy::Naive, &[&a; 9]);
    for m in done.outcomes {
        assert_eq!(m.outcome.label(), "timed", "{m:?}");
    }
    // Nor where the one that lives gets the data once more.
    std::fs::remove_file(&path).unwrap();
    let killer = kernel("__builtin_trap();");
    let done = measure(&mut local, Policy::Naive, &[&killer, &a]);
    let labels: Vec<&str> = done.outcomes.iter().map(|m| m.outcome.label()).collect();
    assert_eq!(labels, ["crashed-run", "timed"]);
}

#[test]
fn a_record_says_how_fast_the_cpu_was() {
    // Long enough for a new figure each, which a CPU of steady frequency makes equal.
    let a = kernel("compute(args); spin(2000000);");
    for policy in [Policy::Serial, Policy::Doppler, Policy::Naive] {
        let done = measure(&mut local(1, 1), policy, &[&a; 12]);
        let figure = |m: &Measured| {
            let Outcome::Timed { conditions, .. } = &m.outcome else {
                panic!("{m:?}")
            };
            let ns = conditions.reference_ns.expect("it was timed");
            (ns, conditions.drift.expect("since the first"))
        };
        let figures: Vec<(u64, f64)> = done.outcomes.iter().map(figure).collect();
        // Of the one runner; some 100,000 cycles, of 0.1 to 10 ns each.
        let (first, _) = figures[0];
        assert!((10_000..1_000_000).contains(&first), "{figures:?}");
        for (ns, drift) in &figures {
            let expected = *ns as f64 / first as f64 - 1.0;
            assert!((drift - expected).abs() < 1e-9, "{policy:?}: {figures:?}");
        }
    }
}

#[test]
fn devices_of_this_machine_keep_the_promises_of_all() {
    let (fast, slow) = (
        kernel("compute(args); spin(50000);"),
        kernel("compute(args); spin(500000);"),
    );
    let (crashes, hangs) = (kernel("__builtin_trap();"), kernel("for (;;) spin(1000);"));
    let (task, protocol) = (task(1, good()), protocol());
    let batch = batch(&task, &[&fast, &slow, &crashes, &hangs], &protocol);
    for (devices, runners) in [(1, 1), (1, 2), (2, 1)] {
        device_contract::check(&mut local(devices, runners), &batch);
    }
}

#[test]
fn a_batch_is_handed_over_to_another_thread_and_written_for_another_machine() {
    let (task, protocol, a) = (task(1, good()), protocol(), good());
    let sent = batch(&task, &[&a; 3], &protocol);
    let text = serde_json::to_string(&sent).unwrap();
    let read: KernelBatch = serde_json::from_str(&text).unwrap();
    assert_eq!(read, sent);
    let mut local = local(1, 1);
    let thread = std::thread::spawn(move || {
        let assignments = [0, 1, 2].map(|candidate| Assignment {
            candidate,
            device: 0,
        });
        let round = Round {
            dp: 1,
            limit: Duration::from_secs(20),
            each: Duration::from_secs(10),
            quiet: true,
            fresh: false,
            host_clock: false,
            retry: true,
            slower: None,
            measurer: Policy::Serial,
        };
        local.round(&read, &assignments, &round)
    });
    let outcomes = thread.join().unwrap();
    assert!(outcomes.iter().all(|m| m.outcome.label() == "timed"));
}
