//! File tests: text in, text out.
//!
//! ```text
//! ; test interpret 17
//! program p { … }
//! ;; in trace
//! split(…)
//! ;; out result
//! …
//! ```
//!
//! The first line names the kind of the test and its arguments. What follows,
//! up to the first `;;` line, is the input `program`; further inputs and the
//! expected outputs come in sections. A section's text is what stands between
//! its `;;` line and the next, without blank lines at either end. With `BLESS=1` in the
//! environment the outputs are written into the file instead of compared:
//! read the difference before committing it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// One file.
#[derive(Clone, Debug)]
pub struct FileTest {
    pub path: PathBuf,
    /// The first word after `; test`.
    pub kind: String,
    /// The words after the kind.
    pub arguments: Vec<String>,
    inputs: Vec<Section>,
    outputs: Vec<Section>,
}

/// A named text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    pub text: String,
}

impl Section {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Section {
        Section {
            name: name.into(),
            text: text.into(),
        }
    }
}

impl FileTest {
    /// Reads the text of a file.
    pub fn parse(path: &Path, text: &str) -> Result<FileTest, String> {
        let mut lines = text.lines();
        let header = lines.next().and_then(|l| l.strip_prefix("; test "));
        let mut words = header.unwrap_or("").split_whitespace().map(String::from);
        let Some(kind) = words.next() else {
            return Err("the first line is not `; test KIND`".into());
        };
        let mut sections = vec![(true, Section::new("program", ""))];
        for (i, line) in lines.enumerate() {
            let Some(head) = line.strip_prefix(";;") else {
                let (_, section) = sections.last_mut().expect("there is a first section");
                section.text += line;
                section.text.push('\n');
                continue;
            };
            let words: Vec<&str> = head.split_whitespace().collect();
            let input = match words.as_slice() {
                ["in", _] => true,
                ["out", _] => false,
                _ => return Err(format!("line {}: not `;; in NAME` or `;; out NAME`", i + 2)),
            };
            sections.push((input, Section::new(words[1], "")));
        }
        let (mut inputs, mut outputs) = (vec![], vec![]);
        for (i, (input, mut section)) in sections.into_iter().enumerate() {
            // The program keeps its first lines, for the places in messages.
            section.text = match i {
                0 => section.text.trim_end().to_string() + "\n",
                _ => trimmed(&section.text),
            };
            let list = if input { &mut inputs } else { &mut outputs };
            if list.iter().any(|s: &Section| s.name == section.name) {
                return Err(format!("two sections are named `{}`", section.name));
            }
            list.push(section);
        }
        Ok(FileTest {
            path: path.to_path_buf(),
            kind,
            arguments: words.collect(),
            inputs,
            outputs,
        })
    }

    /// The text of an input section.
    pub fn input(&self, name: &str) -> Result<&str, String> {
        let section = self.inputs.iter().find(|s| s.name == name);
        section
            .map(|s| s.text.as_str())
            .ok_or_else(|| format!("there is no section `;; in {name}`"))
    }

    /// The first input, parsed and verified.
    pub fn program(&self) -> Result<ir::Program, String> {
        // The header is the file's first line.
        let text = format!("\n{}", self.input("program")?);
        let program = ir::text::parse(&text).map_err(|e| e.to_string())?;
        match ir::verify::verify(&program).as_slice() {
            [] => Ok(program),
            broken => Err(broken
                .iter()
                .fold("the program is broken".into(), |text, b| {
                    format!("{text}\n  {b}")
                })),
        }
    }

    /// The file with these outputs in place of its own.
    fn with_outputs(&self, outputs: &[Section]) -> String {
        let mut text = format!("; test {}", self.kind);
        for a in &self.arguments {
            let _ = write!(text, " {a}");
        }
        text.push('\n');
        let (program, inputs) = self.inputs.split_first().expect("the program is the first");
        text += &program.text;
        for (word, sections) in [("in", inputs), ("out", outputs)] {
            for s in sections {
                let _ = write!(text, "\n;; {word} {}\n{}", s.name, trimmed(&s.text));
            }
        }
        text
    }

