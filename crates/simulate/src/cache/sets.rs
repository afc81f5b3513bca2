//! The sets of a cache, which replace the line that was used least recently.

use super::Geometry;

/// The number of no line.
pub(super) const EMPTY: u32 = 0;
/// Later times are made small: these and a plan's uses behind them are numbers with a sign as well.
const LATEST: u32 = 1 << 30;

/// A level that is asked in the order of the uses.
#[derive(Clone, Debug)]
pub(super) struct Sets {
    /// Numbers of the lines of each set, the one used last first. [`EMPTY`] ones come last.
    numbers: Vec<u32>,
    sets: u64,
    ways: usize,
}

impl Sets {
    pub(super) fn new(g: Geometry) -> Sets {
        Sets {
            numbers: vec![EMPTY; (g.sets * g.ways) as usize],
            sets: g.sets.max(1),
            ways: g.ways as usize,
        }
    }

    #[inline(always)]
    fn set(&mut self, line: u64) -> &mut [u32] {
        let begin = set_of(line, self.sets) * self.ways;
        &mut self.numbers[begin..begin + self.ways]
    }

    /// Uses a line. Whether it is there; if it is not, it comes, and the number that left for it is given, or [`EMPTY`].
    #[inline(always)]
    pub(super) fn touch(&mut self, line: u64, number: u32) -> Result<(), u32> {
        let set = self.set(line);
        // The compiler knows how many ways these have, and takes them all at once.
        if let Ok(set) = <&mut [u32; 8]>::try_from(&mut *set) {
            return bring_of(set, number);
        }
        if let Ok(set) = <&mut [u32; 16]>::try_from(&mut *set) {
            return bring_of(set, number);
        }
        match set.iter().position(|n| *n == number) {
            Some(at) => {
                set[..=at].rotate_right(1);
                Ok(())
            }
            None => {
                set.rotate_right(1);
                Err(std::mem::replace(&mut set[0], number))
            }
        }
    }

    pub(super) fn drop_line(&mut self, line: u64, number: u32) {
        let set = self.set(line);
        if let Some(at) = set.iter().position(|l| *l == number) {
            set[at..].rotate_left(1);
            set[set.len() - 1] = EMPTY;
        }
    }
}

/// The first level. Of lines that are used again and again, the first uses may be told together with the times of the
/// last ones.
#[derive(Clone, Debug)]
pub(super) struct First {
    /// Of each set the numbers of its lines, [`EMPTY`] where there is none, and then when each was used last.
    entries: Vec<u32>,
    sets: u64,
    ways: usize,
    /// The time of the last use.
    now: u32,
}

impl First {
    pub(super) fn new(g: Geometry) -> First {
        First {
            entries: vec![EMPTY; (2 * g.sets * g.ways) as usize],
            sets: g.sets.max(1),
            ways: g.ways as usize,
            now: 0,
        }
    }

    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// Sets and ways.
    pub(super) fn room(&self) -> (u64, usize) {
        (self.sets, self.ways)
    }

    /// The numbers of the lines of a set, and the times of their last uses.
    #[inline(always)]
    fn set(&mut self, line: u64) -> (&mut [u32], &mut [u32]) {
        let begin = set_of(line, self.sets) * 2 * self.ways;
        self.entries[begin..begin + 2 * self.ways].split_at_mut(self.ways)
    }

    /// As [`Sets::touch`], with the time of the line's last use.
    #[inline(always)]
    pub(super) fn touch(&mut self, line: u64, number: u32, time: u32) -> Result<(), u32> {
        // Where the compiler knows how many ways there are, it takes them all at once.
        match self.ways {
            2 => self.touch_in(2, line, number, time),
            4 => self.touch_in(4, line, number, time),
            8 => self.touch_in(8, line, number, time),
            12 => self.touch_in(12, line, number, time),
            ways => self.touch_in(ways, line, number, time),
        }
    }

    #[inline(always)]
    fn touch_in(&mut self, ways: usize, line: u64, number: u32, time: u32) -> Result<(), u32> {
        let begin = set_of(line, self.sets) * 2 * ways;
        let (numbers, used) = self.entries[begin..begin + 2 * ways].split_at_mut(ways);
        if let Some(at) = position(numbers, number) {
            used[at] = used[at].max(time);
            return Ok(());
        }
        let at = oldest(used);
        used[at] = time;
        Err(std::mem::replace(&mut numbers[at], number))
    }

