//! From a plan and one candidate a task to a compiled model.

use crate::bindings::{Bindings, added};
use crate::error::{Error, Result};
use crate::known::Requirements;
use crate::stretches::{Identity, Stretched, identity};
use crate::threads::unpinned;
use crate::workers::Workers;
use build::{BuildOptions, BuildRequest, BuilderPool, Read, ReadOptions};
use ir::{Program, Role, Target};
use plan::{Plan, PlanTensorId, Task, TensorKind};
use runtime::{BoundKernel, BuiltKernel, CompiledModel, ModelBuilder, Pool};
use search::{Accuracy, Allowed, Candidate, DefaultCandidate};
use serde::Serialize;
use simulate::External;
use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tensor::{DType, Tensor};

/// Builder processes for any targets, with the object cache.
pub struct Builders {
    pub pool: BuilderPool,
    cache: Option<PathBuf>,
    pub limit: Duration,
    /// The longest time beside that a simulator was given.
    simulation: Duration,
    next_id: u64,
}

/// Default time limit of one build.
pub const BUILD_LIMIT: Duration = Duration::from_secs(20);
/// The object cache is trimmed to this size.
const CACHE_BYTES: u64 = 1 << 30;

/// The folder that a variable of the environment names, or else this one in the user's home, if there is one. A
/// variable that is empty or names a relative path counts as not set (XDG base directories).
pub fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let of = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    of(variable).or_else(|| Some(of("HOME")?.join(in_home)))
}

/// Where objects are cached: the user's cache folder, if there is one.
fn cache_folder() -> Option<PathBuf> {
    let base = user_folder("XDG_CACHE_HOME", ".cache")?;
    let folder = base.join("tunesmith").join("objects");
    let cache = build::ObjectCache::open(&folder).ok()?;
    // A cache that cannot be trimmed still works.
    let _ = cache.trim(CACHE_BYTES);
    Some(folder)
}

impl Builders {
    pub fn new(workers: &Workers, count: usize) -> Result<Builders> {
        let pool = unpinned(|| BuilderPool::new(&workers.builder, count.max(1)))?;
        let cache = cache_folder();
        Ok(Builders {
            pool,
            cache,
            limit: BUILD_LIMIT,
            simulation: Duration::ZERO,
            next_id: 0,
        })
    }

    /// The request for a candidate of a program given as text.
    pub fn request(
        &self,
        program: &str,
        candidate: &Candidate,
        target: &Target,
        extras: bool,
    ) -> BuildRequest {
        BuildRequest {
            program: program.to_string(),
            trace: schedule::print(&candidate.trace),
            target: target.to_string(),
            options: BuildOptions {
                extras,
                ..BuildOptions::default()
            },
            cache: self.cache.clone(),
            fault: None,
        }
    }

    pub fn submit(&mut self, request: BuildRequest) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let read = request.options.read.as_ref();
        let external = read.and_then(|r| r.external.as_ref());
        let simulation = external.map_or(Duration::ZERO, External::limit);
        self.simulation = self.simulation.max(simulation);
        self.pool.submit(id, request, self.limit + simulation);
        id
    }

    /// Longer than the next answer may take.
    pub fn patience(&self) -> Duration {
        2 * (self.limit + self.simulation)
    }

    /// Waits for what is being built and drops it.
    pub fn drain(&mut self) {
        while self.pool.next(self.patience()).is_some() {}
    }

    /// Builds one candidate of every task, several at once.
    pub fn build_all(
        &mut self,
        tasks: &[Task],
        candidates: &[Candidate],
        target: &Target,
    ) -> Result<Vec<Arc<BuiltKernel>>> {
        let first = self.next_id;
        for (t, c) in tasks.iter().zip(candidates) {
            let request = self.request(&ir::text::print(&t.program), c, target, false);
            self.submit(request);
        }
        let mut out: Vec<Option<Arc<BuiltKernel>>> = tasks.iter().map(|_| None).collect();
        while let Some(o) = self.pool.next(self.patience()) {
            let at = (o.id - first) as usize;
            let fail =
                |why: String| Error::new(format!("cannot build {}: {why}", tasks[at].title()));
            match o.result {
                Ok(Ok(built)) => {
                    out[at] = Some(named(built.kernel, candidates.get(at), &tasks[at].program))
                }
                Ok(Err(e)) => return Err(fail(format!("{:?}: {}", e.stage, e.reason))),
                Err(death) => return Err(fail(format!("the builder died: {death:?}"))),
            }
        }
        out.into_iter()
            .zip(tasks)
            .map(|(b, t)| b.ok_or_else(|| Error::new(format!("{} was not built", t.title()))))
            .collect()
    }
}

