//! Keys, records and runs as plain data.
//!
//! Owns the shape of what the store holds. Every struct keeps the fields of a
//! newer version in `extra`, so they survive reading and writing. Leaves the
//! computation of keys, traces and hashes to those who own their meaning; here
//! they are text.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::lookup::RecordPlace;
use crate::outcome::{self, Outcome};

/// Fields this version does not know, by name.
pub type Extra = BTreeMap<String, Value>;

/// The value of a named task argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Arg {
    Int(i64),
    Text(String),
    /// Anything else, of a newer version.
    Other(Value),
}

/// Operator semantics to be tuned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Hash (hex) of `text`.
    pub key: String,
    /// Canonical text of the tensor expression.
    pub text: String,
    /// Operator kind, for people and tables: `conv2d`, `dense`, ...
    pub op: String,
    /// Named arguments for people and tables: shapes, strides, dtype, ...
    #[serde(default)]
    pub args: BTreeMap<String, Arg>,
    /// Floating-point operations of one call.
    pub flops: f64,
    /// Bytes of the operands and the result, each counted once.
    pub bytes: u64,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What code was generated for. Its key in the store is [`TargetKey::text`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetKey {
    pub triple: String,
    pub cpu: String,
    /// Instruction-set features that code may use, without signs; order and
    /// duplicates do not matter.
    #[serde(default)]
    pub features: Vec<String>,
    /// Cache facts that schedules were limited by: `l1d_bytes`, `line_bytes`, ...
    #[serde(default)]
    pub caches: BTreeMap<String, u64>,
    pub threads: u32,
    /// Further facts of the target by name, and fields of a newer version; all
    /// are part of the key.
    #[serde(flatten)]
    pub extra: Extra,
}

impl TargetKey {
    /// The canonical one-line text: equal for equal targets only.
    ///
    /// `triple cpu features=a,b caches=l1d_bytes:32768,... threads=8`, then
    /// unknown fields as `name=json`. Spaces, commas, colons, equals and per
    /// cent signs inside a part are written `%XX`.
    pub fn text(&self) -> String {
        let features: Vec<String> = self.sorted_features().into_iter().map(escape).collect();
        let caches: Vec<String> = self
            .caches
            .iter()
            .map(|(name, size)| format!("{}:{size}", escape(name)))
            .collect();
        let mut text = format!(
            "{} {} features={} caches={} threads={}",
            escape(&self.triple),
            escape(&self.cpu),
            features.join(","),
            caches.join(","),
            self.threads
        );
        for (name, value) in &self.extra {
            text += &format!(" {}={}", escape(name), escape(&value.to_string()));
        }
        text
    }

    pub(crate) fn sorted_features(&self) -> Vec<&str> {
        let mut features: Vec<&str> = self.features.iter().map(String::as_str).collect();
        features.sort_unstable();
        features.dedup();
        features
    }
}

fn escape(part: &str) -> String {
    let mut escaped = String::with_capacity(part.len());
    for c in part.chars() {
        if matches!(c, ' ' | ',' | ':' | '=' | '%') || c.is_control() {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                escaped += &format!("%{byte:02x}");
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// The machine something was measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineKey {
    /// Identity (a text or a hash) that changes when timings would.
    pub fingerprint: String,
    /// For people: model, cores, memory, kernel, governor.
    pub description: String,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One decision of a trace, as the strategy saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    pub name: String,
    /// `split`, `order`, `unroll`, ...
    pub kind: String,
    /// Choice taken, from 0.
    pub index: u64,
    /// Number of choices there were.
    pub cardinality: u64,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Time that one stage took for one candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSpent {
    pub wall_ns: u64,
    /// CPU time of all threads; `None` where the machine cannot tell.
    pub cpu_ns: Option<u64>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Time that getting a record took. A stage that did not happen took no time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpentByStage {
    #[serde(default)]
    pub search: TimeSpent,
    #[serde(default)]
    pub build: TimeSpent,
    #[serde(default)]
    pub load: TimeSpent,
    #[serde(default)]
    pub measure: TimeSpent,
    #[serde(default)]
    pub check: TimeSpent,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// CPU time of all records of one task in a run, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCpu {
    /// [`Task::key`].
    pub task: String,
    /// Whether the records are those of finalists.
    pub final_: bool,
    pub search_ns: u64,
    pub build_ns: u64,
    pub load_ns: u64,
    pub measure_ns: u64,
    pub check_ns: u64,
}

/// The evaluator that runs candidates and measures them, and the one of all records
/// that say none.
pub const TIMED: &str = "timed";
/// The evaluator that replays recorded answers.
pub const RECORDED: &str = "recorded";
/// The evaluator that reads loops and machine code, and runs nothing.
pub const STATIC: &str = "static";
/// The evaluator that simulates candidates.
pub const SIMULATE: &str = "simulate";

/// The evaluators whose times were measured on the machine that their records name.
/// Look-ups of times and of outcomes consider these only.
pub const MEASURING: &[&str] = &[TIMED];

pub(crate) fn timed() -> String {
    TIMED.to_owned()
}

/// One answer about one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "RecordForm", into = "RecordForm")]
pub struct Record {
    pub run_id: String,
    /// Index of the trial within the run and task, from 0.
    pub trial: u64,
    /// Whether this is the isolated re-measurement of a finalist; a timed
    /// final must have been measured isolated.
    pub final_: bool,
    /// [`Task::key`].
    pub task: String,
    /// [`TargetKey::text`].
    pub target: String,
    /// [`MachineKey::fingerprint`].
    pub machine: String,
    /// Who answered: [`TIMED`], [`RECORDED`] or another name, such as `static`. One
    /// trial has at most one answer of each.
    pub evaluator: String,
    pub strategy: String,
    pub seed: u64,
    /// Identity of what turns a trace into machine code (passes, compiler):
    /// when it changes, an equal trace is another candidate.
    pub toolchain: String,
    pub algorithm: String,
    pub decisions: Vec<Decision>,
    pub trace: String,
    /// Hash (hex) of the machine code, if it was built.
    pub code_hash: Option<String>,
    /// Bytes of machine code.
    pub code_size: Option<u64>,
    pub outcome: Outcome,
    /// Fields of a newer version inside the outcome.
    pub outcome_extra: Extra,
    /// Written as `costs`.
    pub spent: SpentByStage,
    pub created_unix_ms: u64,
    /// Fields of a newer version.
    pub extra: Extra,
}

/// What makes a record the same record in another file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordIdentity {
    pub run_id: String,
    pub task: String,
    pub trial: u64,
    pub final_: bool,
    pub evaluator: String,
}

impl fmt::Display for RecordIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.final_ { "final" } else { "trial" };
        write!(
            f,
            "run {} task {} {kind} {} ({})",
            self.run_id, self.task, self.trial, self.evaluator
        )
    }
}

impl Record {
    pub fn identity(&self) -> RecordIdentity {
        RecordIdentity {
            run_id: self.run_id.clone(),
            task: self.task.clone(),
            trial: self.trial,
            final_: self.final_,
            evaluator: self.evaluator.clone(),
        }
    }

    pub fn place(&self) -> RecordPlace<'_> {
        RecordPlace {
            task: &self.task,
            target: &self.target,
            machine: &self.machine,
        }
    }

    /// Why the record contradicts itself, if it does.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if self.evaluator.is_empty() {
            return Some("it names no evaluator".into());
        }
        if let Some(decision) = self.decisions.iter().find(|d| d.index >= d.cardinality) {
            return Some(format!(
                "decision `{}` took choice {} of {}",
                decision.name, decision.index, decision.cardinality
            ));
        }
        if let Outcome::Timed {
            samples_ns,
            conditions,
            ..
        } = &self.outcome
        {
            if samples_ns.is_empty() {
                return Some("it is timed and has no samples".into());
            }
            if self.final_ && !conditions.isolated {
                return Some("a timed final must have been measured isolated".into());
            }
        }
        None
    }
}

