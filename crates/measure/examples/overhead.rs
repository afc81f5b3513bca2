//! What measuring costs beside the candidate's own time: candidates a second
//! that do nothing, through one runner, and the parent's share of the CPU.
//!
//! `cargo run --release -p measure --example overhead [-- CANDIDATES]`
//! needs the system's C compiler.

use measure::{ArgFill, Measured, Protocol, Serial, TaskData};
use runtime::{BuiltKernel, CodeFormat, KernelParam, KernelTarget, ParamRole};
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::process::Command;
use std::time::Instant;
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
    Ok(BuiltKernel {
        target: KernelTarget {
            triple: format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
            cpu: "generic".into(),
            features: String::new(),
            vector_bits: 128,
        },
        format: CodeFormat::Elf,
        code: std::fs::read(output)?,
        entry: "kernel".into(),
        params: vec![
            param("w", ParamRole::Constant, 65_536),
            param("y", ParamRole::Output, 1),
        ],
        prepare_entry: None,
        prepare_params: vec![],
        prepare_code: None,
        prepare_hash: 0,
        in_place: Vec::new(),
        workspace_bytes: 0,
        worker_workspace_bytes: 0,
        prepare_workspace_bytes: 0,
        prepare_worker_workspace_bytes: 0,
        schedule: String::new(),
        compiler: "cc".into(),
    })
}

fn parent_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn mean(measured: &[Measured], of: impl Fn(&Measured) -> u64) -> f64 {
    measured.iter().map(of).sum::<u64>() as f64 / 1e3 / measured.len() as f64
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
    let program = std::env::current_exe()?;
    let command = CommandLine {
        program,
        args: vec!["runner".into()],
        cpus: vec![],
    };
    let mut serial = Serial::new(&command)?;
    let shortest = Protocol {
        min_sample_ns: 1,
        ..Protocol::new(1, 32 << 20)
    };

    println!(
        "us a candidate     a second      wall    parent   runner      load     check    sample"
    );
    for (name, protocol) in [
        (
            "one short sample",
            Protocol {
                min_samples: 1,
                max_samples: 1,
                ..shortest.clone()
            },
        ),
        ("default protocol", Protocol::new(1, 32 << 20)),
    ] {
        serial.load_task(&task, &protocol)?;
        serial.measure(&task, &kernel, &protocol, None, false);
        let (start, cpu) = (Instant::now(), parent_cpu_ns());
        let measured: Vec<Measured> = (0..candidates)
            .map(|_| serial.measure(&task, &kernel, &protocol, None, false))
            .collect();
        let (wall, cpu) = (start.elapsed(), parent_cpu_ns() - cpu);
        let failed = measured
            .iter()
            .find(|m| !matches!(m.outcome, Outcome::Timed { .. }));
        if let Some(failed) = failed {
            return Err(format!("{failed:?}").into());
        }
        println!(
            "{name} {:10.0} {:9.1} {:9.1} {:8.1} {:9.1} {:9.1} {:9.1}",
            candidates as f64 / wall.as_secs_f64(),
            wall.as_secs_f64() * 1e6 / candidates as f64,
            cpu as f64 / 1e3 / candidates as f64,
            mean(&measured, |m| m.whole.cpu_ns),
            mean(&measured, |m| m.parts.load.wall_ns),
            mean(&measured, |m| m.parts.check.wall_ns),
            mean(&measured, |m| m.parts.run.wall_ns),
        );
    }
    Ok(())
}
