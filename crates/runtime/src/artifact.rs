//! The file of a compiled model: one variant, or several for several sizes.
//!
//! Owns the format and its version. Promises that a file is written whole or
//! not at all, that a change of any byte is noticed before anything of the file
//! is used, and that code and constants are page-aligned sections, which may be
//! mapped and shared between processes. An artifact is a program: load only what
//! you trust as such (a signature tells who wrote it), and do not change a file
//! that is in use.
//!
//! Layout: a head of 64 bytes (magic, version, length and checksum of the
//! manifest, length of the file, checksum of the head), the manifest
//! (postcard), then from the next page on the sections code, constants and
//! prepared constants. Offsets in the manifest count from the first section.
//! Between these parts are zeros. Kernels and constants that variants share are in the
//! file once; all offsets and lengths have 64 bits. A signature may follow (`signature.rs`).

mod behind;
mod sections;

use crate::builder::BuildModelError;
use crate::constants::{Blob, Buffer, Constant, ConstantMemory};
use crate::elf::ElfError;
use crate::host::HostError;
use crate::kernel::BuiltKernel;
use crate::model::{CompiledModel, Manifest};
use crate::pool::PoolError;
use crate::signature::{self, Signing, SigningKey, VerifyKey};
use crate::variants::{Dim, Variants};
use behind::{
    Behind, CallsOfAlternative, Derived, Groups, LaterCalls, Newer, Settings, Zeros, behind_stored,
};
use memmap2::Mmap;
use sections::Sections;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensor::{DataFile, NewFile};
use thiserror::Error;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The version of the format; a file of another version is refused.
pub const ARTIFACT_VERSION: u32 = 11;
/// The oldest version that is read. It has no names of algorithms and no states.
const OLDEST_VERSION: u32 = 5;
/// The last version whose alternatives are single calls.
const SINGLE_CALLS_VERSION: u32 = 6;
/// The last version without groups of steps, and without a number of threads.
const NO_GROUPS_VERSION: u32 = 7;
/// The last version that holds all constants.
const ALL_CONSTANTS_VERSION: u32 = 8;
/// The last version that pads no input with zeros.
const NO_ZEROS_VERSION: u32 = 9;
/// The last version that does not say what the compiler was asked for.
const NO_SETTINGS_VERSION: u32 = 10;

/// How every artifact begins, of any version.
pub const MAGIC: [u8; 8] = *b"\x89TSM\r\n\x1a\n";
const HEAD_BYTES: usize = 64;
/// Sections start at multiples of this, whatever the page size of the machine.
const SECTION_ALIGN: u64 = 4096;
const BLOB_ALIGN: u64 = 64;
const SECTION_NAMES: [&str; 3] = ["kernel code", "constants", "prepared constants"];

