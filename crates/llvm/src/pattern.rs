//! Loads whose lanes lie at constant distances: a few loads of consecutive
//! elements, then shuffles with constant masks.
//!
//! Promises that no element is loaded outside of what the lanes themselves span,
//! unless the pattern says that it is readable. Loads of patterns that share a
//! readable range, or a block, are equal, and the optimiser merges them.

use crate::emit::Emitter;
use crate::raw::Value;
use crate::value::Scope;
use ir::BufferId;
use lower::flat::LanePattern;
use std::ops::Range;

/// More loads for a vector of the target cost as much as loading lane by lane.
const MAX_LOADS_PER_VECTOR: usize = 4;

/// How a pattern is loaded.
struct Pieces {
    /// Elements of one load.
    lanes: u32,
    /// Distances of the loads from the base.
    starts: Vec<i64>,
    /// The load and the element of it that each lane takes.
    sources: Vec<(usize, u32)>,
}

/// Covers the distances with loads of at most `widest` elements inside `window`,
/// from its start on; the last one may overlap the one before. `None` if loading
/// lane by lane is as good.
fn pieces(distances: &[i64], window: &Range<i64>, widest: u32) -> Option<Pieces> {
    let size = u32::try_from(window.end.checked_sub(window.start)?).unwrap_or(u32::MAX);
    let lanes = widest.min(1 << size.checked_ilog2()?);
    let last = window.end - i64::from(lanes);
    let (mut starts, mut sources) = (Vec::new(), Vec::new());
    for d in distances {
        let whole = (d - window.start) / i64::from(lanes) * i64::from(lanes);
        let start = last.min(window.start + whole);
        let known = starts.iter().position(|s| *s == start);
        let load = known.unwrap_or(starts.len());
        if known.is_none() {
            starts.push(start);
        }
        sources.push((load, u32::try_from(d - start).ok()?));
    }
    let vectors = distances.len().div_ceil(widest as usize);
    let few = starts.len() <= MAX_LOADS_PER_VECTOR * vectors && 2 * starts.len() <= sources.len();
    (few && lanes > 1).then_some(Pieces {
        lanes,
        starts,
        sources,
    })
}

/// The elements that loads of a pattern may read, as distances from its base. `None` if only the lanes of a mask may be
/// read.
fn window(pattern: &LanePattern, masked: bool) -> Option<Range<i64>> {
    match (&pattern.readable, masked) {
        (Some(readable), _) => Some(readable.clone()),
        (None, false) => Some(pattern.block.clone().unwrap_or_else(|| pattern.span())),
        (None, true) => None,
    }
}

/// Where a pattern's loads of consecutive elements begin, as distances from its base, and how many elements each has, if
/// so many loads give all lanes. `None` if the lanes are loaded otherwise.
pub fn pattern_loads(pattern: &LanePattern, masked: bool, loads: usize) -> Option<(Vec<i64>, u32)> {
    let window = window(pattern, masked)?;
    let lanes = u32::try_from(pattern.distances.len()).ok()?;
    let mut widths = std::iter::successors(Some(lanes), |w| Some(w / 2)).take_while(|w| *w > 1);
    widths.find_map(|widest| {
        let found = pieces(&pattern.distances, &window, widest)?;
        (found.starts.len() == loads).then_some((found.starts, found.lanes))
    })
}

