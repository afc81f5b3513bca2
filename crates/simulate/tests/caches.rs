//! The cache model against a plain one, which keeps the time of each line's last use.

use proptest::prelude::*;
use simulate::{Access, CacheSetting, Caches, Geometry, Hits, LINE};
use std::collections::HashMap;

/// One level: the last use of each line, by set.
struct Plain {
    geometry: Geometry,
    sets: HashMap<u64, HashMap<u64, usize>>,
    read: Hits,
    write: Hits,
}

impl Plain {
    fn new(geometry: Geometry) -> Plain {
        let none = Hits::default();
        Plain {
            geometry,
            sets: HashMap::new(),
            read: none,
            write: none,
        }
    }

    /// Whether the line was there, and the line that left.
    fn touch(&mut self, line: u64, now: usize, write: bool) -> (bool, Option<u64>) {
        let set = self.sets.entry(line % self.geometry.sets).or_default();
        let hit = set.insert(line, now).is_some();
        let oldest = set.iter().min_by_key(|(_, used)| **used).map(|(l, _)| *l);
        let left = oldest.filter(|_| set.len() as u64 > self.geometry.ways);
        if let Some(left) = left {
            set.remove(&left);
        }
        let counts = if write {
            &mut self.write
        } else {
            &mut self.read
        };
        counts.hits += u64::from(hit);
        counts.misses += u64::from(!hit);
        counts.replacements += u64::from(left.is_some());
        (hit, left)
    }
}

fn geometry() -> impl Strategy<Value = Geometry> {
    let ways = prop::sample::select(vec![1_u64, 2, 3, 4, 8, 12, 16]);
    (1..6_u64, ways).prop_map(|(sets, ways)| Geometry { sets, ways })
}

/// The first levels of data and of code, and those behind them.
fn setting(levels: &[Geometry], inclusive: bool) -> CacheSetting {
    CacheSetting {
        l1d: levels[0],
        l1i: levels[1],
        shared: levels[2..].to_vec(),
        inclusive,
    }
}

fn accesses() -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
    prop::collection::vec((0..80 * LINE, 1..100_u64, 0..3_u8), 1..800)
}

proptest! {
    #[test]
    fn levels_with_room_for_all_lines_count_the_same(
        levels in prop::collection::vec(geometry(), 2..5),
        inclusive: bool,
        (data, code) in (1..24_u64, 1..4_u64),
        accesses in accesses(),
    ) {
        let setting = setting(&levels, inclusive);
        let mut caches = [Caches::new(&setting), Caches::of_lines(&setting, data, &[code])];
        for (address, _, kind) in accesses {
            let access = [Access::Read, Access::Write, Access::Fetch][usize::from(kind)];
            let line = match access {
                Access::Fetch => (1 << 40) + address % code,
                Access::Read | Access::Write => address % data,
            };
            caches.iter_mut().for_each(|c| c.line(line, access));
        }
        let [sets, of_lines] = caches;
        prop_assert_eq!(sets.first(), of_lines.first());
        prop_assert_eq!(sets.shared(), of_lines.shared());
    }

    #[test]
    fn counts_are_those_of_a_plain_model(
        levels in prop::collection::vec(geometry(), 2..5),
        inclusive: bool,
        accesses in accesses(),
    ) {
        let setting = setting(&levels, inclusive);
        let mut caches = Caches::new(&setting);
        let mut plain: Vec<Plain> = levels.into_iter().map(Plain::new).collect();
        let mut now = 0;
        for (address, bytes, kind) in accesses {
            let access = [Access::Read, Access::Write, Access::Fetch][usize::from(kind)];
            caches.access(address, bytes, access);
            for line in address / LINE..=(address + bytes - 1) / LINE {
                let first = usize::from(access == Access::Fetch);
                for at in [first].into_iter().chain(2..plain.len()) {
                    now += 1;
                    let (hit, left) = plain[at].touch(line, now, access == Access::Write);
                    if let Some(left) = left.filter(|_| inclusive && at > 1) {
                        for before in &mut plain[..at] {
                            let set = left % before.geometry.sets;
                            before.sets.entry(set).or_default().remove(&left);
                        }
                    }
                    if hit {
                        break;
                    }
                }
            }
        }
        let counted = caches.first().into_iter().chain(caches.shared());
        for (counted, plain) in counted.zip(&plain) {
            prop_assert_eq!(counted.read, plain.read);
            prop_assert_eq!(counted.write, plain.write);
        }
    }
}
