//! `bench`: what the inputs of a measured model hold.

use super::model_args::{named_value, read_tensor};
use runtime::{CompiledModel, Model};
use std::path::{Path, PathBuf};
use tensor::Tensor;
use tune::latency::fill_inputs;
use tune::{Error, Result};

/// The seed of the inputs that no file gives.
const SEED: u64 = 1;

/// Values of inputs from files. All others are random.
pub struct Inputs {
    given: Vec<(String, Tensor)>,
    files: Vec<PathBuf>,
}

impl Inputs {
    /// Reads `NAME=FILE` for inputs of the model.
    ///
    /// # Errors
    /// If the model has no such input, or a file cannot be read.
    pub fn read(texts: &[String], model: &CompiledModel) -> Result<Inputs> {
        let ids = model.inputs().iter();
        let names: Vec<&str> = ids.map(|id| model.tensor(*id).name.as_str()).collect();
        let mut inputs = Inputs {
            given: vec![],
            files: vec![],
        };
        for text in texts {
            let (name, file) = named_value(text, &names)?;
            if !names.contains(&name) {
                return Err(Error::new(format!("the model has no input `{name}`"))
                    .help(format!("its inputs are: {}", names.join(", "))));
            }
            if inputs.given.iter().any(|(known, _)| known == name) {
                return Err(Error::new(format!("--input {name} is given twice"))
                    .help("give each input one file"));
            }
            inputs
                .given
                .push((name.into(), read_tensor(Path::new(file))?));
            inputs.files.push(file.into());
        }
        Ok(inputs)
    }

    /// The files that were read.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Fills every input of a model.
    ///
    /// # Errors
    /// If a value has another type or shape than its input.
    pub fn fill(&self, model: &mut Model) -> Result<()> {
        fill_inputs(model, SEED);
        let compiled = model.compiled().clone();
        for (i, id) in compiled.inputs().iter().enumerate() {
            let info = compiled.tensor(*id);
            let Some((name, value)) = self.given.iter().find(|(name, _)| *name == info.name) else {
                continue;
            };
            let (own, given) = (
                (info.dtype, &info.shape[..]),
                (value.dtype(), value.shape()),
            );
            if own != given {
                return Err(Error::new(format!(
                    "input `{name}` is {} of shape {:?}, and its file has {} of shape {:?}",
                    own.0, own.1, given.0, given.1
                ))
                .help("give a file that fits, or choose the variant that it fits with --dim NAME=SIZE"));
            }
            model.input_mut(i).copy_from_slice(value.bytes());
        }
        Ok(())
    }
}
