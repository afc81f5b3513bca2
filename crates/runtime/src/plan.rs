//! Places the buffers of a model in one arena, so that buffers which are
//! never needed at the same time share memory.
//!
//! Owns the assignment of offsets. Promises that two buffers which are alive
//! together do not overlap, that offsets are 64-byte aligned, and that the
//! same buffers give the same plan. When buffers are alive is the caller's
//! statement.

use crate::abi::align_up;
use std::collections::BTreeMap;

/// What the planner needs to know of a buffer. Times are step numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferUse {
    pub bytes: u64,
    pub first_use: usize,
    /// Included.
    pub last_use: usize,
    /// Buffers of one group share one place, which is as large as the largest
    /// and alive from the first use of any to the last use of any.
    pub alias_group: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// One for each buffer, in the order given.
    pub offsets: Vec<u64>,
    pub arena_bytes: u64,
    /// The most bytes alive at one time: no plan is smaller.
    pub lower_bound: u64,
}

/// A place to find: one buffer, or all buffers of a group.
#[derive(Clone, Copy)]
struct Item {
    bytes: u64,
    first: usize,
    last: usize,
}

/// Greedy by size, each buffer in the smallest gap that holds it (Pisarchyk
/// and Lee, "Efficient memory management for deep neural net inference", 2020);
/// the better of two orders, by bytes and by bytes times lifetime, is kept.
pub fn plan_memory(buffers: &[BufferUse]) -> MemoryPlan {
    let (items, item_of) = merge_groups(buffers);
    let by_bytes = assign(&items, |item| u128::from(item.bytes));
    let by_area = assign(&items, |item| {
        u128::from(item.bytes) * (item.last - item.first + 1) as u128
    });
    let (places, arena_bytes) = if by_area.1 < by_bytes.1 {
        by_area
    } else {
        by_bytes
    };
    MemoryPlan {
        offsets: item_of.into_iter().map(|item| places[item]).collect(),
        arena_bytes,
        lower_bound: lower_bound(&items),
    }
}

/// The items and, for each buffer, the index of its item.
fn merge_groups(buffers: &[BufferUse]) -> (Vec<Item>, Vec<usize>) {
    let mut items: Vec<Item> = Vec::with_capacity(buffers.len());
    let mut groups = BTreeMap::new();
    let mut item_of = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        let next = items.len();
        let index = match buffer.alias_group {
            Some(group) => *groups.entry(group).or_insert(next),
            None => next,
        };
        let (first, last) = (buffer.first_use, buffer.last_use.max(buffer.first_use));
        let item = Item {
            bytes: align_up(buffer.bytes),
            first,
            last,
        };
        match items.get_mut(index) {
            None => items.push(item),
            Some(old) => {
                old.bytes = old.bytes.max(item.bytes);
                old.first = old.first.min(item.first);
                old.last = old.last.max(item.last);
            }
        }
        item_of.push(index);
    }
    (items, item_of)
}

/// Places items in the order of falling `weight`; offsets and the arena's size.
fn assign(items: &[Item], weight: impl Fn(&Item) -> u128) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(weight(&items[*i])), items[*i].first, *i));
    let mut offsets = vec![0; items.len()];
    // Placed items by offset.
    let mut placed: Vec<usize> = Vec::with_capacity(items.len());
    let mut arena = 0;
    for index in order {
        let item = &items[index];
        let alive_together = placed
            .iter()
            .map(|p| (offsets[*p], &items[*p]))
            .filter(|(_, p)| p.first <= item.last && item.first <= p.last);
        let offset = best_gap(alive_together, item.bytes);
        offsets[index] = offset;
        arena = arena.max(offset.saturating_add(item.bytes));
        let at = placed.partition_point(|p| (offsets[*p], *p) < (offset, index));
        placed.insert(at, index);
    }
    (offsets, arena)
}

/// The start of the smallest gap of at least `bytes` between the items, which
/// come by offset; behind all of them when there is none.
fn best_gap<'a>(items: impl Iterator<Item = (u64, &'a Item)>, bytes: u64) -> u64 {
    let (mut free_from, mut best) = (0u64, None);
    for (offset, item) in items {
        if offset >= free_from && offset - free_from >= bytes {
            let gap = offset - free_from;
            if best.is_none_or(|(size, _)| gap < size) {
                best = Some((gap, free_from));
            }
        }
        free_from = free_from.max(offset.saturating_add(item.bytes));
    }
    best.map_or(free_from, |(_, start)| start)
}

