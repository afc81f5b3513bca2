//! Joules: meters of the machine, and an estimate where it has none.
//!
//! A [`Meter`] says how many joules were used since it was made. [`Powercap`] reads counters of
//! the processor, and [`Nvml`] those of NVIDIA's devices. [`Estimate`] follows a curve of power over busy CPUs that a [`MachineFile`]
//! declares, and says that it is an estimate. What the joules were used for is left to the
//! caller.

mod cpu;
mod estimate;
mod machine_file;
mod nvml;
mod powercap;

pub use cpu::{family_cpu_s, own_cpu_s};
pub use estimate::{Estimate, PowerCurve};
pub use machine_file::{MachineFile, Price};
pub use nvml::Nvml;
pub use powercap::Powercap;

/// What the CPUs did between two readings of a meter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    pub wall_s: f64,
    /// CPU time of the processes that the joules are counted for.
    pub cpu_s: f64,
}

/// Counts joules.
pub trait Meter: Send {
    /// Where the joules come from, such as `powercap` or the name of a curve.
    fn source(&self) -> &str;

    /// Whether they are estimated, not counted by the machine.
    fn is_estimate(&self) -> bool;

    /// Joules since the last reading; `work` is what was done since then.
    ///
    /// # Errors
    /// If the counter cannot be read; the next reading has its joules, too.
    fn read_j(&mut self, work: &Work) -> std::io::Result<f64>;
}

/// The processor's counter, if it has one that may be read.
pub fn counter() -> Option<Powercap> {
    Powercap::open(powercap::FOLDER.as_ref())
}

/// The counters of devices, whose joules come on top of the processor's.
pub fn device_meters() -> Vec<Box<dyn Meter>> {
    let nvml = Nvml::open().map(|n| -> Box<dyn Meter> { Box::new(n) });
    nvml.into_iter().collect()
}

/// The meters of this machine without devices: its counter, or both curves of its file where it has none that
/// may be read.
pub fn meters(file: &MachineFile) -> Vec<Box<dyn Meter>> {
    match counter() {
        Some(counter) => vec![Box::new(counter)],
        None => {
            let estimate =
                |c: &PowerCurve| -> Box<dyn Meter> { Box::new(Estimate::new(c.clone())) };
            file.curves.iter().map(estimate).collect()
        }
    }
}
