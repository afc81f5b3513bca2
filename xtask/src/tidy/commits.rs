//! Commits that documents name: each is in the history of what is checked out, or
//! nobody can go back to it.
//!
//! A word of seven or more hexadecimal digits, of which one is decimal, is taken for a
//! commit, outside code spans and fractions: long numbers are written with commas.

use super::Problem;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const SHORTEST: usize = 7;
const LONGEST: usize = 40;

/// All commits named in tracked Markdown files that are not ancestors of HEAD. The error
/// says why this checkout cannot tell.
pub fn check(root: &Path) -> Result<Vec<Problem>, String> {
    if git(root, &["rev-parse", "--is-shallow-repository"])?.trim() != "false" {
        return Err("this clone is shallow".into());
    }
    let history = git(root, &["rev-list", "HEAD"])?;
    let history: BTreeSet<&str> = history.lines().collect();
    let mut problems = Vec::new();
    for path in git(root, &["ls-files", "*.md"])?.lines() {
        let text = std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"))?;
        problems.extend(unknown(path, &text, &history));
    }
    Ok(problems)
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output()
        .map_err(|e| format!("git does not run: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().next().unwrap_or("no message");
        return Err(format!("there is no history: {line}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn unknown(path: &str, text: &str, history: &BTreeSet<&str>) -> Vec<Problem> {
    let known = |name: &str| {
        let next = history.range(name..).next();
        next.is_some_and(|full| full.starts_with(name))
    };
    let problem = |(line, name): (usize, String)| Problem {
        path: path.into(),
        line,
        message: format!("the commit {name} is not in the history of HEAD"),
    };
    let names = commits(text).into_iter().filter(|(_, name)| !known(name));
    names.map(problem).collect()
}

/// What a text names, with lines from 1.
fn commits(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (i, line) in text.lines().enumerate() {
        // A span may go over lines, but not over paragraphs.
        in_code &= !line.trim().is_empty();
        for (n, part) in line.split('`').enumerate() {
            in_code ^= n > 0;
            if !in_code {
                found.extend(words(part).map(|w| (i + 1, w.to_string())));
            }
        }
    }
    found
}

/// The words of a text that look like commits.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ',' | '_' | '/' | '#');
    let all = text.split(move |c| !word(c));
    all.map(|w| w.trim_end_matches(['.', ','])).filter(|w| {
        let hex = w.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let digit = w.bytes().any(|b| b.is_ascii_digit());
        (SHORTEST..=LONGEST).contains(&w.len()) && hex && digit
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        commits(text).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn what_looks_like_a_commit_is_one() {
        let text = "Commit 2632847, at 0d48406. (42b6e64eb30b) | 1854578 | cc990da |";
        let expected = ["2632847", "0d48406", "42b6e64eb30b", "1854578", "cc990da"];
        assert_eq!(names(text), expected);
    }

    #[test]
    fn numbers_words_and_code_are_none() {
        for text in [
            "20,000,000 of 1234567.5 and 0.1234567",
            "defaced and effaced",
            "`--candidates 1000000`, and `a span\nover lines 1000000`",
            "e8b8c5 is too short, layers/e8b8c58.md a path",
        ] {
            assert_eq!(names(text), [""; 0], "{text}");
        }
        // A quote that is not closed ends with its paragraph.
        assert_eq!(names("a ` quote\n\nof e8b8c58"), ["e8b8c58"]);
    }

    #[test]
    fn what_is_not_in_the_history_is_named_with_its_line() {
        let history = BTreeSet::from(["0123456789abcdef0123", "fedcba9876543210fedc"]);
        let found = unknown("f.md", "at 0123456 and\nfedcba9, fedcba0", &history);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, &*found[0].path), (2, "f.md"));
        assert!(found[0].message.contains("fedcba0"), "{found:?}");
    }

    #[test]
    fn what_has_no_history_says_so() {
        let folder = std::env::temp_dir();
        assert!(check(&folder).is_err());
    }
}
