//! Counting the joules of a run, by stage.

use super::attribution::{Energy, KnownCpu, Metered, Money, StageUse};
use measure::energy::{MachineFile, Meter, Work, device_meters, family_cpu_s, meters};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the meters are read at least.
const EVERY: Duration = Duration::from_secs(1);

/// A part of a run that excludes the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Default models and layouts.
    Defaults,
    /// Reading candidates before any is measured.
    Features,
    Search,
    /// Measuring finalists alone.
    Rank,
    /// Choosing inside the model, comparing and assembling models.
    Model,
}

impl Stage {
    /// In the order of the enum.
    const NAMES: [&str; 5] = ["defaults", "features", "search", "rank", "model"];
}

/// Joules of a run until some moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoulesSoFar {
    /// By the meter of the machine that says least, and by the one that says most.
    pub least: f64,
    pub most: f64,
    pub estimated: bool,
}

/// What a stage took.
#[derive(Clone, Debug)]
struct StageSum {
    work: Work,
    /// By meter.
    joules: Vec<f64>,
}

struct State {
    /// Those of the machine, each of which is an account of its own, and then those of devices.
    meters: Vec<Box<dyn Meter>>,
    /// How many are of the machine.
    of_machine: usize,
    begun: Instant,
    last: Instant,
    last_cpu_s: f64,
    stage: Stage,
    sums: [StageSum; Stage::NAMES.len()],
    /// Why the last reading failed.
    failed: Option<String>,
    ended: bool,
}

impl State {
    fn new(mut meters: Vec<Box<dyn Meter>>, devices: Vec<Box<dyn Meter>>) -> State {
        let of_machine = meters.len();
        meters.extend(devices);
        let none = StageSum {
            work: Work {
                wall_s: 0.0,
                cpu_s: 0.0,
            },
            joules: vec![0.0; meters.len()],
        };
        let now = Instant::now();
        State {
            meters,
            of_machine,
            begun: now,
            last: now,
            last_cpu_s: family_cpu_s(),
            stage: Stage::Defaults,
            sums: std::array::from_fn(|_| none.clone()),
            failed: None,
            ended: false,
        }
    }

    /// Adds what was used since the last reading to the stage.
    fn read(&mut self) {
        let (now, cpu_s) = (Instant::now(), family_cpu_s());
        let work = Work {
            wall_s: (now - self.last).as_secs_f64(),
            // A child counts in clock ticks while it runs, so an end may take some back.
            cpu_s: (cpu_s - self.last_cpu_s).max(0.0),
        };
        (self.last, self.last_cpu_s) = (now, cpu_s);
        self.add(work);
    }

    fn add(&mut self, work: Work) {
        let sum = &mut self.sums[self.stage as usize];
        sum.work.wall_s += work.wall_s;
        sum.work.cpu_s += work.cpu_s;
        self.failed = None;
        for (meter, joules) in self.meters.iter_mut().zip(&mut sum.joules) {
            match meter.read_j(&work) {
                Ok(used) => *joules += used,
                Err(why) => self.failed = Some(why.to_string()),
            }
        }
    }

    /// What the meters of the machine say of the whole run, with the joules of all devices.
    fn so_far(&self) -> JoulesSoFar {
        let of = |meter: usize| self.sums.iter().map(|s| s.joules[meter]).sum::<f64>();
        let machine = || (0..self.of_machine).map(of);
        let devices: f64 = (self.of_machine..self.meters.len()).map(of).sum();
        JoulesSoFar {
            least: devices + machine().reduce(f64::min).unwrap_or(0.0),
            most: devices + machine().fold(0.0, f64::max),
            estimated: self.meters.iter().any(|m| m.is_estimate()),
        }
    }

    fn most_j(&self) -> f64 {
        self.so_far().most
    }

