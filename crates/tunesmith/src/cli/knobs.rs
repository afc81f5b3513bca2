//! `knobs`: every knob with its default.

use super::table::Table;
use measure::{CONSTANTS, Constants};
use std::process::ExitCode;
use tune::Result;
use tune::knobs::{KNOBS, knob};

/// What a flag does.
pub fn doc(name: &str) -> &'static str {
    knob(name).doc
}

/// The default of a flag, which is a value.
pub fn default(name: &str) -> &'static str {
    knob(name).default
}

/// What values a flag takes.
pub fn kind(name: &str) -> &'static str {
    knob(name).kind
}

/// What a flag does, and the rule of its default.
pub fn with_default(name: &str) -> String {
    format!("{} [default: {}]", knob(name).doc, knob(name).default)
}

/// List every knob: its type, its default, and what it does
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(a: &Args) -> Result<ExitCode> {
    if a.json {
        let all: Vec<_> = KNOBS
            .iter()
            .map(|k| {
                serde_json::json!({
                    "name": k.name, "type": k.kind, "default": k.default, "doc": k.doc,
                    "source": k.source, "affects_code": k.affects_code,
                })
            })
            .collect();
        let doppler: Vec<_> = CONSTANTS
            .iter()
            .map(|c| {
                serde_json::json!({
                    "name": c.name, "default": (c.get)(&Constants::PAPER), "doc": c.doc,
                    "source": c.source, "range": c.range,
                })
            })
            .collect();
        super::print_json(&serde_json::json!({ "knobs": all, "doppler": doppler }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut t = Table::new(&["knob", "type", "default", "code"]);
    for k in KNOBS {
        let code = if k.affects_code { "yes" } else { "" };
        t.row(vec![
            format!("--{}", k.name),
            k.kind.into(),
            k.default.into(),
            code.into(),
        ]);
    }
    t.print()?;
    super::print_text("\n")?;
    for k in KNOBS {
        super::print_line(&format!("--{}: {} (source: {})", k.name, k.doc, k.source))?;
    }
    super::print_text("\n")?;
    let mut t = Table::new(&["--doppler", "default", "least", "most"]);
    for c in CONSTANTS {
        let (least, most) = c.range;
        let numbers = [(c.get)(&Constants::PAPER), least, most].map(|n| n.to_string());
        t.row([c.name.to_string()].into_iter().chain(numbers).collect());
    }
    t.print()?;
    super::print_text("\n")?;
    for c in CONSTANTS {
        super::print_line(&format!("{}: {} (source: {})", c.name, c.doc, c.source))?;
    }
    Ok(ExitCode::SUCCESS)
}
