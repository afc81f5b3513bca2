//! A thin layer over LLVM's C builder in which scalars and vectors are one type.
//!
//! The quarantine of `unsafe` for code emission: a `Builder` owns nothing but a
//! C builder of a live context, and all handles it gives out belong to that
//! context's module, so they must not outlive the `inkwell` module they came from.

use inkwell::llvm_sys::LLVMIntPredicate as IntPred;
use inkwell::llvm_sys::LLVMRealPredicate as RealPred;
use inkwell::llvm_sys::core as c;
use inkwell::llvm_sys::prelude::{
    LLVMBasicBlockRef, LLVMBuilderRef, LLVMContextRef, LLVMMetadataRef, LLVMModuleRef, LLVMTypeRef,
    LLVMValueRef,
};
use std::ffi::CString;

pub type Value = LLVMValueRef;
pub type Type = LLVMTypeRef;
pub type BasicBlock = LLVMBasicBlockRef;

/// Two-operand instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Add,
    Sub,
    Mul,
    SDiv,
    UDiv,
    SRem,
    URem,
    Shl,
    AShr,
    LShr,
    And,
    Or,
    Xor,
    FAdd,
    FSub,
    FMul,
    FDiv,
}

/// Comparisons; the float ones are false on NaN except `FUne`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    Eq,
    Ne,
    Slt,
    Sle,
    Ult,
    Ule,
    FOeq,
    FUne,
    FOlt,
    FOle,
    FOgt,
    FUno,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conv {
    Trunc,
    ZExt,
    SExt,
    SiToFp,
    UiToFp,
    FpToSi,
    FpToUi,
    FpExt,
    FpTrunc,
    Bit,
}

/// Emits instructions at one position of one function.
pub struct Builder {
    pub context: LLVMContextRef,
    pub module: LLVMModuleRef,
    builder: LLVMBuilderRef,
}

/// `contract`: a multiply and an add may fuse.
const CONTRACT: u32 = 1 << 5;
/// `LLVMFastMathNoSignedZeros`.
const NO_SIGNED_ZEROS: u32 = 1 << 3;
/// `LLVMFastMathNoInfs`.
const NO_INFINITIES: u32 = 1 << 2;
/// `LLVMFastMathAllowReciprocal`.
const ALLOW_RECIPROCAL: u32 = 1 << 4;
/// The attribute of a function whose quotients may be made of estimates, and which may: of vectors, after one step of
/// Newton's method.
pub const ESTIMATES: (&str, &str) = ("reciprocal-estimates", "vec-divf:1");
const NAME: *const i8 = c"".as_ptr();

fn cstr(s: &str) -> CString {
    CString::new(s.replace('\0', "_")).expect("no NUL is left")
}

impl Drop for Builder {
    fn drop(&mut self) {
        // SAFETY: created in `new`, dropped once.
        unsafe { c::LLVMDisposeBuilder(self.builder) }
    }
}

impl Builder {
    /// # Safety
    /// `module` must be a live module of `context` and outlive every handle.
    pub unsafe fn new(context: LLVMContextRef, module: LLVMModuleRef) -> Builder {
        // SAFETY: the context is live.
        let builder = unsafe { c::LLVMCreateBuilderInContext(context) };
        Builder {
            context,
            module,
            builder,
        }
    }

    pub fn int_type(&self, bits: u32) -> Type {
        // SAFETY: live context.
        unsafe { c::LLVMIntTypeInContext(self.context, bits) }
    }

    pub fn f32_type(&self) -> Type {
        // SAFETY: live context.
        unsafe { c::LLVMFloatTypeInContext(self.context) }
    }

    pub fn f16_type(&self) -> Type {
        // SAFETY: live context.
        unsafe { c::LLVMHalfTypeInContext(self.context) }
    }

    pub fn bf16_type(&self) -> Type {
        // SAFETY: live context.
        unsafe { c::LLVMBFloatTypeInContext(self.context) }
    }

    pub fn f64_type(&self) -> Type {
        // SAFETY: live context.
        unsafe { c::LLVMDoubleTypeInContext(self.context) }
    }

    pub fn ptr_type(&self) -> Type {
        // SAFETY: live context.
        unsafe { c::LLVMPointerTypeInContext(self.context, 0) }
    }

    /// `lanes` elements; the scalar type itself for 0.
    pub fn vector_type(&self, scalar: Type, lanes: u32) -> Type {
        // SAFETY: a scalar type of this context.
        if lanes == 0 {
            scalar
        } else {
            unsafe { c::LLVMVectorType(scalar, lanes) }
        }
    }

