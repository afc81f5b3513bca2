//! A plan as text, for people.

use crate::{Plan, PlanTensorId, TensorKind};
use std::fmt;

impl fmt::Display for Plan {
    /// The tasks with how often each runs, then the steps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flops: f64 = self.steps.iter().map(|s| self.tasks[s.task].flops).sum();
        writeln!(
            f,
            "plan {}: {} steps, {} tasks, {} layout conversions, {:.3} GFLOP",
            self.name,
            self.steps.len(),
            self.tasks.len(),
            self.conversions,
            flops / 1e9
        )?;
        for (i, (task, uses)) in self.tasks.iter().zip(self.uses()).enumerate() {
            writeln!(
                f,
                "task {i} x{uses} {} {:.6} GFLOP {:.3} MB key {}",
                task.title(),
                task.flops / 1e9,
                task.bytes / 1e6,
                task.key
            )?;
        }
        for step in &self.steps {
            let outputs: Vec<String> = step.outputs.iter().map(|t| self.typed(*t)).collect();
            let inputs: Vec<String> = step.inputs.iter().map(|t| self.typed(*t)).collect();
            writeln!(
                f,
                "step {}: task {} {} = {}({})",
                step.name,
                step.task,
                outputs.join(", "),
                self.tasks[step.task].op,
                inputs.join(", ")
            )?;
        }
        Ok(())
    }
}

impl Plan {
    fn typed(&self, id: PlanTensorId) -> String {
        let t = self.tensor(id);
        let dims: Vec<String> = t.shape.iter().map(i64::to_string).collect();
        let of = match t.kind {
            TensorKind::Alias { of, offset: 0 } => format!(" of {}", self.tensor(of).name),
            TensorKind::Alias { of, offset } => format!(" of {} at {offset}", self.tensor(of).name),
            _ => String::new(),
        };
        format!("{}: {}[{}]{of}", t.name, t.dtype, dims.join(","))
    }
}
