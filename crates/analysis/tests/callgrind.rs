//! Counts against callgrind, which runs the kernel instruction by instruction, on kernels of all families
//! of operators.
//!
//! The program runs itself under valgrind, once for all kernels of a test. `TUNESMITH_POINTS` sets how many points of
//! each sketch are run beside its default; without it every third default that gives code of its own is, and the
//! first one of each program.
//!
//! Three counts are compared of each kernel: instructions, loads and stores. Callgrind counts these otherwise:
//!
//! - A fused multiply-add with a vector in memory reads it once a lane. Ours are counted so too.
//! - If caches are simulated, each lane that a masked move takes is one more instruction, and neither a load nor a
//!   store. So instructions are counted in a run without caches, and masked moves are left out of loads and stores
//!   on both sides. The lanes that are moved are between none and all.
//!
//! Where data decide what runs, bounds hold the number, and may be far apart. They may not elsewhere.
//! The test prints what was compared of each family.

#[allow(dead_code, reason = "not every test uses all")]
#[path = "support/callgrind.rs"]
mod callgrind;
#[path = "support/families.rs"]
mod families;
#[allow(dead_code, reason = "not every test uses all")]
mod support;

use analysis::{Analysis, Cache, Class, movement};
use callgrind::Counted;
use families::FAMILIES;
use ir::{DType, Expr, ExprKind, Isa, Program, ProgramBuilder, Reducer, Target};
use llvm::{Decoder, Instruction};
use lower::flat::{Code, Stmt};
use std::fmt::{Display, Formatter};
use support::{analysed, compiled, product, traces};

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

/// The largest relative difference between callgrind's number and the bounds of ours.
const TOLERANCE: f64 = 0.01;
/// How far bounds may be apart, relative to callgrind's number, where data decide nothing.
const WIDTH: f64 = 0.1;
/// Of so many random candidates one may be counted otherwise; of the defaults none may.
const MOST_WRONG: usize = 200;
/// Kernels that are compared at least, on each instruction set.
const FEWEST: usize = 40;

#[test]
fn families_have_all_operators() {
    let named = |o: &&graph::builtin::OperatorInfo| {
        let start = format!("op:{}(", o.name);
        let mut all = FAMILIES.iter().flat_map(|f| f.operators);
        all.any(|spec| spec.starts_with(&start))
    };
    let missing = graph::builtin::OPERATORS.iter().filter(|o| !named(o));
    let missing: Vec<&str> = missing.map(|o| o.name).collect();
    assert!(missing.is_empty(), "no family has {missing:?}");
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
    let points = testkit::setting("TUNESMITH_POINTS", 0) as usize;
    let mut subjects = Vec::new();
    let mut ranges = Vec::new();
    for family in FAMILIES {
        let first = subjects.len();
        for program in family.programs(&target) {
            subjects.extend(kernels(&program, &target, points));
        }
        ranges.push(first..subjects.len());
    }
    let run = |caches| {
        let folder = tempfile::tempdir().expect("a folder");
        let kernels = subjects.iter().map(|s| (&s.code, &s.object[..]));
        callgrind::run(kernels, caches, folder.path())
    };
    let (plain, simulated) = (run(None), run(Some(CACHES.map(|c| c.bytes))));
    let decoder = Decoder::new(&target).expect("a known target");
    let (mut wrong, mut missing) = (Vec::new(), Vec::new());
    let (mut kernels, mut wrong_kernels) = (0, 0);
    for (family, range) in FAMILIES.iter().zip(ranges) {
        let mut tally = Tally::default();
        for i in range {
            let ours = ours(&subjects[i], &decoder);
            let found = tally.compare(&ours, &plain[i], &simulated[i]);
            wrong_kernels += usize::from(!found.is_empty());
            let named = |w| format!("{}, {}: {w}", family.name, subjects[i].name);
            wrong.extend(found.into_iter().map(named));
        }
        println!("{}, {}: {tally}", target.name(), family.name);
        let programs = family.programs(&target).len();
        if tally.kernels < programs {
            missing.push(format!(
                "{}: {} kernels of {programs} programs",
                family.name, tally.kernels
            ));
        }
        kernels += tally.kernels;
    }
    let wrong = wrong.join("\n");
    println!(
        "{}: {wrong_kernels} of {kernels} kernels are counted otherwise\n{wrong}",
        target.name()
    );
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let most = if points > 0 { kernels / MOST_WRONG } else { 0 };
    assert!(wrong_kernels <= most, "{wrong}");
    assert!(kernels >= FEWEST, "{kernels} kernels are compared");
}

