//! A runner process for the tests. An argument `after MS` has it wait so many milliseconds
//! before it answers anything, `unless PATH` die of its first request if there is such a file.

use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["after", ms] => {
            let ms = ms.parse().map_err(std::io::Error::other)?;
            std::thread::sleep(Duration::from_millis(ms));
        }
        ["unless", path] => {
            // The request stays in the buffer.
            std::io::stdin().lock().fill_buf()?;
            if Path::new(path).exists() {
                std::process::abort();
            }
        }
        _ => return Err(std::io::Error::other(format!("what is {arguments:?}?"))),
    }
    measure::serve()
}
