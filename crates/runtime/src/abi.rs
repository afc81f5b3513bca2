//! The kernel ABI, version 1: what generated code and the code that calls it
//! agree on.
//!
//! Owns the types both sides see. Promises a stable C layout under
//! [`ABI_VERSION`]. The thread pool behind `parallel_for` is in `pool`; finding
//! a kernel's address is the loader's business.

use std::ffi::c_void;
use thiserror::Error;

/// The version a kernel may read in [`Ctx::abi_version`].
pub const ABI_VERSION: u32 = 1;

/// The alignment in bytes of a kernel's workspace and of every worker's slice of it.
pub const WORKSPACE_ALIGN: u64 = 64;

/// A kernel or a prepare entry.
///
/// `args` holds one pointer for each parameter, in the order of the built
/// code's parameter list; `workspace` is 64-byte aligned and as large as
/// [`workspace_size`] says. The result is 0, or the code of a [`KernelFailure`].
pub type KernelFn = unsafe extern "C" fn(*const Ctx, *const *mut c_void, *mut c_void) -> i32;

/// The body of a parallel loop: runs iterations `[begin, end)` as worker
/// `worker`, which selects the slice of the workspace it may write.
/// A non-zero result fails the loop.
pub type ParallelBody =
    unsafe extern "C" fn(*const Ctx, env: *mut c_void, begin: i64, end: i64, worker: i32) -> i32;

/// What a kernel gets from its caller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ctx {
    pub abi_version: u32,
    /// Upper bound of the worker indices that `parallel_for` passes to a body.
    pub threads: u32,
    /// Runs `[0, extent)` in contiguous pieces, one or more for each worker, and
    /// returns after all have run: 0, or the first non-zero result of a body.
    pub parallel_for:
        unsafe extern "C" fn(*const Ctx, body: ParallelBody, env: *mut c_void, extent: i64) -> i32,
    /// The pool's own; null in a serial context.
    pub pool: *const c_void,
}

// SAFETY: workers share a context by design; it is never written, and what
// `pool` points at is for sharing as well.
unsafe impl Send for Ctx {}
// SAFETY: as above.
unsafe impl Sync for Ctx {}

impl Ctx {
    /// A context with one thread: `parallel_for` calls the body once, inline, as worker 0.
    pub const fn serial() -> Ctx {
        Ctx {
            abi_version: ABI_VERSION,
            threads: 1,
            parallel_for: serial_parallel_for,
            pool: std::ptr::null(),
        }
    }
}

unsafe extern "C" fn serial_parallel_for(
    ctx: *const Ctx,
    body: ParallelBody,
    env: *mut c_void,
    extent: i64,
) -> i32 {
    if extent <= 0 {
        return 0;
    }
    // SAFETY: the caller of `parallel_for` vouches for `body` and `env`.
    unsafe { body(ctx, env, 0, extent, 0) }
}

/// Iterations `[begin, end)` of part `index` when `extent` iterations are
/// split into `parts` contiguous chunks whose sizes differ by at most one,
/// larger ones first.
pub const fn chunk(extent: i64, parts: i64, index: i64) -> (i64, i64) {
    let (size, larger) = (extent / parts, extent % parts);
    let begin = index * size + if index < larger { index } else { larger };
    (begin, begin + size + if index < larger { 1 } else { 0 })
}

/// Bytes of workspace for `threads` workers. The layout is the shared part,
/// then one part for each worker; every part starts 64-byte aligned, so worker
/// `w` writes at `align64(shared_bytes) + w * align64(worker_bytes)`.
/// Saturates instead of overflowing.
pub const fn workspace_size(shared_bytes: u64, worker_bytes: u64, threads: u32) -> u64 {
    align_up(shared_bytes).saturating_add(align_up(worker_bytes).saturating_mul(threads as u64))
}

/// Rounds up to [`WORKSPACE_ALIGN`], saturating.
pub(crate) const fn align_up(bytes: u64) -> u64 {
    bytes.saturating_add(WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN
}

/// Why a kernel gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KernelFailure {
    #[error("an index read from the data is out of bounds; check the values of the index tensors")]
    IndexOutOfBounds,
    #[error("the kernel failed with code {0}, which this version does not know")]
    Other(i32),
}

impl KernelFailure {
    /// Reads the result of a kernel.
    pub const fn check(code: i32) -> Result<(), KernelFailure> {
        match code {
            0 => Ok(()),
            1 => Err(KernelFailure::IndexOutOfBounds),
            other => Err(KernelFailure::Other(other)),
        }
    }

    pub const fn code(self) -> i32 {
        match self {
            KernelFailure::IndexOutOfBounds => 1,
            KernelFailure::Other(code) => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_what_generated_code_reads() {
        assert_eq!(std::mem::offset_of!(Ctx, abi_version), 0);
        assert_eq!(std::mem::offset_of!(Ctx, threads), 4);
        assert_eq!(std::mem::offset_of!(Ctx, parallel_for), 8);
        assert_eq!(std::mem::offset_of!(Ctx, pool), 16);
        assert_eq!(std::mem::size_of::<Ctx>(), 24);
    }

    #[test]
    fn chunks_are_contiguous_and_balanced() {
        for extent in 0..50i64 {
            for parts in 1..9 {
                let mut at = 0;
                for i in 0..parts {
                    let (begin, end) = chunk(extent, parts, i);
                    assert_eq!(begin, at);
                    assert!((extent / parts..=extent / parts + 1).contains(&(end - begin)));
                    at = end;
                }
                assert_eq!(at, extent);
            }
        }
    }

    #[test]
    fn workspace_parts_are_aligned() {
        assert_eq!(workspace_size(0, 0, 8), 0);
        assert_eq!(workspace_size(1, 65, 3), 64 + 3 * 128);
        assert_eq!(workspace_size(u64::MAX, 1, 2), u64::MAX);
    }

    #[test]
    fn a_serial_context_runs_the_whole_range_once() {
        unsafe extern "C" fn body(
            ctx: *const Ctx,
            env: *mut c_void,
            begin: i64,
            end: i64,
            worker: i32,
        ) -> i32 {
            // SAFETY: `env` is the vector below, `ctx` the serial context.
            let (calls, threads) =
                unsafe { (&mut *env.cast::<Vec<(i64, i64, i32)>>(), (*ctx).threads) };
            assert_eq!(threads, 1);
            calls.push((begin, end, worker));
            7
        }
        let mut calls: Vec<(i64, i64, i32)> = Vec::new();
        let ctx = Ctx::serial();
        for extent in [5, 0, -1] {
            // SAFETY: the body matches its environment.
            let code = unsafe { (ctx.parallel_for)(&ctx, body, (&raw mut calls).cast(), extent) };
            assert_eq!(code, if extent > 0 { 7 } else { 0 });
        }
        assert_eq!(calls, [(0, 5, 0)]);
    }

    #[test]
    fn failure_codes_read_back() {
        assert_eq!(KernelFailure::check(0), Ok(()));
        for code in [1, 2, -5] {
            assert_eq!(
                KernelFailure::check(code).map_err(KernelFailure::code),
                Err(code)
            );
        }
    }
}
