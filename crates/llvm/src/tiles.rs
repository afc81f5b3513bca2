//! Products of tiles: loops over rows and over steps of a sum round a dot product of 16 lanes, as
//! schedules of `search`'s tiles write them.
//!
//! Such a nest reads `acc[r, i] += a[r, 4s..] b[s, i, ..]` for `rows` rows, `steps` steps and 16
//! lanes, with bytes (four terms a step) or bf16 (two); its steps may be those of two loops. One
//! instruction computes all of the nest on a target with AMX; others run the loops with the dot
//! products that they have (`dot`).
//!
//! Sums stay in tiles through a *region*: neighbouring statements, loops and ifs among them, that
//! do nothing but add such products. Tiles are loaded before a region and stored behind it, so
//! outside of regions sums are in memory; sums that begin with zeros begin in tiles. The shapes of tiles are set where a region needs others
//! than the one before, which takes 200 cycles (a Xeon of Intel's fourth generation).
//!
//! Bf16 products are those of `vdpbf16ps`: subnormals are zero, and each addition rounds.

use crate::dot::Factors;
use crate::emit::Emitter;
use crate::raw::{Cmp, Value};
use crate::value::Scope;
use ir::affine::Affine;
use ir::{BinaryOp, BufferId, DType, Expr, ExprKind, VarId};
use lower::flat::{BufferPlace, FlatLoop, Stmt};
use std::collections::HashSet;

/// Tiles for the factors: one for each side at least.
const FEWEST_FACTORS: usize = 2;

/// Where a tile is in memory.
#[derive(Clone, PartialEq)]
struct Place {
    buffer: BufferId,
    /// Of the first element.
    at: Expr,
    /// Elements from a row to the next.
    stride: i64,
}

/// A nest that is one product of tiles.
struct Product {
    sums: Place,
    /// Rows of the left side, for each of which the right side's steps are added.
    left: Place,
    right: Place,
    shape: Shape,
    instruction: &'static str,
}

/// A tile of sums that is set to zero.
struct Zeros {
    place: Place,
    rows: i64,
}

/// Rows of the left side and of the sums, and steps of 32 bits of the sum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Shape {
    rows: i64,
    steps: i64,
}

/// The shapes of all tiles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Shapes {
    shape: Shape,
    /// The first tiles are sums, the next left sides, the others right sides.
    sums: usize,
    lefts: usize,
}

/// What the tiles hold while a region is emitted.
pub struct Region {
    shapes: Shapes,
    sums: Vec<Place>,
    /// What the tiles of the left and the right side hold here, the one used last at the end.
    held: [Vec<(usize, Option<Place>)>; 2],
}

/// What a function that uses tiles knows of them.
pub struct Tiles {
    /// Where the number of the shapes is that are set.
    set: Value,
    /// Shapes, whose numbers count from 1.
    known: Vec<Shapes>,
}

