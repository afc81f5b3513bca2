//! Errors a user can do something about.

use thiserror::Error;

/// The user's model, file, flag or machine is at fault; the text says what,
/// where, and what to do.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct Error {
    message: String,
    help: Option<String>,
}

impl Error {
    pub fn new(message: impl Into<String>) -> Error {
        Error {
            message: message.into(),
            help: None,
        }
    }

    /// With advice on what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.help = Some(help.into());
        self
    }

    /// Of a run that was asked to stop before there was anything to keep.
    pub(crate) fn stopped() -> Error {
        Error::new("stopped before the default model was built, so no model was written")
            .help("the same command starts again; objects that were built are kept in the cache")
    }

    /// What to do about it, if there is advice.
    pub fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

macro_rules! from {
    ($($t:ty),*) => { $(impl From<$t> for Error {
        fn from(e: $t) -> Error {
            Error::new(e.to_string())
        }
    })* };
}
from!(
    store::StoreError,
    graph::builtin::BuiltinError,
    plan::PlanError,
    runtime::BuildModelError,
    runtime::LoadError,
    runtime::SaveError,
    runtime::RunError,
    runtime::PoolError,
    worker::PoolError,
    measure::MeasureError,
    tensor::NpyError,
    std::io::Error
);

pub type Result<T> = std::result::Result<T, Error>;

/// There is nothing of this kind and name; all names there are.
pub(crate) fn no_such(kind: &str, name: &str, all: &[&str]) -> Error {
    let all = all.join(", ");
    Error::new(format!("there is no {kind} `{name}`")).help(format!("use one of: {all}"))
}
