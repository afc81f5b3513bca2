//! Reading records as a table: see [`Table::of_records`].

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, KnobValue, Problem, Repeats, Row, Table, numbered};
use crate::error::StoreError;
use crate::lookup::RecordQuery;
use crate::record::{MEASURING, Record};
use crate::sqlite::Store;
use crate::t4;

/// Places that an error lists before it stops.
const PLACES: usize = 5;

pub(super) fn read(
    source: &str,
    store: &Store,
    filter: &RecordQuery<'_>,
) -> Result<Table, StoreError> {
    let bad = |reason, advice| {
        let place = String::new();
        let problem = Problem {
            place,
            reason,
            advice,
        };
        problem.in_file(source)
    };
    let mut newest: Option<(u64, String)> = None;
    let mut places: BTreeSet<[String; 3]> = BTreeSet::new();
    visit(store, filter, |record| {
        let created = record.created_unix_ms;
        if newest.as_ref().is_none_or(|(ms, _)| created >= *ms) {
            newest = Some((created, record.toolchain.clone()));
        }
        places.insert([record.task, record.target, record.machine]);
    })?;
    let Some((_, toolchain)) = newest else {
        let reason = "no record that is selected was measured".to_owned();
        return Err(bad(reason, "`records counts` lists what there is"));
    };
    if places.len() > 1 {
        let listed = places.iter().take(PLACES).map(|[task, target, machine]| {
            format!("\n  task {task} on {target}, machine {machine}")
        });
        let reason = format!(
            "the records belong to {} places:{}",
            places.len(),
            listed.collect::<String>()
        );
        return Err(bad(reason, "choose one task, target and machine"));
    }
    // Trials come first, so that of a candidate's records the oldest trial is the first.
    let mut rows = Vec::new();
    for final_ in [false, true] {
        visit(store, filter, |record| {
            if record.final_ == final_ && record.toolchain == toolchain {
                rows.push(row(record));
            }
        })?;
    }
    numbered(source, rows, Repeats::FirstCounts).map_err(|problem| problem.in_file(source))
}

/// Hands on the records whose outcomes can be replayed.
fn visit(
    store: &Store,
    filter: &RecordQuery<'_>,
    mut visitor: impl FnMut(Record),
) -> Result<(), StoreError> {
    store.visit_records(filter, |_, record| {
        if MEASURING.contains(&record.evaluator.as_str()) && record.outcome.settled() {
            visitor(record);
        }
        Ok(())
    })
}

fn row(record: Record) -> Row {
    let decisions = t4::decisions_by_name(&record);
    let mut configuration: BTreeMap<String, KnobValue> = decisions
        .map(|(name, index)| (name, KnobValue::Number(index as f64)))
        .collect();
    let algorithm = KnobValue::Text(record.algorithm.clone());
    configuration.insert(t4::ALGORITHM.to_owned(), algorithm);
    Row {
        place: record.identity().to_string(),
        configuration,
        answer: Answer {
            outcome: record.outcome,
            spent: record.spent,
        },
    }
}
