//! Places the sections of an object in memory and applies its relocations.
//!
//! Owns where everything goes and what is written, for the loader and for whoever writes an executable. Promises that
//! no byte of the object is trusted: a truncated or hostile one gives an error. Where the memory is, and what symbols outside of
//! the object mean, is the caller's business.

use crate::elf::ElfError;
use crate::object::{Object, Relocation, Section, Target};
use crate::relocation::{Machine, Patch};
use std::collections::BTreeMap;

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
const STUB: usize = 16;

/// The address of a symbol outside an object, by its name.
pub type External<'a> = &'a dyn Fn(&str) -> Option<u64>;

/// An object, and where its parts go in one run of memory: code and then constants, each in pages of their own.
pub struct Image<'a> {
    object: Object<'a>,
    layout: Layout,
    page: usize,
    /// Relocations of RISC-V's upper halves, by where they are.
    uppers: BTreeMap<(usize, u64), usize>,
}

impl<'a> Image<'a> {
    pub fn new(bytes: &'a [u8], page: usize) -> Result<Image<'a>, ElfError> {
        let object = Object::parse(bytes)?;
        let layout = Layout::new(&object, image_limit(bytes.len()))?;
        let relocations = object.relocations.iter().enumerate();
        let upper = |(at, r): (usize, &Relocation)| {
            (r.kind.patch == Patch::Upper20).then_some(((r.section, r.offset), at))
        };
        Ok(Image {
            uppers: relocations.filter_map(upper).collect(),
            object,
            layout,
            page,
        })
    }

    pub fn machine(&self) -> Machine {
        self.object.machine
    }

    /// Bytes of the pages of code. Sizes are limited, so nothing here overflows.
    pub fn code_bytes(&self) -> usize {
        self.layout.code_bytes.next_multiple_of(self.page)
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> usize {
        self.code_bytes() + self.layout.data_bytes.next_multiple_of(self.page)
    }

    /// Exported symbols in code, as offsets.
    pub fn functions(&self) -> BTreeMap<String, usize> {
        let mut functions = BTreeMap::new();
        for (name, index, offset) in &self.object.exports {
            let Some(section) = self.object.sections.get(index) else {
                continue;
            };
            let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
            if section.executable && offset < section.bytes.len() {
                functions.insert((*name).to_string(), self.layout.offsets[index] + offset);
            }
        }
        functions
    }

    /// Writes everything for an address to zeroed memory.
    pub fn write(
        &self,
        memory: &mut [u8],
        base: u64,
        external: External<'_>,
    ) -> Result<(), ElfError> {
        let mut linker = Linker {
            object: &self.object,
            layout: &self.layout,
            uppers: &self.uppers,
            external,
            memory,
            base,
            data_at: self.code_bytes(),
        };
        linker.copy_sections()?;
        linker.write_table_and_stubs()?;
        linker.relocate()
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
            if external || relocation.kind.uses_table {
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
    uppers: &'a BTreeMap<(usize, u64), usize>,
    external: External<'a>,
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
                Target::External(name) => self.external_address(name)?,
                _ => self.address(*symbol)?,
            };
            self.write(self.table_slot(*slot), &address.to_le_bytes())?;
        }
        for (symbol, stub) in &layout.stubs {
            let at = layout.stubs_at + stub * STUB;
            let slot = self.base + self.table_slot(layout.table[symbol]) as u64;
            let code = stub_code(self.object.machine, self.base + at as u64, slot)?;
            self.write(at, &code)?;
        }
        Ok(())
    }

    fn external_address(&self, name: &str) -> Result<u64, ElfError> {
        (self.external)(name).ok_or_else(|| ElfError::UndefinedSymbol {
            symbol: name.to_string(),
        })
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
        let width = relocation.kind.patch.width();
        let inside = offset
            .and_then(|o| o.checked_add(width))
            .is_some_and(|e| e <= section.bytes.len());
        let (Some(offset), true) = (offset, inside) else {
            return Err(ElfError::Damaged("a relocation's offset"));
        };
        let at = self.section_at(relocation.section, section) + offset;
        let value = match relocation.kind.patch {
            Patch::LowerLoad | Patch::LowerStore => self.of_upper(relocation)?,
            _ => self.value(relocation)?,
        };
        let end = at + width;
        let place = self.memory.get_mut(at..end);
        let place = place.ok_or(ElfError::Damaged("a section's size"))?;
        let address = self.base.wrapping_add(at as u64);
        apply(relocation.kind.patch, place, address, value).ok_or_else(|| {
            ElfError::RelocationRange {
                relocation: relocation.kind.name,
                section: section.name.clone(),
                offset: relocation.offset,
            }
        })
    }

    /// The address that a relocation refers to, with its addend.
    fn value(&self, relocation: &Relocation) -> Result<u64, ElfError> {
        let target = if relocation.kind.uses_table {
            self.base + self.table_slot(self.layout.table[&relocation.symbol]) as u64
        } else if relocation.kind.patch == Patch::Absolute64
            && let Target::External(name) = self.object.symbol(relocation.symbol)?
        {
            self.external_address(name)?
        } else {
            self.address(relocation.symbol)?
        };
        Ok(target.wrapping_add_signed(relocation.addend))
    }

    /// The relative address whose upper half is at the symbol of a relocation of a lower half.
    fn of_upper(&self, lower: &Relocation) -> Result<u64, ElfError> {
        let missing = ElfError::Damaged("a relocation whose other half is missing");
        let Target::Section { index, offset } = self.object.symbol(lower.symbol)? else {
            return Err(missing);
        };
        let upper = self.uppers.get(&(index, offset)).ok_or(missing)?;
        let value = self.value(&self.object.relocations[*upper])?;
        Ok(value.wrapping_sub(self.address(lower.symbol)?))
    }

    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), ElfError> {
        let end = at.checked_add(bytes.len());
        let target = end.and_then(|end| self.memory.get_mut(at..end));
        target
            .ok_or(ElfError::Damaged("a section's size"))?
            .copy_from_slice(bytes);
        Ok(())
    }
}

