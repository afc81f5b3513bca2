//! One runner process, asked one thing at a time.
//!
//! Owns the process and the turning of its answers and deaths into outcomes. Promises that only what a candidate did is held against it: the
//! task's own data has its own limit and its own error, and a candidate that
//! killed a runner which others had used is tried again in a new one. Several
//! runners at once are `local`'s.

use crate::expected::Shares;
use crate::protocol::{
    Circumstances, Doing, Parts, Protocol, Reply, Report, Request, Spent, TaskData, TaskKey,
    Verdict,
};
use crate::reference::Reference;
use runtime::BuiltKernel;
use std::sync::Arc;
use std::time::Duration;
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
#[derive(Debug)]
pub struct Measured {
    /// `Skipped` when the candidate had no chance: the task has no expected
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
            spoilt: false,
            number: shares.join(),
            failed_starts: 0,
            deaths: 0,
            last_dead: None,
            reference: None,
            shares,
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
        self.measure_in(task, kernel, protocol, best_ns, company)
    }

    /// Has the next request answered by a process that has answered no other.
    pub(crate) fn renew(&mut self) {
        self.spoilt |= self.used > 0;
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
            Err(Failure::Died { death, .. }) if !matches!(death, Death::NotStarted { .. }) => {
                let code = Some(kernel.code_hash());
                self.deaths += u32::from(self.last_dead != code);
                self.last_dead = code;
            }
            Err(_) => {}
        }
    }

    /// Measures one candidate in this company.
    pub(crate) fn measure_in(
        &mut self,
        task: &TaskData,
        kernel: &BuiltKernel,
        protocol: &Protocol,
        best_ns: Option<u64>,
        company: Company<'_>,
    ) -> Measured {
        let wall = Duration::from_nanos(protocol.limit_ns);
        let limit = Limit::of_threads(wall, protocol.threads);
        self.spent = Spent::default();
        let by_wall = protocol.by_wall();
        let due = Reference::is_due(self.reference, by_wall);
        let cycle_ns = self.shares.cycle_ns();
        let request = || Request::Measure {
            task: task.key(),
            kernel: kernel.clone(),
            protocol: protocol.clone(),
            best_ns,
            reference: due,
            cycle_ns,
        };
        let result = self.on_task(task, protocol, limit, request);
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
                (outcome(verdict, protocol, company, self.reference), parts)
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

    /// Measures a finalist on data from another seed than it was tuned on, to
    /// the end and with nothing else running.
    pub fn measure_again(
        &mut self,
        task: &TaskData,
        seed: u64,
        kernel: &BuiltKernel,
        protocol: &Protocol,
    ) -> Measured {
        self.measure(
            &TaskData {
                seed,
                ..task.clone()
            },
            kernel,
            protocol,
            None,
            false,
        )
    }

    /// Samples kernels in turns, so that a disturbance hits all alike: for the
    /// isolated ranking of finalists. One outcome a kernel, in their order; the
    /// timed ones have one sample for each of the same `rounds`, or of fewer
    /// where the limit, `limit_ns` for each kernel, ends them.
    pub fn rank(
        &mut self,
        task: &TaskData,
        kernels: &[&BuiltKernel],
        protocol: &Protocol,
        rounds: u32,
    ) -> Vec<Outcome> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; kernels.len()];
        loop {
            let left: Vec<usize> = (0..kernels.len())
                .filter(|i| outcomes[*i].is_none())
                .collect();
            if left.is_empty() {
                return outcomes.into_iter().flatten().collect();
            }
            let wall = Duration::from_nanos(protocol.limit_ns).saturating_mul(left.len() as u32);
            let limit = Limit::of_threads(wall.min(LONGEST), protocol.threads);
            let request = || Request::Rank {
                task: task.key(),
                kernels: left.iter().map(|i| kernels[*i].clone()).collect(),
                protocol: protocol.clone(),
                rounds,
            };
            match self.on_task(task, protocol, limit, request) {
                Ok(Reply::Ranked(verdicts)) => {
                    for (i, verdict) in left.iter().zip(verdicts) {
                        self.spoilt |= matches!(verdict, Verdict::Damaged(_));
                        let company = Company::none("rank", false);
                        outcomes[*i] = Some(outcome(verdict, protocol, company, None));
                    }
                }
                Ok(_) => unreachable!("a runner answers a ranking with one"),
                Err(failure) => {
                    let whole = matches!(
                        &failure,
                        Failure::Oracle(_)
                            | Failure::Died {
                                death: Death::NotStarted { .. },
                                ..
                            }
                    );
                    match failure_outcome(failure) {
                        (outcome, _) if whole => {
                            left.iter()
                                .for_each(|i| outcomes[*i] = Some(outcome.clone()));
                        }
                        (outcome, Some(at)) if at < left.len() => {
                            outcomes[left[at]] = Some(outcome)
                        }
                        // It did not say whose fault it was: each for itself.
                        _ => {
                            for i in left {
                                let alone = self.measure(task, kernels[i], protocol, None, false);
                                outcomes[i] = Some(alone.outcome);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Asks a runner that has the task's data.
    fn on_task(
        &mut self,
        task: &TaskData,
        protocol: &Protocol,
        limit: Limit,
        request: impl Fn() -> Request,
    ) -> Result<Reply, Failure> {
        // Enough for a runner that was replaced or is short of memory, and for
        // a second try after a death.
        for _ in 0..4 {
            self.set_up(task, protocol)?;
            let used = self.used > 0;
            match self.ask(request(), limit) {
                Ok(Reply::NoData) => self.known = None,
                Ok(reply) => {
                    self.used += 1;
                    return Ok(reply);
                }
                Err(failure) if used && may_be_inherited(&failure) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Oracle("runners keep losing it".into()))
    }

    fn set_up(&mut self, task: &TaskData, protocol: &Protocol) -> Result<(), Failure> {
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
                    if matches!(death, Death::NotStarted { .. }) {
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

fn text_of(death: Death) -> String {
    match death {
        Death::TimedOut { limit } => format!("it ran past its limit of {limit:?}"),
        Death::NotStarted { reason } => reason,
        Death::OutOfMemory { stderr } => format!("it ran out of memory; {stderr}"),
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
            Outcome::Skipped {
                filter: format!("no expected output: {reason}"),
            },
            None,
        ),
        Failure::Died {
            death: Death::NotStarted { reason },
            ..
        } => (
            Outcome::Skipped {
                filter: format!("no runner: {reason}"),
            },
            None,
        ),
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

/// The outcome of a worker that died in `stage`.
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
        Death::NotStarted { reason } => Outcome::Crashed {
            stage,
            signal: None,
            stderr: reason,
        },
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
        Verdict::Timed { samples_ns, at } => {
            let Circumstances {
                calls,
                copies,
                rotated,
                pinned,
                cycle_ns,
                rel_l2,
                span,
                ..
            } = at;
            Outcome::Timed {
                samples_ns,
                clock: match cycle_ns {
                    Some(_) => Clock::CycleCounter,
                    None if protocol.by_wall() => Clock::HostMonotonic,
                    None => Clock::ThreadCpu,
                },
                conditions: Conditions {
                    pinned,
                    overlap: company.overlap,
                    isolated: company.isolated,
                    cache: if rotated {
                        Cache::RotatedConstants
                    } else {
                        Cache::Warm
                    },
                    const_copies: copies,
                    repeats: u32::try_from(calls).unwrap_or(u32::MAX),
                    measurer: Some(company.measurer.into()),
                    device: company.device.map(Into::into),
                    latency_ns: span.device_ns.checked_div(span.launches),
                    span_ns: Some(span.host_ns),
                    launches: Some(span.launches),
                    reference_ns: reference.map(|r| r.last_ns()),
                    drift: reference.map(|r| r.drift()),
                    rel_l2: Some(rel_l2),
                    ..Conditions::unproven(protocol.threads, company.dp)
                },
            }
        }
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
                extra: Extra::new(),
            },
        },
        Verdict::Refused(text) => crashed(Stage::Load, text),
        Verdict::Failed(text) | Verdict::Damaged(text) => crashed(Stage::Run, text),
        Verdict::OutOfMemory(_) => Outcome::OutOfMemory { stage: Stage::Load },
    }
}
