//! A candidate that was simulated, and timed where a processor of its kind was there.
//!
//! Owns the file form: one JSON object a line, so that collecting can append and a cut-off file
//! loses one line: remove it, and the others are read.

use crate::statistics::Statistics;
use analysis::{Features, Score};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What is known of one candidate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The type of the kernel and its shape. Candidates of one group are ranked among themselves.
    pub group: String,
    /// The type of the kernel. A predictor learns from all groups of a kind.
    pub kind: String,
    /// The name of the processor ([`crate::Cpu`]).
    pub cpu: String,
    /// The instruction set of the kernel, such as `x86-avx2`; empty where nobody said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    pub sketch: String,
    /// The schedule, as text.
    pub trace: String,
    pub statistics: Statistics,
    /// What reading its loops and machine code tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Features>,
    /// The measured time: the least, where it was measured in several rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<f64>,
    /// The time of each round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds_ns: Vec<f64>,
    /// What reading its code and simulating it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation_ns: Option<f64>,
    /// What proposed the candidate: `random`, or the name of a strategy.
    pub proposed: String,
}

/// Why a file of samples cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file itself cannot be read.
    File {
        path: PathBuf,
        error: std::io::Error,
    },
    /// A line, counted from 1, is no sample.
    Line {
        path: PathBuf,
        line: usize,
        error: serde_json::Error,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::File { path, error } => write!(f, "{}: {error}", path.display()),
            ReadError::Line { path, line, error } => {
                let path = path.display();
                write!(f, "{path}, line {line}: not a simulated sample: {error}")
            }
        }
    }
}

impl std::error::Error for ReadError {}

impl Sample {
    /// Cycles of the static score; none where the code was not read.
    pub fn static_score(&self) -> Option<f64> {
        self.code.as_ref().map(|f| Score::USUAL.cycles(f))
    }

    /// Writes the sample as one line.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        to.write_all(line.as_bytes())
    }

    /// Reads all samples of a file. Empty lines are passed over.
    ///
    /// # Errors
    /// If the file cannot be read, or if one of its lines is no sample.
    pub fn read_file(path: &Path) -> Result<Vec<Sample>, ReadError> {
        let text = std::fs::read_to_string(path).map_err(|error| ReadError::File {
            path: path.into(),
            error,
        })?;
        let lines = text.lines().zip(1..);
        let lines = lines.filter(|(text, _)| !text.trim().is_empty());
        let read = |(text, line)| {
            serde_json::from_str(text).map_err(|error| ReadError::Line {
                path: path.into(),
                line,
                error,
            })
        };
        lines.map(read).collect()
    }
}

/// Samples with a time, without those whose schedule an earlier one has: what is learned from one must not
/// judge the other.
pub fn timed_once(samples: &[Sample]) -> Vec<&Sample> {
    let mut schedules = BTreeSet::new();
    let timed = samples.iter().filter(|s| s.time_ns.is_some());
    timed
        .filter(|s| schedules.insert((&s.cpu, &s.target, &s.group, &s.sketch, &s.trace)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_survive_a_file_and_a_bad_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.jsonl");
        let timed = Sample {
            group: "conv2d 1x3".into(),
            time_ns: Some(1.5),
            ..Sample::default()
        };
        let all = [timed, Sample::default()];
        let mut text = Vec::new();
        all.iter().for_each(|s| s.write(&mut text).unwrap());
        std::fs::write(&path, &text).unwrap();
        assert_eq!(Sample::read_file(&path).unwrap(), all);
        text.extend(b"\n{\"group\": 1}\n");
        std::fs::write(&path, &text).unwrap();
        let said = Sample::read_file(&path).unwrap_err().to_string();
        assert!(said.contains("samples.jsonl, line 4: "), "{said}");
        let none = Sample::read_file(&folder.path().join("none")).unwrap_err();
        assert!(none.to_string().contains("none: "), "{none}");
    }
}
