//! The relocations of generated code, for each machine: their numbers, their names, and how they are written.
//!
//! RISC-V objects are those of a compiler that leaves nothing to relax.

/// A machine that objects may be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    AArch64,
    RiscV64,
}

impl Machine {
    /// Of the number in a file's header.
    pub(crate) fn from_number(number: u16) -> Option<Machine> {
        let all = [Machine::X86_64, Machine::AArch64, Machine::RiscV64];
        all.into_iter().find(|m| m.number() == number)
    }

    /// As ELF headers have it.
    pub const fn number(self) -> u16 {
        match self {
            Machine::X86_64 => 62,
            Machine::AArch64 => 183,
            Machine::RiscV64 => 243,
        }
    }

    /// What to call the machine of a number.
    pub(crate) fn name(number: u16) -> String {
        match number {
            3 => "x86 (32 bits)".to_string(),
            40 => "Arm (32 bits)".to_string(),
            62 => "x86-64".to_string(),
            183 => "AArch64".to_string(),
            190 => "NVIDIA GPUs".to_string(),
            243 => "RISC-V".to_string(),
            other => format!("machine number {other}"),
        }
    }
}

/// How a relocated value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patch {
    Absolute64,
    Relative64,
    Relative32,
    Signed32,
    Unsigned32,
    /// AArch64: the page, relative to this one's, in `adrp`.
    Page21,
    /// AArch64: bytes, relative, in `adr`.
    Adr21,
    /// AArch64: the address within its page, in units of `1 << scale` bytes.
    PageOffset {
        scale: u32,
    },
    /// AArch64: words, relative, in `b` and `bl`.
    Branch26,
    /// RISC-V: the upper bits of a relative address, in `auipc`.
    Upper20,
    /// RISC-V: `auipc` and the instruction after it, which has the lower bits.
    CallPair,
    /// RISC-V: the lower bits of the relative address that the `auipc` at the symbol has the upper bits of.
    LowerLoad,
    LowerStore,
    /// RISC-V: adds the value to what is there, or takes it away.
    Add32,
    Sub32,
    Add64,
    Sub64,
}

impl Patch {
    pub(crate) fn width(self) -> usize {
        match self {
            Patch::Absolute64
            | Patch::Relative64
            | Patch::CallPair
            | Patch::Add64
            | Patch::Sub64 => 8,
            _ => 4,
        }
    }
}

/// A relocation type that the linker applies.
#[derive(Debug)]
pub(crate) struct Kind {
    number: u32,
    pub(crate) name: &'static str,
    pub(crate) patch: Patch,
    /// Whether it refers to the symbol's entry in the table of addresses.
    pub(crate) uses_table: bool,
}

const fn kind(number: u32, name: &'static str, patch: Patch) -> Kind {
    Kind {
        number,
        name,
        patch,
        uses_table: false,
    }
}

const fn table(number: u32, name: &'static str, patch: Patch) -> Kind {
    Kind {
        uses_table: true,
        ..kind(number, name, patch)
    }
}

const X86_64: [Kind; 9] = [
    kind(1, "R_X86_64_64", Patch::Absolute64),
    kind(2, "R_X86_64_PC32", Patch::Relative32),
    kind(4, "R_X86_64_PLT32", Patch::Relative32),
    table(9, "R_X86_64_GOTPCREL", Patch::Relative32),
    kind(10, "R_X86_64_32", Patch::Unsigned32),
    kind(11, "R_X86_64_32S", Patch::Signed32),
    kind(24, "R_X86_64_PC64", Patch::Relative64),
    table(41, "R_X86_64_GOTPCRELX", Patch::Relative32),
    table(42, "R_X86_64_REX_GOTPCRELX", Patch::Relative32),
];

