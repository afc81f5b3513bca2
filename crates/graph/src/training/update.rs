//! The optimiser: what becomes of each state.

use super::{NotTrainable, Sgd, Step, scalar};
use crate::model::{Model, ModelError, ValueId};
use crate::ops::{Binary, Op};
use std::collections::HashMap;
use tensor::{DType, Tensor};

impl Step {
    /// Adds the outputs of all states: weights and velocities by their gradients, then running
    /// statistics, then the number of the step.
    pub(super) fn update(
        &mut self,
        gradients: &HashMap<ValueId, ValueId>,
        sgd: Sgd,
    ) -> Result<(), NotTrainable> {
        let rates = Rates::of(&mut self.model, sgd);
        for weight in self.weights.clone() {
            let initial = self.states[&weight].clone();
            let name = self.model[weight].name().to_string();
            let Some(gradient) = gradients.get(&weight) else {
                // Nothing that the loss depends on reads it.
                self.model.add_state(weight, weight, initial);
                continue;
            };
            let shape = self.model[weight].shape().to_vec();
            let velocity = format!("{name}.velocity");
            let velocity = self.model.add_input(&velocity, DType::F32, &shape);
            let (new, moved) = rates.apply(&mut self.model, &name, weight, velocity, *gradient)?;
            self.model.add_state(weight, new, initial);
            let still = Tensor::zeros(DType::F32, &shape);
            self.model.add_state(velocity, moved, still);
        }
        for (running, new) in std::mem::take(&mut self.statistics) {
            let initial = self.states[&running].clone();
            self.model.add_state(running, new, initial);
        }
        self.count_steps()?;
        Ok(())
    }
}

/// The constants of the optimiser; none for a rate of 0.
struct Rates {
    rate: ValueId,
    momentum: Option<ValueId>,
    decay: Option<ValueId>,
}

impl Rates {
    fn of(model: &mut Model, sgd: Sgd) -> Rates {
        let mut positive = |name: &str, value: f32| {
            let wanted = value != 0.0;
            wanted.then(|| model.add_constant(name, scalar(value)))
        };
        let momentum = positive("sgd.momentum", sgd.momentum);
        let decay = positive("sgd.weight_decay", sgd.weight_decay);
        Rates {
            rate: model.add_constant("sgd.learning_rate", scalar(sgd.learning_rate)),
            momentum,
            decay,
        }
    }

    /// The new weight and the new velocity.
    fn apply(
        &self,
        m: &mut Model,
        name: &str,
        weight: ValueId,
        velocity: ValueId,
        gradient: ValueId,
    ) -> Result<(ValueId, ValueId), ModelError> {
        let part = |what: &str| format!("{name}.{what}");
        let (add, sub, mul) = (Binary::Add, Binary::Sub, Binary::Mul);
        let mut moved = gradient;
        if let Some(decay) = self.decay {
            let part_of = m.add(&part("decay"), Op::Binary(mul), &[weight, decay])?;
            moved = m.add(&part("decayed"), Op::Binary(add), &[moved, part_of])?;
        }
        if let Some(momentum) = self.momentum {
            let kept = m.add(&part("kept"), Op::Binary(mul), &[velocity, momentum])?;
            moved = m.add(&part("moved"), Op::Binary(add), &[kept, moved])?;
        }
        let step = m.add(&part("step"), Op::Binary(mul), &[moved, self.rate])?;
        let new = m.add(&part("next"), Op::Binary(sub), &[weight, step])?;
        Ok((new, moved))
    }
}
