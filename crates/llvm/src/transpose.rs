//! Transposition in registers.
//!
//! Consecutive statements, such as those of an unrolled loop, may load so that
//! neighbouring *statements* read neighbouring elements, while the lanes of each
//! lie apart. Loaded statement by statement, every element is a load of its own.
//! Here every *lane* is one vector load, which has that lane's element of each of
//! the statements, and shuffles in log2 stages turn rows of elements into vectors
//! of lanes. What a statement does with its value, and how it stores it, is as
//! everywhere else.
//!
//! Promises that no element is loaded which the statements do not load, unless
//! its pattern says that it is readable.

use crate::emit::Emitter;
use crate::raw::Value;
use crate::value::Scope;
use ir::affine::Ranges;
use ir::simplify::simplify;
use ir::{BinaryOp, BufferId, DType, Expr, ExprKind, Isa};
use lower::flat::{AccessId, BufferPlace, LaneOffsets, LanePattern, Stmt, Store};

/// Fewer statements are loaded one by one.
const FEWEST_ROWS: usize = 2;
/// Bits within which x86 interleaves the elements of wider vectors.
const INTERLEAVED_BITS: u32 = 128;

/// A load of the first statement that later statements repeat one element further on.
struct Repeated<'a> {
    /// Which of the statement's loads.
    at: usize,
    buffer: BufferId,
    pattern: &'a LanePattern,
    /// Statements, the first included.
    rows: usize,
    /// Lanes whose elements are loaded.
    active: Vec<bool>,
}

/// Statements of one tile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TileRows {
    used: usize,
    /// Elements of each load, a power of two.
    loaded: usize,
}

impl TileRows {
    fn whole(rows: usize) -> TileRows {
        TileRows {
            used: rows,
            loaded: rows,
        }
    }
}

impl<'a> Emitter<'a> {
    /// Emits as many of the first statements as are better transposed together; their
    /// number, which is 0 if the first is better emitted alone.
    pub fn transposed(&mut self, stmts: &[Stmt]) -> usize {
        let Some(Stmt::Store(first)) = stmts.first() else {
            return 0;
        };
        let Some(lane) = first.lane else { return 0 };
        let stores = stmts.iter().map_while(|s| match s {
            Stmt::Store(s) if s.lane == first.lane && s.buffer == first.buffer => Some(s),
            _ => None,
        });
        let stores: Vec<&Store> = stores.take(lane.lanes as usize).collect();
        if stores.len() < FEWEST_ROWS || first.combined().is_some() {
            return 0;
        }
        let loads = first.loads_with_ids().into_iter().enumerate();
        let found =
            loads.filter_map(|(at, (id, buffer, _))| self.repeated(&stores, at, id, buffer));
        let mut found: Vec<Repeated> = found.collect();
        let Some(tile) = found.iter().map(|r| self.tile_rows(r)).max() else {
            return 0;
        };
        found.retain(|r| self.tile_rows(r) == tile);
        self.locate_statement(stores[0]);
        let values = found.iter().map(|r| (r.at, self.tile(r, tile, first)));
        let values: Vec<(usize, Vec<Value>)> = values.collect();
        for (row, s) in stores[..tile.used].iter().enumerate() {
            let loads = s.loads_with_ids();
            let ready = values.iter().map(|(at, v)| {
                let (_, buffer, offset) = loads[*at];
                (buffer, offset.clone(), v[row])
            });
            self.ready = ready.collect();
            self.store_stmt(s);
            self.ready.clear();
        }
        tile.used
    }

