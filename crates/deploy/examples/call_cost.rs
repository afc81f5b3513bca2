//! What a call through the C interface costs over the same call in Rust, on one model, in turns:
//! `cargo run --release -p deploy --example call_cost -- MODEL.tsm`.

use runtime::Model;
use std::error::Error;
use std::ffi::CString;
use std::path::Path;
use std::ptr::null_mut;
use std::time::Instant;
use tunesmith_runtime::{tunesmith_free, tunesmith_invoke, tunesmith_load};

const ROUNDS: usize = 200;
const CALLS: u32 = 500;

/// Nanoseconds of one of the calls.
fn time_ns(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("usage: call_cost MODEL.tsm")?;
    let mut model = Model::load(Path::new(&path), 1)?;
    let (file, mut handle) = (CString::new(path)?, null_mut());
    // SAFETY: a text that ends with a zero, and room for a pointer.
    if unsafe { tunesmith_load(file.as_ptr(), 1, &raw mut handle) } != 0 {
        return Err("the C interface does not load the model".into());
    }
    let (mut rust, mut c) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        rust.push(time_ns(|| model.invoke().expect("the model runs")));
        // SAFETY: the handle is of a model that was loaded.
        c.push(time_ns(|| {
            assert_eq!(unsafe { tunesmith_invoke(handle) }, 0)
        }));
    }
    // SAFETY: no call runs.
    unsafe { tunesmith_free(handle) };
    let (rust, c) = (median(rust), median(c));
    println!("Rust {rust:.0} ns, C {c:.0} ns: {:.0} ns more", c - rust);
    Ok(())
}
