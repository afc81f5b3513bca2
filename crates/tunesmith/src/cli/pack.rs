//! `pack`: a folder that runs a compiled model on a machine without a compiler.

use crate::file_kind::instead_of_artifact;
use runtime::Variants;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tensor::{npy_file_name, write_npy_file};
use tune::latency::{INTEGERS, input};
use tune::{Error, Result};

/// Make a folder or an archive that runs a compiled model on a machine without Tunesmith
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tunesmith pack model.tsm\n  tunesmith pack model.tsm --out board.tar.gz\n\nThe folder has the compiled model, the program tunesmith-run, example inputs, and a README for whoever gets it."
)]
pub struct Args {
    /// A compiled model (.tsm)
    artifact: PathBuf,
    /// A folder that does not exist yet, or a .tar.gz file [default: NAME-packed]
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// The program tunesmith-run for the other machine [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    runner: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const RUNNER: &str = "tunesmith-run";
const ARCHIVE: &str = ".tar.gz";

pub fn run(a: &Args) -> Result<ExitCode> {
    let variants =
        Variants::load(&a.artifact).map_err(|e| match instead_of_artifact(&a.artifact) {
            Some((what, advice)) => Error::new(what).help(advice),
            None => e.into(),
        })?;
    let runner = runner(a)?;
    reads(&runner, &a.artifact)?;
    let name = variants.models()[0].name().to_string();
    let out = a.out.clone().unwrap_or_else(|| {
        let safe = npy_file_name(&name, &mut BTreeSet::new());
        PathBuf::from(format!("{}-packed", safe.trim_end_matches(".npy")))
    });
    if out.symlink_metadata().is_ok() {
        return Err(Error::new(format!("{} is there already", out.display()))
            .help("name another folder or file with --out"));
    }
    let shown = out.file_name().map(|n| n.to_string_lossy().into_owned());
    match shown.as_deref().and_then(|n| n.strip_suffix(ARCHIVE)) {
        None => fill(&out, a, &variants, &runner).inspect_err(|_| {
            // It was not there before.
            _ = std::fs::remove_dir_all(&out);
        })?,
        Some(stem) => {
            let made = tempfile::tempdir();
            let made = made.map_err(|e| Error::new(format!("no folder for the archive: {e}")))?;
            let stem = if stem.is_empty() { "packed" } else { stem };
            let folder = made.path().join(stem);
            fill(&folder, a, &variants, &runner)?;
            archived(&folder, &out)?;
        }
    }
    if a.json {
        super::print_json(&serde_json::json!({"packed": out, "model": name}))?;
    } else {
        super::print_line(&format!(
            "packed in {}; its README says how to run it on the other machine",
            out.display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The program that runs models there.
fn runner(a: &Args) -> Result<PathBuf> {
    if let Some(path) = &a.runner {
        return match path.is_file() {
            true => Ok(path.clone()),
            false => Err(Error::new(format!("there is no file {}", path.display()))
                .help("name the program tunesmith-run with --runner")),
        };
    }
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|p| Some(p.parent()?.join(RUNNER)));
    beside.filter(|p| p.is_file()).ok_or_else(|| {
        Error::new("the program tunesmith-run is not beside this one")
            .help("build it with `cargo build --release -p deploy`, or name it with --runner FILE")
    })
}

/// Refuses a program that says that it does not read the model: that of another version would fail on the other machine.
/// A program for another machine may not start here, so only its own words count.
fn reads(runner: &Path, artifact: &Path) -> Result<()> {
    let Ok(path) = runner.canonicalize() else {
        return Ok(());
    };
    let asked = Command::new(path).arg("info").arg(artifact).output();
    let Some(out) = asked.ok().filter(|out| !out.status.success()) else {
        return Ok(());
    };
    let said = String::from_utf8_lossy(&out.stderr);
    let first = said.lines().next().unwrap_or_default();
    let Some(why) = first.strip_prefix("error: ") else {
        return Ok(());
    };
    let (runner, artifact) = (runner.display(), artifact.display());
    let what = format!("{runner} does not read {artifact}: {why}");
    Err(Error::new(what).help("build it anew with `cargo build --release -p deploy`"))
}

fn fill(folder: &Path, a: &Args, variants: &Variants, runner: &Path) -> Result<()> {
    let failed = |what: &Path, e: &dyn std::fmt::Display| {
        Error::new(format!("cannot write {}: {e}", what.display()))
            .help("name another folder with --out")
    };
    let inputs = folder.join("inputs");
    std::fs::create_dir_all(&inputs).map_err(|e| failed(&inputs, &e))?;
    for (from, to) in [(a.artifact.as_path(), "model.tsm"), (runner, RUNNER)] {
        let to = folder.join(to);
        std::fs::copy(from, &to).map_err(|e| failed(&to, &e))?;
    }
    let compiled = &variants.models()[0];
    let states: BTreeSet<usize> = compiled.states().iter().map(|s| s.input).collect();
    let (mut taken, mut flags) = (BTreeSet::new(), String::new());
    for (i, id) in compiled.inputs().iter().enumerate() {
        if states.contains(&i) {
            continue;
        }
        let info = compiled.tensor(*id);
        // The model may be for another processor, so nobody asks it which integers it accepts.
        let tensor = input(info.dtype, &info.shape, INTEGERS[0], 1 + i as u64);
        let name = &info.name;
        let file = npy_file_name(name, &mut taken);
        let path = inputs.join(&file);
        write_npy_file(&path, &tensor).map_err(|e| failed(&path, &e))?;
        let quoted = name.replace('\'', "'\\''");
        _ = write!(flags, " --input '{quoted}=inputs/{file}'");
    }
    let readme = folder.join("README.txt");
    let alone = needs_nothing(runner).map_err(|e| {
        let what = format!("cannot read {}: {e}", runner.display());
        Error::new(what).help("name the program tunesmith-run with --runner")
    })?;
    std::fs::write(&readme, text(variants, &flags, alone)).map_err(|e| failed(&readme, &e))
}

/// Whether a program for Linux is linked statically: no loader of shared libraries is named in its header.
fn needs_nothing(program: &Path) -> std::io::Result<bool> {
    /// `PT_INTERP`, which names the loader.
    const LOADER: u64 = 3;
    let bytes = std::fs::read(program)?;
    let number = |at: usize, size: usize| {
        let field = bytes.get(at..at.checked_add(size)?)?;
        let digits = field.iter().rev();
        Some(digits.fold(0, |n, byte| n << 8 | u64::from(*byte)))
    };
    // Fields of the header of ELF64: where its segments are described, how long a description is, and how many there are.
    let (Some(start), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2))
    else {
        return Ok(false);
    };
    let mut kinds = (0..count).map(|i| number(start.saturating_add(i * size) as usize, 4));
    Ok(bytes.starts_with(b"\x7fELF") && kinds.all(|kind| kind.is_some_and(|k| k != LOADER)))
}

/// What whoever gets the folder has to know. `alone` says that the runner is linked statically.
fn text(variants: &Variants, flags: &str, alone: bool) -> String {
    let first = &variants.models()[0];
    let target = first.target();
    let needs = match alone {
        true => "Nothing has to be installed.".to_string(),
        false => format!(
            "It needs the C library glibc, as new as that of the\nmachine where {RUNNER} was built. The {RUNNER} of a release archive or of a wheel needs nothing."
        ),
    };
    format!(
        "{name}, compiled by {compiler}\n\n\
         It runs on Linux, on processors of the kind {cpu} ({triple}) and later ones. {needs}\n\n\
         What it takes and gives:\n    ./{RUNNER} info model.tsm\n\n\
         One inference on the example inputs, the outputs as .npy files:\n    ./{RUNNER} run model.tsm{flags} --out outputs\n\n\
         Its latency:\n    ./{RUNNER} bench model.tsm\n\n\
         A compiled model is a program: run only files that you trust.\n",
        name = first.name(),
        compiler = first.compiler(),
        cpu = target.cpu,
        triple = target.triple,
    )
}

fn archived(folder: &Path, to: &Path) -> Result<()> {
    let parent = folder
        .parent()
        .filter(|p| *p != Path::new(""))
        .unwrap_or(Path::new("."));
    let name = folder
        .file_name()
        .ok_or_else(|| Error::new("the archive has no name"))?;
    let mut c = Command::new("tar");
    c.arg("-czf").arg(to).arg("-C").arg(parent).arg(name);
    match c.output() {
        Ok(out) if out.status.success() => Ok(()),
        Ok(out) => Err(Error::new(format!(
            "tar failed: {}",
            String::from_utf8_lossy(&out.stderr).trim()
        ))
        .help("leave .tar.gz away to get a folder")),
        Err(e) => {
            Err(Error::new(format!("cannot start tar: {e}"))
                .help("leave .tar.gz away to get a folder"))
        }
    }
}
