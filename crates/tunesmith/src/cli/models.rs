//! `models`: the built-in models and operators, and their export.

use super::output::{MODEL, Output};
use super::table::Table;
use graph::builtin::{MODELS, OPERATORS, describe};
use std::path::PathBuf;
use std::process::ExitCode;
use tune::{Error, Result};

/// List the built-in models and operators, or export one as ONNX
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith models\n  tunesmith models export resnet18 resnet18.onnx"
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Write a built-in model as an ONNX file
    Export {
        /// A built-in model, or an operator as op:NAME(argument=value,...)
        name: String,
        /// The ONNX file to write
        file: PathBuf,
    },
}

pub fn run(a: &Args) -> Result<ExitCode> {
    if let Some(Action::Export { name, file }) = &a.action {
        let out = Output::new(file, MODEL, vec![])?;
        let source = crate::source::load(name, &onnx::ImportOptions::default())?;
        let bytes = onnx::export(&source.model).map_err(|e| Error::new(e.to_string()))?;
        out.write_bytes(&bytes)?;
        eprintln!("{name} written to {}", out.path().display());
        return Ok(ExitCode::SUCCESS);
    }
    if a.json {
        let models: Vec<_> = MODELS
            .iter()
            .map(|m| serde_json::json!({"name": m.name, "doc": m.doc}))
            .collect();
        let operators: Vec<_> = OPERATORS
            .iter()
            .map(|o| {
                let arguments = describe(o.parameters);
                serde_json::json!({"name": o.name, "doc": o.doc, "arguments": arguments})
            })
            .collect();
        super::print_json(&serde_json::json!({"models": models, "operators": operators}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut t = Table::new(&["model", ""]);
    for m in MODELS {
        t.row(vec![m.name.into(), m.doc.into()]);
    }
    t.print()?;
    super::print_text("\nOperators, as op:NAME(ARGUMENT=VALUE,...), with their defaults:\n")?;
    for o in OPERATORS {
        super::print_line(&format!("op:{}: {}", o.name, o.doc))?;
        super::print_line(&format!("    {}", describe(o.parameters)))?;
    }
    Ok(ExitCode::SUCCESS)
}
