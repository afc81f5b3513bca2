//! Tables: recorded answers that can be given again without the hardware.
//!
//! Owns the form of a table: knobs with ordered values, and one answer for each
//! combination of values that was tried. Promises that an answer is the one that
//! was recorded, that a combination without a row has no answer, and that a
//! look-up handles numbers only. Reading T4 files is in [`t4`], reading
//! records in [`records`]. Leaves it to the caller to say that what comes from a
//! table is replayed.

mod records;
mod t4;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::cost::Cost;
use crate::error::StoreError;
use crate::jsonl::JsonLines;
use crate::lookup::RecordQuery;
use crate::outcome::Outcome;
use crate::record::SpentByStage;
use crate::sqlite::Store;

/// A value of a knob.
#[derive(Clone, Debug, PartialEq)]
pub enum KnobValue {
    /// The row does not have this knob, as another algorithm has others.
    Absent,
    Number(f64),
    /// A name, or `true` or `false`.
    Text(String),
}

impl KnobValue {
    /// Absence, then numbers by size, then texts by spelling.
    fn compare(&self, other: &KnobValue) -> Ordering {
        use KnobValue::{Absent, Number, Text};
        match (self, other) {
            (Absent, Absent) => Ordering::Equal,
            (Number(a), Number(b)) => a.total_cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            (Absent, _) | (Number(_), Text(_)) => Ordering::Less,
            (_, Absent) | (Text(_), Number(_)) => Ordering::Greater,
        }
    }
}

impl fmt::Display for KnobValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KnobValue::Absent => f.write_str("-"),
            KnobValue::Number(value) => write!(f, "{value}"),
            KnobValue::Text(text) => f.write_str(text),
        }
    }
}

/// What a row may choose.
#[derive(Clone, Debug, PartialEq)]
pub struct TableKnob {
    pub name: String,
    /// The values that occur in the table, in order, each once. A value's number is its
    /// position.
    pub values: Vec<KnobValue>,
}

/// What was recorded of one combination of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub outcome: Outcome,
    /// Time that getting the answer took when it was recorded.
    pub spent: SpentByStage,
}

/// Recorded answers, by the values of knobs.
#[derive(Clone, Debug)]
pub struct Table {
    source: String,
    knobs: Vec<TableKnob>,
    /// In the order in which they were recorded.
    rows: Vec<(Box<[u64]>, Answer)>,
    /// Position in `rows`.
    by_values: HashMap<Box<[u64]>, usize>,
}

impl Table {
    /// Reads a table from a T4 file, a JSON-lines export or a store; the first two may be
    /// compressed by gzip. `filter` chooses among the records of an export or a store, which
    /// must belong to one task, target and machine; a T4 file is read whole.
    ///
    /// # Errors
    /// [`StoreError::BadTable`] where the content is no table, with its place in the file;
    /// the errors of [`Store::open_to_read`].
    pub fn open(path: impl AsRef<Path>, filter: &RecordQuery<'_>) -> Result<Table, StoreError> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let bad = |problem: Problem| problem.in_file(&shown);
        let content = content(path).map_err(bad)?;
        if content.starts_with(b"SQLite format 3\0") {
            return Table::of_records(&Store::open_to_read(path)?, filter);
        }
        if !is_export(&content) {
            return t4::read(&shown, &content).map_err(bad);
        }
        let store = Store::open_in_memory()?;
        let read = JsonLines::read(&content[..])
            .and_then(|lines| crate::jsonl::import_jsonl(&store, &lines, |_| Ok(())));
        match read {
            Err(StoreError::BadLines { lines, .. }) => Err(bad(Problem {
                place: format!("line {}", lines[0].line),
                reason: lines[0].reason.clone(),
                advice: "give a file as `records export` wrote it",
            })),
            Err(other) => Err(other),
            Ok(_) => records::read(&shown, &store, filter),
        }
    }

    /// The table of the records that `filter` selects, which must belong to one task, target
    /// and machine. A knob is a decision by its name; its values are the numbers of the
    /// choices taken, with the algorithm as one more knob.
    ///
    /// Only what evaluators measured is taken ([`crate::MEASURING`]), and only what says
    /// something about the candidate ([`Outcome::settled`]), of the toolchain of the newest
    /// record: another may have other spaces. Of several answers the oldest of a trial
    /// counts; that of a final only where there is no other, since a search is answered by
    /// trials.
    ///
    /// # Errors
    /// [`StoreError::BadTable`] where no record is selected, or those of several places;
    /// the errors of reading a store.
    pub fn of_records(store: &Store, filter: &RecordQuery<'_>) -> Result<Table, StoreError> {
        records::read(store.path(), store, filter)
    }

    /// The file that the table was read from.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn knobs(&self) -> &[TableKnob] {
        &self.knobs
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows in the order in which they were recorded, with the number of the value of
    /// each knob.
    pub fn iter(&self) -> impl Iterator<Item = (&[u64], &Answer)> {
        self.rows.iter().map(|(values, answer)| (&**values, answer))
    }

    /// The row with the lowest time, of equal ones the first. `None` if none was timed.
    pub fn best(&self) -> Option<(&[u64], &Answer)> {
        let timed = self.iter().filter_map(|(values, answer)| {
            let cost = answer.outcome.cost()?;
            matches!(cost, Cost::Time { .. }).then_some((cost, values, answer))
        });
        let best = timed.reduce(|best, other| match other.0.compare(&best.0) {
            Some(Ordering::Less) => other,
            _ => best,
        });
        best.map(|(_, values, answer)| (values, answer))
    }

