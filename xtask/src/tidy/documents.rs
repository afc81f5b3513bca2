//! What documents say about the sources: counts, lists, links and paths.
//!
//! Promises that a check which finds nothing to compare is a problem, not a pass. Reads
//! sources as text: a table that gets another form has to get it here too.

use super::{File, Problem};
use std::collections::BTreeSet;
use std::path::Path;

const README: &str = "README.md";
const MAP: &str = "ARCHITECTURE.md";
const MANIFEST: &str = "Cargo.toml";
const OPERATORS: &str = "crates/onnx/src/operators.rs";
const COMMANDS: &str = "crates/tunesmith/src/cli/mod.rs";
const MODELS: &str = "crates/graph/src/builtin/mod.rs";
const HOWTO: &str = "docs/howto/";

/// Pages of figures, or the folder of such pages.
const FIGURES: [&str; 2] = ["bench/FIGURES.md", "bench/figures/"];

/// What a page of figures says in its first lines, and how many these are.
const DATED: &str = "later changes are not in it";
const HEAD_LINES: usize = 5;

/// All files of a checkout that documents may speak of.
pub struct Tree<'a> {
    pub documents: &'a [File],
    pub sources: &'a [File],
    /// Whether a path, relative to the repository, is there.
    pub exists: &'a dyn Fn(&str) -> bool,
}

/// All problems of all documents.
pub fn check(tree: &Tree) -> Vec<Problem> {
    let facts = [
        (README, operators(tree)),
        (README, commands(tree)),
        (README, models(tree)),
        (README, rust(tree)),
        (MAP, howto(tree)),
        (FIGURES[0], figures(tree)),
    ];
    let mut problems: Vec<Problem> = facts
        .into_iter()
        .filter_map(|(path, found)| Some((path, found.err()?)))
        .map(|(path, message)| problem(path, 0, message))
        .collect();
    for document in tree.documents {
        problems.extend(links(tree, document));
        problems.extend(paths(tree, document));
    }
    problems
}

fn problem(path: &str, line: usize, message: String) -> Problem {
    Problem {
        path: path.into(),
        line,
        message,
    }
}

impl Tree<'_> {
    fn text(&self, path: &str) -> Result<&str, String> {
        let mut all = self.documents.iter().chain(self.sources);
        let found = all.find(|t| t.path == path);
        found
            .map(|t| t.text.as_str())
            .ok_or_else(|| format!("there is no {path} to compare with"))
    }
}

/// What stands between two texts.
fn between<'t>(path: &str, text: &'t str, from: &str, to: &str) -> Result<&'t str, String> {
    let after = text.split_once(from).map(|(_, after)| after);
    let inside = after
        .and_then(|a| a.split_once(to))
        .map(|(inside, _)| inside);
    inside.ok_or_else(|| {
        format!(
            "{path} has no text between `{}` and `{}`",
            from.trim(),
            to.trim()
        )
    })
}

/// The words in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn same(what: &str, written: BTreeSet<String>, real: BTreeSet<String>) -> Result<(), String> {
    if real.is_empty() {
        return Err(format!("no {what} found in the sources"));
    }
    let list = |of: &BTreeSet<String>, without: &BTreeSet<String>| {
        let names: Vec<&str> = of.difference(without).map(String::as_str).collect();
        names.join(", ")
    };
    match (list(&real, &written), list(&written, &real)) {
        (missing, unknown) if missing.is_empty() && unknown.is_empty() => Ok(()),
        (missing, unknown) => Err(format!(
            "the {what} are not those of the sources; missing: [{missing}], unknown: [{unknown}]"
        )),
    }
}

/// The number of operators that README names is that of the importer's table.
fn operators(tree: &Tree) -> Result<(), String> {
    let table = between(
        OPERATORS,
        tree.text(OPERATORS)?,
        "&[Operator] = &[\n",
        "\n];",
    )?;
    let is_row = |l: &&str| l.starts_with("    standard(") || l.starts_with("    microsoft(");
    let rows = table.lines().filter(is_row).count();
    let written = between(
        README,
        tree.text(README)?,
        "the importer reads ",
        " operators",
    )?;
    match rows > 0 && written == rows.to_string() {
        true => Ok(()),
        false => Err(format!(
            "says that the importer reads {written} operators; {OPERATORS} has {rows}"
        )),
    }
}

