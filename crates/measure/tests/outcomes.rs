//! What becomes of candidates that do what they should not: each has its own
//! typed outcome, and the measurer goes on.

#![cfg(target_arch = "x86_64")]

mod c_kernel;

use c_kernel::{
    from_source, good, impatient, kernel, param, preparing, protocol, runner, sleeper, task,
};
use measure::{MeasureError, Measured, Protocol, RunnerProcess, Spent, TaskData, death_outcome};
use runtime::{BuiltKernel, CodeFormat, ParamRole};
use store::{Cache, Clock, Conditions, Difference, Outcome, Stage};
use tensor::DType;
use testkit::host::undisturbed;

/// Measures a candidate, and then a good one.
fn outcome(s: &mut RunnerProcess, t: &TaskData, k: &BuiltKernel, p: &Protocol) -> Outcome {
    let outcome = s.measure(t, k, p, None, false).outcome;
    let next = s.measure(t, &good(), &protocol(), None, false);
    assert!(is_timed(&next), "after {outcome:?}: {next:?}");
    outcome
}

fn outcome_of(k: &BuiltKernel) -> Outcome {
    outcome(&mut runner(), &task(1, good()), k, &protocol())
}

fn is_timed(measured: &Measured) -> bool {
    matches!(measured.outcome, Outcome::Timed { .. })
}

fn timed(measured: Measured) -> (Vec<u64>, Conditions) {
    match measured.outcome {
        Outcome::Timed {
            samples_ns,
            clock: Clock::ThreadCpu | Clock::CycleCounter | Clock::HostMonotonic,
            conditions,
        } => (samples_ns, conditions),
        other => panic!("{other:?}"),
    }
}

/// Each part took time, of the CPUs no more than its threads had and some where
/// the kernel ran, and the parts lie within the whole.
fn assert_parts_within_whole(m: &Measured, threads: u64) {
    let parts = [m.parts.load, m.parts.check, m.parts.run];
    for s in parts.iter().chain([&m.whole]) {
        assert!(s.wall_ns > 0, "{m:?}");
        // The system may not yet have counted what another thread is at.
        let uncounted = (threads - 1) * 20_000_000;
        assert!(s.cpu_ns <= s.wall_ns * threads + uncounted, "{m:?}");
    }
    for s in [&m.parts.check, &m.parts.run, &m.whole] {
        assert!(s.cpu_ns > 0, "{m:?}");
    }
    assert!(parts.iter().map(|s| s.wall_ns).sum::<u64>() <= m.whole.wall_ns);
    assert!(parts.iter().map(|s| s.cpu_ns).sum::<u64>() <= m.whole.cpu_ns);
}

#[test]
fn what_a_candidate_cost_is_known_however_it_ended() {
    let (mut s, t) = (runner(), task(1, good()));
    // Long enough that none of it is within a clock's step.
    let busy = "compute(args); spin(2000000);";
    let p = protocol();
    let fine = s.measure(&t, &kernel(busy), &p, None, false);
    assert_parts_within_whole(&fine, 1);

    let wrong = s.measure(&t, &kernel(&format!("{busy} y[3] = 7;")), &p, None, false);
    assert!(matches!(wrong.outcome, Outcome::Wrong { .. }), "{wrong:?}");
    assert!(wrong.parts.check.cpu_ns > 0 && wrong.parts.run == Spent::default());

    let mut p2 = protocol();
    p2.threads = 2;
    assert_parts_within_whole(&s.measure(&t, &kernel(busy), &p2, None, false), 2);

    let dead = format!("{busy} *(volatile int *)0 = 1;");
    let dead = s.measure(&t, &kernel(&dead), &p, None, false);
    crash(dead.outcome, Stage::Run, Some(11));
    assert_eq!(dead.parts, measure::PartTimes::default());
    assert!(dead.whole.cpu_ns > 0 && dead.whole.wall_ns > 0);
}

