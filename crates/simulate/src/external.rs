//! A simulator of the user's: a command that runs an executable and says numbers.
//!
//! It prints lines of a name and a value, or leaves gem5's `stats.txt` in a folder. Names of [`Statistics`] become its
//! counts, and all other names are kept beside them.

use crate::emulator::{EmulatorError, output};
use crate::simulator::{Simulated, Simulator, SimulatorError, written};
use crate::statistics::Statistics;
use ir::Target;
use llvm::Compiler;
use runtime::{BuiltKernel, KernelTarget};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// In a command, the path of the executable.
pub(crate) const EXECUTABLE: &str = "{exe}";
/// In a command, an empty folder in which gem5 leaves what it counted.
pub(crate) const FOLDER: &str = "{out}";
/// What gem5 leaves there.
pub(crate) const STATS: &str = "stats.txt";

const NOTHING: &str = "define i32 @kernel(ptr %context, ptr %arguments, ptr %workspace) {
  ret i32 0
}
";

/// What gem5 calls the counts of [`Statistics`]: the names of versions 23 and later first, then those of 20 to 22. Of the names that
/// a file has, the first one counts, so a processor's own instructions come before those of the whole system. gem5 counts the
/// replacements of a cache without telling reads from writes, so these keep their names.
const GEM5: [(&str, &[&str]); 16] = [
    (
        "instructions",
        &[
            "system.cpu.commitStats0.numInsts",
            "system.cpu.exec_context.thread_0.numInsts",
            "system.cpu.committedInsts",
            "simInsts",
            "sim_insts",
        ],
    ),
    (
        "loads",
        &[
            "system.cpu.commitStats0.numLoadInsts",
            "system.cpu.exec_context.thread_0.numLoadInsts",
            "system.cpu.num_load_insts",
            "system.cpu.commit.loads",
        ],
    ),
    (
        "stores",
        &[
            "system.cpu.commitStats0.numStoreInsts",
            "system.cpu.exec_context.thread_0.numStoreInsts",
            "system.cpu.num_store_insts",
        ],
    ),
    (
        "branches",
        &[
            "system.cpu.fetchStats0.numBranches",
            "system.cpu.exec_context.thread_0.numBranches",
            "system.cpu.Branches",
            "system.cpu.commit.branches",
        ],
    ),
    ("l1d.read.hits", &["system.cpu.dcache.ReadReq.hits::total"]),
    (
        "l1d.read.misses",
        &["system.cpu.dcache.ReadReq.misses::total"],
    ),
    (
        "l1d.write.hits",
        &["system.cpu.dcache.WriteReq.hits::total"],
    ),
    (
        "l1d.write.misses",
        &["system.cpu.dcache.WriteReq.misses::total"],
    ),
    ("l1i.read.hits", &["system.cpu.icache.ReadReq.hits::total"]),
    (
        "l1i.read.misses",
        &["system.cpu.icache.ReadReq.misses::total"],
    ),
    ("l2.read.hits", &["system.l2.ReadSharedReq.hits::total"]),
    ("l2.read.misses", &["system.l2.ReadSharedReq.misses::total"]),
    ("l2.write.hits", &["system.l2.ReadExReq.hits::total"]),
    ("l2.write.misses", &["system.l2.ReadExReq.misses::total"]),
    ("l3.read.hits", &["system.l3.ReadSharedReq.hits::total"]),
    ("l3.read.misses", &["system.l3.ReadSharedReq.misses::total"]),
];

/// A name of gem5 as [`GEM5`] has it: a kernel runs on the first of several processors, and versions before 21.1 write
/// `ReadReq_hits` where later ones write `ReadReq.hits`.
fn modern(name: &str) -> String {
    let name = name.replacen("system.cpu0.", "system.cpu.", 1);
    name.replacen("Req_hits::", "Req.hits::", 1)
        .replacen("Req_misses::", "Req.misses::", 1)
}

/// A command, and the time that it may take for one executable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    command: String,
    limit: Duration,
}

impl External {
    /// Words of the command are separated by blanks; no shell reads them.
    ///
    /// # Errors
    /// If the command does not say where the executable goes.
    pub fn new(command: &str, limit: Duration) -> Result<External, SimulatorError> {
        if !command.contains(EXECUTABLE) {
            return Err(SimulatorError::NoPlace(command.into()));
        }
        Ok(External {
            command: command.into(),
            limit,
        })
    }

    pub fn command(&self) -> &str {
        &self.command
    }

