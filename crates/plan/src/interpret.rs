//! Running a plan by the interpreter, one step after another: the judge of
//! plans, and of compiled models on small shapes.

use crate::{Plan, PlanStep, PlanTensorId, TensorKind};
use ir::interpret::{Checks, InterpretError, run_with};
use tensor::Tensor;
use thiserror::Error;

/// Why a plan has no result.
#[derive(Debug, Error)]
pub enum InterpretPlanError {
    #[error("the plan takes {expected} inputs and {given} are given")]
    InputCount { expected: usize, given: usize },
    #[error("step `{step}`: {source}")]
    Step {
        step: String,
        source: Box<InterpretError>,
    },
}

impl Plan {
    /// The outputs on these inputs, in the model's order.
    ///
    /// # Errors
    /// If a step has no result: an input of another type or shape, an index out
    /// of range.
    pub fn interpret(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, InterpretPlanError> {
        let values = self.interpret_all(inputs)?;
        Ok(self
            .outputs
            .iter()
            .map(|o| self.value(*o, &values))
            .collect())
    }

    /// The value of one tensor that an input, a constant or a step defines, as
    /// it lies in memory.
    ///
    /// # Errors
    /// As [`Plan::interpret`].
    pub fn interpret_to(
        &self,
        inputs: &[Tensor],
        tensor: PlanTensorId,
    ) -> Result<Tensor, InterpretPlanError> {
        Ok(self.value(tensor, &self.interpret_all(inputs)?))
    }

    fn interpret_all(&self, inputs: &[Tensor]) -> Result<Vec<Option<Tensor>>, InterpretPlanError> {
        if inputs.len() != self.inputs.len() {
            return Err(InterpretPlanError::InputCount {
                expected: self.inputs.len(),
                given: inputs.len(),
            });
        }
        let mut values: Vec<Option<Tensor>> = vec![None; self.tensors.len()];
        for (id, t) in self.inputs.iter().zip(inputs) {
            values[id.index()] = Some(t.clone());
        }
        for (slot, t) in values.iter_mut().zip(&self.tensors) {
            if let TensorKind::Constant(c) = &t.kind {
                *slot = Some((**c).clone());
            }
        }
        for step in &self.steps {
            self.interpret_step(step, &mut values)?;
        }
        Ok(values)
    }

    fn interpret_step(
        &self,
        step: &PlanStep,
        values: &mut [Option<Tensor>],
    ) -> Result<(), InterpretPlanError> {
        let mut args: Vec<Tensor> = step.inputs.iter().map(|i| self.value(*i, values)).collect();
        for output in &step.outputs {
            let t = self.tensor(*output);
            args.push(Tensor::zeros(t.dtype, &self.extents(*output)));
        }
        let options = Checks { check_races: false };
        let program = &self.tasks[step.task].program;
        // A program may have one axis where the tensor has several.
        let shapes = program.params.iter().map(|p| &program.buffer(*p).shape);
        let fits = |t: &Tensor, shape: &[usize]| t.len() == shape.iter().product::<usize>();
        args = (args.into_iter().zip(shapes))
            .map(|(t, shape)| {
                let shape: Vec<usize> = shape.iter().map(|n| *n as usize).collect();
                if fits(&t, &shape) {
                    t.reshaped(&shape)
                } else {
                    t
                }
            })
            .collect();
        run_with(program, &mut args, options).map_err(|source| InterpretPlanError::Step {
            step: step.name.clone(),
            source: source.into(),
        })?;
        for (output, t) in step.outputs.iter().zip(args.split_off(step.inputs.len())) {
            let (root, offset) = self.place(*output);
            let whole = values[root.index()]
                .get_or_insert_with(|| Tensor::zeros(t.dtype(), &self.extents(root)));
            let start = offset as usize * t.dtype().size();
            whole.bytes_mut()[start..start + t.bytes().len()].copy_from_slice(t.bytes());
        }
        Ok(())
    }

    fn extents(&self, id: PlanTensorId) -> Vec<usize> {
        self.tensor(id).shape.iter().map(|n| *n as usize).collect()
    }

    fn value(&self, id: PlanTensorId, values: &[Option<Tensor>]) -> Tensor {
        let (root, offset) = self.place(id);
        let whole = values[root.index()].as_ref();
        let whole = whole.expect("steps write what later steps read");
        let mut t = Tensor::zeros(whole.dtype(), &self.extents(id));
        let start = offset as usize * t.dtype().size();
        let bytes = start..start + t.bytes().len();
        t.bytes_mut().copy_from_slice(&whole.bytes()[bytes]);
        t
    }
}