fn wrong(outcome: Outcome) -> (Difference, String) {
    match outcome {
        Outcome::Wrong { difference, text } => (difference, text),
        other => panic!("{other:?}"),
    }
}

/// The text of a crash at `stage` by `signal`.
fn crash(outcome: Outcome, stage: Stage, signal: Option<i32>) -> String {
    match outcome {
        Outcome::Crashed {
            stage: at,
            signal: by,
            stderr,
        } if (at, by) == (stage, signal) => stderr,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_right_kernel_is_timed_under_the_conditions_it_says() {
    let (mut s, t) = (runner(), task(1, good()));
    // Samples that one disturbed call does not fill.
    let p = Protocol {
        min_sample_ns: 1_000_000,
        ..protocol()
    };
    let (samples, c) = timed(s.measure(&t, &good(), &p, None, false));
    assert!(samples.len() >= p.min_samples as usize && samples.len() <= p.max_samples as usize);
    assert!(samples.iter().all(|ns| *ns > 0));
    assert_eq!(
        (c.threads, c.dp, c.pinned, c.isolated, c.overlap),
        (1, 1, false, true, false)
    );
    assert_eq!(
        (c.cache, c.const_copies, c.measurer.as_deref()),
        (Cache::Warm, 1, Some("serial"))
    );
    assert!(
        c.repeats > 1,
        "a short kernel is called several times a sample"
    );

    let (_, c) = timed(s.measure(&t, &good(), &p, None, true));
    assert_eq!((c.isolated, c.overlap), (false, true));
}

#[test]
fn threads_are_pinned_where_that_is_possible() {
    let (mut s, t) = (runner(), task(1, good()));
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..1024).find(|cpu| allowed.is_set(*cpu)).unwrap();
    let absent = (0..1024).rev().find(|cpu| !allowed.is_set(*cpu)).unwrap();
    // Fails unless every piece of a loop runs as one of two workers.
    let parallel = from_source(
        "static int part(const Ctx *ctx, void *env, long begin, long end, int worker) {
            void *const *args = env;
            const float *x = args[0], *w = args[1];
            float *y = args[3];
            for (long i = begin; i < end; i++) y[i] = x[i] * w[i] + 1;
            return worker < 0 || worker > 1;
        }
        int kernel(const Ctx *ctx, void *const *args, void *workspace) {
            compute(args);
            for (int i = 0; i < FLOATS; i++) ((float *)args[3])[i] = 0;
            int failure = ctx->parallel_for(ctx, part, (void *)args, FLOATS);
            return failure ? failure : ctx->threads != 2;
        }",
    );
    for (pin, pinned) in [(vec![cpu], true), (vec![], false), (vec![absent], false)] {
        let p = Protocol { pin, ..protocol() };
        assert_eq!(
            timed(s.measure(&t, &good(), &p, None, false)).1.pinned,
            pinned,
            "{:?}",
            p.pin
        );
    }
    for (pin, pinned) in [
        (vec![cpu; 2], true),
        (vec![cpu], false),
        (vec![cpu, absent], false),
    ] {
        let p = Protocol {
            threads: 2,
            pin,
            ..protocol()
        };
        let (_, c) = timed(s.measure(&t, &parallel, &p, None, false));
        assert_eq!((c.threads, c.pinned), (2, pinned), "{:?}", p.pin);
    }
}

#[test]
fn a_clearly_slow_kernel_has_few_samples() {
    let (mut s, t) = (runner(), task(1, good()));
    let slow = kernel("compute(args); spin(200000);");
    let p = Protocol {
        rotate_bytes: 10_000,
        ..protocol()
    };
    let (samples, c) = timed(s.measure(&t, &slow, &p, Some(1_000), false));
    assert!(samples.len() < p.min_samples as usize, "{samples:?}");
    assert_eq!(
        (c.cache, c.const_copies),
        (Cache::Warm, 1),
        "not worth copies"
    );
    let (samples, c) = timed(s.measure(&t, &slow, &p, None, false));
    assert!(samples.len() >= p.min_samples as usize, "{samples:?}");
    assert_eq!((c.cache, c.const_copies), (Cache::RotatedConstants, 10));
    let p = Protocol {
        llc_bytes: 10_000,
        ..p
    };
    let (_, c) = timed(s.measure(&t, &slow, &p, None, false));
    assert_eq!((c.cache, c.const_copies), (Cache::CachedConstants, 10));
}