/// README's table of commands names all commands.
fn commands(tree: &Tree) -> Result<(), String> {
    let variants = between(COMMANDS, tree.text(COMMANDS)?, "enum Command {\n", "\n}")?;
    let name = |l: &str| {
        l.trim()
            .split_once('(')
            .map(|(name, _)| name.to_lowercase())
    };
    let real = variants.lines().filter_map(name).collect();
    let section = between(README, tree.text(README)?, "\n## Commands\n", "\n## ")?;
    let rows = section.lines().filter(|l| l.starts_with("| `"));
    let cells = rows.filter_map(|l| l.split('|').nth(1));
    let written = cells.flat_map(quoted).map(String::from).collect();
    same("commands", written, real)
}

/// README names all built-in models.
fn models(tree: &Tree) -> Result<(), String> {
    let table = between(MODELS, tree.text(MODELS)?, "&[ModelInfo] = &[\n", "\n];")?;
    let name = |l: &str| Some(l.trim().strip_prefix("name: \"")?.split_once('"')?.0.into());
    let real = table.lines().filter_map(name).collect();
    let (from, to) = ("Built-in models have", "(`tunesmith models`");
    let written = between(README, tree.text(README)?, from, to)?;
    same(
        "built-in models",
        quoted(written).map(String::from).collect(),
        real,
    )
}

/// README names the oldest Rust that the workspace builds with.
fn rust(tree: &Tree) -> Result<(), String> {
    let real = between(MANIFEST, tree.text(MANIFEST)?, "\nrust-version = \"", "\"")?;
    let written = between(README, tree.text(README)?, "and Rust ", " or newer")?;
    match written == real {
        true => Ok(()),
        false => Err(format!("says Rust {written}; {MANIFEST} says {real}")),
    }
}

/// README or ARCHITECTURE.md has a link to each page of `docs/howto`.
fn howto(tree: &Tree) -> Result<(), String> {
    let pages = tree.documents.iter().map(|d| &d.path);
    let pages: Vec<&String> = pages.filter(|p| p.starts_with(HOWTO)).collect();
    let (readme, map) = (tree.text(README)?, tree.text(MAP)?);
    let linked = |page: &str| {
        let ends = [format!("({page})"), format!("({page}#")];
        ends.iter().any(|l| readme.contains(l) || map.contains(l))
    };
    let lost: Vec<&str> = pages
        .iter()
        .map(|p| p.as_str())
        .filter(|p| !linked(p))
        .collect();
    match (pages.is_empty(), lost.is_empty()) {
        (true, _) => Err(format!("there are no pages in {HOWTO}")),
        (_, false) => Err(format!(
            "neither {README} nor {MAP} links to {}",
            lost.join(", ")
        )),
        _ => Ok(()),
    }
}

/// Each page of figures says at its head which commits it describes.
fn figures(tree: &Tree) -> Result<(), String> {
    let is_page = |d: &&File| match d.path.strip_prefix(FIGURES[1]) {
        Some(name) => !name.contains('/'),
        None => d.path == FIGURES[0],
    };
    let pages: Vec<&File> = tree.documents.iter().filter(is_page).collect();
    let says = |d: &File| {
        let head: Vec<&str> = d.text.lines().take(HEAD_LINES).collect();
        let head = head.join(" ");
        head.contains("ommit") && head.contains(DATED)
    };
    let silent: Vec<&str> = pages
        .iter()
        .filter(|d| !says(d))
        .map(|d| d.path.as_str())
        .collect();
    match (pages.is_empty(), silent.is_empty()) {
        (true, _) => Err("there are no pages of figures".into()),
        (_, false) => Err(format!(
            "no sentence `... commit ...; {DATED}.` at the head of {}",
            silent.join(", ")
        )),
        _ => Ok(()),
    }
}

