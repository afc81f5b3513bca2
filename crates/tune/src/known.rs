//! What a store knows of tasks: the best candidate of each, for a model here.
//!
//! Promises that of a candidate only figures of this target and machine count, and
//! where there are such, of constants that come from where the model's come from.

use crate::FINAL_FACTOR;
use crate::error::Result;
use crate::knobs::{knob, number};
use ir::Target;
use plan::{Plan, Task};
use schedule::Trace;
use search::{Accuracy, Allowed, Candidate, SpaceKind};
use std::collections::BTreeSet;
use store::{
    Cache, CandidateKey, Compared, EventKind, InModel, Outcome, Record, RecordPlace, RecordQuery,
    Store, StoreError, TIMED,
};

/// What a kernel must keep to.
#[derive(Clone, Copy, Debug)]
pub struct Requirements {
    pub accuracy: Accuracy,
    /// Whose sketches it may come from.
    pub space: SpaceKind,
    /// Largest relative error (L2) of its outputs.
    pub tolerance: f64,
}

impl Requirements {
    /// The defaults of [`crate::knobs`].
    pub fn of_knobs() -> Requirements {
        let accuracy = knob("accuracy").default.parse();
        let space = knob("space").default.parse();
        Requirements {
            accuracy: accuracy.expect("the default of --accuracy is one"),
            space: space.expect("the default of --space is one"),
            tolerance: number(knob("tolerance")),
        }
    }

    /// What they say of candidates before any is run.
    pub fn allowed(&self) -> Allowed {
        Allowed {
            accuracy: self.accuracy,
            space: self.space,
        }
    }
}

/// A candidate that the store knows a time of.
#[derive(Clone, Debug)]
pub struct Known {
    pub candidate: Candidate,
    pub ns: u64,
    pub code_hash: Option<String>,
    /// Whether it was measured as this program compiles it. Another toolchain
    /// makes other code of the trace, whose time this one need not have.
    pub same_toolchain: bool,
}

/// Through how many bytes a plan's constants rotate, so that they are as near as when
/// the plan runs: as many as pass between their uses, or where the last level does not
/// hold these, `from_memory`.
pub fn rotate_bytes(plan: &Plan, target: &Target, from_memory: u64) -> u64 {
    match plan.bytes_between_uses() {
        bytes if bytes <= target.llc_bytes() => bytes,
        _ => from_memory,
    }
}

/// Whether kernels find their constants in memory, where these rotate through so many bytes.
pub(crate) fn from_memory(rotate_bytes: u64, target: &Target) -> bool {
    rotate_bytes > target.llc_bytes()
}

/// Whether a kernel that was measured read its constants from memory, as it does where
/// they rotate through so many bytes, or as there from a cache.
pub(crate) fn constants_as_near(record: &Record, rotate_bytes: u64, target: &Target) -> bool {
    let Outcome::Timed { conditions, .. } = &record.outcome else {
        return true;
    };
    let from_memory = from_memory(rotate_bytes, target);
    match conditions.cache {
        Cache::CachedConstants => !from_memory,
        Cache::RotatedConstants => from_memory,
        _ => true,
    }
}

/// Where a store has times of tasks that it has none of for a target and a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Counts of threads, and of how many tasks there are times for each.
    pub threads: Vec<(u32, usize)>,
    /// Names of machines, likewise.
    pub machines: Vec<(String, usize)>,
}

/// Asks a store for the best candidates of a plan's tasks.
pub struct Lookup<'a> {
    store: &'a Store,
    plan: &'a Plan,
    target: &'a Target,
    target_text: String,
    machine: &'a str,
    requirements: Requirements,
    /// [`Plan::bytes_between_uses`].
    between_uses: u64,
}

