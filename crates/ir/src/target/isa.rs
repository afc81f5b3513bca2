//! Instruction set families of CPUs, and what every processor of a family has.
//!
//! Owns each decision about what a family's instructions can do: schedules and
//! code generation ask here and compare no families themselves.

/// The instruction set family and vector extension of a CPU target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Baseline x86-64: SSE2, no FMA.
    X86Sse2,
    X86Avx2,
    X86Avx512,
    AArch64Neon,
    /// Scalar RISC-V: no vectors, so every loop has one lane.
    RiscV64Gc,
    RiscV64Rvv,
}

/// What is the same for every processor of a family.
pub(super) struct Family {
    name: &'static str,
    triple: &'static str,
    level: &'static str,
    features: &'static str,
    /// 0 without vectors.
    pub(super) vector_bits: u32,
    /// Those for floats without vectors.
    pub(super) vector_registers: u32,
    has_fma: bool,
    has_rounding: bool,
    has_broadcast_operands: bool,
    has_half: bool,
}

const X86_64: &str = "x86_64-unknown-linux-gnu";
const RISCV64: &str = "riscv64-unknown-linux-gnu";

impl Isa {
    /// Of one architecture, the narrower family first.
    pub const ALL: [Isa; 6] = [
        Isa::X86Sse2,
        Isa::X86Avx2,
        Isa::X86Avx512,
        Isa::AArch64Neon,
        Isa::RiscV64Gc,
        Isa::RiscV64Rvv,
    ];

    /// The narrowest family of an architecture, by the architecture's name in
    /// triples (`x86_64`); `None` for an architecture without a code generator.
    pub fn baseline(architecture: &str) -> Option<Isa> {
        let of = |i: &Isa| i.triple().split('-').next() == Some(architecture);
        Isa::ALL.into_iter().find(of)
    }

    /// The name on the command line and in keys.
    pub const fn name(self) -> &'static str {
        self.family().name
    }

    /// LLVM triple.
    pub const fn triple(self) -> &'static str {
        self.family().triple
    }

    /// LLVM's CPU name for the architecture level: code uses the instructions
    /// of the level and of the features, and no others.
    pub const fn level(self) -> &'static str {
        self.family().level
    }

    /// LLVM features, with signs and commas, of every target of the family.
    pub const fn features(self) -> &'static str {
        self.family().features
    }

    /// Whether one instruction multiplies and adds with one rounding.
    pub const fn has_fma(self) -> bool {
        self.family().has_fma
    }

    /// Whether one instruction rounds a float to an integer.
    pub const fn has_rounding(self) -> bool {
        self.family().has_rounding
    }

    /// Whether arithmetic takes one element of memory for all lanes, so that a
    /// broadcast costs no register.
    pub const fn has_broadcast_operands(self) -> bool {
        self.family().has_broadcast_operands
    }

    /// Whether instructions load and store some bytes of a vector only.
    pub const fn masks_bytes(self) -> bool {
        matches!(self, Isa::X86Avx512 | Isa::RiscV64Rvv)
    }

    /// Whether instructions convert between f16 and f32.
    pub const fn has_half(self) -> bool {
        self.family().has_half
    }

    pub(super) const fn family(self) -> Family {
        match self {
            Isa::X86Sse2 => Family {
                name: "x86-sse2",
                triple: X86_64,
                level: "x86-64",
                features: "",
                vector_bits: 128,
                vector_registers: 16,
                has_fma: false,
                has_rounding: false,
                has_broadcast_operands: false,
                has_half: false,
            },
            Isa::X86Avx2 => Family {
                name: "x86-avx2",
                triple: X86_64,
                level: "x86-64-v3",
                features: "+avx2,+fma",
                vector_bits: 256,
                vector_registers: 16,
                has_fma: true,
                has_rounding: true,
                has_broadcast_operands: false,
                has_half: true,
            },
            Isa::X86Avx512 => Family {
                name: "x86-avx512",
                triple: X86_64,
                level: "x86-64-v4",
                features: "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx2,+fma,-prefer-256-bit",
                vector_bits: 512,
                vector_registers: 32,
                has_fma: true,
                has_rounding: true,
                has_broadcast_operands: true,
                has_half: true,
            },
            Isa::AArch64Neon => Family {
                name: "aarch64-neon",
                triple: "aarch64-unknown-linux-gnu",
                level: "generic",
                features: "+neon",
                vector_bits: 128,
                vector_registers: 32,
                has_fma: true,
                has_rounding: true,
                has_broadcast_operands: false,
                has_half: true,
            },
            Isa::RiscV64Gc => Family {
                name: "riscv64-gc",
                triple: RISCV64,
                level: "generic-rv64",
                features: "+m,+a,+f,+d,+c",
                vector_bits: 0,
                vector_registers: 32,
                has_fma: true,
                has_rounding: false,
                has_broadcast_operands: false,
                has_half: false,
            },
            Isa::RiscV64Rvv => Family {
                name: "riscv64-rvv",
                triple: RISCV64,
                level: "generic-rv64",
                features: "+m,+a,+f,+d,+c,+v,+zvl256b",
                vector_bits: 256,
                vector_registers: 32,
                has_fma: true,
                has_rounding: true,
                has_broadcast_operands: false,
                has_half: false,
            },
        }
    }
}

