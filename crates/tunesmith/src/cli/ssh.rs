//! Boards that OpenSSH's client reaches: executables are copied, timed one after the other, and removed.
//!
//! `ssh` and `scp` read the user's configuration, so keys, ports and jump hosts are set there or by `--ssh-option`. Nobody
//! is asked for a password.

use super::board::script;
use super::parse::{parse_duration, parse_time};
use simulate::{EmulatorError, output, output_unless};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tune::{Error, Result, Stop};

/// Executables that are copied and timed at once.
const BATCH: usize = 32;
/// Time for a connection, and for copying a batch.
const CONNECT: Duration = Duration::from_secs(30);
const COPY: Duration = Duration::from_secs(300);
const SCRIPT_NAME: &str = "time.sh";

/// A board, and how executables are timed there.
#[derive(clap::Args, Clone)]
pub struct BoardArgs {
    /// Time the executables on this machine, over ssh, such as user@host or a name of your ssh configuration
    #[arg(long, value_name = "HOST")]
    board: Option<String>,
    /// Option of ssh and scp, such as Port=2222 or IdentityFile=key; may be given several times
    #[arg(long, value_name = "KEY=VALUE", requires = "board")]
    ssh_option: Vec<String>,
    /// Pause of the board after each executable
    #[arg(long, value_name = "TIME", requires = "board", value_parser = parse_duration, default_value = "1s")]
    cooldown: Duration,
    /// Time that an executable may take on the board
    #[arg(long, value_name = "TIME", requires = "board", value_parser = parse_time, default_value = "60s")]
    board_limit: Duration,
}

/// A board with a folder of ours, which is removed in the end.
pub struct Board<'a> {
    host: &'a str,
    args: &'a BoardArgs,
    /// As `uname -m` calls it.
    machine: String,
    folder: String,
    /// Ends timing before its time.
    stop: Stop,
}

/// What a board says of executables.
#[derive(Debug, Default, PartialEq)]
pub struct Times {
    /// The nanoseconds of each executable's calls.
    pub ns: BTreeMap<String, Vec<u64>>,
    /// The exit status of each that failed.
    pub failed: BTreeMap<String, u32>,
}

impl Times {
    /// Tells people what failed, the first of each reason.
    pub fn complain(&self) {
        let mut reasons: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for (name, status) in &self.failed {
            reasons.entry(*status).or_default().push(name);
        }
        for (status, names) in reasons {
            let why = reason(status);
            eprintln!(
                "{} executables failed on the board, such as {}: {why}",
                names.len(),
                names[0]
            );
        }
    }
}

impl BoardArgs {
    /// The board's name for ssh.
    pub fn host(&self) -> Option<&str> {
        self.board.as_deref()
    }

    pub fn is_given(&self) -> bool {
        self.board.is_some()
    }

    /// Connects to the board; none if none is asked for. `stop` ends timing there before its time.
    ///
    /// # Errors
    /// If there is no ssh here, or the board does not answer.
    pub fn connect(&self, stop: &Stop) -> Result<Option<Board<'_>>> {
        let Some(host) = self.board.as_deref() else {
            return Ok(None);
        };
        if host.is_empty() || host.starts_with('-') {
            return Err(Error::new(format!("--board: `{host}` is no host")).help("give user@host"));
        }
        let begin = "uname -m && mktemp -d -t tunesmith.XXXXXXXX";
        let said = self.on(host, begin, CONNECT)?;
        let mut lines = said.lines().map(str::trim).rev();
        let (folder, machine) = (lines.next(), lines.next());
        match (machine, folder) {
            (Some(machine), Some(folder)) if is_plain(folder) => Ok(Some(Board {
                host,
                args: self,
                machine: machine.into(),
                folder: folder.into(),
                stop: stop.clone(),
            })),
            _ => Err(
                Error::new(format!("{host} made no folder, but said: {said}"))
                    .help("the board needs a shell, uname and mktemp"),
            ),
        }
    }

    /// Runs a line of shell there; what it writes.
    fn on(&self, host: &str, line: &str, limit: Duration) -> Result<String> {
        let said = output(self.ssh(host, line), limit).map_err(|e| failure(host, "ssh", e))?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    fn ssh(&self, host: &str, line: &str) -> Command {
        let mut command = Command::new("ssh");
        command.args(self.options()).args([host, line]);
        command
    }

    /// Options of ssh and scp. The first value of a key counts, so the user's come first.
    fn options(&self) -> Vec<String> {
        let own = [
            "BatchMode=yes".into(),
            format!("ConnectTimeout={}", CONNECT.as_secs() / 2),
        ];
        let all = self.ssh_option.iter().cloned().chain(own);
        all.flat_map(|o| ["-o".to_string(), o]).collect()
    }
}

