//! The own simulator against callgrind, which runs the kernel instruction by instruction.
//!
//! `TUNESMITH_POINTS` sets how many points of each sketch are run beside its default. Valgrind replaces a fused
//! multiply-add by a call that reads its operands more often, so loads are compared where there are
//! none. An access that crosses two lines is one miss there at most, and two here.

#[allow(dead_code, reason = "not every test uses all")]
#[path = "../../analysis/tests/support/callgrind.rs"]
mod callgrind;
#[allow(dead_code, reason = "not every test uses all")]
#[path = "../../analysis/tests/support/mod.rs"]
mod support;

use analysis::Class;
use ir::{Isa, Target};
use llvm::Decoder;
use simulate::{CacheSetting, Geometry, Kernel, LevelCounts, Statistics, simulate};
use support::{analysed, compiled, convolution, operator, product, traces};

/// The largest relative differences that pass, but for one kernel of 40: of instructions and accesses, and of misses in each level.
const COUNTS: f64 = 0.0015;
const MISSES: [f64; 2] = [0.03, 0.01];
/// What the function that calls the kernel, its stack, and the pool add.
const OWN_COUNTS: f64 = 32.0;
const OWN_LINES: f64 = 32.0;

const FIRST: u64 = 32 << 10;
const LAST: u64 = 1 << 20;

/// Operators of several families.
const OPERATORS: &[&str] = &[
    "op:conv2d(c=16,h=28,w=28,k=16)",
    "op:depthwise_conv2d(c=32,h=28,w=28,r=5,s=5)",
    "op:conv2d_transpose(c=8,h=7,w=7,k=8)",
    "op:matmul(m=64,n=96,k=128)",
    "op:softmax(rows=64,cols=512)",
];

/// What is counted of one kernel.
struct Counted {
    name: String,
    statistics: Statistics,
    /// Whether it has fused multiply-adds.
    fused: bool,
}

#[test]
fn child() {
    callgrind::call_kernels();
}

#[test]
fn counts_are_those_of_callgrind() {
    let target = Target::generic(Isa::X86Avx2);
    if !callgrind::runs_here(&target) {
        return;
    }
    let points = std::env::var("TUNESMITH_POINTS").map_or(0, |p| p.parse().expect("a number"));
    let mut programs = vec![product(96, 96, 96), convolution(16, 16, 16)];
    programs.extend(OPERATORS.iter().flat_map(|spec| operator(spec, &target)));
    let level = |bytes: u64| Geometry {
        sets: bytes / 64 / 8,
        ways: 8,
    };
    let setting = CacheSetting {
        l1d: level(FIRST),
        l1i: level(32 << 10),
        shared: vec![level(LAST)],
        inclusive: false,
    };
    let decoder = Decoder::new(&target).expect("a known target");
    let mut kernels = Vec::new();
    let mut ours = Vec::new();
    for program in programs {
        for trace in traces(&program, &target, points) {
            let scheduled = schedule::replay(&program, &trace).expect("a legal trace");
            let (code, object) = compiled(&scheduled, &target);
            if callgrind::masked(&object, &target) {
                continue;
            }
            let analysis = analysed(&code, &object, &target, "kernel");
            let functions = decoder.functions(&object).expect("the object is read");
            let kernel = Kernel {
                code: &code,
                functions: &functions,
                analysis: &analysis,
            };
            ours.push(Counted {
                name: program.name.clone(),
                statistics: simulate(kernel, &setting, None).expect("no data decide"),
                fused: analysis.counts().of_class(Class::Fma) > 0.0,
            });
            kernels.push((code, object));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let given = kernels.iter().map(|(code, object)| (code, &object[..]));
    let theirs = callgrind::run(given, Some([FIRST, LAST]), folder.path());
    let pairs = ours.iter().zip(theirs.iter().map(|t| &t.all[..]));
    let wrong: Vec<String> = pairs.flat_map(|(o, t)| differences(o, t)).collect();
    println!("{} kernels: {} counts differ", ours.len(), wrong.len());
    assert!(
        ours.len() >= 40 && wrong.len() <= ours.len() / 40,
        "{}",
        wrong.join("\n")
    );
}

/// Counts that callgrind has otherwise.
fn differences(ours: &Counted, theirs: &[f64]) -> Vec<String> {
    let (s, [first, last]) = (
        &ours.statistics,
        [&ours.statistics.l1d, &ours.statistics.shared[0]],
    );
    let misses = |l: &LevelCounts| (l.read.misses + l.write.misses) as f64;
    // The last level has the code's lines too.
    let code = s.l1i.read.misses as f64;
    let mut pairs = vec![
        (
            "instructions",
            s.instructions,
            theirs[0],
            COUNTS,
            OWN_COUNTS,
        ),
        (
            "writes",
            first.write.accesses() as f64,
            theirs[2],
            COUNTS,
            OWN_COUNTS,
        ),
        (
            "first misses",
            misses(first),
            theirs[4] + theirs[5],
            MISSES[0],
            OWN_LINES,
        ),
        (
            "last misses",
            misses(last) - code,
            theirs[7] + theirs[8],
            MISSES[1],
            OWN_LINES,
        ),
    ];
    if !ours.fused {
        pairs.push((
            "reads",
            first.read.accesses() as f64,
            theirs[1],
            COUNTS,
            OWN_COUNTS,
        ));
    }
    let wrong = pairs
        .into_iter()
        .filter(|(_, a, b, share, own)| (a - b).abs() > share * b + own);
    wrong
        .map(|(what, a, b, ..)| format!("{}: {what}: {a} / {b}", ours.name))
        .collect()
}
