//! The finished cells of a study of policies.

use super::cell::Finals;
use super::finished::Finished;
use super::row::Row;
use serde::{Deserialize, Serialize};
use std::path::Path;
use tune::Result;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Entry {
    Cell(Box<Row>),
    Finals(Finals),
}

/// What is finished, and where more of it goes.
#[derive(Default)]
pub struct Saved {
    pub rows: Vec<Row>,
    pub finals: Vec<Finals>,
    finished: Finished<Entry>,
}

impl Saved {
    /// What the folder holds of the study that `header` describes.
    ///
    /// # Errors
    /// As [`Finished::open`].
    pub fn open(folder: &Path, header: &serde_json::Value) -> Result<Saved> {
        let mut saved = Saved {
            finished: Finished::open(folder, header)?,
            ..Saved::default()
        };
        for entry in saved.finished.entries.drain(..) {
            match entry {
                Entry::Cell(row) => saved.rows.push(*row),
                Entry::Finals(f) => saved.finals.push(f),
            }
        }
        Ok(saved)
    }

    pub fn add_row(&mut self, row: Row) -> Result<()> {
        self.finished.add(Entry::Cell(Box::new(row.clone())))?;
        self.rows.push(row);
        Ok(())
    }

    /// Replaces earlier ones of the same task.
    pub fn add_finals(&mut self, finals: Finals) -> Result<()> {
        self.finished.add(Entry::Finals(finals.clone()))?;
        self.finals.push(finals);
        Ok(())
    }
}