/// Whether no shell reads anything into a path.
fn is_plain(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    path.starts_with('/') && path.chars().all(plain)
}

fn failure(host: &str, program: &str, error: EmulatorError) -> Error {
    let said = |why: &str| Error::new(format!("{host}: {why}"));
    match error {
        EmulatorError::Missing { error, .. } => {
            Error::new(format!("`{program}` does not start ({error})"))
                .help("install OpenSSH's client")
        }
        EmulatorError::TimedOut(limit) => said(&format!(
            "{program} did not end within {} s",
            limit.as_secs()
        ))
        .help("see whether the board is reached and idle"),
        // What ssh itself says when it does not get to the board.
        EmulatorError::Failed { status, stderr } if status.code() == Some(255) => {
            said(&format!("cannot connect: {stderr}")).help(format!(
                "see whether `ssh {host} true` works without a password"
            ))
        }
        EmulatorError::Failed { status, stderr } => {
            said(&format!("{program} failed ({status}): {stderr}"))
                .help("the board needs a shell, and room in /tmp")
        }
        other => said(&other.to_string()).help(format!("see whether `{program}` works here")),
    }
}

/// What cannot be done with a file of this machine.
fn unread(path: &Path) -> impl Fn(io::Error) -> Error {
    move |e| {
        Error::new(format!("{}: {e}", path.display()))
            .help("see whether the folder is there, and whether you may read and write it")
    }
}

/// The machine of an executable as `uname -m` calls it.
fn machine_of(executable: &[u8]) -> Option<&'static str> {
    let elf = executable.starts_with(b"\x7fELF");
    let number = elf.then(|| executable.get(18..20)).flatten()?;
    match u16::from_le_bytes(number.try_into().ok()?) {
        62 => Some("x86_64"),
        183 => Some("aarch64"),
        243 => Some("riscv64"),
        _ => None,
    }
}

impl Board<'_> {
    /// Times executables of a folder `rounds` times each, one after the other. After a stop, these are the times that
    /// the board had.
    ///
    /// # Errors
    /// If one is for another machine, or cannot be copied, or the board is lost.
    pub fn times(&self, folder: &Path, names: &[String], rounds: u32) -> Result<Times> {
        // scp takes a `-` for an option, and what is before a `:` for a host, but not behind a `/`.
        let folder = &folder.canonicalize().map_err(unread(folder))?;
        let path = folder.join(SCRIPT_NAME);
        // That of an exported folder says whose times they are.
        if !path.exists() {
            std::fs::write(&path, script(None)).map_err(unread(&path))?;
        }
        let mut all = Times::default();
        for batch in names.chunks(BATCH) {
            if self
                .until_stopped(self.copy(folder, batch)?, "scp", COPY)?
                .is_none()
            {
                break;
            }
            let [pause, limit] = [self.args.cooldown, self.args.board_limit];
            let line = format!(
                "cd {0} && sh {SCRIPT_NAME} {rounds} {pause} {limit} 2>failed.txt; code=$?; cat times.txt failed.txt; \
                 [ $code = 0 ] || cat failed.txt >&2; rm -f {0}/*; exit $code",
                self.folder,
                pause = pause.as_secs_f64(),
                limit = limit.as_secs_f64(),
            );
            let starts = rounds.saturating_mul(batch.len() as u32);
            let all_starts = limit.saturating_add(pause).checked_mul(starts);
            let patience = all_starts.map_or(Duration::MAX, |t| t.saturating_add(CONNECT));
            let script = self.args.ssh(self.host, &line);
            let Some(said) = self.until_stopped(script, "ssh", patience)? else {
                // What was measured is still there: the script removes it in its end.
                let known = format!("cat {}/times.txt", self.folder);
                let said = self.args.on(self.host, &known, CONNECT);
                said.into_iter()
                    .for_each(|said| read(&said, batch, &mut all));
                break;
            };
            read(&said, batch, &mut all);
        }
        Ok(all)
    }

    /// What a command writes; nothing if the stop came before its end.
    fn until_stopped(
        &self,
        command: Command,
        program: &str,
        limit: Duration,
    ) -> Result<Option<String>> {
        match output_unless(command, limit, &|| self.stop.is_asked()) {
            Ok(said) => Ok(Some(String::from_utf8_lossy(&said).into_owned())),
            Err(EmulatorError::Stopped) => Ok(None),
            Err(e) => Err(failure(self.host, program, e)),
        }
    }

    /// The command that copies executables and the script to the board.
    fn copy(&self, folder: &Path, names: &[String]) -> Result<Command> {
        let paths: Vec<_> = names.iter().map(|n| folder.join(n)).collect();
        for path in &paths {
            let bytes = std::fs::read(path).map_err(unread(path))?;
            let wanted = machine_of(&bytes).unwrap_or(&self.machine);
            if wanted != self.machine {
                let why = format!(
                    "{} is for {wanted}, and {} is {}",
                    path.display(),
                    self.host,
                    self.machine
                );
                return Err(Error::new(why).help("name another --target or another --board"));
            }
        }
        let mut command = Command::new("scp");
        command.args(self.args.options()).args(["-q", "-p"]);
        command.args(paths).arg(folder.join(SCRIPT_NAME));
        command.arg(format!("{}:{}/", self.host, self.folder));
        Ok(command)
    }
}

