//! What the parent and its runners say to each other.

use runtime::{BuiltKernel, dtype_name};
use serde::{Deserialize, Serialize};
use tensor::DType;

/// How samples are taken. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Protocol {
    /// Threads of the kernel.
    pub threads: u32,
    /// CPUs to pin the threads to, one each; empty for none.
    pub pin: Vec<usize>,
    /// One sample averages as many calls as fill this time.
    pub min_sample_ns: u64,
    pub min_samples: u32,
    pub max_samples: u32,
    /// Sampling stops when the 95% interval of the median is within this share of it.
    pub tight: f64,
    /// A candidate is clearly slow when the fastest of two samples exceeds the
    /// incumbent by this factor, or a single one by four times as much.
    pub slow_factor: f64,
    /// Share of candidates as fast as the incumbent that may be given up early,
    /// by what is known of the noise of samples; 0 gives up what is clearly slow
    /// only.
    pub lose: f64,
    /// Sampling time after which no further sample starts, once there are `min_samples`.
    pub max_ns: u64,
    /// Sampling time after which no further sample starts, once there is one.
    pub most_ns: u64,
    /// Constants rotate through copies that together exceed this many bytes, by default so many that no
    /// cache holds them until they are read again; 0 for one warm copy.
    /// What is clearly slow with one warm copy is timed with that.
    pub rotate_bytes: u64,
    /// What the last-level cache holds.
    pub llc_bytes: u64,
    /// Largest relative error (L2) of floating-point outputs; no element may be
    /// off by more than a hundred times that share of the root mean square.
    /// Integers must be equal.
    pub tolerance: f64,
    /// A runner is killed this long after it got a candidate. Sampling ends
    /// before, so what runs at all within it is timed.
    pub limit_ns: u64,
    /// Samples are read from the host's wall clock, also of a single thread,
    /// whose own CPU time is the default.
    pub host_clock: bool,
    /// A runner is killed this long after it got a task, whose arguments it
    /// fills and whose oracle it runs; no candidate's time counts.
    pub setup_limit_ns: u64,
}

/// Bytes that a cache must read until nothing of what it held before is left, over its size:
/// of what is only somewhat larger than it, a cache keeps a good part from one pass to the next.
const EVICTING: u64 = 3;

impl Protocol {
    /// Whether samples are read from the wall clock.
    pub(crate) fn by_wall(&self) -> bool {
        self.host_clock || self.threads > 1
    }

    /// Defaults for `threads` on a machine whose last-level cache has `llc_bytes`.
    pub fn new(threads: u32, llc_bytes: u64) -> Protocol {
        Protocol {
            threads,
            pin: vec![],
            min_sample_ns: 100_000,
            min_samples: 5,
            max_samples: 15,
            tight: 0.02,
            slow_factor: 1.25,
            lose: 0.0,
            max_ns: 100_000_000,
            most_ns: u64::MAX,
            rotate_bytes: EVICTING.saturating_mul(llc_bytes),
            llc_bytes,
            tolerance: 1e-4,
            limit_ns: 10_000_000_000,
            host_clock: false,
            setup_limit_ns: 120_000_000_000,
        }
    }
}

/// How one argument of a task is filled, from a seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArgFill {
    pub name: String,
    #[serde(with = "dtype_name")]
    pub dtype: DType,
    pub shape: Vec<i64>,
    /// Values are uniform in `[lo, hi)`; whole numbers for integer types.
    pub lo: f64,
    pub hi: f64,
}

/// The arguments of a task, and code that says what comes out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskData {
    /// With the seed, names this data; a runner keeps the data of few.
    pub id: u64,
    pub seed: u64,
    /// Inputs and constants of the program.
    pub args: Vec<ArgFill>,
    /// Defines the expected outputs: the program under the plainest schedule.
    /// Runs on one thread.
    pub oracle: BuiltKernel,
}

