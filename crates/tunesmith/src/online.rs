//! Choosing among the alternatives of a model's steps while it runs, with decisions in a file.

use bestof::{Decisions, Options, Refused, Validators};
use runtime::{CompiledModel, SelectionKey, Selectors, Variants};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tune::machine::Machine;
use tune::{Error, Result};

/// A file of decisions, and the facts under which they hold: machine, threads, version, and model. Beside it others may be
/// read, such as those of further runs, or one that came with the model.
pub struct DecisionFile {
    path: PathBuf,
    others: Vec<PathBuf>,
    validators: Validators,
}

/// What the steps of a file are named by. Files of earlier versions do not say it: they named steps by the code of
/// all their alternatives.
const NAMES: (&str, &str) = ("steps", "tasks");

impl DecisionFile {
    pub fn new(path: &Path, model: &CompiledModel, threads: usize) -> DecisionFile {
        DecisionFile::of_name(path, model.name(), threads)
    }

    /// For a model that is not compiled yet, by the name that it will have.
    pub fn of_name(path: &Path, model: &str, threads: usize) -> DecisionFile {
        let facts = [
            ("machine", Machine::host().fingerprint()),
            ("threads", threads.to_string()),
            ("library", env!("CARGO_PKG_VERSION").to_string()),
            ("model", model.to_string()),
            (NAMES.0, NAMES.1.to_string()),
        ];
        DecisionFile {
            path: path.to_path_buf(),
            others: vec![],
            validators: facts.into_iter().map(|(k, v)| (k.to_string(), v)).collect(),
        }
    }

    /// Of several files the first one, which is written, wins. The others are only read; where two of them know a step, that
    /// of more samples counts. None if there are no files.
    pub fn of_files(
        files: &[PathBuf],
        model: &CompiledModel,
        threads: usize,
    ) -> Option<DecisionFile> {
        let (path, others) = files.split_first()?;
        let mut own = DecisionFile::new(path, model, threads);
        own.others = others.to_vec();
        Some(own)
    }

    /// The decisions of earlier runs; none if there is no file.
    ///
    /// # Errors
    /// If a file was made elsewhere, or is damaged, or one that is only read is missing.
    pub fn load(&self) -> Result<Option<Arc<Decisions>>> {
        let read = |path: &Path| {
            let loaded = Decisions::load(path, &self.validators);
            loaded.map_err(|e| refused(path, &e))
        };
        let mut others = Decisions::new();
        for path in &self.others {
            others.merge(&read(path)?);
        }
        Ok(match self.path.exists() {
            true => Some(Arc::new(read(&self.path)?.over(&others))),
            false => (!self.others.is_empty()).then(|| Arc::new(others)),
        })
    }

    /// Selectors of a model that start from the decisions of the file, if there is one.
    ///
    /// # Errors
    /// As [`DecisionFile::load`].
    pub fn selectors(&self, variants: &Variants) -> Result<Selectors> {
        selectors(variants, self.load()?.as_ref())
    }

    /// Writes that the steps of a variant run their first alternatives, as whoever made the model has compared them in it.
    /// Decisions of the files about other steps stay.
    ///
    /// # Errors
    /// As [`DecisionFile::save`].
    pub fn save_firsts(&self, variants: &Variants, variant: usize, threads: u32) -> Result<()> {
        let key = |step: usize| variants.selection_key(variant, step, threads);
        self.write(selectors(variants, None)?.firsts(variant, key))
    }

    /// Writes what selectors decided. Decisions of the files that they did not meet stay.
    ///
    /// # Errors
    /// If the file cannot be written, or as [`DecisionFile::load`].
    pub fn save(&self, selectors: &Selectors) -> Result<()> {
        let mut own = Decisions::new();
        selectors.save(&mut own);
        self.write(own)
    }

    fn write(&self, own: Decisions) -> Result<()> {
        let known = self.load()?.unwrap_or_default();
        let saved = own.over(&known).save(&self.path, &self.validators);
        saved.map_err(|e| Error::new(format!("{}: {e}", self.path.display())))
    }
}

/// Why a file is not read. Only of a damaged file of decisions is it said that it may go.
fn refused(path: &Path, why: &Refused) -> Error {
    let file = path.display();
    let is_artifact = || {
        let mut start = [0; runtime::ARTIFACT_MAGIC.len()];
        let mut file = std::fs::File::open(path).ok()?;
        std::io::Read::read_exact(&mut file, &mut start).ok()?;
        Some(start == runtime::ARTIFACT_MAGIC)
    };
    let error = match why {
        Refused::Foreign if is_artifact() == Some(true) => Error::new(format!(
            "{file} is a compiled model and no file of decisions"
        )),
        Refused::Foreign => Error::new(format!("{file} is no file of decisions")),
        Refused::Differs {
            validator,
            file: None,
            ..
        } if validator == NAMES.0 => Error::new(format!(
            "{file} was written by an earlier version, whose decisions do not say which task they are about: they are not used"
        )),
        why => Error::new(format!("{file}: {why}")),
    };
    error.help("name another file with --decisions; the first one is made if it is not there")
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
