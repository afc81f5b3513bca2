//! Candidates for a board that this program does not run on: executables with a script that times them there, and what
//! the times say. The script runs over ssh, or whoever has the board runs it.

use super::model_args::StoreArgs;
use super::parse::{parse_count, parse_share};
use super::signals;
use super::ssh::{Board, BoardArgs};
use super::table::Table;
use ir::Target;
use plan::Plan;
use serde::{Deserialize, Serialize};
use simulate::Runner;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::Store;
use study::MeasuredPoint;
use tune::board::{BoardTimes, ExportedTasks, store_times};
use tune::chooser::{Scored, TaskScores};
use tune::compile::Builders;
use tune::{Error, Host, Result, Stop};

/// Calls of a kernel that one start of its executable times.
pub const CALLS: u32 = 10;

/// What people are told after a signal.
pub const STOPPING: &str = "stopping: what was measured is kept; a second Ctrl-C ends the program at once and keeps nothing";

const CANDIDATES: &str = "candidates.jsonl";
const TIMES: &str = "times.txt";
/// What the candidates are of, for the store.
const TASKS: &str = "tasks.json";

/// The machine of times that somebody brought, unless it gets a name.
const SOME_BOARD: &str = "board";

/// Starts of each executable of a folder on a board.
const ROUNDS: u32 = 3;

pub const SCRIPT: &str = r#"#!/bin/sh
# Times the candidates on this machine: ./time.sh [ROUNDS [PAUSE [LIMIT]]]
# Each round starts all of them, and each start calls its kernel several times. PAUSE seconds follow each
# start, and a start may take LIMIT seconds. Each line of times.txt has a candidate and the nanoseconds of
# one call.
cd "$(dirname "$0")" || exit 1
rounds=${1:-3}
pause=${2:-0}
limit=${3:+timeout $3}
: >times.txt
while [ "$rounds" -gt 0 ]; do
    for candidate in task*-*; do
        [ -x "$candidate" ] || continue
        if times=$($limit "./$candidate" time); then
            for ns in $times; do
                echo "$candidate $ns" >>times.txt
            done
        else
            echo "$candidate failed with status $?" >&2
        fi
        sleep "$pause"
    done
    rounds=$((rounds - 1))
done
"#;

/// How many candidates of a task are listed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Top {
    Count(usize),
    /// Of those that have a score.
    Share(f64),
}

impl Top {
    /// At least one of so many.
    pub fn of(self, candidates: usize) -> usize {
        match self {
            Top::Count(n) => n,
            Top::Share(share) => ((share * candidates as f64).ceil() as usize).max(1),
        }
    }

    /// A number, or a share such as `3%`.
    pub fn parse(text: &str) -> std::result::Result<Top, String> {
        match text.ends_with('%') {
            true => parse_share(text).map(Top::Share),
            false => parse_count(text).map(Top::Count),
        }
        .map_err(|e| format!("{e}, or a share such as 3%"))
    }
}

/// What an executable is of.
#[derive(Debug, Serialize, Deserialize)]
struct Exported {
    executable: String,
    task: String,
    algorithm: String,
    score: f64,
    trace: String,
    #[serde(default)]
    code_hash: Option<String>,
}

/// A folder of executables.
pub struct Bundle<'a> {
    folder: &'a Path,
    target: &'a Target,
    runner: Runner,
    tasks: ExportedTasks,
    exported: Vec<Exported>,
}

fn fail(path: &Path) -> impl Fn(io::Error) -> Error {
    move |e| {
        Error::new(format!("{}: {e}", path.display()))
            .help("give a folder of `tune --export-to` that you may read and write")
    }
}

/// No executable can be made for the target.
fn no_runner(e: impl Display) -> Error {
    Error::new(e.to_string()).help("choose another --target")
}

