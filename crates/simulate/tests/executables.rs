//! Executables of several kernels against the interpreter, and against the same schedules as code that is loaded here.

#[allow(dead_code, reason = "not every test uses all")]
#[path = "../../analysis/tests/support/mod.rs"]
mod programs;
mod support;

use ir::{DType, Isa, Program, Target};
use llvm::Compiler;
use programs::{compiled, convolution, operator, product, traces};
use runtime::{BuiltKernel, Ctx, KernelParam, KernelTarget, LoadedCode, ParamRole};
use simulate::{Emulator, Runner, contents, output};
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{kernel as kernel_of, write};
use tensor::Tensor;

const LIMIT: Duration = Duration::from_secs(60);

/// Which of the traces are run.
const EVERY: usize = 4;

/// Operators of several families.
const OPERATORS: &[&str] = &[
    "op:conv2d(c=8,h=14,w=14,k=8)",
    "op:depthwise_conv2d(c=8,h=14,w=14)",
    "op:conv2d_transpose(c=4,h=7,w=7,k=4)",
    "op:matmul(m=32,n=48,k=64)",
    "op:max_pool2d(c=4,h=14,w=14)",
    "op:avg_pool2d(c=4,h=14,w=14)",
    "op:softmax(rows=16,cols=100)",
];

/// The arguments that an executable has; outputs hold zeros.
fn arguments(kernel: &BuiltKernel) -> Vec<Tensor> {
    let one = |(number, p): (usize, &KernelParam)| {
        let elements = p.shape[0] as usize;
        match p.role {
            ParamRole::Output => Tensor::zeros(p.dtype, &[elements]),
            _ => contents(p.dtype, number, elements),
        }
    };
    kernel.params.iter().enumerate().map(one).collect()
}

/// The outputs of a kernel of this machine that is loaded and called.
fn loaded(kernel: &BuiltKernel) -> Vec<Tensor> {
    let code = LoadedCode::load(&kernel.code).expect("it loads");
    let call = code.kernel(&kernel.entry).expect("the entry");
    let mut arguments = arguments(kernel);
    let pointers: Vec<*mut c_void> = arguments
        .iter_mut()
        .map(|t| t.bytes_mut().as_mut_ptr().cast())
        .collect();
    let mut workspace = tensor::AlignedBytes::zeroed(kernel.workspace_size(1) as usize);
    // SAFETY: the arguments are those of the kernel's parameters.
    let status = unsafe {
        call(
            &Ctx::serial(),
            pointers.as_ptr(),
            workspace.as_mut_ptr().cast(),
        )
    };
    assert_eq!(status, 0);
    outputs(kernel, arguments)
}

fn outputs(kernel: &BuiltKernel, arguments: Vec<Tensor>) -> Vec<Tensor> {
    let pairs = kernel.params.iter().zip(arguments);
    let outputs = pairs.filter(|(p, _)| p.role == ParamRole::Output);
    outputs.map(|(_, t)| t).collect()
}

/// The outputs by the definition of the scheduled program, if nothing is prepared.
fn interpreted(scheduled: &Program, kernel: &BuiltKernel) -> Option<Vec<Tensor>> {
    if kernel.params.iter().any(|p| p.role == ParamRole::Prepared) {
        return None;
    }
    let shape = |b: &ir::BufferId| -> Vec<usize> {
        let shape = &scheduled.buffer(*b).shape;
        shape.iter().map(|e| *e as usize).collect()
    };
    let shapes = scheduled.params.iter().map(shape);
    let mut arguments: Vec<Tensor> = arguments(kernel)
        .into_iter()
        .zip(shapes)
        .map(|(t, shape)| t.reshaped(&shape))
        .collect();
    ir::interpret::run(scheduled, &mut arguments).expect("the program is right");
    Some(outputs(kernel, arguments))
}

/// What an executable prints, as the kernel's outputs.
fn printed(kernel: &BuiltKernel, mut bytes: &[u8]) -> Vec<Tensor> {
    let written = kernel.params.iter().filter(|p| p.role == ParamRole::Output);
    let tensors = written.map(|p| {
        let (own, rest) = bytes.split_at(p.bytes().expect("a size") as usize);
        bytes = rest;
        Tensor::from_bytes(p.dtype, &[p.shape[0] as usize], own).expect("all bytes")
    });
    let tensors = tensors.collect();
    assert!(bytes.is_empty());
    tensors
}