/// A kernel of a program that says of which algorithm it is, if its candidate is known.
pub(crate) fn named(
    mut kernel: BuiltKernel,
    of: Option<&Candidate>,
    program: &Program,
) -> Arc<BuiltKernel> {
    if let Some(of) = of {
        kernel.algorithm = search::name_for_people(program, &of.algorithm);
    }
    Arc::new(kernel)
}

impl Builders {
    /// Reads candidates of tasks: what was read of each, or none where it can no longer be built. `told` hears how many are done.
    pub fn read_all(
        &mut self,
        candidates: &[(&Task, Candidate)],
        target: &Target,
        asked: &ReadOptions,
        told: &mut dyn FnMut(usize),
    ) -> Vec<Option<Read>> {
        let first = self.next_id;
        for (task, candidate) in candidates {
            let text = ir::text::print(&task.program);
            let mut request = self.request(&text, candidate, target, false);
            request.options.read = Some(asked.clone());
            self.submit(request);
        }
        let mut read = vec![None; candidates.len()];
        let mut done = 0;
        while let Some(o) = self.pool.next(self.patience()) {
            done += 1;
            told(done);
            if let Ok(Ok(built)) = o.result {
                read[(o.id - first) as usize] = built.read;
            }
        }
        read
    }
}

/// Names the task in an error of its schedule.
fn no_schedule(t: &Task) -> impl Fn(search::Refused) -> Error {
    let title = t.title();
    move |why| Error::new(format!("no schedule for {title}: {why}"))
}

/// The default candidate of every task.
pub struct Defaults {
    pub candidates: Vec<Candidate>,
    /// Defaults that their templates meant otherwise; `--json` prints them.
    pub warnings: Vec<Warning>,
}

/// A default schedule that is illegal for its task, which another replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub task: String,
    /// Every sketch that was passed over, with the illegal step.
    pub passed_over: Vec<String>,
    /// The algorithm used instead.
    pub used: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Warning {
            task,
            passed_over,
            used,
        } = self;
        let why = passed_over.join("; ");
        write!(
            f,
            "{task}: `{used}` is the default, as others are illegal here: {why}"
        )
    }
}

pub fn defaults(tasks: &[Task], target: &Target, allowed: impl Into<Allowed>) -> Result<Defaults> {
    let allowed = allowed.into();
    let mut out = Defaults {
        candidates: vec![],
        warnings: vec![],
    };
    for t in tasks {
        let found = search::default_candidate(&t.program, target, allowed);
        out.take(t.title(), found.map_err(no_schedule(t))?);
    }
    Ok(out)
}

impl Defaults {
    fn take(&mut self, task: String, found: DefaultCandidate) {
        if !found.passed_over.is_empty() {
            self.warnings.push(Warning {
                task,
                passed_over: found.passed_over,
                used: found.candidate.algorithm.clone(),
            });
        }
        self.candidates.push(found.candidate);
    }
}

/// The fallback candidate of every task.
pub fn fallbacks(tasks: &[Task], target: &Target) -> Result<Vec<Candidate>> {
    let one = |t: &Task| search::fallback(&t.program, target).map_err(no_schedule(t));
    tasks.iter().map(one).collect()
}

