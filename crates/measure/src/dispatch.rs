//! What a run asks of devices: rounds of candidates, rankings, and when to stop.
//!
//! Owns the one interface between a run and whatever measures: processes on this
//! machine, other machines, or a model of either. Candidates are named by their
//! position in a batch. So a policy knows nothing of kernels, and asking for the same
//! round twice is harmless. Questions and answers are data that can travel. How a
//! device measures is left to the implementations.

use crate::measured::Measured;
use crate::policy::Policy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A candidate of a batch, and the device that is to measure it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub candidate: usize,
    pub device: usize,
}

/// How the candidates of a round are measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
    /// A candidate that ended a runner which others had used is tried again at once;
    /// a policy that measures failures again by itself needs no such try.
    pub retry: bool,
    /// How many times as long as the incumbent alone an equal candidate may take in
    /// this round: the bound of what is given up early. None: nothing is.
    pub slower: Option<f64>,
    /// The policy, for records.
    pub measurer: Policy,
}

/// How candidates are ranked: one after the other, in turns, with nothing else of the
/// tuner on any device, by the host's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranking {
    /// Samples of each candidate, at most: one a turn. Every turn samples all
    /// candidates once, each turn in another order.
    pub turns: u32,
    /// Time for each candidate. All candidates together may take the sum, and when that
    /// is nearly over no further turn begins. A candidate that hangs is `TimedOut`.
    pub each: Duration,
}

/// The policy that the records of a ranking name.
pub const RANKING: &str = "rank";

/// Devices of one kind that measure candidates of batches of type `B`.
///
/// The methods without a body are what every kind of device must do. Those with one are
/// for devices that have something to make ready, or to tell.
pub trait Dispatch<B: ?Sized> {
    /// How many devices there are. They are numbered from 0.
    fn devices(&self) -> usize;

    /// Candidates that one device measures at once, at most.
    fn capacity(&self) -> u32;

    /// Whether what one device does leaves the figures of the others alone, as on
    /// machines of their own. Others are quiet while one measures alone.
    fn independent(&self) -> bool;

    /// One outcome an assignment, in their order. Devices work at the same time,
    /// each on its assignments in their order.
    fn round(&mut self, batch: &B, assignments: &[Assignment], round: &Round) -> Vec<Measured>;

    /// Ranks candidates on one device, so that a disturbance hits all alike. One outcome
    /// a candidate, in the order of `candidates`. Timed candidates have equally many
    /// samples, unless one had to be measured apart from the others. The records say
    /// `isolated`, and name [`RANKING`] where the policy stands.
    fn rank(&mut self, batch: &B, candidates: &[usize], ranking: &Ranking) -> Vec<Measured>;

    /// Time since a fixed point, on the clock that rounds take their time on.
    fn now(&self) -> Duration;

    /// Nothing is measured beyond `end`, a time on the clock of `now`, until this is
    /// called again; `None` for no end. What has not begun by then, or is ended by it
    /// and says nothing, is `Unanswered`.
    fn end_by(&mut self, end: Option<Duration>);

    /// Makes everything ready for the batch's task, so that the first round need not.
    /// What fails here fails again with a candidate, and is told there.
    fn prepare(&mut self, _batch: &B) {}

    /// What people should know of the devices, since this was last asked.
    fn take_warnings(&mut self) -> Vec<String> {
        vec![]
    }

    /// What making the data of tasks took before rounds, since this was last asked;
    /// `None` if none was made. It counts against no candidate.
    fn take_setup_time(&mut self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{PartTimes, Spent};
    use store::{Clock, Conditions, Outcome, Stage};

    fn back<T: Serialize + for<'a> Deserialize<'a>>(value: &T) -> T {
        let text = serde_json::to_string(value).expect("it has no odd keys");
        serde_json::from_str(&text).expect("it was just written")
    }

    #[test]
    fn what_is_asked_and_answered_survives_the_way() {
        let assignment = Assignment {
            candidate: 7,
            device: 2,
        };
        assert_eq!(back(&assignment), assignment);
        let round = Round {
            dp: 13,
            limit: Duration::from_millis(4100),
            each: Duration::from_nanos(1),
            quiet: true,
            fresh: false,
            host_clock: true,
            retry: false,
            slower: Some(1.25),
            measurer: Policy::SerialSpawn,
        };
        assert_eq!(back(&round), round);
        let ranking = Ranking {
            turns: 15,
            each: Duration::from_millis(10_001),
        };
        assert_eq!(back(&ranking), ranking);
        let outcomes = [
            Outcome::Timed {
                samples_ns: vec![3, 1, 2],
                clock: Clock::CycleCounter,
                conditions: Conditions::unproven(2, 8),
            },
            Outcome::Crashed {
                stage: Stage::Run,
                signal: Some(11),
                stderr: "a line\nand another".into(),
            },
        ];
        for outcome in outcomes {
            let spent = Spent {
                wall_ns: u64::MAX,
                cpu_ns: 5,
            };
            let measured = Measured {
                outcome,
                whole: spent,
                parts: PartTimes {
                    check: spent,
                    ..PartTimes::default()
                },
            };
            assert_eq!(back(&measured), measured);
        }
    }
}