fn agree(found: &[Tensor], expected: &[Tensor], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        let expected = e.clone().reshaped(f.shape());
        let difference = tensor::compare(f, &expected);
        assert!(difference.within(1e-5), "{what}: {difference:?}");
    }
}

/// Runs executables of all kernels by a command, and compares what they print.
fn check(target: &Target, host: Option<&Target>, command: &dyn Fn(&Path) -> Command) {
    let folder = tempfile::tempdir().expect("a folder");
    let runner = Runner::new(target).expect("a known target");
    let mut programs = vec![product(24, 24, 24), convolution(4, 4, 8)];
    programs.extend(OPERATORS.iter().flat_map(|spec| operator(spec, target)));
    let (mut ran, mut compared) = (0, 0);
    for program in &programs {
        for trace in traces(program, target, 1).into_iter().step_by(EVERY) {
            let scheduled = schedule::replay(program, &trace).expect("a legal trace");
            let (code, object) = compiled(&scheduled, target);
            let kernel = kernel_of(&code, target, object);
            let bytes = runner.executable(&kernel, 3).expect("an executable");
            let file = folder.path().join("executable");
            write(&file, &bytes);
            let out = output(command(&file), LIMIT).expect("it runs");
            let found = printed(&kernel, &out);
            ran += 1;
            let interpreted = interpreted(&scheduled, &kernel);
            if let Some(expected) = &interpreted {
                agree(&found, expected, &program.name);
            }
            let here = host.map(|host| {
                let (code, object) = compiled(&scheduled, host);
                loaded(&kernel_of(&code, host, object))
            });
            if let Some(expected) = &here {
                agree(&found, expected, &program.name);
            }
            compared += usize::from(interpreted.is_some() || here.is_some());
            assert!(
                found.iter().any(|t| t.bytes().iter().any(|b| *b != 0)),
                "{} writes nothing",
                program.name
            );
        }
    }
    println!("{}: {ran} ran, {compared} compared", target.name());
    assert!(ran >= 15 && compared > 5);
}

/// The family that this machine's loaded code is of.
fn host() -> Option<Target> {
    let target = Target::generic(Isa::X86Avx2);
    testkit::host::runs(&target).then_some(target)
}

fn emulated(isa: Isa) {
    let target = Target::generic(isa);
    match Emulator::find(&target) {
        Ok(emulator) => {
            let run = |file: &Path| emulator.command(&[], file);
            check(&target, host().as_ref(), &run);
        }
        Err(error) => testkit::host::skipped(&error.to_string()),
    }
}

#[test]
fn executables_run_here() {
    for isa in [Isa::X86Sse2, Isa::X86Avx2] {
        let target = Target::generic(isa);
        if testkit::host::runs(&target) {
            check(&target, Some(&target), &|file| Command::new(file));
        }
    }
}

#[test]
fn executables_of_aarch64_run_in_the_emulator() {
    emulated(Isa::AArch64Neon);
}

#[test]
fn executables_of_riscv_run_in_the_emulator() {
    emulated(Isa::RiscV64Gc);
    emulated(Isa::RiscV64Rvv);
}

/// A kernel by hand, for any target.
fn everything(target: &Target) -> BuiltKernel {
    let compiler = Compiler::new(target).expect("a known target");
    let object = compiler.compile_text("everything", include_str!("everything.ll"));
    let param = |name: &str, role| KernelParam {
        name: name.into(),
        dtype: DType::I64,
        shape: vec![64],
        role,
    };
    let params = vec![
        param("in", ParamRole::Input),
        param("out", ParamRole::Output),
    ];
    let by_hand = BuiltKernel::by_hand(object.expect("it compiles"), params);
    BuiltKernel {
        target: KernelTarget {
            triple: target.triple().into(),
            ..KernelTarget::generic()
        },
        ..by_hand
    }
}

