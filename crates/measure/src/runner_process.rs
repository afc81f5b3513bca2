//! One runner process, asked one thing at a time.
//!
//! Owns the process, as its parent sees it. Promises that only what a candidate did is
//! held against it: the task's own data has its own limit and its own error, and a
//! candidate that killed a runner which others had used is tried again in a new one.
//! What answers and deaths mean is left to `outcome`, several runners at once to `local`.

use crate::dispatch::RANKING;
use crate::expected::SharedFindings;
use crate::loaded::rotated_bytes;
use crate::measured::Measured;
use crate::outcome::{
    Circumstances, Failure, death_outcome, failure_outcome, may_be_inherited, outcome,
    says_nothing, text_of, timed_out,
};
use crate::policy::Policy;
use crate::protocol::{
    KernelReport, PartTimes, Protocol, Reply, Request, Spent, TaskData, TaskKey, Verdict,
};
use crate::ranks::RankOutcomes;
use crate::reference::Reference;
use runtime::BuiltKernel;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Stage;
use thiserror::Error;
use worker::{ChildLimits, CommandLine, Death, Pool, PoolError, TimeLimit};

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

/// One runner process, replaced when it dies.
pub struct RunnerProcess {
    pool: Pool<Request, Reply>,
    next_id: u64,
    /// The task whose data this runner got last.
    loaded_task: Option<TaskKey>,
    /// Requests with kernels that this runner answered.
    used: u64,
    /// What the requests about the candidate at hand took.
    spent: Spent,
    /// What making data of tasks took since it was last asked.
    setup_time: Duration,
    /// Whether this runner is to be replaced before its next request.
    replace_next: bool,
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
    findings: Arc<SharedFindings>,
    /// When all requests end.
    end: Option<Instant>,
}

/// Address space of a runner: the data of its tasks and their rotated copies.
const ADDRESS_SPACE: u64 = 12 << 30;

/// Bytes of rotated constants that kernels of one ranking may have together.
const RANKED_BYTES: u64 = 2 << 30;