/// Writes a value at an address; `None` if it does not fit.
fn apply(patch: Patch, place: &mut [u8], address: u64, value: u64) -> Option<()> {
    let relative = value.wrapping_sub(address).cast_signed();
    let fits = |bits: u32| (-(1i64 << (bits - 1))..1 << (bits - 1)).contains(&relative);
    match patch {
        Patch::Absolute64 => place.copy_from_slice(&value.to_le_bytes()),
        Patch::Relative64 => place.copy_from_slice(&relative.to_le_bytes()),
        Patch::Relative32 => place.copy_from_slice(&i32::try_from(relative).ok()?.to_le_bytes()),
        Patch::Signed32 => {
            let value = i32::try_from(value.cast_signed()).ok()?;
            place.copy_from_slice(&value.to_le_bytes());
        }
        Patch::Unsigned32 => place.copy_from_slice(&u32::try_from(value).ok()?.to_le_bytes()),
        Patch::Page21 => {
            let pages = (value & !0xfff)
                .wrapping_sub(address & !0xfff)
                .cast_signed()
                >> 12;
            let fits = (-(1 << 20)..1 << 20).contains(&pages);
            set(place, ADR_BITS, adr(fits.then_some(pages)?));
        }
        Patch::Adr21 => set(place, ADR_BITS, adr(fits(21).then_some(relative)?)),
        Patch::PageOffset { scale } => {
            let offset = (value & 0xfff) as u32;
            let aligned = offset.is_multiple_of(1 << scale);
            set(
                place,
                0xfff << 10,
                aligned.then_some(offset >> scale)? << 10,
            );
        }
        Patch::Branch26 => {
            let fits = fits(28) && relative % 4 == 0;
            let words = fits.then_some(relative >> 2)? as u32;
            set(place, 0x3ff_ffff, words & 0x3ff_ffff);
        }
        Patch::Upper20 => set(place, UPPER_BITS, upper(relative)?),
        Patch::CallPair => {
            let (first, second) = place.split_at_mut(4);
            set(first, UPPER_BITS, upper(relative)?);
            set(second, 0xfff << 20, (relative as u32) << 20);
        }
        Patch::LowerLoad => set(place, 0xfff << 20, (value as u32) << 20),
        Patch::LowerStore => {
            let low = value as u32;
            let bits = (low & 0x1f) << 7 | (low >> 5 & 0x7f) << 25;
            set(place, 0x1f << 7 | 0x7f << 25, bits);
        }
        Patch::Add32 | Patch::Add64 => add(place, value),
        Patch::Sub32 | Patch::Sub64 => add(place, value.wrapping_neg()),
    }
    Some(())
}

/// Where `adr` and `adrp` have their distance.
const ADR_BITS: u32 = 3 << 29 | 0x7_ffff << 5;

fn adr(distance: i64) -> u32 {
    let bits = distance as u32;
    (bits & 3) << 29 | (bits >> 2 & 0x7_ffff) << 5
}

/// Where `auipc` has its distance.
const UPPER_BITS: u32 = 0xffff_f000;

/// The upper bits of a distance: what the signed lower 12 bits leave.
fn upper(relative: i64) -> Option<u32> {
    let rounded = i32::try_from(relative.checked_add(0x800)?).ok()?;
    Some(rounded as u32 & UPPER_BITS)
}

/// Replaces some bits of an instruction.
fn set(place: &mut [u8], mask: u32, bits: u32) {
    let mut word = [0; 4];
    word.copy_from_slice(place);
    let word = u32::from_le_bytes(word) & !mask | bits & mask;
    place.copy_from_slice(&word.to_le_bytes());
}

/// Adds to a little-endian number.
fn add(place: &mut [u8], value: u64) {
    let mut there = [0; 8];
    there[..place.len()].copy_from_slice(place);
    let sum = u64::from_le_bytes(there).wrapping_add(value);
    place.copy_from_slice(&sum.to_le_bytes()[..place.len()]);
}

/// A jump to the address that a slot of the table holds.
fn stub_code(machine: Machine, at: u64, slot: u64) -> Result<[u8; STUB], ElfError> {
    // Each register may be changed between a call and the function that is called.
    let (words, patches): ([u32; 4], &[(usize, Patch, i64)]) = match machine {
        // jmp *slot(%rip)
        Machine::X86_64 => (
            [0x25ff, 0xcccc_0000, 0xcccc_cccc, 0xcccc_cccc],
            &[(2, Patch::Relative32, -4)],
        ),
        // adrp x16, slot; ldr x16, [x16, slot]; br x16
        Machine::AArch64 => (
            [0x9000_0010, 0xf940_0210, 0xd61f_0200, 0],
            &[
                (0, Patch::Page21, 0),
                (4, Patch::PageOffset { scale: 3 }, 0),
            ],
        ),
        // auipc t3, slot; ld t3, slot(t3); jr t3
        Machine::RiscV64 => (
            [0xe17, 0x000e_3e03, 0xe_0067, 0],
            &[(0, Patch::CallPair, 0)],
        ),
    };
    let mut code = [0; STUB];
    for (bytes, word) in code.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let mut fits = true;
    for (offset, patch, addend) in patches {
        let place = &mut code[*offset..offset + patch.width()];
        let value = slot.wrapping_add_signed(*addend);
        fits &= apply(*patch, place, at + *offset as u64, value).is_some();
    }
    match fits {
        true => Ok(code),
        false => Err(ElfError::Damaged("the code, which is over 2 GiB")),
    }
}
