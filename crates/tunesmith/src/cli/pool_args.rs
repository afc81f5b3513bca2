//! Arguments of commands that run compiled models: threads, where, how they wait.

use crate::error::Result;
use crate::threads::{Pin, Settings};
use runtime::Pool;
use std::sync::Arc;
use std::time::Duration;

#[derive(clap::Args)]
pub struct PoolArgs {
    /// Keep threads on CPUs: off, cores (one a core), or CPUs such as 0,2 [default: $TUNESMITH_PIN, or off]
    #[arg(long, value_name = "WHERE")]
    pin: Option<Pin>,
    /// Microseconds that a waiting thread spins before it sleeps [default: $TUNESMITH_SPIN_US, or 100]
    #[arg(long, value_name = "US")]
    spin_us: Option<u64>,
}

impl PoolArgs {
    /// A pool as the flags say, and the environment where they say nothing.
    pub fn pool(&self, threads: usize) -> Result<Arc<Pool>> {
        let flags = Settings {
            pin: self.pin.clone(),
            spin: self.spin_us.map(Duration::from_micros),
        };
        flags.or(Settings::from_environment()?).pool(threads)
    }
}