/// The kernels of a program: the defaults of its sketches and some points of each, or some of the
/// defaults. Code that comes twice is compared once.
fn kernels(program: &Program, target: &Target, points: usize) -> Vec<Subject> {
    let every = if points > 0 { 1 } else { 3 };
    let mut found: Vec<Subject> = Vec::new();
    for (n, trace) in traces(program, target, points).iter().enumerate() {
        let scheduled = schedule::replay(program, trace).expect("a legal trace");
        let mut new = subject(&scheduled, target);
        new.name += &format!(", candidate {n}");
        if found.iter().all(|s| s.object != new.object) {
            found.push(new);
        }
    }
    found.into_iter().step_by(every).collect()
}

/// Instructions, loads and stores of a kernel as callgrind should count them: bounds of each.
#[derive(Clone, Copy, Debug, Default)]
struct Ours {
    bounds: [[f64; 2]; 3],
    /// Bounds of how often fused multiply-adds read memory, and masked moves are made, and the
    /// most lanes of these.
    fused: [f64; 2],
    masked: [f64; 2],
    masked_lanes: f64,
    /// Data decide which blocks run.
    by_data: bool,
}

fn ours(subject: &Subject, decoder: &Decoder) -> Ours {
    let functions = decoder.functions(&subject.object).expect("it is read");
    let mut ours = Ours {
        by_data: decided_by_data(&subject.code.kernel),
        ..Ours::default()
    };
    for report in &subject.analysis.functions {
        let function = functions.iter().find(|f| f.name == report.name);
        let all = &function.expect("the function").instructions;
        for (block, own) in report.graph.blocks.iter().zip(&report.blocks) {
            let runs = [own.least, own.most];
            let mut counts = [
                own.counts.instructions(),
                own.counts.loads,
                own.counts.stores,
            ];
            for i in &all[block.instructions.clone()] {
                if i.opcode.contains("MASKMOV") {
                    counts[1] -= f64::from(u8::from(i.loads));
                    counts[2] -= f64::from(u8::from(i.stores));
                    add(&mut ours.masked, 1.0, runs);
                    ours.masked_lanes += lanes(i) * own.most;
                } else if Class::of(i) == Class::Fma && i.loads && i.opcode.starts_with("VF") {
                    counts[1] += lanes(i) - 1.0;
                    add(&mut ours.fused, 1.0, runs);
                }
            }
            for (bounds, n) in ours.bounds.iter_mut().zip(counts) {
                add(bounds, n, runs);
            }
        }
    }
    ours
}

fn add(bounds: &mut [f64; 2], n: f64, runs: [f64; 2]) {
    bounds
        .iter_mut()
        .zip(runs)
        .for_each(|(sum, runs)| *sum += n * runs);
}

/// Lanes of a fused multiply-add or a masked move, whose names say what a lane is.
fn lanes(i: &Instruction) -> f64 {
    let has = |part: &str| i.opcode.contains(part);
    let bits = match () {
        () if has("SS") || has("SD") => return 1.0,
        () if has("PD") || has("MOVQ") => 64.0,
        () => 32.0,
    };
    f64::from(i.vector_bits) / bits
}

/// Whether a condition reads memory: of a statement, of lanes, or of a select with loads on a side.
fn decided_by_data(stmts: &[Stmt]) -> bool {
    let of_expr = |e: &Expr| {
        e.any(&|e| match e.kind() {
            ExprKind::Select(c, a, b) => c.loads() && (a.loads() || b.loads()),
            _ => false,
        })
    };
    stmts.iter().any(|s| match s {
        Stmt::Loop(l) => decided_by_data(&l.body),
        Stmt::If {
            cond,
            then,
            otherwise,
        } => cond.loads() || decided_by_data(then) || decided_by_data(otherwise),
        Stmt::Store(s) => {
            s.mask.as_ref().is_some_and(Expr::loads) || of_expr(&s.value) || of_expr(&s.offset)
        }
        Stmt::Check { .. } | Stmt::Prefetch { .. } => false,
    })
}

