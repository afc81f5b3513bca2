//! The settings that an artifact was compiled with, against the flags of a command that gets it beside its model, or in
//! the place of one.
//!
//! Promises that a command plans the model as the artifact's was planned: a flag that is not given has the artifact's
//! value, and one that contradicts it is an error. Settings have the names of flags. Artifacts of older versions
//! say less; what they do not say, flags and defaults do.

use super::knobs::default;
use super::model_args::ModelArgs;
use crate::source::Sizes;
use ir::Target;
use runtime::{CompiledModel, ConstantMemory, Variants};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use tune::compile::{accuracy_of, has_bf16};
use tune::machine::Machine;
use tune::source::{Precision, Source, fingerprint};
use tune::{Error, Result};

/// The dimension of `--batch`.
pub const BATCH: &str = "batch";

/// What an artifact was compiled for.
#[derive(Clone, Default)]
pub struct MadeFor {
    pub threads: Option<u32>,
    /// With the caches of the machine where it was compiled.
    pub target: Option<Target>,
}

/// Several values of a flag as one.
pub fn joined(all: &[String]) -> String {
    all.join("\n")
}

/// The settings of an artifact.
pub struct Made<'a> {
    path: &'a Path,
    model: &'a CompiledModel,
}

impl Made<'_> {
    /// Whether the artifact is of a version that says all of its settings.
    pub fn says_all(&self) -> bool {
        !self.model.settings().is_empty()
    }

    pub fn has(&self, flag: &str) -> bool {
        self.model.settings().contains_key(flag)
    }

    fn said(&self, flag: &str) -> Option<&str> {
        self.model.settings().get(flag).map(String::as_str)
    }

    /// An error: the command line says one thing, and the artifact was compiled with another.
    pub fn contradicted(&self, given: &str, made: &str) -> Error {
        let artifact = self.path.display();
        Error::new(format!(
            "{given} contradicts {artifact}, which was compiled {made}"
        ))
        .help(format!(
            "leave {} out to take what the artifact has, or compile the model again with it",
            given.split(' ').next().unwrap_or(given)
        ))
    }

    fn differs(&self, flag: &str, given: &str, made: &str) -> Error {
        self.contradicted(
            &format!("--{flag} {given}"),
            &format!("with --{flag} {made}"),
        )
    }

    /// A flag without a value gets that of the artifact.
    ///
    /// # Errors
    /// If it has another, or that of the artifact is none.
    pub fn take<T: FromStr + Display + PartialEq>(
        &self,
        flag: &str,
        given: &mut Option<T>,
    ) -> Result<()> {
        let Some(said) = self.said(flag) else {
            return Ok(());
        };
        let made = said.parse().map_err(|_| self.unknown(flag, said))?;
        match given {
            Some(given) if *given != made => {
                Err(self.differs(flag, &given.to_string(), &made.to_string()))
            }
            _ => {
                *given = Some(made);
                Ok(())
            }
        }
    }

    fn unknown(&self, flag: &str, said: &str) -> Error {
        let artifact = self.path.display();
        Error::new(format!(
            "{artifact} was compiled with --{flag} {said}, which this version does not know"
        ))
        .help("compile the model again with this version")
    }

    /// As [`Made::take`], of a flag that may be given several times.
    pub fn take_list(&self, flag: &str, given: &mut Vec<String>) -> Result<()> {
        let Some(said) = self.said(flag) else {
            return match given.is_empty() || !self.says_all() {
                true => Ok(()),
                false => {
                    let given = format!("--{flag} {}", given.join(", "));
                    Err(self.contradicted(&given, &format!("without --{flag}")))
                }
            };
        };
        let made: Vec<String> = said.lines().map(String::from).collect();
        if !given.is_empty() && *given != made {
            let made = match made.as_slice() {
                [] => "nothing".into(),
                made => made.join(", "),
            };
            return Err(self.differs(flag, &given.join(", "), &made));
        }
        *given = made;
        Ok(())
    }
}

impl ModelArgs {
    pub fn precision(&self) -> Precision {
        let usual = || default("precision").parse();
        let usual = || usual().expect("the default of --precision is one");
        self.precision.unwrap_or_else(usual)
    }

