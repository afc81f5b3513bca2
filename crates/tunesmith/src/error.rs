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

    /// What to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.help = Some(help.into());
        self
    }
}

impl miette::Diagnostic for Error {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.help
            .as_ref()
            .map(|h| Box::new(h.clone()) as Box<dyn std::fmt::Display>)
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
    onnx::ImportError,
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