/// Links to files that are not there, or to headings that their page lacks.
fn links(tree: &Tree, document: &File) -> Vec<Problem> {
    let folder = document
        .path
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    for (line, text) in prose(&document.text) {
        // Outside code spans.
        let text: String = text.split('`').step_by(2).collect();
        for target in text.split("](").skip(1).filter_map(|t| t.split_once(')')) {
            let target = target.0;
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => document.path.clone(),
                file => joined(folder, file),
            };
            if !(tree.exists)(&path) {
                found.push(problem(&document.path, line, format!("there is no {path}")));
                continue;
            }
            let page = tree.documents.iter().find(|d| d.path == path);
            if !heading.is_empty() && page.is_some_and(|p| !has_heading(&p.text, heading)) {
                let message = format!("{path} has no heading `#{heading}`");
                found.push(problem(&document.path, line, message));
            }
        }
    }
    found
}

/// A path without `.` and `..`.
fn joined(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
    for part in file.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn has_heading(text: &str, anchor: &str) -> bool {
    let anchor_of = |heading: &str| -> String {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let lower = heading.to_lowercase();
        lower
            .chars()
            .filter(kept)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    let mut headings = prose(text).filter(|(_, l)| l.starts_with('#'));
    headings.any(|(_, l)| anchor_of(l.trim_start_matches('#').trim()) == anchor)
}

/// Rust files that a document names by a path with a folder, and that are not there. `src`
/// may be left out, and so may what stands before. Names in capitals are the reader's.
fn paths(tree: &Tree, document: &File) -> Vec<Problem> {
    let known = |name: &str| {
        let end = format!("/{name}");
        tree.sources.iter().any(|s| {
            let path = format!("/{}", s.path);
            path.ends_with(&end) || path.replace("/src/", "/").ends_with(&end)
        })
    };
    let is_path = |name: &&str| {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-/.".contains(c);
        name.ends_with(".rs") && name.contains('/') && name.chars().all(word)
    };
    let mut found = Vec::new();
    for (line, text) in prose(&document.text) {
        for name in quoted(text).filter(is_path).filter(|n| !known(n)) {
            found.push(problem(
                &document.path,
                line,
                format!("there is no file `{name}`"),
            ));
        }
    }
    found
}

/// The lines outside blocks of code, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !in_block && !fence
    })
}

/// The manifest of the workspace, which is a source here.
pub fn manifest(root: &Path) -> Result<File, String> {
    let text = std::fs::read_to_string(root.join(MANIFEST));
    Ok(File {
        path: MANIFEST.into(),
        text: text.map_err(|e| format!("{MANIFEST}: {e}"))?,
    })
}

/// The texts of all documents under `root`: those at the root, in `docs` and in `bench`.
pub fn read(root: &Path) -> Result<Vec<File>, String> {
    let mut documents = Vec::new();
    collect(root, root, false, &mut documents)?;
    for folder in ["docs", "bench"] {
        collect(root, &root.join(folder), true, &mut documents)?;
    }
    documents.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(documents)
}

