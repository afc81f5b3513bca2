//! Whole models as executables, here and in an emulator.

use super::errors::says;
use super::program::{OP, Sandbox, place};
use ir::{Isa, Target};
use simulate::Emulator;
use std::process::{Command, Output};
use tempfile::tempdir;
use tensor::{Tensor, read_npy_file, write_npy_file};

/// A convolution with a border.
const MODEL: &str = "op:conv2d(c=8,h=14,w=14,k=16,r=3,s=3,pad=1)";

const SMALL: [&str; 2] = [MODEL, OP];

/// Has the program compare executables of models with the reference operators.
fn checks(isa: Isa, models: &[&str]) {
    let target = Target::generic(isa);
    if !testkit::host::runs(&target)
        && let Err(why) = Emulator::find(&target)
    {
        return testkit::host::skipped(&why.to_string());
    }
    let folder = tempdir().unwrap();
    let p = place(&folder);
    for model in models {
        let ask = ["check", model, "--defaults", "--executable", "--target"];
        let report = p.json(&[&ask[..], &[isa.name()]].concat());
        assert_eq!(report["ok"], true, "{model}: {report}");
        assert_eq!(report["layers"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn executables_of_x86_give_what_the_model_gives() {
    checks(Isa::X86Avx2, &SMALL);
}

#[test]
fn executables_of_aarch64_give_what_the_model_gives() {
    checks(Isa::AArch64Neon, &SMALL);
}

#[test]
fn executables_of_riscv_give_what_the_model_gives() {
    checks(Isa::RiscV64Gc, &SMALL);
    checks(Isa::RiscV64Rvv, &SMALL);
}

#[test]
fn whole_models_for_aarch64_give_what_the_reference_gives() {
    let models = ["squeezenet1.1", "mobilenet-v1", "mobilenet-v2"];
    checks(Isa::AArch64Neon, &models);
}

#[test]
fn a_whole_model_for_riscv_gives_what_the_reference_gives() {
    checks(Isa::RiscV64Rvv, &["squeezenet1.1"]);
}

#[test]
#[ignore = "long: QEMU takes a minute for the vectors of two models"]
fn further_models_for_riscv_give_what_the_reference_gives() {
    checks(Isa::RiscV64Rvv, &["mobilenet-v1", "mobilenet-v2"]);
    checks(Isa::RiscV64Gc, &["squeezenet1.1"]);
}

/// An executable of a small model for this machine.
fn compiled(p: &Sandbox) {
    let ask = ["compile", OP, "--defaults", "--emit", "executable"];
    let written = p.json(&[&ask[..], &["--out", "model"]].concat());
    assert_eq!(written["threads"], 1);
    let bytes = std::fs::metadata(p.folder.join("model")).unwrap().len();
    assert_eq!(written["bytes"], bytes);
}

fn run(p: &Sandbox, args: &[&str]) -> Output {
    let mut c = Command::new(p.folder.join("model"));
    c.current_dir(&p.folder).args(args).output().unwrap()
}

fn refused(p: &Sandbox, args: &[&str], code: i32) -> String {
    let out = run(p, args);
    assert_eq!(out.status.code(), Some(code), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

#[test]
fn an_executable_reads_arrays_or_bytes_and_writes_arrays() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    compiled(&p);
    let values: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
    let x = Tensor::from_slice(&[4, 16], &values);
    write_npy_file(&p.folder.join("x.npy"), &x).unwrap();
    std::fs::write(p.folder.join("x.bin"), x.bytes()).unwrap();
    // Writers pad headers as they like.
    let dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 16), }";
    let dictionary = format!("{dictionary:<127}\n");
    let start: &[u8] = b"\x93NUMPY\x01\x00\x80\x00";
    let padded = [start, dictionary.as_bytes(), x.bytes()];
    std::fs::write(p.folder.join("padded.npy"), padded.concat()).unwrap();
    let mut found = Vec::new();
    for input in ["x.npy", "x.bin", "padded.npy"] {
        let out = run(&p, &[input, "y.npy"]);
        assert!(out.status.success(), "{out:?}");
        found.push(read_npy_file(&p.folder.join("y.npy")).unwrap());
    }
    assert_eq!(found[0].shape(), [4, 32]);
    assert!(found[0].as_slice::<f32>().iter().any(|v| *v != 0.0));
    let others = &found[1..];
    assert!(others.iter().all(|y| y.bytes() == found[0].bytes()));
}

#[test]
fn an_executable_says_what_it_takes() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    compiled(&p);
    for args in [&[][..], &["x.npy"], &["--bench"], &["--bench", "no"]] {
        let usage = refused(&p, args, 2);
        assert!(usage.contains("input") && usage.contains("f32 [4, 16]"));
    }
    let missing = refused(&p, &["none.npy", "y.npy"], 1);
    assert_eq!(missing, "none.npy cannot be opened\n");
    let turned = Tensor::from_slice(&[16, 4], &[0f32; 64]);
    write_npy_file(&p.folder.join("turned.npy"), &turned).unwrap();
    std::fs::write(p.folder.join("short"), [0; 255]).unwrap();
    for file in ["turned.npy", "short"] {
        let other = refused(&p, &[file, "y.npy"], 1);
        for part in [file, "'shape': (4, 16)", "256 bytes"] {
            assert!(other.contains(part), "{other}");
        }
    }
    assert!(!p.folder.join("y.npy").exists());
}

#[test]
fn an_executable_prints_the_times_of_inferences() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    compiled(&p);
    std::fs::write(p.folder.join("x.bin"), [0; 256]).unwrap();
    for args in [&["--bench", "5"][..], &["--bench", "5", "x.bin"]] {
        let out = run(&p, args);
        let text = String::from_utf8(out.stdout).unwrap();
        let times: Vec<u64> = text.lines().map(|l| l.parse().unwrap()).collect();
        assert!(times.len() == 5 && times.iter().all(|t| *t > 0), "{text}");
    }
}

#[test]
fn what_an_executable_cannot_have_is_refused() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    compiled(&p);
    let ask = ["compile", OP, "--defaults", "--emit", "executable"];
    let again = p.error(&[&ask[..], &["--out", "model"]].concat());
    assert!(again.contains("not replaced"), "{again}");
    let threads = p.error(&[&ask[..], &["--threads", "2", "--out", "m"]].concat());
    assert!(threads.contains("one thread"), "{threads}");
    p.ok(&["models", "export", OP, "model.onnx"]);
    let ask = ["compile", "model.onnx", "--emit", "executable"];
    let variants = p.error(&[&ask[..], &["--batch", "4,8", "--out", "m"]].concat());
    assert!(variants.contains("one variant"), "{variants}");
    let wide = ["check", OP, "--target", "x86-avx512", "--executable"];
    if !testkit::host::runs(&Target::generic(Isa::X86Avx512)) {
        assert!(p.error(&wide).contains("AVX-512"));
    }
}

