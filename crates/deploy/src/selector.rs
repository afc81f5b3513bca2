//! Choosing online among routines of the caller, who makes the calls.
//!
//! Owns handles of selectors and of calls, and files of decisions. What is chosen, and when, is the business of
//! crate `bestof`. Promises that threads may use one selector at once.

use crate::{BAD_ARGUMENT, CANNOT_LOAD, Fallible, Status, bad, status, text, words};
use bestof::{BestOf, Decisions, Options, Running, Validators};
use std::ffi::{CString, c_char};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{ThreadId, available_parallelism, current};

/// A problem size, as the caller writes it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `tunesmith_selector`.
pub struct SelectorC {
    selector: BestOf<Key, ()>,
    /// Of the caller's routines.
    version: String,
}

/// `tunesmith_call`.
pub struct CallC {
    running: Running,
    key: Key,
    thread: ThreadId,
}

/// `tunesmith_selector_settings`.
#[repr(C)]
pub struct SettingsC {
    rounds: usize,
    prune_speedup: f64,
    prune_after: usize,
    margin: f64,
    version: *const c_char,
}

/// `tunesmith_outcome`.
const DONE: i32 = 0;
const FAILED: i32 = 1;
const DISCARDED: i32 = 2;

impl SelectorC {
    /// The facts under which decisions hold.
    fn validators(&self) -> Validators {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let named = |line: &str| {
            Some(
                line.strip_prefix("model name")?
                    .split_once(':')?
                    .1
                    .trim()
                    .to_string(),
            )
        };
        let facts = [
            (
                "machine",
                info.lines()
                    .find_map(named)
                    .unwrap_or(std::env::consts::ARCH.into()),
            ),
            (
                "threads",
                available_parallelism().map_or(1, usize::from).to_string(),
            ),
            ("version", self.version.clone()),
        ];
        facts.map(|(k, v)| (k.to_string(), v)).into()
    }

    fn load(&self, path: &str) -> Fallible<()> {
        let known = Decisions::load(Path::new(path), &self.validators());
        let known = known.map_err(|e| (CANNOT_LOAD, format!("{path}: {e}")))?;
        match self.selector.start_from(Arc::new(known)) {
            true => Ok(()),
            false => bad("the selector has decisions of a file already"),
        }
    }

    /// Decisions of other selectors stay in the file, if they hold here.
    fn save(&self, path: &str) -> Fallible<()> {
        let (path, validators) = (Path::new(path), self.validators());
        let others = Decisions::load(path, &validators).unwrap_or_default();
        let mut own = Decisions::new();
        self.selector.save(&mut own);
        let saved = own.over(&others).save(path, &validators);
        saved.map_err(|e| (CANNOT_LOAD, format!("{}: {e}", path.display())))
    }
}

/// The selector of a handle.
///
/// # Safety
/// The handle is null or of a selector that was made and not freed.
unsafe fn handle<'a>(selector: *const SelectorC) -> Fallible<&'a SelectorC> {
    // SAFETY: see above.
    match unsafe { selector.as_ref() } {
        Some(selector) => Ok(selector),
        None => bad("the selector is a null pointer"),
    }
}

/// Writes the usual settings.
///
/// # Safety
/// `to` is null or has room for settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_selector_defaults(to: *mut SettingsC) {
    let usual = Options::default();
    let settings = SettingsC {
        rounds: usual.rounds,
        prune_speedup: usual.prune_speedup,
        prune_after: usual.prune_after,
        margin: usual.margin,
        version: c"".as_ptr(),
    };
    if !to.is_null() {
        // SAFETY: the caller gives room for them.
        unsafe { to.write(settings) };
    }
}

/// Makes a selector among `count` alternatives.
///
/// # Safety
/// `name` is null or a text that ends with a zero; `names` is null or leads to `count` such texts; `settings` is null or
/// leads to settings, whose text is null or ends with a zero; `to` is null or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_selector_new(
    name: *const c_char,
    names: *const *const c_char,
    count: usize,
    settings: *const SettingsC,
    to: *mut *mut SelectorC,
) -> Status {
    status(|| {
        if to.is_null() || (names.is_null() && count > 0) {
            return bad("the names, or the place for the selector, are a null pointer");
        }
        // SAFETY: as the caller promises.
        let name = unsafe { words(name, "the name of the selector") }?;
        let mut alternatives = Vec::with_capacity(count);
        for i in 0..count {
            // SAFETY: there is a pointer for each.
            let alternative = unsafe { words(*names.add(i), "the name of an alternative") }?;
            alternatives.push((alternative, ()));
        }
        let mut options = Options::default();
        let mut version = String::new();
        // SAFETY: as the caller promises.
        if let Some(s) = unsafe { settings.as_ref() } {
            options.rounds = s.rounds;
            options.prune_speedup = s.prune_speedup;
            options.prune_after = s.prune_after;
            options.margin = s.margin;
            // SAFETY: as the caller promises.
            version.push_str(unsafe { words(s.version, "the version") }?);
        }
        let selector = BestOf::new(name, alternatives, options);
        let selector = selector.map_err(|e| (BAD_ARGUMENT, e.to_string()))?;
        let made = Box::new(SelectorC { selector, version });
        // SAFETY: it has room for a pointer.
        unsafe { to.write(Box::into_raw(made)) };
        Ok(())
    })
}

