//! The event log of a run: every ask, tell and budget decision, in order.
//!
//! Owns the kinds of events and what each kind says. Promises order (a run's
//! events are numbered from 0 without gaps when appended), that the name and the
//! fields of a kind stay readable for ever, and that an event of a kind or form
//! that this version does not know is carried along unread. Leaves the form of
//! what the measuring side says of itself to that side: those fields are JSON
//! values here.

use serde::ser::Error as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::cost::Cost;
use crate::outcome::Outcome;
use crate::record::Extra;
use crate::stats::Paired;

/// An event to be appended; the store numbers it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    pub run_id: String,
    /// Key of the task it is about, which must be in the store.
    pub task: Option<String>,
    pub kind: EventKind,
}

/// An event of the log.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "EventForm")]
pub struct Event {
    pub run_id: String,
    /// Position in the run's log, from 0.
    pub seq: u64,
    pub task: Option<String>,
    pub kind: EventKind,
    /// Fields of a newer version.
    pub extra: Extra,
}

/// Declares the kinds of events once: variant, payload of the same name, and written name.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal),* $(,)?) => {
        /// What an event says. Written as the name of its kind and a payload.
        #[derive(Clone, Debug, PartialEq)]
        pub enum EventKind {
            $($(#[$doc])* $kind($kind),)*
            /// An event of a newer version, or one of a form that this version does not
            /// know, kept whole.
            Unknown { name: String, payload: Value },
        }

        $(impl $kind {
            /// The written name of this kind of event.
            pub const NAME: &'static str = $name;
        }

        impl From<$kind> for EventKind {
            fn from(payload: $kind) -> EventKind {
                EventKind::$kind(payload)
            }
        })*

        impl EventKind {
            /// The written name of the kind.
            pub fn name(&self) -> &str {
                match self {
                    $(EventKind::$kind(_) => $kind::NAME,)*
                    EventKind::Unknown { name, .. } => name,
                }
            }

            /// What the event says, as it is written.
            ///
            /// # Errors
            /// If a number has no form in JSON.
            pub fn payload(&self) -> serde_json::Result<Value> {
                match self {
                    $(EventKind::$kind(payload) => serde_json::to_value(payload),)*
                    EventKind::Unknown { payload, .. } => Ok(payload.clone()),
                }
            }

            /// The kind of this name, if `payload` has its form.
            fn known(name: &str, payload: &Value) -> Option<EventKind> {
                match name {
                    $($kind::NAME => $kind::deserialize(payload).map(EventKind::$kind).ok(),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// A strategy was asked for a candidate.
    Ask = "ask",
    /// A strategy proposed candidates, in the order of this and of what it was told.
    Draw = "draw",
    /// A strategy was told what became of a candidate.
    Tell = "tell",
    /// An evaluator compares later candidates with one.
    Seen = "seen",
    /// A strategy was told another score of a candidate that an earlier run had asked for.
    Revised = "revised",
    /// A search was given a share of the budget.
    Budget = "budget",
    /// A filter dropped candidates.
    Skipped = "skipped",
    /// A filter kept candidates.
    Kept = "kept",
    /// DOPpler measured a batch.
    Doppler = "doppler",
    /// The CPU was found to run faster or slower than before.
    Reference = "reference",
    /// A model was measured whole in the course of its search.
    SurveyEpoch = "survey_epoch",
    /// A choice between the finalists of a task was made inside the whole model.
    InModel = "in_model",
    /// What all choices inside the model changed together.
    InModelTotal = "in_model_total",
    /// The default model and the tuned one were compared.
    Compared = "compared",
    /// Activation layouts were chosen.
    Layouts = "layouts",
}

impl EventKind {
    /// The event with this written form.
    pub(crate) fn read(name: String, payload: Value) -> EventKind {
        let kept = |known: &EventKind| known.payload().is_ok_and(|now| keeps(&now, &payload));
        match EventKind::known(&name, &payload).filter(kept) {
            Some(known) => known,
            None => EventKind::Unknown { name, payload },
        }
    }
}

/// Whether one JSON value says all that another says.
fn keeps(now: &Value, before: &Value) -> bool {
    match (now, before) {
        (Value::Object(now), Value::Object(before)) => before
            .iter()
            .all(|(name, value)| now.get(name).is_some_and(|now| keeps(now, value))),
        (Value::Array(now), Value::Array(before)) => {
            now.len() == before.len() && now.iter().zip(before).all(|(n, b)| keeps(n, b))
        }
        (Value::Number(now), Value::Number(before)) => {
            now == before || now.as_f64() == before.as_f64()
        }
        _ => now == before,
    }
}

/// What an ask chose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// [`crate::Record::trial`].
    pub trial: u64,
    pub algorithm: String,
    /// Number of the sketch in the task's space.
    pub sketch: u64,
    /// Number of the value that each open decision of the sketch takes.
    pub values: Vec<u64>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One call of a strategy: what a run that goes on needs to bring its strategy to the same state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draw {
    /// Candidates that were wanted. How many there are follows from the strategy.
    pub wanted: u64,
    /// [`crate::Record::trial`] of the first.
    pub first: u64,
    /// The number of the last record of similar tasks that the strategy could know; none if it asked for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similar_until: Option<i64>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a strategy was told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tell {
    /// [`crate::Record::trial`].
    pub trial: u64,
    /// [`Outcome::label`].
    pub outcome: String,
    /// [`Outcome::median_ns`].
    pub median_ns: Option<u64>,
    /// The evaluator that answered, see [`crate::Record::evaluator`].
    #[serde(default = "crate::record::timed")]
    pub evaluator: String,
    /// Of an answer that is a score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A candidate that an evaluator or a filter compares later ones with: what a run that goes on needs to bring it to the same
/// state. It comes before the candidate's [`Tell`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// [`crate::Record::trial`].
    pub trial: u64,
    /// What was read of it, in the evaluator's form.
    pub read: Value,
    /// The filter that compares; none if it is the evaluator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A score that replaces that of a candidate of an earlier run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Revised {
    /// The earlier run, and [`crate::Record::trial`] there.
    pub run: String,
    pub trial: u64,
    pub score: Score,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A score of a named kind; lower is better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    pub kind: String,
    pub value: f64,
}

impl Tell {
    /// The event of an answer.
    pub fn of(trial: u64, evaluator: &str, outcome: &Outcome) -> Tell {
        let score = match outcome.cost() {
            Some(Cost::Score { kind, value }) if value.is_finite() => Some(Score { kind, value }),
            _ => None,
        };
        Tell {
            trial,
            outcome: outcome.label().to_owned(),
            median_ns: outcome.median_ns(),
            evaluator: evaluator.to_owned(),
            score,
            extra: Extra::new(),
        }
    }

    /// What the strategy ranks the candidate by.
    pub fn cost(&self) -> Option<Cost> {
        let time = self.median_ns.map(|ns| Cost::Time { ns });
        time.or_else(|| {
            let Score { kind, value } = self.score.clone()?;
            Some(Cost::Score { kind, value })
        })
    }
}

/// Which search may ask for how many candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Position of the search in the run's list of searches, from 0.
    pub search: u64,
    pub asks: u64,
    /// Why this search was chosen, for people.
    pub reason: String,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Which candidates a filter dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    pub filter: String,
    pub count: u64,
    /// Those of them that are trials: [`crate::Record::trial`].
    pub trials: Vec<u64>,
    /// Why, for people: one reason for each of these trials, where the filter says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Trials that the filter would have dropped as well, and that were evaluated to know how often it is right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audited: Vec<u64>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Which candidates a filter kept: what a run that goes on needs so that the filter judges none of them again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub filter: String,
    /// [`crate::Record::trial`].
    pub trials: Vec<u64>,
    /// The score of each of them, by which they were put in order. None is infinite; an empty list says that all are 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<Option<f64>>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What DOPpler did with one batch of a task, and its state afterwards. The form of
/// `settings`, `rounds` and `state` belongs to the crate that measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Doppler {
    /// [`crate::TargetKey::text`].
    pub target: String,
    /// [`crate::MachineKey::fingerprint`].
    pub machine: String,
    /// What the state depends on beside the task, the target and the machine.
    pub settings: Value,
    pub rounds: Value,
    pub state: Value,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How fast the CPU was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// See [`crate::Conditions::drift`].
    pub drift: f64,
    /// See [`crate::Conditions::reference_ns`].
    pub reference_ns: u64,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Which finalist of a task was chosen by the latency of the whole model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InModel {
    /// The trial that was chosen: [`crate::Record::trial`].
    pub chosen: u64,
    /// [`crate::TargetKey::text`].
    pub target: String,
    /// [`crate::MachineKey::fingerprint`].
    pub machine: String,
    pub decision: InModelDecision,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What whole-model latency said of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InModelDecision {
    /// Candidates that were compared, the best alone among them.
    pub candidates: usize,
    /// Whether another than the best alone was chosen.
    pub changed: bool,
    pub tried: Vec<Tried>,
}

/// A candidate against the one chosen so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    pub algorithm: String,
    /// Its time alone over that of the best alone.
    pub alone: f64,
    /// The change of whole-model latency.
    #[serde(flatten)]
    pub paired: Paired,
}

/// What a survey knew of a model after each of its tasks had a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SurveyEpoch {
    /// From 0, which is before any batch.
    pub epoch: usize,
    /// Of one inference of the whole model, or the sum of its tasks' costs where they are scores.
    pub cost: f64,
    /// Of the run so far, in `unit`: `s`, `J` or `trials`.
    pub spent: f64,
    pub unit: String,
    /// Joules of the command, as they were read within the last second, by the meter that says least and by the one that
    /// says most; none if nothing counts them.
    pub joules: Option<[f64; 2]>,
    /// By how much the epoch lowered the cost for each unit spent; none of the first, nor where most answers were known.
    pub rate: Option<f64>,
    /// Whether the model has further batches.
    pub runs: bool,
    /// Tasks that are still in its queue.
    pub queue: usize,
    /// The core sets that its next batches are measured on, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub core_sets: Vec<String>,
    /// Why the survey ended then: `goal`, `rate` or `exhausted`.
    pub ended: Option<String>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What the choices did to the whole model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InModelTotal {
    /// Tasks with more than one candidate near the best.
    pub tasks: usize,
    pub changed: usize,
    /// All choices against the best alone of every task; none if nothing changed.
    pub total: Option<Paired>,
    pub time_s: f64,
    /// Why nothing was compared, if so.
    pub skipped: Option<String>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Whether the tuned model or the default one is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// Key of the plan that both models follow.
    pub plan: String,
    /// [`crate::TargetKey::text`].
    pub target: String,
    /// [`crate::MachineKey::fingerprint`].
    pub machine: String,
    /// Name of the accuracy that candidates had to keep.
    pub accuracy: String,
    /// Name of the space that candidates had to come from; `all` in events of older versions.
    #[serde(default = "every_space", skip_serializing_if = "is_every_space")]
    pub space: String,
    /// [`crate::Record::code_hash`] of the tuned kernel of every task of the plan.
    pub code: Vec<String>,
    /// Whether the defaults are kept.
    pub default: bool,
    /// Of the defaults against the tuned kernels.
    pub gain: Paired,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The name of the space that has all sketches.
const EVERY_SPACE: &str = "all";

fn every_space() -> String {
    EVERY_SPACE.into()
}

fn is_every_space(name: &str) -> bool {
    name == EVERY_SPACE
}

/// Which steps of a plan keep plain layouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layouts {
    /// Key of the plan without exceptions.
    pub plan: String,
    /// [`crate::TargetKey::text`].
    pub target: String,
    /// [`crate::MachineKey::fingerprint`].
    pub machine: String,
    /// Steps that stay plain where blocks are the rule.
    pub plain: Vec<String>,
    /// Estimated change of latency by the best plan found, in percent.
    pub estimated_percent: Option<f64>,
    /// That plan against the rule; none if it promised too little.
    pub total: Option<Paired>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Extra,
}

/// [`Event`] as written.
#[derive(Serialize, Deserialize)]
struct EventForm {
    run_id: String,
    seq: u64,
    kind: String,
    task: Option<String>,
    payload: Value,
    #[serde(flatten)]
    extra: Extra,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = EventForm {
            run_id: self.run_id.clone(),
            seq: self.seq,
            kind: self.kind.name().to_owned(),
            task: self.task.clone(),
            payload: self.kind.payload().map_err(S::Error::custom)?,
            extra: self.extra.clone(),
        };
        form.serialize(serializer)
    }
}

impl From<EventForm> for Event {
    fn from(form: EventForm) -> Self {
        Event {
            run_id: form.run_id,
            seq: form.seq,
            task: form.task,
            kind: EventKind::read(form.kind, form.payload),
            extra: form.extra,
        }
    }
}