impl Emitter<'_> {
    /// Before a function ends: the system need not save tiles that are released.
    pub fn release_tiles(&self, tiles: Option<&Tiles>) {
        if tiles.is_some_and(|t| !t.known.is_empty()) {
            self.b.intrinsic("llvm.x86.tilerelease", &mut [], &mut []);
        }
    }

    /// After other code ran that sets and releases tiles.
    pub fn forget_tiles(&mut self) {
        if self.target.tile_dot.is_some() {
            let set = self.known_tiles().set;
            let zero = self.b.zero(self.b.int_type(32));
            self.b.store(zero, set, 4);
        }
    }

    fn known_tiles(&mut self) -> &mut Tiles {
        if self.tiles().is_none() {
            let zero = self.b.zero(self.b.int_type(32));
            let set = self.b.entry_variable(self.function(), zero, 4);
            *self.tiles() = Some(Tiles { set, known: vec![] });
        }
        self.tiles().as_mut().expect("made above")
    }

    /// Emits as many of the first statements as are products of tiles; their number.
    pub fn products_of_tiles(&mut self, stmts: &[Stmt]) -> usize {
        if self.target.tile_dot.is_none() {
            return 0;
        }
        if self.region.is_some() {
            return usize::from(self.product_of_tiles(&stmts[0]));
        }
        let zeros: Vec<Zeros> = stmts.iter().map_while(|s| self.zeros(s)).collect();
        let stmts = &stmts[zeros.len()..];
        let (region, count) = self.region(stmts);
        let Some(region) = region else { return 0 };
        let rows = region.shapes.shape.rows;
        let is_zero = |place: &Place| zeros.iter().any(|z| z.rows == rows && z.place == *place);
        // Zeros of anything else are stored as they are, and then loaded.
        if !zeros.is_empty()
            && !(zeros.len() == region.sums.len() && region.sums.iter().all(is_zero))
        {
            return 0;
        }
        self.begin_other();
        self.set_shapes(region.shapes);
        for (tile, place) in region.sums.iter().enumerate() {
            match zeros.is_empty() {
                true => self.move_tile("llvm.x86.tileloadd64", tile, place),
                false => {
                    let tile = self.tile_number(tile);
                    self.b.intrinsic("llvm.x86.tilezero", &mut [], &mut [tile]);
                }
            }
        }
        let sums = region.sums.clone();
        self.region = Some(region);
        self.stmts(&stmts[..count]);
        self.region = None;
        self.begin_other();
        for (tile, place) in sums.iter().enumerate() {
            self.move_tile("llvm.x86.tilestored64", tile, place);
        }
        zeros.len() + count
    }

    /// A loop that does nothing but set a tile of sums to zero.
    fn zeros(&self, s: &Stmt) -> Option<Zeros> {
        let dot = self.target.tile_dot?;
        let rows = serial(s)?;
        let Stmt::Store(s) = only(&rows.body)? else {
            return None;
        };
        let lane = s.lane.filter(|l| i64::from(l.lanes) == dot.lanes())?;
        let is_zero = match s.value.kind() {
            ExprKind::Int(v, _) => *v == 0,
            ExprKind::Float(bits, _) => *bits == 0,
            _ => false,
        };
        let (at, stride) = without(&s.offset, rows.var)?;
        let (at, by_lane) = without(&at, lane.var)?;
        (is_zero && by_lane == 1 && s.mask.is_none()).then(|| Zeros {
            place: Place {
                buffer: s.buffer,
                at,
                stride,
            },
            rows: rows.extent,
        })
    }

    /// Where statements begin or end that run in loops or under conditions, no factor is in a tile
    /// for sure.
    pub fn forget_factors(&mut self) {
        if let Some(region) = &mut self.region {
            region.held.iter_mut().flatten().for_each(|h| h.1 = None);
        }
    }

    /// Emits a statement of a region if it is a product.
    fn product_of_tiles(&mut self, s: &Stmt) -> bool {
        let Some(p) = self.tile_product(s) else {
            return false;
        };
        let region = self.region.as_mut().expect("inside a region");
        let mut sums = region.sums.iter();
        let sum = sums.position(|s| *s == p.sums);
        let sum = sum.expect("a region knows all sums of its statements");
        let [left, right] = [0, 1].map(|side| self.factor_tile(side, [&p.left, &p.right][side]));
        self.begin_other();
        let args = &mut [sum, left, right].map(|tile| self.tile_number(tile));
        self.b.intrinsic(p.instruction, &mut [], args);
        true
    }

    /// The tile that holds a factor, loaded unless it does already.
    fn factor_tile(&mut self, side: usize, place: &Place) -> usize {
        let region = self.region.as_mut().expect("inside a region");
        let held = &mut region.held[side];
        let at = held.iter().position(|h| h.1.as_ref() == Some(place));
        let (tile, old) = held.remove(at.unwrap_or(0));
        held.push((tile, Some(place.clone())));
        if at.is_none() || old.is_none() {
            self.begin_other();
            self.move_tile("llvm.x86.tileloadd64", tile, place);
        }
        tile
    }

    fn tile_number(&self, tile: usize) -> Value {
        self.b.const_int(self.b.int_type(8), tile as i64)
    }

    fn move_tile(&mut self, name: &str, tile: usize, place: &Place) {
        let address = self.address(place.buffer, &place.at, &mut Scope::new(None));
        let dtype = self.code.buffers[place.buffer.index()].dtype;
        let stride = self.index(place.stride * dtype.size() as i64);
        self.b.intrinsic(
            name,
            &mut [],
            &mut [self.tile_number(tile), address, stride],
        );
    }

    /// Sets the shapes of all tiles, unless they are set.
    fn set_shapes(&mut self, shapes: Shapes) {
        let tiles = self.known_tiles();
        let known = tiles.known.iter().position(|s| *s == shapes);
        let number = known.unwrap_or_else(|| {
            tiles.known.push(shapes);
            tiles.known.len() - 1
        });
        let set = tiles.set;
        let word = self.b.int_type(32);
        let number = self.b.const_int(word, number as i64 + 1);
        let is_other = self.b.cmp(Cmp::Ne, self.b.load(word, set, 4), number);
        let (configure, ready) = self.branch(is_other);
        self.b.position_at_end(configure);
        let byte = self.b.int_type(8);
        let bytes = shapes.configuration(self.count());
        let mut bytes = bytes.map(|v| self.b.const_int(byte, i64::from(v)));
        let place = self.b.entry_alloca(self.function(), byte, 64, 64);
        self.b.store(self.b.const_vector(&mut bytes), place, 64);
        self.b
            .intrinsic("llvm.x86.ldtilecfg", &mut [], &mut [place]);
        self.b.store(number, set, 4);
        self.b.branch(ready);
        self.b.position_at_end(ready);
    }

    fn count(&self) -> usize {
        self.target.tile_dot.map_or(0, |d| d.tiles() as usize)
    }

    /// A region of as many of the first statements as tiles hold the sums of.
    fn region(&self, stmts: &[Stmt]) -> (Option<Region>, usize) {
        let mut all: Vec<Product> = vec![];
        let mut count = 0;
        for s in stmts {
            let mut more = vec![];
            let mut vars = vec![];
            if !self.all_products(s, &mut vars, &mut more) {
                break;
            }
            let before = all.len();
            all.extend(more);
            if !self.fits(&all) {
                all.truncate(before);
                break;
            }
            count += 1;
        }
        if all.is_empty() {
            return (None, 0);
        }
        let sums = distinct(all.iter().map(|p| &p.sums));
        let left = self.count() - sums.len();
        let rights = distinct(all.iter().map(|p| &p.right)).len();
        let rights = rights.min(left - 1);
        let shapes = Shapes {
            shape: all[0].shape,
            sums: sums.len(),
            lefts: left - rights,
        };
        let tiles = |from: usize, to: usize| (from..to).map(|t| (t, None)).collect();
        let border = sums.len() + shapes.lefts;
        let held = [tiles(sums.len(), border), tiles(border, self.count())];
        let region = Region { shapes, sums, held };
        (Some(region), count)
    }

    /// Whether tiles hold all sums of these products, which are of one shape and share no element
    /// with each other or with a factor.
    fn fits(&self, all: &[Product]) -> bool {
        let sums = distinct(all.iter().map(|p| &p.sums));
        let shape = all[0].shape;
        let mut factors = all.iter().flat_map(|p| [&p.left, &p.right]);
        let is_sum = |b: BufferId| sums.iter().any(|s| s.buffer == b);
        sums.len() + FEWEST_FACTORS <= self.count()
            && all.iter().all(|p| p.shape == shape)
            && !factors.any(|f| is_sum(f.buffer))
            && are_apart(&sums, shape.rows)
    }

    /// Whether a statement only adds products to sums that stay the same in it; `vars` are of the
    /// loops of the region around.
    fn all_products(&self, s: &Stmt, vars: &mut Vec<VarId>, found: &mut Vec<Product>) -> bool {
        if let Some(p) = self.tile_product(s) {
            let moves = vars.iter().any(|v| p.sums.at.uses_var(*v));
            found.push(p);
            return !moves;
        }
        match s {
            Stmt::Loop(l) if !l.parallel && l.ending().is_none() => {
                vars.push(l.var);
                let all = l.body.iter().all(|s| self.all_products(s, vars, found));
                vars.pop();
                all && !l.body.is_empty()
            }
            Stmt::If {
                cond,
                then,
                otherwise,
            } => {
                let mut sides = then.iter().chain(otherwise);
                !cond.loads() && sides.all(|s| self.all_products(s, vars, found))
            }
            _ => false,
        }
    }

    fn tile_product(&self, s: &Stmt) -> Option<Product> {
        let dot = self.target.tile_dot?;
        let rows = serial(s)?;
        let mut inner = only(&rows.body)?;
        let mut steps: Vec<&FlatLoop> = vec![];
        while let Some(l) = serial(inner) {
            steps.push(l);
            inner = only(&l.body)?;
        }
        let Stmt::Store(s) = inner else {
            return None;
        };
        let (last, around) = steps.split_last().filter(|(_, a)| a.len() <= 1)?;
        let count: i64 = steps.iter().map(|l| l.extent).product();
        let lane = s.lane.filter(|l| i64::from(l.lanes) == dot.lanes())?;
        let fits = |n: i64| (1..=dot.rows()).contains(&n);
        if s.mask.is_some() || !fits(rows.extent) || !fits(count) {
            return None;
        }
        let found = self.dot_of(&s.value, lane)?;
        let old = Expr::load(s.buffer, [s.offset.clone()]);
        let in_memory = |b: BufferId| self.code.buffers[b.index()].place != BufferPlace::Register;
        let [wide, narrow] = &found.sides;
        if found.rest != old || narrow.by_lane || !in_memory(s.buffer) {
            return None;
        }
        // An offset of the first element, and elements from a row, a step and a lane to the next.
        let strides = |at: &Expr| {
            let (at, row) = without(at, rows.var)?;
            let (mut at, step) = without(&at, last.var)?;
            for l in around {
                let (rest, by) = without(&at, l.var)?;
                at = (by == step * last.extent).then_some(rest)?;
            }
            let (at, by_lane) = without(&at, lane.var)?;
            Some((at, [row, step, by_lane]))
        };
        let (sum, sum_by) = strides(&s.offset)?;
        let (left, left_by) = strides(&narrow.at)?;
        let (right, right_by) = strides(&wide.at)?;
        let is_product = sum_by[1..] == [0, 1]
            && left_by[1..] == [found.factors.terms(), 0]
            && [right_by[0], right_by[2]] == [0, 0];
        let place = |buffer, at, stride| Place { buffer, at, stride };
        is_product.then(|| Product {
            sums: place(s.buffer, sum, sum_by[0]),
            left: place(narrow.buffer, left, left_by[0]),
            right: place(wide.buffer, right, right_by[1]),
            shape: Shape {
                rows: rows.extent,
                steps: count,
            },
            instruction: self.tile_instruction(found.factors, narrow.buffer, wide.buffer),
        })
    }

    /// Its first factor is the left side.
    fn tile_instruction(&self, of: Factors, left: BufferId, right: BufferId) -> &'static str {
        let signed = |b: BufferId| self.code.buffers[b.index()].dtype == DType::I8;
        match (of, signed(left), signed(right)) {
            (Factors::Halves, ..) => "llvm.x86.tdpbf16ps",
            (Factors::Bytes, true, true) => "llvm.x86.tdpbssd",
            (Factors::Bytes, true, false) => "llvm.x86.tdpbsud",
            (Factors::Bytes, false, true) => "llvm.x86.tdpbusd",
            (Factors::Bytes, false, false) => "llvm.x86.tdpbuud",
        }
    }
}

