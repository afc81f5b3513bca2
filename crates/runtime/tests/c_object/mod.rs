//! Objects made from C for tests of the loader and of what stands on it.

use runtime::{BuiltKernel, KernelParam, ParamRole};
use std::process::Command;
use tensor::DType;

/// The kernel ABI in C.
pub const ABI: &str = "
typedef struct Ctx Ctx;
typedef int (*Body)(const Ctx *, void *env, long begin, long end, int worker);
struct Ctx {
    unsigned abi_version, threads;
    int (*parallel_for)(const Ctx *, Body, void *env, long extent);
    const void *pool;
};
";

pub const FLAGS: [&str; 4] = [
    "-O2",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-ffreestanding",
];

/// Compiles C, with the ABI declared, into an object.
pub fn compile_with(source: &str, flags: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("k.c"), dir.path().join("k.o"));
    std::fs::write(&input, format!("{ABI}{source}")).unwrap();
    let run = Command::new("cc")
        .args(["-c", "-w"])
        .args(flags)
        .arg(&input)
        .arg("-o")
        .arg(&output)
        .output()
        .expect("the C compiler that Rust links with is needed");
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    std::fs::read(output).unwrap()
}

pub fn compile(source: &str) -> Vec<u8> {
    compile_with(source, &[&FLAGS[..], &["-fPIC"]].concat())
}

#[allow(dead_code)]
pub fn param(name: &str, role: ParamRole, shape: &[i64]) -> KernelParam {
    KernelParam {
        name: name.into(),
        dtype: DType::F32,
        shape: shape.into(),
        role,
    }
}

/// A kernel `kernel` for the host, without workspace and without a prepare entry.
#[allow(dead_code)]
pub fn built(source: &str, params: Vec<KernelParam>) -> BuiltKernel {
    BuiltKernel::by_hand(compile(source), params)
}
