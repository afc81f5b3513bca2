//! Dot products: statements whose lanes each add four products of neighbouring bytes, or
//! two of neighbouring bf16, as `lower` writes the `dot4` and `dot2` intrinsics.
//!
//! A statement of bytes reads `acc[i] + a[4i] b[0] + .. + a[4i+3] b[3]` in i32, `a`
//! lane by lane and `b` either the same for all lanes or lane by lane too. What
//! the target has decides the instructions; all of them give exactly the sums
//! of the statement, which wrap:
//! - x86 with VNNI: `vpdpbusd`. Where not exactly one side is unsigned, one is
//!   moved by 128 and the difference, a dot product with a constant, taken off.
//! - other x86: products of i16 by `pmaddwd`, then sums of neighbours.
//! - AArch64 with dot products: `sdot`, `udot`, `usdot`.
//! - others: products in i32.
//!
//! A statement of bf16 reads `acc[i] + (a[2i] b[0] + a[2i+1] b[1])` in f32. `vdpbf16ps`
//! rounds after each product and takes subnormals for zero; a target without it
//! evaluates the statement as it stands.

use crate::emit::Emitter;
use crate::raw::{Conv, Op, Type, Value};
use crate::value::{Scope, Typed};
use ir::affine::Affine;
use ir::{BinaryOp, BufferId, ByteDot, DType, Expr, ExprKind, Isa, VarId};
use lower::flat::{BufferPlace, Lane, Store};

/// What one lane adds products of: 32 bits of each side.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Factors {
    Bytes,
    Halves,
}

impl Factors {
    /// Products that one lane adds.
    pub fn terms(self) -> i64 {
        match self {
            Factors::Bytes => 4,
            Factors::Halves => 2,
        }
    }

    fn sum(self) -> DType {
        match self {
            Factors::Bytes => DType::I32,
            Factors::Halves => DType::F32,
        }
    }
}

/// One side: where the factors of lane 0 are, and whether every lane has its own.
pub struct Side {
    pub buffer: BufferId,
    pub at: Expr,
    pub by_lane: bool,
}

/// A statement of several products a lane.
pub struct Dot {
    pub factors: Factors,
    /// What is added to the products.
    pub rest: Expr,
    /// The first has its own factors for every lane.
    pub sides: [Side; 2],
}

/// One factor of a product: a widened load.
struct Factor {
    of: Factors,
    buffer: BufferId,
    at: Affine,
    /// What is added to `at`: quotients and remainders of a loop that threads share.
    digits: Vec<Expr>,
    stride: i64,
}

/// The instructions that a target has.
#[derive(Clone, Copy)]
enum Instructions {
    Vnni,
    PairsOfWords,
    Arm { mixed: bool },
    Expanded,
}

/// A vector of factors, 32 bits a lane; of bytes with their signedness.
#[derive(Clone, Copy)]
struct Bytes {
    value: Value,
    signed: bool,
}

const SDOT: &str = "llvm.aarch64.neon.sdot";
const UDOT: &str = "llvm.aarch64.neon.udot";
const USDOT: &str = "llvm.aarch64.neon.usdot";

