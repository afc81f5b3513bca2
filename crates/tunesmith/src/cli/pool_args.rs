//! Arguments of commands that run compiled models: threads, where, how they wait,
//! where constants are, and whose models are loaded.

use super::keys::VerifyArgs;
use super::knobs::{doc, with_default};
use runtime::{CompiledModel, ConstantMemory, Pool};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tune::Result;
use tune::threads::{Pin, ThreadSettings};

#[derive(clap::Args)]
pub struct PoolArgs {
    #[arg(long, help = with_default("pin"), value_name = "WHERE")]
    pin: Option<Pin>,
    #[arg(long, help = with_default("spin-us"), value_name = "US", value_parser = clap::value_parser!(u64).range(..=60_000_000))]
    spin_us: Option<u64>,
    #[arg(long, help = doc("map"))]
    map: bool,
    #[command(flatten)]
    verify: VerifyArgs,
}

impl PoolArgs {
    /// Loads an artifact as the flags say.
    pub fn load(&self, artifact: &Path) -> Result<CompiledModel> {
        let constants = match self.map {
            true => ConstantMemory::Mapped,
            false => ConstantMemory::Memory,
        };
        self.verify.load(artifact, constants)
    }

    /// What the flags say, and the environment where they say nothing.
    pub fn settings(&self) -> Result<ThreadSettings> {
        let flags = ThreadSettings {
            pin: self.pin.clone(),
            spin: self.spin_us.map(Duration::from_micros),
        };
        Ok(flags.or(ThreadSettings::from_environment()?))
    }

    pub fn pool(&self, threads: usize) -> Result<Arc<Pool>> {
        self.settings()?.pool(threads)
    }
}