    pub fn type_of(&self, v: Value) -> Type {
        // SAFETY: a live value.
        unsafe { c::LLVMTypeOf(v) }
    }

    /// Lanes of a vector value, 0 for a scalar.
    pub fn lanes_of(&self, v: Value) -> u32 {
        self.lanes_of_type(self.type_of(v))
    }

    pub fn lanes_of_type(&self, t: Type) -> u32 {
        use inkwell::llvm_sys::LLVMTypeKind::LLVMVectorTypeKind;
        // SAFETY: a live type; the size is asked of vectors only.
        unsafe {
            if c::LLVMGetTypeKind(t) == LLVMVectorTypeKind {
                c::LLVMGetVectorSize(t)
            } else {
                0
            }
        }
    }

    pub fn const_int(&self, t: Type, v: i64) -> Value {
        // SAFETY: an integer type.
        unsafe { c::LLVMConstInt(t, v as u64, 1) }
    }

    pub fn const_real(&self, t: Type, v: f64) -> Value {
        // SAFETY: a floating-point type.
        unsafe { c::LLVMConstReal(t, v) }
    }

    pub fn const_vector(&self, elements: &mut [Value]) -> Value {
        // SAFETY: constants of one scalar type.
        unsafe { c::LLVMConstVector(elements.as_mut_ptr(), elements.len() as u32) }
    }

    pub fn undef(&self, t: Type) -> Value {
        // SAFETY: a live type.
        unsafe { c::LLVMGetUndef(t) }
    }

    pub fn zero(&self, t: Type) -> Value {
        // SAFETY: a live type.
        unsafe { c::LLVMConstNull(t) }
    }

    pub fn append_block(&self, function: Value, name: &str) -> BasicBlock {
        // SAFETY: a live function.
        unsafe { c::LLVMAppendBasicBlockInContext(self.context, function, cstr(name).as_ptr()) }
    }

    pub fn position_at_end(&self, block: BasicBlock) {
        // SAFETY: a live block.
        unsafe { c::LLVMPositionBuilderAtEnd(self.builder, block) }
    }

    pub fn current_block(&self) -> BasicBlock {
        // SAFETY: the builder is positioned.
        unsafe { c::LLVMGetInsertBlock(self.builder) }
    }

    pub fn op(&self, op: Op, a: Value, b: Value) -> Value {
        let build = match op {
            Op::Add => c::LLVMBuildAdd,
            Op::Sub => c::LLVMBuildSub,
            Op::Mul => c::LLVMBuildMul,
            Op::SDiv => c::LLVMBuildSDiv,
            Op::UDiv => c::LLVMBuildUDiv,
            Op::SRem => c::LLVMBuildSRem,
            Op::URem => c::LLVMBuildURem,
            Op::Shl => c::LLVMBuildShl,
            Op::AShr => c::LLVMBuildAShr,
            Op::LShr => c::LLVMBuildLShr,
            Op::And => c::LLVMBuildAnd,
            Op::Or => c::LLVMBuildOr,
            Op::Xor => c::LLVMBuildXor,
            Op::FAdd => c::LLVMBuildFAdd,
            Op::FSub => c::LLVMBuildFSub,
            Op::FMul => c::LLVMBuildFMul,
            Op::FDiv => c::LLVMBuildFDiv,
        };
        // SAFETY: operands of one type that the instruction takes.
        let v = unsafe { build(self.builder, a, b, NAME) };
        if matches!(op, Op::FAdd | Op::FSub | Op::FMul) {
            self.allow_contraction(v);
        }
        v
    }

    /// A product of floats that is rounded: no sum takes it in.
    pub fn rounded_product(&self, a: Value, b: Value) -> Value {
        // SAFETY: floats of one type.
        unsafe { c::LLVMBuildFMul(self.builder, a, b, NAME) }
    }

    /// A quotient of floats neither of which is infinite and of which the divisor is a normal number: the processor's
    /// estimate of a reciprocal, made exact to the last digits, may be it (see [`ESTIMATES`]).
    pub fn quotient_of_normals(&self, a: Value, b: Value) -> Value {
        // SAFETY: floats of one type; constants fold to non-instructions, which are left alone.
        unsafe {
            let v = c::LLVMBuildFDiv(self.builder, a, b, NAME);
            if !c::LLVMIsAInstruction(v).is_null() {
                c::LLVMSetFastMathFlags(v, ALLOW_RECIPROCAL | NO_INFINITIES | CONTRACT);
            }
            v
        }
    }

