//! The serial measurer: one candidate at a time, on the host's clock.

use crate::protocol::{Protocol, Reply, Request, TaskData, Verdict};
use runtime::BuiltKernel;
use std::time::Duration;
use store::{Cache, Clock, Conditions, Difference, Extra, Outcome, Stage};
use thiserror::Error;
use worker::{CommandLine, Death, Limits, Pool, PoolError};

#[derive(Debug, Error)]
pub enum MeasureError {
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// A measured candidate.
#[derive(Debug)]
pub struct Measured {
    pub outcome: Outcome,
    pub load_ns: u64,
    pub check_ns: u64,
    pub run_ns: u64,
    /// Wall time of the whole request, as the parent saw it.
    pub wall_ns: u64,
    /// CPU time of the runner, where it lived to tell.
    pub cpu_ns: Option<u64>,
}

/// One runner process, replaced when it dies.
pub struct Serial {
    pool: Pool<Request, Reply>,
    next_id: u64,
}

/// Address space of a runner: the data of two tasks and their rotated copies.
const ADDRESS_SPACE: u64 = 12 << 30;

impl Serial {
    /// `command` must end up in `serve`.
    pub fn new(command: &CommandLine) -> Result<Serial, MeasureError> {
        let limits = Limits {
            address_space: Some(ADDRESS_SPACE),
        };
        Ok(Serial {
            pool: Pool::new(command, 1, limits)?,
            next_id: 0,
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
        let id = self.next_id;
        self.next_id += 1;
        let limit = Duration::from_nanos(protocol.limit_ns);
        let request = Request {
            task: task.clone(),
            kernel: kernel.clone(),
            protocol: protocol.clone(),
            best_ns,
        };
        self.pool.submit(id, request, limit);
        // The pool answers every request by its limit, and a little more.
        let answer = loop {
            if let Some(a) = self.pool.next(limit + Duration::from_secs(10)) {
                break a;
            }
        };
        assert_eq!(answer.id, id, "one request at a time");
        let wall_ns = answer.wall.as_nanos() as u64;
        match answer.result {
            Ok(r) => Measured {
                outcome: outcome(r.verdict, protocol, overlap),
                load_ns: r.load_ns,
                check_ns: r.check_ns,
                run_ns: r.run_ns,
                wall_ns,
                cpu_ns: Some(r.cpu_ns),
            },
            Err(death) => Measured {
                outcome: death_outcome(death, Stage::Run),
                load_ns: 0,
                check_ns: 0,
                run_ns: 0,
                wall_ns,
                cpu_ns: None,
            },
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

fn outcome(verdict: Verdict, protocol: &Protocol, overlap: bool) -> Outcome {
    match verdict {
        Verdict::Timed {
            samples_ns,
            calls,
            copies,
        } => Outcome::Timed {
            samples_ns,
            clock: Clock::HostMonotonic,
            conditions: Conditions {
                pinned: protocol.pin.len() == protocol.threads as usize,
                overlap,
                isolated: !overlap,
                cache: if protocol.rotate_bytes > 0 {
                    Cache::RotatedConstants
                } else {
                    Cache::Warm
                },
                const_copies: copies,
                repeats: calls,
                measurer: Some("serial".into()),
                ..Conditions::unproven(protocol.threads, 1)
            },
        },
        Verdict::Wrong(g) => Outcome::Wrong {
            text: format!(
                "output {} differs: relative error {:.2e}, element {}",
                g.output, g.rel_l2, g.worst
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
        Verdict::Refused(stderr) => Outcome::Crashed {
            stage: Stage::Load,
            signal: None,
            stderr,
        },
        Verdict::Failed(stderr) => Outcome::Crashed {
            stage: Stage::Run,
            signal: None,
            stderr,
        },
        Verdict::OutOfMemory(_) => Outcome::OutOfMemory { stage: Stage::Load },
    }
}
