//! The quarantine of `unsafe` for `shim/machine.cpp`: its tables as slices that live
//! as long as what they were read from.
//!
//! Rows have the layout of the C++ structures of the same name.

use crate::machine::{Resource, SchedulingModel};
use std::ffi::{CStr, CString, c_char};
use std::ops::Range;
use std::ptr::NonNull;

pub(crate) mod flag {
    pub const LOAD: u32 = 1 << 0;
    pub const STORE: u32 = 1 << 1;
    pub const BRANCH: u32 = 1 << 2;
    pub const CONDITIONAL: u32 = 1 << 3;
    pub const INDIRECT: u32 = 1 << 4;
    pub const CALL: u32 = 1 << 5;
    pub const RETURN: u32 = 1 << 6;
    pub const HAS_TARGET: u32 = 1 << 7;
    pub const USES_STACK: u32 = 1 << 8;
    pub const HAS_IMMEDIATE: u32 = 1 << 9;
    pub const HAS_ADDRESS: u32 = 1 << 10;
    pub const RETIRES_IN_ANY_ORDER: u32 = 1 << 11;
    pub const BEGINS_CYCLE: u32 = 1 << 12;
    pub const ENDS_CYCLE: u32 = 1 << 13;
}

#[repr(C)]
struct TextView {
    data: *const u8,
    length: usize,
}

impl TextView {
    /// # Safety
    /// The bytes must live for `'a`.
    unsafe fn text<'a>(&self) -> &'a str {
        if self.length == 0 {
            return "";
        }
        // SAFETY: LLVM gave a pointer and its length, which the caller says live.
        let bytes = unsafe { std::slice::from_raw_parts(self.data, self.length) };
        std::str::from_utf8(bytes).unwrap_or("?")
    }
}

fn range(first: u32, count: u32) -> Range<usize> {
    first as usize..first as usize + count as usize
}

#[repr(C)]
pub(crate) struct UseRow {
    pub unit: u32,
    first_advance: u32,
    advances: u32,
}

impl UseRow {
    pub fn range(&self) -> Range<usize> {
        range(self.first_advance, self.advances)
    }
}

#[repr(C)]
pub(crate) struct DefinitionRow {
    pub unit: u32,
    pub latency: u32,
    pub write: u32,
}

#[repr(C)]
pub(crate) struct AdvanceRow {
    pub write: u32,
    pub cycles: i32,
}

#[repr(C)]
pub(crate) struct BusyRow {
    pub resource: u32,
    pub from: u32,
    pub to: u32,
}

#[repr(C)]
pub(crate) struct InstructionRow {
    opcode: TextView,
    pub target: i64,
    pub immediate: i64,
    pub displacement: i64,
    pub offset: u32,
    pub size: u32,
    flags: u32,
    pub vector_bits: u32,
    pub line: u32,
    pub column: u32,
    base: u32,
    index: u32,
    pub scale: u32,
    pub accessed: u32,
    pub latency: u32,
    pub micro_ops: u32,
    first_definition: u32,
    definitions: u32,
    first_use: u32,
    uses: u32,
    first_busy: u32,
    busy: u32,
}

impl InstructionRow {
    pub fn has(&self, any: u32) -> bool {
        self.flags & any != 0
    }

    pub fn base(&self) -> Option<u32> {
        (self.base != u32::MAX).then_some(self.base)
    }

    pub fn index(&self) -> Option<u32> {
        (self.index != u32::MAX).then_some(self.index)
    }

    pub fn opcode(&self) -> &'static str {
        // SAFETY: a name in LLVM's static tables; the library is never unloaded.
        unsafe { self.opcode.text() }
    }

    pub fn definitions(&self) -> Range<usize> {
        range(self.first_definition, self.definitions)
    }

    pub fn uses(&self) -> Range<usize> {
        range(self.first_use, self.uses)
    }

    pub fn busy(&self) -> Range<usize> {
        range(self.first_busy, self.busy)
    }
}

