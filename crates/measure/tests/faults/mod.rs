//! Candidates that fail in ways that tell them apart, and what a process holds
//! while they do.

use crate::c_kernel::{from_source, good, kernel, preparing};
use runtime::BuiltKernel;
use std::fs;

/// Candidates whose outcomes tell them apart, each with the end of the outcome's text.
pub fn candidates() -> Vec<(BuiltKernel, &'static str, String)> {
    let mut all = Vec::new();
    let mut huge = good();
    huge.workspace_bytes = 1 << 42;
    let mut foreign = good();
    foreign.target.features = "+warp-drive".into();
    for (kernel, label, text) in [
        (kernel("*(volatile int *)8 = 1;"), "crashed-run", "Some(11)"),
        (
            kernel("for (;;) spin(1000);"),
            "timed-out-run",
            "limit_ms: 40",
        ),
        (
            kernel("compute(args); ((char *)n)[60] = 1;"),
            "crashed-run",
            "past the end",
        ),
        (
            kernel("compute(args); ((volatile char *)y)[5000] = 1;"),
            "crashed-run",
            "Some(11)",
        ),
        (huge, "out-of-memory-load", ""),
        (foreign, "crashed-load", "warp-drive"),
        (
            from_source("void f(void); int kernel(void) { f(); return 0; }"),
            "crashed-load",
            "`f`",
        ),
        (preparing("__builtin_trap();"), "crashed-load", "Some(4)"),
    ] {
        all.push((kernel, label, text.to_string()));
    }
    for i in 1..=5 {
        let wrong = kernel(&format!("compute(args); n[{i}] += {i};"));
        all.push((wrong, "wrong", format!("max_abs: {i}.0")));
        let fails = kernel(&format!("return {};", 10 + i));
        all.push((fails, "crashed-run", format!("code {}", 10 + i)));
    }
    all
}

/// Bytes through which constants rotate, so that [`right`] kernels can be told apart.
#[allow(dead_code)]
pub const ROTATE_BYTES: u64 = 64 << 10;

/// Right kernels, each with the copies of its constants that its outcome has: the
/// more its prepare entry makes, the fewer.
#[allow(dead_code)]
pub fn right() -> Vec<(BuiltKernel, u32)> {
    let one = |i: u32| {
        let mut made = preparing("");
        let floats = 512_i64 << i;
        made.params[1].shape = vec![floats];
        made.prepare_params[1].shape = vec![floats];
        made.prepare_hash = u64::from(i) + 1;
        (made, (ROTATE_BYTES / (4 * floats as u64)) as u32 + 1)
    };
    (0..4).map(one).collect()
}

/// What kind of failure each of [`candidates`] is.
#[allow(dead_code)]
pub fn class(candidate: usize) -> &'static str {
    const FIRST: [&str; 8] = [
        "reads an address that is none",
        "never ends",
        "writes past an output's end",
        "writes far past an output's end",
        "asks for too much memory",
        "is for another machine",
        "wants a symbol that there is not",
        "dies preparing constants",
    ];
    let rest = ["computes a wrong result", "returns a failure"];
    FIRST.get(candidate).unwrap_or(&rest[candidate % 2])
}

/// Living children of this process, zombies included.
pub fn children() -> Vec<u32> {
    let me = std::process::id();
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, after) = stat.rsplit_once(')')?;
        after.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent(*pid) == Some(me)).collect()
}

pub fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The figure of a line of a process's status, e.g. `VmRSS` in KiB.
pub fn status(pid: u32, line: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(line)?.strip_prefix(':'))
        .unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
