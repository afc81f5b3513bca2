//! A runner process for the tests.

fn main() -> std::io::Result<()> {
    measure::serve()
}
