//! What the parser of the command line prints, made to fit the screen.
//!
//! Promises that an example of a help page can be copied: one that is longer than the screen goes on behind a backslash.

use super::screen;
use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::io::stderr;
use std::process::exit;

/// The parser writes no longer lines, however wide the screen is.
const MOST: usize = 100;
/// Before what goes on.
const INDENT: usize = 6;

/// A command and its subcommands with examples that fit the screen.
pub fn with_fitting_examples(command: Command) -> Command {
    let width = screen::width(&std::io::stdout()).min(MOST);
    with_examples_of(command, width)
}

fn with_examples_of(command: Command, width: usize) -> Command {
    let command = command.mut_subcommands(|c| with_examples_of(c, width));
    match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(fitting(&text, width)),
        None => command,
    }
}

/// A text below a help page: examples are broken at backslashes, and the lines of a paragraph are joined, as the parser
/// breaks them itself.
fn fitting(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut in_paragraph = false;
    for line in text.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
        match lines.last_mut().filter(|_| is_prose && in_paragraph) {
            Some(last) => *last += &format!(" {line}"),
            None if line.starts_with(' ') => lines.push(example(line, width)),
            None => lines.push(line.into()),
        }
        in_paragraph = is_prose;
    }
    lines.join("\n")
}

/// A command line, broken between its words where it is too long.
fn example(line: &str, width: usize) -> String {
    const MORE: &str = " \\";
    if line.chars().count() <= width {
        return line.into();
    }
    let lead: String = line.chars().take_while(|c| *c == ' ').collect();
    let mut lines = vec![String::new()];
    for word in flags(line.trim_start()) {
        let last = lines.last_mut().expect("there is a line");
        let before = match last.is_empty() {
            true => 0,
            false => last.chars().count() + 1,
        };
        let used = lead.len().max(INDENT) + before + word.chars().count() + MORE.len();
        match (before, used > width) {
            (0, _) => last.push_str(&word),
            (_, false) => *last += &format!(" {word}"),
            (_, true) => lines.push(word),
        }
    }
    lead + &lines.join(&format!("{MORE}\n{}", " ".repeat(INDENT)))
}

/// The words of a command line, each flag with its value.
fn flags(line: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for word in words(line) {
        match parts.last_mut() {
            Some(flag)
                if flag.starts_with('-') && !flag.contains(' ') && !word.starts_with('-') =>
            {
                *flag += &format!(" {word}");
            }
            _ => parts.push(word.into()),
        }
    }
    parts
}

/// The words of a command line: spaces between quotes part none.
fn words(line: &str) -> Vec<&str> {
    let mut quoted = false;
    let parts = line.split(|c: char| {
        quoted ^= c == '\'';
        c == ' ' && !quoted
    });
    parts.filter(|w| !w.is_empty()).collect()
}

/// Ends the program as the parser would, with lines that fit the screen, and without advice that leads nowhere: no
/// command takes the name of a flag as a value.
pub fn refuse(mut error: clap::Error) -> ! {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested)
    {
        let useful = |tip: &StyledStr| !tip.to_string().starts_with("to pass");
        let tips: Vec<StyledStr> = tips.into_iter().filter(useful).collect();
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    let text = error.to_string();
    let width = screen::width(&stderr());
    if !error.use_stderr() || text.lines().all(|l| l.chars().count() <= width) {
        error.exit();
    }
    eprint!("{}", screen::fitted(&text, width, 4));
    exit(error.exit_code());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_example_goes_on_behind_a_backslash() {
        let line = "  tunesmith study strategies 'op:conv2d(c=16, h=32)' --strategies funnel,random --out study";
        assert_eq!(
            example(line, 60),
            "  tunesmith study strategies 'op:conv2d(c=16, h=32)' \\\n      --strategies funnel,random --out study"
        );
        assert_eq!(example(line, 100), line);
        let joined: Vec<String> = [40, 60, 80]
            .map(|w| example(line, w).replace("\\\n", ""))
            .into();
        for text in joined {
            assert_eq!(words(&text), words(line));
        }
    }

    #[test]
    fn paragraphs_are_left_to_the_parser() {
        let text =
            "Examples:\n  tunesmith keys a.key\n\nA signature says\nwho wrote it.\n\nKeep it.";
        assert_eq!(
            fitting(text, 80),
            "Examples:\n  tunesmith keys a.key\n\nA signature says who wrote it.\n\nKeep it."
        );
    }

    #[test]
    fn every_example_fits_and_has_the_words_that_it_had() {
        fn all(command: &Command, check: &mut dyn FnMut(&str)) {
            if let Some(text) = command.get_after_help() {
                check(&text.to_string());
            }
            command.get_subcommands().for_each(|c| all(c, check));
        }
        let mut long = 0;
        let mut check = |text: &str| {
            for line in text.lines().filter(|l| l.starts_with(' ')) {
                long += usize::from(line.len() > 80);
                let broken = example(line, 80);
                let fits = |l: &str| l.chars().count() <= 80 || words(l).len() <= 2;
                assert!(broken.lines().all(fits), "{broken}");
                assert_eq!(words(&broken.replace("\\\n", "")), words(line));
            }
        };
        all(
            &<super::super::Cli as clap::CommandFactory>::command(),
            &mut check,
        );
        assert!(long > 3, "{long} long examples");
    }
}