    /// How the outputs differ from the expected ones, if they do.
    fn difference(&self, outputs: &[Section]) -> Option<String> {
        let names = |s: &[Section]| s.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
        let (expected, found) = (names(&self.outputs), names(outputs));
        if expected != found {
            return Some(format!(
                "expected the outputs {expected:?}, got {found:?}\n"
            ));
        }
        let pairs = self.outputs.iter().zip(outputs);
        let mut text = String::new();
        for (expected, found) in pairs {
            let found_text = trimmed(&found.text);
            if expected.text != found_text {
                let lines = lines_apart(&expected.text, &found_text);
                let _ = write!(text, "output `{}`:\n{lines}", expected.name);
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Without blank lines at either end, and with one line break at the end.
fn trimmed(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let start = lines
        .iter()
        .position(|l| !l.is_empty())
        .unwrap_or(lines.len());
    let end = lines
        .iter()
        .rposition(|l| !l.is_empty())
        .map_or(start, |e| e + 1);
    lines[start..end]
        .iter()
        .fold(String::new(), |t, l| t + l + "\n")
}

/// The lines between the common head and the common tail.
fn lines_apart(expected: &str, found: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[head..], &b[head..]);
    let tails = a.iter().rev().zip(b.iter().rev());
    let tail = tails.take_while(|(x, y)| x == y).count();
    let mut text = format!("from line {}\n", head + 1);
    for (sign, lines) in [('-', &a[..a.len() - tail]), ('+', &b[..b.len() - tail])] {
        for l in lines {
            let _ = writeln!(text, "{sign} {l}");
        }
    }
    text
}

/// Runs `f` on every `*.txt` file under `folder` of that kind and compares
/// what it gives with the file's outputs; rewrites them if `BLESS` is set.
///
/// # Panics
/// With a report, if any output differs, a file cannot be read, `f` refuses
/// one, or there is no file of the kind.
pub fn run(
    folder: impl AsRef<Path>,
    kind: &str,
    f: impl FnMut(&FileTest) -> Result<Vec<Section>, String>,
) {
    let bless = std::env::var_os("BLESS").is_some_and(|v| v == "1");
    if let Err(report) = check_folder(folder.as_ref(), kind, bless, f) {
        panic!("{report}");
    }
}

/// As [`run`], with the report as the error, else the number of files.
pub fn check_folder(
    folder: &Path,
    kind: &str,
    bless: bool,
    mut f: impl FnMut(&FileTest) -> Result<Vec<Section>, String>,
) -> Result<usize, String> {
    let (mut count, mut report) = (0, String::new());
    for path in files_under(folder)? {
        let result = check_file(&path, kind, bless, &mut f);
        match result {
            Ok(ran) => count += usize::from(ran),
            Err(e) => {
                let _ = writeln!(report, "{}: {e}", path.display());
            }
        }
    }
    if !report.is_empty() {
        return Err(format!("{report}BLESS=1 accepts outputs as they are now"));
    }
    match count {
        0 => Err(format!(
            "no `; test {kind}` file under {}",
            folder.display()
        )),
        n => Ok(n),
    }
}

/// Whether the file is of the kind; the error says what is wrong with it.
fn check_file(
    path: &Path,
    kind: &str,
    bless: bool,
    f: &mut impl FnMut(&FileTest) -> Result<Vec<Section>, String>,
) -> Result<bool, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let test = FileTest::parse(path, &text)?;
    if test.kind != kind {
        return Ok(false);
    }
    let outputs = f(&test)?;
    if outputs.is_empty() {
        return Err("the test gives no output, so it cannot fail".into());
    }
    let Some(difference) = test.difference(&outputs) else {
        return Ok(true);
    };
    if !bless {
        return Err(difference);
    }
    std::fs::write(path, test.with_outputs(&outputs)).map_err(|e| e.to_string())?;
    Ok(true)
}

/// The `*.txt` files, in the order of their paths.
fn files_under(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let error = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if path.is_dir() {
            out.extend(files_under(&path)?);
        } else if path.extension().is_some_and(|e| e == "txt") {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}
