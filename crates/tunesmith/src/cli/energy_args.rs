//! Arguments of budgets of energy and money, and the file that says what a machine draws and costs.

use super::knobs::{doc, with_default};
use super::model_args::StoreArgs;
use super::parse::{parse_amount, parse_energy};
use measure::energy::MachineFile;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use tune::{Error, Result, StopRule};

#[derive(clap::Args)]
pub struct EnergyArgs {
    #[arg(long, value_name = "ENERGY", help = doc("energy"), value_parser = parse_energy,
        conflicts_with_all = ["time", "trials", "cost"])]
    energy: Option<f64>,
    #[arg(long, value_name = "AMOUNT", help = doc("cost"), value_parser = parse_amount,
        conflicts_with_all = ["time", "trials"])]
    cost: Option<f64>,
    #[command(flatten)]
    machine: MachineArgs,
}

/// What a machine draws and costs.
#[derive(clap::Args)]
pub struct MachineArgs {
    #[arg(long, value_name = "FILE", help = with_default("machine-file"))]
    machine_file: Option<PathBuf>,
}

/// The longest time that money can buy: clocks could not add a longer one.
const LONGEST_S: f64 = 365.0 * 24.0 * 3600.0;

impl MachineArgs {
    /// The files that the flags name.
    pub fn files(&self) -> Vec<PathBuf> {
        self.machine_file.iter().cloned().collect()
    }

    /// What is known of the machine's power and price: by the flag, else by the file beside the store.
    ///
    /// # Errors
    /// If the file that the flag names is not there, or one is no such file.
    pub fn read(&self, store: &StoreArgs, cpus: usize) -> Result<MachineFile> {
        let path = match (&self.machine_file, store.path()) {
            (Some(named), _) => named.clone(),
            (None, Ok(store)) => store.with_file_name("machine.json"),
            // Who has no store has no file beside it.
            (None, Err(_)) => return Ok(MachineFile::usual(cpus)),
        };
        let fail = |why: &dyn std::fmt::Display| {
            Error::new(format!("{}: {why}", path.display()))
                .help("docs/howto/energy-and-money.md shows such a file")
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => MachineFile::parse(&text, cpus).map_err(|why| fail(&why)),
            Err(e) if self.machine_file.is_none() && is_missing(&e) => Ok(MachineFile::usual(cpus)),
            Err(e) => {
                // A store out of reach says so itself.
                store.is_there()?;
                Err(fail(&e))
            }
        }
    }
}

impl EnergyArgs {
    /// The files that the flags name.
    pub fn files(&self) -> Vec<PathBuf> {
        self.machine.files()
    }

    /// As [`MachineArgs::read`], for a command that needs a store.
    ///
    /// # Errors
    /// If there is no place for a store, or as [`MachineArgs::read`].
    pub fn machine_file(&self, store: &StoreArgs, cpus: usize) -> Result<MachineFile> {
        store.path()?;
        self.machine.read(store, cpus)
    }

    /// The budget that the flags give, if they give one. Money buys time.
    ///
    /// # Errors
    /// If no price of the machine is known.
    pub fn stop(&self, file: &MachineFile) -> Result<Option<StopRule>> {
        let Some(cost) = self.cost else {
            return Ok(self.energy.map(StopRule::Energy));
        };
        let Some(price) = &file.price else {
            return Err(Error::new("--cost: the price of this machine is not known").help(
                "declare it in a file: --machine-file FILE with {\"price\": {\"per_hour\": 0.34, \"currency\": \"USD\"}}",
            ));
        };
        let seconds = (cost / price.per_hour * 3600.0).min(LONGEST_S);
        Ok(Some(StopRule::Time(Duration::from_secs_f64(seconds))))
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