/// Instructions that add four products of neighbouring bytes to every 32-bit
/// lane. Each is an addition to one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteDot {
    /// `vpdpbusd` on 512 bits: unsigned by signed bytes.
    Avx512Vnni,
    /// `vpdpbusd` on 256 bits: unsigned by signed bytes.
    AvxVnni,
    /// `sdot`, `udot` and `usdot`: bytes of any signedness.
    NeonMixed,
    /// `sdot` and `udot`: bytes of one signedness.
    Neon,
}

impl ByteDot {
    /// Of one family, those that can do more first.
    pub const ALL: [ByteDot; 4] = [
        ByteDot::Avx512Vnni,
        ByteDot::AvxVnni,
        ByteDot::NeonMixed,
        ByteDot::Neon,
    ];

    /// The name in keys: LLVM's name of the newest feature.
    pub const fn name(self) -> &'static str {
        match self {
            ByteDot::Avx512Vnni => "avx512vnni",
            ByteDot::AvxVnni => "avxvnni",
            ByteDot::NeonMixed => "i8mm",
            ByteDot::Neon => "dotprod",
        }
    }

    /// LLVM features, with signs and commas, that switch the instructions on.
    pub const fn features(self) -> &'static str {
        match self {
            ByteDot::Avx512Vnni => "+avx512vnni",
            ByteDot::AvxVnni => "+avxvnni",
            ByteDot::NeonMixed => "+dotprod,+i8mm",
            ByteDot::Neon => "+dotprod",
        }
    }

    /// The family that the instructions belong to.
    pub const fn isa(self) -> Isa {
        match self {
            ByteDot::Avx512Vnni => Isa::X86Avx512,
            ByteDot::AvxVnni => Isa::X86Avx2,
            ByteDot::NeonMixed | ByteDot::Neon => Isa::AArch64Neon,
        }
    }

    /// Whether one instruction takes the factors as they are: `mixed` if one is
    /// signed and the other is not. Otherwise one factor is moved by 128 and
    /// the difference taken off, which needs registers and instructions.
    pub const fn is_direct(self, mixed: bool) -> bool {
        match self {
            ByteDot::Avx512Vnni | ByteDot::AvxVnni => mixed,
            ByteDot::NeonMixed => true,
            ByteDot::Neon => !mixed,
        }
    }
}

/// Instructions that add two products of neighbouring bf16 to every f32 lane. Each is an
/// addition to one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HalfDot {
    /// `vdpbf16ps` on 512 bits.
    Avx512Bf16,
}

impl HalfDot {
    pub const ALL: [HalfDot; 1] = [HalfDot::Avx512Bf16];

    /// The name in keys: LLVM's name of the feature.
    pub const fn name(self) -> &'static str {
        match self {
            HalfDot::Avx512Bf16 => "avx512bf16",
        }
    }

    /// LLVM features, with signs and commas, that switch the instructions on.
    pub const fn features(self) -> &'static str {
        match self {
            HalfDot::Avx512Bf16 => "+avx512bf16",
        }
    }

    /// The family that the instructions belong to.
    pub const fn isa(self) -> Isa {
        match self {
            HalfDot::Avx512Bf16 => Isa::X86Avx512,
        }
    }
}

/// Instructions that add products of whole tiles to a tile of sums: rows of 64 bytes by rows of
/// 64 bytes. Each is an addition to one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileDot {
    /// AMX of x86: eight tiles of 16 rows of 64 bytes; bytes of any signedness with sums in i32
    /// (`tdpbssd` and its like), and bf16 with sums in f32 (`tdpbf16ps`).
    Amx,
}

impl TileDot {
    pub const ALL: [TileDot; 1] = [TileDot::Amx];

    /// The name in keys.
    pub const fn name(self) -> &'static str {
        match self {
            TileDot::Amx => "amx",
        }
    }

    /// LLVM features, with signs and commas, that switch the instructions on.
    pub const fn features(self) -> &'static str {
        match self {
            TileDot::Amx => "+amx-tile,+amx-int8,+amx-bf16",
        }
    }

    /// The family that the instructions belong to.
    pub const fn isa(self) -> Isa {
        match self {
            TileDot::Amx => Isa::X86Avx512,
        }
    }

    /// Tiles that a core holds.
    pub const fn tiles(self) -> i64 {
        match self {
            TileDot::Amx => 8,
        }
    }

    /// Rows of a tile, at most.
    pub const fn rows(self) -> i64 {
        match self {
            TileDot::Amx => 16,
        }
    }

    /// Sums in a row of a tile: 32 bits each.
    pub const fn lanes(self) -> i64 {
        match self {
            TileDot::Amx => 16,
        }
    }
}
