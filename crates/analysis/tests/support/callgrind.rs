//! Kernels under callgrind: the test program runs itself in it, once for all kernels.
//!
//! A test `child` calls [`call_kernels`].

use ir::Target;
use llvm::Decoder;
use lower::flat::{BufferPlace, Code};
use runtime::{KernelFn, LoadedCode, Pool};
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;

/// In the process under valgrind: a file with a line for each kernel, which has the object's path
/// and the sizes of the buffers.
const KERNELS: &str = "TUNESMITH_TEST_KERNELS";

/// What callgrind counts.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn tunesmith_measured(
    kernel: KernelFn,
    pool: &Pool,
    args: *const *mut c_void,
    workspace: *mut c_void,
) -> i32 {
    // SAFETY: the caller gives the arguments that the kernel takes.
    unsafe { kernel(pool.ctx(), args.cast(), workspace) }
}

/// Calls the kernels that the process was started for, if it was started for any.
pub fn call_kernels() {
    let Ok(list) = std::env::var(KERNELS) else {
        return;
    };
    let pool = Pool::new(1).expect("a pool");
    let mut sweep = vec![0u8; 1 << 20];
    for line in std::fs::read_to_string(list).expect("the list").lines() {
        let mut words = line.split(' ');
        let object = std::fs::read(words.next().expect("a path")).expect("the object");
        let code = LoadedCode::load(&object).expect("it loads");
        let kernel = code.kernel("kernel").expect("the entry");
        let sizes = words.map(|b| b.parse().expect("a number of bytes"));
        let mut buffers: Vec<tensor::AlignedBytes> =
            sizes.map(tensor::AlignedBytes::zeroed).collect();
        let mut pointers: Vec<*mut c_void> =
            buffers.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
        let workspace = pointers.pop().expect("the last one is the workspace");
        // Nothing of the buffers is in a cache.
        sweep
            .iter_mut()
            .for_each(|byte| *byte = std::hint::black_box(*byte).wrapping_add(1));
        assert_eq!(
            tunesmith_measured(kernel, &pool, pointers.as_ptr(), workspace),
            0
        );
    }
}

/// Whether this machine runs valgrind and code for the target.
pub fn runs_here(target: &Target) -> bool {
    let valgrind = Command::new("valgrind").arg("--version").output();
    let runs = valgrind.is_ok_and(|v| v.status.success()) && testkit::host::runs(target);
    if !runs {
        testkit::host::skipped(&format!("valgrind or {} is missing", target.name()));
    }
    runs
}

/// Whether an object has masked moves.
pub fn masked(object: &[u8], target: &Target) -> bool {
    let decoder = Decoder::new(target).expect("a known target");
    let functions = decoder.functions(object).expect("the object is read");
    let mut instructions = functions.iter().flat_map(|f| &f.instructions);
    instructions.any(|i| i.opcode.contains("MASKMOV"))
}

/// Instructions, reads and writes of one call of each kernel, and their misses. A file is written whenever the
/// function that calls them returns.
/// The caches have so many bytes in 8 ways. Kernels are given by their code and their object.
pub fn run<'a>(
    kernels: impl Iterator<Item = (&'a Code, &'a [u8])>,
    [first, last]: [u64; 2],
    folder: &Path,
) -> Vec<Vec<f64>> {
    let mut lines = Vec::new();
    for (at, (code, object)) in kernels.enumerate() {
        let path = folder.join(format!("{at}.o"));
        std::fs::write(&path, object).expect("the object is written");
        let bytes = |b: &ir::BufferId| {
            let info = &code.buffers[b.index()];
            assert_ne!(info.place, BufferPlace::Unused);
            info.elements as u64 * info.dtype.size() as u64
        };
        let round = |n: u64| n.next_multiple_of(64);
        let workspace = round(code.workspace_bytes) + round(code.worker_workspace_bytes) + 64;
        let sizes = code.params.iter().map(|b| bytes(b).to_string());
        let mut words = vec![path.display().to_string()];
        words.extend(sizes.chain([workspace.to_string()]));
        lines.push(words.join(" ") + "\n");
    }
    let (list, out) = (folder.join("kernels"), folder.join("counts"));
    std::fs::write(&list, lines.concat()).expect("the list is written");
    let result = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--cache-sim=yes",
            "--toggle-collect=tunesmith_measured",
            "--dump-after=tunesmith_measured",
        ])
        .arg(format!("--D1={first},8,64"))
        .arg(format!("--LL={last},8,64"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "child"])
        .env(KERNELS, &list)
        .output()
        .expect("valgrind starts");
    let text = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "valgrind failed: {text}");
    (1..=lines.len())
        .map(|n| totals(&folder.join(format!("counts.{n}"))))
        .collect()
}

fn totals(file: &Path) -> Vec<f64> {
    let written = std::fs::read_to_string(file).expect("callgrind writes its counts");
    let totals = written.lines().find_map(|l| l.strip_prefix("totals: "));
    let totals = totals.expect("callgrind writes totals").split(' ');
    let mut totals: Vec<f64> = totals.map(|n| n.parse().expect("a number")).collect();
    // Zeros at the end are not written.
    totals.resize(9, 0.0);
    totals
}
