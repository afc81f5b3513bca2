//! Tells the crate a hash of the sources that parent and runner must share.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// What the two say to each other, and how a runner measures.
const CRATES: [&str; 4] = ["measure", "worker", "runtime", "tensor"];

fn main() -> io::Result<()> {
    let own = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let mut files = Vec::new();
    for name in CRATES {
        let sources = own.join("..").join(name).join("src");
        println!("cargo:rerun-if-changed={}", sources.display());
        list(&sources, &mut files)?;
    }
    files.sort();
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in &files {
        for byte in fs::read(file)? {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo:rustc-env=TUNESMITH_RUNNER_SOURCES={hash:016x}");
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
