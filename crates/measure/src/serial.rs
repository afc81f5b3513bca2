//! One runner process, asked one thing at a time.
//!
//! Owns the process and the turning of its answers and deaths into outcomes. Promises that only what a candidate did is held against it: the
//! task's own data has its own limit and its own error, and a candidate that
//! killed a runner which others had used is tried again in a new one. Several
//! runners at once are `local`'s.

use crate::expected::Shares;
use crate::loaded::rotated_bytes;
use crate::protocol::{
    Circumstances, Doing, Parts, Protocol, Reply, Report, Request, Spent, TaskData, TaskKey,
    Verdict,
};
use crate::ranks::Ranks;
use crate::reference::Reference;
use runtime::BuiltKernel;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Cache, Clock, Conditions, Difference, Extra, Outcome, Stage};
use thiserror::Error;
use worker::{CommandLine, Death, Limit, Limits, Pool, PoolError};

#[derive(Debug, Error)]
pub enum MeasureError {
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error("a task has no expected output, so none of its candidates can be checked: {reason}")]
    Oracle { reason: String },
    #[error(
        "no runner process can be started: {reason}; check the program's path and the limits on processes"
    )]
    NotStarted { reason: String },
}

/// A measured candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// `Unanswered` when the candidate had no chance: the task has no expected
    /// output, or there is no runner.
    pub outcome: Outcome,
    /// The candidate's requests, as the parent saw them: what it cost, dead or
    /// alive, also where it was tried again in another runner. Setting up its
    /// task is not in it.
    pub whole: Spent,
    /// Parts of `whole` that a runner told; nothing if it died.
    pub parts: Parts,
}

/// One runner process, replaced when it dies.
pub struct Serial {
    pool: Pool<Request, Reply>,
    next_id: u64,
    /// The task whose data this runner got last.
    known: Option<TaskKey>,
    /// Requests with kernels that this runner answered.
    used: u64,
    /// What the requests about the candidate at hand took.
    spent: Spent,
    /// What making data of tasks took since it was last asked.
    setting_up: Duration,
    /// Whether this runner is to be replaced before its next request.
    spoilt: bool,
    /// Its number among those it shares with.
    number: usize,
    /// Starts that failed since it last answered, and data of tasks that it
    /// alone died of.
    failed_starts: u32,
    /// Candidates in a row that it died of, and the code of the last.
    deaths: u32,
    last_dead: Option<u64>,
    /// What the reference kernel said of the CPU.
    reference: Option<Reference>,
    /// What runners learnt of tasks that others need not find out again.
    shares: Arc<Shares>,
    /// When all requests end.
    end: Option<Instant>,
}

/// What was true round a measurement, for its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Company<'a> {
    /// The policy that measured.
    pub measurer: &'a str,
    /// The device, where there are several.
    pub device: Option<&'a str>,
    /// Candidates measured at once on the device.
    pub dp: u32,
    /// Whether builders ran meanwhile.
    pub overlap: bool,
    /// Whether nothing else of the tuner used the device.
    pub isolated: bool,
}

impl<'a> Company<'a> {
    /// One candidate at a time.
    fn none(measurer: &'a str, overlap: bool) -> Company<'a> {
        Company {
            measurer,
            device: None,
            dp: 1,
            overlap,
            isolated: !overlap,
        }
    }
}

/// Address space of a runner: the data of its tasks and their rotated copies.
const ADDRESS_SPACE: u64 = 12 << 30;

/// Bytes of rotated constants that kernels of one ranking may have together.
const RANKED_BYTES: u64 = 2 << 30;

/// Longer than any limit, and short enough to be added to a point in time.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why a request about kernels has no reply.
enum Failure {
    /// The task has no data.
    Oracle(String),
    Died {
        death: Death,
        note: String,
    },
}

impl Serial {
    /// `command` must end up in `serve`.
    pub fn new(command: &CommandLine) -> Result<Serial, MeasureError> {
        Serial::sharing(command, Arc::default())
    }

    /// One of several that compute what a task expects once.
    pub(crate) fn sharing(
        command: &CommandLine,
        shares: Arc<Shares>,
    ) -> Result<Serial, MeasureError> {
        let limits = Limits {
            address_space: Some(ADDRESS_SPACE),
            writes_files: false,
        };
        Ok(Serial {
            pool: Pool::new(command, 1, limits)?,
            next_id: 0,
            known: None,
            used: 0,
            spent: Spent::default(),
            setting_up: Duration::ZERO,
            spoilt: false,
            number: shares.join(),
            failed_starts: 0,
            deaths: 0,
            last_dead: None,
            reference: None,
            shares,
            end: None,
        })
    }

