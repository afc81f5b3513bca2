//! Export to T4, the auto-tuning community's result format (version 1.0.0 of
//! its results schema).
//!
//! Owns the mapping of outcomes to T4. A T4 file is one tunable kernel on one
//! device, so an export is of one task, target and machine. Only what was
//! tried is written: a score, a filter's skip or no answer is no result of a run, and is
//! counted instead. Promises that no time is written for a candidate that has
//! none.

use std::collections::BTreeSet;
use std::io::Write;

use serde_json::{Map, Value, json};

use crate::error::StoreError;
use crate::lookup::{RecordPlace, RecordQuery};
use crate::outcome::{Outcome, Stage};
use crate::record::Record;
use crate::sqlite::Store;

/// What an export wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct T4Exported {
    pub results: u64,
    /// Records that are no result of a run: scored, skipped, unanswered, or of an unknown kind.
    pub left_out: u64,
}

/// How T4 names what went wrong.
struct Verdict {
    /// The `invalidity` of a result.
    invalidity: &'static str,
    /// What stands for the time when there is none, as existing readers expect.
    marker: &'static str,
}

/// Writes the records of `place` as one T4 document. Configurations are the
/// index of each decision by name, with the algorithm; equal names of one trace
/// are told apart by `#2`, `#3`, ... Times are milliseconds.
pub fn export_t4(
    store: &Store,
    place: &RecordPlace<'_>,
    takes: impl Fn(&Record) -> bool,
    writer: &mut impl Write,
) -> Result<T4Exported, StoreError> {
    let task = store
        .task(place.task)?
        .ok_or_else(|| StoreError::UnknownKey {
            what: "task",
            key: place.task.to_owned(),
        })?;
    let machine = store.machine(place.machine)?;
    let metadata = json!({
        // The spelling of the format's published data sets, which readers compare.
        "timeunit": "miliseconds",
        "generator": "tunesmith",
        "kernel": task.op,
        "task": task.key,
        "task_text": task.text,
        "target": place.target,
        "machine": place.machine,
        "machine_description": machine.map(|m| m.description),
        "objective": "median of the runtimes",
    });
    let doing = "writing the T4 export";
    let io = |source| StoreError::Io { doing, source };
    write!(writer, "{{\n\"metadata\": {metadata},\n\"results\": [").map_err(io)?;
    let mut exported = T4Exported::default();
    let filter = RecordQuery {
        task: Some(place.task),
        target: Some(place.target),
        machine: Some(place.machine),
        ..RecordQuery::default()
    };
    store.visit_records(&filter, |_, record| {
        if !takes(&record) {
            return Ok(());
        }
        let Some(result) = result(&record) else {
            exported.left_out += 1;
            return Ok(());
        };
        let separator = if exported.results == 0 { "" } else { "," };
        exported.results += 1;
        write!(writer, "{separator}\n{result}").map_err(io)
    })?;
    write!(writer, "\n],\n\"schema_version\": \"1.0.0\"\n}}\n").map_err(io)?;
    writer.flush().map_err(io)?;
    Ok(exported)
}

fn result(record: &Record) -> Option<Value> {
    let ms = |ns: u64| ns as f64 / 1e6;
    let spent = &record.spent;
    let mut times = json!({
        "compilation": ms(spent.build.wall_ns),
        "framework": ms(spent.load.wall_ns),
        "search_algorithm": ms(spent.search.wall_ns),
        "validation": ms(spent.check.wall_ns),
    });
    let failure = failure(&record.outcome);
    let (invalidity, time) = match (&record.outcome, failure) {
        (
            Outcome::Timed {
                samples_ns,
                conditions,
                ..
            },
            _,
        ) => {
            let scale = conditions.scale.unwrap_or(1.0);
            times["runtimes"] = samples_ns.iter().map(|ns| ms(*ns) * scale).collect();
            let median = record.outcome.median_ns()?;
            (
                "correct",
                json!({"name": "time", "value": ms(median), "unit": "ms"}),
            )
        }
        (_, Some(verdict)) => (
            verdict.invalidity,
            json!({"name": "time", "value": verdict.marker, "unit": ""}),
        ),
        (_, None) => return None,
    };
    Some(json!({
        "timestamp": timestamp(record.created_unix_ms),
        "evaluator": record.evaluator,
        "configuration": configuration(record),
        "times": times,
        "invalidity": invalidity,
        "correctness": u8::from(invalidity == "correct"),
        "measurements": [time],
        "objectives": ["time"],
    }))
}

fn failure(outcome: &Outcome) -> Option<Verdict> {
    let verdict = |invalidity, marker| Some(Verdict { invalidity, marker });
    match outcome {
        Outcome::Timed { .. }
        | Outcome::Scored { .. }
        | Outcome::Skipped { .. }
        | Outcome::Unanswered { .. }
        | Outcome::Unknown(_) => None,
        Outcome::Rejected { .. } => verdict("constraints", "InvalidConfig"),
        Outcome::Wrong { .. } => verdict("correctness", "RuntimeFailedConfig"),
        Outcome::TimedOut { stage, .. } => match stage {
            Stage::Build => verdict("timeout", "CompilationFailedConfig"),
            _ => verdict("timeout", "RuntimeFailedConfig"),
        },
        Outcome::Crashed { stage, .. } | Outcome::OutOfMemory { stage } => match stage {
            Stage::Build => verdict("compile", "CompilationFailedConfig"),
            _ => verdict("runtime", "RuntimeFailedConfig"),
        },
    }
}

fn configuration(record: &Record) -> Map<String, Value> {
    let algorithm = (ALGORITHM.to_owned(), Value::from(record.algorithm.clone()));
    let decisions = decisions_by_name(record);
    let decisions = decisions.map(|(name, index)| (name, Value::from(index)));
    std::iter::once(algorithm).chain(decisions).collect()
}

/// The name of the algorithm among the decisions of a configuration.
pub(crate) const ALGORITHM: &str = "algorithm";

/// The choices taken, each under a name of its own: equal names of one trace, and one equal
/// to [`ALGORITHM`], are told apart by `#2`, `#3`, ...
pub(crate) fn decisions_by_name(record: &Record) -> impl Iterator<Item = (String, u64)> {
    let mut taken = BTreeSet::from([ALGORITHM.to_owned()]);
    record.decisions.iter().map(move |decision| {
        let mut name = decision.name.clone();
        let mut copy = 1;
        while !taken.insert(name.clone()) {
            copy += 1;
            name = format!("{}#{copy}", decision.name);
        }
        (name, decision.index)
    })
}

/// `2023-06-26 13:07:07.553000+00:00`, by the civil calendar: years are counted
/// from March, so that the leap day comes last.
fn timestamp(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01; eras of 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{ms:03}000+00:00",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values from GNU date.
    #[test]
    fn timestamps_follow_the_calendar() {
        assert_eq!(timestamp(0), "1970-01-01 00:00:00.000000+00:00");
        assert_eq!(
            timestamp(951_782_399_999),
            "2000-02-28 23:59:59.999000+00:00"
        );
        assert_eq!(
            timestamp(951_868_800_000),
            "2000-03-01 00:00:00.000000+00:00"
        );
        assert_eq!(
            timestamp(1_687_784_827_553),
            "2023-06-26 13:07:07.553000+00:00"
        );
        assert_eq!(
            timestamp(1_735_689_599_001),
            "2024-12-31 23:59:59.001000+00:00"
        );
    }
}
