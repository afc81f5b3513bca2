//! Kernels whose addresses depend on data: QEMU runs them, with the plugin of this crate.
//!
//! The plugin is the example `qemu_counts`, a library of its own. Programs look for it where they are themselves, so that nobody
//! has to name it.

use crate::cache::CacheSetting;
use crate::emulator::Emulator;
use crate::simulator::{Simulated, Simulator, SimulatorError, written};
use crate::statistics::Statistics;
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
}

/// QEMU with the plugin, for kernels of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Emulated<'a> {
    pub plugin: &'a Plugin,
    pub caches: &'a CacheSetting,
}

impl Simulator for Emulated<'_> {
    fn count(&self, kernel: Simulated<'_>) -> Result<Statistics, SimulatorError> {
        let folder = TempDir::new()?;
        let executable = written(folder.path(), kernel.target, kernel.built)?;
        let emulator = Emulator::find(kernel.target).map_err(SimulatorError::Qemu)?;
        let Plugin { path, limit } = self.plugin;
        let counted = emulator.counts(path, &executable, self.caches, *limit);
        counted.map_err(SimulatorError::Qemu)
    }
}
