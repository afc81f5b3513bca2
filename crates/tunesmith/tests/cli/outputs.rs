//! What a command may replace, and what it leaves as it is.

use super::errors::says;
use super::program::{OP, Sandbox, place, tuned};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tempfile::{TempDir, tempdir};
use tensor::{Tensor, write_npy_file};

/// All that commands read and write, and a command that writes each kind of file.
struct Files {
    folder: TempDir,
    p: Sandbox,
}

impl Files {
    fn new() -> Files {
        let folder = tempdir().unwrap();
        let p = place(&folder);
        p.ok(&["models", "export", OP, "model.onnx"]);
        let copy = |from: &str, to: &str| std::fs::copy(from, p.file(to)).unwrap();
        copy(&tuned().store, "store.sqlite");
        copy(&tuned().artifact, "model.tsm");
        let x = Tensor::from_slice(&[4, 16], &[0f32; 64]);
        write_npy_file(&folder.path().join("x.npy"), &x).unwrap();
        Files { folder, p }
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join(name)).unwrap()
    }

    /// Every command that writes a file, with `to` for its name.
    fn writers<'a>(&self, to: &'a str) -> Vec<Vec<&'a str>> {
        let store = ["--store", "store.sqlite"];
        let tune = [
            "tune",
            "model.onnx",
            "--threads",
            "1",
            "--trials",
            "1",
            "--out",
            to,
        ];
        let compile = ["compile", "model.onnx", "--out", to];
        let run = ["run", "model.tsm", "--input", "x=x.npy", "--out", to];
        vec![
            [&tune[..], &store].concat(),
            [&compile[..], &store].concat(),
            run.to_vec(),
            vec!["models", "export", OP, to],
            [&["records", "export", to][..], &store].concat(),
            [&["records", "t4", to][..], &store].concat(),
        ]
    }

    /// The command refuses this target, and leaves it as it is.
    fn keeps(&self, args: &[&str], target: &str, words: &[&str]) {
        let before = self.bytes(target);
        let error = self.p.error(args);
        says(&error, words);
        says(&error, &["help:"]);
        assert_eq!(self.bytes(target), before, "{args:?}");
    }

    /// Nothing temporary is left.
    fn tidy(&self) {
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.ends_with(".tmp"), "{name}");
        }
    }
}

#[test]
fn models_and_stores_are_never_replaced() {
    let f = Files::new();
    for target in ["model.onnx", "store.sqlite"] {
        for args in f.writers(target) {
            // A name without .npy is a folder.
            if args[0] != "run" {
                f.keeps(&args, target, &[target, "not replaced"]);
            }
        }
    }
    // Of another command, and under a name that is an array's.
    std::fs::copy(f.p.file("store.sqlite"), f.p.file("other.npy")).unwrap();
    for args in f.writers("other.npy") {
        f.keeps(&args, "other.npy", &["other.npy", "not replaced"]);
    }
    f.keeps(
        &["compile", "model.onnx", "--out", "store.sqlite"],
        "store.sqlite",
        &["a tuning store"],
    );
    f.tidy();
}

#[test]
fn inputs_are_not_replaced_under_any_name() {
    let f = Files::new();
    let run = ["run", "model.tsm", "--input", "x=x.npy", "--out"];
    std::fs::create_dir(f.folder.path().join("sub")).unwrap();
    symlink("x.npy", f.folder.path().join("link.npy")).unwrap();
    std::fs::hard_link(f.p.file("x.npy"), f.p.file("hard.npy")).unwrap();
    let whole = f.p.file("sub/../x.npy");
    for name in ["x.npy", "./x.npy", "link.npy", "hard.npy", &whole] {
        f.keeps(&[&run[..], &[name]].concat(), name, &["an input"]);
    }
    // In a folder the file is named for the output.
    std::fs::rename(f.p.file("x.npy"), f.p.file("sub/y.npy")).unwrap();
    let run = ["run", "model.tsm", "--input", "x=sub/y.npy", "--out", "sub"];
    f.keeps(&run, "sub/y.npy", &["sub/y.npy", "an input"]);
    let fixed = ["--const", "x=sub/y.npy", "--out", "sub/y.npy"];
    let compile = [&["compile", "model.onnx"][..], &fixed].concat();
    f.keeps(&compile, "sub/y.npy", &["not replaced"]);
}

