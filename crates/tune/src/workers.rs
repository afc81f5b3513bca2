//! Where a run works: the machine, and the programs of its worker processes.
//!
//! Candidates are built and run in child processes. The library does not guess which program
//! to start for them, as the program that it is part of may be an application or `python`:
//! the caller names one that serves as a worker ([`serve_worker_if_asked`]).

use crate::error::{Error, Result};
use crate::machine::Machine;
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use worker::{CommandLine, Stop};

/// The first argument of a program that is started as a worker; the second is a [`Duty`].
const WORKER_FLAG: &str = "--tunesmith-worker";

/// Time that a program has for saying who it is, which takes a worker no time; a program
/// that knows nothing of workers may never end.
const IDENTIFYING: Duration = Duration::from_secs(10);
/// Bytes of what it says that are read: more than an identity has.
const MOST_SAID: u64 = 4096;

/// What a program that is started as a worker is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Build,
    Run,
    /// To print [`identity`].
    Identify,
}

impl Duty {
    const ALL: [Duty; 3] = [Duty::Build, Duty::Run, Duty::Identify];

    fn name(self) -> &'static str {
        match self {
            Duty::Build => "build",
            Duty::Run => "run",
            Duty::Identify => "identify",
        }
    }

    /// What a program with these arguments is asked to do; the program's name left out.
    fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<Duty> {
        if arguments.next()? != WORKER_FLAG {
            return None;
        }
        let name = arguments.next()?;
        Duty::ALL.into_iter().find(|t| name == t.name())
    }

    /// What this process was asked to do when it was started.
    fn of_this_process() -> Option<Duty> {
        Duty::asked(std::env::args_os().skip(1))
    }

    fn arguments(self) -> Vec<String> {
        vec![WORKER_FLAG.into(), self.name().into()]
    }
}

/// What a parent and its workers must have in common: how they compile, and how they talk.
fn identity() -> String {
    format!("{} {}", build::toolchain(), measure::IDENTITY)
}

/// Serves as a worker process if this process was started as one, until its parent needs it
/// no longer; whether it was. A program whose own path is given to [`Workers`] calls this
/// first in `main` and ends if it returns true.
///
/// # Errors
/// If the pipes to the parent fail.
pub fn serve_worker_if_asked() -> Result<bool> {
    match Duty::of_this_process() {
        None => return Ok(false),
        Some(Duty::Build) => build::serve()?,
        Some(Duty::Run) => measure::serve()?,
        Some(Duty::Identify) => std::io::stdout().write_all(identity().as_bytes())?,
    }
    Ok(true)
}

/// The commands that start worker processes.
#[derive(Clone, Debug)]
pub struct Workers {
    /// Starts a builder: ends up in [`build::serve`].
    pub builder: CommandLine,
    /// Starts a runner: ends up in [`measure::serve`].
    pub runner: CommandLine,
}

impl Workers {
    /// The same workers, whose work ends when a stop is asked for.
    #[must_use]
    pub fn stopped_by(&self, stop: &Stop) -> Workers {
        let by = |command: &CommandLine| CommandLine {
            stop: stop.clone(),
            ..command.clone()
        };
        Workers {
            builder: by(&self.builder),
            runner: by(&self.runner),
        }
    }

    /// The workers of a program that calls [`serve_worker_if_asked`], such as the command line
    /// `tunesmith`.
    ///
    /// # Errors
    /// If the program cannot be started, does not serve as a worker, does so for another
    /// version of this library, or does not say so within 10 seconds.
    pub fn of_program(program: &Path) -> Result<Workers> {
        refuse_in_a_worker()?;
        let fail = |why: String| {
            let shown = program.display();
            Error::new(format!("{shown} cannot serve as a worker: {why}")).help(
                "name the program `tunesmith`, or one that calls `serve_worker_if_asked` first \
                 in `main`, built from the same sources as this library",
            )
        };
        let said = said(program, &Duty::Identify.arguments(), IDENTIFYING);
        let said = said.map_err(|e| fail(e.to_string()))?;
        if said != identity().as_bytes() {
            return Err(fail("it does not say that it is of this version".into()));
        }
        Ok(Workers::of_same(program.to_path_buf()))
    }

