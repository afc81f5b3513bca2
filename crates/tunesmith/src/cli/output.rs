//! Files that commands write: the only way to one is [`Output`].
//!
//! Promises that nothing is replaced but an earlier output of the same kind that
//! is no input of the command, that this is known before the work begins, and that
//! a file is written whole or not at all.

use crate::error::{Error, Result};
use runtime::CompiledModel;
use std::fs::{File, Metadata};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A kind of file that a command writes.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    name: &'static str,
    /// How earlier ones begin; none where not even those are replaced.
    start: Option<&'static [u8]>,
    /// How the user names another file.
    choose: &'static str,
}

const OUT: &str = "name another file with --out FILE";
const FILE: &str = "name another file";
const FOLDER: &str = "name another folder with --out FOLDER";

pub const ARTIFACT: Kind = Kind {
    name: "a compiled model",
    start: Some(&runtime::ARTIFACT_MAGIC),
    choose: OUT,
};
pub const ARRAY: Kind = Kind {
    name: "a .npy file",
    start: Some(b"\x93NUMPY"),
    choose: OUT,
};
/// A model may hold what took days to train: no export replaces one.
pub const MODEL: Kind = Kind {
    name: "a model",
    start: None,
    choose: FILE,
};
pub const RECORDS: Kind = Kind {
    name: "an export of records",
    start: Some(b"{\"type\":\"header\",\"format\":\"tunesmith-records\""),
    choose: FILE,
};
pub const T4: Kind = Kind {
    name: "a T4 file",
    start: Some(b"{\n\"metadata\": {"),
    choose: FILE,
};
pub const STUDY: Kind = Kind {
    name: "the figures of a study",
    start: Some(b"{\"kind\":\"measured\""),
    choose: FOLDER,
};
pub const STUDY_REPORT: Kind = Kind {
    name: "the report of a study",
    start: Some(b"# Policies of measuring"),
    choose: FOLDER,
};
pub const STUDY_PICTURE: Kind = Kind {
    name: "a picture of a study",
    start: Some(b"<svg"),
    choose: FOLDER,
};

/// How a SQLite database begins, and the files beside it that are parts of it.
const DATABASE: &[u8] = b"SQLite format 3\0";
pub const DATABASE_PARTS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A file that a command may write.
#[derive(Debug)]
pub struct Output {
    /// As the user named it.
    path: PathBuf,
    /// Where that leads.
    place: PathBuf,
    kind: Kind,
    inputs: Vec<PathBuf>,
}

impl Output {
    /// `inputs` are the files that the command reads or keeps, there or not.
    ///
    /// # Errors
    /// If a file cannot be written there, or what is there is not to be replaced.
    pub fn new(path: &Path, kind: Kind, inputs: Vec<PathBuf>) -> Result<Output> {
        let mut output = Output {
            path: path.to_path_buf(),
            place: PathBuf::new(),
            kind,
            inputs,
        };
        output.place = resolved(path).map_err(|e| output.failed(&e))?;
        output.check()?;
        let probe = output.temporary();
        File::create_new(&probe)
            .and_then(|_| std::fs::remove_file(&probe))
            .map_err(|e| output.failed(&e))?;
        Ok(output)
    }

    /// Writes with `write`, and then puts the whole file in its place.
    ///
    /// # Errors
    /// As `write`; or if the file cannot be written, or something else has come there.
    pub fn write<T>(&self, write: impl FnOnce(&mut BufWriter<File>) -> Result<T>) -> Result<T> {
        self.check()?;
        let temporary = self.temporary();
        let written = self.write_temporary(&temporary, write).and_then(|t| {
            std::fs::rename(&temporary, &self.place).map_err(|e| self.failed(&e))?;
            Ok(t)
        });
        if written.is_err() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }

    fn write_temporary<T>(
        &self,
        temporary: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> Result<T>,
    ) -> Result<T> {
        let failed = |e| self.failed(&e);
        let mut w = BufWriter::new(File::create(temporary).map_err(failed)?);
        let written = write(&mut w)?;
        let file = w.into_inner().map_err(|e| failed(e.into_error()))?;
        file.sync_all().map_err(failed)?;
        Ok(written)
    }

