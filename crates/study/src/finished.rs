//! What a study has finished, in a file that outlives it.
//!
//! Owns the file: JSON lines, the first of which says what the study is.
//! Promises that what was appended is there after a kill, and that another
//! study is never continued.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use tune::{Error, Result};

/// The file in a study's folder.
const CELLS: &str = "cells.jsonl";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line<T> {
    Study(serde_json::Value),
    #[serde(untagged)]
    Entry(T),
}

/// What is finished, and where more of it goes; nowhere by default.
pub struct Finished<T> {
    pub entries: Vec<T>,
    file: Option<(File, PathBuf)>,
}

impl<T> Default for Finished<T> {
    fn default() -> Finished<T> {
        Finished {
            entries: vec![],
            file: None,
        }
    }
}

impl<T: Serialize + DeserializeOwned> Finished<T> {
    /// What the folder holds of the study that `header` describes. A line that a
    /// kill cut off is dropped.
    ///
    /// # Errors
    /// If the folder holds another study, or cannot be written.
    pub fn open(folder: &Path, header: &serde_json::Value) -> Result<Finished<T>> {
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
        let mut finished = Finished::default();
        for (i, line) in text[..whole].lines().enumerate() {
            let line: Line<T> = serde_json::from_str(line).map_err(|e| {
                Error::new(format!("{}, line {}: {e}", path.display(), i + 1))
                    .help("remove that line, or give another --out")
            })?;
            match line {
                Line::Study(other) if other == header => {}
                Line::Study(other) => return Err(another(&path, &other, &header)),
                Line::Entry(entry) => finished.entries.push(entry),
            }
        }
        let mut options = OpenOptions::new();
        let file = options.create(true).write(true).truncate(false);
        let file = file.open(&path).map_err(fail)?;
        file.set_len(whole as u64).map_err(fail)?;
        drop(file);
        let file = OpenOptions::new().append(true).open(&path).map_err(fail)?;
        finished.file = Some((file, path.clone()));
        if whole == 0 {
            finished.write(&serde_json::json!({ "study": header }))?;
        }
        Ok(finished)
    }

    /// Adds what was finished; it is in the file before it is among the entries.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&mut self, entry: T) -> Result<()> {
        self.write(&entry)?;
        self.entries.push(entry);
        Ok(())
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let Some((file, path)) = &mut self.file else {
            return Ok(());
        };
        let mut text = serde_json::to_string(line).expect("entries have no odd keys");
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
