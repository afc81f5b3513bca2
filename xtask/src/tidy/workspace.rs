//! The dependencies of the workspace against ARCHITECTURE.md.
//!
//! The table between [`TABLE_START`] and [`TABLE_END`] lists every crate with
//! the crates of the workspace it depends on, lowest first. Dependencies of
//! tests and build scripts are left out of it.

use super::{File, Problem};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const TABLE_START: &str = "<!-- dependencies: checked by cargo xtask tidy -->";
const TABLE_END: &str = "<!-- end of dependencies -->";
const MAP_HEADING: &str = "## Map";

/// Crates in whose closure there is no code generator: what ships with an
/// application, what runs candidates, and what is pure.
const NO_LLVM: [&str; 9] = [
    "runtime", "measure", "worker", "store", "search", "graph", "onnx", "plan", "schedule",
];

/// What links LLVM, and the one crate that may use it.
const LLVM_BINDINGS: [&str; 2] = ["inkwell", "llvm-sys"];
const LLVM_CRATE: &str = "llvm";

type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// The dependencies that cargo resolved, by name, without those of tests.
struct Resolved {
    members: BTreeSet<String>,
    of: Dependencies,
}

/// All problems of the map in `architecture` and of the workspace.
pub fn check(architecture: &str, metadata: &Value, files: &[File]) -> Result<Vec<Problem>, String> {
    let resolved = resolve(metadata).ok_or("cargo metadata has an unknown form")?;
    let mut messages = Vec::new();
    match table(architecture) {
        None => messages.push(format!(
            "no table between `{TABLE_START}` and `{TABLE_END}`"
        )),
        Some(rows) => compare(&rows, &resolved, &mut messages),
    }
    let map = section(architecture, MAP_HEADING);
    for member in &resolved.members {
        if !map.contains(&format!("`{member}`")) {
            messages.push(format!(
                "`{MAP_HEADING}` does not name the crate `{member}`"
            ));
        }
    }
    quarantine(&resolved, &mut messages);
    unused(&resolved, files, &mut messages);
    let problems = messages.into_iter().map(|message| Problem {
        path: "ARCHITECTURE.md".into(),
        line: 0,
        message,
    });
    Ok(problems.collect())
}

fn resolve(metadata: &Value) -> Option<Resolved> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for package in metadata["packages"].as_array()? {
        names.insert(package["id"].as_str()?, package["name"].as_str()?);
    }
    let mut members = BTreeSet::new();
    for id in metadata["workspace_members"].as_array()? {
        members.insert(names.get(id.as_str()?)?.to_string());
    }
    let mut of = Dependencies::new();
    for node in metadata["resolve"]["nodes"].as_array()? {
        let name = names.get(node["id"].as_str()?)?;
        let into = of.entry(name.to_string()).or_default();
        for dependency in node["deps"].as_array()? {
            let kinds = dependency["dep_kinds"].as_array()?;
            if kinds.iter().any(|k| k["kind"].is_null()) {
                into.insert(names.get(dependency["pkg"].as_str()?)?.to_string());
            }
        }
    }
    Some(Resolved { members, of })
}

/// The rows of the table, in order.
fn table(text: &str) -> Option<Vec<(String, BTreeSet<String>)>> {
    let (_, rest) = text.split_once(TABLE_START)?;
    let (body, _) = rest.split_once(TABLE_END)?;
    let rows = body.lines().filter_map(|row| {
        let mut cells = row.trim().strip_prefix('|')?.split('|');
        let name = quoted(cells.next()?).into_iter().next()?;
        Some((name, quoted(cells.next()?).into_iter().collect()))
    });
    Some(rows.collect())
}

/// The words in backquotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_string)
        .collect()
}

/// The text from a heading to the next of its level.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let start = text.find(&format!("{heading}\n")).unwrap_or(text.len());
    let body = &text[start..];
    let end = body.match_indices("\n## ").map(|(at, _)| at).next();
    &body[..end.unwrap_or(body.len())]
}

