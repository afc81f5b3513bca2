//! Inputs that keep what an inference leaves for the next one.

use super::{Model, TensorType, ValueId};
use std::sync::Arc;
use tensor::Tensor;

/// An input that begins with a value and from then on has what an output gave in the inference before, such
/// as a weight in training.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// Positions among the inputs and the outputs, which have one type.
    pub input: usize,
    pub output: usize,
    pub initial: Arc<Tensor>,
}

impl Model {
    /// Declares that an input keeps what `next` is in an inference for the inference after it; `next` becomes an
    /// output.
    ///
    /// # Panics
    /// If `input` is no input, or the types differ.
    pub fn add_state(&mut self, input: ValueId, next: ValueId, initial: impl Into<Arc<Tensor>>) {
        let initial = initial.into();
        let position = self.inputs.iter().position(|v| *v == input);
        let position = position.expect("a state is an input");
        assert_eq!(self[input].ty(), self[next].ty());
        assert_eq!(self[input].ty(), &TensorType::of(&initial));
        let name = format!("{}.next", self[input].name);
        self.add_named_output(next, &name);
        self.states.push(State {
            input: position,
            output: self.outputs.len() - 1,
            initial,
        });
    }

    /// Inputs that keep their values from one inference to the next.
    pub fn states(&self) -> &[State] {
        &self.states
    }
}
