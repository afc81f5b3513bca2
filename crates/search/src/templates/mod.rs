//! Hand-written templates: the space of every program.
//!
//! A template looks at the blocks of a program, `main` and its epilogue `out`
//! above all, and writes sketches for what it recognises; every other block of
//! the program gets the general nest schedule, so no program is without a space.

mod blocked;
mod gemm;
mod im2row;
mod nest;
mod winograd;

use crate::draft::{Draft, Nest, nests};
use crate::space::{Candidate, Space};
use ir::{Program, Target};

/// The space of a program on a target; the first sketch's default is the
/// schedule to use when nothing was measured.
pub fn space(program: &Program, target: &Target) -> Space {
    let all = nests(program);
    let mut sketches = blocked::sketches(program, &all, target);
    if sketches.is_empty() {
        sketches = gemm::sketches(program, &all, target);
    }
    sketches.extend(im2row::sketches(program, &all, target));
    // Where minimal filtering is possible it multiplies least.
    sketches.splice(0..0, winograd::sketches(program, &all, target));
    sketches.extend(nest::sketches(&all, target));
    Space { sketches }
}

/// The plainest schedule that is not scalar: vector inner loops, no tiles.
///
/// # Errors
/// Never for a program of complete blocks; the text names the illegal step.
pub fn fallback(program: &Program, target: &Target) -> Result<Candidate, String> {
    let one = Target {
        threads: 1,
        ..target.clone()
    };
    let sketch = nest::plain(&nests(program), &one);
    let space = Space {
        sketches: vec![sketch],
    };
    space.candidate(program, &space.default_point())
}

/// What to use without measurements: the first sketch whose default is legal.
///
/// # Errors
/// As [`fallback`].
pub fn default_candidate(program: &Program, target: &Target) -> Result<Candidate, String> {
    let space = space(program, target);
    for (sketch, s) in space.sketches.iter().enumerate() {
        let p = crate::space::Point {
            sketch,
            values: s.default.clone(),
        };
        if let Ok(c) = space.candidate(program, &p) {
            return Ok(c);
        }
    }
    fallback(program, target)
}

/// Schedules the nests that a template does not handle itself.
fn others(d: &mut Draft, all: &[Nest], handled: &[&str], target: &Target) {
    for n in all.iter().filter(|n| !handled.contains(&n.block.as_str())) {
        nest::schedule(d, n, target, &nest::Style::TUNED);
    }
}
