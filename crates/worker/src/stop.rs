//! A request to end the work of a run before its time.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What a child works on when work is to stop may still take so long: most requests are
/// answered by then.
pub const LINGER: Duration = Duration::from_millis(200);

/// Asks for the end of work that other threads wait for. Clones share the request, which cannot
/// be taken back.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<OnceLock<Instant>>);

impl Stop {
    /// Only the first call counts.
    pub fn ask(&self) {
        // Who asks again asks for nothing new.
        let _ = self.0.set(Instant::now());
    }

    /// When that was asked.
    pub fn asked(&self) -> Option<Instant> {
        self.0.get().copied()
    }

    pub fn is_asked(&self) -> bool {
        self.asked().is_some()
    }
}
