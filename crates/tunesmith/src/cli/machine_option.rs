//! `--machine NAME`: whose measurements count, for every command that takes the best known schedules.

use super::board::shell_word;
use super::model_args::say;
use super::table::counted;
use ir::Target;
use store::{MachineKey, Store};
use tune::known::Elsewhere;
use tune::machine::Machine;
use tune::{Error, Result};

/// Machines that an error or a hint names before it stops.
const NAMED: usize = 8;

#[derive(clap::Args)]
pub struct MachineOption {
    /// The machine whose measurements count, by its name in the store, such as a board's of `simulate import` [default: the one
    /// that this runs on]
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
}

impl MachineOption {
    /// The name that was given, if the store knows it.
    ///
    /// # Errors
    /// If the store has no such machine.
    pub fn named(&self, store: &Store) -> Result<Option<&str>> {
        let Some(name) = self.machine.as_deref() else {
            return Ok(None);
        };
        let machines = store.machines()?;
        if machines.iter().any(|m| m.fingerprint == name) {
            return Ok(Some(name));
        }
        let more = machines.len().saturating_sub(NAMED);
        let known = |m: MachineKey| format!("{} ({})", m.fingerprint, m.description);
        let mut known: Vec<String> = machines.into_iter().take(NAMED).map(known).collect();
        if more > 0 {
            known.push(format!("{more} more"));
        }
        let why = format!("--machine {name}: the store has no such machine");
        Err(Error::new(why).help(match known.is_empty() {
            true => "it has none; `tunesmith simulate import` stores what a board measured".into(),
            false => format!("it has {}", known.join("; ")),
        }))
    }

    /// As [`MachineOption::named`], of a store that is there unless only defaults are wanted.
    ///
    /// # Errors
    /// If the store has no such machine, or no records are used.
    pub fn named_in(&self, store: Option<&Store>) -> Result<Option<&str>> {
        match store {
            Some(store) => self.named(store),
            None => {
                self.refuse(
                    "no records are used",
                    "leave it out, or have records used: a model that is not compiled yet, without --defaults",
                )?;
                Ok(None)
            }
        }
    }

    /// The name in the store of the machine whose measurements count: the one that was given, or this one.
    ///
    /// # Errors
    /// If the store has no such machine.
    pub fn fingerprint(&self, store: &Store, here: &Machine) -> Result<String> {
        let named = self.named(store)?;
        Ok(named.map_or_else(|| here.fingerprint(), str::to_string))
    }

    /// Refuses the option where it has no effect.
    ///
    /// # Errors
    /// If it is given.
    pub fn refuse(&self, why: &str, advice: &str) -> Result<()> {
        match self.machine {
            Some(_) => Err(Error::new(format!("--machine has no effect here: {why}")).help(advice)),
            None => Ok(()),
        }
    }

    /// Says on standard error that a model has default schedules only: that the machine that was named has measured
    /// none, and that the store has some for other counts of threads or of other machines.
    pub fn warn_of_defaults(&self, model: &str, target: &Target, elsewhere: &Elsewhere) {
        if let Some(name) = &self.machine {
            say(&format!(
                "warning: {model}: the machine {name} has measured no schedule for {} and {}",
                target.name(),
                counted(target.threads(), "thread")
            ));
        }
        for (threads, tasks) in &elsewhere.threads {
            let (own, measured) = (
                counted(target.threads(), "thread"),
                counted(*threads, "thread"),
            );
            say(&format!(
                "warning: {model}: no schedule was measured for {own}, and {} for {measured}; give --threads {threads} to use them",
                counted(*tasks as u32, "schedule")
            ));
        }
        for (machine, tasks) in elsewhere.machines.iter().take(NAMED) {
            say(&format!(
                "hint: {model}: the machine {machine} has measured {} for this target; --machine {} uses them",
                counted(*tasks as u32, "schedule"),
                shell_word(machine)
            ));
        }
    }
}
