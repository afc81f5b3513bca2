//! `doctor`: what this machine is and can do.

use crate::error::Result;
use crate::machine::Machine;
use serde::Serialize;
use std::process::ExitCode;

/// Show the machine: CPU, caches, measured multiply-add peak and memory bandwidth, counters, compiler
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    cpu: String,
    cpus: usize,
    target: String,
    l1_bytes: u64,
    l2_bytes: u64,
    llc_bytes: u64,
    fma_peak_gflops: f64,
    read_gb_per_s: f64,
    cycle_counter: String,
    clock_resolution_ns: u64,
    compiler: String,
}

/// Whether the kernel lets this user count cycles.
fn cycle_counter() -> String {
    match std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid") {
        Err(_) => "not available".into(),
        Ok(level) => {
            let devices = std::path::Path::new("/sys/bus/event_source/devices/cpu").exists();
            let level = level.trim();
            if devices {
                format!("present (perf_event_paranoid {level})")
            } else {
                "not available".into()
            }
        }
    }
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let m = Machine::host();
    let limits = crate::doctor::limits();
    let r = Report {
        cpu: m.cpu.clone(),
        cpus: m.cpus,
        target: m.isa.name().into(),
        l1_bytes: m.l1_bytes,
        l2_bytes: m.l2_bytes,
        llc_bytes: m.llc_bytes,
        fma_peak_gflops: limits.peak_gflops,
        read_gb_per_s: limits.read_gb_per_s,
        cycle_counter: cycle_counter(),
        clock_resolution_ns: measure::host_clock_resolution_ns(),
        compiler: llvm::version(),
    };
    if a.json {
        super::print_json(&r)?;
        return Ok(ExitCode::SUCCESS);
    }
    super::print_line(&format!("CPU              {} ({} usable)", r.cpu, r.cpus))?;
    super::print_line(&format!("target           {}", r.target))?;
    super::print_line(&format!(
        "caches           L1 {} KiB, L2 {} KiB, last level {} KiB",
        r.l1_bytes >> 10,
        r.l2_bytes >> 10,
        r.llc_bytes >> 10
    ))?;
    super::print_line(&format!(
        "FMA peak         {:.1} GFLOP/s a thread (measured)",
        r.fma_peak_gflops
    ))?;
    super::print_line(&format!(
        "memory read      {:.1} GB/s, one thread (measured)",
        r.read_gb_per_s
    ))?;
    super::print_line(&format!("cycle counter    {}", r.cycle_counter))?;
    super::print_line(&format!("clock resolution {} ns", r.clock_resolution_ns))?;
    super::print_line(&format!("compiler         {}", r.compiler))?;
    Ok(ExitCode::SUCCESS)
}