#[test]
fn sampling_ends_before_the_limit_does() {
    let (mut s, t) = (runner(), task(1, good()));
    let long = kernel("compute(args); spin(10000000);");
    // Far more samples are asked for than the limit has room for.
    let p = Protocol {
        limit_ns: 4_000_000_000,
        min_samples: 10_000,
        max_samples: 10_000,
        ..protocol()
    };
    let measure = || s.measure(&t, &long, &p, None, false);
    let (samples, _) = timed(undisturbed(measure, is_timed));
    assert!(
        samples.len() < 10_000,
        "the kernel is too short for this test: {}",
        samples[0]
    );
}

#[test]
fn wrong_values_are_found_in_floats_and_in_integers() {
    let (d, text) = wrong(outcome_of(&kernel("compute(args); y[77] += 3;")));
    assert_eq!((d.worst, d.non_finite), (77, 0));
    assert!(
        (d.max_abs - 3.0).abs() < 1e-5 && text.contains("output y"),
        "{text}"
    );
    // Integers are equal or wrong: one in fifteen is within any tolerance here.
    let p = Protocol {
        tolerance: 0.5,
        ..protocol()
    };
    let off = kernel("compute(args); n[4]++;");
    let (d, text) = wrong(outcome(&mut runner(), &task(1, good()), &off, &p));
    assert_eq!((d.worst, d.max_abs), (4, 1.0));
    assert!(text.contains("output n"), "{text}");
    let nearly = kernel("compute(args); y[77] *= 1.000001f;");
    assert!(matches!(outcome_of(&nearly), Outcome::Timed { .. }));
}

#[test]
fn what_is_never_written_or_only_added_to_is_found() {
    let skips = kernel("float was = y[9]; compute(args); y[9] = was;");
    assert_eq!(wrong(outcome_of(&skips)).0.non_finite, 1);
    // All bits set, the first poison, is what is expected here.
    let skips = kernel("int was = n[9]; compute(args); n[9] = was;");
    let (d, text) = wrong(outcome_of(&skips));
    assert_eq!(d.worst, 9);
    assert!(text.contains("later run"), "{text}");
    let adds = kernel("float was = y[9]; compute(args); y[9] += was;");
    assert_eq!(wrong(outcome_of(&adds)).0.non_finite, 1);
}

#[test]
fn a_kernel_that_is_right_only_the_first_time_is_wrong() {
    // Right in a workspace of zeroes only.
    let (_, text) = wrong(outcome_of(&kernel("compute(args); if (kept[1]) y[5] = 0;")));
    assert!(
        !text.contains("later run"),
        "the workspace is not zero: {text}"
    );
    let (_, text) = wrong(outcome_of(&kernel(
        "compute(args); if (*kept != -1) y[5] = 0;",
    )));
    assert!(text.contains("later run"), "{text}");
    // What lies past the poison stays from run to run.
    let mut far = kernel("compute(args); kept += 9 << 20; if (*kept == 7) y[5] = 0; *kept = 7;");
    far.workspace_bytes = 80 << 20;
    assert!(wrong(outcome_of(&far)).1.contains("later run"));
}