fn collect(root: &Path, folder: &Path, deep: bool, into: &mut Vec<File>) -> Result<(), String> {
    let said = |e: std::io::Error| format!("{}: {e}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(said)? {
        let path = entry.map_err(said)?.path();
        if path.is_dir() && deep {
            collect(root, &path, deep, into)?;
        } else if path.extension().is_some_and(|e| e == "md") && path.is_file() {
            let text =
                std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let relative = path.strip_prefix(root).unwrap_or(&path);
            let path = relative.to_string_lossy().replace('\\', "/");
            into.push(File { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::File;
    use super::{Tree, check, figures, joined};

    const README: &str = "the importer reads 2 operators\nLLVM and Rust 1.2 or newer\n\n## Commands\n\n\
        | `a`, `b` | does |\n\n## More\n\nBuilt-in models have weights: `m` and\n`n-1` \
        (`tunesmith models`). [page](docs/howto/p.md#part-a) `x/y.rs` `x/NAME.rs`\n";
    const SOURCES: [(&str, &str); 4] = [
        (
            super::OPERATORS,
            "fn standard(\nO: &[Operator] = &[\n    standard(\"A\", a),\n    microsoft(\n        \"B\",\n    ),\n];\n",
        ),
        (
            super::COMMANDS,
            "enum Command {\n    A(Box<a::Args>),\n    B(b::Args),\n}\n",
        ),
        (
            super::MODELS,
            "M: &[ModelInfo] = &[\n    ModelInfo {\n        name: \"m\",\n    },\n    ModelInfo {\n        name: \"n-1\",\n    },\n];\n",
        ),
        ("crates/x/src/y.rs", "//! y\n"),
    ];
    const PAGE: &str = "# P\n\n## Part `a`\n\n```\n[no](nowhere)\n```\n[up](../../README.md)\n";
    const FIGURES: &str = "# F\n\nThis page describes commit 1; later changes are not in it.\n";

    fn texts(of: &[(&str, &str)]) -> Vec<File> {
        let file = |(path, text): &(&str, &str)| File {
            path: path.to_string(),
            text: text.to_string(),
        };
        of.iter().map(file).collect()
    }

    /// The messages for a tree in which one text of one file is another one.
    fn changed(path: &str, from: &str, to: &str) -> Vec<String> {
        let documents = [
            ("README.md", README),
            ("ARCHITECTURE.md", "# A\n"),
            ("docs/howto/p.md", PAGE),
            ("bench/FIGURES.md", FIGURES),
            ("bench/figures/deep/a.md", "# Generated\n"),
        ];
        let mut documents = texts(&documents);
        let mut sources = texts(&SOURCES);
        sources.extend(texts(&[("Cargo.toml", "[a]\nrust-version = \"1.2\"\n")]));
        let mut all = documents.iter_mut().chain(&mut sources);
        if let Some(t) = all.find(|t| t.path == path) {
            assert!(t.text.contains(from), "{from}");
            t.text = t.text.replace(from, to);
        }
        let paths: Vec<String> = documents.iter().map(|d| d.path.clone()).collect();
        let tree = Tree {
            documents: &documents,
            sources: &sources,
            exists: &|path| paths.iter().any(|p| p == path),
        };
        check(&tree).iter().map(ToString::to_string).collect()
    }

    /// The change gives one problem, which says that.
    fn refused(path: &str, from: &str, to: &str, says: &str) {
        let found = changed(path, from, to);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(says), "{found:?}");
    }

    #[test]
    fn what_agrees_has_no_problem() {
        assert_eq!(changed("", "", ""), [""; 0]);
    }

    #[test]
    fn counts_and_lists_that_differ() {
        refused("README.md", "reads 2", "reads 3", "3 operators");
        refused("README.md", "`a`, `b`", "`a`", "missing: [b]");
        refused("README.md", "`a`, `b`", "`a`, `b`, `c`", "unknown: [c]");
        refused("README.md", "`m` and", "and", "missing: [m]");
        refused("README.md", "Rust 1.2", "Rust 1.1", "Cargo.toml says 1.2");
    }

    #[test]
    fn sources_and_documents_of_another_form() {
        refused(super::OPERATORS, "    ", "\t", "has 0");
        refused(
            super::COMMANDS,
            "enum Command",
            "enum Commands",
            "no text between",
        );
        refused(
            super::MODELS,
            "name: ",
            "title: ",
            "no built-in models found",
        );
        refused("README.md", "## Commands", "## Usage", "no text between");
        refused(
            "README.md",
            "the importer reads",
            "it reads",
            "no text between",
        );
    }

    #[test]
    fn pages_that_nothing_links_to() {
        refused(
            "README.md",
            "[page](docs/howto/p.md#part-a)",
            "",
            "links to docs/howto/p.md",
        );
    }

    #[test]
    fn links_and_paths_that_lead_nowhere() {
        refused(
            "docs/howto/p.md",
            "../../README.md",
            "../README.md",
            "p.md:8: there is no docs/README.md",
        );
        refused(
            "docs/howto/p.md",
            "## Part `a`",
            "## Part b",
            "no heading `#part-a`",
        );
        refused("README.md", "`x/y.rs`", "`x/z.rs`", "no file `x/z.rs`");
        assert_eq!(joined("docs/howto", "../adr/"), "docs/adr");
    }

    #[test]
    fn pages_of_figures_without_a_commit() {
        refused(
            "bench/FIGURES.md",
            "later changes",
            "changes",
            "head of bench/FIGURES.md",
        );
        let none = Tree {
            documents: &[],
            sources: &[],
            exists: &|_| false,
        };
        assert!(figures(&none).is_err());
        assert_eq!(check(&none).len(), 6);
    }
}
