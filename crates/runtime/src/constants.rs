//! The bytes of constants: where they are, and parts of buffers that others share.

use crate::guard::GuardedBuffer;
use memmap2::Mmap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, Range};
use std::sync::Arc;
use tensor::AlignedBytes;

/// Where the constants of a loaded model are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConstantMemory {
    /// In memory of the process, in huge pages where the system has them: kernels
    /// that walk through many megabytes of weights are faster.
    #[default]
    Memory,
    /// In the file's own pages, which all processes that run the model share.
    Mapped,
}

/// Immutable bytes with an owner: memory of the process, a mapped file.
pub(crate) trait Bytes: Deref<Target = [u8]> + Send + Sync {
    /// Whether the system can take the memory back at any time, as a file has the bytes.
    fn is_file(&self) -> bool {
        false
    }
}

impl Bytes for AlignedBytes {}

impl Bytes for GuardedBuffer {}

impl Bytes for Mmap {
    fn is_file(&self) -> bool {
        true
    }
}

/// What constants are parts of.
pub(crate) type Buffer = dyn Bytes;

/// Immutable bytes, 64-byte aligned: part of a buffer that others may share.
#[derive(Clone)]
pub(crate) struct Blob {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Blob {
    /// # Panics
    /// If `range` is not within the buffer.
    pub(crate) fn new(buffer: &Arc<Buffer>, range: Range<usize>) -> Blob {
        assert!(range.start <= range.end && range.end <= buffer.len());
        let buffer = Arc::clone(buffer);
        Blob { buffer, range }
    }

    /// Tells buffers apart.
    fn buffer_address(&self) -> usize {
        Arc::as_ptr(&self.buffer).cast::<u8>() as usize
    }
}

impl Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

/// A constant with its kind, which decides its section in the artifact.
#[derive(Clone)]
pub(crate) struct Constant {
    pub(crate) bytes: Blob,
    pub(crate) prepared: bool,
}

/// Of a constant's first byte; what kernels may assume of their parameters.
pub(crate) const CONSTANT_ALIGN: usize = 64;

/// Copies constants into one buffer, as they are when loaded: small ones lie in
/// huge pages, too.
pub(crate) fn gathered(constants: Vec<Constant>) -> Vec<Constant> {
    let mut end = 0;
    let mut place = |c: &Constant| {
        let start = end;
        end = (start + c.bytes.len()).next_multiple_of(CONSTANT_ALIGN);
        start..start + c.bytes.len()
    };
    let ranges: Vec<_> = constants.iter().map(&mut place).collect();
    let mut all = AlignedBytes::zeroed(end);
    let mut prepared = Vec::with_capacity(ranges.len());
    for (range, constant) in ranges.iter().zip(constants) {
        all[range.clone()].copy_from_slice(&constant.bytes);
        prepared.push(constant.prepared);
    }
    let all: Arc<Buffer> = Arc::new(all);
    let whole = |(range, prepared)| Constant {
        bytes: Blob::new(&all, range),
        prepared,
    };
    ranges.into_iter().zip(prepared).map(whole).collect()
}

/// Bytes of memory that constants keep: those of whole buffers, each once, without files.
pub(crate) fn held_bytes<'a>(all: impl Iterator<Item = &'a Constant>) -> u64 {
    let in_memory = all.filter(|c| !c.bytes.buffer.is_file());
    let buffer = |c: &Constant| (c.bytes.buffer_address(), c.bytes.buffer.len() as u64);
    let buffers: BTreeMap<usize, u64> = in_memory.map(buffer).collect();
    buffers.values().sum()
}

/// Copies constants out of buffers that they fill less than three quarters of, so that the rest can go. Elsewhere a copy
/// would need more memory than it frees, as others may still hold the buffer.
pub(crate) fn compacted(mut all: Vec<&mut Constant>) {
    let mut used: BTreeMap<usize, BTreeSet<(usize, usize)>> = BTreeMap::new();
    let range = |c: &Constant| (c.bytes.range.start, c.bytes.range.end);
    for c in &all {
        let of = used.entry(c.bytes.buffer_address()).or_default();
        of.insert(range(c));
    }
    let is_sparse = |c: &Constant| {
        let used = used[&c.bytes.buffer_address()].iter();
        let bytes: usize = used.map(|(start, end)| end - start).sum();
        !c.bytes.buffer.is_file() && bytes < c.bytes.buffer.len() / 4 * 3
    };
    let place = |c: &Constant| (c.bytes.buffer_address(), range(c));
    let mut places = BTreeSet::new();
    let moved: Vec<Constant> = all
        .iter()
        .filter(|c| is_sparse(c) && places.insert(place(c)))
        .map(|c| Constant::clone(c))
        .collect();
    let from: Vec<_> = moved.iter().map(place).collect();
    let copies: BTreeMap<_, Constant> = from.into_iter().zip(gathered(moved)).collect();
    for c in &mut all {
        if let Some(copy) = copies.get(&place(c)) {
            c.bytes = copy.bytes.clone();
        }
    }
}
