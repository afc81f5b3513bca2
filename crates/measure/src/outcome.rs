//! The outcome of a candidate, from the answer or the death of its worker.
//!
//! Owns what a death says of the candidate that met it, and what a record says of
//! samples. Promises that a worker which could not be started says nothing of a
//! candidate. Asking workers is left to `runner_process` and to the builders' callers.

use crate::protocol::{Activity, Protocol, SampleFacts, Verdict};
use crate::reference::Reference;
use store::{Cache, Clock, Conditions, Difference, Extra, Outcome, Stage};
use worker::Death;

/// What else went on when a candidate was measured, for its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
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

impl<'a> Circumstances<'a> {
    /// One candidate at a time, on the one device.
    pub fn alone(measurer: &'a str, overlap: bool) -> Circumstances<'a> {
        Circumstances {
            measurer,
            device: None,
            dp: 1,
            overlap,
            isolated: !overlap,
        }
    }
}

/// Why a request about kernels has no reply.
pub(crate) enum Failure {
    /// The task has no data.
    Oracle(String),
    /// The runner died; the note is what it was at.
    Died { death: Death, note: String },
}

/// Whether an earlier kernel may be to blame for a death. A time-out is not
/// tried again: it costs most, and is the least likely to be inherited.
pub(crate) fn may_be_inherited(failure: &Failure) -> bool {
    let Failure::Died { death, .. } = failure else {
        return false;
    };
    matches!(death, Death::Crashed { .. } | Death::OutOfMemory { .. })
}

/// Whether a request ran past its limit.
pub(crate) fn timed_out(failure: &Failure) -> bool {
    let Failure::Died { death, .. } = failure else {
        return false;
    };
    matches!(death, Death::TimedOut { .. })
}

/// Whether a death says nothing of what was asked.
pub(crate) fn says_nothing(death: &Death) -> bool {
    matches!(death, Death::NotStarted { .. } | Death::Withdrawn)
}

/// What a death was, for people.
pub(crate) fn text_of(death: Death) -> String {
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
pub(crate) fn failure_outcome(failure: Failure) -> (Outcome, Option<usize>) {
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
            let activity = Activity::read(&note);
            let stage = match activity {
                Some((Activity::Load | Activity::Prepare, _)) => Stage::Load,
                Some((Activity::Check, _)) => Stage::Check,
                _ => Stage::Run,
            };
            let mut outcome = death_outcome(death, stage);
            if let (Outcome::Crashed { stderr, .. }, Some((Activity::Prepare, _))) =
                (&mut outcome, activity)
            {
                stderr.insert_str(0, "while preparing constants\n");
            }
            (outcome, activity.map(|(_, kernel)| kernel))
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
    at: &SampleFacts,
    protocol: &Protocol,
    circumstances: Circumstances<'_>,
    reference: Option<Reference>,
) -> Conditions {
    Conditions {
        pinned: at.pinned,
        overlap: circumstances.overlap,
        isolated: circumstances.isolated,
        cache: match at.rotated {
            false => Cache::Warm,
            true if protocol.rotate_bytes <= protocol.llc_bytes => Cache::CachedConstants,
            true => Cache::RotatedConstants,
        },
        const_copies: at.copies,
        repeats: u32::try_from(at.calls).unwrap_or(u32::MAX),
        measurer: Some(circumstances.measurer.into()),
        device: circumstances.device.map(Into::into),
        latency_ns: at.span.device_ns.checked_div(at.span.launches),
        span_ns: Some(at.span.host_ns),
        launches: Some(at.span.launches),
        reference_ns: reference.map(|r| r.last_ns()),
        drift: reference.map(|r| r.drift()),
        rel_l2: Some(at.rel_l2),
        ..Conditions::unproven(protocol.threads, circumstances.dp)
    }
}

/// The outcome of a candidate that a runner judged under these circumstances.
pub(crate) fn outcome(
    verdict: Verdict,
    protocol: &Protocol,
    circumstances: Circumstances<'_>,
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
            conditions: conditions(&at, protocol, circumstances, reference),
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
