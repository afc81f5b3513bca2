//! Where models come from: an ONNX file, a built-in name, or one operator.

use crate::error::{Error, Result};
use graph::Model;
use ir::Target;
use onnx::ImportOptions;
use plan::{Grouped, LayoutPolicy, Plan, PlanOptions};
use std::path::Path;

/// Seed of the weights of built-in models.
const WEIGHTS_SEED: u64 = 1;

/// A model with its name and the layouts it asks for.
pub struct Source {
    pub name: String,
    pub model: Model,
    layouts: LayoutPolicy,
}

/// Loads `MODEL.onnx`, `NAME` or `op:...`.
pub fn load(name: &str, options: &ImportOptions) -> Result<Source> {
    let path = Path::new(name);
    if path.extension().is_some_and(|e| e == "onnx") || path.is_file() {
        let model = onnx::import_file(path, options)?;
        let stem = path
            .file_stem()
            .map_or(name.into(), |s| s.to_string_lossy().into_owned());
        return Ok(Source {
            name: stem,
            model,
            layouts: LayoutPolicy::Blocked,
        });
    }
    let model = graph::builtin::builtin(name, WEIGHTS_SEED).map_err(|e| {
        Error::new(e.to_string()).help(
            "give an ONNX file, a name that `tunesmith models` lists, or op:NAME(argument=value, ...)",
        )
    })?;
    if *options != ImportOptions::default() {
        return Err(Error::new(format!(
            "--batch, --dim and --const are for ONNX files, and the shapes of {name} are fixed"
        ))
        .help("an operator takes its sizes as arguments, as in op:conv2d(n=8)"));
    }
    let layouts = LayoutPolicy::of_builtin(name)?;
    Ok(Source {
        name: name.to_string(),
        model,
        layouts,
    })
}

impl Source {
    pub fn grouped(&self) -> Result<Grouped> {
        Ok(Grouped::new(&self.model)?)
    }

    /// How the model is planned, with these steps kept plain.
    pub fn options(&self, plain: &[String]) -> PlanOptions {
        PlanOptions {
            layouts: self.layouts,
            plain: plain.to_vec(),
        }
    }

    /// The model as kernel calls for a target, with these steps kept plain.
    pub fn plan(&self, target: &Target, plain: &[String]) -> Result<Plan> {
        Ok(self.grouped()?.plan(target, &self.options(plain)))
    }
}
