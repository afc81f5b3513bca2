//! Candidates for a board that this program does not run on: executables with a script that times them there, and what
//! the times say. The script runs over ssh, or whoever has the board runs it.

use super::model_args::{StoreArgs, say};
use super::parse::{parse_count, parse_share};
use super::signals;
use super::ssh::{Board, BoardArgs};
use super::table::{Table, counted, ms, times as factor};
use crate::titles::short;
use clap::builder::NonEmptyStringValueParser;
use ir::Target;
use plan::Plan;
use serde::{Deserialize, Serialize};
use simulate::Runner;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{Decision, Store, median};
use study::MeasuredPoint;
use tune::board::{BoardTimes, ExportedTasks, id, store_times};
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

/// What times.txt begins with where its candidates are known: the words, and which folder they are of.
const OF_FOLDER: &str = "# candidates";

/// The script that times candidates. Where they are those of an exported folder, times.txt says of which.
pub fn script(folder: Option<&str>) -> String {
    let begin = folder.map_or(":".into(), |id| format!("echo '{OF_FOLDER} {id}'"));
    SCRIPT.replace("BEGIN", &begin)
}

const SCRIPT: &str = r#"#!/bin/sh
# Times the candidates on this machine: ./time.sh [ROUNDS [PAUSE [LIMIT]]]
# Each round starts all of them, and each start calls its kernel several times. PAUSE seconds follow each
# start, and a start may take LIMIT seconds. Each line of times.txt has a candidate and the nanoseconds of
# one call.
cd "$(dirname "$0")" || exit 1
rounds=${1:-3}
pause=${2:-0}
limit=${3:+timeout $3}
BEGIN >times.txt || exit 1
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    echo "round $round of $rounds" >&2
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
done
echo "the times are in times.txt" >&2
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
    /// Whether it is what runs where nothing is known.
    #[serde(default)]
    default: bool,
    /// The point that the trace is of.
    #[serde(default)]
    decisions: Vec<Decision>,
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
        if folder.join(CANDIDATES).exists() {
            let why = format!("{} has exported candidates already", folder.display());
            return Err(Error::new(why).help(
                "import their times and remove the folder, or name another one with --export-to",
            ));
        }
        let runner = Runner::new(target).map_err(no_runner)?;
        Ok(Bundle {
            folder,
            target,
            runner,
            tasks: ExportedTasks::of(target),
            exported: vec![],
        })
    }

    /// Adds the candidates of each task that are predicted to be the fastest, and the default: only its time says whether
    /// they are better.
    ///
    /// # Errors
    /// If one can no longer be built, or a file cannot be written.
    pub fn add(&mut self, plan: &Plan, scores: &[TaskScores], top: Top, host: &Host) -> Result<()> {
        for (task, scores) in plan.tasks.iter().zip(scores) {
            let mut chosen = scores.to_time(top.of(scores.best.len()));
            let is_default = |s: &&Scored| s.candidate.trace == scores.default.trace;
            if !chosen.iter().any(is_default) {
                chosen.extend(scores.best.iter().find(is_default));
            }
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
                    default: is_default(scored),
                    decisions: scored.decisions.clone(),
                    code_hash: Some(format!("{:016x}", kernel.code_hash())),
                });
            }
            self.tasks.add(task);
        }
        Ok(())
    }

    /// Writes the script, the list of candidates, and what they are of. Returns what to do with the folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn finish(self) -> Result<String> {
        let path = self.folder.join(TASKS);
        let tasks = serde_json::to_string(&self.tasks).expect("plain data");
        fs::write(&path, tasks).map_err(fail(&path))?;
        let mut lines = String::new();
        for e in &self.exported {
            lines += &serde_json::to_string(e).expect("plain data");
            lines.push('\n');
        }
        write(self.folder, "time.sh", script(Some(&id(&lines))).as_bytes())?;
        let path = self.folder.join(CANDIDATES);
        fs::write(&path, lines).map_err(fail(&path))?;
        let folder = self.folder.display().to_string();
        Ok(format!(
            "{} to time on the board are in {folder}: copy the folder there, run its time.sh, and copy its times.txt back; \
             then `tunesmith simulate import {}` says which are the fastest",
            counted(self.exported.len() as u32, "executable"),
            shell_word(&folder),
        ))
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
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    machine: Option<String>,
    /// Candidates of each task that are listed, the fastest first; the default is listed in any case
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
    /// The time of the task's default over this one's, if the default was timed.
    gain: Option<f64>,
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
    let candidates = read(CANDIDATES)?;
    let exported = exported(&candidates)?;
    let of = exported_tasks(&a.folder)?;
    // A store that cannot be written is known before a board works for it.
    let store = of.as_ref().map(|_| a.store.write()).transpose()?;
    let stop = Stop::default();
    let watched = signals::watch(stop.clone(), || eprintln!("{STOPPING}"))?;
    if let Some(board) = a.board.connect(&stop)? {
        time_all(&board, &a.folder, &exported, &id(&candidates))?;
    }
    let lines = read(TIMES).map_err(|e| {
        e.help("run time.sh of the folder on the board and copy the times.txt that it writes into the folder, or give --board HOST")
    })?;
    check_folder(&lines, &id(&candidates))?;
    let times = times(&lines)?;
    say_what_is_missing(&exported, &times);
    let mut tasks = by_task(&exported, times);
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
        rank(timed);
        let rest = timed.split_off(a.top.min(timed.len()));
        timed.extend(rest.into_iter().find(|t| t.of.default));
    }
    match a.json {
        true => super::print_json(&serde_json::json!({ "tasks": tasks, "stored": stored }))?,
        false => print(tasks.values(), stored.as_ref())?,
    }
    Ok(watched.exit_code())
}

