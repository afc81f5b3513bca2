//! Cycles of repeated blocks against LLVM's simulator of pipelines (`llvm-mca`), on blocks in
//! loops of real candidates.
//!
//! The simulator knows nothing of which loads read what was stored, so here blocks are without
//! addresses. `TUNESMITH_POINTS` sets how many points of each sketch are read beside its
//! default. All blocks are printed with both figures.

#[allow(dead_code, reason = "not every test uses all")]
mod support;

use analysis::{Graph, cycles};
use ir::{Isa, Target};
use llvm::{Decoder, Instruction, MachineFunction};
use std::collections::HashMap;
use std::fmt::Write;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{compiled, operator, traces};

/// Operators whose innermost loops differ: products, windows, sums, maxima, copies.
const OPERATORS: &[&str] = &[
    "op:conv2d(c=16,h=14,w=14,k=16)",
    "op:depthwise_conv2d(c=16,h=14,w=14)",
    "op:matmul(m=37,n=41,k=43)",
    "op:softmax(rows=12,cols=50)",
    "op:layer_norm(rows=12,cols=50)",
    "op:max_pool2d(c=16,h=14,w=14)",
];

/// Blocks of each operator, at most and for each point.
const BLOCKS: usize = 3;
/// Points of each sketch beside its default: about 60 blocks of a core, so that one block more or less does not decide a share.
const POINTS: u64 = 3;
/// Blocks of a core, at least.
const FEWEST: usize = 8;
/// Instructions of a block.
const LENGTHS: RangeInclusive<usize> = 10..=600;
/// So many that what begins and ends them counts little.
const ITERATIONS: usize = 250;

/// The relative difference of nearly all blocks of a core that begins out of order. The simulator
/// has a queue for stores, and bounds how much retires in a cycle.
const TOLERANCE: f64 = 0.1;
/// The largest one of cores that begin in order: 42 cycles for 44 in a block of a product for the SpacemiT X60.
const IN_ORDER: f64 = 0.05;

/// A block, and its text.
struct Sample {
    name: String,
    instructions: Vec<Instruction>,
    /// Of each instruction, and of the one before the block that sets the state of the vector unit.
    lines: Vec<String>,
    setting: Option<String>,
}

impl Sample {
    fn opcodes(&self) -> Vec<&str> {
        self.instructions.iter().map(|i| i.opcode).collect()
    }
}

/// An instruction without an operand in memory, and its cycles on a core with two units of 512 bits
/// and on one that LLVM models with one.
const WIDE: &[(&str, f64, f64)] = &[
    ("vfmadd231ps %zmm30, %zmm31, %zmm{}", 0.5, 1.0),
    ("vfnmadd213pd %zmm30, %zmm31, %zmm{}", 0.5, 1.0),
    ("vaddps %zmm30, %zmm31, %zmm{}", 0.5, 1.0),
    ("vmulps %zmm30, %zmm31, %zmm{}", 0.5, 1.0),
    ("vpdpbusd %zmm30, %zmm31, %zmm{}", 0.5, 0.5),
    ("vmaxps %zmm30, %zmm31, %zmm{}", 0.5, 0.5),
    ("vcvtdq2ps %zmm30, %zmm{}", 0.5, 0.5),
    ("vpmulld %zmm30, %zmm31, %zmm{}", 1.0, 1.0),
    ("vrndscaleps $1, %zmm30, %zmm{}", 1.0, 1.0),
    // One port on both.
    ("vpslld $3, %zmm30, %zmm{}", 1.0, 1.0),
    ("vpmaxsd %zmm30, %zmm31, %zmm{}", 1.0, 1.0),
    ("vshufps $1, %zmm30, %zmm31, %zmm{}", 1.0, 1.0),
    // Two units of 256 bits.
    ("vfmadd231ps %ymm30, %ymm31, %ymm{}", 0.5, 0.5),
];
/// Copies of such an instruction that write different registers, in a block.
const COPIES: usize = 24;

struct Tools {
    mca: PathBuf,
    objdump: PathBuf,
}

/// The text of each instruction of an object, by function and offset.
type Lines = HashMap<(String, u32), String>;

fn tool(name: &str) -> Option<PathBuf> {
    let places = [format!("/usr/lib/llvm-22/bin/{name}"), format!("{name}-22")];
    let runs = |p: &PathBuf| {
        Command::new(p)
            .arg("--version")
            .output()
            .is_ok_and(|o| o.status.success())
    };
    places.into_iter().map(PathBuf::from).find(runs)
}

fn output(command: &mut Command) -> String {
    let out = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {said}");
    String::from_utf8(out.stdout).expect("text")
}