    /// Time that the command may take.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    fn count_kernel(
        &self,
        target: &Target,
        kernel: &BuiltKernel,
    ) -> Result<Statistics, SimulatorError> {
        let folder = TempDir::new()?;
        let executable = written(folder.path(), target, kernel)?;
        let out = folder.path().join("out");
        fs::create_dir(&out)?;
        self.run(&executable, &out)
    }

    /// What the command counts of a kernel that does nothing: whether it works, and which numbers it tells.
    ///
    /// # Errors
    /// If there is no executable of the target, or the command fails or tells no numbers.
    pub fn try_out(&self, target: &Target) -> Result<Statistics, SimulatorError> {
        let object = Compiler::new(target)?.compile_text("nothing", NOTHING)?;
        let by_hand = BuiltKernel::by_hand(object, vec![]);
        let nothing = BuiltKernel {
            target: KernelTarget {
                triple: target.triple().into(),
                ..KernelTarget::generic()
            },
            ..by_hand
        };
        self.count_kernel(target, &nothing)
    }

    fn run(&self, executable: &Path, out: &Path) -> Result<Statistics, SimulatorError> {
        let [executable, out_text] = [executable, out].map(|p| p.display().to_string());
        let word = |w: &str| {
            w.replace(EXECUTABLE, &executable)
                .replace(FOLDER, &out_text)
        };
        let mut words = self.command.split_whitespace().map(word);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        let printed = output(command, self.limit).map_err(|e| match e {
            EmulatorError::Missing { program, error } => SimulatorError::Missing { program, error },
            EmulatorError::TimedOut(limit) => SimulatorError::TimedOut(limit),
            EmulatorError::Failed { status, stderr } => SimulatorError::Failed { status, stderr },
            other => SimulatorError::Ran(other),
        })?;
        let (from, text) = match self.command.contains(FOLDER) {
            true => {
                let stats = fs::read_to_string(out.join(STATS));
                (STATS, stats.map_err(SimulatorError::NoStats)?)
            }
            false => ("its output", String::from_utf8_lossy(&printed).into_owned()),
        };
        let numbers = numbers(&text);
        if numbers.is_empty() {
            let text = shown(&text);
            return Err(SimulatorError::NoNumbers { from, text });
        }
        Ok(Statistics::of_named(&self.command, numbers))
    }
}

impl Simulator for External {
    fn count(&self, kernel: Simulated<'_>) -> Result<Statistics, SimulatorError> {
        self.count_kernel(kernel.target, kernel.built)
    }
}

/// The begin of what a simulator wrote, for a screen.
fn shown(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().take(200).map(visible).collect()
}

/// What a simulator that failed said.
pub(crate) fn said(stderr: &str) -> String {
    match shown(stderr).as_str() {
        "" => "and wrote no error".into(),
        said => format!("and wrote: {said}"),
    }
}

/// The lines of a name and a number. Of gem5's lines the first dump counts, what follows a `#` is for people, and the
/// counts have the names of [`Statistics`]. What is not finite is no number.
fn numbers(text: &str) -> Vec<(String, f64)> {
    let first = text.split("End Simulation Statistics").next();
    let lines = first.unwrap_or_default().lines();
    let mut all: Vec<(String, f64)> = lines.filter_map(number).collect();
    let modern: Vec<String> = all.iter().map(|(name, _)| modern(name)).collect();
    for (own, names) in GEM5 {
        let mut found = names.iter().map(|n| modern.iter().position(|m| m == n));
        if let Some(at) = found.find_map(|at| at) {
            all[at].0 = own.into();
        }
    }
    all
}

