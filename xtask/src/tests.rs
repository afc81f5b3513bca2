//! Runs test programs that cargo has built: parts of several programs side by side.
//!
//! `cargo test` runs one program after the other, and a program with few tests leaves CPUs
//! idle. Here the tests of a program are divided into parts, and every CPU takes the next part.
//! A part runs its tests one after the other, so the time of each is known. Programs with long tests
//! come first, so that none of them is left to run alone. A program that passed before and would
//! do the same again is not run ([`crate::earlier`]).
//!
//! Other work on the machine can make a test fail that measures or waits. So the few tests that fail run
//! once more, alone. One that passes then counts as passed, and its name is printed as flaky.

use crate::earlier::{Earlier, Passed};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Tests of a part, at most.
const PART: usize = 4;
/// A part that prints nothing for so long hangs; with ignored tests, for sixty times as long.
const SILENCE: Duration = Duration::from_secs(600);
/// Programs whose tests take longest, the longest first.
const FIRST: [&str; 6] = [
    "tunesmith/conformance",
    "tunesmith/cli",
    "search/rules",
    "tunesmith/faults",
    "measure/runners",
    "testkit/compiled_fuzz",
];
/// Failed tests that run once more, at most. Where more fail, it is not by chance.
const TRIED_AGAIN: usize = 3;
/// Behind the name of a test that has to panic, in a line of its result.
const SHOULD_PANIC: &str = " - should panic";
/// Tests that the list of the slowest has.
const SLOWEST: usize = 10;

/// A program of tests, and where it expects to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub name: String,
    pub path: PathBuf,
    pub folder: PathBuf,
}

/// Tests of a program that one process runs; none are named where the program has no list.
#[derive(Clone)]
struct Part<'p> {
    program: &'p Program,
    tests: Vec<String>,
}

/// What a process printed, and the seconds of each of its tests.
#[derive(Default)]
struct Ran {
    lines: Vec<String>,
    seconds: Vec<(f64, String)>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub passed: usize,
    pub failed: usize,
    pub ignored: usize,
}

/// What cargo has built.
#[derive(Default)]
struct Built {
    /// The test programs; [`FIRST`] first, then those of upper crates, as cargo builds them last.
    tests: Vec<Program>,
    /// The other programs of each package's folder, which its tests may start.
    others: HashMap<PathBuf, Vec<PathBuf>>,
}

/// The programs that cargo's messages name (`cargo test --no-run --message-format json`).
fn built(messages: &str) -> Result<Built, String> {
    let mut all = Built::default();
    for line in messages.lines().filter(|l| l.starts_with('{')) {
        let message: Value = serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))?;
        let artifact = message["reason"] == "compiler-artifact";
        let Some(path) = message["executable"].as_str().filter(|_| artifact) else {
            continue;
        };
        let manifest = PathBuf::from(message["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().ok_or("a package without a folder")?;
        if message["profile"]["test"] != true {
            all.others
                .entry(folder.into())
                .or_default()
                .push(path.into());
            continue;
        }
        let package = folder.file_name().unwrap_or_default().to_string_lossy();
        let target = message["target"]["name"].as_str().unwrap_or_default();
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        all.tests.push(Program {
            // Unit tests of a library and of programs of one package are apart.
            name: match kind {
                "test" => format!("{package}/{target}"),
                "bin" => format!("{package} (bin {target})"),
                _ => package.to_string(),
            },
            path: path.into(),
            folder: folder.into(),
        });
    }
    // Messages come in the order in which compilations end.
    all.others.values_mut().for_each(|paths| paths.sort());
    all.tests.reverse();
    all.tests.sort_by_key(|p| {
        let place = FIRST.iter().position(|name| *name == p.name);
        place.unwrap_or(FIRST.len())
    });
    Ok(all)
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
        let out = self
            .command()
            .args(["--list", "--format", "terse"])
            .output();
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
    fn title(&self) -> String {
        let first = self.tests.first().map_or("", |t| t);
        let more = match self.tests.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        format!("{}: {first}{more}", self.program.name)
    }

    fn run(&self, arguments: &[String]) -> Result<Ran, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", self.program.path.display());
        let mut command = self.program.command();
        command
            .args(["--test-threads", "1", "--exact"])
            .args(&self.tests);
        command.args(arguments);
        // One pipe for both streams keeps the order of their lines.
        let (output, input) = std::io::pipe().map_err(failed)?;
        command
            .stderr(input.try_clone().map_err(failed)?)
            .stdout(input);
        let mut child = command.spawn().map_err(failed)?;
        // The command holds the ends of the pipe that only the child may keep open.
        drop(command);
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let _ = send.send((Instant::now(), String::from_utf8_lossy(&line).to_string()));
            }
        });
        let mut ran = Ran::default();
        let mut last = Instant::now();
        let silence = match arguments.iter().any(|a| a == "--include-ignored") {
            true => SILENCE * 60,
            false => SILENCE,
        };
        loop {
            match lines.recv_timeout(silence) {
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
                    let seconds = silence.as_secs();
                    let _ = child.kill();
                    ran.lines.push(format!(
                        "error: nothing for {seconds} s from {}",
                        self.title()
                    ));
                    break;
                }
            }
        }
        let status = child.wait().map_err(failed)?;
        ran.counts = ran.lines.iter().find_map(|l| counts(l)).unwrap_or_default();
        if !status.success() && ran.counts.failed == 0 {
            ran.counts.failed = 1;
            ran.lines
                .push(format!("error: {} ended with {status}", self.title()));
        }
        Ok(ran)
    }
}

