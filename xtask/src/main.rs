//! Chores of this repository: `tidy` checks what the compiler and clippy do not, `tests` runs test
//! programs side by side, `changed` tells what a change reaches, `dist` makes release archives.
//!
//! Promises to change no file but in `target`. Knows nothing of what the crates do.

mod changed;
mod dist;
mod earlier;
mod tests;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy
       cargo xtask tests MESSAGES [--again] [ARGUMENT...]   what `cargo test --no-run --message-format=json` wrote
       cargo xtask changed BASE                   a commit
       cargo xtask dist                           release archives in target/dist
       cargo xtask dist --runner                  tunesmith-run without any library; prints where it is";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the repository");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(|a| &**a).collect();
    let done = match words[..] {
        ["tidy"] => return tidy(root),
        ["tests", messages, ..] => tests::run(root, Path::new(messages), &arguments[2..]),
        ["dist"] => dist::run(root).map(|()| true),
        ["dist", "--runner"] => dist::runner(root).map(|path| {
            println!("{}", path.display());
            true
        }),
        ["changed", base] => changed::print(root, base).map(|()| true),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn tidy(root: &Path) -> ExitCode {
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
