//! The example of a program that chooses among libraries.

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "long: builds the libraries that the example chooses among"]
fn the_example_decides_every_size() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let run = Command::new(env!("CARGO"))
        .args(["run", "--release", "--manifest-path"])
        .arg(root.join("examples/select/Cargo.toml"))
        .arg("--target-dir")
        .arg(root.join("target/example-select"))
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()
        .expect("cargo starts");
    let (out, err) = (
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr),
    );
    assert!(run.status.success(), "{err}");
    let decided = |line: &&str| {
        ["order", "ndarray", "loops", "multiply", "faer"]
            .iter()
            .any(|n| line.ends_with(n))
    };
    let sizes: Vec<&str> = out.lines().filter(|l| l.starts_with('[')).collect();
    assert_eq!(sizes.len(), 18, "{out}");
    assert!(sizes.iter().all(decided), "{out}");
}
