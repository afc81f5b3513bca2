//! Arguments of commands that take a training step of a model.

use super::ADVANCED;
use super::knobs::{default, doc, with_default};
use super::made_for::{Made, joined};
use super::model_args::say;
use std::fmt::Debug;
use std::str::FromStr;
use tune::Result;
use tune::source::Source;

/// Whether a training step is asked for, and its optimiser.
#[derive(clap::Args, Clone)]
pub struct TrainArgs {
    /// A training step of the model: forward, softmax with cross-entropy, gradients, and an update of its weights, which are states
    #[arg(help_heading = ADVANCED, hide_short_help = true, long)]
    pub train: bool,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("learning-rate"), requires = "train")]
    pub learning_rate: Option<f32>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("momentum"), requires = "train")]
    pub momentum: Option<f32>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("weight-decay"), requires = "train")]
    pub weight_decay: Option<f32>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = with_default("dropout-seed"), requires = "train")]
    pub dropout_seed: Option<u64>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("train-only"), value_name = "PATTERN", requires = "train")]
    pub train_only: Vec<String>,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("freeze"), value_name = "PATTERN", requires = "train")]
    pub freeze: Vec<String>,
}

impl TrainArgs {
    /// The source, or its training step if that is asked for. Says what is trained.
    ///
    /// # Errors
    /// If the model cannot be trained, or a pattern names none of its constants.
    pub fn step_of(&self, mut source: Source) -> Result<Source> {
        match self.train {
            false => Ok(source),
            true => {
                source.choose_trained(&self.train_only, &self.freeze)?;
                say(&trained(&source));
                let sgd = graph::Sgd {
                    learning_rate: or_usual("learning-rate", self.learning_rate),
                    momentum: or_usual("momentum", self.momentum),
                    weight_decay: or_usual("weight-decay", self.weight_decay),
                };
                source.trained(sgd, or_usual("dropout-seed", self.dropout_seed))
            }
        }
    }

    /// The flags that make the step, with their values; none without a step.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let number = |name, given: Option<f32>| (name, or_usual(name, given).to_string());
        let seed = or_usual("dropout-seed", self.dropout_seed);
        match self.train {
            false => vec![],
            true => vec![
                number("learning-rate", self.learning_rate),
                number("momentum", self.momentum),
                number("weight-decay", self.weight_decay),
                ("dropout-seed", seed.to_string()),
                ("train-only", joined(&self.train_only)),
                ("freeze", joined(&self.freeze)),
            ],
        }
    }

    /// Takes the flags of an artifact's step.
    ///
    /// # Errors
    /// If a flag contradicts them.
    pub fn take(&mut self, made: &Made<'_>) -> Result<()> {
        // Every step has a rate.
        if !made.has("learning-rate") {
            return match self.train && made.says_all() {
                true => Err(made.contradicted("--train", "without --train")),
                false => Ok(()),
            };
        }
        self.train = true;
        made.take("learning-rate", &mut self.learning_rate)?;
        made.take("momentum", &mut self.momentum)?;
        made.take("weight-decay", &mut self.weight_decay)?;
        made.take("dropout-seed", &mut self.dropout_seed)?;
        made.take_list("train-only", &mut self.train_only)?;
        made.take_list("freeze", &mut self.freeze)
    }
}

/// What a flag says, or else its default.
fn or_usual<T: FromStr<Err: Debug>>(name: &str, given: Option<T>) -> T {
    let usual = || default(name).parse();
    given.unwrap_or_else(|| usual().expect("the default of a knob is a value of it"))
}

/// Most names of untrained constants in a line.
const NAMED: usize = 8;

/// What a training step of a model trains, and the constants with axes that it leaves as they are.
fn trained(source: &Source) -> String {
    let (kept, trained): (Vec<_>, Vec<_>) = graph::trainable(&source.model)
        .into_iter()
        .partition(|(name, _)| source.untrained.contains(*name));
    let sizes = trained
        .iter()
        .map(|(_, shape)| shape.iter().product::<usize>());
    let (tensors, numbers) = (trained.len(), sizes.sum::<usize>());
    let trained = format!("trains {numbers} numbers in {tensors} tensors");
    if kept.is_empty() {
        return trained;
    }
    let names = kept.iter().take(NAMED);
    let names: Vec<String> = names
        .map(|(name, shape)| format!("{name} {shape:?}"))
        .collect();
    let more = match kept.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("{trained}; not trained: {}{more}", names.join(", "))
}