/// [`Record`] as written: the outcome's unknown fields lie inside the outcome.
#[derive(Serialize, Deserialize)]
struct RecordForm {
    run_id: String,
    trial: u64,
    #[serde(rename = "final", default)]
    final_: bool,
    task: String,
    target: String,
    machine: String,
    #[serde(default = "timed")]
    evaluator: String,
    strategy: String,
    seed: u64,
    #[serde(default)]
    toolchain: String,
    algorithm: String,
    #[serde(default)]
    decisions: Vec<Decision>,
    trace: String,
    code_hash: Option<String>,
    code_size: Option<u64>,
    outcome: OutcomeForm,
    #[serde(rename = "costs", default)]
    spent: SpentByStage,
    created_unix_ms: u64,
    #[serde(flatten)]
    extra: Extra,
}

/// An outcome with the fields that its variant does not have.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(crate) struct OutcomeForm {
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(flatten)]
    pub(crate) extra: Extra,
}

impl TryFrom<Map<String, Value>> for OutcomeForm {
    type Error = serde_json::Error;

    fn try_from(fields: Map<String, Value>) -> Result<Self, Self::Error> {
        let fields = outcome::of_today(fields);
        let outcome: Outcome = serde_json::from_value(Value::Object(fields.clone()))?;
        let known = serde_json::to_value(&outcome)?;
        let extra = fields
            .into_iter()
            .filter(|(name, _)| known.get(name).is_none())
            .collect();
        Ok(OutcomeForm { outcome, extra })
    }
}

