//! Where the time of a compiled model goes, step by step, and what stops each
//! step from being faster.
//!
//! A step cannot take less than its operations at the multiply-add peak, its
//! bytes at the bandwidth of the memory they come from, or one parallel loop:
//! the longest of the three is its *roofline*, and names the limit that binds.
//! Every cache holds as much as it has room for of what is touched between two
//! reads: of constants that is what a whole inference touches, of activations
//! what the step touches, since the step before has just written them. All three
//! are lower bounds of the chosen algorithm, up to the error of measured limits.

mod profile;
mod size;

pub use profile::{Profile, Times, profiles};
pub use size::{executed_flops, is_winograd, touched_elements};

use crate::titles::operator;
use ir::{Expr, ExprKind, Program, Target};
use plan::{Plan, Task};
use runtime::{BuiltKernel, CompiledModel, ParamRole};
use schedule::{Decision, Step, Trace};
use search::{Accuracy, Allowed, Point, Space, SpaceKind};
use serde::Serialize;
use std::collections::HashMap;
use tune::ceiling::Ceiling;
use tune::saved::Saved;

/// What a step spends at least its roofline on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    Compute,
    Memory,
    /// Starting and ending a parallel loop.
    Overhead,
}

impl Bound {
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
            Bound::Overhead => "overhead",
        }
    }
}

/// Lower bounds of a time, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Roofline {
    pub compute_ms: f64,
    pub memory_ms: f64,
    pub overhead_ms: f64,
}

impl Roofline {
    /// The longest of them.
    pub fn ms(self) -> f64 {
        self.compute_ms.max(self.memory_ms).max(self.overhead_ms)
    }

    pub fn limit(self) -> Bound {
        if self.overhead_ms > self.compute_ms.max(self.memory_ms) {
            Bound::Overhead
        } else if self.compute_ms >= self.memory_ms {
            Bound::Compute
        } else {
            Bound::Memory
        }
    }
}

/// What a step has to do, whatever runs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Of the operator's definition.
    pub flops: f64,
    /// What the algorithm executes at least; fewer for minimal filtering.
    pub executed_flops: f64,
    /// How many times the f32 peak the processor has for them.
    pub peak_factor: f64,
    /// Touched once each, of constants and of everything else.
    pub constant_bytes: f64,
    pub activation_bytes: f64,
    /// Whether threads share it, as far as is known.
    pub parallel: bool,
}

impl Work {
    /// Of kernels that run one after the other.
    fn sum(all: &[Work]) -> Work {
        let sum = |of: fn(&Work) -> f64| all.iter().fold(0.0, |sum, w| sum + of(w));
        let executed_flops = sum(|w| w.executed_flops);
        let at_peak = sum(|w| w.executed_flops / w.peak_factor);
        Work {
            flops: sum(|w| w.flops),
            executed_flops,
            peak_factor: match all {
                [one] => one.peak_factor,
                _ if at_peak > 0.0 => executed_flops / at_peak,
                _ => 1.0,
            },
            constant_bytes: sum(|w| w.constant_bytes),
            activation_bytes: sum(|w| w.activation_bytes),
            parallel: all.iter().any(|w| w.parallel),
        }
    }

    pub fn bytes(&self) -> f64 {
        self.constant_bytes + self.activation_bytes
    }

    /// `footprint`: bytes that one inference touches.
    pub fn roofline(&self, ceiling: &Ceiling, footprint: f64) -> Roofline {
        Roofline {
            compute_ms: self.executed_flops / (self.peak_factor * ceiling.peak_gflops) / 1e6,
            memory_ms: ceiling.read_ms(self.constant_bytes, footprint)
                + ceiling.read_ms(self.activation_bytes, self.bytes()),
            overhead_ms: if self.parallel {
                ceiling.fork_join.awake_us / 1e3
            } else {
                0.0
            },
        }
    }
}

