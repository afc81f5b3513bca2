//! What policies ask of devices: a round of candidates, and its outcomes.
//!
//! Owns the one interface between policies and whatever measures: processes on
//! this machine, other machines, or a model of either. Candidates are named by
//! their position in a batch, so a policy knows nothing of kernels, and asking
//! for the same round again is harmless. How a round is carried out belongs to
//! the implementations.

use crate::serial::Measured;
use std::time::Duration;

/// A candidate of a batch, and the device that is to measure it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub candidate: usize,
    pub device: usize,
}

/// How the candidates of a round are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Candidates at once on a device; it may do fewer, never more.
    pub dp: u32,
    /// What is running this long after the round was submitted is ended, and
    /// what has not begun by then never does. Making the data of a task does not
    /// count.
    pub limit: Duration,
    /// The same for each candidate, from its own beginning.
    pub each: Duration,
    /// Nothing else of the tuner uses the devices.
    pub quiet: bool,
    /// Every candidate gets a process of its own.
    pub fresh: bool,
    /// Samples are read from the host's wall clock.
    pub host_clock: bool,
    /// The policy, for records.
    pub measurer: &'static str,
}

/// Devices of one kind that measure candidates of batches of type `B`.
pub trait Dispatch<B: ?Sized> {
    /// How many; they are numbered from 0.
    fn devices(&self) -> usize;

    /// Candidates that one device measures at once, at most.
    fn capacity(&self) -> u32;

    /// One outcome an assignment, in their order. Devices work at the same time,
    /// each on its assignments in their order.
    fn round(&mut self, batch: &B, jobs: &[Assignment], round: &Round) -> Vec<Measured>;

    /// Time since a fixed point, on the clock that rounds take their time on.
    fn now(&self) -> Duration;
}
