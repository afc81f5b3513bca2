//! Programs in C and C++ that run a compiled model, linked as a user links them, and `tunesmith-run`.

#[path = "../../runtime/tests/c_object/mod.rs"]
mod c_object;

use c_object::{built, param};
use runtime::{BoundKernel, KernelTarget, ModelBuilder, ParamRole, Pool};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use tempfile::{TempDir, tempdir};
use tensor::{DType, Tensor, read_npy_file, write_npy_file};

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
fn the_c_program_of_the_page_works() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/howto/deploy.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```c\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    // The memory of the results is the model's.
    let (lines, freed) = block.split_once("tunesmith_free").unwrap();
    let program = format!(
        "#include <stdio.h>\n#include <string.h>\n#include \"tunesmith_runtime.h\"\n\
         int main(void) {{\n\
         float image[5] = {{1, 2, 3, 4, 5}};\nsize_t bytes = sizeof image;\n\
         {lines}printf(\"%g\\n\", scores[4]);\ntunesmith_free{freed}return 0;\n}}\n"
    );
    let folder = tempdir().unwrap();
    let source = folder.path().join("page.c");
    std::fs::write(&source, program).unwrap();
    std::fs::rename(model(&folder), folder.path().join("model.tsm")).unwrap();
    let program = linked(&folder, "cc", source.to_str().unwrap(), false);
    let out = Command::new(&program).current_dir(folder.path()).output();
    let out = out.unwrap();
    assert!(out.status.success(), "{:?}", said(&out));
    assert_eq!(said(&out).0, "10\n");
}

/// The page shows lines of an example, which cargo builds.
#[test]
fn the_rust_program_of_the_page_is_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let page = read("docs/howto/deploy.md");
    let example = read("crates/runtime/examples/run_model.rs");
    let (_, rest) = page.split_once("```rust\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let missing: Vec<&str> = block
        .lines()
        .filter(|line| !example.contains(line.trim()))
        .collect();
    assert!(
        block.lines().count() > 3 && missing.is_empty(),
        "{missing:?}"
    );
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
fn a_c_program_chooses_among_its_own_routines_and_starts_decided() {
    let folder = tempdir().unwrap();
    let program = linked(&folder, "cc", "select.c", false);
    let decisions = folder.path().join("decisions");
    let run = || {
        let out = Command::new(&program).arg(&decisions).output().unwrap();
        assert!(out.status.success(), "{:?}", said(&out));
        said(&out).0
    };
    let first = run();
    assert!(first.starts_with("deciding anew\n"), "{first}");
    for fact in [
        r#""key": "4096", "decided": "once", "known": false"#,
        r#"{"name": "not at all", "status": "failed", "samples": 0,"#,
    ] {
        assert!(first.contains(fact), "{first}");
    }
    let second = run();
    assert!(
        second.contains(r#""decided": "once", "known": true"#),
        "{second}"
    );
    std::fs::write(&decisions, "something else\n").unwrap();
    assert!(run().starts_with("deciding anew\n"));
}

/// What C gets wrong is an error with a text.
#[test]
fn a_selector_says_what_is_wrong() {
    use std::ptr::{null, null_mut};
    use tunesmith_runtime::*;
    let says = |status, words: &str| {
        // SAFETY: the text holds until the next failure in this thread.
        let text = unsafe { std::ffi::CStr::from_ptr(tunesmith_error()) };
        assert!(
            status == 1 && text.to_str().unwrap().contains(words),
            "{text:?}"
        );
    };
    let names = [c"a".as_ptr(), c"a".as_ptr(), c"b".as_ptr()];
    let mut selector = null_mut();
    let (mut call, mut at) = (null_mut(), 0);
    // SAFETY: pointers are null or of the kinds that the functions take, and each handle is freed once.
    unsafe {
        let mut new = |names: &[_], name| {
            let (names, count) = (names.as_ptr(), names.len());
            tunesmith_selector_new(name, names, count, null(), &mut selector)
        };
        says(
            new(&names[..2], c"s".as_ptr()),
            "two alternatives are called `a`",
        );
        says(new(&[], c"s".as_ptr()), "no alternatives");
        says(
            new(&names[1..], null()),
            "the name of the selector is a null",
        );
        assert_eq!(new(&names[1..], c"s".as_ptr()), 0);
        let mut begin = |s, key| tunesmith_selector_begin(s, key, &mut call, &mut at);
        says(begin(selector, null()), "the key is a null pointer");
        says(
            begin(null_mut(), c"k".as_ptr()),
            "the selector is a null pointer",
        );
        assert_eq!(begin(selector, c"k".as_ptr()), 0);
        assert_eq!(at, 0);
        says(tunesmith_selector_end(selector, call, 7), "no outcome 7");
        says(
            tunesmith_selector_end(selector, null_mut(), 0),
            "the call is a null",
        );
        let handles = (selector as usize, call as usize);
        let elsewhere = std::thread::spawn(move || {
            says(
                tunesmith_selector_end(handles.0 as *const _, handles.1 as *mut _, 0),
                "another thread began this call",
            );
        });
        elsewhere.join().unwrap();
        assert_eq!(tunesmith_selector_end(selector, call, 2), 0);
        tunesmith_selector_free(selector);
    }
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
    // A file's name may hold the sign that ends the name of the input.
    std::fs::rename(
        folder.path().join("outputs/y.npy"),
        folder.path().join("outputs/a=b.npy"),
    )
    .unwrap();
    let (printed, _) = run(&["run", file, "--input", "x=outputs/a=b.npy"]);
    assert!(printed.contains("y f32 [5]: "), "{printed}");
    let odd = Tensor::from_slice(&[5], &[1.0f32, f32::INFINITY, -2.0, f32::NAN, 0.5]);
    write_npy_file(&folder.path().join("odd.npy"), &odd).unwrap();
    let (printed, _) = run(&["run", file, "--input", "x=odd.npy"]);
    assert!(printed.contains("-4 to 2, 2 not finite"), "{printed}");
    assert!(run(&["bench", file, "--time", "0.01"]).0.contains("p99"));
    for (args, why) in [
        (&["bench"][..], "1 words are given"),
        (&["dance", file], "there is no command `dance`"),
        (&["info", file, "--treads", "2"], "--treads"),
        (
            &["run", file, "--input", "z=outputs/a=b.npy"],
            "no input `z`",
        ),
    ] {
        let said = run(args).1;
        assert!(said.starts_with("error: ") && said.contains(why), "{said}");
    }
}