/// One step of a compiled model.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    pub index: usize,
    pub name: String,
    /// The task with its arguments; none if the plan has no such step.
    pub task: Option<String>,
    /// The operator in a few words.
    pub operator: String,
    pub algorithm: String,
    /// The decisions of the schedule in a few words.
    pub schedule: String,
    /// Whether it moves elements and computes nothing.
    pub copies: bool,
    /// Whether operations are those of the definition, of which fewer are executed.
    pub counted_as_direct: bool,
    /// Inside the model.
    pub time: Times,
    /// Of all steps.
    pub share: f64,
    /// The kernel alone, as the store remembers it.
    pub alone_ms: Option<f64>,
    pub gflop: f64,
    pub mbytes: f64,
    /// Operations a byte.
    pub intensity: f64,
    pub gflops_per_s: f64,
    /// Of the peak of what it computes, which is so many times that of f32.
    pub of_peak: f64,
    pub peak_factor: f64,
    pub gb_per_s: f64,
    /// Of the bandwidth at which the levels that hold them can give the bytes.
    pub of_bandwidth: f64,
    /// Where most of the bytes come from.
    pub level: &'static str,
    pub roofline: Roofline,
    pub roofline_ms: f64,
    pub of_roofline: f64,
    pub limit: Bound,
    /// On one thread, if that was measured, and that time over all threads' time.
    pub one_thread_ms: Option<f64>,
    pub efficiency: Option<f64>,
}

/// What the plan tells of one step of a compiled model, whose first alternative runs.
pub struct StepFacts<'a> {
    /// Of its kernels, in the order they run.
    pub calls: Vec<CallFacts<'a>>,
    /// Of all of them.
    pub work: Work,
}

/// What the plan tells of one kernel of a step.
pub struct CallFacts<'a> {
    pub task: Option<&'a Task>,
    pub kernel: &'a BuiltKernel,
    pub trace: Option<Trace>,
}

/// Finds tasks, schedules and size of every step. Without a plan, a compiled model that was not
/// made from this very plan keeps what its kernels tell: bytes, and the schedules. `saved` are the columns that the plan's
/// steps can keep.
pub fn facts<'a>(
    plan: Option<&'a Plan>,
    saved: &[Saved],
    compiled: &'a CompiledModel,
    target: &Target,
) -> Vec<StepFacts<'a>> {
    let step_facts = |step: &'a runtime::ModelStep| {
        let calls = &step.alternatives[0].calls;
        let kernels: Vec<&BuiltKernel> = calls.iter().map(|c| compiled.kernel(c)).collect();
        let tasks = plan.and_then(|plan| tasks_of(plan, saved, &step.name, &kernels));
        let of_call = |(at, kernel): (usize, &&'a BuiltKernel)| CallFacts {
            task: tasks.as_ref().map(|tasks| tasks[at]),
            kernel,
            trace: schedule::parse(&kernel.schedule).ok(),
        };
        let calls: Vec<CallFacts<'_>> = kernels.iter().enumerate().map(of_call).collect();
        let of = |c: &CallFacts<'_>| work(c.task, c.kernel, c.trace.as_ref(), target);
        let works: Vec<Work> = calls.iter().map(of).collect();
        let work = Work::sum(&works);
        StepFacts { calls, work }
    };
    compiled.steps().iter().map(step_facts).collect()
}

/// The tasks of a step's kernels; none if the kernels are not those that the plan has there.
fn tasks_of<'a>(
    plan: &'a Plan,
    saved: &[Saved],
    name: &str,
    kernels: &[&BuiltKernel],
) -> Option<Vec<&'a Task>> {
    let position = |name: &str| plan.steps.iter().position(|s| s.name == name);
    let parts = position(name).and_then(|at| saved.iter().find_map(|s| s.calls_of(at)));
    let tasks = parts
        .into_iter()
        .flatten()
        .map(|part| &plan.tasks[part.task]);
    let tasks: Vec<&Task> = tasks.collect();
    let same = |(t, k): (&&Task, &&BuiltKernel)| has_shapes(t, k);
    if !tasks.is_empty() && tasks.len() == kernels.len() && tasks.iter().zip(kernels).all(same) {
        return Some(tasks);
    }
    let steps = match position(name) {
        Some(at) => at..at + 1,
        None => {
            let (first, last) = tune::stretches::ends(name)?;
            position(first)?..position(last)? + 1
        }
    };
    let steps = plan.steps.get(steps)?;
    let tasks: Vec<&Task> = steps.iter().map(|s| &plan.tasks[s.task]).collect();
    // One kernel in the place of one step is its kernel, in whatever layout it reads.
    let several = kernels.len() > 1 || tasks.len() > 1;
    let same = |(t, k): (&&Task, &&BuiltKernel)| has_types(t, k) && (!several || has_shapes(t, k));
    let fit = tasks.len() == kernels.len() && tasks.iter().zip(kernels).all(same);
    fit.then_some(tasks)
}

