//! Measuring what was built: batches of a task, by the run's policy.
//!
//! Owns candidates between builders and measurer. Promises that code which the
//! store knows, or which is in the same batch, is not measured twice, and that
//! candidates are concluded in the order of the batch. How a batch is measured
//! is the policy's (`measure::Measurer`).

use crate::budget::{turn, unmeasured};
use crate::compile::Builders;
use crate::error::{Error, Result};
use crate::known::constants_as_near;
use crate::machine::Machine;
use crate::record;
use crate::session::{Pending, Session};
use crate::task_search::KnownPlace;
use crate::threads::unpinned;
use crate::workers::Host;
use build::Built;
use ir::Target;
use measure::{
    Batch, Constants, Device, Dispatch, LocalDevices, Measurer, Policy, Protocol, TaskState,
};
use runtime::BuiltKernel;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Doppler, EventKind, Extra, Outcome, Place, Record, TIMED, Tell, TimeSpent};

/// A candidate that waits for its batch.
pub struct Ready {
    pub pending: Pending,
    pub built: Built,
    pub build: TimeSpent,
}

/// How the measurer of a run is set.
#[derive(Clone, Debug)]
pub struct Settings {
    pub policy: Policy,
    /// Candidates of a task that are measured together by a parallel policy.
    pub batch: usize,
    /// Sets that the CPUs are divided into.
    pub devices: usize,
    /// Runners that share a CPU, if kernels have one thread.
    pub oversubscribe: u32,
    pub constants: Constants,
    /// Share of candidates as fast as the best that may be given up early.
    pub lose: f64,
}

impl Settings {
    /// Candidates of a task that are measured together: one a device, but for
    /// the parallel policies.
    pub fn batch(&self) -> usize {
        let most = if self.policy.is_parallel() {
            self.batch
        } else {
            0
        };
        most.max(self.devices).max(1)
    }

    /// The CPUs of the machine in as many sets as there are to be devices.
    ///
    /// # Errors
    /// If a set has too few CPUs for a kernel.
    fn devices(&self, machine: &Machine, target: &Target) -> Result<Vec<Device>> {
        let cpus = crate::threads::cpus();
        let each = cpus.len() / self.devices.max(1);
        let threads = target.threads;
        if self.devices > 1 && each < threads as usize {
            let n = self.devices;
            return Err(Error::new(format!(
                "{n} devices have {each} CPUs each, and kernels have {threads} threads"
            ))
            .help("ask for fewer --devices or --threads"));
        }
        let sets = cpus.chunks(each.max(1)).take(self.devices.max(1));
        let device = |set: &[usize]| {
            let named = |cpu: &usize| cpu.to_string();
            let list: Vec<String> = set.iter().map(named).collect();
            Device {
                name: (self.devices > 1).then(|| format!("cpus {}", list.join(","))),
                cpus: set.to_vec(),
                threads,
                // With all CPUs, several threads are where the system wants them.
                pinned: self.devices > 1
                    || set.len() > threads as usize
                    || threads == 1 && machine.cpus > 1,
                oversubscribe: self.oversubscribe,
            }
        };
        let mut devices: Vec<Device> = sets.map(device).collect();
        if devices.is_empty() {
            // The system does not tell which CPUs there are.
            devices.push(device(&[]));
        }
        Ok(devices)
    }

    /// The devices of this machine.
    ///
    /// # Errors
    /// If there are too few CPUs, or no runner can be set up.
    pub fn open(&self, host: &Host, target: &Target) -> Result<Box<dyn Dispatch<Batch> + Send>> {
        let devices = self.devices(&host.machine, target)?;
        let local = unpinned(|| LocalDevices::new(devices, &host.workers.runner))?;
        Ok(Box::new(local))
    }

    /// What a state of DOPpler's depends on beside the task, the target and the
    /// machine: what runs beside a candidate, and how that is judged.
    pub fn of_state(&self, overlap: bool) -> serde_json::Value {
        serde_json::json!({
            "doppler": self.constants,
            "overlap": overlap,
            "devices": self.devices,
            "oversubscribe": self.oversubscribe,
        })
    }

    /// The policy with its settings; `limit` is that of one candidate, where the
    /// policy does not adapt it.
    pub fn measurer(&self, limit: Duration) -> Measurer {
        Measurer {
            policy: self.policy,
            constants: self.constants,
            naive_dp: self.constants.max_dp,
            limit,
        }
    }
}

