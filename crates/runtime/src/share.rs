//! What is left of one worker's part of a parallel loop, which idle workers may take from.
//!
//! The worker takes from the front, half of what is left each time, so that it runs few pieces in the order of
//! memory; others take half from the back. Both ends are in one word, so nothing is taken twice.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Two cache lines, because processors prefetch neighbouring lines in pairs.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct Share(AtomicU64);

impl Share {
    /// Replaces what is left. Only for a share that nobody else takes from: an empty one, or one of a loop that has
    /// not begun.
    pub fn set(&self, left: Range<u32>) {
        self.0.store(packed(left), Relaxed);
    }

    /// The larger half of what is left, from the front.
    pub fn take_front(&self) -> Option<Range<u32>> {
        self.take(|left| {
            let cut = left.start + (left.end - left.start).div_ceil(2);
            (left.start..cut, cut..left.end)
        })
    }

    /// The larger half of what is left, from the back.
    pub fn take_back(&self) -> Option<Range<u32>> {
        self.take(|left| {
            let cut = left.end - (left.end - left.start).div_ceil(2);
            (cut..left.end, left.start..cut)
        })
    }

    /// Takes a piece: the piece and what stays, of what is left.
    fn take(&self, piece: impl Fn(Range<u32>) -> (Range<u32>, Range<u32>)) -> Option<Range<u32>> {
        let mut word = self.0.load(Relaxed);
        loop {
            let left = unpacked(word);
            if left.is_empty() {
                return None;
            }
            let (taken, stays) = piece(left);
            // What the iterations read was written before the loop began, and the signals of the pool order that: the
            // word says nothing but which iterations nobody has taken.
            match self
                .0
                .compare_exchange_weak(word, packed(stays), Relaxed, Relaxed)
            {
                Ok(_) => return Some(taken),
                Err(seen) => word = seen,
            }
        }
    }
}

fn packed(range: Range<u32>) -> u64 {
    u64::from(range.start) << 32 | u64::from(range.end)
}

fn unpacked(word: u64) -> Range<u32> {
    (word >> 32) as u32..word as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn pieces_halve_from_both_ends() {
        let share = Share::default();
        assert_eq!(share.take_front(), None);
        share.set(3..10);
        assert_eq!(share.take_front(), Some(3..7));
        assert_eq!(share.take_back(), Some(8..10));
        assert_eq!(share.take_front(), Some(7..8));
        assert_eq!(share.take_back(), None);
    }

    #[test]
    fn nothing_is_taken_twice_and_nothing_is_lost() {
        let (share, taken) = (Share::default(), Mutex::new(Vec::new()));
        share.set(5..20_000);
        std::thread::scope(|scope| {
            for at in 0..4 {
                let (share, taken) = (&share, &taken);
                scope.spawn(move || {
                    let piece = || match at {
                        0 => share.take_front(),
                        _ => share.take_back(),
                    };
                    while let Some(piece) = piece() {
                        taken.lock().unwrap().push(piece);
                    }
                });
            }
        });
        let mut taken = taken.into_inner().unwrap();
        taken.sort_by_key(|piece| piece.start);
        assert_eq!((taken[0].start, taken[taken.len() - 1].end), (5, 20_000));
        assert!(taken.windows(2).all(|w| w[0].end == w[1].start));
    }
}
