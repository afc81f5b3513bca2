//! The own simulator beside the plugin of QEMU, on kernels drawn from `bench/operators.toml`: how long each takes, and how
//! far their counts differ.
//!
//! ```text
//! cargo build --release -p simulate --examples
//! cargo run --release -p simulate --example beside_qemu -- [KERNELS] [TARGET] [SEED] [WORD]
//! ```
//!
//! A kernel is the default of a random sketch of the largest task of a random operator. *Ours* is what reading the machine code
//! and walking the addresses take, without sampling; *QEMU* is what the executable of the same kernel takes under the plugin.
//! Neither has the time of compiling. Loads are not compared where they are masked, as QEMU does not tell of a load of no lane. With `WORD`, only those of the drawn kernels run whose name has it.

#[allow(dead_code, reason = "an example needs a part of what tests use")]
#[path = "../../analysis/tests/support/mod.rs"]
mod programs;
#[path = "../tests/support/mod.rs"]
mod support;

use analysis::{Entry, analyse};
use ir::{Isa, Program, Target};
use llvm::Decoder;
use programs::{compiled, traces};
use rand::seq::{IndexedRandom, SliceRandom};
use rand_pcg::Pcg64Mcg;
use simulate::{Emulator, EmulatorError, Kernel, LevelCounts, Runner, Statistics, cpus, simulate};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Seconds that QEMU may take for a kernel, or so many times what ours took, if that is more. A kernel that it does not
/// end counts as this long.
const LIMIT: (f64, f64) = (20.0, 10.5);

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let kernels: usize = words.next().map_or(Ok(40), |w| w.parse())?;
    let name = words.next().unwrap_or_else(|| "x86-avx2".into());
    let mut all = Isa::ALL.into_iter().map(Target::generic);
    let target = all.find(|t| t.name() == name);
    let target = target.ok_or_else(|| format!("there is no target `{name}`"))?;
    let seed: u64 = words.next().map_or(Ok(1), |w| w.parse())?;
    let word = words.next().unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut operators = operators(&root.join("bench/operators.toml"))?;
    let mut random = Pcg64Mcg::new(u128::from(seed));
    operators.shuffle(&mut random);
    let emulator = Emulator::find(&target)?;
    let plugin = plugin()?;
    let decoder = Decoder::new(&target)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("executable");
    println!(
        "| kernel | ours, s | QEMU, s | QEMU over ours | instructions | loads | stores | first level | last level |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let (mut rows, mut by_data) = (Vec::new(), 0);
    for spec in operators.iter().take(kernels) {
        let program = main_task(spec, &target)?;
        let all = traces(&program, &target, 0);
        let trace = all.choose(&mut random).ok_or("a task without candidates")?;
        if !spec.contains(&word) {
            continue;
        }
        let scheduled = schedule::replay(&program, trace)?;
        match beside(&scheduled, &target, &decoder, (&emulator, &plugin, &file))? {
            Some(row) => {
                println!("| `{spec}` | {row} |");
                rows.push(row);
            }
            None => {
                by_data += 1;
                println!("| `{spec}` | data decide its addresses | | | | | | | |");
            }
        }
    }
    summary(&rows, by_data);
    Ok(())
}

fn summary(rows: &[Row], by_data: usize) {
    let ratios: Vec<f64> = rows.iter().map(|r| r.theirs_s / r.ours_s).collect();
    let mean = ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64;
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    println!(
        "\nQEMU over ours: {:.1} in the geometric mean, {least:.1} at least; 10 and more for {} of {} kernels. Data decide the addresses of {by_data} more.",
        mean.exp(),
        ratios.iter().filter(|r| **r >= 10.0).count(),
        rows.len(),
    );
    for (n, (what, goal)) in COMPARED.into_iter().enumerate() {
        let all: Vec<f64> = rows.iter().filter_map(|r| r.differences()[n]).collect();
        let within = all.iter().filter(|d| d.abs() <= goal).count();
        println!("{what}: {within} of {} within {goal}%", all.len());
    }
}

/// All operators of the file, whose rows are `name = "op:..."`.
fn operators(file: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let text = std::fs::read_to_string(file)?;
    let quoted = text.lines().filter_map(|l| l.split_once(" = \""));
    let own = quoted.map(|(_, value)| value.trim_end().trim_end_matches('"'));
    Ok(own
        .filter(|v| v.starts_with("op:"))
        .map(String::from)
        .collect())
}

