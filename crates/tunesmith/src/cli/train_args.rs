//! Arguments of commands that take a training step of a model.

use super::ADVANCED;
use super::knobs::{default, doc};
use tune::Result;
use tune::source::Source;

/// Whether a training step is asked for, and its optimiser.
#[derive(clap::Args)]
pub struct TrainArgs {
    /// A training step of the model: forward, softmax with cross-entropy, gradients, and an update of its weights, which are states
    #[arg(help_heading = ADVANCED, hide_short_help = true, long)]
    pub train: bool,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("learning-rate"), default_value = default("learning-rate"), requires = "train")]
    pub learning_rate: f32,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("momentum"), default_value = default("momentum"), requires = "train")]
    pub momentum: f32,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("weight-decay"), default_value = default("weight-decay"), requires = "train")]
    pub weight_decay: f32,
    #[arg(help_heading = ADVANCED, hide_short_help = true, long, help = doc("dropout-seed"), default_value = default("dropout-seed"), requires = "train")]
    pub dropout_seed: u64,
}

impl TrainArgs {
    /// The source, or its training step if that is asked for.
    ///
    /// # Errors
    /// If the model cannot be trained.
    pub fn step_of(&self, source: Source) -> Result<Source> {
        match self.train {
            false => Ok(source),
            true => {
                let sgd = graph::Sgd {
                    learning_rate: self.learning_rate,
                    momentum: self.momentum,
                    weight_decay: self.weight_decay,
                };
                source.trained(sgd, self.dropout_seed)
            }
        }
    }
}