/// Why a model cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is not a compiled model; pass the file that the compiler wrote")]
    NotAnArtifact { path: PathBuf },
    #[error(
        "{path} has format version {found} and this program reads {OLDEST_VERSION} to {ARTIFACT_VERSION}; compile the \
         model again with this version"
    )]
    Version { path: PathBuf, found: u32 },
    #[error(
        "{path} has {found} of {expected} bytes; the copy was cut short, so copy or compile it \
         again"
    )]
    Truncated {
        path: PathBuf,
        expected: u64,
        found: u64,
    },
    #[error("{path} is damaged: the {part} do not match their checksum; copy or compile it again")]
    Checksum { path: PathBuf, part: &'static str },
    #[error(
        "{path} is not signed, and a verify key is given; get a signed file, or sign it when it is \
         compiled"
    )]
    Unsigned { path: PathBuf },
    #[error(
        "{path} is not signed with the key that belongs to the verify key; do not use it unless \
         you know where it is from"
    )]
    Signature { path: PathBuf },
    #[error("{path} contradicts itself: {reason}; compile the model again")]
    Inconsistent { path: PathBuf, reason: String },
    #[error("{path} holds {count} variants: {sizes}; load all of them, or choose one")]
    SeveralVariants {
        path: PathBuf,
        count: usize,
        sizes: String,
    },
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("kernel `{kernel}` cannot be loaded: {source}")]
    Code { kernel: String, source: ElfError },
    #[error("cannot get {bytes} bytes for activations and workspace: {source}")]
    Memory { bytes: u64, source: io::Error },
    #[error("cannot make the constants that the file leaves out: {0}")]
    Derived(#[source] Box<BuildModelError>),
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Why a model cannot be saved. The path is as it was before.
#[derive(Debug, Error)]
#[error("cannot write {path}: {source}; check the directory and the space left")]
pub struct SaveError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// A part of the data area. Those of a section follow each other.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Extent {
    offset: u64,
    len: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Section {
    extent: Extent,
    checksum: u64,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    /// In the order of [`SECTION_NAMES`].
    sections: [Section; 3],
    /// Of all variants, without code.
    kernels: Vec<BuiltKernel>,
    /// Of each kernel.
    code: Vec<Extent>,
    /// Of all variants; whether they are prepared.
    constants: Vec<(Extent, bool)>,
    dims: Vec<Dim>,
    variants: Vec<StoredVariant>,
}

impl Stored {
    /// The manifest.
    fn bytes(&self, behind: &Behind) -> postcard::Result<Vec<u8>> {
        let bytes = postcard::to_extend(&behind.newer, postcard::to_stdvec(self)?)?;
        let bytes = postcard::to_extend(&behind.later, bytes)?;
        let bytes = postcard::to_extend(&behind.groups, bytes)?;
        let bytes = postcard::to_extend(&behind.derived, bytes)?;
        let bytes = postcard::to_extend(&behind.zeros, bytes)?;
        postcard::to_extend(&behind.settings, bytes)
    }
}

#[derive(Serialize, Deserialize)]
struct StoredVariant {
    manifest: Manifest,
    /// Positions of its kernels and constants among those of the file, each once.
    kernels: Vec<u32>,
    constants: Vec<u32>,
}

impl CompiledModel {
    /// Writes the artifact of this model alone, as [`Variants::save`].
    pub fn save(&self, path: &Path) -> Result<u64, SaveError> {
        self.save_signed(path, None)
    }

    /// As [`save`](CompiledModel::save), signed if there is a key.
    pub fn save_signed(&self, path: &Path, key: Option<&SigningKey>) -> Result<u64, SaveError> {
        save(path, &[], &[self], key)
    }

    /// Reads and verifies an artifact of any target with one variant; whether this machine
    /// can run it is checked when a `Model` is made of it.
    pub fn load(path: &Path) -> Result<CompiledModel, LoadError> {
        CompiledModel::load_with(path, ConstantMemory::default())
    }

    /// As [`load`](CompiledModel::load), with constants in memory or mapped.
    pub fn load_with(path: &Path, constants: ConstantMemory) -> Result<CompiledModel, LoadError> {
        CompiledModel::load_verified(path, constants, None)
    }

    /// As [`load_with`](CompiledModel::load_with); with a key only a file that was signed
    /// with the key that belongs to it.
    pub fn load_verified(
        path: &Path,
        constants: ConstantMemory,
        key: Option<&VerifyKey>,
    ) -> Result<CompiledModel, LoadError> {
        let (_, mut models) = read(path, constants, key)?;
        match (models.pop(), models.len()) {
            (Some(model), 0) => Ok(model),
            (Some(last), _) => {
                models.push(last);
                let shape = |m: &CompiledModel| {
                    let shapes = m.inputs().iter().map(|id| &m.tensor(*id).shape);
                    let shapes: Vec<String> = shapes.map(|s| format!("{s:?}")).collect();
                    shapes.join(" ")
                };
                let sizes: Vec<String> = models.iter().map(shape).collect();
                Err(LoadError::SeveralVariants {
                    path: path.to_path_buf(),
                    count: models.len(),
                    sizes: sizes.join(", "),
                })
            }
            (None, _) => Err(inconsistent(path, "it has no variant")),
        }
    }
}

impl Variants {
    /// Writes the artifact to a temporary file next to `path`, which then
    /// takes its place. Returns its length in bytes.
    pub fn save(&self, path: &Path) -> Result<u64, SaveError> {
        self.save_signed(path, None)
    }

    /// As [`save`](Variants::save), signed if there is a key.
    pub fn save_signed(&self, path: &Path, key: Option<&SigningKey>) -> Result<u64, SaveError> {
        let models: Vec<&CompiledModel> = self.models().iter().map(|m| &**m).collect();
        save(path, self.dims(), &models, key)
    }

    /// Reads and verifies an artifact of any target; whether this machine can
    /// run it is checked when a `Model` is made of it.
    pub fn load(path: &Path) -> Result<Variants, LoadError> {
        Variants::load_with(path, ConstantMemory::default())
    }

    /// As [`load`](Variants::load), with constants in memory or mapped.
    pub fn load_with(path: &Path, constants: ConstantMemory) -> Result<Variants, LoadError> {
        Variants::load_verified(path, constants, None)
    }

    /// As [`load_with`](Variants::load_with); with a key only a file that was signed with
    /// the key that belongs to it.
    pub fn load_verified(
        path: &Path,
        constants: ConstantMemory,
        key: Option<&VerifyKey>,
    ) -> Result<Variants, LoadError> {
        let (dims, models) = read(path, constants, key)?;
        let models = models.into_iter().map(Arc::new).collect();
        Variants::of(dims, models).map_err(|e| inconsistent(path, &e.to_string()))
    }
}

fn save(
    path: &Path,
    dims: &[Dim],
    models: &[&CompiledModel],
    key: Option<&SigningKey>,
) -> Result<u64, SaveError> {
    let written = NewFile::beside(path).and_then(|mut new| {
        let mut out = Signing::new(new.writer(), key);
        write(dims, models, &mut out)?;
        out.finish()?;
        new.put()
    });
    written.map_err(|source| SaveError {
        path: path.to_path_buf(),
        source,
    })
}

type Parsed = (Vec<Dim>, Vec<CompiledModel>);

fn read(
    path: &Path,
    constants: ConstantMemory,
    key: Option<&VerifyKey>,
) -> Result<Parsed, LoadError> {
    let read = |source| LoadError::Read {
        path: path.to_path_buf(),
        source,
    };
    let file = DataFile::open(path).map_err(read)?;
    let len = file.len().min(HEAD_BYTES as u64) as usize;
    // Nothing more is read of a file that is no artifact.
    let head = file.read(0, len).map_err(read)?;
    let body = body_bytes(&head, file.len());
    check_head(path, &head, body)?;
    let buffer: Arc<Buffer> = match constants {
        ConstantMemory::Memory => {
            let len = usize::try_from(file.len());
            let len = len.map_err(|_| read(io::ErrorKind::OutOfMemory.into()))?;
            Arc::new(file.read(0, len).map_err(read)?)
        }
        // SAFETY: the documentation asks that a file in use is not changed;
        // `save` replaces files and never writes into them.
        ConstantMemory::Mapped => Arc::new(unsafe { Mmap::map(file.as_file()) }.map_err(read)?),
    };
    // A file that was cut while it was read is no longer than its head says.
    let body = buffer.len().min(body as usize);
    check_signature(path, &buffer, body, key)?;
    parse(path, &buffer, body)
}

/// Bytes of a file of so many before its signature.
fn body_bytes(head: &[u8], found: u64) -> u64 {
    match head.len() < HEAD_BYTES {
        true => found,
        false => signature::body_bytes(u64_at(head, 32), found),
    }
}

/// Checks what follows the first `body` bytes, before anything of these is used.
fn check_signature(
    path: &Path,
    file: &[u8],
    body: usize,
    key: Option<&VerifyKey>,
) -> Result<(), LoadError> {
    let path = path.to_path_buf();
    let (body, trailer) = file.split_at(body);
    if !trailer.is_empty() && !signature::is_whole(trailer) {
        let part = "bytes of the signature";
        return Err(LoadError::Checksum { path, part });
    }
    match key {
        Some(_) if trailer.is_empty() => Err(LoadError::Unsigned { path }),
        Some(key) if !key.verifies(body, trailer) => Err(LoadError::Signature { path }),
        _ => Ok(()),
    }
}

/// A file without a whole head: cut short, if it begins like an artifact.
fn short_file(path: &Path, bytes: &[u8]) -> LoadError {
    let path = path.to_path_buf();
    if bytes.len() >= MAGIC.len() && bytes.starts_with(&MAGIC) {
        let found = bytes.len() as u64;
        return LoadError::Truncated {
            path,
            expected: HEAD_BYTES as u64,
            found,
        };
    }
    LoadError::NotAnArtifact { path }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

fn inconsistent(path: &Path, reason: &str) -> LoadError {
    LoadError::Inconsistent {
        path: path.to_path_buf(),
        reason: reason.to_string(),
    }
}

/// Checks the first bytes of a file that has so many in all.
fn check_head(path: &Path, head: &[u8], found: u64) -> Result<(), LoadError> {
    let file = || path.to_path_buf();
    if head.len() < HEAD_BYTES {
        return Err(short_file(path, head));
    }
    if !head.starts_with(&MAGIC) {
        return Err(LoadError::NotAnArtifact { path: file() });
    }
    let version = u64_at(head, 8) as u32;
    if !(OLDEST_VERSION..=ARTIFACT_VERSION).contains(&version) {
        return Err(LoadError::Version {
            path: file(),
            found: version,
        });
    }
    if u64_at(head, 56) != xxh3_64(&head[..56]) {
        return Err(LoadError::Checksum {
            path: file(),
            part: "first bytes",
        });
    }
    let expected = u64_at(head, 32);
    if expected != found {
        return Err(LoadError::Truncated {
            path: file(),
            expected,
            found,
        });
    }
    Ok(())
}

/// The manifest's bytes, checked, of a file whose head is in order.
fn manifest_bytes<'a>(path: &Path, file: &'a [u8]) -> Result<&'a [u8], LoadError> {
    check_head(path, file, file.len() as u64)?;
    let (len, checksum) = (u64_at(file, 16), u64_at(file, 24));
    let rest = &file[HEAD_BYTES..];
    let manifest = usize::try_from(len).ok().and_then(|len| rest.get(..len));
    let manifest = manifest.ok_or_else(|| inconsistent(path, "the manifest is too long"))?;
    if checksum != xxh3_64(manifest) {
        return Err(LoadError::Checksum {
            path: path.to_path_buf(),
            part: "contents of the manifest",
        });
    }
    Ok(manifest)
}

