//! Arguments of commands that take a training step of a model.

use super::ADVANCED;
use super::knobs::{default, doc};
use super::model_args::say;
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
                    learning_rate: self.learning_rate,
                    momentum: self.momentum,
                    weight_decay: self.weight_decay,
                };
                source.trained(sgd, self.dropout_seed)
            }
        }
    }
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
