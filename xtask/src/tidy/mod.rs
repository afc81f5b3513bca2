//! The rules of the house, checked on every source file and on the workspace.
//!
//! Owns which files are looked at and how problems are reported. One file a
//! group of rules: `source` (one Rust file), `names` (paths), `workspace`
//! (dependencies against ARCHITECTURE.md), `documents` (what they say of the
//! sources), `commits` (what documents name).

mod commits;
mod documents;
mod names;
mod source;
mod workspace;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Relative to the repository.
    pub path: String,
    /// From 1; 0 for the whole file.
    pub line: usize,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// A text file of the repository.
pub struct File {
    /// Relative to the repository, with `/`.
    pub path: String,
    pub text: String,
}

/// The result of a run.
pub struct Tidy {
    pub files: usize,
    pub problems: Vec<Problem>,
    /// What could not be checked here, and why.
    pub skipped: Option<String>,
}

/// Folders whose files are checked.
const FOLDERS: [&str; 2] = ["crates", "xtask"];

/// Checks the repository at `root`. The error says what could not be read.
pub fn run(root: &Path) -> Result<Tidy, String> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(root, &root.join(folder), &mut files)?;
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut problems: Vec<Problem> = files.iter().flat_map(|f| names::check(&f.path)).collect();
    problems.extend(source::check(&files)?);
    let map = root.join("ARCHITECTURE.md");
    let map = std::fs::read_to_string(&map).map_err(|e| format!("{}: {e}", map.display()))?;
    problems.extend(workspace::check(&map, &metadata(root)?, &files)?);
    let count = files.len();
    files.push(documents::manifest(root)?);
    problems.extend(documents::check(&documents::Tree {
        documents: &documents::read(root)?,
        sources: &files,
        exists: &|path| root.join(path).exists(),
    }));
    let commits = commits::check(root);
    let skipped = commits.as_ref().err().cloned();
    problems.extend(commits.unwrap_or_default());
    problems.sort();
    Ok(Tidy {
        files: count,
        problems,
        skipped,
    })
}

/// Every Rust file under a folder.
fn collect(root: &Path, folder: &Path, into: &mut Vec<File>) -> Result<(), String> {
    let said = |e: std::io::Error| format!("{}: {e}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(said)? {
        let path: PathBuf = entry.map_err(said)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A folder of sources may be called `target`, too.
        let built = path.join("CACHEDIR.TAG").exists();
        if name.starts_with('.') || built {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, into)?;
        } else if name.ends_with(".rs") {
            let text =
                std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let relative = path.strip_prefix(root).unwrap_or(&path);
            into.push(File {
                path: relative.to_string_lossy().replace('\\', "/"),
                text,
            });
        }
    }
    Ok(())
}

fn metadata(root: &Path) -> Result<serde_json::Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .output()
        .map_err(|e| format!("cannot run cargo metadata: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo metadata failed: {}", said.trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

#[cfg(test)]
mod tests {
    use super::run;
    use std::path::Path;

    #[test]
    fn a_folder_that_is_no_repository_is_an_error() {
        let nowhere = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        assert!(run(&nowhere).is_err_and(|e| e.contains("crates")));
    }
}
