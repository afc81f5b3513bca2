//! Reads the tables of an ELF64 relocatable object.
//!
//! Owns the file format as far as generated code needs it: sections that take
//! memory at run time, symbols and relocations with addends. Promises that
//! every offset, size and index in the result lies within the file, except a
//! relocation's offset and a symbol's offset in its section, which the linker
//! checks where it uses them. Placing and relocating is in `elf`.

use crate::elf::ElfError;
use crate::relocation::{Kind, Machine};
use std::collections::BTreeMap;

const HEADER_BYTES: u64 = 64;
const SECTION_BYTES: u64 = 64;
const SYMBOL_BYTES: u64 = 24;
const RELA_BYTES: u64 = 24;

const TYPE_RELOCATABLE: u16 = 1;

const SECTION_PROGBITS: u32 = 1;
const SECTION_SYMTAB: u32 = 2;
const SECTION_RELA: u32 = 4;
const SECTION_NOBITS: u32 = 8;
const SECTION_REL: u32 = 9;
const SECTION_NOTE: u32 = 7;
const SECTION_X86_64_UNWIND: u32 = 0x7000_0001;

const FLAG_WRITE: u64 = 1;
const FLAG_ALLOC: u64 = 2;
const FLAG_EXECUTE: u64 = 4;
const FLAG_TLS: u64 = 0x400;
const FLAG_COMPRESSED: u64 = 0x800;

const INDEX_UNDEFINED: u16 = 0;
const INDEX_RESERVED: u16 = 0xff00;
const INDEX_ABSOLUTE: u16 = 0xfff1;

const BINDING_LOCAL: u8 = 0;

/// Sections may ask for at most this alignment, a page of any machine we run on.
const MAX_ALIGN: u64 = 4096;

/// A section that takes memory at run time.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(crate) name: String,
    pub(crate) executable: bool,
    pub(crate) align: usize,
    pub(crate) bytes: &'a [u8],
}

/// What a symbol stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    Absolute(u64),
    External(&'a str),
    /// `index` is a key of [`Object::sections`].
    Section {
        index: usize,
        offset: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// A key of [`Object::sections`].
    pub(crate) section: usize,
    pub(crate) offset: u64,
    pub(crate) kind: &'static Kind,
    pub(crate) symbol: u32,
    pub(crate) addend: i64,
}

#[derive(Debug)]
pub(crate) struct Object<'a> {
    pub(crate) machine: Machine,
    pub(crate) sections: BTreeMap<usize, Section<'a>>,
    pub(crate) relocations: Vec<Relocation>,
    /// Symbols defined for others: name, section index, offset in it.
    pub(crate) exports: Vec<(&'a str, usize, u64)>,
    symbols: Vec<Symbol<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Symbol<'a> {
    name: &'a str,
    binding: u8,
    section: u16,
    value: u64,
}

#[derive(Clone, Copy)]
struct Header {
    name: u32,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
}

impl<'a> Object<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Object<'a>, ElfError> {
        let file = File(bytes);
        let machine = machine(file)?;
        let (headers, names) = section_headers(file)?;
        let mut sections = BTreeMap::new();
        for (index, header) in headers.iter().enumerate() {
            let name = file.string(names, header.name, "the section names")?;
            if let Some(section) = loaded_section(file, header, name)? {
                sections.insert(index, section);
            }
        }
        let mut object = Object {
            machine,
            sections,
            relocations: Vec::new(),
            exports: Vec::new(),
            symbols: Vec::new(),
        };
        let table = headers.iter().position(|h| h.kind == SECTION_SYMTAB);
        if let Some(index) = table {
            object.symbols = symbols(file, &headers, &headers[index])?;
            object.exports = object
                .symbols
                .iter()
                .filter(|s| s.binding != BINDING_LOCAL)
                .filter(|s| (1..INDEX_RESERVED).contains(&s.section))
                .map(|s| (s.name, usize::from(s.section), s.value))
                .collect();
        }
        for header in &headers {
            object.read_relocations(file, header, table)?;
        }
        Ok(object)
    }

    /// What symbol `index` stands for; index 0 is the value 0.
    pub(crate) fn symbol(&self, index: u32) -> Result<Target<'a>, ElfError> {
        if index == 0 {
            return Ok(Target::Absolute(0));
        }
        let symbol = self
            .symbols
            .get(index as usize)
            .ok_or(ElfError::Damaged("a relocation's symbol"))?;
        let refused = |reason| ElfError::Symbol {
            symbol: symbol.name.to_string(),
            reason,
        };
        match symbol.section {
            INDEX_UNDEFINED => Ok(Target::External(symbol.name)),
            INDEX_ABSOLUTE => Ok(Target::Absolute(symbol.value)),
            INDEX_RESERVED.. => Err(refused(
                "it is a common or reserved symbol; define it in a constant section",
            )),
            section if self.sections.contains_key(&usize::from(section)) => Ok(Target::Section {
                index: usize::from(section),
                offset: symbol.value,
            }),
            _ => Err(refused("it lies in a section that is not loaded")),
        }
    }

    fn read_relocations(
        &mut self,
        file: File<'a>,
        header: &Header,
        table: Option<usize>,
    ) -> Result<(), ElfError> {
        let section = header.info as usize;
        if !matches!(header.kind, SECTION_RELA | SECTION_REL) {
            return Ok(());
        }
        let Some(target) = self.sections.get(&section) else {
            return Ok(());
        };
        if header.kind == SECTION_REL {
            let reason = "its relocations have no addends";
            return Err(ElfError::Section {
                section: target.name.clone(),
                reason,
            });
        }
        if table != Some(header.link as usize) {
            return Err(ElfError::Damaged("a relocation section"));
        }
        let what = "a relocation section";
        for entry in file.table(header.offset, header.size, RELA_BYTES, what)? {
            let (offset, info) = (entry.u64(0, what)?, entry.u64(8, what)?);
            let addend = entry.u64(16, what)?.cast_signed();
            let (symbol, number) = ((info >> 32) as u32, info as u32);
            if number == 0 {
                continue;
            }
            let kind = Kind::of(self.machine, number).map_err(|relocation| {
                ElfError::UnknownRelocation {
                    relocation,
                    section: target.name.clone(),
                    offset,
                }
            })?;
            self.relocations.push(Relocation {
                section,
                offset,
                kind,
                symbol,
                addend,
            });
        }
        Ok(())
    }
}

