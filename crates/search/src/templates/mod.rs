//! Hand-written templates: the space of every program.
//!
//! A template looks at the blocks of a program, `main` and its epilogue `out`
//! above all, and writes sketches for what it recognises; every other block of
//! the program gets the general nest schedule, so no program is without a space.

mod blocked;
mod gemm;
mod im2row;
mod int8;
mod nest;
mod rows;
mod threads;
mod transpose;
mod winograd;

pub use int8::peak_factor;

use crate::accuracy::Accuracy;
use crate::draft::{Draft, Nest, nests};
use crate::space::{Candidate, Point, Sketch, Space};
use ir::{BufferId, CpuTarget, Program, Target};

/// Points of a program, and those for each element of its operands, beyond which
/// the general nest schedule is no alternative to templates that suit it: without
/// tiles it takes ten times as long and more, and to find that out takes longest
/// of all.
const MOST_GENERAL: (i64, i64) = (50_000_000, 16);

/// The space of a program on a target; the first sketch's default is the
/// schedule to use when nothing was measured. It is never empty: the general
/// nest schedule is exact, and there for every program without another exact one.
pub fn space(program: &Program, target: &Target, accuracy: Accuracy) -> Space {
    let Target::Cpu(target) = target;
    let mut sketches = threads::with_serial(program, target, |t| sketches(program, t));
    sketches.retain(|s| accuracy == Accuracy::Relaxed || s.exact);
    Space { sketches }
}

fn sketches(program: &Program, target: &CpuTarget) -> Vec<Sketch> {
    let all = nests(program);
    let mut sketches = blocked::sketches(program, &all, target);
    if sketches.is_empty() {
        sketches = gemm::sketches(program, &all, target);
    }
    sketches.splice(0..0, int8::sketches(program, &all, target));
    sketches.extend(im2row::sketches(program, &all, target));
    // Where minimal filtering is possible it multiplies least.
    sketches.splice(0..0, winograd::sketches(program, &all, target));
    sketches.extend(transpose::sketches(program, &all, target));
    sketches.extend(rows::sketches(program, &all, target));
    if !sketches.iter().any(|s| s.exact) || !reuses(program, &all) {
        sketches.extend(nest::sketches(&all, target));
    }
    sketches
}

/// Whether a program is large and reads its operands again and again.
fn reuses(program: &Program, all: &[Nest]) -> bool {
    let points = |n: &Nest| {
        n.spatial
            .iter()
            .chain(&n.reduce)
            .map(|l| l.1)
            .product::<i64>()
    };
    let work: i64 = all.iter().map(points).sum();
    let elements = |p: &BufferId| program.buffer(*p).shape.iter().product::<i64>();
    let operands: i64 = program.params.iter().map(elements).sum();
    let (most, each) = MOST_GENERAL;
    work > most && work > each * operands
}

/// The plainest schedule that is not scalar: vector inner loops, no tiles.
///
/// # Errors
/// Never for a program of complete blocks; the text names the illegal step.
pub fn fallback(program: &Program, target: &Target) -> Result<Candidate, String> {
    let Target::Cpu(target) = target;
    let one = CpuTarget {
        threads: 1,
        ..target.clone()
    };
    let sketch = nest::plain(&nests(program), &one);
    let space = Space {
        sketches: vec![sketch],
    };
    space.candidate(program, &space.default_point())
}

/// What to use without measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultCandidate {
    pub candidate: Candidate,
    /// Why sketches that come first in the space are not used: a defect of
    /// their templates. Usually empty.
    pub passed_over: Vec<String>,
}

/// What to use without measurements: the first sketch whose default is legal,
/// the fallback if none is.
///
/// # Errors
/// As [`fallback`].
pub fn default_candidate(
    program: &Program,
    target: &Target,
    accuracy: Accuracy,
) -> Result<DefaultCandidate, String> {
    first_legal(&space(program, target, accuracy), program, target)
}

fn first_legal(
    space: &Space,
    program: &Program,
    target: &Target,
) -> Result<DefaultCandidate, String> {
    let mut passed_over = Vec::new();
    for (sketch, s) in space.sketches.iter().enumerate() {
        let p = Point {
            sketch,
            values: s.default.clone(),
        };
        match space.candidate(program, &p) {
            Ok(candidate) => {
                return Ok(DefaultCandidate {
                    candidate,
                    passed_over,
                });
            }
            Err(why) => passed_over.push(why),
        }
    }
    Ok(DefaultCandidate {
        candidate: fallback(program, target)?,
        passed_over,
    })
}

