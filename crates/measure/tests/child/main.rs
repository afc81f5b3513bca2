//! A runner process for the tests. An argument has it wait so many milliseconds
//! before it answers anything.

use std::time::Duration;

fn main() -> std::io::Result<()> {
    if let Some(text) = std::env::args().nth(1) {
        let ms = text.parse().map_err(std::io::Error::other)?;
        std::thread::sleep(Duration::from_millis(ms));
    }
    measure::serve()
}
