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
    /// A candidate is clearly slow when its fastest sample exceeds the incumbent by this factor.
    pub slow_factor: f64,
    /// Sampling time after which no further sample starts, once there are `min_samples`.
    pub max_ns: u64,
    /// Constants rotate through copies that together exceed this many bytes; 0 for one warm copy.
    pub rotate_bytes: u64,
    /// Largest relative error (L2) of the outputs.
    pub tolerance: f64,
    /// A runner is killed this long after it got a candidate.
    pub limit_ns: u64,
}

impl Protocol {
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
            max_ns: 100_000_000,
            rotate_bytes: llc_bytes,
            tolerance: 1e-4,
            limit_ns: 10_000_000_000,
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
    /// Names the task and the seed; a runner keeps the data of few.
    pub id: u64,
    pub seed: u64,
    /// Inputs and constants of the program.
    pub args: Vec<ArgFill>,
    /// Defines the expected outputs: the program under the plainest schedule.
    pub oracle: BuiltKernel,
}

/// A request to a runner. The task's data travels along until the runner has it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub task: TaskData,
    pub kernel: BuiltKernel,
    pub protocol: Protocol,
    /// Median of the incumbent, for giving up early.
    pub best_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gap {
    pub rel_l2: f64,
    pub max_over_rms: f64,
    pub max_abs: f64,
    pub worst: u64,
    pub non_finite: u64,
    pub output: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Verdict {
    Timed {
        samples_ns: Vec<u64>,
        calls: u32,
        copies: u32,
    },
    Wrong(Gap),
    /// The loader or the host refused the code.
    Refused(String),
    /// The kernel returned a failure, or damaged the bytes round a buffer.
    Failed(String),
    OutOfMemory(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub verdict: Verdict,
    pub load_ns: u64,
    pub check_ns: u64,
    pub run_ns: u64,
    pub cpu_ns: u64,
}
