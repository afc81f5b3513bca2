//! The command line.

fn main() -> std::process::ExitCode {
    tunesmith::cli::main()
}
