//! Every loop of flat code is found in the machine code of every target, in the right nest,
//! with the right bound, and counts agree with each other.

#[allow(dead_code, reason = "not every test uses all")]
mod support;

use analysis::Fate;
use ir::{Isa, Target};
use support::{analysed, compiled, convolution, mismatches, product, traces};
use testkit::{random_program, random_trace, setting};

#[derive(Default)]
struct Tally {
    matched: usize,
    bounds: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, name: &str, scheduled: &ir::Program, target: &Target) {
        let (code, object) = compiled(scheduled, target);
        for entry in ["kernel", "prepare"] {
            let a = analysed(&code, &object, target, entry);
            for fate in &a.fates {
                if let Fate::Matched(m) = fate {
                    self.matched += 1;
                    self.bounds += usize::from(m.bound_agrees == Some(true));
                }
            }
            let wrong = mismatches(&code, &a);
            let target = target.name();
            let named = wrong
                .iter()
                .map(|w| format!("{target} {name} {entry}: {w}"));
            self.wrong.extend(named);
        }
    }

    fn assert_nothing_wrong(&self) {
        let (n, all) = (
            self.wrong.len(),
            self.wrong.iter().map(|w| format!("{w}\n")),
        );
        let all: String = all.collect();
        assert!(n == 0, "{n} loops are not as flat code has them:\n{all}");
    }
}

#[test]
fn loops_of_tuned_kernels_are_all_matched() {
    for isa in Isa::ALL {
        let target = Target::generic(isa).with_threads(2);
        let mut tally = Tally::default();
        for program in [product(50, 48, 70), convolution(16, 16, 14)] {
            for trace in traces(&program, &target, 1) {
                let scheduled = schedule::replay(&program, &trace).expect("a legal trace");
                tally.add(&program.name, &scheduled, &target);
            }
        }
        tally.assert_nothing_wrong();
        assert!(tally.matched > 50, "{isa:?} {}", tally.matched);
        // Bounds of parallel loops are arguments.
        assert!(
            tally.bounds * 2 > tally.matched,
            "{isa:?} {} {}",
            tally.bounds,
            tally.matched
        );
    }
}

#[test]
fn loops_of_random_schedules_are_all_matched() {
    let seeds = setting("TUNESMITH_FUZZ", 6);
    let first = setting("TUNESMITH_FUZZ_SEED", 0);
    for isa in Isa::ALL {
        let target = Target::generic(isa).with_threads(2);
        let mut tally = Tally::default();
        for seed in first..first + seeds {
            let program = random_program(seed, &testkit::Distribution::all());
            let (_, scheduled) = random_trace(&program, seed, 12);
            if lower::lower(&scheduled, &target, &lower::LowerOptions::standard()).is_ok() {
                tally.add(&format!("seed {seed}"), &scheduled, &target);
            }
        }
        tally.assert_nothing_wrong();
        assert!(tally.matched > 0, "{isa:?}: no loop was matched");
    }
}
