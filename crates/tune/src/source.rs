//! A model to be tuned or compiled, and how it is planned.

use crate::error::{Error, Result};
use crate::layouts::Costs;
use crate::stretches::{Stretch, stretches};
use graph::{Model, NamedDim, Padded, Requantised, Rows};
use ir::Target;
use plan::{Grouped, LayoutPolicy, Plan, PlanOptions};
use runtime::{Dim, OutputRows, Padding};
use search::Accuracy;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Seed of the weights of built-in models.
const WEIGHTS_SEED: u64 = 1;

/// In which type products with weights take their factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// That of the model.
    Model,
    /// Those of f32 rounded to bf16 ([`graph::products_of_bf16`]).
    Bf16,
}

impl Precision {
    pub const ALL: [Precision; 2] = [Precision::Model, Precision::Bf16];

    pub fn name(self) -> &'static str {
        match self {
            Precision::Model => "model",
            Precision::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(s: &str) -> Result<Precision> {
        let found = Precision::ALL.into_iter().find(|p| p.name() == s);
        found.ok_or_else(|| {
            Error::new(format!("there is no precision `{s}`")).help("use model or bf16")
        })
    }
}

/// A model with its name and the layouts it asks for. Clones share the weights.
#[derive(Clone)]
pub struct Source {
    pub name: String,
    pub model: Model,
    pub layouts: LayoutPolicy,
    /// The dimensions of its inputs that were given their sizes by name.
    pub dims: Vec<NamedDim>,
    /// Of the plan; the model stays as it is.
    pub precision: Precision,
    /// What its file says wrongly and the model does not depend on, each in a sentence.
    pub notes: Vec<String>,
    /// Constants that a training step does not train.
    pub untrained: BTreeSet<String>,
}

impl Source {
    /// A built-in model, or one operator: `op:NAME(argument=value, ...)`.
    ///
    /// # Errors
    /// If there is no such model or operator.
    pub fn builtin(name: &str) -> Result<Source> {
        Source::builtin_batch(name, 1)
    }

    /// As [`Source::builtin`], for so many images.
    ///
    /// # Errors
    /// Also if the batch is fixed.
    pub fn builtin_batch(name: &str, batch: usize) -> Result<Source> {
        Ok(Source {
            name: name.to_string(),
            model: graph::builtin::builtin_batch(name, WEIGHTS_SEED, batch)?,
            layouts: LayoutPolicy::of_builtin(name)?,
            dims: vec![],
            precision: Precision::Model,
            notes: vec![],
            untrained: BTreeSet::new(),
        })
    }

    /// Leaves all constants untrained that no pattern of `only` names, if there is one, and those that a pattern of
    /// `freeze` names. In a pattern `*` stands for any characters. What is untrained already stays so, unless `only`
    /// names it.
    ///
    /// # Errors
    /// If a pattern names no constant that may be trained; nothing has changed then.
    pub fn choose_trained(&mut self, only: &[String], freeze: &[String]) -> Result<()> {
        let all = graph::trainable(&self.model);
        let unused = |p: &&String| !all.keys().any(|name| matches(p, name));
        if let Some(pattern) = only.iter().chain(freeze).find(unused) {
            let error = Error::new(format!("no weight of {} is named `{pattern}`", self.name));
            let names: Vec<&str> = all.keys().copied().take(8).collect();
            return Err(error.help(match names.is_empty() {
                true => {
                    "it has no weights: `--train-only` and `--freeze` have nothing to choose from"
                        .into()
                }
                false => format!("the first names are {}", names.join(", ")),
            }));
        }
        let named = |patterns: &[String], name: &str| patterns.iter().any(|p| matches(p, name));
        for name in all.keys() {
            if named(freeze, name) || !only.is_empty() && !named(only, name) {
                self.untrained.insert(name.to_string());
            } else if named(only, name) {
                self.untrained.remove(*name);
            }
        }
        Ok(())
    }

    /// A training step of the model ([`graph::training_step`]).
    ///
    /// # Errors
    /// If it is no classifier of operators that have gradients.
    pub fn trained(self, sgd: graph::Sgd, dropout_seed: u64) -> Result<Source> {
        let model =
            graph::training_step(&self.model, sgd, dropout_seed, &self.untrained).map_err(|e| {
                Error::new(format!("{} cannot be trained: {e}", self.name))
                    .help("docs/howto/train.md lists what can be trained")
            })?;
        Ok(Source {
            name: model.name.clone(),
            model,
            ..self
        })
    }

