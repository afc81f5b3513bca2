//! For build scripts: a fingerprint of the sources that a part of the program
//! is built from.
//!
//! Promises that a fingerprint changes when a covered file is edited, added,
//! removed or renamed, and when a covered package gets another version; and
//! that nothing else changes it: not the folder of the workspace, not git, not
//! the program that holds it. What is covered is said by the build script.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::{env, fs};
use xxhash_rust::xxh3::Xxh3;

/// What a fingerprint covers.
pub struct Covered {
    /// Files and whole folders, each as `CRATE/PATH`.
    pub sources: &'static [&'static str],
    /// Packages from outside the workspace, whose locked versions count.
    pub packages: &'static [&'static str],
}

/// Sets the environment variable `variable` of the crate that is compiled to the
/// fingerprint, and has cargo run the build script again when something covered
/// has changed. Only for a build script.
///
/// # Errors
/// As [`fingerprint`].
pub fn set_env(variable: &str, covered: &Covered) -> Result<()> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).ok_or(name.to_string());
    let own = folder("CARGO_MANIFEST_DIR").map_err(unset)?;
    let output = folder("OUT_DIR").map_err(unset)?;
    for (_, path) in roots(&own, covered) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let (lock, _) = locked(&own, &output, covered)?;
    println!("cargo:rerun-if-changed={}", lock.display());
    let value = fingerprint(&own, &output, covered)?;
    println!("cargo:rustc-env={variable}={value}");
    Ok(())
}

/// 32 hexadecimal digits. `own` is the folder of one crate, and the others lie
/// beside it: under their names, or under `NAME-VERSION` where `own` does so too.
/// Versions are those of the first `Cargo.lock` above `output`, then above `own`,
/// that has all covered packages: where the crates are a dependency, the lock
/// file of their own workspace says nothing.
///
/// # Errors
/// If a covered file cannot be read, or no lock file has the covered packages.
pub fn fingerprint(own: &Path, output: &Path, covered: &Covered) -> Result<String> {
    let mut files = Vec::new();
    for (name, path) in roots(own, covered) {
        list(name, &path, &mut files)?;
    }
    files.sort();
    let mut hash = Xxh3::new();
    // Lengths keep apart what follows each other.
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for (name, path) in &files {
        add(name.as_bytes());
        add(&fs::read(path).map_err(|e| unreadable(path, &e))?);
    }
    for version in locked(own, output, covered)?.1 {
        add(version.as_bytes());
    }
    Ok(format!("{:032x}", hash.digest128()))
}

/// The covered files and folders, and where they lie.
fn roots(own: &Path, covered: &Covered) -> Vec<(&'static str, PathBuf)> {
    let own_name = own.file_name().unwrap_or_default().to_string_lossy();
    let version = own_name
        .match_indices('-')
        .map(|(at, _)| &own_name[at..])
        .find(|rest| rest[1..].starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or_default();
    let place = |source: &&'static str| {
        let (name, rest) = source.split_once('/').unwrap_or((source, ""));
        let path = own.with_file_name(format!("{name}{version}")).join(rest);
        (*source, path)
    };
    covered.sources.iter().map(place).collect()
}