/// The machine of a relocatable object.
fn machine(file: File<'_>) -> Result<Machine, ElfError> {
    let what = "the file header";
    if file.0.get(..4) != Some(b"\x7fELF") {
        return Err(ElfError::NotAnObject("the magic bytes are missing"));
    }
    file.range(0, HEADER_BYTES, what)?;
    if file.0[4] != 2 || file.0[5] != 1 {
        return Err(ElfError::NotAnObject(
            "the class is not 64 bits little-endian",
        ));
    }
    if file.u16(16, what)? != TYPE_RELOCATABLE {
        return Err(ElfError::NotAnObject("the file is linked"));
    }
    let number = file.u16(18, what)?;
    Machine::from_number(number).ok_or_else(|| ElfError::Machine {
        machine: Machine::name(number),
    })
}

fn section_headers<'a>(file: File<'a>) -> Result<(Vec<Header>, &'a [u8]), ElfError> {
    let what = "the file header";
    let (at, size) = (file.u64(40, what)?, u64::from(file.u16(58, what)?));
    let (count, names) = (
        u64::from(file.u16(60, what)?),
        usize::from(file.u16(62, what)?),
    );
    if size != SECTION_BYTES || count == 0 {
        return Err(ElfError::Damaged("the section table"));
    }
    let what = "the section table";
    let mut headers = Vec::new();
    for entry in file.table(at, count * SECTION_BYTES, SECTION_BYTES, what)? {
        headers.push(Header {
            name: entry.u32(0, what)?,
            kind: entry.u32(4, what)?,
            flags: entry.u64(8, what)?,
            offset: entry.u64(24, what)?,
            size: entry.u64(32, what)?,
            link: entry.u32(40, what)?,
            info: entry.u32(44, what)?,
            align: entry.u64(48, what)?,
        });
    }
    let names = headers.get(names).ok_or(ElfError::Damaged(what))?;
    let names = file.range(names.offset, names.size, "the section names")?;
    Ok((headers, names))
}

