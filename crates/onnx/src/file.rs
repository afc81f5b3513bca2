//! Model files as bytes to be decoded, and the files of data beside them.
//!
//! Promises that large fields are read once, straight to where they stay; that
//! nothing is allocated which a file does not have; and that only regular files
//! in the model's folder are read.

use prost::bytes::{Buf, Bytes};
use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tensor::{AlignedBytes, DataFile, check_memory};

/// Fields at least this large are not read through [`FileBuf::ahead`].
const LARGE: usize = 4096;
const READ_AHEAD: usize = 1 << 16;

/// A file that is decoded front to back. Reading it never fails: after an error
/// all bytes are 0, which decoding refuses, and [`FileBuf::finish`] has the reason.
pub(crate) struct FileBuf {
    file: DataFile,
    /// Of the first byte that has not been consumed.
    offset: u64,
    /// What follows it: from `at` on; empty at the end of the file only.
    ahead: Vec<u8>,
    at: usize,
    failed: Option<io::Error>,
}

impl FileBuf {
    /// # Errors
    /// If it is no regular file, cannot be read, or has more bytes than memory.
    pub(crate) fn open(path: &Path) -> io::Result<FileBuf> {
        let file = DataFile::open(path)?;
        let len = file.len();
        // Decoding allocates the fields that are not read as a whole itself.
        check_memory(len)
            .map_err(|e| io::Error::new(e.kind(), format!("the file has {len} bytes, and {e}")))?;
        let mut buf = FileBuf {
            file,
            offset: 0,
            ahead: Vec::new(),
            at: 0,
            failed: None,
        };
        buf.refill();
        Ok(buf)
    }

    /// # Errors
    /// The first one that reading met.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.failed.map_or(Ok(()), Err)
    }

    fn refill(&mut self) {
        self.ahead.resize(self.remaining().min(READ_AHEAD), 0);
        self.at = 0;
        if let Err(e) = self.file.read_at(self.offset, &mut self.ahead) {
            self.failed.get_or_insert(e);
            self.ahead.fill(0);
        }
    }
}

impl Buf for FileBuf {
    fn remaining(&self) -> usize {
        (self.file.len() - self.offset) as usize
    }

    fn chunk(&self) -> &[u8] {
        &self.ahead[self.at..]
    }

    fn advance(&mut self, count: usize) {
        assert!(count <= self.remaining());
        self.offset += count as u64;
        self.at = self.at.saturating_add(count);
        if self.at >= self.ahead.len() {
            self.refill();
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        assert!(len <= self.remaining());
        if len < LARGE {
            let mut bytes = vec![0; len];
            self.copy_to_slice(&mut bytes);
            return bytes.into();
        }
        let read = self.file.read(self.offset, len);
        self.advance(len);
        match read {
            Ok(bytes) => Bytes::from_owner(bytes),
            Err(e) => {
                self.failed.get_or_insert(e);
                Bytes::new()
            }
        }
    }
}

/// Where the data of a model's tensors may lie.
pub(crate) struct DataFolder {
    path: PathBuf,
    /// The folders, without links, that a data file may be in: that of the
    /// model, and if the model is a link, that of what it leads to.
    roots: Vec<PathBuf>,
    files: Mutex<HashMap<String, Opened>>,
}

struct Opened {
    file: DataFile,
    parts: HashMap<(u64, usize), AlignedBytes>,
    /// Bytes of all parts.
    read: u64,
}

impl DataFolder {
    /// # Errors
    /// If there is no such folder.
    pub(crate) fn new(folder: &Path) -> io::Result<DataFolder> {
        Ok(DataFolder {
            path: folder.to_path_buf(),
            roots: vec![folder.canonicalize()?],
            files: Mutex::default(),
        })
    }

    /// The folder of a model file.
    ///
    /// # Errors
    /// If there is no such file.
    pub(crate) fn of(model: &Path) -> io::Result<DataFolder> {
        let named = model.parent().filter(|p| !p.as_os_str().is_empty());
        let mut folder = DataFolder::new(named.unwrap_or(Path::new(".")))?;
        let real = model.canonicalize()?;
        folder.roots.extend(real.parent().map(Path::to_path_buf));
        Ok(folder)
    }

    /// Bytes of the file at `location`. The same ones are read once and shared.
    ///
    /// # Errors
    /// A sentence, without the location.
    pub(crate) fn read(
        &self,
        location: &str,
        offset: u64,
        len: usize,
    ) -> Result<AlignedBytes, String> {
        // Whoever panicked had inserted nothing by halves.
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if !files.contains_key(location) {
            let opened = Opened {
                file: self.open(location)?,
                parts: HashMap::new(),
                read: 0,
            };
            files.insert(location.to_string(), opened);
        }
        let opened = files.get_mut(location).expect("just inserted");
        let size = opened.file.len();
        if offset.checked_add(len as u64).is_none_or(|end| end > size) {
            return Err(format!(
                "it has {size} bytes, and the tensor needs {len} bytes from byte {offset} on"
            ));
        }
        if let Some(part) = opened.parts.get(&(offset, len)) {
            return Ok(part.clone());
        }
        if opened.read + len as u64 > size {
            return Err(format!(
                "it has {size} bytes, but its tensors together have more, so they overlap"
            ));
        }
        let part = opened.file.read(offset, len).map_err(|e| e.to_string())?;
        let part = AlignedBytes::shared(part);
        opened.read += len as u64;
        opened.parts.insert((offset, len), part.clone());
        Ok(part)
    }

    fn open(&self, location: &str) -> Result<DataFile, String> {
        const OUTSIDE: &str = "it is outside the model's folder";
        if location.is_empty() {
            return Err("the location is empty".into());
        }
        for part in Path::new(location).components() {
            match part {
                Component::Normal(_) | Component::CurDir => {}
                Component::ParentDir => return Err("`..` is not allowed in a location".into()),
                Component::RootDir | Component::Prefix(_) => return Err(OUTSIDE.into()),
            }
        }
        let asked = self.path.join(location);
        let path = asked.canonicalize();
        let path = path.map_err(|e| format!("it was looked for at `{}`: {e}", asked.display()))?;
        if !self.roots.iter().any(|root| path.starts_with(root)) {
            return Err(format!("{OUTSIDE}: a link leads to `{}`", path.display()));
        }
        DataFile::open(&path).map_err(|e| e.to_string())
    }
}
