//! Arguments of commands that run compiled models: threads, where, how they wait,
//! where constants are, and whose models are loaded.

use super::keys::VerifyArgs;
use super::knobs::{doc, with_default};
use super::model_args::{key_value, warn_of_cpus};
use super::parse::parse_count;
use runtime::{ConstantMemory, Pool, Variants};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tune::machine::Machine;
use tune::threads::{Pin, ThreadSettings};
use tune::{Error, Result};

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
    pub fn load(&self, artifact: &Path) -> Result<Variants> {
        let constants = match self.map {
            true => ConstantMemory::Mapped,
            false => ConstantMemory::Memory,
        };
        self.verify.load(artifact, constants)
    }

    /// The threads that a flag gives, or else those that the model was compiled for, or else one for each CPU.
    pub fn threads(given: Option<usize>, variants: &Variants) -> usize {
        let own = variants.models()[0].threads();
        given.or(own).unwrap_or_else(|| Machine::host().cpus)
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
        warn_of_cpus(threads);
        self.settings()?.pool(threads)
    }

    /// The pool of one of several instances that run at once.
    pub fn pool_of_part(&self, threads: usize, [at, of]: [usize; 2]) -> Result<Arc<Pool>> {
        warn_of_cpus(threads * of);
        self.settings()?.part(threads, at, of)?.pool(threads)
    }
}

/// Which variants of an artifact.
#[derive(clap::Args)]
pub struct VariantArgs {
    /// The variant with this size of the batch; as --dim batch=SIZE
    #[arg(long, value_name = "SIZE", value_parser = parse_count::<usize>)]
    batch: Option<usize>,
    /// The variants with this size of a dimension
    #[arg(long = "dim", value_name = "NAME=SIZE")]
    dims: Vec<String>,
}

impl VariantArgs {
    /// The sizes that the flags give, by the name of the dimension.
    pub fn sizes(&self) -> Result<Vec<(String, usize)>> {
        let mut sizes = Vec::new();
        sizes.extend(self.batch.map(|n| ("batch".to_string(), n)));
        for d in &self.dims {
            let (name, size) = key_value(d)?;
            let size = parse_count(size)
                .map_err(|e| Error::new(format!("--dim {d}: the size is wrong: {e}")))?;
            if sizes.iter().any(|(known, _)| known == name) {
                return Err(Error::new(format!("{name} is given twice"))
                    .help("give each dimension one size"));
            }
            sizes.push((name.to_string(), size));
        }
        Ok(sizes)
    }
}

/// The variant that was found, if it is one only.
pub fn only_one(variants: &Variants, found: &[usize]) -> Result<usize> {
    match found {
        [one] => Ok(*one),
        several => Err(Error::new(format!(
            "the artifact has {} variants of these sizes: {}",
            several.len(),
            labels(variants, several)
        ))
        .help("choose one with --dim NAME=SIZE")),
    }
}

pub fn labels(variants: &Variants, which: &[usize]) -> String {
    let all: Vec<String> = which.iter().map(|v| variants.label(*v)).collect();
    all.join("; ")
}