    /// What a meter says of the stages, on a machine or devices that draw so much when idle.
    fn metered(&self, meter: usize, idle_w: f64, known: &KnownCpu) -> Metered {
        let stages = Stage::NAMES.iter().zip(&self.sums);
        let stages = stages.map(|(name, sum)| StageUse {
            name,
            work: sum.work,
            joules: sum.joules[meter],
        });
        let stages: Vec<StageUse> = stages.collect();
        Metered::of(self.meters[meter].source(), idle_w, &stages, known)
    }
}

type Shared = Arc<(Mutex<State>, Condvar)>;

fn locked(shared: &Shared) -> MutexGuard<'_, State> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the joules of a run from its making on.
pub struct Account {
    file: MachineFile,
    shared: Shared,
    reader: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Account {
    /// Counts by the meters of this machine, of which the file tells.
    pub fn new(file: MachineFile) -> Account {
        let meters = meters(&file);
        Account::by(file, meters, device_meters())
    }

    fn by(file: MachineFile, meters: Vec<Box<dyn Meter>>, devices: Vec<Box<dyn Meter>>) -> Account {
        let state = State::new(meters, devices);
        let shared: Shared = Arc::new((Mutex::new(state), Condvar::new()));
        let own = shared.clone();
        let reader = std::thread::spawn(move || {
            let mut state = locked(&own);
            while !state.ended {
                let waited = own.1.wait_timeout(state, EVERY);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if !state.ended {
                    state.read();
                }
            }
        });
        Account {
            file,
            shared,
            reader: Some(reader),
        }
    }

    /// From here on the joules are those of another stage.
    pub fn enter(&self, stage: Stage) {
        let mut state = locked(&self.shared);
        state.read();
        state.stage = stage;
    }

    /// Joules until the last reading.
    pub fn so_far(&self) -> JoulesSoFar {
        locked(&self.shared).so_far()
    }

    /// Joules until now, by the meter that says most.
    pub fn used_j(&self) -> f64 {
        let mut state = locked(&self.shared);
        state.read();
        state.most_j()
    }

    /// How long these joules last from the beginning on, at the power so far; at the power of all
    /// CPUs where little was counted yet.
    pub fn lasts(&self, joules: f64) -> Duration {
        let state = locked(&self.shared);
        let (used, time) = (state.most_j(), (state.last - state.begun).as_secs_f64());
        let full_w = self
            .file
            .curves
            .iter()
            .map(|c| c.full_w())
            .fold(1e-3, f64::max);
        let seconds = match time >= EVERY.as_secs_f64() && used > 0.0 {
            true => time * joules / used,
            false => joules / full_w,
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// What was used until now by something that has no candidates.
    pub fn spent(&self) -> Energy {
        self.energy(&KnownCpu::default())
    }

    /// What was used until now.
    pub(super) fn energy(&self, known: &KnownCpu) -> Energy {
        let mut state = locked(&self.shared);
        state.read();
        // The counter is the first meter of the machine, and the only one.
        let by = |i: usize| state.metered(i, self.file.curves[i].idle_w(), known);
        // What an idle device draws is not known.
        let of_device = |i: usize| state.metered(i, 0.0, known);
        let wall_s = (state.last - state.begun).as_secs_f64();
        Energy {
            estimated: state.so_far().estimated,
            usual: self.file.usual,
            wall_s,
            cpu_s: state.sums.iter().map(|s| s.work.cpu_s).sum(),
            by: (0..state.of_machine).map(by).collect(),
            devices: (state.of_machine..state.meters.len())
                .map(of_device)
                .collect(),
            money: self.file.price.clone().map(|price| Money {
                amount: price.per_hour * wall_s / 3600.0,
                price,
            }),
            failed: state.failed.clone(),
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        locked(&self.shared).ended = true;
        self.shared.1.notify_all();
        if let Some(reader) = self.reader.take() {
            // It does not panic, and there is nobody to tell.
            let _ = reader.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::energy::{Estimate, PowerCurve, Price};

    const S: Duration = Duration::from_secs(1);

    fn account(file: MachineFile) -> Account {
        let estimate = |c: &PowerCurve| -> Box<dyn Meter> { Box::new(Estimate::new(c.clone())) };
        let meters = file.curves.iter().map(estimate).collect();
        Account::by(file, meters, vec![])
    }

    #[test]
    fn stages_have_their_own_joules_under_both_curves() {
        let priced = MachineFile {
            price: Some(Price {
                per_hour: 3600.0,
                currency: "EUR".into(),
            }),
            ..MachineFile::usual(2)
        };
        let account = account(priced);
        account.enter(Stage::Search);
        std::thread::sleep(S / 10);
        account.enter(Stage::Rank);
        let energy = account.energy(&KnownCpu::default());
        assert!(energy.estimated && energy.usual && energy.failed.is_none());
        // 3600 an hour are 1 a second, but for the last digit.
        let paid = energy.money.unwrap().amount;
        assert!(energy.wall_s >= 0.1 && (paid / energy.wall_s - 1.0).abs() < 1e-12);
        let names: Vec<&str> = energy.by.iter().map(|m| m.source.as_str()).collect();
        assert_eq!(names, ["steep", "flat"]);
        for m in &energy.by {
            let sum = m.idle_j + m.phases.values().sum::<f64>();
            assert!((sum - m.joules).abs() < 1e-9 * m.joules.max(1.0));
            // 3 W idle, 10 W busy.
            assert!(m.joules >= 3.0 * 0.999 * energy.wall_s && m.joules <= 10.001 * energy.wall_s);
        }
    }

    #[test]
    fn a_budget_lasts_as_long_as_the_power_so_far_says() {
        let account = account(MachineFile::usual(2));
        assert_eq!(account.lasts(100.0), 10 * S);
        assert_eq!(account.lasts(f64::INFINITY), Duration::MAX);
        let mut state = locked(&account.shared);
        state.begun -= 10 * S;
        state.add(Work {
            wall_s: 10.0,
            cpu_s: 10.0,
        });
        drop(state);
        // One of two CPUs was busy: all 10 W, by the flatter curve.
        let lasts = account.lasts(200.0).as_secs_f64();
        assert!((19.5..20.5).contains(&lasts), "{lasts}");
    }

    /// Uses 50 J between two readings.
    struct Device;

    impl Meter for Device {
        fn source(&self) -> &'static str {
            "device"
        }

        fn is_estimate(&self) -> bool {
            false
        }

        fn read_j(&mut self, _: &Work) -> std::io::Result<f64> {
            Ok(50.0)
        }
    }

    #[test]
    fn devices_have_phases_of_their_own_and_come_on_top() {
        let usual = MachineFile::usual(1);
        let meters = usual.curves.iter();
        let meters = meters.map(|c| -> Box<dyn Meter> { Box::new(Estimate::new(c.clone())) });
        let account = Account::by(usual.clone(), meters.collect(), vec![Box::new(Device)]);
        account.enter(Stage::Model);
        let most_j = account.used_j();
        let energy = account.energy(&KnownCpu::default());
        let [device] = &energy.devices[..] else {
            panic!("one device: {:?}", energy.devices);
        };
        assert_eq!((energy.by.len(), energy.estimated), (2, true));
        assert_eq!((device.joules, device.idle_j), (150.0, 0.0));
        assert_eq!(
            (device.phases["defaults"], device.phases["model"]),
            (50.0, 100.0)
        );
        assert!((100.0..150.0).contains(&most_j), "{most_j}");
    }

    struct Broken;

    impl Meter for Broken {
        fn source(&self) -> &'static str {
            "broken"
        }

        fn is_estimate(&self) -> bool {
            false
        }

        fn read_j(&mut self, _: &Work) -> std::io::Result<f64> {
            Err(std::io::Error::other("gone"))
        }
    }

    #[test]
    fn a_meter_that_cannot_be_read_is_said() {
        let account = Account::by(MachineFile::usual(1), vec![Box::new(Broken)], vec![]);
        let energy = account.energy(&KnownCpu::default());
        assert_eq!(energy.failed.as_deref(), Some("gone"));
        assert_eq!((energy.by[0].joules, energy.estimated), (0.0, false));
    }
}