    fn allow_contraction(&self, v: Value) {
        // SAFETY: constants fold to non-instructions, which are left alone.
        unsafe {
            if !c::LLVMIsAInstruction(v).is_null() {
                c::LLVMSetFastMathFlags(v, CONTRACT);
            }
        }
    }

    pub fn fneg(&self, a: Value) -> Value {
        // SAFETY: a float value.
        unsafe { c::LLVMBuildFNeg(self.builder, a, NAME) }
    }

    pub fn is_constant(&self, a: Value) -> bool {
        // SAFETY: a value.
        unsafe { c::LLVMIsConstant(a) != 0 }
    }

    pub fn not(&self, a: Value) -> Value {
        // SAFETY: an integer value.
        unsafe { c::LLVMBuildNot(self.builder, a, NAME) }
    }

    pub fn cmp(&self, cmp: Cmp, a: Value, b: Value) -> Value {
        let int = |p: IntPred| unsafe {
            // SAFETY: integer operands of one type.
            c::LLVMBuildICmp(self.builder, p, a, b, NAME)
        };
        let real = |p: RealPred| unsafe {
            // SAFETY: float operands of one type.
            c::LLVMBuildFCmp(self.builder, p, a, b, NAME)
        };
        match cmp {
            Cmp::Eq => int(IntPred::LLVMIntEQ),
            Cmp::Ne => int(IntPred::LLVMIntNE),
            Cmp::Slt => int(IntPred::LLVMIntSLT),
            Cmp::Sle => int(IntPred::LLVMIntSLE),
            Cmp::Ult => int(IntPred::LLVMIntULT),
            Cmp::Ule => int(IntPred::LLVMIntULE),
            Cmp::FOeq => real(RealPred::LLVMRealOEQ),
            Cmp::FUne => real(RealPred::LLVMRealUNE),
            Cmp::FOlt => real(RealPred::LLVMRealOLT),
            Cmp::FOle => real(RealPred::LLVMRealOLE),
            Cmp::FOgt => real(RealPred::LLVMRealOGT),
            Cmp::FUno => real(RealPred::LLVMRealUNO),
        }
    }

    pub fn select(&self, cond: Value, a: Value, b: Value) -> Value {
        // SAFETY: a bool (vector) and two values of one type.
        unsafe { c::LLVMBuildSelect(self.builder, cond, a, b, NAME) }
    }

    pub fn convert(&self, conv: Conv, v: Value, to: Type) -> Value {
        let build = match conv {
            Conv::Trunc => c::LLVMBuildTrunc,
            Conv::ZExt => c::LLVMBuildZExt,
            Conv::SExt => c::LLVMBuildSExt,
            Conv::SiToFp => c::LLVMBuildSIToFP,
            Conv::UiToFp => c::LLVMBuildUIToFP,
            Conv::FpToSi => c::LLVMBuildFPToSI,
            Conv::FpToUi => c::LLVMBuildFPToUI,
            Conv::FpExt => c::LLVMBuildFPExt,
            Conv::FpTrunc => c::LLVMBuildFPTrunc,
            Conv::Bit => c::LLVMBuildBitCast,
        };
        // SAFETY: types that the conversion takes.
        unsafe { build(self.builder, v, to, NAME) }
    }

    /// Address of element `index` of an array of `element`.
    pub fn gep(&self, element: Type, base: Value, index: Value) -> Value {
        let mut index = [index];
        // SAFETY: a pointer (or vector of them) and an integer index.
        unsafe {
            c::LLVMBuildInBoundsGEP2(self.builder, element, base, index.as_mut_ptr(), 1, NAME)
        }
    }

    /// As `gep`, where the address may lie outside the memory it starts from.
    pub fn gep_anywhere(&self, element: Type, base: Value, index: Value) -> Value {
        let mut index = [index];
        // SAFETY: a pointer and an integer index.
        unsafe { c::LLVMBuildGEP2(self.builder, element, base, index.as_mut_ptr(), 1, NAME) }
    }

    pub fn load(&self, t: Type, address: Value, align: u32) -> Value {
        // SAFETY: a pointer.
        unsafe {
            let v = c::LLVMBuildLoad2(self.builder, t, address, NAME);
            c::LLVMSetAlignment(v, align);
            v
        }
    }

