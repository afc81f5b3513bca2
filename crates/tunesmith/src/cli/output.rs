//! Files that commands write: the only way to one is [`Output`].
//!
//! Promises that nothing is replaced but an earlier output of the same kind that
//! is no input of the command and may be written, that this is known before the work
//! begins, and that a file is written whole or not at all.

use runtime::{SigningKey, Variants};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufWriter, IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tensor::NewFile;
use tune::{Error, Result};

/// A kind of file that a command writes.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    name: &'static str,
    /// How earlier ones begin; none where not even those are replaced.
    start: Option<&'static [u8]>,
    /// How the user names another file.
    choose: &'static str,
    /// Whether it may go to a pipe or a terminal: text that others read from its start.
    streams: bool,
}

const OUT: &str = "name another file with --out FILE";
const FILE: &str = "name another file";
const FOLDER: &str = "name another folder with --out FOLDER";

pub const ARTIFACT: Kind = Kind {
    name: "a compiled model",
    start: Some(&runtime::ARTIFACT_MAGIC),
    choose: OUT,
    streams: false,
};
/// Nothing tells it from other programs: it replaces none.
pub const EXECUTABLE: Kind = Kind {
    name: "an executable",
    start: None,
    choose: OUT,
    streams: false,
};
/// Nor does anything tell it from other objects and headers.
pub const OBJECT: Kind = Kind {
    name: "an object file",
    start: None,
    choose: OUT,
    streams: false,
};
pub const ARRAY: Kind = Kind {
    name: "a .npy file",
    start: Some(b"\x93NUMPY"),
    choose: OUT,
    streams: false,
};
/// A model may hold what took days to train: no export replaces one.
pub const MODEL: Kind = Kind {
    name: "a model",
    start: None,
    choose: FILE,
    streams: false,
};
pub const RECORDS: Kind = Kind {
    name: "an export of records",
    start: Some(b"{\"type\":\"header\",\"format\":\"tunesmith-records\""),
    choose: FILE,
    streams: true,
};
pub const RATES: Kind = Kind {
    name: "a file of rates",
    start: Some(analysis::RATES_START.as_bytes()),
    choose: OUT,
    streams: false,
};
pub const T4: Kind = Kind {
    name: "a T4 file",
    start: Some(b"{\n\"metadata\": {"),
    choose: FILE,
    streams: true,
};
pub const PAGE: Kind = Kind {
    name: "a page of figures",
    start: Some(super::html::START.as_bytes()),
    choose: FILE,
    streams: false,
};
pub const TRACE: Kind = Kind {
    name: "a trace of an inference",
    start: Some(super::trace::START.as_bytes()),
    choose: FILE,
    streams: false,
};
pub const GRAPH: Kind = Kind {
    name: "a graph of a model's steps",
    start: Some(super::explain_graph::START.as_bytes()),
    choose: FILE,
    streams: false,
};
pub const GRAPH_PICTURE: Kind = Kind {
    name: "a picture of a model's steps",
    start: Some(super::explain_picture::START.as_bytes()),
    choose: FILE,
    streams: false,
};
pub const NETWORK: Kind = Kind {
    name: "a trained network",
    start: Some(b"tunesmith-model 1\nkind named-network\n"),
    choose: OUT,
    streams: false,
};
pub const DECISIONS: Kind = Kind {
    name: "a file of decisions",
    start: Some(b"bestof "),
    choose: "name another file with --decisions",
    streams: false,
};
pub const STUDY: Kind = Kind {
    name: "the figures of a study",
    start: Some(b"{\"kind\":\"measured\""),
    choose: FOLDER,
    streams: false,
};
pub const STRATEGIES: Kind = Kind {
    name: "the figures of a study of strategies",
    start: Some(b"{\"kind\":\"replayed\""),
    choose: FOLDER,
    streams: false,
};
pub const STUDY_REPORT: Kind = Kind {
    name: "the report of a study",
    start: Some(b"# Policies of measuring"),
    choose: FOLDER,
    streams: false,
};
pub const STUDY_PICTURE: Kind = Kind {
    name: "a picture of a study",
    start: Some(b"<svg"),
    choose: FOLDER,
    streams: false,
};

pub const PICTURE: Kind = Kind {
    name: "a picture of a study",
    start: Some(b"<svg"),
    choose: FILE,
    streams: false,
};

/// How a SQLite database begins, and the files beside it that are parts of it.
const DATABASE: &[u8] = b"SQLite format 3\0";
pub const DATABASE_PARTS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A file that a command may write.
#[derive(Debug)]
pub struct Output {
    /// As the user named it.
    path: PathBuf,
    place: Destination,
    kind: Kind,
    inputs: Vec<PathBuf>,
}

/// Where a path leads.
#[derive(Debug)]
enum Destination {
    /// To a regular file, there or not.
    File(PathBuf),
    /// To a pipe or a terminal, in which nothing is replaced.
    Stream(File),
}

impl Output {
    /// `inputs` are the files that the command reads or keeps, there or not.
    ///
    /// # Errors
    /// If a file cannot be written there, or what is there is not to be replaced.
    pub fn new(path: &Path, kind: Kind, inputs: Vec<PathBuf>) -> Result<Output> {
        let failed = |e| not_written(path, kind, &e);
        let place = match std::fs::metadata(path) {
            Ok(there) if !there.is_file() => Destination::Stream(stream(path, &there, kind)?),
            _ => Destination::File(resolved(path).map_err(failed)?),
        };
        let output = Output {
            path: path.to_path_buf(),
            place,
            kind,
            inputs,
        };
        if let Destination::File(place) = &output.place {
            output.check(place)?;
            NewFile::beside(place).map_err(failed)?;
        }
        Ok(output)
    }

