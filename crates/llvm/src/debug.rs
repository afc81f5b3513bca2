//! Loop and access identity as debug locations: line = loop id + 2 (line 1 is
//! no loop), column = access id + 1 (column 0 is the loop's own bookkeeping). LLVM gives
//! line 0, and any column, to an instruction whose place it does not know.

use crate::raw::Value;
use inkwell::llvm_sys::debuginfo as di;
use inkwell::llvm_sys::prelude::{
    LLVMContextRef, LLVMDIBuilderRef, LLVMMetadataRef, LLVMModuleRef,
};
use lower::flat::{AccessId, FlatLoopId};
use std::cell::RefCell;
use std::collections::HashMap;

/// Builds the locations of one module.
pub struct DebugInfo {
    context: LLVMContextRef,
    builder: LLVMDIBuilderRef,
    file: LLVMMetadataRef,
    subprograms: RefCell<HashMap<Value, LLVMMetadataRef>>,
    current: LLVMMetadataRef,
}

/// DWARF columns have 16 bits; accesses beyond share the last column.
const LAST_COLUMN: u32 = 0xffff;

/// The loop and the access that a line and a column stand for; a column that several
/// accesses share stands for none.
pub fn identity(line: u32, column: u32) -> (Option<FlatLoopId>, Option<AccessId>) {
    let known = line > 0 && column < LAST_COLUMN;
    let access = column.checked_sub(1).filter(|_| known);
    (line.checked_sub(2), access)
}

impl DebugInfo {
    /// # Safety
    /// `module` must be a live module of `context` and outlive `self`.
    pub unsafe fn new(context: LLVMContextRef, module: LLVMModuleRef) -> DebugInfo {
        use inkwell::llvm_sys::core as c;
        let name = "flat";
        let empty = c"".as_ptr();
        // SAFETY: live module; every length matches its string.
        unsafe {
            let version = c::LLVMValueAsMetadata(c::LLVMConstInt(
                c::LLVMInt32TypeInContext(context),
                u64::from(di::LLVMDebugMetadataVersion()),
                0,
            ));
            let key = "Debug Info Version";
            let warn = inkwell::llvm_sys::LLVMModuleFlagBehavior::LLVMModuleFlagBehaviorWarning;
            c::LLVMAddModuleFlag(module, warn, key.as_ptr().cast(), key.len(), version);
            let builder = di::LLVMCreateDIBuilder(module);
            let file =
                di::LLVMDIBuilderCreateFile(builder, name.as_ptr().cast(), name.len(), empty, 0);
            di::LLVMDIBuilderCreateCompileUnit(
                builder,
                di::LLVMDWARFSourceLanguage::LLVMDWARFSourceLanguageC,
                file,
                empty,
                0,
                0,
                empty,
                0,
                0,
                empty,
                0,
                di::LLVMDWARFEmissionKind::LLVMDWARFEmissionKindLineTablesOnly,
                0,
                0,
                0,
                empty,
                0,
                empty,
                0,
            );
            let subprograms = RefCell::new(HashMap::new());
            DebugInfo {
                context,
                builder,
                file,
                subprograms,
                current: std::ptr::null_mut(),
            }
        }
    }

    /// Gives a function a subprogram, which locations inside it refer to.
    pub fn attach(&self, function: Value, name: &str) {
        // SAFETY: live builder and function; lengths match.
        unsafe {
            let t = di::LLVMDIBuilderCreateSubroutineType(
                self.builder,
                self.file,
                std::ptr::null_mut(),
                0,
                0,
            );
            let sp = di::LLVMDIBuilderCreateFunction(
                self.builder,
                self.file,
                name.as_ptr().cast(),
                name.len(),
                c"".as_ptr(),
                0,
                self.file,
                0,
                t,
                1,
                1,
                0,
                0,
                1,
            );
            di::LLVMSetSubprogram(function, sp);
            self.subprograms.borrow_mut().insert(function, sp);
        }
    }

    /// Locations from now on belong to `function`.
    pub fn enter(&mut self, function: Value) {
        self.current = self.subprograms.borrow()[&function];
    }

    pub fn location(
        &self,
        inside: Option<FlatLoopId>,
        access: Option<AccessId>,
    ) -> LLVMMetadataRef {
        let line = inside.map_or(1, |l| l + 2);
        let column = access.map_or(0, |a| (a + 1).min(LAST_COLUMN));
        // SAFETY: the current scope is a subprogram of this context.
        unsafe {
            di::LLVMDIBuilderCreateDebugLocation(
                self.context,
                line,
                column,
                self.current,
                std::ptr::null_mut(),
            )
        }
    }

    pub fn finish(&self) {
        // SAFETY: live builder.
        unsafe { di::LLVMDIBuilderFinalize(self.builder) }
    }
}

impl Drop for DebugInfo {
    fn drop(&mut self) {
        // SAFETY: created in `new`, dropped once.
        unsafe { di::LLVMDisposeDIBuilder(self.builder) }
    }
}