/// The section if it takes memory at run time; unwind tables and notes are
/// left out, because nothing unwinds through a kernel.
fn loaded_section<'a>(
    file: File<'a>,
    header: &Header,
    name: &str,
) -> Result<Option<Section<'a>>, ElfError> {
    let unwind = header.kind == SECTION_X86_64_UNWIND || name == ".eh_frame";
    if header.flags & FLAG_ALLOC == 0 || unwind || header.kind == SECTION_NOTE || header.size == 0 {
        return Ok(None);
    }
    let refused = |reason| {
        Err(ElfError::Section {
            section: name.to_string(),
            reason,
        })
    };
    if header.flags & FLAG_TLS != 0 {
        return refused("it is thread-local; a kernel keeps no state between calls");
    }
    // A constant with addresses in it is writable only until it is relocated.
    let constant = name.starts_with(".data.rel.ro");
    if header.kind == SECTION_NOBITS || (header.flags & FLAG_WRITE != 0 && !constant) {
        return refused("it is writable; a kernel keeps no state between calls");
    }
    if header.flags & FLAG_COMPRESSED != 0 {
        return refused("it is compressed; build without compressed sections");
    }
    if header.kind != SECTION_PROGBITS {
        return refused("its type is unknown; kernels have code and constants only");
    }
    let align = header.align.max(1);
    if !align.is_power_of_two() || align > MAX_ALIGN {
        return refused("its alignment is not a power of two up to 4096");
    }
    Ok(Some(Section {
        name: name.to_string(),
        executable: header.flags & FLAG_EXECUTE != 0,
        align: align as usize,
        bytes: file.range(header.offset, header.size, "a section's content")?,
    }))
}

fn symbols<'a>(
    file: File<'a>,
    headers: &[Header],
    table: &Header,
) -> Result<Vec<Symbol<'a>>, ElfError> {
    let what = "the symbol table";
    let names = headers
        .get(table.link as usize)
        .ok_or(ElfError::Damaged(what))?;
    let names = file.range(names.offset, names.size, "the symbol names")?;
    let mut symbols = Vec::new();
    for entry in file.table(table.offset, table.size, SYMBOL_BYTES, what)? {
        symbols.push(Symbol {
            name: file.string(names, entry.u32(0, what)?, "the symbol names")?,
            binding: entry.u8(4, what)? >> 4,
            section: entry.u16(6, what)?,
            value: entry.u64(8, what)?,
        });
    }
    Ok(symbols)
}

/// Bytes that are read with every bound checked; `what` names the part in errors.
#[derive(Clone, Copy)]
struct File<'a>(&'a [u8]);

impl<'a> File<'a> {
    fn range(self, offset: u64, size: u64, what: &'static str) -> Result<&'a [u8], ElfError> {
        let start = usize::try_from(offset).ok();
        let end = offset
            .checked_add(size)
            .and_then(|e| usize::try_from(e).ok());
        start
            .zip(end)
            .and_then(|(s, e)| self.0.get(s..e))
            .ok_or(ElfError::Damaged(what))
    }

    /// The entries of a table whose size is a multiple of `entry` bytes.
    fn table(
        self,
        offset: u64,
        size: u64,
        entry: u64,
        what: &'static str,
    ) -> Result<impl Iterator<Item = File<'a>>, ElfError> {
        if !size.is_multiple_of(entry) {
            return Err(ElfError::Damaged(what));
        }
        Ok(self
            .range(offset, size, what)?
            .chunks_exact(entry as usize)
            .map(File))
    }

    fn array<const N: usize>(self, at: u64, what: &'static str) -> Result<[u8; N], ElfError> {
        let bytes = self.range(at, N as u64, what)?;
        bytes.try_into().map_err(|_| ElfError::Damaged(what))
    }

    fn u8(self, at: u64, what: &'static str) -> Result<u8, ElfError> {
        Ok(self.array::<1>(at, what)?[0])
    }

    fn u16(self, at: u64, what: &'static str) -> Result<u16, ElfError> {
        Ok(u16::from_le_bytes(self.array(at, what)?))
    }

    fn u32(self, at: u64, what: &'static str) -> Result<u32, ElfError> {
        Ok(u32::from_le_bytes(self.array(at, what)?))
    }

    fn u64(self, at: u64, what: &'static str) -> Result<u64, ElfError> {
        Ok(u64::from_le_bytes(self.array(at, what)?))
    }

    /// The zero-terminated string at `at` of a string table.
    fn string(self, table: &'a [u8], at: u32, what: &'static str) -> Result<&'a str, ElfError> {
        let bytes = table.get(at as usize..).ok_or(ElfError::Damaged(what))?;
        let end = bytes
            .iter()
            .position(|b| *b == 0)
            .ok_or(ElfError::Damaged(what))?;
        std::str::from_utf8(&bytes[..end]).map_err(|_| ElfError::Damaged(what))
    }
}
