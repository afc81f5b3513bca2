//! Measuring built code: runner processes, the protocol they speak, the rules by
//! which samples are taken, and the policies by which candidates share devices.
//!
//! Owns what is true about a measurement: its clock, its conditions, its raw
//! samples. Promises that a candidate that crashes, hangs, exhausts memory,
//! writes out of bounds or computes the wrong thing costs one typed outcome,
//! and that no candidate gets the outcome of another. Runners hold no
//! compiler. What to measure next is left to the caller.

mod batch;
mod clock;
mod confirm;
mod cpu_time;
mod cycles;
mod device;
mod dispatch;
mod doppler;
mod expected;
mod loaded;
mod local;
mod measured;
mod measurer;
mod noise;
mod oracle;
mod outcome;
mod policy;
mod protocol;
mod ranks;
mod reference;
mod runner;
mod runner_process;
mod sampling;
mod sealed;
mod task;

pub use batch::KernelBatch;
pub use cycles::cycle_ns;
pub use device::Device;
pub use dispatch::{Assignment, Dispatch, RANKING, Ranking, Round};
pub use doppler::{
    CONSTANTS, CalibratorConstants, Constant, Constants, PairHistory, React, ReactConstants,
    ResidualErrors, RoundReport, TaskState, TimeoutConstants,
};
pub use local::LocalDevices;
pub use measured::Measured;
pub use measurer::{MeasuredBatch, Measurer};
pub use outcome::death_outcome;
pub use policy::Policy;
pub use protocol::{ArgFill, PartTimes, Protocol, Spent, TaskData};
pub use reference::{ThreadClock, thread_clock};
pub use runner::{IDENTITY, IDENTITY_FLAG, serve};
pub use runner_process::{MeasureError, RunnerProcess};
pub use sampling::host_clock_resolution_ns;
pub use task::ELEMENT_TOLERANCE;