    /// How many statements read neighbours of what load `at` of the first one reads;
    /// `None` if that is too few, or another way to load is as good.
    fn repeated(
        &self,
        stores: &[&Store],
        at: usize,
        id: AccessId,
        buffer: BufferId,
    ) -> Option<Repeated<'a>> {
        let place = self.code.buffers[buffer.index()].place;
        let written = stores[0].buffer;
        if place == BufferPlace::Register || buffer == written || self.may_meet(buffer, written) {
            return None;
        }
        let pattern = self.pattern_of(id)?;
        if self.loads_in_pieces(buffer, pattern) {
            return None;
        }
        let active = active_lanes(stores[0], at, pattern)?;
        let follows = |(row, s): &(i64, &&Store)| {
            let load = s.loads.get(at).and_then(|id| self.pattern_of(*id));
            let pairs = |p: &LanePattern| {
                let all = p.distances.iter().zip(&pattern.distances);
                all.into_iter().all(|(d, first)| *d == first + row)
            };
            let same = load.is_some_and(|p| {
                p.base == pattern.base
                    && p.distances.len() == pattern.distances.len()
                    && pairs(p)
                    && active_lanes(s, at, p).as_ref() == Some(&active)
            });
            let loaded = s.loads_with_ids();
            same && loaded[at].1 == buffer
        };
        let rows = (0..).zip(stores).take_while(follows).count();
        (rows >= FEWEST_ROWS).then_some(Repeated {
            at,
            buffer,
            pattern,
            rows,
            active,
        })
    }

    fn pattern_of(&self, id: AccessId) -> Option<&'a LanePattern> {
        match &self.code.accesses[id as usize].offsets {
            LaneOffsets::Pattern(p) => Some(p),
            _ => None,
        }
    }

    /// Rows and columns of a tile are in registers at a time.
    fn tile_rows(&self, r: &Repeated) -> TileRows {
        let dtype = self.code.buffers[r.buffer.index()].dtype;
        let lanes = r.active.len() as u32;
        let most = (self.target.vector_registers / 2).min(self.access_lanes(dtype, lanes));
        let most = 1 << most.max(FEWEST_ROWS as u32).ilog2();
        let loaded = r.rows.next_power_of_two().min(most);
        let used = r.rows.min(loaded);
        let fits = used == loaded || self.reads_whole(r, loaded) || self.loads_under_masks(dtype);
        match fits {
            true => TileRows { used, loaded },
            false => TileRows::whole(1 << used.ilog2()),
        }
    }

    /// Whether so many elements from those of the first row on are in memory for all lanes.
    fn reads_whole(&self, r: &Repeated, loaded: usize) -> bool {
        let last = r.pattern.span().end - 1 + loaded as i64;
        let readable = r.pattern.readable.as_ref();
        readable.is_some_and(|readable| last <= readable.end)
    }

    /// Whether a vector load under a constant mask is one instruction.
    fn loads_under_masks(&self, dtype: DType) -> bool {
        match self.target.isa {
            Isa::X86Avx512 | Isa::RiscV64Rvv => true,
            Isa::X86Avx2 => dtype.size() >= 4,
            Isa::X86Sse2 | Isa::AArch64Neon | Isa::RiscV64Gc => false,
        }
    }

    /// The vector of lanes of each statement.
    fn tile(&mut self, r: &Repeated, rows: TileRows, first: &Store) -> Vec<Value> {
        let dtype = self.code.buffers[r.buffer.index()].dtype;
        let element = self.memory_type(dtype);
        let t = self.b.vector_type(element, rows.loaded as u32);
        let base = self.address(r.buffer, &r.pattern.base, &mut Scope::new(first.lane));
        let whole = rows.used == rows.loaded || self.reads_whole(r, rows.loaded);
        let used = |i| self.b.const_int(self.b.int_type(1), (i < rows.used).into());
        let mask = self
            .b
            .const_vector(&mut (0..rows.loaded).map(used).collect::<Vec<_>>());
        let load = |(distance, active): (&i64, &bool)| {
            if !active {
                return self.b.zero(t);
            }
            let address = self.b.gep_anywhere(element, base, self.index(*distance));
            match whole {
                true => self.b.load(t, address, dtype.size() as u32),
                false => self.masked_load(dtype, address, mask),
            }
        };
        let lanes = r.pattern.distances.iter().zip(&r.active);
        let lanes: Vec<Value> = lanes.map(load).collect();
        self.transpose(&lanes, rows.loaded, dtype)
    }

    /// From a vector of `rows` elements for each lane to a vector of lanes for each row.
    fn transpose(&self, lanes: &[Value], rows: usize, dtype: DType) -> Vec<Value> {
        let widest = self.access_lanes(dtype, lanes.len() as u32) as usize;
        let interleaved = (INTERLEAVED_BITS as usize / (8 * dtype.size())).clamp(1, rows);
        let vectors = lanes.chunks(widest);
        let vectors = vectors.map(|lanes| self.transpose_vector(lanes, rows, interleaved));
        let vectors: Vec<Vec<Value>> = vectors.collect();
        let row = |i| {
            self.b
                .joined(vectors.iter().map(|v: &Vec<Value>| v[i]).collect())
        };
        (0..rows).map(row).collect()
    }

    /// The same for as many lanes as a vector has: squares of `rows` side by side.
    fn transpose_vector(&self, lanes: &[Value], rows: usize, interleaved: usize) -> Vec<Value> {
        let squares = |i| lanes.iter().skip(i).step_by(rows).copied().collect();
        let mut all: Vec<Value> = (0..rows).map(|i| self.b.joined(squares(i))).collect();
        let mut bit = 1;
        while bit < rows {
            let [low, high] = stage(lanes.len(), rows, interleaved, bit);
            for i in (0..rows).filter(|i| i & bit == 0) {
                let (a, b) = (all[i], all[i | bit]);
                all[i] = self.b.shuffle(a, b, &low);
                all[i | bit] = self.b.shuffle(a, b, &high);
            }
            bit *= 2;
        }
        // Interleaving leaves the rows in the order of their reversed bits.
        let bits = interleaved.ilog2();
        let place = |row: usize| {
            let reversed = (0..bits).filter(|b| row >> b & 1 == 1);
            let low: usize = reversed.map(|b| 1 << (bits - 1 - b)).sum();
            row / interleaved * interleaved + low
        };
        (0..rows).map(|row| all[place(row)]).collect()
    }
}

