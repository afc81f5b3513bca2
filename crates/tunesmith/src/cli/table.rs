//! Plain tables that fit the screen.

use super::screen::{self, Style, cut, styled};
use tune::Result;

/// Columns of text are left-aligned, columns of numbers right-aligned. A table that is too wide
/// loses columns in the order that [`Table::dispensable`] gives, and then cuts its longest texts.
pub struct Table {
    rows: Vec<Vec<String>>,
    dispensable: Vec<&'static str>,
    /// A column whose texts are cut by a function of their own, and its greatest width.
    cut_by: Option<(&'static str, usize, Cut)>,
    /// Lines below rows, by the number of the row.
    notes: Vec<(usize, String)>,
    /// What becomes of rows in colours.
    styles: Vec<Option<Style>>,
}

/// What makes of a text one of at most so many characters.
type Cut = fn(&str, usize) -> String;

/// Between columns.
const GAP: usize = 2;
/// Texts are not cut below this.
const LEAST: usize = 12;
/// Nor are those of a table without bounds longer than this.
const MOST: usize = 200;

impl Table {
    pub fn new(header: &[&str]) -> Table {
        Table {
            rows: vec![header.iter().map(ToString::to_string).collect()],
            dispensable: vec![],
            cut_by: None,
            notes: vec![],
            styles: vec![],
        }
    }

    /// Columns that a narrow table does without, the first to go first.
    #[must_use]
    pub fn dispensable(mut self, columns: &[&'static str]) -> Table {
        self.dispensable = columns.to_vec();
        self
    }

    /// Has this function cut the texts of a column to so many characters at most, where others lose their end.
    #[must_use]
    pub fn cut_by(mut self, column: &'static str, most: usize, cut: Cut) -> Table {
        self.cut_by = Some((column, most, cut));
        self
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
        self.styles.push(None);
    }

    /// A line below the last row, which no column is cut for.
    pub fn note(&mut self, text: String) {
        self.notes.push((self.rows.len() - 1, text));
    }

    /// A row that stands out where there are colours.
    pub fn styled_row(&mut self, cells: Vec<String>, style: Option<Style>) {
        self.rows.push(cells);
        self.styles.push(style);
    }

    pub fn print(&self) -> Result<()> {
        super::print_text(&self.text())
    }

    /// What `print` prints.
    pub fn text(&self) -> String {
        self.fitted(screen::bound(), screen::colours(&std::io::stdout()))
    }

    /// The table in so many columns of a screen.
    fn fitted(&self, bound: Option<usize>, colours: bool) -> String {
        let mut columns: Vec<usize> = (0..self.rows[0].len()).collect();
        let mut widths = self.widths();
        let mut dropped = Vec::new();
        let total = |columns: &[usize], widths: &[usize]| {
            let gaps = GAP * columns.len().saturating_sub(1);
            columns.iter().map(|c| widths[*c]).sum::<usize>() + gaps
        };
        let bound = bound.unwrap_or(usize::MAX);
        for name in &self.dispensable {
            if total(&columns, &widths) <= bound {
                break;
            }
            let of_name = |c: &usize| self.rows[0][*c] == *name;
            if let Some(at) = columns.iter().position(of_name) {
                columns.remove(at);
                dropped.push(*name);
            }
        }
        while total(&columns, &widths) > bound {
            let texts = columns.iter().filter(|c| !self.is_numbers(**c));
            // Texts that are cut with care lose letters last.
            let to_lose = |c: &usize| match self.cut_of(*c) {
                Some(_) => (false, widths[*c]),
                None => (widths[*c] > LEAST, widths[*c]),
            };
            let Some(longest) = texts.copied().max_by_key(to_lose) else {
                break;
            };
            if widths[longest] <= LEAST {
                break;
            }
            widths[longest] -= 1;
        }
        let mut text = String::new();
        for (i, row) in self.rows.iter().enumerate() {
            let line = self.line(row, &columns, &widths);
            let style = match i {
                0 => Some(Style::Bold),
                i => self.styles[i - 1],
            };
            text += &style.map_or(line.clone(), |s| styled(&line, s, colours));
            text.push('\n');
            for (_, note) in self.notes.iter().filter(|(row, _)| *row == i) {
                text += note;
                text.push('\n');
            }
            if i == 0 {
                let rule = "-".repeat(total(&columns, &widths));
                text += &styled(&rule, Style::Faint, colours);
                text.push('\n');
            }
        }
        if !dropped.is_empty() {
            let names: Vec<&str> = self.rows[0]
                .iter()
                .map(String::as_str)
                .filter(|n| !n.is_empty() && dropped.contains(n))
                .collect();
            let note = format!("(--wide also shows: {})", names.join(", "));
            text += &styled(&note, Style::Faint, colours);
            text.push('\n');
        }
        text
    }

    fn line(&self, row: &[String], columns: &[usize], widths: &[usize]) -> String {
        let cell = |c: &usize| {
            let w = widths[*c];
            let cut = self.cut_of(*c).map_or(cut as Cut, |(_, own)| own);
            let text = row.get(*c).map_or(String::new(), |s| cut(s, w));
            match self.is_numbers(*c) {
                true => format!("{text:>w$}"),
                false => format!("{text:<w$}"),
            }
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        cells.join(&" ".repeat(GAP)).trim_end().to_string()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |c: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(c));
            let longest = cells.map(|s| s.chars().count()).max();
            let most = self.cut_of(c).map_or(MOST, |(most, _)| most);
            longest.unwrap_or(0).min(most)
        };
        (0..self.rows[0].len()).map(width).collect()
    }

