//! Loads from a table of bytes that has an element for each byte, by an index that is a byte:
//! the table lies in four vectors of 32-bit words, from which AVX-512 picks a word a lane.

use crate::emit::Emitter;
use crate::raw::{Cmp, Conv, Op, Value};
use crate::value::Scope;
use ir::{BufferId, DType, Expr, ExprKind, Isa};
use lower::flat::BufferPlace;

/// Lanes of one instruction, and words of one of its operands.
const LANES: u32 = 16;

impl Emitter<'_> {
    /// The elements of all lanes; `None` if the index is no byte, or the target has no
    /// instructions for it.
    pub fn load_by_bytes(&mut self, table: BufferId, at: &Expr, s: &mut Scope) -> Option<Value> {
        let info = &self.code.buffers[table.index()];
        let bytes =
            matches!(info.dtype, DType::I8 | DType::U8) && info.place != BufferPlace::Register;
        let lanes = s.lane.map_or(0, |l| l.lanes);
        let fits = bytes && info.elements >= 256 && lanes > 1 && lanes.is_power_of_two();
        if !fits || self.target.isa != Isa::X86Avx512 {
            return None;
        }
        let ExprKind::Cast(DType::I64, byte) = at.kind() else {
            return None;
        };
        let byte = self.expr(byte, s);
        if byte.dtype != DType::U8 || self.b.lanes_of(byte.value) == 0 {
            return None;
        }
        let word = self.b.int_type(32);
        let first = self.pointer(table);
        let words: Vec<Value> = (0..4)
            .map(|i| {
                let at = self.index(i64::from(i * LANES));
                let t = self.b.vector_type(word, LANES);
                self.b.load(t, self.b.gep(word, first, at), 1)
            })
            .collect();
        let native = lanes.min(LANES);
        let parts = (0..lanes).step_by(native as usize);
        let parts = parts.map(|at| {
            let all: Vec<Option<u32>> = (at..at + LANES)
                .map(|i| (i < at + native).then_some(i))
                .collect();
            let part = self.b.shuffle(byte.value, byte.value, &all);
            self.b.slice(self.looked_up(&words, part), 0, native)
        });
        Some(self.b.joined(parts.collect()))
    }

    fn looked_up(&self, words: &[Value], bytes: Value) -> Value {
        let t = self.b.vector_type(self.b.int_type(32), LANES);
        let number = |v: i64| {
            let v = self.b.const_int(self.b.int_type(32), v);
            self.b.const_vector(&mut [v; LANES as usize])
        };
        let at = self.b.convert(Conv::ZExt, bytes, t);
        let word = self.b.op(Op::LShr, at, number(2));
        let pick = |two: &[Value]| {
            let name = "llvm.x86.avx512.vpermi2var.d.512";
            self.b
                .intrinsic_of_bits(name, &mut [], &mut [two[0], word, two[1]])
        };
        let is_first = self.b.cmp(Cmp::Ult, word, number(2 * i64::from(LANES)));
        let found = self
            .b
            .select(is_first, pick(&words[..2]), pick(&words[2..]));
        let byte = self.b.op(Op::And, at, number(3));
        let found = self
            .b
            .op(Op::LShr, found, self.b.op(Op::Shl, byte, number(3)));
        let bytes = self.b.vector_type(self.b.int_type(8), LANES);
        self.b.convert(Conv::Trunc, found, bytes)
    }
}
