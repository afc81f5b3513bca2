//! `doctor`: what this machine is and can do.

use super::parse::parse_threads;
use super::table::counted;
use ir::{ByteDot, Isa};
use measure::energy::Meter;
use runtime::{KernelTarget, check_target};
use serde::Serialize;
use std::process::ExitCode;
use tune::Result;
use tune::ceiling::{Ceiling, ceiling};
use tune::machine::Machine;
use tune::threads::ThreadSettings;

/// Show the machine: CPU, caches, measured multiply-add peak and memory bandwidth, counters, compiler
#[derive(clap::Args)]
pub struct Args {
    /// Also measure with this many threads [default: all CPUs]
    #[arg(long, value_parser = parse_threads::<usize>)]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Instructions that matter for models, of the family of this processor.
#[derive(Serialize)]
struct InstructionSet {
    name: &'static str,
    /// Whether this machine has them.
    here: bool,
    /// Whether compiled models use them here.
    used: bool,
}

impl InstructionSet {
    fn text(&self) -> String {
        let state = match (self.here, self.used) {
            (_, true) => "used",
            (true, false) => "here, but not used",
            (false, false) => "not here",
        };
        format!("{} {state}", self.name)
    }
}

/// The instruction sets of this architecture, and which of them compiled models use.
fn instruction_sets(m: &Machine) -> Vec<InstructionSet> {
    let host = build::kernel_target(&m.target(1));
    let has = |feature: &&str| {
        let with = KernelTarget {
            features: (*feature).into(),
            ..host.clone()
        };
        check_target(&with).is_ok()
    };
    let is = |isa: &[Isa]| isa.contains(&m.isa);
    let dot = |dot: &[ByteDot]| m.byte_dot.is_some_and(|d| dot.contains(&d));
    // By name: LLVM's features, one of which is enough, and whether this program uses them.
    let all: &[(&'static str, &[&str], bool)] = match std::env::consts::ARCH {
        "x86_64" => &[
            ("AVX2", &["+avx2"], is(&[Isa::X86Avx2, Isa::X86Avx512])),
            ("AVX-512", &["+avx512f"], is(&[Isa::X86Avx512])),
            (
                "VNNI",
                &["+avx512vnni", "+avxvnni"],
                dot(&[ByteDot::Avx512Vnni, ByteDot::AvxVnni]),
            ),
            ("BF16", &["+avx512bf16"], m.half_dot.is_some()),
            ("AMX", &["+amx-tile"], m.tile_dot.is_some()),
        ],
        "aarch64" => &[
            ("NEON", &["+neon"], is(&[Isa::AArch64Neon])),
            (
                "dotprod",
                &["+dotprod"],
                dot(&[ByteDot::Neon, ByteDot::NeonMixed]),
            ),
            ("i8mm", &["+i8mm"], dot(&[ByteDot::NeonMixed])),
            ("BF16", &["+bf16"], m.half_dot.is_some()),
            ("SVE", &["+sve"], false),
        ],
        "riscv64" => &[("RVV", &["+v"], is(&[Isa::RiscV64Rvv]))],
        _ => &[],
    };
    let set = |(name, features, used): &(&'static str, &[&str], bool)| InstructionSet {
        name,
        here: features.iter().any(&has),
        used: *used,
    };
    all.iter().map(set).collect()
}

#[derive(Serialize)]
struct Diagnosis {
    cpu: String,
    cpus: usize,
    target: String,
    instruction_sets: Vec<InstructionSet>,
    l1_bytes: u64,
    l2_bytes: u64,
    llc_bytes: u64,
    /// One thread's.
    fma_peak_gflops: f64,
    read_gb_per_s: f64,
    /// Limits of one thread, and of all that are asked for together.
    ceilings: Vec<Ceiling>,
    cycle_counter: String,
    clock_resolution_ns: u64,
    /// Of a thread's own CPU time, by which single-threaded kernels are timed.
    thread_clock_resolution_ns: u64,
    /// What reading it twice adds to a sample.
    thread_clock_bias_ns: u64,
    /// The share of the wall time of undisturbed work that it leaves out.
    thread_clock_bias: f64,
    /// The kernel that runners watch the frequency with: its time, and the share
    /// by which it took longer half of the time.
    reference_ns: u64,
    reference_spread: f64,
    /// Counters of joules that may be read.
    energy_counters: Vec<String>,
    compiler: String,
}

fn energy_counters() -> Vec<String> {
    let processor = measure::energy::counter().map(|c| c.source().to_string());
    let devices = measure::energy::device_meters();
    let devices = devices.iter().map(|m| m.source().to_string());
    processor.into_iter().chain(devices).collect()
}

/// Whether threads can be timed by their cycles, and why not.
fn cycle_counter() -> String {
    match measure::cycle_ns() {
        Ok(ns) => format!("available, times kernels of one thread; a cycle takes {ns:.3} ns now"),
        Err(e) => format!("not available: {e}"),
    }
}

pub fn run(a: &Args) -> Result<ExitCode> {
    let m = Machine::host();
    let threads = a.threads.unwrap_or(m.cpus);
    let settings = ThreadSettings::from_environment()?;
    let mut ceilings = vec![ceiling(&m, 1, &settings)?];
    if threads != 1 {
        ceilings.push(ceiling(&m, threads, &settings)?);
    }
    let clock = measure::thread_clock();
    let r = Diagnosis {
        cpu: m.cpu.clone(),
        cpus: m.cpus,
        target: m.isa.name().into(),
        instruction_sets: instruction_sets(&m),
        l1_bytes: m.l1_bytes,
        l2_bytes: m.l2_bytes,
        llc_bytes: m.llc_bytes,
        fma_peak_gflops: ceilings[0].peak_gflops,
        read_gb_per_s: ceilings[0].memory_gb_per_s(),
        ceilings,
        cycle_counter: cycle_counter(),
        clock_resolution_ns: measure::host_clock_resolution_ns(),
        thread_clock_resolution_ns: clock.resolution_ns,
        thread_clock_bias_ns: clock.reading_ns,
        thread_clock_bias: clock.bias,
        reference_ns: clock.reference_ns,
        reference_spread: clock.reference_spread,
        energy_counters: energy_counters(),
        compiler: llvm::version(),
    };
    if a.json {
        super::print_json(&r)?;
        return Ok(ExitCode::SUCCESS);
    }
    super::print_line(&format!("CPU              {} ({} usable)", r.cpu, r.cpus))?;
    super::print_line(&format!("target           {}", r.target))?;
    let sets: Vec<String> = r
        .instruction_sets
        .iter()
        .map(InstructionSet::text)
        .collect();
    super::print_line(&format!("instructions     {}", sets.join(", ")))?;
    super::print_line(&format!(
        "caches           L1 {} KiB, L2 {} KiB; a core counts on {} KiB of the last level",
        r.l1_bytes >> 10,
        r.l2_bytes >> 10,
        r.llc_bytes >> 10
    ))?;
    for c in &r.ceilings {
        super::print_line(&ceiling_text(c))?;
    }
    super::print_line(&format!("cycle counter    {}", r.cycle_counter))?;
    super::print_line(&format!(
        "clock resolution {} ns; clock of a thread's CPU time: resolution {} ns, reading it takes {} ns; it misses {:.3}% of undisturbed work",
        r.clock_resolution_ns,
        r.thread_clock_resolution_ns,
        r.thread_clock_bias_ns,
        100.0 * r.thread_clock_bias
    ))?;
    super::print_line(&format!(
        "reference kernel {:.1} us at least, median +{:.2}% (runners watch the CPU's frequency with it)",
        r.reference_ns as f64 / 1e3,
        100.0 * r.reference_spread
    ))?;
    super::print_line(&format!(
        "energy counters  {}",
        match &r.energy_counters[..] {
            [] => "none that may be read; joules are estimated".into(),
            found => found.join(", "),
        }
    ))?;
    super::print_line(&format!("compiler         {}", r.compiler))?;
    Ok(ExitCode::SUCCESS)
}

fn ceiling_text(c: &Ceiling) -> String {
    let levels: Vec<String> = c
        .levels
        .iter()
        .map(|l| format!("{} {:.1}", l.name, l.gb_per_s))
        .collect();
    let apart = c.exchange_ns.map_or(String::new(), |ns| {
        format!(", a cache line between threads {ns:.0} ns there and back")
    });
    format!(
        "{:<16} FMA peak {:.1} GFLOP/s; reads in GB/s: {}; a parallel loop {:.2} us, {:.0} us if the threads sleep{apart} (measured)",
        counted(c.threads as u32, "thread"),
        c.peak_gflops,
        levels.join(", "),
        c.fork_join.awake_us,
        c.fork_join.asleep_us
    )
}
