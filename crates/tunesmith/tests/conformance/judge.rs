//! One model, its inputs and its expected outputs; and schedules to judge.

use crate::compiled;
use graph::{Keep, Model, evaluate};
use ir::Target;
use llvm::Compiler;
use plan::{Plan, Task};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use runtime::{BuiltKernel, Pool};
use search::Accuracy;
use search::{Candidate, Space, space};
use std::collections::BTreeSet;
use std::sync::Arc;
use tensor::{DType, Fill, Tensor, compare, fill_tensor};
use testkit::host::host_targets;
use testkit::setting;
use tune::compile::{defaults, fallbacks};
use tune::machine::Machine;
use tune::source::{Precision, Source};
use tunesmith::{Requirements, load};

/// Random points of every sketch, unless `TUNESMITH_POINTS` says otherwise.
const POINTS: u64 = 1;

/// Whether the environment asks for more random points than usual.
pub fn asks_for_more_points() -> bool {
    setting("TUNESMITH_POINTS", POINTS) > POINTS
}

/// What code is made for and run with.
pub struct Setting {
    pub compiler: Compiler,
    pub pool: Arc<Pool>,
    /// Random schedules too, not only the fallback and the default.
    pub explores: bool,
}

impl Setting {
    fn new(target: &Target, explores: bool) -> Setting {
        Setting {
            compiler: Compiler::new(target).unwrap(),
            pool: Arc::new(Pool::new(target.threads() as usize).unwrap()),
            explores,
        }
    }

    fn target(&self) -> &Target {
        self.compiler.target()
    }
}

/// This machine with one thread and with two, and the other families that it runs.
pub fn settings() -> Vec<Setting> {
    let machine = Machine::host();
    let mut settings = vec![
        Setting::new(&machine.target(1), true),
        Setting::new(&machine.target(2), true),
    ];
    let others = host_targets()
        .into_iter()
        .filter(|t| *t != Target::generic(machine.isa));
    settings.extend(others.map(|t| Setting::new(&t, false)));
    settings
}

pub struct Judge {
    source: Source,
    inputs: Vec<Arc<Tensor>>,
    expected: Vec<Arc<Tensor>>,
}

impl Judge {
    /// The references' outputs on seeded inputs. Bytes are of their whole range,
    /// other integers indices up to 9.
    pub fn new(name: &str) -> Judge {
        Judge::with_precision(name, Precision::Model)
    }

    /// The same, of code with this precision: the references keep that of the model.
    pub fn with_precision(name: &str, precision: Precision) -> Judge {
        let source = Source {
            precision,
            ..load(name, &onnx::ImportOptions::default()).unwrap()
        };
        let inputs = inputs(&source.model);
        let expected = evaluate(&source.model, &inputs, Keep::Outputs).unwrap();
        Judge {
            expected: expected.outputs(),
            source,
            inputs,
        }
    }

    fn compile(&self, plan: &Plan, all: &[Candidate], setting: &Setting) -> Vec<BuiltKernel> {
        let built = compiled::kernels(plan, all, &setting.compiler);
        built.unwrap_or_else(|e| panic!("{}: {e}", self.what(setting, all)))
    }

    fn what(&self, setting: &Setting, candidates: &[Candidate]) -> String {
        let names: BTreeSet<_> = candidates.iter().map(|c| &*c.algorithm).collect();
        let (isa, threads) = (setting.target().name(), setting.target().threads());
        format!(
            "{} for {isa} with {threads} threads as {names:?}",
            self.source.name
        )
    }