#[test]
fn the_parts_of_a_store_are_no_outputs_though_they_are_not_there() {
    let f = Files::new();
    let mut names = vec!["new.sqlite".to_string()];
    for part in ["-wal", "-shm", "-journal"] {
        names.push(format!("new.sqlite{part}"));
        let other = format!("store.sqlite{part}");
        let error = f.p.error(&["compile", OP, "--defaults", "--out", &other]);
        says(&error, &[&other, "a part of the database"]);
        assert!(!Path::new(&f.p.file(&other)).exists());
    }
    for name in &names {
        let tune = ["tune", OP, "--store", "new.sqlite", "--out", name];
        says(&f.p.error(&tune), &["not replaced", "its store"]);
        assert!(!f.bytes("new.sqlite").starts_with(b"\x89TSM"));
    }
}

#[test]
fn what_is_no_regular_file_is_no_output() {
    let f = Files::new();
    let pipe = std::ffi::CString::new(f.p.file("pipe.npy")).unwrap();
    // SAFETY: a path that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    std::fs::create_dir(f.folder.path().join("folder")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(f.p.file("socket.npy")).unwrap();
    symlink("/dev/null", f.folder.path().join("null.npy")).unwrap();
    symlink("nowhere", f.folder.path().join("broken.npy")).unwrap();
    for (target, what) in [
        ("pipe.npy", "a pipe"),
        ("folder", "a folder"),
        ("socket.npy", "a socket"),
        ("null.npy", "a device"),
        ("broken.npy", "a link to nothing"),
        ("none/y.npy", "none"),
    ] {
        for args in f.writers(target) {
            // For outputs any folder will do.
            if (args[0], target) != ("run", "folder") {
                says(&f.p.error(&args), &["cannot write", target, what, "help:"]);
            }
        }
    }
    assert!(f.folder.path().join("broken.npy").is_symlink());
    says(
        &f.p.error(&["compile", OP, "--out", "/dev/full"]),
        &["/dev/full", "a device"],
    );
    // Standard output is a pipe here, of which only text is made.
    for args in &f.writers("/dev/stdout")[..4] {
        if args[0] != "run" {
            says(&f.p.error(args), &["/dev/stdout", "it is a pipe", "help:"]);
        }
    }
}

#[test]
fn other_files_are_not_replaced_and_earlier_outputs_are() {
    let f = Files::new();
    let kinds = ["a.tsm", "c.tsm", "y.npy", "e.onnx", "e.jsonl", "t4.json"];
    for (i, to) in kinds.into_iter().enumerate() {
        let args = &f.writers(to)[i];
        std::fs::write(f.p.file(to), "what somebody wrote").unwrap();
        f.keeps(args, to, &[to, "not replaced", "remove"]);
        // As `mktemp` makes one.
        std::fs::write(f.p.file(to), "").unwrap();
        f.p.ok(args);
        assert!(f.bytes(to).len() > 64);
        match to {
            "e.onnx" => f.keeps(args, to, &["there already", "remove"]),
            _ => drop(f.p.ok(args)),
        }
    }
    // The name that nobody gave.
    f.p.ok(&["models", "export", OP, "taken.onnx"]);
    std::fs::write(f.p.file("taken.tsm"), "notes").unwrap();
    for command in ["tune", "compile"] {
        let args = [command, "taken.onnx", "--store", "store.sqlite"];
        f.keeps(&args, "taken.tsm", &["taken.tsm", "not replaced", "--out"]);
    }
    f.tidy();
}