/// Frees a selector.
///
/// # Safety
/// The handle is null or of a selector that was made and not freed, and no call of it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_selector_free(selector: *mut SelectorC) {
    if !selector.is_null() {
        // SAFETY: it came from a box, and nobody else has it.
        drop(unsafe { Box::from_raw(selector) });
    }
}

/// Begins a call.
///
/// # Safety
/// The handle is null or of a selector that was made and not freed; `key` is null or a text that ends with a zero; `call`
/// is null or has room for a pointer, and `alternative` for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_selector_begin(
    selector: *const SelectorC,
    key: *const c_char,
    call: *mut *mut CallC,
    alternative: *mut usize,
) -> Status {
    status(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle(selector) }?;
        if call.is_null() || alternative.is_null() {
            return bad("the place for the call, or for the alternative, is a null pointer");
        }
        // SAFETY: as the caller promises.
        let key = Key(unsafe { words(key, "the key") }?.to_string());
        let running = handle.selector.enter(&key);
        // SAFETY: it has room for a number.
        unsafe { alternative.write(running.alternative()) };
        let thread = current().id();
        let begun = Box::new(CallC {
            running,
            key,
            thread,
        });
        // SAFETY: it has room for a pointer.
        unsafe { call.write(Box::into_raw(begun)) };
        Ok(())
    })
}

/// Ends a call, and frees it unless the arguments are bad.
///
/// # Safety
/// The handles are null, or of a selector that was made and not freed and of a call of it that was begun and not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_selector_end(
    selector: *const SelectorC,
    call: *mut CallC,
    outcome: i32,
) -> Status {
    status(|| {
        // SAFETY: as the caller promises.
        let selector = &unsafe { handle(selector) }?.selector;
        // SAFETY: as the caller promises.
        match unsafe { call.as_ref() } {
            None => return bad("the call is a null pointer"),
            Some(c) if c.thread != current().id() => {
                return bad("another thread began this call; it has to end it");
            }
            Some(_) if !(DONE..=DISCARDED).contains(&outcome) => {
                return bad(format!("there is no outcome {outcome}"));
            }
            Some(_) => {}
        }
        // SAFETY: it came from a box, and nobody else has it.
        let CallC { running, key, .. } = *unsafe { Box::from_raw(call) };
        match outcome {
            DONE => selector.leave(running),
            FAILED => {
                let failed = running.alternative();
                drop(running);
                selector.fail(&key, failed);
            }
            _ => drop(running),
        }
        Ok(())
    })
}

/// What was found so far, as JSON.
///
/// # Safety
/// The handle is null or of a selector that was made and not freed; `to` is null or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_selector_report(
    selector: *const SelectorC,
    to: *mut *mut c_char,
) -> Status {
    status(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle(selector) }?;
        if to.is_null() {
            return bad("the place for the report is a null pointer");
        }
        let report = text(&handle.selector.report().json());
        // SAFETY: it has room for a pointer.
        unsafe { to.write(report.into_raw()) };
        Ok(())
    })
}

/// Frees a text.
///
/// # Safety
/// It is null or a text that this library gave to be freed, and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it came from such a text, and nobody else has it.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Lets problem sizes that a file knows start decided.
///
/// # Safety
/// The handle is null or of a selector that was made and not freed; `path` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_selector_load(
    selector: *const SelectorC,
    path: *const c_char,
) -> Status {
    // SAFETY: as the caller promises.
    status(|| unsafe { handle(selector) }?.load(unsafe { words(path, "the path") }?))
}

/// Writes what was decided to a file.
///
/// # Safety
/// As [`tunesmith_selector_load`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tunesmith_selector_save(
    selector: *const SelectorC,
    path: *const c_char,
) -> Status {
    // SAFETY: as the caller promises.
    status(|| unsafe { handle(selector) }?.save(unsafe { words(path, "the path") }?))
}
