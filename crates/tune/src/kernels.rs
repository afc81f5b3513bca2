//! The kernels that a plan is compiled with: the best that the store knows of each task,
//! or its default, or what reading it chooses.

use crate::algorithms::check_alternatives;
use crate::chooser::Chooser;
use crate::compile::{Builders, Warning, defaults, named};
use crate::error::Result;
use crate::knobs::columns_bytes;
use crate::known::{Lookup, Requirements};
use crate::observer::Silent;
use crate::saved::keep_columns;
use crate::stretches::{Stretch, Stretched, Wanted, stretched};
use crate::workers::Host;
use ir::Target;
use plan::{Plan, Task};
use runtime::BuiltKernel;
use search::{Candidate, Point, Sketch, Space, name_for_people};
use std::collections::BTreeMap;
use std::slice::from_ref;
use std::sync::Arc;
use store::Store;

/// The algorithm whose columns a training step may keep.
const IM2ROW: &str = "im2row";

/// Where the kernels of a plan come from.
#[derive(Clone, Copy)]
pub struct Origins<'a> {
    /// What they must keep to.
    pub requirements: Requirements,
    /// The best that a store knows, if there is one.
    pub store: Option<&'a Store>,
    /// The machine whose measurements count, by its name in the store; this one, if there is none.
    pub machine: Option<&'a str>,
    /// Of tasks that the store knows nothing of: what a chooser finds better than the default by
    /// reading, if there is one.
    pub chooser: Option<&'a Chooser<'a>>,
    /// Kernels a task, at most and at least 1: the further ones are the defaults of other sketches.
    pub count: usize,
    /// Prefixes of the names of algorithms that these further kernels may have, one kernel for each
    /// prefix; any algorithm, if there are none.
    pub algorithms: &'a [String],
    /// Room for the columns that convolutions of a training step may keep, if there are several kernels a task.
    pub columns_bytes: u64,
    /// Stretches of the plan with other layouts, if there are some to choose among.
    pub stretches: &'a [Stretch],
    /// Whether the model's file leaves out what is prepared of its constants.
    pub derive_at_load: bool,
}

