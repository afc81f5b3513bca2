//! What a store knows of similar tasks, for strategies that learn from them.
//!
//! The store has the program of a task and the decisions of its records. Both together give the points again, so that
//! models see of them what they see of own points.

use crate::calibration::spread;
use crate::record::PROGRAM;
use crate::search::Subject;
use crate::trial::AnswerPlace;
use ir::Target;
use search::{Allowed, Point, SimilarTask, Space};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Outcome, Record, RecordQuery, Store, StoreError, TIMED};

/// Similar tasks that are learned from, at most, and answers of each.
const TASKS: usize = 4;
const ANSWERS: usize = 64;
/// Fewest answers of a task that says anything.
const FEWEST: usize = 8;
/// Similar tasks that are looked at, as most may have no record here.
const NEAR: usize = 16;

/// What similar tasks are looked up for.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub task: &'a str,
    pub subject: Option<&'a Subject>,
    pub place: &'a AnswerPlace,
    pub allowed: Allowed,
    pub tolerance: f64,
    /// The number of the last record that counts; none for all there are.
    pub until: Option<i64>,
}

/// Similar tasks, and the number of the last record that was looked at.
#[derive(Clone, Debug, Default)]
pub struct Similar {
    pub tasks: Arc<[SimilarTask]>,
    pub until: i64,
}

/// How far the sizes of two tasks of one operator are apart: the sum of the logarithms of the
/// ratios of their arguments.
fn distance(a: &store::Task, b: &store::Task) -> f64 {
    let of = |name: &String| match (a.args.get(name), b.args.get(name)) {
        (Some(store::Arg::Int(a)), Some(store::Arg::Int(b))) => {
            ((1 + a.abs()) as f64 / (1 + b.abs()) as f64).ln().abs()
        }
        (a, b) => f64::from(u8::from(a != b)),
    };
    let names = a.args.keys().chain(b.args.keys());
    names.map(of).sum()
}

/// The measured tasks that are most like one, the most similar first; none of a table.
///
/// # Errors
/// If the store cannot be read.
pub fn similar(store: &Store, wanted: &Wanted<'_>) -> Result<Similar, StoreError> {
    let all = store.tasks()?;
    let own = all.iter().find(|t| t.key == wanted.task);
    let (Some(task), Some(subject)) = (own, wanted.subject) else {
        return Ok(Similar::default());
    };
    let others = all.iter().filter(|t| t.op == task.op && t.key != task.key);
    let mut near: Vec<(f64, &store::Task)> = others.map(|t| (distance(task, t), t)).collect();
    near.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.key.cmp(&b.1.key)));
    let (mut tasks, mut until) = (vec![], 0);
    for (_, t) in near.into_iter().take(NEAR) {
        let (task, last) = answers(store, t, &subject.target, ANSWERS, wanted)?;
        tasks.extend(task);
        until = until.max(last);
        if tasks.len() == TASKS {
            break;
        }
    }
    Ok(Similar {
        tasks: tasks.into(),
        until,
    })
}

/// At most `most` answers of a task as points of its space, none if few of its records are points of it; and the
/// number of its last record.
///
/// # Errors
/// If the store cannot be read.
pub fn answers(
    store: &Store,
    t: &store::Task,
    target: &Target,
    most: usize,
    wanted: &Wanted<'_>,
) -> Result<(Option<SimilarTask>, i64), StoreError> {
    let query = RecordQuery {
        task: Some(&t.key),
        target: Some(&wanted.place.target),
        machine: Some(&wanted.place.machine),
        evaluator: Some(TIMED),
        ..RecordQuery::default()
    };
    let (mut records, mut last) = (Vec::new(), 0);
    store.visit_records(&query, |id, r| {
        let counts = wanted.until.is_none_or(|until| id.0 <= until);
        if counts && !matches!(r.outcome, Outcome::Unanswered { .. }) {
            last = id.0;
            records.push(r);
        }
        Ok(())
    })?;
    // Older versions did not store it.
    let text = t.extra.get(PROGRAM).and_then(Value::as_str);
    let program = text.and_then(|text| ir::text::parse(text).ok());
    let Some(program) = program.filter(|_| records.len() >= FEWEST) else {
        return Ok((None, last));
    };
    let space = search::space(&program, target, wanted.allowed);
    let mut costs: BTreeMap<Point, f64> = BTreeMap::new();
    for r in spread(records, most) {
        if let Some(point) = placed(&r, &space) {
            let ns = r.outcome.median_ns();
            let ns = ns.filter(|_| r.outcome.within(wanted.tolerance));
            costs.insert(point, ns.map_or(f64::INFINITY, |ns| ns as f64));
        }
    }
    let (points, costs): (Vec<Point>, Vec<f64>) = costs.into_iter().unzip();
    let task = (points.len() >= FEWEST).then(|| SimilarTask {
        key: t.key.clone(),
        program,
        target: target.clone(),
        space,
        points,
        costs,
    });
    Ok((task, last))
}

/// The point that a record's decisions are.
fn placed(r: &Record, space: &Space) -> Option<Point> {
    let sketch = space.sketches.iter().position(|s| s.name == r.algorithm)?;
    let decisions = &space.sketches[sketch].decisions;
    let (_, known) = r.decisions.split_first()?;
    let same = known.len() == decisions.len()
        && known
            .iter()
            .zip(decisions)
            .all(|(k, d)| k.cardinality == d.cardinality());
    let values = known.iter().map(|k| k.index).collect();
    let p = Point { sketch, values };
    (same && space.within_limits(&p)).then_some(p)
}

/// What the lowered programs of points tell models.
pub fn read_columns(subject: &search::Subject<'_>, points: &[Point]) -> Vec<Option<Vec<f64>>> {
    let one = |p: &Point| {
        let candidate = subject.space.candidate(subject.program, p).ok()?;
        build::read_columns(subject.program, &candidate.trace, subject.target).ok()
    };
    points.iter().map(one).collect()
}