#[test]
fn code_refers_to_code_and_constants_in_every_way() {
    let Some(host) = host() else {
        return testkit::host::skipped("this machine has no AVX2");
    };
    let expected = loaded(&everything(&host));
    let values = expected[0].as_slice::<i64>();
    assert_eq!(values[26..28], [2 * 3 * 14, 9000]);
    let jumps = [14, 169, 29, 1, 104, -6, 39, 39];
    assert_eq!(values[30..38], jumps);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("executable");
    for isa in Isa::ALL {
        let target = Target::generic(isa);
        let kernel = everything(&target);
        let runner = Runner::new(&target).expect("a known target");
        write(
            &file,
            &runner.executable(&kernel, 1).expect("an executable"),
        );
        let command = match (testkit::host::runs(&target), Emulator::find(&target)) {
            (true, _) => Command::new(&file),
            (false, Ok(emulator)) if isa != Isa::X86Avx512 => emulator.command(&[], &file),
            (false, Ok(_)) => continue,
            (false, Err(error)) => {
                testkit::host::skipped_in_part(&error.to_string());
                continue;
            }
        };
        let out = output(command, LIMIT).expect("it runs");
        let found = printed(&kernel, &out);
        assert_eq!(found[0].as_slice::<i64>(), values, "{}", target.name());
    }
}

#[test]
fn damaged_objects_are_refused_or_linked_without_harm() {
    for isa in [Isa::AArch64Neon, Isa::RiscV64Gc, Isa::RiscV64Rvv] {
        let target = Target::generic(isa);
        let runner = Runner::new(&target).expect("a known target");
        let mut kernel = everything(&target);
        let (mut linked, mut refused) = (0, 0);
        for at in 0..kernel.code.len() {
            for flip in [0x01, 0x80, 0xff] {
                kernel.code[at] ^= flip;
                match runner.executable(&kernel, 1) {
                    Ok(_) => linked += 1,
                    Err(_) => refused += 1,
                }
                kernel.code[at] ^= flip;
            }
        }
        assert!(linked > 1000 && refused > 1000, "{linked} {refused}");
    }
}

#[test]
fn an_argument_makes_them_print_times() {
    let target = Target::generic(Isa::X86Sse2);
    if !testkit::host::runs(&target) {
        return;
    }
    let program = product(24, 24, 24);
    let trace = &traces(&program, &target, 0)[0];
    let scheduled = schedule::replay(&program, trace).expect("a legal trace");
    let (code, object) = compiled(&scheduled, &target);
    let kernel = kernel_of(&code, &target, object);
    let runner = Runner::new(&target).expect("a known target");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("executable");
    write(
        &file,
        &runner.executable(&kernel, 7).expect("an executable"),
    );
    let mut command = Command::new(&file);
    command.arg("time");
    let out = String::from_utf8(output(command, LIMIT).expect("it runs")).expect("text");
    let times: Vec<u64> = out.lines().map(|l| l.parse().expect("a number")).collect();
    assert!(times.len() == 7 && times.iter().all(|t| *t > 0), "{out}");
}

#[test]
fn kernels_of_other_targets_and_without_entry_are_refused() {
    let target = Target::generic(Isa::AArch64Neon);
    let program = product(8, 8, 8);
    let (code, object) = compiled(&program, &target);
    let mut kernel = kernel_of(&code, &target, object);
    let other = Runner::new(&Target::generic(Isa::RiscV64Rvv)).expect("a known target");
    let refused =
        |r: &Runner, k: &BuiltKernel| r.executable(k, 1).expect_err("it is refused").to_string();
    assert!(refused(&other, &kernel).contains("aarch64-unknown-linux-gnu"));
    let own = Runner::new(&target).expect("a known target");
    kernel.params[0].shape = vec![1 << 40];
    assert!(refused(&own, &kernel).contains("64 GiB"));
    kernel.params[0].shape = vec![64];
    kernel.entry = "other".into();
    assert!(refused(&own, &kernel).contains("other"));
}

#[test]
fn a_program_that_does_not_end_is_stopped() {
    let mut command = Command::new("sleep");
    command.arg("60");
    let error = output(command, Duration::from_millis(50)).expect_err("it is stopped");
    assert!(matches!(error, simulate::EmulatorError::TimedOut(_)));
}
