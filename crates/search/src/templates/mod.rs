//! Hand-written templates: the space of every program.
//!
//! A template looks at the blocks of a program, `main` and its epilogue `out`
//! above all, and writes sketches for what it recognises; every other block of
//! the program gets the general nest schedule, so no program is without a space.

mod attention;
mod blocked;
mod channels;
mod columns;
mod gemm;
mod halves;
mod im2row;
mod int8;
mod many_taps;
mod nest;
mod packed;
pub mod registers;
mod rows;
mod stages;
mod threads;
mod transpose;
mod widths;
mod winograd;

pub use int8::peak_factor;
pub use threads::is_even;

use crate::accuracy::Accuracy;
use crate::draft::{Draft, Refused, Written};
use crate::kind::{Allowed, SpaceKind};
use crate::nests::{Nest, nests};
use crate::rules;
use crate::space::{Candidate, Sketch, Space};
use halves::Widened;
use ir::names::{MAIN, OUT};
use ir::{BlockId, BufferId, CpuTarget, Program, Target};

/// Points of a program, and those for each element of its operands, beyond which
/// the general nest schedule is no alternative to templates that suit it: without
/// tiles it takes ten times as long and more, and to find that out takes longest
/// of all. Both numbers are chosen by hand; not measured apart.
const MOST_GENERAL: (i64, i64) = (50_000_000, 16);

/// The space of a program on a target; the first sketch's default is the
/// schedule to use when nothing was measured. It is never empty: the general
/// nest schedule is exact, and there for every program without another exact one.
pub fn space(program: &Program, target: &Target, allowed: impl Into<Allowed>) -> Space {
    let allowed = allowed.into();
    let Target::Cpu(target) = target;
    let found = threads::with_serial(program, target, |t| sketches(program, t, allowed));
    Space {
        sketches: found.sketches,
        refused: found.refused,
    }
}

/// What templates wrote for a program, the likely best first.
#[derive(Default)]
pub struct Templates {
    pub sketches: Vec<Sketch>,
    /// Sketches that are illegal at their defaults.
    refused: Vec<Refused>,
}

impl Templates {
    /// Adds the sketch that `write` makes of a draft.
    pub fn write(&mut self, mut d: Draft, write: impl FnOnce(&mut Draft) -> Written<()>) {
        match write(&mut d).and_then(|()| d.finish()) {
            Ok(sketch) => self.sketches.push(sketch),
            Err(refused) => self.refused.push(refused),
        }
    }

    /// Puts others behind these.
    pub fn extend(&mut self, others: Templates) {
        self.sketches.extend(others.sketches);
        self.refused.extend(others.refused);
    }

    fn has_any(&self) -> bool {
        !self.sketches.is_empty() || !self.refused.is_empty()
    }
}

fn sketches(program: &Program, target: &CpuTarget, allowed: Allowed) -> Templates {
    if allowed.space != SpaceKind::Rules {
        let mut found = Templates::default();
        int8::attention::sketches(program, &nests(program), target, &mut found);
        if !found.sketches.is_empty() {
            return found;
        }
    }
    let Some(widened) = Widened::of(program) else {
        return of_program(program, target, allowed);
    };
    // Dot products take halves as they are.
    let mut found = Templates::default();
    if allowed.space != SpaceKind::Rules {
        int8::sketches(program, &nests(program), target, &mut found);
    }
    found.extend(widened.before(of_program(&widened.program, target, allowed)));
    found
}

fn of_program(program: &Program, target: &CpuTarget, allowed: Allowed) -> Templates {
    let all = nests(program);
    let of = |template: fn(&Program, &[Nest], &CpuTarget, &mut Templates)| {
        let mut found = Templates::default();
        template(program, &all, target, &mut found);
        found
    };
    if all.iter().any(|n| !n.ordered.is_empty()) {
        return of(nest::sketches);
    }
    if allowed.space == SpaceKind::Rules {
        let found = of(rules::sketches);
        return match found.sketches.is_empty() {
            true => of(nest::sketches),
            false => found,
        };
    }
    let mut found = Templates::default();
    found.extend(of(attention::sketches));
    if !found.sketches.is_empty() {
        return found;
    }
    found.extend(of(packed::sketches));
    let mut many_taps = match allowed.accuracy {
        Accuracy::Relaxed => of(many_taps::sketches),
        Accuracy::Strict => Templates::default(),
    };
    if many_taps::is_worth_while(program, &all, target) {
        found.extend(std::mem::take(&mut many_taps));
    }
    let mut rules = of(rules::sketches);
    let first = rules::share_terms(&rules.sketches)
        || rules::have_long_windows(program, &all)
        || gemm::copies_cut_rows(program, &all, target)
        || blocked::shuffles_far(program, &all, &rules.sketches);
    if allowed.space == SpaceKind::All && first {
        found.extend(std::mem::take(&mut rules));
    }
    let mut minimal = match allowed.accuracy {
        Accuracy::Relaxed => of(winograd::sketches),
        Accuracy::Strict => Templates::default(),
    };
    let few_pixels = winograd::has_few_pixels(program, &all, target);
    if !few_pixels && winograd::is_worth_while(&all, target) {
        found.extend(std::mem::take(&mut minimal));
    }
    found.extend(of(int8::sketches));
    let blocked = of(blocked::sketches);
    match blocked.has_any() {
        true => found.extend(blocked),
        false => found.extend(of(gemm::sketches)),
    }
    if !few_pixels {
        found.extend(std::mem::take(&mut minimal));
    }
    found.extend(of(im2row::sketches));
    found.extend(of(channels::sketches));
    found.extend(of(transpose::sketches));
    found.extend(of(rows::sketches));
    found.extend(of(columns::sketches));
    found.extend(of(stages::sketches));
    if allowed.space == SpaceKind::All {
        found.extend(rules);
        found.extend(of(rules::gathered));
    }
    found.extend(many_taps);
    // What few pixels left over is the least likely.
    found.extend(minimal);
    if !found.sketches.iter().any(|s| s.exact) || !reuses(program, &all) {
        found.extend(of(nest::sketches));
    }
    found
}

