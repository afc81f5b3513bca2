//! Counts of blocks: of many operators on every instruction set none is inconsistent, few are not
//! decided, and spills are told apart from other moves to the stack.
//!
//! `TUNESMITH_POINTS` sets how many points of each sketch are read beside its default. Figures
//! of each operator are printed.

#[allow(dead_code, reason = "not every test uses all")]
mod support;

use analysis::{Analysis, Class, FunctionReport};
use ir::{Isa, Target};
use lower::flat::BufferPlace;
use support::{analysed, compiled, mismatches, operator, product, traces};
use testkit::setting;

/// One of each kind whose code has another shape: borders, strides, sizes that no vector divides.
const OPERATORS: &[&str] = &[
    "op:conv2d(c=16,h=14,w=14,k=16)",
    "op:conv2d(c=3,h=23,w=23,k=16,r=7,s=7,stride=2)",
    "op:depthwise_conv2d(c=16,h=14,w=14,r=5,s=5)",
    "op:conv2d_transpose(c=8,h=7,w=7,k=8)",
    "op:matmul(m=37,n=41,k=43)",
    "op:dense(m=16,n=40,k=50)",
    "op:softmax(rows=12,cols=50)",
    "op:layer_norm(rows=12,cols=50)",
    "op:max_pool2d(c=16,h=14,w=14)",
    "op:transpose(rows=30,cols=50)",
];

/// The share of blocks that may be undecided.
const MOST_GUESSED: f64 = 0.08;
/// The same without vectors and their masks: each element at a border has a condition of its own.
const MOST_GUESSED_SCALAR: f64 = 0.15;

#[derive(Clone, Copy, Default)]
struct Tally {
    entries: usize,
    guessed: usize,
    blocks: usize,
    guessed_blocks: usize,
}

impl Tally {
    fn add(&mut self, a: &Analysis) {
        let sum = |of: fn(&FunctionReport) -> usize| a.functions.iter().map(of).sum::<usize>();
        let guessed = sum(|f| f.guessed.len());
        self.entries += 1;
        self.guessed += usize::from(guessed > 0);
        self.blocks += sum(|f| f.blocks.len());
        self.guessed_blocks += guessed;
    }
}

#[test]
fn counts_of_operators_agree_with_sse2() {
    counts_agree(Isa::X86Sse2);
}

#[test]
fn counts_of_operators_agree_with_avx2() {
    counts_agree(Isa::X86Avx2);
}

#[test]
fn counts_of_operators_agree_with_avx512() {
    counts_agree(Isa::X86Avx512);
}

#[test]
fn counts_of_operators_agree_with_neon() {
    counts_agree(Isa::AArch64Neon);
}

#[test]
fn counts_of_operators_agree_with_scalar_riscv() {
    counts_agree(Isa::RiscV64Gc);
}

#[test]
fn counts_of_operators_agree_with_rvv() {
    counts_agree(Isa::RiscV64Rvv);
}

fn counts_agree(isa: Isa) {
    let points = setting("TUNESMITH_POINTS", 0) as usize;
    let target = Target::generic(isa);
    let (mut all, mut wrong) = (Tally::default(), Vec::new());
    for spec in OPERATORS {
        let mut tally = Tally::default();
        for program in operator(spec, &target) {
            for (n, trace) in traces(&program, &target, points).iter().enumerate() {
                let scheduled = schedule::replay(&program, trace).expect("a legal trace");
                let (code, object) = compiled(&scheduled, &target);
                for entry in ["kernel", "prepare"] {
                    let a = analysed(&code, &object, &target, entry);
                    tally.add(&a);
                    all.add(&a);
                    let found = mismatches(&code, &a).into_iter().chain(outside(&a));
                    wrong.extend(found.map(|w| format!("{spec} {n} {entry}: {w}")));
                }
            }
        }
        let Tally {
            entries,
            guessed,
            blocks,
            guessed_blocks,
        } = tally;
        println!(
            "{} {spec}: {guessed} of {entries} entries and {guessed_blocks} of {blocks} blocks are guessed",
            target.name()
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (guessed, blocks) = (all.guessed_blocks as f64, all.blocks as f64);
    let most = match isa {
        Isa::RiscV64Gc => MOST_GUESSED_SCALAR,
        _ => MOST_GUESSED,
    };
    assert!(
        guessed <= most * blocks,
        "{guessed} of {blocks} blocks are guessed"
    );
}

/// Blocks whose count is not within its bounds.
fn outside(a: &Analysis) -> impl Iterator<Item = String> {
    let blocks = a.functions.iter().flat_map(|f| &f.blocks);
    blocks.filter_map(|b| {
        let slack = 1e-6 * b.most.max(1.0);
        let within = b.least - slack <= b.runs && b.runs <= b.most + slack;
        (!within).then(|| format!("block at {}: {} runs", b.offset, b.runs))
    })
}

#[test]
fn what_is_saved_around_a_body_is_no_spill() {
    let target = Target::generic(Isa::X86Sse2);
    let mut spilled = 0;
    for program in [product(50, 48, 70), product(8, 8, 8)] {
        for trace in traces(&program, &target, 0) {
            let scheduled = schedule::replay(&program, &trace).expect("a legal trace");
            let (code, object) = compiled(&scheduled, &target);
            let a = analysed(&code, &object, &target, "kernel");
            // An array on the stack is no spill either.
            let arrays = code.buffers.iter().any(|b| b.place == BufferPlace::Stack);
            for f in &a.functions {
                for (n, b) in f.blocks.iter().enumerate() {
                    let (spills, stack) = (b.counts.spills, b.counts.of_class(Class::Stack));
                    match f.graph.innermost(n) {
                        None => assert_eq!(spills, 0.0, "{} at {}", f.name, b.offset),
                        // Instructions that read the stack for their arithmetic spill as well.
                        Some(_) => assert!(arrays || spills >= stack, "{} at {}", f.name, b.offset),
                    }
                    spilled += usize::from(spills > 0.0);
                }
            }
            let saved = a.counts().of_class(Class::Stack) - a.counts().spills;
            assert!(saved > 0.0 || a.counts().spills > 0.0, "nothing is saved");
        }
    }
    assert!(spilled > 0, "no loop spills");
}
