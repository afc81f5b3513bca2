//! What selectors have found, for people and for programs.

use std::fmt;
use std::time::Duration;

/// What became of an alternative at one problem size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Active,
    /// Far slower than the best.
    Pruned,
    /// It does not apply to this problem size.
    NotApplicable,
    /// It returned an error.
    Failed,
    /// Its output is not that of the default.
    Disagrees,
}

impl Status {
    pub const fn name(self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::Pruned => "pruned",
            Status::NotApplicable => "not applicable",
            Status::Failed => "failed",
            Status::Disagrees => "disagrees",
        }
    }
}

/// One alternative at one problem size.
#[derive(Clone, Debug, PartialEq)]
pub struct AlternativeReport {
    pub name: String,
    pub status: Status,
    pub samples: usize,
    pub median: Option<Duration>,
    /// The median over the least median.
    pub over_best: Option<f64>,
}

/// One problem size.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyReport {
    pub key: String,
    /// The name of what was decided on.
    pub decided: Option<String>,
    /// Whether the decision came from a file.
    pub known: bool,
    /// How often the decision was opened again, because times had changed.
    pub reopened: u32,
    pub alternatives: Vec<AlternativeReport>,
    /// Selectors that ran inside while they were undecided, with their keys: the branches of the decision tree.
    pub children: Vec<String>,
}

/// A selector and all its problem sizes. [`fmt::Display`] gives the decisions as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub name: String,
    pub keys: Vec<KeyReport>,
}

impl Report {
    /// As one JSON object. Times are nanoseconds.
    pub fn json(&self) -> String {
        let keys: Vec<String> = self.keys.iter().map(key_json).collect();
        format!(
            "{{\"name\": {}, \"keys\": [{}]}}",
            quoted(&self.name),
            keys.join(", ")
        )
    }
}

fn key_json(k: &KeyReport) -> String {
    let alternatives: Vec<String> = k.alternatives.iter().map(alternative_json).collect();
    let children: Vec<String> = k.children.iter().map(|c| quoted(c)).collect();
    format!(
        "{{\"key\": {}, \"decided\": {}, \"known\": {}, \"reopened\": {}, \"alternatives\": [{}], \"children\": [{}]}}",
        quoted(&k.key),
        k.decided.as_ref().map_or("null".into(), |d| quoted(d)),
        k.known,
        k.reopened,
        alternatives.join(", "),
        children.join(", ")
    )
}

fn alternative_json(a: &AlternativeReport) -> String {
    let or_null = |text: Option<String>| text.unwrap_or("null".into());
    format!(
        "{{\"name\": {}, \"status\": {}, \"samples\": {}, \"median_ns\": {}, \"over_best\": {}}}",
        quoted(&a.name),
        quoted(a.status.name()),
        a.samples,
        or_null(a.median.map(|m| m.as_nanos().to_string())),
        or_null(a.over_best.map(|r| format!("{r:.4}")))
    )
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            c if c < ' ' => out += &format!("\\u{:04x}", u32::from(c)),
            c => out.push(c),
        }
    }
    out + "\""
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        for k in &self.keys {
            let decided = k.decided.as_deref().unwrap_or("undecided");
            let known = if k.known { ", from a file" } else { "" };
            writeln!(f, "  {}: {decided}{known}", k.key)?;
            for a in &k.alternatives {
                let median = a.median.map_or("-".into(), |m| format!("{m:.1?}"));
                let ratio = a.over_best.map_or(String::new(), |r| format!(" ({r:.2}x)"));
                let status = match a.status {
                    Status::Active => String::new(),
                    other => format!(", {}", other.name()),
                };
                writeln!(
                    f,
                    "    {:<16} {median}{ratio}, {} samples{status}",
                    a.name, a.samples
                )?;
            }
            for child in &k.children {
                writeln!(f, "    inside: {child}")?;
            }
        }
        Ok(())
    }
}