    /// Fills the task's arguments and runs its oracle in the runner, unless that
    /// was done. `measure` and `rank` do it by themselves; called before, it
    /// tells a task that cannot be measured from candidates that fail.
    pub fn load_task(&mut self, task: &TaskData, protocol: &Protocol) -> Result<(), MeasureError> {
        self.set_up(task, protocol)
            .map_err(|failure| match failure {
                Failure::Oracle(reason) => MeasureError::Oracle { reason },
                Failure::Died { death, .. } => MeasureError::NotStarted {
                    reason: text_of(death),
                },
            })
    }

    /// Measures one candidate. `overlap`: builders run meanwhile.
    pub fn measure(
        &mut self,
        task: &TaskData,
        kernel: &BuiltKernel,
        protocol: &Protocol,
        best_ns: Option<u64>,
        overlap: bool,
    ) -> Measured {
        let company = Company::none("serial", overlap);
        self.measure_in(task, kernel, protocol, best_ns, company, true)
    }

    /// No request that begins from here on runs beyond `end`. Sampling ends before, with what
    /// there is; a candidate without a sample but its first run stays unanswered.
    pub fn end_by(&mut self, end: Option<Instant>) {
        self.end = end;
        self.pool.end_by(end);
    }

    fn until_end(&self) -> Duration {
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        self.end.map_or(Duration::MAX, left)
    }

    /// Has the next request answered by a process that has answered no other.
    pub(crate) fn renew(&mut self) {
        self.spoilt |= self.used > 0;
    }

    /// Time that making data of tasks took since this was last asked.
    pub(crate) fn take_setting_up(&mut self) -> Duration {
        std::mem::take(&mut self.setting_up)
    }

    /// Whether the process, if it still lives, has the data of a task.
    pub(crate) fn knows(&self, task: &TaskData) -> bool {
        self.known == Some(task.key()) && !self.spoilt
    }

    /// How often in a row no process could be started that was fit to measure.
    pub(crate) fn failed_starts(&self) -> u32 {
        self.failed_starts
    }

    /// How many different candidates in a row ended their process.
    pub(crate) fn deaths(&self) -> u32 {
        self.deaths
    }

    /// Learns from a candidate whether this runner is one that candidates die in.
    fn note_death(&mut self, kernel: &BuiltKernel, result: &Result<Reply, Failure>) {
        match result {
            Ok(_) => (self.deaths, self.last_dead) = (0, None),
            Err(Failure::Died { death, .. }) if !says_nothing(death) => {
                let code = Some(kernel.code_hash());
                self.deaths += u32::from(self.last_dead != code);
                self.last_dead = code;
            }
            Err(_) => {}
        }
    }

    /// Measures one candidate in this company. `retry`: a candidate that ends a
    /// runner which others had used is tried again, within the same limit.
    pub(crate) fn measure_in(
        &mut self,
        task: &TaskData,
        kernel: &BuiltKernel,
        protocol: &Protocol,
        best_ns: Option<u64>,
        company: Company<'_>,
        retry: bool,
    ) -> Measured {
        let wall = Duration::from_nanos(protocol.limit_ns);
        self.spent = Spent::default();
        let by_wall = protocol.by_wall();
        let cut = self.until_end() < wall;
        let due = Reference::is_due(self.reference, by_wall);
        let cycle_ns = self.shares.cycle_ns();
        let request = |left: Duration| Request::Measure {
            task: task.key(),
            kernel: kernel.clone(),
            protocol: Protocol {
                limit_ns: left.as_nanos() as u64,
                ..protocol.clone()
            },
            best_ns,
            reference: due,
            cycle_ns,
        };
        let result = self.on_task(task, protocol, wall, retry, request);
        self.note_death(kernel, &result);
        let (outcome, parts) = match result {
            Ok(Reply::Measured(Report { verdict, parts })) => {
                self.spoilt |= matches!(verdict, Verdict::Damaged(_));
                if let Verdict::Timed { at, .. } = &verdict {
                    if let Some(ns) = at.reference_ns {
                        self.reference = Some(Reference::after(self.reference, ns, by_wall));
                    }
                    at.cycle_ns.inspect(|ns| self.shares.set_cycle_ns(*ns));
                }
                let first_only = matches!(&verdict, Verdict::Timed { at, .. } if at.first_only);
                let outcome = match cut && first_only {
                    // With more time there would be better samples.
                    true => death_outcome(Death::Withdrawn, Stage::Run),
                    false => outcome(verdict, protocol, company, self.reference),
                };
                (outcome, parts)
            }
            Ok(_) => unreachable!("a runner answers a measurement with one"),
            Err(failure) => (failure_outcome(failure).0, Parts::default()),
        };
        Measured {
            outcome,
            whole: self.spent,
            parts,
        }
    }

