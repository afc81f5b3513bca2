//! Tells the crate a fingerprint of what turns a program and a trace into
//! machine code.

use sources::Covered;

/// What decides code. Of `runtime` that is the form of built code, and whether
/// this machine can run it.
pub const COMPILER: Covered = Covered {
    sources: &[
        "build/src",
        "ir/src",
        "llvm/src",
        "lower/src",
        "runtime/src/abi.rs",
        "runtime/src/host.rs",
        "runtime/src/kernel.rs",
        "schedule/src",
        "tensor/src",
    ],
    packages: &["half", "inkwell", "libm", "llvm-sys", "postcard"],
};

fn main() -> std::io::Result<()> {
    sources::set_env("TUNESMITH_COMPILER_SOURCES", &COMPILER)
}
