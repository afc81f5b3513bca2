//! Random (program, trace) pairs, judged four times: the program as written,
//! the scheduled one, its flat code, and its machine code on the processor.
//! All four must agree exactly, but for what large tiles of `winograd` round:
//! other random arithmetic is exact by construction.
//!
//! `TUNESMITH_FUZZ` sets the number of pairs, `TUNESMITH_FUZZ_SEED` the first
//! seed. A failure names its seed, the trace and the code. If the process dies
//! in machine code, the file that it named at its start holds the seed.
//!
//! That this finds faults of a code generator is itself tested: with three kinds
//! of fault put into the flat code just before it is compiled (`faults`).
#![cfg(target_arch = "x86_64")]

mod contractions;
mod faults;
mod figures;
mod judge;
mod machine;

use faults::Fault;
use figures::Figures;
use judge::{Outcome, Pair, judge};
use machine::Host;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use testkit::setting;

/// Names the pair that runs, for when the process does not survive it.
fn note(file: &Path, seed: u64) {
    std::fs::write(file, format!("{seed}\n")).expect("the test folder can be written");
}

#[test]
fn machine_code_computes_what_the_program_says() {
    let pairs = setting("TUNESMITH_FUZZ", 250);
    let first = setting("TUNESMITH_FUZZ_SEED", 0);
    let running: PathBuf = [env!("CARGO_TARGET_TMPDIR"), "compiled_fuzz.seed"]
        .iter()
        .collect();
    eprintln!("the pair that runs is in {}", running.display());
    let host = Host::new();
    let (mut figures, mut failures) = (Figures::default(), Vec::new());
    for seed in first..first + pairs {
        note(&running, seed);
        let pair = Pair::random(seed);
        // A panic is a finding like others, and has no seed of its own.
        let judged = catch_unwind(AssertUnwindSafe(|| judge(&pair, &host, None)));
        match judged {
            Ok(Ok(outcome)) => figures.add(&pair, outcome),
            Ok(Err(why)) => failures.push(why),
            Err(_) => failures.push(format!("seed {seed}: a panic")),
        }
    }
    println!("{figures}");
    let list: Vec<&str> = failures.iter().filter_map(|f| f.lines().next()).collect();
    let list = list.join("\n");
    let shown = failures.get(..2).unwrap_or(&failures).join("\n\n");
    assert!(
        failures.is_empty(),
        "{} failures\n{list}\n\n{shown}",
        failures.len()
    );
    if pairs >= 250 {
        figures.check();
    }
}

/// Pairs within which every fault must show.
const BOUND: u64 = 60;

/// Puts the fault into pair after pair until one run shows it.
fn found(fault: Fault) {
    let host = Host::new();
    let (mut hidden, mut nowhere) = (0, 0);
    for seed in 0..BOUND {
        let pair = Pair::random(seed);
        let why = match judge(&pair, &host, Some(fault)) {
            Err(why) => why,
            Ok(Outcome::Compiled { .. }) => {
                hidden += 1;
                continue;
            }
            Ok(_) => {
                nowhere += 1;
                continue;
            }
        };
        assert!(why.contains("machine code"), "{why}");
        let sound = judge(&pair, &host, None);
        let compiled = matches!(sound, Ok(Outcome::Compiled { .. }));
        assert!(compiled, "without the fault: {sound:?}");
        return;
    }
    panic!("{fault:?}: no difference in {hidden} of {BOUND} pairs, no place in {nowhere}");
}

#[test]
fn a_multiply_add_with_swapped_operands_is_found() {
    found(Fault::SwappedAddend);
}

#[test]
fn an_ignored_tail_mask_is_found() {
    found(Fault::LostMask);
}

#[test]
fn a_lost_start_value_of_a_register_is_found() {
    found(Fault::LostStart);
}

#[test]
fn a_loop_that_ends_early_is_found() {
    found(Fault::ShortLoop);
}