    /// Samples kernels in turns, so that a disturbance hits all alike: for the
    /// isolated ranking of finalists. One outcome a kernel, in their order; the
    /// timed ones have one sample for each of the same `rounds`, or of fewer
    /// where the limit, `limit_ns` for each kernel, ends them. What a request
    /// took beside its kernels' parts is shared evenly. Kernels whose constants would fill
    /// the memory take turns with some of the others only.
    pub fn rank(
        &mut self,
        task: &TaskData,
        kernels: &[&BuiltKernel],
        protocol: &Protocol,
        rounds: u32,
    ) -> Vec<Measured> {
        let mut all = Vec::new();
        while all.len() < kernels.len() {
            let rest = &kernels[all.len()..];
            let mut bytes = 0u64;
            let fits = |k: &&&BuiltKernel| {
                bytes = bytes.saturating_add(rotated_bytes(k, protocol.rotate_bytes));
                bytes <= RANKED_BYTES
            };
            let together = rest.iter().take_while(fits).count().max(1);
            all.extend(self.rank_together(task, &rest[..together], protocol, rounds));
        }
        all
    }

    fn rank_together(
        &mut self,
        task: &TaskData,
        kernels: &[&BuiltKernel],
        protocol: &Protocol,
        rounds: u32,
    ) -> Vec<Measured> {
        let mut ranks = Ranks::new(kernels.len());
        loop {
            let left = ranks.left();
            if left.is_empty() {
                return ranks.measured();
            }
            let wall = Duration::from_nanos(protocol.limit_ns).saturating_mul(left.len() as u32);
            let request = |wall: Duration| Request::Rank {
                task: task.key(),
                kernels: left.iter().map(|i| kernels[*i].clone()).collect(),
                protocol: Protocol {
                    limit_ns: wall.as_nanos() as u64 / left.len() as u64,
                    ..protocol.clone()
                },
                rounds,
            };
            self.spent = Spent::default();
            let answer = self.on_task(task, protocol, wall.min(LONGEST), true, request);
            let alone = match answer {
                Ok(Reply::Ranked(reports)) => {
                    let damaged = |r: &Report| matches!(r.verdict, Verdict::Damaged(_));
                    self.spoilt |= reports.iter().any(damaged);
                    let company = Company::none("rank", false);
                    let judged = reports
                        .into_iter()
                        .map(|r| (outcome(r.verdict, protocol, company, None), r.parts));
                    ranks.settle(&left, judged.collect(), self.spent)
                }
                Ok(_) => unreachable!("a runner answers a ranking with one"),
                Err(failure) => ranks.fail(&left, failure_outcome(failure), self.spent),
            };
            for i in alone {
                ranks.replace(i, self.measure(task, kernels[i], protocol, None, false));
            }
        }
    }

    /// Asks a runner that has the task's data. All tries together take no longer
    /// than `wall`, making that data left out; `request` is told what is left.
    fn on_task(
        &mut self,
        task: &TaskData,
        protocol: &Protocol,
        wall: Duration,
        retry: bool,
        request: impl Fn(Duration) -> Request,
    ) -> Result<Reply, Failure> {
        let before_ns = self.spent.wall_ns;
        let mut first = None;
        // Enough for a runner that was replaced or is short of memory, and for
        // a second try after a death.
        for _ in 0..4 {
            self.set_up(task, protocol)?;
            let used = self.used > 0;
            let taken = Duration::from_nanos(self.spent.wall_ns - before_ns);
            let left = wall.saturating_sub(taken);
            let within = left.min(self.until_end());
            if left.is_zero()
                && let Some(first) = first
            {
                return Err(first);
            }
            let limit = Limit::of_threads(left, protocol.threads);
            match self.ask(request(within), limit) {
                Ok(Reply::NoData) => self.known = None,
                Ok(reply) => {
                    self.used += 1;
                    return Ok(reply);
                }
                Err(failure) if used && retry && may_be_inherited(&failure) => {
                    first = Some(failure);
                }
                // What was left did not suffice to say more than the first try.
                Err(failure) => {
                    return Err(first.filter(|_| timed_out(&failure)).unwrap_or(failure));
                }
            }
        }
        Err(Failure::Oracle("runners keep losing it".into()))
    }

    /// Has the task's data in the runner.
    fn set_up(&mut self, task: &TaskData, protocol: &Protocol) -> Result<(), Failure> {
        let began = Instant::now();
        let done = self.make_data(task, protocol);
        self.setting_up += began.elapsed();
        done
    }