    /// Writes with `write`, and then puts the whole file in its place.
    ///
    /// # Errors
    /// As `write`; or if the file cannot be written, or something else has come there.
    pub fn write<T>(&self, write: impl FnOnce(&mut BufWriter<File>) -> Result<T>) -> Result<T> {
        let failed = |e| self.failed(&e);
        match &self.place {
            Destination::File(place) => {
                self.check(place)?;
                let mut new = NewFile::beside(place).map_err(failed)?;
                let written = write(new.writer())?;
                new.put().map_err(failed)?;
                Ok(written)
            }
            Destination::Stream(stream) => {
                let mut w = BufWriter::new(stream.try_clone().map_err(failed)?);
                let written = write(&mut w)?;
                w.flush().map_err(failed)?;
                Ok(written)
            }
        }
    }

    /// Writes bytes that are there already.
    pub fn write_bytes(&self, bytes: &[u8]) -> Result<()> {
        self.write(|w| w.write_all(bytes).map_err(|e| self.failed(&e)))
    }

    /// Writes compiled variants, which know themselves how to do so whole, signed if there is
    /// a key. Returns its bytes.
    pub fn save(&self, model: &Variants, key: Option<&SigningKey>) -> Result<u64> {
        let Destination::File(place) = &self.place else {
            return Err(self.failed(&"it is no regular file"));
        };
        self.check(place)?;
        let saved = model.save_signed(place, key);
        saved.map_err(|e| Error::from(e).help(self.kind.choose))
    }

    /// As the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether what is written here comes out where the command prints.
    pub fn is_standard_output(&self) -> bool {
        let Destination::Stream(stream) = &self.place else {
            return false;
        };
        let printed = std::fs::metadata("/dev/stdout");
        stream
            .metadata()
            .is_ok_and(|s| printed.is_ok_and(|p| same(&s, &p)))
    }

    /// Says which file could not be written, and why.
    pub fn failed(&self, why: &impl ToString) -> Error {
        not_written(&self.path, self.kind, why)
    }

    /// Refuses what is not to be replaced.
    fn check(&self, place: &Path) -> Result<()> {
        let refuse = |why: &str| {
            let path = self.path.display();
            Err(
                Error::new(format!("{path} is not replaced: it is {why}")).help(format!(
                    "{}, or remove this one first if you no longer need it",
                    self.kind.choose
                )),
            )
        };
        let there = std::fs::metadata(place).ok();
        let input = |i: &PathBuf| leads_to(i, place, there.as_ref());
        if self.inputs.iter().any(input) {
            return refuse("an input of this command, or its store");
        }
        if let Some(database) = database_of(place) {
            return refuse(&format!("a part of the database {}", database.display()));
        }
        let Some(there) = there else { return Ok(()) };
        if !there.is_file() {
            return Err(not_a_file(&self.path, self.kind, special(&there)));
        }
        if there.permissions().readonly() {
            return refuse("read-only");
        }
        let start = start(place).map_err(|e| self.failed(&e))?;
        match self.kind.start {
            _ if start.is_empty() => Ok(()),
            Some(own) if start.starts_with(own) => Ok(()),
            Some(_) => refuse(&what_begins(&start, self.kind.name)),
            None => refuse("there already"),
        }
    }
}

fn not_written(path: &Path, kind: Kind, why: &impl ToString) -> Error {
    let (path, why) = (path.display(), why.to_string());
    Error::new(format!("cannot write {path}: {why}")).help(format!(
        "check the folder and the space left, or {}",
        kind.choose
    ))
}

fn not_a_file(path: &Path, kind: Kind, what: &str) -> Error {
    Error::new(format!("cannot write {}: it is {what}", path.display())).help(kind.choose)
}

/// Opens what is no regular file, where output of this kind may go there.
fn stream(path: &Path, there: &Metadata, kind: Kind) -> Result<File> {
    let pipe = there.file_type().is_fifo();
    if !kind.streams || !pipe && !there.file_type().is_char_device() {
        return Err(not_a_file(path, kind, special(there)));
    }
    let mut options = OpenOptions::new();
    // A pipe without a reader would wait for one.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match options.write(true).custom_flags(flags).open(path) {
        Err(e) if pipe && e.raw_os_error() == Some(libc::ENXIO) => {
            return Err(not_a_file(path, kind, "a pipe that nothing reads"));
        }
        opened => opened.map_err(|e| not_written(path, kind, &e))?,
    };
    if !pipe && !file.is_terminal() {
        return Err(not_a_file(path, kind, special(there)));
    }
    // SAFETY: the descriptor is open; what is written to it may wait from now on.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) } != 0 {
        return Err(not_written(path, kind, &std::io::Error::last_os_error()));
    }
    Ok(file)
}

fn same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Whether a path is another name of the file that is at `place`, or will be.
fn leads_to(path: &Path, place: &Path, there: Option<&Metadata>) -> bool {
    if resolved(path).is_ok_and(|p| p == place) {
        return true;
    }
    match (there, std::fs::metadata(path)) {
        (Some(a), Ok(b)) => same(a, &b),
        _ => false,
    }
}

/// Whether a path can only be one of a folder, there or not.
pub fn names_folder(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/") || bytes.ends_with(b"/.")
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
    // Of such a path, the name is the folder's.
    if names_folder(path) {
        return Err(std::io::Error::other("it names a folder that is not there"));
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
