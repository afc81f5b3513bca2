//! A static ELF file of several objects, constants, and memory that the file only names.

use super::ExecutableError;
use runtime::{ElfError, Image, Machine};
use std::collections::BTreeMap;

/// Where executables lie.
const BASE: u64 = 0x1000_0000;
pub(super) const STACK_BYTES: u64 = 8 << 20;
/// Most bytes of an executable in memory: well below where any system begins to put its own things.
const MOST_BYTES: u64 = 1 << 36;
/// Most bytes of program headers that Linux reads.
const MOST_HEADER_BYTES: usize = 1 << 16;

/// Objects at their addresses.
pub(super) struct Objects<'a> {
    machine: Machine,
    images: Vec<(Image<'a>, u64)>,
    page: u64,
    end: u64,
}

impl<'a> Objects<'a> {
    /// Places objects of one machine one behind the other. The first one has the start.
    pub(super) fn new(machine: Machine, objects: &[&'a [u8]]) -> Result<Objects<'a>, ElfError> {
        // Processors with larger pages exist of this architecture.
        let page = if machine == Machine::AArch64 {
            1 << 16
        } else {
            1 << 12
        };
        let (mut images, mut end) = (Vec::new(), BASE);
        for object in objects {
            let image = Image::new(object, page)?;
            let at = end;
            end += image.bytes() as u64;
            images.push((image, at));
        }
        Ok(Objects {
            machine,
            images,
            page: page as u64,
            end,
        })
    }

    /// The addresses of the functions that the first object exports.
    pub(super) fn functions(&self) -> BTreeMap<String, u64> {
        let (first, at) = &self.images[0];
        let functions = first.functions().into_iter();
        functions
            .map(|(name, offset)| (name, at + offset as u64))
            .collect()
    }

    /// The address of a function that the object of this number exports.
    pub(super) fn function(&self, object: usize, name: &str) -> Result<u64, ElfError> {
        let (image, at) = &self.images[object];
        let offset = image.functions().get(name).copied();
        let offset = offset.ok_or_else(|| ElfError::NoEntry { entry: name.into() })?;
        Ok(at + offset as u64)
    }

    /// The memory behind the objects, where constants of so many bytes come first.
    pub(super) fn memory(&self, constant_bytes: u64) -> Memory {
        let data = (self.end + constant_bytes).next_multiple_of(self.page);
        Memory {
            constants: self.end,
            data,
            end: data,
            page: self.page,
        }
    }

    /// The bytes of the file.
    pub(super) fn file(
        &self,
        symbols: &BTreeMap<String, u64>,
        constants: &[u8],
        data: &[u8],
        memory: &Memory,
    ) -> Result<Vec<u8>, ExecutableError> {
        let mut segments = Vec::new();
        for (image, at) in &self.images {
            let (code, all) = (image.code_bytes() as u64, image.bytes() as u64);
            segments.push(Segment::of_file(READ | EXECUTE, *at, code));
            segments.push(Segment::of_file(READ, at + code, all - code));
        }
        let constant_bytes = constants.len() as u64;
        segments.push(Segment::of_file(READ, memory.constants, constant_bytes));
        segments.push(Segment {
            memory_bytes: memory.end - memory.data,
            ..Segment::of_file(READ | WRITE, memory.data, data.len() as u64)
        });
        let header = header(self.machine, symbols["start"], self.page, &segments)?;
        let begin = header.len().next_multiple_of(self.page as usize);
        let bytes = (memory.data - BASE) as usize;
        let mut file = Vec::with_capacity(begin + bytes + data.len());
        file.extend(header);
        file.resize(begin + bytes, 0);
        let external = |name: &str| symbols.get(name).copied();
        for (image, at) in &self.images {
            let offset = begin + (at - BASE) as usize;
            image.write(&mut file[offset..offset + image.bytes()], *at, &external)?;
        }
        let offset = begin + (memory.constants - BASE) as usize;
        file[offset..offset + constants.len()].copy_from_slice(constants);
        file.extend(data);
        Ok(file)
    }
}

/// What lies behind the objects: constants, data that the file has, and memory that is zero at the begin.
pub(super) struct Memory {
    pub(super) constants: u64,
    pub(super) data: u64,
    end: u64,
    page: u64,
}

impl Memory {
    /// Data of the file, before anything is taken.
    pub(super) fn hold(&mut self, data_bytes: u64) {
        self.end = (self.data + data_bytes).next_multiple_of(self.page);
    }

    /// The address of memory with pages of its own; nothing lies between it and the next one.
    ///
    /// # Errors
    /// If the size is not known, or all together would be too large.
    pub(super) fn take(&mut self, name: &str, bytes: Option<u64>) -> Result<u64, ExecutableError> {
        let begin = self.end;
        let bytes = bytes.filter(|b| b.saturating_add(begin) < MOST_BYTES);
        let bytes = bytes.ok_or_else(|| ExecutableError::Size { name: name.into() })?;
        self.end = (begin + bytes).next_multiple_of(self.page) + self.page;
        Ok(begin)
    }
}

const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const READ: u32 = 4;

/// A part of the file that is loaded.
struct Segment {
    flags: u32,
    at: u64,
    bytes: u64,
    memory_bytes: u64,
}

impl Segment {
    fn of_file(flags: u32, at: u64, bytes: u64) -> Segment {
        Segment {
            flags,
            at,
            bytes,
            memory_bytes: bytes,
        }
    }
}

/// The ELF header and the program headers. They have pages of the file for themselves, and what lies at [`BASE`] follows.
fn header(
    machine: Machine,
    start: u64,
    page: u64,
    segments: &[Segment],
) -> Result<Vec<u8>, ExecutableError> {
    // Compressed instructions, and floating-point arguments in registers.
    let flags: u32 = if machine == Machine::RiscV64 { 5 } else { 0 };
    let mut h = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    h.extend(2u16.to_le_bytes());
    h.extend(machine.number().to_le_bytes());
    h.extend(1u32.to_le_bytes());
    h.extend([start, 64, 0].iter().flat_map(|w| w.to_le_bytes()));
    h.extend(flags.to_le_bytes());
    let loaded: Vec<&Segment> = segments.iter().filter(|s| s.memory_bytes > 0).collect();
    let headers = loaded.len() + 1;
    if headers * 56 > MOST_HEADER_BYTES {
        return Err(ExecutableError::Kernels);
    }
    let begin = (64 + 56 * headers as u64).next_multiple_of(page);
    let counts = [64, 56, headers as u16, 0, 0, 0];
    h.extend(counts.iter().flat_map(|n| n.to_le_bytes()));
    for s in loaded {
        h.extend(1u32.to_le_bytes());
        h.extend(s.flags.to_le_bytes());
        let words = [
            s.at - BASE + begin,
            s.at,
            s.at,
            s.bytes,
            s.memory_bytes,
            page,
        ];
        h.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    }
    // The system's own stack is no code.
    h.extend(0x6474_e551u32.to_le_bytes());
    h.extend((READ | WRITE).to_le_bytes());
    h.extend([0u64, 0, 0, 0, 0, 16].iter().flat_map(|w| w.to_le_bytes()));
    Ok(h)
}