impl Ran {
    /// The tests that failed; none if the process died before it had run all.
    fn failed(&self) -> Vec<&str> {
        let failed = self.lines.iter().filter(|l| l.ends_with("FAILED"));
        let name = |l| ended(l).map(|test: &str| test.trim_end_matches(SHOULD_PANIC));
        let tests: Vec<&str> = failed.filter_map(|l: &String| name(l)).collect();
        let all_ran = self.lines.iter().any(|l| counts(l).is_some());
        match all_ran && tests.len() == self.counts.failed {
            true => tests,
            false => Vec::new(),
        }
    }

    /// All lines if a test failed, except the counts; otherwise those about skipped tests.
    fn shown(&self) -> impl Iterator<Item = &String> {
        let skipped = |l: &str| {
            l.contains("skipped: ") || l.contains("skipped in part: ") || l.contains(" ... ignored")
        };
        self.lines.iter().filter(move |l| match self.counts.failed {
            0 => skipped(l),
            _ => counts(l).is_none(),
        })
    }
}

/// The counts of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
fn counts(line: &str) -> Option<Counts> {
    let (_, parts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        let part = parts.split("; ").find_map(|p| p.strip_suffix(what))?;
        part.trim().parse().ok()
    };
    Some(Counts {
        passed: count("passed")?,
        failed: count("failed")?,
        ignored: count("ignored")?,
    })
}

/// The test that a line of a test program says has ended.
fn ended(line: &str) -> Option<&str> {
    let (test, _) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some(test)
}

/// The parts of all programs, so many of which list their tests at a time.
fn parts(programs: &[Program], cpus: usize) -> Result<Vec<Part<'_>>, String> {
    let mut all = Vec::new();
    for some in programs.chunks(cpus) {
        std::thread::scope(|scope| {
            let lists: Vec<_> = some
                .iter()
                .map(|p| scope.spawn(move || p.parts()))
                .collect();
            for list in lists {
                let panicked = |_| Err("a list of tests panicked".to_string());
                all.extend(list.join().unwrap_or_else(panicked)?);
            }
            Ok::<_, String>(())
        })?;
    }
    Ok(all)
}

/// The parts, run side by side, each with what it did.
fn run_all<'p>(
    parts: &[Part<'p>],
    cpus: usize,
    arguments: &[String],
) -> Result<Vec<(Part<'p>, Ran)>, String> {
    let next = AtomicUsize::new(0);
    let all: Mutex<Vec<(Part, Ran)>> = Mutex::new(Vec::new());
    let work = || -> Result<(), String> {
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            let ran = part.run(arguments)?;
            let seconds = start.elapsed().as_secs_f64();
            let mut all = all.lock().map_err(|e| e.to_string())?;
            println!(
                "[{:3}/{}] {seconds:6.1} s  {}",
                all.len() + 1,
                parts.len(),
                part.title()
            );
            ran.shown().for_each(|line| println!("{line}"));
            all.push((part.clone(), ran));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        let panicked = || Err("the runner of tests panicked".to_string());
        let mut ended = workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|_| panicked()));
        ended.try_for_each(|result| result)
    })?;
    all.into_inner().map_err(|e| e.to_string())
}