impl TaskData {
    pub(crate) fn key(&self) -> TaskKey {
        TaskKey {
            id: self.id,
            seed: self.seed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct TaskKey {
    pub id: u64,
    pub seed: u64,
}

/// A request to a runner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Makes the arguments and expected outputs of a task, unless they are there.
    /// Where there is a file, the expected outputs are read from it or written to it.
    Data(TaskData, Option<ExpectedFile>),
    Measure {
        task: TaskKey,
        kernel: BuiltKernel,
        protocol: Protocol,
        /// Median of the incumbent, for giving up early.
        best_ns: Option<u64>,
        /// Whether the reference kernel is to be timed before the samples.
        reference: bool,
        /// What a cycle counts for, if a runner said so before.
        cycle_ns: Option<f64>,
    },
    /// Samples kernels of one task in turns.
    Rank {
        task: TaskKey,
        kernels: Vec<BuiltKernel>,
        protocol: Protocol,
        /// Samples of each kernel, at most.
        turns: u32,
    },
}

/// The file of a task's expected outputs, as a runner is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExpectedFile {
    pub path: String,
    /// Whether it is to be read, or written.
    pub complete: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// What a task has no data for and why; or whether its expected outputs are
    /// in the file now.
    Data(Result<bool, String>),
    /// The runner does not hold the data of the task: it is to be sent first.
    NoData,
    Measured(KernelReport),
    /// In the order of the request.
    Ranked(Vec<KernelReport>),
}

/// How far an output is from the expected one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutputDifference {
    pub rel_l2: f64,
    pub max_over_rms: f64,
    pub max_abs: f64,
    pub worst: u64,
    pub non_finite: u64,
    pub output: String,
    /// Whether the first run was right and a later one was not.
    pub later: bool,
}

/// How the samples of a kernel were taken.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SampleFacts {
    /// Calls that one sample is the average of.
    pub calls: u64,
    /// Whether the first, cold run is the only sample.
    pub first_only: bool,
    /// Copies of what depends on constants only.
    pub copies: u32,
    /// Whether those exceed the bytes to rotate through.
    pub rotated: bool,
    pub pinned: bool,
    /// Of the reference kernel, if it was timed.
    pub reference_ns: Option<u64>,
    /// What a cycle counted for, if the samples are counted cycles.
    pub cycle_ns: Option<f64>,
    /// The largest relative error (L2) of an output against the expected one.
    pub rel_l2: f64,
    pub span: Span,
}

/// The launches of a kernel that were sampled, as the device and the host saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub launches: u64,
    /// Sum of the launches on the clock of the samples.
    pub device_ns: u64,
    /// Wall time from the first launch to the last completion.
    pub host_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    Timed {
        samples_ns: Vec<u64>,
        at: SampleFacts,
    },
    Wrong(OutputDifference),
    /// The loader or the host refused the code, or the prepare entry failed.
    Refused(String),
    /// The kernel returned a failure.
    Failed(String),
    /// The code damaged the bytes round a buffer.
    Damaged(String),
    OutOfMemory(String),
}

/// Time that something took: on the wall, and of all threads of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, more: Spent) {
        self.wall_ns += more.wall_ns;
        self.cpu_ns += more.cpu_ns;
    }
}

/// What the parts of a request took; a part that was not reached took nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartTimes {
    /// Loading the code, preparing and copying its constants.
    pub load: Spent,
    /// The first run and comparing what it wrote.
    pub check: Spent,
    /// Taking samples, and the last check.
    pub run: Spent,
}

impl PartTimes {
    pub(crate) fn sum(&self) -> Spent {
        let mut sum = self.load;
        sum += self.check;
        sum += self.run;
        sum
    }
}

impl std::ops::AddAssign for PartTimes {
    fn add_assign(&mut self, more: PartTimes) {
        self.load += more.load;
        self.check += more.check;
        self.run += more.run;
    }
}

/// What a runner says of one kernel.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KernelReport {
    pub verdict: Verdict,
    pub parts: PartTimes,
}

/// What a runner is at, told to the parent in case it dies of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Idle,
    Data,
    Load,
    Prepare,
    Run,
    Check,
}

impl Activity {
    const NAMES: [(Activity, &str); 6] = [
        (Activity::Idle, "idle"),
        (Activity::Data, "data"),
        (Activity::Load, "load"),
        (Activity::Prepare, "prep"),
        (Activity::Run, "run"),
        (Activity::Check, "check"),
    ];

    /// Notes this, and for which kernel of a ranking.
    pub fn tell(self, kernel: usize) {
        let (_, name) = Activity::NAMES[self as usize];
        worker::note(&format!("{name} {kernel}"));
    }

    pub fn read(note: &str) -> Option<(Activity, usize)> {
        let (name, kernel) = note.split_once(' ')?;
        let (activity, _) = Activity::NAMES.iter().find(|(_, n)| *n == name)?;
        Some((*activity, kernel.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_reads_back_within_the_length_of_a_note() {
        for (at, (activity, name)) in Activity::NAMES.iter().enumerate() {
            assert_eq!(
                *activity as usize, at,
                "the table is in the order of the enum"
            );
            let note = format!("{name} 99999999");
            assert!(note.len() <= 14);
            assert_eq!(Activity::read(&note), Some((*activity, 99_999_999)));
        }
        for foreign in ["", "run", "runner 1", "run x"] {
            assert_eq!(Activity::read(foreign), None);
        }
    }
}
