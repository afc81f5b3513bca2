//! The store as JSON lines: one typed object a line.
//!
//! Owns the line format. A file starts with a `header` line; then `task`,
//! `target`, `machine`, `run`, `record` and `event` lines, each after what it
//! refers to, fields in a fixed order. Promises: importing an export into an
//! empty store and exporting again gives the same bytes; importing twice adds
//! nothing; files may be concatenated; a last line cut off in writing is a
//! warning; any other bad line is reported by its number and the rest is
//! imported; fields of a newer version survive.

use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::event::Event;
use crate::lookup::Filter;
use crate::record::{Extra, Machine, Record, Run, TargetKey, Task};
use crate::sqlite::Store;

const FORMAT: &str = "tunesmith-records";
const FORMAT_VERSION: u32 = 1;

/// Lines an import commits at once.
const CHUNK: usize = 1000;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    #[serde(flatten)]
    extra: Extra,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum LineOut<'a> {
    Header(&'a Header),
    Task(&'a Task),
    Target(&'a TargetKey),
    Machine(&'a Machine),
    Run(&'a Run),
    Record(&'a Record),
    Event(&'a Event),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum LineIn {
    Header(Header),
    Task(Task),
    Target(TargetKey),
    Machine(Machine),
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

/// A line that was not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// From 1.
    pub line: u64,
    pub reason: String,
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
    /// Lines that do not parse, contradict the store, or refer to what is missing.
    pub bad: Vec<BadLine>,
    /// The last line, when it was cut off in writing.
    pub torn: Option<BadLine>,
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
        store.visit_records(&Filter::default(), |_, record| {
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

/// Adds the lines of `reader` to the store. An error (disk, lock) leaves whole
/// chunks imported; importing again completes them.
pub fn import_jsonl(store: &Store, mut reader: impl BufRead) -> Result<Imported, StoreError> {
    let mut imported = Imported::default();
    let mut number = 0;
    loop {
        let more = store.transact("importing", || {
            for _ in 0..CHUNK {
                let mut line = Vec::new();
                let length =
                    reader
                        .read_until(b'\n', &mut line)
                        .map_err(|source| StoreError::Io {
                            doing: "reading the import",
                            source,
                        })?;
                if length == 0 {
                    return Ok(false);
                }
                number += 1;
                import_line(store, &line, number, &mut imported)?;
            }
            Ok(true)
        })?;
        if !more {
            return Ok(imported);
        }
    }
}

fn import_line(
    store: &Store,
    bytes: &[u8],
    number: u64,
    imported: &mut Imported,
) -> Result<(), StoreError> {
    if bytes.trim_ascii().is_empty() {
        return Ok(());
    }
    let line: LineIn = match serde_json::from_slice(bytes) {
        Ok(line) => line,
        Err(e) if e.is_eof() && !bytes.ends_with(b"\n") => {
            let reason = "the last line was cut off in writing and is left out".to_owned();
            imported.torn = Some(BadLine {
                line: number,
                reason,
            });
            return Ok(());
        }
        Err(e) => {
            imported.bad.push(BadLine {
                line: number,
                reason: parse_reason(&e),
            });
            return Ok(());
        }
    };
    match put(store, line, imported) {
        Ok(()) => Ok(()),
        Err(
            e @ (StoreError::UnknownKey { .. }
            | StoreError::Conflict { .. }
            | StoreError::Invalid { .. }),
        ) => {
            imported.bad.push(BadLine {
                line: number,
                reason: e.to_string(),
            });
            Ok(())
        }
        Err(e) => Err(e),
    }
}

/// The parser's message with its column only: its line counts from this line.
fn parse_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((reason, _)) => format!("{reason} (column {})", error.column()),
        None => text,
    }
}

fn put(store: &Store, line: LineIn, imported: &mut Imported) -> Result<(), StoreError> {
    let new = match line {
        LineIn::Header(header) if header.format != FORMAT => {
            return Err(StoreError::Invalid {
                what: "header",
                key: header.format,
                reason: format!("expected the format `{FORMAT}`"),
            });
        }
        LineIn::Header(_) => return Ok(()),
        LineIn::Task(task) => store.put_task(&task)?,
        LineIn::Target(target) => store.put_target(&target)?,
        LineIn::Machine(machine) => store.put_machine(&machine)?,
        LineIn::Run(run) => store.put_run(&run)?,
        LineIn::Event(event) => store.put_event(&event)?,
        LineIn::Record(record) => {
            let (_, new) = store.put_record(&record)?;
            imported.added_records += u64::from(new);
            new
        }
    };
    match new {
        true => imported.added += 1,
        false => imported.known += 1,
    }
    Ok(())
}
