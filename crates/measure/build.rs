//! Tells the crate a fingerprint of the sources that parent and runner must share.

use sources::Covered;

/// What the two say to each other, and how a runner measures.
const RUNNER: Covered = Covered {
    sources: &["measure/src", "runtime/src", "tensor/src", "worker/src"],
    packages: &["postcard", "serde"],
};

fn main() -> std::io::Result<()> {
    sources::set_env("TUNESMITH_RUNNER_SOURCES", &RUNNER)
}
