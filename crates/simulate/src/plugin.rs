//! Kernels whose addresses depend on data: QEMU runs them, with the plugin of this crate.
//!
//! The plugin is the example `qemu_counts`, a library of its own. Programs look for it where they are themselves, so that nobody
//! has to name it.

use crate::cache::CacheSetting;
use crate::emulator::Emulator;
use crate::external::ExternalError;
use crate::statistics::Statistics;
use ir::Target;
use runtime::BuiltKernel;
use serde::{Deserialize, Serialize};
use std::env::current_exe;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Where the plugin is, and how long one executable may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugin {
    pub path: PathBuf,
    pub limit: Duration,
}

impl Plugin {
    /// What cargo calls the library.
    pub const FILE: &str = "libqemu_counts.so";
    /// Folders that may hold it, from that of a program on: a build's folder, a release's.
    const FOLDERS: [&str; 3] = [".", "examples", "../lib"];

    /// The plugin beside this program.
    pub fn beside(limit: Duration) -> Option<Plugin> {
        let program = current_exe().ok()?;
        let paths = Plugin::FOLDERS.map(|f| program.with_file_name(f).join(Plugin::FILE));
        let path = paths.into_iter().find(|p| p.is_file())?;
        Some(Plugin { path, limit })
    }

    /// What one call of a kernel of one thread does, with empty caches at its begin.
    ///
    /// # Errors
    /// If there is no executable of the kernel, or QEMU does not run it in time.
    pub fn count(
        &self,
        target: &Target,
        kernel: &BuiltKernel,
        setting: &CacheSetting,
    ) -> Result<Statistics, ExternalError> {
        let folder = TempDir::new()?;
        let executable = crate::external::written(folder.path(), target, kernel)?;
        let emulator = Emulator::find(target).map_err(ExternalError::Ran)?;
        let counted = emulator.counts(&self.path, &executable, setting, self.limit);
        counted.map_err(ExternalError::Ran)
    }
}
