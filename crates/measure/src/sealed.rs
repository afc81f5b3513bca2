//! Memory that kernels may read and not write.
//!
//! Owns the arguments that candidates share. Promises that a write to one of
//! them, or past it, faults in the kernel that does it, so that the next
//! candidate meets what this one met.

use runtime::GuardedBuffer;
use rustix::mm::{MprotectFlags, mprotect};
use std::ffi::c_void;
use std::io;
use std::ops::Deref;

/// Bytes that a guarded buffer keeps before its start, in writable memory.
const MARGIN: usize = 64;

/// Bytes of a page of this machine.
fn page_size() -> usize {
    // SAFETY: sysconf reads a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A read-only buffer between unreadable pages, which starts 64-byte aligned.
pub struct Sealed {
    buffer: GuardedBuffer,
}

impl Sealed {
    pub fn new(bytes: &[u8]) -> io::Result<Sealed> {
        let mut buffer = GuardedBuffer::new(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Sealed::seal(buffer)
    }

    /// Takes what the buffer holds now.
    pub fn seal(mut buffer: GuardedBuffer) -> io::Result<Sealed> {
        let page = page_size();
        let start = buffer.as_mut_ptr() as usize;
        let first = (start - MARGIN) / page * page;
        let end = (start + buffer.len())
            .next_multiple_of(MARGIN)
            .next_multiple_of(page);
        // SAFETY: a guarded buffer owns the pages from its margin to the
        // unreadable page right after it, and nobody writes to this one again.
        unsafe { mprotect(first as *mut c_void, end - first, MprotectFlags::READ)? };
        Ok(Sealed { buffer })
    }

    /// For an argument list; what it points at is not to be written.
    pub fn as_argument(&self) -> *mut c_void {
        self.buffer.as_ptr().cast_mut().cast()
    }
}

impl Deref for Sealed {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the system finds an address writable, told without a fault.
    fn writable(address: usize) -> bool {
        let zero = std::fs::File::open("/dev/zero").unwrap();
        // SAFETY: the system checks the address itself.
        let n = unsafe {
            libc::read(
                std::os::fd::AsRawFd::as_raw_fd(&zero),
                address as *mut c_void,
                1,
            )
        };
        n == 1
    }

    #[test]
    fn neither_the_bytes_nor_their_surroundings_are_writable() {
        let page = page_size();
        for len in [
            0,
            1,
            64,
            100,
            page - 64,
            page - 1,
            page,
            page + 1,
            3 * page + 17,
        ] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let sealed = Sealed::new(&bytes).unwrap();
            assert_eq!(*sealed, bytes[..]);
            let start = sealed.as_argument() as usize;
            assert!(start.is_multiple_of(64));
            for address in [
                start - page,
                start - 64,
                start - 1,
                start,
                start + len,
                start + len + 64,
            ] {
                assert!(
                    !writable(address),
                    "{len} bytes: {}",
                    address.wrapping_sub(start) as isize
                );
            }
        }
        let mut free = GuardedBuffer::new(1).unwrap();
        assert!(writable(free.as_mut_ptr() as usize), "the probe can tell");
    }
}
