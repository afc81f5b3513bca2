//! File tests: text in, text out.
//!
//! ```text
//! ; test step split
//! ; Comments may follow the header.
//!
//! ;; case Factors that divide the extent need no guard.
//! program p { … }
//! ;; in trace
//! split i [2, 4]
//! ;; out program
//! program p { … }
//!
//! ;; case A loop that is not there is refused.
//! ;; in trace
//! split k [2]
//! ;; out illegal
//! split `k`: there is no such loop
//! ```
//!
//! A [`Suite`] is a folder of files, one a subject (a step, a pass), named
//! after its subject. The header names the kind of the test, the subject, and
//! what else the suite asks for. Then come the cases: after `;; case` one line
//! of plain English says what is promised. The text under that line is the
//! program; a case without one takes the program of the case before. Further
//! inputs follow in `;; in NAME` sections, and the expected outputs, last, in
//! `;; out NAME` sections. Blank lines at either end of a section do not count.
//!
//! With `TUNESMITH_BLESS=1` in the environment the outputs of a run replace the
//! `;; out` sections of the files, and nothing else in them changes: a new case
//! is written without its outputs, blessed, and read. A subject without a file,
//! and a file without a subject, fail.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The environment variable that lets [`run`] rewrite the expected outputs.
pub const BLESS: &str = "TUNESMITH_BLESS";

/// Equal lines shown round a difference.
const CONTEXT: usize = 3;

/// A folder of file tests.
#[derive(Clone, Copy, Debug)]
pub struct Suite<'a> {
    pub folder: &'a Path,
    /// The first word after `; test`.
    pub kind: &'a str,
    /// What is tested: each has one file, `SUBJECT.txt`.
    pub subjects: &'a [&'a str],
    /// What follows the subject in the header, as messages call it; `None` if
    /// nothing may follow.
    pub setting: Option<&'a str>,
}

/// One case of a file.
#[derive(Clone, Debug)]
pub struct Case {
    pub subject: String,
    /// The header after the subject.
    pub setting: String,
    /// What is promised, in one line.
    pub promise: String,
    /// Where the case starts in its file, from 1.
    pub line: usize,
    /// The first line of the program, from 1, and its text.
    program: Option<(usize, String)>,
    inputs: Vec<Section>,
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

impl Case {
    /// The text of the input section of that name.
    pub fn input(&self, name: &str) -> Result<&str, String> {
        let section = self.inputs.iter().find(|s| s.name == name);
        section
            .map(|s| s.text.as_str())
            .ok_or_else(|| format!("there is no section `;; in {name}`"))
    }