impl Emitter<'_> {
    /// Whether a few loads and shuffles give all lanes of a pattern.
    pub fn loads_in_pieces(&self, buffer: BufferId, pattern: &LanePattern) -> bool {
        let dtype = self.code.buffers[buffer.index()].dtype;
        let widest = self.access_lanes(dtype, pattern.distances.len() as u32);
        let window = pattern.readable.clone().unwrap_or(pattern.span());
        pieces(&pattern.distances, &window, widest).is_some()
    }

    /// The elements of all lanes, zero where the scope's mask leaves a lane out;
    /// `None` if another way to load them is better.
    pub fn load_pattern(
        &mut self,
        buffer: BufferId,
        pattern: &LanePattern,
        s: &mut Scope,
    ) -> Option<Value> {
        let dtype = self.code.buffers[buffer.index()].dtype;
        let widest = self.access_lanes(dtype, pattern.distances.len() as u32);
        let mask = s.mask();
        let pieces = pieces(
            &pattern.distances,
            &window(pattern, mask.is_some())?,
            widest,
        )?;
        let element = self.memory_type(dtype);
        let base = self.address(buffer, &pattern.base, s);
        let t = self.b.vector_type(element, pieces.lanes);
        let load = |start: &i64| {
            let address = self.b.gep_anywhere(element, base, self.index(*start));
            self.b.load(t, address, dtype.size() as u32)
        };
        let loads: Vec<Value> = pieces.starts.iter().map(load).collect();
        let all = self.picked(&loads, &pieces, widest);
        Some(match mask {
            Some(mask) => self.b.select(mask, all, self.b.zero(self.b.type_of(all))),
            None => all,
        })
    }

    /// As `load_pattern` under a mask, where only the lanes' own elements may be
    /// loaded: each load has the mask of the lanes that take from it.
    pub fn load_masked_pattern(
        &mut self,
        buffer: BufferId,
        pattern: &LanePattern,
        mask: Value,
        s: &mut Scope,
    ) -> Option<Value> {
        let dtype = self.code.buffers[buffer.index()].dtype;
        let widest = self.access_lanes(dtype, pattern.distances.len() as u32);
        let pieces = pieces(&pattern.distances, &pattern.span(), widest)?;
        let takers = pieces.takers()?;
        let base = self.address(buffer, &pattern.base, s);
        let load = |(start, lanes): (&i64, &Vec<Option<u32>>)| {
            let here = self.mask_of(mask, lanes);
            let element = self.memory_type(dtype);
            let address = self.b.gep_anywhere(element, base, self.index(*start));
            self.masked_load(dtype, address, here)
        };
        let loads: Vec<Value> = pieces.starts.iter().zip(&takers).map(load).collect();
        Some(self.picked(&loads, &pieces, widest))
    }

    /// The lanes of `mask`, false for `None`.
    fn mask_of(&self, mask: Value, lanes: &[Option<u32>]) -> Value {
        let none = self.b.zero(self.b.type_of(mask));
        let off = self.b.lanes_of(mask);
        let indices: Vec<Option<u32>> = lanes.iter().map(|l| Some(l.unwrap_or(off))).collect();
        self.b.shuffle(mask, none, &indices)
    }

    /// What each lane takes from the loads, one vector of the target at a time.
    fn picked(&self, loads: &[Value], pieces: &Pieces, widest: u32) -> Value {
        let vectors = pieces.sources.chunks(widest as usize);
        let vectors = vectors.map(|sources| self.picked_by(sources, loads, pieces.lanes));
        self.b.joined(vectors.collect())
    }

    /// One vector: lanes from the first two loads, then from one more at a time.
    fn picked_by(&self, sources: &[(usize, u32)], loads: &[Value], lanes: u32) -> Value {
        let mut used: Vec<usize> = sources.iter().map(|s| s.0).collect();
        used.sort_unstable();
        used.dedup();
        let second = used.get(1).copied();
        let from_two = |&(load, at): &(usize, u32)| match load {
            l if l == used[0] => Some(at),
            l if Some(l) == second => Some(lanes + at),
            _ => None,
        };
        let first = loads[used[0]];
        let other = second.map_or(self.b.undef(self.b.type_of(first)), |l| loads[l]);
        let indices: Vec<Option<u32>> = sources.iter().map(from_two).collect();
        let mut all = self.b.shuffle(first, other, &indices);
        for next in used.iter().skip(2) {
            let indices = (0..).zip(sources).map(|(i, (load, at))| match load {
                l if l == next => Some(lanes + at),
                _ => Some(i),
            });
            let indices: Vec<Option<u32>> = indices.collect();
            all = self.b.shuffle(all, loads[*next], &indices);
        }
        all
    }
}

