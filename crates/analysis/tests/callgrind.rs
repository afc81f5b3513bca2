//! Counts against callgrind, which runs the kernel instruction by instruction.
//!
//! The program runs itself under valgrind, once for all kernels of a test. `TUNESMITH_POINTS` sets how many
//! points of each sketch are run beside its default; without it fewer programs and sketches are. Valgrind replaces a fused multiply-add by a call
//! that reads its operands more often, so loads are compared where there are none. It takes
//! masked moves apart, so kernels that have some are left out.

#[path = "support/callgrind.rs"]
mod callgrind;
#[allow(dead_code, reason = "not every test uses all")]
mod support;

use analysis::{Analysis, Cache, Counts, movement};
use ir::{DType, Expr, Isa, Program, ProgramBuilder, Reducer, Target};
use lower::flat::Code;
use support::{analysed, compiled, convolution, operator, product, traces};

/// The largest relative difference that passes.
const TOLERANCE: f64 = 0.01;
/// That of instructions and loads of windows whose lanes are decided one by one: of some lanes
/// LLVM knows that they are never loaded, of others it does not, and the code does not tell which.
const LANES_TOLERANCE: f64 = 0.05;
/// What the function that calls the kernel, and the pool, add.
const OWN: f64 = 32.0;

/// Operators whose blocks run by conditions: at borders, and at the end of rows.
const COUNTED: &[&str] = &[
    "op:conv2d(c=8,h=14,w=14,k=8)",
    "op:depthwise_conv2d(c=8,h=14,w=14)",
    "op:conv2d_transpose(c=8,h=7,w=7,k=8)",
    "op:matmul(m=37,n=41,k=43)",
    "op:max_pool2d(c=8,h=14,w=14)",
];

/// Calls the kernels that the process was started for, if it was started for any.
#[test]
fn child() {
    callgrind::call_kernels();
}

/// A kernel, and what is expected of it.
struct Subject {
    name: String,
    code: Code,
    object: Vec<u8>,
    analysis: Analysis,
}

/// Points of each sketch beside its default, and of how many traces one is run.
fn setting() -> (usize, usize) {
    match std::env::var("TUNESMITH_POINTS") {
        Ok(points) => (points.parse().expect("a number"), 1),
        Err(_) => (0, 3),
    }
}

#[test]
fn counts_are_those_of_callgrind_with_sse2() {
    counts_are_those_of_callgrind(Isa::X86Sse2);
}

#[test]
fn counts_are_those_of_callgrind_with_avx2() {
    counts_are_those_of_callgrind(Isa::X86Avx2);
}

