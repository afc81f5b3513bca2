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
    /// The file that is locked. A store in memory has none, as no other process sees it, nor has one on a file system
    /// without locks.
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
    /// Holds a run until the result is dropped or this process ends; `None` if somebody holds it. On a file system
    /// without locks every caller holds it.
    ///
    /// # Errors
    /// If the file of the lock cannot be made or locked.
    pub fn hold_run(&self, run_id: &str) -> Result<Option<HeldRun>, StoreError> {
        let store = self.connection.path().filter(|p| !p.is_empty());
        let Some(store) = store else {
            return Ok(Some(HeldRun { locked: None }));
        };
        let path = beside(store, run_id);
        let file = match hold(&path) {
            Ok(file) => file,
            Err(e) if lacks_locks(&e) => {
                let _ = std::fs::remove_file(&path);
                return Ok(Some(HeldRun { locked: None }));
            }
            Err(source) => {
                return Err(StoreError::Io {
                    doing: "locking a run in a file beside the store",
                    source,
                });
            }
        };
        Ok(file.map(|file| HeldRun {
            locked: Some((path, file)),
        }))
    }
}

/// Whether the file system has no locks.
fn lacks_locks(e: &io::Error) -> bool {
    /// Linux's ENOLCK, ENOSYS and EOPNOTSUPP, which is also ENOTSUP. Not all of them are of the kind `Unsupported`.
    const ERRORS: [i32; 3] = [37, 38, 95];
    let known = |code| cfg!(target_os = "linux") && ERRORS.contains(&code);
    e.kind() == io::ErrorKind::Unsupported || e.raw_os_error().is_some_and(known)
}

/// The file of the lock of a run; of each run another one.
fn beside(store: &str, run_id: &str) -> PathBuf {
    let mut name = OsString::from(store);
    name.push("-run-");
    for c in run_id.chars() {
        match c.is_ascii_alphanumeric() || c == '-' {
            true => name.push(c.to_string()),
            false => name.push(format!("%{:x}%", u32::from(c))),
        }
    }
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
    fn runs_have_files_of_their_own() {
        let files = ["a-b", "a.b", "a/b", "a%b", "a"].map(|id| beside("s", id));
        assert_eq!(files[0], PathBuf::from("s-run-a-b"));
        assert_eq!(files[1], PathBuf::from("s-run-a%2e%b"));
        let differ: std::collections::BTreeSet<&PathBuf> = files.iter().collect();
        assert_eq!(differ.len(), files.len());
    }

    #[test]
    fn a_file_system_without_locks_is_told_from_other_failures() {
        assert!(lacks_locks(&io::ErrorKind::Unsupported.into()));
        assert!(!lacks_locks(&io::ErrorKind::PermissionDenied.into()));
        if cfg!(target_os = "linux") {
            assert!(lacks_locks(&io::Error::from_raw_os_error(37)));
        }
    }

    #[test]
    fn a_store_in_memory_has_no_files() {
        let store = Store::open_in_memory().unwrap();
        assert!(store.hold_run("1").unwrap().is_some());
    }
}