    /// The workers of the program that runs now, which calls [`serve_worker_if_asked`].
    ///
    /// # Errors
    /// If the program's file cannot be told, or this process is a worker whose program did
    /// not serve.
    pub fn of_this_program() -> Result<Workers> {
        refuse_in_a_worker()?;
        let program = std::env::current_exe()
            .map_err(|e| Error::new(format!("cannot tell where this program lies: {e}")))?;
        Ok(Workers::of_same(program))
    }

    /// The workers of a program of this version: that program itself, and for runners
    /// `tunesmith-runner`, which holds no compiler and starts at once, if it lies beside and
    /// was built from the same sources.
    fn of_same(program: PathBuf) -> Workers {
        let beside = CommandLine {
            program: program.with_file_name("tunesmith-runner"),
            args: vec![],
            cpus: vec![],
            stop: Stop::default(),
        };
        let own = |duty: Duty| CommandLine {
            program: program.clone(),
            args: duty.arguments(),
            cpus: vec![],
            stop: Stop::default(),
        };
        let flag = [measure::IDENTITY_FLAG.to_string()];
        let said = said(&beside.program, &flag, IDENTIFYING);
        let same = said.is_ok_and(|s| s == measure::IDENTITY.as_bytes());
        Workers {
            builder: own(Duty::Build),
            runner: if same { beside } else { own(Duty::Run) },
        }
    }
}

/// A worker that starts workers would do so without end.
fn refuse_in_a_worker() -> Result<()> {
    match Duty::of_this_process() {
        None => Ok(()),
        Some(_) => Err(
            Error::new("this process was started as a worker and did not serve as one")
                .help("call `serve_worker_if_asked` first in `main`"),
        ),
    }
}

/// How a program's standard output begins, which is all of an identity. The program is ended.
///
/// # Errors
/// If it cannot be started, or its output does not end within `limit`.
fn said(program: &Path, arguments: &[String], limit: Duration) -> std::io::Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (outbox, inbox) = channel();
    let output = child.stdout.take();
    // A thread of its own, as reading a pipe has no limit.
    std::thread::spawn(move || {
        let mut said = Vec::new();
        let read = output.map_or(Ok(0), |o| o.take(MOST_SAID).read_to_end(&mut said));
        // Nobody listens any more where it took too long.
        let _ = outbox.send(read.map(|_| said));
    });
    let said = inbox.recv_timeout(limit).unwrap_or_else(|_| {
        let why = format!("it was asked who it is and did not answer within {limit:?}");
        Err(std::io::Error::new(ErrorKind::TimedOut, why))
    });
    // It may have ended by itself.
    let _ = child.kill();
    child.wait()?;
    said
}

/// The machine that a run builds and measures on, and who does it.
#[derive(Clone, Debug)]
pub struct Host {
    pub machine: Machine,
    pub workers: Workers,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_started_with_arguments_that_they_understand() {
        let asked = |arguments: &[&str]| Duty::asked(arguments.iter().map(OsString::from));
        for duty in Duty::ALL {
            let arguments = duty.arguments();
            let given = arguments.iter().map(OsString::from);
            assert_eq!(Duty::asked(given), Some(duty));
        }
        let others: [&[&str]; 4] = [&[], &["build"], &[WORKER_FLAG], &[WORKER_FLAG, "tune"]];
        for other in others {
            assert_eq!(asked(other), None);
        }
        assert_eq!(asked(&["x", WORKER_FLAG, "build"]), None);
    }

    #[test]
    fn a_program_that_never_says_who_it_is_is_waited_for_so_long() {
        let of = |program: &str, argument: &str, limit| {
            said(Path::new(program), &[argument.to_string()], limit)
        };
        let short = Duration::from_millis(50);
        let silent = of("sleep", "100000", short).unwrap_err();
        assert_eq!(silent.kind(), ErrorKind::TimedOut);
        assert!(silent.to_string().contains("within 50ms"), "{silent}");
        // Nor is one that never stops talking read to its end.
        let endless = of("yes", "on and on", IDENTIFYING).unwrap();
        assert_eq!(endless.len() as u64, MOST_SAID);
        assert_eq!(of("echo", "me", IDENTIFYING).unwrap(), b"me\n");
        assert!(of("/no/such/program", "", IDENTIFYING).is_err());
    }
}