/// What was compared of a family, and the largest relative differences and widths of bounds.
#[derive(Default)]
struct Tally {
    kernels: usize,
    fused: usize,
    masked: usize,
    by_data: usize,
    differences: [f64; 3],
    widths: [f64; 3],
}

const COUNTED: [&str; 3] = ["instructions", "loads", "stores"];

impl Tally {
    /// Adds a kernel, and says what is wrong with its counts.
    fn compare(&mut self, ours: &Ours, plain: &Counted, simulated: &Counted) -> Vec<String> {
        self.kernels += 1;
        self.fused += usize::from(ours.fused[1] > 0.0);
        self.masked += usize::from(ours.masked[1] > 0.0);
        self.by_data += usize::from(ours.by_data);
        let theirs = [plain.own[0], simulated.own[1], simulated.own[2]];
        let mut wrong = Vec::new();
        for n in 0..3 {
            let ([least, most], theirs) = (ours.bounds[n], theirs[n]);
            let apart = (least - theirs).max(theirs - most).max(0.0) / theirs;
            let width = (most - least) / theirs;
            self.differences[n] = self.differences[n].max(apart);
            let what = format!("{}: {:?} / {theirs}", COUNTED[n], ours.bounds[n]);
            if apart > TOLERANCE {
                wrong.push(format!("{what} are {:.1}% apart", 100.0 * apart));
            }
            if !ours.by_data {
                self.widths[n] = self.widths[n].max(width);
                if width > WIDTH {
                    wrong.push(format!("{what} are {:.1}% wide", 100.0 * width));
                }
            }
        }
        let lanes = simulated.own[0] - plain.own[0];
        if lanes < 0.0 || lanes > ours.masked_lanes {
            wrong.push(format!("{lanes} lanes of {} are moved", ours.masked_lanes));
        }
        // Code of others is no part of the analysis.
        if !plain.called.is_empty() {
            wrong.push(format!("it calls {:?}", plain.called));
        }
        wrong
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let percent = |all: [f64; 3]| all.map(|n| format!("{:.2}%", 100.0 * n)).join(", ");
        let (differences, widths) = (percent(self.differences), percent(self.widths));
        let Tally {
            kernels,
            fused,
            masked,
            by_data,
            ..
        } = self;
        write!(
            f,
            "{kernels} kernels, {fused} with fused multiply-adds in memory, {masked} with masked moves, {by_data} decided by data; \
             instructions, loads, stores differ by {differences}, bounds by {widths}"
        )
    }
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
    let points = testkit::setting("TUNESMITH_POINTS", 0) as usize;
    let mut subjects = Vec::new();
    // The subjects of each program.
    let mut ranges = Vec::new();
    for program in moving(points > 0) {
        let first = subjects.len();
        for trace in traces(&program, &target, points) {
            let scheduled = schedule::replay(&program, &trace).expect("a legal trace");
            subjects.push(subject(&scheduled, &target));
        }
        ranges.push(first..subjects.len());
    }
    let folder = tempfile::tempdir().expect("a folder");
    let kernels = subjects.iter().map(|s| (&s.code, &s.object[..]));
    let counted = callgrind::run(kernels, Some(CACHES.map(|c| c.bytes)), folder.path());
    let mut all: [Vec<f64>; 2] = Default::default();
    for range in ranges {
        let (subjects, counted) = (&subjects[range.clone()], &counted[range]);
        for (level, cache) in CACHES.into_iter().enumerate() {
            let moved = |s: &Subject| movement(&s.code, &s.code.kernel, cache, 1).lines;
            let ours: Vec<f64> = subjects.iter().map(moved).collect();
            let misses = |c: &callgrind::Counted| match level {
                0 => c.all[4] + c.all[5],
                _ => c.all[7] + c.all[8],
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

fn subject(scheduled: &Program, target: &Target) -> Subject {
    let (code, object) = compiled(scheduled, target);
    let analysis = analysed(&code, &object, target, "kernel");
    Subject {
        name: format!("{} on {}", scheduled.name, target.name()),
        code,
        object,
        analysis,
    }
}
