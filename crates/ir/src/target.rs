//! Facts about targets that schedules, lowering and code generation ask for.

/// The instruction set family and vector extension of a CPU target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Baseline x86-64: SSE2, no FMA.
    X86Sse2,
    X86Avx2,
    X86Avx512,
    AArch64Neon,
    RiscV64Rvv,
}

/// What a program is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub isa: Isa,
    /// LLVM triple.
    pub triple: String,
    /// LLVM CPU name.
    pub cpu: String,
    /// LLVM feature string, e.g. `+avx2,+fma`.
    pub features: String,
    /// Width of the vectors that schedules use, in bits.
    pub vector_bits: u32,
    /// Architectural vector registers.
    pub vector_registers: u32,
    pub has_fma: bool,
    pub l1_bytes: u64,
    pub l2_bytes: u64,
    /// Last-level cache, the part one core can use.
    pub llc_bytes: u64,
    pub cache_line_bytes: u64,
    /// Workers of a parallel loop.
    pub threads: u32,
}

impl Target {
    /// Vector elements of a type, at least 1.
    pub fn lanes(&self, dtype: tensor::DType) -> i64 {
        (i64::from(self.vector_bits) / dtype.bits() as i64).max(1)
    }

    /// A generic target of the family with typical caches; the host's real
    /// facts come from the command line's `doctor`.
    pub fn generic(isa: Isa) -> Target {
        let (triple, cpu, features, bits, regs, fma) = match isa {
            Isa::X86Sse2 => ("x86_64-unknown-linux-gnu", "x86-64", "", 128, 16, false),
            Isa::X86Avx2 => (
                "x86_64-unknown-linux-gnu",
                "x86-64-v3",
                "+avx2,+fma",
                256,
                16,
                true,
            ),
            Isa::X86Avx512 => (
                "x86_64-unknown-linux-gnu",
                "x86-64-v4",
                "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx2,+fma,-prefer-256-bit",
                512,
                32,
                true,
            ),
            Isa::AArch64Neon => (
                "aarch64-unknown-linux-gnu",
                "generic",
                "+neon",
                128,
                32,
                true,
            ),
            Isa::RiscV64Rvv => (
                "riscv64-unknown-linux-gnu",
                "generic-rv64",
                "+m,+a,+f,+d,+c,+v,+zvl256b",
                256,
                32,
                true,
            ),
        };
        Target {
            isa,
            triple: triple.into(),
            cpu: cpu.into(),
            features: features.into(),
            vector_bits: bits,
            vector_registers: regs,
            has_fma: fma,
            l1_bytes: 32 << 10,
            l2_bytes: 512 << 10,
            llc_bytes: 8 << 20,
            cache_line_bytes: 64,
            threads: 1,
        }
    }
}
