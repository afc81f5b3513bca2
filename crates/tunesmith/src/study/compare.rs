//! Policies compared on the same candidates of a task, on this machine.
//!
//! Owns which candidates those are, and what each policy took, found and got
//! wrong. Candidates are built before any is measured, so that nothing runs
//! beside the policies. Finals of all policies are measured together, in turns,
//! by the serial runner.

use crate::compile::{Builders, fallbacks};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::tune::{Settings, fills};
use build::Built;
use graph::plan::Task;
use ir::Target;
use measure::{
    Batch, Dispatch, Done, Measured, Policy, Protocol, RoundReport, TaskData, TaskState,
};
use runtime::BuiltKernel;
use search::Accuracy;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;
use std::time::{Duration, Instant};
use store::Outcome;

/// What is compared, and how often.
#[derive(Clone, Debug)]
pub struct Options {
    pub policies: Vec<Policy>,
    pub candidates: usize,
    pub repetitions: usize,
    pub seed: u64,
    pub accuracy: Accuracy,
    pub tolerance: f64,
    pub limit: Duration,
    /// Its policy is replaced by each of `policies`.
    pub measure: Settings,
}

/// What one policy did with the candidates of a task.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub task: String,
    pub policy: Policy,
    pub repetition: usize,
    pub candidates: usize,
    /// Outcomes other than a time, by kind.
    pub failures: BTreeMap<String, usize>,
    /// Of measuring all candidates.
    pub wall_s: f64,
    /// Sums over candidates; what runs side by side counts each for itself.
    pub load_s: f64,
    pub check_s: f64,
    pub run_s: f64,
    /// Wall time of what was measured again, and how many that were.
    pub alone_s: f64,
    pub sampled: usize,
    pub recovered: usize,
    pub mean_dp: Option<f64>,
    /// Of its rounds that know it, the mean error.
    pub delta: Option<f64>,
    /// Of its rounds that can tell, what is left of the errors of candidates that
    /// took no part in correcting them: by one factor a round, and by one each.
    pub left_uniform: Option<f64>,
    pub left_per_candidate: Option<f64>,
    /// Mean relative difference of its figures to those of `serial` in the same
    /// repetition; for `serial` to those of the repetition before.
    pub error: Option<f64>,
    /// The best by its figures, measured together with the others' bests.
    pub best_ns: Option<u64>,
    /// Change of `wall_s` against `serial`'s and `serial-spawn`'s, in per cent.
    pub against_serial: Option<f64>,
    pub against_serial_spawn: Option<f64>,
    /// Share of what two things allow that it saved of `serial`'s time: as many
    /// candidates at once as fit, and the share that it measured again.
    pub of_bound: Option<f64>,
    /// What DOPpler did, round by round.
    pub rounds: Vec<RoundReport>,
}

/// A task with built candidates.
struct Field {
    data: TaskData,
    built: Vec<Built>,
}

/// Candidates drawn at random, the same for equal seeds; what cannot be built,
/// or is the code of another, is left out.
fn field(task: &Task, target: &Target, o: &Options, builders: &mut Builders) -> Result<Field> {
    let plain = fallbacks(from_ref(task), target)?;
    let oracle = builders.build_all(from_ref(task), &plain)?.remove(0);
    let space = search::space(&task.program, target, o.accuracy);
    let mut strategy = search::strategy("random", o.seed).expect("there is a random strategy");
    let text = ir::text::print(&task.program);
    let (mut built, mut seen) = (Vec::new(), BTreeSet::new());
    // Enough where most of what is drawn is a candidate of its own.
    let mut left = 4 * o.candidates;
    while built.len() < o.candidates && left > 0 {
        let points = strategy.ask(&space, left.min(o.candidates - built.len()));
        if points.is_empty() {
            break;
        }
        left -= points.len();
        let mut some: BTreeMap<u64, Option<Built>> = BTreeMap::new();
        for p in points {
            if let Ok(c) = space.candidate(&task.program, &p) {
                let request = builders.request(&text, &c, false);
                some.insert(builders.submit(request), None);
            }
        }
        while let Some(outcome) = builders.pool.next(2 * builders.limit) {
            if let Ok(Ok(b)) = outcome.result {
                some.insert(outcome.id, Some(b));
            }
        }
        let new = |b: &Built| seen.insert(b.kernel.code_hash());
        built.extend(some.into_values().flatten().filter(new));
    }
    if built.is_empty() {
        return Err(Error::new(format!(
            "no candidate of {} can be built",
            task.title()
        )));
    }
    Ok(Field {
        data: TaskData {
            id: 0,
            seed: o.seed,
            args: fills(&task.program),
            oracle: oracle.kernel,
        },
        built,
    })
}