/// Whether a program is large and reads its operands again and again.
fn reuses(program: &Program, all: &[Nest]) -> bool {
    let points = |n: &Nest| {
        let loops = n.spatial.iter().chain(&n.reduce);
        loops.map(|l| l.extent).product::<i64>()
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
/// Never for a program of complete blocks; the value names the illegal step.
pub fn fallback(program: &Program, target: &Target) -> Result<Candidate, Refused> {
    let Target::Cpu(target) = target;
    let one = CpuTarget {
        threads: 1,
        ..target.clone()
    };
    let space = Space::of(vec![nest::plain(program, &nests(program), &one)?]);
    space.candidate(program, &space.default_point())
}

/// What to use without measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultCandidate {
    pub candidate: Candidate,
    /// Why templates could not write other sketches: defects of theirs. Usually empty.
    pub passed_over: Vec<String>,
}

/// What to use without measurements: the default of the first sketch, the
/// fallback if no sketch could be written.
///
/// # Errors
/// As [`fallback`].
pub fn default_candidate(
    program: &Program,
    target: &Target,
    allowed: impl Into<Allowed>,
) -> Result<DefaultCandidate, Refused> {
    first_default(&space(program, target, allowed), program, target)
}

fn first_default(
    space: &Space,
    program: &Program,
    target: &Target,
) -> Result<DefaultCandidate, Refused> {
    let candidate = match space.sketches.first() {
        Some(_) => space.candidate(program, &space.default_point())?,
        None => fallback(program, target)?,
    };
    Ok(DefaultCandidate {
        candidate,
        passed_over: space.refused.iter().map(Refused::to_string).collect(),
    })
}

/// The one sum, or other reduction, that a program is about.
pub fn main_sum(all: &[Nest]) -> Option<&Nest> {
    let mut nests = all.iter();
    nests.find(|n| n.is(MAIN) && n.is_reduction && n.writes == 1)
}

/// The block behind `main` that writes one element for each of its own.
pub fn epilogue<'a>(all: &'a [Nest], main: &Nest) -> Option<&'a Nest> {
    all.iter()
        .find(|n| n.is(OUT) && n.reduce.is_empty() && n.writes == 1 && n.shape() == main.shape())
}

/// Schedules the nests that a template does not handle itself.
pub fn others(d: &mut Draft, all: &[Nest], handled: &[BlockId], target: &CpuTarget) -> Written<()> {
    for n in all.iter().filter(|n| !handled.contains(&n.block)) {
        nest::schedule(d, n, target, &nest::Style::PLAIN)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::Refusal;
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

    /// A template that unrolls the loop over terms so often: twice is illegal.
    fn unrolled(times: usize) -> Templates {
        let program = program();
        let k = nests(&program)[0].reduce[0].id;
        let mut found = Templates::default();
        found.write(Draft::new(format!("unrolled{times}"), &program), |d| {
            (0..times).try_for_each(|_| d.unroll(k))
        });
        found
    }

    #[test]
    fn a_template_that_is_illegal_at_its_default_is_refused_where_it_is_written() {
        let refused = unrolled(2).refused.remove(0);
        assert_eq!(refused.sketch, "unrolled2");
        let Refusal::Step(why) = &refused.why else {
            panic!("{refused}");
        };
        assert_eq!((why.step, &why.at[..]), ("unroll", "main.k"));
        assert_eq!(
            refused.to_string(),
            "unrolled2: unroll `main.k`: it is unrolled"
        );
    }

    #[test]
    fn what_could_not_be_written_is_named_beside_the_default() {
        let (program, target) = (program(), Target::generic(Isa::X86Avx2));
        let of = |times: [usize; 2]| {
            let mut found = unrolled(times[0]);
            found.extend(unrolled(times[1]));
            let space = Space {
                sketches: found.sketches,
                refused: found.refused,
            };
            let found = first_default(&space, &program, &target).unwrap();
            (found.candidate.algorithm, found.passed_over.len())
        };
        assert_eq!(of([1, 0]), ("unrolled1".into(), 0));
        assert_eq!(of([2, 1]), ("unrolled1".into(), 1));
        assert_eq!(of([2, 2]), ("fallback".into(), 2));
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