fn lower_bound(items: &[Item]) -> u64 {
    let mut change: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for item in items {
        let starts = &mut change.entry(item.first).or_default().0;
        *starts = starts.saturating_add(item.bytes);
        let ends = &mut change.entry(item.last + 1).or_default().1;
        *ends = ends.saturating_add(item.bytes);
    }
    let (mut alive, mut most) = (0u64, 0);
    for (starts, ends) in change.into_values() {
        alive = alive.saturating_sub(ends).saturating_add(starts);
        most = most.max(alive);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: u64, first_use: usize, last_use: usize) -> BufferUse {
        BufferUse {
            bytes,
            first_use,
            last_use,
            alias_group: None,
        }
    }

    /// A small generator with a fixed seed (splitmix64).
    struct Draws(u64);

    impl Draws {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % n
        }
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let chain: Vec<_> = (0..10).map(|i| buffer(1000, i, i + 1)).collect();
        let plan = plan_memory(&chain);
        assert_eq!((plan.arena_bytes, plan.lower_bound), (2048, 2048));
    }

    #[test]
    fn the_smallest_gap_that_fits_is_taken() {
        // At time 1 the gaps are [0, 256) and [512, 640); the small one is taken.
        let gaps = [
            (
                256,
                Item {
                    bytes: 256,
                    first: 0,
                    last: 9,
                },
            ),
            (
                640,
                Item {
                    bytes: 64,
                    first: 0,
                    last: 9,
                },
            ),
        ];
        assert_eq!(best_gap(gaps.iter().map(|(o, i)| (*o, i)), 128), 512);
        assert_eq!(best_gap(gaps.iter().map(|(o, i)| (*o, i)), 192), 0);
        assert_eq!(best_gap(gaps.iter().map(|(o, i)| (*o, i)), 320), 704);
    }

    #[test]
    fn a_group_shares_one_place_for_all_its_uses() {
        let group = |b: BufferUse| BufferUse {
            alias_group: Some(3),
            ..b
        };
        let plan = plan_memory(&[
            group(buffer(64, 0, 0)),
            buffer(64, 1, 1),
            group(buffer(128, 2, 2)),
        ]);
        assert_eq!(plan.offsets[0], plan.offsets[2]);
        assert_eq!(plan.arena_bytes, 192);
    }

    #[test]
    fn nothing_alive_together_overlaps() {
        let mut draws = Draws(1);
        let (mut arena, mut bound) = (0, 0);
        for case in 0..300 {
            let steps = 1 + draws.below(30);
            let buffers: Vec<_> = (0..1 + draws.below(40))
                .map(|_| {
                    let first = draws.below(steps);
                    let last = first + draws.below(steps - first);
                    let scale = 1 << draws.below(12);
                    BufferUse {
                        alias_group: (draws.below(4) == 0).then(|| draws.below(5) as usize),
                        ..buffer(draws.below(8) * scale, first as usize, last as usize)
                    }
                })
                .collect();
            let plan = plan_memory(&buffers);
            assert_eq!(plan, plan_memory(&buffers));
            assert!(plan.lower_bound <= plan.arena_bytes);
            for (a, at) in buffers.iter().zip(&plan.offsets) {
                assert!(at.is_multiple_of(64) && at + a.bytes <= plan.arena_bytes);
                for (b, bt) in buffers.iter().zip(&plan.offsets) {
                    let same_group = a.alias_group.is_some() && a.alias_group == b.alias_group;
                    if same_group {
                        assert_eq!(at, bt);
                    } else if !std::ptr::eq(a, b)
                        && a.first_use <= b.last_use
                        && b.first_use <= a.last_use
                    {
                        assert!(
                            at + a.bytes <= *bt || bt + b.bytes <= *at,
                            "case {case}: {a:?} at {at} and {b:?} at {bt}"
                        );
                    }
                }
            }
            arena += plan.arena_bytes;
            bound += plan.lower_bound;
        }
        assert!(
            arena < 2 * bound,
            "the planner wastes half of the memory: {arena} bytes, lower bound {bound}"
        );
    }
}
