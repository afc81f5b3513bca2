//! Programs in C and C++ that run a compiled model, linked as a user links them, and `tunesmith-run`.

#[path = "../../runtime/tests/c_object/mod.rs"]
mod c_object;

use c_object::{built, param};
use runtime::{BoundKernel, KernelTarget, ModelBuilder, ParamRole, Pool};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use tempfile::{TempDir, tempdir};
use tensor::{DType, read_npy_file};

/// What a program that is linked with the static library needs besides.
const LIBRARIES: [&str; 5] = ["-lpthread", "-ldl", "-lm", "-lrt", "-lgcc_s"];

/// A model `scores` that doubles its five elements, in a file.
fn model(folder: &TempDir) -> PathBuf {
    let source = "
    int kernel(const Ctx *ctx, void *const *args, void *workspace) {
        const float *x = args[0];
        float *y = args[1];
        for (long i = 0; i < 5; i++) y[i] = 2 * x[i];
        return 0;
    }";
    let params = vec![
        param("x", ParamRole::Input, &[5]),
        param("y", ParamRole::Output, &[5]),
    ];
    let pool = Arc::new(Pool::new(1).unwrap());
    let mut b = ModelBuilder::new("scores", KernelTarget::generic(), "by hand", pool);
    let kernel = b.add_kernel(built(source, params));
    let x = b.add_input("x", DType::F32, &[5]);
    let y = b.add_tensor("y", DType::F32, &[5]);
    let bind = vec![("x", x), ("y", y)];
    b.add_step("double", &[1], &[BoundKernel { kernel, bind }])
        .unwrap();
    b.mark_output(y);
    let path = folder.path().join("scores.tsm");
    b.finish().unwrap().save(&path).unwrap();
    path
}

/// The folder in which cargo leaves the libraries: that of this test, or the one above.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    let has = |f: &&Path| f.join("libtunesmith_runtime.a").exists();
    let mut found = folders.filter(has);
    found
        .next()
        .expect("cargo builds the static library")
        .to_path_buf()
}

fn linked(folder: &TempDir, compiler: &str, source: &str, shared: bool) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (libraries, program) = (libraries(), folder.path().join("program"));
    let mut c = Command::new(compiler);
    c.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(root.join("include"))
        .arg(root.join("examples").join(source))
        .arg("-o")
        .arg(&program);
    match shared {
        true => {
            let rpath = format!("-Wl,-rpath,{}", libraries.display());
            c.arg("-L")
                .arg(&libraries)
                .args(["-ltunesmith_runtime", &rpath])
        }
        false => c.arg(libraries.join("libtunesmith_runtime.a")),
    };
    let out = c
        .args(LIBRARIES)
        .output()
        .expect("the compiler that Rust links with");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    program
}

fn said(out: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_c_program_runs_a_model_and_says_what_is_wrong() {
    let folder = tempdir().unwrap();
    let model = model(&folder);
    let image = folder.path().join("image.f32");
    let elements = [1.0f32, -2.0, 7.5, 0.0, 3.0];
    std::fs::write(&image, elements.map(f32::to_le_bytes).concat()).unwrap();
    for shared in [false, true] {
        let program = linked(&folder, "cc", "classify.c", shared);
        let out = Command::new(&program)
            .arg(&model)
            .arg(&image)
            .output()
            .unwrap();
        assert!(out.status.success(), "{:?}", said(&out));
        assert_eq!(said(&out).0, "scores: class 2 of 5, score 15\n");
        let missing = Command::new(&program)
            .arg("no.tsm")
            .arg(&image)
            .output()
            .unwrap();
        assert!(
            said(&missing).1.contains("cannot read no.tsm"),
            "{:?}",
            said(&missing)
        );
        let foreign = Command::new(&program)
            .arg(&image)
            .arg(&image)
            .output()
            .unwrap();
        assert!(
            said(&foreign).1.contains("is not a compiled model"),
            "{:?}",
            said(&foreign)
        );
    }
}

#[test]
fn a_cpp_program_runs_two_models_at_once() {
    let folder = tempdir().unwrap();
    let model = model(&folder);
    let program = linked(&folder, "c++", "two_threads.cpp", false);
    let out = Command::new(&program).arg(&model).output().unwrap();
    assert_eq!(said(&out).0, "equal\n", "{:?}", said(&out));
}

#[test]
fn the_runner_describes_runs_and_measures() {
    let folder = tempdir().unwrap();
    let model = model(&folder);
    let run = |args: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_tunesmith-run"));
        said(&c.args(args).current_dir(folder.path()).output().unwrap())
    };
    let file = model.to_str().unwrap();
    assert!(run(&["info", file]).0.contains("input x f32 [5]"));
    let (printed, _) = run(&["run", file, "--out", "outputs"]);
    assert!(printed.contains("y f32 [5]: "), "{printed}");
    let y = read_npy_file(&folder.path().join("outputs/y.npy")).unwrap();
    let again = run(&["run", file, "--input", "x=outputs/y.npy", "--out", "twice"]);
    let twice = read_npy_file(&folder.path().join("twice/y.npy")).unwrap();
    assert_eq!(twice.get_f64(3), 2.0 * y.get_f64(3), "{again:?}");
    assert!(run(&["bench", file, "--time", "0.01"]).0.contains("p99"));
    for (args, why) in [
        (&["bench"][..], "1 words are given"),
        (&["dance", file], "there is no command `dance`"),
        (&["info", file, "--treads", "2"], "--treads"),
        (&["run", file, "--input", "z=outputs/y.npy"], "no input `z`"),
    ] {
        let said = run(args).1;
        assert!(said.starts_with("error: ") && said.contains(why), "{said}");
    }
}