impl<'a> Bundle<'a> {
    /// # Errors
    /// If kernels would have several threads, or the folder cannot be made.
    pub fn new(folder: &'a Path, target: &'a Target) -> Result<Bundle<'a>> {
        if target.threads() != 1 {
            return Err(
                Error::new("--export-to writes executables of one thread").help("give --threads 1")
            );
        }
        fs::create_dir_all(folder).map_err(fail(folder))?;
        let runner = Runner::new(target).map_err(no_runner)?;
        Ok(Bundle {
            folder,
            target,
            runner,
            tasks: ExportedTasks::of(target),
            exported: vec![],
        })
    }

    /// Adds the first candidates of each task that are predicted to be the fastest.
    ///
    /// # Errors
    /// If one can no longer be built, or a file cannot be written.
    pub fn add(&mut self, plan: &Plan, scores: &[TaskScores], top: Top, host: &Host) -> Result<()> {
        for (task, scores) in plan.tasks.iter().zip(scores) {
            let chosen: Vec<&Scored> = scores.best.iter().take(top.of(scores.best.len())).collect();
            let tasks = vec![task.clone(); chosen.len()];
            let candidates: Vec<_> = chosen.iter().map(|s| s.candidate.clone()).collect();
            let mut builders = Builders::new(&host.workers, host.machine.cpus)?;
            let kernels = builders.build_all(&tasks, &candidates, self.target)?;
            for (rank, (scored, kernel)) in chosen.iter().zip(kernels).enumerate() {
                let bytes = self.runner.executable(&kernel, CALLS);
                let bytes = bytes.map_err(|e| {
                    Error::new(format!("{}: {e}", task.title()))
                        .help("tune this operator alone, or leave --export-to out")
                })?;
                let executable = format!("task{}-{}", self.tasks.tasks.len(), rank + 1);
                write(self.folder, &executable, &bytes)?;
                self.exported.push(Exported {
                    executable,
                    task: task.title(),
                    algorithm: scored.candidate.algorithm.clone(),
                    score: scored.score,
                    trace: schedule::print(&scored.candidate.trace),
                    code_hash: Some(format!("{:016x}", kernel.code_hash())),
                });
            }
            self.tasks.add(task);
        }
        Ok(())
    }

    /// Writes the script, the list of candidates, and what they are of.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish(self) -> Result<()> {
        write(self.folder, "time.sh", SCRIPT.as_bytes())?;
        let path = self.folder.join(TASKS);
        let tasks = serde_json::to_string(&self.tasks).expect("plain data");
        fs::write(&path, tasks).map_err(fail(&path))?;
        let path = self.folder.join(CANDIDATES);
        let mut file = fs::File::create(&path).map_err(fail(&path))?;
        for e in &self.exported {
            let line = serde_json::to_string(e).expect("plain data");
            writeln!(file, "{line}").map_err(fail(&path))?;
        }
        Ok(())
    }
}

/// Read the times of candidates that a board measured, name the fastest of each task, and store them for `compile --machine`
#[derive(clap::Args)]
pub struct ImportArgs {
    /// The folder of `tune --export-to`. Without --board, it has the file times.txt that its script wrote on the board
    folder: PathBuf,
    #[command(flatten)]
    board: BoardArgs,
    #[command(flatten)]
    store: StoreArgs,
    /// The board's name in the store [default: that of --board, or else board]
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Candidates of each task that are listed, the fastest first
    #[arg(long, default_value_t = 5, value_parser = parse_count::<usize>)]
    top: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A candidate and its median time.
#[derive(Debug, Serialize)]
struct Timed<'e> {
    #[serde(flatten)]
    of: &'e Exported,
    calls: usize,
    median_ns: u64,
    #[serde(skip)]
    ns: Vec<u64>,
}

/// Where times are stored, and how they are used.
#[derive(Debug, Serialize)]
struct Stored {
    store: String,
    machine: String,
    records: usize,
    /// The command that compiles with them.
    compile: String,
}

