//! The compiler's name covers what decides code: it is that of the sources as
//! they are now, and nothing that `build` depends on is forgotten.

#[path = "../build.rs"]
#[allow(dead_code, reason = "only cargo calls its main")]
mod script;

use script::COMPILER;
use std::collections::BTreeSet;
use std::path::Path;

/// Crates of the workspace that `build` depends on and that decide no code.
const OTHER_CRATES: [&str; 5] = ["analysis", "bestof", "learn", "simulate", "worker"];
/// Packages that decide no code: system calls, error types, serialisation's
/// derives, hashes with a specified result, signatures, and what fills tensors.
const OTHER_PACKAGES: [&str; 12] = [
    "bytemuck",
    "libc",
    "ed25519-compact",
    "memmap2",
    "rand",
    "rand_pcg",
    "rustix",
    "serde",
    "tempfile",
    "serde_json",
    "thiserror",
    "xxhash-rust",
];

fn own_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn it_names_the_sources_as_they_are() {
    let output = Path::new(env!("OUT_DIR"));
    let now = sources::fingerprint(own_folder(), output, &COMPILER).unwrap();
    assert_eq!(build::toolchain(), format!("{} {now}", llvm::version()));
}

/// The names under `[dependencies]` of a crate's manifest.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = own_folder().with_file_name(name).join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    // Some have none.
    let rest = text
        .split_once("[dependencies]\n")
        .map_or("", |(_, rest)| rest);
    let section = rest.split("\n[").next().unwrap();
    let names = section.lines().filter_map(|l| l.split(['.', ' ']).next());
    names
        .filter(|n| !n.is_empty())
        .map(str::to_string)
        .collect()
}

#[test]
fn every_dependency_is_covered_or_decides_no_code() {
    let mut crates = BTreeSet::from(["build".to_string()]);
    let mut packages = BTreeSet::new();
    let mut open = vec!["build".to_string()];
    while let Some(name) = open.pop() {
        for dependency in dependencies(&name) {
            let is_ours = own_folder().with_file_name(&dependency).is_dir();
            if !is_ours {
                packages.insert(dependency);
            } else if crates.insert(dependency.clone()) {
                open.push(dependency);
            }
        }
    }
    let covered = COMPILER
        .sources
        .iter()
        .map(|s| s.split('/').next().unwrap());
    let decided: BTreeSet<String> = covered.chain(OTHER_CRATES).map(str::to_string).collect();
    assert_eq!(
        crates, decided,
        "cover each crate in build.rs, or name it here"
    );
    // The bindings of inkwell.
    packages.insert("llvm-sys".into());
    let covered = COMPILER.packages.iter().copied();
    let decided = covered.chain(OTHER_PACKAGES);
    let decided: BTreeSet<String> = decided.map(str::to_string).collect();
    assert_eq!(
        packages, decided,
        "cover each package in build.rs, or name it here"
    );
}
