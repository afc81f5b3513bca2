//! Which processor is simulated, and which of its counts is the score.

use super::ADVANCED;
use super::knobs::{default, with_default};
use super::parse::{parse_count, parse_time};
use ir::Target;
use simulate::{External, Plugin, Predictor, SHIPPED, Shipped, Window};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tune::scorer::{FIRST, Judge, Simulator};
use tune::{Error, Result};

/// Time that QEMU may take for one kernel: about 10 million instructions a second.
const EMULATED: Duration = Duration::from_secs(60);

/// A simulator of the user's, or how much this program's one walks.
#[derive(clap::Args)]
pub struct ExternalArgs {
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "COMMAND", help = with_default("simulator"))]
    simulator: Option<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "TIME", help = with_default("simulator-limit"), value_parser = parse_time)]
    simulator_limit: Option<Duration>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "N", help = with_default("sample-iterations"), value_parser = parse_count::<u32>, conflicts_with = "simulator")]
    sample_iterations: Option<u32>,
}

impl ExternalArgs {
    /// The simulator of this program, of a processor by its name. QEMU helps it where it is here.
    ///
    /// # Errors
    /// If there is no such processor.
    pub fn own(&self, cpu: Option<&str>, target: &Target) -> Result<Simulator> {
        Ok(Simulator {
            sample_iterations: self.sample_iterations.filter(|n| *n > 1),
            // An executable has one thread.
            plugin: Plugin::beside(EMULATED).filter(|_| target.threads() == 1),
            ..Simulator::named(cpu, target)?
        })
    }

    /// The simulator, if one is given, with the count that is its score, if there is one, and a name for what it simulates.
    ///
    /// # Errors
    /// If the command takes no executable, or kernels would have several threads.
    pub fn simulator(
        &self,
        name: Option<&str>,
        count: Option<&str>,
        target: &Target,
    ) -> Result<Option<Simulator>> {
        let Some(command) = &self.simulator else {
            return match self.simulator_limit {
                Some(_) => Err(
                    Error::new("--simulator-limit has no effect without --simulator")
                        .help("give --simulator 'COMMAND {exe}' with it, or leave it out"),
                ),
                None => Ok(None),
            };
        };
        let limit = match self.simulator_limit {
            Some(limit) => limit,
            None => parse_time(default("simulator-limit")).map_err(Error::new)?,
        };
        let external = External::new(command, limit);
        let external = external.map_err(|e| {
            Error::new(format!("--simulator: {e}"))
                .help("give a command such as --simulator 'my-simulator --quiet {exe}'")
        })?;
        Simulator::external(external, name, count, target).map(Some)
    }
}

fn parse_window(text: &str) -> std::result::Result<Window, String> {
    match text {
        "static" => Ok(FIRST),
        "dynamic" => Ok(Window::Dynamic),
        count => parse_count(count)
            .map(Window::Static)
            .map_err(|e| format!("give static, dynamic or a number of candidates: {e}")),
    }
}

/// The predictor of this program by its name, or else that of a file.
fn predictor(given: &str) -> Result<Predictor> {
    let loaded = match Shipped::named(given) {
        Some(shipped) => shipped.predictor(),
        None => Predictor::load(Path::new(given)),
    };
    loaded.map_err(|e| {
        let names = SHIPPED.map(|s| s.name).join(", ");
        Error::new(format!("--predictor: {e}")).help(format!(
            "name one of this program ({names}), or a file of `tunesmith simulate train`"
        ))
    })
}

#[derive(clap::Args)]
pub struct SimulatorArgs {
    #[command(flatten)]
    external: ExternalArgs,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "NAME", help = with_default("cpu"))]
    cpu: Option<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "COUNT", help = with_default("minimise"))]
    minimise: Option<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "NAME|FILE", help = with_default("predictor"), conflicts_with = "minimise")]
    predictor: Option<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, value_name = "WHICH", help = with_default("window"), value_parser = parse_window, requires = "predictor")]
    window: Option<Window>,
}

impl SimulatorArgs {
    /// What the flags say; by default the caches are the target's.
    ///
    /// # Errors
    /// If there is no such processor, or no such count.
    pub fn simulator(&self, target: &Target) -> Result<Simulator> {
        let loaded = self.predictor.as_deref().map(predictor).transpose()?;
        let learned = loaded.as_ref().map_or("", |p| &p.about().target);
        if let Some(given) = self.predictor.as_ref().filter(|_| !learned.is_empty())
            && learned != target.name()
        {
            let asked = target.name();
            let why = format!("{given}: it learned from kernels for {learned}, not for {asked}");
            return Err(
                Error::new(why).help(format!("give --target {learned}, or another predictor"))
            );
        }
        let of_predictor = loaded.as_ref().map(|p| p.about().cpu.as_str());
        let cpu = self.cpu.as_deref().or(of_predictor);
        let count = self.minimise.as_deref().unwrap_or(Simulator::WEIGHTED);
        // A predictor makes the score of counts that it knows.
        let count = of_predictor.is_none().then_some(count);
        let external = self.external.simulator(cpu, count, target)?;
        let is_own = external.is_none();
        let mut simulator = match external {
            Some(external) => external,
            None => self.external.own(cpu, target)?,
        };
        if let Some(statistic) = self.minimise.as_ref().filter(|_| is_own) {
            let names = simulator.counts();
            if !names.contains(statistic) {
                let why = format!("{} has no count `{statistic}`", simulator.name);
                return Err(Error::new(why).help(format!("--minimise takes {}", names.join(", "))));
            }
            simulator.judge = Judge::Count(statistic.clone());
        }
        if let (Some(loaded), Some(given)) = (loaded, &self.predictor) {
            let about = loaded.about();
            if about.cpu != simulator.name {
                let (of, asked) = (&about.cpu, &simulator.name);
                let why = format!("{given}: it predicts times of {of}, not of {asked}");
                return Err(Error::new(why).help(format!("give --cpu {of}, or another predictor")));
            }
            simulator.judge = Judge::Predictor(Arc::new(loaded), self.window.unwrap_or(FIRST));
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
            ("--window", self.window.is_some()),
            ("--simulator", self.external.simulator.is_some()),
            ("--simulator-limit", self.external.simulator_limit.is_some()),
            (
                "--sample-iterations",
                self.external.sample_iterations.is_some(),
            ),
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