#[test]
fn read_only_outputs_stay_and_others_keep_their_mode() {
    let f = Files::new();
    let allow = |to: &str, mode| {
        std::fs::set_permissions(f.p.file(to), Permissions::from_mode(mode)).unwrap();
    };
    for (i, to) in [
        (1, "c.tsm"),
        (2, "y.npy"),
        (4, "e.jsonl"),
        (5, "t4.json"),
        (3, "e.onnx"),
    ] {
        std::fs::write(f.p.file(to), "").unwrap();
        let args = &f.writers(to)[i];
        allow(to, 0o444);
        f.keeps(args, to, &[to, "not replaced", "read-only"]);
        allow(to, 0o640);
        f.p.ok(args);
        assert!(f.bytes(to).len() > 64);
        let mode = std::fs::metadata(f.p.file(to)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o640, "{to}");
    }
    f.tidy();
}

#[test]
fn the_name_of_a_missing_folder_is_no_files() {
    let f = Files::new();
    for target in ["new/", "new/."] {
        for args in f.writers(target) {
            if args[0] != "run" {
                let error = f.p.error(&args);
                says(&error, &[target, "a folder that is not there", "help:"]);
                assert!(!Path::new(&f.p.file("new")).exists(), "{args:?}");
            }
        }
    }
    // For outputs the folder is made.
    for target in ["new/", "new.npy/"] {
        let summary = f.p.json(&f.writers(target)[2]);
        let file = summary["outputs"][0]["file"].as_str().unwrap();
        assert!(file.starts_with(target) && Path::new(&f.p.file(file)).is_file());
    }
}

#[test]
fn a_summary_says_what_was_written() {
    let f = Files::new();
    let summary = f.p.json(&f.writers("./c.tsm")[1]);
    assert_eq!(summary["artifact"], "./c.tsm");
    assert_eq!(summary["bytes"], f.bytes("c.tsm").len());
}

#[test]
fn a_link_to_an_earlier_output_stays_a_link() {
    let f = Files::new();
    std::fs::write(f.p.file("real.tsm"), "").unwrap();
    symlink("real.tsm", f.folder.path().join("latest.tsm")).unwrap();
    f.p.ok(&["compile", OP, "--defaults", "--out", "latest.tsm"]);
    assert!(f.folder.path().join("latest.tsm").is_symlink());
    assert!(f.bytes("real.tsm").len() > 64);
}

#[test]
fn a_refused_output_costs_no_work() {
    let f = Files::new();
    let tune = ["tune", OP, "--store", "new.sqlite", "--out", "model.onnx"];
    f.keeps(&tune, "model.onnx", &["not replaced"]);
    // Work begins with a run.
    let runs = f.p.json(&["records", "runs", "--store", "new.sqlite"]);
    assert_eq!(runs["runs"], serde_json::json!([]));
}

#[test]
fn a_study_keeps_what_others_wrote() {
    let f = Files::new();
    let op = "op:dense(m=4,n=32,k=16)";
    let study = ["study", "measure", op, "--candidates", "2", "--out"];
    for name in ["study.json", "study.md"] {
        let folder = f.folder.path().join(format!("of-{name}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(name), "what somebody wrote").unwrap();
        let out = format!("of-{name}");
        let target = format!("{out}/{name}");
        f.keeps(
            &[&study[..], &[&out]].concat(),
            &target,
            &[&target, "--out FOLDER"],
        );
    }
}

/// No file grows beyond these bytes, as after `ulimit -f`.
fn limit_files<const BYTES: u64>() -> std::io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: BYTES,
        rlim_max: BYTES,
    };
    // SAFETY: a valid limit structure, and a signal as it is by default.
    unsafe {
        libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
    }
    Ok(())
}