/// Reads the first `body` bytes of a file.
fn parse(path: &Path, file: &Arc<Buffer>, body: usize) -> Result<Parsed, LoadError> {
    let inconsistent = |reason: &str| inconsistent(path, reason);
    let manifest = manifest_bytes(path, &file[..body])?;
    let manifest_end = HEAD_BYTES + manifest.len();
    let (stored, rest): (Stored, &[u8]) =
        postcard::take_from_bytes(manifest).map_err(|e| inconsistent(&e.to_string()))?;
    let counts = [
        stored.kernels.len(),
        stored.variants.len(),
        stored.dims.len(),
    ];
    let behind = behind_stored(u64_at(file, 8) as u32, counts, rest);
    let behind = behind.map_err(|e| inconsistent(&e.to_string()))?;
    let Newer { algorithms, states } = behind.newer;
    let later = behind.later.variants;
    let Groups {
        variants: groups,
        threads,
    } = behind.groups;
    let (derived, settings) = (behind.derived, behind.settings.variants);
    let mut sections = Sections::check(path, &file[..body], manifest_end, &stored.sections)?;
    if [stored.code.len(), algorithms.len()] != [stored.kernels.len(); 2] {
        return Err(inconsistent(
            "kernels, their code and their algorithms differ in number",
        ));
    }
    let of_variants = [
        states.len(),
        later.len(),
        groups.len(),
        threads.len(),
        derived.variants.len(),
        settings.len(),
    ];
    if of_variants != [counts[1]; 6] {
        return Err(inconsistent(
            "variants and what the file says of each differ in number",
        ));
    }
    let dims = behind.zeros.put(stored.dims);
    let dims = dims.ok_or_else(|| inconsistent("zeros are in the padding of no dimension"))?;
    let mut kernels = Vec::with_capacity(stored.kernels.len());
    let stored_kernels = stored.kernels.into_iter().zip(stored.code);
    for ((mut kernel, extent), algorithm) in stored_kernels.zip(algorithms) {
        kernel.algorithm = algorithm;
        kernel.code = file[sections.take(0, extent)?].to_vec();
        kernels.push(Arc::new(kernel));
    }
    let held = stored.variants.iter().map(|v| &v.constants);
    let left_out = derived.left_out(stored.constants.len(), held);
    let places = stored.constants.into_iter().zip(left_out);
    let constants = constants(path, file, &mut sections, places)?;
    let mut models = Vec::with_capacity(stored.variants.len());
    let groups = groups.into_iter().zip(threads);
    let behind = states.into_iter().zip(later).zip(groups);
    let behind = behind.zip(derived.variants.into_iter().zip(settings));
    for (variant, (behind, (derivations, settings))) in stored.variants.into_iter().zip(behind) {
        let ((states, later), (groups, threads)) = behind;
        let mut manifest = variant.manifest;
        (manifest.states, manifest.groups, manifest.threads) = (states, groups, threads);
        (manifest.derivations, manifest.settings) = (derivations, settings);
        let put = later
            .into_iter()
            .try_for_each(|calls| calls.put(&mut manifest));
        put.ok_or_else(|| inconsistent("there are calls of no alternative"))?;
        let (own, held) = (&variant.kernels, &variant.constants);
        let found = picked(&kernels, own).zip(picked(&constants, held));
        let (own, held) =
            found.ok_or_else(|| inconsistent("a variant names kernels or constants of none"))?;
        manifest.kernels = own;
        let model = CompiledModel::new(manifest, held);
        models.push(model.map_err(|e| inconsistent(&e.to_string()))?);
    }
    Ok((dims, models))
}

