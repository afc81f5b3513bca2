//! Choosing among the alternatives of a model's steps while it runs, with decisions in a file.

use bestof::{Decisions, Options, Validators};
use runtime::{CompiledModel, SelectionKey, Selectors, Variants};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tune::machine::Machine;
use tune::{Error, Result};

/// A file of decisions, and the facts under which they hold: machine, threads, version, and model.
pub struct DecisionFile {
    path: PathBuf,
    validators: Validators,
}

impl DecisionFile {
    pub fn new(path: &Path, model: &CompiledModel, threads: usize) -> DecisionFile {
        let facts = [
            ("machine", Machine::host().fingerprint()),
            ("threads", threads.to_string()),
            ("library", env!("CARGO_PKG_VERSION").to_string()),
            ("model", model.name().to_string()),
        ];
        DecisionFile {
            path: path.to_path_buf(),
            validators: facts.into_iter().map(|(k, v)| (k.to_string(), v)).collect(),
        }
    }

    /// The decisions of an earlier run; none if there is no file.
    ///
    /// # Errors
    /// If the file was made elsewhere, or is damaged.
    pub fn load(&self) -> Result<Option<Arc<Decisions>>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let loaded = Decisions::load(&self.path, &self.validators);
        let loaded = loaded.map_err(|e| {
            Error::new(format!("{}: {e}", self.path.display()))
                .help("name another file with --decisions, or delete this one to decide anew")
        });
        loaded.map(|d| Some(Arc::new(d)))
    }

    /// Selectors of a model that start from the decisions of the file, if there is one.
    ///
    /// # Errors
    /// As [`DecisionFile::load`].
    pub fn selectors(&self, variants: &Variants) -> Result<Selectors> {
        selectors(variants, self.load()?.as_ref())
    }

    /// Writes what selectors decided. Decisions of the file that they did not meet stay.
    ///
    /// # Errors
    /// If the file cannot be written, or as [`DecisionFile::load`].
    pub fn save(&self, selectors: &Selectors) -> Result<()> {
        let mut found = self
            .load()?
            .map_or_else(Decisions::new, |known| (*known).clone());
        selectors.save(&mut found);
        let saved = found.save(&self.path, &self.validators);
        saved.map_err(|e| Error::new(format!("{}: {e}", self.path.display())))
    }
}

/// A variant without the alternatives that lost: one kernel a step, and the constants of these kernels alone.
/// It takes less memory and runs as the selectors would let it run with so many threads.
///
/// # Errors
/// If a step is not decided.
pub fn decided(
    variants: &Variants,
    variant: usize,
    selectors: &Selectors,
    threads: u32,
) -> Result<CompiledModel> {
    let model = &variants.models()[variant];
    let key = |step: usize| -> SelectionKey { variants.selection_key(variant, step, threads) };
    let chosen = selectors.decided(variant, key);
    let open = model.steps().iter().zip(&chosen);
    let open = open.filter(|(s, c)| s.alternatives.len() > 1 && c.is_none());
    match open.count() {
        0 => {
            let choices: Vec<usize> = chosen.into_iter().map(|c| c.unwrap_or(0)).collect();
            Ok(model.with_choices(&choices))
        }
        n => Err(Error::new(format!(
            "{n} steps of {} have not decided among their kernels",
            model.name()
        ))
        .help("let the model run more inferences")),
    }
}

/// Selectors that drop early what has lost, and start from what is known.
///
/// # Errors
/// Never with these options.
pub fn selectors(variants: &Variants, known: Option<&Arc<Decisions>>) -> Result<Selectors> {
    let selectors = Selectors::new(variants, &Options::early(), known);
    selectors.map_err(|e| Error::new(e.to_string()))
}
