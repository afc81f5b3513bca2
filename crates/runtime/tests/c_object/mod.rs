//! Objects made from C for tests of the loader and of what stands on it.

use runtime::{BuiltKernel, CodeFormat, KernelParam, KernelTarget, ParamRole};
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
pub fn host_target() -> KernelTarget {
    KernelTarget {
        triple: format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        cpu: "generic".into(),
        features: String::new(),
        vector_bits: 128,
    }
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
    BuiltKernel {
        target: host_target(),
        format: CodeFormat::Elf,
        code: compile(source),
        entry: "kernel".into(),
        params,
        prepare_entry: None,
        prepare_params: Vec::new(),
        prepare_code: None,
        prepare_hash: 0,
        in_place: Vec::new(),
        workspace_bytes: 0,
        worker_workspace_bytes: 0,
        prepare_workspace_bytes: 0,
        prepare_worker_workspace_bytes: 0,
        schedule: "written by hand".into(),
        compiler: "cc".into(),
    }
}