/// What `cargo build --examples` made beside this program.
fn plugin() -> Result<PathBuf, Box<dyn Error>> {
    let plugin = std::env::current_exe()?.with_file_name("libqemu_counts.so");
    match plugin.exists() {
        true => Ok(plugin),
        false => Err(format!(
            "{} is missing: build all examples of the crate",
            plugin.display()
        )
        .into()),
    }
}

/// The task of an operator that has most work.
fn main_task(spec: &str, target: &Target) -> Result<Program, Box<dyn Error>> {
    let model = graph::builtin::builtin(spec, 0)?;
    let options = plan::LayoutPolicy::of_builtin(spec)?;
    let tasks = plan::plan(&model, target, &options.into())?.tasks;
    let most = tasks.into_iter().max_by(|a, b| a.flops.total_cmp(&b.flops));
    Ok(most.ok_or("an operator without tasks")?.program)
}

/// One kernel in both simulators.
struct Row {
    ours_s: f64,
    theirs_s: f64,
    ours: Statistics,
    /// None if QEMU did not end.
    theirs: Option<Statistics>,
    /// Whether loads are masked.
    masked: bool,
}

/// What is compared, and the goals in percent.
const COMPARED: [(&str, f64); 5] = [
    ("instructions", 0.1),
    ("loads", 0.1),
    ("stores", 0.1),
    ("first level", 3.0),
    ("last level", 1.0),
];

impl Row {
    /// By how many percent ours differ; none where QEMU did not count.
    fn differences(&self) -> [Option<f64>; 5] {
        let misses = |l: &LevelCounts| (l.read.misses + l.write.misses) as f64;
        let last = |s: &Statistics| s.shared.last().map_or(0.0, misses);
        let of = |s: &Statistics| [s.instructions, s.loads, s.stores, misses(&s.l1d), last(s)];
        let ours = of(&self.ours);
        let theirs = self.theirs.as_ref().map(of);
        let at = |n: usize| {
            let theirs = theirs?[n];
            (n != 1 || !self.masked).then(|| 100.0 * (ours[n] - theirs) / theirs.max(1.0))
        };
        [0, 1, 2, 3, 4].map(at)
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ours, theirs) = (self.ours_s, self.theirs_s);
        let more = if self.theirs.is_none() {
            "more than "
        } else {
            ""
        };
        write!(
            f,
            "{ours:.4} | {more}{theirs:.3} | {more}{:.1}",
            theirs / ours
        )?;
        for difference in self.differences() {
            match difference {
                Some(percent) => write!(f, " | {percent:+.2}%")?,
                None => write!(f, " | -")?,
            }
        }
        Ok(())
    }
}

/// None if data decide which addresses the kernel accesses.
fn beside(
    scheduled: &Program,
    target: &Target,
    decoder: &Decoder,
    (emulator, plugin, file): (&Emulator, &Path, &Path),
) -> Result<Option<Row>, Box<dyn Error>> {
    let caches = &cpus()[0].caches;
    let (code, object) = compiled(scheduled, target);
    let begun = Instant::now();
    let functions = decoder.functions(&object)?;
    let entry = Entry {
        name: "kernel",
        threads: target.threads(),
    };
    let analysis = analyse(&code, &functions, decoder.model(), entry);
    let kernel = Kernel {
        code: &code,
        functions: &functions,
        analysis: &analysis,
    };
    let Ok(ours) = simulate(kernel, caches, None) else {
        return Ok(None);
    };
    let ours_s = begun.elapsed().as_secs_f64();
    let mut instructions = functions.iter().flat_map(|f| &f.instructions);
    let masked = instructions.any(|i| i.opcode.contains("MASKMOV"));
    let executable = Runner::new(target)?.executable(&support::kernel(&code, target, object), 1)?;
    support::write(file, &executable);
    let begun = Instant::now();
    let limit = Duration::from_secs_f64(LIMIT.0.max(LIMIT.1 * ours_s));
    let theirs = match emulator.counts(plugin, file, caches, limit) {
        Ok(theirs) => Some(theirs),
        Err(EmulatorError::TimedOut(_)) => None,
        Err(other) => return Err(other.into()),
    };
    Ok(Some(Row {
        ours_s,
        theirs_s: begun.elapsed().as_secs_f64(),
        ours,
        theirs,
        masked,
    }))
}
