//! Files that are written whole or not at all.
//!
//! Owns how one comes to its place. Promises that nothing is seen there before the
//! file is whole, and that what is written meanwhile is a new file, never one that
//! another process writes or a link that somebody laid.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file being written beside the place that it takes when it is whole. One that is
/// dropped before that is removed.
#[derive(Debug)]
pub struct NewFile {
    file: BufWriter<File>,
    /// Where it is until then; none when it has taken its place.
    temporary: Option<PathBuf>,
    place: PathBuf,
}

impl NewFile {
    /// Makes the file, in the folder of `place`.
    pub fn beside(place: &Path) -> io::Result<NewFile> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            // Processes of several machines or containers may have the same number.
            let name = format!(".tunesmith.{}.{count}.tmp", std::process::id());
            let temporary = place.with_file_name(name);
            match File::create_new(&temporary) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                Ok(file) => {
                    return Ok(NewFile {
                        file: BufWriter::new(file),
                        temporary: Some(temporary),
                        place: place.to_path_buf(),
                    });
                }
            }
        }
    }

    pub fn writer(&mut self) -> &mut BufWriter<File> {
        &mut self.file
    }

    /// Puts the file in its place, when the disk has it; says how long it is. It gets
    /// the mode of a file that was there.
    ///
    /// # Errors
    /// If not all of it could be written: then the place is as it was.
    pub fn put(mut self) -> io::Result<u64> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        let bytes = self.rename()?;
        // The file is in its place already: a folder that cannot be read is no failure.
        let folder = self.place.parent().filter(|p| !p.as_os_str().is_empty());
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all();
        }
        Ok(bytes)
    }

    /// As [`put`](NewFile::put), for a file that may be lost with the machine's power.
    pub fn put_unsynced(mut self) -> io::Result<u64> {
        self.file.flush()?;
        self.rename()
    }

    fn rename(&mut self) -> io::Result<u64> {
        let file = self.file.get_ref();
        if let Ok(old) = self.place.metadata() {
            let mode = old.permissions().mode() & 0o777;
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        let bytes = file.metadata()?.len();
        if let Some(temporary) = &self.temporary {
            std::fs::rename(temporary, &self.place)?;
        }
        self.temporary = None;
        Ok(bytes)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // There is nobody to report to, and nothing else to do.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_seen_when_it_is_whole_and_otherwise_never() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a");
        for (text, synced) in [("first", true), ("second", false)] {
            let before = std::fs::read(&place).ok();
            let mut new = NewFile::beside(&place).unwrap();
            new.writer().write_all(text.as_bytes()).unwrap();
            assert_eq!(std::fs::read(&place).ok(), before);
            let put = if synced {
                new.put()
            } else {
                new.put_unsynced()
            };
            assert_eq!(put.unwrap(), text.len() as u64);
            assert_eq!(std::fs::read_to_string(&place).unwrap(), text);
        }
        let mut torn = NewFile::beside(&place).unwrap();
        torn.writer().write_all(b"thi").unwrap();
        drop(torn);
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "second");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn files_that_others_write_and_links_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "mine").unwrap();
        let own = |i: u32| {
            let name = format!(".tunesmith.{}.{i}.tmp", std::process::id());
            folder.path().join(name)
        };
        for i in 0..64 {
            std::os::unix::fs::symlink(&victim, own(i)).unwrap();
        }
        let mut new = NewFile::beside(&folder.path().join("a")).unwrap();
        new.writer().write_all(b"new").unwrap();
        new.put().unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
        assert!((0..64).all(|i| own(i).is_symlink()));
        let two = [0; 2].map(|_| NewFile::beside(&victim).unwrap());
        assert_ne!(two[0].temporary, two[1].temporary);
    }

    #[test]
    fn the_mode_of_a_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a");
        std::fs::write(&place, "old").unwrap();
        std::fs::set_permissions(&place, Permissions::from_mode(0o640)).unwrap();
        NewFile::beside(&place).unwrap().put().unwrap();
        assert_eq!(std::fs::read(&place).unwrap(), b"");
        let mode = place.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
}