    /// Its dimensions as an artifact has them.
    pub fn artifact_dims(&self) -> Vec<Dim> {
        let rows = |r: &Option<Rows>| {
            r.map(|r| OutputRows {
                axis: r.axis,
                each: r.each,
            })
        };
        let padding = |p: &Padded| Padding {
            outputs: p.outputs.iter().map(rows).collect(),
            zeros: p.zeros.clone(),
        };
        let dim = |d: &NamedDim| Dim {
            name: d.name.clone(),
            inputs: d.inputs.clone(),
            padding: d.padding.as_ref().map(padding),
        };
        self.dims.iter().map(dim).collect()
    }

    /// Its sizes for people, such as `batch=1 seq=32`; empty if none has a name.
    pub fn sizes(&self) -> String {
        let one = |d: &NamedDim| format!("{}={}", d.name, d.size);
        let all: Vec<String> = self.dims.iter().map(one).collect();
        all.join(" ")
    }

    pub fn grouped(&self, target: &Target, accuracy: Accuracy) -> Result<Grouped> {
        let Target::Cpu(cpu) = target;
        let requantised = requantised(accuracy);
        let narrow = || graph::products_of_bf16(&self.model, requantised, cpu.tile_dot.is_some());
        Ok(match self.precision {
            Precision::Model => Grouped::new(&self.model, requantised)?,
            Precision::Bf16 => Grouped::new(&narrow(), requantised)?,
        })
    }

    /// How the model is planned, with these steps kept plain.
    pub fn options(&self, plain: &[String]) -> PlanOptions {
        PlanOptions {
            layouts: self.layouts,
            plain: plain.to_vec(),
        }
    }

    /// The stretches of a plan of the model that cost less in other layouts, at most so many each.
    ///
    /// # Errors
    /// If the model cannot be planned.
    pub fn stretches(
        &self,
        plan: &Plan,
        target: &Target,
        accuracy: Accuracy,
        costs: &Costs,
        most: usize,
    ) -> Result<Vec<Stretch>> {
        if most == 0 || self.layouts == LayoutPolicy::Plain {
            return Ok(Vec::new());
        }
        let grouped = self.grouped(target, accuracy)?;
        let planned = |plain: &[String]| grouped.plan(target, &self.options(plain));
        Ok(stretches(plan, &planned, costs, most))
    }

    /// The model as kernel calls for a target, with these steps kept plain.
    pub fn plan(&self, target: &Target, accuracy: Accuracy, plain: &[String]) -> Result<Plan> {
        let grouped = self.grouped(target, accuracy)?;
        Ok(grouped.plan(target, &self.options(plain)))
    }
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((begin, rest)) => name.strip_prefix(begin).is_some_and(|name| {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| matches(rest, &name[at..]))
        }),
    }
}

/// How models of this accuracy make bytes of the sums of products of bytes.
pub fn requantised(accuracy: Accuracy) -> Requantised {
    match accuracy {
        Accuracy::Strict => Requantised::Defined,
        Accuracy::Relaxed => Requantised::Folded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_what_is_trained() {
        for (pattern, name, fits) in [
            ("w", "w", true),
            ("w", "w2", false),
            ("a.*.b", "a.0.b", true),
            ("a.*.b", "a.0.bias", false),
            ("*", "", true),
            ("*b*", "abc", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
        let mut source = Source::builtin("vgg16-cifar").unwrap();
        let all: Vec<String> = graph::trainable(&source.model)
            .into_keys()
            .map(str::to_string)
            .collect();
        let patterns = |p: &str| [p.to_string()];
        assert!(source.choose_trained(&patterns("nothing"), &[]).is_err());
        assert!(source.untrained.is_empty());
        let only = patterns(&all[0]);
        source.choose_trained(&only, &[]).unwrap();
        assert_eq!(source.untrained.len(), all.len() - 1);
        source.choose_trained(&patterns("*"), &only).unwrap();
        assert_eq!(Vec::from_iter(&source.untrained), [&all[0]]);
    }
}
