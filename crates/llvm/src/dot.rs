//! Dot products of bytes: statements whose lanes each add four products of
//! neighbouring bytes, as `lower` writes the `dot4` intrinsics.
//!
//! Such a statement reads `acc[i] + a[4i] b[0] + .. + a[4i+3] b[3]` in i32, `a`
//! lane by lane and `b` either the same for all lanes or lane by lane too. What
//! the target has decides the instructions; all of them give exactly the sums
//! of the statement, which wrap:
//! - x86 with VNNI: `vpdpbusd`. Where not exactly one side is unsigned, one is
//!   moved by 128 and the difference, a dot product with a constant, taken off.
//! - other x86: products of i16 by `pmaddwd`, then sums of neighbours.
//! - AArch64 with dot products: `sdot`, `udot`, `usdot`.
//! - others: products in i32.

use crate::emit::Emitter;
use crate::raw::{Conv, Op, Type, Value};
use crate::value::Scope;
use ir::affine::Affine;
use ir::{BinaryOp, BufferId, ByteDot, DType, Expr, ExprKind, Isa, VarId};
use lower::flat::{BufferPlace, Lane, Store};

/// Products that one lane adds.
const TERMS: usize = 4;

/// Bytes of one side: where those of lane 0 are, and whether every lane has its own.
struct Side {
    buffer: BufferId,
    at: Expr,
    by_lane: bool,
}

/// A statement of four products a lane.
struct Dot {
    /// What is added to the products.
    rest: Expr,
    /// The first has its own bytes for every lane.
    sides: [Side; 2],
}

/// One factor of a product: a widened load.
struct Factor {
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

/// A vector of bytes, four a lane, with its signedness.
#[derive(Clone, Copy)]
struct Bytes {
    value: Value,
    signed: bool,
}

const SDOT: &str = "llvm.aarch64.neon.sdot";
const UDOT: &str = "llvm.aarch64.neon.udot";
const USDOT: &str = "llvm.aarch64.neon.usdot";

impl Emitter<'_> {
    /// Emits `s` if it is a dot product of bytes; false if it is none.
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
            let wide = self.bytes(&dot.sides[0], at, native, &mut scope);
            let narrow = self.bytes(&dot.sides[1], at, native, &mut scope);
            sums.push(self.dot(acc, wide, narrow, native));
        }
        let value = crate::value::Typed {
            value: self.b.joined(sums),
            dtype: DType::I32,
        };
        self.store(s.buffer, &s.offset, value, &mut scope);
        true
    }

    fn dot_of(&self, value: &Expr, lane: Lane) -> Option<Dot> {
        if !lane.lanes.is_power_of_two() {
            return None;
        }
        let mut rest: Option<Expr> = None;
        let mut products = Vec::new();
        let mut terms = Vec::new();
        summands(value, &mut terms);
        if terms.len() <= TERMS {
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
        if products.len() != TERMS {
            return None;
        }
        products.sort_by_key(|p| p[0].at.constant);
        let steps = |side: usize| {
            let first = &products[0][side];
            products.iter().enumerate().all(|(j, p)| {
                let f = &p[side];
                (f.buffer, &f.at.terms, f.stride) == (first.buffer, &first.at.terms, first.stride)
                    && f.at.constant == first.at.constant + j as i64
                    && f.digits == first.digits
            })
        };
        let fits = products[0][0].stride == 4 && matches!(products[0][1].stride, 0 | 4);
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
            rest: rest?,
            sides: [side(&products[0][0]), side(&products[0][1])],
        })
    }

    /// The factors of a product of two bytes, that of the larger stride first.
    fn product(&self, e: &Expr, lane: VarId) -> Option<[Factor; 2]> {
        let ExprKind::Binary(BinaryOp::Mul, a, b) = e.kind() else {
            return None;
        };
        let (a, b) = (self.factor(a, lane)?, self.factor(b, lane)?);
        Some(if a.stride >= b.stride { [a, b] } else { [b, a] })
    }

    fn factor(&self, e: &Expr, lane: VarId) -> Option<Factor> {
        let ExprKind::Cast(DType::I32, inner) = e.kind() else {
            return None;
        };
        let ExprKind::Load(buffer, at) = inner.kind() else {
            return None;
        };
        let info = &self.code.buffers[buffer.index()];
        let bytes = matches!(info.dtype, DType::I8 | DType::U8);
        if !bytes || info.place == BufferPlace::Register {
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
            buffer: *buffer,
            stride: at.coefficient(lane),
            at,
            digits,
        })
    }

    /// The bytes of `lanes` lanes from lane `first` on.
    fn bytes(&mut self, side: &Side, first: u32, lanes: u32, s: &mut Scope) -> Bytes {
        let byte = self.b.int_type(8);
        let t = self.b.vector_type(byte, 4 * lanes);
        let address = self.address(side.buffer, &side.at, s);
        let value = if side.by_lane {
            let from = self.index(4 * i64::from(first));
            self.b.load(t, self.b.gep(byte, address, from), 1)
        } else {
            let four = self.b.load(self.b.int_type(32), address, 1);
            self.b.convert(Conv::Bit, self.b.splat(four, lanes), t)
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
            (None, Isa::AArch64Neon | Isa::RiscV64Rvv) => Instructions::Expanded,
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
        (0..TERMS as u32).fold(acc, |sum, j| {
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
