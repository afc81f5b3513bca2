//! Rates in a file: a [`Score`] that was fitted on one machine, with what it was fitted on.
//!
//! The file is JSON. It begins with its format and its version, so that a foreign file and a newer
//! one are told from a damaged one.

use crate::score::Score;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

const FORMAT: &str = "tunesmith-rates";
/// The version that this program writes, and the newest that it reads.
const VERSION: u64 = 1;

/// How every file of rates begins.
pub const RATES_START: &str = "{\n  \"format\": \"tunesmith-rates\"";

/// Fitted rates and where they come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Identity of the machine whose times they were fitted on, and its name for people.
    pub machine: String,
    pub machine_name: String,
    /// LLVM's name of the processor whose cycles were counted.
    pub score_cpu: String,
    /// Threads of the kernels that were timed.
    pub threads: u32,
    pub tasks: usize,
    pub points: usize,
    pub fitted_unix_ms: u64,
    /// None where all points are of one task: then no task can be left out.
    pub reached: Option<Reached>,
    pub rates: Score,
}

/// How well the fit ranks the points of tasks that were left out of it, as means over the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// Rank correlation of scores and times.
    pub spearman: f64,
    /// Times of the ten fastest points over those of the ten of least score.
    pub ratio_10: f64,
    /// The time of the point of least score over the least time; a geometric mean.
    pub first: f64,
}

/// Why a text gives no rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is something else.
    Foreign,
    /// It has this version, and the program is older.
    Newer(u64),
    /// It is a file of rates that lacks something, or holds what no rate can be.
    Damaged(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Foreign => write!(f, "it is no file of rates"),
            Unreadable::Newer(version) => write!(
                f,
                "it has version {version}, and this program reads rates up to version {VERSION}"
            ),
            Unreadable::Damaged(why) => write!(f, "the rates are damaged: {why}"),
        }
    }
}

#[derive(Serialize)]
struct File<'a> {
    format: &'a str,
    version: u64,
    #[serde(flatten)]
    rates: &'a Rates,
}

impl Rates {
    /// The file's text. Rates that are [`Score::rounded`] parse back equal.
    pub fn text(&self) -> String {
        let file = File {
            format: FORMAT,
            version: VERSION,
            rates: self,
        };
        let text = serde_json::to_string_pretty(&file);
        text.expect("numbers and texts have a JSON form") + "\n"
    }

    /// Reads what [`Rates::text`] wrote.
    ///
    /// # Errors
    /// If the text is something else, of a newer version, or damaged.
    pub fn parse(text: &str) -> Result<Rates, Unreadable> {
        let damaged = |e: &dyn fmt::Display| Unreadable::Damaged(e.to_string());
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(e) if text.starts_with(RATES_START) => return Err(damaged(&e)),
            Err(_) => return Err(Unreadable::Foreign),
        };
        if value["format"] != FORMAT {
            return Err(Unreadable::Foreign);
        }
        match value["version"].as_u64() {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => return Err(Unreadable::Newer(newer)),
            _ => return Err(damaged(&"the version is no number from 1")),
        }
        let rates: Rates = serde_json::from_value(value).map_err(|e| damaged(&e))?;
        let all = rates.rates.all();
        if all.iter().any(|r| !r.is_finite() || *r < 0.0) {
            return Err(damaged(&"a rate is less than 0"));
        }
        if all.iter().all(|r| *r == 0.0) {
            return Err(damaged(&"all rates are 0"));
        }
        Ok(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> Rates {
        Rates {
            machine: "0123".into(),
            machine_name: "a CPU".into(),
            score_cpu: "znver3".into(),
            threads: 1,
            tasks: 2,
            points: 90,
            fitted_unix_ms: 1_700_000_000_000,
            reached: Some(Reached {
                spearman: 0.9,
                ratio_10: 0.95,
                first: 1.1,
            }),
            rates: Score {
                load: 1.0 / 3.0,
                ..Score::USUAL
            }
            .rounded(),
        }
    }

    #[test]
    fn rates_read_back_as_they_were_written() {
        let text = rates().text();
        assert!(text.starts_with(RATES_START), "{text}");
        assert_eq!(Rates::parse(&text), Ok(rates()));
    }

    #[test]
    fn other_texts_are_told_apart() {
        let text = rates().text();
        for foreign in ["", "not JSON", "{}", "[1]", "{\"format\": \"other\"}"] {
            assert_eq!(Rates::parse(foreign), Err(Unreadable::Foreign), "{foreign}");
        }
        let newer = text.replace("\"version\": 1", "\"version\": 7");
        assert_eq!(Rates::parse(&newer), Err(Unreadable::Newer(7)));
        let damaged = [
            text[..text.len() / 2].to_string(),
            text.replace("\"load\"", "\"lod\""),
            text.replace("\"page\": ", "\"page\": -"),
            text.replace("\"version\": 1", "\"version\": \"1\""),
        ];
        for damaged in damaged {
            assert_ne!(damaged, text);
            let read = Rates::parse(&damaged);
            assert!(matches!(read, Err(Unreadable::Damaged(_))), "{read:?}");
        }
    }
}