fn compare(rows: &[(String, BTreeSet<String>)], resolved: &Resolved, messages: &mut Vec<String>) {
    let mut above: BTreeSet<&String> = BTreeSet::new();
    for (name, written) in rows {
        let Some(all) = resolved
            .of
            .get(name)
            .filter(|_| resolved.members.contains(name))
        else {
            messages.push(format!("`{name}` is no crate of the workspace"));
            continue;
        };
        let real: BTreeSet<String> = all.intersection(&resolved.members).cloned().collect();
        if *written != real {
            messages.push(format!(
                "the row of `{name}` is not what cargo says: {}",
                row(&real)
            ));
        }
        for below in real.iter().filter(|d| !above.contains(d)) {
            messages.push(format!(
                "`{name}` depends on `{below}`, which is not above it"
            ));
        }
        if !above.insert(name) {
            messages.push(format!("`{name}` has two rows"));
        }
    }
    for member in resolved.members.iter().filter(|m| !above.contains(m)) {
        messages.push(format!("the crate `{member}` has no row"));
    }
}

fn row(dependencies: &BTreeSet<String>) -> String {
    match dependencies.is_empty() {
        true => "-".into(),
        false => {
            let quoted: Vec<String> = dependencies.iter().map(|d| format!("`{d}`")).collect();
            quoted.join(", ")
        }
    }
}

fn quarantine(resolved: &Resolved, messages: &mut Vec<String>) {
    for member in resolved.members.iter().filter(|m| *m != LLVM_CRATE) {
        for binding in LLVM_BINDINGS {
            if resolved.of.get(member).is_some_and(|d| d.contains(binding)) {
                messages.push(format!(
                    "`{member}` uses {binding}: only `{LLVM_CRATE}` may"
                ));
            }
        }
    }
    for name in NO_LLVM.iter().filter(|n| resolved.members.contains(**n)) {
        if let Some(path) = path_to_llvm(resolved, name) {
            messages.push(format!("`{name}` reaches LLVM: {}", path.join(" -> ")));
        }
    }
}

/// Dependencies inside the workspace that no source of the crate names.
fn unused(resolved: &Resolved, files: &[File], messages: &mut Vec<String>) {
    for member in &resolved.members {
        let sources = format!("/{member}/src/");
        let named = |d: &str| {
            let path = format!("{d}::");
            files.iter().any(|f| {
                format!("/{}", f.path).contains(&sources)
                    && f.text.match_indices(&path).any(|(at, _)| {
                        !f.text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
                    })
            })
        };
        let all = resolved.of.get(member).into_iter().flatten();
        for dependency in all.filter(|d| resolved.members.contains(*d) && !named(d)) {
            messages.push(format!(
                "`{member}` depends on `{dependency}` and never names it"
            ));
        }
    }
}

