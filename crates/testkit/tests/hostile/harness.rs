//! Runs a reader on many random inputs, one for each seed.
//!
//! A case is a function of its seed alone. One that panics is made smaller, kept in the
//! temporary folder, and reported with its seed. One that takes too long, or too much memory,
//! ends the process with its seed, since nothing else can end it.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testkit::setting;

/// The readers that are tested, in one order for all.
pub const READERS: [&str; 9] = [
    "onnx", "tensor", "npy", "program", "trace", "records", "table", "artifact", "target",
];

/// Memory of the process that no small input takes.
const MOST_MEMORY: u64 = 3 << 30;
/// Time that no small input takes, on a machine that does much else.
const LONGEST: Duration = Duration::from_secs(120);
/// Panics at different places that are reported at once.
const MOST_FAILURES: usize = 40;
/// Attempts to make a failing input smaller.
const SMALLER: usize = 400;

pub type Random = Pcg64Mcg;

/// What runs now: the seed of each reader, plus 1, and since when, in milliseconds.
static RUNNING: [(AtomicU64, AtomicU64); READERS.len()] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; READERS.len()];
static BEGUN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

/// Says what runs, where no memory may be had.
fn say_running(why: &str) {
    let mut said = std::io::stderr();
    let _ = writeln!(said, "{why}; these cases run:");
    for (name, (seed, _)) in READERS.iter().zip(&RUNNING) {
        match seed.load(Ordering::Relaxed) {
            0 => {}
            n => {
                let _ = writeln!(said, "  {name}: TUNESMITH_FUZZ_SEED={}", n - 1);
            }
        }
    }
}

/// The system's allocator, which refuses what no small input may ask for.
struct Frugal;

#[global_allocator]
static ALLOCATOR: Frugal = Frugal;

// SAFETY: all calls go to the system's allocator, or fail.
unsafe impl GlobalAlloc for Frugal {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() as u64 > MOST_MEMORY {
            say_running("an input asks for too much memory at once");
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Ends the process if a case takes too much.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_millis(100));
                if resident_bytes() > MOST_MEMORY {
                    say_running("the process takes too much memory");
                    std::process::abort();
                }
                let now = BEGUN.elapsed().as_millis() as u64;
                let slow = |(seed, since): &(AtomicU64, AtomicU64)| {
                    let age = now.saturating_sub(since.load(Ordering::Relaxed));
                    seed.load(Ordering::Relaxed) > 0 && age > LONGEST.as_millis() as u64
                };
                if RUNNING.iter().any(slow) {
                    say_running("a case takes too long");
                    std::process::abort();
                }
            }
        });
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map_or("?".into(), ToString::to_string);
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let message = text.or(payload.downcast_ref::<String>().map(String::as_str));
            let message = message.unwrap_or("?");
            LAST.with(|l| *l.borrow_mut() = (place, message.to_string()));
        }));
    });
}

thread_local! {
    /// Where the last panic of this thread was, and what it said.
    static LAST: RefCell<(String, String)> = RefCell::default();
}

/// Whether a reader takes an input, or where and how it panics.
fn fault(input: &[u8], read: &dyn Fn(&[u8]) -> bool) -> Result<bool, (String, String)> {
    let run = catch_unwind(AssertUnwindSafe(|| read(input)));
    run.map_err(|_| LAST.with(|l| l.borrow().clone()))
}

/// The input with parts left out, as far as it still fails at the same place.
fn smaller(input: &[u8], place: &str, read: &dyn Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut best = input.to_vec();
    let mut tried = 0;
    let mut length = best.len() / 2;
    while length > 0 && tried < SMALLER {
        let mut at = 0;
        while at + length <= best.len() && tried < SMALLER {
            let mut part = best.clone();
            part.drain(at..at + length);
            tried += 1;
            match fault(&part, read) {
                Err((found, _)) if found == place => best = part,
                _ => at += length,
            }
        }
        length /= 2;
    }
    best
}

