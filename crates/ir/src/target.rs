//! Facts about targets that schedules, lowering and code generation ask for.

use std::fmt;
use std::str::FromStr;

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

impl Isa {
    pub const ALL: [Isa; 5] = [
        Isa::X86Sse2,
        Isa::X86Avx2,
        Isa::X86Avx512,
        Isa::AArch64Neon,
        Isa::RiscV64Rvv,
    ];

    /// The name on the command line and in keys.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::X86Sse2 => "x86-sse2",
            Isa::X86Avx2 => "x86-avx2",
            Isa::X86Avx512 => "x86-avx512",
            Isa::AArch64Neon => "aarch64-neon",
            Isa::RiscV64Rvv => "riscv64-rvv",
        }
    }
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

    /// Whether the feature string switches an LLVM feature on.
    pub fn has_feature(&self, name: &str) -> bool {
        let mut on = self.features.split(',').map(str::trim);
        on.any(|f| f.strip_prefix('+') == Some(name))
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

impl fmt::Display for Target {
    /// One line of `key=value` fields that parses back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "isa={} triple={} cpu={} features={} vector_bits={} registers={} fma={} l1={} l2={} llc={} line={} threads={}",
            self.isa.name(),
            self.triple,
            self.cpu,
            self.features,
            self.vector_bits,
            self.vector_registers,
            self.has_fma,
            self.l1_bytes,
            self.l2_bytes,
            self.llc_bytes,
            self.cache_line_bytes,
            self.threads
        )
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(s: &str) -> Result<Target, String> {
        fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
            value
                .parse()
                .map_err(|_| format!("target field {key}: `{value}` is not valid"))
        }
        let mut fields = s.split_ascii_whitespace();
        let isa = fields
            .next()
            .and_then(|f| f.strip_prefix("isa="))
            .ok_or("a target starts with isa=NAME")?;
        let isa = Isa::ALL.into_iter().find(|i| i.name() == isa);
        let mut target = Target::generic(isa.ok_or("unknown instruction set family")?);
        for field in fields {
            let (key, value) = field
                .split_once('=')
                .ok_or(format!("`{field}` is not key=value"))?;
            match key {
                "triple" => target.triple = value.into(),
                "cpu" => target.cpu = value.into(),
                "features" => target.features = value.into(),
                "vector_bits" => target.vector_bits = number(key, value)?,
                "registers" => target.vector_registers = number(key, value)?,
                "fma" => target.has_fma = number(key, value)?,
                "l1" => target.l1_bytes = number(key, value)?,
                "l2" => target.l2_bytes = number(key, value)?,
                "llc" => target.llc_bytes = number(key, value)?,
                "line" => target.cache_line_bytes = number(key, value)?,
                "threads" => target.threads = number(key, value)?,
                _ => return Err(format!("unknown target field `{key}`")),
            }
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_on_if_its_whole_name_is() {
        let avx512 = Target::generic(Isa::X86Avx512);
        assert!(avx512.has_feature("avx512f") && avx512.has_feature("fma"));
        let off = ["avx512vnni", "avx", "prefer-256-bit", ""];
        assert!(!off.iter().any(|f| avx512.has_feature(f)));
    }

    #[test]
    fn targets_parse_back() {
        for isa in Isa::ALL {
            let t = Target {
                threads: 3,
                l2_bytes: 77,
                ..Target::generic(isa)
            };
            assert_eq!(t.to_string().parse::<Target>(), Ok(t));
        }
        assert!("isa=vax".parse::<Target>().is_err());
        assert!("isa=x86-avx2 l1=many".parse::<Target>().is_err());
    }
}
