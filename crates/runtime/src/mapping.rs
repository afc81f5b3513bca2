//! Private anonymous memory with page protection.
//!
//! Owns the calls to mmap, mprotect and munmap that are not file mappings.
//! Promises that memory is zeroed, page-aligned and unmapped on drop.

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap,
};
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

/// Mappings at least this large ask for huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of a page of this machine.
pub(crate) fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: sysconf reads a constant of the system.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    })
}

#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: a mapping is owned memory, like a `Box<[u8]>`.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives no safe access to the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves at least `len` bytes that may not be touched until `protect` allows it.
    pub(crate) fn reserve(len: usize) -> io::Result<Mapping> {
        Mapping::map(len, ProtFlags::empty())
    }

    /// At least `len` bytes of zeroed memory to read and write.
    pub(crate) fn zeroed(len: usize) -> io::Result<Mapping> {
        Mapping::map(len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map(len: usize, prot: ProtFlags) -> io::Result<Mapping> {
        let len = len
            .max(1)
            .checked_next_multiple_of(page_size())
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new private mapping at an address of the system's choice.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, MapFlags::PRIVATE)? };
        if len >= HUGE_PAGE_BYTES {
            // A kernel without huge pages refuses the advice, which costs speed only.
            // SAFETY: the range is the mapping just made.
            let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        }
        Ok(Mapping {
            base: base.cast(),
            len,
        })
    }

    /// Changes the protection of whole pages.
    ///
    /// # Panics
    /// If `range` is not within the mapping or not page-aligned.
    pub(crate) fn protect(&self, range: Range<usize>, flags: MprotectFlags) -> io::Result<()> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} of {}",
            self.len
        );
        assert!(range.start.is_multiple_of(page_size()) && range.end.is_multiple_of(page_size()));
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: the range lies in this mapping; protection does not change ownership.
        unsafe { mprotect(self.base.add(range.start).cast(), range.len(), flags)? };
        Ok(())
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// Whole pages.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned and no longer used. Unmapping a whole
        // mapping cannot fail, and there would be nothing to do about it.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}