#[test]
fn faults_are_crashes_of_the_run_with_their_signal() {
    crash(
        outcome_of(&kernel("*(volatile int *)8 = 1;")),
        Stage::Run,
        Some(libc::SIGSEGV),
    );
    crash(
        outcome_of(&kernel("__builtin_trap();")),
        Stage::Run,
        Some(libc::SIGILL),
    );
    let divides = kernel("n[0] = n[1] / (ctx->threads - 1);");
    crash(outcome_of(&divides), Stage::Run, Some(libc::SIGFPE));
    // What the kernel may only read.
    for argument in 0..3 {
        let writes = kernel(&format!("compute(args); *(int *)args[{argument}] = 0;"));
        crash(outcome_of(&writes), Stage::Run, Some(libc::SIGSEGV));
    }
    let far = kernel("compute(args); ((volatile char *)y)[1024 + 4095] = 1;");
    crash(outcome_of(&far), Stage::Run, Some(libc::SIGSEGV));
}

#[test]
fn a_write_one_byte_outside_is_named() {
    let past = crash(
        outcome_of(&kernel("compute(args); ((char *)n)[60] = 1;")),
        Stage::Run,
        None,
    );
    assert!(
        past.contains("n: ") && past.contains("1 bytes past the end"),
        "{past}"
    );
    let before = crash(
        outcome_of(&kernel("compute(args); ((char *)y)[-1] = 1;")),
        Stage::Run,
        None,
    );
    assert!(
        before.contains("y: ") && before.contains("before the start"),
        "{before}"
    );
    let mut scratch = kernel("compute(args); ((char *)workspace)[-1] = 1;");
    scratch.workspace_bytes = 4096;
    let scratch = crash(outcome_of(&scratch), Stage::Run, None);
    assert!(scratch.contains("workspace: "), "{scratch}");
}

#[test]
fn a_failure_code_is_a_crash_with_a_text() {
    let text = crash(outcome_of(&kernel("return 5;")), Stage::Run, None);
    assert!(text.contains("code 5"), "{text}");
    let text = crash(outcome_of(&kernel("return 1;")), Stage::Run, None);
    assert!(text.contains("index"), "{text}");
    // In a later call only.
    let later = kernel("compute(args); if (*kept == 7) return 6; *kept = 7;");
    let text = crash(outcome_of(&later), Stage::Run, None);
    assert!(text.contains("code 6"), "{text}");
}

#[test]
fn what_never_ends_is_timed_out_where_it_was() {
    let (mut s, t) = (runner(), task(1, good()));
    let running = kernel("for (;;) spin(1000);");
    let loading = preparing("for (;;) spin(1000);");
    for (for_ever, stage) in [(running, Stage::Run), (loading, Stage::Load)] {
        let expected = Outcome::TimedOut {
            stage,
            limit_ms: 500,
        };
        let measure = || outcome(&mut s, &t, &for_ever, &impatient());
        undisturbed(measure, |found| *found == expected);
    }
}

#[test]
fn what_cannot_be_loaded_says_why() {
    let undefined = from_source(
        "void launch_missiles(void);
        int kernel(const Ctx *ctx, void *const *args, void *workspace) {
            launch_missiles();
            return 0;
        }",
    );
    let text = crash(outcome_of(&undefined), Stage::Load, None);
    assert!(text.contains("launch_missiles"), "{text}");

    let mut garbage = good();
    garbage.code.truncate(100);
    let text = crash(outcome_of(&garbage), Stage::Load, None);
    assert!(text.contains("damaged"), "{text}");
    let mut nameless = good();
    nameless.entry = "another".into();
    assert!(crash(outcome_of(&nameless), Stage::Load, None).contains("another"));

    let mut foreign = good();
    foreign.target.features = "+sse2,+warp-drive".into();
    assert!(crash(outcome_of(&foreign), Stage::Load, None).contains("warp-drive"));
    let mut foreign = good();
    foreign.target.triple = "riscv64-unknown-linux-gnu".into();
    assert!(crash(outcome_of(&foreign), Stage::Load, None).contains("riscv64"));
    let mut foreign = good();
    foreign.format = CodeFormat::Ptx;
    assert!(crash(outcome_of(&foreign), Stage::Load, None).contains("GPU"));
}

