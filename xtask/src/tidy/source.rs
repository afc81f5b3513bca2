//! Rules of one Rust file: its header, its size and that of its functions, and
//! what it may not say outside tests (`unwrap`, glob imports, machine paths).
//!
//! Tests are files under `tests` and `benches`, items marked `#[cfg(test)]` or
//! `#[test]`, and the files of modules so marked.

use super::{File, Problem};
use proc_macro2::{Span, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

const MAX_FILE_LINES: usize = 800;
const MAX_FUNCTION_LINES: usize = 80;

/// What may be longer: a file and one of its functions, or `""` for the file
/// itself. The header has to say why, in a line that starts with [`REASON`].
const LONG: &[(&str, &str)] = &[
    ("crates/onnx/tests/extremes.rs", "subjects"),
    (
        "crates/onnx/tests/import.rs",
        "attribute_and_input_forms_agree",
    ),
];
const REASON: &str = "//! Long: ";

/// First components of paths that exist on some machines only.
const MACHINE_FOLDERS: [&str; 8] = ["home", "root", "Users", "tmp", "mnt", "opt", "srv", "work"];

/// All problems of all files. The error names a file that does not parse.
pub fn check(files: &[File]) -> Result<Vec<Problem>, String> {
    check_with(files, LONG)
}

fn check_with(files: &[File], long: &[(&str, &str)]) -> Result<Vec<Problem>, String> {
    let scans: Vec<Scan> = files.iter().map(scan).collect::<Result<_, _>>()?;
    let test_modules: Vec<String> = files
        .iter()
        .zip(&scans)
        .flat_map(|(file, scan)| {
            let folder = module_folder(&file.path);
            let names = scan.test_modules.iter();
            names.map(move |name| format!("{folder}/{name}"))
        })
        .collect();
    let mut problems = Vec::new();
    let mut excused = BTreeSet::new();
    for (file, scan) in files.iter().zip(&scans) {
        let mut found = Vec::new();
        if !file.text.starts_with("//!") {
            let message = "a file opens with `//!`: what it owns, promises, leaves to others";
            found.push((1, message.to_string()));
        }
        for long_one in too_long(file, scan) {
            let name = (file.path.as_str(), long_one.function.as_str());
            if !long.contains(&name) {
                found.push((long_one.line, long_one.message));
                continue;
            }
            excused.insert((file.path.clone(), long_one.function));
            if !file.text.lines().any(|l| l.starts_with(REASON)) {
                found.push((1, format!("may be long, but no line `{REASON}` says why")));
            }
        }
        if !is_test(&file.path, &test_modules) {
            found.extend(scan.findings.iter().cloned());
            found.extend(machine_paths(file, scan));
        }
        problems.extend(found.into_iter().map(|(line, message)| Problem {
            path: file.path.clone(),
            line,
            message,
        }));
    }
    for (path, function) in long {
        if !excused.contains(&(path.to_string(), function.to_string())) {
            problems.push(Problem {
                path: path.to_string(),
                line: 0,
                message: format!("`{function}` is not too long: take it off the list of xtask"),
            });
        }
    }
    Ok(problems)
}

/// What one pass over the syntax of a file finds.
#[derive(Default)]
struct Scan {
    /// Name, first and last line of every function.
    functions: Vec<(String, usize, usize)>,
    /// Lines of test items.
    tests: Vec<RangeInclusive<usize>>,
    /// Modules in files of their own that are tests.
    test_modules: Vec<String>,
    /// Broken rules outside test items, by line.
    findings: Vec<(usize, String)>,
}

fn scan(file: &File) -> Result<Scan, String> {
    let syntax = syn::parse_file(&file.text)
        .map_err(|e| format!("{}:{}: {e}", file.path, line(e.span())))?;
    let mut scan = Scan::default();
    scan.visit_file(&syntax);
    Ok(scan)
}

fn line(span: Span) -> usize {
    span.start().line
}

impl Scan {
    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let last = body.brace_token.span.close().end().line;
        let name = signature.ident.to_string();
        self.functions.push((name, line(signature.span()), last));
    }

    /// `.unwrap()` among the tokens of a macro call.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for window in tokens.windows(3) {
            if let [
                TokenTree::Punct(dot),
                TokenTree::Ident(name),
                TokenTree::Group(arguments),
            ] = window
                && dot.as_char() == '.'
                && name == "unwrap"
                && arguments.stream().is_empty()
            {
                self.unwrap(name.span());
            }
        }
        for token in tokens {
            if let TokenTree::Group(group) = token {
                self.tokens(group.stream());
            }
        }
    }

    fn unwrap(&mut self, span: Span) {
        let message = "`unwrap` outside tests: return the error, or `expect` with the invariant";
        self.findings.push((line(span), message.into()));
    }
}

