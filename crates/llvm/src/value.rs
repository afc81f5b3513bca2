//! Expressions to LLVM values.
//!
//! A value is a scalar, or a vector when it varies over the lanes of its
//! statement; operands are broadcast where the two meet. Guarded operands of a
//! select are evaluated behind a branch (scalar condition) or under a mask
//! (vector condition), so that a load which the guard forbids is never made. An element that
//! the statement has loaded already needs no guard.

use crate::emit::Emitter;
use crate::raw::{Cmp, Conv, Op, Type, Value};
use crate::{angles, half, integer, math};
use ir::{BinaryOp, BufferId, DType, Expr, ExprKind, UnaryOp, VarId};
use lower::flat::{BufferPlace, Lane, LanePattern, lane_parts};
use std::collections::HashMap;
use std::ops::Range;

/// A value with its element type. Bool is `i1` here and a byte in memory.
#[derive(Clone, Copy)]
pub struct Typed {
    pub value: Value,
    pub dtype: DType,
}

/// What a statement's expressions are evaluated in.
pub struct Scope {
    pub lane: Option<Lane>,
    mask: Option<Value>,
    /// Values by node address; the expression is kept so that no address is reused.
    done: HashMap<*const ExprKind, (Expr, Typed)>,
    /// Elements by buffer and offset.
    loaded: Vec<(BufferId, Expr, Typed)>,
}

impl Scope {
    pub fn new(lane: Option<Lane>) -> Scope {
        Scope {
            lane,
            mask: None,
            done: HashMap::new(),
            loaded: Vec::new(),
        }
    }

    /// The same, restricted to the lanes of `mask`.
    pub fn masked(lane: Option<Lane>, mask: Value) -> Scope {
        Scope {
            lane,
            mask: Some(mask),
            done: HashMap::new(),
            loaded: Vec::new(),
        }
    }

    /// Lanes in which expressions are evaluated; `None` is all.
    pub fn mask(&self) -> Option<Value> {
        self.mask
    }

    fn lanes(&self) -> u32 {
        self.lane.map_or(0, |l| l.lanes)
    }

    fn guarded(&self, mask: Option<Value>) -> Scope {
        Scope {
            lane: self.lane,
            mask,
            done: self.done.clone(),
            loaded: self.loaded.clone(),
        }
    }

    /// The element of a buffer, if it was loaded before.
    fn loaded(&self, buffer: BufferId, offset: &Expr) -> Option<Typed> {
        let mut all = self.loaded.iter();
        all.find(|(b, at, _)| *b == buffer && at == offset)
            .map(|(.., v)| *v)
    }

    /// Whether an expression has a load that was not made before.
    fn must_load(&self, e: &Expr) -> bool {
        match e.kind() {
            ExprKind::Load(b, at) => self.loaded(*b, &at[0]).is_none(),
            _ => e.children().any(|c| self.must_load(c)),
        }
    }
}

/// Lanes that access consecutive elements.
struct Run {
    lanes: Range<u32>,
    /// Where the first lane's element lies from the base.
    at: i64,
}

/// Cuts a pattern into runs of lanes that access consecutive elements, as of a window over channels
/// that crosses their blocks; `None` if they are too short to be worth a masked access each.
fn lane_runs(pattern: &LanePattern) -> Option<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for (i, at) in (0..).zip(&pattern.distances) {
        match runs.last_mut() {
            Some(run) if at - run.at == i64::from(i - run.lanes.start) => run.lanes.end = i + 1,
            _ => runs.push(Run {
                lanes: i..i + 1,
                at: *at,
            }),
        }
    }
    let worth = runs.len() as u32 * SHORTEST_RUN <= pattern.distances.len() as u32;
    worth.then_some(runs)
}

/// Fewer lanes, on average, are loaded one by one.
const SHORTEST_RUN: u32 = 4;