/// The figures of a policy, one a candidate.
type Figures = Vec<Option<u64>>;

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0u32, 0.0), |(n, sum), v| (n + 1, sum + v));
    (n > 0).then(|| sum / f64::from(n))
}

fn difference(of: &[Option<u64>], to: &[Option<u64>]) -> Option<f64> {
    let both = of.iter().zip(to).filter_map(|(a, b)| a.zip(*b));
    mean(both.map(|(a, b)| (a as f64 - b as f64).abs() / b.max(1) as f64))
}

fn best_of(figures: &[Option<u64>]) -> Option<usize> {
    let timed = (0..figures.len()).filter(|i| figures[*i].is_some());
    timed.min_by_key(|i| (figures[*i], *i))
}

/// Some candidates as a measurer gets them, with nothing to beat.
fn batch<'a>(
    field: &'a Field,
    kernels: &'a [&'a BuiltKernel],
    protocol: &'a Protocol,
) -> Batch<'a> {
    Batch {
        task: &field.data,
        kernels,
        protocol,
        best_ns: None,
        overlap: false,
    }
}

/// Measures all candidates by one policy.
fn measure(
    field: &Field,
    policy: Policy,
    protocol: &Protocol,
    (machine, target, o): (&Machine, &Target, &Options),
) -> Result<(Done, f64, u32)> {
    let settings = Settings {
        policy,
        ..o.measure.clone()
    };
    let mut local = settings.open(machine, target)?;
    let measurer = settings.measurer(o.limit);
    let mut state = TaskState::new(&measurer.constants, o.seed);
    let kernels: Vec<&BuiltKernel> = field.built.iter().map(|b| &b.kernel).collect();
    let mut done = Done::default();
    // Starting runners is what a run does once.
    local.prepare(&batch(field, &kernels, protocol));
    let begin = Instant::now();
    for some in kernels.chunks(settings.batch()) {
        let of = batch(field, some, protocol);
        let more = measurer.measure(&mut local, &of, some.len(), &mut state, &mut |_| {});
        done.outcomes.extend(more.outcomes);
        done.rounds.extend(more.rounds);
    }
    let at_once = local.capacity() * local.devices() as u32;
    Ok((done, begin.elapsed().as_secs_f64(), at_once))
}

fn row(task: &Task, policy: Policy, repetition: usize, done: &Done, wall_s: f64) -> Row {
    let seconds = |of: fn(&Measured) -> u64| {
        let all: u64 = done.outcomes.iter().map(of).sum();
        all as f64 / 1e9
    };
    let mut failures = BTreeMap::new();
    let failed = |o: &&Outcome| o.median_ns().is_none();
    for o in done.outcomes.iter().map(|m| &m.outcome).filter(failed) {
        *failures.entry(o.label().to_string()).or_default() += 1;
    }
    let rounds = &done.rounds;
    let known = rounds.iter().flat_map(|r| &r.delta).flatten();
    let left = || rounds.iter().filter_map(|r| r.left);
    Row {
        task: task.title(),
        policy,
        repetition,
        candidates: done.outcomes.len(),
        failures,
        wall_s,
        load_s: seconds(|m| m.parts.load.wall_ns),
        check_s: seconds(|m| m.parts.check.wall_ns),
        run_s: seconds(|m| m.parts.run.wall_ns),
        alone_s: rounds.iter().map(|r| r.alone_ns).sum::<u64>() as f64 / 1e9,
        sampled: rounds.iter().map(|r| r.sampled).sum(),
        recovered: rounds.iter().map(|r| r.recovered).sum(),
        mean_dp: mean(rounds.iter().map(|r| f64::from(r.dp))),
        delta: mean(known.copied()),
        left_uniform: mean(left().map(|l| l.uniform)),
        left_per_candidate: mean(left().map(|l| l.per_candidate)),
        error: None,
        best_ns: None,
        against_serial: None,
        against_serial_spawn: None,
        of_bound: None,
        rounds: rounds.clone(),
    }
}

