//! What simulators have in common: a kernel in, its statistics out.

use crate::addresses::NotFollowed;
use crate::cache::CacheSetting;
use crate::emulator::EmulatorError;
use crate::executable::{ExecutableError, Runner};
use crate::external::{EXECUTABLE, FOLDER, STATS, said};
use crate::own::{Kernel, simulate};
use crate::statistics::Statistics;
use ir::Target;
use llvm::CodegenError;
use runtime::BuiltKernel;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use thiserror::Error;

/// A kernel in the forms that simulators take: what its code says, and what an executable of it is made of.
#[derive(Clone, Copy, Debug)]
pub struct Simulated<'a> {
    pub target: &'a Target,
    pub code: Kernel<'a>,
    pub built: &'a BuiltKernel,
}

/// Counts what a kernel does.
pub trait Simulator {
    /// What one call on one core does, with empty caches at its begin, and who says so.
    ///
    /// # Errors
    /// If this simulator does not take the kernel, or fails.
    fn count(&self, kernel: Simulated<'_>) -> Result<Statistics, SimulatorError>;
}

/// The simulator that reads code and runs nothing ([`simulate`]).
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    pub caches: &'a CacheSetting,
    /// One in so many iterations of outer loops stands for all; none for all.
    pub sample_iterations: Option<u32>,
}

impl Simulator for Own<'_> {
    fn count(&self, kernel: Simulated<'_>) -> Result<Statistics, SimulatorError> {
        Ok(simulate(kernel.code, self.caches, self.sample_iterations)?)
    }
}

/// Why a kernel has no counts.
#[derive(Debug, Error)]
pub enum SimulatorError {
    #[error(transparent)]
    NotFollowed(#[from] NotFollowed),
    #[error("`{0}` names no {EXECUTABLE}; put {EXECUTABLE} where the command takes the executable")]
    NoPlace(String),
    #[error("`{program}` does not start ({error}); give a command that this machine has")]
    Missing { program: String, error: io::Error },
    #[error("the simulator did not end within {} s; give it more time, or take smaller shapes", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("{from} has no line of a name and a number, but: `{text}`")]
    NoNumbers { from: &'static str, text: String },
    #[error("the simulator left no {STATS} in the folder of {FOLDER} ({0})")]
    NoStats(io::Error),
    #[error("the simulator failed ({status}) {}", said(stderr))]
    Failed { status: ExitStatus, stderr: String },
    #[error("the simulator: {0}")]
    Ran(EmulatorError),
    #[error("QEMU does not count it: {0}")]
    Qemu(EmulatorError),
    #[error(transparent)]
    Codegen(#[from] CodegenError),
    #[error(transparent)]
    Executable(#[from] ExecutableError),
    #[error("the folder of the executable: {0}")]
    File(#[from] io::Error),
}

/// An executable of a kernel, in a folder.
pub(crate) fn written(
    folder: &Path,
    target: &Target,
    kernel: &BuiltKernel,
) -> Result<PathBuf, SimulatorError> {
    let executable = folder.join("kernel");
    fs::write(&executable, Runner::new(target)?.executable(kernel, 1)?)?;
    fs::set_permissions(&executable, Permissions::from_mode(0o700))?;
    Ok(executable)
}