/// Constants at these places of their sections, with whether each is left out.
fn constants(
    path: &Path,
    file: &Arc<Buffer>,
    sections: &mut Sections<'_>,
    places: impl Iterator<Item = ((Extent, bool), bool)>,
) -> Result<Vec<Constant>, LoadError> {
    let mut constants = Vec::new();
    for ((extent, prepared), left_out) in places {
        let range = match left_out {
            true => 0..0,
            false => sections.take(1 + usize::from(prepared), extent)?,
        };
        if !range.start.is_multiple_of(BLOB_ALIGN as usize) {
            return Err(inconsistent(path, "a constant is not aligned"));
        }
        constants.push(Constant {
            bytes: Blob::new(file, range),
            prepared,
        });
    }
    Ok(constants)
}

/// The items at these positions; none if one is out of range or there twice.
fn picked<T: Clone>(all: &[T], at: &[u32]) -> Option<Vec<T>> {
    let mut seen = BTreeSet::new();
    let mut one = |i: &u32| all.get(*i as usize).filter(|_| seen.insert(*i)).cloned();
    at.iter().map(&mut one).collect()
}

/// Blobs in the order they are written, with their places.
#[derive(Default)]
struct DataArea<'a> {
    end: u64,
    pieces: Vec<(u64, &'a [u8])>,
}

