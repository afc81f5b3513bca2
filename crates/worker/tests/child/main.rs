//! A child for the tests: does what it is asked, bad things included.

use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;
use worker::{ChildLimits, CommandLine, Pool, TimeLimit};

#[derive(Serialize, Deserialize)]
pub enum Request {
    Echo(u64),
    Segfault,
    Hang,
    Exit(i32),
    Allocate(usize),
    Garbage,
    /// Announces an answer of so many bytes, sends a few of them and waits or ends.
    Torn {
        announced: u64,
        hang: bool,
    },
    /// Sends a reply to the request of this id, and then its own.
    Misnamed(u64),
    /// A request larger than a pipe.
    Large(Vec<u64>),
    ProcessId,
    /// Is ended by this signal; once, if it is told a file that then is there.
    End(i32, Option<String>),
    /// Writes to a file of this name.
    Write(String),
    /// Computes until its own clock says it took so long; answers with what it took.
    Spin(u64),
    SpinAndFault(u64),
    SpinAndHang(u64),
    /// Computes for ever once its parent is stopped.
    SpinWithoutParent,
}

fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn spin(least_ns: u64) -> u64 {
    let cpu = || {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    };
    let start = cpu();
    while cpu() - start < least_ns {}
    cpu() - start
}

/// Waits until the process that started this one is stopped.
fn wait_for_stopped_parent() {
    let file = format!("/proc/{}/stat", std::os::unix::process::parent_id());
    let stopped = || std::fs::read_to_string(&file).is_ok_and(|stat| stat.contains(") T "));
    while !stopped() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The descriptor that `serve` will send answers to: the lowest that is free.
fn next_descriptor() -> i32 {
    let next = rustix::io::dup(std::io::stdin()).unwrap();
    next.as_raw_fd()
}

fn misnamed(answers: i32, id: u64) {
    // SAFETY: `serve` opened it, and goes on with it.
    let output = unsafe { std::fs::File::from_raw_fd(answers) };
    let mut output = std::mem::ManuallyDrop::new(output);
    // Its id, the CPU time before and after, and a reply.
    let body = postcard::to_stdvec(&(id, (0u64, 0u64), 1u64)).unwrap();
    output
        .write_all(&(body.len() as u64).to_le_bytes())
        .unwrap();
    output.write_all(&body).unwrap();
}

fn torn(answers: i32, announced: u64, hang: bool) -> ! {
    // SAFETY: `serve` opened it; this process answers nothing more.
    let mut output = unsafe { std::fs::File::from_raw_fd(answers) };
    output.write_all(&announced.to_le_bytes()).unwrap();
    output.write_all(&[0; 5]).unwrap();
    if hang {
        sleep_for_ever();
    }
    std::process::exit(4)
}

/// Has a child of its own spin for ever, and says what became of it.
fn be_parent() {
    let command = CommandLine {
        program: std::env::current_exe().unwrap(),
        args: vec![],
        cpus: vec![],
        stop: worker::Stop::default(),
    };
    let limits = ChildLimits {
        address_space: None,
        writes_files: false,
    };
    let mut pool = Pool::<Request, u64>::new(&command, 1, limits).unwrap();
    // The wall's is the parent's to watch, which will be stopped.
    let limit = TimeLimit {
        wall: Duration::from_secs(60),
        cpu: Duration::from_secs(1),
    };
    pool.submit(1, Request::SpinWithoutParent, limit);
    let answer = pool.next(Duration::from_secs(100)).expect("an answer");
    println!("{:?}", answer.result);
}

fn main() -> std::io::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("parent") {
        be_parent();
        return Ok(());
    }
    let answers = next_descriptor();
    worker::serve(|request| match request {
        Request::Echo(v) => v,
        Request::Segfault => {
            worker::note("faulting at once");
            eprintln!("about to fault");
            // SAFETY: none; faulting is the point.
            unsafe { std::ptr::null_mut::<u32>().write_volatile(1) };
            0
        }
        Request::Hang => {
            worker::note("hang 7");
            sleep_for_ever()
        }
        Request::End(signal, marker) => {
            if marker.is_none_or(|m| std::fs::File::create_new(m).is_ok()) {
                // SAFETY: ending this process, also where a parent such as `nohup` made it
                // ignore the signal.
                unsafe {
                    libc::signal(signal, libc::SIG_DFL);
                    libc::raise(signal);
                }
            }
            5
        }
        Request::Exit(code) => std::process::exit(code),
        Request::Allocate(bytes) => vec![1u8; bytes].len() as u64,
        Request::Garbage => {
            println!("a stray print");
            7
        }
        Request::Torn { announced, hang } => torn(answers, announced, hang),
        Request::Misnamed(id) => {
            misnamed(answers, id);
            2
        }
        Request::Large(values) => values.iter().sum(),
        Request::Spin(ns) => spin(ns),
        Request::SpinWithoutParent => {
            worker::note("spin");
            wait_for_stopped_parent();
            spin(u64::MAX)
        }
        Request::SpinAndFault(ns) => {
            spin(ns);
            std::process::abort()
        }
        Request::SpinAndHang(ns) => {
            spin(ns);
            sleep_for_ever()
        }
        Request::Write(path) => u64::from(std::fs::write(path, [1]).is_ok()),
        Request::ProcessId => u64::from(std::process::id()),
    })
}