/// Assembles a model from the plan and one kernel a task.
///
/// # Errors
/// If a kernel does not fit its steps, or its constants cannot be prepared.
pub fn assemble<K: Borrow<BuiltKernel>>(
    plan: &Plan,
    kernels: &[K],
    target: &Target,
    accuracy: Accuracy,
    pool: &Arc<Pool>,
) -> Result<CompiledModel> {
    let kernels: Vec<[&BuiltKernel; 1]> = kernels.iter().map(|k| [k.borrow()]).collect();
    let none = Stretched::default();
    let constants = plan.constants();
    let b = builder(plan, target, pool);
    put_together(plan, constants, &kernels, &none, (target, accuracy), b)
}

/// As [`assemble_alternatives`], from a plan that nobody needs afterwards: where it holds the only
/// references to its constants, each is dropped as soon as it is prepared, so that they are
/// hardly ever in memory twice. If asked for, the file leaves out what is prepared
/// ([`ModelBuilder::derive_at_load`]).
///
/// # Errors
/// As [`assemble`].
pub fn assemble_last(
    mut plan: Plan,
    kernels: &[Vec<Arc<BuiltKernel>>],
    stretched: &Stretched,
    target: &Target,
    accuracy: Accuracy,
    pool: &Arc<Pool>,
    derive_at_load: bool,
) -> Result<CompiledModel> {
    let kernels: Vec<Vec<&BuiltKernel>> = kernels
        .iter()
        .map(|of_task| of_task.iter().map(|k| &**k).collect())
        .collect();
    let constants = plan.take_constants();
    let mut b = builder(&plan, target, pool);
    if derive_at_load {
        b.derive_at_load();
    }
    put_together(&plan, constants, &kernels, stretched, (target, accuracy), b)
}

/// Assembles a model from the plan and one kernel or more a task; steps run the
/// first one unless a selector says otherwise. A stretch is one step.
///
/// # Errors
/// As [`assemble`]; and if a task has no kernel.
pub fn assemble_alternatives(
    plan: &Plan,
    kernels: &[Vec<Arc<BuiltKernel>>],
    stretched: &Stretched,
    target: &Target,
    accuracy: Accuracy,
    pool: &Arc<Pool>,
) -> Result<CompiledModel> {
    let kernels: Vec<Vec<&BuiltKernel>> = kernels
        .iter()
        .map(|of_task| of_task.iter().map(|k| &**k).collect())
        .collect();
    let constants = plan.constants();
    let b = builder(plan, target, pool);
    put_together(plan, constants, &kernels, stretched, (target, accuracy), b)
}

/// The step that uses each constant last, by the constant's tensor, in the order of the tensors; outputs are used
/// for ever. The other layouts of a stretch use theirs in its last step.
fn last_uses(plan: &Plan, stretched: &Stretched) -> BTreeMap<PlanTensorId, usize> {
    let mut last = BTreeMap::new();
    for (i, step) in plan.steps.iter().enumerate() {
        let constants = step.inputs.iter().map(|t| plan.place(*t).0);
        last.extend(constants.map(|root| (root, i)));
    }
    let ids: HashMap<Identity, PlanTensorId> = plan
        .tensor_ids()
        .map(|id| (identity(plan, id), id))
        .collect();
    for s in &stretched.stretches {
        for other in &s.others {
            let steps = other.plan.steps[other.steps.clone()].iter();
            let roots = steps
                .flat_map(|s| &s.inputs)
                .map(|t| other.plan.place(*t).0);
            for id in roots.filter_map(|t| ids.get(&identity(&other.plan, t))) {
                let known = last.entry(*id).or_insert(s.steps.end - 1);
                *known = (*known).max(s.steps.end - 1);
            }
        }
    }
    for output in &plan.outputs {
        last.remove(&plan.place(*output).0);
    }
    last.retain(|t, _| matches!(plan.tensor(*t).kind, TensorKind::Constant(_)));
    last
}

