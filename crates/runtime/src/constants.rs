//! The bytes of constants: where they are, and parts of buffers that others share.

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

/// What constants are parts of: memory of the process, a mapped file.
pub(crate) type Buffer = dyn Deref<Target = [u8]> + Send + Sync;

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
