//! How long a candidate takes over the default of its task, by what was read of both.
//!
//! A score errs by kinds of candidates: it counts lines in full that computing hides, and it knows nothing of what
//! defaults were made by. Boosted trees learned how long candidates really took from times of many tasks. They are inside this program;
//! `models/README.md` says how to make them anew.

use analysis::{Features, RATIOS, ratios};
use ir::{Isa, Target};
use learn::Trees;
use std::sync::OnceLock;

/// The trees as text.
const SHIPPED: &str = include_str!("../models/time-ratio.trees");

/// The predicted time of a candidate over the default's. None if no machine code was read of one of them.
pub fn time_ratio(
    own: &Features,
    default: &Features,
    from_memory: bool,
    same_sketch: bool,
) -> Option<f64> {
    static TREES: OnceLock<Trees> = OnceLock::new();
    let trees = TREES.get_or_init(|| {
        learn::load(SHIPPED, RATIOS).expect("the trees inside this program are of its version")
    });
    let row = ratios(own, default, from_memory, same_sketch)?;
    Some(trees.predict(&row).exp())
}

/// Whether the trees learned from code as that for a target.
pub fn knows(target: &Target) -> bool {
    let Target::Cpu(cpu) = target;
    matches!(cpu.isa, Isa::X86Avx2 | Isa::X86Avx512)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use analysis::{Class, MachineFeatures};

    /// More would make every build of the program slower.
    const MOST_BYTES: usize = 150_000;

    /// The cycles of a candidate, which alone tell the trees how long it takes.
    pub(crate) fn of_cycles(cycles: f64) -> Features {
        Features {
            lines: [cycles / 10.0, cycles / 100.0, 0.0],
            machine: Some(MachineFeatures {
                repeated: cycles,
                alone: 2.0 * cycles,
                loads: cycles / 4.0,
                hot_bytes: 500.0,
                classes: vec![cycles / 10.0; Class::ALL.len()],
                ..MachineFeatures::default()
            }),
            ..Features::default()
        }
    }

    #[test]
    fn more_of_everything_takes_longer() {
        let ratio = |own| time_ratio(&of_cycles(own), &of_cycles(1e6), false, true).unwrap();
        assert!((0.9..1.1).contains(&ratio(1e6)), "{}", ratio(1e6));
        assert!(ratio(3e6) > 1.2, "{}", ratio(3e6));
        assert!(SHIPPED.len() < MOST_BYTES, "{} bytes", SHIPPED.len());
    }

    #[test]
    fn code_of_other_processors_is_not_known() {
        assert!(knows(&Target::generic(Isa::X86Avx512)));
        assert!(!knows(&Target::generic(Isa::AArch64Neon)));
    }
}
