//! The loader on objects of the system's C compiler: what must run, what must
//! be refused by name, and damaged files that must do no harm.

#![cfg(target_arch = "x86_64")]

mod c_object;

use c_object::{FLAGS, compile, compile_with};
use runtime::{Ctx, ElfError, LoadedCode};
use std::ffi::c_void;

/// Runs `kernel` on buffers of i64.
fn run(code: &LoadedCode, buffers: &mut [&mut [i64]]) -> i32 {
    let args: Vec<*mut c_void> = buffers.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
    let kernel = code.kernel("kernel").unwrap();
    // SAFETY: the test's source matches its buffers.
    unsafe { kernel(&Ctx::serial(), args.as_ptr(), std::ptr::null_mut()) }
}

fn refusal(object: &[u8]) -> ElfError {
    LoadedCode::load(object)
        .map(|_| ())
        .expect_err("the object must be refused")
}

/// Covers every kind of relocation that loads: calls and data in other
/// sections, tables of addresses, jump tables, the table of addresses for
/// exported data and for the C library, and 64-bit distances.
const EVERYTHING: &str = r#"
void *memcpy(void *, const void *, unsigned long);
void *memmove(void *, const void *, unsigned long);
void *memset(void *, int, unsigned long);

const long exported[4] = {10, 20, 30, 40};
static const double table[3] = {0.5, 1.5, 2.5};

__attribute__((noinline)) static long twice(long x) { return 2 * x; }
__attribute__((noinline)) long thrice(long x) { return 3 * x; }
static long (*const calls[2])(long) = {twice, thrice};
static void *(*const moves[2])(void *, const void *, unsigned long) = {memcpy, memmove};

__attribute__((noinline)) static long jump(long x, long y) {
    switch (x) {
    case 0: return y + 1;
    case 1: return y * y;
    case 2: return y - 7;
    case 3: return y ^ 12;
    case 4: return y << 3;
    case 5: return y / 3;
    case 6: return twice(y) + 1;
    default: return thrice(y);
    }
}

extern const long distance;
__asm__(".section .rodata.distance,\"a\"\n.globl distance\n.align 8\ndistance: .quad exported - .\n.text\n");

int kernel(const Ctx *ctx, void *const *args, void *workspace) {
    const long *in = args[0];
    long *out = args[1];
    memset(out, 0xff, 16 * sizeof(long));
    memcpy(out, in, in[0] * sizeof(long));
    void *(*volatile move)(void *, const void *, unsigned long) = memmove;
    move(out + 1, out, 2 * sizeof(long));
    for (long i = 0; i < 2; i++) out[4 + i] = calls[(i + in[0]) % 2](i + 5);
    moves[in[0] % 2](out + 6, exported + 1, 2 * sizeof(long));
    for (long i = 0; i < 4; i++) out[8 + i] = jump(2 * i + 1, in[1]);
    out[12] = (long)(table[in[0] - 2] * 4);
    out[13] = *(const long *)((const char *)&distance + distance);
    out[14] = exported[in[0]];
    void *(*volatile copy)(void *, const void *, unsigned long) = memcpy;
    out[15] = copy == *(void *(*const volatile *)(void *, const void *, unsigned long))moves;
    return (int)ctx->abi_version - 1;
}
"#;

fn check_everything(object: &[u8]) {
    let code = LoadedCode::load(object).unwrap();
    let (mut input, mut out) = ([3, 100, 200], [0i64; 16]);
    assert_eq!(run(&code, &mut [&mut input, &mut out]), 0);
    assert_eq!(
        out,
        [
            3,
            3,
            100,
            -1,
            15,
            12,
            20,
            30,
            10_000,
            100 ^ 12,
            33,
            300,
            6,
            10,
            40,
            1
        ]
    );
}