impl<'a> DataArea<'a> {
    fn add(&mut self, bytes: &'a [u8]) -> Extent {
        // A large constant starts at a page, so that its pages hold nothing else.
        let align = if bytes.len() as u64 >= SECTION_ALIGN {
            SECTION_ALIGN
        } else {
            BLOB_ALIGN
        };
        let (offset, len) = (self.end.next_multiple_of(align), bytes.len() as u64);
        self.end = offset + len;
        self.pieces.push((offset, bytes));
        Extent { offset, len }
    }

    /// Adds the sections of constants, without those that are left out; the places of all.
    fn add_constants(
        &mut self,
        all: &[&'a Constant],
        left_out: &[bool],
    ) -> (Vec<(Extent, bool)>, [Section; 2]) {
        let nowhere = Extent { offset: 0, len: 0 };
        let mut places: Vec<_> = all.iter().map(|c| (nowhere, c.prepared)).collect();
        let sections = [false, true].map(|prepared| {
            let (offset, first) = (self.end, self.pieces.len());
            for ((place, constant), left_out) in places.iter_mut().zip(all).zip(left_out) {
                if constant.prepared == prepared && !left_out {
                    place.0 = self.add(&constant.bytes);
                }
            }
            self.section(offset, first)
        });
        (places, sections)
    }

    /// Ends the section that starts at `offset` with piece `first`.
    fn section(&mut self, offset: u64, first: usize) -> Section {
        // An empty section has no place that could lie beyond the end of the file.
        let offset = if first == self.pieces.len() {
            0
        } else {
            offset
        };
        let mut hash = Xxh3::new();
        let mut at = offset;
        for (start, bytes) in &self.pieces[first..] {
            hash.update(&[0; SECTION_ALIGN as usize][..(start - at) as usize]);
            hash.update(bytes);
            at = start + bytes.len() as u64;
        }
        let extent = Extent {
            offset,
            len: at - offset,
        };
        self.end = self.end.next_multiple_of(SECTION_ALIGN);
        Section {
            extent,
            checksum: hash.digest(),
        }
    }
}

/// Things of several variants, each once, and their positions by their address.
struct Shared<'a, T> {
    all: Vec<&'a T>,
    at: HashMap<(usize, usize, bool), u32>,
}

