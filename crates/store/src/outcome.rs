//! What became of one candidate: the outcome and the conditions it was got in.
//!
//! Owns the outcome taxonomy of the workspace. Promises that an outcome is
//! never a magic number, that raw samples are kept, and that outcomes of a
//! newer version are carried along unread. Leaves the choice of statistic to
//! [`crate::stats`] and the storage to [`crate::Store`].

use std::fmt;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::number;
use crate::record::Extra;
use crate::stats;

/// Where in its life a candidate failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Replay, lowering, code generation.
    Build,
    /// Loading the built code into a runner.
    Load,
    /// Executing it.
    Run,
    /// Comparing its output with the expected one.
    Check,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Build => "build",
            Stage::Load => "load",
            Stage::Run => "run",
            Stage::Check => "check",
        })
    }
}

/// The clock that samples were read from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The host's monotonic wall clock: true only for a candidate alone.
    HostMonotonic,
    /// CPU time of the executing thread.
    ThreadCpu,
    /// Per-thread hardware cycle counter, converted to nanoseconds.
    CycleCounter,
    /// CUPTI activity records of the kernel.
    CuptiActivity,
    /// CUDA events round the launch.
    CudaEvents,
    /// OpenCL profiling events.
    OpenclEvents,
    /// A clock of a newer version, by its name.
    #[serde(untagged)]
    Other(String),
}

/// What was in the caches when a sample began.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Every call uses the same buffers, or there are no constants, or too few to rotate.
    Warm,
    /// Constants (weights) rotate through [`Conditions::const_copies`] copies that the
    /// last level holds; activations stay.
    CachedConstants,
    /// Constants rotate through more copies than the last level holds.
    RotatedConstants,
    /// All operands rotate.
    RotatedAll,
    /// Caches flushed before every sample.
    Flushed,
    /// A state of a newer version, by its name.
    #[serde(untagged)]
    Other(String),
}

/// The circumstances of a measurement: what a reader needs to judge how true
/// its samples are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Threads the kernel itself ran on.
    pub threads: u32,
    /// Whether those were pinned to cores.
    pub pinned: bool,
    /// Whether builders ran on the same machine meanwhile.
    pub overlap: bool,
    /// Whether nothing else of the tuner used the device: no other candidate,
    /// no builder.
    pub isolated: bool,
    /// Degree of parallelism: candidates measured at once on the device.
    pub dp: u32,
    pub cache: Cache,
    /// Copies of the constants that are rotated through; 1 without rotation.
    pub const_copies: u32,
    /// Calls that one sample is the average of.
    pub repeats: u32,
    /// Policy that measured: `serial`, `naive`, `doppler`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurer: Option<String>,
    /// Device, where the machine has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Device latency `l` of DOPpler: the mean of all launches within `span_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
    /// `v` of DOPpler: the worker's host time from first launch to last completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span_ns: Option<u64>,
    /// Launches within `span_ns`: so many times `latency_ns` is about `span_ns` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launches: Option<u64>,
    /// Factor by which the samples are corrected (DOPpler's scaling, 1 - delta).
    /// They are kept as taken; [`Outcome::median_ns`] applies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Degree of parallelism that a controller asked for in the round of this
    /// candidate; `dp` is what its samples were taken at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_dp: Option<u32>,
    /// Mean relative error of that round's parallel latencies on this device
    /// (DOPpler's delta), where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// Of a candidate whose samples were taken again alone, the median in the round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_ns: Option<u64>,
    /// What the runner's reference kernel took last, on the clock of the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_ns: Option<u64>,
    /// The share by which that is more than when the run's runner began: the
    /// samples were taken at another frequency of the CPU, if it is not small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
    /// Largest relative error (L2) of an output against the expected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rel_l2: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_ns: Option<u64>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Conditions {
    /// Conditions of `threads` threads at degree of parallelism `dp` that claim
    /// nothing else: not pinned, not isolated, overlapped, warm, one call a sample.
    pub fn unproven(threads: u32, dp: u32) -> Self {
        Conditions {
            threads,
            pinned: false,
            overlap: true,
            isolated: false,
            dp,
            cache: Cache::Warm,
            const_copies: 1,
            repeats: 1,
            measurer: None,
            device: None,
            latency_ns: None,
            span_ns: None,
            launches: None,
            scale: None,
            round_dp: None,
            delta: None,
            parallel_ns: None,
            reference_ns: None,
            drift: None,
            rel_l2: None,
            queue_ns: None,
            load_ns: None,
            upload_ns: None,
            extra: Extra::new(),
        }
    }
}

