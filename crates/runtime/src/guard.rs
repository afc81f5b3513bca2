//! Buffers that catch a kernel which writes or reads outside them.
//!
//! Owns memory for runs of untrusted code. Promises that a touch of the page
//! before or after a buffer faults, and that a write into the bytes between
//! the buffer and those pages is found by [`GuardedBuffer::check_canaries`].
//! Reading those bytes goes unnoticed. Turning a fault into an outcome is the
//! runner process's business.

use crate::mapping::{Mapping, page_size};
use rustix::mm::MprotectFlags;
use std::io;
use std::ops::{Deref, DerefMut};
use thiserror::Error;

/// Alignment of a buffer's start, and the least number of canary bytes before it.
const ALIGN: usize = 64;

/// Canary byte `i` of a buffer's memory; neighbours differ, so a copy that is
/// off by some bytes shows as well.
fn canary(i: usize) -> u8 {
    0xa5 ^ (i as u8).wrapping_mul(0x3b)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanarySide {
    Before,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the code wrote out of bounds: {distance} bytes {} a buffer of {len} bytes; its schedule or \
     its lowering is wrong",
    match side { CanarySide::Before => "before the start of", CanarySide::After => "past the end of" }
)]
pub struct CanaryError {
    pub side: CanarySide,
    /// Distance of the damaged byte nearest to the buffer: 1 is the byte just outside.
    pub distance: usize,
    pub len: usize,
}

/// A zeroed buffer that starts 64-byte aligned and ends less than 64 bytes
/// before an unreadable page; an unreadable page lies before it as well.
#[derive(Debug)]
pub struct GuardedBuffer {
    mapping: Mapping,
    /// Offset of the buffer in the mapping, and of the guard page after it.
    start: usize,
    end: usize,
    len: usize,
}

impl GuardedBuffer {
    pub fn new(len: usize) -> io::Result<GuardedBuffer> {
        let page = page_size();
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let flush = len.checked_next_multiple_of(ALIGN).ok_or_else(too_large)?;
        let inner = flush
            .checked_add(ALIGN)
            .and_then(|n| n.checked_next_multiple_of(page));
        let total = inner.and_then(|n| n.checked_add(2 * page));
        let (inner, total) = inner.zip(total).ok_or_else(too_large)?;
        let mapping = Mapping::reserve(total)?;
        mapping.protect(
            page..page + inner,
            MprotectFlags::READ | MprotectFlags::WRITE,
        )?;
        let end = page + inner;
        let mut buffer = GuardedBuffer {
            mapping,
            start: end - flush,
            end,
            len,
        };
        buffer.set_canaries();
        Ok(buffer)
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.mapping.as_ptr().wrapping_add(self.start)
    }

    /// Whether the bytes around the buffer are as this type left them.
    pub fn check_canaries(&self) -> Result<(), CanaryError> {
        let page = page_size();
        let (memory, start) = (self.memory(), self.start - page);
        let damaged = |i: &usize| memory[*i] != canary(*i);
        let found = |side, distance| {
            Err(CanaryError {
                side,
                distance,
                len: self.len,
            })
        };
        if let Some(i) = (0..start).rev().find(damaged) {
            return found(CanarySide::Before, start - i);
        }
        let stop = start + self.len;
        if let Some(i) = (stop..memory.len()).find(damaged) {
            return found(CanarySide::After, i - stop + 1);
        }
        Ok(())
    }

    /// Restores the bytes around the buffer after a failed check.
    pub fn set_canaries(&mut self) {
        let (start, len) = (self.start - page_size(), self.len);
        let memory = self.memory_mut();
        for i in (0..start).chain(start + len..memory.len()) {
            memory[i] = canary(i);
        }
    }

    /// What lies between the guard pages.
    fn memory(&self) -> &[u8] {
        let page = page_size();
        // SAFETY: the pages between the guards are readable and initialised.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(page), self.end - page) }
    }

    fn memory_mut(&mut self) -> &mut [u8] {
        let page = page_size();
        // SAFETY: as in `memory`; the borrow is unique.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr().add(page), self.end - page) }
    }
}

impl Deref for GuardedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let start = self.start - page_size();
        &self.memory()[start..start + self.len]
    }
}

impl DerefMut for GuardedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.start - page_size(), self.len);
        &mut self.memory_mut()[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_aligned_flush_and_zeroed() {
        let page = page_size();
        for len in [
            0,
            1,
            63,
            64,
            65,
            page - 64,
            page - 1,
            page,
            page + 1,
            3 * page + 17,
        ] {
            let mut buffer = GuardedBuffer::new(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|b| *b == 0));
            let start = buffer.as_mut_ptr() as usize;
            assert!(start.is_multiple_of(64));
            let guard = (start + len).next_multiple_of(64);
            assert!(
                guard.is_multiple_of(page),
                "{len} bytes do not end at a page"
            );
            buffer.fill(0xff);
            buffer.check_canaries().unwrap();
        }
    }

    #[test]
    fn one_byte_outside_is_found_on_either_side() {
        for len in [1, 63, 100] {
            for (offset, side) in [
                (-1isize, CanarySide::Before),
                (len as isize, CanarySide::After),
            ] {
                let mut buffer = GuardedBuffer::new(len).unwrap();
                // SAFETY: canary bytes surround the buffer on both sides.
                unsafe { *buffer.as_mut_ptr().offset(offset) ^= 1 };
                let error = CanaryError {
                    side,
                    distance: 1,
                    len,
                };
                assert_eq!(buffer.check_canaries(), Err(error));
                assert!(error.to_string().contains("1 bytes"));
                buffer.set_canaries();
                buffer.check_canaries().unwrap();
            }
        }
    }

    #[test]
    fn the_pages_around_fault() {
        let page = page_size();
        let mut buffer = GuardedBuffer::new(64).unwrap();
        let start = buffer.as_mut_ptr() as usize;
        // The system refuses to read from memory that this process may not
        // read, which tells the protection without a fault.
        let (read, write) = rustix::pipe::pipe().unwrap();
        let readable = |address: usize| {
            // SAFETY: the system checks the address itself.
            let n = unsafe {
                libc::write(
                    std::os::fd::AsRawFd::as_raw_fd(&write),
                    address as *const _,
                    1,
                )
            };
            n == 1
        };
        assert!(readable(start) && readable(start + 63) && readable(start - 1));
        assert!(
            !readable(start + 64),
            "the page after the buffer is readable"
        );
        let first = start / page * page;
        assert!(
            readable(first) && !readable(first - 1),
            "the page before is readable"
        );
        drop(read);
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(GuardedBuffer::new(usize::MAX).is_err());
        assert!(GuardedBuffer::new(usize::MAX - 8192).is_err());
    }
}
