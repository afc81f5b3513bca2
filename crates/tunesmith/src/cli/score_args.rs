//! How candidates that are read are scored: whose cycles count, and by which rates.
//!
//! Promises that every command takes rates from one place: the file that the user names, else the
//! file that `calibrate` wrote for this machine beside the store, else [`Score::USUAL`].

use super::ADVANCED;
use super::knobs::with_default;
use super::model_args::{StoreArgs, say};
use analysis::{Rates, Score, Unreadable};
use ir::Target;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Once;
use tune::machine::Machine;
use tune::scored_caches::warning;
use tune::{Error, Result};

/// Which scores.
#[derive(clap::Args)]
pub struct ScoreArgs {
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "CPU", help = with_default("score-cpu"))]
    score_cpu: Option<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "FILE", help = with_default("rates"))]
    rates: Option<PathBuf>,
}

/// A score, resolved.
#[derive(Clone, Debug)]
pub struct Scoring {
    /// LLVM's name of the processor whose cycles count.
    pub cpu: String,
    pub rates: Score,
    /// Where the rates come from: `usual`, or a file.
    pub source: String,
}

/// The processor that is asked for, else the target's usual one.
///
/// # Errors
/// If LLVM has no model of it.
pub fn scoring_cpu(target: &Target, asked: Option<String>) -> Result<String> {
    let cpu = asked.unwrap_or_else(|| llvm::scoring_cpu(target));
    llvm::check_scoring_cpu(target, &cpu).map_err(|why| {
        Error::new(why).help("name a processor that LLVM has a model of with --score-cpu")
    })?;
    say_whose_caches(&cpu, target);
    Ok(cpu)
}

/// Says once whose caches scores count if they are not the processor's.
fn say_whose_caches(cpu: &str, target: &Target) {
    static SAID: Once = Once::new();
    if let Some(text) = warning(cpu, target) {
        SAID.call_once(|| say(&text));
    }
}

impl ScoreArgs {
    /// The processor that is asked for, else the target's usual one.
    pub fn cpu(&self, target: &Target) -> String {
        let asked = self.score_cpu.clone();
        asked.unwrap_or_else(|| llvm::scoring_cpu(target))
    }

    /// The files that are read.
    pub fn files(&self) -> Vec<PathBuf> {
        self.rates.iter().cloned().collect()
    }

    /// What the flags say. The machine's own rates count where they were fitted on cycles of the
    /// same processor.
    ///
    /// # Errors
    /// If a file of rates cannot be read.
    pub fn scoring(
        &self,
        store: &StoreArgs,
        machine: &Machine,
        target: &Target,
    ) -> Result<Scoring> {
        let cpu = self.cpu(target);
        say_whose_caches(&cpu, target);
        let by = |rates: Score, source: String| Scoring {
            cpu: cpu.clone(),
            rates,
            source,
        };
        if let Some(path) = &self.rates {
            let rates = existing(path)?.ok_or_else(|| {
                Error::new(format!("there is no file {}", path.display()))
                    .help("name a file that `calibrate` wrote with --rates FILE")
            })?;
            if rates.score_cpu != cpu {
                say(&format!(
                    "warning: the rates of {} were fitted on cycles of {}, and cycles of {cpu} are counted",
                    path.display(),
                    rates.score_cpu
                ));
            }
            return Ok(by(rates.rates, path.display().to_string()));
        }
        let path = rates_path(store, machine)?;
        let own = |r: &Rates| r.machine == machine.fingerprint() && r.score_cpu == cpu;
        Ok(match existing(&path)?.filter(own) {
            Some(rates) => by(rates.rates, path.display().to_string()),
            None => by(Score::USUAL, "usual".into()),
        })
    }

    /// Refuses the flags where nothing is read.
    ///
    /// # Errors
    /// If one is given; `advice` says when it has an effect.
    pub fn refuse(&self, advice: &str) -> Result<()> {
        let given = [
            ("--score-cpu", self.score_cpu.is_some()),
            ("--rates", self.rates.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Error::new(format!(
                "{flag} has no effect here: nothing is scored by reading"
            ))
            .help(advice)),
            None => Ok(()),
        }
    }
}

/// Where this machine's own rates are: beside the store.
pub fn rates_path(store: &StoreArgs, machine: &Machine) -> Result<PathBuf> {
    let name = format!("rates-{}.json", machine.fingerprint());
    Ok(store.path()?.with_file_name(name))
}

/// The rates of a file; none if there is no such file.
fn existing(path: &Path) -> Result<Option<Rates>> {
    let fail = |why: &dyn std::fmt::Display| Error::new(format!("{}: {why}", path.display()));
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(fail(&e).help("allow reading it, or name another with --rates FILE")),
    };
    let read = Rates::parse(&String::from_utf8_lossy(&bytes));
    read.map(Some).map_err(|why| {
        fail(&why).help(match why {
            Unreadable::Foreign => "name a file that `calibrate` wrote with --rates FILE",
            Unreadable::Newer(_) => {
                "use the newer program that wrote it, or write rates anew with `calibrate`"
            }
            Unreadable::Damaged(_) => "remove it, and write rates anew with `calibrate`",
        })
    })
}
