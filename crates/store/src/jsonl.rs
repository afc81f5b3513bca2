//! The store as JSON lines: one typed object a line.
//!
//! Owns the line format. A file starts with a `header` line; then `task`,
//! `target`, `machine`, `run`, `record` and `event` lines, each after what it
//! refers to, fields in a fixed order. Promises: importing an export into an
//! empty store and exporting again gives the same bytes; importing twice adds
//! nothing; files may be concatenated; an import adds all of its lines or, where
//! one of them is bad, none, and says which are; fields of a newer version survive.

use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::event::Event;
use crate::lookup::RecordQuery;
use crate::record::{Extra, MachineKey, Record, Run, TargetKey, Task};
use crate::sqlite::Store;

const FORMAT: &str = "tunesmith-records";
const FORMAT_VERSION: u32 = 1;

/// The longest line that is read; those of an export are far shorter.
const LINE_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    #[serde(flatten)]
    extra: Extra,
}

impl Header {
    fn judge(&self) -> Result<(), String> {
        let Header {
            format, version, ..
        } = self;
        if format != FORMAT {
            return Err(format!("the format is `{format}`, expected is `{FORMAT}`"));
        }
        if *version != FORMAT_VERSION {
            return Err(format!(
                "the format has version {version}, this program reads {FORMAT_VERSION}"
            ));
        }
        Ok(())
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum LineOut<'a> {
    Header(&'a Header),
    Task(&'a Task),
    Target(&'a TargetKey),
    Machine(&'a MachineKey),
    Run(&'a Run),
    Record(&'a Record),
    Event(&'a Event),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Header(Header),
    Task(Task),
    Target(TargetKey),
    Machine(MachineKey),
    Run(Run),
    Record(Box<Record>),
    Event(Event),
}

/// What an export wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub records: u64,
    pub events: u64,
    /// All lines, the header included.
    pub lines: u64,
}

/// A line that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// From 1.
    pub line: u64,
    pub reason: String,
}

/// The lines of an export, read whole; of one that cannot be parsed, why not.
pub struct JsonLines {
    /// With their numbers, blank ones left out.
    lines: Vec<(u64, Result<Line, String>)>,
    /// Whether what was read ends after them.
    whole: bool,
}

/// What an import found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Lines that added something.
    pub added: u64,
    /// Records among those.
    pub added_records: u64,
    /// Lines whose content was in the store already.
    pub known: u64,
}

/// What a line says that only those who own its meaning can judge.
#[derive(Clone, Copy, Debug)]
pub enum Claim<'a> {
    Task(&'a Task),
    Record(&'a Record),
}

/// Writes the whole store, as it is at one moment, to `writer`.
pub fn export_jsonl(store: &Store, writer: &mut impl Write) -> Result<Exported, StoreError> {
    store.snapshot("exporting", || {
        let mut exported = Exported::default();
        let header = Header {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            extra: Extra::new(),
        };
        put_line(writer, &LineOut::Header(&header), &mut exported)?;
        for task in store.tasks()? {
            put_line(writer, &LineOut::Task(&task), &mut exported)?;
        }
        for target in store.targets()? {
            put_line(writer, &LineOut::Target(&target), &mut exported)?;
        }
        for machine in store.machines()? {
            put_line(writer, &LineOut::Machine(&machine), &mut exported)?;
        }
        let runs = store.runs()?;
        for run in &runs {
            put_line(writer, &LineOut::Run(run), &mut exported)?;
        }
        store.visit_records(&RecordQuery::default(), |_, record| {
            exported.records += 1;
            put_line(writer, &LineOut::Record(&record), &mut exported)
        })?;
        for run in &runs {
            for event in store.events(&run.run_id)? {
                exported.events += 1;
                put_line(writer, &LineOut::Event(&event), &mut exported)?;
            }
        }
        writer.flush().map_err(|source| StoreError::Io {
            doing: "writing the export",
            source,
        })?;
        Ok(exported)
    })
}

fn put_line(
    writer: &mut impl Write,
    line: &LineOut<'_>,
    exported: &mut Exported,
) -> Result<(), StoreError> {
    exported.lines += 1;
    let mut bytes = serde_json::to_vec(line).map_err(|e| StoreError::Invalid {
        what: "line",
        key: exported.lines.to_string(),
        reason: e.to_string(),
    })?;
    bytes.push(b'\n');
    writer.write_all(&bytes).map_err(|source| StoreError::Io {
        doing: "writing the export",
        source,
    })
}

impl JsonLines {
    /// Reads to the end, or to the first line that is longer than any export's.
    ///
    /// # Errors
    /// [`StoreError::BadLines`] if the first line is no header of this format and version;
    /// [`StoreError::Io`] if not all can be read.
    pub fn read(mut reader: impl BufRead) -> Result<JsonLines, StoreError> {
        let (mut lines, mut whole) = (Vec::new(), false);
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            let mut limited = reader.by_ref().take(LINE_BYTES + 1);
            let read = limited.read_until(b'\n', &mut bytes);
            let read = read.map_err(|source| StoreError::Io {
                doing: "reading the import",
                source,
            })?;
            if read == 0 {
                whole = true;
                break;
            }
            let long = read as u64 > LINE_BYTES;
            if !long && bytes.trim_ascii().is_empty() {
                continue;
            }
            let line = match long {
                true => Err(format!("the line has more than {} MiB", LINE_BYTES >> 20)),
                false => parse(bytes.strip_suffix(b"\n").unwrap_or(&bytes)),
            };
            if lines.is_empty() {
                begins(number, &line)?;
            }
            lines.push((number, line));
            if long {
                break;
            }
        }
        match lines.is_empty() {
            true => Err(no_export(1, no_header())),
            false => Ok(JsonLines { lines, whole }),
        }
    }

    /// Whether all would be well without the last line, which is this one.
    fn ends_with_only(&self, bad: &[BadLine]) -> bool {
        match (bad, self.lines.last()) {
            ([bad], Some((last, _))) => self.whole && bad.line == *last && self.lines.len() > 1,
            _ => false,
        }
    }
}

/// Refuses what does not begin as an export.
fn begins(number: u64, first: &Result<Line, String>) -> Result<(), StoreError> {
    let problem = match first {
        Ok(Line::Header(header)) => header.judge(),
        _ => Err(no_header()),
    };
    problem.map_err(|reason| no_export(number, reason))
}

fn no_export(line: u64, reason: String) -> StoreError {
    StoreError::BadLines {
        lines: vec![BadLine { line, reason }],
        torn: false,
    }
}

fn no_header() -> String {
    format!("there is no header of the format `{FORMAT}`")
}

/// Adds lines to the store, all or none. `judge` says why a claim is not to be believed.
///
/// # Errors
/// [`StoreError::BadLines`] with every line that does not parse, contradicts the store,
/// refers to what is missing, or is not believed.
pub fn import_jsonl(
    store: &Store,
    lines: &JsonLines,
    judge: impl Fn(Claim<'_>) -> Result<(), String>,
) -> Result<Imported, StoreError> {
    let mut imported = Imported::default();
    let mut bad = Vec::new();
    store.transact("importing", || {
        for (number, line) in &lines.lines {
            let put = match line {
                Ok(line) => put(store, line, &judge, &mut imported)?,
                Err(reason) => Err(reason.clone()),
            };
            if let Err(reason) = put {
                bad.push(BadLine {
                    line: *number,
                    reason,
                });
            }
        }
        match bad.is_empty() {
            true => Ok(imported),
            false => Err(StoreError::BadLines {
                torn: lines.ends_with_only(&bad),
                lines: bad,
            }),
        }
    })
}

fn parse(bytes: &[u8]) -> Result<Line, String> {
    serde_json::from_slice(bytes).map_err(|e| match e.is_eof() {
        true => "the line is cut off".to_owned(),
        false => parse_reason(&e),
    })
}

/// The parser's message with its column only: its line counts from this line.
fn parse_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((reason, _)) => format!("{reason} (column {})", error.column()),
        None => text,
    }
}

/// Stores what a line says; inside, why that is refused.
fn put(
    store: &Store,
    line: &Line,
    judge: impl Fn(Claim<'_>) -> Result<(), String>,
    imported: &mut Imported,
) -> Result<Result<(), String>, StoreError> {
    let judged = match line {
        Line::Header(header) => header.judge(),
        Line::Task(task) => judge(Claim::Task(task)),
        Line::Record(record) => judge(Claim::Record(record)),
        _ => Ok(()),
    };
    if judged.is_err() {
        return Ok(judged);
    }
    let new = match line {
        Line::Header(_) => return Ok(Ok(())),
        Line::Task(task) => store.put_task(task),
        Line::Target(target) => store.put_target(target),
        Line::Machine(machine) => store.put_machine(machine),
        Line::Run(run) => store.put_run(run),
        Line::Event(event) => store.put_event(event),
        Line::Record(record) => store.put_record(record).map(|(_, new)| {
            imported.added_records += u64::from(new);
            new
        }),
    };
    match new {
        Ok(true) => imported.added += 1,
        Ok(false) => imported.known += 1,
        Err(
            e @ (StoreError::UnknownKey { .. }
            | StoreError::Conflict { .. }
            | StoreError::Invalid { .. }),
        ) => return Ok(Err(e.to_string())),
        Err(e) => return Err(e),
    }
    Ok(Ok(()))
}