    pub fn store(&self, v: Value, address: Value, align: u32) {
        // SAFETY: a pointer.
        unsafe {
            let s = c::LLVMBuildStore(self.builder, v, address);
            c::LLVMSetAlignment(s, align);
        }
    }

    /// A stack array in the function's entry block.
    pub fn entry_alloca(&self, function: Value, element: Type, count: u64, align: u32) -> Value {
        self.in_entry(function, |b| {
            let n = b.const_int(b.int_type(64), count as i64);
            // SAFETY: the builder has a position in a function.
            unsafe {
                let v = c::LLVMBuildArrayAlloca(b.builder, element, n, NAME);
                c::LLVMSetAlignment(v, align);
                v
            }
        })
    }

    /// Memory for a value that is `initial` where the function begins.
    pub fn entry_variable(&self, function: Value, initial: Value, align: u32) -> Value {
        let t = self.type_of(initial);
        self.in_entry(function, |b| {
            // SAFETY: the builder has a position in a function.
            let address = unsafe { c::LLVMBuildAlloca(b.builder, t, NAME) };
            b.store(initial, address, align);
            address
        })
    }

    /// Emits at the beginning of a function.
    fn in_entry(&self, function: Value, emit: impl FnOnce(&Builder) -> Value) -> Value {
        let here = self.current_block();
        // SAFETY: the entry block exists and its first instruction, if any, is a valid position.
        unsafe {
            let entry = c::LLVMGetEntryBasicBlock(function);
            let first = c::LLVMGetFirstInstruction(entry);
            if first.is_null() {
                c::LLVMPositionBuilderAtEnd(self.builder, entry);
            } else {
                c::LLVMPositionBuilderBefore(self.builder, first);
            }
        }
        let v = emit(self);
        self.position_at_end(here);
        v
    }

    pub fn extract_at(&self, vector: Value, lane: Value) -> Value {
        // SAFETY: a vector, and an integer that the caller knows to be below its lanes.
        unsafe { c::LLVMBuildExtractElement(self.builder, vector, lane, NAME) }
    }

    pub fn extract(&self, vector: Value, lane: u32) -> Value {
        let i = self.const_int(self.int_type(32), i64::from(lane));
        // SAFETY: a vector and a lane within it.
        unsafe { c::LLVMBuildExtractElement(self.builder, vector, i, NAME) }
    }

    pub fn insert(&self, vector: Value, v: Value, lane: u32) -> Value {
        let i = self.const_int(self.int_type(32), i64::from(lane));
        // SAFETY: a vector, an element of its type and a lane within it.
        unsafe { c::LLVMBuildInsertElement(self.builder, vector, v, i, NAME) }
    }

    /// The one lane that a constant mask has.
    pub fn only_lane(&self, mask: Value) -> Option<u32> {
        let mut lanes = (0..self.lanes_of(mask)).filter_map(|i| {
            // SAFETY: a lane of the vector; what is no constant integer is told apart.
            let on = unsafe {
                let lane = match c::LLVMIsConstant(mask) {
                    0 => return Some(None),
                    _ => c::LLVMGetAggregateElement(mask, i),
                };
                match lane.is_null() || c::LLVMIsAConstantInt(lane).is_null() {
                    true => return Some(None),
                    false => c::LLVMConstIntGetZExtValue(lane) != 0,
                }
            };
            on.then_some(Some(i))
        });
        let first = lanes.next()?;
        match lanes.next() {
            None => first,
            Some(_) => None,
        }
    }

    /// A vector with `v` in every lane; `v` itself for 0 lanes.
    pub fn splat(&self, v: Value, lanes: u32) -> Value {
        if lanes == 0 {
            return v;
        }
        let t = self.vector_type(self.type_of(v), lanes);
        let one = self.insert(self.undef(t), v, 0);
        let mask = self.zero(self.vector_type(self.int_type(32), lanes));
        // SAFETY: two vectors of one type and a constant mask.
        unsafe { c::LLVMBuildShuffleVector(self.builder, one, self.undef(t), mask, NAME) }
    }