    /// What the flags ask for beside what every source says of itself, by their names.
    pub fn settings(&self, source: &Source, sizes: &Sizes) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut set = |name: &str, value: String| all.insert(name.to_string(), value);
        if let [size] = sizes.batch[..]
            && !source.dims.iter().any(|d| d.name == BATCH)
        {
            set(BATCH, size.to_string());
        }
        if !self.open_inputs.is_empty() {
            set("open-input", joined(&self.open_inputs));
        }
        if !sizes.consts.is_empty() {
            let consts = sizes.consts.iter();
            let values = consts.map(|(name, value)| format!("{name}={}", fingerprint(value)));
            let values: Vec<String> = values.collect();
            set("const", joined(&values));
        }
        for (name, value) in self.training.settings() {
            set(name, value);
        }
        all
    }

    /// Takes the settings of the artifact that is given beside the model, or that stands in its place.
    ///
    /// # Errors
    /// If a flag contradicts one of them.
    pub fn take_settings(&mut self, artifact: Option<&Path>) -> Result<()> {
        let own = self.artifact();
        let Some(path) = artifact.or(own.as_deref()) else {
            return Ok(());
        };
        // What is wrong with the file, whoever runs it says.
        let Ok(variants) = Variants::load_with(path, ConstantMemory::Mapped) else {
            return Ok(());
        };
        let model = &*variants.models()[0];
        let made = Made { path, model };
        let threads = model.threads();
        self.made.threads = threads.and_then(|n| u32::try_from(n).ok());
        self.take_target(&made)?;
        made.take("accuracy", &mut self.accuracy)?;
        made.take("precision", &mut self.precision)?;
        if !made.says_all() {
            // Of such a file it is known that some factors are bf16, and the model may have them itself.
            let narrow = has_bf16(model).then_some(Precision::Bf16);
            self.precision = self.precision.or(narrow);
            self.accuracy = self.accuracy.or(Some(accuracy_of(model)));
        }
        self.training.take(&made)?;
        made.take_list("open-input", &mut self.open_inputs)?;
        self.compare_consts(&made)?;
        self.take_batch(&made)
    }

    fn take_target(&mut self, made: &Made<'_>) -> Result<()> {
        let Some(said) = made.said("target") else {
            return Ok(());
        };
        let target: Target = said.parse().map_err(|_| made.unknown("target", said))?;
        let machine = Machine::host();
        if let Some(given) = &self.target {
            let name = match given.as_str() {
                "host" => machine.isa.name(),
                name => name,
            };
            if name != target.name() {
                return Err(made.differs("target", given, target.name()));
            }
        }
        if let Some(given) = &self.tune_cpu {
            let Target::Cpu(of_flags) = self.target_of_flags(&machine, target.threads())?;
            let Target::Cpu(of_artifact) = &target;
            if of_flags.tune_cpu != of_artifact.tune_cpu {
                let cpu = of_artifact.tune_cpu.as_deref().unwrap_or("off");
                return Err(made.differs("tune-cpu", given, cpu));
            }
        }
        self.made.target = Some(target);
        Ok(())
    }

    /// The size of a batch that is no dimension with a name.
    fn take_batch(&mut self, made: &Made<'_>) -> Result<()> {
        let mut given = match self.batch[..] {
            [] => None,
            [size] => Some(size),
            _ => return Ok(()),
        };
        made.take(BATCH, &mut given)?;
        self.batch = given.into_iter().collect();
        Ok(())
    }

    /// Values of inputs are in no artifact, so they must be given again.
    fn compare_consts(&self, made: &Made<'_>) -> Result<()> {
        let Some(said) = made.said("const") else {
            return Ok(());
        };
        let given = self.sizes()?.consts;
        let path = made.path.display();
        for (name, hash) in said.lines().filter_map(|l| l.rsplit_once('=')) {
            let why = match given.get(name) {
                None => {
                    format!("{path} was compiled with --const {name}=FILE, and it is not given")
                }
                Some(value) if fingerprint(value) != hash => {
                    format!("{path} was compiled with another value of --const {name}")
                }
                Some(_) => continue,
            };
            return Err(Error::new(why).help(format!(
                "give --const {name}=FILE with the value that it was compiled with"
            )));
        }
        Ok(())
    }
}
