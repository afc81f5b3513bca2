//! Runs test programs that cargo has built: parts of several programs side by side.
//!
//! `cargo test` runs one program after the other, and a program with few tests leaves CPUs
//! idle. Here the tests of a program are divided into parts, and every CPU takes the next part.
//! A part runs its tests one after the other, so the time of each is known; a test of an upper
//! crate usually takes longer, so the parts of upper crates come first.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Tests of a part, at most.
const PART: usize = 4;
/// A part that prints nothing for so long hangs. With `--long` there is no limit.
const SILENCE: Duration = Duration::from_secs(600);
/// Tests that the list of the slowest has.
const SLOWEST: usize = 10;

/// A program of tests, and where it expects to run.
#[derive(Clone, Debug, PartialEq)]
struct Program {
    name: String,
    path: PathBuf,
    folder: PathBuf,
}

/// Tests of a program that one process runs; none are named where the program has no list.
struct Part<'p> {
    program: &'p Program,
    tests: Vec<String>,
}

/// What a process printed, and the seconds of each of its tests.
#[derive(Default)]
struct Ran {
    lines: Vec<String>,
    seconds: Vec<(f64, String)>,
    failed: bool,
}

/// The test programs that cargo's messages name (`cargo test --no-run --message-format json`);
/// those of upper crates first, as cargo builds them last.
fn programs(messages: &str) -> Result<Vec<Program>, String> {
    let mut programs = Vec::new();
    for line in messages.lines().filter(|l| l.starts_with('{')) {
        let message: Value = serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))?;
        let built = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let Some(path) = message["executable"].as_str().filter(|_| built) else {
            continue;
        };
        let manifest = PathBuf::from(message["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().ok_or("a package without a folder")?;
        let package = folder.file_name().unwrap_or_default().to_string_lossy();
        let target = message["target"]["name"].as_str().unwrap_or_default();
        let unit = message["target"]["kind"][0] != "test";
        programs.push(Program {
            name: match unit {
                true => package.to_string(),
                false => format!("{package}/{target}"),
            },
            path: path.into(),
            folder: folder.into(),
        });
    }
    programs.reverse();
    Ok(programs)
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null());
        command
    }

    /// The tests in parts. A program without cargo's harness is one part.
    fn parts(&self) -> Result<Vec<Part<'_>>, String> {
        let failed = |e: String| format!("{}: {e}", self.name);
        let out = self.command().args(["--list", "--format", "terse"]).output();
        let out = out.map_err(|e| failed(e.to_string()))?;
        if !out.status.success() {
            return Err(failed(String::from_utf8_lossy(&out.stderr).into()));
        }
        let text = String::from_utf8_lossy(&out.stdout).to_string();
        let tests: Vec<String> = text
            .lines()
            .filter_map(|l| l.strip_suffix(": test").map(String::from))
            .collect();
        let part = |tests: &[String]| Part {
            program: self,
            tests: tests.to_vec(),
        };
        Ok(tests.chunks(PART).map(part).collect())
    }
}

impl Part<'_> {
    fn run(&self, arguments: &[String], silence: Option<Duration>) -> Result<Ran, String> {
        let mut command = self.program.command();
        command.args(["--test-threads", "1", "--exact"]).args(&self.tests);
        command.args(arguments);
        // One pipe for both streams keeps the order of their lines.
        let (output, input) = std::io::pipe().map_err(|e| e.to_string())?;
        let other = input.try_clone().map_err(|e| e.to_string())?;
        let child = command.stdout(input).stderr(other).spawn();
        drop(command);
        let mut child = child.map_err(|e| format!("{}: {e}", self.program.path.display()))?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let _ = send.send((Instant::now(), String::from_utf8_lossy(&line).to_string()));
            }
        });
        let mut ran = Ran::default();
        let mut last = Instant::now();
        loop {
            let received = match silence {
                Some(silence) => lines.recv_timeout(silence),
                None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match received {
                Ok((now, line)) => {
                    if let Some(test) = ended(&line) {
                        let name = format!("{} {test}", self.program.name);
                        ran.seconds.push(((now - last).as_secs_f64(), name));
                        last = now;
                    }
                    ran.lines.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let _ = child.kill();
                    let of = &self.tests[ran.seconds.len().min(self.tests.len() - 1)];
                    ran.lines.push(format!("test {of} ... FAILED"));
                    ran.lines.push(format!("error: {of}: silent for 10 minutes"));
                    ran.failed = true;
                    break;
                }
            }
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        if !status.success() && !ran.lines.iter().any(|l| l.starts_with("test result: FAILED")) {
            let name = &self.program.name;
            ran.lines.push(format!("error: {name} ended with {status} in one of {:?}", self.tests));
        }
        ran.failed |= !status.success();
        Ok(ran)
    }
}

/// The test that a line of a test program says has ended.
fn ended(line: &str) -> Option<&str> {
    let (test, _) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some(test)
}

/// Runs what cargo's `messages` name on `cpus` CPUs and prints what matters: all of a part that
/// failed, why tests were skipped, the slowest tests, and the counts. True if all passed.
pub fn run(messages: &str, cpus: usize, arguments: &[String]) -> Result<bool, String> {
    let programs = programs(messages)?;
    let mut parts = Vec::new();
    for program in &programs {
        parts.extend(program.parts()?);
    }
    let long = arguments.iter().any(|a| a == "--include-ignored");
    let silence = (!long).then_some(SILENCE);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let all: Mutex<Vec<Ran>> = Mutex::new(Vec::new());
    let work = || -> Result<(), String> {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            let ran = part.run(arguments, silence)?;
            let mut all = all.lock().map_err(|e| e.to_string())?;
            let n = done.fetch_add(1, Ordering::Relaxed) + 1;
            println!(
                "[{n:3}/{}] {:6.1} s  {}: {}{}",
                parts.len(),
                start.elapsed().as_secs_f64(),
                part.program.name,
                part.tests.first().map_or("", |t| t),
                match part.tests.len() {
                    0 | 1 => String::new(),
                    n => format!(" and {} more", n - 1),
                }
            );
            let shown = |l: &&String| ran.failed || l.contains("skipped: ") || l.contains("skipped in part: ");
            for line in ran.lines.iter().filter(shown) {
                println!("{line}");
            }
            all.push(ran);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|w| w.join());
        ended.map(|e| e.unwrap_or_else(|_| Err("the runner of tests panicked".into()))).collect::<Result<Vec<()>, _>>()
    })?;
    let all = all.into_inner().map_err(|e| e.to_string())?;
    let mut seconds: Vec<_> = all.iter().flat_map(|r| r.seconds.clone()).collect();
    seconds.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("slowest:");
    for (s, test) in seconds.iter().take(SLOWEST) {
        println!("{s:8.1} s  {test}");
    }
    Ok(!all.iter().any(|r| r.failed))
}
