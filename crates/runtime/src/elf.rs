//! Loads an ELF64 relocatable object into memory of its own and finds its entries.
//!
//! Owns the placement, relocation and protection of code. Promises: no byte of
//! the object is trusted, so a truncated or hostile file gives an error and no
//! access out of bounds; code is never writable while it can run; unreadable
//! pages lie before and after it; and the object calls nothing but `memcpy`,
//! `memmove` and `memset`. What the code does when run is its builder's
//! promise. Reading the tables is in `object`.

use crate::abi::KernelFn;
use crate::mapping::{Mapping, page_size};
use crate::object::{Object, Patch, Relocation, Section, Target};
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

/// Code and constants of one object take at most this much memory.
const MAX_IMAGE_BYTES: usize = 256 << 20;

/// What those of an object of so many bytes may take each: its bytes, and what lies
/// between sections for their alignment.
fn image_limit(object_bytes: usize) -> usize {
    (4 * object_bytes + (64 << 10)).min(MAX_IMAGE_BYTES)
}
/// Bytes of an entry of the table of addresses.
const GOT_ENTRY: usize = 8;
/// Bytes of a jump through that table, with padding.
const STUB: usize = 8;

/// Code that is ready to run. Its addresses are valid as long as this value.
#[derive(Debug)]
pub struct LoadedCode {
    mapping: Mapping,
    functions: BTreeMap<String, usize>,
}

impl LoadedCode {
    pub fn load(bytes: &[u8]) -> Result<LoadedCode, ElfError> {
        let object = Object::parse(bytes)?;
        let layout = Layout::new(&object, image_limit(bytes.len()))?;
        let page = page_size();
        // Both runs are at most MAX_IMAGE_BYTES, so nothing here overflows.
        let code = layout.code_bytes.next_multiple_of(page);
        let data = layout.data_bytes.next_multiple_of(page);
        let image = code + data;
        let total = image + 2 * page;
        let mapping = Mapping::reserve(total)?;
        mapping.protect(
            page..page + image,
            MprotectFlags::READ | MprotectFlags::WRITE,
        )?;
        // SAFETY: these pages lie in the mapping, were just made writable and
        // are not referenced elsewhere.
        let memory = unsafe { std::slice::from_raw_parts_mut(mapping.as_ptr().add(page), image) };
        let base = memory.as_ptr() as u64;
        let mut linker = Linker {
            object: &object,
            layout: &layout,
            memory,
            base,
            data_at: code,
        };
        linker.copy_sections()?;
        linker.write_table_and_stubs()?;
        linker.relocate()?;
        let functions = linker.functions()?;
        mapping.protect(page..page + code, MprotectFlags::READ | MprotectFlags::EXEC)?;
        mapping.protect(page + code..page + image, MprotectFlags::READ)?;
        Ok(LoadedCode { mapping, functions })
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

/// Which symbols need help, and where everything goes: code (with stubs) and
/// read-only data (with the table of addresses) are two runs of pages.
struct Layout {
    /// Offset of each loaded section in its run, by section index.
    offsets: BTreeMap<usize, usize>,
    /// Index in the table of addresses, by symbol.
    table: BTreeMap<u32, usize>,
    /// Symbols outside the object, each with the index of its stub.
    stubs: BTreeMap<u32, usize>,
    stubs_at: usize,
    table_at: usize,
    code_bytes: usize,
    data_bytes: usize,
}

impl Layout {
    fn new(object: &Object, limit: usize) -> Result<Layout, ElfError> {
        let (mut table, mut stubs) = (BTreeMap::new(), BTreeMap::new());
        for relocation in &object.relocations {
            let external = matches!(object.symbol(relocation.symbol)?, Target::External(_));
            if external {
                let next = stubs.len();
                stubs.entry(relocation.symbol).or_insert(next);
            }
            if external || relocation.kind.uses_table() {
                let next = table.len();
                table.entry(relocation.symbol).or_insert(next);
            }
        }
        let mut offsets = BTreeMap::new();
        let (mut code, mut data) = (0, 0);
        for (index, section) in &object.sections {
            let run = if section.executable {
                &mut code
            } else {
                &mut data
            };
            offsets.insert(
                *index,
                patch(run, section.align, section.bytes.len(), limit)?,
            );
        }
        let stubs_at = patch(&mut code, STUB, stubs.len() * STUB, limit)?;
        let table_at = patch(&mut data, GOT_ENTRY, table.len() * GOT_ENTRY, limit)?;
        Ok(Layout {
            offsets,
            table,
            stubs,
            stubs_at,
            table_at,
            code_bytes: code,
            data_bytes: data,
        })
    }
}

/// Takes `len` aligned bytes from the end of a run of at most `limit`.
fn patch(run: &mut usize, align: usize, len: usize, limit: usize) -> Result<usize, ElfError> {
    let at = run.checked_next_multiple_of(align.max(1));
    let end = at.and_then(|at| at.checked_add(len));
    match (at, end) {
        (Some(at), Some(end)) if end <= limit => {
            *run = end;
            Ok(at)
        }
        _ => Err(ElfError::Damaged(
            "the section table: the sections are larger than the object allows",
        )),
    }
}

struct Linker<'a> {
    object: &'a Object<'a>,
    layout: &'a Layout,
    /// The code run and then the data run.
    memory: &'a mut [u8],
    /// The address of `memory`.
    base: u64,
    /// Offset of the data run in `memory`.
    data_at: usize,
}

impl Linker<'_> {
    /// Offset in `memory` of a loaded section.
    fn section_at(&self, index: usize, section: &Section) -> usize {
        self.layout.offsets[&index] + if section.executable { 0 } else { self.data_at }
    }