    fn make_data(&mut self, task: &TaskData, protocol: &Protocol) -> Result<(), Failure> {
        let key = task.key();
        if self.known == Some(key) && !self.spoilt {
            return Ok(());
        }
        // The oracle runs on one thread.
        let limit = Limit::of_threads(Duration::from_nanos(protocol.setup_limit_ns), 1);
        let share = self.shares.of(task);
        let (place, mut unmade) = share.as_ref().map(|s| s.place()).unzip();
        if let Some(reason) = self.shares.broken(key) {
            return Err(Failure::Oracle(reason));
        }
        let mut used = self.used > 0;
        let known = share.is_some() && unmade.is_none();
        let reason = loop {
            match self.ask(Request::Data(task.clone(), place.clone()), limit) {
                Ok(Reply::Data(Ok(published))) => {
                    if let (Some(Some(made)), Some(share), true) = (&mut unmade, &share, published)
                    {
                        **made = share.seal();
                    }
                    self.known = Some(key);
                    return Ok(());
                }
                Ok(Reply::Data(Err(reason))) => break reason,
                Ok(_) => unreachable!("a runner answers a task's data with its state"),
                Err(failure) if used && may_be_inherited(&failure) => used = false,
                Err(Failure::Died { death, note }) => {
                    if says_nothing(&death) {
                        return Err(Failure::Died { death, note });
                    }
                    let reason = text_of(death);
                    if !known && self.shares.killed(key, self.number, &reason) {
                        return Err(Failure::Oracle(reason));
                    }
                    // Others have it, or are yet to try.
                    self.failed_starts += 1;
                    let reason = format!("it dies of a task's data: {reason}");
                    let death = Death::NotStarted { reason };
                    return Err(Failure::Died { death, note });
                }
                Err(failure) => return Err(failure),
            }
        };
        self.shares.set_broken(key, &reason);
        Err(Failure::Oracle(reason))
    }

    /// One request and its answer.
    fn ask(&mut self, request: Request, limit: Limit) -> Result<Reply, Failure> {
        let id = self.next_id;
        self.next_id += 1;
        let of_candidates = !matches!(request, Request::Data(..));
        if std::mem::take(&mut self.spoilt) {
            self.pool.submit_fresh(id, request, limit);
        } else {
            self.pool.submit(id, request, limit);
        }
        // The pool answers every request by its limit, and a little more.
        let answer = loop {
            if let Some(a) = self.pool.next(limit.wall + Duration::from_secs(10)) {
                break a;
            }
        };
        assert_eq!(answer.id, id, "one request at a time");
        match answer.result {
            Err(Death::NotStarted { .. }) => self.failed_starts += 1,
            Err(_) => {}
            Ok(_) => self.failed_starts = 0,
        }
        if of_candidates {
            self.spent += Spent {
                wall_ns: answer.wall.as_nanos() as u64,
                cpu_ns: answer.cpu.as_nanos() as u64,
            };
        }
        if answer.earlier == 0 || answer.result.is_err() {
            (self.known, self.used) = (None, 0);
        }
        answer.result.map_err(|death| Failure::Died {
            death,
            note: answer.note,
        })
    }
}

/// Whether an earlier kernel may be to blame for a death. A time-out is not
/// tried again: it costs most, and is the least likely to be inherited.
fn may_be_inherited(failure: &Failure) -> bool {
    let Failure::Died { death, .. } = failure else {
        return false;
    };
    matches!(death, Death::Crashed { .. } | Death::OutOfMemory { .. })
}

fn timed_out(failure: &Failure) -> bool {
    let Failure::Died { death, .. } = failure else {
        return false;
    };
    matches!(death, Death::TimedOut { .. })
}

/// Whether a death says nothing of what was asked.
fn says_nothing(death: &Death) -> bool {
    matches!(death, Death::NotStarted { .. } | Death::Withdrawn)
}

fn text_of(death: Death) -> String {
    match death {
        Death::Withdrawn => "the time for it was over".into(),
        Death::TimedOut { limit } => format!("it ran past its limit of {limit:?}"),
        Death::NotStarted { reason } => reason,
        Death::OutOfMemory { stderr, .. } => format!("it ran out of memory; {stderr}"),
        Death::Crashed {
            signal: Some(s),
            stderr,
            ..
        } => format!("it died of signal {s}; {stderr}"),
        Death::Crashed { code, stderr, .. } => {
            format!("it ended with code {}; {stderr}", code.unwrap_or_default())
        }
    }
}

/// What a failure means for the kernel that met it, and which one that was.
fn failure_outcome(failure: Failure) -> (Outcome, Option<usize>) {
    match failure {
        Failure::Oracle(reason) => (
            Outcome::Unanswered {
                reason: format!("no expected output: {reason}"),
            },
            None,
        ),
        Failure::Died { death, .. } if says_nothing(&death) => {
            (death_outcome(death, Stage::Run), None)
        }
        Failure::Died { death, note } => {
            let told = Doing::read(&note);
            let stage = match told {
                Some((Doing::Load | Doing::Prepare, _)) => Stage::Load,
                Some((Doing::Check, _)) => Stage::Check,
                _ => Stage::Run,
            };
            let mut outcome = death_outcome(death, stage);
            if let (Outcome::Crashed { stderr, .. }, Some((Doing::Prepare, _))) =
                (&mut outcome, told)
            {
                stderr.insert_str(0, "while preparing constants\n");
            }
            (outcome, told.map(|(_, kernel)| kernel))
        }
    }
}

/// The outcome of a candidate whose worker died in `stage`; a worker that could not be
/// started, or had no time left, says nothing of the candidate, which stays unanswered.
pub fn death_outcome(death: Death, stage: Stage) -> Outcome {
    match death {
        Death::Crashed {
            signal,
            code,
            stderr,
        } => {
            let stderr = match code {
                Some(c) => format!("exit code {c}\n{stderr}"),
                None => stderr,
            };
            Outcome::Crashed {
                stage,
                signal,
                stderr,
            }
        }
        Death::OutOfMemory { .. } => Outcome::OutOfMemory { stage },
        Death::TimedOut { limit } => Outcome::TimedOut {
            stage,
            limit_ms: limit.as_millis() as u64,
        },
        Death::NotStarted { reason } => Outcome::Unanswered {
            reason: format!("no {}: {reason}", worker_of(stage)),
        },
        Death::Withdrawn => Outcome::Unanswered {
            reason: text_of(death),
        },
    }
}

/// Which kind of worker a stage is carried out by.
fn worker_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Build => "builder",
        Stage::Load | Stage::Run | Stage::Check => "runner",
    }
}