/// The terms of a sum.
fn terms(e: &Expr) -> Vec<&Expr> {
    match e.kind() {
        ExprKind::Binary(BinaryOp::Add, a, b) => [terms(a), terms(b)].concat(),
        _ => vec![e],
    }
}

impl Emitter<'_> {
    /// The type of a value in registers; that of half precision is its bits.
    pub fn value_type(&self, d: DType) -> Type {
        match d {
            DType::F32 => self.b.f32_type(),
            DType::F64 => self.b.f64_type(),
            DType::Bool => self.b.int_type(1),
            _ => self.b.int_type(d.bits() as u32),
        }
    }

    /// The type of an element in memory.
    pub fn memory_type(&self, d: DType) -> Type {
        if d == DType::Bool {
            self.b.int_type(8)
        } else {
            self.value_type(d)
        }
    }

    pub fn index(&self, v: i64) -> Value {
        self.b.const_int(self.b.int_type(64), v)
    }

    /// Broadcasts `v` to `lanes` if it is a scalar.
    pub fn widen(&self, v: Value, lanes: u32) -> Value {
        if lanes > 0 && self.b.lanes_of(v) == 0 {
            self.b.splat(v, lanes)
        } else {
            v
        }
    }

    pub fn unify(&self, a: Value, b: Value) -> (Value, Value) {
        let lanes = self.b.lanes_of(a).max(self.b.lanes_of(b));
        (self.widen(a, lanes), self.widen(b, lanes))
    }

    /// Evaluates `e`; each node once per scope.
    pub fn expr(&mut self, e: &Expr, s: &mut Scope) -> Typed {
        let key: *const ExprKind = e.kind();
        if let Some((_, v)) = s.done.get(&key) {
            return *v;
        }
        let v = self.compute(e, s);
        s.done.insert(key, (e.clone(), v));
        v
    }

    fn compute(&mut self, e: &Expr, s: &mut Scope) -> Typed {
        match e.kind() {
            ExprKind::Int(v, d) => Typed {
                value: self.b.const_int(self.value_type(*d), *v),
                dtype: *d,
            },
            ExprKind::Float(bits, d) => Typed {
                value: self.float_constant(f64::from_bits(*bits), *d),
                dtype: *d,
            },
            ExprKind::Var(v) => Typed {
                value: self.variable(*v, s),
                dtype: DType::I64,
            },
            ExprKind::Arg(..) => unreachable!("lowering replaces reducer arguments"),
            ExprKind::Load(b, indices) => match s.loaded(*b, &indices[0]) {
                Some(v) => v,
                None => {
                    let v = self.load(*b, &indices[0], s);
                    s.loaded.push((*b, indices[0].clone(), v));
                    v
                }
            },
            ExprKind::Unary(op, a) => {
                let a = self.expr(a, s);
                self.unary(*op, a)
            }
            ExprKind::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                self.logical(*op, a, b, s)
            }
            ExprKind::Binary(BinaryOp::Mul, a, b)
                if self.is_of_integer(a, s)
                    && !(self.is_of_byte(a, s) && self.is_of_byte(b, s)) =>
            {
                let (a, b) = (self.expr(a, s), self.expr(b, s));
                let (x, y) = self.unify(a.value, b.value);
                let value = self.b.rounded_product(x, y);
                Typed { value, ..a }
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.expr(a, s), self.expr(b, s));
                self.binary(*op, a, b)
            }
            ExprKind::Select(c, a, b) => self.select(c, a, b, s),
            ExprKind::Cast(d, a) => {
                if let Some(value) = integer::low_bits(self, *d, a, s) {
                    return Typed { value, dtype: *d };
                }
                let is_power = matches!(a.kind(), ExprKind::Unary(UnaryOp::Exp, _));
                let a = self.expr(a, s);
                let found = match (a.dtype, d) {
                    (DType::F32, DType::BF16) if is_power => self.narrowed_normal(a.value),
                    _ => None,
                };
                match found {
                    Some(value) => Typed { value, dtype: *d },
                    None => self.cast(a, *d),
                }
            }
        }
    }

    /// Whether `e` is an integer made a float of more than 16 bits, as of dequantised bytes:
    /// they are defined as rounded products, and how they are quantised again may depend on it.
    fn is_of_integer(&mut self, e: &Expr, s: &mut Scope) -> bool {
        match e.kind() {
            ExprKind::Cast(DType::F32 | DType::F64, of) => self.expr(of, s).dtype.is_int(),
            _ => false,
        }
    }

    /// Whether `e` is a byte made a float: products of two are exact, so that a sum may take them in.
    fn is_of_byte(&mut self, e: &Expr, s: &mut Scope) -> bool {
        match e.kind() {
            ExprKind::Cast(DType::F32 | DType::F64, of) => {
                let of = self.expr(of, s).dtype;
                of.is_int() && of.size() == 1
            }
            _ => false,
        }
    }

    fn float_constant(&self, v: f64, d: DType) -> Value {
        match half::is_half(d) {
            true => self.half_constant(v, d),
            false => self.b.const_real(self.value_type(d), v),
        }
    }

    fn variable(&self, v: VarId, s: &Scope) -> Value {
        match s.lane {
            Some(lane) if lane.var == v => {
                let mut lanes: Vec<Value> =
                    (0..lane.lanes).map(|i| self.index(i64::from(i))).collect();
                self.b.const_vector(&mut lanes)
            }
            _ => self.loop_var(v),
        }
    }

    /// An element offset, summed outermost loop first and constant last, so
    /// that accesses that differ by a constant share one base address.
    pub fn address(&mut self, buffer: BufferId, offset: &Expr, s: &mut Scope) -> Value {
        let element = self.memory_type(self.code.buffers[buffer.index()].dtype);
        let mut address = self.pointer(buffer);
        let mut constant = 0;
        let mut sums: Vec<(usize, &Expr)> = Vec::new();
        for p in terms(offset) {
            match p.as_int() {
                Some(v) => constant += v,
                None => {
                    let depth = p
                        .vars()
                        .iter()
                        .map(|v| self.depth_of(*v))
                        .max()
                        .unwrap_or(0);
                    sums.push((depth, p));
                }
            }
        }
        sums.sort_by_key(|(depth, _)| *depth);
        let mut sum: Option<Value> = None;
        for (_, p) in sums {
            let v = self.expr(p, s).value;
            sum = Some(match sum {
                None => v,
                Some(s) => {
                    let (s, v) = self.unify(s, v);
                    self.b.op(Op::Add, s, v)
                }
            });
        }
        // Without the constant, or in lanes that are masked off, it may lie outside.
        if let Some(sum) = sum {
            address = self.b.gep_anywhere(element, address, sum);
        }
        if constant != 0 {
            address = self.b.gep_anywhere(element, address, self.index(constant));
        }
        address
    }

    fn load(&mut self, buffer: BufferId, offset: &Expr, s: &mut Scope) -> Typed {
        let info = &self.code.buffers[buffer.index()];
        let (dtype, place) = (info.dtype, info.place);
        let parts = match s.lane {
            Some(lane) => lane_parts(offset, lane.var),
            None => Some((offset.clone(), 0)),
        };
        if place == BufferPlace::Register {
            let (base, _) = parts.expect("register offsets are affine in the lane");
            let at = base.as_int().expect("register offsets are constant");
            return Typed {
                value: self.register(buffer, at, s.lanes()),
                dtype,
            };
        }
        let ready = self.ready.iter().find(|r| r.0 == buffer && r.1 == *offset);
        if let Some((_, _, raw)) = ready {
            return Typed {
                value: self.loaded(*raw, dtype),
                dtype,
            };
        }
        let raw = self.located_load(buffer, offset, |me| match parts {
            Some((base, 0)) if s.mask.is_some() => me.load_if_any(buffer, &base, s),
            Some((base, 0)) => {
                let address = me.address(buffer, &base, s);
                let t = me.memory_type(dtype);
                me.b.load(t, address, dtype.size() as u32)
            }
            Some((base, 1)) => me.load_vector(buffer, &base, s),
            parts => match me.load_by_bytes(buffer, offset, s) {
                Some(v) => v,
                None => me.load_apart(buffer, offset, parts, s),
            },
        });
        Typed {
            value: self.loaded(raw, dtype),
            dtype,
        }
    }

    fn loaded(&self, v: Value, dtype: DType) -> Value {
        if dtype != DType::Bool {
            return v;
        }
        self.b.cmp(Cmp::Ne, v, self.b.zero(self.b.type_of(v)))
    }

    fn load_vector(&mut self, buffer: BufferId, base: &Expr, s: &mut Scope) -> Value {
        let dtype = self.code.buffers[buffer.index()].dtype;
        let t = self.b.vector_type(self.memory_type(dtype), s.lanes());
        let address = self.address(buffer, base, s);
        match s.mask {
            None => self.b.load(t, address, dtype.size() as u32),
            Some(mask) => self.masked_load(dtype, address, mask),
        }
    }

    /// The addresses of lanes that lie `stride` elements apart.
    fn strided(&mut self, buffer: BufferId, base: &Expr, stride: i64, s: &mut Scope) -> Vec<Value> {
        let element = self.memory_type(self.code.buffers[buffer.index()].dtype);
        let first = self.address(buffer, base, s);
        let lane = |i: u32| self.index(i64::from(i) * stride);
        (0..s.lanes())
            .map(|i| self.b.gep(element, first, lane(i)))
            .collect()
    }

    /// Scalar loads from constant distances: no machine gathers them faster.
    fn load_strided(&mut self, buffer: BufferId, base: &Expr, stride: i64, s: &mut Scope) -> Value {
        let dtype = self.code.buffers[buffer.index()].dtype;
        let element = self.memory_type(dtype);
        let mut out = self.b.undef(self.b.vector_type(element, s.lanes()));
        for (i, address) in (0..).zip(self.strided(buffer, base, stride, s)) {
            let v = self.b.load(element, address, dtype.size() as u32);
            out = self.b.insert(out, v, i);
        }
        out
    }

    /// Lanes that are not consecutive, by the cheapest way that there is.
    fn load_apart(
        &mut self,
        buffer: BufferId,
        offset: &Expr,
        parts: Option<(Expr, i64)>,
        s: &mut Scope,
    ) -> Value {
        let pattern = self.pattern(buffer, offset);
        if let Some(v) = pattern.and_then(|p| self.load_pattern(buffer, p, s)) {
            return v;
        }
        match (parts, pattern, s.mask) {
            (Some((base, stride)), _, None) => self.load_strided(buffer, &base, stride, s),
            (_, Some(pattern), mask) => {
                if let Some(runs) = lane_runs(pattern) {
                    return self.load_runs(buffer, &pattern.base, &runs, s);
                }
                mask.and_then(|mask| self.load_masked_pattern(buffer, pattern, mask, s))
                    .unwrap_or_else(|| self.load_gather(buffer, offset, s))
            }
            _ => self.load_gather(buffer, offset, s),
        }
    }

    /// A masked load for each run of lanes.
    fn load_runs(&mut self, buffer: BufferId, base: &Expr, runs: &[Run], s: &mut Scope) -> Value {
        let dtype = self.code.buffers[buffer.index()].dtype;
        let element = self.memory_type(dtype);
        let base = self.address(buffer, base, s);
        let mut out = self.b.zero(self.b.vector_type(element, s.lanes()));
        for Run { lanes, at } in runs {
            let here = |i| {
                self.b
                    .const_int(self.b.int_type(1), lanes.contains(&i).into())
            };
            let here = self
                .b
                .const_vector(&mut (0..s.lanes()).map(here).collect::<Vec<_>>());
            let mask = match s.mask {
                Some(mask) => self.b.op(Op::And, mask, here),
                None => here,
            };
            let first = self.index(at - i64::from(lanes.start));
            let address = self.b.gep_anywhere(element, base, first);
            let loaded = self.masked_load(dtype, address, mask);
            out = self.b.select(here, loaded, out);
        }
        out
    }

    fn load_gather(&mut self, buffer: BufferId, offset: &Expr, s: &mut Scope) -> Value {
        let dtype = self.code.buffers[buffer.index()].dtype;
        let lanes = s.lanes();
        let element = self.memory_type(dtype);
        let t = self.b.vector_type(element, lanes);
        let addresses = self.address(buffer, offset, s);
        if let Some(mask) = s.mask {
            return self.masked_gather(dtype, addresses, mask);
        }
        let mut out = self.b.undef(t);
        for i in 0..lanes {
            let a = self.b.extract(addresses, i);
            let v = self.b.load(element, a, dtype.size() as u32);
            out = self.b.insert(out, v, i);
        }
        out
    }

    /// A lane-invariant load that is made only if some lane is active.
    fn load_if_any(&mut self, buffer: BufferId, base: &Expr, s: &mut Scope) -> Value {
        let dtype = self.code.buffers[buffer.index()].dtype;
        let t = self.memory_type(dtype);
        let mask = s.mask.expect("called under a mask");
        let bits = self.b.int_type(s.lanes());
        let bits_set = self.b.convert(Conv::Bit, mask, bits);
        let any = self.b.cmp(Cmp::Ne, bits_set, self.b.zero(bits));
        let base = base.clone();
        let lane = s.lane;
        let load = &mut |me: &mut Self| {
            let address = me.address(buffer, &base, &mut Scope::new(lane));
            me.b.load(t, address, dtype.size() as u32)
        };
        self.branch_value(any, [load, &mut |me: &mut Self| me.b.zero(t)])
    }

    /// Stores `value` at `offset`, in the scope's lanes under its mask.
    pub fn store(&mut self, buffer: BufferId, offset: &Expr, value: Typed, s: &mut Scope) {
        let info = &self.code.buffers[buffer.index()];
        let (dtype, place) = (info.dtype, info.place);
        let lanes = s.lanes();
        let parts = match s.lane {
            Some(lane) => lane_parts(offset, lane.var),
            None => Some((offset.clone(), 0)),
        };
        if place == BufferPlace::Register {
            let (base, stride) = parts.expect("register offsets are affine in the lane");
            let at = base.as_int().expect("register offsets are constant");
            let mut v = if stride == 0 {
                value.value
            } else {
                self.widen(value.value, lanes)
            };
            if let Some(mask) = s.mask {
                let old = self.register(buffer, at, lanes);
                v = self.b.select(mask, v, old);
            }
            self.set_register(buffer, at, v);
            return;
        }
        let mut v = value.value;
        if dtype == DType::Bool {
            let t = self.b.vector_type(self.b.int_type(8), self.b.lanes_of(v));
            v = self.b.convert(Conv::ZExt, v, t);
        }
        match (parts, s.mask) {
            (_, None) if lanes == 0 => {
                let address = self.address(buffer, offset, s);
                self.b.store(v, address, dtype.size() as u32);
            }
            (Some((base, 1)), mask) => {
                let v = self.widen(v, lanes);
                let address = self.address(buffer, &base, s);
                match mask {
                    None => self.b.store(v, address, dtype.size() as u32),
                    Some(mask) => self.masked_store(dtype, v, address, mask),
                }
            }
            (Some((base, stride)), None) if stride != 0 => {
                let v = self.widen(v, lanes);
                for (i, address) in (0..).zip(self.strided(buffer, &base, stride, s)) {
                    let one = self.b.extract(v, i);
                    self.b.store(one, address, dtype.size() as u32);
                }
            }
            (_, mask) => {
                let v = self.widen(v, lanes);
                let addresses = self.address(buffer, offset, s);
                let addresses = self.widen(addresses, lanes);
                let i1 = self.b.int_type(1);
                let mask = mask.unwrap_or_else(|| self.b.splat(self.b.const_int(i1, 1), lanes));
                self.masked_scatter(dtype, v, addresses, mask);
            }
        }
    }

    pub fn prefetch(&mut self, buffer: BufferId, offset: &Expr) {
        let address = self.address(buffer, offset, &mut Scope::new(None));
        let t32 = self.b.int_type(32);
        let flag = |v| self.b.const_int(t32, v);
        let mut args = [address, flag(0), flag(3), flag(1)];
        self.b
            .intrinsic("llvm.prefetch", &mut [self.b.ptr_type()], &mut args);
    }

    fn logical(&mut self, op: BinaryOp, a: &Expr, b: &Expr, s: &mut Scope) -> Typed {
        let dtype = DType::Bool;
        if s.must_load(b) {
            let (yes, no) = (Expr::bool(true), Expr::bool(false));
            return match op {
                BinaryOp::And => self.select(a, b, &no, s),
                _ => self.select(a, &yes, b, s),
            };
        }
        let (a, b) = (self.expr(a, s).value, self.expr(b, s).value);
        let (a, b) = self.unify(a, b);
        let op = if op == BinaryOp::And { Op::And } else { Op::Or };
        Typed {
            value: self.b.op(op, a, b),
            dtype,
        }
    }

    fn select(&mut self, c: &Expr, a: &Expr, b: &Expr, s: &mut Scope) -> Typed {
        let cond = self.expr(c, s).value;
        let lazy = s.must_load(a) || s.must_load(b);
        if !lazy {
            let (a, b) = (self.expr(a, s), self.expr(b, s));
            return self.choose(cond, a, b);
        }
        if self.b.lanes_of(cond) > 0 {
            let not = self.b.not(cond);
            let both = |me: &Self, m: Value| match s.mask {
                Some(outer) => me.b.op(Op::And, outer, m),
                None => m,
            };
            let (yes, no) = (both(self, cond), both(self, not));
            let a = self.expr(a, &mut s.guarded(Some(yes)));
            let b = self.expr(b, &mut s.guarded(Some(no)));
            return self.choose(cond, a, b);
        }
        let lanes = if self.varies(a, s) || self.varies(b, s) {
            s.lanes()
        } else {
            0
        };
        let dtype = std::cell::Cell::new(DType::Bool);
        let s: &Scope = s;
        let side = |me: &mut Self, e: &Expr| {
            let v = me.expr(e, &mut s.guarded(s.mask));
            dtype.set(v.dtype);
            me.widen(v.value, lanes)
        };
        let (then, otherwise) = (&mut |me: &mut Self| side(me, a), &mut |me: &mut Self| {
            side(me, b)
        });
        let value = self.branch_value(cond, [then, otherwise]);
        Typed {
            value,
            dtype: dtype.get(),
        }
    }

    /// Whether `e` may be a vector: it uses the lane variable.
    fn varies(&self, e: &Expr, s: &Scope) -> bool {
        s.lane.is_some_and(|l| e.uses_var(l.var))
    }

    fn choose(&mut self, cond: Value, a: Typed, b: Typed) -> Typed {
        let lanes = self.b.lanes_of(cond);
        let (va, vb) = self.unify(a.value, b.value);
        let (va, vb) = (self.widen(va, lanes), self.widen(vb, lanes));
        Typed {
            value: self.b.select(cond, va, vb),
            dtype: a.dtype,
        }
    }

    pub fn unary(&mut self, op: UnaryOp, a: Typed) -> Typed {
        let (x, d) = (a.value, a.dtype);
        if half::is_half(d) {
            return self.unary_half(op, a);
        }
        let t = self.b.type_of(x);
        let value = match op {
            UnaryOp::Not => self.b.not(x),
            UnaryOp::Neg if d.is_float() => self.b.fneg(x),
            UnaryOp::Neg => self.b.op(Op::Sub, self.b.zero(t), x),
            UnaryOp::Abs if d.is_float() => self.b.intrinsic("llvm.fabs", &mut [t], &mut [x]),
            UnaryOp::Abs if !d.is_signed() => x,
            UnaryOp::Abs => {
                let wraps = self.b.const_int(self.b.int_type(1), 0);
                self.b.intrinsic("llvm.abs", &mut [t], &mut [x, wraps])
            }
            UnaryOp::Sqrt => self.b.intrinsic("llvm.sqrt", &mut [t], &mut [x]),
            UnaryOp::Rsqrt => {
                let root = self.b.intrinsic("llvm.sqrt", &mut [t], &mut [x]);
                let one = self.real(1.0, t, d);
                self.b.op(Op::FDiv, one, root)
            }
            _ if !d.is_float() => x,
            UnaryOp::Bits => {
                let lanes = self.b.lanes_of(x);
                let t = self.b.vector_type(self.value_type(DType::I32), lanes);
                self.b.convert(Conv::Bit, x, t)
            }
            UnaryOp::Round => math::round(self, x, d),
            UnaryOp::Floor => math::floor(self, x, d),
            UnaryOp::Ceil => math::ceil(self, x, d),
            UnaryOp::Exp => math::exp(self, x, d),
            UnaryOp::Log => math::log(self, x, d),
            UnaryOp::Tanh => math::tanh(self, x, d),
            UnaryOp::Erf => math::erf(self, x, d),
            UnaryOp::Sin => angles::sin(self, x, d),
            UnaryOp::Cos => angles::cos(self, x, d),
            UnaryOp::Tan => angles::tan(self, x, d),
            UnaryOp::Asin => angles::asin(self, x, d),
            UnaryOp::Acos => angles::acos(self, x, d),
            UnaryOp::Atan => angles::atan(self, x, d),
            UnaryOp::Sinh => angles::sinh(self, x, d),
            UnaryOp::Cosh => angles::cosh(self, x, d),
            UnaryOp::Asinh => angles::asinh(self, x, d),
            UnaryOp::Acosh => angles::acosh(self, x, d),
            UnaryOp::Atanh => angles::atanh(self, x, d),
        };
        Typed {
            value,
            dtype: op.result(d),
        }
    }

    /// A float constant in the shape (scalar or vector) of `t`.
    pub fn real(&self, v: f64, t: Type, d: DType) -> Value {
        let scalar = self.b.const_real(self.value_type(d), v);
        self.constant_like(scalar, t)
    }

    /// Broadcasts a scalar constant to the lanes of `t`.
    pub fn constant_like(&self, scalar: Value, t: Type) -> Value {
        match self.b.lanes_of_type(t) {
            0 => scalar,
            n => self.b.const_vector(&mut vec![scalar; n as usize]),
        }
    }

    pub fn binary(&mut self, op: BinaryOp, a: Typed, b: Typed) -> Typed {
        let d = a.dtype;
        if half::is_half(d) {
            return self.binary_half(op, a, b);
        }
        let (x, y) = self.unify(a.value, b.value);
        let (float, signed) = (d.is_float(), d.is_signed());
        let pick = |f: Op, i: Op| if float { f } else { i };
        let less = if float {
            Cmp::FOlt
        } else {
            [Cmp::Ult, Cmp::Slt][usize::from(signed)]
        };
        let value = match op {
            BinaryOp::Add => self.b.op(pick(Op::FAdd, Op::Add), x, y),
            BinaryOp::Sub => self.b.op(pick(Op::FSub, Op::Sub), x, y),
            BinaryOp::Mul => self.b.op(pick(Op::FMul, Op::Mul), x, y),
            BinaryOp::Div if float => self.b.op(Op::FDiv, x, y),
            BinaryOp::Div => integer::divide(self, x, y, d),
            BinaryOp::FloorDiv if float => {
                let q = self.b.op(Op::FDiv, x, y);
                math::floor(self, q, d)
            }
            BinaryOp::FloorMod if float => {
                let q = self.b.op(Op::FDiv, x, y);
                let q = math::floor(self, q, d);
                let whole = self.b.op(Op::FMul, q, y);
                self.b.op(Op::FSub, x, whole)
            }
            BinaryOp::FloorDiv => integer::divide_floor(self, x, y, d).0,
            BinaryOp::FloorMod => integer::divide_floor(self, x, y, d).1,
            BinaryOp::Min if float => self.b.extreme("llvm.minimum", x, y),
            BinaryOp::Max if float => self.b.extreme("llvm.maximum", x, y),
            BinaryOp::Min => self.b.select(self.b.cmp(less, x, y), x, y),
            BinaryOp::Max => self.b.select(self.b.cmp(less, y, x), x, y),
            BinaryOp::Pow if float => math::pow(self, x, y, d),
            BinaryOp::Pow => integer::power(self, x, y, d),
            BinaryOp::Eq => self.b.cmp(if float { Cmp::FOeq } else { Cmp::Eq }, x, y),
            BinaryOp::Ne => self.b.cmp(if float { Cmp::FUne } else { Cmp::Ne }, x, y),
            BinaryOp::Lt => self.b.cmp(less, x, y),
            BinaryOp::Le => {
                let le = if float {
                    Cmp::FOle
                } else {
                    [Cmp::Ule, Cmp::Sle][signed as usize]
                };
                self.b.cmp(le, x, y)
            }
            BinaryOp::BitAnd => self.b.op(Op::And, x, y),
            BinaryOp::BitOr => self.b.op(Op::Or, x, y),
            BinaryOp::BitXor => self.b.op(Op::Xor, x, y),
            BinaryOp::Shl => integer::shift(self, x, y, d, true),
            BinaryOp::Shr => integer::shift(self, x, y, d, false),
            BinaryOp::And | BinaryOp::Or => unreachable!("handled by `logical`"),
        };
        let logical = op.is_comparison();
        Typed {
            value,
            dtype: if logical { DType::Bool } else { d },
        }
    }

    pub fn cast(&mut self, a: Typed, to: DType) -> Typed {
        let from = a.dtype;
        if from != to && (half::is_half(from) || half::is_half(to)) {
            return self.cast_half(a, to);
        }
        let x = a.value;
        let lanes = self.b.lanes_of(x);
        let t = self.b.vector_type(self.value_type(to), lanes);
        let value = match (from, to) {
            _ if from == to => x,
            (_, DType::Bool) => {
                let zero = self.b.zero(self.b.type_of(x));
                self.b
                    .cmp(if from.is_float() { Cmp::FUne } else { Cmp::Ne }, x, zero)
            }
            _ if from.is_float() && to.is_float() => {
                let grow = to.bits() > from.bits();
                self.b
                    .convert(if grow { Conv::FpExt } else { Conv::FpTrunc }, x, t)
            }
            _ if from.is_float() => integer::saturated(self, x, from, to),
            _ if to.is_float() => {
                let conv = if from.is_signed() {
                    Conv::SiToFp
                } else {
                    Conv::UiToFp
                };
                self.b.convert(conv, x, t)
            }
            _ if to.bits() > from.bits() || from == DType::Bool => self.b.convert(
                if from.is_signed() {
                    Conv::SExt
                } else {
                    Conv::ZExt
                },
                x,
                t,
            ),
            _ if to.bits() < from.bits() => self.b.convert(Conv::Trunc, x, t),
            _ => x,
        };
        Typed { value, dtype: to }
    }
}