fn number(line: &str) -> Option<(String, f64)> {
    let mut words = line.split('#').next()?.split_whitespace();
    let (name, value) = (words.next()?, words.next()?.parse().ok()?);
    let value = Some(value).filter(|v: &f64| v.is_finite())?;
    words.next().is_none().then(|| (name.to_string(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(command: &str, limit: Duration) -> Result<Statistics, SimulatorError> {
        let folder = TempDir::new().unwrap();
        let external = External::new(command, limit)?;
        external.run(Path::new("kernel"), folder.path())
    }

    const SECONDS: Duration = Duration::from_secs(20);

    #[test]
    fn lines_of_names_and_numbers_are_read() {
        let found = ran(
            "printf instructions\\t12\\nenergy\\t3.5\\nnote\\tnone\\nratio\\tnan\\n%s {exe}",
            SECONDS,
        );
        let found = found.unwrap();
        assert_eq!(found.instructions, 12.0);
        assert_eq!(found.others["energy"], 3.5);
        assert_eq!(found.others.len(), 1);
        assert!(found.named().contains(&("energy".into(), 3.5)));
    }

    #[test]
    fn what_goes_wrong_is_said() {
        let said = |command: &str, limit| ran(command, limit).unwrap_err().to_string();
        assert!(said("true", SECONDS).contains("{exe}"));
        assert!(
            said("no-such-simulator {exe}", SECONDS).contains("`no-such-simulator` does not start")
        );
        assert!(said("echo nothing {exe}", SECONDS).contains("nothing kernel"));
        assert!(said("ls --no-such-option {exe}", SECONDS).contains("no-such-option"));
        let silent = said("false {exe}", SECONDS);
        assert!(
            silent.contains("exit status: 1) and wrote no error"),
            "{silent}"
        );
        let noise = said("printf \\033[2J\\007 {exe}", SECONDS);
        assert!(
            !noise.contains(char::is_control) && noise.contains("[2J"),
            "{noise}"
        );
        assert!(said("tail -f /dev/null {exe}", Duration::from_millis(50)).contains("0.05 s"));
        assert!(said("true {out} {exe}", SECONDS).contains("no stats.txt"));
    }

    #[test]
    fn statistics_of_gem5_are_read() {
        let folder = TempDir::new().unwrap();
        let stats = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gem5-stats.txt");
        let kernel = folder.path().join("kernel");
        fs::write(&kernel, "").unwrap();
        let out = folder.path().join("out");
        fs::create_dir(&out).unwrap();
        // As gem5 does, it leaves a file there.
        fs::copy(stats, out.join(STATS)).unwrap();
        let gem5 = External::new("ls {exe} {out}", SECONDS).unwrap();
        let found = gem5.run(&kernel, &out).unwrap();
        assert_eq!((found.instructions, found.loads), (81234.0, 20111.0));
        assert_eq!((found.stores, found.branches), (5120.0, 4099.0));
        assert_eq!((found.l1d.read.hits, found.l1d.read.misses), (19800, 311));
        assert_eq!((found.l1d.write.hits, found.l1d.write.misses), (5000, 120));
        assert_eq!(
            (found.l1i.read.misses, found.shared[0].read.misses),
            (42, 400)
        );
        assert_eq!(found.others["system.cpu.dcache.replacements"], 290.0);
        assert_eq!(found.others["simSeconds"], 0.000051);
    }

    #[test]
    fn names_of_older_versions_of_gem5_are_read() {
        let of = |text| Statistics::of_named("gem5", numbers(text));
        // Version 20 with `TimingSimpleCPU`.
        let found = of("---------- Begin Simulation Statistics ----------
sim_insts                         905                # Number of instructions simulated
system.cpu.numCycles            50500                # number of cpu cycles simulated
system.cpu.committedInsts         900                # Number of instructions committed
system.cpu.num_load_insts         300                # Number of load instructions
system.cpu.num_store_insts        100                # Number of store instructions
system.cpu.Branches                50                # Number of branches fetched
system.cpu.op_class::MemRead      300     33.33%     33.33% # Class of executed instruction
system.cpu.dcache.ReadReq_hits::cpu.data     290     # number of ReadReq hits
system.cpu.dcache.ReadReq_hits::total        290     # number of ReadReq hits
system.cpu.dcache.ReadReq_misses::total       10     # number of ReadReq misses
system.cpu.dcache.WriteReq_hits::total        95     # number of WriteReq hits
system.cpu.dcache.WriteReq_misses::total       5     # number of WriteReq misses
system.cpu.dcache.overall_hits::total        385     # number of overall hits
system.cpu.icache.ReadReq_hits::total        880     # number of ReadReq hits
system.cpu.icache.ReadReq_misses::total       20     # number of ReadReq misses
system.l2.ReadExReq_misses::total              4     # number of ReadExReq misses
system.l2.ReadSharedReq_hits::total            1     # number of ReadSharedReq hits
system.l2.ReadSharedReq_misses::total          9     # number of ReadSharedReq misses
");
        assert_eq!((found.instructions, found.loads), (900.0, 300.0));
        assert_eq!((found.stores, found.branches), (100.0, 50.0));
        assert_eq!((found.l1d.read.hits, found.l1d.read.misses), (290, 10));
        assert_eq!((found.l1d.write.hits, found.l1d.write.misses), (95, 5));
        assert_eq!((found.l1i.read.hits, found.l1i.read.misses), (880, 20));
        let l2 = found.shared[0];
        assert_eq!((l2.read.hits, l2.read.misses, l2.write.misses), (1, 9, 4));
        assert_eq!(found.others["sim_insts"], 905.0);
        assert_eq!(found.others["system.cpu.numCycles"], 50500.0);
        assert_eq!(found.others["system.cpu.dcache.overall_hits::total"], 385.0);
        // Version 22 with two processors, of which the second one does nothing.
        let found = of(
            "simInsts                                          77   # Number of instructions simulated (Count)
system.cpu0.exec_context.thread_0.numInsts        70   # Number of instructions committed (Count)
system.cpu0.exec_context.thread_0.numLoadInsts    20   # Number of load instructions (Count)
system.cpu0.exec_context.thread_0.numStoreInsts   10   # Number of store instructions (Count)
system.cpu0.exec_context.thread_0.numBranches      5   # Number of branches fetched (Count)
system.cpu0.dcache.ReadReq.misses::total           3   # number of ReadReq misses (Count)
system.cpu1.exec_context.thread_0.numInsts         7   # Number of instructions committed (Count)
system.cpu1.dcache.ReadReq.misses::total           2   # number of ReadReq misses (Count)
",
        );
        assert_eq!((found.instructions, found.loads), (70.0, 20.0));
        assert_eq!((found.stores, found.branches), (10.0, 5.0));
        assert_eq!(found.l1d.read.misses, 3);
        // Nothing but the whole system's.
        assert_eq!(
            of("sim_insts 12 # Number of instructions simulated").instructions,
            12.0
        );
        // `O3CPU` counts branches and loads where it commits them.
        let found = of("system.cpu.commit.loads 6\nsystem.cpu.commit.branches 4\n");
        assert_eq!((found.loads, found.branches), (6.0, 4.0));
    }
}
