//! What this machine runs, how a test says that it, or a part of it, does not run
//! here, and what a machine does that is busy with something else.
//!
//! Promises that nothing is left out silently: `./test` counts the lines that are
//! written here, with their reasons. A test says so while it runs, since what a
//! machine has is not known before; `#[ignore]` is for what is known when tests are
//! compiled.

use ir::{Isa, Target};
use runtime::{HostError, KernelTarget, check_target};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::Write;
use std::sync::Mutex;

/// Says that the test which calls this does nothing on this machine, and why.
pub fn skipped(reason: &str) {
    say("skipped", reason);
}

/// Says that the test which calls this does less on this machine, and why.
pub fn skipped_in_part(reason: &str) {
    say("skipped in part", reason);
}

/// The first result of a few tries that is as it should be. A machine that is busy elsewhere may
/// hold a process up for seconds, which spoils one try, and hardly all of them.
///
/// # Panics
/// With all results, if none is as it should be.
pub fn undisturbed<T: Debug>(mut attempt: impl FnMut() -> T, holds: impl Fn(&T) -> bool) -> T {
    const TRIES: usize = 5;
    let mut spoilt = Vec::new();
    while spoilt.len() < TRIES {
        let found = attempt();
        if holds(&found) {
            return found;
        }
        spoilt.push(found);
    }
    panic!("no try holds: {spoilt:?}")
}

/// Once a test and reason. The harness names the thread of a test after it.
fn say(what: &str, reason: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unnamed").replace(' ', "-");
    let line = format!("{what}: {name}: {reason}\n");
    let mut said = SAID.lock().expect("nothing panics with it");
    if said.insert(line.clone()) {
        // The harness captures what `eprint!` writes, but not this.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// The generic target of each family of instructions that this machine runs. Those of
/// its architecture that it does not run are said to be skipped.
pub fn host_targets() -> Vec<Target> {
    Isa::ALL
        .map(Target::generic)
        .into_iter()
        .filter(runs)
        .collect()
}

/// Whether this machine runs code for a target. If it is of this architecture and has
/// what the machine lacks, that is said to be skipped.
pub fn runs(target: &Target) -> bool {
    let Target::Cpu(cpu) = target;
    let kernel = KernelTarget {
        triple: target.triple().into(),
        cpu: target.level().into(),
        features: target.features(),
        vector_bits: cpu.vector_bits,
    };
    match check_target(&kernel) {
        Ok(()) => true,
        Err(HostError::MissingFeature { feature }) => {
            let family = target.name();
            skipped_in_part(&format!("this machine lacks {feature}, for {family}"));
            false
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_runs_its_baseline_and_nothing_foreign() {
        let targets = host_targets();
        let arch = std::env::consts::ARCH;
        assert!(targets.iter().all(|t| t.triple().starts_with(arch)));
        let baseline = match arch {
            "x86_64" => Isa::X86Sse2,
            "aarch64" => Isa::AArch64Neon,
            _ => return skipped("no family is known to be in every machine like this"),
        };
        assert!(targets.contains(&Target::generic(baseline)));
    }
}