    /// Writes bytes that are there already.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.write(|w| w.write_all(bytes).map_err(|e| self.failed(&e)))
    }

    /// Writes a compiled model, which knows itself how to do so whole.
    pub fn save(&self, model: &CompiledModel) -> Result<()> {
        self.check()?;
        model
            .save(&self.place)
            .map_err(|e| Error::from(e).help(self.kind.choose))
    }

    /// As the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says which file could not be written, and why.
    pub fn failed(&self, why: &impl ToString) -> Error {
        let (path, why) = (self.path.display(), why.to_string());
        Error::new(format!("cannot write {path}: {why}")).help(format!(
            "check the folder and the space left, or {}",
            self.kind.choose
        ))
    }

    fn temporary(&self) -> PathBuf {
        let name = self.place.file_name().unwrap_or_default().to_string_lossy();
        let process = std::process::id();
        self.place.with_file_name(format!(".{name}.{process}.tmp"))
    }

    /// Refuses what is not to be replaced.
    fn check(&self) -> Result<()> {
        let refuse = |why: &str| {
            let path = self.path.display();
            Err(
                Error::new(format!("{path} is not replaced: it is {why}")).help(format!(
                    "{}, or remove this one first if you no longer need it",
                    self.kind.choose
                )),
            )
        };
        let there = std::fs::metadata(&self.place).ok();
        if self.inputs.iter().any(|i| self.is(there.as_ref(), i)) {
            return refuse("an input of this command, or its store");
        }
        if let Some(database) = database_of(&self.place) {
            return refuse(&format!("a part of the database {}", database.display()));
        }
        let Some(there) = there else { return Ok(()) };
        if !there.is_file() {
            let error = Error::new(format!(
                "cannot write {}: it is {}",
                self.path.display(),
                special(&there)
            ));
            return Err(error.help(self.kind.choose));
        }
        let start = start(&self.place).map_err(|e| self.failed(&e))?;
        match self.kind.start {
            _ if start.is_empty() => Ok(()),
            Some(own) if start.starts_with(own) => Ok(()),
            Some(_) => refuse(&what_begins(&start, self.kind.name)),
            None => refuse("there already"),
        }
    }

    /// Whether this is another name of that file.
    fn is(&self, there: Option<&Metadata>, other: &Path) -> bool {
        if resolved(other).is_ok_and(|o| o == self.place) {
            return true;
        }
        let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        match (there, std::fs::metadata(other)) {
            (Some(a), Ok(b)) => same(a, &b),
            _ => false,
        }
    }
}

/// A path without links, of a file that need not be there.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    let missing = match path.canonicalize() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => e,
        done => return done,
    };
    if path.is_symlink() {
        return Err(std::io::Error::other("it is a link to nothing"));
    }
    let Some(name) = path.file_name() else {
        return Err(missing);
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = folder
        .canonicalize()
        .map_err(|e| std::io::Error::new(e.kind(), format!("folder {}: {e}", folder.display())))?;
    Ok(folder.join(name))
}

/// The database that a path is a part of by its name.
fn database_of(path: &Path) -> Option<PathBuf> {
    let text = path.to_str()?;
    let mut of = DATABASE_PARTS.iter().filter_map(|p| text.strip_suffix(p));
    let database = PathBuf::from(of.next()?);
    let is = database.is_file() && start(&database).is_ok_and(|s| s.starts_with(DATABASE));
    is.then_some(database)
}

/// The first bytes of a file: enough to tell what it is.
fn start(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(128).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What a file is that begins so, and not as `wanted` does.
fn what_begins(start: &[u8], wanted: &str) -> String {
    let store = || start.get(68..72) == Some(&store::APPLICATION_ID.to_be_bytes()[..]);
    match start.starts_with(DATABASE) {
        true if store() => "a tuning store".into(),
        true => "a database".into(),
        false => format!("not {wanted}"),
    }
}

fn special(there: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = there.file_type();
    if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}