impl Pieces {
    /// For every load the lane that takes each element; `None` if several lanes take one.
    fn takers(&self) -> Option<Vec<Vec<Option<u32>>>> {
        let mut takers = vec![vec![None; self.lanes as usize]; self.starts.len()];
        for (lane, (load, at)) in (0..).zip(&self.sources) {
            let taker = &mut takers[*load][*at as usize];
            if taker.replace(lane).is_some() {
                return None;
            }
        }
        Some(takers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stride(k: i64, lanes: i64) -> Vec<i64> {
        (0..lanes).map(|i| i * k).collect()
    }

    /// Starts and width of the loads, having checked that each lane gets its element.
    fn loads(distances: &[i64], window: Range<i64>, widest: u32) -> Option<(Vec<i64>, u32)> {
        let p = pieces(distances, &window, widest)?;
        for (d, (load, at)) in distances.iter().zip(&p.sources) {
            assert_eq!(p.starts[*load] + i64::from(*at), *d);
            assert!(*at < p.lanes);
        }
        for s in &p.starts {
            assert!(*s >= window.start && s + i64::from(p.lanes) <= window.end);
        }
        Some((p.starts, p.lanes))
    }

    #[test]
    fn loads_cover_the_lanes_inside_the_window() {
        assert_eq!(loads(&stride(2, 16), 0..32, 16), Some((vec![0, 16], 16)));
        assert_eq!(loads(&stride(2, 16), 0..31, 16), Some((vec![0, 15], 16)));
        assert_eq!(
            loads(&stride(2, 16), 0..32, 8),
            Some((vec![0, 8, 16, 24], 8))
        );
        let grouped: Vec<i64> = (0..16).map(|i| i / 4 * 4 + 1).collect();
        assert_eq!(loads(&grouped, 0..16, 16), Some((vec![0], 16)));
        assert_eq!(loads(&grouped, 1..14, 16), Some((vec![1, 6], 8)));
        let repeated: Vec<i64> = (0..16).map(|i| i % 4).collect();
        assert_eq!(loads(&repeated, 0..4, 16), Some((vec![0], 4)));
        let reversed: Vec<i64> = (0..8).map(|i| 7 - i).collect();
        assert_eq!(loads(&reversed, 0..8, 8), Some((vec![0], 8)));
    }

    #[test]
    fn the_number_of_loads_says_how_wide_they_are() {
        let pattern = |distances: Vec<i64>, readable| LanePattern {
            base: ir::Expr::int(0),
            distances,
            readable,
            block: None,
        };
        let halves = pattern(vec![4, 4, 4, 4, 8, 8, 8, 8], Some(4..12));
        assert_eq!(pattern_loads(&halves, false, 1), Some((vec![4], 8)));
        assert_eq!(pattern_loads(&halves, true, 2), Some((vec![4, 8], 4)));
        assert_eq!(pattern_loads(&halves, false, 3), None);
        // Only the elements that lanes have may be read: two loads that overlap.
        let narrow = pattern(halves.distances, None);
        assert_eq!(pattern_loads(&narrow, false, 2), Some((vec![4, 5], 4)));
        assert_eq!(pattern_loads(&narrow, true, 2), None);
    }

    #[test]
    fn what_takes_as_many_loads_as_lanes_is_left() {
        assert_eq!(loads(&stride(5, 16), 0..80, 16), None);
        assert_eq!(loads(&stride(3, 4), 0..12, 4), None);
        assert_eq!(loads(&stride(1 << 40, 4), 0..(3 << 40) + 1, 4), None);
        assert_eq!(loads(&[7; 8], 7..8, 8), None);
    }
}