    /// Lets so many uses pass.
    #[inline(always)]
    pub(super) fn pass(&mut self, uses: u32) {
        self.now += uses;
        if self.now > LATEST {
            self.now = self.begin_anew() + uses;
        }
    }

    /// Makes all times small, and keeps their order. The time after them.
    #[cold]
    fn begin_anew(&mut self) -> u32 {
        for set in self.entries.chunks_mut(2 * self.ways) {
            let times = &mut set[self.ways..];
            let mut order: Vec<usize> = (0..times.len()).filter(|n| times[*n] > 0).collect();
            order.sort_unstable_by_key(|n| times[*n]);
            for (rank, at) in (1..).zip(order) {
                times[at] = rank;
            }
        }
        self.ways as u32
    }

    pub(super) fn drop_line(&mut self, line: u64, number: u32) {
        let (numbers, used) = self.set(line);
        if let Some(at) = numbers.iter().position(|n| *n == number) {
            (numbers[at], used[at]) = (EMPTY, 0);
        }
    }
}

#[inline(always)]
fn set_of(line: u64, sets: u64) -> usize {
    let set = match sets.is_power_of_two() {
        true => line & (sets - 1),
        false => line % sets,
    };
    set as usize
}

/// Where a number is.
#[inline(always)]
fn position(numbers: &[u32], number: u32) -> Option<usize> {
    match numbers.len() {
        4 | 8 | 12 | 16 => in_fours(numbers, number),
        _ => numbers.iter().position(|n| *n == number),
    }
}

#[inline(always)]
fn in_fours(numbers: &[u32], number: u32) -> Option<usize> {
    let (fours, _) = numbers.as_chunks();
    let fours = fours.iter().map(|four| equal(four, number));
    let all = (0..)
        .zip(fours)
        .fold(0, |all, (n, of)| all | (of << (4 * n)));
    (all != 0).then(|| all.trailing_zeros() as usize)
}

/// A bit for each number: whether it is this one. LLVM makes no such code of a loop.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal(four: &[u32; 4], number: u32) -> u32 {
    use std::arch::x86_64::{
        _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_ps, _mm_set1_epi32,
    };
    // SAFETY: all x86-64 processors have SSE2, and the load reads the 16 bytes of `four`.
    let bits = unsafe {
        let four = _mm_loadu_si128(four.as_ptr().cast());
        let equal = _mm_cmpeq_epi32(four, _mm_set1_epi32(number as i32));
        _mm_movemask_ps(_mm_castsi128_ps(equal))
    };
    bits as u32
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn equal(four: &[u32; 4], number: u32) -> u32 {
    let bits = four.iter().map(|n| u32::from(*n == number));
    (0..).zip(bits).fold(0, |all, (at, bit)| all | (bit << at))
}

/// Where the least time is.
#[inline(always)]
fn oldest(times: &[u32]) -> usize {
    // With signs, SSE2 compares them at once.
    let signed = times.iter().map(|t| *t as i32);
    let least = signed.fold(i32::MAX, i32::min) as u32;
    position(times, least).unwrap_or(0)
}

/// Brings a number to the front. The last one leaves if this one was not there.
#[inline(always)]
fn bring_of<const WAYS: usize>(set: &mut [u32; WAYS], number: u32) -> Result<(), u32> {
    let before = *set;
    let found = in_fours(&before, number);
    set[0] = number;
    // Few numbers: a call to copy them would take longer.
    let back = set[1..].iter_mut().zip(before);
    match found {
        Some(at) => back.take(at).for_each(|(to, from)| *to = from),
        None => back.for_each(|(to, from)| *to = from),
    }
    match found {
        Some(_) => Ok(()),
        None => Err(before[WAYS - 1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_begin_anew_keep_their_order() {
        let mut level = First::new(Geometry { sets: 1, ways: 3 });
        level.now = LATEST - 3;
        let mut touch = |line| {
            level.pass(1);
            level.touch(line, line as u32, level.now())
        };
        // The third access is the last one before times begin anew.
        assert_eq!([1, 2, 3].map(&mut touch), [Err(EMPTY); 3]);
        assert_eq!([1, 4, 5].map(&mut touch), [Ok(()), Err(2), Err(3)]);
        assert!(level.now() < LATEST);
    }
}