#[test]
fn at_the_limit_of_file_sizes_the_error_names_the_file() {
    let mut f = Files::new();
    f.p.before = Some(limit_files::<128>);
    let earlier: [(&str, &[u8]); 6] = [
        ("", b""),
        ("c.tsm", b"\x89TSM\r\n\x1a\n"),
        ("y.npy", b"\x93NUMPY"),
        ("e.onnx", b""),
        (
            "e.jsonl",
            b"{\"type\":\"header\",\"format\":\"tunesmith-records\"",
        ),
        ("t4.json", b"{\n\"metadata\": {"),
    ];
    for (i, (to, earlier)) in earlier.into_iter().enumerate().skip(1) {
        // Nor can the object cache be written, which is no error.
        let error = f.p.error(&f.writers(to)[i]);
        says(&error, &["cannot write", to, "File too large"]);
        assert!(!Path::new(&f.p.file(to)).exists(), "{to}");
        std::fs::write(f.p.file(to), earlier).unwrap();
        f.keeps(&f.writers(to)[i], to, &["cannot write", to]);
    }
    f.tidy();
    let store = ["--store", "store.sqlite"];
    let new = ["--store", "new.sqlite"];
    for store in [store, new] {
        let error =
            f.p.error(&[&["tune", OP, "--trials", "1"][..], &store].concat());
        says(&error, &[store[1], "disk"]);
    }
    f.p.before = Some(limit_files::<65_536>);
    let tune = ["tune", OP, "--trials", "1", "--store", "new.sqlite"];
    let error = f.p.error(&tune);
    says(&error, &["new.sqlite", "ulimit -f"]);
}

/// Winograd's weights have more bytes than those of the convolution.
#[test]
fn constants_that_the_file_leaves_out_are_made_when_it_is_loaded() {
    let folder = tempdir().unwrap();
    let p = place(&folder);
    let conv = "op:conv2d(c=32,h=14,w=14,k=32)";
    let compile = ["compile", conv, "--defaults", "--threads", "1"];
    let usual = p.json(&[&compile[..], &["--out", "usual.tsm"]].concat());
    let derives = ["--derive-at-load", "--out", "small.tsm"];
    let small = p.json(&[&compile[..], &derives].concat());
    let number = |v: &serde_json::Value, key: &str| v[key].as_u64().unwrap();
    let left_out = number(&small, "derived_bytes");
    let weights = 32 * 32 * 9 * 4;
    assert!(left_out > weights, "{small}");
    assert!(small["derive_ms"].as_f64().unwrap() >= 0.0);
    assert!(usual.get("derived_bytes").is_none());
    let saved = number(&usual, "bytes") - number(&small, "bytes");
    assert!(saved.abs_diff(left_out - weights) < 10_000, "{saved}");
    let info = p.json(&["info", "small.tsm"]);
    assert_eq!(number(&info["bytes"], "left_out"), left_out);
    assert_eq!(number(&info["bytes"], "prepared"), 0);
    says(&p.ok(&["info", "small.tsm"]), &["not in the file"]);
    p.ok(&["run", "usual.tsm", "--random", "1", "--out", "usual"]);
    p.ok(&["run", "small.tsm", "--random", "1", "--out", "small"]);
    let outputs = ["usual", "small"].map(|o| {
        let files = std::fs::read_dir(folder.path().join(o)).unwrap();
        let files = files.map(|f| std::fs::read(f.unwrap().path()).unwrap());
        files.collect::<Vec<_>>()
    });
    assert!(outputs[0] == outputs[1] && outputs[0].len() == 1);
    let check = p.json(&["check", conv, "--artifact", "small.tsm", "--threads", "1"]);
    assert_eq!(check["ok"], true);
    let object = [&compile[..], &["--derive-at-load", "--emit", "c"]].concat();
    says(&p.error(&object), &["hold all constants"]);
    let foreign = [
        "compile",
        conv,
        "--derive-at-load",
        "--target",
        "aarch64-neon",
    ];
    says(&p.error(&foreign), &["--derive-at-load", "this machine"]);
}
