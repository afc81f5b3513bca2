//! The kernels that a plan is compiled with: the best that the store knows of each task,
//! or its default, or what reading it chooses.

use crate::chooser::Chooser;
use crate::compile::{Builders, Warning, defaults};
use crate::error::Result;
use crate::known::{Lookup, Requirements};
use crate::observer::Silent;
use crate::workers::Host;
use ir::Target;
use plan::Plan;
use runtime::BuiltKernel;
use std::slice::from_ref;
use std::sync::Arc;
use store::Store;

/// The kernel of every task of a plan, and where their schedules came from.
pub struct Kernels {
    pub kernels: Vec<Arc<BuiltKernel>>,
    /// Tasks with a measured schedule.
    pub tuned: usize,
    /// Of those, the ones that another toolchain compiled when they were measured.
    pub other_toolchain: usize,
    /// Tasks whose schedule was chosen by reading instead of the default.
    pub read: usize,
    /// Of the tasks that have a default.
    pub warnings: Vec<Warning>,
}

/// Builds the best known kernel of every task, or the default one; or the one that a `chooser`
/// finds better by reading, if there is one.
///
/// # Errors
/// If the store cannot be read, or a schedule cannot be built.
pub fn kernels(
    plan: &Plan,
    host: &Host,
    target: &Target,
    requirements: Requirements,
    store: Option<&Store>,
    chooser: Option<&Chooser<'_>>,
) -> Result<Kernels> {
    let fingerprint = host.machine.fingerprint();
    let known = match store {
        Some(s) => Lookup::new(s, plan, target, &fingerprint, requirements).best_in_model()?,
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
    Ok(Kernels {
        kernels: built,
        tuned,
        other_toolchain,
        read,
        warnings,
    })
}
