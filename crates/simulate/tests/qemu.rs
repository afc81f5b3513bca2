//! The own simulator against QEMU, which runs the kernels instruction by instruction.
//!
//! The plugin is an example of this crate, which `cargo test` builds unless it is asked for one test only.

#[allow(dead_code, reason = "not every test uses all")]
#[path = "../../analysis/tests/support/mod.rs"]
mod programs;
mod support;

use ir::{Isa, Program, Target};
use llvm::Decoder;
use programs::{analysed, compiled, convolution, operator, product, traces};
use simulate::{
    CacheSetting, Emulator, Geometry, Kernel, LevelCounts, Runner, Statistics, simulate,
};
use std::path::PathBuf;
use std::time::Duration;
use support::{kernel, write};

/// The largest relative differences that pass, but for one kernel of ten.
const COUNTS: f64 = 0.001;
const MISSES: f64 = 0.03;
/// What is compared.
const ALL: [&str; 5] = ["instructions", "loads", "stores", "branches", "misses"];
/// What the call itself and the kernel's own stack add.
const OWN: f64 = 32.0;

const LIMIT: Duration = Duration::from_secs(120);

const OPERATORS: &[&str] = &[
    "op:conv2d(c=16,h=28,w=28,k=16)",
    "op:depthwise_conv2d(c=32,h=28,w=28,r=5,s=5)",
    "op:matmul(m=64,n=96,k=128)",
    "op:softmax(rows=64,cols=512)",
];

/// Kernels whose integers are indices: what they hold decides which elements are accessed.
const INDEXED: &[&str] = &[
    "op:gather(table=300,rows=37,cols=61)",
    "op:gather(table=128,rows=200,cols=96)",
    "op:scatter_add(table=300,rows=500,cols=24)",
    "op:scatter_add(table=256,rows=3000,cols=1)",
    "op:scatter_add(table=1009,rows=409,cols=61)",
];

/// Kernels of which some spill accumulators and use most lines of the first level.
const SPILLED: &[&str] = &["op:conv2d(c=32,h=28,w=28,k=64)"];

/// Kernels of which some load weights again under a condition, some load vectors that are wider than the elements that they
/// need, and some load a few lanes only.
const SHARED_LOADS: &[&str] = &[
    "op:conv3d(c=45,d=3,h=13,w=29,k=9)",
    "op:grouped_conv2d(c=124,h=19,w=53,k=124,groups=31)",
];

/// Kernels whose borders are tested row first, then column, and kernels with an instruction of an inner loop on two pages.
const EXACT: &[&str] = &[
    "op:grouped_conv2d(c=128,h=28,w=28,k=32,groups=4)",
    "op:grouped_conv2d(c=128,h=28,w=28,k=128,groups=4)",
];

fn setting() -> CacheSetting {
    let eight_ways = |sets| Geometry { sets, ways: 8 };
    CacheSetting {
        l1d: eight_ways(64),
        l1i: eight_ways(64),
        shared: vec![eight_ways(2048)],
        inclusive: false,
    }
}

/// The plugin, and what runs it.
fn emulator(target: &Target) -> Result<(PathBuf, Emulator), String> {
    let program = std::env::current_exe().expect("this program");
    let folder = program.ancestors().nth(2).expect("the folder of programs");
    let plugin = folder.join("examples/libqemu_counts.so");
    if !plugin.exists() {
        return Err("the plugin is missing: cargo build --package simulate --examples".into());
    }
    let emulator = Emulator::find(target).map_err(|e| e.to_string())?;
    Ok((plugin, emulator))
}

/// Compares these counts of the defaults of all sketches, which are so many at least.
fn check(isa: Isa, of: impl Fn(&Target) -> Vec<Program>, least: usize, counts: &[&str]) {
    if let Some((kernels, wrong)) = compared(isa, of, counts) {
        assert!(kernels >= least && wrong <= kernels / 10);
    }
}