/// All files of a file or folder, with names that are the same on every machine.
fn list(name: &str, path: &Path, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    let facts = fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    if !facts.is_dir() {
        files.push((name.into(), path.into()));
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(|e| unreadable(path, &e))? {
        let entry = entry?;
        let below = format!("{name}/{}", entry.file_name().to_string_lossy());
        list(&below, &entry.path(), files)?;
    }
    Ok(())
}

/// The lock file, and what it says of each covered package.
fn locked(own: &Path, output: &Path, covered: &Covered) -> Result<(PathBuf, Vec<String>)> {
    for folder in output.ancestors().chain(own.ancestors()) {
        let path = folder.join("Cargo.lock");
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let versions = covered.packages.iter().map(|p| versions(&text, p));
        if let Some(versions) = versions.collect() {
            return Ok((path, versions));
        }
    }
    Err(Error::other(format!(
        "no Cargo.lock above `{}` or `{}` has all of {}; build in a workspace with one",
        output.display(),
        own.display(),
        covered.packages.join(", ")
    )))
}

/// Name, version and origin of every locked version of a package; `None` if it
/// is not locked.
fn versions(lock: &str, package: &str) -> Option<String> {
    let field = |block: &str, name: &str| {
        let start = format!("{name} = ");
        let line = block.lines().find(|line| line.starts_with(&start));
        line.map(str::to_string)
    };
    let name = format!("name = \"{package}\"");
    let blocks = lock.split("[[package]]").skip(1);
    let own = blocks.filter(|block| field(block, "name").as_ref() == Some(&name));
    let described: Vec<String> = own
        .map(|block| {
            // A checksum says more than the registry that served it.
            let origin = field(block, "checksum").or_else(|| field(block, "source"));
            let version = field(block, "version").unwrap_or_default();
            format!("{name} {version} {}", origin.unwrap_or_default())
        })
        .collect();
    (!described.is_empty()).then(|| described.join("\n"))
}

fn unreadable(path: &Path, error: &Error) -> Error {
    Error::new(
        error.kind(),
        format!("cannot read `{}`: {error}", path.display()),
    )
}

fn unset(variable: String) -> Error {
    Error::other(format!(
        "{variable} is not set: only cargo runs a build script"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const COVERED: Covered = Covered {
        sources: &["front/src", "back/src/abi.rs"],
        packages: &["wire"],
    };
    const LOCK: &str = "\
version = 4

[[package]]
name = \"other\"
version = \"1.0.0\"
source = \"registry\"
checksum = \"11\"

[[package]]
name = \"wire\"
version = \"1.2.3\"
source = \"registry\"
checksum = \"22\"
dependencies = [
 \"other\",
]
";

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A workspace whose crates lie under names with this ending.
    fn workspace_with(ending: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "Cargo.lock", LOCK);
        write(root, &format!("crates/front{ending}/src/lib.rs"), "a b");
        write(root, &format!("crates/front{ending}/src/pass/x.rs"), "c");
        write(root, &format!("crates/front{ending}/Cargo.toml"), "");
        write(root, &format!("crates/back{ending}/src/abi.rs"), "d");
        write(root, &format!("crates/back{ending}/src/run.rs"), "e");
        write(root, &format!("crates/aside{ending}/src/lib.rs"), "f");
        folder
    }

    fn of(root: &Path) -> String {
        let output = root.join("target/debug/build/front/out");
        fingerprint(&root.join("crates/front"), &output, &COVERED).unwrap()
    }

    /// Whether a change of a fresh workspace changes the fingerprint.
    fn changes(change: impl Fn(&Path)) -> bool {
        let folder = workspace_with("");
        let before = of(folder.path());
        change(folder.path());
        of(folder.path()) != before
    }

    #[test]
    fn covered_files_count() {
        assert!(changes(|root| write(
            root,
            "crates/front/src/lib.rs",
            "a  b"
        )));
        assert!(changes(|root| write(
            root,
            "crates/front/src/pass/x.rs",
            ""
        )));
        assert!(changes(|root| write(root, "crates/back/src/abi.rs", "D")));
        assert!(changes(|root| write(root, "crates/front/src/new.rs", "")));
        assert!(changes(|root| {
            fs::remove_file(root.join("crates/front/src/pass/x.rs")).unwrap();
        }));
        assert!(changes(|root| {
            let pass = root.join("crates/front/src/pass");
            fs::rename(pass.join("x.rs"), pass.join("y.rs")).unwrap();
        }));
        // The same bytes one after the other, parted elsewhere.
        assert!(changes(|root| {
            write(root, "crates/front/src/lib.rs", "a ");
            write(root, "crates/front/src/pass/x.rs", "bc");
        }));
    }

    #[test]
    fn locked_versions_of_covered_packages_count() {
        let locked = |from: &'static str, to: &'static str| {
            assert!(LOCK.contains(from));
            changes(|root| write(root, "Cargo.lock", &LOCK.replace(from, to)))
        };
        assert!(locked("1.2.3", "1.2.4"));
        assert!(locked("checksum = \"22\"", "checksum = \"23\""));
        assert!(!locked("1.0.0", "2.0.0"));
        assert!(!locked("checksum = \"11\"", "checksum = \"12\""));
        assert!(changes(|root| {
            let second = "\n[[package]]\nname = \"wire\"\nversion = \"2.0.0\"\n";
            write(root, "Cargo.lock", &format!("{LOCK}{second}"));
        }));
    }

    #[test]
    fn nothing_else_counts() {
        assert!(!changes(|root| write(root, "crates/aside/src/lib.rs", "g")));
        assert!(!changes(|root| write(root, "crates/back/src/run.rs", "g")));
        assert!(!changes(|root| write(root, "crates/front/Cargo.toml", "g")));
        assert!(!changes(|root| write(
            root,
            "crates/front/tests/all.rs",
            "g"
        )));
        assert!(!changes(|root| write(root, ".git/HEAD", "g")));
        let (here, there) = (workspace_with(""), workspace_with(""));
        assert_eq!(of(here.path()), of(there.path()));
    }

    #[test]
    fn folders_with_versions_hold_the_same_sources() {
        let (plain, versioned) = (workspace_with(""), workspace_with("-0.1.0"));
        let root = versioned.path();
        let own = root.join("crates/front-0.1.0");
        let named = fingerprint(&own, &root.join("target"), &COVERED).unwrap();
        assert_eq!(named, of(plain.path()));
    }

    #[test]
    fn the_lock_file_of_the_workspace_that_is_built_comes_first() {
        let (own, user) = (workspace_with(""), tempfile::tempdir().unwrap());
        let crate_folder = own.path().join("crates/front");
        let output = user.path().join("target/debug/out");
        let from = |lock: &str| {
            write(user.path(), "Cargo.lock", lock);
            fingerprint(&crate_folder, &output, &COVERED).unwrap()
        };
        assert_eq!(from(LOCK), of(own.path()));
        assert_ne!(from(&LOCK.replace("1.2.3", "9.9.9")), of(own.path()));
        // One that does not know the package is not it.
        assert_eq!(from("version = 4\n"), of(own.path()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |remove: &str| {
            let folder = workspace_with("");
            let path = folder.path().join(remove);
            fs::remove_file(path).unwrap();
            let output = folder.path().join("target");
            let own = folder.path().join("crates/front");
            fingerprint(&own, &output, &COVERED)
                .unwrap_err()
                .to_string()
        };
        assert!(error("crates/back/src/abi.rs").contains("back/src/abi.rs"));
        assert!(error("Cargo.lock").contains("has all of wire"));
    }
}