pub fn import(a: &ImportArgs) -> Result<ExitCode> {
    let read = |name: &str| {
        let path = a.folder.join(name);
        fs::read_to_string(&path).map_err(fail(&path))
    };
    let exported = exported(&read(CANDIDATES)?)?;
    let of = exported_tasks(&a.folder)?;
    // A store that cannot be written is known before a board works for it.
    let store = of.as_ref().map(|_| a.store.write()).transpose()?;
    let stop = Stop::default();
    let watched = signals::watch(stop.clone(), || eprintln!("{STOPPING}"))?;
    if let Some(board) = a.board.connect(&stop)? {
        time_all(&board, &a.folder, &exported)?;
    }
    let lines = read(TIMES).map_err(|e| {
        e.help("run time.sh of the folder on the board and copy the times.txt that it writes into the folder, or give --board HOST")
    })?;
    let mut tasks = by_task(&exported, times(&lines)?);
    if tasks.is_empty() {
        return Err(
            Error::new(format!("{TIMES} has no times of the candidates"))
                .help("run time.sh on the board, and copy what it wrote"),
        );
    }
    let stored = match (&store, &of) {
        (Some(store), Some(of)) => Some(keep(a, store, of, tasks.values().flatten())?),
        _ => None,
    };
    for timed in tasks.values_mut() {
        timed.sort_by_key(|t| t.median_ns);
        timed.truncate(a.top);
    }
    match a.json {
        true => super::print_json(&serde_json::json!({ "tasks": tasks, "stored": stored }))?,
        false => print(tasks.values(), stored.as_ref())?,
    }
    Ok(watched.exit_code())
}

/// The candidates that have times, by the tasks in the names of their executables.
fn by_task<'e>(
    exported: &'e [Exported],
    mut times: BTreeMap<&str, Vec<u64>>,
) -> BTreeMap<&'e str, Vec<Timed<'e>>> {
    let mut tasks: BTreeMap<&str, Vec<Timed<'_>>> = BTreeMap::new();
    for of in exported {
        if let Some(ns) = times.remove(of.executable.as_str()) {
            let task = of.executable.split('-').next().unwrap_or_default();
            tasks.entry(task).or_default().push(Timed {
                of,
                calls: ns.len(),
                median_ns: median(ns.clone()),
                ns,
            });
        }
    }
    tasks
}

/// What the candidates of a folder are of; none if an earlier program wrote the folder.
fn exported_tasks(folder: &Path) -> Result<Option<ExportedTasks>> {
    let path = folder.join(TASKS);
    let text = match fs::read_to_string(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(fail(&path))?,
    };
    serde_json::from_str(&text).map(Some).map_err(|e| {
        Error::new(format!("{} is damaged: {e}", path.display()))
            .help("export the candidates again with `tune --export-to`")
    })
}

/// Stores what a board measured.
fn keep<'t>(
    a: &ImportArgs,
    store: &Store,
    of: &ExportedTasks,
    timed: impl Iterator<Item = &'t Timed<'t>>,
) -> Result<Stored> {
    let named = a.machine.as_deref().or(a.board.host());
    let machine = named.unwrap_or(SOME_BOARD);
    let times: Vec<BoardTimes<'_>> = timed
        .filter_map(|t| {
            let task = t.of.executable.strip_prefix("task")?.split('-').next()?;
            Some(BoardTimes {
                task: task.parse().ok()?,
                algorithm: &t.of.algorithm,
                trace: &t.of.trace,
                code_hash: t.of.code_hash.as_deref(),
                ns: &t.ns,
            })
        })
        .collect();
    let records = store_times(store, machine, of, &times)?;
    let mut compile = "tunesmith compile MODEL".to_string();
    for (flag, fact) in [("--target", "isa"), ("--tune-cpu", "tune_cpu")] {
        if let Some(value) = of.fact(fact) {
            compile += &format!(" {flag} {value}");
        }
    }
    compile += &format!(" --threads {} --machine {machine}", of.target.threads);
    if let Some(path) = &a.store.store {
        compile += &format!(" --store {}", path.display());
    }
    Ok(Stored {
        store: store.path().into(),
        machine: machine.into(),
        records,
        compile,
    })
}

/// Times all executables of a folder on a board, and writes their times there if there are any.
fn time_all(board: &Board<'_>, folder: &Path, exported: &[Exported]) -> Result<()> {
    let names: Vec<String> = exported.iter().map(|e| e.executable.clone()).collect();
    let times = board.times(folder, &names, ROUNDS)?;
    times.complain();
    if times.ns.is_empty() {
        return Err(Error::new("the board timed none of the candidates").help(
            "give it more time, see why executables fail there, or choose another --target",
        ));
    }
    let path = folder.join(TIMES);
    let mut file = fs::File::create(&path).map_err(fail(&path))?;
    for (name, ns) in times
        .ns
        .iter()
        .flat_map(|(n, all)| all.iter().map(move |ns| (n, ns)))
    {
        writeln!(file, "{name} {ns}").map_err(fail(&path))?;
    }
    Ok(())
}