    /// `lanes` lanes of a vector from lane `at` on. Logic and comparisons are
    /// made anew from slices of their operands, so that what is constant in
    /// these lanes only is seen to be.
    pub fn slice(&self, v: Value, at: u32, lanes: u32) -> Value {
        use inkwell::llvm_sys::LLVMOpcode;
        if (at, lanes) == (0, self.lanes_of(v)) {
            return v;
        }
        // SAFETY: a value; what is no instruction is told apart first.
        let opcode = unsafe {
            (!c::LLVMIsAInstruction(v).is_null()).then(|| c::LLVMGetInstructionOpcode(v))
        };
        let operands = || {
            // SAFETY: instructions of two operands, of as many lanes as the result.
            let of = |i| self.slice(unsafe { c::LLVMGetOperand(v, i) }, at, lanes);
            (of(0), of(1))
        };
        match opcode {
            Some(LLVMOpcode::LLVMAnd) => {
                let (a, b) = operands();
                self.op(Op::And, a, b)
            }
            Some(LLVMOpcode::LLVMOr) => {
                let (a, b) = operands();
                self.op(Op::Or, a, b)
            }
            Some(LLVMOpcode::LLVMAdd) => {
                let (a, b) = operands();
                self.op(Op::Add, a, b)
            }
            Some(LLVMOpcode::LLVMICmp) => {
                let (a, b) = operands();
                // SAFETY: the predicate of a comparison, operands as it had.
                unsafe {
                    let predicate = c::LLVMGetICmpPredicate(v);
                    c::LLVMBuildICmp(self.builder, predicate, a, b, NAME)
                }
            }
            _ => self.consecutive(v, self.undef(self.type_of(v)), at, lanes),
        }
    }

    /// `lanes` lanes of a vector: lane `at` and every `stride`th after it.
    pub fn every(&self, v: Value, at: u32, stride: u32, lanes: u32) -> Value {
        let indices: Vec<Option<u32>> = (0..lanes).map(|i| Some(at + i * stride)).collect();
        self.shuffle(v, self.undef(self.type_of(v)), &indices)
    }

    /// The lanes of all vectors, of one type, in order; their number is a power of two.
    pub fn joined(&self, mut vectors: Vec<Value>) -> Value {
        while vectors.len() > 1 {
            let lanes = 2 * self.lanes_of(vectors[0]);
            let pairs = vectors.chunks(2);
            vectors = pairs
                .map(|p| self.consecutive(p[0], p[1], 0, lanes))
                .collect();
        }
        vectors.remove(0)
    }

    /// The lanes of `a` followed by `b` with these numbers; any value for `None`.
    pub fn shuffle(&self, a: Value, b: Value, lanes: &[Option<u32>]) -> Value {
        let t = self.int_type(32);
        let index = |i: &Option<u32>| match i {
            Some(i) => self.const_int(t, i64::from(*i)),
            None => self.undef(t),
        };
        let mut indices: Vec<Value> = lanes.iter().map(index).collect();
        let mask = self.const_vector(&mut indices);
        // SAFETY: two vectors of one type and a constant mask within them.
        unsafe { c::LLVMBuildShuffleVector(self.builder, a, b, mask, NAME) }
    }

    /// `lanes` consecutive lanes of `a` followed by `b`, from lane `at` on.
    fn consecutive(&self, a: Value, b: Value, at: u32, lanes: u32) -> Value {
        let indices: Vec<Option<u32>> = (at..at + lanes).map(Some).collect();
        self.shuffle(a, b, &indices)
    }

    pub fn phi(&self, t: Type) -> Value {
        // SAFETY: called before any other instruction of the block.
        unsafe { c::LLVMBuildPhi(self.builder, t, NAME) }
    }

    pub fn add_incoming(&self, phi: Value, v: Value, from: BasicBlock) {
        let (mut v, mut from) = ([v], [from]);
        // SAFETY: a phi, a value of its type and a predecessor.
        unsafe { c::LLVMAddIncoming(phi, v.as_mut_ptr(), from.as_mut_ptr(), 1) }
    }

    pub fn branch(&self, to: BasicBlock) {
        // SAFETY: a live block.
        unsafe { c::LLVMBuildBr(self.builder, to) };
    }

    pub fn branch_if(&self, cond: Value, then: BasicBlock, otherwise: BasicBlock) {
        // SAFETY: a bool and live blocks.
        unsafe { c::LLVMBuildCondBr(self.builder, cond, then, otherwise) };
    }

    pub fn ret(&self, v: Value) {
        // SAFETY: a value of the function's result type.
        unsafe { c::LLVMBuildRet(self.builder, v) };
    }

    pub fn function_type(&self, result: Type, params: &mut [Type]) -> Type {
        // SAFETY: live types.
        unsafe { c::LLVMFunctionType(result, params.as_mut_ptr(), params.len() as u32, 0) }
    }

