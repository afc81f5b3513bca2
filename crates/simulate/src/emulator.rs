//! Running executables: those of this machine directly, all others in QEMU's emulation of a user's process.

use crate::cache::CacheSetting;
use crate::statistics::Statistics;
use ir::{Isa, Target};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group,
    set_parent_process_death_signal, waitid,
};
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often it is seen whether a process has ended.
const POLL: Duration = Duration::from_millis(2);

#[derive(Debug, Error)]
pub enum EmulatorError {
    #[error("`{program}` does not start ({error}); install qemu-user")]
    Missing { program: String, error: io::Error },
    #[error("the executable did not end within {} s; give it more time, or take smaller shapes", .0.as_secs())]
    TimedOut(Duration),
    #[error("the executable was ended before its time")]
    Stopped,
    #[error("the executable failed ({status}): {stderr}")]
    Failed { status: ExitStatus, stderr: String },
    #[error("{0} has no plugins; Debian's qemu-user has them, and qemu-user-static has not")]
    NoPlugins(&'static str),
    #[error(
        "what the plugin counted cannot be read: {0}; build the plugin and this program from one source"
    )]
    Counts(#[from] serde_json::Error),
    #[error("a file of the executable cannot be read or written: {0}")]
    File(#[from] io::Error),
}

/// What runs executables of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulator {
    program: &'static str,
    arguments: &'static [&'static str],
}

impl Emulator {
    /// The emulator of a target.
    ///
    /// # Errors
    /// If it does not start on this machine.
    pub fn find(target: &Target) -> Result<Emulator, EmulatorError> {
        let Target::Cpu(cpu) = target;
        let (program, arguments): (_, &[&str]) = match cpu.isa {
            Isa::X86Sse2 | Isa::X86Avx2 | Isa::X86Avx512 => ("qemu-x86_64", &["-cpu", "max"]),
            Isa::AArch64Neon => ("qemu-aarch64", &["-cpu", "max"]),
            Isa::RiscV64Gc => ("qemu-riscv64", &["-cpu", "sifive-u54"]),
            Isa::RiscV64Rvv => (
                "qemu-riscv64",
                &["-cpu", "rv64,v=true,vlen=256,vext_spec=v1.0"],
            ),
        };
        let found = Emulator { program, arguments };
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null());
        match version.status() {
            Ok(_) => Ok(found),
            Err(error) => Err(EmulatorError::Missing {
                program: program.into(),
                error,
            }),
        }
    }

    /// A command that runs an executable with further options of the emulator.
    pub fn command(&self, options: &[String], executable: &Path) -> Command {
        let mut command = Command::new(self.program);
        command.args(self.arguments).args(options).arg(executable);
        command
    }

    /// What the marked part of an executable does with caches that are empty at its begin. The plugin is the example
    /// `qemu_counts` of this crate. The setting and the counts are in files beside the executable, named like it.
    ///
    /// # Errors
    /// If the emulator has no plugins, or the executable does not succeed in time.
    pub fn counts(
        &self,
        plugin: &Path,
        executable: &Path,
        setting: &CacheSetting,
        limit: Duration,
    ) -> Result<Statistics, EmulatorError> {
        let [setting_file, out] = ["setting", "counts"].map(|e| executable.with_extension(e));
        fs::write(&setting_file, serde_json::to_string(setting)?)?;
        let option = format!(
            "{},setting={},out={}",
            plugin.display(),
            setting_file.display(),
            out.display()
        );
        let command = self.command(&["-plugin".into(), option], executable);
        match output(command, limit) {
            Err(EmulatorError::Failed { .. }) if !self.has_plugins() => {
                Err(EmulatorError::NoPlugins(self.program))
            }
            ran => ran.and_then(|_| Ok(serde_json::from_str(&fs::read_to_string(&out)?)?)),
        }
    }

    fn has_plugins(&self) -> bool {
        let help = Command::new(self.program).arg("-help").output();
        help.is_ok_and(|h| String::from_utf8_lossy(&h.stdout).contains("-plugin"))
    }
}

