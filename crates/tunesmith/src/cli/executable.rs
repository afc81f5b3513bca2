//! Whole models as executables: writing one, and running one here or in an emulator.

use super::output::Output;
use ir::{Isa, Target};
use runtime::{CompiledModel, Variants};
use simulate::{Emulator, model_executable, output};
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tensor::{Tensor, read_npy_file, write_npy_file};
use tune::{Error, Result};

/// An emulated inference takes seconds to minutes; one that takes longer does not end.
const LIMIT: Duration = Duration::from_secs(3600);

/// An executable of the only variant.
///
/// # Errors
/// If there are several, or the model has what executables cannot have.
pub fn bytes(target: &Target, variants: &Variants) -> Result<Vec<u8>> {
    of_model(target, only(variants)?)
}

/// The only variant.
///
/// # Errors
/// If there are several.
pub fn only(variants: &Variants) -> Result<&CompiledModel> {
    match variants.models() {
        [model] => Ok(model),
        several => Err(Error::new(format!(
            "an executable or an object has one variant, and the flags give {}",
            several.len()
        ))
        .help("give one size with each --dim and --batch")),
    }
}

fn of_model(target: &Target, model: &CompiledModel) -> Result<Vec<u8>> {
    model_executable(target, model).map_err(|e| {
        Error::new(format!("{} as an executable: {e}", model.name()))
            .help("`compile` without --emit writes a model that `run` takes")
    })
}

/// Writes a file that all who may read it may run; says how many bytes it has.
pub fn write(out: &Output, bytes: &[u8]) -> Result<u64> {
    out.write(|w| {
        let file = w.get_ref();
        let mode = file.metadata().map(|m| m.permissions().mode());
        let runs = mode.and_then(|mode| {
            let readers = mode & 0o444;
            file.set_permissions(Permissions::from_mode(mode | readers >> 2))
        });
        let written = runs.and_then(|()| w.write_all(bytes));
        written.map_err(|e| out.failed(&e))
    })?;
    Ok(bytes.len() as u64)
}

/// Advice where files of an executable cannot be written, and where it fails.
const NO_FILE: &str = "give a folder that has room in the variable TMPDIR";
const NO_RUN: &str =
    "write it with `compile --emit executable`, and run it on a machine of the target";

/// How executables of a target run on this machine.
pub struct Runner {
    emulator: Option<Emulator>,
}

impl Runner {
    /// # Errors
    /// If this machine does not run the target, and no emulator of it is installed.
    pub fn of(target: &Target) -> Result<Runner> {
        let Err(why) = runtime::check_target(&build::kernel_target(target)) else {
            return Ok(Runner { emulator: None });
        };
        let fail = |e: String, help: &str| {
            let name = target.name();
            Error::new(format!("executables for {name} cannot run here: {e}")).help(help)
        };
        let Target::Cpu(cpu) = target;
        if cpu.isa == Isa::X86Avx512 {
            let why = format!("{why}; QEMU has no AVX-512 either");
            return Err(fail(
                why,
                "give --target x86-avx2, or use a machine with AVX-512",
            ));
        }
        let found = Emulator::find(target);
        let found = found.map_err(|e| {
            fail(
                e.to_string(),
                "Debian's package qemu-user has emulators of all targets",
            )
        })?;
        Ok(Runner {
            emulator: Some(found),
        })
    }

    /// The outputs of a model's executable on these inputs.
    ///
    /// # Errors
    /// If it cannot be made, or fails.
    pub fn run(
        &self,
        target: &Target,
        model: &CompiledModel,
        inputs: &[Arc<Tensor>],
    ) -> Result<Vec<Tensor>> {
        let fail = |what: &str, e: &dyn ToString, help: &str| {
            let name = model.name();
            Error::new(format!("{what} of {name}: {}", e.to_string())).help(help)
        };
        let folder =
            TempDir::new().map_err(|e| fail("a folder for the executable", &e, NO_FILE))?;
        let executable = folder.path().join("model");
        let written = fs::write(&executable, of_model(target, model)?)
            .and_then(|()| fs::set_permissions(&executable, Permissions::from_mode(0o700)));
        written.map_err(|e| fail("the executable", &e, NO_FILE))?;
        let mut command = self.command(&executable);
        let file = |what: &str, i: usize| folder.path().join(format!("{what}{i}.npy"));
        for (i, t) in inputs.iter().enumerate() {
            let path = file("input", i);
            write_npy_file(&path, t).map_err(|e| fail("an input", &e, NO_FILE))?;
            command.arg(path);
        }
        let outputs = 0..model.outputs().len();
        let outputs: Vec<PathBuf> = outputs.map(|i| file("output", i)).collect();
        command.args(&outputs);
        output(command, LIMIT).map_err(|e| fail("the executable", &e, NO_RUN))?;
        let read = |p: &PathBuf| read_npy_file(p).map_err(|e| fail("an output", &e, NO_RUN));
        outputs.iter().map(read).collect()
    }

    fn command(&self, executable: &Path) -> Command {
        match &self.emulator {
            Some(emulator) => emulator.command(&[], executable),
            None => Command::new(executable),
        }
    }
}
