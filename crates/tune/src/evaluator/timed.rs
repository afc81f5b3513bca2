//! Times, measured on the devices of one target.
//!
//! Owns how a run's batches become the measurer's, and what DOPpler knows of each
//! task. How candidates share devices is the policy's ([`measure::Measurer`]), how a
//! device measures is the device's ([`measure::Dispatch`]).

use super::{Batch, Evaluator, Reply};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::threads::unpinned;
use crate::trial::{Answer, AnswerPlace, Form, Trial};
use crate::workers::Host;
use ir::Target;
use measure::{
    Constants, Device, Dispatch, LocalDevices, Measured, Measurer, Policy, Protocol, Ranking,
    TaskState,
};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Doppler, EventKind, Extra, Store, StoreError, TIMED};

/// How candidates are measured.
#[derive(Clone, Debug)]
pub struct MeasureSettings {
    pub policy: Policy,
    /// Candidates of a task that are measured together by a parallel policy.
    pub batch: usize,
    /// Sets that the CPUs are divided into.
    pub devices: usize,
    /// The CPUs of its core set, where others measure on other sets meanwhile; all CPUs if there are none.
    pub core_set: Vec<usize>,
    /// Runners that share a CPU, if kernels have one thread.
    pub oversubscribe: u32,
    pub constants: Constants,
    /// Share of candidates as fast as the best that may be given up early.
    pub lose: f64,
}

/// Devices that measure candidates of this program's own batches.
type Devices = Box<dyn Dispatch<measure::KernelBatch> + Send>;

impl MeasureSettings {
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