/// The one sum, or other reduction, that a program is about.
fn main_sum(all: &[Nest]) -> Option<&Nest> {
    let mut nests = all.iter();
    nests.find(|n| n.block == "main" && n.is_reduction && n.writes == 1)
}

/// The block behind `main` that writes one element for each of its own.
fn epilogue<'a>(all: &'a [Nest], main: &Nest) -> Option<&'a Nest> {
    let extents = |n: &Nest| n.spatial.iter().map(|s| s.1).collect::<Vec<_>>();
    all.iter().find(|n| {
        n.block == "out" && n.reduce.is_empty() && n.writes == 1 && extents(n) == extents(main)
    })
}

/// Schedules the nests that a template does not handle itself.
fn others(d: &mut Draft, all: &[Nest], handled: &[&str], target: &CpuTarget) {
    for n in all.iter().filter(|n| !handled.contains(&n.block.as_str())) {
        nest::schedule(d, n, target, &nest::Style::PLAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::Isa;

    const PROGRAM: &str = "program matmul {
  input A: f32[4, 4]
  input B: f32[4, 8]
  output main: f32[4, 8]
  for main.m in 0..4 {
    for main.n in 0..8 {
      for main.k in 0..4 {
        block main [m: spatial 4 = main.m, n: spatial 8 = main.n, k: reduce 4 = main.k] {
          main[m, n] sum init = A[m, k] * B[k, n]
        }
      }
    }
  }
}
";

    fn program() -> Program {
        ir::text::parse(PROGRAM).unwrap()
    }

    fn sketch(name: &str, line: &str, exact: bool) -> Sketch {
        Sketch {
            name: name.into(),
            decisions: vec![],
            lines: vec![line.into()],
            limits: vec![],
            default: vec![],
            exact,
        }
    }

    #[test]
    fn a_default_that_is_illegal_is_passed_over_and_named() {
        let (program, target) = (program(), Target::generic(Isa::X86Avx2));
        let good = sketch("good", "unroll main.k", true);
        let bad = sketch("bad", "unroll nothing", true);
        let of =
            |sketches: Vec<Sketch>| first_legal(&Space { sketches }, &program, &target).unwrap();
        let found = of(vec![good.clone(), bad.clone()]);
        assert_eq!(
            (found.candidate.algorithm.as_str(), found.passed_over.len()),
            ("good", 0)
        );
        let found = of(vec![bad.clone(), good]);
        assert_eq!(found.candidate.algorithm, "good");
        assert_eq!(found.passed_over.len(), 1);
        assert!(
            found.passed_over[0].starts_with("bad: "),
            "{:?}",
            found.passed_over
        );
        let found = of(vec![bad]);
        assert_eq!(found.candidate.algorithm, "fallback");
        assert_eq!(found.passed_over.len(), 1);
    }

    #[test]
    fn small_programs_have_serial_sketches_and_tiny_ones_have_them_first() {
        let named = |extent: i64, threads: u32| {
            let of = |d: i64| PROGRAM.replace("0..4 {", &format!("0..{d} {{"));
            let text = of(extent)
                .replace("f32[4,", &format!("f32[{extent},"))
                .replace(", 4]", &format!(", {extent}]"))
                .replace("spatial 4", &format!("spatial {extent}"))
                .replace("reduce 4", &format!("reduce {extent}"));
            let target = Target::generic(Isa::X86Avx512).with_threads(threads);
            let program = ir::text::parse(&text).unwrap();
            let space = space(&program, &target, Accuracy::Strict);
            let names = space.sketches.into_iter().map(|s| s.name);
            names.collect::<Vec<String>>()
        };
        let serial = |n: &String| n.ends_with(".serial");
        assert!(!named(4, 1).iter().any(serial));
        let tiny = named(4, 2);
        let first = tiny.iter().take_while(|n| serial(n)).count();
        assert!(first > 0 && first < tiny.len(), "{tiny:?}");
        assert!(!tiny[first..].iter().any(serial), "{tiny:?}");
        let small = named(256, 2);
        assert!(!serial(&small[0]) && serial(&small[small.len() - 1]));
        assert!(!named(4000, 2).iter().any(serial));
    }

    #[test]
    fn every_program_has_an_exact_space() {
        for target in Isa::ALL.map(Target::generic) {
            let strict = space(&program(), &target, Accuracy::Strict);
            assert!(!strict.sketches.is_empty() && strict.sketches.iter().all(|s| s.exact));
            let relaxed = space(&program(), &target, Accuracy::Relaxed);
            assert!(relaxed.sketches.len() >= strict.sketches.len());
        }
    }
}
