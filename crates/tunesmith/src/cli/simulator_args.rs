//! Which processor is simulated, and which of its counts is the score.

use super::ADVANCED;
use super::knobs::with_default;
use ir::Target;
use simulate::Statistics;
use tune::scorer::Simulator;
use tune::{Error, Result};

#[derive(clap::Args)]
pub struct SimulatorArgs {
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "NAME", help = with_default("cpu"))]
    cpu: Option<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "COUNT", help = with_default("minimise"))]
    minimise: Option<String>,
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
            simulator.statistic.clone_from(statistic);
        }
        Ok(simulator)
    }

    /// Refuses the flags where nothing is simulated.
    ///
    /// # Errors
    /// If one is given.
    pub fn refuse(&self) -> Result<()> {
        let given = [("--cpu", &self.cpu), ("--minimise", &self.minimise)];
        match given.into_iter().find(|(_, given)| given.is_some()) {
            Some((flag, _)) => Err(Error::new(format!(
                "{flag} has no effect here: nothing is simulated"
            ))
            .help("give --evaluate simulate with it")),
            None => Ok(()),
        }
    }
}