fn disassembled(objdump: &Path, object: &Path, target: &Target) -> Lines {
    let features = format!("--mattr={}", target.features());
    let text = output(
        Command::new(objdump)
            .args(["-d", "--no-show-raw-insn", &features])
            .arg(object),
    );
    let comment = if target.triple().starts_with("aarch64") {
        "//"
    } else {
        "#"
    };
    let mut function = (String::new(), 0);
    let mut lines = HashMap::new();
    for line in text.lines() {
        if let Some((address, name)) = line.strip_suffix(">:").and_then(|l| l.split_once(" <")) {
            let address = u32::from_str_radix(address, 16).expect("an address");
            function = (name.into(), address);
        } else if let Some((address, text)) = line.split_once(':') {
            let Ok(address) = u32::from_str_radix(address.trim(), 16) else {
                continue;
            };
            let text = text.split(comment).next().unwrap_or(text);
            // The target of a branch has a name in angle brackets.
            let text = text.split('<').next().unwrap_or(text).trim();
            lines.insert((function.0.clone(), address - function.1), text.to_string());
        }
    }
    lines
}

/// Blocks in loops.
fn loop_blocks(f: &MachineFunction) -> Vec<Range<usize>> {
    let graph = Graph::of(&f.instructions);
    let inside = (0..graph.blocks.len()).filter(|b| graph.innermost(*b).is_some());
    let ranges = inside.map(|b| graph.blocks[b].instructions.clone());
    ranges.filter(|r| LENGTHS.contains(&r.len())).collect()
}

/// The blocks in loops of a function, with their text.
fn samples_of(f: &MachineFunction, lines: &Lines) -> Vec<Sample> {
    let line = |i: &Instruction| lines[&(f.name.clone(), i.offset)].clone();
    let sample = |range: Range<usize>| {
        let own = &f.instructions[range.clone()];
        let without_address = |i: &Instruction| Instruction {
            address: None,
            ..i.clone()
        };
        let mut before = f.instructions[..range.start].iter().rev();
        Sample {
            name: format!("{} {:x}", f.name, own[0].offset),
            instructions: own.iter().map(without_address).collect(),
            lines: own.iter().map(line).collect(),
            setting: before.find(|i| i.opcode.starts_with("VSET")).map(line),
        }
    };
    loop_blocks(f).into_iter().map(sample).collect()
}

/// Different blocks of candidates of all operators.
fn samples(tools: &Tools, decoder: &Decoder, target: &Target) -> Vec<Sample> {
    let points = testkit::setting("TUNESMITH_POINTS", POINTS) as usize;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("code.o");
    let mut found: Vec<Sample> = Vec::new();
    for spec in OPERATORS {
        let first = found.len();
        for program in operator(spec, target) {
            for trace in &traces(&program, target, points) {
                let scheduled = schedule::replay(&program, trace).expect("a legal trace");
                let (_, object) = compiled(&scheduled, target);
                std::fs::write(&path, &object).expect("the object is written");
                let functions = decoder.functions(&object).expect("the object is read");
                if functions.iter().all(|f| loop_blocks(f).is_empty()) {
                    continue;
                }
                let lines = disassembled(&tools.objdump, &path, target);
                for sample in functions.iter().flat_map(|f| samples_of(f, &lines)) {
                    let own = &mut found[first..];
                    if !own.iter().any(|s| s.opcodes() == sample.opcodes()) {
                        found.push(Sample {
                            name: format!("{spec} {}", sample.name),
                            ..sample
                        });
                    }
                }
                if found.len() - first >= BLOCKS * (points + 1) {
                    found.truncate(first + BLOCKS * (points + 1));
                    break;
                }
            }
        }
    }
    found
}