impl<'a> Lookup<'a> {
    /// `machine` is a [`store::MachineKey::fingerprint`].
    pub fn new(
        store: &'a Store,
        plan: &'a Plan,
        target: &'a Target,
        machine: &'a str,
        requirements: Requirements,
    ) -> Lookup<'a> {
        Lookup {
            store,
            plan,
            target,
            target_text: crate::machine::target_key(target).text(),
            machine,
            requirements,
            between_uses: plan.bytes_between_uses(),
        }
    }

    fn place<'s>(&'s self, task: &'s Task) -> RecordPlace<'s> {
        RecordPlace {
            task: &task.key,
            target: &self.target_text,
            machine: self.machine,
        }
    }

    /// The best candidate that the store knows for a task, of those that this program
    /// can still apply, that are exact enough and whose space is allowed; of those whose constants were as near
    /// as the plan's are, if there are any.
    pub fn best(&self, task: &Task) -> Result<Option<Known>> {
        let near = |r: &Record| constants_as_near(r, self.between_uses, self.target);
        match self.best_that(task, near)? {
            None => self.best_that(task, |_| true),
            found => Ok(found),
        }
    }

    /// Of how many tasks there are times of a machine for a target.
    fn measured(&self, target: &Target, machine: &str) -> Result<usize> {
        let there = Lookup::new(self.store, self.plan, target, machine, self.requirements);
        Ok(there.best_of_all()?.iter().flatten().count())
    }

    /// Other counts of threads for which this machine has times of these tasks, and of how many tasks.
    fn other_threads(&self) -> Result<Vec<(u32, usize)>> {
        let targets = self.store.targets()?;
        let mut counts: BTreeSet<u32> = targets.iter().map(|t| t.threads).collect();
        counts.remove(&self.target.threads());
        let mut found = Vec::new();
        for threads in counts {
            let target = self.target.clone().with_threads(threads);
            found.push((threads, self.measured(&target, self.machine)?));
        }
        found.retain(|(_, tasks)| *tasks > 0);
        Ok(found)
    }

    /// Other machines that have times of these tasks for this target, by their names in the store, and of how many tasks.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn other_machines(&self) -> Result<Vec<(String, usize)>> {
        let mut found = Vec::new();
        for machine in self.store.machines()? {
            let name = machine.fingerprint;
            let tasks = self.measured(self.target, &name)?;
            found.push((name, tasks));
        }
        found.retain(|(name, tasks)| name != self.machine && *tasks > 0);
        Ok(found)
    }

    /// Where else there are times of these tasks: of other counts of threads on this machine, and of other machines.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn elsewhere(&self) -> Result<Elsewhere> {
        Ok(Elsewhere {
            threads: self.other_threads()?,
            machines: self.other_machines()?,
        })
    }

    /// The traces of all candidates of a task that the machine has timed, as text.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn timed(&self, task: &Task) -> Result<BTreeSet<String>> {
        let place = self.place(task);
        let query = RecordQuery {
            task: Some(place.task),
            target: Some(place.target),
            machine: Some(place.machine),
            evaluator: Some(TIMED),
            ..RecordQuery::default()
        };
        let mut traces = BTreeSet::new();
        self.store.visit_records(&query, |_, r| {
            if r.outcome.median_ns().is_some() {
                traces.insert(r.trace);
            }
            Ok(())
        })?;
        Ok(traces)
    }

    /// [`Lookup::best`] of every task of the plan.
    pub fn best_of_all(&self) -> Result<Vec<Option<Known>>> {
        self.plan.tasks.iter().map(|t| self.best(t)).collect()
    }

    /// As [`Lookup::best_of_all`]; where tuning this very model chose another candidate near
    /// the best by the latency of the whole model, that one. Nothing of the tasks of steps where
    /// a run found the defaults together to be faster than these very kernels.
    pub fn best_in_model(&self) -> Result<Vec<Option<Known>>> {
        let mut known = self.best_of_all()?;
        let here =
            |target: &str, machine: &str| target == self.target_text && machine == self.machine;
        let events = self.store.newest_events(&self.plan.name, InModel::NAME)?;
        let chosen = events.iter().filter_map(|e| match &e.kind {
            EventKind::InModel(d) if here(&d.target, &d.machine) => {
                Some((&e.task, &e.run_id, d.chosen))
            }
            _ => None,
        });
        let choices: Vec<_> = chosen.collect();
        for (task, known) in self.plan.tasks.iter().zip(&mut known) {
            let Some(best) = known else { continue };
            let of_task = |c: &&(&Option<String>, _, _)| c.0.as_ref() == Some(&task.key);
            let Some((_, run, trial)) = choices.iter().find(of_task) else {
                continue;
            };
            let chosen = |r: &Record| r.run_id == **run && r.trial == *trial;
            // What was found since by much better measurements of its own wins.
            if let Some(chosen) = self.best_that(task, chosen)?
                && chosen.ns as f64 <= FINAL_FACTOR * best.ns as f64
            {
                *best = chosen;
            }
        }
        let events = self.store.newest_events(&self.plan.name, Compared::NAME)?;
        let uses = self.plan.uses();
        let of_these = |c: &&Compared| {
            let code = |(i, k): (usize, &Option<Known>)| {
                let same = |k: &Known| k.code_hash.as_ref() == c.code.get(i);
                uses[i] == 0 || k.as_ref().is_none_or(same)
            };
            here(&c.target, &c.machine)
                && c.plan == self.plan.key()
                && c.accuracy == self.requirements.accuracy.name()
                && c.space == self.requirements.space.name()
                && known.iter().enumerate().all(code)
        };
        let mut compared = events.iter().filter_map(|e| match &e.kind {
            EventKind::Compared(c) => Some(c),
            _ => None,
        });
        if compared.find(of_these).is_some_and(|c| c.default) {
            let of_steps = known.iter_mut().zip(&uses).filter(|(_, uses)| **uses > 0);
            of_steps.for_each(|(known, _)| *known = None);
        }
        Ok(known)
    }

    /// The names of the sketches that a record may come from; none where all may.
    fn sketches(&self, task: &Task) -> Option<Vec<String>> {
        let restricted = self.requirements.space != SpaceKind::All;
        restricted.then(|| {
            let allowed = self.requirements.allowed();
            let space = search::space(&task.program, self.target, allowed);
            space.sketches.into_iter().map(|s| s.name).collect()
        })
    }

    /// The best record that `accept` takes and this program can still apply.
    fn best_that(&self, task: &Task, accept: impl Fn(&Record) -> bool) -> Result<Option<Known>> {
        let tolerance = self.requirements.tolerance;
        let place = self.place(task);
        let names = self.sketches(task);
        let mut taken = None;
        let record = self.store.best_that(&place, tolerance, |r| {
            if !accept(r) || names.as_ref().is_some_and(|n| !n.contains(&r.algorithm)) {
                return Ok(false);
            }
            // An older trace syntax, or a step that has become illegal.
            let Ok(trace) = schedule::parse(&r.trace) else {
                return Ok(false);
            };
            let usable = self.requirements.accuracy.allows(&trace)
                && r.outcome.within(tolerance)
                && schedule::replay(&task.program, &trace).is_ok();
            if !usable || self.differs_now(&place, r)? {
                return Ok(false);
            }
            taken = Some(trace);
            Ok(true)
        })?;
        let known = |(r, trace): (Record, Trace)| {
            Some(Known {
                ns: r.outcome.median_ns()?,
                code_hash: r.code_hash,
                same_toolchain: r.toolchain == build::toolchain(),
                candidate: Candidate {
                    algorithm: r.algorithm,
                    trace,
                },
            })
        };
        Ok(record.zip(taken).and_then(known))
    }

    /// Whether a candidate that another toolchain compiled has failed with this one, or
    /// is other code with it, which has a record of its own.
    fn differs_now(
        &self,
        place: &RecordPlace<'_>,
        r: &Record,
    ) -> std::result::Result<bool, StoreError> {
        if r.toolchain == build::toolchain() {
            return Ok(false);
        }
        let key = CandidateKey {
            place: *place,
            toolchain: build::toolchain(),
            algorithm: &r.algorithm,
            trace: &r.trace,
        };
        let now = self
            .store
            .outcome_of_candidate(&key, self.requirements.tolerance)?;
        let differs = |n: Record| n.outcome.median_ns().is_none() || n.code_hash != r.code_hash;
        Ok(now.is_some_and(differs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{defaults, fallbacks};
    use crate::machine::{Machine, target_key};
    use crate::{begun_run, task_record};
    use store::{Clock, Conditions, Extra, SpentByStage};

    const OP: &str = "op:dense(m=64,n=256,k=128)";
    /// Weights, and what goes in and out.
    const BYTES: u64 = 4 * (256 * 128 + 64 * 128 + 64 * 256);
    const MACHINE: &str = "this";
    const EXACT: Requirements = Requirements {
        accuracy: Accuracy::Strict,
        space: SpaceKind::All,
        tolerance: 1e-4,
    };

    fn planned(llc_bytes: u64) -> (Plan, Target) {
        let source = crate::source::Source::builtin(OP).unwrap();
        let machine = Machine {
            llc_bytes,
            ..Machine::host()
        };
        let target = machine.target(1);
        (source.plan(&target, EXACT.accuracy, &[]).unwrap(), target)
    }

    #[test]
    fn constants_of_a_small_model_stay_in_the_last_level() {
        let through = |llc_bytes| {
            let (plan, target) = planned(llc_bytes);
            rotate_bytes(&plan, &target, u64::MAX)
        };
        assert_eq!(through(1 << 20), BYTES);
        assert_eq!(through(BYTES), BYTES);
        assert_eq!(through(BYTES - 1), u64::MAX);
    }

    /// Whether the default is the best known candidate of a model that the last level
    /// holds, when it took 100 ns and the fallback 200 with constants like these.
    fn default_is_best(default: Cache, fallback: Cache) -> bool {
        let (plan, target) = planned(1 << 20);
        let task = &plan.tasks[0];
        let store = Store::open_in_memory().unwrap();
        let key = target_key(&target);
        store.put_target(&key).unwrap();
        store.put_task(&task_record(task)).unwrap();
        store
            .put_machine(&store::MachineKey {
                fingerprint: MACHINE.into(),
                description: String::new(),
                extra: Extra::new(),
            })
            .unwrap();
        store.begin_run(&begun_run(&plan.name)).unwrap();
        let first = defaults(&plan.tasks, &target, EXACT.allowed()).unwrap();
        let first = first.candidates[0].clone();
        let other = fallbacks(&plan.tasks, &target).unwrap().remove(0);
        let known = [(&first, 100, default), (&other, 200, fallback)];
        for (trial, (candidate, ns, cache)) in (0..).zip(known) {
            let conditions = Conditions {
                cache,
                rel_l2: Some(0.0),
                ..Conditions::unproven(1, 1)
            };
            let record = Record {
                run_id: "run".into(),
                trial,
                final_: false,
                task: task.key.clone(),
                target: key.text(),
                machine: MACHINE.into(),
                evaluator: TIMED.into(),
                strategy: "random".into(),
                seed: 1,
                toolchain: build::toolchain().to_string(),
                algorithm: candidate.algorithm.clone(),
                decisions: vec![],
                trace: schedule::print(&candidate.trace),
                code_hash: Some(format!("{trial}")),
                code_size: Some(1),
                outcome: Outcome::Timed {
                    samples_ns: vec![ns],
                    clock: Clock::ThreadCpu,
                    conditions,
                },
                outcome_extra: Extra::new(),
                spent: SpentByStage::default(),
                created_unix_ms: 1,
                extra: Extra::new(),
            };
            store.append(&[record], &[]).unwrap();
        }
        let lookup = Lookup::new(&store, &plan, &target, MACHINE, EXACT);
        let best = lookup.best(task).unwrap().unwrap();
        assert!(best.candidate == first || best.candidate == other);
        best.candidate == first
    }

    #[test]
    fn times_with_constants_as_near_as_the_models_come_first() {
        let (far, near) = (|| Cache::RotatedConstants, || Cache::CachedConstants);
        assert!(!default_is_best(far(), near()));
        assert!(!default_is_best(far(), Cache::Warm));
        assert!(default_is_best(far(), far()), "better than no time");
        assert!(default_is_best(near(), near()));
        assert!(default_is_best(near(), far()));
        assert!(default_is_best(Cache::Warm, near()));
    }
}