impl<'a, T> Shared<'a, T> {
    /// What `all` holds, each under a key that equal things have in common; and for every
    /// list the positions of its things.
    fn of(
        lists: impl Iterator<Item = &'a Vec<T>>,
        key: impl Fn(&T) -> (usize, usize, bool),
    ) -> (Shared<'a, T>, Vec<Vec<u32>>) {
        let mut shared = Shared {
            all: Vec::new(),
            at: HashMap::new(),
        };
        let mut positions = Vec::new();
        for list in lists {
            let mut of_list = Vec::with_capacity(list.len());
            for item in list {
                let next = shared.all.len() as u32;
                let at = *shared.at.entry(key(item)).or_insert(next);
                if at == next {
                    shared.all.push(item);
                }
                of_list.push(at);
            }
            positions.push(of_list);
        }
        (shared, positions)
    }
}

fn write(dims: &[Dim], models: &[&CompiledModel], out: &mut impl Write) -> io::Result<()> {
    // Variants that share something hold the same memory.
    let (kernels, of_kernels) = Shared::of(models.iter().map(|m| &m.manifest.kernels), |k| {
        (Arc::as_ptr(k) as usize, 0, false)
    });
    let (constants, of_constants) = Shared::of(models.iter().map(|m| &m.constants), |c| {
        match c.bytes.is_empty() {
            true => (std::ptr::from_ref(c) as usize, 0, c.prepared),
            false => (c.bytes.as_ptr() as usize, c.bytes.len(), c.prepared),
        }
    });
    let derived = models.iter().map(|m| m.manifest.derivations.clone());
    let derived = Derived {
        variants: derived.collect(),
    };
    let left_out = derived.left_out(constants.all.len(), of_constants.iter());
    let mut area = DataArea::default();
    let code: Vec<Extent> = kernels.all.iter().map(|k| area.add(&k.code)).collect();
    let code_section = area.section(0, 0);
    let (places, [plain, prepared]) = area.add_constants(&constants.all, &left_out);
    let without_code = |k: &&Arc<BuiltKernel>| BuiltKernel {
        code: Vec::new(),
        prepare_code: None,
        ..BuiltKernel::clone(k)
    };
    let variants = models.iter().zip(of_kernels).zip(of_constants);
    let variants = variants.map(|((m, kernels), constants)| StoredVariant {
        manifest: m.manifest.clone(),
        kernels,
        constants,
    });
    let stored = Stored {
        sections: [code_section, plain, prepared],
        kernels: kernels.all.iter().map(without_code).collect(),
        code,
        constants: places,
        dims: dims.to_vec(),
        variants: variants.collect(),
    };
    let behind = behind_models(dims, models, &kernels.all, derived);
    let stored = stored.bytes(&behind).map_err(io::Error::other)?;
    let data = (HEAD_BYTES + stored.len()).next_multiple_of(SECTION_ALIGN as usize) as u64;
    // The file ends where the last piece does: that is where a cut shows.
    let end = area
        .pieces
        .iter()
        .map(|(offset, bytes)| offset + bytes.len() as u64)
        .max();
    let head = head(&stored, data + end.unwrap_or(0));
    out.write_all(&head)?;
    out.write_all(&stored)?;
    pad(out, data - (HEAD_BYTES + stored.len()) as u64)?;
    let mut at = 0;
    for (offset, bytes) in &area.pieces {
        pad(out, offset - at)?;
        out.write_all(bytes)?;
        at = offset + bytes.len() as u64;
    }
    Ok(())
}