/// Which lanes of two vectors of squares the two results of a stage have: interleaved runs of
/// `bit` elements, then every other one of the longest such runs.
fn stage(lanes: usize, rows: usize, interleaved: usize, bit: usize) -> [Vec<Option<u32>>; 2] {
    [0, 1].map(|high| {
        let mut all = Vec::new();
        if bit < interleaved {
            for block in (0..lanes).step_by(interleaved) {
                let half = block + high * interleaved / 2;
                for run in (half..half + interleaved / 2).step_by(bit) {
                    all.extend(run..run + bit);
                    all.extend(lanes + run..lanes + run + bit);
                }
            }
        } else {
            for square in (0..lanes).step_by(rows) {
                for from in [square, lanes + square] {
                    let runs = (from + high * interleaved..from + rows).step_by(2 * interleaved);
                    all.extend(runs.flat_map(|run| run..run + interleaved));
                }
            }
        }
        all.into_iter().map(|i| Some(i as u32)).collect()
    })
}

/// The lanes in which load `at` of a statement may be made, whatever its guards say of
/// those that are left out; `None` if that depends on more than the lane.
fn active_lanes(s: &Store, at: usize, pattern: &LanePattern) -> Option<Vec<bool>> {
    let lane = s.lane?;
    if pattern.readable.is_some() {
        return Some(vec![true; lane.lanes as usize]);
    }
    let loads = s.loads_with_ids();
    let (_, buffer, offset) = loads[at];
    let mut guards: Vec<(Expr, bool)> = s.mask.iter().map(|m| (m.clone(), true)).collect();
    // A load in an offset or a mask is not guarded by what is known here.
    let mut found = 0;
    find_guards(&s.value, buffer, offset, &mut guards, &mut found)?;
    if found != 1 {
        return None;
    }
    let active = |i: u32| {
        let at_lane = Expr::int(i64::from(i));
        let holds = |(guard, wanted): &(Expr, bool)| {
            let guard = guard.with_var(lane.var, &at_lane);
            let known = simplify(&guard, &Ranges::new()).as_int()?;
            Some((known != 0) == *wanted)
        };
        let all: Vec<Option<bool>> = guards.iter().map(holds).collect();
        match all.contains(&Some(false)) {
            true => Some(false),
            false => all.iter().all(Option::is_some).then_some(true),
        }
    };
    (0..lane.lanes).map(active).collect()
}

/// Adds the conditions under which a value loads `offset`, and counts the loads; `None` if
/// the load is in a condition, which may be evaluated in part.
fn find_guards(
    e: &Expr,
    buffer: BufferId,
    offset: &Expr,
    guards: &mut Vec<(Expr, bool)>,
    found: &mut usize,
) -> Option<()> {
    let loads = |e: &Expr| {
        e.any(&|e| matches!(e.kind(), ExprKind::Load(b, at) if *b == buffer && at[0] == *offset))
    };
    if !loads(e) {
        return Some(());
    }
    match e.kind() {
        ExprKind::Load(..) => *found += 1,
        ExprKind::Binary(BinaryOp::And | BinaryOp::Or, ..) => return None,
        ExprKind::Select(c, yes, no) => {
            if loads(c) || loads(yes) && loads(no) {
                return None;
            }
            guards.push((c.clone(), loads(yes)));
            let taken = if loads(yes) { yes } else { no };
            find_guards(taken, buffer, offset, guards, found)?;
        }
        _ => {
            for c in e.children() {
                find_guards(c, buffer, offset, guards, found)?;
            }
        }
    }
    Some(())
}