#[test]
fn code_of_every_shape_runs() {
    for extra in [
        &["-fPIC"][..],
        &["-fPIC", "-ffunction-sections", "-fdata-sections"],
        &["-fPIC", "-fvisibility=hidden"],
        &["-fPIC", "-fno-plt"],
        &["-fPIC", "-O0", "-g"],
        &["-fPIC", "-O3", "-fasynchronous-unwind-tables"],
        &["-fPIC", "-Wa,-mrelax-relocations=no"],
        &["-fPIE"],
    ] {
        check_everything(&compile_with(EVERYTHING, &[&FLAGS[..], extra].concat()));
    }
}

#[test]
fn only_exported_functions_are_entries() {
    let code = LoadedCode::load(&compile(EVERYTHING)).unwrap();
    assert_eq!(code.functions().collect::<Vec<_>>(), ["kernel", "thrice"]);
    assert!(code.function("exported").is_none());
    assert!(matches!(code.kernel("other"), Err(ElfError::NoEntry { entry }) if entry == "other"));
}

#[test]
fn code_is_not_writable_and_is_fenced() {
    let code = LoadedCode::load(&compile(EVERYTHING)).unwrap();
    let address = code.function("kernel").unwrap() as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let regions: Vec<(usize, usize, &str)> = maps
        .lines()
        .map(|line| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (begin, end) = range.split_once('-').unwrap();
            let hex = |s| usize::from_str_radix(s, 16).unwrap();
            (hex(begin), hex(end), &rest[..4])
        })
        .collect();
    let at = |address: usize| {
        regions
            .iter()
            .find(|r| (r.0..r.1).contains(&address))
            .unwrap()
    };
    let code_pages = at(address);
    assert_eq!(code_pages.2, "r-xp");
    assert_eq!(at(code_pages.0 - 1).2, "---p");
    let data_pages = at(code_pages.1);
    assert_eq!(data_pages.2, "r--p");
    assert_eq!(at(data_pages.1).2, "---p");
}

#[test]
fn what_the_object_may_not_use_is_named() {
    let sine = compile("double sin(double); double kernel(double x) { return sin(x); }");
    assert!(matches!(refusal(&sine), ElfError::UndefinedSymbol { symbol } if symbol == "sin"));
    let data = compile("extern int errno_like; int kernel(void) { return errno_like; }");
    assert!(
        matches!(refusal(&data), ElfError::UndefinedSymbol { symbol } if symbol == "errno_like")
    );
    for (source, name, why) in [
        (
            "int state = 3; int kernel(void) { return ++state; }",
            ".data",
            "writable",
        ),
        (
            "static int state; int kernel(void) { return ++state; }",
            ".bss",
            "writable",
        ),
        (
            "static __thread int state; int kernel(void) { return ++state; }",
            ".tbss",
            "local",
        ),
        (
            "int kernel(void) { return 0; }
             __attribute__((constructor)) static void start(void) { kernel(); }",
            ".init_array",
            "writable",
        ),
    ] {
        let error = refusal(&compile(source));
        assert!(
            matches!(&error, ElfError::Section { section, reason }
                if section == name && reason.contains(why)),
            "{name}: {error}"
        );
    }
    let common = compile_with(
        "int state[4]; int *kernel(void) { return state; }",
        &["-O2", "-fPIC", "-fcommon"],
    );
    assert!(matches!(refusal(&common), ElfError::Symbol { symbol, .. } if symbol == "state"));
}

#[test]
fn relocations_out_of_range_or_unknown_are_named() {
    let absolute = compile_with(
        "static const int table[] = {1, 2}; int kernel(long i) { return table[i]; }",
        &["-O2", "-fno-pic"],
    );
    assert!(matches!(
        refusal(&absolute),
        ElfError::RelocationRange { relocation: "R_X86_64_32S", section, .. } if section == ".text"
    ));
    let large = compile_with(
        "const int table[] = {1, 2}; int kernel(long i) { return table[i]; }",
        &["-O2", "-fPIC", "-mcmodel=large"],
    );
    let error = refusal(&large);
    assert!(
        matches!(&error, ElfError::UnknownRelocation { relocation, .. }
            if relocation.starts_with("R_X86_64_GOT")),
        "{error}"
    );
}