impl From<RecordForm> for Record {
    fn from(form: RecordForm) -> Self {
        Record {
            run_id: form.run_id,
            trial: form.trial,
            final_: form.final_,
            task: form.task,
            target: form.target,
            machine: form.machine,
            evaluator: form.evaluator,
            strategy: form.strategy,
            seed: form.seed,
            toolchain: form.toolchain,
            algorithm: form.algorithm,
            decisions: form.decisions,
            trace: form.trace,
            code_hash: form.code_hash,
            code_size: form.code_size,
            outcome: form.outcome.outcome,
            outcome_extra: form.outcome.extra,
            spent: form.spent,
            created_unix_ms: form.created_unix_ms,
            extra: form.extra,
        }
    }
}

impl From<Record> for RecordForm {
    fn from(record: Record) -> Self {
        RecordForm {
            run_id: record.run_id,
            trial: record.trial,
            final_: record.final_,
            task: record.task,
            target: record.target,
            machine: record.machine,
            evaluator: record.evaluator,
            strategy: record.strategy,
            seed: record.seed,
            toolchain: record.toolchain,
            algorithm: record.algorithm,
            decisions: record.decisions,
            trace: record.trace,
            code_hash: record.code_hash,
            code_size: record.code_size,
            outcome: OutcomeForm {
                outcome: record.outcome,
                extra: record.outcome_extra,
            },
            spent: record.spent,
            created_unix_ms: record.created_unix_ms,
            extra: record.extra,
        }
    }
}

/// A tuning run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub run_id: String,
    pub model: String,
    /// Arguments and options it was started with.
    pub options: Value,
    pub strategy: String,
    pub seed: u64,
    pub started_unix_ms: u64,
    /// `None` while it runs, or when it was cut off.
    pub ended_unix_ms: Option<u64>,
    /// What it reported at its end; null before.
    #[serde(default)]
    pub summary: Value,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> TargetKey {
        TargetKey {
            triple: "x86_64-unknown-linux-gnu".into(),
            cpu: "znver4".into(),
            features: vec!["fma".into(), "avx2".into(), "fma".into()],
            caches: BTreeMap::from([("l1d_bytes".into(), 32768)]),
            threads: 8,
            extra: Extra::new(),
        }
    }

    #[test]
    fn target_text_is_canonical_and_unambiguous() {
        let text = target().text();
        assert_eq!(
            text,
            "x86_64-unknown-linux-gnu znver4 features=avx2,fma caches=l1d_bytes:32768 threads=8"
        );
        let reordered = TargetKey {
            features: vec!["avx2".into(), "fma".into()],
            ..target()
        };
        assert_eq!(reordered.text(), text);

        let merged = TargetKey {
            features: vec!["avx2,fma".into()],
            ..target()
        };
        assert_ne!(merged.text(), text);
        let newer = TargetKey {
            extra: Extra::from([("vlen".into(), Value::from(256))]),
            ..target()
        };
        assert_eq!(newer.text(), format!("{text} vlen=256"));
    }
}