    /// What was recorded of these values: the number of the value of each knob. `None` where
    /// there is no such row.
    pub fn outcome(&self, values: &[u64]) -> Option<&Outcome> {
        self.answer(values).map(|answer| &answer.outcome)
    }

    /// As [`Table::outcome`], with what getting the answer took.
    pub fn answer(&self, values: &[u64]) -> Option<&Answer> {
        let row = *self.by_values.get(values)?;
        Some(&self.rows[row].1)
    }
}

/// Why a table cannot be read.
struct Problem {
    /// Where in the file; empty if that is the file as a whole.
    place: String,
    reason: String,
    advice: &'static str,
}

impl Problem {
    fn in_file(self, path: &str) -> StoreError {
        let place = match self.place.is_empty() {
            true => String::new(),
            false => format!(", {}", self.place),
        };
        StoreError::BadTable {
            path: path.to_owned(),
            place,
            reason: self.reason,
            advice: self.advice,
        }
    }
}

/// What is done with a second row of the same values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    /// It is damage.
    Refused,
    /// It is another record of the candidate.
    FirstCounts,
}

/// A row before the values of knobs are numbered.
struct Row {
    /// Where in the file.
    place: String,
    configuration: BTreeMap<String, KnobValue>,
    answer: Answer,
}

/// Numbers the values of rows and makes them a table.
fn numbered(source: &str, rows: Vec<Row>, repeats: Repeats) -> Result<Table, Problem> {
    let mut knobs: BTreeMap<&str, Vec<KnobValue>> = BTreeMap::new();
    for row in &rows {
        for (name, value) in &row.configuration {
            knobs.entry(name).or_default().push(value.clone());
        }
    }
    for values in knobs.values_mut() {
        if values.len() < rows.len() {
            values.push(KnobValue::Absent);
        }
        values.sort_by(KnobValue::compare);
        values.dedup();
    }
    let knobs: Vec<TableKnob> = knobs
        .into_iter()
        .map(|(name, values)| TableKnob {
            name: name.to_owned(),
            values,
        })
        .collect();
    let mut table = Table {
        source: source.to_owned(),
        knobs,
        rows: Vec::with_capacity(rows.len()),
        by_values: HashMap::with_capacity(rows.len()),
    };
    let mut places: Vec<String> = Vec::new();
    for row in rows {
        let values: Box<[u64]> = table
            .knobs
            .iter()
            .filter_map(|knob| number(knob, &row.configuration))
            .collect();
        if let Some(first) = table.by_values.get(&values) {
            if repeats == Repeats::Refused {
                return Err(Problem {
                    place: row.place,
                    reason: format!("the configuration is that of {} again", places[*first]),
                    advice: "keep one of the two",
                });
            }
            continue;
        }
        table.by_values.insert(values.clone(), table.rows.len());
        table.rows.push((values, row.answer));
        places.push(row.place);
    }
    Ok(table)
}

/// The number of the value that a configuration gives a knob.
fn number(knob: &TableKnob, configuration: &BTreeMap<String, KnobValue>) -> Option<u64> {
    let value = configuration.get(&knob.name).unwrap_or(&KnobValue::Absent);
    let found = knob.values.binary_search_by(|v| v.compare(value));
    found.ok().map(|at| at as u64)
}

/// Most bytes of a file once it is decompressed.
const MOST_BYTES: u64 = 2 << 30;

/// The content of a file, decompressed. Of a SQLite database only its beginning.
fn content(path: &Path) -> Result<Vec<u8>, Problem> {
    let whole = |reason: String, advice| Problem {
        place: String::new(),
        reason,
        advice,
    };
    let advice = "give a T4 file, an export of records or a store";
    let cannot = |e: std::io::Error| whole(format!("it cannot be read: {e}"), advice);
    let file = File::open(path).map_err(cannot)?;
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err(whole("it is no regular file".into(), advice));
    }
    let mut file = BufReader::new(file);
    let mut content = Vec::new();
    (&mut file)
        .take(16)
        .read_to_end(&mut content)
        .map_err(cannot)?;
    if content.starts_with(b"SQLite format 3\0") {
        return Ok(content);
    }
    if content.starts_with(&[0x1f, 0x8b]) {
        let begun = std::mem::take(&mut content);
        let mut unzipped = MultiGzDecoder::new(begun.chain(file)).take(MOST_BYTES + 1);
        unzipped.read_to_end(&mut content).map_err(|e| {
            let reason = format!("the compressed data are damaged or cut off: {e}");
            whole(reason, "fetch or compress the file again")
        })?;
    } else {
        let mut rest = file.take(MOST_BYTES + 1);
        rest.read_to_end(&mut content).map_err(cannot)?;
    }
    if content.len() as u64 > MOST_BYTES {
        let reason = format!("it holds more than {} GiB", MOST_BYTES >> 30);
        return Err(whole(reason, "give a smaller table"));
    }
    Ok(content)
}

/// Whether the first line that is not blank is the header of an export.
fn is_export(content: &[u8]) -> bool {
    let mut lines = content.split(|byte| *byte == b'\n');
    let first = lines.find(|line| !line.trim_ascii().is_empty());
    let header = |line| serde_json::from_slice::<serde_json::Value>(line).ok();
    first
        .and_then(header)
        .is_some_and(|line| line["type"] == "header")
}