    pub fn add_function(&self, name: &str, t: Type, internal: bool) -> Value {
        use inkwell::llvm_sys::LLVMLinkage::LLVMInternalLinkage;
        // SAFETY: a function type.
        unsafe {
            let f = c::LLVMAddFunction(self.module, cstr(name).as_ptr(), t);
            if internal {
                c::LLVMSetLinkage(f, LLVMInternalLinkage);
            }
            f
        }
    }

    /// The function of this name, if there is one.
    pub fn function(&self, name: &str) -> Option<Value> {
        // SAFETY: a live module.
        let f = unsafe { c::LLVMGetNamedFunction(self.module, cstr(name).as_ptr()) };
        (!f.is_null()).then_some(f)
    }

    /// `index` 0 is the result, `i + 1` parameter `i`, `u32::MAX` the function.
    pub fn add_attribute(&self, function: Value, index: u32, name: &str) {
        // SAFETY: an attribute that takes no argument.
        unsafe {
            let kind = c::LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len());
            assert!(kind != 0, "LLVM has no attribute `{name}`");
            let a = c::LLVMCreateEnumAttribute(self.context, kind, 0);
            c::LLVMAddAttributeAtIndex(function, index, a);
        }
    }

    pub fn add_string_attribute(&self, function: Value, key: &str, value: &str) {
        // SAFETY: lengths match the strings.
        unsafe {
            let a = c::LLVMCreateStringAttribute(
                self.context,
                key.as_ptr().cast(),
                key.len() as u32,
                value.as_ptr().cast(),
                value.len() as u32,
            );
            c::LLVMAddAttributeAtIndex(function, u32::MAX, a);
        }
    }

    pub fn param(&self, function: Value, i: u32) -> Value {
        // SAFETY: the caller asks for a parameter the function has.
        unsafe { c::LLVMGetParam(function, i) }
    }

    pub fn call(&self, t: Type, function: Value, args: &mut [Value]) -> Value {
        // SAFETY: arguments match the function type.
        unsafe {
            c::LLVMBuildCall2(
                self.builder,
                t,
                function,
                args.as_mut_ptr(),
                args.len() as u32,
                NAME,
            )
        }
    }

    /// Calls `llvm.name` overloaded on `types`.
    pub fn intrinsic(&self, name: &str, types: &mut [Type], args: &mut [Value]) -> Value {
        // SAFETY: the name exists (asserted) and the types are what it is overloaded on.
        unsafe {
            let id = c::LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
            assert!(id != 0, "LLVM has no intrinsic `{name}`");
            let f =
                c::LLVMGetIntrinsicDeclaration(self.module, id, types.as_mut_ptr(), types.len());
            let t = c::LLVMIntrinsicGetType(self.context, id, types.as_mut_ptr(), types.len());
            self.call(t, f, args)
        }
    }

    /// `llvm.minimum` or `llvm.maximum`: of a NaN a NaN, of zeros of two signs either.
    pub fn extreme(&self, name: &str, a: Value, b: Value) -> Value {
        let v = self.intrinsic(name, &mut [self.type_of(a)], &mut [a, b]);
        // SAFETY: a call that gives a float (vector); signs of zeros cost instructions.
        unsafe { c::LLVMSetFastMathFlags(v, NO_SIGNED_ZEROS) };
        v
    }

    /// As [`Builder::intrinsic`], for one whose operands are bits: arguments
    /// take the types that this LLVM declares, which have changed over time.
    pub fn intrinsic_of_bits(&self, name: &str, types: &mut [Type], args: &mut [Value]) -> Value {
        // SAFETY: the name exists (asserted below, too) and the types are what it is
        // overloaded on; it has as many parameters as there are arguments.
        let params = unsafe {
            let id = c::LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
            assert!(id != 0, "LLVM has no intrinsic `{name}`");
            let t = c::LLVMIntrinsicGetType(self.context, id, types.as_mut_ptr(), types.len());
            assert_eq!(c::LLVMCountParamTypes(t) as usize, args.len(), "{name}");
            let mut params = vec![std::ptr::null_mut(); args.len()];
            c::LLVMGetParamTypes(t, params.as_mut_ptr());
            params
        };
        for (a, t) in args.iter_mut().zip(params) {
            if self.type_of(*a) != t {
                *a = self.convert(Conv::Bit, *a, t);
            }
        }
        self.intrinsic(name, types, args)
    }

    pub fn set_debug_location(&self, location: LLVMMetadataRef) {
        // SAFETY: a location of this context, or null for none.
        unsafe { c::LLVMSetCurrentDebugLocation2(self.builder, location) }
    }
}
