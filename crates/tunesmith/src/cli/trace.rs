//! A trace of one inference, in the format of Chrome's trace viewer, which <https://ui.perfetto.dev> reads.
//!
//! An event is a step: its name, its begin and its duration in microseconds. Steps follow each other without the
//! gaps between them, in which the clock is read.

use super::output::Output;
use runtime::{CompiledModel, Model, ParamRole};
use serde_json::{Value, json};
use tune::Result;

/// How every trace begins.
pub const START: &str = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

/// Events of one inference of each model that was added.
#[derive(Default)]
pub struct Trace {
    events: Vec<Value>,
    models: usize,
}

impl Trace {
    /// Runs an inference of a warm model, and adds its steps. `sizes` tell variants of a model apart.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn add(&mut self, model: &mut Model, sizes: &str) -> Result<()> {
        let times_ns = model.invoke_profiled()?;
        self.add_steps(model.compiled(), sizes, &times_ns);
        Ok(())
    }

    /// Adds the steps of a model that took these times.
    pub fn add_steps(&mut self, compiled: &CompiledModel, sizes: &str, times_ns: &[u64]) {
        self.models += 1;
        let title = format!("{} {sizes}", compiled.name());
        self.events.push(json!({
            "ph": "M", "name": "process_name", "pid": self.models, "tid": 1,
            "args": { "name": title.trim_end() },
        }));
        let mut begin_ns = 0;
        for (at, &ns) in times_ns.iter().enumerate() {
            let step = &compiled.steps()[at];
            self.events.push(json!({
                "ph": "X", "name": step.name, "cat": "step", "pid": self.models, "tid": 1,
                "ts": begin_ns as f64 / 1e3, "dur": ns as f64 / 1e3,
                "args": {
                    "step": at,
                    "shape": shapes(compiled, at),
                    "algorithm": compiled.algorithm(&step.alternatives[0]),
                },
            }));
            begin_ns += ns;
        }
    }

    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, file: &Output) -> Result<()> {
        let events: Vec<String> = self.events.iter().map(Value::to_string).collect();
        file.write_bytes(format!("{START}\n{}\n]}}\n", events.join(",\n")).as_bytes())
    }
}

/// The shapes of what a step reads and writes, constants left out: `1x64x56x56 > 1x64x56x56`.
fn shapes(compiled: &CompiledModel, step: usize) -> String {
    let of = |role: ParamRole| {
        let calls = compiled.steps()[step].alternatives[0].calls.iter();
        let args = calls.flat_map(|c| compiled.kernel(c).params.iter().zip(&c.args));
        let own = args.filter(|(p, _)| p.role == role);
        let all: Vec<String> = own
            .map(|(_, id)| shape(&compiled.tensor(*id).shape))
            .collect();
        all.join(", ")
    };
    format!("{} > {}", of(ParamRole::Input), of(ParamRole::Output))
}

/// `1x64x56x56`; `scalar` without dimensions.
pub fn shape(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    match sizes.is_empty() {
        true => "scalar".into(),
        false => sizes.join("x"),
    }
}
