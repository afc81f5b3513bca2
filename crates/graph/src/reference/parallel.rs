//! Threads over independent pieces of one result.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn threads() -> usize {
    thread::available_parallelism().map_or(1, |n| n.get())
}

/// Calls `work` for every index below `count`, on all cores if `heavy`. Each
/// thread passes its own `scratch`.
pub(super) fn each<S>(
    count: usize,
    heavy: bool,
    scratch: impl Fn() -> S + Sync,
    work: impl Fn(usize, &mut S) + Sync,
) {
    let threads = if heavy { threads().min(count) } else { 1 };
    let next = AtomicUsize::new(0);
    let run = || {
        let mut s = scratch();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return;
            }
            work(i, &mut s);
        }
    };
    if threads <= 1 {
        return run();
    }
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(run);
        }
    });
}

/// Calls `work(i, piece)` for every piece of `size` elements of `out`, on all
/// cores if the whole is large.
pub(super) fn pieces<T: Send>(out: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    if out.is_empty() {
        return;
    }
    let heavy = out.len() >= 1 << 15;
    let count = out.len().div_ceil(size);
    let queue = Mutex::new(out.chunks_mut(size).enumerate());
    each(
        count,
        heavy,
        || (),
        |_, ()| {
            let piece = queue
                .lock()
                .expect("no thread panics holding the queue")
                .next();
            if let Some((i, piece)) = piece {
                work(i, piece);
            }
        },
    );
}
