//! What the user looks at: how wide it is, and whether it shows colours.
//!
//! A terminal is as wide as it says, or as `COLUMNS` says. What is written to a pipe or a file
//! is [`UNKNOWN`] columns wide unless `COLUMNS` says otherwise. `--wide` has no bounds.

use std::io::IsTerminal;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Columns where nothing tells how many there are.
const UNKNOWN: usize = 120;
/// Narrower screens are treated as if they were so wide.
const LEAST: usize = 40;

/// Whether the user asked for everything. Set once, before anything is printed.
static WIDE: AtomicBool = AtomicBool::new(false);

pub fn set_wide(wide: bool) {
    WIDE.store(wide, Ordering::Relaxed);
}

pub fn is_wide() -> bool {
    WIDE.load(Ordering::Relaxed)
}

/// Columns for what is printed; none where there is no bound.
pub fn bound() -> Option<usize> {
    (!is_wide()).then(|| width(&std::io::stdout()))
}

/// Columns of a stream.
pub fn width(stream: &(impl IsTerminal + AsRawFd)) -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    let terminal = || terminal_columns(stream.as_raw_fd()).filter(|_| stream.is_terminal());
    said.or_else(terminal).unwrap_or(UNKNOWN).max(LEAST)
}

fn terminal_columns(stream: i32) -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the call writes a size to where there is room for one.
    let failed = unsafe { libc::ioctl(stream, libc::TIOCGWINSZ, &raw mut size) } != 0;
    (!failed && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// How a part of a line stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Bold,
    Faint,
    Good,
    Warning,
}

/// Whether a stream shows colours: a terminal does, unless `NO_COLOR` is set
/// (<https://no-color.org>).
pub fn colours(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let plain = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    stream.is_terminal() && !refused && !plain
}

/// Text in a style, where there are colours.
pub fn styled(text: &str, style: Style, colours: bool) -> String {
    if !colours {
        return text.into();
    }
    let code = match style {
        Style::Bold => "1",
        Style::Faint => "2",
        Style::Good => "32",
        Style::Warning => "33",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// The first `width` columns of a line, which ends in `…` if something is left out.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// The lines of a text; each that is longer than `width` is [`wrapped`].
pub fn fitted(text: &str, width: usize, indent: usize) -> String {
    let fit = |line: &str| match line.chars().count() > width {
        true => wrapped(line, width, indent),
        false => line.to_string(),
    };
    text.split('\n').map(fit).collect::<Vec<_>>().join("\n")
}

/// Lines of at most `width` columns, broken between words; all but the first are indented. Wide gaps, which align what
/// is behind them, stay.
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    // What a line begins with is kept.
    let lead: String = text.chars().take_while(|c| *c == ' ').collect();
    lines[0].push_str(&lead);
    let mut empty = true;
    let mut gap = 0;
    for word in text[lead.len()..].split(' ') {
        gap += usize::from(!empty);
        if word.is_empty() {
            continue;
        }
        let line = lines.last_mut().expect("there is a line");
        let length = line.chars().count() + gap + word.chars().count();
        match !empty && length > width {
            true => lines.push(" ".repeat(indent) + word),
            false => {
                line.push_str(&" ".repeat(gap));
                line.push_str(word);
            }
        }
        (empty, gap) = (false, 0);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_fit_stay_as_they_are() {
        let text = "a  table\nfour words of text";
        assert_eq!(fitted(text, 10, 2), "a  table\nfour words\n  of text");
    }

    #[test]
    fn lines_are_broken_between_words_and_indented() {
        assert_eq!(wrapped("one two three", 80, 2), "one two three");
        assert_eq!(wrapped("  one two three", 9, 4), "  one two\n    three");
        assert_eq!(
            wrapped("incomprehensible word", 6, 1),
            "incomprehensible\n word"
        );
        assert_eq!(wrapped("", 9, 4), "");
        assert_eq!(
            wrapped("clock      30 ns at the least", 18, 4),
            "clock      30 ns\n    at the least"
        );
        assert_eq!(wrapped("trailing   ", 9, 4), "trailing");
    }

    #[test]
    fn cut_lines_say_so() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(styled("a", Style::Good, false), "a");
        assert!(styled("a", Style::Good, true).contains("\u{1b}["));
    }
}