#[test]
fn parameters_that_do_not_fit_the_task_are_refused_by_name() {
    let refusal = |change: &dyn Fn(&mut BuiltKernel)| {
        let mut k = good();
        change(&mut k);
        crash(outcome_of(&k), Stage::Load, None)
    };
    let text = refusal(&|k| k.params[0].name = "weights".into());
    assert!(text.contains("`weights`"), "{text}");
    let text = refusal(&|k| k.params[1].shape = vec![255]);
    assert!(text.contains("`w`") && text.contains("1024"), "{text}");
    let text = refusal(&|k| k.params[3].shape = vec![16, 16]);
    assert!(text.contains("`y`"), "{text}");
    let text = refusal(&|k| k.params[3].name = "z".into());
    assert!(text.contains("`z`"), "{text}");
    let text = refusal(&|k| k.params[4].role = ParamRole::Input);
    assert!(text.contains("`n`"), "{text}");
    let text = refusal(&|k| {
        k.params.pop();
    });
    assert!(text.contains("`n`"), "{text}");
    let text = refusal(&|k| k.params[1].role = ParamRole::Prepared);
    assert!(text.contains("`w`"), "{text}");
    let text = refusal(&|k| k.params[2].shape = vec![-1]);
    assert!(text.contains("`k`"), "{text}");
}

#[test]
fn more_memory_than_there_is_is_typed() {
    for bytes in [1 << 42, u64::MAX] {
        let mut hungry = good();
        hungry.workspace_bytes = bytes;
        assert_eq!(
            outcome_of(&hungry),
            Outcome::OutOfMemory { stage: Stage::Load }
        );
    }
    let mut hungry = preparing("");
    hungry.prepare_workspace_bytes = 1 << 42;
    assert_eq!(
        outcome_of(&hungry),
        Outcome::OutOfMemory { stage: Stage::Load }
    );
}

#[test]
fn constants_are_prepared_and_failures_of_that_are_the_loads() {
    assert!(matches!(outcome_of(&preparing("")), Outcome::Timed { .. }));
    let mut apart = preparing("");
    apart.prepare_code = Some(apart.code.clone());
    apart.code = from_source(&apart_source()).code;
    assert!(
        matches!(outcome_of(&apart), Outcome::Timed { .. }),
        "an object of its own"
    );

    let text = crash(
        outcome_of(&preparing("__builtin_trap();")),
        Stage::Load,
        Some(libc::SIGILL),
    );
    assert!(text.contains("preparing constants"), "{text}");
    let text = crash(outcome_of(&preparing("return 3;")), Stage::Load, None);
    assert!(
        text.contains("preparing constants") && text.contains("code 3"),
        "{text}"
    );
    let text = crash(
        outcome_of(&preparing("((char *)packed)[-1] = 1;")),
        Stage::Run,
        None,
    );
    assert!(text.contains("preparing constants"), "{text}");
    assert!(wrong(outcome_of(&preparing("packed[40] = 0;"))).0.max_abs > 0.0);
}

#[test]
fn what_an_equal_prepare_entry_made_is_used_again() {
    let (mut s, t) = (runner(), task(1, good()));
    let hashed = |hash: u64, body: &str| BuiltKernel {
        prepare_hash: hash,
        ..preparing(body)
    };
    let timed = |o: Outcome| matches!(o, Outcome::Timed { .. });
    let mut measure = |k: &BuiltKernel| s.measure(&t, k, &protocol(), None, false).outcome;
    // The second would spoil what it makes, if it ran.
    let spoils = "packed[0] = 77;";
    assert!(timed(measure(&hashed(5, ""))));
    assert!(timed(measure(&hashed(5, spoils))));
    assert!(!timed(measure(&hashed(6, spoils))));
    // No hash says nothing.
    assert!(timed(measure(&hashed(0, ""))));
    assert!(!timed(measure(&hashed(0, spoils))));
}

