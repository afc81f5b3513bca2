//! Decisions in files.
//!
//! A file is text. Its first line names the format and its version, lines of validators say where the
//! decisions hold, and the last line counts the decisions, so that a file that was cut is noticed. A
//! file whose validators differ is refused as a whole: decisions of another machine are worse than none.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const FORMAT: &str = "bestof 1";
/// Every version begins with this.
const START: &str = "bestof ";

/// Facts under which decisions hold, such as `machine`, `threads` and the version of the program.
pub type Validators = BTreeMap<String, String>;

/// Why a file of decisions is refused.
#[derive(Debug)]
pub enum Refused {
    /// It cannot be read or written.
    Io(std::io::Error),
    /// It is something else than a file of decisions.
    Foreign,
    /// It is a file of decisions that is damaged, or of another version; the line, from 1.
    Format { line: usize, why: String },
    /// A validator differs.
    Differs {
        validator: String,
        file: Option<String>,
        here: Option<String>,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_nothing = |v: &Option<String>| v.clone().unwrap_or("nothing".into());
        match self {
            Refused::Io(e) => write!(f, "{e}"),
            Refused::Foreign => write!(f, "this is no file of decisions; give the name of another"),
            Refused::Format { line, why } => {
                write!(f, "line {line}: {why}; delete the file to decide anew")
            }
            Refused::Differs {
                validator,
                file,
                here,
            } => write!(
                f,
                "the decisions were made where `{validator}` is {}, and here it is {}: they are not used",
                or_nothing(file),
                or_nothing(here)
            ),
        }
    }
}

impl std::error::Error for Refused {}

/// What was decided, and the samples that it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub alternative: String,
    pub samples: u64,
    pub median: Duration,
}

/// What selectors decided, by their names and problem sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    all: BTreeMap<(String, String), Decision>,
}

impl Decisions {
    pub fn new() -> Decisions {
        Decisions::default()
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The alternative that a selector decided on for a key, as text.
    pub fn get(&self, selector: &str, key: &str) -> Option<&str> {
        let decision = self.all.get(&(selector.into(), key.into()))?;
        Some(&decision.alternative)
    }

    /// All decisions of a selector, with their keys.
    pub fn of<'a>(&'a self, selector: &'a str) -> impl Iterator<Item = (&'a str, &'a Decision)> {
        let first = (selector.to_string(), String::new());
        let all = self.all.range(first..);
        let own = all.take_while(move |((name, _), _)| name == selector);
        own.map(|((_, key), d)| (key.as_str(), d))
    }

