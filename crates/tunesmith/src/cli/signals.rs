//! Ctrl-C, SIGTERM and SIGHUP: the first asks for an orderly end, the second ends the program at once. A program
//! that does not get to its end is ended by a watchdog.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tune::{Error, Result, Stop};

/// Where the handler writes the signals that came.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// What came while somebody watched.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    signal: Arc<AtomicI32>,
}

impl Watched {
    /// The status of a program that did what it was asked to, as far as a signal left it time. A script can tell by it that
    /// there was less than it asked for.
    pub fn exit_code(&self) -> ExitCode {
        match self.signal.load(Ordering::Relaxed) {
            0 => ExitCode::SUCCESS,
            signal => ExitCode::from(128 + signal as u8),
        }
    }
}

extern "C" fn note(signal: libc::c_int) {
    let byte = [signal as u8];
    // SAFETY: what is allowed in a handler; the error number is that of what it interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(PIPE.load(Ordering::Relaxed), byte.as_ptr().cast(), 1);
        *libc::__errno_location() = errno;
    }
}

/// From here on the first of these signals asks `stop` and calls `told` on a thread of its own;
/// another ends the program.
///
/// # Errors
/// If the system gives no pipe or thread for it.
pub fn watch(stop: Stop, told: impl FnOnce() + Send + 'static) -> Result<Watched> {
    let failed = |e: std::io::Error| Error::new(format!("cannot wait for Ctrl-C: {e}"));
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(failed(std::io::Error::last_os_error()));
    }
    // SAFETY: both are new and nobody else's.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    // It stays open as long as the handler may be called: always.
    PIPE.store(write.into_raw_fd(), Ordering::Relaxed);
    let watched = Watched::default();
    let signal = watched.signal.clone();
    let wait = move || {
        let mut told = Some(told);
        let mut read = std::fs::File::from(read);
        let mut byte = [0];
        while std::io::Read::read_exact(&mut read, &mut byte).is_ok() {
            let number = i32::from(byte[0]);
            match told.take() {
                Some(told) => {
                    signal.store(number, Ordering::Relaxed);
                    stop.ask();
                    told();
                    end_in(PATIENCE, number);
                }
                None => end(number),
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(wait).map_err(failed)?;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero action is valid; the handler does what is allowed in one.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action);
            // As under `nohup`.
            if action.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    Ok(watched)
}

/// How long an orderly end may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Ends the program in so much time as a signal does, if it still runs then.
pub fn end_in(time: Duration, signal: i32) {
    let end = move || {
        std::thread::sleep(time);
        eprintln!(
            "error: the program did not get to its end, so it is ended now; records that were written are kept"
        );
        end(signal);
    };
    // Without a thread for it, a second signal still ends the program.
    _ = std::thread::Builder::new()
        .name("watchdog".into())
        .spawn(end);
}

/// Ends the program as the signal does that nobody handles; its workers end with it.
fn end(signal: i32) {
    // SAFETY: the default action runs no code of this program.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