/// The kernel of [`preparing`] without its prepare entry.
fn apart_source() -> String {
    "int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *x = args[0], *packed = args[1];
        compute(args);
        for (int i = 0; i < FLOATS; i++)
            ((float *)args[3])[i] = x[i] * (packed[2 * i] - 1) + 1;
        return 0;
    }"
    .into()
}

#[test]
fn constants_rotate_in_every_call() {
    let (mut s, t) = (runner(), task(1, good()));
    // Fails when it gets the constants where it got them last time.
    let watchful = |mut k: BuiltKernel| {
        k.workspace_bytes = 64 + (80 << 20);
        k
    };
    let moved = "kept += 9 << 20; if (*kept == (long)args[1]) return 9; *kept = (long)args[1];";
    let still = watchful(kernel(&format!("compute(args); {moved}")));
    crash(
        s.measure(&t, &still, &protocol(), None, false).outcome,
        Stage::Run,
        None,
    );
    let p = Protocol {
        rotate_bytes: 10_000,
        ..protocol()
    };
    let (_, c) = timed(s.measure(&t, &still, &p, None, false));
    assert_eq!((c.cache, c.const_copies), (Cache::RotatedConstants, 10));

    // Constants that a kernel prepares rotate as well.
    let mut packs = watchful(preparing(""));
    packs.code = compile_moving(moved);
    let (_, c) = timed(s.measure(&t, &packs, &p, None, false));
    assert_eq!((c.cache, c.const_copies), (Cache::RotatedConstants, 5));
    // Too small to fill the caches in as many copies as are sensible.
    let p = Protocol {
        rotate_bytes: 1 << 30,
        ..protocol()
    };
    let (_, c) = timed(s.measure(&t, &still, &p, None, false));
    assert_eq!((c.cache, c.const_copies), (Cache::Warm, 64));
}

fn compile_moving(moved: &str) -> Vec<u8> {
    let source = apart_source().replace(
        "compute(args);",
        &format!("compute(args); long *kept = workspace; {moved}"),
    );
    c_kernel::compile(&format!(
        "{source}
        int prepare(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *w = args[0];
            float *packed = args[1];
            for (int i = 0; i < FLOATS; i++) packed[2 * i] = packed[2 * i + 1] = w[i] + 1;
            return 0;
        }}"
    ))
}

#[test]
fn nobody_pays_for_what_an_earlier_kernel_did() {
    let (mut s, t) = (runner(), task(1, good()));
    // Computes the right thing, and breaks the context that the next one gets.
    let saboteur = kernel("compute(args); ((Ctx *)ctx)->parallel_for = (void *)8;");
    let parallel = from_source(
        "static int all(const Ctx *ctx, void *env, long begin, long end, int worker) {
            compute(env);
            return 0;
        }
        int kernel(const Ctx *ctx, void *const *args, void *workspace) {
            return ctx->parallel_for(ctx, all, (void *)args, 1);
        }",
    );
    timed(s.measure(&t, &saboteur, &protocol(), None, false));
    timed(s.measure(&t, &parallel, &protocol(), None, false));
}

#[test]
fn a_second_try_has_what_the_first_left_of_the_limit() {
    let (mut s, t) = (runner(), task(1, good()));
    let p = Protocol {
        limit_ns: 4_000_000_000,
        ..protocol()
    };
    let measure = || {
        // In a used runner it is tried twice.
        timed(s.measure(&t, &good(), &protocol(), None, false));
        s.measure(&t, &sleeper(3), &p, None, false)
    };
    let twice = undisturbed(measure, |twice| {
        (3_600_000_000..5_900_000_000).contains(&twice.whole.wall_ns)
            && twice.outcome.label() == "crashed-run"
    });
    crash(twice.outcome, Stage::Run, Some(4));
}

