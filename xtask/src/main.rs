//! Chores of this repository: `cargo xtask tidy` checks what the compiler and
//! clippy do not.
//!
//! Promises to change no file. Knows nothing of what the crates do.

mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != ["tidy"] {
        eprintln!("usage: cargo xtask tidy");
        return ExitCode::from(2);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the repository");
    match tidy::run(root) {
        Err(message) => {
            eprintln!("tidy: {message}");
            ExitCode::FAILURE
        }
        Ok(tidy) => {
            for problem in &tidy.problems {
                eprintln!("{problem}");
            }
            if let Some(why) = tidy.skipped {
                // As tests say it, for `./test` to count.
                eprintln!("skipped in part: commits-in-documents: {why}");
            }
            let n = tidy.problems.len();
            eprintln!("tidy: {} files, {n} problems", tidy.files);
            ExitCode::from(u8::from(n > 0))
        }
    }
}