#[repr(C)]
pub(crate) struct FunctionRow {
    name: TextView,
    first_instruction: u32,
    instructions: u32,
}

impl FunctionRow {
    pub fn name(&self) -> &str {
        // SAFETY: rows are borrowed from a `Code`, which has the bytes of the name.
        unsafe { self.name.text() }
    }

    pub fn range(&self) -> Range<usize> {
        range(self.first_instruction, self.instructions)
    }
}

#[repr(C)]
struct ResourceRow {
    name: TextView,
    units: u32,
    group: u32,
    buffer: i32,
}

#[repr(C)]
struct RawDecoder {
    _private: [u8; 0],
}

#[repr(C)]
struct RawCode {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn tunesmith_free_text(text: *mut c_char);
    fn tunesmith_features_of(triple: *const c_char, cpu: *const c_char) -> *mut c_char;
    fn tunesmith_decoder_new(
        triple: *const c_char,
        level: *const c_char,
        features: *const c_char,
        tuned: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut RawDecoder;
    fn tunesmith_decoder_free(decoder: *mut RawDecoder);
    fn tunesmith_decoder_model(decoder: *const RawDecoder) -> TextView;
    fn tunesmith_decoder_issue_width(decoder: *const RawDecoder) -> u32;
    fn tunesmith_decoder_buffer(decoder: *const RawDecoder) -> u32;
    fn tunesmith_decoder_resources(
        decoder: *const RawDecoder,
        count: *mut usize,
    ) -> *const ResourceRow;
    fn tunesmith_decoder_members(
        decoder: *const RawDecoder,
        resource: u32,
        count: *mut usize,
    ) -> *const u32;
    fn tunesmith_code_read(
        decoder: *const RawDecoder,
        bytes: *const u8,
        length: usize,
        error: *mut *mut c_char,
    ) -> *mut RawCode;
    fn tunesmith_code_free(code: *mut RawCode);
    fn tunesmith_code_functions(code: *const RawCode, count: *mut usize) -> *const FunctionRow;
    fn tunesmith_code_instructions(
        code: *const RawCode,
        count: *mut usize,
    ) -> *const InstructionRow;
    fn tunesmith_code_definitions(code: *const RawCode, count: *mut usize) -> *const DefinitionRow;
    fn tunesmith_code_uses(code: *const RawCode, count: *mut usize) -> *const UseRow;
    fn tunesmith_code_advances(code: *const RawCode, count: *mut usize) -> *const AdvanceRow;
    fn tunesmith_code_busy(code: *const RawCode, count: *mut usize) -> *const BusyRow;
}

/// The text of an error, which is freed.
///
/// # Safety
/// `text` must be null or a C string that the shim gave and that was not taken before.
unsafe fn taken(text: *mut c_char) -> String {
    if text.is_null() {
        return "LLVM gives no reason".into();
    }
    // SAFETY: a C string of the shim, freed once.
    unsafe {
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        tunesmith_free_text(text);
        owned
    }
}

/// # Safety
/// `rows` and its count must describe a table that lives for `'a` and does not change.
unsafe fn slice<'a, T>(rows: impl FnOnce(*mut usize) -> *const T) -> &'a [T] {
    let mut count = 0;
    let first = rows(&mut count);
    match count {
        0 => &[],
        // SAFETY: as the caller says.
        _ => unsafe { std::slice::from_raw_parts(first, count) },
    }
}

/// LLVM's names of the features that a processor has, by its name; none if there is no such
/// processor. LLVM's targets must have been initialised.
pub(crate) fn features_of(triple: &str, cpu: &str) -> Option<Vec<String>> {
    let (triple, cpu) = (CString::new(triple).ok()?, CString::new(cpu).ok()?);
    // SAFETY: two C strings; the text that comes back is freed once.
    let all = unsafe {
        let text = tunesmith_features_of(triple.as_ptr(), cpu.as_ptr());
        NonNull::new(text).map(|text| taken(text.as_ptr()))?
    };
    let names = all.split(',').filter(|name| !name.is_empty());
    Some(names.map(String::from).collect())
}

pub(crate) struct Decoder {
    raw: NonNull<RawDecoder>,
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: created in `new`, dropped once.
        unsafe { tunesmith_decoder_free(self.raw.as_ptr()) }
    }
}