/// How many kernels the defaults of all sketches are, and how many of them differ in these counts. `None` without QEMU.
fn compared(
    isa: Isa,
    of: impl Fn(&Target) -> Vec<Program>,
    counts: &[&str],
) -> Option<(usize, usize)> {
    let target = Target::generic(isa);
    let (plugin, emulator) = match emulator(&target) {
        Ok(found) => found,
        Err(why) => {
            testkit::host::skipped(&why);
            return None;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("executable");
    let runner = Runner::new(&target).expect("a known target");
    let decoder = Decoder::new(&target).expect("a known target");
    let programs = of(&target);
    let (mut kernels, mut wrong) = (0, Vec::new());
    for program in &programs {
        for trace in traces(program, &target, 0) {
            let scheduled = schedule::replay(program, &trace).expect("a legal trace");
            let (code, object) = compiled(&scheduled, &target);
            let analysis = analysed(&code, &object, &target, "kernel");
            let functions = decoder.functions(&object).expect("the object is read");
            let ours = Kernel {
                code: &code,
                functions: &functions,
                analysis: &analysis,
            };
            let ours = simulate(ours, &setting(), None).expect("its addresses are followed");
            let executable = runner.executable(&kernel(&code, &target, object), 1);
            write(&file, &executable.expect("an executable"));
            let theirs = emulator.counts(&plugin, &file, &setting(), LIMIT);
            kernels += 1;
            let mut theirs = theirs.expect("it is counted");
            let mut instructions = functions.iter().flat_map(|f| &f.instructions);
            if instructions.any(|i| i.opcode.contains("MASKMOV")) {
                // QEMU seems not to tell of a load of no lane, which is a load here.
                theirs.loads = ours.loads;
            }
            let mut found = differences(&ours, &theirs);
            found.retain(|d| counts.iter().any(|c| d.starts_with(c)));
            let name = &program.name;
            wrong.extend((!found.is_empty()).then(|| format!("{name}: {}", found.join(", "))));
        }
    }
    println!(
        "{}: {kernels} kernels, {} differ",
        target.name(),
        wrong.len()
    );
    wrong.iter().for_each(|w| println!("{w}"));
    Some((kernels, wrong.len()))
}

fn floats(target: &Target) -> Vec<Program> {
    let mut programs = vec![product(64, 64, 64), convolution(8, 8, 16)];
    programs.extend(OPERATORS.iter().flat_map(|spec| operator(spec, target)));
    programs
}

fn indexed(target: &Target) -> Vec<Program> {
    let specs = INDEXED.iter();
    specs.flat_map(|spec| operator(spec, target)).collect()
}

fn spilled(target: &Target) -> Vec<Program> {
    let specs = SPILLED.iter();
    specs.flat_map(|spec| operator(spec, target)).collect()
}

fn shared_loads(target: &Target) -> Vec<Program> {
    let specs = SHARED_LOADS.iter();
    specs.flat_map(|spec| operator(spec, target)).collect()
}

fn exact(target: &Target) -> Vec<Program> {
    let specs = EXACT.iter();
    specs.flat_map(|spec| operator(spec, target)).collect()
}

fn differences(ours: &Statistics, theirs: &Statistics) -> Vec<String> {
    let misses = |l: &LevelCounts| (l.read.misses + l.write.misses) as f64;
    let of = |s: &Statistics| {
        [
            s.instructions,
            s.loads,
            s.stores,
            s.branches,
            misses(&s.l1d),
        ]
    };
    let most = [COUNTS, COUNTS, COUNTS, COUNTS, MISSES];
    let pairs = of(ours).into_iter().zip(of(theirs)).zip(ALL).zip(most);
    let wrong = pairs.filter(|(((a, b), _), share)| (a - b).abs() > share * b + OWN);
    wrong
        .map(|(((a, b), name), _)| format!("{name} {a} / {b}"))
        .collect()
}

#[test]
fn counts_of_aarch64_are_those_of_qemu() {
    check(Isa::AArch64Neon, floats, 20, &ALL);
}

#[test]
fn counts_of_riscv_are_those_of_qemu() {
    check(Isa::RiscV64Gc, floats, 20, &ALL);
    check(Isa::RiscV64Rvv, floats, 20, &ALL);
}

#[test]
fn counts_of_x86_are_those_of_qemu() {
    check(Isa::X86Sse2, floats, 20, &ALL);
    check(Isa::X86Avx2, floats, 20, &ALL);
}

#[test]
fn counts_of_kernels_with_indices_are_those_of_qemu() {
    for isa in [Isa::X86Avx2, Isa::AArch64Neon, Isa::RiscV64Gc] {
        check(isa, indexed, 5, &ALL);
    }
}

#[test]
fn misses_beside_spilled_registers_are_those_of_qemu() {
    check(Isa::X86Avx2, spilled, 10, &["misses"]);
}

#[test]
fn misses_of_loads_that_statements_share_are_those_of_qemu() {
    if let Some((kernels, wrong)) = compared(Isa::X86Avx2, shared_loads, &["misses"]) {
        assert!(kernels >= 20 && wrong == 0);
    }
}

#[test]
fn instructions_of_tests_at_borders_and_on_two_pages_are_those_of_qemu() {
    if let Some((kernels, wrong)) = compared(Isa::X86Avx2, exact, &["instructions"]) {
        assert!(kernels >= 10 && wrong == 0);
    }
}
