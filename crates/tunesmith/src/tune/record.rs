//! Records and events of the loop, in the store's terms.

use graph::plan::Task;
use measure::{Measured, Spent};
use search::{Point, Space};
use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
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

/// Times what this thread does.
pub struct Watch {
    start: Instant,
    cpu_ns: u64,
}

impl Watch {
    pub fn start() -> Watch {
        Watch {
            start: Instant::now(),
            cpu_ns: thread_cpu_ns(),
        }
    }

    pub fn spent(&self) -> Spent {
        let cpu_ns = thread_cpu_ns() - self.cpu_ns;
        Spent {
            wall_ns: self.start.elapsed().as_nanos() as u64,
            cpu_ns,
        }
    }
}

fn thread_cpu_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to what it is given, which lives until it returns.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    assert_eq!(failed, 0, "every thread has a clock of its own");
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

pub fn cost(spent: Spent) -> Cost {
    Cost {
        wall_ns: spent.wall_ns,
        cpu_ns: Some(spent.cpu_ns),
        extra: Extra::new(),
    }
}

/// What a record cost. A stage that was not reached took nothing; what a runner
/// that died does not tell apart is all in `measure`.
pub fn costs(search: Spent, build: Cost, measured: Option<&Measured>) -> Costs {
    let (whole, parts) = measured.map_or_else(Default::default, |m| (m.whole, m.parts));
    let rest = |whole: u64, load: u64, check: u64| whole.saturating_sub(load + check);
    let (load, check) = (parts.load, parts.check);
    Costs {
        search: cost(search),
        build,
        load: cost(load),
        measure: cost(Spent {
            wall_ns: rest(whole.wall_ns, load.wall_ns, check.wall_ns),
            cpu_ns: rest(whole.cpu_ns, load.cpu_ns, check.cpu_ns),
        }),
        check: cost(check),
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
