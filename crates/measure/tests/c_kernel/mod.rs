//! A task and kernels for it, written in C.
//!
//! The task: `y = x * w + 1` on floats and `n = 2 * k + 1` on integers, where
//! `w` is constant.

use measure::{ArgFill, Protocol, RunnerProcess, TaskData};
use runtime::{BuiltKernel, KernelParam, ParamRole};
use std::process::Command;
use tensor::DType;
use worker::CommandLine;

const ABI: &str = "
typedef struct Ctx Ctx;
typedef int (*Body)(const Ctx *, void *env, long begin, long end, int worker);
struct Ctx {
    unsigned abi_version, threads;
    int (*parallel_for)(const Ctx *, Body, void *env, long extent);
    const void *pool;
};
";

/// What every kernel here begins with.
const PROLOGUE: &str = "
enum { FLOATS = 256, INTS = 15 };
static inline void compute(void *const *args) {
    const float *x = args[0], *w = args[1];
    const int *k = args[2];
    float *y = args[3];
    int *n = args[4];
    for (int i = 0; i < FLOATS; i++) y[i] = x[i] * w[i] + 1;
    for (int i = 0; i < INTS; i++) n[i] = 2 * k[i] + 1;
}
static inline void spin(long times) { for (volatile long i = 0; i < times; i++); }
";

pub fn compile(source: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("k.c"), dir.path().join("k.o"));
    std::fs::write(&input, format!("{ABI}{PROLOGUE}{source}")).unwrap();
    let run = Command::new("cc")
        .args([
            "-c",
            "-w",
            "-O2",
            "-fPIC",
            "-ffreestanding",
            "-fno-stack-protector",
        ])
        .args(["-fno-asynchronous-unwind-tables", "-mcmodel=small"])
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

pub fn param(name: &str, dtype: DType, role: ParamRole, len: i64) -> KernelParam {
    KernelParam {
        name: name.into(),
        dtype,
        shape: vec![len],
        role,
    }
}

fn params() -> Vec<KernelParam> {
    vec![
        param("x", DType::F32, ParamRole::Input, 256),
        param("w", DType::F32, ParamRole::Constant, 256),
        param("k", DType::I32, ParamRole::Input, 15),
        param("y", DType::F32, ParamRole::Output, 256),
        param("n", DType::I32, ParamRole::Output, 15),
    ]
}

/// A kernel from the whole source after the prologue.
pub fn from_source(source: &str) -> BuiltKernel {
    BuiltKernel {
        workspace_bytes: 64,
        ..BuiltKernel::by_hand(compile(source), params())
    }
}

/// A kernel that does `body`.
pub fn kernel(body: &str) -> BuiltKernel {
    from_source(&format!(
        "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
            float *y = args[3]; int *n = args[4]; long *kept = workspace;
            {body}
            return 0;
        }}"
    ))
}

pub fn good() -> BuiltKernel {
    kernel("compute(args);")
}

/// A kernel that takes so many seconds on the wall and then dies.
#[allow(dead_code)]
pub fn sleeper(seconds: u64) -> BuiltKernel {
    kernel(&format!(
        "long time[2] = {{{seconds}, 0}}, status;
        __asm__ volatile(\"syscall\" : \"=a\"(status)
            : \"a\"(35L), \"D\"(time), \"S\"(0L) : \"rcx\", \"r11\", \"memory\");
        __builtin_trap();"
    ))
}

/// A kernel that reads `w` doubled by its prepare entry, which then does `body`.
#[allow(dead_code)]
pub fn preparing(body: &str) -> BuiltKernel {
    let source = format!(
        "int kernel(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *x = args[0], *packed = args[1];
            float *y = args[3];
            void *all[5] = {{args[0], args[1], args[2], args[3], args[4]}};
            compute(all);
            for (int i = 0; i < FLOATS; i++) y[i] = x[i] * (packed[2 * i] - 1) + 1;
            return 0;
        }}
        int prepare(const Ctx *ctx, void *const *args, void *workspace) {{
            const float *w = args[0];
            float *packed = args[1];
            for (int i = 0; i < FLOATS; i++) packed[2 * i] = packed[2 * i + 1] = w[i] + 1;
            {body}
            return 0;
        }}"
    );
    let packed = param("packed", DType::F32, ParamRole::Prepared, 512);
    let mut made = from_source(&source);
    made.params[1] = packed.clone();
    made.prepare_entry = Some("prepare".into());
    made.prepare_params = vec![param("w", DType::F32, ParamRole::Constant, 256), packed];
    made
}

/// The task with `oracle`. Every `k` is -1, so that every `n` has all bits set,
/// as memory that was never written may have.
pub fn task(seed: u64, oracle: BuiltKernel) -> TaskData {
    let floats = |name: &str| ArgFill {
        name: name.into(),
        dtype: DType::F32,
        shape: vec![256],
        lo: -1.0,
        hi: 1.0,
    };
    let k = ArgFill {
        name: "k".into(),
        dtype: DType::I32,
        shape: vec![15],
        lo: -1.0,
        hi: -0.5,
    };
    TaskData {
        id: 1,
        seed,
        args: vec![floats("x"), floats("w"), k],
        oracle,
    }
}

pub fn runner() -> RunnerProcess {
    let program = env!("CARGO_BIN_EXE_measure-test-runner").into();
    RunnerProcess::new(&CommandLine {
        program,
        args: vec![],
        cpus: vec![],
        stop: worker::Stop::default(),
    })
    .unwrap()
}

/// Quick samples; a limit that only a kernel which never ends reaches.
pub fn protocol() -> Protocol {
    Protocol {
        min_sample_ns: 1_000,
        limit_ns: 60_000_000_000,
        ..Protocol::new(1, 0)
    }
}

/// The same for a kernel that never ends.
#[allow(dead_code)]
pub fn impatient() -> Protocol {
    Protocol {
        limit_ns: 500_000_000,
        ..protocol()
    }
}