/// How far a result was from the expected one; the meaning of each figure is
/// that of the tensor comparison that produced it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// L2 norm of the difference over that of the expected values.
    #[serde(with = "number")]
    pub rel_l2: f64,
    /// Largest absolute element error over the root mean square expected.
    #[serde(with = "number")]
    pub max_over_rms: f64,
    /// Largest absolute element error.
    #[serde(with = "number")]
    pub max_abs: f64,
    /// Row-major index of that element.
    pub worst: u64,
    /// Elements where exactly one side is not finite.
    pub non_finite: u64,
    /// Largest relative error (L2) that was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What became of a candidate. In JSON an object whose `result` names the variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case", remote = "Self")]
// Most outcomes are timed ones, so a box would be paid nearly always.
#[allow(clippy::large_enum_variant)]
pub enum Outcome {
    /// Ran and gave the expected output; nanoseconds a call, in the order taken.
    Timed {
        samples_ns: Vec<u64>,
        clock: Clock,
        conditions: Conditions,
    },
    /// Judged without being timed, by the named kind of score (lower is better).
    Scored {
        kind: String,
        #[serde(with = "number")]
        value: f64,
    },
    /// Ran and gave another output.
    Wrong {
        difference: Difference,
        text: String,
    },
    /// The process died, or the tool reported failure, at `stage`.
    Crashed {
        stage: Stage,
        signal: Option<i32>,
        stderr: String,
    },
    /// Ran past its limit at `stage` and was killed.
    TimedOut { stage: Stage, limit_ms: u64 },
    /// Asked for more memory than allowed at `stage`.
    OutOfMemory { stage: Stage },
    /// Refused before it was built: a limit or a rule that it breaks.
    Rejected { reason: String },
    /// Not evaluated because the named filter dropped it, and for no other reason.
    Skipped { filter: String },
    /// Not evaluated although no filter dropped it: there was no worker, no expected output
    /// or no time left. This says nothing about the candidate.
    Unanswered { reason: String },
    /// An outcome of a newer version, kept whole (its `result` included).
    #[serde(skip)]
    Unknown(Map<String, Value>),
}

/// Signals by which something else ends a process, as Linux numbers them: hang-up,
/// interrupt, quit, kill, terminate.
pub(crate) const OUTSIDE_SIGNALS: [i32; 5] = [1, 2, 3, 9, 15];

/// The `result` names that [`Outcome`] decodes; any other is kept as `Unknown`.
const RESULTS: [&str; 9] = [
    "timed",
    "scored",
    "wrong",
    "crashed",
    "timed_out",
    "out_of_memory",
    "rejected",
    "skipped",
    "unanswered",
];

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Outcome::Unknown(fields) if !fields.get("result").is_some_and(Value::is_string) => Err(
                S::Error::custom("an unknown outcome needs its `result` name"),
            ),
            Outcome::Unknown(fields) => fields.serialize(serializer),
            known => Outcome::serialize(known, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = of_today(Map::<String, Value>::deserialize(deserializer)?);
        match fields.get("result").and_then(Value::as_str) {
            None => Err(D::Error::custom("an outcome needs a text field `result`")),
            Some(result) if !RESULTS.contains(&result) => Ok(Outcome::Unknown(fields)),
            Some(result) => {
                let result = result.to_owned();
                Outcome::deserialize(Value::Object(fields))
                    .map_err(|e| D::Error::custom(format!("outcome `{result}`: {e}")))
            }
        }
    }
}

/// How a `Skipped` began that earlier programs wrote for what no filter dropped.
const UNANSWERED: [&str; 4] = [
    "no expected output: ",
    "no builder: ",
    "no runner: ",
    "the time for it was over",
];

/// The fields of an outcome that an earlier program wrote, as this program writes them.
pub(crate) fn of_today(mut fields: Map<String, Value>) -> Map<String, Value> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let unanswered = text("result") == Some("skipped")
        && text("filter").is_some_and(|f| UNANSWERED.iter().any(|u| f.starts_with(u)));
    if unanswered && let Some(reason) = fields.remove("filter") {
        fields.insert("result".to_owned(), Value::from("unanswered"));
        fields.insert("reason".to_owned(), reason);
    }
    fields
}

