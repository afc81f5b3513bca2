//! What a study has finished, in a file that outlives it.
//!
//! Owns the file: JSON lines, the first of which says what the study is.
//! Promises that what was appended is there after a kill, and that another
//! study is never continued.

use super::cell::Finals;
use super::row::Row;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tune::{Error, Result};

/// The file in a study's folder.
const CELLS: &str = "cells.jsonl";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Study(serde_json::Value),
    Cell(Box<Row>),
    Finals(Finals),
}

/// What is finished, and where more of it goes.
#[derive(Default)]
pub struct Saved {
    pub rows: Vec<Row>,
    pub finals: Vec<Finals>,
    file: Option<(File, PathBuf)>,
}

impl Saved {
    /// What the folder holds of the study that `header` describes. A line that a
    /// kill cut off is dropped.
    ///
    /// # Errors
    /// If the folder holds another study, or cannot be written.
    pub fn open(folder: &Path, header: &serde_json::Value) -> Result<Saved> {
        let path = folder.join(CELLS);
        let fail = |e: std::io::Error| Error::new(format!("{}: {e}", path.display()));
        create_dir_all(folder).map_err(fail)?;
        // As it reads back.
        let header: serde_json::Value =
            serde_json::from_str(&header.to_string()).expect("what was printed is JSON");
        let text = match std::fs::read_to_string(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            text => text.map_err(fail)?,
        };
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        let mut saved = Saved::default();
        for (i, line) in text[..whole].lines().enumerate() {
            let line = serde_json::from_str(line).map_err(|e| {
                Error::new(format!("{}, line {}: {e}", path.display(), i + 1))
                    .help("remove that line, or give another --out")
            })?;
            match line {
                Line::Study(other) if other == header => {}
                Line::Study(other) => return Err(another(&path, &other, &header)),
                Line::Cell(row) => saved.rows.push(*row),
                Line::Finals(f) => saved.finals.push(f),
            }
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).write(true).truncate(false);
        let file = file.open(&path).map_err(fail)?;
        file.set_len(whole as u64).map_err(fail)?;
        drop(file);
        let file = OpenOptions::new().append(true).open(&path).map_err(fail)?;
        saved.file = Some((file, path.clone()));
        if whole == 0 {
            saved.write(&Line::Study(header))?;
        }
        Ok(saved)
    }

    pub fn add_row(&mut self, row: Row) -> Result<()> {
        self.write(&Line::Cell(Box::new(row.clone())))?;
        self.rows.push(row);
        Ok(())
    }

    /// Replaces earlier ones of the same task.
    pub fn add_finals(&mut self, finals: Finals) -> Result<()> {
        self.write(&Line::Finals(finals.clone()))?;
        self.finals.push(finals);
        Ok(())
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let Some((file, path)) = &mut self.file else {
            return Ok(());
        };
        let mut text = serde_json::to_string(line).expect("rows have no odd keys");
        text.push('\n');
        let done = file.write_all(text.as_bytes()).and_then(|()| file.flush());
        done.map_err(|e| Error::new(format!("{}: {e}", path.display())))
    }
}

/// The error of a folder with another study; names what differs.
fn another(path: &Path, there: &serde_json::Value, here: &serde_json::Value) -> Error {
    let fields = here.as_object().into_iter().flatten();
    let differs = fields.filter(|(name, value)| there.get(name) != Some(value));
    let names: Vec<&str> = differs.map(|(name, _)| name.as_str()).collect();
    Error::new(format!(
        "{} holds a study with other settings: {}",
        path.display(),
        names.join(", ")
    ))
    .help("give the settings that it was begun with, or another --out")
}