    /// The program, parsed and verified.
    pub fn program(&self) -> Result<ir::Program, String> {
        let (line, text) = self.program.as_ref().ok_or("there is no program")?;
        // With the lines above it, so that messages name lines of the file.
        let text = "\n".repeat(line - 1) + text;
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
}

/// Runs `f` on every case of the suite and compares what it gives with the
/// expected outputs, or replaces them if `TUNESMITH_BLESS` is 1.
///
/// # Panics
/// With a report, if an output differs, a file is malformed or missing, or `f`
/// refuses a case.
pub fn run(suite: &Suite<'_>, f: impl FnMut(&Case) -> Result<Vec<Section>, String>) {
    let bless = std::env::var_os(BLESS).is_some_and(|v| v == "1");
    if let Err(report) = check(suite, bless, f) {
        panic!("{report}");
    }
}

/// As [`run`], with the report as the error, else the number of cases.
pub fn check(
    suite: &Suite<'_>,
    bless: bool,
    mut f: impl FnMut(&Case) -> Result<Vec<Section>, String>,
) -> Result<usize, String> {
    let mut report = String::new();
    let mut count = 0;
    for stem in strangers(suite)? {
        let (kind, folder) = (suite.kind, suite.folder.display());
        let _ = writeln!(report, "{folder}/{stem}.txt: there is no {kind} `{stem}`");
    }
    for subject in suite.subjects {
        let path = path_of(suite, subject);
        match check_file(suite, subject, bless, &mut f) {
            Ok((cases, found)) => {
                count += cases;
                report += &found;
            }
            Err(e) => {
                let _ = writeln!(report, "{}: {e}", path.display());
            }
        }
    }
    match report.is_empty() {
        true => Ok(count),
        false => Err(report),
    }
}

fn path_of(suite: &Suite<'_>, subject: &str) -> PathBuf {
    suite.folder.join(format!("{subject}.txt"))
}

/// The files of the folder that no subject has, without `.txt`.
fn strangers(suite: &Suite<'_>) -> Result<Vec<String>, String> {
    let folder = suite.folder;
    let error = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let name = entry.map_err(error)?.file_name();
        let name = name.to_string_lossy();
        let stem = name.strip_suffix(".txt");
        out.extend(
            stem.filter(|s| !suite.subjects.contains(s))
                .map(str::to_string),
        );
    }
    out.sort();
    Ok(out)
}

/// The number of cases, and what is wrong with them.
fn check_file(
    suite: &Suite<'_>,
    subject: &str,
    bless: bool,
    f: &mut impl FnMut(&Case) -> Result<Vec<Section>, String>,
) -> Result<(usize, String), String> {
    let path = path_of(suite, subject);
    let text = match std::fs::read_to_string(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let kind = suite.kind;
            return Err(format!("the {kind} `{subject}` needs this file"));
        }
        text => text.map_err(|e| e.to_string())?,
    };
    let lines: Vec<&str> = text.lines().collect();
    let setting = header(suite, subject, lines.first().unwrap_or(&""))?;
    let cases = cases(subject, setting, &lines)?;
    let mut report = String::new();
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (case, at) in &cases {
        let place = format!("{}:{}: {}", path.display(), case.line, case.promise);
        match f(case) {
            Err(e) => {
                let _ = writeln!(report, "{place}\n{e}");
            }
            Ok(outputs) if outputs.is_empty() => {
                let _ = writeln!(report, "{place}\nthe case gives no output: it cannot fail");
            }
            Ok(outputs) => {
                let found = rendered(&outputs);
                let expected = &lines[at.clone()];
                if *expected == found.lines().collect::<Vec<_>>() {
                    continue;
                }
                if bless {
                    edits.push((at.clone(), found));
                    continue;
                }
                let difference = difference(expected, &found, at.start + 1);
                let _ = writeln!(
                    report,
                    "{place}\n{difference}{BLESS}=1 takes the lines with `+` for those with `-`"
                );
            }
        }
    }
    if !edits.is_empty() {
        std::fs::write(&path, edited(&lines, &edits)).map_err(|e| e.to_string())?;
    }
    Ok((cases.len(), report))
}

/// What follows the subject in the header.
fn header(suite: &Suite<'_>, subject: &str, line: &str) -> Result<String, String> {
    let setting = suite.setting.map(|s| format!(" {s}")).unwrap_or_default();
    let wanted = format!("; test {} {subject}", suite.kind);
    let rest = line
        .strip_prefix(&wanted)
        .filter(|rest| match suite.setting {
            Some(_) => rest.starts_with(' ') && !rest.trim().is_empty(),
            None => rest.trim().is_empty(),
        });
    rest.map(|r| r.trim().to_string())
        .ok_or_else(|| format!("the first line is `{line}`, not `{wanted}{setting}`"))
}