impl Shapes {
    /// The operand of `ldtilecfg`: palette 1, then bytes of a row in 16 bits for each of 16
    /// tiles, then their rows in 8 (Intel's manual, volume 1, 18.2).
    fn configuration(&self, count: usize) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        let Shape { rows, steps } = self.shape;
        for tile in 0..count {
            let is_right = tile >= self.sums + self.lefts;
            let is_left = tile >= self.sums && !is_right;
            bytes[16 + 2 * tile] = if is_left { 4 * steps as u8 } else { 64 };
            bytes[48 + tile] = if is_right { steps } else { rows } as u8;
        }
        bytes
    }
}

fn only(body: &[Stmt]) -> Option<&Stmt> {
    match body {
        [one] => Some(one),
        _ => None,
    }
}

fn serial(s: &Stmt) -> Option<&FlatLoop> {
    match s {
        Stmt::Loop(l) if !l.parallel && l.ending().is_none() => Some(l),
        _ => None,
    }
}

fn distinct<'p>(places: impl Iterator<Item = &'p Place>) -> Vec<Place> {
    let mut found: Vec<Place> = vec![];
    for p in places {
        if !found.contains(p) {
            found.push(p.clone());
        }
    }
    found
}

/// Whether tiles of sums have no element in common: they differ by constants, or are of other
/// buffers.
fn are_apart(sums: &[Place], rows: i64) -> bool {
    let mut taken = HashSet::new();
    sums.iter().all(|s| {
        let first = sums.iter().find(|f| f.buffer == s.buffer);
        let first = first.expect("the tile itself");
        let distance = match (Affine::of(&s.at), Affine::of(&first.at)) {
            _ if s.at == first.at => Some(0),
            (Some(a), Some(b)) => {
                let d = a.add_scaled(&b, -1);
                d.terms.values().all(|c| *c == 0).then_some(d.constant)
            }
            _ => None,
        };
        let elements = |d: i64| (0..rows).flat_map(move |r| (0..16).map(move |i| (r, d, i)));
        distance.is_some_and(|d| {
            elements(d).all(|(r, d, i)| taken.insert((s.buffer, d + r * s.stride + i)))
        })
    })
}

/// An offset without what a variable adds to it, and how much that is; `None` if not evenly.
fn without(e: &Expr, var: VarId) -> Option<(Expr, i64)> {
    if !e.uses_var(var) {
        return Some((e.clone(), 0));
    }
    if let Some(mut affine) = Affine::of(e) {
        let by = affine.coefficient(var);
        affine.terms.remove(&var);
        return Some((affine.to_expr(), by));
    }
    match e.kind() {
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            let ((a, one), (b, other)) = (without(a, var)?, without(b, var)?);
            Some((a + b, one + other))
        }
        _ => None,
    }
}
