//! What a plan costs besides its kernels, as `tasks` and `compile` say it:
//! conversions, views, bytes moved, and the memory for activations.

use plan::Plan;
use runtime::CompiledModel;
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct PlanFacts {
    steps: usize,
    /// Steps that only change a layout.
    conversions: usize,
    /// Tensors that are parts of others, or the same under another shape.
    views: usize,
    /// What all steps read and write, every operand of a step counted once.
    activation_bytes: u64,
    constant_bytes: u64,
    /// Known once the model is compiled.
    #[serde(flatten)]
    arena: Option<Arena>,
}

#[derive(Clone, Debug, Serialize)]
struct Arena {
    /// Of all activations: those that are never needed together share memory.
    arena_bytes: u64,
    /// Steps that write their output over an input.
    steps_in_place: usize,
}

impl PlanFacts {
    pub fn new(plan: &Plan) -> PlanFacts {
        let (activation_bytes, constant_bytes) = plan.moved_bytes();
        PlanFacts {
            steps: plan.steps.len(),
            conversions: plan.conversions,
            views: plan.views(),
            activation_bytes,
            constant_bytes,
            arena: None,
        }
    }

    pub fn with_arena(self, compiled: &CompiledModel) -> PlanFacts {
        PlanFacts {
            arena: Some(Arena {
                arena_bytes: compiled.arena_bytes(),
                steps_in_place: compiled.steps_in_place(),
            }),
            ..self
        }
    }

    /// One line.
    pub fn text(&self) -> String {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let arena = self.arena.as_ref().map_or(String::new(), |a| {
            format!(
                "; an arena of {:.2} MB for activations, {} steps that overwrite an input",
                mb(a.arena_bytes),
                a.steps_in_place
            )
        });
        format!(
            "plan: {} steps, {} layout conversions, {} views; steps move {:.2} MB of activations and {:.2} MB of constants{arena}",
            self.steps,
            self.conversions,
            self.views,
            mb(self.activation_bytes),
            mb(self.constant_bytes)
        )
    }
}