/// What stands behind [`Stored`] in the file of these variants.
fn behind_models(
    dims: &[Dim],
    models: &[&CompiledModel],
    kernels: &[&Arc<BuiltKernel>],
    derived: Derived,
) -> Behind {
    let newer = Newer {
        algorithms: kernels.iter().map(|k| k.algorithm.clone()).collect(),
        states: models.iter().map(|m| m.manifest.states.clone()).collect(),
    };
    let later = models.iter().map(|m| CallsOfAlternative::all(&m.manifest));
    let later = LaterCalls {
        variants: later.collect(),
    };
    let groups = models.iter().map(|m| m.manifest.groups.clone());
    let groups = Groups {
        variants: groups.collect(),
        threads: models.iter().map(|m| m.manifest.threads).collect(),
    };
    Behind {
        newer,
        later,
        groups,
        derived,
        zeros: Zeros::of(dims),
        settings: Settings {
            variants: models.iter().map(|m| m.manifest.settings.clone()).collect(),
        },
    }
}

/// The first bytes of a file with this manifest, of `file_len` bytes.
fn head(manifest: &[u8], file_len: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&ARTIFACT_VERSION.to_le_bytes());
    head[16..24].copy_from_slice(&(manifest.len() as u64).to_le_bytes());
    head[24..32].copy_from_slice(&xxh3_64(manifest).to_le_bytes());
    head[32..40].copy_from_slice(&file_len.to_le_bytes());
    let checksum = xxh3_64(&head[..56]);
    head[56..].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// Writes fewer than [`SECTION_ALIGN`] zeros.
fn pad(out: &mut impl Write, count: u64) -> io::Result<()> {
    out.write_all(&[0; SECTION_ALIGN as usize][..count as usize])
}

#[cfg(test)]
mod tests;