/// Whether what a kernel and a task both read and write is of equal element types: the operations of another type have
/// another peak.
fn has_types(task: &Task, kernel: &BuiltKernel) -> bool {
    kernel.params.iter().all(|p| {
        let id = task.program.buffer_named(&p.name);
        id.is_none_or(|id| {
            p.role == ParamRole::Prepared || task.program.buffer(id).dtype == p.dtype
        })
    })
}

/// Whether a kernel reads and writes tensors of the shapes that a task has.
fn has_shapes(task: &Task, kernel: &BuiltKernel) -> bool {
    let moved = |p: &&runtime::KernelParam| matches!(p.role, ParamRole::Input | ParamRole::Output);
    kernel.params.iter().filter(moved).all(|p| {
        let id = task.program.buffer_named(&p.name);
        id.is_some_and(|id| task.program.buffer(id).shape == p.shape)
    })
}

fn work(task: Option<&Task>, kernel: &BuiltKernel, trace: Option<&Trace>, target: &Target) -> Work {
    let flops = task.map_or(0.0, |t| t.flops);
    let executed = task.zip(trace);
    let shared = |s: &Step| matches!(s, Step::Parallel { .. });
    let mut work = Work {
        flops,
        executed_flops: executed.map_or(flops, |(t, trace)| {
            executed_flops(&t.program, trace, t.flops)
        }),
        peak_factor: task.map_or(1.0, |t| search::peak_factor(&t.program, target)),
        constant_bytes: 0.0,
        activation_bytes: 0.0,
        parallel: trace.is_none_or(|t| t.steps.iter().any(shared)),
    };
    for p in &kernel.params {
        let all = p.bytes().unwrap_or(0) as f64;
        let touched = task.and_then(|t| {
            let id = t.program.buffer_named(&p.name)?;
            let same = t.program.params.contains(&id) && t.program.buffer(id).shape == p.shape;
            let elements = same.then(|| touched_elements(&t.program, id))?;
            Some(elements as f64 * p.dtype.size() as f64)
        });
        let bytes = touched.unwrap_or(all);
        match p.role {
            ParamRole::Constant | ParamRole::Prepared => work.constant_bytes += bytes,
            ParamRole::Input | ParamRole::Output => work.activation_bytes += bytes,
        }
    }
    work
}