    /// What cuts a column that has a function of its own, and its greatest width.
    fn cut_of(&self, column: usize) -> Option<(usize, Cut)> {
        let (name, most, cut) = self.cut_by?;
        (self.rows[0][column] == name).then_some((most, cut))
    }

    /// Whether a column has numbers only, or nothing.
    fn is_numbers(&self, column: usize) -> bool {
        let number = |s: &String| {
            let first = s
                .trim_start_matches(['+', '-', '>', '<', '~'])
                .chars()
                .next();
            first.is_none_or(|c| c.is_ascii_digit() || c == '.')
        };
        let mut cells = self.rows.iter().skip(1).filter_map(|r| r.get(column));
        column > 0 && cells.all(number)
    }
}

/// A count in at most six characters or so.
pub fn count(n: u64) -> String {
    if n < 100_000 {
        return n.to_string();
    }
    format!("{:.1e}", n as f64)
}

/// So many of what this word says.
pub fn counted(n: u32, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// A time that may be missing.
pub fn ms(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| match v {
        v if v < 0.001 => format!("{v:.5}"),
        v if v < 0.1 => format!("{v:.4}"),
        v => format!("{v:.3}"),
    })
}

/// How many times as fast something is.
pub fn times(v: f64) -> String {
    match v {
        v if v >= 9.95 => format!("{v:.1}x"),
        v => format!("{v:.2}x"),
    }
}

/// An accuracy that an artifact may not tell.
pub fn or_unknown(accuracy: &str) -> &str {
    match accuracy {
        "" => "unknown",
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut t = Table::new(&["task", "uses", "ms", "algorithm"]).dispensable(&["uses", "ms"]);
        let row = |cells: [&str; 4]| cells.map(String::from).to_vec();
        t.row(row(["conv2d 64>64 56x56 3x3", "12", "0.125", "winograd"]));
        t.row(row(["dense", "1", "-", "direct"]));
        t
    }

    #[test]
    fn a_table_that_fits_has_all_columns() {
        let text = table().fitted(Some(80), false);
        assert_eq!(
            text,
            "task                    uses     ms  algorithm\n\
             ----------------------------------------------\n\
             conv2d 64>64 56x56 3x3    12  0.125  winograd\n\
             dense                      1      -  direct\n"
        );
        assert_eq!(table().fitted(None, false), text);
    }

    #[test]
    fn a_narrow_table_loses_columns_and_then_cuts_texts() {
        let text = table().fitted(Some(41), false);
        assert!(
            text.starts_with("task                       ms  algorithm\n"),
            "{text}"
        );
        assert!(text.ends_with("(--wide also shows: uses)\n"), "{text}");
        let text = table().fitted(Some(30), false);
        assert!(text.contains("conv2d 64>64 56x56…  winograd\n"), "{text}");
        assert!(text.contains("(--wide also shows: uses, ms)"), "{text}");
        for width in 20..60 {
            let text = table().fitted(Some(width), false);
            let rows = text.lines().filter(|l| !l.starts_with('('));
            let widest = rows.map(|l| l.chars().count()).max();
            assert!(
                widest <= Some(width.max(LEAST + GAP + 9)),
                "{width}: {text}"
            );
        }
    }

    #[test]
    fn colours_change_no_letter() {
        let coloured = table().fitted(Some(80), true);
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\u{1b}') {
            plain += before;
            rest = after.split_once('m').unwrap().1;
        }
        assert_eq!(plain + rest, table().fitted(Some(80), false));
    }

    #[test]
    fn gains_have_three_digits() {
        assert_eq!(["1.02x", "9.94x", "30.1x"], [1.021, 9.94, 30.12].map(times));
    }
}
