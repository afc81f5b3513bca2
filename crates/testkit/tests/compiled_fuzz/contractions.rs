//! Random contractions get a space of rules; what a random point of the space computes is
//! judged: its machine code agrees with the program as written.

use crate::machine::Host;
use crate::note;
use ir::{Program, Role, interpret};
use llvm::Compiler;
use lower::LowerOptions;
use lower::flat::interpret::Arguments;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use search::{Accuracy, Allowed, Point, Space, SpaceKind, space};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use tensor::{Tensor, compare};
use testkit::filtering::agrees;
use testkit::{contraction_args, random_contraction, setting};

/// Points of each program that are drawn; the first legal one is compiled.
const DRAWN: usize = 3;

/// What a run covered.
#[derive(Default)]
struct Covered {
    programs: usize,
    by_rules: usize,
    drawn: usize,
    illegal: Vec<String>,
    agreed: usize,
}

impl Covered {
    /// The share of the drawn points that are legal, in percent.
    fn legal_percent(&self) -> f64 {
        let legal = self.drawn - self.illegal.len();
        100.0 * legal as f64 / self.drawn.max(1) as f64
    }
}

impl fmt::Display for Covered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} contractions: {} have sketches by rules, {:.2}% of {} drawn points are legal, {} compiled points agree",
            self.programs,
            self.by_rules,
            self.legal_percent(),
            self.drawn,
            self.agreed
        )
    }
}

/// A contraction, for one of the families of this processor.
struct Contraction<'a> {
    seed: u64,
    program: Program,
    compiler: &'a Compiler,
    threads: u32,
}

impl Contraction<'_> {
    fn space(&self) -> Space {
        let target = self.compiler.target().clone().with_threads(self.threads);
        let accuracy = Accuracy::Strict;
        let space = space(
            &self.program,
            &target,
            Allowed {
                accuracy,
                space: SpaceKind::Rules,
            },
        );
        assert_eq!(space.refused, [], "{}", ir::text::print(&self.program));
        space
    }

    /// The flat code of a point, or why the point is illegal.
    fn code(&self, space: &Space, point: &Point) -> Result<lower::flat::Code, String> {
        let made = space.candidate(&self.program, point);
        let candidate = made.map_err(|e| e.to_string())?;
        let replayed = schedule::replay(&self.program, &candidate.trace);
        let scheduled = replayed.map_err(|e| format!("{}: {e}", candidate.algorithm))?;
        let options = LowerOptions {
            verify: true,
            ..LowerOptions::standard()
        };
        let lowered = lower::lower(&scheduled, self.compiler.target(), &options);
        lowered.map_err(|e| format!("{}: {e}", candidate.algorithm))
    }

    /// What the code of a point computes otherwise than the program, if anything.
    fn difference(&self, code: &lower::flat::Code, host: &Host) -> Option<String> {
        let args = contraction_args(&self.program, self.seed);
        let mut expected = args.clone();
        interpret::run(&self.program, &mut expected).expect("random contractions run");
        let params = self.program.params.iter().copied();
        let given: Arguments = params.zip(args).collect();
        let found = match host.run(code, self.compiler, &given, 0) {
            Ok(found) => found,
            Err(why) => return Some(why),
        };
        let all = self.program.params.iter().zip(&expected);
        let mut outputs = all.filter(|(b, _)| self.program.buffer(**b).role == Role::Output);
        outputs.find_map(|(b, want): (_, &Tensor)| {
            let name = &self.program.buffer(*b).name;
            let Some(got) = found.get(b) else {
                return Some(format!("`{name}` is missing"));
            };
            let got = got.clone().reshaped(want.shape());
            let d = compare(&got, want);
            (!agrees(&d, 0.0)).then(|| {
                let (got, want) = (got.get_f64(d.worst), want.get_f64(d.worst));
                format!("`{name}`[{}] is {got}, not {want}", d.worst)
            })
        })
    }

    fn told(&self, why: &str, point: &Point) -> String {
        let (seed, family) = (self.seed, self.compiler.target().name());
        let (threads, sketch, values) = (self.threads, point.sketch, &point.values);
        let program = ir::text::print(&self.program);
        format!(
            "seed {seed}: {why}: {family}, {threads} threads, sketch {sketch} at {values:?}\n{program}"
        )
    }

    /// Draws points and runs the first legal one.
    ///
    /// # Errors
    /// What differs.
    fn judge(&self, host: &Host, covered: &mut Covered) -> Result<(), String> {
        let space = self.space();
        let by_rules = space.sketches.iter().any(|s| s.name.starts_with("rules."));
        covered.programs += 1;
        covered.by_rules += usize::from(by_rules);
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut judged = false;
        for _ in 0..DRAWN {
            let point = space.sample(&mut rng);
            covered.drawn += 1;
            match self.code(&space, &point) {
                Err(why) => covered.illegal.push(self.told(&why, &point)),
                Ok(_) if judged => {}
                Ok(code) => {
                    judged = true;
                    if let Some(why) = self.difference(&code, host) {
                        return Err(self.told(&why, &point));
                    }
                    covered.agreed += 1;
                }
            }
        }
        Ok(())
    }
}

#[test]
fn random_points_of_rules_are_legal_and_their_code_agrees_with_the_program() {
    let count = setting("TUNESMITH_FUZZ", 150);
    let first = setting("TUNESMITH_FUZZ_SEED", 0);
    let running: PathBuf = [env!("CARGO_TARGET_TMPDIR"), "contractions.seed"]
        .iter()
        .collect();
    let host = Host::new();
    let (mut covered, mut failures) = (Covered::default(), Vec::new());
    for seed in first..first + count {
        note(&running, seed);
        let contraction = Contraction {
            seed,
            program: random_contraction(seed),
            compiler: host.compiler(seed),
            threads: 1 + u32::from(seed % 3 == 0),
        };
        let judged = catch_unwind(AssertUnwindSafe(|| contraction.judge(&host, &mut covered)));
        match judged {
            Ok(Ok(())) => {}
            Ok(Err(why)) => failures.push(why),
            Err(_) => failures.push(format!("seed {seed}: a panic")),
        }
    }
    println!("{covered}");
    for why in covered.illegal.iter().take(10) {
        println!("illegal: {}", why.lines().next().unwrap_or_default());
    }
    let list: Vec<&str> = failures.iter().filter_map(|f| f.lines().next()).collect();
    let shown = failures.get(..2).unwrap_or(&failures).join("\n\n");
    let list = list.join("\n");
    assert!(
        failures.is_empty(),
        "{} failures\n{list}\n\n{shown}",
        failures.len()
    );
    assert!(covered.legal_percent() >= 95.0, "{covered}");
    assert!(20 * covered.by_rules >= 19 * covered.programs, "{covered}");
}
