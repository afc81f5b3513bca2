//! A model to be tuned or compiled, and how it is planned.

use crate::error::Result;
use graph::Model;
use ir::Target;
use plan::{Grouped, LayoutPolicy, Plan, PlanOptions};

/// Seed of the weights of built-in models.
const WEIGHTS_SEED: u64 = 1;

/// A model with its name and the layouts it asks for. Clones share the weights.
#[derive(Clone)]
pub struct Source {
    pub name: String,
    pub model: Model,
    pub layouts: LayoutPolicy,
}

impl Source {
    /// A built-in model, or one operator: `op:NAME(argument=value, ...)`.
    ///
    /// # Errors
    /// If there is no such model or operator.
    pub fn builtin(name: &str) -> Result<Source> {
        Ok(Source {
            name: name.to_string(),
            model: graph::builtin::builtin(name, WEIGHTS_SEED)?,
            layouts: LayoutPolicy::of_builtin(name)?,
        })
    }

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