impl Outcome {
    /// Short name for histograms; failures carry their stage.
    pub fn label(&self) -> &'static str {
        match self {
            Outcome::Timed { .. } => "timed",
            Outcome::Scored { .. } => "scored",
            Outcome::Wrong { .. } => "wrong",
            Outcome::Crashed { stage, .. } => match stage {
                Stage::Build => "crashed-build",
                Stage::Load => "crashed-load",
                Stage::Run => "crashed-run",
                Stage::Check => "crashed-check",
            },
            Outcome::TimedOut { stage, .. } => match stage {
                Stage::Build => "timed-out-build",
                Stage::Load => "timed-out-load",
                Stage::Run => "timed-out-run",
                Stage::Check => "timed-out-check",
            },
            Outcome::OutOfMemory { stage } => match stage {
                Stage::Build => "out-of-memory-build",
                Stage::Load => "out-of-memory-load",
                Stage::Run => "out-of-memory-run",
                Stage::Check => "out-of-memory-check",
            },
            Outcome::Rejected { .. } => "rejected",
            Outcome::Skipped { .. } => "skipped",
            Outcome::Unanswered { .. } => "unanswered",
            Outcome::Unknown(_) => "unknown",
        }
    }

    /// Stage of a failure.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Outcome::Crashed { stage, .. }
            | Outcome::TimedOut { stage, .. }
            | Outcome::OutOfMemory { stage } => Some(*stage),
            Outcome::Wrong { .. } => Some(Stage::Check),
            _ => None,
        }
    }

    /// Whether something else ended the worker, as far as can be told: that says
    /// nothing of the candidate.
    pub fn ended_from_outside(&self) -> bool {
        match self {
            Outcome::Crashed { signal, .. } => signal.is_some_and(|s| OUTSIDE_SIGNALS.contains(&s)),
            _ => false,
        }
    }

    /// Whether the built code reached a runner: timed, wrong, or failed after
    /// the build by itself. Such an outcome belongs to the machine code.
    pub fn ran(&self) -> bool {
        match self {
            Outcome::Timed { .. } => true,
            _ if self.ended_from_outside() => false,
            _ => self.stage().is_some_and(|stage| stage != Stage::Build),
        }
    }

    /// Whether the candidate itself was judged, so that it need not be tried
    /// again: it ran, or it failed to build, or it was rejected. A score, a
    /// filter's skip, no answer and an end from outside say nothing about how it would
    /// have run.
    pub fn settled(&self) -> bool {
        let failed = self.stage().is_some() && !self.ended_from_outside();
        self.ran() || failed || matches!(self, Outcome::Rejected { .. })
    }

    /// Whether the outcome holds at this tolerance (relative error, L2): what was
    /// timed may have been allowed by a looser one, what was wrong judged by a tighter one.
    pub fn within(&self, tolerance: f64) -> bool {
        match self {
            Outcome::Wrong { difference, .. } => difference
                .tolerance
                .is_none_or(|judged| judged >= tolerance),
            _ => self.rel_l2().is_none_or(|error| error <= tolerance),
        }
    }

    /// Relative error (L2) that a timed candidate's outputs were allowed with.
    pub fn rel_l2(&self) -> Option<f64> {
        match self {
            Outcome::Timed { conditions, .. } => conditions.rel_l2,
            _ => None,
        }
    }

    /// Median of the samples of a timed outcome, corrected by its
    /// [`Conditions::scale`].
    pub fn median_ns(&self) -> Option<u64> {
        let Outcome::Timed {
            samples_ns,
            conditions,
            ..
        } = self
        else {
            return None;
        };
        let median = stats::median(samples_ns)?;
        let scaled = |scale: f64| (median as f64 * scale).round() as u64;
        Some(conditions.scale.map_or(median, scaled))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_results_are_kept_whole_and_known_ones_must_decode() {
        let newer = json!({"result": "quarantined", "by": "watchdog", "level": 3});
        let outcome: Outcome = serde_json::from_value(newer.clone()).unwrap();
        assert_eq!(outcome.label(), "unknown");
        assert_eq!(serde_json::to_value(&outcome).unwrap(), newer);

        let torn = json!({"result": "timed_out", "stage": "run"});
        let message = serde_json::from_value::<Outcome>(torn)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("timed_out") && message.contains("limit_ms"),
            "{message}"
        );
        assert!(serde_json::from_value::<Outcome>(json!({"stage": "run"})).is_err());
    }

    #[test]
    fn every_serialised_result_name_is_listed() {
        let stage = Stage::Load;
        for outcome in [
            Outcome::Scored {
                kind: "static".into(),
                value: 1.0,
            },
            Outcome::Crashed {
                stage,
                signal: None,
                stderr: String::new(),
            },
            Outcome::TimedOut { stage, limit_ms: 1 },
            Outcome::OutOfMemory { stage },
            Outcome::Rejected {
                reason: String::new(),
            },
            Outcome::Skipped {
                filter: String::new(),
            },
            Outcome::Unanswered {
                reason: String::new(),
            },
        ] {
            let value = serde_json::to_value(&outcome).unwrap();
            assert!(
                RESULTS.contains(&value["result"].as_str().unwrap()),
                "{value}"
            );
            assert_eq!(serde_json::from_value::<Outcome>(value).unwrap(), outcome);
        }
    }

    #[test]
    fn what_no_filter_dropped_is_unanswered_in_old_text_too() {
        let read = |filter: &str| -> Outcome {
            let text = json!({"result": "skipped", "filter": filter});
            serde_json::from_value(text).unwrap()
        };
        for reason in [
            "no expected output: the runner died of signal 11",
            "no runner: no such file",
            "no builder: no such file",
            "the time for it was over",
        ] {
            let reason = reason.to_owned();
            assert_eq!(read(&reason), Outcome::Unanswered { reason });
        }
        let filter = "no repeats".to_owned();
        assert_eq!(read(&filter), Outcome::Skipped { filter });
    }

    #[test]
    fn floats_without_a_json_spelling_survive() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1 + 0.2] {
            let text = serde_json::to_string(&Outcome::Scored {
                kind: "s".into(),
                value,
            })
            .unwrap();
            let Outcome::Scored { value: read, .. } = serde_json::from_str(&text).unwrap() else {
                panic!("{text}");
            };
            assert_eq!(read.to_bits(), value.to_bits(), "{text}");
        }
        let text = r#"{"result":"scored","kind":"s","value":"fast"}"#;
        assert!(serde_json::from_str::<Outcome>(text).is_err());
    }

    #[test]
    fn samples_stay_as_taken_and_their_median_is_corrected() {
        let timed = |scale| Outcome::Timed {
            samples_ns: vec![1000, 900, 2000],
            clock: Clock::ThreadCpu,
            conditions: Conditions {
                scale,
                delta: scale.map(|s| 1.0 - s),
                round_dp: Some(13),
                launches: Some(60),
                parallel_ns: Some(7),
                ..Conditions::unproven(1, 2)
            },
        };
        assert_eq!(timed(None).median_ns(), Some(1000));
        let corrected = timed(Some(0.9));
        assert_eq!(corrected.median_ns(), Some(900));
        let text = serde_json::to_string(&corrected).unwrap();
        assert!(text.contains("[1000,900,2000]"), "{text}");
        assert_eq!(
            serde_json::from_str::<Outcome>(&text).unwrap(),
            corrected,
            "{text}"
        );
    }

    #[test]
    fn clocks_of_a_newer_version_keep_their_name() {
        let clock: Clock = serde_json::from_str("\"rdpru\"").unwrap();
        assert_eq!(clock, Clock::Other("rdpru".into()));
        assert_eq!(serde_json::to_string(&clock).unwrap(), "\"rdpru\"");
        assert_eq!(
            serde_json::to_string(&Clock::ThreadCpu).unwrap(),
            "\"thread_cpu\""
        );
    }

    #[test]
    fn only_code_that_reached_a_runner_ran() {
        assert!(
            !Outcome::OutOfMemory {
                stage: Stage::Build
            }
            .ran()
        );
        assert!(
            Outcome::OutOfMemory {
                stage: Stage::Build
            }
            .settled()
        );
        assert!(Outcome::OutOfMemory { stage: Stage::Load }.ran());
        assert!(
            !Outcome::Skipped {
                filter: "cold".into()
            }
            .settled()
        );
        assert!(
            !Outcome::Scored {
                kind: "static".into(),
                value: 1.0
            }
            .settled()
        );
    }
}