fn u64_at(object: &[u8], at: usize) -> usize {
    u64::from_le_bytes(object[at..at + 8].try_into().unwrap()) as usize
}

/// Offset of the symbol table entry of `name`.
fn symbol_at(object: &[u8], name: &str) -> usize {
    let headers = u64_at(object, 40);
    let header = |i: usize| headers + 64 * i;
    let kind = |i: usize| object[header(i) + 4];
    let count = usize::from(u16::from_le_bytes(object[60..62].try_into().unwrap()));
    let table = (0..count).find(|i| kind(*i) == 2).unwrap();
    let names = header(usize::from(object[header(table) + 40]));
    let names = u64_at(object, names + 24);
    let (start, size) = (
        u64_at(object, header(table) + 24),
        u64_at(object, header(table) + 32),
    );
    (start..start + size)
        .step_by(24)
        .find(|at| {
            let text = u32::from_le_bytes(object[*at..at + 4].try_into().unwrap()) as usize;
            object[names + text..].starts_with(format!("{name}\0").as_bytes())
        })
        .unwrap()
}

#[test]
fn absolute_values_load_where_they_fit() {
    let source = "extern char marker[];
        int kernel(const Ctx *ctx, void *const *args, void *w) {
            *(long *)args[0] = (long)marker;
            return 0;
        }";
    // The absolute value of `marker`, and the relocation that must carry it.
    for (model, value, fits) in [
        ("-mcmodel=small", 0x1234usize, true),
        ("-mcmodel=small", 1 << 33, false),
        ("-mcmodel=kernel", 0xffff_ffff_8000_1234, true),
        ("-mcmodel=kernel", 1 << 31, false),
    ] {
        let mut object = compile_with(source, &[&FLAGS[..], &["-fno-pic", model]].concat());
        let at = symbol_at(&object, "marker");
        object[at + 6..at + 8].copy_from_slice(&0xfff1u16.to_le_bytes());
        object[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
        match LoadedCode::load(&object) {
            Ok(code) => {
                let mut out = [0i64];
                assert!(fits, "{model} {value:#x}");
                assert_eq!(run(&code, &mut [&mut out]), 0);
                assert_eq!(out[0] as usize, value);
            }
            Err(error) => {
                assert!(
                    !fits && matches!(error, ElfError::RelocationRange { .. }),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn other_machines_and_kinds_of_file_are_named() {
    let object = compile("int kernel(void) { return 0; }");
    for (number, name) in [(183u16, "AArch64"), (243, "RISC-V"), (190, "NVIDIA GPUs")] {
        let mut other = object.clone();
        other[18..20].copy_from_slice(&number.to_le_bytes());
        assert!(matches!(refusal(&other), ElfError::Machine { machine } if machine == name));
    }
    for (at, value) in [(0, b'x'), (4, 1), (5, 2), (16, 3)] {
        let mut other = object.clone();
        other[at] = value;
        assert!(matches!(refusal(&other), ElfError::NotAnObject(_)));
    }
    assert!(matches!(refusal(b""), ElfError::NotAnObject(_)));
    assert!(matches!(refusal(&object[..63]), ElfError::Damaged(_)));
}

/// Offset of the first section header of type `kind`.
fn header_at(object: &[u8], kind: u8) -> usize {
    let count = usize::from(u16::from_le_bytes(object[60..62].try_into().unwrap()));
    let headers = (0..count).map(|i| u64_at(object, 40) + 64 * i);
    headers
        .into_iter()
        .find(|at| object[at + 4] == kind)
        .unwrap()
}

#[test]
fn relocations_outside_their_section_are_refused() {
    let object = compile(
        "extern const int a[]; const int *kernel(void) { return a; } const int a[] = {1, 2};",
    );
    LoadedCode::load(&object).unwrap();
    let relocations = header_at(&object, 4);
    let (entry, target) = (
        u64_at(&object, relocations + 24),
        usize::from(object[relocations + 44]),
    );
    let size = u64_at(&object, u64_at(&object, 40) + 64 * target + 32) as u64;
    for offset in [size - 3, size, u64::MAX - 1] {
        let mut damaged = object.clone();
        damaged[entry..entry + 8].copy_from_slice(&offset.to_le_bytes());
        assert!(matches!(
            refusal(&damaged),
            ElfError::Damaged("a relocation's offset")
        ));
    }
    let mut damaged = object.clone();
    damaged[relocations + 40] ^= 1;
    assert!(matches!(
        refusal(&damaged),
        ElfError::Damaged("a relocation section")
    ));
}

#[test]
fn damaged_objects_are_refused_or_load_without_harm() {
    let object = compile(EVERYTHING);
    for len in 0..object.len() {
        assert!(
            LoadedCode::load(&object[..len]).is_err(),
            "{len} of {} bytes",
            object.len()
        );
    }
    let (mut loaded, mut refused) = (0, 0);
    let mut damaged = object.clone();
    for at in 0..object.len() {
        for flip in [0x01, 0x80, 0xff] {
            damaged[at] = object[at] ^ flip;
            match LoadedCode::load(&damaged) {
                Ok(_) => loaded += 1,
                Err(_) => refused += 1,
            }
        }
        damaged[at] = object[at];
    }
    assert!(
        loaded > 1000 && refused > 1000,
        "{loaded} loaded, {refused} refused"
    );
}

#[test]
fn several_damaged_bytes_at_once_do_no_harm() {
    let object = compile(EVERYTHING);
    let mut state = 1u64;
    let mut draw = |n: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    // Half of the damage goes to the section table, where offsets and sizes are.
    let table = u64_at(&object, 40);
    let mut refused = 0;
    for _ in 0..4000 {
        let mut damaged = object.clone();
        for _ in 0..1 + draw(8) {
            let at = if draw(2) == 0 {
                draw(object.len())
            } else {
                table + draw(object.len() - table)
            };
            damaged[at] = draw(256) as u8;
        }
        refused += usize::from(LoadedCode::load(&damaged).is_err());
    }
    assert!(refused > 400, "{refused} refused");
}

/// A table of sections that all are the same bytes would make a small file large.
#[test]
fn sections_that_are_the_same_bytes_are_refused() {
    let source = "
    const char filler[30000] = {1, 2, 3};
    int kernel(const Ctx *ctx, void *const *args, void *workspace) { return filler[2]; }";
    let object = compile(source);
    LoadedCode::load(&object).unwrap();
    let u64_at = |at: usize| u64::from_le_bytes(object[at..at + 8].try_into().unwrap());
    let count = u16::from_le_bytes(object[60..62].try_into().unwrap());
    let table = u64_at(40) as usize;
    let headers = &object[table..table + 64 * usize::from(count)];
    let size = |h: &[u8]| u64::from_le_bytes(h[32..40].try_into().unwrap());
    let largest = headers.chunks(64).find(|h| size(h) == 30_000).unwrap();
    let with_copies = |copies: u16| {
        let mut changed = object.clone();
        changed.resize(changed.len().next_multiple_of(8), 0);
        let table = changed.len() as u64;
        changed.extend_from_slice(headers);
        changed.extend(largest.repeat(copies.into()));
        changed[40..48].copy_from_slice(&table.to_le_bytes());
        changed[60..62].copy_from_slice(&(count + copies).to_le_bytes());
        changed
    };
    LoadedCode::load(&with_copies(1)).unwrap();
    assert!(matches!(refusal(&with_copies(2000)), ElfError::Damaged(..)));
}