/// The cases of a file, each with the lines of its outputs.
fn cases(
    subject: &str,
    setting: String,
    lines: &[&str],
) -> Result<Vec<(Case, Range<usize>)>, String> {
    let heads = |from: usize| (from..lines.len()).filter(|i| lines[*i].starts_with(";;"));
    let first = heads(1).next().unwrap_or(lines.len());
    let stray = (1..first).find(|i| !lines[*i].is_empty() && !lines[*i].starts_with(';'));
    if let Some(i) = stray {
        return Err(format!("line {}: text before the first `;; case`", i + 1));
    }
    let mut out: Vec<(Case, Range<usize>)> = Vec::new();
    for i in heads(1) {
        let error = |why: &str| Err(format!("line {}: {why}", i + 1));
        let body = i + 1..heads(i + 1).next().unwrap_or(lines.len());
        let words: Vec<&str> = lines[i][2..].split_whitespace().collect();
        if let ["case", promise @ ..] = &words[..] {
            let promise = promise.join(" ");
            if promise.is_empty() {
                return error("the case has no promise: `;; case ONE LINE OF PLAIN ENGLISH`");
            }
            if out.iter().any(|(c, _)| c.promise == promise) {
                return error("an earlier case has the same promise");
            }
            let own = trimmed(lines, body.clone());
            let program = match lines[own.clone()].join("\n") {
                text if text.is_empty() => out.last().and_then(|(c, _)| c.program.clone()),
                text => Some((own.start + 1, text)),
            };
            let end = own.end.max(i + 1);
            let case = Case {
                subject: subject.to_string(),
                setting: setting.clone(),
                promise,
                line: i + 1,
                program,
                inputs: vec![],
            };
            out.push((case, end..end));
            continue;
        }
        let Some((case, outputs)) = out.last_mut() else {
            return error("a section before the first `;; case`");
        };
        let own = trimmed(lines, body);
        match words[..] {
            ["in", _] if outputs.start < outputs.end => {
                return error("an input after the outputs of its case");
            }
            ["in", name] => {
                if case.inputs.iter().any(|s| s.name == name) {
                    return error("the case has an input of that name");
                }
                let text = lines[own.clone()].join("\n");
                case.inputs.push(Section::new(name, text));
                *outputs = own.end.max(i + 1)..own.end.max(i + 1);
            }
            ["out", _] => {
                let start = match outputs.start < outputs.end {
                    true => outputs.start,
                    false => i,
                };
                *outputs = start..own.end.max(i + 1);
            }
            _ => return error("not `;; case PROMISE`, `;; in NAME` or `;; out NAME`"),
        }
    }
    match out.is_empty() {
        true => Err("there is no `;; case`".into()),
        false => Ok(out),
    }
}

/// The lines without blank ones at either end.
fn trimmed(lines: &[&str], body: Range<usize>) -> Range<usize> {
    let full = |i: &usize| !lines[*i].trim().is_empty();
    let start = body.clone().find(full).unwrap_or(body.start);
    let end = body.rev().find(full).map_or(start, |i| i + 1);
    start..end
}

/// The outputs as they stand in a file.
fn rendered(outputs: &[Section]) -> String {
    let mut out = String::new();
    for s in outputs {
        let _ = writeln!(out, ";; out {}", s.name);
        let lines: Vec<&str> = s.text.lines().map(str::trim_end).collect();
        for i in trimmed(&lines, 0..lines.len()) {
            let _ = writeln!(out, "{}", lines[i]);
        }
    }
    out
}

/// The file with other lines in the places of some.
fn edited(lines: &[&str], edits: &[(Range<usize>, String)]) -> String {
    let mut out = String::new();
    let mut next = 0;
    for (at, text) in edits {
        for line in &lines[next..at.start] {
            let _ = writeln!(out, "{line}");
        }
        out += text;
        next = at.end;
    }
    for line in &lines[next..] {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Lines to remove with `-`, lines to add with `+`, and the equal ones round
/// them. `first` is the line of the file at which the expected ones start.
fn difference(expected: &[&str], found: &str, first: usize) -> String {
    let found: Vec<&str> = found.lines().collect();
    let marked = aligned(expected, &found);
    let near = |i: usize| {
        let from = i.saturating_sub(CONTEXT);
        let to = (i + CONTEXT + 1).min(marked.len());
        marked[from..to].iter().any(|(sign, _)| *sign != ' ')
    };
    let mut out = String::new();
    let mut line = first;
    let mut shown = false;
    for (i, (sign, text)) in marked.iter().enumerate() {
        if near(i) {
            if !shown {
                let _ = writeln!(out, "@@ line {line} @@");
            }
            let _ = writeln!(out, "{}", format!("{sign} {text}").trim_end());
        }
        shown = near(i);
        line += usize::from(*sign != '+');
    }
    out
}

/// Both texts in one: a longest common subsequence with ` `, the rest of `a`
/// with `-` and of `b` with `+`.
fn aligned<'a>(a: &[&'a str], b: &[&'a str]) -> Vec<(char, &'a str)> {
    // longest[i][j]: of the lines from a[i] and b[j] on.
    let mut longest = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i][j] = match a[i] == b[j] {
                true => longest[i + 1][j + 1] + 1,
                false => longest[i + 1][j].max(longest[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            out.push((' ', a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            out.push(('-', a[i]));
            i += 1;
        } else {
            out.push(('+', b[j]));
            j += 1;
        }
    }
    out
}
