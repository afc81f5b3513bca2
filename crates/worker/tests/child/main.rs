//! A child for the tests: does what it is asked, bad things included.

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub enum Request {
    Echo(u64),
    Segfault,
    Hang,
    Exit(i32),
    Allocate(usize),
    Garbage,
}

fn main() -> std::io::Result<()> {
    worker::serve(|request| match request {
        Request::Echo(v) => v,
        Request::Segfault => {
            eprintln!("about to fault");
            // SAFETY: none; faulting is the point.
            unsafe { std::ptr::null_mut::<u32>().write_volatile(1) };
            0
        }
        Request::Hang => loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        },
        Request::Exit(code) => std::process::exit(code),
        Request::Allocate(bytes) => vec![1u8; bytes].len() as u64,
        Request::Garbage => {
            println!("a stray print");
            7
        }
    })
}