/// Reads what `make` makes of many seeds; `read` says whether it is taken.
///
/// # Panics
/// If the reader does, once for all places where it did, or if it takes next to nothing: then
/// the inputs are of no use.
pub fn fuzz(
    name: &str,
    usual: u64,
    make: impl Fn(&mut Random) -> Vec<u8>,
    read: impl Fn(&[u8]) -> bool,
) {
    watch();
    let index = READERS.iter().position(|r| *r == name).expect("a reader");
    let seconds = setting("TUNESMITH_FUZZ_SECONDS", 0) / READERS.len() as u64;
    let (first, cases) = (
        setting("TUNESMITH_FUZZ_SEED", 0),
        setting("TUNESMITH_FUZZ", usual),
    );
    let begun = Instant::now();
    let mut failures: BTreeMap<String, String> = BTreeMap::new();
    let (mut seed, mut taken) = (first, 0);
    loop {
        let enough = match seconds {
            0 => seed - first >= cases,
            _ => begun.elapsed().as_secs() >= seconds,
        };
        if enough || failures.len() >= MOST_FAILURES {
            break;
        }
        let (running, since) = &RUNNING[index];
        since.store(BEGUN.elapsed().as_millis() as u64, Ordering::Relaxed);
        running.store(seed + 1, Ordering::Relaxed);
        let input = make(&mut Random::seed_from_u64(seed));
        if std::env::var_os("TUNESMITH_FUZZ_KEEP").is_some() {
            keep(name, seed, &input);
        }
        let result = fault(&input, &read);
        taken += u64::from(result == Ok(true));
        if let Err((place, message)) = result
            && !failures.contains_key(&place)
        {
            let small = smaller(&input, &place, &read);
            let kept = keep(name, seed, &small);
            let message: String = message.chars().take(400).collect();
            failures.insert(
                place.clone(),
                format!("TUNESMITH_FUZZ_SEED={seed}: {place}: {message}\n  input: {kept}"),
            );
        }
        running.store(0, Ordering::Relaxed);
        seed += 1;
    }
    let (all, time) = (seed - first, begun.elapsed());
    eprintln!("{name}: {all} cases in {time:?}, {taken} taken");
    assert!(
        all < 1000 || taken * 100 > all,
        "{name} takes {taken} of {all} inputs"
    );
    let all: Vec<String> = failures.into_values().collect();
    // The hook keeps what panics say.
    eprintln!("{}", all.join("\n"));
    assert!(all.is_empty(), "{name} panics: see above");
}

fn keep(name: &str, seed: u64, input: &[u8]) -> String {
    let path = std::env::temp_dir().join(format!("tunesmith-fuzz-{name}-{seed}"));
    match std::fs::write(&path, input) {
        Ok(()) => path.display().to_string(),
        Err(e) => format!("not kept: {e}"),
    }
}

/// Numbers that readers are careless with.
pub fn number(r: &mut Random) -> i64 {
    const ODD: [i64; 24] = [
        0,
        1,
        -1,
        2,
        3,
        -2,
        4,
        5,
        7,
        8,
        16,
        127,
        255,
        256,
        1 << 16,
        1 << 20,
        1 << 31,
        (1 << 31) - 1,
        1 << 32,
        1 << 40,
        1 << 62,
        i64::MIN,
        i64::MAX,
        -1_000_000_000,
    ];
    match r.random_range(0..3) {
        0 => r.random_range(-4..8),
        _ => ODD[r.random_range(0..ODD.len())],
    }
}

/// Changes a few bytes, or takes, repeats or adds some.
pub fn change_bytes(r: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..r.random_range(1..5) {
        if bytes.is_empty() {
            return;
        }
        let at = r.random_range(0..bytes.len());
        let to = (at + r.random_range(0..24)).min(bytes.len());
        match r.random_range(0..7) {
            0 => bytes[at] ^= 1 << r.random_range(0..8),
            1 => bytes[at] = r.random(),
            2 => drop(bytes.drain(at..to)),
            3 => {
                let part = bytes[at..to].to_vec();
                let place = r.random_range(0..=bytes.len());
                bytes.splice(place..place, part);
            }
            4 => {
                let wide = number(r).to_le_bytes();
                for (b, w) in bytes[at..].iter_mut().zip(wide) {
                    *b = w;
                }
            }
            5 => {
                let digits = number(r).to_string();
                bytes.splice(at..at, digits.bytes());
            }
            _ => bytes.truncate(to.max(1)),
        }
    }
}

/// Changes words and numbers of a text, and whole lines.
pub fn change_text(r: &mut Random, text: &str) -> String {
    let mut text = text.to_string();
    for _ in 0..r.random_range(1..5) {
        let words: Vec<(usize, usize)> = words(&text);
        if words.is_empty() {
            break;
        }
        let pick = |r: &mut Random| words[r.random_range(0..words.len())];
        let (from, to) = pick(r);
        match r.random_range(0..6) {
            0 => text.replace_range(from..to, &number(r).to_string()),
            1 => {
                let (a, b) = pick(r);
                let other = text[a..b].to_string();
                text.replace_range(from..to, &other);
            }
            2 => text.replace_range(from..to, ""),
            3 => {
                let lines: Vec<&str> = text.lines().collect();
                let (a, b) = (
                    r.random_range(0..lines.len().max(1)),
                    r.random_range(0..lines.len().max(1)),
                );
                let mut lines = lines;
                if a < lines.len() {
                    let line = lines[a];
                    lines.insert(b, line);
                }
                text = lines.join("\n");
            }
            4 => {
                let mut lines: Vec<&str> = text.lines().collect();
                if !lines.is_empty() {
                    lines.remove(r.random_range(0..lines.len()));
                }
                text = lines.join("\n");
            }
            _ => {
                let mut bytes = text.into_bytes();
                change_bytes(r, &mut bytes);
                text = String::from_utf8_lossy(&bytes).into_owned();
            }
        }
    }
    text
}

/// Runs of letters and digits, and single other characters.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut words: Vec<(usize, usize)> = Vec::new();
    let mut joins = false;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        let word = c.is_alphanumeric() || c == '_';
        match words.last_mut() {
            Some(last) if word && joins => last.1 = end,
            _ if !c.is_whitespace() => words.push((at, end)),
            _ => {}
        }
        joins = word;
    }
    words
}
