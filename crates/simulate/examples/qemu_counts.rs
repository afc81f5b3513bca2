//! A plugin for QEMU's emulation of user processes that counts what one call of a kernel does.
//!
//! `-plugin libqemu_counts.so,setting=FILE,out=FILE`: the setting of the caches is read as JSON, and [`Statistics`] are
//! written as JSON when the process ends. Only what runs between two markers counts, which are instructions that do
//! nothing. Blocks that hold a marker do not count.
//!
//! How often each block runs gives instructions and branches. An instruction that was seen to read or write memory stands for one load or
//! store each time that its block runs. QEMU tells of a wide access in pieces: pieces that follow each other, of the
//! same run of the same instruction, are one access to each line.
//!
//! The functions are those of version 1 of QEMU's plugin interface, which QEMU 7 has.

use simulate::{Access, CacheSetting, Caches, LINE, Statistics};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock};

#[repr(C)]
struct Block([u8; 0]);
#[repr(C)]
struct Instruction([u8; 0]);
#[repr(C)]
pub struct Info {
    target: *const c_char,
}

type Id = u64;
type Run = extern "C" fn(c_uint, *mut c_void);
type Memory = extern "C" fn(c_uint, u32, u64, *mut c_void);

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, call: extern "C" fn(Id, *mut Block));
    fn qemu_plugin_register_atexit_cb(
        id: Id,
        call: extern "C" fn(Id, *mut c_void),
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_tb_exec_cb(
        b: *mut Block,
        call: Run,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        i: *mut Instruction,
        call: Run,
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_mem_cb(
        i: *mut Instruction,
        call: Memory,
        flags: c_int,
        kinds: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_tb_n_insns(b: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(b: *const Block, at: usize) -> *mut Instruction;
    fn qemu_plugin_insn_data(i: *const Instruction) -> *const u8;
    fn qemu_plugin_insn_size(i: *const Instruction) -> usize;
    fn qemu_plugin_insn_vaddr(i: *const Instruction) -> u64;
    fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    fn qemu_plugin_mem_is_store(info: u32) -> bool;
}

/// That a call reads no registers, and that it hears of reads and writes.
const NO_REGISTERS: c_int = 0;
const READS_AND_WRITES: c_int = 3;

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU's name")]
pub static qemu_plugin_version: c_int = 1;

/// Bytes of a page of QEMU's.
const PAGE: u64 = 4096;

#[derive(Clone, Copy)]
enum Isa {
    X86,
    AArch64,
    RiscV,
}

/// What happens while the call is counted.
struct Counter {
    isa: Isa,
    setting: CacheSetting,
    out: PathBuf,
    caches: Caches,
    counting: bool,
    blocks: Vec<Counted>,
    accesses: Vec<Accessing>,
    /// Where instructions begin that end in another page.
    crossing: BTreeSet<u64>,
    /// Blocks that have run.
    run: u64,
}

struct Counted {
    runs: u64,
    instructions: u64,
    branches: u64,
    /// Where the last instruction begins, and whether it is a branch.
    last: (u64, bool),
    /// The lines of its code.
    lines: std::ops::RangeInclusive<u64>,
}

/// An instruction of a block, and the access that it made last.
struct Accessing {
    block: usize,
    loads: bool,
    stores: bool,
    run: u64,
    end: u64,
    store: bool,
}

static COUNTER: OnceLock<Mutex<Counter>> = OnceLock::new();

fn counter() -> MutexGuard<'static, Counter> {
    let counter = COUNTER
        .get()
        .expect("QEMU calls `qemu_plugin_install` first");
    counter.lock().expect("nothing panics with it")
}

/// # Safety
/// QEMU gives the name of the target and `count` arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the caller says so.
    let text = |t: *const c_char| unsafe { CStr::from_ptr(t) }.to_string_lossy().to_string();
    // SAFETY: as above.
    let target = text(unsafe { (*info).target });
    // SAFETY: as above.
    let arguments = (0..count as usize).map(|i| text(unsafe { *arguments.add(i) }));
    match counter_of(&target, &arguments.collect::<Vec<_>>()) {
        Ok(made) => {
            COUNTER.get_or_init(|| Mutex::new(made));
            // SAFETY: the functions have the types that QEMU calls.
            unsafe {
                qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
                qemu_plugin_register_atexit_cb(id, ended, std::ptr::null_mut());
            }
            0
        }
        Err(why) => {
            eprintln!("qemu_counts: {why}");
            1
        }
    }
}

fn counter_of(target: &str, arguments: &[String]) -> Result<Counter, String> {
    let isa = match target {
        "x86_64" => Isa::X86,
        "aarch64" => Isa::AArch64,
        "riscv64" => Isa::RiscV,
        other => return Err(format!("the target {other} is not known")),
    };
    let argument = |name: &str| {
        let mut found = arguments
            .iter()
            .filter_map(|a| a.strip_prefix(name)?.strip_prefix('='));
        found.next().ok_or_else(|| format!("give {name}=FILE"))
    };
    let text = std::fs::read_to_string(argument("setting")?).map_err(|e| e.to_string())?;
    let setting: CacheSetting = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    Ok(Counter {
        isa,
        caches: Caches::new(&setting),
        setting,
        out: argument("out")?.into(),
        counting: false,
        blocks: vec![],
        accesses: vec![],
        crossing: BTreeSet::new(),
        run: 0,
    })
}

impl Counter {
    /// Adds a block. QEMU ends a block before an instruction that would end in another page, and begins the next
    /// one with it. By then it has listed the instruction in the block before as well, with a part of its bytes. It
    /// counts in the next block only.
    fn add(&mut self, mut block: Counted, first: (u64, u64)) {
        let (begin, size) = first;
        if begin / PAGE != (begin + size.max(1) - 1) / PAGE && self.crossing.insert(begin) {
            let before = self.blocks.iter_mut().filter(|b| b.last.0 == begin);
            before.for_each(Counted::leave_out_last);
        }
        if self.crossing.contains(&block.last.0) {
            block.leave_out_last();
        }
        self.blocks.push(block);
    }
}

impl Counted {
    /// Takes the last instruction off, unless it is the only one.
    fn leave_out_last(&mut self) {
        if self.instructions > 1 {
            self.instructions -= 1;
            self.branches -= u64::from(self.last.1);
        }
    }
}

/// What of a block counts is asked for when QEMU translates it.
extern "C" fn translated(_: Id, block: *mut Block) {
    let mut counter = counter();
    // SAFETY: QEMU gives a block that lives during this call, and numbers below the count are its instructions.
    let instructions: Vec<(*mut Instruction, u64, &[u8])> = unsafe {
        (0..qemu_plugin_tb_n_insns(block))
            .map(|at| {
                let i = qemu_plugin_tb_get_insn(block, at);
                let (data, size) = (qemu_plugin_insn_data(i), qemu_plugin_insn_size(i));
                let bytes = std::slice::from_raw_parts(data, size);
                (i, qemu_plugin_insn_vaddr(i), bytes)
            })
            .collect()
    };
    let mut marked = false;
    for (i, _, bytes) in &instructions {
        if let Some(begins) = marker(counter.isa, bytes) {
            marked = true;
            let call = if begins { begin } else { end };
            // SAFETY: the instruction is one of the block.
            unsafe {
                qemu_plugin_register_vcpu_insn_exec_cb(*i, call, NO_REGISTERS, std::ptr::null_mut())
            };
        }
    }
    let (Some(first), Some(last)) = (instructions.first(), instructions.last()) else {
        return;
    };
    if marked {
        return;
    }
    let number = counter.blocks.len();
    let isa = counter.isa;
    let counted = Counted {
        runs: 0,
        instructions: instructions.len() as u64,
        branches: instructions.iter().filter(|i| branches(isa, i.2)).count() as u64,
        last: (last.1, branches(isa, last.2)),
        lines: first.1 / LINE..=(last.1 + last.2.len().max(1) as u64 - 1) / LINE,
    };
    counter.add(counted, (first.1, first.2.len() as u64));
    // SAFETY: the block and its instructions are QEMU's.
    unsafe {
        qemu_plugin_register_vcpu_tb_exec_cb(block, ran, NO_REGISTERS, number as *mut c_void)
    };
    for (i, ..) in &instructions {
        let own = counter.accesses.len() as *mut c_void;
        counter.accesses.push(Accessing {
            block: number,
            loads: false,
            stores: false,
            run: 0,
            end: 0,
            store: false,
        });
        // SAFETY: as above.
        unsafe {
            qemu_plugin_register_vcpu_mem_cb(*i, accessed, NO_REGISTERS, READS_AND_WRITES, own)
        };
    }
}

extern "C" fn begin(_: c_uint, _: *mut c_void) {
    let mut c = counter();
    c.caches = Caches::new(&c.setting);
    c.counting = true;
}

extern "C" fn end(_: c_uint, _: *mut c_void) {
    counter().counting = false;
}

extern "C" fn ran(_: c_uint, block: *mut c_void) {
    let c = &mut *counter();
    if c.counting {
        c.run += 1;
        let block = &mut c.blocks[block as usize];
        block.runs += 1;
        let lines = block.lines.clone();
        let rest = block
            .instructions
            .saturating_sub(lines.clone().count() as u64);
        lines.for_each(|line| c.caches.line(line, Access::Fetch));
        c.caches.count_hits(rest, Access::Fetch);
    }
}

extern "C" fn accessed(_: c_uint, info: u32, address: u64, instruction: *mut c_void) {
    let c = &mut *counter();
    if !c.counting {
        return;
    }
    // SAFETY: QEMU gives what describes the access.
    let (bytes, store) = unsafe {
        (
            1u64 << qemu_plugin_mem_size_shift(info),
            qemu_plugin_mem_is_store(info),
        )
    };
    let access = if store { Access::Write } else { Access::Read };
    let i = &mut c.accesses[instruction as usize];
    let follows = i.run == c.run && i.end == address && i.store == store;
    i.loads |= !store;
    i.stores |= store;
    (i.run, i.end, i.store) = (c.run, address + bytes, store);
    if !follows {
        c.caches.access(address, bytes, access);
        return;
    }
    let before = (address - 1) / LINE;
    let last = (address + bytes - 1) / LINE;
    (before + 1..=last).for_each(|line| c.caches.line(line, access));
}

extern "C" fn ended(_: Id, _: *mut c_void) {
    let c = counter();
    let sum = |of: &dyn Fn(&Counted) -> u64| c.blocks.iter().map(|b| (b.runs * of(b)) as f64).sum();
    let made = |of: &dyn Fn(&Accessing) -> bool| {
        let made = c.accesses.iter().filter(|a| of(a));
        made.map(|a| c.blocks[a.block].runs as f64).sum()
    };
    let statistics = Statistics {
        instructions: sum(&|b| b.instructions),
        branches: sum(&|b| b.branches),
        loads: made(&|a| a.loads),
        stores: made(&|a| a.stores),
        ..Statistics::of_caches(&c.caches, "qemu-user, plugin interface 1")
    };
    let text = serde_json::to_string(&statistics).expect("plain data");
    if let Err(error) = std::fs::write(&c.out, text) {
        eprintln!("qemu_counts: {}: {error}", c.out.display());
    }
}

/// Whether an instruction is a marker, and if so whether the counted call begins there.
fn marker(isa: Isa, bytes: &[u8]) -> Option<bool> {
    let [begin, end]: [&[u8]; 2] = match isa {
        Isa::X86 => [
            &[0x0f, 0x1f, 0x80, 0x01, 0x5a, 0x4d, 0],
            &[0x0f, 0x1f, 0x80, 0x02, 0x5a, 0x4d, 0],
        ],
        Isa::AArch64 => [&[0x3f, 0x2e, 0x03, 0xd5], &[0x5f, 0x2e, 0x03, 0xd5]],
        Isa::RiscV => [&[0x13, 0x20, 0x10, 0x5a], &[0x13, 0x20, 0x20, 0x5a]],
    };
    match bytes {
        b if b == begin => Some(true),
        b if b == end => Some(false),
        _ => None,
    }
}

/// Whether an instruction is a jump, a call or a return.
fn branches(isa: Isa, bytes: &[u8]) -> bool {
    let word = || {
        bytes
            .iter()
            .take(4)
            .rev()
            .fold(0u32, |w, b| w << 8 | u32::from(*b))
    };
    match isa {
        Isa::X86 => {
            let prefix = |b: &u8| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x66 | 0xf2 | 0xf3);
            let mut rest = bytes.iter().skip_while(|b| prefix(b));
            match (rest.next(), rest.next()) {
                (Some(0x70..=0x7f | 0xc2 | 0xc3 | 0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb), _) => true,
                (Some(0x0f), Some(0x80..=0x8f)) => true,
                (Some(0xff), Some(operands)) => matches!(operands >> 3 & 7, 2..=5),
                _ => false,
            }
        }
        Isa::AArch64 => {
            let w = word();
            w & 0x7c00_0000 == 0x1400_0000
                || w & 0xff00_0000 == 0x5400_0000
                || w & 0x7c00_0000 == 0x3400_0000
                || w & 0xfe00_0000 == 0xd600_0000
        }
        Isa::RiscV => match (word(), word() & 3) {
            (w, 3) => matches!(w & 0x7f, 0x63 | 0x67 | 0x6f),
            (w, 1) => matches!(w >> 13 & 7, 5..=7),
            (w, 2) => w >> 13 & 7 == 4 && w >> 2 & 0x1f == 0 && w >> 7 & 0x1f != 0,
            _ => false,
        },
    }
}
