//! The passes, one file each, in the order in which `lower` runs them.

pub(crate) mod bind_iters;
pub(crate) mod check_indices;
pub(crate) mod compact_buffers;
pub(crate) mod flatten;
pub(crate) mod guards;
pub(crate) mod hoist_guards;
pub(crate) mod number;
pub(crate) mod place_buffers;
pub(crate) mod prefetch;
pub(crate) mod simplify;
pub(crate) mod split_prepare;
pub(crate) mod unroll;
pub(crate) mod vectorize;
pub(crate) mod verify;

/// Names of all passes, in order.
pub const PASSES: [&str; 15] = [
    "bind_iters",
    "split_prepare",
    "check_indices",
    "compact_buffers",
    "flatten",
    "simplify",
    "guards",
    "hoist_guards",
    "vectorize",
    "unroll",
    "simplify_copies",
    "merge_guards",
    "prefetch",
    "place_buffers",
    "number",
];

/// Passes without which the code is slower but correct.
pub const OPTIONAL_PASSES: [&str; 9] = [
    "split_prepare",
    "simplify",
    "guards",
    "hoist_guards",
    "vectorize",
    "unroll",
    "simplify_copies",
    "merge_guards",
    "prefetch",
];