/// Longer than any limit, and short enough to be added to a point in time.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl RunnerProcess {
    /// `command` must end up in `serve`.
    pub fn new(command: &CommandLine) -> Result<RunnerProcess, MeasureError> {
        RunnerProcess::sharing(command, Arc::default())
    }

    /// One of several that compute what a task expects once.
    pub(crate) fn sharing(
        command: &CommandLine,
        findings: Arc<SharedFindings>,
    ) -> Result<RunnerProcess, MeasureError> {
        let limits = ChildLimits {
            address_space: Some(ADDRESS_SPACE),
            writes_files: false,
        };
        Ok(RunnerProcess {
            pool: Pool::new(command, 1, limits)?,
            next_id: 0,
            loaded_task: None,
            used: 0,
            spent: Spent::default(),
            setup_time: Duration::ZERO,
            replace_next: false,
            number: findings.join(),
            failed_starts: 0,
            deaths: 0,
            last_dead: None,
            reference: None,
            findings,
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
        let circumstances = Circumstances::alone(Policy::Serial.name(), overlap);
        self.measure_in(task, kernel, protocol, best_ns, circumstances, true)
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
        self.replace_next |= self.used > 0;
    }

    /// Time that making data of tasks took since this was last asked.
    pub(crate) fn take_setup_time(&mut self) -> Duration {
        std::mem::take(&mut self.setup_time)
    }

    /// Whether the process, if it still lives, has the data of a task.
    pub(crate) fn holds(&self, task: &TaskData) -> bool {
        self.loaded_task == Some(task.key()) && !self.replace_next
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

    /// Measures one candidate in these circumstances. `retry`: a candidate that ends a
    /// runner which others had used is tried again, within the same limit.
    pub(crate) fn measure_in(
        &mut self,
        task: &TaskData,
        kernel: &BuiltKernel,
        protocol: &Protocol,
        best_ns: Option<u64>,
        circumstances: Circumstances<'_>,
        retry: bool,
    ) -> Measured {
        let wall = Duration::from_nanos(protocol.limit_ns);
        self.spent = Spent::default();
        let by_wall = protocol.by_wall();
        let cut = self.until_end() < wall;
        let due = Reference::is_due(self.reference, by_wall);
        let cycle_ns = self.findings.cycle_ns();
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
            Ok(Reply::Measured(KernelReport { verdict, parts })) => {
                self.replace_next |= matches!(verdict, Verdict::Damaged(_));
                if let Verdict::Timed { at, .. } = &verdict {
                    if let Some(ns) = at.reference_ns {
                        self.reference = Some(Reference::after(self.reference, ns, by_wall));
                    }
                    at.cycle_ns.inspect(|ns| self.findings.set_cycle_ns(*ns));
                }
                let first_only = matches!(&verdict, Verdict::Timed { at, .. } if at.first_only);
                let outcome = match cut && first_only {
                    // With more time there would be better samples.
                    true => death_outcome(Death::Withdrawn, Stage::Run),
                    false => outcome(verdict, protocol, circumstances, self.reference),
                };
                (outcome, parts)
            }
            Ok(_) => unreachable!("a runner answers a measurement with one"),
            Err(failure) => (failure_outcome(failure).0, PartTimes::default()),
        };
        Measured {
            outcome,
            whole: self.spent,
            parts,
        }
    }

    /// Samples kernels in turns, so that a disturbance hits all alike: for the
    /// isolated ranking of finalists. One outcome a kernel, in their order; the
    /// timed ones have one sample for each of the same `turns`, or of fewer
    /// where the limit, `limit_ns` for each kernel, ends them. What a request
    /// took beside its kernels' parts is shared evenly. Kernels whose constants would fill
    /// the memory take turns with some of the others only.
    pub fn rank(
        &mut self,
        task: &TaskData,
        kernels: &[&BuiltKernel],
        protocol: &Protocol,
        turns: u32,
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
            all.extend(self.rank_together(task, &rest[..together], protocol, turns));
        }
        all
    }

    fn rank_together(
        &mut self,
        task: &TaskData,
        kernels: &[&BuiltKernel],
        protocol: &Protocol,
        turns: u32,
    ) -> Vec<Measured> {
        let mut ranks = RankOutcomes::new(kernels.len());
        loop {
            let undecided = ranks.undecided();
            if undecided.is_empty() {
                return ranks.measured();
            }
            let wall =
                Duration::from_nanos(protocol.limit_ns).saturating_mul(undecided.len() as u32);
            let request = |wall: Duration| Request::Rank {
                task: task.key(),
                kernels: undecided.iter().map(|i| kernels[*i].clone()).collect(),
                protocol: Protocol {
                    limit_ns: wall.as_nanos() as u64 / undecided.len() as u64,
                    ..protocol.clone()
                },
                turns,
            };
            self.spent = Spent::default();
            let answer = self.on_task(task, protocol, wall.min(LONGEST), true, request);
            let alone = match answer {
                Ok(Reply::Ranked(reports)) => {
                    let damaged = |r: &KernelReport| matches!(r.verdict, Verdict::Damaged(_));
                    self.replace_next |= reports.iter().any(damaged);
                    let circumstances = Circumstances::alone(RANKING, false);
                    let judged = reports
                        .into_iter()
                        .map(|r| (outcome(r.verdict, protocol, circumstances, None), r.parts));
                    ranks.settle(&undecided, judged.collect(), self.spent)
                }
                Ok(_) => unreachable!("a runner answers a ranking with one"),
                Err(failure) => ranks.fail(&undecided, failure_outcome(failure), self.spent),
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
            let limit = TimeLimit::of_threads(left, protocol.threads);
            match self.ask(request(within), limit) {
                Ok(Reply::NoData) => self.loaded_task = None,
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
        self.setup_time += began.elapsed();
        done
    }

    fn make_data(&mut self, task: &TaskData, protocol: &Protocol) -> Result<(), Failure> {
        let key = task.key();
        if self.loaded_task == Some(key) && !self.replace_next {
            return Ok(());
        }
        // The oracle runs on one thread.
        let limit = TimeLimit::of_threads(Duration::from_nanos(protocol.setup_limit_ns), 1);
        let outputs = self.findings.expected_outputs(task);
        let (file, mut incomplete) = outputs.as_ref().map(|o| o.file()).unzip();
        if let Some(reason) = self.findings.broken(key) {
            return Err(Failure::Oracle(reason));
        }
        let mut used = self.used > 0;
        let reason = loop {
            match self.ask(Request::Data(task.clone(), file.clone()), limit) {
                Ok(Reply::Data(Ok(published))) => {
                    if let (Some(Some(complete)), Some(outputs), true) =
                        (&mut incomplete, &outputs, published)
                    {
                        **complete = outputs.seal();
                    }
                    self.loaded_task = Some(key);
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
                    // Where a runner made the outputs, the others die of something else.
                    let made = matches!(incomplete, Some(None));
                    if !made && self.findings.killed(key, self.number, &reason) {
                        return Err(Failure::Oracle(reason));
                    }
                    // Others are yet to try, or have done it.
                    self.failed_starts += 1;
                    let reason = format!("it dies of a task's data: {reason}");
                    let death = Death::NotStarted { reason };
                    return Err(Failure::Died { death, note });
                }
                Err(failure) => return Err(failure),
            }
        };
        self.findings.set_broken(key, &reason);
        Err(Failure::Oracle(reason))
    }

    /// One request and its answer.
    fn ask(&mut self, request: Request, limit: TimeLimit) -> Result<Reply, Failure> {
        let id = self.next_id;
        self.next_id += 1;
        let of_candidates = !matches!(request, Request::Data(..));
        if std::mem::take(&mut self.replace_next) {
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
            (self.loaded_task, self.used) = (None, 0);
        }
        answer.result.map_err(|death| Failure::Died {
            death,
            note: answer.note,
        })
    }
}