fn conditions(
    at: &Circumstances,
    protocol: &Protocol,
    company: Company<'_>,
    reference: Option<Reference>,
) -> Conditions {
    Conditions {
        pinned: at.pinned,
        overlap: company.overlap,
        isolated: company.isolated,
        cache: match at.rotated {
            false => Cache::Warm,
            true if protocol.rotate_bytes <= protocol.llc_bytes => Cache::CachedConstants,
            true => Cache::RotatedConstants,
        },
        const_copies: at.copies,
        repeats: u32::try_from(at.calls).unwrap_or(u32::MAX),
        measurer: Some(company.measurer.into()),
        device: company.device.map(Into::into),
        latency_ns: at.span.device_ns.checked_div(at.span.launches),
        span_ns: Some(at.span.host_ns),
        launches: Some(at.span.launches),
        reference_ns: reference.map(|r| r.last_ns()),
        drift: reference.map(|r| r.drift()),
        rel_l2: Some(at.rel_l2),
        ..Conditions::unproven(protocol.threads, company.dp)
    }
}

fn outcome(
    verdict: Verdict,
    protocol: &Protocol,
    company: Company<'_>,
    reference: Option<Reference>,
) -> Outcome {
    let crashed = |stage, stderr| Outcome::Crashed {
        stage,
        signal: None,
        stderr,
    };
    match verdict {
        Verdict::Timed { samples_ns, at } => Outcome::Timed {
            samples_ns,
            clock: match at.cycle_ns {
                Some(_) => Clock::CycleCounter,
                None if protocol.by_wall() => Clock::HostMonotonic,
                None => Clock::ThreadCpu,
            },
            conditions: conditions(&at, protocol, company, reference),
        },
        Verdict::Wrong(g) => Outcome::Wrong {
            text: format!(
                "output {} differs{}: relative error {:.2e}, element {}",
                g.output,
                if g.later {
                    " in a later run, though not in the first"
                } else {
                    ""
                },
                g.rel_l2,
                g.worst
            ),
            difference: Difference {
                rel_l2: g.rel_l2,
                max_over_rms: g.max_over_rms,
                max_abs: g.max_abs,
                worst: g.worst,
                non_finite: g.non_finite,
                tolerance: Some(protocol.tolerance),
                extra: Extra::new(),
            },
        },
        Verdict::Refused(text) => crashed(Stage::Load, text),
        Verdict::Failed(text) | Verdict::Damaged(text) => crashed(Stage::Run, text),
        Verdict::OutOfMemory(_) => Outcome::OutOfMemory { stage: Stage::Load },
    }
}