    /// Panics if the model of these kernels gives other outputs.
    fn judge(&self, plan: &Plan, kernels: &[BuiltKernel], setting: &Setting, what: &str) {
        let mut model = compiled::load(plan, kernels, &setting.compiler, &setting.pool)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let outputs =
            compiled::run(&mut model, &self.inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(outputs.len(), self.expected.len(), "{what}");
        let tolerance = self.tolerance();
        for (output, expected) in outputs.into_iter().zip(&self.expected) {
            let difference = compare(&output.reshaped(expected.shape()), expected);
            assert!(difference.within(tolerance), "{what}: {difference:?}");
        }
    }

    /// Of halves, values that the references round stay in f32 inside a kernel.
    fn tolerance(&self) -> f64 {
        let mut types = self.expected.iter().map(|t| t.dtype());
        let rounded = match self.source.precision {
            Precision::Bf16 => Some(DType::BF16),
            Precision::Model => types.find(|d| matches!(d, DType::F16 | DType::BF16)),
        };
        match rounded {
            Some(DType::BF16) => 2.0f64.powi(-5),
            Some(_) => 2.0f64.powi(-8),
            None => Requirements::of_knobs().tolerance,
        }
    }

    /// The default schedule of every task.
    pub fn defaults(&self, setting: &Setting) {
        let plan = self
            .source
            .plan(setting.target(), Accuracy::Relaxed, &[])
            .unwrap();
        let candidates = defaults(&plan.tasks, setting.target(), Accuracy::Relaxed)
            .unwrap()
            .candidates;
        let kernels = self.compile(&plan, &candidates, setting);
        self.judge(&plan, &kernels, setting, &self.what(setting, &candidates));
    }

    /// The fallback, the default, and random points of every sketch of every task.
    fn schedules(&self, setting: &Setting) {
        let plan = self
            .source
            .plan(setting.target(), Accuracy::Relaxed, &[])
            .unwrap();
        let plain = fallbacks(&plan.tasks, setting.target()).unwrap();
        let kernels = self.compile(&plan, &plain, setting);
        self.judge(&plan, &kernels, setting, &self.what(setting, &plain));
        self.defaults(setting);
        if !setting.explores {
            return;
        }
        for (i, task) in plan.tasks.iter().enumerate() {
            for candidate in explored(task, setting.target()) {
                let one = std::slice::from_ref(&candidate);
                let trace = schedule::print(&candidate.trace);
                let what = format!("{}\n{trace}", self.what(setting, one));
                let built = compiled::kernel(task, &candidate, &setting.compiler);
                let mut kernels = kernels.clone();
                kernels[i] = built.unwrap_or_else(|e| panic!("{what}: {e}"));
                self.judge(&plan, &kernels, setting, &what);
            }
        }
    }
}

fn inputs(model: &Model) -> Vec<Arc<Tensor>> {
    let value = |(i, v): (usize, &graph::ValueId)| {
        let (dtype, shape) = (model[*v].dtype(), model[*v].shape());
        let fill = match dtype {
            DType::U8 => Fill::Integers { lo: 0, hi: 255 },
            d if d.is_float() => Fill::Uniform { lo: -1.0, hi: 1.0 },
            _ => Fill::Integers { lo: 0, hi: 9 },
        };
        Arc::new(fill_tensor(dtype, shape, fill, i as u64 + 1))
    };
    model.inputs().iter().enumerate().map(value).collect()
}

/// The space of a task, and its sketches whose default is illegal, with the reason.
pub fn space_of(task: &Task, target: &Target) -> (Space, Vec<String>) {
    let (isa, threads) = (target.name(), target.threads());
    let space = space(&task.program, target, Accuracy::Relaxed);
    let refused = space.refused.iter();
    let illegal = refused.map(|e| format!("{} for {isa}, {threads} threads: {e}", task.title()));
    let illegal = illegal.collect();
    (space, illegal)
}

/// Points of sketches of a task. Usually one a sketch, in turns for one number of threads or the
/// other, and random or the default; where `TUNESMITH_POINTS` asks for more points, the default
/// and so many random ones of all. Every default is legal; a random point may be refused.
fn explored(task: &Task, target: &Target) -> Vec<Candidate> {
    let (space, illegal) = space_of(task, target);
    assert_eq!(illegal, [""; 0]);
    let mut rng = Pcg64::seed_from_u64(u64::from(target.threads()));
    let mut out = Vec::new();
    let points_each = setting("TUNESMITH_POINTS", POINTS);
    let (every, odd) = (asks_for_more_points(), target.threads() as usize % 2);
    let alone = space.sketches.into_iter().map(|s| Space::of(vec![s]));
    for (at, one) in alone.enumerate() {
        if !every && at % 2 != odd {
            continue;
        }
        let mut points = BTreeSet::new();
        // The first sketch's default is the task's, which is judged anyway.
        if every || at % 4 >= 2 {
            points.insert(one.default_point());
        }
        if every || at % 4 < 2 {
            points.extend((0..points_each).map(|_| one.sample(&mut rng)));
        }
        let legal = points
            .iter()
            .filter_map(|p| one.candidate(&task.program, p).ok());
        out.extend(legal);
    }
    out
}

/// Panics unless every schedule of the model that is tried gives the
/// references' outputs.
pub fn conforms(name: &str) {
    let judge = Judge::new(name);
    for setting in settings() {
        judge.schedules(&setting);
    }
}
