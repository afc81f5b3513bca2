//! Which processor is simulated, and which of its counts is the score.

use super::ADVANCED;
use super::knobs::with_default;
use ir::Target;
use simulate::{Predictor, Statistics};
use std::path::PathBuf;
use std::sync::Arc;
use tune::scorer::{Judge, Simulator};
use tune::{Error, Result};

#[derive(clap::Args)]
pub struct SimulatorArgs {
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "NAME", help = with_default("cpu"))]
    cpu: Option<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "COUNT", help = with_default("minimise"))]
    minimise: Option<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "FILE", help = with_default("predictor"), conflicts_with = "minimise")]
    predictor: Option<PathBuf>,
}

/// A named processor of the simulator.
///
/// # Errors
/// If there is none of that name; the error names those that there are.
pub fn simulated_cpu(name: &str) -> Result<simulate::Cpu> {
    let all = simulate::cpus();
    let names: Vec<&str> = all.iter().map(|c| c.name).collect();
    let help = format!("the simulator knows {}", names.join(", "));
    let found = all.into_iter().find(|c| c.name == name);
    found.ok_or_else(|| Error::new(format!("there is no simulated processor `{name}`")).help(help))
}

impl SimulatorArgs {
    /// What the flags say; by default the caches are the target's.
    ///
    /// # Errors
    /// If there is no such processor, or no such count.
    pub fn simulator(&self, target: &Target) -> Result<Simulator> {
        let mut simulator = Simulator::of(target);
        if let Some(name) = &self.cpu {
            let cpu = simulated_cpu(name)?;
            (simulator.name, simulator.caches) = (cpu.name.into(), cpu.caches);
        }
        if let Some(statistic) = &self.minimise {
            let levels = vec![Default::default(); simulator.caches.shared.len()];
            let counted = Statistics {
                shared: levels,
                ..Statistics::default()
            };
            let names: Vec<String> = counted.named().into_iter().map(|(name, _)| name).collect();
            if !names.contains(statistic) {
                let why = format!("{} has no count `{statistic}`", simulator.name);
                return Err(Error::new(why).help(format!("--minimise takes {}", names.join(", "))));
            }
            simulator.judge = Judge::Count(statistic.clone());
        }
        if let Some(path) = &self.predictor {
            let loaded = Predictor::load(path).map_err(|e| {
                Error::new(e.to_string()).help("make one with `tunesmith simulate train`")
            })?;
            let about = loaded.about();
            if self.cpu.is_none() && about.cpu != simulator.name {
                let cpu = simulated_cpu(&about.cpu)?;
                (simulator.name, simulator.caches) = (cpu.name.into(), cpu.caches);
            } else if about.cpu != simulator.name {
                let (of, asked) = (&about.cpu, &simulator.name);
                let why = format!(
                    "{}: it predicts times of {of}, not of {asked}",
                    path.display()
                );
                return Err(Error::new(why).help(format!("give --cpu {of}, or another predictor")));
            }
            simulator.judge = Judge::Predictor(Arc::new(loaded));
        }
        Ok(simulator)
    }

    /// Refuses the flags where nothing is simulated.
    ///
    /// # Errors
    /// If one is given.
    pub fn refuse(&self) -> Result<()> {
        let given = [
            ("--cpu", self.cpu.is_some()),
            ("--minimise", self.minimise.is_some()),
            ("--predictor", self.predictor.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Error::new(format!(
                "{flag} has no effect here: nothing is simulated"
            ))
            .help("give --evaluate simulate with it")),
            None => Ok(()),
        }
    }
}
