//! Measuring built code: runner processes, the protocol they speak, the rules by
//! which samples are taken, and the policies by which candidates share devices.
//!
//! Owns what is true about a measurement: its clock, its conditions, its raw
//! samples. Promises that a candidate that crashes, hangs, exhausts memory,
//! writes out of bounds or computes the wrong thing costs one typed outcome,
//! and that no candidate gets the outcome of another. Runners hold no
//! compiler. What to measure next is left to the caller.

mod cycles;
mod device;
mod dispatch;
mod doppler;
mod expected;
mod loaded;
mod local;
mod measurer;
mod noise;
mod protocol;
mod ranks;
mod reference;
mod runner;
mod sampling;
mod sealed;
mod serial;
mod task;

pub use cycles::cycle_ns;
pub use device::Device;
pub use dispatch::{Assignment, Dispatch, Round};
pub use doppler::{
    CONSTANTS, CalibratorConstants, Constant, Constants, Known, Left, React, ReactConstants,
    RoundReport, TaskState, TimeoutConstants,
};
pub use local::{Batch, Local};
pub use measurer::{Done, Measurer, Policy};
pub use protocol::{ArgFill, Parts, Protocol, Spent, TaskData};
pub use reference::{ThreadClock, thread_clock};
pub use runner::{IDENTITY, IDENTITY_FLAG, serve};
pub use sampling::host_clock_resolution_ns;
pub use serial::{MeasureError, Measured, Serial, death_outcome};
pub use task::ELEMENT_TOLERANCE;