/// Refuses times of the candidates of another folder.
fn check_folder(times: &str, id: &str) -> Result<()> {
    let named = times.lines().find_map(|l| l.strip_prefix(OF_FOLDER));
    match named.map(str::trim) {
        Some(other) if other != id => Err(Error::new(format!(
            "{TIMES} has times of the candidates of another folder"
        ))
        .help("copy the times.txt that time.sh of this folder wrote, or import the other folder")),
        _ => Ok(()),
    }
}

/// Says which candidates have no times, and that there are times of others.
fn say_what_is_missing(exported: &[Exported], times: &BTreeMap<&str, Vec<u64>>) {
    let names: BTreeSet<&str> = exported.iter().map(|e| e.executable.as_str()).collect();
    let untimed: Vec<&str> = names
        .iter()
        .copied()
        .filter(|n| !times.contains_key(n))
        .collect();
    if let Some(first) = untimed.first() {
        say(&format!(
            "warning: {} of {} have no time, such as {first}: they failed, or the script was stopped",
            untimed.len(),
            counted(names.len() as u32, "candidate"),
        ));
    }
    let unknown: Vec<&str> = times
        .keys()
        .copied()
        .filter(|n| !names.contains(n))
        .collect();
    if let Some(first) = unknown.first() {
        say(&format!(
            "warning: {TIMES} has times of {} that the folder does not list, such as {first}; they are left out",
            counted(unknown.len() as u32, "executable"),
        ));
    }
}

/// Sorts the candidates of a task, the fastest first, and compares them with the default.
fn rank(timed: &mut [Timed<'_>]) {
    timed.sort_by_key(|t| t.median_ns);
    let default = timed.iter().find(|t| t.of.default).map(|t| t.median_ns);
    for t in timed {
        t.gain = default.map(|ns| ns as f64 / t.median_ns as f64);
    }
}

/// The candidates that have times, by the tasks in the names of their executables.
fn by_task<'e>(
    exported: &'e [Exported],
    mut times: BTreeMap<&str, Vec<u64>>,
) -> BTreeMap<&'e str, Vec<Timed<'e>>> {
    let mut tasks: BTreeMap<&str, Vec<Timed<'_>>> = BTreeMap::new();
    for of in exported {
        if let Some(ns) = times.remove(of.executable.as_str())
            && let Some(median_ns) = median(&ns)
        {
            let task = of.executable.split('-').next().unwrap_or_default();
            tasks.entry(task).or_default().push(Timed {
                of,
                calls: ns.len(),
                median_ns,
                gain: None,
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
                decisions: &t.of.decisions,
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
    let word = |w: &str| shell_word(w).into_owned();
    compile += &format!(
        " --threads {} --machine {}",
        of.target.threads,
        word(machine)
    );
    if let Some(path) = &a.store.store {
        compile += &format!(" --store {}", word(&path.display().to_string()));
    }
    Ok(Stored {
        store: store.path().into(),
        machine: machine.into(),
        records,
        compile,
    })
}

/// A word as a shell reads it.
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%_+=:,./-".contains(c);
    match word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")).into(),
    }
}

/// Times all executables of a folder on a board, and writes their times there if there are any.
fn time_all(board: &Board<'_>, folder: &Path, exported: &[Exported], id: &str) -> Result<()> {
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
    writeln!(file, "{OF_FOLDER} {id}").map_err(fail(&path))?;
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
        let ns = times.ns.get(&format!("task0-{i}"));
        p.ns = ns.and_then(|ns| median(ns));
    }
    Ok(())
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
    for line in lines.lines().filter(|l| !l.starts_with('#')) {
        let parts = line
            .split_once(' ')
            .and_then(|(name, ns)| Some((name, ns.parse().ok().filter(|ns| *ns > 0)?)));
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
    let mut table = Table::new(&[
        "task",
        "executable",
        "algorithm",
        "median ms",
        "gain",
        "calls",
    ])
    .dispensable(&["calls", "algorithm"]);
    let tasks: Vec<_> = tasks.collect();
    let titles: Vec<&str> = tasks.iter().map(|timed| &*timed[0].of.task).collect();
    for (timed, title) in tasks.iter().zip(short(&titles)) {
        for t in *timed {
            table.row(vec![
                title.clone(),
                t.of.executable.clone(),
                t.of.algorithm.clone(),
                ms(Some(t.median_ns as f64 / 1e6)),
                match t.of.default {
                    true => "default".into(),
                    false => t.gain.map_or("-".into(), factor),
                },
                t.calls.to_string(),
            ]);
        }
    }
    table.print()?;
    super::print_line(&match stored {
        Some(s) => format!(
            "the times of {} are stored as those of the machine {}; `{}` takes the fastest",
            counted(s.records as u32, "candidate"),
            s.machine,
            s.compile
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
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(shell_word("user@pi-4.local:22"), "user@pi-4.local:22");
        assert_eq!(shell_word("my board's"), r"'my board'\''s'");
        assert_eq!(shell_word("$x"), "'$x'");
    }

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