/// DOPpler's last state of each task of a model here, by the task's key, if it
/// was reached under these settings ([`Settings::of_state`]).
pub fn known_states(
    known: &KnownPlace<'_>,
    model: &str,
    settings: &serde_json::Value,
) -> Result<HashMap<String, TaskState>> {
    let mut states = HashMap::new();
    for e in known.store.newest_events(model, Doppler::NAME)? {
        let EventKind::Doppler(doppler) = e.kind else {
            continue;
        };
        let here = doppler.target == known.target && doppler.machine == known.machine;
        let same = here && doppler.settings == *settings;
        let Some(task) = e.task.filter(|t| same && !states.contains_key(t)) else {
            continue;
        };
        // A state of another version of this program starts afresh.
        if let Ok(state) = serde_json::from_value(doppler.state) {
            states.insert(task, state);
        }
    }
    Ok(states)
}

/// Which task is asked for candidates, and how many more in its turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    pub task: usize,
    pub size: usize,
    pub left: usize,
}

/// Candidates of a task's first turn, where it is not alone.
const FIRST_TURN: usize = 8;

/// Candidates of a task that stay unanswered one after another before it is given up.
const MOST_UNANSWERED: u64 = 3;

impl Session<'_> {
    /// Candidates that a task is asked for in its turn: a batch, but of several
    /// tasks none takes more at once than it had before, so that all come to
    /// their turn early.
    pub fn turn_size(&self, task: usize) -> usize {
        let batch = self.options.measure.batch();
        if self.searches.len() == 1 {
            return batch;
        }
        let before = self.searches[task].trials as usize;
        turn(&self.standings(), task, batch.min(before.max(FIRST_TURN)))
    }

    /// A task whose waiting candidates are to be measured now: they fill a
    /// batch, or nothing comes that would.
    pub fn due(&self, pending: &HashMap<u64, Pending>) -> Option<usize> {
        let batch = self.options.measure.batch();
        let mut waiting = vec![0usize; self.searches.len()];
        for r in &self.ready {
            waiting[r.pending.task] += 1;
        }
        let more = |task: usize| {
            let asked = self.turn.task == task && self.turn.left > 0;
            asked || pending.values().any(|p| p.task == task)
        };
        let checked = |task: &usize| self.searches[*task].oracle.is_some();
        (0..waiting.len())
            .filter(checked)
            .find(|t| waiting[*t] >= batch || waiting[*t] > 0 && (pending.is_empty() || !more(*t)))
    }

    /// Measures the next batch of a task and concludes its candidates.
    pub fn measure_ready(&mut self, task: usize, builders: &mut Builders) -> Result<()> {
        let batch = self.next_batch(task)?;
        if batch.is_empty() {
            return Ok(());
        }
        let kernels = batch.iter().map(|r| Arc::new(r.built.kernel.clone()));
        let left = self.clock.left(self.afterwards());
        let sampling = self
            .clock
            .sampling(left, unmeasured(&self.standings()))
            .as_nanos();
        let protocol = Protocol {
            // What samples fill by the usual rules they may fill in any case.
            most_ns: u64::try_from(sampling).map_or(u64::MAX, |ns| ns.max(self.protocol.max_ns)),
            ..self.protocol.clone()
        };
        let s = &mut self.searches[task];
        let data = s.data(0).expect("what is due has its oracle");
        let of_task = Batch {
            task: Arc::new(data),
            kernels: kernels.collect(),
            protocol,
            best_ns: s.best.first().map(|b| b.ns),
            overlap: self.options.overlap,
        };
        let mut quiet = |on: bool| match on {
            true => builders.pool.pause(),
            false => builders.pool.resume(),
        };
        let begin = Instant::now();
        let done = self.measurer.measure(
            &mut *self.devices,
            &of_task,
            batch.len(),
            &mut s.state,
            &mut quiet,
        );
        s.setting_up = s.setting_up.or(self.devices.take_setup_time());
        let each_ns = begin.elapsed().as_nanos() as u64 / batch.len() as u64;
        if !done.rounds.is_empty() {
            let doppler = Doppler {
                target: self.target_text.clone(),
                machine: self.machine.clone(),
                settings: self.options.measure.of_state(self.options.overlap),
                rounds: serde_json::json!(done.rounds),
                state: serde_json::json!(s.state),
                extra: Extra::new(),
            };
            let event = record::event(&self.run_id, &s.key, doppler);
            self.store.append(&[], &[event])?;
        }
        self.note_disturbances(&done.outcomes)?;
        let over = self.clock.left(self.after_ranking()).is_zero();
        for (r, m) in batch.into_iter().zip(done.outcomes) {
            if over && matches!(m.outcome, Outcome::Unanswered { .. }) {
                // The search is over, and nothing is known of the candidate.
                continue;
            }
            self.count(task, &m.outcome);
            let took_ns = m.whole.wall_ns.min(each_ns);
            let Ready {
                pending,
                built,
                build,
            } = r;
            let outcome = m.outcome.clone();
            self.searches[task].spent_ns += took_ns;
            self.conclude(pending, Some(built), outcome, build, Some(m))?;
        }
        Ok(())
    }

    /// Counts a trial. What stays unanswered is none, and a task that gets no answers,
    /// as there is no expected output or no runner, is given up.
    fn count(&mut self, task: usize, outcome: &Outcome) {
        let s = &mut self.searches[task];
        if matches!(outcome, Outcome::Unanswered { .. }) {
            s.unanswered += 1;
            s.exhausted |= s.unanswered >= MOST_UNANSWERED;
        } else {
            s.unanswered = 0;
            s.trials += 1;
            self.trials += 1;
        }
    }

    /// Takes the next candidates of a task that need to be measured; those whose
    /// code the store knows are concluded.
    fn next_batch(&mut self, task: usize) -> Result<Vec<Ready>> {
        let most = self.options.measure.batch();
        let mut batch: Vec<Ready> = Vec::new();
        let mut later = Vec::new();
        for r in std::mem::take(&mut self.ready) {
            let hash = r.built.kernel.code_hash();
            let same = |b: &Ready| b.built.kernel.code_hash() == hash;
            if r.pending.task != task || batch.len() == most || batch.iter().any(same) {
                later.push(r);
            } else if let Some(known) = self.known_code(task, &r.built.kernel)? {
                self.cached += 1;
                let p = &r.pending;
                let told = Tell::of(p.trial, TIMED, &known.outcome);
                self.log(task, &p.candidate.algorithm, &p.point, told)?;
                self.tell(&r.pending, Some(r.built), &known.outcome, false);
            } else {
                batch.push(r);
            }
        }
        self.ready = later;
        Ok(batch)
    }

    /// What the store knows of equal code.
    fn known_code(&self, task: usize, kernel: &BuiltKernel) -> Result<Option<Record>> {
        let place = Place {
            task: &self.searches[task].key,
            target: &self.target_text,
            machine: &self.machine,
        };
        let bytes = self.protocol.rotate_bytes;
        let same = |r: &Record| {
            r.outcome.within(self.options.tolerance) && constants_as_near(r, bytes, &self.target)
        };
        let hash = record::code_hash(kernel);
        Ok(self.store.outcome_of_code(&place, &hash, same)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use store::Store;

    const SETTINGS: Settings = Settings {
        policy: Policy::Doppler,
        batch: 64,
        devices: 1,
        oversubscribe: 1,
        constants: Constants::PAPER,
        lose: 0.0,
    };

    /// A store in which a run of `model` left a state under these settings.
    fn store(settings: &Value, state: &TaskState) -> Store {
        let store = Store::open_in_memory().unwrap();
        store.begin_run(&record::begun("model")).unwrap();
        let task = store::Task {
            key: "task".into(),
            text: "(task)".into(),
            op: "matmul".into(),
            args: Default::default(),
            flops: 1.0,
            bytes: 1,
            extra: Extra::new(),
        };
        store.put_task(&task).unwrap();
        let doppler = Doppler {
            target: "here".into(),
            machine: "this".into(),
            settings: settings.clone(),
            rounds: json!([]),
            state: json!(state),
            extra: Extra::new(),
        };
        let event = record::event("run", "task", doppler);
        store.append(&[], &[event]).unwrap();
        store
    }

    #[test]
    fn a_state_is_resumed_under_equal_settings_only() {
        let mut state = TaskState::new(&SETTINGS.constants, 5);
        (state.react.dp, state.rounds) = (13, 7);
        let store = store(&SETTINGS.of_state(true), &state);
        let known = |target: &str, settings: &Settings, overlap| {
            let place = KnownPlace {
                store: &store,
                target,
                machine: "this",
            };
            let settings = settings.of_state(overlap);
            let mut states = known_states(&place, "model", &settings).unwrap();
            states.remove("task")
        };
        assert_eq!(known("here", &SETTINGS, true), Some(state));
        assert_eq!(known("there", &SETTINGS, true), None);
        assert_eq!(known("here", &SETTINGS, false), None);
        let other = |change: fn(&mut Settings)| {
            let mut settings = SETTINGS;
            change(&mut settings);
            known("here", &settings, true)
        };
        assert_eq!(other(|s| s.devices = 2), None);
        assert_eq!(other(|s| s.oversubscribe = 2), None);
        assert_eq!(other(|s| s.constants.react.tau = 0.1), None);
        // It does not depend on how many are handed over together.
        assert!(other(|s| s.batch = 8).is_some());
    }
}