/// Cycles of each sample by `llvm-mca`.
fn simulated(mca: &Path, target: &Target, cpu: &str, samples: &[Sample]) -> Vec<f64> {
    let mut text = String::new();
    for (n, s) in samples.iter().enumerate() {
        let setting = s.setting.as_deref().unwrap_or("");
        let lines = s.lines.join("\n");
        let begin = format!("# LLVM-MCA-BEGIN {n}");
        writeln!(text, "{setting}\n{begin}\n{lines}\n# LLVM-MCA-END {n}").expect("a string grows");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("blocks.s");
    std::fs::write(&path, text).expect("the blocks are written");
    let out = output(
        Command::new(mca)
            .arg(format!("--mtriple={}", target.triple()))
            .arg(format!("--mcpu={cpu}"))
            .arg(format!("--iterations={ITERATIONS}"))
            .args(["--instruction-info=false", "--resource-pressure=false"])
            .arg(&path),
    );
    let totals = out.lines().filter_map(|l| l.strip_prefix("Total Cycles:"));
    let totals = totals.map(|n| n.trim().parse::<f64>().expect("a number"));
    totals.map(|n| n / ITERATIONS as f64).collect()
}

/// Compares blocks of a core. At least a share of them must differ by no more than `TOLERANCE`, and all
/// by no more than `most`.
fn compare(isa: Isa, cpu: &str, share: f64, most: f64) {
    let (Some(mca), Some(objdump)) = (tool("llvm-mca"), tool("llvm-objdump")) else {
        return testkit::host::skipped("llvm-mca or llvm-objdump of LLVM 22 is missing");
    };
    let (tools, target) = (Tools { mca, objdump }, Target::generic(isa));
    let decoder = Decoder::with_model(&target, cpu).expect("a known core");
    let samples = samples(&tools, &decoder, &target);
    let theirs = simulated(&tools.mca, &target, cpu, &samples);
    assert_eq!(samples.len(), theirs.len());
    assert!(samples.len() >= FEWEST, "{} blocks", samples.len());
    let mut near = 0;
    for (s, theirs) in samples.iter().zip(theirs) {
        let ours = cycles(&s.instructions, decoder.model()).repeated;
        let line = format!("{cpu} {}: {ours:.2} and {theirs:.2} cycles", s.name);
        println!("{line}");
        let difference = (ours / theirs - 1.0).abs();
        assert!(difference <= most, "{line}");
        near += usize::from(difference <= TOLERANCE);
    }
    let enough = share * samples.len() as f64;
    assert!(near as f64 >= enough, "{near} of {} blocks", samples.len());
}

#[test]
fn cycles_on_znver3_are_those_of_a_simulator() {
    compare(Isa::X86Avx2, "znver3", 0.9, 0.2);
}

#[test]
fn cycles_on_skylake_are_those_of_a_simulator() {
    compare(Isa::X86Avx2, "skylake", 0.9, 0.2);
}

#[test]
fn cycles_on_neoverse_v2_are_those_of_a_simulator() {
    compare(Isa::AArch64Neon, "neoverse-v2", 0.9, 0.2);
}

#[test]
fn cycles_on_cortex_a510_are_those_of_a_simulator() {
    compare(Isa::AArch64Neon, "cortex-a510", 1.0, IN_ORDER);
}

#[test]
fn cycles_on_spacemit_x60_are_those_of_a_simulator() {
    compare(Isa::RiscV64Rvv, "spacemit-x60", 1.0, IN_ORDER);
}

/// Cycles of one instruction among many that write different registers: ours and the simulator's.
fn throughput(mc: &Path, mca: &Path, cpu: &str, instruction: &str) -> (f64, f64) {
    let copy = |n: usize| instruction.replace("{}", &n.to_string());
    let lines: Vec<String> = (0..COPIES).map(copy).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (text, object) = (folder.path().join("code.s"), folder.path().join("code.o"));
    let body = lines.join("\n");
    let function = format!(".type code,@function\ncode:\n{body}\n.size code, .-code\n");
    std::fs::write(&text, function).expect("the text is written");
    let target = Target::generic(Isa::X86Avx512);
    let mut assemble = Command::new(mc);
    assemble.args(["--filetype=obj", "--triple", target.triple(), "-o"]);
    output(assemble.arg(&object).arg(&text));
    let decoder = Decoder::with_model(&target, cpu).expect("a known core");
    let object = std::fs::read(&object).expect("an object");
    let functions = decoder.functions(&object).expect("the object is read");
    let instructions = functions[0].instructions.clone();
    assert_eq!(instructions.len(), COPIES);
    let ours = cycles(&instructions, decoder.model()).repeated;
    let sample = Sample {
        name: instruction.into(),
        instructions,
        lines,
        setting: None,
    };
    let theirs = simulated(mca, &target, cpu, &[sample])[0];
    (ours / COPIES as f64, theirs / COPIES as f64)
}

/// The simulator gives these server cores one unit, and measured are two: 24 cycles for 48
/// multiply-adds. So this is where we differ on purpose.
#[test]
fn server_cores_have_two_units_of_512_bits_and_client_cores_one() {
    let (Some(mca), Some(mc)) = (tool("llvm-mca"), tool("llvm-mc")) else {
        return testkit::host::skipped("llvm-mca or llvm-mc of LLVM 22 is missing");
    };
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.05;
    let mut differ = 0;
    for (cpu, servers) in [
        ("icelake-server", true),
        ("sapphirerapids", true),
        ("graniterapids", true),
        ("skylake-avx512", true),
        ("icelake-client", false),
        ("rocketlake", false),
    ] {
        for (instruction, two, one) in WIDE {
            let (ours, theirs) = throughput(&mc, &mca, cpu, instruction);
            let line = format!("{cpu} {instruction}: {ours:.2} and {theirs:.2} cycles");
            println!("{line}");
            assert!(near(ours, if servers { *two } else { *one }), "{line}");
            let same = near(ours, theirs);
            assert!(same || servers && ours < theirs, "{line}");
            differ += usize::from(!same);
        }
    }
    assert!(differ > 10, "{differ}");
}