impl Decoder {
    /// LLVM's targets must have been initialised. The error says what LLVM lacks.
    pub fn new(triple: &str, level: &str, features: &str, tuned: &str) -> Result<Decoder, String> {
        let text = |s: &str| CString::new(s).map_err(|_| format!("`{s}` has a NUL byte"));
        let (triple, level) = (text(triple)?, text(level)?);
        let (features, tuned) = (text(features)?, text(tuned)?);
        let mut error = std::ptr::null_mut();
        // SAFETY: four C strings and an out-pointer.
        unsafe {
            let raw = tunesmith_decoder_new(
                triple.as_ptr(),
                level.as_ptr(),
                features.as_ptr(),
                tuned.as_ptr(),
                &mut error,
            );
            let raw = NonNull::new(raw).ok_or_else(|| taken(error))?;
            Ok(Decoder { raw })
        }
    }

    pub fn model(&self, cpu: &str) -> SchedulingModel {
        let raw = self.raw.as_ptr();
        // SAFETY: a live decoder; its texts and tables live as long as it, and are copied.
        unsafe {
            let name = tunesmith_decoder_model(raw).text();
            let rows = slice(|n| tunesmith_decoder_resources(raw, n));
            let resource = |(i, row): (usize, &ResourceRow)| Resource {
                name: row.name.text().to_string(),
                units: row.units,
                // 0 and 1 are units without a queue, and -1 is of the whole machine's.
                queue: u32::try_from(row.buffer).ok().filter(|n| *n > 1),
                members: slice(|n| tunesmith_decoder_members(raw, i as u32, n)).to_vec(),
            };
            SchedulingModel {
                cpu: cpu.into(),
                name: (!rows.is_empty()).then(|| name.to_string()),
                issue_width: tunesmith_decoder_issue_width(raw),
                micro_op_buffer: tunesmith_decoder_buffer(raw),
                resources: rows.iter().enumerate().map(resource).collect(),
            }
        }
    }

    /// The error says why the object has no instructions of this target.
    pub fn read(&self, object: &[u8]) -> Result<Code, String> {
        let mut error = std::ptr::null_mut();
        // SAFETY: a live decoder, bytes with their length, an out-pointer. What comes back
        // points into itself and into LLVM's static tables only.
        unsafe {
            let (bytes, length) = (object.as_ptr(), object.len());
            let raw = tunesmith_code_read(self.raw.as_ptr(), bytes, length, &mut error);
            let raw = NonNull::new(raw).ok_or_else(|| taken(error))?;
            Ok(Code { raw })
        }
    }
}

/// The tables of one object.
pub(crate) struct Code {
    raw: NonNull<RawCode>,
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: created in `Decoder::read`, dropped once.
        unsafe { tunesmith_code_free(self.raw.as_ptr()) }
    }
}

macro_rules! tables {
    ($($name:ident: $row:ty = $function:ident;)*) => {
        impl Code {
            $(pub fn $name(&self) -> &[$row] {
                // SAFETY: the table belongs to this code and never changes.
                unsafe { slice(|n| $function(self.raw.as_ptr(), n)) }
            })*
        }
    };
}

tables! {
    functions: FunctionRow = tunesmith_code_functions;
    instructions: InstructionRow = tunesmith_code_instructions;
    definitions: DefinitionRow = tunesmith_code_definitions;
    uses: UseRow = tunesmith_code_uses;
    advances: AdvanceRow = tunesmith_code_advances;
    busy: BusyRow = tunesmith_code_busy;
}
