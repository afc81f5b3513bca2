//! What measuring costs beside the candidate's own time: candidates a second
//! that do nothing, through one runner and through two, and the parent's share
//! of the CPU.
//!
//! `cargo run --release -p measure --example overhead [-- CANDIDATES]`
//! needs the system's C compiler.

use measure::{
    ArgFill, Constants, Device, KernelBatch, LocalDevices, Measured, Measurer, Policy, Protocol,
    TaskData, TaskState,
};
use runtime::{BuiltKernel, KernelParam, ParamRole};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Outcome;
use tensor::DType;
use worker::CommandLine;

const SOURCE: &str = "
int kernel(const void *ctx, void *const *args, void *workspace) {
    *(float *)args[1] = 1;
    return 0;
}";

fn nothing() -> Result<BuiltKernel, Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let (input, output) = (dir.path().join("k.c"), dir.path().join("k.o"));
    std::fs::write(&input, SOURCE)?;
    let mut cc = Command::new("cc");
    cc.args([
        "-c",
        "-O2",
        "-fPIC",
        "-ffreestanding",
        "-fno-asynchronous-unwind-tables",
    ]);
    if !cc.arg(&input).arg("-o").arg(&output).status()?.success() {
        return Err("the C compiler failed".into());
    }
    let param = |name: &str, role, len| KernelParam {
        name: name.into(),
        dtype: DType::F32,
        shape: vec![len],
        role,
    };
    let params = vec![
        param("w", ParamRole::Constant, 65_536),
        param("y", ParamRole::Output, 1),
    ];
    Ok(BuiltKernel::by_hand(std::fs::read(output)?, params))
}

fn parent_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn mean(measured: &[Measured], of: impl Fn(&Measured) -> u64) -> f64 {
    measured.iter().map(of).sum::<u64>() as f64 / 1e3 / measured.len() as f64
}

/// Candidates of a batch.
const BATCH: usize = 64;

/// Measures `candidates` of a kernel by a policy on so many runners, and prints
/// what that took.
fn row(
    name: &str,
    (policy, runners): (Policy, u32),
    (task, kernel, protocol): (&TaskData, &BuiltKernel, &Protocol),
    candidates: usize,
) -> Result<(), Box<dyn Error>> {
    let command = CommandLine {
        program: std::env::current_exe()?,
        args: vec!["runner".into()],
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    let device = Device {
        name: None,
        cpus: vec![0],
        threads: 1,
        pinned: false,
        oversubscribe: runners,
        beside: false,
    };
    let mut local = LocalDevices::new(vec![device], &command)?;
    let constants = Constants::PAPER;
    let measurer = Measurer {
        policy,
        constants,
        naive_dp: runners,
        limit: Duration::from_secs(10),
    };
    let mut state = TaskState::new(&constants, 1);
    let shared = Arc::new(kernel.clone());
    let batch = KernelBatch {
        task: Arc::new(task.clone()),
        kernels: vec![shared; BATCH],
        protocol: protocol.clone(),
        best_ns: None,
        overlap: false,
    };
    let mut some = |n| measurer.measure(&mut local, &batch, n, &mut state, &mut |_| {});
    // Starts the runners, and has DOPpler find its degree of parallelism.
    for _ in 0..6 {
        some(BATCH);
    }
    let (start, cpu) = (Instant::now(), parent_cpu_ns());
    let mut measured: Vec<Measured> = Vec::new();
    while measured.len() < candidates {
        measured.extend(some(BATCH.min(candidates - measured.len())).outcomes);
    }
    let (wall, cpu) = (start.elapsed(), parent_cpu_ns() - cpu);
    let timed = |m: &&Measured| matches!(m.outcome, Outcome::Timed { .. });
    if let Some(failed) = measured.iter().find(|m| !timed(m)) {
        return Err(format!("{failed:?}").into());
    }
    let policy = policy.name();
    println!(
        "{name:17} {policy:8} {runners:7} {:10.0} {:9.1} {:9.1} {:8.1} {:9.1} {:9.1} {:9.1}",
        candidates as f64 / wall.as_secs_f64(),
        wall.as_secs_f64() * 1e6 / candidates as f64,
        cpu as f64 / 1e3 / candidates as f64,
        mean(&measured, |m| m.whole.cpu_ns),
        mean(&measured, |m| m.parts.load.wall_ns),
        mean(&measured, |m| m.parts.check.wall_ns),
        mean(&measured, |m| m.parts.run.wall_ns),
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("runner") {
        return Ok(measure::serve()?);
    }
    let candidates: usize = argument.map_or(Ok(2000), |a| a.parse())?;
    let kernel = nothing()?;
    let w = ArgFill {
        name: "w".into(),
        dtype: DType::F32,
        shape: vec![65_536],
        lo: 0.0,
        hi: 1.0,
    };
    let task = TaskData {
        id: 1,
        seed: 1,
        args: vec![w],
        oracle: kernel.clone(),
    };
    let usual = Protocol::new(1, 32 << 20);
    let shortest = Protocol {
        min_sample_ns: 1,
        min_samples: 1,
        max_samples: 1,
        ..usual.clone()
    };
    println!(
        "us a candidate    policy   runners   a second      wall    parent   runner      load     check    sample"
    );
    for (name, protocol) in [
        ("one short sample", &shortest),
        ("default protocol", &usual),
    ] {
        for by in [
            (Policy::Serial, 1),
            (Policy::Naive, 2),
            (Policy::Doppler, 2),
        ] {
            row(name, by, (&task, &kernel, protocol), candidates)?;
        }
    }
    Ok(())
}