/// Bytes that one inference touches.
pub fn footprint(compiled: &CompiledModel, facts: &[StepFacts<'_>]) -> f64 {
    let constants: f64 = facts.iter().map(|f| f.work.constant_bytes).sum();
    constants + compiled.arena_bytes() as f64
}

/// Whether every value of a program is an element of an operand, up to its type, or a constant.
fn copies(program: &Program) -> bool {
    fn moves(e: &Expr) -> bool {
        match e.kind() {
            ExprKind::Select(_, a, b) => moves(a) && moves(b),
            ExprKind::Cast(_, a) => moves(a),
            ExprKind::Load(..) | ExprKind::Int(..) | ExprKind::Float(..) => true,
            _ => false,
        }
    }
    let ids = program.block_ids();
    let mut blocks = ids.iter().map(|b| program.block(*b));
    blocks.all(|b| !b.is_reduction() && b.writes.iter().all(|w| moves(&w.value)))
}

/// An algorithm that nobody names.
pub const OTHER: &str = "other";

/// The name of the sketch that a trace is a point of; a word for what is none.
/// A schedule for one thread is recognised for more as well: an artifact does
/// not tell for how many it was made.
pub fn algorithm(task: &Task, target: &Target, trace: &Trace) -> String {
    let serial = target.clone().with_threads(1);
    let found = sketch_of(task, target, trace).or_else(|| sketch_of(task, &serial, trace));
    found.unwrap_or_else(|| match search::fallback(&task.program, target) {
        Ok(c) if c.trace == *trace => c.algorithm,
        // The space of another version, or a schedule written by hand.
        _ if is_winograd(trace) => "winograd".into(),
        _ => OTHER.into(),
    })
}

fn sketch_of(task: &Task, target: &Target, trace: &Trace) -> Option<String> {
    // Rules have sketches of their own where templates keep them out.
    let mut named = [SpaceKind::All, SpaceKind::Rules].into_iter().map(|space| {
        let accuracy = Accuracy::Relaxed;
        search::space(&task.program, target, Allowed { accuracy, space })
    });
    named.find_map(|space| sketch_in(task, &space, trace))
}

fn sketch_in(task: &Task, space: &Space, trace: &Trace) -> Option<String> {
    for (sketch, s) in space.sketches.iter().enumerate() {
        let same = |(a, b): (&Decision, &Decision)| a.name == b.name && a.kind == b.kind;
        let pairs = s.decisions.iter().zip(&trace.decisions);
        if s.decisions.len() != trace.decisions.len() || !pairs.clone().all(same) {
            continue;
        }
        let values: Option<Vec<u64>> = trace.decisions.iter().map(Decision::index).collect();
        let Some(values) = values else { continue };
        let made = space.candidate(&task.program, &Point { sketch, values });
        if made.is_ok_and(|c| c.trace == *trace) {
            return Some(s.name.clone());
        }
    }
    None
}

/// The decisions of a trace in a few words: `x=7*16 k=4*1 unroll_s=7`.
pub fn short_schedule(trace: &Trace) -> String {
    let value = |d: &Decision| {
        let parts: Vec<String> = d.value.iter().map(ToString::to_string).collect();
        format!("{}={}", d.name, parts.join("*"))
    };
    let all: Vec<String> = trace.decisions.iter().map(value).collect();
    all.join(" ")
}

impl<'a> StepFacts<'a> {
    /// What all kernels of the step have to say, in their order; none if one has nothing.
    fn joined(&self, of: impl FnMut(&CallFacts<'a>) -> Option<String>) -> Option<String> {
        let all: Option<Vec<String>> = self.calls.iter().map(of).collect();
        all.map(|all| all.join(" + "))
    }
}

/// The algorithms of kernels, each of which is looked for once.
#[derive(Default)]
struct Algorithms<'a> {
    known: HashMap<(&'a str, &'a str), String>,
}

impl<'a> Algorithms<'a> {
    /// Without a task, or with one of another space, what the compiler wrote into the model.
    fn of(&mut self, call: &CallFacts<'a>, target: &Target) -> String {
        let written = match &*call.kernel.algorithm {
            "" => OTHER,
            name => name,
        };
        let (Some(task), Some(trace)) = (call.task, &call.trace) else {
            return written.into();
        };
        let key = (&*task.key, &*call.kernel.schedule);
        let found = || match algorithm(task, target, trace) {
            other if other == OTHER => written.into(),
            found => found,
        };
        self.known.entry(key).or_insert_with(found).clone()
    }
}

/// Puts facts, times and limits of every step together.
///
/// `alone_ms` gives the time of a kernel alone, where it is known.
pub fn layers(
    compiled: &CompiledModel,
    facts: &[StepFacts<'_>],
    target: &Target,
    profile: &Profile,
    ceiling: &Ceiling,
    alone_ms: impl Fn(&CallFacts<'_>) -> Option<f64>,
) -> Vec<Layer> {
    let footprint = footprint(compiled, facts);
    // From 0, as the sum of nothing is -0.
    let total = profile.steps.iter().fold(0.0, |sum, t| sum + t.median_ms);
    let mut algorithms = Algorithms::default();
    let mut layers = Vec::new();
    for (index, (step, f)) in compiled.steps().iter().zip(facts).enumerate() {
        let time = profile.steps[index];
        let roofline = f.work.roofline(ceiling, footprint);
        let s = time.median_ms / 1e3;
        let room = if f.work.constant_bytes > f.work.activation_bytes {
            footprint
        } else {
            f.work.bytes()
        };
        let level = ceiling.level_of(room);
        let gb_per_s = f.work.bytes() / s / 1e9;
        let gflops_per_s = f.work.flops / s / 1e9;
        layers.push(Layer {
            index,
            name: step.name.clone(),
            task: f.joined(|c| c.task.map(Task::title)),
            operator: f
                .joined(|c| c.task.map(|t| operator(&t.op, &t.args)))
                .unwrap_or_else(|| step.name.clone()),
            algorithm: f
                .joined(|c| Some(algorithms.of(c, target)))
                .unwrap_or_default(),
            schedule: f
                .joined(|c| Some(c.trace.as_ref().map_or(String::new(), short_schedule)))
                .unwrap_or_default(),
            copies: f
                .calls
                .iter()
                .all(|c| c.task.is_some_and(|t| copies(&t.program))),
            counted_as_direct: f.work.executed_flops < f.work.flops,
            time,
            share: time.median_ms / total,
            alone_ms: f.calls.iter().map(&alone_ms).sum(),
            gflop: f.work.flops / 1e9,
            mbytes: f.work.bytes() / 1e6,
            intensity: f.work.flops / f.work.bytes().max(1.0),
            gflops_per_s,
            of_peak: gflops_per_s / (f.work.peak_factor * ceiling.peak_gflops),
            peak_factor: f.work.peak_factor,
            gb_per_s,
            of_bandwidth: roofline.memory_ms / time.median_ms,
            level: level.name,
            roofline,
            roofline_ms: roofline.ms(),
            of_roofline: roofline.ms() / time.median_ms,
            limit: roofline.limit(),
            one_thread_ms: None,
            efficiency: None,
        });
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;
    use tune::ceiling::{ForkJoin, Level};

    fn ceiling() -> Ceiling {
        let level = |name, bytes, gb_per_s| Level {
            name,
            bytes,
            gb_per_s,
        };
        Ceiling {
            threads: 2,
            peak_gflops: 200.0,
            levels: vec![
                level("L2", Some(2_000_000), 400.0),
                level("memory", None, 20.0),
            ],
            fork_join: ForkJoin {
                awake_us: 1.0,
                asleep_us: 100.0,
            },
            exchange_ns: None,
        }
    }

    fn work(flops: f64, constant_bytes: f64, activation_bytes: f64) -> Work {
        Work {
            flops,
            executed_flops: flops,
            peak_factor: 1.0,
            constant_bytes,
            activation_bytes,
            parallel: true,
        }
    }

    #[test]
    fn the_longest_bound_binds() {
        let c = ceiling();
        let r = work(2e9, 1e6, 1e6).roofline(&c, 1e6);
        assert_eq!((r.limit(), r.ms()), (Bound::Compute, 10.0));
        let r = work(2e6, 2e6, 0.0).roofline(&c, 1e9);
        assert_eq!(r.limit(), Bound::Memory);
        assert!((r.ms() - 0.1).abs() < 1e-3);
        let r = work(1e3, 100.0, 100.0).roofline(&c, 1e3);
        assert_eq!((r.limit(), r.ms()), (Bound::Overhead, 1e-3));
    }

    #[test]
    fn constants_come_from_where_a_whole_inference_fits() {
        let c = ceiling();
        let small = work(0.0, 1e6, 1e6);
        let warm = small.roofline(&c, 1e6).memory_ms;
        let cold = small.roofline(&c, 1e8).memory_ms;
        assert!((warm - 2e6 / 400.0 / 1e6).abs() < 1e-12);
        // A cache of 2 MB holds a fiftieth of them.
        let constants = 0.02 * 1e6 / 400.0 + 0.98 * 1e6 / 20.0;
        assert!((cold - (constants + 1e6 / 400.0) / 1e6).abs() < 1e-12);
        // Activations too large for a cache come from memory in part.
        let large = work(0.0, 0.0, 4e6).roofline(&c, 0.0);
        assert!((large.memory_ms - (2e6 / 400.0 + 2e6 / 20.0) / 1e6).abs() < 1e-12);
    }

    #[test]
    fn every_sketch_is_recognised_from_its_trace() {
        let target = Target::generic(ir::Isa::X86Avx2);
        for name in [
            "op:conv2d(c=16,h=8,w=8,k=16,r=3,s=3,pad=1)",
            "op:dense(m=4,n=32,k=16)",
        ] {
            let model = graph::builtin::builtin(name, 1).unwrap();
            let options = plan::PlanOptions::from(plan::LayoutPolicy::Blocked);
            let plan = plan::plan(&model, &target, &options).unwrap();
            for task in &plan.tasks {
                let space = search::space(&task.program, &target, Accuracy::Relaxed);
                for (sketch, s) in space.sketches.iter().enumerate() {
                    let values = s.default.clone();
                    let Ok(c) = space.candidate(&task.program, &Point { sketch, values }) else {
                        continue;
                    };
                    let text = schedule::print(&c.trace);
                    let read = schedule::parse(&text).unwrap();
                    let found = algorithm(task, &target, &read);
                    let twin = space.sketches.iter().find(|o| o.name == found).unwrap();
                    assert!(
                        found == s.name || twin.steps == s.steps,
                        "{} {found}",
                        s.name
                    );
                }
                let empty = Trace {
                    steps: vec![],
                    decisions: vec![],
                };
                assert_eq!(algorithm(task, &target, &empty), "other");
            }
        }
    }
}