/// Declares a plan's tensors, whose constants have these values; their ids, by tensor.
fn declare(
    plan: &Plan,
    mut constants: Vec<Option<Arc<Tensor>>>,
    b: &mut ModelBuilder,
) -> Result<Vec<runtime::TensorId>> {
    let shape = |id: PlanTensorId| -> Vec<usize> {
        plan.tensor(id).shape.iter().map(|d| *d as usize).collect()
    };
    let mut ids = vec![None; plan.tensors.len()];
    for id in &plan.inputs {
        let t = plan.tensor(*id);
        ids[id.index()] = Some(b.add_input(&t.name, t.dtype, &shape(*id)));
    }
    for id in plan.tensor_ids() {
        let t = plan.tensor(id);
        match &t.kind {
            TensorKind::Input(_) | TensorKind::Alias { .. } => {}
            TensorKind::Constant(_) => {
                let value = constants[id.index()].take();
                let value = value.expect("a constant has a value");
                ids[id.index()] = Some(b.add_constant(&t.name, value));
            }
            TensorKind::Activation | TensorKind::Output => {
                ids[id.index()] = Some(b.add_tensor(&t.name, t.dtype, &shape(id)));
            }
        }
    }
    for id in plan.tensor_ids() {
        if let TensorKind::Alias { of, offset } = plan.tensor(id).kind {
            let of = ids[of.index()].expect("an alias is of a tensor that is none");
            let t = plan.tensor(id);
            let bytes = offset as u64 * t.dtype.size() as u64;
            ids[id.index()] = Some(b.add_view(&t.name, of, bytes, t.dtype, &shape(id), None)?);
        }
    }
    let all = ids.into_iter();
    Ok(all
        .map(|id| id.expect("every tensor has been declared"))
        .collect())
}

/// What follows the accuracy of a compiled model with factors of bf16.
const BF16: &str = "bf16";

/// Whether factors of a compiled model are bf16: those of the model, or those that it rounds.
pub fn has_bf16(compiled: &CompiledModel) -> bool {
    compiled.accuracy().split(", ").any(|word| word == BF16)
}

/// The accuracy of a compiled model, and that factors are bf16 where some are.
fn accuracy_text(plan: &Plan, accuracy: Accuracy) -> String {
    let mut programs = plan.tasks.iter().map(|t| &t.program);
    let of_bf16 = programs.any(|p| {
        let mut params = p.params.iter();
        params.any(|b| p.buffer(*b).dtype == DType::BF16)
    });
    match of_bf16 {
        true => format!("{accuracy}, {BF16}"),
        false => accuracy.to_string(),
    }
}

/// The accuracy that a compiled model was made with; the default if it does not say.
pub fn accuracy_of(compiled: &CompiledModel) -> Accuracy {
    let said = compiled.accuracy().split(", ").next();
    let known = said.and_then(|a| a.parse().ok());
    known.unwrap_or_else(|| Requirements::of_knobs().accuracy)
}

/// What a compiled model was asked for, by the names of flags: that of the plan, the accuracy, and the whole target,
/// whose caches and vectors a plan depends on.
fn settings(plan: &Plan, accuracy: Accuracy, target: &Target) -> BTreeMap<String, String> {
    let mut all = plan.settings.clone();
    all.insert("accuracy".into(), accuracy.to_string());
    all.insert("target".into(), target.to_string());
    all
}

fn builder(plan: &Plan, target: &Target, pool: &Arc<Pool>) -> ModelBuilder {
    ModelBuilder::new(
        &plan.name,
        build::kernel_target(target),
        build::toolchain(),
        pool.clone(),
    )
}

/// What the best alternative of steps depends on: the hash of their tasks, as the store has them.
fn task_of(plan: &Plan, steps: impl Iterator<Item = usize>) -> [i64; 1] {
    let keys: Vec<&str> = steps
        .map(|at| &*plan.tasks[plan.steps[at].task].key)
        .collect();
    let key = match keys[..] {
        [one] => one.to_string(),
        _ => Task::key_of(&keys.join(" ")),
    };
    let hash = u64::from_str_radix(key.get(..16).unwrap_or(&key), 16);
    [hash.expect("a key is a number in hex").cast_signed()]
}

