//! Running the program in a folder of its own, and a tuned operator to run it on.

use assert_cmd::Command;
use serde_json::Value;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tempfile::TempDir;

/// Tuned by every test that needs something tuned; large enough to have
/// sketches and small enough to build in no time.
pub const OP: &str = "op:dense(m=4,n=32,k=16)";
pub const TRIALS: u64 = 6;

/// A folder that holds all that the program writes.
pub struct Sandbox {
    pub folder: PathBuf,
    /// What each program does to itself before it begins.
    pub before: Option<fn() -> std::io::Result<()>>,
    /// Variables of the environment of each.
    pub variables: Vec<(&'static str, String)>,
}

/// Has permissions hold for root, too. Others they hold for anyway.
pub fn obey_permissions() -> std::io::Result<()> {
    const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
    const CAP_DAC_READ_SEARCH: libc::c_ulong = 2;
    for right in [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH] {
        // SAFETY: a call that takes numbers only.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, right, 0, 0, 0) };
    }
    Ok(())
}

pub fn place(folder: &TempDir) -> Sandbox {
    Sandbox {
        folder: folder.path().to_path_buf(),
        before: None,
        variables: vec![],
    }
}

impl Sandbox {
    pub fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// A command of the program. What a user of `tune` has seconds for is short or left out: the comparison
    /// at the end, and reading before.
    fn program(args: &[&str]) -> std::process::Command {
        let mut c = std::process::Command::new(env!("CARGO_BIN_EXE_tunesmith"));
        c.args(args);
        let given = |part: &str| args.iter().any(|a| a.contains(part));
        // Without a measurement there is nothing to compare.
        let reads = (given("static") || given("simulate")) && given("--target");
        if args.first() == Some(&"tune") && !reads {
            for (option, short) in [("--compare-time", "200ms"), ("--read-time", "0s")] {
                if !given(option) {
                    c.args([option, short]);
                }
            }
        }
        c
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut c = Sandbox::program(args);
        if let Some(before) = self.before {
            // SAFETY: it makes system calls only.
            unsafe { c.pre_exec(before) };
        }
        let mut c = Command::from_std(c);
        c.current_dir(&self.folder)
            .env("XDG_CACHE_HOME", self.folder.join("cache"))
            .env("XDG_DATA_HOME", self.folder.join("data"))
            .env("HOME", &self.folder)
            .env("NO_COLOR", "1")
            // Lines are looked at whole, unless a test is about screens.
            .env("COLUMNS", "1000")
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        c
    }

    /// What a command prints, and how it ends.
    pub fn output(&self, args: &[&str]) -> std::process::Output {
        self.command(args).output().expect("the program starts")
    }

    /// What a successful command prints.
    pub fn ok(&self, args: &[&str]) -> String {
        let out = self.output(args);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{args:?}: {}\n{stderr}", out.status);
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        String::from_utf8(out.stdout).expect("text")
    }