/// Runs the tests that failed once more, one after the other. Those that pass count as passed.
/// Returns their names.
fn run_again(all: &mut [(Part, Ran)], arguments: &[String]) -> Result<Vec<String>, String> {
    let failed: usize = all.iter().map(|(_, ran)| ran.counts.failed).sum();
    let mut flaky = Vec::new();
    if failed > TRIED_AGAIN {
        return Ok(flaky);
    }
    for (part, ran) in all {
        let tests: Vec<String> = ran.failed().into_iter().map(String::from).collect();
        for test in tests {
            let alone = Part {
                program: part.program,
                tests: vec![test],
            };
            println!("once more, alone: {}", alone.title());
            let second = alone.run(arguments)?;
            if second.counts.failed > 0 || second.counts.passed != 1 {
                second.shown().for_each(|line| println!("{line}"));
            } else {
                ran.counts.failed -= 1;
                ran.counts.passed += 1;
                flaky.push(alone.title());
            }
        }
    }
    Ok(flaky)
}

/// What the parts of a program did together.
fn together<'a>(parts: impl Iterator<Item = &'a Ran>) -> Passed {
    let mut whole = Passed::default();
    for ran in parts {
        whole.counts.passed += ran.counts.passed;
        whole.counts.failed += ran.counts.failed;
        whole.counts.ignored += ran.counts.ignored;
        whole.lines.extend(ran.shown().cloned());
    }
    whole
}