const AARCH64: [Kind; 15] = [
    kind(257, "R_AARCH64_ABS64", Patch::Absolute64),
    kind(260, "R_AARCH64_PREL64", Patch::Relative64),
    kind(261, "R_AARCH64_PREL32", Patch::Relative32),
    kind(274, "R_AARCH64_ADR_PREL_LO21", Patch::Adr21),
    kind(275, "R_AARCH64_ADR_PREL_PG_HI21", Patch::Page21),
    kind(277, "R_AARCH64_ADD_ABS_LO12_NC", page_offset(0)),
    kind(278, "R_AARCH64_LDST8_ABS_LO12_NC", page_offset(0)),
    kind(282, "R_AARCH64_JUMP26", Patch::Branch26),
    kind(283, "R_AARCH64_CALL26", Patch::Branch26),
    kind(284, "R_AARCH64_LDST16_ABS_LO12_NC", page_offset(1)),
    kind(285, "R_AARCH64_LDST32_ABS_LO12_NC", page_offset(2)),
    kind(286, "R_AARCH64_LDST64_ABS_LO12_NC", page_offset(3)),
    kind(299, "R_AARCH64_LDST128_ABS_LO12_NC", page_offset(4)),
    table(311, "R_AARCH64_ADR_GOT_PAGE", Patch::Page21),
    table(312, "R_AARCH64_LD64_GOT_LO12_NC", page_offset(3)),
];

const fn page_offset(scale: u32) -> Patch {
    Patch::PageOffset { scale }
}

const RISCV64: [Kind; 12] = [
    kind(2, "R_RISCV_64", Patch::Absolute64),
    kind(18, "R_RISCV_CALL", Patch::CallPair),
    kind(19, "R_RISCV_CALL_PLT", Patch::CallPair),
    table(20, "R_RISCV_GOT_HI20", Patch::Upper20),
    kind(23, "R_RISCV_PCREL_HI20", Patch::Upper20),
    kind(24, "R_RISCV_PCREL_LO12_I", Patch::LowerLoad),
    kind(25, "R_RISCV_PCREL_LO12_S", Patch::LowerStore),
    kind(35, "R_RISCV_ADD32", Patch::Add32),
    kind(36, "R_RISCV_ADD64", Patch::Add64),
    kind(39, "R_RISCV_SUB32", Patch::Sub32),
    kind(40, "R_RISCV_SUB64", Patch::Sub64),
    kind(57, "R_RISCV_32_PCREL", Patch::Relative32),
];

impl Kind {
    /// # Errors
    /// What to call the type if it is not known.
    pub(crate) fn of(machine: Machine, number: u32) -> Result<&'static Kind, String> {
        let (kinds, prefix): (&'static [Kind], &str) = match machine {
            Machine::X86_64 => (&X86_64, "R_X86_64"),
            Machine::AArch64 => (&AARCH64, "R_AARCH64"),
            Machine::RiscV64 => (&RISCV64, "R_RISCV"),
        };
        let found = kinds.iter().find(|k| k.number == number);
        found.ok_or_else(|| match (machine, other_x86_64(number)) {
            (Machine::X86_64, Some(name)) => format!("{prefix}_{name}"),
            _ => format!("{prefix} of type {number}"),
        })
    }
}

/// Types of x86-64 that are refused.
fn other_x86_64(number: u32) -> Option<&'static str> {
    Some(match number {
        3 => "GOT32",
        5 => "COPY",
        6 => "GLOB_DAT",
        7 => "JUMP_SLOT",
        8 => "RELATIVE",
        12 => "16",
        13 => "PC16",
        14 => "8",
        15 => "PC8",
        16 => "DTPMOD64",
        17 => "DTPOFF64",
        18 => "TPOFF64",
        19 => "TLSGD",
        20 => "TLSLD",
        21 => "DTPOFF32",
        22 => "GOTTPOFF",
        23 => "TPOFF32",
        25 => "GOTOFF64",
        26 => "GOTPC32",
        27 => "GOT64",
        28 => "GOTPCREL64",
        29 => "GOTPC64",
        31 => "PLTOFF64",
        32 => "SIZE32",
        33 => "SIZE64",
        37 => "IRELATIVE",
        _ => return None,
    })
}