#[test]
fn a_c_program_calls_a_model_that_is_linked_into_it() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let (op, threads) = ("op:conv2d(c=4,h=6,w=6,k=8,r=3,s=3)", "1");
    p.ok(&[
        "compile",
        op,
        "--defaults",
        "--out",
        "net.tsm",
        "--threads",
        threads,
    ]);
    p.ok(&["compile", op, "--defaults", "--emit", "c", "--out", "net.o"]);
    let header = std::fs::read_to_string(folder.path().join("net.h")).unwrap();
    assert!(header.contains("float [1, 4, 6, 6], 576 bytes"), "{header}");
    let input: Vec<f32> = (0..144).map(|i| (i % 13) as f32 - 6.0).collect();
    let input = Tensor::from_slice(&[1, 4, 6, 6], &input);
    std::fs::write(folder.path().join("x.bin"), input.bytes()).unwrap();
    write_npy_file(&folder.path().join("x.npy"), &input).unwrap();
    let program = "
        #include <stdio.h>
        #include \"net.h\"
        static float x[144], y[1000], z[1000];
        int main(void) {
            const void *inputs[] = {x};
            void *outputs[] = {y};
            if (fread(x, 4, 144, stdin) != 144) return 1;
            if (net_run(inputs, outputs)) return 2;
            for (int i = 0; i < 144; i++) ((float *)net_input(0))[i] = x[i];
            if (net_invoke()) return 3;
            const float *z = net_output(0);
            for (int i = 0; i < COUNT; i++) if (y[i] != z[i]) return 4;
            return fwrite(y, 4, COUNT, stdout) != COUNT;
        }";
    let name = p.json(&["info", "net.tsm"])["inputs"][0]["name"].clone();
    let given = format!("{}=x.npy", name.as_str().unwrap());
    p.ok(&["run", "net.tsm", "--input", &given, "--out", "y.npy"]);
    let y = read_npy_file(&folder.path().join("y.npy")).unwrap();
    let program = program
        .replace("COUNT", &y.len().to_string())
        .replace(", z[1000]", "");
    std::fs::write(folder.path().join("main.c"), program).unwrap();
    let linked = "cc -Wall -Werror main.c net.o -o main && ./main < x.bin > y.bin";
    let mut c = std::process::Command::new("sh");
    let out = c
        .args(["-c", linked])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    assert_eq!(
        std::fs::read(folder.path().join("y.bin")).unwrap(),
        y.bytes()
    );
    // Neither is replaced, and what has no C form is named.
    says(
        &p.error(&["compile", op, "--emit", "c", "--out", "net.o"]),
        &["net.h is not replaced"],
    );
    says(
        &p.error(&[
            "compile",
            op,
            "--emit",
            "c",
            "--out",
            "other.o",
            "--cc",
            "no-such-compiler",
        ]),
        &["cannot start the C compiler no-such-compiler", "--cc"],
    );
}
