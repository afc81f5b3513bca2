//! Where a run works: the machine, and the programs of its worker processes.

use crate::machine::Machine;
use std::path::Path;
use std::process::{Command, Stdio};
use worker::CommandLine;

/// The commands that start worker processes; the library is told them, as the program that
/// it is part of may be another (an application, `python`).
#[derive(Clone, Debug)]
pub struct Workers {
    /// Starts a builder: ends up in [`build::serve`].
    pub builder: CommandLine,
    /// Starts a runner: ends up in [`measure::serve`].
    pub runner: CommandLine,
}

impl Workers {
    /// The workers of a `tunesmith` program: that program itself, and for runners
    /// `tunesmith-runner`, which holds no compiler and starts at once, if it lies
    /// beside and was built from the same sources.
    pub fn of_program(program: &Path) -> Workers {
        let own = |kind: &str| CommandLine {
            program: program.to_path_buf(),
            args: vec!["worker".into(), kind.into()],
            cpus: vec![],
        };
        let beside = CommandLine {
            program: program.with_file_name("tunesmith-runner"),
            args: vec![],
            cpus: vec![],
        };
        let same = is_runner_of_these_sources(&beside.program);
        Workers {
            builder: own("build"),
            runner: if same { beside } else { own("run") },
        }
    }
}

/// The machine that a run builds and measures on.
#[derive(Clone, Debug)]
pub struct Host {
    pub machine: Machine,
    pub workers: Workers,
}

fn is_runner_of_these_sources(program: &Path) -> bool {
    let said = Command::new(program)
        .arg(measure::IDENTITY_FLAG)
        .stdin(Stdio::null())
        .output();
    said.is_ok_and(|said| said.stdout == measure::IDENTITY.as_bytes())
}