#[test]
fn a_worker_that_cannot_be_started_says_nothing_of_the_candidate() {
    for stage in [Stage::Build, Stage::Load, Stage::Run, Stage::Check] {
        let reason = "no more processes".to_string();
        let outcome = death_outcome(worker::Death::NotStarted { reason }, stage);
        assert!(!outcome.settled(), "{outcome:?}");
        assert!(format!("{outcome:?}").contains("no more processes"));
    }
}

#[test]
fn what_something_else_ended_says_nothing_of_the_candidate() {
    for signal in worker::OUTSIDE_SIGNALS {
        let death = worker::Death::Crashed {
            signal: Some(signal),
            code: None,
            stderr: String::new(),
        };
        assert!(death.from_outside());
        let outcome = death_outcome(death, Stage::Run);
        assert!(!outcome.settled() && !outcome.ran(), "{outcome:?}");
    }
}

#[test]
fn two_seeds_of_a_task_are_two_sets_of_data() {
    let (mut s, t) = (runner(), task(1, good()));
    let zero = kernel("compute(args); for (int i = 0; i < FLOATS; i++) y[i] = 0;");
    let p = protocol();
    let of = |seed| TaskData { seed, ..t.clone() };
    let mut gap = |seed| wrong(s.measure(&of(seed), &zero, &p, None, false).outcome).0;
    let (one, two) = (gap(1), gap(2));
    assert_ne!(one.max_abs, two.max_abs);
    for _ in 0..2 {
        assert_eq!((gap(1), gap(2)), (one.clone(), two.clone()));
    }
    // More than a runner keeps.
    (3..12).for_each(|seed| drop(gap(seed)));
    assert_eq!(gap(1), one);
    timed(s.measure(&of(99), &good(), &p, None, false));
}

#[test]
fn an_oracle_has_its_own_limit_and_its_failures_are_the_tasks() {
    let mut s = runner();
    // Another task each time, whose outputs are not there yet.
    let mut seeds = 11..;
    let slow = || {
        let seed = seeds.next().expect("there are more");
        let slow = task(seed, kernel("compute(args); spin(1000000000);"));
        s.measure(&slow, &good(), &impatient(), None, false)
    };
    undisturbed(slow, is_timed);

    let oracle_error = |s: &mut RunnerProcess, t: &TaskData, p: &Protocol| {
        let outcome = s.measure(t, &good(), p, None, false).outcome;
        let Outcome::Unanswered { reason: why } = outcome else {
            panic!("{outcome:?}")
        };
        match s.load_task(t, p) {
            Err(MeasureError::Oracle { reason }) => assert!(why.contains(&reason), "{why}"),
            other => panic!("{other:?}"),
        }
        why
    };
    let hasty = Protocol {
        setup_limit_ns: 150_000_000,
        ..protocol()
    };
    let text = oracle_error(&mut s, &task(2, kernel("for (;;) spin(1000);")), &hasty);
    assert!(text.contains("150ms"), "{text}");
    let text = oracle_error(&mut s, &task(3, kernel("*(int *)8 = 1;")), &protocol());
    assert!(text.contains("signal 11"), "{text}");
    let text = oracle_error(&mut s, &task(4, kernel("return 8;")), &protocol());
    assert!(text.contains("code 8"), "{text}");
    let mut empty = task(5, good());
    empty.args[0].hi = empty.args[0].lo;
    assert!(oracle_error(&mut s, &empty, &protocol()).contains("`x`"));

    let t = task(1, good());
    s.load_task(&t, &protocol()).unwrap();
    timed(s.measure(&t, &good(), &protocol(), None, false));
}