impl<'ast> Visit<'ast> for Scan {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(marks_test) {
            return visit::visit_item(self, item);
        }
        let span = item.span();
        self.tests.push(line(span)..=span.end().line);
        if let Item::Mod(module) = item
            && module.content.is_none()
        {
            self.test_modules.push(module.ident.to_string());
        }
        // Long functions are refused in tests too; the other rules are not for them.
        let mut inside = Scan::default();
        visit::visit_item(&mut inside, item);
        self.functions.append(&mut inside.functions);
    }

    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.function(&f.sig, &f.block);
        visit::visit_item_fn(self, f);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.function(&f.sig, &f.block);
        visit::visit_impl_item_fn(self, f);
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        if let Some(body) = &f.default {
            self.function(&f.sig, body);
        }
        visit::visit_trait_item_fn(self, f);
    }

    fn visit_use_tree(&mut self, tree: &'ast UseTree) {
        if let UseTree::Glob(star) = tree {
            let message = "a glob hides where names come from: list them";
            self.findings.push((line(star.span()), message.into()));
        }
        visit::visit_use_tree(self, tree);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "unwrap" && call.args.is_empty() {
            self.unwrap(call.method.span());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, ...))]`, but not `cfg(not(test))`.
fn marks_test(attribute: &Attribute) -> bool {
    fn names_test(tokens: TokenStream) -> bool {
        let mut negated = false;
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(name) => {
                negated = name == "not";
                name == "test"
            }
            TokenTree::Group(group) => !negated && names_test(group.stream()),
            _ => false,
        })
    }
    let path = attribute.path();
    match &attribute.meta {
        syn::Meta::Path(_) => path.is_ident("test"),
        syn::Meta::List(list) => path.is_ident("cfg") && names_test(list.tokens.clone()),
        syn::Meta::NameValue(_) => false,
    }
}

/// The folder in which a file's modules lie.
fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.into(),
        _ => format!("{folder}/{}", name.trim_end_matches(".rs")),
    }
}

fn is_test(path: &str, test_modules: &[String]) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "benches")
        || test_modules.iter().any(|module| {
            path.strip_prefix(module.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
}

/// A file or a function over its limit.
struct TooLong {
    line: usize,
    /// Empty for the file.
    function: String,
    message: String,
}

fn too_long(file: &File, scan: &Scan) -> Vec<TooLong> {
    let mut found = Vec::new();
    let lines = file.text.lines().count();
    if lines > MAX_FILE_LINES {
        found.push(TooLong {
            line: 0,
            function: String::new(),
            message: format!("{lines} lines; a file has {MAX_FILE_LINES} at most"),
        });
    }
    for (name, first, last) in &scan.functions {
        let lines = last - first + 1;
        if lines > MAX_FUNCTION_LINES {
            found.push(TooLong {
                line: *first,
                function: name.clone(),
                message: format!(
                    "`{name}` has {lines} lines; a function has {MAX_FUNCTION_LINES} at most"
                ),
            });
        }
    }
    found
}

/// Absolute paths of some machine, outside test items.
fn machine_paths(file: &File, scan: &Scan) -> Vec<(usize, String)> {
    let names_one = |text: &str| {
        text.match_indices('/').any(|(at, _)| {
            let starts = !text[..at].ends_with(|c: char| {
                c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '}' | '~' | ':' | '*')
            });
            let first = text[at + 1..].split_once('/').map(|(first, _)| first);
            starts && first.is_some_and(|f| MACHINE_FOLDERS.contains(&f))
        })
    };
    file.text
        .lines()
        .zip(1..)
        .filter(|(text, n)| names_one(text) && !scan.tests.iter().any(|t| t.contains(n)))
        .map(|(_, n)| {
            (
                n,
                "a path of one machine: take it from the user".to_string(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{File, check_with};

    /// The messages for one file.
    fn problems(path: &str, text: &str) -> Vec<String> {
        problems_of(&[(path, text)], &[])
    }

    fn problems_of(files: &[(&str, &str)], long: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File {
                path: path.to_string(),
                text: text.to_string(),
            })
            .collect();
        let found = check_with(&files, long).expect("the example parses");
        found.iter().map(ToString::to_string).collect()
    }

    /// The only problem is on that line and says that.
    fn only(path: &str, text: &str, line: usize, says: &str) {
        let found = problems(path, text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with(&format!("{path}:{line}: ")),
            "{found:?}"
        );
        assert!(found[0].contains(says), "{found:?}");
    }

    const LIB: &str = "crates/ir/src/lib.rs";

    #[test]
    fn a_file_without_a_header() {
        only(LIB, "// no\nfn f() {}\n", 1, "opens with");
        assert!(problems(LIB, "//! Owns f.\nfn f() {}\n").is_empty());
    }

    #[test]
    fn unwrap_in_code_and_in_macros() {
        only(
            LIB,
            "//! a\nfn f(x: Option<u8>) {\n x.unwrap();\n}\n",
            3,
            "unwrap",
        );
        only(
            LIB,
            "//! a\nfn f(x: Option<u8>) {\n g!(1, (x.unwrap()));\n}\n",
            3,
            "unwrap",
        );
        assert!(problems(LIB, "//! a\nfn f(x: Option<u8>) {\n x.unwrap_or(1);\n}\n").is_empty());
        assert!(
            problems(
                LIB,
                "//! a\n// x.unwrap()\nconst A: &str = \"x.unwrap()\";\n"
            )
            .is_empty()
        );
    }

    #[test]
    fn tests_may_unwrap() {
        let body = "mod tests {\n use super::*;\n fn f(x: Option<u8>) { x.unwrap(); }\n}\n";
        assert!(problems(LIB, &format!("//! a\n#[cfg(test)]\n{body}")).is_empty());
        assert!(problems(LIB, &format!("//! a\n#[cfg(all(test, unix))]\n{body}")).is_empty());
        assert_eq!(
            problems(LIB, &format!("//! a\n#[cfg(not(test))]\n{body}")).len(),
            2
        );
        assert!(problems("crates/ir/tests/a.rs", &format!("//! a\n{body}")).is_empty());
    }

    #[test]
    fn the_file_of_a_test_module_is_a_test() {
        let unwraps = "//! a\nfn f(x: Option<u8>) { x.unwrap(); }\n";
        let declared = |attribute: &str, at: &str| {
            let parent = format!("//! a\n{attribute}\nmod cases;\n");
            problems_of(&[("crates/ir/src/a.rs", &parent), (at, unwraps)], &[])
        };
        assert!(declared("#[cfg(test)]", "crates/ir/src/a/cases.rs").is_empty());
        assert!(declared("#[cfg(test)]", "crates/ir/src/a/cases/deep.rs").is_empty());
        assert_eq!(declared("#[cfg(test)]", "crates/ir/src/cases.rs").len(), 1);
        assert_eq!(declared("", "crates/ir/src/a/cases.rs").len(), 1);
    }

    #[test]
    fn globs() {
        only(LIB, "//! a\nuse a::*;\n", 2, "glob");
        only(LIB, "//! a\npub use a::{b, c::*};\n", 2, "glob");
        only(LIB, "//! a\nfn f() {\n use E::*;\n}\n", 3, "glob");
    }

    #[test]
    fn machine_paths() {
        let folder = "home";
        let text = format!("//! a\nconst A: &str = \"/{folder}/me/x\";\n");
        only(LIB, &text, 2, "machine");
        let fine = format!("//! a\n// data/{folder}/x and /proc/self\n");
        assert!(problems(LIB, &fine).is_empty());
        let test = format!("//! a\n#[cfg(test)]\nconst A: &str = \"/{folder}/me/x\";\n");
        assert!(problems(LIB, &test).is_empty());
    }

    #[test]
    fn long_functions_are_refused_in_tests_too() {
        let of = |lines: usize| format!("fn f() {{\n{}}}\n", "g();\n".repeat(lines - 2));
        assert!(problems(LIB, &format!("//! a\n{}", of(80))).is_empty());
        only(LIB, &format!("//! a\n{}", of(81)), 2, "81 lines");
        let test = format!("//! a\n#[cfg(test)]\nmod tests {{\n{}}}\n", of(81));
        only(LIB, &test, 4, "81 lines");
        let method = format!("//! a\nimpl A {{\n{}}}\n", of(81));
        only(LIB, &method, 3, "81 lines");
    }

    #[test]
    fn long_files() {
        let of = |lines: usize| format!("//! a\n{}", "\n".repeat(lines - 1));
        assert!(problems(LIB, &of(800)).is_empty());
        assert_eq!(problems(LIB, &of(801)).len(), 1);
    }

    #[test]
    fn the_list_of_long_ones_wants_a_reason_and_a_need() {
        let long = &[(LIB, "f")][..];
        let body = format!("fn f() {{\n{}}}\n", "g();\n".repeat(80));
        let with = |text: &str| problems_of(&[(LIB, text)], long);
        assert!(with(&format!("//! a\n//! Long: f is one table.\n{body}")).is_empty());
        assert!(with(&format!("//! a\n{body}"))[0].contains("says why"));
        assert!(with("//! a\nfn f() {}\n")[0].contains("take it off"));
    }
}
