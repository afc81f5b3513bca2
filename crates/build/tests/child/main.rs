//! A builder process for the tests.

fn main() -> std::io::Result<()> {
    build::serve()
}
