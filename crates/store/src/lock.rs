//! Locks that tell whether the process of a run lives.
//!
//! Owns the files of locks, which lie beside the store. Promises that a lock ends with its process, however that
//! ends. What a lock permits is decided by whoever takes it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::sqlite::Store;

/// A run that nobody else can hold until this is dropped.
#[derive(Debug)]
pub struct HeldRun {
    /// The file that is locked. A store in memory has none, as no other process sees it.
    locked: Option<(PathBuf, File)>,
}

impl Drop for HeldRun {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.locked {
            // A file that stays is locked by nobody, and the next one who holds the run removes it.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Store {
    /// Holds a run until the result is dropped or this process ends; `None` if somebody holds it.
    ///
    /// # Errors
    /// If the file of the lock cannot be made or locked.
    pub fn hold_run(&self, run_id: &str) -> Result<Option<HeldRun>, StoreError> {
        let store = self.connection.path().filter(|p| !p.is_empty());
        let Some(store) = store else {
            return Ok(Some(HeldRun { locked: None }));
        };
        let path = beside(store, run_id);
        let file = hold(&path).map_err(|source| StoreError::Io {
            doing: "locking a run in a file beside the store",
            source,
        })?;
        Ok(file.map(|file| HeldRun {
            locked: Some((path, file)),
        }))
    }
}

/// The file of the lock of a run.
fn beside(store: &str, run_id: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let mut name = OsString::from(store);
    name.push("-run-");
    name.push(run_id.chars().map(plain).collect::<String>());
    name.into()
}

/// The locked file; none if somebody has locked it.
fn hold(path: &Path) -> io::Result<Option<File>> {
    loop {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(e),
        }
        // Who held the run before may have removed the file since it was opened.
        match path.metadata() {
            Ok(there) if there.ino() == file.metadata()?.ino() => return Ok(Some(file)),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_held_once_and_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tune");
        let (store, other) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
        let held = store.hold_run("1-2-3").unwrap();
        assert!(held.is_some());
        assert!(other.hold_run("1-2-3").unwrap().is_none());
        assert!(store.hold_run("1-2-3").unwrap().is_none());
        assert!(other.hold_run("1-2-4").unwrap().is_some(), "another run");
        drop(held);
        assert!(other.hold_run("1-2-3").unwrap().is_some());
        let files = std::fs::read_dir(directory.path()).unwrap();
        let names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
        assert!(names.into_iter().all(|n| !n.contains("-run-")));
    }

    #[test]
    fn a_file_that_a_dead_process_left_holds_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tune");
        let store = Store::open(&path).unwrap();
        std::fs::write(directory.path().join("a.tune-run-dead"), "").unwrap();
        assert!(store.hold_run("dead").unwrap().is_some());
    }

    #[test]
    fn a_store_in_memory_has_no_files() {
        let store = Store::open_in_memory().unwrap();
        assert!(store.hold_run("1").unwrap().is_some());
    }
}