impl Drop for Board<'_> {
    fn drop(&mut self) {
        let removed = self
            .args
            .on(self.host, &format!("rm -rf {}", self.folder), CONNECT);
        if removed.is_err() {
            let (host, folder) = (self.host, &self.folder);
            eprintln!(
                "{host}: {folder} could not be removed; remove it with `ssh {host} rm -r {folder}`"
            );
        }
    }
}

/// Adds what the script said of a batch. Lines that are not the script's are passed over.
fn read(said: &str, batch: &[String], all: &mut Times) {
    for line in said.lines() {
        let Some((name, rest)) = line.split_once(' ') else {
            continue;
        };
        if !batch.iter().any(|n| n == name) {
            continue;
        }
        if let Ok(ns) = rest.parse() {
            all.ns.entry(name.into()).or_default().push(ns);
        } else if let Some(Ok(status)) = rest.strip_prefix("failed with status ").map(str::parse) {
            all.failed.insert(name.into(), status);
        }
    }
}

/// Why an executable failed, by the exit status that a shell gives it.
fn reason(status: u32) -> String {
    match status {
        124 => "it took too long (--board-limit)".into(),
        126 | 127 => {
            "the board cannot execute it (wrong architecture, no `timeout`, or /tmp is mounted noexec)"
                .into()
        }
        132 => "it has instructions that the board lacks; choose another --target".into(),
        n if n > 128 => format!("signal {}", n - 128),
        n => format!("status {n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_script_are_read_and_others_are_not() {
        let batch = ["task0-1".to_string(), "task0-2".into()];
        let mut all = Times::default();
        let said = "task0-1 20\ntask0-1 30\ntimeout: cannot run\ntask0-2 failed with status 124\ntask9-9 5\n";
        read(said, &batch, &mut all);
        assert_eq!(all.ns["task0-1"], [20, 30]);
        assert_eq!((all.ns.len(), all.failed["task0-2"]), (1, 124));
        assert!(reason(124).contains("--board-limit"));
        assert!(reason(139).contains("11"));
    }

    #[test]
    fn the_machine_of_an_executable_is_in_its_header() {
        let mut elf = b"\x7fELF".to_vec();
        elf.resize(18, 0);
        elf.extend(243_u16.to_le_bytes());
        assert_eq!(machine_of(&elf), Some("riscv64"));
        assert_eq!(machine_of(b"#!/bin/sh"), None);
        assert!(is_plain("/tmp/tunesmith.aB3") && !is_plain("/tmp/$x") && !is_plain("tmp"));
    }
}
