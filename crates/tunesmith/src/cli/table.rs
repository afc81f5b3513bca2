//! Plain tables for terminals.

use tune::Result;

/// Columns are right-aligned but the first; cells wider than `MAX` are cut.
pub struct Table {
    rows: Vec<Vec<String>>,
}

const MAX: usize = 72;

impl Table {
    pub fn new(header: &[&str]) -> Table {
        Table {
            rows: vec![header.iter().map(ToString::to_string).collect()],
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn print(&self) -> Result<()> {
        super::print_text(&self.text())
    }

    /// What `print` prints.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let cut = |c: &String| -> String {
            if c.chars().count() <= MAX {
                return c.clone();
            }
            c.chars().take(MAX - 1).chain(['…']).collect()
        };
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|r| r.iter().map(cut).collect())
            .collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            rows.iter()
                .filter_map(|r| r.get(c))
                .map(|s| s.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (i, r) in rows.iter().enumerate() {
            let cells: Vec<String> = r
                .iter()
                .enumerate()
                .map(|(c, s)| {
                    let w = widths[c];
                    if c == 0 {
                        format!("{s:<w$}")
                    } else {
                        format!("{s:>w$}")
                    }
                })
                .collect();
            text += cells.join("  ").trim_end();
            text.push('\n');
            if i == 0 {
                let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
                text += &"-".repeat(total);
                text.push('\n');
            }
        }
        text
    }
}

/// A count in at most six characters or so.
pub fn count(n: u64) -> String {
    if n < 100_000 {
        return n.to_string();
    }
    format!("{:.1e}", n as f64)
}

/// A time that may be missing.
pub fn ms(v: Option<f64>) -> String {
    v.map_or("-".into(), |v| format!("{v:.3}"))
}

/// An accuracy that an artifact may not tell.
pub fn or_unknown(accuracy: &str) -> &str {
    match accuracy {
        "" => "unknown",
        known => known,
    }
}