/// Compares the policies on one task.
///
/// # Errors
/// If nothing of the task can be built, or no runner be set up.
pub fn compare(
    task: &Task,
    machine: &Machine,
    target: &Target,
    builders: &mut Builders,
    o: &Options,
) -> Result<Vec<Row>> {
    let field = field(task, target, o, builders)?;
    let mut protocol = Protocol::new(target.threads, target.llc_bytes);
    protocol.tolerance = o.tolerance;
    protocol.lose = o.measure.lose;
    protocol.limit_ns = o.limit.as_nanos() as u64;
    let mut rows: Vec<Row> = Vec::new();
    let mut bests: Vec<Option<usize>> = Vec::new();
    let mut serial_before: Option<Figures> = None;
    for repetition in 0..o.repetitions {
        let first = rows.len();
        let mut figures: Vec<Figures> = Vec::new();
        let mut at_once = 1;
        // Another policy begins each time: what drifts hits all alike.
        for i in 0..o.policies.len() {
            let policy = o.policies[(i + repetition) % o.policies.len()];
            let with = (machine, target, o);
            let (done, wall_s, n) = measure(&field, policy, &protocol, with)?;
            at_once = n;
            rows.push(row(task, policy, repetition, &done, wall_s));
            let own = done.outcomes.iter().map(|m| m.outcome.median_ns());
            figures.push(own.collect());
        }
        bests.extend(figures.iter().map(|f| best_of(f)));
        let new = &mut rows[first..];
        let position = |p: Policy| new.iter().position(|r| r.policy == p);
        let serial = position(Policy::Serial);
        let wall = |p: Policy| position(p).map(|i| new[i].wall_s);
        let walls = (wall(Policy::Serial), wall(Policy::SerialSpawn));
        for (r, own) in new.iter_mut().zip(&figures) {
            let to = match r.policy {
                Policy::Serial => serial_before.as_ref(),
                _ => serial.map(|i| &figures[i]),
            };
            r.error = to.and_then(|to| difference(own, to));
            relate(r, walls, at_once);
        }
        serial_before = serial.map(|i| figures[i].clone());
    }
    rank(&field, &protocol, (machine, target, o), &bests, &mut rows)?;
    Ok(rows)
}

/// Fills in how a row's time is to the baselines'.
fn relate(r: &mut Row, (serial, spawn): (Option<f64>, Option<f64>), at_once: u32) {
    let change = |base: f64| 100.0 * (r.wall_s / base - 1.0);
    r.against_serial = serial.map(change);
    r.against_serial_spawn = spawn.map(change);
    if let (Policy::Doppler, Some(serial)) = (r.policy, serial) {
        let again = (r.sampled + r.recovered) as f64 / r.candidates.max(1) as f64;
        let possible = serial * (1.0 - 1.0 / f64::from(at_once) - again);
        r.of_bound = (possible > 0.0).then(|| (serial - r.wall_s) / possible);
    }
}

/// Rounds of the last ranking.
const ROUNDS: u32 = 15;

/// Measures the bests of all policies in turns, and tells each row its own.
fn rank(
    field: &Field,
    protocol: &Protocol,
    (machine, target, o): (&Machine, &Target, &Options),
    bests: &[Option<usize>],
    rows: &mut [Row],
) -> Result<()> {
    let different: BTreeSet<usize> = bests.iter().flatten().copied().collect();
    let different: Vec<usize> = different.into_iter().collect();
    let kernels: Vec<&BuiltKernel> = different.iter().map(|i| &field.built[*i].kernel).collect();
    let settings = Settings {
        policy: Policy::Serial,
        ..o.measure.clone()
    };
    let mut local = settings.open(machine, target)?;
    let (serial, cpus) = local.alone().expect("there is a device");
    let protocol = Protocol {
        pin: cpus.to_vec(),
        ..protocol.clone()
    };
    let outcomes = serial.rank(&field.data, &kernels, &protocol, ROUNDS);
    for (r, best) in rows.iter_mut().zip(bests) {
        let at = best.and_then(|b| different.iter().position(|d| *d == b));
        r.best_ns = at.and_then(|i| outcomes[i].median_ns());
    }
    Ok(())
}
