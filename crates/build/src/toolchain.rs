//! The name of the compiler, for keys and records.

use std::sync::OnceLock;

/// Names what turns a program and a trace into machine code: LLVM, and the
/// sources that steps, passes and code generation were built from (the build
/// script says which). Two programs with the same compiler in them have the same
/// name for it. The profile they were built in is no part of it: it decides which
/// checks run, not which code comes out.
pub fn toolchain() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    let sources = env!("TUNESMITH_COMPILER_SOURCES");
    NAME.get_or_init(|| format!("{} {sources}", llvm::version()))
}
