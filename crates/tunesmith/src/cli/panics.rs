//! What a user reads when the program runs out of memory, or meets a fault of its own.

use std::backtrace::Backtrace;
use std::io::Write;
use std::panic::{PanicHookInfo, set_hook};

/// How [`tensor::AlignedBytes`], and the standard library of what the system refused, say that there is no memory.
const NO_MEMORY: [&str; 2] = ["cannot allocate", "Cannot allocate memory"];

/// From here on a panic is an error with advice.
///
/// The standard library prints a backtrace while it holds a lock, which it wants again if memory ends meanwhile: a
/// process with a limit of memory then hangs. So backtraces are printed here, and none where memory ended. Worker processes
/// get no variable that asks for one.
pub fn report_panics() {
    const ASKED: &str = "RUST_BACKTRACE";
    let backtrace = std::env::var_os(ASKED).is_some_and(|v| v != "0");
    // SAFETY: the program has one thread yet.
    unsafe { std::env::remove_var(ASKED) };
    set_hook(Box::new(move |info| report(info, backtrace)));
}

fn report(info: &PanicHookInfo<'_>, backtrace: bool) {
    let payload = info.payload();
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    let said = owned.or_else(|| payload.downcast_ref::<&str>().copied());
    let said = said.unwrap_or("no reason is known");
    if NO_MEMORY.iter().any(|words| said.contains(words)) {
        say(&format!(
            "error: out of memory: {said}\n  help: raise the limit of memory (`ulimit -v`, or that of a container), or \
             give fewer --threads or a smaller --batch"
        ));
        // Other threads may wait for this one.
        std::process::exit(1);
    }
    let place = info
        .location()
        .map_or(String::new(), |l| format!(" at {l}"));
    say(&format!(
        "error: panicked{place}: {said}\n  help: this is a fault of the program; please report it with the command"
    ));
    if backtrace {
        say(&Backtrace::force_capture().to_string());
    }
}

/// Standard error may be closed, and a panic here would end the program at once.
fn say(text: &str) {
    _ = writeln!(std::io::stderr(), "{text}");
}
