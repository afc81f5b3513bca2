//! Models as text: a head, lines of named numbers, and a checksum.
//!
//! ```text
//! tunesmith-model 1
//! kind coefficients
//! feature-version 3
//! factors 0.5 2.0
//! end 7dfc4c69bc7c6856
//! ```
//!
//! Numbers are written so that they are read back bit by bit. The checksum is the 64-bit FNV-1a hash
//! of all bytes before its line. It finds accidents, not attacks.

use std::fmt;
use std::str::FromStr;

/// The form that is written, and the newest that is read.
const VERSION: u32 = 1;
const MAGIC: &str = "tunesmith-model";

/// Why a saved model is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The text does not begin as a saved model does.
    Foreign,
    /// A newer program wrote the text.
    Newer { version: u32 },
    /// The text holds another kind of model.
    Kind {
        found: String,
        expected: &'static str,
    },
    /// The model was trained on another version of the features.
    Features { found: u32, expected: u32 },
    /// The text is cut off or was changed.
    Damaged { line: usize, what: String },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Foreign => write!(
                f,
                "this is not a saved model: its first line is not `{MAGIC}` and a version"
            ),
            LoadError::Newer { version } => write!(
                f,
                "the model has form {version}, and this program reads up to form {VERSION}; use the program that saved it, or train the model again"
            ),
            LoadError::Kind { found, expected } => {
                write!(f, "the model is of kind `{found}` instead of `{expected}`")
            }
            LoadError::Features { found, expected } => write!(
                f,
                "the model was trained on version {found} of the features, and this program has version {expected}; train the model again"
            ),
            LoadError::Damaged { line, what } => {
                write!(
                    f,
                    "line {line} of the model: {what}; restore the file or train the model again"
                )
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// What can be saved and loaded. Implemented here only.
pub trait Model: Sized {
    /// The name of the kind in files.
    const KIND: &'static str;
    fn write(&self, to: &mut Writer);
    fn read(from: &mut Reader<'_>) -> Result<Self, LoadError>;
}

/// The text of a model. `feature_version` says how the caller computed the features.
pub fn save<M: Model>(model: &M, feature_version: u32) -> String {
    let mut writer = Writer {
        text: format!(
            "{MAGIC} {VERSION}\nkind {}\nfeature-version {feature_version}\n",
            M::KIND
        ),
    };
    model.write(&mut writer);
    let hash = checksum(&writer.text);
    format!("{}end {hash:016x}\n", writer.text)
}

/// The model that [`save`] wrote, if it is whole, of this kind, and for this version of the features. Its
/// predictions equal those of the saved model bit by bit.
pub fn load<M: Model>(text: &str, feature_version: u32) -> Result<M, LoadError> {
    let first = text.lines().next().unwrap_or_default();
    let version = first.strip_prefix(MAGIC).and_then(|v| v.strip_prefix(' '));
    let version: u32 = version
        .and_then(|v| v.parse().ok())
        .ok_or(LoadError::Foreign)?;
    if version > VERSION {
        return Err(LoadError::Newer { version });
    }
    let damaged = |what: &str| LoadError::Damaged {
        line: text.lines().count(),
        what: what.to_owned(),
    };
    let end = text
        .rfind("\nend ")
        .ok_or_else(|| damaged("the end is missing"))?;
    let (body, end) = text.split_at(end + 1);
    if end != format!("end {:016x}\n", checksum(body)) {
        return Err(damaged("the checksum does not fit the text"));
    }
    let mut reader = Reader {
        lines: body.lines(),
        line: 1,
    };
    reader.lines.next();
    let found = reader.values("kind")?.to_owned();
    if found != M::KIND {
        let expected = M::KIND;
        return Err(LoadError::Kind { found, expected });
    }
    let found: u32 = reader.one("feature-version")?;
    if found != feature_version {
        let expected = feature_version;
        return Err(LoadError::Features { found, expected });
    }
    let model = M::read(&mut reader)?;
    match reader.lines.next() {
        None => Ok(model),
        Some(_) => Err(reader.damaged("the model has more lines than its kind needs")),
    }
}

fn checksum(text: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Takes a model's lines.
pub struct Writer {
    text: String,
}

impl Writer {
    pub(crate) fn numbers(&mut self, name: &str, values: impl IntoIterator<Item = f64>) {
        self.line(name, values.into_iter().map(|v| format!("{v:?}")));
    }

    pub(crate) fn counts(&mut self, name: &str, values: impl IntoIterator<Item = usize>) {
        self.line(name, values.into_iter().map(|v| v.to_string()));
    }

    pub(crate) fn word(&mut self, name: &str, word: &str) {
        self.line(name, [word.to_owned()].into_iter());
    }

    pub(crate) fn words<'a>(&mut self, name: &str, words: impl Iterator<Item = &'a String>) {
        self.line(name, words.cloned());
    }

    fn line(&mut self, name: &str, values: impl Iterator<Item = String>) {
        self.text.push_str(name);
        for value in values {
            self.text.push(' ');
            self.text.push_str(&value);
        }
        self.text.push('\n');
    }
}

/// Gives a model's lines back, in the order in which they were written.
pub struct Reader<'a> {
    lines: std::str::Lines<'a>,
    /// The line that was read last, from 1.
    line: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn damaged(&self, what: &str) -> LoadError {
        LoadError::Damaged {
            line: self.line,
            what: what.to_owned(),
        }
    }

    /// What follows the name in the next line, which must have this name.
    fn values(&mut self, name: &str) -> Result<&'a str, LoadError> {
        self.line += 1;
        let line = self.lines.next().unwrap_or_default();
        let values = line.strip_prefix(name);
        let values = values.filter(|v| v.is_empty() || v.starts_with(' '));
        let missing = || self.damaged(&format!("`{name}` is missing"));
        values.map(str::trim_start).ok_or_else(missing)
    }

    fn all<T: FromStr>(&mut self, name: &str) -> Result<Vec<T>, LoadError> {
        let values = self.values(name)?.split_ascii_whitespace();
        let parsed: Result<Vec<T>, T::Err> = values.map(str::parse).collect();
        parsed.map_err(|_| self.damaged(&format!("`{name}` has a value that is no number")))
    }

    pub(crate) fn words(&mut self, name: &str) -> Result<Vec<String>, LoadError> {
        self.all(name)
    }

    fn exactly<T: FromStr>(&mut self, name: &str, count: usize) -> Result<Vec<T>, LoadError> {
        let values = self.all(name)?;
        match values.len() == count {
            true => Ok(values),
            false => Err(self.damaged(&format!(
                "`{name}` has {} values instead of {count}",
                values.len()
            ))),
        }
    }

    fn one<T: FromStr + Copy>(&mut self, name: &str) -> Result<T, LoadError> {
        Ok(self.exactly(name, 1)?[0])
    }

    pub(crate) fn word(&mut self, name: &str) -> Result<&'a str, LoadError> {
        self.values(name)
    }

    pub(crate) fn count(&mut self, name: &str) -> Result<usize, LoadError> {
        self.one(name)
    }

    pub(crate) fn counts(&mut self, name: &str) -> Result<Vec<usize>, LoadError> {
        self.all(name)
    }

    pub(crate) fn counts_of(&mut self, name: &str, count: usize) -> Result<Vec<usize>, LoadError> {
        self.exactly(name, count)
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<f64, LoadError> {
        self.one(name)
    }

    pub(crate) fn numbers(&mut self, name: &str) -> Result<Vec<f64>, LoadError> {
        self.all(name)
    }

    pub(crate) fn numbers_of(&mut self, name: &str, count: usize) -> Result<Vec<f64>, LoadError> {
        self.exactly(name, count)
    }
}
