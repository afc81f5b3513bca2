//! Files that are read as data.
//!
//! Owns what such a file may be: a regular one. Promises that opening anything
//! else is an error at once, where a named pipe would wait for a writer and a
//! device would give bytes without end.

use crate::AlignedBytes;
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// A regular file, open for reading. What it holds is read once and may change
/// meanwhile; a file that became shorter is an error then.
#[derive(Debug)]
pub struct DataFile {
    file: File,
    len: u64,
}

impl DataFile {
    /// # Errors
    /// If the path cannot be opened, or names something else than a regular file.
    pub fn open(path: &Path) -> io::Result<DataFile> {
        // The kind is that of what was opened, so nothing can take its place
        // between the check and the first read.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)?;
        let about = file.metadata()?;
        if !about.is_file() {
            let kind = kind(about.file_type());
            let reason = format!("it is {kind}, and only regular files are read");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let len = about.len();
        Ok(DataFile { file, len })
    }

    /// In bytes, when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// For mapping it.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// If the file ends before, or cannot be read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    /// `len` bytes from `offset` on. Nothing is allocated unless the file has them.
    ///
    /// # Errors
    /// As [`DataFile::read_at`], or if there is not so much memory: a file may
    /// have far more bytes than its disk.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<AlignedBytes> {
        if offset
            .checked_add(len as u64)
            .is_none_or(|end| end > self.len)
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = AlignedBytes::try_zeroed(len)?;
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }
}

fn kind(t: FileType) -> &'static str {
    match t {
        t if t.is_dir() => "a directory",
        t if t.is_fifo() => "a named pipe",
        t if t.is_char_device() || t.is_block_device() => "a device",
        t if t.is_socket() => "a socket",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for (path, kind) in [
            (folder.path(), "a directory"),
            (&pipe, "a named pipe"),
            (&link, "a named pipe"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let error = DataFile::open(path).unwrap_err().to_string();
            assert!(error.contains(kind), "{error}");
        }
    }

    #[test]
    fn what_a_file_does_not_have_is_not_allocated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, [1, 2, 3]).unwrap();
        let file = DataFile::open(&path).unwrap();
        assert_eq!(*file.read(1, 2).unwrap(), [2, 3]);
        for (offset, len) in [(1, 3), (4, 0), (0, usize::MAX), (u64::MAX, 1)] {
            assert!(file.read(offset, len).is_err(), "{offset}, {len}");
        }
    }

    #[test]
    fn files_larger_than_memory_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let len = 1 << 43;
        File::create(&path).unwrap().set_len(len).unwrap();
        let file = DataFile::open(&path).unwrap();
        let error = file.read(0, len as usize).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        let said = "cannot allocate 8796093022208 bytes";
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(file.read(len - 2, 2).unwrap().len(), 2);
    }
}