    /// All decisions, with the names of their selectors and their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Decision)> {
        let all = self.all.iter();
        all.map(|((selector, key), d)| (selector.as_str(), key.as_str(), d))
    }

    /// Adds a decision. One that rests on more samples stays.
    pub fn put(
        &mut self,
        selector: &str,
        key: &str,
        alternative: &str,
        samples: u64,
        median: Duration,
    ) {
        let new = Decision {
            alternative: alternative.into(),
            samples,
            median,
        };
        let at = (selector.to_string(), key.to_string());
        match self.all.get(&at) {
            Some(old) if old.samples > samples => {}
            _ => {
                self.all.insert(at, new);
            }
        }
    }

    /// Adds what others decided about one key, if they did.
    pub(crate) fn put_as(&mut self, others: &Decisions, selector: &str, key: &str) {
        if let Some(d) = others.all.get(&(selector.into(), key.into())) {
            self.put(selector, key, &d.alternative, d.samples, d.median);
        }
    }

    /// Joins the decisions of another run: of two about one key, that of more samples.
    pub fn merge(&mut self, other: &Decisions) {
        for ((selector, key), d) in &other.all {
            self.put(selector, key, &d.alternative, d.samples, d.median);
        }
    }

    /// Lays these over others: they win wherever both decide.
    #[must_use]
    pub fn over(mut self, shipped: &Decisions) -> Decisions {
        for (at, d) in &shipped.all {
            self.all.entry(at.clone()).or_insert_with(|| d.clone());
        }
        self
    }

    /// Reads a file whose validators are exactly these.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or was made under other validators.
    pub fn load(path: &Path, validators: &Validators) -> Result<Decisions, Refused> {
        let bytes = std::fs::read(path).map_err(Refused::Io)?;
        if !bytes.starts_with(START.as_bytes()) {
            return Err(Refused::Foreign);
        }
        match String::from_utf8(bytes) {
            Ok(text) => Decisions::parse(&text, validators),
            Err(e) => {
                let read = &e.as_bytes()[..e.utf8_error().valid_up_to()];
                Err(Refused::Format {
                    line: 1 + read.iter().filter(|b| **b == b'\n').count(),
                    why: "this is no text".into(),
                })
            }
        }
    }

    /// [`Decisions::load`] of a file's text.
    ///
    /// # Errors
    /// As there.
    pub fn parse(text: &str, validators: &Validators) -> Result<Decisions, Refused> {
        let bad = |line: usize, why: &str| Refused::Format {
            line: line + 1,
            why: why.into(),
        };
        let lines: Vec<&str> = text.lines().collect();
        match lines.first() {
            Some(first) if *first == FORMAT => {}
            Some(first) if first.starts_with(START) => {
                return Err(bad(
                    0,
                    &format!("this is `{first}`, and `{FORMAT}` is read here"),
                ));
            }
            _ => return Err(Refused::Foreign),
        }
        let (mut of, mut found, mut count) = (Validators::new(), Decisions::new(), None);
        for (n, line) in lines.iter().enumerate().skip(1) {
            if count.is_some() {
                return Err(bad(n, "something follows the end"));
            }
            let fields: Vec<String> = line.split('\t').map(unescaped).collect();
            match &fields[..] {
                [kind, name, value] if kind == "validator" => {
                    if of.insert(name.clone(), value.clone()).is_some() {
                        return Err(bad(n, "a validator stands twice"));
                    }
                }
                [kind, selector, key, alternative, samples, median] if kind == "decision" => {
                    let number =
                        |text: &str| text.parse().map_err(|_| bad(n, "a number is damaged"));
                    let median = Duration::from_nanos(number(median)?);
                    if found.get(selector, key).is_some() {
                        return Err(bad(n, "a decision stands twice"));
                    }
                    found.put(selector, key, alternative, number(samples)?, median);
                }
                [kind, n_decisions] if kind == "end" => {
                    count = Some(
                        n_decisions
                            .parse()
                            .map_err(|_| bad(n, "a number is damaged"))?,
                    );
                }
                _ => return Err(bad(n, "this is no line of a file of decisions")),
            }
        }
        if count != Some(found.len()) || !text.ends_with('\n') {
            return Err(bad(lines.len().saturating_sub(1), "the file was cut"));
        }
        let names = of.keys().chain(validators.keys());
        for name in names {
            let (file, here) = (of.get(name), validators.get(name));
            if file != here {
                return Err(Refused::Differs {
                    validator: name.clone(),
                    file: file.cloned(),
                    here: here.cloned(),
                });
            }
        }
        Ok(found)
    }

    /// As the text of a file.
    pub fn text(&self, validators: &Validators) -> String {
        let mut out = format!("{FORMAT}\n");
        for (name, value) in validators {
            out += &format!("validator\t{}\t{}\n", escaped(name), escaped(value));
        }
        for ((selector, key), d) in &self.all {
            let [selector, key, alternative] = [selector, key, &d.alternative].map(|t| escaped(t));
            let (samples, median) = (d.samples, d.median.as_nanos());
            out += &format!("decision\t{selector}\t{key}\t{alternative}\t{samples}\t{median}\n");
        }
        out + &format!("end\t{}\n", self.all.len())
    }

    /// Writes a file, in place of an earlier one at once: a reader sees the old one or the new one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, path: &Path, validators: &Validators) -> Result<(), Refused> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.new", std::process::id()));
        let new = path.with_file_name(name);
        let written = || {
            let mut file = std::fs::File::create(&new)?;
            file.write_all(self.text(validators).as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, path)
        };
        written().map_err(|e| {
            // What was begun is of no use.
            let _ = std::fs::remove_file(&new);
            Refused::Io(e)
        })
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out += "\\\\",
            '\t' => out += "\\t",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            c => out.push(c),
        }
    }
    out
}

fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('t') => out.push('\t'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some(c) => out.push(c),
                None => {}
            },
            c => out.push(c),
        }
    }
    out
}