    /// What a command that succeeds says on standard error.
    pub fn warnings(&self, args: &[&str]) -> String {
        let out = self.output(args);
        assert!(out.status.success(), "{args:?}: {}", out.status);
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// What a successful command prints on a screen of so many columns.
    pub fn on_screen(&self, columns: usize, args: &[&str]) -> String {
        let mut c = self.command(args);
        let out = c.env("COLUMNS", columns.to_string()).output();
        let out = out.expect("the program starts");
        assert!(out.status.success(), "{args:?}: {out:?}");
        String::from_utf8(out.stdout).expect("text")
    }

    /// A command that a test starts and watches itself.
    pub fn started(&self, args: &[&str]) -> Child {
        let mut c = Sandbox::program(args);
        // SAFETY: it makes system calls only. Tests that run in the background ignore Ctrl-C, and what they start would.
        unsafe {
            c.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        c.current_dir(&self.folder)
            .env("XDG_CACHE_HOME", self.folder.join("cache"))
            .env("XDG_DATA_HOME", self.folder.join("data"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        c.spawn().expect("the program starts")
    }

    /// The one object that a command with `--json` prints.
    pub fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        one_object(&self.ok(&args))
    }

    /// As [`json`](Sandbox::json), of a command with this on standard input.
    pub fn json_from(&self, input: &str, args: &[&str]) -> Value {
        let mut c = self.command(args);
        let out = c.arg("--json").write_stdin(input).output();
        let out = out.expect("the program starts");
        assert!(out.status.success(), "{args:?}: {out:?}");
        one_object(&String::from_utf8(out.stdout).expect("text"))
    }

    /// The one error of a command that fails, in one line.
    pub fn error(&self, args: &[&str]) -> String {
        let out = self.command(args).output().expect("the program starts");
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success(), "{args:?} succeeded");
        assert!(out.status.code().is_some(), "{args:?}: {}", out.status);
        assert!(out.stdout.is_empty(), "{args:?} printed a result");
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        let errors = stderr
            .lines()
            .filter(|l| l.starts_with("error:") || l.trim_start().starts_with('×'))
            .count();
        assert_eq!(errors, 1, "{args:?}: {stderr}");
        let words = stderr.replace('│', " ");
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

pub fn one_object(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert!(value.is_object(), "{text}");
    value
}

/// Waits until something is there, such as what a program has written.
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(300), "no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a child that was not waited for.
pub fn send(child: &Child, signal: i32) {
    // SAFETY: a call that takes numbers only.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// What one `tune` left, shared by the tests that only read it.
pub struct Tuned {
    pub place: Sandbox,
    pub store: String,
    pub artifact: String,
    pub report: Value,
}

impl Tuned {
    /// Tasks that `compile` takes a measured schedule for.
    pub fn measured_tasks(&self) -> u64 {
        u64::from(self.report["kept_default"].is_null())
    }
}

/// Tunes [`OP`] once a build of the program and start of the machine: test processes share it.
pub fn tuned() -> &'static Tuned {
    static TUNED: OnceLock<Tuned> = OnceLock::new();
    TUNED.get_or_init(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let name = format!("{PREFIX}{}", build());
        let folder = root.join(&name);
        // Who comes first tunes, and others wait.
        let lock = File::create(root.join("tuned.lock")).expect("the folder for tests is writable");
        lock.lock().expect("files can be locked");
        let place = Sandbox {
            folder,
            before: None,
            variables: vec![],
        };
        let (store, artifact) = (place.file("store.sqlite"), place.file("tuned.tsm"));
        let told = place.folder.join("report.json");
        if !told.exists() {
            remove_old(root);
            std::fs::create_dir_all(&place.folder).expect("the folder for tests is writable");
            let trials = TRIALS.to_string();
            let report = place.json(&[
                "tune",
                OP,
                "--threads",
                "1",
                "--trials",
                &trials,
                "--store",
                &store,
                "--out",
                &artifact,
            ]);
            // At last, and whole: a process may be killed in between.
            let new = place.folder.join("report.new");
            std::fs::write(&new, report.to_string()).expect("the folder for tests is writable");
            std::fs::rename(&new, &told).expect("the folder for tests is writable");
        }
        let report = one_object(&std::fs::read_to_string(&told).expect("the report of the run"));
        Tuned {
            place,
            store,
            artifact,
            report,
        }
    })
}

const PREFIX: &str = "tuned-";

/// A name for what was built when, and for the time since the machine started.
fn build() -> String {
    let built = |program: &str| {
        let at = std::fs::metadata(program).and_then(|m| m.modified());
        let at = at.expect("cargo has built the program");
        at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos())
    };
    let (program, runner) = (
        built(env!("CARGO_BIN_EXE_tunesmith")),
        built(env!("CARGO_BIN_EXE_tunesmith-runner")),
    );
    let started = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{program}-{runner}-{}", started.trim())
}

/// Removes what was tuned by other builds: a static is never dropped.
fn remove_old(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