    fn copy_sections(&mut self) -> Result<(), ElfError> {
        let object = self.object;
        for (index, section) in &object.sections {
            let at = self.section_at(*index, section);
            self.write(at, section.bytes)?;
        }
        Ok(())
    }

    fn write_table_and_stubs(&mut self) -> Result<(), ElfError> {
        let layout = self.layout;
        for (symbol, slot) in &layout.table {
            let address = match self.object.symbol(*symbol)? {
                Target::External(name) => external_address(name)?,
                _ => self.address(*symbol)?,
            };
            self.write(self.table_slot(*slot), &address.to_le_bytes())?;
        }
        for (symbol, stub) in &layout.stubs {
            let at = layout.stubs_at + stub * STUB;
            // jmp *[rip + distance to the table entry]; int3 padding.
            let next = (at + 6) as i64;
            let distance = self.table_slot(layout.table[symbol]) as i64 - next;
            let distance = i32::try_from(distance)
                .map_err(|_| ElfError::Damaged("the code, which is over 2 GiB"))?;
            let mut stub = [0xff, 0x25, 0, 0, 0, 0, 0xcc, 0xcc];
            stub[2..6].copy_from_slice(&distance.to_le_bytes());
            self.write(at, &stub)?;
        }
        Ok(())
    }

    fn table_slot(&self, slot: usize) -> usize {
        self.data_at + self.layout.table_at + slot * GOT_ENTRY
    }

    /// The address that stands for a symbol in a relocation: that of the stub
    /// for one outside the object.
    fn address(&self, symbol: u32) -> Result<u64, ElfError> {
        Ok(match self.object.symbol(symbol)? {
            Target::Absolute(value) => value,
            Target::External(_) => {
                self.base + (self.layout.stubs_at + self.layout.stubs[&symbol] * STUB) as u64
            }
            Target::Section { index, offset } => {
                let section = &self.object.sections[&index];
                (self.base + self.section_at(index, section) as u64).wrapping_add(offset)
            }
        })
    }

    fn relocate(&mut self) -> Result<(), ElfError> {
        for relocation in &self.object.relocations {
            self.apply(relocation)?;
        }
        Ok(())
    }

    fn apply(&mut self, relocation: &Relocation) -> Result<(), ElfError> {
        let section = &self.object.sections[&relocation.section];
        let offset = usize::try_from(relocation.offset).ok();
        let width = relocation.kind.width();
        let inside = offset
            .and_then(|o| o.checked_add(width))
            .is_some_and(|e| e <= section.bytes.len());
        let (Some(offset), true) = (offset, inside) else {
            return Err(ElfError::Damaged("a relocation's offset"));
        };
        let at = self.section_at(relocation.section, section) + offset;
        let target = if relocation.kind.uses_table() {
            self.base + self.table_slot(self.layout.table[&relocation.symbol]) as u64
        } else if relocation.kind.patch() == Patch::Absolute64
            && let Target::External(name) = self.object.symbol(relocation.symbol)?
        {
            external_address(name)?
        } else {
            self.address(relocation.symbol)?
        };
        let value = target.wrapping_add_signed(relocation.addend);
        let relative = value.wrapping_sub(self.base.wrapping_add(at as u64));
        let out_of_range = || ElfError::RelocationRange {
            relocation: relocation.kind.name(),
            section: section.name.clone(),
            offset: relocation.offset,
        };
        match relocation.kind.patch() {
            Patch::Absolute64 => self.write(at, &value.to_le_bytes()),
            Patch::Relative64 => self.write(at, &relative.to_le_bytes()),
            Patch::Relative32 => {
                let value = i32::try_from(relative.cast_signed()).map_err(|_| out_of_range())?;
                self.write(at, &value.to_le_bytes())
            }
            Patch::Signed32 => {
                let value = i32::try_from(value.cast_signed()).map_err(|_| out_of_range())?;
                self.write(at, &value.to_le_bytes())
            }
            Patch::Unsigned32 => {
                let value = u32::try_from(value).map_err(|_| out_of_range())?;
                self.write(at, &value.to_le_bytes())
            }
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), ElfError> {
        let end = at.checked_add(bytes.len());
        let target = end.and_then(|end| self.memory.get_mut(at..end));
        target
            .ok_or(ElfError::Damaged("a section's size"))?
            .copy_from_slice(bytes);
        Ok(())
    }

    /// Exported symbols inside executable sections, as offsets in `memory`.
    fn functions(&self) -> Result<BTreeMap<String, usize>, ElfError> {
        let mut functions = BTreeMap::new();
        for (name, index, offset) in &self.object.exports {
            let Some(section) = self.object.sections.get(index) else {
                continue;
            };
            let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
            if section.executable && offset < section.bytes.len() {
                functions.insert(
                    (*name).to_string(),
                    self.section_at(*index, section) + offset,
                );
            }
        }
        Ok(functions)
    }
}

/// The functions that code may call, at their addresses in this process.
fn external_address(name: &str) -> Result<u64, ElfError> {
    match name {
        "memcpy" => Ok(libc::memcpy as *const () as u64),
        "memmove" => Ok(libc::memmove as *const () as u64),
        "memset" => Ok(libc::memset as *const () as u64),
        _ => Err(ElfError::UndefinedSymbol {
            symbol: name.to_string(),
        }),
    }
}
