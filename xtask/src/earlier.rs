//! Test programs that passed before, and that would do the same again.
//!
//! A program is not run again within a day if nothing that it may read has changed: the program
//! itself, the programs of its package, the environment variables that tests know, and every
//! file of the repository except Rust sources and the pages that no test reads.

use crate::tests::{Counts, Program};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds for which a result holds: what tests find on the machine may change.
const HOLDS: u64 = 24 * 3600;
/// Prefixes of environment variables that tests read.
const VARIABLES: [&str; 8] = [
    "TUNESMITH_",
    "PROPTEST_",
    "PATH",
    "HOME",
    "XDG_",
    "COLUMNS",
    "NO_COLOR",
    "TERM",
];

/// What a program printed about skipped tests when it passed, and its counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Passed {
    pub counts: Counts,
    pub lines: Vec<String>,
}

/// Results in a file, by a key of all that a program may read.
pub struct Earlier {
    file: PathBuf,
    /// What all programs may read.
    common: u64,
    passed: HashMap<u64, (u64, Passed)>,
}

impl Earlier {
    /// Reads the results that still hold. A file that cannot be read holds none.
    pub fn read(file: PathBuf, root: &Path, arguments: &[String]) -> Result<Earlier, String> {
        let mut common = DefaultHasher::new();
        arguments.hash(&mut common);
        let mut variables: Vec<_> = std::env::vars()
            .filter(|(name, _)| VARIABLES.iter().any(|v| name.starts_with(v)))
            .collect();
        variables.sort();
        variables.hash(&mut common);
        for path in files(root)? {
            path.hash(&mut common);
            // What git lists and is not there was deleted.
            std::fs::read(root.join(path)).ok().hash(&mut common);
        }
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let passed = text.lines().filter_map(parsed);
        let oldest = now().saturating_sub(HOLDS);
        Ok(Earlier {
            file,
            common: common.finish(),
            passed: passed.filter(|(_, (when, _))| *when >= oldest).collect(),
        })
    }

    /// The key of a program, with those that its tests may start.
    pub fn key(&self, program: &Program, beside: &[PathBuf]) -> Result<u64, String> {
        let mut key = DefaultHasher::new();
        (self.common, &program.name).hash(&mut key);
        for path in beside.iter().chain([&program.path]) {
            let bytes = std::fs::read(path);
            let bytes = bytes.map_err(|e| format!("{}: {e}", path.display()))?;
            bytes.hash(&mut key);
        }
        Ok(key.finish())
    }

    pub fn get(&self, key: u64) -> Option<&Passed> {
        self.passed.get(&key).map(|(_, passed)| passed)
    }

    pub fn insert(&mut self, key: u64, passed: Passed) {
        self.passed.insert(key, (now(), passed));
    }

    pub fn write(&self) -> Result<(), String> {
        let line = |(key, (when, passed)): (&u64, &(u64, Passed))| {
            let Counts {
                passed: n, ignored, ..
            } = passed.counts;
            let lines = &passed.lines;
            json!({"key": key, "when": when, "passed": n, "ignored": ignored, "lines": lines})
                .to_string()
        };
        let text: Vec<String> = self.passed.iter().map(line).collect();
        std::fs::write(&self.file, text.join("\n"))
            .map_err(|e| format!("{}: {e}", self.file.display()))
    }
}

/// A line of the file.
fn parsed(line: &str) -> Option<(u64, (u64, Passed))> {
    let value: Value = serde_json::from_str(line).ok()?;
    let number = |name: &str| value[name].as_u64();
    let lines = value["lines"].as_array()?.iter();
    let passed = Passed {
        counts: Counts {
            passed: number("passed")? as usize,
            failed: 0,
            ignored: number("ignored")? as usize,
        },
        lines: lines.filter_map(|l| Some(l.as_str()?.into())).collect(),
    };
    Some((number("key")?, (number("when")?, passed)))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_secs())
}

/// Files that tests may read, in an order that does not change.
fn files(root: &Path) -> Result<Vec<String>, String> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .map_err(|e| format!("git: {e}"))?;
    if !listed.status.success() {
        return Err(String::from_utf8_lossy(&listed.stderr).into());
    }
    let names = String::from_utf8_lossy(&listed.stdout).to_string();
    let mut files: Vec<String> = names
        .split_terminator('\0')
        .filter(|f| may_be_read(f))
        .map(String::from)
        .collect();
    files.sort();
    Ok(files)
}

/// Rust sources are in the programs. Of pages only those with commands that tests run are read.
fn may_be_read(file: &str) -> bool {
    let page = file.ends_with(".md") && !file.starts_with("docs/howto/");
    !page && !file.ends_with(".rs")
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn a_result_holds_while_nothing_changes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let git = Command::new("git").arg("init").arg(folder.path()).output();
        assert!(git.unwrap().status.success());
        std::fs::write(at(".gitignore"), "/out\n").unwrap();
        std::fs::create_dir(at("out")).unwrap();
        for file in ["data.txt", "page.md", "lib.rs", "out/p", "out/child"] {
            std::fs::write(at(file), "1").unwrap();
        }
        let program = Program {
            name: "p".into(),
            path: at("out/p"),
            folder: folder.path().into(),
        };
        let passed = Passed {
            counts: Counts {
                passed: 3,
                failed: 0,
                ignored: 1,
            },
            lines: vec!["skipped: a: \"b\"".into()],
        };
        let found = |arguments: &[String]| {
            let earlier = Earlier::read(at("out/file"), folder.path(), arguments).unwrap();
            let key = earlier.key(&program, &[at("out/child")]).unwrap();
            (earlier.get(key).cloned(), key, earlier)
        };
        let (none, key, mut earlier) = found(&[]);
        assert_eq!(none, None);
        earlier.insert(key, passed.clone());
        earlier.write().unwrap();
        assert_eq!(found(&[]).0, Some(passed.clone()));
        assert_eq!(found(&["--include-ignored".into()]).0, None);
        for file in ["page.md", "lib.rs"] {
            std::fs::write(at(file), "2").unwrap();
            assert_eq!(found(&[]).0, Some(passed.clone()), "{file}");
        }
        for file in ["data.txt", "out/p", "out/child"] {
            std::fs::write(at(file), "2").unwrap();
            assert_eq!(found(&[]).0, None, "{file}");
            std::fs::write(at(file), "1").unwrap();
            assert_eq!(found(&[]).0, Some(passed.clone()), "{file}");
        }
        std::fs::write(at("new.txt"), "1").unwrap();
        assert_eq!(found(&[]).0, None);
        std::fs::remove_file(at("new.txt")).unwrap();
        let text = std::fs::read_to_string(at("out/file")).unwrap();
        let old = text.replace(&now().to_string()[..6], "100000");
        assert_ne!(text, old);
        std::fs::write(at("out/file"), old).unwrap();
        assert_eq!(found(&[]).0, None);
    }
}