/// A chain of dependencies from a crate to the code generator.
fn path_to_llvm(resolved: &Resolved, from: &str) -> Option<Vec<String>> {
    let mut seen = BTreeSet::from([from.to_string()]);
    let mut paths = vec![vec![from.to_string()]];
    while let Some(path) = paths.pop() {
        for next in path
            .last()
            .and_then(|name| resolved.of.get(name))
            .into_iter()
            .flatten()
        {
            let mut longer = path.clone();
            longer.push(next.clone());
            if next == LLVM_CRATE || LLVM_BINDINGS.contains(&next.as_str()) {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                paths.push(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{File, TABLE_END, TABLE_START, check};
    use serde_json::{Value, json};

    const NONE: [String; 0] = [];

    type Crate<'a> = (&'a str, &'a [(&'a str, Option<&'a str>)]);

    /// Metadata of crates `(name, [(dependency, kind)])`; those of `outside` are not members.
    fn metadata(crates: &[Crate], outside: &[&str]) -> Value {
        let nodes: Vec<Value> = crates
            .iter()
            .map(|(name, dependencies)| {
                let deps = dependencies.iter();
                let deps = deps.map(|(d, k)| json!({"pkg": d, "dep_kinds": [{"kind": k}]}));
                json!({"id": name, "deps": deps.collect::<Vec<_>>()})
            })
            .collect();
        let names = crates.iter().map(|(name, _)| *name);
        json!({
            "packages": names.clone().map(|n| json!({"id": n, "name": n})).collect::<Vec<_>>(),
            "workspace_members": names.filter(|n| !outside.contains(n)).collect::<Vec<_>>(),
            "resolve": {"nodes": nodes},
        })
    }

    fn map(rows: &str) -> String {
        format!(
            "## Map\n`tensor` `ir` `llvm` `runtime`\n## Next\n{TABLE_START}\n{rows}{TABLE_END}\n"
        )
    }

    fn two() -> Value {
        metadata(&[("tensor", &[]), ("ir", &[("tensor", None)])], &[])
    }

    /// `ir` uses `tensor`.
    fn source(text: &str) -> File {
        File {
            path: "crates/ir/src/lib.rs".into(),
            text: text.into(),
        }
    }

    fn messages(architecture: &str, metadata: &Value) -> Vec<String> {
        let files = [source("use tensor::DType;")];
        let found = check(architecture, metadata, &files).expect("the metadata is well-formed");
        found.into_iter().map(|p| p.message).collect()
    }

    fn only(architecture: &str, metadata: &Value, says: &str) {
        let found = messages(architecture, metadata);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(says), "{found:?}");
    }

    #[test]
    fn a_true_table_passes() {
        let text = map("| crate | on |\n|---|---|\n| `tensor` | - |\n| `ir` | `tensor` |\n");
        assert_eq!(messages(&text, &two()), NONE);
    }

    #[test]
    fn a_table_that_drifted() {
        only(
            &map("| `tensor` | - |\n| `ir` | - |\n"),
            &two(),
            "not what cargo says: `tensor`",
        );
        let too_much = "| `tensor` | - |\n| `ir` | `tensor`, `llvm` |\n";
        only(&map(too_much), &two(), "the row of `ir`");
        only(&map("| `tensor` | - |\n"), &two(), "`ir` has no row");
        let gone = "| `tensor` | - |\n| `ir` | `tensor` |\n| `isl` | - |\n";
        only(&map(gone), &two(), "`isl` is no crate");
        let upside_down = "| `ir` | `tensor` |\n| `tensor` | - |\n";
        only(&map(upside_down), &two(), "not above it");
        only("## Map\n`tensor` `ir`\n", &two(), "no table");
    }

    #[test]
    fn a_crate_that_the_map_does_not_name() {
        let crates = metadata(&[("tensor", &[]), ("store", &[])], &[]);
        let text = map("| `tensor` | - |\n| `store` | - |\n");
        only(&text, &crates, "does not name the crate `store`");
    }

    #[test]
    fn test_dependencies_are_left_out() {
        let crates = metadata(&[("tensor", &[("ir", Some("dev"))]), ("ir", &[])], &[]);
        let text = map("| `tensor` | - |\n| `ir` | - |\n");
        assert_eq!(messages(&text, &crates), NONE);
    }

    #[test]
    fn a_dependency_that_nothing_uses() {
        let text = map("| `tensor` | - |\n| `ir` | `tensor` |\n");
        for unused in ["", "use my_tensor::DType;", "// of a tensor"] {
            let found =
                check(&text, &two(), &[source(unused)]).expect("the metadata is well-formed");
            assert_eq!(found.len(), 1, "{unused}");
            assert!(found[0].message.contains("never names"), "{found:?}");
        }
    }

    #[test]
    fn llvm_in_the_closure_of_the_runtime() {
        let crates = metadata(
            &[
                ("runtime", &[("middle", None)]),
                ("middle", &[("llvm-sys", None)]),
                ("llvm-sys", &[]),
            ],
            &["middle", "llvm-sys"],
        );
        let text = map("| `runtime` | - |\n");
        only(&text, &crates, "runtime -> middle -> llvm-sys");
    }

    #[test]
    fn llvm_outside_its_crate() {
        let crates = metadata(
            &[
                ("ir", &[("inkwell", None)]),
                ("llvm", &[("inkwell", None)]),
                ("inkwell", &[]),
            ],
            &["inkwell"],
        );
        let text = map("| `ir` | - |\n| `llvm` | - |\n");
        only(&text, &crates, "`ir` uses inkwell");
    }

    #[test]
    fn unknown_metadata_is_an_error() {
        assert!(check("", &json!({"packages": 1}), &[]).is_err());
    }
}
