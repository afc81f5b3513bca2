//! Records and events of the loop, in the store's terms.

use graph::plan::Task;
use search::{Point, Space};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use store::{Arg, Cost, Costs, Decision, Extra, NewEvent};

pub fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}

pub fn task(t: &Task) -> store::Task {
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
        extra: Extra::new(),
    }
}

/// The decision vector of a point.
pub fn decisions(space: &Space, p: &Point) -> Vec<Decision> {
    let named = space.decisions(p).into_iter().zip(&p.values);
    let sketch = Decision {
        name: "sketch".into(),
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

pub fn cost(wall_ns: u64, cpu_ns: Option<u64>) -> Cost {
    Cost {
        wall_ns,
        cpu_ns,
        extra: Extra::new(),
    }
}

pub fn costs(search: Cost, build: Cost, load: Cost, measure: Cost, check: Cost) -> Costs {
    Costs {
        search,
        build,
        load,
        measure,
        check,
        extra: Extra::new(),
    }
}

pub fn event(run: &str, kind: &str, task: &str, payload: serde_json::Value) -> NewEvent {
    NewEvent {
        run_id: run.into(),
        kind: kind.into(),
        task: Some(task.into()),
        payload,
    }
}

/// What an ask chose, for the log.
pub fn asked(algorithm: &str, p: &Point, trial: u64) -> serde_json::Value {
    serde_json::json!({
        "trial": trial,
        "algorithm": algorithm,
        "sketch": p.sketch,
        "values": p.values,
    })
}
