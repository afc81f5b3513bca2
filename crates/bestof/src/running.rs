//! Calls between two moments, for callers that cannot give a closure, such as those in other languages.
//!
//! Owns the clock and the frame of such a call. Promises that selectors nest as they do in closures. Who begins
//! a call says which alternative runs, and makes the call.

use crate::nest::Entered;
use crate::selector::{Begun, BestOf};
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use std::time::Duration;

/// A call that [`BestOf::enter`] began. Selectors that run in this thread until it ends are inside of it, so it
/// ends in the thread that began it. One that is dropped counts as no sample.
pub struct Running {
    begun: Begun,
    /// What is around the call and when it began, if it is timed.
    timed: Option<(Entered, Duration)>,
    /// No other thread has its frame.
    of_thread: PhantomData<*const ()>,
}

impl Running {
    /// The position of the alternative that runs.
    pub fn alternative(&self) -> usize {
        self.begun.alternative()
    }
}

impl<K: Hash + Eq + Clone + Debug, F> BestOf<K, F> {
    /// Begins a call, which the caller makes with the alternative that the result names.
    pub fn enter(&self, key: &K) -> Running {
        let begun = self.begin(key);
        let timed = begun.is_timed().then(|| (Entered::new(), self.now()));
        Running {
            begun,
            timed,
            of_thread: PhantomData,
        }
    }

    /// Ends a call that did what it should. One that failed is dropped, and then [`BestOf::fail`] says so.
    pub fn leave(&self, running: Running) {
        if let Some((frame, since)) = running.timed {
            let took = self.now().saturating_sub(since);
            running.begun.add_children(frame.children());
            let disturbed = frame.is_disturbed();
            drop(frame);
            self.finish(running.begun, took, disturbed);
        }
    }
}