fn counts_are_those_of_callgrind(isa: Isa) {
    let target = Target::generic(isa);
    if !callgrind::runs_here(&target) {
        return;
    }
    let (points, every) = setting();
    let mut subjects = Vec::new();
    let mut programs = vec![product(30, 48, 35), convolution(8, 8, 16)];
    programs.extend(COUNTED.iter().flat_map(|spec| operator(spec, &target)));
    for program in programs {
        for trace in traces(&program, &target, points).iter().step_by(every) {
            let scheduled = schedule::replay(&program, trace).expect("a legal trace");
            subjects.extend(subject(&scheduled, &target));
        }
    }
    assert!(
        subjects.len() >= 8,
        "{} kernels are compared",
        subjects.len()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let kernels = subjects.iter().map(|s| (&s.code, &s.object[..]));
    let counted = callgrind::run(kernels, CACHES.map(|c| c.bytes), folder.path());
    let pairs = subjects.iter().zip(&counted);
    let wrong: Vec<String> = pairs.flat_map(|(s, c)| differences(s, c)).collect();
    let (n, all) = (wrong.len(), wrong.join("\n"));
    assert!(
        n == 0,
        "{n} counts differ in {} kernels:\n{all}",
        subjects.len()
    );
}

/// The simulated caches: a first-level one, and behind it one like a second-level one.
const CACHES: [Cache; 2] = [
    Cache {
        bytes: 32 << 10,
        line_bytes: 64,
        shared: false,
        ways: Some(8),
    },
    Cache {
        bytes: 128 << 10,
        line_bytes: 64,
        shared: false,
        ways: Some(8),
    },
];

/// A convolution of 3 x 3 taps over an image with its border.
fn window(channels: i64, maps: i64, size: i64) -> Program {
    let mut b = ProgramBuilder::new("window");
    let x = b.input("X", DType::F32, &[channels, size + 2, size + 2]);
    let w = b.constant("W", DType::F32, &[maps, channels, 3, 3]);
    let axes = [("k", maps), ("y", size), ("x", size)];
    let terms = [("c", channels), ("r", 3), ("s", 3)];
    let main = b.reduce("main", &axes, &terms, Reducer::Sum, |o, t| {
        let data = Expr::load(x, [t[0].clone(), &o[1] + &t[1], &o[2] + &t[2]]);
        data * Expr::load(w, [o[0].clone(), t[0].clone(), t[1].clone(), t[2].clone()])
    });
    b.finish(&[main])
}

/// Programs whose movement is compared, some of powers of two, where sets matter.
fn moving(long: bool) -> Vec<Program> {
    let mut programs = vec![product(48, 256, 160), window(64, 16, 12)];
    if long {
        programs = vec![product(160, 128, 192), window(64, 16, 16)];
        programs.extend([
            product(256, 256, 256),
            product(200, 240, 300),
            product(64, 1024, 256),
            product(40, 40, 4096),
            window(64, 64, 24),
            window(16, 64, 56),
            window(128, 32, 16),
            window(61, 67, 24),
        ]);
    }
    programs
}

#[test]
fn movement_ranks_candidates_as_simulated_caches_do() {
    let target = Target::generic(Isa::X86Avx2);
    if !callgrind::runs_here(&target) {
        return;
    }
    let (points, every) = setting();
    let mut subjects = Vec::new();
    // The subjects of each program.
    let mut ranges = Vec::new();
    for program in moving(every == 1) {
        let first = subjects.len();
        for trace in traces(&program, &target, points) {
            let scheduled = schedule::replay(&program, &trace).expect("a legal trace");
            subjects.extend(subject(&scheduled, &target));
        }
        ranges.push(first..subjects.len());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let kernels = subjects.iter().map(|s| (&s.code, &s.object[..]));
    let counted = callgrind::run(kernels, CACHES.map(|c| c.bytes), folder.path());
    let mut all: [Vec<f64>; 2] = Default::default();
    for range in ranges {
        let (subjects, counted) = (&subjects[range.clone()], &counted[range]);
        for (level, cache) in CACHES.into_iter().enumerate() {
            let moved = |s: &Subject| movement(&s.code, &s.code.kernel, cache, 1).lines;
            let ours: Vec<f64> = subjects.iter().map(moved).collect();
            let misses = |c: &Vec<f64>| match level {
                0 => c[4] + c[5],
                _ => c[7] + c[8],
            };
            let theirs: Vec<f64> = counted.iter().map(misses).collect();
            let (least, most) = theirs
                .iter()
                .fold((f64::INFINITY, 0.0), |(least, most), n| {
                    (f64::min(least, *n), f64::max(most, *n))
                });
            // Where all move about as much there is no order.
            if most < 2.0 * least {
                continue;
            }
            let rank = learn::spearman(&ours, &theirs).unwrap_or(1.0);
            let (name, n) = (&subjects[0].name, ours.len());
            println!("{name}: cache {level}: {n} points, rank correlation {rank:.2}");
            all[level].push(rank);
        }
    }
    for ranks in &mut all {
        ranks.sort_by(f64::total_cmp);
        let median = ranks[ranks.len() / 2];
        assert!(median >= 0.8, "the median rank correlation is {median:.2}");
    }
}

/// None if valgrind takes instructions apart.
fn subject(scheduled: &Program, target: &Target) -> Option<Subject> {
    let (code, object) = compiled(scheduled, target);
    let analysis = analysed(&code, &object, target, "kernel");
    (!callgrind::masked(&object, target)).then(|| Subject {
        name: format!("{} on {}", scheduled.name, target.name()),
        code,
        object,
        analysis,
    })
}

/// Counts that callgrind has otherwise.
fn differences(subject: &Subject, counted: &[f64]) -> Vec<String> {
    let [least, most] = bounds(&subject.analysis);
    let mut wrong = Vec::new();
    let mut check = |what: &str, ours: [f64; 2], theirs: f64| {
        let difference = (apart(ours, theirs) - OWN) / theirs;
        let by_lanes = subject.name.starts_with("max_pool") && what != "stores";
        if difference > if by_lanes { LANES_TOLERANCE } else { TOLERANCE } {
            let name = &subject.name;
            wrong.push(format!("{name}: {what}: {ours:?} / {theirs}"));
        }
    };
    check(
        "instructions",
        [least.instructions(), most.instructions()],
        counted[0],
    );
    check("stores", [least.stores, most.stores], counted[2]);
    if no_fused(&most) {
        check("loads", [least.loads, most.loads], counted[1]);
    }
    wrong
}

/// How far a number is from a range.
fn apart([least, most]: [f64; 2], n: f64) -> f64 {
    (least - n).max(n - most).max(0.0)
}

/// The sums of all blocks' least and most counts.
fn bounds(a: &Analysis) -> [Counts; 2] {
    let mut sums = [Counts::default(), Counts::default()];
    for b in a.functions.iter().flat_map(|f| &f.blocks) {
        sums[0].add(&b.counts, b.least);
        sums[1].add(&b.counts, b.most);
    }
    sums
}

fn no_fused(counts: &Counts) -> bool {
    counts.of_class(analysis::Class::Fma) == 0.0
}