/// What a command writes to its standard output. It is killed when it takes longer than `limit`, and what it started ends
/// with it. It also dies with the thread that calls this.
///
/// # Errors
/// If it does not start, does not end in time, or does not succeed.
pub fn output(command: Command, limit: Duration) -> Result<Vec<u8>, EmulatorError> {
    output_unless(command, limit, &|| false)
}

/// As [`output`]; the command is also killed once `stopped` says so.
///
/// # Errors
/// As those of [`output`], and [`EmulatorError::Stopped`].
pub fn output_unless(
    mut command: Command,
    limit: Duration,
    stopped: &dyn Fn() -> bool,
) -> Result<Vec<u8>, EmulatorError> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    die_with_parent(&mut command);
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|error| EmulatorError::Missing {
        program: command.get_program().display().to_string(),
        error,
    })?;
    let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let group = Pid::from_child(&child);
    let ended_for = loop {
        if has_ended(group)? {
            break None;
        }
        if begun.elapsed() > limit {
            break Some(EmulatorError::TimedOut(limit));
        }
        if stopped() {
            break Some(EmulatorError::Stopped);
        }
        thread::sleep(POLL);
    };
    // Whatever is left of the group would hold the pipes open. Nobody waited for the child yet, so its id names no other
    // group.
    let killed = kill_process_group(group, Signal::KILL);
    if let Some(why) = ended_for {
        killed.map_err(io::Error::from)?;
        child.wait()?;
        return Err(why);
    }
    let status = child.wait()?;
    let read = |t: thread::JoinHandle<io::Result<Vec<u8>>>| t.join().expect("reading never panics");
    let (stdout, stderr) = (read(stdout)?, read(stderr)?);
    match status.success() {
        true => Ok(stdout),
        false => Err(EmulatorError::Failed {
            status,
            stderr: String::from_utf8_lossy(&stderr).trim().to_string(),
        }),
    }
}

/// Has the system kill the command when the thread that starts it is gone, however that ended.
fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the system was asked.
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(Errno::SRCH.into()),
        }
    };
    // SAFETY: between fork and exec it makes system calls only.
    unsafe { command.pre_exec(ask) };
}

/// Whether a child has ended, which can be waited for all the same.
fn has_ended(child: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    match waitid(WaitId::Pid(child), options) {
        Ok(status) => Ok(status.is_some()),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads a pipe to its end beside the process that writes it.
fn drain(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<io::Result<Vec<u8>>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn ran(line: &str, limit: Duration) -> Result<Vec<u8>, EmulatorError> {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]);
        output(shell, limit)
    }

    #[test]
    fn what_a_command_leaves_ends_with_it() {
        let begun = Instant::now();
        let said = ran("sleep 60 & echo begun", Duration::from_secs(30));
        assert_eq!(said.unwrap(), b"begun\n");
        let late = ran("sleep 60 & sleep 60", Duration::from_millis(50));
        assert!(matches!(late, Err(EmulatorError::TimedOut(_))));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_command_is_ended_when_somebody_says_so() {
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        let ended = output_unless(sleep, Duration::from_secs(30), &|| true);
        assert!(matches!(ended, Err(EmulatorError::Stopped)));
    }

    #[test]
    fn a_command_dies_with_the_thread_that_started_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let mut shell = Command::new("sh");
        let line = format!("echo $$ >{}; exec sleep 60", file.display());
        shell.args(["-c", &line]);
        shell.stdin(Stdio::null());
        die_with_parent(&mut shell);
        let child = thread::spawn(move || {
            let child = shell.spawn().unwrap();
            let begun = Instant::now();
            while !fs::read_to_string(&file).is_ok_and(|t| t.ends_with('\n')) {
                assert!(begun.elapsed() < Duration::from_secs(30));
                thread::sleep(POLL);
            }
            child
        });
        let status = child.join().unwrap().wait().unwrap();
        assert_eq!(status.signal(), Some(9));
    }
}