impl Emitter<'_> {
    /// Emits `s` if it is a dot product; false if it is none.
    pub fn dot_product(&mut self, s: &Store) -> bool {
        let (Some(lane), None) = (s.lane, &s.mask) else {
            return false;
        };
        let Some(dot) = self.dot_of(&s.value, lane) else {
            return false;
        };
        let mut scope = Scope::new(s.lane);
        let rest = self.expr(&dot.rest, &mut scope).value;
        let rest = self.widen(rest, lane.lanes);
        let native = (self.target.vector_bits / 32).clamp(1, lane.lanes);
        let mut sums = Vec::new();
        for at in (0..lane.lanes).step_by(native as usize) {
            let acc = self.b.slice(rest, at, native);
            let [wide, narrow] = [0, 1].map(|side| {
                let side = &dot.sides[side];
                self.bytes(dot.factors, side, at, native, &mut scope)
            });
            sums.push(match dot.factors {
                Factors::Bytes => self.dot(acc, wide, narrow, native),
                Factors::Halves => self.dot_of_halves(acc, wide.value, narrow.value, native),
            });
        }
        let value = Typed {
            value: self.b.joined(sums),
            dtype: dot.factors.sum(),
        };
        self.store(s.buffer, &s.offset, value, &mut scope);
        true
    }

    pub fn dot_of(&self, value: &Expr, lane: Lane) -> Option<Dot> {
        if !lane.lanes.is_power_of_two() {
            return None;
        }
        let mut rest: Option<Expr> = None;
        let mut products = Vec::new();
        let mut terms = Vec::new();
        summands(value, &mut terms);
        if terms.len() < 3 {
            return None;
        }
        for t in terms {
            match self.product(t, lane.var) {
                Some(p) => products.push(p),
                None => {
                    rest = Some(match rest {
                        Some(sum) => sum + t,
                        None => t.clone(),
                    });
                }
            }
        }
        products.sort_by_key(|p| p[0].at.constant);
        let factors = products.first()?[0].of;
        let each = factors.terms();
        if products.len() as i64 != each {
            return None;
        }
        let steps = |side: usize| {
            let first = &products[0][side];
            products.iter().enumerate().all(|(j, p)| {
                let f = &p[side];
                (f.buffer, &f.at.terms, f.stride) == (first.buffer, &first.at.terms, first.stride)
                    && f.at.constant == first.at.constant + j as i64
                    && f.digits == first.digits
                    && f.of == factors
            })
        };
        let [wide, narrow] = [0, 1].map(|side: usize| products[0][side].stride);
        let fits = wide == each && (narrow == 0 || narrow == each);
        if !(fits && steps(0) && steps(1)) {
            return None;
        }
        let side = |f: &Factor| {
            let mut at = f.at.clone();
            at.terms.remove(&lane.var);
            let digits = f.digits.iter().cloned();
            Side {
                buffer: f.buffer,
                at: digits.fold(at.to_expr(), |sum, digit| sum + digit),
                by_lane: f.stride != 0,
            }
        };
        Some(Dot {
            factors,
            rest: rest?,
            sides: [side(&products[0][0]), side(&products[0][1])],
        })
    }

    /// The factors of a product, that of the larger stride first.
    fn product(&self, e: &Expr, lane: VarId) -> Option<[Factor; 2]> {
        let ExprKind::Binary(BinaryOp::Mul, a, b) = e.kind() else {
            return None;
        };
        let (a, b) = (self.factor(a, lane)?, self.factor(b, lane)?);
        Some(if a.stride >= b.stride { [a, b] } else { [b, a] })
    }

    fn factor(&self, e: &Expr, lane: VarId) -> Option<Factor> {
        let ExprKind::Cast(to, inner) = e.kind() else {
            return None;
        };
        let ExprKind::Load(buffer, at) = inner.kind() else {
            return None;
        };
        let info = &self.code.buffers[buffer.index()];
        let of = match info.dtype {
            DType::I8 | DType::U8 => Factors::Bytes,
            DType::BF16 if self.target.half_dot.is_some() => Factors::Halves,
            _ => return None,
        };
        if *to != of.sum() || info.place == BufferPlace::Register {
            return None;
        }
        let mut parts = Vec::new();
        summands(&at[0], &mut parts);
        let (mut at, mut digits) = (Affine::default(), Vec::new());
        for part in parts {
            match Affine::of(part) {
                Some(part) => at = at.add_scaled(&part, 1),
                None if part.uses_var(lane) => return None,
                None => digits.push(part.clone()),
            }
        }
        Some(Factor {
            of,
            buffer: *buffer,
            stride: at.coefficient(lane),
            at,
            digits,
        })
    }

    /// The factors of `lanes` lanes from lane `first` on.
    fn bytes(
        &mut self,
        factors: Factors,
        side: &Side,
        first: u32,
        lanes: u32,
        s: &mut Scope,
    ) -> Bytes {
        let terms = factors.terms() as u32;
        let element = self.b.int_type(32 / terms);
        let t = self.b.vector_type(element, terms * lanes);
        let address = self.address(side.buffer, &side.at, s);
        let value = if side.by_lane {
            let from = self.index(i64::from(terms * first));
            self.b.load(t, self.b.gep(element, address, from), 1)
        } else {
            let all = self.b.load(self.b.int_type(32), address, 1);
            self.b.convert(Conv::Bit, self.b.splat(all, lanes), t)
        };
        Bytes {
            value,
            signed: self.code.buffers[side.buffer.index()].dtype == DType::I8,
        }
    }

    fn instructions(&self) -> Instructions {
        match (self.target.byte_dot, self.target.isa) {
            (Some(ByteDot::Avx512Vnni | ByteDot::AvxVnni), _) => Instructions::Vnni,
            (Some(dot @ (ByteDot::NeonMixed | ByteDot::Neon)), _) => Instructions::Arm {
                mixed: dot.is_direct(true),
            },
            (None, Isa::X86Avx512 | Isa::X86Avx2 | Isa::X86Sse2) => Instructions::PairsOfWords,
            (None, Isa::AArch64Neon | Isa::RiscV64Gc | Isa::RiscV64Rvv) => Instructions::Expanded,
        }
    }

    /// `acc` with the products of `wide` and `narrow` added; the latter is
    /// more often the same for several statements.
    fn dot(&self, acc: Value, wide: Bytes, narrow: Bytes, lanes: u32) -> Value {
        match self.instructions() {
            Instructions::Vnni if lanes >= 4 => self.vnni(acc, wide, narrow, lanes),
            Instructions::PairsOfWords if lanes >= 4 => {
                self.pairs_of_words(acc, wide, narrow, lanes)
            }
            Instructions::Arm { mixed } if lanes == 4 => self.arm(acc, wide, narrow, mixed),
            _ => self.expanded(acc, wide, narrow, lanes),
        }
    }

    fn dot_of_halves(&self, acc: Value, wide: Value, narrow: Value, lanes: u32) -> Value {
        let native = lanes.max(4);
        // Lanes that the narrowest vector has more are not used.
        let padded = |v: Value, each: u32| {
            let all: Vec<Option<u32>> = (0..native * each)
                .map(|i| (i < lanes * each).then_some(i))
                .collect();
            match native == lanes {
                true => v,
                false => self.b.shuffle(v, v, &all),
            }
        };
        let name = format!("llvm.x86.avx512bf16.dpbf16ps.{}", 32 * native);
        let args = &mut [padded(acc, 1), padded(wide, 2), padded(narrow, 2)];
        let sum = self.b.intrinsic_of_bits(&name, &mut [], args);
        self.b.slice(sum, 0, lanes)
    }

    fn vnni(&self, acc: Value, wide: Bytes, narrow: Bytes, lanes: u32) -> Value {
        let name = format!("llvm.x86.avx512.vpdpbusd.{}", 32 * lanes);
        let dot = |acc, unsigned: Value, signed: Value| {
            self.b
                .intrinsic_of_bits(&name, &mut [], &mut [acc, unsigned, signed])
        };
        let zero = self.b.zero(self.b.type_of(acc));
        match (wide.signed, narrow.signed) {
            (true, false) => dot(acc, narrow.value, wide.value),
            (false, true) => dot(acc, wide.value, narrow.value),
            (true, true) => {
                // (n + 128) w - 128 w; the second sum is that of w alone.
                let excess = dot(zero, self.all_bytes(-128, lanes), wide.value);
                let sum = dot(acc, self.flipped(narrow.value, lanes), wide.value);
                self.b.op(Op::Sub, sum, excess)
            }
            (false, false) => {
                // n (w - 128) + 128 n.
                let sum = dot(acc, narrow.value, self.flipped(wide.value, lanes));
                let ones = dot(zero, narrow.value, self.all_bytes(1, lanes));
                self.b.op(Op::Add, sum, self.times_128(ones, lanes))
            }
        }
    }

    fn arm(&self, acc: Value, wide: Bytes, narrow: Bytes, mixed: bool) -> Value {
        let (words, bytes) = (self.b.type_of(acc), self.b.type_of(wide.value));
        let dot = |name: &str, acc, a, b| {
            self.b
                .intrinsic_of_bits(name, &mut [words, bytes], &mut [acc, a, b])
        };
        if wide.signed == narrow.signed {
            let name = if wide.signed { SDOT } else { UDOT };
            return dot(name, acc, wide.value, narrow.value);
        }
        let (unsigned, signed) = if wide.signed {
            (narrow.value, wide.value)
        } else {
            (wide.value, narrow.value)
        };
        if mixed {
            return dot(USDOT, acc, unsigned, signed);
        }
        // (u - 128) s + 128 s.
        let sum = dot(SDOT, acc, self.flipped(unsigned, 4), signed);
        let zero = self.b.zero(words);
        let ones = dot(SDOT, zero, signed, self.all_bytes(1, 4));
        self.b.op(Op::Add, sum, self.times_128(ones, 4))
    }

    fn pairs_of_words(&self, acc: Value, wide: Bytes, narrow: Bytes, lanes: u32) -> Value {
        let name = match lanes {
            16 => "llvm.x86.avx512.pmaddw.d.512",
            8 => "llvm.x86.avx2.pmadd.wd",
            4 => "llvm.x86.sse2.pmadd.wd",
            _ => return self.expanded(acc, wide, narrow, lanes),
        };
        let words = self.b.vector_type(self.b.int_type(16), 2 * lanes);
        let half = |at: u32| {
            let part = |b: Bytes| self.extended(b, self.b.slice(b.value, at, 2 * lanes), words);
            let args = &mut [part(wide), part(narrow)];
            self.b.intrinsic_of_bits(name, &mut [], args)
        };
        let sums = self.b.joined(vec![half(0), half(2 * lanes)]);
        let [even, odd] = [0, 1].map(|at| self.b.every(sums, at, 2, lanes));
        let pairs = self.b.op(Op::Add, even, odd);
        self.b.op(Op::Add, acc, pairs)
    }

    fn expanded(&self, acc: Value, wide: Bytes, narrow: Bytes, lanes: u32) -> Value {
        let t = self.b.vector_type(self.b.int_type(32), 4 * lanes);
        let all = |b: Bytes| self.extended(b, b.value, t);
        let products = self.b.op(Op::Mul, all(wide), all(narrow));
        (0..Factors::Bytes.terms() as u32).fold(acc, |sum, j| {
            let term = self.b.every(products, j, 4, lanes);
            self.b.op(Op::Add, sum, term)
        })
    }

    fn extended(&self, b: Bytes, v: Value, to: Type) -> Value {
        let conv = if b.signed { Conv::SExt } else { Conv::ZExt };
        self.b.convert(conv, v, to)
    }

    /// Bytes of the other signedness, moved by 128.
    fn flipped(&self, v: Value, lanes: u32) -> Value {
        self.b.op(Op::Xor, v, self.all_bytes(-128, lanes))
    }

    fn all_bytes(&self, v: i64, lanes: u32) -> Value {
        let byte = self.b.const_int(self.b.int_type(8), v);
        self.b.const_vector(&mut vec![byte; 4 * lanes as usize])
    }

    fn times_128(&self, v: Value, lanes: u32) -> Value {
        let seven = self.b.const_int(self.b.int_type(32), 7);
        let by = self.b.const_vector(&mut vec![seven; lanes as usize]);
        self.b.op(Op::Shl, v, by)
    }
}

fn summands<'e>(e: &'e Expr, out: &mut Vec<&'e Expr>) {
    match e.kind() {
        ExprKind::Binary(BinaryOp::Add, a, b) => {
            summands(a, out);
            summands(b, out);
        }
        _ => out.push(e),
    }
}