/// Times samples on a board; those whose executables cannot be made or fail there have no time.
///
/// # Errors
/// If the board is lost, or runs other code.
pub fn time_points(board: &Board<'_>, target: &Target, points: &mut [MeasuredPoint]) -> Result<()> {
    let folder = tempfile::tempdir().map_err(|e| {
        Error::new(format!("no folder for executables can be made: {e}"))
            .help("give one that has room in the variable TMPDIR")
    })?;
    let runner = Runner::new(target).map_err(no_runner)?;
    let mut names = Vec::new();
    for (i, p) in points.iter().enumerate() {
        if let Ok(bytes) = runner.executable(&p.kernel, CALLS) {
            let name = format!("task0-{i}");
            write(folder.path(), &name, &bytes)?;
            names.push(name);
        }
    }
    let times = board.times(folder.path(), &names, 1)?;
    times.complain();
    for (i, p) in points.iter_mut().enumerate() {
        p.ns = times
            .ns
            .get(&format!("task0-{i}"))
            .map(|ns| median(ns.clone()));
    }
    Ok(())
}

fn median(mut ns: Vec<u64>) -> u64 {
    ns.sort_unstable();
    ns[ns.len() / 2]
}

/// Writes a file that may be run.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, bytes).map_err(fail(&path))?;
    let all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&path, all).map_err(fail(&path))
}

fn exported(lines: &str) -> Result<Vec<Exported>> {
    let read = |line: &str| {
        serde_json::from_str(line).map_err(|e| {
            Error::new(format!("{CANDIDATES} is damaged: {e}"))
                .help("export the candidates again with `tune --export-to`")
        })
    };
    lines.lines().map(read).collect()
}

/// The nanoseconds of each executable's calls.
fn times(lines: &str) -> Result<BTreeMap<&str, Vec<u64>>> {
    let mut times: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in lines.lines() {
        let parts = line
            .split_once(' ')
            .and_then(|(name, ns)| Some((name, ns.parse().ok()?)));
        let (name, ns) = parts.ok_or_else(|| {
            Error::new(format!(
                "{TIMES} has the line `{line}`, which is no candidate and its nanoseconds"
            ))
            .help("remove the line, or run time.sh on the board again")
        })?;
        times.entry(name).or_default().push(ns);
    }
    Ok(times)
}

fn print<'t>(
    tasks: impl Iterator<Item = &'t Vec<Timed<'t>>>,
    stored: Option<&Stored>,
) -> Result<()> {
    let mut table = Table::new(&["task", "executable", "algorithm", "median ms", "calls"]);
    for timed in tasks {
        for t in timed {
            table.row(vec![
                t.of.task.clone(),
                t.of.executable.clone(),
                t.of.algorithm.clone(),
                format!("{:.3}", t.median_ns as f64 / 1e6),
                t.calls.to_string(),
            ]);
        }
    }
    table.print()?;
    super::print_line(&match stored {
        Some(s) => format!(
            "{} candidates are stored as times of the machine {}; `{}` takes the fastest",
            s.records, s.machine, s.compile
        ),
        None => format!(
            "nothing is stored: the folder has no {TASKS}; export the candidates again to have `compile` take the fastest"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_top_is_a_number_or_a_share() {
        let of = |text, candidates| Top::parse(text).map(|t| t.of(candidates));
        assert_eq!(of("7", 500), Ok(7));
        assert_eq!(of("3%", 500), Ok(15));
        assert_eq!(of("3%", 501), Ok(16));
        assert_eq!(of("0.1%", 5), Ok(1));
        for wrong in ["0", "101%", "-1%", "some", "%"] {
            assert!(of(wrong, 5).unwrap_err().contains("3%"), "{wrong}");
        }
    }
}
