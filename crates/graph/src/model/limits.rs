//! How much a model may take.
//!
//! Owns the limits and what has been taken of them: a small file can ask for any number of
//! values (loops in loops are written out), and for any amount of memory and time (nodes of
//! constants are computed). Where something is refused for it, the error names the limit.

use std::fmt;
use thiserror::Error;

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Values of the graph. One with a long name, many dimensions or many operands counts
    /// as several; so does a graph that is written out, with its nodes.
    Values,
    /// Bytes of results that are computed when a model is read, beside 128 for each byte of
    /// the model's own constants. References compute with 8 bytes an element.
    FoldBytes,
    /// Multiplications and additions in these results.
    FoldOperations,
}

/// Weights of 8 bits become floats in a few steps.
const EACH: u64 = 128;
/// The part of [`Limit::FoldBytes`] that one node may take, as a divisor.
const NODE: u64 = 4;
/// References compute with elements of 8 bytes, whatever the type of the result.
const ELEMENT: u64 = 8;
/// Multiplications and additions in one element of a result.
const DEPTH: u64 = 1 << 17;
/// A value counts once more for each so many bytes of its name, shape and operands.
const BYTES_OF_ONE: usize = 256;

impl Limit {
    pub const ALL: [Limit; 3] = [Limit::Values, Limit::FoldBytes, Limit::FoldOperations];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Values => "values",
            Limit::FoldBytes => "fold-bytes",
            Limit::FoldOperations => "fold-operations",
        }
    }

    pub fn doc(self) -> &'static str {
        match self {
            Limit::Values => "values of the graph, its loops written out",
            Limit::FoldBytes => "bytes of constants computed when the model is read",
            Limit::FoldOperations => {
                "multiplications and additions computed when the model is read"
            }
        }
    }

    /// Beyond what models need, and within the memory and patience of any machine.
    pub fn default_value(self) -> u64 {
        match self {
            Limit::Values => 1 << 19,
            Limit::FoldBytes => 256 << 20,
            Limit::FoldOperations => 1 << 35,
        }
    }
}

/// The value of each limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits([u64; Limit::ALL.len()]);

impl Default for Limits {
    /// [`Limit::default_value`] of each.
    fn default() -> Limits {
        Limits(Limit::ALL.map(Limit::default_value))
    }
}

impl Limits {
    pub fn get(&self, limit: Limit) -> u64 {
        self.0[limit as usize]
    }

    pub fn set(&mut self, limit: Limit, value: u64) {
        self.0[limit as usize] = value;
    }
}

/// A model would take more than a limit allows.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub struct Exceeded {
    pub limit: Limit,
    pub value: u64,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value, doc) = (self.limit.name(), self.value, self.limit.doc());
        let after = match self.limit {
            Limit::FoldBytes => format!(", and {EACH} for each byte of the file's constants"),
            _ => String::new(),
        };
        write!(
            f,
            "that is beyond the limit of {value} {doc}{after}; if the model is what you mean, \
             raise the limit with --limit {name}=NUMBER"
        )
    }
}

/// The limits of a model, and what it has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    pub(super) limits: Limits,
    /// Bytes of the model's own constants.
    own: u64,
    values: u64,
    bytes: u64,
    operations: u64,
}

/// Bytes that describe a value or a node.
pub(super) fn description(name: &str, entries: usize) -> usize {
    name.len().saturating_add(entries.saturating_mul(16))
}

impl Allowance {
    fn exceeded(&self, limit: Limit) -> Exceeded {
        let value = self.limits.get(limit);
        Exceeded { limit, value }
    }

    /// What has been taken is none of the copy's.
    pub(super) fn of_copy(&self) -> Allowance {
        Allowance { values: 0, ..*self }
    }

    /// The model has so many bytes more of its own.
    pub(super) fn extend(&mut self, bytes: usize) {
        self.own = self.own.saturating_add(bytes as u64);
    }

    /// Counts `values` that are described by so many bytes.
    pub(super) fn count(&mut self, values: u64, description: usize) {
        let more = values.saturating_add((description / BYTES_OF_ONE) as u64);
        self.values = self.values.saturating_add(more);
    }

    pub(super) fn room_for(&self, values: usize) -> Result<(), Exceeded> {
        match self.values.saturating_add(values as u64) > self.limits.get(Limit::Values) {
            true => Err(self.exceeded(Limit::Values)),
            false => Ok(()),
        }
    }

    /// So many elements are computed, if they may be.
    pub(super) fn take(&mut self, elements: u64) -> Result<(), Exceeded> {
        let own = self.own.saturating_mul(EACH);
        let all = self.limits.get(Limit::FoldBytes).saturating_add(own);
        let bytes = elements.saturating_mul(ELEMENT);
        if bytes > all / NODE || self.bytes.saturating_add(bytes) > all {
            return Err(self.exceeded(Limit::FoldBytes));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Results of so many elements are computed, if they may be, each of so many operations.
    pub(super) fn take_node(&mut self, elements: u64, depth: u64) -> Result<(), Exceeded> {
        let all = self
            .operations
            .saturating_add(elements.saturating_mul(depth));
        if depth > DEPTH || all > self.limits.get(Limit::FoldOperations) {
            return Err(self.exceeded(Limit::FoldOperations));
        }
        self.take(elements)?;
        self.operations = all;
        Ok(())
    }
}
