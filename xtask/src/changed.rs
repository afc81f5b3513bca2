//! What a change can reach: packages with changed files and the packages that depend on these.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Stages that every change needs.
const ALWAYS: &str = "fmt tidy deny";

/// What to build and test.
#[derive(Debug, Default, PartialEq)]
struct Reach {
    /// Packages that changed or depend on changed ones.
    packages: BTreeSet<String>,
    /// A file that every package may depend on.
    everything: Option<String>,
    benchmarks: bool,
}

/// Prints what changes since a commit reach, committed or not: `cargo:` the packages as arguments
/// for cargo, `stages:` stages of `./test`, and what is left out.
pub fn print(root: &Path, base: &str) -> Result<(), String> {
    let mut files = lines(root, "git", &["diff", "--name-only", base])?;
    files.extend(lines(
        root,
        "git",
        &["ls-files", "--others", "--exclude-standard"],
    )?);
    let text = lines(
        root,
        "cargo",
        &["metadata", "--format-version=1", "--no-deps", "--locked"],
    )?;
    let metadata = serde_json::from_str(&text.concat()).map_err(|e| e.to_string())?;
    let users = users(&metadata).ok_or("cargo metadata has another form than expected")?;
    let reach = reach(&files, &users);
    for line in report(&reach, &users) {
        println!("{line}");
    }
    Ok(())
}

fn lines(root: &Path, program: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
    let out = Command::new(program)
        .current_dir(root)
        .args(arguments)
        .output();
    let out = out.map_err(|e| format!("{program}: {e}"))?;
    if !out.status.success() {
        return Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&out.stderr)
        ));
    }
    let text = String::from_utf8_lossy(&out.stdout).to_string();
    Ok(text.lines().map(String::from).collect())
}

/// For each package of the workspace those that depend on it, for tests and build scripts too.
fn users(metadata: &Value) -> Option<BTreeMap<String, BTreeSet<String>>> {
    let packages = metadata["packages"].as_array()?;
    let mut users = BTreeMap::new();
    for package in packages {
        users.insert(package["name"].as_str()?.to_string(), BTreeSet::new());
    }
    for package in packages {
        for dependency in package["dependencies"].as_array()? {
            if let Some(of) = users.get_mut(dependency["name"].as_str()?) {
                of.insert(package["name"].as_str()?.to_string());
            }
        }
    }
    Some(users)
}

fn reach(files: &[String], users: &BTreeMap<String, BTreeSet<String>>) -> Reach {
    let mut reach = Reach::default();
    let mut open = Vec::new();
    for file in files {
        let parts: Vec<&str> = file.split('/').collect();
        match parts[..] {
            ["crates", package, ..] | [package @ "xtask", ..] if users.contains_key(package) => {
                open.push(package.to_string());
            }
            // A test of xtask starts them.
            ["tunesmith"] | ["scripts", "setup"] => open.push("xtask".into()),
            // The tests of the packages for Python run both programs.
            ["python", ..] | ["scripts", "wheels"] => {
                open.extend(["deploy", "tunesmith"].map(String::from));
            }
            ["bench", ..] => reach.benchmarks = true,
            // The pages' commands are run by the command line's tests, and the tables of node
            // tests are compared.
            ["docs", ..] => open.push("tunesmith".into()),
            _ if file.ends_with(".md") || file == "LICENSE" => {}
            _ => reach.everything = Some(file.clone()),
        }
    }
    if reach.everything.is_some() {
        open = users.keys().cloned().collect();
        reach.benchmarks = true;
    }
    while let Some(package) = open.pop() {
        if reach.packages.insert(package.clone()) {
            open.extend(users.get(&package).into_iter().flatten().cloned());
        }
    }
    reach
}

fn report(reach: &Reach, users: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut stages = vec![ALWAYS];
    let has = |name: &str| reach.packages.contains(name);
    if !reach.packages.is_empty() {
        stages.push("build tests");
    }
    if has("tunesmith") {
        stages.push("doc-tests node-tests");
    }
    if reach.benchmarks {
        stages.push("bench-tests");
    }
    if has("deploy") || has("tunesmith") {
        stages.push("python-tests");
    }
    let arguments = reach.packages.iter().map(|p| format!("--package {p}"));
    let left: Vec<&str> = users.keys().map(|p| &**p).filter(|p| !has(p)).collect();
    let mut lines = vec![format!("stages: {}", stages.join(" "))];
    lines.push(format!(
        "cargo: {}",
        arguments.collect::<Vec<_>>().join(" ")
    ));
    if let Some(file) = &reach.everything {
        lines.push(format!("everything, because of {file}"));
    }
    if !left.is_empty() {
        lines.push(format!("left out: {}", left.join(", ")));
    }
    if !reach.benchmarks {
        lines.push("left out: bench-tests".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[&str]) -> Reach {
        let metadata = serde_json::json!({"packages": [
            {"name": "ir", "dependencies": [{"name": "thiserror"}]},
            {"name": "search", "dependencies": [{"name": "ir"}]},
            {"name": "deploy", "dependencies": [{"name": "ir"}]},
            {"name": "tunesmith", "dependencies": [{"name": "search"}]},
            {"name": "xtask", "dependencies": []},
        ]});
        let files: Vec<String> = files.iter().map(|f| f.to_string()).collect();
        reach(&files, &users(&metadata).unwrap())
    }

    fn packages(files: &[&str]) -> Vec<String> {
        of(files).packages.into_iter().collect()
    }

    #[test]
    fn a_change_reaches_what_depends_on_it() {
        assert_eq!(
            packages(&["crates/search/src/lib.rs"]),
            ["search", "tunesmith"]
        );
        assert_eq!(
            packages(&["crates/ir/tests/a/b.rs"]),
            ["deploy", "ir", "search", "tunesmith"]
        );
        assert_eq!(packages(&["xtask/src/main.rs"]), ["xtask"]);
        assert_eq!(packages(&["tunesmith", "scripts/setup"]), ["xtask"]);
        assert_eq!(packages(&["docs/howto/quantise.md"]), ["tunesmith"]);
        assert_eq!(
            packages(&["python/tests/test_python.py"]),
            ["deploy", "tunesmith"]
        );
    }

    #[test]
    fn pages_and_benchmarks_reach_no_package() {
        let reach = of(&["README.md", "bench/rivals/run"]);
        assert!(reach.packages.is_empty() && reach.benchmarks && reach.everything.is_none());
    }

    #[test]
    fn unknown_files_reach_everything() {
        let reach = of(&["Cargo.lock"]);
        assert_eq!(reach.packages.len(), 5);
        assert_eq!(reach.everything.as_deref(), Some("Cargo.lock"));
        assert_eq!(of(&["crates/gone/src/lib.rs"]).packages.len(), 5);
    }
}