impl<'a> Origins<'a> {
    /// One kernel a task: the best that a store knows, or the default.
    pub fn of(requirements: Requirements, store: Option<&'a Store>) -> Origins<'a> {
        Origins {
            requirements,
            store,
            machine: None,
            chooser: None,
            count: 1,
            algorithms: &[],
            columns_bytes: columns_bytes(),
            stretches: &[],
            derive_at_load: false,
        }
    }

    /// The name in the store of the machine whose measurements count.
    pub fn machine(&self, host: &Host) -> String {
        let of_host = || host.machine.fingerprint();
        self.machine.map_or_else(of_host, str::to_string)
    }
}

/// The kernels of every task of a plan, and where their schedules came from.
pub struct Kernels {
    /// The one that runs, and behind it alternatives of other code, if they were asked for; one of a task that no step
    /// has.
    pub kernels: Vec<Vec<Arc<BuiltKernel>>>,
    /// Stretches with their other layouts, of which there are kernels as well.
    pub stretched: Stretched,
    /// Tasks with a measured schedule.
    pub tuned: usize,
    /// Of those, the ones that another toolchain compiled when they were measured.
    pub other_toolchain: usize,
    /// Tasks whose schedule was chosen by reading instead of the default.
    pub read: usize,
    /// Of the tasks that have a default.
    pub warnings: Vec<Warning>,
}

/// Builds the kernels of every task. Where columns may be kept, the tasks of that are added to the plan.
///
/// # Errors
/// If the store cannot be read, or a schedule cannot be built.
pub fn kernels(
    plan: &mut Plan,
    host: &Host,
    target: &Target,
    from: &Origins<'_>,
) -> Result<Kernels> {
    let Origins {
        requirements,
        store,
        chooser,
        count,
        algorithms,
        columns_bytes,
        stretches,
        ..
    } = *from;
    check_alternatives(plan, target, requirements.allowed(), algorithms)?;
    let may_save = count > 1 && (algorithms.is_empty() || algorithms.iter().any(|a| a == IM2ROW));
    let room = if may_save { columns_bytes } else { 0 };
    let saved = keep_columns(plan, stretches, room);
    let plan = &*plan;
    let fingerprint = from.machine(host);
    let lookup = store.map(|s| Lookup::new(s, plan, target, &fingerprint, requirements));
    let known = match &lookup {
        Some(l) => l.best_in_model()?,
        None => plan.tasks.iter().map(|_| None).collect(),
    };
    let scores = match chooser {
        Some(c) => Some(c.read(plan, |task| known[task].is_none(), &mut Silent)?),
        None => None,
    };
    let (mut tuned, mut other_toolchain, mut read) = (0, 0, 0);
    let (mut candidates, mut warnings) = (Vec::new(), Vec::new());
    for (i, (task, known)) in plan.tasks.iter().zip(known).enumerate() {
        if let Some(k) = known {
            candidates.push(k.candidate);
            tuned += 1;
            other_toolchain += usize::from(!k.same_toolchain);
        } else if let Some(scores) = &scores {
            let of_task = &scores[i];
            read += usize::from(*of_task.chosen() != of_task.default);
            candidates.push(of_task.chosen().clone());
            warnings.extend(of_task.warnings.iter().cloned());
        } else {
            let default = defaults(from_ref(task), target, requirements.allowed())?;
            candidates.extend(default.candidates);
            warnings.extend(default.warnings);
        }
    }
    let mut builders = Builders::new(&host.workers, host.machine.cpus)?;
    let built = builders.build_all(&plan.tasks, &candidates, target)?;
    let mut kernels: Vec<Vec<Arc<BuiltKernel>>> = built.into_iter().map(|k| vec![k]).collect();
    if count > 1 {
        let of_steps = plan.uses().into_iter().map(|uses| uses > 0);
        let tasks = plan.tasks.iter().zip(of_steps);
        for (((task, of_step), first), of_task) in tasks.zip(&candidates).zip(&mut kernels) {
            if !of_step {
                continue;
            }
            let space = search::space(&task.program, target, requirements.allowed());
            let others = other_defaults(task, &space, first, algorithms);
            add_alternatives(task, target, others, count, of_task, &mut builders);
        }
    }
    let wanted = Wanted {
        base: plan,
        target,
        requirements,
        lookup: lookup.as_ref(),
    };
    let stretched = stretched(stretches.to_vec(), saved, count, &wanted, &mut builders)?;
    Ok(Kernels {
        kernels,
        stretched,
        tuned,
        other_toolchain,
        read,
        warnings,
    })
}

/// The defaults of all sketches but one, one group of candidates for each kernel that is wanted: of a group
/// the first that can be built stands for all.
fn other_defaults(
    task: &Task,
    space: &Space,
    first: &Candidate,
    algorithms: &[String],
) -> Vec<Vec<Candidate>> {
    let others = space.sketches.iter().enumerate();
    let others = others.filter(|(_, s)| s.name != first.algorithm);
    let point = |(sketch, s): (usize, &Sketch)| Point {
        sketch,
        values: s.default.clone(),
    };
    let candidates = others
        .map(point)
        .map(|p| space.candidate(&task.program, &p));
    let candidates: Vec<Candidate> = candidates.filter_map(std::result::Result::ok).collect();
    if algorithms.is_empty() {
        return candidates.into_iter().map(|c| vec![c]).collect();
    }
    let is_of = |c: &Candidate, prefix: &String| {
        let for_people = name_for_people(&task.program, &c.algorithm);
        c.algorithm.starts_with(&**prefix) || for_people.starts_with(&**prefix)
    };
    let missing = algorithms.iter().filter(|p| !is_of(first, p));
    let group = |prefix| {
        let of_prefix = candidates.iter().filter(|c| is_of(c, prefix));
        of_prefix.cloned().collect()
    };
    missing.map(group).collect()
}

/// Adds one kernel of each group of candidates until there are so many of different code. A candidate that cannot
/// be built is left out.
fn add_alternatives(
    task: &Task,
    target: &Target,
    groups: Vec<Vec<Candidate>>,
    count: usize,
    kernels: &mut Vec<Arc<BuiltKernel>>,
    builders: &mut Builders,
) {
    let text = ir::text::print(&task.program);
    let mut asked: BTreeMap<u64, (usize, Candidate)> = BTreeMap::new();
    for (group, candidates) in groups.into_iter().enumerate() {
        for candidate in candidates {
            let request = builders.request(&text, &candidate, target, false);
            asked.insert(builders.submit(request), (group, candidate));
        }
    }
    // In the order of the groups and of their candidates, whichever was built first.
    let mut built: BTreeMap<(usize, u64), Arc<BuiltKernel>> = BTreeMap::new();
    while let Some(o) = builders.pool.next(builders.patience()) {
        if let (Some((group, candidate)), Ok(Ok(b))) = (asked.get(&o.id), o.result) {
            built.insert(
                (*group, o.id),
                named(b.kernel, Some(candidate), &task.program),
            );
        }
    }
    let mut last = None;
    for ((group, _), kernel) in built {
        let same = kernels.iter().any(|k| k.code_hash() == kernel.code_hash());
        if kernels.len() < count && last != Some(group) && !same {
            kernels.push(kernel);
            last = Some(group);
        }
    }
}
