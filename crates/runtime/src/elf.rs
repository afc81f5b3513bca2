//! Loads an ELF64 relocatable object into memory of its own and finds its entries.
//!
//! Owns the memory of code and its protection. Promises: no byte of
//! the object is trusted, so a truncated or hostile file gives an error and no
//! access out of bounds; code is never writable while it can run; unreadable
//! pages lie before and after it; and the object calls nothing but `memcpy`,
//! `memmove` and `memset`. What the code does when run is its builder's
//! promise. Reading the tables is in `object`, placement and relocation in `link`.

use crate::abi::KernelFn;
use crate::link::Image;
use crate::mapping::{Mapping, page_size};
use crate::relocation::Machine;
use rustix::mm::MprotectFlags;
use std::collections::BTreeMap;
use std::io;
use thiserror::Error;

/// Why an object was refused. The object comes from a builder, so the way out
/// is to build it again with what the message asks for.
#[derive(Debug, Error)]
pub enum ElfError {
    #[error("not an ELF64 little-endian relocatable object: {0}; compile with `-c`")]
    NotAnObject(&'static str),
    #[error("the object ends or is damaged inside {0}; build it again")]
    Damaged(&'static str),
    #[error(
        "the object is for {machine} and this loader runs x86-64 code on x86-64 only; build it \
         for this machine"
    )]
    Machine { machine: String },
    #[error("section `{section}` cannot be loaded: {reason}")]
    Section {
        section: String,
        reason: &'static str,
    },
    #[error(
        "the object calls or reads `{symbol}`, which it does not define; kernels may use memcpy, \
         memmove and memset only"
    )]
    UndefinedSymbol { symbol: String },
    #[error("symbol `{symbol}` cannot be used: {reason}")]
    Symbol {
        symbol: String,
        reason: &'static str,
    },
    #[error(
        "relocation {relocation} at {section}+{offset:#x} is not supported; build \
         position-independent code in the small code model"
    )]
    UnknownRelocation {
        relocation: String,
        section: String,
        offset: u64,
    },
    #[error(
        "relocation {relocation} at {section}+{offset:#x} does not reach its target; build \
         position-independent code in the small code model"
    )]
    RelocationRange {
        relocation: &'static str,
        section: String,
        offset: u64,
    },
    #[error("the object defines no function `{entry}`; the entry's name and the code do not match")]
    NoEntry { entry: String },
    #[error("cannot get memory for the code: {0}")]
    Memory(#[from] io::Error),
}

/// Code that is ready to run. Its addresses are valid as long as this value.
#[derive(Debug)]
pub struct LoadedCode {
    mapping: Mapping,
    functions: BTreeMap<String, usize>,
}

impl LoadedCode {
    pub fn load(bytes: &[u8]) -> Result<LoadedCode, ElfError> {
        let page = page_size();
        let linked = Image::new(bytes, page)?;
        if linked.machine() != Machine::X86_64 || !cfg!(target_arch = "x86_64") {
            return Err(ElfError::Machine {
                machine: Machine::name(linked.machine().number()),
            });
        }
        let (code, image) = (linked.code_bytes(), linked.bytes());
        let mapping = Mapping::reserve(image + 2 * page)?;
        mapping.protect(
            page..page + image,
            MprotectFlags::READ | MprotectFlags::WRITE,
        )?;
        // SAFETY: these pages lie in the mapping, were just made writable and
        // are not referenced elsewhere.
        let memory = unsafe { std::slice::from_raw_parts_mut(mapping.as_ptr().add(page), image) };
        let base = memory.as_ptr() as u64;
        linked.write(memory, base, &external_address)?;
        let functions = linked.functions();
        mapping.protect(page..page + code, MprotectFlags::READ | MprotectFlags::EXEC)?;
        mapping.protect(page + code..page + image, MprotectFlags::READ)?;
        Ok(LoadedCode { mapping, functions })
    }

    /// Bytes of memory that the code takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// The address of a function that the object exports.
    pub fn function(&self, name: &str) -> Option<*const u8> {
        let offset = *self.functions.get(name)?;
        Some(
            self.mapping
                .as_ptr()
                .wrapping_add(page_size() + offset)
                .cast_const(),
        )
    }

    /// The names of the exported functions, sorted.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }

    /// An exported function as a kernel. Calling it is unsafe: the name must
    /// be that of a function with the kernel ABI, and this value must be alive.
    pub fn kernel(&self, entry: &str) -> Result<KernelFn, ElfError> {
        let address = self.function(entry).ok_or_else(|| ElfError::NoEntry {
            entry: entry.to_string(),
        })?;
        // SAFETY: the address is that of code; the caller of the function
        // pointer vouches for its signature.
        Ok(unsafe { std::mem::transmute::<*const u8, KernelFn>(address) })
    }
}

/// The functions that code may call, at their addresses in this process.
fn external_address(name: &str) -> Option<u64> {
    match name {
        "memcpy" => Some(libc::memcpy as *const () as u64),
        "memmove" => Some(libc::memmove as *const () as u64),
        "memset" => Some(libc::memset as *const () as u64),
        _ => None,
    }
}