#[test]
fn a_missing_runner_blames_no_candidate() {
    let command = worker::CommandLine {
        program: "/nonexistent/runner".into(),
        args: vec![],
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    let mut s = RunnerProcess::new(&command).unwrap();
    let t = task(1, good());
    let outcome = s.measure(&t, &good(), &protocol(), None, false).outcome;
    assert!(matches!(outcome, Outcome::Unanswered { .. }), "{outcome:?}");
    assert!(matches!(
        s.load_task(&t, &protocol()),
        Err(MeasureError::NotStarted { .. })
    ));
    let ranked = s.rank(&t, &[&good(), &good()], &protocol(), 3);
    assert!(
        ranked
            .iter()
            .all(|m| matches!(m.outcome, Outcome::Unanswered { .. }))
            && ranked.len() == 2
    );
}

#[test]
fn other_element_types_are_checked_too() {
    let mut s = runner();
    let typed = |dtype: DType, body: &str| {
        let mut k = from_source(&format!(
            "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
                {body}
                return 0;
            }}"
        ));
        k.params = vec![
            param("x", dtype, ParamRole::Input, 33),
            param("y", dtype, ParamRole::Output, 33),
        ];
        k
    };
    for (seed, (dtype, ty)) in [
        (DType::F64, "double"),
        (DType::I8, "signed char"),
        (DType::I64, "long"),
        (DType::Bool, "unsigned char"),
    ]
    .into_iter()
    .enumerate()
    {
        let copy =
            format!("for (int i = 0; i < 33; i++) (({ty} *)args[1])[i] = (({ty} *)args[0])[i];");
        let mut t = task(seed as u64, typed(dtype, &copy));
        t.args = vec![measure::ArgFill {
            name: "x".into(),
            dtype,
            shape: vec![33],
            lo: 0.0,
            hi: 2.0,
        }];
        timed(s.measure(&t, &t.oracle, &protocol(), None, false));
        let skip = copy.replace("i < 33", "i < 32");
        wrong(
            s.measure(&t, &typed(dtype, &skip), &protocol(), None, false)
                .outcome,
        );
    }
}

#[test]
fn a_ranking_samples_all_alike_and_loses_none_to_another() {
    let (mut s, t) = (runner(), task(1, good()));
    let (fast, slow) = (good(), kernel("compute(args); spin(3000);"));
    let all =
        |kernels: &[&BuiltKernel], s: &mut RunnerProcess, p: &Protocol| s.rank(&t, kernels, p, 12);
    let outcomes = all(&[&slow, &fast, &slow], &mut s, &protocol());
    let samples: Vec<usize> = outcomes
        .iter()
        .map(|m| match &m.outcome {
            Outcome::Timed {
                samples_ns,
                conditions,
                ..
            } => {
                assert!(m.whole.wall_ns > 0, "it has its share");
                assert_eq!(conditions.measurer.as_deref(), Some("rank"));
                assert!(conditions.isolated);
                samples_ns.len()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(samples, [12; 3]);

    let faults = [
        kernel("*(volatile int *)8 = 1;"),
        kernel("return 5;"),
        preparing("__builtin_trap();"),
        kernel("compute(args); y[7]++;"),
        kernel("compute(args); ((char *)n)[60] = 1;"),
        // A fault that shows in a later run only.
        kernel("compute(args); if (*kept != -1) *(volatile int *)8 = 1; *kept = 7;"),
    ];
    let mut kernels = vec![&fast];
    for fault in &faults {
        kernels.extend([fault, &slow]);
    }
    let labels: Vec<&str> = all(&kernels, &mut s, &protocol())
        .iter()
        .map(|m| m.outcome.label())
        .collect();
    let expected = [
        "timed",
        "crashed-run",
        "timed",
        "crashed-run",
        "timed",
        "crashed-load",
        "timed",
        "wrong",
        "timed",
        "crashed-run",
        "timed",
        "crashed-run",
        "timed",
    ];
    assert_eq!(labels, expected);

    let for_ever = kernel("for (;;) spin(1000);");
    let ranked = || all(&[&fast, &for_ever, &fast], &mut s, &impatient());
    undisturbed(ranked, |outcomes| {
        let labels = outcomes.iter().map(|m| m.outcome.label());
        labels.eq(["timed", "timed-out-run", "timed"])
    });
    assert!(all(&[], &mut s, &protocol()).is_empty());
    timed(s.measure(&t, &fast, &protocol(), None, false));
}
