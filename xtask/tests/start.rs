//! `./tunesmith` and `scripts/setup` in a copy of a fresh clone, where `cargo`, `apt-get` and
//! whatever else they need are the small programs in the folder `start`.
//!
//! Promises to need no network, to install nothing and to build nothing.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What the scripts and the small programs use of a plain system.
const SYSTEM: [&str; 16] = [
    "awk", "bash", "chmod", "dirname", "env", "find", "grep", "ln", "mkdir", "readlink", "sed",
    "sleep", "sort", "tail", "touch", "wc",
];
/// What the small `apt-get` installs.
const PACKAGES: [&str; 3] = ["cc", "cargo", "llvm-config-22"];

/// A machine with a fresh clone of the sources.
struct Machine {
    folder: TempDir,
}

fn fakes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/start")
}

/// Where the host has a program.
fn on_host(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

impl Machine {
    /// One without a C compiler, LLVM and Rust.
    fn bare() -> Machine {
        let machine = Machine {
            folder: TempDir::new().unwrap(),
        };
        let clone = machine.clone_folder();
        for folder in [".cargo", "scripts", "crates/tunesmith/src"] {
            fs::create_dir_all(clone.join(folder)).unwrap();
        }
        for file in ["Cargo.toml", "Cargo.lock", "crates/tunesmith/src/main.rs"] {
            fs::write(clone.join(file), "").unwrap();
        }
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for script in ["tunesmith", "scripts/setup"] {
            fs::copy(sources.join(script), clone.join(script)).unwrap();
        }
        fs::create_dir(machine.programs()).unwrap();
        for program in SYSTEM {
            let file = on_host(program).unwrap_or_else(|| panic!("this test needs {program}"));
            symlink(file, machine.programs().join(program)).unwrap();
        }
        for program in ["apt-get", "apt-cache", "id"] {
            symlink(fakes().join(program), machine.programs().join(program)).unwrap();
        }
        machine
    }

    /// One on which nothing is missing, not even the sources of other crates.
    fn ready() -> Machine {
        let machine = Machine::bare();
        for program in PACKAGES {
            let file = fakes().join("packages").join(program);
            symlink(file, machine.programs().join(program)).unwrap();
        }
        fs::write(machine.file("crates"), "").unwrap();
        machine
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn programs(&self) -> PathBuf {
        self.file("bin")
    }

    /// Its name has a space, as folders may have.
    fn clone_folder(&self) -> PathBuf {
        self.file("fresh clone")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.clone_folder().join("target/setup.log")).unwrap_or_default()
    }

    /// A command in the home folder. Signals mean what they mean to a program that a person starts.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.programs().join("env"));
        command
            .args(["--default-signal=INT,TERM"])
            .args(words)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", self.programs())
            .env("HOME", self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self, build: &str) -> Command {
        let mut command = self.command(&["bash", "fresh clone/tunesmith", "doctor", "a word"]);
        command.env("FAKE_BUILD", build);
        command
    }

    /// The start on a terminal; nothing if this host has no program that makes one.
    fn start_on_terminal(&self, build: &str) -> Option<Command> {
        let script = on_host("script")?;
        let start = "exec bash 'fresh clone/tunesmith' doctor 'a word'";
        let mut command = self.command(&[
            script.to_str()?,
            "--quiet",
            "--return",
            "--command",
            start,
            "/dev/null",
        ]);
        let bash = self.programs().join("bash");
        command.env("FAKE_BUILD", build).env("SHELL", bash);
        Some(command)
    }

    fn hello(&self) -> String {
        let home = self.folder.path().display();
        format!("Tunesmith in {home} got: doctor a word\n")
    }

    /// Cargo and its compiler, once the build has begun.
    fn processes(&self) -> Vec<String> {
        let mut text = String::new();
        wait_until("the build begins", || {
            text = fs::read_to_string(self.file("processes")).unwrap_or_default();
            text.ends_with('\n')
        });
        text.split_whitespace().map(String::from).collect()
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process runs; one that ended but was not waited for has no command line.
fn runs(process: &str) -> bool {
    fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|words| !words.is_empty())
}

fn ended(child: Child) -> (Option<i32>, String, String) {
    text(child.wait_with_output().unwrap())
}

/// Exit status, standard output and standard error.
fn text(out: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

/// Without the lines about the build's progress, which must be there.
fn without_progress(said: &str) -> Vec<&str> {
    // One that comes late finds both crates begun.
    let progress = |line: &&str| {
        let begun = line.strip_prefix("building Tunesmith: crate ");
        begun.is_some_and(|line| {
            line.starts_with(['0', '1', '2']) && line[1..].starts_with(" of 2, ")
        })
    };
    assert_eq!(said.lines().filter(progress).count(), 1, "{said}");
    said.lines().filter(|line| !progress(line)).collect()
}

#[test]
fn a_first_start_says_a_line_a_step_and_the_second_says_nothing() {
    let machine = Machine::bare();
    let (status, printed, said) = text(machine.start("works").output().unwrap());
    assert_eq!((status, printed), (Some(0), machine.hello()), "{said}");
    assert_eq!(
        without_progress(&said),
        [
            "Tunesmith needs what this machine lacks: C and C++ compiler; \
             LLVM 22 development files; Rust 1.90 or newer",
            "refreshing the package lists",
            "installing with apt-get: gcc g++ libc6-dev llvm-22-dev",
            "installing with apt-get: cargo rustfmt rust-clippy",
            "downloading crates",
        ]
    );
    let log = machine.log();
    for other in [
        "Reading package lists",
        "Unpacking llvm-22-dev",
        "Unpacking cargo",
        "Downloaded 2 crates",
        "Compiling tunesmith",
    ] {
        assert!(log.contains(other), "{other}: {log}");
    }

    let (status, printed, said) = text(machine.start("fails").output().unwrap());
    assert_eq!((status, printed), (Some(0), machine.hello()));
    assert_eq!((said, machine.log()), (String::new(), log));
}

#[test]
fn a_changed_source_is_built_and_nothing_else_is_said() {
    let machine = Machine::ready();
    let (status, _, said) = text(machine.start("works").output().unwrap());
    assert_eq!((status, without_progress(&said)), (Some(0), vec![]));

    let source = machine.clone_folder().join("crates/tunesmith/src/main.rs");
    let later = fs::metadata(machine.clone_folder().join("target/release/tunesmith")).unwrap();
    let later = later.modified().unwrap() + Duration::from_millis(1);
    fs::File::create(source)
        .and_then(|file| file.set_modified(later))
        .unwrap();
    let (status, printed, said) = text(machine.start("works").output().unwrap());
    assert_eq!((status, printed), (Some(0), machine.hello()));
    assert!(without_progress(&said).is_empty(), "{said}");
}

#[test]
fn a_build_that_fails_shows_the_last_messages_and_where_all_are() {
    let machine = Machine::ready();
    let (status, printed, said) = text(machine.start("fails").output().unwrap());
    assert_eq!((status, printed), (Some(1), String::new()));
    let mut expected: Vec<String> = (11..=30).map(|n| format!("message {n}")).collect();
    expected.push(format!(
        "error: Tunesmith does not build; all messages are in {}/target/setup.log",
        machine.clone_folder().display()
    ));
    assert_eq!(without_progress(&said), expected);
    assert!(machine.log().contains("\nmessage 1\n"));
}

#[test]
fn a_package_that_cannot_be_installed_ends_the_start() {
    let machine = Machine::bare();
    let mut start = machine.start("works");
    let (status, printed, said) = text(start.env("FAKE_APT", "fails").output().unwrap());
    assert_eq!((status, printed), (Some(1), String::new()));
    for part in [
        "E: Unable to fetch some archives",
        "target/setup.log",
        "error: apt-get could not install: gcc g++ libc6-dev llvm-22-dev",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_signal_ends_cargo_and_its_compilers_as_well() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let machine = Machine::ready();
        let start = machine.start("hangs").spawn().unwrap();
        let processes = machine.processes();
        assert_eq!(processes.len(), 2);
        // One that is just being started may have no command line yet.
        wait_until("both run", || processes.iter().all(|p| runs(p)));
        let send = format!("kill -{signal} {}", start.id());
        assert!(
            machine
                .command(&["bash", "-c", &send])
                .status()
                .unwrap()
                .success()
        );
        let (status, printed, said) = ended(start);
        assert_eq!((status, printed), (Some(code), String::new()), "{said}");
        assert_eq!(
            without_progress(&said),
            ["stopped; the next start goes on from here"]
        );
        wait_until("both end", || !processes.iter().any(|p| runs(p)));
    }
}

#[test]
fn a_terminal_shows_progress_in_one_line_and_ctrl_c_ends_cargo() {
    let machine = Machine::ready();
    let Some(mut start) = machine.start_on_terminal("hangs") else {
        eprintln!(
            "skipped: a_terminal_shows_progress_in_one_line_and_ctrl_c_ends_cargo: no `script`"
        );
        return;
    };
    let mut start = start.spawn().unwrap();
    let processes = machine.processes();
    let mut keys = start.stdin.take().unwrap();
    keys.write_all(b"\x03").unwrap();
    let (status, shown, _) = ended(start);
    drop(keys);
    assert_eq!(status, Some(130), "{shown}");
    assert!(
        shown.ends_with("\r\nstopped; the next start goes on from here\r\n"),
        "{shown:?}"
    );
    wait_until("both end", || !processes.iter().any(|p| runs(p)));

    let mut start = machine.start_on_terminal("works").unwrap();
    let (status, shown, _) = text(start.output().unwrap());
    assert_eq!(status, Some(0), "{shown}");
    let lines: Vec<&str> = shown.split("\r\n").collect();
    assert_eq!(lines.len(), 3, "{shown:?}");
    assert!(
        lines[0].starts_with("\rbuilding Tunesmith: crate "),
        "{shown:?}"
    );
    assert!(
        lines[0].contains("\rbuilding Tunesmith: crate 2 of 2, "),
        "{shown:?}"
    );
    assert_eq!(lines[1], machine.hello().trim_end());
}
