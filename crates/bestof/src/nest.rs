//! Which timed calls a thread is in.
//!
//! A selector that is called inside of another's alternative finds it here, so nobody names parents.
//! Frames are left when they are dropped: a panic and an early return leave the stack clean.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A timed call that has not ended.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// Whether an undecided selector ran inside.
    disturbed: AtomicBool,
    /// What ran inside: names of selectors with their keys.
    children: Mutex<Vec<String>>,
}

thread_local! {
    static STACK: RefCell<Vec<Arc<Frame>>> = const { RefCell::new(vec![]) };
}

/// A frame on this thread's stack until it is dropped.
pub(crate) struct Entered {
    frame: Arc<Frame>,
}

impl Entered {
    pub fn new() -> Entered {
        let frame = Arc::new(Frame::default());
        STACK.with_borrow_mut(|s| s.push(frame.clone()));
        Entered { frame }
    }

    /// Whether an undecided selector ran inside so far.
    pub fn is_disturbed(&self) -> bool {
        self.frame.disturbed.load(Ordering::Acquire)
    }

    /// What ran inside so far.
    pub fn children(&self) -> Vec<String> {
        lock(&self.frame.children).clone()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        STACK.with_borrow_mut(|s| s.retain(|f| !Arc::ptr_eq(f, &self.frame)));
    }
}

/// Says that an undecided selector runs here: no call around it is what it will be.
pub(crate) fn disturb(child: &dyn Fn() -> String) {
    STACK.with_borrow(|s| {
        for frame in s {
            frame.disturbed.store(true, Ordering::Release);
        }
        if let Some(parent) = s.last() {
            let mut children = lock(&parent.children);
            let name = child();
            if !children.contains(&name) {
                children.push(name);
            }
        }
    });
}

/// How many timed calls this thread is in.
pub fn depth() -> usize {
    STACK.with_borrow(Vec::len)
}

/// The calls that a thread is in, to be carried over to another one that works for it.
///
/// ```
/// let context = bestof::Context::current();
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         let _inside = context.enter();
///         // Selectors that are called here find the parents of the other thread.
///     });
/// });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Context {
    stack: Vec<Arc<Frame>>,
}

impl Context {
    /// Of this thread.
    pub fn current() -> Context {
        Context {
            stack: STACK.with_borrow(Clone::clone),
        }
    }

    /// This thread is inside of these calls until the result is dropped.
    #[must_use]
    pub fn enter(&self) -> Inside {
        let outer = STACK.with_borrow_mut(|s| std::mem::replace(s, self.stack.clone()));
        Inside { outer }
    }
}

/// A thread that works for another one; see [`Context::enter`].
#[derive(Debug)]
pub struct Inside {
    outer: Vec<Arc<Frame>>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        STACK.with_borrow_mut(|s| *s = std::mem::take(&mut self.outer));
    }
}

/// The guard of a mutex, also after a panic: what is guarded here is whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