/// The model of a plan whose constants have these values, by tensor.
fn put_together<'k>(
    plan: &Plan,
    constants: Vec<Option<Arc<Tensor>>>,
    kernels: &[impl AsRef<[&'k BuiltKernel]>],
    stretched: &Stretched,
    (target, accuracy): (&Target, Accuracy),
    mut b: ModelBuilder,
) -> Result<CompiledModel> {
    b.set_accuracy(&accuracy_text(plan, accuracy));
    b.set_settings(settings(plan, accuracy, target));
    b.set_plain_steps(&plan.plain);
    let mut of_task = |(task, all): (usize, &[&BuiltKernel])| {
        let named = stretched.saved.iter().find_map(|s| s.algorithm(task));
        let own = |k: &BuiltKernel| named.map_or_else(|| k.algorithm.clone(), String::from);
        let kernel = |k: &&BuiltKernel| BuiltKernel {
            algorithm: own(k),
            ..(*k).clone()
        };
        all.iter().map(|k| added(&mut b, kernel(k))).collect()
    };
    let all = kernels.iter().map(AsRef::as_ref).enumerate();
    let kernels = all.map(&mut of_task).collect();
    let ids = declare(plan, constants, &mut b)?;
    let last = last_uses(plan, stretched);
    let mut bindings = Bindings::new(plan, kernels, ids, stretched);
    let mut at = 0;
    while at < plan.steps.len() {
        let of_step = bindings.stretch(at);
        let end = of_step.map_or(at + 1, |s| s.steps.end);
        let group = bindings.group_steps(at);
        // What is chosen together has one key.
        let task = match &group {
            Some(steps) => task_of(plan, steps.iter().copied()),
            None => task_of(plan, at..end),
        };
        let (name, mut choices) = match of_step {
            Some(s) => bindings.of_stretch(s, &mut b)?,
            None => (plan.steps[at].name.clone(), bindings.of_step(at)),
        };
        let group = bindings.of_group(at, &mut b);
        let group = group.map(|(group, set)| {
            choices.push(set);
            group
        });
        let choices: Vec<&[BoundKernel<'_>]> = choices.iter().map(|c| &**c).collect();
        match group {
            Some(group) => b.add_member(group, &name, &task, &choices)?,
            None => b.add_stretch(&name, &task, &choices)?,
        };
        for constant in last.iter().filter(|(_, last)| (at..end).contains(last)) {
            b.release(bindings.ids[constant.0.index()]);
        }
        at = end;
    }
    let ids = bindings.ids;
    for o in &plan.outputs {
        b.mark_output(ids[o.index()]);
    }
    for crop in &plan.crops {
        b.crop(*crop);
    }
    for s in &plan.states {
        b.add_state(s.input, s.output, s.initial.clone());
    }
    Ok(b.finish()?)
}

/// Parameters of a program that the caller provides: inputs and constants.
pub fn provided(program: &ir::Program) -> impl Iterator<Item = &ir::Buffer> {
    let all = program.params.iter().map(|p| program.buffer(*p));
    all.filter(|b| matches!(b.role, Role::Input | Role::Constant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedule::Trace;

    #[test]
    fn a_default_that_was_passed_over_becomes_a_warning() {
        let found = |passed_over: &[&str]| DefaultCandidate {
            candidate: Candidate {
                algorithm: "nest".into(),
                trace: Trace {
                    steps: vec![],
                    decisions: vec![],
                },
            },
            passed_over: passed_over.iter().map(ToString::to_string).collect(),
        };
        let mut d = Defaults {
            candidates: vec![],
            warnings: vec![],
        };
        d.take("a".into(), found(&[]));
        d.take("b".into(), found(&["direct: split: no such loop"]));
        assert_eq!(d.candidates.len(), 2);
        assert_eq!(d.warnings.len(), 1);
        let text = d.warnings[0].to_string();
        for part in ["b: ", "`nest`", "direct: split: no such loop"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
