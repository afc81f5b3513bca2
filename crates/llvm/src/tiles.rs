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
//! outside of regions sums are in memory. Sums that begin with zeros begin in tiles. The shapes of
//! tiles are set where a region needs others than the one before, which takes 200 cycles (a Xeon
//! with AMX).
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

/// Bytes of a row of a tile of sums, and of a right side.
const ROW_BYTES: i64 = 64;

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
    /// Rows of the left side and of the sums.
    rows: i64,
    /// Steps of 32 bits of the sums.
    steps: i64,
    instruction: &'static str,
}

/// A tile of sums that is set to zero.
struct Zeros {
    place: Place,
    rows: i64,
}

/// What a tile is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Sums,
    Left,
    Right,
}

/// Rows and bytes of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    role: Role,
    rows: i64,
    bytes: i64,
}

/// What the tiles hold while a region is emitted.
pub struct Region {
    shapes: Vec<Shape>,
    /// Of the first tiles.
    sums: Vec<Place>,
    /// Tiles of factors with what they hold, the one used last at the end.
    held: Vec<(usize, Option<Place>)>,
}

/// What a function that uses tiles knows of them.
pub struct Tiles {
    /// Where the number of the shapes is that are set.
    set: Value,
    /// Shapes, whose numbers count from 1.
    known: Vec<Vec<Shape>>,
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
        let is_zero = |(place, shape): (&Place, &Shape)| {
            let mut zeros = zeros.iter();
            zeros.any(|z| z.rows == shape.rows && z.place == *place)
        };
        let all =
            zeros.len() == region.sums.len() && region.sums.iter().zip(&region.shapes).all(is_zero);
        // Zeros of anything else are stored as they are, and then loaded.
        if !zeros.is_empty() && !all {
            return 0;
        }
        self.begin_other();
        self.set_shapes(&region.shapes);
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
        (is_zero && by_lane == 1 && s.mask.is_none()).then_some(Zeros {
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
            region.held.iter_mut().for_each(|h| h.1 = None);
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
        let [left, right] = p
            .factors()
            .map(|(place, shape)| self.factor_tile(place, shape));
        self.begin_other();
        let args = &mut [sum, left, right].map(|tile| self.tile_number(tile));
        self.b.intrinsic(p.instruction, &mut [], args);
        true
    }

    /// The tile that holds a factor, loaded unless it does already.
    fn factor_tile(&mut self, place: &Place, shape: Shape) -> usize {
        let region = self.region.as_mut().expect("inside a region");
        let held = region.held.iter();
        let known = held.clone().position(|h| h.1.as_ref() == Some(place));
        let fits = |h: &(usize, Option<Place>)| region.shapes[h.0] == shape;
        let at = known.or_else(|| held.clone().position(fits));
        let at = at.expect("a region has a tile for each shape of factors");
        let (tile, _) = region.held.remove(at);
        region.held.push((tile, Some(place.clone())));
        if known.is_none() {
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
    fn set_shapes(&mut self, shapes: &[Shape]) {
        let tiles = self.known_tiles();
        let known = tiles.known.iter().position(|s| s == shapes);
        let number = known.unwrap_or_else(|| {
            tiles.known.push(shapes.to_vec());
            tiles.known.len() - 1
        });
        let set = tiles.set;
        let word = self.b.int_type(32);
        let number = self.b.const_int(word, number as i64 + 1);
        let is_other = self.b.cmp(Cmp::Ne, self.b.load(word, set, 4), number);
        let (configure, ready) = self.branch(is_other);
        self.b.position_at_end(configure);
        let byte = self.b.int_type(8);
        let bytes = configuration(shapes);
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
            if self.shaped(&all).is_none() {
                all.truncate(before);
                break;
            }
            count += 1;
        }
        if all.is_empty() {
            return (None, 0);
        }
        let region = self.shaped(&all).map(|(sums, shapes)| Region {
            held: (sums.len()..shapes.len())
                .map(|tile| (tile, None))
                .collect(),
            shapes,
            sums,
        });
        (region, count)
    }

    /// The sums of products and the shapes of all tiles; `None` if tiles do not hold all of them,
    /// or they share an element with each other or with a factor.
    fn shaped(&self, all: &[Product]) -> Option<(Vec<Place>, Vec<Shape>)> {
        let mut sums: Vec<(Place, Shape)> = vec![];
        let mut factors: Vec<(Place, Shape)> = vec![];
        for p in all {
            let add = |found: &mut Vec<(Place, Shape)>, place: &Place, shape: Shape| {
                let known = found.iter().find(|(known, _)| known == place);
                match known {
                    None => found.push((place.clone(), shape)),
                    Some((_, other)) if *other != shape => return false,
                    Some(_) => {}
                }
                true
            };
            let [left, right] = p.factors();
            let fits = add(&mut sums, &p.sums, p.shape_of_sums())
                && add(&mut factors, left.0, left.1)
                && add(&mut factors, right.0, right.1);
            if !fits {
                return None;
            }
        }
        let is_sum = |b: BufferId| sums.iter().any(|(s, _)| s.buffer == b);
        if factors.iter().any(|(f, _)| is_sum(f.buffer)) || !are_apart(&sums) {
            return None;
        }
        // A tile for each shape, then more as long as there are: right sides before left ones, as
        // a schedule goes through all right sides for each left one.
        let (sums, mut shapes): (Vec<Place>, Vec<Shape>) = sums.into_iter().unzip();
        let mut wanted: Vec<Shape> = factors.into_iter().map(|(_, shape)| shape).collect();
        wanted.sort_by_key(|s| s.role == Role::Left);
        let mut more = vec![];
        for shape in wanted {
            match shapes[sums.len()..].contains(&shape) {
                false => shapes.push(shape),
                true => more.push(shape),
            }
        }
        let free = self.count().checked_sub(shapes.len())?;
        shapes.extend(more.into_iter().take(free));
        Some((sums, shapes))
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
            rows: rows.extent,
            steps: count,
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

impl Product {
    fn shape_of_sums(&self) -> Shape {
        Shape {
            role: Role::Sums,
            rows: self.rows,
            bytes: ROW_BYTES,
        }
    }

    /// The left and the right side.
    fn factors(&self) -> [(&Place, Shape); 2] {
        let left = Shape {
            role: Role::Left,
            rows: self.rows,
            bytes: 4 * self.steps,
        };
        let right = Shape {
            role: Role::Right,
            rows: self.steps,
            bytes: ROW_BYTES,
        };
        [(&self.left, left), (&self.right, right)]
    }
}

/// The operand of `ldtilecfg`: palette 1, then bytes of a row in 16 bits for each of 16 tiles,
/// then their rows in 8 (Intel's manual, volume 1, 18.2).
fn configuration(shapes: &[Shape]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 1;
    for (tile, shape) in shapes.iter().enumerate() {
        bytes[16 + 2 * tile] = shape.bytes as u8;
        bytes[48 + tile] = shape.rows as u8;
    }
    bytes
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

/// Whether tiles of sums have no element in common: they differ by constants, or are of other
/// buffers.
fn are_apart(sums: &[(Place, Shape)]) -> bool {
    let mut taken = HashSet::new();
    sums.iter().all(|(s, shape)| {
        let first = sums.iter().find(|(f, _)| f.buffer == s.buffer);
        let (first, _) = first.expect("the tile itself");
        let distance = match (Affine::of(&s.at), Affine::of(&first.at)) {
            _ if s.at == first.at => Some(0),
            (Some(a), Some(b)) => {
                let d = a.add_scaled(&b, -1);
                d.terms.values().all(|c| *c == 0).then_some(d.constant)
            }
            _ => None,
        };
        let lanes = ROW_BYTES / 4;
        let elements =
            |d: i64| (0..shape.rows).flat_map(move |r| (0..lanes).map(move |i| (r, d, i)));
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
