//! Records and events of the loop, in the store's terms.

use crate::trial::Answer;
use build::Read;
use measure::Spent;
use plan::Task;
use runtime::BuiltKernel;
use search::{Point, Space};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use store::{
    Arg, Ask, Decision, EventKind, Extra, NewEvent, Seen, SpentByStage, TIMED, Tell, TimeSpent,
};

pub fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}

/// Under which name a task has its program's own text: sketches and their decisions follow from the names of
/// axes, which the canonical text does not have.
pub const PROGRAM: &str = "program";

pub fn task(t: &Task) -> store::Task {
    let mut extra = Extra::new();
    extra.insert(PROGRAM.into(), ir::text::print(&t.program).into());
    let args: BTreeMap<String, Arg> = t
        .args
        .iter()
        .map(|(k, v)| (k.clone(), Arg::Int(*v)))
        .collect();
    store::Task {
        key: t.key.clone(),
        text: ir::text::canonical(&t.program),
        op: t.op.clone(),
        args,
        flops: t.flops,
        bytes: t.bytes as u64,
        extra,
    }
}

/// How records name a kernel's code.
pub fn code_hash(kernel: &BuiltKernel) -> String {
    format!("{:016x}", kernel.code_hash())
}

/// The first decision of every record.
pub(crate) const SKETCH: &str = "sketch";

/// The decision vector of a point.
pub fn decisions(space: &Space, p: &Point) -> Vec<Decision> {
    let named = space.decisions(p).into_iter().zip(&p.values);
    let sketch = Decision {
        name: SKETCH.into(),
        kind: "categorical".into(),
        index: p.sketch as u64,
        cardinality: space.sketches.len() as u64,
        extra: Extra::new(),
    };
    let open = named.map(|(d, index)| Decision {
        kind: match d.kind {
            schedule::DecisionKind::PerfectTile { .. } => "perfect_tile",
            schedule::DecisionKind::Categorical { .. } => "categorical",
            schedule::DecisionKind::ComputeLocation { .. } => "compute_location",
        }
        .into(),
        cardinality: d.cardinality(),
        name: d.name,
        index: *index,
        extra: Extra::new(),
    });
    std::iter::once(sketch).chain(open).collect()
}

pub fn time_spent(spent: Spent) -> TimeSpent {
    TimeSpent {
        wall_ns: spent.wall_ns,
        cpu_ns: Some(spent.cpu_ns),
        extra: Extra::new(),
    }
}

/// What getting a record took. A stage that was not reached took nothing; what a runner
/// that died does not tell apart is all in `measure`.
pub fn spent_by_stage(search: Spent, build: Spent, answer: &Answer) -> SpentByStage {
    let (whole, parts) = (answer.spent, answer.parts);
    let rest = |whole: u64, load: u64, check: u64| whole.saturating_sub(load + check);
    let (load, check) = (parts.load, parts.check);
    SpentByStage {
        search: time_spent(search),
        build: time_spent(build),
        load: time_spent(load),
        measure: time_spent(Spent {
            wall_ns: rest(whole.wall_ns, load.wall_ns, check.wall_ns),
            cpu_ns: rest(whole.cpu_ns, load.cpu_ns, check.cpu_ns),
        }),
        check: time_spent(check),
        extra: Extra::new(),
    }
}

pub fn event(run: &str, task: &str, kind: impl Into<EventKind>) -> NewEvent {
    NewEvent {
        run_id: run.into(),
        task: Some(task.into()),
        kind: kind.into(),
    }
}

/// An event of a run as a whole.
pub fn run_event(run: &str, kind: impl Into<EventKind>) -> NewEvent {
    NewEvent {
        run_id: run.into(),
        task: None,
        kind: kind.into(),
    }
}

/// What the log says of a candidate that others are compared with, by a filter or else by the evaluator. A number without a form
/// in JSON is in no log.
pub fn seen(trial: u64, read: &Read, filter: Option<&str>) -> Option<Seen> {
    Some(Seen {
        trial,
        read: serde_json::to_value(read).ok()?,
        filter: filter.map(str::to_owned),
        extra: Extra::new(),
    })
}

/// What an ask chose, for the log.
pub fn asked(algorithm: &str, p: &Point, trial: u64) -> Ask {
    Ask {
        trial,
        algorithm: algorithm.to_string(),
        sketch: p.sketch as u64,
        values: p.values.clone(),
        extra: Extra::new(),
    }
}

/// What is told of a point that is no candidate, for the log.
pub fn illegal(trial: u64) -> Tell {
    Tell {
        trial,
        outcome: "illegal".into(),
        median_ns: None,
        evaluator: TIMED.into(),
        score: None,
        extra: Extra::new(),
    }
}

/// A run of a model that has begun.
#[cfg(test)]
pub fn begun(model: &str) -> store::Run {
    store::Run {
        run_id: "run".into(),
        model: model.into(),
        options: serde_json::Value::Null,
        strategy: "random".into(),
        seed: 1,
        started_unix_ms: 1,
        ended_unix_ms: None,
        summary: serde_json::Value::Null,
        extra: Extra::new(),
    }
}
