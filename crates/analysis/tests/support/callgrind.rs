//! Kernels under callgrind: the test program runs itself in it, once for all kernels.
//!
//! A test `child` calls [`call_kernels`].

use ir::Target;
use llvm::Decoder;
use lower::flat::{BufferPlace, Code};
use runtime::{KernelFn, LoadedCode, Pool};
use std::collections::HashMap;
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

/// Whether an object has masked moves, whose lanes callgrind counts as instructions where it simulates caches.
pub fn masked(object: &[u8], target: &Target) -> bool {
    let decoder = Decoder::new(target).expect("a known target");
    let functions = decoder.functions(object).expect("the object is read");
    let mut instructions = functions.iter().flat_map(|f| &f.instructions);
    instructions.any(|i| i.opcode.contains("MASKMOV"))
}

/// What callgrind counted of one call of a kernel.
pub struct Counted {
    /// Of the call and all that it calls, as `--cache-sim` orders them: instructions, reads, writes,
    /// misses of each in the first cache, and in the last one.
    pub all: Vec<f64>,
    /// Instructions, reads and writes of the kernel's own code.
    pub own: [f64; 3],
    /// Functions of libraries that the code calls, and their instructions.
    pub called: Vec<(String, f64)>,
}

/// Instructions, reads and writes of one call of each kernel, and their misses. A file is written whenever the
/// function that calls them returns.
/// The caches have so many bytes in 8 ways; without any, only instructions are counted. Kernels are given by their
/// code and their object.
pub fn run<'a>(
    kernels: impl Iterator<Item = (&'a Code, &'a [u8])>,
    caches: Option<[u64; 2]>,
    folder: &Path,
) -> Vec<Counted> {
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
    let simulated = caches.map_or(vec![], |[first, last]| {
        let sizes = [format!("--D1={first},8,64"), format!("--LL={last},8,64")];
        ["--cache-sim=yes".to_string()]
            .into_iter()
            .chain(sizes)
            .collect()
    });
    let result = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--toggle-collect=tunesmith_measured",
            "--dump-after=tunesmith_measured",
        ])
        .args(simulated)
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "child"])
        .env(KERNELS, &list)
        .output()
        .expect("valgrind starts");
    let text = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "valgrind failed: {text}");
    (1..=lines.len())
        .map(|n| counted(&folder.join(format!("counts.{n}"))))
        .collect()
}

/// Reads a file of counts. The kernel's code is in no object that valgrind knows.
fn counted(file: &Path) -> Counted {
    let written = std::fs::read_to_string(file).expect("callgrind writes its counts");
    let numbers = |text: &str| -> Vec<f64> {
        let mut numbers: Vec<f64> = text
            .split_whitespace()
            .map(|n| n.parse().expect("a number"))
            .collect();
        // Zeros at the end are not written.
        numbers.resize(9, 0.0);
        numbers
    };
    let totals = written.lines().find_map(|l| l.strip_prefix("totals: "));
    let mut found = Counted {
        all: numbers(totals.expect("callgrind writes totals")),
        own: [0.0; 3],
        called: vec![],
    };
    let program = std::env::current_exe().expect("this program");
    // A name is written once, and its number from then on.
    let mut names: HashMap<(bool, String), String> = HashMap::new();
    let mut name = |is_object: bool, text: &str| {
        let (number, rest) = text.split_once(' ').unwrap_or((text, ""));
        let known = names.entry((is_object, number.to_string()));
        known.or_insert_with(|| rest.to_string()).clone()
    };
    let (mut object, mut function, mut of_call) = (String::new(), String::new(), false);
    for line in written.lines() {
        let part = |key: &str| line.strip_prefix(key);
        if let Some(text) = part("ob=") {
            object = name(true, text);
        } else if let Some(text) = part("fn=") {
            function = name(false, text);
        } else if let Some(text) = part("cob=") {
            name(true, text);
        } else if let Some(text) = part("cfn=") {
            name(false, text);
        } else if line.starts_with("calls=") {
            of_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            // The line after a call has what the called function counts for itself.
            if !std::mem::take(&mut of_call) {
                let counts = numbers(line.split_once(' ').map_or("", |(_, counts)| counts));
                if object == "???" {
                    found
                        .own
                        .iter_mut()
                        .zip(&counts)
                        .for_each(|(sum, n)| *sum += n);
                } else if Path::new(&object) != program {
                    let name = format!("{function} of {object}");
                    found.called.push((name, counts[0]));
                }
            }
        }
    }
    found
}