    /// The CPUs in as many sets as there are to be devices.
    ///
    /// # Errors
    /// If a set has too few CPUs for a kernel.
    fn devices(&self, machine: &Machine, target: &Target) -> Result<Vec<Device>> {
        let beside = !self.core_set.is_empty();
        let cpus = match beside {
            true => self.core_set.clone(),
            false => crate::threads::cpus(),
        };
        let each = cpus.len() / self.devices.max(1);
        let threads = target.threads();
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
                name: (beside || self.devices > 1).then(|| format!("cpus {}", list.join(","))),
                cpus: set.to_vec(),
                threads,
                // With all CPUs, several threads are where the system wants them.
                pinned: beside
                    || self.devices > 1
                    || set.len() > threads as usize
                    || threads == 1 && machine.cpus > 1,
                oversubscribe: self.oversubscribe,
                beside,
            }
        };
        let mut devices: Vec<Device> = sets.map(device).collect();
        if devices.is_empty() {
            // The system does not tell which CPUs there are.
            devices.push(device(&[]));
        }
        Ok(devices)
    }

    /// The devices of a machine, for kernels of a target.
    ///
    /// # Errors
    /// If there are too few CPUs, or no runner can be set up.
    pub fn open(&self, host: &Host, target: &Target) -> Result<Devices> {
        let devices = self.devices(&host.machine, target)?;
        let local = unpinned(|| LocalDevices::new(devices, &host.workers.runner))?;
        Ok(Box::new(local))
    }

    /// What a state of DOPpler's depends on beside the task, the target and the
    /// machine: what runs beside a candidate, and how that is judged.
    fn of_state(&self, overlap: bool) -> serde_json::Value {
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

/// Measures candidates on devices; answers are times. What would become the best of its search is measured twice before
/// the search hears of it.
pub struct Timed {
    settings: MeasureSettings,
    /// Builders run while candidates are measured.
    overlap: bool,
    measurer: Measurer,
    /// Its constants rotate as each batch says.
    protocol: Protocol,
    devices: Devices,
    place: Arc<AnswerPlace>,
    /// What DOPpler knows of tasks, by their keys.
    states: HashMap<Arc<str>, TaskState>,
    waiting: VecDeque<Batch>,
}

impl Timed {
    /// On opened devices. `states` are DOPpler's, as [`known_states`] finds them.
    pub fn new(
        settings: &MeasureSettings,
        overlap: bool,
        protocol: Protocol,
        devices: Devices,
        place: AnswerPlace,
        states: HashMap<String, TaskState>,
    ) -> Timed {
        let limit = Duration::from_nanos(protocol.limit_ns);
        Timed {
            settings: settings.clone(),
            overlap,
            measurer: settings.measurer(limit),
            protocol,
            devices,
            place: Arc::new(place),
            states: states.into_iter().map(|(k, s)| (k.into(), s)).collect(),
            waiting: VecDeque::new(),
        }
    }

    /// The batch as the devices take it.
    fn measured_batch(&self, batch: &Batch) -> measure::KernelBatch {
        let sampling = u64::try_from(batch.sampling.as_nanos()).unwrap_or(u64::MAX);
        let kernel = |t: &Trial| t.kernel.clone().expect("trials come as code");
        measure::KernelBatch {
            task: batch.data.clone().expect("code comes with its data"),
            kernels: batch.trials.iter().map(kernel).collect(),
            protocol: Protocol {
                // What samples fill by the usual rules they may fill in any case.
                most_ns: sampling.max(self.protocol.max_ns),
                rotate_bytes: batch.rotate_bytes,
                ..self.protocol.clone()
            },
            best_ns: batch.best.map(|ns| ns as u64),
            overlap: self.overlap,
        }
    }

    fn reply(&mut self, batch: Batch, measured: Vec<Measured>, events: Vec<EventKind>) -> Reply {
        let answer = |(trial, m): (Trial, Measured)| Answer {
            trial,
            outcome: m.outcome,
            spent: m.whole,
            parts: m.parts,
            place: self.place.clone(),
        };
        Reply {
            number: batch.number,
            answers: batch.trials.into_iter().zip(measured).map(answer).collect(),
            revised: vec![],
            events,
            setup: self.devices.take_setup_time(),
            took: None,
        }
    }
}

impl Evaluator for Timed {
    fn name(&self) -> &'static str {
        TIMED
    }

    fn form(&self) -> Form {
        Form::Code
    }

    fn score_kind(&self, _task: &str) -> Option<String> {
        None
    }

    fn batch(&self) -> usize {
        self.settings.batch()
    }

    fn submit(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    fn poll(&mut self, _wait: Duration, quiet: &mut dyn FnMut(bool)) -> Option<Reply> {
        let batch = self.waiting.pop_front()?;
        let begin = Instant::now();
        let of_task = self.measured_batch(&batch);
        let new = || TaskState::new(&self.settings.constants, batch.seed);
        let state = self.states.entry(batch.task.clone()).or_insert_with(new);
        let devices = &mut *self.devices;
        let n = batch.trials.len();
        let mut done = self.measurer.measure(devices, &of_task, n, state, quiet);
        let best_ns = of_task.best_ns;
        let outcomes = &mut done.outcomes;
        self.measurer
            .confirm(devices, &of_task, outcomes, best_ns, quiet);
        let json = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default();
        let event = (!done.rounds.is_empty()).then(|| Doppler {
            target: self.place.target.clone(),
            machine: self.place.machine.clone(),
            settings: self.settings.of_state(self.overlap),
            rounds: json(serde_json::to_value(&done.rounds)),
            state: json(serde_json::to_value(&state)),
            extra: Extra::new(),
        });
        let events = event.map(EventKind::from).into_iter().collect();
        Some(Reply {
            took: Some(begin.elapsed()),
            ..self.reply(batch, done.outcomes, events)
        })
    }

    fn rank(&mut self, batch: Batch, turns: u32) -> Option<Reply> {
        let mut of_task = self.measured_batch(&batch);
        (of_task.best_ns, of_task.overlap) = (None, false);
        let ranking = Ranking {
            turns,
            each: self.measurer.limit,
        };
        let all: Vec<usize> = (0..batch.trials.len()).collect();
        let measured = self.devices.rank(&of_task, &all, &ranking);
        Some(self.reply(batch, measured, vec![]))
    }

    fn end_by(&mut self, end: Option<Instant>) {
        let now = self.devices.now();
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        self.devices.end_by(end.map(|end| now + left(end)));
    }

    fn take_warnings(&mut self) -> Vec<String> {
        self.devices.take_warnings()
    }
}

/// DOPpler's last state of each task of a model in a place, by the task's key, if it
/// was reached under these settings.
///
/// # Errors
/// If the store cannot be read.
pub fn known_states(
    store: &Store,
    place: &AnswerPlace,
    model: &str,
    settings: &MeasureSettings,
    overlap: bool,
) -> std::result::Result<HashMap<String, TaskState>, StoreError> {
    let settings = settings.of_state(overlap);
    let mut states = HashMap::new();
    for e in store.newest_events(model, Doppler::NAME)? {
        let EventKind::Doppler(d) = e.kind else {
            continue;
        };
        let here = d.target == place.target && d.machine == place.machine;
        let same = here && d.settings == settings;
        let Some(task) = e.task.filter(|t| same && !states.contains_key(t)) else {
            continue;
        };
        // A state of another version of this program starts afresh.
        if let Ok(state) = serde_json::from_value(d.state) {
            states.insert(task, state);
        }
    }
    Ok(states)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;
    use serde_json::json;

    const SETTINGS: MeasureSettings = MeasureSettings {
        policy: Policy::Doppler,
        batch: 64,
        devices: 1,
        core_set: Vec::new(),
        oversubscribe: 1,
        constants: Constants::PAPER,
        lose: 0.0,
    };

    /// A store in which a run of `model` left a state under these settings.
    fn store(settings: serde_json::Value, state: &TaskState) -> Store {
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
        let event = Doppler {
            target: "here".into(),
            machine: "this".into(),
            settings,
            rounds: json!([]),
            state: serde_json::to_value(state).unwrap(),
            extra: Extra::new(),
        };
        let event = record::event("run", "task", event);
        store.append(&[], &[event]).unwrap();
        store
    }

    #[test]
    fn a_state_is_resumed_under_equal_settings_only() {
        let mut state = TaskState::new(&SETTINGS.constants, 5);
        (state.react.dp, state.rounds) = (13, 7);
        let store = store(SETTINGS.of_state(true), &state);
        let known = |target: &str, settings: &MeasureSettings, overlap| {
            let place = AnswerPlace {
                target: target.into(),
                machine: "this".into(),
            };
            let mut states = known_states(&store, &place, "model", settings, overlap).unwrap();
            states.remove("task")
        };
        assert_eq!(known("here", &SETTINGS, true), Some(state));
        assert_eq!(known("there", &SETTINGS, true), None);
        assert_eq!(known("here", &SETTINGS, false), None);
        let other = |change: fn(&mut MeasureSettings)| {
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