/// Runs the programs that a file of cargo's messages names, and prints what matters: all of a
/// part that failed, why tests were skipped, the slowest tests, and the counts. True if all passed.
pub fn run(root: &Path, messages: &Path, arguments: &[String]) -> Result<bool, String> {
    let text = std::fs::read_to_string(messages);
    let text = text.map_err(|e| format!("{}: {e}", messages.display()))?;
    let Built { mut tests, others } = built(&text)?;
    if tests.is_empty() {
        return Err(format!(
            "{}: cargo has built no test programs",
            messages.display()
        ));
    }
    let again = arguments.iter().any(|a| a == "--again");
    let arguments: Vec<String> = arguments
        .iter()
        .filter(|a| *a != "--again")
        .cloned()
        .collect();
    let mut earlier = Earlier::read(messages.with_file_name("passed"), root, &arguments)?;
    let mut keys = HashMap::new();
    for program in &tests {
        let beside = others.get(&program.folder).map_or(&[][..], |all| all);
        keys.insert(program.name.clone(), earlier.key(program, beside)?);
    }
    let mut old: Vec<Passed> = Vec::new();
    tests.retain(|p| match earlier.get(keys[&p.name]).filter(|_| !again) {
        Some(passed) => {
            old.push(passed.clone());
            false
        }
        None => true,
    });
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = parts(&tests, cpus)?;
    let mut all = run_all(&parts, cpus, &arguments)?;
    let flaky = run_again(&mut all, &arguments)?;

    let mut new = Vec::new();
    for program in &tests {
        let own = all.iter().filter(|(part, _)| part.program == program);
        let whole = together(own.map(|(_, ran)| ran));
        let steady = !flaky
            .iter()
            .any(|f| f.starts_with(&format!("{}: ", program.name)));
        if whole.counts.failed == 0 && steady {
            earlier.insert(keys[&program.name], whole.clone());
        }
        new.push(whole);
    }
    earlier.write()?;
    let mut seconds: Vec<_> = all.iter().flat_map(|(_, r)| &r.seconds).collect();
    seconds.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("slowest:");
    for (s, test) in seconds.iter().take(SLOWEST) {
        println!("{s:8.1} s  {test}");
    }
    if !old.is_empty() {
        let n: usize = old.iter().map(|p| p.counts.passed).sum();
        println!(
            "{n} tests of {} programs passed before, and nothing that they read has changed (--again runs them):",
            old.len()
        );
        old.iter()
            .flat_map(|p| &p.lines)
            .for_each(|l| println!("{l}"));
    }
    for test in flaky {
        println!("flaky: {test} failed beside other tests and passed alone");
    }
    let sum =
        |of: fn(&Counts) -> usize| old.iter().chain(&new).map(|p| of(&p.counts)).sum::<usize>();
    let failed = sum(|c| c.failed);
    println!(
        "{} passed, {failed} failed, {} skipped",
        sum(|c| c.passed),
        sum(|c| c.ignored)
    );
    Ok(failed == 0)
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn messages_name_test_programs_last_ones_first() {
        let of = |package: &str, kind: &str, name: &str, test: bool, path: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/r/{package}/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":{test}}},"executable":{path}}}"#
            )
        };
        let text = [
            of("ir", "lib", "ir", false, "null"),
            of("ir", "lib", "ir", true, "\"/t/ir-1\""),
            of("llvm", "test", "math", true, "\"/t/math-2\""),
            of("llvm", "bin", "x", false, "\"/t/x\""),
            r#"{"reason":"build-finished","success":true}"#.to_string(),
        ];
        let Built { tests, others } = built(&text.join("\n")).unwrap();
        assert_eq!(others[Path::new("/r/llvm")], [Path::new("/t/x")]);
        let names = |p: Program| (p.name, p.path.display().to_string());
        let found: Vec<_> = tests.into_iter().map(names).collect();
        let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(
            found,
            [pair("llvm/math", "/t/math-2"), pair("ir", "/t/ir-1")]
        );
    }

    /// A program of tests as a script: `steady` passes, `broken` fails, `unlucky` passes when it runs alone, and
    /// `deadly` ends the program.
    #[test]
    fn a_failed_test_runs_once_more_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("xtask-again-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("program");
        let script = r#"#!/bin/sh
all="$*" failed=0
for t in steady broken unlucky deadly; do
    case " $all " in *" $t "*) ;; *) continue ;; esac
    [ $t != deadly ] || exit 101
    case "$t $all" in
        broken*|unlucky*steady*) echo "test $t ... FAILED"; failed=$((failed + 1)) ;;
        *) echo "test $t ... ok" ;;
    esac
done
echo "test result: FAILED. $(($# - 3 - failed)) passed; $failed failed; 0 ignored; 0 measured"
[ $failed = 0 ]
"#;
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let program = Program {
            name: "p".into(),
            path,
            folder: folder.clone(),
        };
        let part = |tests: &[&str]| Part {
            program: &program,
            tests: tests.iter().map(|t| t.to_string()).collect(),
        };
        let counts_of = |tests: &[&str]| {
            let mut all = run_all(&[part(tests)], 1, &[]).unwrap();
            let flaky = run_again(&mut all, &[]).unwrap();
            (all[0].1.counts, flaky)
        };
        let counts = |passed, failed| Counts {
            passed,
            failed,
            ignored: 0,
        };
        let unlucky = vec!["p: unlucky".to_string()];
        assert_eq!(counts_of(&["steady", "unlucky"]), (counts(2, 0), unlucky));
        assert_eq!(counts_of(&["steady", "broken"]), (counts(1, 1), vec![]));
        // What the program would have run is not known.
        let died = counts_of(&["steady", "unlucky", "deadly"]);
        assert_eq!(died, (counts(0, 1), vec![]));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn lines_of_results_are_read() {
        assert_eq!(ended("test a::b ... ok"), Some("a::b"));
        assert_eq!(
            ended("test a::b - should panic ... FAILED"),
            Some("a::b - should panic")
        );
        assert_eq!(ended("running 3 tests"), None);
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 9 filtered out; finished in 1.0s";
        let expected = Counts {
            passed: 3,
            failed: 2,
            ignored: 1,
        };
        assert_eq!(counts(line), Some(expected));
        assert_eq!(counts("test result"), None);
    }
}
